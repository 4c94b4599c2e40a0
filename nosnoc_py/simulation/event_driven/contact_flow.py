"""Smooth motion of a contact system between two events: right-hand side, guards, tolerances and projection.

`PhaseRun` integrates it; `FilippovFlow` has the same interface for systems without jumps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nosnoc_py.simulation.event_driven.compiled_loop import compiled_loop
from nosnoc_py.simulation.event_driven.compiled_motion import compiled_steps_of, is_small, phase_data
from nosnoc_py.simulation.event_driven.guards import GAP, sample
from nosnoc_py.simulation.event_driven.mechanics import GROWN, ContactRegime
from nosnoc_py.simulation.event_driven.motions import (
    InterpretedMotion,
    KernelMotion,
    WrittenMotion,
    contact_arrays,
    contact_tapes,
)
from nosnoc_py.simulation.event_driven.options import INCREMENT, EventDriven
from nosnoc_py.simulation.event_driven.records import Held, Sample
from nosnoc_py.simulation.event_driven.steps import noise_of, rounding
from nosnoc_py.systems.kinematics import ContactMechanics, Kinematics
from nosnoc_py.systems.projection import settled
from nosnoc_py.systems.scales import ProblemScales
from nosnoc_py.tolerances import CROSSED, PULL, RESTING

# States whose kinematics are kept: before a node, after its impact, on the constraints of the next regime.
MOST_STATES = 3


class ContactFlow:
    """Smooth motion of a contact system under one control law, in any regime.

    Parameters
    ----------
    mechanics : ContactMechanics
    options : EventDriven
    control : function of (t, x)
        Returns u (n_u,).
    p : (n_p,)
    scales : ProblemScales
        Length and speed that tolerances are relative to.
    """

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
        # The tolerance of positions is the way covered in one second at the speed `atol` times the typical speed.
        self.atol = options.atol * scales.speed
        # The stiffness (Painleve) has no rounding: it is a coefficient, and its sign decides.
        gap, speed = CROSSED * scales.length, CROSSED * scales.speed
        kinds = np.array([[gap, 0.0, speed, 0.0, 0.0], [0.0, PULL, 0.0, PULL, 0.0], [0.0] * 5])
        self.noise = noise_of(np.repeat(kinds, self.distances, 1), self.distances + self.frames.n_t)
        self._known: dict[tuple[float, bytes], Kinematics] = {}
        self._motions: dict[tuple[bool, tuple[int, ...], bool, bytes], InterpretedMotion] = {}

    def kinematics(self, t: float, x: np.ndarray) -> Kinematics:
        """Return the kinematics at time t and state x; those of the last states are kept, for nodes ask again."""
        key = t, x.tobytes()
        if key not in self._known:
            if len(self._known) == MOST_STATES:
                del self._known[next(iter(self._known))]
            own = np.array(x)  # an integrator changes its state in place
            self._known[key] = self.mechanics.at(own, self.control(t, own), self.p, self.scales)
        return self._known[key]

    @property
    def widths(self) -> tuple[int, int, int]:
        """Numbers of guards, forces and rates in a `Sample`."""
        count = self.distances + self.frames.n_t
        return 5 * self.distances, count, count

    def motion(self, regime: ContactRegime) -> InterpretedMotion:
        """Return the motion for the loop of `explicit`: on arrays, or written out, where the control is constant."""
        if not isinstance(self.control, Held):
            return InterpretedMotion(self, regime)
        perform = compiled_loop(small=self.is_small(regime))
        if regime.spatial:  # directions that are never the same again
            return self._motion(regime, perform)
        key = perform is None, regime.modes, regime.redundant, regime.direction.tobytes()
        if key not in self._motions:
            self._motions[key] = self._motion(regime, perform)
        self._motions[key].follow(regime)
        return self._motions[key]

    def _motion(self, regime: ContactRegime, perform: Any) -> InterpretedMotion:
        """Return a new motion under a constant control, for the compiled loop if there is one."""
        assert isinstance(self.control, Held)
        steps = compiled_steps_of(self.mechanics, regime)
        if steps is not None:
            return WrittenMotion(self, regime, steps, phase_data(regime, self.control.u, self.p)).compiled(perform)
        tapes = self.mechanics.once(contact_tapes) if perform is not None else {}
        arrays = contact_arrays(self.mechanics, self.frames, regime, self.control.u, self.p) if tapes else None
        return InterpretedMotion(self, regime) if arrays is None else KernelMotion(self, regime, arrays, perform, tapes)

    def is_small(self, regime: ContactRegime) -> bool:
        """Return True if one call evaluates a whole step."""
        return isinstance(self.control, Held) and is_small(self.mechanics, regime)

    def rhs(self, regime: ContactRegime, t: float, x: np.ndarray) -> np.ndarray:
        """Return dx/dt (n_x,); NaN where the contact forces have no value."""
        at = self.kinematics(t, x)
        return np.concatenate([at.position_rate, regime.motion(at)[0], at.y_rate])

    def enabled(self, regime: ContactRegime, t: float, x: np.ndarray) -> np.ndarray:
        """Return which guards (5 n_c,) are positive at the start of a phase, or about to become so."""
        at, n_c = self.kinematics(t, x), self.distances
        values = sample(at, regime)
        noise = self.noise._replace(inertia=regime.inertia(at) * self.scales.acceleration)
        enabled = values.guards > rounding(noise, values.forces[None])
        # A contact that has just opened has a gap of zero; its rate shows that the gap is about to be positive, or its
        # acceleration where it opens at rest.
        rates, slow = values.rates[:n_c], at.slow(RESTING)[:n_c]
        rises, rests = rates > slow, (np.abs(rates) <= slow) & np.isfinite(values.guards[:n_c])
        if rests.any():
            rises |= rests & (self.distance_accelerations(regime, t, x) > RESTING * self.scales.acceleration)
        enabled[GAP * n_c : (GAP + 1) * n_c] |= rises
        return enabled

    def inertia(self, regime: ContactRegime, t: float, x: np.ndarray) -> float:
        """Return the force [N] that rounding of contact forces is relative to."""
        return regime.inertia(self.kinematics(t, x)) * self.scales.acceleration

    def updated(self, regime: ContactRegime, t: float, x: np.ndarray) -> ContactRegime:
        """Return the same modes with the directions of slip at this instant."""
        return regime.updated(self.kinematics(t, x).rates) if regime.spatial else regime

    def has_stiff_start(self, regime: ContactRegime, t: float, x: np.ndarray) -> bool:
        """Return True if a slip in space is so slow that its direction is stiff: an implicit integrator is needed."""
        return bool(regime.spatial) and regime.slowest(self.kinematics(t, x).rates) < GROWN * self.scales.speed

    def turning(self, regime: ContactRegime, t: float, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return factors (n_x, k), (k, n_x) of the Jacobian of the directions of slips in space."""
        first, second = regime.turning(self.kinematics(t, x))
        left, right, at_v = np.zeros((x.size, len(second))), np.zeros((len(second), x.size)), self.mechanics.system.at_v
        left[at_v], right[:, at_v] = first, second
        return left, right

    def increments(self, regime: ContactRegime, t: float, x: np.ndarray, *, has_stiff_start: bool) -> np.ndarray:
        """Return increments (n_x,) of the states for a finite-difference Jacobian."""
        at_v = self.mechanics.system.at_v
        steps = INCREMENT * np.maximum(self.sizes, np.abs(x))
        if has_stiff_start:
            # An increment has to be smaller than the slip: a larger one would turn its direction instead of probing
            # it.
            steps[at_v] = np.maximum(
                1e-3 * regime.slowest(self.kinematics(t, x).rates), 4.0 * np.spacing(np.abs(x[at_v]))
            )
        return np.asarray(steps)

    def sample(self, regime: ContactRegime, t: float, x: np.ndarray) -> Sample:
        """Return guards, forces and rates."""
        return sample(self.kinematics(t, x), regime)

    def distance(self, guard: int, x: np.ndarray) -> tuple[float, float] | None:
        """Return a gap and its rate, without the mass matrix and without forces; None for other guards."""
        if guard >= self.distances:
            return None
        gaps, rates, _ = self.mechanics.touching(x, self.p)
        return float(gaps[guard]), float(rates[guard])

    def distance_accelerations(self, regime: ContactRegime, t: float, x: np.ndarray) -> np.ndarray:
        """Return the accelerations of the gaps (n_c,)."""
        at, n_c = self.kinematics(t, x), self.frames.count
        return np.asarray(at.jacobian[:n_c] @ regime.motion(at)[0] + at.curvature[:n_c])

    def project(self, regime: ContactRegime, t: float, x: np.ndarray, also: np.ndarray | None = None) -> np.ndarray:
        """Project a state onto the constraints of a regime, in the metric of the mass matrix.

        Others (k,) by gap only.
        """
        x = settled(self.mechanics.system, x, self.p)
        if not regime.rows.size:
            return x
        at, system, x = self.kinematics(t, x), self.mechanics.system, np.array(x)
        closed = regime.closed if also is None else np.union1d(regime.closed, also)
        # The shortest correction in the metric of M: M^-1 J' (J M^-1 J')^-1 gap. One Newton step is enough, as the
        # drift of one integrator step is small.
        moved = at.response[:, closed] @ _least(at.delassus[np.ix_(closed, closed)], at.gaps[closed])
        x[system.at_q] -= self.mechanics.moved(x, self.p, moved)
        # Normals and tangents after the correction of the positions.
        at, rows = self.kinematics(t, x), regime.rows
        pushed = at.response[:, rows] @ _least(at.delassus[np.ix_(rows, rows)], at.rates[rows])
        x[system.at_v] -= pushed
        return x


def _least(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the minimum-norm solution of a linear system."""
    # Least squares, as the Delassus matrix of redundant contacts is singular.
    return np.asarray(np.linalg.lstsq(matrix, right, rcond=1e-12)[0])
