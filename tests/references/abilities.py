"""Kinds of motion, and features of optimal control problems, as data: each with its optimum over few numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from tests.references.reduced_optimum import PolynomialMotion, ReducedProblem

G = 10.0
TRACKING, PRICE = 0.5, 2.0
FEATURES = (
    "fixed horizon",
    "free horizon",
    "free parameter",
    "free x0",
    "path constraint",
    "state bound",
    "terminal set",
    "equal intervals",
    "moving grid",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class MotionKind:
    """One kind of motion.

    Attributes
    ----------
    system : function -> system
        With the parameter "push".
    motion : PolynomialMotion
        The same by hand.
    items : list
        Of the `Sequence`.
    edges : list of float
        About where phases end [s], the horizon last.
    x0 : list of float
    target : (component, value)
        Where it ends.
    limit : (component, lower, upper)
        Of a velocity, active; its square is the path constraint.
    start : (component, lower, upper)
        Of the initial state, where it is free.
    open : tuple of int
        Components of the initial state that the first mode determines.
    """

    name: str
    system: Callable[[], Any]
    motion: PolynomialMotion
    items: list[Any]
    edges: list[float]
    x0: list[float]
    target: tuple[int, float]
    limit: tuple[int, float, float]
    start: tuple[int, float, float]
    open: tuple[int, ...] = ()
    controls: int = 1
    guess: float = 0.1

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, kw_only=True)
class AbilityCell:
    """A cell of the table: the OCP, its method, and the same problem in plain numbers."""

    ocp: ns.OCP
    method: ns.MultiPhase
    problem: ReducedProblem
    equal: bool


def cell(kind: MotionKind, feature: str) -> AbilityCell:
    """The problem of a kind with a feature."""
    system = kind.system()
    x, horizon = system.x, kind.edges[-1]
    component, value = kind.target
    reduced: dict[str, Any] = {
        "x0": [(a, a) for a in kind.x0],
        "horizon": (horizon, horizon),
        "ends": [(component, value, value)],
    }
    cost = ca.sumsqr(system.u) + TRACKING * x[0] ** 2
    given: dict[str, Any] = {"horizon": horizon, "x0": kind.x0}
    given["terminal_constraints"] = [ns.Constraint(x[component], value, value, name="target")]
    options: dict[str, Any] = {"intervals": 4}
    if feature == "free horizon":
        given["horizon"] = free = ns.FreeTime(0.3 * horizon, 2.5 * horizon, initial=horizon)
        given["terminal_cost"] = PRICE * (free.symbol - 0.9 * horizon) ** 2
        reduced |= {"horizon": (0.3 * horizon, 2.5 * horizon), "due": 0.9 * horizon, "price": PRICE}
    elif feature == "free parameter":
        given |= {"free_parameters": {"push": (-1.0, 1.0)}, "terminal_cost": PRICE * system.p[0] ** 2}
        reduced |= {"p": (-1.0, 1.0), "price": PRICE}
    elif feature == "free x0":
        i, low, high = kind.start
        fixed = [j for j in range(len(kind.x0)) if j != i and j not in kind.open]
        rows = [ns.Constraint(x[j], kind.x0[j], kind.x0[j]) for j in fixed]
        given |= {"x0": None, "initial_constraints": [*rows, ns.Constraint(x[i], low, high)]}
        reduced["x0"] = [(low, high) if j == i else (a, a) for j, a in enumerate(kind.x0)]
    elif feature == "path constraint":
        i, low, high = kind.limit
        least, most = (low**2, np.inf) if low > 0 else (-np.inf, low**2 if high == np.inf else high**2)
        given["path_constraints"] = [ns.Constraint(x[i] ** 2, least, most, name="speed")]
        reduced["limits"] = [kind.limit]
    elif feature == "state bound":
        i, low, high = kind.limit
        bounds = np.full((2, len(kind.x0)), [[-np.inf], [np.inf]])
        bounds[:, i] = low, high
        given["bounds"] = ns.Bounds(x=tuple(bounds))
        reduced["limits"] = [kind.limit]
    elif feature == "terminal set":
        least, most = (value, np.inf) if value > 0 else (-np.inf, value)
        given["terminal_constraints"] = [ns.Constraint(x[component], least, most, name="target")]
        reduced["ends"] = [(component, least, most)]
    elif feature == "moving grid":
        options = {"intervals": 7, "elements": 2}
    equal = feature == "equal intervals"
    ocp = ns.OCP(system, stage_cost=cost, **given)
    method = ns.MultiPhase(
        sequence=ns.Sequence(kind.items, times=kind.edges[:-1]), grid="equal" if equal else "moving", **options
    )
    problem = ReducedProblem(motion=kind.motion, controls=kind.controls, weight=TRACKING, **reduced)
    return AbilityCell(ocp=ocp, method=method, problem=problem, equal=equal)


def pieces_of(solution: ns.Solution, *, equal: bool) -> list[tuple[int, int]]:
    """Phase and control interval of every piece of a motion, by its events and its control grid."""
    assert solution.sequence is not None
    edges, close = [0.0, *solution.sequence.times, solution.horizon], 1e-9 * solution.horizon
    if not equal:
        middles = 0.5 * (solution.u_grid[1:] + solution.u_grid[:-1])
        return [(int(np.searchsorted(edges, t)) - 1, j) for j, t in enumerate(middles)]
    cuts = np.array(sorted({*edges, *solution.u_grid}))
    cuts = cuts[np.append(True, np.diff(cuts) > close)]
    middles = 0.5 * (cuts[1:] + cuts[:-1])
    return [(int(np.searchsorted(edges, t)) - 1, int(np.searchsorted(solution.u_grid, t)) - 1) for t in middles]


# --- the kinds ---


def _symbols(n: int, m: int) -> tuple[ca.SX, ca.SX, ca.SX, ca.SX]:
    return ca.SX.sym("q", n), ca.SX.sym("v", n), ca.SX.sym("u", m), ca.SX.sym("push")


def _unit_masses(q: ca.SX, v: ca.SX, u: ca.SX, p: ca.SX, force: ca.SX, contacts: list[ns.Contact]) -> ns.CLS:
    mass, n = ca.DM.eye(q.numel()), {"p": ["push"]}
    return ns.CLS(q=q, v=v, u=u, p=p, names=n, p_default=0.0, mass_matrix=mass, force=force, contacts=contacts)


def _two_sides(x: ca.SX, u: ca.SX, p: ca.SX, above: ca.SX, below: ca.SX) -> ns.PSS:
    modes = ns.Modes("line", flows=[above, below], functions=x[0], signs=[[1], [-1]])
    return ns.PSS(x=x, u=u, p=p, names={"p": ["push"]}, p_default=0.0, modes=modes)


def _block() -> ns.CLS:
    """A block on the ground, pushed sideways."""
    q, v, u, p = _symbols(2, 1)
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.3)
    return _unit_masses(q, v, u, p, ca.vertcat(u + p, -G), [ground])


def _slips(*signs: float) -> Callable[[int, Any, Any], list[Any]]:
    """Accelerations of the block that slips forwards (1), backwards (-1) or sticks (0)."""
    return lambda k, u, p: [u[0] + p - 0.3 * G * signs[k] if signs[k] else 0.0, 0.0]


def _cone(sign: list[float]) -> Callable[[int, Any, Any, Any], list[Any]]:
    """The sign of slip, or the room in the friction cone."""

    def inside(k: int, x: Any, u: Any, p: Any) -> list[Any]:
        return [sign[k] * x[2]] if sign[k] else [0.3 * G - u[0] - p, 0.3 * G + u[0] + p]

    return inside


def _in_space() -> ns.CLS:
    """A block on the ground in space, pushed along one line."""
    q, v, u, p = _symbols(3, 1)
    tangents = ca.DM([[1, 0], [0, 1], [0, 0]])
    ground = ns.Contact("ground", gap=q[2], tangent=tangents, friction=0.3)
    force = ca.vertcat(0.6 * (u + p), 0.8 * (u + p), -G)
    return _unit_masses(q, v, u, p, force, [ground])


def _along(k: int, u: Any, p: Any) -> list[Any]:
    a = u[0] + p - 0.3 * G if k == 0 else 0.0
    return [0.6 * a, 0.8 * a, 0.0]


def _two_blocks() -> ns.CLS:
    """Two blocks on the ground with different friction and one control."""
    q, v, u, p = _symbols(4, 1)
    feet = [
        ns.Contact("first", gap=q[1], tangent=ca.DM([1, 0, 0, 0]), friction=0.3),
        ns.Contact("second", gap=q[3], tangent=ca.DM([0, 0, 1, 0]), friction=0.1),
    ]
    force = ca.vertcat(u + p, -G, u + p, -G)
    return _unit_masses(q, v, u, p, force, feet)


def _corner() -> ns.CLS:
    """A particle that bounces off a floor and a wall."""
    q, v, u, p = _symbols(2, 2)
    sides = [ns.Contact("wall", gap=q[0], restitution=0.8), ns.Contact("floor", gap=q[1], restitution=0.5)]
    return _unit_masses(q, v, u, p, u + ca.vertcat(p, 0), sides)


def _ball() -> ns.CLS:
    q, v, u, p = _symbols(1, 1)
    ground = ns.Contact("ground", gap=q, restitution=0.8)
    return _unit_masses(q, v, u, p, u + p - G, [ground])


def _thrown() -> ns.CLS:
    """A particle that lands with slip."""
    q, v, u, p = _symbols(2, 2)
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.3)
    force = ca.vertcat(u[0] + p, u[1] - G)
    return _unit_masses(q, v, u, p, force, [ground])


def _two_forces() -> ns.PSS:
    """A particle that is pulled on one side of a line and pushed on the other one."""
    x, u, p = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("push")
    above, below = ca.vertcat(x[1], u + p - 2), ca.vertcat(x[1], u + p + 1)
    return _two_sides(x, u, p, above, below)


def _relay() -> ns.PSS:
    """Constant flows that meet on a surface."""
    x, u, p = ca.SX.sym("x", 3), ca.SX.sym("u", 2), ca.SX.sym("push")
    above, below = ca.vertcat(u[0] - 1, 1 + u[1] + p, u[0]), ca.vertcat(u[0] + 1, u[1] + p - 0.5, u[0])
    return _two_sides(x, u, p, above, below)


def _relay_rate(k: int, u: Any, p: Any) -> list[Any]:
    above = 1.0 if k == 0 else (1 + u[0]) / 2
    return [u[0] - 1 if k == 0 else 0.0, above + (1 - above) * -0.5 + u[1] + p, u[0]]


def _no_end(k: int, x: Any) -> list[Any]:
    raise AssertionError("one phase only")


KINDS = (
    MotionKind(
        name="slip",
        system=_block,
        motion=PolynomialMotion(order=2, rate=_slips(1), guard=_no_end, inside=_cone([1])),
        items=[{"ground": "slip+"}],
        edges=[1.0],
        x0=[0.0, 0.0, 2.0, 0.0],
        target=(0, 1.5),
        limit=(2, 0.8, np.inf),
        start=(0, -0.1, 0.2),
        open=(1, 3),
    ),
    MotionKind(
        name="stick",
        system=_block,
        motion=PolynomialMotion(order=2, rate=_slips(1, 0), guard=lambda k, x: [x[2]], inside=_cone([1, 0])),
        items=[{"ground": "slip+"}, {"ground": "stick"}],
        edges=[0.8, 1.5],
        x0=[0.0, 0.0, 1.0, 0.0],
        target=(0, 0.8),
        limit=(2, -np.inf, 1.05),
        start=(0, -0.1, 0.2),
        open=(1, 3),
    ),
    MotionKind(
        name="reversal",
        system=_block,
        motion=PolynomialMotion(order=2, rate=_slips(1, -1), guard=lambda k, x: [x[2]], inside=_cone([1, -1])),
        items=[{"ground": "slip+"}, {"ground": "slip-"}],
        edges=[0.3, 1.2],
        x0=[0.0, 0.0, 0.8, 0.0],
        target=(0, -0.5),
        limit=(2, -0.83, np.inf),
        start=(0, -0.1, 0.2),
        open=(1, 3),
        guess=-4.0,
    ),
    MotionKind(
        name="cone in space",
        system=_in_space,
        motion=PolynomialMotion(
            order=2,
            rate=_along,
            guard=lambda k, x: [x[3]],
            inside=lambda k, x, u, p: [x[3]] if k == 0 else [0.3 * G - u[0] - p, 0.3 * G + u[0] + p],
        ),
        items=[{"ground": "slip"}, {"ground": "stick"}],
        edges=[0.8, 1.5],
        x0=[0.0, 0.0, 0.0, 0.6, 0.8, 0.0],
        target=(0, 0.48),
        limit=(3, -np.inf, 0.63),
        start=(0, -0.1, 0.2),
        open=(2, 5),
        guess=2.0,
    ),
    MotionKind(
        name="several contacts",
        system=_two_blocks,
        motion=PolynomialMotion(
            order=2,
            rate=lambda k, u, p: [u[0] + p - 3 if k == 0 else 0.0, 0.0, u[0] + p - 1, 0.0],
            guard=lambda k, x: [x[4]],
            inside=lambda k, x, u, p: [x[6], *([x[4]] if k == 0 else [3 - u[0] - p, 3 + u[0] + p])],
        ),
        items=[{"first": "slip+", "second": "slip+"}, {"first": "stick", "second": "slip+"}],
        edges=[0.4, 1.0],
        x0=[0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.5, 0.0],
        target=(2, 1.2),
        limit=(6, 0.9, np.inf),
        start=(2, -0.1, 0.2),
        open=(1, 3, 5, 7),
    ),
    MotionKind(
        name="two impacts",
        system=_corner,
        motion=PolynomialMotion(
            order=2,
            rate=lambda k, u, p: [u[0] + p, u[1]],
            guard=lambda k, x: [x[0], x[1]],
            jump=lambda k, x: [x[0], x[1], -0.8 * x[2], -0.5 * x[3]],
        ),
        items=[{}, "impact wall, floor", {}],
        edges=[0.5, 1.0],
        x0=[1.0, 0.6, -2.0, -1.1],
        target=(0, 0.9),
        limit=(3, -1.2, np.inf),
        start=(1, 0.4, 0.7),
        controls=2,
    ),
    MotionKind(
        name="elastic impact",
        system=_ball,
        motion=PolynomialMotion(
            order=2,
            rate=lambda k, u, p: [u[0] + p - G],
            guard=lambda k, x: [x[0]],
            jump=lambda k, x: [x[0], -0.8 * x[1]],
        ),
        items=[{}, "impact ground", {}],
        edges=[0.45, 1.0],
        x0=[1.0, 0.0],
        target=(0, 0.8),
        limit=(1, -4.4, np.inf),
        start=(0, 0.8, 1.1),
    ),
    MotionKind(
        name="contact after an impact",
        system=_thrown,
        motion=PolynomialMotion(
            order=2,
            rate=lambda k, u, p: [u[0] + p, u[1] - G] if k == 0 else [u[0] + p - 0.3 * (G - u[1]), 0.0],
            guard=lambda k, x: [x[1]],
            jump=lambda k, x: [x[0], x[1], x[2] + 0.3 * x[3], 0.0],
            inside=lambda k, x, u, p: [x[2]] if k else [],
        ),
        items=[{}, {"ground": "slip+"}],
        edges=[0.3, 0.8],
        x0=[0.0, 0.5, 2.0, 0.0],
        target=(0, 1.3),
        limit=(2, 0.6, np.inf),
        start=(1, 0.4, 0.6),
        controls=2,
    ),
    MotionKind(
        name="crossing",
        system=_two_forces,
        motion=PolynomialMotion(
            order=2, rate=lambda k, u, p: [u[0] + p + 1 if k == 0 else u[0] + p - 2], guard=lambda k, x: [x[0]]
        ),
        items=[{"line": "-"}, {"line": "+"}],
        edges=[0.4, 1.0],
        x0=[-0.5, 1.0],
        target=(0, 0.5),
        limit=(1, -np.inf, 1.4),
        start=(0, -0.6, -0.4),
    ),
    MotionKind(
        name="sliding",
        system=_relay,
        motion=PolynomialMotion(
            order=1,
            rate=_relay_rate,
            guard=lambda k, x: [x[0]],
            inside=lambda k, x, u, p: [] if k == 0 else [1 - u[0], 1 + u[0]],
        ),
        items=[{"line": "+"}, {"line": "0"}],
        edges=[0.5, 1.5],
        x0=[0.5, 0.0, 0.0],
        target=(1, 0.9),
        limit=(2, -np.inf, 0.05),
        start=(0, 0.4, 0.6),
        controls=2,
    ),
)
