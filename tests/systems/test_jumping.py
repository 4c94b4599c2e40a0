"""A force that jumps with the state gives a warning where a system is written; kinks and branches that meet do not."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

q, v, u = (ca.SX.sym(name) for name in "qvu")


def system(force: Any) -> ns.CLS:
    return ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=force, contacts=[ns.Contact("ground", gap=q + 5)])


JUMPING = {
    "sign": -2.943 * ca.sign(v),
    "branch": ca.if_else(q < 0.5, 1, 2),
    "floor": ca.floor(q),
    "comparison": (q > 0.3) * v,
    "far": ca.if_else(q > 300, 10, 0),
    "both": ca.if_else(ca.logic_and(q > 0, v > 0), 1, 0),
    "negation": ca.logic_not(q > 0.2) * 1.0,
}
SMOOTH = {
    "modulus": v * ca.fabs(v),
    "ramp": ca.fmax(q, 0),
    "branches meet": ca.if_else(q > 0, q**2, -q),
    "spring on one side": ca.if_else(q < 0, -100 * q, 0),
    "sign times square": ca.sign(v) * v**2,
    "root": ca.sign(v) * ca.sqrt(ca.fabs(v)),
    "steep": ca.tanh(1e3 * v),
    "of the control": ca.sign(u),
}


@pytest.mark.parametrize("name", JUMPING)
def test_a_force_that_jumps_is_told(name: str) -> None:
    with pytest.warns(ns.ModelWarning, match=r"CLS: force jumps with the state.*friction.*ns\.PSS"):
        system(JUMPING[name])


@pytest.mark.parametrize("name", SMOOTH)
def test_a_kink_is_no_jump(name: str) -> None:
    system(SMOOTH[name])  # a warning is an error here


def test_flows_of_regions_are_looked_at_too() -> None:
    x = ca.SX.sym("x")
    with pytest.warns(ns.ModelWarning, match=r"modes 'side': a flow jumps with the state \(row 1\)"):
        ns.PSS(x=x, modes=ns.Modes("side", flows=[-1.0, ca.sign(x + 1)], functions=x, signs=[[1], [-1]]))
    with pytest.warns(ns.ModelWarning, match="PDS: flow"):
        ns.PDS(x=x, flow=ca.sign(x), constraints=x + 1)


def test_what_is_derived_from_a_system_says_nothing_more() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        branch = system(ca.if_else(q < 0.5, 1, -3))
        ns.simulate(branch, x0=[0, 1], duration=0.1, method=ns.FESDJ())
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.warns(ns.ModelWarning):
        replace(branch, nominal={})


def end_of(q_0: float, v_0: float, t: float) -> np.ndarray:
    """q'' = 1 below .5 and -3 above."""
    hit = (-v_0 + np.sqrt(v_0**2 + 2 * (0.5 - q_0))) / 1.0
    speed, left = v_0 + hit, t - hit
    back = 2 * speed / 3.0
    if left < back:
        return np.array([0.5 + speed * left - 1.5 * left**2, speed - 3 * left])
    left -= back
    return np.array([0.5 - speed * left + 0.5 * left**2, -speed + left])


@pytest.mark.filterwarnings("ignore::nosnoc_py.ModelWarning")
def test_a_jump_inside_of_a_step_is_met_or_told() -> None:
    """An adaptive integrator halves its steps at the jump; finite elements say that they are off; regions are exact."""
    jumping, exact = system(ca.if_else(q < 0.5, 1, -3)), end_of(0.0, 1.0, 1.0)
    event_driven = ns.simulate(jumping, x0=[0, 1], duration=1.0, method=ns.EventDriven())
    assert event_driven.success
    assert np.abs(event_driven.final_state - exact).max() < 1e-6
    elements = ns.simulate(jumping, x0=[0, 1], duration=1.0, method=ns.FESDJ())
    assert np.abs(elements.final_state - exact).max() > 1e-3
    assert elements.status is ns.Status.INACCURATE
    x = ca.SX.sym("x", 2)
    flows = [ca.vertcat(x[1], -3), ca.vertcat(x[1], 1)]
    regions = ns.PSS(x=x, modes=ns.Modes("half", flows=flows, functions=x[0] - 0.5, signs=[[1], [-1]]))
    found = ns.simulate(regions, x0=[0, 1], duration=1.0, method=ns.FESD())
    assert found.success
    assert np.abs(found.final_state - exact).max() < 1e-10


@pytest.mark.filterwarnings("ignore::nosnoc_py.ModelWarning")
@pytest.mark.parametrize(
    "method", [ns.EventDriven(), ns.FESDJ(), ns.TimeStepping()], ids=["events", "elements", "steps"]
)
def test_a_force_that_chatters_keeps_the_time_limit(method: Any) -> None:
    """-mu g sign(v) stops a body after .34 s and holds it only by chattering: nobody calls that solved in silence."""
    found = ns.simulate(
        system(-2.943 * ca.sign(v)), x0=[0, 1], duration=1.0, method=method, steps=None, time_limit=600.0
    )
    assert found.t[-1] > 0.3
    if not isinstance(method, ns.TimeStepping):  # which chatters within the order of its steps
        assert not found.success
        assert found.message or found.status is ns.Status.TIME_LIMIT
    assert abs(found.final_state[0] - 1.0 / (2 * 2.943)) < 1e-2
