"""Cost of simulated motions, measured by the stage and terminal cost of an OCP."""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.ocp import OCP
from nosnoc_py.systems.symbols import depends_only_on

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class MotionCost:
    """Stage and terminal cost of an OCP, evaluated on a simulated motion instead of a discretised solution.

    Slacks of soft constraints count as zero. Costs that depend on algebraic variables cannot be evaluated from states
    and controls; `of` then returns None.

    Parameters
    ----------
    stage, terminal : casadi.Function
        Of (x, u, p, x_initial).
    more : (int, int)
        Number of extra controls and parameters (slacks, weights) that the OCP has and the motion does not.
    """

    stage: ca.Function
    terminal: ca.Function
    more: tuple[int, int]

    @classmethod
    def of(cls, ocp: OCP, n_u: int, n_p: int) -> MotionCost | None:
        """Return the cost for motions with the first n_u controls and n_p parameters of the OCP, or None."""
        s = ocp.system
        # z and the symbols of a free horizon have no value on a simulated motion.
        known = ca.vertcat(s.x, s.u, s.p, s.x_initial)
        costs = ca.vertcat(ca.SX(ocp.stage_cost), ca.SX(ocp.terminal_cost))
        if not depends_only_on(costs, known):
            return None
        inputs = [s.x, s.u, s.p, s.x_initial]
        return cls(
            ca.Function("stage", inputs, [ocp.stage_cost]), ca.Function("terminal", inputs, [ocp.terminal_cost]),
            (s.u.numel() - n_u, s.p.numel() - n_p),
        )  # fmt: skip

    def running(self, t: Array, x: Array, u: Array, p: Array) -> float:
        """Integrate the stage cost (trapezoidal rule): times (m,), states (m, n_x), controls (n_u,) or (m, n_u)."""
        u = np.broadcast_to(u, (t.size, np.shape(u)[-1]))
        # The slacks of soft constraints are further controls of the OCP, behind those of the system.
        u = np.hstack([u, np.zeros((t.size, self.more[0]))])
        values = np.array(self.stage(x.T, u.T, self._p(p), x[0])).reshape(-1)
        # Both limits of a jump have the same time: the interval between them has no length and adds nothing.
        return float(np.sum(0.5 * (values[1:] + values[:-1]) * np.diff(t)))

    def final(self, x: Array, first: Array, p: Array) -> float:
        """Return the terminal cost of a state (n_x,) of a motion that started at `first` (n_x,)."""
        u = np.zeros(self.terminal.size1_in(1))
        return float(self.terminal(x, u, self._p(p), first))

    def _p(self, p: Array) -> Array:
        return np.append(p, np.zeros(self.more[1]))
