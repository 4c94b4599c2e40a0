"""Simulation of a block that sticks and slips on a moving belt: `python -m problems.stick_slip`.

Several cycles of stick and slip are compared with the closed form of `models.stick_slip`, which consists of harmonic
pieces. Stick is a sliding mode. It begins with a switch and ends tangentially, and FESD locates both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import stick_slip
from models.stick_slip import Constants
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from problems.runner import program, simulated
from tests.references.switching import boundary_errors

METHOD = ns.FESD(finite_elements=3, rk_stages=3)
SOLVER = SIMULATION_SOLVER
QUICK = {"duration": 2.0, "steps": 30}
STANDARD = stick_slip.STANDARD
TOLERANCE = 1e-6  # largest error of the final state for success [m, m/s]


def simulate(
    position: float = 0.0,
    belt: float = STANDARD.belt,
    friction: float = STANDARD.friction,
    decrease: float = STANDARD.decrease,
    stiffness: float = STANDARD.stiffness,
    duration: float = 5.0,
    steps: int = 75,
    *,
    method: ns.FESD = METHOD,
    solver: Any = SOLVER,
    callback: Any = None,
) -> ns.Trajectory:
    """Simulate the block from a stick at `position` [m]; arguments as in `stick_slip.Constants`."""
    constants = Constants(belt=belt, friction=friction, decrease=decrease, stiffness=stiffness)
    stick_slip.exact([0.0], position, constants)  # refuses constants that cannot stick before anything is solved
    return ns.simulate(
        stick_slip.build(constants),
        x0=[position, belt],
        duration=duration,
        steps=steps,
        method=method,
        solver=solver,
        callback=callback,
    )


def constants_of(arguments: Mapping[str, Any]) -> Constants:
    """Return the model's constants of the arguments of `simulate`."""
    return Constants(**{name: arguments[name] for name in ("belt", "friction", "decrease", "stiffness")})


def errors(trajectory: ns.Trajectory, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return errors of the state at the end, of all element boundaries, and of the times of the events [s]."""
    constants, position = constants_of(arguments), arguments["position"]
    away, back = stick_slip.event_times(float(trajectory.t[-1]), position, constants)
    error = np.abs(trajectory.x - stick_slip.exact(trajectory.t, position, constants)).max(axis=1)
    return {
        "final_state": float(error[-1]),
        "largest": float(error.max()),
        "leave_sliding": boundary_errors(trajectory, away),
        "enter_sliding": boundary_errors(trajectory, back),
    }


PROGRAM = program(
    __name__,
    simulated(simulate, errors, lambda errors: errors["final_state"] < TOLERANCE),
    simulate,
    quick=QUICK,
    method=METHOD,
    solver=SOLVER,
    fixed=("control_stages",),
)
