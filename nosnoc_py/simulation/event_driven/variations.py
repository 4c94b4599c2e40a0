"""How motion and impacts change with state and parameters: the equations of contact once more, and their derivatives.

Everything is differentiated with respect to w = (x, p), a state whose last components do not move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.audit.redundancy import REDUNDANT, null_space
from nosnoc_py.contacts.modes import masks_of
from nosnoc_py.functions import buffered
from nosnoc_py.simulation.event_driven.mechanics import Array
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.kinematics import ContactFrames


@dataclass(frozen=True, eq=False, kw_only=True)
class Motion:
    """The motion in one regime at one instant, and its derivatives.

    Attributes
    ----------
    rate : (n_w,)
        dw/dt = (v, a, 0).
    forces : (n_f,)
        Contact forces, normals first; of redundant ones the smallest.
    rate_w, forces_w : (n_w, n_w), (n_f, n_w)
    forces_u : (n_f, n_u)
    loose : (n_f,) bool
        Forces that are not determined.
    """

    rate: Array
    forces: Array
    rate_w: Array
    forces_w: Array
    forces_u: Array
    loose: Array


class Variations:
    """Evaluates motion, impacts, gaps and slips of a system with their derivatives; built once."""

    def __init__(self, system: CLS) -> None:
        self.frames = system.mechanics.frames
        self.n_q, self.n_x, self.n_w = system.n_q, 2 * system.n_q, 2 * system.n_q + system.n_p
        self._geometry = _geometry(system)
        self._rows, self._slopes = _phase(system, self.frames)
        self._impact = _impact(system, self.frames)

    def geometry(self, w: Array) -> tuple[Array, Array]:
        """Derivatives of the gaps (n_c, n_w), and of gap rates and slip velocities (n_f, n_w)."""
        gaps_w, rates_w = self._geometry(w)
        return gaps_w, rates_w

    def motion(self, modes: Sequence[int], w: Array, u: Array, *, redundant: bool = False) -> Motion:
        """The motion in the given modes of the contacts, from M a = f + J'f_c and one row per contact force."""
        masks, n_q = masks_of(modes), self.n_q
        offset, matrix = self._rows(w, u, masks)
        y = _solve(matrix, -offset, n_q, redundant)[:, 0]
        slopes = np.hstack(self._slopes(y, w, u, masks))
        y_w, y_u = np.split(_solve(matrix, -slopes, n_q, redundant), [self.n_w], axis=1)
        loose = np.zeros(y.size - n_q, dtype=bool)
        if redundant:
            loose = np.abs(null_space(_balanced(matrix, n_q)[0])[n_q:]).max(axis=1, initial=0.0) > REDUNDANT
        at_rest = np.zeros(self.n_w - self.n_x)
        rate_w = np.zeros((self.n_w, self.n_w))
        rate_w[:n_q, n_q : 2 * n_q] = np.eye(n_q)
        rate_w[n_q : 2 * n_q] = y_w[:n_q]
        return Motion(
            rate=np.concatenate([w[n_q : 2 * n_q], y[:n_q], at_rest]),
            forces=y[n_q:],
            rate_w=rate_w,
            forces_w=y_w[n_q:],
            forces_u=y_u[n_q:],
            loose=loose,
        )

    def jump(self, modes: Sequence[int], restitution: Array, w: Array, after: Array, impulses: Array) -> Array:
        """Derivative (n_w, n_w) of (x+, p) with respect to (x-, p) at an impact with the velocity `after` (n_q,)."""
        n_q, y = self.n_q, np.concatenate([after, impulses])
        _, matrix, slopes = self._impact(y, w, masks_of(modes), restitution)
        made = np.eye(self.n_w)
        # Redundant impulses leave the velocity unique.
        made[n_q : 2 * n_q] = _solve(matrix, -slopes, n_q, redundant=True)[:n_q]
        return made


def _solve(matrix: Array, right: Array, n_q: int, redundant: bool) -> Array:
    """Least squares where forces are redundant; NaN where there is no solution."""
    if redundant:
        balanced, rows, columns = _balanced(matrix, n_q)
        return np.asarray(columns[:, None] * np.linalg.lstsq(balanced, right / rows[:, None], rcond=REDUNDANT)[0])
    try:
        return np.asarray(np.linalg.solve(matrix, right))
    except np.linalg.LinAlgError:
        return np.full(right.shape, np.nan)


def _balanced(matrix: Array, n_q: int) -> tuple[Array, Array, Array]:
    """The matrix with forces in the unit of the masses and rows of size one; divisors of rows, factors of columns.

    What counts as redundant must not depend on the unit of mass.
    """
    columns = np.ones(len(matrix))
    columns[n_q:] = np.abs(matrix[:n_q, :n_q]).max()
    scaled = matrix * columns
    rows = np.maximum(np.abs(scaled).max(axis=1), np.finfo(float).tiny)
    return scaled / rows[:, None], rows, columns


Evaluation = Callable[..., list[Array]]


def _geometry(system: CLS) -> Evaluation:
    gaps, jacobian = system.mechanics.gaps, system.mechanics.jacobian
    w = ca.vertcat(system.x, system.p)
    return _compiled("geometry", [w], [ca.jacobian(gaps, w), ca.jacobian(jacobian @ system.v, w)])


def _phase(system: CLS, frames: ContactFrames) -> tuple[Evaluation, Evaluation]:
    """Rows for y = (a, f_n, f_t), which are linear in it: (rows at y = 0, d/dy), and (d/dw, d/du) at y."""
    jacobian = system.mechanics.jacobian
    w, masks = ca.vertcat(system.x, system.p), ca.SX.sym("masks", 3 * frames.count)
    y = ca.SX.sym("y", system.n_q + jacobian.shape[0])
    a, forces = ca.vertsplit(y, [0, system.n_q, y.shape[0]])
    curvature = system.mechanics.curvature
    balance = system.mass_matrix @ a - system.force - jacobian.T @ forces
    slip = (jacobian @ system.v)[frames.count :]
    rows = ca.vertcat(balance, _contact_rows(frames, masks, jacobian @ a + curvature, forces, slip))
    offset = ca.substitute(rows, y, ca.DM.zeros(y.shape))
    return (
        _compiled("rows", [w, system.u, masks], [offset, ca.jacobian(rows, y)]),
        _compiled("slopes", [y, w, system.u, masks], [ca.jacobian(rows, w), ca.jacobian(rows, system.u)]),
    )


def _impact(system: CLS, frames: ContactFrames) -> Evaluation:
    """Rows for y = (v+, L_n, L_t) of FESD-J, Eq. 11 in given modes, and their derivatives d/dy, d/dw."""
    jacobian = system.mechanics.jacobian
    w, masks = ca.vertcat(system.x, system.p), ca.SX.sym("masks", 3 * frames.count)
    restitution = ca.SX.sym("restitution", frames.count)
    y = ca.SX.sym("y", system.n_q + jacobian.shape[0])
    after, impulses = ca.vertsplit(y, [0, system.n_q, y.shape[0]])
    balance = system.mass_matrix @ (after - system.v) - jacobian.T @ impulses
    rates = jacobian @ after
    bounced = ca.vertcat(restitution * (jacobian @ system.v)[: frames.count], ca.SX.zeros(frames.weights.size))
    contact = _contact_rows(frames, masks, rates + bounced, impulses, rates[frames.count :])
    rows = ca.vertcat(balance, contact)
    return _compiled("impact", [y, w, masks, restitution], [rows, ca.jacobian(rows, y), ca.jacobian(rows, w)])


def _contact_rows(frames: ContactFrames, masks: ca.SX, rates: ca.SX, forces: ca.SX, slip: ca.SX) -> ca.SX:
    """What is zero for every contact force: closed r_n, else f_n; stick r_t, slip f_t + mu f_n d, open f_t."""
    n_c = frames.count
    closed, stick, slips = ca.vertsplit(masks, [0, n_c, 2 * n_c, 3 * n_c])
    rows = [closed * rates[:n_c] + (1 - closed) * forces[:n_c]]
    for c, part in enumerate(frames.tangents):
        if not frames.width(c):
            continue
        # Where nothing slips in space the direction is finite all the same; the parentheses spare slow slips rounding.
        d = ca.SX(1) if frames.width(c) == 1 else slip[part] / ca.sqrt(ca.sumsqr(slip[part]) + (1 - slips[c]))
        friction = forces[n_c:][part] + frames.friction[c] * forces[c] * slips[c] * d
        rows.append(stick[c] * rates[n_c:][part] + (1 - stick[c]) * friction)
    return ca.vertcat(*rows)


def _compiled(name: str, inputs: list[ca.SX], outputs: list[ca.SX]) -> Evaluation:
    return buffered(ca.Function(name, inputs, [ca.densify(ca.SX(out)) for out in outputs]))
