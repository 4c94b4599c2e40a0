"""Smooth motion of one phase on arrays, for the compiled loop of `loop`: contacts with their modes as data.

One kernel serves all systems and all regimes. The kinematics of a system are a `Tape`; accelerations and forces follow
by the same linear algebra as in `mechanics`, with dense matrices that are eliminated in place. What is not needed in
every stage of a step is in `kernel_samples`. Motions that are written out for one regime are tapes as a whole.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.contact_problems.modes import FREE, STICK
from nosnoc_py.motion.tape import Tape, run

Array = np.ndarray
# As in `mechanics`: see there.
STARTING, GROWN = 1e-9, 1e-4
# Smaller states and rates are set to zero: the squares of their errors would underflow.
UNDERFLOW = 1e-50


class Sizes(NamedTuple):
    """Numbers of positions, velocities, contacts and rows (normals and tangents); whether x is known by contacts.

    `turns` is True where q' = N(q) v with N that is not the identity, `put` where a state is put on bilateral
    constraints, or a written motion has a projection.
    """

    n_q: int
    n_v: int
    n_c: int
    n_r: int
    contacts: bool
    turns: bool
    put: bool


class ArrayMotion(NamedTuple):
    """Smooth motion in one regime.

    Attributes
    ----------
    sizes : Sizes
    first, second, third : Tape
        Of contacts: (x, u, p) -> `QUANTITIES`; N(q); the state on bilateral constraints. Of a written motion: rate,
        projection, sample.
    argument, arguments : (n_in,), (n_in, 8)
        Arguments of the tapes; the state comes first, the others are constant in a phase.
    out, outs, second_out : (n_out,), (n_out, 8), (n,)
        Values of the tapes.
    modes, starts, widths : (n_c,) int
        Modes, and the tangents of every contact.
    friction : (n_c,)
    direction : (n_r - n_c,)
        Directions of slip; changed by `accept`.
    speed : (1,)
        Speed that tolerances are relative to.
    closed, rows, used, column : (k,), (m,), (n_u,), (n_r,) int
        Closed contacts, rows without acceleration, rows of which the response is needed, and their columns.
    along : (n_r - n_c,)
        Directions of slip at this instant.
    matrix, right : (n_v, n_v), (n_v, 1 + n_u)
        Mass matrix and right-hand sides; their solutions after elimination.
    columns : (n_v, m)
    small, forces : (m, m), (m,)
    values, rates : (n_r,)
        All contact forces and rates.
    stiff : (m,)
        Accelerations of rows per unit of their own force.
    acceleration : (n_v,)
    """

    sizes: Sizes
    first: Tape
    second: Tape
    third: Tape
    argument: Array
    arguments: Array
    out: Array
    outs: Array
    second_out: Array
    modes: Array
    starts: Array
    widths: Array
    friction: Array
    direction: Array
    speed: Array
    closed: Array
    rows: Array
    used: Array
    column: Array
    along: Array
    matrix: Array
    right: Array
    columns: Array
    small: Array
    forces: Array
    values: Array
    rates: Array
    stiff: Array
    acceleration: Array


@jitable
def eliminate(matrix: Array, right: Array, n: int, m: int) -> bool:
    """Solve for m right-hand sides in place, by Gauss's elimination with partial pivots; False if it is singular."""
    for k in range(n):
        pivot, most = k, abs(matrix[k, k])
        for i in range(k + 1, n):
            if abs(matrix[i, k]) > most:
                pivot, most = i, abs(matrix[i, k])
        if not most > 0.0 or not math.isfinite(most):
            return False
        if pivot != k:
            for j in range(k, n):
                matrix[k, j], matrix[pivot, j] = matrix[pivot, j], matrix[k, j]
            for j in range(m):
                right[k, j], right[pivot, j] = right[pivot, j], right[k, j]
        for i in range(k + 1, n):
            if matrix[i, k] == 0.0:
                continue
            factor = matrix[i, k] / matrix[k, k]
            for j in range(k + 1, n):
                matrix[i, j] -= factor * matrix[k, j]
            for j in range(m):
                right[i, j] -= factor * right[k, j]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            if matrix[i, k] == 0.0:
                continue
            for j in range(m):
                right[i, j] -= matrix[i, k] * right[k, j]
        for j in range(m):
            right[i, j] /= matrix[i, i]
    return True


@jitable
def turn(motion: ArrayMotion) -> None:
    """Set the directions of slip at the rates, see `ContactRegime.slip_direction`."""
    starting, n_c = STARTING * motion.speed[0], motion.sizes.n_c
    for c in range(n_c):
        if motion.modes[c] == FREE or motion.modes[c] == STICK or motion.widths[c] == 0:
            continue
        i = motion.starts[c]
        if motion.widths[c] == 1:
            motion.along[i] = motion.direction[i]
            continue
        px, py = motion.direction[i], motion.direction[i + 1]
        sx, sy = motion.rates[n_c + i], motion.rates[n_c + i + 1]
        weight = starting / (1.0 + (sx * sx + sy * sy) / starting**2)
        back = weight - min(0.0, 2.0 * (sx * px + sy * py))
        x, y = sx + back * px, sy + back * py
        size = math.sqrt(x * x + y * y)
        motion.along[i], motion.along[i + 1] = x / size, y / size


@jitable
def set_rates(motion: ArrayMotion, out: Array, v: Array) -> None:
    """Set the gap rates and slip velocities at values of the kinematics."""
    n_v, n_c, n_r = motion.sizes.n_v, motion.sizes.n_c, motion.sizes.n_r
    drift = n_c + n_r * n_v + n_v * n_v + n_v + n_r
    for r in range(n_r):
        motion.rates[r] = out[drift + r]
    for j in range(n_v):
        for r in range(n_r):
            motion.rates[r] += out[n_c + j * n_r + r] * v[j]


@jitable
def respond(motion: ArrayMotion, out: Array) -> bool:
    """Set the free acceleration and the responses to unit forces, side by side in `right`."""
    n_v, n_c, n_r = motion.sizes.n_v, motion.sizes.n_c, motion.sizes.n_r
    mass = n_c + n_r * n_v
    force, count = mass + n_v * n_v, motion.used.size
    for i in range(n_v):
        for j in range(n_v):
            motion.matrix[i, j] = out[mass + j * n_v + i]
        motion.right[i, 0] = out[force + i]
        for k in range(count):
            motion.right[i, 1 + k] = out[n_c + i * n_r + motion.used[k]]
    return eliminate(motion.matrix, motion.right, n_v, 1 + count)


@jitable
def accelerate(motion: ArrayMotion, out: Array, v: Array, follows: bool) -> bool:
    """Set acceleration, forces and rates; `follows` keeps the directions of slip as the last ones."""
    n_v, n_c, n_r = motion.sizes.n_v, motion.sizes.n_c, motion.sizes.n_r
    set_rates(motion, out, v)
    turn(motion)
    if follows:
        for c in range(n_c):
            if motion.widths[c] == 2 and motion.modes[c] != FREE and motion.modes[c] != STICK:
                for i in range(motion.starts[c], motion.starts[c] + 2):
                    motion.direction[i] = motion.along[i]
        turn(motion)
    if not respond(motion, out):
        return False
    right, columns, m = motion.right, motion.columns, motion.rows.size
    curvature = n_c + n_r * n_v + n_v * n_v + n_v
    for r in range(n_r):
        motion.values[r] = 0.0
    for i in range(n_v):
        motion.acceleration[i] = right[i, 0]
    if m == 0:
        return True
    for k in range(m):
        for i in range(n_v):
            columns[i, k] = right[i, 1 + motion.column[motion.rows[k]]]
        if k < motion.closed.size:
            c = motion.closed[k]
            if motion.modes[c] != STICK:
                for t in range(motion.starts[c], motion.starts[c] + motion.widths[c]):
                    part = motion.friction[c] * motion.along[t]
                    for i in range(n_v):
                        columns[i, k] -= part * right[i, 1 + motion.column[n_c + t]]
    for a in range(m):
        row = motion.rows[a]
        total = out[curvature + row]
        for i in range(n_v):
            total += out[n_c + i * n_r + row] * right[i, 0]
        motion.forces[a] = -total
        for b in range(m):
            total = 0.0
            for i in range(n_v):
                total += out[n_c + i * n_r + row] * columns[i, b]
            motion.small[a, b] = total
        motion.stiff[a] = motion.small[a, a]
    if not eliminate(motion.small, motion.forces.reshape(m, 1), m, 1):
        return False
    for k in range(m):
        motion.values[motion.rows[k]] = motion.forces[k]
        for i in range(n_v):
            motion.acceleration[i] += columns[i, k] * motion.forces[k]
    for k in range(motion.closed.size):
        c = motion.closed[k]
        if motion.modes[c] != STICK:
            for t in range(motion.starts[c], motion.starts[c] + motion.widths[c]):
                motion.values[n_c + t] = -motion.friction[c] * motion.forces[k] * motion.along[t]
    return True


@jitable
def rate(motion: ArrayMotion, x: Array, follows: bool, out: Array) -> None:
    """Set dx/dt (n_x,); NaN where it has no value."""
    for i in range(x.size):
        motion.argument[i] = x[i]
    if motion.sizes.contacts:
        n_q, n_v = motion.sizes.n_q, motion.sizes.n_v
        run(motion.first, motion.argument, motion.out)
        known = accelerate(motion, motion.out, x[n_q : n_q + n_v], follows)
        first = motion.out.size - (x.size - n_v)
        for i in range(n_q):
            out[i] = motion.out[first + i]
        for i in range(n_v):
            out[n_q + i] = motion.acceleration[i] if known else np.nan
        for i in range(n_q + n_v, x.size):
            out[i] = motion.out[first + i - n_v]
    else:
        run(motion.first, motion.argument, out)
    for i in range(x.size):
        if abs(out[i]) < UNDERFLOW:
            out[i] = 0.0
