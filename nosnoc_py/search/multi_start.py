"""Many descents, the best motion polished on the finite elements.

A descent is BFGS, projected on bounds, for an objective that is smooth in pieces and may be infinite.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field

from nosnoc_py.discretization.options import FESDJ
from nosnoc_py.errors import OptionError, check_type
from nosnoc_py.mpcc.auto import better
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.mpcc.strategy import Callback, SolverState
from nosnoc_py.ocp import OCP
from nosnoc_py.options import Options, strictest
from nosnoc_py.quasi_newton import bfgs
from nosnoc_py.search.rollouts import Rollout, Rollouts
from nosnoc_py.simulation.common import SimulationTask
from nosnoc_py.simulation.fesd import FiniteElementRun
from nosnoc_py.simulation.newton.contact_filling import is_exact
from nosnoc_py.solution import Solution
from nosnoc_py.solution.records import StepRecord
from nosnoc_py.status import Status, asked_to_stop
from nosnoc_py.systems.controls import control_of_guess
from nosnoc_py.transcription import transcribe

# Motions that are solved on the finite elements, of which the best is the result.
POLISHED = 3
# Solves on the finite elements.
POLISH = Homotopy(steering="direct", sigma_0=1e-3, ipopt={"max_iter": 300}, max_iterations=500)
# Of squared constraint violations while shooting.
CONSTRAINT_WEIGHT = 1e3
# A step has to achieve this part of what the gradient promises.
ARMIJO = 1e-4
HALVINGS = 20
# A search ends where this many iterations gained less than that part of the objective.
PATIENCE, GAIN = 8, 1e-5


def descend(
    rollouts: Rollouts,
    u: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    iterations: int,
    report: Callable[[Rollout], bool],
) -> tuple[np.ndarray, Rollout]:
    """BFGS with projection on bounds (n_u,) from a control u (N, n_u); `report` sees every iterate and may end it."""
    low, high = (np.broadcast_to(bound, u.shape).reshape(-1) for bound in bounds)
    here = rollouts(u)
    if here.w is None:
        return u, here
    gradient = rollouts.gradient(here)
    inverse: np.ndarray | None = None
    past = [here.objective]
    for _ in range(iterations):
        flat = u.reshape(-1)
        stuck = ((flat <= low) & (gradient > 0)) | ((flat >= high) & (gradient < 0))
        direction = _direction(inverse, gradient, stuck)
        if direction is None:
            inverse, direction = None, _direction(None, gradient, stuck)
        found = None if direction is None else _line_search(rollouts, u, here, gradient, direction, (low, high))
        if found is None and inverse is None:
            break
        if found is None:
            inverse = None
            continue
        new, there = found
        slope = rollouts.gradient(there)
        inverse = bfgs(inverse, (new - u).reshape(-1), slope - gradient)
        u, here, gradient = new, there, slope
        past.append(here.objective)
        slow = len(past) > PATIENCE and past[-1 - PATIENCE] - past[-1] < GAIN * abs(past[-1])
        if report(here) or slow:
            break
    return u, here


def _direction(inverse: np.ndarray | None, gradient: np.ndarray, stuck: np.ndarray) -> np.ndarray | None:
    """Minus the inverse Hessian times the gradient, over what is free; None where that does not descend."""
    free = np.where(stuck, 0.0, gradient)
    size = float(np.abs(free).max(initial=0.0))
    if size == 0.0 or not np.isfinite(size):
        return None
    direction = -free / size if inverse is None else np.where(stuck, 0.0, -inverse @ free)
    return direction if direction @ gradient < 0 else None


def _line_search(
    rollouts: Rollouts,
    u: np.ndarray,
    here: Rollout,
    gradient: np.ndarray,
    direction: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, Rollout] | None:
    """The first of ever shorter steps that descends enough; a simulation that fails is no descent."""
    size = 1.0
    for _ in range(HALVINGS):
        new = np.clip(u.reshape(-1) + size * direction, *bounds)
        there = rollouts(new.reshape(u.shape))
        if there.objective < here.objective + ARMIJO * min(0.0, gradient @ (new - u.reshape(-1))):
            return new.reshape(u.shape), there
        size *= 0.5
    return None


class MultiStart(Options):
    """Find a good motion by shooting from several controls, then solve on the finite elements from there.

    For any `CLS` with a fixed initial state. Every start is a descent (BFGS with exact derivatives) from the best of
    some random controls; the first one starts from the guess, or from what a rough homotopy makes of rest. The best
    motions become iterates of the MPCC, are solved on their branch, and where that fails by a homotopy from a small
    sigma. The result is an ordinary solution of the transcribed problem, judged and certified as such.

    Parameters
    ----------
    starts : int
        Descents from the guess and from random controls.
    kicks : int
        Further descents, each from the best of some random changes of the best control so far.
    candidates : int
        Random controls of which each descent takes the best one.
    iterations : int
        Iterations of each descent.
    elements : int
        Finite elements per control stage in the simulations: one more than the events that may fall into one stage.
    spread : float
        Size of the random controls, relative to their bounds (to nominal values where there are none).
    rough : Homotopy
        Without a guess, the control of its last relaxed problem is where the first descent starts.
    seed : int
    time_limit : float, optional
        Seconds for everything.
    """

    starts: int = Field(default=6, ge=1)
    kicks: int = Field(default=4, ge=0)
    candidates: int = Field(default=4, ge=1)
    iterations: int = Field(default=200, ge=0)
    elements: int = Field(default=3, ge=1)
    spread: float = Field(default=1.0, gt=0)
    rough: Homotopy = Field(
        default_factory=lambda: Homotopy(steering="direct", sigma_min=1e-2, finish="none", max_iterations=500)
    )
    seed: int = 0
    time_limit: float | None = Field(default=None, ge=0)

    def solve(
        self,
        ocp: OCP,
        method: Any,
        *,
        guess: Any = None,
        callback: Callback | None = None,
        time_limit: float | None = None,
    ) -> Solution:
        """Search and polish; see `nosnoc_py.solve`.

        Raises
        ------
        OptionError
            If the initial state is free, the method is not FESD-J, or its friction cone is not Coulomb's.
        """
        check_type(method, FESDJ, "method")
        started = time.monotonic()
        limit = strictest(time_limit, self.time_limit)
        search = _BranchSearch(self, ocp, method, callback, started + limit)
        return search.run(guess, started)


@dataclass(frozen=True, eq=False, kw_only=True)
class DescentState:
    """What a callback sees while shooting; `records` has a line per iteration."""

    records: tuple[StepRecord, ...]


class _BranchSearch:
    """One run of `MultiStart`: its parts, its log, its end."""

    def __init__(
        self, options: MultiStart, ocp: OCP, method: FESDJ, callback: Callback | None, deadline: float
    ) -> None:
        if ocp.x0 is None:
            raise OptionError("MultiStart simulates from x0, and the OCP leaves the initial state free; fix it.")
        if not is_exact(ocp.system, method.friction_cone):
            raise OptionError(
                f"MultiStart simulates Coulomb's law, and friction_cone={method.friction_cone!r} is another one; "
                "use 'auto'."
            )
        if not method.equidistant_control_grid:
            raise OptionError(
                "MultiStart simulates control stages of equal length; leave equidistant_control_grid True."
            )
        if not method.switch_detection:
            raise OptionError("MultiStart locates switches; it does not take switch_detection=False.")
        self.options, self.ocp, self.method = options, ocp, method
        self.callback, self.deadline = callback, deadline
        self.problem = transcribe(ocp, method)
        self.own = Rollouts(self.problem, CONSTRAINT_WEIGHT)
        fine = transcribe(ocp, method.replace(finite_elements=max(options.elements, self.own.elements)))
        self.fine = Rollouts(fine, CONSTRAINT_WEIGHT, events=self.own.elements - 1)
        self.records: list[StepRecord] = []
        self.stopped: Status | None = None

    def run(self, guess: Any, started: float) -> Solution:
        """Descend from all starts, polish the best motions first, return the best solution."""
        motions: list[tuple[np.ndarray, Rollout]] = []
        for number, (rollouts, u) in enumerate(self._starts(guess, motions)):
            motions.append(self._descent(number, rollouts, u))
            if self._is_over():
                break
        motions.sort(key=lambda motion: motion[1].objective)
        best = self._best(motions)
        if self.stopped is not None and best.status is not Status.SOLVED:
            best = replace(best, status=self.stopped)
        best = replace(best, records=tuple(replace(r, step=i) for i, r in enumerate([*self.records, *best.records])))
        seconds = time.monotonic() - started
        return self.problem.solution(best, solver=repr(self.options), wall_seconds=seconds)

    def _best(self, motions: list[tuple[np.ndarray, Rollout]]) -> SolverState:
        """The best of the first motions that their own branches solve; else what homotopies make of the motions."""
        best: SolverState | None = None
        solved = 0
        for u, motion in motions:
            found = self._on_branch(u) if np.isfinite(motion.objective) else None
            if found is not None:
                best, solved = better(best, found), solved + 1
            if solved == POLISHED or (best is not None and self._is_over()):
                break
        if best is not None:
            return best
        for u, _ in motions:
            guess = self.problem.initial_guess(self._trajectory(u))
            best = better(best, self._homotopy(POLISH, guess))
            if best.status is Status.SOLVED or self._is_over():
                break
        assert best is not None
        return best

    def _is_over(self) -> bool:
        if self.stopped is None and time.monotonic() > self.deadline:
            self.stopped = Status.TIME_LIMIT
        return self.stopped is not None

    def _starts(self, guess: Any, motions: list[tuple[np.ndarray, Rollout]]) -> Iterator[tuple[Rollouts, np.ndarray]]:
        """The guess, or a rough one; the best of some random controls for each start; kicks of the best motion.

        More elements let a descent pass through motions with many events. Every third kick goes to the problem's own
        elements, from the best motion that fits on them: what they find can be polished.
        """
        low, high = self.ocp.u_bounds
        shape = (self.method.control_stages, low.size)
        yield self.fine, np.clip(self._given(guess, shape), low, high)
        if low.size == 0:
            return
        finite = np.isfinite(low) & np.isfinite(high)
        nominal = self.ocp.system.u_nominal
        rest = np.clip(0.0, low, high)
        low_end, high_end = np.where(finite, low, rest - nominal), np.where(finite, high, rest + nominal)
        middle, half = (low_end + high_end) / 2, (high_end - low_end) / 2
        random = np.random.default_rng(self.options.seed)
        for _ in range(1, self.options.starts):

            def drawn() -> np.ndarray:
                block = int(random.integers(1, 4))
                values = random.uniform(-1, 1, (-(-shape[0] // block), shape[1])) * random.uniform(0.2, 1.0)
                return middle + self.options.spread * half * np.repeat(values, block, axis=0)[: shape[0]]

            yield self.fine, self._best_of(self.fine, drawn)
        for k in range(self.options.kicks):
            rollouts = self.own if k % 3 == 2 else self.fine
            best = self._best_on(rollouts, motions)

            def kicked(best: np.ndarray = best) -> np.ndarray:
                changed = random.random(shape) < random.uniform(0.1, 0.6)
                size = self.options.spread * random.choice([0.01, 0.05, 0.15])
                return best + size * half * random.normal(size=shape) * changed

            yield rollouts, self._best_of(rollouts, kicked)

    def _best_on(self, rollouts: Rollouts, motions: list[tuple[np.ndarray, Rollout]]) -> np.ndarray:
        """The best control so far that these elements can simulate."""
        ranked = [u for u, _ in sorted(motions, key=lambda motion: motion[1].objective)]
        return next((u for u in ranked if np.isfinite(rollouts(u).objective)), ranked[0])

    def _best_of(self, rollouts: Rollouts, draw: Callable[[], np.ndarray]) -> np.ndarray:
        """The best of some random controls."""
        trials: list[tuple[float, int, np.ndarray]] = []
        for number in range(self.options.candidates):
            u = np.clip(draw(), *self.ocp.u_bounds)
            trials.append((rollouts(u).objective, number, u))
            if self._is_over():
                break
        return min(trials)[2]

    def _homotopy(self, options: Homotopy, guess: np.ndarray) -> SolverState:
        """A homotopy from an iterate, in the time that is left."""
        problem, left = self.problem, None if np.isinf(self.deadline) else max(0.0, self.deadline - time.monotonic())
        return options.run(problem.mpcc, guess, solvers=problem.solvers, callback=self.callback, time_limit=left)

    def _rough(self) -> np.ndarray:
        """The control of a relaxed problem; zero where that is no number."""
        found = self._homotopy(self.options.rough, self.problem.guess)
        self.records += [replace(record, label=f"rough {record.label}") for record in found.records]
        self.stopped = found.status if found.status in (Status.STOPPED, Status.INTERRUPTED) else None
        u = self.problem.controls(found.w)
        return np.asarray(u) if np.isfinite(u).all() else np.zeros_like(u)

    def _given(self, guess: Any, shape: tuple[int, int]) -> np.ndarray:
        if guess is None:
            return self._rough().reshape(shape)
        middles = (np.arange(shape[0]) + 0.5) * self.ocp.horizon / shape[0]
        law = control_of_guess(self.ocp, guess)
        return np.array([law(t) for t in middles]).reshape(shape)

    def _descent(self, number: int, rollouts: Rollouts, u: np.ndarray) -> tuple[np.ndarray, Rollout]:
        last = time.monotonic()

        def report(here: Rollout) -> bool:
            nonlocal last
            seconds, last = time.monotonic() - last, time.monotonic()
            line: dict[str, Any] = {"step": len(self.records), "label": f"shooting {number}"}
            self.records.append(StepRecord(**line, objective=here.objective, wall_seconds=seconds))
            if self.callback is not None:
                self.stopped = asked_to_stop(self.callback, DescentState(records=tuple(self.records))) or self.stopped
            return self._is_over()

        return descend(rollouts, u, self.ocp.u_bounds, self.options.iterations, report)

    def _on_branch(self, u: np.ndarray) -> SolverState | None:
        """Solve on the finite elements, in the active set of the simulation; None where that fails.

        A point whose residuals are small is one even where the last digits of its multipliers do not come.
        """
        w, problem = self.own.embedding(u), self.problem
        if w is None:
            return None
        found = POLISH.finish_only(problem.solvers, w, problem.mpcc.p0)
        return replace(found, status=Status.SOLVED) if POLISH.residuals_small(found) else None

    def _trajectory(self, u: np.ndarray) -> Any:
        """The motion of a control as a guess; the control itself where it cannot be simulated."""
        method = self.method.replace(finite_elements=self.fine.elements)
        task = SimulationTask(x0=self.ocp.x0, duration=self.ocp.horizon, steps=len(u), u=u, p=self.ocp.p)
        motion = FiniteElementRun(method).simulate(self.ocp.system, task)
        return motion if motion.success else u
