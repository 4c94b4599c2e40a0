"""Gap and approach velocity between a body and a plane.

With the plane {z : n . z = offset}, nu = R^T n and the body's lowest point rho (body frame), chi = rho x nu. This point
moves along n with the velocity n . gamma / m + chi . J^-1 Pi, and an impulse lambda n at it adds lambda n to gamma and
lambda chi to Pi. This formula covers all shapes (LGVCI, Corollary 4.6 for restitution 1).
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
    """Return height nu . rho and place of the lowest point of a feature (ellipsoids, then vertices, then lenses).

    A body with a support function has one feature.
    """
    if support is not None:
        extreme = support(np.array((-nu[0], -nu[1], -nu[2])))
        rho = (extreme[0], extreme[1], extreme[2])
        return dot(rho, nu), rho
    ellipsoids, vertices, lenses = shape
    if index < ellipsoids.shape[0]:
        e = ellipsoids[index]
        # Semi-axes are the columns of A: the lowest point of an ellipsoid is c - A A'nu / |A'nu|.
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
        # A vertex has a skin of radius v[3], a sphere around it.
        point = (v[0] - v[3] * nu[0], v[1] - v[3] * nu[1], v[2] - v[3] * nu[2])
        return v[0] * nu[0] + v[1] * nu[1] + v[2] * nu[2] - v[3], point
    # Support functions return the highest point in a direction; the lowest one is in the direction -nu.
    extreme_point = lens_support(lenses[index - vertices.shape[0]], np.array((-nu[0], -nu[1], -nu[2])))
    point = (extreme_point[0], extreme_point[1], extreme_point[2])
    return dot(point, nu), point


@jitable
def count_of(shape: Shape, support: Support) -> int:
    """Return the number of features."""
    return 1 if support is not None else shape[0].shape[0] + shape[1].shape[0] + shape[2].shape[0]


@jitable
def lowest_point(shape: Shape, support: Support, nu: Vector) -> tuple[float, Vector]:
    """Return min nu . rho over the body, and the minimising rho."""
    lowest, where = math.inf, (0.0, 0.0, 0.0)
    for index in range(count_of(shape, support)):
        height, point = feature_point(shape, support, index, nu)
        if not height >= lowest:  # also takes NaN, which must not be hidden
            lowest, where = height, point
    return lowest, where


@jitable
def gap_of(plane: np.ndarray, shape: Shape, support: Support, x: Vector, rotation: Matrix) -> float:
    """Return the gap Phi = n . x - offset + min nu . rho; a plane is (n, offset, restitution, friction)."""
    normal = (plane[0], plane[1], plane[2])
    return dot(normal, x) - plane[3] + lowest_point(shape, support, transposed_times(rotation, normal))[0]


@jitable
def approach(
    plane: np.ndarray, body: Body, figure: Figure, slack: float, rotation: Matrix, gamma: Vector, spin: Vector
) -> tuple[float, Vector]:
    """Return normal velocity and place of the fastest approaching point within `slack` of the lowest one."""
    shape, support = figure
    normal = (plane[0], plane[1], plane[2])
    nu = transposed_times(rotation, normal)
    omega = times(body[3], spin)
    lowest = lowest_point(shape, support, nu)[0]
    fastest, where = math.inf, (0.0, 0.0, 0.0)
    for index in range(count_of(shape, support)):
        height, point = feature_point(shape, support, index, nu)
        # Several features may touch; the one that approaches fastest gets its impulse first.
        if height <= lowest + slack:
            velocity = dot(cross(point, nu), omega)
            if velocity < fastest:
                fastest, where = velocity, point
    return dot(normal, gamma) / body[0] + fastest, where
