"""The ways to meet a surface of discontinuity, against closed forms: `python -m problems.switching_cases`.

Crossing, sliding, leaving and the repulsive surface of `models.switching_cases`, simulated by FESD with Stewart's
multipliers and with step functions. The pieces of all motions are polynomials, so what is left of the error is the
switch detection alone:

- a crossing, an entry, a release with speed and a tangential departure are landed on to rounding, and a sliding mode
  keeps to its surface;
- on the repulsive surface every departure is a solution; the row says which one was found.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import nosnoc_py as ns
from models import switching_cases
from models.switching_cases import BY_NAME, CASES, Case
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.progress import Progress
from problems.runner import Meter, Report, program, table
from problems.settings import Settings

METHOD = ns.FESD(finite_elements=3, rk_stages=3)
SOLVER = ns.Auto()
REPRESENTATIONS = ("stewart", "step")
QUICK = {"representation": ("stewart",)}
SAMPLES = 101  # of the dense output in every phase
TOLERANCE = {"state": 1e-10, "event": 1e-10, "surface": 1e-10}  # what a run has to keep


@dataclass(frozen=True, eq=False, kw_only=True)
class Row:
    """One simulation of one case.

    Parameters
    ----------
    case, representation : str
    trajectory : Trajectory
    state_error : float
        Largest error of the state at the end; of the repulsive case, from the nearest of its motions.
    event_errors : tuple of float
        Distance of the element boundary next to each event [s].
    surface_error : float
        Largest |c| at events and, densely sampled, while the motion slides.
    departure : tuple, optional
        Of the repulsive case: (time [s], side); side 0 when the motion stayed.
    seconds : float
    residuals : dict
        "complementarity", "infeasibility", "iterations", "steps".
    """

    case: str
    representation: str
    trajectory: ns.Trajectory
    state_error: float = np.nan
    event_errors: tuple[float, ...] = ()
    surface_error: float = np.nan
    departure: tuple[float, int] | None = None
    seconds: float = 0.0
    residuals: dict[str, Any] = field(default_factory=dict)

    @property
    def success(self) -> bool:
        """Whether the state, the events and the surface are met."""
        return (
            self.trajectory.success
            and self.state_error <= TOLERANCE["state"]
            and max(self.event_errors, default=0.0) <= TOLERANCE["event"]
            and self.surface_error <= TOLERANCE["surface"]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the trajectory, of which only status and end."""
        rest = {name: value for name, value in vars(self).items() if name not in ("trajectory", "residuals")}
        end = {"status": self.trajectory.status.value, "final_state": self.trajectory.final_state}
        return {**rest, **self.residuals, **end, "success": self.success}


def boundary_errors(trajectory: ns.Trajectory, times: Iterable[float]) -> tuple[float, ...]:
    """How far the nearest boundary of a finite element is from each of these times [s]."""
    return tuple(float(np.abs(trajectory.t - at).min()) for at in times)


def simulate(
    case: Case, steps: int, *, method: ns.FESD = METHOD, solver: Any = SOLVER, callback: Any = None
) -> ns.Trajectory:
    """Simulate a case in `steps` steps."""
    return ns.simulate(
        switching_cases.build(case),
        x0=case.x0,
        duration=case.duration,
        steps=steps,
        method=method,
        solver=solver,
        callback=callback,
    )


def experiment(
    cases: tuple[str, ...] = (),
    representation: tuple[str, ...] = REPRESENTATIONS,
    steps: int = 5,
    *,
    method: ns.FESD = METHOD,
    solver: Any = SOLVER,
    callback: Any = None,
) -> Iterator[Row]:
    """Simulate and compare the cases of these names, by default all, in every representation."""
    for names, known, what in ((cases, BY_NAME, "case"), (representation, REPRESENTATIONS, "representation")):
        for name in names:
            if name not in known:
                raise OptionError(unknown_name(name, known, what))
    for case in [BY_NAME[name] for name in cases] or CASES:
        for mode in representation:
            yield _row(case, mode, steps, method.replace(dcs_mode=mode), solver, callback)


def _row(case: Case, mode: str, steps: int, method: ns.FESD, solver: Any, callback: Any) -> Row:
    meter = Meter(callback or (lambda _: None))
    trajectory = simulate(case, steps, method=method, solver=solver, callback=meter)
    common: dict[str, Any] = {
        "case": case.name,
        "representation": mode,
        "trajectory": trajectory,
        "seconds": time.monotonic() - meter.started,
        "residuals": {
            name: getattr(meter, name) for name in ("complementarity", "infeasibility", "iterations", "steps")
        },
    }
    return Row(**common, **(compare(case, trajectory) if trajectory.success else {}))


def compare(case: Case, trajectory: ns.Trajectory) -> dict[str, Any]:
    """Errors of a complete simulation, as fields of a `Row`."""
    if not case.unique:
        departure, side = departed(trajectory)
        motion = switching_cases.repulsive(trajectory.t, departure, side)
        return {
            "state_error": float(np.abs(trajectory.x - motion).max()),
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
    side = 0 if abs(x) < TOLERANCE["surface"] else int(np.sign(x))
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


def run(settings: Settings, progress: Progress) -> Report:
    """Simulate all cases and compare."""
    rows = list(experiment(**settings.arguments, method=settings.method, solver=settings.solver, callback=progress))
    return Report(
        results=_results(rows),
        success=all(row.success for row in rows),
        show=lambda console: _show(console, rows),
        figures={"switching_cases.png": lambda path: _draw(rows, path)},
    )


def _results(rows: Sequence[Row]) -> dict[str, Any]:
    failed = [f"{row.case}, {row.representation}" for row in rows if not row.success]
    return {
        "status": (ns.Status.STEP_FAILED if failed else ns.Status.SOLVED).value,
        "objective": None,
        "complementarity": max(row.residuals["complementarity"] for row in rows),
        "infeasibility": max(row.residuals["infeasibility"] for row in rows),
        "iterations": sum(row.residuals["iterations"] for row in rows),
        "wall_seconds": sum(row.seconds for row in rows),
        "events": [{"case": row.case, **event.to_dict()} for row in rows for event in row.trajectory.events],
        "final_state": {f"{row.case}, {row.representation}": row.trajectory.final_state for row in rows},
        "failed": failed,
        "rows": [row.to_dict() for row in rows],
    }


def _show(console: Console, rows: Sequence[Row]) -> None:
    made = table("case", "written by", "status", "state at T", "events [s]", "surface", "t [s]", title="errors")
    for row in rows:
        late = _number(max(row.event_errors, default=np.nan))
        errors = (_number(row.state_error), late, _number(row.surface_error), f"{row.seconds:.2f}")
        made.add_row(row.case, row.representation, row.trajectory.status.value, *errors)
    console.print(made)
    for row in (row for row in rows if row.departure is not None):
        console.print(f"{row.case}, {row.representation}: {_told(row)}")


def _told(row: Row) -> str:
    assert row.departure is not None
    departure, side = row.departure
    if side == 0:
        return "of its many solutions the one that stays on the surface"
    return f"of its many solutions the one that departs at t = {departure:.6g} s to the side {side:+d}"


def _number(value: float) -> str:
    return f"{value:.1e}" if np.isfinite(value) else "-"


def _draw(rows: Sequence[Row], path: Path) -> None:
    from problems.drawing import filippov  # matplotlib is slow to import and not needed with --json

    filippov.cases(rows, path)


PROGRAM = program(
    __name__, run, experiment, quick=QUICK, method=METHOD, solver=SOLVER, fixed=("control_stages", "dcs_mode")
)
