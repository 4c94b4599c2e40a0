"""Filippov systems for the event-driven simulation: nodes, regimes and modes."""

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
    """Model of a PSS, a Heaviside system or a PDS for `EventDrivenSimulator`."""

    def __init__(self, system: PSS | Heaviside | PDS) -> None:
        self.laws = laws_of(system)

    def nodes(
        self, options: EventDriven, law: Callable[[float, np.ndarray], np.ndarray], p: np.ndarray
    ) -> FilippovNodes:
        """Return the solver of nodes under a control law."""
        return FilippovNodes(FilippovFlow(self.laws, options, law, p))

    def modes(self, x: np.ndarray, p: np.ndarray, tolerance: float) -> tuple[int, ...]:
        """Return modes (n_y,) for states (n, n_x), sliding on the surfaces that all of them are close to (up to a
        tolerance).
        """
        values = np.array([self.laws.functions(np.concatenate([row, p]))[0][:, 0] for row in x])
        stays = np.all([touched_of(self.laws, row, tolerance) for row in values], axis=0)
        # The sample in the middle: the first may still lie on a surface that the motion leaves.
        by_sign = sides(self.laws, values[len(values) // 2])
        return tuple(ON if on else mode for on, mode in zip(stays, by_sign, strict=True))

    def remembering(self, modes: tuple[int, ...], remembered: np.ndarray) -> tuple[int, ...]:
        """Return the modes (n_y,) with those of switches with hysteresis replaced."""
        values = np.array(modes, dtype=int)
        # A switch with hysteresis cannot be read off the state between its thresholds.
        values[self.laws.kinds == MEMORY] = remembered
        return tuple(int(mode) for mode in values)

    def regime(self, modes: tuple[int, ...], p: np.ndarray) -> FilippovRegime:
        """Return a regime with the modes of `laws`, one per multiplier."""
        if len(modes) != self.laws.n_y:
            raise OptionError(f"modes: expected {self.laws.n_y}, one for every multiplier, given {modes}.")
        return regime_of(self.laws, modes)
