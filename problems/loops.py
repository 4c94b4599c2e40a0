"""Report and film of problems with a controller and a plant in a closed loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.runner import Report, Run, tabled
from problems.settings import Settings


def looped(
    loop: Callable[..., ns.ClosedLoop], assess: Callable[[ns.ClosedLoop], tuple[Mapping[str, Any], bool]]
) -> Run:
    """Return the run of a problem whose `loop(method, **arguments)` returns a log; `assess` gives values, verdict."""

    def run(settings: Settings, progress: Progress) -> Report:
        log = loop(settings.method, **settings.arguments)
        values, good = assess(log)
        latency = {name: 1e3 * seconds for name, seconds in log.percentiles.items()}
        sources = log.counts
        return tabled(
            {
                "status": log.status.value, "samples": len(log.u), "sources": sources, "latency_ms": latency,
                "late": log.misses, "cost": log.cost, "final_state": log.x[-1],
                "impacts": sum(event.kind == "impact" for event in log.events), **values,
            },
            log.success and good,
            {"where the controls are from": [sources], "latency [ms]": [latency]},
            {"loop.png": lambda: ns.plot(log)},
            log.summary().splitlines(),
        )  # fmt: skip

    return run


def filmed(system: Any, log: ns.ClosedLoop, path: str | Path, p: Any = None) -> Path:
    """Write a film of the plant of a loop without disturbances, simulated again under the same controls."""
    motion = ns.simulate(
        system, x0=log.x[0], duration=float(log.t[-1]), u=np.asarray(log.u), p=p,
        method=ns.EventDriven(grazing="continue"),
    )  # fmt: skip
    return Path(ns.animate(system, motion, path))
