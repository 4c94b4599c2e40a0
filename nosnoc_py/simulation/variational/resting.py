"""A body that rests on planes: after every step its configuration and its velocity are put back onto them."""

from __future__ import annotations

import math

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.simulation.variational.collision import Shape, Support, approach, gap_of, lowest_point
from nosnoc_py.simulation.variational.flight import Body, State, cayley, energy_of
from nosnoc_py.simulation.variational.friction import struck
from nosnoc_py.simulation.variational.segments import Rule
from nosnoc_py.simulation.variational.vectors import (
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

# Normal velocities (relative to 1 m/s and to that of the body) below which nothing approaches.
REST = 1e-12
# Points so close to a plane [m] carry the body.
CLOSED = 1e-9


@jitable
def shifted(
    plane: np.ndarray, body: Body, shape: Shape, support: Support, gap: float, x: Vector, rotation: Matrix
) -> tuple[Vector, Matrix]:
    """Position and rotation after the displacement that an impulse would cause, so large that it closes a gap."""
    normal = (plane[0], plane[1], plane[2])
    nu = transposed_times(rotation, normal)
    chi = cross(lowest_point(shape, support, nu), nu)
    turn = times(body[3], chi)
    amount = -gap / (1.0 / body[0] + dot(chi, turn))
    f = (0.5 * amount * turn[0], 0.5 * amount * turn[1], 0.5 * amount * turn[2])
    return plus(x, amount / body[0], normal), orthonormal(product(rotation, cayley(f)))


@jitable
def lifted(
    body: Body, shape: Shape, support: Support, planes: np.ndarray, x: Vector, rotation: Matrix
) -> tuple[Vector, Matrix]:
    """Position and rotation out of all planes: leaving one must not lead into another."""
    for sweep in range(60):
        deepest = 0.0
        for k in range(planes.shape[0]):
            gap = gap_of(planes[k], shape, support, x, rotation)
            if gap >= 0.0:
                continue
            deepest = min(deepest, gap)
            if sweep < 50:
                x, rotation = shifted(planes[k], body, shape, support, gap, x, rotation)
            else:
                x = plus(x, -gap, (planes[k, 0], planes[k, 1], planes[k, 2]))
        if deepest >= -1e-15:
            break
    return x, rotation


@jitable
def stilled(
    body: Body,
    shape: Shape,
    support: Support,
    planes: np.ndarray,
    settled: np.ndarray,
    x: Vector,
    gamma: Vector,
    rotation: Matrix,
    spin: Vector,
) -> tuple[Vector, Vector]:
    """Momenta after inelastic impulses at all points that are on or below a plane and approach it."""
    for _ in range(200):
        moving = False
        for k in range(planes.shape[0]):
            gap = gap_of(planes[k], shape, support, x, rotation)
            if settled[k] == 0.0 or gap > CLOSED:
                continue
            velocity, rho = approach(planes[k], body, shape, support, CLOSED - gap, rotation, gamma, spin)
            if velocity < -REST:
                _, impulse, torque, _, _, _, _ = struck(planes[k], 0.0, body, rotation, rho, gamma, spin)
                gamma, spin, moving = plus(gamma, 1.0, impulse), plus(spin, 1.0, torque), True
        if not moving:
            break
    return gamma, spin


@jitable
def rested(
    rule: Rule,
    body: Body,
    shape: Shape,
    support: Support,
    planes: np.ndarray,
    settled: np.ndarray,
    ends: np.ndarray,
    state: State,
    anchor: tuple[Vector, Matrix, float],
) -> State:
    """Put a state back onto the planes it rests on: the velocities, the configuration, and the energy.

    Of first order. Normal velocities into a plane end by inelastic impulses, before the shift (an edge that falls onto
    the plane is no longer below it afterwards) and behind it. Where the shift of the configuration has
    gained more energy than they took, all momenta are scaled down, which keeps those velocities zero; where it is more
    than all kinetic energy, the body stays where it was: `anchor` is position, rotation and energy at the start.
    """
    found, x, gamma, rotation, spin = state
    gamma, spin = stilled(body, shape, support, planes, settled, x, gamma, rotation, spin)
    x, rotation = lifted(body, shape, support, planes, x, rotation)
    gamma, spin = stilled(body, shape, support, planes, settled, x, gamma, rotation, spin)
    excess = energy_of(body, x, gamma, spin) - anchor[2]
    if excess > 0.0:
        kinetic = 0.5 * (dot(gamma, gamma) / body[0] + dot(spin, times(body[3], spin)))
        if excess >= kinetic:
            x, rotation = anchor[0], anchor[1]
        scale = math.sqrt(1.0 - excess / kinetic) if excess < kinetic else 0.0
        gamma = (scale * gamma[0], scale * gamma[1], scale * gamma[2])
        spin = (scale * spin[0], scale * spin[1], scale * spin[2])
    for k in range(planes.shape[0]):
        ends[k] = gap_of(planes[k], shape, support, x, rotation)
        if ends[k] > 2.0 * rule[1]:
            settled[k] = 0.0
    return found, x, gamma, rotation, spin
