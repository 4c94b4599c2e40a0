"""A body that rests on planes: after every step its configuration and its velocity are put back onto them.

A step of a resting body is one of free flight and then two contact problems (`contacts`) over all points that touch:
for the displacement, which ends on the planes or above them, and for the velocity behind it, which does not approach
them. Impulses of the first, divided by h, are those that act over the step; the second adds what is missing. Both have
Coulomb's friction. So a body that may stand or stick does not move at all, and one that must tip over does.
"""

from __future__ import annotations

import math

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.collision import count_of, feature_point, gap_of, lowest_point
from nosnoc_py.methods.variational.contacts import energy_norm, joint, put_rows, together, velocity_of
from nosnoc_py.methods.variational.flight import State, cayley
from nosnoc_py.methods.variational.scene import Scene
from nosnoc_py.methods.variational.vectors import (
    Matrix,
    Vector,
    cross,
    dot,
    orthonormal,
    plus,
    product,
    times,
    transposed_times,
)

# Points so close to a plane [m] carry the body.
CLOSED = 1e-9
# Gaps [m] below zero that are rounding.
TOUCHING = 1e-14
# A motion that contacts have stopped, relative to what it would be without them.
STOPPED = 1e-9
# Changes of a displacement [m] that end it, and linearizations of the gaps for one displacement.
UNCHANGED, MOST_LINEARIZATIONS = 1e-12, 20


@jitable
def shifted(scene: Scene, plane: np.ndarray, gap: float, x: Vector, rotation: Matrix) -> tuple[Vector, Matrix]:
    """Position and rotation after the displacement that an impulse would cause, so large that it closes a gap."""
    body = scene.body
    normal = (plane[0], plane[1], plane[2])
    nu = transposed_times(rotation, normal)
    chi = cross(lowest_point(scene.shape, scene.support, nu)[1], nu)
    turn = times(body[3], chi)
    amount = -gap / (1.0 / body[0] + dot(chi, turn))
    f = (0.5 * amount * turn[0], 0.5 * amount * turn[1], 0.5 * amount * turn[2])
    return plus(x, amount / body[0], normal), orthonormal(product(rotation, cayley(f)))


@jitable
def lifted(scene: Scene, x: Vector, rotation: Matrix) -> tuple[Vector, Matrix]:
    """Position and rotation out of all planes: leaving one must not lead into another."""
    planes = scene.planes
    for sweep in range(60):
        lowest = 0.0
        for k in range(planes.shape[0]):
            gap = gap_of(planes[k], scene.shape, scene.support, x, rotation)
            if gap >= -TOUCHING * (1.0 + math.sqrt(dot(x, x))):
                continue
            lowest = gap
            if sweep < 50:
                x, rotation = shifted(scene, planes[k], gap, x, rotation)
            else:
                x = plus(x, -gap, (planes[k, 0], planes[k, 1], planes[k, 2]))
        if lowest == 0.0:
            break
    return x, rotation


@jitable
def point_gap(scene: Scene, k: int, index: int, x: Vector, rotation: Matrix) -> tuple[float, Vector]:
    """Gap to plane k and place of one point."""
    plane = scene.planes[k]
    normal = (plane[0], plane[1], plane[2])
    height, rho = feature_point(scene.shape, scene.support, index, transposed_times(rotation, normal))
    return dot(normal, x) - plane[3] + height, rho


@jitable
def between(rotation: Matrix, other: Matrix) -> Vector:
    """2 f with other = rotation F(f) in Cayley's chart, which turns are small in."""
    F = product((
        rotation[0], rotation[3], rotation[6], rotation[1], rotation[4], rotation[7], rotation[2], rotation[5],
        rotation[8],
    ), other)  # fmt: skip
    scale = 2.0 / (1.0 + F[0] + F[4] + F[8])
    return (scale * (F[7] - F[5]), scale * (F[2] - F[6]), scale * (F[3] - F[1]))


@jitable
def displaced(x: Vector, rotation: Matrix, d: np.ndarray) -> tuple[Vector, Matrix]:
    """Position and rotation after a displacement (6,): translation, and 2 f."""
    turn = cayley((0.5 * d[3], 0.5 * d[4], 0.5 * d[5]))
    return (x[0] + d[0], x[1] + d[1], x[2] + d[2]), orthonormal(product(rotation, turn))


@jitable
def supported(
    scene: Scene, settled: np.ndarray, anchor: tuple[Vector, Matrix, float], x: Vector, rotation: Matrix
) -> tuple[Vector, Matrix, np.ndarray]:
    """Position and rotation that contacts leave of a displacement from the anchor, and their impulses J^T p (6,).

    Points touch that are closed at the anchor or below a plane at the end. Gaps are linearized again at every end until
    those that carry are zero. Planes the body has not settled on stop it, too, but have no part in the impulses.
    """
    body, planes = scene.body, scene.planes
    most, start, turned = count_of(scene.shape, scene.support), anchor[0], anchor[1]
    rows, inside = np.zeros((planes.shape[0] * most, 3, 6)), np.zeros(planes.shape[0] * most)
    targets, friction = np.zeros(planes.shape[0] * most), np.zeros(planes.shape[0] * most)
    impulses, chosen = np.zeros((planes.shape[0] * most, 3)), np.zeros(planes.shape[0] * most, dtype=np.int64)
    turn = between(turned, rotation)
    free = np.array((x[0] - start[0], x[1] - start[1], x[2] - start[2], turn[0], turn[1], turn[2]))
    d, count, way = free, 0, energy_norm(body, free)
    size = 1.0 + math.sqrt(dot(start, start))
    for _ in range(MOST_LINEARIZATIONS):
        for k in range(planes.shape[0]):
            for index in range(most):
                if inside[k * most + index] != 0.0:
                    continue
                gap, _ = point_gap(scene, k, index, x, rotation)
                before, rho = point_gap(scene, k, index, start, turned)
                if gap < -TOUCHING * size or (settled[k] != 0.0 and before <= CLOSED):
                    put_rows(rows[count], planes[k], turned, rho)
                    friction[count] = planes[k, 5] if settled[k] != 0.0 else 0.0
                    chosen[count], inside[k * most + index] = k * most + index, 1.0
                    count += 1
        if count == 0:
            break
        for i in range(count):
            gap, _ = point_gap(scene, chosen[i] // most, chosen[i] % most, x, rotation)
            targets[i] = np.sum(rows[i, 0] * d) - gap
        last = d
        d = joint(body, rows[:count], targets[:count], friction[:count], impulses[:count], free)
        if energy_norm(body, d) <= STOPPED * way:
            d = np.zeros(6)
        x, rotation = displaced(start, turned, d)
        if energy_norm(body, d - last) <= UNCHANGED * size:
            break
    if count > 0 and not d.any():
        x, rotation = start, turned
    for i in range(count):
        if settled[chosen[i] // most] == 0.0:
            impulses[i] = 0.0
    return x, rotation, together(rows[:count], impulses[:count])


@jitable
def stilled(
    scene: Scene, settled: np.ndarray, x: Vector, gamma: Vector, rotation: Matrix, spin: Vector
) -> tuple[Vector, Vector]:
    """Momenta after the joint inelastic impulses of all points that are on or below a plane the body rests on."""
    body, planes = scene.body, scene.planes
    most, count = count_of(scene.shape, scene.support), 0
    rows, friction = np.zeros((planes.shape[0] * most, 3, 6)), np.zeros(planes.shape[0] * most)
    for k in range(planes.shape[0]):
        if settled[k] == 0.0:
            continue
        lowest = gap_of(planes[k], scene.shape, scene.support, x, rotation)
        for index in range(most):
            gap, rho = point_gap(scene, k, index, x, rotation)
            if gap <= CLOSED + min(lowest, 0.0):
                put_rows(rows[count], planes[k], rotation, rho)
                friction[count] = planes[k, 5]
                count += 1
    if count == 0:
        return gamma, spin
    free = velocity_of(body, np.array((gamma[0], gamma[1], gamma[2], spin[0], spin[1], spin[2])))
    impulses = np.zeros((count, 3))
    w = joint(body, rows[:count], np.zeros(count), friction[:count], impulses, free)
    if energy_norm(body, w) <= STOPPED * energy_norm(body, free):
        return (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    torque = together(rows[:count], impulses)
    return (
        (gamma[0] + torque[0], gamma[1] + torque[1], gamma[2] + torque[2]),
        (spin[0] + torque[3], spin[1] + torque[4], spin[2] + torque[5]),
    )


@jitable
def rested(
    scene: Scene, settled: np.ndarray, ends: np.ndarray, state: State, anchor: tuple[Vector, Matrix, float]
) -> State:
    """Put a state back onto the planes it rests on: the configuration, the velocities, and the energy.

    Of first order. Position, rotation and energy at the start are `anchor`. Where the end has gained energy, all
    momenta are scaled down, which keeps normal velocities zero; where the gain is more than all kinetic energy, the
    body stays where it was.
    """
    rule, body, shape, support, planes = scene
    found, x, gamma, flown, spin = state
    x, rotation, impulse = supported(scene, settled, anchor, x, flown)
    x, rotation = lifted(scene, x, rotation)
    # over a step h the displacement of a constant force is h / 2 times its impulse, that of an early one is larger
    share = 1.0 / rule.h
    gamma = plus(gamma, share, (impulse[0], impulse[1], impulse[2]))
    world = plus(times(flown, spin), share, times(anchor[1], (impulse[3], impulse[4], impulse[5])))
    spin = transposed_times(rotation, world)
    gamma, spin = stilled(scene, settled, x, gamma, rotation, spin)
    kinetic = 0.5 * (dot(gamma, gamma) / body[0] + dot(spin, times(body[3], spin)))
    excess = kinetic - body[0] * dot(body[1], x) - anchor[2]
    if excess > 0.0:
        scale = math.sqrt(1.0 - excess / kinetic) if excess < kinetic else 0.0
        if scale == 0.0:
            x, rotation = anchor[0], anchor[1]
        gamma = (scale * gamma[0], scale * gamma[1], scale * gamma[2])
        spin = (scale * spin[0], scale * spin[1], scale * spin[2])
    for k in range(planes.shape[0]):
        ends[k] = gap_of(planes[k], shape, support, x, rotation)
        if ends[k] > 2.0 * rule.closed:
            settled[k] = 0.0
    return found, x, gamma, rotation, spin
