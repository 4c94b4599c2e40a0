"""Orders of all simulators: `python -m problems.benchmarks.simulation_orders`.

The error of the state at the end over the number of steps, for finite elements with Radau IIA and Gauss-Legendre, the
same with fixed steps, time-stepping, and, as a line, event-driven simulation: on the two balls with a spring (impacts)
and on the oscillator that turns around at a circle (a switch). The spring is softer than in the paper, so that methods
of first order show theirs on these grids, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks import two_balls_order
from problems.benchmarks.orders import FAMILIES, Convergence, Example, figure_of, final_errors, nominal, rows_of
from problems.benchmarks.oscillator_order import circle
from problems.runner import Meter, Report, program, tabled
from problems.settings import Settings

SOFT = 100.0  # [N/m]
STEPPING = {"moreau_jean": "Moreau-Jean", "stewart_trinkle": "Stewart-Trinkle"}
FIXED_STAGES = 2
FINER = 16
EVENT_DRIVEN = ns.EventDriven(rtol=1e-13, atol=1e-14)
QUICK = {"stages": (2, 3), "contact_steps": (100, 141, 200, 283), "switch_steps": (27, 38, 49), "fixed_steps": (27,)}


def two_balls(stiffness: float = two_balls_order.STIFF) -> Example:
    """Return the two balls with a spring [N/m], with a range of errors for a soft one."""
    return replace(two_balls_order.example(stiffness), clean=(1e-12, 0.4))


def curve_of(
    example: Example, scheme: str, stages: int, steps: Sequence[int], *, detect: bool = True, callback: Any = None
) -> Convergence:
    """Simulate by finite elements with every number of steps; without `detect` the steps are fixed, and MPCCs."""
    meter = Meter(callback or (lambda state: None))  # counts steps that Newton's method did not do alone
    method = example.method.replace(scheme=scheme, rk_stages=stages, switch_detection=detect)
    fixed_order, must_solve = int(not isinstance(example.system, ns.CLS)), nominal(scheme, stages) > 1
    curve, _ = example.converge(method, steps, fixed_order=fixed_order, must_solve=must_solve, callback=meter)
    return replace(curve, more={"fallbacks": meter.homotopies if detect else 0})


def stepping_of(example: Example, scheme: str, steps: Sequence[int]) -> Convergence:
    """Simulate by time-stepping with every number of steps."""
    method = ns.TimeStepping(tolerance=1e-10).replace(scheme=scheme)
    errors, _ = final_errors(steps, lambda count: example.simulate(count, method=method), example.end)
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
    ((error,), _) = final_errors([1], lambda count: example.simulate(count, method=EVENT_DRIVEN), example.end)
    return error


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
    balls = two_balls()
    trajectory = balls.simulate(200, method=balls.method.replace(rk_stages=3), callback=meter)
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
