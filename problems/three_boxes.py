"""One box pushes two others to their places: `python -m problems.three_boxes`.

The optimal control problem of FESD-J, Section 5.3: the middle box, the only one with a force, hits the left box
(inelastic) and the right box (restitution 0.5), so that friction stops them at their targets, and returns to its place.
The problem has many local optima: which boxes are hit, how often, and in which order.

The motion reduces exactly to three coordinates (see `models.three_boxes`). The control of every solution is
simulated once more, event by event and without discretisation, and both objectives are shown. The certificate does the
same with the full model.

The plain call finds the motion, with the control constant on the intervals of the paper; `--set method=fesdj` solves
the finite elements of the paper instead, from a start without impacts.

With `--set method=touches` the sequence of two impacts after which no box pushes another is prescribed, as the paper
describes its solution; cheaper motions push.

With `--set method=time_freezing solver=warm` the same by time-freezing, from a simulation of the best control known (a
cold start is beyond it), and without friction between the boxes, for which it has no auxiliary motion where they
bounce; the motions are the same.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import three_boxes
from nosnoc_py.progress import Progress
from problems.runner import Report, program, tell
from problems.settings import Settings
from tests.references.three_boxes import (
    CONTROL_WEIGHT,
    HORIZONTAL,
    TARGET,
    TERMINAL_FACTOR,
    WEIGHTS,
    reduced_simulation,
)

# The best of 29 local searches over the exact reduced motion: objective 301.8304541 (301.749 with the quadrature of
# METHOD), impacts at 0.32018 and 1.12562 s. Every control stage has one event at most: METHOD represents it exactly.
KNOWN_CONTROL: tuple[float, ...] = (
    *(-21.47107287, 25.48793326, -2.81308459, -1.1360743, -4.50757315, -2.15269526, -1.07174134, -0.44022868),
    *[0.0] * 7,
)


def _on_the_ground(left: str, middle: str, right: str) -> dict[str, str]:
    """Return the modes of the three contacts with the ground."""
    return {"ground_left": left, "ground_middle": middle, "ground_right": right}


# Two impacts, and no contact between boxes besides: the other times are those of a cheaper motion that pushes.
TOUCHES = ns.Sequence(
    [
        _on_the_ground("stick", "slip-", "stick"),
        "impact left_middle",
        _on_the_ground("slip-", "slip-", "stick"),
        _on_the_ground("slip-", "slip+", "stick"),
        "impact middle_right",
        _on_the_ground("slip-", "slip+", "slip+"),
        _on_the_ground("slip-", "slip-", "slip+"),
        _on_the_ground("stick", "slip-", "slip+"),
        _on_the_ground("stick", "slip-", "stick"),
        _on_the_ground("stick", "stick", "stick"),
    ],
    times=[0.2817, 0.4047, 0.9763, 1.1875, 2.2869, 2.7265, 2.8196],
)

METHOD = ns.FESDJ(control_stages=15, finite_elements=2, rk_stages=2, scheme="radau_iia", impulse_form="sum")
METHODS = {
    "search": ns.Search(program=ns.MultiPhase(intervals=15, grid="equal")),
    "fesdj": METHOD,
    "touches": ns.MultiPhase(sequence=TOUCHES),
    "time_freezing": ns.TimeFreezing(
        a_n=100.0, fesd=ns.FESD(control_stages=15, finite_elements=5, rk_stages=2, scheme="radau_iia")
    ),
}
SOLVERS = {
    "auto": ns.Auto(),
    "homotopy": ns.Homotopy(),
    "active_set": ns.ActiveSet(),
    "warm": ns.Homotopy(sigma_0=1e-4),
}
QUICK = {"horizon": 0.8, "control_stages": 2, "side_friction": 0.0, "method": "fesdj", "solver": "active_set"}


def build(horizon: float = 6.0, side_friction: float = three_boxes.PAPER.sides[0]) -> ns.OCP:
    """Return the optimal control problem (FESD-J, Eq. 38).

    Parameters
    ----------
    horizon : float
        T [s].
    side_friction : float
        Friction between boxes; 0 gives the same motions with fewer variables.

    Returns
    -------
    ns.OCP
        minimise the integral of |x - x_r|_Q^2 + |u|_R^2 plus |x(T) - x_r|_{Q_T}^2, with bounds on positions,
        velocities and the force.
    """
    system = three_boxes.build(three_boxes.Constants(sides=(side_friction, side_friction)))
    error = system.x - ca.DM(TARGET)
    distance = ca.dot(ca.DM(WEIGHTS), error**2)
    return ns.OCP(
        system,
        horizon=horizon,
        x0=three_boxes.START,
        stage_cost=distance + CONTROL_WEIGHT * ca.sumsqr(system.u),
        terminal_cost=TERMINAL_FACTOR * distance,
        bounds=ns.Bounds(x=(-10.0, 10.0), u=(-30.0, 30.0)),
    )


def run(settings: Settings, progress: Progress) -> Report:
    """Solve the task, simulate the control of the solution, certify, and report."""
    method, ocp, guess = settings.method, build(**settings.arguments), None
    phases = isinstance(method, ns.MultiPhase | ns.Search)  # methods that solve their programs themselves
    if isinstance(method, ns.MultiPhase | ns.TimeFreezing):
        stages = None
        if isinstance(method, ns.TimeFreezing):
            ocp, stages = build(**{**settings.arguments, "side_friction": 0.0}), method.fesd.control_stages
        control = np.array(KNOWN_CONTROL)[:stages, None]
        motion = {"x0": ocp.x0, "duration": ocp.horizon, "u": control}
        guess = ns.simulate(ocp.system, **motion, method=ns.EventDriven())
    solution = ns.solve(ocp, method, None if phases else settings.solver, guess=guess, callback=progress)
    true_motion = resimulated(solution)
    certificate = solution.certificate or ns.certify(ocp, solution)  # certify failed solutions, too
    return Report(
        results={**solution.to_dict(), "resimulation": true_motion, "certificate": certificate.to_dict()},
        success=solution.success,
        show=lambda console: tell(console, solution, {**true_motion, "certificate": certificate}),
        figures={
            "three_boxes_frames.png": lambda path: ns.snapshots(
                ocp.system, solution, np.linspace(0.0, solution.duration, 10), arrangement="panels", path=path
            ),
            "three_boxes.png": lambda path: ns.plot(solution, path=path),
        },
    )


def resimulated(solution: ns.Solution) -> dict[str, Any]:
    """Return the exact motion under the control of a solution: objective, impacts, and error of the final state."""
    motion, objective = reduced_simulation(solution.u[:, 0], solution.duration)
    end = solution.final_state[list(HORIZONTAL)]
    return {
        "objective": objective,
        "impacts": [vars(impact) for impact in motion.impacts],
        "final_state": motion.end,
        "final_error": float(np.abs(motion.end - end).max()),
    }


PROGRAM = program(
    __name__,
    run,
    build,
    quick=QUICK,
    method=METHODS["search"],
    methods=METHODS,
    solver=SOLVERS["auto"],
    solvers=SOLVERS,
)
