"""Derivatives of motion and impacts of a contact system with respect to w = (x, p), by the implicit function theorem.

The equations of contact are written once more as residuals of (a, f) and of (v+, impulses) and differentiated by
CasADi.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import casadi as ca
import numpy as np

from nosnoc_py.audit.redundancy import REDUNDANT
from nosnoc_py.contact_problems.modes import FREE, masks_of
from nosnoc_py.functions import buffered, buffered_at_many
from nosnoc_py.implicit_function import derivative
from nosnoc_py.simulation.event_driven.mechanics import Array
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.kinematics import ContactFrames


@dataclass(frozen=True, eq=False, kw_only=True)
class ContactMotion:
    """Motion in one regime at one instant, or at many (all arrays with a leading axis m), and its derivatives.

    Attributes
    ----------
    rate : (n_w,)
        dw/dt = (N v, a, y', 0).
    forces : (n_f,)
        Contact forces, normals first; of redundant ones the smallest.
    rate_w, forces_w : (n_w, n_w), (n_f, n_w)
    rate_u, forces_u : (n_w, n_u), (n_f, n_u)
    loose : (n_f,) bool
        Forces that are not determined.
    """

    rate: Array
    forces: Array
    rate_w: Array
    forces_w: Array
    rate_u: Array
    forces_u: Array
    loose: Array


class ContactVariations:
    """Derivatives of motion, impacts, gaps and slips of a system (compiled once)."""

    def __init__(self, system: CLS) -> None:
        self.frames = system.mechanics.frames
        self.system, self.n_x = system, system.x.numel()
        self.n_w = self.n_x + system.n_p
        self._others = np.delete(np.arange(self.n_x), system.at_v)  # components that forces do not move at once
        self._geometry, self._rows, self._slopes, self._impact, self._friction, self._first_order = _functions(system)

    def geometry(self, w: Array) -> tuple[Array, Array]:
        """Return derivatives of the gaps (n_c, n_w), and of gap rates and slip velocities (n_f, n_w)."""
        gaps_w, rates_w = self._geometry(w)
        return gaps_w, rates_w

    def motion(self, modes: Sequence[int], w: Array, u: Array, *, redundant: bool = False) -> ContactMotion:
        """Return the motion in given modes, from M a = f + J' f_c and one row per contact force.

        At one instant, for w (n_w,) and u (n_u,), or at many, for w (m, n_w) and u (m, n_u).
        """
        n_x, n_v = self.n_x, self.system.n_v
        y, y_wu, x_rate, x_wu, loose = self._solved(modes, w, u, redundant)
        # Parameters are part of w with rate zero, and so are their rows of the derivatives.
        rate, rate_wu = np.zeros(w.shape), np.zeros((*w.shape, x_wu.shape[-1]))
        rate[..., :n_x], rate_wu[..., :n_x, :] = x_rate, x_wu
        (rate_w, rate_u), (y_w, y_u) = (np.split(by_wu, [self.n_w], axis=-1) for by_wu in (rate_wu, y_wu))
        return ContactMotion(
            rate=rate,
            forces=y[..., n_v:],
            rate_w=rate_w,
            forces_w=y_w[..., n_v:, :],
            rate_u=rate_u,
            forces_u=y_u[..., n_v:, :],
            loose=loose[..., n_v:],
        )

    def slopes(self, modes: Sequence[int], w: Array, u: Array, *, redundant: bool = False) -> Array:
        """Return derivatives of dx/dt by (w, u), (m, n_x, n_w + n_u), in given modes at w (m, n_w) and u (m, n_u)."""
        return self._solved(modes, w, u, redundant)[3]

    def _solved(
        self, modes: Sequence[int], w: Array, u: Array, redundant: bool
    ) -> tuple[Array, Array, Array, Array, Array]:
        """Return accelerations with forces (n_y,), dx/dt (n_x,), both with derivatives by (w, u), and loose ones."""
        masks, n_v, at_v = masks_of(modes), self.system.n_v, self.system.at_v
        offset, matrix = self._rows(w, u, masks)
        # Open contacts have no forces: their rows say no more, and there may be many of them.
        acting = self._acting(modes)
        solve, loosened = _solver(matrix[..., acting[:, None], acting], n_v, redundant)
        y, loose = np.zeros(offset.shape[:-1]), np.zeros(offset.shape[:-1], dtype=bool)
        y[..., acting], loose[..., acting] = solve(offset[..., acting, :])[..., 0], loosened
        slopes: Array = np.concatenate(self._slopes(y, w, u, masks), axis=-1)
        y_wu: Array = np.zeros(slopes.shape)
        y_wu[..., acting, :] = solve(slopes[..., acting, :])
        rate: Array = np.zeros((*w.shape[:-1], self.n_x))
        by_wu: Array = np.zeros((*rate.shape, y_wu.shape[-1]))
        rate[..., at_v], by_wu[..., at_v, :] = y[..., :n_v], y_wu[..., :n_v, :]
        # Positions and algebraic states follow from the state itself, without forces.
        first, *first_wu = self._first_order(w, u)
        rate[..., self._others], by_wu[..., self._others, :] = first[..., 0], np.concatenate(first_wu, axis=-1)
        return y, y_wu, rate, by_wu, loose

    def _acting(self, modes: Sequence[int]) -> Array:
        """Return the indices of accelerations and of the forces of contacts that are closed."""
        frames, n_v = self.frames, self.system.n_v
        acts = np.zeros(n_v + frames.count + frames.n_t, dtype=bool)
        acts[:n_v] = True
        for c in np.flatnonzero(np.asarray(modes, dtype=int) != FREE):
            part = frames.tangents[c]
            acts[n_v + c] = True
            acts[n_v + frames.count + part.start : n_v + frames.count + part.stop] = True
        return np.flatnonzero(acts)

    def friction(self, w: Array) -> Array:
        """Return derivatives of the friction coefficients (n_c, n_w)."""
        if self.frames.constant:
            return np.zeros((self.frames.count, self.n_w))
        return np.asarray(self._friction(w)[0])

    def jump(self, modes: Sequence[int], rebounding: Array, w: Array, after: Array, impulses: Array) -> Array:
        """Return the derivative (n_w, n_w) of (x+, p) by (x-, p) at an impact with the velocity `after` (n_v,).

        Contacts that are not `rebounding` (n_c,) have restitution 0.
        """
        matrix, slopes = self._impact(
            np.concatenate([after, impulses]), w, masks_of(modes), np.asarray(rebounding, float)
        )
        solve, _ = _solver(matrix, self.system.n_v, redundant=True)  # redundant impulses leave the velocity unique
        jump_w = np.eye(self.n_w)
        jump_w[self.system.at_v] = solve(slopes)[: self.system.n_v]
        return jump_w


def _solver(matrix: Array, n_v: int, redundant: bool) -> tuple[Callable[[Array], Array], Array]:
    """Return the solver of the implicit function theorem, and a mask (n_y,) of unknowns that are not determined; for a
    stack of matrices those of the stack.

    Redundant forces change as little as possible, in the unit of the masses and with rows of size one, so that what
    counts as redundant does not depend on the unit of mass.
    """
    if not redundant:
        return partial(derivative, matrix), np.zeros(matrix.shape[:-1], dtype=bool)
    columns = np.ones(matrix.shape[:-1])
    # Forces divided by the largest mass are accelerations, the unit of the other unknowns.
    columns[..., n_v:] = np.abs(matrix[..., :n_v, :n_v]).max(axis=(-2, -1))[..., None]
    scaled = matrix * columns[..., None, :]
    rows = np.maximum(np.abs(scaled).max(axis=-1), np.finfo(float).tiny)[..., None]
    try:
        left, sizes, right = np.linalg.svd(scaled / rows)
    except np.linalg.LinAlgError:
        return lambda by_w: np.full(by_w.shape, np.nan), np.ones(matrix.shape[:-1], dtype=bool)
    seen = sizes > REDUNDANT * sizes.max(axis=-1, initial=0.0)[..., None]
    inverse = np.where(seen, 1.0 / np.where(seen, sizes, 1.0), 0.0)[..., None]
    loose = np.abs(right * ~seen[..., None]).max(axis=-2, initial=0.0) > REDUNDANT

    def shortest(by_w: Array) -> Array:
        along = inverse * (np.swapaxes(left, -1, -2) @ (by_w / rows))
        return np.asarray(-columns[..., None] * (np.swapaxes(right, -1, -2) @ along))

    return shortest, loose


Evaluation = Callable[..., list[Array]]


def _functions(system: CLS) -> tuple[Evaluation, ...]:
    """Return compiled derivatives of gaps and rates, and the rows of given modes with their derivatives.

    Rows of a phase are linear in y = (a, f_n, f_t): (rows at y = 0, d/dy), and (d/dw, d/du) at y. Those of an impact
    are for y = (v+, L_n, L_t), FESD-J, Eq. 11: (d/dy, d/dw).
    """
    mechanics, frames = system.mechanics, system.mechanics.frames
    jacobian, n_c = mechanics.jacobian, frames.count
    w, masks, rebounding = ca.vertcat(system.x, system.p), ca.SX.sym("masks", 3 * n_c), ca.SX.sym("thrown", n_c)
    y = ca.SX.sym("y", system.n_v + jacobian.shape[0])
    motion, forces = ca.vertsplit(y, [0, system.n_v, y.shape[0]])
    rates, after = mechanics.rates, jacobian @ motion

    def rows(momentum: ca.SX, offset: ca.SX, slip: ca.SX) -> ca.SX:
        balance = system.mass_matrix @ motion - momentum - jacobian.T @ forces
        return ca.vertcat(balance, _contact_rows(frames, masks, after + offset, forces, slip))

    phase = rows(system.force, mechanics.curvature, rates[n_c:])  # accelerations
    # The row of a contact that is hit is gamma+ + e gamma- = 0; without `rebounding` gamma+ = 0.
    bounced = ca.vertcat(rebounding * ca.SX(frames.restitution) * rates[:n_c], ca.SX.zeros(frames.n_t))
    drift = mechanics.drift
    # M (v+ - v-) = J' Lambda: the balance of accelerations with momentum in place of force.
    impact = rows(system.mass_matrix @ system.v, bounced + drift, after[n_c:] + drift[n_c:])
    # The rows are linear in y, so that their value at zero and their Jacobian describe them completely.
    offset, u = ca.substitute(phase, y, ca.DM.zeros(y.shape)), system.u
    first = ca.vertcat(system.position_rate, system.y_rate)
    return (
        buffered(ca.Function("geometry", [w], [ca.jacobian(mechanics.gaps, w), ca.jacobian(rates, w)])),
        buffered_at_many(ca.Function("rows", [w, u, masks], [offset, ca.jacobian(phase, y)])),
        buffered_at_many(ca.Function("slopes", [y, w, u, masks], [ca.jacobian(phase, w), ca.jacobian(phase, u)])),
        buffered(ca.Function("impact", [y, w, masks, rebounding], [ca.jacobian(impact, y), ca.jacobian(impact, w)])),
        buffered(ca.Function("friction", [w], [ca.jacobian(ca.SX(frames.friction), w)])),
        buffered_at_many(ca.Function("first_order", [w, u], [first, ca.jacobian(first, w), ca.jacobian(first, u)])),
    )


def _contact_rows(frames: ContactFrames, masks: ca.SX, rates: ca.SX, forces: ca.SX, slip: ca.SX) -> ca.SX:
    """Return the row of each contact force: closed r_n, else f_n; stick r_t, slip f_t + mu f_n d, open f_t."""
    n_c = frames.count
    closed, stick, slips = ca.vertsplit(masks, [0, n_c, 2 * n_c, 3 * n_c])
    rows = [closed * rates[:n_c] + (1 - closed) * forces[:n_c]]
    for c, part in enumerate(frames.tangents):
        if not frames.width(c):
            continue
        # The term 1 - slips keeps the direction finite without slip; the parentheses avoid rounding at slow slips.
        d = ca.SX(1) if frames.width(c) == 1 else slip[part] / ca.sqrt(ca.sumsqr(slip[part]) + (1 - slips[c]))
        friction = forces[n_c:][part] + frames.friction[c] * forces[c] * slips[c] * d
        rows.append(stick[c] * rates[n_c:][part] + (1 - stick[c]) * friction)
    return ca.vertcat(*rows)
