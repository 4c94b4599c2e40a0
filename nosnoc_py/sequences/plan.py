"""A sequence as a system reads it, and a system's modes as one writes them down."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Listing
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.sequences.equations import Mode, ModeLaws
from nosnoc_py.solution.sequence import IMPACT, Sequence


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """A sequence as a system reads it: the modes of all phases, and the impacts before each of them.

    Attributes
    ----------
    modes : tuple of Mode
    impacts : tuple of mapping
        From names to what they do in the impact; those that are mentioned.
    contacts : mapping name -> mode
        What has impacts, and the mode from which it has one, which need not be mentioned.
    """

    modes: tuple[Mode, ...]
    impacts: tuple[Mapping[str, str], ...]
    contacts: Mapping[str, str]

    @classmethod
    def of(cls, sequence: Sequence, laws: ModeLaws) -> Plan:
        """Check a sequence.

        Raises
        ------
        ModelError
            For names and modes that the system does not have.
        """
        modes = tuple(_mode(phase, laws, k) for k, phase in enumerate(sequence.phases))
        # Compliant contacts have no impacts: no mode is called "".
        soft = getattr(laws, "soft", ())
        open_ = {name: "" if name in soft else laws.default(name) or "" for name in laws.names}
        contacts = open_ if laws.impulses else {}
        return cls(modes=modes, impacts=tuple(_impacts(said, laws) for said in sequence.impacts), contacts=contacts)

    def __len__(self) -> int:
        return len(self.modes)

    def without(self, gone: np.ndarray, edges: np.ndarray) -> tuple[Plan, np.ndarray]:
        """The plan and the ends of its phases without some phases; their impacts are those of the next phase.

        A contact that closes for no time at all has an impact, too.
        """
        modes, impacts, begins, pending = list[Mode](), list[Mapping[str, str]](), list[float](), dict[str, str]()
        for k, mode in enumerate(self.modes):
            pending = {**pending, **(self._closing(k) if gone[k] else {}), **self.impacts[k]}
            if gone[k] or (modes and mode == modes[-1] and not pending):
                continue
            modes.append(mode)
            impacts.append(pending)
            begins.append(float(edges[k]) if modes[1:] else 0.0)
            pending = {}
        plan = Plan(modes=tuple(modes), impacts=tuple(impacts), contacts=self.contacts)
        return plan, np.array([*begins, edges[-1]])

    def _closing(self, k: int) -> dict[str, str]:
        """Contacts that close before phase k, and how."""
        pairs = zip(self.contacts.items(), self.modes[k - 1], self.modes[k], strict=True) if k and self.contacts else ()
        return {name: is_ for (name, open_), was, is_ in pairs if was == open_ and is_ != open_}


def _mode(phase: Mapping[str, str], laws: ModeLaws, k: int) -> Mode:
    where = f"Sequence: phase {k}"
    for name, given in phase.items():
        if name not in laws.names:
            raise ModelError(f"{where}: {unknown_name(name, laws.names, 'name')}")
        legal = laws.words(name)
        if any(part not in legal for part in given.split("|")):
            raise ModelError(f"{where}: {name}: {unknown_name(given, legal, 'mode')}")
    found = []
    for name in laws.names:
        word: str | None = phase[name] if name in phase else laws.default(name)
        if word is None:
            raise ModelError(
                f"{where}: the mode of {name} is missing; give one of {', '.join(map(repr, laws.words(name)))}."
            )
        found.append(word)
    return tuple(found)


def _impacts(said: str, laws: ModeLaws) -> dict[str, str]:
    found = {}
    for part in said.removeprefix(IMPACT).split(", ") if said else ():
        name, word = part, ""
        if part not in laws.names and " " in part:
            name, word = part.rsplit(" ", 1)
        if name not in laws.names:
            raise ModelError(f"Sequence: {said!r}: {unknown_name(name, laws.names, 'name')}")
        legal = laws.words(name)[1:]
        if word and word not in legal:
            raise ModelError(f"Sequence: {said!r}: {unknown_name(word, legal, 'mode')}")
        found[name] = word or legal[0]
    return found


def written(modes: Listing[Mode], impacts: Listing[Mapping[str, str]], laws: ModeLaws, times: Any = None) -> Sequence:
    """The sequence of modes and impacts, as one would type it."""
    items: list[Any] = []
    for mode, struck in zip(modes, impacts, strict=True):
        if struck:
            said = [name if word == laws.words(name)[1] else f"{name} {word}" for name, word in struck.items()]
            items.append(IMPACT + ", ".join(said))
        items.append({name: word for name, word in zip(laws.names, mode, strict=True) if word != laws.default(name)})
    return Sequence(items, times)
