"""Starts of the search: a control with everything that the OCP leaves free, for an exact simulation.

`StartTask` derives from the OCP what generators of starts need: finite bounds of the controls, the control that
balances the forces at the initial state, and a goal. Three simple generators are here: `constant`, `random` and `line`
(computed torque along a smooth trajectory to the goal).

Free numbers of the problem (parameters, horizon, initial state) are fractions in [0, 1] between their bounds, so that
all generators treat them alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import casadi as ca
import numpy as np
from attrs import evolve

from nosnoc_py.attempts.work import counted
from nosnoc_py.functions import function_of
from nosnoc_py.kernels import Kernel
from nosnoc_py.mpcc.interior.method import InteriorPoint
from nosnoc_py.ocp import OCP
from nosnoc_py.programs import BlockProgram, KernelBlock, LinearMap
from nosnoc_py.search.ways import waypoint
from nosnoc_py.sequences.refinement import EXACT_OPTIONS, free_start
from nosnoc_py.simulation.common import SimulationTask
from nosnoc_py.simulation.event_driven.options import THROUGH_TOUCHES
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.controls import PiecewiseConstant

Array = np.ndarray
# Numbers of knots of random controls, and their amplitudes as fractions of the bounds of `StartTask`.
KNOTS, SIZES = (1, 2, 3, 5), (0.1, 0.3, 1.0)
# Number of equal control intervals of a start.
PIECES = 16
# Assumed bound of a control without bounds, as a multiple of the one that balances all other forces, and of a free
# state, as a multiple of its typical size.
REACH = 3.0
# Number of states up to which the limits of work are those of the options.
STATES = 10
# Weight of the distance from x0 beside the terminal cost: small, it only makes the goal unique.
WEIGHT_OF_START = 1e-3
# Sideways deviations of trajectories to the goal, as fractions of their length: around obstacles on either side.
SWINGS = (0.0, 0.5, -0.5)
# Limit of work for one program that only gives a start.
PROGRAM_WORK = 1.6


@dataclass(frozen=True, eq=False, kw_only=True)
class Start:
    """Start of a search: a control with initial state, parameters and horizon, which the problem may leave free.

    Attributes
    ----------
    control : PiecewiseConstant
    x0 : (n_x,)
    p : (n_p,)
    horizon : float
        Duration of the motion [s].
    """

    control: PiecewiseConstant
    x0: Array
    p: Array
    horizon: float


@dataclass(frozen=True, eq=False, kw_only=True)
class StartTask:
    """OCP with the data that generators of starts use.

    Attributes
    ----------
    ocp : OCP
    x0 : (n_x,)
        Initial state of the motions, also if the OCP leaves it free.
    lower, upper : (n_u,)
        Finite bounds of the controls: those of the OCP, else a multiple of the control that balances the forces.
    rest : (n_u,)
        Control with the smallest resulting force at x0.

    Examples
    --------
    Gravity has to be balanced, and bounds are assumed where the OCP has none:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ns.Contact("ground", gap=q)])
    >>> task = StartTask.of(ns.OCP(ball, horizon=1.0, x0=[1, 0], stage_cost=u**2))
    >>> print(task.rest.round(2), (task.upper - task.rest).round(2))
    [9.81] [29.43]
    """

    ocp: OCP
    x0: Array
    lower: Array
    upper: Array
    rest: Array

    @classmethod
    def of(cls, ocp: OCP) -> StartTask:
        """Derive the data from an OCP, by its forces at the initial state."""
        x0 = free_start(ocp) if ocp.x0 is None else np.array(ocp.x0)
        low, high = (np.array(bound, float) for bound in ocp.u_bounds)
        rest, size = _balance(ocp, x0)
        rest = np.clip(rest, low, high)
        reach = REACH * np.maximum(np.maximum(np.abs(rest), size), ocp.sizes.u)
        lower = np.where(np.isfinite(low), low, np.minimum(rest, high) - reach)
        upper = np.where(np.isfinite(high), high, np.maximum(rest, lower) + reach)
        return cls(ocp=ocp, x0=x0, lower=lower, upper=upper, rest=np.clip(rest, lower, upper))

    @property
    def zero(self) -> Array:
        """Control within the bounds that is nearest to zero (n_u,)."""
        return np.clip(np.zeros(self.rest.size), self.lower, self.upper)

    @property
    def centres(self) -> tuple[Array, ...]:
        """Constant controls: nearest to zero, at balance, and in the middle where the first one is a bound."""
        ends = (self.zero == self.lower) | (self.zero == self.upper)
        middle = np.where(ends, 0.5 * (self.lower + self.upper), self.zero)
        return (self.zero, self.rest, middle) if (ends & (self.lower < self.upper)).any() else (self.zero, self.rest)

    @property
    def growth(self) -> float:
        """Factor of all limits of work: programs grow with the number of states."""
        return max(1.0, self.x0.size / STATES)

    @property
    def sizes(self) -> Array:
        """Typical sizes of the states (n_x,)."""
        return self.ocp.sizes.x

    @property
    def spans(self) -> Array:
        """Typical sizes of the states (n_x,) on the way to the goal."""
        far = np.abs(self.x0) if self.goal is None else np.maximum(np.abs(self.x0), np.abs(self.goal - self.x0))
        return np.asarray(np.maximum(far, self.sizes))

    @cached_property
    def undriven(self) -> Array:
        """Projection of forces on those that no control balances at x0 (n_v, n_v)."""
        s = self.ocp.system
        slope = np.array(ca.DM(function_of([s.x, s.u, s.p], ca.jacobian(s.force, s.u))(self.x0, self.rest, self.ocp.p)))
        slope = np.where(np.isfinite(slope), slope, 0.0)  # sqrt(u) has none at its bound
        return np.asarray(np.eye(s.n_v) - slope @ np.linalg.pinv(slope) if slope.size else np.eye(s.n_v))

    @property
    def freedom(self) -> int:
        """Number of values that the problem leaves free beside the control: parameters, horizon, initial state."""
        ocp = self.ocp
        states = self.x0.size - (not ocp.system.autonomous) if ocp.x0 is None else 0  # the time is not free
        return len(ocp.free_parameters) + (ocp.free_time is not None) + states

    @property
    def shares(self) -> Array:
        """Initial values of the free numbers (n,), as fractions of the distance between their bounds."""
        fractions = np.full(self.freedom, 0.5)
        for k, (name, (low, high)) in enumerate(self.ocp.free_parameters.items()):
            if np.isfinite(high - low) and high > low:
                fractions[k] = (self.ocp.p[self.ocp.system.parameter_names.index(name)] - low) / (high - low)
        return fractions

    @cached_property
    def undefined(self) -> str:
        """The function that is not finite at x0 with any of several controls; "" if all are, or x0 is free."""
        ocp, s = self.ocp, self.ocp.system
        if ocp.x0 is None:
            return ""
        if s.mechanical:
            named = {"the mass matrix": s.mass_matrix, "the force": s.force, "a gap": s.mechanics.gaps}
        else:
            named = {"the flow": s.flow}
        named["stage_cost"] = ocp.stage_cost
        symbols = [s.x, s.z, s.u, s.p]
        for name, expression in named.items():
            at = ca.Function("at", symbols, [expression], {"allow_free": True})
            if at.has_free() or ca.depends_on(expression, s.z):
                continue
            controls = (self.zero, self.rest, self.lower, self.upper)
            if not any(np.isfinite(np.array(at(self.x0, 0.0, u, ocp.p))).all() for u in controls):
                state = ", ".join(f"{one} = {value:g}" for one, value in zip(s.state_names, self.x0, strict=True))
                return (
                    f"{name} is not finite at x0 ({state}): move x0, or write the function so that it is defined there"
                )
        return ""

    @cached_property
    def goal(self) -> Array | None:
        """State near x0 that satisfies the terminal constraints and has a low terminal cost; None without either."""
        return goal(self.ocp, self.x0)

    def start(self, rows: Array, free: Array | None = None) -> Start:
        """Return the start with a piecewise linear control through equally spaced knots, clipped to the bounds.

        Parameters
        ----------
        rows : (m, n_u)
            Values at the knots; one row is a constant control.
        free : (n,), optional
            Free numbers as fractions of the distance between their bounds; default: the initial values of the OCP.
        """
        x0, p, horizon = self.x0, np.array(self.ocp.p), float(self.ocp.horizon)
        if free is not None and free.size:
            x0, p, horizon = self._free_values(np.clip(free, 0.0, 1.0), x0, p, horizon)
        pieces = PIECES if self.rest.size else 1
        t = (np.arange(pieces) + 0.5) / pieces
        knots = np.linspace(0.0, 1.0, len(rows)) if len(rows) > 1 else np.zeros(1)
        values = [np.interp(t, knots, column) for column in np.asarray(rows, float).T]
        controls = np.clip(np.column_stack([np.zeros((pieces, 0)), *values]), self.lower, self.upper)
        control = PiecewiseConstant(np.linspace(0.0, horizon, pieces + 1), controls)
        return Start(control=control, x0=x0, p=p, horizon=horizon)

    def _free_values(self, shares: Array, x0: Array, p: Array, horizon: float) -> tuple[Array, Array, float]:
        """Return initial state, parameters and horizon for free numbers in [0, 1].

        The initial state is the admissible one nearest to a point of the box of its bounds.
        """
        ocp, left = self.ocp, list(shares)
        for name, (low, high) in ocp.free_parameters.items():
            row = ocp.system.parameter_names.index(name)
            p[row] = _interpolated(left.pop(0), low, high, p[row], 1.0)
        if ocp.free_time is not None:
            low, high = ocp.free_time.lower, ocp.free_time.upper
            horizon = float(low * (high / low) ** left.pop(0))  # geometric: its bounds may lie decades apart
        if ocp.x0 is None:
            left += [] if ocp.system.autonomous else [0.5]
            bounds = zip(left, *ocp.x_bounds, x0, REACH * self.sizes, strict=True)
            x0 = free_start(evolve(ocp, p=p), np.array([_interpolated(*each) for each in bounds]))
        return x0, p, horizon

    def motion(self, start: Start, time_limit: float | None = None) -> Trajectory:
        """Return the exact motion of a start; it ends early if the simulation fails."""
        task = SimulationTask(x0=start.x0, duration=start.horizon, u=start.control, p=start.p, time_limit=time_limit)
        return THROUGH_TOUCHES.simulate(self.ocp.system, task)


def _interpolated(share: float, low: float, high: float, middle: float, size: float) -> float:
    """Return the value at a fraction between bounds; an infinite bound is replaced by `middle` -+ `size`."""
    low = low if np.isfinite(low) else min(middle, high) - max(size, abs(middle))
    high = high if np.isfinite(high) else max(middle, low) + max(size, abs(middle))
    return float(low + share * (high - low))


def _balance(ocp: OCP, x0: Array) -> tuple[Array, Array]:
    """Return the control with the least force (flow) at x0, and the control as strong as the largest other force."""
    s = ocp.system
    at = ca.Function("force", [s.x, s.u, s.p], [s.driven, ca.jacobian(s.driven, s.u)])
    value, slope = (np.array(part) for part in at(x0, np.zeros(s.n_u), ocp.p))
    if not (np.isfinite(value).all() and np.isfinite(slope).all()):
        return np.zeros(s.n_u), np.zeros(s.n_u)
    # Minimum-norm least squares: an underactuated system cannot balance every force, a redundant one has many ways.
    rest = -np.linalg.lstsq(slope, value[:, 0], rcond=1e-10)[0] if slope.size else np.zeros(s.n_u)
    strongest = np.abs(value).max(initial=0.0)
    gains = np.abs(slope).max(axis=0, initial=0.0)
    return rest, np.where(gains > 0.0, strongest / np.where(gains > 0.0, gains, 1.0), 0.0)


def constant(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """Yield the control nearest to zero, the one that balances the forces at x0, and middles of one-sided bounds."""
    for control in task.centres:
        yield task.start(control[None])


def random(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """Yield random piecewise linear controls around the constant ones.

    Without controls the free numbers cover their box evenly (Sobol 1967, scrambled): every part of it may have another
    sequence of events.
    """
    half = 0.5 * (task.upper - task.lower)
    if not half.size:
        from scipy.stats.qmc import Sobol  # not paid for by an import of the library

        points = Sobol(task.freedom, seed=rng) if task.freedom else None
        while points is not None:
            yield task.start(task.zero[None], points.random(1)[0])
        return
    while True:
        knots, size = int(rng.choice(KNOTS)), float(rng.choice(SIZES))
        centre = task.centres[-1 - int(rng.random() * len(task.centres))]
        rows = centre + size * half * rng.uniform(-1.0, 1.0, (knots, half.size))
        yield task.start(rows, rng.random(task.freedom))


def line(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """Yield computed torques: controls that follow a smooth trajectory to the goal in the least-squares sense.

    Contact forces are not part of it, so that an underactuated system follows only in part.
    """
    ocp, s = task.ocp, task.ocp.system
    if not s.mechanical or not s.n_u:
        return
    end = task.goal
    if end is None:
        return
    T = float(ocp.horizon)
    force = ca.Function("force", [s.x, s.u, s.p], [s.mass_matrix, s.force, ca.jacobian(s.force, s.u)])
    far = np.abs(end - task.x0)[s.at_q].max(initial=0.0)
    for swing in SWINGS:
        rows = []
        for t in np.linspace(0.0, T, PIECES):  # the knots of `StartTask.start`
            q, v, a, y = waypoint(s, task.x0, end, t, T)
            bump, rate, bend = (swing * far * part for part in _bump(t, T))
            aside = s.mechanics.moved(np.concatenate([q, v, y]), ocp.p, np.full(s.n_v, bump))
            x = np.concatenate([q + aside, v + rate, y])
            mass, drift, slope = (np.array(part) for part in force(x, 0.0, ocp.p))
            rows.append(np.linalg.lstsq(slope, mass @ (a + bend) - drift[:, 0], rcond=1e-8)[0])
        yield task.start(np.nan_to_num(rows))


def _bump(t: float, T: float) -> tuple[float, float, float]:
    """Return 16 r^2 (1 - r)^2 with r = t / T, and its first two derivatives: zero with its slope at both ends."""
    r = t / T
    return (
        16.0 * r**2 * (1.0 - r) ** 2,
        32.0 * r * (1.0 - r) * (1.0 - 2.0 * r) / T,
        32.0 * (1.0 - 6.0 * r + 6.0 * r**2) / T**2,
    )


def goal(ocp: OCP, x0: Array) -> Array | None:
    """Return a state near x0 that satisfies the terminal constraints and has a low terminal cost; None without either.

    Parameters
    ----------
    ocp : OCP
    x0 : (n_x,)
        Initial state; the distance from it is added to the terminal cost with a small weight.
    """
    s = ocp.system
    if not ocp.terminal_constraints and ocp.terminal_cost.is_constant():
        return None
    fixed = ocp.with_values(float(ocp.horizon), ocp.p)
    ends, limits = fixed.terminal_constraints, (np.zeros(0),)
    rows = ca.vertcat(ca.SX(0, 1), *[c.expression for c in ends])
    low, high = (np.concatenate([*limits, *[getattr(c, side) for c in ends]]) for side in ("lower", "upper"))
    at = ca.Function("end", [s.x, s.x_initial, s.p], [rows, fixed.terminal_cost])
    end_values = at(s.x, x0, ocp.p)
    sizes = np.maximum(np.abs(x0), ocp.sizes.x)
    cost = end_values[1] + WEIGHT_OF_START * ca.sumsqr((s.x - x0) / sizes)
    index = np.arange(x0.size)[None]
    kernel = Kernel(s.x, end_values[0], cost)
    block = KernelBlock(name="goal", kernel=kernel, at=LinearMap.at(index), lower=low, upper=high)
    low, high = ocp.x_bounds
    nlp = BlockProgram([block], low, high, sizes, x0)
    with counted(PROGRAM_WORK):
        solution = InteriorPoint(nlp, EXACT_OPTIONS).solve(x0 / nlp.scale, np.empty(0)).x * nlp.scale
    if not np.isfinite(solution).all():
        return None
    end = np.clip(solution, low, high)
    if not s.autonomous:
        end[-1] = x0[-1] + float(ocp.horizon)  # the last state is the time itself
    return end
