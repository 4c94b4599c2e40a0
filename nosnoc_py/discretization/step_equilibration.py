"""Equations that hold where an indicator says so: step equilibration (FESD-J, Eqs. 26-30, Remark 4), isolation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import casadi as ca
import numpy as np

from nosnoc_py.discretization.cross_complementarity import PairRows
from nosnoc_py.discretization.options import FESD
from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.program import ProgramBuilder
from nosnoc_py.reformulation.dcs import And, Indicator, Isolation, Leaf

# From this gamma_h on the steps have no upper bound but the length of their control stage.
ANYWHERE = 0.999

Rows = Mapping[str, PairRows]
Eta = Callable[[ca.SX, ca.SX], ca.SX]


@dataclass(frozen=True, eq=False)
class Step:
    """What step equilibration sees of one finite element: its relative length s = h / h0 and its rows."""

    at: At
    s: ca.SX
    rows: Rows


def indicator(tree: Indicator, before: Rows, after: Rows, G: ca.SX, H: ca.SX, *, saturated: bool = False) -> ca.SX:
    """Evaluate an and/or tree: "and" is a product, "or" a sum, a leaf a sum of quantities.

    Saturated leaves, x / (1 + x), keep products of many large ones from making round-off visible.
    """
    if isinstance(tree, Leaf):
        value = _leaf(tree, before, after, G, H)
        return value / (1 + ca.fabs(value)) if saturated else value
    parts = [indicator(part, before, after, G, H, saturated=saturated) for part in tree.parts]
    if isinstance(tree, And):
        return reduce(lambda x, y: x * y, parts, ca.SX(1))
    return reduce(lambda x, y: x + y, parts, ca.SX(0))


def _leaf(leaf: Leaf, before: Rows, after: Rows, G: ca.SX, H: ca.SX) -> ca.SX:
    values = {"a": G, "b": H}[leaf.side]
    i, rows = leaf.component, (before if leaf.over in ("backward", "end") else after)[leaf.pair]
    if leaf.over == "end":
        return ca.dot(ca.DM(rows.end), values[[int(row) for row in rows.b[:, i]]])
    if leaf.over == "node":
        chosen = {"a": rows.a_left, "b": rows.b_left}[leaf.side][[i]]
    else:
        chosen = {"a": rows.a_all, "b": rows.b_all}[leaf.side](i)
    return ca.sum1(values[[int(row) for row in np.unique(chosen)]])


def equilibrate(builder: ProgramBuilder, steps: list[Step], tree: Indicator, options: FESD) -> None:
    """Add the step equilibration of one control stage.

    Whatever the mode, the exact equations (26) are handed over as switched equations: the active-set finish imposes
    them, so the bias of a penalty does not survive it.
    """
    epsilon = options.equilibration_epsilon
    etas: list[Eta] = []
    for before, after in pairwise(steps):

        def eta(G: ca.SX, H: ca.SX, b: Rows = before.rows, a: Rows = after.rows) -> ca.SX:
            return ca.tanh(indicator(tree, b, a, G, H) / epsilon)

        builder.switch("step_equilibration", after.at, after.s - before.s, eta)
        etas.append(eta)
    weight = options.equilibration_weight
    builder.penalty += weight * PENALTIES[options.step_equilibration](builder, steps, etas)


def isolate(builder: ProgramBuilder, steps: list[Step], isolations: Sequence[Isolation], options: FESD) -> None:
    """Add what fixes the time of switches that the complementarities leave open, between the elements of a stage."""
    G, H = builder.quantities()
    for before, after in pairwise(steps):
        for item in isolations:

            def eta(
                G: ca.SX, H: ca.SX, tree: Indicator = item.indicator, b: Rows = before.rows, a: Rows = after.rows
            ) -> ca.SX:
                return indicator(tree, b, a, G, H, saturated=True)

            residual = indicator(item.residual, before.rows, after.rows, G, H)
            builder.switch(f"isolation {item.name}", after.at, residual, eta, required=True)


def _mean(_: ProgramBuilder, steps: list[Step], __: list[Eta]) -> ca.SX:
    return sum(((step.s - 1) ** 2 for step in steps), ca.SX(0))


def _difference(_: ProgramBuilder, steps: list[Step], __: list[Eta]) -> ca.SX:
    return sum(((b.s - a.s) ** 2 for a, b in pairwise(steps)), ca.SX(0))


def _l2_relaxed(builder: ProgramBuilder, steps: list[Step], etas: list[Eta]) -> ca.SX:
    G, H = builder.quantities()
    terms = [(b.s - a.s) ** 2 * eta(G, H) for (a, b), eta in zip(pairwise(steps), etas, strict=True)]
    return sum(terms, ca.SX(0))


def _nothing(_: ProgramBuilder, __: list[Step], ___: list[Eta]) -> ca.SX:
    return ca.SX(0)


PENALTIES: dict[str, Callable[[ProgramBuilder, list[Step], list[Eta]], ca.SX]] = {
    "heuristic_mean": _mean,
    "heuristic_difference": _difference,
    "l2_relaxed": _l2_relaxed,
    "direct": _nothing,
    "none": _nothing,
}


def step_bounds(options: FESD, default_gamma: float) -> tuple[float, float]:
    """Bounds of s = h / h0."""
    if not options.switch_detection:
        return 1.0, 1.0
    gamma = default_gamma if options.gamma_h is None else options.gamma_h
    # With three elements or more an upper bound of two nominal lengths would keep events from lying anywhere.
    return 1.0 - gamma, math.inf if gamma >= ANYWHERE else 1.0 + gamma
