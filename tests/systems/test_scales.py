"""Sizes at work in a problem, and that its units are a choice of the user's."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.systems import kinematics
from nosnoc_py.systems.controls import control_of
from nosnoc_py.systems.scales import ProblemScales, problem_scales

GRAVITY = 9.81


def ball(length: float = 1.0, gap: float = 1.0, restitution: float = 0.8) -> ns.CLS:
    """A ball above the ground, in a unit of length and another one of its gap."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    contact = ns.Contact("ground", gap=gap * q, restitution=restitution)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.SX(1), force=u - GRAVITY * length, contacts=[contact])


def scales(system: ns.CLS, x0: list[float], duration: float, u: float = 0.0) -> ProblemScales:
    control = control_of(u, 1, duration)
    return problem_scales(system, x0=np.array(x0), control=control, p=np.zeros(0), duration=duration)


@pytest.mark.parametrize(
    ("x0", "u", "duration", "expected"),
    [
        ([1.0, 0.0], 0.0, 2.0, (1.0, 1.0)),  # falls: sqrt(2 g) = 4.4 m/s, g s^2 / 2 = 2.0 m
        ([1.0, -30.0], 0.0, 2.0, (10.0, 10.0)),  # thrown; 30 m/s for 2 s
        ([0.0, 0.0], 0.0, 2.0, (0.1, 1.0)),  # lies there: a tenth of 2 s at g, 1.96 m/s
        ([0.0, 0.0], GRAVITY + 1.0, 0.1, (1e-4, 1e-2)),  # pushed: a tenth of 0.1 s at 1 m/s^2
        ([1.0, 0.0], GRAVITY, 2.0, (1.0, 1.0)),  # nothing pulls: no size at all
        ([1000.0, 0.0], 0.0, 1.0, (1.0, 1.0)),  # far away: what it reaches in the time, 9.81 m/s
    ],
)
def test_sizes(
    x0: list[float], u: float, duration: float, expected: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = scales(ball(), x0, duration, u)
    assert (found.length, found.speed) == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(kinematics, "DENSE", 0)  # the same by sparse matrices, which many contacts have
    assert scales(ball(), x0, duration, u) == found


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("gap", [1e-4, 1.0, 1e3])
def test_sizes_follow_the_units(unit: float, gap: float) -> None:
    """Of a throw at 3 m/s; the size of the gap is counted in its own unit."""
    found = scales(ball(unit, gap), [2.0 * unit, -3.0 * unit], 1.0)
    sizes = found.length / (gap * unit), found.speed / (gap * unit), found.steepness / gap
    assert sizes == pytest.approx((1.0, 1.0, 1.0), rel=1e-9)


@pytest.mark.parametrize("method", [ns.EventDriven(), ns.TimeStepping(step=5e-3)], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize(("unit", "gap"), [(1e-6, 1.0), (1e-3, 1e-4), (1e3, 1e3)])
def test_a_ball_bounces_in_every_unit(method: ns.EventDriven | ns.TimeStepping, unit: float, gap: float) -> None:
    """Bounces of 10^-9 to 10^3 m/s; a ball whose bounces are lost lies on the ground from 0.45 s on."""
    known = ns.simulate(ball(), x0=[1.0, 0.0], duration=3.0, method=method)
    found = ns.simulate(ball(unit, gap), x0=[unit, 0.0], duration=3.0, method=method)
    assert found.success
    assert len(found.impacts) == len(known.impacts) > 5
    np.testing.assert_allclose(found.final_state / unit, known.final_state, atol=1e-6)
    assert known.final_state[0] > 1e-2


def test_parts_of_a_motion_with_one_speed_are_its_parts() -> None:
    """With the speeds of its own the second half, which begins with low bounces, goes on with lower ones."""

    def bounces(**options: float) -> tuple[int, int, float]:
        method, system = ns.EventDriven(**options), ball(restitution=0.7)
        whole = ns.simulate(system, x0=[1.0, 0.0], duration=4.0, method=method)
        first = ns.simulate(system, x0=[1.0, 0.0], duration=2.0, method=method)
        second = ns.simulate(system, x0=first.final_state, duration=2.0, method=method)
        away = float(np.abs(second.final_state - whole.final_state).max())
        return len(whole.impacts), len(first.impacts) + len(second.impacts), away

    whole, parts, away = bounces(speed_scale=1.0)
    assert whole == parts
    assert away < 1e-9
    whole, parts, away = bounces()
    assert whole < parts
    assert away < 1e-3  # the velocity of rest


def test_a_speed_that_is_none() -> None:
    with pytest.raises(ns.OptionError, match="speed_scale"):
        ns.EventDriven(speed_scale=0.0)


def test_the_rest_velocity_has_the_unit_of_velocities() -> None:
    """A thousandth of the speed at work, by the unit of the gap; what is given stays, a zero too."""
    found = scales(ball(gap=1e-3), [1.0, -20.0], 1.0)
    assert (found.speed, found.velocity) == pytest.approx((1e-2, 10.0), rel=1e-12)
    assert found.rest_velocity(None) == pytest.approx(1e-2, rel=1e-12)
    assert (found.rest_velocity(0.0), found.rest_velocity(0.3)) == (0.0, 0.3)
