"""Integration orders on the oscillator that reverses its rotation at the unit circle.

The error of the state at T = pi/2 s, in the maximum norm, against the exact motion, for Radau IIA and Gauss-Legendre
with several numbers of stages, written by Stewart's multipliers and by step functions. The switch does not reduce the
order, because FESD puts it on the grid, and both formulations give the same errors. With fixed steps
(`switch_detection` off: an ordinary Runge-Kutta method with the same multipliers) every scheme falls to order one.
Radau IIA with one stage damps the rotation so strongly that its order does not show on these grids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import oscillator
from nosnoc_py.progress import Progress
from problems.benchmarks.orders import (
    FAMILIES,
    Convergence,
    Example,
    check_names,
    figure_of,
    results_of,
    rows_of,
)
from problems.runner import Meter, Report, program, tabled
from problems.settings import Settings
from tests.references.switching import boundary_errors

METHOD = ns.FESD(finite_elements=2, error_tolerance=None)
SOLVER = ns.Auto()
QUICK = {"steps": (16, 27, 38), "stages": (3,), "representation": ("stewart",)}
DURATION = float(np.pi / 2.0)
REPRESENTATIONS = ("stewart", "step")
# With these the switch lies at about the same place within its step (a fifth), so that one error constant holds for
# all: the elements of that step differ in length from all others. Close to the ends of a step its MPCC may fail.
STEPS = (16, 27, 38, 49, 71, 104)
FIXED_STAGES = 2  # RK stages of the curves with fixed steps
# The clean range, for a motion of radius one: below, the tolerance of the solver decides; above, the angle is off by
# so much that the error no longer follows a power of the step.
CLEAN = (1e-11, 0.5)


def circle(method: ns.FESD = METHOD) -> Example:
    """Return the oscillator, until pi / 2 s."""
    return Example(
        title="oscillator (a switch)",
        system=oscillator.build(),
        method=method,
        start=oscillator.STANDARD.start,
        duration=DURATION,
        end=oscillator.exact([DURATION])[0],
        clean=CLEAN,
    )


def converge(
    scheme: str,
    rk_stages: int,
    steps: Sequence[int],
    *,
    representation: str = "stewart",
    switch_detection: bool = True,
    method: ns.FESD = METHOD,
    solver: Any = SOLVER,
    callback: Any = None,
) -> Convergence:
    """Simulate with every number of steps; return errors at the end and at the switch, from the nearest element."""
    options = {"dcs_mode": representation, "switch_detection": switch_detection}
    method = method.replace(scheme=scheme, rk_stages=rk_stages, **options)
    curve, runs = circle().converge(
        method, steps, f", {representation}", fixed_order=1, solver=solver, callback=callback
    )
    switches = tuple(boundary_errors(run, [oscillator.STANDARD.switch_time])[0] for run in runs)
    return replace(curve, more={"switch_errors": switches})


def experiment(
    steps: tuple[int, ...] = STEPS,
    stages: tuple[int, ...] = (1, 2, 3),
    schemes: tuple[str, ...] = ("radau_iia", "gauss_legendre"),
    representation: tuple[str, ...] = REPRESENTATIONS,
    *,
    method: ns.FESD = METHOD,
    solver: Any = SOLVER,
    callback: Any = None,
) -> list[Convergence]:
    """Return all curves: schemes x stages x formulations, then every scheme with fixed steps."""
    check_names(scheme=(schemes, FAMILIES), representation=(representation, REPRESENTATIONS))
    cases: list[dict[str, Any]] = [
        dict(scheme=scheme, rk_stages=count, representation=written)
        for scheme in schemes
        for count in stages
        for written in representation
    ]
    cases += [dict(scheme=scheme, rk_stages=FIXED_STAGES, switch_detection=False) for scheme in schemes]
    return [converge(**case, steps=steps, method=method, solver=solver, callback=callback) for case in cases]


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment, and simulate once more for the figure of the motion."""
    meter, options = Meter(progress), {"method": settings.method, "solver": settings.solver}
    curves = experiment(**settings.arguments, **options, callback=meter)
    trajectory = circle().simulate(max(settings.arguments["steps"]), **options, callback=meter)
    results, success = results_of(curves, trajectory.success)
    return tabled(
        {**meter.results(trajectory), **results},
        success,
        {"largest error of the state at T over steps": rows_of(curves)},
        {
            "oscillator_order.png": lambda: figure_of({"oscillator": curves}),
        },
    )


PROGRAM = program(
    __name__,
    run,
    experiment,
    quick=QUICK,
    method=METHOD,
    solver=SOLVER,
    fixed=("control_stages", "scheme", "rk_stages", "switch_detection", "dcs_mode"),
)
