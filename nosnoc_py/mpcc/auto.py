"""Default strategy: several different attempts until one is solved.

Without an objective the elastic homotopy with active-set finish and certificate comes first, because it is the fastest
one. Which homotopy fails differs from problem to problem, so that homotopies with other relaxations and steering
follow, and then the same from perturbed starts. If all rows are affine, linear programs find a feasible branch or prove
that there is none; this comes second.

With an objective the first relaxed NLP decides which local optimum is found, and a certificate of stationarity does not
exclude a better one elsewhere. The homotopy of Scholtes from a large relaxation therefore comes before the elastic one,
and both are run. If they disagree, the better point is relaxed again and followed down, as long as the objective falls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field

from nosnoc_py.attempts.rank import ObjectiveScale, Rank
from nosnoc_py.mpcc.active_set import ActiveSet, ActiveSetState
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.mpcc.interior import OPTIONS
from nosnoc_py.mpcc.ipopt import SUCCESS
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.strategy import UNPROVED, SolverState, Strategy, common
from nosnoc_py.status import LIMITS, Status

# Statuses that another attempt does not change.
FINAL = (Status.SOLVED, Status.INFEASIBLE, *LIMITS, Status.INTERRUPTED, Status.STOPPED)
ENDS = tuple(status for status in FINAL if status is not Status.SOLVED)
# Minimum number of attempts with an objective, even if the first one is solved.
DESCENTS = 2
# Size of the perturbations, relative to the size of the variables.
PERTURBATION = 0.3
# Relative difference of objectives above which two descents disagree, and a further descent has improved the result.
SAME_OBJECTIVE = 1e-3
# Infeasibility up to which the objective of a relaxed problem can be compared with that of a solution.
FEASIBLE = 1e-6
# Relaxation parameter from which the best point descends again, and maximum number of such descents. A larger one loses
# the point, a smaller one stays on its branch: of 1, .3, .1, .03, .01, .001 this one found the best objective most
# often.
AGAIN, ROUNDS = 0.1, 3
# Relative difference of objectives below which two points are the same optimum; one with a certificate is preferred.
EQUAL = 1e-5
# Relative difference of the objectives of two relaxed programs with the same sigma, below which they have the same
# optimum: some digits more than NLP solvers are asked for, so that equal ones are no chance.
REPEATED = 1e-9
DESCENT, DESCENT_AGAIN = "relaxed", "relaxed again"  # names of attempts by the same homotopy
RELATIVE = ObjectiveScale()
# Fields of the state that are those of Auto, not those of an attempt.
OWN = ("status", "records", "solvers", "p")
# Options of the elastic homotopy. A branch read at a residual above 1e-3 is too often wrong. An NLP with more than 150
# iterations costs more than continuing from its end with a smaller sigma, except for the first one, which is repeated.
ELASTIC: dict[str, Any] = {
    "steering": "l_inf",
    "kappa": 0.05,
    "sigma_min": 1e-6,
    "max_iterations": 150,
    "repeats": 3,
    "finish_threshold": 1e-3,
}

# Makes an iterate (n_w,) to start from of a state whose attempt has failed; None where there is none.
Nearby = Callable[[SolverState], np.ndarray | None]


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attempt of `Auto`.

    Attributes
    ----------
    name : str
        Prefix of its lines in the log.
    strategy : ActiveSet
    perturbation : float
        Relative size of a random perturbation of the start.
    point : (n_w,), optional
        Feasible start: its branch is solved first, without a homotopy.
    sigma : float, optional
        With a point: start the homotopy at the point with this relaxation parameter.
    """

    name: str
    strategy: ActiveSet
    perturbation: float = 0.0
    point: np.ndarray | None = None
    sigma: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AutoState(SolverState):
    """State of `Auto`.

    Attributes
    ----------
    attempts : tuple of Attempt
    attempt : int
        Index of the current attempt.
    inner : ActiveSetState
        Its state.
    best : SolverState, optional
        Best point of the attempts that have ended.
    verdicts : tuple of Status
        Their statuses.
    objectives : tuple of float
        Their objectives; infinite if not solved.
    first : float
        Objective at the start of the first attempt.
    origin : ndarray (n_w,)
        Start of the first attempt.
    nearby : function (SolverState) -> ndarray (n_w,) or None, optional
        Makes a further start from the best iterate, if the first descents fail.
    """

    attempts: tuple[Attempt, ...]
    attempt: int
    inner: ActiveSetState
    origin: np.ndarray
    nearby: Nearby | None = None
    best: SolverState | None = None
    verdicts: tuple[Status, ...] = ()
    objectives: tuple[float, ...] = ()
    first: float = np.inf

    @property
    def scale(self) -> ObjectiveScale:
        """Size of the objective: its largest change from the start."""
        return ObjectiveScale.of([(self.first, value) for value in self.objectives])


class Auto(Strategy):
    """Attempts by several strategies until one is solved; the default solver.

    Parameters
    ----------
    restarts : int
        Number of attempts from perturbed starts, after all strategies have failed from the given one.
    seed : int
        Seed of the perturbations: same seed, same result.
    ipopt : dict
        Further options of IPOPT by their own names, for all NLPs.
    complementarity_tolerance, infeasibility_tolerance : float
        Tolerances on the residuals of the unrelaxed problem; success is decided on them.
    time_limit : float, optional
        Limit for all attempts together [s].

    Raises
    ------
    OptionError
        For values outside these ranges.

    Examples
    --------
    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> w = ca.SX.sym("w", 2)
    >>> mpcc = ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], g=w[0] + w[1], lbg=1.0, ubg=1.0)  # feasibility only
    >>> result = ns.solve_mpcc(mpcc, ns.Auto(restarts=0))
    >>> result.success, round(float(result.w.sum()), 6)
    (True, 1.0)
    """

    restarts: int = Field(default=8, ge=0)
    seed: int = Field(default=0, ge=0)
    ipopt: dict[str, str | int | float] = Field(default_factory=dict)

    def attempts(self, mpcc: MPCC) -> tuple[Attempt, ...]:
        """Return the attempts in order.

        Without an objective one exact NLP usually shows the branch. With one the last digits of the first NLPs are
        wasted, and `step_tolerances` saves them.
        """
        ipopt = {"perturb_always_cd": "yes", **self.ipopt}
        stepwise: dict[str, Any] = {"step_tolerances": True, "finish_threshold": 1e-2, "ipopt": ipopt}
        elastic = {**ELASTIC, "step_tolerances": not mpcc.objective.is_constant(), "ipopt": ipopt}
        ways = {} if mpcc.objective.is_constant() else {DESCENT: self._relaxed}
        ways |= {
            "elastic": Homotopy(**elastic),
            "elastic from afar": Homotopy(**elastic, sigma_0=10.0),
            "L-shaped": Homotopy(relaxation="kanzow_schwartz", max_iterations=200, **stepwise),
            "stepwise": Homotopy(rises=3, **stepwise),
            "direct": Homotopy(finish_threshold=1e-2, ipopt=ipopt),
        }
        first = [Attempt(name, ActiveSet(homotopy=way, **self.tolerances)) for name, way in ways.items()]
        # Perturbed starts begin with the elastic homotopy: the plain one, which is slow, pays only from a good start.
        turn = first[1:] + first[:1]
        again = [replace(turn[k % len(turn)], perturbation=PERTURBATION) for k in range(self.restarts)]
        return (*first, *again)

    @property
    def _relaxed(self) -> Homotopy:
        """Homotopy of Scholtes from a large sigma, with every NLP solved to full accuracy."""
        known = {name: value for name, value in self.ipopt.items() if name in OPTIONS}
        return Homotopy(nlp_solver="interior_point", ipopt=known)

    def init(self, *args: Any, nearby: Nearby | None = None, **options: Any) -> AutoState:
        """Return the state before the first step.

        Parameters
        ----------
        *args, **options
            See `Strategy.init`.
        nearby : function (SolverState) -> ndarray (n_w,) or None, optional
            Called if the first descents fail: from their best state it makes an iterate that satisfies most equations,
            such as the simulation of its control. That iterate is tried from a small sigma.
        """
        return replace(super().init(*args, **options), nearby=nearby)

    def begin(self, fields: Mapping[str, Any], sigma: float | None) -> AutoState:
        """Return the state before the first attempt; `sigma` replaces its sigma_0."""
        attempts = self.attempts(fields["solvers"].mpcc)
        inner = attempts[0].strategy.begin(fields, sigma)
        first = {"origin": fields["w"], "first": fields["values"].objective}
        return AutoState(**fields, **first, attempts=attempts, attempt=0, inner=inner)

    def advance(self, state: AutoState, deadline: float) -> AutoState:
        """Take one step of the current attempt, or the first one of the next attempt."""
        if state.inner.status is not None:
            state = self._next(state)
        attempt = state.attempts[state.attempt]
        inner = attempt.strategy.step(state.inner, deadline=deadline)
        if inner.status is not None:  # a proof of infeasibility or unboundedness makes further attempts unnecessary
            inner = attempt.strategy.conclude(inner, deadline)
        new = inner.records[len(state.inner.records) :]
        named = tuple(
            replace(line, step=state.step + k, label=f"{attempt.name}: {line.label}") for k, line in enumerate(new)
        )
        state = replace(state, inner=inner, **common(inner, *OWN), records=(*state.records, *named))
        repeats = inner.status is None and self._repeats(state, attempt, len(new))
        if repeats or (inner.status is None and self._is_behind(state, inner)):
            inner = replace(inner, status=Status.NOT_AN_OPTIMUM)
            state = replace(state, inner=inner)
        if inner.status is None:
            return state
        # A descent that repeats another one has no objective of its own: its relaxed one is below every solution.
        solved = inner.status in (Status.SOLVED, Status.NOT_AN_OPTIMUM) and not repeats
        reached = inner.values.objective if solved else np.inf  # infinite: differs from every solved objective
        state = replace(
            state,
            best=better(state.best, inner),
            verdicts=(*state.verdicts, inner.status),
            objectives=(*state.objectives, reached),
        )
        state = self._with_nearby(self._with_feasible_branch(state, attempt, deadline))
        further = self._further(state, inner)
        return self.finalise(state, inner.status) if further is None else replace(state, attempts=further)

    @staticmethod
    def _is_behind(state: AutoState, inner: ActiveSetState) -> bool:
        """Return True if a solved relaxed problem has a higher objective than the best solution.

        Smaller sigmas shrink the feasible set, so that the objective will hardly fall again.
        """
        best, relaxed = state.best, inner.homotopy
        if best is None or best.status is not Status.SOLVED or relaxed.status is not None:
            return False
        solved = relaxed.converged and relaxed.infeasibility <= FEASIBLE
        return solved and _lower(best.values.objective, relaxed.values.objective, state.scale)

    @staticmethod
    def _repeats(state: AutoState, attempt: Attempt, new: int) -> bool:
        """Return True if a further descent has come to the relaxed optimum of an earlier one.

        It would go on as the earlier one did, so that it cannot find another solution.
        """
        if attempt.name != DESCENT_AGAIN or not new or state.records[-1].solver_status not in SUCCESS:
            return False
        last, names = state.records[-1], tuple(f"{name}: homotopy" for name in (DESCENT, DESCENT_AGAIN))
        return last.label in names and any(
            line.label in names
            and np.isclose(line.sigma, last.sigma, rtol=REPEATED, atol=0.0)
            and np.isclose(line.objective, last.objective, rtol=REPEATED, atol=0.0)
            and line.solver_status in SUCCESS
            for line in state.records[:-1]
        )

    def _with_feasible_branch(self, state: AutoState, last: Attempt, deadline: float) -> AutoState:
        """Insert an attempt on a branch that linear programs have found, if the first attempt has failed."""
        proofs = state.solvers.proofs
        # Once, after the first attempt; it needs rows that are all affine, else its point would not be feasible.
        if state.attempt > 0 or state.verdicts[0] not in UNPROVED or not proofs.exact:
            return state
        point = proofs.feasibility(state.p, self.infeasibility_tolerance, deadline).point
        if point is None:
            return state
        more = Attempt("feasible branch", last.strategy, point=point)
        return replace(state, attempts=(state.attempts[0], more, *state.attempts[1:]))

    def _with_nearby(self, state: AutoState) -> AutoState:
        """Insert a start near a motion as the next attempt, if the first descents have failed.

        In long programs with impacts a homotopy often ends at a point of local infeasibility, where impacts are smeared
        over several elements. The controls there are mostly sensible, and the simulation of them satisfies all
        equations but the goal, so that a small sigma finds a feasible point nearby. It comes after the homotopies,
        because the optimum near an arbitrary motion is often worse than the one that they find.
        """
        mpcc, done = state.solvers.mpcc, state.attempt + 1
        descents = 1 if mpcc.objective.is_constant() else DESCENTS
        solved = state.best is not None and state.best.status is Status.SOLVED
        if state.nearby is None or state.best is None or solved or done != descents:
            return state
        point = state.nearby(state.best)
        if point is None:
            return state
        strategy, sigma = self.warm(mpcc)
        more = Attempt("near the motion", strategy, point=np.clip(point, mpcc.lbw, mpcc.ubw), sigma=sigma)
        return replace(state, attempts=(*state.attempts[:done], more, *state.attempts[done:]))

    def _further(self, state: AutoState, inner: ActiveSetState) -> tuple[Attempt, ...] | None:
        """Return all attempts including further ones; None if nothing is left to do.

        A solved point without a verdict of the LPEC is only nearly complementary. The next strategy may find an exactly
        complementary one, so it is tried; restarts from perturbed points are not.
        """
        mpcc, best = state.solvers.mpcc, state.best
        done, left = state.attempts[: state.attempt + 1], state.attempts[state.attempt + 1 :]
        unbounded = inner.status is Status.UNBOUNDED and inner.solvers.proofs.has_ray(inner.p)
        if inner.status in ENDS or unbounded or best is None:
            return None
        if best.status is Status.SOLVED:
            if not mpcc.objective.is_constant():
                if left and len(done) < DESCENTS:
                    return state.attempts
                if self._pays(state):
                    again = ActiveSet(homotopy=self._relaxed, **self.tolerances)
                    return (*done, Attempt(DESCENT_AGAIN, again, point=best.w, sigma=AGAIN), *left)
            is_assessed = best.certificate is not None and best.certificate.b_stationary is not None
            if is_assessed or not left or left[0].perturbation > 0.0:
                return None
        return state.attempts if left else None

    def _pays(self, state: AutoState) -> bool:
        """Return True if another descent from the best point is worthwhile.

        It is if the last descent has improved the objective, or if the first attempts disagree.
        """
        rounds, reached = sum(attempt.sigma is not None for attempt in state.attempts), np.array(state.objectives)
        if rounds:
            before, last = float(reached[:-1].min()), reached[-1]
            return (
                bool(state.attempts[state.attempt].sigma is not None)
                and rounds < ROUNDS
                and _lower(last, before, state.scale)
            )
        low = float(reached.min())
        return not np.isfinite(reached).all() or any(_lower(low, value, state.scale) for value in reached)

    def warm(self, mpcc: MPCC) -> tuple[ActiveSet, float]:
        """Return the strategy of the elastic attempt, from a small sigma."""
        elastic = next(attempt for attempt in self.attempts(mpcc) if attempt.name == "elastic")
        return elastic.strategy.warm(mpcc)

    def finalise(self, state: AutoState, status: Status) -> AutoState:
        """Return the best point of all attempts with its final status.

        If the attempts ran out it has its own status, or that of infeasible relaxations.
        """
        inner = state.inner
        if inner.status is None:
            inner = state.attempts[state.attempt].strategy.finalise(inner, status)
        best = better(state.best, inner)
        if best.status is Status.SOLVED:
            status = Status.SOLVED
        elif status not in FINAL:
            # Elastic NLPs are always feasible: slacks that do not vanish mean what others report as infeasible.
            local = Status.LOCALLY_INFEASIBLE in state.verdicts and best.status is Status.NOT_COMPLEMENTARY
            status = Status.LOCALLY_INFEASIBLE if local else best.status or status
        return replace(state, **common(best, *OWN), status=status)

    def _next(self, state: AutoState) -> AutoState:
        number = state.attempt + 1
        attempt = state.attempts[number]
        w = self._perturbed(state, attempt.perturbation, number) if attempt.point is None else attempt.point
        inner = attempt.strategy.init(state.solvers.mpcc, w, state.p, solvers=state.solvers, sigma=attempt.sigma)
        # A feasible point shows its branch: no relaxation first.
        if attempt.point is not None and attempt.sigma is None:
            inner = attempt.strategy.at_branch(inner)
        return replace(state, attempt=number, inner=inner)

    def _perturbed(self, state: AutoState, size: float, number: int) -> np.ndarray:
        if size == 0.0:
            return state.origin
        mpcc = state.solvers.mpcc
        random = np.random.default_rng((self.seed, number))  # independent of how many attempts came before
        reach = size * np.maximum(mpcc.w_scale, np.abs(state.origin))
        return np.clip(state.origin + reach * random.uniform(-1.0, 1.0, reach.size), mpcc.lbw, mpcc.ubw)


def better(one: SolverState | None, other: SolverState) -> SolverState:
    """Return the better state: solved before unsolved, then the lower objective or the smaller residuals."""
    if one is None:
        return other
    if one.status is Status.SOLVED and other.status is Status.SOLVED:
        low, high = sorted((one.values.objective, other.values.objective))
        if not _lower(low, high, by=EQUAL):  # the same optimum: prefer one with a certificate, else the first
            return max(one, other, key=lambda state: bool(state.certificate and state.certificate.b_stationary))
    return min(one, other, key=rank_of)


def rank_of(state: SolverState) -> Rank:
    """Return the rank of a state: solved before unsolved, then the objective or the residuals."""
    missed = 0.0 if state.status is Status.SOLVED else max(state.infeasibility, state.complementarity)
    return Rank.of_point(state.values.objective, missed, 0.0)


def _lower(value: float, than: float, scale: ObjectiveScale = RELATIVE, by: float = SAME_OBJECTIVE) -> bool:
    """Return True if a value is lower by more than a fraction."""
    return value < scale.above(than, -by) if np.isfinite(than) else value < than
