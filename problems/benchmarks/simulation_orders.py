"""Orders of all simulators: `python -m problems.benchmarks.simulation_orders`.

The error of the state at the end over the number of steps, for finite elements with Radau IIA and Gauss-Legendre, the
same with fixed steps, time-stepping, and, as a line, event-driven simulation: on the two balls with a spring (impacts)
and on the oscillator that turns around at a circle (a switch). The spring is softer than in the paper, so that methods
of first order show theirs on these grids, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import oscillator, two_balls_spring
from nosnoc_py.progress import Progress
from problems.benchmarks.orders import FAMILIES, Convergence, figure_of, final_errors, nominal, rows_of
from problems.runner import Meter, Report, program, tabled
from problems.settings import Settings
from tests.references.two_balls_spring import exact as exact_balls

Array = NDArray[np.float64]

SOFT = 100.0  # [N/m]
STEPPING = {"moreau_jean": "Moreau-Jean", "stewart_trinkle": "Stewart-Trinkle"}
FIXED_STAGES = 2
FINER = 16
EVENT_DRIVEN = ns.EventDriven(rtol=1e-13, atol=1e-14)
QUICK = {"stages": (2, 3), "contact_steps": (100, 141, 200, 283), "switch_steps": (27, 38, 49), "fixed_steps": (27,)}


@dataclass(frozen=True, eq=False, kw_only=True)
class Example:
    """Motion with its exact end, and the range of errors (floor, ceiling) for fits of the order."""

    title: str
    system: Any
    method: ns.FESD
    start: tuple[float, ...]
    duration: float
    end: Array
    units: str
    clean: tuple[float, float]

    def error(self, trajectory: ns.Trajectory) -> float:
        """Return the error of the state at the end; NaN if it was not reached."""
        return float(np.abs(trajectory.final_state - self.end).max()) if trajectory.success else np.nan


def two_balls(stiffness: float = two_balls_spring.PAPER.stiffness) -> Example:
    """Return the two balls with a spring [N/m], by default that of the paper, for one second; impacts up to 4 m/s."""
    start = (1.0, 2.0, 0.0, 0.0)
    constants = two_balls_spring.Constants(stiffness=stiffness)
    return Example(
        title=f"two balls, spring of {stiffness:g} N/m (impacts)",
        system=two_balls_spring.build(stiffness),
        method=ns.FESDJ(finite_elements=2, error_tolerance=None),
        start=start,
        duration=1.0,
        end=exact_balls(1.0, start[:2], start[2:], constants)([1.0])[0],
        units="m, m/s",
        clean=(1e-12, 0.4),
    )


def circle() -> Example:
    """Return the oscillator, until pi / 2 s."""
    duration = float(np.pi / 2.0)
    return Example(
        title="oscillator (a switch)",
        system=oscillator.build(),
        method=ns.FESD(finite_elements=2, error_tolerance=None),
        start=oscillator.STANDARD.start,
        duration=duration,
        end=oscillator.exact([duration])[0],
        units="-",
        clean=(1e-11, 0.5),
    )


def by_elements(example: Example, steps: int, callback: Any = None, **options: Any) -> tuple[ns.Trajectory, int]:
    """Simulate by finite elements; also return how many steps Newton's method did not do alone."""
    meter = Meter(callback or (lambda state: None))
    trajectory = ns.simulate(
        example.system,
        x0=example.start,
        duration=example.duration,
        steps=steps,
        method=example.method.replace(**options),
        callback=meter,
    )
    return trajectory, meter.homotopies


def curve_of(
    example: Example, scheme: str, stages: int, steps: Sequence[int], *, detect: bool = True, callback: Any = None
) -> Convergence:
    """Simulate by finite elements with every number of steps; without `detect` the steps are fixed, and MPCCs."""
    options = dict(scheme=scheme, rk_stages=stages, switch_detection=detect)
    runs = [by_elements(example, count, callback, **options) for count in steps]
    fixed_order = int(not isinstance(example.system, ns.CLS))
    return Convergence(
        label=f"{FAMILIES[scheme]} {stages}" + ("" if detect else ", fixed"),
        nominal=nominal(scheme, stages) if detect else fixed_order,
        steps=tuple(steps),
        errors=tuple(example.error(trajectory) for trajectory, _ in runs),
        clean=example.clean,
        must_solve=detect and nominal(scheme, stages) > 1,
        more={"fallbacks": sum(count for _, count in runs) if detect else 0},
    )


def stepping_of(example: Example, scheme: str, steps: Sequence[int]) -> Convergence:
    """Simulate by time-stepping with every number of steps."""
    method = ns.TimeStepping(tolerance=1e-10).replace(scheme=scheme)
    motion = dict[str, Any](x0=example.start, duration=example.duration, method=method)
    errors, _ = final_errors(steps, lambda count: ns.simulate(example.system, steps=count, **motion), example.end)
    return Convergence(label=STEPPING[scheme], nominal=1, steps=tuple(steps), errors=errors, clean=example.clean)


def panel_of(
    example: Example, stages: Sequence[int], steps: Sequence[int], fixed_steps: Sequence[int], progress: Progress
) -> list[Convergence]:
    """Return all methods on an example."""
    progress.describe(example.title)
    curves = [
        curve_of(example, scheme, count, _grids(example, scheme, count, steps), callback=progress)
        for scheme in FAMILIES
        for count in stages
    ]
    curves += [curve_of(example, scheme, FIXED_STAGES, fixed_steps, detect=False) for scheme in FAMILIES]
    if isinstance(example.system, ns.CLS):
        curves += [stepping_of(example, scheme, steps) for scheme in STEPPING]
    return curves


def rounding_of(example: Example) -> float:
    """Return the error of event-driven simulation."""
    return example.error(ns.simulate(example.system, x0=example.start, duration=example.duration, method=EVENT_DRIVEN))


def _grids(example: Example, scheme: str, stages: int, steps: Sequence[int]) -> tuple[int, ...]:
    """Return numbers of steps: more of them for implicit Euler, which on long steps damps the oscillator to rest."""
    damps = scheme == "radau_iia" and stages == 1 and not isinstance(example.system, ns.CLS)
    return tuple(FINER * count if damps else count for count in steps)


def experiment(
    stages: tuple[int, ...] = (1, 2, 3),
    contact_steps: tuple[int, ...] = (50, 71, 100, 141, 200, 283, 400, 566, 800, 1131),
    switch_steps: tuple[int, ...] = (27, 38, 49, 71, 104, 159, 236),
    fixed_steps: tuple[int, ...] = (27, 49, 104),
    *,
    progress: Progress,
) -> dict[Example, list[Convergence]]:
    """Return the curves of both examples.

    Parameters
    ----------
    stages : tuple of int
        RK stages of the finite elements with event detection.
    contact_steps, switch_steps : tuple of int
        Numbers of steps of the two balls and of the oscillator.
    fixed_steps : tuple of int
        Those with fixed steps, which are MPCCs: of the oscillator, and four times as many of the two balls.
    """
    longer = [4 * count for count in fixed_steps]
    soft, switch = two_balls(SOFT), circle()
    return {
        soft: panel_of(soft, stages, contact_steps, longer, progress),
        switch: panel_of(switch, stages, switch_steps, fixed_steps, progress),
    }


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment, and simulate the two balls once more for the numbers that all problems report."""
    meter = Meter(progress)
    trajectory, _ = by_elements(two_balls(), 200, meter, rk_stages=3)
    panels = experiment(**settings.arguments, progress=progress)
    curves = {example.title: each for example, each in panels.items()}
    success = trajectory.success and not any(one.failures for each in curves.values() for one in each if one.must_solve)
    rounding = {example.title: rounding_of(example) for example in panels}
    results = {
        "status": (ns.Status.SOLVED if success else ns.Status.STEP_FAILED).value,
        "orders": {title: {one.label: one.order for one in each} for title, each in curves.items()},
        "event_driven_errors": rounding,
        "curves": {title: [one.to_dict() for one in each] for title, each in curves.items()},
    }
    return tabled(
        {**meter.results(trajectory), **results},
        success,
        {title: rows_of(each) for title, each in curves.items()},
        {"simulation_orders.png": lambda: figure_of(curves)},
        [f"event-driven: {rounding}"],
    )


PROGRAM = program(__name__, run, experiment, quick=QUICK)
