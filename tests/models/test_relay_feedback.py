"""Limit cycles from matrix exponentials against event-driven integrations of their own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from models.relay_feedback import LAG, PLANTS, SLIDING, ZERO, Hysteresis, Plant, limit_cycle

pytestmark = pytest.mark.quick

OPTIONS = dict(rtol=1e-12, atol=1e-13, method="DOP853")


def integrate(plant: Plant, x: np.ndarray, until: float) -> tuple[np.ndarray, list[tuple[str, float]]]:
    """Relay feedback mode by mode: u = -1, u = 1, or the equivalent control on y = 0; starts off the surface."""
    u, t, found = -np.sign(x[0]), 0.0, []
    gain = plant.B[0]
    while True:

        def flow(_: float, z: np.ndarray, u: float = u) -> np.ndarray:
            v = u if u else -(plant.A[0] @ z) / gain
            return plant.A @ z + plant.B * v

        def event(s: float, z: np.ndarray, u: float = u) -> float:
            if s < 1e-6:
                return 1.0
            return -u * z[0] if u else gain - abs(plant.A[0] @ z)

        event.terminal, event.direction = True, -1  # type: ignore[attr-defined]
        part = solve_ivp(flow, (0.0, until - t), x, events=event, **OPTIONS)
        x, t = part.y[:, -1], t + part.t[-1]
        if part.status == 0:
            return x, found
        if u and gain > 0 and abs(plant.A[0] @ x) < gain:
            found.append(("enter_sliding", t))
            u = 0.0
        elif u:
            found.append(("switch", t))
            u = -u
        else:
            found.append(("leave_sliding", t))
            u = -float(np.sign(plant.A[0] @ x))


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_the_cycle_is_a_motion_and_closes(plant: Plant) -> None:
    cycle = limit_cycle(plant)
    start = cycle(0.2)
    end, found = integrate(plant, start, cycle.period)
    assert end == pytest.approx(start, abs=1e-9)
    expected = [(kind, at - 0.2) for kind, at in cycle.switch_times(cycle.period + 0.2) if at > 0.2]
    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    assert [at for _, at in found] == pytest.approx([at for _, at in expected], abs=1e-8)


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_the_cycle_attracts(plant: Plant) -> None:
    """From a start nearby the motion tends to the cycle: the time between two events of a kind is its period."""
    cycle = limit_cycle(plant)
    _, found = integrate(plant, cycle(0.2) + np.array([0.1, -0.05, 0.05]), 8.0 * cycle.period)
    times = [at for kind, at in found if kind == found[-1][0]]
    assert times[-1] - times[-3] == pytest.approx(cycle.period, abs=1e-4)


def test_numbers() -> None:
    assert limit_cycle(LAG).period == pytest.approx(3.679750670865, abs=1e-11)
    assert limit_cycle(LAG).slide == 0.0
    assert limit_cycle(SLIDING).period == pytest.approx(12.621239245042, abs=1e-10)
    assert limit_cycle(SLIDING).slide == pytest.approx(1.406113152054, abs=1e-10)
    # describing function of the relay: phase -180 degrees at w = sqrt(3), a few per cent off
    assert limit_cycle(LAG).period == pytest.approx(2 * np.pi / np.sqrt(3), rel=0.02)


def test_transfer_functions() -> None:
    for plant, numerator in ((LAG, [0, 0, 0, 1]), (SLIDING, [0, *np.poly([ZERO, ZERO])])):
        from scipy.signal import ss2tf  # it takes half a second to load

        top, bottom = ss2tf(plant.A, plant.B[:, None], np.array([[1.0, 0, 0]]), np.zeros((1, 1)))
        assert top[0] == pytest.approx(numerator, abs=1e-12)
        assert bottom == pytest.approx([1, 3, 3, 1], abs=1e-12)
    assert np.sort(np.linalg.eigvals(SLIDING.sliding_matrix).real)[1:] == pytest.approx([ZERO, ZERO], abs=1e-6)


def test_hysteresis_against_integration() -> None:
    h = Hysteresis(lag=0.1)
    start, period = h.cycle()
    side, x, t, times = 1.0, h.after(start, 1.0, 0.1), 0.1, []
    while len(times) < 3:

        def event(s: float, z: np.ndarray, side: float = side) -> float:
            return side * (z[0] + h.width * z[1])

        event.terminal, event.direction = True, -1  # type: ignore[attr-defined]
        part = solve_ivp(
            lambda _, z, side=side: [-z[0] - h.gain * z[1], (side - z[1]) / h.lag], (0, 9), x, events=event, **OPTIONS
        )
        x, t, side = part.y[:, -1], t + part.t[-1], -side
        times.append(t)
    assert times == pytest.approx([0.5 * period, period, 1.5 * period], abs=1e-9)


def test_hysteresis_without_lag() -> None:
    """The period tends to that of the ideal relay, in proportion to the lag."""
    excess = [Hysteresis(lag=lag).cycle()[1] - Hysteresis().ideal_period for lag in (0.004, 0.002, 0.001)]
    assert excess[2] == pytest.approx(excess[1] / 2, rel=0.02)
    assert excess[1] == pytest.approx(excess[0] / 2, rel=0.02)
    with pytest.raises(ns.ModelError, match="width < gain"):
        Hysteresis(width=3.0)
