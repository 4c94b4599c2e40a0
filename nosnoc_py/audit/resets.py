"""Resets of a hybrid system, evaluated on the jumps of a motion.

A jump is explained by a guard that is zero before it and by the reset of that guard. Everything else that jumps is a
violation, relative to the typical sizes of the states and of the guard.
"""

from __future__ import annotations

import casadi as ca
import numpy as np

from nosnoc_py.audit.records import Jumps, Measured
from nosnoc_py.solution.violation import Law
from nosnoc_py.systems.hybrid import HybridSystem

Array = np.ndarray


def resets_of(system: HybridSystem, jumps: Jumps, p: Array, sizes: Array) -> Measured:
    """Return what the best reset leaves of every jump, per state.

    Parameters
    ----------
    system : HybridSystem
    jumps : Jumps
        Of which those without a difference need no reset.
    p : (n_p,)
    sizes : (n_x,)
        Typical states; a guard is compared with its change by these.
    """
    x = system.x
    rows = [ca.vertcat(jump.guard, ca.fabs(ca.jacobian(jump.guard, x)) @ sizes, jump.reset) for jump in system.jumps]
    values = ca.Function("resets", [x, system.p], [ca.horzcat(ca.SX(2 + x.numel(), 0), *rows)])
    shares = np.abs(jumps.x_after - jumps.x_before) / sizes
    for k in np.flatnonzero(shares.max(axis=1, initial=0.0) > 0.0) if rows else ():
        guard, size, *after = np.array(values(jumps.x_before[k], p))
        away = np.abs(np.array(after).T - jumps.x_after[k]) / sizes
        # The guard has to be zero there: what it is not counts for every state.
        explained = np.maximum(away, (np.abs(guard) / np.maximum(size, np.finfo(float).tiny))[:, None])
        best = explained[int(explained.max(axis=1).argmin())]
        shares[k] = np.minimum(shares[k].max(), best)
    return Measured(
        law=Law.RESET, t=jumps.t, subjects=system.state_names, amounts=shares * sizes, shares=np.asarray(shares)
    )
