"""Contact mechanics as a DCS with a jump law (FESD-J, Eqs. 13, 14, 17, 18 and A.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import casadi as ca

from nosnoc_py.reformulation.dcs import DCS, Coherence, Equation, Pair, Slide, Variable, of_each
from nosnoc_py.reformulation.friction import Law, modes_of
from nosnoc_py.reformulation.impact import (
    ContactOptions,
    Contacts,
    friction_laws,
    friction_outputs,
    impact_law,
    node_of,
    stack_contacts,
)
from nosnoc_py.reformulation.switching import CONTACT, isolations, switch_indicator
from nosnoc_py.roles import Role
from nosnoc_py.systems.cls import CLS


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
    laws = friction_laws(
        system, contacts, options, q=system.q, v=system.v, normal=force, scale=normal_force.scale, impulsive=False
    )
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
    return _with_gap_rate(dcs, contacts, force, system.v) if options.gap_rate and contacts.names else dcs


def is_curved(system: CLS) -> bool:
    """Whether some contact normal changes along the motion."""
    return any(ca.depends_on(system.normal(contact), system.q) for contact in system.contacts)


def _motion(
    system: CLS, total: ca.SX, lift_acceleration: bool | None
) -> tuple[ca.SX, tuple[Variable, ...], tuple[Equation, ...]]:
    """Eq. 2, with the acceleration solved for or lifted."""
    lift = not system.mass_matrix.is_constant() if lift_acceleration is None else lift_acceleration
    if not lift:
        return ca.vertcat(system.position_rate, ca.solve(system.mass_matrix, total)), (), ()
    acceleration = Variable.made("acceleration", of_each("acceleration", system.names["v"]), Role.ACCELERATION)
    balance = system.mass_matrix @ acceleration.symbol - total
    momentum = Equation.of("momentum", Role.MOMENTUM, balance, of_each("momentum", system.names["v"]))
    return ca.vertcat(system.position_rate, acceleration.symbol), (acceleration,), (momentum,)


def _gap_pair(contacts: Contacts, force: ca.SX) -> Pair:
    """0 <= f_c(q), lambda_n >= 0 (Eq. 13a); the gap is continuous, the force may jump."""
    sides = (contacts.labels("gap"), contacts.gap), (contacts.labels("lambda_normal"), force)
    return Pair.of(CONTACT, Role.CONTACT, *sides, components=contacts.names, events=("contact", "release"))


# --- friction ---


def _friction_pairs(laws: tuple[Law, ...], node_laws: tuple[Law, ...]) -> tuple[Pair, ...]:
    """Slip velocities against cone slacks; at the left boundary they are those after the jump (Eqs. 21, 22)."""
    return tuple(
        replace(pair, left=None if pair.cross == "none" else left.a, b_left=left.b if pair.cross == "both" else None)
        for law, node in zip(laws, node_laws, strict=True)
        for pair, left in zip(law.products, node.products, strict=True)
    )


def _slides(system: CLS, contacts: Contacts, laws: tuple[Law, ...]) -> tuple[Slide, ...]:
    return tuple(
        Slide(
            name=contact.name,
            speed=law.speed,
            slack=law.slack,
            velocity=contact.tangent.T @ system.v,
            pair=CONTACT,
            component=i,
        )
        for (i, contact), law in zip(contacts.frictional, laws, strict=True)
    )


def _coherences(
    contacts: Contacts, laws: tuple[Law, ...], node_laws: tuple[Law, ...], force: ca.SX
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


def _slips(system: CLS, contacts: Contacts) -> tuple[Equation, ...]:
    """Slip velocities J_t'v by name, in the user's directions."""
    slips = {f"slip[{contact.name}]": contact.tangent.T @ system.v for _, contact in contacts.frictional}
    return tuple(Equation.of(name, Role.SLIP_VELOCITY, velocity) for name, velocity in slips.items())


def _units(contacts: Contacts) -> dict[str, str]:
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
        Pair.of("drift_up", Role.DRIFT, held, plus, faint=True),
        Pair.of("drift_down", Role.DRIFT, held, minus, faint=True),
        Pair.of("drift_parts", Role.DRIFT_PARTS, plus, minus, split=True, cross="none"),
    )
    return (up, down), pairs


def _with_gap_rate(dcs: DCS, contacts: Contacts, force: ca.SX, v: ca.SX) -> DCS:
    """q' = v + n tau with tau against the gap, and n'v against tau and the normal force.

    Without the last tau could hold a body on the surface that moves away from it.
    """
    drifts, pairs = drift(contacts.names, contacts.gap)
    rates = [
        Variable.made(name, contacts.labels(name), role, lower=0.0)
        for name, role in (("gap_rate_plus", Role.GAP_RATE_PLUS), ("gap_rate_minus", Role.GAP_RATE_MINUS))
    ]
    (up, down), (opening, closing) = ([part.symbol for part in parts] for parts in (drifts, rates))
    along = contacts.normal @ (up - down)
    rest = contacts.normal.T @ v - opening + closing
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
            Pair.of("held", Role.HOLDING, size, holding, cross="none"),
            Pair.of("rate_parts", Role.GAP_RATE_PARTS, *parts, split=True, cross="none"),
        ),
    )
