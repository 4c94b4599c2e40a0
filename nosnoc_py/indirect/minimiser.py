"""argmin of the Hamiltonian over the controls (HMP, Eqs. 12, 25, 35, 44): what the methods ask of it.

A minimiser is a set of regimes: in each the control follows one smooth law, and a regime is left where its boundary
expression has a zero. `minimiser_forms` finds the closed forms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.indirect.control_set import ControlSet
from nosnoc_py.indirect.minimiser_numeric import NumericMinimiser

Array = np.ndarray
Digits = tuple[int, ...]

# A control this close to the sphere, relative to its radius, is on it.
ON_SPHERE = 1e-10


@dataclass(frozen=True, eq=False, kw_only=True)
class Minimiser:
    """u* = argmin over U of H(x, lambda, u), and how far a control is from it.

    Attributes
    ----------
    kind : str
        "quadratic", "length", "separable" or "numeric".
    x, costate, u : SX
    control : SX (n_u,) or None
        The minimiser as an expression in x and the costate; None for "numeric".
    residual : SX (n_u,)
        In x, costate, u: H_u where U is everything and H smooth; else u - P(u - H_u), P the projection on U (the
        proximal map where the cost has a kink). Zero exactly at the minimiser.
    regime : SX (n_u,) or scalar
        Digits that name the smooth law that holds at (x, lambda); for "numeric" see `regimes`.
    law : digits -> SX (n_u,)
        An expression in x, costate and u that is zero where the control follows that law.
    boundary : (digits, digits) -> SX
        In x, costate and u: zero where one law, which u follows, gives way to the other.
    """

    kind: str
    x: ca.SX
    costate: ca.SX
    u: ca.SX
    control: ca.SX | None
    residual: ca.SX
    regime: ca.SX
    law: Callable[[Digits], ca.SX]
    boundary: Callable[[Digits, Digits], ca.SX]
    smooth: tuple[ca.SX, ca.SX, ControlSet] | None = None

    @cached_property
    def _closed(self) -> ca.Function:
        return ca.Function("minimiser", [self.x, self.costate], [self.control])

    @cached_property
    def _regime(self) -> ca.Function:
        return ca.Function("regime", [self.x, self.costate], [self.regime])

    @cached_property
    def _newton(self) -> NumericMinimiser:
        assert self.smooth is not None
        return NumericMinimiser(self.x, self.costate, self.u, *self.smooth)

    def mapped(self, count: int) -> Callable[[Array, Array, Array], Array]:
        """A fast function of x (count, n_x), costate (count, n_x) and a start (count, n_u): the minimisers."""
        if self.control is None:
            return self._newton
        evaluate = buffered(self._closed.map(count))
        return lambda x, costate, u: evaluate(x, costate)[0].T

    def regimes(self, x: Array, costate: Array, near: Array | None = None) -> Array:
        """Digits of the regimes at points x, costate (count, n_x): (count, digits).

        `near` (count, n_u) are controls near the minimisers, zero by default; only "numeric" looks at them.
        """
        if self.smooth is not None and (bounds := self.smooth[2]).is_bounded:
            u = self._newton(x, costate, np.zeros((len(x), bounds.lower.size)) if near is None else near)
            if bounds.is_ball:
                length = np.linalg.norm(u, axis=1, keepdims=True)
                return np.where(length >= bounds.radius * (1 - ON_SPHERE), 1, 0)
            return np.asarray(np.where(u <= bounds.lower, 0, np.where(u >= bounds.upper, 2, 1)))
        return np.rint(np.array(self._regime.map(len(x))(x.T, costate.T))).T.astype(int)
