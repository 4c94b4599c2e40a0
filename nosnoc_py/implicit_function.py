"""Implicit function theorem in numbers: derivative of y(w) that solves rows(y, w) = 0.

With Jacobians rows_y and rows_w, rows_y y_w + rows_w = 0. A function phi(y, w) then has the gradient

    phi_w - rows_w' lambda,    rows_y' lambda = phi_y,

for one system of equations, however many w there are. Redundant rows are allowed in both.

References
----------
Krantz and Parks, The Implicit Function Theorem (2002), Chapter 3.
Giles and Pierce, An introduction to the adjoint approach to design, Flow, Turbulence and Combustion 65 (2000).
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray
# Up to this many columns a dense least-squares solution is the fastest and takes any rank.
DENSE = 200


def derivative(by_y: Array, by_w: Array) -> Array:
    """Return y_w (n_y, n_w) from rows_y (n_y, n_y) and rows_w (n_y, n_w); NaN where the rows do not determine y.

    Stacks of matrices are NaN if the rows of one of them do not determine y.

    Examples
    --------
    On the circle y^2 + w^2 = 25 at y = 3, w = 4:

    >>> import numpy as np
    >>> derivative(np.array([[6.0]]), np.array([[8.0]]))
    array([[-1.33333333]])
    """
    try:
        return np.asarray(-np.linalg.solve(by_y, by_w))
    except np.linalg.LinAlgError:
        return np.full(by_w.shape, np.nan)


class RankRevealingSVD:
    """Solution of rows of any number and rank for y (n_y,), by a singular value decomposition.

    Parameters
    ----------
    by_y : (n_rows, n_y)
        rows_y.
    share, least : float
        Singular values below this fraction of the largest one, or below this number, are zero.

    Attributes
    ----------
    basis : (rank, n_y)
        Orthonormal directions of y that the rows see.
    loose : (n_y, n_y - rank)
        Those that they do not see.
    given : (n_rows, n_rows - rank)
        Sums of the rows that y drops out of: what they say of w has to hold by itself.
    """

    def __init__(self, by_y: Array, share: float = 0.0, least: float = 0.0) -> None:
        left, sizes, right = np.linalg.svd(by_y)
        rank = int((sizes > max(least, share * sizes.max(initial=0.0))).sum())
        self.basis, self.loose, self.given = right[:rank], right[rank:].T, left[:, rank:]
        self._inverse = left[:, :rank] / sizes[:rank]

    def along(self, by_w: Array) -> Array:
        """Return the shortest y_w in coordinates of the basis (rank, n_w), from rows_w (n_rows, n_w)."""
        return np.asarray(-self._inverse.T @ by_w)

    def derivative(self, by_w: Array) -> Array:
        """Return the shortest y_w (n_y, n_w)."""
        return np.asarray(self.basis.T @ self.along(by_w))


class RankRevealingQR:
    """Solution of many rows of any rank for y (n_y,), by a pivoted QR decomposition (Businger and Golub 1965).

    As `RankRevealingSVD`, several times faster, and with the multipliers of the rows.

    Parameters
    ----------
    by_y : (n_rows, n_y)
        rows_y.
    least : float
        Rows are dependent where this fraction of their length is left.
    length : (n_rows,), optional
        Of the rows; by default as they are. Of rows that were projected, that before.

    Attributes
    ----------
    seen : (n_y, rank)
        Orthonormal directions of y that the rows see.
    loose : (n_y, n_y - rank)
        Those that they do not see.
    chosen : int ndarray (rank,)
        Independent rows, of which the others are combinations.
    """

    def __init__(self, by_y: Array, least: float, length: Array | None = None) -> None:
        from scipy.linalg import qr

        size = np.linalg.norm(by_y, axis=1) if length is None else length
        self._size = np.where(size > 0.0, size, 1.0)
        if by_y.size:
            Q, triangle, order = qr((by_y / self._size[:, None]).T, pivoting=True, check_finite=False)
        else:  # which LAPACK does not take
            Q, triangle, order = np.eye(by_y.shape[1]), np.zeros(by_y.shape[::-1]), np.arange(len(by_y))
        rank = int((np.abs(np.diagonal(triangle)) > least).sum())
        self.seen, self.loose = Q[:, :rank], Q[:, rank:]
        self._triangle, self.chosen = triangle[:rank, :rank], order[:rank]

    def derivative(self, by_w: Array) -> Array:
        """Return the shortest y_w (n_y, n_w) of as many rows as are independent, from rows_w (n_rows, n_w)."""
        from scipy.linalg import solve_triangular

        given = (by_w / self._size[:, None])[self.chosen]
        return np.asarray(self.seen @ solve_triangular(self._triangle, -given, trans="T"))

    def multipliers(self, slope: Array) -> Array:
        """Multipliers (n_rows,) of the rows that balance a slope (n_y,) where they can; zero of dependent ones."""
        from scipy.linalg import solve_triangular

        result = np.zeros(self._size.size)
        result[self.chosen] = solve_triangular(self._triangle, -(self.seen.T @ slope))
        return result / self._size


def shortest_step(matrix: Any, target: Array) -> Array:
    """Return the shortest least-squares solution of matrix step = target, for a matrix of any rank."""
    from scipy import sparse
    from scipy.linalg import lstsq
    from scipy.sparse.linalg import splu

    if matrix.shape[1] <= DENSE:
        options = {"cond": 1e-11, "lapack_driver": "gelsy", "check_finite": False}  # less exact than an SVD, but fast
        return np.asarray(lstsq(matrix.toarray(), target, **options)[0])
    # min |step|^2 + |matrix step - target|^2 / tiny: as a saddle point system it stays sparse and well scaled.
    rows, columns = matrix.shape
    system = sparse.bmat([[sparse.identity(columns), matrix.T], [matrix, -1e-12 * sparse.identity(rows)]])
    solution = splu(system.tocsc()).solve(np.concatenate([np.zeros(columns), target]))
    return np.asarray(solution[:columns])
