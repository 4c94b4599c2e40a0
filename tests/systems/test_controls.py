"""Controls in every form a user may give them."""

from __future__ import annotations

import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.systems.controls import PiecewiseConstant, control_of

pytestmark = pytest.mark.quick

NOWHERE = np.zeros(0)


def test_nothing_is_zero():
    control = control_of(None, 2, 1.0)
    assert control(0.3, NOWHERE).tolist() == [0.0, 0.0]
    assert control.constant
    assert not control.feedback
    assert control.breaks.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("given", [3.0, [3.0], np.array([3.0])])
def test_a_constant(given):
    control = control_of(given, 1, 1.0)
    assert control(0.7, NOWHERE).tolist() == [3.0]
    assert control.breaks.tolist() == [0.0, 1.0]


def test_rows_are_equal_intervals():
    control = control_of([[1.0], [2.0], [4.0], [8.0]], 1, 2.0)
    assert control.breaks.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert [control(t, NOWHERE)[0] for t in (0.0, 0.49, 0.5, 1.2, 1.9, 2.0)] == [1.0, 1.0, 2.0, 4.0, 8.0, 8.0]


def test_intervals_include_the_ends():
    """Of a law that is sampled at 0, 0.5 and 1 s: times before and after belong to the first and the last interval."""
    control = control_of(ns.SampledLaw(lambda t, x: [t], 0.5), 1, 1.5)
    times = (-0.1, 0.0, 0.49, 0.5, 0.99, 1.0, 1.5, 1.6)
    assert [control._interval(t) for t in times] == [0, 0, 0, 1, 1, 2, 2, 2]
    assert control(1.5, NOWHERE).tolist() == [1.0]


def test_a_grid_of_ones_own():
    control = control_of(PiecewiseConstant([0.0, 0.1, 1.0], [5.0, 7.0]), 1, 1.0)
    assert control.breaks.tolist() == [0.0, 0.1, 1.0]
    assert [control(t, NOWHERE)[0] for t in (0.0, 0.1, 1.0)] == [5.0, 7.0, 7.0]
    shorter = control_of(PiecewiseConstant([0.0, 0.1, 1.0], [5.0, 7.0]), 1, 0.5)
    assert shorter.breaks.tolist() == [0.0, 0.1, 0.5]


def test_functions_of_time_and_of_the_state():
    law = control_of(lambda t: [2.0 * t], 1, 1.0)
    assert law(0.25, NOWHERE)[0] == 0.5
    assert not law.constant
    assert not law.feedback
    feedback = control_of(lambda t, x: [x[0] - t], 1, 1.0)
    assert feedback(0.25, np.array([1.0]))[0] == 0.75
    assert feedback.feedback
    scaled = control_of(lambda t, gain=3.0: [gain * t], 1, 1.0)  # a default is no argument
    assert scaled(1.0, NOWHERE)[0] == 3.0
    assert not scaled.feedback


def trajectory(start: float) -> ns.Trajectory:
    return ns.Trajectory(
        t=[start, start + 2.0],
        x=[[0.0], [1.0]],
        state_names=("x",),
        u_grid=[start, start + 0.5, start + 0.5, start + 2.0],
        u=[[1.0], [9.0], [2.0]],
        control_names=("u",),
    )


@pytest.mark.parametrize("start", [0.0, 10.0])
def test_a_trajectory_counts_from_its_start_and_forgets_stages_without_length(start):
    control = control_of(trajectory(start), 1, 2.0)
    assert control.breaks.tolist() == [0.0, 0.5, 2.0]
    assert [control(t, NOWHERE)[0] for t in (0.2, 0.5, 1.9)] == [1.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("grid", "duration"),
    [([0.0, 0.5, 0.9], 1.0), ([0.1, 0.5, 1.0], 1.0), ([0.0, 0.5, 1.0], 1.01)],
)
def test_a_grid_that_does_not_cover_the_duration_is_an_error(grid, duration):
    with pytest.raises(ns.OptionError, match=r"control grid: it goes from .* does not cover the interval from 0 to"):
        control_of(PiecewiseConstant(grid, [1.0, 2.0]), 1, duration)


@pytest.mark.parametrize(
    ("grid", "values", "message"),
    [
        ([0.0, 0.0, 1.0], [1.0, 2.0], "increasing times"),
        ([0.0], [], "at least two"),
        ([0.0, 1.0], [1.0, 2.0], "one row for each of the 1 intervals"),
        ([0.0, 1.0], [np.nan], "finite"),
    ],
)
def test_impossible_grids_are_errors(grid, values, message):
    with pytest.raises(ns.OptionError, match=message):
        PiecewiseConstant(grid, values)


def test_wrong_numbers_of_controls_are_errors():
    with pytest.raises(ns.TranscriptionError, match="expected 2 numbers per interval, given 1"):
        control_of(PiecewiseConstant([0.0, 1.0], [1.0]), 2, 1.0)
    with pytest.raises(ns.TranscriptionError, match="expected 2 numbers"):
        control_of([1.0, 2.0, 3.0], 2, 1.0)
    with pytest.raises(ns.TranscriptionError, match="expected a control"):
        control_of("full", 1, 1.0)
    with pytest.raises(ns.TranscriptionError, match="expected a control"):
        control_of("0", 1, 1.0)  # NumPy would read the number
    with pytest.raises(ns.ModelError, match=r"u\(t\): expected 1 numbers, given 2"):
        control_of(lambda t: [1.0, 2.0], 1, 1.0)(0.0, NOWHERE)
