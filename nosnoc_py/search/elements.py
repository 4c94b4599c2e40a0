"""What `solve` does with complementarities of the user's own: finite elements from many random controls."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import numpy as np
from pydantic import Field

from nosnoc_py.discretization.options import FINITE_ELEMENTS, FiniteElementMethod
from nosnoc_py.errors import check_type
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod, fitting
from nosnoc_py.search.portfolio import EFFORTS
from nosnoc_py.search.state import AGREE, GAIN
from nosnoc_py.simulation.certification.attached import with_certificate
from nosnoc_py.solution import Candidate, Solution
from nosnoc_py.status import Status, Verdict, iterated
from nosnoc_py.transcription import Transcription, transcribe

Array = np.ndarray
# A start may take so many times as long as the first one, and this much [s] at least; the share of all for refining.
LONGER, LEAST, LAST = 5.0, 2.0, 0.25
# RK stages of a refinement: as long as the simulation does not confirm, one more.
MOST_STAGES = 5
# Random controls lie between those of the first solution and so many times their range beyond.
BEYOND = 0.5
# Those near the best one differ from it by so much of this range.
NEAR = 0.5


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementState:
    """What random starts have found; a callback sees it after every start.

    Attributes
    ----------
    best, first : Solution, optional
        The best so far; the one of the first start.
    candidates : tuple of Candidate
    since : int
        Starts since the last gain.
    agreed : int
        Starts that led to the best objective.
    status : Status, optional
        Why the search has ended.
    """

    best: Solution | None = None
    first: Solution | None = None
    candidates: tuple[Candidate, ...] = ()
    since: int = 0
    agreed: int = 0
    status: Status | None = None


class ElementSearch(CompleteMethod):
    """Finite elements from the default start and from random controls; the best is refined until it is confirmed.

    What `solve` does without a method where an OCP has complementarities of its own: the branch that a relaxation ends
    on depends on its start, and of most of them the objective is far from the best one.

    Parameters
    ----------
    effort : {"quick", "normal", "thorough"}
        How many starts without a gain end the search, and the seconds that it takes without a limit of time.
    seed : int
        Of the random controls.
    control_stages : int
        Of the finite elements.

    Examples
    --------
    A point is pushed from one side at a time, whichever is cheaper:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x, u = ca.SX.sym("x"), ca.SX.sym("u", 2)
    >>> push = ns.Complementarity(u[0], u[1], name="one side")
    >>> ocp = ns.OCP(
    ...     ns.ODE(x=x, u=u, flow=u[0] - u[1]), horizon=1.0, x0=[0.0], stage_cost=ca.sumsqr(u),
    ...     terminal_constraints=[x == -1], complementarities=[push],
    ... )
    >>> round(ns.solve(ocp, effort="quick").objective, 6)
    1.0
    """

    takes: ClassVar[tuple[type, ...]] = tuple(dict.fromkeys(kind for each in FINITE_ELEMENTS for kind in each.takes))

    effort: Literal["quick", "normal", "thorough"] = "normal"
    seed: int = Field(default=0, ge=0)
    control_stages: int = Field(default=20, ge=1)

    def solved(
        self, ocp: OCP, guess: Any, callback: Callable[[Any], Any] | None, started: float, deadline: float
    ) -> Solution:
        """Search until nothing better is found, or time is over; then refine."""
        check_type(ocp, OCP, "ocp")
        method: Any = fitting(ocp.system, None, FINITE_ELEMENTS, FiniteElementMethod)
        method = method.replace(control_stages=self.control_stages)
        problem, effort, rng = transcribe(ocp, method), EFFORTS[self.effort], np.random.default_rng(self.seed)
        ends = started + effort.seconds if np.isinf(deadline) else deadline
        until = started + (1.0 - LAST) * (ends - started)

        def step(state: ElementState, deadline: float) -> ElementState:
            before = time.monotonic()
            start = guess if state.first is None else {"u": _random(ocp, state, rng)}
            most = np.inf if state.first is None else max(LEAST, LONGER * state.candidates[0].seconds)
            limit = min(most, max(0.0, deadline - before))
            found = problem.solve(guess=start, time_limit=None if np.isinf(limit) else limit)
            return _having(state, found, "default" if state.first is None else "random", time.monotonic() - before)

        def judged(state: ElementState) -> dict[str, Any] | None:
            over = state.status is not None or (state.since >= effort.patience and state.agreed > 0)
            return {"status": state.status or Status.SOLVED} if over else None

        state = iterated(ElementState(), step, judged, callback, until, least=1)
        assert state.best is not None
        best = self._refined(ocp, problem, state, ends)
        return replace(best, method=repr(self), candidates=state.candidates, wall_seconds=time.monotonic() - started)

    def _refined(self, ocp: OCP, problem: Transcription, state: ElementState, ends: float) -> Solution:
        """With more RK stages, until a simulation confirms what they show."""
        assert state.best is not None
        best, method = state.best, cast("Any", problem.method)
        if not best.success or state.status in (Status.INTERRUPTED, Status.STOPPED):
            return best if state.status is Status.SOLVED else replace(best, status=state.status or best.status)
        best = self._judged(ocp, best, ends)
        for count in range(method.rk_stages + 1, MOST_STAGES + 1):
            left = ends - time.monotonic()
            if best.certificate is None or best.certificate.verdict is not Verdict.INACCURATE or left <= 0.0:
                break
            finer = transcribe(ocp, method.replace(rk_stages=count)).solve(guess=best, time_limit=left)
            # Another branch may be worse: what is found has to be the same motion, only finer.
            if not finer.success or finer.objective > best.objective + AGREE * (1.0 + abs(best.objective)):
                break
            best = self._judged(ocp, finer, ends)
        return best

    @staticmethod
    def _judged(ocp: OCP, found: Solution, ends: float) -> Solution:
        left = max(ends - time.monotonic(), LEAST)
        return with_certificate(ocp, found, finite_elements=True, deadline=time.monotonic() + left, time_limit=left)


def _having(state: ElementState, found: Solution, kind: str, seconds: float) -> ElementState:
    """With what a start has led to."""
    candidate = Candidate(
        start=kind,
        sequence=None,
        objective=found.objective if found.success else np.inf,
        verdict=None,
        seconds=seconds,
    )
    best, first = state.best, state.first or found
    told = replace(state, first=first, candidates=(*state.candidates, candidate), since=state.since + 1)
    if best is None or (found.success, -found.objective) > (best.success, -best.objective):
        size = 0.0 if best is None or not best.success else abs(best.objective)
        gained = best is None or not best.success or found.objective < best.objective - GAIN * size
        return replace(told, best=found, since=0 if gained else told.since, agreed=0 if gained else state.agreed + 1)
    same = found.success and found.objective <= best.objective + AGREE * abs(best.objective)
    return replace(told, agreed=state.agreed + same)


def _random(ocp: OCP, state: ElementState, rng: np.random.Generator) -> Array:
    """A control (N, n_u), constant in every stage: uniform where the first one was and beyond; or near the best.

    Turns alternate, as neighbours of a good motion are often better ones.
    """
    assert state.first is not None
    u, (lower, upper) = np.atleast_2d(state.first.u), ocp.u_bounds
    low, high = u.min(axis=0), u.max(axis=0)
    beyond = BEYOND * np.maximum(high - low, np.abs(u).max(axis=0, initial=0.0))
    beyond = np.where(beyond > 0.0, beyond, 1.0)
    low, high = np.clip(low - beyond, lower, upper), np.clip(high + beyond, lower, upper)
    drawn: Array = low + (high - low) * rng.random((len(u), low.size))
    if len(state.candidates) % 2 or state.best is None or not state.best.success:
        return drawn
    near: Array = np.clip(state.best.u + NEAR * (drawn - 0.5 * (low + high)), lower, upper)
    return near
