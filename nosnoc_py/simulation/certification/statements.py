"""Consistency of a solution with itself: nodes, ends, objective, residuals, bounds and constraints.

Nothing is simulated here: the numbers that a solution lists are compared with its own dense output and with the OCP.
"""

from __future__ import annotations

from collections.abc import Iterator

import casadi as ca
import numpy as np

from nosnoc_py.audit import constraints
from nosnoc_py.audit.elements import ElementStages, columns_of
from nosnoc_py.audit.records import Measured, statement
from nosnoc_py.ocp import OCP, Constraint
from nosnoc_py.simulation.certification.measures import GAUSS, integrated, state_sizes
from nosnoc_py.simulation.certification.readings import EDGE, controls_at_stages, controls_of, own_stages, states_of
from nosnoc_py.solution import RungeKuttaInterpolant, Solution
from nosnoc_py.solution.interpolant import Side
from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.tolerances import BROKEN, STATED

# States of a solution are accurate to about this relative error.
ERROR_OF_STATES = 1e-7

Array = np.ndarray
Free = tuple[str, float, float, float]
"""Name, value and bounds of a free horizon or parameter."""
# Places at which a control with dense output is checked, in units of its stages.
INSIDE = np.array([1e-6, 0.25, 0.5, 0.75, 1 - 1e-6])
# Numbers of a solution that have to be finite; horizon and states are checked before the simulation.
CLAIMED = ("objective", "infeasibility", "complementarity", "complementarity_min", "penalty")


def consistency_violations(ocp: OCP, solution: Solution, free: list[Free]) -> list[Violation]:
    """Return violations of consistency in a solution; `free` are the free choices of its solver."""
    sizes = state_sizes(ocp, solution)
    violations = [
        *_numbers(solution),
        *_free_choice_violations(free),
        *_ends(solution, sizes),
        *_nodes(solution, sizes),
    ]
    violations += _own_complementarities(ocp, solution)
    elements = own_stages(solution)
    violations += _sampled_objective(ocp, solution) if elements is None else _objective(ocp, solution, elements)
    broken = [one for measured in imposed(ocp, solution) for one in _first_violations(measured)]
    return [*violations, *broken]


def imposed(ocp: OCP, solution: Solution) -> list[Measured]:
    """Return bounds and constraints of the OCP where the method imposes them, by the solution's own numbers."""
    elements = own_stages(solution)
    if elements is None:
        t, x = solution.t, solution.x
    else:
        # Stages and ends of elements: the points at which finite elements impose bounds.
        x = np.concatenate([elements.x, elements.x_right[:, None]], axis=1).reshape(-1, elements.x.shape[2])
        t = np.column_stack([elements.t, elements.t_left + elements.h]).reshape(-1)
    inner, u = _controls(solution)
    s, p, end = ocp.system, solution.p, solution.duration
    residuals = [
        constraints.bounds(s.state_names, ocp.x_bounds, t, x, ocp.sizes.x),
        constraints.bounds(s.control_names, ocp.u_bounds, inner, u, ocp.sizes.u),
    ]
    for c in ocp.path_constraints:
        measured = _path(ocp, c, solution, elements)
        residuals += [] if measured is None else [measured]
    start, last = solution.x0, solution.x[-1]
    for c in ocp.point_constraints:
        residuals.append(constraints.at_points(ocp, c, states_of(solution, c.times + solution.t0, "-"), p))
    residuals += [constraints.at_end(ocp, c, Law.INITIAL, 0.0, start, start, p) for c in ocp.initial_constraints]
    return residuals + [constraints.at_end(ocp, c, Law.TERMINAL, end, last, start, p) for c in ocp.terminal_constraints]


def _path(ocp: OCP, c: Constraint, solution: Solution, elements: ElementStages | None) -> Measured | None:
    """Return a path constraint at the places where it is imposed; None if algebraic variables are not listed there."""
    uses_z = bool(ca.depends_on(c.expression, ocp.system.z))
    p, z = solution.p, None
    if elements is None or c.at == "control_grid":
        if uses_z or not len(solution.u):
            return None
        t = solution.u_grid[:-1]
        side: Side = "-" if elements is not None else "+"  # finite elements impose it before a jump
        return constraints.path(ocp, c, t - solution.t0, states_of(solution, t, side), controls_of(solution, t), p)
    controls = controls_at_stages(solution, elements)
    if c.at == "element_ends":
        return constraints.path(ocp, c, elements.t_left + elements.h, elements.x_right, controls[:, -1], p)
    if uses_z:
        z = listed_algebraic(ocp, solution, elements)
        if z is None:
            return None
    x, u = (values.reshape(elements.t.size, -1) for values in (elements.x, controls))
    return constraints.path(ocp, c, elements.t.reshape(-1), x, u, p, z)


def _numbers(solution: Solution) -> Iterator[Violation]:
    """Yield listed values that are not finite."""
    wrong = [name for name in CLAIMED if not np.isfinite(getattr(solution, name))]
    wrong += [name for name, series in solution.series.items() if not np.isfinite(series.values).all()]
    for event in solution.events:
        numbers = (event.time, event.impulse, event.v_before, event.v_after, event.energy_gain)
        if not all(np.isfinite(value) for value in numbers if value is not None):
            wrong.append(f"{event.kind} {event.name}")
    for name in wrong:
        yield statement(0.0, f"the solution's {name} is not a finite number", np.inf, np.inf)


def free_choices(ocp: OCP, solution: Solution) -> list[Free]:
    """Return the horizon and parameters that the solver could choose."""
    free = ocp.free_time
    choices: list[Free] = [] if free is None else [("horizon", solution.horizon, free.lower, free.upper)]
    for name, (lower, upper) in ocp.free_parameters.items():
        choices.append((f"parameter {name}", solution.parameters[name], float(lower), float(upper)))
    return choices


def _free_choice_violations(free: list[Free]) -> Iterator[Violation]:
    for what, value, lower, upper in free:
        away = max(lower - value, value - upper, 0.0)
        size = abs(value) + (upper - lower if np.isfinite(upper - lower) else 0.0)
        if away > STATED * size:
            share = away / size if size else np.inf
            yield Violation(time=0.0, law=Law.BOUND, subject=f"the {what}", amount=away, share=share)


def _ends(solution: Solution, sizes: Array) -> Iterator[Violation]:
    """Yield differences of the ends of the trajectory from x0 and horizon."""
    begins = np.abs(states_of(solution, solution.t[:1], "-") - solution.x0)
    away, share = float(begins.max()), float((begins / sizes).max())
    if share > STATED:
        yield statement(0.0, f"the trajectory begins {away:.3g} away from x0", away, share)
    short = abs(solution.duration - solution.horizon)
    if short > STATED * solution.horizon:
        text = f"the horizon is missed by {short:.3g} s"
        yield statement(solution.duration, text, short, short / solution.horizon)


def _nodes(solution: Solution, sizes: Array) -> Iterator[Violation]:
    """Yield the first node whose state is none of the limits of the dense output."""
    # At a jump the node may hold either limit.
    away = np.minimum(*[np.abs(states_of(solution, solution.t, side) - solution.x) for side in ("-", "+")])
    shares = away / (sizes + np.abs(solution.x))
    wrong = np.flatnonzero((shares > STATED).any(axis=1))
    if wrong.size:
        k = wrong[0]
        text = f"a state is {away[k].max():.3g} away from the dense output"
        yield statement(float(solution.t[k] - solution.t0), text, float(away[k].max()), float(shares[k].max()))


def listed_algebraic(ocp: OCP, solution: Solution, elements: ElementStages) -> Array | None:
    """Return the algebraic variables (E n_s, n_z) listed at the stages; None if there are none."""
    own = ocp.system.algebraic
    return columns_of(solution.series, () if own is None else tuple(own.names or ()), elements.t.size)


def _objective(ocp: OCP, solution: Solution, elements: ElementStages) -> Iterator[Violation]:
    """Yield a difference of the objective from the quadrature of the solution's own scheme."""
    s, shape, z = ocp.system, elements.t.shape, listed_algebraic(ocp, solution, elements)
    if z is None:
        return
    u = controls_at_stages(solution, elements).reshape(elements.t.size, -1)
    stage = ca.Function("stage_cost", [s.x, s.z, s.u, s.p], [ca.densify(ocp.stage_cost)])
    end = ca.Function("terminal_cost", [s.x, s.x_initial, s.p], [ocp.terminal_cost])

    def parts_of(factor: float) -> list[float]:
        x = factor * elements.x.reshape(elements.t.size, -1)
        rates = np.array(stage(x.T, z.T, u.T, solution.p)).reshape(shape)
        last = float(end(factor * solution.x[-1], solution.x0, solution.p))
        return [*elements.integrals(rates), last, _points(ocp, solution, factor)]

    parts = parts_of(1.0)
    if not np.isfinite(solution.objective):
        return
    away = sum(parts) - solution.objective
    # A cost that is zero at the optimum (a sum of squares) is only as accurate as the states are.
    noise = abs(sum(parts_of(1.0 + ERROR_OF_STATES)) - sum(parts))
    size = abs(solution.objective) + float(np.abs(parts).sum()) + noise / STATED
    share = float(abs(away) / max(size, 1e-300))
    # A solution that differs from its own quadrature is accepted if it agrees with the exact integral: other methods
    # use other rules.
    if not share <= STATED and not abs(refined_objective(ocp, solution) - solution.objective) <= STATED * size:
        text = (
            f"the stated objective is {solution.objective:.9g}, but that of this OCP at the solution's own stages is "
            f"{sum(parts):.9g}: the solution belongs to another OCP, or was changed"
        )
        yield statement(solution.duration, text, float(abs(away)), share)


def refined_objective(ocp: OCP, solution: Solution) -> float:
    """Return the objective along the dense output with refined quadrature; NaN with algebraic variables."""
    s, own = ocp.system, solution.interpolant
    if s.z.numel() or not isinstance(own, RungeKuttaInterpolant):
        return float("nan")
    stage = ca.Function("stage_cost", [s.x, s.u, s.p], [ca.densify(ocp.stage_cost)])
    end = ca.Function("terminal_cost", [s.x, s.x_initial, s.p], [ocp.terminal_cost])

    def integrals(rows: Array, runs: int) -> Array:
        inside = (np.arange(runs)[:, None] + GAUSS.c).reshape(-1) / runs
        t = (own.t_left[rows, None] + own.h[rows, None] * inside).reshape(-1)
        rates = np.array(stage(states_of(solution, t, "+").T, controls_of(solution, t).T, solution.p))
        values: Array = own.h[rows] * (rates.reshape(rows.size, -1) @ np.tile(GAUSS.b, runs)) / runs
        return values

    total = integrated(integrals, own.h.size)
    return total + float(end(solution.x[-1], solution.x0, solution.p)) + _points(ocp, solution)


def _points(ocp: OCP, solution: Solution, factor: float = 1.0) -> float:
    """Return the costs at chosen times, by the solution's states times a factor."""
    t0 = solution.t0
    costs = (
        term.costs(ocp, factor * states_of(solution, term.times + t0, "-"), solution.p) for term in ocp.point_terms
    )
    return float(sum(cost.sum() for cost in costs))


def _sampled_objective(ocp: OCP, solution: Solution) -> Iterator[Violation]:
    """Yield a difference of the objective if the scheme is not known: it has to lie within sums over the nodes."""
    s, own = ocp.system, solution.interpolant
    if not isinstance(own, RungeKuttaInterpolant) or s.z.numel() or not np.isfinite(solution.objective):
        return
    stage = ca.Function("stage_cost", [s.x, s.u, s.p], [ca.densify(ocp.stage_cost)])
    end = ca.Function("terminal_cost", [s.x, s.x_initial, s.p], [ocp.terminal_cost])
    # Left and right sums bound the quadrature of any scheme for a cost that is monotonic in an element.
    points = np.concatenate([[EDGE], GAUSS.c, [1.0 - EDGE]])
    t = (own.t_left[:, None] + own.h[:, None] * points).reshape(-1)
    rates = np.array(stage(states_of(solution, t, "+").T, controls_of(solution, t).T, solution.p))
    values = own.h[:, None] * rates.reshape(-1, points.size)
    left, exact, right = values[:, 0].sum(), float((values[:, 1:-1] @ GAUSS.b).sum()), values[:, -1].sum()
    last = float(end(solution.x[-1], solution.x0, solution.p)) + _points(ocp, solution)
    away = abs(exact + last - solution.objective)
    error = 2.0 * max(abs(left - exact), abs(right - exact))
    # Errors of the trapezoidal rule, which do not cancel in elements where the rate falls and others where it rises.
    error += float(np.abs(0.5 * (values[:, 0] + values[:, -1]) - values[:, 1:-1] @ GAUSS.b).sum())
    error += abs(_points(ocp, solution, 1.0 + ERROR_OF_STATES) - _points(ocp, solution))
    size = abs(exact) + abs(last) + abs(solution.objective)
    if not away <= error + STATED * size:
        text = (
            f"the stated objective is {solution.objective:.9g}, but along the solution's own motion it is "
            f"{exact + last:.9g} (+- {error:.2g}): the solution belongs to another OCP, or was changed"
        )
        yield statement(solution.duration, text, away, away / max(size, 1e-300))


def _controls(solution: Solution) -> tuple[Array, Array]:
    """Return times inside the control stages and the control there; several for a control with dense output."""
    places = np.array([0.5]) if solution.control_interpolant is None else INSIDE
    t = (solution.u_grid[:-1, None] + np.diff(solution.u_grid)[:, None] * places).reshape(-1)
    return t, controls_of(solution, t) if t.size else solution.u


def _own_complementarities(ocp: OCP, solution: Solution) -> Iterator[Violation]:
    """Yield violations of the user's complementarities (of x, u and p only) at the nodes."""
    s = ocp.system
    times = solution.t[:-1]
    for pair in ocp.complementarities:
        if ca.depends_on(ca.vertcat(pair.a, pair.b), s.z):
            continue
        function = ca.Function("pair", [s.x, s.u, s.p], [pair.a, pair.b])
        a, b = (v.full() for v in function(solution.x[:-1].T, controls_of(solution, times).T, solution.p))
        # Product relative to the larger side, so that a large force does not excuse a small gap; negative sides count
        # as they are.
        size = np.maximum(np.abs(a * b) / np.maximum(1.0, np.maximum(np.abs(a), np.abs(b))), -np.minimum(a, b))
        names = (str(pair.name),) * len(size)
        measured = Measured(law=Law.COMPLEMENTARITY, t=times, subjects=names, amounts=size.T, shares=size.T)
        worst = measured.worst()
        if worst is not None and worst.share > BROKEN:
            yield worst


def _first_violations(measured: Measured) -> list[Violation]:
    """Return the first violation of each component."""
    return [violation for column in measured.columns() for violation in column.above(STATED)[:1]]
