"""Lower bounds of the rows of G and H that follow from the bounds of the variables.

Most complementarity functions are sums of bounded variables. Such a row is nonnegative without a constraint of its own,
and it is zero exactly where every variable in it is at its bound. A branch then fixes these variables, which keeps the
constraints independent; a constraint "sum = 0" beside the bounds of its variables would not be.

Only rows that are affine in w with constant coefficients are looked at; all others count as unbounded, which costs a
constraint and is never wrong. `branch` fixes variables by these bounds, `nlp` leaves rows out by them, and `implicit`
finds constant variables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.program import MPCC

# Rounding error of a smallest value that counts as zero.
ROUNDING_OF_BOUNDS = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True)
class ImpliedLowerBound:
    """Smallest values of rows over the box of the bounds.

    Attributes
    ----------
    affine : bool ndarray (n,)
        The row is affine in w with constant coefficients, and its smallest value over the box is finite.
    implied : bool ndarray (n,)
        Nonnegative because of the bounds, for all parameters.
    row, variable : int ndarray (members,)
        Nonzero entries of the affine rows.
    value : ndarray (members,)
        Value of the variable at which its row is smallest: its lower or upper bound.
    single : int ndarray (n,)
        Variable of rows that are affine in just one variable, with a constant coefficient; -1 for the others.
    coefficient : ndarray (n,)
        Coefficient of this variable.
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
        """Return the smallest value of every affine row at parameters p; -inf for the others."""
        offset = np.asarray(self._offset(p)).reshape(-1)
        return np.where(self.affine, self._base + offset, -np.inf)

    def roots(self, rows: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return variables and values at which rows of a single variable (indices) are zero."""
        offset = np.asarray(self._offset(p)).reshape(-1)
        return self.single[rows], -offset[rows] / self.coefficient[rows]

    def root_expressions(self, rows: np.ndarray, p: ca.SX) -> ca.SX:
        """Return the values of `roots` as expressions of p."""
        return -self._offset(p)[rows.tolist(), 0] / ca.DM(self.coefficient[rows])

    def members(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return variables and values at which the chosen rows (a mask) have their smallest value."""
        chosen = rows[self.row]
        return self.variable[chosen], self.value[chosen]


def implied_lower_bounds(mpcc: MPCC) -> tuple[ImpliedLowerBound, ImpliedLowerBound]:
    """Return the implied lower bounds of the rows of G and of H."""
    return _implied_lower_bound(mpcc, mpcc.G), _implied_lower_bound(mpcc, mpcc.H)


def _implied_lower_bound(mpcc: MPCC, rows: ca.SX) -> ImpliedLowerBound:
    n = rows.numel()
    zero = np.zeros(mpcc.w.numel())
    jacobian = ca.jacobian(rows, mpcc.w)
    row, variable = (np.array(index, dtype=int) for index in jacobian.sparsity().get_triplet())
    # Coefficients that depend on parameters count as nonlinear: the bound would change with them.
    # A row may be nonlinear in p alone: with a constant Jacobian it is affine in w all the same.
    nonlinear = depends(rows, ca.vertcat(mpcc.w, mpcc.p), 2) & (not jacobian.is_constant())
    at_zero = ca.Function("jacobian", [mpcc.w, mpcc.p], [jacobian.nz[:]])
    # Coefficients of affine rows are the same everywhere; NaN of other rows (1 / w at zero) is masked below.
    coefficient = np.asarray(at_zero(zero, np.zeros(mpcc.p.numel()))).reshape(-1)
    # A row is smallest with each variable at its lower bound (positive coefficient) or upper bound (negative).
    value = np.where(coefficient >= 0, mpcc.lbw[variable], mpcc.ubw[variable])
    unbounded = np.bincount(row[~np.isfinite(value)], minlength=n) > 0
    affine = ~nonlinear & ~unbounded
    single, slope = _single(n, row, variable, np.where(nonlinear[row], 0.0, coefficient))
    entries = affine[row]
    row, variable, value, coefficient = row[entries], variable[entries], value[entries], coefficient[entries]
    floor = ImpliedLowerBound(
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
    # A row that depends on p is nonnegative for p0 perhaps, but not for all parameters.
    return replace(floor, implied=affine & ~depends(rows, mpcc.p, 1) & (floor.lowest(mpcc.p0) >= -ROUNDING_OF_BOUNDS))


def _single(n: int, row: np.ndarray, variable: np.ndarray, coefficient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return variable and coefficient of the rows with exactly one entry that is finite and not zero."""
    single, slope = np.full(n, -1), np.ones(n)
    alone = (np.bincount(row, minlength=n) == 1)[row] & (coefficient != 0.0) & np.isfinite(coefficient)
    single[row[alone]], slope[row[alone]] = variable[alone], coefficient[alone]
    return single, slope


def depends(rows: ca.SX, symbols: ca.SX, order: int) -> np.ndarray:
    """Return the mask of the rows that depend on the symbols (order 1), or depend on them nonlinearly (order 2)."""
    if rows.numel() == 0 or not ca.depends_on(rows, symbols):
        return np.zeros(rows.numel(), bool)
    return np.array(ca.which_depends(rows, symbols, order, True), bool)


def derivatives(mpcc: MPCC) -> tuple[dict[str, int], ca.Sparsity, ca.Sparsity]:
    """Return the sparsity of the first and second derivatives by w of the problem as a relaxed NLP sees it.

    Returns
    -------
    sections : dict of str to int
        Names and numbers of rows of the parts of the Jacobian, from the top: g, the switched equations r that solvers
        impose, G, H, and the aggregated products G H.
    jacobian : Sparsity
        Jacobian of all these rows.
    hessian : Sparsity
        Hessian of the Lagrangian: objective, penalty, and these rows with multipliers.
    """
    first, second = mpcc.products()
    # Switched equations that relaxed NLPs drop would show entries that no solver sees.
    imposed = np.flatnonzero(mpcc.relaxed).tolist()
    parts = {"g": mpcc.g, "r": mpcc.r[imposed], "G": mpcc.G, "H": mpcc.H, "G H": first * second}
    rows = ca.densify(ca.vertcat(ca.SX(0, 1), *parts.values()))
    multipliers = ca.SX.sym("multipliers", rows.numel())
    slope = ca.gradient(mpcc.objective + mpcc.penalty + ca.dot(multipliers, rows), mpcc.w)
    sections = {name: part.numel() for name, part in parts.items() if part.numel()}
    return sections, ca.jacobian_sparsity(rows, mpcc.w), ca.jacobian_sparsity(slope, mpcc.w)
