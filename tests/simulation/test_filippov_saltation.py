"""Sensitivities of Filippov systems: against differences, against closed forms, and refused where there are none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import oscillator, pushed_point, relay_feedback, sliding_mode, stick_slip
from nosnoc_py.errors import OptionError
from nosnoc_py.simulation.event_driven.filippov.saltation import motion_of
from nosnoc_py.simulation.event_driven.history import EventDrivenSimulator
from nosnoc_py.systems.controls import control_of
from tests.pairwise import slow_but

SIDES = [[-1], [1]]
METHOD = ns.EventDriven()
# Central differences of order four: their step, and what they are good for, relative to the largest entry.
STEP, RELATIVE = 1e-4, 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """A system with a start, a duration and parameters, and the events its motion has to have."""

    system: Any
    x0: Any
    duration: float
    p: Any = ()
    u: Any = None
    events: tuple[str, ...] = ()

    def run(self, data: np.ndarray | None = None, **more: Any) -> ns.Trajectory:
        """Simulate from x0 and p, or from other data (x0, p)."""
        n_x = len(self.x0)
        given = np.concatenate([self.x0, self.p]) if data is None else data
        return ns.simulate(
            self.system, x0=given[:n_x], p=given[n_x:], u=self.u, duration=self.duration, method=METHOD, **more
        )

    def differences(self) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of the end and of the times of events with respect to (x0, p)."""
        data = np.concatenate([self.x0, self.p])
        columns = []
        for i in range(data.size):
            values = []
            for k in (-2, -1, 1, 2):
                moved = data.copy()
                moved[i] += k * STEP
                trajectory = self.run(moved)
                times = [event.time for event in trajectory.events]
                assert tuple(event.kind for event in trajectory.events) == self.events
                values.append(np.concatenate([trajectory.final_state, times]))
            columns.append((values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * STEP))
        ends, times_ = np.split(np.array(columns).T, [len(self.x0)])
        return ends, times_


def _oscillator() -> Case:
    """With the frequency and the radius of the circle as parameters."""
    x, p = ca.SX.sym("x", 2), ca.SX.sym("p", 2)
    flows = [x + side * p[0] * ca.vertcat(x[1], -x[0]) for side in (1.0, -1.0)]
    circle = ns.Modes("circle", flows=flows, functions=ca.sumsqr(x) - p[1] ** 2, signs=SIDES)
    system = ns.PSS(x=x, p=p, modes=circle)
    p0 = [2.0 * np.pi, 1.0]
    return Case(system=system, x0=oscillator.STANDARD.start, duration=np.pi / 2, p=p0, events=("switch",))


def _relay(plant: relay_feedback.Plant, events: tuple[str, ...]) -> Case:
    """With the gain and the threshold of the relay as parameters."""
    x, p = ca.SX.sym("x", 3), ca.SX.sym("p", 2)
    flows = [p[0] * ca.DM(plant.B), -p[0] * ca.DM(plant.B)]
    relay = ns.Modes("relay", flows=flows, functions=x[0] - p[1], signs=SIDES)
    system = ns.PSS(x=x, p=p, flow=ca.DM(plant.A) @ x, modes=relay)
    start = relay_feedback.limit_cycle(plant)(0.3)
    return Case(system=system, x0=start, duration=9.0, p=[1.0, 0.0], events=events)


def _stick_slip() -> Case:
    """With stiffness, speed of the belt, friction and its decrease as parameters."""
    x, p, c = ca.SX.sym("x", 2), ca.SX.sym("p", 4), stick_slip.STANDARD
    flow = ca.vertcat(x[1], -p[0] * x[0] + p[3] * (x[1] - p[1]))
    belt = ns.Modes("belt", flows=[ca.vertcat(0, -p[2]), ca.vertcat(0, p[2])], functions=p[1] - x[1], signs=SIDES)
    system = ns.PSS(x=x, p=p, flow=flow, modes=belt)
    events = ("enter_sliding", "leave_sliding") * 3
    p0 = [c.stiffness, c.belt, c.friction, c.decrease]
    return Case(system=system, x0=[0.05, 0.1], duration=4.0, p=p0, events=events)


def _two_surfaces() -> Case:
    """A Heaviside system with products of step functions, sliding on both surfaces."""
    x, p, a = ca.SX.sym("x", 3), ca.SX.sym("p"), ca.SX.sym("alpha", 2)
    flow = ca.vertcat(1.2 - 2 * a[0] + 0.2 * a[1] * x[2], p - 2 * a[1] + 0.3 * a[0] * a[1], 1 + a[0] * a[1] * p)
    functions = ca.vertcat(x[0] - 0.1 * x[2], x[1])
    system = ns.Heaviside(x=x, p=p, alpha=a, functions=functions, flow=flow)
    return Case(system=system, x0=[0.5, 0.6, 0.0], duration=1.5, p=[0.9], events=("enter_sliding",) * 2)


def _algebraic() -> Case:
    """An implicit algebraic variable, a curved surface."""
    x, p, z = ca.SX.sym("x", 2), ca.SX.sym("p"), ca.SX.sym("z")
    own = ns.Algebraic(z, z**3 + z - 2 * (1 + x[1] * p), initial=1.0)
    flows = [ca.vertcat(z, 1 + x[1]), ca.vertcat(-z * p, z)]
    modes = ns.Modes("m", flows=flows, functions=x[0] - 0.1 * x[1] ** 2, signs=SIDES)
    system = ns.PSS(x=x, p=p, modes=modes, algebraic=own)
    return Case(system=system, x0=[1.0, 0.0], duration=1.0, p=[1.0], events=("enter_sliding",))


def _regions() -> Case:
    """Three regions around points, chosen by indicators; the parameter moves one of them.

    The motion slides between two regions up to the point that all three share, from there on between two others, which
    is no event, and leaves.
    """
    x, p = ca.SX.sym("x", 2), ca.SX.sym("p")
    points = [ca.vertcat(-1.0, 0.0), ca.vertcat(1.0, p), ca.vertcat(0.0, 2.0)]
    g = ca.vertcat(*[ca.sumsqr(x - point) for point in points])
    flows = [ca.vertcat(1.0, 0.6 + x[0]), ca.vertcat(-1.0, 0.3), ca.vertcat(0.4, 0.2 * x[1])]
    system = ns.PSS(x=x, p=p, modes=ns.Modes("near", flows=flows, indicators=g))
    return Case(system=system, x0=[0.8, -0.5], duration=6.0, p=[0.1], events=("enter_sliding", "leave_sliding"))


def _pushed(metric: Any, events: tuple[str, ...]) -> Case:
    system = pushed_point.build(metric)
    return Case(system=system, x0=pushed_point.exact(0.0, metric)[0], duration=3.0, events=events)


def _controlled() -> Case:
    """A control that is a function of time, on the way to a surface and on it."""
    return Case(
        system=sliding_mode.build(),
        x0=[1.0, 0.0],
        duration=2.0,
        u=lambda t: [0.5 * np.sin(3.0 * t)],
        events=("enter_sliding",),
    )


def _released_by_a_control() -> Case:
    """A sliding mode that ends where a control, a function of time, passes the bound."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    edge = ns.Modes("edge", flows=[[1.0, 0.0], ca.vertcat(-1.0, x[0])], functions=x[0] - 0.1 * x[1] ** 2, signs=SIDES)
    system = ns.PSS(x=x, u=u, flow=ca.vertcat(u, 1.0), modes=edge)
    law = lambda t: [1.5 * t]  # noqa: E731
    return Case(system=system, x0=[0.2, 0.0], duration=2.0, u=law, events=("enter_sliding", "leave_sliding"))


CASES = {
    "oscillator": _oscillator(),
    "relay that switches": _relay(relay_feedback.LAG, ("switch",) * 5),
    "relay that slides": _relay(relay_feedback.SLIDING, ("enter_sliding", "leave_sliding")),
    "stick and slip": _stick_slip(),
    "two surfaces": _two_surfaces(),
    "algebraic": _algebraic(),
    "regions": _regions(),
    "pushed": _pushed(None, ("contact", "contact", "release", "release")),
    "pushed, with a metric": _pushed([[2.0, 0.5], [0.5, 1.0]], ("contact", "release", "contact", "release")),
    "controlled": _controlled(),
    "released by a control": _released_by_a_control(),
}


@pytest.mark.parametrize(
    "name", slow_but(CASES.keys() - {"relay that switches", "relay that slides", "stick and slip"}, CASES)
)
def test_differences_agree(name: str) -> None:
    case = CASES[name]
    trajectory = case.run(sensitivities=True)
    found = trajectory.sensitivity
    assert found is not None
    assert found.smooth, found.flags
    ends, times = case.differences()
    for made, expected in (
        (np.hstack([found.x0, found.p]), ends),
        (np.hstack([found.event_times_x0, found.event_times_p]), times),
    ):
        assert np.abs(made - expected).max() < RELATIVE * max(1.0, np.abs(expected).max())


def test_entering_projects_and_leaving_does_nothing() -> None:
    """x' = -1, then 0 on x = 0, y' = 2 above and 1 below: the weights are 1/2, y(T) = y0 + 2 x0 + 1.5 (T - x0)."""
    x = ca.SX.sym("x", 2)
    modes = ns.Modes("m", flows=[[1.0, 1.0], [-1.0, 2.0]], functions=x[0], signs=SIDES)
    found = _sensitivity(ns.PSS(x=x, modes=modes), [0.3, 0.0], 1.0)
    np.testing.assert_allclose(found.x0, [[0.0, 0.0], [0.5, 1.0]], rtol=0, atol=1e-13)
    np.testing.assert_allclose(found.event_times_x0, [[1.0, 0.0]], rtol=0, atol=1e-13)
    # leaving at y = 1: x = (y - 1)^2 / 2 from then on, whatever x0 has been
    leaves = ns.Modes("m", flows=[[1.0, 0.0], ca.vertcat(-1.0 + x[1], 0.0)], functions=x[0], signs=SIDES)
    found = _sensitivity(ns.PSS(x=x, flow=ca.vertcat(0, 1), modes=leaves), [0.375, 0.0], 1.7)
    np.testing.assert_allclose(found.x0, [[0.0, 0.7], [0.0, 1.0]], rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.event_times_x0[1], [0.0, -1.0], rtol=0, atol=1e-11)


def test_a_start_on_a_surface_is_a_projection_from_both_sides() -> None:
    """Neighbours above and below reach the surface within no time: one-sided differences from both agree."""
    x = ca.SX.sym("x", 2)
    flows = [ca.vertcat(1.5 + x[1], 1.0), ca.vertcat(-1.0, 2.0 + x[1] ** 2)]
    system = ns.PSS(x=x, modes=ns.Modes("m", flows=flows, functions=x[0], signs=SIDES))
    found = _sensitivity(system, [0.0, 0.2], 1.0)
    assert found.smooth
    middle = ns.simulate(system, x0=[0.0, 0.2], duration=1.0, method=METHOD).final_state
    for side in (1.0, -1.0):
        near = ns.simulate(system, x0=[side * 1e-7, 0.2], duration=1.0, method=METHOD).final_state
        np.testing.assert_allclose((near - middle) / (side * 1e-7), found.x0[:, 0], rtol=1e-5, atol=1e-5)


def test_the_sliding_motion_stays_on_its_surface() -> None:
    """c_w W = 0 in a sliding mode: no variation leaves the surface, whatever its derivative."""
    case = CASES["two surfaces"]
    found = case.run(sensitivities=True).sensitivity
    assert found is not None
    across = np.array([[1.0, 0.0, -0.1], [0.0, 1.0, 0.0]])
    np.testing.assert_allclose(across @ np.hstack([found.x0, found.p]), 0.0, rtol=0, atol=1e-12)


def test_derivatives_of_a_sliding_motion_are_those_of_differences() -> None:
    case = CASES["algebraic"]
    control = control_of(None, 0, 1.0)
    history = EventDrivenSimulator(case.system, METHOD).run(np.array(case.x0), control, np.array(case.p))
    flow, regime = history.flows[-1], history.phases[-1].regime
    w = np.concatenate([history.x, history.p])
    motion = motion_of(flow, regime, 1.0, w)
    for i in range(3):
        moved = [w + k * 1e-6 * np.eye(3)[i] for k in (1, -1)]
        rates = [motion_of(flow, regime, 1.0, near).rate for near in moved]
        np.testing.assert_allclose(motion.rate_w[:, i], (rates[0] - rates[1]) / 2e-6, rtol=0, atol=1e-8)


def _sensitivity(system: Any, x0: Any, duration: float, **more: Any) -> Any:
    options = more.pop("options", {})
    trajectory = ns.simulate(
        system, x0=x0, duration=duration, method=ns.EventDriven(**options), sensitivities=True, **more
    )
    assert trajectory.sensitivity is not None
    return trajectory.sensitivity


def _plain(below: Any, above: Any, function: Any = None, flow: Any = (0.0, 1.0)) -> ns.PSS:
    x = ca.SX.sym("x", 2)
    surface = x[0] if function is None else function(x)
    return ns.PSS(x=x, flow=ca.DM(flow), modes=ns.Modes("m", flows=[below, above], functions=surface, signs=SIDES))


def test_what_is_not_smooth_is_flagged() -> None:
    grazes = _plain([5.0, 0.0], [0.0, 0.0], lambda x: x[0] + (x[1] - 1.0) ** 2)
    for grazing in ("stop", "continue"):
        found = _sensitivity(grazes, [0.0, 0.0], 2.0, options={"grazing": grazing})
        assert "m is touched without speed" in found.flags[0]
        assert np.isnan(found.x0).all()
    repulsive = _plain([-1.0, 0.0], [1.0, 0.0])
    found = _sensitivity(repulsive, [0.0, 0.0], 1.0, options={"grazing": "continue"})
    assert "3 motions are possible" in found.flags[0]
    crossing = _plain([1.0, 0.0], [2.0, 0.0])
    assert "the start lies on m, which the motion leaves" in _sensitivity(crossing, [0.0, 0.0], 1.0).flags[0]
    assert "an event at the end" in _sensitivity(crossing, [-1.0, 0.0], 1.0).flags[0]
    assert _sensitivity(crossing, [-1.0, 0.0], 1.1).smooth
    leaves = _plain([1.0, 0.0], [-1.0, 0.0], lambda x: x[0] - 0.5 * (x[1] - 1.0) ** 3)
    assert _sensitivity(leaves, [0.0, 0.2], 0.5).smooth


@pytest.mark.slow
def test_an_escape_is_flagged() -> None:
    x = ca.SX.sym("x")
    system = ns.PSS(x=x, modes=ns.Modes("m", flows=[ca.SX(1.0), 1.0 + x**2], functions=x, signs=SIDES))
    found = _sensitivity(system, [-0.5], 3.0)
    assert "the simulation stopped" in found.flags[-1]


def test_events_at_one_time_are_flagged() -> None:
    x = ca.SX.sym("x", 2)
    modes = [ns.Modes(n, flows=[[1.0, 0.0][:: 1 - 2 * k], [-1.0, 0.0][:: 1 - 2 * k]], functions=x[k], signs=SIDES)
             for k, n in enumerate("ab")]  # fmt: skip
    together = ns.PSS(x=x, modes=modes)
    flags = _sensitivity(together, [0.5, 0.5], 1.0).flags
    assert any("at the same time" in flag or "two events within" in flag for flag in flags)
    assert _sensitivity(together, [0.5, 0.4], 1.0).smooth


def test_a_feedback_law_is_refused() -> None:
    with pytest.raises(OptionError, match="derivative with respect to x is not known"):
        _sensitivity(sliding_mode.build(), [1.0, 0.0], 1.0, u=lambda t, x: [-x[0]])


def test_a_start_on_a_surface_between_indicators_is_a_projection() -> None:
    """Flows (1, .5) and (-1, 2) from a point of x = 0: with equal weights y' = 1.25; a shift of x is undone at once."""
    x = ca.SX.sym("x", 2)
    modes = ns.Modes("side", flows=[[1.0, 0.5], [-1.0, 2.0]], indicators=ca.vertcat(x[0], -x[0]))
    found = ns.simulate(ns.PSS(x=x, modes=modes), x0=[0.0, 0.0], duration=1.0, method=METHOD, sensitivities=True)
    assert found.sensitivity is not None
    np.testing.assert_allclose(found.sensitivity.x0, [[0.0, 0.0], [0.75, 1.0]], rtol=0, atol=1e-9)
