"""Branch and bound in Python, as in `qpcc.c`; CasADi's DAQP solves the programs of the nodes."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.qpcc.result import QPCCOutcome, QPCCResult

Array = np.ndarray
# A pair with both sides above OPEN is violated.
OPEN = 1e-7
# Weight of the first pair where a search chooses the one to branch on; that of the last one is one.
EARLY = 0.35
# Tolerances of DAQP, and the largest violation of a row of length one that counts as solved.
TOLERANCES = {"primal_tol": 1e-10, "dual_tol": 1e-12}
OUTSIDE = 1e-7
# What DAQP returns for a program without a solution; other numbers are failures.
INFEASIBLE = -1


def definite(P: Array) -> bool:
    """Return True if P is finite and positive definite."""
    try:
        np.linalg.cholesky(P)
    except np.linalg.LinAlgError:
        return False
    return bool(np.isfinite(P).all())


def search(
    data: tuple[Array, Array, Array],
    c: Array,
    lower: Array,
    upper: Array,
    constant: float,
    order: Array,
    nodes: int,
    gap: float,
) -> QPCCResult:
    """Search as `QPCC.solve` describes; `data` are P, A and the pairs."""
    P, A, pairs = data
    # In y = R z with P = R'R, and with rows of length one: DAQP's tolerances are absolute.
    R = np.linalg.cholesky(P).T
    rows = np.linalg.solve(R.T, A.T).T
    lengths = np.linalg.norm(rows, axis=1)
    lengths[lengths == 0.0] = 1.0
    rows /= lengths[:, None]
    turned, one = np.linalg.solve(R.T, c), np.eye(P.shape[0])
    shapes = {"h": ca.Sparsity.dense(*P.shape), "a": ca.Sparsity.dense(*A.shape)}
    solver = ca.conic("node", "daqp", shapes, {"error_on_fail": False, "daqp": TOLERANCES})
    counts, kept, failed = 0, np.inf, list[float]()
    best: Any = None

    def solved(state: Array, bound: float = -np.inf) -> tuple[float, Array, Array] | None:
        fixed = state >= 0
        high = upper.copy()
        zero = pairs[fixed, state[fixed]]
        high[zero] = lower[zero]
        at = solver(h=one, g=turned, a=rows, lba=lower / lengths, uba=high / lengths)
        z = np.linalg.solve(R, np.array(at["x"]).reshape(-1))
        outside = np.maximum(lower - A @ z, A @ z - high) / lengths
        status = solver.stats()
        if not status["success"] or not outside.max(initial=0.0) <= OUTSIDE:
            failed.extend([bound] if status["return_status"] != INFEASIBLE else [])
            return None
        return float(0.5 * z @ P @ z + c @ z) + constant, z, np.array(at["lam_a"]).reshape(-1) / lengths

    if pairs.size and (order >= 0).all():
        counts += 1
        known = solved(order)
        if known is not None:
            kept, best = known[0], (known, order.copy())
    stack: list[tuple[float, Array]] = [(-np.inf, np.full(len(pairs), -1))]
    plunges = True
    while stack and counts < nodes:
        if not plunges:  # a plunge has ended: on with the node that promises most
            lowest = min([len(stack) - 1, *range(len(stack) - 1)], key=lambda k: stack[k][0])
            stack[lowest], stack[-1] = stack[-1], stack[lowest]
        bound, state = stack.pop()
        plunges = False
        cutoff = np.inf if best is None else best[0][0] - gap * abs(best[0][0])
        if bound >= cutoff:
            continue
        counts += 1
        at = solved(state, bound)
        if at is None or at[0] >= cutoff:
            continue
        slacks = (A @ at[1] - lower)[pairs]
        violated = np.flatnonzero((state < 0) & (slacks > OPEN).all(axis=1))
        if not violated.size:
            best = (at, np.where(state >= 0, state, slacks[:, 1] < slacks[:, 0]))
            continue
        weights = EARLY + (1.0 - EARLY) * violated / len(pairs)
        pair = violated[np.argmax(weights * slacks[violated].min(axis=1))]
        prefer = int(slacks[pair, 1] < slacks[pair, 0])
        for side in (1 - prefer, prefer):
            child = state.copy()
            child[pair] = side
            stack.append((at[0], child))
        plunges = True
    # What was not searched is not claimed.
    left = min([bound for bound, _ in stack] + failed, default=np.inf)
    if best is None:
        outcome = QPCCOutcome.NOTHING if stack or failed else QPCCOutcome.INFEASIBLE
        nothing = np.zeros(P.shape[0]), np.zeros(len(pairs), int), np.zeros(A.shape[0])
        return QPCCResult(
            outcome=outcome, z=nothing[0], sides=nothing[1], multipliers=nothing[2], objective=np.inf, bound=left,
            kept=kept, nodes=counts, steps=counts,
        )  # fmt: skip
    (objective, z, multipliers), sides = best
    outcome = QPCCOutcome.LIMIT if left < objective - gap * abs(objective) else QPCCOutcome.SOLVED
    return QPCCResult(
        outcome=outcome, z=z, sides=sides, multipliers=multipliers, objective=objective, bound=min(left, objective),
        kept=kept, nodes=counts, steps=counts,
    )  # fmt: skip
