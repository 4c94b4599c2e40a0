"""Time-optimal driving of a car with a turbo, from rest to rest: `python -m problems.turbo_car`.

A piecewise smooth system with a free final time. The fastest drive of all has a closed form. The fastest with N equally
long stages of constant control is the root of one equation (see `models.turbo_car`); solutions are compared with it.
With the defaults both take 9 s: the control changes at 3 and 6 s, on the grid of 1.5 s, and the turbo goes on and off
at 2 and 7 s, inside of control stages. With other numbers of stages the two times differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import turbo_car as model
from problems.runner import optimised, program

METHOD: Any = ns.FESD(control_stages=6, finite_elements=2, rk_stages=2)
QUICK = {"control_stages": 3}


def build(
    distance: float = 130.0,
    acceleration: float = model.STANDARD.acceleration,
    gain: float = model.STANDARD.gain,
    threshold: float = model.STANDARD.threshold,
    limit: float = model.STANDARD.limit,
) -> ns.OCP:
    """Return the optimal control problem: minimise T from (0, 0) to (distance, 0), |u| and |v| bounded.

    Parameters
    ----------
    distance : float
        Distance to drive [m].
    acceleration, gain, threshold, limit : float
        See `models.turbo_car.Constants`.
    """
    constants = model.Constants(acceleration=acceleration, gain=gain, threshold=threshold, limit=limit)
    system = model.build(constants)
    least, slow = distance / limit, 2.0 * (distance / limit + limit / acceleration)
    horizon = ns.FreeTime(least, slow)
    return ns.OCP(
        system,
        horizon=horizon,
        x0=[0.0, 0.0],
        terminal_cost=horizon.symbol,
        bounds=ns.Bounds(x=([-np.inf, -limit], [np.inf, limit]), u=(-acceleration, acceleration)),
        terminal_constraints=[ns.Constraint(system.x, [distance, 0.0], [distance, 0.0], name="arrival")],
    )


def held_against(solution: ns.Solution, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the optima in closed form, and the distance of the exact motion of the control from the solution."""
    constants = model.Constants(**{key: value for key, value in arguments.items() if key != "distance"})
    fastest, control = model.fastest_stages(arguments["distance"], len(solution.u), constants)
    states, crossings = model.motion(solution.u[:, 0], solution.duration, constants=constants)
    return {
        "fastest_time": model.fastest_time(arguments["distance"], constants),
        "fastest_time_of_stages": fastest,
        "control_of_stages": control,
        "time_error": solution.duration - fastest,
        "motion_error": float(np.abs(solution(solution.u_grid) - states).max()),
        "crossings": crossings,
    }


PROGRAM = program(__name__, optimised(build, held_against), build, quick=QUICK, method=METHOD, solver=ns.Auto())
