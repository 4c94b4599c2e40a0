"""Filippov systems as DCS: Stewart's convex multipliers, step functions, projections. None of them has a jump law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.reformulation.dcs import DCS, Equation, Pair, Switch, Variable
from nosnoc_py.reformulation.departures import departures
from nosnoc_py.roles import Role
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.pss import PDS, PSS, Heaviside, Modes

Representation = Literal["stewart", "step"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Parts:
    """What one nonsmooth part contributes to a DCS; `held` are multipliers with one value per finite element."""

    variables: tuple[Variable, ...] = ()
    equations: tuple[Equation, ...] = ()
    pairs: tuple[Pair, ...] = ()
    switches: tuple[Switch, ...] = ()
    held: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: Parts) -> Parts:
        return Parts(
            variables=self.variables + other.variables,
            equations=self.equations + other.equations,
            pairs=self.pairs + other.pairs,
            switches=self.switches + other.switches,
            held=self.held + other.held,
        )


def filippov_dcs(system: Described, *, running_cost: Any = 0, dcs_mode: Representation = "stewart") -> DCS:
    """Write a PSS, a Heaviside system or a PDS as a DCS.

    Parameters
    ----------
    system : PSS, Heaviside or PDS
    running_cost : SX scalar
    dcs_mode : {"stewart", "step"}
        How a PSS is written; the others have one form.

    Raises
    ------
    OptionError
        If regions that are told by indicators are to be written with step functions.
    """
    if isinstance(system, PDS):
        return projected_dcs(system, running_cost)
    if isinstance(system, Heaviside):
        return heaviside_dcs(system, running_cost)
    assert isinstance(system, PSS)
    return stewart_dcs(system, running_cost) if dcs_mode == "stewart" else step_dcs(system, running_cost)


def stewart_dcs(system: PSS, running_cost: Any = 0) -> DCS:
    """x' = f_0 + sum theta_i f_i with theta a solution of min g'theta over the simplex, through its KKT conditions.

    g(x) - lambda - mu e = 0, 0 <= lambda perpendicular theta >= 0, sum theta = 1. lambda is continuous.
    """
    flow, parts = system.flow, Parts()
    for modes in system.modes:
        theta, made = _simplex(modes)
        flow += ca.horzcat(*modes.flows) @ theta
        parts += made
    return _dcs(system, flow, running_cost, parts)


def _simplex(modes: Modes) -> tuple[ca.SX, Parts]:
    """Convex multipliers theta of the regions of one partition, and the conditions that determine them."""

    def labels(quantity: str) -> tuple[str, ...]:
        return tuple(f"{quantity}[{modes.name}][{i}]" for i in range(modes.count))

    def title(quantity: str) -> str:
        return f"{quantity}[{modes.name}]"

    theta, multiplier, mu = ca.SX.sym("theta", modes.count), ca.SX.sym("lambda", modes.count), ca.SX.sym("mu")
    least = ca.mmin(modes.indicators)
    variables = (
        Variable(
            name=title("theta"),
            symbol=theta,
            components=labels("theta"),
            role=Role.CONVEX_MULTIPLIER,
            lower=0.0,
            initial=1 / modes.count,
        ),
        Variable(
            name=title("lambda"),
            symbol=multiplier,
            components=labels("lambda"),
            role=Role.REGION_MULTIPLIER,
            lower=0.0,
            initial=1.0,
            estimate=modes.indicators - least,
            boundary=True,
        ),
        Variable(
            name=title("mu"),
            symbol=mu,
            components=(title("mu"),),
            role=Role.LOWEST_INDICATOR,
            estimate=least,
            boundary=True,
        ),
    )
    equations = (
        Equation(
            name=title("indicators"),
            expression=modes.indicators - multiplier - mu,
            components=labels("g"),
            role=Role.INDICATORS,
            boundary=True,
        ),
        Equation(
            name=title("simplex"), expression=ca.sum1(theta) - 1, components=(title("simplex"),), role=Role.SIMPLEX
        ),
    )
    pair = Pair(
        name=modes.name,
        a=multiplier,
        b=theta,
        a_labels=labels("lambda"),
        b_labels=labels("theta"),
        role=Role.REGION,
        continuous=True,
        components=labels("theta"),
    )
    return theta, Parts(variables=variables, equations=equations, pairs=(pair,), switches=_switches(modes))


def _switches(modes: Modes) -> tuple[Switch, ...]:
    """Sides of the switching functions by the regions that are active; without functions, the regions themselves."""
    sides = np.arange(modes.count)[:, None] if modes.signs is None else modes.signs
    return tuple(
        Switch(
            name=name,
            members=tuple((modes.name, i, float(sides[i, j])) for i in range(modes.count)),
            function=None if modes.functions is None else modes.functions[j],
        )
        for j, name in enumerate(modes.function_names or ())
    )


def step_dcs(system: PSS, running_cost: Any = 0) -> DCS:
    """A PSS with theta_i the product of alpha_j or 1 - alpha_j over its signs, products lifted two by two."""
    flow, parts = system.flow, Parts()
    for modes in system.modes:
        if modes.functions is None:
            raise OptionError(
                f"dcs_mode: step functions need switching functions and signs, but modes {modes.name!r} have "
                "indicators; use dcs_mode='stewart'."
            )
        alpha, made = step_functions(modes.functions, modes.function_names or ())
        theta, lifts = _products(modes, alpha)
        flow += ca.horzcat(*modes.flows) @ theta
        parts += made + lifts
    return _dcs(system, flow, running_cost, parts)


def heaviside_dcs(system: Heaviside, running_cost: Any = 0) -> DCS:
    """alpha_i in argmin over [0, 1] of -c_i(x) alpha_i, through its KKT conditions."""
    _, parts = step_functions(
        system.functions, system.function_names or (), symbol=system.alpha, per_element=system.per_element
    )
    return _dcs(system, system.flow, running_cost, parts)


def step_functions(
    functions: ca.SX, names: Sequence[str], *, symbol: ca.SX | None = None, per_element: Sequence[int] = ()
) -> tuple[ca.SX, Parts]:
    """Step functions of c: c = lambda_p - lambda_n, lambda_n against alpha, lambda_p against 1 - alpha."""
    count = functions.shape[0]
    alpha = ca.SX.sym("alpha", count) if symbol is None else symbol
    low, high = ca.SX.sym("lambda_n", count), ca.SX.sym("lambda_p", count)

    def labels(quantity: str) -> tuple[str, ...]:
        return tuple(f"{quantity}[{name}]" for name in names)

    variables = tuple(
        Variable(
            name=f"alpha[{name}]",
            symbol=alpha[i],
            components=(f"alpha[{name}]",),
            role=Role.STEP_FUNCTION,
            lower=0.0,
            upper=1.0,
            initial=0.5,
            per_element=i in per_element,
        )
        for i, name in enumerate(names)
    )
    sides = {
        "lambda_n": (low, alpha, "alpha", ca.fmax(-functions, 0), Role.NEGATIVE_PART),
        "lambda_p": (high, 1 - alpha, "1 - alpha", ca.fmax(functions, 0), Role.POSITIVE_PART),
    }
    of = f"[{', '.join(names)}]"
    multipliers = tuple(
        Variable(
            name=key + of,
            symbol=multiplier,
            components=labels(key),
            role=role,
            lower=0.0,
            initial=1.0,
            estimate=estimate,
            boundary=True,
        )
        for key, (multiplier, _, _, estimate, role) in sides.items()
    )
    balance = Equation(
        name="functions" + of,
        expression=functions - high + low,
        components=labels("c"),
        role=Role.FUNCTION_PARTS,
        boundary=True,
    )
    pairs = tuple(
        Pair(
            name=key + of,
            a=multiplier,
            b=side,
            a_labels=labels(key),
            b_labels=labels(quantity),
            role=role,
            continuous=True,
            components=labels(key),
        )
        for key, (multiplier, side, quantity, _, role) in sides.items()
    )
    switches = tuple(
        Switch(
            name=name,
            members=(("lambda_n" + of, i, 1.0), ("lambda_p" + of, i, -1.0)),
            function=functions[i],
            silent=i in per_element,  # its side is open where the function is zero
        )
        for i, name in enumerate(names)
    )
    held = tuple((key + of, i) for key in sides for i in per_element)
    parts = Parts(variables=variables + multipliers, equations=(balance,), pairs=pairs, switches=switches, held=held)
    return alpha, parts


def _products(modes: Modes, alpha: ca.SX) -> tuple[ca.SX, Parts]:
    """theta_i, the product of its step functions, with every product of three or more lifted factor by factor."""
    lifts = Parts()
    known: dict[tuple[float, ...], ca.SX] = {}
    rows = []
    for signs in modes.signs:
        factors = [alpha[j] if sign > 0 else 1 - alpha[j] for j, sign in enumerate(signs)]
        product = factors[0]
        for j, factor in enumerate(factors[1:], start=2):
            product = product * factor
            key = tuple(signs[:j])
            if j < len(factors) and key not in known:
                known[key], made = _lift(f"beta[{modes.name}][{len(known)}]", product, 0.5**j)
                lifts += made
            product = known.get(key, product)
        rows.append(product)
    return ca.vertcat(*rows), lifts


def _lift(name: str, expression: ca.SX, initial: float) -> tuple[ca.SX, Parts]:
    """A product as a variable of its own."""
    symbol = ca.SX.sym(name)
    variable = Variable(name=name, symbol=symbol, components=(name,), role=Role.PRODUCT, initial=initial)
    equation = Equation(name=f"lift {name}", expression=symbol - expression, components=(name,), role=Role.PRODUCT)
    return symbol, Parts(variables=(variable,), equations=(equation,))


def projected_dcs(system: PDS, running_cost: Any = 0) -> DCS:
    """x' = f + E^-1 grad c lambda, 0 <= c(x) perpendicular lambda >= 0."""
    count = system.constraints.shape[0]
    force = ca.SX.sym("lambda", count)
    labels = tuple(f"lambda[{name}]" for name in system.constraint_names)
    flow = system.flow + ca.DM(np.linalg.inv(system.metric)) @ ca.jacobian(system.constraints, system.x).T @ force
    pair = Pair(
        name="constraint",
        a=system.constraints,
        b=force,
        a_labels=tuple(f"c[{name}]" for name in system.constraint_names),
        b_labels=labels,
        role=Role.PROJECTION,
        components=system.constraint_names,
        events=("contact", "release"),
    )
    variable = Variable(name="lambda", symbol=force, components=labels, role=Role.CONSTRAINT_FORCE, lower=0.0)
    return _dcs(system, flow, running_cost, Parts(variables=(variable,), pairs=(pair,)))


def _own(system: Described) -> Parts:
    """The user's algebraic variables and equations."""
    own = system.algebraic
    if own is None:
        return Parts()
    names = tuple(own.names or ())
    variable = Variable(
        name="z",
        symbol=own.z,
        components=names,
        role=Role.ALGEBRAIC,
        lower=own.lower,
        upper=own.upper,
        initial=own.initial,
    )
    equation = Equation(
        name="algebraic",
        expression=own.equations,
        components=tuple(f"0 = {n}" for n in names),
        role=Role.ALGEBRAIC,
    )
    return Parts(variables=(variable,), equations=(equation,))


def _dcs(system: Described, flow: ca.SX, running_cost: Any, parts: Parts) -> DCS:
    every = parts + _own(system)
    return DCS(
        x=system.x,
        u=system.u,
        p=system.p,
        x_names=system.state_names,
        u_names=system.control_names,
        p_names=system.parameter_names,
        x_scale=system.x_nominal,
        u_scale=system.u_nominal,
        variables=every.variables,
        flow=flow,
        running_cost=ca.SX(running_cost),
        equations=every.equations,
        pairs=every.pairs,
        isolations=departures(every.pairs, every.held),
        switches=every.switches,
        units=dict(system.units),
    )
