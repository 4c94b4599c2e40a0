"""Friction cones: each writes the law of maximal dissipation for one contact (FESD-J, Eqs. 1e, 5-8).

A cone writes its law once, for a normal multiplier and a slip velocity: with forces at the RK stages, and in capitals
with impulses and the velocity after the jump at the nodes (Eqs. 11d-f). The law is that of isotropic friction; weights
make it anisotropic, because |W^-1 lambda_t| <= mu lambda_n dissipates most where W^-1 lambda_t opposes W v_t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.reformulation.dcs import And, Equation, Indicator, Leaf, Or, Pair, Variable, around, indexed
from nosnoc_py.roles import Role
from nosnoc_py.systems.cls import Contact

FrictionCone = Literal["auto", "box", "polar", "polyhedral", "paper"]
# Of the polyhedral cone in space, unless the options say otherwise.
DIRECTIONS = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class FrictionLaw:
    """The friction law of one contact, at the stages or at a node.

    Attributes
    ----------
    force : SX (n_t,)
        lambda_t (or Lambda_t) [N (s)].
    variables, equations, inequalities, products : tuple
        Of the products, which are said here and used at the stages and at the nodes, `left` is not given.
    speed, slack : SX scalar
        A measure of the slip, and what is left of the cone.
    direction : SX (n_t,) or None
        Unit vector that has to be coherent in an element.
    """

    force: ca.SX
    variables: tuple[Variable, ...]
    equations: tuple[Equation, ...] = ()
    inequalities: tuple[Equation, ...] = ()
    products: tuple[Pair, ...] = ()
    speed: ca.SX
    slack: ca.SX
    direction: ca.SX | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Slip:
    """What a cone is given: the slip velocity W v_t [m/s], the normal multiplier, mu, W, and how to call things.

    mu and W are numbers or expressions of p.

    `directions` are those of a polyhedral cone in space.
    """

    name: str
    velocity: ca.SX
    normal: ca.SX
    friction: Any
    weights: Any
    impulsive: bool
    velocity_scale: float = 1.0
    force_scale: float = 1.0
    directions: int = DIRECTIONS

    @property
    def size(self) -> int:
        """n_t."""
        return int(self.velocity.numel())

    def label(self, quantity: str) -> str:
        """A quantity with the contact's name, in capitals for impulses."""
        return f"{quantity.capitalize() if self.impulsive else quantity}[{self.name}]"

    def labels(self, quantity: str, size: int) -> tuple[str, ...]:
        """Labels of the components of a quantity."""
        return indexed(self.label(quantity), size)

    def variable(self, quantity: str, role: Role, size: int, **fields: Any) -> Variable:
        """A variable of this contact."""
        return Variable.made(self.label(quantity), self.labels(quantity, size), role, of=self.name, **fields)

    def force(self, quantity: str, role: Role, size: int, **fields: Any) -> Variable:
        """A variable that makes the force; as an impulse it is zero where no jump is allowed."""
        return self.variable(quantity, role, size, scale=self.force_scale, impulsive=self.impulsive, **fields)

    def product(self, name: str, role: Role, a: tuple[str, ca.SX], b: tuple[str, ca.SX], **fields: Any) -> Pair:
        """Quantities a and b, given with their names, against each other."""
        sides = [(self.labels(quantity, value.numel()), value) for quantity, value in (a, b)]
        return Pair.between(role, *sides, name=f"{name}[{self.name}]", **fields)

    def equation(self, quantity: str, role: Role, expression: ca.SX) -> Equation:
        """An equation of this contact."""
        return Equation.of(self.label(quantity), role, expression)


def _parts(slip: Slip, cross: Literal["both", "none"]) -> tuple[Variable, Variable, Equation, Pair]:
    """Positive and negative parts of the slip velocity, v_t = xi+ - xi- (Eq. 6a), and their product."""
    fields = {"lower": 0.0, "scale": slip.velocity_scale}
    plus = slip.variable("xi_plus", Role.SLIP_PLUS, slip.size, estimate=ca.fmax(0, slip.velocity), **fields)
    minus = slip.variable("xi_minus", Role.SLIP_MINUS, slip.size, estimate=ca.fmax(0, -slip.velocity), **fields)
    xi = plus.symbol, minus.symbol
    parts = slip.product("slip_parts", Role.SLIP_PARTS, ("xi_plus", xi[0]), ("xi_minus", xi[1]), cross=cross)
    return plus, minus, slip.equation("slip_velocity", Role.SLIP_VELOCITY, slip.velocity - xi[0] + xi[1]), parts


def box(slip: Slip) -> FrictionLaw:
    """Planar: mu lambda_n +- lambda_t >= 0 against the parts xi+- of the slip velocity.

    Linear, and sound in free flight, where lambda_n = 0 leaves the slip velocity alone; the paper's (5) does not. A
    reversal needs no products of xi+ and xi- over different stages (Eq. 22): before it mu lambda_n + lambda_t > 0,
    which xi+ after it forbids in the same element. So a velocity that changes its sign in flight is no switch.
    """
    if slip.size != 1:
        raise OptionError(
            f"friction_cone: 'box' is for planar contacts, and {slip.name!r} has two tangents; use 'polar'."
        )
    force = slip.force("lambda_tangent", Role.TANGENTIAL_FORCE, 1)
    plus, minus, equation, parts = _parts(slip, "none")
    above, below = slip.friction * slip.normal + force.symbol, slip.friction * slip.normal - force.symbol
    return FrictionLaw(
        force=force.symbol,
        variables=(force, plus, minus),
        equations=(equation,),
        products=(
            slip.product("slip_plus", Role.SLIP, ("xi_plus", plus.symbol), ("slack_plus", above)),
            slip.product("slip_minus", Role.SLIP, ("xi_minus", minus.symbol), ("slack_minus", below)),
            parts,
        ),
        speed=plus.symbol + minus.symbol,
        slack=ca.fmin(above, below),
    )


def polar(slip: Slip) -> FrictionLaw:
    """The exact cone: lambda_t = -r d, |d| = 1, v_t = s d, 0 <= s against mu lambda_n - r >= 0, |r| <= mu lambda_n.

    The direction d is the same for the force and for the velocity, so a relaxation of s (mu lambda_n - r) does not
    let the angle err by its square root. r has a sign: where a contact sticks, the force may pass through zero while
    d stays within a right angle of itself, and d_1'd_j >= 0 then says that a slip does not reverse in an element.
    """
    radius = slip.force("friction_radius", Role.FRICTION_RADIUS, 1)
    start = slip.velocity / ca.sqrt(ca.sumsqr(slip.velocity) + 1e-12)
    first = np.eye(slip.size)[0]
    still = ca.if_else(ca.sumsqr(slip.velocity) < 1e-12, 1.0, 0.0)
    numbers = {"lower": -1.5, "upper": 1.5, "initial": first, "estimate": still * first + (1 - still) * start}
    direction = slip.variable("direction", Role.FRICTION_DIRECTION, slip.size, **numbers)
    size = ca.sqrt(ca.sumsqr(slip.velocity))
    speed = slip.variable("slip_speed", Role.SLIP_SPEED, 1, lower=0.0, scale=slip.velocity_scale, estimate=size)
    r, d, s = radius.symbol, direction.symbol, speed.symbol
    slack = slip.friction * slip.normal - r
    return FrictionLaw(
        force=-slip.weights * r * d,
        variables=(radius, direction, speed),
        equations=(
            slip.equation("slip_velocity", Role.SLIP_VELOCITY, slip.velocity - s * d),
            slip.equation("unit_direction", Role.UNIT_DIRECTION, ca.sumsqr(d) - 1),
        ),
        inequalities=(slip.equation("friction_radius_below", Role.RADIUS_BOUND, slip.friction * slip.normal + r),),
        products=(slip.product("slip", Role.SLIP, ("slip_speed", s), ("slack", slack)),),
        speed=s,
        slack=slack,
        direction=d,
    )


def spread(size: int, directions: int) -> np.ndarray:
    """Evenly spread unit directions (size, count) of a polyhedral cone; in the plane there are two."""
    count = 2 if size == 1 else directions
    angle = 2 * np.pi * np.arange(count) / count
    return np.round(np.vstack([np.cos(angle), np.sin(angle)])[:size], 15)


def polyhedral(slip: Slip) -> FrictionLaw:
    """Eq. 8: lambda_t = D lambda_d, 0 <= lambda_d against D'v_t + gamma e, 0 <= gamma against mu lambda_n - e'lambda_d.

    D holds evenly spread unit directions, opposite ones among them; in the plane the two of them are exact.
    """
    D = ca.DM(spread(slip.size, slip.directions))
    count = int(D.shape[1])
    force = slip.force("lambda_direction", Role.CONE_FORCE, count, lower=0.0)
    size = ca.norm_2(slip.velocity)
    gamma = slip.variable("gamma", Role.SLIP_MULTIPLIER, 1, lower=0.0, scale=slip.velocity_scale, estimate=size)
    shift = D.T @ slip.velocity + gamma.symbol
    slack = slip.friction * slip.normal - ca.sum1(force.symbol)
    return FrictionLaw(
        force=slip.weights * (D @ force.symbol),
        variables=(force, gamma),
        products=(
            slip.product("slip", Role.SLIP, ("gamma", gamma.symbol), ("slack", slack)),
            slip.product("slip_direction", Role.SLIP_DIRECTION, ("shift", shift), ("lambda_direction", force.symbol)),
        ),
        speed=gamma.symbol,
        slack=slack,
    )


def paper(slip: Slip) -> FrictionLaw:
    """Eqs. 5 and 6 as printed (with the sign of 5a): 0 = v_t + 2 gamma lambda_t, 0 <= gamma against beta >= 0.

    Kept for comparison: lambda_n = 0 forces lambda_t = 0 and so v_t = 0. It has no solution where a contact is open
    and its bodies move past each other, nor at a node without an impulse where they slip; only relaxations hide it.
    """
    force = slip.force("lambda_tangent", Role.TANGENTIAL_FORCE, slip.size)
    gamma = slip.variable("gamma", Role.SLIP_MULTIPLIER, 1, lower=0.0)
    plus, minus, equation, parts = _parts(slip, "both")
    weighted = force.symbol / slip.weights
    slack = (slip.friction * slip.normal) ** 2 - ca.sumsqr(weighted)
    return FrictionLaw(
        force=force.symbol,
        variables=(force, gamma, plus, minus),
        equations=(
            equation,
            slip.equation("stationarity", Role.MAXIMAL_DISSIPATION, slip.velocity + 2 * gamma.symbol * weighted),
        ),
        products=(slip.product("slip", Role.SLIP, ("gamma", gamma.symbol), ("beta", slack)), parts),
        speed=ca.sum1(plus.symbol + minus.symbol),
        slack=slack,
    )


CONES: dict[str, Callable[..., FrictionLaw]] = {"box": box, "polar": polar, "polyhedral": polyhedral, "paper": paper}


def cone_of(contact: Contact, cone: FrictionCone) -> str:
    """The cone of one contact: by default the box in the plane, and the polar one in space."""
    if cone != "auto":
        return cone
    return "box" if contact.tangent.shape[1] == 1 else "polar"


# --- step equilibration and isolation: what says that a contact goes on slipping, or sticking (Table 2) ---


@dataclass(frozen=True)
class FrictionModes:
    """Trees over the pairs of one contact.

    `steady` is positive where the friction mode does not change at a node; `stuck` where it stuck before; `moves` where
    it slips after; `slack` is zero where the force before the node is at the cone.
    """

    steady: Indicator
    stuck: Indicator
    moves: Indicator
    slack: Indicator


def _box_modes(name: str, count: int) -> FrictionModes:
    plus, minus = f"slip_plus[{name}]", f"slip_minus[{name}]"
    return FrictionModes(
        steady=Or((around(plus, "a"), around(minus, "a"), And((around(plus, "b"), around(minus, "b"))))),
        stuck=And((Leaf("backward", plus, "b", 0), Leaf("backward", minus, "b", 0))),
        moves=Or((Leaf("forward", plus, "a", 0), Leaf("forward", minus, "a", 0))),
        slack=And((Leaf("end", plus, "b", 0), Leaf("end", minus, "b", 0))),
    )


def _speed_modes(name: str, steady_slip: Indicator) -> FrictionModes:
    pair = f"slip[{name}]"
    return FrictionModes(
        steady=Or((steady_slip, around(pair, "b"))),
        stuck=Leaf("backward", pair, "b", 0),
        moves=Leaf("forward", pair, "a", 0),
        slack=Leaf("end", pair, "b", 0),
    )


def _polar_modes(name: str, count: int) -> FrictionModes:
    # A reversal passes through zero at the node; components of v_t do so in smooth slip and are no switches.
    pair = f"slip[{name}]"
    return _speed_modes(name, And((Leaf("node", pair, "a", 0), around(pair, "a"))))


def _polyhedral_modes(name: str, count: int) -> FrictionModes:
    pair, direction = f"slip[{name}]", f"slip_direction[{name}]"
    same = [
        Or((And((Leaf("node", direction, "a", i), around(direction, "a", i))), around(direction, "b", i)))
        for i in range(count)
    ]
    return _speed_modes(name, And((around(pair, "a"), *same)))


def _paper_modes(name: str, count: int) -> FrictionModes:
    parts = f"slip_parts[{name}]"
    slips = [around(parts, side, i) for side in ("a", "b") for i in range(count)]
    moves = tuple(Leaf("forward", parts, side, i) for side in ("a", "b") for i in range(count))
    return replace(_speed_modes(name, Or(tuple(slips))), moves=Or(moves))


def modes_of(contact: Contact, cone: FrictionCone, law: FrictionLaw) -> FrictionModes:
    """The trees of one contact, over the pairs of its law."""
    count = max(product.a.numel() for product in law.products)
    return MODES[cone_of(contact, cone)](contact.name, count)


MODES: dict[str, Callable[[str, int], FrictionModes]] = {
    "box": _box_modes,
    "polar": _polar_modes,
    "polyhedral": _polyhedral_modes,
    "paper": _paper_modes,
}
