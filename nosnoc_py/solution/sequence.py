"""Sequences of modes: the notation in which a user states, and results list, the order of modes of a motion.

Phases are mappings from names to modes, impacts between them words. Contacts that are not mentioned are open, so free
flight is an empty mapping. Invariant: `phases` and `impacts` have equal lengths; `impacts[k]` is the impact at the
start of phase k, "" without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import assign
from nosnoc_py.errors import ModelError

# First word of an item that is an impact.
IMPACT = "impact "
EXPECTED = 'a mapping such as {"ground": "stick"} for a phase, or a word such as "impact ground" between two phases'


@named_arguments
@dataclass(frozen=True, eq=False, repr=False)
class Sequence:
    """The modes of a motion in their order: what touches, what slips, on which side of its surfaces it is.

    Parameters
    ----------
    items : sequence
        Phases, each a mapping from names to modes, and impacts between them. Contacts are "open" (those that are not
        mentioned), "closed" (without friction), "stick", "slip+" or "slip-" (one tangent) or "slip" (two); switching
        functions "+", "-" or "0" (sliding); partitions by indicators the number of their region, or several joined by
        "|"; constraints "free" or "active". A contact that closes has an impact, which need not be mentioned; one that
        bounces is: "impact ball", with its mode in the impact unless it sticks, as in "impact ball slip+, wall".
    times : (phases - 1,), optional
        Ends of all phases but the last [s], if they are known.

    Raises
    ------
    ModelError
        If an item is neither, or there is not one time between any two phases.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.Sequence([{}, {"ground": "slip+"}, {"ground": "stick"}], times=[0.4, 1.2])
    Sequence([
        {},
        {'ground': 'slip+'},
        {'ground': 'stick'},
    ], times=[0.4, 1.2])
    """

    items: Any
    times: Any = None
    phases: tuple[Mapping[str, str], ...] = field(init=False)
    impacts: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.items, str | Mapping) or not isinstance(self.items, Iterable):
            raise ModelError(f"Sequence: expected a list, each entry {EXPECTED}, given {type(self.items).__name__}.")
        items = tuple(dict(item) if isinstance(item, Mapping) else item for item in self.items)
        phases, impacts, pending = list[Mapping[str, str]](), list[str](), ""
        for item in items:
            if isinstance(item, dict):
                # A mode given as a number (+1, 0) would never equal a mode of a motion.
                if not all(isinstance(part, str) for pair in item.items() for part in pair):
                    raise ModelError(f"Sequence: expected strings as names and modes, given {item!r}.")
                phases.append(item)
                impacts.append(pending)
                pending = ""
            # Two impacts in a row have no phase between them: one word lists all contacts of one instant.
            elif isinstance(item, str) and item.startswith(IMPACT) and not pending:
                pending = item
            else:
                raise ModelError(f"Sequence: expected {EXPECTED}, given {item!r}.")
        if not phases or pending:
            raise ModelError("Sequence: expected one phase at least, and a phase after every impact.")
        times = None if self.times is None else _times(self.times, len(phases) - 1)
        assign(self, items=items, times=times, phases=tuple(phases), impacts=tuple(impacts))

    def __len__(self) -> int:
        return len(self.phases)

    def __repr__(self) -> str:
        lines = [f"    {item!r}," for item in self.items]
        times = "" if self.times is None else f", times={[float(f'{t:.10g}') for t in self.times]}"
        return "\n".join(["Sequence([", *lines, f"]{times})"])

    def __eq__(self, other: object) -> bool:
        """True if modes and impacts are equal; times may differ."""
        return isinstance(other, Sequence) and self.items == other.items

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Times are left out, as in `__eq__`.
        return hash(tuple(frozenset(item.items()) if isinstance(item, dict) else item for item in self.items))


def _times(given: Any, count: int) -> np.ndarray:
    try:
        times = np.asarray(given, float).reshape(-1)
    except (TypeError, ValueError):
        # Refused below, with the message for all wrong times.
        times = np.full(1, np.nan)
    if times.size != count or not np.isfinite(times).all() or (np.diff(times, prepend=0.0) < 0.0).any():
        raise ModelError(
            f"Sequence: times: expected {count} times in nondecreasing order, one between two phases, given {given!r}."
        )
    return times
