"""The turbo car: its exact motion against Runge-Kutta, and its fastest drives against other optimisers."""

from __future__ import annotations

from itertools import pairwise

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import linprog, minimize

import nosnoc_py as ns
from models import turbo_car as model

CONTROL = np.array([4.0, 5.0, -1.0, 2.5, -5.0, -3.0])


def test_exact_motion_against_runge_kutta() -> None:
    """Integrated piece by piece between the crossings, by the equations of motion alone."""
    duration = 9.0
    states, crossings = model.motion(CONTROL, duration)
    nodes = np.unique(np.concatenate([np.linspace(0.0, duration, 7), crossings]))
    x = np.zeros(2)
    for a, b in pairwise(nodes):
        u = CONTROL[min(int(0.5 * (a + b) / 1.5), 5)]
        fast = x[1] + (1.0 if u > 0 else -1.0) * 1e-9 > 10.0
        x = solve_ivp(lambda t, y, a=u * (3.0 if fast else 1.0): [y[1], a], (a, b), x, rtol=1e-12, atol=1e-12).y[:, -1]
    np.testing.assert_allclose(states[-1], x, rtol=0, atol=1e-9)
    assert len(crossings) == 2
    assert crossings[0] == pytest.approx(1.5 + 4.0 / 5.0, abs=1e-12)


@pytest.mark.parametrize("mode", ["stewart", "step"])
def test_finite_elements_move_like_it(mode: str) -> None:
    states, crossings = model.motion(CONTROL, 9.0)
    method = ns.FESD(finite_elements=2, rk_stages=2, dcs_mode=mode)
    trajectory = ns.simulate(model.build(), x0=[0, 0], duration=9.0, u=CONTROL[:, None], steps=6, method=method)
    assert trajectory.success
    np.testing.assert_allclose(trajectory(np.linspace(0, 9, 7)), states, rtol=0, atol=1e-9)
    assert [event.time for event in trajectory.events] == pytest.approx(crossings, abs=1e-10)
    assert {(event.name, event.kind) for event in trajectory.events} == {("turbo", "switch")}


def test_a_fixed_grid_does_not() -> None:
    states, _ = model.motion(CONTROL, 9.0)
    method = ns.FESD(finite_elements=2, rk_stages=2, switch_detection=False)
    trajectory = ns.simulate(model.build(), x0=[0, 0], duration=9.0, u=CONTROL[:, None], steps=6, method=method)
    assert trajectory.success
    assert np.abs(trajectory.final_state - states[-1]).max() > 0.1


def test_effort_and_velocity_are_inverse_and_continuous() -> None:
    v = np.array([-3.0, 0.0, 9.9, 10.0, 10.1, 25.0])
    np.testing.assert_allclose(model.velocity_of(model.effort(v)), v, rtol=0, atol=1e-13)
    assert model.effort(25.0) == pytest.approx(15.0)


@pytest.mark.parametrize(
    ("distance", "time"),
    [
        (130.0, 9.0),  # 2 s + 1 s up, 3 s at 25 m/s, 1 s + 2 s down
        (200.0, 11.8),
        (55.0, 6.0),  # just reaches the limit
        (20.0, 4.0),  # just reaches the threshold
        (5.0, 2.0),
        (20.0 + 2 * (400 - 100) / 30, 2 * (2.0 + 10 / 15)),  # up to 20 m/s
    ],
)
def test_the_fastest_times_by_hand(distance: float, time: float) -> None:
    assert model.fastest_time(distance) == pytest.approx(time, abs=1e-12)


@pytest.mark.parametrize(("distance", "stages"), [(130.0, 6), (130.0, 3), (130.0, 12)])
def test_the_fastest_drive_fits_some_grids(distance: float, stages: int) -> None:
    time, control = model.fastest_stages(distance, stages)
    assert time == pytest.approx(model.fastest_time(distance), abs=1e-12)
    np.testing.assert_allclose(control, np.repeat([5.0, 0.0, -5.0], stages // 3), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("distance", "stages"), [(200.0, 10), (130.0, 7), (30.0, 5), (55.0, 4)])
def test_on_other_grids_it_is_slower_and_approaches_it(distance: float, stages: int) -> None:
    time, control = model.fastest_stages(distance, stages)
    assert time >= model.fastest_time(distance) - 1e-12
    assert model.motion(control, time)[0][-1] == pytest.approx([distance, 0.0], abs=1e-10)
    assert np.abs(control).max() <= 5.0 + 1e-12
    assert model.motion(control, time)[0][:, 1].max() <= 25.0 + 1e-10
    assert model.fastest_stages(distance, 500)[0] == pytest.approx(model.fastest_time(distance), rel=1e-4)


@pytest.mark.parametrize(("distance", "stages"), [(200.0, 10), (130.0, 7), (30.0, 5)])
def test_a_general_optimiser_finds_nothing_faster(distance: float, stages: int) -> None:
    """SLSQP over the controls and T, through the exact motion, from several starts."""
    best = model.fastest_stages(distance, stages)[0]
    rng = np.random.default_rng(0)

    def end(y: np.ndarray) -> np.ndarray:
        states, _ = model.motion(5.0 * y[:-1], 10.0 * y[-1])
        return np.array([states[-1, 0] / distance - 1.0, states[-1, 1] / 25.0])

    def room(y: np.ndarray) -> np.ndarray:
        return 1.0 - model.motion(5.0 * y[:-1], 10.0 * y[-1])[0][:, 1] / 25.0

    found = []
    for _ in range(4):
        start = np.append(np.sort(rng.uniform(-1, 1, stages))[::-1], 1.2 * best / 10.0)
        result = minimize(
            lambda y: y[-1],
            start,
            bounds=[(-1, 1)] * stages + [(0.1, 5.0)],
            constraints=[{"type": "eq", "fun": end}, {"type": "ineq", "fun": room}],
            method="SLSQP",
            options={"maxiter": 300, "ftol": 1e-12},
        )
        if result.success and np.abs(end(result.x)).max() < 1e-8 and room(result.x).min() > -1e-8:
            found.append(10.0 * result.fun)
    assert found
    assert min(found) >= best - 1e-6
    assert min(found) == pytest.approx(best, abs=1e-5)


def test_efforts_of_the_fastest_stages_are_the_largest() -> None:
    """Each effort is the optimum of a linear program over all controls that keep the bounds and come to rest."""
    time, control = model.fastest_stages(200.0, 10)
    h, n = time / 10, 10
    sums = h * np.tril(np.ones((n, n)))
    for k in range(n):
        best = linprog(-sums[k], A_ub=sums, b_ub=np.full(n, 15.0), A_eq=sums[-1:], b_eq=[0.0], bounds=[(-5, 5)] * n)
        assert sums[k] @ control == pytest.approx(-best.fun, abs=1e-9)


def test_the_system_has_the_flow_of_the_text() -> None:
    system = model.build(model.Constants(gain=2.0, threshold=4.0))
    slow, fast = system.modes[0].flows
    flow = ca.Function("f", [system.x, system.u], [slow, fast])
    values = np.hstack([np.array(f) for f in flow([1.0, 7.0], 0.5)])
    np.testing.assert_allclose(values, [[7.0, 7.0], [0.5, 1.0]])
    assert system.state_names == ("position", "velocity")


@pytest.mark.parametrize("bad", [{"acceleration": 0.0}, {"gain": 0.5}, {"threshold": 30.0}, {"threshold": 0.0}])
def test_bad_constants(bad: dict[str, float]) -> None:
    with pytest.raises(ns.ModelError, match="a turbo car needs"):
        model.Constants(**bad)


@pytest.mark.parametrize("distance", [0.0, -1.0, np.inf, np.nan])
def test_bad_distances(distance: float) -> None:
    with pytest.raises(ns.ModelError, match="positive distance"):
        model.fastest_time(distance)
