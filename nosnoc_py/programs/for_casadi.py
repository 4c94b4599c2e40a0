"""A program of blocks as CasADi's solvers take it: functions that call its evaluation as numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.programs.program import BlockProgram

Array = np.ndarray


class ForCasadi:
    """Program in the form of `mpcc.nlp.SmoothProgram`, with the scaled unknowns of a program of blocks.

    Parameters
    ----------
    program : BlockProgram
    """

    def __init__(self, program: BlockProgram) -> None:
        self.program = program
        self.lbx, self.ubx, self.lbg, self.ubg = program.lbx, program.ubx, program.lbg, program.ubg
        self.operations, self.entries = program.operations, program.entries
        self._known: dict[str, tuple[Array, tuple[Any, Array]]] = {}
        n, m = program.size, program.rows
        self._orders = [_column_major(pattern) for pattern in (program.jacobian_pattern, program.hessian_pattern)]
        jacobian, hessian = (
            _sparsity(pattern, order, shape)
            for pattern, order, shape in zip(
                (program.jacobian_pattern, program.hessian_pattern), self._orders, ((m, n), (n, n)), strict=True
            )
        )
        x, one, none = ca.Sparsity.dense(n, 1), ca.Sparsity.dense(1, 1), ca.Sparsity.dense(0, 1)
        rows = ca.Sparsity.dense(m, 1)
        point = {"x": x, "p": none}
        self._functions = {
            "values": _Function("nlp_fg", point, {"f": one, "g": rows}, self._values),
            "grad_f": _Function("nlp_grad_f", point, {"f": one, "grad_f_x": x}, self._gradient),
            "jac_g": _Function("nlp_jac_g", point, {"g": rows, "jac_g_x": jacobian}, self._jacobian),
            "hess_lag": _Function(
                "nlp_hess_l", {**point, "lam_f": one, "lam_g": rows}, {"triu_hess_gamma_x_x": hessian}, self._hessian
            ),
        }
        self.x, self.p = ca.MX.sym("x", n), ca.MX(0, 1)
        self.f, self.g = self._functions["values"](self.x, self.p)

    @cached_property
    def derivatives(self) -> dict[str, ca.Function]:
        """Derivative functions in the form that `nlpsol` takes."""
        return {name: self._functions[name] for name in ("grad_f", "jac_g", "hess_lag")}

    # A solver asks for objective, rows and their derivatives one after another at the same point.
    def _at(self, x: Array, name: str) -> tuple[Any, Array]:
        known = self._known.get(name)
        if known is None or not np.array_equal(known[0], x):
            known = self._known[name] = x, getattr(self.program, name)(x)
        found: tuple[Any, Array] = known[1]
        return found

    def _values(self, x: Array, _: Array) -> tuple[Any, ...]:
        return self._at(x, "values")

    def _gradient(self, x: Array, _: Array) -> tuple[Any, ...]:
        return self._at(x, "values")[0], self._at(x, "first")[0]

    def _jacobian(self, x: Array, _: Array) -> tuple[Any, ...]:
        return self._at(x, "values")[1], self._at(x, "first")[1][self._orders[0]]

    def _hessian(self, x: Array, _: Array, weight: Array, multipliers: Array) -> tuple[Any, ...]:
        return (self.program.second(x, float(weight[0]), multipliers)[self._orders[1]],)


class _Function(ca.Callback):
    """CasADi function that calls a function of arrays."""

    def __init__(
        self,
        name: str,
        inputs: dict[str, ca.Sparsity],
        outputs: dict[str, ca.Sparsity],
        function: Callable[..., Sequence[Any]],
    ) -> None:
        ca.Callback.__init__(self)
        self.inputs, self.outputs, self.function = list(inputs.items()), list(outputs.items()), function
        self.construct(name, {})

    def get_n_in(self) -> int:
        return len(self.inputs)

    def get_n_out(self) -> int:
        return len(self.outputs)

    def get_name_in(self, i: int) -> str:
        return self.inputs[i][0]

    def get_name_out(self, i: int) -> str:
        return self.outputs[i][0]

    def get_sparsity_in(self, i: int) -> ca.Sparsity:
        return self.inputs[i][1]

    def get_sparsity_out(self, i: int) -> ca.Sparsity:
        return self.outputs[i][1]

    def has_eval_buffer(self) -> bool:
        return True

    def eval_buffer(self, arguments: Sequence[Any], results: Sequence[Any]) -> int:
        given = [
            np.zeros(pattern.nnz()) if part is None else np.frombuffer(part).copy()
            for part, (_, pattern) in zip(arguments, self.inputs, strict=True)
        ]
        for result, value in zip(results, self.function(*given), strict=True):
            if result is not None and len(result):
                np.frombuffer(result)[...] = value  # the memory is CasADi's
        return 0


def _column_major(pattern: tuple[Array, Array]) -> Array:
    """Return the order of nonzeros in CasADi's matrices."""
    return np.lexsort(pattern)


def _sparsity(pattern: tuple[Array, Array], order: Array, shape: tuple[int, int]) -> ca.Sparsity:
    row, column = (part[order].tolist() for part in pattern)
    return ca.Sparsity.triplet(*shape, row, column)
