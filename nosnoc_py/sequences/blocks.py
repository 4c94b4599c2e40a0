"""NLP assembled from a few small functions, each evaluated at many places: its construction is fast for any mesh.

A block is one function of a few unknowns y = w[index] and of constants. Its derivatives are taken once, symbolically.
The NLP gathers the unknowns of all places, evaluates the block at all of them by one `map`, and scatters values and
derivatives into sparse matrices by constant linear maps. The expression graph that IPOPT evaluates grows with the
number of blocks, not with the number of elements.

Scaling: unknowns are divided by typical values; rows and the objective get factors such that the largest entry of each
gradient is one at the start. Everything outside of IPOPT (`evaluate`, `violation`) is in the user's units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.audit.constraints import excess

Array = np.ndarray
# An objective that is almost stationary at the start keeps its size: its gradient counts at least as this fraction of
# those nearby. A row whose gradient vanishes at the start has the size of those nearby.
FLAT = 1e-2
# Sizes below the least one are zeros that have been rounded: their inverses would overflow.
LEAST_SIZE = 1e-150
# Distance of the points nearby, as a fraction of the typical values, and their number.
NEARBY, POINTS = 0.1, 2


@dataclass(frozen=True, eq=False, kw_only=True)
class NLPBlock:
    """Constraints lower <= rows(y, c) <= upper and a part of the objective, repeated at several places.

    Attributes
    ----------
    name : str
    y, c : SX (n_y,), (n_c,)
        Symbols of the unknowns and of the constants.
    rows : SX (n_r,)
    lower, upper : (n_r,) or (places, n_r)
    cost : SX scalar
    index : (places, n_y) int
        Where the unknowns of every place stand in w.
    constants : (places, n_c)
    labels : tuple of str
        One per row.
    edge : int, optional
        Number of the phase end that the block belongs to; the NLP itself does not use it.
    """

    name: str
    y: ca.SX
    rows: ca.SX
    lower: Any
    upper: Any
    index: Array
    c: ca.SX = field(default_factory=lambda: ca.SX(0, 1))
    constants: Any = None
    cost: ca.SX = field(default_factory=lambda: ca.SX(0))
    labels: tuple[str, ...] = ()
    edge: int | None = None

    @property
    def places(self) -> int:
        """Number of places."""
        return len(self.index)

    @property
    def count(self) -> int:
        """Number of rows at one place."""
        return int(self.rows.numel())

    # Outputs of all functions are dense or vectors of nonzeros: the entries of a `map` then have positions that are
    # known without evaluating anything.
    @cached_property
    def values(self) -> ca.Function:
        """(y, c) -> rows, cost."""
        return ca.Function("values", [self.y, self.c], [ca.densify(self.rows), self.cost])

    @cached_property
    def gradient(self) -> ca.Function:
        """(y, c) -> gradient of the cost (n_y,)."""
        return ca.Function("gradient", [self.y, self.c], [ca.densify(ca.gradient(self.cost, self.y))])

    @cached_property
    def _jacobian(self) -> ca.SX:
        return ca.jacobian(self.rows, self.y)

    @cached_property
    def jacobian(self) -> ca.Function:
        """(y, c) -> nonzeros of the Jacobian of the rows."""
        return ca.Function("jacobian", [self.y, self.c], [_nonzeros(self._jacobian)])

    @cached_property
    def _hessian_parts(self) -> tuple[ca.SX, ca.SX, ca.SX]:
        # Multipliers and weight are inputs, so that one function serves all places.
        multipliers, weight = ca.SX.sym("multipliers", self.count), ca.SX.sym("weight")
        lagrangian = ca.dot(multipliers, self.rows) + weight * self.cost
        return ca.hessian(lagrangian, self.y)[0], multipliers, weight

    @cached_property
    def hessian(self) -> ca.Function:
        """(y, c, multipliers, weight of the cost) -> nonzeros of the Hessian of the Lagrangian."""
        hessian, multipliers, weight = self._hessian_parts
        return ca.Function("hessian", [self.y, self.c, multipliers, weight], [_nonzeros(hessian)])

    @cached_property
    def operations(self) -> int:
        """Operations of values and derivatives at one place."""
        return sum(f.n_instructions() for f in (self.values, self.gradient, self.jacobian, self.hessian))

    def jacobian_places(self) -> tuple[Array, Array]:
        """Return row (nnz,) and unknown in w (places, nnz) of every nonzero of the Jacobian."""
        rows, columns = (np.array(part, int) for part in self._jacobian.sparsity().get_triplet())
        return rows, self.index[:, columns]

    def hessian_places(self) -> tuple[Array, Array]:
        """Return the two unknowns in w of every nonzero of the Hessian, (places, nnz) each."""
        rows, columns = (np.array(part, int) for part in self._hessian_parts[0].sparsity().get_triplet())
        return self.index[:, rows], self.index[:, columns]


class BlockNLP:
    """Minimise the sum of the costs of all blocks subject to their rows, in the form that `mpcc.ipopt.Ipopt` takes.

    Parameters
    ----------
    blocks : sequence of NLPBlock
    lower, upper : (n,)
        Bounds of the unknowns w.
    scale : (n,)
        Typical values of the unknowns; the program is solved in w / scale.
    start : (n,)
        Point at which rows and objective are scaled.

    Examples
    --------
    Two places of one block, y = (w[0], w[1]) and y = (w[1], w[2]):

    >>> import casadi as ca, numpy as np
    >>> y = ca.SX.sym("y", 2)
    >>> index = np.array([[0, 1], [1, 2]])
    >>> block = NLPBlock(name="step", y=y, rows=y[1] - y[0], lower=[1], upper=[1], cost=ca.sumsqr(y), index=index)
    >>> nlp = BlockNLP([block], np.full(3, -9.0), np.full(3, 9.0), np.ones(3), np.zeros(3))
    >>> nlp.evaluate(np.array([0.0, 1.0, 3.0]))
    (11.0, array([1., 2.]))
    >>> nlp.violation(np.array([0.0, 1.0, 3.0]))
    (1.0, 'step')
    >>> round(nlp.residual(np.array([0.0, 1.0, 3.0])), 3)
    1.0
    """

    def __init__(self, blocks: Sequence[NLPBlock], lower: Array, upper: Array, scale: Array, start: Array) -> None:
        self.blocks, self.scale, self.size = tuple(blocks), scale, scale.size
        self._offsets = np.cumsum([0, *(block.places * block.count for block in self.blocks)])
        self.rows = int(self._offsets[-1])
        self.lbw, self.ubw = lower, upper
        self.lower, self.upper = (
            np.concatenate([np.broadcast_to(getattr(b, side), (b.places, b.count)).ravel() for b in self.blocks])
            for side in ("lower", "upper")
        )
        self.row_scale, self.cost_scale = self._scaling(start)
        self.x, self.p = ca.MX.sym("x", self.size), ca.MX(0, 1)
        self.lbx, self.ubx = lower / scale, upper / scale
        self.lbg, self.ubg = self.lower * self.row_scale, self.upper * self.row_scale
        self.f, self.g = self._values(self.x)

    def evaluate(self, w: Array) -> tuple[float, Array]:
        """Return the objective and the rows (n_g,) in the user's units."""
        parts = [self._evaluate(block, w, block.values) for block in self.blocks]
        return float(sum(cost.sum() for _, cost in parts)), np.concatenate([rows.T.ravel() for rows, _ in parts])

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

    def has_gradients(self, w: Array) -> bool:
        """Return True if values and first derivatives are finite at w."""
        x = w / self.scale
        parts = [*self.derivatives["grad_f"](x, np.empty(0)), *self.derivatives["jac_g"](x, np.empty(0))]
        return all(np.isfinite(part.nonzeros()).all() for part in parts)

    def not_finite(self, w: Array) -> tuple[NLPBlock, int] | None:
        """Return the first block and place with a value or a first or second derivative that is not finite, or None."""
        for block in self.blocks:
            values = [self._evaluate(block, w, f) for f in (block.values, block.gradient, block.jacobian)]
            multipliers = np.ones((block.count + 1, block.places))
            y = w[block.index].T, _constants(block).T
            bends = block.hessian.map(block.places)(*y, multipliers[:-1], multipliers[-1:])
            parts = [np.asarray(part) for part in (*_several(values[0]), *values[1], *values[2])]
            parts.append(np.asarray(ca.DM(bends)).reshape(-1, block.places, order="F"))
            bad = np.array([~np.isfinite(part).all(axis=0) for part in parts if part.size]).any(axis=0)
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

    def of(self, block: NLPBlock, values: Array) -> Array:
        """Return the entries (places, rows) of a block in a vector of all rows."""
        k = self.blocks.index(block)
        return values[self._offsets[k] : self._offsets[k + 1]].reshape(block.places, block.count)

    @cached_property
    def derivatives(self) -> dict[str, ca.Function]:
        """Derivative functions in the form that `nlpsol` takes."""
        x, p, weight, multipliers = self.x, self.p, ca.MX.sym("weight"), ca.MX.sym("multipliers", self.rows)
        # Without these, `nlpsol` would differentiate the graph of all maps, which the blocks are there to avoid.
        gradient, jacobian = self._gradient(x), self._jacobian(x)
        hessian = self._hessian(x, weight, multipliers)
        return {
            "grad_f": ca.Function("nlp_grad_f", [x, p], [self.f, gradient], ["x", "p"], ["f", "grad_f_x"]),
            "jac_g": ca.Function("nlp_jac_g", [x, p], [self.g, jacobian], ["x", "p"], ["g", "jac_g_x"]),
            "hess_lag": ca.Function(
                "nlp_hess_l",
                [x, p, weight, multipliers],
                [hessian],
                ["x", "p", "lam_f", "lam_g"],
                ["triu_hess_gamma_x_x"],
            ),
        }

    @cached_property
    def operations(self) -> float:
        """Operations of one evaluation of all derivatives at all places."""
        return float(sum(block.places * block.operations for block in self.blocks))

    @property
    def built(self) -> float:
        """Operations of the functions that were differentiated: one place of every block."""
        return float(sum(block.operations for block in self.blocks))

    def _evaluate(self, block: NLPBlock, w: Array, function: ca.Function) -> list[Array]:
        """Evaluate a function of a block at all of its places; outputs (rows, places)."""
        outputs = function.map(block.places)(w[block.index].T, _constants(block).T)
        return [np.asarray(ca.DM(part)).reshape(-1, block.places, order="F") for part in _several(outputs)]

    def _scaling(self, start: Array) -> tuple[Array, float]:
        """Return factors of the rows and of the objective that make their gradients near the start of size one."""
        rows, steepest = self._steepness(start)
        # A fixed seed: the same program has the same scales.
        rng = np.random.default_rng(0)
        for _ in range(POINTS):
            near = np.clip(start + NEARBY * self.scale * rng.standard_normal(start.size), self.lbw, self.ubw)
            rows_near, steepest_near = (np.where(np.isfinite(part), part, 0.0) for part in self._steepness(near))
            rows = np.where(rows > 0.0, rows, rows_near)
            steepest = np.maximum(steepest, FLAT * steepest_near)
        return _inverse(rows), float(_inverse(steepest)[0])

    def _steepness(self, w: Array) -> tuple[Array, Array]:
        """Return the largest entries of the gradients of rows (n_g,) and objective (1,), in scaled unknowns."""
        rows, gradient = [np.zeros(0)], np.zeros(self.size)
        for block in self.blocks:
            sizes = np.zeros((block.places, block.count))
            if block.count:
                values = np.abs(self._evaluate(block, w, block.jacobian)[0].T)
                row, column = block.jacobian_places()
                weighted = values * self.scale[column]
                for k in range(block.count):
                    sizes[:, k] = weighted[:, row == k].max(axis=1, initial=0.0)
            rows.append(sizes.ravel())
            # `gradient[index] += ...` would keep only one of several contributions to the same unknown.
            np.add.at(gradient, block.index, self._evaluate(block, w, block.gradient)[0].T)
        # Several places may share an unknown: the gradient is summed before its size is taken.
        return np.concatenate(rows), np.array([np.abs(gradient * self.scale).max(initial=0.0)])

    def _gather(self, block: NLPBlock, x: ca.MX) -> tuple[ca.MX, ca.DM]:
        """Return the unknowns of all places (n_y, places) in the user's units, and the constants."""
        y = (x * self.scale)[block.index.ravel().tolist()]
        return ca.reshape(y, block.index.shape[1], block.places), ca.DM(_constants(block).T)

    def _values(self, x: ca.MX) -> tuple[ca.MX, ca.MX]:
        cost, rows = ca.MX(0), [ca.MX(0, 1)]
        for block in self.blocks:
            values, costs = block.values.map(block.places)(*self._gather(block, x))
            cost += ca.sum2(costs)
            rows.append(ca.vec(values))
        return cost * self.cost_scale, ca.vertcat(*rows) * self.row_scale

    def _gradient(self, x: ca.MX) -> ca.MX:
        total = ca.MX(self.size, 1)
        for block in self.blocks:
            if not block.cost.is_constant():
                values = ca.vec(block.gradient.map(block.places)(*self._gather(block, x)))
                index = block.index.ravel()
                total += _scatter(index, self.scale[index] * self.cost_scale, self.size) @ values
        # IPOPT takes a dense gradient; unknowns without cost are structural zeros until here.
        return ca.densify(total)

    def _jacobian(self, x: ca.MX) -> ca.MX:
        values, rows, columns = [ca.MX(0, 1)], [np.zeros(0, int)], [np.zeros(0, int)]
        for block, offset in zip(self.blocks, self._offsets, strict=False):
            if not block.count:
                continue
            row, column = block.jacobian_places()
            values.append(ca.vec(block.jacobian.map(block.places)(*self._gather(block, x))))
            rows.append((offset + np.arange(block.places)[:, None] * block.count + row).ravel())
            columns.append(column.ravel())
        row, column = np.concatenate(rows), np.concatenate(columns)
        return _assemble(row, column, self.row_scale[row] * self.scale[column], values, (self.rows, self.size))

    def _hessian(self, x: ca.MX, weight: ca.MX, multipliers: ca.MX) -> ca.MX:
        """Return the upper triangle of the Hessian of the scaled Lagrangian."""
        values, rows, columns = [ca.MX(0, 1)], [np.zeros(0, int)], [np.zeros(0, int)]
        # IPOPT's multipliers belong to scaled rows, the functions of the blocks to rows in the user's units.
        scaled = multipliers * self.row_scale
        for block, first, last in zip(self.blocks, self._offsets, self._offsets[1:], strict=False):
            one, other = block.hessian_places()
            if not one.size:
                continue
            own = ca.reshape(scaled[int(first) : int(last)], block.count, block.places)
            costs = ca.repmat(weight * self.cost_scale, 1, block.places)
            values.append(ca.vec(block.hessian.map(block.places)(*self._gather(block, x), own, costs)))
            rows.append(one.ravel())
            columns.append(other.ravel())
        row, column = np.concatenate(rows), np.concatenate(columns)
        # IPOPT takes the upper triangle; an entry of weight zero is left out of the pattern.
        weights = np.where(row <= column, self.scale[row] * self.scale[column], 0.0)
        return _assemble(row, column, weights, values, (self.size, self.size))


def _nonzeros(matrix: ca.SX) -> ca.SX:
    return ca.vertcat(ca.SX(0, 1), *matrix.nonzeros())


def _constants(block: NLPBlock) -> Array:
    """Return the constants of every place (places, n_c)."""
    return np.zeros((block.places, 0)) if block.constants is None else np.asarray(block.constants, float)


def _several(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


def _inverse(sizes: Array) -> Array:
    """Return factors that scale these sizes to one; 1 where a size is zero or not finite."""
    known = np.isfinite(sizes) & (sizes > LEAST_SIZE)
    return np.where(known, 1.0 / np.where(known, sizes, 1.0), 1.0)


def _scatter(index: Array, weights: Array, size: int) -> ca.DM:
    """Return the matrix (size, k) that adds weighted entries to the positions of their index."""
    nonzero = np.flatnonzero(weights)
    pattern = ca.Sparsity.triplet(size, index.size, index[nonzero].tolist(), nonzero.tolist())
    # There is one entry per column, so that the order of the nonzeros is that of `nonzero`.
    return ca.DM(pattern, weights[nonzero])


def _assemble(rows: Array, columns: Array, weights: Array, values: list[ca.MX], shape: tuple[int, int]) -> ca.MX:
    """Return the sparse matrix of weighted entries; entries of the same position are added, zero weights left out."""
    # Column-major positions: sorted, they are CasADi's order of nonzeros.
    # 64 bits, as the number of matrix entries exceeds 32 bits on fine meshes.
    key = columns.astype(np.int64) * shape[0] + rows
    places, inverse = np.unique(key[weights != 0.0], return_inverse=True)
    pattern = ca.Sparsity.triplet(*shape, (places % shape[0]).tolist(), (places // shape[0]).tolist())
    # Entries of weight zero keep the target 0, where `_scatter` adds nothing.
    target = np.zeros(key.size, int)
    target[weights != 0.0] = inverse
    return ca.MX(pattern, _scatter(target, weights, places.size) @ ca.vertcat(*values))
