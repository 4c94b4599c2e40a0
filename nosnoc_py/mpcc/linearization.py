"""Linearisation of an MPCC at a point, and the linear program that it is within a small box around the point.

`Linearizer` evaluates values and first derivatives in one CasADi call. `local_program` makes a linear program of them
in scaled variables e = d / (radius w_scale), without the products; the LPEC (`lpec`) and the certificates
(`stationarity`) add conditions on branches by fixing rows to zero.

Verdicts must not depend on tolerances of the LP solver: a lower bound on the optimal value is computed here from the
multipliers by weak duality (`LocalProgram.weak_duality`), which is valid for any multipliers of the right signs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.program import MPCC

UNLIMITED = 1e9  # [s]; HiGHS accepts no infinity


# Entries of a row below this fraction of its largest are rounding errors; multipliers must not rely on them.
NOISE_OF_ROWS = 1e-12
# HiGHS drops matrix entries below 1e-9; rows are divided by their largest entry, and entries above SEEN_BY_HIGHS are
# safe.
SEEN_BY_HIGHS = 1e-8


@dataclass(frozen=True, eq=False, kw_only=True)
class Linearization:
    """Objective (without penalty) and rows of an MPCC with their first derivatives at one point.

    Attributes
    ----------
    f : float
    grad : ndarray (n_w,)
    rows : ndarray (n_g + n_G + n_H + n_r,)
        g, G, H and r, stacked.
    g, G, H, r : ndarray
        The parts of `rows`.
    jacobian : csr_array (n_g + n_G + n_H + n_r, n_w)
        Jacobian of `rows`, see `block`.
    offsets : tuple of int
        First rows of g, G, H, r, and the number of rows.
    """

    f: float
    grad: np.ndarray
    rows: np.ndarray
    g: np.ndarray
    G: np.ndarray
    H: np.ndarray
    r: np.ndarray
    jacobian: Any
    offsets: tuple[int, int, int, int, int]

    def block(self, k: int) -> slice:
        """Return the rows of the k-th of g, G, H, r."""
        return slice(self.offsets[k], self.offsets[k + 1])

    @property
    def finite(self) -> bool:
        """True if there is neither NaN nor infinity."""
        return all(np.isfinite(numbers).all() for numbers in (self.f, self.grad, self.rows, self.jacobian.data))


class Linearizer:
    """Function (w, p) -> `Linearization` of an MPCC; built once per program, on first use, one call per point."""

    def __init__(self, mpcc: MPCC) -> None:
        self._mpcc = mpcc
        sizes = [part.numel() for part in (mpcc.g, mpcc.G, mpcc.H, mpcc.r)]
        self._offsets = tuple(int(k) for k in np.cumsum([0, *sizes]))

    @cached_property
    def _built(self) -> tuple[ca.Function, tuple[int, int], tuple[np.ndarray, np.ndarray]]:
        """Function of the values and nonzeros, with the shape and the pattern (rows, column starts) of the Jacobian."""
        mpcc = self._mpcc
        rows = ca.vertcat(mpcc.g, mpcc.G, mpcc.H, mpcc.r)
        jacobian = ca.jacobian(rows, mpcc.w)
        gradient = ca.densify(ca.gradient(mpcc.objective, mpcc.w))
        # The penalty is no part of the problem that is certified.
        outputs = [ca.densify(mpcc.objective), gradient, ca.densify(rows), jacobian.nz[:]]
        pattern = jacobian.sparsity()
        places = np.array(pattern.row(), np.int32), np.array(pattern.colind(), np.int32)
        return ca.Function("linearization", [mpcc.w, mpcc.p], outputs), pattern.shape, places

    def __call__(self, w: np.ndarray, p: np.ndarray) -> Linearization:
        """Linearise at (w, p)."""
        from scipy import sparse  # not paid for by an import of the library

        function, shape, pattern = self._built
        f, grad, rows, nonzeros = (np.array(value, float).reshape(-1) for value in function(w, p))
        return Linearization(
            f=float(f[0]),
            grad=grad,
            rows=rows,
            **dict(zip("gGHr", np.split(rows, self._offsets[1:-1]), strict=True)),
            # CasADi stores columns; the certificates slice and scale rows.
            jacobian=sparse.csc_array((nonzeros, *pattern), shape=shape).tocsr(),
            offsets=self._offsets,  # type: ignore[arg-type]
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalProgram:
    """Linearised MPCC without its products: minimise cost'e subject to lower <= matrix e <= upper in a box.

    The unknown is e = d / (radius w_scale). The box is [-1, 1] where no bound is near, and the optimal value is the
    slope of the objective per unit of scaled step. Limits that cannot be reached inside the box are infinite.

    Attributes
    ----------
    cost : ndarray (n_w,)
    matrix : csr_array (n, n_w)
        Rows g, G, H, r in scaled variables, without entries that are rounding errors.
    exact : csr_array (n, n_w)
        The same with every entry; bounds are evaluated with it.
    lower, upper, box_lower, box_upper : ndarray
    slack : ndarray (n,)
        Values of the rows of G and H in units of the radius; 0 where they count as zero.
    near : bool ndarray (n,)
        Rows of G and H that a step of the size of the tolerance, in scaled variables, could bring to zero. A row with
        large entries may be above the tolerance only because an interior-point method stopped there.
    lowest, highest : ndarray (n,)
        Range of matrix e over the box.
    w_scale : ndarray (n_w,)
    """

    cost: np.ndarray
    matrix: Any
    exact: Any
    lower: np.ndarray
    upper: np.ndarray
    box_lower: np.ndarray
    box_upper: np.ndarray
    slack: np.ndarray
    w_scale: np.ndarray
    near: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    lowest: np.ndarray = field(default_factory=lambda: np.zeros(0))
    highest: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def clean(self) -> bool:
        """True if no entry is so small that a solver may drop it: its bounds for `matrix` then hold for `exact`."""
        size = np.abs(self.exact.data)
        limit = np.repeat(SEEN_BY_HIGHS * row_maxima(self.exact), np.diff(self.exact.indptr))
        return bool(((size == 0.0) | (size > limit)).all())

    @property
    def scale(self) -> float:
        """Scale max(1, |cost|) with which slopes are compared."""
        return max(1.0, float(np.abs(self.cost).max(initial=0.0)))

    def with_zero_rows(self, zero: np.ndarray) -> LocalProgram:
        """Return the program with these rows (a mask) fixed to zero."""
        return replace(
            self, lower=np.where(zero, -self.slack, self.lower), upper=np.where(zero, -self.slack, self.upper)
        )

    def solve(self, deadline: float = np.inf) -> LPSolution:
        """Solve the linear program; every row is divided by its largest entry."""
        from scipy import sparse

        norm = row_maxima(self.matrix)
        matrix = rows_divided(self.matrix, norm)
        lower, upper = self.lower / norm, self.upper / norm
        # linprog knows equations and upper limits only: lower limits are negated rows.
        equal = np.isfinite(lower) & (lower == upper)
        above, below = np.isfinite(lower) & ~equal, np.isfinite(upper) & ~equal
        rows = sparse.vstack([matrix[below], -matrix[above]], format="csc")
        answer = linear_program(
            self.cost / self.scale,
            np.column_stack([self.box_lower, self.box_upper]),
            (rows, np.concatenate([upper[below], -lower[above]])),
            (matrix[equal].tocsc(), lower[equal]),
            deadline=deadline,
            tolerances=TOLERANCES,
        )
        dual = np.zeros(norm.size)
        if answer.x is None or answer.status != 0:
            # A bound of minus infinity proves nothing, so that a failed program can never become a certificate.
            status = {1: "time limit", 2: "infeasible"}.get(answer.status, "failed")
            return LPSolution(e=np.zeros(self.cost.size), value=np.nan, dual=dual, bound=-np.inf, status=status)
        count = int(below.sum())
        # SciPy's marginals are derivatives of the optimal value by the right sides: minus the multipliers.
        dual[equal] = -answer.eqlin.marginals
        dual[below] -= answer.ineqlin.marginals[:count]
        dual[above] += answer.ineqlin.marginals[count:]
        # Back from the scaled cost and the scaled rows.
        dual, bound = self.weak_duality(dual * self.scale / norm)
        return LPSolution(e=answer.x, value=float(self.cost @ answer.x), dual=dual, bound=bound, status="optimal")

    def weak_duality(self, dual: np.ndarray) -> tuple[np.ndarray, float]:
        """Return a lower bound on the optimal value from any multipliers of the rows.

        With L(e, y) = cost'e + y'(matrix e - limit), the minimum of L over the box is a lower bound of cost'e over the
        feasible directions, for every y of the right signs. Wrong signs are set to zero first.

        Returns
        -------
        dual : ndarray (n,)
            The multipliers without wrong signs.
        bound : float
        """
        signs = np.where(np.isfinite(self.lower), -np.inf, 0.0), np.where(np.isfinite(self.upper), np.inf, 0.0)
        dual = np.clip(dual, *signs)
        gradient = self.cost + self.exact.T @ dual
        # Zero multipliers must not meet infinite limits: 0 times infinity is NaN.
        limit = np.where(dual > 0, self.upper, np.where(dual < 0, self.lower, 0.0))
        # Minimum of a linear function over a box, entry by entry.
        box = np.minimum(gradient * self.box_lower, gradient * self.box_upper)
        return dual, float(box.sum() - dual @ limit)


def local_program(
    mpcc: MPCC, at: Linearization, w: np.ndarray, *, radius: float, tolerance: float, held: np.ndarray
) -> LocalProgram:
    """Return the local program at w.

    Residuals of equations are dropped and violated inequalities may stay violated, so that e = 0 is feasible.
    Inequalities and bounds closer than `tolerance` count as active: otherwise the last digits of an interior-point
    method, divided by the radius, would look like descent. Entries of the Jacobian that are as small relative to the
    largest one of their row are dropped for a similar reason: 1e-11 instead of 0 in an otherwise redundant equation
    leads to multipliers of 1e12.

    Parameters
    ----------
    radius : float
        Half width of the box in scaled variables.
    tolerance : float
        Values below it count as zero, in the user's units.
    held : bool ndarray (n_r,)
        Switched equations that are imposed.
    """
    scale = mpcc.w_scale
    matrix = _without_noise(at.jacobian, scale)
    box_lower = np.maximum(-_room(w - mpcc.lbw, tolerance * scale) / (radius * scale), -1.0)
    box_upper = np.minimum(_room(mpcc.ubw - w, tolerance * scale) / (radius * scale), 1.0)
    above = _room(np.concatenate([at.G, at.H]), tolerance) / radius
    free = _own_row_is_zero(mpcc, above)
    box_lower[free] = -1.0
    lower_g = -_room(at.g - mpcc.lbg, tolerance * mpcc.g_scale) / radius
    upper_g = _room(mpcc.ubg - at.g, tolerance * mpcc.g_scale) / radius
    equations = mpcc.lbg == mpcc.ubg  # linearised about a point that counts as feasible: right sides are zero
    lower_g[equations] = upper_g[equations] = 0.0
    free_r = np.where(held, 0.0, np.inf)
    lower = np.concatenate([lower_g, -above, -free_r])
    upper = np.concatenate([upper_g, np.full(above.size, np.inf), free_r])
    lowest, highest = _range(matrix, box_lower, box_upper)
    slack = np.concatenate([np.zeros(at.g.size), above, np.zeros(at.r.size)])
    return LocalProgram(
        cost=at.grad * scale,
        matrix=matrix,
        exact=scaled_columns(at.jacobian, scale),
        # Limits that the box implies are dropped: they would only make multipliers ambiguous.
        lower=np.where(lower < lowest, -np.inf, lower),
        upper=np.where(upper > highest, np.inf, upper),
        box_lower=box_lower,
        box_upper=box_upper,
        slack=slack,
        near=slack * radius <= tolerance * np.maximum(1.0, row_maxima(matrix)),
        lowest=lowest,
        highest=highest,
        w_scale=scale,
    )


def row_maxima(matrix: Any) -> np.ndarray:
    """Return the largest absolute entry of every row, 1 for empty rows."""
    largest = np.zeros(matrix.shape[0])
    np.maximum.at(largest, np.repeat(np.arange(largest.size), np.diff(matrix.indptr)), np.abs(matrix.data))
    return np.where(largest > 0.0, largest, 1.0)


def _without_noise(jacobian: Any, scale: np.ndarray) -> Any:
    """Return the Jacobian in scaled variables, without entries that are tiny in their row."""
    matrix = scaled_columns(jacobian, scale)
    limit = np.repeat(NOISE_OF_ROWS * row_maxima(matrix), np.diff(matrix.indptr))
    matrix.data[np.abs(matrix.data) <= limit] = 0.0
    matrix.eliminate_zeros()
    return matrix


def scaled_columns(matrix: Any, scale: np.ndarray) -> Any:
    """Return a matrix with its columns multiplied by these numbers."""
    matrix = matrix.copy()
    matrix.data = matrix.data * scale[matrix.indices]
    return matrix


def _room(distance: np.ndarray, tolerance: Any) -> np.ndarray:
    """Return the distance to a limit, 0 where it is reached or violated."""
    return np.where(distance <= tolerance, 0.0, distance)


def _own_row_is_zero(mpcc: MPCC, above: np.ndarray) -> np.ndarray:
    """Return the variables that are a row of G or H at zero: their lower bound is dropped, because the row repeats it.

    With both, the multiplier of the bound could compensate a negative one of the row, and a point that is only
    W-stationary would be called M-stationary.
    """
    plain = np.concatenate([mpcc.G_variable, mpcc.H_variable])
    # A variable that is fixed by its bounds stays fixed: its box is not opened.
    index = plain[(plain >= 0) & (above == 0.0)]
    return np.asarray(index[mpcc.lbw[index] < mpcc.ubw[index]])


def _range(matrix: Any, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest value of every row over the box."""
    up, down = matrix.copy(), matrix.copy()
    up.data, down.data = np.maximum(matrix.data, 0.0), np.minimum(matrix.data, 0.0)
    return np.asarray(up @ low + down @ high), np.asarray(up @ high + down @ low)


@dataclass(frozen=True, eq=False, kw_only=True)
class LPSolution:
    """Solution of a local program.

    Attributes
    ----------
    e : (n_w,)
    value : float
        cost'e.
    dual : (n,)
        Multipliers of the rows.
    bound : float
        Lower bound on the optimal value that the multipliers prove.
    status : {"optimal", "infeasible", "time limit", "failed"}
    """

    e: np.ndarray
    value: float
    dual: np.ndarray
    bound: float
    status: str


# Tolerances of HiGHS in the order in which they are tried: a badly scaled program may fail with the tight ones only.
# 1e-10 is the smallest tolerance that HiGHS accepts.
TIGHT: dict[str, Any] = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
TOLERANCES: tuple[dict[str, Any], ...] = (TIGHT, {})


def linear_program(
    cost: np.ndarray,
    box: np.ndarray,
    above: tuple[Any, np.ndarray],
    equal: tuple[Any, np.ndarray] = (None, np.zeros(0)),
    *,
    deadline: float = np.inf,
    tolerances: Sequence[dict[str, Any]] = ({},),
) -> Any:
    """Minimise cost'x in a box (n, 2) with matrix x <= limit for `above` = (matrix, limit), = for `equal` (HiGHS)."""
    from scipy.optimize import linprog  # heavy: only those who certify pay for it

    matrix_ub, limit, matrix_eq, target = (*above, *equal)
    for options in tolerances:
        answer = linprog(
            cost,
            A_ub=matrix_ub if limit.size else None,
            b_ub=limit if limit.size else None,
            A_eq=matrix_eq if target.size else None,
            b_eq=target if target.size else None,
            bounds=box,
            method="highs",
            options={**options, "time_limit": seconds_left(deadline)},
        )
        # Optimal, out of time, or infeasible: an answer. Other statuses are numerical, and looser tolerances may help.
        if answer.status in (0, 1, 2):
            break
    return answer


def seconds_left(deadline: float) -> float:
    """Return the seconds until a time.monotonic() stamp, as a time limit that HiGHS accepts."""
    # A deadline that has passed would give a negative limit, which HiGHS refuses.
    return float(np.clip(deadline - time.monotonic(), 1e-3, UNLIMITED))


def rows_divided(matrix: Any, norm: np.ndarray) -> Any:
    """Return a matrix with its rows divided by these numbers."""
    matrix = matrix.copy()
    matrix.data = matrix.data / np.repeat(norm, np.diff(matrix.indptr))
    return matrix
