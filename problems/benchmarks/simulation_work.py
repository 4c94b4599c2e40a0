"""Work and precision: whole simulations by finite elements, and by an explicit Runge-Kutta method that stops at events.

The other side is `scipy.integrate.solve_ivp` with DOP853 and a terminal event, started again after every event as a
careful user would: right-hand sides of a few NumPy operations, no dense output. On both sides the time is that of the
whole simulation; of the finite elements with the trajectory, but without building the simulator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import bouncing_ball, oscillator
from nosnoc_py.progress import Progress
from problems.benchmarks.simulation_timing import geometric_mean
from tests.references.restarts import (
    BALL_END,
    GRAVITY,
    OSCILLATOR_END,
    RESTITUTION,
    ball_by_restarts,
    oscillator_by_restarts,
)

Array = NDArray[np.float64]
Simulate = Callable[[], Array | None]
DOP853, FESD = "DOP853", "FESD"
# Errors below this are rounding, and equal.
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Run:
    """One simulation: its method and setting, the error of the state at the end, and time per simulated second.

    Parameters
    ----------
    example : str
    method : str
        "DOP853" or "FESD".
    setting : float
        Relative tolerance, or number of steps.
    rk_stages, elements : int
        Of every step; 0 for DOP853.
    error : float
    milliseconds : float
        Per simulated second.
    """

    example: str
    method: str
    setting: float
    rk_stages: int = 0
    elements: int = 0
    error: float
    milliseconds: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Example:
    """A motion for both sides; `reference(tolerance)` gives the state at the end by DOP853."""

    name: str
    system: Any
    method: Any
    start: tuple[float, ...]
    duration: float
    exact: Array
    reference: Callable[[float], Array]


def examples() -> tuple[Example, ...]:
    """The oscillator and the bouncing ball."""
    return (
        Example(
            name="oscillator",
            system=oscillator.build(),
            method=ns.FESD(finite_elements=2),
            start=oscillator.STANDARD.start,
            duration=OSCILLATOR_END,
            exact=oscillator.exact([OSCILLATOR_END])[0],
            reference=oscillator_by_restarts,
        ),
        Example(
            name="bouncing ball",
            system=bouncing_ball.build(RESTITUTION, GRAVITY),
            method=ns.FESDJ(finite_elements=2),
            start=(1.0, 0.0),
            duration=BALL_END,
            exact=bouncing_ball.exact([BALL_END], RESTITUTION)[0],
            reference=ball_by_restarts,
        ),
    )


def ladder(
    example: Example,
    tolerances: Sequence[float],
    stages: Sequence[int],
    steps: Sequence[int],
    elements: Sequence[int],
    repeats: int,
    progress: Progress,
) -> list[Run]:
    """All runs of both sides, in turns; of every run the best time counts.

    Left out are runs of the finite elements in which a step failed: too coarse, or with more events than elements.
    """
    progress.describe(f"{example.name}: work and precision")
    kept = [_reference(example, tolerance) for tolerance in tolerances]
    kept += [_elements(example, s, count, e) for s in stages for count in steps for e in elements]
    ends = [simulate() for _, simulate in kept]  # this also builds what is built at the first call
    runs = [(*pair, end) for pair, end in zip(kept, ends, strict=True) if end is not None]
    best = np.min([[_seconds(simulate) for _, simulate, _ in runs] for _ in range(repeats)], axis=0)
    return [
        Run(
            example=example.name,
            **setting,
            error=float(np.abs(end - example.exact).max()),
            milliseconds=1e3 * float(seconds) / example.duration,
        )
        for (setting, _, end), seconds in zip(runs, best, strict=True)
    ]


def _reference(example: Example, tolerance: float) -> tuple[dict[str, Any], Simulate]:
    return {"method": DOP853, "setting": tolerance}, lambda: example.reference(tolerance)


def _elements(example: Example, stages: int, steps: int, elements: int) -> tuple[dict[str, Any], Simulate]:
    method = example.method.replace(rk_stages=stages, finite_elements=elements)
    alone = ns.ActiveSetNewton(fallback=False)
    simulator = ns.Simulator(example.system, method, step=example.duration / steps, solver=alone)

    def simulate() -> Array | None:
        trajectory = simulator.run(example.start, steps=steps)
        return np.asarray(trajectory.final_state) if trajectory.success else None

    return {"method": FESD, "setting": steps, "rk_stages": stages, "elements": elements}, simulate


def front(runs: Sequence[Run]) -> list[Run]:
    """Those runs than which no other one is both cheaper and more accurate, the cheapest first."""
    found: list[Run] = []
    for run in sorted(runs, key=lambda run: run.milliseconds):
        if not found or run.error < found[-1].error:
            found.append(run)
    return found


def _seconds(simulate: Simulate) -> float:
    started = time.thread_time()
    simulate()
    return time.thread_time() - started


def ratios(runs: Sequence[Run]) -> list[tuple[Run, Run | None]]:
    """For every run of DOP853 the cheapest one of FESD whose error is not larger; None where there is none."""
    by_elements = [run for run in runs if run.method == FESD]
    found: list[tuple[Run, Run | None]] = []
    for other in (run for run in runs if run.method == DOP853):
        fit = [run for run in by_elements if run.error <= max(other.error, ROUNDING)]
        found.append((other, min(fit, key=lambda run: run.milliseconds, default=None)))
    return found


def mean_ratio(runs: Sequence[Run]) -> float | None:
    """Time of FESD over that of DOP853 at equal error, geometric mean over the tolerances."""
    known = [mine.milliseconds / other.milliseconds for other, mine in ratios(runs) if mine is not None]
    return geometric_mean(known) if known else None


def largest_ratio(runs: Sequence[Run]) -> float | None:
    """The worst of them."""
    return max(
        (mine.milliseconds / other.milliseconds for other, mine in ratios(runs) if mine is not None), default=None
    )
