"""A hybrid system with isolated jumps as a multi-phase program sees it: one mode, guards that end a phase, resets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.motion.kinds import Kind
from nosnoc_py.sequences.equations import Boundary, Impacted, Mode, ModeEquations, Rows, Unknowns
from nosnoc_py.sequences.reading import Stretch
from nosnoc_py.systems.hybrid import HybridSystem

WAITING, JUMPS = "waiting", "jumps"


class HybridLaws:
    """A `HybridSystem`: its guards are not negative, and where one of them is reached the state is reset."""

    shown: tuple[Any, ...] = ()
    impulses: tuple[Any, ...] = ()

    def __init__(self, system: HybridSystem) -> None:
        self.system = system
        self.names = tuple(jump.name for jump in system.jumps)
        self.length = 1.0
        guards = [(f"guard[{jump.name}]", jump.guard) for jump in system.jumps]
        self._guards = Rows.of(*guards)
        self._only = self._written()

    def _written(self) -> ModeEquations:
        return ModeEquations(
            z=Unknowns(), flow=self.system.flow, equations=Rows(), inequalities=self._guards, shown=ca.SX(0, 1)
        )

    def words(self, name: str) -> tuple[str, ...]:
        """A jump waits, or it happens."""
        return (WAITING, JUMPS)

    def default(self, name: str) -> str:
        """Nothing is said of a jump that waits."""
        return WAITING

    def equations(self, mode: Mode) -> ModeEquations:
        """The flow is the same in all phases."""
        return self._only

    def start(self, mode: Mode) -> tuple[Rows, Rows]:
        """No motion begins behind a guard."""
        return Rows(), self._guards

    def boundary(self, before: Mode, impacts: Mapping[str, str], after: Mode) -> Boundary:
        """The guard that is reached, and the reset."""
        s = self.system
        (jump,) = (jump for jump in s.jumps if jump.name in impacts)
        # It is reached by falling; a rate that the control changes is not known to a boundary.
        rate = ca.jtimes(jump.guard, s.x, s.flow)
        falls = [] if ca.depends_on(rate, s.u) else [(f"approach[{jump.name}]", -rate)]
        later = Unknowns.made("after", [f"{name}(+)" for name in s.state_names], scale=np.asarray(s.x_nominal))
        return Boundary(
            y=later,
            equations=Rows.of((f"guard[{jump.name}]", jump.guard), ("reset", later.symbol - jump.reset)),
            inequalities=Rows.of(*falls),
            after=tuple((True, i) for i in range(later.size)),
            beginning=Rows(),
            shown=ca.SX(0, 1),
        )

    def changes(self, before: Mode, after: Mode) -> list[tuple[str, Kind]]:
        """Jumps are told by themselves."""
        return []

    def mode_at(self, x: np.ndarray, p: np.ndarray) -> Mode:
        """There is one mode."""
        return (WAITING,) * len(self.names)

    def modes_of(self, stretches: list[Stretch], p: np.ndarray) -> list[Mode]:
        """There is one mode."""
        return [self.mode_at(stretch.after, p) for stretch in stretches]

    def kinks(self, motion: Any, p: np.ndarray) -> list[Any]:
        """None that events do not tell."""
        return []

    def struck_at(self, names: Sequence[str], after: np.ndarray, p: np.ndarray) -> dict[str, str]:
        """The jumps that happened."""
        return dict.fromkeys(names, JUMPS)

    def impacts_of(self, before: np.ndarray, after: np.ndarray, impulses: np.ndarray, p: np.ndarray) -> list[Impacted]:
        """Methods for hybrid systems tell their events themselves."""
        return []
