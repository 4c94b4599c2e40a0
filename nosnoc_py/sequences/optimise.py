"""IPOPT on a multi-phase program, and the status of its result.

The status rests on residuals in the user's units, not on IPOPT's return value alone: a point is SOLVED if IPOPT
converged and no row is violated by more than the tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nosnoc_py.mpcc.ipopt import Ipopt
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


def optimise(
    program: PhaseNLP, w: Array, options: Mapping[str, Any], deadline: float, lower: Array | None = None
) -> PhasePoint:
    """Solve a program by IPOPT, and once more without regularisation if it gets stuck.

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
    nlp, iterations = program.nlp, 0
    bounds = {} if lower is None else {"lbx": lower / nlp.scale}
    for more in REGULARISED:
        ipopt = Ipopt(nlp, {**IPOPT, **more, **options})
        result = ipopt.solve(w / nlp.scale, np.empty(0), deadline=deadline, **bounds)
        iterations += result.iterations
        if result.solver_status not in STUCK:
            break
    # IPOPT relaxes bounds by a little; lengths and forces have to be nonnegative exactly.
    solution = np.clip(result.x * nlp.scale, nlp.lbw, nlp.ubw)
    return PhasePoint.of(program, solution, replace(result, iterations=iterations))


def status_of(point: PhasePoint, tolerance: float) -> tuple[Status, str]:
    """Return status and message of an iterate, from IPOPT's return value and from the residuals."""
    result = point.result
    assert result is not None
    word = result.solver_status
    if result.interrupted:
        return Status.INTERRUPTED, word
    if not np.isfinite([point.objective, point.violation]).all() or word == "Invalid_Number_Detected":
        return Status.NUMERICAL_ERROR, word
    # Both are needed: IPOPT measures scaled residuals, and an iterate that is feasible need not be optimal.
    if point.violation <= tolerance and result.converged:
        return Status.SOLVED, ""
    if word == "User_Requested_Stop":
        return Status.TIME_LIMIT, word
    if word == "Maximum_Iterations_Exceeded":
        return Status.ITERATION_LIMIT, word
    if point.violation > tolerance:
        return Status.LOCALLY_INFEASIBLE, f"this sequence misses {point.worst} by {point.violation:.3g}"
    return Status.NO_DESCENT, word
