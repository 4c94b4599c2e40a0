"""A robot on one leg hops over holes that touch each other: `python -m problems.one_legged_hopper`.

The optimal control problem of the time-freezing paper, Section 6: from standing at x = 0 to standing at x = 3 m, in
2.5 s with the least torque, the foot outside of three ellipses. They touch, so it may stand at x = 0, 1, 2, 3 only.
`--quick` hops over one of them in 1.5 s.

The start "hops" prescribes where the foot stands, one hop per hole: the order of contacts is an input, not a result.
Smooth programs compute the times of lift-off and landing, first with free durations, then on the control grid:
lift-offs between two control stages, landings within one. The finite elements are then solved with these contacts. All
programs have margins to slip and to lift-off, because stances with a nearly straight leg show Painleve's paradox: once
the foot slips, no acceleration may be admissible.

Measured values: N_FE is 2, and the residuals are those of the task without margins, except in the last line. In a
window the certificate simulates the control again from the solution's own state:

    holes   T    N   n_s  start       J      complementarity  infeasibility  windows that agree  largest defect
    1      1.5   50   5   hops       70.9       1.6e-10          2.0e-7            25/25             1.6e-4
    3      2.5   84   5   hops      180.2       4.3e-10          4.0e-9            42/42             2.9e-4
    3      2.5   84   5   by hand   295.7       2.1e-9           1.2e-7            41/41             3.4e-3
    3      2.5   60   6   by hand   273.3       1.0e-9           1.0e-8            42/42             6.2e-2
    3      2.5   20   3   cold        -         0.99             20                  -                 -

The first two lines are `--quick` (a minute or two) and the default (about ten minutes). Their verdict
is "same events, inaccurate": no event is missing, and the defects are those of the discretisation. Two earlier motions
over three holes, the first with windows of 0.061 s, are chains of the same programs whose restarts and margins were set
by hand. The last line is the grid of the paper, with three elements (time-freezing: 0.032 and 3.0). Optimality is not
proved; with free breakpoints of the control motions over three holes with J near 105 are known. A motion is
unstable: its control, simulated from t = 0 on without feedback, soon leaves it.

The holes are imposed at the ends of elements and, 1 % smaller, at the RK stages.

The verdicts hold for these windows, of two control stages each. Those twice as long agree, too, over three holes, and
those half as long over one. Windows that begin between nodes do not all: there the foot is at rest up to the error of
discretisation only, the referee takes that for slip, and with a leg of Painleve's kind the simulation stops (1 of 24
windows over one hole; 1 of 41 over three, where four others have defects up to 6e-3). Nor can windows be simulated that
begin with the second or third release (2 of 84).
"""

from __future__ import annotations

import time

import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks.hopper_ladder import climb
from problems.benchmarks.hopper_task import build, glide
from problems.runner import Report, program, tell
from problems.settings import Settings, defaults_of

WINDOW = 0.06  # of the certificate [s]
STARTS = ("hops", "glide", "rest")
SOLVERS = {
    "robust": ns.Homotopy(steering="l_inf", sigma_0=10.0, step_tolerances=True),
    "auto": ns.Auto(),
    "homotopy": ns.Homotopy(),
}
METHOD = ns.FESDJ(control_stages=84, finite_elements=2, rk_stages=5, gap_rate=True, isolate_forces=False)
QUICK = {"holes": 1, "horizon": 1.5, "joint_rate": 40.0, "control_stages": 50}


def run(settings: Settings, progress: Progress) -> Report:
    """Solve the task, certify in windows, and report."""
    arguments = {name: value for name, value in settings.arguments.items() if name != "start"}
    start, ocp = settings.arguments["start"], build(**arguments)
    if start not in STARTS:
        raise ns.UnknownNameError(start, STARTS, "start")
    started = time.monotonic()
    if start == "hops":
        solution = climb(arguments, settings.method, progress)
    else:
        guess = glide(ocp, arguments["holes"]) if start == "glide" else None
        solution = ns.solve(ocp, settings.method, settings.solver, guess=guess, callback=progress, certify=False)
    seconds = time.monotonic() - started  # the solution's own record does not include the smooth programs
    certificate = ns.certify(ocp, solution, window=WINDOW, time_limit=300.0)
    return Report(
        results={
            **solution.to_dict(),
            "wall_seconds": seconds,
            "largest_torque": float(np.abs(solution.u).max()),
            "certificate": certificate.to_dict(),
        },
        success=solution.success,
        show=lambda console: tell(console, solution, {"certificate": certificate}),
        figures={
            "one_legged_hopper_frames.png": lambda path: ns.snapshots(
                ocp.system, solution, np.linspace(0.0, solution.duration, 40), path=path
            ),
            "one_legged_hopper_torques.png": lambda path: ns.plot(solution, [ocp.system.control_names], path=path),
            "one_legged_hopper_contact.png": lambda path: ns.plot(
                solution, [name for name in solution.series if name.lower().startswith("lambda")], path=path
            ),
        },
    )


PROGRAM = program(
    __name__,
    run,
    {**defaults_of(build), "start": "hops"},
    quick=QUICK,
    method=METHOD,
    solver=SOLVERS["robust"],
    solvers=SOLVERS,
)
