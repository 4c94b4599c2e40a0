"""Starts from finite elements whose complementarities are relaxed: only their control counts."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from nosnoc_py.discretization.options import FINITE_ELEMENTS, FiniteElementMethod
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.options import fitting
from nosnoc_py.roles import Role
from nosnoc_py.search.starts import SECONDS, Start, StartTask
from nosnoc_py.sequences.refinement import free_start
from nosnoc_py.systems.controls import PiecewiseConstant
from nosnoc_py.transcription import Transcription, transcribe

Array = np.ndarray
# Coarse elements, and what is left of the relaxation when a start is made of the control.
ELEMENTS = {"control_stages": 16, "finite_elements": 2, "rk_stages": 2}
HOMOTOPY = Homotopy(steering="direct", sigma_min=1e-4, finish="none", max_iterations=300)
SHARP = 0.1


def relaxed(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """From the initial state at rest, then from random controls."""
    ocp = task.ocp
    if (
        not task.rest.size or ocp.system.remembers or ocp.point_terms
    ):  # finite elements forget, and have times of their own
        return
    method = fitting(ocp.system, None, FINITE_ELEMENTS, FiniteElementMethod).replace(**ELEMENTS)
    problem = transcribe(ocp, method)
    yield None
    guess: Array = problem.guess
    while True:
        yield from _route(task, problem, guess)
        guess = problem.initial_guess(rng.uniform(task.lower, task.upper, (3, task.rest.size)))


def _route(task: StartTask, problem: Transcription, guess: Array) -> Iterator[Start | None]:
    """One homotopy; its controls from where they say something of contacts."""
    state = HOMOTOPY.init(problem.mpcc, guess, solvers=problem.solvers)
    while HOMOTOPY.terminate(state) is None:
        sigma = state.sigma
        state = HOMOTOPY.step(state, deadline=time.monotonic() + SECONDS)
        made = problem.controls(state.w)
        if sigma > SHARP or not np.isfinite(made).all():
            yield None
            continue
        yield _start(task, problem, state.w, np.clip(made, task.lower, task.upper))


def _start(task: StartTask, problem: Transcription, w: Array, controls: Array) -> Start:
    """The start that an iterate stands for."""
    ocp, p0 = task.ocp, problem.mpcc.p0
    first = next(problem.mpcc.variables.blocks(role=Role.STATE)).rows
    horizon = problem.horizon(w, p0)
    return Start(
        control=PiecewiseConstant(np.linspace(0.0, horizon, len(controls) + 1), controls),
        x0=task.x0 if ocp.x0 is not None else free_start(ocp, w[first]),
        p=problem.parameter_values(w, p0),
        horizon=horizon,
    )
