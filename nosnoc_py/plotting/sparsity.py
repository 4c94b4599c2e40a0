"""Sparsity patterns of the derivatives of the discretised problem."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import check_type
from nosnoc_py.mpcc.layout import Layout
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.structure import derivatives
from nosnoc_py.plotting.sheets import COLOURS, GREY, finished, new_figure
from nosnoc_py.transcription.transcription import Transcription

Run = tuple[int | None, set[str], int, int]  # a control stage, names of blocks, first row and end

MOST_LABELS = 12  # of control stages along an axis
NARROW = 0.05  # of an axis: a block that is not a control stage and narrower has no room for its name
DOTS = 3.2  # inches of a matrix; its entries are drawn as large as they are, but not smaller than can be seen


@named_arguments
def plot_sparsity(problem: Transcription | MPCC, *, path: str | Path | None = None, title: str | None = None) -> Figure:
    """Draw where the constraint Jacobian and the Hessian of the Lagrangian have entries.

    Rows of the Jacobian are the constraints g (control stage by control stage), the quantities G and H, and the
    products that are relaxed; columns are the variables. Lines separate the control stages, whose numbers are at the
    axes.

    Parameters
    ----------
    problem : Transcription or MPCC
    path
        Where to save a `.png`, `.pdf` or `.svg`; folders are made.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
    >>> problem = ns.transcribe(ocp, ns.FESDJ(control_stages=2))
    >>> len(ns.plot_sparsity(problem).axes)
    2
    """
    check_type(problem, (Transcription, MPCC), "problem")
    mpcc = problem.mpcc if isinstance(problem, Transcription) else problem
    sections, jacobian, hessian = derivatives(mpcc)
    high = float(np.clip(DOTS * jacobian.size1() / max(jacobian.size2(), 1), 2.4, 5.4))
    figure = new_figure(2 * DOTS + 2.0, high + 1.2)
    left, right = figure.subplots(1, 2)
    variables = stages_of(mpcc.variables)
    _spy(left, jacobian, "Jacobian of the constraints")
    _spy(right, hessian, "Hessian of the Lagrangian")
    for axes in (left, right):
        _stage_axis(axes, variables, "x")
        axes.set_xlabel("variables" + (", by control stage" if len(variables) > 1 else ""), fontsize=8)
    _stage_axis(right, variables, "y")
    _section_axis(left, sections)
    return finished(figure, title, path)


def _spy(axes: Axes, pattern: Any, name: str) -> None:
    """Every entry of a pattern of CasADi's as a small square, at the least as large as can be seen."""
    rows, columns = pattern.shape
    axes.set(xlim=(-0.5, max(columns, 1) - 0.5), ylim=(max(rows, 1) - 0.5, -0.5))
    side = float(np.clip(72 * DOTS / max(rows, columns, 1), 0.6, 8.0))
    row, column = pattern.get_triplet()
    axes.plot(column, row, ls="none", marker="s", ms=side, mew=0, color=COLOURS[0], zorder=3)
    share = pattern.nnz() / max(rows * columns, 1)
    axes.set_title(f"{name}\n{rows} x {columns}, {pattern.nnz()} entries ({100 * share:.3g} %)", fontsize=9)
    axes.tick_params(labelsize=7, length=0)


def stages_of(layout: Layout) -> list[tuple[str, float, float]]:
    """Name, first row and end of runs of rows: of a control stage its longest run, and what lies between these.

    What lies between is called by the name of its blocks if they have one in common, else by nothing.
    """
    runs = _joined((b.at.stage, {b.name}, b.start, b.start + b.size) for b in layout.blocks() if b.size)
    # Blocks of one stage may lie in several places, e.g. costs at the end; only the longest run gets its number.
    longest = {stage: max(end - start for of, _, start, end in runs if of == stage) for stage, *_ in runs}
    runs = _joined(
        (stage if end - start == longest[stage] else None, names, start, end) for stage, names, start, end in runs
    )
    return [
        (str(stage) if stage is not None else names.pop() if len(names) == 1 else "", start, end)
        for stage, names, start, end in runs
    ]


def _joined(runs: Iterable[Run]) -> list[Run]:
    """Join neighbouring runs of one stage."""
    groups = (list(group) for _, group in groupby(runs, key=lambda run: run[0]))
    return [(group[0][0], set().union(*(run[1] for run in group)), group[0][2], group[-1][3]) for group in groups]


def _stage_axis(axes: Axes, runs: Sequence[tuple[str, float, float]], which: str) -> None:
    """Lines between control stages, and the numbers of some of them."""
    lines = axes.axvline if which == "x" else axes.axhline
    for _, _, end in runs[:-1]:
        lines(end - 0.5, color=GREY, lw=0.4, zorder=1)
    whole = max((end for *_, end in runs), default=1.0)
    named = [
        (name, 0.5 * (start + end) - 0.5)
        for name, start, end in runs
        if name.isdigit() or (name and end - start > NARROW * whole)
    ]
    shown = named[:: -(-len(named) // MOST_LABELS)] if named else []
    ticks, labels = [at for _, at in shown], [name for name, _ in shown]
    (axes.set_xticks if which == "x" else axes.set_yticks)(ticks, labels)


def _section_axis(axes: Axes, sections: dict[str, int]) -> None:
    ends = np.concatenate([[0], np.cumsum(list(sections.values()))])
    for end in ends[1:-1]:
        axes.axhline(end - 0.5, color="black", lw=0.8, zorder=2)
    axes.set_yticks([0.5 * (a + b) - 0.5 for a, b in pairwise(ends)], list(sections))
    axes.tick_params(axis="y", labelsize=9)
