"""Simulations of the ways to meet a surface of discontinuity, held against their closed forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import switching_cases
from models.switching_cases import BY_NAME, Case

SAMPLES = 101  # of the dense output in every phase
SMALL = 1e-10  # errors of state, events [s] and surface that a run has to keep below


def boundary_errors(trajectory: ns.Trajectory, times: Iterable[float]) -> tuple[float, ...]:
    """How far the nearest boundary of a finite element is from each of these times [s]."""
    return tuple(float(np.abs(trajectory.t - at).min()) for at in times)


def compare(trajectory: ns.Trajectory, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Largest errors of the state at the end and of |c| on the surface, and those of the times of all events [s].

    Of the repulsive case the errors from the nearest of its motions, and when and to which side that departs.
    """
    case = BY_NAME[arguments["case"]]
    if not trajectory.success:
        return {"state_error": np.nan, "event_errors": (), "surface_error": np.nan}
    if not case.unique:
        departure, side = departed(trajectory)
        motion = switching_cases.repulsive(trajectory.t, departure, side)
        return {
            "state_error": float(np.abs(trajectory.x - motion).max()),
            "event_errors": (),
            "surface_error": float(np.abs(case.distance(trajectory.x[trajectory.t <= departure])).max()),
            "departure": (departure, side),
        }
    end = switching_cases.exact(case, [case.duration])[0]
    return {
        "state_error": float(np.abs(trajectory.final_state - end).max()),
        "event_errors": boundary_errors(trajectory, case.event_times),
        "surface_error": _off_the_surface(case, trajectory),
    }


def departed(trajectory: ns.Trajectory) -> tuple[float, int]:
    """When and to which side a motion left the repulsive surface: it moves away with speed 1; side 0 if it stayed."""
    x = float(trajectory.final_state[0])
    side = 0 if abs(x) < SMALL else int(np.sign(x))
    return trajectory.duration - abs(x) * abs(side), side


def _off_the_surface(case: Case, trajectory: ns.Trajectory) -> float:
    """Largest |c| at the exact times of the events and within sliding phases."""
    ends = [*case.event_times, case.duration]
    spans = [
        np.linspace(phase.start, end, SAMPLES)
        for phase, end in zip(case.phases, ends, strict=True)
        if phase.mode == switching_cases.SLIDING
    ]
    times = np.concatenate([np.array(case.event_times), *spans])
    return float(np.abs(case.distance(trajectory(times))).max())
