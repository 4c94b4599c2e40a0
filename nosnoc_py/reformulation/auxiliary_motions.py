"""Auxiliary motions: the continuous motions that replace jumps while time is frozen, one for each kind of contact.

Each of them has the end points of the jump: it starts at (q, v-) and reaches (q, v+) with v+ of Newton's impact law.

- `inelastic`: a constant force along the normal until n'v = 0 (time-freezing, Proposition 3), with friction
  (Definition 6, in space Eq. 26).
- `constant_force`, `spring_damper`: restitution e > 0. The gap becomes negative and returns to zero with n'v+ = -e
  n'v-.

Step functions alpha of the switching functions (gap, normal velocity, tangential velocity) select the motion.
"""

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
    """A contact in numerical time (for speed of time 1); expressions of the state, z, alpha and p.

    Attributes
    ----------
    name : str
    weight : SX scalar
        Weight beta in [0, 1] of the auxiliary motion.
    normal_force : SX scalar
        Normal force of the auxiliary motion times its weight: an impulse per numerical time [N].
    friction_force : SX (n_t,)
        Friction force times the weight [N].
    approach : SX scalar
        Normal velocity n'v [m/s].
    slip : SX (n_t,)
        Tangential velocity [m/s].
    cone_margin : SX scalar
        Relative distance of the friction force from the boundary of its cone, in [0, 1]; 1 without friction.
    functions : mapping of Role to int
        Rows of the contact's switching functions among those of the system, such as that of `Role.GAP`.
    strength, half_period : float, or SX of p
        A jump by an impulse takes the numerical time impulse / strength + half_period [N, s].
    """

    name: str
    normal_force: ca.SX
    approach: ca.SX
    strength: Any
    weight: ca.SX = field(default_factory=lambda: ca.SX(1))
    friction_force: ca.SX = field(default_factory=lambda: ca.SX(0, 1))
    slip: ca.SX = field(default_factory=lambda: ca.SX(0, 1))
    cone_margin: ca.SX = field(default_factory=lambda: ca.SX(1))
    half_period: Any = 0.0
    functions: Mapping[Role, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SwitchingFunction:
    """Switching function of a step function, with its role and name."""

    role: Role
    name: str
    expression: ca.SX


@dataclass(frozen=True, eq=False, kw_only=True)
class AuxiliaryMotion:
    """Auxiliary motion of one contact.

    Attributes
    ----------
    alpha : SX (n,)
        Symbols of its step functions.
    functions : tuple of SwitchingFunction
        Their switching functions.
    weight : SX scalar
        Weight beta as an expression of alpha: 1 while the motion acts.
    position_rate : SX (n_q,)
        q' of the motion for weight 1.
    contact : FrozenContact
        Forces for weight 1.
    """

    alpha: ca.SX
    functions: tuple[SwitchingFunction, ...]
    weight: ca.SX
    position_rate: ca.SX
    contact: FrozenContact


def inelastic(system: CLS, contact: Contact, a_n: float, epsilon_t: float) -> AuxiliaryMotion:
    """Return the motion under a constant normal force a_n [N], with friction (Proposition 3, Eqs. 24 and 26).

    In space the friction of Eq. 26 sticks below the slip speed epsilon_t [m/s].
    """
    approach = ca.dot(system.normal(contact), system.v)
    functions = _switching_functions(contact, approach)
    slip, friction_force, cone_margin = ca.SX(0, 1), ca.SX(0, 1), ca.SX(1)
    alpha = ca.SX.sym("alpha", 3 if contact.frictional else 2)
    if contact.frictional:
        slip = system.slip(contact)
        mu = contact.cone[0]
        # In the plane 2 alpha_3 - 1 is the sign of v_t, and Filippov's combination at v_t = 0 is stick (Definition 6).
        if slip.numel() == 1:
            name = f"tangential_velocity[{contact.name}]"
            functions.append(SwitchingFunction(Role.TANGENTIAL_VELOCITY, name, slip))
            # Minus: friction opposes the slip. The coefficient is per unit of normal force, which is a_n.
            friction_force = -mu * a_n * (2 * alpha[2] - 1)
            cone_margin = 2 * ca.fmin(alpha[2], 1 - alpha[2])
        else:
            # Below epsilon_t this is not |slip|, but its weight alpha_3 is zero there; the bound avoids a division by
            # 0.
            speed = ca.sqrt(ca.fmax(ca.sumsqr(slip), (0.5 * epsilon_t) ** 2))
            # A function with the sign of |slip| - epsilon_t that is smooth also at zero slip.
            rounded = ca.sqrt(ca.sumsqr(slip) + epsilon_t**2)
            # sqrt(2) epsilon_t is the value of `rounded` at |slip| = epsilon_t.
            fast = rounded - np.sqrt(2.0) * epsilon_t
            functions.append(SwitchingFunction(Role.SLIP_SPEED, f"slip_speed[{contact.name}]", fast))
            # Plus in the second term: slower slip grows, faster slip decreases, so that the state slides on |slip| =
            # epsilon_t, which stands for stick.
            friction_force = -alpha[2] * mu * a_n * slip / speed + (1 - alpha[2]) * slip
            cone_margin = 1 - alpha[2]
    return AuxiliaryMotion(
        alpha=alpha,
        functions=tuple(functions),
        weight=(1 - alpha[0]) * (1 - alpha[1]),  # active where f_c < 0 and n'v < 0 (Definition 2)
        position_rate=ca.SX(system.n_q, 1),
        contact=FrozenContact(
            name=contact.name,
            normal_force=ca.SX(a_n),
            friction_force=friction_force,
            approach=approach,
            slip=slip,
            cone_margin=cone_margin,
            strength=a_n,
        ),
    )


def _switching_functions(contact: Contact, approach: ca.SX) -> list[SwitchingFunction]:
    """Return the gap and the normal velocity as switching functions."""
    gap = SwitchingFunction(Role.GAP, f"gap[{contact.name}]", contact.gap)
    return [gap, SwitchingFunction(Role.NORMAL_VELOCITY, f"normal_velocity[{contact.name}]", approach)]


def spring_damper(system: CLS, contact: Contact, stiffness: float) -> AuxiliaryMotion:
    """Return the motion of half an oscillation of a spring (stiffness k per mass [1/s^2]) and a damper.

    With the damping c = 2 |ln e| sqrt(k / (pi^2 + ln^2 e)) per mass the gap returns to zero after the time
    pi / sqrt(k - c^2 / 4), with n'v multiplied by -e.
    """
    restitution = contact.restitution
    logarithm = -ca.log(restitution)
    damping = 2 * logarithm * ca.sqrt(stiffness / (np.pi**2 + logarithm**2))
    approach = ca.dot(system.normal(contact), system.v)
    # Relaxed solutions give the motion a small weight also above the surface: the spring must not pull there.
    force = -stiffness * ca.fmin(contact.gap, 0) - damping * approach
    half_period = np.pi / ca.sqrt(stiffness - damping**2 / 4)
    gap = _switching_functions(contact, approach)[:1]
    # Half an oscillation takes the same time at any speed: an infinite strength drops the part that grows with the
    # impulse.
    return _rebound_motion(system, contact, gap, lambda alpha, mass: mass * force, np.inf, half_period)


def constant_force(system: CLS, contact: Contact, a_n: float) -> AuxiliaryMotion:
    """Return the motion with the force a_n [N] on the way down and e^2 a_n on the way up.

    The work on the way up from the depth v^2 / (2 D a_n) is e^2 times that on the way down, so that v+ = -e v-. The
    motion is piecewise quadratic: two Runge-Kutta stages are exact if the normal is constant.
    """
    approach = ca.dot(system.normal(contact), system.v)
    functions = _switching_functions(contact, approach)
    e = contact.restitution

    def force(alpha: ca.SX, mass: ca.SX) -> ca.SX:
        return a_n * (1 - (1 - e**2) * alpha[1])  # alpha[1] = 1 on the way up

    # With the effective mass m the way down takes m v / a_n, the way up m v / (e a_n): together the impulse (1 + e) m v
    # over e a_n.
    return _rebound_motion(system, contact, functions, force, a_n * e, 0.0)


def _rebound_motion(
    system: CLS,
    contact: Contact,
    functions: list[SwitchingFunction],
    force: Callable[[ca.SX, ca.SX], ca.SX],
    strength: Any,
    half_period: Any,
) -> AuxiliaryMotion:
    """Return q' = M^-1 n D^-1 n'v, M v' = n (force - D^-1 (grad_q n'v)'q'), active below the surface (f_c < 0).

    The second term of the force compensates the change of n'v along q'. Without it v+ = -e v- would fail on curved
    surfaces, where the normal turns during the motion.
    """
    normal = system.normal(contact)
    approach = ca.dot(normal, system.v)
    direction = ca.solve(system.mass_matrix, normal)  # M^-1 n, along which impulses change the velocity
    mass = 1 / ca.dot(normal, direction)
    rate = direction * mass * approach
    turning = ca.dot(ca.gradient(approach, system.q), rate)
    alpha = ca.SX.sym("alpha", len(functions))
    return AuxiliaryMotion(
        alpha=alpha,
        functions=tuple(functions),
        weight=1 - alpha[0],  # active below the surface, on the way down and up
        position_rate=rate,
        contact=FrozenContact(
            name=contact.name,
            normal_force=force(alpha, mass) - mass * turning,
            approach=approach,
            strength=strength,
            half_period=half_period,
        ),
    )


def auxiliary_motion(system: CLS, contact: Contact, parameters: AuxiliaryParameters) -> AuxiliaryMotion:
    """Return the auxiliary motion of a supported contact, see `unsupported_contact`."""
    if not contact.bounces:
        return inelastic(system, contact, parameters.a_n, parameters.epsilon_t)
    if parameters.elastic == "constant_force":
        return constant_force(system, contact, parameters.a_n)
    return spring_damper(system, contact, parameters.stiffness)


def unsupported_contact(contact: Contact) -> str | None:
    """Return None if a contact has an auxiliary motion, else a message that names a suitable method."""
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
