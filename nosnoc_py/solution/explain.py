"""Explanation of a result in words: the verdict, the worst residuals, the first failure, what to try.

The log of a solver has one record per relaxed problem. Three patterns in it have a known remedy: (1) the first problem
that failed, since later failures follow from it; (2) a stall: sigma falls by orders of magnitude while the residual
keeps its size; (3) a locally infeasible end in which no contact ever closed. Every finding is a pair of a sentence and
a remedy; remedies of several findings are listed once.

Invariant: the text is made from the result alone, so it can be had again from a saved solution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import OptionError
from nosnoc_py.roles import Role
from nosnoc_py.solution.records import PairRole, StepRecord
from nosnoc_py.status import UNITS, Stationarity, Status

if TYPE_CHECKING:
    from nosnoc_py.mpcc.solve import MPCCResult
    from nosnoc_py.solution.solution import Solution

    Result: TypeAlias = Solution | MPCCResult

# Words of IPOPT, of Newton's method and of the linear programs for a problem that was solved.
CONVERGED = ("Solve_Succeeded", "Solved_To_Acceptable_Level", "newton", "optimal")
# A stall: while sigma falls by a factor of 100 or more, the residual keeps more than half of its size. Residuals up to
# SMALL, about the solver's tolerance, may stand still.
STALL_SIGMA, STALL_RESIDUAL, SMALL = 1e-2, 0.5, 1e-7
# Largest number of entries of a list that the text names.
SHOWN = 3
# Series of contact forces, and the size [N], [N s] below which they are the residual of a solver.
PUSHES, NOTHING = (Role.NORMAL_FORCE, Role.NORMAL_IMPULSE), 1e-6
CLOSING = ("impact", "contact")

SIGMA = "use a larger sigma_0 from a cold start, a smaller one (1e-3) with a guess whose contacts touch"
# Meaning of a biactive pair of a contact, by its role.
MEANINGS: dict[Enum | None, str] = {
    Role.CONTACT: "touches without a force",
    Role.IMPACT: "touches without an impulse",
    Role.REBOUND_PARTS: "has just the velocity of its law of restitution, as at an impact",
}

# Status of the solver -> (its meaning, what to try).
WORDS: dict[str, tuple[str, str]] = {
    "Infeasible_Problem_Detected": (
        "IPOPT ended where the violation of the constraints is locally smallest but not zero",
        "check bounds, horizon and initial state for contradictions, start from another guess, take more "
        f"control_stages or finite_elements, and {SIGMA}; residuals are absolute: {UNITS}",
    ),
    "Restoration_Failed": (
        "IPOPT's restoration phase found no point that is feasible enough to go on from",
        f"{SIGMA}; use a slower kappa, start from another guess, and scale constraints that differ by orders",
    ),
    "Maximum_Iterations_Exceeded": (
        "IPOPT used up its iterations",
        "raise max_iterations, start from a better guess, or use a slower kappa",
    ),
    "Invalid_Number_Detected": (
        "a function or a derivative returned NaN or infinity",
        "look for divisions by zero and roots at zero in the model, and add bounds that keep the iterates away",
    ),
    "Error_In_Step_Computation": (
        "the linear system of a step could not be solved: the constraints are degenerate there",
        "remove redundant constraints, use an inequality relaxation, or stop at a larger sigma_min and let the "
        "active-set finish do the rest",
    ),
    "Search_Direction_Becomes_Too_Small": (
        "steps became smaller than rounding errors: the point is as good as this NLP's numbers allow",
        "loosen IPOPT's tolerances, scale the variables by nominal values, or stop at a larger sigma_min",
    ),
    "Diverging_Iterates": (
        "variables grew without bound",
        "give every variable finite bounds and look for a direction in which the objective is unbounded",
    ),
    "Not_Enough_Degrees_Of_Freedom": (
        "there are more equations than free variables",
        "use an inequality relaxation, aggregate the complementarities, remove constraints or add controls",
    ),
    "User_Requested_Stop": (
        "the time limit or an interrupt stopped IPOPT",
        "raise time_limit, or continue from this point as guess",
    ),
    "NonIpopt_Exception_Thrown": ("the evaluation was interrupted", "continue from this point as guess"),
    "Maximum_CpuTime_Exceeded": ("IPOPT reached its own limit of CPU time", "raise IPOPT's max_cpu_time"),
    "Maximum_WallTime_Exceeded": ("IPOPT reached its own limit of time", "raise IPOPT's max_wall_time"),
    "Feasible_Point_Found": (
        "the point is feasible, yet not optimal to the tolerance",
        "continue from this point as guess, or raise max_iterations",
    ),
    "Invalid_Problem_Definition": (
        "IPOPT refused the NLP as contradictory",
        "look for a lower bound above an upper one and for more equations than variables",
    ),
    "Unbounded_Multipliers": (
        "IPOPT converged, but with multipliers that grow without limit, in a cusp of the relaxed set where the "
        "objective still falls",
        "use finish='active_set', another relaxation (scholtes), or another guess",
    ),
    "Invalid_Option": ("IPOPT refused an option", "check the names and values of the IPOPT options"),
    "Insufficient_Memory": ("the factorisation ran out of memory", "use fewer elements or a coarser aggregation"),
}

UNPROVED = "not B-stationary: a branch through the biactive pairs descends to first order, or the LPEC was cut off"
CERTIFIED: dict[Stationarity, str] = {
    Stationarity.S: "S-stationary: multipliers exclude first-order descent",
    Stationarity.B: "B-stationary: the linearised problem (LPEC) has no descent direction",
    Stationarity.M: f"M-stationary, {UNPROVED}",
    Stationarity.C: f"C-stationary, {UNPROVED}",
    Stationarity.W: f"W-stationary (on one branch only), {UNPROVED}",
    Stationarity.UNKNOWN: "stationarity not certified",
}


# Attributes of every result; `message`, `series`, `events` and the biactive pairs are read where they exist.
NEEDED = (
    *("status", "objective", "complementarity", "complementarity_min", "infeasibility", "stationarity", "worst", "log"),
)


@named_arguments
def explain(result: Result) -> str:
    """Explain a result in a few lines: its residuals, its stationarity and, unless it is solved, remedies.

    Parameters
    ----------
    result
        Result of `ns.solve` or `ns.solve_mpcc`.

    Returns
    -------
    str
        Some lines of text.

    Raises
    ------
    OptionError
        For anything that lacks residuals, a status or a log, e.g. a simulated trajectory.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
    >>> print(ns.explain(ns.solve(ocp, ns.FESDJ(control_stages=2))).split(":")[0])
    Solved
    """
    _check(result)
    lines = [*_verdict(result), *_broken(result), *_worst(result), *_biactive(result)]
    findings = _first_failure(result.log)
    # The remedy of the status would repeat that of the first failure.
    repeats = bool(findings) and any(f" {word}: " in findings[0][0] for word in SAME.get(result.status, ()))
    if not result.status.success:
        findings += [*_stalls(result.log, result.infeasibility), *_untouched(result)]
    lines += [sentence for sentence, _ in findings]
    if not result.status.success:
        remedies = list(dict.fromkeys(f"  {remedy[0].upper()}{remedy[1:]}." for _, remedy in findings if remedy))
        general = [] if repeats else [f"  {'In general: ' if remedies else ''}{result.status.remedy}"]
        lines += ["What to try:", *remedies, *general]
    return "\n".join(lines)


Finding = tuple[str, str]  # a sentence, and what to try

# Statuses whose general remedy repeats that of the first failure.
SAME = {
    Status.LOCALLY_INFEASIBLE: ("Infeasible_Problem_Detected", "Restoration_Failed"),
    Status.ITERATION_LIMIT: ("Maximum_Iterations_Exceeded",),
}


def _check(result: Result) -> None:
    missing = [name for name in NEEDED if not hasattr(result, name)]
    if missing:
        raise OptionError(
            f"explain: expected the result of ns.solve or ns.solve_mpcc, given {type(result).__name__} without "
            f"{', '.join(missing)}."
        )


def _verdict(result: Result) -> list[str]:
    verdict = "Solved" if result.status.success else f"Not solved ({result.status})"
    rests = CERTIFIED[result.stationarity]
    if result.status.success and result.stationarity is Stationarity.UNKNOWN:
        rests += ", judged by the residuals alone"
    return [
        f"{verdict}: objective {result.objective:.8g}, {rests}.",
        f"Residuals of the unrelaxed problem: complementarity {result.complementarity:.1e} "
        f"(min form {result.complementarity_min:.1e}), infeasibility {result.infeasibility:.1e}.",
    ]


def _broken(result: Result) -> list[str]:
    """Return the message about a broken law that residuals do not show, if there is one."""
    message = getattr(result, "message", "")
    scaled = result.status is Status.BADLY_SCALED and message
    if scaled:
        return [f"In its own scale the motion breaks a law: {message}."]
    # An unsolved iterate may be a usable motion all the same: the message describes its simulation.
    return [f"Message: {message}."] if message and not result.status.success else []


def _worst(result: Result) -> list[str]:
    return ["Worst residuals:", *(f"  {residual}" for residual in result.worst[:SHOWN])] if result.worst else []


def _biactive(result: Result) -> list[str]:
    # None: this kind of result has no pairs; empty: it has, and none is biactive.
    names: Sequence[str] | None = getattr(result, "biactive", None)
    if names is None:
        return []
    if not names:
        return ["No pair is biactive."]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    count = "1 pair is" if len(names) == 1 else f"{len(names)} pairs are"
    roles: Sequence[PairRole] = getattr(result, "biactive_roles", ())
    meanings = dict.fromkeys(f"contact {pair.of} {MEANINGS[pair.role]}" for pair in roles if pair.role in MEANINGS)
    examples = f"; here {', '.join(list(meanings)[:SHOWN])}" if meanings else ""
    return [
        f"{count} biactive (both sides zero): {', '.join(names[:SHOWN])}{more}.",
        f"  Either side of such a pair may be the one that stays zero{examples}.",
    ]


def _untouched(result: Result) -> list[Finding]:
    """Report a locally infeasible end without any contact: often no guess had a contact either."""
    series: Mapping[str, Any] = getattr(result, "series", {})
    pushes = [abs(value.values).max() for value in series.values() if value.role in PUSHES and len(value)]
    closed = any(event.kind in CLOSING for event in getattr(result, "events", ()))
    if result.status is not Status.LOCALLY_INFEASIBLE or not pushes or closed or max(pushes) > NOTHING:
        return []
    return [
        (
            "No contact closes in the last iterate, and no contact force is positive.",
            "if the task needs contact, give a guess that touches, guess={'x': ..., 'u': ...}, such as "
            "guess=ns.solve(ocp)",
        )
    ]


def _first_failure(log: Sequence[StepRecord]) -> list[Finding]:
    """Report the first relaxed problem that failed, else the first failed finishing step (finish, branch, LPEC)."""
    failed = [record for record in log if record.solver_status and record.solver_status not in CONVERGED]
    if not failed:
        return []
    # Finishing steps (sigma 0) may fail on the way to a solution; a failed relaxed problem is earlier in cause.
    relaxed = [record for record in failed if record.sigma > 0]
    first = (relaxed or failed)[0]
    at = f" at sigma {first.sigma:.1e}" if first.sigma > 0 else ""
    reason, remedy = WORDS.get(first.solver_status, ("a status without an explanation here", ""))
    return [
        (
            f"First failure: step {first.step} ({first.label}{at}), {first.solver_status}: {reason}; "
            f"{len(failed)} of {len(log)} steps failed.",
            remedy,
        )
    ]


def _stalls(log: Sequence[StepRecord], infeasibility: float) -> list[Finding]:
    """Describe the last run of the homotopy in which residuals did not decrease with sigma."""
    # A problem that was interrupted shows no residual of sigma.
    complete = [record for record in log if record.solver_status != "User_Requested_Stop"]
    # The last run decides: earlier ones were given up.
    for run in reversed(list(_runs(complete))):
        if (tail := _tail(run, lambda record: record.complementarity)) is not None:
            return [_stalled_complementarity(tail)]
        stuck = infeasibility > SMALL
        if stuck and (tail := _tail(run, lambda record: record.infeasibility)) is not None:
            return [
                (
                    f"Infeasibility stalled: {_course(tail, 'infeasibility')}: the constraints themselves cannot be "
                    "met from here, whatever the relaxation.",
                    "look at the worst residuals above, check bounds and horizon, and start from another guess",
                )
            ]
    return []


def _stalled_complementarity(tail: Sequence[StepRecord]) -> Finding:
    course = _course(tail, "complementarity")
    # Converged problems with a lasting violation: the penalty balances the objective there.
    if all(record.solver_status in CONVERGED for record in tail):
        return (
            f"Complementarity stalled: {course} although these problems converged: a local minimum of the elastic "
            "penalty.",
            "use steering='direct', a larger sigma_0, or start from another guess",
        )
    return (
        f"Complementarity stalled: {course}, and these problems did not all converge.",
        "use a slower kappa, a larger sigma_0, elastic steering, or start from another guess",
    )


def _runs(log: Sequence[StepRecord]) -> Iterator[list[StepRecord]]:
    """Yield runs of relaxed problems: one label, falling sigma; a rise of sigma or another label begins a new run."""
    relaxed = [record for record in log if record.sigma > 0]
    run = relaxed[:1]
    for before, after in pairwise(relaxed):
        if after.sigma >= before.sigma or after.label != before.label:
            yield run
            run = []
        run.append(after)
    if run:
        yield run


def _tail(run: Sequence[StepRecord], residual: Callable[[StepRecord], float]) -> Sequence[StepRecord] | None:
    """Return the longest end of a run over which the residual stalls, if there is one."""
    last = run[-1]
    if residual(last) <= SMALL:
        return None
    for start, first in enumerate(run):
        # Later starts have seen even less of a decrease of sigma.
        if last.sigma > STALL_SIGMA * first.sigma * (1 + 1e-9):
            return None
        # A residual that grew is no stall but a divergence.
        if STALL_RESIDUAL * residual(first) < residual(last) <= 2 * residual(first):
            return run[start:]
    return None


def _course(tail: Sequence[StepRecord], name: str) -> str:
    first, last = tail[0], tail[-1]
    return (
        f"{getattr(first, name):.1e} -> {getattr(last, name):.1e} while sigma fell {first.sigma:.1e} -> "
        f"{last.sigma:.1e} ({first.label}, steps {first.step} to {last.step})"
    )
