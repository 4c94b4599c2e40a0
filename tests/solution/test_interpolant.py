"""Dense output: exact for the polynomials it stands for, honest on either side of a jump."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nosnoc_py.errors import OptionError, TranscriptionError
from nosnoc_py.solution import RungeKuttaInterpolant, nodes_of

pytestmark = pytest.mark.quick

S6, S15 = np.sqrt(6.0), np.sqrt(15.0)
SCHEMES = {
    "radau_iia_2": [1 / 3, 1.0],
    "radau_iia_3": [(4 - S6) / 10, (4 + S6) / 10, 1.0],
    "gauss_2": [0.5 - np.sqrt(3) / 6, 0.5 + np.sqrt(3) / 6],
    "gauss_3": [0.5 - S15 / 10, 0.5, 0.5 + S15 / 10],
}


def sample(c, t_left, h, function) -> RungeKuttaInterpolant:
    c, t_left, h = np.asarray(c), np.asarray(t_left), np.asarray(h)
    stages = function(t_left[:, None] + h[:, None] * c)
    return RungeKuttaInterpolant(t_left=t_left, h=h, c=c, x_left=function(t_left), x_stages=stages)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_exact_for_polynomials_up_to_the_number_of_stages(scheme: str) -> None:
    c = SCHEMES[scheme]
    h = np.array([0.3, 1e-4, 0.7])
    t_left = np.concatenate([[2.0], 2.0 + np.cumsum(h)[:-1]])
    powers = np.arange(len(c) + 1)

    def monomials(t: np.ndarray) -> np.ndarray:
        return (t[..., None] - 2.0) ** powers

    interpolant = sample(c, t_left, h, monomials)
    t = np.linspace(2.0, 2.0 + h.sum(), 101)
    for side in "-+":
        np.testing.assert_allclose(interpolant(t, side), monomials(t), rtol=0, atol=1e-12)
    np.testing.assert_allclose(interpolant.x_right, monomials(t_left + h), rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_degree_more_is_not_exact(scheme: str) -> None:
    c = SCHEMES[scheme]
    interpolant = sample(c, [0.0], [1.0], lambda t: t[..., None] ** (len(c) + 1))
    t = np.linspace(0, 1, 50)
    assert np.abs(interpolant(t)[:, 0] - t ** (len(c) + 1)).max() > 1e-2


@given(
    c=st.lists(st.integers(1, 20), min_size=1, max_size=5, unique=True),
    coefficients=st.lists(st.floats(-10, 10), min_size=6, max_size=6),
    tau=st.floats(0, 1),
)
def test_exact_for_any_distinct_nodes(c: list[int], coefficients: list[float], tau: float) -> None:
    nodes = np.sort(c) / 20
    polynomial = np.polynomial.Polynomial(coefficients[: len(c) + 1])
    interpolant = sample(nodes, [0.0], [1.0], lambda t: polynomial(t)[..., None])
    # nodes that crowd at one end make extrapolation to the other ill-conditioned, by at most 1e5 here
    assert interpolant(tau)[0] == pytest.approx(polynomial(tau), abs=1e-8)


def test_sides_at_a_jump(interpolant: RungeKuttaInterpolant) -> None:
    np.testing.assert_array_equal(interpolant(1.0, "-"), [1.0, 1.0])
    np.testing.assert_array_equal(interpolant(1.0, "+"), [1.0, -2.0])
    np.testing.assert_array_equal(interpolant(1.0), interpolant(1.0, "+"))
    np.testing.assert_allclose(interpolant([0.5, 2.0]), [[0.5, 1.0], [-1.0, -2.0]], atol=1e-14)


def test_event_times_off_by_round_off_still_see_the_jump(interpolant: RungeKuttaInterpolant) -> None:
    for t in (np.nextafter(1.0, 0.0), np.nextafter(1.0, 2.0)):
        np.testing.assert_array_equal(interpolant(t, "-"), [1.0, 1.0])
        np.testing.assert_array_equal(interpolant(t, "+"), [1.0, -2.0])


def test_jump_at_the_very_start_and_no_jump_at_the_end() -> None:
    jump = RungeKuttaInterpolant(t_left=[0.0], h=[1.0], c=[1.0], x_left=[[2.0]], x_stages=[[[3.0]]], x_initial=[-1.0])
    assert jump(0.0, "-") == [-1.0]
    assert jump(0.0, "+") == [2.0]
    assert jump(1.0, "-") == jump(1.0, "+") == [3.0]


def test_without_a_jump_the_start_is_the_left_value(interpolant: RungeKuttaInterpolant) -> None:
    np.testing.assert_allclose(interpolant(0.0, "-"), interpolant(0.0, "+"), rtol=0, atol=1e-15)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_elements_of_length_zero(position: int) -> None:
    h = np.insert([1.0, 2.0], position, 0.0)
    t_left = np.concatenate([[0.0], np.cumsum(h)[:-1]])
    interpolant = sample([1 / 3, 1.0], t_left, h, lambda t: t[..., None] ** 2)
    t = np.linspace(0, 3, 31)
    for side in "-+":
        np.testing.assert_allclose(interpolant(t, side)[:, 0], t**2, atol=1e-13)


def test_jump_across_an_element_of_length_zero() -> None:
    interpolant = RungeKuttaInterpolant.linear([0, 1, 1, 1, 2], [[0], [1], [5], [7], [8]])
    assert interpolant(1.0, "-") == [1.0]
    assert interpolant(1.0, "+") == [7.0]
    assert interpolant(1.5) == [7.5]


def test_left_stage_gives_way_to_the_left_value() -> None:
    lobatto = sample([0.0, 0.5, 1.0], [0.0], [2.0], lambda t: t[..., None] ** 2)
    assert lobatto(0.6)[0] == pytest.approx(0.36, abs=1e-14)


@pytest.mark.parametrize("t", [-1e-6, 3.0 + 1e-6, np.nan])
def test_outside_raises_and_names_the_interval(interpolant: RungeKuttaInterpolant, t: float) -> None:
    with pytest.raises(TranscriptionError, match=r"\[0, 3\]"):
        interpolant(t)
    interpolant([-1e-10, 3 + 1e-10])  # round-off is forgiven


def test_mistakes_are_named(interpolant: RungeKuttaInterpolant) -> None:
    with pytest.raises(OptionError, match="left limit"):
        interpolant(1.0, "left")  # type: ignore[arg-type]
    arrays = {f.name: getattr(interpolant, f.name) for f in fields(interpolant)}
    with pytest.raises(TranscriptionError, match=r"x_stages.*\(2, 2, 2\).*expected \(2, 3, 2\)"):
        RungeKuttaInterpolant(**arrays | {"c": [0.1, 0.2, 1.0]})
    with pytest.raises(TranscriptionError, match="distinct"):
        RungeKuttaInterpolant(**arrays | {"c": [1.0, 1.0]})


def test_its_arrays_are_read_only(interpolant: RungeKuttaInterpolant) -> None:
    with pytest.raises(ValueError, match="read-only"):
        interpolant.x_left[0] = 1.0


def test_nodes_repeat_the_time_at_jumps_only() -> None:
    t, x = nodes_of(
        t_left=[0.0, 1.0, 2.0],
        h=[1.0, 1.0, 1.0],
        x_initial=[9.0],
        x_left=[[0.0], [1.0 + 1e-10], [-2.0]],
        x_right=[[1.0], [2.0], [-3.0]],
    )
    np.testing.assert_array_equal(t, [0, 0, 1, 2, 2, 3])
    np.testing.assert_array_equal(x[:, 0], [9, 0, 1, 2, -2, -3])


def test_jump_tolerance_is_relative_to_large_states() -> None:
    parts = {"t_left": [0.0, 1.0], "h": [1.0, 1.0], "x_initial": [1e6], "x_right": [[1e6], [1e6]]}
    assert len(nodes_of(**parts, x_left=[[1e6], [1e6 + 5e-3]])[0]) == 3
    assert len(nodes_of(**parts, x_left=[[1e6], [1e6 + 5e-3]], jump_tolerance=1e-9)[0]) == 4
