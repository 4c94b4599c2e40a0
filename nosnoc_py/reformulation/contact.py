"""Contact mechanics as a DCS with a jump law (FESD-J, Eqs. 13, 14, 17, 18 and A.2).

Between impacts: M(q) v' = f_v + n lambda_n + B lambda_t with 0 <= f_c(q) perp lambda_n >= 0 and a friction law of
`friction`. At a node the velocity may jump: M (v+ - v-) = n Lambda_n + B Lambda_t with Newton's law of restitution and
the friction law in impulses (Moreau 1988).

- `contact_dcs` assembles the DCS, `impact_law` its jump law.
- The published impact equations (17), (18) are changed where they admit wrong roots or have singular gradients; each
  change is explained at its line in `impact_law`.
- With the option `gap_rate` persistent contact is stabilised on velocity level (Gear, Gupta, Leimkuhler 1985):
  q' = v + n tau with gap = 0 and n'v = 0. Without it curved contacts lose an order of convergence.
- Switch times that complementarities leave open are fixed by `switching.contact_switch_conditions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import casadi as ca
import numpy as np
from pydantic import Field

from nosnoc_py.contact_problems.law import rebound
from nosnoc_py.options import Options
from nosnoc_py.reformulation.dcs import (
    DCS,
    DirectionConsistency,
    Equation,
    Impact,
    JumpLaw,
    NodePair,
    Pair,
    SlipIndicator,
    Variable,
    of_each,
)
from nosnoc_py.reformulation.friction import (
    CONES,
    DIRECTIONS,
    FrictionCone,
    FrictionLaw,
    SlipQuantities,
    friction_indicators,
    resolve_cone,
)
from nosnoc_py.reformulation.switching import CONTACT, contact_switch_conditions, switch_indicator
from nosnoc_py.roles import Role
from nosnoc_py.systems.cls import CLS, Contact


def contact_dcs(system: CLS, options: ContactOptions | None = None, *, running_cost: ca.SX | float = 0) -> DCS:
    """Write a `CLS` as a DCS with a jump law.

    Parameters
    ----------
    system : CLS
    options : ContactOptions, optional
    running_cost : SX scalar
        Integrand of the cost, in x, u and p.

    Returns
    -------
    DCS

    Raises
    ------
    OptionError
        If the friction cone does not fit a contact.
    """
    options = ContactOptions() if options is None else options
    contacts = stack_contacts(system)
    normal_force = Variable.create(
        "lambda_normal", contacts.labels("lambda_normal"), Role.NORMAL_FORCE, lower=0.0, scale=system.nominal["force"]
    )
    force = normal_force.symbol
    # Friction first: its variables are the forces in the equations of motion.
    laws = friction_laws(system, contacts, options, x=system.x, normal=force, scale=normal_force.scale, impulsive=False)
    total = system.force + contacts.normal @ force
    for (_, contact), law in zip(contacts.frictional, laws, strict=True):
        total += contact.tangent @ law.force
    flow, moving, equations = _motion(system, total, options.lift_acceleration)
    # The friction laws of the impulses come before the pairs, because these need the slip after the jump (`Pair.left`).
    node = jump_symbols(system, contacts, options)
    modes = {
        contact.name: friction_indicators(contact, options.friction_cone, law)
        for (_, contact), law in zip(contacts.frictional, laws, strict=True)
    }
    dcs = DCS.of(
        system,
        running_cost,
        variables=(normal_force, *[v for law in laws for v in law.variables], *moving),
        flow=flow,
        equations=(*equations, *[e for law in laws for e in law.equations]),
        inequalities=tuple(e for law in laws for e in law.inequalities),
        pairs=(_gap_pair(contacts, force), *_friction_pairs(laws, node.laws)),
        direction_consistencies=_direction_consistencies(contacts, laws, node.laws, force),
        jump=impact_law(system, contacts, options, node),
        switch_indicator=switch_indicator(contacts.names, modes),
        switch_conditions=contact_switch_conditions(contacts.names, modes) if options.isolate_forces else (),
        slip_indicators=_slip_indicators(system, contacts, laws),
        outputs=(*friction_outputs("lambda_tangent", contacts, laws), *_slip_outputs(system, contacts)),
        units={**system.units, **_units(contacts)},
    )
    return _with_gap_rate(dcs, system, contacts, force) if options.gap_rate and contacts.names else dcs


def is_curved(system: CLS) -> bool:
    """Return True if a contact normal depends on the state."""
    return any(ca.depends_on(system.normal(contact), ca.vertcat(system.q, system.y)) for contact in system.contacts)


def _motion(
    system: CLS, total: ca.SX, lift_acceleration: bool | None
) -> tuple[ca.SX, tuple[Variable, ...], tuple[Equation, ...]]:
    """Return state derivative, variables and equations of Eq. 2.

    The acceleration is solved for, or lifted: then it is an algebraic variable with M a = total, and M(q) is never
    inverted symbolically, which would make the expressions of a robot very large.
    """
    lift = not system.mass_matrix.is_constant() if lift_acceleration is None else lift_acceleration
    if not lift:
        return system.state_rate(ca.solve(system.mass_matrix, total)), (), ()
    acceleration = Variable.create("acceleration", of_each("acceleration", system.names["v"]), Role.ACCELERATION)
    balance = system.mass_matrix @ acceleration.symbol - total
    momentum = Equation.of("momentum", Role.MOMENTUM, balance, of_each("momentum", system.names["v"]))
    return system.state_rate(acceleration.symbol), (acceleration,), (momentum,)


def _gap_pair(contacts: StackedContacts, force: ca.SX) -> Pair:
    """Return the pair 0 <= f_c(q) perp lambda_n >= 0 (Eq. 13a); the gap is continuous, the force may jump."""
    sides = (contacts.labels("gap"), contacts.gap), (contacts.labels("lambda_normal"), force)
    return Pair.between(Role.CONTACT, *sides, name=CONTACT, components=contacts.names, events=("contact", "release"))


# --- friction ---


def _friction_pairs(laws: tuple[FrictionLaw, ...], node_laws: tuple[FrictionLaw, ...]) -> tuple[Pair, ...]:
    """Return the pairs of slip velocities and cone slacks (Eqs. 21, 22).

    Slip velocities jump at impacts: at the left boundary of an element they have the value after the jump, which the
    friction law of the impulses uses, too.
    """
    # Stage pair and node pair of one law have the same order, because one function creates both.
    return tuple(
        # A pair without cross products needs no value at the left boundary: it locates no switch.
        replace(pair, left=None if pair.cross == "none" else left.a, b_left=left.b if pair.cross == "both" else None)
        for law, node in zip(laws, node_laws, strict=True)
        for pair, left in zip(law.products, node.products, strict=True)
    )


def _slip_indicators(
    system: CLS, contacts: StackedContacts, laws: tuple[FrictionLaw, ...]
) -> tuple[SlipIndicator, ...]:
    return tuple(
        SlipIndicator(
            name=contact.name,
            speed=law.speed,
            slack=law.slack,
            velocity=system.slip(contact),
            pair=CONTACT,
            component=i,
        )
        for (i, contact), law in zip(contacts.frictional, laws, strict=True)
    )


def _direction_consistencies(
    contacts: StackedContacts, laws: tuple[FrictionLaw, ...], node_laws: tuple[FrictionLaw, ...], force: ca.SX
) -> tuple[DirectionConsistency, ...]:
    return tuple(
        DirectionConsistency(
            name=f"direction_consistency[{contact.name}]",
            direction=law.direction,
            weight=force[i],  # an open contact has no direction
            left=node.speed * node.direction,  # zero at rest, where the direction after the node is free
        )
        for (i, contact), law, node in zip(contacts.frictional, laws, node_laws, strict=True)
        if law.direction is not None and node.direction is not None
    )


def _slip_outputs(system: CLS, contacts: StackedContacts) -> tuple[Equation, ...]:
    """Return the slip velocities J_t'v by name, in the user's tangent directions."""
    slips = {f"slip[{contact.name}]": system.slip(contact) for _, contact in contacts.frictional}
    return tuple(Equation.of(name, Role.SLIP_VELOCITY, velocity) for name, velocity in slips.items())


def _units(contacts: StackedContacts) -> dict[str, str]:
    units = {"lambda_normal": "N", "Lambda_normal": "N s"}
    friction = {"lambda_tangent": "N", "Lambda_tangent": "N s", "slip": "m/s"}
    return units | {f"{what}[{c.name}]": unit for _, c in contacts.frictional for what, unit in friction.items()}


# --- gap and gap rate ---


def drift_parts(names: Sequence[str], gaps: ca.SX) -> tuple[tuple[Variable, Variable], tuple[Pair, Pair, Pair]]:
    """Return the parts of the multipliers tau of the gap in q' = v + n tau, and their pairs.

    tau = tau+ - tau- acts only in contact: both parts are complementary to the gap, and to each other.
    """
    up, down = (
        Variable.create(name, of_each(name, names), role, lower=0.0)
        for name, role in (("drift_plus", Role.DRIFT_PLUS), ("drift_minus", Role.DRIFT_MINUS))
    )
    plus, minus = ((part.components, part.symbol) for part in (up, down))
    held = of_each("gap", names), gaps
    pairs = (
        Pair.between(Role.DRIFT, held, plus, name="drift_up", small_side=True),
        Pair.between(Role.DRIFT, held, minus, name="drift_down", small_side=True),
        Pair.between(Role.DRIFT_PARTS, plus, minus, name="drift_parts", difference_only=True, cross="none"),
    )
    return (up, down), pairs


def _with_gap_rate(dcs: DCS, system: CLS, contacts: StackedContacts, force: ca.SX) -> DCS:
    """Add q' = N (v + n tau), tau complementary to the gap, and n'v complementary to tau and the normal force.

    Without the last pair tau could hold a body on the surface while its velocity points away from it.
    """
    # tau is of the order of the discretisation error, hence the pairs with a small side.
    drifts, pairs = drift_parts(contacts.names, contacts.gap)
    rates = [
        Variable.create(name, contacts.labels(name), role, lower=0.0)
        for name, role in (("gap_rate_plus", Role.GAP_RATE_PLUS), ("gap_rate_minus", Role.GAP_RATE_MINUS))
    ]
    (up, down), (opening, closing) = ([part.symbol for part in parts] for parts in (drifts, rates))
    along = system.moved(contacts.normal @ (up - down))
    rest = system.mechanics.gap_rates - opening + closing
    # |n'v| is the sum of its two parts, which are complementary. One pair imposes n'v = 0 while a force or tau acts.
    size = contacts.labels("gap_rate_size"), opening + closing
    holding = contacts.labels("holding"), force + up + down
    parts = [(rate.components, rate.symbol) for rate in rates]
    return replace(
        dcs,
        # Only positions are moved by tau, which is no force.
        flow=dcs.flow + ca.vertcat(along, ca.SX(dcs.flow.numel() - along.numel(), 1)),
        variables=(*dcs.variables, *drifts, *rates),
        equations=(*dcs.equations, Equation.of("gap_rate", Role.GAP_RATE, rest, contacts.labels("gap rate"))),
        pairs=(
            *dcs.pairs,
            *pairs,
            Pair.between(Role.HOLDING, size, holding, name="held", cross="none"),
            Pair.between(Role.GAP_RATE_PARTS, *parts, name="rate_parts", difference_only=True, cross="none"),
        ),
    )


ImpulseForm = Literal["sum", "product"]


class ContactOptions(Options):
    """Options for the equations of contacts.

    Parameters
    ----------
    impulse_form : {"sum", "product"}
        Impact equations of Appendix A.2 or of Eq. 17.
    friction_cone : {"auto", "box", "polar", "polyhedral", "paper"}
        Friction law, see `friction`; "auto" takes the box in the plane and the polar cone in space.
    cone_directions : int
        Number of directions of the polyhedral cone in space, even.
    gap_rate : bool, optional
        In persistent contact impose gap = 0 and n'v = 0, with q' = N (v + n tau) (Gear, Gupta, Leimkuhler 1985): keeps
        the order of convergence on curved contacts.
    isolate_forces : bool
        Fix the time of stick to slip and of release by the continuity of forces, see
        `switching.contact_switch_conditions`.
    rest_velocity : float, optional
        Impacts slower than this are inelastic [m/s].
    lift_acceleration : bool, optional
        Make the acceleration an algebraic variable with M(q) a = f_v + sum n lambda (Section 2.2), so that M is never
        inverted. Default: only when M depends on q.
    epsilon_c : float
        Fraction of an element in the regularising inequality (Eq. 18).
    """

    impulse_form: ImpulseForm = "sum"
    friction_cone: FrictionCone = "auto"
    cone_directions: int = Field(default=DIRECTIONS, ge=4, multiple_of=2)
    gap_rate: bool | None = None
    isolate_forces: bool = True
    rest_velocity: float | None = Field(default=None, ge=0)
    lift_acceleration: bool | None = None
    epsilon_c: float = Field(default=1e-3, gt=0, le=0.1)


@dataclass(frozen=True, eq=False)
class StackedContacts:
    """All contacts of a system, stacked.

    Attributes
    ----------
    gap : SX (n_c,)
    normal : SX (n_v, n_c)
        Generalised normals n = J_n.
    names : tuple of str
    restitution : SX (n_c,)
    frictional : tuple of (int, Contact)
        Contacts with friction and their rows.
    """

    gap: ca.SX
    normal: ca.SX
    names: tuple[str, ...]
    restitution: ca.SX
    frictional: tuple[tuple[int, Contact], ...]

    def labels(self, quantity: str) -> tuple[str, ...]:
        """Return one label per contact."""
        return of_each(quantity, self.names)


def stack_contacts(system: CLS) -> StackedContacts:
    """Stack the contacts of a system."""
    contacts = system.contacts
    return StackedContacts(
        gap=system.mechanics.gaps,
        normal=system.mechanics.normals,
        names=tuple(c.name for c in contacts),
        restitution=ca.SX(system.mechanics.frames.restitution),
        frictional=tuple((i, c) for i, c in enumerate(contacts) if c.frictional),
    )


def friction_laws(
    system: CLS,
    contacts: StackedContacts,
    options: ContactOptions,
    *,
    x: ca.SX,
    normal: ca.SX,
    scale: np.ndarray,
    impulsive: bool,
) -> tuple[FrictionLaw, ...]:
    """Return the friction laws of all contacts with friction.

    The multipliers are forces at the RK stages (Eqs. 13b-d, 14), or impulses that oppose the slip velocity after the
    jump (Eqs. 17d-f).

    Parameters
    ----------
    x : SX (n_x,)
        State at which the slip velocity is taken.
    normal : SX (n_c,)
        Normal multipliers.
    scale : (n_c,)
        Their typical sizes.
    """
    laws = []
    for i, contact in contacts.frictional:
        mu, weight = contact.cone
        slip = SlipQuantities(
            name=contact.name,
            velocity=weight * ca.substitute(system.slip(contact), system.x, x),
            normal=normal[i],
            friction=mu,
            weights=weight,
            impulsive=impulsive,
            velocity_scale=float(system.nominal["v"].max()),
            force_scale=float(scale[i]),
            directions=options.cone_directions,
        )
        laws.append(CONES[resolve_cone(contact, options.friction_cone)](slip))
    return tuple(laws)


def friction_outputs(quantity: str, contacts: StackedContacts, laws: tuple[FrictionLaw, ...]) -> tuple[Equation, ...]:
    """Return the friction forces as outputs, for cones in which they are no variables."""
    return tuple(
        Equation.of(f"{quantity}[{contact.name}]", Role.TANGENTIAL_FORCE, law.force)
        for (_, contact), law in zip(contacts.frictional, laws, strict=True)
        if all(v.role is not Role.TANGENTIAL_FORCE for v in law.variables)
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class JumpSymbols:
    """Symbols of the jump law with the friction laws of the impulses."""

    x_minus: ca.SX
    h: ca.SX
    v_plus: Variable
    impulse: Variable
    laws: tuple[FrictionLaw, ...]


def jump_symbols(system: CLS, contacts: StackedContacts, options: ContactOptions) -> JumpSymbols:
    """Create the symbols of the jump law and the friction laws of the impulses."""
    x_minus, names = ca.SX.sym("x_minus", system.x.numel()), tuple(f"{name}(+)" for name in system.names["v"])
    # v+ is a variable, not an expression of the impulses: M(q) is then not inverted in every row of the jump law.
    v_plus = Variable.create("v_plus", names, Role.VELOCITY_AFTER, scale=system.nominal["v"])
    labels = contacts.labels("Lambda_normal")
    # Impulsive: fixed to zero at a first node without an impact.
    impulse = Variable.create("Lambda_normal", labels, Role.NORMAL_IMPULSE, lower=0.0, impulsive=True)
    after = _with_velocity(system, x_minus, v_plus.symbol)  # positions do not jump
    # No typical impulse is known before the simulation, hence 1.
    at = {"x": after, "normal": impulse.symbol, "scale": np.ones(len(labels))}
    laws = friction_laws(system, contacts, options, **at, impulsive=True)
    return JumpSymbols(x_minus=x_minus, h=ca.SX.sym("h"), v_plus=v_plus, impulse=impulse, laws=laws)


def _with_velocity(system: CLS, x: ca.SX, v: ca.SX) -> ca.SX:
    """Return a state with its velocity replaced."""
    return ca.vertcat(x[: system.n_q], v, x[system.at_y])


def impact_law(system: CLS, contacts: StackedContacts, options: ContactOptions, node: JumpSymbols) -> JumpLaw:
    """Return the jump law: Eq. 17 (form "product") or A.2 (form "sum"), with the inequality (18) and friction.

    The residual of restitution is r = gamma+ + e min(gamma-, 0) with the gap rates gamma- and gamma+ before and after,
    see `nosnoc_py.contact_problems.law`. It is the paper's n'(v+ + e v-) except for closed contacts that separate,
    which only the first node can have. It is written as Y+ - Y- = r, 0 <= Y+ perp Y- >= 0.

    - "sum" (A.2): 0 <= Lambda perp gap + Y+ + Y- >= 0.
    - "product" (17): 0 <= Lambda perp gap >= 0, and 0 = Lambda r written as Lambda perp Y+ + Y-. As an equation it has
      no gradient where Lambda = 0 and r = 0, which is the case in every persistent contact.

    Without Y+ perp Y- the two would not be unique where Lambda = 0, and an interior-point method would let them grow
    without limit.
    """
    n_c = len(contacts.names)
    x_minus, h, v_plus, impulse, laws = node.x_minus, node.h, node.v_plus.symbol, node.impulse.symbol, node.laws
    v_minus = x_minus[system.at_v]
    at = system.kinematics(x_minus, system.u, system.p)
    mass, gap, normal = at.mass, at.gaps, at.jacobian[:n_c, :].T
    approach, after = at.rates[:n_c], at.rates_of(v_plus)[:n_c]
    slowest = at.slowest(options.rest_velocity or 0.0)
    restitution = after - rebound(approach, contacts.restitution, slowest)
    # A closed contact cannot separate at a left limit inside the horizon, because its gap was nonnegative before. There
    # e gamma- equals e min(gamma-, 0), without the kink where the gap rate of a body in flight changes its sign:
    # interior-point methods do not pass that kink well. With a rest velocity the law has a jump anyway.
    smooth = restitution if options.rest_velocity else after + contacts.restitution * approach
    hit = ca.SX.sym("hit", n_c)
    # Estimates of all boundary variables follow from the expected impulses, each contact on its own and frictionless.
    impulse_guess = hit * _single_impulses(contacts, mass, normal, approach)
    v_guess = v_minus + ca.solve(mass, normal @ impulse_guess)
    r_guess = ca.substitute(restitution, v_plus, v_guess)
    tangential = ca.SX(system.n_v, 1)
    # Tangents are expressions of the state: at a node of its left limit.
    for (_, contact), law in zip(contacts.frictional, laws, strict=True):
        tangential += ca.substitute(contact.tangent, system.x, x_minus) @ law.force
    rebounds = [
        Variable.create(name, contacts.labels(name), role, lower=0.0, estimate=ca.fmax(0, part))
        for name, role, part in (("Y_plus", Role.REBOUND_PLUS, r_guess), ("Y_minus", Role.REBOUND_MINUS, -r_guess))
    ]
    y_plus, y_minus = (variable.symbol for variable in rebounds)
    friction = [
        replace(v, estimate=None if v.estimate is None else ca.substitute(v.estimate, v_plus, v_guess))
        for law in laws
        for v in law.variables
    ]
    motion = replace(node.v_plus, estimate=v_guess), replace(node.impulse, estimate=impulse_guess)
    # FESD-J, Eq. 17a; multiplied by M, which is cheaper than its inverse.
    momentum = of_each("impulse balance", system.names["v"])
    balance = mass @ (v_plus - v_minus) - normal @ impulse - tangential
    # f_c(q) + eps h r >= 0 in place of (18), f_c(q + eps h v+) >= 0. Both agree to first order without restitution.
    # With restitution it also excludes roots of (17c) that leave an impact too slowly if several contacts are hit at
    # once.
    guard, smooth_guard = (gap + options.epsilon_c * h * rate for rate in (restitution, smooth))
    return JumpLaw(
        x_minus=x_minus,
        h=h,
        variables=(*motion, *rebounds, *friction),
        x_plus=_with_velocity(system, x_minus, v_plus),
        equations=(
            Equation.of("impulse_balance", Role.IMPULSE_BALANCE, balance, momentum),
            Equation.of(
                "restitution", Role.RESTITUTION, y_plus - y_minus - restitution, contacts.labels("restitution law")
            ),
            *[e for law in laws for e in law.equations],
        ),
        pairs=(
            *_impulse_pairs(contacts, gap, impulse, y_plus, y_minus, options.impulse_form),
            *[pair for law in laws for pair in _node_pairs(law)],
        ),
        inequalities=(
            Equation.of("impact_guard", Role.IMPACT_GUARD, guard, contacts.labels("impact guard")),
            *[e for law in laws for e in law.inequalities],
        ),
        inner={Role.RESTITUTION: y_plus - y_minus - smooth, Role.IMPACT_GUARD: smooth_guard},
        impacts=tuple(
            Impact(name=name, impulse=impulse[i], v_before=approach[i], v_after=after[i], pair=CONTACT, component=i)
            for i, name in enumerate(contacts.names)
        ),
        hit=hit,
        energy=0.5 * (v_plus - v_minus).T @ mass @ (v_plus + v_minus),  # T(v+) - T(v-) without cancellation
        outputs=friction_outputs("Lambda_tangent", contacts, laws),
    )


def _node_pairs(law: FrictionLaw) -> list[NodePair]:
    """Return one pair per component: at a node there are no cross products."""
    return [
        NodePair.between(
            pair.role,
            (pair.a_labels[i : i + 1], pair.a[i]),
            (pair.b_labels[i : i + 1], pair.b[i]),
            difference_only=pair.difference_only,
        )
        for pair in law.products
        for i in range(pair.a.numel())
    ]


def _impulse_pairs(
    contacts: StackedContacts, gap: ca.SX, impulse: ca.SX, y_plus: ca.SX, y_minus: ca.SX, form: ImpulseForm
) -> tuple[NodePair, ...]:
    pairs: list[NodePair] = []
    for i, name in enumerate(contacts.names):
        labels: tuple[str, ...] = (f"gap[{name}]", f"Y_plus[{name}]", f"Y_minus[{name}]")
        values = (gap[i], y_plus[i], y_minus[i])
        pressed = (f"Lambda_normal[{name}]",), impulse[i]
        # "product" needs two pairs with the impulse, "sum" one: their sides are added up at a node (`NodePair`).
        parts = {Role.IMPACT: slice(0, 1), Role.IMPACT_VELOCITY: slice(1, 3)}
        for role, rows in parts.items() if form == "product" else [(Role.IMPACT, slice(0, 3))]:
            pairs.append(NodePair.between(role, (labels[rows], ca.vertcat(*values[rows])), pressed, of=name))
        # Y+ perp Y-: without it both could grow together where the impulse is zero.
        rebounds = (labels[1:2], values[1]), (labels[2:], values[2])
        pairs.append(NodePair.between(Role.REBOUND_PARTS, *rebounds, of=name, difference_only=True))
    return tuple(pairs)


def _single_impulses(contacts: StackedContacts, mass: ca.SX, normal: ca.SX, approach: ca.SX) -> ca.SX:
    """Return (1 + e) m_eff |v_n| of every approaching contact, as if it were the only one."""
    effective = [1 / ca.dot(normal[:, i], ca.solve(mass, normal[:, i])) for i in range(len(contacts.names))]
    return (1 + contacts.restitution) * ca.vertcat(ca.SX(0, 1), *effective) * ca.fmax(0, -approach)
