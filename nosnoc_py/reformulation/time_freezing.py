"""Time-freezing: contact mechanics with inelastic impacts as a Filippov system with a clock (Sections 3 to 5).

Below the surface and on the way down, f_c < 0 and n'v < 0, an auxiliary motion takes the normal velocity to zero while
the clock stands still. A jump becomes a piece of continuous motion, and contact becomes sliding between the free motion
and the auxiliary one, in which the clock runs slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.reformulation.dcs import DCS, Equation, Pair, Variable
from nosnoc_py.reformulation.filippov import step_functions
from nosnoc_py.systems.cls import CLS, Contact

CLOCK, SPEED = "clock", "speed_of_time"


@dataclass(frozen=True, eq=False, kw_only=True)
class Frozen:
    """A CLS in numerical time.

    Attributes
    ----------
    dcs : DCS
        States (q, v, clock), controls (u, speed of time).
    running : SX scalar
        dt/dtau.
    """

    dcs: DCS
    running: ca.SX


def time_freezing_dcs(system: CLS, *, running_cost: Any = 0, a_n: float = 10.0) -> DCS:
    """Write a `CLS` with inelastic impacts as a Filippov system with a clock state.

    y' = s (theta_ODE (v, M^-1 f_v, 1) + sum_i beta_i (0, M^-1 (n_i - mu_i b_i sign(v_t,i)) a_n, 0)), with
    theta_ODE = prod_i (1 - beta_i) and beta_i = (1 - alpha_1,i)(1 - alpha_2,i). alpha_1 has one value per finite
    element: with one per stage an element may hold the rest of a jump and contact motion at once, with zero residuals.

    Raises
    ------
    OptionError
        If a contact bounces or has friction in space: the message names a method that fits.
    """
    for contact in system.contacts:
        _check(contact)
    clock, speed = ca.SX.sym(CLOCK), ca.SX.sym(SPEED)
    variables: list[Variable] = []
    equations: list[Equation] = []
    pairs: list[Pair] = []
    running, push = ca.SX(1), ca.SX(system.n_q, 1)
    for contact in system.contacts:
        normal = system.normal(contact)
        functions = [contact.gap, ca.dot(normal, system.v)]
        if contact.frictional:
            functions.append(ca.dot(contact.tangent, system.v))
        alphas = []
        for k, function in enumerate(functions):
            alpha, made = step_functions(f"{contact.name}][{k}", function, per_element=k == 0)
            alphas.append(alpha)
            variables += made.variables
            equations += made.equations
            pairs += made.pairs
        beta, lift = _lift(f"beta[{contact.name}]", (1 - alphas[0]) * (1 - alphas[1]))
        variables.append(lift[0])
        equations.append(lift[1])
        direction = normal
        if contact.frictional:
            direction = normal - contact.friction[0] * (2 * alphas[2] - 1) * contact.tangent
        push += beta * a_n * direction
        running = running * (1 - beta)
    if len(system.contacts) > 1:
        running, lift = _lift("theta_ode", running)
        variables.append(lift[0])
        equations.append(lift[1])
    moving = ca.vertcat(system.v, ca.solve(system.mass_matrix, system.force), 1)
    auxiliary = ca.vertcat(ca.SX(system.n_q, 1), ca.solve(system.mass_matrix, push), 0)
    return DCS(
        x=ca.vertcat(system.x, clock),
        u=ca.vertcat(system.u, speed),
        p=system.p,
        x_names=(*system.state_names, CLOCK),
        u_names=(*system.control_names, SPEED),
        p_names=system.parameter_names,
        x_scale=np.append(system.x_nominal, 1.0),
        u_scale=np.append(system.u_nominal, 1.0),
        variables=tuple(variables),
        flow=speed * (running * moving + auxiliary),
        running_cost=speed * running * ca.SX(running_cost),
        equations=tuple(equations),
        pairs=tuple(pairs),
        units={**system.units, CLOCK: "s"},
    )


def _check(contact: Contact) -> None:
    if contact.restitution > 0.0:
        raise OptionError(
            f"TimeFreezing: contact {contact.name!r} bounces (restitution {contact.restitution:g}); use ns.FESDJ(...)."
        )
    if contact.frictional and len(contact.friction) > 1:
        raise OptionError(f"TimeFreezing: contact {contact.name!r} has friction in space; use ns.FESDJ(...).")


def _lift(name: str, expression: ca.SX) -> tuple[ca.SX, tuple[Variable, Equation]]:
    """A product as a variable of its own."""
    symbol = ca.SX.sym(name)
    variable = Variable(name=name, symbol=symbol, components=(name,), initial=0.25)
    return symbol, (variable, Equation(name=f"lift {name}", expression=symbol - expression, components=(name,)))
