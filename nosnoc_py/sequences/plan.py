"""Translation between a `Sequence` as the user writes it and the modes of a system.

A `Sequence` mentions only what differs from the default; a `Plan` has the mode of every contact (or switch) in every
phase, with names checked. `Plan.of` and `sequence_from_modes` are inverse to each other.
"""

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
    """Sequence in the terms of a system: the modes of all phases, and the impacts before each of them.

    Attributes
    ----------
    modes : tuple of Mode
        One per phase.
    impacts : tuple of mapping name -> mode
        Contacts that are mentioned in the impact before each phase, with their modes in it.
    contacts : mapping name -> mode
        Contacts that can have impacts, with the mode ("open") from which closing is an impact, mentioned or not.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> from nosnoc_py.sequences.contact_laws import ContactLaws
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q, restitution=0.5)])
    >>> plan = Plan.of(ns.Sequence([{}, "impact ground", {}]), ContactLaws(ball))
    >>> plan.modes
    (('open',), ('open',))
    >>> plan.impacts
    ({}, {'ground': 'closed'})
    """

    modes: tuple[Mode, ...]
    impacts: tuple[Mapping[str, str], ...]
    contacts: Mapping[str, str]

    @classmethod
    def of(cls, sequence: Sequence, laws: ModeLaws) -> Plan:
        """Return the plan of a sequence.

        Raises
        ------
        ModelError
            For names and modes that the system does not have, or a mode that is missing.
        """
        modes = tuple(_mode(phase, laws, k) for k, phase in enumerate(sequence.phases))
        # Compliant contacts have no impacts; as no mode is called "", they are never found to close from it.
        soft = getattr(laws, "soft", ())
        open_ = {name: "" if name in soft else laws.default(name) or "" for name in laws.names}
        contacts = open_ if laws.impulses else {}
        return cls(modes=modes, impacts=tuple(_impacts(text, laws) for text in sequence.impacts), contacts=contacts)

    def __len__(self) -> int:
        return len(self.modes)

    def without_phases(self, removed: np.ndarray, edges: np.ndarray) -> tuple[Plan, np.ndarray]:
        """Return the plan without some phases, and the ends of the other ones.

        Impacts before a removed phase move to the next one. So do the impacts of contacts that close in a removed
        phase: a contact that closes for no time at all bounces.

        Parameters
        ----------
        removed : (phases,) bool
        edges : (phases + 1,)
            Ends of the phases [s].
        """
        modes, impacts, begins, pending = list[Mode](), list[Mapping[str, str]](), list[float](), dict[str, str]()
        for k, mode in enumerate(self.modes):
            # Later entries win: the phase's own impact has the mode that holds after it.
            pending = {**pending, **(self._closing(k) if removed[k] else {}), **self.impacts[k]}
            # Without the phase between them, equal modes are one phase, unless an impact separates them.
            if removed[k] or (modes and mode == modes[-1] and not pending):
                continue
            modes.append(mode)
            impacts.append(pending)
            # The first phase that is left begins at 0, whatever was removed before it.
            begins.append(float(edges[k]) if modes[1:] else 0.0)
            pending = {}
        plan = Plan(modes=tuple(modes), impacts=tuple(impacts), contacts=self.contacts)
        return plan, np.array([*begins, edges[-1]])

    def _closing(self, k: int) -> dict[str, str]:
        """Return the contacts that close at the beginning of phase k, with their modes in it."""
        pairs = zip(self.contacts.items(), self.modes[k - 1], self.modes[k], strict=True) if k and self.contacts else ()
        return {name: is_ for (name, open_), was, is_ in pairs if was == open_ and is_ != open_}


def _mode(phase: Mapping[str, str], laws: ModeLaws, k: int) -> Mode:
    """Return the complete mode of phase k of a sequence; raise if a name or a word is unknown."""
    where = f"Sequence: phase {k}"
    for name, word in phase.items():
        if name not in laws.names:
            raise ModelError(f"{where}: {unknown_name(name, laws.names, 'name')}")
        legal = laws.lasting_modes(name)
        # Sliding regions of a partition are joined by "|"; other modes contain no bar.
        if any(part not in legal for part in word.split("|")):
            raise ModelError(f"{where}: {name}: {unknown_name(word, legal, 'mode')}")
    words = []
    for name in laws.names:
        mode: str | None = phase[name] if name in phase else laws.default(name)
        if mode is None:
            raise ModelError(
                f"{where}: the mode of {name} is missing; give one of {', '.join(map(repr, laws.mode_names(name)))}."
            )
        words.append(mode)
    return tuple(words)


def _impacts(text: str, laws: ModeLaws) -> dict[str, str]:
    """Return the contacts of an impact, such as "impact left slip+, right", with their modes in it."""
    modes = {}
    for part in text.removeprefix(IMPACT).split(", ") if text else ():
        name, word = part, ""
        # A name may contain blanks: only if the whole is no name, its last word is a mode.
        if part not in laws.names and " " in part:
            name, word = part.rsplit(" ", 1)
        if name not in laws.names:
            raise ModelError(f"Sequence: {text!r}: {unknown_name(name, laws.names, 'name')}")
        # The first mode is "open", in which there is no impact.
        legal = laws.mode_names(name)[1:]
        if word and word not in legal:
            raise ModelError(f"Sequence: {text!r}: {unknown_name(word, legal, 'mode')}")
        modes[name] = word or legal[0]  # the first mode that is not open: closed or stick
    return modes


def sequence_from_modes(
    modes: Listing[Mode], impacts: Listing[Mapping[str, str]], laws: ModeLaws, times: Any = None
) -> Sequence:
    """Return the sequence of modes and impacts in its shortest form: defaults are left out."""
    items: list[Any] = []
    for mode, impact in zip(modes, impacts, strict=True):
        if impact:
            parts = [name if word == laws.mode_names(name)[1] else f"{name} {word}" for name, word in impact.items()]
            items.append(IMPACT + ", ".join(parts))
        items.append({name: word for name, word in zip(laws.names, mode, strict=True) if word != laws.default(name)})
    return Sequence(items, times)
