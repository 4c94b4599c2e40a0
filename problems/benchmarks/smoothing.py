"""Error and time of smoothed contacts: `python -m problems.benchmarks.smoothing`.

Two tasks with contact, the particle that lands, slides and stops with friction (Example 5 of `problems.particle`,
e = 0), and the manipulation of `problems.disc_manipulation`, by direct shooting on the smoothed system for several
amounts of smoothing, beside FESD-J with and without the detection of switches. Every control is simulated event by
event, which shows its true end, its true cost, and the constraints that it violates.

FESD-J fails on the particle from its default guess. Smoothing works from this guess, because it has no sequence of
contacts; the last row is FESD-J from the true motion under the control of the least smoothed solution.

Measured on one core. Particle: the true end errs by 2e-2, 5e-5, 2e-4, 2e-4 for sigma = 1e-1 ... 1e-4 with 4 steps per
control stage (0.7 to 1.1 s), where the error is due to the steps from 1e-2 on, and by 2e-2, 2e-4, 1e-6, 3e-6 with 12
steps (1.1 to 1.4 s); FESD-J from there is exact in 1.6 s (J = 72.6393).

Discs: J = 654 in 6 to 10 s, where FESD-J has 686 in 11 s and, from the last, 652.6 in 14 s. But no true motion is the
claimed one, because the motion depends strongly on the point at which a disc is hit: the end errs by 4.0, 3.4, 1.9, 1.1
m with 4 steps, by 0.5 m with 12 at the last (2 minutes), by 0.5 m with FESD-J (two elements per control stage), 2.2 m
with that from the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import nosnoc_py as ns
from nosnoc_py.methods.shooting.options import SmoothedShooting
from nosnoc_py.progress import Progress
from problems import disc_manipulation, particle
from problems.benchmarks.orders import check_names
from problems.runner import Report, program, tabled
from problems.settings import Settings

SIGMAS = (1e-1, 1e-2, 1e-3, 1e-4)
STEPS = (4, 12)
QUICK = {"tasks": ("particle",), "sigmas": (1e-2, 1e-3), "steps": (4,), "seconds": 3.0}
WARM = ns.Homotopy(sigma_0=1e-3, time_limit=60.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """Problem, and FESD-J for it with the number of control stages of all methods."""

    build: Callable[[], ns.OCP]
    method: Any


TASKS = {
    "particle": Task(build=particle.build, method=particle.OTHER),
    "disc_manipulation": Task(build=disc_manipulation.build, method=disc_manipulation.METHOD),
}


class Row(NamedTuple):
    """A solution of a task and the referee's certificate, with the smoothing that is left and the steps per stage.

    Both are 0 for methods without smoothing.
    """

    method: str
    solution: ns.Solution
    certificate: ns.Certificate
    sigma: float = 0.0
    steps: int = 0

    @property
    def violation(self) -> float:
        """Largest violation of a constraint by the true motion, in its own units."""
        return max((finding.amount for finding in self.certificate.violation), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints of a row."""
        said = ("objective", "complementarity", "infeasibility", "wall_seconds")
        return {
            **{name: getattr(self, name) for name in ("method", "sigma", "steps")},
            "status": self.solution.status.value,
            **{name: getattr(self.solution, name) for name in said},
            "true_objective": self.certificate.true_objective,
            "end_state_error": self.certificate.end_state_error,
            "violation": self.violation,
        }


def shoot(task: Task, sigma: float, steps: int, method: SmoothedShooting, progress: Any = None) -> Row:
    """Solve by direct shooting down to a smoothing."""
    ocp, stages = task.build(), task.method.control_stages
    start = max(method.sigma_0, sigma)
    options = method.replace(control_stages=stages, steps=steps, sigma_min=sigma, sigma_0=start)
    solution = options.solve(ocp, callback=progress)
    solved = [record.sigma for record in solution.log if record.solver_status.startswith("Solve")]
    left = min(solved, default=solution.log[-1].sigma)
    return Row(method="smoothed", solution=solution, certificate=ns.certify(ocp, solution), sigma=left, steps=steps)


def detect(task: Task, name: str, solver: Any, seconds: float | None, *, guess: Any = None, **options: Any) -> Row:
    """Solve by FESD-J."""
    ocp = task.build()
    solution = ns.solve(ocp, task.method.replace(**options), solver, guess=guess, time_limit=seconds)
    return Row(method=name, solution=solution, certificate=solution.certificate or ns.certify(ocp, solution))


def compare(name: str, arguments: Mapping[str, Any], method: SmoothedShooting, solver: Any, progress: Any) -> list[Row]:
    """Compare all methods on one task."""
    task, seconds = TASKS[name], arguments["seconds"]
    rows = [
        detect(task, "FESD-J", solver, seconds),
        detect(task, "FESD-J, no detection", solver, seconds, switch_detection=False),
    ]
    smoothed = [
        shoot(task, sigma, steps, method, progress) for steps in arguments["steps"] for sigma in arguments["sigmas"]
    ]
    motion = true_motion(task.build(), smoothed[-1].solution)
    warm = detect(task, "FESD-J from the last", WARM, None, guess=motion)
    return [*rows, *smoothed, warm]


def true_motion(ocp: ns.OCP, solution: ns.Solution) -> ns.Trajectory:
    """Return the motion under the control of a solution, event by event."""
    return ns.simulate(
        ocp.system,
        x0=solution.x0,
        duration=solution.horizon,
        u=solution,
        p=solution.p,
        method=ns.EventDriven(grazing="continue"),
    )


def run(settings: Settings, progress: Progress) -> Report:
    """Compare on all tasks."""
    tasks = settings.arguments["tasks"]
    check_names(task=(tasks, TASKS))
    rows_by_task = {
        task: compare(task, settings.arguments, settings.method, settings.solver, progress) for task in tasks
    }
    best = rows_by_task[tasks[0]][-1].solution
    rows = {task: [row.to_dict() for row in each] for task, each in rows_by_task.items()}
    return tabled(
        {**best.to_dict(), "rows": rows},
        best.success,
        {f"{task}: true, by event-driven simulation": each for task, each in rows.items()},
    )


def error_of(row: Row) -> float:
    """Return the distance of the true end state from the claimed one; NaN if the simulation did not reach the end."""
    return float(row.certificate.end_state_error) if np.isfinite(row.certificate.end_state_error) else np.nan


PROGRAM = program(
    __name__,
    run,
    {"tasks": tuple(TASKS), "sigmas": SIGMAS, "steps": STEPS, "seconds": 60.0},
    quick=QUICK,
    method=SmoothedShooting(),
    solver=ns.Auto(),
    fixed=("form", "control_stages", "sigma_min", "time_limit"),
)
