"""Complementarity Lagrangian systems: rigid bodies with unilateral contacts and dry friction (FESD-J, Eq. 1).

A `CLS` is a description, not a method: it checks its expressions once, turns algebraic variables and compliant contacts
into forces, and is immutable afterwards. Invariants after construction, so that no method needs a special case:

- time, if given, is the last first-order state, with the rate 1;
- algebraic variables are eliminated, and compliant contacts are part of the force: `contacts` are rigid;
- bilateral constraints are eliminated, too: forces and directions of contacts are those on the constraints
  (`bilateral`);
- expressions do not depend on the length of quaternions, which integration does not keep;
- gap rates are n'v plus a drift that depends on neither v nor u, so that impulses change them by n'M^-1 n only.

`kinematics` evaluates all quantities of the contacts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import casadi as ca
import numpy as np
from attrs import evolve, field

from nosnoc_py.annotations import EMPTY, Expression, Pair
from nosnoc_py.declared import checked, declared, optional, title_of
from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.functions import function_of
from nosnoc_py.systems.algebraic import Algebraic
from nosnoc_py.systems.bilateral import Bilateral, bilateral_of, named_rows, reduced
from nosnoc_py.systems.compliance import friction_force, generalised_force, normal_force
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.jumping import jumping_rows
from nosnoc_py.systems.kinematics import ContactMechanics, Kinematics
from nosnoc_py.systems.projection import ProjectedState, check_closed, project
from nosnoc_py.systems.quaternions import body_rates, check_unit, scaled_alike, unit_parts, unit_states, with_unit
from nosnoc_py.systems.relations import intervals_by_name
from nosnoc_py.systems.special_laws import varies
from nosnoc_py.systems.symbols import (
    check_free,
    column,
    column_if_any,
    columns,
    finite,
    free_of_others,
    mapping,
    matrix,
    nonnegative,
    one_row,
    part_name,
    parts,
    positive,
    scalar,
    square,
    symbols,
    symbols_if_any,
)
from nosnoc_py.systems.text import counted

# Consequence and remedy of a force that jumps with the state, for warnings.
JUMPS = (
    "no method locates such jumps, so simulators lose accuracy or stop there; write friction as "
    "ns.Contact(..., friction=...), other jumps as the regions of an ns.PSS, or smooth them"
)


# Why directions of a contact may depend on each other although the user's own do not.
FEWER = (
    " These are the directions in which couplings and loops let it move: leave out a tangent along which it cannot; a "
    "mechanism with one degree of freedom has a contact with a normal alone, give it no friction."
)


def _coefficients(value: Any, what: str, size: int) -> tuple[Any, ...]:
    """Return the coefficients of a contact, each a float or an expression; one number holds for all of them."""
    listed = value if isinstance(value, list | tuple) else [value]
    if not any(isinstance(one, ca.SX) for one in listed):
        return tuple(float(number) for number in finite(value, what, size))
    result = ca.vertsplit(column(value, what))
    if len(result) not in (1, size):
        raise ModelError(f"{what}: expected one coefficient, or {size}, given {len(result)}.")
    # One coefficient holds for all tangents.
    result = result * (size // len(result))
    return tuple(float(one) if one.is_constant() else one for one in result)


def _coefficient(value: float | ca.SX, what: str = "coefficient") -> float | ca.SX:
    return _coefficients(value, what, 1)[0] if isinstance(value, ca.SX) else scalar(value, what)


def _stiffness(value: float | ca.SX, what: str = "stiffness") -> float | ca.SX:
    return value if isinstance(value, ca.SX) else positive(value, what)


def _damping(value: float | ca.SX, what: str = "damping") -> float | ca.SX:
    return value if isinstance(value, ca.SX) else nonnegative(value, what)


def _friction(
    value: Expression | Callable[[ca.SX], Any], what: str = "friction", owner: Any = None
) -> tuple[float | ca.SX | Callable[[ca.SX], Any], ...]:
    return (value,) * owner.n_t if callable(value) else _coefficients(value, what, owner.n_t)


def _static(value: float, what: str = "static_friction", owner: Any = None) -> float:
    number, given = positive(value, what), owner.friction
    numbers_ = [mu for mu in given if isinstance(mu, float)]
    if len(set(numbers_)) > 1 or number < max(numbers_, default=0.0):
        raise ModelError(
            f"{what}: expected a coefficient that is at least that of friction, the same in all directions, given "
            f"{number:g} for friction {_friction_text(numbers_)}."
        )
    return number


def _surface_velocity(value: Expression, what: str = "surface_velocity", owner: Any = None) -> ca.SX:
    """Return the components along the tangents; one that is zero holds for all of them."""
    result = column(value, what)
    return column(ca.SX.zeros(owner.n_t) if result.numel() == 1 and result.is_zero() else result, what, owner.n_t)


@declared
class Contact:
    """Unilateral contact gap(q) >= 0 with a nonnegative normal force, restitution and Coulomb friction.

    Parameters
    ----------
    name : str
        Name of the contact; forces, impulses and events carry it.
    gap : SX scalar
        Signed distance f_c(q) [m]: positive when open, zero in contact, negative in penetration, with a gradient that
        is not zero in contact. |q|, q^2 and the distance of two points are not allowed: they do not change sign.
        Without friction any such smooth function is allowed; the normal force then has the unit that makes
        normal * force a generalised force. With friction it has to be a distance: for a gap that is ten times as large,
        normal forces and friction are ten times smaller.
    normal : SX (n_v,), optional
        Direction J_n(q) of the normal force in generalised coordinates; default: N'(q) times the gradient of the gap,
        the gradient itself where q' = v.
    tangent : SX (n_v, n_t), optional
        Directions J_t(q) of the friction force in generalised coordinates, n_t = 1 (planar) or 2; J_t'v is the slip
        velocity. In 3-D the columns belong to two perpendicular unit directions of the contact plane. This is not
        checked, as the columns need not have length one in generalised coordinates.
    friction : float, SX scalar, or n_t of them
        Coefficient mu >= 0: |lambda_t| <= mu lambda_n. Two numbers make it anisotropic, one for each tangent column:
        sum_k (lambda_t,k / mu_k)^2 <= lambda_n^2 (the weighted norm of FESD-J, after Eq. 1). An expression of the
        system's parameters p can be identified (`OCP(free_parameters=...)`) or changed without compiling again; its
        value is checked when p is given. An expression of q or y (hence time) too is friction that depends on the
        place; a function of the slip speed [m/s], such as `lambda s: 0.3 + 0.2 * ca.exp(-s / 0.1) + 0.05 * s`, has
        Stribeck's law and a viscous part. Where
        such an expression is negative, the coefficient is 0.
    static_friction : float, optional
        Coefficient of a contact that sticks, at least `friction`; a slip begins at it and goes on with `friction`.
        Default: the same. Impacts have `friction`.
    restitution : float or SX scalar
        Newton's coefficient of restitution e in [0, 1]: n'v(+) = -e n'v(-). A number, or an expression of p.
    surface_velocity : SX (n_t,) or float
        Velocity [m/s] of the touched surface along the tangents, if it moves without a coordinate of its own (a
        conveyor belt, a turntable): the slip is J_t'v - surface_velocity. An expression of q, y (hence time) and p.
    stiffness : float or SX scalar, optional
        k [N/m] of a compliant contact: instead of complementarity and impacts, bodies overlap and are pushed apart by
        the force k max(0, -f_c) max(0, 1 - d f_c'). A number or an expression of p. Default: rigid contact.
    damping : float or SX scalar
        Damping d [s/m] of a compliant contact, which reduces the force during separation (Hunt and Crossley 1975);
        about 1.5 (1 - e) over the speed of impact for a restitution e near 1.
    creep_speed : float
        Slip speed [m/s] below which the friction of a compliant contact is linear in the slip.

    Raises
    ------
    ModelError
        If the name is empty, the gap is no scalar, the restitution lies outside [0, 1], the friction is negative, or
        there is friction without a tangent. Expressions are checked when p has values.

    Examples
    --------
    The ground for a point at (x, y), with friction that is a parameter, rigid and soft:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, mu = ca.SX.sym("q", 2), ca.SX.sym("mu")
    >>> rigid = ns.Contact("ground", gap=q[1], tangent=ca.SX([1, 0]), friction=mu, restitution=0.5)
    >>> soft = ns.Contact("ground", gap=q[1], tangent=ca.SX([1, 0]), friction=mu, stiffness=1e4, damping=0.1)
    >>> rigid.bounces, soft.bounces
    (True, False)
    """

    noun: ClassVar[str] = "contact"

    name: str = field(converter=part_name)
    gap: ca.SX = field(converter=one_row, kw_only=True)
    normal: Any = field(default=None, converter=optional(column), kw_only=True)  # None: the gradient of the gap
    tangent: Any = field(default=None, converter=optional(columns), kw_only=True)
    friction: tuple[Any, ...] = field(default=0.0, converter=_friction, kw_only=True)
    restitution: Any = field(default=0.0, converter=_coefficient, kw_only=True)
    surface_velocity: ca.SX = field(default=0.0, converter=_surface_velocity, kw_only=True)
    stiffness: Any = field(default=None, converter=optional(_stiffness), kw_only=True)
    damping: Any = field(default=0.0, converter=_damping, kw_only=True)
    creep_speed: float = field(default=1e-3, converter=positive, kw_only=True)
    static_friction: float | None = field(default=None, converter=optional(_static), kw_only=True)

    def __attrs_post_init__(self) -> None:
        what = title_of(self)
        if self.tangent is None and not self.surface_velocity.is_zero():
            raise ModelError(f"{what}: a surface_velocity needs a direction; give tangent= and friction=.")
        if self.stiffness is None and not (isinstance(self.damping, float) and self.damping == 0.0):
            raise ModelError(f"{what}: damping belongs to a compliant contact; give stiffness=, or restitution=.")
        if self.stiffness is not None and self.static_friction is not None:
            raise ModelError(f"{what}: a compliant contact creeps and does not stick; leave out static_friction.")
        if self.stiffness is not None and self.bounces:
            raise ModelError(f"{what}: a compliant contact has no restitution; give damping= instead.")
        # 1.0 is admissible for all coefficients: expressions pass this check, and get theirs with values of p.
        self.check_values(*(value if isinstance(value, float) else 1.0 for value in (self.restitution, *self.friction)))
        if self.tangent is None and self.frictional:
            raise ModelError(
                f"{what}: friction {self.friction[0]} needs a direction; give tangent=, the columns of J_t in "
                "generalised coordinates (one in the plane, two in space)."
            )

    @property
    def n_t(self) -> int:
        """Number of tangents, of coefficients of friction."""
        return 1 if self.tangent is None else int(self.tangent.shape[1])

    def check_values(self, restitution: float, *friction: float, given: str = "") -> None:
        """Raise `ModelError` for inadmissible coefficients; `given` names the origin of their values."""
        what = f"contact {self.name!r}"
        if not 0.0 <= restitution <= 1.0:
            raise ModelError(
                f"{what}: restitution has to lie in [0, 1], given {restitution!r}{given} (0 is inelastic, 1 elastic)."
            )
        if min(friction) < 0:
            raise ModelError(f"{what}: friction has to be nonnegative, given {_friction_text(friction)}{given}.")
        # With mu_k = 0 for one tangent the friction ellipse degenerates to a segment, on which directions have no
        # meaning.
        if any(friction) != all(friction):
            raise ModelError(
                f"{what}: anisotropic friction needs positive coefficients, given {_friction_text(friction)}{given}; "
                "leave out the tangent column that has none."
            )

    def check_compliance(self, stiffness: float, damping: float) -> None:
        """Raise `ModelError` for values of p with which a compliant contact would pull or drive."""
        if not (stiffness > 0 and damping >= 0):
            raise ModelError(
                f"contact {self.name!r}: expected stiffness > 0 and damping >= 0, given {stiffness:g} and {damping:g} "
                "with these parameters."
            )

    @property
    def frictional(self) -> bool:
        """True if the contact has friction; a friction coefficient that is an expression counts as nonzero."""
        return any(not isinstance(mu, float) or mu > 0.0 for mu in self.friction)

    @property
    def bounces(self) -> bool:
        """True if the restitution may be positive; an expression counts as positive."""
        return not isinstance(self.restitution, float) or self.restitution > 0.0

    @property
    def cone(self) -> tuple[Any, Any]:
        """mu, and weights (n_t,) of the tangents in which an anisotropic cone is circular: mu_k / mu, at most one."""
        if all(isinstance(mu, float) for mu in self.friction):
            # Relative to the largest coefficient: weights are at most one, and never divide by zero.
            mu = max(self.friction)
            return mu, ca.DM([value / mu if mu else 1.0 for value in self.friction])
        # It is unknown which expression is larger: with the first one the other weights may exceed one.
        mu = self.friction[0]
        return mu, ca.vertcat(1, *(1 if ca.is_equal(other, mu, 9) else other / mu for other in self.friction[1:]))


def _friction_text(friction: Sequence[float]) -> str:
    return ", ".join(f"{mu:g}" for mu in dict.fromkeys(friction))


def _check_order(value: str, what: str) -> None:
    if value not in (orders := ("at once", "in sequence")):
        raise ModelError(f"{what}: {unknown_name(str(value), orders, 'law')}")


def _contacts(value: Sequence[Contact], owner: Any = None) -> tuple[Contact, ...]:
    return parts(value, Contact, type(owner).__name__, "contacts")


@declared(kw_only=True)
class CLS(Described):
    """Complementarity Lagrangian system (FESD-J, Eq. 1).

    q' = N(q) v, by default q' = v,  M(q) v' = f_v(q, v, u) + sum_l (n_l(q) lambda_n,l + t_l(q) lambda_t,l),
    0 <= lambda_n,l, f_l(q) >= 0, lambda_n,l f_l(q) = 0; friction dissipates most, lambda_t,l = argmin v't_l lambda over
    |lambda| <= mu_l lambda_n,l; and at an impact of contact l Newton's law n_l'(v+ + e_l v-) = 0 holds, with the same
    friction law for impulses at the velocity after it.

    Parameters
    ----------
    q : SX (n_q,)
        Generalised coordinates.
    v : SX (n_v,)
        Generalised velocities, as many as coordinates unless there are `kinematic_matrix` or `quaternions`.
    u : SX (n_u,), optional
        Controls.
    p : SX (n_p,), optional
        Parameters; values are given to the OCP and to `simulate`, defaults in `p_default`.
    mass_matrix : SX or DM (n_v, n_v)
        M(q), symmetric positive definite.
    force : SX (n_v,)
        f_v(q, v, y, u, p): every force but the contact forces.
    contacts : sequence of Contact
    kinematic_matrix : SX (n_q, n_v), optional
        N(q) if q' = N(q) v is not v: body-fixed velocities, quasi-velocities.
    quaternions : sequence of SX (4,), optional
        Unit quaternions among the coordinates, each four consecutive components of q, real part first. Without a
        `kinematic_matrix` each has three velocities in its place, the body-fixed angular velocity w, and
        q' = q (0, w) / 2. Expressions of q are evaluated for the normalised quaternion; nodes of results have length
        one. For costs and constraints see `ns.attitude_error`.
    y : SX (n_y,), optional
        First-order states besides the mechanics: currents of motors, filters, temperatures. The state is (q, v, y).
    y_rate : SX (n_y,)
        y' in q, v, y, u and p. A gap may follow y where y' depends on neither v nor u.
    algebraic : Algebraic, optional
        Variables z of forces, the mass matrix and y', with equations that are affine in z and without bounds: the
        system is solved for them. Costs, constraints and `solution.value` may use z, too.
    t : SX scalar, optional
        Time [s], for forces, gaps (moving walls), costs and constraints that depend on it. It is the last state, called
        "t", with the rate 1; a state that is given without it begins at t = 0.
    names : mapping, optional
        Component names for "q", "v", "y", "u", "p".
    units : mapping, optional
        Unit of any named component, for labels ("m", "m/s", "N").
    nominal : mapping, optional
        Typical magnitudes for "q", "v", "y", "u" and "force" (contact forces): they scale the program, results stay in
        the user's units.
    p_default : sequence of float, optional
        Default values of the parameters; without them values have to be given wherever the system is used.
    scene : sequence of shapes of `ns.scene`, optional
        Shapes that `ns.animate` and `ns.snapshots` draw.
    couplings : mapping name -> SX (k,), optional
        Relations that always hold: expressions of q and p that vanish (gears, belts, mimic joints: q[1] - 3 * q[0]), or
        of v, linear (rolling without slip, knife edges: v[0] - radius * v[1]). They are bilateral and do no work; rows
        that follow from others are left out.
    simultaneous_impacts : {"at once", "in sequence"}
        Law of impacts at several closed contacts: one problem for all of them, or only those that approach, then those
        that approach because of it, and so on, as an impulse travels through a chain (Newton's cradle). "in sequence"
        is for simulations by `ns.EventDriven`.
    loops : mapping name -> SX (k,), optional
        Closed kinematic loops, likewise: the difference of two points that a joint connects. `project` closes a state.
    limits : mapping name -> (lower, upper), optional
        Limits of states that are no contacts: every `ns.OCP` of the system has them as bounds, beside its own. A
        simulation does not stop there.

    Attributes
    ----------
    x_initial : SX (n_x,)
        Symbols of the state at the start, for terminal costs and constraints that tie x(T) to x(0).

    Raises
    ------
    ModelError
        For wrong shapes, foreign symbols, duplicate names, non-positive nominal values, unknown keys.

    Examples
    --------
    A ball on a plate that moves up and down, pushed by a motor whose current follows its voltage u:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, i, u, t = (ca.SX.sym(name) for name in ("q", "v", "i", "u", "t"))
    >>> plate = ns.Contact("plate", gap=q - 0.1 * ca.sin(6 * t), restitution=0.8)
    >>> ball = ns.CLS(
    ...     q=q, v=v, y=i, y_rate=10 * (u - i), u=u, t=t, mass_matrix=1, force=2 * i - 9.81, contacts=[plate],
    ...     names={"q": ["height"], "v": ["speed"], "y": ["current"], "u": ["voltage"]},
    ... )
    >>> ball.state_names
    ('height', 'speed', 'current', 't')
    >>> motion = ns.simulate(ball, x0={"height": 1.0}, duration=0.6, u=[0.5])
    >>> [event.kind for event in motion.events]
    ['impact']
    """

    groups: ClassVar[tuple[str, ...]] = ("q", "v", "y", "u", "p")
    states: ClassVar[tuple[str, ...]] = ("q", "v", "y")

    mechanical = True
    methods = "ns.FESDJ(...) or ns.TimeFreezing(...) (simulations also: ns.EventDriven(...), ns.TimeStepping(...))"

    q: ca.SX = field(converter=symbols)
    v: ca.SX = field(converter=symbols)
    mass_matrix: ca.SX = field(converter=matrix)
    force: ca.SX = field(converter=column)
    contacts: tuple[Contact, ...] = field(default=(), converter=_contacts)
    compliant: tuple[Contact, ...] = field(default=(), init=False)
    kinematic_matrix: ca.SX | None = field(default=None, converter=optional(columns))
    quaternions: Sequence[ca.SX] = ()
    y: ca.SX = field(default=None, converter=symbols_if_any)
    y_rate: ca.SX = field(default=None, converter=column_if_any)
    algebraic: Algebraic | None = None
    simultaneous_impacts: Literal["at once", "in sequence"] = field(default="at once", validator=checked(_check_order))
    couplings: Mapping[str, Expression] = field(default=EMPTY, converter=named_rows)
    loops: Mapping[str, Expression] = field(default=EMPTY, converter=named_rows)
    limits: Mapping[str, Pair] = field(default=EMPTY, validator=checked(mapping))
    eliminated: tuple[ca.SX, ca.SX] | None = None  # z and its values: what has become of `algebraic`
    bilateral: Bilateral | None = None  # what has become of `couplings` and `loops`
    x: Any = field(init=False)  # the state (q, v, y)
    unit_parts: tuple[slice, ...] = field(default=(), init=False)  # where the quaternions are in q
    position_rate: Any = field(init=False)  # q' = N(q) v as an expression (n_q,)

    def __attrs_post_init__(self) -> None:
        # The order matters: time and eliminated variables first, as all later checks see the final symbols.
        joined = self._join_time("y")
        if self.algebraic is not None:
            self._eliminate(self.algebraic)
        self._check_symbols()
        allowed = self._symbols("q", "v", "y", "u", "p")
        # Quaternions before all expressions, as `of_unit` needs to know where they are.
        self._set(unit_parts=unit_parts(self.q, self.quaternions))
        self._set(position_rate=self._rates_of_q(), x=ca.vertcat(self.q, self.v, self.y))
        self._set(force=self.of_unit(column(self.force, "CLS: force", self.n_v)), y_rate=self._rates_of_y(joined))
        every = tuple(self._of_unit(self._of_slip(contact)) for contact in self.contacts)
        self._check_mass_matrix()
        self._check_contacts(every)
        self._set(compliant=tuple(contact for contact in every if contact.stiffness is not None))
        self._set(contacts=tuple(contact for contact in every if contact.stiffness is None), limits=dict(self.limits))
        self._describe(force=len(self.contacts))
        intervals_by_name(self.limits, self.state_names, "CLS: limits", pairs=True)
        # Before compliant forces are added: messages about symbols concern the user's own force.
        check_free(self.force, allowed, "CLS: force")
        # Compliant contacts become forces here; the rest of the library needs no case for them.
        self._set(force=sum((generalised_force(self, contact) for contact in self.compliant), self.force))
        self._reduce()
        check_free(self.y_rate, allowed, "CLS: y_rate")
        self._warn_of_jumps({"CLS: force": self.force, "CLS: y_rate": self.y_rate}, JUMPS)
        if self.p_default is not None:
            self.parameters()  # raises for wrong default values now, not at the first use

    def _eliminate(self, own: Algebraic) -> None:
        """Eliminate the algebraic variables, so that contacts act on an ordinary mechanical system."""
        if not isinstance(own, Algebraic):
            raise self._error(f"algebraic: expected ns.Algebraic, given {type(own).__name__}.")
        # Bounds or nonlinear equations could leave several solutions, of which a substitution can express only one.
        if not own.affine or np.isfinite([*np.asarray(own.lower), *np.asarray(own.upper)]).any():
            raise self._error(
                "algebraic: beside contacts the equations have to be affine in z, and z without bounds; make z a "
                "first-order state y that follows fast, or write the system as an ns.PSS or ns.PDS."
            )
        self._set(algebraic=None, eliminated=(own.z, own.solution))
        self._set(**{name: self.solved(getattr(self, name)) for name in ("force", "mass_matrix", "y_rate")})

    def _reduce(self) -> None:
        """Eliminate couplings and loops, so that every method sees an ordinary system."""
        found = self.bilateral or bilateral_of(self)
        if found is None or found.made(self.force, self.contacts):
            return
        force, contacts = reduced(self, found, self.contacts)
        self._set(force=force, contacts=contacts)
        self._set(bilateral=replace(found, force=self.force, contacts=contacts))

    def solved(self, expression: ca.SX) -> ca.SX:
        """Return an expression with algebraic variables eliminated and quaternions normalised."""
        result = expression if self.eliminated is None else ca.substitute(expression, *self.eliminated)
        return self.of_unit(result)

    def of_unit(self, expression: ca.SX) -> ca.SX:
        """Return an expression that does not depend on the length of the quaternions.

        Integration does not keep their length exactly. As q' = q (0, w) / 2 is linear in q, the direction is right for
        every length; with expressions that do not depend on the length the error has no effect.
        """
        return with_unit(expression, self.q, self.unit_parts)

    def _of_slip(self, contact: Contact) -> Contact:
        """Return a contact whose friction is a function of the slip speed with friction as an expression."""
        if not callable(contact.friction[0]):
            given = contact.friction
            bounded = [ca.fmax(mu, 0) if varies(mu, self) else mu for mu in given]
            return evolve(contact, friction=bounded) if any(varies(mu, self) for mu in given) else contact
        slip = self.slip(contact)
        # Shifted by the square of the smallest number, so that the derivative at rest is a number.
        speed = ca.sqrt(ca.sumsqr(slip) + float(np.finfo(float).tiny))
        mu = one_row(contact.friction[0](speed), f"contact {contact.name!r}: friction")
        return evolve(contact, friction=ca.fmax(mu, 0))

    def _of_unit(self, contact: Contact) -> Contact:
        if not self.unit_parts:
            return contact
        parts = {name: getattr(contact, name) for name in ("gap", "normal", "tangent", "surface_velocity")}
        return evolve(contact, **{n: self.of_unit(ca.SX(e)) for n, e in parts.items() if e is not None})

    def _rates_of_q(self) -> ca.SX:
        """Return q' (n_q,)."""
        n_q, n_v = self.q.shape[0], self.v.shape[0]
        if self.kinematic_matrix is None:
            missing = len(self.unit_parts)
            if n_q == 0 or n_v != n_q - missing:
                less = f" (less one for each of {missing} quaternions)" if missing else ""
                raise self._error(
                    f"q and v need the same positive length{less}, given {n_q} and {n_v}; others need a "
                    "kinematic_matrix."
                )
            return body_rates(self.q, self.v, self.unit_parts)
        if n_q == 0 or self.kinematic_matrix.shape != (n_q, n_v):
            raise self._error(f"kinematic_matrix: expected shape ({n_q}, {n_v}), given {self.kinematic_matrix.shape}.")
        check_free(self.kinematic_matrix, self._symbols("q", "p"), "CLS: kinematic_matrix")
        rate = self.kinematic_matrix @ self.v
        result = ca.SX(rate)
        for part in self.unit_parts:
            # A rate that is not linear in the quaternion is scaled by its length, so that the direction still turns
            # correctly.
            result[part] = scaled_alike(rate[part], self.q, part)
        return result

    def _symbols(self, *groups: str) -> dict[str, ca.SX]:
        """Return symbols by group, without y if the system has none (messages list the groups)."""
        return {name: getattr(self, name) for name in groups if name != "y" or self.y.numel()}

    def _rates_of_y(self, joined: bool) -> ca.SX:
        """Return y' (n_y,), that of time included."""
        rates = ca.vertcat(self.y_rate, 1) if joined else self.y_rate
        if rates.numel() != self.y.numel():
            time = " (the time has its own)" if joined else ""
            raise self._error(
                f"y_rate: expected a rate for each of the {self.y.numel() - joined} first-order states y{time}, given "
                f"{self.y_rate.numel()}."
            )
        return rates

    def _check_mass_matrix(self) -> None:
        mass = self.of_unit(square(self.mass_matrix, "CLS: mass_matrix", self.n_v))
        check_free(mass, self._symbols("q", "y", "p"), "CLS: mass_matrix")
        if mass.is_constant():
            # A matrix that depends on q cannot be checked for all of them: the simulation reports it.
            values = np.array(ca.DM(mass))
            if not np.allclose(values, values.T) or np.linalg.eigvalsh(values).min() <= 0:
                raise self._error("mass_matrix has to be symmetric and positive definite; check its entries.")
        self._set(mass_matrix=mass)

    def _check_contacts(self, contacts: Sequence[Contact]) -> None:
        check = free_of_others(self._symbols("q", "y", "p"))
        of_p = free_of_others({"p": self.p})
        for contact in contacts:
            check(contact.gap, f"contact {contact.name!r}: gap")
            if not ca.depends_on(contact.gap, self.q):
                raise ModelError(f"contact {contact.name!r}: the gap does not depend on q; write it in q.")
            if contact.normal is not None:
                normal = column(contact.normal, f"contact {contact.name!r}: normal", self.n_v)
                check(normal, f"contact {contact.name!r}: normal")
            check(contact.surface_velocity, f"contact {contact.name!r}: surface_velocity")
            self._check_drift(contact)
            spring = () if contact.stiffness is None else (contact.stiffness, contact.damping)
            of_p(ca.vertcat(ca.SX(contact.restitution), *spring), f"contact {contact.name!r}: coefficients")
            free_of_others(self._symbols("q", "v", "y", "p"))(
                ca.SX(ca.vertcat(*contact.friction)), f"contact {contact.name!r}: friction"
            )
            if contact.tangent is not None:
                check(contact.tangent, f"contact {contact.name!r}: tangent")
                self._check_tangent(contact)

    def _check_drift(self, contact: Contact) -> None:
        """Raise `ModelError` if the part of the gap rate beside n'v depends on v or u, or is discontinuous."""
        if not self.y.numel():
            return
        drift = ca.jtimes(contact.gap, self.y, self.y_rate)
        others = [self.q, self.v, self.u, self.p]
        values = [np.ones(symbol.numel()) for symbol in others]
        if self.p_default is not None:
            values[3] = self.p_default
        # A gap rate that jumps by itself would be an impact without an event that announces it. Where faces of a body
        # take turns, the gap has cases that depend on q.
        if jumping_rows(ca.vertcat(drift, contact.surface_velocity), self.y, others, values, apart=self.q):
            raise ModelError(
                f"contact {contact.name!r}: its prescribed motion has a velocity that jumps, as at the corners of a "
                "linear ns.Data; give a smooth motion, such as "
                "ns.Data(times, values, interpolation='cubic')."
            )
        if ca.depends_on(drift, ca.vertcat(self.v, self.u)):
            raise ModelError(
                f"contact {contact.name!r}: the gap depends on a state of y whose rate depends on v or u, so the gap "
                "rate would jump with these; make this state a coordinate of q (with a mass), or let its rate be "
                "another state of y."
            )

    def _check_tangent(self, contact: Contact) -> None:
        what, n_v, shape = f"contact {contact.name!r}: tangent", self.n_v, contact.tangent.shape
        if shape[0] != n_v or shape[1] not in (1, 2):
            hint = "; transpose it: a Jacobian has a row for each direction" if shape[1] == n_v else ""
            raise ModelError(f"{what}: expected shape ({n_v}, 1) or ({n_v}, 2), given {shape}{hint}.")
        # Frames that depend on the state are checked at the initial state (`_check_frames`).
        frame = ca.horzcat(self.normal(contact), contact.tangent)
        if frame.is_constant():
            _check_independent(np.array(ca.DM(frame)), contact.name)

    @cached_property
    def n_q(self) -> int:
        """Number of generalised coordinates."""
        return int(self.q.shape[0])

    @cached_property
    def n_v(self) -> int:
        """Number of generalised velocities."""
        return int(self.v.shape[0])

    @property
    def at_q(self) -> slice:
        """Slice of the coordinates in a state."""
        return slice(self.n_q)

    @property
    def positions(self) -> slice:
        """Slice of the coordinates in a state."""
        return self.at_q

    @property
    def gaps(self) -> ca.SX:
        """Gaps (n,) of the contacts."""
        return self.mechanics.gaps

    @property
    def at_v(self) -> slice:
        """Slice of the velocities in a state."""
        return slice(self.n_q, self.n_q + self.n_v)

    @property
    def at_y(self) -> slice:
        """Slice of the first-order states in a state."""
        return slice(self.n_q + self.n_v, self.x.numel())

    def state_rate(self, acceleration: Any, drift: Any = None) -> ca.SX:
        """Return x' (n_x,) for an acceleration (n_v,), with an additional velocity `drift` (n_v,) of the positions."""
        rate = self.position_rate if drift is None else self.position_rate + self.moved(drift)
        return ca.vertcat(rate, acceleration, self.y_rate)

    @cached_property
    def rate_matrix(self) -> ca.SX:
        """N(q) (n_q, n_v) with q' = N(q) v."""
        return ca.jacobian(self.position_rate, self.v)

    @cached_property
    def moves_by_v(self) -> bool:
        """True if q' = v."""
        return bool(self.n_q == self.n_v and self.rate_matrix.is_eye())

    def along_v(self, expression: ca.SX) -> ca.SX:
        """Return derivatives (m, n_v) of an expression (m,) of q along the velocities: its rate is that times v.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        >>> ball = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, -9.81])
        >>> ball.along_v(q[0] * q[1])
        SX([[q_1, q_0]])
        """
        by_q = ca.jacobian(expression, self.q)
        return by_q if self.moves_by_v else by_q @ self.rate_matrix

    def moved(self, change: Any) -> Any:
        """Return N(q) times a small motion (n_v,) or (n_v, k) along the velocities: the change of the coordinates."""
        return change if self.moves_by_v else self.rate_matrix @ change

    @cached_property
    def mechanics(self) -> ContactMechanics:
        """Expressions and compiled functions of the contacts, built once."""
        return ContactMechanics(self)

    def kinematics(self, x: Any, u: Any = 0.0, p: Any = None) -> Kinematics:
        """Return the gaps, directions of contact forces, mass matrix, forces and Delassus matrix at a state.

        Parameters
        ----------
        x : (n_x,), (m, n_x) or SX (n_x,)
            State; many at once give arrays with a leading axis m.
        u : (n_u,), (m, n_u) or SX, optional
            Control, by default zero; only the forces depend on it.
        p : (n_p,) or SX, optional
            Parameters, by default those of the system.

        Returns
        -------
        Kinematics

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
        >>> ball = ns.CLS(q=q, v=v, mass_matrix=ca.SX(2), force=ca.SX(-19.6), contacts=[ns.Contact("ground", gap=q)])
        >>> float(ball.kinematics([1.0, -3.0]).rates[0])
        -3.0
        """
        return self.mechanics.at(x, u, self.parameters() if p is None else p)

    def normal(self, contact: Contact) -> ca.SX:
        """Return the normal direction of a contact, by default the gradient of its gap (n_q,).

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        >>> ramp = ns.Contact("ramp", gap=q[1] - 0.5 * q[0])
        >>> ball = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, -9.81], contacts=[ramp])
        >>> ball.normal(ramp)
        SX([-0.5, 1])
        """
        if contact.normal is not None:
            return column(contact.normal, "normal", self.n_v)
        # Virtual work: the generalised force of a unit normal force is N' grad gap, as q' = N v.
        return ca.gradient(contact.gap, self.q) if self.moves_by_v else self.along_v(contact.gap).T

    def gap_rate(self, contact: Contact) -> ca.SX:
        """Return the rate of a gap: n'v plus the part that does not depend on v.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        >>> ramp = ns.Contact("ramp", gap=q[1] - 0.5 * q[0])
        >>> ball = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, -9.81], contacts=[ramp])
        >>> motion = ns.simulate(ball, x0=[0, 1, 1, 0], duration=0.1)
        >>> float(motion.value(ball.gap_rate(ramp))[0])
        -0.5
        """
        # The gap may follow time or states of y: a wall that moves.
        return ca.dot(self.normal(contact), self.v) + ca.jtimes(contact.gap, self.y, self.y_rate)

    def slip(self, contact: Contact) -> ca.SX:
        """Return the slip velocity (n_t,) along the user's tangents, relative to the surface.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        >>> belt = ns.Contact("belt", gap=q[1], tangent=[1, 0], friction=0.5, surface_velocity=0.2)
        >>> ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, -9.81], contacts=[belt]).slip(belt)
        SX((v_0-0.2))
        """
        return contact.tangent.T @ self.v - contact.surface_velocity

    def contact_force(self, name: str) -> ca.SX:
        """Return the normal and friction force (1 + n_t,) [N] of a compliant contact, for `solution.value`.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
        >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-10, contacts=[ns.Contact("mat", gap=q, stiffness=1e3)])
        >>> motion = ns.simulate(ball, x0=[-0.01, 0.0], duration=0.1)  # the weight presses the mat by 1 cm
        >>> round(float(motion.value(ball.contact_force("mat"))[-1]), 3)
        10.0
        """
        for contact in self.compliant:
            if contact.name == name:
                more = [friction_force(self, contact)] if contact.frictional else []
                return ca.vertcat(normal_force(self, contact), *more)
        names = tuple(contact.name for contact in self.compliant)
        raise ModelError(unknown_name(name, names, "compliant contact"))

    def moves(self, contact: Contact) -> bool:
        """Return True if the gap or the surface velocity depends on time or on states of y."""
        surface = contact.surface_velocity
        return bool(ca.depends_on(contact.gap, self.y) or not surface.is_zero())

    def parameters(self, p: Any = None, what: str = "p") -> np.ndarray:
        """Return the parameters (n_p,); raise `ModelError` if a contact gets inadmissible coefficients.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, e = (ca.SX.sym(name) for name in "qve")
        >>> ground = ns.Contact("ground", gap=q, restitution=e)
        >>> ball = ns.CLS(q=q, v=v, p=e, mass_matrix=1, force=-9.81, contacts=[ground], p_default=[0.5])
        >>> ball.parameters(), ball.parameters([0.8])
        (array([0.5]), array([0.8]))
        """
        values = super().parameters(p, what)
        # Coefficients that are expressions of p get their values here, so that errors appear where p is given.
        self.mechanics.frames_at(values)
        for contact in self.compliant:
            ends = function_of([self.p], ca.vertcat(ca.SX(contact.stiffness), ca.SX(contact.damping)))(values)
            contact.check_compliance(*np.asarray(ends).reshape(-1).tolist())
        return values

    def check_state(self, x: Any, p: Any = None, *, what: str = "x0", tolerance: float = 1e-8) -> np.ndarray:
        """Return a state as a vector (n_x,) or raise `ModelError` when it is ill-shaped or penetrates a contact.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
        >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q)])
        >>> ball.check_state([1.0, -2.0])
        array([ 1., -2.])
        """
        # Refused if far from length one, which is a mistake; normalised if it has been written with few digits.
        if isinstance(x, Mapping) and self.bilateral is not None:
            x = project(self, x, self.parameters(p), what)
        state = unit_states(check_unit(super().check_state(x, what=what), self, what), self.unit_parts)
        parameters = self.parameters(p)
        state = check_closed(self, state, parameters, what)
        values = self.mechanics.gaps_at(state, parameters)
        for contact, value in zip(self.contacts, values, strict=True):
            # Written with `not` so that NaN is refused.
            if not value >= -tolerance:
                raise ModelError(
                    f"{what} penetrates contact {contact.name!r}: its gap is {value:.6g}, expected >= 0; "
                    f"move the bodies apart, or start from system.project({what})."
                )
        self._check_frames(state, parameters, np.asarray(values).reshape(-1) > tolerance)
        return state

    def project(self, x0: Any, p: Any = None) -> ProjectedState:
        """Return the nearest admissible state: loops and couplings hold, and no contact is penetrated.

        Nearest in the metric of the mass matrix at x0; velocities that the constraints do not allow are removed in the
        same metric, as by an impact. Contacts that are open stay as they are.

        Parameters
        ----------
        x0 : (n_x,), or a mapping
            State. Components that a mapping names are kept, the others follow; without one they are near 0.
        p : (n_p,), optional
            Parameters, by default those of the system.

        Returns
        -------
        ProjectedState (n_x,)
            An array; `moved` has the changes by the names of the states.

        Raises
        ------
        ModelError
            If there is none nearby; names the constraint that does not hold.

        Examples
        --------
        Two wheels on a belt, the second of which is given with three digits only:

        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        >>> wheels = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[1, 0], couplings={"belt": q[0] - 3 * q[1]})
        >>> state = wheels.project([1.0, 0.333, 0.0, 0.0])
        >>> state.round(6).tolist(), {name: round(size, 6) for name, size in state.moved.items()}
        ([0.9999, 0.3333, 0.0, 0.0], {'q_0': -0.0001, 'q_1': 0.0003})
        """
        return project(self, x0, self.parameters(p), "x0")

    def _check_frames(self, x: np.ndarray, p: np.ndarray, is_open: np.ndarray) -> None:
        """Raise `ModelError` if tangents that depend on q are not independent of the normal at the initial state.

        Not of open ones: a link that points straight up cannot change its gap, one with two joints has two directions.
        """
        frictional = [
            (contact, apart) for contact, apart in zip(self.contacts, is_open, strict=True) if contact.frictional
        ]
        ends = np.cumsum([0, *(1 + c.tangent.shape[1] for c, _ in frictional)]).tolist()
        frames = ca.horzsplit(self.mechanics.tangent_frames(x, p), ends)
        for (contact, apart), frame in zip(frictional, map(np.array, frames), strict=True):
            if not apart:
                _check_independent(frame, contact.name, FEWER if self.bilateral is not None else "")

    def __repr__(self) -> str:
        contacts = [("contact", self._of(contact)) for contact in (*self.contacts, *self.compliant)]
        low, high = intervals_by_name(self.limits, self.state_names, "limits")
        limits = [
            f"{low[i]:g} <= {name} <= {high[i]:g}" for i, name in enumerate(self.state_names) if name in self.limits
        ]
        held = [("limits", ", ".join(limits))] if limits else []
        held += [("closed", ", ".join((*self.couplings, *self.loops)))] if self.bilateral is not None else []
        return self._tree(*contacts, *held, size=counted(self.n_q, "coordinate"))

    def _of(self, contact: Contact) -> str:
        """Return a contact as text for the repr."""
        friction = f", friction {', '.join(map(self._coefficient, contact.friction))}" if contact.frictional else ""
        if contact.stiffness is None:
            law = f"restitution {self._coefficient(contact.restitution)}"
        else:
            law = f"stiffness {self._coefficient(contact.stiffness)}, damping {self._coefficient(contact.damping)}"
        return f"{contact.name}: gap {self._shown(contact.gap)}, {law}{friction}"

    def _coefficient(self, value: Any) -> str:
        return f"{value:g}" if isinstance(value, float) else self._shown(value)


def _check_independent(frame: np.ndarray, name: str, more: str = "") -> None:
    """Raise `ModelError` if normal and tangents of a contact are linearly dependent."""
    # Columns of length one, as the rank must not depend on the units of the coordinates.
    sizes = np.linalg.norm(frame, axis=0)
    if (sizes == 0).any() or np.linalg.matrix_rank(frame / sizes, tol=1e-8) < frame.shape[1]:
        raise ModelError(
            f"contact {name!r}: the tangent columns have to be independent of the normal and of each other, given "
            f"normal {frame[:, 0]} and tangent {frame[:, 1:].T.tolist()}.{more}"
        )
