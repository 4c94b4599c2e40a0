"""A plan in windows of one sampling period: where each begins and ends, what its derivatives are, and its impacts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from nosnoc_py.control.measured import admissible, unit_parts
from nosnoc_py.simulation.certification.certify import REFEREE, REFEREE_RESTS
from nosnoc_py.simulation.certification.windows import SIDES, modes_from, state_at
from nosnoc_py.simulation.event_driven.history import History, Referee
from nosnoc_py.simulation.event_driven.run import differentiated, referee_of
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.controls import Control, control_of
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.quaternions import tangent_directions

Array = np.ndarray
# Where a window has no derivative, differences over this share of `x_nominal`, or of the range of a control, stand in.
SECANT = 2e-3
# The control of a window is the mean of the plan's at so many times.
MEANS = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanWindow:
    """One sampling period of a plan.

    Attributes
    ----------
    start, end : float
        Seconds since the beginning of the plan.
    x, u : (n_x,), (n_u,)
        The plan's state at the start, and the control.
    by_x, by_u : (n_x, n_x), (n_x, n_u)
        Derivatives of the state at the end.
    defect : (n_x,)
        Where the simulation from x ends, less the plan there.
    history : History
        What is simulated from x.
    flags : tuple of str
        Why these are no derivatives but differences.
    """

    start: float
    end: float
    x: Array
    u: Array
    by_x: Array
    by_u: Array
    defect: Array
    history: History
    flags: tuple[str, ...] = ()

    @property
    def jumps(self) -> bool:
        """Whether there is an impact in it."""
        return any(node.impact is not None for node in self.history.nodes)


class PlanWindows:
    """Simulates and differentiates windows of a plan from its own states."""

    def __init__(self, system: Described, plan: Trajectory, p: Array) -> None:
        self.system, self.plan, self.p = system, plan, p
        self.control = control_of(plan, system.n_u, plan.duration)
        x0 = state_at(plan, 0.0, "+")
        self.referee: Referee = referee_of(system, REFEREE, x0, self.control, p, REFEREE_RESTS)

    def between(self, times: Array) -> tuple[PlanWindow, ...]:
        """The windows between times (M + 1,)."""
        return tuple(self._window(float(a), float(b)) for a, b in pairwise(times))

    def _window(self, start: float, end: float) -> PlanWindow:
        x = state_at(self.plan, start, "+")
        u = self.mean(start, end)
        modes = modes_from(self.referee, self.plan, self.p, start, end)
        history, control = self._run(x, u, start, end, modes)
        # An impact that the plan has just before the end, and the simulation just behind it, is no defect.
        beside = [history.x - state_at(self.plan, end, side) for side in SIDES]
        defect = min(beside, key=lambda away: float(np.abs(away).max())) if history.status.success else 0.0 * x
        made: dict[str, Any] = {
            "start": start, "end": end, "x": x, "u": u, "history": history, "defect": self._tangent(x) @ defect
        }  # fmt: skip
        found = differentiated(self.system, history, control, control.breaks) if history.status.success else None
        if found is not None and found.smooth and found.u is not None and np.isfinite(found.x0).all():
            by_x, by_u = np.asarray(found.x0), np.asarray(found.u[0])
            return PlanWindow(by_x=by_x, by_u=by_u, **made)
        why = found.flags if found is not None else (f"t = {history.t:.9g}: {history.status}",)
        by_x, by_u = self._secants(x, u, start, end, modes)
        return PlanWindow(by_x=by_x, by_u=by_u, flags=why, **made)

    def state(self, t: float) -> Array:
        """The plan's state (n_x,) at a time since its beginning; at the end before an impact there."""
        return state_at(self.plan, t, "+" if t < self.plan.duration else "-")

    def mean(self, start: float, end: float) -> Array:
        """The mean of the plan's control."""
        times = start + (np.arange(MEANS) + 0.5) / MEANS * (end - start)
        return np.mean([self.control(float(t), np.zeros(0)) for t in times], axis=0)

    def _run(self, x: Array, u: Array, start: float, end: float, modes: Any) -> tuple[History, Control]:
        control = Control(law=lambda t, x: u, breaks=np.array([start, end]), constant=True)
        return self.referee.run(x, control, self.p, start=start, end=end, modes=modes, drift=np.inf), control

    def _secants(self, x: Array, u: Array, start: float, end: float, modes: Any) -> tuple[Array, Array]:
        """Differences over finite steps to both sides: where no derivative exists they are what feedback meets."""
        system = self.system
        columns = []
        sizes = np.concatenate([SECANT * system.x_nominal, SECANT * system.u_nominal])
        for i, size in enumerate(sizes):
            ends, steps = [], []
            for sign in (1.0, -1.0):
                step = np.zeros(sizes.size)
                step[i] = sign * size
                begin = admissible(system, x + step[: x.size], self.p)
                history, _ = self._run(begin, u + step[x.size :], start, end, None)
                if history.status.success:
                    ends.append(history.x)
                    steps.append(step[i])
            if len(ends) == 2:
                columns.append((ends[0] - ends[1]) / (steps[0] - steps[1]))
            elif ends:
                nominal = self._run(x, u, start, end, modes)[0].x
                columns.append((ends[0] - nominal) / steps[0])
            else:
                columns.append(np.eye(x.size, sizes.size)[:, i])
        found = np.array(columns).T
        return found[:, : x.size] @ self._tangent(x), found[:, x.size :]

    def _tangent(self, x: Array) -> Array:
        return tangent_directions(x, unit_parts(self.system))
