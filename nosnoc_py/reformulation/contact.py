"""Contact mechanics as a DCS with a jump law (FESD-J, Eqs. 13, 14, 17, 18 and A.2)."""

from __future__ import annotations

from dataclasses import replace

import casadi as ca

from nosnoc_py.reformulation.contact_switching import CONTACT, isolations, switch_indicator
from nosnoc_py.reformulation.dcs import DCS, Coherence, Equation, Pair, Slide, Variable
from nosnoc_py.reformulation.friction import FrictionCone, Law, modes_of
from nosnoc_py.reformulation.impact import (
    ContactOptions,
    Contacts,
    ImpulseForm,
    friction_laws,
    friction_outputs,
    impact_law,
    node_of,
    stack_contacts,
)
from nosnoc_py.roles import Role
from nosnoc_py.systems.cls import CLS


def contact_dcs(
    system: CLS,
    *,
    running_cost: ca.SX | float = 0,
    impulse_form: ImpulseForm = "sum",
    friction_cone: FrictionCone = "auto",
    polyhedral_directions: int = 8,
    gap_rate: bool = False,
    isolate_forces: bool = True,
    rest_velocity: float = 0.0,
    lift_acceleration: bool | None = None,
    epsilon_c: float = 1e-3,
) -> DCS:
    """Write a `CLS` as a DCS with a jump law.

    Parameters
    ----------
    system : CLS
    running_cost : SX scalar
    impulse_form : {"sum", "product"}
        Appendix A.2 or Eq. 17.
    friction_cone : {"auto", "box", "polar", "polyhedral", "paper"}
        See `friction`; "auto" takes the box in the plane and the polar cone in space.
    polyhedral_directions : int
    gap_rate : bool
        In persistent contact demand gap = 0 and n'v = 0, with q' = v + n tau (Gear-Gupta-Leimkuhler): keeps the order
        where gaps are curved.
    isolate_forces : bool
        A force that is continuous at a node fixes the time of stick to slip and of release: see
        `contact_switching.isolations`.
    rest_velocity : float
        Impacts slower than this are inelastic [m/s].
    lift_acceleration : bool, optional
        Make the acceleration an algebraic variable with M(q) a = f_v + sum n lambda (Section 2.2), so that M is never
        inverted. Default: only when M depends on q.
    epsilon_c : float
        Fraction of an element in the regularising inequality (Eq. 18).

    Returns
    -------
    DCS

    Raises
    ------
    OptionError
        If the friction cone does not fit a contact.
    """
    contacts = stack_contacts(system)
    options = ContactOptions(
        impulse_form=impulse_form,
        epsilon_c=epsilon_c,
        friction_cone=friction_cone,
        polyhedral_directions=polyhedral_directions,
        rest_velocity=rest_velocity,
    )
    force = ca.SX.sym("lambda_normal", len(contacts.names))
    normal_force = Variable(
        name="lambda_normal",
        symbol=force,
        components=contacts.labels("lambda_normal"),
        role=Role.NORMAL_FORCE,
        lower=0.0,
        scale=system.nominal["force"],
    )
    laws = friction_laws(
        system,
        contacts,
        options,
        q=system.q,
        v=system.v,
        normal=force,
        scale=system.nominal["force"],
        impulsive=False,
    )
    total = system.force + contacts.normal @ force
    for (_, contact), law in zip(contacts.frictional, laws, strict=True):
        total += contact.tangent @ law.force
    flow, moving, equations = _motion(system, total, lift_acceleration)
    node = node_of(system, contacts, options)
    modes = {
        contact.name: modes_of(contact, options.friction_cone, law)
        for (_, contact), law in zip(contacts.frictional, laws, strict=True)
    }
    dcs = DCS(
        x=system.x,
        u=system.u,
        p=system.p,
        x_names=system.state_names,
        u_names=system.control_names,
        p_names=system.parameter_names,
        x_scale=system.x_nominal,
        u_scale=system.u_nominal,
        variables=(normal_force, *[v for law in laws for v in law.variables], *moving),
        flow=flow,
        running_cost=ca.SX(running_cost),
        equations=(*equations, *[e for law in laws for e in law.equations]),
        inequalities=tuple(e for law in laws for e in law.inequalities),
        pairs=(_gap_pair(contacts, force), *_friction_pairs(laws, node.laws)),
        coherences=_coherences(contacts, laws, node.laws, force),
        jump=impact_law(system, contacts, options, node),
        switch_indicator=switch_indicator(contacts.names, modes),
        isolations=isolations(contacts.names, modes) if isolate_forces else (),
        slides=tuple(
            Slide(
                name=c.name,
                speed=law.speed,
                slack=law.slack,
                velocity=c.tangent.T @ system.v,
                pair=CONTACT,
                component=i,
            )
            for (i, c), law in zip(contacts.frictional, laws, strict=True)
        ),
        outputs=(*friction_outputs("lambda_tangent", contacts, laws), *_slips(system, contacts)),
        units={**system.units, **_units(contacts)},
    )
    return _with_gap_rate(dcs, contacts, force, system.v) if gap_rate and contacts.names else dcs


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
    acceleration = ca.SX.sym("acceleration", system.n_q)
    labels = tuple(f"acceleration[{name}]" for name in system.names["v"])
    rows = tuple(f"momentum[{name}]" for name in system.names["v"])
    balance = system.mass_matrix @ acceleration - total
    return (
        ca.vertcat(system.position_rate, acceleration),
        (Variable(name="acceleration", symbol=acceleration, components=labels, role=Role.ACCELERATION),),
        (Equation(name="momentum", expression=balance, components=rows, role=Role.MOMENTUM),),
    )


def _gap_pair(contacts: Contacts, force: ca.SX) -> Pair:
    """0 <= f_c(q), lambda_n >= 0 (Eq. 13a); the gap is continuous, the force may jump."""
    return Pair(
        name=CONTACT,
        a=contacts.gap,
        b=force,
        a_labels=contacts.labels("gap"),
        b_labels=contacts.labels("lambda_normal"),
        role=Role.CONTACT,
        components=contacts.names,
        events=("contact", "release"),
    )


# --- friction ---


def _friction_pairs(laws: tuple[Law, ...], node_laws: tuple[Law, ...]) -> tuple[Pair, ...]:
    """Slip velocities against cone slacks; at the left boundary they are those after the jump (Eqs. 21, 22)."""
    found = []
    for law, node in zip(laws, node_laws, strict=True):
        for product, left in zip(law.products, node.products, strict=True):
            found.append(
                Pair(
                    name=product.name,
                    a=product.a,
                    b=product.b,
                    a_labels=product.a_labels,
                    b_labels=product.b_labels,
                    role=product.role,
                    left=None if product.cross == "none" else left.a,
                    b_left=left.b if product.cross == "both" else None,
                    cross=product.cross,
                    split=product.split,
                )
            )
    return tuple(found)


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
    found = []
    for _, contact in contacts.frictional:
        velocity, name = contact.tangent.T @ system.v, f"slip[{contact.name}]"
        labels = (name,) if velocity.numel() == 1 else tuple(f"{name}[{i}]" for i in range(velocity.numel()))
        found.append(Equation(name=name, expression=velocity, components=labels, role=Role.SLIP_VELOCITY))
    return tuple(found)


def _units(contacts: Contacts) -> dict[str, str]:
    units = {"lambda_normal": "N", "Lambda_normal": "N s"}
    for _, contact in contacts.frictional:
        units |= {f"lambda_tangent[{contact.name}]": "N", f"Lambda_tangent[{contact.name}]": "N s"}
        units[f"slip[{contact.name}]"] = "m/s"
    return units


# --- gap and gap rate ---


def _with_gap_rate(dcs: DCS, contacts: Contacts, force: ca.SX, v: ca.SX) -> DCS:
    """q' = v + n tau with tau against the gap, and n'v against tau and the normal force.

    Without the last tau could hold a body on the surface that moves away from it.
    """
    n_c = len(contacts.names)
    parts = {
        "drift_plus": Role.DRIFT_PLUS,
        "drift_minus": Role.DRIFT_MINUS,
        "gap_rate_plus": Role.GAP_RATE_PLUS,
        "gap_rate_minus": Role.GAP_RATE_MINUS,
    }
    variables = [
        Variable(name=name, symbol=ca.SX.sym(name, n_c), components=contacts.labels(name), role=role, lower=0.0)
        for name, role in parts.items()
    ]
    up, down, opening, closing = (variable.symbol for variable in variables)

    def pair(name: str, role: Role, a: str, b: str, left: ca.SX, right: ca.SX, **fields: object) -> Pair:
        labels = {"a_labels": contacts.labels(a), "b_labels": contacts.labels(b)}
        return Pair(name=name, role=role, a=left, b=right, **labels, **fields)  # type: ignore[arg-type]

    stage = {"cross": "none"}
    drift = contacts.normal @ (up - down)
    rates = contacts.normal.T @ v - opening + closing
    labels = contacts.labels("gap rate")
    return replace(
        dcs,
        flow=dcs.flow + ca.vertcat(drift, ca.SX(dcs.flow.numel() - drift.numel(), 1)),
        variables=(*dcs.variables, *variables),
        equations=(
            *dcs.equations,
            Equation(name="gap_rate", expression=rates, components=labels, role=Role.GAP_RATE),
        ),
        pairs=(
            *dcs.pairs,
            pair("drift_up", Role.DRIFT, "gap", "drift_plus", contacts.gap, up, faint=True),
            pair("drift_down", Role.DRIFT, "gap", "drift_minus", contacts.gap, down, faint=True),
            pair("drift_parts", Role.DRIFT_PARTS, "drift_plus", "drift_minus", up, down, split=True, **stage),
            pair("held", Role.HOLDING, "gap_rate_size", "holding", opening + closing, force + up + down, **stage),
            pair(
                "rate_parts",
                Role.GAP_RATE_PARTS,
                "gap_rate_plus",
                "gap_rate_minus",
                opening,
                closing,
                split=True,
                **stage,
            ),
        ),
    )
