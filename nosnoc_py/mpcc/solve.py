"""One call for every strategy: an MPCC in, a result with residuals, multipliers and certificate out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import SolverError, check_type
from nosnoc_py.markup import tree
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.stationarity import StationarityCertificate, biactive_groups
from nosnoc_py.mpcc.strategy import Callback, SolverState, Strategy, final_certificate
from nosnoc_py.solution.records import PairRole, Residual, StepRecord
from nosnoc_py.status import Stationarity, Status


@dataclass(frozen=True, eq=False, kw_only=True)
class MPCCResult:
    """A point of an MPCC, its residuals, and what is known about it.

    Attributes
    ----------
    w, p : ndarray (n_w,), (n_p,)
    status : Status
        Success only on the residuals of the unrelaxed problem.
    message : str
        What a status other than success rests on: a proof, or the largest residuals.
    objective, penalty : float
        The penalty is not part of the objective.
    complementarity, complementarity_min, infeasibility : float
        max |G H| / max(1, |G|, |H|), max |min(G, H)| over all single pairs, and the largest violation of a bound, a
        constraint or a nonnegativity; of the unrelaxed problem, in the user's units.
    certificate : StationarityCertificate, optional
        Multipliers, biactive set and kind of stationary point; None where nothing feasible was found.
    worst : tuple of Residual
        The largest residuals, by name.
    biactive : tuple of str
        Names of the pairs with both sides zero.
    biactive_roles : tuple of PairRole
        What these pairs are, in the same order.
    log : tuple of StepRecord
        One record for each NLP and LPEC.
    """

    mpcc: MPCC
    w: np.ndarray
    p: np.ndarray
    status: Status
    objective: float
    penalty: float
    complementarity: float
    complementarity_min: float
    infeasibility: float
    certificate: StationarityCertificate | None
    worst: tuple[Residual, ...]
    biactive: tuple[str, ...]
    log: tuple[StepRecord, ...]
    wall_seconds: float
    solver: str
    biactive_roles: tuple[PairRole, ...] = ()
    message: str = ""

    @property
    def success(self) -> bool:
        """The status is `SOLVED`."""
        return self.status.success

    @property
    def stationarity(self) -> Stationarity:
        """The strongest kind of stationarity that is certified."""
        return Stationarity.UNKNOWN if self.certificate is None else self.certificate.stationarity

    @property
    def iterations(self) -> int:
        """Iterations of IPOPT over all NLPs."""
        return sum(record.iterations for record in self.log)

    def raise_for_status(self) -> None:
        """Raise `SolverError` with a remedy unless the status is success."""
        if not self.success:
            said = f" ({self.message})" if self.message else ""
            raise SolverError(f"{self.status}{said}: {self.status.remedy}")

    def __repr__(self) -> str:
        said = f"  {self.message}\n" if self.message else ""
        return (
            f"MPCCResult: {self.status}, stationarity {self.stationarity.value}\n{said}"
            f"  objective {self.objective:.8g}, complementarity {self.complementarity:.1e} "
            f"(min {self.complementarity_min:.1e}), infeasibility {self.infeasibility:.1e}\n"
            f"  {self.iterations} iterations in {len(self.log)} steps, {self.wall_seconds:.3f} s"
        )

    def _repr_html_(self) -> str:
        return tree(repr(self))


# What counts as zero where no certificate says so, in the user's units.
BIACTIVE = 1e-8


@named_arguments
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


def numbers_of(state: SolverState, certificate: StationarityCertificate | None) -> dict[str, Any]:
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
