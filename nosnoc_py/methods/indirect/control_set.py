"""Set U of admissible controls: unbounded, a box, or a ball around zero.

The minimisers of the Hamiltonian have closed forms, and projections, for these sets only. A ball is written as a path
constraint |u| <= r or u'u <= r^2, which is recognised by comparing values at random points (`same_function`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.ocp import OCP, Constraint

Array = np.ndarray

# Expressions count as equal if they agree at PROBES random points of each size. CasADi has no symbolic simplification
# that would prove equality.
PROBES, SIZES = 8, (1e-2, 1.0, 10.0, 100.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class ControlSet:
    """Set of controls with lower <= u <= upper, or with |u| <= radius; not both.

    Attributes
    ----------
    lower, upper : (n_u,)
        Infinite for components without a bound.
    radius : float
        Infinite without a bound on the length.
    """

    lower: Array
    upper: Array
    radius: float = np.inf

    @property
    def is_box(self) -> bool:
        """True if a component has a bound."""
        return bool(np.isfinite(self.lower).any() or np.isfinite(self.upper).any())

    @property
    def is_ball(self) -> bool:
        """True if the length has a bound."""
        return bool(np.isfinite(self.radius))

    @property
    def is_bounded(self) -> bool:
        """True if there is any bound."""
        return self.is_box or self.is_ball

    def project(self, u: Array) -> Array:
        """Return the nearest admissible controls (N, n_u)."""
        if not self.is_ball:
            return np.clip(u, self.lower, self.upper)
        length = np.linalg.norm(u, axis=-1, keepdims=True)
        # Inside the ball the factor is exactly 1, so that admissible controls are not changed by rounding.
        return np.asarray(u * (self.radius / np.maximum(length, self.radius)))


def control_set(ocp: OCP, method: str) -> ControlSet:
    """Read the control set from bounds on u and path constraints of the form |u| <= r or u'u <= r^2.

    Raises
    ------
    OptionError
        For any other path constraint, or a ball together with bounds.
    """
    lower, upper = (np.array(bound) for bound in ocp.u_bounds)
    # Several balls around zero: the smallest one is the set.
    radii = [_radius(ocp, constraint, method) for constraint in ocp.path_constraints]
    controls = ControlSet(lower=lower, upper=upper, radius=min(radii, default=np.inf))
    if controls.is_ball and controls.is_box:
        raise OptionError(f"{method} takes bounds on u or a bound on its length, not both; use ns.FESDJ(...).")
    return controls


def _radius(ocp: OCP, constraint: Constraint, method: str) -> float:
    u, p = ocp.system.u, ocp.system.p
    expression = ca.substitute(ca.SX(constraint.expression), p, ca.SX(ocp.p))
    only_control = expression.numel() == 1 and not ca.depends_on(expression, ca.vertcat(ocp.system.x, ocp.system.z))
    low, high = float(np.max(constraint.lower)), float(np.min(constraint.upper))
    # A positive lower bound cuts a hole into the ball: such a set is not convex.
    if only_control and low <= 0.0 and np.isfinite(high):
        if same_function(expression, ca.norm_2(u), u):
            return high
        if same_function(expression, ca.sumsqr(u), u):
            return float(np.sqrt(high))
    raise OptionError(
        f"{method}: path constraint {constraint.name!r} is not a bound on the length of the control (|u| <= r or "
        "u'u <= r^2), and no other path constraint is possible; use ns.FESDJ(...), bounds on u, or a cost."
    )


def same_function(a: ca.SX, b: ca.SX, *symbols: ca.SX) -> bool:
    """True if two expressions agree at random points of several sizes; points with NaN or inf are skipped."""
    both = ca.Function("both", [*symbols], [a, b])
    compared = 0
    for point in probes(*symbols):
        left, right = (np.array(value) for value in both(*point))
        if np.isfinite(left).all() and np.isfinite(right).all():
            compared += 1
            # Rounding of sums, far below the difference of two different formulas at random points.
            if not np.allclose(left, right, rtol=1e-11, atol=1e-12 * (1.0 + np.abs(left).max(initial=0.0))):
                return False
    # If no point could be compared, equality is not claimed.
    return compared > 0


def probes(*symbols: ca.SX) -> Iterator[list[Array]]:
    """Yield random values of symbols in several sizes; a property that holds at all of them is assumed everywhere."""
    # A fixed seed: the form of a problem must not change from run to run.
    random = np.random.default_rng(20)
    for size in SIZES:
        for _ in range(PROBES):
            yield [size * random.normal(size=s.shape) for s in symbols]
