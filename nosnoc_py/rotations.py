"""Rotation matrices: rotation vectors and quaternions by SciPy, checks, and the rotation next to a matrix.

Vectors w are NumPy arrays (3,) or (n, 3), an angle [rad] times its axis; matrices are (3, 3) or (n, 3, 3).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nosnoc_py.errors import ModelError

ORTHONORMAL = 1e-9


def exp(w: Any) -> np.ndarray:
    """Return the rotation by the angle |w| about w."""
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_rotvec(w).as_matrix())


def log(rotation: Any) -> np.ndarray:
    """Return w with exp(w) = R and |w| <= pi; at half a turn, one of both."""
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_matrix(rotation).as_rotvec())


def quaternion_of(rotation: Any) -> np.ndarray:
    """Return the unit quaternion (q_0, q_1, q_2, q_3) of a rotation, the real part first and q_0 >= 0."""
    from scipy.spatial.transform import Rotation

    found = np.roll(Rotation.from_matrix(rotation).as_quat(), 1, axis=-1)
    return np.where(found[..., :1] < 0.0, -found, found)


def check_rotation(value: Any, what: str) -> np.ndarray:
    """Return a rotation matrix (3, 3).

    Raises
    ------
    ModelError
        If it is not orthonormal to 1e-9, or a reflection.
    """
    try:
        matrix = np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise ModelError(f"{what}: expected a rotation matrix (3, 3), given {value!r}.") from None
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        raise ModelError(f"{what}: expected a rotation matrix (3, 3) of finite numbers, given {matrix}.")
    defect = float(np.abs(matrix.T @ matrix - np.eye(3)).max())
    if defect > ORTHONORMAL:
        raise ModelError(
            f"{what}: the matrix is not orthonormal, |R'R - I| = {defect:.1e} (at most {ORTHONORMAL:.0e}); "
            "nosnoc_py.rotations.nearest_rotation(R) is the rotation next to it."
        )
    if np.linalg.det(matrix) < 0:
        raise ModelError(f"{what}: the matrix is a reflection, det R = -1; turn the sign of one column round.")
    return matrix


def nearest_rotation(matrix: Any) -> np.ndarray:
    """Return the rotation R (3, 3) that minimises |R - M|, by singular values."""
    left, _, right = np.linalg.svd(np.asarray(matrix, dtype=float))
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(left @ right))])
    return (left * signs) @ right
