"""Derivatives of a motion with a switch by its initial state: `python -m problems.benchmarks.step_sensitivities`.

The oscillator that turns around at the unit circle, and the error of d x(T) / d x_0 at T = pi/2 s over the number of
steps. The exact derivative is the product of the transition matrix up to the switch, of the saltation matrix

    I + (f_+ - f_-) n' / (n' f_-)

at the switch, and of the transition matrix from there on, all in closed form. FESD has the time of the switch among its
unknowns, so the derivative of its steps, by the implicit function theorem, holds the saltation and converges with the
order of the scheme. Two ways to differentiate a motion do not: steps that do not end at the switch (`switch_detection`
off) miss the saltation altogether, although their states converge; and a step function smoothed by tanh(c / eps), with
eps proportional to the step of an explicit Runge-Kutta method, has about the same number of steps within the smooth
switch, however short they are, and so keeps an error that falls at most slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import oscillator
from nosnoc_py.api import Simulator
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.step_sensitivity import StepSensitivity
from problems.benchmarks.orders import Convergence, figure_of, results_of, rows_of
from problems.benchmarks.oscillator_order import DURATION, simulate
from problems.runner import Meter, Report, program, tabled
from problems.settings import Settings
from tests.references.oscillator import exact

METHOD = ns.FESD(finite_elements=2)
SOLVER = ns.Auto()
QUICK = {"steps": (16, 27, 38), "stages": (2,)}
# With these the switch lies at about the same place within its step (a fifth), so that one error constant holds for
# all: the derivative depends on where it is more than the state does.
STEPS = (16, 27, 38, 49, 71, 104)
FIXED_STAGES = 2
FLOOR = 1e-9  # smaller errors are those of the solver, times the slopes

Array = np.ndarray


def by_elements(steps: int, method: ns.FESD, solver: Any, callback: Callable[[Any], Any]) -> tuple[Array, Array, int]:
    """Return the final state, its derivative by x0, and the number of non-smooth steps; NaN if a step fails."""
    simulator = Simulator(oscillator.build(), method, step=DURATION / steps, solver=solver)
    sensitivity = StepSensitivity(simulator.engine.problem)
    state: Any = simulator.init(oscillator.STANDARD.start)
    steps_taken = []
    for _ in range(steps):
        state = simulator.step(state)
        callback(state)
        if state.w is None or state.values is None:
            return np.full(2, np.nan), np.full((2, 2), np.nan), 0
        steps_taken.append(sensitivity(state.w, state.values))
    derivative = np.eye(2)
    for step in steps_taken:
        derivative = step.x @ derivative
    return state.x, derivative, sum(not step.smooth for step in steps_taken)


def by_smoothing(steps: int, width: float) -> tuple[Array, Array]:
    """Return the same with tanh(c / eps) for the step function, by RK4 with eps = width h."""
    h = DURATION / steps
    move = _smooth_step(h, width * h)
    x, derivative = np.array(oscillator.STANDARD.start), np.eye(2)
    for _ in range(steps):
        end, slope = move(x)
        x, derivative = end.full().reshape(-1), slope.full() @ derivative
    return x, derivative


def _smooth_step(h: float, eps: float) -> ca.Function:
    x, frequency = ca.SX.sym("x", 2), oscillator.STANDARD.frequency
    turn = frequency * ca.tanh((ca.sumsqr(x) - 1.0) / eps)
    flow = ca.Function("flow", [x], [ca.vertcat(x[0] - turn * x[1], turn * x[0] + x[1])])
    rate = total = flow(x)
    for share, weight in ((0.5, 2.0), (0.5, 2.0), (1.0, 1.0)):
        rate = flow(x + share * h * rate)
        total = total + weight * rate
    end = x + h / 6.0 * total
    return ca.Function("step", [x], [end, ca.jacobian(end, x)])


def experiment(
    steps: tuple[int, ...] = STEPS,
    stages: tuple[int, ...] = (2, 3),
    width: float = 1.0,
    *,
    method: ns.FESD = METHOD,
    solver: Any = SOLVER,
    callback: Callable[[Any], Any] = lambda state: None,
) -> list[Convergence]:
    """Return all curves; `width` is eps / h of the smoothing. Errors of the state and non-smooth steps are included."""
    end, slope = oscillator.exact(DURATION)[0], exact()

    def curve(label: str, nominal: int, runs: Sequence[tuple[Array, Array]], flags: int = 0) -> Convergence:
        state_errors = tuple(float(np.abs(x - end).max()) for x, _ in runs)
        return Convergence(
            label=label,
            nominal=nominal,
            steps=tuple(int(count) for count in steps),
            errors=tuple(float(np.abs(curves - slope).max()) for _, curves in runs),
            clean=(FLOOR, np.inf),
            more={"state_errors": state_errors, "flags": flags},
        )

    cases = [(f"FESD, {n} stages", 2 * n - 1, method.replace(rk_stages=n)) for n in stages]
    cases.append(("fixed steps", 0, method.replace(rk_stages=FIXED_STAGES, switch_detection=False)))
    curves = []
    for label, nominal, chosen in cases:
        runs = [by_elements(count, chosen, solver, callback) for count in steps]
        curves.append(curve(label, nominal, [run[:2] for run in runs], sum(run[2] for run in runs)))
    curves.append(curve(f"smoothing, eps = {width:g} h", 0, [by_smoothing(count, width) for count in steps]))
    return curves


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment."""
    meter = Meter(progress)
    curves = experiment(**settings.arguments, method=settings.method, solver=settings.solver, callback=meter)
    trajectory = simulate(max(settings.arguments["steps"]), method=settings.method, solver=settings.solver)
    results, success = results_of(curves, trajectory.success and not any(curve.more["flags"] for curve in curves))
    return tabled(
        {**meter.results(trajectory), **results, "exact": exact().tolist()},
        success,
        {"largest error of d x(T) / d x_0 over the number of steps": rows_of(curves)},
        {"step_sensitivities.png": lambda: figure_of({"derivative by the start": curves})},
        [f"the largest entry of the exact derivative is {np.abs(exact()).max():.4g}"],
    )


PROGRAM = program(
    __name__,
    run,
    experiment,
    quick=QUICK,
    method=METHOD,
    solver=SOLVER,
    fixed=("control_stages", "rk_stages", "switch_detection"),
)
