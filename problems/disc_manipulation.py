"""One disc pushes another around an obstacle, and both swap places: `python -m problems.disc_manipulation`.

The manipulation task of FESD-J, Section 5.2: only disc 1 has a thrust, disc 2 moves only when it is touched; impacts
are inelastic, contact is frictionless. The task has many local optima, with objectives from about 650 to 1100. The
result depends on the initial guess and on every option.

The drag "printed" is the paper's, whose regularisation breaks the symmetry of the task. With "smooth" the zero guess
is a symmetric saddle (disc 1 is stuck before the obstacle), so a constant sideways thrust is the guess.

With `--set method=time_freezing solver=warm` the same by time-freezing, from the solution by FESD-J.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import two_discs_inelastic
from nosnoc_py.progress import Progress
from problems.runner import Report, program, tell
from problems.settings import Settings

OBSTACLE_RADIUS = 1.0
START = (-2.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0)
TARGET = (2.0, 0.0, -2.0, 0.0, 0.0, 0.0, 0.0, 0.0)

METHODS = {
    "fesdj": ns.FESDJ(control_stages=25, finite_elements=2, rk_stages=2, scheme="radau_iia"),
    "time_freezing": ns.TimeFreezing(
        a_n=100.0, fesd=ns.FESD(control_stages=25, finite_elements=3, rk_stages=2, scheme="radau_iia")
    ),
}
# Cold start, one core: Auto J = 687.0 with certificate S in 9.0 s; Homotopy() alone 699.2 in 18.7 s, with l_inf 685.7
SOLVERS = {
    "auto": ns.Auto(),
    "homotopy": ns.Homotopy(),
    "active_set": ns.ActiveSet(),
    "warm": ns.Homotopy(sigma_0=1e-3),
}
GUESSES: dict[str, tuple[float, float] | None] = {"printed": None, "smooth": (0.0, 5.0), "none": (0.0, 5.0)}
METHOD = METHODS["fesdj"]
QUICK = {"control_stages": 12}


def build(drag: str = "printed", horizon: float = 4.0) -> ns.OCP:
    """Return the optimal control problem.

    Parameters
    ----------
    drag : str
        "printed" (as in the paper), "smooth" or "none", see `models.two_discs_inelastic`.
    horizon : float
        T [s].

    Returns
    -------
    ns.OCP
        minimise the integral of |x - x_r|_Q^2 + |u|_R^2 plus |x(T) - x_r|_{Q_T}^2, with bounds on positions,
        velocities and thrust, and both discs outside the obstacle at the ends of all finite elements.
    """
    obstacle = ns.scene.Disc([0, 0], OBSTACLE_RADIUS, label="obstacle", colour="black")
    system = two_discs_inelastic.build(drag, scenery=[obstacle])
    weight = ca.diag(ca.DM([10.0] * 4 + [0.01] * 4))
    error = system.x - ca.DM(TARGET)
    distance = error.T @ weight @ error
    return ns.OCP(
        system,
        horizon=horizon,
        x0=START,
        stage_cost=distance + 0.1 * ca.sumsqr(system.u),
        terminal_cost=100.0 * distance,
        bounds=ns.Bounds(x=([-10.0] * 4 + [-5.0] * 4, [10.0] * 4 + [5.0] * 4), u=(-30.0, 30.0)),
        path_constraints=[_outside(system, k) for k in (0, 1)],
    )


def guess(drag: str = "printed") -> Any:
    """Return the default guess: None (every state at x0, all else zero: the paper's) or a constant thrust [N]."""
    return GUESSES[drag]


def run(settings: Settings, progress: Progress) -> Report:
    """Solve the task, certify, and report."""
    ocp, start = build(**settings.arguments), guess(settings.arguments["drag"])
    if isinstance(settings.method, ns.TimeFreezing):
        stages = settings.method.fesd.control_stages
        start = ns.solve(ocp, METHOD.replace(control_stages=stages), guess=start, callback=progress, certify=False)
    solution = ns.solve(ocp, settings.method, settings.solver, guess=start, callback=progress)
    certificate = solution.certificate or ns.certify(ocp, solution)  # certify failed solutions, too
    values = {
        "target_missed": float(np.abs(solution.final_state - TARGET)[:4].max()),
        "untouched_speed": untouched_speed(solution),
    }
    return Report(
        results={**solution.to_dict(), "certificate": certificate.to_dict(), **values},
        success=solution.success,
        show=lambda console: tell(console, solution, {**values, "certificate": certificate}),
        figures={
            "disc_manipulation_frames.png": lambda path: ns.snapshots(
                ocp.system, solution, np.linspace(0.0, solution.duration, 12), arrangement="panels", path=path
            ),
            "disc_manipulation.png": lambda path: ns.plot(solution, path=path),
        },
    )


def film(path: str | Path) -> Path:
    """Write a film of the plan under feedback, from a start at which every coordinate is 5 cm off."""
    ocp = build()
    plan = ns.solve(ocp, METHOD, certify=False)
    start = np.array(START) + np.array([0.05, -0.05, 0.05, 0.05, 0, 0, 0, 0])
    motion = ns.simulate(ocp.system, x0=start, duration=plan.duration, u=ns.track(plan))
    return Path(ns.animate(ocp.system, motion, path, frames_per_second=12, dots_per_inch=70))


def untouched_speed(solution: ns.Solution) -> float:
    """Return the largest speed of disc 2 before it is touched for the first time [m/s]."""
    touched = min((event.time for event in solution.impacts), default=solution.horizon)
    speed = np.hypot(solution["v_x_2"], solution["v_y_2"])[: np.searchsorted(solution.t, touched) + 1]
    return float(speed.max())


def _outside(system: ns.CLS, disc: int) -> ns.Constraint:
    position = system.q[2 * disc : 2 * disc + 2]
    clearance = OBSTACLE_RADIUS + two_discs_inelastic.PAPER.radii[disc]
    return ns.Constraint(ca.sumsqr(position) - clearance**2, 0.0, name=f"obstacle_{disc + 1}", at="element_ends")


PROGRAM = program(
    __name__, run, build, quick=QUICK, method=METHODS["fesdj"], methods=METHODS, solver=SOLVERS["auto"], solvers=SOLVERS
)
