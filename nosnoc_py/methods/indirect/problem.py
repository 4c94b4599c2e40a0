"""Optimal control problem in the form of the hybrid minimum principle: flow, jumps, costs, Hamiltonian, control set.

HMP: Hu, Long, Zang, E, Han, "Solving optimal control problems of rigid-body dynamics with collisions using the hybrid
minimum principle"; equation numbers in this folder are those of that paper. With H(x, lambda, u) = lambda'f + L,

    x' = H_lambda,  lambda' = -H_x,  u = argmin H over U,  x(0) = x_0,  lambda(T) = phi_x,
    psi(x-) = 0,  x+ = g(x-),  lambda- = g_x' lambda+ + eta psi_x',  H- = H+  at collisions.

`HybridProblem` holds the expressions and builds functions of them on first use. Parameters, x(0) and the horizon are
numbers here. Problems outside of the principle (friction, constraints on states, free times) are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.functions import buffered
from nosnoc_py.methods.indirect.control_set import ControlSet, control_set
from nosnoc_py.methods.indirect.minimiser import Minimiser
from nosnoc_py.methods.indirect.minimiser_forms import minimiser
from nosnoc_py.ocp import OCP
from nosnoc_py.reformulation.hybrid import hybrid
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.hybrid import HybridSystem

DIRECT = "ns.FESDJ(...), or ns.FESD(...) for a Filippov system,"
# The method for a system that the user has written with resets, which finite elements do not take.
OF_HYBRID = "ns.MultiPhase(sequence=[{}, 'impact NAME', {}]),"


@dataclass(frozen=True, eq=False, kw_only=True)
class HybridProblem:
    """Problem: minimise phi(x(T)) + integral of L(x, u) subject to a hybrid system with u in U (HMP, Eq. 5).

    All expressions use the symbols x, u and the costate; parameters and x(0) are numbers.

    Attributes
    ----------
    ocp : OCP
    system : HybridSystem
    x0 : (n_x,)
    horizon : float
        T [s].
    x, u, costate : SX
        Symbols.
    flow : SX (n_x,)
    guards : SX (n_jumps,)
        psi_i(x); a jump happens where psi_i reaches zero from above.
    resets : tuple of SX (n_x,)
        State after the jump, g_i(x).
    impulses : SX (n_jumps,)
        Impulses recorded by events; NaN for jumps without one.
    running_cost, terminal_cost : SX
        L(x, u), phi(x).
    controls : ControlSet
        U.
    method : str
        Name of the method in error messages.
    """

    ocp: OCP
    system: HybridSystem
    x0: np.ndarray
    horizon: float
    x: ca.SX
    u: ca.SX
    costate: ca.SX
    flow: ca.SX
    guards: ca.SX
    resets: tuple[ca.SX, ...]
    impulses: ca.SX
    running_cost: ca.SX
    terminal_cost: ca.SX
    controls: ControlSet
    method: str

    @cached_property
    def minimiser(self) -> Minimiser:
        """Minimiser of the Hamiltonian over U (HMP, Eq. 12).

        Raises
        ------
        OptionError
            If the Hamiltonian is unbounded on U.
        """
        return minimiser(self.x, self.costate, self.u, self.flow, self.running_cost, self.controls, self.method)

    @cached_property
    def hamiltonian(self) -> ca.SX:
        """Hamiltonian H(x, lambda, u) = lambda'f + L (HMP, Eq. 7)."""
        return ca.dot(self.costate, self.flow) + self.running_cost

    @cached_property
    def canonical(self) -> ca.SX:
        """Rates of (x, lambda): H_lambda, -H_x (HMP, Eqs. 8, 9)."""
        return ca.densify(ca.vertcat(self.flow, -ca.gradient(self.hamiltonian, self.x)))

    @cached_property
    def guard_rates(self) -> ca.Function:
        """Function (x, u) -> guards psi, their rates psi_x f, and the scale |psi_x| |f| of the rates."""
        gradient = ca.densify(ca.jacobian(self.guards, self.x))
        # By Cauchy-Schwarz the largest rate that is possible: rate over size is the sine of the angle to the guard
        # surface.
        sizes = ca.sqrt(ca.sum2(gradient**2)) * ca.norm_2(self.flow)
        outputs = [self.guards, ca.mtimes(gradient, self.flow), sizes]
        return ca.Function("guard_rates", [self.x, self.u], [ca.densify(out) for out in outputs])

    @cached_property
    def crossings(self) -> tuple[Callable[..., list[np.ndarray]], ...]:
        """Functions x -> g, g_x, psi, psi_x, one per jump."""
        blocks = [
            (g, ca.jacobian(g, self.x), psi, ca.jacobian(psi, self.x))
            for g, psi in zip(self.resets, ca.vertsplit(self.guards), strict=True)
        ]
        return tuple(buffered(ca.Function("crossing", [self.x], list(block))) for block in blocks)

    @cached_property
    def costate_jumps(self) -> tuple[ca.Function, ...]:
        """Functions (x-, lambda+, eta) -> lambda- = g_x' lambda+ + eta psi_x' (HMP, Eq. 10), one per jump."""
        eta = ca.SX.sym("eta")
        pairs = zip(self.resets, ca.vertsplit(self.guards), strict=True)
        # One gradient gives both terms of Eq. 10 without forming g_x.
        slopes = [ca.gradient(ca.dot(self.costate, g) + eta * psi, self.x) for g, psi in pairs]
        return tuple(ca.Function("jump", [self.x, self.costate, eta], [ca.densify(slope)]) for slope in slopes)

    @cached_property
    def terminal(self) -> Callable[..., list[np.ndarray]]:
        """Function x -> phi, phi_x, phi_xx."""
        slope = ca.gradient(self.terminal_cost, self.x)
        outputs = [self.terminal_cost, slope, ca.jacobian(slope, self.x)]
        # phi_xx serves Newton's methods that end on lambda(T) = phi_x.
        return buffered(ca.Function("terminal", [self.x], outputs))

    def along(self, outputs: Sequence[ca.SX], count: int) -> Callable[..., list[np.ndarray]]:
        """Build a fast evaluation of expressions at points x, lambda, u, (count, n) each; results are columns."""
        dense = [ca.densify(output) for output in outputs]
        # One call for all points: calls from Python cost more than the evaluations.
        return buffered(ca.Function("along", [self.x, self.costate, self.u], dense).map(count))

    @property
    def n_x(self) -> int:
        """Number of states."""
        return int(self.x.numel())

    @property
    def n_u(self) -> int:
        """Number of controls."""
        return int(self.u.numel())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the jumps."""
        return tuple(jump.name for jump in self.system.jumps)


def hybrid_problem(ocp: OCP, method: str) -> HybridProblem:
    """Convert an OCP for the minimum principle; `method` is the name in error messages.

    Raises
    ------
    OptionError, ModelError
        For problems outside of the minimum principle of isolated collisions: other systems, friction, inelastic
        contacts, constraints on states, free initial states, times or parameters, an unbounded Hamiltonian. The message
        names a method that fits.
    """
    system = hybrid_system(ocp, method)
    _check_fits(ocp, method)
    # `_check_fits` refuses a free initial state; this is for the type checker.
    assert ocp.x0 is not None
    controls = control_set(ocp, method)
    problem = substituted_problem(
        ocp, system, x0=ocp.x0, horizon=ocp.horizon, p=ocp.p, controls=controls, method=method
    )
    problem.minimiser  # noqa: B018  raise the error of an unbounded Hamiltonian at once
    return problem


def hybrid_system(ocp: OCP, method: str) -> HybridSystem:
    """Return the hybrid system of an OCP, with at least one jump; `method` is the name in error messages.

    Raises
    ------
    OptionError, ModelError
        If the system is of another type or has no jumps.
    """
    if not isinstance(ocp.system, CLS | HybridSystem):
        raise OptionError(
            f"{method} is for isolated collisions: a frictionless CLS or a HybridSystem, given "
            f"{type(ocp.system).__name__}; use ns.FESD(...) or ns.DirectShooting(form='smoothed')."
        )
    system = hybrid(ocp.system) if isinstance(ocp.system, CLS) else ocp.system
    if not system.jumps:
        raise OptionError(
            f"{method}: the system has no contacts or jumps, so there is no collision to account for; use "
            f"{'ns.MultiPhase()' if isinstance(ocp.system, HybridSystem) else 'ns.FESDJ(...)'}."
        )
    return system


def substituted_problem(
    ocp: OCP,
    system: HybridSystem,
    *,
    x0: Sequence[float] | np.ndarray,
    horizon: float,
    p: np.ndarray,
    controls: ControlSet,
    method: str,
) -> HybridProblem:
    """Insert numbers for x0 (n_x,), the horizon [s] and p (n_p,) into an OCP and its hybrid system."""
    jumps, fixed = system.jumps, ocp.with_values(horizon, p)
    # The terminal cost may refer to x(0), which is a number here.
    terminal = ca.substitute(fixed.terminal_cost, ocp.system.x_initial, ca.SX(np.asarray(x0, dtype=float)))
    expressions = {
        "flow": system.flow,
        "guards": ca.vertcat(*[jump.guard for jump in jumps]),
        # NaN marks jumps without an impulse, which events then leave out.
        "impulses": ca.vertcat(*[ca.SX(np.nan) if jump.impulse is None else jump.impulse for jump in jumps]),
        "running_cost": ocp.stage_cost,
        "terminal_cost": terminal,
    }
    x, costate = ca.SX.sym("x", system.x.numel()), ca.SX.sym("costate", system.x.numel())
    old, new = ca.vertcat(system.x, system.p), ca.vertcat(x, ca.SX(np.asarray(p, dtype=float)))
    substituted = ca.substitute([*expressions.values(), *[jump.reset for jump in jumps]], [old], [new])
    dense = [ca.densify(expression) for expression in substituted]
    return HybridProblem(
        ocp=fixed,
        system=system,
        x0=np.array(x0, dtype=float),
        horizon=float(horizon),
        x=x,
        u=system.u,
        costate=costate,
        resets=tuple(dense[len(expressions) :]),
        controls=controls,
        method=method,
        **dict(zip(expressions, dense, strict=False)),
    )


def with_cost(problem: HybridProblem) -> HybridProblem:
    """Return the problem with the accumulated running cost as an additional state."""
    cost = ca.SX.sym("cost")
    return replace(
        problem,
        x=ca.vertcat(problem.x, cost),
        # Jumps cost nothing: the accumulated cost passes through every reset.
        x0=np.append(problem.x0, 0.0),
        flow=ca.vertcat(problem.flow, problem.running_cost),
        resets=tuple(ca.vertcat(reset, cost) for reset in problem.resets),
    )


def _check_fits(ocp: OCP, method: str) -> None:
    """Raise an error that lists the features of an OCP outside of the scope of the method."""
    # All reasons are collected, so that a user does not meet them one by one.
    lower, upper = ocp.x_bounds
    conditions = {
        "a free initial state": ocp.x0 is None,
        "a free horizon": ocp.free_time is not None,
        "free parameters": bool(ocp.free_parameters),
        "complementarities": bool(ocp.complementarities),
        "initial constraints": bool(ocp.initial_constraints),
        "terminal constraints": bool(ocp.terminal_constraints),
        "costs or constraints at chosen times": bool(ocp.point_terms),
        "bounds on states": bool(np.isfinite(lower).any() or np.isfinite(upper).any()),
        "no control": ocp.system.n_u == 0,
    }
    reasons = [condition for condition, holds in conditions.items() if holds]
    direct = OF_HYBRID if isinstance(ocp.system, HybridSystem) else DIRECT
    if reasons:
        raise OptionError(
            f"{method} takes a fixed initial state, a fixed horizon and constraints on controls only; the OCP has "
            f"{', '.join(reasons)}: use {direct} or write them as costs."
        )
