"""One experiment in a process of its own: run the problem, store its results and its figures."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from nosnoc_py.progress import Progress
from nosnoc_py.solution.trajectory import jsonable
from problems.runner import Program, Report


def program_of(module: str) -> Program:
    """Return the program of a problem."""
    program: Program = import_module(f"problems.{module}").PROGRAM
    return program


def run(module: str, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Run a problem with some settings changed.

    Returns
    -------
    row, files : dict
        The row has "status", "success", "seconds" [s], "results" (what `--json` prints) and "drawing", what
        went wrong with the figures; the files are the figures by ".NAME".
    """
    os.environ.setdefault("MPLBACKEND", "Agg")
    program = program_of(module)
    chosen = program.settings.changed(tuples(settings))
    started = time.monotonic()
    with Progress(console=Console(quiet=True, force_terminal=False, file=sys.stderr)) as progress:
        report = program.run(chosen, progress)
    seconds = time.monotonic() - started
    files, wrong = drawn(report)
    results = jsonable(dict(report.results))
    row = {"status": str(results.get("status", "done")), "success": bool(report.success), "seconds": seconds}
    return {**row, "results": results, "drawing": wrong}, files


def drawn(report: Report) -> tuple[dict[str, bytes], str]:
    """Return the figures of a report, and the errors of drawing: results do not depend on figures."""
    files, wrong = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for name, draw in report.figures.items():
            path = Path(folder) / name
            try:
                draw(path)
                files[f".{name}"] = path.read_bytes()
            except Exception as error:
                wrong.append(f"{name}: {type(error).__name__}: {error}")
    return files, "; ".join(wrong)


def tuples(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with tuples in place of lists, since JSON only has lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
