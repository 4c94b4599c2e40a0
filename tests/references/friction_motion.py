"""Motions with friction in closed form: what a case is made of.

Under a constant force (or one that grows linearly) every motion here is a polynomial in time between events, with the
coefficients q, v, a, j of q + v s + a s^2/2 + j s^3/6; only the times of the events need a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import nosnoc_py as ns

Array = NDArray[np.float64]
Events = tuple[tuple[str, str, float], ...]
SAME_TIME = 1e-3  # a found event further away from the exact one is another event [s]
NOWHERE: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """A motion whose every state and event is known.

    Parameters
    ----------
    name : str
        Ends with the dimension, "_2d" or "_3d".
    system : ns.CLS
    x0 : (n_x,)
        State at t = 0.
    u : (n_u,)
        Constant control.
    duration : float
        [s].
    exact : function
        t -> x, (n_x,) or (times, n_x); the right limit where the state jumps.
    events : tuple of (kind, contact, time)
        Kinds as in `nosnoc_py.solution.records.EVENT_KINDS`; an inelastic landing is an "impact" and a "contact". What
        a contact does at the same time only because another one makes the velocity jump is left out.
    polynomial : bool
        Whether the motion is a polynomial of degree 3 or less between events: collocation with three stages then
        commits no error of its own.
    """

    name: str
    system: ns.CLS
    x0: Array
    u: Array
    duration: float
    exact: Callable[[ArrayLike], Array]
    events: Events = ()
    polynomial: bool = True

    @property
    def event_times(self) -> int:
        """Number of different times at which something happens; simultaneous events count once."""
        return len({time for _, _, time in self.events})

    @property
    def dimension(self) -> int:
        """2 for planar friction, 3 for a cone in space."""
        return 1 + int(self.system.contacts[0].tangent.shape[1])


@dataclass(frozen=True, eq=False)
class Motion:
    """A polynomial in pieces: `starts` of the pieces (n,), and for each the derivatives (4, n_q) of q there."""

    starts: tuple[float, ...]
    derivatives: tuple[Array, ...]

    def __call__(self, t: ArrayLike) -> Array:
        """States (n_x,) or (times, n_x), right limits."""
        times = np.atleast_1d(np.asarray(t, dtype=float))
        which = np.maximum(np.searchsorted(self.starts, times, side="right") - 1, 0)
        x = np.array([self._state(k, time - self.starts[k]) for k, time in zip(which, times, strict=True)])
        return x if np.ndim(t) else x[0]

    def _state(self, k: int, s: float) -> Array:
        q, v, a, j = self.derivatives[k]
        return np.concatenate([q + s * (v + s * (a / 2.0 + s * j / 6.0)), v + s * (a + s * j / 2.0)])

    def then(
        self, time: float, *, v: Any = None, a: Any = 0.0, j: Any = 0.0, at: Mapping[int, float] = NOWHERE
    ) -> Motion:
        """Continue from `time` on with other derivatives; positions are continuous, velocities unless v is given.

        `at` gives coordinates that a contact fixes to their value without rounding.
        """
        last = self._state(len(self.starts) - 1, time - self.starts[-1])
        n = last.size // 2
        q = np.array([at.get(i, value) for i, value in enumerate(last[:n])])
        rows = _rows(q, last[n:] if v is None else v, a, j)
        return Motion((*self.starts, time), (*self.derivatives, rows))


def motion(q: Any, v: Any, a: Any = 0.0, j: Any = 0.0) -> Motion:
    """A motion that starts at t = 0."""
    return Motion((0.0,), (_rows(np.asarray(q, dtype=float), v, a, j),))


def _rows(q: Array, *others: Any) -> Array:
    return np.array([q, *(np.broadcast_to(np.asarray(other, dtype=float), q.shape) for other in others)])


@dataclass(frozen=True)
class Line:
    """Dry friction on a line: (start, velocity, acceleration) of every piece, and what happens at the stop."""

    pieces: tuple[tuple[float, float, float], ...]
    event: tuple[str, float] | None = None

    def events(self, contacts: Sequence[str], until: float, start: float = 0.0) -> Events:
        """The stop, if it comes before `until`, as an event of these contacts; the line began at `start`."""
        if self.event is None or start + self.event[1] >= until:
            return ()
        kind, time = self.event
        return tuple((kind, contact, start + time) for contact in contacts)


def line(speed: float, drive: float, grip: float) -> Line:
    """Motion with the acceleration `drive` against dry friction of the size `grip` [m/s^2].

    A body that moves has the acceleration drive -+ grip. When it stops, it stays if |drive| <= grip ("stick"), or else
    turns around ("reversal"). A body at rest stays or starts by the same rule.
    """
    net = float(np.sign(drive)) * max(abs(drive) - grip, 0.0)
    if speed == 0.0:
        return Line(((0.0, 0.0, net),))
    acceleration = drive - float(np.sign(speed)) * grip
    if speed * acceleration >= 0.0:
        return Line(((0.0, speed, acceleration),))
    stop = -speed / acceleration
    return Line(((0.0, speed, acceleration), (stop, 0.0, net)), ("reversal" if net else "stick", stop))


def on_line(q: ArrayLike, direction: ArrayLike, found: Line) -> Motion:
    """The motion in space of a body on a line through q."""
    unit = np.asarray(direction, dtype=float)
    (_, speed, acceleration), *rest = found.pieces
    moved = motion(q, speed * unit, acceleration * unit)
    for start, speed, acceleration in rest:
        moved = moved.then(start, v=speed * unit, a=acceleration * unit)
    return moved


def compared_events(exact: Events, found: Events) -> dict[str, Any]:
    """Match every exact event with the nearest found one of its kind and contact.

    Returns
    -------
    dict
        "event_error", and the texts of what is "missing" and "extra"; at the time of an impact nothing is extra.
    """
    rest, errors, missing = list(found), [], []
    for kind, name, at in exact:
        near = [event for event in rest if event[:2] == (kind, name) and abs(event[2] - at) < SAME_TIME]
        if near:
            best = min(near, key=lambda event: abs(event[2] - at))
            rest.remove(best)
            errors.append(abs(best[2] - at))
        else:
            missing.append(f"{kind} {name} at {at:.6g}")
    impacts = [at for kind, _, at in exact if kind == "impact"]
    extra = [event for event in rest if all(abs(event[2] - at) > SAME_TIME for at in impacts)]
    return {
        "event_error": max(errors, default=np.nan),
        "missing": tuple(missing),
        "extra": tuple(f"{kind} {name} at {at:.6g}" for kind, name, at in extra),
    }
