"""The hybrid minimum principle for systems with state jumps: two discs that collide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from problems.reproduction.records import Entry, Experiment, Paper, Read, Results, out_of_scope
from problems.reproduction.verdicts import Agreement, Holds, Within

MODULE = "benchmarks.two_discs_compare"
PROBLEMS = {"concentric": "5.1", "general": "5.2", "wall": "5.3"}
QUANTITIES = {"time": "the collision times", "control": "u", "objective": "J"}
ALGORITHM_1, DESCENT = "Algorithm 1", "gradient descent"
ALL = ("concentric", "general", "wall", "length")
BOUND = 5.0 * 2.0**0.5  # of |u| in 5.4 [N]
SAW = "In 5.2 the error is a saw-tooth in N, by where in a step the discs collide"

EXPERIMENTS = (
    Experiment(
        name="compare",
        module=MODULE,
        settings={"part": "compare"},
        quick={"part": "compare", "methods": ("HMP N=480", "HMP N=60", "HMP refined", "HMP-MAS")},
        timeout=1800.0,
    ),
    Experiment(
        name="grids",
        module=MODULE,
        settings={"part": "grids"},
        quick={
            "part": "grids",
            "grids": (60, 120, 240, 480),
            "descent_grids": (60, 120, 240),
            "descent_iterations": 500,
        },
        timeout=3600.0,
    ),
    Experiment(
        name="rates",
        module=MODULE,
        settings={"part": "rates"},
        quick={"part": "rates", "steps": 240, "descent_iterations": 1000},
        timeout=1800.0,
    ),
    Experiment(
        name="sequences",
        module=MODULE,
        settings={"part": "sequences"},
        quick={"part": "sequences", "steps": 240},
        timeout=1800.0,
    ),
)


def row(results: Results, experiment: str, method: str) -> Mapping[str, Any]:
    """The row of a method."""
    rows = results["rows"]
    return next(one for one in rows if one["experiment"] == experiment and one["method"] == method)


def found(experiment: str, method: str, quantity: str = "objective") -> Read:
    """Read a number of a row."""
    return lambda results: row(results, experiment, method)[quantity]


def history(results: Results, experiment: str, method: str = ALGORITHM_1) -> Mapping[str, Any]:
    """What happened over the iterations."""
    made = results["histories"]
    return next(one for one in made if one["experiment"] == experiment and one["method"] == method)


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
    """With alpha = 0.015 the collision is lost."""
    one = next(one for one in results["relaxations"] if one["relaxation"] == 0.015)
    return one["status"] == "collision lost", f"{one['status']}, J = {one['objective']:.4f}"


def linear(experiment: str) -> Read:
    """Read whether convergence is linear: |H_u| falls geometrically, to less than a thousandth of its start."""

    def read(results: Results) -> tuple[bool, str]:
        one = history(results, experiment)
        rate, ends = one["slope_rate"], one["slope"]
        return 0.98 < rate < 0.998 and ends < 5e-3, f"rate {rate:.4f}, |H_u| = {ends:.0e} after {one['iterations']}"

    return read


def bang(results: Results) -> tuple[bool, str]:
    """|u| is at its bound before the collision and zero after it."""
    sizes = history(results, "length")["control_sizes"]
    holds = sizes["least_before"] > 0.99 * BOUND and sizes["most_after"] < 0.05
    return holds, f"{sizes['least_before']:.4f} N at least before, {sizes['most_after']:.0e} N at most after"


def decreasing(results: Results) -> tuple[bool, str]:
    """The objective of 5.4 falls and converges."""
    one = history(results, "length")
    text = f"{one['first_objective']:.4f} to {one['objective']:.4f}, largest rise {one['largest_rise']:.0e}"
    return one["largest_rise"] < 1e-6 and one["last_change"] < 1e-5, text


def sheds(results: Results) -> tuple[bool, str]:
    """From all starts with three collisions Algorithm 1 ends with two, near the optimum."""
    ends = [one["minimum_principle"] for one in results["sequences"]]
    counts = [len(one["collisions"]) for one in ends]
    excess = max(one["excess"] for one in ends)
    return set(counts) == {2}, f"collisions {', '.join(map(str, counts))}; J - J_opt up to {excess:.0e}"


def stuck(results: Results) -> tuple[bool, str]:
    """HMP-MAS with the sequence of the start does not get there."""
    excess = min(one["hmp_mas"]["excess"] for one in results["sequences"])
    return excess > 1e-3, f"J - J_opt is {excess:.3f} at least"


def comparable(results: Results) -> tuple[bool, str]:
    """HMP-MAS with the right sequence is as good as Algorithm 1."""
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


def _problem(name: str, illustration: str, convergence: str, grids: str, paper: float | None) -> tuple[Entry, ...]:
    """The entries that all three problems have."""
    section = PROBLEMS[name]
    orders = tuple(
        Entry(
            where=grids,
            what=f"{section}: order in 1 / N of the error of {what}",
            experiment="grids",
            read=order(name, quantity),
            paper=1.0,
            agreement=Within(tolerance=0.25, reason="slope of a fit; 1 / N is asymptotic"),
            why=f"{SAW}: single errors are several times sigma / N or far below it, and the slope of a fit depends on "
            "the values of N."
            if name == "general"
            else "",
            quick=name != "general",
        )
        for quantity, what in QUANTITIES.items()
    )
    return (
        Entry(
            where=f"Section {section}, App. B.2",
            what=f"{section}: J_opt",
            experiment="compare",
            read=found(name, "exact optimum"),
            paper=paper,
            agreement=Within(tolerance=5e-7, reason="printed with six decimals") if paper else Agreement(),
            remark="" if paper else "The paper prints no value.",
        ),
        Entry(
            where=illustration,
            what=f"{section}: |u - u_opt| with N = 480 (semi-norm, Eq. 32)",
            experiment="compare",
            read=found(name, "HMP N=480", "control_error"),
            unit="N",
            remark="A curve in the paper.",
        ),
        Entry(
            where=illustration,
            what=f"{section}: |u - u_opt| of the refined solution",
            experiment="compare",
            read=found(name, "HMP refined", "control_error"),
            unit="N",
            remark="Newton's method on the boundary value problem, after Algorithm 1 with N = 60.",
        ),
        Entry(
            where=convergence,
            what=f"{section}: linear convergence of |H_u|",
            experiment="rates",
            read=linear(name),
            paper="rate about 0.99" if name == "concentric" else "linear",
            agreement=Holds(reason="rate in (0.98, 0.998)"),
        ),
        *orders,
    )


ENTRIES = (
    out_of_scope(
        "Table 1", "parameters of all experiments", "inputs, taken as they are: m = 1, r = 0.2, C_R = 1, T = 1"
    ),
    *_problem("concentric", "Fig. 1", "Fig. 2", "Fig. 3", 1.396542),
    Entry(
        where="Section 6.3",
        what="5.1: J of Algorithm 1 with N = 60",
        experiment="compare",
        read=found("concentric", "HMP N=60"),
        paper=1.421552,
        agreement=Within(tolerance=1e-6, reason="printed with six decimals"),
    ),
    *_problem("general", "Fig. 4", "Fig. 5", "Fig. 6", None),
    *_problem("wall", "Fig. 7", "Fig. 8", "Fig. 9", None),
    Entry(
        where="Fig. 10a",
        what="5.4: |u| at its bound of 7.0711 N before the collision, zero after it",
        experiment="rates",
        read=bang,
        paper="shown",
        agreement=Holds(reason="1 % of the bound"),
    ),
    Entry(
        where="Fig. 10b",
        what="5.4: J decreases and converges",
        experiment="rates",
        read=decreasing,
        paper="shown",
        agreement=Holds(reason="no rise above 1e-6"),
    ),
    out_of_scope("Section 5.4", "bounds on the components of u", "neither a figure nor a number is given"),
    *(
        Entry(
            where="Fig. 11",
            what=f"rate sigma with alpha = {alpha:g}",
            experiment="rates",
            read=relaxed(alpha),
            paper=paper,
            agreement=Within(tolerance=tolerance, reason="depends on the iterations that are fitted"),
            remark="Fitted over the first 5 / alpha iterations.",
        )
        for alpha, paper, tolerance in ((0.01, 0.9911, 1.5e-3), (0.005, 0.9956, 5e-4), (0.001, 0.9989, 3e-4))
    ),
    Entry(
        where="Section 5.5",
        what="alpha = 0.015 ends at u = 0",
        experiment="rates",
        read=lost,
        paper="yes",
        agreement=Holds(reason="status"),
        why="Here it stalls with a collision; the collision is lost from alpha = 0.018 on.",
    ),
    Entry(
        where="Section 6.1",
        what="HMP-MAS with the right sequence performs like Algorithm 1",
        experiment="compare",
        read=comparable,
        paper="stated",
        agreement=Holds(reason="J not farther from J_opt than Algorithm 1's with N = 480"),
        remark="With an augmented Lagrangian: the quadratic penalty of the paper has a bias.",
    ),
    Entry(
        where="Fig. 12, Section 6.1",
        what="Algorithm 1 from three collisions ends with two",
        experiment="sequences",
        read=sheds,
        paper="stated",
        agreement=Holds(reason="a count"),
        remark="The start is not printed: three constant controls with three collisions.",
    ),
    Entry(
        where="Section 6.1",
        what="HMP-MAS from three collisions does not reach the optimum",
        experiment="sequences",
        read=stuck,
        paper="stated",
        agreement=Holds(reason="J - J_opt > 1e-3"),
    ),
    *(
        Entry(
            where="Fig. 13",
            what=f"{section}: gradient descent ends farther from u_opt than Algorithm 1",
            experiment="rates",
            read=farther(name),
            paper="shown",
            agreement=Holds(reason="twice at least"),
        )
        for name, section in PROBLEMS.items()
    ),
    *(
        Entry(
            where="Fig. 14",
            what=f"{section}: u of gradient descent shows no convergence in N",
            experiment="grids",
            read=stalls(name),
            paper="shown",
            agreement=Holds(reason="fitted order below 0.5"),
        )
        for name, section in PROBLEMS.items()
    ),
    out_of_scope(
        "Fig. 15, Section 6.3", "best policy of deep reinforcement learning (PPO)", "other people's code", 1.617140
    ),
    out_of_scope("Section 6.3", "the same, above the optimum", "other people's code", 15.80, "%"),
)

PAPER = Paper(
    name="minimum_principle",
    title="Solving optimal control problems of rigid-body dynamics with collisions using the hybrid minimum principle",
    subject="two discs that collide; the relaxed method of successive approximations",
    experiments=EXPERIMENTS,
    entries=ENTRIES,
)
