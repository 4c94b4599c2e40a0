"""Contact problems from the literature, from a naive start: `python -m problems.benchmarks.contact_table`.

Every problem of `problems.benchmarks.contact` is solved by the plain call `ns.solve(ocp)`, by finite elements, by a
plain relaxation of the same finite elements, with smooth contacts by collocation, and, if it is installed, by the
package nosnoc 0.2.0. All start from the initial state and zero control unless the source of the problem has a guess, on
one core, with the same time limit. The objective of an event-driven simulation of the control counts. With `--set
literal=true` the discretised problems of CRISP are solved as they are, beside a plain relaxation.

`--set kept=DIR` stores rows in a folder: a second run continues where the first one was stopped. `--set page=FILE`
writes the table for the documentation. A page that exists is read before: cells of problems and methods that were not
run now stay as they are, so a column is added with `--set "methods=NAME," page=FILE` without running the others.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from nosnoc_py.sweep import tasks
from nosnoc_py.sweep.local import LocalExecutor
from nosnoc_py.sweep.perform import perform
from nosnoc_py.sweep.store import Store
from problems.benchmarks.contact import NAMES, nosnoc_program, posed
from problems.benchmarks.contact.methods import ABSENT, METHODS, Answer
from problems.benchmarks.orders import check_names
from problems.figures import Curve, Panel, chart
from problems.runner import Report, markdown, program, tabled
from problems.settings import Settings

ROOT = Path(__file__).parents[2]
CONFIRMED = ("confirmed", "confirmed in windows", "simulated")
NEAR, VERY_NEAR = 1.05, 1.01
GRACE = 60.0  # seconds for imports, and for certificates after the limit
BUSY = 3.0  # time of the clock over processor time on a busy machine, at most
LITERAL: Mapping[str, Any] = {"default": None, "relaxation": ns.Homotopy(finish="none")}
VERSIONS = {"Python": platform.python_version(), "casadi": ca.__version__, "nosnoc_py": ns.__version__}
# A cell of the page: "**2.58** (3 s)", or "- (why not, 60 s)".
CELL = re.compile(r"(?:- \((?P<said>.*), |\*{0,2}(?P<value>[-+.\de]+)\*{0,2} \()(?P<seconds>\d+) s\)")


@dataclass(frozen=True, kw_only=True)
class Row:
    """Result of a method on a problem; `seconds` are processor time of all processes."""

    problem: str
    method: str
    seconds: float
    answer: Answer

    @property
    def confirmed(self) -> bool:
        """True if the motion is confirmed."""
        return self.answer.status == "solved" and self.answer.verdict in CONFIRMED

    @property
    def value(self) -> float:
        """True objective; infinite if nothing is confirmed."""
        return self.answer.true_objective if self.confirmed else np.inf


def answer(*, problem: str, method: str, limit: float, literal: bool) -> dict[str, Any]:
    """Solve in a process of its own; return the row by name."""
    _warm_up()
    problem_posed, before = posed(problem), _seconds()
    if literal:
        outcome = _literal(problem, method, limit)
    else:
        result = METHODS[method](problem_posed, limit)
        outcome = result or Answer(status="cannot be written", verdict="", objective=np.nan, true_objective=np.inf)
    return {"problem": problem, "method": method, "seconds": _seconds() - before, "answer": asdict(outcome)}


def _literal(problem: str, method: str, limit: float) -> Answer:
    mpcc = posed(problem).literal
    if mpcc is None:
        return Answer(status="cannot be written", verdict="", objective=np.nan, true_objective=np.inf)
    result = ns.solve_mpcc(mpcc(), LITERAL[method], time_limit=limit)
    return Answer(
        status=result.status.value,
        verdict="confirmed" if result.success else "",  # by the residuals: there is no motion to simulate
        objective=result.objective,
        true_objective=result.objective if result.success else np.inf,
        message=result.message,
        stationarity=result.stationarity.value,
    )


def experiment(
    *,
    problems: Sequence[str] = (),
    methods: Sequence[str] = (),
    time_limit: float = 60.0,
    literal: bool = False,
    kept: str = "",
    page: str = "",
) -> list[Row]:
    """Return all rows.

    Parameters
    ----------
    problems, methods : tuple of str
        Names, by default all.
    time_limit : float
        Seconds for every problem and method.
    literal : bool
        Discretised problems of the sources instead, where there are any.
    kept : str
        A folder for rows; those in it are not computed again.
    page : str
        A file for the table; its cells of other problems and methods stay.

    Raises
    ------
    OptionError
        For an unknown problem or method.
    """
    known: Mapping[str, Any] = LITERAL if literal else METHODS
    check_names(problem=(problems, NAMES), method=(methods, known))
    cells = [
        {"problem": problem, "method": method, "limit": time_limit, "literal": literal}
        for problem in problems or NAMES
        for method in methods or known
        if not literal or posed(problem).literal is not None
    ]
    work = [_task(**one) for one in cells]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    with TemporaryDirectory() as folder:
        store = Store(kept or folder)
        perform(work, store, LocalExecutor(1, tasks_each=1), attempts=1)
        return [_row(one, store.row(task.key)) for one, task in zip(cells, work, strict=True)]


def _task(**asked: Any) -> tasks.Task:
    """Return a task; its key is a hash of arguments, versions, and the files of the problems."""
    files = sorted((ROOT / "problems" / "benchmarks" / "contact").glob("*.py"))
    about = (*asked.values(), *VERSIONS.values(), nosnoc_program.package() is not None)
    data = "|".join(map(str, about)).encode() + b"".join(f.read_bytes() for f in files)
    return tasks.Task(
        key=f"{asked['problem']}-{asked['method'].replace(' ', '_')}-{hashlib.sha256(data).hexdigest()[:12]}",
        function=f"{__name__ if __name__ != '__main__' else 'problems.benchmarks.contact_table'}:answer",
        arguments=asked,
        paths=(str(ROOT),),
        timeout=BUSY * asked["limit"] + GRACE,
    )


def _row(cell: Mapping[str, Any], result: Mapping[str, Any] | None) -> Row:
    """Return the row of a process; one that was killed or crashed has a row, too."""
    if result is not None and "answer" in result:
        return Row(
            problem=result["problem"],
            method=result["method"],
            seconds=result["seconds"],
            answer=_read(result["answer"]),
        )
    status, message = (
        ("stopped", "") if result is None else (str(result["status"]), str(result.get("message", ""))[:300])
    )
    lost = Answer(status=status, verdict="", objective=np.nan, true_objective=np.inf, message=message)
    return Row(problem=cell["problem"], method=cell["method"], seconds=cell["limit"], answer=lost)


def _read(stored: Mapping[str, Any]) -> Answer:
    """Return an answer from a file; files hold no infinite numbers."""
    numbers = {"objective": np.nan, "true_objective": np.inf}
    filled: dict[str, Any] = {name: numbers.get(name) if v is None else v for name, v in stored.items()}
    return Answer(**filled)


def best_of(rows: Sequence[Row], problem: str, literal: bool = False) -> float:
    """Return the least known true objective."""
    known = np.inf if literal else posed(problem).best
    return min([known, *(row.value for row in rows if row.problem == problem)])


def counts(rows: Sequence[Row], literal: bool = False) -> list[dict[str, Any]]:
    """Return for every method how much it solves."""
    table = []
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        ratios = [row.value / best_of(rows, row.problem, literal) for row in own]
        table.append(
            {
                "method": method,
                "confirmed": f"{sum(row.confirmed for row in own)} of {len(own)}",
                "within 1 %": sum(ratio <= VERY_NEAR for ratio in ratios),
                "within 5 %": sum(ratio <= NEAR for ratio in ratios),
                "longest": max(row.seconds for row in own),
            }
        )
    return table


def run(settings: Settings, progress: Progress) -> Report:
    """Compute the missing rows, and report."""
    started, arguments = time.monotonic(), settings.arguments
    rows, literal = experiment(**arguments), bool(arguments["literal"])
    table = [
        {
            "problem": row.problem,
            "method": row.method,
            "objective": row.answer.true_objective,
            "best known": best_of(rows, row.problem, literal),
            "verdict": row.answer.verdict or row.answer.status,
            "seconds": row.seconds,
        }
        for row in rows
    ]
    lines = [f"{row.problem}, {row.method}: {row.answer.message}" for row in rows if row.answer.message]
    summary, shown = counts(rows, literal), rows
    if arguments["page"]:
        file = Path(arguments["page"])
        shown = merged(stored(file.read_text(encoding="utf-8")) if file.exists() else [], rows)
        file.write_text(page_of(shown), encoding="utf-8")
    results = {"rows": [asdict(row) for row in rows], "summary": summary, "versions": VERSIONS}
    return tabled(
        {**results, "wall_seconds": time.monotonic() - started},
        all(row.answer.status not in tasks.FAILED for row in rows),
        {"problems of others": table, "solved": summary},
        figures={"contact_profile.png": lambda: profile(shown)},
        said=["true objectives; processor seconds", *lines],
    )


def profile(rows: Sequence[Row]) -> Any:
    """Draw the share of problems solved within 5 % of the best known objective, over time."""
    curves, problems = [], len({row.problem for row in rows})
    for method in dict.fromkeys(row.method for row in rows):
        times = sorted(r.seconds for r in rows if r.method == method and r.value <= NEAR * best_of(rows, r.problem))
        share = np.arange(1, len(times) + 1) / problems
        if times:
            curves.append(Curve(np.array(times), share, method, {"drawstyle": "steps-post", "marker": "."}))
    return chart([Panel(curves=curves, x="time on one core [s]", y="share of problems within 5 %", log="x")])


def stored(page: str) -> list[Row]:
    """Return the rows of a page that `page_of` has written, with as many digits as it shows."""
    names = {posed(name).title: name for name in NAMES}
    lines = [[cell.strip() for cell in line[2:-2].split(" | ")] for line in page.splitlines()]
    head = next((line for line in lines if line[0] == "problem"), [])
    rows = []
    for line in lines:
        if line[0] in names and len(line) == len(head):
            cells = zip(head[2:], map(CELL.fullmatch, line[2:]), strict=True)
            rows += [_of_cell(names[line[0]], method, cell) for method, cell in cells if cell]
    return rows


def _of_cell(problem: str, method: str, cell: re.Match[str]) -> Row:
    value = np.inf if cell["value"] is None else float(cell["value"])
    status, verdict = ("solved", "confirmed") if cell["value"] else (cell["said"], cell["said"])
    answer = Answer(status=status, verdict=verdict, objective=value, true_objective=value)
    return Row(problem=problem, method=method, seconds=float(cell["seconds"]), answer=answer)


def merged(before: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Return the earlier rows with the new ones in their places; a package that is absent now replaces nothing."""
    cells = {(row.problem, row.method): row for row in before}
    new = {(row.problem, row.method): row for row in rows}
    cells |= {key: row for key, row in new.items() if row.answer.status != ABSENT or key not in cells}
    order = [*METHODS, *(method for _, method in cells)]
    return sorted(cells.values(), key=lambda row: (NAMES.index(row.problem), order.index(row.method)))


def page_of(rows: Sequence[Row]) -> str:
    """Return the table for the documentation."""
    methods = list(dict.fromkeys(row.method for row in rows))
    lines = [
        "Written by `python -m problems.benchmarks.contact_table --set page=docs/results/contact_table.md`. Objectives "
        "are those of the motion that an event-driven simulation of the control shows (of an unstable one the "
        "solution's own), behind them the seconds of one core; a dash is an answer that is not confirmed. Bold: within "
        "5 % of the best known.",
        "",
        ", ".join(f"{name} {version}" for name, version in VERSIONS.items()) + ".",
        "",
    ]
    cells = []
    for name in dict.fromkeys(row.problem for row in rows):
        best = best_of(rows, name)
        own = {row.method: _cell(row, best) for row in rows if row.problem == name}
        known = f"{best:.5g}" if np.isfinite(best) else "-"
        cells.append([posed(name).title, known, *(own.get(method, "") for method in methods)])
    lines += [*markdown(["problem", "best known", *methods], cells), ""]
    summary = [[f"{v:.0f} s" if isinstance(v, float) else v for v in each.values()] for each in counts(rows)]
    lines += markdown(list(counts(rows)[0]), summary)
    lines += ["", "Sources, and differences of a problem here from its source:", ""]
    for name in dict.fromkeys(row.problem for row in rows):
        one = posed(name)
        parts = (one.source, f"here {one.differs}" if one.differs else "", one.reported, one.found)
        lines.append(f"- {one.title}: " + ". ".join(part for part in parts if part) + ".")
    return "\n".join(lines) + "\n"


def _cell(row: Row, best: float) -> str:
    if not row.confirmed:
        return f"- ({row.answer.verdict or row.answer.status}, {row.seconds:.0f} s)"
    number = f"{row.value:.5g}"
    return (f"**{number}**" if row.value <= NEAR * best else number) + f" ({row.seconds:.0f} s)"


def _seconds() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _warm_up() -> None:
    """Solve a tiny problem that loads IPOPT, so that this is not measured."""
    x = ca.SX.sym("x")
    ca.nlpsol("tiny", "ipopt", {"x": x, "f": x**2}, {"ipopt.print_level": 0, "print_time": False})(x0=1.0)


PROGRAM = program(
    __name__,
    run,
    experiment,
    quick={"problems": ("walled_cart_pole",), "methods": ("finite elements", "relaxation"), "time_limit": 20.0},
)
