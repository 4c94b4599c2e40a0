"""Rank of points by the function that is minimised."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from nosnoc_py.mpcc.auto import better, rank_of
from nosnoc_py.mpcc.residuals import Values
from nosnoc_py.status import Status


def test_points_are_ranked_by_what_is_minimised() -> None:
    """A lower objective at the expense of the penalty is no better point: 1 + 5 against 2 + 0.5."""
    none = np.zeros(0)
    values = Values(w=none, objective=1.0, penalty=5.0, g=none, G=none, H=none, r=none, unequal=none)

    def state(values: Values) -> Any:
        return SimpleNamespace(status=Status.SOLVED, values=values, certificate=None)

    low, high = state(replace(values, objective=2.0, penalty=0.5)), state(values)
    assert (low.values.minimised, high.values.minimised) == (2.5, 6.0)
    assert better(high, low) is low
    assert better(low, high) is low
    assert rank_of(low) < rank_of(high)
