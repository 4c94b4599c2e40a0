"""Contacts at a node: impacts in complementarity form, with friction (FESD-J, Eqs. 11, 17, 18 and A.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import casadi as ca
import numpy as np

from nosnoc_py.contacts.law import rebound
from nosnoc_py.reformulation.dcs import Equation, Impact, JumpLaw, NodePair, Variable, of_each
from nosnoc_py.reformulation.friction import CONES, FrictionCone, Law, Slip, cone_of, weights
from nosnoc_py.reformulation.switching import CONTACT
from nosnoc_py.roles import Role
from nosnoc_py.systems.cls import CLS, Contact

ImpulseForm = Literal["product", "sum"]


@dataclass(frozen=True, eq=False, kw_only=True)
class ContactOptions:
    """How contacts are written.

    Attributes
    ----------
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
        `switching.isolations`.
    rest_velocity : float
        Impacts slower than this are inelastic [m/s].
    lift_acceleration : bool, optional
        Make the acceleration an algebraic variable with M(q) a = f_v + sum n lambda (Section 2.2), so that M is never
        inverted. Default: only when M depends on q.
    epsilon_c : float
        Fraction of an element in the regularising inequality (Eq. 18).
    """

    impulse_form: ImpulseForm = "sum"
    friction_cone: FrictionCone = "auto"
    polyhedral_directions: int = 8
    gap_rate: bool = False
    isolate_forces: bool = True
    rest_velocity: float = 0.0
    lift_acceleration: bool | None = None
    epsilon_c: float = 1e-3


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
        return of_each(quantity, self.names)


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
    return tuple(
        Equation.of(f"{quantity}[{contact.name}]", Role.TANGENTIAL_FORCE, law.force)
        for (_, contact), law in zip(contacts.frictional, laws, strict=True)
        if all(v.role is not Role.TANGENTIAL_FORCE for v in law.variables)
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """Symbols of the jump law, and the friction laws of the impulses."""

    x_minus: ca.SX
    h: ca.SX
    v_plus: Variable
    impulse: Variable
    laws: tuple[Law, ...]


def node_of(system: CLS, contacts: Contacts, options: ContactOptions) -> Node:
    """Make the symbols of the jump law, and the friction laws of the impulses."""
    x_minus, names = ca.SX.sym("x_minus", 2 * system.n_q), tuple(f"{name}(+)" for name in system.names["v"])
    v_plus = Variable.made("v_plus", names, Role.VELOCITY_AFTER, scale=system.nominal["v"])
    labels = contacts.labels("Lambda_normal")
    impulse = Variable.made("Lambda_normal", labels, Role.NORMAL_IMPULSE, lower=0.0, impulsive=True)
    at = {"q": x_minus[: system.n_q], "v": v_plus.symbol, "normal": impulse.symbol, "scale": np.ones(len(labels))}
    laws = friction_laws(system, contacts, options, **at, impulsive=True)
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
    x_minus, h, v_plus, impulse, laws = node.x_minus, node.h, node.v_plus.symbol, node.impulse.symbol, node.laws
    q, v_minus = x_minus[:n_q], x_minus[n_q:]
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
        x_plus=ca.vertcat(q, v_plus),
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


def _node_pairs(law: Law) -> list[NodePair]:
    """Every component against its partner."""
    return [
        NodePair.between(
            pair.role, (pair.a_labels[i : i + 1], pair.a[i]), (pair.b_labels[i : i + 1], pair.b[i]), split=pair.split
        )
        for pair in law.products
        for i in range(pair.a.numel())
    ]


def _impulse_pairs(
    contacts: Contacts, gap: ca.SX, impulse: ca.SX, y_plus: ca.SX, y_minus: ca.SX, form: ImpulseForm
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


def _lone_impulses(contacts: Contacts, mass: ca.SX, normal: ca.SX, approach: ca.SX) -> ca.SX:
    """(1 + e) m_eff |v_n| of every approaching contact on its own."""
    effective = [1 / ca.dot(normal[:, i], ca.solve(mass, normal[:, i])) for i in range(len(contacts.names))]
    return (1 + contacts.restitution) * ca.vertcat(ca.SX(0, 1), *effective) * ca.fmax(0, -approach)
