"""Random convex quadratic programs with complementarity constraints, and their optima by enumeration of all orders."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.qpcc import QPCC, QPCCResult

Array = np.ndarray


class Problem(NamedTuple):
    """P, A and the pairs of a QPCC, with c and the bounds of the rows."""

    P: Array
    A: Array
    pairs: Array
    c: Array
    lower: Array
    upper: Array

    def solve(self, **given: Any) -> QPCCResult:
        """Search, with the arguments of `QPCC.solve`."""
        return QPCC.of(self.P, self.A, self.pairs).solve(self.c, self.lower, self.upper, **given)

    def objective(self, z: Array) -> float:
        """Return the objective of a point."""
        return float(0.5 * z @ self.P @ z + self.c @ z)

    def violation(self, z: Array) -> float:
        """Return the largest violation of a row or of a pair."""
        rows = self.A @ z
        outside = max((self.lower - rows).max(), (rows - self.upper).max(), 0.0)
        return float(max(outside, (rows - self.lower)[self.pairs].min(axis=1).max(initial=0.0)))


def random_problem(rng: np.random.Generator, n: int, pairs: int, more: int = 4) -> Problem:
    """Return a convex problem with a point that satisfies everything, and with `more` rows between two bounds."""
    B = rng.standard_normal((n, n))
    A, z = rng.standard_normal((2 * pairs + more, n)), rng.standard_normal(n)
    lower, upper, at = np.empty(2 * pairs + more), np.full(2 * pairs + more, np.inf), A @ z
    for k in range(pairs):
        zero = rng.integers(2)
        lower[2 * k + zero] = at[2 * k + zero]
        lower[2 * k + 1 - zero] = at[2 * k + 1 - zero] - abs(rng.standard_normal())
    ends = slice(2 * pairs, None)
    lower[ends], upper[ends] = at[ends] - abs(rng.standard_normal(more)), at[ends] + abs(rng.standard_normal(more))
    order = np.arange(2 * pairs).reshape(pairs, 2)
    return Problem(B @ B.T / n + 1e-3 * np.eye(n), A, order, rng.standard_normal(n), lower, upper)


def enumerated(problem: Problem) -> float:
    """Return the least objective of all orders, each solved by DAQP of CasADi; one that it fails on is left out."""
    shapes = {"h": ca.Sparsity.dense(*problem.P.shape), "a": ca.Sparsity.dense(*problem.A.shape)}
    solver, best = ca.conic("order", "daqp", shapes, {"error_on_fail": False}), np.inf
    for sides in itertools.product((0, 1), repeat=len(problem.pairs)):
        upper, zero = problem.upper.copy(), problem.pairs[np.arange(len(sides)), list(sides)]
        upper[zero] = problem.lower[zero]
        at = solver(h=problem.P, g=problem.c, a=problem.A, lba=problem.lower, uba=upper)
        if solver.stats()["success"]:
            best = min(best, problem.objective(np.array(at["x"]).ravel()))
    return best
