"""The linearisation of an MPCC at a point, and the linear program it is within a small box around that point."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.program import MPCC

UNLIMITED = 1e9  # seconds


# Entries of a row below this fraction of its largest are round-off; multipliers are not sought in them.
NOISE = 1e-12
# Solvers of linear programs drop entries below 1e-9; rows are divided by their largest entry.
SEEN = 1e-8


@dataclass(frozen=True, eq=False, kw_only=True)
class Linearization:
    """Objective (without penalty) and rows of an MPCC with their first derivatives at one point.

    Attributes
    ----------
    f : float
    grad : ndarray (n_w,)
    rows : ndarray (n_g + n_G + n_H + n_r,)
        g, G, H and r below each other.
    g, G, H, r : ndarray
        The same one by one.
    jacobian : csr_array (n_g + n_G + n_H + n_r, n_w)
        Its rows in the same order, see `block`.
    offsets : tuple of int
        Where g, G, H, r begin, and the number of rows.
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
        """Rows of the k-th of g, G, H, r."""
        return slice(self.offsets[k], self.offsets[k + 1])

    @property
    def finite(self) -> bool:
        """No NaN and no infinity anywhere."""
        return all(np.isfinite(numbers).all() for numbers in (self.f, self.grad, self.rows, self.jacobian.data))


class Linearizer:
    """Linearises an MPCC at (w, p); built once per program, one CasADi call per point."""

    def __init__(self, mpcc: MPCC) -> None:
        rows = ca.vertcat(mpcc.g, mpcc.G, mpcc.H, mpcc.r)
        jacobian = ca.jacobian(rows, mpcc.w)
        gradient = ca.densify(ca.gradient(mpcc.objective, mpcc.w))
        outputs = [ca.densify(mpcc.objective), gradient, ca.densify(rows), jacobian.nz[:]]
        self._function = ca.Function("linearization", [mpcc.w, mpcc.p], outputs)
        sizes = [part.numel() for part in (mpcc.g, mpcc.G, mpcc.H, mpcc.r)]
        self._offsets = tuple(int(k) for k in np.cumsum([0, *sizes]))
        pattern = jacobian.sparsity()
        self._shape, places = pattern.shape, (pattern.row(), pattern.colind())
        self._pattern = tuple(np.array(index, np.int32) for index in places)

    def __call__(self, w: np.ndarray, p: np.ndarray) -> Linearization:
        """Linearise at (w, p)."""
        from scipy import sparse  # not paid for by an import of the library

        f, grad, rows, nonzeros = (np.array(value, float).reshape(-1) for value in self._function(w, p))
        return Linearization(
            f=float(f[0]),
            grad=grad,
            rows=rows,
            **dict(zip("gGHr", np.split(rows, self._offsets[1:-1]), strict=True)),
            jacobian=sparse.csc_array((nonzeros, *self._pattern), shape=self._shape).tocsr(),
            offsets=self._offsets,  # type: ignore[arg-type]
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalProgram:
    """The linearised MPCC without its products: minimise cost'e over lower <= matrix e <= upper in a box.

    The unknown is e = d / (radius w_scale), so that the box is [-1, 1] where no bound is near and the optimal value is
    the slope of the objective per unit of scaled step. Limits that cannot be reached inside the box are infinite.

    Attributes
    ----------
    cost : ndarray (n_w,)
    matrix : csr_array (n, n_w)
        Rows g, G, H, r; in the columns the scaled variables; without the noise in which multipliers would be sought.
    exact : csr_array (n, n_w)
        The same with every entry: what proofs are evaluated with.
    lower, upper, box_lower, box_upper : ndarray
    slack : ndarray (n,)
        How far the rows of G and H are above zero, in units of the radius; 0 where they count as zero.
    near : bool ndarray (n,)
        Rows of G and H that a step as small as the tolerance, in scaled variables, could bring to zero. Where a row has
        large entries it need not count as zero itself, and yet an interior-point method has only not ended there.
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
        """No entry is so small in its row that a solver may drop it: what it says about `matrix` holds for `exact`."""
        size = np.abs(self.exact.data)
        limit = np.repeat(SEEN * row_maxima(self.exact), np.diff(self.exact.indptr))
        return bool(((size == 0.0) | (size > limit)).all())

    @property
    def scale(self) -> float:
        """max(1, |cost|): slopes are small or large against this."""
        return max(1.0, float(np.abs(self.cost).max(initial=0.0)))

    def holding(self, zero: np.ndarray) -> LocalProgram:
        """The same program with these rows brought to zero."""
        return replace(
            self, lower=np.where(zero, -self.slack, self.lower), upper=np.where(zero, -self.slack, self.upper)
        )

    def solve(self, deadline: float = np.inf) -> LinearAnswer:
        """Solve it without products; every row is divided by its largest entry."""
        from scipy import sparse

        norm = row_maxima(self.matrix)
        matrix = divided(self.matrix, norm)
        lower, upper = self.lower / norm, self.upper / norm
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
            status = {1: "time limit", 2: "infeasible"}.get(answer.status, "failed")
            return LinearAnswer(e=np.zeros(self.cost.size), value=np.nan, dual=dual, bound=-np.inf, status=status)
        count = int(below.sum())
        dual[equal] = -answer.eqlin.marginals
        dual[below] -= answer.ineqlin.marginals[:count]
        dual[above] += answer.ineqlin.marginals[count:]
        dual, bound = self.weak_duality(dual * self.scale / norm)
        return LinearAnswer(e=answer.x, value=float(self.cost @ answer.x), dual=dual, bound=bound, status="optimal")

    def weak_duality(self, dual: np.ndarray) -> tuple[np.ndarray, float]:
        """A lower bound on the value from any multipliers of the rows.

        With L(e, y) = cost'e + y'(matrix e - limit), the smallest value of L over the box is below that of cost'e over
        the feasible directions, for every y of the right signs. Wrong signs are set to zero first.

        Returns
        -------
        dual : ndarray (n,)
            The multipliers with their wrong signs removed.
        bound : float
        """
        signs = np.where(np.isfinite(self.lower), -np.inf, 0.0), np.where(np.isfinite(self.upper), np.inf, 0.0)
        dual = np.clip(dual, *signs)
        gradient = self.cost + self.exact.T @ dual
        limit = np.where(dual > 0, self.upper, np.where(dual < 0, self.lower, 0.0))
        box = np.minimum(gradient * self.box_lower, gradient * self.box_upper)
        return dual, float(box.sum() - dual @ limit)


def local_program(
    mpcc: MPCC, at: Linearization, w: np.ndarray, *, radius: float, tolerance: float, held: np.ndarray
) -> LocalProgram:
    """Build the local program at w.

    Residuals of equations are dropped and violated inequalities may stay as they are, so that e = 0 is feasible.
    Inequalities and bounds closer than `tolerance` count as active, otherwise the last digits an interior-point method
    leaves would be divided by the radius and show as descent. For the same reason entries of the Jacobian that are as
    small against the largest of their row are dropped: a multiplier of 1e-11 instead of 0 in an equation that is
    otherwise redundant asks for multipliers of 1e12.

    Parameters
    ----------
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
    equations = mpcc.lbg == mpcc.ubg
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
    """Largest size of an entry in every row, 1 for empty rows."""
    largest = np.zeros(matrix.shape[0])
    np.maximum.at(largest, np.repeat(np.arange(largest.size), np.diff(matrix.indptr)), np.abs(matrix.data))
    return np.where(largest > 0.0, largest, 1.0)


def _without_noise(jacobian: Any, scale: np.ndarray) -> Any:
    """The Jacobian in scaled variables, without entries that are tiny in their row."""
    matrix = scaled_columns(jacobian, scale)
    limit = np.repeat(NOISE * row_maxima(matrix), np.diff(matrix.indptr))
    matrix.data[np.abs(matrix.data) <= limit] = 0.0
    matrix.eliminate_zeros()
    return matrix


def scaled_columns(matrix: Any, scale: np.ndarray) -> Any:
    """The columns of a matrix times these numbers."""
    matrix = matrix.copy()
    matrix.data = matrix.data * scale[matrix.indices]
    return matrix


def _room(distance: np.ndarray, tolerance: Any) -> np.ndarray:
    """Distance to a limit, 0 where it is reached or violated."""
    return np.where(distance <= tolerance, 0.0, distance)


def _own_row_is_zero(mpcc: MPCC, above: np.ndarray) -> np.ndarray:
    """Variables that are a row of G or H at zero: the row says what their lower bound says, and once is enough.

    Twice, the bound's multiplier would stand in for a negative one of the row, and a point that is W-stationary only
    would pass for M.
    """
    plain = np.concatenate([mpcc.G_variable, mpcc.H_variable])
    index = plain[(plain >= 0) & (above == 0.0)]
    return np.asarray(index[mpcc.lbw[index] < mpcc.ubw[index]])


def _range(matrix: Any, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest value of every row over the box."""
    up, down = matrix.copy(), matrix.copy()
    up.data, down.data = np.maximum(matrix.data, 0.0), np.minimum(matrix.data, 0.0)
    return np.asarray(up @ low + down @ high), np.asarray(up @ high + down @ low)


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearAnswer:
    """Solution of an LP: e, its value, multipliers of the rows, and the lower bound that these prove."""

    e: np.ndarray
    value: float
    dual: np.ndarray
    bound: float
    status: str


# A badly scaled linear program may fail with the first and not with the second.
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
    """Minimise cost'x in a box (n, 2) with matrix x <= limit for `above` = (matrix, limit), = for `equal`; by HiGHS."""
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
        if answer.status in (0, 1, 2):
            break
    return answer


def seconds_left(deadline: float) -> float:
    """Until a time.monotonic() stamp, as a time limit that HiGHS accepts."""
    return float(np.clip(deadline - time.monotonic(), 1e-3, UNLIMITED))


def divided(matrix: Any, norm: np.ndarray) -> Any:
    """The rows of a matrix over these numbers."""
    matrix = matrix.copy()
    matrix.data = matrix.data / np.repeat(norm, np.diff(matrix.indptr))
    return matrix
