"""Closed loops of model predictive control, measured sample by sample: `python -m problems.benchmarks.closed_loops`.

Every loop of `problems.loops` runs under noise and kicks with controllers by name: "realtime" is `ns.MPC` with one
period for each control and one for each preparation, "unlimited" the same without deadlines. A row is one run:
samples, those without a solved plan (failures), sources of the controls, processor time of the feedback (from the
state to the control) and of the preparation, samples whose feedback took longer than the period, impacts, and the
stage cost along the motion of the plant. The first sample, which builds functions and solvers, is in none of the
times. A second table has medians over the seeds.

Failures, late samples and a loop that ends early are results: the exit code is 0 if every run has a row and reached
its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks.orders import check_names
from problems.loops import LOOPS
from problems.loops.common import Loop, closed
from problems.runner import Report, picked, program, tabled
from problems.settings import Settings

SOLVED = "solved"  # source of a control that is the first one of a solved plan
COUNTS = ("samples", "failures", "late", "impacts")
TIMES = ("p50", "p90", "p99", "worst", "preparation_p50", "preparation_p99")


class TimedMPC(ns.MPC):
    """MPC that records the processor time of every feedback and every preparation [s]."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.feedback_seconds: list[float] = []
        self.preparation_seconds: list[float] = []

    def step(self, *arguments: Any, **options: Any) -> np.ndarray:
        """Return the control, as `ns.MPC.step`."""
        began = time.process_time()
        try:
            return super().step(*arguments, **options)
        finally:
            self.feedback_seconds.append(time.process_time() - began)

    def prepare(self, *arguments: Any, **options: Any) -> None:
        """Prepare the next sample, as `ns.MPC.prepare`."""
        began = time.process_time()
        try:
            super().prepare(*arguments, **options)
        finally:
            self.preparation_seconds.append(time.process_time() - began)


def realtime(loop: Loop) -> TimedMPC:
    """Return the controller with one period for each control and each preparation."""
    return TimedMPC(loop.ocp, loop.method, period=loop.period, deadline=loop.period, preparation=loop.period)


def unlimited(loop: Loop) -> TimedMPC:
    """Return the controller without deadlines."""
    return TimedMPC(loop.ocp, loop.method, period=loop.period)


CONTROLLERS: Mapping[str, Callable[[Loop], TimedMPC]] = {"realtime": realtime, "unlimited": unlimited}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run of a loop.

    Parameters
    ----------
    loop, controller : str
    seed : int
    samples : int
        Samples that were completed.
    failures : int
        Samples whose control does not belong to a plan solved for the measured state.
    sources : str
        Numbers of samples by source of the control.
    p50, p90, p99, worst : float
        Processor time of the feedback [ms].
    preparation_p50, preparation_p99 : float
        Processor time of the preparation [ms].
    late : int
        Samples whose feedback took more processor time than the period.
    impacts : int
    cost : float
        Stage cost over the completed samples.
    status : str
        "solved" if the loop reached its end.
    message : str
        Reason if it did not.
    """

    loop: str
    controller: str
    seed: int
    samples: int = 0
    failures: int = 0
    sources: str = ""
    p50: float = np.nan
    p90: float = np.nan
    p99: float = np.nan
    worst: float = np.nan
    preparation_p50: float = np.nan
    preparation_p99: float = np.nan
    late: int = 0
    impacts: int = 0
    cost: float = np.nan
    status: str = ""
    message: str = ""


def measured(name: str, controller: str, seed: int, samples: int, kick: float | None = None) -> Row:
    """Run one loop and return its row; an error is a row, too."""
    try:
        loop = LOOPS[name]()
        mpc = CONTROLLERS[controller](loop)
        log = closed(loop, mpc, samples=samples, seed=seed, kick=kick)
    except Exception as error:  # the other loops have to run in any case
        return Row(
            loop=name, controller=controller, seed=seed, status=ns.Status.CONTROLLER_FAILED.value,
            message=f"{type(error).__name__}: {error}",
        )  # fmt: skip
    feedback, preparation = mpc.feedback_seconds[1 : len(log.u)], mpc.preparation_seconds[1:]
    return Row(
        loop=name, controller=controller, seed=seed, samples=len(log.u),
        failures=sum(source != SOLVED for source in log.sources),
        sources=", ".join(f"{count} {source}" for source, count in log.counts.items()),
        **dict(zip(("p50", "p90", "p99", "worst"), _milliseconds(feedback, (50, 90, 99, 100)), strict=True)),
        **dict(zip(("preparation_p50", "preparation_p99"), _milliseconds(preparation, (50, 99)), strict=True)),
        late=sum(seconds > loop.period for seconds in feedback),
        impacts=sum(event.kind == "impact" for event in log.events),
        cost=log.cost if len(log.u) else np.nan, status=log.status.value, message=log.message,
    )  # fmt: skip


def _milliseconds(seconds: Sequence[float], shares: Sequence[float]) -> list[float]:
    return [float(1e3 * value) for value in np.percentile(seconds or [np.nan], shares)]


def experiment(
    *,
    loops: Sequence[str] = (),
    controllers: Sequence[str] = ("realtime", "unlimited"),
    seeds: int = 3,
    samples: int = 60,
    kick: float = -1.0,
    callback: Callable[[Any], Any] | None = None,
) -> Iterator[Row]:
    """Yield the rows of all runs.

    Parameters
    ----------
    loops : tuple of str
        Names of `problems.loops.LOOPS`; by default all.
    controllers : tuple of str
    seeds, samples : int
    kick : float
        Size of the kicks, in the unit of their state; negative: that of each loop, 0: none.

    Raises
    ------
    OptionError
        For an unknown name.
    """
    check_names(loops=(loops, LOOPS), controllers=(controllers, CONTROLLERS))
    for name in loops or LOOPS:
        for seed in range(seeds):
            for controller in controllers:
                row = measured(name, controller, seed, samples, None if kick < 0.0 else kick)
                yield row
                if callback is not None:
                    callback(f"{name}, {controller}, seed {seed}: {row.samples} samples, {row.failures} failures")


def medians(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one line for every loop and controller: medians over the seeds, and sums of failures and late samples."""
    lines = []
    for name, controller in dict.fromkeys((row.loop, row.controller) for row in rows):
        of = [row for row in rows if (row.loop, row.controller) == (name, controller)]
        ended = [row for row in of if row.status == ns.Status.SOLVED.value]
        middle = {key: median([getattr(row, key) for row in of]) for key in ("p50", "p90", "p99", "worst")}
        lines.append(
            {
                "loop": name, "controller": controller, "runs": len(of), "ended": len(ended),
                "samples": sum(row.samples for row in of), "failures": sum(row.failures for row in of),
                "late": sum(row.late for row in of), **middle,
                "preparation_p50": median([row.preparation_p50 for row in of]),
                # Of whole loops only: the cost of one that ended early is a sum over fewer samples.
                "cost": median([row.cost for row in ended]) if ended else np.nan,
            }
        )  # fmt: skip
    return lines


def run(settings: Settings, progress: Progress) -> Report:
    """Run the loops and report."""
    started = time.monotonic()
    rows = list(experiment(**settings.arguments, callback=progress))
    summary, columns = medians(rows), ("loop", "controller", "seed")
    return tabled(
        {"summary": summary, "rows": [vars(row) for row in rows], "wall_seconds": time.monotonic() - started},
        all(row.status == ns.Status.SOLVED.value for row in rows),
        {
            "runs": [picked(row, *columns, *COUNTS, "cost", "sources", "status") for row in rows],
            "processor time of feedback and preparation [ms]": [picked(row, *columns, *TIMES) for row in rows],
            "medians over the seeds; times [ms]": summary,
        },
        said=[f"{row.loop}, {row.controller}, seed {row.seed}: {row.message}" for row in rows if row.message],
    )


PROGRAM = program(__name__, run, experiment, quick={"loops": ("cart_pole", "paddle"), "seeds": 1, "samples": 4})
