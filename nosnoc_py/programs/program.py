"""Nonlinear program of blocks, evaluated as numbers: no expression is written for it, and nothing is differentiated.

Arguments of all kernels are one sparse product with w. Every kernel is evaluated at all of its places by one call, and
constant sparse matrices gather its derivatives into those of the program. Building takes array operations only, whose
number grows with the blocks and not with their places.

Scaling: unknowns are divided by typical values; rows and the objective get factors such that the largest entry of each
gradient is one at the start. Everything outside of the solver (`evaluate`, `violation`) is in the user's units.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nosnoc_py.attempts import work
from nosnoc_py.audit.constraints import excess
from nosnoc_py.kernels.kernel import KernelEvaluator
from nosnoc_py.programs.block import KernelBlock

Array = np.ndarray
# An objective that is almost stationary at the start keeps its size: its gradient counts at least as this fraction of
# those nearby. A row whose gradient vanishes at the start has the size of those nearby.
FLAT_OBJECTIVE = 1e-2
# Sizes below the least one are zeros that have been rounded: their inverses would overflow.
LEAST_SIZE = 1e-150
# Distance of the points nearby, as a fraction of the typical values, and their number.
NEARBY, POINTS = 0.1, 2


class BlockProgram:
    """Minimise the sum of the costs of all blocks subject to their rows and to bounds.

    Parameters
    ----------
    blocks : sequence of KernelBlock
    lower, upper : (n,)
        Bounds of the unknowns w.
    scale : (n,)
        Typical values of the unknowns; the program is solved in x = w / scale.
    start : (n,)
        Point at which rows and objective are scaled.

    Attributes
    ----------
    size, rows : int
        Numbers of unknowns and of rows.
    jacobian_pattern, hessian_pattern : (rows, columns)
        Positions of the nonzeros of `first` and `second`; upper half of the Hessian.

    Examples
    --------
    Two places of one block, a = (w[0], w[1]) and a = (w[1], w[2]):

    >>> import casadi as ca, numpy as np
    >>> from nosnoc_py.kernels import Kernel
    >>> from nosnoc_py.programs import KernelBlock, LinearMap
    >>> a = ca.SX.sym("a", 2)
    >>> at = LinearMap.at([[0, 1], [1, 2]])
    >>> block = KernelBlock(name="step", kernel=Kernel(a, a[1] - a[0], ca.sumsqr(a)), at=at, lower=[1], upper=[1])
    >>> program = BlockProgram([block], np.full(3, -9.0), np.full(3, 9.0), np.ones(3), np.zeros(3))
    >>> program.evaluate(np.array([0.0, 1.0, 3.0]))
    (11.0, array([1., 2.]))
    >>> program.violation(np.array([0.0, 1.0, 3.0]))
    (1.0, 'step')
    >>> round(program.residual(np.array([0.0, 1.0, 3.0])), 3)
    1.0
    """

    def __init__(self, blocks: Sequence[KernelBlock], lower: Array, upper: Array, scale: Array, start: Array) -> None:
        from scipy import sparse  # not paid for by an import of the library

        self.blocks, self.scale, self.size = tuple(blocks), scale, int(scale.size)
        self._offsets = np.cumsum([0, *(block.places * block.count for block in self.blocks)])
        self.rows = int(self._offsets[-1])
        self.lbw, self.ubw = lower, upper
        sides = [block.limits() for block in self.blocks]
        self.lower, self.upper = (
            np.concatenate([np.zeros(0), *[pair[k].reshape(-1) for pair in sides]]) for k in (0, 1)
        )
        outputs = [np.arange(b.places * (b.count + 1)).reshape(b.places, -1) for b in self.blocks]
        first = np.cumsum([0, *(part.size for part in outputs)])
        outputs = [part + k for part, k in zip(outputs, first, strict=False)]
        # Positions of rows and costs in the outputs of all kernels, place by place.
        self._at_rows = np.concatenate([np.zeros(0, int), *[part[:, :-1].reshape(-1) for part in outputs]])
        self._at_costs = np.concatenate([np.zeros(0, int), *[part[:, -1] for part in outputs]])
        self._weights = np.concatenate([np.zeros(0), *[block.cost_weights() for block in self.blocks]])
        self._multipliers = np.zeros(int(first[-1]))
        self._arguments, self._evaluators, self._offset, self._map = self._gathered(sparse)
        self._point, self._outputs = np.zeros(0), dict[str, Array]()
        self._slopes, self.jacobian_pattern = self._first_order(sparse)
        self.row_scale, self.cost_scale = self._scaling(start)
        self.lbx, self.ubx = lower / scale, upper / scale
        self.lbg, self.ubg = self.lower * self.row_scale, self.upper * self.row_scale
        work.count(work.of_numeric_program(self.jacobian_pattern[0].size))
        self._slope_scale = self.row_scale[self.jacobian_pattern[0]] * scale[self.jacobian_pattern[1]]

    # In the user's units ---------------------------------------------------------------------------------------------

    def evaluate(self, w: Array) -> tuple[float, Array]:
        """Return the objective and the rows (n_g,) in the user's units."""
        outputs = self._run("values", w)
        return float(self._weights @ outputs[self._at_costs]), outputs[self._at_rows]

    def violation(self, w: Array) -> tuple[float, str]:
        """Return the largest violation of a row or a bound in the user's units, and the name of that row."""
        rows = self.evaluate(w)[1]
        over = excess(rows, self.lower, self.upper)
        bounds = excess(w, self.lbw, self.ubw)
        # NaN has no order: such a row is named before maxima are compared.
        if not np.isfinite(over).all():
            return np.inf, f"{self.label(int(np.argmin(np.isfinite(over))))}, which is not finite,"
        if over.max(initial=0.0) < bounds.max(initial=0.0):
            return float(bounds.max()), "a bound"
        return (float(over.max()), self.label(int(over.argmax()))) if over.size else (0.0, "")

    def residual(self, w: Array) -> float:
        """Return the largest violation relative to the change of the row by typical changes of the unknowns."""
        over = excess(self.evaluate(w)[1], self.lower, self.upper) * self.row_scale
        bounds = excess(w, self.lbw, self.ubw) / self.scale
        return float(np.concatenate([over, bounds]).max(initial=0.0)) if np.isfinite(over).all() else np.inf

    def not_finite(self, w: Array) -> tuple[KernelBlock, int] | None:
        """Return the first block and place with a value or a first or second derivative that is not finite, or None."""
        self._run("values", w)
        for block, evaluator in zip(self.blocks, self._evaluators, strict=True):
            evaluator.multipliers[...] = 1.0
            parts = (evaluator.values(), evaluator.first(), evaluator.second())
            bad = np.array([~np.isfinite(part).all(axis=1) for part in parts]).any(axis=0)
            if bad.any():
                return block, int(np.argmax(bad))
        return None

    def label(self, row: int) -> str:
        """Return the name of a row."""
        k = int(np.searchsorted(self._offsets, row, "right")) - 1
        block = self.blocks[k]
        # Rows of a block are ordered by place; labels repeat at every place.
        inside = (row - self._offsets[k]) % block.count
        return f"{block.name}: {block.labels[inside]}" if block.labels else block.name

    def of(self, block: KernelBlock, values: Array) -> Array:
        """Return the entries (places, rows) of a block in a vector of all rows."""
        k = self.blocks.index(block)
        return values[self._offsets[k] : self._offsets[k + 1]].reshape(block.places, block.count)

    # In scaled units, as solvers take it -----------------------------------------------------------------------------

    def at(self, p: Array) -> None:
        """Set the parameters, of which there are none: those of a problem are unknowns with equal bounds."""

    def values(self, x: Array) -> tuple[float, Array]:
        """Return the objective and the rows (n_g,) at x = w / scale."""
        cost, rows = self.evaluate(x * self.scale)
        return cost * self.cost_scale, rows * self.row_scale

    def first(self, x: Array) -> tuple[Array, Array]:
        """Return the gradient of the objective (n,) and the nonzeros of the Jacobian of the rows at x."""
        gradient, slopes = self._slopes_at(x * self.scale)
        return gradient * self.scale * self.cost_scale, slopes * self._slope_scale

    def second(self, x: Array, weight: float, multipliers: Array) -> Array:
        """Return the nonzeros of the upper half of the Hessian of weight f + multipliers'g at x."""
        self._multipliers[self._at_rows] = multipliers * self.row_scale
        self._multipliers[self._at_costs] = weight * self.cost_scale * self._weights
        bends: Array = self._second_order[0] @ self._run("second", x * self.scale)
        return bends

    def jacobian(self, x: Array) -> Any:
        """Return the Jacobian of the rows at x as a sparse matrix."""
        from scipy import sparse

        return sparse.csr_matrix((self.first(x)[1], self.jacobian_pattern), (self.rows, self.size))

    @property
    def hessian_pattern(self) -> tuple[Array, Array]:
        """Row and column of every nonzero of the upper half of the Hessian."""
        return self._second_order[1]

    @cached_property
    def operations(self) -> float:
        """Operations of one evaluation of all functions and derivatives at all places."""
        return float(sum(block.places * block.kernel.operations for block in self.blocks))

    @property
    def entries(self) -> int:
        """Number of nonzeros of Jacobian and Hessian."""
        return int(self.jacobian_pattern[0].size + self.hessian_pattern[0].size)

    # Assembly --------------------------------------------------------------------------------------------------------

    def _gathered(self, sparse: Any) -> tuple[Array, list[KernelEvaluator], Array, Any]:
        """Return arguments of all kernels, their evaluators, constant parts, and the matrix from w to arguments."""
        sizes = [block.places * block.kernel.n for block in self.blocks]
        arguments, ends = np.zeros(sum(sizes)), np.cumsum([0, *sizes])
        offset, rows, columns, coefficients = np.zeros(arguments.size), [], [], []
        outputs = np.cumsum([0, *(block.places * (block.count + 1) for block in self.blocks)])
        evaluators = []
        for k, block in enumerate(self.blocks):
            at, n, first, last = block.at, block.kernel.n, ends[k], ends[k + 1]
            multipliers = self._multipliers[outputs[k] : outputs[k + 1]].reshape(block.places, -1)
            evaluators.append(
                KernelEvaluator(block.kernel, arguments[first:last].reshape(block.places, n), multipliers)
            )
            if at.offset is not None:
                offset[first:last] = at.offset.reshape(-1)
            rows.append((first + np.arange(block.places)[:, None] * n + at.component).reshape(-1))
            columns.append(at.position.reshape(-1))
            coefficients.append(at.coefficient.reshape(-1))
        matrix = sparse.csr_matrix(
            (_joined(coefficients), (_joined(rows, int), _joined(columns, int))), (arguments.size, self.size)
        )
        return arguments, evaluators, offset, matrix

    def _run(self, name: str, w: Array) -> Array:
        """Return the "values", "first" or "second" derivatives of all kernels at w; valid until the next call."""
        if not np.array_equal(self._point, w):
            self._arguments[...] = self._map @ w + self._offset
            self._point = w.copy()  # afterwards: Ctrl-C must not leave other arguments with this point
        if name not in self._outputs:
            ends = np.cumsum([0, *(evaluator.size(name) for evaluator in self._evaluators)])
            self._outputs[name] = np.zeros(ends[-1])
            for evaluator, first, last in zip(self._evaluators, ends, ends[1:], strict=False):
                evaluator.write_to(name, self._outputs[name][first:last])
        for evaluator in self._evaluators:
            evaluator.run(name)
        return self._outputs[name]

    def _first_order(self, sparse: Any) -> tuple[Any, tuple[Array, Array]]:
        """Return the matrix from all nonzeros of kernels to the gradient and the nonzeros of the Jacobian below it."""
        entries, row, column, weights, first = [], [], [], [], 0
        spent, unknown, shares = [], [], []
        for block, offset in zip(self.blocks, self._offsets, strict=False):
            of_row, places = block.kernel.jacobian_pattern[0], np.arange(block.places)[:, None]
            for is_cost in (False, True):
                which = np.flatnonzero((of_row == block.count) == is_cost)
                nonzero, position, coefficient = block.jacobian_terms(which)
                source = first + places * of_row.size + nonzero
                if is_cost:
                    spent.append(source.reshape(-1))
                    unknown.append(position.reshape(-1))
                    shares.append((coefficient * block.cost_weights()[:, None]).reshape(-1))
                else:
                    entries.append(source.reshape(-1))
                    row.append((offset + places * block.count + of_row[nonzero]).reshape(-1))
                    column.append(position.reshape(-1))
                    weights.append(coefficient.reshape(-1))
            first += block.places * of_row.size
        matrix, pattern = _assembled(
            sparse, _joined(row, int), _joined(column, int), _joined(weights), _joined(entries, int), first, self.rows
        )
        gradient = sparse.csr_matrix(
            (_joined(shares), (_joined(unknown, int), _joined(spent, int))), (self.size, first)
        )
        return sparse.vstack([gradient, matrix], format="csr"), pattern

    @cached_property
    def _second_order(self) -> tuple[Any, tuple[Array, Array]]:
        """Matrix from all nonzeros of the Hessians of kernels to those of the scaled Hessian, and their places."""
        from scipy import sparse

        entries, row, column, weights, first = [], [], [], [], 0
        for block in self.blocks:
            nonzero, low, high, coefficient = block.hessian_terms()
            size, places = block.kernel.hessian_pattern[0].size, np.arange(block.places)[:, None]
            entries.append((first + places * size + nonzero).reshape(-1))
            row.append(low.reshape(-1))
            column.append(high.reshape(-1))
            weights.append((coefficient * self.scale[low] * self.scale[high]).reshape(-1))
            first += block.places * size
        return _assembled(
            sparse, _joined(row, int), _joined(column, int), _joined(weights), _joined(entries, int), first, self.size
        )

    def _slopes_at(self, w: Array) -> tuple[Array, Array]:
        """Return the gradient of the objective and the nonzeros of the Jacobian of the rows, in the user's units."""
        both = self._slopes @ self._run("first", w)
        return both[: self.size], both[self.size :]

    # Scales ----------------------------------------------------------------------------------------------------------

    def _scaling(self, start: Array) -> tuple[Array, float]:
        """Return factors of the rows and of the objective that make their gradients near the start of size one."""
        rows, steepest = self._steepness(start)
        # A fixed seed: the same program has the same scales.
        rng = np.random.default_rng(0)
        for _ in range(POINTS):
            near = np.clip(start + NEARBY * self.scale * rng.standard_normal(start.size), self.lbw, self.ubw)
            rows_near, steepest_near = (np.where(np.isfinite(part), part, 0.0) for part in self._steepness(near))
            rows = np.where(rows > 0.0, rows, rows_near)
            steepest = np.maximum(steepest, FLAT_OBJECTIVE * steepest_near)
        return _inverse(rows), float(_inverse(steepest)[0])

    def _steepness(self, w: Array) -> tuple[Array, Array]:
        """Return the largest entries of the gradients of rows (n_g,) and objective (1,), in scaled unknowns."""
        gradient, slopes = self._slopes_at(w)
        row, column = self.jacobian_pattern
        sizes = np.zeros(self.rows)
        with np.errstate(invalid="ignore"):  # where a function is undefined
            np.maximum.at(sizes, row, np.abs(slopes) * self.scale[column])
        return sizes, np.array([np.abs(gradient * self.scale).max(initial=0.0)])


def _joined(parts: Sequence[Array], kind: Any = float) -> Array:
    return np.concatenate([np.zeros(0, kind), *parts])


def _assembled(
    sparse: Any, row: Array, column: Array, weights: Array, source: Array, sources: int, height: int
) -> tuple[Any, tuple[Array, Array]]:
    """Return the matrix from sources to the nonzeros of a matrix, in column-major order, and their rows and columns.

    Terms of the same place are added, those of weight zero left out.
    """
    kept = weights != 0.0
    # 64 bits, as the number of matrix entries exceeds 32 bits on fine meshes.
    keys, place = np.unique(column[kept].astype(np.int64) * height + row[kept], return_inverse=True)
    matrix = sparse.csr_matrix((weights[kept], (place, source[kept])), (keys.size, sources))
    return matrix, (keys % max(height, 1), keys // max(height, 1))


def _inverse(sizes: Array) -> Array:
    """Return factors that scale these sizes to one; 1 where a size is zero or not finite."""
    known = np.isfinite(sizes) & (sizes > LEAST_SIZE)
    return np.where(known, 1.0 / np.where(known, sizes, 1.0), 1.0)
