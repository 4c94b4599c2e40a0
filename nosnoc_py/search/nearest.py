"""Explanation of a failed search: the motion that comes nearest to the goal, and the constraints that it misses.

A program that is locally infeasible violates some row, mostly an equation of motion in the middle of a phase, which
does not help a user. With soft terminal constraints (an exact l1 penalty, Kerrigan and Maciejowski 2000) the same
sequences have solutions, which are motions of the system. The one that misses the goal least shows which constraint is
too much, and by how much, in the user's own quantities.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.attempts.work import exhausted
from nosnoc_py.errors import NosnocError
from nosnoc_py.ocp import OCP, Constraint
from nosnoc_py.sequences.multi_phase import MultiPhase
from nosnoc_py.solution import Solution

# The penalty has to be larger than the multipliers of the hard constraints, which are of the size of the objective over
# that of the constraint. A weight far above makes the program stiff.
PENALTY = 1e2
# Control intervals of the programs, and largest number of sequences: enough to see which constraint is missed.
INTERVALS, TRIED = 12, 3
# Violation of a terminal constraint, as a fraction of its size, below which it is not reported.
REPORTED = 1e-3
# Largest number of characters of an expression in a message.
SHORT = 40


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


def nearest_motion(ocp: OCP, controls: Iterable[Any]) -> NearestMotion | None:
    """Return the motion that comes nearest to the goal, or None if there is no hard goal or no such motion.

    Parameters
    ----------
    ocp : OCP
    controls : iterable
        Controls as guesses, each of which leads to a sequence.
    """
    if any(c.soft for c in ocp.terminal_constraints) or not ocp.terminal_constraints:
        return None
    soft = [replace(c, soft="l1", weight=np.full(c.lower.size, PENALTY)) for c in ocp.terminal_constraints]
    best: NearestMotion | None = None
    try:
        relaxed = replace(ocp, terminal_constraints=soft)
    except NosnocError:  # a system with slacks of its own
        return None
    method = MultiPhase(intervals=INTERVALS, follow=True, refinements=1)
    for _, control in zip(range(TRIED), controls, strict=False):
        if exhausted():
            break
        try:
            solution = method.solve(relaxed, guess=control)
        except NosnocError:  # a control that does not fit, such as that of an iterate without phases
            continue
        if solution.success:
            misses = [_missed(ocp, c, solution) for c in ocp.terminal_constraints]
            amount = float(sum(size for _, size in misses))
            if best is None or amount < best.amount:
                words = tuple(text for text, _ in misses if text)
                best = NearestMotion(solution=solution, misses=words, amount=amount)
    return best if best is not None and best.misses else None


def _missed(ocp: OCP, constraint: Constraint, solution: Solution) -> tuple[str, float]:
    """Return a text on the violation of a constraint at the end of a motion ("" if satisfied), and its size."""
    s = ocp.system
    value = ca.Function("end", [s.x, s.x_initial, s.p], [constraint.expression])
    p = np.asarray(solution.p, dtype=float)[: s.n_p]  # slacks are further parameters behind those of the system
    end = np.array(value(solution.x[-1], solution.x[0], p)).ravel()
    below, above = constraint.lower - end, end - constraint.upper
    size = np.maximum(np.maximum(below, above), 0.0)
    parts = []
    for k in np.flatnonzero(size > REPORTED * np.maximum(1.0, np.abs(end))):
        limit = constraint.lower[k] if below[k] > 0.0 else constraint.upper[k]
        equal = constraint.lower[k] == constraint.upper[k]
        wanted = f"{limit:.4g}" if equal else f"at {'least' if below[k] > 0.0 else 'most'} {limit:.4g}"
        row = f"{constraint.name}[{k}]" if end.size > 1 else str(constraint.name)
        expression = str(constraint.expression[int(k)])
        row += f" ({expression})" if len(expression) <= SHORT else ""
        parts.append(f"{row} is {end[k]:.4g}, expected {wanted}")
    return "; ".join(parts), float(size.sum())
