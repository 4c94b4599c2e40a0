"""Where methods with a prescribed sequence of collisions start: the sequence that a guess leads to, its times, states
under a control, and which part of them a control can choose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.functions import buffered
from nosnoc_py.methods.indirect.forward import Forward, StepMotion, SweepFailure, motion_of, one_step
from nosnoc_py.methods.indirect.motion import HybridMotion
from nosnoc_py.methods.indirect.problem import HybridProblem, with_cost
from nosnoc_py.solution import Trajectory
from nosnoc_py.status import Status

Array = np.ndarray

# Eigenvalues of the controllability Gramian below this, relative to the largest, are rounding.
UNREACHED = 1e-12
# Steps of the simulation that predicts the collisions from a control.
PREDICTION = 400


def predicted(
    problem: HybridProblem, guess: Any, control: Callable[[float], Array], sequence: Sequence[str] | None, method: str
) -> tuple[Array, tuple[int, ...]]:
    """Times (M,) [s] and jumps of the collisions to start from: those of the guess, or a sequence of names.

    Those of the guess are its own events, or those of a simulation with `control`. Where it does not begin with the
    sequence that is asked for, the times are spread evenly.

    Raises
    ------
    OptionError
        If there is no jump of some name; `method` is who says so.
    SweepFailure
        If there is no collision, or the control cannot be simulated.
    """
    named = None if sequence is None else tuple(_index(problem, name, method) for name in sequence)
    try:
        times, jumps = _collisions(problem, guess, control, method)
    except SweepFailure:
        if named is None:
            raise
        times, jumps = np.empty(0), ()
    if named is None:
        return times, jumps
    if jumps[: len(named)] != named:
        times = np.linspace(0.0, problem.horizon, len(named) + 2)[1:-1]
    return times[: len(named)], named


def _index(problem: HybridProblem, name: str, method: str) -> int:
    if name not in problem.names:
        raise OptionError(f"{method}: {unknown_name(name, problem.names, 'jump in sequence')}")
    return problem.names.index(name)


def _collisions(
    problem: HybridProblem, guess: Any, control: Callable[[float], Array], method: str
) -> tuple[Array, tuple[int, ...]]:
    """What a guess leads to."""
    if isinstance(guess, Trajectory) and guess.impacts:
        events = [event for event in guess.impacts if guess.t0 < event.time < guess.t0 + problem.horizon]
        return np.array([e.time - guess.t0 for e in events]), tuple(_index(problem, e.name, method) for e in events)
    forward = Forward(problem, PREDICTION, "rk4", "same")
    found = forward(forward.held(control)).collisions
    if not found:
        raise SweepFailure(Status.COLLISION_LOST, "the control of the guess leads to no collision")
    times = np.array([c.step * forward.dt + c.s for c in found])
    if times[0] <= 0.0:
        message = (
            f"{problem.names[found[0].jump]!r} is hit at t = 0, before a control can act; start after this collision"
        )
        raise SweepFailure(Status.NOT_AN_OPTIMUM, message)
    return times, tuple(c.jump for c in found)


def moved_by(problem: HybridProblem, control: Callable[[float], Array], steps: int) -> HybridMotion | None:
    """The motion of a control that is held on equal steps, with its objective; None if it cannot be integrated."""
    extended = with_cost(problem)
    forward = Forward(extended, steps, "rk4", "same")
    try:
        rollout = forward(forward.held(control))
    except SweepFailure:
        return None
    n = problem.n_x
    collisions = tuple(replace(c, x_before=c.x_before[:n], x_after=c.x_after[:n]) for c in rollout.collisions)
    objective = float(problem.terminal(rollout.x[-1, :n])[0][0, 0] + rollout.x[-1, n])
    return motion_of(forward, StepMotion(x=rollout.x[:, :n], u=rollout.u, collisions=collisions), objective)


def rolled_out(
    problem: HybridProblem, jumps: Sequence[int], times: Array, control: Callable[[float], Array], steps: int
) -> tuple[list[Array], list[Array]]:
    """States before prescribed switchings under a control, and bases of what it reaches in each phase.

    The latter are the ranges of the controllability Gramians of the linearised flow.
    """
    x, u, h = problem.x, problem.u, ca.SX.sym("h")
    end = one_step(ca.Function("flow", [x, u], [problem.flow]), x, u, h, "rk4")
    step = buffered(ca.Function("step", [x, u, h], [end, ca.jacobian(end, x), ca.jacobian(end, u)]))
    state, begin = np.asarray(problem.x0), 0.0
    ends, bases = list[Array](), list[Array]()
    for jump, time in zip(jumps, times, strict=True):
        gramian, dt = np.zeros((problem.n_x, problem.n_x)), (time - begin) / steps
        for k in range(steps):
            found, by_x, by_u = step(state, control(begin + (k + 0.5) * dt), dt)
            reached = by_u @ by_u.T / dt if dt > 0 else np.zeros_like(gramian)
            gramian, state = by_x @ gramian @ by_x.T + reached, found[:, 0]
        values, vectors = np.linalg.eigh(gramian)
        ends.append(state)
        bases.append(vectors[:, values > UNREACHED * max(values[-1], 1e-300)])
        state = problem.crossings[jump](state)[0][:, 0]
        begin = time
    return ends, bases
