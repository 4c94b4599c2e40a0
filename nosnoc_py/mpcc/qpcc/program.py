"""Convex quadratic programs with complementarity constraints (QPCC), solved by branch and bound.

    minimise  1/2 z'Pz + c'z + constant   subject to   lower <= A z <= upper,
    and for every pair (i, j):  (A z - lower)_i = 0  or  (A z - lower)_j = 0.

What does not change between two solves (P, A, the pairs) is factorised once: `QPCC.of`. `solve` takes the rest. The
nodes of the search are programs without pairs; `qpcc.c` solves them by a dual active-set method from the working set of
their parent. Without a C compiler the same search runs here, and CasADi's DAQP solves the nodes.

References
----------
Arnstroem, Bemporad and Axehill (2022), A dual active-set solver for embedded quadratic programming using recursive
LDL' updates, IEEE TAC 67(8). Bard (1988), Convex two-level optimization, Math. Programming 40 (branch and bound on the
pairs).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nosnoc_py.mpcc.qpcc import interpreted
from nosnoc_py.mpcc.qpcc.native import library
from nosnoc_py.mpcc.qpcc.result import QPCCOutcome, QPCCResult

Array = np.ndarray
Means = Literal["compiled", "interpreted"]
# Nodes of one search, and the relative gain of an objective below which another order is not looked for.
NODES, GAP = 2000, 1e-4


@dataclass(frozen=True, eq=False)
class QPCC:
    """P and A factorised, for many solves.

    Attributes
    ----------
    P, A : (n, n), (m, n)
        The Hessian, positive definite, and the rows.
    pairs : (k, 2) int
        Rows of the pairs, in the order of time: of violated ones, a search prefers later ones to branch on.
    """

    P: Array
    A: Array
    pairs: Array
    R: Array
    rows: Array
    lengths: Array
    outcome: QPCCOutcome

    @classmethod
    def of(cls, P: Any, A: Any, pairs: Any) -> QPCC:
        """Factorise P and scale the rows."""
        P, A = np.ascontiguousarray(P, dtype=float), np.ascontiguousarray(A, dtype=float)
        pairs = np.ascontiguousarray(np.reshape(pairs, (-1, 2)), dtype=np.int32)
        n, m = P.shape[0], A.shape[0]
        R, rows, lengths = np.zeros((n, n)), np.zeros((m, n)), np.ones(m)
        code = library()
        if code is not None:
            outcome = QPCCOutcome(code.qpcc_setup(n, m, *map(_address, (P, A, R, rows, lengths))))
        else:
            outcome = QPCCOutcome.SOLVED if interpreted.definite(P) and np.isfinite(A).all() else QPCCOutcome.NUMBERS
        return cls(P, A, pairs, R, rows, lengths, outcome)

    def solve(
        self,
        c: Array,
        lower: Array,
        upper: Array,
        *,
        constant: float = 0.0,
        order: Array | None = None,
        nodes: int = NODES,
        gap: float = GAP,
        means: Means = "compiled",
    ) -> QPCCResult:
        """Search for the best z.

        Parameters
        ----------
        c : (n,)
        lower, upper : (m,)
        constant : float
            Constant of the objective, to which `gap` is relative.
        order : (pairs,) int, optional
            Side of each pair that is zero in a known order of contacts; it is solved first.
        nodes : int
            Limit of the programs.
        gap : float
            Answers that are better by less than this fraction of the objective are not looked for.
        """
        n, (m, k) = self.P.shape[0], (self.A.shape[0], self.pairs.shape[0])
        known = np.full(k, -1, np.int32) if order is None else np.ascontiguousarray(order, dtype=np.int32)
        c, lower, upper = (np.ascontiguousarray(part, dtype=float) for part in (c, lower, upper))
        z, multipliers, report = np.zeros(n), np.zeros(m), np.full(3, np.inf)
        sides, counts = np.zeros(k, np.int32), np.zeros(2, np.int32)
        code = library() if means == "compiled" else None
        outcome: QPCCOutcome = self.outcome
        if outcome is not QPCCOutcome.SOLVED:
            pass  # P is not positive definite: there is nothing to search
        elif code is None:
            return interpreted.search((self.P, self.A, self.pairs), c, lower, upper, float(constant), known, nodes, gap)
        else:
            first, second = (np.ascontiguousarray(self.pairs[:, side]) for side in (0, 1))
            work = np.zeros(code.qpcc_work(n, m, k, nodes))
            integers = np.zeros(code.qpcc_integers(n, m, k, nodes), np.int32)
            given = [_address(part) for part in (self.R, self.rows, self.lengths, c)]
            places = [_address(part) for part in (lower, upper, first, second, known)]
            results = [_address(part) for part in (z, sides, multipliers, report, counts, work, integers)]
            outcome = QPCCOutcome(
                code.qpcc_solve(
                    n, m, k, *given, ctypes.c_double(constant), *places, int(nodes), ctypes.c_double(gap), *results
                )
            )
        return QPCCResult(
            outcome=outcome, z=z, sides=sides, multipliers=multipliers, objective=float(report[0]),
            bound=float(report[1]), kept=float(report[2]), nodes=int(counts[0]), steps=int(counts[1]),
        )  # fmt: skip


def _address(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
