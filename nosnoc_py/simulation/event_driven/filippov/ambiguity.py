"""Intersections of surfaces of one partition.

Filippov's convex combinations that products of step functions exclude.
"""

from __future__ import annotations

import numpy as np

from nosnoc_py.simulation.event_driven.filippov.candidates import FilippovCandidate
from nosnoc_py.simulation.event_driven.filippov.laws import ON
from nosnoc_py.simulation.event_driven.filippov.regime import FilippovFlow, regime_of

Array = np.ndarray
# Singular values and residuals below this fraction of the largest number are zero.
SMALL_SINGULAR_VALUE = 1e-10


def message_of(flow: FilippovFlow, t: float, candidate: FilippovCandidate, touched: Array) -> str:
    """Return a message if a motion on several surfaces of one partition is one of many, else ""."""
    laws = flow.laws
    for part, regions in enumerate(laws.regions):
        rows = np.flatnonzero(touched & (laws.parts == part))
        if regions is None or rows.size < 2:
            continue
        names = " and ".join(laws.names[k] for k in rows)
        flows, rest = _flows(flow, t, candidate, part, rows)
        across = flow.functions(candidate.x)[1][rows, : laws.n_x]
        if candidate.regime.on[rows].all():
            if _moves(flows, across):
                return (
                    f"sliding on {names} leaves the convex combination open; the regions weigh as products of step "
                    "functions"
                )
        elif _slides(flows, rest, across):
            return f"other convex combinations than products of step functions could slide on {names}"
    return ""


def _flows(flow: FilippovFlow, t: float, candidate: FilippovCandidate, part: int, rows: Array) -> tuple[Array, Array]:
    """Return the flows (n_x, n_f) of the regions that meet, and the remaining rate of the state (n_x,)."""
    laws, regime = flow.laws, candidate.regime
    # With all surfaces sliding no step function is fixed, so that the flows of all regions that meet are evaluated.
    met = regime_of(laws, tuple(ON if k in rows else mode for k, mode in enumerate(regime.modes)))
    w, u = np.concatenate([candidate.x, flow.p]), flow.control(t, candidate.x)
    regions, modes = laws.regions[part], laws.modes[part]
    assert regions is not None
    assert modes is not None
    flows, signs = regions(candidate.instant.s, w, u, met.masks)[0], np.asarray(modes.signs)
    own = np.flatnonzero(laws.parts == part)
    alpha = candidate.instant.s[own]
    # Weights as products of step functions (Aizerman and Pyatnitskii 1974), the convention of the candidates.
    theta = np.where(signs > 0.0, alpha, 1.0 - alpha).prod(axis=1)
    others = [k for k in range(own.size) if own[k] not in rows]
    active = (signs[:, others] == regime.sign[own[others]]).all(axis=1)
    # The rest of the rate comes from other partitions and terms; it is the same for every convex combination.
    return flows[:, active], candidate.instant.rate - flows[:, active] @ theta[active]


def _moves(flows: Array, across: Array) -> bool:
    """Return True if convex combinations with the same rates across the surfaces move differently along them."""
    # Directions that change neither the rates across the surfaces nor the sum of the weights: what they move is open.
    fixed = np.vstack([across @ flows, np.ones(flows.shape[1])])
    _, sizes, right = np.linalg.svd(fixed)
    loose = right[int((sizes > SMALL_SINGULAR_VALUE * sizes.max()).sum()) :].T
    return bool(np.abs(flows @ loose).max(initial=0.0) > SMALL_SINGULAR_VALUE * (1.0 + np.abs(flows).max(initial=0.0)))


def _slides(flows: Array, rest: Array, across: Array) -> bool:
    """Return True if a convex combination keeps the state on all surfaces."""
    from scipy.optimize import nnls  # not paid for by an import of the library

    # Nonnegative weights with sum 1 and zero rates across all surfaces: Filippov's condition for sliding (1988).
    matrix = np.vstack([across @ (flows + rest[:, None]), np.ones(flows.shape[1])])
    sizes = np.maximum(np.abs(matrix).max(axis=1), np.finfo(float).tiny)
    right = np.concatenate([np.zeros(len(across)), [1.0]])
    return bool(nnls(matrix / sizes[:, None], right / sizes)[1] < SMALL_SINGULAR_VALUE)
