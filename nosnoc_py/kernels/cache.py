"""Kernels of one problem, by the expressions that they are made of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Any

import casadi as ca

from nosnoc_py.kernels.kernel import Kernel

# Number of kernels that a problem keeps: four for every mode of a search that visits a hundred.
MOST = 400


class KernelCache:
    """Kernels by a name and their expressions, and what they are made of; those used last; threads may share it.

    Expressions are the same where their nodes are. The cache keeps them alive, since CasADi gives the address of a node
    that is gone to another one.

    Examples
    --------
    >>> import casadi as ca
    >>> a, cache = ca.SX.sym("a", 2), KernelCache()
    >>> square = a[0] * a[1]
    >>> one = cache.kernel("product", [a, square], lambda: Kernel(a, square))
    >>> cache.kernel("product", [a, square], lambda: Kernel(a, square)) is one
    True
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._kept: OrderedDict[Hashable, tuple[Any, Sequence[ca.SX]]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def kernel(self, name: str, parts: Sequence[ca.SX], make: Callable[[], Kernel], *numbers: Any) -> Kernel:
        """Return the kernel of these expressions and numbers (hashable), made at the first call.

        Raises
        ------
        TypeError
            If a number is not hashable.
        """
        found: Kernel = self.kept((name, numbers, *map(identity, parts)), make, parts)
        return found

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


def identity(expression: ca.SX) -> Hashable:
    """Return what two expressions with the same nodes share."""
    nodes = (one.element_hash() for one in expression.nonzeros())
    return (expression.shape, expression.sparsity().hash(), *nodes)
