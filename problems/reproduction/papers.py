"""The five papers by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from nosnoc_py.errors import OptionError, unknown_name
from problems.reproduction import event_selected, fesdj, lie_group, minimum_principle, time_freezing
from problems.reproduction.records import Paper

PAPERS: Mapping[str, Paper] = MappingProxyType(
    {one.PAPER.name: one.PAPER for one in (fesdj, time_freezing, minimum_principle, event_selected, lie_group)}
)


def chosen(names: Sequence[str]) -> tuple[Paper, ...]:
    """The papers of these names in their own order; all of them if there is no name.

    Raises
    ------
    OptionError
        For an unknown name.
    """
    for name in names:
        if name not in PAPERS:
            raise OptionError(unknown_name(name, PAPERS, "paper"))
    return tuple(paper for name, paper in PAPERS.items() if not names or name in names)
