"""Equations of arcs, switches and collisions as CasADi functions, built once per regime.

They are the necessary conditions of the hybrid minimum principle (HMP, Eqs. 8-12): canonical equations on arcs,
continuity between arcs of one phase, and guard, reset, costate jump and H- = H+ between phases.

The control is eliminated where its law is affine in it; else it is an unknown w at every stage with its law as rows.
Functions depend on regimes and not on the number of arcs or elements, so that a change of the structure builds nothing
that exists already. `boundary_system` places them in one sparse system.
"""

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
    """Control of a regime as an expression in (x, lambda, w), with rows (n_w,) that are zero at the right w.

    If the law can be solved for the control, n_w = 0; otherwise w is the control itself, an additional unknown.
    """

    u: ca.SX
    w: ca.SX
    rows: ca.SX


@dataclass(frozen=True, eq=False, kw_only=True)
class Equations:
    """Rows of the system as a function of one vector of unknowns, with the sparse entries of their Jacobian."""

    function: ca.Function
    rows: Array
    columns: Array

    @cached_property
    def fast(self) -> Callable[..., list[Array]]:
        """Compiled evaluation for one vector: [values, nonzeros of the Jacobian]."""
        return buffered(self.function)


def equations(name: str, unknowns: ca.SX, rows: ca.SX) -> Equations:
    """Build equations with a sparse Jacobian from symbolic rows."""
    rows = ca.densify(rows)
    jacobian = ca.jacobian(rows, unknowns)
    triplet = jacobian.sparsity().get_triplet()
    # vertcat of nothing has no type; the empty column keeps the outputs alike.
    nonzeros = ca.vertcat(*jacobian.nonzeros()) if jacobian.nnz() else ca.SX(0, 1)
    return Equations(
        function=ca.Function(name, [unknowns], [rows, nonzeros]),
        rows=np.array(triplet[0], dtype=int),
        columns=np.array(triplet[1], dtype=int),
    )


class BoundaryFunctions:
    """Factory of the equations of each regime, with a cache."""

    def __init__(self, problem: HybridProblem) -> None:
        self.problem = problem
        for name in ("law", "field", "field_of", "control", "start", "end", "switch", "collision"):
            setattr(self, name, cache(getattr(self, name)))  # per object, so that the cache is freed with it

    def law(self, regime: Digits) -> ControlLaw:
        """Return the control law of a regime."""
        return law_of(self.problem, regime)

    def field(self, regime: Digits) -> Equations:
        """Build (x, lambda, w) -> (H_lambda, -H_x, rows of the law) (Eqs. 8, 9)."""
        p, law = self.problem, self.law(regime)
        rows = ca.vertcat(ca.substitute(p.canonical, p.u, law.u), law.rows)
        return equations("field", ca.vertcat(p.x, p.costate, law.w), rows)

    def field_of(self, regime: Digits, count: int) -> Callable[..., list[Array]]:
        """Build the function of `field` for `count` points (count, n) at once."""
        return buffered(self.field(regime).function.map(count))

    def control(self, regime: Digits, count: int) -> Callable[[Array], Array]:
        """Build the map of points (x, lambda, w) (count, n) to controls (count, n_u)."""
        p, law = self.problem, self.law(regime)
        function = ca.Function("control", [ca.vertcat(p.x, p.costate, law.w)], [ca.densify(law.u)])
        evaluate = buffered(function.map(count))
        return lambda points: evaluate(points)[0].T

    def start(self, regime: Digits) -> Equations:
        """Build the initial condition x = x_0."""
        unknowns, x, _, _, rows = self._side("start", regime)
        return equations("start", unknowns, ca.vertcat(x - self.problem.x0, rows))

    def end(self, regime: Digits) -> Equations:
        """Build the transversality condition lambda = phi_x."""
        p = self.problem
        unknowns, x, costate, _, rows = self._side("end", regime)
        # phi_x is taken first and moved to the symbols of the end then: a gradient by an expression does not exist.
        slope = ca.substitute(ca.gradient(p.terminal_cost, p.x), p.x, x)
        return equations("end", unknowns, ca.vertcat(costate - slope, rows))

    def switch(self, first: Digits, second: Digits) -> Equations:
        """Build the conditions between two arcs: x and lambda are continuous and the boundary of the regime is zero."""
        boundary = self.problem.minimiser.boundary(first, second)
        before, x, costate, boundary, rows = self._side("before", first, boundary)
        after, later_x, later_costate, _, later_rows = self._side("after", second)
        conditions = ca.vertcat(later_x - x, later_costate - costate, boundary, rows, later_rows)
        return equations("switch", ca.vertcat(before, after), conditions)

    def collision(self, first: Digits, second: Digits, jump: int) -> Equations:
        """Build the collision conditions: psi = 0, reset, costate jump with eta (Eq. 10), and H- = H+ (Eq. 11)."""
        # eta is an unknown of the system: H- = H+ determines it together with the time.
        p, eta = self.problem, ca.SX.sym("eta")
        before, x, costate, hamiltonian, rows = self._side("before", first)
        after, later_x, later_costate, later_hamiltonian, later_rows = self._side("after", second)
        reset, guard = ca.substitute([p.resets[jump], p.guards[jump]], [p.x], [x])
        # The costate runs backwards: lambda- follows from lambda+.
        jumped = p.costate_jumps[jump](x, later_costate, eta)
        conditions = [later_x - reset, costate - jumped, guard, hamiltonian - later_hamiltonian, rows, later_rows]
        return equations("collision", ca.vertcat(before, after, eta), ca.vertcat(*conditions))

    def eta(self, jump: int, x: Array, before: Array, after: Array) -> float:
        """Return the multiplier eta that fits costates before and after a jump from x in the least-squares sense."""
        _, reset, _, (normal,) = self.problem.crossings[jump](x)
        # Least squares over all states, since costates of an approximate motion do not fit exactly.
        return float(normal @ (before - reset.T @ after) / (normal @ normal))

    def _side(
        self, name: str, regime: Digits, expression: ca.SX | None = None
    ) -> tuple[ca.SX, ca.SX, ca.SX, ca.SX, ca.SX]:
        """Return unknowns (x, lambda, w) of one side, x, lambda, an expression (default H) and the rows of the law."""
        p, law = self.problem, self.law(regime)
        x, costate = ca.SX.sym(f"x_{name}", p.n_x), ca.SX.sym(f"costate_{name}", p.n_x)
        w = ca.SX.sym(f"w_{name}", law.w.numel())
        # The control first: its law holds the symbols of x and lambda that are replaced next.
        controlled = ca.substitute(p.hamiltonian if expression is None else expression, p.u, law.u)
        old, new = [ca.vertcat(p.x, p.costate)], [ca.vertcat(x, costate)]
        if w.numel():
            old, new = [*old, law.w], [*new, w]
        controlled, rows = ca.substitute([controlled, law.rows], old, new)
        return ca.vertcat(x, costate, w), x, costate, controlled, rows


def law_of(problem: HybridProblem, regime: Digits) -> ControlLaw:
    """Return the law of a regime, solved for the control if it is affine in it.

    Solving also keeps derivatives of |u| at u = 0 out of the equations: where the control is zero, it is a constant.
    """
    # Affine in u: rows = jacobian u + offset, solved here once and symbolically.
    rows, u = problem.minimiser.law(regime), problem.u
    jacobian = ca.jacobian(rows, u)
    if ca.depends_on(jacobian, u):
        return ControlLaw(u=u, w=u, rows=rows)
    offset = ca.substitute(rows, u, ca.SX.zeros(problem.n_u))
    if jacobian.sparsity().is_diag():
        u_law = -ca.densify(offset) / ca.diag(jacobian)
    else:
        u_law = -ca.solve(ca.densify(jacobian), ca.densify(offset))
    return ControlLaw(u=u_law, w=ca.SX(0, 1), rows=ca.SX(0, 1))
