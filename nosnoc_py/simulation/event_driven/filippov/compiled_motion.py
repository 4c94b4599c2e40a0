"""Motion of a Filippov system in one regime as CasADi expressions, for compiled steps (`whole_step`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from nosnoc_py.simulation.event_driven.whole_step import CompiledSteps
from nosnoc_py.systems.inclusion import REGION

if TYPE_CHECKING:
    from nosnoc_py.simulation.event_driven.filippov.regime import FilippovRegime

# Larger systems take long to compile, and the overhead of Python in their steps is small.
MOST_STATES, MOST_MULTIPLIERS, MOST_UNKNOWNS = 24, 16, 6
# Newton steps of a projection onto the surfaces of a sliding mode; the state is already close.
PROJECTIONS = 2


def compiled_steps_of(regime: FilippovRegime) -> CompiledSteps | None:
    """Return the compiled steps of a regime (cached).

    None for large systems or multiplier equations that are not affine.
    """
    laws = regime.laws
    if laws.n_x > MOST_STATES or laws.n_y > MOST_MULTIPLIERS:
        return None
    if regime.modes not in laws.steps:
        steps = _compile(regime)
        laws.steps[regime.modes] = steps if steps is not None and steps.small else None
    return laws.steps[regime.modes]


def _compile(regime: FilippovRegime) -> CompiledSteps | None:
    laws, n_y = regime.laws, regime.laws.n_y
    x, d = laws.x, ca.vertcat(laws.p, laws.u)
    s = _multipliers(regime)
    if s is None:
        return None
    arguments = (s, ca.vertcat(x, laws.p), laws.u, ca.DM(regime.masks))
    rate, rates = laws.motion_function(*arguments)
    functions = laws.functions_function(arguments[1])[0]
    y, z = s[:n_y], s[n_y:]
    sign, (low, high), away = regime.sign, regime.bounded, regime.distances_of(functions)
    guards = [away[i] if sign[i] else ca.SX.inf() for i in range(n_y)]
    guards += [y[i] if low[i] else ca.SX.inf() for i in range(n_y)]
    # Only step functions have an upper bound of their own; weights are bounded by their sum, forces not at all.
    guards += [1 - y[i] if high[i] else ca.SX.inf() for i in range(n_y)]
    guards += [z[i] - laws.lower[i] for i in range(laws.n_z)] + [laws.upper[i] - z[i] for i in range(laws.n_z)]
    put, puts = _projected(regime), regime.free.sum() <= 1
    return CompiledSteps(x, d, rate, ca.vertcat(*guards), s, regime.relative_of(rates), put, puts=bool(puts))


def _projected(regime: FilippovRegime) -> ca.SX | None:
    """Return the state on the only surface of a sliding mode, see `FilippovFlow.project`; None for others."""
    laws, rows = regime.laws, np.flatnonzero(regime.free).tolist()
    if len(rows) != 1:
        return None
    other, metric, x = int(regime.reference[rows[0]]), ca.DM(laws.metric), laws.x
    for _ in range(PROJECTIONS):
        values, slopes = laws.functions_function(ca.vertcat(x, laws.p))
        value, slope = values[rows[0]], slopes[rows[0], : laws.n_x]
        if other >= 0:
            value, slope = value - values[other], slope - slopes[other, : laws.n_x]
        size = slope @ metric @ slope.T
        x = x - metric @ slope.T * ca.if_else(size > 0.0, value / size, 0.0)
    return x


def _multipliers(regime: FilippovRegime) -> ca.SX | None:
    """Return multipliers and algebraic variables as expressions; None if their equations are not affine."""
    laws, n_y, known = regime.laws, regime.laws.n_y, regime.known
    if known is not None:
        return ca.SX(ca.DM(known))
    # Only unknown multipliers are solved for; the others are fixed values of this mode and may be folded by CasADi.
    open_ = np.flatnonzero([*(regime.free | ((laws.kinds == REGION) & regime.on)), *np.ones(laws.n_z, bool)])
    if open_.size > MOST_UNKNOWNS:
        return None
    unknown = ca.SX.sym("s", open_.size)
    s = ca.SX(ca.DM([*regime.masks[2 * n_y :], *np.zeros(laws.n_z)]))
    s[open_.tolist()] = unknown
    x, p, u = laws.x, laws.p, laws.u
    rows = laws.residual_function(s, ca.vertcat(x, p), u, ca.DM(regime.masks))[0][open_.tolist()]
    slope = ca.jacobian(rows, unknown)
    # One linear solve gives affine multipliers; others need iterations, which SciPy's steps do.
    if ca.depends_on(slope, unknown):
        return None
    start = ca.substitute(rows, unknown, ca.DM.zeros(open_.size))
    solution = -(start / slope if open_.size == 1 else ca.solve(ca.densify(slope), ca.densify(start)))
    return ca.substitute(s, unknown, solution)
