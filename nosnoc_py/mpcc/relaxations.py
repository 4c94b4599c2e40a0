"""Relaxations of 0 <= a perp b >= 0: for each a function phi(a, b, sigma) and how it is imposed.

Every relaxation is one function and one line in `RELAXATIONS`. The functions work entry by entry on columns a and b;
sigma is a scalar or a column, defined as in the literature. Its meaning differs, so every function states its width,
the largest min(a, b) that it allows. a, b >= 0 is imposed elsewhere.

Derivatives by a, b and sigma are finite everywhere, also at a = b = 0 and at sigma = 0. In two-sided formulas
(`if_else`) the branch that is not taken is kept finite as well, because a derivative multiplies it by zero.

References: Scholtes (2001), SIAM J. Optim. 11; a comparison of all of them is given by Hoheisel, Kanzow, Schwartz
(2013), Math. Program. 137.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import casadi as ca

from nosnoc_py.errors import OptionError
from nosnoc_py.plugins import Family

# Added under roots and to denominators to keep them differentiable at zero. sigma is at least 1e-12 and enters roots
# linearly, so that 1e-24 is far below it.
ROOT_SHIFT = 1e-24
# Weight lambda of the Fischer-Burmeister part in the penalised function; any number in (0, 1) is possible, 0.95 is that
# of Chen, Chen and Kanzow (2000).
FISCHER_BURMEISTER_WEIGHT = 0.95

Phi = Callable[[ca.SX, ca.SX, ca.SX], tuple[ca.SX, ...]]


@dataclass(frozen=True)
class Relaxation:
    """Relaxation with rows phi(a, b, sigma) <= 0, or = 0 if `equality`.

    Attributes
    ----------
    phi : (a, b, sigma) -> tuple of SX
        Every row has the shape of a and b.
    equality : bool
        The relaxed set has no interior and contains complementary points only for sigma = 0.
    elastic : bool
        sigma may be a variable of the NLP that ends at zero (elastic steering). This needs a slope of phi in sigma at
        (a, 0, sigma = 0), a > 0: without it no multiplier balances the penalty on sigma.
    """

    phi: Phi
    equality: bool = False
    elastic: bool = True


def scholtes(a: ca.SX, b: ca.SX, sigma: ca.SX) -> tuple[ca.SX]:
    """Return a b - sigma; width sqrt(sigma). Scholtes (2001); as an equation also called smoothing."""
    return (a * b - sigma,)


def fischer_burmeister(a: ca.SX, b: ca.SX, sigma: ca.SX) -> tuple[ca.SX]:
    """Return a + b - sqrt(a^2 + b^2 + 2 sigma); width sqrt(sigma). Fischer (1992), smoothed by Kanzow (1996).

    phi = 0 is the hyperbola a b = sigma of `scholtes`. It is written with the conjugate, which avoids the cancellation
    in a + b - sqrt(...).
    """
    return (_conjugate(a, b, sigma) * (a * b - sigma),)


def chen_chen_kanzow(a: ca.SX, b: ca.SX, sigma: ca.SX) -> tuple[ca.SX]:
    """Return lambda phi_FB(a, b, sigma) + (1 - lambda) (a b - sigma), lambda = 0.95; width sqrt(sigma).

    The penalised Fischer-Burmeister function of Chen, Chen and Kanzow (2000), lambda phi_FB + (1 - lambda) a+ b+, with
    both parts smoothed so that they vanish on a b = sigma. If one side is large, the product grows with it, which
    phi_FB alone does not.
    """
    weight = FISCHER_BURMEISTER_WEIGHT
    return ((weight * _conjugate(a, b, sigma) + (1 - weight)) * (a * b - sigma),)


def kanzow_schwartz(a: ca.SX, b: ca.SX, sigma: ca.SX) -> tuple[ca.SX]:
    """Return psi(a - sigma, b - sigma), psi(x, y) = x y if x + y >= 0 else -(x^2 + y^2) / 2; width sigma.

    Kanzow and Schwartz (2013): the set is L-shaped, min(a, b) <= sigma. phi is once continuously differentiable; its
    gradient vanishes in the corner a = b = sigma.
    """
    x, y = a - sigma, b - sigma
    return (ca.if_else(x + y >= 0, x * y, -(x**2 + y**2) / 2),)


def steffensen_ulbrich(a: ca.SX, b: ca.SX, sigma: ca.SX) -> tuple[ca.SX]:
    """Return a + b - |a - b| with its kink smoothed where |a - b| < sigma; width 3 sigma / 16.

    Steffensen and Ulbrich (2010): |d| becomes sigma theta(d / sigma), theta(z) = (3 + 6 z^2 - z^4) / 8, which is twice
    continuously differentiable at z = +-1. Outside it is exact and does not depend on sigma: no elastic steering.
    """
    difference = a - b
    inside = ca.fabs(difference) < sigma
    size = ca.fmax(sigma, ROOT_SHIFT)
    z = ca.if_else(inside, difference, 0) / size
    return (a + b - ca.if_else(inside, size * (3 + 6 * z**2 - z**4) / 8, ca.fabs(difference)),)


def lin_fukushima(a: ca.SX, b: ca.SX, sigma: ca.SX) -> tuple[ca.SX, ca.SX]:
    """Return a b - sigma^2 and sigma^2 - (a + sigma)(b + sigma); width sigma. Lin and Fukushima (2005).

    Together the rows imply a, b > -sigma. In the original scheme the second row replaces the nonnegativity; here it is
    redundant. Its constant cancels: -a b - sigma (a + b). No elastic steering, because sigma^2 has no slope at zero.
    """
    return (a * b - sigma**2, -a * b - sigma * (a + b))


def check_steering(relaxation: str, steering: str) -> None:
    """Raise `OptionError` for a relaxation without an elastic form and a steering that needs one."""
    if steering != "direct" and not RELAXATIONS[relaxation].elastic:
        legal = ", ".join(name for name, member in RELAXATIONS.items() if member.elastic)
        raise OptionError(f"relaxation {relaxation!r} takes steering='direct' only; elastic ones: {legal}.")


def _conjugate(a: ca.SX, b: ca.SX, sigma: ca.SX) -> ca.SX:
    """Return 2 / (a + b + sqrt(a^2 + b^2 + 2 sigma)): phi_FB is this times a b - sigma."""
    return 2 / (a + b + ca.sqrt(a**2 + b**2 + 2 * sigma + ROOT_SHIFT))


RELAXATIONS: Family[Relaxation] = Family(
    "relaxations",
    {
        "scholtes": Relaxation(scholtes),
        "scholtes_equality": Relaxation(scholtes, equality=True),
        "fischer_burmeister": Relaxation(fischer_burmeister),
        "chen_chen_kanzow": Relaxation(chen_chen_kanzow, equality=True),
        "kanzow_schwartz": Relaxation(kanzow_schwartz),
        "steffensen_ulbrich": Relaxation(steffensen_ulbrich, elastic=False),
        "lin_fukushima": Relaxation(lin_fukushima, elastic=False),
    },
)
