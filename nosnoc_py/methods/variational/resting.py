"""Resting contact: after every step configuration and velocity of the body are projected onto the planes.

A step of a resting body is a step of free flight, followed by two contact problems (`contacts`) over all touching
points: one for the displacement, which has to end on or above the planes, and one for the velocity after it, which must
not approach them. The impulses of the first one, divided by h, act over the step; the second one adds the rest. Both
include Coulomb friction, so a body that can stand or stick does not move, and one that has to tip over does.
"""

from __future__ import annotations

import math

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.collision import count_of, feature_point, gap_of, lowest_point
from nosnoc_py.methods.variational.contacts import (
    energy_norm,
    generalised_impulse,
    solve_contacts,
    velocity_of,
    write_jacobian,
)
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

# Points within this distance of a plane [m] are in contact.
CLOSED = 1e-9
# Penetrations [m], relative to 1 + |x|, up to this are rounding.
TOUCHING = 1e-14
# A motion below this fraction of the free motion counts as stopped and is set to zero, so that bodies do not creep.
STOPPED_FRACTION = 1e-9
# Change of a displacement [m] that ends the iteration, and its largest number of linearisations of the gaps.
DISPLACEMENT_TOLERANCE, MAX_LINEARIZATIONS = 1e-12, 20


@jitable
def push_out_of_plane(
    scene: Scene, plane: np.ndarray, gap: float, x: Vector, rotation: Matrix
) -> tuple[Vector, Matrix]:
    """Return position and rotation after a displacement along an impulse at the lowest point that closes a gap."""
    body = scene.body
    normal = (plane[0], plane[1], plane[2])
    nu = transposed_times(rotation, normal)
    chi = cross(lowest_point(scene.shape, scene.support, nu)[1], nu)
    turn = times(body[3], chi)
    amount = -gap / (1.0 / body[0] + dot(chi, turn))
    f = (0.5 * amount * turn[0], 0.5 * amount * turn[1], 0.5 * amount * turn[2])
    return plus(x, amount / body[0], normal), orthonormal(product(rotation, cayley(f)))


@jitable
def push_out(scene: Scene, x: Vector, rotation: Matrix) -> tuple[Vector, Matrix]:
    """Return position and rotation moved out of all planes, in sweeps, since leaving one may enter another."""
    planes = scene.planes
    for sweep in range(60):
        lowest = 0.0
        for k in range(planes.shape[0]):
            gap = gap_of(planes[k], scene.shape, scene.support, x, rotation)
            if gap >= -TOUCHING * (1.0 + math.sqrt(dot(x, x))):
                continue
            lowest = gap
            if sweep < 50:
                x, rotation = push_out_of_plane(scene, planes[k], gap, x, rotation)
            else:
                # Translation only: rotations of the first sweeps may not converge in a corner.
                x = plus(x, -gap, (planes[k, 0], planes[k, 1], planes[k, 2]))
        if lowest == 0.0:
            break
    return x, rotation


@jitable
def point_gap(scene: Scene, k: int, index: int, x: Vector, rotation: Matrix) -> tuple[float, Vector]:
    """Return the gap to plane k and the place of one point."""
    plane = scene.planes[k]
    normal = (plane[0], plane[1], plane[2])
    height, rho = feature_point(scene.shape, scene.support, index, transposed_times(rotation, normal))
    return dot(normal, x) - plane[3] + height, rho


@jitable
def relative_turn(rotation: Matrix, other: Matrix) -> Vector:
    """Return 2 f with other = rotation F(f) in Cayley's chart, approximately the rotation vector."""
    # rotation^T other
    F = product((
        rotation[0], rotation[3], rotation[6], rotation[1], rotation[4], rotation[7], rotation[2], rotation[5],
        rotation[8],
    ), other)  # fmt: skip
    # 1 + trace is zero for half a turn, which a step of a resting body never makes.
    scale = 2.0 / (1.0 + F[0] + F[4] + F[8])
    return (scale * (F[7] - F[5]), scale * (F[2] - F[6]), scale * (F[3] - F[1]))


@jitable
def apply_displacement(x: Vector, rotation: Matrix, d: np.ndarray) -> tuple[Vector, Matrix]:
    """Return position and rotation after a displacement (6,): translation, and 2 f."""
    turn = cayley((0.5 * d[3], 0.5 * d[4], 0.5 * d[5]))
    return (x[0] + d[0], x[1] + d[1], x[2] + d[2]), orthonormal(product(rotation, turn))


@jitable
def constrained_displacement(
    scene: Scene, at_rest: np.ndarray, anchor: tuple[Vector, Matrix, float], x: Vector, rotation: Matrix
) -> tuple[Vector, Matrix, np.ndarray]:
    """Constrain a displacement from the anchor by contacts; return position, rotation and impulses J^T p (6,).

    Active points are those closed at the anchor or below a plane at the end. Gaps are linearised again at each end
    until those of active points are zero. Planes on which the body does not rest also stop it, but without an impulse.
    """
    body, planes = scene.body, scene.planes
    features, start, start_rotation = count_of(scene.shape, scene.support), anchor[0], anchor[1]
    rows, is_active = np.zeros((planes.shape[0] * features, 3, 6)), np.zeros(planes.shape[0] * features)
    targets, friction = np.zeros(planes.shape[0] * features), np.zeros(planes.shape[0] * features)
    impulses, point_ids = (
        np.zeros((planes.shape[0] * features, 3)),
        np.zeros(planes.shape[0] * features, dtype=np.int64),
    )
    turn = relative_turn(start_rotation, rotation)
    free = np.array((x[0] - start[0], x[1] - start[1], x[2] - start[2], turn[0], turn[1], turn[2]))
    d, count, free_size = free, 0, energy_norm(body, free)
    size = 1.0 + math.sqrt(dot(start, start))
    for _ in range(MAX_LINEARIZATIONS):
        for k in range(planes.shape[0]):
            for index in range(features):
                # Active points stay active: a set that shrinks again could cycle.
                if is_active[k * features + index] != 0.0:
                    continue
                gap, _ = point_gap(scene, k, index, x, rotation)
                start_gap, rho = point_gap(scene, k, index, start, start_rotation)
                if gap < -TOUCHING * size or (at_rest[k] != 0.0 and start_gap <= CLOSED):
                    write_jacobian(rows[count], planes[k], start_rotation, rho)
                    friction[count] = planes[k, 5] if at_rest[k] != 0.0 else 0.0
                    point_ids[count], is_active[k * features + index] = k * features + index, 1.0
                    count += 1
        if count == 0:
            break
        for i in range(count):
            gap, _ = point_gap(scene, point_ids[i] // features, point_ids[i] % features, x, rotation)
            targets[i] = np.sum(rows[i, 0] * d) - gap
        last = d
        d = solve_contacts(body, rows[:count], targets[:count], friction[:count], impulses[:count], free)
        # Exactly zero instead of rounding, so that a standing body does not creep over many steps.
        if energy_norm(body, d) <= STOPPED_FRACTION * free_size:
            d = np.zeros(6)
        x, rotation = apply_displacement(start, start_rotation, d)
        if energy_norm(body, d - last) <= DISPLACEMENT_TOLERANCE * size:
            break
    if count > 0 and not d.any():
        x, rotation = start, start_rotation
    for i in range(count):
        # Planes without rest stop the displacement; their impulse comes from the impact at the next closed gap.
        if at_rest[point_ids[i] // features] == 0.0:
            impulses[i] = 0.0
    return x, rotation, generalised_impulse(rows[:count], impulses[:count])


@jitable
def stop_contact_velocities(
    scene: Scene, at_rest: np.ndarray, x: Vector, gamma: Vector, rotation: Matrix, spin: Vector
) -> tuple[Vector, Vector]:
    """Return the momenta after inelastic impulses at all points on or below planes on which the body rests."""
    body, planes = scene.body, scene.planes
    features, count = count_of(scene.shape, scene.support), 0
    rows, friction = np.zeros((planes.shape[0] * features, 3, 6)), np.zeros(planes.shape[0] * features)
    for k in range(planes.shape[0]):
        if at_rest[k] == 0.0:
            continue
        lowest = gap_of(planes[k], scene.shape, scene.support, x, rotation)
        for index in range(features):
            gap, rho = point_gap(scene, k, index, x, rotation)
            if gap <= CLOSED + min(lowest, 0.0):
                write_jacobian(rows[count], planes[k], rotation, rho)
                friction[count] = planes[k, 5]
                count += 1
    if count == 0:
        return gamma, spin
    free = velocity_of(body, np.array((gamma[0], gamma[1], gamma[2], spin[0], spin[1], spin[2])))
    impulses = np.zeros((count, 3))
    w = solve_contacts(body, rows[:count], np.zeros(count), friction[:count], impulses, free)
    if energy_norm(body, w) <= STOPPED_FRACTION * energy_norm(body, free):
        return (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    torque = generalised_impulse(rows[:count], impulses)
    return (
        (gamma[0] + torque[0], gamma[1] + torque[1], gamma[2] + torque[2]),
        (spin[0] + torque[3], spin[1] + torque[4], spin[2] + torque[5]),
    )


@jitable
def project_to_rest(
    scene: Scene, at_rest: np.ndarray, ends: np.ndarray, state: State, anchor: tuple[Vector, Matrix, float]
) -> State:
    """Project configuration, velocity and energy of a state onto the planes on which it rests (first order in h).

    `anchor` holds position, rotation and energy at the start of the step. If the energy has increased, all momenta are
    scaled down, which keeps normal velocities zero; if the gain exceeds the kinetic energy, the body stays in place.
    """
    rule, body, shape, support, planes = scene
    valid, x, gamma, flight_rotation, spin = state
    x, rotation, impulse = constrained_displacement(scene, at_rest, anchor, x, flight_rotation)
    x, rotation = push_out(scene, x, rotation)
    # A constant force displaces by h / 2 times its impulse over the step, an early one by more; 1 / h is a lower bound,
    # and the second contact problem adds the rest.
    rate = 1.0 / rule.h
    gamma = plus(gamma, rate, (impulse[0], impulse[1], impulse[2]))
    world = plus(times(flight_rotation, spin), rate, times(anchor[1], (impulse[3], impulse[4], impulse[5])))
    spin = transposed_times(rotation, world)
    gamma, spin = stop_contact_velocities(scene, at_rest, x, gamma, rotation, spin)
    kinetic = 0.5 * (dot(gamma, gamma) / body[0] + dot(spin, times(body[3], spin)))
    # Mechanical energy now, minus that at the start of the step.
    excess = kinetic - body[0] * dot(body[1], x) - anchor[2]
    if excess > 0.0:
        scale = math.sqrt(1.0 - excess / kinetic) if excess < kinetic else 0.0
        # The projection would cost more energy than there is: keep the configuration of the start.
        if scale == 0.0:
            x, rotation = anchor[0], anchor[1]
        gamma = (scale * gamma[0], scale * gamma[1], scale * gamma[2])
        spin = (scale * spin[0], scale * spin[1], scale * spin[2])
    for k in range(planes.shape[0]):
        ends[k] = gap_of(planes[k], shape, support, x, rotation)
        # The body has left the plane.
        if ends[k] > 2.0 * rule.closed:
            at_rest[k] = 0.0
    return valid, x, gamma, rotation, spin
