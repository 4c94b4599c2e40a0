"""Stick and slip in closed form, against an event-driven integration of its own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from models.stick_slip import STANDARD, Constants, event_times, exact

pytestmark = pytest.mark.quick

OPTIONS = dict(rtol=1e-12, atol=1e-13, method="DOP853")


def integrate(until: float, position: float, c: Constants) -> tuple[np.ndarray, list[float], list[float]]:
    """Event-driven: the belt carries the block until the spring pulls with F_0; slip until the speed is the belt's."""
    t, x, away, back = 0.0, position, [], []

    def slip(_: float, z: np.ndarray) -> list[float]:
        friction = c.friction - c.decrease * (c.belt - z[1])
        return [z[1], (friction - c.stiffness * z[0]) / c.mass]

    def caught(s: float, z: np.ndarray) -> float:
        return float(z[1] - c.belt) if s > 1e-3 else -1.0

    caught.terminal, caught.direction = True, 1  # type: ignore[attr-defined]
    while True:
        stick = (c.friction / c.stiffness - x) / c.belt
        if t + stick >= until:
            return np.array([x + c.belt * (until - t), c.belt]), away, back
        t += stick
        away.append(t)
        found = solve_ivp(slip, (0.0, until - t), [c.friction / c.stiffness, c.belt], events=caught, **OPTIONS)
        if found.status == 0:
            return found.y[:, -1], away, back
        t, x = t + found.t[-1], found.y[0, -1]
        back.append(t)


@pytest.mark.parametrize("constants", [STANDARD, Constants(belt=0.1, friction=3.0, decrease=2.0, stiffness=30.0)])
@pytest.mark.parametrize("until", [0.3, 1.0, 4.9, 6.0])
def test_closed_form(until: float, constants: Constants) -> None:
    state, away, back = integrate(until, 0.02, constants)
    assert exact(until, 0.02, constants)[0] == pytest.approx(state, abs=1e-9)
    exact_away, exact_back = event_times(until, 0.02, constants)
    assert exact_away == pytest.approx(away, abs=1e-9)
    assert exact_back == pytest.approx(back, abs=1e-9)


def test_the_cycle_closes_and_holds_its_friction() -> None:
    c = STANDARD
    assert c.period == pytest.approx(1.347367438353, abs=1e-11)
    assert exact([0.7, 0.7 + c.period])[0] == pytest.approx(exact([0.7 + c.period])[0], abs=1e-12)
    caught = c.slip(c.slip_time)[0]
    assert caught[1] == pytest.approx(c.belt, abs=1e-13)
    assert abs(caught[0]) < c.break_away  # inside of the stick zone: the block does stick
    assert (c.slip(np.linspace(1e-3, c.slip_time - 1e-3, 200))[:, 1] < c.belt).all()


def test_without_decrease_there_is_no_stick() -> None:
    """Towards Coulomb's friction the slip ends where it began: stick vanishes as the square root of the decrease."""
    sticks = [Constants(decrease=decrease).stick_time for decrease in (1e-4, 1e-6)]
    assert sticks[1] < 1e-3 < STANDARD.stick_time
    assert sticks[0] / sticks[1] == pytest.approx(10.0, rel=1e-2)


@pytest.mark.parametrize("wrong", [{"belt": 0.0}, {"decrease": 11.0}, {"decrease": 9.0, "belt": 1.0}])
def test_refuses_other_constants(wrong: dict[str, float]) -> None:
    with pytest.raises(ns.ModelError, match="stick-slip needs"):
        Constants(**wrong)


def test_refuses_a_start_that_cannot_stick() -> None:
    with pytest.raises(ns.ModelError, match="position"):
        exact(1.0, 0.2)
