"""Residuals of the unrelaxed problem, over the single products, in the user's units.

Success is decided on these numbers alone, never on the status of an NLP solver: a relaxed NLP may converge at a point
that violates the complementarities. There are three of them: the largest product (relative to its factors), the largest
min(G, H), and the infeasibility of bounds, constraints, nonnegativities and enforced switched equations. Products are
not aggregated here, so that residuals of different solvers and aggregations can be compared. NaN counts as infinitely
wrong everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.solution.records import Residual

# Factors below this have products that do not overflow (the largest double is 1.8e308).
HUGE = 1e150


@dataclass(frozen=True, eq=False, kw_only=True)
class Values:
    """Functions of an MPCC at a point (w, p).

    `unequal` (n_r,) are the products r eta of the enforced switched equations, 0 for the others; the other fields are
    those of `MPCC`.
    """

    w: np.ndarray
    objective: float
    penalty: float
    g: np.ndarray
    G: np.ndarray
    H: np.ndarray
    r: np.ndarray
    unequal: np.ndarray


class Evaluator:
    """Evaluator of an MPCC and its residuals; built once per program."""

    def __init__(self, mpcc: MPCC) -> None:
        self.mpcc = mpcc
        # Switched equations that are not enforced have no residual.
        unequal = ca.SX(ca.DM(mpcc.enforced.astype(float))) * mpcc.r * mpcc.indicator(mpcc.G, mpcc.H)
        outputs = [mpcc.objective, mpcc.penalty, mpcc.g, mpcc.G, mpcc.H, mpcc.r, unequal]
        self._function = buffered(ca.Function("mpcc", [mpcc.w, mpcc.p], outputs))
        # Products are the single ones of the problem, independent of the aggregation that a solver sees.
        self._pairs = mpcc.pairs()
        self._enforced = bool(mpcc.enforced.any())

    def __call__(self, w: np.ndarray, p: np.ndarray) -> Values:
        """Evaluate at (w, p)."""
        w = np.asarray(w, dtype=float)
        f, penalty, g, G, H, r, unequal = (value[:, 0] for value in self._function(w, np.asarray(p, dtype=float)))
        return Values(w=w, objective=float(f[0]), penalty=float(penalty[0]), g=g, G=G, H=H, r=r, unequal=unequal)

    def complementarity(self, at: Values) -> float:
        """Return max |G_i H_j| / max(1, |G_i|, |H_j|) over all single products."""
        return float(self._products(at).max(initial=0.0))

    def complementarity_min(self, at: Values) -> float:
        """Return max |min(G_i, H_j)| over all single products."""
        i, j = self._pairs
        # The absolute value counts a negative side as a violation, too.
        return float(finite_or_inf(np.abs(np.minimum(at.G[i], at.H[j]))).max(initial=0.0))

    def infeasibility(self, at: Values) -> float:
        """Return the largest violation of a bound, an equation, a nonnegativity or an enforced switched equation."""
        return max(float(violation.max(initial=0.0)) for *_, violation in self._violations(at))

    def worst(self, at: Values, count: int = 5) -> tuple[Residual, ...]:
        """Return the largest residuals, by name and place."""
        residuals = [
            Residual(float(violation[row]), kind, *layout.label(int(row)))
            for kind, layout, violation in self._violations(at)
            # The largest `count` over all kinds are among the largest `count` of each kind.
            for row in np.argsort(-violation)[:count]
        ]
        products, (i, j) = self._products(at), self._pairs
        for k in np.argsort(-products)[:count]:
            left, right = self.mpcc.left.label(int(i[k])), self.mpcc.right.label(int(j[k]))
            residuals.append(Residual(float(products[k]), "complementarity", f"{left[0]} * {right[0]}", right[1]))
        residuals.sort(key=lambda item: -item.value)
        # A residual of zero explains nothing to the reader of a message.
        return tuple(item for item in residuals[:count] if item.value > 0.0)

    def _products(self, at: Values) -> np.ndarray:
        i, j = self._pairs
        return scaled_products(at.G[i], at.H[j])

    def _violations(self, at: Values) -> list[tuple[str, Any, np.ndarray]]:
        m = self.mpcc
        violations = [
            ("bound", m.variables, outside(at.w, m.lbw, m.ubw)),
            ("equation", m.constraints, outside(at.g, m.lbg, m.ubg)),
            ("bound", m.left, outside(at.G, 0.0, np.inf)),
            ("bound", m.right, outside(at.H, 0.0, np.inf)),
        ]
        if self._enforced:
            violations.append(("equation", m.switched, finite_or_inf(np.abs(at.unequal))))
        return violations


def scaled_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return |a b| / max(1, |a|, |b|), entry by entry; infinite where it is NaN.

    The scaling is that of a relative residual: a zero side of 1e-9 beside a force of 1e4 is zero to rounding.
    """
    left, right = np.abs(a), np.abs(b)
    size = np.maximum(1.0, np.maximum(left, right))
    if size.max(initial=0.0) < HUGE:  # False for NaN, too: without overflow and NaN the fast path is safe
        return np.asarray(left * right / size)
    with np.errstate(invalid="ignore", over="ignore"):
        return finite_or_inf(left * right / size)


def finite_or_inf(size: np.ndarray) -> np.ndarray:
    """Replace NaN by infinity, so that it sorts first and no tolerance accepts it."""
    return np.where(np.isnan(size), np.inf, size)


def outside(value: np.ndarray, lower: Any, upper: Any) -> np.ndarray:
    """Return the distance of every entry to its interval; infinite for NaN."""
    # Finite values give no inf - inf, even with infinite bounds: the usual case needs no masks.
    if np.isfinite(value).all():
        return np.asarray(np.maximum(np.maximum(lower - value, value - upper), 0.0))
    with np.errstate(invalid="ignore"):
        distance = np.maximum(np.maximum(lower - value, value - upper), 0.0)
    return np.where(np.isfinite(value), distance, np.inf)
