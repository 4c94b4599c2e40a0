"""Starts of different kinds: each is a control, from which a motion follows by simulation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.ipopt import Ipopt
from nosnoc_py.ocp import OCP
from nosnoc_py.search.ways import waypoint
from nosnoc_py.sequences.blocks import BlockNLP, NLPBlock
from nosnoc_py.sequences.refinement import free_start
from nosnoc_py.simulation.common import SimulationTask
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import PiecewiseConstant

Array = np.ndarray
# Knots of random controls, and their size as shares of the bounds (of the forces at work, where there are none).
KNOTS, SIZES = (1, 2, 3, 5), (0.1, 0.3, 1.0)
# Intervals of the controls that starts are made of.
PIECES = 16
# A control without bounds may be so many times what changes the motion as much as all other forces do.
REACH = 3.0
# The weight of staying near, beside what the terminal cost wants.
NEAR = 1e-3
# How far ways to the goal swing to the side, as shares of their length.
SWINGS = (0.0, 0.5, -0.5)
# Seconds for one program that only gives a start.
SECONDS = 4.0
SMOOTH = EventDriven(grazing="continue")


@dataclass(frozen=True, eq=False, kw_only=True)
class Start:
    """A control, with the initial state, the parameters and the horizon, which the problem may leave free.

    Attributes
    ----------
    control : PiecewiseConstant
    x0 : (n_x,)
    p : (n_p,)
    horizon : float
        [s].
    """

    control: PiecewiseConstant
    x0: Array
    p: Array
    horizon: float


@dataclass(frozen=True, eq=False, kw_only=True)
class StartTask:
    """A problem with what its starts are made of.

    Attributes
    ----------
    ocp : OCP
    x0 : (n_x,)
        Where motions begin, also where x(0) is free.
    lower, upper : (n_u,)
        Finite: where the OCP has no bounds, a multiple of what holds the system still.
    rest : (n_u,)
        A control that leaves as little force as possible at x0.
    """

    ocp: OCP
    x0: Array
    lower: Array
    upper: Array
    rest: Array

    @classmethod
    def of(cls, ocp: OCP) -> StartTask:
        """Look at the forces where the motion begins."""
        x0 = free_start(ocp) if ocp.x0 is None else np.array(ocp.x0)
        low, high = (np.array(bound, float) for bound in ocp.u_bounds)
        rest, size = _balance(ocp, x0)
        rest = np.clip(rest, low, high)
        reach = REACH * np.maximum(np.maximum(np.abs(rest), size), ocp.system.u_nominal)
        lower = np.where(np.isfinite(low), low, np.minimum(rest, high) - reach)
        upper = np.where(np.isfinite(high), high, np.maximum(rest, lower) + reach)
        return cls(ocp=ocp, x0=x0, lower=lower, upper=upper, rest=np.clip(rest, lower, upper))

    @property
    def zero(self) -> Array:
        """The control nearest to nothing (n_u,)."""
        return np.clip(np.zeros(self.rest.size), self.lower, self.upper)

    @property
    def freedom(self) -> int:
        """How many numbers the problem leaves free beside the control."""
        ocp = self.ocp
        states = self.x0.size - (not ocp.system.autonomous) if ocp.x0 is None else 0  # the time is not free
        return len(ocp.free_parameters) + (ocp.free_time is not None) + states

    @property
    def shares(self) -> Array:
        """Where the problem says that solvers start (n,): free parameters as shares of the way between their bounds."""
        found = np.full(self.freedom, 0.5)
        for k, (name, (low, high)) in enumerate(self.ocp.free_parameters.items()):
            if np.isfinite(high - low) and high > low:
                found[k] = (self.ocp.p[self.ocp.system.parameter_names.index(name)] - low) / (high - low)
        return found

    @cached_property
    def goal(self) -> Array | None:
        """The state nearest to x0 that the terminal constraints allow and the terminal cost likes, if there is one."""
        return goal(self.ocp, self.x0)

    def start(self, rows: Array, free: Array | None = None) -> Start:
        """Rows (m, n_u) at equally spaced times joined by straight lines, cut at the bounds.

        `free` (n,) are the numbers that the problem leaves free, as shares of the way between their bounds; by default
        they are where the problem says that solvers start.
        """
        x0, p, horizon = self.x0, np.array(self.ocp.p), float(self.ocp.horizon)
        if free is not None and free.size:
            x0, p, horizon = self._placed(np.clip(free, 0.0, 1.0), x0, p, horizon)
        pieces = PIECES if self.rest.size else 1
        t = (np.arange(pieces) + 0.5) / pieces
        knots = np.linspace(0.0, 1.0, len(rows)) if len(rows) > 1 else np.zeros(1)
        values = [np.interp(t, knots, column) for column in np.asarray(rows, float).T]
        controls = np.clip(np.column_stack([np.zeros((pieces, 0)), *values]), self.lower, self.upper)
        control = PiecewiseConstant(np.linspace(0.0, horizon, pieces + 1), controls)
        return Start(control=control, x0=x0, p=p, horizon=horizon)

    def _placed(self, shares: Array, x0: Array, p: Array, horizon: float) -> tuple[Array, Array, float]:
        """What the problem leaves free: parameters, the horizon, the initial state nearest to one in a box."""
        ocp, left = self.ocp, list(shares)
        for name, (low, high) in ocp.free_parameters.items():
            row = ocp.system.parameter_names.index(name)
            p[row] = _between(left.pop(0), low, high, p[row], 1.0)
        if ocp.free_time is not None:
            low, high = ocp.free_time.lower, ocp.free_time.upper
            horizon = float(low * (high / low) ** left.pop(0))
        if ocp.x0 is None:
            left += [] if ocp.system.autonomous else [0.5]
            bounds = zip(left, *ocp.x_bounds, x0, np.asarray(ocp.system.x_nominal, float), strict=True)
            x0 = free_start(replace(ocp, p=p), np.array([_between(*each) for each in bounds]))
        return x0, p, horizon

    def motion(self, start: Start, time_limit: float | None = None) -> Trajectory:
        """The exact motion of a start, up to where the simulation got."""
        asked = SimulationTask(x0=start.x0, duration=start.horizon, u=start.control, p=start.p, time_limit=time_limit)
        return SMOOTH.simulate(self.ocp.system, asked)


def _between(share: float, low: float, high: float, middle: float, size: float) -> float:
    """A number between bounds; where one of them is infinite, within a size of a number."""
    low = low if np.isfinite(low) else min(middle, high) - max(size, abs(middle))
    high = high if np.isfinite(high) else max(middle, low) + max(size, abs(middle))
    return float(low + share * (high - low))


def _balance(ocp: OCP, x0: Array) -> tuple[Array, Array]:
    """The control that leaves the least force (flow) at x0, and its size that changes the motion as the rest does."""
    s = ocp.system
    force = s.force if isinstance(s, CLS) else s.flow
    at = ca.Function("force", [s.x, s.u, s.p], [force, ca.jacobian(force, s.u)])
    value, slope = (np.array(part) for part in at(x0, np.zeros(s.n_u), ocp.p))
    if not (np.isfinite(value).all() and np.isfinite(slope).all()):
        return np.zeros(s.n_u), np.zeros(s.n_u)
    rest = -np.linalg.lstsq(slope, value[:, 0], rcond=1e-10)[0] if slope.size else np.zeros(s.n_u)
    strongest = np.abs(value).max(initial=0.0)
    gains = np.abs(slope).max(axis=0, initial=0.0)
    return rest, np.where(gains > 0.0, strongest / np.where(gains > 0.0, gains, 1.0), 0.0)


def constant(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """Nothing, and what holds the system still."""
    yield task.start(task.zero[None])
    yield task.start(task.rest[None])


def random(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """Random knots joined by straight lines, around zero or around what holds the system still."""
    half = 0.5 * (task.upper - task.lower)
    while True:
        knots, size = int(rng.choice(KNOTS)), float(rng.choice(SIZES))
        centre = task.rest if rng.random() < 0.5 else task.zero
        rows = centre + size * half * rng.uniform(-1.0, 1.0, (knots, half.size))
        yield task.start(rows, rng.random(task.freedom))


def line(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """Computed torque: the forces of a smooth way to the goal in configuration space, as far as the controls have them.

    The goal is what the terminal constraints and costs ask of the positions: the nearest state that satisfies them.
    """
    ocp, s = task.ocp, task.ocp.system
    if not isinstance(s, CLS) or not s.n_u:
        return
    end = task.goal
    if end is None:
        return
    T = float(ocp.horizon)
    force = ca.Function("force", [s.x, s.u, s.p], [s.mass_matrix, s.force, ca.jacobian(s.force, s.u)])
    far = np.abs(end - task.x0)[s.at_q].max(initial=0.0)
    for swing in SWINGS:
        rows = []
        for t in (np.arange(PIECES) + 0.5) / PIECES * T:
            q, v, a, y = waypoint(s, task.x0, end, t, T)
            bump, rate, bend = (swing * far * part for part in _bump(t, T))
            aside = s.mechanics.moved(np.concatenate([q, v, y]), ocp.p, np.full(s.n_v, bump))
            x = np.concatenate([q + aside, v + rate, y])
            mass, drift, slope = (np.array(part) for part in force(x, 0.0, ocp.p))
            rows.append(np.linalg.lstsq(slope, mass @ (a + bend) - drift[:, 0], rcond=1e-8)[0])
        yield task.start(np.nan_to_num(rows))


def _bump(t: float, T: float) -> tuple[float, float, float]:
    """16 r^2 (1 - r)^2 with its derivatives."""
    r = t / T
    return (
        16.0 * r**2 * (1.0 - r) ** 2,
        32.0 * r * (1.0 - r) * (1.0 - 2.0 * r) / T,
        32.0 * (1.0 - 6.0 * r + 6.0 * r**2) / T**2,
    )


def goal(ocp: OCP, x0: Array) -> Array | None:
    """The state nearest to x0 that the terminal constraints allow and the terminal cost likes; None without either."""
    s = ocp.system
    if not ocp.terminal_constraints and ocp.terminal_cost.is_constant():
        return None
    settled = ocp.settled(float(ocp.horizon), ocp.p)
    ends, limits = settled.terminal_constraints, (np.zeros(0),)
    rows = ca.vertcat(ca.SX(0, 1), *[c.expression for c in ends])
    low, high = (np.concatenate([*limits, *[getattr(c, side) for c in ends]]) for side in ("lower", "upper"))
    at = ca.Function("end", [s.x, s.x_initial, s.p], [rows, settled.terminal_cost])
    made = at(s.x, x0, ocp.p)
    sizes = np.maximum(np.abs(x0), np.asarray(s.x_nominal, float))
    cost = made[1] + NEAR * ca.sumsqr((s.x - x0) / sizes)
    index = np.arange(x0.size)[None]
    numbers: dict[str, Any] = {"lower": low, "upper": high}
    block = NLPBlock(name="goal", y=s.x, rows=made[0], cost=cost, index=index, **numbers)
    low, high = ocp.x_bounds
    nlp = BlockNLP([block], low, high, sizes, x0)
    found = Ipopt(nlp, {}).solve(x0 / nlp.scale, np.empty(0), deadline=time.monotonic() + SECONDS).x * nlp.scale
    if not np.isfinite(found).all():
        return None
    end = np.clip(found, low, high)
    if not s.autonomous:
        end[-1] = x0[-1] + float(ocp.horizon)
    return end
