"""Active-set Newton method for contact systems, with forces and impulses as results.

`ContactNewton` scales the system by its mass, so that the tolerances of modes (relative to forces of order one) also
fit light and heavy bodies, and converts the steps of the engine back.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import casadi as ca
import numpy as np
from attrs import evolve

from nosnoc_py.discretization.readout import ElementStates
from nosnoc_py.simulation.newton.contact_modes import ContactModes
from nosnoc_py.simulation.newton.engine import Elements, Engine, Hint
from nosnoc_py.simulation.newton.modes import remembered
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.symbols import numbers, scalar
from nosnoc_py.tableaus import Tableau
from nosnoc_py.tolerances import REST_VELOCITY

# Negative normal forces smaller than this, relative to 1 N per kg plus the largest force, are rounding and become zero.
ROUNDING_OF_FORCES = 1e-7


@dataclass(frozen=True, eq=False, kw_only=True)
class ContactStep(ElementStates):
    """Values of one step: E elements (fewer when it failed), n_s stages, n_c contacts, n_tt tangent components.

    Attributes
    ----------
    lambda_normal : (E, n_s, n_c)
        Normal forces [N].
    lambda_tangent : (E, n_s, n_tt)
        Friction forces [N]: tangent components of the contacts with friction, below each other in the order of the
        system's contacts.
    drift : (E, n_s, n_c)
        Multipliers tau of the gap rate, q' = v + sum n tau [m/s].
    Lambda_normal, Lambda_tangent : (E, n_c), (E, n_tt)
        Impulses at the left boundaries [N s].
    modes : (E, n_c) int
        0 open, 1 closed without friction, 2 stick, 3 slip (in the plane: v_t > 0), 4 slip with v_t < 0 (plane).
    message : str
        Why the step failed, "" when it did not.
    contact : str
        Names of the contacts concerned by a failure.
    hint : Hint or None
        For the next step.
    iterations : int
        Newton iterations.
    """

    lambda_normal: np.ndarray
    lambda_tangent: np.ndarray
    drift: np.ndarray
    Lambda_normal: np.ndarray
    Lambda_tangent: np.ndarray
    modes: np.ndarray
    message: str = ""
    contact: str = ""
    hint: Hint | None = None
    iterations: int = 0

    @property
    def success(self) -> bool:
        """True if the step reached its end."""
        return not self.message


class ContactNewton:
    """Solver for steps of a contact system; accepted steps satisfy the finite-element equations up to rounding.

    Parameters
    ----------
    system : CLS
    tableau : Tableau
    elements : int
        Finite elements E of a step; E - 1 events fit inside one.
    gap_rate : bool
        Impose n'v = 0 besides gap = 0 at closed contacts, which keeps the order on curved contacts.
    rest_velocity : float
        Slower approaches do not bounce [m/s]; ends the infinitely many impacts before rest.
    tolerance : float
        Tolerance of Newton's method, relative to the largest unknown; one more iteration follows.
    """

    def __init__(
        self,
        system: CLS,
        tableau: Tableau,
        elements: int,
        *,
        gap_rate: bool = True,
        rest_velocity: float = REST_VELOCITY,
        tolerance: float = 1e-11,
    ) -> None:
        self.system = system
        # Tolerances of modes assume forces of order one: divide by the mass, so that they also fit light bodies.
        self.mass = _mass_of(system)
        scaled = evolve(system, mass_matrix=system.mass_matrix / self.mass, force=system.force / self.mass)
        self.model = ContactModes(scaled, gap_rate=gap_rate, rest_velocity=rest_velocity)
        self.engine = Engine(self.model, tableau, elements, tolerance)
        # Masks at all stages of elements (m, n_masks).
        self._masks = remembered(lambda modes: np.repeat([self.model.masks(m) for m in modes], tableau.stages, axis=0))

    def step(
        self,
        x: np.ndarray,
        u: np.ndarray | None,
        p: np.ndarray | None,
        length: float,
        hint: Hint | np.ndarray | None = None,
    ) -> ContactStep:
        """Solve one step.

        Parameters
        ----------
        x : (n_x,)
            Left limit of the state.
        u, p : (n_u,), (n_p,), optional
            Constant control (default 0) and parameters.
        length : float
            Length of the step [s].
        hint : Hint or (n_c,) int, optional
            That of the previous step, or modes to try first.

        Returns
        -------
        ContactStep
            With a message, and only the elements before the failure, when the step cannot be completed.
        """
        x = numbers(x, "x", self.system.x.numel())
        u = numbers(0.0 if u is None else u, "u", self.system.n_u)
        p = self.system.parameters(p)
        modes = hint if hint is None or isinstance(hint, Hint) else tuple(int(mode) for mode in hint)
        elements = self.engine.step(x, u, p, scalar(length, "length"), modes)
        return replace(self.read(elements, p), hint=elements.hint(u, p) if len(elements.h) else None)

    def read(self, elements: Elements, p: np.ndarray) -> ContactStep:
        """Convert the elements of a step to forces and impulses in the user's units."""
        (count, n_s, _), n_c = elements.y_stages.shape, self.model.frames.count
        stages = elements.y_stages.reshape(count * n_s, elements.y_stages.shape[2])
        parts = self.model.forces(stages, self._masks(elements.modes), p)
        normal, tangential, drift = (part.reshape(count, n_s, part.shape[1]) for part in parts)
        # Bodies that fall together touch without force: rounding then leaves small forces of either sign.
        if normal.min(initial=0.0) < 0.0:
            normal = np.where((normal < 0.0) & (normal > -ROUNDING_OF_FORCES * (1.0 + normal.max())), 0.0, normal)
        return ContactStep(
            **{f.name: getattr(elements, f.name) for f in fields(ElementStates)},
            lambda_normal=self.mass * normal,
            lambda_tangent=self.mass * tangential,
            drift=drift,
            # Only forces and impulses scale with the mass: velocities and drift multipliers are the same in both
            # systems.
            Lambda_normal=self.mass * elements.jump[:, :n_c],
            Lambda_tangent=self.mass * elements.jump[:, n_c:],
            modes=np.array(elements.modes, dtype=int).reshape(count, n_c),
            message=elements.message,
            contact=elements.place,
            iterations=self.engine.collocation.iterations,
        )


def _mass_of(system: CLS) -> float:
    """Return the largest entry of the mass matrix (at q = 0 if it depends on q); 1 if that is not finite or zero."""
    mass = ca.Function("mass", [system.q, system.p], [system.mass_matrix])
    # One number: dividing M and all forces by it leaves the motion unchanged.
    largest = float(np.abs(np.asarray(mass(np.zeros(system.n_q), system.p_or_zeros))).max())
    return largest if np.isfinite(largest) and largest > 0 else 1.0
