"""Cost and gradient of prescribed switching times and states: one optimal control problem per phase (HMP, Section 6.1).

Between two switchings the Hamiltonian system is integrated with u = u*(x, lambda); Newton's method solves for the first
costate such that the phase ends at the prescribed state (single shooting). If the control reaches only a subspace, the
full state cannot be prescribed: the end condition of phase i is P_i'x(s-) = y_i, where P_i is a basis of the reachable
subspace, and the remaining components follow from the flow. Their costates do not influence state or control of the
phase; they are filled in afterwards from the next phase (`_with_unreached_costate`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import casadi as ca
import numpy as np

from nosnoc_py.audit.redundancy import null_space
from nosnoc_py.functions import buffered
from nosnoc_py.methods.indirect.control_set import ControlSet
from nosnoc_py.methods.indirect.forward import SweepFailure, one_step
from nosnoc_py.methods.indirect.motion import HybridMotion, MotionPhase, cubics
from nosnoc_py.methods.indirect.problem import HybridProblem
from nosnoc_py.status import Status

Array = np.ndarray

# Newton's method for the first costate: limits, and the tolerance relative to the end of the phase.
NEWTON_STEPS = 30
NEWTON_TOLERANCE = 1e-11
HALVINGS = 12
# Points of the dense output in each step, and quadrature weights at the start and these points (exact for cubics).
DENSE = np.array([1 / 3, 2 / 3, 1.0])
MEAN = np.array([1, 3, 3, 1]) / 8
# Relative distance from a bound below which a control counts as at the bound.
AT_BOUND = 1e-6
# Advice if the end of a phase cannot be prescribed because the control is saturated.
SATURATED = (
    "the control is at its bound throughout the phase; use ns.MinimumPrinciple(...) or ns.DirectShooting(form='phases')"
)


@dataclass(frozen=True, eq=False, kw_only=True)
class OptimalArc:
    """Optimal motion of one phase.

    Attributes
    ----------
    duration : float
        Length of the phase [s].
    first, last : (2 n_x,)
        (x, lambda) at its start and end.
    matrix : (n_x, n_x)
        Derivative of the end condition by the first costate.
    cost : float
        Integral of L.
    """

    duration: float
    first: Array
    last: Array
    matrix: Array
    cost: float


@dataclass(frozen=True, eq=False, kw_only=True)
class SwitchingValue:
    """Cost, gradient and guards of given switchings.

    Attributes
    ----------
    total : float
        Objective plus the augmented Lagrangian terms of the guards.
    gradient : ndarray
        Gradient of the total by the switchings.
    objective : float
        phi plus the integral of L.
    guards : (M,)
        psi(x-), zero at a solution.
    arcs : tuple of OptimalArc
        Phases, with the costates of the whole problem.
    """

    total: float
    gradient: Array
    objective: float
    guards: Array
    arcs: tuple[OptimalArc, ...]


class NoArcError(SweepFailure):
    """No optimal control between the ends of a phase exists, or Newton's method does not converge."""

    def __init__(self, message: str) -> None:
        super().__init__(Status.LOCALLY_INFEASIBLE, message)


class SwitchedPhases:
    """Total cost as a function of switchings, for a sequence of jumps; built once.

    The vector of switchings holds the times s_i (M,) [s], then the prescribed parts y_i (r_i,) of the states before
    them.

    Parameters
    ----------
    problem : HybridProblem
        Its minimiser must be continuous and in closed form.
    jumps : sequence of M int
    steps : int
        Number of Runge-Kutta steps (RK4) per phase.
    bases : sequence of M arrays (n_x, r_i)
        Bases P_i of the reachable subspaces.
    """

    def __init__(self, problem: HybridProblem, jumps: Sequence[int], steps: int, bases: Sequence[Array]) -> None:
        self.problem, self.jumps, self.steps = problem, tuple(jumps), steps
        self.bases = tuple(bases)
        self.cuts = np.cumsum([len(self.jumps), *[basis.shape[1] for basis in bases]])[:-1]
        # Reached and unreached directions together span the states: one condition for each makes Newton's matrix
        # square.
        self.rests = tuple(null_space(basis.T) for basis in bases)
        x, costate = problem.x, problem.costate
        assert problem.minimiser.control is not None
        self._control = problem.minimiser.control  # has derivatives wherever phases may be, see AutonomousSwitching
        eta, rho = ca.SX.sym("eta"), ca.SX.sym("rho")
        # (x-, lambda+, eta, rho) -> psi and the derivative of the total cost by x-.
        self._switching_functions = list[Callable[..., list[Array]]]()
        for jump in self.jumps:  # per collision, not per jump: there are few
            psi = problem.guards[jump]
            outputs = [psi, problem.costate_jumps[jump](x, costate, eta + rho * psi)]
            self._switching_functions.append(buffered(ca.Function("switching", [x, costate, eta, rho], outputs)))
        energy = ca.substitute(problem.hamiltonian, problem.u, self._control)
        self._energy = buffered(ca.Function("energy", [x, costate], [energy]))

    @cached_property
    def _flow(self) -> ca.Function:
        """Function (x, lambda, cost) -> its rate under u*."""
        p = self.problem
        spent = ca.SX.sym("spent")
        rates = ca.vertcat(p.canonical, p.running_cost)
        rates = ca.substitute(rates, p.u, self._control)
        return ca.Function("optimal", [ca.vertcat(p.x, p.costate, spent), ca.SX.sym("none", 0)], [rates])

    @cached_property
    def _integrate(self) -> Callable[..., list[Array]]:
        """Function (x, lambda, cost; derivatives by the first costate; h) -> the same at all nodes."""
        n = self.problem.n_x
        z, s, h = ca.SX.sym("z", 2 * n + 1), ca.SX.sym("s", 2 * n, n), ca.SX.sym("h")
        end = one_step(self._flow, z, ca.SX(0, 1), h, "rk4")
        moved = ca.mtimes(ca.jacobian(end[: 2 * n], z[: 2 * n]), s)
        step = ca.Function("step", [z, s, h], [end, moved])
        return buffered(step.mapaccum("phase", self.steps, 2))

    def value(self, at: Array, eta: Array, rho: float, start: Sequence[OptimalArc] | None = None) -> SwitchingValue:
        """Return total cost and gradient; `eta` (M,) and `rho` weigh psi(x-): eta psi + rho psi^2 / 2.

        Raises
        ------
        NoArcError
            If a phase has no solution.
        """
        arcs = self._arcs(at, start)
        terminal = float(self.problem.terminal(arcs[-1].last[: self.problem.n_x])[0][0, 0])
        objective = terminal + sum(arc.cost for arc in arcs)
        gradient_s, gradient_y = np.empty(len(self.jumps)), [np.empty(0)] * len(self.jumps)
        guards = np.empty(len(self.jumps))
        n = self.problem.n_x
        # Backwards, since the unreached part of the costate of a phase comes from the next one (Eq. 10).
        for i in reversed(range(len(self.jumps))):
            before, after = arcs[i], arcs[i + 1]
            x = before.last[:n]
            psi, costate_before = self._switching_functions[i](x, after.first[n:], eta[i], rho)
            guards[i] = psi[0, 0]
            gradient_y[i] = self.bases[i].T @ (costate_before[:, 0] - before.last[n:])
            arcs[i] = self._with_unreached_costate(before, i, self.rests[i].T @ costate_before[:, 0])
            # d(total) / ds_i = H- - H+ (Eq. 11).
            difference = self._energy(x, arcs[i].last[n:])[0] - self._energy(after.first[:n], after.first[n:])[0]
            gradient_s[i] = difference[0, 0]
        total = objective + float(eta @ guards + rho / 2 * guards @ guards)
        gradient = np.concatenate([gradient_s, *gradient_y])
        return SwitchingValue(total=total, gradient=gradient, objective=objective, guards=guards, arcs=tuple(arcs))

    def _arcs(self, at: Array, start: Sequence[OptimalArc] | None) -> list[OptimalArc]:
        """Solve all phases, first to last, each with the costate of its own problem."""
        n = self.problem.n_x
        times, *ends = np.split(at, self.cuts)
        edges = np.concatenate([[0.0], times, [self.problem.horizon]])
        x, arcs = np.asarray(self.problem.x0), list[OptimalArc]()
        for i, duration in enumerate(np.diff(edges)):
            # Arcs of the last switchings are close, so that Newton's method starts near its solution.
            costate = np.zeros(n) if start is None else start[i].first[n:]
            arcs.append(self._solve(i, x, float(duration), ends[i] if i < len(ends) else None, costate))
            if i < len(self.jumps):
                x = self.problem.crossings[self.jumps[i]](arcs[-1].last[:n])[0][:, 0]
        return arcs

    def _solve(self, i: int, x: Array, duration: float, end: Array | None, costate: Array) -> OptimalArc:
        """Solve for the first costate of phase i by Newton's method with step halving."""
        residual, arc = self._end_residual(i, x, duration, end, costate)
        for _ in range(NEWTON_STEPS):
            # The norm of the residual has to decrease; otherwise halve the step.
            size = float(np.abs(residual).max(initial=0.0))
            if size <= NEWTON_TOLERANCE * (1.0 + np.abs(arc.last).max()):
                return arc
            try:
                step = -np.linalg.solve(arc.matrix, residual)
            except np.linalg.LinAlgError:
                break
            for halving in range(HALVINGS):
                trial_residual, trial_arc = self._end_residual(i, x, duration, end, costate + 0.5**halving * step)
                if np.isfinite(trial_residual).all() and np.abs(trial_residual).max(initial=0.0) < size:
                    break
            else:
                break
            costate, residual, arc = trial_arc.first[self.problem.n_x :], trial_residual, trial_arc
        raise self._no_arc_error(i, arc)

    def _no_arc_error(self, i: int, arc: OptimalArc) -> NoArcError:
        """Build the error of a phase without a solution; explain it if the control is saturated."""
        message = f"phase {i} of {arc.duration:.4g} s has no optimal control that ends where it should"
        return NoArcError(f"{message}: {SATURATED}" if self.saturated(arc) else message)

    def saturated(self, arc: OptimalArc) -> bool:
        """True if the control is at its bound at all nodes, so that the end of the arc cannot be prescribed."""
        z = self._nodes(arc)
        return at_bound(self.problem.controls, np.array(self._control_and_rates.map(len(z))(z.T)[0]).T)

    def _nodes(self, arc: OptimalArc) -> Array:
        """Return (x, lambda) at all nodes of an arc."""
        n = self.problem.n_x
        nodes = self._integrate(np.append(arc.first, 0.0), np.eye(n, 2 * n, n), arc.duration / self.steps)[0]
        return np.vstack([arc.first, nodes[:-1].T])

    def _end_residual(
        self, i: int, x: Array, duration: float, end: Array | None, costate: Array
    ) -> tuple[Array, OptimalArc]:
        """Return the residual of the end condition for a first costate, and the arc."""
        n = self.problem.n_x
        start, seeds = np.concatenate([x, costate, [0.0]]), np.eye(n, 2 * n, n)
        nodes, derivatives = self._integrate(start, seeds, duration / self.steps)
        last, derivative = nodes[:, -1], derivatives[:, -n:]
        if end is None:
            # Last phase: transversality lambda(T) = phi_x instead of a prescribed end.
            _, gradient, curvature = self.problem.terminal(last[:n])
            residual, matrix = last[n:-1] - gradient[:, 0], derivative[n:] - curvature @ derivative[:n]
        else:
            basis, rest = self.bases[i], self.rests[i]
            residual = np.concatenate([basis.T @ last[:n] - end, rest.T @ last[n:-1]])
            # Unreached costates have an end condition of zero for now, which makes the matrix square.
            matrix = np.vstack([basis.T @ derivative[:n], rest.T @ derivative[n:]])
        first = np.concatenate([x, costate])
        return residual, OptimalArc(duration=duration, first=first, last=last[:-1], matrix=matrix, cost=float(last[-1]))

    def _with_unreached_costate(self, arc: OptimalArc, i: int, rest: Array) -> OptimalArc:
        """Add the costate of the unreached subspace to an arc; it changes neither state nor control."""
        n, basis = self.problem.n_x, self.bases[i]
        try:
            # Linear in the costate, since neither state nor control of the phase depends on this part.
            correction = np.linalg.solve(arc.matrix, np.concatenate([np.zeros(basis.shape[1]), rest]))
        except np.linalg.LinAlgError:
            raise self._no_arc_error(i, arc) from None
        first = arc.first + np.concatenate([np.zeros(n), correction])
        last = arc.last + np.concatenate([np.zeros(n), self.rests[i] @ rest])
        return replace(arc, first=first, last=last)

    def motion(self, value: SwitchingValue) -> HybridMotion:
        """Return the motion with costates and dense output of states and control."""
        begin, phases = 0.0, []
        for arc in value.arcs:
            phases.append(self._phase(arc, begin))
            begin += arc.duration
        return HybridMotion(phases=tuple(phases), jumps=self.jumps, objective=value.objective)

    def _phase(self, arc: OptimalArc, begin: float) -> MotionPhase:
        n, h = self.problem.n_x, arc.duration / self.steps
        z = self._nodes(arc)
        control, rate = (np.array(out).T for out in self._control_and_rates.map(len(z))(z.T))
        points = ((np.arange(self.steps)[:, None] + DENSE) / self.steps).ravel()
        dense = cubics(z, arc.duration * rate, points)
        inner_control = np.array(self._control_and_rates.map(len(dense))(dense.T)[0]).T
        u = np.concatenate([control[:-1, None], inner_control.reshape(self.steps, DENSE.size, -1)], axis=1)
        return MotionPhase(
            t=begin + h * np.arange(self.steps + 1),
            x=z[:, :n],
            u=np.einsum("j,kji->ki", MEAN, u),
            costate=z[:, n:],
            c=DENSE,
            x_stages=dense[:, :n].reshape(self.steps, DENSE.size, n),
            u_c=DENSE,
            u_left=u[:, 0],
            u_stages=u[:, 1:],
        )

    @cached_property
    def _control_and_rates(self) -> ca.Function:
        p = self.problem
        z = ca.vertcat(p.x, p.costate)
        rates = self._flow(ca.vertcat(z, 0), ca.SX(0, 1))[:-1]
        return ca.Function("look", [z], [self._control, rates])


def at_bound(controls: ControlSet, u: Array) -> bool:
    """True if all controls (n, n_u) have maximal length, or one component is at a bound in all of them."""
    if controls.is_ball:
        return bool((np.linalg.norm(u, axis=1) >= controls.radius * (1 - AT_BOUND)).all())
    gap = np.minimum(u - controls.lower, controls.upper - u)
    return bool((gap <= AT_BOUND * (1 + np.abs(u))).all(axis=0).any())
