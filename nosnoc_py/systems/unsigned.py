"""Detection of gaps without a sign: |q|, q^2, the distance of two points. They are positive on both sides of zero.

A method that looks for a change of sign passes through such a contact without an event. If the expression shows that it
is never negative, methods refuse it before the first step; otherwise a simulation ends at the first touch.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError

UNSIGNED = (
    "the gap becomes zero and then positive again, although the motion continues in the same direction; write a gap "
    "that becomes negative behind the contact and has a gradient there: q instead of |q| or q^2, x_2 - x_1 "
    "instead of a distance of points, a distance minus the sum of the radii"
)
# Depth of the search in an expression: the sign is decided by its last operations, and gaps may be very deep.
DEEPEST = 40


def refuse_unsigned(system: Any) -> None:
    """Raise `ModelError` for a contact of which the expression of the gap is never negative, and may be zero."""
    for contact in system.contacts:
        if is_never_negative(contact.gap):
            raise ModelError(f"contact {contact.name!r}: {UNSIGNED}.")


def is_never_negative(gap: ca.SX) -> bool:
    """Return True if the last operations of a scalar expression prove that it is nonnegative (zero is possible)."""
    return _sign(gap, 0) == 0


def is_mirrored(
    system: Any, x: np.ndarray, way: np.ndarray, p: np.ndarray, contact: int, short: float, far: float = np.inf
) -> bool:
    """Return True if a gap that is zero at x is positive behind it along a way (n_v,) that opens it by `short`.

    A gap above `far` has jumped instead, as at the end of the range of a face.
    """
    with np.errstate(all="ignore"):
        behind = np.array(x)
        behind[system.at_q] -= system.mechanics.moved(x, p, way)
    # Behind the contact a signed gap is about -short; half of +short separates the two cases despite curvature.
    return bool(0.5 * short < system.mechanics.gaps_at(behind, p)[contact] < far)


def _sign(e: ca.SX, depth: int) -> int | None:
    """Return 1 for an expression that is always positive, 0 for one that is never negative, None for all others."""
    if e.is_constant():
        value = float(e)
        return 1 if value > 0.0 else 0 if value == 0.0 else None
    if depth == DEEPEST or not e.n_dep():
        return None
    operation, parts = e.op(), [e.dep(k) for k in range(e.n_dep())]
    if operation == ca.OP_EXP:
        return 1
    if operation in (ca.OP_FABS, ca.OP_SQ, ca.OP_SQRT):
        inner = _sign(parts[0], depth + 1)
        return 1 if inner == 1 else 0
    if operation == ca.OP_MUL and ca.is_equal(parts[0], parts[1], 2):
        return 0
    if operation in (ca.OP_POW, ca.OP_CONSTPOW) and parts[1].is_constant():
        even = float(parts[1]) % 2.0 == 0.0
        return 0 if even else _sign(parts[0], depth + 1)
    signs = [_sign(part, depth + 1) for part in parts] if operation in _CLOSED else [None]
    if None in signs:
        # The maximum with one nonnegative argument is nonnegative, whatever the other one is.
        return max((s for s in signs if s is not None), default=None) if operation == ca.OP_FMAX else None
    known = [s for s in signs if s is not None]
    # A sum is positive if one term is; a product only if all factors are.
    return max(known) if operation in (ca.OP_ADD, ca.OP_FMAX) else min(known)


# Operations whose result is nonnegative for nonnegative arguments.
_CLOSED = (ca.OP_ADD, ca.OP_MUL, ca.OP_DIV, ca.OP_FMIN, ca.OP_FMAX, ca.OP_TWICE)
