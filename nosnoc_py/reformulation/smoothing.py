"""Smoothed contact, friction and switching: a nonsmooth system as a smooth one with a smoothing parameter sigma.

sigma is a dimensionless number that goes to zero. Every smoothing width is sigma times a typical magnitude, computed
from the nominal values of the system, so that it has the unit of the quantity that is smoothed.

Normal force, with the gap g and its rate, delta = sigma |dg/dq q_nominal|, F the nominal force, 1/m = n'M^-1 n:

    lambda = F phi(-(g + T g') / delta),    phi(y) = (y + sqrt(y^2 + 4)) / 2,    T = 2 zeta sqrt(m delta / F),

which is lambda (g + T g' + delta lambda / F) = delta F with lambda > 0: a relaxed complementarity, and at the same time
a spring of stiffness F / delta with a damper of ratio zeta. Spring and damper together never pull. A body is therefore
decelerated from g = T |g'| on, before it touches, during exactly half an oscillation of the damped spring. Its
velocities before and after have the ratio e = exp(-pi zeta / sqrt(1 - zeta^2)) at any speed, so that
zeta = -ln e / sqrt(pi^2 + ln^2 e) reproduces Newton's law of restitution in the limit of short impacts. e = 1 has no
damper; e = 0 has critical damping, and the body comes to rest on the surface. An impact lasts about
pi sqrt(m delta / F): times of impacts are off by O(sqrt(sigma)), everything else by O(sigma).

Friction: lambda_t = -mu lambda W (W v_t) / sqrt(|W v_t|^2 + (sigma v_nominal)^2) with the weights W of anisotropy; a
contact in stick creeps. Step functions: alpha = (1 + y / sqrt(1 + y^2)) / 2, y = c / (sigma |dc/dx x_nominal|). Regions
given by signs have products of them as weights, regions given by Stewart's indicators exp(-(g_i - min g) / (sigma G)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

from nosnoc_py.declared import declared
from nosnoc_py.errors import OptionError, check_type
from nosnoc_py.reformulation.dcs import Equation, of_each
from nosnoc_py.roles import Role
from nosnoc_py.systems.algebraic import Algebraic
from nosnoc_py.systems.cls import CLS, Contact
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.pss import PSS, Heaviside, Modes

SMOOTHING = "smoothing"
# Lower bound of the width of a function, relative to a nominal gradient of 1: where its gradient vanishes the smooth
# step would otherwise divide by zero. Also the smallest restitution in a logarithm, far below any physical one.
LEAST_WIDTH = 1e-6


@declared(kw_only=True)
class SmoothSystem(PSS):
    """Smooth system x' = flow(x, z, u, p), 0 = equations(x, z, u, p), as a piecewise smooth system with one region.

    It has the symbols of the system it approximates (also `x_initial`), so that an optimal control problem of the
    original is valid for it. The original has been validated, so validation is skipped.
    """

    modes: Any = ()
    original: Described

    def __attrs_post_init__(self) -> None:
        self._describe()
        self._set(x_initial=self.original.x_initial)


@dataclass(frozen=True, eq=False, kw_only=True)
class Condition:
    """Complementarity 0 <= a perp b >= 0 of the nonsmooth system, which the smooth system violates.

    Attributes
    ----------
    a, b : SX (n,)
        In x and p of the smooth system.
    labels : tuple of str
        Labels of the products.
    """

    a: ca.SX
    b: ca.SX
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Smoothed:
    """Smooth approximation of a nonsmooth system.

    Attributes
    ----------
    original : CLS, PSS or Heaviside
    system : SmoothSystem
        Same states and controls; parameters (p, sigma).
    conditions : tuple of Condition
        Complementarities of the original system: their violation is reported as residual.
    outputs : tuple of Equation
        Expressions of x and p for the quantities that are variables in finite elements with switch detection, under
        the same names: lambda_normal[ground], theta[side][0].
    units : mapping
        Units of states, controls and outputs.
    durations : SX (n,)
        Durations of impacts on the contacts with restitution [s], in x and p; time steps have to resolve them.
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
    """Replace contacts, friction and switches by smooth laws of width sigma, an additional parameter of the system.

    Parameters
    ----------
    system : CLS, PSS or Heaviside

    Raises
    ------
    OptionError
        For projected and hybrid systems, which have no forces or step functions to smooth.
    """
    if isinstance(system, Described) and not system.smoothable:
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
    """Return the damping ratio zeta with which half an oscillation keeps the fraction e of the speed; 1 for e = 0."""
    if isinstance(restitution, float) and restitution == 0.0:
        return 1.0
    decrement = -ca.log(ca.fmax(restitution, LEAST_WIDTH))  # logarithmic decrement of half an oscillation
    return decrement / ca.sqrt(np.pi**2 + decrement**2)


def positive_part(y: ca.SX) -> ca.SX:
    """Return (y + sqrt(y^2 + 4)) / 2, the positive root of phi (phi - y) = 1, without cancellation for y < 0."""
    # For y < 0 the sum y + sqrt(y^2 + 4) cancels; its conjugate 2 / (sqrt(y^2 + 4) - y) does not.
    total = ca.sqrt(y**2 + 4) + _magnitude(y)
    return ca.if_else(y < 0, 2 / total, total / 2)


def smooth_step(y: ca.SX) -> ca.SX:
    """Return (1 + y / sqrt(1 + y^2)) / 2, without cancellation where it is small."""
    root = ca.sqrt(1 + y**2)
    rest = 0.5 / (root * (root + _magnitude(y)))
    return ca.if_else(y < 0, rest, 1 - rest)


def _magnitude(y: ca.SX) -> ca.SX:
    """Return |y| with the derivative 1 at zero, where `fabs` has 0: a body may start at rest on the surface."""
    return ca.if_else(y < 0, -y, y)


def width(function: ca.SX, symbols: ca.SX, nominal: np.ndarray) -> ca.SX:
    """Return the typical change |df/dx x_nominal| of a scalar function, in its own unit."""
    floor = LEAST_WIDTH * float(np.max(nominal, initial=0.0))
    return ca.sqrt(ca.sumsqr(ca.gradient(function, symbols) * ca.DM(nominal)) + floor**2)


# --- contacts ---


@dataclass(frozen=True, eq=False, kw_only=True)
class _Force:
    """Contribution of one law: a generalised force (n_v,), its condition, and its outputs."""

    generalised: ca.SX
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
    acceleration, lifted = _acceleration(system, sum((f.generalised for f in forces), system.force))
    flow, lasting = system.state_rate(acceleration), ca.vertcat(ca.SX(0, 1), *durations)
    outputs, conditions = [output for force in forces for output in force.outputs], [f.condition for f in forces]
    return _smoothed(system, sigma, flow, lifted, conditions, outputs, durations=lasting, units=units)


def _spring(system: CLS, contact: Contact, scale: float, sigma: ca.SX) -> tuple[ca.SX, ca.SX]:
    """Return the smooth normal force of a contact [N], and the duration of an impact on it [s]."""
    normal, gap, zeta = system.normal(contact), contact.gap, damping_ratio(contact.restitution)
    delta = sigma * width(gap, system.q, system.nominal["q"])
    # A user's normal need not be the gradient of the gap: the force along the normal acts on the gap by their product.
    slope = system.along_v(gap).T
    mass = 1 / ca.fabs(ca.dot(slope, ca.solve(system.mass_matrix, normal)))
    # 1 / omega of a spring with stiffness scale / delta.
    period, rate = ca.sqrt(mass * delta / scale), system.gap_rate(contact)
    force = scale * positive_part(-(gap + 2 * zeta * period * rate) / delta)
    # Critical damping (e = 0) does not oscillate: the bound keeps the expression finite; only bouncing contacts use it.
    return force, np.pi * period / ca.sqrt(ca.fmax(1.0 - zeta**2, LEAST_WIDTH))


def _normal_force(system: CLS, contact: Contact, force: ca.SX) -> _Force:
    label = f"lambda_normal[{contact.name}]"
    return _Force(
        generalised=system.normal(contact) * force,
        condition=Condition(a=contact.gap, b=force, labels=(f"gap[{contact.name}] * {label}",)),
        outputs=(Equation.of(label, Role.NORMAL_FORCE, force),),
    )


def _friction(system: CLS, contact: Contact, normal: ca.SX, sigma: ca.SX) -> _Force:
    mu, weight = contact.cone
    slip = weight * system.slip(contact)
    creep = sigma * float(system.nominal["v"].max())  # slip speed at which friction reaches 1 / sqrt(2) of its bound
    force = -mu * normal * weight * slip / ca.sqrt(ca.sumsqr(slip) + creep**2)
    # The cone is round in scaled coordinates: W^-1 lambda_t opposes W v_t.
    slack = mu * normal - _length(force / weight)
    label = f"slip_speed[{contact.name}] * slack[{contact.name}]"
    return _Force(
        generalised=contact.tangent @ force,
        condition=Condition(a=_length(slip), b=slack, labels=(label,)),
        outputs=(
            Equation.of(f"lambda_tangent[{contact.name}]", Role.TANGENTIAL_FORCE, force),
            Equation.of(f"slip[{contact.name}]", Role.SLIP_VELOCITY, system.slip(contact)),
        ),
    )


def _length(vector: ca.SX) -> ca.SX:
    # The root of a square has the derivative 0 / 0 at zero; `fabs` has 0 there.
    return ca.fabs(vector) if vector.numel() == 1 else ca.sqrt(ca.sumsqr(vector))


def _acceleration(system: CLS, force: ca.SX) -> tuple[ca.SX, Algebraic | None]:
    """Return v', solved for a constant mass matrix, else as algebraic variables (M(q) is not inverted)."""
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
    """Return the products of smooth steps of +c_j or -c_j by the signs of each region; they add up to one."""
    # Steps of -c, not 1 minus steps of c: both tails are then free of cancellation.
    above, below = (_smooth_steps(c, system, sigma) for c in (modes.functions, -modes.functions))
    factors = ([above[j] if sign > 0 else below[j] for j, sign in enumerate(signs)] for signs in modes.signs)
    return ca.vertcat(*[reduce(mul, own, ca.SX(1)) for own in factors])


def _weights_by_indicators(system: PSS, modes: Modes, sigma: ca.SX) -> ca.SX:
    """Return exp(-(g_i - min g) / (sigma G)) divided by their sum; G is the typical difference of indicators."""
    g = modes.indicators
    mean = ca.sum1(g) / modes.count  # only differences of indicators matter: their common part has no scale
    squares = [width(g[i] - mean, system.x, system.x_nominal) ** 2 for i in range(modes.count)]
    scale = sigma * ca.sqrt(sum(squares, ca.SX(0)) / modes.count)
    shares = ca.exp(-(g - ca.mmin(g)) / scale)  # the minimum keeps the largest one at 1: no overflow, no 0 / 0
    return shares / ca.sum1(shares)


def _steps(system: Heaviside) -> Smoothed:
    sigma, c = ca.SX.sym(SMOOTHING), system.functions
    alpha, rest = (_smooth_steps(side, system, sigma) for side in (c, -c))
    own = system.algebraic
    if own is not None:
        # The user's equations may contain alpha as well.
        own = evolve(own, equations=ca.substitute(own.equations, system.alpha, alpha))
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
        p_default=np.append(system.p_or_zeros, 1.0),  # sigma; every caller sets it
        original=system,
    )
    fields = {"units": dict(system.units), "durations": ca.SX(0, 1), **more}
    return Smoothed(
        original=system, system=smooth_system, conditions=tuple(conditions), outputs=tuple(outputs), **fields
    )


def _smooth_steps(functions: ca.SX, system: Described, sigma: ca.SX) -> ca.SX:
    """Return the smooth steps of all functions, each over its own width."""
    rows = ca.vertsplit(functions)
    return ca.vertcat(*[smooth_step(c / (sigma * width(c, system.x, system.x_nominal))) for c in rows])
