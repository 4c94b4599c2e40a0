"""Initial guesses for a transcribed problem, from whatever the user has: controls, functions, trajectories, solutions.

States land at their Runge-Kutta nodes and at the ends of elements, on the right side of jumps; impacts are put on
element boundaries as far as there are enough; controls are looked up in the middle of their stages; algebraic variables
are found by their names. A trajectory that is shorter than the horizon stands still at its end, a longer one is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nosnoc_py.discretization.guess import TimeGrid, fill, trajectory_series
from nosnoc_py.errors import TranscriptionError
from nosnoc_py.mpcc.layout import At
from nosnoc_py.ocp import OCP
from nosnoc_py.roles import Role
from nosnoc_py.solution import Shifted, Solution, Trajectory
from nosnoc_py.systems.controls import checked_guess, control_guess, state_guess
from nosnoc_py.systems.named_guesses import guess_by_name
from nosnoc_py.systems.quaternions import with_attitude

if TYPE_CHECKING:
    from nosnoc_py.transcription.transcription import Transcription

FREE = "free parameters"  # the block of parameters that are optimised


def initial_guess(problem: Transcription, guess: Any, values: np.ndarray) -> np.ndarray:
    """Return w (n_w,) for parameters `values` (n_p,) of the MPCC; see `Transcription.initial_guess`."""
    if isinstance(guess, Solution) and guess.layout_key == problem.layout_key:
        return np.array(guess.w)
    guess = guess_by_name(problem.ocp, guess)
    horizon, p = _horizon(problem, guess, values), values[problem.mpcc.parameters["p"]]
    places = TimeGrid.equal(problem.grid, problem.tableau.c, horizon)
    if isinstance(guess, Trajectory):
        if not np.isfinite(guess.x).all():
            raise TranscriptionError("guess: the trajectory contains NaN or infinity.")
        # Blocks that move with their stage are copied after the interpolation, which leaves them alone.
        moved = _moved_blocks(problem, guess)
        w = problem.from_trajectory(guess, places, p, moved)
        if isinstance(guess, Shifted):
            _move(problem, guess, w, moved)
    else:
        w = _from_functions(problem, guess, places, values)
    return _with_unknowns(problem, w, p, horizon, guess)


def keeps_its_iterate(problem: Transcription, guess: Any) -> bool:
    """Check if a guess is an iterate of this transcription, from which a small relaxation parameter suffices."""
    return isinstance(guess, Solution | Shifted) and guess.layout_key == problem.layout_key


def stages_alike(problem: Transcription) -> bool:
    """Check if every control stage has the variables of the one before, at the same distance in time."""
    equal = len(set(problem.grid.elements)) == 1 and problem.fesd.equidistant_control_grid
    return equal and problem.ocp.free_time is None


def _horizon(problem: Transcription, guess: Any, values: np.ndarray) -> float:
    """Return the length of the horizon [s]; a free one starts at the length of the trajectory that is left."""
    free = problem.ocp.free_time
    # One with other states is in numerical time.
    if free is None or not isinstance(guess, Trajectory) or guess.state_names != problem.ocp.system.state_names:
        return problem.horizon(problem.mpcc.w0, values)
    # A shifted guess is prolonged to its old length; what was added is no motion to keep.
    left = guess.duration - (guess.later if isinstance(guess, Shifted) else 0.0)
    return float(np.clip(left, free.lower, free.upper))


def _with_unknowns(problem: Transcription, w: np.ndarray, p: np.ndarray, horizon: float, guess: Any) -> np.ndarray:
    """Set free parameters to those of the guess, or else to p, and a free horizon to its length; return w."""
    known = guess.parameters if isinstance(guess, Trajectory) else {}
    layout, names = problem.mpcc.variables, problem.dcs.p_names
    for block in layout.blocks(role=Role.FREE_PARAMETER):
        start = [known.get(name, p[names.index(name)]) for name in block.components]
        w[block.rows] = np.clip(start, problem.mpcc.lbw[block.rows], problem.mpcc.ubw[block.rows])
    for block in layout.blocks(role=Role.HORIZON):
        w[block.rows] = horizon
    return w


def _from_functions(problem: Transcription, guess: Any, places: TimeGrid, values: np.ndarray) -> np.ndarray:
    """Return w from a control, or from controls and states by name; by default states stay at x0."""
    ocp, horizon = problem.ocp, float(places.nodes[-1][-1])
    layout = problem.mpcc.parameters
    start = np.asarray(values[layout["x0"]]) if "x0" in layout.names else start_of(ocp)
    state: Callable[[float], np.ndarray] = lambda t: start  # noqa: E731
    if isinstance(guess, Mapping):
        parts = checked_guess(guess)
        state = _states(ocp.system, parts["x"], start, horizon) if parts.get("x") is not None else state
        guess = parts.get("u")
    control = None if guess is None else control_guess(guess, ocp.system.n_u, horizon)

    def at(t: float, side: str) -> np.ndarray:
        x = np.array(state(t))
        if not ocp.system.autonomous:
            # The time is the last state of a system that is not autonomous, whatever the guess says of it.
            x[start.size - 1] = start[-1] + t
        return np.append(x, t)[: len(problem.dcs.x_names)]  # the clock, if it is a state

    return fill(problem.mpcc, problem.dcs, places, values[layout["p"]], at, control)


def _states(system: Any, given: Any, start: np.ndarray, horizon: float) -> Callable[[float], np.ndarray]:
    """Return the states as a function of time; if the time is a state it may be left out."""
    rows = None if callable(given) else np.asarray(given, dtype=object)
    if rows is not None and not system.autonomous and rows.ndim and rows.shape[-1] == start.size - 1:
        # The user left the time out: append it.
        known = state_guess(given, start.size - 1, horizon)
        return lambda t: np.append(known(t), start[-1] + t)
    return state_guess(given, start.size, horizon)


def start_of(ocp: OCP) -> np.ndarray:
    """Return the initial state (n_x,); if it is free, the admissible one nearest to zero."""
    if ocp.x0 is not None:
        return np.asarray(ocp.x0)
    return with_attitude(np.clip(0.0, *ocp.x_bounds), ocp.system.unit_parts)


def from_trajectory(
    problem: Transcription, guess: Trajectory, places: TimeGrid, p: np.ndarray, known: Container[tuple[str, At]]
) -> np.ndarray:
    """Return an iterate from a trajectory in the time of the elements; blocks in `known` keep their default."""
    mpcc, dcs = problem.mpcc, problem.dcs
    if guess.state_names != dcs.x_names:
        raise TranscriptionError(
            f"guess: expected the states {', '.join(dcs.x_names)}, given {', '.join(guess.state_names)}."
        )
    end = guess.t0 + guess.duration

    def clip(t: float) -> float:
        return min(max(t + guess.t0, guess.t0), end)

    look = trajectory_series(guess)
    impacts = [replace(event, time=event.time - guess.t0) for event in guess.impacts]
    n_u = problem.ocp.system.n_u  # of a motion in numerical time the speed is no control of the system
    has_control = guess.control_names == dcs.u_names and len(guess.u) > 0
    return fill(
        mpcc,
        dcs,
        # Boundaries of elements are moved onto the impacts: inside of an element a state cannot jump.
        places.through([e.time for e in impacts], free_stages=not problem.fesd.equidistant_control_grid),
        p,
        lambda t, side: guess(clip(t), side),  # type: ignore[arg-type]
        # After the end of the control grid the last control is held.
        (lambda t: guess.control(min(clip(t), guess.u_grid[-1]))[:n_u]) if has_control else None,
        lambda name, t, side: look(name, clip(t), side),
        impacts,
        known=known,
    )


def _moved_blocks(problem: Transcription, guess: Trajectory) -> dict[tuple[str, At], slice]:
    """Return the rows of the unshifted solution, block by block, if every variable moves with its control stage."""
    if not isinstance(guess, Shifted):
        return {}
    whole = guess.stages > 0 and guess.w.size == problem.mpcc.w0.size
    if not (whole and stages_alike(problem) and keeps_its_iterate(problem, guess)):
        return {}
    # What is continuous has values of its own at the ends of elements, too: they follow from the state there.
    inside = (b for b in problem.mpcc.variables.blocks() if b.edge is None or b.role is Role.STATE)
    blocks = {(b.name, b.at): b.rows for b in inside}
    later = {
        (name, at): (name, At(at.stage + guess.stages, at.element, at.rk))
        for name, at in blocks
        if at.stage is not None
    }
    return {place: blocks[source] for place, source in later.items() if source in blocks}


def _move(problem: Transcription, guess: Shifted, w: np.ndarray, moved: Mapping[tuple[str, At], slice]) -> None:
    for block in problem.mpcc.variables.blocks():
        source = moved.get((block.name, block.at))
        if source is not None:
            w[block.rows] = guess.w[source]
            if block.role is Role.STATE:
                w[block.start + len(problem.ocp.system.state_names) : block.rows.stop] -= (
                    guess.later
                )  # the clock, if it is a state
