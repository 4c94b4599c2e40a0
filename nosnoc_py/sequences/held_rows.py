"""Path constraints that cannot change in a mode: their rows are imposed where the mode begins, and nowhere else.

A foot that sticks keeps its place, and so does every function of that place. Imposed at all stages of the phase, such
a row asks for the sign of the drift of the collocation, or, where it is active, leaves no interior to an interior-point
method. Its value at the beginning of the phase decides about all of it. If terminal constraints fix this value, the row
is not imposed there either.

A function g(q) is constant while H v = 0 if its gradient lies in the row space of H. This is tested by numbers, at the
states of the start and at random ones near them, since a symbolic test would have to know the geometry.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

Array = np.ndarray
# A gradient is in the row space if its remainder after projection is below this fraction of its length: well above
# rounding, far below any gradient that is not.
IN_ROW_SPACE = 1e-9
# Distance of random states from those of the start, as a fraction of the typical values: a gradient that is in the row
# space at the start only (a knee that is straight there) is not in it at random states.
RANDOM_DISTANCE = 0.1


def held_rows(system: Any, held: ca.SX | None, expression: ca.SX, states: Array, sizes: Array, p: Array) -> Array:
    """Return which rows of an expression are functions of the positions that velocities with H v = 0 leave constant.

    Parameters
    ----------
    system : CLS
    held : SX (n_h, n_v), optional
        H, in the system's states and parameters; None restricts nothing.
    expression : SX (rows,)
    states : (n, n_x)
        Where the test is made, and near where.
    sizes : (n_x,)
        Typical sizes of the states.
    p : (n_p,)
    """
    if held is None or not held.numel():
        return np.zeros(int(expression.numel()), bool)
    constant = positions_only(system, expression)
    symbols = [system.x, system.p]
    numbers = ca.Function("gradients", symbols, [system.along_v(expression), held], {"allow_free": True})
    if not constant.any() or numbers.has_free():
        return np.zeros(constant.size, bool)
    rng = np.random.default_rng(0)
    near = states + RANDOM_DISTANCE * sizes * rng.standard_normal(states.shape)
    for x in np.vstack([states, near]):
        rows, directions = (np.array(part) for part in numbers(x, p))
        if not (np.isfinite(rows).all() and np.isfinite(directions).all()):
            return np.zeros(constant.size, bool)
        left = rows.T - directions.T @ np.linalg.lstsq(directions.T, rows.T, rcond=None)[0]
        constant = constant & (np.linalg.norm(left, axis=0) <= IN_ROW_SPACE * np.linalg.norm(rows, axis=1))
    return constant


def positions_only(system: Any, expression: ca.SX) -> Array:
    """Return which rows of an expression depend on nothing but positions and parameters, (rows,) bool."""
    known = ca.vertcat(system.q, system.p)
    # By identity, not by name: nothing keeps a user from calling positions and velocities the same.
    hashes = {symbol.element_hash() for symbol in ca.vertsplit(known)} if known.numel() else set()
    rows = ca.vertsplit(expression) if expression.numel() else []
    return np.array([all(s.element_hash() in hashes for s in ca.symvar(row)) for row in rows], bool)
