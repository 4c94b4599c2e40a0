"""What is known of the optimal control of the particle (Example 5) without any time-freezing or finite elements.

From rest at (0, 1) to rest at (3, 0) in T = 2 s with |u_1| <= 10, u_2 = 0 and the least integral of u_1^2. The motion
is piecewise quadratic in time: flight until t_i = sqrt(2 / g), an impact that takes mu g t_i from v_x (or all of it),
sliding with v_x' = u_1 - mu g sgn(v_x), sticking where v_x = 0 and |u_1| <= mu g. In the pattern studied here the
particle slides from the impact on, stops once, at t_s, and sticks.

Over all controls: u_1 = min(10, b (t_s - t)) by the minimum principle (the velocity's multiplier vanishes with u_1 at
the free time t_s), and v_x(t_s) = 0, x(t_s) = 3 give with k = (10 - mu g) / 5

    t_s^2 (5 - 5 k^2 / 3 - mu g / 2) = 3 - mu,    b = 10 / (k t_s),    J = 100 t_s (1 - 2 k / 3).

Over controls that are constant in N equal intervals: one smooth program for every interval in which the stop may lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.particle import START
from nosnoc_py.errors import ModelError
from tests.references.friction_motion import Motion, line, motion

Array = NDArray[np.float64]
Events = tuple[tuple[str, float], ...]

GRAVITY = 9.81
FRICTION = 0.6
DURATION = 2.0
BOUND = 10.0  # of |u_1| [N]
GOAL = 3.0  # x(T) [m]
GRIP = FRICTION * GRAVITY  # friction force in contact [N]
LANDING = sqrt(2.0 / GRAVITY)  # time of the impact [s]
EDGE = 1e-7  # an interior-point method ends this much short of a bound at most
IPOPT = {"print_level": 0, "sb": "yes", "tol": 1e-11, "bound_relax_factor": 0.0, "max_iter": 300}


# Simulation ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactMotion:
    """A motion without error of discretisation.

    Attributes
    ----------
    motion : Motion
        t -> (x, y, v_x, v_y), right limits.
    state : (4,)
        At the end.
    impact_time : float or None
        [s]; None if the particle does not land.
    impulse : (2,)
        Tangential and normal impulse of the impact [N s].
    events : tuple of (kind, time)
        "impact" (and "stick" if the particle rests from there on), after it "stick", "reversal", "slip" (out of rest).
    """

    motion: Motion
    state: Array
    impact_time: float | None
    impulse: Array
    events: Events

    @property
    def stop_time(self) -> float | None:
        """Since when the particle rests until the end [s]; None if it does not."""
        stops = [time for kind, time in self.events if kind == "stick"]
        return stops[-1] if stops and self.state[2] == 0.0 else None


def exact_motion(
    control: ArrayLike,
    duration: float = DURATION,
    friction: float = FRICTION,
    start: ArrayLike = START,
) -> ExactMotion:
    """Simulate from event to event.

    Parameters
    ----------
    control : (N,)
        Horizontal force in N equal intervals [N].
    duration : float
        [s].
    friction : float
        Coefficient mu.
    start : (4,)
        (x, y, v_x, v_y) at t = 0.

    Raises
    ------
    ModelError
        If the particle starts below the ground, or there is no time or no control.
    """
    control, start = np.asarray(control, dtype=float).reshape(-1), np.asarray(start, dtype=float)
    if start[1] < 0.0 or duration <= 0.0 or control.size == 0:
        raise ModelError(f"needs y >= 0, a duration and controls; given {start}, {duration}, {control.size} controls.")
    landing = _landing(start)
    grid = np.linspace(0.0, duration, control.size + 1)
    moved, impulse = motion(start[:2], start[2:]), np.zeros(2)
    events: Events = ()
    for force, begin, end in zip(control.tolist(), grid[:-1].tolist(), grid[1:].tolist(), strict=True):
        if begin < landing:
            moved = moved.then(begin, a=(force, -GRAVITY))
        if begin <= landing < end:
            impulse = _impact(moved(landing)[2:], friction)
            moved, happened = _on_ground(moved, landing, end, force, friction, impulse)
            events = (("impact", landing), *happened)
        elif landing < begin:
            moved, happened = _on_ground(moved, begin, end, force, friction)
            events = (*events, *happened)
    return ExactMotion(
        motion=moved,
        state=moved(duration),
        impact_time=landing if landing < duration else None,
        impulse=impulse,
        events=events,
    )


def _landing(start: Array) -> float:
    """Time at which the parabola meets the ground [s]."""
    height, climb = float(start[1]), float(start[3])
    return (climb + sqrt(climb**2 + 2.0 * GRAVITY * height)) / GRAVITY


def _impact(velocity: Array, friction: float) -> Array:
    """Tangential and normal impulse of an inelastic impact with (v_x, v_y)."""
    normal = max(-float(velocity[1]), 0.0)
    return np.array([-np.clip(velocity[0], -friction * normal, friction * normal), normal])


def _on_ground(
    moved: Motion, begin: float, end: float, force: float, friction: float, impulse: Array | None = None
) -> tuple[Motion, Events]:
    """Continue from `begin` to `end` on the ground under a constant force, after an impulse if there is one."""
    speed = float(moved(begin)[2]) + (0.0 if impulse is None else float(impulse[0]))
    found = line(speed, force, friction * GRAVITY)
    for later, velocity, acceleration in found.pieces:
        if begin + later < end:
            moved = moved.then(begin + later, v=(velocity, 0.0), a=(acceleration, 0.0), at={1: 0.0})
    rests = speed == 0.0 and found.pieces[0][2] == 0.0
    slips = speed == 0.0 and not rests and impulse is None
    events = [("stick", begin)] if rests and impulse is not None else [("slip", begin)] if slips else []
    if found.event is not None and begin + found.event[1] < end:
        events.append((found.event[0], begin + found.event[1]))
    return moved, tuple(events)


# Optimal control -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ContinuousOptimum:
    """The best control of all: u_1 = min(10, rate (stop - t)), then 0; full force until `release` [N/s, s, s]."""

    objective: float
    rate: float
    release: float
    stop: float

    def __call__(self, t: ArrayLike) -> Array:
        """The control (n,) at times t (n,) [N]."""
        return np.clip(self.rate * (self.stop - np.asarray(t, dtype=float)), 0.0, BOUND)


def continuous_optimum() -> ContinuousOptimum:
    """The optimum of the pattern slide, stop once, stick over all controls, in closed form (see the module)."""
    fade = (BOUND - GRIP) / (BOUND / 2.0)  # share of the time until the stop in which the force fades
    stop = sqrt((GOAL - FRICTION) / (BOUND / 2.0 * (1.0 - fade**2 / 3.0) - GRIP / 2.0))
    objective = BOUND**2 * stop * (1.0 - 2.0 * fade / 3.0)
    return ContinuousOptimum(objective=objective, rate=BOUND / (fade * stop), release=stop * (1.0 - fade), stop=stop)


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Slide to the right once, stop, stick.

    Parameters
    ----------
    intervals : int
        N, of equal length.
    stop : int
        Interval in which the particle stops.
    start : int, optional
        Interval at whose beginning it slips out of rest; then the impact takes all of v_x. Default: it slides from the
        impact on.
    stop_time : float, optional
        Prescribed [s]; default: free in its interval.
    """

    intervals: int
    stop: int
    start: int | None = None
    stop_time: float | None = None

    @property
    def grid(self) -> Array:
        """Control grid (N + 1,) [s]."""
        return np.linspace(0.0, DURATION, self.intervals + 1)

    @property
    def landing(self) -> int:
        """Interval of the impact."""
        return int(np.searchsorted(self.grid, LANDING, side="right")) - 1


@dataclass(frozen=True, eq=False, kw_only=True)
class PiecewiseConstantOptimum:
    """The best control (N,) [N] of a pattern, its integral of u_1^2 [N^2 s], and when the particle stops [s]."""

    pattern: Pattern
    objective: float
    control: Array
    stop: float


def piecewise_constant_optimum(intervals: int = 20) -> PiecewiseConstantOptimum:
    """The optimum over controls that are constant in equal intervals, of the pattern slide, stop once, stick.

    Raises
    ------
    ModelError
        If no interval of the stop admits a solution.
    """
    first = Pattern(intervals=intervals, stop=0).landing
    found = [optimum(Pattern(intervals=intervals, stop=stop)) for stop in range(first, intervals)]
    feasible = [one for one in found if one is not None]
    if not feasible:
        raise ModelError(f"the goal is out of reach with intervals={intervals}.")
    return min(feasible, key=lambda one: one.objective)


def optimum(pattern: Pattern, guess: ArrayLike = 5.0) -> PiecewiseConstantOptimum | None:
    """The optimum of one pattern from one guess of the control; None if the solver finds no feasible point."""
    u, stop = ca.SX.sym("u", pattern.intervals), ca.SX.sym("stop")
    ends, inequalities = _motion_of(pattern, u, stop)
    lower, upper = _bounds(pattern)
    step = DURATION / pattern.intervals
    program = {"x": ca.vertcat(u, stop), "f": step * ca.sumsqr(u), "g": ca.vertcat(ends, inequalities)}
    solver = ca.nlpsol("optimum", "ipopt", program, {"print_time": False, "ipopt": IPOPT, "error_on_fail": False})
    start = np.append(np.broadcast_to(np.asarray(guess, dtype=float), pattern.intervals), (lower[-1] + upper[-1]) / 2.0)
    limits = {"lbg": 0.0, "ubg": [0.0, 0.0] + [ca.inf] * inequalities.numel()}
    solution = solver(x0=start, lbx=lower, ubx=upper, **limits)
    if not solver.stats()["success"]:
        return None
    point = _polish(np.array(solution["x"]).ravel(), lower, upper, ca.Function("ends", [u, stop], [ends]))
    control = point[:-1]
    return PiecewiseConstantOptimum(
        pattern=pattern, objective=step * float(control @ control), control=control, stop=float(point[-1])
    )


def _bounds(pattern: Pattern) -> tuple[Array, Array]:
    """Bounds of (u, stop), (N + 1,): |u_1| <= 10, and <= mu g where the particle is at rest in the interval."""
    rest = np.zeros(pattern.intervals, dtype=bool)
    rest[pattern.stop :] = True
    lower, upper = np.full(pattern.intervals, -BOUND), np.full(pattern.intervals, BOUND)
    if pattern.start is not None:
        rest[pattern.landing : pattern.start] = True
        lower[pattern.start] = GRIP
    if pattern.stop_time == pattern.grid[pattern.stop + 1]:  # no rest in this one
        rest[pattern.stop] = False
    lower[rest], upper[rest] = np.maximum(lower[rest], -GRIP), GRIP
    begin, end = max(pattern.grid[pattern.stop], LANDING), pattern.grid[pattern.stop + 1]
    if pattern.stop_time is not None:
        begin = end = pattern.stop_time
    return np.append(lower, begin), np.append(upper, end)


def _motion_of(pattern: Pattern, u: Any, stop: Any) -> tuple[Any, Any]:
    """(x - 3, v_x) at the stop, which have to vanish, and what must not be negative."""
    x, v, _ = _advance(pattern, u, (0.0, 0.0), 0.0, LANDING, 0.0)
    if pattern.start is None:
        after, begin = v - GRIP * LANDING, LANDING
        kept = [after]
    else:
        after, begin = 0.0, float(pattern.grid[pattern.start])
        kept = [GRIP * LANDING - v, GRIP * LANDING + v]
    x, v, speeds = _advance(pattern, u, (x, after), begin, stop, GRIP)
    return ca.vertcat(x - GOAL, v), ca.vertcat(*kept, *speeds)


def _advance(
    pattern: Pattern, u: Any, state: tuple[Any, Any], begin: float, end: Any, friction: float
) -> tuple[Any, Any, list[Any]]:
    """(x, v_x) from `begin` to `end` to the right against friction, and v_x at the control grid between them."""
    last = pattern.landing if friction == 0.0 else pattern.stop
    first = int(np.searchsorted(pattern.grid, begin, side="right")) - 1
    (x, v), speeds = state, []
    for k in range(first, last + 1):
        length = (end if k == last else pattern.grid[k + 1]) - max(begin, pattern.grid[k])
        acceleration = u[k] - friction
        x, v = x + length * (v + length * acceleration / 2.0), v + length * acceleration
        speeds += [v] if k < last else []
    return x, v, speeds


def _polish(point: Array, lower: Array, upper: Array, ends: ca.Function) -> Array:
    """Put what lies at a bound on it and correct the other controls, so that the end is met to rounding.

    For a fixed stop the end is linear in the control: the smallest correction is one linear solve.
    """
    point = np.where(point - lower < EDGE, lower, np.where(upper - point < EDGE, upper, point))
    free = np.append((point > lower)[:-1] & (point < upper)[:-1], False)
    u = ca.SX.sym("u", point.size - 1)
    slope = np.array(ca.Function("slope", [u], [ca.jacobian(ends(u, point[-1]), u)])(point[:-1]))[:, free[:-1]]
    point[free] -= np.linalg.pinv(slope) @ np.array(ends(point[:-1], point[-1])).ravel()
    return point
