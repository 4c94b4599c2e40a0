"""Contact systems for the event-driven simulation: nodes, regimes, and a solver cached per system."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nosnoc_py.contact_problems.solver import ContactSolver
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.simulation.event_driven.mechanics import ContactRegime
from nosnoc_py.simulation.event_driven.node import ContactNodes
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.scales import ProblemScales


class ContactModel:
    """Model of a contact system for `EventDrivenSimulator`."""

    def __init__(self, system: CLS, scales: ProblemScales) -> None:
        self.mechanics, self.scales = system.mechanics, scales
        self.solver = self.mechanics.once(_solver_of)

    def nodes(
        self, options: EventDriven, law: Callable[[float, np.ndarray], np.ndarray], p: np.ndarray
    ) -> ContactNodes:
        """Return the solver of nodes under a control law."""
        return ContactNodes(ContactFlow(self.mechanics, options, law, p, self.scales), self.solver)

    def regime(self, modes: tuple[int, ...], p: np.ndarray) -> ContactRegime:
        """Return a regime with these modes; closed contacts have no direction of slip yet."""
        frames = self.mechanics.frames_at(p)
        return ContactRegime(frames=frames, modes=modes, direction=np.zeros(frames.n_t), speed=self.scales.speed)


def _solver_of(system: CLS) -> ContactSolver:
    return ContactSolver(system.mechanics.frames)
