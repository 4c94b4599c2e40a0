"""Residuals of bounds and constraints of an optimal control problem at samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from nosnoc_py.audit.records import Measured
from nosnoc_py.solution.violation import Law

if TYPE_CHECKING:
    from nosnoc_py.ocp import OCP, Constraint

Array = np.ndarray
# Distance of the second point at which slopes are taken, as a fraction of the typical sizes.
BESIDE = 0.3


def bounds(names: tuple[str, ...], limits: tuple[Array, Array], t: Array, values: Array, sizes: Array) -> Measured:
    """Return residuals of bounds (n,) of states or controls at samples (m, n), relative to their typical sizes (n,)."""
    return _measured(Law.BOUND, names, limits, t, values, sizes)


def path(ocp: OCP, constraint: Constraint, t: Array, x: Array, u: Array, p: Array, z: Array | None = None) -> Measured:
    """Return residuals of a path constraint at samples; `z` (m, n_z) if it uses algebraic variables."""
    s = ocp.system
    function = ca.Function("path", [s.x, s.z, s.u, s.p], [ca.densify(constraint.expression)])
    # Zeros are never used: callers pass z if the expression depends on it.
    algebraic = np.zeros((len(t), s.z.numel())) if z is None else z
    values = np.array(function(x.T, algebraic.T, u.T, p)).T.reshape(len(t), -1)
    return _of_constraint(ocp, Law.PATH, constraint, t, values)


def at_points(ocp: OCP, constraint: Constraint, x: Array, p: Array) -> Measured:
    """Return residuals of a constraint at chosen times, with the states (m, n_x) there."""
    s = ocp.system
    function = ca.Function("constraint", [s.x, s.p], [ca.densify(constraint.expression)])
    values = np.array(function(x.T, p)).T.reshape(len(x), -1)
    return _of_constraint(ocp, Law.PATH, constraint, constraint.times, values)


def at_end(ocp: OCP, constraint: Constraint, law: Law, t: float, x: Array, x_initial: Array, p: Array) -> Measured:
    """Return residuals of a terminal or initial constraint at a state (n_x,)."""
    s = ocp.system
    function = ca.Function("constraint", [s.x, s.x_initial, s.p], [ca.densify(constraint.expression)])
    values = np.array(function(x, x_initial, p)).reshape(1, -1)
    return _of_constraint(ocp, law, constraint, np.array([t]), values)


def excess(values: Array, lower: Array | float, upper: Array | float) -> Array:
    """Return how far values (m, n) lie outside of their bounds (n,); NaN for NaN."""
    # `np.maximum` passes NaN on, which comparisons would lose.
    return np.maximum(np.maximum(lower - values, values - upper), 0.0)


def row_sizes(ocp: OCP, constraint: Constraint) -> Array:
    """Return the typical changes of the rows of a constraint (m,), by typical changes of states and controls.

    The slopes are taken at x0 and beside it, as they may vanish at a single point.
    """
    s, sizes = ocp.system, ocp.sizes
    symbols = [s.x, s.x_initial, s.u, s.p]
    slopes = [ca.jacobian(constraint.expression, symbol) for symbol in (s.x, s.u)]
    if ocp.free_time is not None:
        slopes = [ca.substitute(slope, ocp.free_time.symbol, float(ocp.horizon)) for slope in slopes]
    function = ca.Function("slopes", symbols, slopes, {"allow_free": True})
    if function.has_free():  # algebraic variables, whose sizes are not known
        return np.ones(constraint.lower.size)
    base, total = np.zeros(sizes.x.size) if ocp.x0 is None else np.asarray(ocp.x0, float), np.zeros(0)
    for beside in (0.0, BESIDE):
        x, u = base + beside * sizes.x, beside * sizes.u
        of_x, of_u = (np.abs(np.array(part)) for part in function(x, base, u, ocp.p))
        changes = np.maximum((of_x * sizes.x).max(axis=1, initial=0.0), (of_u * sizes.u).max(axis=1, initial=0.0))
        changes = np.where(np.isfinite(changes), changes, 0.0)
        total = np.maximum(total, changes) if total.size else changes
    return total


def _of_constraint(ocp: OCP, law: Law, constraint: Constraint, t: Array, values: Array) -> Measured:
    """Return the residuals of a constraint by its components."""
    many = values.shape[1] > 1
    names = tuple(f"{constraint.name}[{i}]" if many else str(constraint.name) for i in range(values.shape[1]))
    return _measured(law, names, (constraint.lower, constraint.upper), t, values, row_sizes(ocp, constraint))


def _measured(
    law: Law, names: tuple[str, ...], limits: tuple[Array, Array], t: Array, values: Array, sizes: Array
) -> Measured:
    """Return residuals relative to the size of the row, or its value where that is larger."""
    over = excess(values, *limits)
    scale = np.maximum(sizes, np.abs(values))
    return Measured(law=law, t=t, subjects=names, amounts=over, shares=over / np.where(scale > 0.0, scale, 1.0))
