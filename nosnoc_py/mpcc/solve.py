"""Solve an MPCC with any strategy; the result has residuals, multipliers and a certificate of stationarity.

`solve_mpcc` only joins parts: the strategies are in `auto`, `active_set` and `homotopy`, their common loop and the
proofs of infeasibility and unboundedness in `strategy`. Success is decided on the residuals of the unrelaxed problem
(`residuals`); the certificate (`stationarity`) is evidence beside it and may be missing.
"""

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
    """Result of `solve_mpcc`: a point of an MPCC with its residuals and its kind of stationarity.

    Attributes
    ----------
    mpcc : MPCC
    w, p : ndarray (n_w,), (n_p,)
        Point and parameters, in the user's units.
    status : Status
        Success is decided on the residuals of the unrelaxed problem alone.
    message : str
        Reason for a status other than success: a proof, or the largest residuals.
    objective, penalty : float
        The penalty is not part of the objective.
    complementarity, complementarity_min, infeasibility : float
        max |G H| / max(1, |G|, |H|), max |min(G, H)| over all single pairs, and the largest violation of a bound, a
        constraint or a nonnegativity; of the unrelaxed problem, in the user's units.
    certificate : StationarityCertificate, optional
        Multipliers, biactive set and kind of stationary point; None if no feasible point was found.
    worst : tuple of Residual
        The largest residuals, by name.
    biactive : tuple of str
        Names of the pairs with both sides zero.
    biactive_roles : tuple of PairRole
        Roles of these pairs, in the same order.
    log : tuple of StepRecord
        One record for each NLP and LPEC.
    wall_seconds : float
    solver : str
        Representation of the strategy.

    Examples
    --------
    Minimise w_0 - w_1 over two half axes: the objective has no lower bound on one of them, which is proved.

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> w = ca.SX.sym("w", 2)
    >>> result = ns.solve_mpcc(ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=w[0] - w[1], w0=1.0))
    >>> result.success, result.status
    (False, <Status.UNBOUNDED: 'unbounded'>)
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
        """True if the status is `SOLVED`."""
        return self.status.success

    @property
    def stationarity(self) -> Stationarity:
        """Strongest kind of stationarity that is certified."""
        return Stationarity.UNKNOWN if self.certificate is None else self.certificate.stationarity

    @property
    def iterations(self) -> int:
        """Number of iterations over all NLPs."""
        return sum(record.iterations for record in self.log)

    def raise_for_status(self) -> None:
        """Raise `SolverError` with a remedy unless the status is success.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> w = ca.SX.sym("w", 2)
        >>> result = ns.solve_mpcc(ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=w[0] - w[1], w0=1.0))
        >>> try:
        ...     result.raise_for_status()
        ... except ns.SolverError as error:
        ...     print(str(error).split(" ")[0])
        unbounded
        """
        if not self.success:
            reason = f" ({self.message})" if self.message else ""
            raise SolverError(f"{self.status}{reason}: {self.status.remedy}")

    def __repr__(self) -> str:
        reason = f"  {self.message}\n" if self.message else ""
        return (
            f"MPCCResult: {self.status}, stationarity {self.stationarity.value}\n{reason}"
            f"  objective {self.objective:.8g}, complementarity {self.complementarity:.1e} "
            f"(min {self.complementarity_min:.1e}), infeasibility {self.infeasibility:.1e}\n"
            f"  {self.iterations} iterations in {len(self.log)} steps, {self.wall_seconds:.3f} s"
        )

    def _repr_html_(self) -> str:
        return tree(repr(self))


# Sides below this are zero if there is no certificate, in the user's units; the default of `certify`.
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
        See `MPCC.of_pairs`.
    solver : Auto, ActiveSet or Homotopy, optional
        Default `Auto()`.
    w0, p : (n_w,), (n_p,), optional
        Start and parameters; by default those of the MPCC.
    callback : callable, optional
        Called with the state after every step; returning `ns.Stop` ends the run.
    time_limit : float, optional
        [s].

    Returns
    -------
    MPCCResult
        Also if the solver fails: `status` and `message` give the reason.

    Raises
    ------
    OptionError, TranscriptionError
        For arguments of a wrong type or length, or containing NaN.

    Examples
    --------
    The point of the two half axes w_0 w_1 = 0, w >= 0 that is nearest to (2, 1):

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> w = ca.SX.sym("w", 2)
    >>> mpcc = ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=(w[0] - 2) ** 2 + (w[1] - 1) ** 2, w0=1.0)
    >>> result = ns.solve_mpcc(mpcc)
    >>> result.stationarity.value, round(result.objective, 6)
    ('S', 1.0)
    """
    check_type(mpcc, MPCC, "mpcc")
    solver = Auto() if solver is None else solver
    check_type(solver, Strategy, "solver")
    # The clock includes the symbolic derivatives, which often take longer than the solve.
    started = time.monotonic()
    state = solver.run(mpcc, w0, p, callback=callback, time_limit=time_limit)
    return result_of(state, solver=repr(solver), started=started)


def result_of(state: SolverState, *, solver: str, started: float) -> MPCCResult:
    """Return the result of a final state; a feasible point without a certificate gets one."""
    # `run` always ends with a status; the assertion is for the type checker.
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
    """Return the fields that every result takes from a state: point, residuals, log and biactive pairs.

    The biactive pairs are those of the certificate; without a certificate they are read from the values.
    """
    mpcc, values = state.solvers.mpcc, state.values
    known = certificate.biactive if certificate is not None else ()
    # A certificate of an infeasible point lists no groups, although the values may show some.
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
