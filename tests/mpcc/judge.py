"""Residuals of an MPCC worked out by hand: bounds, constraints and products one by one, nothing of `residuals.py`."""

import casadi as ca
import numpy as np


def residuals(mpcc, w, p=()):
    """(largest violation of a bound, a constraint or a sign; largest |G_i H_j| / max(1, |G_i|, |H_j|)); NaN is inf."""
    values = ca.Function("judge", [mpcc.w, mpcc.p], [mpcc.g, mpcc.G, mpcc.H])(w, p)
    g, G, H = (np.array(value).ravel() for value in values)
    violations = [0.0]
    for value, lower, upper in ((w, mpcc.lbw, mpcc.ubw), (g, mpcc.lbg, mpcc.ubg), (G, 0.0, np.inf), (H, 0.0, np.inf)):
        violations += list(lower - value) + list(value - upper)
    products = [0.0]
    for group in mpcc.groups:
        for i in group.left:
            products += [abs(G[i] * H[j]) / max(1.0, abs(G[i]), abs(H[j])) for j in group.right]
    worst = (np.array(part) for part in (violations, products))
    return tuple(np.inf if np.isnan(part).any() else float(part.max()) for part in worst)
