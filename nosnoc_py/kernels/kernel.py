"""One vector function F(a) with first and second derivatives, and its evaluation at many places by one call.

Derivatives are vectors of nonzeros with constant positions: nothing has to be evaluated to know where they stand. The
last row of F may be a cost; rows and cost have multipliers alike, so that the Hessian of a Lagrangian needs no case of
its own.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.functions import triplet
from nosnoc_py.kernels.machine_code import MachineCode

Array = np.ndarray


class Kernel:
    """Function F(a) = (rows, cost) with its Jacobian and the Hessian of multipliers' F.

    Parameters
    ----------
    a : SX (n,)
        Arguments.
    rows : SX (m,)
    cost : SX scalar, optional

    Attributes
    ----------
    n, m : int
        Numbers of arguments and of rows, without the cost, which is row m.
    jacobian_pattern, hessian_pattern : (rows, columns)
        Positions of the nonzeros; upper half of the Hessian.

    Examples
    --------
    >>> import casadi as ca, numpy as np
    >>> a = ca.SX.sym("a", 2)
    >>> kernel = Kernel(a, a[0] * a[1], a[0] ** 2)
    >>> evaluator = KernelEvaluator(kernel, np.array([[3.0, 4.0], [1.0, 5.0]]))
    >>> evaluator.values()
    array([[12.,  9.],
           [ 5.,  1.]])
    """

    def __init__(self, a: ca.SX, rows: ca.SX, cost: ca.SX | float = 0.0) -> None:
        self.a, self.rows, self.cost = a, rows, ca.SX(cost)
        self.n, self.m = int(a.numel()), int(rows.numel())
        self.has_cost = not self.cost.is_constant()
        self._all = ca.densify(ca.vertcat(ca.SX(0, 1), rows, self.cost))
        self._codes: dict[str, MachineCode] = {}

    def code(self, name: str) -> MachineCode:
        """Return the function "values", "first" or "second" in the form in which it is evaluated now."""
        if name not in self._codes:
            self._codes[name] = MachineCode(getattr(self, name))
        return self._codes[name]

    @cached_property
    def values(self) -> ca.Function:
        """Function a -> F (m + 1,)."""
        return ca.Function("values", [self.a], [self._all])

    @cached_property
    def _jacobian(self) -> ca.SX:
        return ca.jacobian(self._all, self.a)

    @cached_property
    def first(self) -> ca.Function:
        """Function a -> nonzeros of the Jacobian of F."""
        return ca.Function("first", [self.a], [_nonzeros(self._jacobian)])

    @cached_property
    def jacobian_pattern(self) -> tuple[Array, Array]:
        """Row and column of every nonzero of the Jacobian."""
        return triplet(self._jacobian.sparsity())

    @cached_property
    def _hessian(self) -> tuple[ca.SX, ca.SX]:
        multipliers = ca.SX.sym("multipliers", self.m + 1)
        return ca.triu(ca.hessian(ca.dot(multipliers, self._all), self.a)[0]), multipliers

    @cached_property
    def second(self) -> ca.Function:
        """Function (a, multipliers of F) -> nonzeros of the upper half of the Hessian."""
        hessian, multipliers = self._hessian
        return ca.Function("second", [self.a, multipliers], [_nonzeros(hessian)])

    @cached_property
    def hessian_pattern(self) -> tuple[Array, Array]:
        """Row and column of every nonzero of the upper half of the Hessian."""
        return triplet(self._hessian[0].sparsity())

    @cached_property
    def operations(self) -> int:
        """Operations of F and its derivatives."""
        return int(sum(f.n_instructions() for f in (self.values, self.first, self.second)))


class KernelEvaluator:
    """Evaluator of a kernel at the places of one array of arguments, which it reads at every call.

    Parameters
    ----------
    kernel : Kernel
    a : (places, n)
        Arguments, contiguous; the caller changes them in place.
    multipliers : (places, m + 1), optional
        The same for the multipliers of `second`; default: an array of its own.
    """

    def __init__(self, kernel: Kernel, a: Array, multipliers: Array | None = None) -> None:
        self.kernel, self.a, self.places = kernel, a, len(a)
        self.multipliers = np.zeros((self.places, kernel.m + 1)) if multipliers is None else multipliers
        self._runs: dict[str, tuple[Any, Any, ca.Function]] = {}
        # Those whose function stays what it is.
        self._settled: dict[str, Any] = {}
        self._outputs: dict[str, Array] = {}

    def values(self) -> Array:
        """Return rows and cost (places, m + 1); valid until the next call."""
        return self.run("values")

    def first(self) -> Array:
        """Return the nonzeros of the Jacobian (places, nonzeros); valid until the next call."""
        return self.run("first")

    def second(self) -> Array:
        """Return the nonzeros of the Hessian for `multipliers` (places, nonzeros); valid until the next call."""
        return self.run("second")

    def size(self, name: str) -> int:
        """Return the number of values of "values", "first" or "second"."""
        return self.places * int(self.kernel.code(name).function.size1_out(0))

    def write_to(self, name: str, memory: Array) -> None:
        """Let "values", "first" or "second" be written to memory (size,) of the caller, before they are called."""
        self._outputs[name] = memory.reshape(self.places, -1)

    def run(self, name: str) -> Array:
        """Return "values", "first" or "second"; valid until the next call."""
        if name in self._settled:
            self._settled[name]()
            return self._outputs[name]
        code = self.kernel.code(name)
        if code.count(self.places) or name not in self._runs or self._runs[name][2] is not code.function:
            function = code.function
            mapped = function.map(self.places) if self.places > 1 else function
            buffer, run = mapped.buffer()
            if name not in self._outputs:
                self.write_to(name, np.zeros(self.size(name)))
            for i, array in enumerate((self.a, self.multipliers)[: function.n_in()]):
                buffer.set_arg(i, array.reshape(-1).data)
            buffer.set_res(0, self._outputs[name].reshape(-1).data)
            self._runs[name] = run, (buffer, mapped), function  # which have to outlive their views
            if code.settled:
                self._settled[name] = run
        self._runs[name][0]()
        return self._outputs[name]


def _nonzeros(matrix: ca.SX) -> ca.SX:
    return ca.vertcat(ca.SX(0, 1), *matrix.nonzeros())
