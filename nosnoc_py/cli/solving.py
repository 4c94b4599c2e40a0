"""One run of a configuration, in this process: `solve` and `simulate`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer

from nosnoc_py.cli.commands import FAILURE, INTERRUPTED, SUCCESS
from nosnoc_py.cli.showing import draw, tell
from nosnoc_py.errors import OptionError
from nosnoc_py.progress import Progress
from nosnoc_py.status import Status
from nosnoc_py.sweep import config, grid
from nosnoc_py.sweep.config import Configuration
from nosnoc_py.sweep.execute import Result, execute


def work(
    path: Path,
    changes: Sequence[str],
    *,
    simulated: bool,
    output: Path | None,
    figures: Path | None,
    json: bool,
    quiet: bool,
) -> int:
    """Do what a configuration says, without its sweep; return the exit code.

    Raises
    ------
    OptionError
        If something in the configuration or in the changes does not fit, or a file could not be written; before
        anything is computed.
    """
    given = config.load(path)
    _check_verb(given, path, simulated)
    resolved = changed(given, changes)
    _check_output(output)
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
    if any((given.sweep.grid, given.sweep.zip, given.sweep.repeat)) and not quiet:
        typer.echo(f"{path}: without its sweep, which is for `nosnoc-py sweep {path}`", err=True)
    result = _executed(resolved, given, silent=json or quiet)
    return _ended(result, path, output, figures, json, quiet)


def changed(given: Configuration, changes: Sequence[str]) -> dict[str, Any]:
    """Return the one run of a configuration without its sweep, with `path=value` changes.

    Raises
    ------
    OptionError
        If a path leads nowhere, or a value does not fit.
    """
    content = given.model_dump(exclude={"sweep"}, exclude_unset=True)
    axes = {path: [value] for path, value in map(assignment, changes)}
    # a change is an axis with one value, so that both know the same paths and complain alike
    try:
        (run,) = grid.runs(config.configuration({**content, "sweep": {"grid": axes}}, given.path))
    except OptionError as error:
        message = str(error).removeprefix(f"{given.path}: ") if axes else str(error)  # it is not in the file
        raise OptionError(re.sub(r"^sweep(\.grid)?[.:] ?", "--set: ", message)) from None
    return run.resolved


def assignment(text: str) -> tuple[str, Any]:
    """Read `path=value`; the value is YAML, as in a configuration: numbers, true, null, [1, 2], words."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise OptionError(f"--set: expected path=value, e.g. solver.sigma_0=10, given {text!r}.")
    try:
        return path.strip(), YAML(typ="safe", pure=True).load(value)
    except YAMLError:
        raise OptionError(f"--set: {value!r} is not a value in YAML; quote texts with special characters.") from None


def _check_verb(given: Configuration, path: Path, simulated: bool) -> None:
    if simulated and given.simulate is None:
        raise OptionError(
            f"{path}: has no part simulate. To simulate a system, add simulate: {{x0: [...], duration: ...}}. To solve "
            f"an optimal control problem, run `nosnoc-py solve {path}`."
        )
    if not simulated and given.simulate is not None:
        raise OptionError(f"{path}: has a part simulate, so it is a simulation: run `nosnoc-py simulate {path}`.")


def _check_output(output: Path | None) -> None:
    """Refuse, before anything is computed, a file that could not be written."""
    if output is None:
        return
    if output.is_dir():
        raise OptionError(f"--output: expected a file such as {output / 'solution.nc'}, given the folder {output}.")
    output.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(output.parent, os.W_OK):
        raise OptionError(f"--output: the folder {output.parent} cannot be written.")


def _executed(resolved: Mapping[str, Any], given: Configuration, silent: bool) -> Result:
    simulate = resolved["simulate"] or {}
    shown = Progress(duration=simulate.get("duration"), steps=simulate.get("steps"))
    with nullcontext() if silent else shown as progress:
        return execute(resolved, folder=given.folder, trajectory=False, callback=progress)


def _ended(result: Result, path: Path, output: Path | None, figures: Path | None, json: bool, quiet: bool) -> int:
    """Save, draw and print a result; return the exit code."""
    solution = result.solution
    file = None if output is None else solution.save(output)
    drawn = [] if figures is None else draw(solution, figures, path.stem)
    tell(solution, row=result.row, file=file, figures=drawn, json=json, quiet=quiet)
    if solution.status is Status.INTERRUPTED:
        return INTERRUPTED
    return SUCCESS if solution.success else FAILURE
