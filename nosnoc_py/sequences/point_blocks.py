"""Costs and constraints at chosen times in a multi-phase program.

A chosen time is fixed, while the elements move with the lengths of the phases. The state there is the collocation
polynomial of the element that contains the time at the start, evaluated at a place that depends on all lengths before.
Where the time leaves that element during the solve, the polynomial is extrapolated; the next program of the refinement
assigns the element anew.

A constraint needs more: extrapolated far, or across an event, a polynomial takes any value, so that the constraint
would be met by a motion that does not exist. Its time has to stay in its phase and near its element: three rows more.
(Costs do without: they gain less by extrapolation, and rows would keep events from moving across measured times.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from nosnoc_py.kernels import Kernel
from nosnoc_py.point_costs import PointTerm
from nosnoc_py.programs import KernelBlock, LinearMap

if TYPE_CHECKING:
    from nosnoc_py.sequences.program import PhaseNLP

Array = np.ndarray
# Largest distance of a constrained time from its element, in lengths of the element. Not zero: the time has to be able
# to leave the element, so that the next program assigns it to another one. Small: at 0.5 optimal motions of a leg used
# the extrapolation to lift its foot by 6 cm at the chosen time only.
OUTSIDE = 0.05


def point_block(program: PhaseNLP, term: PointTerm) -> KernelBlock:
    """Return the block of a cost and a constraint at chosen times, with one place per time."""
    s, nodes, c = program.ocp.system, np.append(0.0, program.tableau.c), term.constraint
    X, p = ca.SX.sym("X", program.n_x, nodes.size), ca.SX.sym("p", s.p.numel())
    # The time since the begin of the element, and its length: both are linear in all lengths.
    since, own = ca.SX.sym("since"), ca.SX.sym("own")
    stays = ca.SX.sym("stays", 2 if c is not None else 0)
    place = since / own
    # Lagrange polynomials of the nodes (0 and the stages) at the symbolic place in [0, 1]; `lagrange_basis` takes no
    # expressions.
    basis = [
        ca.SX(np.prod([1.0 / (a - b) for b in nodes if b != a])) * _product(place - b for b in nodes if b != a)
        for a in nodes
    ]
    asked = ca.SX(0, 1) if c is None else c.expression

    def made() -> Kernel:
        f = ca.Function("point", [s.x, s.p, term.numbers], [term.cost, asked])
        cost, rows = f(X @ ca.vertcat(*basis), p, term.numbers)
        rows = rows if c is None else ca.vertcat(rows, stays, place)
        return Kernel(ca.vertcat(ca.vec(X), since, own, stays, p, term.numbers), rows, cost)

    kernel = s.kernels.kernel("point", [s.x, s.p, term.numbers, term.cost, asked], made, c is None, *nodes)
    places, at = [_element_at(program, t) for t in term.times], program.at_lengths[None, :, None]
    every = np.broadcast_to(at, (len(places), *at.shape[1:]))
    in_phase = np.array([each.in_phase for each in places]).reshape(len(places), 2, -1)
    two = [(every, in_phase[:, k, 1:], in_phase[:, k, :1]) for k in (0, 1)] if c is not None else []
    times = np.asarray(term.times, float)[:, None]
    return KernelBlock(
        name="point",
        kernel=kernel,
        at=LinearMap.of(
            (np.array([each.states for each in places]),),
            (every, -np.array([each.before for each in places]), times),
            (every, np.array([each.inside for each in places])),
            *two,
            (program.at_p[None],),
            (None, np.array(term.values, float).reshape(len(places), term.numbers.numel())),
        ),
        lower=() if c is None else np.append(c.lower, [0.0, 0.0, -OUTSIDE]),
        upper=() if c is None else np.append(c.upper, [np.inf, np.inf, 1.0 + OUTSIDE]),
        labels=() if c is None else (*(str(c.name),) * c.lower.size, *("phase of a chosen time",) * 3),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Place:
    """Element that contains a chosen time at the start.

    Attributes
    ----------
    states : (stages + 1, n_x) flat
        Indices in w of the states: left end, then stages.
    before, inside : (n_lengths,)
        Shares of all lengths: of the elements before it, which sum to its begin, and its own, which is its length.
    in_phase : (2 (1 + n_lengths),)
        Two affine functions of the lengths (constant, then slopes) that are nonnegative while the time is in the phase.
    """

    states: Array
    before: Array
    inside: Array
    in_phase: Array


def _element_at(program: PhaseNLP, t: float) -> _Place:
    """Return the place of a time of the start."""
    first, before = int(program.at_lengths[0]), np.zeros(program.at_lengths.size)
    end, inside = 0.0, dict.fromkeys(range(len(program.plan)), 0)
    elements: list[tuple[int, float, float, Array, Array, Array]] = []
    for piece, (a, b) in zip(program.pieces, program.piece_times(), strict=True):
        for _ in range(piece.elements):
            k, e = piece.phase, inside[piece.phase]
            left = program.at_left[k] if e == 0 else program.at_x[k][e - 1, -1]
            own = np.zeros_like(before)
            own[piece.length - first] = piece.share
            inside[k], end = e + 1, end + (b - a) / piece.elements
            elements.append((k, end, b - a, np.concatenate([left, program.at_x[k][e].ravel()]), before.copy(), own))
            before += own
    # The first element that ends at the time or later (by rounding, the time may lie behind the last). An element
    # without length is skipped: the place inside it would be 0 / 0.
    sound = [each for each in elements if each[2] > 0.0]
    k, _, _, states, before, own = next((each for each in sound if each[1] >= t), sound[-1])
    own_phase = [each for each in elements if each[0] == k]
    begins, ends = own_phase[0][4], own_phase[-1][4] + own_phase[-1][5]
    # The first phase begins, and the last one ends, with the horizon: rows of constants that hold.
    after = np.append(t, -begins) if begins.any() else np.append(1.0, begins)
    last = own_phase[-1] is elements[-1]
    until = np.append(1.0, np.zeros_like(ends)) if last else np.append(-t, ends)
    return _Place(states=states, before=before, inside=own, in_phase=np.concatenate([after, until]))


def _product(factors: Iterable[ca.SX]) -> ca.SX:
    product = ca.SX(1)
    for factor in factors:
        product *= factor
    return product
