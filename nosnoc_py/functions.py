"""CasADi functions at the speed of their virtual machine, for what is evaluated thousands of times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np

Array = np.ndarray


def buffered(function: ca.Function) -> Callable[..., list[Array]]:
    """A CasADi function as a fast function of arrays; it returns fresh dense arrays.

    A matrix argument is given by rows for its columns, or flat in CasADi's order: what `function.map(count)` takes as
    (n, count) is (count, n) here. Outputs have CasADi's shapes.
    """
    arguments = [ca.SX.sym(f"a{i}", function.size_in(i)) for i in range(function.n_in())]
    if all(function.sparsity_out(i).is_dense() for i in range(function.n_out())):
        dense = function
    else:
        outputs = function.call(arguments)
        dense = ca.Function(function.name(), arguments, [ca.densify(out) for out in outputs])
    buffer, run = dense.buffer()
    inputs = [np.zeros(dense.numel_in(i)) for i in range(dense.n_in())]
    outputs = [np.zeros(dense.numel_out(i)) for i in range(dense.n_out())]
    views = [array.reshape(dense.size_out(i), order="F") for i, array in enumerate(outputs)]
    for i, array in enumerate(inputs):
        buffer.set_arg(i, array.data)
    for i, array in enumerate(outputs):
        buffer.set_res(i, array.data)

    def evaluate(*values: Any, keep: Any = (buffer, dense)) -> list[Array]:  # they have to outlive their views
        for array, value in zip(inputs, values, strict=True):
            array[:] = value.reshape(-1) if isinstance(value, np.ndarray) else value
        run()
        return [view.copy("F") for view in views]

    return evaluate
