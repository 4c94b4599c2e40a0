"""The tables of the comparison on the two discs; what the paper or independent measurements say stands beside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.markup import escape

from problems.benchmarks.two_discs_costates import Costates
from problems.benchmarks.two_discs_findings import Findings, series
from problems.benchmarks.two_discs_grids import QUANTITIES
from problems.benchmarks.two_discs_history import History
from problems.benchmarks.two_discs_rows import EXACT, QUOTED, REFUSED, Row
from problems.benchmarks.two_discs_sequences import Excursion
from problems.benchmarks.two_discs_timing import LIMIT, Timing
from problems.runner import table

# What is known from elsewhere: rates of the paper for 5.2 by alpha (Fig. 11), its J of 5.1, independent measurements.
PAPER_RATES = {0.01: 0.9911, 0.005: 0.9956, 0.001: 0.9989}
REMARKS = {("concentric", "HMP N=60"): "the paper has J = 1.421552, an independent implementation 1.421551970"}
MEASURED = {("concentric", 480): (1.399599681, 3.187e-3), ("general", 480): (0.312109233, 2.031e-2)}
SECTIONS = {"concentric": "5.1", "general": "5.2", "wall": "5.3", "length": "5.4"}
SHOWN = 110  # characters of a message


def show(console: Console, found: Findings) -> None:
    """Print the tables of all parts."""
    for problem in dict.fromkeys(row.experiment for row in found.rows):
        _methods(console, problem, [row for row in found.rows if row.experiment == problem])
    if found.errors:
        _grids(console, found)
    if found.histories:
        _histories(console, found)
    if found.relaxations:
        _relaxations(console, found.relaxations)
    if found.excursions:
        _sequences(console, found.excursions)
    if found.costates:
        _costates(console, found.costates)
    if found.timing is not None:
        _timing(console, found.timing)


def _methods(console: Console, problem: str, rows: Sequence[Row]) -> None:
    title = f"{SECTIONS[problem]}, {problem}: J - J_opt, the same in an event-driven simulation, errors of u and times"
    columns = ("status", "J", "J - J_opt", "simulated", "u [N]", "times [s]", "hits", "iter.", "CPU [s]")
    made = table("method", *columns, title=title)
    for row in rows:
        numbers = (_objective(row.objective), *map(_signed, (row.error, row.true_error)), _number(row.control_error))
        given = row.status == EXACT or not row.iterations
        effort = ("", "") if given else (str(row.iterations), f"{row.seconds:.2f}")
        hits = "-" if row.status in (REFUSED, QUOTED) else str(len(row.collisions))
        made.add_row(escape(row.method), row.status, *numbers, _number(row.time_error), hits, *effort)
    console.print(made)
    for row in rows:
        said = REMARKS.get((problem, row.method), row.message)
        if said:
            console.print(f"  {row.method}: {_short(said)}", markup=False)


def _grids(console: Console, found: Findings) -> None:
    title = "sigma / N by least squares (order by a fit of the logarithms, largest deviation from the fit)"
    made = table("problem", "method", "N", *QUANTITIES, title=title)
    for (problem, method), errors in series(found.errors).items():
        fits = found.fits.get((problem, method))
        if fits is not None:
            texts = [f"{one.sigma:.3g} / N ({one.order:.2f}, {one.spread:.0%})" for one in fits.values()]
            made.add_row(problem, method, f"{errors[0].steps} ... {errors[-1].steps}", *texts)
    console.print(made)
    made = table(
        "problem", "method", "N", "status", "|H_u|", "times [s]", "u [N]", "|J - J_opt|", title="errors over N"
    )
    for error in found.errors:
        numbers = (error.slope, error.time, error.control, error.objective)
        made.add_row(error.experiment, error.method, str(error.steps), error.status, *map(_number, numbers))
    console.print(made)


def _histories(console: Console, found: Findings) -> None:
    columns = ("N", "iter.", "status", "rate", "J", "expected", "|H_u|", "u [N]", "expected")
    made = table("problem", "method", *columns, title="Algorithm 1 and gradient descent, alpha = 0.01")
    for one in (*found.histories, *found.descents):
        known = MEASURED.get((one.experiment, one.steps), (None, None)) if one in found.histories else (None, None)
        counts = (str(one.steps), str(one.error.size), one.solution.status.value, f"{one.fit[0]:.4f}")
        cost, error = ("" if value is None else f"{value:.10g}" for value in known)
        numbers = (f"{one.objective[-1]:.9f}", cost, _number(one.slope[-1]), _number(one.error[-1]), error)
        made.add_row(one.experiment, one.method, *counts, *numbers)
    console.print(made)
    if found.stalls:
        text = ", ".join(f"{problem} {ratio:.0f} times" for problem, ratio in found.stalls.items())
        console.print(f"gradient descent ends farther from u_opt than Algorithm 1: {text}")


def _relaxations(console: Console, histories: Sequence[History]) -> None:
    columns = ("iterations", "status", "rate", "paper", "J at the end", "u [N]")
    made = table("alpha", *columns, title="5.2 with other relaxations; rates are fitted over 5 / alpha iterations")
    for one in histories:
        paper = PAPER_RATES.get(one.relaxation)
        numbers = (f"{one.fit[0]:.5f}", "" if paper is None else f"{paper:.4f}", f"{one.objective[-1]:.6f}")
        status = one.solution.status.value
        made.add_row(f"{one.relaxation:g}", str(one.error.size), status, *numbers, _number(one.error[-1]))
    console.print(made)


def _sequences(console: Console, excursions: Sequence[Excursion]) -> None:
    columns = ("collides with", "method", "status", "J", "J - J_opt", "collisions", "iterations")
    made = table("start [N]", *columns, title="5.3 from starts with three collisions")
    for one in excursions:
        start, found = f"({one.start[0]:g}, {one.start[1]:g})", one.to_dict()
        there, other = ", ".join(found["start_collisions"]), found["hmp_mas"]
        mine = found["minimum_principle"]
        for name, each in (("Algorithm 1", mine), ("HMP-MAS", other)):
            numbers = (f"{each['objective']:.6f}", _signed(each["excess"]), ", ".join(each["collisions"]))
            made.add_row(start, there, name, each["status"], *numbers, str(each["iterations"]))
    console.print(made)
    for one in excursions:
        shed = (
            "keeps another sequence" if one.shed_at is None else f"has two collisions from iteration {one.shed_at} on"
        )
        said = _short(one.prescribed.message) or "a local optimum with its own sequence"
        console.print(f"  {one.start}: Algorithm 1 {shed}; HMP-MAS: {said}", markup=False)


def _costates(console: Console, found: Sequence[Costates]) -> None:
    columns = ("N", "s - s_opt [s]", *(f"l[{name}]" for name in found[0].names), "jump", "H_u")
    made = table("problem", *columns, title="-mu / b of FESD-J less the costate, relative to the largest of its kind")
    for one in found:
        late = float((one.times - one.exact_times)[0])
        numbers = [f"{value:.1e}" for value in one.difference]
        more = (f"{one.to_dict()['jump_difference']:.1e}", f"{one.multiplier_residual:.1e}")
        made.add_row(one.experiment, str(one.stages), f"{late:+.1e}", *numbers, *more)
    console.print(made)


def _timing(console: Console, timing: Timing) -> None:
    verdict = "within" if timing.ratio <= LIMIT else "ABOVE"
    console.print(
        f"N = {timing.steps}: an iteration of Algorithm 1 {timing.iteration:.2f} ms, a plain NumPy roll-out "
        f"{timing.rollout:.2f} ms of the processor: ratio {timing.ratio:.2f}, {verdict} the limit of {LIMIT:g}; final "
        f"states differ by {timing.difference:.0e}"
    )


def _objective(value: float) -> str:
    return f"{value:.9f}" if np.isfinite(value) else "-"


def _short(message: str) -> str:
    return message if len(message) <= SHOWN else f"{message[: SHOWN - 3]}..."


def _number(value: float | None) -> str:
    return "-" if value is None or not np.isfinite(value) else f"{value:.2e}"


def _signed(value: float) -> str:
    return f"{value:+.2e}" if np.isfinite(value) else "-"
