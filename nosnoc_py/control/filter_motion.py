"""Prediction of a filter: beliefs are moved over a period by exact events, and divided where an impact is undecided.

The mean moves by a simulation; the covariance by its derivatives, saltation matrices included, or by unscented points
that are simulated one by one. Errors of the control during the period are part of what is moved.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from nosnoc_py.api import simulate
from nosnoc_py.control.beliefs import Belief, moments, symmetric, truncated, unscented
from nosnoc_py.control.guards import EventDistances
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.predicted import Output
from nosnoc_py.errors import ModelError
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.solution import Event, Trajectory
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import PiecewiseConstant
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.quaternions import unit_states

Array = np.ndarray
# An event within so many standard deviations of a measurement may be before or after it.
UNDECIDED = 3.0
# Parameters that a correction moves out of their range are moved by half as much, so often.
HALVINGS = 6
# Fraction of a period by which a motion with an event at its end is looked at earlier.
SHORTER = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True)
class NearEvent:
    """An event near the end of a period: s = value + direction @ (change of z) is positive if it comes later.

    `size` is the standard deviation of s.
    """

    name: str
    value: float
    direction: Array
    size: float

    @property
    def away(self) -> float:
        """Standard deviations between the event and the end of the period."""
        return abs(self.value) / self.size


@dataclass(frozen=True, eq=False, kw_only=True)
class MovedBelief:
    """Belief at the end of a period.

    Attributes
    ----------
    belief : Belief
    closed : (m,)
        Rows of constraints of closed contacts, see `EventDistances`.
    mode : tuple of str
        Their names.
    events, event_std : tuple of Event, (n_events,)
        Events of the mean, their times since the start of the period, and the standard deviations of these.
    part : str
        "X before", "X later" for one part of a belief that was divided at an event of X, else "".
    log_share : float
        Logarithm of the share of this part.
    nis : float
        Normalised square of the innovation of this part alone.
    flags : tuple of str
    """

    belief: Belief
    closed: Array = field(default_factory=lambda: np.zeros(0, dtype=int))
    mode: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    event_std: Array = field(default_factory=lambda: np.zeros(0))
    part: str = ""
    log_share: float = 0.0
    nis: float = np.nan
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterModel:
    """All that a filter knows of its plant.

    Attributes
    ----------
    system, output, distances, method
    p : (n_p,)
        Known parameters, and means of the others.
    indices : (n_free,)
        Parameters in z, behind the states.
    scatter : (n_z,)
        Standard deviations of parameters that are drawn at every contact; 0 of all other components.
    noise : (n_z,)
        Variance of process noise per second.
    control_std : (n_u,)
    noise_of : (m, m)
        Covariance of the measurement noise.
    units : (n_z,)
        Typical sizes, in which directions are compared.
    derivatives : bool
        Covariances by derivatives rather than by points.
    """

    system: Described
    output: Output
    distances: EventDistances
    method: EventDriven
    p: Array
    indices: Array
    scatter: Array
    noise: Array
    control_std: Array
    noise_of: Array
    units: Array
    derivatives: bool

    @property
    def n_x(self) -> int:
        """Number of states."""
        return len(self.system.state_names)

    def split(self, z: Array) -> tuple[Array, Array]:
        """Return state (n_x,) and all parameters (n_p,)."""
        p = self.p.copy()
        p[self.indices] = z[self.n_x : self.n_x + len(self.indices)]
        return z[: self.n_x], p

    def predictions(
        self, belief: Belief, u: Array, duration: float, reach: float
    ) -> tuple[list[MovedBelief], int, str]:
        """Return the parts of a belief at the end of a period, the number of simulations, and why there are none.

        A belief is divided at an event that is at most `reach` standard deviations from the end.
        """
        mean, covariance = self._with_control_errors(belief)
        motion, failure = self._motion(mean, u, duration, sensitivities=self.derivatives)
        if motion is None:
            return [], 1, failure
        count = 1
        near = None
        if reach > 0.0 and self._may_be_near(motion, u):
            if not self.derivatives:
                # Where the event is depends on derivatives for points, too.
                motion = self._motion(mean, u, duration, sensitivities=True)[0] or motion
                count += 1
            watched: Trajectory | None = motion
            if self._transition(motion) is None:
                # An event at the end itself: what comes right before it tells as much.
                watched = self._motion(mean, u, (1.0 - SHORTER) * duration, sensitivities=True)[0]
                count += 1
            near = None if watched is None else self._near_event(watched, covariance, u, duration)
        if near is None or near.away > reach:
            moved, more = self._moved(belief, mean, covariance, motion, u, duration)
            return [moved], count + more, ""
        parts = []
        for side, word in ((1.0, "later"), (-1.0, "before")):
            log_share, part_mean, part_covariance = truncated(mean, covariance, near.direction, near.value, side)
            motion, failure = self._motion(part_mean, u, duration, sensitivities=self.derivatives)
            count += 1
            if motion is not None and np.isfinite(log_share):
                moved, more = self._moved(belief, part_mean, part_covariance, motion, u, duration)
                parts.append(replace(moved, part=f"{near.name} {word}", log_share=log_share))
                count += more
        return parts, count, failure

    def measured(self, belief: Belief) -> tuple[Array, Array, Array, Array | None]:
        """Return predicted values (m,), their covariance with z (n, m), their own (m, m), noise included, and slopes.

        The slopes (m, n) by z are None for unscented points.
        """
        if self.derivatives:
            x, p = self.split(belief.mean)
            y, by_x, by_p = self.output(x, p)
            H = np.hstack([by_x, by_p[:, self.indices]])
            cross = belief.covariance @ H.T
            return y, cross, symmetric(H @ cross + self.noise_of), H
        cloud = unscented(belief.mean, belief.covariance, self.units)
        values = np.array([self.output(*self.split(z))[0] for z in cloud.points])
        y, own = moments(values, cloud.weights)
        away = cloud.points - cloud.weights @ cloud.points
        return y, (cloud.weights[:, None] * away).T @ (values - y), symmetric(own + self.noise_of), None

    def admissible(self, belief: Belief, closed: Array) -> tuple[float, Belief]:
        """Return a belief with closed contacts closed and open ones not penetrated.

        The number is the logarithm of the probability of what is not beyond a guard; only this part of the belief is
        kept (its mean and covariance).
        """
        z, log_mass = belief.mean.copy(), 0.0
        z[: self.n_x] = unit_states(z[: self.n_x], self.system.unit_parts)
        x, p = self.split(z)
        z[: self.n_x] = x = self.distances.onto(x, p, closed, self.units[: self.n_x])
        tangent = self.distances.tangent(x, p, closed, self.indices, self.units[: self.n_x])
        covariance = symmetric(tangent @ belief.covariance @ tangent.T)
        for guard in self._open(closed):
            value, row = self._distance(z, guard)
            size = float(np.sqrt(max(0.0, row @ covariance @ row)))
            if size > 0.0 and value < UNDECIDED * size:
                log_part, z, covariance = truncated(z, covariance, row, value, 1.0)
                log_mass += log_part
            if (value := self._distance(z, guard)[0]) < 0.0:
                # Curvature, or no variance: the nearest state on the guard.
                by_x = self.distances.at(*self.split(z)).by_x[guard] * self.units[: self.n_x]
                if by_x.any():
                    z[: self.n_x] -= self.units[: self.n_x] * by_x * (value / (by_x @ by_x))
        return log_mass, replace(belief, mean=z, covariance=covariance)

    def less_certain(self, belief: Belief, duration: float) -> Belief:
        """Return a belief with the process noise of a period without a motion."""
        return replace(belief, covariance=belief.covariance + duration * np.diag(self.noise))

    def in_range(self, before: Array, after: Array) -> tuple[Array, bool]:
        """Return z `after` a correction with parameters that the system takes, and True if they had to be moved."""
        z = after.copy()
        for k in range(HALVINGS + 1):
            share = 0.5**k if k < HALVINGS else 0.0
            z[self.n_x :] = before[self.n_x :] + share * (after[self.n_x :] - before[self.n_x :])
            if self._takes(self.split(z)[1]):
                return z, k > 0
        return z, True

    def _takes(self, p: Array) -> bool:
        if not isinstance(self.system, CLS) or not len(self.indices):
            return True
        try:
            self.system.mechanics.frames_at(p)
        except ModelError:
            return False
        return True

    def _with_control_errors(self, belief: Belief) -> tuple[Array, Array]:
        """Return mean and covariance of z with the errors of the control appended."""
        uncertain = np.flatnonzero(self.control_std)
        n = belief.mean.size
        covariance = np.zeros((n + uncertain.size,) * 2)
        covariance[:n, :n] = belief.covariance
        covariance[n:, n:] = np.diag(self.control_std[uncertain] ** 2)
        return np.append(belief.mean, np.zeros(uncertain.size)), covariance

    def _motion(self, z: Array, u: Array, duration: float, *, sensitivities: bool) -> tuple[Trajectory | None, str]:
        """Simulate a period from z with its error of the control; return why there is no motion."""
        control = u.copy()
        control[np.flatnonzero(self.control_std)] += z[self.n_x + len(self.indices) :]
        held = PiecewiseConstant(np.array([0.0, duration]), control[None]) if control.size else None
        x, p = self.split(z)
        try:
            motion = simulate(
                self.system, x0=admissible(self.system, x, p), duration=duration, p=p, u=held, method=self.method,
                sensitivities=sensitivities,
            )  # fmt: skip
        except ModelError as error:
            return None, str(error)
        return (motion, "") if motion.success else (None, f"{motion.status}")

    def _transition(self, motion: Trajectory) -> Array | None:
        """Return d z(T) / d (z(0), error of the control), or None where the motion has no derivative."""
        sensitivity = motion.sensitivity
        if sensitivity is None or not sensitivity.smooth or not np.isfinite(sensitivity.x0).all():
            return None
        uncertain, n = np.flatnonzero(self.control_std), self.n_x + len(self.indices)
        result = np.eye(n, n + uncertain.size)
        result[: self.n_x, : self.n_x] = sensitivity.x0
        result[: self.n_x, self.n_x : n] = sensitivity.p[:, self.indices]
        if uncertain.size and sensitivity.u is not None:
            result[: self.n_x, n:] = sensitivity.u[0][:, uncertain]
        return result

    def _event_rows(self, motion: Trajectory) -> Array:
        """Return derivatives of the times of events (n_events, n) by (z, error of the control)."""
        sensitivity, uncertain = motion.sensitivity, np.flatnonzero(self.control_std)
        n = self.n_x + len(self.indices)
        rows = np.full((len(motion.events), n + uncertain.size), np.nan)
        if sensitivity is None or sensitivity.event_times_x0 is None or sensitivity.event_times_p is None:
            return rows
        rows[:, : self.n_x] = sensitivity.event_times_x0
        rows[:, self.n_x : n] = sensitivity.event_times_p[:, self.indices]
        if uncertain.size and sensitivity.event_times_u is not None:
            rows[:, n:] = sensitivity.event_times_u[:, 0][:, uncertain]
        return rows

    def _moved(
        self, belief: Belief, mean: Array, covariance: Array, motion: Trajectory, u: Array, duration: float
    ) -> tuple[MovedBelief, int]:
        """Return a belief, given with errors of the control, at the end of a motion of its mean."""
        matrix = self._transition(motion) if self.derivatives else None
        rows, flags, count = self._event_rows(motion), [], 0
        event_std = np.sqrt(np.maximum(np.einsum("ei,ij,ej->e", rows, covariance, rows), 0.0))
        if matrix is not None:
            end, after = (
                np.append(motion.final_state, mean[self.n_x : belief.mean.size]),
                matrix @ covariance @ matrix.T,
            )
        else:
            cloud = unscented(mean, covariance, np.append(self.units, np.ones(mean.size - self.units.size)))
            motions = [motion, *(self._motion(z, u, duration, sensitivities=False)[0] for z in cloud.points[1:])]
            count = len(motions) - 1
            kept = np.array([each is not None for each in motions])
            if not kept.all():
                flags.append(f"{int((~kept).sum())} of {kept.size} points could not be simulated")
            points = [
                np.append(each.final_state, z[self.n_x : belief.mean.size])
                for each, z in zip(motions, cloud.points, strict=True)
                if each is not None
            ]
            weights = cloud.weights[kept] / cloud.weights[kept].sum() if cloud.weights[kept].sum() > 0.0 else None
            end, after = moments(
                np.array(points), weights if weights is not None else np.full(kept.sum(), 1 / kept.sum())
            )
            event_std = _spread_of_times(motions, cloud.weights, event_std)
            if self.derivatives:
                reason = motion.sensitivity.flags[0] if motion.sensitivity and motion.sensitivity.flags else "unknown"
                flags.append(f"points in place of derivatives ({reason})")
        after = symmetric(after) + duration * np.diag(self.noise)
        closed = self.distances.closed(motion)
        names = self.distances.names
        mode = tuple(names[i] for i in closed if i < len(names))
        result = replace(belief, mean=end, covariance=after, touched=belief.touched or self._touches(motion))
        if result.touched and not closed.size:
            result = self._drawn_again(result, u)
        # Noise in a direction that a closed contact blocks does not move anything.
        result = self._held(result, closed)
        moved = MovedBelief(
            belief=result, closed=closed, mode=mode, events=motion.events, event_std=event_std, flags=tuple(flags)
        )
        return moved, count

    def _touches(self, motion: Trajectory) -> bool:
        kinds = ("impact", "contact") if isinstance(self.system, CLS) else None
        return any(kinds is None or event.kind in kinds for event in motion.events)

    def _held(self, belief: Belief, closed: Array) -> Belief:
        if not closed.size:
            return belief
        x, p = self.split(belief.mean)
        units = self.units[: self.n_x]
        x = self.distances.onto(x, p, closed, units)
        tangent = self.distances.tangent(x, p, closed, self.indices, units)
        mean = np.append(x, belief.mean[self.n_x :])
        return replace(belief, mean=mean, covariance=symmetric(tangent @ belief.covariance @ tangent.T))

    def _drawn_again(self, belief: Belief, u: Array) -> Belief:
        """Return a belief about new values of scattered parameters: independent of everything before.

        The place of a contact is new when it is approached again, until then it is where the contact was.
        """
        x, p = self.split(belief.mean)
        places, rates = self.distances.at(x, p).by_p[:, self.indices], self.distances.rates(x, u, p)
        approached = ((places != 0.0) & (rates < 0.0)[:, None]).any(axis=0)
        new = np.append(np.zeros(self.n_x, dtype=bool), approached | ~self.distances.places[self.indices])
        drawn = (self.scatter > 0.0) & new
        mean, covariance = belief.mean.copy(), belief.covariance.copy()
        mean[drawn] = self.p[self.indices[drawn[self.n_x :]]]
        covariance[drawn] = covariance[:, drawn] = 0.0
        covariance[drawn, drawn] = self.scatter[drawn] ** 2
        return replace(belief, mean=mean, covariance=covariance, touched=bool(((self.scatter > 0.0) & ~drawn).any()))

    def _open(self, closed: Array) -> list[int]:
        return [guard for guard in range(self.distances.count) if guard not in closed]

    def _distance(self, z: Array, guard: int) -> tuple[float, Array]:
        rows = self.distances.at(*self.split(z))
        return float(rows.values[guard]), np.append(rows.by_x[guard], rows.by_p[guard][self.indices])

    def _may_be_near(self, motion: Trajectory, u: Array) -> bool:
        """Return True if an event is in the motion, or ahead of it."""
        if not self.distances.count:
            return False
        x, p = motion.final_state, np.array(list(motion.parameters.values()), dtype=float)
        return bool(motion.events) or bool((self.distances.rates(x, u, p) < 0.0).any())

    def _near_event(self, motion: Trajectory, covariance: Array, u: Array, end: float) -> NearEvent | None:
        """Return the event that is nearest to the end of a period, in standard deviations."""
        matrix = self._transition(motion)
        if matrix is None:
            return None
        after = matrix @ covariance @ matrix.T
        found = []
        rows = self._event_rows(motion)
        for event, row in zip(motion.events, rows, strict=True):
            size = float(np.sqrt(max(0.0, row @ covariance @ row))) if np.isfinite(row).all() else 0.0
            if size > 0.0 and self._jumps(motion, event.time, after):
                # The event time minus the time of the measurement.
                value = event.time - motion.t0 - end
                found.append(NearEvent(name=event.name, value=value, direction=row, size=size))
        x, p = motion.final_state, np.array(list(motion.parameters.values()), dtype=float)
        closed, rates = self.distances.closed(motion), self.distances.rates(x, u, p)
        for guard in self._open(closed):
            value, row = self._distance(np.append(x, p[self.indices]), guard)
            direction = row @ matrix
            size = float(np.sqrt(max(0.0, direction @ covariance @ direction)))
            if size > 0.0 and value > 0.0 and rates[guard] < 0.0:
                value += float(rates[guard]) * (end - motion.duration)
                found.append(NearEvent(name=self.distances.names[guard], value=value, direction=direction, size=size))
        return min(found, key=lambda near: near.away, default=None)

    def _jumps(self, motion: Trajectory, t: float, covariance: Array) -> bool:
        """Return True if a state jumps at an event by more than its standard deviation behind it."""
        at = np.flatnonzero(motion.t == t)
        if at.size < 2:
            return False
        std = np.sqrt(np.maximum(np.diag(covariance)[: self.n_x], 0.0))
        return bool((np.abs(motion.x[at[-1]] - motion.x[at[0]]) > std).any())


def _spread_of_times(motions: list[Trajectory | None], weights: Array, other: Array) -> Array:
    """Return standard deviations of event times over points, if all have the same events; else `other`."""
    if motions[0] is None or any(each is None or len(each.events) != len(motions[0].events) for each in motions):
        return other
    times = np.array([[event.time - each.t0 for event in each.events] for each in motions if each is not None])
    return np.sqrt(np.maximum(np.diag(moments(times, weights)[1]), 0.0)) if times.size else np.zeros(0)
