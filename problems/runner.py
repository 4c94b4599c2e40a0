"""The command line that all problems share: `python -m problems.NAME [--json] [--quick] [--set ...] [--figures DIR]`.

A problem gives a `Program`: its settings, what `--quick` changes, and a function that runs it and returns a `Report`.
Exit codes: 0 for success, 1 when the solver's status says otherwise, 2 for a wrong argument.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import nosnoc_py as ns
from nosnoc_py.errors import NosnocError
from nosnoc_py.options import Options
from nosnoc_py.progress import Progress
from nosnoc_py.solution.trajectory import jsonable
from problems.settings import Settings, defaults_of, parse

FIGURES = Path("figures")
MOST = 8  # parts of a default in the help
NUMBERS = ("objective", "complementarity", "infeasibility", "iterations", "wall_seconds", "events", "final_state")
WIDEST = 60  # characters of a cell
WIDTH = 130  # of tables at least: better wrapped by a narrow terminal than cut


@dataclass(frozen=True, kw_only=True, eq=False)
class Report:
    """Report of a run of a problem.

    Parameters
    ----------
    results : mapping
        Values that `--json` prints.
    success : bool
    show : function (console)
        Writes the results for people.
    figures : mapping
        Functions that draw a figure to a path, by the name of the file.
    """

    results: Mapping[str, Any]
    success: bool
    show: Callable[[Console], None]
    figures: Mapping[str, Callable[[Path], Any]] = field(default_factory=dict)


Run = Callable[[Settings, Progress], Report]
Drawing = Callable[[Any, Mapping[str, Any]], Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A problem that can be run.

    Parameters
    ----------
    name : str
        Name of its module.
    about : str
        One sentence.
    settings : Settings
    quick : mapping
        Changes of the settings by `--quick`.
    run : function (settings, progress) -> Report
    positional : str
        Name of the argument that is given without its name; empty if there is none.
    """

    name: str
    about: str
    settings: Settings
    quick: Mapping[str, Any]
    run: Run
    positional: str = ""


class Meter:
    """Callback for `ns.simulate` that records the worst residuals, counts iterations and measures the time.

    A simulation has no objective; these are the numbers that it has in common with a solution.
    """

    def __init__(self, progress: Callable[[Any], None]) -> None:
        self.progress = progress
        self.complementarity = self.infeasibility = 0.0
        self.steps = self.homotopies = self.iterations = 0
        self.started = time.monotonic()

    def __call__(self, state: Any) -> None:
        """Record one state of a simulator, and pass it on to the progress."""
        self.complementarity = max(self.complementarity, state.complementarity)
        self.infeasibility = max(self.infeasibility, state.infeasibility)
        self.iterations += state.iterations
        self.steps += 1
        self.homotopies += state.attempts > 0
        self.progress(state)

    def results(self, trajectory: ns.Trajectory) -> dict[str, Any]:
        """Return what `--json` prints for a simulation."""
        return {
            **trajectory.to_dict(),
            "objective": None,
            "complementarity": self.complementarity,
            "infeasibility": self.infeasibility,
            "iterations": self.iterations,
            "wall_seconds": time.monotonic() - self.started,
            "steps": self.steps,
        }


def program(
    module: str,
    run: Run,
    arguments: Callable[..., Any] | Mapping[str, Any] | None = None,
    *,
    quick: Mapping[str, Any],
    positional: str = "",
    **settings: Any,
) -> Program:
    """Return the program of a module, and run it where the module is the one that Python was started with.

    As the last line of a module, `PROGRAM = program(__name__, run, ...)`, this is all that a problem needs. Its name is
    that of the module, what is said about it the first sentence of the module's docstring.

    Parameters
    ----------
    module : str
        `__name__`.
    run : function (settings, progress) -> Report
    arguments : function or mapping
        Keys of `--set` with their defaults; of a function all arguments that have one, without options and callbacks.
    quick : mapping
        Changes by `--quick`.
    positional : str
        Name of the argument that is given without its name.
    **settings
        Arguments of `Settings`: method, solver, methods, solvers, fixed.
    """
    known = defaults_of(arguments) if callable(arguments) else dict(arguments or {})
    source = sys.modules[module]
    about = (source.__doc__ or module).split("\n", 1)[0].partition(": `python -m")[0].removesuffix(".")
    name = source.__spec__.name if source.__spec__ else module
    problem = Program(
        name=name.removeprefix("problems."),
        about=f"{about}.",
        settings=Settings(**{"method": Options(), "solver": Options(), **settings}, arguments=known),
        quick=quick,
        run=run,
        positional=positional,
    )
    if module == "__main__":
        raise SystemExit(main(problem))
    return problem


def main(program: Program, argv: Sequence[str] | None = None) -> int:
    """Run a problem from the command line; return the exit code."""
    arguments = _parser(program).parse_args(argv)
    try:
        changes = {**(program.quick if arguments.quick else {}), **parse(arguments.set)}
        if program.positional and arguments.positional:
            changes[program.positional] = arguments.positional
        settings = program.settings.changed(changes)
        with Progress() if not arguments.json else _silent() as progress:
            report = program.run(settings, progress)
    except NosnocError as error:
        print(f"problems.{program.name}: {error}", file=sys.stderr)
        return 2
    folder = arguments.figures or (None if arguments.json else FIGURES)
    written = _draw(report, folder)
    if arguments.json:
        results = {"problem": program.name.rpartition(".")[2], **report.results, "figures": list(map(str, written))}
        print(json.dumps(jsonable(results)))
    else:
        console = Console(highlight=False, soft_wrap=True)
        console.width = max(console.width, WIDTH)
        report.show(console)
        for path in written:
            console.print(f"figure: {path}")
    return 0 if report.success else 1


def simulated(
    simulate: Callable[..., ns.Trajectory],
    against: Callable[[ns.Trajectory, Mapping[str, Any]], Mapping[str, Any]],
    right: Callable[[Mapping[str, Any]], bool] = lambda errors: True,
    figures: Mapping[str, Drawing] | None = None,
) -> Run:
    """Return the run of a problem that simulates and compares.

    Parameters
    ----------
    simulate : function (**arguments, method, solver, callback) -> Trajectory
        Without `solver` where the problem has none to set; `arguments` are those of the settings.
    against : function (trajectory, arguments) -> mapping
        Errors and references of the trajectory; "errors" of the results.
    right : function (errors) -> bool
        Part of the success.
    figures : mapping
        Functions (trajectory, arguments) -> Figure by file name; by default everything over time.
    """

    def run(settings: Settings, progress: Progress) -> Report:
        meter, solver = Meter(progress), settings.solver
        if "steps" in settings.arguments:
            progress.expect(steps=settings.arguments["steps"])
        solved_by = {} if type(solver) is Options else {"solver": solver}
        trajectory = simulate(**settings.arguments, method=settings.method, **solved_by, callback=meter)
        errors = against(trajectory, settings.arguments)
        return Report(
            results={**meter.results(trajectory), "errors": errors},
            success=trajectory.success and right(errors),
            show=lambda console: tell(console, trajectory, errors),
            figures=_drawings(simulate, trajectory, settings.arguments, figures),
        )

    return run


def optimised(
    build: Callable[..., ns.OCP],
    against: Callable[[ns.Solution, Mapping[str, Any]], Mapping[str, Any]],
    guess: Callable[[], Any] | None = None,
    figures: Mapping[str, Drawing] | None = None,
) -> Run:
    """Return the run of a problem that solves an OCP and compares; its "reference" is what `against` returns.

    Parameters as in `simulated`; `guess` returns that of `ns.solve`.
    """

    def run(settings: Settings, progress: Progress) -> Report:
        ocp = build(**settings.arguments)
        solver = None if type(settings.solver) is Options else settings.solver
        start = None if guess is None else guess()
        solution = ns.solve(ocp, settings.method, solver, guess=start, callback=progress)
        known = against(solution, settings.arguments)
        certified = None if solution.certificate is None else solution.certificate.to_dict()
        return Report(
            results={**solution.to_dict(), "certificate": certified, "reference": known},
            success=solution.success,
            show=lambda console: tell(console, solution, known),
            figures=_drawings(build, solution, settings.arguments, figures),
        )

    return run


def _drawings(
    of: Callable[..., Any], result: ns.Trajectory, arguments: Mapping[str, Any], figures: Mapping[str, Drawing] | None
) -> dict[str, Callable[[Path], Any]]:
    """Return functions of a path; by default one figure with the name of the module, everything over time."""
    spec = sys.modules[of.__module__].__spec__
    stem = (spec.name if spec else of.__module__).rpartition(".")[2]
    named = figures or {f"{stem}.png": lambda trajectory, _: ns.plot(trajectory)}
    return {name: _to_file(partial(draw, result, arguments)) for name, draw in named.items()}


def _to_file(draw: Callable[[], Any]) -> Callable[[Path], Any]:
    """Return a function of a path from one that returns a figure."""
    return lambda path: draw().savefig(path, dpi=150)


def tell(console: Console, trajectory: ns.Trajectory, known: Mapping[str, Any]) -> None:
    """Print the summary of a trajectory or a solution, and the reference values."""
    console.print(trajectory.summary(), markup=False)
    console.print("errors and references:")
    for name, value in known.items():
        console.print(f"  {name.replace('_', ' ')}: {_short(value)}", markup=False)


def _short(value: Any) -> str:
    """Return numbers with nine digits, also those in sequences and mappings."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_short(one)}" for name, one in value.items())
    if isinstance(value, (list, tuple)) or callable(getattr(value, "tolist", None)):
        return ", ".join(map(_short, value)) if np.ndim(value) or isinstance(value, (list, tuple)) else f"{value:.9g}"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def picked(row: Any, *names: str) -> dict[str, Any]:
    """Return the fields with these names, as a row of a table."""
    return {name: getattr(row, name) for name in names}


def tabled(
    results: Mapping[str, Any],
    success: bool,
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    figures: Mapping[str, Callable[[], Any]] | None = None,
    said: Sequence[str] = (),
) -> Report:
    """Return a report that shows rows of values by name.

    Parameters
    ----------
    results, success
        As of `Report`; what a benchmark has none of (objective, events ...) is added as None.
    tables : mapping
        Rows by title; all rows of a table have the same keys.
    figures : mapping
        Functions that return a figure, by file name.
    said : sequence of str
        Lines below the tables.
    """

    def show(console: Console) -> None:
        for title, rows in tables.items():
            if rows:
                console.print(listing(rows, title))
        for line in said:
            console.print(line, markup=False)

    return Report(
        results={**dict.fromkeys(NUMBERS), "status": _status(success), **results},
        success=success,
        show=show,
        figures={name: _to_file(draw) for name, draw in (figures or {}).items()},
    )


def listing(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> Table:
    """Return a table of rows with the same keys."""
    rich_table = table(*(rows[0] if rows else ()), title=title)
    for row in rows:
        rich_table.add_row(*(escape(_cell(value)) for value in row.values()))
    return rich_table


def _status(success: bool) -> str:
    return (ns.Status.SOLVED if success else ns.Status.STEP_FAILED).value


def _cell(value: Any) -> str:
    """Return a value as a cell of a table: three digits of numbers, and shortened texts."""
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "-"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple, np.ndarray)):
        return ", ".join(map(_cell, value))
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


def run_by_name(name: str, argv: Sequence[str]) -> int:
    """Run a problem or benchmark by name as `python -m` does, but in this process; return the exit code."""
    here = importlib.util.find_spec(f"problems.{name}") is not None
    module = importlib.import_module(f"problems.{name}" if here else f"problems.benchmarks.{name}")
    return main(module.PROGRAM, argv)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    return [f"| {' | '.join(map(str, line))} |" for line in (columns, ["---"] * len(columns), *rows)]


def table(*columns: str, title: str | None = None) -> Table:
    """Return an empty table that, unlike rich's own, prints units in brackets."""
    title = None if title is None else escape(title)
    rich_table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for i, column in enumerate(columns):
        rich_table.add_column(escape(column), justify="right" if i else "left", no_wrap=True)
    return rich_table


def _silent() -> Progress:
    return Progress(console=Console(quiet=True, force_terminal=False, file=sys.stderr))


def _draw(report: Report, folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, draw in report.figures.items():
        draw(folder / name)
        paths.append(folder / name)
    return paths


def _keys_text(settings: Settings) -> str:
    """Return the keys of --set with their defaults, for the help; without options and mappings."""
    texts = (
        name if isinstance(value, (Options, Mapping)) else f"{name}={_written(value)}"
        for name, value in settings.defaults.items()
    )
    return f"Keys of --set with their defaults: {', '.join(texts)}.".replace("%", "%%")


def _written(value: Any) -> str:
    """Return a value as it is typed after `--set key=`."""
    if isinstance(value, (bool, type(None))):
        return str(value).lower()
    if isinstance(value, (tuple, list)) and all(isinstance(part, (int, float, str)) for part in value):
        return ",".join(map(_written, value[:MOST])) + (",..." if len(value) > MOST else "")
    if callable(getattr(value, "tolist", None)) or not isinstance(value, (int, float, str)):
        return getattr(value, "name", type(value).__name__)
    return str(value)


def _parser(program: Program) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m problems.{program.name}", description=program.about, epilog=_keys_text(program.settings)
    )
    if program.positional:
        parser.add_argument("positional", nargs="?", metavar=program.positional)
    parser.add_argument("--json", action="store_true", help="last line of the output: one JSON object with the results")
    parser.add_argument("--quick", action="store_true", help="a smaller version, which takes seconds")
    parser.add_argument("--set", action="extend", nargs="+", default=[], metavar="KEY=VALUE", help="change settings")
    parser.add_argument(
        "--figures", type=Path, metavar="DIR", help=f"folder for figures; default ./{FIGURES}, with --json none"
    )
    return parser
