"""What a solution states about itself besides its motion: nodes, ends, objective, bounds."""

from __future__ import annotations

from collections.abc import Iterator

import casadi as ca
import numpy as np

from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.collocation import (
    Collocation,
    collocation_of,
    is_by_collocation,
    stage_controls,
)
from nosnoc_py.simulation.certification.measures import excess
from nosnoc_py.solution import Solution
from nosnoc_py.solution.certificate import Finding

# Statements may be off by this, absolute and relative.
SAME = 1e-6
# Where a control that is not constant is looked at, in units of its stages.
INSIDE = np.array([1e-6, 0.25, 0.5, 0.75, 1 - 1e-6])


def statements(ocp: OCP, solution: Solution) -> list[Finding]:
    """Statements that are not true of the solution's own numbers."""
    made = [*_ends(solution), *_nodes(solution)]
    elements = collocation_of(solution)
    if elements is not None and is_by_collocation(solution):
        made += _objective(ocp, solution, elements)
        states = np.concatenate([elements.x, elements.x_right[:, None]], axis=1).reshape(-1, elements.x.shape[2])
        times = np.column_stack([elements.t, elements.t_left + elements.h]).reshape(-1)
        return [*made, *_bounds(ocp, solution, times, states)]
    return [*made, *_bounds(ocp, solution, solution.t, solution.x), *_paths(ocp, solution)]


def _ends(solution: Solution) -> Iterator[Finding]:
    """A solution has to begin and end where it says."""
    away = float(np.abs(solution(solution.t0, "-") - solution.x0).max())
    short = abs(solution.duration - solution.horizon)
    if away > SAME * (1.0 + np.abs(solution.x0).max()):
        yield Finding(time=0.0, what=f"the trajectory begins {away:.3g} away from x0", size=away)
    if short > SAME * solution.horizon:
        yield Finding(time=solution.duration, what=f"the horizon is missed by {short:.3g} s", size=short)


def _nodes(solution: Solution) -> Iterator[Finding]:
    """The states at the nodes are those of the dense output, on one of its sides."""
    away = np.minimum(*[np.abs(solution(solution.t, side) - solution.x) for side in ("-", "+")])
    wrong = np.flatnonzero((away > SAME * (1.0 + np.abs(solution.x))).any(axis=1))
    if wrong.size:
        size = float(away[wrong[0]].max())
        text = f"a state is {size:.3g} away from the dense output"
        yield Finding(time=float(solution.t[wrong[0]] - solution.t0), what=text, size=size)


def listed(ocp: OCP, solution: Solution, elements: Collocation) -> np.ndarray | None:
    """Algebraic variables of the user's (E n_s, n_z) that the solution lists at its stages; None if it does not."""
    own, count = ocp.system.algebraic, elements.t.size
    names = () if own is None else tuple(own.names or ())
    if not all(name in solution.series and len(solution.series[name]) == count for name in names):
        return None
    return np.array([solution.series[name].values for name in names]).T.reshape(count, len(names))


def _objective(ocp: OCP, solution: Solution, elements: Collocation) -> Iterator[Finding]:
    """The objective of this OCP by the quadrature of the solution's own scheme."""
    s, shape, z = ocp.system, elements.t.shape, listed(ocp, solution, elements)
    if z is None:
        return
    x = elements.x.reshape(-1, elements.x.shape[2])
    u = np.vstack([stage_controls(solution, elements, e) for e in range(shape[0])])
    stage = ca.Function("stage_cost", [s.x, s.z, s.u, s.p], [ca.densify(ocp.stage_cost)])
    end = ca.Function("terminal_cost", [s.x, s.x_initial, s.p], [ocp.terminal_cost])
    rates = np.array(stage(x.T, z.T, u.T, solution.p)).reshape(shape)
    parts = [*elements.integrals(rates), float(end(solution.x[-1], solution.x0, solution.p))]
    away = sum(parts) - solution.objective
    if abs(away) > SAME * (abs(solution.objective) + float(np.abs(parts).sum())):
        text = (
            f"the objective is said to be {solution.objective:.9g}, that of this OCP at the solution's own stages is "
            f"{sum(parts):.9g}: it solves another OCP, or was changed"
        )
        yield Finding(time=solution.duration, what=text, size=float(abs(away)))


def _bounds(ocp: OCP, solution: Solution, t: np.ndarray, x: np.ndarray) -> Iterator[Finding]:
    """Bounds and terminal constraints of the OCP at states x (n, n_x) at times t, of the control, and at the end."""
    s = ocp.system
    yield from _first("bound", s.state_names, x, ocp.x_bounds, t)
    inner, u = _controls(solution)
    yield from _first("bound", s.control_names, u, ocp.u_bounds, inner)
    for constraint in ocp.terminal_constraints:
        function = ca.Function("constraint", [s.x, s.x_initial, s.p], [constraint.expression])
        values = np.array(function(solution.x[-1], solution.x0, solution.p)).reshape(1, -1)
        names = [str(constraint.name)] * values.size
        bounds = (constraint.lower, constraint.upper)
        yield from _first("terminal constraint", names, values, bounds, np.array([solution.duration]))


def _controls(solution: Solution) -> tuple[np.ndarray, np.ndarray]:
    """Times inside of the control stages, and the control there; several where it has dense output."""
    places = np.array([0.5]) if solution.control_interpolant is None else INSIDE
    t = (solution.u_grid[:-1, None] + np.diff(solution.u_grid)[:, None] * places).reshape(-1)
    return t, solution.control(t).reshape(t.size, -1) if t.size else solution.u


def _paths(ocp: OCP, solution: Solution) -> Iterator[Finding]:
    """Path constraints where control stages begin, for solutions that are not made of finite elements."""
    s, t = ocp.system, solution.u_grid[:-1]
    for constraint in ocp.path_constraints if t.size else ():
        if ca.depends_on(ca.SX(constraint.expression), s.z):
            continue
        function = ca.Function("constraint", [s.x, s.u, s.p], [ca.densify(ca.SX(constraint.expression))])
        values = np.array(function(solution(t, "+").T, solution.control(t).T, solution.p)).T
        names = [str(constraint.name)] * values.shape[1]
        yield from _first("path constraint", names, values, (constraint.lower, constraint.upper), t)


def _first(
    kind: str,
    names: list[str] | tuple[str, ...],
    values: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    t: np.ndarray,
) -> Iterator[Finding]:
    """The first violation of every component."""
    over = excess(values, *bounds)
    for i, name in enumerate(names):
        wrong = np.flatnonzero(over[:, i] > SAME * (1.0 + np.abs(values[:, i])))
        if wrong.size:
            size = float(over[wrong[0], i])
            what = f"the solution violates the {kind} of {name} by {size:.3g} itself"
            yield Finding(time=float(t[wrong[0]]), what=what, size=size)
