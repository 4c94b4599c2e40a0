"""Contacts at a node: impacts in complementarity form, with friction (FESD-J, Eqs. 11, 17, 18 and A.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import casadi as ca
import numpy as np

from nosnoc_py.contacts.law import rebound
from nosnoc_py.reformulation.contact_switching import CONTACT
from nosnoc_py.reformulation.dcs import Equation, Impact, JumpLaw, NodePair, Variable
from nosnoc_py.reformulation.friction import CONES, FrictionCone, Law, Slip, cone_of, weights
from nosnoc_py.roles import Role
from nosnoc_py.systems.cls import CLS, Contact

ImpulseForm = Literal["product", "sum"]


@dataclass(frozen=True, eq=False, kw_only=True)
class ContactOptions:
    """How contacts are written; see `contact_dcs`."""

    impulse_form: ImpulseForm
    epsilon_c: float
    friction_cone: FrictionCone
    polyhedral_directions: int
    rest_velocity: float


@dataclass(frozen=True, eq=False)
class Contacts:
    """All contacts of a system stacked: gaps (n_c,), normals (n_q, n_c), labels; and those with friction."""

    gap: ca.SX
    normal: ca.SX
    names: tuple[str, ...]
    restitution: ca.DM
    frictional: tuple[tuple[int, Contact], ...]

    def labels(self, quantity: str) -> tuple[str, ...]:
        """One label per contact."""
        return tuple(f"{quantity}[{name}]" for name in self.names)


def stack_contacts(system: CLS) -> Contacts:
    """All contacts of a system."""
    contacts = system.contacts
    return Contacts(
        gap=system.mechanics.gaps,
        normal=system.mechanics.normals,
        names=tuple(c.name for c in contacts),
        restitution=ca.DM(system.mechanics.frames.restitution),
        frictional=tuple((i, c) for i, c in enumerate(contacts) if c.frictional),
    )


def friction_laws(
    system: CLS,
    contacts: Contacts,
    options: ContactOptions,
    *,
    q: ca.SX,
    v: ca.SX,
    normal: ca.SX,
    scale: np.ndarray,
    impulsive: bool,
) -> tuple[Law, ...]:
    """Friction of all contacts that have it, at (q, v) under normal multipliers (n_c,) of typical size `scale` (n_c,).

    Forces at the RK stages (Eqs. 13b-d, 14), or impulses that oppose the slip velocity after the jump (Eqs. 17d-f).
    """
    laws = []
    for i, contact in contacts.frictional:
        mu, weight = weights(contact)
        slip = Slip(
            name=contact.name,
            velocity=weight * (ca.substitute(contact.tangent, system.q, q).T @ v),
            normal=normal[i],
            friction=mu,
            weights=weight,
            impulsive=impulsive,
            velocity_scale=float(system.nominal["v"].max()),
            force_scale=float(scale[i]),
        )
        cone = cone_of(contact, options.friction_cone)
        laws.append(CONES[cone](slip, options.polyhedral_directions) if cone == "polyhedral" else CONES[cone](slip))
    return tuple(laws)


def friction_outputs(quantity: str, contacts: Contacts, laws: tuple[Law, ...]) -> tuple[Equation, ...]:
    """Friction forces by name, where a cone has other variables."""
    found = []
    for (_, contact), law in zip(contacts.frictional, laws, strict=True):
        name, size = f"{quantity}[{contact.name}]", law.force.numel()
        if all(v.role is not Role.TANGENTIAL_FORCE for v in law.variables):
            labels = (name,) if size == 1 else tuple(f"{name}[{i}]" for i in range(size))
            found.append(Equation(name=name, expression=law.force, components=labels, role=Role.TANGENTIAL_FORCE))
    return tuple(found)


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """Symbols of the jump law, and the friction laws of the impulses."""

    x_minus: ca.SX
    h: ca.SX
    v_plus: ca.SX
    impulse: ca.SX
    laws: tuple[Law, ...]


def node_of(system: CLS, contacts: Contacts, options: ContactOptions) -> Node:
    """Make the symbols of the jump law, and the friction laws of the impulses."""
    x_minus, v_plus = ca.SX.sym("x_minus", 2 * system.n_q), ca.SX.sym("v_plus", system.n_q)
    impulse = ca.SX.sym("Lambda_normal", len(contacts.names))
    laws = friction_laws(
        system,
        contacts,
        options,
        q=x_minus[: system.n_q],
        v=v_plus,
        normal=impulse,
        scale=np.ones(len(contacts.names)),
        impulsive=True,
    )
    return Node(x_minus=x_minus, h=ca.SX.sym("h"), v_plus=v_plus, impulse=impulse, laws=laws)


def impact_law(system: CLS, contacts: Contacts, options: ContactOptions, node: Node) -> JumpLaw:
    """Eq. 17 (form "product") or A.2 (form "sum"), with the inequality (18) and friction.

    "sum" has Lambda against gap + Y+ + Y-. "product" has Lambda against the gap, and 0 = Lambda r written as Lambda
    against Y+ + Y-, because as an equation it has no gradient where Lambda = 0 and v_n = 0. Both have Y+ - Y- = r and
    Y+ against Y-; without the last, Y+ and Y- are not unique where Lambda = 0 and an interior-point method lets them
    grow without limit. Here r = gamma+ + e min(gamma-, 0), see `nosnoc_py.contacts.law`: the paper's n'(v+ + e v-), but
    for closed contacts that separate, which only the first node can have.
    """
    n_q, n_c = system.n_q, len(contacts.names)
    x_minus, h, v_plus, impulse, laws = node.x_minus, node.h, node.v_plus, node.impulse, node.laws
    q, v_minus = x_minus[:n_q], x_minus[n_q:]
    y_plus, y_minus = ca.SX.sym("Y_plus", n_c), ca.SX.sym("Y_minus", n_c)
    at = system.kinematics(x_minus, system.u, system.p)
    mass, gap, normal = at.mass, at.gaps, at.jacobian[:n_c, :].T
    approach, after = normal.T @ v_minus, normal.T @ v_plus
    slowest = at.slowest(options.rest_velocity)
    restitution = after - rebound(approach, contacts.restitution, slowest)
    # Inside of the horizon a closed contact never separates at a left limit: its gap was positive before, or zero.
    # There e gamma- is e min(gamma-, 0), and has no kink where the gap rate of a body in flight changes its sign,
    # which interior-point methods do not pass well. With a rest velocity there is a jump anyway.
    smooth = restitution if options.rest_velocity else after + contacts.restitution * approach
    hit = ca.SX.sym("hit", n_c)
    likely = hit * _lone_impulses(contacts, mass, normal, approach)
    v_likely = v_minus + ca.solve(mass, normal @ likely)
    r_likely = ca.substitute(restitution, v_plus, v_likely)
    tangential = ca.SX(n_q, 1)
    for (_, contact), law in zip(contacts.frictional, laws, strict=True):
        tangential += ca.substitute(contact.tangent, system.q, q) @ law.force
    names = tuple(f"{name}(+)" for name in system.names["v"])
    variables = [
        Variable(
            name="v_plus",
            symbol=v_plus,
            components=names,
            role=Role.VELOCITY_AFTER,
            scale=system.nominal["v"],
            estimate=v_likely,
        ),
        _boundary("Lambda_normal", Role.NORMAL_IMPULSE, contacts, impulse, likely, impulsive=True),
        _boundary("Y_plus", Role.REBOUND_PLUS, contacts, y_plus, ca.fmax(0, r_likely)),
        _boundary("Y_minus", Role.REBOUND_MINUS, contacts, y_minus, ca.fmax(0, -r_likely)),
    ]
    for law in laws:
        variables += [
            replace(v, estimate=None if v.estimate is None else ca.substitute(v.estimate, v_plus, v_likely))
            for v in law.variables
        ]
    momentum = tuple(f"impulse balance[{name}]" for name in system.names["v"])
    balance = mass @ (v_plus - v_minus) - normal @ impulse - tangential
    law_rows = contacts.labels("restitution law")
    # f_c(q) + eps h r >= 0 instead of (18), f_c(q + eps h v+) >= 0: the same to first order without
    # restitution, and with restitution it excludes roots that leave an impact too slowly, which (17c) admits where
    # several contacts are hit at once.
    guard, smooth_guard = (gap + options.epsilon_c * h * rate for rate in (restitution, smooth))
    return JumpLaw(
        x_minus=x_minus,
        h=h,
        variables=tuple(variables),
        x_plus=ca.vertcat(q, v_plus),
        equations=(
            Equation(name="impulse_balance", expression=balance, components=momentum, role=Role.IMPULSE_BALANCE),
            Equation(
                name="restitution",
                expression=y_plus - y_minus - restitution,
                components=law_rows,
                role=Role.RESTITUTION,
            ),
            *[e for law in laws for e in law.equations],
        ),
        pairs=(
            *_impulse_pairs(contacts, gap, impulse, y_plus, y_minus, options.impulse_form),
            *[pair for law in laws for pair in _node_pairs(law)],
        ),
        inequalities=(
            Equation(
                name="impact_guard",
                expression=guard,
                components=contacts.labels("impact guard"),
                role=Role.IMPACT_GUARD,
            ),
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


def _boundary(
    name: str, role: Role, contacts: Contacts, symbol: ca.SX, estimate: ca.SX, *, impulsive: bool = False
) -> Variable:
    return Variable(
        name=name,
        symbol=symbol,
        components=contacts.labels(name),
        role=role,
        lower=0.0,
        estimate=estimate,
        impulsive=impulsive,
    )


def _node_pairs(law: Law) -> list[NodePair]:
    """Every component against its partner."""
    return [
        NodePair(
            a=product.a[i],
            b=product.b[i],
            a_labels=(product.a_labels[i],),
            b_labels=(product.b_labels[i],),
            role=product.role,
            split=product.split,
        )
        for product in law.products
        for i in range(product.a.numel())
    ]


def _impulse_pairs(
    contacts: Contacts, gap: ca.SX, impulse: ca.SX, y_plus: ca.SX, y_minus: ca.SX, form: ImpulseForm
) -> tuple[NodePair, ...]:
    pairs: list[NodePair] = []
    for i, name in enumerate(contacts.names):
        labels = (f"gap[{name}]", f"Y_plus[{name}]", f"Y_minus[{name}]")
        values = (gap[i], y_plus[i], y_minus[i])
        one = {"b": impulse[i], "b_labels": (f"Lambda_normal[{name}]",), "of": name}
        if form == "product":
            pairs.append(NodePair(role=Role.IMPACT, a=gap[i], a_labels=labels[:1], **one))
            pairs.append(NodePair(role=Role.IMPACT_VELOCITY, a=ca.vertcat(*values[1:]), a_labels=labels[1:], **one))
        else:
            pairs.append(NodePair(role=Role.IMPACT, a=ca.vertcat(*values), a_labels=labels, **one))
        pairs.append(
            NodePair(
                a=y_plus[i],
                b=y_minus[i],
                a_labels=labels[1:2],
                b_labels=labels[2:],
                role=Role.REBOUND_PARTS,
                of=name,
                split=True,
            )
        )
    return tuple(pairs)


def _lone_impulses(contacts: Contacts, mass: ca.SX, normal: ca.SX, approach: ca.SX) -> ca.SX:
    """(1 + e) m_eff |v_n| of every approaching contact on its own."""
    effective = [1 / ca.dot(normal[:, i], ca.solve(mass, normal[:, i])) for i in range(len(contacts.names))]
    return (1 + contacts.restitution) * ca.vertcat(ca.SX(0, 1), *effective) * ca.fmax(0, -approach)
