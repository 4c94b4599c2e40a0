"""Active-set Newton simulation: one step of finite elements by Newton's method in guessed modes, events located.

The equations are those of FESD-J without any relaxation. In known modes they are smooth and square; the modes are
those that hold at the left node, and the first violated inequality on the collocation polynomials is the next event,
whose equation then decides the length of the elements before it. The engine knows modes, masks and guards; what they
mean is in `contact_modes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import casadi as ca
import numpy as np

from nosnoc_py.discretization.butcher import ButcherTableau
from nosnoc_py.simulation.collocation import Collocation
from nosnoc_py.simulation.contact_modes import ContactModes
from nosnoc_py.simulation.event_walk import Outcome, Walk
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.symbols import numbers, scalar


@dataclass(frozen=True, eq=False, kw_only=True)
class NewtonStep:
    """One step in numbers; E elements (fewer when it failed), n_s stages, n_c contacts, n_tt tangent components.

    Attributes
    ----------
    h : (E,)
        Lengths of the elements [s].
    x_minus, x_left, x_right : (E, n_x)
        States before and after the impulse at the left boundary, and at the right boundary.
    x_stages : (E, n_s, n_x)
    lambda_normal : (E, n_s, n_c)
    lambda_tangent : (E, n_s, n_tt)
        Tangent components of the contacts with friction, below each other in the order of the system's contacts.
    drift : (E, n_s, n_c)
        Multipliers tau of the gap rate, q' = v + sum n tau.
    Lambda_normal : (E, n_c)
    Lambda_tangent : (E, n_tt)
    modes : (E, n_c) int
        0 open, 1 closed without friction, 2 stick, 3 slip (in the plane: v_t > 0), 4 slip with v_t < 0 (plane).
    message : str
        Why the step failed, "" when it did not.
    contact : str
        Names of the contacts concerned by a failure.
    iterations : int
        Newton iterations.
    """

    h: np.ndarray
    x_minus: np.ndarray
    x_left: np.ndarray
    x_right: np.ndarray
    x_stages: np.ndarray
    lambda_normal: np.ndarray
    lambda_tangent: np.ndarray
    drift: np.ndarray
    Lambda_normal: np.ndarray
    Lambda_tangent: np.ndarray
    modes: np.ndarray
    message: str = ""
    contact: str = ""
    iterations: int = 0

    @property
    def success(self) -> bool:
        """Whether the step reached its end."""
        return not self.message


class ActiveSetNewton:
    """Steps of a contact system, exact to rounding in the equations of the finite elements.

    Parameters
    ----------
    system : CLS
    tableau : ButcherTableau
    elements : int
        Finite elements E of a step; E - 1 events fit inside one.
    gap_rate : bool
        Whether closed contacts satisfy n'v = 0 besides gap = 0, which keeps the order on curved contacts.
    rest_velocity : float
        Slower approaches do not bounce [m/s]; ends the infinitely many impacts before rest.
    tolerance : float
        Of Newton's method, relative to the largest unknown; one more iteration follows.
    """

    def __init__(
        self,
        system: CLS,
        tableau: ButcherTableau,
        elements: int,
        *,
        gap_rate: bool = True,
        rest_velocity: float = 1e-3,
        tolerance: float = 1e-11,
    ) -> None:
        self.system, self.tableau, self.elements = system, tableau, elements
        # Tolerances are relative to forces of order one: in units of the mass they are so for light bodies, too.
        self._mass = _mass_of(system)
        scaled = replace(system, mass_matrix=system.mass_matrix / self._mass, force=system.force / self._mass)
        self.model = ContactModes(scaled, gap_rate=gap_rate, rest_velocity=rest_velocity)
        self._collocation = Collocation(self.model.equations, tableau, tolerance)

    def step(
        self,
        x: np.ndarray,
        u: np.ndarray | None,
        p: np.ndarray | None,
        length: float,
        modes_before: np.ndarray | None = None,
    ) -> NewtonStep:
        """One step of a given length from x, the left limit, with constant u.

        `modes_before` (n_c,), modes of the element before, are tried first. A step that does not succeed says why in
        its message and has the elements so far.
        """
        x = numbers(x, "x", 2 * self.system.n_q)
        u = numbers(0.0 if u is None else u, "u", self.system.n_u)
        p = numbers(self.system.p_default if p is None else p, "p", self.system.n_p)
        hint = None if modes_before is None else tuple(int(mode) for mode in modes_before)
        self._collocation.iterations = 0
        outcomes: list[Outcome] = []
        # Elements in proportion to the time of an event keep lengths alike; one each leaves more for what follows.
        for sparing in (False, True):
            outcomes = list(self._runs(x, u, p, scalar(length, "length"), hint, sparing))
            if "more switches" not in outcomes[-1].message or self.elements < 3:
                break
        return self._assemble(outcomes)

    def _runs(
        self,
        x: np.ndarray,
        u: np.ndarray,
        p: np.ndarray,
        length: float,
        hint: tuple[int, ...] | None,
        sparing: bool,
    ) -> Iterator[Outcome]:
        free = self.elements
        while free:
            node = self.model.node(x, u, p, hint)
            outcome = Walk(self.model, self._collocation, u, p, node, length, free, sparing).advance()
            yield outcome
            if outcome.run is None:
                return
            run = outcome.run
            free, length, x = free - run.count, length - run.length, run.x_right[-1]
            hint = self.model.after(run.modes, outcome.guard, x, run.y[-1, -1], p)

    def _assemble(self, outcomes: list[Outcome]) -> NewtonStep:
        done = [(outcome.node, outcome.run) for outcome in outcomes if outcome.run is not None]
        n_x, n_s, n_c = self._collocation.n_x, self.tableau.stages, len(self.system.contacts)
        n_t = self.model.frames.weights.size
        h, minus, left, right, stages, jumps, modes = [], [], [], [], [], [], []
        forces: list[tuple[np.ndarray, ...]] = []
        for node, run in done:
            for e in range(run.count):
                h.append(run.h)
                minus.append(node.x_minus if e == 0 else run.x_left[e])
                left.append(run.x_left[e])
                right.append(run.x_right[e])
                stages.append(run.x[e])
                jumps.append(node.jump if e == 0 else np.zeros(n_c + n_t))
                modes.append(run.modes)
                forces.append(self.model.forces(run.y[e], run.modes))
        jump = np.array(jumps).reshape(len(h), n_c + n_t)
        normal, tangential, drift = (
            np.array([part[k] for part in forces]).reshape(len(h), n_s, size) for k, size in enumerate((n_c, n_t, n_c))
        )
        return NewtonStep(
            h=np.array(h),
            x_minus=np.array(minus).reshape(-1, n_x),
            x_left=np.array(left).reshape(-1, n_x),
            x_right=np.array(right).reshape(-1, n_x),
            x_stages=np.array(stages).reshape(-1, n_s, n_x),
            lambda_normal=self._mass * normal,
            lambda_tangent=self._mass * tangential,
            drift=drift,
            Lambda_normal=self._mass * jump[:, :n_c],
            Lambda_tangent=self._mass * jump[:, n_c:],
            modes=np.array(modes, dtype=int).reshape(len(h), n_c),
            message=outcomes[-1].message,
            contact=outcomes[-1].contact,
            iterations=self._collocation.iterations,
        )


def _mass_of(system: CLS) -> float:
    """The largest entry of the mass matrix, at q = 0 where it depends on q; 1 where that is no number."""
    mass = ca.Function("mass", [system.q, system.p], [system.mass_matrix])
    largest = float(np.abs(np.asarray(mass(np.zeros(system.n_q), system.p_default))).max())
    return largest if np.isfinite(largest) and largest > 0 else 1.0
