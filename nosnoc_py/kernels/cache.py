"""Kernels of one problem, by the expressions that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import casadi as ca

from nosnoc_py.functions import ExpressionCache, identity
from nosnoc_py.kernels.kernel import Kernel

# Number of kernels that a problem keeps: four for every mode of a search that visits a hundred.
MOST_KERNELS = 400


class KernelCache(ExpressionCache):
    """Kernels by a name and their expressions, and what they are made of.

    Examples
    --------
    >>> import casadi as ca
    >>> a, cache = ca.SX.sym("a", 2), KernelCache()
    >>> square = a[0] * a[1]
    >>> one = cache.kernel("product", [a, square], lambda: Kernel(a, square))
    >>> cache.kernel("product", [a, square], lambda: Kernel(a, square)) is one
    True
    """

    def __init__(self, most: int = MOST_KERNELS) -> None:
        super().__init__(most)

    def kernel(self, name: str, parts: Sequence[ca.SX], make: Callable[[], Kernel], *numbers: Any) -> Kernel:
        """Return the kernel of these expressions and numbers (hashable), made at the first call.

        Raises
        ------
        TypeError
            If a number is not hashable.
        """
        found: Kernel = self.kept((name, numbers, *map(identity, parts)), make, parts)
        return found
