"""The event-driven referee against motions in closed form, and FESD-J with more and more steps against the referee."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import nosnoc_py as ns
from tests.references.friction_motion import Case, compared_events
from tests.references.referee_motions import Comparison

TIMES = 101  # at which states are compared
METHOD = ns.FESDJ(finite_elements=2, rk_stages=3, scheme="radau_iia")
ROUNDING = 1e-12  # differences below that follow no power of the step
# An observed order may stay this far behind the one of the Runge-Kutta method: three coarse grids are no limit.
ORDER_SLACK = 0.6
AT_EVENT = 1e-9  # no states are compared this close to an event, where they may jump [s]


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The referee on one motion in closed form.

    Parameters
    ----------
    case : str
    status : str
        Of the trajectory, or "raised".
    error : float
        Largest error of a state, at times between the events and at the end; NaN without one.
    event_error : float
        Largest error of the times of the events [s]; NaN without events.
    missing, extra : tuple of str
        Events that were not found, and found ones that are not in the list. At the time of an impact any contact may
        change its mode, so nothing is extra there.
    milliseconds : float
        Wall time per simulated second.
    tolerance : float
        For both errors.
    message : str
    """

    case: str
    status: str
    error: float = np.nan
    event_error: float = np.nan
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    milliseconds: float = np.nan
    tolerance: float = 1e-9
    message: str = ""

    @property
    def success(self) -> bool:
        """Whether all states and events are right."""
        late = self.event_error > self.tolerance  # False for NaN: no events to be late
        odd = self.missing or self.extra
        return self.status == ns.Status.SOLVED.value and self.error <= self.tolerance and not late and not odd


def agreement(
    case: Case, referee: ns.EventDriven | None = None, *, tolerance: float = 1e-9, repeats: int = 2
) -> Agreement:
    """Simulate a motion in closed form with the referee and compare; the time is the best of the repeats."""
    motion = dict[str, Any](system=case.system, x0=case.x0, u=case.u, duration=case.duration)
    try:
        trajectory, seconds = timed(partial(ns.simulate, **motion, method=referee or ns.EventDriven()), repeats)
    except Exception as error:  # whatever it is: a row that says so, and on to the next
        said = f"{type(error).__name__}: {error}"
        return Agreement(case=case.name, status="raised", tolerance=tolerance, message=said)
    found = tuple((event.kind, event.name, event.time) for event in trajectory.events)
    solved = trajectory.success
    return Agreement(
        case=case.name,
        status=trajectory.status.value,
        error=_state_error(case, trajectory) if solved else np.nan,
        milliseconds=1e3 * seconds / trajectory.duration if solved else np.nan,
        tolerance=tolerance,
        message=trajectory.message,
        **(compared_events(case.events, found) if solved else {}),
    )


def _state_error(case: Case, trajectory: ns.Trajectory) -> float:
    """Largest error at equally spaced times away from the events, and at the end."""
    times = np.linspace(0.0, case.duration, TIMES)
    events = np.array([time for _, _, time in case.events])
    apart = np.abs(times[:, None] - events).min(axis=1, initial=np.inf) > AT_EVENT
    inner = np.abs(np.asarray(trajectory(times[apart])) - np.asarray(case.exact(times[apart]))).max()
    end = np.abs(trajectory.final_state - np.asarray(case.exact([case.duration]))[0]).max()
    return float(max(inner, end))


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """FESD-J with more and more steps, against the referee.

    Parameters
    ----------
    case : str
    nominal : int
        Order of the Runge-Kutta method.
    steps : (runs,)
    differences : (runs,)
        Largest difference of a state at the end; NaN where one of the two failed.
    events_agree : bool
        Whether the finest run has the same events (kinds and contacts).
    referee_seconds : float
        Wall time of the referee [s].
    seconds : (runs,)
        Wall times of FESD-J [s].
    """

    case: str
    nominal: int
    steps: tuple[int, ...]
    differences: tuple[float, ...]
    events_agree: bool
    referee_seconds: float
    seconds: tuple[float, ...]

    @property
    def order(self) -> float | None:
        """Slope of the differences over the step; None where they are at rounding."""
        differences = np.array(self.differences)
        above = differences > ROUNDING
        if above.sum() < 2:
            return None
        return float(-np.polyfit(np.log(np.array(self.steps)[above]), np.log(differences[above]), 1)[0])

    @property
    def ratio(self) -> float:
        """Time of the finest run of FESD-J over that of the referee."""
        return self.seconds[-1] / self.referee_seconds

    @property
    def success(self) -> bool:
        """Whether the differences vanish with the order of the method, or are at rounding."""
        if not np.isfinite(self.differences).all() or not self.events_agree:
            return False
        return max(self.differences) <= ROUNDING or (self.order or 0.0) >= self.nominal - ORDER_SLACK


def convergence(
    name: str, chosen: Comparison, method: ns.FESDJ = METHOD, referee: ns.EventDriven | None = None, *, repeats: int = 2
) -> Convergence:
    """Simulate by both, by FESD-J with every number of steps; all times are the best of the repeats, in one run."""
    method = method.replace(**chosen.options)
    motion = dict[str, Any](system=chosen.system, x0=chosen.x0, u=chosen.u, duration=chosen.duration)
    truth, referee_seconds = timed(partial(ns.simulate, **motion, method=referee or ns.EventDriven()), repeats)
    differences, seconds, events = [], [], []
    for steps in chosen.steps:
        found, spent = timed(partial(ns.simulate, **motion, method=method, steps=steps), repeats)
        both = truth.success and found.success
        differences.append(float(np.abs(found.final_state - truth.final_state).max()) if both else np.nan)
        seconds.append(spent)
        events = [(event.kind, event.name) for event in found.events]
    return Convergence(
        case=name,
        nominal=2 * method.rk_stages - (method.scheme == "radau_iia"),
        steps=chosen.steps,
        differences=tuple(differences),
        events_agree=sorted(events) == sorted((event.kind, event.name) for event in truth.events),
        referee_seconds=referee_seconds,
        seconds=tuple(seconds),
    )


def timed(simulate: Callable[[], ns.Trajectory], repeats: int) -> tuple[ns.Trajectory, float]:
    """A trajectory, and the least time it took [s]."""
    best = np.inf
    for _ in range(max(1, repeats)):
        started = time.perf_counter()
        found = simulate()
        best = min(best, time.perf_counter() - started)
    return found, best
