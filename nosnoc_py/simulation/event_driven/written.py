"""The motion of a contact system in one regime as expressions, for steps in one call (`whole_step`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import casadi as ca
import numpy as np

from nosnoc_py.contact_problems.modes import FREE, SLIP, SLIP_BACK, STICK
from nosnoc_py.simulation.event_driven.mechanics import ContactRegime
from nosnoc_py.systems.kinematics import ContactMechanics

if TYPE_CHECKING:
    from nosnoc_py.simulation.event_driven.whole_step import WholeSteps

# Larger systems take long to write, and Python's share of their steps is small.
MOST_CONTACTS, MOST_COORDINATES, MOST_ROWS = 8, 12, 6
# Steps by the modes, of every system.
_STEPS: WeakKeyDictionary[ContactMechanics, dict[Any, Any]] = WeakKeyDictionary()


def steps_of(mechanics: ContactMechanics, regime: ContactRegime) -> WholeSteps | None:
    """The steps of a regime, written once; None for large systems, redundant contacts and slips in space.

    Where a slip in space ends its direction hangs on rounding, and derivatives of the end with it.
    """
    frames, system = mechanics.frames, mechanics.system
    large = frames.count > MOST_CONTACTS or system.n_v > MOST_COORDINATES or regime.rows.size > MOST_ROWS
    if large or regime.redundant or regime.spatial:
        return None
    known = _STEPS.setdefault(mechanics, {})
    modes = tuple(SLIP if mode == SLIP_BACK else mode for mode in regime.modes)
    if modes not in known:
        made = _write(mechanics, regime)
        known[modes] = made if made.small else None
    found: WholeSteps | None = known[modes]
    return found


def data_of(regime: ContactRegime, u: np.ndarray, p: np.ndarray) -> np.ndarray:
    """What is constant on a phase: control, parameters and directions of slip."""
    return np.concatenate([u, p, regime.direction])


def _write(mechanics: ContactMechanics, regime: ContactRegime) -> WholeSteps:
    from nosnoc_py.simulation.event_driven.whole_step import WholeSteps  # which imports SciPy's integrators

    # With the coefficients as they are written: expressions of p among them stay so.
    system, frames, n_c = mechanics.system, mechanics.frames, mechanics.frames.count
    x, direction = system.x, ca.SX.sym("direction", frames.n_t)
    found = mechanics.function(x, system.u, system.p)
    gaps, jacobian, mass, force, curvature, drift, position_rate, y_rate = found
    inverse = ca.inv(mass) if mechanics.constant_inverse is None else ca.DM(mechanics.constant_inverse)
    response, free = inverse @ jacobian.T, inverse @ force
    delassus, slip = jacobian @ response, jacobian @ system.v + drift
    rows, closed = [int(row) for row in regime.rows], [int(c) for c in regime.closed]
    along = {c: direction[_own(frames, c)] for c in regime.slipping}
    columns = response[:, rows]
    for k, c in enumerate(closed):
        if c in along:
            columns[:, k] -= frames.friction[c] * (response[:, _tangents(frames, c)] @ along[c])
    acceleration, forces = free, ca.SX(n_c + frames.n_t, 1)
    if rows:
        normal = jacobian[rows, :]
        pulled = -(normal @ free + curvature[rows])
        own = _solved(normal @ columns, pulled)
        acceleration = free + columns @ own
        forces[rows] = own
        for c in along:
            forces[_tangents(frames, c)] = -frames.friction[c] * forces[c] * along[c]
    guards = [ca.SX.inf(n_c) for _ in range(5)]
    for c, mode in enumerate(regime.modes):
        if mode == FREE:
            guards[0][c] = gaps[c]
            continue
        guards[1][c], mu = forces[c], frames.friction[c]
        if mode == STICK:
            guards[3][c] = mu * forces[c] - ca.norm_2(ca.densify(forces[_tangents(frames, c)]))
        elif c in along:
            part = _tangents(frames, c)
            guards[2][c] = ca.dot(slip[part], direction[_own(frames, c)])
            guards[4][c] = delassus[c, c] - mu * ca.dot(delassus[c, part].T, along[c])
    d = ca.vertcat(system.u, system.p, direction)
    put = _put(system, d, gaps, response, delassus, slip, closed, rows) if rows else None
    rate = ca.vertcat(position_rate, acceleration, y_rate)
    return WholeSteps(x, d, rate, ca.vertcat(*guards), forces, slip, put)


def _put(
    system: Any,
    d: ca.SX,
    gaps: ca.SX,
    response: ca.SX,
    delassus: ca.SX,
    slip: ca.SX,
    closed: list[int],
    rows: list[int],
) -> ca.SX:
    """The state on its constraints, see `ContactFlow.project`."""
    pushed = response[:, rows] @ _solved(delassus[rows, rows], slip[rows])
    moved = system.q - system.moved(response[:, closed] @ _solved(delassus[closed, closed], gaps[closed]))
    again = ca.Function("again", [system.x, d], [system.v - pushed])
    return ca.vertcat(moved, again(ca.vertcat(moved, system.v, system.y), d), system.y)


def _solved(matrix: ca.SX, right: ca.SX) -> ca.SX:
    return right / matrix if matrix.numel() == 1 else ca.solve(ca.densify(matrix), ca.densify(right))


def _own(frames: Any, contact: int) -> list[int]:
    part = frames.tangents[contact]
    return list(range(part.start, part.stop))


def _tangents(frames: Any, contact: int) -> list[int]:
    return [frames.count + k for k in _own(frames, contact)]
