"""Contact forces that are not unique: the null space of their directions, and the best choice in it.

References
----------
Cutting planes for convex constraints: Kelley, J. SIAM 8 (1960).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

# Largest number of iterations with cutting planes.
CUTS = 40
# Singular values below this share of the largest one count as zero.
REDUNDANT = 1e-10


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
    from scipy.optimize import linprog  # not paid for by an import of the library

    planes, best = list(rows), forces
    for _ in range(CUTS):
        # Variables (z, s): maximise s with rows (forces + free z) >= s. Bounded by `most`, as s may grow without
        # limit.
        A = np.array(planes)
        result = linprog(
            np.append(np.zeros(free.shape[1]), -1.0),
            A_ub=np.column_stack([-A @ free, np.ones(len(A))]),
            b_ub=A @ forces,
            bounds=[(None, None)] * free.shape[1] + [(None, most)],
        )
        if not result.success:
            break
        best = np.asarray(forces + free @ result.x[:-1])
        new = cuts(best, float(result.x[-1]))
        if not new:
            break
        planes += new
    return best


def directions(width: int) -> np.ndarray:
    """Return unit vectors (m, width) in all directions: the first cutting planes of a cone."""
    if width == 0:
        return np.zeros((0, 0))
    if width == 1:
        return np.array([[1.0], [-1.0]])
    angles = np.linspace(0.0, 2.0 * np.pi, 8, endpoint=False)
    return np.column_stack([np.cos(angles), np.sin(angles)])
