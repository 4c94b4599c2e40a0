"""A block sticks and slips on a moving belt: `python -m problems.stick_slip`.

Several cycles of stick and slip against the closed form of `models.stick_slip`, which is made of harmonic pieces. Stick
is a sliding mode; it begins with a switch and ends tangentially, and FESD lands on both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console

import nosnoc_py as ns
from models import stick_slip
from models.stick_slip import Constants
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from problems.runner import Meter, Report, program, table
from problems.settings import Settings
from problems.switching_cases import boundary_errors

METHOD = ns.FESD(finite_elements=3, rk_stages=3)
SOLVER = SIMULATION_SOLVER
QUICK = {"duration": 2.0, "steps": 30}
STANDARD = stick_slip.STANDARD
TOLERANCE = 1e-6  # of the state at the end, for success [m, m/s]


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
    stick_slip.exact([0.0], position, constants)  # refuses what cannot stick before anything is solved
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
    """The model's constants among the arguments of `simulate`."""
    return Constants(**{name: arguments[name] for name in ("belt", "friction", "decrease", "stiffness")})


def errors(trajectory: ns.Trajectory, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Errors of the state at the end, of all element boundaries, and of the times of the events [s]."""
    constants, position = constants_of(arguments), arguments["position"]
    away, back = stick_slip.event_times(float(trajectory.t[-1]), position, constants)
    error = np.abs(trajectory.x - stick_slip.exact(trajectory.t, position, constants)).max(axis=1)
    return {
        "final_state": float(error[-1]),
        "largest": float(error.max()),
        "leave_sliding": boundary_errors(trajectory, away),
        "enter_sliding": boundary_errors(trajectory, back),
    }


def run(settings: Settings, progress: Progress) -> Report:
    """Simulate and compare."""
    meter = Meter(progress)
    progress.expect(steps=settings.arguments["steps"])
    trajectory = simulate(**settings.arguments, method=settings.method, solver=settings.solver, callback=meter)
    found, constants = errors(trajectory, settings.arguments), constants_of(settings.arguments)
    times = {"period": constants.period, "slip_time": constants.slip_time, "stick_time": constants.stick_time}
    return Report(
        results={**meter.results(trajectory), **times, "errors": found},
        success=trajectory.success and found["final_state"] < TOLERANCE,
        show=lambda console: _show(console, trajectory, found, constants),
        figures={"stick_slip.png": lambda path: _drawing().stick_slip(trajectory, constants, path)},
    )


def _show(console: Console, trajectory: ns.Trajectory, found: Mapping[str, Any], constants: Constants) -> None:
    console.print(
        f"{trajectory.status}; cycle of {constants.period:.9f} s: slip {constants.slip_time:.9f} s, stick rest"
    )
    rows = table("events", "number", "largest error [s]", title="element boundaries next to the exact events")
    for kind, what in (("enter_sliding", "slip to stick"), ("leave_sliding", "stick to slip, tangential")):
        rows.add_row(what, str(len(found[kind])), f"{max(found[kind], default=np.nan):.1e}")
    console.print(rows)
    console.print(
        f"largest error of the state: {found['largest']:.1e}, at the end {found['final_state']:.1e} [m, m/s]",
        markup=False,
    )


def _drawing() -> Any:
    from problems.drawing import filippov  # matplotlib is slow to import and not needed with --json

    return filippov


PROGRAM = program(__name__, run, simulate, quick=QUICK, method=METHOD, solver=SOLVER, fixed=("control_stages",))
