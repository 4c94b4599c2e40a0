"""Time-freezing: contact mechanics with impacts as a Filippov system with a clock state.

Nurkanovic, Albrecht, Brogliato, Diehl 2023 (Automatica), Sections 3 to 5. Below the surface of a contact, where f_c < 0
and n'v < 0, an auxiliary motion (`auxiliary_motions`) takes the normal velocity to zero while the clock stands still.
A jump of the state in physical time becomes a piece of continuous motion in numerical time; persistent contact becomes
a sliding mode between the free motion and the auxiliary motion, in which the clock runs slower (Theorem 4, Eq. 17).

- `freeze` writes the Filippov system with step functions; `numerical_time` makes a DCS of it.
- Products of step functions (weights, the rate of the clock) and accelerations are lifted, so that no equation has
  more than two factors and M(q) is not inverted.
- `unsupported_reason` is the list of systems that have no auxiliary motion.
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
    auxiliary_motion,
    unsupported_contact,
)
from nosnoc_py.roles import Role
from nosnoc_py.systems.algebraic import Algebraic
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.pss import Heaviside

CLOCK = "clock"


@dataclass(frozen=True, eq=False)
class _Lift:
    """A lifted expression: an algebraic variable with its role, name and symbol, and the expression it equals."""

    role: Role
    name: str
    symbol: ca.SX
    expression: ca.SX


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Frozen:
    """A `CLS` in numerical time, made by `freeze`.

    Attributes
    ----------
    original : CLS
    system : Heaviside
        Filippov system with states (q, v, y, clock) and controls u; `simulate` accepts it directly.
    clock_rate : SX scalar
        dt/dtau: 0 while time is frozen, 1 in free motion, between in persistent contact.
    contacts : tuple of FrozenContact
    lifts : tuple of Role
        Roles of the algebraic variables of the system, in order: weights of the contacts, the rate of the clock (if
        there are several contacts), accelerations (if they are lifted).
    """

    original: CLS
    system: Heaviside
    clock_rate: ca.SX
    contacts: tuple[FrozenContact, ...]
    lifts: tuple[Role, ...]

    def __repr__(self) -> str:
        contacts = [
            f"  contact  {contact.name}: impulses grow by {contact.strength:.4g} N" for contact in self.contacts
        ]
        system = repr(self.system).replace("\n", "\n  ")
        return "\n".join(["Frozen: in numerical time, the clock is a state", f"  {system}", *contacts])


def unsupported_reason(system: CLS) -> str | None:
    """Return None if all contacts have an auxiliary motion, else a message that names a suitable method."""
    if not system.contacts:
        return "TimeFreezing: the system has no contacts, so that nothing freezes; use ns.FESDJ(...)."
    # An auxiliary motion takes numerical time at a fixed physical time, so that the surface must stand still.
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
    return next(filter(None, map(unsupported_contact, system.contacts)), None)


def freeze(system: CLS, parameters: AuxiliaryParameters | None = None, **options: Any) -> Frozen:
    """Write a `CLS` as a Filippov system with a clock state.

    With weights beta_i of the auxiliary motions and theta = prod_i (1 - beta_i),

        q' = theta v + sum_i beta_i q_i',    M v' = theta f_v + sum_i beta_i F_i,    clock' = theta.

    Inelastic contacts (Definitions 2 and 6): beta = (1 - alpha_1)(1 - alpha_2), q_i' = 0 and
    F_i = a_n (n - mu b sign(v_t)); in space Eq. 26 replaces the sign. alpha_1, the step function of the gap, has one
    value per finite element. The gap stays zero during the jump, so that with one value per stage an element could
    contain the end of a jump together with contact motion, with zero residuals.

    Contacts with restitution e: beta = 1 - alpha_1, q_i' = M^-1 n D^-1 n'v and F_i = n (F - D^-1 (grad_q n'v)'q_i')
    with a force F that is constant on the way down and on the way up, or that of a spring and a damper.

    Several contacts are treated independently: the number of terms is linear in the number of contacts. This is
    Newton's law for each if they do not couple, n_i'M^-1 n_j = 0 and, with friction, b_i'M^-1 n_j = 0. If they do, it
    is a different law of simultaneous impacts: all normal velocities go to zero, each at its own rate, until the last
    one has arrived.

    Parameters
    ----------
    system : CLS
    parameters : TimeFreezing, optional
    **options
        Instead of `parameters`: a_n [N], epsilon_t [m/s], elastic, stiffness [1/s^2], as in `TimeFreezing`.

    Returns
    -------
    Frozen

    Raises
    ------
    OptionError
        If both parameters and options are given. If there is no contact, or one that moves by itself, or has both
        restitution and friction, or anisotropic friction: the message names a suitable method.

    Examples
    --------
    A ball on the ground: the clock is the last state.

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q)])
    >>> ns.freeze(ball, a_n=10.0).system.state_names
    ('q_0', 'v_0', 'clock')
    """
    check_type(system, CLS, "system")
    if (message := unsupported_reason(system)) is not None:
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
        motion = auxiliary_motion(system, contact, parameters)
        alphas.append(motion.alpha)
        rows = {function.role: len(functions) + j for j, function in enumerate(motion.functions)}
        if not contact.bounces:
            # The gap is identically zero during a jump, so that nothing determines its step function there: one value
            # per element excludes an element that is partly jump and partly contact motion.
            shared.append(rows[Role.GAP])
        functions += motion.functions
        # The weight is a product of step functions and multiplies forces: lifted, every equation has two factors at
        # most.
        beta = ca.SX.sym(f"beta[{contact.name}]")
        lifts.append(_Lift(Role.AUXILIARY_WEIGHT, f"beta[{contact.name}]", beta, motion.weight))
        moves += beta * motion.position_rate
        weights.append(1 - beta)
        forces = {name: beta * getattr(motion.contact, name) for name in ("normal_force", "friction_force")}
        contacts.append(replace(motion.contact, weight=beta, functions=rows, **forces))
    clock_rate = reduce(mul, weights, ca.SX(1))  # theta = prod_i (1 - beta_i)
    if len(weights) > 1:
        theta = ca.SX.sym("theta_ode")  # lifted, because it multiplies the whole right-hand side
        lifts.append(_Lift(Role.CLOCK_RATE, "theta_ode", theta, clock_rate))
        clock_rate = theta
    # Forces are weighted, not the acceleration: M is the same in all motions, so that one solve with M serves all of
    # them.
    force = clock_rate * system.force
    for contact, frozen in zip(system.contacts, contacts, strict=True):
        force += system.normal(contact) * frozen.normal_force
        if contact.frictional:
            force += contact.tangent @ frozen.friction_force
    acceleration, lifted = _acceleration(system, force)
    lifts += lifted
    # A system may have a state of this name already.
    clock, name = ca.SX.sym(CLOCK), system.unused(CLOCK)
    heaviside = Heaviside(
        **system.extended({name: clock}),
        alpha=ca.vertcat(ca.SX(0, 1), *alphas),
        functions=ca.vertcat(ca.SX(0, 1), *[function.expression for function in functions]),
        function_names=tuple(function.name for function in functions),
        per_element=tuple(shared),
        # The acceleration contains the weights already (see `force`); y stands still while time does.
        flow=ca.vertcat(
            clock_rate * system.position_rate + moves, acceleration, clock_rate * system.y_rate, clock_rate
        ),
        algebraic=_algebraic(lifts),
        units={**system.units, name: "s"},
        p_default=system.p_default,
    )
    return Frozen(
        original=system,
        system=heaviside,
        clock_rate=clock_rate,
        contacts=tuple(contacts),
        lifts=tuple(lift.role for lift in lifts),
    )


def _parameters(parameters: AuxiliaryParameters | None, options: Mapping[str, Any]) -> AuxiliaryParameters:
    """Return the parameters, or build them from options; error messages name `freeze`."""
    if parameters is None:
        try:
            return AuxiliaryParameters(**options)
        except OptionError as error:
            raise OptionError(str(error).replace(AuxiliaryParameters.__name__, "freeze", 1)) from None
    if not isinstance(parameters, AuxiliaryParameters):
        raise OptionError(
            f"freeze: parameters: expected an ns.TimeFreezing(...), given {parameters!r}; or write its options by "
            "name, a_n=10.0 for instance."
        )
    if options:
        changes = ", ".join(f"{name}=..." for name in options)
        raise OptionError(f"freeze: given parameters and {', '.join(options)}; write parameters.replace({changes}).")
    return parameters


def _acceleration(system: CLS, force: ca.SX) -> tuple[ca.SX, list[_Lift]]:
    """Return v': solved for a constant mass matrix, else as variables w with M w = force (M(q) is not inverted)."""
    if not ca.depends_on(ca.SX(system.mass_matrix), ca.vertcat(system.q, system.p)):
        # Nothing to lift: the inverse consists of numbers.
        return ca.solve(system.mass_matrix, force), []
    w = ca.SX.sym("acceleration", system.n_v)
    # Written as "variable = expression", the form of all lifts: w_i = w_i - (M w - force)_i.
    rest = w - (system.mass_matrix @ w - force)
    return w, [_Lift(Role.ACCELERATION, f"{name}'", w[i], rest[i]) for i, name in enumerate(system.names["v"])]


def _algebraic(lifts: Sequence[_Lift]) -> Algebraic:
    """Return the lifted variables as algebraic variables: products are bounded by [0, 1], accelerations are free."""
    bounded = np.array([lift.role is not Role.ACCELERATION for lift in lifts])
    return Algebraic(
        ca.vertcat(*[lift.symbol for lift in lifts]),
        ca.vertcat(*[lift.symbol - lift.expression for lift in lifts]),
        lower=np.where(bounded, 0.0, -np.inf),
        upper=np.where(bounded, 1.0, np.inf),
        initial=np.where(bounded, 0.25, 0.0),  # (1 - 1/2)^2: the weight at the start value 1/2 of the step functions
        names=tuple(lift.name for lift in lifts),
    )
