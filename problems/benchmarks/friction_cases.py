"""Friction against closed forms: `python -m problems.benchmarks.friction_cases`.

Some fifty motions whose every state and event is known: stick, slip, what lies between them, impacts with stick and
with slip, several contacts at one time, in the plane and in space. All are simulated with every friction cone and
impulse form that is asked for; a run that fails or raises is a row that says so.

`solver=newton` is the simulator as shipped, `solver=mpcc` solves every step as an MPCC.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from problems.runner import Meter, Report, program, table
from problems.settings import Settings
from tests.references.friction_closed_forms import BY_NAME, CASES
from tests.references.friction_motion import Case, Events

METHOD = ns.FESDJ(finite_elements=2, rk_stages=3, scheme="radau_iia")
SOLVERS = ("newton", "mpcc")
QUICK = {"impulse_form": ("sum",), "steps": 4}
SHOWN = 44  # characters of what is wrong, in the table
SAME_TIME = 1e-3  # a found event further away from the exact one is another event [s]


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


def experiment(
    cone: tuple[str, ...] = ("auto",),
    impulse_form: tuple[str, ...] = ("sum", "product"),
    solver: str = "newton",
    cases: tuple[str, ...] = (),
    steps: int = 7,
    tolerance: float = 1e-6,
    time_limit: float = 60.0,
    *,
    method: ns.FESDJ = METHOD,
    homotopy: Any = SIMULATION_SOLVER,
    callback: Any = None,
) -> Iterator[Row]:
    """Simulate cases x cones x impulse forms, one after the other.

    Parameters
    ----------
    cone : tuple of str
        Values of the option `friction_cone`. "box" is planar: with it the cases in space are left out.
    impulse_form : tuple of str
    solver : str
        "newton" or "mpcc".
    cases : tuple of str
        Names, by default all.
    steps : int
        Of every simulation.
    tolerance : float
        Of the state at the end and of the times of events, for success.
    time_limit : float
        Seconds for every simulation.

    Raises
    ------
    OptionError
        For an unknown solver or case.
    """
    if solver not in SOLVERS:
        raise OptionError(unknown_name(solver, SOLVERS, "solver"))
    for name in cases:
        if name not in BY_NAME:
            raise OptionError(unknown_name(name, BY_NAME, "case"))
    chosen = [BY_NAME[name] for name in cases] or CASES
    runs = [(c, form, case) for c in cone for form in impulse_form for case in chosen]
    for c, form, case in runs:
        if c == "box" and case.dimension == 3:
            continue
        options = method.replace(friction_cone=c, impulse_form=form)
        yield simulate(
            case,
            options,
            None if solver == "newton" else homotopy,
            steps=steps,
            tolerance=tolerance,
            time_limit=time_limit,
            callback=callback,
        )


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


def compared_events(exact: Events, found: Events) -> dict[str, Any]:
    """Match every exact event with the nearest found one of its kind and contact.

    Returns
    -------
    dict
        `event_error`, `missing` and `extra` of a `Row`.
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


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment and report."""
    started = time.monotonic()
    found = experiment(**settings.arguments, method=settings.method, homotopy=settings.solver, callback=progress)
    rows = list(found)
    return Report(
        results={**_results(rows), "wall_seconds": time.monotonic() - started},
        success=all(row.success for row in rows),
        show=lambda console: _show(console, rows, settings.arguments["solver"]),
        figures={"friction_cases.png": lambda path: _draw(rows, path)},
    )


def _results(rows: Sequence[Row]) -> dict[str, Any]:
    worst = {
        name: max((getattr(row, name) for row in rows if np.isfinite(getattr(row, name))), default=np.nan)
        for name in ("complementarity", "infeasibility", "error", "event_error")
    }
    failed = [row.label for row in rows if not row.success]
    return {
        "status": (ns.Status.STEP_FAILED if failed else ns.Status.SOLVED).value,
        "objective": None,
        "iterations": sum(row.iterations for row in rows),
        "events": [{"case": row.label, **event} for row in rows for event in row.events],
        "final_state": {row.label: row.final_state for row in rows},
        "failed": failed,
        **worst,
        "rows": [{**vars(row), "success": row.success} for row in rows],
    }


def _show(console: Console, rows: Sequence[Row], solver: str) -> None:
    columns = ("cone", "impulses", "error at T", "events [s]", "MPCCs", "t [s]", "what is wrong")
    made = table("case", *columns, title=f"errors against closed forms, solver {solver}")
    for row in rows:
        homotopies = f"{row.homotopies}/{row.steps}"
        numbers = (_number(row.error), _number(row.event_error), homotopies, f"{row.wall_seconds:.2f}")
        made.add_row(row.case, row.cone, row.impulse_form, *numbers, escape(_wrong(row)))
    console.print(made)
    console.print(f"{sum(row.success for row in rows)} of {len(rows)} runs are right, within {rows[0].tolerance:g}")
    for row in rows:
        if not row.success:
            said = "; ".join((*(f"no {event}" for event in row.missing), row.message))
            console.print(f"{row.label}: {row.status}, error {_number(row.error)}; {said}", markup=False)


def _wrong(row: Row) -> str:
    """In a few words; what failed is told in full below the table."""
    parts = [] if row.status == ns.Status.SOLVED.value else [row.status]
    parts += [f"no {event}" for event in row.missing] + [f"also {event}" for event in row.extra]
    text = "; ".join(parts)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _number(value: float) -> str:
    return f"{value:.1e}" if np.isfinite(value) else "-"


def _draw(rows: Sequence[Row], path: Path) -> None:
    from problems.drawing import friction_cases  # matplotlib is slow to import and not needed with --json

    friction_cases.errors(rows, path)


PROGRAM = program(
    __name__,
    run,
    experiment,
    quick=QUICK,
    method=METHOD,
    solver=SIMULATION_SOLVER,
    fixed=("control_stages", "friction_cone", "impulse_form"),
)
