"""The hybrid minimum principle for systems with state jumps: two discs that collide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from problems.reproduction.records import Read, Results

PROBLEMS = {"concentric": "5.1", "general": "5.2", "wall": "5.3"}

ALGORITHM_1, DESCENT = "Algorithm 1", "gradient descent"

BOUND = 5.0 * 2.0**0.5  # of |u| in 5.4 [N]


def row(results: Results, experiment: str, method: str) -> Mapping[str, Any]:
    """Return the row of a method."""
    rows = results["rows"]
    return next(one for one in rows if one["experiment"] == experiment and one["method"] == method)


def found(experiment: str, method: str, quantity: str = "objective") -> Read:
    """Read a number of a row."""
    return lambda results: row(results, experiment, method)[quantity]


def history(results: Results, experiment: str, method: str = ALGORITHM_1) -> Mapping[str, Any]:
    """Return the iteration history of a method."""
    histories = results["histories"]
    return next(one for one in histories if one["experiment"] == experiment and one["method"] == method)


def order(experiment: str, quantity: str, method: str = ALGORITHM_1) -> Read:
    """Read a fitted order in 1 / N."""

    def read(results: Results) -> float:
        key = (experiment, method, quantity)
        fits = results["fits"]
        return next(one["order"] for one in fits if (one["experiment"], one["method"], one["quantity"]) == key)

    return read


def relaxed(alpha: float) -> Read:
    """Read the rate with a relaxation."""
    return lambda results: next(one["rate"] for one in results["relaxations"] if one["relaxation"] == alpha)


def lost(results: Results) -> tuple[bool, str]:
    """Check that the collision is lost with alpha = 0.015."""
    one = next(one for one in results["relaxations"] if one["relaxation"] == 0.015)
    return one["status"] == "collision lost", f"{one['status']}, J = {one['objective']:.4f}"


def lost_by_more(results: Results) -> tuple[bool, str]:
    """Check that the collision is lost with a larger alpha."""
    one = next(one for one in results["relaxations"] if one["relaxation"] == 0.018)
    return one["status"] == "collision lost", f"alpha = 0.018: {one['status']} in iteration {one['iterations']}"


def linear(experiment: str) -> Read:
    """Read whether convergence is linear: |H_u| falls geometrically, to less than a thousandth of its start."""

    def read(results: Results) -> tuple[bool, str]:
        one = history(results, experiment)
        rate, ends = one["slope_rate"], one["slope"]
        return 0.98 < rate < 0.998 and ends < 5e-3, f"rate {rate:.4f}, |H_u| = {ends:.0e} after {one['iterations']}"

    return read


def bang(results: Results) -> tuple[bool, str]:
    """Check that |u| is at its bound before the collision and zero after it."""
    sizes = history(results, "length")["control_sizes"]
    holds = sizes["least_before"] > 0.99 * BOUND and sizes["most_after"] < 0.05
    return holds, f"{sizes['least_before']:.4f} N at least before, {sizes['most_after']:.0e} N at most after"


def decreasing(results: Results) -> tuple[bool, str]:
    """Check that the objective of 5.4 decreases and converges."""
    one = history(results, "length")
    text = f"{one['first_objective']:.4f} to {one['objective']:.4f}, largest rise {one['largest_rise']:.0e}"
    return one["largest_rise"] < 1e-6 and one["last_change"] < 1e-5, text


def sheds(results: Results) -> tuple[bool, str]:
    """Check that Algorithm 1 ends with two collisions, near the optimum, from all starts with three."""
    ends = [one["minimum_principle"] for one in results["sequences"]]
    counts = [len(one["collisions"]) for one in ends]
    excess = max(one["excess"] for one in ends)
    return set(counts) == {2}, f"collisions {', '.join(map(str, counts))}; J - J_opt up to {excess:.0e}"


def stuck(results: Results) -> tuple[bool, str]:
    """Check that HMP-MAS with the sequence of the start does not reach the optimum."""
    excess = min(one["hmp_mas"]["excess"] for one in results["sequences"])
    return excess > 1e-3, f"J - J_opt is {excess:.3f} at least"


def comparable(results: Results) -> tuple[bool, str]:
    """Check that HMP-MAS with the right sequence is as good as Algorithm 1."""
    errors = {name: abs(row(results, name, "HMP-MAS")["error"]) for name in PROBLEMS}
    mine = {name: abs(row(results, name, "HMP N=480")["error"]) for name in PROBLEMS}
    return all(errors[name] <= mine[name] for name in PROBLEMS), f"J - J_opt up to {max(errors.values()):.0e}"


def farther(experiment: str) -> Read:
    """Read how many times farther from u_opt gradient descent ends."""

    def read(results: Results) -> tuple[bool, str]:
        ratio = results["farther_by_descent"][experiment]
        return ratio > 2.0, f"{ratio:.1f} times farther"

    return read


def stalls(experiment: str) -> Read:
    """Read whether the control of gradient descent shows no convergence in N."""

    def read(results: Results) -> tuple[bool, str]:
        slope = order(experiment, "control", DESCENT)(results)  # type: ignore[operator]
        return slope < 0.5, f"order {slope:.2f}"

    return read
