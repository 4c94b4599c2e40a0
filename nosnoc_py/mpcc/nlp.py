"""NLPs of an MPCC, relaxed or on a branch; derivatives are computed once and shared.

Variables are scaled, x = w / w_scale, and so are the rows of g; G, H and sigma are in the user's units. All NLPs
consist of the same blocks of rows, each with its Jacobian and Hessian: differentiation takes longer than most solves.
Steering decides what the parameter of a relaxation is: sigma itself ("direct"), or elastic slack variables with penalty
1/sigma ("l_inf": one for all products, "l1": one for each).

Invariants: rows of g, then those rows of G and H that bounds do not imply (`structure`), then those of the relaxation
or the switched equations; the parameters are (p, weight of the penalty, sigma). The relaxations are in `relaxations`,
the choice of a branch by bounds in `branch`.
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
from nosnoc_py.mpcc.structure import implied_lower_bounds

STEERINGS = ("direct", "l1", "l_inf")


@dataclass(frozen=True, eq=False, kw_only=True)
class ConstraintBlock:
    """Rows lower <= expression <= upper (n,) with multipliers, Jacobian and part of the Hessian of the Lagrangian."""

    expression: ca.SX
    lower: np.ndarray
    upper: np.ndarray
    multiplier: ca.SX
    jacobian: ca.SX
    hessian: ca.SX


class SmoothProgram(Protocol):
    """Interface of the NLP solvers: a program in x and p with bounds, and derivatives in the form of `nlpsol`."""

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
        """Functions grad_f, jac_g and hess_lag."""
        ...


class NumericProgram(Protocol):
    """Interface of a program without parameters that evaluates itself, as numbers (`programs.BlockProgram`)."""

    lbx: np.ndarray
    ubx: np.ndarray
    lbg: np.ndarray
    ubg: np.ndarray
    jacobian_pattern: tuple[np.ndarray, np.ndarray]

    @property
    def hessian_pattern(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column of every nonzero of the upper half of the Hessian."""
        ...

    def values(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return f and g at x."""
        ...

    def first(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradient of f and the nonzeros of the Jacobian of g."""
        ...

    def second(self, x: np.ndarray, weight: float, multipliers: np.ndarray) -> np.ndarray:
        """Return the nonzeros of the upper half of the Hessian of weight f + multipliers'g."""
        ...


def operations_of(nlp: Any) -> float:
    """Return the operations of one evaluation of all derivatives: a program of blocks knows them, maps hide them."""
    stated = getattr(nlp, "operations", None)
    return float(sum(f.n_instructions() for f in nlp.derivatives.values()) if stated is None else stated)


def entries_of(nlp: Any) -> float:
    """Return the nonzeros of all derivatives."""
    stated = getattr(nlp, "entries", None)
    return float(sum(f.nnz_out() for f in nlp.derivatives.values()) if stated is None else stated)


@dataclass(frozen=True, eq=False, kw_only=True)
class NLP(SmoothProgram):
    """NLP: minimise f(x, p) subject to lbx <= x <= ubx, lbg <= g(x, p) <= ubg.

    Attributes
    ----------
    x : SX (n_x,)
        (w / w_scale, further variables).
    p : SX
    f, g : SX scalar, (n_g,)
    lbx, ubx, lbg, ubg : ndarray
    gradient : SX (n_x,)
        Gradient of f by x.
    blocks : tuple of ConstraintBlock
        Rows of g with their derivatives.
    multiplier_f : SX scalar
        Weight of f in the Hessian of the Lagrangian.
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
        """Jacobian of g by x."""
        # The common rows are differentiated by x without slacks, which are appended last and have zero columns there.
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
        """Function (x, p) -> g and its Jacobian, in the form of `nlpsol`."""
        return ca.Function("nlp_jac_g", [self.x, self.p], [self.g, self.jacobian], ["x", "p"], ["g", "jac_g_x"])

    @cached_property
    def slope_function(self) -> ca.Function:
        """Function (x, p, lam_g) -> f and the gradient of f + lam_g'g by p: the derivative of the optimal value."""
        lagrangian = self.f + ca.dot(self.multiplier_g, self.g)
        slope = ca.densify(ca.gradient(lagrangian, self.p))
        return ca.Function("nlp_slope", [self.x, self.p, self.multiplier_g], [self.f, slope])

    @cached_property
    def derivatives(self) -> dict[str, ca.Function]:
        """Derivative functions in the form of `nlpsol`; created once for all solvers of this NLP."""
        x, p = self.x, self.p
        inputs, names = [x, p, self.multiplier_f, self.multiplier_g], ["x", "p", "lam_f", "lam_g"]
        return {
            "grad_f": ca.Function("nlp_grad_f", [x, p], [self.f, self.gradient], ["x", "p"], ["f", "grad_f_x"]),
            "jac_g": self.jacobian_function,
            "hess_lag": ca.Function("nlp_hess_l", inputs, [self.hessian], names, ["triu_hess_gamma_x_x"]),
        }


class Blocks:
    """Scaled functions of an MPCC and their derivatives, shared by all of its NLPs.

    Rows of G and H that are nonnegative because of the bounds of the variables are left out (`structure`).
    """

    def __init__(self, mpcc: MPCC) -> None:
        self.mpcc = mpcc
        self.lower_G, self.lower_H = implied_lower_bounds(mpcc)
        self.rows_G, self.rows_H = np.flatnonzero(~self.lower_G.implied), np.flatnonzero(~self.lower_H.implied)
        # A parameter and no constant: derivatives and the finish on a branch evaluate the same program without the
        # penalty.
        self.penalty_weight = ca.SX.sym("penalty_weight")
        self.x, scaled = _scaled(mpcc)
        f, penalty, g, self.G, self.H, self.r = scaled
        self.f = f + self.penalty_weight * penalty
        self.multiplier_f = ca.SX.sym("multiplier_f")
        self.gradient = ca.densify(ca.gradient(self.f, self.x))
        rows = [g, _take(self.G, self.rows_G), _take(self.H, self.rows_H)]
        lower = np.concatenate([mpcc.lbg / mpcc.g_scale, np.zeros(self.rows_G.size + self.rows_H.size)])
        upper = np.concatenate([mpcc.ubg / mpcc.g_scale, np.full(lower.size - mpcc.lbg.size, np.inf)])
        # The objective joins the first block, so that its part of the Hessian is differentiated together with that of
        # the rows.
        self.common = block(self.x, ca.vertcat(*rows), lower, upper, self.multiplier_f * self.f)

    @cached_property
    def switched(self) -> ConstraintBlock:
        """Switched equations as rows without bounds; a branch sets the bounds."""
        free = np.full(self.r.numel(), np.inf)
        return block(self.x, self.r, -free, free)

    @cached_property
    def products(self) -> tuple[ca.SX, ca.SX]:
        """Factors of the aggregated products."""
        left, right = self.mpcc.aggregates()
        return ca.mtimes(left, self.G), ca.mtimes(right, self.H)

    def lowest(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest values that the bounds allow for the rows of G and of H."""
        return self.lower_G.lowest(p), self.lower_H.lowest(p)


def block(x: ca.SX, rows: ca.SX, lower: Any, upper: Any, more: ca.SX | float = 0.0) -> ConstraintBlock:
    """Return rows with their derivatives; `more` is added to multiplier'rows before the Hessian is taken."""
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
    """Return the relaxed NLP; its parameters are (p, penalty weight, sigma).

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
    # Elastic slacks take the place of sigma; "direct" keeps it as a parameter.
    slack = ca.SX.sym("slack", {"direct": 0, "l_inf": 1, "l1": count}[steering])
    level = ca.repmat(slack, count, 1) if steering == "l_inf" else slack if steering == "l1" else sigma
    x = ca.vertcat(blocks.x, slack)
    low = 0.0 if member.equality else -np.inf  # phi = 0 or phi <= 0
    rows = [block(x, row, low, 0.0) for row in member.phi(a, b, level)]
    if blocks.mpcc.relaxed.any():
        rows += _switched_rows(blocks, x, sigma)
    return _assemble(blocks, [blocks.common, *rows], slack, ca.sum1(slack) / sigma, sigma)


def branch_nlp(blocks: Blocks) -> NLP:
    """Return the NLP of a branch: no products, every switched equation is a row; parameters (p, penalty weight).

    Its rows are g, rows of G, rows of H, r; bounds given at solve time decide which of them are zero.
    """
    return _assemble(blocks, [blocks.common, blocks.switched], ca.SX(0, 1), ca.SX(0), ca.SX(0, 1))


def _switched_rows(blocks: Blocks, x: ca.SX, sigma: ca.SX) -> list[ConstraintBlock]:
    # Relaxed like the products: while sigma is large every indicator is positive, and equations would force equal steps
    # before the switches are located.
    product = _take(blocks.r * blocks.mpcc.indicator(blocks.G, blocks.H), np.flatnonzero(blocks.mpcc.relaxed))
    return [block(x, product - sigma, -np.inf, 0.0), block(x, product + sigma, 0.0, np.inf)]


def _assemble(blocks: Blocks, rows: Sequence[ConstraintBlock], slack: ca.SX, elastic: ca.SX, sigma: ca.SX) -> NLP:
    m = blocks.mpcc
    x = ca.vertcat(blocks.x, slack)
    fill = np.zeros(slack.numel())  # slacks are nonnegative
    return NLP(
        x=x,
        p=ca.vertcat(m.p, blocks.penalty_weight, sigma),
        # An exact l1 penalty: slacks become zero at a finite weight 1 / sigma. It is linear and adds nothing to the
        # Hessian.
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
    """Return symbols x and the functions of the MPCC at w = w_scale x."""
    # G, H and r keep the user's units, in which complementarity is measured.
    functions = [mpcc.objective, mpcc.penalty, mpcc.g / mpcc.g_scale, mpcc.G, mpcc.H, mpcc.r]
    if (mpcc.w_scale == 1.0).all():
        # Without scales the expressions are used as they are; a substitution would copy the whole graph.
        return mpcc.w, functions
    x = ca.SX.sym("x", mpcc.w.numel())
    return x, ca.substitute(functions, [mpcc.w], [x * mpcc.w_scale])


def _take(rows: ca.SX, index: np.ndarray) -> ca.SX:
    return rows[index.tolist(), 0]  # with the column index, because a 1 x 1 SX returns 1 x 0 for [[]]


def _padded(matrix: ca.SX, rows: int, columns: int) -> ca.SX:
    """Return the matrix with zero rows and columns appended, of this shape."""
    return ca.diagcat(matrix, ca.SX(rows - matrix.size1(), columns - matrix.size2()))
