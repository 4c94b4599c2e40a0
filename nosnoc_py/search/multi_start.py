"""Multi-start shooting over exact simulations; the best motions are solved on the finite elements.

Idea: the objective of an exact simulation with located events is a continuous, piecewise smooth function of the
control, whatever the sequence of events. BFGS with projection on the control bounds descends through changes of the
sequence, where a relaxed MPCC would keep the one it started with. BFGS is known to work well on such functions
(Lewis and Overton 2013); a step that fails resets its matrix.

Steps: descend from the guess (or from the control of a relaxed problem), from the best of some random controls, and
from perturbations of the best control so far. Then make the best motions iterates of the MPCC, solve them in their
active set, and return the best; only if that fails, run a homotopy from a small sigma.
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

# Number of motions that are solved on the finite elements, of which the best is the result.
POLISHED = 3
# Solver of the MPCC from a motion; sigma starts small, as the guess is already an exact motion.
POLISH = Homotopy(steering="direct", sigma_0=1e-3, ipopt={"max_iter": 300}, max_iterations=500)
# Penalty weight of squared constraint violations while shooting; the final solve has constraints instead.
CONSTRAINT_WEIGHT = 1e3
# Sufficient decrease of a step, as a fraction of the decrease that the gradient predicts, and its largest number of
# halvings.
ARMIJO = 1e-4
HALVINGS = 20
# A descent ends if PATIENCE iterations together gain less than this fraction of the objective.
PATIENCE, GAIN = 8, 1e-5


def descend(
    rollouts: Rollouts,
    u: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    iterations: int,
    report: Callable[[Rollout], bool],
) -> tuple[np.ndarray, Rollout]:
    """Minimise the objective of rollouts by BFGS with projection on bounds.

    Parameters
    ----------
    rollouts : Rollouts
        Objective and gradient; the objective may be infinite where a simulation fails.
    u : (N, n_u)
        Control at which the descent starts.
    bounds : pair of (n_u,)
    iterations : int
    report : function Rollout -> bool
        Called with every iterate; returns True to end the descent.

    Returns
    -------
    (N, n_u) and Rollout
        The last control and its simulation.
    """
    low, high = (np.broadcast_to(bound, u.shape).reshape(-1) for bound in bounds)
    current = rollouts(u)
    if current.w is None:
        return u, current
    gradient = rollouts.gradient(current)
    inverse: np.ndarray | None = None
    objectives = [current.objective]
    for _ in range(iterations):
        flat = u.reshape(-1)
        # Components at a bound that the gradient pushes outwards do not move.
        at_bound = ((flat <= low) & (gradient > 0)) | ((flat >= high) & (gradient < 0))
        direction = _direction(inverse, gradient, at_bound)
        # A matrix that has lost its definiteness by rounding gives no descent: start again with the gradient.
        if direction is None:
            inverse, direction = None, _direction(None, gradient, at_bound)
        step = None if direction is None else _line_search(rollouts, u, current, gradient, direction, (low, high))
        if step is None and inverse is None:
            break
        if step is None:
            # Curvature from another sequence of events may be wrong here: try steepest descent before giving up.
            inverse = None
            continue
        new, trial = step
        trial_gradient = rollouts.gradient(trial)
        inverse = bfgs(inverse, (new - u).reshape(-1), trial_gradient - gradient)
        u, current, gradient = new, trial, trial_gradient
        objectives.append(current.objective)
        slow = len(objectives) > PATIENCE and objectives[-1 - PATIENCE] - objectives[-1] < GAIN * abs(objectives[-1])
        if report(current) or slow:
            break
    return u, current


def _direction(inverse: np.ndarray | None, gradient: np.ndarray, at_bound: np.ndarray) -> np.ndarray | None:
    """Return the quasi-Newton direction in the free components, or None if it is no direction of descent.

    Without a matrix the first step is the gradient scaled to a largest component of one.
    """
    free = np.where(at_bound, 0.0, gradient)
    size = float(np.abs(free).max(initial=0.0))
    if size == 0.0 or not np.isfinite(size):
        return None
    direction = -free / size if inverse is None else np.where(at_bound, 0.0, -inverse @ free)
    return direction if direction @ gradient < 0 else None


def _line_search(
    rollouts: Rollouts,
    u: np.ndarray,
    current: Rollout,
    gradient: np.ndarray,
    direction: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, Rollout] | None:
    """Return the first point of a backtracking search with sufficient decrease, or None.

    A simulation that fails has an infinite objective, so that the step is halved.
    """
    size = 1.0
    for _ in range(HALVINGS):
        new = np.clip(u.reshape(-1) + size * direction, *bounds)
        trial = rollouts(new.reshape(u.shape))
        if trial.objective < current.objective + ARMIJO * min(0.0, gradient @ (new - u.reshape(-1))):
            return new.reshape(u.shape), trial
        size *= 0.5
    return None


class MultiStart(Options):
    """Solver of a `CLS` by shooting from several controls, followed by a solve on the finite elements.

    Pass it as `solver` to `solve`, with `FESDJ` as method and a fixed initial state. Every start is a descent (BFGS
    with exact derivatives) from the best of some random controls; the first one starts from the guess, or from the
    control of a relaxed problem. The best motions become iterates of the MPCC and are solved in their active set; where
    that fails, by a homotopy from a small sigma. The result is an ordinary solution of the transcribed problem, with a
    certificate.

    Parameters
    ----------
    starts : int
        Number of descents from the guess and from random controls.
    kicks : int
        Number of further descents, each from the best of some random perturbations of the best control so far.
    candidates : int
        Number of random controls of which each descent takes the best one.
    iterations : int
        Limit of the iterations of each descent.
    elements : int
        Finite elements per control stage in the simulations: one more than the events that may fall into one stage.
    spread : float
        Size of the random controls relative to their bounds (to nominal values where there are none).
    rough : Homotopy
        Solver of the relaxed problem whose control starts the first descent if there is no guess.
    seed : int
        Seed of the random controls.
    time_limit : float, optional
        Limit of time for everything [s].

    Examples
    --------
    A cart reaches its goal behind an elastic wall, and ends on finite elements:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> wall = ns.Contact("wall", gap=1.0 - q, restitution=0.5)
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[wall])
    >>> ocp = ns.OCP(cart, horizon=2.0, x0=[0, 1.6], stage_cost=u**2, terminal_constraints=[ns.Constraint(q, 0.4, 0.4)])
    >>> search = ns.MultiStart(starts=1, kicks=0, iterations=20)
    >>> ns.solve(ocp, ns.FESDJ(control_stages=2, finite_elements=2), guess={"u": 0.0}, solver=search).success
    True
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
        """Solve an OCP; see `nosnoc_py.solve` for the arguments.

        Raises
        ------
        OptionError
            If the initial state is free, the method is not FESD-J, or its friction cone, grid or switch detection is
            one that the simulation cannot reproduce.
        """
        check_type(method, FESDJ, "method")
        started = time.monotonic()
        limit = strictest(time_limit, self.time_limit)
        search = _BranchSearch(self, ocp, method, callback, started + limit)
        return search.run(guess, started)


@dataclass(frozen=True, eq=False, kw_only=True)
class DescentState:
    """State passed to the callback while shooting; `records` has one entry per iteration."""

    records: tuple[StepRecord, ...]


class _BranchSearch:
    """One run of `MultiStart` on one OCP: simulations on both grids, log, and status at its end."""

    def __init__(
        self, options: MultiStart, ocp: OCP, method: FESDJ, callback: Callback | None, deadline: float
    ) -> None:
        if ocp.x0 is None:
            raise OptionError("MultiStart simulates from x0, and the OCP leaves the initial state free; fix it.")
        if not is_exact(ocp.system, method.friction_cone):
            raise OptionError(
                f"MultiStart simulates Coulomb friction; friction_cone={method.friction_cone!r} is another law, use "
                "'auto'."
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
        # `own` simulates on the elements of the problem; `fine` on more, which hold more events per stage.
        self.own = Rollouts(self.problem, CONSTRAINT_WEIGHT)
        fine = transcribe(ocp, method.replace(finite_elements=max(options.elements, self.own.elements)))
        self.fine = Rollouts(fine, CONSTRAINT_WEIGHT, events=self.own.elements - 1)
        self.records: list[StepRecord] = []
        self.stopped: Status | None = None

    def run(self, guess: Any, started: float) -> Solution:
        """Descend from all starts, solve the best motions on the finite elements, and return the best solution."""
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
        """Return the best of the first motions that are solved in their active set; else the best of homotopies."""
        best: SolverState | None = None
        solved = 0
        for u, motion in motions:
            state = self._solve_on_branch(u) if np.isfinite(motion.objective) else None
            if state is not None:
                best, solved = better(best, state), solved + 1
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
        """Yield the grid and the control of every descent: from the guess, random controls, and perturbations.

        More elements let a descent pass through motions with many events. Every third perturbation is simulated on the
        elements of the problem, from the best motion that fits on them: such a motion is an iterate of the MPCC.
        """
        low, high = self.ocp.u_bounds
        shape = (self.method.control_stages, low.size)
        yield self.fine, np.clip(self._first_control(guess, shape), low, high)
        if low.size == 0:
            return
        finite = np.isfinite(low) & np.isfinite(high)
        nominal = self.ocp.system.u_nominal
        rest = np.clip(0.0, low, high)
        low_end, high_end = np.where(finite, low, rest - nominal), np.where(finite, high, rest + nominal)
        # Without bounds random controls cover the nominal values around zero.
        middle, half = (low_end + high_end) / 2, (high_end - low_end) / 2
        random = np.random.default_rng(self.options.seed)
        for _ in range(1, self.options.starts):

            def random_control() -> np.ndarray:
                # Constant over blocks of one to three stages, so that slow controls occur as well.
                block = int(random.integers(1, 4))
                values = random.uniform(-1, 1, (-(-shape[0] // block), shape[1])) * random.uniform(0.2, 1.0)
                return middle + self.options.spread * half * np.repeat(values, block, axis=0)[: shape[0]]

            yield self.fine, self._best_of(self.fine, random_control)
        for k in range(self.options.kicks):
            rollouts = self.own if k % 3 == 2 else self.fine
            best = self._best_on(rollouts, motions)

            def perturbed(best: np.ndarray = best) -> np.ndarray:
                changed = random.random(shape) < random.uniform(0.1, 0.6)
                size = self.options.spread * random.choice([0.01, 0.05, 0.15])
                return best + size * half * random.normal(size=shape) * changed

            yield rollouts, self._best_of(rollouts, perturbed)

    def _best_on(self, rollouts: Rollouts, motions: list[tuple[np.ndarray, Rollout]]) -> np.ndarray:
        """Return the best control so far that these elements can simulate."""
        ranked = [u for u, _ in sorted(motions, key=lambda motion: motion[1].objective)]
        return next((u for u in ranked if np.isfinite(rollouts(u).objective)), ranked[0])

    def _best_of(self, rollouts: Rollouts, draw: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the best of some random controls."""
        trials: list[tuple[float, int, np.ndarray]] = []
        for number in range(self.options.candidates):
            u = np.clip(draw(), *self.ocp.u_bounds)
            trials.append((rollouts(u).objective, number, u))  # the number decides ties; arrays do not compare
            if self._is_over():
                break
        return min(trials)[2]

    def _homotopy(self, options: Homotopy, guess: np.ndarray) -> SolverState:
        """Run a homotopy from an iterate in the remaining time."""
        problem, left = self.problem, None if np.isinf(self.deadline) else max(0.0, self.deadline - time.monotonic())
        return options.run(problem.mpcc, guess, solvers=problem.solvers, callback=self.callback, time_limit=left)

    def _relaxed_control(self) -> np.ndarray:
        """Return the control of a relaxed problem; zero if it is not finite."""
        state = self._homotopy(self.options.rough, self.problem.guess)
        self.records += [replace(record, label=f"rough {record.label}") for record in state.records]
        self.stopped = state.status if state.status in (Status.STOPPED, Status.INTERRUPTED) else None
        u = self.problem.controls(state.w)
        return np.asarray(u) if np.isfinite(u).all() else np.zeros_like(u)

    def _first_control(self, guess: Any, shape: tuple[int, int]) -> np.ndarray:
        """Return the control of the guess in the middle of every stage, or that of a relaxed problem."""
        if guess is None:
            return self._relaxed_control().reshape(shape)
        middles = (np.arange(shape[0]) + 0.5) * self.ocp.horizon / shape[0]
        law = control_of_guess(self.ocp, guess)
        return np.array([law(t) for t in middles]).reshape(shape)

    def _descent(self, number: int, rollouts: Rollouts, u: np.ndarray) -> tuple[np.ndarray, Rollout]:
        """Descend from a control, with a record per iteration, the callback and the limit of time."""
        last = time.monotonic()

        def report(rollout: Rollout) -> bool:
            nonlocal last
            seconds, last = time.monotonic() - last, time.monotonic()
            line: dict[str, Any] = {"step": len(self.records), "label": f"shooting {number}"}
            self.records.append(StepRecord(**line, objective=rollout.objective, wall_seconds=seconds))
            if self.callback is not None:
                self.stopped = asked_to_stop(self.callback, DescentState(records=tuple(self.records))) or self.stopped
            return self._is_over()

        return descend(rollouts, u, self.ocp.u_bounds, self.options.iterations, report)

    def _solve_on_branch(self, u: np.ndarray) -> SolverState | None:
        """Solve the MPCC in the active set of the simulation; return None if that fails.

        Each result is accepted if the residuals of the unrelaxed problem are small, also where the multipliers are not
        converged to their last digits.
        """
        w, problem = self.own.iterate_of(u), self.problem
        if w is None:
            return None
        state = POLISH.finish_only(problem.solvers, w, problem.mpcc.p0)
        return replace(state, status=Status.SOLVED) if POLISH.residuals_small(state) else None

    def _trajectory(self, u: np.ndarray) -> Any:
        """Return the simulated motion of a control as a guess; the control itself if the simulation fails."""
        method = self.method.replace(finite_elements=self.fine.elements)
        task = SimulationTask(x0=self.ocp.x0, duration=self.ocp.horizon, steps=len(u), u=u, p=self.ocp.p)
        motion = FiniteElementRun(method).simulate(self.ocp.system, task)
        return motion if motion.success else u
