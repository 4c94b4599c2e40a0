"""Quantities of contact mechanics at a state: gaps, directions of contact forces, inertia, forces, Delassus matrix.

`CLS.kinematics` evaluates them, for numbers or for CasADi expressions, from one description that is made once per
system. Simulators, the MPCC, certificates and sensitivities read the same value, so they cannot disagree about what a
gap rate or a slip velocity is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.systems.scales import UNIT, ProblemScales

if TYPE_CHECKING:
    from nosnoc_py.systems.cls import CLS

Array = np.ndarray
# What `ContactMechanics.function` gives, in this order, and which of it are vectors.
QUANTITIES = ("gaps", "jacobian", "mass", "force", "curvature", "position_rate")
VECTORS = ("gaps", "force", "curvature", "position_rate")


@dataclass(frozen=True, eq=False, kw_only=True)
class ContactFrames:
    """Constants of the contacts of a system, in the order of the system.

    Attributes
    ----------
    names : tuple of str
    friction : (n_c,)
        Coefficient mu, the largest one of an anisotropic contact.
    restitution : (n_c,)
    tangents : tuple of slices
        Components of the contact among all n_tt tangent components; empty without friction.
    speeds : tuple of int
        Position of the slip speed among those of the contacts with two tangents, else -1.
    weights : (n_tt,)
        friction / mu of every tangent component.
    """

    names: tuple[str, ...]
    friction: Array
    restitution: Array
    tangents: tuple[slice, ...]
    speeds: tuple[int, ...]
    weights: Array

    @property
    def count(self) -> int:
        """Number of contacts."""
        return len(self.names)

    @property
    def spatial(self) -> int:
        """Number of contacts with two tangents."""
        return sum(speed >= 0 for speed in self.speeds)

    @property
    def directions(self) -> list[tuple[str, str, float]]:
        """Kind, label and weight of every direction of contact forces, normals first; series are named after them."""
        tangents = [
            ("tangent", f"[{name}][{k}]" if self.width(c) == 2 else f"[{name}]", float(self.weights[part.start + k]))
            for c, (name, part) in enumerate(zip(self.names, self.tangents, strict=True))
            for k in range(self.width(c))
        ]
        return [("normal", f"[{name}]", 1.0) for name in self.names] + tangents

    def rows(self, contacts: Sequence[int] | Array) -> Array:
        """Positions of contacts among the directions of all contact forces: their normals, then their tangents."""
        parts = [np.arange(self.tangents[c].start, self.tangents[c].stop) for c in contacts]
        return np.concatenate([np.asarray(contacts, dtype=int), *[self.count + part for part in parts]])

    def width(self, contact: int) -> int:
        """Number of tangents of a contact: 0, 1 or 2."""
        return self.tangents[contact].stop - self.tangents[contact].start


def frames_of(system: CLS) -> ContactFrames:
    """Return the constants of the contacts of a system."""
    tangents, speeds, weights, friction = [], [], [], []
    position = spatial = 0
    for contact in system.contacts:
        size = contact.tangent.shape[1] if contact.frictional else 0
        tangents.append(slice(position, position + size))
        speeds.append(spatial if size == 2 else -1)
        friction.append(max(contact.friction))
        weights += [mu / friction[-1] for mu in contact.friction[:size]]
        position, spatial = position + size, spatial + (size == 2)
    return ContactFrames(
        names=tuple(contact.name for contact in system.contacts),
        friction=np.array(friction),
        restitution=np.array([contact.restitution for contact in system.contacts]),
        tangents=tuple(tangents),
        speeds=tuple(speeds),
        weights=np.array(weights),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Kinematics:
    """Contact mechanics at one state, at many (all arrays with a leading axis m), or as CasADi expressions.

    Attributes
    ----------
    gaps : (n_c,)
    jacobian : (n_c + n_tt, n_q)
        Directions of the normal forces, then of the friction forces, as rows. Tangents carry the weights of an
        anisotropic cone, so that every friction cone is circular in these coordinates.
    mass : (n_q, n_q)
    force : (n_q,)
        All forces but those of contacts.
    curvature : (n_c + n_tt,)
        d/dt(jacobian) v: the part of the contact accelerations that is quadratic in v.
    velocity : (n_q,)
    position_rate : (n_q,)
        q', the rate of the positions.
    constant_inverse : (n_q, n_q), optional
        M^-1 where M is constant; it is then inverted once.
    scales : ProblemScales
        What tolerances are relative to.
    """

    gaps: Any
    jacobian: Any
    mass: Any
    force: Any
    curvature: Any
    velocity: Any
    position_rate: Any
    constant_inverse: Any = None
    scales: ProblemScales = UNIT

    @cached_property
    def inverse(self) -> Any:
        """M^-1 (n_q, n_q); NaN where M is singular."""
        return inverse_of(self.mass) if self.constant_inverse is None else self.constant_inverse

    @cached_property
    def rates(self) -> Any:
        """Gap rates and slip velocities (n_c + n_tt,)."""
        return times(self.jacobian, self.velocity)

    @cached_property
    def response(self) -> Any:
        """Velocity changes by unit impulses (n_q, n_c + n_tt): M^-1 J'."""
        if isinstance(self.mass, ca.SX):
            return ca.solve(self.mass, self.jacobian.T)
        return self.inverse @ np.swapaxes(self.jacobian, -1, -2)

    @cached_property
    def delassus(self) -> Any:
        """Rate changes by unit impulses (n_c + n_tt, n_c + n_tt): J M^-1 J'."""
        return self.jacobian @ self.response

    @cached_property
    def free(self) -> Any:
        """Accelerations in the directions of the contacts without contact forces (n_c + n_tt,)."""
        return times(self.jacobian, times(self.inverse, self.force)) + self.curvature

    @cached_property
    def steepness(self) -> Any:
        """Euclidean norms of the normals (n_c,): a gap rate divided by it does not depend on the unit of the gap."""
        if isinstance(self.jacobian, ca.SX):
            return ca.sqrt(ca.sum2(self.jacobian[: self.gaps.numel(), :] ** 2))
        normals = self.jacobian[..., : self.gaps.shape[-1], :]
        return np.sqrt(np.einsum("...ij,...ij->...i", normals, normals))

    def short(self, share: Any) -> Any:
        """The gaps (n_c,) that belong to a share of the length at work."""
        return share * self.scales.length / self.scales.steepness * self.steepness

    def slow(self, share: Any) -> Any:
        """The gap rates (n_c,) that belong to a share of the speed at work."""
        return share * self.scales.velocity * self.steepness

    def slowest(self, speed: float) -> Any:
        """The gap rates (n_c,) that belong to a speed; 0 for none."""
        return speed * self.steepness if speed else 0.0


class ContactMechanics:
    """The description of a `CLS` that its kinematics are evaluated from; `CLS.mechanics` holds the only one.

    Expressions are made when they are asked for: those of a thousand contacts as dense matrices take longer than many
    steps of a method that needs none of them.
    """

    def __init__(self, system: CLS) -> None:
        self.system, self.frames = system, frames_of(system)

    @cached_property
    def gaps(self) -> ca.SX:
        """Gaps (n_c,)."""
        return ca.vertcat(ca.SX(0, 1), *[contact.gap for contact in self.system.contacts])

    @cached_property
    def normals(self) -> ca.SX:
        """Normals (n_q, n_c)."""
        s = self.system
        return ca.densify(ca.horzcat(ca.SX(s.n_q, 0), *[s.normal(contact) for contact in s.contacts]))

    @cached_property
    def tangents(self) -> ca.SX:
        """Tangents (n_q, n_tt) with weights."""
        tangents = [contact.tangent for contact in self.system.contacts if contact.frictional]
        columns = ca.horzcat(ca.SX(self.system.n_q, 0), *tangents)
        return ca.densify(columns @ ca.SX(ca.diag(ca.DM(self.frames.weights))))

    @cached_property
    def jacobian(self) -> ca.SX:
        """Directions of all contact forces as rows (n_c + n_tt, n_q)."""
        return ca.horzcat(self.normals, self.tangents).T

    @cached_property
    def curvature(self) -> ca.SX:
        """d/dt(jacobian) v (n_c + n_tt,)."""
        s = self.system
        return ca.jtimes(self.jacobian @ s.v, s.q, s.position_rate)

    @cached_property
    def function(self) -> ca.Function:
        """(x, u, p) -> gaps, jacobian, mass, force, curvature, position rate."""
        s = self.system
        outputs = [self.gaps, self.jacobian, s.mass_matrix, s.force, self.curvature, s.position_rate]
        return ca.Function("kinematics", [s.x, s.u, s.p], outputs)

    @cached_property
    def gaps_at(self) -> Any:
        """(q, p) -> gaps (n_c,)."""
        function = buffered(ca.Function("gaps", [self.system.q, self.system.p], [self.gaps]))
        return lambda q, p: function(q, p)[0][:, 0]

    @cached_property
    def sparse(self) -> ca.Function:
        """(x, u, p) -> gaps, directions of contacts as rows (n_c + n_tt, n_q), mass matrix and force, all sparse."""
        s = self.system
        columns = [s.normal(contact) for contact in s.contacts]
        columns += [contact.tangent for contact in s.contacts if contact.frictional]
        rows = ca.horzcat(ca.SX(s.n_q, 0), *columns).T
        return ca.Function("sparse", [s.x, s.u, s.p], [self.gaps, rows, s.mass_matrix, s.force])

    @cached_property
    def touching(self) -> Any:
        """(x, p) -> gaps, gap rates and norms of the normals of all contacts: what the cheapest looks need."""
        s = self.system
        steepness = ca.sqrt(ca.sum1(self.normals**2)).T
        function = buffered(ca.Function("touching", [s.x, s.p], [self.gaps, self.normals.T @ s.v, steepness]))
        return lambda x, p: [values[:, 0] for values in function(x, p)]

    @cached_property
    def constant_inverse(self) -> Array | None:
        """M^-1 where M depends on neither q nor p."""
        mass = self.system.mass_matrix
        return inverse_of(np.array(ca.DM(mass))) if mass.is_constant() else None

    @cached_property
    def _numbers(self) -> Any:
        return buffered(self.function)

    def at(self, x: Any, u: Any, p: Any, scales: ProblemScales = UNIT) -> Kinematics:
        """Evaluate at a state (2 n_q,), at states (m, 2 n_q), or at CasADi expressions."""
        if any(isinstance(value, ca.SX) for value in (x, u, p)):
            values = dict(zip(QUANTITIES, self.function(x, u, p), strict=True))
            return Kinematics(**values, velocity=x[self.system.n_q :])
        x = np.asarray(x, dtype=float)
        found = self._numbers(x, u, p) if x.ndim == 1 else self._at_many(x, u, p)
        values = {
            name: value[..., 0] if name in VECTORS else value for name, value in zip(QUANTITIES, found, strict=True)
        }
        return Kinematics(
            **values, velocity=x[..., self.system.n_q :], constant_inverse=self.constant_inverse, scales=scales
        )

    def _at_many(self, x: Array, u: Any, p: Any) -> list[Array]:
        """The quantities at all states in one call."""
        count, function = len(x), self.function
        if not count:
            return [np.zeros((0, *function.size_out(i))) for i in range(function.n_out())]
        controls = np.broadcast_to(np.asarray(u, dtype=float), (count, self.system.n_u))
        parameters = np.broadcast_to(np.asarray(p, dtype=float), (count, self.system.n_p))
        return [matrices(np.asarray(ca.DM(out)), count) for out in function.map(count)(x.T, controls.T, parameters.T)]


def matrices(side_by_side: Array, count: int) -> Array:
    """Matrices (count, rows, columns) from the columns that CasADi's map puts side by side."""
    rows, columns = side_by_side.shape
    return side_by_side.reshape(rows, count, columns // count).transpose(1, 0, 2)


def inverse_of(matrix: Array) -> Array:
    """The inverse of one matrix or of a stack of them; NaN where there is none."""
    try:
        return np.asarray(np.linalg.inv(matrix))
    except np.linalg.LinAlgError:
        if matrix.ndim == 2:
            return np.full(matrix.shape, np.nan)
        return np.array([inverse_of(one) for one in matrix])


def times(matrix: Any, vector: Any) -> Any:
    """Matrix times vector, for CasADi expressions, one instant or many."""
    if isinstance(vector, Array) and vector.ndim > 1:
        return np.einsum("...ij,...j->...i", matrix, vector)
    return matrix @ vector


def effective_mass(delassus: Array, contacts: Sequence[int] | Array) -> float:
    """The smallest mass [kg] that a normal impulse of the given contacts moves: what forces are compared with."""
    most = float(np.diag(delassus)[list(contacts)].max(initial=0.0))
    return 1.0 / most if most > 0.0 else 1.0
