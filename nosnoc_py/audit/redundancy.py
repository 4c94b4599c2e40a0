"""Contact forces that are not unique: the null space of their directions, and the best choice in it.

References
----------
Cutting planes for convex constraints: Kelley, J. SIAM 8 (1960).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from nosnoc_py.attempts.work import LINEAR_PROGRAM, count

# Largest number of iterations with cutting planes.
CUTS = 40
# Singular values below this fraction of the largest one count as zero.
REDUNDANT = 1e-10
# Largest number of sets of rows whose vertices are all computed; determinants relative to the lengths of the rows, and
# violations relative to the largest right-hand side, that are rounding.
MOST_VERTICES, SINGULAR_ROWS, ROUNDING_OF_ROWS = 600, 1e-9, 1e-11


def null_space(matrix: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis (n, d) of the null space of a matrix (m, n)."""
    if not matrix.shape[1]:
        return np.zeros((0, 0))
    _, sizes, right = np.linalg.svd(matrix)
    rank = int((sizes > REDUNDANT * sizes.max(initial=0.0)).sum())
    return np.asarray(right[rank:].T)


def best_choice(
    forces: np.ndarray,
    free: np.ndarray,
    rows: Sequence[np.ndarray],
    cuts: Callable[[np.ndarray, float], list[np.ndarray]],
    *,
    most: float,
) -> np.ndarray:
    """Return the forces + free z that maximise the least of rows @ forces, up to `most`, by linear programming.

    `cuts` returns more rows for a choice and its least value (cutting planes of a cone); none ends the iteration.
    """
    planes, best = list(rows), forces
    for _ in range(CUTS):
        # Variables (z, s): maximise s with rows (forces + free z) >= s. Bounded by `most`, as s may grow without
        # limit.
        A = np.array([*planes, np.zeros(forces.size)])
        left = np.column_stack([-A @ free, np.ones(len(A))])
        found = _largest_last(left, np.append(A[:-1] @ forces, most))
        if found is None:
            break
        best = np.asarray(forces + free @ found[:-1])
        new = cuts(best, float(found[-1]))
        if not new:
            break
        planes += new
    return best


def _largest_last(left: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """Return the y with left y <= right and the largest last entry: the middle of the best vertices; None without one.

    Few vertices are all computed, which takes a tenth of the time of a general solver.
    """
    rows, n = left.shape
    if comb(rows, n) > MOST_VERTICES:
        from scipy.optimize import linprog  # not paid for by an import of the library

        count(LINEAR_PROGRAM)
        result = linprog(-np.eye(n)[-1], A_ub=left, b_ub=right, bounds=[(None, None)] * n)
        return np.asarray(result.x) if result.success else None
    chosen = _subsets(rows, n)
    corners, ends = left[chosen], right[chosen]
    regular = np.abs(np.linalg.det(corners)) > SINGULAR_ROWS * np.linalg.norm(corners, axis=2).prod(axis=1)
    vertices = np.linalg.solve(corners[regular], ends[regular][..., None])[..., 0]
    close = ROUNDING_OF_ROWS * max(float(np.abs(right).max()), 1e-300)
    vertices = vertices[(vertices @ left.T <= right + close).all(axis=1)]
    if not len(vertices):
        return None
    return np.asarray(vertices[vertices[:, -1] >= vertices[:, -1].max() - close].mean(axis=0))


@lru_cache(maxsize=64)
def _subsets(rows: int, size: int) -> np.ndarray:
    """Return all subsets of row numbers of a size."""
    return np.array(list(combinations(range(rows), size)))


def directions(width: int) -> np.ndarray:
    """Return unit vectors (m, width) in all directions: the first cutting planes of a cone."""
    if width == 0:
        return np.zeros((0, 0))
    if width == 1:
        return np.array([[1.0], [-1.0]])
    angles = np.linspace(0.0, 2.0 * np.pi, 8, endpoint=False)
    return np.column_stack([np.cos(angles), np.sin(angles)])
