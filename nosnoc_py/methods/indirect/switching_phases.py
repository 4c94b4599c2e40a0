"""Cost and gradient of prescribed switching times and states: one optimal control problem per phase (HMP, Section 6.1).

Between two prescribed switchings the Hamiltonian system is integrated with u = u*(x, lambda) and the first costate is
found by Newton's method. A state of which the control reaches only a subspace cannot be prescribed: the end of phase i
is P_i'x(s-) = y_i, P_i a basis of what it reaches, and the rest follows from the flow.
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

NEWTON_STEPS = 30
NEWTON_TOLERANCE = 1e-11
HALVINGS = 12
# Nodes of the dense output in each step, and weights of the mean of a cubic polynomial at these nodes and the start.
DENSE = np.array([1 / 3, 2 / 3, 1.0])
MEAN = np.array([1, 3, 3, 1]) / 8
# Relative distance from its bound below which a control is at it.
AT_BOUND = 1e-6
# What helps where the end of a phase cannot be prescribed, because there is nothing left to choose.
SATURATED = (
    "the control is at its bound throughout the phase; use ns.MinimumPrinciple(...) or ns.DirectShooting(form='phases')"
)


@dataclass(frozen=True, eq=False, kw_only=True)
class OptimalArc:
    """The optimal motion of one phase.

    Attributes
    ----------
    duration : float
    first : (2 n_x,)
        (x, lambda) at its start.
    last : (2 n_x,)
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
class Value:
    """What switchings lead to.

    Attributes
    ----------
    total : float
        The objective with the terms of the constraints.
    gradient : ndarray
        Of the total, by the switchings.
    objective : float
        phi + integral of L.
    guards : (M,)
        psi(x-), which should be zero.
    arcs : tuple of OptimalArc
        With the costates of the whole problem.
    """

    total: float
    gradient: Array
    objective: float
    guards: Array
    arcs: tuple[OptimalArc, ...]


class NoArcError(SweepFailure):
    """A phase has no optimal control between its ends, or Newton's method does not find it."""

    def __init__(self, message: str) -> None:
        super().__init__(Status.LOCALLY_INFEASIBLE, message)


class SwitchedPhases:
    """The total cost as a function of switchings, for a sequence of jumps; built once.

    Switchings are times s_i (M,) [s], then what is prescribed of the states before them, y_i (r_i,), in one vector.

    Parameters
    ----------
    problem : HybridProblem
        With a minimiser in closed form that is continuous.
    jumps : sequence of M int
    steps : int
        Runge-Kutta steps (RK4) in every phase.
    bases : sequence of M arrays (n_x, r_i)
        P_i.
    """

    def __init__(self, problem: HybridProblem, jumps: Sequence[int], steps: int, bases: Sequence[Array]) -> None:
        self.problem, self.jumps, self.steps = problem, tuple(jumps), steps
        self.bases = tuple(bases)
        self.cuts = np.cumsum([len(self.jumps), *[basis.shape[1] for basis in bases]])[:-1]
        self.rests = tuple(null_space(basis.T) for basis in bases)
        x, costate = problem.x, problem.costate
        assert problem.minimiser.control is not None
        self._control = problem.minimiser.control  # has derivatives wherever phases may be, see AutonomousSwitching
        eta, rho = ca.SX.sym("eta"), ca.SX.sym("rho")
        self._at = list[Callable[..., list[Array]]]()  # x-, lambda+, eta, rho -> psi, the derivative of the total by x-
        for jump in self.jumps:  # per collision, not per jump: there are few
            psi = problem.guards[jump]
            outputs = [psi, problem.costate_jumps[jump](x, costate, eta + rho * psi)]
            self._at.append(buffered(ca.Function("switching", [x, costate, eta, rho], outputs)))
        energy = ca.substitute(problem.hamiltonian, problem.u, self._control)
        self._energy = buffered(ca.Function("energy", [x, costate], [energy]))

    @cached_property
    def _flow(self) -> ca.Function:
        """((x, lambda, cost)) -> its rate under u*."""
        p = self.problem
        spent = ca.SX.sym("spent")
        rates = ca.vertcat(p.canonical, p.running_cost)
        rates = ca.substitute(rates, p.u, self._control)
        return ca.Function("optimal", [ca.vertcat(p.x, p.costate, spent), ca.SX.sym("none", 0)], [rates])

    @cached_property
    def _integrate(self) -> Callable[..., list[Array]]:
        """(x, lambda, cost; their derivatives by the first costate; h) -> the same at all nodes."""
        n = self.problem.n_x
        z, s, h = ca.SX.sym("z", 2 * n + 1), ca.SX.sym("s", 2 * n, n), ca.SX.sym("h")
        end = one_step(self._flow, z, ca.SX(0, 1), h, "rk4")
        moved = ca.mtimes(ca.jacobian(end[: 2 * n], z[: 2 * n]), s)
        step = ca.Function("step", [z, s, h], [end, moved])
        return buffered(step.mapaccum("phase", self.steps, 2))

    def value(self, at: Array, eta: Array, rho: float, start: Sequence[OptimalArc] | None = None) -> Value:
        """Total cost and gradient; `eta` (M,) and `rho` weigh psi(x-): eta psi + rho psi^2 / 2.

        Raises
        ------
        NoArcError
            Where a phase has no solution.
        """
        arcs = self._arcs(at, start)
        terminal = float(self.problem.terminal(arcs[-1].last[: self.problem.n_x])[0][0, 0])
        objective = terminal + sum(arc.cost for arc in arcs)
        gradient_s, gradient_y = np.empty(len(self.jumps)), [np.empty(0)] * len(self.jumps)
        guards = np.empty(len(self.jumps))
        n = self.problem.n_x
        for i in reversed(range(len(self.jumps))):
            before, after = arcs[i], arcs[i + 1]
            x = before.last[:n]
            psi, pulled = self._at[i](x, after.first[n:], eta[i], rho)
            guards[i] = psi[0, 0]
            gradient_y[i] = self.bases[i].T @ (pulled[:, 0] - before.last[n:])
            arcs[i] = self._completed(before, i, self.rests[i].T @ pulled[:, 0])
            gain = self._energy(x, arcs[i].last[n:])[0] - self._energy(after.first[:n], after.first[n:])[0]
            gradient_s[i] = gain[0, 0]
        total = objective + float(eta @ guards + rho / 2 * guards @ guards)
        gradient = np.concatenate([gradient_s, *gradient_y])
        return Value(total=total, gradient=gradient, objective=objective, guards=guards, arcs=tuple(arcs))

    def _arcs(self, at: Array, start: Sequence[OptimalArc] | None) -> list[OptimalArc]:
        """All phases, first to last, each with the costate of its own problem."""
        n = self.problem.n_x
        times, *ends = np.split(at, self.cuts)
        edges = np.concatenate([[0.0], times, [self.problem.horizon]])
        x, arcs = np.asarray(self.problem.x0), list[OptimalArc]()
        for i, duration in enumerate(np.diff(edges)):
            costate = np.zeros(n) if start is None else start[i].first[n:]
            arcs.append(self._solve(i, x, float(duration), ends[i] if i < len(ends) else None, costate))
            if i < len(self.jumps):
                x = self.problem.crossings[self.jumps[i]](arcs[-1].last[:n])[0][:, 0]
        return arcs

    def _solve(self, i: int, x: Array, duration: float, end: Array | None, costate: Array) -> OptimalArc:
        """Newton's method for the first costate of phase i, with halved steps where it has to."""
        residual, arc = self._shot(i, x, duration, end, costate)
        for _ in range(NEWTON_STEPS):
            size = float(np.abs(residual).max(initial=0.0))
            if size <= NEWTON_TOLERANCE * (1.0 + np.abs(arc.last).max()):
                return arc
            try:
                step = -np.linalg.solve(arc.matrix, residual)
            except np.linalg.LinAlgError:
                break
            for halving in range(HALVINGS):
                found, tried = self._shot(i, x, duration, end, costate + 0.5**halving * step)
                if np.isfinite(found).all() and np.abs(found).max(initial=0.0) < size:
                    break
            else:
                break
            costate, residual, arc = tried.first[self.problem.n_x :], found, tried
        raise self._none(i, arc)

    def _none(self, i: int, arc: OptimalArc) -> NoArcError:
        """Where the control is at its bound all the way, it does not matter how long the costate is."""
        none = f"phase {i} of {arc.duration:.4g} s has no optimal control that ends where it should"
        return NoArcError(f"{none}: {SATURATED}" if self.saturated(arc) else none)

    def saturated(self, arc: OptimalArc) -> bool:
        """Whether the control is at its bound at all nodes of an arc, so that its end cannot be chosen."""
        z = self._nodes(arc)
        return at_bound(self.problem.controls, np.array(self._look.map(len(z))(z.T)[0]).T)

    def _nodes(self, arc: OptimalArc) -> Array:
        """(x, lambda) at all nodes of an arc."""
        n = self.problem.n_x
        nodes = self._integrate(np.append(arc.first, 0.0), np.eye(n, 2 * n, n), arc.duration / self.steps)[0]
        return np.vstack([arc.first, nodes[:-1].T])

    def _shot(self, i: int, x: Array, duration: float, end: Array | None, costate: Array) -> tuple[Array, OptimalArc]:
        """The residual of the end condition for one first costate."""
        n = self.problem.n_x
        nodes, slopes = self._integrate(np.concatenate([x, costate, [0.0]]), np.eye(n, 2 * n, n), duration / self.steps)
        last, by = nodes[:, -1], slopes[:, -n:]
        if end is None:
            _, slope, curvature = self.problem.terminal(last[:n])
            residual, matrix = last[n:-1] - slope[:, 0], by[n:] - curvature @ by[:n]
        else:
            basis, rest = self.bases[i], self.rests[i]
            residual = np.concatenate([basis.T @ last[:n] - end, rest.T @ last[n:-1]])
            matrix = np.vstack([basis.T @ by[:n], rest.T @ by[n:]])
        first = np.concatenate([x, costate])
        return residual, OptimalArc(duration=duration, first=first, last=last[:-1], matrix=matrix, cost=float(last[-1]))

    def _completed(self, arc: OptimalArc, i: int, rest: Array) -> OptimalArc:
        """The arc with the costate of what the control does not reach: it moves neither the state nor the control."""
        n, basis = self.problem.n_x, self.bases[i]
        try:
            added = np.linalg.solve(arc.matrix, np.concatenate([np.zeros(basis.shape[1]), rest]))
        except np.linalg.LinAlgError:
            raise self._none(i, arc) from None
        first = arc.first + np.concatenate([np.zeros(n), added])
        last = arc.last + np.concatenate([np.zeros(n), self.rests[i] @ rest])
        return replace(arc, first=first, last=last)

    def motion(self, value: Value) -> HybridMotion:
        """The phases with costates, and dense output of states and control."""
        begin, phases = 0.0, []
        for arc in value.arcs:
            phases.append(self._phase(arc, begin))
            begin += arc.duration
        return HybridMotion(phases=tuple(phases), jumps=self.jumps, objective=value.objective)

    def _phase(self, arc: OptimalArc, begin: float) -> MotionPhase:
        n, h = self.problem.n_x, arc.duration / self.steps
        z = self._nodes(arc)
        control, rate = (np.array(out).T for out in self._look.map(len(z))(z.T))
        places = ((np.arange(self.steps)[:, None] + DENSE) / self.steps).ravel()
        dense = cubics(z, arc.duration * rate, places)
        inner = np.array(self._look.map(len(dense))(dense.T)[0]).T
        u = np.concatenate([control[:-1, None], inner.reshape(self.steps, DENSE.size, -1)], axis=1)
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
    def _look(self) -> ca.Function:
        p = self.problem
        z = ca.vertcat(p.x, p.costate)
        rates = self._flow(ca.vertcat(z, 0), ca.SX(0, 1))[:-1]
        return ca.Function("look", [z], [self._control, rates])


def at_bound(controls: ControlSet, u: Array) -> bool:
    """Whether all of the controls (n, n_u) have their largest length, or one component of all is at a bound."""
    if controls.is_ball:
        return bool((np.linalg.norm(u, axis=1) >= controls.radius * (1 - AT_BOUND)).all())
    gap = np.minimum(u - controls.lower, controls.upper - u)
    return bool((gap <= AT_BOUND * (1 + np.abs(u))).all(axis=0).any())
