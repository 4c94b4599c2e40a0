"""Equations of a system in one mode and at the boundary of two modes, as data for the multi-phase program.

A kind of system takes part in multi-phase programs by one class with the methods of `ModeLaws`. It returns symbolic
rows with labels; the program knows neither contacts nor surfaces. Labels are also the keys of multipliers and margins,
so that the same condition has the same label in every mode: `gap[ground]`, `slip[ground]`, `side[plane]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import casadi as ca
import numpy as np

from nosnoc_py.motion.kinds import Kind

# Number of modes and of boundaries whose equations are kept, of those used last.
MODES = 256
# Mode of a system: one word for every contact, switching function, partition or constraint, in the order of `names`.
Mode = tuple[str, ...]
# Data of an impact: name, kind, normal impulse [N s], gap rate before and after [m/s], energy gained [J]; None for what
# a jump of a hybrid system does not have.
ImpactData = tuple[str, str, float | None, float | None, float | None, float | None]


@dataclass(frozen=True, eq=False, kw_only=True)
class Unknowns:
    """Unknowns of the program with bounds, initial values and typical values.

    Attributes
    ----------
    symbol : SX (n,)
    labels : tuple of str
    lower, upper, initial, scale : (n,)
        In the user's units.
    """

    symbol: ca.SX = field(default_factory=lambda: ca.SX(0, 1))
    labels: tuple[str, ...] = ()
    lower: Any = ()
    upper: Any = ()
    initial: Any = ()
    scale: Any = ()

    @classmethod
    def create(
        cls,
        name: str,
        labels: Sequence[str],
        *,
        lower: float = -np.inf,
        upper: float = np.inf,
        initial: float = 0.0,
        scale: Any = 1.0,
    ) -> Unknowns:
        """Return unknowns with new symbols, one per label; numbers are broadcast to all of them."""
        size = len(labels)
        numbers = {"lower": lower, "upper": upper, "initial": initial, "scale": scale}
        # Read-only views: numbers of unknowns are never changed in place.
        filled = {key: np.broadcast_to(np.asarray(value, float), (size,)) for key, value in numbers.items()}
        return cls(symbol=ca.SX.sym(name, size), labels=tuple(labels), **filled)

    def __add__(self, other: Unknowns) -> Unknowns:
        numbers = {key: np.append(getattr(self, key), getattr(other, key)) for key in ("lower", "upper")}
        numbers |= {key: np.append(getattr(self, key), getattr(other, key)) for key in ("initial", "scale")}
        symbol = ca.vertcat(self.symbol, other.symbol)
        return Unknowns(symbol=symbol, labels=(*self.labels, *other.labels), **numbers)

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return len(self.labels)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """Labelled expressions: equations (= 0) or inequalities (>= 0).

    Attributes
    ----------
    expression : SX (m,)
    labels : tuple of str
        One per row; rows of the same condition share a label.
    """

    expression: ca.SX = field(default_factory=lambda: ca.SX(0, 1))
    labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, *parts: tuple[str, ca.SX]) -> Rows:
        """Return rows from pairs of a label and an expression; one label may stand for several rows."""
        # The empty column keeps the type SX if there are no parts: `ca.vertcat()` is a DM.
        expression = ca.vertcat(ca.SX(0, 1), *[part for _, part in parts])
        return cls(expression=expression, labels=tuple(label for label, part in parts for _ in range(part.numel())))

    def __add__(self, other: Rows) -> Rows:
        both = ca.vertcat(self.expression, other.expression)
        return Rows(expression=both, labels=(*self.labels, *other.labels))

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.labels)


@dataclass(frozen=True, eq=False, kw_only=True)
class ModeEquations:
    """DAE of one mode: inertia x' = flow, with multipliers z determined by equations, subject to inequalities.

    Attributes
    ----------
    z : Unknowns
        Contact forces, or multipliers of Filippov's convex combination.
    inertia : SX (n_x, n_x) or None
        None for the unit matrix.
    flow : SX (n_x,)
    equations, inequalities : Rows
        0 = equations and 0 <= inequalities at all times; the differential index is at most two.
    shown : SX (n_s,)
        Forces or multipliers that solutions report, by the names of `ModeLaws.shown`; zero where they do not act.
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
    """Conditions between two phases: guards, jumps and impulses.

    Attributes
    ----------
    y : Unknowns
        Components of the state after that jump, followed by impulses.
    equations, inequalities : Rows
        In the state before (x), in y and in p.
    after : tuple of (bool, int)
        Source of every component of the state after: (True, i) is y[i], (False, i) is x[i], which does not jump.
    beginning : Rows
        0 <= beginning at the first stage of the phase after: the rate of a gap that opens, which is zero at the
        boundary itself.
    shown : SX (n_i,)
        Impulses that solutions report, by the names of `ModeLaws.impulses`.
    """

    y: Unknowns
    equations: Rows
    inequalities: Rows
    # Components that do not jump are the same unknowns before and after: continuity needs no rows.
    after: tuple[tuple[bool, int], ...]
    beginning: Rows
    shown: ca.SX


class ModeLaws(Protocol):
    """Interface of a system to multi-phase programs: its modes, their equations, and their boundaries.

    Attributes
    ----------
    names : tuple of str
        Contacts, switching functions, partitions, or constraints, each of which has a mode.
    shown, impulses : tuple of (str, Role, str)
        Label, role and unit of the quantities that solutions report in phases and at boundaries.
    length : float
        Typical value of gaps [m]; 1 for systems without gaps.
    """

    length: float
    names: tuple[str, ...]
    shown: tuple[Any, ...]
    impulses: tuple[Any, ...]

    def mode_names(self, name: str) -> tuple[str, ...]:
        """Return the modes that a contact, switching function, partition or constraint can have."""
        ...

    def lasting_modes(self, name: str) -> tuple[str, ...]:
        """Return those of its modes that last: a jump takes no time."""
        ...

    def default(self, name: str) -> str | None:
        """Return the mode that applies if a phase does not mention a name; None if it must be mentioned."""
        ...

    # Implementations return the same object for equal modes: the program makes one block of all phases that share it.
    def equations(self, mode: Mode) -> ModeEquations:
        """Return the DAE of a mode."""
        ...

    def start(self, mode: Mode) -> tuple[Rows, Rows]:
        """Return equations and inequalities of a state in which a motion may begin in a mode."""
        ...

    def boundary(self, before: Mode, impacts: Mapping[str, str], after: Mode) -> Boundary:
        """Return the conditions between two modes, with impacts of some contacts."""
        ...

    def onset(self, before: Mode, after: Mode) -> Rows:
        """Return conditions (>= 0) of states and controls (x, u, p) at which a mode begins without an impact."""
        ...

    def changes(self, before: Mode, after: Mode) -> list[tuple[str, Kind]]:
        """Return names and kinds of the events between two modes, without impacts."""
        ...

    def mode_at(self, x: np.ndarray, p: np.ndarray) -> Mode:
        """Return the mode of a state (n_x,)."""
        ...

    def kinks(self, motion: Any, p: np.ndarray) -> list[Any]:
        """Return changes of mode that are no events of a motion: those of compliant contacts."""
        ...

    def impact_modes(self, names: Sequence[str], after: np.ndarray, p: np.ndarray) -> dict[str, str]:
        """Return the modes of contacts in an impact, by the state after it (n_x,)."""
        ...

    def impacts_between(
        self, before: np.ndarray, after: np.ndarray, impulses: np.ndarray, p: np.ndarray
    ) -> list[ImpactData]:
        """Return the impacts between two states (n_x,), with impulses (n_i,)."""
        ...
