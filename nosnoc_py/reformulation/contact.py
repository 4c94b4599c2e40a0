"""Contact mechanics as a DCS with a jump law (FESD-J, Eqs. 13, 14, 17, 18 and A.2)."""

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
    Coherence,
    Equation,
    Impact,
    JumpLaw,
    NodePair,
    Pair,
    Slide,
    Variable,
    of_each,
)
from nosnoc_py.reformulation.friction import (
    CONES,
    DIRECTIONS,
    FrictionCone,
    FrictionLaw,
    Slip,
    cone_of,
    modes_of,
)
from nosnoc_py.reformulation.switching import CONTACT, isolations, switch_indicator
from nosnoc_py.roles import Role
from nosnoc_py.systems.cls import CLS, Contact


def contact_dcs(system: CLS, options: ContactOptions | None = None, *, running_cost: ca.SX | float = 0) -> DCS:
    """Write a `CLS` as a DCS with a jump law.

    Parameters
    ----------
    system : CLS
    options : ContactOptions, optional
    running_cost : SX scalar

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
    normal_force = Variable.made(
        "lambda_normal", contacts.labels("lambda_normal"), Role.NORMAL_FORCE, lower=0.0, scale=system.nominal["force"]
    )
    force = normal_force.symbol
    laws = friction_laws(system, contacts, options, x=system.x, normal=force, scale=normal_force.scale, impulsive=False)
    total = system.force + contacts.normal @ force
    for (_, contact), law in zip(contacts.frictional, laws, strict=True):
        total += contact.tangent @ law.force
    flow, moving, equations = _motion(system, total, options.lift_acceleration)
    node = node_of(system, contacts, options)
    modes = {
        contact.name: modes_of(contact, options.friction_cone, law)
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
        coherences=_coherences(contacts, laws, node.laws, force),
        jump=impact_law(system, contacts, options, node),
        switch_indicator=switch_indicator(contacts.names, modes),
        isolations=isolations(contacts.names, modes) if options.isolate_forces else (),
        slides=_slides(system, contacts, laws),
        outputs=(*friction_outputs("lambda_tangent", contacts, laws), *_slips(system, contacts)),
        units={**system.units, **_units(contacts)},
    )
    return _with_gap_rate(dcs, system, contacts, force) if options.gap_rate and contacts.names else dcs


def is_curved(system: CLS) -> bool:
    """Whether some contact normal changes along the motion."""
    return any(ca.depends_on(system.normal(contact), ca.vertcat(system.q, system.y)) for contact in system.contacts)


def _motion(
    system: CLS, total: ca.SX, lift_acceleration: bool | None
) -> tuple[ca.SX, tuple[Variable, ...], tuple[Equation, ...]]:
    """Eq. 2, with the acceleration solved for or lifted."""
    lift = not system.mass_matrix.is_constant() if lift_acceleration is None else lift_acceleration
    if not lift:
        return system.state_rate(ca.solve(system.mass_matrix, total)), (), ()
    acceleration = Variable.made("acceleration", of_each("acceleration", system.names["v"]), Role.ACCELERATION)
    balance = system.mass_matrix @ acceleration.symbol - total
    momentum = Equation.of("momentum", Role.MOMENTUM, balance, of_each("momentum", system.names["v"]))
    return system.state_rate(acceleration.symbol), (acceleration,), (momentum,)


def _gap_pair(contacts: StackedContacts, force: ca.SX) -> Pair:
    """0 <= f_c(q), lambda_n >= 0 (Eq. 13a); the gap is continuous, the force may jump."""
    sides = (contacts.labels("gap"), contacts.gap), (contacts.labels("lambda_normal"), force)
    return Pair.between(Role.CONTACT, *sides, name=CONTACT, components=contacts.names, events=("contact", "release"))


# --- friction ---


def _friction_pairs(laws: tuple[FrictionLaw, ...], node_laws: tuple[FrictionLaw, ...]) -> tuple[Pair, ...]:
    """Slip velocities against cone slacks; at the left boundary they are those after the jump (Eqs. 21, 22)."""
    return tuple(
        replace(pair, left=None if pair.cross == "none" else left.a, b_left=left.b if pair.cross == "both" else None)
        for law, node in zip(laws, node_laws, strict=True)
        for pair, left in zip(law.products, node.products, strict=True)
    )


def _slides(system: CLS, contacts: StackedContacts, laws: tuple[FrictionLaw, ...]) -> tuple[Slide, ...]:
    return tuple(
        Slide(
            name=contact.name,
            speed=law.speed,
            slack=law.slack,
            velocity=system.slip(contact),
            pair=CONTACT,
            component=i,
        )
        for (i, contact), law in zip(contacts.frictional, laws, strict=True)
    )


def _coherences(
    contacts: StackedContacts, laws: tuple[FrictionLaw, ...], node_laws: tuple[FrictionLaw, ...], force: ca.SX
) -> tuple[Coherence, ...]:
    return tuple(
        Coherence(
            name=f"coherence[{contact.name}]",
            direction=law.direction,
            weight=force[i],
            left=node.speed * node.direction,
        )
        for (i, contact), law, node in zip(contacts.frictional, laws, node_laws, strict=True)
        if law.direction is not None and node.direction is not None
    )


def _slips(system: CLS, contacts: StackedContacts) -> tuple[Equation, ...]:
    """Slip velocities J_t'v by name, in the user's directions."""
    slips = {f"slip[{contact.name}]": system.slip(contact) for _, contact in contacts.frictional}
    return tuple(Equation.of(name, Role.SLIP_VELOCITY, velocity) for name, velocity in slips.items())


def _units(contacts: StackedContacts) -> dict[str, str]:
    units = {"lambda_normal": "N", "Lambda_normal": "N s"}
    rubbing = {"lambda_tangent": "N", "Lambda_tangent": "N s", "slip": "m/s"}
    return units | {f"{what}[{c.name}]": unit for _, c in contacts.frictional for what, unit in rubbing.items()}


# --- gap and gap rate ---


def drift(names: Sequence[str], gaps: ca.SX) -> tuple[tuple[Variable, Variable], tuple[Pair, Pair, Pair]]:
    """Parts of a drift tau of the positions along the normals: each against the gap, and one against the other."""
    up, down = (
        Variable.made(name, of_each(name, names), role, lower=0.0)
        for name, role in (("drift_plus", Role.DRIFT_PLUS), ("drift_minus", Role.DRIFT_MINUS))
    )
    plus, minus = ((part.components, part.symbol) for part in (up, down))
    held = of_each("gap", names), gaps
    pairs = (
        Pair.between(Role.DRIFT, held, plus, name="drift_up", faint=True),
        Pair.between(Role.DRIFT, held, minus, name="drift_down", faint=True),
        Pair.between(Role.DRIFT_PARTS, plus, minus, name="drift_parts", split=True, cross="none"),
    )
    return (up, down), pairs


def _with_gap_rate(dcs: DCS, system: CLS, contacts: StackedContacts, force: ca.SX) -> DCS:
    """q' = N (v + n tau) with tau against the gap, and n'v against tau and the normal force.

    Without the last tau could hold a body on the surface that moves away from it.
    """
    drifts, pairs = drift(contacts.names, contacts.gap)
    rates = [
        Variable.made(name, contacts.labels(name), role, lower=0.0)
        for name, role in (("gap_rate_plus", Role.GAP_RATE_PLUS), ("gap_rate_minus", Role.GAP_RATE_MINUS))
    ]
    (up, down), (opening, closing) = ([part.symbol for part in parts] for parts in (drifts, rates))
    along = system.moved(contacts.normal @ (up - down))
    rest = system.mechanics.gap_rates - opening + closing
    size = contacts.labels("gap_rate_size"), opening + closing
    holding = contacts.labels("holding"), force + up + down
    parts = [(rate.components, rate.symbol) for rate in rates]
    return replace(
        dcs,
        flow=dcs.flow + ca.vertcat(along, ca.SX(dcs.flow.numel() - along.numel(), 1)),
        variables=(*dcs.variables, *drifts, *rates),
        equations=(*dcs.equations, Equation.of("gap_rate", Role.GAP_RATE, rest, contacts.labels("gap rate"))),
        pairs=(
            *dcs.pairs,
            *pairs,
            Pair.between(Role.HOLDING, size, holding, name="held", cross="none"),
            Pair.between(Role.GAP_RATE_PARTS, *parts, name="rate_parts", split=True, cross="none"),
        ),
    )


ImpulseForm = Literal["sum", "product"]


class ContactOptions(Options):
    """How contacts are written.

    Parameters
    ----------
    impulse_form : {"sum", "product"}
        Appendix A.2 or Eq. 17.
    friction_cone : {"auto", "box", "polar", "polyhedral", "paper"}
        See `friction`; "auto" takes the box in the plane and the polar cone in space.
    cone_directions : int
        Of the polyhedral cone in space: 4, 8 or 16, say.
    gap_rate : bool, optional
        In persistent contact demand gap = 0 and n'v = 0, with q' = N (v + n tau) (Gear-Gupta-Leimkuhler): keeps the
        order where gaps are curved.
    isolate_forces : bool
        A force that is continuous at a node fixes the time of stick to slip and of release: see
        `switching.isolations`.
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
    """All contacts of a system stacked: gaps (n_c,), normals (n_v, n_c), labels; and those with friction."""

    gap: ca.SX
    normal: ca.SX
    names: tuple[str, ...]
    restitution: ca.SX
    frictional: tuple[tuple[int, Contact], ...]

    def labels(self, quantity: str) -> tuple[str, ...]:
        """One label per contact."""
        return of_each(quantity, self.names)


def stack_contacts(system: CLS) -> StackedContacts:
    """All contacts of a system."""
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
    """Friction of all contacts that have it, at a state under normal multipliers (n_c,) of typical size `scale` (n_c,).

    Forces at the RK stages (Eqs. 13b-d, 14), or impulses that oppose the slip velocity after the jump (Eqs. 17d-f).
    """
    laws = []
    for i, contact in contacts.frictional:
        mu, weight = contact.cone
        slip = Slip(
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
        laws.append(CONES[cone_of(contact, options.friction_cone)](slip))
    return tuple(laws)


def friction_outputs(quantity: str, contacts: StackedContacts, laws: tuple[FrictionLaw, ...]) -> tuple[Equation, ...]:
    """Friction forces by name, where a cone has other variables."""
    return tuple(
        Equation.of(f"{quantity}[{contact.name}]", Role.TANGENTIAL_FORCE, law.force)
        for (_, contact), law in zip(contacts.frictional, laws, strict=True)
        if all(v.role is not Role.TANGENTIAL_FORCE for v in law.variables)
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class JumpSymbols:
    """Symbols of the jump law, and the friction laws of the impulses."""

    x_minus: ca.SX
    h: ca.SX
    v_plus: Variable
    impulse: Variable
    laws: tuple[FrictionLaw, ...]


def node_of(system: CLS, contacts: StackedContacts, options: ContactOptions) -> JumpSymbols:
    """Make the symbols of the jump law, and the friction laws of the impulses."""
    x_minus, names = ca.SX.sym("x_minus", system.x.numel()), tuple(f"{name}(+)" for name in system.names["v"])
    v_plus = Variable.made("v_plus", names, Role.VELOCITY_AFTER, scale=system.nominal["v"])
    labels = contacts.labels("Lambda_normal")
    impulse = Variable.made("Lambda_normal", labels, Role.NORMAL_IMPULSE, lower=0.0, impulsive=True)
    after = _with_velocity(system, x_minus, v_plus.symbol)
    at = {"x": after, "normal": impulse.symbol, "scale": np.ones(len(labels))}
    laws = friction_laws(system, contacts, options, **at, impulsive=True)
    return JumpSymbols(x_minus=x_minus, h=ca.SX.sym("h"), v_plus=v_plus, impulse=impulse, laws=laws)


def _with_velocity(system: CLS, x: ca.SX, v: ca.SX) -> ca.SX:
    """A state with another velocity."""
    return ca.vertcat(x[: system.n_q], v, x[system.at_y])


def impact_law(system: CLS, contacts: StackedContacts, options: ContactOptions, node: JumpSymbols) -> JumpLaw:
    """Eq. 17 (form "product") or A.2 (form "sum"), with the inequality (18) and friction.

    "sum" has Lambda against gap + Y+ + Y-. "product" has Lambda against the gap, and 0 = Lambda r written as Lambda
    against Y+ + Y-, because as an equation it has no gradient where Lambda = 0 and v_n = 0. Both have Y+ - Y- = r and
    Y+ against Y-; without the last, Y+ and Y- are not unique where Lambda = 0 and an interior-point method lets them
    grow without limit. Here r = gamma+ + e min(gamma-, 0), see `nosnoc_py.contact_problems.law`: the paper's
    n'(v+ + e v-), but for closed contacts that separate, which only the first node can have.
    """
    n_c = len(contacts.names)
    x_minus, h, v_plus, impulse, laws = node.x_minus, node.h, node.v_plus.symbol, node.impulse.symbol, node.laws
    v_minus = x_minus[system.at_v]
    at = system.kinematics(x_minus, system.u, system.p)
    mass, gap, normal = at.mass, at.gaps, at.jacobian[:n_c, :].T
    approach, after = at.rates[:n_c], at.rates_of(v_plus)[:n_c]
    slowest = at.slowest(options.rest_velocity or 0.0)
    restitution = after - rebound(approach, contacts.restitution, slowest)
    # Inside of the horizon a closed contact never separates at a left limit: its gap was positive before, or zero.
    # There e gamma- is e min(gamma-, 0), and has no kink where the gap rate of a body in flight changes its sign,
    # which interior-point methods do not pass well. With a rest velocity there is a jump anyway.
    smooth = restitution if options.rest_velocity else after + contacts.restitution * approach
    hit = ca.SX.sym("hit", n_c)
    likely = hit * _lone_impulses(contacts, mass, normal, approach)
    v_likely = v_minus + ca.solve(mass, normal @ likely)
    r_likely = ca.substitute(restitution, v_plus, v_likely)
    tangential = ca.SX(system.n_v, 1)
    for (_, contact), law in zip(contacts.frictional, laws, strict=True):
        tangential += ca.substitute(contact.tangent, system.x, x_minus) @ law.force
    rebounds = [
        Variable.made(name, contacts.labels(name), role, lower=0.0, estimate=ca.fmax(0, part))
        for name, role, part in (("Y_plus", Role.REBOUND_PLUS, r_likely), ("Y_minus", Role.REBOUND_MINUS, -r_likely))
    ]
    y_plus, y_minus = (variable.symbol for variable in rebounds)
    rubbing = [
        replace(v, estimate=None if v.estimate is None else ca.substitute(v.estimate, v_plus, v_likely))
        for law in laws
        for v in law.variables
    ]
    motion = replace(node.v_plus, estimate=v_likely), replace(node.impulse, estimate=likely)
    momentum = of_each("impulse balance", system.names["v"])
    balance = mass @ (v_plus - v_minus) - normal @ impulse - tangential
    # f_c(q) + eps h r >= 0 instead of (18), f_c(q + eps h v+) >= 0: the same to first order without
    # restitution, and with restitution it excludes roots that leave an impact too slowly, which (17c) admits where
    # several contacts are hit at once.
    guard, smooth_guard = (gap + options.epsilon_c * h * rate for rate in (restitution, smooth))
    return JumpLaw(
        x_minus=x_minus,
        h=h,
        variables=(*motion, *rebounds, *rubbing),
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
        energy=0.5 * (v_plus - v_minus).T @ mass @ (v_plus + v_minus),
        outputs=friction_outputs("Lambda_tangent", contacts, laws),
    )


def _node_pairs(law: FrictionLaw) -> list[NodePair]:
    """Every component against its partner."""
    return [
        NodePair.between(
            pair.role, (pair.a_labels[i : i + 1], pair.a[i]), (pair.b_labels[i : i + 1], pair.b[i]), split=pair.split
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
        parts = {Role.IMPACT: slice(0, 1), Role.IMPACT_VELOCITY: slice(1, 3)}
        for role, rows in parts.items() if form == "product" else [(Role.IMPACT, slice(0, 3))]:
            pairs.append(NodePair.between(role, (labels[rows], ca.vertcat(*values[rows])), pressed, of=name))
        rebounds = (labels[1:2], values[1]), (labels[2:], values[2])
        pairs.append(NodePair.between(Role.REBOUND_PARTS, *rebounds, of=name, split=True))
    return tuple(pairs)


def _lone_impulses(contacts: StackedContacts, mass: ca.SX, normal: ca.SX, approach: ca.SX) -> ca.SX:
    """(1 + e) m_eff |v_n| of every approaching contact on its own."""
    effective = [1 / ca.dot(normal[:, i], ca.solve(mass, normal[:, i])) for i in range(len(contacts.names))]
    return (1 + contacts.restitution) * ca.vertcat(ca.SX(0, 1), *effective) * ca.fmax(0, -approach)
