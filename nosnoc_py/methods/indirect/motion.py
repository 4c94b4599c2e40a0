"""Motion in phases between collisions, the result of all solvers of hybrid problems, and its `Solution`.

A phase holds one-sided limits: its first node is after the collision before it, its last one before the collision after
it, so that the time of a collision occurs twice. States between nodes are the polynomials of the method that found them
(straight lines without any); guards are checked on these, because a body may penetrate between two nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.audit.guards import depths
from nosnoc_py.audit.records import Measured
from nosnoc_py.functions import buffered
from nosnoc_py.methods.indirect.problem import HybridProblem
from nosnoc_py.roles import Role
from nosnoc_py.solution import Event, Series, Solution
from nosnoc_py.solution.interpolant import RungeKuttaInterpolant
from nosnoc_py.solution.solution import costate_name
from nosnoc_py.solution.violation import Law
from nosnoc_py.status import Status
from nosnoc_py.tableaus import lagrange_basis

Array = np.ndarray

# Number of points of the dense output per interval at which guards are checked.
SAMPLES = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class MotionPhase:
    """Motion between two collisions, in K intervals.

    Attributes
    ----------
    t : (K + 1,)
        Node times [s], not decreasing.
    x : (K + 1, n_x)
        States at the nodes: the first one after the previous collision, the last one before the next collision.
    u : (K, n_u)
        Control on the intervals (means, if there is dense output of the control).
    costate : (K + 1, n_x), optional
        lambda at the nodes, with the same one-sided limits.
    c : (n_s,), x_stages : (K, n_s, n_x)
        Interpolation points in [0, 1] and states there; straight lines by default.
    u_c : (n_c,), u_left : (K, n_u), u_stages : (K, n_c, n_u)
        Dense output of a control that is not constant on the intervals.
    """

    t: Array
    x: Array
    u: Array
    costate: Array | None = None
    c: Array | None = None
    x_stages: Array | None = None
    u_c: Array | None = None
    u_left: Array | None = None
    u_stages: Array | None = None

    @property
    def dense(self) -> tuple[Array, Array, Array]:
        """Interpolation points, states at left ends and at these points (without dense output: the right ends)."""
        if self.c is None or self.x_stages is None:
            return np.ones(1), self.x[:-1], self.x[1:, None]
        return self.c, self.x[:-1], self.x_stages

    @property
    def dense_control(self) -> tuple[Array, Array | None, Array | None] | None:
        """Interpolation points, controls at left ends and at these points; None for piecewise constant controls."""
        return None if self.u_c is None else (self.u_c, self.u_left, self.u_stages)


@dataclass(frozen=True, eq=False, kw_only=True)
class HybridMotion:
    """Motion as a sequence of phases, with the indices of the jumps between them and its objective."""

    phases: tuple[MotionPhase, ...]
    jumps: tuple[int, ...]
    objective: float

    @property
    def times(self) -> Array:
        """Times of the collisions [s]."""
        return np.array([phase.t[-1] for phase in self.phases[:-1]])


def guard_depths(problem: HybridProblem, motion: HybridMotion) -> Measured:
    """Measure how far guards are below zero in all phases, at nodes and on the dense output."""
    parts = [(phase.t[: len(states)], states) for phase in motion.phases for states in [_sampled(phase)]]
    t, states = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    return depths_at(problem, t, states)


def depths_at(problem: HybridProblem, t: Array, states: Array) -> Measured:
    """Measure how far guards are below zero for states (m, samples, n_x), equidistant in intervals from t (m,)."""
    points = states.reshape(-1, problem.n_x)
    guards = np.array(ca.Function("guards", [problem.x], [problem.guards]).map(len(points))(points.T)).T
    return depths(Law.GAPS, problem.names, t, guards.reshape(*states.shape[:2], -1))


def cubics(values: Array, rates: Array, places: Array) -> Array:
    """Evaluate cubic Hermite polynomials at places (m,) from values and rates (K + 1, n) at equal nodes in [0, 1]."""
    count = len(values) - 1
    # The place 1 belongs to the last interval.
    k = np.minimum((places * count).astype(int), count - 1)
    s, difference = (places * count - k)[:, None], values[k + 1] - values[k]
    correction = (1.0 - s) * (rates[k] / count - difference) - s * (rates[k + 1] / count - difference)
    return np.asarray(values[k] + s * difference + s * (1.0 - s) * correction)


def _sampled(phase: MotionPhase) -> Array:
    """Return states (K, SAMPLES + 1, n_x) on the intervals of a phase; its repeated node if there are none."""
    # A collision at the end of the horizon leaves a phase of one node.
    if not len(phase.u):
        return np.repeat(phase.x[None, :1], SAMPLES + 1, axis=1)
    # Guards may dip below zero between nodes, where collocation polynomials show it and nodes do not.
    c, left, stages = phase.dense
    basis = lagrange_basis(np.append(0.0, c), np.linspace(0.0, 1.0, SAMPLES + 1))
    states = np.einsum("mj,kjx->kmx", basis, np.concatenate([left[:, None], stages], axis=1))
    # Interpolation has rounding errors at the right ends; the nodes have none.
    states[:, -1] = phase.x[1:]
    return states


def events_of(problem: HybridProblem, motion: HybridMotion) -> tuple[Event, ...]:
    """Return the collisions as events; their velocities are the rates of the guards along the flow."""
    function = buffered(
        ca.Function("rates", [problem.x, problem.u], [problem.guard_rates(problem.x, problem.u)[1], problem.impulses])
    )
    events = []
    for before, after, jump in zip(motion.phases[:-1], motion.phases[1:], motion.jumps, strict=True):
        # The rate of a gap is its velocity, for every kind of guard.
        rates, impulses = function(before.x[-1], before.u[-1] if len(before.u) else 0.0)
        later, _ = function(after.x[0], after.u[0] if len(after.u) else 0.0)
        impulse = float(impulses[jump, 0])
        events.append(
            Event(
                time=float(before.t[-1]),
                name=problem.names[jump],
                kind="impact",
                impulse=None if np.isnan(impulse) else impulse,
                v_before=float(rates[jump, 0]),
                v_after=float(later[jump, 0]),
            )
        )
    return tuple(events)


def solution_of(
    problem: HybridProblem, motion: HybridMotion, *, status: Status, infeasibility: float = 0.0, **fields: Any
) -> Solution:
    """Return the `Solution` of a motion; costates are series "costate[name of the state]".

    Isolated collisions leave no complementarity to violate. The infeasibility is the maximum of `infeasibility`
    (residuals of the method's own equations) and the penetration at the nodes. `fields` are passed to `Solution`.
    """
    ocp, phases = problem.ocp, motion.phases
    # The time of a collision occurs twice, with the states before and after it.
    t, x = np.concatenate([phase.t for phase in phases]), np.vstack([phase.x for phase in phases])
    u = np.vstack([phase.u for phase in phases])
    names = ocp.system.state_names
    return Solution(
        t=t,
        x=x,
        state_names=names,
        # Controls need each time once: the first nodes of later phases repeat the last ones before.
        u_grid=np.concatenate([phases[0].t[:1], *[phase.t[1:] for phase in phases]]),
        u=u,
        control_names=ocp.system.control_names,
        interpolant=_polynomials(phases, "dense"),
        control_interpolant=_polynomials(phases, "dense_control"),
        events=events_of(problem, motion),
        series=_costates(phases, t, names),
        parameters=dict(zip(ocp.system.parameter_names, ocp.p, strict=True)),
        units=ocp.system.units,
        status=status,
        objective=motion.objective,
        complementarity=0.0,
        complementarity_min=0.0,
        infeasibility=max(infeasibility, float(guard_depths(problem, motion).amounts.max(initial=0.0))),
        x0=problem.x0,
        p=ocp.p,
        horizon=problem.horizon,
        **fields,
    )


def _costates(phases: Sequence[MotionPhase], t: Array, names: Sequence[str]) -> dict[str, Series]:
    # All or none: with a phase left out the series would have a gap.
    if any(phase.costate is None for phase in phases):
        return {}
    values = np.vstack([phase.costate for phase in phases if phase.costate is not None])
    return {costate_name(name): Series(t, values[:, i], Role.COSTATE) for i, name in enumerate(names)}


def _polynomials(phases: Sequence[MotionPhase], name: str) -> RungeKuttaInterpolant | None:
    """Return the interpolant of `dense` or `dense_control` of all phases; None without dense output."""
    pieces = [getattr(phase, name) for phase in phases]
    if pieces[0] is None or not any(len(phase.u) for phase in phases):
        return None
    return RungeKuttaInterpolant(
        t_left=np.concatenate([phase.t[:-1] for phase in phases]),
        h=np.concatenate([np.diff(phase.t) for phase in phases]),
        c=pieces[0][0],
        x_left=np.vstack([left for _, left, _ in pieces]),
        x_stages=np.vstack([stages for _, _, stages in pieces]),
    )
