"""The NLPs an MPCC is turned into: relaxed, or with a fixed branch. Derivatives are taken once and shared.

Variables are scaled, x = w / w_scale, and so are the rows of g; both NLPs are made of the same blocks of rows. Steering
decides what the parameter of a relaxation is: sigma itself ("direct"), or elastic slack variables that are penalised
by 1/sigma ("l_inf": one for all products, "l1": one for each).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.relaxations import RELAXATIONS, check_steering
from nosnoc_py.mpcc.structure import floors

STEERINGS = ("direct", "l1", "l_inf")


@dataclass(frozen=True, eq=False, kw_only=True)
class ConstraintBlock:
    """Rows lower <= expression <= upper, their multipliers and their share of the Hessian of the Lagrangian."""

    expression: ca.SX
    lower: np.ndarray
    upper: np.ndarray
    multiplier: ca.SX
    jacobian: ca.SX
    hessian: ca.SX


class SmoothProgram(Protocol):
    """What IPOPT is given: a program in x and p with bounds, and its derivatives in the form `nlpsol` takes."""

    x: Any
    p: Any
    f: Any
    g: Any
    lbx: np.ndarray
    ubx: np.ndarray
    lbg: np.ndarray
    ubg: np.ndarray

    @property
    def derivatives(self) -> dict[str, ca.Function]:
        """grad_f, jac_g and hess_lag."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class NLP(SmoothProgram):
    """minimise f(x, p) subject to lbx <= x <= ubx, lbg <= g(x, p) <= ubg; x = (w / w_scale, further variables).

    `gradient` is that of f by x; `blocks` hold the rows of g with their derivatives.
    """

    x: ca.SX
    p: ca.SX
    f: ca.SX
    g: ca.SX
    lbx: np.ndarray
    ubx: np.ndarray
    lbg: np.ndarray
    ubg: np.ndarray
    gradient: ca.SX
    blocks: tuple[ConstraintBlock, ...]
    multiplier_f: ca.SX

    @cached_property
    def jacobian(self) -> ca.SX:
        """Of g by x."""
        return ca.vertcat(*[_padded(rows.jacobian, rows.jacobian.size1(), self.x.numel()) for rows in self.blocks])

    @cached_property
    def hessian(self) -> ca.SX:
        """Upper half of the Hessian of multiplier_f f + multiplier_g' g by x."""
        n = self.x.numel()
        return ca.triu(sum((_padded(rows.hessian, n, n) for rows in self.blocks), start=ca.SX(n, n)))

    @cached_property
    def multiplier_g(self) -> ca.SX:
        """Symbols of the multipliers of g."""
        return ca.vertcat(*[rows.multiplier for rows in self.blocks])

    @cached_property
    def jacobian_function(self) -> ca.Function:
        """(x, p) -> g, its Jacobian, in the form `nlpsol` takes."""
        return ca.Function("nlp_jac_g", [self.x, self.p], [self.g, self.jacobian], ["x", "p"], ["g", "jac_g_x"])

    @cached_property
    def slope_function(self) -> ca.Function:
        """(x, p, lam_g) -> f, and the gradient of f + lam_g' g by p: how the least f changes with p."""
        lagrangian = self.f + ca.dot(self.multiplier_g, self.g)
        slope = ca.densify(ca.gradient(lagrangian, self.p))
        return ca.Function("nlp_slope", [self.x, self.p, self.multiplier_g], [self.f, slope])

    @cached_property
    def derivatives(self) -> dict[str, ca.Function]:
        """The derivative functions in the form `nlpsol` takes them; made once, whatever the number of solvers."""
        x, p = self.x, self.p
        inputs, names = [x, p, self.multiplier_f, self.multiplier_g], ["x", "p", "lam_f", "lam_g"]
        return {
            "grad_f": ca.Function("nlp_grad_f", [x, p], [self.f, self.gradient], ["x", "p"], ["f", "grad_f_x"]),
            "jac_g": self.jacobian_function,
            "hess_lag": ca.Function("nlp_hess_l", inputs, [self.hessian], names, ["triu_hess_gamma_x_x"]),
        }


class Blocks:
    """The scaled functions of an MPCC and their derivatives: what all of its NLPs share.

    Rows of G and H that are nonnegative because of the bounds of the variables have no row of their own.
    """

    def __init__(self, mpcc: MPCC) -> None:
        self.mpcc = mpcc
        self.floor_G, self.floor_H = floors(mpcc)
        self.rows_G, self.rows_H = np.flatnonzero(~self.floor_G.implied), np.flatnonzero(~self.floor_H.implied)
        self.penalty_weight = ca.SX.sym("penalty_weight")
        self.x, scaled = _scaled(mpcc)
        f, penalty, g, self.G, self.H, self.r = scaled
        self.f = f + self.penalty_weight * penalty
        self.multiplier_f = ca.SX.sym("multiplier_f")
        self.gradient = ca.densify(ca.gradient(self.f, self.x))
        rows = [g, _take(self.G, self.rows_G), _take(self.H, self.rows_H)]
        lower = np.concatenate([mpcc.lbg / mpcc.g_scale, np.zeros(self.rows_G.size + self.rows_H.size)])
        upper = np.concatenate([mpcc.ubg / mpcc.g_scale, np.full(lower.size - mpcc.lbg.size, np.inf)])
        self.common = block(self.x, ca.vertcat(*rows), lower, upper, self.multiplier_f * self.f)

    @cached_property
    def switched(self) -> ConstraintBlock:
        """The switched equations as rows."""
        free = np.full(self.r.numel(), np.inf)
        return block(self.x, self.r, -free, free)

    @cached_property
    def products(self) -> tuple[ca.SX, ca.SX]:
        """The two factors of the aggregated products."""
        left, right = self.mpcc.aggregates()
        return ca.mtimes(left, self.G), ca.mtimes(right, self.H)

    def lowest(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Smallest values that the bounds leave to the rows of G and of H."""
        return self.floor_G.lowest(p), self.floor_H.lowest(p)


def block(x: ca.SX, rows: ca.SX, lower: Any, upper: Any, more: ca.SX | float = 0.0) -> ConstraintBlock:
    """Rows with their derivatives; `more` is added to multiplier' rows before the Hessian is taken."""
    n = rows.numel()
    multiplier = ca.SX.sym("multiplier", n)
    return ConstraintBlock(
        expression=rows,
        lower=np.broadcast_to(np.asarray(lower, float), (n,)),
        upper=np.broadcast_to(np.asarray(upper, float), (n,)),
        multiplier=multiplier,
        jacobian=ca.jacobian(rows, x),
        hessian=ca.hessian(ca.dot(multiplier, rows) + more, x)[0],
    )


def relaxed_nlp(blocks: Blocks, relaxation: str, steering: str) -> NLP:
    """The relaxed NLP; its parameters are (p, penalty weight, sigma).

    Raises
    ------
    OptionError
        If the relaxation has no elastic form.
    """
    check_steering(relaxation, steering)
    member = RELAXATIONS[relaxation]
    sigma = ca.SX.sym("sigma")
    a, b = blocks.products
    count = a.numel()
    slack = ca.SX.sym("slack", {"direct": 0, "l_inf": 1, "l1": count}[steering])
    level = ca.repmat(slack, count, 1) if steering == "l_inf" else slack if steering == "l1" else sigma
    x = ca.vertcat(blocks.x, slack)
    low = 0.0 if member.equality else -np.inf
    rows = [block(x, row, low, 0.0) for row in member.phi(a, b, level)]
    if blocks.mpcc.relaxed.any():
        rows += _switched_rows(blocks, x, sigma)
    return _assemble(blocks, [blocks.common, *rows], slack, ca.sum1(slack) / sigma, sigma)


def branch_nlp(blocks: Blocks) -> NLP:
    """The NLP of a fixed branch: no products, every switched equation is a row; its parameters are (p, penalty weight).

    What is fixed to zero is decided by the bounds at solve time, in the order g, rows of G, rows of H, r.
    """
    return _assemble(blocks, [blocks.common, blocks.switched], ca.SX(0, 1), ca.SX(0), ca.SX(0, 1))


def _switched_rows(blocks: Blocks, x: ca.SX, sigma: ca.SX) -> list[ConstraintBlock]:
    # Relaxed like the products: while sigma is large every indicator is positive and an equation would force equal
    # steps before the switch has been found.
    product = _take(blocks.r * blocks.mpcc.indicator(blocks.G, blocks.H), np.flatnonzero(blocks.mpcc.relaxed))
    return [block(x, product - sigma, -np.inf, 0.0), block(x, product + sigma, 0.0, np.inf)]


def _assemble(blocks: Blocks, rows: Sequence[ConstraintBlock], slack: ca.SX, elastic: ca.SX, sigma: ca.SX) -> NLP:
    m = blocks.mpcc
    x = ca.vertcat(blocks.x, slack)
    fill = np.zeros(slack.numel())
    return NLP(
        x=x,
        p=ca.vertcat(m.p, blocks.penalty_weight, sigma),
        f=blocks.f + elastic,
        g=ca.vertcat(*[row.expression for row in rows]),
        lbx=np.concatenate([m.lbw / m.w_scale, fill]),
        ubx=np.concatenate([m.ubw / m.w_scale, fill + np.inf]),
        lbg=np.concatenate([row.lower for row in rows]),
        ubg=np.concatenate([row.upper for row in rows]),
        gradient=ca.vertcat(blocks.gradient, ca.jacobian(elastic, slack).T),
        blocks=tuple(rows),
        multiplier_f=blocks.multiplier_f,
    )


def _scaled(mpcc: MPCC) -> tuple[ca.SX, list[ca.SX]]:
    """Symbols x and the functions of the MPCC of w = w_scale x."""
    functions = [mpcc.objective, mpcc.penalty, mpcc.g / mpcc.g_scale, mpcc.G, mpcc.H, mpcc.r]
    if (mpcc.w_scale == 1.0).all():
        return mpcc.w, functions
    x = ca.SX.sym("x", mpcc.w.numel())
    return x, ca.substitute(functions, [mpcc.w], [x * mpcc.w_scale])


def _take(rows: ca.SX, index: np.ndarray) -> ca.SX:
    return rows[index.tolist(), 0]  # with the column: a 1 x 1 SX reads [[]] as 1 x 0


def _padded(matrix: ca.SX, rows: int, columns: int) -> ca.SX:
    """The matrix with rows below and columns on the right that are zero."""
    return ca.diagcat(matrix, ca.SX(rows - matrix.size1(), columns - matrix.size2()))
