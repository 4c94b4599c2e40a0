"""Shooting over exact simulations: descent from several controls, then a polish on the finite elements.

Relaxed complementarities blur which contact closes when, and a homotopy keeps the sequence of events it happens to find
(often held by its own time grid). A simulation with located events has no such memory: its objective is a continuous,
piecewise smooth function of the control, whatever the sequence. So the search goes over controls, and what it finds
starts the finite elements of the optimal control problem, exactly, as a feasible point.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np
from pydantic import Field

from nosnoc_py.discretization.butcher import tableau
from nosnoc_py.discretization.guess import control_guess
from nosnoc_py.discretization.options import FESDJ
from nosnoc_py.errors import OptionError
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.mpcc.strategy import Callback, SolverState, asked_to_stop
from nosnoc_py.ocp import OCP
from nosnoc_py.options import Options
from nosnoc_py.simulation.active_set_newton import ActiveSetNewton
from nosnoc_py.simulation.filling import is_exact
from nosnoc_py.simulation.stepping import NewtonStepper
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.solution.records import StepRecord
from nosnoc_py.status import Status
from nosnoc_py.transcription import (
    REST_VELOCITY,
    Transcription,
    gap_rate_of,
    rest_velocity_of,
    transcribe,
    transcribe_step,
)

# Finite differences of the objective, relative to the size of a control.
DIFFERENCE = 1e-6
# A step has to achieve this part of what the gradient promises.
ARMIJO = 1e-4
HALVINGS = 20
# A search ends where this many iterations gained less than that part of the objective.
PATIENCE, GAIN = 8, 1e-5


class MultiStart(Options):
    """Find a good motion by shooting from several controls, then solve on the finite elements from there.

    For any `CLS` with a fixed initial state. Every start is a descent (BFGS, differences of exact simulations) from the
    best of some random controls; the first one starts from the guess. The best motions become iterates of the MPCC, are
    solved on their branch, and where that fails by a homotopy from a small sigma. The result is an ordinary solution of
    the transcribed problem, judged and certified as such.

    Parameters
    ----------
    starts : int
        Descents.
    candidates : int
        Random controls of which each descent takes the best one.
    iterations : int
        Iterations of each descent.
    elements : int
        Finite elements per control stage in the simulations: one more than the events that may fall into one stage.
    spread : float
        Size of the random controls, relative to their bounds (to nominal values where there are none).
    constraint_weight : float
        Weight of squared constraint violations while shooting.
    polish : Homotopy
        Solves on the finite elements.
    seed : int
    time_limit : float, optional
        Seconds for everything.
    """

    starts: int = Field(default=4, ge=1)
    candidates: int = Field(default=10, ge=1)
    iterations: int = Field(default=60, ge=0)
    elements: int = Field(default=5, ge=1)
    spread: float = Field(default=1.0, gt=0)
    constraint_weight: float = Field(default=1e3, ge=0)
    polish: Homotopy = Field(
        default_factory=lambda: Homotopy(steering="direct", sigma_0=1e-3, ipopt={"max_iter": 300}, max_iterations=500)
    )
    seed: int = 0
    time_limit: float | None = Field(default=None, ge=0)

    def solve(
        self,
        ocp: OCP,
        method: FESDJ,
        *,
        guess: Any = None,
        callback: Callback | None = None,
        time_limit: float | None = None,
    ) -> Solution:
        """Search and polish; see `nosnoc_py.solve`.

        Raises
        ------
        OptionError
            If the initial state is free, or the friction cone is not Coulomb's.
        """
        started = time.monotonic()
        limit = min(x for x in (time_limit, self.time_limit, np.inf) if x is not None)
        search = _Search(self, ocp, method, callback, started + limit)
        return search.run(guess, started)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rollout:
    """One exact simulation: states (N + 1, n_x) and contact modes at the control grid, and the cost of every stage.

    `costs` (N + 1,) ends with the terminal cost; a simulation that failed costs infinitely much.
    """

    x: np.ndarray
    modes: tuple[np.ndarray | None, ...]
    costs: np.ndarray

    @property
    def objective(self) -> float:
        """Costs with penalties for violated constraints."""
        return float(self.costs.sum())


class Rollouts:
    """Simulates controls of one OCP, stage by stage; built once."""

    def __init__(self, ocp: OCP, method: FESDJ, elements: int, weight: float) -> None:
        system = ocp.system
        scheme = tableau(method.scheme, method.rk_stages)
        self.stages, self.length, self._b = method.control_stages, ocp.horizon / method.control_stages, scheme.b
        self._ocp, self._weight = ocp, weight
        self._newton = ActiveSetNewton(
            system,
            scheme,
            elements,
            gap_rate=gap_rate_of(method, system, simulation=True),
            rest_velocity=REST_VELOCITY,
        )
        arguments = [system.x, system.u, system.p]
        self._stage_cost = ca.Function("stage_cost", arguments, [ocp.stage_cost])
        end = [system.x, system.x_initial, system.p]
        self._terminal_cost = ca.Function("terminal_cost", end, [ocp.terminal_cost])
        self._outside = ca.Function("outside", arguments, [self._violations(ocp.path_constraints, bounds=True)])
        self._outside_at_end = ca.Function("outside", end, [self._violations(ocp.terminal_constraints, bounds=False)])

    def _violations(self, constraints: Any, *, bounds: bool) -> ca.SX:
        """Sum of squared violations."""
        lower, upper = self._ocp.x_bounds
        limits = [(c.expression, c.lower, c.upper) for c in constraints]
        limits += [(self._ocp.system.x, lower, upper)] if bounds else []
        total = ca.SX(0)
        for expression, low, high in limits:
            for i in range(expression.numel()):
                for bound, sign in ((low[i], -1.0), (high[i], 1.0)):
                    total += ca.fmax(0, sign * (expression[i] - bound)) ** 2 if np.isfinite(bound) else 0
        return total

    def __call__(self, u: np.ndarray, known: Rollout | None = None, first: int = 0) -> Rollout:
        """Simulate controls u (N, n_u), from stage `first` on where the rollout of what comes before is known."""
        n_x = self._ocp.system.x.numel()
        x, costs = np.full((self.stages + 1, n_x), np.nan), np.full(self.stages + 1, np.inf)
        modes: list[np.ndarray | None] = [None] * (self.stages + 1)
        x[0] = self._ocp.x0
        if known is not None:
            x[: first + 1], costs[:first] = known.x[: first + 1], known.costs[:first]
            modes[: first + 1] = known.modes[: first + 1]
        p = self._ocp.p
        for k in range(first, self.stages):
            step = self._newton.step(x[k], u[k], p, self.length, modes[k])
            if not step.success:
                return Rollout(x=x, modes=tuple(modes), costs=costs)
            points = step.x_stages.reshape(-1, n_x).T
            weights = (step.h[:, None] * self._b).reshape(-1)
            outside = float(ca.sum2(self._outside(step.x_right.T, u[k], p)))
            costs[k] = np.asarray(self._stage_cost(points, u[k], p)).reshape(-1) @ weights + self._weight * outside
            x[k + 1], modes[k + 1] = step.x_right[-1], step.modes[-1]
        outside = float(self._outside_at_end(x[-1], x[0], p))
        costs[-1] = float(self._terminal_cost(x[-1], x[0], p)) + self._weight * outside
        return Rollout(x=x, modes=tuple(modes), costs=costs)

    def gradient(self, u: np.ndarray, known: Rollout) -> np.ndarray:
        """Forward differences of the objective (N, n_u); a control acts on its own stage and what follows."""
        gradient = np.zeros_like(u)
        for k, i in np.ndindex(*u.shape):
            changed = u.copy()
            changed[k, i] += (step := DIFFERENCE * max(1.0, abs(u[k, i])))
            moved = self(changed, known, k).objective
            gradient[k, i] = (moved - known.objective) / step if np.isfinite(moved) else 0.0
        return gradient


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
    gradient = rollouts.gradient(u, here).reshape(-1)
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
        slope = rollouts.gradient(new, there).reshape(-1)
        inverse = _bfgs(inverse, (new - u).reshape(-1), slope - gradient)
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


def _bfgs(inverse: np.ndarray | None, step: np.ndarray, change: np.ndarray) -> np.ndarray | None:
    """The updated inverse Hessian, left alone where the curvature is not positive."""
    curvature = float(step @ change)
    if curvature <= 1e-10 * np.linalg.norm(step) * np.linalg.norm(change):
        return inverse
    before = np.eye(step.size) * curvature / float(change @ change) if inverse is None else inverse
    left = np.eye(step.size) - np.outer(step, change) / curvature
    return left @ before @ left.T + np.outer(step, step) / curvature


@dataclass(frozen=True, eq=False, kw_only=True)
class SearchState:
    """What a callback sees while shooting; `records` has a line per iteration."""

    records: tuple[StepRecord, ...]


class _Search:
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
        self.options, self.ocp, self.method = options, ocp, method
        self.callback, self.deadline = callback, deadline
        self.problem = transcribe(ocp, method)
        self.rollouts = Rollouts(ocp, method, max(options.elements, 1), options.constraint_weight)
        self.records: list[StepRecord] = []
        self.stopped: Status | None = None

    def run(self, guess: Any, started: float) -> Solution:
        """Descend from all starts, polish the best motions first, return the best solution."""
        motions = []
        for number, u in enumerate(self._starts(guess)):
            motions.append(self._descent(number, u))
            if self._is_over():
                break
        motions.sort(key=lambda motion: motion[1].objective)
        best: SolverState | None = None
        for u, _ in motions:
            best = _better(best, self._polished(u))
            if best.status is Status.SOLVED or self._is_over():
                break
        assert best is not None
        if self.stopped is not None and best.status is not Status.SOLVED:
            best = replace(best, status=self.stopped)
        best = replace(best, records=tuple(replace(r, step=i) for i, r in enumerate([*self.records, *best.records])))
        seconds = time.monotonic() - started
        return self.problem.solution(best, solver=repr(self.options), wall_seconds=seconds)

    def _is_over(self) -> bool:
        if self.stopped is None and time.monotonic() > self.deadline:
            self.stopped = Status.TIME_LIMIT
        return self.stopped is not None

    def _starts(self, guess: Any) -> Iterator[np.ndarray]:
        """The guess, or rest; then for each start the best of some random controls, constant over a few stages."""
        low, high = self.ocp.u_bounds
        shape = (self.method.control_stages, low.size)
        yield np.clip(self._given(guess, shape), low, high)
        if low.size == 0:
            return
        finite = np.isfinite(low) & np.isfinite(high)
        nominal = self.ocp.system.u_nominal
        middle, half = (
            np.where(finite, (low + high) / 2, np.clip(0.0, low, high)),
            np.where(finite, (high - low) / 2, nominal),
        )
        random = np.random.default_rng(self.options.seed)
        for _ in range(1, self.options.starts):
            trials = []
            for _ in range(self.options.candidates):
                block = int(random.integers(1, 4))
                values = random.uniform(-1, 1, (-(-shape[0] // block), shape[1])) * random.uniform(0.2, 1.0)
                u = middle + self.options.spread * half * np.repeat(values, block, axis=0)[: shape[0]]
                trials.append((self.rollouts(u := np.clip(u, low, high)).objective, len(trials), u))
                if self._is_over():
                    break
            yield min(trials)[2]

    def _given(self, guess: Any, shape: tuple[int, int]) -> np.ndarray:
        if guess is None:
            return np.zeros(shape)
        middles = (np.arange(shape[0]) + 0.5) * self.rollouts.length
        law: Any = guess.control if isinstance(guess, Trajectory) else None
        law = control_guess(guess, shape[1], self.ocp.horizon) if law is None else law
        return np.array([law(t) for t in middles]).reshape(shape)

    def _descent(self, number: int, u: np.ndarray) -> tuple[np.ndarray, Rollout]:
        last = time.monotonic()

        def report(here: Rollout) -> bool:
            nonlocal last
            now = time.monotonic()
            self._log(f"shooting {number}", here.objective, now - last)
            last = now
            return self._is_over()

        return descend(self.rollouts, u, self.ocp.u_bounds, self.options.iterations, report)

    def _log(self, label: str, objective: float, seconds: float) -> None:
        line = StepRecord(
            step=len(self.records),
            label=label,
            sigma=0.0,
            objective=objective,
            complementarity=0.0,
            infeasibility=0.0,
            iterations=0,
            wall_seconds=seconds,
            solver_status="",
        )
        self.records.append(line)
        if self.callback is not None:
            self.stopped = asked_to_stop(self.callback, SearchState(records=tuple(self.records))) or self.stopped

    def _polished(self, u: np.ndarray) -> SolverState:
        """Solve on the finite elements from a control: on the branch of its simulation, else by a homotopy."""
        problem, polish = self.problem, self.options.polish
        values = problem.mpcc.p0
        w = embedded(problem, u)
        if w is not None:
            found = polish.finish_only(problem.solvers, w, values)
            if found.finished and polish.residuals_small(found):
                return replace(found, status=Status.SOLVED)
        start = problem.initial_guess(u) if w is None else w
        left = None if np.isinf(self.deadline) else max(0.0, self.deadline - time.monotonic())
        return polish.run(problem.mpcc, start, values, solvers=problem.solvers, callback=self.callback, time_limit=left)


def _better(one: SolverState | None, other: SolverState) -> SolverState:
    """Solved before unsolved, then the smaller objective, or residual."""
    if one is None:
        return other

    def rank(state: SolverState) -> tuple[bool, float]:
        solved = state.status is Status.SOLVED
        return (not solved, state.values.objective if solved else max(state.complementarity, state.infeasibility))

    return min(one, other, key=rank)


def embedded(problem: Transcription, u: np.ndarray) -> np.ndarray | None:
    """The iterate of an OCP in which its own finite elements simulate a control (N, n_u); None where that fails.

    Steps of the simulation are the control stages of the problem: the same variables under the same names. It satisfies
    every equation and complementarity; bounds of steps, states and constraints of the OCP it need not satisfy.
    """
    ocp, method = problem.ocp, problem.method
    if isinstance(method.finite_elements, tuple) or not method.switch_detection or ocp.x0 is None:
        return None
    same = method.replace(
        gap_rate=gap_rate_of(method, ocp.system, simulation=False),
        rest_velocity=rest_velocity_of(method, simulation=False),
    )
    step_problem = transcribe_step(ocp.system, same)
    stepper, parameters = NewtonStepper(ocp.system, step_problem), step_problem.mpcc.parameters
    x, modes, parts = np.asarray(ocp.x0), None, []
    for k in range(method.control_stages):
        values = step_problem.mpcc.p0.copy()
        values[parameters["x0"]], values[parameters["p"]], values[parameters["u"]] = x, ocp.p, u[k]
        values[parameters["horizon"]] = ocp.horizon / method.control_stages
        found = stepper(values, modes)
        if found.w is None:
            return None
        x, modes = step_problem.read(found.w, values).x_right[-1], found.modes
        parts.append(found.w)
    w, layout = problem.mpcc.w0.copy(), step_problem.mpcc.variables
    for block in problem.mpcc.variables.blocks():
        k = block.at.stage or 0
        w[block.rows] = u[k] if block.name == "u" else parts[k][layout[block.name, 0, block.at.element, block.at.rk]]
    return w
