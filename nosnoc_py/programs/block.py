"""Blocks of a program: a kernel F(a) at several places, each with arguments a = T w + offset of its own.

T is sparse and constant: collocation, control bases, lengths of elements and interpolation are linear in the unknowns.
So F and its derivatives depend on expressions only, while J = J_F T and H = T' H_F T belong to the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.kernels.kernel import Kernel

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class LinearMap:
    """Arguments a = T w + offset of a kernel at several places; T has the same number of terms at each.

    Attributes
    ----------
    component : (terms,) int
        Argument of every term.
    position : (places, terms) int
        Unknown in w of every term.
    coefficient : (places, terms)
    offset : (places, n_a), optional
        Default: zero.
    """

    component: Array
    position: Array
    coefficient: Array
    offset: Array | None = None

    @classmethod
    def at(cls, index: Any) -> LinearMap:
        """Return the map to the unknowns at an index (places, n_a)."""
        index = np.atleast_2d(np.asarray(index, int))
        return cls(np.arange(index.shape[1]), index, np.ones(index.shape))

    @classmethod
    def of(cls, *parts: tuple[Any, ...]) -> LinearMap:
        """Return the map whose arguments are those of several parts, one after another.

        A part is an array of positions (places, k), which are arguments as they are; or a sum over terms: positions
        (places, terms, k), coefficients (places, terms) and, on request, numbers (places, k) that are added; or numbers
        alone: None and (places, k). All arrays are broadcast to the same number of places.
        """
        places = max(len(array) for part in parts for array in part if array is not None)
        component, position, coefficient, offsets, first = [], [], [], [], 0
        for at, *more in parts:
            numbers = np.asarray(more[0], float) if more else np.ones((1, 1))
            if at is None:
                size = numbers.shape[-1]
                added = numbers
            else:
                added = more[1] if len(more) > 1 else np.zeros((1, 1))
                at = np.asarray(at, int)
                at = at[:, None] if at.ndim == 2 else at
                count, size = at.shape[1:]
                component.append(np.tile(first + np.arange(size), count))
                position.append(np.broadcast_to(at, (places, count, size)).reshape(places, -1))
                coefficient.append(np.repeat(np.broadcast_to(numbers, (places, count)), size, axis=1))
            offsets.append(np.broadcast_to(added, (places, size)))
            first += size
        offset = np.hstack(offsets)
        return cls(
            np.concatenate([np.zeros(0, int), *component]),
            np.hstack([np.zeros((places, 0), int), *position]),
            np.hstack([np.zeros((places, 0)), *coefficient]),
            offset if offset.any() else None,
        )

    @property
    def places(self) -> int:
        """Number of places."""
        return len(self.position)

    def arguments(self, w: Array, size: int) -> Array:
        """Return the arguments (places, size) at w."""
        out = np.zeros((self.places, size)) if self.offset is None else self.offset.copy()
        # Several terms may belong to one argument.
        np.add.at(out, (np.arange(self.places)[:, None], self.component), self.coefficient * w[self.position])
        return out


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelBlock:
    """Constraints lower <= rows(a) <= upper and a part of the objective, repeated at several places.

    Attributes
    ----------
    name : str
    kernel : Kernel
    at : LinearMap
    lower, upper : (m,) or (places, m)
    weights : (places,), optional
        Factors of the cost; default 1.
    labels : tuple of str
        One per row.
    edge : int, optional
        Number of the phase end that the block belongs to; the program itself does not use it.
    """

    name: str
    kernel: Kernel
    at: LinearMap
    lower: Any = ()
    upper: Any = ()
    weights: Any = None
    labels: tuple[str, ...] = ()
    edge: int | None = None

    @property
    def places(self) -> int:
        """Number of places."""
        return self.at.places

    @property
    def count(self) -> int:
        """Number of rows at one place."""
        return self.kernel.m

    def limits(self) -> tuple[Array, Array]:
        """Return lower and upper limits of the rows at all places, (places, m) each."""
        shape = (self.places, self.count)
        lower, upper = (
            np.broadcast_to(np.asarray(side, float).reshape((-1, self.count) if np.size(side) > 1 else -1), shape)
            for side in (self.lower if self.count else np.zeros(0), self.upper if self.count else np.zeros(0))
        )
        return lower, upper

    def cost_weights(self) -> Array:
        """Return the factors of the cost (places,); zero without a cost."""
        given: Array = np.ones(self.places) if self.weights is None else np.asarray(self.weights, float)
        return given if self.kernel.has_cost else np.zeros(self.places)

    def jacobian_terms(self, which: Sequence[int] | Array) -> tuple[Array, Array, Array]:
        """Return the terms of J = J_F T for some nonzeros of J_F, in the order of places.

        Returns
        -------
        nonzero : (k,) int
            Number of the nonzero of J_F of a term.
        position : (places, k) int
            Unknown in w.
        coefficient : (places, k)
        """
        columns = self.kernel.jacobian_pattern[1][which]
        nonzero, term = _pairs(columns, self.at.component)
        return np.asarray(which)[nonzero], self.at.position[:, term], self.at.coefficient[:, term]

    def hessian_terms(self) -> tuple[Array, Array, Array, Array]:
        """Return the terms of the upper half of H = T' H_F T, in the order of places.

        Returns
        -------
        nonzero : (k,) int
            Number of the nonzero of H_F of a term.
        row, column : (places, k) int
            Unknowns in w, row <= column.
        coefficient : (places, k)
            Zero for terms below the diagonal.
        """
        rows, columns = self.kernel.hessian_pattern
        component, position, coefficient = self.at.component, self.at.position, self.at.coefficient
        one, first = _pairs(rows, component)
        both, second = _pairs(columns[one], component)
        nonzero, first = one[both], first[both]
        low, high = position[:, first], position[:, second]
        weight = coefficient[:, first] * coefficient[:, second]
        on_diagonal = rows[nonzero] == columns[nonzero]
        # An entry beside the diagonal of H_F stands for two: the one below it is reflected, and where both unknowns are
        # one, the two add up. An entry on the diagonal meets all ordered pairs of terms: those below are left out.
        weight = np.where(on_diagonal & (low > high), 0.0, weight * np.where(~on_diagonal & (low == high), 2.0, 1.0))
        return nonzero, np.minimum(low, high), np.maximum(low, high), weight


def _pairs(components: Array, of_terms: Array) -> tuple[Array, Array]:
    """Return all pairs (entry, term) with components[entry] == of_terms[term], ordered by entry."""
    order = np.argsort(of_terms, kind="stable")
    first = np.searchsorted(of_terms[order], components, "left")
    count = np.searchsorted(of_terms[order], components, "right") - first
    entry = np.repeat(np.arange(components.size), count)
    inside = np.arange(entry.size) - np.repeat(np.cumsum(count) - count, count)
    return entry, order[np.repeat(first, count) + inside]
