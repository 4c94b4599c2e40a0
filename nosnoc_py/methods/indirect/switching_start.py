"""Start of methods with a prescribed sequence of collisions: times, states and reachable subspaces from a guess.

Times and sequence come from the events of the guess, else from a simulation of its control. States before collisions
come from a second simulation that jumps at these times whatever the guards are: a start has to be near a motion, not to
be one. If the control reaches only a subspace during a phase, the state at its end cannot be prescribed freely; the
range of the controllability Gramian of the linearised flow says what can.
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

# Eigenvalues of the controllability Gramian below this fraction of the largest one are rounding.
UNREACHED = 1e-12
# Number of steps of the simulation that predicts the collisions of a control.
PREDICTION = 400


def predicted_collisions(
    problem: HybridProblem, guess: Any, control: Callable[[float], Array], sequence: Sequence[str] | None, method: str
) -> tuple[Array, tuple[int, ...]]:
    """Return times (M,) [s] and jump indices of the collisions to start from.

    They are the events of the guess, or of a simulation with `control`. If a prescribed `sequence` differs from them,
    its times are spread evenly over the horizon.

    Raises
    ------
    OptionError
        For an unknown name in `sequence`; `method` is the name in the message.
    SweepFailure
        If there is no collision, or the simulation fails.
    """
    prescribed = None if sequence is None else tuple(_index(problem, name, method) for name in sequence)
    try:
        times, jumps = _collisions(problem, guess, control, method)
    except SweepFailure:
        if prescribed is None:
            raise
        times, jumps = np.empty(0), ()
    if prescribed is None:
        return times, jumps
    if jumps[: len(prescribed)] != prescribed:
        # Wrong times of the right number are a better start than right times of other collisions.
        times = np.linspace(0.0, problem.horizon, len(prescribed) + 2)[1:-1]
    return times[: len(prescribed)], prescribed


def _index(problem: HybridProblem, name: str, method: str) -> int:
    if name not in problem.names:
        raise OptionError(f"{method}: {unknown_name(name, problem.names, 'jump in sequence')}")
    return problem.names.index(name)


def _collisions(
    problem: HybridProblem, guess: Any, control: Callable[[float], Array], method: str
) -> tuple[Array, tuple[int, ...]]:
    """Return times and jumps of the events of a guess, or of a simulation with its control."""
    if isinstance(guess, Trajectory) and guess.impacts:
        # Events at the ends would give phases of zero length.
        events = [event for event in guess.impacts if guess.t0 < event.time < guess.t0 + problem.horizon]
        return np.array([e.time - guess.t0 for e in events]), tuple(_index(problem, e.name, method) for e in events)
    forward = Forward(problem, PREDICTION, "rk4", "same")
    collisions = forward(forward.sampled_control(control)).collisions
    if not collisions:
        raise SweepFailure(Status.COLLISION_LOST, "the control of the guess leads to no collision")
    times = np.array([c.step * forward.dt + c.s for c in collisions])
    if times[0] <= 0.0:
        name = problem.names[collisions[0].jump]
        message = f"{name!r} is hit at t = 0, before a control can act; start after this collision"
        raise SweepFailure(Status.NOT_AN_OPTIMUM, message)
    return times, tuple(c.jump for c in collisions)


def motion_under(problem: HybridProblem, control: Callable[[float], Array], steps: int) -> HybridMotion | None:
    """Simulate a control held on equal steps, with its objective; None if the simulation fails."""
    # The cost is integrated as a state, with the accuracy of the motion.
    extended = with_cost(problem)
    forward = Forward(extended, steps, "rk4", "same")
    try:
        rollout = forward(forward.sampled_control(control))
    except SweepFailure:
        return None
    n = problem.n_x
    collisions = tuple(replace(c, x_before=c.x_before[:n], x_after=c.x_after[:n]) for c in rollout.collisions)
    objective = float(problem.terminal(rollout.x[-1, :n])[0][0, 0] + rollout.x[-1, n])
    return motion_of(forward, StepMotion(x=rollout.x[:, :n], u=rollout.u, collisions=collisions), objective)


def roll_out_sequence(
    problem: HybridProblem, jumps: Sequence[int], times: Array, control: Callable[[float], Array], steps: int
) -> tuple[list[Array], list[Array]]:
    """Return states before prescribed switchings under a control, and bases of the reachable subspace of each phase.

    The bases span the ranges of the controllability Gramians of the linearised flow.
    """
    x, u, h = problem.x, problem.u, ca.SX.sym("h")
    end = one_step(ca.Function("flow", [x, u], [problem.flow]), x, u, h, "rk4")
    step = buffered(ca.Function("step", [x, u, h], [end, ca.jacobian(end, x), ca.jacobian(end, u)]))
    state, begin = np.asarray(problem.x0), 0.0
    ends, bases = list[Array](), list[Array]()
    for jump, time in zip(jumps, times, strict=True):
        gramian, dt = np.zeros((problem.n_x, problem.n_x)), (time - begin) / steps
        for k in range(steps):
            end_state, by_x, by_u = step(state, control(begin + (k + 0.5) * dt), dt)
            # Gramian of controls with unit power: dW/dt = A W + W A' + B B', in discrete form.
            input_gramian = by_u @ by_u.T / dt if dt > 0 else np.zeros_like(gramian)
            gramian, state = by_x @ gramian @ by_x.T + input_gramian, end_state[:, 0]
        values, vectors = np.linalg.eigh(gramian)
        ends.append(state)
        # Directions that the control does not reach cannot be prescribed: Newton's matrix would be singular there.
        bases.append(vectors[:, values > UNREACHED * max(values[-1], 1e-300)])
        # The reset is applied whether or not the guard is zero: the iteration brings it there.
        state = problem.crossings[jump](state)[0][:, 0]
        begin = time
    return ends, bases
