"""An NLP that is made of a few small functions, each at many places: built fast, whatever the number of places.

A block is one function of a few unknowns y = w[index] and of constants. Its derivatives are taken once; the NLP gathers
the unknowns of all places, evaluates the block at all of them in one call, and scatters values and derivatives. The
graph that IPOPT evaluates has as many nodes as there are blocks, not as there are elements.
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
# Factors between the user's units and those of the program lie between these.
SCALES = (1e-8, 1e8)
MOST = 1e2


@dataclass(frozen=True, eq=False, kw_only=True)
class NLPBlock:
    """Rows lower <= rows(y, c) <= upper and a share of the objective, at several places.

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
        The end of a phase that it belongs to; nothing to the NLP.
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
        """How often it is there."""
        return len(self.index)

    @property
    def count(self) -> int:
        """Number of its rows at one place."""
        return int(self.rows.numel())

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
        multipliers, weight = ca.SX.sym("multipliers", self.count), ca.SX.sym("weight")
        lagrangian = ca.dot(multipliers, self.rows) + weight * self.cost
        return ca.hessian(lagrangian, self.y)[0], multipliers, weight

    @cached_property
    def hessian(self) -> ca.Function:
        """(y, c, multipliers, weight of the cost) -> nonzeros of the Hessian of the Lagrangian."""
        hessian, multipliers, weight = self._hessian_parts
        return ca.Function("hessian", [self.y, self.c, multipliers, weight], [_nonzeros(hessian)])

    def jacobian_places(self) -> tuple[Array, Array]:
        """Row at its place, and unknown in w, of every nonzero of the Jacobian: (nnz,), (places, nnz)."""
        rows, columns = (np.array(part, int) for part in self._jacobian.sparsity().get_triplet())
        return rows, self.index[:, columns]

    def hessian_places(self) -> tuple[Array, Array]:
        """The two unknowns in w of every nonzero of the Hessian: (places, nnz) twice."""
        rows, columns = (np.array(part, int) for part in self._hessian_parts[0].sparsity().get_triplet())
        return self.index[:, rows], self.index[:, columns]


class BlockNLP:
    """minimise the sum of the costs of all blocks subject to their rows; in the form that `mpcc.ipopt.Ipopt` takes.

    Parameters
    ----------
    blocks : sequence of NLPBlock
    lower, upper, scale : (n,)
        Of the unknowns w. The program is solved in w / scale, and in rows and an objective whose gradients have the
        size one at the start.
    start : (n,)
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
        self.row_scale, self.cost_scale = self._sizes(start)
        self.x, self.p = ca.MX.sym("x", self.size), ca.MX(0, 1)
        self.lbx, self.ubx = lower / scale, upper / scale
        self.lbg, self.ubg = self.lower * self.row_scale, self.upper * self.row_scale
        self.f, self.g = self._values(self.x)

    def evaluate(self, w: Array) -> tuple[float, Array]:
        """Objective and rows (n_g,) in the user's units."""
        parts = [self._at(block, w, block.values) for block in self.blocks]
        return float(sum(cost.sum() for _, cost in parts)), np.concatenate([rows.T.ravel() for rows, _ in parts])

    def violation(self, w: Array) -> tuple[float, str]:
        """The largest violation of a row or a bound in the user's units, and the name of the row."""
        rows = self.evaluate(w)[1]
        over = excess(rows, self.lower, self.upper)
        bounds = excess(w, self.lbw, self.ubw)
        if not np.isfinite(over).all():
            return np.inf, f"{self.label(int(np.argmin(np.isfinite(over))))}, which is no number,"
        if over.max(initial=0.0) < bounds.max(initial=0.0):
            return float(bounds.max()), "a bound"
        return (float(over.max()), self.label(int(over.argmax()))) if over.size else (0.0, "")

    def label(self, row: int) -> str:
        """The name of a row."""
        k = int(np.searchsorted(self._offsets, row, "right")) - 1
        block = self.blocks[k]
        inside = (row - self._offsets[k]) % block.count
        return f"{block.name}: {block.labels[inside]}" if block.labels else block.name

    def of(self, block: NLPBlock, values: Array) -> Array:
        """The entries (places, rows) of a block in a vector of all rows."""
        k = self.blocks.index(block)
        return values[self._offsets[k] : self._offsets[k + 1]].reshape(block.places, block.count)

    @cached_property
    def derivatives(self) -> dict[str, ca.Function]:
        """The derivative functions in the form `nlpsol` takes them."""
        x, p, weight, multipliers = self.x, self.p, ca.MX.sym("weight"), ca.MX.sym("multipliers", self.rows)
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

    def _at(self, block: NLPBlock, w: Array, function: ca.Function) -> list[Array]:
        """A function of a block at all of its places, for numbers; outputs (rows, places)."""
        found = function.map(block.places)(w[block.index].T, _constants(block).T)
        return [np.asarray(ca.DM(part)).reshape(-1, block.places, order="F") for part in _several(found)]

    def _sizes(self, start: Array) -> tuple[Array, float]:
        """Factors of the rows, and of the objective, that give their gradients at the start the size one."""
        rows, gradient = [np.zeros(0)], np.zeros(self.size)
        for block in self.blocks:
            sizes = np.zeros((block.places, block.count))
            if block.count:
                values = np.abs(self._at(block, start, block.jacobian)[0].T)
                row, column = block.jacobian_places()
                weighted = values * self.scale[column]
                for k in range(block.count):
                    sizes[:, k] = weighted[:, row == k].max(axis=1, initial=0.0)
            rows.append(sizes.ravel())
            np.add.at(gradient, block.index, self._at(block, start, block.gradient)[0].T)
        # At the start the objective may be almost stationary, which says nothing of its size.
        steepest = np.array([np.abs(gradient * self.scale).max()])
        return _inverse(np.concatenate(rows)), min(float(_inverse(steepest)[0]), MOST)

    def _gathered(self, block: NLPBlock, x: ca.MX) -> tuple[ca.MX, ca.DM]:
        y = (x * self.scale)[block.index.ravel().tolist()]
        return ca.reshape(y, block.index.shape[1], block.places), ca.DM(_constants(block).T)

    def _values(self, x: ca.MX) -> tuple[ca.MX, ca.MX]:
        cost, rows = ca.MX(0), [ca.MX(0, 1)]
        for block in self.blocks:
            found, spent = block.values.map(block.places)(*self._gathered(block, x))
            cost += ca.sum2(spent)
            rows.append(ca.vec(found))
        return cost * self.cost_scale, ca.vertcat(*rows) * self.row_scale

    def _gradient(self, x: ca.MX) -> ca.MX:
        total = ca.MX(self.size, 1)
        for block in self.blocks:
            if not block.cost.is_constant():
                values = ca.vec(block.gradient.map(block.places)(*self._gathered(block, x)))
                index = block.index.ravel()
                total += _scatter(index, self.scale[index] * self.cost_scale, self.size) @ values
        return ca.densify(total)

    def _jacobian(self, x: ca.MX) -> ca.MX:
        values, rows, columns = [ca.MX(0, 1)], [np.zeros(0, int)], [np.zeros(0, int)]
        for block, offset in zip(self.blocks, self._offsets, strict=False):
            if not block.count:
                continue
            row, column = block.jacobian_places()
            values.append(ca.vec(block.jacobian.map(block.places)(*self._gathered(block, x))))
            rows.append((offset + np.arange(block.places)[:, None] * block.count + row).ravel())
            columns.append(column.ravel())
        row, column = np.concatenate(rows), np.concatenate(columns)
        return _assembled(row, column, self.row_scale[row] * self.scale[column], values, (self.rows, self.size))

    def _hessian(self, x: ca.MX, weight: ca.MX, multipliers: ca.MX) -> ca.MX:
        values, rows, columns = [ca.MX(0, 1)], [np.zeros(0, int)], [np.zeros(0, int)]
        scaled = multipliers * self.row_scale
        for block, first, last in zip(self.blocks, self._offsets, self._offsets[1:], strict=False):
            one, other = block.hessian_places()
            if not one.size:
                continue
            own = ca.reshape(scaled[int(first) : int(last)], block.count, block.places)
            costs = ca.repmat(weight * self.cost_scale, 1, block.places)
            values.append(ca.vec(block.hessian.map(block.places)(*self._gathered(block, x), own, costs)))
            rows.append(one.ravel())
            columns.append(other.ravel())
        row, column = np.concatenate(rows), np.concatenate(columns)
        weights = np.where(row <= column, self.scale[row] * self.scale[column], 0.0)
        return _assembled(row, column, weights, values, (self.size, self.size))


def _nonzeros(matrix: ca.SX) -> ca.SX:
    return ca.vertcat(ca.SX(0, 1), *matrix.nonzeros())


def _constants(block: NLPBlock) -> Array:
    """Those of every place (places, n_c)."""
    return np.zeros((block.places, 0)) if block.constants is None else np.asarray(block.constants, float)


def _several(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple | list) else [found]


def _inverse(sizes: Array) -> Array:
    """Factors that make these sizes one; one for zero and for what is no number."""
    known = np.isfinite(sizes) & (sizes > 0.0)
    return np.where(known, np.clip(1.0 / np.where(known, sizes, 1.0), *SCALES), 1.0)


def _scatter(index: Array, weights: Array, size: int) -> ca.DM:
    """The matrix (size, k) that adds weighted entries up where they belong."""
    kept = np.flatnonzero(weights)
    pattern = ca.Sparsity.triplet(size, index.size, index[kept].tolist(), kept.tolist())
    # One entry in every column: column order is the order of `kept`.
    return ca.DM(pattern, weights[kept])


def _assembled(rows: Array, columns: Array, weights: Array, values: list[ca.MX], shape: tuple[int, int]) -> ca.MX:
    """A sparse matrix of weighted entries; entries of one place are added, and those of weight zero left out."""
    key = columns.astype(np.int64) * shape[0] + rows
    places, inverse = np.unique(key[weights != 0.0], return_inverse=True)
    pattern = ca.Sparsity.triplet(*shape, (places % shape[0]).tolist(), (places // shape[0]).tolist())
    target = np.zeros(key.size, int)
    target[weights != 0.0] = inverse
    return ca.MX(pattern, _scatter(target, weights, places.size) @ ca.vertcat(*values))
