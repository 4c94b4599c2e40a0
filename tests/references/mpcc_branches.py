"""Random MPCCs with affine constraints and pairs, and a judge that enumerates their branches.

The objective is linear or convex quadratic, so that every question has an exact answer by linear programs, one for each
branch: whether there is a feasible point (the smallest violation), whether the objective is unbounded (a nonempty
polyhedron and a ray d with Q d = 0 and c'd < 0, Frank and Wolfe 1956), whether a point is B-stationary (the slope on
every branch that it lies on). Nothing of the library is used but the constructor of the program.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns

Array = NDArray[np.float64]

# A program is feasible, or has a solved point, within the first; it is infeasible when no branch gets below the second.
FEASIBLE, INFEASIBLE = 1e-7, 1e-4
# Of a slope over the largest entry of the gradient; the box around the point that it is taken in.
SLOPE, RADIUS = 1e-4, 1e-2
# What a side that vanishes by construction is, at most.
ROUNDING = 1e-12
# A ray descends by more than this, in rows and columns whose largest entry is one.
RAY = 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class RandomMPCC:
    """minimise w'Q w / 2 + c'w over lower <= A w <= upper, lbw <= w <= ubw, 0 <= G w + g0 _|_ H w + h0 >= 0.

    `feasible` is a point that is feasible by construction, `ray` a direction that descends without end from it.
    """

    kind: str
    seed: int
    A: Array
    lower: Array
    upper: Array
    G: Array
    g0: Array
    H: Array
    h0: Array
    Q: Array
    c: Array
    lbw: Array
    ubw: Array
    start: Array
    feasible: Array | None = None
    ray: Array | None = None

    @cached_property
    def mpcc(self) -> ns.MPCC:
        """The program as the library takes it."""
        w = ca.SX.sym("w", self.c.size)
        rows = {"g": ca.DM(self.A) @ w, "lbg": self.lower, "ubg": self.upper} if self.lower.size else {}
        return ns.MPCC.of_pairs(
            w=w,
            G=ca.DM(self.G) @ w + ca.DM(self.g0),
            H=ca.DM(self.H) @ w + ca.DM(self.h0),
            objective=0.5 * ca.bilin(ca.DM(self.Q), w, w) + ca.dot(ca.DM(self.c), w),
            lbw=self.lbw,
            ubw=self.ubw,
            w0=self.start,
            **rows,
        )

    def gradient(self, w: Array) -> Array:
        """Of the objective."""
        return np.asarray(self.Q @ w + self.c)

    def branches(self) -> Iterator[tuple[bool, ...]]:
        """Which sides are zero: True for G."""
        return itertools.product((True, False), repeat=self.g0.size)

    def rows(self, branch: tuple[bool, ...]) -> tuple[Array, Array, Array]:
        """All rows of a branch with their limits, those of the box first."""
        zero = np.array(branch, bool)
        matrix = np.vstack([np.eye(self.c.size), self.A, self.G, self.H])
        lower = np.concatenate([self.lbw, self.lower, -self.g0, -self.h0])
        left, right = np.where(zero, -self.g0, np.inf), np.where(zero, np.inf, -self.h0)
        upper = np.concatenate([self.ubw, self.upper, left, right])
        return matrix, lower, upper


# Programs ------------------------------------------------------------------------------------------------------------


def _plain(random: np.random.Generator, seed: int, kind: str = "plain", pairs: int | None = None) -> RandomMPCC:
    """A feasible program in a box; the pairs are of variables or of affine functions."""
    n = int(random.integers(2, 7))
    m = int(random.integers(1, min(n, 4) + 1)) if pairs is None else pairs
    k = int(random.integers(0, 4))
    of_variables = n >= 2 * m and random.random() < 0.5
    point = random.uniform(-3.0, 3.0, n)
    if of_variables:
        order = random.permutation(n)
        G, H = np.eye(n)[order[:m]], np.eye(n)[order[m : 2 * m]]
        zero = random.random(m) < 0.5
        point[order[:m]] = np.where(zero, 0.0, np.abs(point[order[:m]]))
        point[order[m : 2 * m]] = np.where(zero, np.abs(point[order[m : 2 * m]]), 0.0)
        g0 = h0 = np.zeros(m)
    else:
        G, H = random.normal(size=(2, m, n)).round(2)
        zero, other = random.random(m) < 0.5, random.uniform(0.0, 2.0, m)
        g0, h0 = np.where(zero, 0.0, other) - G @ point, np.where(zero, other, 0.0) - H @ point
    A = random.normal(size=(k, n)).round(2)
    equal = random.random(k) < 0.3 if k < n - m else np.zeros(k, bool)
    value = A @ point
    factor = random.normal(size=(int(random.integers(1, n + 1)), n)) / np.sqrt(n)
    quadratic = random.random() < 0.5
    return RandomMPCC(
        kind=kind,
        seed=seed,
        A=A,
        lower=np.where(equal, value, value - random.uniform(0.0, 1.0, k)),
        upper=np.where(equal, value, np.where(random.random(k) < 0.5, np.inf, value + random.uniform(0.0, 1.0, k))),
        G=G,
        g0=g0,
        H=H,
        h0=h0,
        Q=factor.T @ factor if quadratic else np.zeros((n, n)),
        c=random.normal(size=n).round(2),
        lbw=np.full(n, -10.0),
        ubw=np.full(n, 10.0),
        start=np.zeros(n) if random.random() < 0.5 else random.normal(size=n),
        feasible=point,
    )


def _degenerate(random: np.random.Generator, seed: int) -> RandomMPCC:
    """More rows are active at one point than there are variables, and some are sums of others."""
    base = _plain(random, seed, "degenerate")
    point = base.feasible
    assert point is not None
    extra = random.normal(size=(base.c.size, base.c.size)).round(2)
    A = np.vstack([base.A, base.G[:1], base.H[:1], base.G[:1] + base.H[:1], extra])
    above = np.where(random.random(A.shape[0]) < 0.7, 0.0, random.uniform(0.0, 1.0, A.shape[0]))
    return replace(base, A=A, lower=A @ point - above, upper=np.full(A.shape[0], np.inf))


def _redundant(random: np.random.Generator, seed: int) -> RandomMPCC:
    """Pairs and rows twice, pairs that share a side, and a nonnegativity that a row repeats."""
    base = _plain(random, seed, "redundant", pairs=int(random.integers(1, 4)))
    point = base.feasible
    assert point is not None
    zero = base.G[0] @ point + base.g0[0] <= ROUNDING
    G, g0, H, h0 = base.G, base.g0, base.H, base.h0
    twice = random.random() < 0.5
    if not twice:  # a new partner for the side that is zero
        partner = random.normal(size=point.size).round(2)
        offset = float(random.uniform(0.0, 2.0) - partner @ point)
        side = (G[0], g0[0]) if zero else (H[0], h0[0])
        G, g0, H, h0 = (*_with(G, g0, *side), *_with(H, h0, partner, offset))
    else:
        G, g0, H, h0 = (*_with(G, g0, G[0], g0[0]), *_with(H, h0, H[0], h0[0]))
    A = np.vstack([base.A, 2.0 * base.A, base.G])
    lower, upper = np.append(base.lower, 2.0 * base.lower), np.append(base.upper, 2.0 * base.upper)
    return replace(
        base,
        G=G,
        g0=g0,
        H=H,
        h0=h0,
        A=A,
        lower=np.append(lower, -base.g0),
        upper=np.append(upper, np.full(base.g0.size, np.inf)),
    )


def _with(matrix: Array, offset: Array, row: Array, value: float) -> tuple[Array, Array]:
    return np.vstack([matrix, row]), np.append(offset, value)


def _biactive(random: np.random.Generator, seed: int) -> RandomMPCC:
    """Both sides of most pairs vanish at one point, and some rows; the gradient combines those of the sides."""
    base = _plain(random, seed, "biactive")
    point = random.normal(size=base.c.size).round(2)
    m = base.g0.size
    away = np.where(random.random(m) < 0.7, 0.0, random.uniform(0.0, 1.0, m))
    left, right = random.uniform(0.0, 2.0, (2, m)) * random.choice([1.0, 1.0, 1.0, -0.5], size=(2, m))
    c = base.G.T @ np.where(random.random(m) < 0.2, 0.0, left) + base.H.T @ np.where(away > 0.0, 0.0, right)
    A, k = base.A, base.A.shape[0]
    above = random.choice([0.0, 1.0], size=k) * random.uniform(0.1, 1.0, k)
    if base.c.size >= 3 and random.random() < 0.4:  # B-stationary, but not S (Scheel and Scholtes 2000, example 3)
        third = random.normal(size=base.c.size).round(2)
        A = np.vstack([A, 4.0 * base.G[0] - third, 4.0 * base.H[0] - third])
        left[0] = right[0] = away[0] = 0.0
        c = base.G[0] + base.H[0] - third + base.G.T @ np.maximum(left, 0.0)
    value = A @ point
    return replace(
        base,
        A=A,
        g0=-base.G @ point,
        h0=away - base.H @ point,
        c=c - base.Q @ point,
        lower=value - np.append(above, np.zeros(value.size - above.size)),
        upper=np.full(value.size, np.inf),
        feasible=point,
    )


def _unbounded(random: np.random.Generator, seed: int) -> RandomMPCC:
    """Without a box, and with a ray that stays feasible and descends from the feasible point."""
    base = _plain(random, seed, "unbounded")
    n, point = base.c.size, base.feasible
    assert point is not None
    ray = random.normal(size=n)
    ray /= np.linalg.norm(ray)
    across = np.eye(n) - np.outer(ray, ray)
    zero = base.G @ point + base.g0 <= ROUNDING
    sides = []
    for matrix, fixed in ((base.G, zero), (base.H, ~zero)):
        sign = np.where(matrix @ ray >= 0.0, 1.0, -1.0)
        sides.append(np.where(fixed[:, None], matrix @ across, sign[:, None] * matrix))
    (G, H), value = sides, random.uniform(0.0, 2.0, zero.size)
    A = np.where((base.A @ ray >= 0.0)[:, None], base.A, -base.A)
    c = base.c if base.c @ ray < 0.0 else -base.c
    return replace(
        base,
        A=A,
        lower=A @ point - random.uniform(0.0, 1.0, A.shape[0]),
        upper=np.full(A.shape[0], np.inf),
        G=G,
        g0=np.where(zero, 0.0, value) - G @ point,
        H=H,
        h0=np.where(zero, value, 0.0) - H @ point,
        Q=across @ base.Q @ across,
        c=c - 0.2 * ray,
        lbw=np.full(n, -np.inf),
        ubw=np.full(n, np.inf),
        ray=ray,
    )


def _infeasible(random: np.random.Generator, seed: int) -> RandomMPCC:
    """A pair with both sides held up, rows that contradict each other, or a sum that no choice of sides gives."""
    base = replace(_plain(random, seed, "infeasible"), feasible=None)
    n, way = base.c.size, int(random.integers(3))
    if way == 0:
        A = np.vstack([base.A, base.G[:1], base.H[:1]])
        lower = np.append(base.lower, np.array([0.5 - base.g0[0], 0.5 - base.h0[0]]))
        return replace(base, A=A, lower=lower, upper=np.append(base.upper, [np.inf, np.inf]))
    if way == 1:
        row = random.normal(size=(1, n)).round(2)
        A = np.vstack([base.A, row, -row])
        return replace(base, A=A, lower=np.append(base.lower, [1.0, -0.5]), upper=np.append(base.upper, [np.inf] * 2))
    m = int(random.integers(1, min(n, 4) + 1))  # w_i = 0 or w_i = 1, and weights whose sums all miss the target
    pick, weights = np.eye(n)[:m], random.integers(1, 4, m)
    target = float(random.integers(0, weights.sum() + 1)) + 0.5
    row = (weights @ pick)[None, :]
    return replace(
        base,
        G=pick,
        g0=np.zeros(m),
        H=-pick,
        h0=np.ones(m),
        A=row,
        lower=np.array([target - 0.3]),
        upper=np.array([target + 0.3]),
    )


def _scaled(random: np.random.Generator, seed: int) -> RandomMPCC:
    """A plain program in other units: columns over eight orders of magnitude, rows and objective over six."""
    base = _plain(random, seed, "scaled")
    column = 10.0 ** random.uniform(-4.0, 4.0, base.c.size)
    k, m = base.lower.size, base.g0.size
    row, left, right, cost = (10.0 ** random.uniform(-3.0, 3.0, size) for size in (k, m, m, 1))
    point = base.feasible
    assert point is not None
    return replace(
        base,
        A=row[:, None] * base.A * column,
        lower=row * base.lower,
        upper=row * base.upper,
        G=left[:, None] * base.G * column,
        g0=left * base.g0,
        H=right[:, None] * base.H * column,
        h0=right * base.h0,
        Q=cost * base.Q * np.outer(column, column),
        c=cost * base.c * column,
        lbw=base.lbw / column,
        ubw=base.ubw / column,
        start=base.start / column,
        feasible=point / column,
    )


KINDS: Mapping[str, Callable[[np.random.Generator, int], RandomMPCC]] = {
    "plain": _plain,
    "degenerate": _degenerate,
    "redundant": _redundant,
    "biactive": _biactive,
    "unbounded": _unbounded,
    "infeasible": _infeasible,
    "scaled": _scaled,
}


def made(seed: int) -> RandomMPCC:
    """The program of a seed; classes take turns."""
    names = tuple(KINDS)
    return KINDS[names[seed % len(names)]](np.random.default_rng(seed), seed)


# The judge -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What enumeration says about a program; `feasible` is None where violations lie between the two tolerances."""

    feasible: bool | None
    unbounded: bool


def truth(program: RandomMPCC) -> Truth:
    """Ask every branch for its smallest violation and, where it is not empty, for a ray."""
    worst, unbounded = np.inf, False
    for branch in program.branches():
        violation = smallest_violation(program, branch)
        worst = min(worst, violation)
        unbounded |= violation <= FEASIBLE and steepest_ray(program, branch) < -RAY
    if program.feasible is not None:
        worst = min(worst, max(residuals(program, program.feasible)))
    return Truth(feasible=True if worst <= FEASIBLE else False if worst > INFEASIBLE else None, unbounded=unbounded)


def smallest_violation(program: RandomMPCC, branch: tuple[bool, ...]) -> float:
    """Over all points, the largest violation of a row of this branch."""
    matrix, lower, upper = program.rows(branch)
    n = program.c.size
    scale = np.abs(matrix[n:]).max(axis=0, initial=1.0)  # columns about one, whatever the units
    below, above = np.isfinite(upper), np.isfinite(lower)
    slack = -np.ones((int(below.sum() + above.sum()), 1))
    rows = np.vstack([matrix[below], -matrix[above]]) / scale
    limit = np.concatenate([upper[below], -lower[above]])
    found = _linear(np.append(np.zeros(n), 1.0), np.hstack([rows, slack]), limit, [(None, None)] * n + [(0, None)])
    return np.inf if found is None else found


def steepest_ray(program: RandomMPCC, branch: tuple[bool, ...]) -> float:
    """Slope of the steepest ray of a branch with Q d = 0, in columns and rows divided by their largest entries."""
    matrix, lower, upper = program.rows(branch)
    size = np.abs(np.vstack([matrix, program.Q, program.c])).max(axis=0)
    matrix, Q, c = matrix / size, program.Q / size, program.c / size
    matrix, Q, c = (rows / np.maximum(np.abs(rows).max(axis=-1, keepdims=True), 1e-300) for rows in (matrix, Q, c))
    equal = lower == upper
    below, above = np.isfinite(upper) & ~equal, np.isfinite(lower) & ~equal
    rows, equations = np.vstack([matrix[below], -matrix[above]]), np.vstack([matrix[equal], Q])
    zeros = np.zeros(rows.shape[0]), np.zeros(equations.shape[0])
    found = _linear(c, rows, zeros[0], [(-1.0, 1.0)] * c.size, equations, zeros[1])
    return 0.0 if found is None else found


def slopes(program: RandomMPCC, w: Array) -> tuple[float, float]:
    """Slope of the steepest direction at w on the branches that it lies on, and without the choice of sides.

    Over steps of at most `RADIUS`, over the largest entry of the gradient; rows that w violates may stay as they are.
    The first is zero where w is B-stationary, the second where it is S-stationary.
    """
    gradient, left, right = program.gradient(w), program.G @ w + program.g0, program.H @ w + program.h0
    worst = 0.0
    near = 1e-6 * np.maximum(1.0, np.maximum(np.abs(left), np.abs(right)))
    zero_left, zero_right = np.abs(left) <= near, np.abs(right) <= near
    for branch in program.branches():
        side = np.array(branch, bool)
        if (zero_left | ~side).all() and (zero_right | side).all():
            matrix, lower, upper = program.rows(branch)
            worst = min(worst, _slope(gradient, matrix, lower - matrix @ w, upper - matrix @ w))
    matrix, lower, upper = program.rows((True,) * left.size)
    count = left.size
    upper[-2 * count : -count] = np.where(zero_left & ~zero_right, -program.g0, np.inf)
    upper[-count:] = np.where(zero_right & ~zero_left, -program.h0, np.inf)
    return worst, _slope(gradient, matrix, lower - matrix @ w, upper - matrix @ w)


def _slope(gradient: Array, matrix: Array, lower: Array, upper: Array) -> float:
    lower, upper = np.minimum(lower, 0.0) / RADIUS, np.maximum(upper, 0.0) / RADIUS
    size = np.maximum(np.abs(matrix).max(axis=1, keepdims=True), 1e-300)
    below, above = np.isfinite(upper), np.isfinite(lower)
    rows = np.vstack([(matrix / size)[below], -(matrix / size)[above]])
    limit = np.concatenate([(upper / size[:, 0])[below], -(lower / size[:, 0])[above]])
    found = _linear(gradient / max(1.0, np.abs(gradient).max()), rows, limit, [(-1.0, 1.0)] * gradient.size)
    return 0.0 if found is None else found


def residuals(program: RandomMPCC, w: Array) -> tuple[float, float]:
    """Largest violation of a row, and largest |G H| / max(1, |G|, |H|)."""
    value, left, right = program.A @ w, program.G @ w + program.g0, program.H @ w + program.h0
    parts = (program.lbw - w, w - program.ubw, program.lower - value, value - program.upper, -left, -right)
    size = np.maximum(1.0, np.maximum(np.abs(left), np.abs(right)))
    return float(np.concatenate(parts).max(initial=0.0)), float((np.abs(left * right) / size).max(initial=0.0))


def _linear(
    cost: Array, rows: Array, limit: Array, box: list[Any], equations: Array | None = None, target: Array | None = None
) -> float | None:
    """The value of a linear program, -inf where it is unbounded, None without an answer."""
    from scipy.optimize import linprog

    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    for options in (tight, {}):
        found = linprog(cost, rows, limit, equations, target, box, method="highs", options=options)
        if found.status in (0, 3):
            return float(found.fun) if found.status == 0 else -np.inf
    return None


def false_claim(program: RandomMPCC, known: Truth, result: ns.MPCCResult) -> str:
    """What is wrong about the claims of a result; empty where nothing is."""
    if result.status is ns.Status.INFEASIBLE:
        return "infeasible, but has a feasible point" if known.feasible else ""
    if result.status is ns.Status.UNBOUNDED:
        return "" if known.unbounded else "unbounded, but has no ray"
    if not result.success:
        return ""
    if max(residuals(program, result.w)) > FEASIBLE:
        return "solved, but with residuals"
    if known.feasible is False:
        return "solved, but infeasible"
    if known.unbounded:
        return "solved, but unbounded"
    branches, free = slopes(program, result.w)
    if result.stationarity in (ns.Stationarity.S, ns.Stationarity.B) and branches < -SLOPE:
        return f"{result.stationarity.value}, but a branch descends"
    if result.stationarity is ns.Stationarity.S and free < -SLOPE:
        return "S, but only B"
    return ""
