"""Samples, projections and starts of slips of a motion on arrays, by the accelerations of `kernel`."""

from __future__ import annotations

import math

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.contact_problems.modes import FREE, STICK
from nosnoc_py.motion.tape import LANES, run, run_lanes
from nosnoc_py.simulation.event_driven.kernel import (
    GROWN,
    STARTING,
    Array,
    ArrayMotion,
    accelerate,
    eliminate,
    respond,
    set_rates,
)


@jitable
def guard(motion: ArrayMotion, guards: Array, out: Array) -> None:
    """Set the guards (5 n_c,) as `guards.sample` does."""
    n_c = motion.sizes.n_c
    for i in range(guards.size):
        guards[i] = np.inf
    k = 0
    for c in range(n_c):
        mode, mu, force = motion.modes[c], motion.friction[c], motion.values[c]
        if mode == FREE:
            guards[c] = out[c]
            continue
        guards[n_c + c] = force
        first, last = motion.starts[c], motion.starts[c] + motion.widths[c]
        if mode == STICK:
            square = 0.0
            for t in range(first, last):
                square += motion.values[n_c + t] ** 2
            guards[3 * n_c + c] = mu * force - math.sqrt(square)
        elif last > first:
            guards[2 * n_c + c] = 0.0
            for t in range(first, last):
                guards[2 * n_c + c] += motion.rates[n_c + t] * motion.direction[t]
            guards[4 * n_c + c] = motion.stiff[k]
        k += 1


@jitable
def sample(motion: ArrayMotion, x: Array, guards: Array, forces: Array, rates: Array) -> None:
    """Set guards (m, n_g), forces (m, n_f) and rates (m, n_r) at states (m, n_x); eight of them are one pass."""
    together = x.shape[0] == LANES
    tape = motion.first if motion.sizes.contacts else motion.third
    if together:
        for k in range(LANES):
            for i in range(x.shape[1]):
                motion.arguments[i, k] = x[k, i]
        run_lanes(tape, motion.arguments, motion.outs)
    n_q, n_v, n_g, n_f = motion.sizes.n_q, motion.sizes.n_v, guards.shape[1], forces.shape[1]
    for k in range(x.shape[0]):
        if together:
            for i in range(motion.out.size):
                motion.out[i] = motion.outs[i, k]
        else:
            for i in range(x.shape[1]):
                motion.argument[i] = x[k, i]
            run(tape, motion.argument, motion.out)
        if motion.sizes.contacts:
            known = accelerate(motion, motion.out, x[k, n_q : n_q + n_v], False)
            guard(motion, guards[k], motion.out)
            for i in range(n_f):
                forces[k, i] = motion.values[i] if known else np.nan
                rates[k, i] = motion.rates[i]
            if not known:
                guards[k, :] = np.nan
        else:
            for i in range(n_g):
                guards[k, i] = motion.out[i]
            for i in range(n_f):
                forces[k, i] = motion.out[n_g + i]
            for i in range(rates.shape[1]):
                rates[k, i] = motion.out[n_g + n_f + i]


@jitable
def against(motion: ArrayMotion, rows: Array, values: Array) -> bool:
    """Solve for the impulses along rows that change their rates by the values of these rows; `forces` has them."""
    m, n_v, n_c, n_r = rows.size, motion.sizes.n_v, motion.sizes.n_c, motion.sizes.n_r
    for a in range(m):
        motion.forces[a] = values[rows[a]]
        for b in range(m):
            total = 0.0
            for i in range(n_v):
                total += motion.out[n_c + i * n_r + rows[a]] * motion.right[i, 1 + motion.column[rows[b]]]
            motion.small[a, b] = total
    return eliminate(motion.small, motion.forces[:m].reshape(m, 1), m, 1)


@jitable
def project(motion: ArrayMotion, x: Array) -> bool:
    """Move a state onto the constraints of the regime, see `ContactFlow.project`; False if there are none."""
    n_q, n_v = motion.sizes.n_q, motion.sizes.n_v
    for i in range(x.size):
        motion.argument[i] = x[i]
    if not motion.sizes.contacts:
        if motion.sizes.put:
            run(motion.second, motion.argument, x)
        return motion.sizes.put
    if motion.sizes.put:
        run(motion.third, motion.argument, x)
        for i in range(x.size):
            motion.argument[i] = x[i]
    if motion.rows.size == 0:
        return motion.sizes.put
    run(motion.first, motion.argument, motion.out)
    if not (respond(motion, motion.out) and against(motion, motion.closed, motion.out)):
        x[:] = np.nan
        return True
    way = motion.acceleration
    for i in range(n_v):
        way[i] = 0.0
        for k in range(motion.closed.size):
            way[i] += motion.right[i, 1 + motion.column[motion.closed[k]]] * motion.forces[k]
    if motion.sizes.turns:
        run(motion.second, motion.argument, motion.second_out)
        for j in range(n_v):
            for i in range(n_q):
                x[i] -= motion.second_out[j * n_q + i] * way[j]
    else:
        for i in range(n_q):
            x[i] -= way[i]
    for i in range(n_q):
        motion.argument[i] = x[i]
    run(motion.first, motion.argument, motion.out)
    set_rates(motion, motion.out, x[n_q : n_q + n_v])
    if not (respond(motion, motion.out) and against(motion, motion.rows, motion.rates)):
        x[:] = np.nan
        return True
    for i in range(n_v):
        for k in range(motion.rows.size):
            x[n_q + i] -= motion.right[i, 1 + motion.column[motion.rows[k]]] * motion.forces[k]
    return True


@jitable
def is_slow(motion: ArrayMotion) -> bool:
    """Return True if a slip in space is slower than `GROWN` at the last rates, see `ContactFlow.has_stiff_start`."""
    n_c = motion.sizes.n_c
    for c in range(n_c):
        if motion.widths[c] == 2 and motion.modes[c] != FREE and motion.modes[c] != STICK:
            i = n_c + motion.starts[c]
            if math.sqrt(motion.rates[i] ** 2 + motion.rates[i + 1] ** 2) < GROWN * motion.speed[0]:
                return True
    return False


@jitable
def turning(motion: ArrayMotion, x: Array, left: Array, right: Array) -> int:
    """Set the factors (n_x, k), (k, n_x) of the Jacobian of the directions, see `ContactRegime.turning`; return k."""
    n_q, n_v, n_c, n_r = motion.sizes.n_q, motion.sizes.n_v, motion.sizes.n_c, motion.sizes.n_r
    for i in range(x.size):
        motion.argument[i] = x[i]
    run(motion.first, motion.argument, motion.out)
    accelerate(motion, motion.out, x[n_q : n_q + n_v], False)
    m, count, starting = motion.rows.size, 0, STARTING * motion.speed[0]
    for k in range(motion.closed.size):
        c = motion.closed[k]
        if motion.widths[c] != 2 or motion.modes[c] == STICK:
            continue
        t = motion.starts[c]
        px, py = motion.direction[t], motion.direction[t + 1]
        sx, sy = motion.rates[n_c + t], motion.rates[n_c + t + 1]
        size = 1.0 + (sx * sx + sy * sy) / starting**2
        mirrors = 1.0 if sx * px + sy * py < 0.0 else 0.0
        back = starting / size - 2.0 * mirrors * (sx * px + sy * py)
        ux, uy = motion.along[t], motion.along[t + 1]
        length = math.sqrt((sx + back * px) ** 2 + (sy + back * py) ** 2)
        gx, gy = 2.0 * (mirrors * px + sx / (starting * size**2)), 2.0 * (mirrors * py + sy / (starting * size**2))
        a, b, c_, d = 1.0 - px * gx, -px * gy, -py * gx, 1.0 - py * gy
        ax, ay = ux * a + uy * c_, ux * b + uy * d
        a, b, c_, d = (a - ux * ax) / length, (b - ux * ay) / length, (c_ - uy * ax) / length, (d - uy * ay) / length
        part = -motion.friction[c] * motion.forces[k]
        for i in range(n_v):
            first = motion.right[i, 1 + motion.column[n_c + t]]
            second = motion.right[i, 1 + motion.column[n_c + t + 1]]
            left[n_q + i, count] = part * (first * a + second * c_)
            left[n_q + i, count + 1] = part * (first * b + second * d)
            right[count, n_q + i] = motion.out[n_c + i * n_r + n_c + t]
            right[count + 1, n_q + i] = motion.out[n_c + i * n_r + n_c + t + 1]
        count += 2
    pushed = np.zeros((m, count))
    for a_ in range(m):
        row = motion.rows[a_]
        for b_ in range(m):
            total = 0.0
            for i in range(n_v):
                total += motion.out[n_c + i * n_r + row] * motion.columns[i, b_]
            motion.small[a_, b_] = total
        for j in range(count):
            for i in range(n_v):
                pushed[a_, j] += motion.out[n_c + i * n_r + row] * left[n_q + i, j]
    if eliminate(motion.small, pushed, m, count):
        for i in range(n_v):
            for j in range(count):
                for a_ in range(m):
                    left[n_q + i, j] -= motion.columns[i, a_] * pushed[a_, j]
    return count
