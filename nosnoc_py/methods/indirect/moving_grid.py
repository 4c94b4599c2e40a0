"""The method of successive approximations on a grid that moves with the collisions.

Every phase has a time of its own, tau in [0, 1], and a control that is a polynomial in it, given at Legendre nodes and
stretched with the phase. A collision is the end of a phase, so its time follows from Newton's method, the control has
limits there, and nothing has to be searched or extrapolated as on equal steps (HMP, Eqs. 23-24).

A control is an array (phases, 2 + nodes n_u): in the row of a phase, its length [s] as it was last, the number of the
jump that ends it (-1 at the end), and the values at the nodes, one node after the other. Sums of controls with weights
that sum up to one, such as relaxed steps or Anderson's, are controls of the same sequence again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import casadi as ca
import numpy as np
from numpy.polynomial import legendre

from nosnoc_py.functions import buffered
from nosnoc_py.methods.indirect.forward import Forward, GridSweep, SweepFailure
from nosnoc_py.methods.indirect.motion import HybridMotion, MotionPhase, cubics
from nosnoc_py.methods.indirect.problem import HybridProblem, with_cost
from nosnoc_py.methods.indirect.successive_approximation import costate_jumps
from nosnoc_py.status import Status
from nosnoc_py.tableaus import explicit, lagrange_basis

Array = np.ndarray

NEWTON_STEPS = 12
TIME_TOLERANCE = 1e-14  # of the length of a phase, in horizons
SAMPLED_STEPS = 8  # equal steps per step of a phase, where a sequence has to be found
THIRDS = np.array([1.0, 2.0, 3.0]) / 3.0


@dataclass(frozen=True, eq=False, kw_only=True)
class GridPhase:
    """One phase forward: K steps of `length` / K from x (K + 1, n_x), its costs, and its control at the stages."""

    length: float
    jump: int
    x: Array
    cost: float
    values: Array
    u: Array


class SequenceChange(SweepFailure):
    """The control does not lead through the collisions that were expected."""

    def __init__(self, message: str) -> None:
        super().__init__(Status.SEQUENCE_LOST, message)


class MovingGrid:
    """Forward and backward passes on phases; built once per problem.

    Parameters
    ----------
    problem : HybridProblem
    nodes : int
        Legendre nodes of the control in a phase: it is a polynomial of degree nodes - 1. Controls that are not smooth
        inside of phases, because a bound becomes active there, need many.
    steps : int
        Steps of the classical Runge-Kutta scheme in a phase. The costate follows from the adjoint of this scheme, with
        the same stages, and so has its order, 4 (Hager, 2000).
    """

    def __init__(self, problem: HybridProblem, nodes: int = 8, steps: int = 20) -> None:
        self.problem, self.nodes, self.steps = problem, nodes, steps
        points, weights = legendre.leggauss(nodes)
        self.places, self.weights = 0.5 * (1.0 + points), 0.5 * weights
        self._basis = lagrange_basis(self.places, np.linspace(0.0, 1.0, 2 * steps + 1))
        self._target = problem.minimiser.mapped(nodes)
        self._residuals = problem.along([problem.minimiser.residual], nodes)
        self._slopes = problem.along([problem.canonical], steps + 1)
        self._all_guards = buffered(problem.look.map(steps + 1))
        self._jumps = costate_jumps(problem)

    def initial(self, guess: Callable[[float], Array]) -> Array:
        """The control of a function of time, in the phases that it leads through."""
        try:
            return self.resequenced(guess)
        except SweepFailure:
            return self._values_of(guess, np.array([0.0, self.problem.horizon]), ())

    def sweep(self, control: Array) -> GridSweep:
        """State forward, costate backward, minimisers and H_u of a control.

        Where it does not lead through the expected collisions any more, those it leads through as a function of time
        take their place, and the control of the `GridSweep` is the one on these phases.

        Raises
        ------
        SweepFailure
            Where the sequence of collisions is undecided, and for what cannot be integrated.
        """
        try:
            runs = self.forward(control)
        except SequenceChange:
            runs = self.forward(self.resequenced(self.function(control)))
        costates = self.backward(runs)
        found = [self._nodes_of(run, costate) for run, costate in zip(runs, costates, strict=True)]
        objective = sum(run.cost for run in runs) + float(self.problem.terminal(runs[-1].x[-1])[0][0, 0])
        targets = [target for target, _ in found]
        if not np.isfinite(objective) or not np.isfinite(targets).all():
            raise SweepFailure(Status.NUMERICAL_ERROR, "the objective or the costate is not finite")
        times = np.cumsum([run.length for run in runs])[:-1]
        return GridSweep(
            control=np.array([self._row(run, run.values) for run in runs]),
            target=np.array([self._row(run, target) for run, target in zip(runs, targets, strict=True)]),
            objective=objective,
            slope=float(np.sqrt(sum(run.length * square for run, (_, square) in zip(runs, found, strict=True)))),
            times=tuple(map(float, times)),
            jumps=tuple(run.jump for run in runs[:-1]),
            motion=lambda: self._motion(runs, costates, objective),
        )

    def function(self, control: Array) -> Callable[[float], Array]:
        """A control as a function of time, with the lengths of phases that it comes with."""
        edges = np.append(0.0, np.cumsum(control[:, 0]))
        values = control[:, 2:].reshape(len(control), self.nodes, -1)

        def evaluate(t: float) -> Array:
            phase = int(np.clip(np.searchsorted(edges, t, "right") - 1, 0, len(control) - 1))
            place = np.clip((t - edges[phase]) / max(control[phase, 0], 1e-300), 0.0, 1.0)
            return np.asarray(lagrange_basis(self.places, np.array([place]))[0] @ values[phase])

        return evaluate

    def resequenced(self, guess: Callable[[float], Array]) -> Array:
        """The control of a function of time in the phases that it leads through, held on short equal steps.

        Raises
        ------
        SweepFailure
            For what cannot be integrated.
        """
        forward = self._sampled
        collisions = forward(self.problem.controls.project(forward.held(guess))).collisions
        edges = np.array([0.0, *[c.step * forward.dt + c.s for c in collisions], self.problem.horizon])
        return self._values_of(guess, edges, tuple(c.jump for c in collisions))

    def forward(self, control: Array) -> list[GridPhase]:
        """All phases, with the times of their ends.

        Raises
        ------
        SequenceChange
            Where a collision is missed, or there is another before it.
        """
        runs: list[GridPhase] = []
        x, left = self.problem.x0, self.problem.horizon
        for row in control:
            values = self.problem.controls.project(row[2:].reshape(self.nodes, -1))
            jump = int(np.rint(row[1]))
            run = self._run(x, values, float(row[0]) if jump >= 0 else left, jump, left)
            runs.append(run)
            left -= run.length
            x = run.x[-1] if jump < 0 else self.problem.crossings[jump](run.x[-1])[0][:, 0]
        return runs

    def backward(self, runs: list[GridPhase]) -> list[Array]:
        """Costates (K + 1, n_x) at the nodes of every phase."""
        costates: list[Array] = []
        costate = self.problem.terminal(runs[-1].x[-1])[1][:, 0]
        for index in reversed(range(len(runs))):
            run = runs[index]
            if run.jump >= 0:
                costate = self._jumps[run.jump](costate, run.x[-1], run.u[-1], runs[index + 1].u[0])
            triples, h = _triples(run.u)[::-1], run.length / self.steps
            back = self._back(costate, run.x[-2::-1], triples, h)[0].T
            costates.append(np.vstack([back[::-1], costate]))
            costate = back[-1]
        return costates[::-1]

    def _run(self, x: Array, values: Array, length: float, jump: int, left: float) -> GridPhase:
        u = self.problem.controls.project(self._basis @ values)
        triples = _triples(u)
        if jump >= 0:
            length = self._length(x, triples, length, jump, left)
        if not 0.0 < length <= left:
            raise SequenceChange("a collision is missed: the phase before it would not end in time")
        ends, costs = self._ahead(np.append(x, np.zeros(x.size)), triples, length / self.steps)
        states = np.vstack([x, ends[: x.size].T])
        if not np.isfinite(states).all():
            raise SequenceChange("the state is not finite")
        self._check(states, u, length / self.steps, jump)
        return GridPhase(length=length, jump=jump, x=states, cost=float(costs.sum()), values=values, u=u)

    def _length(self, x: Array, triples: Array, length: float, jump: int, left: float) -> float:
        """Newton's method for the length of a phase whose guard is zero at the end."""
        start, n_x = np.append(x, np.zeros(x.size)), x.size
        for _ in range(NEWTON_STEPS):
            end = self._ahead(start, triples, length / self.steps)[0][:, -1]
            _, _, guard, gradient = self.problem.crossings[jump](end[:n_x])
            rate = gradient[0] @ end[n_x:]
            if not np.isfinite(rate) or rate >= 0.0:
                raise SequenceChange("a collision is missed: its guard does not fall where it is expected")
            change = guard[0, 0] / rate
            length = max(length - change, 0.25 * length)
            if abs(change) <= TIME_TOLERANCE * self.problem.horizon:
                return float(length)
            if length > 2.0 * left:
                break
        raise SequenceChange("a collision is missed: its time is not found")

    def _check(self, states: Array, u: Array, h: float, jump: int) -> None:
        """No other guard at or below zero, and none before its time, at nodes and where cubics between them dip."""
        guards, rates, *_ = self._all_guards(states, u[::2])
        least = np.minimum(guards[:, 1:], dips(guards, h * rates))
        if jump >= 0:
            least[jump, -1] = 1.0
        if least.min() <= 0.0:
            name = self.problem.names[int(np.argmin(least.min(axis=1)))]
            raise SequenceChange(f"the guard {name!r} is reached where no collision with it is expected")

    def _values_of(self, guess: Callable[[float], Array], edges: Array, jumps: tuple[int, ...]) -> Array:
        rows = []
        for start, end, jump in zip(edges[:-1], edges[1:], (*jumps, -1), strict=True):
            values = np.array([guess(start + (end - start) * place) for place in self.places])
            values = self.problem.controls.project(values.reshape(self.nodes, -1))
            rows.append([end - start, jump, *values.ravel()])
        return np.array(rows)

    @staticmethod
    def _row(run: GridPhase, values: Array) -> Array:
        return np.array([run.length, run.jump, *values.ravel()])

    def _hermite(self, run: GridPhase, costate: Array, places: Array) -> Array:
        """(x, lambda) at places (m,) in [0, 1] of a phase: cubic polynomials with the right slopes, of order 4."""
        slopes = run.length * self._slopes(run.x, costate, run.u[::2])[0].T
        return cubics(np.hstack([run.x, costate]), slopes, places)

    def _nodes_of(self, run: GridPhase, costate: Array) -> tuple[Array, float]:
        """Minimisers (nodes, n_u) at the nodes of the control, and the mean square of `Minimiser.residual`."""
        found = self._hermite(run, costate, self.places)
        x, costate = found[:, : self.problem.n_x], found[:, self.problem.n_x :]
        residual = self._residuals(x, costate, run.values)[0]
        return self._target(x, costate, run.values), float((residual**2).sum(axis=0) @ self.weights)

    def _motion(self, runs: list[GridPhase], costates: list[Array], objective: float) -> HybridMotion:
        phases, start, n_x = [], 0.0, self.problem.n_x
        inner = ((np.arange(self.steps)[:, None] + THIRDS) / self.steps).ravel()
        for run, costate in zip(runs, costates, strict=True):
            end = self.problem.horizon if run.jump < 0 else start + run.length
            stages = self._hermite(run, costate, inner)[:, :n_x].reshape(self.steps, THIRDS.size, n_x)
            stages[:, -1] = run.x[1:]
            mean = (run.u[:-1:2] + 4.0 * run.u[1::2] + run.u[2::2]) / 6.0
            t = np.linspace(start, end, self.steps + 1)
            dense = {"u_c": np.array([0.5, 1.0]), "u_left": run.u[:-1:2]}
            dense["u_stages"] = np.stack([run.u[1::2], run.u[2::2]], axis=1)
            phases.append(MotionPhase(t=t, x=run.x, u=mean, costate=costate, c=THIRDS, x_stages=stages, **dense))
            start = end
        return HybridMotion(phases=tuple(phases), jumps=tuple(run.jump for run in runs[:-1]), objective=objective)

    @cached_property
    def _sampled(self) -> Forward:
        return Forward(self.problem, SAMPLED_STEPS * self.steps, scheme="rk4", after="same")

    @cached_property
    def _step(self) -> ca.Function:
        """(x, u at the start, the middle and the end, h) -> state and cost after a step."""
        p, extended = self.problem, with_cost(self.problem)
        flow = ca.Function("flow", [extended.x, p.u], [extended.flow])
        u, h = ca.SX.sym("u", 3 * p.n_u), ca.SX.sym("h")
        at = dict(zip((0.0, 0.5, 1.0), ca.vertsplit(u, p.n_u), strict=True))
        end = explicit(4).step(lambda theta, x: flow(x, at[theta]), ca.vertcat(p.x, 0), h)
        return ca.Function("step", [p.x, u, h], [ca.densify(end[:-1]), ca.densify(end[-1])])

    @cached_property
    def _ahead(self) -> Callable[..., list[Array]]:
        """(x and its derivative by the length of the phase, u, h) -> both and the cost after every step."""
        p, slope = self.problem, ca.SX.sym("slope", self.problem.n_x)
        u, h = ca.SX.sym("u", 3 * p.n_u), ca.SX.sym("h")
        end, cost = self._step(p.x, u, h)
        moved = ca.jtimes(end, ca.vertcat(p.x, h), ca.vertcat(slope, 1.0 / self.steps))
        both = ca.Function("ahead", [ca.vertcat(p.x, slope), u, h], [ca.densify(ca.vertcat(end, moved)), cost])
        return buffered(both.mapaccum("ahead", self.steps))

    @cached_property
    def _back(self) -> Callable[..., list[Array]]:
        """The adjoint of a step: (costate after, x before, u, h) -> costate before."""
        p, u, h = self.problem, ca.SX.sym("u", 3 * self.problem.n_u), ca.SX.sym("h")
        end, cost = self._step(p.x, u, h)
        before = ca.gradient(ca.dot(p.costate, end) + cost, p.x)
        function = ca.Function("back", [p.costate, p.x, u, h], [ca.densify(before)])
        return buffered(function.mapaccum("backward", self.steps))


def dips(values: Array, slopes: Array) -> Array:
    """The least (..., K) of cubics on K intervals of length one that fall first and rise last, else infinity.

    Values and slopes (..., K + 1) are those at the ends.
    """
    start, end, first, last = values[..., :-1], values[..., 1:], slopes[..., :-1], slopes[..., 1:]
    there = (first < 0.0) & (last > 0.0)
    square, cube = 3.0 * (end - start) - 2.0 * first - last, 2.0 * (start - end) + first + last
    root = square + np.sqrt(np.maximum(square**2 - 3.0 * cube * first, 0.0))
    s = np.divide(-first, root, out=np.zeros_like(root), where=there)
    return np.asarray(np.where(there, start + s * (first + s * (square + s * cube)), np.inf))


def _triples(u: Array) -> Array:
    """Controls (2 K + 1, n_u) at the ends and middles of K steps, by step: (K, 3 n_u)."""
    return np.hstack([u[:-1:2], u[1::2], u[2::2]])
