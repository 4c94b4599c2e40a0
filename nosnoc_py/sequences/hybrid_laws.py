"""Hybrid systems with isolated jumps as mode equations: one mode, guards that end a phase, and resets.

All phases have the same flow, and all guards are nonnegative in them. A boundary is one jump: its guard is zero there
and falling, and the state after it is the reset of the state before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.motion.kinds import Kind
from nosnoc_py.sequences.equations import Boundary, ImpactData, Mode, ModeEquations, Rows, Unknowns
from nosnoc_py.sequences.reading import MotionSegment
from nosnoc_py.systems.hybrid import HybridSystem

WAITING, JUMPS = "waiting", "jumps"


class HybridLaws:
    """Mode equations of a `HybridSystem` (see `ModeLaws`).

    Parameters
    ----------
    system : HybridSystem
    """

    shown: tuple[Any, ...] = ()
    impulses: tuple[Any, ...] = ()

    def __init__(self, system: HybridSystem) -> None:
        self.system = system
        self.names = tuple(jump.name for jump in system.jumps)
        self.length = 1.0
        guards = [(f"guard[{jump.name}]", jump.guard) for jump in system.jumps]
        self._guards = Rows.of(*guards)
        # One object for all phases: the program makes a single block of them.
        self._only = self._mode_equations()

    def _mode_equations(self) -> ModeEquations:
        return ModeEquations(
            z=Unknowns(), flow=self.system.flow, equations=Rows(), inequalities=self._guards, shown=ca.SX(0, 1)
        )

    def mode_names(self, name: str) -> tuple[str, ...]:
        """Return the two modes of a jump: it waits, or it happens (only in an impact of a sequence)."""
        return (WAITING, JUMPS)

    def default(self, name: str) -> str:
        """Return the mode of a jump that is not mentioned: it waits."""
        return WAITING

    def equations(self, mode: Mode) -> ModeEquations:
        """Return the flow, which is the same in all phases."""
        return self._only

    def start(self, mode: Mode) -> tuple[Rows, Rows]:
        """Return the conditions of an initial state: all guards are nonnegative."""
        return Rows(), self._guards

    def boundary(self, before: Mode, impacts: Mapping[str, str], after: Mode) -> Boundary:
        """Return the guard that is reached, and the reset."""
        s = self.system
        # Exactly one: simultaneous jumps have no defined order.
        (jump,) = (jump for jump in s.jumps if jump.name in impacts)
        # The guard has to be falling where it is reached. A boundary has no control, so that the condition is left out
        # where the rate depends on it.
        rate = ca.jtimes(jump.guard, s.x, s.flow)
        falls = [] if ca.depends_on(rate, s.u) else [(f"approach[{jump.name}]", -rate)]
        # A reset may change any component: all of them are unknowns after the jump.
        later = Unknowns.create("after", [f"{name}(+)" for name in s.state_names], scale=np.asarray(s.x_nominal))
        return Boundary(
            y=later,
            equations=Rows.of((f"guard[{jump.name}]", jump.guard), ("reset", later.symbol - jump.reset)),
            inequalities=Rows.of(*falls),
            after=tuple((True, i) for i in range(later.size)),
            beginning=Rows(),
            shown=ca.SX(0, 1),
        )

    def changes(self, before: Mode, after: Mode) -> list[tuple[str, Kind]]:
        """Return no events: jumps are reported by the method itself."""
        return []

    def mode_at(self, x: np.ndarray, p: np.ndarray) -> Mode:
        """Return the only mode."""
        return (WAITING,) * len(self.names)

    def modes_of(self, segments: list[MotionSegment], p: np.ndarray) -> list[Mode]:
        """Return the only mode for every segment."""
        return [self.mode_at(segment.after, p) for segment in segments]

    def kinks(self, motion: Any, p: np.ndarray) -> list[Any]:
        """Return no events."""
        return []

    def impact_modes(self, names: Sequence[str], after: np.ndarray, p: np.ndarray) -> dict[str, str]:
        """Return the jumps of an impact."""
        return dict.fromkeys(names, JUMPS)

    def impacts_between(
        self, before: np.ndarray, after: np.ndarray, impulses: np.ndarray, p: np.ndarray
    ) -> list[ImpactData]:
        """Return no impacts: methods for hybrid systems report their jumps themselves."""
        return []
