"""Smoothed contact, friction and switching: a nonsmooth system as a smooth one with a smoothing parameter sigma.

sigma is a pure number that goes to zero; every width is sigma times a typical magnitude, which the nominal values of
the system give in the units of what is smoothed.

Normal force, with the gap g and its rate, delta = sigma |dg/dq q_nominal|, F the nominal force, 1/m = n'M^-1 n:

    lambda = F phi(-(g + T g') / delta),    phi(y) = (y + sqrt(y^2 + 4)) / 2,    T = 2 zeta sqrt(m delta / F),

which is lambda (g + T g' + delta lambda / F) = delta F with lambda > 0: a relaxed complementarity, and at the same time
a spring of stiffness F / delta with a damper of ratio zeta. The force as a whole is cut off at zero, so a body is
slowed down from g = T |g'| on, before it touches, through exactly half an oscillation of the damped spring, whose
velocities have the ratio e = exp(-pi zeta / sqrt(1 - zeta^2)) at any speed. So zeta = -ln e / sqrt(pi^2 + ln^2 e) is
Newton's law of restitution in the limit of short impacts; e = 1 has no damper, and e = 0 the critical one, with which a
body comes to rest on the surface without passing through it. An impact lasts pi sqrt(m delta / F), about, so that its
time errs by sqrt(sigma); everything else by sigma.

Friction: lambda_t = -mu lambda W (W v_t) / sqrt(|W v_t|^2 + (sigma v_nominal)^2) with the weights W of anisotropy: a
contact that sticks creeps. Step functions: alpha = (1 + y / sqrt(1 + y^2)) / 2, y = c / (sigma |dc/dx x_nominal|);
regions are products of them, or, told by Stewart's indicators, have weights that fall exponentially with g_i - min g.
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
from nosnoc_py.reformulation.dcs import Equation, of_each
from nosnoc_py.roles import Role
from nosnoc_py.systems.algebraic import Algebraic
from nosnoc_py.systems.cls import CLS, Contact
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.pss import PDS, PSS, Heaviside, Modes

SMOOTHING = "smoothing"
# Where a function is stationary it has no width of its own; relative to the nominal gradient 1.
FLAT = 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class SmoothSystem(PSS):
    """x' = flow(x, z, u, p), 0 = equations(x, z, u, p): a piecewise smooth system of one piece.

    It stands for another system, which has been checked, and shares its symbols, `x_initial` too: an optimal control
    problem of the one is one of the other.
    """

    modes: Any = ()
    original: Described

    def __post_init__(self) -> None:
        self._describe()
        self._set("x_initial", self.original.x_initial)


@dataclass(frozen=True, eq=False, kw_only=True)
class Condition:
    """0 <= a, b >= 0, a b = 0 in the nonsmooth system, for every component: what smoothing violates.

    Attributes
    ----------
    a, b : SX (n,)
        In x and p of the smooth system.
    labels : tuple of str
        Of the products.
    """

    a: ca.SX
    b: ca.SX
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Smoothed:
    """A system without events in the place of one with them.

    Attributes
    ----------
    original : CLS, PSS or Heaviside
    system : SmoothSystem
        The same states and controls; parameters (p, sigma).
    conditions : tuple of Condition
        What holds in the original system, for honest residuals.
    outputs : tuple of Equation
        What finite elements with switch detection have as variables, by the same names: lambda_normal[ground],
        theta[side][0]; expressions of x and p.
    units : mapping
        Of states, controls and outputs.
    durations : SX (n,)
        How long impacts last on the contacts that bounce [s], in x and p: what time steps have to resolve.
    """

    original: Described
    system: SmoothSystem
    conditions: tuple[Condition, ...]
    outputs: tuple[Equation, ...]
    units: Mapping[str, str]
    durations: ca.SX

    @property
    def sigma(self) -> ca.SX:
        """Symbol of the smoothing parameter, the last of p."""
        return self.system.p[-1]


def smooth(system: Described) -> Smoothed:
    """Replace contacts, friction and switches by smooth laws of width sigma, one more parameter of the system.

    Parameters
    ----------
    system : CLS, PSS or Heaviside

    Raises
    ------
    OptionError
        For a projected or a hybrid system, which have no forces or steps that could be made smooth.
    """
    if isinstance(system, PDS | HybridSystem):
        raise OptionError(
            f"smoothing: a {type(system).__name__} has no forces or steps that could be made smooth, only projections "
            f"or maps of its state; use {system.methods}."
        )
    check_type(system, (CLS, PSS, Heaviside), "system")
    if isinstance(system, CLS):
        return _contacts(system)
    if isinstance(system, Heaviside):
        return _steps(system)
    assert isinstance(system, PSS)
    return _regions(system)


def damping_ratio(restitution: Any) -> Any:
    """Damping ratio zeta of a spring whose half oscillation keeps the fraction e of the velocity; 1 for e = 0."""
    if isinstance(restitution, float) and restitution == 0.0:
        return 1.0
    decrement = -ca.log(ca.fmax(restitution, FLAT))
    return decrement / ca.sqrt(np.pi**2 + decrement**2)


def positive_part(y: ca.SX) -> ca.SX:
    """phi(y) = (y + sqrt(y^2 + 4)) / 2, the positive root of phi (phi - y) = 1, without cancellation."""
    total = ca.sqrt(y**2 + 4) + _size(y)
    return ca.if_else(y < 0, 2 / total, total / 2)


def smooth_step(y: ca.SX) -> ca.SX:
    """(1 + y / sqrt(1 + y^2)) / 2, without cancellation where it is small."""
    root = ca.sqrt(1 + y**2)
    rest = 0.5 / (root * (root + _size(y)))
    return ca.if_else(y < 0, rest, 1 - rest)


def _size(y: ca.SX) -> ca.SX:
    """|y| with the derivative 1 at zero: a body may start at rest on the surface."""
    return ca.if_else(y < 0, -y, y)


def width(function: ca.SX, symbols: ca.SX, nominal: np.ndarray) -> ca.SX:
    """Typical change |df/dx x_nominal| of a scalar function, in its own units."""
    return ca.sqrt(ca.sumsqr(ca.gradient(function, symbols) * ca.DM(nominal)) + FLAT**2)


# --- contacts ---


@dataclass(frozen=True, eq=False, kw_only=True)
class _Force:
    """What one law contributes: a generalised force, its condition, what solutions show of it."""

    push: ca.SX
    condition: Condition
    outputs: tuple[Equation, ...]


def _contacts(system: CLS) -> Smoothed:
    sigma = ca.SX.sym(SMOOTHING)
    forces, durations, units = [], [], dict(system.units)
    for contact, scale in zip(system.contacts, system.nominal["force"], strict=True):
        normal, duration = _spring(system, contact, float(scale), sigma)
        forces.append(_normal_force(system, contact, normal))
        units[f"lambda_normal[{contact.name}]"] = "N"
        if contact.frictional:
            forces.append(_friction(system, contact, normal, sigma))
            units |= dict.fromkeys(forces[-1].outputs[0].components, "N")
            units |= dict.fromkeys(forces[-1].outputs[1].components, "m/s")
        if contact.bounces:
            durations.append(duration)
    acceleration, lifted = _acceleration(system, sum((f.push for f in forces), system.force))
    flow, lasting = system.state_rate(acceleration), ca.vertcat(ca.SX(0, 1), *durations)
    outputs, conditions = [output for force in forces for output in force.outputs], [f.condition for f in forces]
    return _smoothed(system, sigma, flow, lifted, conditions, outputs, durations=lasting, units=units)


def _spring(system: CLS, contact: Contact, scale: float, sigma: ca.SX) -> tuple[ca.SX, ca.SX]:
    """The normal force of a contact, and how long an impact on it lasts."""
    normal, gap, zeta = system.normal(contact), contact.gap, damping_ratio(contact.restitution)
    delta = sigma * width(gap, system.q, system.nominal["q"])
    # Of a normal that is not the gap's gradient, the force acts on the gap by their product.
    slope = system.along_v(gap).T
    mass = 1 / ca.fabs(ca.dot(slope, ca.solve(system.mass_matrix, normal)))
    period, rate = ca.sqrt(mass * delta / scale), system.gap_rate(contact)
    force = scale * positive_part(-(gap + 2 * zeta * period * rate) / delta)
    return force, np.pi * period / ca.sqrt(ca.fmax(1.0 - zeta**2, FLAT))


def _normal_force(system: CLS, contact: Contact, force: ca.SX) -> _Force:
    label = f"lambda_normal[{contact.name}]"
    return _Force(
        push=system.normal(contact) * force,
        condition=Condition(a=contact.gap, b=force, labels=(f"gap[{contact.name}] * {label}",)),
        outputs=(Equation.of(label, Role.NORMAL_FORCE, force),),
    )


def _friction(system: CLS, contact: Contact, normal: ca.SX, sigma: ca.SX) -> _Force:
    mu, weight = contact.cone
    slip = weight * system.slip(contact)
    creep = sigma * float(system.nominal["v"].max())
    force = -mu * normal * weight * slip / ca.sqrt(ca.sumsqr(slip) + creep**2)
    slack = mu * normal - _length(force / weight)
    label = f"slip_speed[{contact.name}] * slack[{contact.name}]"
    return _Force(
        push=contact.tangent @ force,
        condition=Condition(a=_length(slip), b=slack, labels=(label,)),
        outputs=(
            Equation.of(f"lambda_tangent[{contact.name}]", Role.TANGENTIAL_FORCE, force),
            Equation.of(f"slip[{contact.name}]", Role.SLIP_VELOCITY, system.slip(contact)),
        ),
    )


def _length(vector: ca.SX) -> ca.SX:
    return ca.fabs(vector) if vector.numel() == 1 else ca.sqrt(ca.sumsqr(vector))


def _acceleration(system: CLS, force: ca.SX) -> tuple[ca.SX, Algebraic | None]:
    """v' by a constant mass matrix, or as algebraic variables, so that the equations of motion invert none of q."""
    if system.mass_matrix.is_constant():
        return ca.solve(system.mass_matrix, force), None
    a = ca.SX.sym("acceleration", system.n_v)
    return a, Algebraic(a, system.mass_matrix @ a - force, names=of_each("acceleration", system.names["v"]))


# --- switches ---


def _regions(system: PSS) -> Smoothed:
    sigma = ca.SX.sym(SMOOTHING)
    flow, outputs, conditions = system.flow, [], []
    for modes in system.modes:
        by_signs = modes.functions is not None
        theta = (_weights_by_signs if by_signs else _weights_by_indicators)(system, modes, sigma)
        flow += ca.horzcat(*modes.flows) @ theta
        names, others = (of_each(f"{of}[{modes.name}]", range(modes.count)) for of in ("theta", "lambda"))
        outputs.append(Equation.of(f"theta[{modes.name}]", Role.CONVEX_MULTIPLIER, theta, names))
        labels = tuple(f"{one} * {other}" for one, other in zip(others, names, strict=True))
        conditions.append(Condition(a=modes.indicators - ca.mmin(modes.indicators), b=theta, labels=labels))
    return _smoothed(system, sigma, flow, system.algebraic, conditions, outputs)


def _weights_by_signs(system: PSS, modes: Modes, sigma: ca.SX) -> ca.SX:
    """Products of the smooth steps of all switching functions, or of what they leave to one; their sum is one."""
    above, below = (_smooth_steps(c, system, sigma) for c in (modes.functions, -modes.functions))
    factors = ([above[j] if sign > 0 else below[j] for j, sign in enumerate(signs)] for signs in modes.signs)
    return ca.vertcat(*[reduce(mul, own, ca.SX(1)) for own in factors])


def _weights_by_indicators(system: PSS, modes: Modes, sigma: ca.SX) -> ca.SX:
    """exp(-(g_i - min g) / (sigma G)), divided by their sum; G is how much indicators typically differ."""
    g = modes.indicators
    mean = ca.sum1(g) / modes.count
    squares = [width(g[i] - mean, system.x, system.x_nominal) ** 2 for i in range(modes.count)]
    scale = sigma * ca.sqrt(sum(squares, ca.SX(0)) / modes.count)
    shares = ca.exp(-(g - ca.mmin(g)) / scale)
    return shares / ca.sum1(shares)


def _steps(system: Heaviside) -> Smoothed:
    sigma, c = ca.SX.sym(SMOOTHING), system.functions
    alpha, rest = (_smooth_steps(side, system, sigma) for side in (c, -c))
    own = system.algebraic
    if own is not None:
        own = replace(own, equations=ca.substitute(own.equations, system.alpha, alpha))
    flow = ca.substitute(system.flow, system.alpha, alpha)
    names = system.function_names or ()
    conditions = [
        Condition(a=ca.fmax(-c, 0), b=alpha, labels=tuple(f"lambda_n[{n}] * alpha[{n}]" for n in names)),
        Condition(a=ca.fmax(c, 0), b=rest, labels=tuple(f"lambda_p[{n}] * (1 - alpha[{n}])" for n in names)),
    ]
    output = Equation.of("alpha", Role.STEP_FUNCTION, alpha, of_each("alpha", names))
    return _smoothed(system, sigma, flow, own, conditions, [output])


def _smoothed(
    system: Described,
    sigma: ca.SX,
    flow: ca.SX,
    algebraic: Algebraic | None,
    conditions: Sequence[Condition],
    outputs: Sequence[Equation],
    **more: Any,
) -> Smoothed:
    smooth_system = SmoothSystem(
        **system.extended(p={system.unused(SMOOTHING): sigma}),
        flow=flow,
        algebraic=algebraic,
        units=dict(system.units),
        p_default=np.append(system.p_or_zeros, 1.0),
        original=system,
    )
    fields = {"units": dict(system.units), "durations": ca.SX(0, 1), **more}
    return Smoothed(
        original=system, system=smooth_system, conditions=tuple(conditions), outputs=tuple(outputs), **fields
    )


def _smooth_steps(functions: ca.SX, system: Described, sigma: ca.SX) -> ca.SX:
    """Smooth steps of all functions, each over its own width."""
    rows = ca.vertsplit(functions)
    return ca.vertcat(*[smooth_step(c / (sigma * width(c, system.x, system.x_nominal))) for c in rows])
