"""Solve a transcribed problem again for other data: the branch of the last solution first, the solver last.

In a closed loop consecutive problems differ in x0 alone, and most samples keep the sequence of events. On a fixed
branch of the complementarities the MPCC is a smooth NLP, so a few interior-point steps replace a homotopy. The order of
attempts in `resolve`: (1) the branch of the last solution, or a prepared neighbour of it; (2) branches that differ in
one event, then those that relaxed problems show near the iterate (`mpcc.again`); (3) the branch of a simulation of the
planned controls; (4) the solver.

Invariants: every answer is accepted on the residuals of the unrelaxed problem, never on those of a relaxation. Iterates
and branches are only passed between transcriptions with equal `layout_key`. A shift by control stages moves iterates,
masks and multipliers by the same index maps (`Moves`). The split of a sample into a preparation before the measurement
and a short feedback after it is that of the real-time iteration (Diehl, Bock, Schloeder 2005).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nosnoc_py.errors import ModelError, OptionError, is_whole
from nosnoc_py.mpcc.again import FALLBACK, KEPT, NEIGHBOUR, PREPARED, Neighbourhood, Resolve, above
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.mpcc.layout import At, Layout
from nosnoc_py.mpcc.strategy import SolverState, Strategy
from nosnoc_py.roles import Role
from nosnoc_py.solution import Shifted, Solution, Trajectory
from nosnoc_py.solution.records import SolvedBranch
from nosnoc_py.status import Status
from nosnoc_py.systems.symbols import numbers
from nosnoc_py.transcription.guesses import stages_alike

if TYPE_CHECKING:
    from nosnoc_py.transcription.transcription import Transcription

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """Result of solving again: the control at once, everything else on first use.

    Attributes
    ----------
    problem : Transcription
    state : SolverState
        The iterate with its residuals and its branch.
    how : str
        "kept": on the branch of the last solution; "neighbour": on one beside it; "fallback": by the solver;
        "prepared": not solved for a measured state, but for the one the plan predicts.
    solver : str
        Representation of its options.
    seconds : float
        From x0 to the control.
    prepared : Neighbourhood, optional
        What is known around it, of one that is prepared.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
    >>> problem = ns.transcribe(ocp, ns.FESDJ(control_stages=2))
    >>> answer = problem.resolve(problem.solve(), x0=[0.1, 0.0])
    >>> answer.success, answer.how, answer.u.shape, float(answer.solution.x0[0])
    (True, 'kept', (2, 1), 0.1)
    """

    problem: Transcription
    state: SolverState
    how: str
    solver: str
    seconds: float
    prepared: Neighbourhood | None = None

    @property
    def success(self) -> bool:
        """True if the residuals of the unrelaxed problem are small."""
        return self.status.success

    @property
    def status(self) -> Status:
        """Status of the solver; the check against the laws of mechanics is in `solution`."""
        return self.state.status or Status.STOPPED

    @property
    def objective(self) -> float:
        """Objective without penalties."""
        return self.state.values.objective

    @cached_property
    def u(self) -> Array:
        """The controls (N, n_u)."""
        return self.problem.controls(self.state.w)

    @cached_property
    def solution(self) -> Solution:
        """Read out, audited and with its kind of stationary point: some ten times the seconds of the answer."""
        return self.problem.solution(self.state, solver=self.solver, wall_seconds=self.seconds)


@dataclass(frozen=True, eq=False)
class Moves:
    """Source row of every row of the vectors of a program when the control stages move to the front.

    The last stages stay: a variable of the last one is its own successor.
    """

    w: Array
    G: Array
    H: Array
    r: Array
    lam_g: Array
    clock: Array

    @classmethod
    def of(cls, problem: Transcription, stages: int) -> Moves:
        """Build the maps for a shift by a number of control stages."""
        m, blocks = problem.mpcc, problem.solvers.blocks
        layouts = (m.variables, m.constraints, m.left, m.right, m.switched)
        w, g, G, H, r = (_sources(layout, stages) for layout in layouts)
        # Multipliers move as their rows do, and a program of a branch has fewer rows than G and H have.
        # The rows of the program of a branch: g, those of G and H that bounds do not imply, r.
        place_G, place_H = (_places(rows, size) for rows, size in ((blocks.rows_G, G.size), (blocks.rows_H, H.size)))
        start_G, start_H = g.size, g.size + blocks.rows_G.size
        rows = [
            g,
            _from(start_G, place_G[G[blocks.rows_G]]),
            _from(start_H, place_H[H[blocks.rows_H]]),
            start_H + blocks.rows_H.size + r,
        ]
        n_x = len(problem.ocp.system.state_names)
        # With time-freezing a state has one row more than the system's, the clock [s].
        states = (range(b.start + n_x, b.rows.stop) for b in m.variables.blocks(role=Role.STATE))
        return cls(w, G, H, r, np.concatenate(rows), np.array([row for block in states for row in block], int))

    def iterate(self, w: Array, later: float) -> Array:
        """Return the moved iterate; a clock that is a state starts at zero again."""
        moved = w[self.w]
        moved[self.clock] -= later
        return moved

    def branch(self, solved: SolvedBranch) -> SolvedBranch:
        """Return the branch with its masks and multipliers moved."""
        masks = {name: getattr(solved, name)[getattr(self, name)] for name in ("G", "H", "r")}
        return replace(solved, **masks, lam_x=solved.lam_x[self.w], lam_g=solved.lam_g[self.lam_g])


def _sources(layout: Layout, stages: int) -> Array:
    known, rows = {(b.name, b.at, b.edge): b for b in layout.blocks()}, np.arange(layout.size)
    for block in layout.blocks():
        at = block.at
        if at.stage is not None:
            # A block without a successor (the last stages) is its own source: it is repeated.
            later = known.get((block.name, At(at.stage + stages, at.element, at.rk), block.edge), block)
            rows[block.rows] = np.arange(later.start, later.start + later.size)
    return rows


def _places(chosen: Array, size: int) -> Array:
    place = np.full(size, -1)
    place[chosen] = np.arange(chosen.size)
    return place


def _from(start: int, places: Array) -> Array:
    """Return rows of a program; a row without a source is its own."""
    return start + np.where(places >= 0, places, np.arange(places.size))


def start_again(problem: Transcription, guess: Any, stages: int) -> tuple[Array, SolvedBranch] | None:
    """Return the iterate and the branch of a guess by this transcription, or None if it has no branch."""
    if isinstance(guess, Answer):
        w, solved, fits = guess.state.w, guess.state.solved_branch, guess.problem.layout_key == problem.layout_key
    elif isinstance(guess, Solution | Shifted):
        # A `Shifted` guess carries the unshifted iterate; its own shift adds to the one asked for.
        w, solved, fits = guess.w, guess.branch, guess.layout_key == problem.layout_key
        stages += guess.stages if isinstance(guess, Shifted) else 0
        # A shift by less than a whole stage has no index map.
        fits = fits and (not isinstance(guess, Shifted) or guess.stages > 0)
    else:
        return None
    # Without an objective a branch has no isolated solution, from which derivatives lead on.
    if not fits or solved is None or w.size != problem.mpcc.w0.size or problem.mpcc.objective.is_constant():
        return None
    if not stages:
        return w, solved
    if not stages_alike(problem):
        return None
    moves = problem.moves(stages)
    # Free horizons and unequal stages were excluded: every stage lasts horizon / N.
    later = stages * float(problem.ocp.horizon) / problem.grid.control_stages
    return moves.iterate(w, later), moves.branch(solved)


def resolve(
    problem: Transcription, last: Answer | Solution, shift: int, values: Array, solver: Strategy, limit: float
) -> Answer:
    """Solve again, see `Transcription.resolve`; `values` are the MPCC's parameters (n_p,), `limit` is in seconds."""
    _check("resolve", problem, last, shift)
    started = time.monotonic()
    program = Resolve(problem.solvers, values, solver, started + limit)
    begin, how = start_again(problem, last, shift), FALLBACK
    state: SolverState | None = None
    # What was prepared holds for the sample it was prepared for, hence not after another shift.
    known = last.prepared if isinstance(last, Answer) and not shift else None
    if begin is not None:
        state, how = program.solve_nearest(*begin, known)
        # No branch near the iterate is solved for this x0: ask what the controls do from there.
        if state.status is None:
            state, how = _by_simulation(problem, begin[0], program), NEIGHBOUR
    # Nobody has prepared what to expect: a neighbour that is far worse than the plan before is looked at twice.
    most = above(last.objective)
    if state is None or (how == NEIGHBOUR and known is None and state.values.objective > most):
        if begin is None:
            # Reading a solution out is slow: only for one without a branch, or for stages that differ.
            guess = last.solution if isinstance(last, Answer) else last
            w = problem.initial_guess(guess.shift(stages=shift) if shift else guess, values)
        else:
            w = begin[0]
        other = problem.run(solver, w, values, program.deadline, None, is_motion=True, own=True)
        better = state is None or other.values.objective < state.values.objective
        # The neighbour is kept if the solver fails or finds something worse.
        if state is None or (better and other.status is Status.SOLVED):
            state, how = other, FALLBACK
    seconds = time.monotonic() - started
    return Answer(problem=problem, state=state, how=how, solver=repr(solver), seconds=seconds)


def solve_kept(
    problem: Transcription, last: Answer | Solution, shift: int, values: Array, limit: float
) -> Answer | None:
    """Solve on the branch of the last plan and on no other; None where that fails within `limit` seconds."""
    started = time.monotonic()
    begin = start_again(problem, last, shift)
    if begin is None:
        return None
    state = Resolve(problem.solvers, values, Auto(), started + limit).solve_on_branch(*begin)
    seconds = time.monotonic() - started
    return Answer(problem=problem, state=state, how=KEPT, solver="", seconds=seconds) if _solved(state) else None


def shifted(problem: Transcription, last: Answer | Solution, shift: int, values: Array) -> Answer | None:
    """Return a plan moved by control stages for other data, not solved; None without a branch that can be moved.

    It is where the real-time iteration begins (Diehl, Bock, Schloeder 2005): one step from there is the feedback.
    """
    begin = start_again(problem, last, shift)
    if begin is None:
        return None
    w, solved = begin
    state = Resolve(problem.solvers, values, Auto(), np.inf).at(w)
    state = replace(state, solved_branch=solved, status=Status.STOPPED)
    return Answer(problem=problem, state=state, how=PREPARED, solver="", seconds=0.0)


def solve_along(problem: Transcription, motion: Trajectory, values: Array, limit: float) -> Answer | None:
    """Solve on the branch that a simulated motion shows; None where that fails within `limit` seconds."""
    started = time.monotonic()
    program = Resolve(problem.solvers, values, Auto(), started + limit)
    state = program.solve_on_shown_branch(problem.initial_guess(motion, values))
    seconds = time.monotonic() - started
    return Answer(problem=problem, state=state, how=NEIGHBOUR, solver="", seconds=seconds) if _solved(state) else None


def _solved(state: SolverState) -> bool:
    return state.status is Status.SOLVED


def _by_simulation(problem: Transcription, w: Array, program: Resolve) -> SolverState | None:
    """Solve on the branch of a simulation from the measured state, with the planned controls or without control."""
    ocp, place = problem.ocp, problem.mpcc.parameters
    if problem.simulate is None or ocp.free_time is not None or "x0" not in place.names:
        return None
    planned, (lower, upper) = problem.controls(w), ocp.u_bounds
    data = {"x0": program.p[place["x0"]], "p": problem.parameter_values(w, program.p)}
    # No control is tried second: near rest the planned one may press a contact that is open now.
    for u in (planned, np.broadcast_to(np.clip(0.0, lower, upper), planned.shape)):
        left = None if np.isinf(program.deadline) else program.deadline - time.monotonic()
        # A simulation with no time left would still take one step.
        if left is not None and left <= 0.0:
            return None
        duration = problem.horizon(w, program.p)
        try:
            motion = problem.simulate(ocp.system, **data, duration=duration, u=u, time_limit=left)
        except ModelError:  # of a state that penetrates
            return None
        if motion.success:
            state = program.solve_on_shown_branch(problem.initial_guess(motion, program.p))
            if state.status is Status.SOLVED:
                return state
    return None


def prepare(
    problem: Transcription,
    last: Answer | Solution,
    shift: int,
    spread: Any,
    p: Any,
    solver: Strategy,
    limit: float,
) -> Answer:
    """Plan from the predicted state, see `Transcription.prepare`; `limit` is in seconds."""
    _check("prepare", problem, last, shift)
    if not last.success:
        raise OptionError(
            f"prepare: expected a solved plan, given one with the status {last.status}; use an earlier one."
        )
    started = time.monotonic()
    w = last.state.w if isinstance(last, Answer) else last.w
    # A `Solution` does not hold the vector of parameters; its first node is its x0.
    old = last.state.p if isinstance(last, Answer) else problem.parameters(last.x[0], p)
    first = sum(problem.grid.elements[:shift])
    # The state before a jump at the node: a measurement comes before its impact.
    x0 = problem.read(w, old).x_minus[first][: len(problem.ocp.system.state_names)]
    place = problem.mpcc.parameters
    if isinstance(last, Answer):  # what was given to it holds on: p, and the horizon where it is fixed
        p = old[place["p"]] if p is None and "p" in place.names else p
        horizon = float(old[place["horizon"]][0]) if problem.ocp.free_time is None else None
    else:
        horizon = None
    values = problem.parameters(x0, p, horizon)
    steps, begin = _steps(problem, spread), start_again(problem, last, shift)
    state: SolverState | None = None
    if begin is not None:
        state, known = Resolve(problem.solvers, values, solver, started + limit).prepare(*begin, steps)
    if state is None:
        return resolve(problem, last, shift, values, solver, limit)
    seconds = time.monotonic() - started
    common: dict[str, Any] = {"how": PREPARED, "solver": repr(solver), "seconds": seconds}
    return Answer(problem=problem, state=state, prepared=known, **common)


def _steps(problem: Transcription, spread: Any) -> list[Array]:
    """Return steps of the parameters (n_p,), to either side of every component of x0."""
    system, place = problem.ocp.system, problem.mpcc.parameters["x0"]
    # The default is a guess of the noise of an estimator, relative to nominal states.
    sizes = 0.01 * system.x_nominal if spread is None else numbers(spread, "spread", len(system.state_names))
    if (sizes < 0.0).any():
        raise OptionError(f"prepare: spread: expected nonnegative numbers, given {spread!r}.")
    steps = []
    for row, size in zip(range(place.start, place.stop), sizes, strict=True):
        # Both signs: an event is brought forward by one, and delayed by the other.
        for sign in (1.0, -1.0) if size > 0.0 else ():
            steps.append(np.zeros(problem.mpcc.p0.size))
            steps[-1][row] = sign * size
    return steps


def _check(who: str, problem: Transcription, last: Any, shift: Any) -> None:
    if not isinstance(last, Answer | Solution) or _key_of(last) != problem.layout_key:
        received = f"one of another transcription ({type(last).__name__})" if hasattr(last, "u") else repr(last)[:60]
        raise OptionError(f"{who}: expected an Answer or a Solution of this transcription, given {received}.")
    stages = problem.grid.control_stages
    if not is_whole(shift, 0, stages - 1):
        raise OptionError(f"{who}: shift: expected a whole number from 0 to {stages - 1}, given {shift!r}.")


def _key_of(last: Answer | Solution) -> str:
    return last.problem.layout_key if isinstance(last, Answer) else last.layout_key
