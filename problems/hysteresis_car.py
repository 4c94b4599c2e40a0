"""Time-optimal driving of a car whose turbo has hysteresis: `python -m problems.hysteresis_car`.

A hybrid automaton as a Filippov system in numerical time (see `models.hysteresis_car`): its clock, a state, stands
still while the turbo changes, and the physical time T is where the clock ends. A control, the speed of time, lets every
control stage have any physical length. The fastest drive therefore has piecewise constant controls on every grid with
three stages or more, and solutions are compared with its closed form. The control of the solution is also simulated
with the automaton itself, event by event.

There are local optima. If a control stage has too few finite elements for one more phase, the turbo changes at the end
of a stage and full throttle ends there, T = 11 s. Or the speed stays at 15 m/s, where the turbo may stay off, T = 13 s.
With four elements per stage most grids find 10.1333 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import hysteresis_car as model
from problems.runner import optimised, program

Array = NDArray[np.float64]

METHOD: Any = ns.FESD(control_stages=5, finite_elements=4, rk_stages=2)
QUICK: dict[str, Any] = {}  # the defaults end in a second
SPEEDS = (0.05, 20.0)  # of time


def build(distance: float = 150.0, regions: str = "indicators", numerical_time: float = 10.0) -> ns.OCP:
    """Return the optimal control problem: minimal clock at the end, from (0, 0) to (distance, 0), turbo off.

    Parameters
    ----------
    distance : float
        Distance to drive [m].
    regions : str
        "indicators" or "signs", see `models.hysteresis_car.build`; step functions (`dcs_mode=step`) need "signs".
    numerical_time : float
        Length of the horizon; it only matters through the bounds of the speed of time.
    """
    constants = model.STANDARD
    system = model.build(constants, regions)  # type: ignore[arg-type]
    _, velocity, turbo, clock = ca.vertsplit(system.x)
    home = ns.Constraint(ca.vertcat(system.x[0], velocity, turbo), [distance, 0, 0], [distance, 0, 0], name="arrival")
    inf, fast, u = np.inf, constants.limit, constants.acceleration
    return ns.OCP(
        system,
        horizon=numerical_time,
        x0=[0.0, 0.0, 0.0, 0.0],
        terminal_cost=clock,
        bounds=ns.Bounds(x=([-inf, -fast, -1.0, -inf], [inf, fast, 2.0, inf]), u=([-u, SPEEDS[0]], [u, SPEEDS[1]])),
        terminal_constraints=[home],
    )


def driven(solution: ns.Solution) -> tuple[model.Drive, Array]:
    """Return the motion of the automaton under the control of a solution, and the physical stage lengths (N,) [s]."""
    clock = solution(solution.u_grid)[:, 3]
    lengths = np.maximum(np.diff(clock), 0.0)
    return model.drive(solution.u[:, 0], lengths), lengths


def held_against(solution: ns.Solution, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the closed form, and the result of the automaton under the control of the solution."""
    motion, lengths = driven(solution)
    fastest = model.fastest_time(arguments["distance"])
    end = np.append(motion.x[-1], motion.turbo[-1])
    return {
        "fastest_time": fastest,
        "time_error": float(solution.final_state[3]) - fastest,
        "stage_lengths": lengths,
        "changes": motion.changes,
        "final_error": float(np.abs(end - solution.final_state[:3]).max()),
    }


PROGRAM = program(__name__, optimised(build, held_against), build, quick=QUICK, method=METHOD, solver=ns.Auto())
