"""Table of the kinds of start of `Search`; a new kind is one function and one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from nosnoc_py.plugins import Family
from nosnoc_py.search.compliant import compliant
from nosnoc_py.search.evolution import evolution
from nosnoc_py.search.quasistatic import quasistatic
from nosnoc_py.search.relaxed import relaxed
from nosnoc_py.search.simplex import simplex
from nosnoc_py.search.smoothed import smoothed
from nosnoc_py.search.stances import Proposal, stances
from nosnoc_py.search.starts import Start, StartTask, constant, line, random

# Generators by name, in the order in which they are tried first. Each yields starts, and None after a piece of work
# that has not led to a start yet, so that the search can give the next turn to another kind.
STARTS: Family[Callable[[StartTask, np.random.Generator], Iterator[Start | Proposal | None]]] = Family(
    "starts",
    {
        "constant": constant,
        "line": line,
        "smoothed": smoothed,
        "random": random,
        "relaxed": relaxed,
        "evolution": evolution,
        "simplex": simplex,
        "stances": stances,
        "compliant": compliant,
        "quasistatic": quasistatic,
    },
)
