"""A benchmark of MPCC solvers on the problems of NOSBENCH: `python -m problems.benchmarks.nosbench DIR`.

Every problem and solver is one row; failures are rows too. The benchmark itself decides if a point is a
solution, from the functions in the problem's file and its own LPEC, not by the solver's status. Every row comes from a
process of its own. With `--output` rows are stored in a folder, and a second run continues where the first one stopped.

With `--random N` every problem is solved N times from random starts and with randomly scaled rows of G and H: nothing
may crash, overrun its time limit or claim a false success.

Exit codes: 0; 1 when a row failed or a success was false (in random runs also for an overrun); 2 for a wrong argument.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console

from nosnoc_py.errors import NosnocError, OptionError
from nosnoc_py.solution.trajectory import jsonable
from nosnoc_py.sweep.local import LocalExecutor
from nosnoc_py.sweep.perform import perform
from nosnoc_py.sweep.store import Store
from nosnoc_py.sweep.tasks import Executor
from problems.benchmarks import nosbench_report as report
from problems.benchmarks.nosbench_task import SOLVERS, Row, Task, make_solver, row_of
from problems.figures import DOTS, Curve, Panel, chart
from problems.runner import FIGURES

WIDTH = 190  # characters in a line of the table of all rows
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        _check(arguments)
        tasks = tasks_of(arguments)
        with TemporaryDirectory() as folder:
            rows = run(
                tasks, Store(arguments.output or folder), LocalExecutor(arguments.jobs, tasks_each=1), arguments.json
            )
    except (NosnocError, OSError) as error:
        print(f"problems.benchmarks.nosbench: {error}", file=sys.stderr)
        return 2
    console = Console(highlight=False, soft_wrap=True, quiet=arguments.json)
    console.width = max(console.width, WIDTH)
    report.show(console, rows, arguments.solver)
    paths = _draw(rows, arguments)
    if arguments.json:
        results = {"problem": "nosbench", "folder": str(arguments.folder), **report.summary(rows, arguments.solver)}
        print(json.dumps(jsonable({**results, "figures": [str(path) for path in paths]})))
    for path in paths:
        console.print(f"figure: {path}")
    if len(rows) < len(tasks):
        print(f"problems.benchmarks.nosbench: stopped after {len(rows)} of {len(tasks)} rows", file=sys.stderr)
        return 130
    return 0 if report.sound(rows, random=arguments.random > 0) else 1


def tasks_of(arguments: argparse.Namespace) -> list[Task]:
    """Return all tasks, problem by problem from small files to large ones.

    Raises
    ------
    OptionError
        If the folder does not exist or holds no JSON.
    """
    folder: Path = arguments.folder
    if not folder.is_dir():
        raise OptionError(f"{folder}: expected a folder with NOSBENCH problems (*.json), there is no such folder.")
    files = sorted((path for path in folder.glob("*.json") if path.is_file()), key=lambda p: (p.stat().st_size, p.name))
    if not files:
        raise OptionError(f"{folder}: expected NOSBENCH problems (*.json), there is none in this folder.")
    draws = range(arguments.random) if arguments.random else (-1,)
    common = {"time_limit": arguments.time_limit, "seed": arguments.seed}
    return [
        Task(path=str(path.resolve()), solver=solver, draw=draw, **common)
        for path in files
        for draw in draws
        for solver in arguments.solver
    ]


def run(tasks: Sequence[Task], store: Store, executor: Executor, silent: bool = True) -> list[Row]:
    """Compute the missing rows; return all rows in the order of the tasks, fewer when interrupted by Ctrl-C."""
    for name in THREADS:  # inherited by the processes, so that their times do not depend on the number of cores
        os.environ[name] = "1"
    work = {task.work.key: task for task in tasks}

    def tell(state: Any) -> None:
        if state.row is not None and not silent:
            print(_line(row_of(work[state.row["key"]], state.row)))

    with suppress(KeyboardInterrupt):
        perform([task.work for task in tasks], store, executor, attempts=1, callback=tell)
    known = {key: store.row(key) for key in work}
    return [row_of(work[key], row) for key, row in known.items() if row is not None]


def _check(arguments: argparse.Namespace) -> None:
    arguments.solver = list(dict.fromkeys(arguments.solver or ("base", "auto")))
    for name in arguments.solver:
        make_solver(name)
    for name, least in (("jobs", 1), ("random", 0), ("seed", 0)):
        if getattr(arguments, name) < least:
            raise OptionError(f"--{name}: expected at least {least}, given {getattr(arguments, name)}.")
    if not 0 < arguments.time_limit < float("inf"):
        raise OptionError(f"--time-limit: expected positive seconds, given {arguments.time_limit:g}.")
    if arguments.output is not None and arguments.output.is_file():
        raise OptionError(f"--output: expected a folder, given the file {arguments.output}.")


def _line(row: Row) -> str:
    seconds = "" if row.wall_seconds is None else f" in {row.wall_seconds:.2f} s"
    verdict = "solved" if row.solved else "FALSE SUCCESS" if row.false_success else row.status
    return f"{row.problem} {row.variant}".strip() + f", {row.solver}: {verdict}{seconds} {row.message}".rstrip()


def _draw(rows: Sequence[Row], arguments: argparse.Namespace) -> list[Path]:
    folder: Path | None = arguments.figures or (None if arguments.json else FIGURES)
    if folder is None or not any(row.solved for row in rows):
        return []
    folder.mkdir(parents=True, exist_ok=True)
    solvers = arguments.solver
    shares = {name: (r, np.arange(1, r.size + 1) / r.size) for name, r in report.profiles(rows, solvers).items()}
    solved = {name: (r[np.isfinite(r)], share[np.isfinite(r)]) for name, (r, share) in shares.items()}
    curves = [Curve(r, share, name, {"drawstyle": "steps-post"}) for name, (r, share) in solved.items()]
    panels = {"profile": Panel(curves=curves, x="time over that of the fastest", y="share of problems", log="x")}
    for a, b in report.pairs_of(solvers):
        if ratios := report.ratios(rows, a, b):
            points = [Curve(np.arange(len(ratios)), [one.ratio for one in ratios], f"time {a} / {b}", DOTS)]
            panels[f"ratios_{a}_{b}"] = Panel(curves=points, x="problem", y="ratio", log="y", levels=(1.0,))
    paths = [folder / f"nosbench_{name}.png" for name in panels]
    for path, panel in zip(paths, panels.values(), strict=True):
        chart([panel]).savefig(path)
    return paths


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m problems.benchmarks.nosbench",
        description="Solve the MPCCs of a folder with several solvers, side by side.",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help="folder with problems of NOSBENCH (*.json)")
    names = ", ".join(SOLVERS)
    add("--solver", action="extend", nargs="+", metavar="NAME", help=f"one or several of {names}; default base auto")
    add("--time-limit", type=float, default=300.0, metavar="s", help="seconds per problem and solver; default 300")
    add("--jobs", type=int, default=1, metavar="N", help="problems at a time, each in its own process; default 1")
    add("--output", type=Path, metavar="DIR", help="folder for rows; existing rows are not repeated")
    add("--figures", type=Path, metavar="DIR", help=f"folder for figures; default ./{FIGURES}, with --json none")
    add("--json", action="store_true", help="last line of the output: one JSON object with the results")
    add("--random", type=int, default=0, metavar="N", help="N random starts and scalings instead of the problem itself")
    add("--seed", type=int, default=0, metavar="S", help="seed of the random starts and scalings; default 0")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
