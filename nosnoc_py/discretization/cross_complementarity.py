"""Which products vanish inside one finite element (FESD-J, Eqs. 13a and 20-22)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nosnoc_py.mpcc.program import ProgramBuilder


@dataclass(frozen=True, eq=False)
class PairRows:
    """Rows of one pair in one element: a and b at the RK stages (n_s, n) and at the left boundary (n,) or nowhere (0,).

    A side a that is continuous has one row more, at the right boundary, where no stage lies there. `end` (n_s,) are the
    weights that give the value of b at the right boundary.
    """

    a_left: np.ndarray
    a: np.ndarray
    b: np.ndarray
    b_left: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    end: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def a_all(self, i: int) -> np.ndarray:
        """Component i of a at all places of the element."""
        return np.append(self.a[:, i], self.a_left[i : i + 1])

    def b_all(self, i: int) -> np.ndarray:
        """Component i of b at all places of the element."""
        return np.append(self.b[:, i], self.b_left[i : i + 1])


CROSS: dict[str, Callable[[PairRows, int], list[tuple[np.ndarray, np.ndarray]]]] = {
    # The left boundary belongs in always, also where no impulse is allowed at the first node: without it a body is
    # caught inside an element by a huge force, with residuals of 1e-16 and a wrong answer.
    "left": lambda rows, i: [(rows.a_all(i), rows.b[:, i])],
    "both": lambda rows, i: [(rows.a_all(i), rows.b_all(i))],
    "none": lambda rows, i: [(rows.a[j : j + 1, i], rows.b[j : j + 1, i]) for j in range(len(rows.b))],
}


def add_groups(builder: ProgramBuilder, rows: PairRows, rule: str, owners: Sequence[str] = (), **kind: Any) -> None:
    """Hand the vanishing products of one pair in one element to the program.

    `owners` say what the components belong to, where they belong to something; `kind` is as in `ProgramBuilder.group`.
    """
    for i in range(rows.a.shape[1]):
        of = owners[i] if owners else ""
        for left, right in CROSS[rule](rows, i):
            builder.group(np.unique(left), np.unique(right), of=of, **kind)  # one value per element is one row
