"""What the bounds of the variables alone say about the rows of G and of H.

Most complementarity functions are sums of bounded variables: such a row is nonnegative without a constraint of its
own, and it is zero just where every member sits at its bound. Fixing members keeps the constraints independent, which
a row "sum = 0" beside the bounds of its members would not.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    affine: np.ndarray
    implied: np.ndarray
    row: np.ndarray
    variable: np.ndarray
    value: np.ndarray
    _base: np.ndarray
    _offset: ca.Function

    def lowest(self, p: np.ndarray) -> np.ndarray:
        """Smallest value of every affine row at parameters p; -inf for the others."""
        offset = np.asarray(self._offset(p)).reshape(-1)
        return np.where(self.affine, self._base + offset, -np.inf)

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
    nonlinear = np.array(ca.which_depends(rows, ca.vertcat(mpcc.w, mpcc.p), 2, True), bool) if n else np.zeros(0, bool)
    jacobian = ca.jacobian(rows, mpcc.w)
    row, variable = (np.array(index, dtype=int) for index in jacobian.sparsity().get_triplet())
    at_zero = ca.Function("jacobian", [mpcc.w, mpcc.p], [jacobian.nz[:]])
    coefficient = np.asarray(at_zero(zero, np.zeros(mpcc.p.numel()))).reshape(-1)
    value = np.where(coefficient >= 0, mpcc.lbw[variable], mpcc.ubw[variable])
    unbounded = np.bincount(row[~np.isfinite(value)], minlength=n) > 0
    affine = ~nonlinear & ~unbounded
    kept = affine[row]
    row, variable, value, coefficient = row[kept], variable[kept], value[kept], coefficient[kept]
    base = np.bincount(row, weights=coefficient * value, minlength=n)
    depends = np.array(ca.which_depends(rows, mpcc.p, 1, True), bool) if n and mpcc.p.numel() else np.zeros(n, bool)
    offset = ca.Function("offset", [mpcc.p], [ca.substitute(rows, mpcc.w, ca.SX(ca.DM(zero)))])
    floor = Floor(
        affine=affine, implied=affine, row=row, variable=variable, value=value, _base=base, _offset=offset
    )
    implied = affine & ~depends & (floor.lowest(mpcc.p0) >= -EXACT)
    return Floor(
        affine=affine, implied=implied, row=row, variable=variable, value=value, _base=base, _offset=offset
    )
