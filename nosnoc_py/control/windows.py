"""Windows of one sampling period of a plan: simulated end state, derivatives through events, and impacts.

A plan has discretisation errors, and its mode sequence may amplify them. It is therefore simulated in short windows,
each from the plan's own state and contact modes: the end of a window differs from the plan by a small `defect`, and the
derivatives of the end belong to the exact motion with its events.

Invariants: windows are consecutive and cover the plan; in each the control is constant, the mean of the plan's.
Derivatives of a smooth motion are exact (variational equation with saltation matrices); in a window without them,
central differences over finite steps replace them, and `flags` has the reason. `tracking` builds its linear-quadratic
problem from these windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from nosnoc_py.control.measured import admissible
from nosnoc_py.simulation.certification.certify import REFEREE, REFEREE_RESTS
from nosnoc_py.simulation.certification.windows import SIDES, modes_from, state_at
from nosnoc_py.simulation.event_driven.history import EventDrivenSimulator, SimulationResult
from nosnoc_py.simulation.event_driven.run import event_driven_simulator, sensitivity_along
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.controls import Control, control_of
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.projection import admissible_directions

Array = np.ndarray
# Step of central differences relative to nominal values where a window has no derivative: of the size of deviations
# that feedback has to correct, not of rounding.
SECANT_STEP = 2e-3
# Number of quadrature points for the mean control of a window.
MEAN_POINTS = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanWindow:
    """Simulated and differentiated sampling period of a plan.

    Attributes
    ----------
    start, end : float
        Seconds since the beginning of the plan.
    x, u : (n_x,), (n_u,)
        State of the plan at the start, and mean control.
    by_x, by_u : (n_x, n_x), (n_x, n_u)
        Derivatives of the simulated end state by x and u.
    defect : (n_x,)
        Simulated end state minus the plan.
    history : SimulationResult
        Simulation from x.
    flags : tuple of str
        Reasons why finite differences replace the derivatives; empty otherwise.
    """

    start: float
    end: float
    x: Array
    u: Array
    by_x: Array
    by_u: Array
    defect: Array
    history: SimulationResult
    flags: tuple[str, ...] = ()

    @property
    def jumps(self) -> bool:
        """True if an impact happens in the window."""
        return any(node.impact is not None for node in self.history.nodes)


class PlanWindows:
    """Simulation and differentiation of windows of a plan, each from the plan's own state."""

    def __init__(self, system: Described, plan: Trajectory, p: Array) -> None:
        self.system, self.plan, self.p = system, plan, p
        self.control = control_of(plan, system.n_u, plan.duration)
        x0 = state_at(plan, 0.0, "+")
        self.simulator: EventDrivenSimulator = event_driven_simulator(
            system, REFEREE, x0, self.control, p, REFEREE_RESTS
        )

    def between(self, times: Array) -> tuple[PlanWindow, ...]:
        """Return the windows between times (M + 1,)."""
        return tuple(self._window(float(a), float(b)) for a, b in pairwise(times))

    def _window(self, start: float, end: float) -> PlanWindow:
        x = state_at(self.plan, start, "+")
        u = self.mean(start, end)
        # Start in the contact modes of the plan; detecting them from a state with discretisation errors may fail.
        modes = modes_from(self.simulator, self.plan, self.p, start, end)
        history, control = self._run(x, u, start, end, modes)
        # An impact close to the end may come before it in the plan and after it in the simulation. Take the side with
        # the smaller difference, else the whole velocity jump would count as a defect.
        defects = [history.x - state_at(self.plan, end, side) for side in SIDES]
        defect = min(defects, key=lambda away: float(np.abs(away).max())) if history.status.success else 0.0 * x
        fields: dict[str, Any] = {
            "start": start, "end": end, "x": x, "u": u, "history": history, "defect": self._tangent(x) @ defect
        }  # fmt: skip
        derivatives = (
            sensitivity_along(self.system, history, control, control.breaks) if history.status.success else None
        )
        if (
            derivatives is not None
            and derivatives.smooth
            and derivatives.u is not None
            and np.isfinite(derivatives.x0).all()
        ):
            by_x, by_u = np.asarray(derivatives.x0), np.asarray(derivatives.u[0])
            return PlanWindow(by_x=by_x, by_u=by_u, **fields)
        flags = derivatives.flags if derivatives is not None else (f"t = {history.t:.9g}: {history.status}",)
        by_x, by_u = self._differences(x, u, start, end, modes)
        return PlanWindow(by_x=by_x, by_u=by_u, flags=flags, **fields)

    def state(self, t: float) -> Array:
        """Return the plan's state (n_x,) at t [s] since its beginning (after an impact at t; at the end before it)."""
        return state_at(self.plan, t, "+" if t < self.plan.duration else "-")

    def mean(self, start: float, end: float) -> Array:
        """Return the mean control (n_u,) of the plan between two times (midpoint rule)."""
        times = start + (np.arange(MEAN_POINTS) + 0.5) / MEAN_POINTS * (end - start)
        # The control of a plan depends on time only; its state argument is not read.
        return np.mean([self.control(float(t), np.zeros(0)) for t in times], axis=0)

    def _run(self, x: Array, u: Array, start: float, end: float, modes: Any) -> tuple[SimulationResult, Control]:
        control = Control(law=lambda t, x: u, breaks=np.array([start, end]), constant=True)
        return self.simulator.run(x, control, self.p, start=start, end=end, modes=modes, drift=np.inf), control

    def _differences(self, x: Array, u: Array, start: float, end: float, modes: Any) -> tuple[Array, Array]:
        """Return central differences over finite steps, which average over both sides of a kink."""
        system = self.system
        columns = []
        sizes = np.concatenate([SECANT_STEP * system.x_nominal, SECANT_STEP * system.u_nominal])
        for i, size in enumerate(sizes):
            ends, steps = [], []
            for sign in (1.0, -1.0):
                step = np.zeros(sizes.size)
                step[i] = sign * size
                # A perturbed position may penetrate; project it first.
                begin = admissible(system, x + step[: x.size], self.p)
                history, _ = self._run(begin, u + step[x.size :], start, end, None)
                if history.status.success:
                    ends.append(history.x)
                    steps.append(step[i])
            if len(ends) == 2:
                columns.append((ends[0] - ends[1]) / (steps[0] - steps[1]))
            elif ends:
                middle = self._run(x, u, start, end, modes)[0].x
                columns.append((ends[0] - middle) / steps[0])
            else:
                columns.append(np.eye(x.size, sizes.size)[:, i])
        jacobian = np.array(columns).T
        return jacobian[:, : x.size] @ self._tangent(x), jacobian[:, x.size :]

    def _tangent(self, x: Array) -> Array:
        return admissible_directions(self.system, x, self.p)
