"""What is unknown in the Runge-Kutta equations of a finite element: stage states, stage derivatives, or both.

Everything is said by the increments S = h k (n_x, n_s), k the stage derivatives: the states at the stages are
x_left + S A', the right end is x_left + S b. With the states as unknowns S = (X - x_left) A'^-1, so that every row of
S = h f(X) holds one flow only: sparser, the same solution. With the derivatives as unknowns any scheme will do.
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
    """The option `rk_representation` with its default.

    Raises
    ------
    OptionError
        If stage states are asked for as the only unknowns of a scheme that does not determine their derivatives.
    """
    asked = options.rk_representation
    if asked is None:
        return "integral" if tableau.invertible else "differential"
    if asked == "integral" and not tableau.invertible:
        raise OptionError(
            f"rk_representation: 'integral' needs an invertible matrix A, which {tableau.name} with "
            f"{tableau.stages} stage(s) has not; use 'differential', 'lifted_differential' or leave it out."
        )
    return asked


@dataclass(frozen=True, eq=False)
class RungeKutta:
    """A scheme with its unknowns.

    Attributes
    ----------
    tableau : Tableau
    representation : {"integral", "differential", "lifted_differential"}
    """

    tableau: Tableau
    representation: Representation

    @property
    def has_states(self) -> bool:
        """Whether the states at the stages are unknowns."""
        return self.representation != "differential"

    @property
    def has_derivatives(self) -> bool:
        """Whether the derivatives at the stages are unknowns."""
        return self.representation != "integral"

    @property
    def right_end_is_a_stage(self) -> bool:
        """Whether the state at the last stage is a variable and the right end of the element."""
        return self.has_states and self.tableau.stiffly_accurate

    def increments(self, h: ca.SX, left: ca.SX, X: ca.SX, V: ca.SX) -> ca.SX:
        """S (n_x, n_s) from the unknowns, states X or derivatives V."""
        if self.has_derivatives:
            return h * V
        return (X - ca.repmat(left, 1, self.tableau.stages)) @ np.linalg.inv(self.tableau.a).T

    def states(self, left: ca.SX, increments: ca.SX) -> ca.SX:
        """x_left + S A' (n_x, n_s)."""
        return _moved(left, increments, self.tableau.a)

    def right(self, left: ca.SX, increments: ca.SX) -> ca.SX:
        """x_left + S b (n_x,)."""
        return _moved(left, increments, self.tableau.b[None])

    def dense(self, left: ca.SX, increments: ca.SX, X: ca.SX, right: ca.SX) -> ca.SX:
        """States at the nodes of the dense output (n_x, nodes)."""
        if self.tableau.is_collocation:
            return X
        moved = _moved(left, increments, self.tableau.dense_weights[:-1])
        return ca.horzcat(moved, right)

    def dynamics(self, h: ca.SX, V: ca.SX, increments: ca.SX, flow: ca.SX) -> ca.SX:
        """Residuals (n_x, n_s) of k = f; in terms of h k = h f where the derivatives are no unknowns."""
        return V - flow if self.has_derivatives else increments - h * flow


def _moved(left: ca.SX, increments: ca.SX, weights: np.ndarray) -> ca.SX:
    # sparse weights: what a stage does not depend on leaves no zero times a symbol behind
    return cast(ca.SX, ca.repmat(left, 1, len(weights)) + ca.densify(increments @ ca.sparsify(ca.DM(weights)).T))
