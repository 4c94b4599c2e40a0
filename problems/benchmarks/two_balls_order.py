"""Integration orders on two balls connected by a spring: `python -m problems.benchmarks.two_balls_order`.

The experiment of FESD-J, Section 5.1 and Fig. 6: the error of the state at the end, in the maximum norm over positions
[m] and velocities [m/s], against the exact motion, for both Runge-Kutta families and several numbers of stages.
Impacts do not cost order, because the method puts them on the grid. Three curves are added:

- without switch detection (fixed steps) there is no convergence at all: the ground catches the ball inside an element
  with a huge force, and the speed after that is arbitrary;
- Radau IIA with one stage damps the stiff spring of the paper (frequency w = 141 rad/s) so strongly that its order does
  not show on any grid of the experiment: amplitudes decay as exp(-w^2 h t / 2), so an order needs h far below
  2 / (w^2 T) = 1e-4 s. With more steps than an ordinary simulation can make it shows: between impacts the motion is
  linear, so that many equal steps are a power of the matrix of one (`implicit_euler`).
- It shows with the steps of the experiment on a softer spring.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq

import nosnoc_py as ns
from models import two_balls_spring
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from problems.benchmarks.orders import (
    FAMILIES,
    Convergence,
    Example,
    check_names,
    figure_of,
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
# Numbers of steps at which implicit Euler has its order on the stiff spring: h from 2e-5 to 6e-7 s.
FINE_STEPS = (25600, 51200, 102400, 204800, 409600, 819200)
BLOCK = 4096  # steps whose gaps are checked together
SHOWN_STEPS = 400  # steps of the simulation in the figure
STIFF = two_balls_spring.PAPER.stiffness


def example(stiffness: float = STIFF, method: ns.FESDJ = METHOD) -> Example:
    """Return the two balls with a spring [N/m], by default that of the paper, for one second."""
    exact = exact_balls(1.0, START[:2], START[2:], two_balls_spring.Constants(stiffness=stiffness))
    scale = max(-impact.v_before[0] for impact in exact.impacts)
    return Example(
        title=f"two balls, spring of {stiffness:g} N/m (impacts)",
        system=two_balls_spring.build(stiffness),
        method=method,
        start=START,
        duration=1.0,
        end=exact([1.0])[0],
        clean=(FLOOR * scale, CEILING * scale),
    )


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
    """Simulate with every number of steps; another solver than `SOLVER` solves them as MPCCs.

    With Radau IIA 1 on the stiff spring some long steps have no solution, and fixed steps do not converge at all.
    """
    method = method.replace(scheme=scheme, rk_stages=rk_stages, switch_detection=switch_detection)
    soft, given = stiffness < STIFF, {"solver": None if solver == SOLVER else solver, "callback": callback}
    must_solve = nominal(scheme, rk_stages) > 1 or soft
    return example(stiffness).converge(method, steps, ", soft" if soft else "", must_solve=must_solve, **given)[0]


def implicit_euler(steps: int, constants: two_balls_spring.Constants) -> np.ndarray:
    """Return the state after 1 s of FESD-J with Radau IIA 1 and two elements in a step, by powers of matrices.

    In a step with an impact the first element ends there, as the switch detection demands; all others have elements of
    equal length. States are (height_1, height_2, velocity_1, velocity_2, 1).
    """
    k, g, length = constants.stiffness, constants.gravity, constants.rest_length
    (m_1, m_2), radius = constants.masses, constants.radius
    rates = np.zeros((5, 5))
    rates[:2, 2:4] = np.eye(2)
    rates[2] = np.array([-k, k, 0.0, 0.0, -k * length]) / m_1
    rates[3] = np.array([k, -k, 0.0, 0.0, k * length]) / m_2
    rates[2:4, 4] -= g

    def element(h: float) -> np.ndarray:
        return np.linalg.inv(np.eye(5) - h * rates)

    x, h, done = np.array([*START, 1.0]), 0.5 / steps, 0
    powers = [element(h)]
    while 2 ** len(powers) < 2 * BLOCK:
        powers.append(powers[-1] @ powers[-1])
    while done < steps:
        ends = (powers[0] @ x)[None]
        for power in powers:
            ends = np.vstack([ends, ends @ power.T])  # twice as many elements
        ends = ends[: 2 * min(BLOCK, steps - done)]
        below = np.flatnonzero(ends[:, 0] < radius)
        if not below.size:
            x, done = ends[-1], done + ends.shape[0] // 2
            continue
        step = below[0] // 2
        x = ends[2 * step - 1] if step else x
        first = float(brentq(lambda part: (element(part) @ x)[0] - radius, 1e-9 * h, 2.0 * h, xtol=1e-20))  # noqa: B023
        x = element(first) @ x
        x[0], x[2] = radius, -constants.restitution * x[2]
        x, done = element(2.0 * h - first) @ x, done + step + 1
    return np.asarray(x[:4])


def fine(stiffness: float = STIFF, steps: Sequence[int] = FINE_STEPS) -> Convergence:
    """Return the errors of Radau IIA 1 where its order shows on the stiff spring."""
    constants, balls = two_balls_spring.Constants(stiffness=stiffness), example(stiffness)
    errors = tuple(float(np.abs(implicit_euler(count, constants) - balls.end).max()) for count in steps)
    return Convergence(label="Radau 1, fine", nominal=1, steps=tuple(steps), errors=errors, clean=balls.clean)


def measure(
    system: ns.CLS,
    trajectory: ns.Trajectory,
    stiffness: float = STIFF,
    restitution: float = two_balls_spring.PAPER.restitution,
) -> dict[str, float]:
    """Return the error of the final state against the exact motion, for sweeps; NaN if a step failed."""
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
    """Return all curves: the families, Radau IIA 1 on the soft spring and with fine steps, then fixed steps."""
    check_names(scheme=(schemes, FAMILIES))
    cases: list[dict[str, Any]] = [
        dict(scheme=scheme, rk_stages=count, stiffness=stiffness) for scheme in schemes for count in stages
    ]
    if 1 in stages:
        cases.append(dict(scheme="radau_iia", rk_stages=1, stiffness=soft_stiffness))
    powers = [fine(stiffness)] if 1 in stages and "radau_iia" in schemes else []
    cases.append(dict(scheme="radau_iia", rk_stages=2, stiffness=stiffness, switch_detection=False))
    curves = [converge(**case, steps=steps, method=method, solver=solver, callback=callback) for case in cases]
    return [*curves[:-1], *powers, curves[-1]]


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment, and simulate once more for the figure of the motion (FESD-J, Fig. 5)."""
    arguments, method, solver = settings.arguments, settings.method, settings.solver
    meter = Meter(progress)
    curves = experiment(**arguments, method=method, solver=solver, callback=meter)
    shown = method.replace(scheme="radau_iia", rk_stages=3)
    given = {"solver": None if solver == SOLVER else solver, "callback": meter}
    trajectory = example(arguments["stiffness"], shown).simulate(SHOWN_STEPS, **given)
    results, success = results_of(curves, trajectory.success)
    return tabled(
        {**meter.results(trajectory), **results},
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
