"""Unit quaternions among the coordinates of a system: slices, rates, and independence of their length.

A quaternion has four components and three degrees of freedom. Integrators do not keep its length, but as
q' = q (0, w) / 2 is linear in q, its direction is integrated correctly for every length. Expressions of q are therefore
written for q / |q| (`with_unit`), and lengths are normalised at the nodes of results only. Expressions that do not
depend on the length already are left as they are, which keeps programs small; this is tested by numbers (`_is_alike`),
as there is no symbolic test.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.rotations import quaternion_rate
from nosnoc_py.systems.symbols import symbols

if TYPE_CHECKING:
    from nosnoc_py.systems.cls import CLS

Array = np.ndarray
UNIT_GIVEN = 1e-6  # largest error of the length of a quaternion of the user: it may be written with some digits only
SAMPLES = 8  # number of places where expressions are compared: several, as an expression may have branches
ALIKE = 1e-9  # largest relative difference of one expression for quaternions of several lengths: above rounding


def unit_parts(q: ca.SX, given: Any) -> tuple[slice, ...]:
    """Return the slices of the quaternions among the coordinates, in their order."""
    if not isinstance(given, list | tuple):
        given = [given]
    known = [one.element_hash() for one in ca.vertsplit(q)]
    result = []
    for quaternion in given:
        parts = ca.vertsplit(symbols(quaternion, "CLS: quaternions"))
        first = known.index(parts[0].element_hash()) if parts and parts[0].element_hash() in known else -1
        if len(parts) != 4 or first < 0 or known[first : first + 4] != [one.element_hash() for one in parts]:
            raise ModelError(
                "CLS: quaternions: expected parts of q with four components that follow each other, such as [q[3:7]], "
                f"given {quaternion}."
            )
        result.append(slice(first, first + 4))
    # Sorted, as `body_rates` walks through q and v from left to right.
    result.sort(key=lambda part: part.start)
    if any(later.start < part.stop for part, later in pairwise(result)):
        raise ModelError("CLS: quaternions: two of them share a coordinate; each needs four of its own.")
    return tuple(result)


def body_rates(q: ca.SX, v: ca.SX, units: Sequence[slice]) -> ca.SX:
    """Return q' for three angular velocities per quaternion in v; other coordinates have their rates in v."""
    if not units:
        return v
    rates, i, j = [], 0, 0
    for part in units:
        # A quaternion takes one component of v less than of q, so that the two indices drift apart by one each time.
        rates += [v[j : j + part.start - i], quaternion_rate(q[part], v[j + part.start - i : j + part.start - i + 3])]
        i, j = part.stop, j + part.start - i + 3
    return ca.vertcat(*rates, v[j:])


def with_unit(expression: ca.SX, q: ca.SX, units: Sequence[slice]) -> ca.SX:
    """Return the expression for quaternions of length one; as it is where their length makes no difference."""
    if not units or not ca.depends_on(expression, q) or _is_alike(expression, q, units):
        return expression
    ends = sorted({0, q.numel(), *(end for part in units for end in (part.start, part.stop))})
    starts = [part.start for part in units]
    scaled = [
        part / ca.norm_2(part) if a in starts else part for a, part in zip(ends, ca.vertsplit(q, ends), strict=False)
    ]
    return ca.substitute(expression, q, ca.vertcat(*scaled))


def scaled_alike(rate: ca.SX, q: ca.SX, part: slice) -> ca.SX:
    """Return the rate of a quaternion of any length: its length times the rate of the unit quaternion."""
    # A linear rate has this property by itself.
    if ca.is_linear(rate, q[part]):
        return rate
    return ca.norm_2(q[part]) * with_unit(rate, q, [part])


def _is_alike(expression: ca.SX, q: ca.SX, units: Sequence[slice]) -> bool:
    """Return True if quaternions of several lengths give the same values at random places."""
    values = ca.symvar(expression)
    others = ca.vertcat(ca.SX(0, 1), *[s for s in values if not ca.depends_on(q, s)])
    function = ca.Function("of_q", [q, others], [expression], {"allow_free": False})
    rng = np.random.default_rng(0)
    for _ in range(SAMPLES):
        place, rest = rng.uniform(-1.5, 1.5, q.numel()), rng.uniform(-1.5, 1.5, others.numel())
        entries = []
        # 1.7 is arbitrary: an expression of the length hardly agrees there by chance.
        for length in (1.0, 1.7):
            for part in units:
                place[part] *= length / np.linalg.norm(place[part])
            entries.append(np.asarray(ca.densify(function(place, rest))))
        # Written with `not`, so that NaN counts as different.
        if not np.abs(entries[0] - entries[1]).max(initial=0.0) <= ALIKE * np.abs(entries[0]).max(initial=0.0):
            return False
    return True


def check_unit(x: Array, system: CLS, what: str) -> Array:
    """Return a state or raise `ModelError` where a quaternion has not length one."""
    for part in system.unit_parts:
        length = float(np.linalg.norm(x[part]))
        if not abs(length - 1.0) <= UNIT_GIVEN:
            names = ", ".join(system.state_names[part])
            raise ModelError(
                f"{what}: ({names}) is a unit quaternion, given one of length {length:.6g}; divide it by that, or give "
                "(1, 0, 0, 0) for no rotation."
            )
    return x


def with_attitude(x: Array, units: Sequence[slice]) -> Array:
    """Return a state in which zero quaternions are replaced by the identity rotation."""
    x = np.array(x, dtype=float)
    for part in units:
        x[part] = x[part] if x[part].any() else (1.0, 0.0, 0.0, 0.0)
    return unit_states(x, units)


def lengths_left_open(rows: ca.SX, q: ca.SX, units: Sequence[slice]) -> list[slice]:
    """Return the quaternions on whose length expressions do not depend, so that a condition on it must be added."""
    return [part for part in units if not ca.depends_on(rows, q[part]) or _is_alike(rows, q, [part])]


def tangent_directions(x: Array, units: Sequence[slice]) -> Array:
    """Return the projection (n_x, n_x) of changes of a state on those that keep its quaternions at length one."""
    result = np.eye(x.size)
    for part in units:
        # I - q q' removes changes along the quaternion, for |q| = 1.
        result[part, part] -= np.outer(x[part], x[part])
    return result


def unit_states(x: Array, units: Sequence[slice]) -> Array:
    """Return the states (..., n_x) with quaternions of length one."""
    if not units:
        return x
    x = np.array(x, dtype=float)
    for part in units:
        x[..., part] /= np.linalg.norm(x[..., part], axis=-1, keepdims=True)
    return x
