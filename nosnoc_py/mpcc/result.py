"""What `solve_mpcc` returns: numbers, names, and the way they were found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nosnoc_py.errors import SolverError
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.stationarity import Certificate
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
    certificate : Certificate, optional
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
    certificate: Certificate | None
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
