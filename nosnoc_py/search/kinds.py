"""The kinds of start of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from nosnoc_py.search.evolution import evolution
from nosnoc_py.search.relaxed import relaxed
from nosnoc_py.search.simplex import simplex
from nosnoc_py.search.smoothed import smoothed
from nosnoc_py.search.stances import Proposal, stances
from nosnoc_py.search.starts import Start, StartTask, constant, line, random

# By name, in the order in which they are tried first; each is a stream of starts, with None after a piece of work that
# has not led to one yet.
STARTS: dict[str, Callable[[StartTask, np.random.Generator], Iterator[Start | Proposal | None]]] = {
    "constant": constant,
    "line": line,
    "smoothed": smoothed,
    "random": random,
    "relaxed": relaxed,
    "evolution": evolution,
    "simplex": simplex,
    "stances": stances,
}
