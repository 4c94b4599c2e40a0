"""Two balls and a spring: the exact reference of the order experiment, checked against an independent integrator."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import casadi as ca
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from models.two_balls_spring import PAPER, Constants, build
from nosnoc_py.errors import ModelError
from tests.references.two_balls_spring import exact

UNEQUAL = Constants(stiffness=300.0, restitution=0.8, radius=0.15, masses=(0.5, 2.0), rest_length=0.8)
SOFT = Constants(stiffness=40.0, restitution=0.9)
HEAVY_BELOW = Constants(stiffness=2e3, restitution=1.0, masses=(3.0, 0.7))


def acceleration(x: NDArray[np.float64], c: Constants) -> NDArray[np.float64]:
    """Eq. 36 without contact, written by hand."""
    spring = c.stiffness * (x[1] - x[0] - c.rest_length)
    return np.array([-c.gravity + spring / c.masses[0], -c.gravity - spring / c.masses[1]])


def event_driven(duration: float, c: Constants) -> tuple[list[float], NDArray[np.float64]]:
    """Impact times and final state by DOP853 with event location, started from the paper's state."""

    def touch(t: float, x: NDArray[np.float64]) -> float:
        return float(x[0] - c.radius) if t > start else 1.0  # an impact is not its own successor

    touch.terminal, touch.direction = True, -1.0  # type: ignore[attr-defined]
    start, x, times = -1.0, np.array([1.0, 2.0, 0.0, 0.0]), []
    t = 0.0
    while t < duration:
        run = solve_ivp(
            lambda _, y: np.concatenate([y[2:], acceleration(y, c)]),
            (t, duration),
            x,
            method="DOP853",
            rtol=1e-13,
            atol=1e-13,
            max_step=0.05 / c.omega,
            events=touch,
        )
        t, x = float(run.t[-1]), run.y[:, -1].copy()
        if run.status == 1:
            times.append(t)
            x[0], x[2], start = c.radius, -c.restitution * x[2], t
    return times, x


def test_published_impacts() -> None:
    impacts = exact(1.0).impacts
    times, impulses = [i.time for i in impacts], [i.impulse for i in impacts]
    np.testing.assert_allclose(times, [0.403855021876922, 0.423316968814707], rtol=0, atol=1e-12)
    np.testing.assert_allclose(impulses, [7.1312719763, 6.9947961086], rtol=0, atol=1e-9)


def test_the_first_impact_is_that_of_free_fall() -> None:
    # The spring starts at its rest length, so both balls fall freely: 0.8 = g t^2 / 2.
    first = exact(1.0).impacts[0]
    assert first.time == pytest.approx(np.sqrt(1.6 / 9.81), abs=1e-15)
    assert first.v_before[0] == pytest.approx(-np.sqrt(2 * 9.81 * 0.8), abs=1e-14)


@pytest.mark.parametrize(
    ("constants", "duration"), [(PAPER, 1.0), (UNEQUAL, 2.0), (SOFT, 2.0), (HEAVY_BELOW, 1.5)], ids=str
)
def test_against_an_event_driven_integrator(constants: Constants, duration: float) -> None:
    solution = exact(duration, constants=constants)
    times, x = event_driven(duration, constants)
    assert len(times) == len(solution.impacts) >= 2
    np.testing.assert_allclose([i.time for i in solution.impacts], times, rtol=0, atol=1e-9)
    np.testing.assert_allclose(solution(duration)[0], x, rtol=0, atol=1e-9 * constants.omega)


@pytest.mark.parametrize("constants", [PAPER, UNEQUAL, SOFT, HEAVY_BELOW], ids=str)
def test_energy_is_constant_between_impacts_and_lost_in_them(constants: Constants) -> None:
    solution = exact(1.5, constants=constants)
    knots = [0.0, *(i.time for i in solution.impacts), 1.5]
    for a, b in pairwise(knots):
        t = np.linspace(a, b, 50)
        energy = np.concatenate([solution.energy(solution(t[:-1])), solution.energy(solution(t[-1:], side="-"))])
        np.testing.assert_allclose(energy, energy[0], rtol=1e-12)
    for i in solution.impacts:
        lost = solution.energy(solution(i.time, side="-")) - solution.energy(solution(i.time, side="+"))
        expected = 0.5 * constants.masses[0] * (1 - constants.restitution**2) * i.v_before[0] ** 2
        np.testing.assert_allclose(lost, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("constants", [PAPER, UNEQUAL, SOFT, HEAVY_BELOW], ids=str)
def test_impact_laws(constants: Constants) -> None:
    solution = exact(1.5, constants=constants)
    for i in solution.impacts:
        left, right = solution(i.time, side="-")[0], solution(i.time)[0]
        np.testing.assert_allclose(left[:2], right[:2], rtol=0, atol=1e-15)
        assert right[0] == pytest.approx(constants.radius, rel=1e-14)
        np.testing.assert_allclose([*left[2:], *right[2:]], [*i.v_before, *i.v_after], rtol=0, atol=1e-13)
        assert i.v_before[0] < 0
        assert i.v_after[0] == pytest.approx(-constants.restitution * i.v_before[0], rel=1e-14)
        assert i.v_after[1] == pytest.approx(i.v_before[1], rel=1e-14)
        assert i.impulse == pytest.approx(constants.masses[0] * (i.v_after[0] - i.v_before[0]), abs=1e-14)


@pytest.mark.parametrize("stiffness", [1.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("masses", [(1.0, 1.0), (0.1, 5.0), (5.0, 0.1)])
def test_no_impact_is_missed(stiffness: float, masses: tuple[float, float]) -> None:
    constants = Constants(stiffness=stiffness, masses=masses, restitution=1.0)
    solution = exact(1.0, v=(-1.0, 3.0), constants=constants)
    heights = solution(np.linspace(0.0, 1.0, 100_001))[:, 0]
    assert heights.min() >= constants.radius - 1e-12


def test_the_motion_solves_the_differential_equation() -> None:
    solution = exact(1.0, constants=UNEQUAL)
    t, h = np.array([0.1, 0.35, 0.9]), 1e-5
    difference = (solution(t + h) - solution(t - h)) / (2 * h)
    flow = np.array([[*x[2:], *acceleration(x, UNEQUAL)] for x in solution(t)])
    np.testing.assert_allclose(difference, flow, rtol=1e-6, atol=1e-6)


def test_a_ball_without_an_oscillating_spring_follows_a_parabola() -> None:
    # At rest length and with equal velocities the spring never acts before the first impact.
    t = np.linspace(0.0, 0.4, 9)
    x = exact(0.4)(t)
    np.testing.assert_allclose(x[:, 0], 1 - 0.5 * 9.81 * t**2, rtol=0, atol=1e-15)
    assert exact(0.4).impacts == ()


def test_starts_and_ends_that_have_no_closed_form_are_refused() -> None:
    with pytest.raises(ModelError, match="above the ground"):
        exact(q=(0.1, 1.1))
    with pytest.raises(ModelError, match="comes to rest"):
        exact(constants=Constants(restitution=0.0))
    with pytest.raises(ModelError, match="comes to rest"):
        exact(2.0, constants=replace(UNEQUAL, restitution=0.6))  # impacts accumulate near t = 1.2
    with pytest.raises(ModelError, match="known on"):
        exact(1.0)(1.1)
    with pytest.raises(ModelError, match="stiffness > 0"):
        Constants(stiffness=0.0)


def test_a_ball_may_start_on_the_ground_and_leave_it() -> None:
    assert exact(0.1, q=(0.2, 1.2), v=(3.0, 3.0)).impacts == ()


def test_build() -> None:
    system = build(masses=(0.5, 2.0), stiffness=300.0, restitution=0.8, radius=0.15, rest_length=0.8)
    (ground,) = system.contacts
    evaluate = ca.Function("evaluate", [system.x], [system.mass_matrix, system.force, ground.gap])
    x = np.array([0.4, 1.5, -0.3, 0.2])
    mass_matrix, force, gap = (np.array(value) for value in evaluate(x))
    np.testing.assert_array_equal(mass_matrix, np.diag([0.5, 2.0]))
    np.testing.assert_allclose(np.linalg.solve(mass_matrix, force).ravel(), acceleration(x, UNEQUAL), rtol=1e-14)
    assert gap.item() == pytest.approx(0.25)
    assert (ground.name, ground.restitution) == ("ground", 0.8)
    assert system.state_names == ("height_1", "height_2", "velocity_1", "velocity_2")
    np.testing.assert_array_equal(np.array(ca.DM(system.normal(ground))).ravel(), [1.0, 0.0])
