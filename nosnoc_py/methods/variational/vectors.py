"""Three-dimensional vectors and matrices as tuples of floats (matrices by rows), so that kernels do not allocate."""

from __future__ import annotations

from nosnoc_py.compiled import jitable

Vector = tuple[float, float, float]
Matrix = tuple[float, float, float, float, float, float, float, float, float]


@jitable
def dot(a: Vector, b: Vector) -> float:
    """Return a . b."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@jitable
def cross(a: Vector, b: Vector) -> Vector:
    """Return a x b."""
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


@jitable
def plus(a: Vector, factor: float, b: Vector) -> Vector:
    """Return a + factor b."""
    return (a[0] + factor * b[0], a[1] + factor * b[1], a[2] + factor * b[2])


@jitable
def times(A: Matrix, v: Vector) -> Vector:
    """Return A v."""
    return (
        A[0] * v[0] + A[1] * v[1] + A[2] * v[2],
        A[3] * v[0] + A[4] * v[1] + A[5] * v[2],
        A[6] * v[0] + A[7] * v[1] + A[8] * v[2],
    )


@jitable
def transposed_times(A: Matrix, v: Vector) -> Vector:
    """Return A^T v."""
    return (
        A[0] * v[0] + A[3] * v[1] + A[6] * v[2],
        A[1] * v[0] + A[4] * v[1] + A[7] * v[2],
        A[2] * v[0] + A[5] * v[1] + A[8] * v[2],
    )


@jitable
def product(A: Matrix, B: Matrix) -> Matrix:
    """Return A B."""
    return (
        A[0] * B[0] + A[1] * B[3] + A[2] * B[6],
        A[0] * B[1] + A[1] * B[4] + A[2] * B[7],
        A[0] * B[2] + A[1] * B[5] + A[2] * B[8],
        A[3] * B[0] + A[4] * B[3] + A[5] * B[6],
        A[3] * B[1] + A[4] * B[4] + A[5] * B[7],
        A[3] * B[2] + A[4] * B[5] + A[5] * B[8],
        A[6] * B[0] + A[7] * B[3] + A[8] * B[6],
        A[6] * B[1] + A[7] * B[4] + A[8] * B[7],
        A[6] * B[2] + A[7] * B[5] + A[8] * B[8],
    )


@jitable
def determinant(A: Matrix) -> float:
    """Return det A."""
    return A[0] * (A[4] * A[8] - A[5] * A[7]) - A[1] * (A[3] * A[8] - A[5] * A[6]) + A[2] * (A[3] * A[7] - A[4] * A[6])


@jitable
def solve3(A: Matrix, det: float, b: Vector) -> Vector:
    """Return A^-1 b by cofactors, given det A."""
    # No elimination: it would need pivoting, and the caller tests the determinant in any case.
    return (
        ((A[4] * A[8] - A[5] * A[7]) * b[0] + (A[2] * A[7] - A[1] * A[8]) * b[1] + (A[1] * A[5] - A[2] * A[4]) * b[2])
        / det,
        ((A[5] * A[6] - A[3] * A[8]) * b[0] + (A[0] * A[8] - A[2] * A[6]) * b[1] + (A[2] * A[3] - A[0] * A[5]) * b[2])
        / det,
        ((A[3] * A[7] - A[4] * A[6]) * b[0] + (A[1] * A[6] - A[0] * A[7]) * b[1] + (A[0] * A[4] - A[1] * A[3]) * b[2])
        / det,
    )


@jitable
def orthonormal(R: Matrix) -> Matrix:
    """Return the nearest rotation of a matrix that is one up to rounding: R (3 I - R^T R) / 2 (one Newton step)."""
    # Columns leave unit length by rounding only, where one Newton step is exact to rounding; the factor is symmetric.
    a = 1.5 - 0.5 * (R[0] * R[0] + R[3] * R[3] + R[6] * R[6])
    b = 1.5 - 0.5 * (R[1] * R[1] + R[4] * R[4] + R[7] * R[7])
    c = 1.5 - 0.5 * (R[2] * R[2] + R[5] * R[5] + R[8] * R[8])
    d = -0.5 * (R[0] * R[1] + R[3] * R[4] + R[6] * R[7])
    e = -0.5 * (R[0] * R[2] + R[3] * R[5] + R[6] * R[8])
    f = -0.5 * (R[1] * R[2] + R[4] * R[5] + R[7] * R[8])
    return product(R, (a, d, e, d, b, f, e, f, c))
