"""What the event-driven simulation asks of a kind of system, whatever its regimes are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.event_driven.search import Sample
from nosnoc_py.systems.scales import ProblemScales

# Increment of a state for the Jacobian of a stiff phase, relative to it, or absolute below one.
INCREMENT = 1e-8


class Flow(Protocol):
    """The smooth motion of a system under one control law, in any of its regimes.

    Attributes
    ----------
    not_finite : str
        What to say where the rate of the state has no value.
    """

    not_finite: str
    options: EventDriven
    control: Callable[[float, np.ndarray], np.ndarray]
    p: np.ndarray

    @property
    def scales(self) -> ProblemScales:
        """What tolerances are relative to."""
        ...

    @property
    def atol(self) -> float | np.ndarray:
        """Absolute tolerance of the integrator."""
        ...

    @property
    def distances(self) -> int:
        """How many guards, the first ones, are distances."""
        ...

    def rhs(self, regime: Any, t: float, x: np.ndarray) -> np.ndarray:
        """dx/dt (n_x,); NaN where it has no value."""
        ...

    def sample(self, regime: Any, t: float, x: np.ndarray) -> Sample:
        """Guards, forces and rates."""
        ...

    def distance_accelerations(self, regime: Any, t: float, x: np.ndarray) -> np.ndarray:
        """Second derivatives (distances,) of the distances; NaN where nothing closes softly."""
        ...

    def project(self, regime: Any, t: float, x: np.ndarray) -> np.ndarray:
        """Put a state back on the constraints of a regime."""
        ...

    def armed(self, regime: Any, t: float, x: np.ndarray) -> np.ndarray:
        """Guards (n_g,) that are positive at the beginning of a phase, or about to be."""
        ...

    def inertia(self, regime: Any, t: float, x: np.ndarray) -> float:
        """What forces are compared with."""
        ...

    def rounding(self, regime: Any, forces: np.ndarray, inertia: float) -> np.ndarray:
        """Violations of guards (n_g,) that are rounding, for the forces (samples, n_f) of a step."""
        ...

    def turned(self, regime: Any, t: float, x: np.ndarray) -> Any:
        """The same regime after a step."""
        ...

    def starts(self, regime: Any, t: float, x: np.ndarray) -> bool:
        """Whether the motion is stiff only at the beginning of the phase."""
        ...

    def increments(self, regime: Any, t: float, x: np.ndarray, *, starts: bool) -> np.ndarray:
        """Differences of states (n_x,) for a Jacobian."""
        ...


class Crosser(Protocol):
    """Solves for what happens at the events under one control law."""

    def cross(self, t: float, x: np.ndarray, before: Any, ended: Any, drift: float) -> Any:
        """The `Node` at time t and state x after a phase in the regime `before`; `ended` if a crossing ended it."""
        ...


class Model(Protocol):
    """A system, prepared for the simulation."""

    def flow(self, options: EventDriven, law: Callable[[float, np.ndarray], np.ndarray], p: np.ndarray) -> Flow:
        """Its motion under a control law."""
        ...

    def crosser(self, flow: Any) -> Crosser:
        """Its events."""
        ...

    def regime(self, modes: tuple[int, ...]) -> Any:
        """The regime with these modes, to start from."""
        ...
