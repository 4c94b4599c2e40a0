"""Accuracy at equal time in simulation: `python -m problems.benchmarks.simulation_accuracy`.

Five scenes with contacts (`problems.benchmarks.accuracy.scenes`), simulated by this library (event-driven, FESD-J,
time-stepping), by MuJoCo (`pip install "nosnoc_py[bench]"`) and by Drake (`pip install drake`; it is not an extra,
as its wheels exist for Linux and macOS only and bring a commercial solver along). What is not installed is left out.

The error is the largest one of the measured coordinates at eight times, against a closed form or, for the quadruped,
against an event-driven simulation at 1e-13. Every program runs with many settings, also of its contacts, and the best
ones count: for an error E the least processor time of a run with an error below E. All run in one process on one thread
(matrices are small; `OMP_NUM_THREADS=1` makes sure), and of several runs the best one counts. The time of the set-up
(model, compilation) is separate.

`--set page=FILE` writes the tables for the documentation; `--set kept=FILE` stores all runs, so that a second call
continues where the first one was stopped.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks.accuracy import drake_peer, mujoco_peer, ours
from problems.benchmarks.accuracy.scene import Candidate, Scene
from problems.benchmarks.accuracy.scenes import SCENES
from problems.benchmarks.orders import check_names
from problems.figures import Curve, Panel, chart
from problems.runner import Report, markdown, program, tabled
from problems.settings import Settings

PEERS = ("ours", "mujoco", "drake")
PROGRAMS = (
    ours.EVENT_DRIVEN,
    ours.ELEMENTS,
    ours.STEPPING,
    mujoco_peer.PROGRAM,
    drake_peer.PROGRAM,
    drake_peer.CONTINUOUS,
    drake_peer.DISCRETE,
)
TARGETS = (1e-2, 1e-3, 1e-4, 1e-6)
ROUNDING = 1e-16  # smaller errors are drawn at this value
ENOUGH = 0.2  # time limit in seconds for the repetitions of one candidate
COMMAND = "python -m problems.benchmarks.simulation_accuracy"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Result of a run: processor seconds of the set-up and of the simulation, and the error [m or rad]."""

    scene: str
    peer: str
    program: str
    settings: str
    setup: float
    seconds: float
    error: float


def experiment(
    *,
    scenes: tuple[str, ...] = tuple(SCENES),
    programs: tuple[str, ...] = PEERS,
    time_limit: float = 1.0,
    repeats: int = 3,
    coarse: bool = False,
    kept: str = "",
    page: str = "",
    progress: Progress,
) -> list[Measured]:
    """Measure everything.

    Parameters
    ----------
    scenes : tuple of str
    programs : tuple of str
        Names out of "ours", "mujoco" and "drake".
    time_limit : float
        Seconds: finer settings are left out where they would take longer (event-driven simulation never).
    repeats : int
        Runs of a candidate, at most; the best one counts.
    coarse : bool
        Two settings or so of every program.
    kept : str
        A JSON file for the runs; scenes of programs that are in it are not measured again.
    page : str
        A file for the tables.

    Raises
    ------
    OptionError
        For an unknown scene or program.
    """
    check_names(scene=(scenes, SCENES), program=(programs, PEERS))
    file = Path(kept) if kept else None
    known = [Measured(**row) for row in json.loads(file.read_text())] if file and file.exists() else []
    rows = list(known)
    for name, peer in product(scenes, programs):
        if any((row.scene, row.peer) == (name, peer) for row in known):
            continue
        progress.describe(f"{name}, {peer}")
        rows += _measured(SCENES[name](), peer, coarse, time_limit, repeats)
        if file:
            file.write_text(json.dumps([vars(row) for row in rows]))
    return [row for row in rows if row.scene in scenes and row.peer in programs]


def _measured(scene: Scene, peer: str, coarse: bool, time_limit: float, repeats: int) -> list[Measured]:
    """Return all runs of a scene; settings finer than the time limit allows are left out."""
    rows, last = [], dict[tuple[str, str], tuple[float, float]]()
    for candidate in _candidates(scene, peer, coarse, time_limit):
        key = (candidate.program, candidate.series)
        grain, seconds = last.get(key, (1.0, 0.0))
        if candidate.grain and seconds * candidate.grain / grain > time_limit:
            continue
        row = measure(scene, peer, candidate, repeats)
        last[key] = (candidate.grain, row.seconds)
        rows.append(row)
    return rows


def measure(scene: Scene, peer: str, candidate: Candidate, repeats: int) -> Measured:
    """Prepare, simulate at least twice, and return the best time; one that fails has an infinite error."""
    about = {"scene": scene.name, "peer": peer, "program": candidate.program, "settings": candidate.settings}
    began = time.process_time()
    try:
        run = candidate.prepare()
        prepared = time.process_time()
        positions = run()
        times = [time.process_time() - prepared]
    except (RuntimeError, ValueError, ns.NosnocError):  # Drake: step too small, or too slow
        return Measured(**about, setup=0.0, seconds=time.process_time() - began, error=np.inf)
    while len(times) < repeats and sum(times[1:]) < ENOUGH:  # the first run may compile
        started = time.process_time()
        positions = run()
        times.append(time.process_time() - started)
    setup, best = prepared - began + times[0] - min(times), min(times)
    return Measured(**about, setup=setup, seconds=best, error=scene.error(positions))


def _candidates(scene: Scene, peer: str, coarse: bool, limit: float) -> Iterator[Candidate]:
    if peer == "ours":
        yield from ours.candidates(scene, coarse)
    elif peer == "mujoco" and mujoco_peer.available():
        yield from mujoco_peer.candidates(scene, coarse)
    elif peer == "drake" and drake_peer.available():
        yield from drake_peer.candidates(scene, coarse, limit)


def envelope(rows: Sequence[Measured], scene: str, name: str) -> list[Measured]:
    """Return the runs of a program that no faster run beats, by increasing time."""
    best, front = np.inf, []
    for row in sorted((r for r in rows if (r.scene, r.program) == (scene, name)), key=lambda r: (r.seconds, r.error)):
        if row.error < best:
            best = row.error
            front.append(row)
    return front


def least_time(rows: Sequence[Measured], scene: str, name: str, target: float) -> float | None:
    """Return the least time [s] of a program for an error below the target, or None."""
    return next((row.seconds for row in envelope(rows, scene, name) if row.error <= target), None)


def table_of(rows: Sequence[Measured], scene: str) -> list[dict[str, Any]]:
    """Return least milliseconds for every target, with the least error, its settings and the longest set-up."""
    table = []
    for name in PROGRAMS:
        front = envelope(rows, scene, name)
        if not any((row.scene, row.program) == (scene, name) for row in rows):
            continue
        times = {target: least_time(rows, scene, name, target) for target in TARGETS}
        setups = [row.setup for row in rows if (row.scene, row.program) == (scene, name) and np.isfinite(row.error)]
        table.append(
            {
                "program": name,
                **{f"{target:g}": None if t is None else 1e3 * t for target, t in times.items()},
                "least error": front[-1].error if front else None,
                "with": front[-1].settings if front else "",
                "set-up": 1e3 * max(setups) if setups else None,
            }
        )
    return table


def versions() -> dict[str, str]:
    """Return the versions of all programs."""
    return {
        "Python": platform.python_version(),
        "nosnoc_py": ns.__version__,
        "casadi": ca.__version__,
        "numpy": np.__version__,
        "mujoco": mujoco_peer.available() or "not installed",
        "drake": drake_peer.available() or "not installed",
    }


def run(settings: Settings, progress: Progress) -> Report:
    """Measure, and report; times do not matter, but event-driven simulation must be right everywhere."""
    started, arguments = time.monotonic(), settings.arguments
    rows = experiment(**arguments, progress=progress)
    titles = {name: SCENES[name]().title for name in arguments["scenes"]}
    tables = {f"{title} [ms]": table_of(rows, name) for name, title in titles.items()}
    if arguments["page"]:
        Path(arguments["page"]).write_text(page_of(rows, titles), encoding="utf-8")
    own = [row.error for row in rows if row.program == ours.EVENT_DRIVEN]
    results = {
        "rows": [vars(row) for row in rows],
        "versions": versions(),
        "seed": None,  # no random numbers
        "wall_seconds": time.monotonic() - started,
    }
    text = ", ".join(f"{name} {version}" for name, version in versions().items())
    return tabled(
        results,
        bool(np.isfinite(own).all()),
        tables,
        {"simulation_accuracy.png": lambda: figure_of(rows, titles)},
        [f"least processor time [ms] for an error; {text}; no random numbers"],
    )


def figure_of(rows: Sequence[Measured], titles: Mapping[str, str]) -> Any:
    """Return a figure of error over time, one panel per scene."""
    from nosnoc_py.plotting.sheets import COLOURS

    panels = []
    for scene, title in titles.items():
        curves = []
        for k, name in enumerate(PROGRAMS):
            front = [row for row in envelope(rows, scene, name) if np.isfinite(row.error)]
            style = {"color": COLOURS[k % len(COLOURS)], "marker": "os^Dv<>"[k], "ms": 4}
            errors = [max(row.error, ROUNDING) for row in front]
            label = name if scene == next(iter(titles)) else ""
            curves.append(Curve([1e3 * row.seconds for row in front], errors, label, style))
        panels.append(Panel(curves=curves, title=title, x="processor time [ms]", y="error [m, rad]", log="xy"))
    return chart(panels, 2)


def page_of(rows: Sequence[Measured], titles: Mapping[str, str]) -> str:
    """Return the tables for the documentation."""
    lines = [
        f"Written by `{COMMAND} --set page=docs/results/simulation_accuracy.md`. Least processor time in milliseconds "
        "for an error below the target; a dash is a target that is never reached. The set-up (model and compilation, "
        "once) is the longest of all settings.",
        "",
        ", ".join(f"{name} {version}" for name, version in versions().items()) + "; no random numbers.",
    ]
    for scene, title in titles.items():
        lines += ["", f"**{title[0].upper()}{title[1:]}**", ""]
        columns = [*(f"{target:g}" for target in TARGETS), "least error", "with", "set-up"]
        rows_shown = table_of(rows, scene)
        lines += markdown(["", *columns], ([row["program"], *(_cell(row[c]) for c in columns)] for row in rows_shown))
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "-" if value is None or not np.isfinite(value) else f"{value:.2g}" if value < 100.0 else f"{value:.0f}"


PROGRAM = program(
    __name__,
    run,
    experiment,
    quick={"scenes": ("ball", "slide"), "coarse": True, "repeats": 2, "time_limit": 2.0},
)
