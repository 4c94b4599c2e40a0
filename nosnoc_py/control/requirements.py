"""Requirements of a plan: what an OCP demands of a motion, as rows that are measured on simulated motions.

These are terminal constraints at the end, and bounds of states and path constraints at every sample. Violations are
relative: of a row with two limits to half their distance, of an equation to its tolerance (no draw meets it exactly),
else to the typical change of the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import casadi as ca
import numpy as np

from nosnoc_py.audit.constraints import row_sizes
from nosnoc_py.errors import OptionError
from nosnoc_py.ocp import OCP, Constraint
from nosnoc_py.soft_constraints import without_slacks
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.symbols import depends_only_on

Array = np.ndarray
# An equation counts as held within this fraction of the typical size of its row.
TOLERANCE = 0.01
# Violation, relative as above, that is rounding of a simulation.
ROUNDING = 1e-6


class RequiredRows(NamedTuple):
    """Rows of one kind: functions of (x, u, p, x_initial), their limits, sizes and labels; r of them."""

    values: ca.Function
    slopes: ca.Function
    lower: Array
    upper: Array
    sizes: Array
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Requirements:
    """Rows that have to hold, and the costs, of motions of an OCP.

    Parameters
    ----------
    ocp : OCP
    tolerance : float
        Of equations, as a fraction of the typical size of their rows.

    Raises
    ------
    OptionError
        If costs or constraints depend on algebraic variables, or are imposed at chosen times.
    """

    ocp: OCP
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        ocp, s = self.ocp, self.ocp.system
        if without_slacks(s) is not s:
            raise OptionError(
                "uncertain: soft constraints have no slacks on simulated motions; give hard ones, which a robust plan "
                "may miss at a penalty, or write them as costs."
            )
        known = ca.vertcat(s.x, s.u, s.p, s.x_initial)
        every = [*ocp.path_constraints, *ocp.terminal_constraints]
        used = ca.vertcat(ca.SX(ocp.stage_cost), ca.SX(ocp.terminal_cost), *(c.expression for c in every))
        if not depends_only_on(used, known) or ocp.point_terms or ocp.complementarities:
            raise OptionError(
                "uncertain: costs and constraints of algebraic variables or at chosen times, and complementarities "
                "of the user, cannot be measured on simulated motions; write them as stage and terminal ones."
            )

    @cached_property
    def end(self) -> RequiredRows:
        """Terminal constraints."""
        return self._rows(self.ocp.terminal_constraints)

    @cached_property
    def path(self) -> RequiredRows:
        """Path constraints and bounds of states."""
        s, (low, high) = self.ocp.system, self.ocp.x_bounds
        bounds = [
            Constraint(s.x[i], lower=low[i], upper=high[i], name=f"bound of {name}")
            for i, name in enumerate(s.state_names)
            if np.isfinite([low[i], high[i]]).any()
        ]
        return self._rows((*self.ocp.path_constraints, *bounds))

    @cached_property
    def costs(self) -> tuple[ca.Function, ca.Function]:
        """Stage and terminal cost: value, gradient and Hessian by (x, u), as functions of (x, u, p, x_initial)."""
        s = self.ocp.system
        z = ca.vertcat(s.x, s.u)
        functions = []
        for cost in (ca.SX(self.ocp.stage_cost), ca.SX(self.ocp.terminal_cost)):
            hessian, gradient = ca.hessian(cost, z)
            outputs = [cost, ca.densify(gradient), ca.densify(hessian)]
            functions.append(ca.Function("cost", [s.x, s.u, s.p, s.x_initial], outputs))
        return functions[0], functions[1]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of all rows: those of the path, then those of the end."""
        return (*self.path.labels, *self.end.labels)

    def excesses(self, motion: Trajectory, p: Array) -> Array:
        """Return by how much a simulated motion exceeds the limits of every row (rows, 2), lower and upper.

        The largest value along the motion, relative to the size of the row; negative within the limits, and infinite
        for a motion that stopped early.
        """
        x, t = motion.x, motion.t
        if not motion.success:
            return np.full((len(self.labels), 2), np.inf)
        # At a break of the control both rows hold at the same time: `control` returns the later one.
        u = np.asarray(motion.control(t)).reshape(len(t), -1)
        parts = []
        for rows, at in ((self.path, slice(None)), (self.end, slice(-1, None))):
            values = self.values(rows, x[at], u[at], p, x[0])
            over = np.stack([rows.lower - values, values - rows.upper], axis=-1) / rows.sizes[:, None]
            # A value that is not a number violates both limits.
            parts.append(np.where(np.isnan(over), np.inf, over).max(axis=0, initial=-np.inf))
        return np.concatenate(parts)

    @staticmethod
    def values(rows: RequiredRows, x: Array, u: Array, p: Array, first: Array) -> Array:
        """Return the values (m, r) of rows at states (m, n_x) with controls (m, n_u) and parameters."""
        return np.array(rows.values(x.T, u.T, p, first)).T.reshape(len(x), -1)

    def _rows(self, constraints: tuple[Constraint, ...]) -> RequiredRows:
        s = self.ocp.system
        expression = ca.vertcat(ca.SX(0, 1), *(c.expression for c in constraints))
        labels = [
            str(c.name) if c.lower.size == 1 else f"{c.name}[{i}]" for c in constraints for i in range(c.lower.size)
        ]
        lower, upper, typical = (
            np.concatenate([np.zeros(0), *parts])
            for parts in (
                [c.lower for c in constraints],
                [c.upper for c in constraints],
                [row_sizes(self.ocp, c) for c in constraints],
            )
        )
        typical = np.where(typical > 0.0, typical, 1.0)
        allowed = np.where(lower == upper, self.tolerance * typical, 0.0)
        lower, upper = lower - allowed, upper + allowed
        width = 0.5 * (upper - lower)
        symbols, z = [s.x, s.u, s.p, s.x_initial], ca.vertcat(s.x, s.u)
        return RequiredRows(
            values=ca.Function("rows", symbols, [ca.densify(expression)]),
            slopes=ca.Function("slopes", symbols, [ca.densify(ca.jacobian(expression, z))]),
            lower=lower,
            upper=upper,
            sizes=np.where(np.isfinite(width), width, typical),
            labels=tuple(labels),
        )
