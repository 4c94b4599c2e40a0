"""Plans on a fixed grid, whose order of contacts is searched at every sample.

`GridPlanner` keeps the last plan. `prepare` expands the problem along this plan, shifted to the next sample, before the
state is measured; `answer` then takes one search of a QPCC (`transcription.fixed_grid`), a millisecond or a few.
A plan starts from rest by the same step, repeated: sequential quadratic programming with complementarities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.errors import NosnocError
from nosnoc_py.mpcc.qpcc import QPCCResult
from nosnoc_py.ocp import OCP
from nosnoc_py.transcription.fixed_grid import (
    AGAIN_ROUNDS,
    FAR,
    FIRST_FACTOR,
    FIRST_ROUNDS,
    SAME,
    SAME_TIME,
    Condensed,
    FixedGrid,
    Motion,
)

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class GridAnswer:
    """Answer of the fixed grid for a state.

    Attributes
    ----------
    x : (n_x,)
    search : QPCCResult
        How the search ended, with its objective and the bound of all others.
    motion : Motion
        Its controls, forces and states.
    u : (N, n_u)
        Its controls, for the control stages of the problem.
    """

    x: Array
    search: QPCCResult
    motion: Motion
    u: Array
    condensed: Condensed
    ends: Array

    @property
    def objective(self) -> float:
        """Objective on the fixed grid."""
        return self.search.objective

    def objective_of(self, u: Array) -> float:
        """Return the objective that controls (N, n_u) have on the same grid from the same state."""
        moves = self.condensed.grid.moves_of(u, self.ends)
        return self.condensed.solve(self.x, self.motion.sides, moves, nodes=self.condensed.grid.nodes).objective


class GridPlanner:
    """Planner on a fixed grid.

    Parameters
    ----------
    ocp : OCP
    period : float
        Between samples [s].
    stages : int
        Control stages of the horizon, for which controls are returned.
    """

    def __init__(self, ocp: OCP, period: float, stages: int) -> None:
        self.grid = FixedGrid.of(ocp, period)
        self.ends = float(ocp.horizon) / stages * np.arange(1, stages + 1)
        self._period = period
        self._motion: Motion | None = None
        self._began, self._begun = 0.0, False
        self._ready: Condensed | None = None
        self._p = np.zeros(0)

    @classmethod
    def of(cls, ocp: OCP, period: float, stages: int) -> tuple[GridPlanner | None, str]:
        """Return the planner; for problems that the grid has no place for None, and the reason."""
        if not ocp.system.n_u:
            return None, "fixed grid: the system has no controls."
        try:
            return cls(ocp, period, stages), ""
        # Laws without a DCS, and whatever CasADi refuses: finite elements alone go on.
        except (NosnocError, RuntimeError, ValueError) as error:
            return None, str(error)

    def reset(self) -> None:
        """Forget the plan."""
        self._motion, self._ready, self._begun = None, None, False

    def prepare(self, x: Array, t: float, p: Array) -> None:
        """Expand along the plan for the state (n_x,) that is expected at t [s]."""
        self._ready, self._p = None, p
        if self._motion is not None and t >= self._began - SAME_TIME * self._period:
            self._motion = self.grid.shifted(self._motion, max(0.0, t - self._began), x, p)
            self._began = t
            self._ready = self.grid.linearised(self._motion, p)

    def answer(self, x: Array, t: float, p: Array) -> GridAnswer | None:
        """Return the answer for a state (n_x,) at t [s], or None where the search finds none."""
        if self._motion is None:
            # After a failure there is no time for a first plan.
            return self.first(x, t, p, *((AGAIN_ROUNDS, 1) if self._begun else (FIRST_ROUNDS, FIRST_FACTOR)))
        other = abs(t - self._began) > SAME_TIME * self._period or not np.array_equal(p, self._p)
        if self._ready is None or other:
            self.prepare(x, t, p)
        found = None if self._ready is None else self._searched(self._ready, x)
        if found is None:  # the plan leads nowhere
            return self.first(x, t, p, AGAIN_ROUNDS, 1)
        assert self._motion is not None
        if (np.abs(x - self._motion.x[0]) > FAR * self.grid.ocp.system.x_nominal).any():
            found = self._searched(self.grid.linearised(found.motion, p), x) or found
        self._motion, self._ready = found.motion, None
        return found

    def first(self, x: Array, t: float, p: Array, rounds: int, factor: int) -> GridAnswer | None:
        """Return an answer without a plan before it: expanded again until its objective stays."""
        self._motion = self._ready = None
        motion, found = self.grid.at_rest(x), None
        for _ in range(rounds):
            last, found = found, self._searched(self.grid.linearised(motion, p), x, factor)
            if found is None:
                found = last
                break
            motion = found.motion
            if last is not None and abs(found.objective - last.objective) <= SAME * abs(found.objective):
                break
        if found is not None:
            self._motion, self._began, self._begun = found.motion, t, True
        return found

    def _searched(self, condensed: Condensed, x: Array, factor: int = 1) -> GridAnswer | None:
        order = condensed.motion.sides
        search = condensed.solve(x, order, nodes=factor * self.grid.nodes)
        if not search.found:
            return None
        motion = condensed.motion_of(search, x)
        u = self.grid.controls(motion, self.ends)
        if not (np.isfinite(u).all() and np.isfinite(motion.x).all()):
            return None
        return GridAnswer(x=x, search=search, motion=motion, u=u, condensed=condensed, ends=self.ends)


def answered(planner: GridPlanner | None, x: Array, t: float, p: Any) -> GridAnswer | None:
    """Return the answer of a planner, or None without one, or where a function of the user has no value."""
    if planner is None:
        return None
    try:
        return planner.answer(x, t, np.asarray(p, float).reshape(-1))
    except (NosnocError, ArithmeticError, RuntimeError, np.linalg.LinAlgError):
        return None
