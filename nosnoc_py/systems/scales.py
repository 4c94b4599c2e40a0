"""Typical length and speed of a contact problem, estimated before it is solved; tolerances are relative to them.

Tolerances of gaps and rates must not depend on the units of the user. The estimate uses the initial state and the
forces there only, so that every method has the same tolerances before it has computed anything. Sizes are rounded to
powers of ten (`ProblemScales`). Where nothing moves towards a contact, motions beside the contacts count instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nosnoc_py.systems.pace import course_of
from nosnoc_py.tolerances import REST_VELOCITY

if TYPE_CHECKING:
    from nosnoc_py.systems.cls import CLS

Array = np.ndarray
# Number of instants at which the control is evaluated: enough to see the forces of a control with some pieces.
INSTANTS = 16
# Bodies at rest get the speed that the forces give them within this fraction of the duration.
MOVED = 0.1
# Speeds below this fraction of others count as zero: they are rounding of gaps and of balanced forces.
NOISE = 1e-6
# Sizes whose log10 is less than this below an integer are rounded up to that power, so that rounding does not decide.
ROUNDING = 1e-6
# A motion over less than this fraction of the distance from the origin is rounding.
UNMOVED = 1e-14
# Least length, as a fraction of the distance from the origin: below it tolerances would be finer than rounding of gaps.
FAR = 1e-4


@dataclass(frozen=True, kw_only=True)
class ProblemScales:
    """Powers of ten in the user's units.

    With powers of ten the tolerances of most problems in metres and seconds are those of the table as they stand, and
    two halves of a motion have the same ones unless its speeds change by more than that.

    Attributes
    ----------
    length, speed : float
        In the unit of the gaps, and of their rates.
    steepness : float
        Norm of the steepest gradient of a gap: gaps of other units are compared by their norms.
    """

    length: float = 1.0
    speed: float = 1.0
    steepness: float = 1.0

    @property
    def acceleration(self) -> float:
        """Acceleration that reaches the speed within the length."""
        return self.speed**2 / self.length

    @property
    def velocity(self) -> float:
        """The speed in the unit of velocities."""
        return self.speed / self.steepness

    def rest_velocity(self, given: float | None, share: float = REST_VELOCITY) -> float:
        """Return the option `rest_velocity` [m/s], by default a fraction of the typical speed."""
        return share * self.velocity if given is None else given


UNIT = ProblemScales()


def problem_scales(
    system: CLS,
    *,
    x0: Array,
    control: Callable[[float, Array], Array],
    p: Array,
    duration: float,
    speed_scale: float | None = None,
) -> ProblemScales:
    """Return the typical length and speed of a contact system.

    The speed is that with which contacts move at x0, or reach each other by the forces at x0; the length is the way in
    the time that it takes these forces to make that speed, or in the duration if that is shorter.

    Parameters
    ----------
    x0 : (n_x,)
    control : function of (t, x)
        Evaluated at `INSTANTS` instants; its values contribute to the forces.
    p : (n_p,)
    duration : float
        Seconds.
    speed_scale : float, optional
        The speed, instead of the one found here.
    """
    looks = [_Look.at(system, x, u, p) for x, u in _places(system, x0, control, p, duration)]
    steepness = looks[0].steepness or 1.0
    moving = max(look.moving(duration) for look in looks)
    pushed = MOVED * duration * max(look.pushed for look in looks)
    free = max(look.free for look in looks) * steepness
    others = MOVED * duration * free + largest(x0[system.at_v]) * steepness
    # Bodies at rest in contact have tiny speeds from rounding of gaps and of balanced forces: these do not count.
    speeds = [moving if moving > NOISE * pushed else 0.0, pushed]
    speed = next((size for size in speeds if size > NOISE * others), others) if speed_scale is None else speed_scale
    # Below this speed a motion covers less than the rounding of the places in the whole run: it is none.
    speed = speed if speed > UNMOVED * max(look.away for look in looks) / duration else 0.0
    strongest = pushed / (MOVED * duration) if pushed > NOISE * others else free
    # The way in the time in which the strongest force makes the speed, but within the duration at most.
    length = speed * (min(duration, speed / strongest) if strongest else duration)
    length = max(length, FAR * max(look.away for look in looks)) if length else length
    return ProblemScales(
        length=_power(length), speed=_power(speed) if speed_scale is None else speed_scale, steepness=steepness
    )


def _places(
    system: CLS, x0: Array, control: Callable[[float, Array], Array], p: Array, duration: float
) -> list[tuple[Array, Array]]:
    """Return the states and controls at which to look: x0 under the controls of the run, at the times of the run."""
    times, course = (np.arange(INSTANTS) + 0.5) * duration / INSTANTS, course_of(system, x0, control, p, duration)
    # What depends on time is seen where it, or its rate, is largest; without it all instants are one place.
    times = times if course is None else np.concatenate([[0.0], times, course.extremes()])
    places = []
    for t in times:
        x, u = x0.copy(), np.asarray(control(float(t), x0), dtype=float).reshape(-1)
        # A law may fail at x0 for later times; the simulation reports this, not the choice of scales.
        if np.isfinite(u).all():
            x[-1] += 0.0 if course is None else t
            places.append((x, u))
    known = {(x.tobytes(), u.tobytes()): (x, u) for x, u in places}
    return list(known.values()) or [(x0, np.zeros(system.n_u))]


@dataclass(frozen=True, eq=False)
class _Look:
    """Gaps (n_c,), rates and accelerations without contact forces (n_c + n_tt,) at one state, and their largest values.

    Attributes
    ----------
    steepness, free, away : float
        Norm of the steepest gradient of a gap, the largest acceleration of a coordinate, and the largest sum of the
        terms of a gap, gradient times coordinate, whose rounding is that of the gap.
    """

    gaps: Array
    rates: Array
    accelerations: Array
    steepness: float
    free: float
    away: float

    @staticmethod
    def at(system: CLS, x: Array, u: Array, p: Array) -> _Look:
        gaps, rows, mass, force, drift = system.mechanics.directions(x, u, p)
        with np.errstate(all="ignore"):  # the simulation reports values that are not finite
            free, normals = _solved(mass, force), rows[: gaps.size]
            norms = np.sqrt((normals**2).sum(axis=1))
            sizes = np.abs(x[system.at_q])
            if not system.moves_by_v:  # no coordinate belongs to one velocity
                sizes = np.full(system.n_v, sizes.max())
            speeds, accelerations = rows @ x[system.at_v] + drift, rows @ free
            return _Look(gaps, speeds, accelerations, largest(norms), largest(free), largest(abs(normals) @ sizes))

    @property
    def pushed(self) -> float:
        """The largest acceleration in a direction of a contact."""
        return largest(self.accelerations)

    def moving(self, duration: float) -> float:
        """Return the largest speed of a contact, now or when it closes."""
        pull = np.abs(self.accelerations[: self.gaps.size])
        with np.errstate(all="ignore"):
            # Speed after a fall through the gap, or after the duration if the contact does not close before.
            fall = np.minimum(np.sqrt(2.0 * pull * np.maximum(self.gaps, 0.0)), pull * duration)
        return largest(self.rates, fall)


def _solved(matrix: Array, right: Array) -> Array:
    """Return M^-1 right; NaN where M is singular."""
    try:
        return np.asarray(np.linalg.solve(matrix, right))
    except np.linalg.LinAlgError:
        return np.full(right.size, np.nan)


def largest(*values: Array) -> float:
    """Return the size of the largest finite entry, 0 without one."""
    return max(float(part.max(initial=0.0, where=np.isfinite(part))) for part in map(np.abs, values))


def _power(size: float) -> float:
    """Return the power of ten at or below a size; 1 where there is none."""
    if not 0.0 < size < np.inf:
        return 1.0
    return float(10.0 ** np.floor(np.log10(size) + ROUNDING))
