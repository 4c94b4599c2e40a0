"""Common parts of the discretised problems of CRISP: constraints and pairs collected step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.program import MPCC

SOURCE = "CRISP (Li et al., RSS 2025; github.com/ComputationalRobotics/CRISP)"
STEP = 0.02  # [s]


@dataclass(eq=False, kw_only=True)
class Steps:
    """Program under construction, with the variables of every step as columns.

    Parameters
    ----------
    names : str
        Names of the variables of one step, separated by spaces.
    count : int
    """

    names: str
    count: int
    columns: ca.SX = field(init=False)
    objective: Any = 0
    rows: list[Any] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    pairs: list[tuple[Any, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.columns = ca.SX.sym("w", len(self.names.split()), self.count)

    def __getitem__(self, k: int) -> Any:
        """Return the variables of a step by name."""
        return type("Step", (), dict(zip(self.names.split(), ca.vertsplit(self.columns[:, k]), strict=True)))

    def between(self, row: Any, lower: float = 0.0, upper: float = 0.0) -> None:
        """Add a constraint, by default an equation."""
        self.rows.append(row)
        self.lower.append(lower)
        self.upper.append(upper)

    def program(self, start: list[float]) -> MPCC:
        """Return the program; the first variables of the first step are fixed, and all others start from zero."""
        lower = np.full(self.columns.shape, -np.inf)
        upper = -lower
        lower[: len(start), 0] = upper[: len(start), 0] = start
        first = np.clip(np.zeros(lower.shape), lower, upper)
        a, b = (ca.vertcat(*side) for side in zip(*self.pairs, strict=True))
        return MPCC.of_pairs(
            w=ca.vec(self.columns),
            G=a,
            H=b,
            objective=self.objective,
            g=ca.vertcat(*self.rows),
            lbg=np.array(self.lower),
            ubg=np.array(self.upper),
            lbw=lower.ravel("F"),
            ubw=upper.ravel("F"),
            w0=first.ravel("F"),
        )
