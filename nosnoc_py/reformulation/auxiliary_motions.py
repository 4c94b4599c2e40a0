"""The motions that stand for jumps while time is frozen: one for each kind of contact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import casadi as ca
import numpy as np
from pydantic import Field

from nosnoc_py.options import Options
from nosnoc_py.roles import Role
from nosnoc_py.systems.cls import CLS, Contact


class AuxiliaryParameters(Options):
    """Numbers of the auxiliary motions; see `TimeFreezing`."""

    a_n: float = Field(default=10.0, gt=0)
    epsilon_t: float = Field(default=1e-3, gt=0)
    elastic: Literal["constant_force", "spring_damper"] = "constant_force"
    stiffness: float = Field(default=100.0, gt=0)


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
    functions : mapping
        Which of all switching functions belong to the contact: positions by role, such as `Role.GAP`.
    strength, half_period : float, or SX of p
        A jump by an impulse takes the numerical time impulse / strength + half_period.
    """

    name: str
    push: ca.SX
    approach: ca.SX
    strength: Any
    weight: ca.SX = field(default_factory=lambda: ca.SX(1))
    rub: ca.SX = field(default_factory=lambda: ca.SX(0, 1))
    slip: ca.SX = field(default_factory=lambda: ca.SX(0, 1))
    reserve: ca.SX = field(default_factory=lambda: ca.SX(1))
    half_period: Any = 0.0
    functions: Mapping[Role, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SwitchingFunction:
    """A function whose sign a step function tells: its role, its name, its expression."""

    role: Role
    name: str
    expression: ca.SX


@dataclass(frozen=True, eq=False, kw_only=True)
class Auxiliary:
    """The auxiliary motion of one contact: its step functions, its weight, its motion and its forces."""

    alpha: ca.SX
    functions: tuple[SwitchingFunction, ...]
    weight: ca.SX
    move: ca.SX
    contact: FrozenContact


def inelastic(system: CLS, contact: Contact, a_n: float, epsilon_t: float) -> Auxiliary:
    """A constant force a_n along the normal, and friction (Proposition 3, Eqs. 24 and 26)."""
    approach = ca.dot(system.normal(contact), system.v)
    functions = _functions(contact, approach)
    slip, rub, reserve = ca.SX(0, 1), ca.SX(0, 1), ca.SX(1)
    alpha = ca.SX.sym("alpha", 3 if contact.frictional else 2)
    if contact.frictional:
        slip = system.slip(contact)
        mu = contact.cone[0]
        if slip.numel() == 1:
            name = f"tangential_velocity[{contact.name}]"
            functions.append(SwitchingFunction(Role.TANGENTIAL_VELOCITY, name, slip))
            rub = -mu * a_n * (2 * alpha[2] - 1)
            reserve = 2 * ca.fmin(alpha[2], 1 - alpha[2])
        else:
            speed = ca.sqrt(ca.fmax(ca.sumsqr(slip), (0.5 * epsilon_t) ** 2))  # smooth where it is not used
            # The sign of |slip| - epsilon_t, smooth and with a slope wherever the slip is not zero.
            rounded = ca.sqrt(ca.sumsqr(slip) + epsilon_t**2)
            fast = rounded - np.sqrt(2.0) * epsilon_t
            functions.append(SwitchingFunction(Role.SLIP_SPEED, f"slip_speed[{contact.name}]", fast))
            rub = -alpha[2] * mu * a_n * slip / speed + (1 - alpha[2]) * slip
            reserve = 1 - alpha[2]
    return Auxiliary(
        alpha=alpha,
        functions=tuple(functions),
        weight=(1 - alpha[0]) * (1 - alpha[1]),
        move=ca.SX(system.n_q, 1),
        contact=FrozenContact(
            name=contact.name, push=ca.SX(a_n), rub=rub, approach=approach, slip=slip, reserve=reserve, strength=a_n
        ),
    )


def _functions(contact: Contact, approach: ca.SX) -> list[SwitchingFunction]:
    """The gap and the normal velocity."""
    gap = SwitchingFunction(Role.GAP, f"gap[{contact.name}]", contact.gap)
    return [gap, SwitchingFunction(Role.NORMAL_VELOCITY, f"normal_velocity[{contact.name}]", approach)]


def spring_damper(system: CLS, contact: Contact, stiffness: float) -> Auxiliary:
    """Half an oscillation of a spring and a damper; the last term keeps v+ = -e v- on curved contacts.

    With c = 2 |ln e| sqrt(k / (pi^2 + ln^2 e)) the normal velocity comes back times -e after pi / sqrt(k - c^2 / 4).
    """
    restitution = contact.restitution
    logarithm = -ca.log(restitution)
    damping = 2 * logarithm * ca.sqrt(stiffness / (np.pi**2 + logarithm**2))
    approach = ca.dot(system.normal(contact), system.v)
    # Above the surface, where relaxed solutions give it a weight, the spring shall not pull.
    force = -stiffness * ca.fmin(contact.gap, 0) - damping * approach
    half_period = np.pi / ca.sqrt(stiffness - damping**2 / 4)
    return _bounce(
        system, contact, _functions(contact, approach)[:1], lambda alpha, mass: mass * force, np.inf, half_period
    )


def constant_force(system: CLS, contact: Contact, a_n: float) -> Auxiliary:
    """A force a_n on the way down, e^2 a_n on the way up: from the depth v^2 / (2 D a_n) that gives v+ = -e v-.

    The motion is piecewise quadratic, so that two Runge-Kutta stages are exact where the normal is constant.
    """
    approach = ca.dot(system.normal(contact), system.v)
    functions = _functions(contact, approach)
    e = contact.restitution
    return _bounce(system, contact, functions, lambda alpha, _: a_n * (1 - (1 - e**2) * alpha[1]), a_n * e, 0.0)


def _bounce(
    system: CLS,
    contact: Contact,
    functions: list[SwitchingFunction],
    force: Callable[[ca.SX, ca.SX], ca.SX],
    strength: Any,
    half_period: Any,
) -> Auxiliary:
    """q' = M^-1 n D^-1 n'v and M v' = n (force - D^-1 (grad_q n'v)'q') below the surface, f_c < 0."""
    normal = system.normal(contact)
    approach = ca.dot(normal, system.v)
    direction = ca.solve(system.mass_matrix, normal)
    mass = 1 / ca.dot(normal, direction)
    move = direction * mass * approach
    bend = ca.dot(ca.gradient(approach, system.q), move)
    alpha = ca.SX.sym("alpha", len(functions))
    return Auxiliary(
        alpha=alpha,
        functions=tuple(functions),
        weight=1 - alpha[0],
        move=move,
        contact=FrozenContact(
            name=contact.name,
            push=force(alpha, mass) - mass * bend,
            approach=approach,
            strength=strength,
            half_period=half_period,
        ),
    )


def auxiliary(system: CLS, contact: Contact, parameters: AuxiliaryParameters) -> Auxiliary:
    """The auxiliary motion of a contact that has one, see `misfit_of`."""
    if not contact.bounces:
        return inelastic(system, contact, parameters.a_n, parameters.epsilon_t)
    if parameters.elastic == "constant_force":
        return constant_force(system, contact, parameters.a_n)
    return spring_damper(system, contact, parameters.stiffness)


def misfit_of(contact: Contact) -> str | None:
    """None if a contact has an auxiliary motion, else the message that names a method that fits."""
    if not contact.frictional:
        return None
    if contact.bounces:
        return (
            f"TimeFreezing: contact {contact.name!r} has both restitution ({contact.restitution}) and friction, for "
            "which there is no auxiliary motion; use ns.FESDJ(...)."
        )
    if not ca.is_equal(ca.SX(contact.cone[1]), ca.SX.ones(len(contact.friction)), 9):
        return f"TimeFreezing: contact {contact.name!r} has anisotropic friction {contact.friction}; use ns.FESDJ(...)."
    return None
