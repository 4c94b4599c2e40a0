"""The interior-point method on a multi-phase program, and what its result is worth.

A point counts by its residuals: where the method stopped by its limit the point may be a motion all the same. It is
SOLVED if no direction of descent is left, which multipliers show, or a linear program (`has_descent`); else it is
FEASIBLE. Rows that other rows imply need no treatment: the linear systems are regularised.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.attempts import work
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.kernels import Kernel
from nosnoc_py.mpcc.interior.method import ABOVE, OPTIONS, InteriorPoint
from nosnoc_py.mpcc.ipopt import Ipopt, NLPResult
from nosnoc_py.programs import BlockProgram, ForCasadi, KernelBlock, LinearMap
from nosnoc_py.sequences.program import PhaseNLP
from nosnoc_py.sequences.readout import PhasePoint
from nosnoc_py.status import Status
from nosnoc_py.tolerances import FAR

Array = np.ndarray
# Tight tolerances: the solution is compared with a simulation, whose events depend on its last digits.
SETTINGS = {"tol": 1e-10, "dual_inf_tol": 1e-6, "compl_inf_tol": 1e-11, "acceptable_tol": 1e-7}
# Of programs of four searches these found a solution more often, in a tenth fewer iterations; without the last one
# programs of legs needed IPOPT (a quadruped's jump: 12.8 s instead of 7.6 s).
ROBUST = {"kappa_sigma": 1e3, "tau_of_error": True, "creeping": 25, "mu_of_error": 1e-5}
NOT_FINITE = "Invalid_Number_Detected"
# Words of the method for a program of which IPOPT may know more: its multipliers may have grown without limit where
# rows depend on each other (legs with many inequalities). After FIRST_ITERATIONS iterations it hands over as well; of
# programs of four searches nine of ten were solved by then. The residual that counts as very near, and the default
# limit.
STUCK = (
    "Infeasible_Problem_Detected",
    "Restoration_Failed",
    "Search_Direction_Becomes_Too_Small",
    "Maximum_Iterations_Exceeded",
)
FIRST_ITERATIONS, VERY_NEAR, MOST_ITERATIONS = 100, 1e-3, 500
# Options that IPOPT does not have, or that say where the method of the library begins.
OWN = (
    "mu_warm",
    "tau_of_error",
    "mu_of_error",
    "patience",
    "creeping",
    "cutoff",
    "mu_init",
    "bound_push",
    "bound_frac",
)
# Options of IPOPT. Redundant contacts make rows dependent, so that the Jacobian is regularised first.
IPOPT = {**SETTINGS, "tol": 1e-9, "compl_inf_tol": 1e-9, "mu_target": 0.0, "perturb_always_cd": "yes"}
# Options and largest number of iterations towards the nearest feasible point: its start is beside its bounds.
NEAR, MOST_PROJECTIONS = {"mu_init": 1e-6, "bound_push": 1e-8, "bound_frac": 1e-8}, 30
# Options of one proximal step, which is short. A start nearly satisfies the rows with a residual of ALMOST. Factors of
# the weight after a step and after a failure, its limit, and the relative gain below which a step was the last one.
FROM_AFAR, MOST_FROM_AFAR = {"tol": 1e-6}, 60
PROXIMAL, MOST_PER_STEP, ALMOST = {"mu_init": 1e-4, "tol": 1e-6}, 40, 0.3
LIGHTER, HEAVIER, MOST_WEIGHT, GAINED = 3.0, 10.0, 1e4, 1e-3
FEASIBLE_POINT = "Feasible_Point_Found"
# A step of this size (typical values of the unknowns are 1) must not lower the objective by more than the fraction
# DESCENT of what it could without any row.
RADIUS, DESCENT = 1e-3, 1e-4


def optimise(
    program: PhaseNLP, w: Array, options: Mapping[str, Any], deadline: float, lower: Array | None = None
) -> PhasePoint:
    """Solve a program by the interior-point method, and by IPOPT where that does not converge.

    Of programs with `patience`, of which a search has many, only those that end very near a feasible point go to IPOPT.

    Parameters
    ----------
    program : PhaseNLP
    w : (n,)
        Start, in the user's units.
    options : mapping
        Further options, with IPOPT's names.
    deadline : float
        Time of the monotonic clock [s].
    lower : (n,), optional
        Lower bounds in place of those of the program.

    Raises
    ------
    OptionError
        For an option that the method does not have.
    """
    if wrong := options.keys() - set(OPTIONS):
        raise OptionError(f"interior point: {unknown_name(sorted(wrong)[0], OPTIONS, 'option')}")
    nlp = program.nlp
    bounds = {} if lower is None else {"lbx": lower / nlp.scale}
    hasty, most = "patience" in options, int(options.get("max_iter", MOST_ITERATIONS))
    method = InteriorPoint(nlp, {**SETTINGS, **ROBUST, **options, "max_iter": min(most, FIRST_ITERATIONS)})
    result = method.solve(w / nlp.scale, np.empty(0), deadline=deadline, **bounds)
    left = nlp.residual(_unscaled(nlp, result))
    if result.solver_status in STUCK and result.iterations < most and (left <= VERY_NEAR or not hasty):
        asked = {name: value for name, value in options.items() if name not in OWN}
        ipopt = Ipopt(ForCasadi(nlp), {**IPOPT, **asked, "max_iter": most - result.iterations})
        other = ipopt.solve(w / nlp.scale, np.empty(0), deadline=deadline, **bounds)
        best = min((other, result), key=lambda one: _promise(program, one))
        # Ctrl-C counts, whichever of the two points is the better one.
        result = replace(best, iterations=result.iterations + other.iterations, interrupted=other.interrupted)
    solution = _unscaled(nlp, result)
    given_up = result.interrupted or result.solver_status == ABOVE
    # Where the method went far out the objective may have no lower bound, which short steps would not show.
    went_far = not np.abs(result.x).max(initial=0.0) <= FAR
    goes_on = not (given_up or went_far) and result.iterations < most
    if nlp.residual(solution) > program.tolerance and goes_on and nlp.residual(w) <= ALMOST:
        other = by_proximal_points(nlp, w, most - result.iterations, program.tolerance, deadline, **bounds)
        better = min((other, result), key=lambda one: _promise(program, one))
        result = replace(better, iterations=result.iterations + other.iterations, interrupted=other.interrupted)
        solution, given_up = _unscaled(nlp, result), other.interrupted
    # The limit of iterations is one of all work: what it ended is not brought back to its rows.
    if program.tolerance < nlp.residual(solution) <= VERY_NEAR and goes_on and not given_up:
        near = nearest_feasible(nlp, solution, min(MOST_PROJECTIONS, most), deadline, **bounds)
        better = min((result, near), key=lambda one: nlp.residual(_unscaled(nlp, one)))
        spent = result.iterations + near.iterations
        result = replace(result, x=better.x, iterations=spent, interrupted=near.interrupted)
        solution = _unscaled(nlp, result)
    if program.ocp.free_time is None:
        # The certificate has the given horizon: what the row for it leaves is taken from the lengths in proportion.
        at, total = program.at_lengths, float(solution[program.at_lengths].sum())
        horizon = float(program.ocp.horizon)
        solution[at] *= horizon / total if abs(total - horizon) <= program.tolerance * horizon else 1.0
    return PhasePoint.of(program, solution, result)


def nearest_feasible(
    nlp: BlockProgram, w: Array, most: int = MOST_PROJECTIONS, deadline: float = np.inf, **bounds: Any
) -> NLPResult:
    """Return the point that satisfies the rows of a program and is nearest to another one, relative to its scales.

    A method that creeps along curved rows ends beside them: the point there may be a motion all the same.
    """
    method = InteriorPoint(_kept_near(nlp, w, 1.0, 0.0), {**SETTINGS, **NEAR, "max_iter": most})
    return method.solve(w / nlp.scale, np.empty(0), deadline=deadline, **bounds)


def _kept_near(nlp: BlockProgram, w: Array, weight: float, cost: float = 1.0) -> BlockProgram:
    """Return the program of cost f + weight / 2 |x - w|^2, relative to the scales."""
    x, before, size = (ca.SX.sym(name) for name in ("x", "before", "size"))
    kernel = Kernel(ca.vertcat(x, before, size), ca.SX(0, 1), 0.5 * ((x - before) / size) ** 2)
    index = np.arange(w.size)[:, None]
    at = LinearMap.of((index,), (None, w[:, None]), (None, nlp.scale[:, None]))
    near = KernelBlock(name="near", kernel=kernel, at=at, weights=np.full(w.size, weight))
    rows = [replace(block, weights=cost * block.cost_weights()) for block in nlp.blocks]
    return BlockProgram([*rows, near], nlp.lbw, nlp.ubw, nlp.scale, w)


def by_proximal_points(
    nlp: BlockProgram, w: Array, most: int, tolerance: float, deadline: float, **bounds: Any
) -> NLPResult:
    """Return a feasible point of low objective near a start that nearly satisfies all rows.

    A good start does not keep an interior-point method from long steps, after which curved rows do not let it return.
    Here the nearest feasible point comes first, and steps keep near the point before: the proximal-point method
    (Rockafellar 1976), whose weight falls after a step and grows where a step fails.
    """
    nearest = _kept_near(nlp, w, 1.0, 0.0)
    method = InteriorPoint(nearest, {**SETTINGS, **ROBUST, **FROM_AFAR, "max_iter": min(most, MOST_FROM_AFAR)})
    best = method.solve(w / nlp.scale, np.empty(0), deadline=deadline, **bounds)
    # Its multipliers are those of the distance: nothing is known of those of the objective.
    best = replace(best, lam_x=np.zeros_like(best.lam_x), lam_g=np.zeros_like(best.lam_g))
    point = _unscaled(nlp, best)
    spent, weight = best.iterations, 1.0
    if best.interrupted or not nlp.residual(point) <= tolerance:
        return best
    best = replace(best, solver_status=FEASIBLE_POINT)
    value = nlp.evaluate(point)[0]
    while spent < most and weight < MOST_WEIGHT and not work.exhausted():
        near = _kept_near(nlp, point, weight / nlp.cost_scale)
        method = InteriorPoint(near, {**SETTINGS, **PROXIMAL, "max_iter": min(most - spent, MOST_PER_STEP)})
        result = method.solve(point / nlp.scale, np.empty(0), deadline=deadline, **bounds)
        spent += result.iterations
        if result.interrupted or time.monotonic() > deadline:
            return replace(best, iterations=spent, interrupted=result.interrupted)
        reached = _unscaled(nlp, result)
        lower = nlp.evaluate(reached)[0]
        if not (nlp.residual(reached) <= tolerance and lower <= value):
            weight *= HEAVIER
            continue
        ended = weight <= 1.0 and value - lower <= GAINED * abs(value)
        # It is an optimum near the point before only. Multipliers change with the scales of rows and objective.
        cost = nlp.cost_scale / near.cost_scale
        best = replace(
            result,
            solver_status=FEASIBLE_POINT,
            lam_x=cost * result.lam_x,
            lam_g=cost * result.lam_g * near.row_scale / nlp.row_scale,
        )
        point, value, weight = reached, lower, weight / LIGHTER
        if ended:
            break
    return replace(best, iterations=spent)


def _unscaled(nlp: BlockProgram, result: NLPResult) -> Array:
    """Return the unknowns of a result in the user's units, within their bounds."""
    # Bounds hold up to rounding of their scales; lengths and forces have to be nonnegative exactly.
    return np.asarray(np.clip(result.x * nlp.scale, nlp.lbw, nlp.ubw))


def _promise(program: PhaseNLP, result: NLPResult) -> tuple[float, bool, float]:
    """Return what ranks two results of a program: its violation, the word of the solver, its objective."""
    w = _unscaled(program.nlp, result)
    residual = program.nlp.residual(w)
    return (0.0 if residual <= program.tolerance else residual, not result.converged, program.nlp.evaluate(w)[0])


def has_descent(nlp: BlockProgram, w: Array) -> bool:
    """Return True if a small step within all linearised rows and bounds lowers the objective.

    The largest decrease of the linearised objective is a linear program (Fletcher and Sainz de la Maza 1989), which
    needs neither multipliers nor independent rows.
    """
    from scipy.optimize import linprog  # not paid for by an import of the library

    x = w / nlp.scale
    (gradient, _), values, matrix = nlp.first(x), nlp.values(x)[1], nlp.jacobian(x)
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
    """Return the note about a program that the solver left at a feasible point."""
    return f"the solver ended by {word}"


def status_of(point: PhasePoint, tolerance: float) -> tuple[Status, str]:
    """Return status and message of an iterate, from its residuals; the solver's word explains what is not feasible."""
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
    if word == ABOVE:
        return Status.NOT_AN_OPTIMUM, "the objective stays above that of a better motion"
    return Status.LOCALLY_INFEASIBLE, f"this sequence misses {point.worst} by {point.violation:.3g}"


__all__ = ["NOT_FINITE", "NLPResult", "ended_by", "has_descent", "optimise", "status_of"]
