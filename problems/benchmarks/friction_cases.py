"""Motions with friction compared with closed forms: `python -m problems.benchmarks.friction_cases`.

About fifty motions with closed forms: stick, slip, transitions between them, impacts with stick and with slip, several
simultaneous contacts, in the plane and in space. All are simulated with every friction cone and
impulse form that is asked for; a run that fails or raises is a row that says so.

`solver=newton` is the simulator as shipped, `solver=mpcc` solves every step as an MPCC.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from problems.benchmarks.orders import check_names
from problems.figures import DOTS, Curve, Panel, chart
from problems.runner import Report, picked, program, tabled
from problems.settings import Settings
from tests.references.friction_closed_forms import BY_NAME, CASES
from tests.references.friction_runs import METHOD, Row, simulate

SOLVERS = ("newton", "mpcc")
SHOWN = ("case", "cone", "impulse_form", "status", "error", "event_error", "homotopies", "wall_seconds", "missing")
QUICK = {"impulse_form": ("sum",), "steps": 4}


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
        Steps of every simulation.
    tolerance : float
        Largest error of the final state and of the event times for success.
    time_limit : float
        Seconds for every simulation.

    Raises
    ------
    OptionError
        For an unknown solver or case.
    """
    check_names(solver=((solver,), SOLVERS), case=(cases, BY_NAME))
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


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment and report."""
    started = time.monotonic()
    solved_cases = experiment(**settings.arguments, method=settings.method, homotopy=settings.solver, callback=progress)
    rows = list(solved_cases)
    results = _results(rows)
    wrong = [
        f"{row.label}: {row.status}, error {row.error:.1e}; {'; '.join((*row.missing, row.message))}"
        for row in rows
        if not row.success
    ]
    return tabled(
        {**results, "wall_seconds": time.monotonic() - started},
        not wrong,
        {"errors against closed forms": [picked(row, *SHOWN) for row in rows]},
        {"friction_cases.png": lambda: _errors(rows)},
        [f"{len(rows) - len(wrong)} of {len(rows)} runs are right, within {rows[0].tolerance:g}", *wrong],
    )


def _errors(rows: Sequence[Row]) -> Any:
    """Draw the errors of the states at the end and of the event times, case by case."""
    values = {name: [max(getattr(row, name), 1e-17) for row in rows] for name in ("error", "event_error")}
    curves = [Curve(np.arange(len(rows)), each, name.replace("_", " "), DOTS) for name, each in values.items()]
    return chart([Panel(curves=curves, x="run", y="error [m, m/s, s]", log="y", levels=(rows[0].tolerance,))])


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


PROGRAM = program(
    __name__,
    run,
    experiment,
    quick=QUICK,
    method=METHOD,
    solver=SIMULATION_SOLVER,
    fixed=("control_stages", "friction_cone", "impulse_form"),
)
