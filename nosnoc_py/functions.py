"""Fast evaluation of CasADi functions through buffers, a cache of functions, and checks of numbers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from threading import Lock
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError

Array = np.ndarray


def buffered(function: ca.Function) -> Callable[..., list[Array]]:
    """Return a CasADi function as a fast function of arrays; it returns fresh dense arrays.

    Arguments are given by columns: a vector as (n,), a matrix as its transpose, so that what `function.map(count)`
    takes as (n, count) is (count, n) here; a number fills an argument. Outputs have CasADi's shapes. Threads may share
    it: they wait for each other.
    """
    dense = _dense(function)
    buffer, run = dense.buffer()
    inputs = [np.zeros(dense.size_in(i)[::-1]) for i in range(dense.n_in())]
    outputs = [np.zeros(dense.size_out(i), order="F") for i in range(dense.n_out())]
    for i, array in enumerate(inputs):
        buffer.set_arg(i, array.data)
    for i, array in enumerate(outputs):
        buffer.set_res(i, array.T.data)

    lock = Lock()

    def evaluate(*values: Any, keep: Any = (buffer, dense)) -> list[Array]:  # they have to outlive their views
        with lock:
            for array, value in zip(inputs, values, strict=True):
                array[...] = value
            run()
            return [array.copy("F") for array in outputs]

    return evaluate


def buffered_at_many(function: ca.Function) -> Callable[..., list[Array]]:
    """Return `buffered` of a function of vectors that also takes rows (m, n) for any of them; others hold for all rows.

    With rows, outputs are (m, rows, columns), by one call of a function that is built once for every m.
    """
    dense = _dense(function)  # a map of a function with sparse outputs would be written out
    mapped = cache(lambda count: buffered(dense.map(count)))
    at_one = buffered(dense)

    def evaluate(*values: Array) -> list[Array]:
        count = max((len(value) for value in values if value.ndim > 1), default=0)
        return [matrices(out, count) for out in mapped(count)(*values)] if count else at_one(*values)

    return evaluate


def matrices(side_by_side: Array, count: int) -> Array:
    """Return matrices (count, rows, columns) from the columns that CasADi's map puts side by side."""
    rows, columns = side_by_side.shape
    return side_by_side.reshape(rows, count, columns // count).transpose(1, 0, 2)


def _dense(function: ca.Function) -> ca.Function:
    """Return the function with dense outputs."""
    if all(function.sparsity_out(i).is_dense() for i in range(function.n_out())):
        return function
    arguments = [ca.SX.sym(f"a{i}", function.size_in(i)) for i in range(function.n_in())]
    return ca.Function(function.name(), arguments, [ca.densify(out) for out in function.call(arguments)])


def identity(expression: ca.SX) -> Hashable:
    """Return what two expressions with the same nodes share."""
    nodes = (one.element_hash() for one in expression.nonzeros())
    return (expression.shape, expression.sparsity().hash(), *nodes)


class ExpressionCache:
    """What is made of expressions, by a key; those used last; threads may share it.

    Expressions are the same where their nodes are. The cache keeps them alive, since CasADi gives the address of a node
    that is gone to another one.

    Parameters
    ----------
    most : int
        Number of entries that are kept.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[Hashable, tuple[Any, Sequence[ca.SX]]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def kept(self, key: Hashable, make: Callable[[], Any], parts: Sequence[ca.SX] = ()) -> Any:
        """Return what belongs to a key, made at the first call; `parts` are kept alive with it."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        value = make()
        with self._lock:
            value = self._kept.setdefault(key, (value, tuple(parts)))[0]
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return value


_FUNCTIONS = ExpressionCache(512)


def function_of(arguments: Sequence[ca.SX], expression: ca.SX) -> ca.Function:
    """Return the function of an expression from a cache, built at the first call."""
    parts = (*arguments, expression)
    key = tuple(map(identity, parts))
    function: ca.Function = _FUNCTIONS.kept(key, lambda: ca.Function("values", [*arguments], [expression]), parts)
    return function


def triplet(sparsity: ca.Sparsity) -> tuple[Array, Array]:
    """Return row and column of every nonzero, in CasADi's order."""
    row, column = sparsity.get_triplet()
    return np.array(row, int), np.array(column, int)


def floats(value: Any, what: str, error: type[Exception] = ModelError) -> np.ndarray:
    """Return a copy of `value` as a float array of its shape; what is no number raises the error."""
    try:
        return np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise error(f"{what}: expected numbers, given {value!r:.200}.") from None


def numbers(
    value: Any,
    what: str,
    length: int,
    error: type[Exception] = ModelError,
    *,
    spread: bool = True,
    finite: bool = False,
) -> np.ndarray:
    """Return `value` as a float vector (`spread` repeats a scalar); NaN, and infinity if `finite`, raise the error."""
    try:
        if value is None or isinstance(value, ca.SX | ca.MX) or np.asarray(value).dtype.kind in "US":
            raise TypeError  # NumPy would read None and a symbol as NaN, and "1" as 1
        array = np.array(value, dtype=float)  # a copy: what the user holds may change later
    except Exception:  # CasADi 3.6 raises a bare Exception when a symbol is given for a number
        raise error(f"{what}: expected {length} numbers, given {value!r}.") from None
    if np.ma.is_masked(value):
        raise error(f"{what}: some of its values are masked; fill them.")
    if array.size != max(array.shape, default=1):
        raise error(f"{what}: expected {length} numbers, given an array of shape {array.shape}.")
    array = np.full(length, float(array)) if spread and array.ndim == 0 else array.reshape(-1)
    if array.shape != (length,):
        raise error(f"{what}: expected {length} numbers, given {array.size}.")
    wrong = ~np.isfinite(array) if finite else np.isnan(array)
    if wrong.any():
        first = int(np.argmax(wrong))
        entries = "NaN" if np.isnan(array[first]) else "infinity"
        expected = "; every value has to be finite" if finite else ""
        raise error(f"{what}: contains {entries} at position {first}{expected}.")
    return array
