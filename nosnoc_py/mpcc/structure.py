"""What the bounds of the variables alone say about the rows of G and of H.

Most complementarity functions are sums of bounded variables: such a row is nonnegative without a constraint of its
own, and it is zero just where every member sits at its bound. Fixing members keeps the constraints independent, which
a row "sum = 0" beside the bounds of its members would not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.program import MPCC

EXACT = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True)
class Floor:
    """The smallest value of every row over the box of the bounds.

    Attributes
    ----------
    affine : bool ndarray (n,)
        The row is affine in w with constant coefficients, and its smallest value over the box is finite.
    implied : bool ndarray (n,)
        Nonnegative because of the bounds, whatever the parameters are.
    row, variable : int ndarray (members,)
    value : ndarray (members,)
        Affine rows are smallest where each of their variables has this value.
    single : int ndarray (n,)
        The variable of rows that are affine in just one, with a constant coefficient; -1 for the others.
    coefficient : ndarray (n,)
        Of this variable.
    """

    affine: np.ndarray
    implied: np.ndarray
    row: np.ndarray
    variable: np.ndarray
    value: np.ndarray
    single: np.ndarray
    coefficient: np.ndarray
    _base: np.ndarray
    _offset: ca.Function

    def lowest(self, p: np.ndarray) -> np.ndarray:
        """Smallest value of every affine row at parameters p; -inf for the others."""
        offset = np.asarray(self._offset(p)).reshape(-1)
        return np.where(self.affine, self._base + offset, -np.inf)

    def roots(self, rows: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Variables and values that bring chosen rows of one variable (indices) to zero."""
        offset = np.asarray(self._offset(p)).reshape(-1)
        return self.single[rows], -offset[rows] / self.coefficient[rows]

    def written_roots(self, rows: np.ndarray, p: ca.SX) -> ca.SX:
        """The values of `roots` as expressions of p."""
        return -self._offset(p)[rows.tolist(), 0] / ca.DM(self.coefficient[rows])

    def members(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Variables and values that bring the chosen rows (a mask) to their smallest value."""
        chosen = rows[self.row]
        return self.variable[chosen], self.value[chosen]


def floors(mpcc: MPCC) -> tuple[Floor, Floor]:
    """The floors of G and of H."""
    return _floor(mpcc, mpcc.G), _floor(mpcc, mpcc.H)


def _floor(mpcc: MPCC, rows: ca.SX) -> Floor:
    n = rows.numel()
    zero = np.zeros(mpcc.w.numel())
    jacobian = ca.jacobian(rows, mpcc.w)
    row, variable = (np.array(index, dtype=int) for index in jacobian.sparsity().get_triplet())
    nonlinear = depends(rows, ca.vertcat(mpcc.w, mpcc.p), 2) & (not jacobian.is_constant())
    at_zero = ca.Function("jacobian", [mpcc.w, mpcc.p], [jacobian.nz[:]])
    coefficient = np.asarray(at_zero(zero, np.zeros(mpcc.p.numel()))).reshape(-1)
    value = np.where(coefficient >= 0, mpcc.lbw[variable], mpcc.ubw[variable])
    unbounded = np.bincount(row[~np.isfinite(value)], minlength=n) > 0
    affine = ~nonlinear & ~unbounded
    single, slope = _single(n, row, variable, np.where(nonlinear[row], 0.0, coefficient))
    kept = affine[row]
    row, variable, value, coefficient = row[kept], variable[kept], value[kept], coefficient[kept]
    floor = Floor(
        affine=affine,
        implied=affine,
        row=row,
        variable=variable,
        value=value,
        single=single,
        coefficient=slope,
        _base=np.bincount(row, weights=coefficient * value, minlength=n),
        _offset=ca.Function("offset", [mpcc.p], [ca.substitute(rows, mpcc.w, ca.SX(ca.DM(zero)))]),
    )
    return replace(floor, implied=affine & ~depends(rows, mpcc.p, 1) & (floor.lowest(mpcc.p0) >= -EXACT))


def _single(n: int, row: np.ndarray, variable: np.ndarray, coefficient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The variable and the coefficient of every row with one entry, which is a number other than zero."""
    single, slope = np.full(n, -1), np.ones(n)
    alone = (np.bincount(row, minlength=n) == 1)[row] & (coefficient != 0.0) & np.isfinite(coefficient)
    single[row[alone]], slope[row[alone]] = variable[alone], coefficient[alone]
    return single, slope


def depends(rows: ca.SX, symbols: ca.SX, order: int) -> np.ndarray:
    """Mask of the rows that depend on the symbols (order 1), or not affinely (order 2)."""
    if rows.numel() == 0 or not ca.depends_on(rows, symbols):
        return np.zeros(rows.numel(), bool)
    return np.array(ca.which_depends(rows, symbols, order, True), bool)


def derivatives(mpcc: MPCC) -> tuple[dict[str, int], ca.Sparsity, ca.Sparsity]:
    """Patterns of the derivatives by w of the problem as a relaxed NLP sees it.

    Returns
    -------
    sections : dict of str to int
        Names and numbers of rows of the parts of the Jacobian, from the top: g, the switched equations r that solvers
        impose, G, H, and the aggregated products G H.
    jacobian : Sparsity
        Of all these rows.
    hessian : Sparsity
        Of the Lagrangian: objective, penalty, and these rows with multipliers.
    """
    first, second = mpcc.products()
    imposed = np.flatnonzero(mpcc.relaxed).tolist()
    parts = {"g": mpcc.g, "r": mpcc.r[imposed], "G": mpcc.G, "H": mpcc.H, "G H": first * second}
    rows = ca.densify(ca.vertcat(ca.SX(0, 1), *parts.values()))
    multipliers = ca.SX.sym("multipliers", rows.numel())
    slope = ca.gradient(mpcc.objective + mpcc.penalty + ca.dot(multipliers, rows), mpcc.w)
    sections = {name: part.numel() for name, part in parts.items() if part.numel()}
    return sections, ca.jacobian_sparsity(rows, mpcc.w), ca.jacobian_sparsity(slope, mpcc.w)
