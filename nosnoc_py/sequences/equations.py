"""What holds in one mode of a system, and where one mode ends and the next begins: data for the multi-phase program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import casadi as ca
import numpy as np

from nosnoc_py.motion.kinds import Kind

# One word for every contact, switching function, partition or constraint, in the order of the system.
Mode = tuple[str, ...]
# Of an impact: name, kind, normal impulse, gap rate before and after, energy gained.
Impacted = tuple[str, str, float, float, float, float]


@dataclass(frozen=True, eq=False, kw_only=True)
class Unknowns:
    """Symbols with a label, bounds, a start value and a size each."""

    symbol: ca.SX = field(default_factory=lambda: ca.SX(0, 1))
    labels: tuple[str, ...] = ()
    lower: Any = ()
    upper: Any = ()
    initial: Any = ()
    scale: Any = ()

    @classmethod
    def made(
        cls,
        name: str,
        labels: Sequence[str],
        *,
        lower: float = -np.inf,
        upper: float = np.inf,
        initial: float = 0.0,
        scale: Any = 1.0,
    ) -> Unknowns:
        """With symbols of their own."""
        size = len(labels)
        numbers = {"lower": lower, "upper": upper, "initial": initial, "scale": scale}
        filled = {key: np.broadcast_to(np.asarray(value, float), (size,)) for key, value in numbers.items()}
        return cls(symbol=ca.SX.sym(name, size), labels=tuple(labels), **filled)

    def __add__(self, other: Unknowns) -> Unknowns:
        numbers = {key: np.append(getattr(self, key), getattr(other, key)) for key in ("lower", "upper")}
        numbers |= {key: np.append(getattr(self, key), getattr(other, key)) for key in ("initial", "scale")}
        symbol = ca.vertcat(self.symbol, other.symbol)
        return Unknowns(symbol=symbol, labels=(*self.labels, *other.labels), **numbers)

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.labels)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """Expressions with a label each: equations, or what is not negative."""

    expression: ca.SX = field(default_factory=lambda: ca.SX(0, 1))
    labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, *parts: tuple[str, ca.SX]) -> Rows:
        """Rows from labels and expressions; one label may stand for several rows."""
        expression = ca.vertcat(ca.SX(0, 1), *[part for _, part in parts])
        return cls(expression=expression, labels=tuple(label for label, part in parts for _ in range(part.numel())))

    def __add__(self, other: Rows) -> Rows:
        both = ca.vertcat(self.expression, other.expression)
        return Rows(expression=both, labels=(*self.labels, *other.labels))

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.labels)


@dataclass(frozen=True, eq=False, kw_only=True)
class ModeEquations:
    """inertia x' = flow with multipliers z that equations determine, where the inequalities hold.

    Attributes
    ----------
    z : Unknowns
    inertia : SX (n_x, n_x) or None
        None for the unit matrix.
    flow : SX (n_x,)
    equations, inequalities : Rows
        0 = equations, 0 <= inequalities, at all times.
    shown : SX (n_s,)
        Forces or multipliers by the names of `Laws.shown`, zero where they do not act.
    held : SX (n_h, n_v), optional
        The velocities of the mode satisfy held v = 0; None where the mode restricts none.
    """

    z: Unknowns
    flow: ca.SX
    equations: Rows
    inequalities: Rows
    shown: ca.SX
    inertia: ca.SX | None = None
    held: ca.SX | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Boundary:
    """What holds between two phases.

    Attributes
    ----------
    y : Unknowns
        Beside the state before: the state after where it jumps, impulses.
    equations, inequalities : Rows
        In the state before (x), in y and in p.
    after : tuple of (bool, int)
        Every component of the state after: whether it is one of y, and which.
    beginning : Rows
        0 <= beginning at the first stage of the phase after: rates of what was zero until there.
    shown : SX (n_i,)
        Impulses by the names of `Laws.impulses`.
    """

    y: Unknowns
    equations: Rows
    inequalities: Rows
    after: tuple[tuple[bool, int], ...]
    beginning: Rows
    shown: ca.SX


class ModeLaws(Protocol):
    """A system as it is in its modes.

    Attributes
    ----------
    names : tuple of str
        Contacts, switching functions, partitions, constraints.
    shown, impulses : tuple of (str, Role, str)
        Label, role and unit of what solutions show of phases and of boundaries.
    length : float
        Typical size of gaps [m]; where there are none, any number.
    """

    length: float
    names: tuple[str, ...]
    shown: tuple[Any, ...]
    impulses: tuple[Any, ...]

    def words(self, name: str) -> tuple[str, ...]:
        """The modes of a thing."""
        ...

    def default(self, name: str) -> str | None:
        """The mode of a thing that is not mentioned; None where it has to be."""
        ...

    def equations(self, mode: Mode) -> ModeEquations:
        """What holds in a mode."""
        ...

    def start(self, mode: Mode) -> tuple[Rows, Rows]:
        """Equations and inequalities of a state in which a motion may begin in a mode."""
        ...

    def boundary(self, before: Mode, impacts: Mapping[str, str], after: Mode) -> Boundary:
        """What holds between two modes, with impacts of some contacts."""
        ...

    def changes(self, before: Mode, after: Mode) -> list[tuple[str, Kind]]:
        """Names and kinds of the events between two modes, but impacts."""
        ...

    def mode_at(self, x: np.ndarray, p: np.ndarray) -> Mode:
        """The mode that a state (n_x,) itself belongs to."""
        ...

    def kinks(self, motion: Any, p: np.ndarray) -> list[Any]:
        """Events where a mode changes, and of which a motion does not tell itself."""
        ...

    def struck_at(self, names: Sequence[str], after: np.ndarray, p: np.ndarray) -> dict[str, str]:
        """What contacts with an impact do in it, by the state after it (n_x,)."""
        ...

    def impacts_of(self, before: np.ndarray, after: np.ndarray, impulses: np.ndarray, p: np.ndarray) -> list[Impacted]:
        """Impacts between two states, with their impulses (n_i,)."""
        ...
