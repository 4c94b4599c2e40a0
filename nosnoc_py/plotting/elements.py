"""Pictures of solutions of the discretised problem: active sets, and finite elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import OptionError, check_type
from nosnoc_py.mpcc.layout import Layout
from nosnoc_py.plotting.sheets import COLOURS, GREY, finished, legend_below, new_figure, tidy, titled
from nosnoc_py.solution.arrays import Array
from nosnoc_py.solution.solution import Solution
from nosnoc_py.transcription.transcription import Transcription

# Side of a pair that is zero: colour and hatch, which differ without colours, too.
SIDES: dict[str, tuple[str, str]] = {
    "first is zero": (COLOURS[0], ""),
    "second is zero": (COLOURS[4], "////"),
    "both are zero": ("#000000", ""),
    "neither is zero": (COLOURS[3], "xxxx"),
}


@named_arguments
def plot_active_set(
    problem: Transcription,
    solution: Solution,
    *,
    tolerance: float = 1e-6,
    path: str | Path | None = None,
    title: str | None = None,
) -> Figure:
    """Draw, for every complementarity pair over time, which of its sides is zero in every finite element.

    A pair is named after its two sides, 0 <= first, second >= 0. Where both are zero (biactive) the kind of the
    stationary point is decided; where neither is, the pair is violated, or changes inside of an element that cannot
    follow it.

    Parameters
    ----------
    problem : Transcription
    solution : Solution
        Of this problem.
    tolerance
        Largest value that counts as zero, in the user's units.
    path
        Where to save a `.png`, `.pdf` or `.svg`; folders are made.

    Raises
    ------
    OptionError
        If the solution is not one of this problem.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
    >>> problem = ns.transcribe(ocp, ns.FESDJ(control_stages=2))
    >>> figure = ns.plot_active_set(problem, problem.solve())
    >>> figure.axes[0].get_xlabel()
    't [s]'
    """
    nodes, table = active_set(problem, solution, tolerance)
    if not table:
        raise OptionError("this problem has no complementarity pairs on its finite elements.")
    figure = new_figure(8.0, 1.3 + 0.3 * len(table))
    axes = figure.subplots()
    for row, sides in enumerate(table.values()):
        at = [e for e, side in enumerate(sides) if side]
        looks = {"color": [SIDES[sides[e]][0] for e in at], "hatch": [SIDES[sides[e]][1] for e in at]}
        axes.barh(row, np.diff(nodes)[at], 0.8, nodes[at], ec="white", lw=0.3, **looks)
    names = [f"{first} ⊥ {second}" for first, second in table]
    axes.set(xlim=(nodes[0], nodes[-1]), ylim=(len(table) - 0.4, -0.6), xlabel=_time_label(problem))
    axes.set_yticks(range(len(table)), names, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    used = [side for side in SIDES if any(side in sides for sides in table.values())]
    handles = [Patch(fc=SIDES[side][0], ec="white", hatch=SIDES[side][1], label=side) for side in used]
    legend_below(figure, handles, 8)
    return finished(figure, titled(title, solution), path)


def active_set(
    problem: Transcription, solution: Solution, tolerance: float = 1e-6
) -> tuple[Array, dict[tuple[str, str], list[str]]]:
    """Return the boundaries (E + 1,) of the finite elements, and a key of `SIDES` per pair and element ("" for none).

    In numerical time where time is frozen.
    """
    values = _check(problem, solution)
    mpcc = problem.mpcc
    at = problem.solvers.evaluator(solution.w, values)
    elements = {(e.at.stage, e.at.element): k for k, e in enumerate(problem.elements)}
    largest: dict[tuple[str, str], Array] = {}
    left, right = _names_and_places(mpcc.left), _names_and_places(mpcc.right)
    for i, j in zip(*mpcc.pairs(), strict=True):
        (first, place), (second, other) = left[i], right[j]
        # Pairs across elements belong to the later side; quantities at nodes have no element of their own.
        k = elements.get((other.stage, other.element), elements.get((place.stage, place.element)))
        if k is not None:
            sizes = largest.setdefault((first, second), np.full((2, len(elements)), np.nan))
            sizes[:, k] = np.fmax(sizes[:, k], [abs(at.G[i]), abs(at.H[j])])
    table = {pair: [_side(first, second, tolerance) for first, second in sizes.T] for pair, sizes in largest.items()}
    return _nodes(problem, solution.w, values), table


def _side(first: float, second: float, tolerance: float) -> str:
    if np.isnan(first) or np.isnan(second):
        return ""
    if (first <= tolerance) == (second <= tolerance):
        return "both are zero" if first <= tolerance else "neither is zero"
    return "first is zero" if first <= tolerance else "second is zero"


def _names_and_places(layout: Layout) -> list[tuple[str, Any]]:
    return [(name, block.at) for block in layout.blocks() for name in block.components]


@named_arguments
def plot_elements(
    problem: Transcription, solution: Solution, *, path: str | Path | None = None, title: str | None = None
) -> Figure:
    """Draw the finite elements of a solution with their Runge-Kutta stages, and their lengths, over time.

    Parameters
    ----------
    problem : Transcription
    solution : Solution
        Of this problem.
    path
        Where to save a `.png`, `.pdf` or `.svg`; folders are made.

    Raises
    ------
    OptionError
        If the solution is not one of this problem.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
    >>> problem = ns.transcribe(ocp, ns.FESDJ(control_stages=2))
    >>> len(ns.plot_elements(problem, problem.solve()).axes)  # the elements, and their lengths
    2
    """
    values = _check(problem, solution)
    nodes = _nodes(problem, solution.w, values)
    h = np.diff(nodes)
    figure = new_figure(8.0, 3.6)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1, 3))
    first = [k for k, e in enumerate(problem.elements) if e.at.element == 0]
    stages = np.append(nodes[first], nodes[-1])
    top.vlines(stages, -0.15, 1.15, color="black", lw=1.4, label="control stage")
    top.vlines(nodes, 0.0, 1.0, color=GREY, lw=0.8, label="finite element", zorder=1.5)
    inner = (nodes[:-1, None] + h[:, None] * problem.tableau.c).ravel()
    top.plot(
        inner, np.full(inner.size, 0.5), ls="none", marker="o", ms=2.6, color=COLOURS[0], label="Runge-Kutta stage"
    )
    top.set(ylim=(-0.2, 1.2), yticks=[])
    top.tick_params(bottom=False)
    top.set_ylabel("elements", fontsize=8)
    top.spines[["top", "right", "left", "bottom"]].set_visible(False)
    bottom.stairs(h, nodes, baseline=None, color=COLOURS[0], lw=1.5, label="length")
    counts = np.diff(np.append(first, len(h)))
    equal = np.repeat(np.diff(stages) / counts, counts)
    bottom.stairs(equal, nodes, baseline=None, color=GREY, lw=1.0, ls="--", label="equal lengths")
    numerical = problem.discretization.time_freezing
    events = set() if numerical else {event.time for event in solution.events}
    for k, time in enumerate(events):
        bottom.axvline(time, color=COLOURS[1], lw=0.9, zorder=0, label=None if k else "event")
    bottom.set(xlabel=_time_label(problem), xlim=(nodes[0], nodes[-1]), ylim=(0.0, 1.08 * max(h.max(), equal.max())))
    bottom.set_ylabel(f"length h [{'-' if numerical else 's'}]", fontsize=9)
    bottom.yaxis.set_major_locator(MaxNLocator(5))
    tidy(bottom, legend=False)
    legend_below(figure, [*top.get_legend_handles_labels()[0], *bottom.get_legend_handles_labels()[0]], 7)
    return finished(figure, titled(title, solution), path)


def _nodes(problem: Transcription, w: Array, values: Array) -> Array:
    """Boundaries (E + 1,) of all finite elements [s]."""
    return np.concatenate([[0.0], np.cumsum(problem.read(w, values).h)])


def _time_label(problem: Transcription) -> str:
    return "numerical time" if problem.discretization.time_freezing else "t [s]"


def _check(problem: Transcription, solution: Solution) -> Array:
    """The parameters of the MPCC at a solution of it."""
    check_type(problem, Transcription, "problem")
    check_type(solution, Solution, "solution")
    if solution.layout_key != problem.layout_key or solution.w.size != problem.mpcc.w.numel():
        raise OptionError(
            f"the solution (by {solution.method or 'an unknown method'}) is not one of this problem: give the "
            "Transcription that it was found with, problem = ns.transcribe(ocp, method), solution = problem.solve()."
        )
    fixed = problem.mpcc.parameters.names
    x0 = solution.x0[: len(problem.ocp.system.state_names)] if "x0" in fixed and problem.ocp.x0 is not None else None
    horizon = solution.horizon if problem.ocp.free_time is None else None
    return problem.parameters(x0=x0, p=solution.p, horizon=horizon)
