"""Re-solve a program after a small change of its parameters (model predictive control).

1. Solve on the branch of the last solution, from its multipliers: a few iterations of the interior-point method.
2. If that branch fails, or its objective is far above the expected one, try branches that were prepared for nearby
   parameters.
3. Then try branches that differ in one event, those first whose quadratic programs promise most (`neighbours`). They
   come before the kept branch where its linearised equations contradict the parameters.
4. Otherwise solve the relaxed problem (Scholtes, sigma = `SIGMA`) from its known primal-dual solution. Its solutions
   depend smoothly on the parameters also where the MPCC changes its branch; the branch that it shows is solved next.
5. If nothing is solved, try neighbours that promise little, and those in the first elements whose linearised equations
   contradict each other.
6. Otherwise run a short homotopy from a relaxation that stays near the iterate.

`Neighbourhood` holds what steps 2 to 4 need; it is computed in advance, while the parameters are still unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any

import numpy as np

from nosnoc_py.mpcc.auto import better
from nosnoc_py.mpcc.homotopy import Homotopy, HomotopyState
from nosnoc_py.mpcc.ipopt import NLPResult, NLPSolver
from nosnoc_py.mpcc.neighbours import Neighbours
from nosnoc_py.mpcc.nlp import NLP
from nosnoc_py.mpcc.strategy import Solvers, SolverState, Strategy, start
from nosnoc_py.solution.records import SolvedBranch
from nosnoc_py.status import Status, seconds_to

Array = np.ndarray
# Origin of an answer: the branch of the last solution, a neighbouring branch, a new run of the solver, or a solution
# that was computed in advance.
KEPT, NEIGHBOUR, FALLBACK, PREPARED = "kept", "neighbour", "fallback", "prepared"
# Relaxation parameter of the relaxed problem: larger ones show the branch less clearly, smaller ones are less smooth in
# the parameters.
SIGMA = 1e-5
# A branch is rejected if its objective exceeds the expected one by more than this fraction.
ABOVE = 0.5
# First relaxation parameter and iterations per NLP of a homotopy that looks for another branch: close to the one that
# failed, and, with more time, for a better optimum anywhere. A better optimum has to be better by the fraction
# LEAST_GAIN.
NEARBY, ELSEWHERE, ANYWHERE = (1e-2, 80), (1e-1, 200), (1.0, 500)
LEAST_GAIN = 1e-3
# A prepared branch is tried before the last one if the parameters have moved by more than this part of its step towards
# it; number of further prepared branches that are tried.
HALFWAY, TRIES = 0.5, 2
# Options of the relaxed problem: its multipliers are a start and no result, so that 1e-6 is enough.
RELAXED: Mapping[str, Any] = {
    **dict.fromkeys(("tol", "compl_inf_tol", "acceptable_tol"), 1e-6),
    "dual_inf_tol": 1.0,
    "constr_viol_tol": 1e-7,
    "mu_init": 1e-2,
    "mu_warm": 1e-4,
    "bound_push": 1e-4,
    "bound_frac": 1e-4,
    "max_iter": 40,
}


@dataclass(frozen=True, eq=False)
class NeighbouringSolution:
    """Solution on another branch, for parameters that are `step` (n_p,) away."""

    step: Array
    w: Array
    solved: SolvedBranch


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Neighbourhood of a solution in the parameters, computed before the next parameters are known.

    Attributes
    ----------
    result : NLPResult, optional
        Solution of the relaxed problem, with its multipliers.
    p : (n_p,)
        Its parameters.
    objective, slope : float, (n_p,)
        Its objective and the derivative of that by the parameters.
    others : tuple of NeighbouringSolution
        Solutions on other branches, for parameters nearby.
    excesses : tuple of (step, float, int)
        For steps of the parameters: by how much the objective is above its derivative there, and the power with which
        that grows: 2 where both directions are known, 1 where there is a solution on one side only, beside a kink.
    beside : Neighbours, optional
        Programs of the branches that differ in one event.
    """

    result: NLPResult | None
    p: Array
    objective: float
    slope: Array
    others: tuple[NeighbouringSolution, ...] = ()
    excesses: tuple[tuple[Array, float, int], ...] = ()
    beside: Neighbours | None = None

    def ranked(self, p: Array) -> list[tuple[float, NeighbouringSolution]]:
        """Return other branches with the distance of p towards them in units of their steps; the largest first."""
        distances = [float((p - self.p) @ other.step / (other.step @ other.step)) for other in self.others]
        # Sorted by index: the solutions themselves have no order.
        order = sorted(range(len(distances)), key=lambda k: -distances[k])
        return [(distances[k], self.others[k]) for k in order]

    def expected(self, p: Array) -> float:
        """Return the objective for other parameters, to first order, and by differences as far as they are known."""
        moved = p - self.p
        bent = sum(excess * max(0.0, moved @ step / (step @ step)) ** power for step, excess, power in self.excesses)
        return float(self.objective + self.slope @ moved + bent)

    def acceptable(self, p: Array) -> float:
        """Return the largest objective that is about as good as expected."""
        return above(self.expected(p), abs(self.objective))


@dataclass(frozen=True, eq=False)
class Resolve:
    """Solver of a program for one set of parameters.

    Attributes
    ----------
    solvers : Solvers
    p : (n_p,)
    strategy : Strategy
        Its tolerances apply.
    deadline : float
        time.monotonic() stamp.
    """

    solvers: Solvers
    p: Array
    strategy: Strategy
    deadline: float = np.inf

    def at(self, w: Array) -> SolverState:
        """Return the state at an iterate."""
        return SolverState(**start(self.solvers.mpcc, w, self.p, self.solvers, False))

    def solve_on_branch(self, w: Array, solved: SolvedBranch) -> SolverState:
        """Solve on the branch of an earlier solution; the status is SOLVED if the residuals of the MPCC are small."""
        return self._on_branch(self.at(w), solved)

    def solve_on_shown_branch(self, w: Array) -> SolverState:
        """Solve on the branch that an iterate shows."""
        return self._on_branch(self.at(w), None)

    def solve_relaxed_first(self, known: Neighbourhood) -> SolverState | None:
        """Solve the relaxed problem from its solution for other parameters, then the branch that it shows.

        None without a solution of it.
        """
        scale, result = self.solvers.mpcc.w_scale, known.result
        if result is None:
            return None
        relaxed = self._relaxed(result.x, **result.duals)
        if not np.isfinite(relaxed.x).all():
            return self.at(result.x * scale)
        return self._on_branch(self.at(relaxed.x * scale), None, relaxed.iterations)

    def solve_nearest(self, w: Array, solved: SolvedBranch, known: Neighbourhood | None) -> tuple[SolverState, str]:
        """Solve on the last branch or a neighbouring one; return the state and its origin.

        The state has no status if all of them fail.
        """
        beside = cache(lambda: self._neighbours(w, solved, known))  # only where it is needed: it takes time
        tried: list[tuple[SolverState, str]] = []
        for at, branch in self._attempts(w, solved, known, beside):
            state = self.solve_on_branch(at, branch)
            tried.append((state, KEPT if branch is solved else NEIGHBOUR))
            if self._is_expected(state, known):
                return tried[-1]
        if known is not None:
            # The relaxed problem comes after the prepared branches: it costs an NLP to find the branch and one to solve
            # on it.
            relaxed = self.solve_relaxed_first(known)
            tried += [] if relaxed is None else [(relaxed, NEIGHBOUR)]
        if best_of([state for state, _ in tried]) is None:
            for at, branch in self._last_attempts(beside(), known):
                tried.append((self.solve_on_branch(at, branch), NEIGHBOUR))
                if self._is_expected(tried[-1][0], known):
                    return tried[-1]
            # What is solved now is far from what was expected: it counts if nothing better is found in time.
            tried.append((self.descend(w, *NEARBY), NEIGHBOUR))
        best = best_of([state for state, _ in tried])
        return next(((state, how) for state, how in tried if state is best), tried[-1])

    def _attempts(
        self,
        w: Array,
        solved: SolvedBranch,
        known: Neighbourhood | None,
        beside: Callable[[], Neighbours | None],
    ) -> Iterator[tuple[Array, SolvedBranch]]:
        """Yield starts and branches of NLPs, one after the other: later ones are only looked for if they are needed."""
        ranked = [] if known is None else known.ranked(self.p)
        first = [(other.w, other.solved) for distance, other in ranked if distance > HALFWAY]
        then = [(other.w, other.solved) for distance, other in ranked if 0.0 < distance <= HALFWAY]
        yield from first[:1]
        kept = [(w, solved), *(*first[1:], *then)[:TRIES]]
        # The NLP of a branch that contradicts the parameters takes many iterations to fail: others come first.
        is_prepared = known is not None and known.beside is not None
        around = beside() if is_prepared else None
        early = around is not None and not around.kept.at(self.p).found
        if not early:
            yield from kept
            around = beside()
        if around is not None:
            # Nobody has prepared what to expect: the objective of the last solution counts.
            most = above(around.objective) if known is None else known.acceptable(self.p)
            yield from ((at, branch) for objective, at, branch in around.promising(self.p) if objective <= most)
        if early:
            yield from kept

    def _last_attempts(
        self, around: Neighbours | None, known: Neighbourhood | None
    ) -> Iterator[tuple[Array, SolvedBranch]]:
        """Yield what is left of the branches around: those that promise little, and those that are contradicted."""
        if around is None:
            return
        if known is not None:
            most = known.acceptable(self.p)
            yield from ((at, branch) for objective, at, branch in around.promising(self.p) if objective > most)
        yield from around.contradicted(self.p)

    def _neighbours(self, w: Array, solved: SolvedBranch, known: Neighbourhood | None) -> Neighbours | None:
        """Return the prepared programs of other branches, or those around an iterate for these parameters."""
        if known is not None and known.beside is not None and known.beside.fits(self.p):
            return known.beside
        return None if time.monotonic() > self.deadline else self.beside(w, solved, np.zeros(0, int))

    def beside(self, w: Array, solved: SolvedBranch, columns: Array) -> Neighbours | None:
        """Return the programs of the branches beside that of an iterate for parameters that change in some columns."""
        return Neighbours.of(self.solvers.finish({}), self.solvers.evaluator(w, self.p), self.p, solved, columns)

    def prepare(
        self, w: Array, solved: SolvedBranch, steps: list[Array]
    ) -> tuple[SolverState | None, Neighbourhood | None]:
        """Return the best solution found from an iterate and its neighbourhood; None if there is none.

        The longest computation, a homotopy from a large relaxation, comes last: it is left out if the time is over.
        """
        best = best_of([self.solve_on_branch(w, solved), self.descend(w, *ELSEWHERE)])
        known = None if best is None else self._around(best, steps)
        if time.monotonic() < self.deadline:
            last = self.descend(w, *ANYWHERE)
            # Without a clear gain the branch stays: changing it gives the controller another motion for nothing.
            gained = best is None or last.values.objective < best.values.objective - LEAST_GAIN * abs(
                best.values.objective
            )
            if last.status is Status.SOLVED and gained:
                return last, self._around(last, steps)
        return best, known

    def _around(self, state: SolverState, steps: list[Array]) -> Neighbourhood | None:
        """Return the relaxed problem near a solution, and the branches for parameters some steps away."""
        known = self._known(state)
        if state.solved_branch is None:
            return known
        moving = np.flatnonzero(np.any([step != 0.0 for step in steps], axis=0)) if steps else np.zeros(0, int)
        beside = None
        if moving.size and time.monotonic() < self.deadline:
            beside = self.beside(state.w, state.solved_branch, moving)
        if known is None:
            if beside is None:
                return None
            # Without a solution of the relaxed problem, the multipliers of the branch say what to expect.
            known = Neighbourhood(None, self.p, beside.objective, beside.slope)
        others, excess = list[NeighbouringSolution](), dict[tuple[float, ...], float]()
        for step in steps:
            if time.monotonic() > self.deadline:
                break
            there = replace(self, p=self.p + step)
            solution = there.solve_on_branch(state.w, state.solved_branch)
            if not there._is_expected(solution, known):
                solution = best_of([solution, there.solve_relaxed_first(known)]) or solution
            if solution.status is not Status.SOLVED:
                continue
            excess[tuple(step)] = max(0.0, solution.values.objective - known.expected(there.p))
            branch = solution.solved_branch
            if branch is not None and not _same(branch, state.solved_branch):
                others.append(NeighbouringSolution(step, solution.w, branch))
        excesses = list[tuple[Array, float, int]]()
        for step in steps:
            here, there_too = excess.get(tuple(step)), excess.get(tuple(-step))
            if here is not None:
                # The smaller one of two directions: the solution in the other one may be far from the best.
                excesses.append((step, here, 1) if there_too is None else (step, min(here, there_too), 2))
        return replace(known, others=tuple(others), excesses=tuple(excesses), beside=beside and beside.prepared())

    def _is_expected(self, state: SolverState, known: Neighbourhood | None) -> bool:
        """Return True if a solution is about as good as the relaxed problem predicts for these parameters.

        A branch may be feasible and yet far from the best one: if a speed has changed its sign, it may take a large
        control to restore the sign in time.
        """
        good = state.status is Status.SOLVED
        return good and (known is None or state.values.objective <= known.acceptable(self.p))

    def descend(self, w: Array, sigma: float, iterations: int) -> SolverState:
        """Run a homotopy from relaxation parameter sigma with at most `iterations` per NLP."""
        homotopy = Homotopy(
            nlp_solver="interior_point", sigma_0=sigma, max_iterations=iterations, **self.strategy.tolerances
        )
        state: SolverState = homotopy.run(
            self.solvers.mpcc, w, self.p, solvers=self.solvers, time_limit=seconds_to(self.deadline)
        )
        return state if state.status is Status.SOLVED else replace(state, status=None)

    def _known(self, state: SolverState) -> Neighbourhood | None:
        """Solve the relaxed problem near a solution, starting from the last NLP of its homotopy if there was one."""
        scale, dual = self.solvers.mpcc.w_scale, state.dual if isinstance(state, HomotopyState) else None
        # Its last NLP had a sigma near SIGMA, so that its multipliers are nearly those of this one.
        relaxed = self._relaxed(state.w / scale) if dual is None else self._relaxed(dual.x, **dual.duals)
        if not relaxed.converged:
            return None
        f, slope = self._nlp.slope_function(relaxed.x, self._with_sigma, relaxed.lam_g)
        return Neighbourhood(relaxed, self.p, float(f), np.asarray(slope).reshape(-1)[: self.p.size])

    def _on_branch(self, state: SolverState, solved: SolvedBranch | None, before: int = 0) -> SolverState:
        started = time.monotonic()
        outcome = self.solvers.finish({}).again(state.w, self.p, self.deadline, solved)
        done = state.moved_to(outcome)
        log: dict[str, Any] = {"iterations": before + outcome.iterations, "word": outcome.solver_status}
        label = "branch nearby" if solved is None else "same branch"
        done = done.with_record(label, seconds=time.monotonic() - started, **log)
        # A converged NLP of a wrong branch violates inequalities of the MPCC.
        good = outcome.converged and self.strategy.residuals_small(done)
        return replace(done, status=Status.SOLVED if good else None)

    def _relaxed(self, x: Array, **duals: Array) -> NLPResult:
        return self._solver.solve(x, self._with_sigma, **duals, deadline=self.deadline)

    @property
    def _solver(self) -> NLPSolver:
        return self.solvers.relaxed("scholtes", "direct", RELAXED, "interior_point")

    @property
    def _nlp(self) -> NLP:
        nlp: NLP = self._solver.nlp
        return nlp

    @property
    def _with_sigma(self) -> Array:
        return np.concatenate([self.p, [1.0, SIGMA]])


def above(objective: float, least: float = 0.0) -> float:
    """Return the largest objective that is about as good as this one; differences of `least` do not count."""
    return objective + ABOVE * max(abs(objective), least)


def _same(one: SolvedBranch, other: SolvedBranch) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("G", "H", "r"))


def best_of(states: Sequence[SolverState | None]) -> SolverState | None:
    """Return the solved state with the lowest objective, None if no state is solved."""
    return reduce(better, (state for state in states if state is not None and state.status is Status.SOLVED), None)
