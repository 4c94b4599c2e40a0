"""Integration orders on two balls connected by a spring: `python -m problems.benchmarks.two_balls_order`.

The experiment of FESD-J, Section 5.1 and Fig. 6: the error of the state at the end, in the maximum norm over positions
[m] and velocities [m/s], against the exact motion, for both Runge-Kutta families and several numbers of stages.
Impacts do not cost order, because the method puts them on the grid. Two curves are added:

- without switch detection (fixed steps) there is no convergence at all: the ground catches the ball inside an element
  with a huge force, and the speed after that is arbitrary;
- Radau IIA with one stage damps the stiff spring of the paper (frequency 141 rad/s) so strongly that its order does
  not show on any grid of the experiment. It does on a softer spring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

import nosnoc_py as ns
from models import two_balls_spring
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from problems.runner import Meter, Report, impacts_text, program, table
from problems.settings import Settings

METHOD = ns.FESDJ(finite_elements=2)
# Fixed steps catch the ball by forces of about 1e5 N: there 1e-9 would be beyond the last digit.
SOLVER = SIMULATION_SOLVER.replace(infeasibility_tolerance=1e-8)
QUICK = {"steps": (200, 283, 400), "stages": (2, 3)}
START = (1.0, 2.0, 0.0, 0.0)
FAMILIES = {"radau_iia": "Radau", "gauss_legendre": "Gauss"}

# The clean range, in units of the fastest impact (about 4 m/s). Below, rounding decides; above, the phase of the spring
# is off by so much that the error no longer follows a power of the step.
FLOOR = 1e-11
CEILING = 1e-1
LEAST_POINTS = 3
SHOWN_STEPS = 400  # of the simulation in the picture


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Runs of one method with more and more steps.

    Parameters
    ----------
    scheme : str
    rk_stages : int
    stiffness : float
        Of the spring [N/m].
    switch_detection : bool
    steps : (runs,)
        Numbers of steps N_sim.
    errors : (runs,)
        Error of the state at the end; NaN where a step failed.
    scale : float
        Speed of the fastest impact of the exact motion [m/s].
    """

    scheme: str
    rk_stages: int
    stiffness: float
    switch_detection: bool
    steps: tuple[int, ...]
    errors: tuple[float, ...]
    scale: float

    @property
    def nominal(self) -> int:
        """Order of the Runge-Kutta method."""
        return 2 * self.rk_stages - (self.scheme == "radau_iia")

    @property
    def is_soft(self) -> bool:
        """The spring is not the paper's."""
        return self.stiffness < two_balls_spring.PAPER.stiffness

    @property
    def should_converge(self) -> bool:
        """Not with fixed steps; nor with Radau IIA 1 on the stiff spring, where some long steps have no solution."""
        return self.switch_detection and (self.nominal > 1 or self.is_soft)

    @property
    def failures(self) -> int:
        """Number of runs in which a step found no solution."""
        return int(np.isnan(self.errors).sum())

    @property
    def clean(self) -> np.ndarray:
        """Which runs (runs,) are in the clean range."""
        errors = np.array(self.errors) / self.scale
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
        special = ("" if self.switch_detection else ", fixed") + (", soft" if self.is_soft else "")
        return f"{FAMILIES[self.scheme]} {self.rk_stages}{special}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name."""
        names = ("label", "nominal", "order", "failures")
        return {**vars(self), **{name: getattr(self, name) for name in names}}


def simulate(
    steps: int, *, stiffness: float, method: ns.FESDJ = METHOD, solver: ns.Homotopy = SOLVER, callback: Any = None
) -> ns.Trajectory:
    """Simulate the two balls for one second in `steps` steps; another solver than `SOLVER` solves them as MPCCs."""
    mpcc = None if solver == SOLVER else solver
    system = two_balls_spring.build(stiffness)
    return ns.simulate(system, x0=START, duration=1.0, steps=steps, method=method, solver=mpcc, callback=callback)


def converge(
    scheme: str,
    rk_stages: int,
    steps: Sequence[int],
    *,
    stiffness: float = two_balls_spring.PAPER.stiffness,
    switch_detection: bool = True,
    method: ns.FESDJ = METHOD,
    solver: ns.Homotopy = SOLVER,
    callback: Any = None,
) -> Curve:
    """Simulate with every number of steps and compare with the exact state at the end."""
    constants = two_balls_spring.Constants(stiffness=stiffness)
    exact = two_balls_spring.exact(1.0, START[:2], START[2:], constants)
    end = exact([1.0])[0]
    method = method.replace(scheme=scheme, rk_stages=rk_stages, switch_detection=switch_detection)
    errors = []
    for count in steps:
        trajectory = simulate(count, stiffness=stiffness, method=method, solver=solver, callback=callback)
        errors.append(float(np.abs(trajectory.final_state - end).max()) if trajectory.success else np.nan)
    return Curve(
        scheme=scheme,
        rk_stages=rk_stages,
        stiffness=stiffness,
        switch_detection=switch_detection,
        steps=tuple(int(count) for count in steps),
        errors=tuple(errors),
        scale=max(-impact.v_before[0] for impact in exact.impacts),
    )


def measure(
    system: ns.CLS,
    trajectory: ns.Trajectory,
    stiffness: float = two_balls_spring.PAPER.stiffness,
    restitution: float = two_balls_spring.PAPER.restitution,
) -> dict[str, float]:
    """Error of the state at the end against the exact motion, for sweeps; NaN where a step failed."""
    if not trajectory.success:
        return {"error": np.nan}
    start, end = trajectory.x[0], trajectory.t[-1]
    constants = two_balls_spring.Constants(stiffness=stiffness, restitution=restitution)
    exact = two_balls_spring.exact(float(end), start[:2], start[2:], constants)
    return {"error": float(np.abs(trajectory.final_state - exact([end])[0]).max())}


def experiment(
    steps: tuple[int, ...] = (100, 141, 200, 283, 400, 566, 800, 1131, 1600),
    stages: tuple[int, ...] = (1, 2, 3, 4),
    schemes: tuple[str, ...] = ("radau_iia", "gauss_legendre"),
    stiffness: float = two_balls_spring.PAPER.stiffness,
    soft_stiffness: float = 100.0,
    *,
    method: ns.FESDJ = METHOD,
    solver: ns.Homotopy = SOLVER,
    callback: Any = None,
) -> list[Curve]:
    """All curves: the families, then Radau IIA 1 (if asked for) on the soft spring and Radau IIA 2 with fixed steps."""
    for scheme in schemes:
        if scheme not in FAMILIES:
            raise OptionError(unknown_name(scheme, FAMILIES, "scheme"))
    cases: list[dict[str, Any]] = [
        dict(scheme=scheme, rk_stages=count, stiffness=stiffness) for scheme in schemes for count in stages
    ]
    if 1 in stages:
        cases.append(dict(scheme="radau_iia", rk_stages=1, stiffness=soft_stiffness))
    cases.append(dict(scheme="radau_iia", rk_stages=2, stiffness=stiffness, switch_detection=False))
    return [converge(**case, steps=steps, method=method, solver=solver, callback=callback) for case in cases]


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment, and simulate once more for the picture of the motion (FESD-J, Fig. 5)."""
    arguments, method, solver = settings.arguments, settings.method, settings.solver
    meter = Meter(progress)
    curves = experiment(**arguments, method=method, solver=solver, callback=meter)
    shown = method.replace(scheme="radau_iia", rk_stages=3)
    stiffness = arguments["stiffness"]
    trajectory = simulate(SHOWN_STEPS, stiffness=stiffness, method=shown, solver=solver, callback=meter)
    return Report(
        results={**meter.results(trajectory), **_results(curves, trajectory.success)},
        success=_success(curves, trajectory.success),
        show=lambda console: _show(console, curves, trajectory),
        figures={
            "two_balls_order.png": lambda path: _drawing().orders(curves, method.finite_elements, path),
            "two_balls_trajectory.png": lambda path: _drawing().motion(trajectory, path),
        },
    )


def _success(curves: Sequence[Curve], simulated: bool) -> bool:
    return simulated and not any(curve.failures for curve in curves if curve.should_converge)


def _results(curves: Sequence[Curve], simulated: bool) -> dict[str, Any]:
    return {
        "status": (ns.Status.SOLVED if _success(curves, simulated) else ns.Status.STEP_FAILED).value,
        "orders": {curve.label: curve.order for curve in curves},
        "errors": {curve.label: dict(zip(map(str, curve.steps), curve.errors, strict=True)) for curve in curves},
        "failures": {curve.label: curve.failures for curve in curves},
        "curves": [curve.to_dict() for curve in curves],
    }


def _show(console: Console, curves: Sequence[Curve], trajectory: ns.Trajectory) -> None:
    steps = [str(count) for count in curves[0].steps]
    title = "largest error of the state at T = 1 s over N_sim [m, m/s]"
    rows = table("method", "order", "fitted", "failed", *steps, title=title)
    for curve in curves:
        order = "-" if curve.order is None else f"{curve.order:.2f}"
        nominal = str(curve.nominal) if curve.switch_detection else "none"
        errors = (_cell(error, clean) for error, clean in zip(curve.errors, curve.clean, strict=True))
        rows.add_row(curve.label, nominal, order, str(curve.failures), *errors)
    console.print(rows)
    console.print(f"dim: outside the range of the fit, {FLOOR:g} to {CEILING:g} of the speed of the fastest impact")
    failures, runs = sum(c.failures for c in curves), sum(len(c.steps) for c in curves)
    console.print(f"{failures} of {runs} runs had a step without a solution")
    console.print(f"{impacts_text(trajectory)} (Radau IIA 3, {SHOWN_STEPS} steps)")


def _cell(error: float, clean: bool) -> str:
    if np.isnan(error):
        return "failed"
    return f"{error:.1e}" if clean else f"[dim]{error:.1e}[/dim]"


def _drawing() -> Any:
    from problems.drawing import two_balls  # matplotlib is slow to import and not needed with --json

    return two_balls


PROGRAM = program(
    __name__,
    run,
    experiment,
    quick=QUICK,
    method=METHOD,
    solver=SOLVER,
    fixed=("control_stages", "scheme", "rk_stages", "switch_detection"),
)
