"""Steps along a smooth motion: what the loop of `loop` and its methods share.

Interpreted, the functions of a motion are its methods (`motions`); compiled, they are those of `kernel`, and the motion
is a tuple of arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import DOP853

from nosnoc_py.compiled import compiled_as
from nosnoc_py.simulation.event_driven import kernel, kernel_samples

Array = np.ndarray
STAGES, ALL_STAGES, POWERS = 12, 16, 7
"""Numbers of stages of DOP853, with those of its dense output, and of powers of that."""
# Coefficients of all stages, the three of the dense output included; row STAGES is the end of the step.
A = np.zeros((ALL_STAGES, ALL_STAGES))
A[:STAGES, :STAGES], A[STAGES, :STAGES], A[STAGES + 1 :] = DOP853.A, DOP853.B, DOP853.A_EXTRA
C = np.concatenate([DOP853.C, [1.0], DOP853.C_EXTRA])
RUNNING, FINISHED, OPEN, FAILED, STIFF, GROWN = range(6)
"""Ends of a run: as many steps as it may take; the end; a step in which a guard may cross; too small steps; a motion
that is stiff; one that is not stiff any more.
"""
SLOW, TAKEN, LOST = range(3)
"""Counts of a `StepPlace`: steps at the limit of stability in a row, steps recorded, whether a rate was not finite."""


class StepRule(NamedTuple):
    """Tolerances and limits: `most` steps in a run, `patient` with so many of them in a row at the limit of stability
    (0: with all), `touching` as in `motion.crossing`; `implicit` steps while a slip in space starts.
    """

    end: float
    rtol: float
    atol: float
    max_step: float
    touching: float
    distances: int
    patient: int
    most: int
    implicit: bool


class StepPlace(NamedTuple):
    """Where a run stands: state x, its rate f, stages K (16, n_x) and polynomial F (7, n_x) of the last step.

    Attributes
    ----------
    span : (4,)
        Time and length of the next step; end of the step that is open, and length of the one after it.
    last : (2,)
        Length and error of the last implicit step; 0 before the first.
    y : (n_x,)
        State at the end of the open step, before its projection.
    counts : (3,) int
    """

    span: Array
    last: Array
    x: Array
    f: Array
    y: Array
    K: Array
    F: Array
    counts: Array


class StepRows(NamedTuple):
    """Samples of steps: times (k, 8), states, guards, forces and rates (k, 8, n)."""

    t: Array
    x: Array
    guards: Array
    forces: Array
    rates: Array


# --- functions of a motion: its methods, or kernels ---


def _stages_by_loops(motion: Any, t: float, x: Array, h: float, K: Array, first: int, last: int, y: Array) -> None:
    for i in range(first, last):
        for k in range(x.size):
            y[k] = 0.0
        for j in range(i):
            if A[i, j] != 0.0:
                for k in range(x.size):
                    y[k] += A[i, j] * K[j, k]
        for k in range(x.size):
            y[k] = x[k] + h * y[k]
        kernel.rate(motion, y, False, K[i])


@compiled_as(_stages_by_loops)
def stages(motion: Any, t: float, x: Array, h: float, K: Array, first: int, last: int, y: Array) -> None:
    """Set some stages K of a step; y is the state of the last one."""
    motion.stages(t, x, h, K, first, last, y)


def _sample_by_loops(motion: Any, t: Array, x: Array, guards: Array, forces: Array, rates: Array) -> None:
    kernel_samples.sample(motion, x, guards, forces, rates)


@compiled_as(_sample_by_loops)
def sample(motion: Any, t: Array, x: Array, guards: Array, forces: Array, rates: Array) -> None:
    """Set guards, forces and rates at times and states."""
    guards[:], forces[:], rates[:] = motion.samples(t, x)


def _put_by_loops(motion: Any, t: float, x: Array, f: Array) -> None:
    if kernel_samples.project(motion, x):
        for i in range(x.size):
            if abs(x[i]) < kernel.TINY:
                x[i] = 0.0
        kernel.rate(motion, x, True, f)


@compiled_as(_put_by_loops)
def put(motion: Any, t: float, x: Array, f: Array) -> None:
    """Move a state onto its constraints, let the directions of slip follow, and set its rate f."""
    motion.put(t, x, f)


def _rate_by_loops(motion: Any, t: float, x: Array, f: Array) -> None:
    kernel.rate(motion, x, False, f)


@compiled_as(_rate_by_loops)
def rate(motion: Any, t: float, x: Array, f: Array) -> None:
    """Set the rate f of a state."""
    f[:] = motion.rate(t, x)


def _slow_by_loops(motion: Any, t: float, x: Array) -> bool:
    return kernel_samples.is_slow(motion)


@compiled_as(_slow_by_loops)
def is_slow(motion: Any, t: float, x: Array) -> bool:
    """Return True if a slip in space is still so slow that its direction is stiff, at the state of the last rate."""
    return bool(motion.flow.has_stiff_start(motion.regime, t, x))


def _turning_by_loops(motion: Any, t: float, x: Array, left: Array, right: Array) -> int:
    return kernel_samples.turning(motion, x, left, right)


@compiled_as(_turning_by_loops)
def turning(motion: Any, t: float, x: Array, left: Array, right: Array) -> int:
    """Set the factors (n_x, k), (k, n_x) of the Jacobian of the directions of slip; return k."""
    first, second = motion.flow.turning(motion.regime, t, x)
    count = len(second)
    left[:, :count], right[:count] = first, second
    return count
