"""Where a body meets a plane, and how fast.

rho is the body's lowest point over the plane {z : n . z = offset}, nu = R^T n, chi = rho x nu. That point leaves the
plane at n . gamma / m + chi . J^-1 Pi, and lambda n, an impulse there, adds lambda n to gamma and lambda chi to Pi: one
formula for all shapes (LGVCI, Corollary 4.6 for restitution 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.flight import Body
from nosnoc_py.methods.variational.vectors import Matrix, Vector, cross, dot, times, transposed_times
from nosnoc_py.systems.shapes.support_kernels import lens_support

Support = Callable[[np.ndarray], Any] | None
# Ellipsoids (n_e, 12), vertices (n_v, 4), lenses (n_l, 24) of a body, see `nosnoc_py.systems.shapes`.
Shape = tuple[np.ndarray, np.ndarray, np.ndarray]
Figure = tuple[Shape, Support]


@jitable
def feature_point(shape: Shape, support: Support, index: int, nu: Vector) -> tuple[float, Vector]:
    """Height nu . rho and place of the lowest point of one feature, ellipsoids first, then vertices, then lenses.

    A body that is known by its support function has one feature.
    """
    if support is not None:
        extreme = support(np.array((-nu[0], -nu[1], -nu[2])))
        rho = (extreme[0], extreme[1], extreme[2])
        return dot(rho, nu), rho
    ellipsoids, vertices, lenses = shape
    if index < ellipsoids.shape[0]:
        e = ellipsoids[index]
        a = e[3] * nu[0] + e[6] * nu[1] + e[9] * nu[2]
        b = e[4] * nu[0] + e[7] * nu[1] + e[10] * nu[2]
        c = e[5] * nu[0] + e[8] * nu[1] + e[11] * nu[2]
        length = math.sqrt(a * a + b * b + c * c)
        a, b, c = a / length, b / length, c / length
        point = (
            e[0] - (e[3] * a + e[4] * b + e[5] * c),
            e[1] - (e[6] * a + e[7] * b + e[8] * c),
            e[2] - (e[9] * a + e[10] * b + e[11] * c),
        )
        return e[0] * nu[0] + e[1] * nu[1] + e[2] * nu[2] - length, point
    index -= ellipsoids.shape[0]
    if index < vertices.shape[0]:
        v = vertices[index]
        point = (v[0] - v[3] * nu[0], v[1] - v[3] * nu[1], v[2] - v[3] * nu[2])
        return v[0] * nu[0] + v[1] * nu[1] + v[2] * nu[2] - v[3], point
    found = lens_support(lenses[index - vertices.shape[0]], np.array((-nu[0], -nu[1], -nu[2])))
    point = (found[0], found[1], found[2])
    return dot(point, nu), point


@jitable
def count_of(shape: Shape, support: Support) -> int:
    """Number of features."""
    return 1 if support is not None else shape[0].shape[0] + shape[1].shape[0] + shape[2].shape[0]


@jitable
def lowest_point(shape: Shape, support: Support, nu: Vector) -> tuple[float, Vector]:
    """min nu . rho over the body, and the rho where it is."""
    lowest, where = math.inf, (0.0, 0.0, 0.0)
    for index in range(count_of(shape, support)):
        height, point = feature_point(shape, support, index, nu)
        if not height >= lowest:  # also what is not a number
            lowest, where = height, point
    return lowest, where


@jitable
def gap_of(plane: np.ndarray, shape: Shape, support: Support, x: Vector, rotation: Matrix) -> float:
    """Phi = n . x - offset + min nu . rho; the row of a plane is n, offset, restitution, friction."""
    normal = (plane[0], plane[1], plane[2])
    return dot(normal, x) - plane[3] + lowest_point(shape, support, transposed_times(rotation, normal))[0]


@jitable
def approach(
    plane: np.ndarray, body: Body, figure: Figure, slack: float, rotation: Matrix, gamma: Vector, spin: Vector
) -> tuple[float, Vector]:
    """Of the points within `slack` of the lowest one, the velocity and the place of that which approaches fastest."""
    shape, support = figure
    normal = (plane[0], plane[1], plane[2])
    nu = transposed_times(rotation, normal)
    omega = times(body[3], spin)
    lowest = lowest_point(shape, support, nu)[0]
    fastest, where = math.inf, (0.0, 0.0, 0.0)
    for index in range(count_of(shape, support)):
        height, point = feature_point(shape, support, index, nu)
        if height <= lowest + slack:
            velocity = dot(cross(point, nu), omega)
            if velocity < fastest:
                fastest, where = velocity, point
    return dot(normal, gamma) / body[0] + fastest, where
