"""Time-freezing: contact mechanics with impacts as a Filippov system with a clock (Sections 3 to 5 of the paper).

Below the surface of a contact and on the way down, f_c < 0 and n'v < 0, an auxiliary motion takes the normal velocity
to zero while the clock stands still. A jump becomes a piece of continuous motion, and persistent contact becomes
sliding between the free motion and the auxiliary one, in which the clock runs slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError, check_type
from nosnoc_py.reformulation.auxiliary_motions import (
    AuxiliaryParameters,
    FrozenContact,
    SwitchingFunction,
    auxiliary,
    misfit_of,
)
from nosnoc_py.roles import Role
from nosnoc_py.systems.algebraic import Algebraic
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.pss import Heaviside

CLOCK = "clock"


@dataclass(frozen=True, eq=False)
class _Lift:
    """A variable that stands for an expression: what it is, its name, its symbol."""

    role: Role
    name: str
    symbol: ca.SX
    expression: ca.SX


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
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
    lifts : tuple of Role
        What the algebraic variables of the system are, one by one: weights of the contacts in their order, the rate of
        the clock where there are several contacts, accelerations where they are lifted.
    """

    original: CLS
    system: Heaviside
    running: ca.SX
    contacts: tuple[FrozenContact, ...]
    lifts: tuple[Role, ...]

    def __repr__(self) -> str:
        contacts = [
            f"  contact  {contact.name}: impulses grow by {contact.strength:.4g} N" for contact in self.contacts
        ]
        system = repr(self.system).replace("\n", "\n  ")
        return "\n".join(["Frozen: in numerical time, the clock is a state", f"  {system}", *contacts])


def misfit(system: CLS) -> str | None:
    """None if jumps at all contacts can be frozen, else the message that names a method that fits."""
    if not system.contacts:
        return "TimeFreezing: the system has no contacts, so that nothing freezes; use ns.FESDJ(...)."
    moving = [contact.name for contact in system.contacts if system.moves(contact)]
    if moving:
        return (
            f"TimeFreezing: contact {', '.join(map(repr, moving))} moves by itself, by time or states of y, which "
            "stand still while time does; use ns.FESDJ(...)."
        )
    bounces = [contact.name for contact in system.contacts if contact.bounces and not system.moves_by_v]
    if bounces:
        return (
            f"TimeFreezing: contact {', '.join(map(repr, bounces))} bounces, and the auxiliary motion that throws a "
            "body back is written for coordinates with q' = v only; use ns.FESDJ(...)."
        )
    return next(filter(None, map(misfit_of, system.contacts)), None)


def freeze(system: CLS, parameters: AuxiliaryParameters | None = None, **options: Any) -> Frozen:
    """Write a `CLS` as a Filippov system with a clock state.

    With weights beta_i of the auxiliary motions and theta = prod_i (1 - beta_i),
    q' = theta v + sum_i beta_i q_i', M v' = theta f_v + sum_i beta_i F_i, clock' = theta.
    Inelastic contacts (Definitions 2 and 6): beta = (1 - alpha_1)(1 - alpha_2), q_i' = 0,
    F_i = a_n (n - mu b sign(v_t)); in space Eq. 26 in place of the sign. alpha_1 has one value per finite element: with
    one per stage an element may hold the rest of a jump and contact motion at once, with zero residuals.
    Contacts with restitution e: beta = 1 - alpha_1, q_i' = M^-1 n D^-1 n'v and F_i = n (F - D^-1 (grad_q n'v)'q_i')
    with a force F that is constant on the way down and on the way up, or that of a spring and a damper.

    Several contacts are treated independently, with a number of terms linear in theirs. That is Newton's law for each
    where they do not couple, n_i'M^-1 n_j = 0 and, with friction, b_i'M^-1 n_j = 0; where they do it is a law of
    simultaneous impacts of its own: all normal velocities are driven to zero at once, each at its own rate, until the
    last one is there.

    Parameters
    ----------
    system : CLS
    parameters : TimeFreezing, optional
    **options
        In place of it: a_n, epsilon_t, elastic, stiffness, as in `TimeFreezing`.

    Raises
    ------
    OptionError
        If both are given. If there is no contact, or one that both bounces and has friction, or has anisotropic
        friction: the message names a method that fits.
    """
    check_type(system, CLS, "system")
    if (message := misfit(system)) is not None:
        raise OptionError(message)
    parameters = _parameters(parameters, options)
    alphas: list[ca.SX] = []
    functions: list[SwitchingFunction] = []
    lifts: list[_Lift] = []
    shared: list[int] = []
    contacts: list[FrozenContact] = []
    moves = ca.SX(system.n_q, 1)
    weights = []
    for contact in system.contacts:
        found = auxiliary(system, contact, parameters)
        alphas.append(found.alpha)
        places = {function.role: len(functions) + j for j, function in enumerate(found.functions)}
        if not contact.bounces:
            shared.append(places[Role.GAP])  # during a jump nothing else determines the step functions of such gaps
        functions += found.functions
        beta = ca.SX.sym(f"beta[{contact.name}]")
        lifts.append(_Lift(Role.AUXILIARY_WEIGHT, f"beta[{contact.name}]", beta, found.weight))
        moves += beta * found.move
        weights.append(1 - beta)
        made = found.contact
        contacts.append(replace(made, weight=beta, push=beta * made.push, rub=beta * made.rub, functions=places))
    running = reduce(mul, weights, ca.SX(1))
    if len(weights) > 1:
        theta = ca.SX.sym("theta_ode")
        lifts.append(_Lift(Role.CLOCK_RATE, "theta_ode", theta, running))
        running = theta
    push = running * system.force
    for contact, frozen in zip(system.contacts, contacts, strict=True):
        push += system.normal(contact) * frozen.push
        if contact.frictional:
            push += contact.tangent @ frozen.rub
    acceleration, lifted = _acceleration(system, push)
    lifts += lifted
    clock, name = ca.SX.sym(CLOCK), system.unused(CLOCK)
    heaviside = Heaviside(
        **system.extended({name: clock}),
        alpha=ca.vertcat(ca.SX(0, 1), *alphas),
        functions=ca.vertcat(ca.SX(0, 1), *[function.expression for function in functions]),
        function_names=tuple(function.name for function in functions),
        per_element=tuple(shared),
        flow=ca.vertcat(running * system.position_rate + moves, acceleration, running * system.y_rate, running),
        algebraic=_algebraic(lifts),
        units={**system.units, name: "s"},
        p_default=system.p_default,
    )
    return Frozen(
        original=system,
        system=heaviside,
        running=running,
        contacts=tuple(contacts),
        lifts=tuple(lift.role for lift in lifts),
    )


def _parameters(given: AuxiliaryParameters | None, options: Mapping[str, Any]) -> AuxiliaryParameters:
    """Those that are given, or made of options; mistakes are told as those of `freeze`."""
    if given is None:
        try:
            return AuxiliaryParameters(**options)
        except OptionError as error:
            raise OptionError(str(error).replace(AuxiliaryParameters.__name__, "freeze", 1)) from None
    if not isinstance(given, AuxiliaryParameters):
        raise OptionError(
            f"freeze: parameters: expected an ns.TimeFreezing(...), given {given!r}; or write its options by name, "
            "a_n=10.0 for instance."
        )
    if options:
        changes = ", ".join(f"{name}=..." for name in options)
        raise OptionError(f"freeze: given parameters and {', '.join(options)}; write parameters.replace({changes}).")
    return given


def _acceleration(system: CLS, push: ca.SX) -> tuple[ca.SX, list[_Lift]]:
    """v': by a constant mass matrix, or as variables w with M w = push, so that M(q) is never inverted."""
    if not ca.depends_on(ca.SX(system.mass_matrix), ca.vertcat(system.q, system.p)):
        return ca.solve(system.mass_matrix, push), []
    w = ca.SX.sym("acceleration", system.n_v)
    # In the form "variable = expression" of all lifts: w_i = w_i - (M w - push)_i.
    rest = w - (system.mass_matrix @ w - push)
    return w, [_Lift(Role.ACCELERATION, f"{name}'", w[i], rest[i]) for i, name in enumerate(system.names["v"])]


def _algebraic(lifts: Sequence[_Lift]) -> Algebraic:
    """Lifted products lie in [0, 1], accelerations anywhere."""
    bounded = np.array([lift.role is not Role.ACCELERATION for lift in lifts])
    return Algebraic(
        ca.vertcat(*[lift.symbol for lift in lifts]),
        ca.vertcat(*[lift.symbol - lift.expression for lift in lifts]),
        lower=np.where(bounded, 0.0, -np.inf),
        upper=np.where(bounded, 1.0, np.inf),
        initial=np.where(bounded, 0.25, 0.0),
        names=tuple(lift.name for lift in lifts),
    )
