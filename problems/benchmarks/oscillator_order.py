"""Integration orders on the oscillator that turns around at the unit circle.

The error of the state at T = pi/2 s, in the maximum norm, against the exact motion, for Radau IIA and Gauss-Legendre
with several numbers of stages, written by Stewart's multipliers and by step functions. The switch costs no order,
because FESD puts it on the grid, and both ways of writing give the same errors. With fixed steps (`switch_detection`
off: an ordinary Runge-Kutta method with the same multipliers) every scheme falls to order one. Radau IIA with one
stage damps the rotation so strongly that its order does not show on these grids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

import nosnoc_py as ns
from models import oscillator
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.progress import Progress
from problems.runner import Meter, Report, program, table
from problems.settings import Settings
from problems.switching_cases import REPRESENTATIONS, boundary_errors

METHOD = ns.FESD(finite_elements=2)
SOLVER = ns.Auto()
QUICK = {"steps": (16, 27, 38), "stages": (3,), "representation": ("stewart",)}
DURATION = float(np.pi / 2.0)
FAMILIES = {"radau_iia": "Radau", "gauss_legendre": "Gauss"}
# With these the switch lies at about the same place within its step (a fifth), so that one error constant holds for
# all: the elements of that step differ in length from all others. Close to the ends of a step its MPCC may fail.
STEPS = (16, 27, 38, 49, 71, 104)
FIXED_STAGES = 2  # of the curves with fixed steps

# The clean range, for a motion of radius one: below, the tolerance of the solver decides; above, the angle is off by
# so much that the error no longer follows a power of the step.
FLOOR = 1e-11
CEILING = 0.5
LEAST_POINTS = 3


@dataclass(frozen=True, eq=False, kw_only=True)
class Curve:
    """Runs of one method with more and more steps.

    Parameters
    ----------
    scheme : str
    rk_stages : int
    representation : {"stewart", "step"}
    switch_detection : bool
    steps : (runs,)
        Numbers of steps.
    errors : (runs,)
        Error of the state at the end; NaN where a step failed.
    switch_errors : (runs,)
        Distance of the nearest element boundary from the switch [s].
    """

    scheme: str
    rk_stages: int
    representation: str
    switch_detection: bool
    steps: tuple[int, ...]
    errors: tuple[float, ...]
    switch_errors: tuple[float, ...]

    @property
    def nominal(self) -> int:
        """Order of the Runge-Kutta method; one with fixed steps."""
        return 2 * self.rk_stages - (self.scheme == "radau_iia") if self.switch_detection else 1

    @property
    def failures(self) -> int:
        """Number of runs in which a step found no solution."""
        return int(np.isnan(self.errors).sum())

    @property
    def clean(self) -> np.ndarray:
        """Which runs (runs,) are in the clean range."""
        errors = np.array(self.errors)
        return (errors > FLOOR) & (errors < CEILING)

    @property
    def order(self) -> float | None:
        """Slope of the errors over the steps, fitted on the clean range; None if there is too little of it."""
        if self.clean.sum() < LEAST_POINTS:
            return None
        h = 1.0 / np.array(self.steps)[self.clean]
        return float(np.polyfit(np.log(h), np.log(np.array(self.errors)[self.clean]), 1)[0])

    @property
    def label(self) -> str:
        """What tells the curve from the others."""
        fixed = "" if self.switch_detection else ", fixed"
        return f"{FAMILIES[self.scheme]} {self.rk_stages}{fixed}, {self.representation}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name."""
        names = ("label", "nominal", "order", "failures")
        return {**vars(self), **{name: getattr(self, name) for name in names}}


def simulate(steps: int, *, method: ns.FESD = METHOD, solver: Any = SOLVER, callback: Any = None) -> ns.Trajectory:
    """Simulate the oscillator in `steps` steps."""
    return ns.simulate(
        oscillator.build(),
        x0=oscillator.STANDARD.start,
        duration=DURATION,
        steps=steps,
        method=method,
        solver=solver,
        callback=callback,
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
) -> Curve:
    """Simulate with every number of steps and compare with the exact state at the end."""
    method = method.replace(
        scheme=scheme, rk_stages=rk_stages, dcs_mode=representation, switch_detection=switch_detection
    )
    end = oscillator.exact([DURATION])[0]
    errors: list[float] = []
    switches: list[float] = []
    for count in steps:
        trajectory = simulate(count, method=method, solver=solver, callback=callback)
        errors.append(float(np.abs(trajectory.final_state - end).max()) if trajectory.success else np.nan)
        switches += boundary_errors(trajectory, [oscillator.STANDARD.switch_time])
    return Curve(
        scheme=scheme,
        rk_stages=rk_stages,
        representation=representation,
        switch_detection=switch_detection,
        steps=tuple(int(count) for count in steps),
        errors=tuple(errors),
        switch_errors=tuple(switches),
    )


def experiment(
    steps: tuple[int, ...] = STEPS,
    stages: tuple[int, ...] = (1, 2, 3),
    schemes: tuple[str, ...] = ("radau_iia", "gauss_legendre"),
    representation: tuple[str, ...] = REPRESENTATIONS,
    *,
    method: ns.FESD = METHOD,
    solver: Any = SOLVER,
    callback: Any = None,
) -> list[Curve]:
    """All curves: schemes x stages x ways of writing, then every scheme with fixed steps."""
    for names, known, what in ((schemes, FAMILIES, "scheme"), (representation, REPRESENTATIONS, "representation")):
        for name in names:
            if name not in known:
                raise OptionError(unknown_name(name, known, what))
    cases: list[dict[str, Any]] = [
        dict(scheme=scheme, rk_stages=count, representation=written)
        for scheme in schemes
        for count in stages
        for written in representation
    ]
    cases += [dict(scheme=scheme, rk_stages=FIXED_STAGES, switch_detection=False) for scheme in schemes]
    return [converge(**case, steps=steps, method=method, solver=solver, callback=callback) for case in cases]


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment, and simulate once more for the picture of the motion."""
    meter = Meter(progress)
    method, solver = settings.method, settings.solver
    curves = experiment(**settings.arguments, method=method, solver=solver, callback=meter)
    trajectory = simulate(
        max(settings.arguments["steps"]), method=method.replace(rk_stages=3), solver=solver, callback=meter
    )
    success = trajectory.success and not any(curve.failures for curve in curves if curve.switch_detection)
    return Report(
        results={**meter.results(trajectory), **_results(curves, success)},
        success=success,
        show=lambda console: _show(console, curves),
        figures={
            "oscillator_order.png": lambda path: _drawing().orders(curves, method.finite_elements, path),
            "oscillator.png": lambda path: _drawing().oscillator(trajectory, path),
        },
    )


def _results(curves: Sequence[Curve], success: bool) -> dict[str, Any]:
    return {
        "status": (ns.Status.SOLVED if success else ns.Status.STEP_FAILED).value,
        "orders": {curve.label: curve.order for curve in curves},
        "errors": {curve.label: dict(zip(map(str, curve.steps), curve.errors, strict=True)) for curve in curves},
        "failures": {curve.label: curve.failures for curve in curves},
        "curves": [curve.to_dict() for curve in curves],
    }


def _show(console: Console, curves: Sequence[Curve]) -> None:
    steps = [str(count) for count in curves[0].steps]
    made = table("method", "order", "fitted", "switch [s]", *steps, title="largest error of the state at T over steps")
    for curve in curves:
        order = "-" if curve.order is None else f"{curve.order:.2f}"
        errors = (_cell(error, clean) for error, clean in zip(curve.errors, curve.clean, strict=True))
        made.add_row(curve.label, str(curve.nominal), order, f"{max(curve.switch_errors):.1e}", *errors)
    console.print(made)
    console.print(f"dim: outside the range of the fit, {FLOOR:g} to {CEILING:g}; switch: worst distance from the grid")
    failures, runs = sum(curve.failures for curve in curves), sum(len(curve.steps) for curve in curves)
    console.print(f"{failures} of {runs} runs had a step without a solution")


def _cell(error: float, clean: bool) -> str:
    if np.isnan(error):
        return "failed"
    return f"{error:.1e}" if clean else f"[dim]{error:.1e}[/dim]"


def _drawing() -> Any:
    from problems.drawing import filippov  # matplotlib is slow to import and not needed with --json

    return filippov


PROGRAM = program(
    __name__,
    run,
    experiment,
    quick=QUICK,
    method=METHOD,
    solver=SOLVER,
    fixed=("control_stages", "scheme", "rk_stages", "switch_detection", "dcs_mode"),
)
