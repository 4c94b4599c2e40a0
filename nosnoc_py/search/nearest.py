"""Explanation of a failed search: the motion that comes nearest to the goal, and the constraints that it misses.

A program that is locally infeasible violates some row, mostly an equation of motion in the middle of a phase, which
does not help a user. With soft terminal constraints (an exact l1 penalty, Kerrigan and Maciejowski 2000) the same
sequences have solutions, which are motions of the system. The one that misses the goal least shows which constraint is
too much, and by how much, in the user's own quantities.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

from nosnoc_py.attempts.work import exhausted
from nosnoc_py.audit.constraints import row_sizes
from nosnoc_py.errors import NosnocError
from nosnoc_py.ocp import OCP, Bounds, Constraint
from nosnoc_py.sequences.multi_phase import MultiPhase
from nosnoc_py.solution import Solution
from nosnoc_py.status import seconds_to

# Weight of the violations, relative to the sizes of the rows; there are no other costs.
PENALTY = 1.0
# Control intervals of the programs, and largest number of sequences: enough to see which constraint is missed.
INTERVALS, TRIED = 12, 3
# Programs of the deletion filter, and the largest number of constraints and bounds for which it is tried.
FILTER, MOST_FILTERED = MultiPhase(intervals=INTERVALS, follow=True, refinements=0, max_iterations=100), 12
# Violation of a terminal constraint, as a fraction of its size, below which it is not reported.
REPORTED = 1e-3
# Largest number of characters of an expression in a message.
MOST_CHARACTERS = 40


@dataclass(frozen=True, eq=False, kw_only=True)
class NearestMotion:
    """Motion with the smallest violation of the terminal constraints.

    Parameters
    ----------
    solution : Solution
        Solution of the problem with soft terminal constraints.
    misses : tuple of str
        Violated constraints, such as "target is 0.84, expected 2".
    amount : float
        Sum of all violations, in units of the constraints.
    """

    solution: Solution
    misses: tuple[str, ...]
    amount: float

    def __str__(self) -> str:
        return f"the nearest motion misses the goal: {'; '.join(self.misses)}"


def nearest_motion(ocp: OCP, controls: Iterable[Any], deadline: float = np.inf) -> NearestMotion | None:
    """Return the motion that comes nearest to the goal, or None if there is no hard goal or no such motion.

    Parameters
    ----------
    ocp : OCP
    controls : iterable
        Controls as guesses, each of which leads to a sequence.
    deadline : float
        Of `time.monotonic()`.
    """
    if not ocp.terminal_constraints:
        return None
    # Without other costs any weight is exact: the nearest motion misses least, in the sizes of the rows.
    soft = [evolve(c, soft="l1", weight=PENALTY / _positive(row_sizes(ocp, c))) for c in ocp.terminal_constraints]
    best: NearestMotion | None = None
    try:
        relaxed = evolve(ocp, terminal_constraints=soft, stage_cost=0, terminal_cost=0, point_costs=())
    except NosnocError:  # soft constraints have slacks already
        return None
    method = MultiPhase(intervals=INTERVALS, follow=True, refinements=1)
    for _, control in zip(range(TRIED), controls, strict=False):
        if exhausted() or time.monotonic() >= deadline:
            break
        try:
            solution = method.solve(relaxed, guess=control, time_limit=seconds_to(deadline))
        except NosnocError:  # a control that does not fit, such as that of an iterate without phases
            continue
        # A program that was cut is not known to be the nearest one.
        if solution.success and time.monotonic() < deadline:
            misses = [_missed(ocp, c, solution) for c in ocp.terminal_constraints]
            amount = float(sum(size for _, size in misses))
            if best is None or amount < best.amount:
                words = tuple(text for text, _ in misses if text)
                best = NearestMotion(solution=solution, misses=words, amount=amount)
    return best if best is not None and best.misses else None


def _positive(sizes: np.ndarray) -> np.ndarray:
    """Return sizes of rows, 1 where a row has none."""
    return np.where(sizes > 0.0, sizes, 1.0)


def conflict(ocp: OCP, control: Any, deadline: float = np.inf) -> tuple[str, ...]:
    """Return a smallest set of the user's constraints and bounds that no motion was found to satisfy together.

    Without any one of them there is a motion: a deletion filter (Chinneck and Dravnieks 1991), with local solves of the
    problem without costs. Empty if the work or the time is used up before, or if nothing helps.

    Parameters
    ----------
    ocp : OCP
    control : guess of the control
    deadline : float
        Of `time.monotonic()`.
    """
    names = [
        *(str(c.name) for c in (*ocp.terminal_constraints, *ocp.path_constraints)),
        *(f"bounds of {name}" for name, low, high in _bounded(ocp) if np.isfinite([low, high]).any()),
    ]
    if len(names) > MOST_FILTERED:
        return ()

    def has_motion(kept: list[str]) -> bool:
        try:
            return bool(FILTER.solve(_with_only(ocp, kept), guess=control, time_limit=seconds_to(deadline)).success)
        except NosnocError:
            return False

    if not has_motion([]):
        return ()
    kept = names
    for name in names:
        left = [other for other in kept if other != name]
        if exhausted() or time.monotonic() >= deadline:
            return ()
        kept = kept if has_motion(left) else left
    # A program that was cut says nothing of its constraints.
    return tuple(kept) if time.monotonic() < deadline else ()


def _bounded(ocp: OCP) -> list[tuple[str, float, float]]:
    """Return names, lower and upper bounds of all states and controls."""
    s = ocp.system
    return [*zip(s.state_names, *ocp.x_bounds, strict=True), *zip(s.control_names, *ocp.u_bounds, strict=True)]


def _with_only(ocp: OCP, kept: list[str]) -> OCP:
    """Return the problem without costs, with some of its constraints and bounds."""

    def bounds(names: tuple[str, ...], low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        held = np.array([f"bounds of {name}" in kept for name in names], bool)
        return np.where(held, low, -np.inf), np.where(held, high, np.inf)

    s = ocp.system
    return evolve(
        ocp,
        stage_cost=0,
        terminal_cost=0,
        point_costs=(),
        terminal_constraints=[c for c in ocp.terminal_constraints if str(c.name) in kept],
        path_constraints=[c for c in ocp.path_constraints if str(c.name) in kept],
        bounds=Bounds(x=bounds(s.state_names, *ocp.x_bounds), u=bounds(s.control_names, *ocp.u_bounds)),
    )


def _missed(ocp: OCP, constraint: Constraint, solution: Solution) -> tuple[str, float]:
    """Return a text on the violation of a constraint at the end of a motion ("" if satisfied), and its size."""
    s = ocp.system
    value = ca.Function("end", [s.x, s.x_initial, s.p], [constraint.expression])
    p = np.asarray(solution.p, dtype=float)[: s.n_p]  # slacks are further parameters behind those of the system
    end = np.array(value(solution.x[-1], solution.x[0], p)).ravel()
    below, above = constraint.lower - end, end - constraint.upper
    size = np.maximum(np.maximum(below, above), 0.0)
    parts = []
    for k in np.flatnonzero(size > REPORTED * (np.abs(end) + row_sizes(ocp, constraint))):
        limit = constraint.lower[k] if below[k] > 0.0 else constraint.upper[k]
        equal = constraint.lower[k] == constraint.upper[k]
        wanted = f"{limit:.4g}" if equal else f"at {'least' if below[k] > 0.0 else 'most'} {limit:.4g}"
        row = f"{constraint.name}[{k}]" if end.size > 1 else str(constraint.name)
        expression = str(constraint.expression[int(k)])
        row += f" ({expression})" if len(expression) <= MOST_CHARACTERS else ""
        parts.append(f"{row} is {end[k]:.4g}, expected {wanted}")
    return "; ".join(parts), float(size.sum())
