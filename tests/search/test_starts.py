"""Kinds of start: what they give is a control in its bounds, for any problem; and what an exact motion is worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.search.kinds import STARTS
from nosnoc_py.search.merit import LEAST_OBJECTIVE, PENALTY_WEIGHT, Merit
from nosnoc_py.search.starts import Start, StartTask
from nosnoc_py.systems.hybrid import HybridSystem

pytestmark = pytest.mark.quick


def ball(**changed: Any) -> ns.OCP:
    """A ball with a thrust falls, bounces and rises to 0.5 m."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    ground = ns.Contact("ground", gap=q, restitution=0.6)
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ground])
    asked: dict[str, Any] = {
        "horizon": 1.0,
        "x0": [1, 0],
        "stage_cost": u**2,
        "terminal_constraints": [ns.Constraint(s.x, [0.5, 0], [0.5, 0], name="up")],
        "bounds": ns.Bounds(u=(-5, 15)),
    }
    return ns.OCP(s, **{**asked, **changed})


def relay() -> ns.OCP:
    """A Filippov system: a mass with dry friction."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    modes = ns.Modes("dry", flows=[[0, 1], [0, -1]], functions=x[1], signs=[[-1], [1]])
    s = ns.PSS(x=x, u=u, flow=ca.vertcat(x[1], u), modes=modes)
    return ns.OCP(s, horizon=2.0, x0=[0, 0], stage_cost=u**2, terminal_constraints=[ns.Constraint(x, [1, 0], [1, 0])])


def dropped() -> ns.OCP:
    """No control: gravity is free."""
    q, v, g = (ca.SX.sym(name) for name in "qvg")
    s = ns.CLS(q=q, v=v, p=g, mass_matrix=1, force=-g, contacts=[ns.Contact("ground", gap=q)])
    name = s.parameter_names[0]
    return ns.OCP(s, horizon=1.0, x0=[1, 0], p=[9.0], free_parameters={name: (5, 12)}, terminal_cost=(q - 0.3) ** 2)


def freed() -> ns.OCP:
    """The horizon and the start are free."""
    base = ball()
    return replace(
        base,
        horizon=ns.FreeTime(0.5, 2.0),
        x0=None,
        initial_constraints=[ns.Constraint(base.system.x, [0.8, -1], [1.2, 1], name="start")],
    )


PROBLEMS = {"ball": ball, "relay": relay, "dropped": dropped, "freed": freed}


def found(kind: str, ocp: ns.OCP, count: int = 1, pieces: int = 60) -> Iterator[Start]:
    """The first starts of a kind, among so many pieces of its work."""
    stream = islice(STARTS[kind](StartTask.of(ocp), np.random.default_rng(0)), pieces)
    return islice((start for start in stream if start is not None), count)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(
    "kind", [kind for kind in STARTS if kind not in ("stances", "compliant", "quasistatic")]
)  # these are sequences
def test_kinds_have_starts_where_they_can(kind: str, name: str) -> None:
    """What every start satisfies is tested by `check_start`."""
    ocp = PROBLEMS[name]()
    task = StartTask.of(ocp)
    starts = list(found(kind, ocp))
    needless = not ocp.system.n_u and kind in ("line", "smoothed", "relaxed")
    needless |= kind == "line" and name == "relay"
    needless |= kind == "simplex" and ocp.system.n_u > 0  # of problems without controls
    needless |= kind == "evolution" and name == "dropped"  # one number
    assert bool(starts) is not needless
    for start in starts:
        # Finite also where the problem has no bounds.
        assert (np.asarray(start.control.values) >= task.lower - 1e-9).all()
        assert start.control.grid[-1] == pytest.approx(start.horizon, rel=1e-12)


def test_free_parameters_are_spread_between_their_bounds() -> None:
    weights = [start.p[0] for start in found("random", dropped(), count=6)]
    assert min(weights) >= 5
    assert max(weights) <= 12
    assert np.ptp(weights) > 1.0


def test_computed_torque_goes_the_way_that_it_was_computed_for() -> None:
    # Without contact on the way the motion ends where it should, to the error of sixteen constant pieces.
    ocp = ball(bounds=ns.Bounds(u=(-50, 50)))
    straight = next(found("line", ocp))
    end = StartTask.of(ocp).motion(straight).x[-1]
    assert end == pytest.approx([0.5, 0.0], abs=0.05)


def test_smoothed_contacts_are_felt_without_being_reached() -> None:
    # Nothing touches at first, and without the wall as a spring no control does anything to the second body.
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    gap = ns.Contact("bodies", gap=q[1] - q[0] - 0.1)
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, 0), contacts=[gap])
    ocp = ns.OCP(s, horizon=1.0, x0=[0, 0.5, 0, 0], stage_cost=0.01 * u**2, terminal_cost=10 * (q[1] - 1.0) ** 2)
    task = StartTask.of(ocp)
    ends = [task.motion(start).x[-1][1] for start in found("smoothed", ocp, count=9)]
    assert max(ends) > 0.8
    assert task.motion(next(found("constant", ocp))).x[-1][1] == 0.5


def test_smoothed_starts_reach_the_goal_without_the_forces_that_assist_them() -> None:
    """The third start of a trajectory to the goal, and those from rest, have a control that moves the mass itself."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=5 - q)])
    ends = [ns.Constraint(s.x, [1, 0], [1, 0], name="home")]
    ocp = ns.OCP(s, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_constraints=ends)
    task = StartTask.of(ocp)
    for start in list(found("smoothed", ocp, count=4))[2:]:
        assert task.motion(start).x[-1] == pytest.approx([1.0, 0.0], abs=0.05)


def test_smoothed_problems_need_a_control_and_no_memory() -> None:
    """Widths replace the modes of contacts and of Filippov systems only; all others would be solved for nothing."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    switch = ns.Hysteresis("gear", variable=x, lower=0.2, upper=0.5, flows=[u, 0.5 * u])
    systems = [
        ns.PSS(x=x, u=u, modes=switch),
        ns.PDS(x=x, u=u, flow=u, constraints=[x]),
        HybridSystem(x=x, u=u, flow=u, jumps=[]),
    ]
    goal: dict[str, Any] = {"horizon": 1.0, "x0": [0.1], "terminal_cost": (x - 1) ** 2}
    for ocp in (*(ns.OCP(system, stage_cost=u**2, **goal) for system in systems), dropped()):
        assert list(islice(STARTS["smoothed"](StartTask.of(ocp), np.random.default_rng(0)), 1)) == []
    assert len(list(found("smoothed", relay()))) == 1


def test_merit_is_the_objective_and_a_penalty() -> None:
    ocp = ball(terminal_constraints=(), terminal_cost=0)
    task = StartTask.of(ocp)
    still = task.start(np.array([[9.81]]))
    merit = Merit(task)
    assert merit(*merit.evaluate(still)) == pytest.approx(9.81**2, rel=1e-9)  # it hovers at 1 m
    missing = ball()
    away = StartTask.of(missing).start(np.array([[9.81]]))
    weight, merit = PENALTY_WEIGHT * max(9.81**2, LEAST_OBJECTIVE), Merit(StartTask.of(missing))
    assert merit(*merit.evaluate(away)) == pytest.approx(9.81**2 + weight * 0.5, rel=1e-6)
