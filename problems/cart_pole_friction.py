"""Swing-up of a pole on a cart with dry friction on its rail: `python -m problems.cart_pole_friction`.

Least effort from hanging to upright, both at rest, with Coulomb friction on the cart. The optimum lets the cart stick,
because the pole then swings without effort. The control is simulated once more, phase by phase and without finite
elements (see `models.cart_pole_friction`); both motions have to end at the same place. As the switching times depend on
the control, there are many local optima, and the guess chooses one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import cart_pole_friction as model
from problems.runner import optimised, program

UPRIGHT = (0.0, float(np.pi), 0.0, 0.0)
# Five stages keep the error of a motion that ends at an unstable equilibrium below 1e-6.
METHOD: Any = ns.FESD(control_stages=20, finite_elements=2, rk_stages=5)
QUICK = {"duration": 2.5, "rk_stages": 3}
FORCE_LIMIT, RAIL = 30.0, 3.0  # [N], [m]
GUESS = (5.0, 7.0)  # amplitude [N] and angular frequency [rad/s] of the force


def build(duration: float = 3.0, friction: float = model.STANDARD.friction) -> ns.OCP:
    """Return the optimal control problem: minimise the integral of u^2 from hanging to upright.

    Parameters
    ----------
    duration : float
        T [s].
    friction : float
        F on the cart [N].
    """
    system = model.build(model.Constants(friction=friction))
    limits = np.array([RAIL, 10.0, 10.0, 30.0])
    return ns.OCP(
        system,
        horizon=duration,
        x0=[0.0, 0.0, 0.0, 0.0],
        stage_cost=system.u**2,
        bounds=ns.Bounds(x=(-limits, limits), u=(-FORCE_LIMIT, FORCE_LIMIT)),
        terminal_constraints=[ns.Constraint(system.x, UPRIGHT, UPRIGHT, name="upright")],
    )


def guess(t: float) -> list[float]:
    """Return the force that the solver starts from [N]."""
    return [GUESS[0] * float(np.sin(GUESS[1] * t))]


def resimulated(solution: ns.Solution, friction: float) -> model.Motion:
    """Return the motion under the control of the solution, simulated without finite elements."""
    return model.simulate(solution.u[:, 0], solution.duration, solution.x0, model.Constants(friction=friction))


def sticks(solution: ns.Trajectory) -> list[tuple[float, float]]:
    """Return begin and end of the phases of stick [s]; one that begins at 0 is an event only at its end."""
    phases: list[tuple[float, float]] = []
    begin = solution.t0
    for event in solution.events:
        if event.kind == "enter_sliding":
            begin = event.time
        elif event.kind == "leave_sliding":
            phases.append((begin, event.time))
    if solution.events and solution.events[-1].kind == "enter_sliding":
        phases.append((begin, solution.t0 + solution.duration))
    return phases


def held_against(solution: ns.Solution, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the difference of the independent motion at the end, and the stick phases of both motions."""
    motion = resimulated(solution, arguments["friction"])
    return {
        "final_state": motion.x[-1],
        "final_error": float(np.abs(motion.x[-1] - solution.final_state).max()),
        "sticks": sticks(solution),
        "resimulated_sticks": motion.sticks,
    }


PROGRAM = program(
    __name__, optimised(build, held_against, lambda: guess), build, quick=QUICK, method=METHOD, solver=ns.Auto()
)
