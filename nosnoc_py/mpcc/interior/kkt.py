"""Linear systems of the interior-point method, factorised as L D L' without pivoting by QDLDL.

With primal and dual regularisation the matrix is quasi-definite, so that the factors exist for any order of the rows
(Vanderbei, Symmetric quasidefinite matrices, SIAM J. Optim. 5, 1995). The order of little fill is computed once for a
pattern, and every factorisation only updates numbers in place. The signs of D give the inertia (Sylvester), which the
method needs to detect directions of negative curvature. Iterative refinement removes the errors of factors without
pivoting.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray
# Refinement ends at the relative residual EXACT_RESIDUAL, after REFINEMENTS steps, or if a step does not halve the
# residual.
EXACT_RESIDUAL, REFINEMENTS = 1e-13, 5


class KKT:
    """Matrix [[W + diag, J'], [J, diag]] of the free variables and the rows that are constraints.

    Parameters
    ----------
    hessian, jacobian : (rows, columns)
        Patterns in all variables; upper half of the Hessian.
    free : (n,) bool
        Variables that are not fixed.
    rows : (m,) bool
        Rows with a finite bound.
    """

    def __init__(self, hessian: tuple[Array, Array], jacobian: tuple[Array, Array], free: Array, rows: Array) -> None:
        import qdldl  # like SciPy not paid for by an import of the library
        from scipy import sparse

        self.n, self.m = int(free.sum()), int(rows.sum())
        size = self.n + self.m
        place, row_place = np.cumsum(free) - 1, self.n + np.cumsum(rows) - 1
        self._in_hessian = np.flatnonzero(free[hessian[0]] & free[hessian[1]])
        self._in_jacobian = np.flatnonzero(rows[jacobian[0]] & free[jacobian[1]])
        h = [place[part[self._in_hessian]] for part in hessian]
        # Only the upper half is stored: the block above the diagonal is the transposed Jacobian.
        j = [place[jacobian[1][self._in_jacobian]], row_place[jacobian[0][self._in_jacobian]]]
        d = np.arange(size)
        # Sorted by column, then by row: the order of the nonzeros in a CSC matrix.
        keys = np.concatenate([h[1] * size + h[0], j[1] * size + j[0], d * size + d])
        places, position = np.unique(keys, return_inverse=True)
        self._h, self._j, self._d = np.split(position, np.cumsum([h[0].size, j[0].size]))
        starts = np.searchsorted(places // size, np.arange(size + 1)) if size else np.zeros(1, int)
        self._upper = sparse.csc_matrix(
            (np.zeros(places.size), places % size if size else places, starts), (size, size)
        )
        self._data = self._upper.data
        self._lower = sparse.csr_matrix((self._data, self._upper.indices, self._upper.indptr), (size, size))
        # The constructor of QDLDL factorises at once: the placeholder has the signs of a quasi-definite matrix.
        self._data[self._d] = np.where(d < self.n, 1.0, -1.0)
        self._solver = qdldl.Solver(self._upper, upper=True) if size else None
        self._diagonal = self._data[self._d]
        # The Jacobian alone, for products; its data are the positions in `_scaled`, which `_order` reads off below.
        self.jacobian = sparse.csr_matrix(
            (np.arange(1.0, self._in_jacobian.size + 1.0), (j[1] - self.n, j[0])), (self.m, self.n)
        )
        self.transposed = self.jacobian.T  # a view: it follows changes of the data
        self._order = self.jacobian.data.astype(int) - 1
        self._row = np.repeat(np.arange(self.m), np.diff(self.jacobian.indptr))
        self._back = np.argsort(self._order)

    def set_jacobian(self, jacobian: Array, factors: Array) -> None:
        """Set the nonzeros of the Jacobian of all rows, and the factors (m,) of the rows that are constraints."""
        self.jacobian.data[:] = jacobian[self._in_jacobian][self._order] * factors[self._row]
        self._scaled = self.jacobian.data[self._back]

    def largest(self) -> Array:
        """Return the largest absolute entries of the rows of the Jacobian (m,)."""
        largest = np.zeros(self.m)
        np.maximum.at(largest, self._row, np.abs(self.jacobian.data))
        return largest

    def factorise(self, hessian: Array | None, diagonal: Array) -> int:
        """Factorise and return the number of negative eigenvalues, -1 if a pivot is zero or not finite.

        `hessian` None is a zero Hessian.
        """
        if self._solver is None:
            return 0
        self._data[:] = 0.0
        if hessian is not None:
            self._data[self._h] = hessian[self._in_hessian]
        self._data[self._j] = self._scaled
        # Diagonal entries of the Hessian share these places: added, not set.
        self._data[self._d] += diagonal
        self._diagonal = self._data[self._d]
        if not np.isfinite(self._data).all():
            return -1
        self._solver.update(self._upper, upper=True)
        pivots = self._solver.factors()[1]
        # -1 never equals the number of rows that the caller expects, so that it regularises further.
        return -1 if not np.isfinite(pivots).all() or (pivots == 0.0).any() else int((pivots < 0.0).sum())

    def solve(self, right: Array) -> tuple[Array, float]:
        """Return the refined solution, and its residual relative to the right side."""
        if self._solver is None:
            return right, 0.0
        size = float(np.abs(right).max(initial=0.0)) or 1.0
        x = self._solver.solve(right)
        residual = right - self._times(x)
        error = float(np.abs(residual).max()) / size
        for _ in range(REFINEMENTS):
            if not EXACT_RESIDUAL < error < np.inf:
                break
            better = x + self._solver.solve(residual)
            left = right - self._times(better)
            new = float(np.abs(left).max()) / size
            if not new < error:
                break
            x, residual, last, error = better, left, error, new
            if new > 0.5 * last:
                break
        return x, error

    def _times(self, x: Array) -> Array:
        """Return the symmetric matrix, of which the upper half is stored, times x."""
        product: Array = self._upper @ x + self._lower @ x - self._diagonal * x
        return product
