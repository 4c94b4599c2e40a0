"""True solutions of small problems, and the same with one thing spoiled at random by more than the tolerance.

True are optima, simulations and closed forms that stand in for optima. Spoiled is the control of a stage, a listed
impulse, the time of an event, a state, the objective; or the problem that the solution is said to solve has another
restitution, friction, target or path constraint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

import nosnoc_py as ns
from nosnoc_py.solution import RungeKuttaInterpolant, Series, nodes_of

GRAVITY = 9.81
STAGES, HORIZON = 4, 1.0
METHOD = ns.FESDJ(finite_elements=3, rk_stages=3)
# Sizes of what is spoiled, in units of what is there: far beyond the tolerance of 1e-6 of certificates.
LEAST, MOST = 1e-3, 0.3

Random = np.random.Generator
Pair = tuple[ns.OCP, ns.Solution]


# --- true solutions ---


def ball(restitution: float) -> ns.CLS:
    """A ball over the ground, pushed up and down."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q, restitution=restitution)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM([[2.0]]), force=u - 2.0 * GRAVITY, contacts=[ground])


def slider(restitution: float, friction: float) -> ns.CLS:
    """A point mass in the plane that falls on the ground and slides there."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=friction, restitution=restitution)
    force = ca.vertcat(u, -GRAVITY)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=force, contacts=[ground])


def relay() -> ns.PSS:
    """x' = u - 2 sign(x), with a second state that is carried along: all motions are straight lines."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    modes = ns.Modes("side", flows=[ca.vertcat(2.0, 1.0), ca.vertcat(-2.0, -1.0)], functions=x[0], signs=[[-1], [1]])
    return ns.PSS(x=x, u=u, flow=ca.vertcat(u, 0.0), modes=modes)


def ocp_of(system: Any, x0: Any) -> ns.OCP:
    """An OCP whose cost is exact on constant controls."""
    return ns.OCP(
        system,
        horizon=HORIZON,
        x0=x0,
        stage_cost=ca.sumsqr(system.u),
        terminal_cost=ca.sumsqr(system.x),
        bounds=ns.Bounds(u=(-100.0, 100.0)),
    )


def stand_in(ocp: ns.OCP, trajectory: ns.Trajectory, method: str) -> ns.Solution:
    """A simulation as if it had been optimised."""
    fields = {f.name: getattr(trajectory, f.name) for f in dataclasses.fields(trajectory)}
    numbers: dict[str, Any] = dict.fromkeys(["complementarity", "complementarity_min", "infeasibility"], 0.0)
    cost = float((trajectory.u**2).sum(axis=1) @ np.diff(trajectory.u_grid)) + float(
        trajectory.final_state @ trajectory.final_state
    )
    return ns.Solution(**fields, **numbers, objective=cost, x0=ocp.x0, horizon=ocp.horizon, method=method)


def _simulated(random: Random, system: Any, x0: list[float], size: float, method: Any) -> Pair | None:
    """A motion under a random control; None where the simulation gave up."""
    u = size * random.normal(size=(STAGES, 1))
    steps: dict[str, Any] = {} if isinstance(method, ns.EventDriven) else {"steps": 2 * STAGES}
    trajectory = ns.simulate(system, x0=x0, duration=HORIZON, u=u, method=method, **steps)
    ocp = ocp_of(system, x0)
    return (ocp, stand_in(ocp, trajectory, f"{type(method).__name__}()")) if trajectory.success else None


def bounce(random: Random) -> Pair | None:
    """The ball, by FESD-J."""
    e = float(random.choice([0.0, 0.5, 0.9]))
    return _simulated(random, ball(e), [random.uniform(0.3, 1.0), random.uniform(-3.0, 0.0)], 4.0, METHOD)


def slide(random: Random) -> Pair | None:
    """The point mass, by FESD-J."""
    system = slider(float(random.choice([0.0, 0.5])), random.uniform(0.2, 0.4))
    x0 = [0.0, random.uniform(0.05, 0.3), random.uniform(3.0, 6.0), 0.0]
    return _simulated(random, system, x0, 2.0, METHOD)


def resampled(random: Random) -> Pair | None:
    """The point mass, by the event-driven simulation."""
    system = slider(float(random.choice([0.0, 0.5])), random.uniform(0.2, 0.4))
    x0 = [0.0, random.uniform(0.05, 0.3), random.uniform(3.0, 6.0), 0.0]
    return _simulated(random, system, x0, 2.0, ns.EventDriven())


def switching(random: Random) -> Pair | None:
    """The relay, by FESD."""
    return _simulated(random, relay(), [random.uniform(-0.8, 0.8), 0.0], 1.0, ns.FESD(finite_elements=3))


def closed_form(random: Random) -> Pair | None:
    """The ball without control: parabolas between impacts, as elements of a collocation."""
    e, height = float(random.choice([0.5, 0.9])), random.uniform(0.3, 1.0)
    t, x, left, lengths, starts = 0.0, np.array([height, 0.0]), [], [], []
    while t < HORIZON:
        hit = (x[1] + np.sqrt(x[1] ** 2 + 2.0 * GRAVITY * max(x[0], 0.0))) / GRAVITY
        length = min(hit, HORIZON - t)
        if length < 1e-3:
            return None
        left.append(t)
        lengths.append(length)
        starts.append(x)
        end = _flight(x, length)
        t, x = (HORIZON, end) if length < hit else (t + length, np.array([0.0, -e * end[1]]))
    t_left, h, x_left, c = np.array(left), np.array(lengths), np.array(starts), np.array([1.0 / 3.0, 1.0])
    stages = np.array([[_flight(s, share * length) for share in c] for s, length in zip(starts, lengths, strict=True)])
    own = RungeKuttaInterpolant(t_left=t_left, h=h, c=c, x_left=x_left, x_stages=stages, x_initial=x_left[0])
    t_nodes, x_nodes = nodes_of(t_left, h, x_left[0], x_left, stages[:, -1])
    before = np.concatenate([[0.0], stages[:-1, -1, 1]])
    impulses = np.append(0.0, 2.0 * (x_left[1:, 1] - before[1:]))
    events = [
        ns.Event(time, "ground", "impact", impulse, v, -e * v)
        for time, impulse, v in zip(t_left[1:], impulses[1:], before[1:], strict=True)
    ]
    ocp = ocp_of(ball(e), [height, 0.0])
    names, grid = ocp.system.state_names, np.linspace(0.0, HORIZON, STAGES + 1)
    series = {
        "lambda_normal[ground]": Series((t_left[:, None] + h[:, None] * c).reshape(-1), np.zeros(2 * h.size)),
        "Lambda_normal[ground]": Series(t_left, impulses),
    }
    trajectory = ns.Trajectory(
        t=t_nodes,
        x=x_nodes,
        state_names=names,
        u_grid=grid,
        u=np.zeros((STAGES, 1)),
        control_names=ocp.system.control_names,
        interpolant=own,
        events=tuple(events),
        series=series,
    )
    return ocp, stand_in(ocp, trajectory, "FESDJ()")


def _flight(x: np.ndarray, t: float) -> np.ndarray:
    return np.array([x[0] + x[1] * t - 0.5 * GRAVITY * t**2, x[1] - GRAVITY * t])


@cache
def _optimum(name: str) -> Pair:
    if name == "ball":
        base = ocp_of(ball(0.5), [0.8, -1.0])
        target = ns.Constraint(base.system.q, 0.5, 0.5, name="height")
    else:
        base = ocp_of(slider(0.0, 0.3), [0.0, 0.1, 3.0, 0.0])
        target = ns.Constraint(base.system.q[0], 1.0, 1.0, name="place")
    ocp = evolve(base, terminal_constraints=[target], terminal_cost=0.0)
    return ocp, ns.solve(ocp, ns.FESDJ(control_stages=STAGES, finite_elements=3, rk_stages=3), guess=[1.0])


def optimised(random: Random) -> Pair | None:
    """Optima of the ball and of the point mass, by FESD-J."""
    ocp, solution = _optimum(str(random.choice(["ball", "slider"])))
    return (ocp, solution) if solution.success else None


SYSTEMS: dict[str, Callable[[Random], Pair | None]] = {
    "bounce": bounce,
    "slide": slide,
    "resampled": resampled,
    "switching": switching,
    "closed form": closed_form,
    "optimised": optimised,
}


# --- spoiling ---


def _size(random: Random) -> float:
    """A share, with either sign, uniform in its logarithm."""
    return float(random.choice([-1.0, 1.0]) * np.exp(random.uniform(np.log(LEAST), np.log(MOST))))


def control(random: Random, ocp: ns.OCP, solution: ns.Solution) -> Pair | None:
    """Another control in one stage, with the objective that belongs to it."""
    u = np.array(solution.u)
    k = int(random.integers(len(u)))
    old = u[k].copy()
    u[k] += _size(random) * (1.0 + np.abs(u[k]))
    away = float((u[k] ** 2).sum() - (old**2).sum()) * float(np.diff(solution.u_grid)[k])
    return ocp, replace(solution, u=u, objective=solution.objective + away)


def impulse(random: Random, ocp: ns.OCP, solution: ns.Solution) -> Pair | None:
    """Another impulse of an impact, by a share of the largest one."""
    hits = [k for k, event in enumerate(solution.events) if event.kind == "impact"]
    if not hits:
        return None
    events, k = list(solution.events), int(random.choice(hits))
    largest = max(events[hit].impulse or 0.0 for hit in hits)
    events[k] = replace(events[k], impulse=(events[k].impulse or 0.0) + _size(random) * largest)
    return ocp, replace(solution, events=tuple(events))


def event_time(random: Random, ocp: ns.OCP, solution: ns.Solution) -> Pair | None:
    """An event at another time: a hundredth of the horizon away, and more."""
    if not solution.events:
        return None
    events, k = list(solution.events), int(random.integers(len(solution.events)))
    away = float(random.choice([-1.0, 1.0]) * random.uniform(0.01, 0.2) * HORIZON)
    time = events[k].time + away
    if not 0.05 < time < 0.95 * HORIZON:
        return None
    events[k] = replace(events[k], time=time)
    return ocp, replace(solution, events=tuple(sorted(events, key=lambda event: event.time)))


def _with_contact(ocp: ns.OCP, **changes: Any) -> ns.OCP:
    """The same problem with another contact."""
    s = ocp.system
    (contact,) = s.contacts
    given = {"gap": contact.gap, "restitution": contact.restitution}
    if contact.frictional:
        given |= {"tangent": contact.tangent, "friction": max(contact.friction)}
    other = ns.Contact(contact.name, **{**given, **changes})
    system = ns.CLS(
        q=s.q, v=s.v, u=s.u, mass_matrix=s.mass_matrix, force=s.force, contacts=[other], names=dict(s.names)
    )
    return evolve(ocp, system=system)


def restitution(random: Random, ocp: ns.OCP, solution: ns.Solution) -> Pair | None:
    """A problem with another restitution."""
    if not isinstance(ocp.system, ns.CLS) or not solution.impacts:
        return None
    e = ocp.system.contacts[0].restitution
    other = e + abs(_size(random)) if e < 0.5 else e - abs(_size(random))
    return _with_contact(ocp, restitution=other), solution


def friction(random: Random, ocp: ns.OCP, solution: ns.Solution) -> Pair | None:
    """A problem with another friction, of a body that slides."""
    if not isinstance(ocp.system, ns.CLS) or not ocp.system.contacts[0].frictional:
        return None
    forces, slips = solution["lambda_normal[ground]"], np.abs(solution["v_0"])
    if forces.max() <= 0.0 or slips.min() < 0.1:
        return None
    mu = max(ocp.system.contacts[0].friction)
    return _with_contact(ocp, friction=mu * (1.0 + _size(random))), solution


def state(random: Random, ocp: ns.OCP, solution: ns.Solution) -> Pair | None:
    """Another state in one element, with the nodes that belong to it."""
    own = solution.interpolant
    if not isinstance(own, RungeKuttaInterpolant):
        return None
    e, i = int(random.integers(own.h.size)), int(random.integers(own.x_left.shape[1]))
    away = _size(random) * (1.0 + float(np.abs(solution.x[:, i]).max()))
    stages = np.array(own.x_stages)
    stages[e, :, i] += away
    moved = replace(own, x_stages=stages)
    ends = np.array([moved(t, "-") for t in solution.t])
    lefts = np.array([moved(t, "+") for t in solution.t])
    first = np.append(True, np.diff(solution.t) > 0.0)
    return ocp, replace(solution, interpolant=moved, x=np.where(first[:, None], ends, lefts))


def objective(random: Random, ocp: ns.OCP, solution: ns.Solution) -> Pair | None:
    """Another objective."""
    return ocp, replace(solution, objective=solution.objective + _size(random) * (1.0 + abs(solution.objective)))


def target(random: Random, ocp: ns.OCP, solution: ns.Solution) -> Pair | None:
    """A problem with a target that is missed."""
    i = int(random.integers(solution.x.shape[1]))
    value = float(solution.x[-1, i]) + _size(random) * (1.0 + abs(float(solution.x[-1, i])))
    constraint = ns.Constraint(ocp.system.x[i], value, value, name="target")
    return evolve(ocp, terminal_constraints=[*ocp.terminal_constraints, constraint]), solution


def path(random: Random, ocp: ns.OCP, solution: ns.Solution) -> Pair | None:
    """A problem with a path constraint that is broken at a node where it is imposed."""
    i = int(random.integers(solution.x.shape[1]))
    inner = solution(solution.u_grid[1:-1], "-")[:, i]
    limit = float(inner.max()) - abs(_size(random)) * (1.0 + float(np.abs(inner).max()))
    constraint = ns.Constraint(ocp.system.x[i], None, limit, name="limit", at="control_grid")
    return evolve(ocp, path_constraints=[*ocp.path_constraints, constraint]), solution


SPOILS: dict[str, Callable[[Random, ns.OCP, ns.Solution], Pair | None]] = {
    "control": control,
    "impulse": impulse,
    "event time": event_time,
    "restitution": restitution,
    "friction": friction,
    "state": state,
    "objective": objective,
    "target": target,
    "path constraint": path,
}
