"""Motion of a contact system in one regime as CasADi expressions, for compiled steps (`whole_step`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from nosnoc_py.contact_problems.modes import FREE, SLIP, SLIP_BACK, STICK
from nosnoc_py.simulation.event_driven.mechanics import ContactRegime
from nosnoc_py.simulation.event_driven.whole_step import CompiledSteps
from nosnoc_py.systems.kinematics import ContactMechanics

if TYPE_CHECKING:
    from nosnoc_py.systems.cls import CLS

# Larger systems take long to compile, and the overhead of Python in their steps is small.
MOST_CONTACTS, MOST_COORDINATES, MOST_ROWS, MOST_OPERATIONS = 8, 12, 6, 500


def compiled_steps_of(mechanics: ContactMechanics, regime: ContactRegime) -> CompiledSteps | None:
    """Return the compiled steps of a regime (cached); None for large systems, redundant contacts and slips in space.

    The direction of a slip in space depends on rounding at its end, and so would derivatives of that end.
    """
    if not is_small(mechanics, regime):
        return None
    known = mechanics.once(_no_steps)
    # The direction of a slip is data of the phase, so that both signs of a slip in the plane share one function.
    modes = tuple(SLIP if mode == SLIP_BACK else mode for mode in regime.modes)
    if modes not in known:
        steps = _compile(mechanics, regime)
        known[modes] = steps if steps.small else None
    return known[modes]


def is_small(mechanics: ContactMechanics, regime: ContactRegime) -> bool:
    """Return True if the steps of a regime can be compiled soon enough."""
    frames, system = mechanics.frames, mechanics.system
    large = frames.count > MOST_CONTACTS or system.n_v > MOST_COORDINATES or regime.rows.size > MOST_ROWS
    if large or regime.redundant or regime.spatial:
        return False
    return mechanics.function.n_instructions() <= MOST_OPERATIONS


def phase_data(regime: ContactRegime, u: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return the data of a phase: control, parameters and directions of slip."""
    return np.concatenate([u, p, regime.direction])


def _no_steps(system: CLS) -> dict[tuple[int, ...], CompiledSteps | None]:
    """Return the compiled steps of a system by modes, before the first one."""
    return {}


def _compile(mechanics: ContactMechanics, regime: ContactRegime) -> CompiledSteps:
    # Use the symbolic coefficients: restitution and friction may be expressions of p.
    system, frames, n_c = mechanics.system, mechanics.frames, mechanics.frames.count
    x, direction = system.x, ca.SX.sym("direction", frames.n_t)
    expressions = mechanics.function(x, system.u, system.p)
    gaps, jacobian, mass, force, curvature, drift, position_rate, y_rate = expressions
    inverse = ca.inv(mass) if mechanics.constant_inverse is None else ca.DM(mechanics.constant_inverse)
    response, free = inverse @ jacobian.T, inverse @ force
    delassus, slip = jacobian @ response, jacobian @ system.v + drift
    rows, closed = [int(row) for row in regime.rows], [int(c) for c in regime.closed]
    along = {c: direction[_own(frames, c)] for c in regime.slipping}
    # Friction follows its normal force, f_t = -mu f_n d: both move the bodies by one column per slipping contact.
    columns = response[:, rows]
    for k, c in enumerate(closed):
        if c in along:
            columns[:, k] -= frames.friction[c] * (response[:, _tangents(frames, c)] @ along[c])
    acceleration, forces = free, ca.SX(n_c + frames.n_t, 1)
    if rows:
        normal = jacobian[rows, :]
        # Zero normal (and, in stick, tangential) acceleration: A (a_free + columns f) + curvature = 0.
        pulled = -(normal @ free + curvature[rows])
        own = _solved(normal @ columns, pulled)
        acceleration = free + columns @ own
        forces[rows] = own
        for c in along:
            forces[_tangents(frames, c)] = -frames.friction[c] * forces[c] * along[c]
    guards = [ca.SX.inf(n_c) for _ in range(5)]
    static = np.zeros(n_c) if frames.sticking is None else frames.sticking
    for c, mode in enumerate(regime.modes):
        if mode == FREE:
            guards[0][c] = gaps[c]
            continue
        guards[1][c], mu = forces[c], frames.friction[c]
        if mode == STICK:
            guards[3][c] = ca.fmax(mu, float(static[c])) * forces[c] - ca.norm_2(
                ca.densify(forces[_tangents(frames, c)])
            )
        elif c in along:
            part = _tangents(frames, c)
            guards[2][c] = ca.dot(slip[part], direction[_own(frames, c)])
            # Gap acceleration per unit of f_n with its friction; where it is not positive, friction jams (Painleve).
            guards[4][c] = delassus[c, c] - mu * ca.dot(delassus[c, part].T, along[c])
    d = ca.vertcat(system.u, system.p, direction)
    put = _project(system, d, gaps, response, delassus, slip, closed, rows) if rows else None
    if system.bilateral is not None:
        settled = mechanics.put_on_constraints(x, system.p)
        put = settled if put is None else ca.Function("put", [x, d], [put])(settled, d)
    rate = ca.vertcat(position_rate, acceleration, y_rate)
    return CompiledSteps(x, d, rate, ca.vertcat(*guards), forces, slip, put)


def _project(
    system: Any,
    d: ca.SX,
    gaps: ca.SX,
    response: ca.SX,
    delassus: ca.SX,
    slip: ca.SX,
    closed: list[int],
    rows: list[int],
) -> ca.SX:
    """Return the state on its constraints, see `ContactFlow.project`."""
    pushed = response[:, rows] @ _solved(delassus[rows, rows], slip[rows])
    moved = system.q - system.moved(response[:, closed] @ _solved(delassus[closed, closed], gaps[closed]))
    # The velocities are projected at the corrected positions, as the normals have turned with them.
    again = ca.Function("again", [system.x, d], [system.v - pushed])
    return ca.vertcat(moved, again(ca.vertcat(moved, system.v, system.y), d), system.y)


def _solved(matrix: ca.SX, right: ca.SX) -> ca.SX:
    return right / matrix if matrix.numel() == 1 else ca.solve(ca.densify(matrix), ca.densify(right))


def _own(frames: Any, contact: int) -> list[int]:
    part = frames.tangents[contact]
    return list(range(part.start, part.stop))


def _tangents(frames: Any, contact: int) -> list[int]:
    return [frames.count + k for k in _own(frames, contact)]
