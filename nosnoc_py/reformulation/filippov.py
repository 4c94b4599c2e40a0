"""Filippov systems and projected dynamics as DCS; their states do not jump, so that there is no jump law.

Three forms, each the KKT conditions of a small optimisation problem whose solution selects the right-hand side:

- Stewart (Stewart 1990): x' = sum theta_i f_i(x), theta a minimiser of g(x)'theta over the unit simplex. Regions are
  {x : g_i(x) < g_j(x) for all j}. The multipliers lambda of theta >= 0 are continuous in time, theta jumps.
- Heaviside step functions (Aizerman & Pyatnitskii 1974; time-freezing, Eqs. 30-32): alpha_j a minimiser of
  -c_j(x) alpha over [0, 1]; theta is a product of alpha_j and 1 - alpha_j.
- Projection: the multiplier of 0 <= c(x) keeps the state in its set.

Both Filippov forms give Filippov's convex combination (Filippov 1988) on a switching surface. Because the multipliers
(lambda, lambda_n, lambda_p) are continuous, finite elements detect switches from them: they get values of their own
at the boundaries of elements (`Variable.boundary`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.reformulation.dcs import DCS, Equation, Pair, Switch, Variable, of_each
from nosnoc_py.reformulation.switching import sliding_exit_conditions
from nosnoc_py.roles import Role
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.pss import PDS, PSS, Heaviside, Modes

Representation = Literal["stewart", "step"]


@dataclass(frozen=True, eq=False, kw_only=True)
class DCSContribution:
    """Variables, equations, pairs and switches that one nonsmooth part adds to a DCS; contributions can be added.

    `per_element` are the (pair, component) whose side b has one value per finite element.
    """

    variables: tuple[Variable, ...] = ()
    equations: tuple[Equation, ...] = ()
    pairs: tuple[Pair, ...] = ()
    switches: tuple[Switch, ...] = ()
    per_element: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: DCSContribution) -> DCSContribution:
        return DCSContribution(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


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
        If regions are defined by indicators and dcs_mode is "step".
    """
    if isinstance(system, PDS):
        return projected_dcs(system, running_cost)
    if isinstance(system, Heaviside):
        return heaviside_dcs(system, running_cost)
    assert isinstance(system, PSS)
    return stewart_dcs(system, running_cost) if dcs_mode == "stewart" else step_dcs(system, running_cost)


def stewart_dcs(system: PSS, running_cost: Any = 0) -> DCS:
    """Write a PSS with Stewart's convex multipliers.

    x' = f_0 + sum theta_i f_i, where theta solves min g(x)'theta over the unit simplex. Its KKT conditions are
    g(x) - lambda - mu e = 0, 0 <= lambda perp theta >= 0, sum theta = 1 with mu = min_i g_i(x); lambda is continuous.
    """
    flow, parts = system.flow, DCSContribution()
    for modes in system.modes:
        theta, contribution = _simplex(modes)
        flow += ca.horzcat(*modes.flows) @ theta
        parts += contribution
    return _assemble(system, flow, running_cost, parts)


def _simplex(modes: Modes) -> tuple[ca.SX, DCSContribution]:
    """Return the convex multipliers theta of the regions of one partition, and the conditions that determine them."""

    def title(quantity: str) -> str:
        return f"{quantity}[{modes.name}]"

    def labels(quantity: str) -> tuple[str, ...]:
        return of_each(title(quantity), range(modes.count))

    least = ca.mmin(modes.indicators)  # the KKT conditions give mu = min g and lambda = g - min g: exact estimates
    starts: dict[str, Any] = {"lower": 0.0, "initial": 1.0, "estimate": modes.indicators - least, "boundary": True}
    # theta starts in the middle of the simplex: at a vertex an interior-point method would begin on its bounds.
    theta = Variable.create(title("theta"), labels("theta"), Role.CONVEX_MULTIPLIER, lower=0.0, initial=1 / modes.count)
    multiplier = Variable.create(title("lambda"), labels("lambda"), Role.REGION_MULTIPLIER, **starts)
    mu = Variable.create(title("mu"), (title("mu"),), Role.LOWEST_INDICATOR, estimate=least, boundary=True)
    # Imposed at boundaries, too (`boundary`): lambda is a function of the state there, which locates the switches.
    rest = modes.indicators - multiplier.symbol - mu.symbol
    equations = (
        replace(Equation.of(title("indicators"), Role.INDICATORS, rest, labels("g")), boundary=True),
        Equation.of(title("simplex"), Role.SIMPLEX, ca.sum1(theta.symbol) - 1),
    )
    # Side a is lambda, because it is continuous; theta jumps at switches.
    sides = [(side.components, side.symbol) for side in (multiplier, theta)]
    pair = Pair.between(Role.REGION, *sides, name=modes.name, continuous=True, components=theta.components)
    contribution = DCSContribution(
        variables=(theta, multiplier, mu), equations=equations, pairs=(pair,), switches=_switches(modes)
    )
    return theta.symbol, contribution


def _switches(modes: Modes) -> tuple[Switch, ...]:
    """Return a switch per switching function, read from the active regions; without functions one per partition."""
    # Without signs the number of the region is the "side" of a single switch.
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
    """Write a PSS with step functions: theta_i is the product of alpha_j (sign +1) or 1 - alpha_j (sign -1).

    Products of three or more factors are lifted, so that every equation is at most bilinear.
    """
    flow, parts = system.flow, DCSContribution()
    for modes in system.modes:
        if modes.functions is None:
            raise OptionError(
                f"dcs_mode: step functions need switching functions and signs, but modes {modes.name!r} have "
                "indicators; use dcs_mode='stewart'."
            )
        alpha, steps = step_functions(modes.functions, modes.function_names or ())
        theta, lifts = _products(modes, alpha)
        flow += ca.horzcat(*modes.flows) @ theta
        parts += steps + lifts
    return _assemble(system, flow, running_cost, parts)


def heaviside_dcs(system: Heaviside, running_cost: Any = 0) -> DCS:
    """Write a Heaviside system: alpha_i minimises -c_i(x) alpha_i over [0, 1], through its KKT conditions."""
    _, parts = step_functions(
        system.functions, system.function_names or (), symbol=system.alpha, per_element=system.per_element
    )
    return _assemble(system, system.flow, running_cost, parts)


def step_functions(
    functions: ca.SX, names: Sequence[str], *, symbol: ca.SX | None = None, per_element: Sequence[int] = ()
) -> tuple[ca.SX, DCSContribution]:
    """Return step functions alpha of c and their conditions (time-freezing, Eqs. 30, 31).

    c = lambda_p - lambda_n, 0 <= lambda_n perp alpha >= 0, 0 <= lambda_p perp 1 - alpha >= 0: alpha is 1 where c > 0,
    0 where c < 0, and undetermined in [0, 1] where c = 0.

    Parameters
    ----------
    functions : SX (n,)
        c(x).
    names : sequence of str
    symbol : SX (n,), optional
        Symbols of alpha; default new ones.
    per_element : sequence of int
        Functions whose alpha has one value per finite element.
    """
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
    # lambda_n is the negative part of c and belongs to the bound alpha >= 0, lambda_p the positive part to alpha <= 1.
    sides = {
        "lambda_n": ((of_each("alpha", names), alpha), ca.fmax(-functions, 0), Role.NEGATIVE_PART),
        "lambda_p": ((of_each("1 - alpha", names), 1 - alpha), ca.fmax(functions, 0), Role.POSITIVE_PART),
    }
    low, high = (
        Variable.create(key + of, of_each(key, names), role, lower=0.0, initial=1.0, estimate=estimate, boundary=True)
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
            # The pair of lambda_n is active where alpha > 0, which is the side c > 0; that of lambda_p where alpha < 1.
            members=(("lambda_n" + of, i, 1.0), ("lambda_p" + of, i, -1.0)),
            function=functions[i],
            silent=i in per_element,  # alpha is undetermined while the function is zero: changes of it are no events
        )
        for i, name in enumerate(names)
    )
    contribution = DCSContribution(
        variables=(*variables, low, high),
        equations=(balance,),
        pairs=pairs,
        switches=switches,
        per_element=tuple((key + of, i) for key in sides for i in per_element),
    )
    return alpha, contribution


def _products(modes: Modes, alpha: ca.SX) -> tuple[ca.SX, DCSContribution]:
    """Return theta_i, the products of step functions; products of three or more are lifted factor by factor."""
    lifts = DCSContribution()
    known: dict[tuple[float, ...], ca.SX] = {}  # regions with the same leading signs share a lifted product
    rows = []
    for signs in modes.signs:
        factors = [alpha[j] if sign > 0 else 1 - alpha[j] for j, sign in enumerate(signs)]
        product = factors[0]
        for j, factor in enumerate(factors[1:], start=2):
            # The last product is the weight itself and appears in the flow: only those before it are lifted.
            product = product * factor
            key = tuple(signs[:j])
            if j < len(factors) and key not in known:
                # 0.5**j is the value of the product at the start value 1/2 of all step functions.
                known[key], lift = _lift(f"beta[{modes.name}][{len(known)}]", product, 0.5**j)
                lifts += lift
            product = known.get(key, product)
        rows.append(product)
    return ca.vertcat(*rows), lifts


def _lift(name: str, expression: ca.SX, initial: float) -> tuple[ca.SX, DCSContribution]:
    """Introduce a variable that equals a product."""
    lifted = Variable.create(name, (name,), Role.PRODUCT, initial=initial)
    equation = Equation.of(f"lift {name}", Role.PRODUCT, lifted.symbol - expression, (name,))
    return lifted.symbol, DCSContribution(variables=(lifted,), equations=(equation,))


def projected_dcs(system: PDS, running_cost: Any = 0) -> DCS:
    """Write projected dynamics: x' = f + E^-1 grad c lambda, 0 <= c(x) perp lambda >= 0."""
    names = system.constraint_names
    # The state does not jump: a constraint is met with a force that begins to act, as at an inelastic contact in x'.
    force = Variable.create("lambda", of_each("lambda", names), Role.CONSTRAINT_FORCE, lower=0.0)
    sides = (of_each("c", names), system.constraints), (force.components, force.symbol)
    # Side a is a function of the state, so that the force needs no values at boundaries of elements.
    pair = Pair.between(Role.PROJECTION, *sides, name="constraint", components=names, events=("contact", "release"))
    flow = system.flow + system.normals @ force.symbol
    return _assemble(system, flow, running_cost, DCSContribution(variables=(force,), pairs=(pair,)))


def _user_algebraic(system: Described) -> DCSContribution:
    """Return the user's algebraic variables and equations."""
    algebraic = system.algebraic
    if algebraic is None:
        return DCSContribution()
    names = tuple(algebraic.names or ())
    variable = Variable(
        name="z",
        symbol=algebraic.z,
        components=names,
        role=Role.ALGEBRAIC,
        lower=algebraic.lower,
        upper=algebraic.upper,
        initial=algebraic.initial,
    )
    equation = Equation.of("algebraic", Role.ALGEBRAIC, algebraic.equations, tuple(f"0 = {name}" for name in names))
    return DCSContribution(variables=(variable,), equations=(equation,))


def _assemble(system: Described, flow: ca.SX, running_cost: Any, parts: DCSContribution) -> DCS:
    parts += _user_algebraic(system)
    return DCS.of(
        system,
        running_cost,
        flow=flow,
        switch_conditions=sliding_exit_conditions(parts.pairs, parts.per_element),
        **{name: getattr(parts, name) for name in ("variables", "equations", "pairs", "switches")},
    )
