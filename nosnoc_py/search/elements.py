"""Search by finite elements from many random controls, for an OCP with complementarities of its own.

Default of `solve` for such problems: there is no mode sequence to read from a simulation, so that every start is an
MPCC solved by its homotopy. Random controls alternate between the whole range and the neighbourhood of the best one.
The search ends after a number of starts without a gain, if the best objective was found at least twice. The best
solution is then solved with more Runge-Kutta stages until a simulation confirms it.

Invariant: refinement may only return the same motion at higher order; a worse objective means another branch.
"""

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
from nosnoc_py.search.budget import TimeBudget
from nosnoc_py.search.portfolio import EFFORTS
from nosnoc_py.search.state import AGREE, GAIN
from nosnoc_py.simulation.certification.attached import with_certificate
from nosnoc_py.solution import Candidate, Solution
from nosnoc_py.status import Status, Verdict, iterated
from nosnoc_py.transcription import Transcription, transcribe

Array = np.ndarray
# Time limit of a start: this multiple of the first one's time, as a bad branch can take far longer than a good one, but
# at least LEAST seconds. LAST is the fraction of the total time that is reserved for the refinement of the best one.
LONGER, LEAST, LAST = 5.0, 2.0, 0.25
# Upper limit of the RK stages; the refinement adds one at a time until the simulation confirms the solution.
MOST_STAGES = 5
# Random controls cover the range of the first solution, extended by this multiple of it on both sides.
BEYOND = 0.5
# Largest change of the best control by a local start, as a fraction of that extended range.
NEAR = 0.5


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementState:
    """State of an `ElementSearch`, passed to the callback after every start.

    Attributes
    ----------
    best, first : Solution, optional
        Best solution so far, and solution of the first start.
    candidates : tuple of Candidate
        One per start, in the order in which they were tried.
    since : int
        Number of starts since the last gain.
    agreed : int
        Number of further starts that reached the best objective.
    status : Status, optional
        Reason why the search ended; None while it runs.
    """

    best: Solution | None = None
    first: Solution | None = None
    candidates: tuple[Candidate, ...] = ()
    since: int = 0
    agreed: int = 0
    status: Status | None = None


class ElementSearch(CompleteMethod):
    """Finite elements from the default start and from random controls; the best solution is refined until confirmed.

    Default of `solve` for an OCP with complementarities of its own: the branch on which a relaxation ends depends on
    its start, and most branches are far from the best objective.

    Parameters
    ----------
    effort : {"quick", "normal", "thorough"}
        Number of starts without a gain that ends the search (8, 20, 120), and the limit of processor time without
        `time_limit` (10 s, 60 s, 600 s).
    seed : int
        Seed of the random controls.
    control_stages : int
        Number of control intervals of equal length.
    time_limit : float, optional
        Limit of time by the clock for the whole search [s]; replaces that of `effort`.

    Raises
    ------
    OptionError
        From `solve`, if no finite element method takes the system.

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
    >>> solution = ns.solve(ocp, ns.ElementSearch(effort="quick", control_stages=4))
    >>> print(solution.status, round(solution.objective, 6))
    solved 1.0
    """

    takes: ClassVar[tuple[type, ...]] = tuple(dict.fromkeys(kind for each in FINITE_ELEMENTS for kind in each.takes))

    effort: Literal["quick", "normal", "thorough"] = "normal"
    seed: int = Field(default=0, ge=0)
    control_stages: int = Field(default=20, ge=1)

    def solved(
        self, ocp: OCP, guess: Any, callback: Callable[[Any], Any] | None, started: float, deadline: float
    ) -> Solution:
        """Search until the effort or the time is used up, then refine the best solution."""
        check_type(ocp, OCP, "ocp")
        method: Any = fitting(ocp.system, None, FINITE_ELEMENTS, FiniteElementMethod)
        method = method.replace(control_stages=self.control_stages)
        problem, effort, rng = transcribe(ocp, method), EFFORTS[self.effort], np.random.default_rng(self.seed)
        budget = TimeBudget.of(started, deadline, effort.seconds)

        def until() -> float:
            return started + (1.0 - LAST) * (budget.deadline() - started)  # the rest is for the refinement

        def step(state: ElementState, _: float) -> ElementState:
            before = time.monotonic()
            start = guess if state.first is None else {"u": _random_control(ocp, state, rng)}
            # The first start sets the scale of time: it alone may use everything that is left.
            most = np.inf if state.first is None else max(LEAST, LONGER * state.candidates[0].seconds)
            limit = min(most, max(0.0, until() - before))
            solution = problem.solve(guess=start, time_limit=None if np.isinf(limit) else limit)
            return _with_start(
                state, solution, "default" if state.first is None else "random", time.monotonic() - before
            )

        def ended(state: ElementState) -> dict[str, Any] | None:
            # A single start that reached the best objective may have met it by luck: ask for a second one.
            over = state.status is not None or (state.since >= effort.patience and state.agreed > 0)
            if over:
                return {"status": state.status or Status.SOLVED}
            # The first start is made however short the limit is.
            late = state.first is not None and time.monotonic() > until()
            return {"status": Status.TIME_LIMIT} if late else None

        state = iterated(ElementState(), step, ended, callback, np.inf)
        assert state.best is not None
        best = self._refine(ocp, problem, state, budget.deadline())
        return replace(best, method=repr(self), candidates=state.candidates, wall_seconds=time.monotonic() - started)

    def _refine(self, ocp: OCP, problem: Transcription, state: ElementState, ends: float) -> Solution:
        """Solve with more RK stages until a simulation confirms the solution."""
        assert state.best is not None
        best, method = state.best, cast("Any", problem.method)
        if not best.success or state.status in (Status.INTERRUPTED, Status.STOPPED):
            return best if state.status is Status.SOLVED else replace(best, status=state.status or best.status)
        best = self._certify(ocp, best, ends)
        for count in range(method.rk_stages + 1, MOST_STAGES + 1):
            left = ends - time.monotonic()
            if best.certificate is None or best.certificate.verdict is not Verdict.INACCURATE or left <= 0.0:
                break
            finer = transcribe(ocp, method.replace(rk_stages=count)).solve(guess=best, time_limit=left)
            # A worse objective means that the finer program ended on another branch: keep the coarse solution.
            if not finer.success or finer.objective > best.objective + AGREE * (1.0 + abs(best.objective)):
                break
            best = self._certify(ocp, finer, ends)
        return best

    @staticmethod
    def _certify(ocp: OCP, solution: Solution, ends: float) -> Solution:
        left = max(ends - time.monotonic(), LEAST)  # time for a certificate also after the limit
        return with_certificate(ocp, solution, finite_elements=True, deadline=time.monotonic() + left, time_limit=left)


def _with_start(state: ElementState, solution: Solution, kind: str, seconds: float) -> ElementState:
    """Return the state after one more start: candidate, best solution, and counts."""
    candidate = Candidate(
        start=kind,
        sequence=None,
        objective=solution.objective if solution.success else np.inf,
        verdict=None,
        seconds=seconds,
    )
    best, first = state.best, state.first or solution
    # A start that only confirms the best within AGREE counts as agreement, a gain below GAIN does not reset patience.
    updated = replace(state, first=first, candidates=(*state.candidates, candidate), since=state.since + 1)
    if best is None or (solution.success, -solution.objective) > (best.success, -best.objective):
        size = 0.0 if best is None or not best.success else abs(best.objective)
        gained = best is None or not best.success or solution.objective < best.objective - GAIN * size
        return replace(
            updated, best=solution, since=0 if gained else updated.since, agreed=0 if gained else state.agreed + 1
        )
    same = solution.success and solution.objective <= best.objective + AGREE * abs(best.objective)
    return replace(updated, agreed=state.agreed + same)


def _random_control(ocp: OCP, state: ElementState, rng: np.random.Generator) -> Array:
    """Return a random control (N, n_u), constant in every stage, from an extended range or near the best control.

    Both alternate, as the neighbourhood of a good motion often has a better one.
    """
    assert state.first is not None
    u, (lower, upper) = np.atleast_2d(state.first.u), ocp.u_bounds
    low, high = u.min(axis=0), u.max(axis=0)
    beyond = BEYOND * np.maximum(high - low, np.abs(u).max(axis=0, initial=0.0))
    beyond = np.where(beyond > 0.0, beyond, 1.0)  # a first control that is zero has no scale
    low, high = np.clip(low - beyond, lower, upper), np.clip(high + beyond, lower, upper)
    sample: Array = low + (high - low) * rng.random((len(u), low.size))
    if len(state.candidates) % 2 or state.best is None or not state.best.success:
        return sample
    near: Array = np.clip(state.best.u + NEAR * (sample - 0.5 * (low + high)), lower, upper)
    return near
