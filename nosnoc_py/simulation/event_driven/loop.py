"""The loop of steps in one phase: compiled by numba or interpreted, it takes steps as long as no guard can cross.

A step in which a guard may cross is left to `motion.crossing`. Steps are those of `explicit`, and of `implicit` while a
slip in space starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.motion.crossing import NODES, doubts
from nosnoc_py.simulation.event_driven import explicit, implicit
from nosnoc_py.simulation.event_driven.dop853 import ALL_STAGES, POWERS, STAGES
from nosnoc_py.simulation.event_driven.location import locate
from nosnoc_py.simulation.event_driven.steps import (
    EVALUATED,
    FAILED,
    FINISHED,
    GROWN,
    LOCATED,
    LOST,
    OPEN,
    RUNNING,
    SLOW,
    STIFF,
    TAKEN,
    Array,
    StepPlace,
    StepRows,
    StepRule,
    is_slow,
    noise_of,
    put,
    rate,
    rounding,
    sample,
)


@jitable
def find(motion: Any, rule: StepRule, place: StepPlace) -> bool:
    """Find the next step and leave it open; False if it would be too small."""
    return implicit.step(motion, rule, place) if rule.implicit else explicit.step(motion, rule, place)


@jitable
def close(motion: Any, rule: StepRule, place: StepPlace) -> int:
    """Accept the open step: its state on the constraints, and the next length; return STIFF, GROWN or RUNNING."""
    h = place.span[2] - place.span[0]
    limited = rule.patient > 0 and explicit.is_at_limit(place, h)
    place.counts[SLOW] = place.counts[SLOW] + 1 if limited else 0
    place.span[0], place.span[1] = place.span[2], place.span[3]
    place.x[:] = place.y
    place.f[:] = place.K[STAGES]
    put(motion, place.span[0], place.x, place.f)
    if rule.implicit:
        return RUNNING if is_slow(motion, place.span[0], place.x) else GROWN
    return STIFF if 0 < rule.patient <= place.counts[SLOW] else RUNNING


@jitable
def leap(motion: Any, rule: StepRule, place: StepPlace, rows: StepRows) -> int:
    """Take steps and record their samples until a guard crosses in one, which then ends there, or may cross: that step
    is recorded last and left open.
    """
    place.counts[TAKEN], place.counts[EVALUATED] = 0, 0
    while place.counts[TAKEN] < rule.most:
        if place.span[0] >= rule.end:
            return FINISHED
        if not find(motion, rule, place):
            return FAILED
        t, end, k = place.span[0], place.span[2], place.counts[TAKEN]
        rows.t[k] = t + (end - t) * NODES
        rows.x[k] = place.x + np.dot(implicit.WEIGHTS if rule.implicit else explicit.WEIGHTS, place.F)
        sample(motion, rows.t[k], rows.x[k], rows.guards[k], rows.forces[k], rows.rates[k])
        place.counts[TAKEN] = k + 1
        doubtful = doubts(rows.guards[k], rows.rates[k], rule.distances, end - t, rule.touching)
        if doubtful.any():
            reason = locate(motion, rule, place, rows, k, doubtful)
            if reason != RUNNING:
                return reason
        if rule.locates and not place.enabled.all():
            # Enabled guards stay enabled: one that falls to zero within rounding still has to be seen when it crosses.
            place.enabled[:] |= rows.guards[k, 7] > rounding(rule.noise, rows.forces[k])
        reason = close(motion, rule, place)
        if reason != RUNNING:
            return reason
    return FINISHED if place.span[0] >= rule.end else RUNNING


RATE, SAMPLE, PART, STEP, CLOSE, LEAP = range(6)
"""Commands of `perform`."""


@jitable
def perform(command: int, motion: Any, rule: StepRule, place: StepPlace, rows: StepRows, h: float) -> int:
    """Do one of the above; one function of all of them is one compilation and one entry in numba's cache."""
    if command == LEAP:
        return leap(motion, rule, place, rows)
    if command == CLOSE:
        return close(motion, rule, place)
    if command == STEP:
        return RUNNING if find(motion, rule, place) else FAILED
    if command == PART:
        explicit.part(motion, place, h)
    elif command == RATE:
        rate(motion, h, place.y, place.f)
    elif command == SAMPLE:
        sample(motion, rows.t[0], rows.x[0], rows.guards[0], rows.forces[0], rows.rates[0])
    return RUNNING


def versioned(version: str) -> Any:
    """Return `perform` wrapped for one version of its sources, so that numba's cache on disk depends on it."""

    def perform_version(command: int, motion: Any, rule: StepRule, place: StepPlace, rows: StepRows, h: float) -> int:
        _ = version
        return perform(command, motion, rule, place, rows, h)

    # Every version has an index of its own: numba reads all of an index, and another version may have other classes.
    perform_version.__qualname__ = f"perform_{version[:16]}"
    return perform_version


# --- one phase ---


def place_of(x: Array, enabled: Array | None = None) -> StepPlace:
    """Return room for steps from a state, and for the guards that are enabled."""
    n = x.size
    return StepPlace(
        span=np.zeros(4),
        last=np.zeros(2),
        x=x.copy(),
        f=np.zeros(n),
        y=x.copy(),
        K=np.zeros((ALL_STAGES, n)),
        F=np.zeros((POWERS, n)),
        counts=np.zeros(4, dtype=np.int64),
        enabled=np.zeros(0, dtype=bool) if enabled is None else enabled,
        found=np.zeros(5),
    )


def rows_of(count: int, n_x: int, widths: tuple[int, int, int], samples: int = NODES.size) -> StepRows:
    """Return room for the samples of some steps; `widths` are the numbers of guards, forces and rates."""
    times = np.zeros((count, samples))
    return StepRows(times, *(np.zeros((count, samples, width)) for width in (n_x, *widths)))


def rule_of(**limits: Any) -> StepRule:
    """Return a rule, by default without limits."""
    given = {"end": 0.0, "rtol": 0.0, "atol": 0.0, "max_step": np.inf, "touching": 0.0, "distances": 0}
    given |= {"patient": 0, "most": 1, "implicit": False, "locates": False, "slow": 0.0, "soft": 0.0}
    return StepRule(**{**given, "noise": NO_NOISE, **limits})


NO_NOISE = noise_of(np.zeros((3, 0)), 0)


class LoopSolver:
    """The loop in one phase, with the interface of SciPy's solvers.

    Parameters
    ----------
    motion : InterpretedMotion
    t, x, f : float, (n_x,), (n_x,)
        Initial time [s], state and rate.
    rule : StepRule
    widths : 3 int
        Numbers of guards, forces and rates.
    first_step : float, optional
        Length of the first step [s]; default: by the size of the rate and of its change.
    enabled : (n_g,) bool, optional
        Guards that are positive or about to become so; steps without a crossing enable more of them.
    """

    message = "Required step size is less than spacing between numbers."

    def __init__(
        self,
        motion: Any,
        t: float,
        x: Array,
        f: Array,
        rule: StepRule,
        widths: tuple[int, int, int],
        first_step: float | None = None,
        enabled: Array | None = None,
    ) -> None:
        self.motion, self.rule, self.place = motion, rule, place_of(x, enabled)
        self.rows = rows_of(rule.most, x.size, widths)
        self.place.f[:] = f
        self.place.span[:2] = t, self._first(t, x, f) if first_step is None else first_step
        self.open, self.located, self.status = False, False, "running" if t < rule.end else "finished"

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
    def evaluated(self) -> int:
        """Number of evaluations of guards in pieces of steps in the last leap."""
        return int(self.place.counts[EVALUATED])

    @property
    def taken(self) -> int:
        """Number of steps in the last leap, the open one included."""
        return int(self.place.counts[TAKEN])

    def leap(self) -> bool:
        """Take steps until a guard may cross in one, which is then open, or has crossed; return True if other steps are
        better now.
        """
        reason = self._do(LEAP)
        self.located = reason == LOCATED
        self.open = self.located or reason == OPEN
        self._finish()
        return reason in (STIFF, GROWN)

    def close(self) -> bool:
        """Accept the open step; return True if other steps are better now."""
        reason, self.open = self._do(CLOSE), False
        self._finish()
        return reason in (STIFF, GROWN)

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
        return self.place.y.copy(), StepPolynomial(t, time, x, self.place.F.T.copy(), explicit.weights_of)

    def dense_output(self) -> StepPolynomial:
        """Return the polynomial of the open step."""
        start, end = self.place.span[0], self.place.span[2]
        weights_of = implicit.weights_of if self.rule.implicit else explicit.weights_of
        return StepPolynomial(start, end, self.place.x.copy(), self.place.F.T.copy(), weights_of)

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
        order = 4.0 if rule.implicit else 8.0
        least = max(1e-6, 1e-3 * h) if d1 <= 1e-15 and d2 <= 1e-15 else (0.01 / max(d1, d2)) ** (1.0 / order)
        return min(100.0 * h, least, span, rule.max_step)


class StepPolynomial:
    """Dense output of a step, like SciPy's: states (n_x,) at a time, (n_x, m) at many."""

    def __init__(
        self, t_old: float, t: float, y_old: Array, polynomial: Array, weights_of: Callable[[Any], Array]
    ) -> None:
        self.t_old, self.h, self.y_old, self.polynomial = t_old, t - t_old, y_old, polynomial
        self.weights_of = weights_of

    def __call__(self, t: Any) -> Array:
        moved = self.polynomial @ self.weights_of((np.asarray(t) - self.t_old) / self.h)
        return np.asarray(moved + (self.y_old if moved.ndim == 1 else self.y_old[:, None]))
