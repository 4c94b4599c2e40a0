"""Conversion of a step of contact mechanics into an iterate of the MPCC, for every friction cone.

The solution of the active-set Newton method is written into the variables of the unrelaxed finite-element equations.
These are assembled elsewhere, from other expressions, so that their residuals check the step independently. Variables
are found by their role, contact and place (stage or node), not by their name.

Signed quantities become positive and negative parts; velocities that are rounding are set to zero, as the product of
both parts of a pair would otherwise exceed the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TypeVar

import casadi as ca
import numpy as np

from nosnoc_py.contact_problems.law import rebound
from nosnoc_py.functions import buffered
from nosnoc_py.mpcc.layout import Block
from nosnoc_py.reformulation.friction import DIRECTIONS, FrictionCone, resolve_cone, unit_directions
from nosnoc_py.roles import Role
from nosnoc_py.simulation.newton.contact_newton import ContactStep
from nosnoc_py.systems.cls import CLS
from nosnoc_py.transcription import Transcription

Key = TypeVar("Key")
# Roles of variables and their values, at the stages (n_s, size) or at one node (1, size).
Values = dict[Role, np.ndarray]


@dataclass(frozen=True)
class Place:
    """Kind of variables: role, name of the contact (or ""), and True for variables at nodes instead of stages."""

    role: Enum | None
    of: str = ""
    node: bool = False


# Slip speeds [m/s] and forces [N] below this have no direction.
NO_DIRECTION = 1e-12
# Outputs of the functions of stages and of nodes, in this order.
STAGE = (
    Role.STATE,
    Role.NORMAL_FORCE,
    Role.ACCELERATION,
    Role.DRIFT_PLUS,
    Role.DRIFT_MINUS,
    Role.GAP_RATE_PLUS,
    Role.GAP_RATE_MINUS,
)
NODE = (Role.VELOCITY_AFTER, Role.NORMAL_IMPULSE, Role.REBOUND_PLUS, Role.REBOUND_MINUS)
# Velocities below this (relative to 1 plus the largest one) are rounding of zero.
REST = 1e-15


def _box_cone(slip: np.ndarray, force: np.ndarray) -> Values:
    parts = {Role.SLIP_PLUS: np.maximum(slip, 0.0), Role.SLIP_MINUS: np.maximum(-slip, 0.0)}
    return {Role.TANGENTIAL_FORCE: force, **parts}


def _polar_cone(slip: np.ndarray, force: np.ndarray) -> Values:
    """Return direction, radius and slip speed of the polar cone.

    The direction is that of the slip, or against the force without slip (then up to its sign), or that of the stage
    before if there is neither.
    """
    speed, size = np.linalg.norm(slip, axis=1), np.linalg.norm(force, axis=1)
    direction = np.zeros_like(slip)
    direction[:, 0] = 1.0
    for j in range(len(slip)):
        if speed[j] > NO_DIRECTION:
            direction[j] = slip[j] / speed[j]
        elif size[j] > NO_DIRECTION:
            direction[j] = -force[j] / size[j]
            # A sticking force determines its direction up to the sign; the sign of the first stage keeps it
            # continuous.
            direction[j] *= -1.0 if direction[j] @ direction[0] < 0 else 1.0
        elif j > 0:
            direction[j] = direction[j - 1]
    # The friction force of the polar cone is -radius * direction: the radius is positive if friction opposes slip.
    radius = -np.einsum("jk,jk->j", force, direction)
    return {Role.FRICTION_RADIUS: radius[:, None], Role.FRICTION_DIRECTION: direction, Role.SLIP_SPEED: speed[:, None]}


def _polyhedral_cone(slip: np.ndarray, force: np.ndarray, directions: int = DIRECTIONS, mixed: bool = True) -> Values:
    """Return forces along the directions of a polyhedral cone: exact in the plane, a guess in space.

    In space the force is split between the two nearest directions (`mixed`), or put on the one that opposes the slip
    most. A slip turns until two directions oppose it equally, and then continues between them.
    """
    unit = unit_directions(slip.shape[1], directions)
    if slip.shape[1] == 1:
        # In the plane the polyhedral cone has the two directions +1 and -1, in the order of `unit_directions`.
        forces = np.hstack([np.maximum(force, 0.0), np.maximum(-force, 0.0)])
        return {Role.CONE_FORCE: forces, Role.SLIP_MULTIPLIER: np.abs(slip)}
    along, forces = -slip @ unit, np.zeros((len(slip), unit.shape[1]))
    for j, size in enumerate(np.linalg.norm(force, axis=1)):
        if not mixed and along[j].max() > NO_DIRECTION:
            forces[j, np.argmax(along[j])] = size
        elif size > NO_DIRECTION:
            # The two directions closest to the force span the face of the cone that contains it.
            pair = np.argsort(force[j] @ unit)[-2:]
            forces[j, pair] = np.linalg.solve(unit[:, pair], force[j]).clip(0.0)
    return {Role.CONE_FORCE: forces, Role.SLIP_MULTIPLIER: along.max(axis=1, keepdims=True).clip(0.0)}


CONES: dict[str, Callable[..., Values]] = {"box": _box_cone, "polar": _polar_cone, "polyhedral": _polyhedral_cone}


def is_exact(system: CLS, cone: FrictionCone) -> bool:
    """Return True if the cone is equivalent to Coulomb's law for every contact of the system."""
    exact = {1: ("box", "polar", "polyhedral"), 2: ("polar",)}  # by the number of tangents
    return all(resolve_cone(c, cone) in exact[c.tangent.shape[1]] for c in system.contacts if c.frictional)


class ContactIterateWriter:
    """Writes steps of the active-set Newton method into iterates of one transcription (built once per transcription).

    Parameters
    ----------
    system : CLS
    problem : Transcription
        Of one step.
    cone : str
        Friction cone of the transcription.
    rest_velocity : float
        Slower approaches do not bounce [m/s].
    """

    def __init__(self, system: CLS, problem: Transcription, cone: FrictionCone, rest_velocity: float) -> None:
        self._system, self._cone, self._directions = system, cone, problem.fesdj.cone_directions
        self._frictional = [c for c in system.contacts if c.frictional]
        ends = np.cumsum([0, *[c.tangent.shape[1] for c in self._frictional]])
        self._parts = [slice(a, b) for a, b in pairwise(ends)]
        mpcc, count, n_s = problem.mpcc, len(problem.elements), problem.tableau.stages
        self._blank, self._u, self._p = mpcc.w0, mpcc.parameters["u"], mpcc.parameters["p"]
        self._places = places_of(problem, lambda b: Place(b.role, b.of, b.at.rk is None))
        stage, node = self._functions(rest_velocity)
        # Controls and parameters (arguments 4 and 5) are shared by all stages.
        self._stage = buffered(stage.map("stages", "serial", count * n_s, [4, 5], []))
        self._node = buffered(node.map("nodes", "serial", count, [4], []))
        self._first = (np.arange(count) == 0).astype(float)[:, None]
        self._stage_rows = self._rows_of([Place(role) for role in STAGE], count * n_s)
        self._node_rows = self._rows_of([Place(role, node=True) for role in NODE], count)

    def _rows_of(self, kinds: Iterable[Place], count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows in w of these kinds and the columns of their function.

        Kinds that the MPCC lacks are left out.
        """
        n_v = self._system.n_v
        sizes: dict[Enum | None, int] = {
            Role.STATE: self._system.x.numel(),
            Role.ACCELERATION: n_v,
            Role.VELOCITY_AFTER: n_v,
        }
        targets, sources, first = [], [], 0
        for kind in kinds:
            size = sizes.get(kind.role, len(self._system.contacts))
            if kind in self._places:
                # Rows that the functions write are removed; what remains in `_places` is filled by `__call__` itself.
                targets.append(self._places.pop(kind).reshape(count, size))
                sources.append(np.arange(first, first + size))
            first += size
        return np.hstack(targets), np.concatenate(sources)

    def _functions(self, rest_velocity: float) -> tuple[ca.Function, ca.Function]:
        """Return functions for the values STAGE at a stage and NODE at a node (stacked), each with slip velocities."""
        s = self._system
        normals, slips = s.mechanics.normals, s.mechanics.slips
        normal, drift = ca.SX.sym("normal", len(s.contacts)), ca.SX.sym("drift", len(s.contacts))
        tangent = [ca.SX.sym("tangent", c.tangent.shape[1]) for c in self._frictional]
        force = s.force + normals @ normal
        for contact, value in zip(self._frictional, tangent, strict=True):
            force += contact.tangent @ value
        acceleration, rates = ca.solve(s.mass_matrix, force), s.mechanics.gap_rates
        forces, size = [normal, ca.vertcat(ca.SX(0, 1), *tangent), drift], _velocity_scale(s.v)
        moving = [_without_rounding(velocity, size) for velocity in (rates, slips)]
        values = ca.vertcat(s.x, normal, acceleration, *_signed(drift), *_signed(moving[0]))
        stage = ca.Function("stage", [s.x, *forces, s.u, s.p], [values, moving[1]])

        before, impulse = ca.SX.sym("x", s.x.numel()), ca.SX.sym("impulse", len(s.contacts))
        at = s.kinematics(before, s.u, s.p)
        rates_before, restitution = at.rates[: len(s.contacts)], s.mechanics.frames.restitution
        rebound_velocities = rebound(rates_before, restitution, at.slowest(rest_velocity))
        first = ca.SX.sym("first")
        if not rest_velocity:  # as the rows of the nodes are written, see `JumpLaw.inner`
            rebound_velocities = ca.if_else(first, rebound_velocities, -ca.SX(restitution) * rates_before)
        share = _without_rounding(rates - rebound_velocities, size)
        values = ca.vertcat(s.v, impulse, *_signed(share))
        return stage, ca.Function("node", [before, s.x, impulse, first, s.p], [values, moving[1]])

    def __call__(self, step: ContactStep, values: np.ndarray, *, mixed: bool = True) -> np.ndarray:
        """Return w (n_w,) of a step at the parameters `values` of the MPCC.

        For a polyhedral cone in space it is a guess with forces between two directions (`mixed`) or along one.
        """
        self._mixed, self._weights = mixed, self._system.mechanics.frames_at(values[self._p]).weights
        u, p, w = values[self._u], values[self._p], self._blank.copy()
        x, normal, tangent, drift = (
            part.reshape(part.shape[0] * part.shape[1], part.shape[2])
            for part in (step.x_stages, step.lambda_normal, step.lambda_tangent, step.drift)
        )
        at_stages, slips = self._stage(x, normal, tangent, drift, u, p)
        at_nodes, after = self._node(step.x_minus, step.x_left, step.Lambda_normal, self._first, p)
        for (rows, columns), results in ((self._stage_rows, at_stages), (self._node_rows, at_nodes)):
            w[rows] = results.T[:, columns]
        rest = {
            # Element lengths are variables relative to the equal length of the step: their mean is 1.
            Place(Role.STEP, node=True): step.h / step.h.sum() * len(step.h),
            Place(Role.STATE, node=True): step.x_right,
        }
        if self._frictional:
            rest |= self._friction(slips.T, tangent, node=False)
            rest |= self._friction(after.T, step.Lambda_tangent, node=True)
        for kind, rows in self._places.items():
            w[rows] = rest[kind].reshape(-1)
        return w

    def _friction(self, slips: np.ndarray, force: np.ndarray, *, node: bool) -> dict[Place, np.ndarray]:
        """Return the variables of all friction cones by their place."""
        by_place: dict[Place, np.ndarray] = {}
        for contact, part in zip(self._frictional, self._parts, strict=True):
            which, more = resolve_cone(contact, self._cone), list[int]()
            if which == "polyhedral":
                more = [self._directions, self._mixed]
            values = CONES[which](slips[:, part], force[:, part] / self._weights[part], *more)
            by_place |= {Place(role, contact.name, node): value for role, value in values.items()}
        return by_place


def _without_rounding(velocity: ca.SX, size: ca.SX) -> ca.SX:
    return ca.if_else(ca.fabs(velocity) <= REST * size, 0, velocity)


def _velocity_scale(velocity: ca.SX) -> ca.SX:
    return 1 + ca.mmax(ca.fabs(ca.vertcat(0, velocity)))


def _signed(value: ca.SX) -> tuple[ca.SX, ca.SX]:
    return ca.fmax(value, 0), ca.fmax(-value, 0)


def places_of(problem: Transcription, key: Callable[[Block], Key]) -> dict[Key, np.ndarray]:
    """Return the indices in w of each kind of variables, in the order of elements and stages."""
    rows_by_kind: dict[Key, list[np.ndarray]] = {}
    for block in problem.mpcc.variables.blocks():
        rows_by_kind.setdefault(key(block), []).append(np.arange(block.rows.start, block.rows.stop))
    return {kind: np.concatenate(rows) for kind, rows in rows_by_kind.items()}
