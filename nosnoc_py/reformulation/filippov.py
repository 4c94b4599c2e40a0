"""Filippov systems as DCS: Stewart's convex multipliers, step functions, projections. None of them has a jump law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.reformulation.dcs import DCS, Equation, Pair, Switch, Variable, of_each
from nosnoc_py.reformulation.switching import departures
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
        return Parts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


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

    def title(quantity: str) -> str:
        return f"{quantity}[{modes.name}]"

    def labels(quantity: str) -> tuple[str, ...]:
        return of_each(title(quantity), range(modes.count))

    least = ca.mmin(modes.indicators)
    starts: dict[str, Any] = {"lower": 0.0, "initial": 1.0, "estimate": modes.indicators - least, "boundary": True}
    theta = Variable.made(title("theta"), labels("theta"), Role.CONVEX_MULTIPLIER, lower=0.0, initial=1 / modes.count)
    multiplier = Variable.made(title("lambda"), labels("lambda"), Role.REGION_MULTIPLIER, **starts)
    mu = Variable.made(title("mu"), (title("mu"),), Role.LOWEST_INDICATOR, estimate=least, boundary=True)
    rest = modes.indicators - multiplier.symbol - mu.symbol
    equations = (
        replace(Equation.of(title("indicators"), Role.INDICATORS, rest, labels("g")), boundary=True),
        Equation.of(title("simplex"), Role.SIMPLEX, ca.sum1(theta.symbol) - 1),
    )
    sides = [(side.components, side.symbol) for side in (multiplier, theta)]
    pair = Pair.between(Role.REGION, *sides, name=modes.name, continuous=True, components=theta.components)
    parts = Parts(variables=(theta, multiplier, mu), equations=equations, pairs=(pair,), switches=_switches(modes))
    return theta.symbol, parts


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
    variables = tuple(
        Variable(
            name=label,
            symbol=alpha[i],
            components=(label,),
            role=Role.STEP_FUNCTION,
            lower=0.0,
            upper=1.0,
            initial=0.5,
            per_element=i in per_element,
        )
        for i, label in enumerate(of_each("alpha", names))
    )
    of = f"[{', '.join(names)}]"
    sides = {
        "lambda_n": ((of_each("alpha", names), alpha), ca.fmax(-functions, 0), Role.NEGATIVE_PART),
        "lambda_p": ((of_each("1 - alpha", names), 1 - alpha), ca.fmax(functions, 0), Role.POSITIVE_PART),
    }
    low, high = (
        Variable.made(key + of, of_each(key, names), role, lower=0.0, initial=1.0, estimate=estimate, boundary=True)
        for key, (_, estimate, role) in sides.items()
    )
    rest = functions - high.symbol + low.symbol
    balance = replace(Equation.of("functions" + of, Role.FUNCTION_PARTS, rest, of_each("c", names)), boundary=True)
    pairs = tuple(
        Pair.between(
            role, (part.components, part.symbol), side, name=part.name, continuous=True, components=part.components
        )
        for part, (side, _, role) in zip((low, high), sides.values(), strict=True)
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
    parts = Parts(variables=(*variables, low, high), equations=(balance,), pairs=pairs, switches=switches, held=held)
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
    lifted = Variable.made(name, (name,), Role.PRODUCT, initial=initial)
    equation = Equation.of(f"lift {name}", Role.PRODUCT, lifted.symbol - expression, (name,))
    return lifted.symbol, Parts(variables=(lifted,), equations=(equation,))


def projected_dcs(system: PDS, running_cost: Any = 0) -> DCS:
    """x' = f + E^-1 grad c lambda, 0 <= c(x) perpendicular lambda >= 0."""
    names = system.constraint_names
    force = Variable.made("lambda", of_each("lambda", names), Role.CONSTRAINT_FORCE, lower=0.0)
    sides = (of_each("c", names), system.constraints), (force.components, force.symbol)
    pair = Pair.between(Role.PROJECTION, *sides, name="constraint", components=names, events=("contact", "release"))
    flow = system.flow + system.normals @ force.symbol
    return _dcs(system, flow, running_cost, Parts(variables=(force,), pairs=(pair,)))


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
    equation = Equation.of("algebraic", Role.ALGEBRAIC, own.equations, tuple(f"0 = {name}" for name in names))
    return Parts(variables=(variable,), equations=(equation,))


def _dcs(system: Described, flow: ca.SX, running_cost: Any, parts: Parts) -> DCS:
    every = parts + _own(system)
    return DCS.of(
        system,
        running_cost,
        flow=flow,
        isolations=departures(every.pairs, every.held),
        **{name: getattr(every, name) for name in ("variables", "equations", "pairs", "switches")},
    )
