"""Steps along a smooth motion: what the loop of `loop` and its methods share.

Interpreted, the functions of a motion are its methods (`motions`); compiled, they are those of `kernel`, and the motion
is a tuple of arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nosnoc_py.compiled import compiled_as, jitable
from nosnoc_py.simulation.event_driven import kernel, kernel_samples
from nosnoc_py.simulation.event_driven.dop853 import A

Array = np.ndarray
RUNNING, FINISHED, OPEN, FAILED, STIFF, GROWN, LOCATED = range(7)
"""Ends of a run: as many steps as it may take; the end; a step in which a guard may cross; too small steps; a motion
that is stiff; one that is not stiff any more; the crossing of a guard.
"""
SLOW, TAKEN, LOST, EVALUATED = range(4)
"""Counts of a `StepPlace`: steps at the limit of stability in a row, steps recorded, whether a rate was not finite,
evaluations of guards in pieces of a step that is searched for a crossing.
"""


class Noise(NamedTuple):
    """Rounding of guards (n,): `small`, and shares of the largest of the first `split` forces, and of the others, both
    added to `inertia`.
    """

    small: Array
    first: Array
    rest: Array
    split: int
    inertia: float


def noise_of(kinds: Any, split: int) -> Noise:
    """Return the rounding of guards without forces, of rows `small`, `first` and `rest` (3, n)."""
    small, first, rest = np.array(kinds, dtype=float)
    return Noise(small, first, rest, split, 0.0)


@jitable
def rounding(noise: Noise, forces: Array) -> Array:
    """Return violations (n,) of guards that are rounding, beside forces (m, n_f)."""
    first, rest = np.abs(forces[:, : noise.split]), np.abs(forces[:, noise.split :])
    most = noise.inertia + (first.max() if first.size else 0.0), noise.inertia + (rest.max() if rest.size else 0.0)
    return noise.small + most[0] * noise.first + most[1] * noise.rest


class StepRule(NamedTuple):
    """Tolerances and limits: `most` steps in a run, `patient` with so many of them in a row at the limit of stability
    (0: with all), `touching` and `slow` as in `motion.crossing`; `implicit` steps while a slip in space starts. If it
    `locates`, simple crossings are searched in the loop, but those of distances slower than `soft`.
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
    locates: bool
    slow: float
    soft: float
    noise: Noise


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
    counts : (4,) int
    enabled : (n_g,) bool
        Guards that are positive or about to become so.
    found : (5,)
        Guard that crosses, times between which it does and of its zero, end of the step.
    """

    span: Array
    last: Array
    x: Array
    f: Array
    y: Array
    K: Array
    F: Array
    counts: Array
    enabled: Array
    found: Array


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
            if abs(x[i]) < kernel.UNDERFLOW:
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
