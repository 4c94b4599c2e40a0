"""Flows of regions on the closure of their regions: functions such as sqrt(h - 1) are not defined beyond it.

A weir flows over for h > 1, by (h - 1)^1.5, and a Filippov system uses that flow for h >= 1 only. Integrators and
programs evaluate it a little beyond all the same, in stages that are rejected later, where NaN would end them. Beyond
its region a flow is therefore evaluated where Newton's method along the gradient of each violated function ends, on the
boundary: the flow of the region is unchanged, and its continuation is continuous.
"""

from __future__ import annotations

from collections.abc import Sequence

import casadi as ca
import numpy as np

# Operations that are not defined everywhere.
PARTIAL = (ca.OP_SQRT, ca.OP_LOG, ca.OP_POW, ca.OP_CONSTPOW, ca.OP_ASIN, ca.OP_ACOS)
# Number of random arguments, of several magnitudes, at which an expression with such operations is evaluated: x^3 is
# defined everywhere, x^1.5 is not.
SAMPLES = 60
# Newton steps towards the boundary, and how far beyond it they go, as a fraction of the size of the place: curved
# boundaries take several, and rounding must not cross the boundary again.
STEPS, INSIDE = 7, 1e-12


def may_be_undefined(expression: ca.SX) -> bool:
    """Return True if an expression has operations that are not defined for all arguments.

    Examples
    --------
    >>> import casadi as ca
    >>> x = ca.SX.sym("x")
    >>> may_be_undefined(ca.sqrt(x)), may_be_undefined(x**2), may_be_undefined(x**1.5)
    (True, False, True)
    """
    symbols = ca.vertcat(ca.SX(0, 1), *ca.symvar(expression))
    function = ca.Function("flow", [symbols], [expression])
    if not any(function.instruction_id(k) in PARTIAL for k in range(function.n_instructions())):
        return False
    rng = np.random.default_rng(0)  # a fixed seed: the same system for the same expressions
    arguments = rng.standard_normal((symbols.numel(), SAMPLES)) * 10.0 ** rng.uniform(-3.0, 3.0, SAMPLES)
    return bool(np.isnan(np.array(function(arguments))).any())


def on_closures(flows: Sequence[ca.SX], functions: ca.SX, signs: np.ndarray, x: ca.SX) -> tuple[ca.SX, ...]:
    """Return the flows of regions, continued beyond the closure of each region where they may be undefined.

    Parameters
    ----------
    flows : sequence of SX (n_x,)
    functions : SX (m,)
        Switching functions.
    signs : (regions, m)
        Signs of the functions in each region; 0 where a function does not bound it.
    x : SX (n_x,)
    """
    return tuple(_on_closure(flow, functions, row, x) for flow, row in zip(flows, signs, strict=True))


def _on_closure(flow: ca.SX, functions: ca.SX, signs: np.ndarray, x: ca.SX) -> ca.SX:
    if not may_be_undefined(flow):
        return flow
    place = x
    for k in np.flatnonzero(signs):
        inside = float(signs[k]) * functions[int(k)]
        if not ca.depends_on(inside, x):
            continue
        gradient = ca.gradient(inside, x)
        beyond = ca.substitute(inside, x, place) < 0.0
        for last in (False,) * (STEPS - 1) + (True,):
            value, slope = (ca.substitute(part, x, place) for part in (inside, gradient))
            margin = INSIDE * ca.norm_1(place) * ca.norm_1(slope) if last else 0.0
            place = place + ca.if_else(beyond, (margin - value) / ca.sumsqr(slope) * slope, 0.0)
    return ca.substitute(flow, x, place)
