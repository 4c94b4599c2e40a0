"""Which products vanish inside one finite element (FESD-J, Eqs. 13a and 20)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nosnoc_py.mpcc.program import ProgramBuilder


@dataclass(frozen=True, eq=False)
class PairRows:
    """Rows of one pair in one element: a at the left boundary (n,), a and b at the RK stages (n_s, n)."""

    a_left: np.ndarray
    a: np.ndarray
    b: np.ndarray


def _with_left(rows: PairRows, i: int) -> list[tuple[np.ndarray, np.ndarray]]:
    # The left boundary belongs in always, also where no impulse is allowed at the first node: without it a body is
    # caught inside an element by a huge force, with residuals of 1e-16 and a wrong answer.
    return [(np.append(rows.a[:, i], rows.a_left[i]), rows.b[:, i])]


def _stage_by_stage(rows: PairRows, i: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(rows.a[j : j + 1, i], rows.b[j : j + 1, i]) for j in range(len(rows.a))]


CROSS: dict[str, Callable[[PairRows, int], list[tuple[np.ndarray, np.ndarray]]]] = {
    "left": _with_left,
    "none": _stage_by_stage,
}


def add_groups(builder: ProgramBuilder, rows: PairRows, rule: str) -> None:
    """Hand the vanishing products of one pair in one element to the program."""
    for i in range(rows.a.shape[1]):
        for left, right in CROSS[rule](rows, i):
            builder.group(left, right)
