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

from nosnoc_py.attempts.rank import LEAST_GAIN, SAME_OBJECTIVE, ObjectiveScale, Rank
from nosnoc_py.attempts.work import counted, exhausted
from nosnoc_py.discretization.options import FINITE_ELEMENTS, FiniteElementMethod
from nosnoc_py.errors import check_type
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod, fitting
from nosnoc_py.search.portfolio import EFFORTS
from nosnoc_py.search.starts import StartTask
from nosnoc_py.simulation.certification.attached import with_certificate
from nosnoc_py.solution import Candidate, Solution
from nosnoc_py.status import Status, Verdict, iterated, seconds_to
from nosnoc_py.transcription import Transcription, transcribe

Array = np.ndarray
# Limit of work of a start: this multiple of the first one's, as a bad branch can take far longer than a good one, but
# at least LEAST_WORK. RESERVED_WORK is the fraction of the total work that is reserved for the refinement of the best
# one.
LONGER, LEAST_WORK, RESERVED_WORK = 5.0, 2.0, 0.25
# Upper limit of the RK stages; the refinement adds one at a time until the simulation confirms the solution.
MOST_STAGES = 5
# Random controls cover the range of the first solution, extended by this multiple of it on both sides.
BEYOND = 0.5
# Largest change of the best control by a local start, as a fraction of that extended range.
LOCAL_CHANGE = 0.5
# Work of a search over finite elements as a multiple of that of one over sequences: its programs cost more.
COSTLIER = 2.5


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

    @property
    def scale(self) -> ObjectiveScale:
        """Size of the objective: its change from the worst feasible start to the best one."""
        objectives = [c.objective for c in self.candidates if np.isfinite(c.objective)]
        return ObjectiveScale.of([(max(objectives), min(objectives))]) if objectives else ObjectiveScale()


class ElementSearch(CompleteMethod):
    """Finite elements from the default start and from random controls; the best solution is refined until confirmed.

    Default of `solve` for an OCP with complementarities of its own: the branch on which a relaxation ends depends on
    its start, and most branches are far from the best objective.

    Parameters
    ----------
    effort : {"quick", "normal", "thorough"}
        Number of starts without a gain that ends the search (6, 15, 90), and the limit of work (10, 60, 600 units of
        about a second).
    seed : int
        Seed of the random controls.
    control_stages : int
        Number of control intervals of equal length.
    time_limit : float, optional
        Limit of time by the clock for the whole search [s], which cuts it.

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
        limit = COSTLIER * effort.work * StartTask.of(ocp).growth

        def left(state: ElementState) -> float:
            return (1.0 - RESERVED_WORK) * limit - sum(candidate.work for candidate in state.candidates)

        def until() -> float:
            return (
                deadline - RESERVED_WORK * (deadline - started) if np.isfinite(deadline) else np.inf
            )  # for the refinement

        def step(state: ElementState, _: float) -> ElementState:
            start = guess if state.first is None else {"u": _random_control(ocp, state, rng)}
            # The first start sets the scale of work: it alone may use everything that is left.
            most = np.inf if state.first is None else max(LEAST_WORK, LONGER * state.candidates[0].work)
            with counted(min(most, left(state))) as account:
                solution = problem.solve(guess=start, time_limit=seconds_to(until()))
            return _with_start(state, solution, "default" if state.first is None else "random", account.total)

        def ended(state: ElementState) -> dict[str, Any] | None:
            # A single start that reached the best objective may have met it by luck: ask for a second one.
            if state.status is not None or (state.since >= effort.patience and state.agreed > 0):
                return {"status": state.status or Status.SOLVED}
            # The first start is made however short the limit is.
            if state.first is not None and left(state) <= 0.0:
                return {"status": Status.WORK_LIMIT}
            late = state.first is not None and time.monotonic() > until()
            return {"status": Status.TIME_LIMIT} if late else None

        state = iterated(ElementState(), step, ended, callback, np.inf)
        assert state.best is not None
        with counted(max(LEAST_WORK, left(state) + RESERVED_WORK * limit)):
            best = self._refine(ocp, problem, state, deadline)
        return replace(best, method=repr(self), candidates=state.candidates, wall_seconds=time.monotonic() - started)

    def _refine(self, ocp: OCP, problem: Transcription, state: ElementState, ends: float) -> Solution:
        """Solve with more RK stages until a simulation confirms the solution."""
        assert state.best is not None
        best, method = state.best, cast("Any", problem.method)
        if not best.success or state.status in (Status.INTERRUPTED, Status.STOPPED):
            return best if state.status is Status.SOLVED else replace(best, status=state.status or best.status)
        best = self._certify(ocp, best, ends)
        for count in range(method.rk_stages + 1, MOST_STAGES + 1):
            if best.certificate is None or best.certificate.verdict is not Verdict.INACCURATE or exhausted():
                break
            finer = transcribe(ocp, method.replace(rk_stages=count)).solve(guess=best, time_limit=seconds_to(ends))
            # A worse objective means that the finer program ended on another branch: keep the coarse solution.
            if not finer.success or finer.objective > state.scale.above(best.objective, SAME_OBJECTIVE):
                break
            best = self._certify(ocp, finer, ends)
        return best

    @staticmethod
    def _certify(ocp: OCP, solution: Solution, ends: float) -> Solution:
        left = seconds_to(ends)
        left = None if left is None else max(left, LEAST_WORK)  # time for a certificate also after the limit
        return with_certificate(ocp, solution, finite_elements=True, deadline=ends, time_limit=left)


def _rank(solution: Solution) -> Rank:
    """Return the rank of a solution by its residuals."""
    return Rank.of_point(solution.objective, 0.0 if solution.success else max(solution.infeasibility, 1.0), 0.5)


def _with_start(state: ElementState, solution: Solution, kind: str, work: float) -> ElementState:
    """Return the state after one more start: candidate, best solution, and counts."""
    objective = solution.objective if solution.success else np.inf
    candidate = Candidate(start=kind, sequence=None, objective=objective, verdict=None, work=work)
    best, first = state.best, state.first or solution
    # A start that only confirms the best within SAME_OBJECTIVE counts as agreement, a gain below LEAST_GAIN does not
    # reset patience.
    updated = replace(state, first=first, candidates=(*state.candidates, candidate), since=state.since + 1)
    if best is None or not best.success:
        better = best is None or _rank(solution) < _rank(best)
        return replace(updated, best=solution, since=0) if better else updated
    same = solution.success and objective <= state.scale.above(best.objective, SAME_OBJECTIVE)
    if objective < state.scale.above(best.objective, -LEAST_GAIN):
        return replace(updated, best=solution, since=0, agreed=0)
    return replace(updated, best=solution if objective < best.objective else best, agreed=state.agreed + same)


def _random_control(ocp: OCP, state: ElementState, rng: np.random.Generator) -> Array:
    """Return a random control (N, n_u), constant in every stage, from an extended range or near the best control.

    Both alternate, as the neighbourhood of a good motion often has a better one.
    """
    assert state.first is not None
    u, (lower, upper) = np.atleast_2d(state.first.u), ocp.u_bounds
    low, high = u.min(axis=0), u.max(axis=0)
    beyond = BEYOND * np.maximum(high - low, np.abs(u).max(axis=0, initial=0.0))
    beyond = np.where(beyond > 0.0, beyond, ocp.sizes.u)  # a first control that is zero has no scale
    low, high = np.clip(low - beyond, lower, upper), np.clip(high + beyond, lower, upper)
    sample: Array = low + (high - low) * rng.random((len(u), low.size))
    if len(state.candidates) % 2 or state.best is None or not state.best.success:
        return sample
    near: Array = np.clip(state.best.u + LOCAL_CHANGE * (sample - 0.5 * (low + high)), lower, upper)
    return near
