"""Distances to the next event of a system, and the constraints of its closed contacts, as linear rows of (x, p).

A filter needs to know how near an impact is in standard deviations, and has to keep closed contacts closed: corrections
of a state are linear, contacts are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.hybrid import HybridSystem

Array = np.ndarray
# Newton steps onto closed contacts, from states that a linear correction has moved.
NEWTON_STEPS = 4
# A slip below this fraction of the largest velocity is a sticking contact.
NO_SLIP = 1e-9


class DistanceRows(NamedTuple):
    """Values (m,) and derivatives (m, n_x), (m, n_p) of functions of state and parameters."""

    values: Array
    by_x: Array
    by_p: Array


class EventDistances:
    """Gaps of contacts, or guards of a hybrid system, and the constraints of closed contacts.

    Other systems have none: their states do not jump.
    """

    def __init__(self, system: Described) -> None:
        self.system = system
        values, rates, constraints = ca.SX(0, 1), ca.SX(0, 1), ca.SX(0, 1)
        self.names: tuple[str, ...] = ()
        if isinstance(system, CLS) and system.contacts:
            values, rates = system.mechanics.gaps, system.mechanics.gap_rates
            constraints = ca.vertcat(values, system.mechanics.rates)
            self.names = tuple(contact.name for contact in system.contacts)
        elif isinstance(system, HybridSystem):
            values = ca.vertcat(ca.SX(0, 1), *[jump.guard for jump in system.jumps])
            rates = ca.jtimes(values, system.x, system.flow)
            self.names = tuple(jump.name for jump in system.jumps)
        x, u, p = system.x, system.u, system.p
        self.count = len(self.names)
        # Parameters on which a distance depends anywhere.
        self.places = np.array([bool(ca.depends_on(values, p[i])) for i in range(p.numel())], dtype=bool)
        self._values = _rows("distances", [x, p], values)
        self._rates = buffered(ca.Function("rates", [x, u, p], [ca.densify(rates)])) if self.count else None
        self._constraints = _rows("constraints", [x, p], constraints)

    def at(self, x: Array, p: Array) -> DistanceRows:
        """Return the distances, positive before an event, and their derivatives."""
        values, by_x, by_p = self._values(x, p)
        return DistanceRows(values=values[:, 0], by_x=by_x, by_p=by_p)

    def rates(self, x: Array, u: Array, p: Array) -> Array:
        """Return the rates of the distances (m,) along the motion."""
        return np.asarray(self._rates(x, u, p)[0][:, 0]) if self._rates is not None else np.zeros(0)

    def closed(self, motion: Trajectory) -> Array:
        """Return the rows of constraints (m,) that hold at the end of a motion: of contacts that press.

        Gaps and gap rates of these contacts, and slips of those that stick.
        """
        if not isinstance(self.system, CLS) or not self.count:
            return np.zeros(0, dtype=int)
        # A force is exactly zero where the contact is open.
        pressing = [motion.series.get(f"lambda_normal[{name}]") for name in self.names]
        shut = np.array([force is not None and len(force) > 0 and force.values[-1] > 0.0 for force in pressing])
        if not shut.any():
            return np.zeros(0, dtype=int)
        x, p = motion.final_state, np.array(list(motion.parameters.values()), dtype=float)
        slips = self._constraints(x, p)[0][2 * self.count :, 0]
        frames = self.system.mechanics.frames
        sticking = np.zeros(slips.size, dtype=bool)
        still = NO_SLIP * float(np.abs(x[self.system.at_v]).max(initial=0.0))
        for contact, part in enumerate(frames.tangents):
            if shut[contact] and frames.width(contact):
                sticking[part] = bool((np.abs(slips[part]) <= still).all())
        return np.flatnonzero(np.concatenate([shut, shut, sticking]))

    def onto(self, x: Array, p: Array, closed: Array, units: Array) -> Array:
        """Return the state (n_x,) with the closed contacts exactly closed again (Newton steps in `units`)."""
        for _ in range(NEWTON_STEPS if closed.size else 0):
            values, by_x, _ = self._constraints(x, p)
            x = x - units * (np.linalg.pinv(by_x[closed] * units) @ values[closed, 0])
        return x

    def tangent(self, x: Array, p: Array, closed: Array, indices: Array, units: Array) -> Array:
        """Return the projection (n, n) of changes of (x, p[indices]) on those that keep closed contacts closed."""
        n_x, count = x.size, x.size + len(indices)
        result = np.eye(count)
        if closed.size:
            _, by_x, by_p = self._constraints(x, p)
            lift = units[:, None] * np.linalg.pinv(by_x[closed] * units)
            # Parameters are free, and the state follows: the foot stands where the ground is.
            result[:n_x, :n_x] -= lift @ by_x[closed]
            result[:n_x, n_x:] = -lift @ by_p[closed][:, indices]
        return result


def _rows(name: str, arguments: list[ca.SX], values: ca.SX) -> Callable[..., list[Array]]:
    x, p = arguments
    parts = [values, ca.jacobian(values, x), ca.jacobian(values, p)]
    return buffered(ca.Function(name, arguments, [ca.densify(part) for part in parts]))
