"""Guesses by the names of states and controls, and by keyframes, as the functions of time that solvers start from.

Every name becomes a function of time. Keyframes are joined by straight lines; quaternions are interpolated on the
sphere, as lines between them would lose the length and the rate. Velocities that no keyframe mentions are derived from
the coordinates: the slopes of the lines, or the least-squares solution of N(q) v = q'. A start with consistent
velocities satisfies the kinematic equations already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from nosnoc_py.errors import TranscriptionError, unknown_name
from nosnoc_py.functions import numbers
from nosnoc_py.rotations import turned_between
from nosnoc_py.systems.quaternions import with_attitude

if TYPE_CHECKING:
    from nosnoc_py.ocp import OCP

Array = np.ndarray
Course = Callable[[float], float]
GROUPS = ("x", "u")
# Step of central differences, as a fraction of the duration: a guess needs no more than a few digits.
RATE_STEP = 1e-6


def guess_by_name(ocp: OCP, guess: Any) -> Any:
    """Return a guess by names as one with "x" and "u"; every other guess unchanged.

    Parameters
    ----------
    ocp : OCP
    guess : mapping, or anything else
        Names of states and controls with their values: a number, numbers at equal distances (of a state at times from
        0 to the horizon, of a control on intervals), or a function of time. Or keyframes: times with such mappings of
        numbers, `{0: {"height": 1.0}, 0.4: {"height": 0.0}}`, between which lines are drawn; the velocity of a
        coordinate is the slope of its lines, unless keyframes have it. Quaternions turn the short way between theirs,
        which have all four components. States that are not mentioned stay at x0, controls are zero.

    Raises
    ------
    TranscriptionError
        For unknown names, times outside of the horizon, and values that are not numbers.
    """
    if not isinstance(guess, Mapping) or not guess or all(key in GROUPS for key in guess):
        return guess
    s = ocp.system
    if all(isinstance(key, Real) and not isinstance(key, bool) for key in guess):
        frames = _keyframes(guess, (*s.state_names, *s.control_names), float(ocp.horizon))
        # Quaternions replace the lines of their four components, which do not keep the length.
        frames |= _turns(s, frames)
        # Velocities that keyframes give replace the slopes of the lines.
        courses = _slopes(s, frames) | {name: course for name, (course, _) in frames.items()}
        times = tuple(sorted(float(time) for time, frame in guess.items() if set(frame) & set(s.state_names)))
    else:
        legal = (*s.state_names, *s.control_names)
        for name in guess:
            if name not in legal:
                raise TranscriptionError(f"guess: {unknown_name(str(name), (*legal, *GROUPS))}")
        courses = {
            name: _course(value, name, name in s.state_names, float(ocp.horizon)) for name, value in guess.items()
        }
        moving = [value for name, value in guess.items() if name in s.state_names]
        counts = {np.size(value) for value in moving if not callable(value)} - {1}
        rows = [np.linspace(0.0, float(ocp.horizon), count) for count in counts]
        # A function of time has no times of its own.
        times = () if any(map(callable, moving)) else tuple(np.unique(np.concatenate([[], *rows])).tolist())
    start = ocp.x0
    if start is None:
        # Zero within the bounds; a zero quaternion is no attitude.
        start = with_attitude(np.clip(0.0, *ocp.x_bounds), s.unit_parts)
    return {
        "x": DrawnCourses(courses, s.state_names, start, times),
        "u": DrawnCourses(courses, s.control_names, np.zeros(s.n_u)),
    }


class DrawnCourses:
    """All components as a function of time; those without a course stay where they start.

    Attributes
    ----------
    times : tuple of float
        Times that the user has given, between which lines are drawn; empty for functions of time.
    """

    def __init__(
        self, courses: Mapping[str, Course], names: tuple[str, ...], start: Array, times: tuple[float, ...] = ()
    ) -> None:
        self.start, self.times = np.array(start, dtype=float), times
        self.known = [(k, courses[name]) for k, name in enumerate(names) if name in courses]

    def __call__(self, t: float) -> Array:
        values = self.start.copy()
        for k, course in self.known:
            values[k] = course(t)
        return values


def _keyframes(guess: Mapping[Any, Any], legal: tuple[str, ...], horizon: float) -> dict[str, tuple[Course, Course]]:
    """Return lines through the keyframes of every name, and their slopes."""
    points: dict[str, list[tuple[float, float]]] = {}
    for time in sorted(guess, key=float):
        said = f"guess: the keyframe at {time:g} s"
        if not 0.0 <= float(time) <= horizon * (1 + 1e-9):
            raise TranscriptionError(
                f"guess: the keyframe at {time:g} s lies outside of the horizon, 0 to {horizon:g} s."
            )
        frame = guess[time]
        if not isinstance(frame, Mapping):
            raise TranscriptionError(
                f"guess: the keyframe at {time:g} s: expected names with numbers, given {frame!r}."
            )
        for name, value in frame.items():
            if name not in legal:
                raise TranscriptionError(f"{said}: {unknown_name(str(name), legal)}")
            points.setdefault(name, []).append((float(time), _number(value, f"keyframe at {time:g} s: {name}")))
    return {name: _lines(np.array(rows)) for name, rows in points.items()}


def _lines(rows: Array) -> tuple[Course, Course]:
    t, values = rows.T
    # At the last keyframe and after it the value stays, so that its slope is zero.
    slopes = np.append(np.diff(values) / np.diff(t), 0.0) if len(t) > 1 else np.zeros(1)

    def slope(time: float) -> float:
        k = int(np.searchsorted(t, time, "right")) - 1
        return float(slopes[k]) if 0 <= k < len(t) else 0.0

    return _Line(t, values), slope


@dataclass(frozen=True, eq=False)
class _Line:
    """Values joined by lines."""

    times: Array
    values: Array

    def __call__(self, time: float) -> float:
        return float(np.interp(time, self.times, self.values))


def _slopes(system: Any, courses: Mapping[str, tuple[Course, Course]]) -> dict[str, Course]:
    """Return the velocities of coordinates that have keyframes."""
    if not hasattr(system, "v"):
        return {}
    if system.moves_by_v:
        pairs = zip(system.names["q"], system.names["v"], strict=True)
        return {v: courses[q][1] for q, v in pairs if q in courses}

    def velocities(t: float) -> Array:
        """Return v with N(q) v = q'; coordinates without keyframes stand still."""
        q, rate = (
            np.array([courses[name][k](t) if name in courses else 0.0 for name in system.names["q"]]) for k in (0, 1)
        )
        x = with_attitude(np.concatenate([q, np.zeros(system.n_v + system.y.numel())]), system.unit_parts)
        along = system.mechanics.moved(x, system.p_or_zeros, np.eye(system.n_v))
        # N(q) need not be square: q' of a guess may have components that no velocity produces.
        return np.asarray(np.linalg.lstsq(along, rate, rcond=None)[0])

    def component(k: int, t: float) -> float:
        return float(velocities(t)[k])

    return {name: partial(component, k) for k, name in enumerate(system.names["v"])}


def _turns(system: Any, courses: Mapping[str, tuple[Course, Course]]) -> dict[str, tuple[Course, Course]]:
    """Return quaternions between their keyframes, turned the short way at a constant rate."""
    result: dict[str, tuple[Course, Course]] = {}
    for part in system.unit_parts:
        names = system.names["q"][part]
        own = [courses[name][0] for name in names if name in courses]
        if not own:
            continue
        # All four components need the same times, as a quaternion has no meaning component by component.
        times = {tuple(getattr(course, "times", ())) for course in own}
        if len(own) < 4 or len(times) > 1:
            raise TranscriptionError(
                f"guess: {', '.join(names)} are one quaternion; give all four in every keyframe that has one."
            )
        turn = _Turn(np.array(next(iter(times))), np.array([[course(t) for course in own] for t in next(iter(times))]))
        for k, name in enumerate(names):
            result[name] = partial(turn.at, k), partial(turn.rate, k)
    return result


@dataclass(frozen=True, eq=False)
class _Turn:
    """Unit quaternions (m, 4) at times (m,), with spherical interpolation between them."""

    times: Array
    values: Array

    def at(self, k: int, t: float) -> float:
        """Return one component."""
        # Before the first and after the last keyframe the attitude stays.
        i = int(np.clip(np.searchsorted(self.times, t, "right") - 1, 0, max(len(self.times) - 2, 0)))
        if len(self.times) == 1:
            return float(self.values[0, k])
        share = np.clip((t - self.times[i]) / (self.times[i + 1] - self.times[i]), 0.0, 1.0)
        return float(turned_between(self._unit(i), self._unit(i + 1), float(share))[k])

    def rate(self, k: int, t: float) -> float:
        """Return the derivative of a component by a central difference, one-sided at the ends."""
        step = RATE_STEP * (self.times[-1] - self.times[0])
        low, high = (np.clip(t + sign * step, self.times[0], self.times[-1]) for sign in (-1, 1))
        return float((self.at(k, high) - self.at(k, low)) / (high - low)) if high > low else 0.0

    def _unit(self, i: int) -> Array:
        return np.asarray(self.values[i] / np.linalg.norm(self.values[i]))


def _course(value: Any, name: str, state: bool, horizon: float) -> Course:
    """Return a number, numbers at equal distances, or a function of time."""
    if callable(value):
        return lambda t: _number(value(t), name)
    rows = np.atleast_1d(numbers(value, f"guess: {name}", np.size(value), TranscriptionError, finite=True))
    if state:
        times = np.linspace(0.0, horizon, len(rows))
        return lambda t: float(np.interp(t, times, rows))
    # Controls are constant on equal intervals; the end belongs to the last one.
    return lambda t: float(rows[min(int(t / horizon * len(rows)), len(rows) - 1)])


def _number(value: Any, what: str) -> float:
    return float(numbers(value, f"guess: {what}", 1, TranscriptionError, finite=True)[0])
