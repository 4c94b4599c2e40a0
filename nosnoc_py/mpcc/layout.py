"""Layout of the vectors of a program: which rows belong to which quantity at which control stage, element, RK stage.

Discretisation writes a layout while it appends rows; readouts, certificates and messages only look rows up. Blocks
follow each other without gaps, in the order of their creation, so that a row number has exactly one block. A `role` is
for code and a name for people: messages change with names, programs must not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from nosnoc_py.errors import TranscriptionError, UnknownNameError


@dataclass(frozen=True)
class At:
    """Place on the grid, counted from zero; coordinates without a meaning are None.

    Attributes
    ----------
    stage : int, optional
        Control stage.
    element : int, optional
        Finite element in the control stage.
    rk : int, optional
        Runge-Kutta stage in the element.
    """

    stage: int | None = None
    element: int | None = None
    rk: int | None = None

    def __str__(self) -> str:
        parts = (("control stage", self.stage), ("finite element", self.element), ("RK stage", self.rk))
        return ", ".join(f"{what} {value}" for what, value in parts if value is not None) or "whole horizon"


class ElementEnd(Enum):
    """End of a finite element at which a block lies that belongs to no RK stage."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True)
class Block:
    """Consecutive rows of one named quantity at one place.

    Attributes
    ----------
    name : str
    at : At
    start : int
        First row.
    components : tuple of str
        One label per row.
    role : Enum, optional
        Meaning of the rows, for code; names are for people.
    edge : ElementEnd, optional
        End of the element at which the block lies, if that is not an RK stage.
    of : str
        Name of the object that the rows belong to.
    """

    name: str
    at: At
    start: int
    components: tuple[str, ...]
    role: Enum | None = None
    edge: ElementEnd | None = None
    of: str = ""

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.components)

    @property
    def rows(self) -> slice:
        """Rows of the block as a slice."""
        return slice(self.start, self.start + self.size)


class Layout:
    """Ordered list of blocks that covers a vector without gaps.

    `layout["x", 3, 0, 1]` is the slice of "x" at control stage 3, finite element 0, RK stage 1 (missing coordinates
    are None). `layout.blocks(name)` and `layout.blocks(role=role)` iterate over blocks, and `layout.label(row)` returns
    the name and the place of a row.

    Examples
    --------
    >>> layout = Layout()
    >>> layout.add("x", At(0, 0, 1), ("height", "speed"))
    slice(0, 2, None)
    >>> layout.label(1)
    ('speed', 'control stage 0, finite element 0, RK stage 1')
    """

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._index: dict[tuple[str, At], Block] = {}
        self.size = 0

    def add(
        self,
        name: str,
        at: At,
        components: tuple[str, ...],
        role: Enum | None = None,
        edge: ElementEnd | None = None,
        of: str = "",
    ) -> slice:
        """Append a block and return its rows."""
        block = Block(name, at, self.size, components, role, edge, of)
        self._blocks.append(block)
        self._index[name, at] = block
        self.size += block.size
        return block.rows

    @property
    def names(self) -> tuple[str, ...]:
        """All block names, in the order of their first appearance."""
        return tuple(dict.fromkeys(block.name for block in self._blocks))

    def blocks(self, name: str | None = None, *, role: Enum | None = None) -> Iterator[Block]:
        """Iterate over the blocks of one name (which must exist), of one role (which need not), or over all."""
        # An unknown name is a typing error. A role may be absent: most programs do not have every kind of row.
        if name is not None and name not in self.names:
            raise UnknownNameError(name, self.names, "layout block")
        # A generator is returned, not yielded from, so that the error above is raised by the call and not by the first
        # `next`.
        named = (block for block in self._blocks if name is None or block.name == name)
        return (block for block in named if role is None or block.role is role)

    def __getitem__(self, key: str | tuple[str | int | None, ...]) -> slice:
        name, *place = (key,) if isinstance(key, str) else key
        there = list(self.blocks(str(name)))
        at = At(*place[:3])  # type: ignore[arg-type]
        # `place` has at most the three coordinates of `At`; a fourth one is an unknown place, not a TypeError.
        if len(place) > 3 or (str(name), at) not in self._index:
            raise UnknownNameError(f"{name} at {at}", (f"{name} at {b.at}" for b in there), "layout block")
        return self._index[str(name), at].rows

    def __len__(self) -> int:
        return self.size

    def find(self, row: int) -> tuple[Block, int]:
        """Return the block that holds a row, and the component within it.

        Raises
        ------
        TranscriptionError
            If there is no such row.
        """
        if not 0 <= row < self.size:
            raise TranscriptionError(f"layout: expected a row from 0 to {self.size - 1}, given {row}.")
        starts = [block.start for block in self._blocks]
        i = int(np.searchsorted(starts, row, side="right")) - 1
        while self._blocks[i].size == 0:  # empty blocks share the start of the next one
            i -= 1
        return self._blocks[i], row - self._blocks[i].start

    def label(self, row: int) -> tuple[str, str]:
        """Return (name of the component, place in words) of a row."""
        block, component = self.find(row)
        return block.components[component], str(block.at)

    def named(self, row: int) -> str:
        """Return the name of a row, with its place if it has one."""
        block, component = self.find(row)
        # Rows of textbook programs (`MPCC.of_pairs`) have no place on a grid.
        return block.components[component] + (f" ({block.at})" if block.at != At() else "")

    def __repr__(self) -> str:
        counts = {name: sum(b.size for b in self._blocks if b.name == name) for name in self.names}
        return f"Layout: {self.size} rows: " + ", ".join(f"{name} ({count})" for name, count in counts.items())
