"""Active-set strategy: a homotopy finds a branch; the strategy switches branches until no branch descends.

1. Homotopy with active-set finish: relaxed NLPs show which side of every group is zero, and the NLP on this branch is
   solved exactly (`branch`).
2. The LPEC at this point (`lpec`) either certifies it as B-stationary or returns a branch along which the objective
   descends to first order.
3. Solve the NLP on that branch; accept it if the objective decreases, and go to 2.

This is the active-set part of MPECopt (Kirches, Larson, Leyffer, Manns 2022; Nurkanovic, Leyffer). Every accepted
point is feasible for the unrelaxed problem, so that the method may be stopped at any time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field

from nosnoc_py.mpcc.branch import complete
from nosnoc_py.mpcc.homotopy import Homotopy, HomotopyState
from nosnoc_py.mpcc.lpec import LPECResult
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.strategy import SolverState, Strategy, certificate_of, common
from nosnoc_py.status import LIMITS, Status

# A branch is accepted if it lowers the objective by more than this fraction; smaller changes are within the tolerances
# of the NLPs and could repeat for ever.
LEAST_DECREASE = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ActiveSetState(SolverState):
    """State of the active-set strategy.

    Attributes
    ----------
    homotopy : HomotopyState
        State of the first phase; the second phase begins when it has a status.
    switches : int
        Number of branch switches so far.
    """

    homotopy: HomotopyState
    switches: int = 0


# Maximum number of branch switches; each costs an LPEC and an NLP, and more than a few are rare.
MOST_SWITCHES = 10


class ActiveSet(Strategy):
    """Homotopy with active-set finish, then branch switching along LPEC directions until B-stationary.

    Parameters
    ----------
    homotopy : Homotopy
        Strategy that finds the first branch.
    radius : float
        Radius of the trust region of the LPEC, in scaled variables.
    complementarity_tolerance, infeasibility_tolerance : float
        Tolerances on the residuals of the unrelaxed problem; success is decided on them.
    time_limit : float, optional
        Limit for all phases together [s].

    Raises
    ------
    OptionError
        For values that are not positive.

    Examples
    --------
    Both sides of the pair want to be positive, and the branch with the lower objective is found:

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> w = ca.SX.sym("w", 2)
    >>> mpcc = ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=(w[0] - 2) ** 2 + (w[1] - 1) ** 2, w0=1.0)
    >>> result = ns.solve_mpcc(mpcc, ns.ActiveSet())
    >>> result.w.round(6) + 0.0, result.stationarity.value
    (array([2., 0.]), 'S')
    """

    # The finish may be tried early, at 1e-2: a wrong branch is corrected by the LPEC.
    homotopy: Homotopy = Field(default_factory=lambda: Homotopy(steering="l_inf", finish_threshold=1e-2))
    radius: float = Field(default=1e-3, gt=0)

    def begin(self, fields: Mapping[str, Any], sigma: float | None) -> ActiveSetState:
        """Return the state before the first NLP."""
        return ActiveSetState(**fields, homotopy=self._homotopy.begin(fields, sigma))

    def at_branch(self, state: ActiveSetState) -> ActiveSetState:
        """Return the state with the active-set finish due: the iterate already shows its branch."""
        ways = self._homotopy.finisher(state.solvers).ways(0.0)
        return replace(state, homotopy=replace(state.homotopy, finish_due=ways))

    def advance(self, state: ActiveSetState, deadline: float) -> ActiveSetState:
        """Take one step of the homotopy; after its end solve one LPEC and, if it descends, the NLP of that branch."""
        return (self._relax if state.homotopy.status is None else self._improve)(state, deadline)

    def finalise(self, state: ActiveSetState, status: Status) -> ActiveSetState:
        """Return the state with its final status; a solved point stays solved if only its certificate timed out."""
        solved = status in LIMITS and state.homotopy.status is Status.SOLVED
        return replace(state, status=Status.SOLVED if solved else status)

    def warm(self, mpcc: MPCC) -> tuple[ActiveSet, float]:
        """Return this strategy with a homotopy that starts at a small sigma and is not repeated if it fails."""
        homotopy, sigma = self.homotopy.warm(mpcc)
        return self.replace(homotopy=homotopy), sigma

    @property
    def _homotopy(self) -> Homotopy:
        return self.homotopy.replace(**self.tolerances)

    def _relax(self, state: ActiveSetState, deadline: float) -> ActiveSetState:
        homotopy = self._homotopy
        inner = homotopy.step(state.homotopy, deadline=deadline)
        inner = replace(inner, status=homotopy.terminate(inner))
        # A solved homotopy only ends the first phase: None lets the loop continue with the LPEC.
        status = None if inner.status is Status.SOLVED else inner.status
        return replace(state, homotopy=inner, status=status, **common(inner, "status", "certificate"))

    def _improve(self, state: ActiveSetState, deadline: float) -> ActiveSetState:
        """Certify the point; if a branch descends, switch to it."""
        started = time.monotonic()
        left = None if np.isinf(deadline) else max(0.0, deadline - started)
        certificate = certificate_of(state, radius=self.radius, time_limit=left)
        # Success is decided on residuals, which are small since the first phase, whatever the certificate says.
        done = replace(state, certificate=certificate, status=Status.SOLVED)
        log: dict[str, Any] = {"seconds": time.monotonic() - started, "word": "optimal"}
        done = done.with_record(f"certificate {certificate.stationarity.value}", **log)
        if certificate.b_stationary is not False or certificate.lpec is None or state.switches >= MOST_SWITCHES:
            return done
        return self._switch(state, done, certificate.lpec, deadline)

    def _switch(self, state: ActiveSetState, done: ActiveSetState, lpec: LPECResult, deadline: float) -> ActiveSetState:
        """Solve the branch that descends; if its objective is not lower, the certified point is the result."""
        started = time.monotonic()
        solvers = state.solvers
        mpcc = solvers.mpcc
        _, zero_G, zero_H, _ = np.split(lpec.zero, np.cumsum([mpcc.g.numel(), mpcc.G.numel(), mpcc.H.numel()]))
        branch = complete(mpcc, zero_G, zero_H)
        # From the present point, at which the rows that vanish on the new branch are at most of the LPEC's radius.
        outcome = self.homotopy.finisher(solvers)(state.w, state.p, deadline, "hold", branch)
        new = replace(state.moved_to(outcome), switches=state.switches + 1, records=done.records)
        log: dict[str, Any] = {"iterations": outcome.iterations, "word": outcome.solver_status}
        new = new.with_record("branch", seconds=time.monotonic() - started, **log)
        gain = state.values.objective - new.values.objective
        if (
            outcome.converged
            and self.residuals_small(new)
            and gain > LEAST_DECREASE * max(1.0, abs(state.values.objective))
        ):
            return new
        # The refused branch stays in the log, because its iterations were spent.
        return replace(done, records=new.records, status=Status.INTERRUPTED if outcome.interrupted else done.status)
