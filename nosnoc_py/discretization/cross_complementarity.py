"""Cross complementarity: the products that vanish inside one finite element (FESD-J, Eqs. 13a and 20-22).

Standard complementarity, a_j b_j = 0 at every stage j, lets the active set change between two stages of an element.
The switch then lies inside the element, and a Runge-Kutta method loses its order there. The cross complementarity rule
of FESD also forbids products of different stages: a_i b_j = 0 for all i and j. An active set can then change only at
the boundary of two elements, and as the steps h are unknowns, the boundaries move to the switches.

- Side a is continuous in time, so its value at the left boundary belongs to the element as well: b_j > 0 at a stage
  forces a = 0 at the left boundary. This is how a switch is detected there (`Pair.left`).
- Side b may jump, so its value at a boundary belongs to the element only if it is part of the solution there
  (`cross = "both"`, Eq. 22).
- Solvers see sums of the products; the option `cross_complementarity` selects the sums (`ProgramBuilder.group`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nosnoc_py.mpcc.program import ProgramBuilder


@dataclass(frozen=True, eq=False)
class PairRows:
    """Rows of one pair in one element, in the vectors G (side a) and H (side b) of the MPCC.

    Attributes
    ----------
    a_left : (n,) or (0,)
        Side a at the left boundary; empty if it has no value there.
    a : (n_s, n) or (n_s + 1, n)
        Side a at the RK stages; one row more if a continuous side has a value at a right boundary without a stage.
    b : (n_s, n)
        Side b at the RK stages.
    b_left : (n,) or (0,)
        Side b at the left boundary.
    end : (n_s,)
        Weights that extrapolate b from the stages to the right boundary.
    """

    a_left: np.ndarray
    a: np.ndarray
    b: np.ndarray
    b_left: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    end: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def a_all(self, i: int) -> np.ndarray:
        """Return the rows of component i of a at the stages and the left boundary."""
        return np.append(self.a[:, i], self.a_left[i : i + 1])

    def b_all(self, i: int) -> np.ndarray:
        """Return the rows of component i of b at the stages and the left boundary."""
        return np.append(self.b[:, i], self.b_left[i : i + 1])


# (rows, component) -> groups (rows of a, rows of b) whose products vanish, by `Pair.cross`.
CROSS: dict[str, Callable[[PairRows, int], list[tuple[np.ndarray, np.ndarray]]]] = {
    # a at the left boundary is always included, also where no impulse is allowed at the first node. Without it a large
    # force can stop a body inside an element: the residuals are 1e-16 and the motion is wrong.
    "left": lambda rows, i: [(rows.a_all(i), rows.b[:, i])],
    "both": lambda rows, i: [(rows.a_all(i), rows.b_all(i))],
    "none": lambda rows, i: [(rows.a[j : j + 1, i], rows.b[j : j + 1, i]) for j in range(len(rows.b))],
}


def add_groups(builder: ProgramBuilder, rows: PairRows, rule: str, owners: Sequence[str] = (), **kind: Any) -> None:
    """Add the vanishing products of one pair in one element to the program.

    Parameters
    ----------
    builder : ProgramBuilder
    rows : PairRows
    rule : {"left", "both", "none"}
        Key of `CROSS`.
    owners : sequence of str
        Names of the objects that the components belong to; empty if there are none.
    **kind
        Further fields of `ProgramBuilder.group`.
    """
    for i in range(rows.a.shape[1]):
        of = owners[i] if owners else ""
        for left, right in CROSS[rule](rows, i):
            # Variables with one value per element have the same row at every stage.
            builder.group(np.unique(left), np.unique(right), of=of, **kind)
