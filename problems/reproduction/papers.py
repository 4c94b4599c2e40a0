"""The five papers by name: the data are in `NAME.yaml`, functions that read results in `NAME.py`.

An entry's `read` is a path of keys into the results, the name of a function of that module, or one with arguments,
`{function: [arguments]}`, that makes a function of the results; so is its `erratum`. Its `agreement` is one rule of
`verdicts` by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ruamel.yaml import YAML

from nosnoc_py.errors import OptionError, unknown_name
from problems.reproduction.records import Entry, Experiment, Paper, Read
from problems.reproduction.verdicts import Agreement, AtLeast, AtMost, Holds, Within

NAMES = ("fesdj", "time_freezing", "minimum_principle", "event_selected", "lie_group")
RULES: Mapping[str, type[Agreement]] = {"within": Within, "at_most": AtMost, "at_least": AtLeast}


def loaded(name: str) -> Paper:
    """Return a paper from its file."""
    data = YAML(typ="safe").load(Path(__file__).with_name(f"{name}.yaml"))
    readers = import_module(f"problems.reproduction.{name}")
    return Paper(
        name=name,
        title=data["title"],
        subject=data["subject"],
        experiments=tuple(Experiment(name=key, **_tuples(one)) for key, one in data["experiments"].items()),
        entries=tuple(_entry(one, readers) for one in data["entries"]),
    )


def _entry(data: Mapping[str, Any], readers: Any) -> Entry:
    rule = data.get("agreement", {})
    more: dict[str, Any] = {"agreement": _agreement(rule)} if rule else {}
    more |= {name: _read(data[name], readers) for name in ("read", "erratum") if name in data}
    return Entry(**{**_tuples(data), **more})


def _agreement(data: Mapping[str, Any]) -> Agreement:
    ((name, values),) = data.items()
    return Holds(reason=values) if name == "holds" else RULES[name](**values)


def _read(data: Any, readers: Any) -> Read:
    if isinstance(data, list):
        return tuple(data)
    if isinstance(data, str):
        return getattr(readers, data)
    ((name, arguments),) = data.items()
    return getattr(readers, name)(*arguments)


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with tuples in place of lists, since YAML only has lists."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    return {name: _tuples(value) if isinstance(value, dict) else value for name, value in values.items()}


PAPERS: Mapping[str, Paper] = MappingProxyType({name: loaded(name) for name in NAMES})


def chosen(names: Sequence[str]) -> tuple[Paper, ...]:
    """Return the papers of these names in their own order; all of them if there is no name.

    Raises
    ------
    OptionError
        For an unknown name.
    """
    for name in names:
        if name not in PAPERS:
            raise OptionError(unknown_name(name, PAPERS, "paper"))
    return tuple(paper for name, paper in PAPERS.items() if not names or name in names)
