"""The time grid: control stages with lengths, finite elements in each."""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError

# Variables that are continuous have values of their own where no stage lies: at the start and, for some schemes, at the
# right ends of elements. Their blocks carry these suffixes.
START, RIGHT = " (start)", " (right)"


@dataclass(frozen=True, eq=False)
class Grid:
    """Control stages and their finite elements.

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
    def equal(cls, horizon: ca.SX, elements: tuple[int, ...], control_stages: int) -> Grid:
        """Control stages of equal length.

        Raises
        ------
        OptionError
            If there is not one number of elements for every control stage.
        """
        if len(elements) != control_stages:
            raise OptionError(
                f"finite_elements: expected one number per control stage ({control_stages}), given {len(elements)}."
            )
        return cls((horizon / control_stages,) * control_stages, elements)

    @property
    def control_stages(self) -> int:
        """N."""
        return len(self.elements)

    def nominal_nodes(self, horizon: float) -> list[np.ndarray]:
        """Element boundaries of every control stage for equal lengths [s], for initial guesses."""
        stage = horizon / self.control_stages
        return [k * stage + np.linspace(0.0, stage, n + 1) for k, n in enumerate(self.elements)]

    def __repr__(self) -> str:
        return f"Grid: {self.control_stages} control stages, {sum(self.elements)} finite elements"
