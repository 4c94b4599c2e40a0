"""Rank of a result, whatever method found it: first what an independent simulation says, then objective or violation.

One order serves the loops over attempts (meshes of a sequence, sequences of a search, random starts of finite
elements), so that a result that one of them keeps is not thrown away by another one. The word with which a solver
ended is no part of the rank: a point counts by its residuals, and a motion by its simulation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

# Differences of objectives relative to their size: within which two results agree, and the smallest gain that counts.
SAME_OBJECTIVE, LEAST_GAIN = 1e-2, 1e-4
# Least size of an objective as a fraction of the change between a start and its optimum: an objective that vanishes at
# the optimum has no other scale, and states that are known to 1e-6 leave this part of it.
VANISHING = 1e-6


class RankGroup(IntEnum):
    """Groups of results, from the best to the worst.

    Attributes
    ----------
    CONFIRMED
        A simulation confirms the motion.
    SOUND
        Only errors of the discretisation speak against it: a finer mesh is likely to confirm it.
    WRONG
        A simulation refutes it, or cannot decide.
    UNTESTED
        The unrelaxed problem is feasible at the point; it was not simulated.
    MISSES
        A constraint or an equation is violated.
    BROKEN
        Not finite.
    """

    CONFIRMED = 0
    SOUND = 1
    WRONG = 2
    UNTESTED = 3
    MISSES = 4
    BROKEN = 5


class Rank(NamedTuple):
    """Rank of a result; smaller is better.

    Attributes
    ----------
    group : RankGroup
    amount : float
        The objective; of a point that misses constraints its largest relative violation.
    """

    group: RankGroup
    amount: float

    @classmethod
    def of_point(cls, objective: float, residual: float, tolerance: float) -> Rank:
        """Return the rank of a point that was not simulated, by its largest relative violation.

        Examples
        --------
        >>> Rank.of_point(3.0, 1e-9, 1e-6) < Rank.of_point(1.0, 1e-3, 1e-6)
        True
        """
        if not np.isfinite([objective, residual]).all():
            return cls(RankGroup.BROKEN, np.inf)
        return cls(RankGroup.MISSES, residual) if residual > tolerance else cls(RankGroup.UNTESTED, objective)

    @property
    def promise(self) -> Rank:
        """The rank of what a finer mesh is likely to make of the result."""
        return Rank(RankGroup.CONFIRMED, self.amount) if self.group is RankGroup.SOUND else self

    @property
    def feasible(self) -> bool:
        """True if no constraint or equation is violated at the nodes."""
        return self.group <= RankGroup.UNTESTED


@dataclass(frozen=True)
class ObjectiveScale:
    """Size of the objective in a problem, for the comparison of results in any unit of the cost.

    Attributes
    ----------
    change : float
        Largest change between a start and its optimum that was seen so far.

    Examples
    --------
    The same in any unit; an objective that vanishes is compared with what the starts cost:

    >>> scale = ObjectiveScale.of([(5e-12, 1e-12)])
    >>> scale.above(1e-12, SAME_OBJECTIVE) == 1.01e-12, scale.above(0.0, SAME_OBJECTIVE) > 0.0
    (True, True)
    """

    change: float = 0.0

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> ObjectiveScale:
        """Return the scale from pairs of objectives at a start and at its optimum."""
        return cls(max((abs(a - b) for a, b in pairs if np.isfinite(a - b)), default=0.0))

    def size(self, objective: float) -> float:
        """Return the size that differences from an objective are relative to."""
        return max(abs(objective), VANISHING * self.change)

    def above(self, objective: float, share: float) -> float:
        """Return the objective plus a fraction of its size (negative: below it)."""
        return objective + share * self.size(objective)
