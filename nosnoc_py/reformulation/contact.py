"""Contact mechanics as a DCS with a jump law (FESD-J, Eqs. 13a, 17, 18 and A.2), without friction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import casadi as ca

from nosnoc_py.reformulation.dcs import DCS, Equation, Impact, JumpLaw, NodePair, Pair, Variable
from nosnoc_py.systems.cls import CLS

ImpulseForm = Literal["product", "sum"]


@dataclass(frozen=True, eq=False)
class _Contacts:
    """All contacts of a system stacked: gaps (n_c,), normals (n_q, n_c), labels."""

    gap: ca.SX
    normal: ca.SX
    names: tuple[str, ...]
    restitution: ca.DM

    def labels(self, quantity: str) -> tuple[str, ...]:
        return tuple(f"{quantity}[{name}]" for name in self.names)


def _stack(system: CLS) -> _Contacts:
    contacts = system.contacts
    return _Contacts(
        gap=ca.vertcat(ca.SX(0, 1), *[c.gap for c in contacts]),
        normal=ca.horzcat(ca.SX(system.n_q, 0), *[system.normal(c) for c in contacts]),
        names=tuple(c.name for c in contacts),
        restitution=ca.DM([float(c.restitution) for c in contacts]),
    )


def contact_dcs(
    system: CLS,
    *,
    running_cost: ca.SX | float = 0,
    impulse_form: ImpulseForm = "sum",
    lift_acceleration: bool | None = None,
    epsilon_c: float = 1e-3,
) -> DCS:
    """Write a frictionless `CLS` as a DCS with a jump law.

    Parameters
    ----------
    system : CLS
    running_cost : SX scalar
    impulse_form : {"sum", "product"}
        "sum": Appendix A.2, Lambda against gap + Y+ + Y-. "product": Eq. 17, Lambda against the gap, and
        0 = Lambda n'(v+ + e v-) written as Lambda against Y+ + Y-, because as an equation it has no gradient where
        Lambda = 0 and v_n = 0. Both have Y+ - Y- = n'(v+ + e v-) and Y+ against Y-; without the last, Y+ and Y-
        are not unique where Lambda = 0 and an interior-point method lets them grow without limit.
    lift_acceleration : bool, optional
        Make the acceleration an algebraic variable with M(q) a = f_v + sum n lambda (Section 2.2), so that M is never
        inverted. Default: only when M depends on q.
    epsilon_c : float
        Fraction of an element in the regularising inequality (Eq. 18).

    Returns
    -------
    DCS
    """
    contacts = _stack(system)
    lift = not system.mass_matrix.is_constant() if lift_acceleration is None else lift_acceleration
    force = ca.SX.sym("lambda_normal", len(contacts.names))
    total = system.force + contacts.normal @ force
    variables = [
        Variable(
            name="lambda_normal",
            symbol=force,
            components=contacts.labels("lambda_normal"),
            lower=0.0,
            scale=system.nominal["force"],
        )
    ]
    equations: tuple[Equation, ...] = ()
    if lift:
        acceleration = ca.SX.sym("acceleration", system.n_q)
        labels = tuple(f"acceleration[{name}]" for name in system.names["v"])
        variables.append(Variable(name="acceleration", symbol=acceleration, components=labels))
        balance = system.mass_matrix @ acceleration - total
        rows = tuple(f"momentum[{name}]" for name in system.names["v"])
        equations = (Equation(name="momentum", expression=balance, components=rows),)
    else:
        acceleration = ca.solve(system.mass_matrix, total)
    return DCS(
        x=system.x,
        u=system.u,
        p=system.p,
        x_names=system.state_names,
        u_names=system.control_names,
        p_names=system.parameter_names,
        x_scale=system.x_nominal,
        u_scale=system.u_nominal,
        variables=tuple(variables),
        flow=ca.vertcat(system.v, acceleration),
        running_cost=ca.SX(running_cost),
        equations=equations,
        pairs=(_gap_pair(contacts, force),),
        jump=_impact_law(system, contacts, impulse_form, epsilon_c),
        units={**system.units, "lambda_normal": "N", "Lambda_normal": "N s"},
    )


def _gap_pair(contacts: _Contacts, force: ca.SX) -> Pair:
    """0 <= f_c(q), lambda_n >= 0 (Eq. 13a); the gap is continuous, the force may jump."""
    return Pair(
        name="contact",
        a=contacts.gap,
        b=force,
        a_labels=contacts.labels("gap"),
        b_labels=contacts.labels("lambda_normal"),
        left="state",
        cross="left",
        components=contacts.names,
        events=("contact", "release"),
    )


def _impact_law(system: CLS, contacts: _Contacts, form: ImpulseForm, epsilon_c: float) -> JumpLaw:
    """Eq. 17 (form "product") or A.2 (form "sum"), with the inequality (18)."""
    n_q, n_c = system.n_q, len(contacts.names)
    x_minus, h = ca.SX.sym("x_minus", 2 * n_q), ca.SX.sym("h")
    q, v_minus = x_minus[:n_q], x_minus[n_q:]
    v_plus = ca.SX.sym("v_plus", n_q)
    impulse = ca.SX.sym("Lambda_normal", n_c)
    y_plus, y_minus = ca.SX.sym("Y_plus", n_c), ca.SX.sym("Y_minus", n_c)
    mass, gap, normal = (ca.substitute(e, system.q, q) for e in (system.mass_matrix, contacts.gap, contacts.normal))
    approach, rebound = normal.T @ v_minus, normal.T @ v_plus
    restitution = rebound + contacts.restitution * approach
    hit = ca.SX.sym("hit", n_c)
    likely = hit * _lone_impulses(contacts, mass, normal, approach)
    v_likely = v_minus + ca.solve(mass, normal @ likely)
    r_likely = normal.T @ v_likely + contacts.restitution * approach
    variables = (
        Variable(
            name="v_plus",
            symbol=v_plus,
            components=tuple(f"{name}(+)" for name in system.names["v"]),
            scale=system.nominal["v"],
            estimate=v_likely,
        ),
        Variable(
            name="Lambda_normal",
            symbol=impulse,
            components=contacts.labels("Lambda_normal"),
            lower=0.0,
            estimate=likely,
        ),
        Variable(
            name="Y_plus",
            symbol=y_plus,
            components=contacts.labels("Y_plus"),
            lower=0.0,
            estimate=ca.fmax(0, r_likely),
        ),
        Variable(
            name="Y_minus",
            symbol=y_minus,
            components=contacts.labels("Y_minus"),
            lower=0.0,
            estimate=ca.fmax(0, -r_likely),
        ),
    )
    momentum = tuple(f"impulse balance[{name}]" for name in system.names["v"])
    equations = (
        Equation(name="impulse_balance", expression=mass @ (v_plus - v_minus) - normal @ impulse, components=momentum),
        Equation(
            name="restitution",
            expression=y_plus - y_minus - restitution,
            components=contacts.labels("restitution law"),
        ),
    )
    # f_c(q) + eps h n'(v+ + e v-) >= 0 instead of (18), f_c(q + eps h v+) >= 0: the same to first order without
    # restitution, and with restitution it excludes roots that leave an impact too slowly.
    guard = gap + epsilon_c * h * restitution
    return JumpLaw(
        x_minus=x_minus,
        h=h,
        variables=variables,
        x_plus=ca.vertcat(q, v_plus),
        equations=equations,
        pairs=_impulse_pairs(contacts, gap, impulse, y_plus, y_minus, form),
        inequalities=(Equation(name="impact_guard", expression=guard, components=contacts.labels("impact guard")),),
        impacts=tuple(
            Impact(name=name, impulse=impulse[i], v_before=approach[i], v_after=rebound[i], pair="contact")
            for i, name in enumerate(contacts.names)
        ),
        hit=hit,
    )


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
