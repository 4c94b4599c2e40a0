"""The closed form of the oscillator against a general integrator, and the switch."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from models.oscillator import STANDARD, Constants, build, exact

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("constants", [STANDARD, Constants(frequency=3.0, radius=0.6, angle=1.0)])
def test_closed_form(constants: Constants) -> None:
    system = build(constants)
    inside, outside = (ca.Function("f", [system.x], [flow]) for flow in system.modes[0].flows)

    def crossing(t: float, x: np.ndarray) -> float:
        return float(x @ x - 1.0)

    crossing.terminal = True  # type: ignore[attr-defined]
    options = dict(rtol=1e-12, atol=1e-13, method="DOP853")
    first = solve_ivp(
        lambda t, x: np.array(inside(x)).ravel(), (0, 9), np.array(constants.start), events=crossing, **options
    )
    assert first.t[-1] == pytest.approx(constants.switch_time, abs=1e-10)
    rest = solve_ivp(lambda t, x: np.array(outside(x)).ravel(), (first.t[-1], 1.8), first.y[:, -1], **options)
    assert exact(first.t, constants) == pytest.approx(first.y.T, abs=1e-9)
    assert exact(rest.t, constants) == pytest.approx(rest.y.T, abs=1e-9)


def test_published_end_state() -> None:
    t = np.pi / 2
    radius, angle = np.exp(t - 1), 2 * np.pi * (t - 1)
    assert exact(t)[0] == pytest.approx([radius * np.cos(angle), radius * np.sin(angle)], abs=1e-13)
    assert STANDARD.switch_time == pytest.approx(1.0, abs=1e-15)


def test_refuses_a_start_at_the_centre() -> None:
    with pytest.raises(ns.ModelError, match="radius > 0"):
        Constants(radius=0.0)
