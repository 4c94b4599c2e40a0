"""Runge-Kutta equations of a finite element, with stage states, stage derivatives or both as unknowns.

All forms are written with the increments S = h k (n_x, n_s), k the stage derivatives: the states at the stages are
x_left + S A' and the right end is x_left + S b (Hairer & Wanner 1996, Section IV.8).

- "integral": the states X are unknowns, S = (X - x_left) A'^-1. Every row of S = h f(X) contains one flow only, which
  is sparser than the usual form and has the same solution. A has to be invertible.
- "differential": the derivatives are unknowns; works for any scheme.
- "lifted_differential": both are unknowns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import casadi as ca
import numpy as np

from nosnoc_py.discretization.options import FESD, Representation
from nosnoc_py.errors import OptionError
from nosnoc_py.tableaus import Tableau


def representation_of(options: FESD, tableau: Tableau) -> Representation:
    """Return the option `rk_representation`, or its default for a scheme.

    Raises
    ------
    OptionError
        For "integral" with a scheme whose matrix A is singular: the states do not determine the derivatives.
    """
    representation = options.rk_representation
    if representation is None:
        # States first: one flow per row is sparser, and the states have the bounds as bounds of variables.
        return "integral" if tableau.invertible else "differential"
    if representation == "integral" and not tableau.invertible:
        raise OptionError(
            f"rk_representation: 'integral' needs an invertible matrix A, but that of {tableau.name} with "
            f"{tableau.stages} stage(s) is singular; use 'differential', 'lifted_differential' or leave it out."
        )
    return representation


@dataclass(frozen=True, eq=False)
class RungeKutta:
    """Runge-Kutta scheme with a choice of unknowns.

    Attributes
    ----------
    tableau : Tableau
    representation : {"integral", "differential", "lifted_differential"}
    """

    tableau: Tableau
    representation: Representation

    @property
    def has_states(self) -> bool:
        """True if the states at the stages are unknowns."""
        return self.representation != "differential"

    @property
    def has_derivatives(self) -> bool:
        """True if the derivatives at the stages are unknowns."""
        return self.representation != "integral"

    @property
    def right_end_is_a_stage(self) -> bool:
        """True if the state at the last stage is a variable and equal to the right end of the element."""
        return self.has_states and self.tableau.stiffly_accurate

    def increments(self, h: ca.SX, left: ca.SX, X: ca.SX, V: ca.SX) -> ca.SX:
        """Return S (n_x, n_s) from the unknowns, states X or derivatives V (n_x, n_s)."""
        if self.has_derivatives:
            return h * V
        return (X - ca.repmat(left, 1, self.tableau.stages)) @ np.linalg.inv(self.tableau.a).T

    def states(self, left: ca.SX, increments: ca.SX) -> ca.SX:
        """Return the stage states x_left + S A' (n_x, n_s)."""
        return _moved(left, increments, self.tableau.a)

    def right(self, left: ca.SX, increments: ca.SX) -> ca.SX:
        """Return the right end x_left + S b (n_x,)."""
        return _moved(left, increments, self.tableau.b[None])

    def dense(self, left: ca.SX, increments: ca.SX, X: ca.SX, right: ca.SX) -> ca.SX:
        """Return the states at the nodes of the dense output (n_x, nodes)."""
        if self.tableau.is_collocation:
            return X  # the stages are values of the collocation polynomial
        # The last node is the right end, for which there is a symbol or an expression already.
        moved = _moved(left, increments, self.tableau.dense_weights[:-1])
        return ca.horzcat(moved, right)

    def dynamics(self, h: ca.SX, V: ca.SX, increments: ca.SX, flow: ca.SX) -> ca.SX:
        """Return the residuals (n_x, n_s) of k = f, or of h k = h f if the derivatives are not unknowns."""
        # Never divided by h: the step of an element may become zero.
        return V - flow if self.has_derivatives else increments - h * flow


def _moved(left: ca.SX, increments: ca.SX, weights: np.ndarray) -> ca.SX:
    # Sparse weights: otherwise terms 0 * symbol would remain in the expressions of explicit schemes.
    return cast(ca.SX, ca.repmat(left, 1, len(weights)) + ca.densify(increments @ ca.sparsify(ca.DM(weights)).T))
