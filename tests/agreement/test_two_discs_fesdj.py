"""Two elastic discs by FESD-J against the exact optima over all controls, and over those that are constant in stages.

Motions are polynomials in time and the cost of a stage is exact, so FESD-J solves exactly the problem over controls
that are constant in N equal stages. Its optimum is known independently: for given s and n the best such control follows
from two linear equations, and s and the angle of n remain. Two things are seen there.

- The control jumps at the collision, but only between stages. A stage in which the discs meet is paid to its end, so
  the cost over s has a local minimum at (nearly) every boundary of stages: which of them is found depends on the start,
  and s is off by up to half a stage. With delta = s - s_opt the error is

      J'' / 2 delta^2 + epsilon s |u'|^2 / 12 h^2,

  of second order in h, but a saw-tooth in N: halving h divides it by four where delta stays what it is or is small.
- gamma_h = 1 lets the collision come to the boundary; by default the shortest element keeps it away.

Starts are simulated motions: under a constant force whose size is chosen for a stage in which the discs meet, or, where
rounding decides which local minimum is found from there, under the best control for a collision just behind the best.
"""

from __future__ import annotations

from functools import cache
from math import atan2

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

import nosnoc_py as ns
from problems.two_discs import EXPERIMENTS, HORIZON, RADII, build
from tests.pairwise import slow_row
from tests.references.multi_phase import multi_phase
from tests.references.two_discs import Optimum, optimum

Array = NDArray[np.float64]
METHOD = ns.FESDJ(rk_stages=3, scheme="radau_iia", finite_elements=2, gamma_h=1.0)
WARM = ns.Homotopy(sigma_0=1e-3)
MARGIN = 1e-7


@cache
def exact(experiment: str) -> Optimum:
    return optimum(experiment)


def pushed(experiment: str, stages: int, meeting: float) -> Array:
    """A constant force along the paper's, with which the discs meet after so many stages."""
    data = EXPERIMENTS[experiment]
    way = np.hypot(*np.subtract(data.start[2:], data.start[:2])) - sum(RADII)
    return np.array(data.control) / np.hypot(*data.control) * 2.0 * way / (meeting / stages) ** 2


def solve(experiment: str, stages: int, force: Array, method: ns.FESDJ = METHOD) -> ns.Solution:
    """Solve from the motion under a force."""
    ocp, simulator = build(experiment, smoothing=1e-2), METHOD.replace(gamma_h=None)
    start = ns.simulate(ocp.system, x0=ocp.x0, duration=HORIZON, u=force, method=simulator, steps=stages)
    return ns.solve(ocp, method.replace(control_stages=stages), WARM, guess=start)


# The optimum over controls that are constant in stages


def least(experiment: str, stages: int, s: float, angle: float) -> tuple[float, Array]:
    """Least cost, and its control (stages, 2), for a collision at s along a normal.

    It is that of u with int u = v', int (s - t) u = d, for the best v'.
    """
    data = EXPERIMENTS[experiment]
    left = np.maximum(s - np.linspace(0.0, HORIZON, stages + 1), 0.0)
    first, second = left[:-1] - left[1:], (left[:-1] ** 2 - left[1:] ** 2) / 2.0
    weight = data.epsilon / stages
    n = np.array([np.cos(angle), np.sin(angle)])
    way = np.subtract(data.start[2:], data.start[:2]) - sum(RADII) * n
    along, across = way @ n, way @ np.array([-n[1], n[0]])
    inverse = np.linalg.inv(np.array([[second @ second, first @ second], [first @ second, first @ first]]))
    miss, slope = np.array(data.start[2:]), (HORIZON - s) * n
    if data.wall is not None:  # the target in the mirror
        miss = miss - np.array([0.0, 2.0 * (data.wall - RADII[1])])
    speed = -(weight * inverse[0, 1] * along + slope @ miss) / (weight * inverse[1, 1] + slope @ slope)
    shares = inverse @ (along, speed)
    control = np.outer(shares[0] * second + shares[1] * first, n)
    control += np.outer(across / (second @ second) * second, [-n[1], n[0]])
    return float(weight * np.sum(control**2) + np.sum((miss + slope * speed) ** 2)), control


def best_angle(experiment: str, stages: int, s: float) -> float:
    angle = atan2(*exact(experiment).normal[::-1])
    found = minimize_scalar(
        lambda value: least(experiment, stages, s, value)[0],
        bounds=(angle - 0.3, angle + 0.3),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return float(found.x)


def at(experiment: str, stages: int, s: float) -> float:
    """Least cost for a collision at s."""
    return least(experiment, stages, s, best_angle(experiment, stages, s))[0]


def best_control(experiment: str, stages: int, s: float) -> Array:
    return least(experiment, stages, s, best_angle(experiment, stages, s))[1]


def minimum(experiment: str, stages: int, stage: int) -> tuple[float, float]:
    """Least cost and its s for a collision in one stage, its ends included."""
    low, high = stage / stages, (stage + 1) / stages
    inner = minimize_scalar(
        lambda s: at(experiment, stages, s), bounds=(low, high), method="bounded", options={"xatol": 1e-9}
    )
    return min((at(experiment, stages, low), low), (at(experiment, stages, high), high), (inner.fun, inner.x))


@cache
def best(experiment: str, stages: int) -> tuple[float, float]:
    """Least cost and its s, for a collision in the stage of the optimal collision or one beside it."""
    stage = int(exact(experiment).times[0] * stages)
    return min(minimum(experiment, stages, near) for near in (stage - 1, stage, stage + 1))


@cache
def curvature(experiment: str) -> float:
    """J'': of the least cost over s, here from a fine grid whose boundaries are everywhere, by central differences."""
    found, step = exact(experiment).times[0], 1e-3
    stages = [round(k / (found + shift)) for k, shift in ((5000, -step), (5000, 0.0), (5000, step))]
    times = [5000 / number for number in stages]
    values = [at(experiment, number, s) for number, s in zip(stages, times, strict=True)]
    return float(2.0 * np.polyfit(np.array(times) - found, values, 2)[0])


def phase(experiment: str, s: float) -> float:
    return curvature(experiment) / 2.0 * (s - exact(experiment).times[0]) ** 2


def fineness(experiment: str) -> float:
    """epsilon s |u'|^2 / 12: what a staircase costs instead of the linear optimal control, times N^2."""
    found = exact(experiment)
    first, last = found.law(np.array([0.0, found.times[0]]))
    return float(found.experiment.epsilon * np.sum((last - first) ** 2) / found.times[0] / 12.0)


# FESD-J


@pytest.mark.parametrize(
    ("experiment", "stages", "meeting", "error"),
    [
        ("concentric", 10, 6.3, 6.137e-3),
        ("general", 13, 5.5, 1.378e-3),
        slow_row("wall", 10, 5.5, 1.723e-4),
        slow_row("concentric", 19, None, 4.609e-4),
        slow_row("concentric", 20, 13.3, 4.561e-3),
        slow_row("general", 20, None, 1.281e-3),
        slow_row("general", 26, None, 3.451e-4),
        slow_row("wall", 16, None, 1.273e-4),
    ],
)
def test_the_best_of_all_piecewise_constant_controls(
    experiment: str, stages: int, meeting: float | None, error: float
) -> None:
    """Without a `meeting` the start is the motion under the best control for a collision a hundredth of a stage late.

    Under a constant force rounding decides there between minima that differ by 1e-2.
    """
    objective, s = best(experiment, stages)
    late = s + 0.01 / stages
    force = pushed(experiment, stages, meeting) if meeting else best_control(experiment, stages, late)
    found = solve(experiment, stages, force)
    assert found.success
    assert found.objective == pytest.approx(objective, abs=MARGIN)
    assert found.objective - exact(experiment).objective == pytest.approx(error, rel=1e-3)
    assert tuple(event.name for event in found.impacts) == exact(experiment).contacts
    assert found.impacts[0].time == pytest.approx(s, abs=1e-4)  # the cost is flat there: MARGIN is 1e-4 in time
    assert all(event.v_after == pytest.approx(-event.v_before, abs=1e-7) for event in found.impacts)


def test_the_certificate_confirms_the_control() -> None:
    found = solve("general", 13, pushed("general", 13, 5.5))
    certificate = ns.certify(build("general"), found)
    assert certificate.objective == pytest.approx(found.objective, abs=1e-6)


def test_negative_controls() -> None:
    """What stands still meets nothing; the shortest element keeps off the boundary; another stage, another minimum."""
    ocp = build("concentric")
    still = ns.simulate(ocp.system, x0=ocp.x0, duration=HORIZON, method=METHOD.replace(gamma_h=None), steps=10)
    rest = ns.solve(ocp, METHOD.replace(control_stages=10), WARM, guess=still)
    assert rest.objective == pytest.approx(2.0, abs=1e-6)  # u = 0 is a local optimum
    assert not rest.impacts
    kept = solve("general", 13, pushed("general", 13, 5.5), METHOD.replace(gamma_h=None))
    assert kept.objective - best("general", 13)[0] > 1e-4
    assert abs(kept.impacts[0].time * 13 - 6.0) == pytest.approx(0.05, abs=1e-4)  # a tenth of half a stage
    other = solve("general", 13, pushed("general", 13, 4.5))
    assert other.impacts[0].time * 13 == pytest.approx(5.0, abs=1e-3)
    assert other.objective - exact("general").objective == pytest.approx(4.64e-2, abs=1e-3)


@pytest.mark.slow
def test_length_with_a_smoothed_cost() -> None:
    """19 s_opt = 9.03: nine stages of full thrust, then none. (N = 20 with 20 s_opt = 9.50 is off by 2.2e-3.)

    The start is the motion under this control: from others, another stage of the collision may be found.
    """
    reference, ocp = exact("length"), build("length", smoothing=1e-2)
    middles = (np.arange(19)[:, None] + 0.5) / 19
    thrusts = np.where(middles < reference.times[0], reference.law(middles[:, 0]), 0.0)
    method = METHOD.replace(gamma_h=None)
    start = ns.simulate(ocp.system, x0=ocp.x0, duration=HORIZON, u=thrusts, method=method, steps=19)
    assert start.impacts[0].time == pytest.approx(reference.times[0], abs=5e-3)
    found = ns.solve(ocp, METHOD.replace(control_stages=19), WARM, guess=start)
    assert found.success
    assert found.impacts[0].time == pytest.approx(reference.times[0], abs=5e-3)
    thrust = np.linalg.norm(found.u, axis=1)
    np.testing.assert_allclose(thrust[:9], 5.0 * np.sqrt(2.0), atol=1e-5)
    np.testing.assert_allclose(thrust[9:], 0.0, atol=1e-4)
    objective = float(found.final_state[2:4] @ found.final_state[2:4] + 0.01 * thrust.sum() / 19)
    assert objective - reference.objective == pytest.approx(6.37e-4, abs=2e-5)


# Order


@pytest.mark.parametrize(
    ("experiment", "grids", "band"),
    [
        ("concentric", (19, 38, 160, 320), 0.1),
        ("general", (13, 20, 26, 80, 160, 320), 0.05),
        ("wall", (10, 20), 0.5),  # twenty times less than the others: terms of third order in delta are seen
    ],
)
def test_the_error_has_two_parts_of_second_order(experiment: str, grids: tuple[int, ...], band: float) -> None:
    """J - J_opt = J'' / 2 delta^2 + epsilon s |u'|^2 / 12 h^2 + smaller."""
    for stages in grids:
        objective, s = best(experiment, stages)
        error = objective - exact(experiment).objective
        assert abs(s - exact(experiment).times[0]) <= 0.51 / stages
        assert (error - phase(experiment, s)) * stages**2 == pytest.approx(fineness(experiment), rel=band)


@pytest.mark.parametrize(("experiment", "grids"), [("concentric", (19, 38)), ("general", (13, 26))])
def test_halving_divides_the_error_by_four_where_the_grid_meets_the_collision(
    experiment: str, grids: tuple[int, int]
) -> None:
    """19 s_opt = 12.981 and 13 s_opt = 5.989: the collision stays at the same boundary when the stages are halved."""
    reference = exact(experiment).objective
    (coarse, s), (fine, again) = (best(experiment, stages) for stages in grids)
    assert s == pytest.approx(again, abs=1e-9)
    assert (coarse - reference) / (fine - reference) > 3.5
    rest = phase(experiment, s)
    assert (coarse - reference - rest) / (fine - reference - rest) == pytest.approx(4.0, abs=0.05)


def test_halving_is_of_no_use_where_the_grid_passes_the_collision() -> None:
    """Twice in a row 5.3 has its best boundary at s = 0.5 and pays 1.0e-4 for delta = 0.0037."""
    reference = exact("wall").objective
    errors = [best("wall", stages)[0] - reference for stages in (10, 20, 40, 80)]
    np.testing.assert_allclose(errors, [1.723e-4, 1.172e-4, 1.039e-4, 1.005e-4], rtol=2e-3)
    assert phase("wall", 0.5) == pytest.approx(1.0e-4, rel=0.02)


def test_phases_of_free_length_have_no_such_error() -> None:
    """With the collision at the end of a phase and one polynomial in it, eight nodes are exact."""
    reference = exact("general")
    found = multi_phase(build("general"), ("discs",), (0.45,), reference.law)
    assert found.success
    assert found.objective == pytest.approx(reference.objective, abs=1e-11)
