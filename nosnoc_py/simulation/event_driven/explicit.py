"""Steps of DOP853 along a smooth motion with guards: one loop, compiled by numba or interpreted.

The loop takes steps as long as guards stay away from zero; a step in which one may cross is left to `motion.crossing`.
Interpreted, the functions of a motion are its methods (`interpreted_motion`); compiled, they are those of `kernel`, and
the motion is a tuple of arrays. Coefficients, control of the step and dense output are SciPy's.

References
----------
Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I (1993), Section II.5: DOP853 and its dense output.
Hairer and Wanner, Solving Ordinary Differential Equations II (1996), Section IV.2: detection of stiffness.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import DOP853

from nosnoc_py.compiled import compiled_as, jitable
from nosnoc_py.motion.crossing import NODES, is_clear
from nosnoc_py.simulation.event_driven import kernel

Array = np.ndarray
STAGES, ALL_STAGES, POWERS = 12, 16, 7
# Coefficients of all stages, the three of the dense output included; row STAGES is the end of the step.
A = np.zeros((ALL_STAGES, ALL_STAGES))
A[:STAGES, :STAGES], A[STAGES, :STAGES], A[STAGES + 1 :] = DOP853.A, DOP853.B, DOP853.A_EXTRA
C = np.concatenate([DOP853.C, [1.0], DOP853.C_EXTRA])
FIFTH, THIRD, D = (np.ascontiguousarray(rows) for rows in (DOP853.E5, DOP853.E3, DOP853.D))
# Two stages at the end of a step: their difference in rates and states estimates the largest |lambda|.
APART = A[STAGES] - A[STAGES - 1]
# Limits of the change of the step size and its safety factor, as in SciPy.
MIN_FACTOR, MAX_FACTOR, SAFETY, EXPONENT = 0.2, 10.0, 0.9, -1.0 / 8.0
# Hairer's test: DOP853 is limited by stability if h |lambda| exceeds this in some steps in a row.
STABILITY_LIMIT = 6.1
RUNNING, FINISHED, OPEN, FAILED, STIFF = range(5)
"""Ends of a run: as many steps as it may take; the end; a step in which a guard may cross; too small steps; stiff."""
SLOW, TAKEN, LOST = range(3)
"""Counts of a `Place`: steps at the limit of stability in a row, steps recorded, whether a rate was not finite."""


def weights_of(share: Any) -> Array:
    """Return the weights (7, ...) of the dense output at shares of a step: s, s (1 - s), s^2 (1 - s), ..."""
    return np.asarray(np.array([share, 1.0 - np.asarray(share)] * 4)[:POWERS].cumprod(axis=0))


WEIGHTS = np.ascontiguousarray(weights_of(NODES).T)


class Rule(NamedTuple):
    """Tolerances and limits: `most` steps in a run, `patient` with so many of them in a row at the limit of stability
    (0: with all), `touching` as in `motion.crossing`.
    """

    end: float
    rtol: float
    atol: float
    max_step: float
    touching: float
    distances: int
    patient: int
    most: int


class Place(NamedTuple):
    """Where a run stands: state x, its rate f, stages K (16, n_x) and polynomial F (7, n_x) of the last step.

    Attributes
    ----------
    span : (4,)
        Time and length of the next step; end and length of the step that is open.
    y : (n_x,)
        State at the end of the open step, before its projection.
    counts : (3,) int
    """

    span: Array
    x: Array
    f: Array
    y: Array
    K: Array
    F: Array
    counts: Array


class Rows(NamedTuple):
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
    kernel.sample(motion, x, guards, forces, rates)


@compiled_as(_sample_by_loops)
def sample(motion: Any, t: Array, x: Array, guards: Array, forces: Array, rates: Array) -> None:
    """Set guards, forces and rates at times and states."""
    guards[:], forces[:], rates[:] = motion.samples(t, x)


def _put_by_loops(motion: Any, t: float, x: Array, f: Array) -> None:
    if kernel.project(motion, x):
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


# --- the loop ---


@jitable
def error_of(K: Array, x: Array, y: Array, h: float, rtol: float, atol: float) -> float:
    """Return Hairer's combination of two error estimates, h |e5|^2 / sqrt((|e5|^2 + 0.01 |e3|^2) n), as in SciPy."""
    scale = atol + np.maximum(np.abs(x), np.abs(y)) * rtol
    fifth = np.dot(FIFTH, K[: STAGES + 1]) / scale
    third = np.dot(THIRD, K[: STAGES + 1]) / scale
    a, b = np.dot(fifth, fifth), np.dot(third, third)
    least = a + 0.01 * b
    return h * a / math.sqrt(least * x.size) if least != 0.0 else 0.0


@jitable
def bend(place: Place, y: Array, h: float) -> None:
    """Set the polynomial of a step to y from its stages, Hairer's CONTD8."""
    K, F = place.K, place.F
    way = y - place.x
    F[0] = way
    F[1] = h * K[0] - way
    F[2] = 2.0 * way - h * (K[STAGES] + K[0])
    F[3:] = h * np.dot(D, K)


@jitable
def is_at_limit(place: Place, h: float) -> bool:
    """Return True if a step is at the stability limit of DOP853, by Hairer's test."""
    apart = np.dot(APART, place.K)
    size = h * math.sqrt(np.dot(apart, apart))
    change = place.K[STAGES] - place.K[STAGES - 1]
    return size > 0.0 and h * math.sqrt(np.dot(change, change)) > STABILITY_LIMIT * size


@jitable
def part(motion: Any, place: Place, h: float) -> None:
    """Take a step of length h whatever its error is; y and F have its end and polynomial."""
    t = place.span[0]
    place.K[0] = place.f
    stages(motion, t, place.x, h, place.K, 1, STAGES + 1, place.y)
    end = place.y.copy()
    stages(motion, t, place.x, h, place.K, STAGES + 1, ALL_STAGES, place.y)
    place.y[:] = end
    bend(place, place.y, h)


@jitable
def step(motion: Any, rule: Rule, place: Place) -> bool:
    """Find the next step by its error and leave it open: its end in span[2] and y, the next length in span[3]."""
    t, least = place.span[0], 10.0 * abs(np.nextafter(place.span[0], np.inf) - place.span[0])
    size, rejected = min(max(place.span[1], least), rule.max_step), False
    place.K[0] = place.f
    place.counts[LOST] = 0
    while True:
        if size < least:
            return False
        end = min(t + size, rule.end)
        h = end - t
        stages(motion, t, place.x, h, place.K, 1, STAGES + 1, place.y)
        error = error_of(place.K, place.x, place.y, h, rule.rtol, rule.atol)
        if error < 1.0:
            break
        if not math.isfinite(error):
            place.counts[LOST] = 1
        factor = SAFETY * error**EXPONENT
        size, rejected = h * (factor if factor > MIN_FACTOR else MIN_FACTOR), True
    factor = MAX_FACTOR if error == 0.0 else min(MAX_FACTOR, SAFETY * error**EXPONENT)
    # After a rejection the next step is not longer, as in SciPy: the error estimate was just too optimistic.
    place.span[3] = h * (min(1.0, factor) if rejected else factor)
    place.span[2] = end
    return True


@jitable
def close(motion: Any, rule: Rule, place: Place) -> int:
    """Accept the open step: its state on the constraints, and the next length; return STIFF or RUNNING."""
    h = place.span[2] - place.span[0]
    limited = rule.patient > 0 and is_at_limit(place, h)
    place.counts[SLOW] = place.counts[SLOW] + 1 if limited else 0
    place.span[0], place.span[1] = place.span[2], place.span[3]
    place.x[:] = place.y
    place.f[:] = place.K[STAGES]
    put(motion, place.span[0], place.x, place.f)
    return STIFF if 0 < rule.patient <= place.counts[SLOW] else RUNNING


@jitable
def leap(motion: Any, rule: Rule, place: Place, rows: Rows) -> int:
    """Take steps and record their samples until a guard may cross in one: that step is recorded last and left open."""
    place.counts[TAKEN] = 0
    while place.counts[TAKEN] < rule.most:
        if place.span[0] >= rule.end:
            return FINISHED
        if not step(motion, rule, place):
            return FAILED
        t, end, k = place.span[0], place.span[2], place.counts[TAKEN]
        before = place.y.copy()
        stages(motion, t, place.x, end - t, place.K, STAGES + 1, ALL_STAGES, place.y)
        place.y[:] = before
        bend(place, place.y, end - t)
        rows.t[k] = t + (end - t) * NODES
        rows.x[k] = place.x + np.dot(WEIGHTS, place.F)
        sample(motion, rows.t[k], rows.x[k], rows.guards[k], rows.forces[k], rows.rates[k])
        place.counts[TAKEN] = k + 1
        if not is_clear(rows.guards[k], rows.rates[k], rule.distances, end - t, rule.touching):
            return OPEN
        if close(motion, rule, place) == STIFF:
            return STIFF
    return FINISHED if place.span[0] >= rule.end else RUNNING


RATE, SAMPLE, PART, STEP, CLOSE, LEAP = range(6)
"""Commands of `perform`."""


@jitable
def perform(command: int, motion: Any, rule: Rule, place: Place, rows: Rows, h: float) -> int:
    """Do one of the above; one function of all of them is one compilation and one entry in numba's cache."""
    if command == LEAP:
        return leap(motion, rule, place, rows)
    if command == CLOSE:
        return close(motion, rule, place)
    if command == STEP:
        if not step(motion, rule, place):
            return FAILED
        length = place.span[2] - place.span[0]
        end = place.y.copy()
        stages(motion, place.span[0], place.x, length, place.K, STAGES + 1, ALL_STAGES, place.y)
        place.y[:] = end
        bend(place, place.y, length)
        return RUNNING
    if command == PART:
        part(motion, place, h)
    elif command == RATE:
        rate(motion, h, place.y, place.f)
    elif command == SAMPLE:
        sample(motion, rows.t[0], rows.x[0], rows.guards[0], rows.forces[0], rows.rates[0])
    return RUNNING


def versioned(version: str) -> Any:
    """Return `perform` wrapped for one version of its sources, so that numba's cache on disk depends on it."""

    def perform_version(command: int, motion: Any, rule: Rule, place: Place, rows: Rows, h: float) -> int:
        _ = version
        return perform(command, motion, rule, place, rows, h)

    return perform_version


# --- one phase ---


def place_of(x: Array) -> Place:
    """Return room for steps from a state."""
    n = x.size
    return Place(
        span=np.zeros(4),
        x=x.copy(),
        f=np.zeros(n),
        y=x.copy(),
        K=np.zeros((ALL_STAGES, n)),
        F=np.zeros((POWERS, n)),
        counts=np.zeros(3, dtype=np.int64),
    )


def rows_of(count: int, n_x: int, widths: tuple[int, int, int], samples: int = NODES.size) -> Rows:
    """Return room for the samples of some steps; `widths` are the numbers of guards, forces and rates."""
    times = np.zeros((count, samples))
    return Rows(times, *(np.zeros((count, samples, width)) for width in (n_x, *widths)))


def rule_of(**limits: Any) -> Rule:
    """Return a rule, by default without limits."""
    given = {"end": 0.0, "rtol": 0.0, "atol": 0.0, "max_step": np.inf, "touching": 0.0, "distances": 0}
    return Rule(**{**given, "patient": 0, "most": 1, **limits})


class ExplicitSolver:
    """The loop in one phase, with the interface of SciPy's solvers.

    Parameters
    ----------
    motion : InterpretedMotion
    t, x, f : float, (n_x,), (n_x,)
        Initial time [s], state and rate.
    rule : Rule
    widths : 3 int
        Numbers of guards, forces and rates.
    first_step : float, optional
        Length of the first step [s]; default: by the size of the rate and of its change.
    """

    explicit, message = True, "Required step size is less than spacing between numbers."

    def __init__(
        self,
        motion: Any,
        t: float,
        x: Array,
        f: Array,
        rule: Rule,
        widths: tuple[int, int, int],
        first_step: float | None = None,
    ) -> None:
        self.motion, self.rule, self.place = motion, rule, place_of(x)
        self.rows = rows_of(rule.most, x.size, widths)
        self.place.f[:] = f
        self.place.span[:2] = t, self._first(t, x, f) if first_step is None else first_step
        self.open, self.status = False, "running" if t < rule.end else "finished"

    def _do(self, command: int, h: float = 0.0) -> int:
        with np.errstate(all="ignore"):  # a step beyond where the model has values is rejected by its error
            done = self.motion.perform(command, self.motion.data, self.rule, self.place, self.rows, h)
        self.status = "failed" if done == FAILED else self.status
        return int(done)

    @property
    def t(self) -> float:
        """Time [s]: the end of the open step, if there is one."""
        return float(self.place.span[2 if self.open else 0])

    @property
    def y(self) -> Array:
        """State there."""
        return self.place.y if self.open else self.place.x

    @property
    def f(self) -> Array:
        """Rate at the start of the next or of the open step."""
        return self.place.f.copy()

    @property
    def finite(self) -> bool:
        """False if a rate in the last step was not finite."""
        return not self.place.counts[LOST]

    @property
    def start(self) -> tuple[float, Array]:
        """Time and state after the last closed step."""
        return float(self.place.span[0]), self.place.x.copy()

    @property
    def taken(self) -> int:
        """Number of steps in the last leap, the open one included."""
        return int(self.place.counts[TAKEN])

    def leap(self) -> bool:
        """Take steps until a guard may cross in one, which is then open; return True if stability limits them."""
        reason = self._do(LEAP)
        self.open = reason == OPEN
        self._finish()
        return reason == STIFF

    def close(self) -> bool:
        """Accept the open step; return True if stability limits the steps."""
        reason, self.open = self._do(CLOSE), False
        self._finish()
        return reason == STIFF

    def step(self) -> str | None:
        """Take one step and leave it open; from an open step on from its end, without projection."""
        place = self.place
        if self.open:
            place.x[:], place.f[:] = place.y, place.K[STAGES]
            place.span[:2] = place.span[2:]
        self.open = self._do(STEP) != FAILED
        if self.open and place.span[2] >= self.rule.end:
            self.status = "finished"
        return None if self.open else self.message

    def part(self, t: float, x: Array, f: Array, time: float) -> tuple[Array, StepPolynomial]:
        """Return the state at a time inside an accepted step from x with rate f, and the polynomial up to there."""
        self.open, self.place.span[0] = False, t
        self.place.x[:], self.place.f[:] = x, f
        self._do(PART, time - t)
        return self.place.y.copy(), StepPolynomial(t, time, x, self.place.F.T.copy())

    def dense_output(self) -> StepPolynomial:
        """Return the polynomial of the open step."""
        start, end = self.place.span[0], self.place.span[2]
        return StepPolynomial(start, end, self.place.x.copy(), self.place.F.T.copy())

    def _finish(self) -> None:
        if self.status == "running" and not self.open and self.place.span[0] >= self.rule.end:
            self.status = "finished"

    def _first(self, t: float, x: Array, f: Array) -> float:
        """Return the length of the first step, as SciPy does (Hairer, Section II.4)."""
        span, rule = self.rule.end - t, self.rule
        scale = rule.atol + np.abs(x) * rule.rtol

        def size(values: Array) -> float:
            return float(np.linalg.norm(values / scale) / values.size**0.5)

        d0, d1 = size(x), size(f)
        h = min(1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1, span)
        if not h > 0.0:
            return span
        d2 = size(self.motion.rate(t + h, x + h * f) - f) / h
        least = max(1e-6, 1e-3 * h) if d1 <= 1e-15 and d2 <= 1e-15 else (0.01 / max(d1, d2)) ** (1.0 / 8.0)
        return min(100.0 * h, least, span, rule.max_step)


class StepPolynomial:
    """Dense output of a step, like SciPy's: states (n_x,) at a time, (n_x, m) at many."""

    def __init__(self, t_old: float, t: float, y_old: Array, polynomial: Array) -> None:
        self.t_old, self.h, self.y_old, self.polynomial = t_old, t - t_old, y_old, polynomial

    def __call__(self, t: Any) -> Array:
        moved = self.polynomial @ weights_of((np.asarray(t) - self.t_old) / self.h)
        return np.asarray(moved + (self.y_old if moved.ndim == 1 else self.y_old[:, None]))
