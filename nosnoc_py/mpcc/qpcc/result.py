"""Results of searches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

Array = np.ndarray


class QPCCOutcome(IntEnum):
    """How a search ended."""

    SOLVED = 0  # the best answer, up to the gap
    LIMIT = 1  # an answer; better ones have not been excluded within the limit of nodes
    INFEASIBLE = 2  # no answer exists
    NOTHING = 3  # no answer within the limit of nodes
    NUMBERS = 4  # a number is not finite, or P is not positive definite


@dataclass(frozen=True, eq=False, kw_only=True)
class QPCCResult:
    """Result of a search.

    Attributes
    ----------
    outcome : QPCCOutcome
    z : (n,)
    sides : (pairs,) int
        Side of each pair that is zero.
    multipliers : (m,)
        Of the rows: positive at upper bounds, negative at lower ones.
    objective, bound : float
        Of z, and a lower bound of what any z has.
    kept : float
        Objective of the order that was given; infinite if none was, or if it is infeasible.
    nodes, steps : int
        Programs and active-set steps.
    """

    outcome: QPCCOutcome
    z: Array
    sides: Array
    multipliers: Array
    objective: float
    bound: float
    kept: float
    nodes: int
    steps: int

    @property
    def found(self) -> bool:
        """True if there is an answer."""
        return self.outcome in (QPCCOutcome.SOLVED, QPCCOutcome.LIMIT)
