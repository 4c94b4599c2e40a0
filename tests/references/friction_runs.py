"""Simulations of motions with friction by FESD-J, held against their closed forms."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import nosnoc_py as ns
from problems.runner import Meter
from tests.references.friction_motion import Case, compared_events

METHOD = ns.FESDJ(finite_elements=2, rk_stages=3, scheme="radau_iia")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One simulation of one case.

    Parameters
    ----------
    case, cone, impulse_form : str
    status : str
        Of the trajectory, or "raised".
    error : float
        Largest error of the state at the end; NaN without one.
    event_error : float
        Largest error of the times of the events [s]; NaN without events.
    missing, extra : tuple of str
        Events that were not found, and found ones that are not in the list. At the time of an impact any contact may
        change its mode, so nothing is extra there.
    tolerance : float
        For both errors.
    wall_seconds : float
    steps, homotopies, iterations : int
        Steps, how many of them took an MPCC, and its NLP iterations.
    complementarity, infeasibility : float
        Largest residuals.
    message : str
    events : list of dict
        All events found.
    final_state : list of float
    """

    case: str
    cone: str
    impulse_form: str
    status: str
    error: float = np.nan
    event_error: float = np.nan
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    tolerance: float = 1e-6
    wall_seconds: float = 0.0
    steps: int = 0
    homotopies: int = 0
    iterations: int = 0
    complementarity: float = np.nan
    infeasibility: float = np.nan
    message: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    final_state: list[float] = field(default_factory=list)

    @property
    def success(self) -> bool:
        """Whether the state at the end and all events are right."""
        late = self.event_error > self.tolerance  # False for NaN: no events to be late
        return self.status == ns.Status.SOLVED.value and self.error <= self.tolerance and not late and not self.missing

    @property
    def label(self) -> str:
        """What tells the row from the others."""
        return f"{self.case}, {self.cone}, {self.impulse_form}"


def simulate(
    case: Case,
    method: ns.FESDJ,
    solver: Any = None,
    *,
    steps: int = 7,
    tolerance: float = 1e-6,
    time_limit: float | None = None,
    callback: Any = None,
) -> Row:
    """Simulate one case and compare; without a solver by Newton's method."""
    meter = Meter(callback or (lambda _: None))
    named: dict[str, Any] = {"case": case.name, "cone": method.friction_cone, "impulse_form": method.impulse_form}
    try:
        trajectory = ns.simulate(
            case.system,
            x0=case.x0,
            u=case.u,
            duration=case.duration,
            steps=steps,
            method=method,
            solver=solver,
            callback=meter,
            time_limit=time_limit,
        )
    except Exception as error:  # whatever it is: a row that says so, and on to the next
        seconds = time.monotonic() - meter.started
        return Row(
            **named,
            tolerance=tolerance,
            status="raised",
            message=f"{type(error).__name__}: {error}",
            wall_seconds=seconds,
        )
    return Row(
        **named,
        **_compared(case, trajectory),
        status=trajectory.status.value,
        tolerance=tolerance,
        wall_seconds=time.monotonic() - meter.started,
        steps=meter.steps,
        homotopies=meter.homotopies,
        iterations=meter.iterations,
        complementarity=meter.complementarity,
        infeasibility=meter.infeasibility,
        message=trajectory.message,
        events=[event.to_dict() for event in trajectory.events],
        final_state=trajectory.final_state.tolist(),
    )


def _compared(case: Case, trajectory: ns.Trajectory) -> dict[str, Any]:
    """Errors of the state at the end and of the events; a simulation that broke off has neither."""
    if not trajectory.success:
        return {}
    found = tuple((event.kind, event.name, event.time) for event in trajectory.events)
    error = float(np.abs(trajectory.final_state - case.exact(case.duration)).max())
    return {"error": error, **compared_events(case.events, found)}
