"""Friction laws of one contact: Coulomb friction as complementarity conditions (FESD-J, Eqs. 1e, 5-8).

The law is that of maximal dissipation (Moreau 1988): among all forces in the cone |lambda_t| <= mu lambda_n the
friction force minimises v_t'lambda_t. Four formulations of the cone are offered; `box` (planar) and `polar` (spatial)
are exact and have solutions in free flight, `polyhedral` approximates the cone by directions (Stewart & Trinkle 1996),
`paper` is the published form, kept for comparison.

Every formulation is written once, as a function of a normal multiplier and a slip velocity. At the RK stages these are
force and velocity; at the nodes (labels in capitals) impulse and velocity after the jump (Eqs. 11d-f). Friction is
isotropic in scaled coordinates: weights W make it anisotropic, because the force with |W^-1 lambda_t| <= mu lambda_n
dissipates most where W^-1 lambda_t opposes W v_t.

The second part of the file has the indicator trees of friction for step equilibration (Table 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.reformulation.dcs import And, Equation, Indicator, Leaf, Or, Pair, Variable, before_and_after, indexed
from nosnoc_py.roles import Role
from nosnoc_py.systems.cls import Contact

FrictionCone = Literal["auto", "box", "polar", "polyhedral", "paper"]
# Default number of directions of the polyhedral cone in space: the direction of the force is off by at most 22.5
# degrees and its size by at most 1 - cos(pi / 8) = 8 %.
DIRECTIONS = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class FrictionLaw:
    """Friction law of one contact, at the stages or at a node.

    Attributes
    ----------
    force : SX (n_t,)
        lambda_t [N] or Lambda_t [N s].
    variables, equations, inequalities, products : tuple
        Products are pairs without `left`: the caller fills it in from the law at the node.
    speed, slack : SX scalar
        Measure of the slip, and distance of the force from the boundary of its cone.
    direction : SX (n_t,) or None
        Unit vector d that must not reverse in an element, see `DirectionConsistency`.
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
class SlipQuantities:
    """Input of a friction law, with helpers that create its labelled variables, equations and pairs.

    Attributes
    ----------
    name : str
        Name of the contact.
    velocity : SX (n_t,)
        Scaled slip velocity W v_t [m/s].
    normal : SX scalar
        Normal force [N] or impulse [N s].
    friction, weights : float or SX
        Coefficient mu and weights W (n_t,), numbers or expressions of p.
    impulsive : bool
        The multipliers are impulses.
    velocity_scale, force_scale : float
        Typical sizes.
    directions : int
        Number of directions of a polyhedral cone in space.
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
        """Number of tangential directions n_t."""
        return int(self.velocity.numel())

    def label(self, quantity: str) -> str:
        """Return the label of a quantity of this contact, capitalised for impulses."""
        return f"{quantity.capitalize() if self.impulsive else quantity}[{self.name}]"

    def labels(self, quantity: str, size: int) -> tuple[str, ...]:
        """Return the labels of the components of a quantity."""
        return indexed(self.label(quantity), size)

    def variable(self, quantity: str, role: Role, size: int, **fields: Any) -> Variable:
        """Create a variable of this contact."""
        return Variable.create(self.label(quantity), self.labels(quantity, size), role, of=self.name, **fields)

    def force(self, quantity: str, role: Role, size: int, **fields: Any) -> Variable:
        """Create a variable with the unit of a force; as an impulse it is fixed to zero where no jump is allowed."""
        return self.variable(quantity, role, size, scale=self.force_scale, impulsive=self.impulsive, **fields)

    def product(self, name: str, role: Role, a: tuple[str, ca.SX], b: tuple[str, ca.SX], **fields: Any) -> Pair:
        """Create the pair 0 <= a perp b >= 0 of two named quantities."""
        sides = [(self.labels(quantity, value.numel()), value) for quantity, value in (a, b)]
        return Pair.between(role, *sides, name=f"{name}[{self.name}]", **fields)

    def equation(self, quantity: str, role: Role, expression: ca.SX) -> Equation:
        """Create an equation of this contact."""
        return Equation.of(self.label(quantity), role, expression)


def _parts(slip: SlipQuantities, cross: Literal["both", "none"]) -> tuple[Variable, Variable, Equation, Pair]:
    """Return the parts xi+, xi- of the slip velocity, v_t = xi+ - xi- (Eq. 6a), that equation, and their pair."""
    fields = {"lower": 0.0, "scale": slip.velocity_scale}
    plus = slip.variable("xi_plus", Role.SLIP_PLUS, slip.size, estimate=ca.fmax(0, slip.velocity), **fields)
    minus = slip.variable("xi_minus", Role.SLIP_MINUS, slip.size, estimate=ca.fmax(0, -slip.velocity), **fields)
    xi = plus.symbol, minus.symbol
    parts = slip.product("slip_parts", Role.SLIP_PARTS, ("xi_plus", xi[0]), ("xi_minus", xi[1]), cross=cross)
    return plus, minus, slip.equation("slip_velocity", Role.SLIP_VELOCITY, slip.velocity - xi[0] + xi[1]), parts


def box(slip: SlipQuantities) -> FrictionLaw:
    """Return the planar law 0 <= xi+- perp mu lambda_n +- lambda_t >= 0, with the parts xi+- of the slip velocity.

    It is linear, and free flight (lambda_n = 0) does not restrict the slip velocity, in contrast to the paper's (5).
    A reversal is detected without products of xi+ and xi- at different stages (Eq. 22): before it
    mu lambda_n + lambda_t > 0, after it xi+ > 0, and the cross complementarity forbids both in one element. A velocity
    that changes its sign in flight is therefore no switch.
    """
    if slip.size != 1:
        raise OptionError(
            f"friction_cone: 'box' is for planar contacts, and {slip.name!r} has two tangents; use 'polar'."
        )
    force = slip.force("lambda_tangent", Role.TANGENTIAL_FORCE, 1)
    plus, minus, equation, parts = _parts(slip, "none")
    # Slip forwards (xi+ > 0) puts the force at its lower bound -mu lambda_n, so xi+ is paired with the distance to it.
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
        slack=ca.fmin(above, below),  # an output only: it is not differentiated
    )


def polar(slip: SlipQuantities) -> FrictionLaw:
    """Return the exact spatial law: lambda_t = -r d, v_t = s d, |d| = 1, 0 <= s perp mu lambda_n - r >= 0.

    Force and velocity share the direction d. A relaxation of the complementarity therefore does not disturb the angle
    between them; with separate vectors the angle would err by the square root of the relaxation. The radius r lies in
    [-mu lambda_n, mu lambda_n]: its sign lets the force pass through zero in stick while d turns by less than a right
    angle. The condition d_1'd_j >= 0 (`DirectionConsistency`) then excludes a reversal of slip inside an element.
    """
    radius = slip.force("friction_radius", Role.FRICTION_RADIUS, 1)
    # At rest the direction is undetermined: the estimate is then the first tangent, and 1e-12 keeps it finite.
    start = slip.velocity / ca.sqrt(ca.sumsqr(slip.velocity) + 1e-12)
    first = np.eye(slip.size)[0]
    at_rest = ca.if_else(ca.sumsqr(slip.velocity) < 1e-12, 1.0, 0.0)
    # |d| = 1 implies the bounds; they are wider than 1 so that they are never active.
    numbers = {"lower": -1.5, "upper": 1.5, "initial": first, "estimate": at_rest * first + (1 - at_rest) * start}
    direction = slip.variable("direction", Role.FRICTION_DIRECTION, slip.size, **numbers)
    size = ca.sqrt(ca.sumsqr(slip.velocity))  # of the estimate, which is not differentiated
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
        # The upper bound r <= mu lambda_n is the slack of the pair; this is the lower one.
        inequalities=(slip.equation("friction_radius_below", Role.RADIUS_BOUND, slip.friction * slip.normal + r),),
        products=(slip.product("slip", Role.SLIP, ("slip_speed", s), ("slack", slack)),),
        speed=s,
        slack=slack,
        direction=d,
    )


def unit_directions(size: int, directions: int) -> np.ndarray:
    """Return evenly spaced unit vectors (size, count) of a polyhedral cone; in the plane there are two.

    Rounding removes cosines such as 6e-17, which would make the matrix dense.
    """
    count = 2 if size == 1 else directions
    angle = 2 * np.pi * np.arange(count) / count
    return np.round(np.vstack([np.cos(angle), np.sin(angle)])[:size], 15)


def polyhedral(slip: SlipQuantities) -> FrictionLaw:
    """Return the law of a polyhedral cone (Eq. 8; Stewart & Trinkle 1996).

    lambda_t = D lambda_d, 0 <= lambda_d perp D'v_t + gamma e >= 0, 0 <= gamma perp mu lambda_n - e'lambda_d >= 0.
    The columns of D are evenly spaced unit vectors, each with its opposite; in the plane the two of them are exact.
    """
    D = ca.DM(unit_directions(slip.size, slip.directions))
    count = int(D.shape[1])
    # Every direction has its opposite, so that nonnegative components reach all forces.
    force = slip.force("lambda_direction", Role.CONE_FORCE, count, lower=0.0)
    size = ca.norm_2(slip.velocity)
    gamma = slip.variable("gamma", Role.SLIP_MULTIPLIER, 1, lower=0.0, scale=slip.velocity_scale, estimate=size)
    # gamma is the largest slip speed against a direction d: the force acts along that one, where d'v_t + gamma = 0.
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


def paper(slip: SlipQuantities) -> FrictionLaw:
    """Return Eqs. 5 and 6 as printed (with the sign of 5a): 0 = v_t + 2 gamma lambda_t, 0 <= gamma perp beta >= 0.

    Kept for comparison. lambda_n = 0 implies lambda_t = 0 and so v_t = 0: the law has no solution if a contact is open
    and its bodies move past each other, nor at a node without an impulse if they slip. Only a relaxation has one.
    """
    force = slip.force("lambda_tangent", Role.TANGENTIAL_FORCE, slip.size)
    gamma = slip.variable("gamma", Role.SLIP_MULTIPLIER, 1, lower=0.0)
    plus, minus, equation, parts = _parts(slip, "both")
    weighted = force.symbol / slip.weights
    slack = (slip.friction * slip.normal) ** 2 - ca.sumsqr(weighted)  # beta: squared, to be smooth at zero force
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


def resolve_cone(contact: Contact, cone: FrictionCone) -> str:
    """Return the cone of one contact: for "auto" the box in the plane and the polar cone in space."""
    if cone != "auto":
        return cone
    return "box" if contact.tangent.shape[1] == 1 else "polar"


# --- step equilibration: indicators that the friction mode does not change at a node (Table 2) ---


@dataclass(frozen=True)
class FrictionIndicators:
    """Indicator trees over the friction pairs of one contact.

    Attributes
    ----------
    steady : Indicator
        Positive if the friction mode does not change at the node.
    sticks_before, slips_after : Indicator
        Positive if the contact sticks before, and slips after the node.
    slack : Indicator
        Zero if the force just before the node lies on the boundary of its cone.
    """

    steady: Indicator
    sticks_before: Indicator
    slips_after: Indicator
    slack: Indicator


def _box_modes(name: str, count: int) -> FrictionIndicators:
    # Steady is: slip forwards on both sides, slip backwards on both sides, or stick (both slacks positive) on both.
    plus, minus = f"slip_plus[{name}]", f"slip_minus[{name}]"
    return FrictionIndicators(
        steady=Or(
            (
                before_and_after(plus, "a"),
                before_and_after(minus, "a"),
                And((before_and_after(plus, "b"), before_and_after(minus, "b"))),
            )
        ),
        sticks_before=And((Leaf("backward", plus, "b", 0), Leaf("backward", minus, "b", 0))),
        slips_after=Or((Leaf("forward", plus, "a", 0), Leaf("forward", minus, "a", 0))),
        slack=And((Leaf("end", plus, "b", 0), Leaf("end", minus, "b", 0))),
    )


def _speed_modes(name: str, steady_slip: Indicator) -> FrictionIndicators:
    pair = f"slip[{name}]"
    return FrictionIndicators(
        steady=Or((steady_slip, before_and_after(pair, "b"))),
        sticks_before=Leaf("backward", pair, "b", 0),
        slips_after=Leaf("forward", pair, "a", 0),
        slack=Leaf("end", pair, "b", 0),
    )


def _polar_modes(name: str, count: int) -> FrictionIndicators:
    # At a reversal the slip speed is zero at the node. Single components of v_t change their sign in smooth slip, so
    # they must not enter the indicator.
    pair = f"slip[{name}]"
    return _speed_modes(name, And((Leaf("node", pair, "a", 0), before_and_after(pair, "a"))))


def _polyhedral_modes(name: str, count: int) -> FrictionIndicators:
    pair, direction = f"slip[{name}]", f"slip_direction[{name}]"
    # The set of directions that carry the force must not change either: each is inactive or active on both sides.
    same = [
        Or(
            (
                And((Leaf("node", direction, "a", i), before_and_after(direction, "a", i))),
                before_and_after(direction, "b", i),
            )
        )
        for i in range(count)
    ]
    return _speed_modes(name, And((before_and_after(pair, "a"), *same)))


def _paper_modes(name: str, count: int) -> FrictionIndicators:
    # Table 2 of the paper: forward and backward sums of single components of xi+ and xi-.
    parts = f"slip_parts[{name}]"
    slips = [before_and_after(parts, side, i) for side in ("a", "b") for i in range(count)]
    slips_after = tuple(Leaf("forward", parts, side, i) for side in ("a", "b") for i in range(count))
    return replace(_speed_modes(name, Or(tuple(slips))), slips_after=Or(slips_after))


def friction_indicators(contact: Contact, cone: FrictionCone, law: FrictionLaw) -> FrictionIndicators:
    """Return the indicator trees of one contact, over the pairs of its law."""
    count = max(product.a.numel() for product in law.products)  # components of a vector-valued pair, if there is one
    return INDICATORS[resolve_cone(contact, cone)](contact.name, count)


INDICATORS: dict[str, Callable[[str, int], FrictionIndicators]] = {
    "box": _box_modes,
    "polar": _polar_modes,
    "polyhedral": _polyhedral_modes,
    "paper": _paper_modes,
}
