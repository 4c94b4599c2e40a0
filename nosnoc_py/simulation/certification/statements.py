"""What a solution states about itself besides its motion: nodes, ends, objective, bounds."""

from __future__ import annotations

from collections.abc import Iterator

import casadi as ca
import numpy as np

from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.measures import excess
from nosnoc_py.solution import RungeKuttaInterpolant, Solution
from nosnoc_py.solution.certificate import Finding

# Statements may be off by this, absolute and relative.
SAME = 1e-6


def statements(ocp: OCP, solution: Solution) -> list[Finding]:
    """Statements that are not true of the solution's own numbers."""
    made = [*_ends(solution), *_nodes(solution)]
    interpolant = solution.interpolant
    if isinstance(interpolant, RungeKuttaInterpolant) and solution.method.startswith("FESD"):
        made += _objective(ocp, solution, interpolant)
        made += _bounds(ocp, solution, interpolant)
    return made


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


def _objective(ocp: OCP, solution: Solution, interpolant: RungeKuttaInterpolant) -> Iterator[Finding]:
    """The objective of this OCP by the quadrature of the solution's own scheme."""
    s, c = ocp.system, interpolant.c
    weights = np.linalg.solve(np.vander(c, increasing=True).T, 1.0 / np.arange(1, c.size + 1))
    x = interpolant.x_stages.reshape(-1, interpolant.x_stages.shape[2])
    middles = interpolant.t_left + 0.5 * interpolant.h
    u = np.repeat([solution.control(t) for t in middles], c.size, axis=0).reshape(len(x), -1)
    stage = ca.Function("stage_cost", [s.x, s.u, s.p], [ca.densify(ocp.stage_cost)])
    end = ca.Function("terminal_cost", [s.x, s.x_initial, s.p], [ocp.terminal_cost])
    rates = np.array(stage(x.T, u.T, solution.p)).reshape(interpolant.h.size, c.size)
    parts = [*(interpolant.h * (rates @ weights)), float(end(interpolant.x_right[-1], solution.x0, solution.p))]
    away = sum(parts) - solution.objective
    if abs(away) > SAME * (abs(solution.objective) + float(np.abs(parts).sum())):
        text = (
            f"the objective is said to be {solution.objective:.9g}, that of this OCP at the solution's own stages is "
            f"{sum(parts):.9g}: it solves another OCP, or was changed"
        )
        yield Finding(time=solution.duration, what=text, size=float(abs(away)))


def _bounds(ocp: OCP, solution: Solution, interpolant: RungeKuttaInterpolant) -> Iterator[Finding]:
    """Bounds and terminal constraints of the OCP at the solution's own stages and ends."""
    s, n_x = ocp.system, interpolant.x_stages.shape[2]
    states = np.concatenate([interpolant.x_stages, interpolant.x_right[:, None]], axis=1)
    times = interpolant.t_left[:, None] + interpolant.h[:, None] * np.append(interpolant.c, 1.0)
    yield from _first("bound", s.state_names, states.reshape(-1, n_x), ocp.x_bounds, times.reshape(-1))
    yield from _first("bound", s.control_names, solution.u, ocp.u_bounds, solution.u_grid[:-1])
    for constraint in ocp.terminal_constraints:
        function = ca.Function("constraint", [s.x, s.x_initial, s.p], [constraint.expression])
        values = np.array(function(interpolant.x_right[-1], solution.x0, solution.p)).reshape(1, -1)
        names = [str(constraint.name)] * values.size
        bounds = (constraint.lower, constraint.upper)
        yield from _first("terminal constraint", names, values, bounds, np.array([solution.duration]))


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
