"""Quantities of contact mechanics at a state: gaps, directions of contact forces, inertia, forces, Delassus matrix.

`CLS.kinematics` evaluates them, for numbers or for CasADi expressions, from one set of expressions that is built once
per system. Simulators, the MPCC, certificates and sensitivities use the same values, so that all have the same
definition of gap rates and slip velocities.

Order of rows everywhere: normals of all contacts, then the tangents of the contacts with friction. Rates are
J v + drift, with a drift for contacts that move by themselves (belts, walls), and accelerations J v' + curvature.
Tangents are scaled by the weights mu_k / mu of an anisotropic cone, so that every friction cone is circular; results
are scaled back where they are shown to the user. The Delassus matrix J M^-1 J' maps impulses to changes of rates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered, matrices
from nosnoc_py.systems.bilateral import put_on_constraints
from nosnoc_py.systems.scales import UNIT, ProblemScales
from nosnoc_py.systems.special_laws import varies
from nosnoc_py.systems.symbols import applied
from nosnoc_py.tolerances import TOUCHING_SOLVED

if TYPE_CHECKING:
    from nosnoc_py.systems.cls import CLS

Array = np.ndarray
Made = TypeVar("Made")
# Outputs of `ContactMechanics.function` in this order, and those that are vectors: CasADi returns these as columns,
# whose last axis is dropped.
QUANTITIES = ("gaps", "jacobian", "mass", "force", "curvature", "drift", "position_rate", "y_rate")
VECTORS = ("gaps", "force", "curvature", "drift", "position_rate", "y_rate")
# Contacts times velocities up to which dense matrices are faster.
DENSE = 10_000


@dataclass(frozen=True, eq=False, kw_only=True)
class ContactFrames:
    """Coefficients of all contacts of a system, in its order.

    Coefficients are numbers, or all are expressions if one of them is an expression of p; their values are then given
    by `ContactMechanics.frames_at`.

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
        mu_k / mu of every tangent component.
    sticking : (n_c,)
        Coefficients of contacts that stick, if not less than these; 0 where they are the same.
    varies : bool
        True if a friction depends on the state: numbers are then those at one state.
    """

    names: tuple[str, ...]
    friction: Any
    restitution: Any
    tangents: tuple[slice, ...]
    speeds: tuple[int, ...]
    weights: Any
    sticking: Any = None
    varies: bool = False

    @classmethod
    def of_widths(cls, widths: Sequence[int], **values: Any) -> ContactFrames:
        """Return the frames of contacts with so many tangents each."""
        # Contacts without friction have an empty slice, so that tangents of all contacts can be indexed alike.
        ends = np.cumsum([0, *widths]).tolist()
        # Only slips in space need a speed as an unknown: in the plane the velocity itself has a sign.
        spatial = np.cumsum([width == 2 for width in widths]).tolist()
        speeds = tuple(spatial[c] - 1 if width == 2 else -1 for c, width in enumerate(widths))
        return cls(tangents=tuple(slice(*pair) for pair in pairwise(ends)), speeds=speeds, **values)

    @property
    def cone(self) -> Any:
        """Coefficients (n_c,) of contacts that stick."""
        if self.sticking is None:
            return self.friction
        larger = np.maximum if self.constant else ca.fmax
        return larger(self.friction, self.sticking)

    @property
    def constant(self) -> bool:
        """True if no coefficient depends on p."""
        return not isinstance(self.friction, ca.SX)

    @property
    def count(self) -> int:
        """Number of contacts."""
        return len(self.names)

    @property
    def n_t(self) -> int:
        """Number of tangent components of all contacts with friction."""
        return self.tangents[-1].stop if self.tangents else 0

    @property
    def spatial(self) -> int:
        """Number of contacts with two tangents."""
        return sum(speed >= 0 for speed in self.speeds)

    @property
    def directions(self) -> list[tuple[str, str, Any]]:
        """Kind, label and weight of every direction of contact forces, normals first; series are named after them."""
        tangents = [
            ("tangent", f"[{name}][{k}]" if self.width(c) == 2 else f"[{name}]", self.weights[part.start + k])
            for c, (name, part) in enumerate(zip(self.names, self.tangents, strict=True))
            for k in range(self.width(c))
        ]
        return [("normal", f"[{name}]", 1.0) for name in self.names] + tangents

    def rows(self, contacts: Sequence[int] | Array) -> Array:
        """Return the positions of contacts among all directions of contact forces: normals first, then tangents."""
        parts = [np.arange(self.tangents[c].start, self.tangents[c].stop) for c in contacts]
        return np.concatenate([np.asarray(contacts, dtype=int), *[self.count + part for part in parts]])

    def width(self, contact: int) -> int:
        """Return the number of tangents of a contact: 0, 1 or 2."""
        return self.tangents[contact].stop - self.tangents[contact].start


def frames_of(system: CLS) -> ContactFrames:
    """Return the frames of the contacts of a system."""
    widths, weights, friction = [], [], []
    for contact in system.contacts:
        size = contact.tangent.shape[1] if contact.frictional else 0
        mu, shares = contact.cone
        widths.append(size)
        friction.append(mu)
        weights += ca.vertsplit(shares)[:size]
    given = (friction, [contact.restitution for contact in system.contacts], weights)
    # All or none are expressions: code that uses them then needs one case each and no mixture.
    if any(isinstance(value, ca.SX) for values in given for value in values):
        coefficients = [ca.vertcat(ca.SX(0, 1), *values) for values in given]
    else:
        coefficients = [np.array([float(value) for value in values]) for values in given]
    static = np.array([contact.static_friction or 0.0 for contact in system.contacts])
    return ContactFrames.of_widths(
        widths,
        sticking=static if static.any() else None,
        varies=any(varies(mu, system) for mu in friction),
        names=tuple(contact.name for contact in system.contacts),
        friction=coefficients[0],
        restitution=coefficients[1],
        weights=coefficients[2],
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Kinematics:
    """Contact mechanics at one state, at many (all arrays with a leading axis m), or as CasADi expressions.

    Attributes
    ----------
    gaps : (n_c,)
    jacobian : (n_c + n_tt, n_v)
        Directions of the normal forces, then of the friction forces, as rows. Tangents carry the weights of an
        anisotropic cone, so that every friction cone is circular in these coordinates.
    mass : (n_v, n_v)
    force : (n_v,)
        All forces but those of contacts.
    curvature : (n_c + n_tt,)
        Contact accelerations for v' = 0, such as d/dt(jacobian) v.
    drift : (n_c + n_tt,)
        Gap rates and slip velocities of bodies at rest, where contacts move by themselves.
    velocity : (n_v,)
    position_rate : (n_q,)
        q', the rate of the positions.
    y_rate : (n_y,)
        Rates of the first-order states, of time among them.
    constant_inverse : (n_v, n_v), optional
        M^-1 if M is constant; it is then inverted once.
    scales : ProblemScales
        Length and speed that tolerances are relative to.
    friction : (n_c,), optional
        Coefficients at this state, where they depend on it.
    """

    gaps: Any
    jacobian: Any
    mass: Any
    force: Any
    curvature: Any
    drift: Any
    velocity: Any
    position_rate: Any
    y_rate: Any
    constant_inverse: Any = None
    scales: ProblemScales = UNIT
    friction: Any = None

    @cached_property
    def inverse(self) -> Any:
        """M^-1 (n_v, n_v); NaN where M is singular."""
        return inverse_of(self.mass) if self.constant_inverse is None else self.constant_inverse

    @cached_property
    def rates(self) -> Any:
        """Gap rates and slip velocities (n_c + n_tt,)."""
        return self.rates_of(self.velocity)

    def rates_of(self, velocity: Any) -> Any:
        """Return gap rates and slip velocities (n_c + n_tt,) for a velocity (n_v,), for example after an impact."""
        return times(self.jacobian, velocity) + self.drift

    @cached_property
    def carried(self) -> Any:
        """Velocity (n_v,) at which bodies move with the surfaces of closed contacts; 0 if no surface moves."""
        # Zero unless a surface moves: only then the velocity of bodies at rest is not zero.
        result = np.zeros_like(self.velocity)
        shut = self.gaps <= self.short(TOUCHING_SOLVED)
        for k in np.ndindex(self.velocity.shape[:-1]):
            # Tangents of all contacts as well: a belt does work, and friction may act at any of them.
            rows = np.concatenate([shut[k], np.ones(self.drift.shape[-1] - shut.shape[-1], dtype=bool)])
            if self.drift[k][rows].any():
                # The smallest velocity with J v = -drift: contacts may be redundant, and other directions are free.
                result[k] = np.linalg.lstsq(self.jacobian[k][rows], -self.drift[k][rows], rcond=None)[0]
        return result

    def framed(self, frames: ContactFrames) -> ContactFrames:
        """Return frames with the coefficients of friction at this state."""
        return frames if self.friction is None else replace(frames, friction=self.friction)

    @cached_property
    def response(self) -> Any:
        """Velocity changes by unit impulses (n_v, n_c + n_tt): M^-1 J'."""
        if isinstance(self.mass, ca.SX):
            # Symbolically a solve keeps the graph smaller than a product with an inverse.
            return ca.solve(self.mass, self.jacobian.T)
        # The inverse is cached and used for several products; these matrices are small.
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
        """Return gap tolerances (n_c,): a fraction of the length scale, in units of the gaps."""
        # scales.length is in the unit of the gaps (position times steepness); the result has each gap's own unit.
        return share * self.scales.length / self.scales.steepness * self.steepness

    def slow(self, share: Any) -> Any:
        """Return gap-rate tolerances (n_c,): a fraction of the speed scale, in units of the gap rates."""
        return share * self.scales.velocity * self.steepness

    def slowest(self, speed: float) -> Any:
        """Return the gap rates (n_c,) that belong to a speed; 0 for none."""
        return speed * self.steepness if speed else 0.0


class ContactMechanics:
    """Expressions and compiled functions of the contacts of a `CLS`; `CLS.mechanics` is its only instance.

    Expressions are built when first used: dense matrices for a thousand contacts take longer than many steps of a
    method that does not need them.
    """

    def __init__(self, system: CLS) -> None:
        self.system, self.frames = system, frames_of(system)
        self._framed: tuple[bytes, ContactFrames] | None = None
        self._made: dict[Callable[[CLS], Any], Any] = {}

    def once(self, make: Callable[[CLS], Made]) -> Made:
        """Return make(system) of the first call: what other rooms build from a system lives as long as the system."""
        if make not in self._made:
            self._made[make] = make(self.system)
        made: Made = self._made[make]
        return made

    def frames_at(self, p: Array) -> ContactFrames:
        """Return the frames with numeric coefficients, at parameters (n_p,).

        Raises
        ------
        ModelError
            For coefficients that no contact has: a negative friction, a restitution that is not in [0, 1].
        """
        if self.frames.constant:
            return self.frames
        # Compared by their bytes, which is cheaper than arrays and exact.
        key = np.asarray(p, dtype=float).tobytes()
        if self._framed is None or self._framed[0] != key:  # p rarely changes between calls
            at_zero = np.zeros(len(self.system.state_names))  # friction that varies is asked for at states
            given, *values = (np.array(value)[:, 0] for value in self._coefficients(at_zero, p))
            if self.frames.varies:
                given = np.where(np.isfinite(given) & (given >= 0.0), given, 0.0)
            said, rest = f" at p = {np.asarray(p, dtype=float).tolist()}", given.tolist()
            for contact in self.system.contacts:
                size = 1 + len(contact.friction)
                contact.check_values(*rest[:size], given=said)
                rest = rest[size:]
            friction, restitution, weights = values
            framed = replace(self.frames, friction=friction, restitution=restitution, weights=weights)
            self._framed = key, framed
        return self._framed[1]

    @cached_property
    def _coefficients(self) -> ca.Function:
        """x, p -> restitution and friction of every contact as they are given; friction, restitution and weights."""
        given = [value for c in self.system.contacts for value in (c.restitution, *c.friction)]
        frames = self.frames
        values = [ca.vertcat(*given), frames.friction, frames.restitution, frames.weights]
        return ca.Function("coefficients", [self.system.x, self.system.p], [ca.densify(value) for value in values])

    @cached_property
    def frictions(self) -> Any:
        """(x, p) -> coefficients (n_c,) or (m, n_c) of friction that varies; None if none does."""
        if not self.frames.varies:
            return None
        function = ca.Function("friction", [self.system.x, self.system.p], [ca.densify(self.frames.friction)])
        one = buffered(function)

        def evaluate(x: Array, p: Array) -> Array:
            if np.ndim(x) == 1:
                return np.asarray(one(x, p)[0])[:, 0]
            many = function.map(len(x))(x.T, np.repeat(np.asarray(p, float)[:, None], len(x), axis=1))
            return np.asarray(ca.DM(many)).T

        return evaluate

    @cached_property
    def gaps(self) -> ca.SX:
        """Gaps (n_c,)."""
        return ca.vertcat(ca.SX(0, 1), *[contact.gap for contact in self.system.contacts])

    @cached_property
    def turns(self) -> ca.Function:
        """x, p -> (n, n_q), (n_q, n_v): slopes of the arguments of sines and cosines, and N of q' = N(q) v.

        Only arguments that are linear in q have a slope that says something of the size of q.
        """
        s = self.system
        model = ca.veccat(s.mass_matrix, s.force, self.gaps)
        rows = (ca.jacobian(part, s.q) for _, (part, *_) in applied((ca.OP_SIN, ca.OP_COS), model))
        slopes = ca.densify(ca.vertcat(ca.SX(0, s.n_q), *(row for row in rows if not ca.depends_on(row, s.x))))
        # An argument may be a function of the controls or the time as well: that does not turn.
        free = [one for one in ca.symvar(slopes) if not ca.depends_on(ca.vertcat(s.x, s.p), one)]
        known = ca.substitute(slopes, ca.vertcat(ca.SX(0, 1), *free), ca.DM.zeros(len(free)))
        return ca.Function("turns", [s.x, s.p], [known, ca.densify(s.rate_matrix)])

    @cached_property
    def normals(self) -> ca.SX:
        """Normals (n_v, n_c)."""
        s = self.system
        # Dense, as simulators evaluate it to arrays; `sparse` is for many contacts.
        return ca.densify(ca.horzcat(ca.SX(s.n_v, 0), *[s.normal(contact) for contact in s.contacts]))

    @cached_property
    def tangents(self) -> ca.SX:
        """Tangents (n_v, n_tt) with weights."""
        tangents = [contact.tangent for contact in self.system.contacts if contact.frictional]
        columns = ca.horzcat(ca.SX(self.system.n_v, 0), *tangents)
        return ca.densify(columns @ ca.diag(ca.SX(self.frames.weights)))

    @cached_property
    def jacobian(self) -> ca.SX:
        """Directions of all contact forces as rows (n_c + n_tt, n_v)."""
        return ca.horzcat(self.normals, self.tangents).T

    @cached_property
    def drift(self) -> ca.SX:
        """Gap rates and slips where v = 0 (n_c + n_tt,)."""
        s = self.system
        surfaces = [contact.surface_velocity for contact in s.contacts if contact.frictional]
        # Slip relative to the surface: its velocity is subtracted, with the weight of its tangent.
        slips = -ca.SX(self.frames.weights) * ca.vertcat(ca.SX(0, 1), *surfaces)
        return ca.densify(ca.vertcat(ca.jtimes(self.gaps, s.y, s.y_rate), slips))

    @cached_property
    def rates(self) -> ca.SX:
        """Gap rates, then slips with weights (n_c + n_tt,)."""
        return self.jacobian @ self.system.v + self.drift

    @property
    def gap_rates(self) -> ca.SX:
        """Gap rates (n_c,)."""
        return ca.vertsplit(self.rates, [0, self.frames.count, self.rates.numel()])[0]

    @property
    def slips(self) -> ca.SX:
        """Slip velocities with weights (n_tt,)."""
        return ca.vertsplit(self.rates, [0, self.frames.count, self.rates.numel()])[1]

    @cached_property
    def curvature(self) -> ca.SX:
        """Contact accelerations for v' = 0 (n_c + n_tt,)."""
        s = self.system
        # Directional derivative along the motion of positions and y: d/dt (J v + drift) with v held constant.
        return ca.jtimes(self.rates, ca.vertcat(s.q, s.y), ca.vertcat(s.position_rate, s.y_rate))

    @cached_property
    def function(self) -> ca.Function:
        """(x, u, p) -> the `QUANTITIES`."""
        s = self.system
        outputs = [
            self.gaps,
            self.jacobian,
            s.mass_matrix,
            s.force,
            self.curvature,
            self.drift,
            s.position_rate,
            s.y_rate,
        ]
        return ca.Function("kinematics", [s.x, s.u, s.p], outputs)

    @cached_property
    def gaps_at(self) -> Any:
        """(x, p) -> gaps (n_c,)."""
        function = buffered(ca.Function("gaps", [self.system.x, self.system.p], [self.gaps]))
        return lambda x, p: function(x, p)[0][:, 0]

    @cached_property
    def tangent_frames(self) -> ca.Function:
        """(x, p) -> normal and tangents of every contact with friction, side by side; sparse, for there may be many."""
        s = self.system
        frames = [ca.horzcat(s.normal(contact), contact.tangent) for contact in s.contacts if contact.frictional]
        return ca.Function("tangent_frames", [s.x, s.p], [ca.horzcat(ca.SX(s.n_v, 0), *frames)])

    @cached_property
    def sparse(self) -> ca.Function:
        """(x, u, p) -> gaps, directions as rows (n_c + n_tt, n_v), mass matrix, force and drift, all sparse."""
        s = self.system
        columns = [s.normal(contact) for contact in s.contacts]
        columns += [contact.tangent for contact in s.contacts if contact.frictional]
        rows = ca.horzcat(ca.SX(s.n_v, 0), *columns).T
        return ca.Function("sparse", [s.x, s.u, s.p], [self.gaps, rows, s.mass_matrix, s.force, self.drift])

    def directions(self, x: Array, u: Array, p: Array) -> tuple[Array, Any, Array, Array, Array]:
        """Return gaps, directions as rows (sparse for many contacts), mass matrix, force and drift at a state."""
        if self.frames.count * self.system.n_v <= DENSE:
            at = self.at(x, u, p)
            return at.gaps, at.jacobian, at.mass, at.force, at.drift
        from scipy.sparse import csr_array

        gaps, rows, *others = self.sparse(x, u, p)
        mass, force, drift = map(np.asarray, others)
        return np.asarray(gaps)[:, 0], csr_array(rows.sparse()), mass, force[:, 0], drift[:, 0]

    def moved(self, x: Array, p: Array, change: Array) -> Array:
        """Return N(q) times a small motion (n_v,) or (n_v, k) along the velocities: the change of q (n_q,)."""
        if self.system.moves_by_v:
            return change
        return np.asarray(self._rate_matrix(x, p)[0] @ change)

    @cached_property
    def _rate_matrix(self) -> Any:
        s = self.system
        return buffered(ca.Function("rate_matrix", [s.x, s.p], [ca.densify(s.rate_matrix)]))

    @cached_property
    def put_on_constraints(self) -> ca.Function:
        """(x, p) -> x: one Newton step onto the bilateral constraints; x itself without any."""
        s = self.system
        return ca.Function("as_it_is", [s.x, s.p], [s.x]) if s.bilateral is None else put_on_constraints(s)

    @cached_property
    def settled(self) -> Any:
        """The same for numbers."""
        return buffered(self.put_on_constraints)

    @cached_property
    def touching(self) -> Any:
        """(x, p) -> gaps, gap rates and norms of the normals of all contacts, without the mass matrix."""
        s = self.system
        steepness = ca.sqrt(ca.sum1(self.normals**2)).T
        function = buffered(ca.Function("touching", [s.x, s.p], [self.gaps, self.gap_rates, steepness]))
        return lambda x, p: [values[:, 0] for values in function(x, p)]

    @cached_property
    def constant_inverse(self) -> Array | None:
        """M^-1 where M depends on neither q nor p."""
        mass = self.system.mass_matrix
        # Inverted once per system instead of once per evaluation.
        return inverse_of(np.array(ca.DM(mass))) if mass.is_constant() else None

    @cached_property
    def _numbers(self) -> Any:
        return buffered(self.function)

    def at(self, x: Any, u: Any, p: Any, scales: ProblemScales = UNIT) -> Kinematics:
        """Evaluate at a state (n_x,), at states (m, n_x), or at CasADi expressions."""
        if any(isinstance(value, ca.SX) for value in (x, u, p)):
            values = dict(zip(QUANTITIES, self.function(x, u, p), strict=True))
            return Kinematics(**values, velocity=x[self.system.at_v])
        x = np.asarray(x, dtype=float)
        entries = self._numbers(x, u, p) if x.ndim == 1 else self._at_many(x, u, p)
        values = {
            name: value[..., 0] if name in VECTORS else value for name, value in zip(QUANTITIES, entries, strict=True)
        }
        friction = None if self.frictions is None else self.frictions(x, np.zeros(self.system.n_p) + p)
        return Kinematics(
            **values,
            velocity=x[..., self.system.at_v],
            constant_inverse=self.constant_inverse,
            scales=scales,
            friction=friction,
        )

    def _at_many(self, x: Array, u: Any, p: Any) -> list[Array]:
        """Return the quantities at all states in one call."""
        count, function = len(x), self.function
        # CasADi's map needs at least one column.
        if not count:
            return [np.zeros((0, *function.size_out(i))) for i in range(function.n_out())]
        # One control or one set of parameters may serve all states.
        controls = np.broadcast_to(np.asarray(u, dtype=float), (count, self.system.n_u))
        parameters = np.broadcast_to(np.asarray(p, dtype=float), (count, self.system.n_p))
        return [matrices(np.asarray(ca.DM(out)), count) for out in function.map(count)(x.T, controls.T, parameters.T)]


def inverse_of(matrix: Array) -> Array:
    """Return the inverse of one matrix or of a stack of them; NaN where there is none."""
    try:
        return np.asarray(np.linalg.inv(matrix))
    # One singular matrix makes NumPy refuse the whole stack; the others keep their inverses.
    except np.linalg.LinAlgError:
        if matrix.ndim == 2:
            return np.full(matrix.shape, np.nan)
        return np.array([inverse_of(one) for one in matrix])


def times(matrix: Any, vector: Any) -> Any:
    """Return matrix times vector, for CasADi expressions, one instant or many."""
    if isinstance(vector, Array) and vector.ndim > 1:
        return np.einsum("...ij,...j->...i", matrix, vector)
    return matrix @ vector


def effective_mass(delassus: Array, contacts: Sequence[int] | Array) -> float:
    """Return the smallest mass [kg] that a normal impulse of the given contacts moves, as a scale of forces."""
    # Diagonal entry n'M^-1 n is the inverse of the mass that the normal impulse feels.
    most = float(np.diag(delassus)[list(contacts)].max(initial=0.0))
    return 1.0 / most if most > 0.0 else 1.0
