"""Model predictive control through impacts: `python -m problems.receding_horizon`.

A particle (`models.particle`) falls on smooth ground and is pushed to a goal. Every tenth of a second its state is
measured and an optimal control problem over the next second is solved, by time-freezing, from the previous plan,
shifted by one control stage (`solution.shift()`), and for comparison from the default guess. The plant is the
event-driven simulation. Both solutions are of the same problem at the same state; the first one is applied.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import particle
from nosnoc_py.progress import Progress
from problems.runner import Report, program, tabled
from problems.settings import Settings

START, GOAL, HORIZON, BOUND = (0.0, 0.5, 0.0, 0.0), 1.5, 1.0, 10.0
WEIGHT, SPEED, EFFORT = 10.0, 1.0, 0.02
METHOD = ns.TimeFreezing(a_n=9.81, fesd=ns.FESD(control_stages=10, finite_elements=3, rk_stages=2))
SAME = 1e-4  # relative difference of objectives of the same optimum


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """One sample: the measured state, and the results from the shifted plan and from the default guess."""

    time: float
    x: np.ndarray
    plan: ns.Solution
    warm_seconds: float
    cold: ns.Solution
    cold_seconds: float
    motion: ns.Trajectory


def build() -> ns.OCP:
    """Return the problem from a state over the next second: cost of distance, speed and push."""
    system = particle.build(0.0, controls=1)
    error = system.x - ca.DM([GOAL, 0.0, 0.0, 0.0])
    distance = WEIGHT * error[0] ** 2 + SPEED * error[2] ** 2
    return ns.OCP(
        system,
        horizon=HORIZON,
        x0=START,
        stage_cost=distance + EFFORT * system.u[0] ** 2,
        terminal_cost=distance,
        bounds=ns.Bounds(u=(-BOUND, BOUND)),
    )


def loop(method: Any, solver: Any, samples: int, progress: Callable[[Any], Any] | None = None) -> list[Step]:
    """Measure, plan, apply; stop early if neither guess leads to a plan."""
    ocp = build()
    problem = ns.transcribe(ocp, method)
    period = HORIZON / method.fesd.control_stages
    x = np.array(START)
    steps: list[Step] = []
    plan: ns.Solution | None = None
    for k in range(samples):
        cold, cold_seconds = _timed(problem, solver, x, None, progress)
        warm, warm_seconds = cold, cold_seconds
        if plan is not None:
            warm, warm_seconds = _timed(problem, solver, x, plan.shift(), progress)
        plan = warm if warm.success else cold
        motion = ns.simulate(ocp.system, x0=x, duration=period, u=plan.u[0], method=ns.EventDriven())
        steps.append(
            Step(
                time=k * period, x=x, plan=plan, warm_seconds=warm_seconds, cold=cold, cold_seconds=cold_seconds,
                motion=motion,
            )
        )  # fmt: skip
        x = np.array(motion.final_state)
        x[1] = max(x[1], 0.0)  # on the ground if the simulation is below it by rounding
        if not plan.success:
            break
    return steps


def _timed(problem: ns.Transcription, solver: Any, x: np.ndarray, guess: Any, progress: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    solution = problem.solve(solver, x0=x, guess=guess, callback=progress)
    return solution, time.perf_counter() - began


def run(settings: Settings, progress: Progress) -> Report:
    """Close the loop and compare."""
    steps = loop(settings.method, settings.solver, settings.arguments["samples"], progress)
    rows = [_row(step) for step in steps]
    later = rows[1:]  # the first one has no plan to start from
    totals = {
        f"{start}_{what}": sum(row[f"{start}_{what}"] for row in later)
        for start in ("warm", "cold")
        for what in ("iterations", "seconds")
    }
    end = steps[-1].motion.final_state
    success = all(step.plan.success for step in steps) and totals["warm_iterations"] < totals["cold_iterations"]
    return tabled(
        {
            "status": "solved" if all(step.plan.success for step in steps) else steps[-1].plan.status.value,
            **totals,
            "fewer_iterations_in": sum(row["warm_iterations"] < row["cold_iterations"] for row in later),
            "same_objective_in": sum(abs(row["difference"]) <= SAME for row in later),
            "largest_difference": max((row["difference"] for row in later), key=abs, default=0.0),
            "final_state": end,
            "distance": abs(float(end[0]) - GOAL),
            "impacts": [step.time + event.time for step in steps for event in step.motion.impacts],
            "rows": rows,
        },
        success,
        {"samples; warm: from the previous plan, shifted; cold: from the default guess": rows},
        said=[f"after the first sample: {totals}"],
    )


def _row(step: Step) -> dict[str, Any]:
    return {
        "time": step.time,
        "x": step.x,
        "u": float(step.plan.u[0, 0]),
        "warm_status": step.plan.status.value,
        "cold_status": step.cold.status.value,
        "warm_iterations": step.plan.iterations,
        "cold_iterations": step.cold.iterations,
        "warm_seconds": step.warm_seconds,
        "cold_seconds": step.cold_seconds,
        "objective": step.plan.objective,
        "difference": (step.plan.objective - step.cold.objective) / max(1.0, abs(step.cold.objective)),
    }


PROGRAM = program(
    __name__,
    run,
    {"samples": 15},
    quick={"samples": 3, "control_stages": 5},
    method=METHOD,
    solver=ns.Auto(),
    fixed=("fesd", "epsilon_t", "stiffness"),
)
