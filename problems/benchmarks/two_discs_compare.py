"""Comparison of methods for the optimal control of two discs: `python -m problems.benchmarks.two_discs_compare`.

On the four problems of `problems.two_discs`, from the constant controls of the paper on the hybrid minimum principle.
Parts (`--set part=...`, by default all):

- compare: the minimum principle with and without refinement, HMP-MAS, forms of direct shooting and FESD-J beside the
  exact optimum; with the cost of every control in an independent event-driven simulation. Of reinforcement learning
  (Section 6.3) the row quotes the paper's number; nothing of it is run.
- grids: errors over the number of steps, for Algorithm 1 and for gradient descent.
- rates: convergence over the iterations, for several relaxations, and beside gradient descent.
- sequences: starts with one collision too many.

Everything takes some four minutes of one core, with `--quick` a few seconds. The exit code is 0 if the refined solution
of problem 5.2 is found; what fails elsewhere is a status in its row.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nosnoc_py.progress import Progress
from problems.benchmarks import two_discs_history as history
from problems.benchmarks import two_discs_rows as rows
from problems.benchmarks.orders import check_names
from problems.benchmarks.two_discs_history import CONVERGED, DESCENDED, DESCENT, MSA, QUANTITIES, STARTS, over_grids
from problems.figures import DASHED, DOTS, Curve, Panel, chart
from problems.runner import Report, program, tabled
from problems.settings import Settings
from problems.two_discs import EXPERIMENTS
from tests.references.two_discs import optimum

FOUND = ("rows", "errors", "phases", "histories", "descents", "relaxations", "excursions")
PARTS = ("compare", "grids", "rates", "sequences")
PROBLEMS = tuple(EXPERIMENTS)
ENERGY = ("concentric", "general", "wall")  # problems with the cost epsilon |u|^2
RELAXED = "general"  # the problem on which relaxations are compared
QUICK = {
    "problems": ("general",),
    "methods": (rows.ALGORITHM_1, rows.REFINED, "HMP moving grid", "HMP-MAS", "shooting in phases"),
    "grids": (60, 120),
    "phase_grids": (60, 120),
    "descent_grids": (60,),
    "iterations": 800,
    "descent_iterations": 200,
    "relaxations": (0.01, 0.018),
    "starts": 1,
    "steps": 120,
}


Findings = Mapping[str, Any]


def series_of(errors: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Return errors by problem and method, over N."""
    keys = dict.fromkeys((error["experiment"], error["method"]) for error in errors)
    ordered = sorted(keys, key=lambda key: (MSA, DESCENT).index(key[1]))
    return {key: [e for e in errors if (e["experiment"], e["method"]) == key] for key in ordered}


def farther(histories: Sequence[history.History], descents: Sequence[history.History]) -> dict[str, float]:
    """Return the ratio of the distances from u_opt of gradient descent and Algorithm 1 at the end, by problem."""
    ends = {one.experiment: float(one.error[-1]) for one in histories}
    return {one.experiment: float(one.error[-1]) / ends[one.experiment] for one in descents}


def printed(findings: Findings) -> dict[str, Any]:
    """Return everything by name; sigma / N of every problem, method and quantity with two grids at least."""
    several = {key: errors for key, errors in series_of(findings["errors"]).items() if len(errors) > 1}
    phases = findings["phases"]
    return {
        **{name: findings[name] for name in ("rows", "errors", "phases")},
        "fits": [
            {"experiment": key[0], "method": key[1], "quantity": name, **history.fit(errors, name)}
            for key, errors in several.items()
            for name in QUANTITIES
        ],
        "phase_fits": {name: history.fit(phases, name) for name in QUANTITIES if len(phases) > 1},
        "histories": [one.to_dict() for one in (*findings["histories"], *findings["descents"])],
        "relaxations": [one.to_dict() for one in findings["relaxations"]],
        "farther_by_descent": farther(findings["histories"], findings["descents"]),
        "sequences": [one.to_dict() for one in findings["excursions"]],
    }


def experiment(
    part: str = "all",
    problems: tuple[str, ...] = PROBLEMS,
    methods: tuple[str, ...] = tuple(rows.CONTENDERS),
    grids: tuple[int, ...] = tuple(range(60, 1201, 60)),
    phase_grids: tuple[int, ...] = (60, 120, 240, 480, 960),
    descent_grids: tuple[int, ...] = (60, 120, 240, 480, 960),
    grid_iterations: int = 6000,
    iterations: int = 2000,
    descent_iterations: int = 3000,
    relaxations: tuple[float, ...] = (0.01, 0.005, 0.001, 0.015, 0.018),
    starts: int = len(STARTS),
    steps: int = 480,
    time_limit: float = 20.0,
    *,
    progress: Progress,
) -> Findings:
    """Do the requested parts; the findings of others are empty.

    Parameters
    ----------
    part : {"all", "compare", "grids", "rates", "sequences"}
    problems : tuple of str
        Names in `problems.two_discs.EXPERIMENTS`.
    methods : tuple of str
        Names in `CONTENDERS` of `two_discs_rows`, for the table of methods.
    grids, descent_grids : tuple of int
        N of Algorithm 1 and of gradient descent.
    phase_grids : tuple of int
        N of Algorithm 1 on 5.2: from each of them the next N for which the collision is in the middle of a step.
    grid_iterations : int
        Most iterations of Algorithm 1 over the grids; it stops where |H_u| is small.
    iterations, descent_iterations : int
        Iterations of Algorithm 1 (without a tolerance) and of gradient descent.
    relaxations : tuple of float
        alpha; with those below 0.01 there are 5 / alpha iterations where these are more.
    starts : int
        Number of starts with three collisions.
    steps : int
        N of the parts rates and sequences.
    time_limit : float
        Seconds for every method in the table.

    Raises
    ------
    OptionError
        For an unknown name.
    """
    check_names(part=((part,), (*PARTS, "all")), problem=(problems, PROBLEMS), method=(methods, rows.CONTENDERS))
    parts = PARTS if part == "all" else (part,)
    energy = [name for name in problems if name in ENERGY]
    results: dict[str, Any] = dict.fromkeys(FOUND, ())
    if "compare" in parts:
        results["rows"] = _compared(problems, methods, time_limit, progress)
    if "grids" in parts:
        progress.describe("errors over the number of steps")
        errors = [e for name in energy for e in over_grids(CONVERGED, name, grids, grid_iterations)]
        descent = [e for p in energy for e in over_grids(DESCENDED, p, descent_grids, descent_iterations)]
        results["errors"] = (*errors, *descent)
        if RELAXED in problems:
            chosen = history.of_one_phase(RELAXED, phase_grids)
            results["phases"] = tuple(over_grids(CONVERGED, RELAXED, chosen, grid_iterations))
    if "rates" in parts:
        progress.describe("convergence over the iterations")
        results["histories"] = tuple(
            history.successive_approximation(p, steps, iterations=iterations) for p in problems
        )
        results["descents"] = tuple(history.gradient_descent(p, steps, iterations=descent_iterations) for p in energy)
        results["relaxations"] = [_relaxed(alpha, steps, iterations) for alpha in relaxations]
    if "sequences" in parts:
        progress.describe("starts with three collisions")
        results["excursions"] = tuple(history.excursion(u, steps, iterations) for u in STARTS[:starts])
    return results


def _compared(
    problems: Sequence[str], methods: Sequence[str], limit: float, progress: Progress
) -> tuple[rows.Row, ...]:
    """Return a row for every problem and method."""
    table: list[rows.Row] = []
    for problem in problems:
        exact = optimum(problem)
        table += rows.given_rows(problem, exact)
        for name in methods:
            progress.describe(f"{problem}: {name}")
            table.append(rows.row_of(problem, name, exact, limit))
    return tuple(table)


def _relaxed(alpha: float, steps: int, iterations: int) -> history.History:
    enough = max(iterations, int(np.ceil(history.FITTED / alpha))) if alpha < 0.01 else iterations
    return history.successive_approximation(RELAXED, steps, relaxation=alpha, iterations=enough)


def run(settings: Settings, progress: Progress) -> Report:
    """Compare, and refine the solution of 5.2 for the numbers that all problems report."""
    started = time.monotonic()
    refined = rows.CONTENDERS[rows.REFINED].solve("general")
    findings = experiment(**settings.arguments, progress=progress)
    values = printed(findings)
    sequences = [{"start": one["start"], **one["hmp_mas"]} for one in values["sequences"]]
    shed = [{"start": one["start"], **one["minimum_principle"]} for one in values["sequences"]]
    return tabled(
        {**refined.to_dict(), **values, "wall_seconds": time.monotonic() - started},
        refined.success,
        {
            "errors against the exact optimum; true: in an event-driven simulation": values["rows"],
            "sigma / N by least squares": values["fits"],
            "errors over N": values["errors"],
            "errors over N, 5.2 with the collision in the middle of a step": values["phases"],
            "over the iterations": values["histories"],
            "5.2 with other relaxations": values["relaxations"],
            "5.3 from starts with three collisions: Algorithm 1": shed,
            "5.3 from starts with three collisions: HMP-MAS": sequences,
        },
        _figures(findings),
        [f"gradient descent ends farther from u_opt than Algorithm 1: {values['farther_by_descent']}"],
    )


def _figures(findings: Findings) -> dict[str, Any]:
    """Return the figures of the parts that were done."""
    histories, descents = findings["histories"], findings["descents"]
    length = [one for one in histories if one.experiment == "length"]
    figures = {
        "length": (length, lambda: chart([_motion(length[0]), _control(length[0])], 2)),
        "methods": (findings["rows"], lambda: _methods(findings["rows"])),
        "motions": (histories, lambda: chart([_motion(one) for one in histories], 2)),
        "convergence": (histories, lambda: _convergence(histories)),
        "relaxation": (histories, lambda: _over_iterations(findings["relaxations"])),
        "descent": (descents, lambda: _over_iterations((*histories, *descents))),
        "grids": (findings["errors"], lambda: _grids(findings["errors"])),
        "sequences": (findings["excursions"], lambda: _sequences(findings["excursions"])),
    }
    return {f"two_discs_{name}.png": draw for name, (found, draw) in figures.items() if found}


def _methods(findings: Sequence[rows.Row]) -> Any:
    """Draw the cost of every method's control in an event-driven simulation, over the time it took."""
    timed = [row for row in findings if np.isfinite(row["true_error"]) and np.isfinite(row["seconds"])]
    panels = []
    for problem in dict.fromkeys(row["experiment"] for row in timed):
        points = [
            Curve(max(r["seconds"], 1e-3), max(abs(r["true_error"]), 1e-15), f"{r['method']}, {r['status']}", DOTS)
            for r in timed
            if r["experiment"] == problem
        ]
        panels.append(Panel(curves=points, title=problem, x="processor [s]", y="$|J - J^*|$, simulated", log="xy"))
    return chart(panels, 2)


def _motion(one: history.History) -> Panel:
    return _paths(one.solution, f"{one.experiment}, N = {one.steps}")


def _paths(motion: Any, title: str) -> Panel:
    t = np.linspace(motion.t0, motion.t0 + motion.duration, 400)
    x = motion(t)
    hits = np.array([motion(event.time) for event in motion.impacts]).reshape(-1, x.shape[1])
    curves = [Curve(x[:, 2 * k], x[:, 2 * k + 1], f"disc {k + 1}") for k in (0, 1)]
    marks = [Curve(hits[:, 2 * k], hits[:, 2 * k + 1], "", {**DOTS, "color": "black"}) for k in (0, 1)]
    return Panel(curves=[*curves, *marks], title=title, x="$x$ [m]", y="$y$ [m]", equal=True)


def _control(one: history.History) -> Panel:
    t = np.linspace(0.0, one.exact.times[0], 400)
    exact = [Curve(t, values, "exact", DASHED) for values in one.exact.control(t - 1e-9).T]
    curves = [Curve(one.solution.u_grid, values, steps=True, label="$u$ [N]") for values in one.solution.u.T]
    return Panel(curves=[*curves, *exact], times=one.exact.times, y="$u$ [N]")


def _convergence(findings: Sequence[history.History]) -> Any:
    labels = {"excess": "$|J - J^*|$", "slope": r"$\Vert H_u \Vert$", "error": r"$\Vert u - u^* \Vert$ [N]"}
    return chart(
        [
            Panel(
                curves=[Curve(np.arange(one.error.size), getattr(one, name), one.experiment) for one in findings],
                x="iteration",
                y=label,
                log="y",
            )
            for name, label in labels.items()
        ]
    )


def _over_iterations(findings: Sequence[history.History]) -> Any:
    curves = [
        Curve(
            np.arange(one.error.size),
            one.error,
            rf"{one.experiment}, {one.method}, $\alpha = {one.relaxation:g}$: rate {one.fit[0]:.4f}",
            {} if one.method == MSA else {"ls": "--"},
        )
        for one in findings
        if one.error.size > 1
    ]
    return chart([Panel(curves=curves, x="iteration", y=r"$\Vert u - u^* \Vert$ [N]", log="y")])


def _grids(found: Sequence[Mapping[str, Any]]) -> Any:
    panels = []
    for quantity in QUANTITIES:
        curves = [
            Curve([e["steps"] for e in errors], [e[quantity] for e in errors], ", ".join(key), {"marker": "o"})
            for key, errors in series_of(found).items()
        ]
        panels.append(Panel(curves=curves, x="$N$", y=f"error of the {quantity}", log="xy"))
    return chart(panels)


def _sequences(findings: Sequence[history.Excursion]) -> Any:
    panels = []
    for one in findings:
        motions = (("start", one.motion), ("Algorithm 1", one.history.solution), ("HMP-MAS", one.prescribed))
        panels += [_paths(motion, f"{name} {one.start}") for name, motion in motions]
    return chart(panels, 3)


PROGRAM = program(__name__, run, experiment, quick=QUICK)
