"""Filippov systems as the event-driven simulation sees them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.simulation.event_driven.filippov.candidates import touched_of
from nosnoc_py.simulation.event_driven.filippov.laws import ON, laws_of
from nosnoc_py.simulation.event_driven.filippov.node import FilippovNodes
from nosnoc_py.simulation.event_driven.filippov.regime import FilippovFlow, FilippovRegime, regime_of, sides
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.systems.inclusion import MEMORY
from nosnoc_py.systems.pss import PDS, PSS, Heaviside


class Filippov:
    """A `Model` of a PSS, a Heaviside system or a PDS."""

    def __init__(self, system: PSS | Heaviside | PDS) -> None:
        self.laws = laws_of(system)

    def nodes(
        self, options: EventDriven, law: Callable[[float, np.ndarray], np.ndarray], p: np.ndarray
    ) -> FilippovNodes:
        """Crossing, sliding and leaving under a control law."""
        return FilippovNodes(FilippovFlow(self.laws, options, law, p))

    def modes(self, x: np.ndarray, p: np.ndarray, tolerance: float) -> tuple[int, ...]:
        """Modes (n_y,) along states (n, n_x): on those surfaces from which none of them is farther than a tolerance."""
        values = np.array([self.laws.functions(np.concatenate([row, p]))[0][:, 0] for row in x])
        stays = np.all([touched_of(self.laws, row, tolerance) for row in values], axis=0)
        made = sides(self.laws, values[len(values) // 2])
        return tuple(ON if on else mode for on, mode in zip(stays, made, strict=True))

    def remembering(self, modes: tuple[int, ...], remembered: np.ndarray) -> tuple[int, ...]:
        """The modes (n_y,) with those of switches with hysteresis."""
        found = np.array(modes, dtype=int)
        found[self.laws.kinds == MEMORY] = remembered
        return tuple(int(mode) for mode in found)

    def regime(self, modes: tuple[int, ...], p: np.ndarray) -> FilippovRegime:
        """A regime with the modes of `laws`, one for every multiplier."""
        if len(modes) != self.laws.n_y:
            raise OptionError(f"modes: expected {self.laws.n_y}, one for every multiplier, given {modes}.")
        return regime_of(self.laws, modes)
