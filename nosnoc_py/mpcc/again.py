"""Solving a program again, for parameters that have changed a little.

First on the branch that was there. Where it does not hold, a relaxed problem shows one beside it: its solutions move
smoothly where those of the program change their branch, so that from a solution of it that is known for parameters
nearby, primal and dual, a few iterations are enough.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nosnoc_py.mpcc.auto import better
from nosnoc_py.mpcc.homotopy import Homotopy, HomotopyState
from nosnoc_py.mpcc.ipopt import NLPResult, NLPSolver
from nosnoc_py.mpcc.nlp import NLP
from nosnoc_py.mpcc.strategy import Solvers, SolverState, Strategy, start
from nosnoc_py.solution.records import SolvedBranch
from nosnoc_py.status import Status

Array = np.ndarray
# How an answer was found: on the branch that was there, on one nearby, by the solver that starts anew, or in advance.
KEPT, NEIGHBOUR, FALLBACK, PREPARED = "kept", "neighbour", "fallback", "prepared"
# The relaxation whose solution is kept: a larger one shows the branch less clearly, a smaller one is less smooth.
SIGMA = 1e-5
# A branch is not believed to be the best one where its objective is above what is expected by more than this.
ABOVE = 0.5
# The relaxations from which a neighbour is looked for, with the iterations of a program: near the branch that has
# failed, and, with more time, to find a better optimum, which has to be better by GAIN.
NEARBY, ELSEWHERE, ANYWHERE = (1e-2, 80), (1e-1, 200), (1.0, 500)
GAIN = 1e-3
# From this part of a step on another branch is tried before the one that was there; how many more are.
HALFWAY, TRIES = 0.5, 2
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
class Other:
    """A solution on another branch, for parameters that are a step away."""

    step: Array
    w: Array
    solved: SolvedBranch


@dataclass(frozen=True, eq=False)
class Prepared:
    """What is known around a solution before the parameters are.

    The solution of a relaxed problem with its multipliers, the parameters, its objective and the slope of that by
    these; and branches beside the one that was solved.
    """

    result: NLPResult
    p: Array
    objective: float
    slope: Array
    others: tuple[Other, ...] = ()

    def ranked(self, p: Array) -> list[tuple[float, Other]]:
        """Other branches with how far the parameters lie towards them, in their steps; the farthest first."""
        ways = [float((p - self.p) @ other.step / (other.step @ other.step)) for other in self.others]
        order = sorted(range(len(ways)), key=lambda k: -ways[k])
        return [(ways[k], self.others[k]) for k in order]

    def expected(self, p: Array) -> float:
        """The objective for other parameters, to first order."""
        return float(self.objective + self.slope @ (p - self.p))


@dataclass(frozen=True, eq=False)
class Program:
    """A program with the parameters at hand, how exactly it is to be solved, and until when (time.monotonic())."""

    solvers: Solvers
    p: Array
    strategy: Strategy
    deadline: float = np.inf

    def at(self, w: Array) -> SolverState:
        """The state at an iterate."""
        return SolverState(**start(self.solvers.mpcc, w, self.p, self.solvers, False))

    def kept(self, w: Array, solved: SolvedBranch) -> SolverState:
        """Solve on the branch of an earlier solution; SOLVED where the residuals of the program say so."""
        return self._on_branch(self.at(w), solved)

    def shown(self, w: Array) -> SolverState:
        """Solve on the branch that an iterate shows."""
        return self._on_branch(self.at(w), None)

    def beside(self, known: Prepared) -> SolverState:
        """Solve on the branch that a relaxed problem shows, whose solution for other parameters is known."""
        scale, result = self.solvers.mpcc.w_scale, known.result
        found = self._relaxed(result.x, **result.duals)
        if not np.isfinite(found.x).all():
            return self.at(result.x * scale)
        return self._on_branch(self.at(found.x * scale), None, found.iterations)

    def nearest(self, w: Array, solved: SolvedBranch, known: Prepared | None) -> tuple[SolverState, str]:
        """The branch that was there or one beside it, and which; a state without a status where neither is found."""
        ranked = [] if known is None else known.ranked(self.p)
        first = [(other.w, other.solved) for way, other in ranked if way > HALFWAY]
        then = [(other.w, other.solved) for way, other in ranked if 0.0 < way <= HALFWAY]
        tried: list[tuple[SolverState, str]] = []
        for at, branch in (*first[:1], (w, solved), *(*first[1:], *then)[:TRIES]):
            state = self.kept(at, branch)
            tried.append((state, KEPT if branch is solved else NEIGHBOUR))
            if self._is_expected(state, known):
                return tried[-1]
        if known is not None:
            tried.append((self.beside(known), NEIGHBOUR))
        best = best_of([state for state, _ in tried])
        if best is None:
            return self.descended(w, *NEARBY), NEIGHBOUR
        return next((state, how) for state, how in tried if state is best)

    def prepared(
        self, w: Array, solved: SolvedBranch, steps: list[Array]
    ) -> tuple[SolverState | None, Prepared | None]:
        """The best solution that is found from an iterate, and what to know around it; None where none is found.

        What takes longest comes last, in case that the time is over: a descent that may end anywhere.
        """
        best = best_of([self.kept(w, solved), self.descended(w, *ELSEWHERE)])
        known = None if best is None else self._around(best, steps)
        if time.monotonic() < self.deadline:
            last = self.descended(w, *ANYWHERE)
            gained = best is None or last.values.objective < best.values.objective - GAIN * abs(best.values.objective)
            if last.status is Status.SOLVED and gained:
                return last, self._around(last, steps)
        return best, known

    def _around(self, state: SolverState, steps: list[Array]) -> Prepared | None:
        """A relaxed problem beside a solution, and the branches some steps away."""
        known = self._known(state)
        if known is None or state.solved_branch is None:
            return known
        others: list[Other] = []
        for step in steps:
            if time.monotonic() > self.deadline:
                break
            there = replace(self, p=self.p + step)
            found = there.kept(state.w, state.solved_branch)
            if not there._is_expected(found, known):
                found = best_of([found, there.beside(known)]) or found
            branch = found.solved_branch
            if found.status is Status.SOLVED and branch is not None and not _same(branch, state.solved_branch):
                others.append(Other(step, found.w, branch))
        return replace(known, others=tuple(others))

    def _is_expected(self, state: SolverState, known: Prepared | None) -> bool:
        """Whether a solution is about as good as the relaxed problem lets one expect for these parameters.

        A branch may hold and yet be far from the best: where a speed has changed its sign it may take much effort to
        bring it back in time.
        """
        if state.status is not Status.SOLVED or known is None:
            return state.status is Status.SOLVED
        expected = known.expected(self.p)
        return state.values.objective <= expected + ABOVE * max(abs(expected), abs(known.objective))

    def descended(self, w: Array, sigma: float, iterations: int) -> SolverState:
        """A homotopy from a relaxation that keeps near the iterate, with so many iterations for a program at most."""
        left = None if np.isinf(self.deadline) else max(0.0, self.deadline - time.monotonic())
        homotopy = Homotopy(
            nlp_solver="interior_point", sigma_0=sigma, max_iterations=iterations, **self.strategy.tolerances
        )
        state: SolverState = homotopy.run(self.solvers.mpcc, w, self.p, solvers=self.solvers, time_limit=left)
        return state if state.status is Status.SOLVED else replace(state, status=None)

    def _known(self, state: SolverState) -> Prepared | None:
        """A relaxed problem solved beside a solution, from the last one of the homotopy that led there."""
        scale, dual = self.solvers.mpcc.w_scale, state.dual if isinstance(state, HomotopyState) else None
        found = self._relaxed(state.w / scale) if dual is None else self._relaxed(dual.x, **dual.duals)
        if not found.converged:
            return None
        f, slope = self._nlp.slope_function(found.x, self._with_sigma, found.lam_g)
        return Prepared(found, self.p, float(f), np.asarray(slope).reshape(-1)[: self.p.size])

    def _on_branch(self, state: SolverState, solved: SolvedBranch | None, before: int = 0) -> SolverState:
        started = time.monotonic()
        outcome = self.solvers.finish({}).again(state.w, self.p, self.deadline, solved)
        done = state.landed(outcome)
        said: dict[str, Any] = {"iterations": before + outcome.iterations, "word": outcome.solver_status}
        label = "branch nearby" if solved is None else "same branch"
        done = done.logged(label, seconds=time.monotonic() - started, **said)
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


def _same(one: SolvedBranch, other: SolvedBranch) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("G", "H", "r"))


def best_of(states: list[SolverState]) -> SolverState | None:
    """Of the states that are solved the one with the least objective."""
    found: SolverState | None = None
    for state in states:
        if state.status is Status.SOLVED:
            found = better(found, state)
    return found
