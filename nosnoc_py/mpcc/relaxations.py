"""The family of relaxations of 0 <= a, b >= 0, a b = 0: one function phi(a, b, sigma) each, and how it is imposed.

A member is one function and one line in `RELAXATIONS`. All work entry by entry on columns a and b, with sigma a scalar
or a column, and sigma is as in the literature; what it means differs, so every member states the largest min(a, b) it
allows (its width). a, b >= 0 is imposed beside phi and not repeated here.

Derivatives in a, b and sigma are finite everywhere, also at a = b = 0 and at sigma = 0; two-sided formulas
(`if_else`) keep the branch that is not taken finite as well, since a derivative multiplies it by zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import casadi as ca

from nosnoc_py.errors import OptionError

# Below this a root or a quotient is replaced by something smooth: sigma ends at 1e-12 at the least, roots see 1e-24.
TINY = 1e-24
# Weight lambda of the Fischer-Burmeister part in the penalised function; any number in (0, 1) is legal.
FISCHER_BURMEISTER_WEIGHT = 0.95

Phi = Callable[[ca.SX, ca.SX, ca.SX], tuple[ca.SX, ...]]


@dataclass(frozen=True)
class Relaxation:
    """Rows phi(a, b, sigma) that are imposed <= 0, or = 0 when `equality`.

    Attributes
    ----------
    phi : (a, b, sigma) -> tuple of SX
        Every row has the shape of a and b.
    equality : bool
        Equality members have no interior: the complementary points themselves are reached only as sigma -> 0.
    elastic : bool
        Whether sigma may be a variable of the NLP that ends at zero (elastic steering). It may not where phi at
        (a, 0, sigma = 0), a > 0, has no slope in sigma: no multiplier holds the penalty on sigma in balance there.
    """

    phi: Phi
    equality: bool = False
    elastic: bool = True


def scholtes(a: ca.SX, b: ca.SX, sigma: ca.SX) -> tuple[ca.SX]:
    """a b - sigma; width sqrt(sigma). Scholtes (2001); as an equation also known as smoothing."""
    return (a * b - sigma,)


def fischer_burmeister(a: ca.SX, b: ca.SX, sigma: ca.SX) -> tuple[ca.SX]:
    """a + b - sqrt(a^2 + b^2 + 2 sigma); width sqrt(sigma). Fischer (1992), smoothed by Kanzow (1996).

    2 sigma under the root makes phi = 0 the hyperbola a b = sigma of `scholtes`. Written with the conjugate, which
    avoids the cancellation of a + b - sqrt(...).
    """
    return (_conjugate(a, b, sigma) * (a * b - sigma),)


def chen_chen_kanzow(a: ca.SX, b: ca.SX, sigma: ca.SX) -> tuple[ca.SX]:
    """lambda phi_FB(a, b, sigma) + (1 - lambda) (a b - sigma), lambda = 0.95; width sqrt(sigma).

    The penalised Fischer-Burmeister function of Chen, Chen and Kanzow (2000), lambda phi_FB + (1 - lambda) a+ b+,
    with both parts smoothed to vanish on a b = sigma; a and b are their own positive parts here. Where one side is
    large the product keeps phi growing with it, which phi_FB alone does not.
    """
    weight = FISCHER_BURMEISTER_WEIGHT
    return ((weight * _conjugate(a, b, sigma) + (1 - weight)) * (a * b - sigma),)


def kanzow_schwartz(a: ca.SX, b: ca.SX, sigma: ca.SX) -> tuple[ca.SX]:
    """psi(a - sigma, b - sigma), psi(x, y) = x y if x + y >= 0 else -(x^2 + y^2) / 2; width sigma.

    Kanzow and Schwartz (2013): an L-shaped set, min(a, b) <= sigma. Once continuously differentiable; the gradient
    vanishes in the corner a = b = sigma.
    """
    x, y = a - sigma, b - sigma
    return (ca.if_else(x + y >= 0, x * y, -(x**2 + y**2) / 2),)


def steffensen_ulbrich(a: ca.SX, b: ca.SX, sigma: ca.SX) -> tuple[ca.SX]:
    """a + b - |a - b|, the kink replaced where |a - b| < sigma; width 3 sigma / 16.

    Steffensen and Ulbrich (2010): |d| becomes sigma theta(d / sigma), theta(z) = (3 + 6 z^2 - z^4) / 8, which fits
    with two derivatives at z = +-1. Exact outside, where it does not depend on sigma: not for elastic steering.
    """
    difference = a - b
    inside = ca.fabs(difference) < sigma
    size = ca.fmax(sigma, TINY)
    z = ca.if_else(inside, difference, 0) / size
    return (a + b - ca.if_else(inside, size * (3 + 6 * z**2 - z**4) / 8, ca.fabs(difference)),)


def lin_fukushima(a: ca.SX, b: ca.SX, sigma: ca.SX) -> tuple[ca.SX, ca.SX]:
    """a b - sigma^2 and sigma^2 - (a + sigma)(b + sigma); width sigma. Lin and Fukushima (2005).

    Together the rows imply a, b > -sigma: in the original scheme the second stands for the nonnegativity, and where
    a, b >= 0 is imposed too it is redundant. Its constant cancels: -a b - sigma (a + b). Not for elastic steering,
    since sigma^2 has no slope at zero.
    """
    return (a * b - sigma**2, -a * b - sigma * (a + b))


def check_steering(relaxation: str, steering: str) -> None:
    """Raise `OptionError` for a relaxation without an elastic form and a steering that needs one."""
    if steering != "direct" and not RELAXATIONS[relaxation].elastic:
        legal = ", ".join(name for name, member in RELAXATIONS.items() if member.elastic)
        raise OptionError(f"relaxation {relaxation!r} takes steering='direct' only; elastic ones: {legal}.")


def _conjugate(a: ca.SX, b: ca.SX, sigma: ca.SX) -> ca.SX:
    return 2 / (a + b + ca.sqrt(a**2 + b**2 + 2 * sigma + TINY))


RELAXATIONS: dict[str, Relaxation] = {
    "scholtes": Relaxation(scholtes),
    "scholtes_equality": Relaxation(scholtes, equality=True),
    "fischer_burmeister": Relaxation(fischer_burmeister),
    "chen_chen_kanzow": Relaxation(chen_chen_kanzow, equality=True),
    "kanzow_schwartz": Relaxation(kanzow_schwartz),
    "steffensen_ulbrich": Relaxation(steffensen_ulbrich, elastic=False),
    "lin_fukushima": Relaxation(lin_fukushima, elastic=False),
}
