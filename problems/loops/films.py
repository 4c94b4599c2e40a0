"""Films of closed loops in slow motion, and figures of their latencies: `python -m problems.loops.films`.

`ns.MPC` with one period for each control and one for each preparation, under noise and kicks. A film shows the motion
of the log, with the source of the control of every sample; the figure beside it has the latencies of the same samples.
Latencies, and with them what a preparation finishes, are those of the machine: films of two runs may differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks.orders import check_names
from problems.loops import LOOPS
from problems.loops.common import Loop, closed, filmed
from problems.runner import Report, program, tabled
from problems.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Shot:
    """What is filmed of a loop.

    Parameters
    ----------
    samples : int
        Number of periods.
    speed : float
        Seconds of the motion per second of the film.
    states : sequence of str
        States of the figure.
    size : (2,)
        Width and height of the film [inches].
    """

    samples: int
    speed: float
    states: Sequence[str]
    size: tuple[float, float]


SHOTS: Mapping[str, Shot] = MappingProxyType(
    {
        "walls": Shot(samples=64, speed=0.2, states=("cart", "angle"), size=(4.4, 3.6)),
        "paddle": Shot(samples=40, speed=0.25, states=("paddle", "ball"), size=(3.0, 4.6)),
        "drone": Shot(samples=60, speed=0.2, states=("z", "z_load"), size=(4.2, 4.8)),
    }
)
LOOK: Mapping[str, Any] = {"frames_per_second": 20, "dots_per_inch": 80}


def controller(loop: Loop) -> ns.MPC:
    """Return the controller, with one period for each control and one for each preparation."""
    return ns.MPC(loop.ocp, loop.method, period=loop.period, deadline=loop.period, preparation=loop.period)


def experiment(
    *,
    names: Sequence[str] = (),
    output: str = "docs/images",
    samples: int = 0,
    seed: int = 0,
    callback: Callable[[Any], Any] | None = None,
) -> list[dict[str, object]]:
    """Make `realtime_<name>.gif` and `realtime_<name>.png` and return a row for each loop.

    Parameters
    ----------
    names : tuple of str
        Of `SHOTS`, by default all.
    output : str
        A folder.
    samples : int
        Number of periods; 0 for those of each film.
    seed : int
        Of the noise and the sides of the kicks.

    Raises
    ------
    OptionError
        For an unknown name.
    """
    check_names(names=(names, SHOTS))
    folder = Path(output)
    rows: list[dict[str, object]] = []
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or SHOTS:
        loop, shot = LOOPS[name](), SHOTS[name]
        log = closed(loop, controller(loop), samples=samples or shot.samples, seed=seed)
        path = filmed(loop.plant, log, folder / f"realtime_{name}.gif", speed=shot.speed, size=shot.size, **LOOK)
        ns.plot(log, shot.states, path=path.with_suffix(".png"))
        rows.append(
            {
                "film": name, "status": log.status.value, "samples": len(log.u), "late": log.misses,
                "impacts": sum(event.kind == "impact" for event in log.events),
                "sources": ", ".join(f"{count} {source}" for source, count in log.counts.items()),
                "kB": path.stat().st_size // 1000,
            }
        )  # fmt: skip
        if callback is not None:
            callback(f"{name}: {log.summary().splitlines()[0]}")
    return rows


def run(settings: Settings, progress: Progress) -> Report:
    """Make the films and report."""
    started = time.monotonic()
    rows = experiment(**settings.arguments, callback=progress)
    success = all(row["status"] == ns.Status.SOLVED.value for row in rows)
    return tabled({"rows": rows, "wall_seconds": time.monotonic() - started}, success, {"films": rows})


PROGRAM = program(__name__, run, experiment, quick={"names": ("walls",), "samples": 3})
