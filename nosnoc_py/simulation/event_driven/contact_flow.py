"""The smooth motion of a contact system between two events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nosnoc_py.simulation.event_driven.guards import GAP, sample
from nosnoc_py.simulation.event_driven.mechanics import GROWN, ContactRegime
from nosnoc_py.simulation.event_driven.options import INCREMENT, EventDriven
from nosnoc_py.simulation.event_driven.records import Held, Sample
from nosnoc_py.simulation.event_driven.written import data_of, steps_of
from nosnoc_py.systems.kinematics import ContactMechanics, Kinematics
from nosnoc_py.systems.scales import ProblemScales
from nosnoc_py.tolerances import CROSSED, PULL, RESTING


class ContactFlow:
    """The smooth motion of a contact system under one control law, in any regime: what a `PhaseRun` asks for."""

    not_finite = "the accelerations are not finite"

    def __init__(
        self,
        mechanics: ContactMechanics,
        options: EventDriven,
        control: Callable[[float, np.ndarray], np.ndarray],
        p: np.ndarray,
        scales: ProblemScales,
    ) -> None:
        self.mechanics, self.options, self.control, self.p, self.scales = mechanics, options, control, p, scales
        self.frames = mechanics.frames_at(p)
        self.names, self.distances = self.frames.names, self.frames.count  # gaps are the first guards
        self.rest_velocity = scales.rest_velocity(options.rest_velocity)
        system = mechanics.system
        sizes = np.repeat([scales.length, scales.speed], [system.n_q, system.n_v]) / scales.steepness
        self.sizes = np.append(sizes, np.ones(system.y.numel()))
        # Positions count by their way in a second: of shorter ways rounding leaves nothing.
        self.atol = options.atol * scales.speed

    def look(self, t: float, x: np.ndarray) -> Kinematics:
        """Numbers of the system."""
        return self.mechanics.at(x, self.control(t, x), self.p, self.scales)

    def written(self, regime: ContactRegime) -> tuple[Any, np.ndarray] | None:
        """The `WholeSteps` of a regime under a constant control, with their data; None where SciPy's are taken."""
        if not isinstance(self.control, Held):
            return None
        steps = steps_of(self.mechanics, regime)
        return None if steps is None else (steps, data_of(regime, self.control.u, self.p))

    def rhs(self, regime: ContactRegime, t: float, x: np.ndarray) -> np.ndarray:
        """dx/dt (n_x,); NaN where the contact forces have no value."""
        look = self.look(t, x)
        return np.concatenate([look.position_rate, regime.motion(look)[0], look.y_rate])

    def armed(self, regime: ContactRegime, t: float, x: np.ndarray) -> np.ndarray:
        """Guards (5 n_c,) that are positive at the beginning of a phase, or about to be."""
        look, n_c = self.look(t, x), self.distances
        found = sample(look, regime)
        armed = found.guards > self.rounding(
            regime, found.forces[None], regime.inertia(look) * self.scales.acceleration
        )
        armed[GAP * n_c : (GAP + 1) * n_c] |= found.rates[:n_c] > look.slow(RESTING)
        return armed

    def inertia(self, regime: ContactRegime, t: float, x: np.ndarray) -> float:
        """What forces are compared with [N]."""
        return regime.inertia(self.look(t, x)) * self.scales.acceleration

    def rounding(self, regime: ContactRegime, forces: np.ndarray, inertia: float) -> np.ndarray:
        """Violations of guards (5 n_c,) that are rounding."""
        force = PULL * (inertia + np.abs(forces).max(initial=0.0))
        gap, speed = CROSSED * self.scales.length, CROSSED * self.scales.speed
        return np.repeat([gap, force, speed, force, 0.0], regime.frames.count)

    def turned(self, regime: ContactRegime, t: float, x: np.ndarray) -> ContactRegime:
        """The same modes with the directions of slip of this instant."""
        return regime.turned(self.look(t, x).rates) if regime.spatial else regime

    def starts(self, regime: ContactRegime, t: float, x: np.ndarray) -> bool:
        """Whether a slip in space is so slow that its direction is stiff."""
        return bool(regime.spatial) and regime.slowest(self.look(t, x).rates) < GROWN * self.scales.speed

    def increments(self, regime: ContactRegime, t: float, x: np.ndarray, *, starts: bool) -> np.ndarray:
        """Differences of states (n_x,) for a Jacobian."""
        at_v = self.mechanics.system.at_v
        made = INCREMENT * np.maximum(self.sizes, np.abs(x))
        if starts:
            made[at_v] = np.maximum(1e-3 * regime.slowest(self.look(t, x).rates), 4.0 * np.spacing(np.abs(x[at_v])))
        return np.asarray(made)

    def sample(self, regime: ContactRegime, t: float, x: np.ndarray) -> Sample:
        """Guards, forces and rates."""
        return sample(self.look(t, x), regime)

    def distance_accelerations(self, regime: ContactRegime, t: float, x: np.ndarray) -> np.ndarray:
        """Accelerations of the gaps (n_c,)."""
        look, n_c = self.look(t, x), self.frames.count
        return np.asarray(look.jacobian[:n_c] @ regime.motion(look)[0] + look.curvature[:n_c])

    def project(self, regime: ContactRegime, t: float, x: np.ndarray, also: np.ndarray | None = None) -> np.ndarray:
        """Put a state back on the constraints of a regime, in the metric of the masses; others (k,) by gap only."""
        if not regime.rows.size:
            return x
        look, system, x = self.look(t, x), self.mechanics.system, np.array(x)
        closed = regime.closed if also is None else np.union1d(regime.closed, also)
        moved = look.response[:, closed] @ _least(look.delassus[np.ix_(closed, closed)], look.gaps[closed])
        x[system.at_q] -= self.mechanics.moved(x, self.p, moved)
        look, rows = self.look(t, x), regime.rows
        pushed = look.response[:, rows] @ _least(look.delassus[np.ix_(rows, rows)], look.rates[rows])
        x[system.at_v] -= pushed
        return x


def _least(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.lstsq(matrix, right, rcond=1e-12)[0])
