"""Starts from the relaxed MPCC on coarse finite elements, of which only the control is used.

A homotopy (Scholtes relaxation, direct steering) on coarse elements gives controls that know where contacts are, long
before its complementarities hold. Every iterate with a small relaxation parameter becomes a start: the exact simulation
of its control decides which mode sequence it stands for. The first homotopy begins at the initial state at rest, the
next ones at random controls.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nosnoc_py.attempts.work import counted
from nosnoc_py.discretization.options import FINITE_ELEMENTS, FiniteElementMethod
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.options import fitting
from nosnoc_py.roles import Role
from nosnoc_py.search.starts import PROGRAM_WORK, Start, StartTask
from nosnoc_py.sequences.refinement import free_start
from nosnoc_py.systems.controls import PiecewiseConstant
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.special_laws import special_friction
from nosnoc_py.transcription import Transcription, transcribe

Array = np.ndarray
# Coarse discretisation: a start has to be cheap, and its control is simulated exactly afterwards.
ELEMENTS = {"control_stages": 16, "finite_elements": 2, "rk_stages": 2}
HOMOTOPY = Homotopy(steering="direct", sigma_min=1e-4, finish="none", max_iterations=300)
# Relaxation parameter sigma from which on the control becomes a start; above it, contacts act at a distance.
SHARP = 0.1


def relaxed(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """Yield controls of relaxed problems: from the initial state at rest, then from random controls."""
    ocp = task.ocp
    # Finite elements have no state of hysteresis, no resets of the user, no nodes at times that the user chooses, and
    # one coefficient of friction.
    unknown = ocp.system.remembers or isinstance(ocp.system, HybridSystem) or special_friction(ocp.system)
    if not task.rest.size or unknown or ocp.point_terms:
        return
    method = fitting(ocp.system, None, FINITE_ELEMENTS, FiniteElementMethod).replace(**ELEMENTS)
    problem = transcribe(ocp, method)
    yield None
    guess: Array = problem.guess
    while True:
        yield from _homotopy_starts(task, problem, guess)
        guess = problem.initial_guess(rng.uniform(task.lower, task.upper, (3, task.rest.size)))


def _homotopy_starts(task: StartTask, problem: Transcription, guess: Array) -> Iterator[Start | None]:
    """Yield the controls of one homotopy once sigma is small; None for the steps before."""
    state = HOMOTOPY.init(problem.mpcc, guess, solvers=problem.solvers)
    while HOMOTOPY.terminate(state) is None:
        sigma = state.sigma
        with counted(PROGRAM_WORK):
            state = HOMOTOPY.step(state)
        controls = problem.controls(state.w)
        if sigma > SHARP or not np.isfinite(controls).all():
            yield None
            continue
        yield _start(task, problem, state.w, np.clip(controls, task.lower, task.upper))


def _start(task: StartTask, problem: Transcription, w: Array, controls: Array) -> Start:
    """Return the start for the control, initial state, parameters and horizon of an iterate w."""
    ocp, p0 = task.ocp, problem.mpcc.p0
    first = next(problem.mpcc.variables.blocks(role=Role.STATE)).rows
    horizon = problem.horizon(w, p0)
    return Start(
        control=PiecewiseConstant(np.linspace(0.0, horizon, len(controls) + 1), controls),
        x0=task.x0 if ocp.x0 is not None else free_start(ocp, w[first]),
        p=problem.parameter_values(w, p0),
        horizon=horizon,
    )
