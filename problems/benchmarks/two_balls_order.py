"""Integration orders on two balls connected by a spring: `python -m problems.benchmarks.two_balls_order`.

The experiment of FESD-J, Section 5.1 and Fig. 6: the error of the state at the end, in the maximum norm over positions
[m] and velocities [m/s], against the exact motion, for both Runge-Kutta families and several numbers of stages.
Impacts do not cost order, because the method puts them on the grid. Two curves are added:

- without switch detection (fixed steps) there is no convergence at all: the ground catches the ball inside an element
  with a huge force, and the speed after that is arbitrary;
- Radau IIA with one stage damps the stiff spring of the paper (frequency 141 rad/s) so strongly that its order does
  not show on any grid of the experiment. It does on a softer spring.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import two_balls_spring
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from problems.benchmarks.orders import (
    FAMILIES,
    Convergence,
    check_names,
    figure_of,
    final_errors,
    nominal,
    results_of,
    rows_of,
)
from problems.runner import Meter, Report, program, tabled
from problems.settings import Settings
from tests.references.two_balls_spring import exact as exact_balls

METHOD = ns.FESDJ(finite_elements=2, error_tolerance=None)
# Fixed steps catch the ball by forces of about 1e5 N: there 1e-9 would be beyond the last digit.
SOLVER = SIMULATION_SOLVER.replace(infeasibility_tolerance=1e-8)
QUICK = {"steps": (200, 283, 400), "stages": (2, 3)}
START = (1.0, 2.0, 0.0, 0.0)
# The clean range, in units of the fastest impact (about 4 m/s). Below, rounding decides; above, the phase of the spring
# is off by so much that the error no longer follows a power of the step.
FLOOR, CEILING = 1e-11, 1e-1
SHOWN_STEPS = 400  # of the simulation in the picture
STIFF = two_balls_spring.PAPER.stiffness


def simulate(
    steps: int, *, stiffness: float, method: ns.FESDJ = METHOD, solver: ns.Homotopy = SOLVER, callback: Any = None
) -> ns.Trajectory:
    """Simulate the two balls for one second in `steps` steps; another solver than `SOLVER` solves them as MPCCs."""
    mpcc = None if solver == SOLVER else solver
    system = two_balls_spring.build(stiffness)
    return ns.simulate(system, x0=START, duration=1.0, steps=steps, method=method, solver=mpcc, callback=callback)


def converge(
    scheme: str,
    rk_stages: int,
    steps: Sequence[int],
    *,
    stiffness: float = STIFF,
    switch_detection: bool = True,
    method: ns.FESDJ = METHOD,
    solver: ns.Homotopy = SOLVER,
    callback: Any = None,
) -> Convergence:
    """Simulate with every number of steps and compare with the exact state at the end.

    With Radau IIA 1 on the stiff spring some long steps have no solution, and fixed steps do not converge at all.
    """
    exact = exact_balls(1.0, START[:2], START[2:], two_balls_spring.Constants(stiffness=stiffness))
    method = method.replace(scheme=scheme, rk_stages=rk_stages, switch_detection=switch_detection)
    errors, _ = final_errors(
        steps,
        lambda count: simulate(count, stiffness=stiffness, method=method, solver=solver, callback=callback),
        exact([1.0])[0],
    )
    order, soft, scale = nominal(scheme, rk_stages), stiffness < STIFF, max(-i.v_before[0] for i in exact.impacts)
    special = ("" if switch_detection else ", fixed") + (", soft" if soft else "")
    return Convergence(
        label=f"{FAMILIES[scheme]} {rk_stages}{special}",
        nominal=order if switch_detection else 0,
        steps=tuple(int(count) for count in steps),
        errors=errors,
        clean=(FLOOR * scale, CEILING * scale),
        must_solve=switch_detection and (order > 1 or soft),
    )


def measure(
    system: ns.CLS,
    trajectory: ns.Trajectory,
    stiffness: float = STIFF,
    restitution: float = two_balls_spring.PAPER.restitution,
) -> dict[str, float]:
    """Error of the state at the end against the exact motion, for sweeps; NaN where a step failed."""
    if not trajectory.success:
        return {"error": np.nan}
    start, end = trajectory.x[0], trajectory.t[-1]
    constants = two_balls_spring.Constants(stiffness=stiffness, restitution=restitution)
    exact = exact_balls(float(end), start[:2], start[2:], constants)
    return {"error": float(np.abs(trajectory.final_state - exact([end])[0]).max())}


def experiment(
    steps: tuple[int, ...] = (100, 141, 200, 283, 400, 566, 800, 1131, 1600),
    stages: tuple[int, ...] = (1, 2, 3, 4),
    schemes: tuple[str, ...] = ("radau_iia", "gauss_legendre"),
    stiffness: float = STIFF,
    soft_stiffness: float = 100.0,
    *,
    method: ns.FESDJ = METHOD,
    solver: ns.Homotopy = SOLVER,
    callback: Any = None,
) -> list[Convergence]:
    """All curves: the families, then Radau IIA 1 (if asked for) on the soft spring and Radau IIA 2 with fixed steps."""
    check_names(scheme=(schemes, FAMILIES))
    cases: list[dict[str, Any]] = [
        dict(scheme=scheme, rk_stages=count, stiffness=stiffness) for scheme in schemes for count in stages
    ]
    if 1 in stages:
        cases.append(dict(scheme="radau_iia", rk_stages=1, stiffness=soft_stiffness))
    cases.append(dict(scheme="radau_iia", rk_stages=2, stiffness=stiffness, switch_detection=False))
    return [converge(**case, steps=steps, method=method, solver=solver, callback=callback) for case in cases]


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment, and simulate once more for the picture of the motion (FESD-J, Fig. 5)."""
    arguments, method, solver = settings.arguments, settings.method, settings.solver
    meter = Meter(progress)
    curves = experiment(**arguments, method=method, solver=solver, callback=meter)
    shown = method.replace(scheme="radau_iia", rk_stages=3)
    stiffness = arguments["stiffness"]
    trajectory = simulate(SHOWN_STEPS, stiffness=stiffness, method=shown, solver=solver, callback=meter)
    found, success = results_of(curves, trajectory.success)
    return tabled(
        {**meter.results(trajectory), **found},
        success,
        {"largest error of the state at T = 1 s over N_sim [m, m/s]": rows_of(curves)},
        {
            "two_balls_order.png": lambda: figure_of(
                {name: [c for c in curves if c.label.startswith(name)] for name in FAMILIES.values()}
            ),
            "two_balls_trajectory.png": lambda: ns.plot(trajectory, trajectory.state_names),
        },
        [f"impacts of Radau IIA 3 with {SHOWN_STEPS} steps: {[event.time for event in trajectory.impacts]} s"],
    )


PROGRAM = program(
    __name__,
    run,
    experiment,
    quick=QUICK,
    method=METHOD,
    solver=SOLVER,
    fixed=("control_stages", "scheme", "rk_stages", "switch_detection"),
)
