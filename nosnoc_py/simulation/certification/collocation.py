"""Where a solution claims to satisfy the equations of motion: the stages of its own elements, in physical time.

With time-freezing the elements are polynomials in numerical time, of which the clock is one component: at a stage
dx/dt = (dx/dtau) / (dt/dtau). Elements in which the clock stands still are jumps, and have no stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nosnoc_py.audit.elements import slopes_of
from nosnoc_py.solution import RungeKuttaInterpolant, Solution

Array = np.ndarray
# How far inside of an element its ends are looked at, in its lengths: the control may jump there.
EDGE = 1e-9
# The clock of an element that runs advances by more than this share of a control stage, and at all of its stages by
# this share of what it does on average.
RUNS, STANDS = 1e-7, 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class Collocation:
    """Elements (E of them) with n_s stages.

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
        Derivatives by the share of the element.
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
        """At which stages (E, n_s) the clock stands still."""
        return np.asarray(self.clock <= STANDS)

    @cached_property
    def rates(self) -> Array:
        """dx/dt (E, n_s, n_x); NaN where the clock stands still or an element has no length."""
        lengths = np.where(self.standing | (self.h[:, None] <= 0.0), np.nan, self.h[:, None] * self.clock)
        return np.asarray(self.slopes / lengths[:, :, None])

    def integrals(self, rates: Array) -> Array:
        """Integrals (E,) over time of what has the rates (E, n_s) at the stages, by the scheme's own quadrature."""
        weights = np.linalg.solve(np.vander(self.c, increasing=True).T, 1.0 / np.arange(1, self.c.size + 1))
        return np.asarray(self.h * ((rates * self.clock) @ weights))


def is_by_collocation(solution: Solution) -> bool:
    """Whether a solution says that the nodes of its dense output are the stages of its scheme."""
    return solution.discretization is not None and solution.discretization.collocation


def own_stages(solution: Solution) -> Collocation | None:
    """The elements of a solution whose stages are those of its scheme; None where nothing is known of it."""
    return collocation_of(solution) if is_by_collocation(solution) else None


def collocation_of(solution: Solution) -> Collocation | None:
    """The elements of a solution; None without polynomials."""
    own = solution.interpolant if solution.numerical is None else solution.numerical.interpolant
    if not isinstance(own, RungeKuttaInterpolant):
        return None
    slopes = slopes_of(own.c, own.x_left, own.x_stages)
    if solution.numerical is None:
        rows, states, t_left, h = np.arange(own.h.size), slice(None), own.t_left, own.h
        t = own.t_left[:, None] + own.h[:, None] * own.c
        clock = np.ones(t.shape)
    else:
        left, right, states = own.x_left[:, -1], own.x_right[:, -1], slice(-1)
        rows = np.flatnonzero(right - left > RUNS * solution.duration / max(len(solution.u), 1))
        t_left, h, t = left[rows], (right - left)[rows], own.x_stages[rows, :, -1]
        clock = slopes[rows, :, -1] / h[:, None]
    return Collocation(
        t_left=t_left,
        h=h,
        c=own.c,
        clock=clock,
        t=t,
        x_left=own.x_left[rows, states],
        x_right=own.x_right[rows, states],
        x=own.x_stages[rows][..., states],
        slopes=slopes[rows][..., states],
    )
