"""The benchmark's own opinion of a point: residuals from the functions in the problem's file, and an LPEC.

Nothing in here uses the evaluators, loaders or certificates of the library, so that a mistake there shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, diags, vstack

INFEASIBILITY = 1e-6
COMPLEMENTARITY = 1e-7
BIACTIVE = 1e-8
RADIUS = 1e-3
SLOPE = 1e-6
NODES = 400  # of the search over branches


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """A problem as its file gives it, with numbers and functions of (w, p).

    Attributes
    ----------
    lbw, ubw, lbg, ubg, p : ndarray
    values : Function
        (w, p) -> f, f with penalty, g, G, H.
    slopes : Function
        (w, p) -> gradient of what is minimised (f with penalty; f where it is constant), Jacobians of g, G, H.
    """

    lbw: np.ndarray
    ubw: np.ndarray
    lbg: np.ndarray
    ubg: np.ndarray
    p: np.ndarray
    values: ca.Function
    slopes: ca.Function


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Numbers of the benchmark about a point; see `problems.benchmarks.nosbench`."""

    objective: float
    penalty: float
    complementarity: float
    complementarity_min: float
    infeasibility: float
    solved: bool


class Slope(NamedTuple):
    """Slope of the objective along the best feasible direction of size one, and whether it counts as zero.

    With `gradient`, |grad f|_inf, equal to zero every feasible point is stationary and the certificate says nothing.
    """

    value: float
    certified: bool
    gradient: float


def read(path: Path, scale_G: Any = 1.0, scale_H: Any = 1.0) -> Problem:
    """Read a file of NOSBENCH; rows of G and H are multiplied by positive numbers."""
    data = json.loads(path.read_text(encoding="utf-8"))
    numbers = {key: np.array(np.ravel(data[key]), float) for key in ("lbw", "ubw", "lbg", "ubg", "p0")}
    w, p = ca.SX.sym("w", numbers["lbw"].size), ca.SX.sym("p", numbers["p0"].size)
    names = ("objective_fun", "augmented_objective_fun", "g_fun", "G_fun", "H_fun")
    f, augmented, g, G, H = (ca.densify(ca.SX(ca.Function.deserialize(data[name])(w, p))) for name in names)
    G, H = G * scale_G, H * scale_H
    minimised = f if f.is_constant() else augmented
    return Problem(
        **{key: numbers[key] for key in ("lbw", "ubw", "lbg", "ubg")},
        p=numbers["p0"],
        values=ca.Function("values", [w, p], [f, augmented, g, G, H]),
        slopes=ca.Function(
            "slopes", [w, p], [ca.jacobian(minimised, w), *[ca.jacobian(rows, w) for rows in (g, G, H)]]
        ),
    )


def judge(problem: Problem, w: np.ndarray) -> Verdict:
    """Residuals of the unrelaxed problem over the pairs as given; NaN counts as infinitely large.

    complementarity = max |G_i H_i| / max(1, |G_i|, |H_i|), complementarity_min = max |min(G_i, H_i)|.
    """
    f, augmented, g, G, H = (np.asarray(value).reshape(-1) for value in problem.values(w, problem.p))
    product = np.abs(G * H) / np.maximum(1.0, np.maximum(np.abs(G), np.abs(H)))
    violated = (problem.lbw - w, w - problem.ubw, problem.lbg - g, g - problem.ubg, -G, -H)
    infeasibility, complementarity = _largest(*violated), _largest(product)
    return Verdict(
        objective=float(f[0]),
        penalty=float(augmented[0] - f[0]),
        complementarity=complementarity,
        complementarity_min=_largest(np.abs(np.minimum(G, H))),
        infeasibility=infeasibility,
        solved=infeasibility <= INFEASIBILITY and complementarity <= COMPLEMENTARITY,
    )


def _largest(*arrays: np.ndarray) -> float:
    values = np.concatenate([np.zeros(1), *arrays])
    return float(np.where(np.isnan(values), np.inf, values).max())


@dataclass(frozen=True, eq=False, kw_only=True)
class Linearisation:
    """minimise c'e subject to A e >= b, E e = 0, lower <= e <= upper, and 0 <= G_k e, H_k e >= 0 with G_k e H_k e = 0.

    e = d / radius, so |e| <= 1; rows are scaled to largest entry one; e = 0 is feasible.
    """

    c: np.ndarray
    A: csr_matrix
    b: np.ndarray
    E: csr_matrix
    lower: np.ndarray
    upper: np.ndarray
    G: csr_matrix
    H: csr_matrix


def linearise(problem: Problem, w: np.ndarray) -> Linearisation:
    """The LPEC at w over the biactive pairs (both sides below 1e-8).

    Whatever is within 1e-8 of its bound counts as at the bound: a slack of 1e-9 is 1e-6 of the trust radius, and a
    multiplier of 1e3 would turn it into a slope of 1e-3 that no finite step along the direction can have.
    """
    _, _, g, G, H = (np.asarray(value).reshape(-1) for value in problem.values(w, problem.p))
    c, J_g, J_G, J_H = (csr_matrix(value.sparse()) for value in problem.slopes(w, problem.p))
    equal = problem.lbg == problem.ubg
    below, above = np.flatnonzero(~equal & np.isfinite(problem.lbg)), np.flatnonzero(~equal & np.isfinite(problem.ubg))
    both = np.maximum(np.abs(G), np.abs(H)) <= BIACTIVE
    # Of a pair that is not biactive the smaller side is zero and stays so, the other one stays nonnegative.
    zero_G, zero_H = ~both & (np.abs(G) <= np.abs(H)), ~both & (np.abs(G) > np.abs(H))
    A = [(J_g[below], problem.lbg[below] - g[below]), (-J_g[above], g[above] - problem.ubg[above])]
    A += [(J_G[zero_H], -G[zero_H]), (J_H[zero_G], -H[zero_G])]
    rows, b = _scaled(vstack([block for block, _ in A]), _room(np.concatenate([b for _, b in A])))
    return Linearisation(
        c=c.toarray().reshape(-1),
        A=rows,
        b=b,
        E=_scaled(vstack([J_g[equal], J_G[zero_G], J_H[zero_H]]))[0],
        lower=np.maximum(-1.0, _room(problem.lbw - w)),
        upper=-np.maximum(-1.0, _room(w - problem.ubw)),
        G=_scaled(J_G[both])[0],
        H=_scaled(J_H[both])[0],
    )


def _room(distance: np.ndarray) -> np.ndarray:
    """Lower bounds -slack / radius on scaled directions."""
    return np.where(distance >= -BIACTIVE, 0.0, distance / RADIUS)


def _scaled(rows: Any, b: np.ndarray | None = None) -> tuple[csr_matrix, np.ndarray]:
    rows = csr_matrix(rows)
    size = abs(rows).max(axis=1).toarray().reshape(-1) if rows.shape[0] else np.zeros(0)
    size = np.where(size > 0, size, 1.0)
    return csr_matrix(diags(1.0 / size) @ rows), (np.zeros(size.size) if b is None else b / size)


def lpec(problem: Problem, w: np.ndarray, nodes: int = NODES) -> Slope:
    """Solve the LPEC by branch and bound over the biactive pairs with linear programs only.

    A node has decided some pairs: G_k e = 0 or H_k e = 0. Its linear program without the other products bounds all
    branches below it; the bound is the dual one, which no feasibility tolerance of the linear solver can fake. Mostly
    the first node already proves that there is no descent (S-stationarity).

    Returns
    -------
    Slope
        Certified when value >= -1e-6 max(1, |grad f|_inf) over all branches; undecided after `nodes` linear programs
        counts as not certified.
    """
    at = linearise(problem, w)
    gradient = float(np.abs(at.c).max(initial=0.0))
    tolerance = SLOPE * max(1.0, gradient)
    best, count = 0.0, 1
    value, e = _branch(at, {})
    heap = [(value, 0, dict[int, int](), e)]
    while heap and heap[0][0] < min(best, -tolerance):
        value, _, decided, e = heappop(heap)
        products = np.minimum(at.G @ e, at.H @ e)
        products[list(decided)] = 0.0
        if products.max(initial=0.0) <= 1e-9:
            best = value
            continue
        if count >= nodes:
            return Slope(min(value, best), False, gradient)
        k = int(np.argmax(products))
        for side in (0, 1):
            child = {**decided, k: side}
            bound, e = _branch(at, child)
            count += 1
            heappush(heap, (max(bound, value), count, child, e))
    proven = min([best, *(bound for bound, *_ in heap)])
    return Slope(min(0.0, proven), proven >= -tolerance, gradient)


def _branch(at: Linearisation, decided: dict[int, int]) -> tuple[float, np.ndarray]:
    """(value, e) of the linear program of a node."""
    sides: list[list[int]] = [[k for k, side in decided.items() if side == s] for s in (0, 1)]
    A, E = vstack([at.A, at.G, at.H]), vstack([at.E, at.G[sides[0]], at.H[sides[1]]])
    b = np.concatenate([at.b, np.zeros(2 * at.G.shape[0])])
    return _linear_program(at.c, csr_matrix(A), b, csr_matrix(E), at.lower, at.upper)


def _linear_program(
    c: np.ndarray, A: csr_matrix, b: np.ndarray, E: csr_matrix, lower: np.ndarray, upper: np.ndarray
) -> tuple[float, np.ndarray]:
    """minimise c'e subject to A e >= b, E e = 0, lower <= e <= upper: (the better of primal and dual value, e).

    The dual value is b'y + sum_j min over the box of (c - A'y - E'z)_j e_j for whatever y >= 0 and z the solver found.
    """
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    attempts: Sequence[dict[str, float]] = (tight, {})
    for options in attempts:
        found = linprog(
            c,
            A_ub=-A if A.shape[0] else None,
            b_ub=-b if A.shape[0] else None,
            A_eq=E if E.shape[0] else None,
            b_eq=np.zeros(E.shape[0]) if E.shape[0] else None,
            bounds=np.column_stack([lower, upper]),
            method="highs",
            options=options,
        )
        if found.status == 0:
            break
    else:
        return -np.inf, np.zeros(c.size)
    y = np.maximum(-found.ineqlin.marginals, 0.0) if A.shape[0] else np.zeros(0)
    z = found.eqlin.marginals if E.shape[0] else np.zeros(0)
    reduced = c - A.T @ y - E.T @ z
    dual = b @ y + np.minimum(reduced * lower, reduced * upper).sum()
    return float(max(found.fun, dual)), np.asarray(found.x)
