"""An elastic ball in a shaken box: impacts on walls that move, by two methods, and their closed form at the first."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import brentq

import nosnoc_py as ns

HEIGHT, SWING, RATE, BOUNCE = 1.0, 0.1, 2 * np.pi, 0.9

pytestmark = pytest.mark.quick


def box() -> ns.CLS:
    q, v, t = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("t")
    floor = SWING * ca.sin(RATE * t)
    walls = [ns.Contact("floor", gap=q - floor, restitution=BOUNCE),
             ns.Contact("lid", gap=floor + HEIGHT - q, restitution=BOUNCE)]  # fmt: skip
    return ns.CLS(q=q, v=v, t=t, mass_matrix=1, force=-9.81, contacts=walls, names={"q": ["height"]})


def test_the_first_impact() -> None:
    motion = ns.simulate(box(), x0=[0.5, 0.0], duration=3.0)
    time = brentq(lambda t: 0.5 - 4.905 * t**2 - SWING * np.sin(RATE * t), 0.1, 0.4, xtol=1e-15)
    wall = SWING * RATE * np.cos(RATE * time)
    assert motion.events[0].time == pytest.approx(time, abs=1e-10)
    assert motion(motion.events[0].time)[1] == pytest.approx(wall + BOUNCE * (wall + 9.81 * time), abs=1e-8)


def test_many_impacts_by_two_methods() -> None:
    motion = ns.simulate(box(), x0=[0.5, 4.0], duration=1.5)
    assert {event.name for event in motion.events} == {"floor", "lid"}
    elements = ns.simulate(box(), x0=[0.5, 4.0], duration=1.5, method=ns.FESDJ(rk_stages=3), steps=60)
    assert [event.name for event in elements.events] == [event.name for event in motion.events]
    np.testing.assert_allclose(elements.final_state, motion.final_state, atol=1e-5)
    inside = motion["height"] - SWING * np.sin(RATE * motion.t)
    assert inside.min() > -1e-9
    assert inside.max() < HEIGHT + 1e-9
