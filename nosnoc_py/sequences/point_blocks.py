"""Costs and constraints at chosen times in a multi-phase program.

A chosen time is fixed, while the elements move with the lengths of the phases. The state there is the collocation
polynomial of the element that contains the time at the start, evaluated at a place that depends on all lengths before.
Where the time leaves that element during the solve, the polynomial is extrapolated; the next program of the refinement
assigns the element anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from nosnoc_py.point_costs import PointTerm
from nosnoc_py.sequences.blocks import NLPBlock

if TYPE_CHECKING:
    from nosnoc_py.sequences.program import PhaseNLP

Array = np.ndarray


def point_block(program: PhaseNLP, term: PointTerm) -> NLPBlock:
    """Return the block of a cost and a constraint at chosen times, with one place per time."""
    s, nodes, lengths = program.ocp.system, np.append(0.0, program.tableau.c), ca.SX.sym("L", program.at_lengths.size)
    X, time = ca.SX.sym("X", program.n_x, nodes.size), ca.SX.sym("time")
    begin, own = ca.SX.sym("begin", lengths.numel()), ca.SX.sym("own", lengths.numel())
    # Begin and length of the element are linear in all lengths, so that the block is the same at every place.
    place = (time - ca.dot(begin, lengths)) / ca.dot(own, lengths)
    # Lagrange polynomials of the nodes (0 and the stages) at the symbolic place in [0, 1]; `lagrange_basis` takes no
    # expressions.
    basis = [
        ca.SX(np.prod([1.0 / (a - b) for b in nodes if b != a])) * _product(place - b for b in nodes if b != a)
        for a in nodes
    ]
    p = ca.SX.sym("p", s.p.numel())
    rows = ca.SX(0, 1) if term.constraint is None else term.constraint.expression
    f = ca.Function("point", [s.x, s.p, term.numbers], [term.cost, rows])
    cost, rows = f(X @ ca.vertcat(*basis), p, term.numbers)
    index, constants = [], []
    for t, values in zip(term.times, term.values, strict=True):
        at, before, inside = _element_at(program, t)
        index.append(np.concatenate([at, program.at_lengths, program.at_p]))
        constants.append(np.concatenate([[t], before, inside, values]))
    c = term.constraint
    none = np.zeros(0)
    return NLPBlock(
        name="point",
        y=ca.vertcat(ca.vec(X), lengths, p),
        c=ca.vertcat(time, begin, own, term.numbers),
        rows=rows,
        cost=cost,
        lower=none if c is None else c.lower,
        upper=none if c is None else c.upper,
        index=np.array(index),
        constants=np.array(constants),
        labels=() if c is None else (str(c.name),) * c.lower.size,
    )


def _element_at(program: PhaseNLP, t: float) -> tuple[Array, Array, Array]:
    """Return the element at a time of the start.

    Its states in w (left end, then stages), and two rows of shares of all lengths: of the elements before it, which sum
    to its begin, and its own, which is its length.
    """
    first, before = int(program.at_lengths[0]), np.zeros(program.at_lengths.size)
    end, inside = 0.0, dict.fromkeys(range(len(program.plan)), 0)
    element = None
    for piece, (a, b) in zip(program.pieces, program.piece_times(), strict=True):
        for _ in range(piece.elements):
            k, e = piece.phase, inside[piece.phase]
            left = program.at_left[k] if e == 0 else program.at_x[k][e - 1, -1]
            own = np.zeros_like(before)
            own[piece.length - first] = piece.share
            inside[k], end = e + 1, end + (b - a) / piece.elements
            # An element without length is skipped: the place inside it would be 0 / 0.
            if b > a:
                element = np.concatenate([left, program.at_x[k][e].ravel()]), before.copy(), own
            # By rounding, `t` may lie behind the end of the last element, which is returned then.
            if element is not None and end >= t:
                return element
            before += own
    assert element is not None
    return element


def _product(factors: Iterable[ca.SX]) -> ca.SX:
    product = ca.SX(1)
    for factor in factors:
        product *= factor
    return product
