"""One call for every strategy: an MPCC in, a result with residuals, multipliers and certificate out."""

from __future__ import annotations

import time
from typing import Any

from nosnoc_py.errors import check_type
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.result import MPCCResult
from nosnoc_py.mpcc.stationarity import Certificate, biactive_groups
from nosnoc_py.mpcc.strategy import Callback, SolverState, Strategy, final_certificate
from nosnoc_py.solution.records import PairRole

# What counts as zero where no certificate says so, in the user's units.
BIACTIVE = 1e-8


def solve_mpcc(
    mpcc: MPCC,
    solver: Strategy | None = None,
    *,
    w0: Any = None,
    p: Any = None,
    callback: Callback | None = None,
    time_limit: float | None = None,
) -> MPCCResult:
    """Solve an MPCC.

    Parameters
    ----------
    mpcc : MPCC
        See `MPCC.of_pairs` and `nosnoc_py.mpcc.nosbench.load`.
    solver : Auto, ActiveSet or Homotopy, optional
        Default `Auto()`.
    w0, p : (n_w,), (n_p,), optional
        Start and parameters; by default those of the MPCC.
    callback : callable, optional
        Called with the state after every step; returns `ns.Stop` to end the work.
    time_limit : float, optional
        Seconds.

    Returns
    -------
    MPCCResult
        Also when the solver fails: `status` says why and what to try.

    Raises
    ------
    OptionError, TranscriptionError
        For arguments of a wrong type, length, or NaN.
    """
    check_type(mpcc, MPCC, "mpcc")
    solver = Auto() if solver is None else solver
    check_type(solver, Strategy, "solver")
    started = time.monotonic()
    state = solver.run(mpcc, w0, p, callback=callback, time_limit=time_limit)
    return result_of(state, solver=repr(solver), started=started)


def result_of(state: SolverState, *, solver: str, started: float) -> MPCCResult:
    """The result of a state that has a status; a feasible point without a certificate gets one."""
    assert state.status is not None
    certificate = final_certificate(state)
    return MPCCResult(
        mpcc=state.solvers.mpcc,
        p=state.p,
        status=state.status,
        certificate=certificate,
        wall_seconds=time.monotonic() - started,
        solver=solver,
        message=state.message,
        **numbers_of(state, certificate),
    )


def numbers_of(state: SolverState, certificate: Certificate | None) -> dict[str, Any]:
    """What every result takes from a state: its point, residuals, log, and the pairs with both sides zero.

    These are the groups of the certificate, or of the values where it has none.
    """
    mpcc, values = state.solvers.mpcc, state.values
    known = certificate.biactive if certificate is not None else ()
    biactive = [mpcc.groups[k] for k in known or biactive_groups(mpcc, values, BIACTIVE)]
    rows = [(int(group.left[0]), int(group.right[0])) for group in biactive]
    return {
        "w": state.w,
        "objective": values.objective,
        "penalty": values.penalty,
        "complementarity": state.complementarity,
        "complementarity_min": state.complementarity_min,
        "infeasibility": state.infeasibility,
        "worst": state.solvers.evaluator.worst(values),
        "biactive": tuple(f"{mpcc.left.label(left)[0]} * {mpcc.right.named(right)}" for left, right in rows),
        "biactive_roles": tuple(PairRole(group.role, group.of) for group in biactive),
        "log": state.records,
    }
