"""Rotations SO(3), of numbers and of CasADi expressions.

Vectors are NumPy arrays (..., 3), matrices (..., 3, 3), with any leading axes; or CasADi columns and matrices without
them. Functions of the angle are written in its square s = |w|^2, as a Taylor series for s < 1 and in
closed form beyond. Values are then exact to rounding, and derivatives of any order are right, also at w = 0. CasADi
evaluates both branches, also of derivatives: the branch that is not used gets an argument for which it is finite, as
0 * NaN would spoil the other one.

Conventions: S(w) y = w x y; quaternions have their real part first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial
from typing import TYPE_CHECKING, Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import ModelError

if TYPE_CHECKING:
    import casadi as ca

    from nosnoc_py.annotations import Expression

# Largest entry of |R'R - I| of a rotation matrix: files and users give nine digits or more.
ORTHONORMAL = 1e-9
TERMS = 10  # of the series: the next one is below 1e-17 for s < 1
SMALL_ANGLE = 0.01  # (|v| / q_0)^2 of a quaternion, below which its logarithm is a series


def exp(w: Any) -> Any:
    """Return the rotation by the angle |w| about w: I + a S + b S^2, a = sin(t) / t, b = (1 - cos t) / t^2."""
    s = _square(w)
    a, b, _, _ = _coefficients(s, _space(w))
    return _combination(w, 1 - b * s, a, b)


def log(rotation: Any) -> Any:
    """Return w with exp(w) = R and |w| <= pi; at half a turn, one of both."""
    return _logarithm(_space(rotation), _quaternion(rotation))


def _logarithm(space: _Space, quaternion: Sequence[Any]) -> Any:
    """Return the rotation vector 2 atan(|v| / q_0) v / |v| of a unit quaternion with q_0 >= 0."""
    q, *v = quaternion
    n = v[0] ** 2 + v[1] ** 2 + v[2] ** 2
    # Series where the angle is small: atan(x) / x has a removable singularity at zero.
    near = n < SMALL_ANGLE * q**2
    # Arguments for the branch that is not taken: any value for which it and its derivatives are finite.
    q_near, n_far = space.where(near, q, 1.0), space.where(near, 1.0, n)
    x = space.where(near, n, 0.0) / q_near**2
    series = 2 / q_near * _polynomial([(-1) ** k / (2 * k + 1) for k in range(TERMS)], x)
    root = space.sqrt(n_far)
    factor = space.where(near, series, 2 * space.arctan2(root, q) / root)
    return space.vector([factor * each for each in v])


def left_jacobian(w: Any) -> Any:
    """Return J with exp(w + dw) = exp(J dw) exp(w) to first order: I + b S + c S^2, c = (t - sin t) / t^3."""
    s = _square(w)
    _, b, c, _ = _coefficients(s, _space(w))
    return _combination(w, 1 - c * s, b, c)


def right_jacobian(w: Any) -> Any:
    """Return J with exp(w + dw) = exp(w) exp(J dw) to first order, the transpose of the left one."""
    return left_jacobian(-w)


def left_jacobian_inverse(w: Any) -> Any:
    """Return the inverse of the left Jacobian, for |w| < 2 pi: I - S / 2 + d S^2."""
    s = _square(w)
    _, _, _, d = _coefficients(s, _space(w))
    return _combination(w, 1 - d * s, -0.5, d)


def right_jacobian_inverse(w: Any) -> Any:
    """Return the inverse of the right Jacobian, for |w| < 2 pi."""
    return left_jacobian_inverse(-w)


def quaternion_of(rotation: Any) -> Any:
    """Return the unit quaternion (q_0, q_1, q_2, q_3) of a rotation, with q_0 >= 0."""
    return _space(rotation).vector(_quaternion(rotation))


def rotation_of(quaternion: Any) -> Any:
    """Return the rotation of a quaternion that need not have length one."""
    space = _space(quaternion)
    q, *v = space.components(quaternion, 4)
    n = v[0] ** 2 + v[1] ** 2 + v[2] ** 2
    total = q**2 + n
    return _combination(space.vector(v), (q**2 - n) / total, 2 * q / total, 2 / total)


def product(first: Any, second: Any) -> Any:
    """Return the product of two quaternions, the rotation by the second, then by the first."""
    space = _space(first) if hasattr(first, "sparsity") else _space(second)
    (a, *x), (b, *y) = space.components(first, 4), space.components(second, 4)
    return space.vector(
        [
            a * b - x[0] * y[0] - x[1] * y[1] - x[2] * y[2],
            a * y[0] + b * x[0] + x[1] * y[2] - x[2] * y[1],
            a * y[1] + b * x[1] + x[2] * y[0] - x[0] * y[2],
            a * y[2] + b * x[2] + x[0] * y[1] - x[1] * y[0],
        ]
    )


def conjugate(quaternion: Any) -> Any:
    """Return the quaternion of the rotation back."""
    space = _space(quaternion)
    q, *v = space.components(quaternion, 4)
    return space.vector([q, *(-each for each in v)])


def quaternion_rate(quaternion: Any, angular_velocity: Any) -> Any:
    """Return q' = q (0, w) / 2 with the angular velocity w in the frame that turns [rad/s]."""
    space = _space(quaternion)
    w = space.components(angular_velocity, 3)
    return product(quaternion, space.vector([0 * w[0], *(each / 2 for each in w)]))


@named_arguments
def attitude_error(actual: Expression, desired: Expression) -> ca.SX | ca.DM | np.ndarray:
    """Return the rotation vector (3,) [rad] from the desired to the actual attitude: log(R_desired' R_actual).

    The vector is in the frame of the desired attitude. As a constraint it has three equations for three degrees of
    freedom (four equations for a unit quaternion are one too many), and a quaternion and its negative give the same
    result. Its length is the angle between the attitudes, at most pi; it jumps at half a turn.

    Parameters
    ----------
    actual, desired : (4,) or (3, 3)
        Unit quaternions, real part first, or rotation matrices: expressions or numbers.

    Returns
    -------
    SX, DM or ndarray (3,)

    Examples
    --------
    A quarter of a turn about z:

    >>> import nosnoc_py as ns
    >>> turned = [0.5**0.5, 0, 0, 0.5**0.5]
    >>> [round(float(e), 6) for e in ns.attitude_error(turned, [1, 0, 0, 0])]
    [0.0, 0.0, 1.570796]
    """
    first, second = (_as_quaternion(each, what) for each, what in ((actual, "actual"), (desired, "desired")))
    between = product(conjugate(second), first)
    space = _space(between)
    parts = space.components(between, 4)
    # q and -q are the same attitude: the one with a positive real part gives the shorter rotation.
    sign = space.where(parts[0] < 0, -1.0, 1.0)
    # Normalised here, as integration does not keep the length of a quaternion exactly.
    length = space.sqrt(sum(part**2 for part in parts))
    return _logarithm(space, [sign * part / length for part in parts])


def turned_between(first: Any, second: Any, share: float) -> Any:
    """Return the attitude at a fraction of the shortest way between two unit quaternions (Shoemake 1985)."""
    # A quaternion has half of the rotation angle.
    half = share / 2 * attitude_error(second, first)
    space, angle = _space(half), float(np.linalg.norm(half))
    # NumPy's sinc(x) is sin(pi x) / (pi x), which is one at zero without a special case.
    sinc = np.sinc(angle / np.pi)
    return product(first, space.vector([np.cos(angle), *(sinc * each for each in space.components(half, 3))]))


def _as_quaternion(value: Any, what: str) -> Any:
    if not hasattr(value, "sparsity"):
        value = np.asarray(value, dtype=float)
    shape = tuple(value.shape)
    if shape in ((4,), (4, 1)):
        return value if hasattr(value, "sparsity") else value.reshape(4)
    if shape == (3, 3):
        return quaternion_of(value)
    raise ModelError(f"attitude_error: {what}: expected a quaternion (4,) or a matrix (3, 3), given {shape}.")


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
        raise ModelError(f"{what}: the matrix is a reflection, det R = -1; reverse the sign of one column.")
    return matrix


def nearest_rotation(matrix: Any) -> np.ndarray:
    """Return the rotation R (3, 3) that minimises |R - M|, by singular values."""
    left, _, right = np.linalg.svd(np.asarray(matrix, dtype=float))
    # A negative determinant would give a reflection: reversing the smallest singular direction costs least.
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(left @ right))])
    return (left * signs) @ right


@dataclass(frozen=True)
class _Space:
    """The operations of one kind of numbers."""

    components: Callable[[Any, int], Sequence[Any]]
    vector: Callable[[Sequence[Any]], Any]
    matrix: Callable[[Sequence[Sequence[Any]]], Any]
    entry: Callable[[Any, int, int], Any]
    where: Callable[[Any, Any, Any], Any]
    sqrt: Callable[[Any], Any]
    sin: Callable[[Any], Any]
    arctan2: Callable[[Any, Any], Any]


def _stack(parts: Sequence[Any]) -> np.ndarray:
    return np.stack(np.broadcast_arrays(*parts), axis=-1)


_ARRAYS = _Space(
    components=lambda x, n: [np.asarray(x, dtype=float)[..., i] for i in range(n)],
    vector=_stack,
    matrix=lambda rows: np.stack([_stack(row) for row in rows], axis=-2),
    entry=lambda x, i, j: np.asarray(x, dtype=float)[..., i, j],
    where=np.where,
    sqrt=np.sqrt,
    sin=np.sin,
    arctan2=np.arctan2,
)


def _space(value: Any) -> _Space:
    """Return the operations for CasADi expressions or for arrays; CasADi is taken from sys.modules, not imported."""
    if not hasattr(value, "sparsity"):
        return _ARRAYS
    ca = sys.modules[type(value).__module__]
    return _Space(
        components=lambda x, n: [x[i] for i in range(n)],
        vector=lambda parts: ca.vertcat(*parts),
        matrix=lambda rows: ca.vertcat(*(ca.horzcat(*row) for row in rows)),
        entry=lambda x, i, j: x[i, j],
        where=ca.if_else,
        sqrt=ca.sqrt,
        sin=ca.sin,
        arctan2=ca.atan2,
    )


def _square(w: Any) -> Any:
    x = _space(w).components(w, 3)
    return x[0] ** 2 + x[1] ** 2 + x[2] ** 2


def _entries(matrix: Any) -> list[list[Any]]:
    entry = _space(matrix).entry
    return [[entry(matrix, i, j) for j in range(3)] for i in range(3)]


def _combination(w: Any, one: Any, first: Any, outer: Any) -> Any:
    """Return one I + first S(w) + outer w w', with S^2 = w w' - |w|^2 I."""
    space = _space(w)
    x, y, z = space.components(w, 3)
    xy, xz, yz = outer * x * y, outer * x * z, outer * y * z
    return space.matrix(
        [
            [one + outer * x**2, xy - first * z, xz + first * y],
            [xy + first * z, one + outer * y**2, yz - first * x],
            [xz - first * y, yz + first * x, one + outer * z**2],
        ]
    )


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    # Horner's rule; `0 * x` gives the value the shape of x.
    value = 0 * x + coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


_A = [(-1) ** k / factorial(2 * k + 1) for k in range(TERMS)]
_B = [(-1) ** k / factorial(2 * k + 2) for k in range(TERMS)]
_C = [(-1) ** k / factorial(2 * k + 3) for k in range(TERMS)]
_E = [(-1) ** k * (k + 1) / ((k + 2) * factorial(2 * k + 3)) for k in range(TERMS)]


def _coefficients(s: Any, space: _Space) -> tuple[Any, Any, Any, Any]:
    """Return a = sin(t) / t, b = (1 - cos t) / s, c = (1 - a) / s, d = (1 - a / (2 b)) / s = e / (2 b), s = t^2."""
    near = s < 1.0
    small, large = space.where(near, s, 0.0), space.where(near, 1.0, s)
    angle = space.sqrt(large)
    a = space.sin(angle) / angle
    b = 2 * space.sin(angle / 2) ** 2 / large  # 1 - cos t would cancel near a full turn
    closed = (a, b, (1 - a) / large, (2 * b - a) / large)
    series = [_polynomial(each, small) for each in (_A, _B, _C, _E)]
    a, b, c, e = (space.where(near, one, other) for one, other in zip(series, closed, strict=True))
    # d from the series of e: 1 - a / (2 b) would cancel for small angles.
    return a, b, c, e / (2 * b)


def _quaternion(rotation: Any) -> list[Any]:
    """Return the quaternion by Shepperd's method (1978): the column of 4 q q' with the largest diagonal entry."""
    space, r = _space(rotation), _entries(rotation)
    trace = r[0][0] + r[1][1] + r[2][2]
    first = [1 + trace, r[2][1] - r[1][2], r[0][2] - r[2][0], r[1][0] - r[0][1]]
    columns = [first]
    for i in range(3):
        # Entries of 4 q q' from sums and differences of entries of R.
        others = [1 + 2 * r[i][i] - trace if j == i else r[i][j] + r[j][i] for j in range(3)]
        columns.append([first[1 + i], *others])
    column, best = columns[0], columns[0][0]
    # The largest of the four squares is at least 1/4, so that the division below is always well conditioned.
    for k in range(1, 4):
        better = columns[k][k] > best
        column = [space.where(better, one, other) for one, other in zip(columns[k], column, strict=True)]
        best = space.where(better, columns[k][k], best)
    sign = space.where(column[0] < 0, -1.0, 1.0)
    return [sign * each / (2 * space.sqrt(best)) for each in column]
