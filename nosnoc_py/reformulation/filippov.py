"""Filippov systems as DCS: Stewart's convex multipliers, step functions, projections. None of them has a jump law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.reformulation.dcs import DCS, Equation, Pair, Variable
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.pss import PDS, PSS, Heaviside, Modes

Representation = Literal["stewart", "step"]


def filippov_dcs(system: Described, *, running_cost: Any = 0, dcs_mode: Representation = "stewart") -> DCS:
    """Write a PSS, a Heaviside system or a PDS as a DCS.

    Parameters
    ----------
    system : PSS, Heaviside or PDS
    running_cost : SX scalar
    dcs_mode : {"stewart", "step"}
        How a PSS is written; the others have one form.
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
    flow, variables, equations, pairs = system.flow, [], [], []
    for modes in system.modes:
        theta, multiplier = ca.SX.sym("theta", modes.count), ca.SX.sym("lambda", modes.count)
        mu = ca.SX.sym("mu")
        labels = _labels("theta", modes), _labels("lambda", modes)
        least = ca.mmin(modes.indicators)
        variables += [
            Variable(
                name=f"theta[{modes.name}]", symbol=theta, components=labels[0], lower=0.0, initial=1 / modes.count
            ),
            Variable(
                name=f"lambda[{modes.name}]",
                symbol=multiplier,
                components=labels[1],
                lower=0.0,
                initial=1.0,
                estimate=modes.indicators - least,
                boundary=True,
            ),
            Variable(
                name=f"mu[{modes.name}]",
                symbol=mu,
                components=(f"mu[{modes.name}]",),
                estimate=least,
                boundary=True,
            ),
        ]
        equations += [
            Equation(
                name=f"indicators[{modes.name}]",
                expression=modes.indicators - multiplier - mu,
                components=_labels("g", modes),
                boundary=True,
            ),
            Equation(
                name=f"simplex[{modes.name}]",
                expression=ca.sum1(theta) - 1,
                components=(f"simplex[{modes.name}]",),
            ),
        ]
        pairs.append(
            Pair(
                name=modes.name,
                a=multiplier,
                b=theta,
                a_labels=labels[1],
                b_labels=labels[0],
                continuous=True,
                components=labels[0],
            )
        )
        flow += ca.horzcat(*modes.flows) @ theta
    return _dcs(system, flow, running_cost, variables, equations, pairs)


def _labels(quantity: str, modes: Modes) -> tuple[str, ...]:
    return tuple(f"{quantity}[{modes.name}][{i}]" for i in range(modes.count))


def step_dcs(system: PSS, running_cost: Any = 0) -> DCS:
    """A PSS with theta_i the product of alpha_j or 1 - alpha_j over its signs, products lifted two by two."""
    flow, variables, equations, pairs = system.flow, [], [], []
    for modes in system.modes:
        if modes.functions is None:
            raise ModelError(
                f"modes {modes.name!r}: step functions need switching functions and signs, given indicators; use "
                "dcs_mode='stewart'."
            )
        alpha, made = step_functions(modes.name, modes.functions)
        theta, lifts = _products(modes, alpha)
        variables += [*made.variables, *lifts[0]]
        equations += [*made.equations, *lifts[1]]
        pairs += made.pairs
        flow += ca.horzcat(*modes.flows) @ theta
    return _dcs(system, flow, running_cost, variables, equations, pairs)


def heaviside_dcs(system: Heaviside, running_cost: Any = 0) -> DCS:
    """alpha_i in argmin over [0, 1] of -c_i(x) alpha_i, through its KKT conditions."""
    alpha, made = step_functions("", system.functions)
    flow = ca.substitute(system.flow, system.alpha, alpha)
    return _dcs(system, flow, running_cost, made.variables, made.equations, made.pairs)


@dataclass(frozen=True, eq=False)
class Made:
    """Parts of a DCS."""

    variables: list[Variable]
    equations: list[Equation]
    pairs: list[Pair]


def step_functions(name: str, functions: ca.SX, *, per_element: bool = False) -> tuple[ca.SX, Made]:
    """Step functions of c: c = lambda_p - lambda_n, lambda_n against alpha, lambda_p against 1 - alpha."""
    count = functions.shape[0]

    def labels(quantity: str) -> tuple[str, ...]:
        return tuple(f"{quantity}[{name}][{i}]" if name else f"{quantity}[{i}]" for i in range(count))

    def title(quantity: str) -> str:
        return f"{quantity}[{name}]" if name else quantity

    alpha = ca.SX.sym("alpha", count)
    low, high = ca.SX.sym("lambda_n", count), ca.SX.sym("lambda_p", count)
    parts = ((low, "lambda_n", ca.fmax(-functions, 0)), (high, "lambda_p", ca.fmax(functions, 0)))
    variables = [
        Variable(
            name=title("alpha"),
            symbol=alpha,
            components=labels("alpha"),
            lower=0.0,
            upper=1.0,
            initial=0.5,
            per_element=per_element,
        ),
        *[
            Variable(
                name=title(key),
                symbol=symbol,
                components=labels(key),
                lower=0.0,
                initial=1.0,
                estimate=estimate,
                boundary=True,
            )
            for symbol, key, estimate in parts
        ],
    ]
    balance = Equation(
        name=title("functions"), expression=functions - high + low, components=labels("c"), boundary=True
    )
    pairs = [
        Pair(
            name=title(key),
            a=multiplier,
            b=side,
            a_labels=labels(key),
            b_labels=labels(quantity),
            continuous=True,
            components=labels(key),
        )
        for multiplier, key, side, quantity in (
            (low, "lambda_n", alpha, "alpha"),
            (high, "lambda_p", 1 - alpha, "1 - alpha"),
        )
    ]
    return alpha, Made(variables, [balance], pairs)


def _products(modes: Modes, alpha: ca.SX) -> tuple[ca.SX, tuple[list[Variable], list[Equation]]]:
    """theta_i, the product of its step functions, with every product of three or more lifted factor by factor."""
    variables: list[Variable] = []
    equations: list[Equation] = []
    known: dict[tuple[float, ...], ca.SX] = {}
    rows = []
    for signs in modes.signs:
        factors = [alpha[j] if sign > 0 else 1 - alpha[j] for j, sign in enumerate(signs)]
        product = factors[0]
        for j, factor in enumerate(factors[1:], start=2):
            product = product * factor
            key = tuple(signs[:j])
            if j < len(factors) and key not in known:
                label = f"beta[{modes.name}][{len(known)}]"
                known[key] = ca.SX.sym("beta")
                variables.append(Variable(name=label, symbol=known[key], components=(label,), initial=0.5**j))
                equations.append(Equation(name=f"lift {label}", expression=known[key] - product, components=(label,)))
            product = known.get(key, product)
        rows.append(product)
    return ca.vertcat(*rows), (variables, equations)


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
        components=system.constraint_names,
        events=("contact", "release"),
    )
    variables = [Variable(name="lambda", symbol=force, components=labels, lower=0.0)]
    return _dcs(system, flow, running_cost, variables, [], [pair])


def _dcs(
    system: Described,
    flow: ca.SX,
    running_cost: Any,
    variables: list[Variable],
    equations: list[Equation],
    pairs: list[Pair],
    **more: Any,
) -> DCS:
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
        flow=flow,
        running_cost=ca.SX(running_cost),
        equations=tuple(equations),
        pairs=tuple(pairs),
        units=dict(system.units),
        **more,
    )
