"""Time-freezing: contact mechanics with impacts as a Filippov system with a clock (Sections 3 to 5 of the paper).

Below the surface of a contact and on the way down, f_c < 0 and n'v < 0, an auxiliary motion takes the normal velocity
to zero while the clock stands still. A jump becomes a piece of continuous motion, and persistent contact becomes
sliding between the free motion and the auxiliary one, in which the clock runs slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.reformulation.dcs import DCS, Pair, Variable
from nosnoc_py.reformulation.filippov import heaviside_dcs
from nosnoc_py.systems.algebraic import Algebraic
from nosnoc_py.systems.cls import CLS, Contact
from nosnoc_py.systems.pss import Heaviside

CLOCK, SPEED = "clock", "speed_of_time"


@dataclass(frozen=True, eq=False, kw_only=True)
class FrozenContact:
    """What a contact is in numerical time, where the speed of time is 1; functions of the state, z, alpha and p.

    Attributes
    ----------
    name : str
    weight : SX scalar
        beta in [0, 1].
    push : SX scalar
        Normal force of the auxiliary motion times its weight: an impulse per numerical time.
    rub : SX (n_t,)
        Friction force, likewise.
    approach : SX scalar
        n'v.
    slip : SX (n_t,)
        Tangential velocity.
    reserve : SX scalar
        How far the friction force is from the end of its cone, as a share; 1 without friction.
    strength, half_period : float
        A jump by an impulse takes the numerical time impulse / strength + half_period.
    """

    name: str
    weight: ca.SX
    push: ca.SX
    rub: ca.SX
    approach: ca.SX
    slip: ca.SX
    reserve: ca.SX
    strength: float
    half_period: float = 0.0

    def duration(self, impulse: float) -> float:
        """How long a jump takes in numerical time [s]."""
        return impulse / self.strength + self.half_period


@dataclass(frozen=True, eq=False, kw_only=True)
class Frozen:
    """A CLS in numerical time.

    Attributes
    ----------
    original : CLS
    system : Heaviside
        States (q, v, clock), controls u; `simulate` takes it as it is.
    running : SX scalar
        dt/dtau: 0 while time is frozen, 1 in free motion.
    contacts : tuple of FrozenContact
    """

    original: CLS
    system: Heaviside
    running: ca.SX
    contacts: tuple[FrozenContact, ...]


def freeze(system: CLS, *, a_n: float = 10.0, epsilon_t: float = 1e-3, stiffness: float = 100.0) -> Frozen:
    """Write a `CLS` as a Filippov system with a clock state.

    With weights beta_i of the auxiliary motions and theta = prod_i (1 - beta_i),
    q' = theta v + sum_i beta_i q_i', M v' = theta f_v + sum_i beta_i F_i, clock' = theta.
    Inelastic contacts (Definitions 2 and 6): beta = (1 - alpha_1)(1 - alpha_2), q_i' = 0,
    F_i = a_n (n - mu b sign(v_t)); in space Eq. 26 in place of the sign. alpha_1 has one value per finite element: with
    one per stage an element may hold the rest of a jump and contact motion at once, with zero residuals.
    Contacts with restitution e: a spring and a damper, beta = 1 - alpha_1, q_i' = M^-1 n D^-1 n'v and
    F_i = n D^-1 (-k f_c - c n'v - (grad_q n'v)'q_i') with c = 2 |ln e| sqrt(k / (pi^2 + ln^2 e)).

    Several contacts are treated independently, with a number of terms linear in theirs. That is Newton's law for each
    where they do not couple, n_i'M^-1 n_j = 0; where they do it is a law of simultaneous impacts of its own: all
    normal velocities are driven to zero at once, each at its own rate, until the last one is there.

    Parameters
    ----------
    system : CLS
    a_n : float
        Acceleration of the inelastic auxiliary motion [1/s^2 times the unit of an impulse]: a jump by the impulse
        Lambda takes the numerical time Lambda / a_n.
    epsilon_t : float
        Speed with which a contact in space creeps while it sticks [m/s].
    stiffness : float
        k of the spring of elastic contacts [1/s^2].

    Raises
    ------
    OptionError
        If there is no contact, or one that both bounces and has friction, or has anisotropic friction: the message
        names a method that fits.
    """
    if not system.contacts:
        raise OptionError("TimeFreezing: the system has no contacts, so that nothing freezes; use ns.FESDJ(...).")
    alphas: list[ca.SX] = []
    functions: dict[str, ca.SX] = {}
    lifts: dict[str, tuple[ca.SX, ca.SX]] = {}
    contacts: list[FrozenContact] = []
    moves = ca.SX(system.n_q, 1)
    weights = []
    for contact in system.contacts:
        _check(contact)
        make = _elastic if contact.restitution > 0.0 else _inelastic
        found = make(system, contact, a_n if make is _inelastic else stiffness, epsilon_t)
        alphas.append(found.alpha)
        functions |= found.functions
        beta = ca.SX.sym(f"beta[{contact.name}]")
        lifts[f"beta[{contact.name}]"] = (beta, found.weight)
        moves += beta * found.move
        weights.append(1 - beta)
        made = found.contact
        contacts.append(replace(made, weight=beta, push=beta * made.push, rub=beta * made.rub))
    running = _product(weights)
    if len(weights) > 1:
        theta = ca.SX.sym("theta_ode")
        lifts["theta_ode"] = (theta, running)
        running = theta
    push = running * system.force
    for contact, frozen in zip(system.contacts, contacts, strict=True):
        push += system.normal(contact) * frozen.push
        if contact.frictional:
            push += contact.tangent @ frozen.rub
    acceleration = _acceleration(system, push, lifts)
    clock, name = ca.SX.sym(CLOCK), _unused(CLOCK, system)
    heaviside = Heaviside(
        x=ca.vertcat(system.x, clock),
        u=system.u,
        p=system.p,
        alpha=ca.vertcat(ca.SX(0, 1), *alphas),
        functions=ca.vertcat(ca.SX(0, 1), *functions.values()),
        function_names=tuple(functions),
        per_element=tuple(j for j, name in enumerate(functions) if _is_shared(name, system)),
        flow=ca.vertcat(running * system.v + moves, acceleration, running),
        algebraic=_algebraic(lifts),
        names={"x": (*system.state_names, name), "u": system.control_names, "p": system.parameter_names},
        units={**system.units, name: "s"},
        nominal={"x": np.append(system.x_nominal, 1.0), "u": system.u_nominal},
        p_default=system.p_default,
    )
    return Frozen(original=system, system=heaviside, running=running, contacts=tuple(contacts))


def frozen_dcs(frozen: Frozen, running_cost: Any, *, stabilize: bool | None = None) -> DCS:
    """The DCS of a frozen system with the speed of time as one more control; frozen time costs nothing (Eq. 29).

    `stabilize` keeps inelastic contacts closed also where gaps are curved; by default where they are.
    """
    speed = ca.SX.sym(SPEED)
    dcs = heaviside_dcs(frozen.system)
    system = frozen.original
    if any(_is_curved(system, c) for c in system.contacts) if stabilize is None else stabilize:
        dcs = _stabilized(frozen, dcs)
    return replace(
        dcs,
        u=ca.vertcat(dcs.u, speed),
        u_names=(*dcs.u_names, SPEED),
        u_scale=np.append(dcs.u_scale, 1.0),
        flow=speed * dcs.flow,
        running_cost=speed * frozen.running * ca.SX(running_cost),
    )


def _is_curved(system: CLS, contact: Contact) -> bool:
    """Whether a gap that stays closed is more than a linear condition on q, for an inelastic contact."""
    return contact.restitution == 0.0 and ca.depends_on(ca.gradient(contact.gap, system.q), system.q)


def _stabilized(frozen: Frozen, dcs: DCS) -> DCS:
    """q' = theta v + sum_i n_i tau_i with tau_i against the gap and against n'v, which both vanish in contact.

    Runge-Kutta stages with n'v = 0 leave a curved gap at an error of either sign: above zero the contact could not
    press, so that without tau the discrete equations have no solution.
    """
    system = frozen.original
    contacts = [c for c in system.contacts if c.restitution == 0.0]
    names = [c.name for c in contacts]

    def labels(quantity: str) -> tuple[str, ...]:
        return tuple(f"{quantity}[{name}]" for name in names)

    variables = tuple(
        Variable(name=name, symbol=ca.SX.sym(name, len(names)), components=labels(name), lower=0.0)
        for name in ("drift_plus", "drift_minus")
    )
    up, down = (variable.symbol for variable in variables)
    drift = ca.horzcat(*[system.normal(c) for c in contacts]) @ (up - down)
    gaps = ca.vertcat(*[c.gap for c in contacts])
    symbols = {label: v.symbol[i] for v in dcs.variables for i, label in enumerate(v.components)}
    moving = [symbols[f"lambda_{k}[normal_velocity[{name}]]"] for name in names for k in "np"]
    speed = ca.vertcat(*[moving[2 * i] + moving[2 * i + 1] for i in range(len(names))])
    rates, size, held = labels("gap rate"), labels("drift"), labels("gap")
    return replace(
        dcs,
        flow=dcs.flow + ca.vertcat(drift, ca.SX(dcs.x.numel() - system.n_q, 1)),
        variables=(*dcs.variables, *variables),
        pairs=(
            *dcs.pairs,
            Pair(name="drift_up", a=gaps, b=up, a_labels=held, b_labels=labels("drift_plus")),
            Pair(name="drift_down", a=gaps, b=down, a_labels=held, b_labels=labels("drift_minus")),
            Pair(name="held", a=speed, b=up + down, a_labels=rates, b_labels=size, cross="none"),
            Pair(
                name="drift_parts",
                a=up,
                b=down,
                a_labels=labels("drift_plus"),
                b_labels=labels("drift_minus"),
                cross="none",
                split=True,
            ),
        ),
        switch_indicator=dcs.indicator,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Auxiliary:
    """The auxiliary motion of one contact: its step functions, its weight, its motion and its forces."""

    alpha: ca.SX
    functions: Mapping[str, ca.SX]
    weight: ca.SX
    move: ca.SX
    contact: FrozenContact


def _inelastic(system: CLS, contact: Contact, a_n: float, epsilon_t: float) -> _Auxiliary:
    """A constant force a_n along the normal, and friction (Proposition 3, Eqs. 24 and 26)."""
    approach = ca.dot(system.normal(contact), system.v)
    functions = {f"gap[{contact.name}]": contact.gap, f"normal_velocity[{contact.name}]": approach}
    slip, rub, reserve = ca.SX(0, 1), ca.SX(0, 1), ca.SX(1)
    alpha = ca.SX.sym("alpha", 3 if contact.frictional else 2)
    if contact.frictional:
        slip = contact.tangent.T @ system.v
        mu = contact.friction[0]
        if slip.numel() == 1:
            functions[f"tangential_velocity[{contact.name}]"] = slip
            rub = -mu * a_n * (2 * alpha[2] - 1)
            reserve = 2 * ca.fmin(alpha[2], 1 - alpha[2])
        else:
            speed = ca.sqrt(ca.fmax(ca.sumsqr(slip), (0.5 * epsilon_t) ** 2))  # smooth where it is not used
            # The sign of |slip| - epsilon_t, smooth and with a slope wherever the slip is not zero.
            rounded = ca.sqrt(ca.sumsqr(slip) + epsilon_t**2)
            functions[f"slip_speed[{contact.name}]"] = rounded - np.sqrt(2.0) * epsilon_t
            rub = -alpha[2] * mu * a_n * slip / speed + (1 - alpha[2]) * slip
            reserve = 1 - alpha[2]
    return _Auxiliary(
        alpha=alpha,
        functions=functions,
        weight=(1 - alpha[0]) * (1 - alpha[1]),
        move=ca.SX(system.n_q, 1),
        contact=FrozenContact(
            name=contact.name,
            weight=ca.SX(1),
            push=ca.SX(a_n),
            rub=rub,
            approach=approach,
            slip=slip,
            reserve=reserve,
            strength=a_n,
        ),
    )


def _elastic(system: CLS, contact: Contact, stiffness: float, _: float) -> _Auxiliary:
    """Half an oscillation of a spring and a damper; the last term keeps v+ = -e v- on curved contacts."""
    normal = system.normal(contact)
    approach = ca.dot(normal, system.v)
    direction = ca.solve(system.mass_matrix, normal)
    share = direction / ca.dot(normal, direction)
    move = share * approach
    logarithm = -np.log(contact.restitution)
    damping = 2 * logarithm * np.sqrt(stiffness / (np.pi**2 + logarithm**2))
    bend = ca.dot(ca.gradient(approach, system.q), move)
    # Above the surface there is no spring: relaxed step functions would let it pull.
    push = (-stiffness * ca.fmin(contact.gap, 0.0) - damping * approach - bend) / ca.dot(normal, direction)
    alpha = ca.SX.sym("alpha", 1)
    return _Auxiliary(
        alpha=alpha,
        functions={f"gap[{contact.name}]": contact.gap},
        weight=1 - alpha,
        move=move,
        contact=FrozenContact(
            name=contact.name,
            weight=ca.SX(1),
            push=push,
            rub=ca.SX(0, 1),
            approach=approach,
            slip=ca.SX(0, 1),
            reserve=ca.SX(1),
            strength=np.inf,
            half_period=float(np.pi / np.sqrt(stiffness - damping**2 / 4)),
        ),
    )


def _is_shared(name: str, system: CLS) -> bool:
    """Step functions of the gaps of inelastic contacts: during a jump nothing else determines them."""
    return any(name == f"gap[{contact.name}]" for contact in system.contacts if contact.restitution == 0.0)


def _acceleration(system: CLS, push: ca.SX, lifts: dict[str, tuple[ca.SX, ca.SX]]) -> ca.SX:
    """v': by a constant mass matrix, or as variables w with M w = push, so that M(q) is never inverted."""
    if not ca.depends_on(ca.SX(system.mass_matrix), ca.vertcat(system.q, system.p)):
        return ca.solve(system.mass_matrix, push)
    w = ca.SX.sym("acceleration", system.n_q)
    for i, name in enumerate(system.names["v"]):
        # In the form "variable = expression" of all lifts: w_i = w_i - (M w - push)_i.
        lifts[f"{name}'"] = (w[i], w[i] - (system.mass_matrix @ w - push)[i])
    return w


def _algebraic(lifts: Mapping[str, tuple[ca.SX, ca.SX]]) -> Algebraic:
    """Lifted products lie in [0, 1], accelerations anywhere."""
    symbols = [symbol for symbol, _ in lifts.values()]
    bounded = np.array([name.startswith(("beta[", "theta_ode")) for name in lifts])
    return Algebraic(
        ca.vertcat(*symbols),
        ca.vertcat(*[symbol - expression for symbol, expression in lifts.values()]),
        lower=np.where(bounded, 0.0, -np.inf),
        upper=np.where(bounded, 1.0, np.inf),
        initial=np.where(bounded, 0.25, 0.0),
        names=tuple(lifts),
    )


def _unused(name: str, system: CLS) -> str:
    """The name, with a mark where the system has a quantity of this name."""
    taken = {*system.state_names, *system.control_names, *system.parameter_names}
    while name in taken:
        name += "'"
    return name


def _product(factors: list[ca.SX]) -> ca.SX:
    product = ca.SX(1)
    for factor in factors:
        product *= factor
    return product


def _check(contact: Contact) -> None:
    if not contact.frictional:
        return
    if contact.restitution > 0.0:
        raise OptionError(
            f"TimeFreezing: contact {contact.name!r} has both restitution ({contact.restitution:g}) and friction, for "
            "which there is no auxiliary motion; use ns.FESDJ(...)."
        )
    if len(set(contact.friction)) > 1:
        raise OptionError(
            f"TimeFreezing: contact {contact.name!r} has anisotropic friction {contact.friction}; use ns.FESDJ(...)."
        )
