"""The default strategy: several attempts, each from another side, until one is solved.

Without an objective the elastic homotopy with active-set finish and certificate comes first, which is the fastest where
it works; then, because what fails differs from problem to problem, homotopies that steer otherwise; then the same from
perturbed starts. Where all rows are affine linear programs find a feasible branch, or prove that there is none, and
that comes second.

With an objective the first relaxed NLP decides which local optimum is found, and a certificate of stationarity says
nothing about a better one elsewhere. So the plain homotopy of Scholtes comes before the elastic one, and both are run.
Where they disagree, the better point is relaxed again and followed down, as long as that pays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field

from nosnoc_py.mpcc.active_set import ActiveSet, ActiveSetState
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.mpcc.interior import OPTIONS
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.strategy import UNPROVED, SolverState, Strategy, common
from nosnoc_py.status import Status

# A new attempt does not help against these.
FINAL = (Status.SOLVED, Status.INFEASIBLE, Status.TIME_LIMIT, Status.INTERRUPTED, Status.STOPPED)
ENDS = tuple(status for status in FINAL if status is not Status.SOLVED)
# With an objective so many attempts are made, also where the first one is solved.
DESCENTS = 2
# Size of the perturbations, relative to the size of the variables.
PERTURBATION = 0.3
# Objectives of two descents agree, and another descent has paid, from this relative difference on.
SAME = 1e-3
# The point of a relaxed problem at most this infeasible has an objective that can be compared.
FEASIBLE = 1e-6
# The relaxation from which the best point descends again, and how often at most. A larger one forgets the point, a
# smaller one keeps its branch: of 1, .3, .1, .03, .01, .001 this one found the best objective most often.
AGAIN, ROUNDS = 0.1, 3
# Of two objectives that differ by less, relatively, the one with a certificate counts.
EQUAL = 1e-5
# What an attempt's state has and Auto's has of its own.
OWN = ("status", "records", "solvers", "p")
# A branch that shows at a larger residual is too often wrong; an NLP that takes more iterations is worth less than a
# smaller sigma from where it stands, unless it is the first one.
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
    """One attempt: how, and how far from the given start (relative size of a random perturbation).

    With a `point`, which is feasible, its branch is solved and switched from, without a homotopy; with a `sigma`, too,
    the homotopy begins there.
    """

    name: str
    strategy: ActiveSet
    perturbation: float = 0.0
    point: np.ndarray | None = None
    sigma: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AutoState(SolverState):
    """Where the attempts stand.

    Attributes
    ----------
    attempts : tuple of Attempt
    attempt : int
        Number of the attempt under way.
    inner : ActiveSetState
        Its state.
    best : SolverState, optional
        The best point of the attempts that have ended.
    verdicts : tuple of Status
        How they ended.
    objectives : tuple of float
        What they reached; infinite where they are not solved.
    origin : ndarray (n_w,)
        Where the first attempt started.
    nearby : function (SolverState) -> ndarray (n_w,) or None, optional
        Makes another iterate to start from of the best one, where the first descents fail.
    """

    attempts: tuple[Attempt, ...]
    attempt: int
    inner: ActiveSetState
    origin: np.ndarray
    nearby: Nearby | None = None
    best: SolverState | None = None
    verdicts: tuple[Status, ...] = ()
    objectives: tuple[float, ...] = ()


class Auto(Strategy):
    """Attempts by several strategies until one is solved: the default.

    Parameters
    ----------
    restarts : int
        Attempts from perturbed starts, after all strategies have failed from the given one.
    seed : int
        Of the perturbations: same seed, same result.
    ipopt : dict
        Further options of IPOPT by their own names, for all NLPs.
    complementarity_tolerance, infeasibility_tolerance : float
        Success is declared on these residuals of the unrelaxed problem.
    time_limit : float, optional
        Seconds for all attempts together.
    """

    restarts: int = Field(default=8, ge=0)
    seed: int = Field(default=0, ge=0)
    ipopt: dict[str, str | int | float] = Field(default_factory=dict)

    def attempts(self, mpcc: MPCC) -> tuple[Attempt, ...]:
        """What is tried, in this order.

        Without an objective one exact NLP mostly shows the branch; with one the last digits of the first NLPs are
        wasted, and `step_tolerances` leaves them out.
        """
        ipopt = {"perturb_always_cd": "yes", **self.ipopt}
        stepwise: dict[str, Any] = {"step_tolerances": True, "finish_threshold": 1e-2, "ipopt": ipopt}
        elastic = {**ELASTIC, "step_tolerances": not mpcc.objective.is_constant(), "ipopt": ipopt}
        ways = {} if mpcc.objective.is_constant() else {"relaxed": self._relaxed}
        ways |= {
            "elastic": Homotopy(**elastic),
            "elastic from afar": Homotopy(**elastic, sigma_0=10.0),
            "L-shaped": Homotopy(relaxation="kanzow_schwartz", max_iterations=200, **stepwise),
            "stepwise": Homotopy(rises=3, **stepwise),
            "direct": Homotopy(finish_threshold=1e-2, ipopt=ipopt),
        }
        first = [Attempt(name, ActiveSet(homotopy=way, **self.tolerances)) for name, way in ways.items()]
        turn = first[1:] + first[:1]  # a moved start has no branch to lose, which the plain homotopy is slow to find
        again = [replace(turn[k % len(turn)], perturbation=PERTURBATION) for k in range(self.restarts)]
        return (*first, *again)

    @property
    def _relaxed(self) -> Homotopy:
        """The homotopy of Scholtes from a large sigma, every NLP solved to the end."""
        known = {name: value for name, value in self.ipopt.items() if name in OPTIONS}
        return Homotopy(nlp_solver="interior_point", ipopt=known)

    def init(self, *args: Any, nearby: Nearby | None = None, **options: Any) -> AutoState:
        """Return the state before the first step.

        Parameters
        ----------
        *args, **options
            See `Strategy.init`.
        nearby : function (SolverState) -> ndarray (n_w,) or None, optional
            Is asked where the first descents fail: from their best state it makes an iterate that satisfies most
            equations, such as the simulation of its control. That one is tried from a small sigma.
        """
        return replace(super().init(*args, **options), nearby=nearby)

    def begin(self, fields: Mapping[str, Any], sigma: float | None) -> AutoState:
        """The state before the first attempt; `sigma` replaces its sigma_0."""
        attempts = self.attempts(fields["solvers"].mpcc)
        inner = attempts[0].strategy.begin(fields, sigma)
        return AutoState(**fields, attempts=attempts, attempt=0, inner=inner, origin=fields["w"])

    def advance(self, state: AutoState, deadline: float) -> AutoState:
        """One step of the attempt under way, or the first one of the next."""
        if state.inner.status is not None:
            state = self._next(state)
        attempt = state.attempts[state.attempt]
        inner = attempt.strategy.step(state.inner, deadline=deadline)
        if inner.status is not None:  # what is proved spares the other attempts
            inner = attempt.strategy.conclude(inner, deadline)
        new = inner.records[len(state.inner.records) :]
        named = tuple(
            replace(line, step=state.step + k, label=f"{attempt.name}: {line.label}") for k, line in enumerate(new)
        )
        state = replace(state, inner=inner, **common(inner, *OWN), records=(*state.records, *named))
        if inner.status is None and self._is_behind(state, inner):
            inner = replace(inner, status=Status.NOT_AN_OPTIMUM)
            state = replace(state, inner=inner)
        if inner.status is None:
            return state
        solved = inner.status in (Status.SOLVED, Status.NOT_AN_OPTIMUM)
        reached = inner.values.objective if solved else np.inf
        state = replace(
            state,
            best=better(state.best, inner),
            verdicts=(*state.verdicts, inner.status),
            objectives=(*state.objectives, reached),
        )
        state = self._with_nearby(self._with_feasible_branch(state, attempt, deadline))
        further = self._further(state, inner)
        return self.settle(state, inner.status) if further is None else replace(state, attempts=further)

    @staticmethod
    def _is_behind(state: AutoState, inner: ActiveSetState) -> bool:
        """A relaxed problem is solved already at a higher objective than the best solution: it hardly falls again."""
        best, relaxed = state.best, inner.homotopy
        if best is None or best.status is not Status.SOLVED or relaxed.status is not None:
            return False
        solved = relaxed.converged and relaxed.infeasibility <= FEASIBLE
        return solved and _lower(best.values.objective, relaxed.values.objective)

    def _with_feasible_branch(self, state: AutoState, last: Attempt, deadline: float) -> AutoState:
        """After the first attempt, if it has failed: next comes the branch that linear programs have found."""
        proofs = state.solvers.proofs
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
        """All attempts, those to come included; None where there is nothing left to do.

        A solved point without a verdict of the LPEC is only nearly complementary, and the next attempt may be; no
        restart is worth it.
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
                    return (*done, Attempt("relaxed again", again, point=best.w, sigma=AGAIN), *left)
            judged = best.certificate is not None and best.certificate.b_stationary is not None
            if judged or not left or left[0].perturbation > 0.0:
                return None
        return state.attempts if left else None

    def _pays(self, state: AutoState) -> bool:
        """Another descent from the best point is worth its time: the last one was, or the first ones disagree."""
        rounds, reached = sum(attempt.sigma is not None for attempt in state.attempts), np.array(state.objectives)
        if rounds:
            before, last = float(reached[:-1].min()), reached[-1]
            return bool(state.attempts[state.attempt].sigma is not None) and rounds < ROUNDS and _lower(last, before)
        low = float(reached.min())
        return not np.isfinite(reached).all() or any(_lower(low, value) for value in reached)

    def warm(self, mpcc: MPCC) -> tuple[ActiveSet, float]:
        """The elastic attempt alone, from a small sigma."""
        elastic = next(attempt for attempt in self.attempts(mpcc) if attempt.name == "elastic")
        return elastic.strategy.warm(mpcc)

    def settle(self, state: AutoState, status: Status) -> AutoState:
        """The best point of all attempts; if they ran out, its own status, or that of infeasible relaxations."""
        inner = state.inner
        if inner.status is None:
            inner = state.attempts[state.attempt].strategy.settle(inner, status)
        best = better(state.best, inner)
        if best.status is Status.SOLVED:
            status = Status.SOLVED
        elif status not in FINAL:
            # An elastic homotopy is always feasible; that its slacks do not vanish says the same as the others' word.
            local = Status.LOCALLY_INFEASIBLE in state.verdicts and best.status is Status.NOT_COMPLEMENTARY
            status = Status.LOCALLY_INFEASIBLE if local else best.status or status
        return replace(state, **common(best, *OWN), status=status)

    def _next(self, state: AutoState) -> AutoState:
        number = state.attempt + 1
        attempt = state.attempts[number]
        w = self._perturbed(state, attempt.perturbation, number) if attempt.point is None else attempt.point
        inner = attempt.strategy.init(state.solvers.mpcc, w, state.p, solvers=state.solvers, sigma=attempt.sigma)
        if attempt.point is not None and attempt.sigma is None:
            inner = attempt.strategy.at_branch(inner)
        return replace(state, attempt=number, inner=inner)

    def _perturbed(self, state: AutoState, size: float, number: int) -> np.ndarray:
        if size == 0.0:
            return state.origin
        mpcc = state.solvers.mpcc
        random = np.random.default_rng((self.seed, number))
        reach = size * np.maximum(mpcc.w_scale, np.abs(state.origin))
        return np.clip(state.origin + reach * random.uniform(-1.0, 1.0, reach.size), mpcc.lbw, mpcc.ubw)


def better(one: SolverState | None, other: SolverState) -> SolverState:
    """A solved state wins, of two the one with the lower objective; else the state with the smaller residuals."""
    if one is None:
        return other
    if one.status is Status.SOLVED and other.status is Status.SOLVED:
        low, high = sorted((one.values.objective, other.values.objective))
        if not _lower(low, high, EQUAL):  # the same optimum: one with a certificate, of two the first
            return max(one, other, key=lambda state: bool(state.certificate and state.certificate.b_stationary))
    return min(one, other, key=_merit)


def _lower(value: float, than: float, by: float = SAME) -> bool:
    """Lower by more than a fraction."""
    return bool(value < than - by * max(1e-8, abs(than)))


def _merit(state: SolverState) -> tuple[bool, float]:
    if state.status is Status.SOLVED:
        return False, state.values.objective
    return True, max(state.infeasibility, state.complementarity)
