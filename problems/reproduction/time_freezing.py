"""Time-freezing of complementarity Lagrangian systems with inelastic impacts and friction."""

from __future__ import annotations

import numpy as np

from problems.reproduction.records import Entry, Experiment, Paper, Results, out_of_scope
from problems.reproduction.verdicts import AtMost, Holds, Within

GRAVITY = 9.81
LANDING = (2.0 / GRAVITY) ** 0.5  # of the particle from rest at 1 m [s]
BOUND = 10.0  # of |u_1| [N]
TORQUE = 60.0  # bound [N m]

EXPERIMENTS = (
    Experiment(name="example_3", module="particle", settings={"example": 3}, quick={"example": 3}),
    Experiment(name="example_4", module="particle", settings={"example": 4}, quick={"example": 4}),
    Experiment(
        name="example_5",
        module="particle",
        settings={"example": 5},
        quick={"example": 5, "seconds": 5.0},
        may_fail=True,
    ),
    Experiment(name="robot", module="one_legged_hopper", timeout=7200.0, quick_timeout=500.0, may_fail=True),
    Experiment(
        name="robot_cold",
        module="one_legged_hopper",
        settings={"start": "rest", "control_stages": 20, "finite_elements": 3, "rk_stages": 3, "time_limit": 600.0},
        quick={
            "start": "rest",
            "control_stages": 20,
            "finite_elements": 3,
            "rk_stages": 3,
            "time_limit": 20.0,
        },
        timeout=2400.0,
        may_fail=True,
        figures=(),
    ),
)


def event(results: Results, kind: str, name: str = "") -> float | None:
    """Numerical time of the first event of a kind."""
    times = (e["time"] for e in results["events"] if e["kind"] == kind and e["name"].startswith(name))
    return next(times, None)


def jump_end(results: Results) -> float | None:
    """Where in numerical time the normal velocity has become zero."""
    return event(results, "enter_sliding", "normal_velocity")


def ramp(results: Results) -> float | None:
    """Where in numerical time the clock shows 1 s."""
    return event(results, "switch", "ramp") or event(results, "cross", "ramp")


def lift_off(results: Results) -> float | None:
    """Where in numerical time the particle lifts off."""
    return event(results, "leave_sliding", "normal_velocity")


def slow_down(results: Results) -> float | None:
    """Mean speed of time from the end of the jump until the clock shows 1 s."""
    begin, end = jump_end(results), ramp(results)
    return None if begin is None or end is None else (1.0 - LANDING) / (end - begin)


def full_force(results: Results) -> tuple[bool, str]:
    """The bound is reached before the impact and only there."""
    controls = np.abs(results["checks"]["controls"])
    stages = len(controls)
    before = int(LANDING / results["horizon"] * stages)
    most = controls[: before + 1].max()
    at_bound = int((controls > BOUND - 1e-4).sum())
    holds = most > BOUND - 1e-4 and controls[before + 1 :].max() < controls[:before].min()
    return holds, f"{most:.4g} N in the first {at_bound} intervals, {controls[before + 1]:.4g} N after the impact"


def speed_in_contact(results: Results) -> float:
    """Median of the speed of time from the interval after the impact on."""
    speeds = results["checks"]["speed_of_time"]
    return float(np.median(speeds[int(LANDING / results["horizon"] * len(speeds)) + 1 :]))


def fastest_at_jump(results: Results) -> tuple[bool, str]:
    """The speed of time is highest in the interval of the impact."""
    speeds = results["checks"]["speed_of_time"]
    return int(np.argmax(speeds)) == int(LANDING / results["horizon"] * len(speeds)), f"s = {max(speeds):.4g} there"


def at_goal(results: Results) -> tuple[bool, str]:
    """The terminal constraints hold, and the control really leads there."""
    missed = results["checks"]["goal_missed"]
    return results["status"] == "solved" and missed < 1e-6, f"missed by {missed:.0e} in an independent simulation"


def certified(results: Results) -> tuple[bool, str]:
    """The motion is solved, and the referee finds the same events in all windows."""
    found = results["certificate"]
    agree = sum(window["events_agree"] for window in found["windows"])
    text = f"{results['status']}, same events in {agree} of {len(found['windows'])} windows"
    defect = found["largest_defect"]
    return results["status"] == "solved" and agree == len(found["windows"]), f"{text}, defects up to {defect:.1e}"


def cold(results: Results) -> tuple[bool, str]:
    """Whether the cold start ends at a solution."""
    text = f"{results['status']}, complementarity {results['complementarity']:.1e}"
    return results["status"] == "solved", f"{text}, infeasibility {results['infeasibility']:.1e}"


ENTRIES = (
    out_of_scope("Table 1", "key symbols", "a list of symbols"),
    out_of_scope("Figs. 1, 2", "phase plots of the time-freezing system", "drawings, nothing is computed"),
    Entry(
        where="Fig. 3, Example 3",
        what="speed of time in contact until t = 1 s",
        experiment="example_3",
        read=slow_down,
        paper=0.5,
        agreement=Within(tolerance=1e-6, reason="closed form"),
    ),
    Entry(
        where="Fig. 3, Example 3",
        what="numerical time at t = 1 s",
        experiment="example_3",
        read=ramp,
        paper=2.0,
        agreement=Within(tolerance=1e-6, reason="closed form"),
    ),
    Entry(
        where="Fig. 3, Example 3",
        what="numerical time of the lift-off",
        experiment="example_3",
        read=lift_off,
        paper=2.8,
        agreement=Within(tolerance=0.051, reason="printed with one decimal"),
        remark="2.75 in closed form; the paper rounds. gamma has to be g / (2 g - u_2).",
    ),
    Entry(
        where="Fig. 3, Example 3",
        what="largest error of the trajectory over numerical time",
        experiment="example_3",
        read=("errors", "largest"),
        unit="m, m/s, s",
        remark="Against the closed form.",
    ),
    out_of_scope("Fig. 4", "the exact friction force and its approximation", "a drawing of Eqs. (21), (26)"),
    Entry(
        where="Fig. 5, Example 4",
        what="largest error of the trajectory over numerical time, mu = 0.6",
        experiment="example_4",
        read=("errors", "largest"),
        unit="m, m/s, s",
        remark="Against the closed form. In Eq. (32) rows 2 and 3 have alpha_3 and 1 - alpha_3 swapped and row 1 lacks "
        "a product; as printed, friction accelerates.",
    ),
    Entry(
        where="Fig. 6, Example 5",
        what="objective",
        experiment="example_5",
        read=("objective",),
        unit="N^2 s",
        remark="The best of the controls with 20 intervals is 72.6392783, over all controls 72.5773857. N_FE is 4: "
        "three elements do not do where a stop shares the interval of the impact.",
    ),
    Entry(
        where="Fig. 6, Example 5",
        what="above the optimum of 20 intervals, computed without time-freezing",
        experiment="example_5",
        read=lambda results: results["objective"] - results["checks"]["reference"],
        unit="N^2 s",
    ),
    Entry(
        where="Fig. 6, Example 5",
        what="the largest force before the impact, a smaller one after it",
        experiment="example_5",
        read=full_force,
        paper="shown",
        agreement=Holds(reason="bound of 10 N to 1e-4"),
        remark="The optimum over all controls leaves the bound shortly before the impact, too.",
    ),
    Entry(
        where="Fig. 6, Example 5",
        what="speed of time s_k in contact",
        experiment="example_5",
        read=speed_in_contact,
        paper=2.0,
        agreement=Within(tolerance=1e-6, reason="residuals"),
    ),
    Entry(
        where="Fig. 6, Example 5",
        what="s_k is highest in the interval of the jump",
        experiment="example_5",
        read=fastest_at_jump,
        paper="shown",
        agreement=Holds(reason="an order"),
    ),
    Entry(
        where="Fig. 6, Example 5",
        what="physical time at the end",
        experiment="example_5",
        read=("duration",),
        paper=2.0,
        unit="s",
        agreement=Within(tolerance=1e-8, reason="a constraint"),
    ),
    Entry(
        where="Example 5",
        what="q(T) = (3, 0), v(T) = 0",
        experiment="example_5",
        read=at_goal,
        paper="reached",
        agreement=Holds(reason="1e-6 in an event-driven simulation of the control"),
    ),
    Entry(
        where="Section 6",
        what="the robot, solved on the grid of the paper (N = 20, N_FE = 3, n_s = 3) from rest, no hint",
        experiment="robot_cold",
        read=cold,
        paper="solved",
        agreement=Holds(reason="status and residuals of the unrelaxed problem"),
        remark="By FESD-J; time-freezing ends the same way.",
        why="The holes touch, so that the foot may stand near x = 0, 1, 2, 3 only, and the straight leg at the start "
        "and at the goal is singular. No solution was found on this grid in many attempts; whether there is one is "
        "open. The options of the paper's homotopy are not printed, and its linear solver is another one.",
    ),
    Entry(
        where="Fig. 7",
        what="the robot hops over the holes to its goal (order of the contacts given, N = 84)",
        experiment="robot",
        read=certified,
        paper="shown",
        agreement=Holds(reason="windows of 0.06 s, simulated anew"),
        remark="Where the foot stands is an input here, when it leaves and lands is found. With --quick: one hole.",
    ),
    Entry(
        where="Section 6",
        what="objective of the robot",
        experiment="robot",
        read=("objective",),
        unit="N^2 m^2 s",
        remark="With free breakpoints of the control about 105 is known.",
        quick=False,
    ),
    Entry(
        where="Fig. 8",
        what="bound of the torques",
        experiment="robot",
        read=lambda results: results["largest_torque"],
        paper=TORQUE,
        unit="N m",
        agreement=AtMost(slack=1e-6, reason="a constraint, with the margin of the solver"),
        remark="The curves themselves are those of another motion.",
    ),
    out_of_scope("Section 6", "linear solver MA57", "proprietary; MUMPS is used"),
    out_of_scope("Section 6", "the robot Capler", "hardware; the model is used"),
)

PAPER = Paper(
    name="time_freezing",
    title="The time-freezing reformulation for numerical optimal control of complementarity Lagrangian systems with "
    "state jumps",
    subject="impacts as motions of a Filippov system; optimal control of a particle and of a robot that hops",
    experiments=EXPERIMENTS,
    entries=ENTRIES,
)
