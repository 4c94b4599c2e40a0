"""What all solvers of hybrid problems find: a motion in phases between collisions, and the `Solution` made of it."""

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

# Of dense output, per interval, where a guard is looked at.
SAMPLES = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class MotionPhase:
    """The motion between two collisions, in K intervals.

    Attributes
    ----------
    t : (K + 1,)
        Times [s], not decreasing.
    x : (K + 1, n_x)
        States: first after the collision before, last before the collision that ends the phase.
    u : (K, n_u)
        Control on the intervals.
    costate : (K + 1, n_x), optional
        lambda, with the same limits.
    c : (n_s,), x_stages : (K, n_s, n_x)
        Dense output between the nodes; straight lines by default.
    u_c : (n_c,), u_left : (K, n_u), u_stages : (K, n_c, n_u)
        Dense output of a control that is not constant on the intervals; `u` are then its means.
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
        """Nodes in the intervals, states at the left ends and there; the nodes are right ends where there are none."""
        if self.c is None or self.x_stages is None:
            return np.ones(1), self.x[:-1], self.x[1:, None]
        return self.c, self.x[:-1], self.x_stages

    @property
    def dense_control(self) -> tuple[Array, Array | None, Array | None] | None:
        """The same of the control; None where it is constant on the intervals."""
        return None if self.u_c is None else (self.u_c, self.u_left, self.u_stages)


@dataclass(frozen=True, eq=False, kw_only=True)
class HybridMotion:
    """Phases, the index of the jump between each and the next, and the objective that belongs to them."""

    phases: tuple[MotionPhase, ...]
    jumps: tuple[int, ...]
    objective: float

    @property
    def times(self) -> Array:
        """Times of the collisions [s]."""
        return np.array([phase.t[-1] for phase in self.phases[:-1]])


def guard_depths(problem: HybridProblem, motion: HybridMotion) -> Measured:
    """How far guards are below zero on the intervals of all phases, at nodes and on the dense output between them."""
    parts = [(phase.t[: len(states)], states) for phase in motion.phases for states in [_sampled(phase)]]
    t, states = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    return depths_at(problem, t, states)


def depths_at(problem: HybridProblem, t: Array, states: Array) -> Measured:
    """The same for states (m, samples, n_x) at equidistant places of pieces that begin at t (m,)."""
    points = states.reshape(-1, problem.n_x)
    found = np.array(ca.Function("guards", [problem.x], [problem.guards]).map(len(points))(points.T)).T
    return depths(Law.GAPS, problem.names, t, found.reshape(*states.shape[:2], -1))


def cubics(values: Array, slopes: Array, places: Array) -> Array:
    """Cubic polynomials through values (K + 1, n) and slopes at K + 1 equidistant nodes in [0, 1], at places (m,)."""
    count = len(values) - 1
    k = np.minimum((places * count).astype(int), count - 1)
    s, rise = (places * count - k)[:, None], values[k + 1] - values[k]
    bend = (1.0 - s) * (slopes[k] / count - rise) - s * (slopes[k + 1] / count - rise)
    return np.asarray(values[k] + s * rise + s * (1.0 - s) * bend)


def _sampled(phase: MotionPhase) -> Array:
    """States (K, SAMPLES + 1, n_x) on the intervals of a phase; its node alone where there are none."""
    if not len(phase.u):
        return np.repeat(phase.x[None, :1], SAMPLES + 1, axis=1)
    c, left, stages = phase.dense
    basis = lagrange_basis(np.append(0.0, c), np.linspace(0.0, 1.0, SAMPLES + 1))
    found = np.einsum("mj,kjx->kmx", basis, np.concatenate([left[:, None], stages], axis=1))
    found[:, -1] = phase.x[1:]
    return found


def events_of(problem: HybridProblem, motion: HybridMotion) -> tuple[Event, ...]:
    """The collisions as events: velocities are the rates of the guards along the flow."""
    function = buffered(
        ca.Function("rates", [problem.x, problem.u], [problem.look(problem.x, problem.u)[1], problem.impulses])
    )
    events = []
    for before, after, jump in zip(motion.phases[:-1], motion.phases[1:], motion.jumps, strict=True):
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
    problem: HybridProblem, motion: HybridMotion, *, status: Status, infeasibility: float = 0.0, **told: Any
) -> Solution:
    """The `Solution` of a motion; costates are series "costate[name of the state]", `told` are more of its fields.

    There is no complementarity left to violate between isolated collisions; `infeasibility` is the largest of what is
    given (residuals of the method's own equations) and of the penetration at the nodes.
    """
    ocp, phases = problem.ocp, motion.phases
    t, x = np.concatenate([phase.t for phase in phases]), np.vstack([phase.x for phase in phases])
    u = np.vstack([phase.u for phase in phases])
    names = ocp.system.state_names
    return Solution(
        t=t,
        x=x,
        state_names=names,
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
        **told,
    )


def _costates(phases: Sequence[MotionPhase], t: Array, names: Sequence[str]) -> dict[str, Series]:
    if any(phase.costate is None for phase in phases):
        return {}
    values = np.vstack([phase.costate for phase in phases if phase.costate is not None])
    return {costate_name(name): Series(t, values[:, i], Role.COSTATE) for i, name in enumerate(names)}


def _polynomials(phases: Sequence[MotionPhase], name: str) -> RungeKuttaInterpolant | None:
    """The polynomials that `dense` or `dense_control` of all phases stand for; None where there are none."""
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
