"""Time-freezing of complementarity Lagrangian systems with inelastic impacts and friction."""

from __future__ import annotations

import numpy as np

from problems.reproduction.records import Results

GRAVITY = 9.81

LANDING = (2.0 / GRAVITY) ** 0.5  # of the particle from rest at 1 m [s]

BOUND = 10.0  # of |u_1| [N]


def event(results: Results, kind: str, name: str = "") -> float | None:
    """Return the numerical time of the first event of a kind."""
    times = (e["time"] for e in results["events"] if e["kind"] == kind and e["name"].startswith(name))
    return next(times, None)


def jump_end(results: Results) -> float | None:
    """Return the numerical time at which the normal velocity has become zero."""
    return event(results, "enter_sliding", "normal_velocity")


def ramp(results: Results) -> float | None:
    """Return the numerical time at which the clock shows 1 s."""
    return event(results, "switch", "ramp") or event(results, "cross", "ramp")


def lift_off(results: Results) -> float | None:
    """Return the numerical time at which the particle lifts off."""
    return event(results, "leave_sliding", "normal_velocity")


def slow_down(results: Results) -> float | None:
    """Return the mean speed of time from the end of the jump until the clock shows 1 s."""
    begin, end = jump_end(results), ramp(results)
    return None if begin is None or end is None else (1.0 - LANDING) / (end - begin)


def full_force(results: Results) -> tuple[bool, str]:
    """Check that the bound is reached before the impact and only there."""
    controls = np.abs(results["checks"]["controls"])
    stages = len(controls)
    before = int(LANDING / results["horizon"] * stages)
    most = controls[: before + 1].max()
    at_bound = int((controls > BOUND - 1e-4).sum())
    holds = most > BOUND - 1e-4 and controls[before + 1 :].max() < controls[:before].min()
    return holds, f"{most:.4g} N in the first {at_bound} intervals, {controls[before + 1]:.4g} N after the impact"


def above_the_best(results: Results) -> float:
    """Return the excess cost of a solution over the optimum with 20 intervals."""
    return float(results["objective"] - results["checks"]["reference"])


def speed_in_contact(results: Results) -> float:
    """Return the median of the speed of time from the interval after the impact on."""
    speeds = results["checks"]["speed_of_time"]
    return float(np.median(speeds[int(LANDING / results["horizon"] * len(speeds)) + 1 :]))


def fastest_at_jump(results: Results) -> tuple[bool, str]:
    """Check that the speed of time is highest in the interval of the impact."""
    speeds = results["checks"]["speed_of_time"]
    return int(np.argmax(speeds)) == int(LANDING / results["horizon"] * len(speeds)), f"s = {max(speeds):.4g} there"


def at_goal(results: Results) -> tuple[bool, str]:
    """Check that the terminal constraints hold, also for the true motion under the control."""
    missed = results["checks"]["goal_missed"]
    return results["status"] == "solved" and missed < 1e-6, f"missed by {missed:.0e} in an independent simulation"


def certified(results: Results) -> tuple[bool, str]:
    """Check that the motion is solved, and that the certificate has the same events in all windows."""
    certificate = results["certificate"]
    agree = sum(window["events_agree"] for window in certificate["windows"])
    text = f"{results['status']}, same events in {agree} of {len(certificate['windows'])} windows"
    defect = certificate["largest_defect"]
    return results["status"] == "solved" and agree == len(certificate["windows"]), f"{text}, defects up to {defect:.1e}"


def cold(results: Results) -> tuple[bool, str]:
    """Check that the solve without a guess ends at a solution."""
    text = f"{results['status']}, complementarity {results['complementarity']:.1e}"
    return results["status"] == "solved", f"{text}, infeasibility {results['infeasibility']:.1e}"
