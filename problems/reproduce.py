"""Repeat the experiments of five papers and report: `python -m problems.reproduce [paper ...] [--quick]`.

Papers: fesdj, time_freezing, minimum_principle, event_selected, lie_group; by default all. The numbers of their
figures, tables and texts are data in `problems/reproduction`: an experiment is a problem of this folder with its
settings, an entry is a number with its source and the criterion for agreement. Every experiment runs in a process of
its own, which is killed at its time limit. Finished runs are stored in the output folder (`runs/`), with a key of the
problem, all of its settings and the version of the library, so that an interrupted command continues where it stopped.

The folder gets report.md, report.html and their figures, rewritten after every experiment; entries
that have not been run yet have a row that says so. `--quick` runs smaller versions, in some minutes on two cores.

Exit codes: 0 when everything was run, nothing failed, and every difference to a paper is explained in its row; 1
otherwise; 2 for a wrong argument; 130 when interrupted, after writing the report of what there is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from nosnoc_py.errors import NosnocError
from nosnoc_py.solution.trajectory import jsonable
from nosnoc_py.sweep.local import LocalExecutor
from nosnoc_py.sweep.perform import perform
from nosnoc_py.sweep.store import Store
from nosnoc_py.sweep.tasks import Executor
from problems.reproduction.papers import PAPERS, chosen
from problems.reproduction.plan import Run, runs, tasks
from problems.reproduction.report import Shown, figures_of, write
from problems.reproduction.rows import complete, counts, rows_of
from problems.runner import table

OUTPUT = Path("reproduction")
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None, executor: Executor | None = None) -> int:
    """Run and report; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        planned = runs(chosen(arguments.papers), arguments.quick)
        if arguments.list:
            return _list(planned, arguments.json)
        return _reproduce(planned, arguments, executor or LocalExecutor(arguments.workers, tasks_each=1))
    except (NosnocError, OSError) as error:
        print(f"problems.reproduce: {error}", file=sys.stderr)
        return 2


def reproduce(
    planned: Sequence[Run],
    output: Path,
    executor: Executor,
    *,
    quick: bool = False,
    fresh: bool = False,
    retry: bool = False,
    tell: Callable[[str], Any] = lambda text: None,
) -> Shown:
    """Run the experiments that have not been run yet, and keep a report in the folder up to date.

    Parameters
    ----------
    planned : sequence of Run
    output : Path
        Folder of results, report and figures.
    executor : Executor
    quick : bool
        True for the smaller versions.
    fresh : bool
        Run everything again.
    retry : bool
        Run again what had failed without a result.
    tell : function (text)
        Called after every experiment.

    Returns
    -------
    Shown
        The contents of the report. If it is interrupted, the report is written before the exception goes on.
    """
    store, work = Store(output), tasks(planned, getattr(executor, "workers", 1))
    if fresh:
        with store.locked():
            for task in work:
                store.forget(task.key)

    def report() -> Shown:
        shown = gather(planned, store, quick)
        write(shown, output / "report.md")
        return shown

    def note(state: Any) -> None:
        tell(_line(state))
        report()

    try:
        perform(work, store, executor, retry=retry, callback=note)
    finally:
        report()
    return report()


def gather(planned: Sequence[Run], store: Store, quick: bool = False) -> Shown:
    """Return the contents of the report for the runs in a folder."""
    known = {run.key: store.row(run.key) for run in planned if run.key}
    finished = {key: row for key, row in known.items() if row is not None}
    done = [run for run in planned if run.key in finished]
    return Shown(
        planned=planned,
        kept=finished,
        rows=rows_of(planned, finished, quick),
        figures=figures_of(store, done),
        quick=quick,
    )


def _reproduce(planned: Sequence[Run], arguments: argparse.Namespace, executor: Executor) -> int:
    console = Console(stderr=True, highlight=False)
    tell = console.print if console.is_terminal and not arguments.json else lambda text: None
    options = {"quick": arguments.quick, "fresh": arguments.fresh, "retry": arguments.retry}
    try:
        shown = reproduce(planned, arguments.output, executor, **options, tell=tell)
    except KeyboardInterrupt:
        print(f"interrupted; {arguments.output / 'report.md'} has what was run", file=sys.stderr)
        return INTERRUPTED
    if arguments.publish:
        write(shown, arguments.publish, arguments.publish.stem, html=False, small=True, merge=True)
    _say(shown, arguments)
    return 0 if complete(shown.rows) else 1


def _say(shown: Shown, arguments: argparse.Namespace) -> None:
    numbers = {verdict.value: number for verdict, number in counts(shown.rows).items()}
    if arguments.json:
        summary = {
            "report": str(arguments.output / "report.md"),
            "complete": complete(shown.rows),
            "counts": numbers,
            "seconds": {run.key: shown.kept[run.key].get("seconds") for run in shown.planned if run.key in shown.kept},
            "rows": [row.to_dict() for row in shown.rows],
        }
        print(json.dumps(jsonable(summary)))
        return
    console = Console(highlight=False, soft_wrap=True)
    listing = table("verdict", "rows")
    for name, number in numbers.items():
        listing.add_row(name, str(number))
    console.print(listing)
    for row in shown.rows:
        if row.verdict.value in ("differs", "failed", "not run"):
            line = f"{row.paper}, {row.entry.where}, {row.entry.what}: {row.verdict.value}. {row.remark}"
            console.print(line, markup=False)
    console.print(f"report: {arguments.output / 'report.md'}, {arguments.output / 'report.html'}")


def _line(state: Any) -> str:
    """Return one line about the newest result."""
    head = f"{state.finished}/{state.total}"
    if state.row is None:
        return f"{head} {state.death or f'done before: {state.skipped}'}"
    seconds = state.row.get("seconds")
    text = f"{seconds:.1f} s" if seconds is not None else f"{state.row.get('status')}: {state.row.get('message', '')}"
    return f"{head} {state.row['key']}: {text}"


def _list(planned: Sequence[Run], as_json: bool) -> int:
    rows = [
        {"paper": run.paper.name, "experiment": run.experiment.name, "command": run.command, "needs": run.missing}
        for run in planned
    ]
    if as_json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        missing = f"  (needs {', '.join(row['needs'])})" if row["needs"] else ""
        print(f"{row['paper']} {row['experiment']}: {row['command']}{missing}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m problems.reproduce",
        description="Repeat the experiments of five papers; report their numbers and ours.",
        epilog="Exit codes: 0 all run and every difference explained, 1 not so, 2 wrong argument, 130 interrupted.",
    )
    parser.add_argument("papers", nargs="*", metavar="paper", help=f"of {', '.join(PAPERS)}; default all")
    parser.add_argument("--quick", action="store_true", help="smaller versions, which take a few minutes")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR", help=f"folder, default ./{OUTPUT}")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes at a time, default 1")
    parser.add_argument("--json", action="store_true", help="last line of the output: one JSON object with all rows")
    parser.add_argument(
        "--list", action="store_true", help="only list the runs, each with a command that does the same"
    )
    parser.add_argument("--fresh", action="store_true", help="run everything again")
    parser.add_argument("--retry", action="store_true", help="repeat runs that failed, died or took too long")
    parser.add_argument(
        "--publish",
        type=Path,
        metavar="FILE",
        help="also write the report there, with small figures; papers that are not run keep their sections",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
