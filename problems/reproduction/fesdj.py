"""FESD-J: finite elements with switch and jump detection for rigid bodies with friction and impact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from problems.reproduction.records import Results

# Impacts of the two balls, from the closed form of the motion between them [s].
IMPACTS = (0.403855021876922, 0.423316968814707)

GROUNDS = ("ground_left", "ground_middle", "ground_right")

TARGET = (-7.0, 0.0, 6.0)  # of the boxes [m]


def largest_time_error(results: Results) -> float:
    """Return the largest error of the impact times of the ball [s]."""
    return float(max(results["errors"]["impact_times"]))


def impact_error(results: Results) -> float:
    """Return the largest error of the times of the impacts [s]; infinite unless there are two."""
    times = impact_times(results)
    return float(np.abs(np.subtract(times, IMPACTS)).max()) if len(times) == len(IMPACTS) else float("inf")


def impact_times(results: Results) -> list[float]:
    """Return the times of the impacts [s]."""
    return [event["time"] for event in results["events"] if event["kind"] == "impact"]


def failed_share(family: str) -> Any:
    """Return the share of the runs of a family with a step that found no solution [%]."""

    def read(results: Results) -> float:
        curves = [c for c in results["curves"] if c["label"].split()[0] == family and "," not in c["label"]]
        return 100.0 * sum(c["failures"] for c in curves) / sum(len(c["steps"]) for c in curves)

    return read


def error_at(label: str, steps: int) -> Any:
    """Read the error of a curve with a number of steps."""
    return lambda results: results["errors"][label][str(steps)]


def solved(results: Results) -> tuple[bool, str]:
    """Check that an optimal control problem is solved, and return its residuals."""
    text = f"{results['status']}, complementarity {results['complementarity']:.0e}"
    return results["status"] == "solved", f"{text}, infeasibility {results['infeasibility']:.0e}"


def swapped(results: Results) -> tuple[bool, str]:
    """Check that both discs are within a tenth of a metre of their targets."""
    return results["target_missed"] < 0.1, f"missed by {results['target_missed']:.3f} m at most"


def pushed(results: Results) -> tuple[bool, str]:
    """Check that disc 2 rests until the first touch, which changes its velocity."""
    first = next((e for e in results["events"] if e["kind"] == "impact"), None)
    if first is None:
        return False, "it is never touched"
    rests, speed = results["untouched_speed"] < 1e-6, -first["v_before"]
    return rests and speed > 1e-3, f"speed before {results['untouched_speed']:.0e} m/s, touched with {speed:.2f} m/s"


def closed_forms(results: Results) -> tuple[bool, str]:
    """Check that every motion of the friction cases is within its tolerance."""
    right, runs = sum(row["success"] for row in results["rows"]), len(results["rows"])
    return right == runs, f"{right} of {runs} runs, largest error {results['error']:.1e}"


def box_impacts(results: Results) -> int:
    """Return the number of impacts between boxes in the exact motion under the control of the solution."""
    return len(results["resimulation"]["impacts"])


def first_left(results: Results) -> tuple[bool, str]:
    """Check that the left box is hit first, the right box later."""
    names: Sequence[str] = [impact["name"] for impact in results["resimulation"]["impacts"]]
    text = ", ".join(f"{impact['name']} {impact['time']:.3f} s" for impact in results["resimulation"]["impacts"])
    return names[:1] == ["left_middle"] and "middle_right" in names, text


def transitions(results: Results) -> tuple[bool, str]:
    """Check that there are several transitions between stick and slip."""
    counts = {kind: sum(e["kind"] == kind for e in results["events"]) for kind in ("stick", "slip", "reversal")}
    return sum(counts.values()) > 1, ", ".join(f"{count} {kind}" for kind, count in counts.items())


def placed(results: Results) -> tuple[bool, str]:
    """Check that all boxes are within 0.1 m of their targets."""
    missed = float(np.abs(np.subtract(results["final_state"][:6:2], TARGET)).max())
    return missed < 0.1, f"missed by {missed:.3f} m at most"


def ground_force(results: Results) -> float:
    """Return the mean force between a box and the ground that is farthest from its weight [N]."""
    impulses = results["certificate"]["balance"]["impulses"]
    means = [impulses[name] / results["horizon"] for name in GROUNDS]
    return max(means, key=lambda mean: abs(mean - 9.81))


def pushing(results: Results) -> float:
    """Return the largest impulse between two boxes besides those of their impacts [N s]."""
    impulses, rest = results["certificate"]["balance"]["impulses"], 0.0
    for name in ("left_middle", "middle_right"):
        at_impacts = sum(e["impulse"] for e in results["events"] if e["kind"] == "impact" and e["name"] == name)
        rest = max(rest, abs(impulses[name] - at_impacts))
    return rest


def side_impulses(results: Results) -> tuple[bool, str]:
    """Check that boxes exchange the two impulses of their impacts, and nothing else."""
    rest, count = pushing(results), box_impacts_of_events(results)
    return rest < 1e-3 and count == 2, f"{count} impacts, besides {rest:.0e} N s, J = {results['objective']:.1f}"


def box_impacts_of_events(results: Results) -> int:
    """Return the number of impacts between boxes in a solution."""
    return sum(e["kind"] == "impact" and e["name"] in ("left_middle", "middle_right") for e in results["events"])
