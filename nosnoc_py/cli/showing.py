"""A trajectory or a solution as text and as figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nosnoc_py.cli.commands import say
from nosnoc_py.errors import OptionError
from nosnoc_py.solution import Solution, Trajectory, load


def opened(path: Path) -> Trajectory:
    """Read a file of results.

    Raises
    ------
    OptionError
        If it does not exist.
    TranscriptionError
        If it is damaged, or of another version.
    """
    if not path.exists():
        raise OptionError(f"{path}: there is no such file; expected a result (.nc) or the output folder of a sweep.")
    return load(path)


def draw(trajectory: Trajectory, folder: Path, name: str) -> list[Path]:
    """Draw states, controls and forces over time, and the steps of the homotopy where there are some; return paths."""
    from nosnoc_py import plotting

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png"]
    plotting.plot(trajectory, path=paths[0])
    if isinstance(trajectory, Solution) and trajectory.log:
        paths.append(folder / f"{name}_homotopy.png")
        plotting.plot_homotopy(trajectory, path=paths[-1])
    return paths


def show_file(path: Path, figures: Path | None, *, json: bool) -> None:
    """Tell and draw a result."""
    trajectory = opened(path)
    drawn = draw(trajectory, figures or path.parent, path.stem) if figures or not json else []
    tell(trajectory, figures=drawn, json=json)


def tell(
    trajectory: Trajectory,
    *,
    row: Mapping[str, Any] | None = None,
    file: Path | None = None,
    figures: Sequence[Path] = (),
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Write a summary and the files that were made, or all of that as JSON; `row` is what its run says besides."""
    from nosnoc_py.sweep.execute import COLUMNS

    row = row or {}
    files = {"file": None if file is None else str(file), "figures": [str(path) for path in figures]}
    # the rest are the certificate and the user's measures
    measures = (f"{name}: {value}" for name, value in row.items() if name not in COLUMNS)
    made = [f"file: {file}"] * (file is not None) + [f"figure: {path}" for path in figures]
    text = "\n".join([trajectory.summary(), *measures, *made])
    say(json, {**row, **trajectory.to_dict(), **files}, text, quiet=quiet)
