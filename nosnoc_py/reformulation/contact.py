"""Contact mechanics as a DCS with a jump law (FESD-J, Eqs. 13, 14, 17, 18 and A.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import casadi as ca

from nosnoc_py.reformulation.contact_switching import isolations, switch_indicator
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
)
from nosnoc_py.reformulation.friction import CONES, FrictionCone, Law, Slip, cone_of, modes_of, weights
from nosnoc_py.systems.cls import CLS, Contact

ImpulseForm = Literal["product", "sum"]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Options:
    """How contacts are written; see `contact_dcs`."""

    impulse_form: ImpulseForm
    epsilon_c: float
    friction_cone: FrictionCone
    polyhedral_directions: int
    rest_velocity: float


@dataclass(frozen=True, eq=False)
class _Contacts:
    """All contacts of a system stacked: gaps (n_c,), normals (n_q, n_c), labels; and those with friction."""

    gap: ca.SX
    normal: ca.SX
    names: tuple[str, ...]
    restitution: ca.DM
    frictional: tuple[tuple[int, Contact], ...]

    def labels(self, quantity: str) -> tuple[str, ...]:
        return tuple(f"{quantity}[{name}]" for name in self.names)


def _stack(system: CLS) -> _Contacts:
    contacts = system.contacts
    return _Contacts(
        gap=ca.vertcat(ca.SX(0, 1), *[c.gap for c in contacts]),
        normal=ca.horzcat(ca.SX(system.n_q, 0), *[system.normal(c) for c in contacts]),
        names=tuple(c.name for c in contacts),
        restitution=ca.DM([float(c.restitution) for c in contacts]),
        frictional=tuple((i, c) for i, c in enumerate(contacts) if c.frictional),
    )


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
    contacts = _stack(system)
    options = _Options(
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
        lower=0.0,
        scale=system.nominal["force"],
    )
    laws = _stage_laws(system, contacts, force, options)
    total = system.force + contacts.normal @ force
    for (_, contact), law in zip(contacts.frictional, laws, strict=True):
        total += contact.tangent @ law.force
    flow, moving, equations = _motion(system, total, lift_acceleration)
    node = _node(system, contacts, options)
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
        jump=_impact_law(system, contacts, options, node),
        switch_indicator=switch_indicator(contacts.names, modes),
        isolations=isolations(contacts.names, modes) if isolate_forces else (),
        slides=tuple(
            Slide(name=c.name, speed=law.speed, slack=law.slack, velocity=c.tangent.T @ system.v, pair="contact")
            for (_, c), law in zip(contacts.frictional, laws, strict=True)
        ),
        outputs=_outputs("lambda_tangent", contacts, laws),
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
        return ca.vertcat(system.v, ca.solve(system.mass_matrix, total)), (), ()
    acceleration = ca.SX.sym("acceleration", system.n_q)
    labels = tuple(f"acceleration[{name}]" for name in system.names["v"])
    rows = tuple(f"momentum[{name}]" for name in system.names["v"])
    balance = system.mass_matrix @ acceleration - total
    return (
        ca.vertcat(system.v, acceleration),
        (Variable(name="acceleration", symbol=acceleration, components=labels),),
        (Equation(name="momentum", expression=balance, components=rows),),
    )


def _gap_pair(contacts: _Contacts, force: ca.SX) -> Pair:
    """0 <= f_c(q), lambda_n >= 0 (Eq. 13a); the gap is continuous, the force may jump."""
    return Pair(
        name="contact",
        a=contacts.gap,
        b=force,
        a_labels=contacts.labels("gap"),
        b_labels=contacts.labels("lambda_normal"),
        components=contacts.names,
        events=("contact", "release"),
    )


# --- friction ---


def _law(system: CLS, contact: Contact, cone: str, options: _Options, **fields: object) -> Law:
    mu, weight = weights(contact)
    slip = Slip(
        name=contact.name,
        friction=mu,
        weights=weight,
        velocity_scale=float(system.nominal["v"].max()),
        **fields,  # type: ignore[arg-type]
    )
    return CONES[cone](slip, options.polyhedral_directions) if cone == "polyhedral" else CONES[cone](slip)


def _stage_laws(system: CLS, contacts: _Contacts, force: ca.SX, options: _Options) -> tuple[Law, ...]:
    """Friction forces at the RK stages (Eqs. 13b-d, 14)."""
    return tuple(
        _law(
            system,
            contact,
            cone_of(contact, options.friction_cone),
            options,
            velocity=weights(contact)[1] * (contact.tangent.T @ system.v),
            normal=force[i],
            impulsive=False,
            force_scale=float(system.nominal["force"][i]),
        )
        for i, contact in contacts.frictional
    )


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
                    left=None if product.cross == "none" else left.a,
                    b_left=left.b if product.cross == "both" else None,
                    cross=product.cross,
                    split=product.split,
                )
            )
    return tuple(found)


def _coherences(
    contacts: _Contacts, laws: tuple[Law, ...], node_laws: tuple[Law, ...], force: ca.SX
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


def _outputs(quantity: str, contacts: _Contacts, laws: tuple[Law, ...]) -> tuple[Equation, ...]:
    """Friction forces by name, where a cone has other variables."""
    found = []
    for (_, contact), law in zip(contacts.frictional, laws, strict=True):
        name, size = f"{quantity}[{contact.name}]", law.force.numel()
        if name not in [v.name for v in law.variables]:
            labels = (name,) if size == 1 else tuple(f"{name}[{i}]" for i in range(size))
            found.append(Equation(name=name, expression=law.force, components=labels))
    return tuple(found)


def _units(contacts: _Contacts) -> dict[str, str]:
    units = {"lambda_normal": "N", "Lambda_normal": "N s"}
    for _, contact in contacts.frictional:
        units |= {f"lambda_tangent[{contact.name}]": "N", f"Lambda_tangent[{contact.name}]": "N s"}
    return units


# --- gap and gap rate ---


def _with_gap_rate(dcs: DCS, contacts: _Contacts, force: ca.SX, v: ca.SX) -> DCS:
    """q' = v + n tau with tau against the gap, and n'v against the normal force."""
    n_c = len(contacts.names)
    names = ("drift_plus", "drift_minus", "gap_rate_plus", "gap_rate_minus")
    variables = [
        Variable(name=name, symbol=ca.SX.sym(name, n_c), components=contacts.labels(name), lower=0.0) for name in names
    ]
    up, down, opening, closing = (variable.symbol for variable in variables)

    def pair(name: str, a: str, b: str, left: ca.SX, right: ca.SX, **fields: object) -> Pair:
        labels = {"a_labels": contacts.labels(a), "b_labels": contacts.labels(b)}
        return Pair(name=name, a=left, b=right, **labels, **fields)  # type: ignore[arg-type]

    stage = {"cross": "none"}
    drift = contacts.normal @ (up - down)
    rates = contacts.normal.T @ v - opening + closing
    labels = contacts.labels("gap rate")
    return replace(
        dcs,
        flow=dcs.flow + ca.vertcat(drift, ca.SX(dcs.flow.numel() - drift.numel(), 1)),
        variables=(*dcs.variables, *variables),
        equations=(*dcs.equations, Equation(name="gap_rate", expression=rates, components=labels)),
        pairs=(
            *dcs.pairs,
            pair("drift_up", "gap", "drift_plus", contacts.gap, up),
            pair("drift_down", "gap", "drift_minus", contacts.gap, down),
            pair("drift_parts", "drift_plus", "drift_minus", up, down, split=True, **stage),
            pair("opening", "gap_rate_plus", "lambda_normal", opening, force, **stage),
            pair("closing", "gap_rate_minus", "lambda_normal", closing, force, **stage),
            pair("rate_parts", "gap_rate_plus", "gap_rate_minus", opening, closing, split=True, **stage),
        ),
    )


# --- impacts ---


@dataclass(frozen=True, eq=False, kw_only=True)
class _Node:
    """Symbols of the jump law, and the friction laws of the impulses."""

    x_minus: ca.SX
    h: ca.SX
    v_plus: ca.SX
    impulse: ca.SX
    laws: tuple[Law, ...]


def _node(system: CLS, contacts: _Contacts, options: _Options) -> _Node:
    x_minus, v_plus = ca.SX.sym("x_minus", 2 * system.n_q), ca.SX.sym("v_plus", system.n_q)
    impulse = ca.SX.sym("Lambda_normal", len(contacts.names))
    laws = _node_laws(system, contacts, options, x_minus[: system.n_q], v_plus, impulse)
    return _Node(x_minus=x_minus, h=ca.SX.sym("h"), v_plus=v_plus, impulse=impulse, laws=laws)


def _impact_law(system: CLS, contacts: _Contacts, options: _Options, node: _Node) -> JumpLaw:
    """Eq. 17 (form "product") or A.2 (form "sum"), with the inequality (18) and friction.

    "sum" has Lambda against gap + Y+ + Y-. "product" has Lambda against the gap, and 0 = Lambda n'(v+ + e v-) written
    as Lambda against Y+ + Y-, because as an equation it has no gradient where Lambda = 0 and v_n = 0. Both have
    Y+ - Y- = n'(v+ + e v-) and Y+ against Y-; without the last, Y+ and Y- are not unique where Lambda = 0 and an
    interior-point method lets them grow without limit.
    """
    n_q, n_c = system.n_q, len(contacts.names)
    x_minus, h, v_plus, impulse, laws = node.x_minus, node.h, node.v_plus, node.impulse, node.laws
    q, v_minus = x_minus[:n_q], x_minus[n_q:]
    y_plus, y_minus = ca.SX.sym("Y_plus", n_c), ca.SX.sym("Y_minus", n_c)
    mass, gap, normal = (ca.substitute(e, system.q, q) for e in (system.mass_matrix, contacts.gap, contacts.normal))
    approach, rebound = normal.T @ v_minus, normal.T @ v_plus
    restitution = rebound + _restitution(contacts, approach, options.rest_velocity) * approach
    hit = ca.SX.sym("hit", n_c)
    likely = hit * _lone_impulses(contacts, mass, normal, approach)
    v_likely = v_minus + ca.solve(mass, normal @ likely)
    r_likely = ca.substitute(restitution, v_plus, v_likely)
    tangential = ca.SX(n_q, 1)
    for (_, contact), law in zip(contacts.frictional, laws, strict=True):
        tangential += ca.substitute(contact.tangent, system.q, q) @ law.force
    names = tuple(f"{name}(+)" for name in system.names["v"])
    variables = [
        Variable(name="v_plus", symbol=v_plus, components=names, scale=system.nominal["v"], estimate=v_likely),
        _boundary("Lambda_normal", contacts, impulse, likely, impulsive=True),
        _boundary("Y_plus", contacts, y_plus, ca.fmax(0, r_likely)),
        _boundary("Y_minus", contacts, y_minus, ca.fmax(0, -r_likely)),
    ]
    for law in laws:
        variables += [
            replace(v, estimate=None if v.estimate is None else ca.substitute(v.estimate, v_plus, v_likely))
            for v in law.variables
        ]
    momentum = tuple(f"impulse balance[{name}]" for name in system.names["v"])
    balance = mass @ (v_plus - v_minus) - normal @ impulse - tangential
    law_rows = contacts.labels("restitution law")
    # f_c(q) + eps h n'(v+ + e v-) >= 0 instead of (18), f_c(q + eps h v+) >= 0: the same to first order without
    # restitution, and with restitution it excludes roots that leave an impact too slowly, which (17c) admits where
    # several contacts are hit at once.
    guard = gap + options.epsilon_c * h * restitution
    return JumpLaw(
        x_minus=x_minus,
        h=h,
        variables=tuple(variables),
        x_plus=ca.vertcat(q, v_plus),
        equations=(
            Equation(name="impulse_balance", expression=balance, components=momentum),
            Equation(name="restitution", expression=y_plus - y_minus - restitution, components=law_rows),
            *[e for law in laws for e in law.equations],
        ),
        pairs=(
            *_impulse_pairs(contacts, gap, impulse, y_plus, y_minus, options.impulse_form),
            *[pair for law in laws for pair in _node_pairs(law)],
        ),
        inequalities=(
            Equation(name="impact_guard", expression=guard, components=contacts.labels("impact guard")),
            *[e for law in laws for e in law.inequalities],
        ),
        impacts=tuple(
            Impact(name=name, impulse=impulse[i], v_before=approach[i], v_after=rebound[i], pair="contact")
            for i, name in enumerate(contacts.names)
        ),
        hit=hit,
        energy=0.5 * (v_plus - v_minus).T @ mass @ (v_plus + v_minus),
        outputs=_outputs("Lambda_tangent", contacts, laws),
    )


def _restitution(contacts: _Contacts, approach: ca.SX, rest_velocity: float) -> ca.SX:
    """e, and 0 where the approach is slower than the rest velocity: a Zeno sequence ends."""
    if rest_velocity == 0.0:
        return ca.SX(contacts.restitution)
    return ca.if_else(approach < -rest_velocity, ca.SX(contacts.restitution), 0)


def _boundary(name: str, contacts: _Contacts, symbol: ca.SX, estimate: ca.SX, *, impulsive: bool = False) -> Variable:
    return Variable(
        name=name,
        symbol=symbol,
        components=contacts.labels(name),
        lower=0.0,
        estimate=estimate,
        impulsive=impulsive,
    )


def _node_laws(
    system: CLS, contacts: _Contacts, options: _Options, q: ca.SX, v_plus: ca.SX, impulse: ca.SX
) -> tuple[Law, ...]:
    """Friction impulses, opposite to the slip velocity after the jump (Eqs. 17d-f)."""
    return tuple(
        _law(
            system,
            contact,
            cone_of(contact, options.friction_cone),
            options,
            velocity=weights(contact)[1] * (ca.substitute(contact.tangent, system.q, q).T @ v_plus),
            normal=impulse[i],
            impulsive=True,
        )
        for i, contact in contacts.frictional
    )


def _node_pairs(law: Law) -> list[NodePair]:
    """Every component against its partner."""
    return [
        NodePair(
            a=product.a[i],
            b=product.b[i],
            a_labels=(product.a_labels[i],),
            b_labels=(product.b_labels[i],),
            split=product.split,
        )
        for product in law.products
        for i in range(product.a.numel())
    ]


def _impulse_pairs(
    contacts: _Contacts, gap: ca.SX, impulse: ca.SX, y_plus: ca.SX, y_minus: ca.SX, form: ImpulseForm
) -> tuple[NodePair, ...]:
    pairs: list[NodePair] = []
    for i, name in enumerate(contacts.names):
        labels = (f"gap[{name}]", f"Y_plus[{name}]", f"Y_minus[{name}]")
        values = (gap[i], y_plus[i], y_minus[i])
        one = {"b": impulse[i], "b_labels": (f"Lambda_normal[{name}]",)}
        if form == "product":
            pairs.append(NodePair(a=gap[i], a_labels=labels[:1], **one))
            pairs.append(NodePair(a=ca.vertcat(*values[1:]), a_labels=labels[1:], **one))
        else:
            pairs.append(NodePair(a=ca.vertcat(*values), a_labels=labels, **one))
        pairs.append(NodePair(a=y_plus[i], b=y_minus[i], a_labels=labels[1:2], b_labels=labels[2:], split=True))
    return tuple(pairs)


def _lone_impulses(contacts: _Contacts, mass: ca.SX, normal: ca.SX, approach: ca.SX) -> ca.SX:
    """(1 + e) m_eff |v_n| of every approaching contact on its own."""
    effective = [1 / ca.dot(normal[:, i], ca.solve(mass, normal[:, i])) for i in range(len(contacts.names))]
    return (1 + contacts.restitution) * ca.vertcat(ca.SX(0, 1), *effective) * ca.fmax(0, -approach)
