"""Tests of the event-driven simulation and of certificates: `python -m problems.benchmarks.referee`.

Three tables. The referee against motions in closed form: states, times of events, time per simulated second. FESD-J
against the referee with more and more steps: the differences vanish with the order of the Runge-Kutta method.
Certificates of solutions of optimal control problems: the three boxes, the discs on finer and finer grids, and
solutions that are wrong on purpose, which have to be refuted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems import disc_manipulation, three_boxes
from problems.benchmarks.orders import check_names
from problems.figures import Curve, Panel, chart
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.certified import Certified, certified, changed_control, slides
from tests.references.referee_agreement import METHOD, Agreement, Convergence, agreement, convergence
from tests.references.referee_motions import COMPARISONS, NAMES, closed_form, comparison

REFEREE = ns.EventDriven()
# Cold by Auto, 9 s. Warm from half the stages (one core, shared): a homotopy that starts late and is elastic finds
# J = 670.2 on 50 stages in 8 s and 665.7 on 100 in 26 s; on 50, ActiveSet 679.1 in 37 s and Auto 697.8 in 212 s.
FIRST, FINER = ns.Auto(), ns.Homotopy(steering="l_inf", sigma_0=1e-2)
PARTS = ("closed_forms", "fesdj", "certificates")
TASKS = ("slide", "boxes", "discs")
QUICK = {
    "cases": ("slip_to_stick_2d", "bounce_slip_3d", "corner_landing_2d", "bouncing_ball", "three_boxes"),
    "comparisons": ("slope_curve_3d",),
    "tasks": ("slide",),
}


class Findings(NamedTuple):
    """All results: one row of a table each."""

    agreements: tuple[Agreement, ...] = ()
    convergences: tuple[Convergence, ...] = ()
    certificates: tuple[Certified, ...] = ()

    @property
    def success(self) -> bool:
        """True if all results are as expected."""
        return all(row.success for rows in self for row in rows)


def experiment(
    parts: tuple[str, ...] = PARTS,
    cases: tuple[str, ...] = (),
    comparisons: tuple[str, ...] = tuple(COMPARISONS),
    tasks: tuple[str, ...] = TASKS,
    control_stages: tuple[int, ...] = (25, 50, 100),
    tolerance: float = 1e-9,
    repeats: int = 2,
    time_limit: float = 120.0,
    *,
    method: ns.FESDJ = METHOD,
    referee: ns.EventDriven = REFEREE,
    callback: Any = None,
) -> Findings:
    """Do all parts, or the requested ones.

    Parameters
    ----------
    parts : tuple of str
        "closed_forms", "fesdj" and "certificates".
    cases : tuple of str
        Motions in closed form, by default all.
    comparisons : tuple of str
        Motions that FESD-J simulates, too.
    tasks : tuple of str
        Optimal control problems: "slide", "boxes", "discs".
    control_stages : tuple of int
        Grids of the discs.
    tolerance : float
        Largest errors against closed forms [m, m/s, s].
    repeats : int
        Simulations; the times are those of the fastest.
    time_limit : float
        Seconds for every optimal control problem.

    Raises
    ------
    OptionError
        For an unknown name.
    """
    check_names(part=(parts, PARTS), task=(tasks, TASKS))
    motions = [closed_form(name) for name in cases or NAMES]
    compared = {name: comparison(name) for name in comparisons}
    limits = {"time_limit": time_limit, "callback": callback}
    certify: Mapping[str, Callable[[], Iterator[Certified]]] = {
        "slide": lambda: slides(**limits),
        "boxes": lambda: boxes(**limits),
        "discs": lambda: discs(control_stages, **limits),
    }
    agreements = (agreement(case, referee, tolerance=tolerance, repeats=repeats) for case in motions)
    convergences = (convergence(name, each, method, referee, repeats=repeats) for name, each in compared.items())
    certificates = (row for task in tasks for row in certify[task]())
    return Findings(
        agreements=tuple(agreements) if "closed_forms" in parts else (),
        convergences=tuple(convergences) if "fesdj" in parts else (),
        certificates=tuple(certificates) if "certificates" in parts else (),
    )


def boxes(
    rk_stages: Sequence[int] = (2, 3), time_limit: float | None = None, callback: Any = None
) -> Iterator[Certified]:
    """Certify the three boxes from the best known control; the first solution also with a deliberate error."""
    ocp = three_boxes.build()
    start = np.array(three_boxes.KNOWN_CONTROL)[:, None]
    keywords: dict[str, Any] = {"guess": start, "time_limit": time_limit, "callback": callback}
    for k, stages in enumerate(rk_stages):
        method = three_boxes.METHOD.replace(rk_stages=stages)
        solve = _solver(ocp, method, three_boxes.SOLVERS["warm"], keywords)
        result = certified(f"three boxes, {stages} RK stages", ocp, solve)
        yield result
        if k == 0:
            yield changed_control(result, ocp, stage=1)


def discs(
    control_stages: Sequence[int] = (25, 50, 100), time_limit: float | None = None, callback: Any = None
) -> Iterator[Certified]:
    """Certify the two discs on finer and finer control grids, each solved from the solution before."""
    ocp, guess = disc_manipulation.build(), disc_manipulation.guess()
    for count in control_stages:
        method = disc_manipulation.METHOD.replace(control_stages=count)
        keywords = {"guess": guess, "time_limit": time_limit, "callback": callback}
        solver = FIRST if guess is None else FINER
        result = certified(f"discs, {count} control stages", ocp, _solver(ocp, method, solver, keywords))
        guess = result.solution
        yield result


def _solver(ocp: ns.OCP, method: ns.FESDJ, solver: Any, keywords: dict[str, Any]) -> Callable[[], ns.Solution]:
    return lambda: ns.solve(ocp, method, solver, **keywords, certify=False)


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment and report."""
    started = time.monotonic()
    findings = experiment(**settings.arguments, method=settings.method, referee=settings.solver, callback=progress)
    values = results(findings)
    right = sum(row.success for row in findings.agreements)
    wrong = [f"{row.label}, {row.wrong}: {row.certificate.reason}" for row in findings.certificates if row.wrong]
    whole = [f"{row.label}\n{row.certificate}" for row in findings.certificates if not row.wrong]
    count = [f"{right} of {len(findings.agreements)} motions are right"] if findings.agreements else []
    grids = [row for row in findings.certificates if row.label.startswith("discs") and not row.wrong]
    return tabled(
        {**values, "wall_seconds": time.monotonic() - started},
        findings.success,
        {
            "event-driven simulation against closed forms: largest errors": values["closed_forms"],
            "FESD-J against the referee": values["fesdj"],
            "certificates": [{n: v for n, v in row.items() if n != "certificate"} for row in values["certificates"]],
        },
        {"referee_discs.png": lambda: _distances(grids[0])} if grids else {},
        [*count, *wrong, *whole],
    )


def _distances(row: Certified) -> Any:
    """Draw the distances of both discs from their true positions over time, and the true impacts."""
    claimed, true = row.solution, row.certificate.trajectory
    t = np.linspace(0.0, min(claimed.duration, true.duration), 1201)[1:]
    away = np.asarray(claimed(t + claimed.t0)) - np.asarray(true(t + true.t0))
    curves = [
        Curve(t, np.maximum(np.linalg.norm(away[:, 2 * k : 2 * k + 2], axis=1), 1e-12), f"disc {k + 1}") for k in (0, 1)
    ]
    times = [event.time for event in true.impacts]
    return chart([Panel(curves=curves, y="distance from the true position [m]", log="y", times=times)])


def results(findings: Findings) -> dict[str, Any]:
    """Return what `--json` prints; several problems have neither one objective nor one final state."""
    solved = [row.solution for row in findings.certificates if not row.wrong]
    return {
        "status": (ns.Status.SOLVED if findings.success else ns.Status.STEP_FAILED).value,
        "objective": None,
        "complementarity": max((solution.complementarity for solution in solved), default=None),
        "infeasibility": max((solution.infeasibility for solution in solved), default=None),
        "iterations": sum(solution.iterations for solution in solved),
        "events": None,
        "final_state": None,
        "closed_forms": [{**vars(row), "success": row.success} for row in findings.agreements],
        "fesdj": [
            {**vars(row), "order": row.order, "ratio": row.ratio, "success": row.success}
            for row in findings.convergences
        ],
        "certificates": [row.to_dict() for row in findings.certificates],
    }


PROGRAM = program(__name__, run, experiment, quick=QUICK, method=METHOD, solver=REFEREE, fixed=("control_stages",))
