"""Functions and derivatives of a program, evaluated into NumPy buffers without CasADi objects in between.

For small programs the conversion to and from `DM` costs more than the evaluation. Matrices are therefore vectors of
nonzeros; their positions are constant and read once. Values, first and second derivatives are separate functions, as a
line search needs values only.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered, triplet
from nosnoc_py.mpcc.nlp import SmoothProgram

Array = np.ndarray


class Evaluation:
    """Evaluator of f, g, gradient, Jacobian and Hessian of the Lagrangian; matrices are returned as nonzeros.

    Attributes
    ----------
    n, m : int
        Numbers of variables and rows.
    jacobian_pattern, hessian_pattern : (rows, columns)
        Positions of the nonzeros; upper half of the Hessian.
    """

    def __init__(self, nlp: SmoothProgram) -> None:
        self.n, self.m = int(nlp.x.numel()), int(nlp.g.numel())
        first, jacobian, hessian = (nlp.derivatives[name] for name in ("grad_f", "jac_g", "hess_lag"))
        self.jacobian_pattern = triplet(jacobian.sparsity_out(1))
        self.hessian_pattern = triplet(hessian.sparsity_out(0))
        # MX calls the derivative functions of `nlp` as they are; they are shared with IPOPT and not expanded a second
        # time.
        x, p = ca.MX.sym("x", self.n), ca.MX.sym("p", nlp.p.numel())
        weight, multipliers = ca.MX.sym("weight"), ca.MX.sym("multipliers", self.m)
        values = ca.Function("values", [nlp.x, nlp.p], [ca.densify(nlp.f), ca.densify(nlp.g)])
        # Nonzeros as dense columns: `buffered` would fill sparse outputs up to full matrices.
        slopes = [first(x, p)[1], ca.vec(jacobian(x, p)[1].nz[:])]
        bends = [ca.vec(hessian(x, p, weight, multipliers).nz[:])]
        self._values = buffered(values)
        self._first = buffered(ca.Function("first", [x, p], slopes))
        self._second = buffered(ca.Function("second", [x, p, weight, multipliers], bends))
        self._p = np.zeros(nlp.p.numel())

    def at(self, p: Array) -> None:
        """Set the parameters of the program for all later calls."""
        self._p = np.asarray(p, float)

    def values(self, x: Array) -> tuple[float, Array]:
        """Return f and g (m,) at x (n,)."""
        f, g = self._values(x, self._p)
        return float(f[0, 0]), g[:, 0]

    def first(self, x: Array) -> tuple[Array, Array]:
        """Return the gradient of f (n,) and the nonzeros of the Jacobian of g."""
        gradient, jacobian = self._first(x, self._p)
        return gradient[:, 0], jacobian[:, 0]

    def second(self, x: Array, weight: float, multipliers: Array) -> Array:
        """Return the nonzeros of the upper half of the Hessian of weight f + multipliers'g."""
        return np.asarray(self._second(x, self._p, weight, multipliers)[0][:, 0])


def evaluation_of(nlp: Any) -> Any:
    """Return the evaluator of a program: the program itself if it evaluates numbers."""
    return nlp if hasattr(nlp, "second") else Evaluation(nlp)
