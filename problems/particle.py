"""A particle that lands, slides and is lifted off, by time-freezing: `python -m problems.particle`.

The guiding example of time-freezing. Examples 3 (without friction) and 4 (with it) are simulations in numerical time
under a control that is a function of the clock, `--set example=3` or `4`; their closed form is in
`models.particle`. Example 5 is an optimal control problem, solved from the default start (all states at x0, no force,
no contact sequence); its reference is in `tests.references.particle`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

import nosnoc_py as ns
from models import particle
from nosnoc_py.errors import OptionError
from nosnoc_py.progress import Progress
from nosnoc_py.reformulation.time_freezing import Frozen
from problems.runner import Meter, Report, program, tell
from problems.settings import Settings
from tests.references import particle as references

GOAL = (references.GOAL, 0.0, 0.0, 0.0)
SPACE = ([-10.0, -1.0, -20.0, -20.0], [10.0, 10.0, 20.0, 20.0])  # wide bounds of the states: inactive
CONSTANTS = {3: particle.FRICTIONLESS, 4: particle.FRICTIONAL}
DURATION = 3.5  # numerical time of Examples 3 and 4

# The lift-off (Examples 3, 4) is an event of third order: the step in which it lies decides over the error, which is
# 1e-4 with 10 steps and 2e-8 with 36.
SIMULATION = ns.FESD(finite_elements=3, rk_stages=3)
STEPS = 36
METHOD = ns.TimeFreezing(a_n=9.81, fesd=ns.FESD(control_stages=20, finite_elements=4, rk_stages=2))
# FESD-J finds this local optimum from the motion under the control of time-freezing, not from the default start.
OTHER = ns.FESDJ(control_stages=20, finite_elements=4, rk_stages=2)
OTHER_SOLVER = ns.Homotopy(sigma_0=1e-3)
QUICK = {"example": 3}


def controlled(frozen: Frozen, constants: particle.Constants) -> ns.Heaviside:
    """Return the frozen particle under the control of Examples 3 and 4, a function of the clock.

    The clock is a state, so the ramp is a step function of it like those of the contact: u_2 = 2 g alpha (t - 1) with
    alpha in Heaviside(t - 1). The control law is exact at every stage. The numerical time at which the clock shows 1 is
    a result, not an input.
    """
    system, clock, ramp = frozen.system, frozen.system.x[-1], ca.SX.sym("alpha_ramp")
    since = clock - particle.RAMP_START
    u = ca.vertcat(constants.thrust, 2.0 * constants.gravity * ramp * since)
    assert system.algebraic is not None
    return evolve(
        system,
        u=None,
        names={"x": system.state_names},
        units={name: unit for name, unit in system.units.items() if name not in system.control_names},
        nominal={"x": system.x_nominal},
        alpha=ca.vertcat(system.alpha, ramp),
        functions=ca.vertcat(system.functions, since),
        function_names=(*(system.function_names or ()), "ramp"),
        flow=ca.substitute(system.flow, system.u, u),
        algebraic=evolve(system.algebraic, equations=ca.substitute(system.algebraic.equations, system.u, u)),
    )


def simulate(constants: particle.Constants, steps: int = STEPS, callback: Any = None) -> ns.Trajectory:
    """Simulate Examples 3 and 4 in numerical time: states x, y, v_x, v_y, clock over tau."""
    frozen = ns.freeze(particle.build(constants.friction, gravity=constants.gravity), a_n=constants.auxiliary)
    system = controlled(frozen, constants)
    start = (*particle.START, 0.0)
    return ns.simulate(system, x0=start, duration=DURATION, method=SIMULATION, steps=steps, callback=callback)


def build() -> ns.OCP:
    """Return Example 5: from rest at (0, 1) to rest at (3, 0) in 2 s, least integral of u_1^2, |u_1| <= 10."""
    system = particle.build(references.FRICTION, controls=1, gravity=references.GRAVITY)
    return ns.OCP(
        system,
        horizon=references.DURATION,
        x0=particle.START,
        stage_cost=system.u[0] ** 2,
        terminal_constraints=[ns.Constraint(system.x - ca.DM(GOAL), 0.0, 0.0, name="goal")],
        bounds=ns.Bounds(u=(-references.BOUND, references.BOUND), x=SPACE),
    )


def solve_by_jumps(ocp: ns.OCP, solution: ns.Solution, time_limit: float | None = None) -> ns.Solution:
    """Solve the same problem by FESD-J, from the motion under the control of a solution."""
    stages = len(solution.u)
    method = OTHER.replace(control_stages=stages)
    start = ns.simulate(
        ocp.system,
        x0=particle.START,
        duration=ocp.horizon,
        u=solution,
        method=method.replace(control_stages=1),
        steps=stages,
    )
    return ns.solve(ocp, method, OTHER_SOLVER, guess=start, time_limit=time_limit, certify=False)


def run(settings: Settings, progress: Progress) -> Report:
    """Simulate, or solve and check, the chosen example."""
    example = settings.arguments["example"]
    if example == 5:
        return _optimal_control(settings, progress)
    if example in CONSTANTS:
        return _simulation(example, settings, progress)
    raise OptionError(f"example: expected 3, 4 or 5, given {example!r}.")


def _simulation(example: int, settings: Settings, progress: Progress) -> Report:
    method: Any = settings.method
    constants = replace(CONSTANTS[example], auxiliary=method.a_n)
    meter = Meter(progress)
    trajectory = simulate(constants, settings.arguments["steps"], meter)
    error = trajectory.x - particle.exact(trajectory.t, constants)
    errors = {"final_state": float(np.abs(error[-1]).max()), "largest": float(np.abs(error).max())}
    return Report(
        results={**meter.results(trajectory), "errors": errors},
        success=trajectory.success,
        show=lambda console: tell(console, trajectory, errors),
        figures={f"particle_example_{example}.png": lambda path: ns.plot(trajectory, path=path)},
    )


def _optimal_control(settings: Settings, progress: Progress) -> Report:
    ocp = build()
    solution = ns.solve(ocp, settings.method, settings.solver, callback=progress)
    checks = {
        **resimulated(ocp, solution),
        "reference": references.piecewise_constant_optimum(len(solution.u)).objective,
        "continuous": references.continuous_optimum().objective,
        "quadrature": float(references.DURATION / len(solution.u) * np.sum(solution.u**2)),
        "speed_of_time": speeds(solution),
        "controls": [float(value) for value in solution.u[:, 0]],
        "goal_claimed": float(np.abs(solution.final_state - GOAL).max()),
    }
    certificate = solution.certificate or ns.certify(ocp, solution)  # certify failed solutions, too
    jumps = solve_by_jumps(ocp, solution, settings.arguments["seconds"])
    return Report(
        results={
            **solution.to_dict(),
            "checks": checks,
            "certificate": certificate.to_dict(),
            "by_jumps": {"status": jumps.status.value, "objective": jumps.objective},
        },
        success=solution.success,
        show=lambda console: tell(
            console, solution, {**checks, "objective by FESD-J": jumps.objective, "certificate": certificate}
        ),
        figures={"particle_example_5.png": lambda path: ns.plot(solution, path=path)},
    )


def speeds(solution: ns.Solution) -> list[float]:
    """Return the speed of time in every control stage (N,)."""
    assert solution.numerical is not None
    return [float(value) for value in solution.numerical["speed_of_time"]]


def resimulated(ocp: ns.OCP, solution: ns.Solution) -> dict[str, Any]:
    """Return the true motion under the control of a solution: event by event, and by the independent closed form."""
    end = ns.simulate(
        ocp.system, x0=particle.START, duration=ocp.horizon, u=solution, method=ns.EventDriven()
    ).final_state
    exact = references.exact_motion(solution.u[:, 0], ocp.horizon).state
    return {"resimulated_end": end, "goal_missed": float(np.abs(end - GOAL).max()), "exact_end": exact}


PROGRAM = program(
    __name__,
    run,
    {"example": 5, "steps": STEPS, "seconds": 60.0},
    quick=QUICK,
    method=METHOD,
    solver=ns.Auto(),
    fixed=("fesd", "epsilon_t", "stiffness"),
)
