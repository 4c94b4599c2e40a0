"""The active-set strategy: relax, fix the branch that shows, solve it, and switch branches until none descends.

A homotopy ends on a branch; there the LPEC either certifies the point as B-stationary or names a branch along which
the objective descends to first order. The method of MPECopt (Nurkanovic, Leyffer).
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
from nosnoc_py.status import Status

# A branch is worth a switch when it lowers the objective by more than this, relatively.
GAIN = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ActiveSetState(SolverState):
    """Where the active-set strategy stands.

    Attributes
    ----------
    homotopy : HomotopyState
        The first phase; the second begins when it has a status.
    switches : int
        Branches that were left so far.
    """

    homotopy: HomotopyState
    switches: int = 0


# Branches that are left at most.
MOST_SWITCHES = 10


class ActiveSet(Strategy):
    """A homotopy with active-set finish, then branch switching along LPEC directions until B-stationary.

    Parameters
    ----------
    homotopy : Homotopy
        How the first branch is found.
    radius : float
        Of the LPEC's trust region, in scaled variables.
    complementarity_tolerance, infeasibility_tolerance : float
        Success is declared on these residuals of the unrelaxed problem.
    time_limit : float, optional
        Seconds for everything.
    """

    homotopy: Homotopy = Field(default_factory=lambda: Homotopy(steering="l_inf", finish_threshold=1e-2))
    radius: float = Field(default=1e-3, gt=0)

    def begin(self, fields: Mapping[str, Any], sigma: float | None) -> ActiveSetState:
        """The state before the first NLP."""
        return ActiveSetState(**fields, homotopy=self._homotopy.begin(fields, sigma))

    def at_branch(self, state: ActiveSetState) -> ActiveSetState:
        """A state whose iterate shows its branch: the finish is due, before any homotopy."""
        ways = self._homotopy.finisher(state.solvers).ways(0.0)
        return replace(state, homotopy=replace(state.homotopy, finish_due=ways))

    def advance(self, state: ActiveSetState, deadline: float) -> ActiveSetState:
        """One step of the homotopy; when it has ended one LPEC and, if that descends, the NLP of the next branch."""
        return (self._relax if state.homotopy.status is None else self._improve)(state, deadline)

    def settle(self, state: ActiveSetState, status: Status) -> ActiveSetState:
        """The state with its status; a solved point stays solved when only the time for its certificate was short."""
        solved = status is Status.TIME_LIMIT and state.homotopy.status is Status.SOLVED
        return replace(state, status=Status.SOLVED if solved else status)

    def warm(self, mpcc: MPCC) -> tuple[ActiveSet, float]:
        """This strategy, its homotopy from a small sigma; a start from which that fails is not worth a repetition."""
        homotopy, sigma = self.homotopy.warm(mpcc)
        return self.replace(homotopy=homotopy), sigma

    @property
    def _homotopy(self) -> Homotopy:
        return self.homotopy.replace(**self.tolerances)

    def _relax(self, state: ActiveSetState, deadline: float) -> ActiveSetState:
        homotopy = self._homotopy
        inner = homotopy.step(state.homotopy, deadline=deadline)
        inner = replace(inner, status=homotopy.terminate(inner))
        status = None if inner.status is Status.SOLVED else inner.status
        return replace(state, homotopy=inner, status=status, **common(inner, "status", "certificate"))

    def _improve(self, state: ActiveSetState, deadline: float) -> ActiveSetState:
        """Certify the point; where a branch descends, follow it."""
        started = time.monotonic()
        left = None if np.isinf(deadline) else max(0.0, deadline - started)
        certificate = certificate_of(state, radius=self.radius, time_limit=left)
        done = replace(state, certificate=certificate, status=Status.SOLVED)
        log: dict[str, Any] = {"seconds": time.monotonic() - started, "word": "optimal"}
        done = done.logged(f"certificate {certificate.stationarity.value}", **log)
        if certificate.b_stationary is not False or certificate.lpec is None or state.switches >= MOST_SWITCHES:
            return done
        return self._switch(state, done, certificate.lpec, deadline)

    def _switch(self, state: ActiveSetState, done: ActiveSetState, lpec: LPECResult, deadline: float) -> ActiveSetState:
        """Solve the branch that descends; where that does not help, the certified point is the result."""
        started = time.monotonic()
        solvers = state.solvers
        mpcc = solvers.mpcc
        _, zero_G, zero_H, _ = np.split(lpec.zero, np.cumsum([mpcc.g.numel(), mpcc.G.numel(), mpcc.H.numel()]))
        branch = complete(mpcc, zero_G, zero_H)
        outcome = self.homotopy.finisher(solvers)(state.w, state.p, deadline, "hold", branch)
        new = replace(state.landed(outcome), switches=state.switches + 1, records=done.records)
        log: dict[str, Any] = {"iterations": outcome.iterations, "word": outcome.solver_status}
        new = new.logged("branch", seconds=time.monotonic() - started, **log)
        gain = state.values.objective - new.values.objective
        if outcome.converged and self.residuals_small(new) and gain > GAIN * max(1.0, abs(state.values.objective)):
            return new
        return replace(done, records=new.records, status=Status.INTERRUPTED if outcome.interrupted else done.status)
