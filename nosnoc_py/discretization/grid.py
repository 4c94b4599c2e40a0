"""The time grid: control stages with lengths, finite elements in each.

Controls are constant on control stages. A stage has a fixed length, or one that is an unknown, and contains finite
elements whose lengths are unknowns: switches lie on the boundaries between elements. The first element of a stage
begins where the last one of the stage before ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.mpcc.layout import ElementEnd

# Block of the lengths of control stages relative to equal ones, if they are unknowns.
STAGE_LENGTH = "control stage length"
# Continuous algebraic variables have values at element boundaries where no stage lies: at the start and, for schemes
# that are not stiffly accurate, at the right ends of elements. The names of their blocks have these suffixes.
START, RIGHT = " (start)", " (right)"
SUFFIX = {ElementEnd.LEFT: START, ElementEnd.RIGHT: RIGHT}


@dataclass(frozen=True, eq=False)
class Grid:
    """Time grid of a discretisation: control stages and their finite elements.

    Attributes
    ----------
    lengths : tuple of SX scalar
        Length of every control stage [s]; an expression of parameters or variables of the MPCC.
    elements : tuple of int
        Number of finite elements of every control stage.
    """

    lengths: tuple[ca.SX, ...]
    elements: tuple[int, ...]

    @classmethod
    def of(cls, horizon: ca.SX, elements: tuple[int, ...], shares: Sequence[ca.SX | float]) -> Grid:
        """Create the grid of a horizon from relative lengths of its control stages.

        Parameters
        ----------
        horizon : SX scalar
            [s].
        elements : tuple of int
            Number of finite elements of every control stage.
        shares : sequence of SX or float
            Lengths of the control stages relative to equal ones.

        Raises
        ------
        OptionError
            If there is not one number of elements for every control stage.
        """
        count = len(shares)
        if len(elements) != count:
            raise OptionError(
                f"finite_elements: expected one number per control stage ({count}), given {len(elements)}."
            )
        return cls(tuple(share * horizon / count for share in shares), elements)

    @property
    def control_stages(self) -> int:
        """Number of control stages N."""
        return len(self.elements)

    def nominal_nodes(self, horizon: float) -> list[np.ndarray]:
        """Return the element boundaries of every control stage for equal steps [s], for initial guesses."""
        stage = horizon / self.control_stages
        return [k * stage + np.linspace(0.0, stage, n + 1) for k, n in enumerate(self.elements)]

    def __repr__(self) -> str:
        return f"Grid: {self.control_stages} control stages, {sum(self.elements)} finite elements"
