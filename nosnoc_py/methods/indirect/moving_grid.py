"""Forward and backward passes on a grid that moves with the collisions.

Every phase has its own normalised time tau in [0, 1] and a control that is a polynomial in tau, given at Legendre
nodes. A collision is the end of a phase: Newton's method finds its time, and the control has one-sided limits there.
Equal steps need a search and an extrapolation instead (HMP, Eqs. 23-24).

A control is an array (phases, 2 + nodes n_u). A row holds the last length of the phase [s], the index of the jump at
its end (-1 at the horizon), and the values at the nodes. Affine combinations of controls with the same sequence, such
as relaxed or Anderson steps, are controls with this sequence again.
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

NEWTON_STEPS = 12  # for the length of a phase; fails earlier if the guard does not fall
TIME_TOLERANCE = 1e-14  # tolerance of the length of a phase, relative to the horizon
SAMPLING_FACTOR = 8  # finer equal steps to detect the sequence of collisions of a new control
THIRDS = np.array([1.0, 2.0, 3.0]) / 3.0


@dataclass(frozen=True, eq=False, kw_only=True)
class GridPhase:
    """Integrated phase: K steps of `length` / K, states x (K + 1, n_x), cost, control at nodes and at RK stages."""

    length: float
    jump: int
    x: Array
    cost: float
    values: Array
    u: Array


class SequenceChange(SweepFailure):
    """The control does not lead to the expected sequence of collisions."""

    def __init__(self, message: str) -> None:
        super().__init__(Status.SEQUENCE_LOST, message)


class MovingGrid:
    """Forward and backward passes on phases of variable length; built once per problem.

    Parameters
    ----------
    problem : HybridProblem
    nodes : int
        Number of Legendre nodes of the control per phase (degree nodes - 1). Controls with a kink inside a phase, where
        a bound becomes active, need many.
    steps : int
        Number of steps of the classical Runge-Kutta scheme per phase. The costate is computed by the adjoint of the
        scheme with the same stages, and so has order 4, too (Hager 2000).
    """

    def __init__(self, problem: HybridProblem, nodes: int = 8, steps: int = 20) -> None:
        self.problem, self.nodes, self.steps = problem, nodes, steps
        points, weights = legendre.leggauss(nodes)
        self.places, self.weights = 0.5 * (1.0 + points), 0.5 * weights
        # Control at the ends and middles of steps: the stages of the classical Runge-Kutta scheme.
        self._basis = lagrange_basis(self.places, np.linspace(0.0, 1.0, 2 * steps + 1))
        self._target = problem.minimiser.mapped(nodes)
        self._residuals = problem.along([problem.minimiser.residual], nodes)
        self._slopes = problem.along([problem.canonical], steps + 1)
        self._all_guards = buffered(problem.guard_rates.map(steps + 1))
        self._jumps = costate_jumps(problem)

    def initial(self, guess: Callable[[float], Array]) -> Array:
        """Sample a function of time in the phases that it leads to."""
        try:
            return self.resequenced(guess)
        except SweepFailure:
            # One phase without a collision: the sweep then reports what is wrong with the control.
            return self._sampled_control(guess, np.array([0.0, self.problem.horizon]), ())

    def sweep(self, control: Array) -> GridSweep:
        """Integrate state and costate, and return minimisers and H_u of a control.

        If the control no longer leads to its sequence of collisions, it is sampled again on the phases that it leads to
        as a function of time; the control of the `GridSweep` then has this new sequence.

        Raises
        ------
        SweepFailure
            If the sequence of collisions cannot be determined, or the integration fails.
        """
        try:
            phases = self.forward(control)
        except SequenceChange:
            phases = self.forward(self.resequenced(self.function(control)))
        costates = self.backward(phases)
        node_results = [
            self._minimisers_at_nodes(phase, costate) for phase, costate in zip(phases, costates, strict=True)
        ]
        objective = sum(phase.cost for phase in phases) + float(self.problem.terminal(phases[-1].x[-1])[0][0, 0])
        targets = [target for target, _ in node_results]
        if not np.isfinite(objective) or not np.isfinite(targets).all():
            raise SweepFailure(Status.NUMERICAL_ERROR, "the objective or the costate is not finite")
        times = np.cumsum([phase.length for phase in phases])[:-1]
        return GridSweep(
            control=np.array([self._row(phase, phase.values) for phase in phases]),
            target=np.array([self._row(phase, target) for phase, target in zip(phases, targets, strict=True)]),
            objective=objective,
            slope=float(
                np.sqrt(sum(phase.length * square for phase, (_, square) in zip(phases, node_results, strict=True)))
            ),
            times=tuple(map(float, times)),
            jumps=tuple(phase.jump for phase in phases[:-1]),
            motion=lambda: self._motion(phases, costates, objective),
        )

    def function(self, control: Array) -> Callable[[float], Array]:
        """Return a control as a function of time, with its own phase lengths."""
        edges = np.append(0.0, np.cumsum(control[:, 0]))
        values = control[:, 2:].reshape(len(control), self.nodes, -1)

        def evaluate(t: float) -> Array:
            phase = int(np.clip(np.searchsorted(edges, t, "right") - 1, 0, len(control) - 1))
            place = np.clip((t - edges[phase]) / max(control[phase, 0], 1e-300), 0.0, 1.0)
            return np.asarray(lagrange_basis(self.places, np.array([place]))[0] @ values[phase])

        return evaluate

    def resequenced(self, guess: Callable[[float], Array]) -> Array:
        """Simulate a function of time on fine equal steps and sample it on the phases that it leads to.

        Raises
        ------
        SweepFailure
            If the simulation fails.
        """
        forward = self._fine_forward
        collisions = forward(self.problem.controls.project(forward.sampled_control(guess))).collisions
        edges = np.array([0.0, *[c.step * forward.dt + c.s for c in collisions], self.problem.horizon])
        return self._sampled_control(guess, edges, tuple(c.jump for c in collisions))

    def forward(self, control: Array) -> list[GridPhase]:
        """Integrate all phases and solve for their end times.

        Raises
        ------
        SequenceChange
            If a collision is missed, or another one comes before it.
        """
        phases: list[GridPhase] = []
        x, remaining = self.problem.x0, self.problem.horizon
        for row in control:
            # Combinations of Anderson's acceleration are affine, not convex: they may leave the control set.
            values = self.problem.controls.project(row[2:].reshape(self.nodes, -1))
            # Combinations of equal indices are equal up to rounding only.
            jump = int(np.rint(row[1]))
            # The last phase has no collision: it takes the time that is left.
            phase = self._integrate_phase(x, values, float(row[0]) if jump >= 0 else remaining, jump, remaining)
            phases.append(phase)
            remaining -= phase.length
            x = phase.x[-1] if jump < 0 else self.problem.crossings[jump](phase.x[-1])[0][:, 0]
        return phases

    def backward(self, phases: list[GridPhase]) -> list[Array]:
        """Return costates (K + 1, n_x) at the nodes of every phase."""
        costates: list[Array] = []
        costate = self.problem.terminal(phases[-1].x[-1])[1][:, 0]
        for index in reversed(range(len(phases))):
            phase = phases[index]
            if phase.jump >= 0:
                # Transposed saltation with the one-sided limits of the control at the collision.
                costate = self._jumps[phase.jump](costate, phase.x[-1], phase.u[-1], phases[index + 1].u[0])
            triples, h = _step_controls(phase.u)[::-1], phase.length / self.steps
            back = self._adjoint_steps(costate, phase.x[-2::-1], triples, h)[0].T
            costates.append(np.vstack([back[::-1], costate]))
            costate = back[-1]
        return costates[::-1]

    def _integrate_phase(self, x: Array, values: Array, length: float, jump: int, remaining: float) -> GridPhase:
        # A polynomial may exceed its bounds between the nodes.
        u = self.problem.controls.project(self._basis @ values)
        triples = _step_controls(u)
        if jump >= 0:
            length = self._phase_length(x, triples, length, jump, remaining)
        if not 0.0 < length <= remaining:
            raise SequenceChange("a collision is missed: the phase before it would not end in time")
        ends, costs = self._forward_steps(np.append(x, np.zeros(x.size)), triples, length / self.steps)
        states = np.vstack([x, ends[: x.size].T])
        if not np.isfinite(states).all():
            raise SequenceChange("the state is not finite")
        self._check_sequence(states, u, length / self.steps, jump)
        return GridPhase(length=length, jump=jump, x=states, cost=float(costs.sum()), values=values, u=u)

    def _phase_length(self, x: Array, triples: Array, length: float, jump: int, remaining: float) -> float:
        """Solve psi(x(length)) = 0 for the length of a phase by Newton's method."""
        start, n_x = np.append(x, np.zeros(x.size)), x.size
        for _ in range(NEWTON_STEPS):
            end = self._forward_steps(start, triples, length / self.steps)[0][:, -1]
            _, _, guard, gradient = self.problem.crossings[jump](end[:n_x])
            rate = gradient[0] @ end[n_x:]
            # A guard that does not fall at the expected end means that this collision no longer exists.
            if not np.isfinite(rate) or rate >= 0.0:
                raise SequenceChange("a collision is missed: its guard does not fall where it is expected")
            correction = guard[0, 0] / rate
            # A step may shorten the phase by at most three quarters, so that it stays positive.
            length = max(length - correction, 0.25 * length)
            if abs(correction) <= TIME_TOLERANCE * self.problem.horizon:
                return float(length)
            if length > 2.0 * remaining:
                break
        raise SequenceChange("a collision is missed: its time is not found")

    def _check_sequence(self, states: Array, u: Array, h: float, jump: int) -> None:
        """Raise if a guard is at or below zero before its collision, at nodes or at minima of cubics between them."""
        guards, rates, *_ = self._all_guards(states, u[::2])
        # The first node is left out: right after a collision its guard is zero by construction.
        least = np.minimum(guards[:, 1:], interval_minima(guards, h * rates))
        if jump >= 0:
            # The guard of the collision itself is zero at the end of the phase.
            least[jump, -1] = 1.0
        if least.min() <= 0.0:
            name = self.problem.names[int(np.argmin(least.min(axis=1)))]
            raise SequenceChange(f"the guard {name!r} is reached where no collision with it is expected")

    def _sampled_control(self, guess: Callable[[float], Array], edges: Array, jumps: tuple[int, ...]) -> Array:
        rows = []
        for start, end, jump in zip(edges[:-1], edges[1:], (*jumps, -1), strict=True):
            values = np.array([guess(start + (end - start) * place) for place in self.places])
            values = self.problem.controls.project(values.reshape(self.nodes, -1))
            rows.append([end - start, jump, *values.ravel()])
        return np.array(rows)

    @staticmethod
    def _row(phase: GridPhase, values: Array) -> Array:
        return np.array([phase.length, phase.jump, *values.ravel()])

    def _hermite(self, phase: GridPhase, costate: Array, places: Array) -> Array:
        """Return (x, lambda) at places (m,) in [0, 1] of a phase by cubic Hermite interpolation (order 4)."""
        slopes = phase.length * self._slopes(phase.x, costate, phase.u[::2])[0].T
        return cubics(np.hstack([phase.x, costate]), slopes, places)

    def _minimisers_at_nodes(self, phase: GridPhase, costate: Array) -> tuple[Array, float]:
        """Return minimisers (nodes, n_u) at the control nodes, and the mean square of `Minimiser.residual`."""
        points = self._hermite(phase, costate, self.places)
        x, costate = points[:, : self.problem.n_x], points[:, self.problem.n_x :]
        residual = self._residuals(x, costate, phase.values)[0]
        return self._target(x, costate, phase.values), float((residual**2).sum(axis=0) @ self.weights)

    def _motion(self, runs: list[GridPhase], costates: list[Array], objective: float) -> HybridMotion:
        phases, start, n_x = [], 0.0, self.problem.n_x
        inner = ((np.arange(self.steps)[:, None] + THIRDS) / self.steps).ravel()
        for run, costate in zip(runs, costates, strict=True):
            end = self.problem.horizon if run.jump < 0 else start + run.length
            stages = self._hermite(run, costate, inner)[:, :n_x].reshape(self.steps, THIRDS.size, n_x)
            # The last third is the node itself, without the rounding of the interpolation.
            stages[:, -1] = run.x[1:]
            # Simpson's rule: mean of the control over each step.
            mean = (run.u[:-1:2] + 4.0 * run.u[1::2] + run.u[2::2]) / 6.0
            t = np.linspace(start, end, self.steps + 1)
            dense = {"u_c": np.array([0.5, 1.0]), "u_left": run.u[:-1:2]}
            dense["u_stages"] = np.stack([run.u[1::2], run.u[2::2]], axis=1)
            phases.append(MotionPhase(t=t, x=run.x, u=mean, costate=costate, c=THIRDS, x_stages=stages, **dense))
            start = end
        return HybridMotion(phases=tuple(phases), jumps=tuple(run.jump for run in runs[:-1]), objective=objective)

    @cached_property
    def _fine_forward(self) -> Forward:
        return Forward(self.problem, SAMPLING_FACTOR * self.steps, scheme="rk4", after="same")

    @cached_property
    def _step(self) -> ca.Function:
        """Function (x, u at start, middle and end, h) -> state and cost after a step."""
        p, extended = self.problem, with_cost(self.problem)
        flow = ca.Function("flow", [extended.x, p.u], [extended.flow])
        u, h = ca.SX.sym("u", 3 * p.n_u), ca.SX.sym("h")
        at = dict(zip((0.0, 0.5, 1.0), ca.vertsplit(u, p.n_u), strict=True))
        end = explicit(4).step(lambda theta, x: flow(x, at[theta]), ca.vertcat(p.x, 0), h)
        return ca.Function("step", [p.x, u, h], [ca.densify(end[:-1]), ca.densify(end[-1])])

    @cached_property
    def _forward_steps(self) -> Callable[..., list[Array]]:
        """Function (x and dx/dlength, u, h) -> both, and the cost, after every step."""
        p, slope = self.problem, ca.SX.sym("slope", self.problem.n_x)
        u, h = ca.SX.sym("u", 3 * p.n_u), ca.SX.sym("h")
        end, cost = self._step(p.x, u, h)
        # dx/dlength along the whole phase: every step is 1 / K of the length.
        moved = ca.jtimes(end, ca.vertcat(p.x, h), ca.vertcat(slope, 1.0 / self.steps))
        both = ca.Function("ahead", [ca.vertcat(p.x, slope), u, h], [ca.densify(ca.vertcat(end, moved)), cost])
        return buffered(both.mapaccum("ahead", self.steps))

    @cached_property
    def _adjoint_steps(self) -> Callable[..., list[Array]]:
        """Adjoint of a step: (costate after, x before, u, h) -> costate before."""
        p, u, h = self.problem, ca.SX.sym("u", 3 * self.problem.n_u), ca.SX.sym("h")
        end, cost = self._step(p.x, u, h)
        # The gradient of the discrete step, so that the costate is that of the scheme and not of the flow.
        before = ca.gradient(ca.dot(p.costate, end) + cost, p.x)
        function = ca.Function("back", [p.costate, p.x, u, h], [ca.densify(before)])
        return buffered(function.mapaccum("backward", self.steps))


def interval_minima(values: Array, slopes: Array) -> Array:
    """Return the interior minima (..., K) of cubics on K unit intervals that fall first and rise last, else infinity.

    Values and slopes (..., K + 1) are given at the ends of the intervals.
    """
    start, end, first, last = values[..., :-1], values[..., 1:], slopes[..., :-1], slopes[..., 1:]
    has_minimum = (first < 0.0) & (last > 0.0)
    square, cube = 3.0 * (end - start) - 2.0 * first - last, 2.0 * (start - end) + first + last
    root = square + np.sqrt(np.maximum(square**2 - 3.0 * cube * first, 0.0))
    # Root of the derivative in the form without cancellation.
    s = np.divide(-first, root, out=np.zeros_like(root), where=has_minimum)
    return np.asarray(np.where(has_minimum, start + s * (first + s * (square + s * cube)), np.inf))


def _step_controls(u: Array) -> Array:
    """Rearrange controls (2 K + 1, n_u) at ends and middles of K steps to (K, 3 n_u), one row per step."""
    return np.hstack([u[:-1:2], u[1::2], u[2::2]])
