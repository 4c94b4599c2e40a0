"""Finite elements as samples: rates of collocation polynomials at their stages, and listed forces by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nosnoc_py.audit.records import MotionSamples
from nosnoc_py.tableaus import lagrange_derivative

if TYPE_CHECKING:
    from nosnoc_py.solution.records import Series
    from nosnoc_py.systems.kinematics import ContactFrames

Array = np.ndarray
# Elements shorter than this fraction of the motion have no derivatives.
SHORT_ELEMENT = 1e-9
# The clock of a running element advances at each stage by more than this fraction of its mean rate.
STANDS = 1e-6
# Residuals of a solved program are at most of this size, whatever it states.
SOLVED = 1e-8


def slopes_of(c: Array, x_left: Array, x_stages: Array) -> Array:
    """Return derivatives (E, n_s, n_x), per length of the element, of polynomials through left ends and stages."""
    # A stage at c = 0 is the left boundary itself, which the polynomial already has as a node.
    inner = c != 0.0
    values = np.concatenate([x_left[:, None], x_stages[:, inner]], axis=1)
    slopes = np.einsum("jk,ekx->ejx", lagrange_derivative(np.append(0.0, c[inner])), values)
    return np.asarray(slopes if not inner.all() else slopes[:, 1:])


def noise_of(c: Array, h: Array, x: Array, infeasibility: float) -> Array:
    """Return errors (E,) of rates in elements of lengths h, caused by rounding and the residual of the solver."""
    # An error of the stage values grows by the largest row sum of the differentiation matrix, divided by h.
    gain = float(np.abs(lagrange_derivative(np.append(0.0, c[c != 0.0]))).sum(axis=1).max())
    size = float(np.abs(x).max(initial=0.0, where=np.isfinite(x)))
    errors = (min(infeasibility, SOLVED) if infeasibility >= 0.0 else 0.0) + np.finfo(float).eps * (1.0 + size)
    return np.asarray(gain * errors / np.maximum(h, 1e-300))


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementStages:
    """Finite elements (E of them) with n_s stages.

    Attributes
    ----------
    t_left, h : (E,)
        Left ends and lengths [s].
    c : (n_s,)
    clock : (E, n_s)
        Rate of the time at the stages, in units of its mean; one without time-freezing.
    t : (E, n_s)
        Times of the stages [s].
    x_left, x_right : (E, n_x)
    x : (E, n_s, n_x)
    slopes : (E, n_s, n_x)
        Derivatives by the fraction of the element.
    """

    t_left: Array
    h: Array
    c: Array
    clock: Array
    t: Array
    x_left: Array
    x_right: Array
    x: Array
    slopes: Array

    @property
    def standing(self) -> Array:
        """True for stages (E, n_s) at which the clock stands still."""
        return np.asarray(self.clock <= STANDS)

    @cached_property
    def rates(self) -> Array:
        """Rates dx/dt (E, n_s, n_x); NaN where the clock stands still or an element has no length."""
        # With time-freezing dx/dt = (dx/dtheta) / (h dt/dtau); a standing clock gives no physical rate.
        lengths = np.where(self.standing | (self.h[:, None] <= 0.0), np.nan, self.h[:, None] * self.clock)
        return np.asarray(self.slopes / lengths[:, :, None])

    def integrals(self, rates: Array) -> Array:
        """Return integrals (E,) over time of rates (E, n_s) at the stages, by the quadrature of the scheme."""
        # Weights that integrate 1, c, c^2, ... exactly: those of the scheme, which is a collocation method.
        weights = np.linalg.solve(np.vander(self.c, increasing=True).T, 1.0 / np.arange(1, self.c.size + 1))
        return np.asarray(self.h * ((rates * self.clock) @ weights))

    @classmethod
    def of(cls, t_left: Array, h: Array, c: Array, x_left: Array, x_right: Array, x: Array) -> ElementStages:
        """Return elements in physical time, without time-freezing."""
        t = t_left[:, None] + h[:, None] * c
        slopes = slopes_of(c, x_left, x)
        ends = {"x_left": x_left, "x_right": x_right}
        return cls(t_left=t_left, h=h, c=c, clock=np.ones(t.shape), t=t, **ends, x=x, slopes=slopes)

    def with_rates(self, duration: float) -> Array:
        """Return which stages (E, n_s) have rates, for a motion of a duration [s]."""
        return np.asarray((self.h > SHORT_ELEMENT * duration)[:, None] & (self.c != 0.0) & ~self.standing)

    def samples(self, u: Array, forces: Array | None, duration: float, infeasibility: float) -> MotionSamples:
        """Return the stages with rates as samples, with controls (E, n_s, n_u) and forces (E n_s, n_c + n_tt).

        Parameters
        ----------
        duration : float
            Of the motion [s].
        infeasibility : float
            Of the solution.
        """
        rows, n_s = np.flatnonzero(self.with_rates(duration).reshape(-1)), self.c.size
        x, rates, u = (values.reshape(self.t.size, -1)[rows] for values in (self.x, self.rates, u))
        return MotionSamples(
            t=self.t.reshape(-1)[rows],
            x=x,
            rates=rates,
            u=u,
            forces=None if forces is None else forces[rows],
            x_left=np.repeat(self.x_left, n_s, axis=0)[rows],
            noise=np.repeat(noise_of(self.c, self.h, self.x, infeasibility), n_s)[rows],
        )


def columns_of(series: Mapping[str, Series], names: Sequence[str], count: int) -> Array | None:
    """Return values (count, names) that a solution lists; None unless it lists all of them, `count` times each."""
    if not all(name in series and len(series[name].values) == count for name in names):
        return None
    return np.array([series[name].values for name in names], dtype=float).reshape(len(names), count).T


def listed(frames: ContactFrames, series: Mapping[str, Series], kind: str, count: int) -> Array | None:
    """Return listed forces ("lambda") or impulses ("Lambda") (count, n_c + n_tt); None unless all are listed."""
    values = columns_of(series, [f"{kind}_{along}{label}" for along, label, _ in frames.directions], count)
    # Listed friction forces are the user's; weights bring them to the circular cone.
    return None if values is None else values / np.array([weight for *_, weight in frames.directions])
