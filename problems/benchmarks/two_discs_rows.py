"""Methods that are compared on the two discs, as data, and one row of the table for every problem and method.

All of them start from the constant control of the paper, FESD-J from it alone and from the motion under it. On equal
stages it may also start from the motion under a force of the same direction, of a size for which the discs meet in the
middle of the stage before the optimal collision: there the best stage is found only from nearby.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

import nosnoc_py as ns
from nosnoc_py.errors import NosnocError
from problems.two_discs import EXPERIMENTS, HORIZON, RADII, build
from tests.references.two_discs import Optimum
from tests.references.two_discs_control import control_error, true_objective

Row = dict[str, Any]
REFUSED, QUOTED, EXACT = "refused", "quoted", "exact"
REFINED = "HMP refined"
ALGORITHM_1 = "HMP N=480"
# The stage, counted from 0, in which the discs meet in the starts of FESD-J with 20 stages.
STAGES, MEETING = 20, {"concentric": 13.3, "general": 8.5, "wall": 10.5, "length": 9.3}
EQUAL = ns.FESDJ(control_stages=STAGES, rk_stages=3, finite_elements=2, gamma_h=1.0)
FIXED = EQUAL.replace(switch_detection=False, gamma_h=None)
FREE = ns.FESDJ(control_stages=STAGES, rk_stages=3, finite_elements=1, equidistant_control_grid=False)
WARM = ns.Homotopy(sigma_0=1e-3)
# Cost of the best policy of deep reinforcement learning on 5.1 (hybrid minimum principle, Section 6.3), not run here.
PPO = 1.617140


@dataclass(frozen=True, eq=False, kw_only=True)
class Contender:
    """Method with its start.

    Parameters
    ----------
    method : Options
    solver : Options, optional
        Solver of the finite elements; None for methods that solve by themselves.
    start : {"control", "motion", "meeting"}
        The constant control of the paper, the motion under it, or one in which the discs meet in the stage `MEETING`.
    smoothing : float
        Smoothing of |u|, for methods that need its derivative [N].
    """

    method: Any
    solver: Any = None
    start: Literal["control", "motion", "meeting"] = "control"
    smoothing: float = 0.0

    def solve(self, experiment: str, time_limit: float | None = None) -> ns.Solution:
        """Solve a problem.

        Raises
        ------
        NosnocError
            For a problem that the method refuses.
        """
        ocp, guess = build(experiment, smoothing=self.smoothing), self._guess(experiment)
        return ns.solve(ocp, self.method, self.solver, guess=guess, time_limit=time_limit, certify=False)

    def _guess(self, experiment: str) -> Any:
        if self.start == "control":
            return np.array(EXPERIMENTS[experiment].control)
        return motion(experiment) if self.start == "motion" else meeting(experiment, STAGES, MEETING[experiment])


def shot(form: Any, **options: Any) -> Contender:
    """Return a form of direct shooting."""
    return Contender(method=ns.DirectShooting(form=form, **options), smoothing=1e-2)


CONTENDERS: Mapping[str, Contender] = MappingProxyType(
    {
        ALGORITHM_1: Contender(method=ns.MinimumPrinciple()),
        "HMP N=60": Contender(method=ns.MinimumPrinciple(steps=60)),
        REFINED: Contender(method=ns.MinimumPrinciple(steps=60, refine=True)),
        "HMP moving grid": Contender(method=ns.MinimumPrinciple(grid="moving", acceleration=5, tolerance=1e-10)),
        "HMP-MAS": Contender(method=ns.AutonomousSwitching()),
        "single shooting gradient": Contender(
            method=ns.DirectShooting(form="single", steps=480, scheme="euler", descent="gradient")
        ),
        "single shooting L-BFGS": Contender(method=ns.DirectShooting(form="single")),
        "single shooting IPOPT": shot("single", steps=60, descent="ipopt", max_iterations=300),
        "shooting in phases": shot("phases"),
        "smoothed shooting": shot("smoothed", time_limit=10.0),
        "FESD-J free stages": Contender(method=FREE, solver=WARM, start="motion", smoothing=1e-2),
        "FESD-J equal stages": Contender(method=EQUAL, solver=WARM, start="meeting", smoothing=1e-2),
        "FESD-J control only": Contender(method=EQUAL, solver=ns.Auto(), smoothing=1e-2),
        "fixed elements": Contender(method=FIXED, solver=WARM, start="meeting", smoothing=1e-2),
    }
)


def motion(experiment: str) -> ns.Trajectory:
    """Return the motion under the paper's control."""
    ocp, control = build(experiment), np.array(EXPERIMENTS[experiment].control)
    return ns.simulate(ocp.system, x0=ocp.x0, duration=HORIZON, u=control, method=ns.EventDriven())


def meeting(experiment: str, stages: int, stage: float) -> ns.Trajectory:
    """Return the motion under a constant force along the paper's control; the discs meet after this many stages."""
    data, method = EXPERIMENTS[experiment], EQUAL.replace(control_stages=1, gamma_h=None)
    ocp, way = build(experiment), np.hypot(*np.subtract(data.start[2:], data.start[:2])) - sum(RADII)
    force = np.array(data.control) / np.hypot(*data.control) * 2.0 * way / (stage / stages) ** 2
    return ns.simulate(ocp.system, x0=ocp.x0, duration=HORIZON, u=force, method=method, steps=stages)


# Of a row: the method's own objective, minus that of the optimum; minus it for the objective of the control in the
# event-driven simulation of the problem without smoothing; |u - u_opt| in the L2 semi-norm [N]; the largest error of
# the time of a collision [s], None where the sequence is another one; processor seconds.
UNKNOWN: Row = {
    "message": "",
    "objective": np.nan,
    "error": np.nan,
    "true_error": np.nan,
    "control_error": np.nan,
    "time_error": None,
    "collisions": (),
    "iterations": 0,
    "seconds": np.nan,
}


def row_of(experiment: str, name: str, exact: Optimum, time_limit: float | None = None) -> Row:
    """Solve a problem by a method and return the row; a refusal is a row, too."""
    started, row = time.thread_time(), {"experiment": experiment, "method": name, **UNKNOWN}
    try:
        solution = CONTENDERS[name].solve(experiment, time_limit)
    except NosnocError as refusal:
        return {**row, "status": REFUSED, "message": str(refusal)}
    seconds = time.thread_time() - started
    collisions = tuple(event.name for event in solution.impacts)
    times = np.array([event.time for event in solution.impacts])
    return {
        **row,
        "status": solution.status.value,
        "message": solution.message,
        "objective": solution.objective,
        "error": solution.objective - exact.objective,
        "true_error": true_objective(build(experiment), solution) - exact.objective,
        "control_error": control_error(solution, exact),
        "time_error": float(np.abs(times - exact.times).max()) if collisions == exact.contacts else None,
        "collisions": collisions,
        "iterations": solution.iterations,
        "seconds": seconds,
    }


def given_rows(experiment: str, exact: Optimum) -> list[Row]:
    """Return the exact optimum and, for the first problem, the paper's number for reinforcement learning."""
    none = dict.fromkeys(("error", "true_error", "control_error", "time_error"), 0.0)
    row = {"experiment": experiment, **UNKNOWN}
    best = {**row, **none, "method": "exact optimum", "status": EXACT, "objective": exact.objective}
    learnt = {
        **row,
        "method": "reinforcement learning",
        "status": QUOTED,
        "objective": PPO,
        "error": PPO - exact.objective,
        "message": f"PPO, the paper's number, {PPO / exact.objective - 1.0:.2%} above the optimum; not run here",
    }
    return [{**best, "collisions": exact.contacts}, *([learnt] if experiment == "concentric" else [])]
