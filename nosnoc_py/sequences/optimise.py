"""IPOPT on a multi-phase program, and what its result is worth.

A point counts by its residuals: where IPOPT stopped by its limit, or because the rows leave it no freedom, the point
may be a motion all the same. It is SOLVED if no direction of descent is left, which multipliers show, or a linear
program (`has_descent`); else it is FEASIBLE. Rows that the others imply are left out where IPOPT cannot do with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nosnoc_py.attempts import work
from nosnoc_py.mpcc.ipopt import Ipopt, NLPResult
from nosnoc_py.sequences.blocks import BlockNLP
from nosnoc_py.sequences.program import PhaseNLP
from nosnoc_py.sequences.readout import PhasePoint
from nosnoc_py.status import Status

Array = np.ndarray
# Tight tolerances: the solution is compared with a simulation, whose events depend on its last digits.
IPOPT = {"tol": 1e-9, "dual_inf_tol": 1e-6, "compl_inf_tol": 1e-9, "mu_target": 0.0, "acceptable_tol": 1e-7}
# Redundant contacts make rows dependent, so that the Jacobian is regularised first; this may prevent convergence of an
# easy program, so that a run that got stuck is repeated without it.
REGULARISED = ({"perturb_always_cd": "yes"}, {"perturb_always_cd": "no"})
STUCK = ("Restoration_Failed", "Error_In_Step_Computation", "Search_Direction_Becomes_Too_Small")
# Where a second derivative is infinite (h^1.5 where a phase begins at h = 0), its approximation from gradients is not.
NOT_FINITE, QUASI_NEWTON = "Invalid_Number_Detected", {"hessian_approximation": "limited-memory"}
# IPOPT refuses to begin with more equations than unknowns.
NO_FREEDOM = "Not_Enough_Degrees_Of_Freedom"
# Largest number of equations whose rank is determined, by a dense factorisation.
MOST_ROWS = 2500
# A row is implied by others if its remainder is below this fraction of the largest one.
IMPLIED = 1e-10
# Distance of the point at which ranks are determined from the start, as a fraction of typical values: rows that depend
# on each other at a special start only are no redundant ones.
AWAY = 1e-3
# A step of this size (typical values of the unknowns are 1) must not lower the objective by more than the fraction
# DESCENT of what it could without any row.
RADIUS, DESCENT = 1e-3, 1e-4


def optimise(
    program: PhaseNLP, w: Array, options: Mapping[str, Any], deadline: float, lower: Array | None = None
) -> PhasePoint:
    """Solve a program by IPOPT, once more without regularisation if it gets stuck, without redundant rows if it has to.

    Parameters
    ----------
    program : PhaseNLP
    w : (n,)
        Start, in the user's units.
    options : mapping
        Further options of IPOPT.
    deadline : float
        Time of the monotonic clock [s].
    lower : (n,), optional
        Lower bounds in place of those of the program.
    """
    nlp, iterations, implied = program.nlp, 0, np.zeros(0, int)
    bounds = {} if lower is None else {"lbx": lower / nlp.scale}
    for more in REGULARISED:
        ipopt = Ipopt(nlp, {**IPOPT, **more, **options})
        result = ipopt.solve(w / nlp.scale, np.empty(0), deadline=deadline, **bounds)
        if result.solver_status == NO_FREEDOM and (implied := implied_rows(nlp, w)).size:
            bounds = {**bounds, **_without(nlp, implied)}
            result = ipopt.solve(w / nlp.scale, np.empty(0), deadline=deadline, **bounds)
        iterations += result.iterations
        if result.solver_status == NOT_FINITE and nlp.has_gradients(w):
            ipopt = Ipopt(nlp, {**IPOPT, **more, **options, **QUASI_NEWTON})
            result = ipopt.solve(w / nlp.scale, np.empty(0), deadline=deadline, **bounds)
            iterations += result.iterations
        if result.solver_status not in STUCK:
            break
    # IPOPT relaxes bounds by a little; lengths and forces have to be nonnegative exactly.
    solution = np.clip(result.x * nlp.scale, nlp.lbw, nlp.ubw)
    if program.ocp.free_time is None:
        # The certificate has the given horizon: what the row for it leaves is taken from the lengths in proportion.
        at, total = program.at_lengths, float(solution[program.at_lengths].sum())
        horizon = float(program.ocp.horizon)
        solution[at] *= horizon / total if abs(total - horizon) <= program.tolerance * horizon else 1.0
    names = tuple(dict.fromkeys(nlp.label(row) for row in implied))
    return PhasePoint.of(program, solution, replace(result, iterations=iterations), names)


def implied_rows(nlp: BlockNLP, w: Array) -> Array:
    """Return the equations that the others imply near w, by the ranks of their gradients.

    The rows are taken in the order of a QR factorisation with column pivoting (Businger and Golub 1965): those that are
    left add nothing. If they do not hold, the program has no solution, which its residual shows.
    """
    from scipy.linalg import qr  # not paid for by an import of the library

    rows = np.flatnonzero(nlp.lower == nlp.upper)
    if rows.size > MOST_ROWS:
        return np.zeros(0, int)
    rng = np.random.default_rng(0)  # a fixed seed: the same rows for the same program
    near = np.clip(w + AWAY * nlp.scale * rng.standard_normal(w.size), nlp.lbw, nlp.ubw)
    matrix = np.array(nlp.derivatives["jac_g"](near / nlp.scale, np.empty(0))[1])[np.ix_(rows, nlp.lbw < nlp.ubw)]
    if not np.isfinite(matrix).all():
        return np.zeros(0, int)
    work.count(work.OPERATION * rows.size * matrix.size)
    triangle, order = qr(matrix.T, mode="r", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    rank = int((sizes > IMPLIED * sizes.max(initial=0.0)).sum())
    return np.sort(rows[order[rank:]])


def _without(nlp: BlockNLP, rows: Array) -> dict[str, Array]:
    """Return the limits of all rows, infinite for some of them."""
    lower, upper = nlp.lbg.copy(), nlp.ubg.copy()
    lower[rows], upper[rows] = -np.inf, np.inf
    return {"lbg": lower, "ubg": upper}


def has_descent(nlp: BlockNLP, w: Array) -> bool:
    """Return True if a small step within all linearised rows and bounds lowers the objective.

    The largest decrease of the linearised objective is a linear program (Fletcher and Sainz de la Maza 1989), which
    needs neither multipliers nor independent rows.
    """
    from scipy.optimize import linprog  # not paid for by an import of the library
    from scipy.sparse import csr_matrix

    x = w / nlp.scale
    gradient = np.array(nlp.derivatives["grad_f"](x, np.empty(0))[1]).ravel()
    values, jacobian = nlp.derivatives["jac_g"](x, np.empty(0))
    values = np.array(values).ravel()
    matrix = csr_matrix(jacobian.sparse()) if hasattr(jacobian, "sparse") else csr_matrix(np.array(jacobian))
    free = RADIUS * float(np.abs(gradient).sum())
    if not (np.isfinite(gradient).all() and np.isfinite(matrix.data).all()):
        return True
    if free == 0.0:
        return False
    work.count(100.0 * work.ENTRY * matrix.nnz)
    # A point is feasible up to its residuals: rows and bounds ask for no more than it has.
    low, high = np.minimum(nlp.lbg - values, 0.0), np.maximum(nlp.ubg - values, 0.0)
    equal = nlp.lbg == nlp.ubg
    finite_low, finite_high = np.isfinite(low) & ~equal, np.isfinite(high) & ~equal
    answer = linprog(
        gradient,
        A_eq=matrix[equal],
        b_eq=np.zeros(int(equal.sum())),
        A_ub=_stacked(matrix[finite_high], -matrix[finite_low]),
        b_ub=np.concatenate([high[finite_high], -low[finite_low]]),
        bounds=np.column_stack(
            [np.clip(nlp.lbx - x, -RADIUS, 0.0), np.clip(nlp.ubx - x, 0.0, RADIUS)],
        ),
        method="highs",
    )
    return answer.status != 0 or -float(answer.fun) > DESCENT * free


def _stacked(one: Any, other: Any) -> Any:
    from scipy.sparse import vstack

    return vstack([one, other], format="csr")


def ended_by(word: str) -> str:
    """Return the note about a program that IPOPT left at a feasible point."""
    return f"IPOPT ended by {word}"


def status_of(point: PhasePoint, tolerance: float) -> tuple[Status, str]:
    """Return status and message of an iterate, from its residuals; IPOPT's word explains what is not feasible."""
    result = point.result
    assert result is not None
    word = result.solver_status
    if result.interrupted:
        return Status.INTERRUPTED, word
    if not np.isfinite([point.objective, point.residual]).all():
        return Status.NUMERICAL_ERROR, word
    if point.residual <= tolerance:
        return (Status.SOLVED, "") if result.converged else (Status.FEASIBLE, ended_by(word))
    if word == NOT_FINITE:
        return Status.NUMERICAL_ERROR, word
    if word == "User_Requested_Stop":
        return Status.WORK_LIMIT if work.exhausted() else Status.TIME_LIMIT, word
    if word == "Maximum_Iterations_Exceeded":
        return Status.ITERATION_LIMIT, word
    return Status.LOCALLY_INFEASIBLE, f"this sequence misses {point.worst} by {point.violation:.3g}"


__all__ = ["NOT_FINITE", "NLPResult", "ended_by", "has_descent", "implied_rows", "optimise", "status_of"]
