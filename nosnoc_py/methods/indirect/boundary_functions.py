"""The equations of arcs and of what lies between them, as CasADi functions that are built once per regime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.methods.indirect.boundary_arcs import Digits
from nosnoc_py.methods.indirect.problem import HybridProblem

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class ControlLaw:
    """The control of a regime as an expression in (x, lambda, w), and rows (n_w,) that are zero for the right w.

    There is nothing implicit, n_w = 0, where the law can be solved for the control; else w is the control.
    """

    u: ca.SX
    w: ca.SX
    rows: ca.SX


@dataclass(frozen=True, eq=False, kw_only=True)
class Equations:
    """Rows as a function of one vector of unknowns, and the nonzeros of their Jacobian, with their places."""

    function: ca.Function
    rows: Array
    columns: Array

    @cached_property
    def fast(self) -> Callable[..., list[Array]]:
        """The function for one vector, as arrays."""
        return buffered(self.function)


def equations(name: str, unknowns: ca.SX, rows: ca.SX) -> Equations:
    """Differentiate rows, once and sparsely."""
    rows = ca.densify(rows)
    slope = ca.jacobian(rows, unknowns)
    places = slope.sparsity().get_triplet()
    nonzeros = ca.vertcat(*slope.nonzeros()) if slope.nnz() else ca.SX(0, 1)
    return Equations(
        function=ca.Function(name, [unknowns], [rows, nonzeros]),
        rows=np.array(places[0], dtype=int),
        columns=np.array(places[1], dtype=int),
    )


class BoundaryFunctions:
    """Equations by regime; what is asked for twice is built once."""

    def __init__(self, problem: HybridProblem) -> None:
        self.problem = problem
        for name in ("law", "field", "field_of", "control", "start", "end", "switch", "collision"):
            setattr(self, name, cache(getattr(self, name)))  # of this object, and gone with it

    def law(self, regime: Digits) -> ControlLaw:
        """The law of a regime."""
        return law_of(self.problem, regime)

    def field(self, regime: Digits) -> Equations:
        """(x, lambda, w) -> (H_lambda, -H_x, rows of the law)."""
        p, law = self.problem, self.law(regime)
        rows = ca.vertcat(ca.substitute(p.canonical, p.u, law.u), law.rows)
        return equations("field", ca.vertcat(p.x, p.costate, law.w), rows)

    def field_of(self, regime: Digits, count: int) -> Callable[..., list[Array]]:
        """The same for `count` points (count, n)."""
        return buffered(self.field(regime).function.map(count))

    def control(self, regime: Digits, count: int) -> Callable[[Array], Array]:
        """Points (x, lambda, w) (count, n) -> controls (count, n_u)."""
        p, law = self.problem, self.law(regime)
        function = ca.Function("control", [ca.vertcat(p.x, p.costate, law.w)], [ca.densify(law.u)])
        evaluate = buffered(function.map(count))
        return lambda points: evaluate(points)[0].T

    def start(self, regime: Digits) -> Equations:
        """x = x_0."""
        unknowns, x, _, _, rows = self._side("start", regime)
        return equations("start", unknowns, ca.vertcat(x - self.problem.x0, rows))

    def end(self, regime: Digits) -> Equations:
        """lambda = phi_x."""
        p = self.problem
        unknowns, x, costate, _, rows = self._side("end", regime)
        slope = ca.substitute(ca.gradient(p.terminal_cost, p.x), p.x, x)
        return equations("end", unknowns, ca.vertcat(costate - slope, rows))

    def switch(self, one: Digits, other: Digits) -> Equations:
        """x and lambda go on; the law changes where its boundary is zero."""
        edge = self.problem.minimiser.boundary(one, other)
        before, x, costate, edge, rows = self._side("before", one, edge)
        after, later_x, later_costate, _, later_rows = self._side("after", other)
        conditions = ca.vertcat(later_x - x, later_costate - costate, edge, rows, later_rows)
        return equations("switch", ca.vertcat(before, after), conditions)

    def collision(self, one: Digits, other: Digits, jump: int) -> Equations:
        """psi = 0, the reset, Eq. 10 with eta, and H- = H+ (Eq. 11)."""
        p, eta = self.problem, ca.SX.sym("eta")
        before, x, costate, hamiltonian, rows = self._side("before", one)
        after, later_x, later_costate, later_hamiltonian, later_rows = self._side("after", other)
        reset, guard = ca.substitute([p.resets[jump], p.guards[jump]], [p.x], [x])
        jumped = p.costate_jumps[jump](x, later_costate, eta)
        conditions = [later_x - reset, costate - jumped, guard, hamiltonian - later_hamiltonian, rows, later_rows]
        return equations("collision", ca.vertcat(before, after, eta), ca.vertcat(*conditions))

    def eta(self, jump: int, x: Array, before: Array, after: Array) -> float:
        """The multiplier that fits costates before and after a jump from x best."""
        _, reset, _, (normal,) = self.problem.crossings[jump](x)
        return float(normal @ (before - reset.T @ after) / (normal @ normal))

    def _side(
        self, name: str, regime: Digits, expression: ca.SX | None = None
    ) -> tuple[ca.SX, ca.SX, ca.SX, ca.SX, ca.SX]:
        """Unknowns (x, lambda, w) on one side, x, lambda, an expression (the Hamiltonian) and the rows of the law."""
        p, law = self.problem, self.law(regime)
        x, costate = ca.SX.sym(f"x_{name}", p.n_x), ca.SX.sym(f"costate_{name}", p.n_x)
        w = ca.SX.sym(f"w_{name}", law.w.numel())
        controlled = ca.substitute(p.hamiltonian if expression is None else expression, p.u, law.u)
        old, new = [ca.vertcat(p.x, p.costate)], [ca.vertcat(x, costate)]
        if w.numel():
            old, new = [*old, law.w], [*new, w]
        controlled, rows = ca.substitute([controlled, law.rows], old, new)
        return ca.vertcat(x, costate, w), x, costate, controlled, rows


def law_of(problem: HybridProblem, regime: Digits) -> ControlLaw:
    """The law of a regime, solved for the control where it is affine in it.

    That also keeps derivatives of |u| at u = 0 out of the equations: where the control is zero, it is a number there.
    """
    rows, u = problem.minimiser.law(regime), problem.u
    slope = ca.jacobian(rows, u)
    if ca.depends_on(slope, u):
        return ControlLaw(u=u, w=u, rows=rows)
    offset = ca.substitute(rows, u, ca.SX.zeros(problem.n_u))
    if slope.sparsity().is_diag():
        solved = -ca.densify(offset) / ca.diag(slope)
    else:
        solved = -ca.solve(ca.densify(slope), ca.densify(offset))
    return ControlLaw(u=solved, w=ca.SX(0, 1), rows=ca.SX(0, 1))
