"""The set U of admissible controls: everything, a box, or a ball around zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.ocp import OCP, Constraint

Array = np.ndarray

# Two expressions are the same function if they agree at this many random points of each size.
PROBES, SIZES = 8, (1e-2, 1.0, 10.0, 100.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class ControlSet:
    """lower <= u <= upper and |u| <= radius; not both at once.

    Attributes
    ----------
    lower, upper : (n_u,)
        Infinite where there is no bound.
    radius : float
        Infinite where there is no ball.
    """

    lower: Array
    upper: Array
    radius: float = np.inf

    @property
    def is_box(self) -> bool:
        """Whether a component is bounded."""
        return bool(np.isfinite(self.lower).any() or np.isfinite(self.upper).any())

    @property
    def is_ball(self) -> bool:
        """Whether the length is bounded."""
        return bool(np.isfinite(self.radius))

    @property
    def is_bounded(self) -> bool:
        """Whether there is any bound."""
        return self.is_box or self.is_ball

    def project(self, u: Array) -> Array:
        """The nearest admissible controls (N, n_u)."""
        if not self.is_ball:
            return np.clip(u, self.lower, self.upper)
        length = np.linalg.norm(u, axis=-1, keepdims=True)
        return np.asarray(u * (self.radius / np.maximum(length, self.radius)))


def control_set(ocp: OCP, method: str) -> ControlSet:
    """The bounds on u, and path constraints of the form |u| <= r or u'u <= r^2.

    Raises
    ------
    OptionError
        For any other path constraint, or a ball together with bounds.
    """
    lower, upper = (np.array(bound) for bound in ocp.u_bounds)
    radii = [_radius(ocp, constraint, method) for constraint in ocp.path_constraints]
    found = ControlSet(lower=lower, upper=upper, radius=min(radii, default=np.inf))
    if found.is_ball and found.is_box:
        raise OptionError(f"{method} takes bounds on u or a bound on its length, not both; use ns.FESDJ(...).")
    return found


def _radius(ocp: OCP, constraint: Constraint, method: str) -> float:
    u, p = ocp.system.u, ocp.system.p
    expression = ca.substitute(ca.SX(constraint.expression), p, ca.SX(ocp.p))
    alone = expression.numel() == 1 and not ca.depends_on(expression, ca.vertcat(ocp.system.x, ocp.system.z))
    low, high = float(np.max(constraint.lower)), float(np.min(constraint.upper))
    if alone and low <= 0.0 and np.isfinite(high):
        if same_function(expression, ca.norm_2(u), u):
            return high
        if same_function(expression, ca.sumsqr(u), u):
            return float(np.sqrt(high))
    raise OptionError(
        f"{method}: path constraint {constraint.name!r} is not a bound on the length of the control (|u| <= r or "
        "u'u <= r^2), and other path constraints it cannot take; use ns.FESDJ(...), bounds on u, or a cost."
    )


def same_function(a: ca.SX, b: ca.SX, *symbols: ca.SX) -> bool:
    """Whether two expressions agree at random points of several sizes; those where they are no numbers do not count."""
    both = ca.Function("both", [*symbols], [a, b])
    compared = 0
    for point in probes(*symbols):
        left, right = (np.array(value) for value in both(*point))
        if np.isfinite(left).all() and np.isfinite(right).all():
            compared += 1
            if not np.allclose(left, right, rtol=1e-11, atol=1e-12 * (1.0 + np.abs(left).max(initial=0.0))):
                return False
    return compared > 0


def probes(*symbols: ca.SX) -> Iterator[list[Array]]:
    """Random values of symbols, of several sizes: what holds at all of them is taken to hold everywhere."""
    random = np.random.default_rng(20)
    for size in SIZES:
        for _ in range(PROBES):
            yield [size * random.normal(size=s.shape) for s in symbols]
