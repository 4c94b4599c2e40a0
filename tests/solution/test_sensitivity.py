"""Sensitivities as a part of results: shapes, words, files."""

from __future__ import annotations

import copy
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nosnoc_py.errors import TranscriptionError
from nosnoc_py.solution import Sensitivity, Solution, Trajectory, load
from nosnoc_py.solution.optimum import SolutionSensitivity

pytestmark = pytest.mark.quick

NODES = 4
FIELDS = ("x0", "p", "event_times_x0", "event_times_p", "orbital")


@pytest.fixture
def sensitivity() -> Sensitivity:
    """For the trajectory of these tests: two states, one parameter, two events."""
    return Sensitivity(
        x0=[[1.0, np.nextafter(3.0, 4.0)], [-0.0, np.nan]],
        p=[[5e-324], [-np.inf]],
        event_times_x0=[[0.1 + 0.2, 1.0], [np.nan, np.nan]],
        event_times_p=[[1.0], [2.0]],
        orbital=np.linspace(-1.0, np.nextafter(1.0, 2.0), 4 * NODES).reshape(NODES, 2, 2),
    )


FLAGS = ("t = 2: größer ≥ nothing", "t = 3: an event at the end")


def test_smooth_or_flagged(sensitivity: Sensitivity) -> None:
    assert sensitivity.smooth
    flagged = replace(sensitivity, flags=list(FLAGS))
    assert not flagged.smooth
    assert flagged.flags == FLAGS
    assert repr(sensitivity) == "Sensitivity: 2 states by 2 + 1 data, 2 events, along 4 nodes"
    assert repr(flagged).endswith("; not smooth: t = 2: größer ≥ nothing; t = 3: an event at the end")


def test_it_does_not_change(sensitivity: Sensitivity) -> None:
    with pytest.raises(FrozenInstanceError):
        sensitivity.x0 = np.eye(2)  # type: ignore[misc]
    for name in FIELDS:
        with pytest.raises(ValueError, match="read-only"):
            getattr(sensitivity, name)[0, 0] = 1.0
    again = copy.deepcopy(sensitivity)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(again, name), getattr(sensitivity, name))
    assert sensitivity != again  # like every record that holds arrays: by identity


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x0": np.zeros((2, 3))}, r"x0 .*given an array of shape \(2, 3\), expected \(2, 2\)"),
        ({"x0": np.zeros(2)}, r"x0 .*\(2,\), expected \(n_x, n_x\)"),
        ({"p": np.zeros((3, 1))}, r"p .*\(3, 1\), expected \(2, n_p\)"),
        ({"event_times_x0": np.zeros((2, 1))}, r"event_times_x0 .*\(2, 1\), expected \(n_events, 2\)"),
        ({"orbital": np.zeros((3, 2))}, r"orbital .*\(3, 2\), expected \(nodes, 2, 2\)"),
        ({"orbital": np.zeros((3, 2, 1))}, r"orbital .*\(3, 2, 1\), expected \(nodes, 2, 2\)"),
        ({"event_times_p": np.zeros((1, 1))}, r"event_times_p .*\(1, 1\), expected \(2, 1\)"),
    ],
)
def test_shapes_are_checked(sensitivity: Sensitivity, change: dict, message: str) -> None:
    with pytest.raises(TranscriptionError, match=message):
        replace(sensitivity, **change)


def test_it_belongs_to_its_trajectory(trajectory: Trajectory, sensitivity: Sensitivity) -> None:
    assert trajectory.sensitivity is None
    assert "sensitivity" not in repr(trajectory)
    with_it = replace(trajectory, sensitivity=sensitivity)
    assert repr(with_it).splitlines()[-1] == "└── sensitivity: 2 states by 2 + 1 data, 2 events, along 4 nodes"
    for change in ({"events": trajectory.events[:1]}, {"parameters": {}}):
        with pytest.raises(TranscriptionError, match=r"sensitivity: numbers of events, states, .* are 2, 2, 1, "):
            replace(with_it, **change)
    elsewhere = replace(sensitivity, orbital=sensitivity.orbital[1:])
    with pytest.raises(TranscriptionError, match=r"sensitivity: orbital has 3 nodes, .* trajectory, 4\."):
        replace(trajectory, sensitivity=elsewhere)
    by_controls = replace(sensitivity, u=np.zeros((len(trajectory.u) + 1, 2, trajectory.u.shape[1])))
    with pytest.raises(TranscriptionError, match="sensitivity: numbers of events"):
        replace(trajectory, sensitivity=by_controls)


def test_events_or_controls_may_be_absent() -> None:
    plain = Sensitivity(x0=np.eye(2), p=np.zeros((2, 0)), u=np.zeros((3, 2, 1)))
    assert repr(plain) == "Sensitivity: 2 states by 2 + 0 data and 3 controls"
    with pytest.raises(TranscriptionError, match="belong together"):
        Sensitivity(x0=np.eye(2), p=np.zeros((2, 0)), event_times_x0=np.zeros((1, 2)))


def test_three_flags_are_shown_and_the_others_counted() -> None:
    for count, more in ((3, ""), (4, "; and 1 more flags")):
        optimum: Any = SimpleNamespace(
            at=SimpleNamespace(u=np.zeros((5, 2))), names=("x0",), flags=tuple("abcd"[:count])
        )
        said = SolutionSensitivity.__repr__(optimum)
        assert said.endswith(f"objective and 5 x 2 controls by x0; not certain to exist: a; b; c{more}")


@pytest.mark.parametrize("flags", [(), FLAGS])
def test_files_keep_it_to_the_bit(
    trajectory: Trajectory, solution: Solution, sensitivity: Sensitivity, flags: tuple[str, ...], tmp_path: Path
) -> None:
    for k, result in enumerate((trajectory, solution)):
        saved = replace(result, sensitivity=replace(sensitivity, flags=flags))
        again = load(saved.save(tmp_path / f"{k}.nc"))
        assert type(again) is type(result)
        assert again.sensitivity is not None
        assert again.sensitivity.flags == flags
        for name in FIELDS:
            one, other = getattr(again.sensitivity, name), getattr(sensitivity, name)
            assert one.shape == other.shape
            assert one.tobytes() == other.tobytes()
            assert not one.flags.writeable


def test_files_without_parameters_or_events(tmp_path: Path) -> None:
    empty = Sensitivity(
        x0=np.eye(1),
        p=np.zeros((1, 0)),
        event_times_x0=np.zeros((0, 1)),
        event_times_p=np.zeros((0, 0)),
        orbital=np.ones((1, 1, 1)),
    )
    bare = Trajectory(
        t=[0], x=[[1.0]], state_names=["q"], u_grid=[0], u=np.zeros((0, 0)), control_names=[], sensitivity=empty
    )
    again = load(bare.save(tmp_path / "bare.nc")).sensitivity
    assert again is not None
    assert [getattr(again, name).shape for name in FIELDS] == [(1, 1), (1, 0), (0, 1), (0, 0), (1, 1, 1)]


def test_files_know_what_is_not_there(trajectory: Trajectory, sensitivity: Sensitivity, tmp_path: Path) -> None:
    """As those of other simulators, and those that were written before there was an orbital derivative."""
    without = replace(trajectory, sensitivity=replace(sensitivity, orbital=None))
    again = load(without.save(tmp_path / "without.nc")).sensitivity
    assert again is not None
    assert again.orbital is None
    assert again.event_times_x0 is not None
