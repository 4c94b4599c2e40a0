"""Forward integration on equal steps with prediction of collision times (HMP, Eqs. 17-20).

Steps without collisions are one compiled call for many of them; collisions are found from the guards at the nodes and
their rates, located to rounding, and followed by the rest of their step.

What a pass of the method of successive approximations finds, on whatever grid, and how it may fail, is here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.methods.indirect.motion import HybridMotion, MotionPhase
from nosnoc_py.methods.indirect.problem import HybridProblem
from nosnoc_py.motion.crossing import root
from nosnoc_py.status import Status
from nosnoc_py.tableaus import explicit

Array = np.ndarray

# Steps in one compiled call: what follows a collision inside of it is thrown away.
LONGEST_CALL = 128
MOST_COLLISIONS = 100
# So many collisions in one step that end in a tangent one are the beginning of infinitely many.
CHATTER = 8
# Two guards closer to zero than this, in units of how far they can move in a step, are hit at once.
SIMULTANEOUS = 1e-9
# Angle between the flow and the guard's surface below which the collision is tangent.
TANGENT = 1e-8
# Intervals shorter than this, in horizons, are left out of a motion: a collision on a node of the grid.
SHORTEST = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True)
class GridSweep:
    """State and costate of a control, and the control that minimises their Hamiltonian.

    Attributes
    ----------
    control : ndarray
        As it was used; the grid decides the shape.
    target : ndarray
        u_* of HMP, Eq. 25, of the same shape.
    objective : float
    slope : float
        L2 norm of H_u (Eq. 30), or of `Minimiser.residual` where the controls are bounded.
    times : tuple of float
        Times of the collisions [s].
    jumps : tuple of int
        Which jumps they were.
    motion : function () -> HybridMotion
        Everything, with costates; made when asked for.
    """

    control: Array
    target: Array
    objective: float
    slope: float
    times: tuple[float, ...]
    jumps: tuple[int, ...]
    motion: Callable[[], HybridMotion]


class SweepFailure(Exception):
    """A pass that cannot be completed: why, and what to say. Never leaves the methods of this room."""

    def __init__(self, status: Status, message: str = "") -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True, eq=False, kw_only=True)
class Collision:
    """A jump inside step n, s seconds after its start: from x_before to x_after."""

    step: int
    jump: int
    s: float
    x_before: Array
    x_after: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class StepMotion:
    """States x (N + 1, n_x) at the nodes under a control u (N, n_u), and the collisions in between."""

    x: Array
    u: Array
    collisions: tuple[Collision, ...]


class Forward:
    """Event-detecting explicit integration on N equal steps; built once per problem and N.

    Parameters
    ----------
    problem : HybridProblem
    steps : int
        N.
    scheme : {"euler", "rk4"}
        "euler" is Eqs. 17-19.
    after : {"next", "same"}
        Control in what is left of a step after a collision: that of the next step, as in Eq. 18 (the last step keeps
        its own), or the same.
    """

    def __init__(
        self,
        problem: HybridProblem,
        steps: int,
        scheme: Literal["euler", "rk4"] = "euler",
        after: Literal["next", "same"] = "next",
    ) -> None:
        self.problem, self.steps, self.scheme, self.after = problem, steps, scheme, after
        self.dt = problem.horizon / steps
        x, u, h = problem.x, problem.u, ca.SX.sym("h")
        flow = ca.Function("flow", [x, u], [problem.flow])
        end = one_step(flow, x, u, h, scheme)
        _, start_rate, *_ = problem.look(x, u)
        guards, end_rate, *_ = problem.look(end, u)
        step = ca.Function("step", [x, u, h], [end, guards, start_rate, end_rate])
        self.step = buffered(step)
        self._look = buffered(problem.look)
        # x is accumulated, so its output holds every node
        self._chunk = cache(lambda size: buffered(step.mapaccum("steps", size)))

    def __call__(self, u: Array) -> StepMotion:
        """Integrate from x0 under u (N, n_u).

        Raises
        ------
        SweepFailure
            Where two guards are hit at once, one is tangent or persists, collisions do not end, or numbers are not
            finite.
        """
        x = np.empty((self.steps + 1, self.problem.n_x))
        x[0] = self.problem.x0
        collisions: list[Collision] = []
        n = 0
        guards = self._look(x[0], u[0])[0][:, 0]
        self._check_left(x[0], u[0], self.dt, 0.0, 0)
        while n < self.steps:
            size = next(pieces(self.steps - n))
            ends, after, start_rate, end_rate = self._chunk(size)(x[n], u[n : n + size], self.dt)
            before = np.column_stack([guards, after[:, :-1]])
            suspects = self._suspects(before, after, start_rate, end_rate)
            count = int(suspects[0]) if suspects.size else size
            x[n + 1 : n + 1 + count] = ends.T[:count]
            if not np.isfinite(x[n + count]).all():
                raise SweepFailure(Status.NUMERICAL_ERROR, f"the state is not finite at t = {(n + count) * self.dt:g}")
            n, guards = n + count, before[:, count] if count < size else after[:, -1]
            if count < size:
                x[n + 1], found = self._walk(n, x[n], u)
                collisions += found
                if len(collisions) > MOST_COLLISIONS:
                    raise SweepFailure(Status.ZENO, f"more than {MOST_COLLISIONS} collisions")
                n += 1
                guards = self._look(x[n], u[min(n, self.steps - 1)])[0][:, 0]
        return StepMotion(x=x, u=u, collisions=tuple(collisions))

    def held(self, control: Callable[[float], Array], place: float = 0.5) -> Array:
        """The control (N, n_u) of a function of time: its values in the middles of the steps, or at another place."""
        return np.array([control((n + place) * self.dt) for n in range(self.steps)]).reshape(self.steps, -1)

    def control_after(self, u: Array, n: int) -> Array:
        """Control in step n after a collision there."""
        return np.asarray(u[min(n + 1, self.steps - 1) if self.after == "next" else n])

    @staticmethod
    def _suspects(before: Array, after: Array, start_rate: Array, end_rate: Array) -> Array:
        """Steps (of a chunk) in which a guard may reach zero: it ends at or below zero, or it dips."""
        entering = (after <= 0.0) & ((before > 0.0) | (end_rate < 0.0) | (start_rate < 0.0))
        dips = (after > 0.0) & (start_rate < 0.0) & (end_rate > 0.0)
        return np.flatnonzero((entering | dips).any(axis=0))

    def _walk(self, n: int, x: Array, u: Array) -> tuple[Array, list[Collision]]:
        """Step n with all of its collisions."""
        found: list[Collision] = []
        s, control = 0.0, u[n]
        while True:
            hit = self._first(x, control, self.dt - s, n * self.dt + s, len(found))
            if hit is None:
                return self.step(x, control, self.dt - s)[0][:, 0], found
            extra, jump = hit
            s += extra
            before = self.step(x, control, extra)[0][:, 0]
            x, next_control = self.problem.crossings[jump](before)[0][:, 0], self.control_after(u, n)
            later = self._look(x, next_control)[1][:, 0]
            self._check(before, control, jump, later, n * self.dt + s, len(found))
            found.append(Collision(step=n, jump=jump, s=s, x_before=before, x_after=x))
            control = next_control
            if len(found) > MOST_COLLISIONS:
                raise SweepFailure(Status.ZENO, f"more than {MOST_COLLISIONS} collisions at t = {n * self.dt + s:g}")

    def _first(self, x: Array, u: Array, h: float, t: float, earlier: int) -> tuple[float, int] | None:
        """When the first guard reaches zero within h after t, and which; `earlier` as in `_check`."""
        self._check_left(x, u, h, t, earlier)
        _, after, start_rate, end_rate = (out[:, 0] for out in self.step(x, u, h))
        before = self._look(x, u)[0][:, 0]

        def guard(i: int) -> Callable[[float], float]:
            return lambda s: float(self.step(x, u, s)[1][i, 0])

        known = zip(before, after, start_rate, end_rate, strict=True)
        roots = [_root(guard(i), h, *ends) for i, ends in enumerate(known)]
        return min(((s, i) for i, s in enumerate(roots) if s is not None), default=None)

    def _check_left(self, x: Array, u: Array, h: float, t: float, earlier: int) -> None:
        """Refuse a guard that is zero without a rate at t, and falls within h: the contact persists."""
        guards, rates, sizes = (out[:, 0] for out in self._look(x, u))
        _, after, _, end_rate = (out[:, 0] for out in self.step(x, u, h))
        near, still = SIMULTANEOUS * sizes * self.dt, np.abs(rates) <= TANGENT * sizes
        falling = np.flatnonzero((np.abs(guards) <= near) & still & (after <= near) & (end_rate < 0.0))
        if falling.size:
            said = f"is zero without a rate at t = {t:.6g}, and falls: the contact persists; use ns.FESDJ"
            self._refuse_tangent(int(falling[0]), said, t, earlier)

    def _refuse_tangent(self, jump: int, said: str, t: float, earlier: int) -> None:
        name = self.problem.names[jump]
        if earlier >= CHATTER:
            raise SweepFailure(Status.ZENO, f"collisions of {name!r} pile up at t = {t:.6g}")
        raise SweepFailure(Status.GRAZING, f"the guard {name!r} {said}")

    def _check(self, x: Array, u: Array, jump: int, later: Array, t: float, earlier: int) -> None:
        """Refuse what is no isolated, transversal collision.

        `later` are the rates of all guards after it, `earlier` is how many collisions its step has seen before.
        """
        guards, rates, sizes = (out[:, 0] for out in self._look(x, u))
        names = self.problem.names
        # a second one that is zero may rise, before and after
        near = (guards <= SIMULTANEOUS * sizes * self.dt) & (np.minimum(rates, later) <= TANGENT * sizes)
        also = [names[i] for i in np.flatnonzero(near) if i != jump]
        if also:
            both = f"{names[jump]!r} and {', '.join(map(repr, also))}"
            raise SweepFailure(Status.SIMULTANEOUS, f"{both} are hit at once at t = {t:.6g}, or touch already")
        if not abs(rates[jump]) > TANGENT * sizes[jump]:
            said = f"is reached tangentially at t = {t:.6g} (rate {rates[jump]:.2g}): transversality"
            self._refuse_tangent(jump, f"{said}, which the minimum principle needs, is violated", t, earlier)


def motion_of(forward: Forward, rollout: StepMotion, objective: float) -> HybridMotion:
    """The phases of a rollout, with collisions as nodes; intervals without length are left out.

    Its states are x, or (x, lambda), whose limits at a collision are those of the costate.
    """
    n_x, least, last = forward.problem.n_x, SHORTEST * forward.problem.horizon, forward.steps
    jumps = [(c, c.step * forward.dt + c.s) for c in rollout.collisions]
    starts = [(0, 0.0, rollout.x[0]), *[(c.step, t, c.x_after) for c, t in jumps]]
    ends = [*[(c.step, t, c.x_before) for c, t in jumps], (last - 1, last * forward.dt, rollout.x[-1])]
    phases: list[MotionPhase] = []
    for (first, begin, left), (final, end, right) in zip(starts, ends, strict=True):
        steps = np.arange(first, final + 1)  # in which the phase is
        t = np.array([begin, *(steps[1:] * forward.dt), end])
        z, u = np.vstack([left, rollout.x[steps[1:]], right]), rollout.u[steps]
        if phases:
            u[0] = forward.control_after(rollout.u, first)
        kept = np.append(True, np.diff(t) > least)
        if not kept[-1] and end - begin > least:  # of two nodes at the same time the one at the collision stays
            kept[-2:], u[-1] = (False, True), u[-2]
        x, costate = np.split(z[kept], [n_x], axis=1)
        phases.append(MotionPhase(t=t[kept], x=x, u=u[kept[1:]], costate=costate if costate.size else None))
    return HybridMotion(phases=tuple(phases), jumps=tuple(c.jump for c, _ in jumps), objective=objective)


def one_step(flow: Callable[[ca.SX, ca.SX], ca.SX], x: ca.SX, u: ca.SX, h: ca.SX, scheme: str) -> ca.SX:
    """The state after a step of length h under the control u."""
    return explicit(1 if scheme == "euler" else 4).step(lambda _, state: flow(state, u), x, h)


def pieces(count: int) -> Iterator[int]:
    """Sizes of compiled calls, largest first, that make up a number of steps."""
    while count:
        size = min(LONGEST_CALL, 1 << (count.bit_length() - 1))
        yield size
        count -= size


def _root(
    guard: Callable[[float], float], h: float, before: float, after: float, start_rate: float, end_rate: float
) -> float | None:
    """The first time in (0, h] at which a guard is zero and falling (Eq. 17); 0 where it is so at the start."""
    if before <= 0.0 and start_rate < 0.0:
        return 0.0
    low, high = 0.0, h
    if after > 0.0 and start_rate < 0.0 < end_rate:  # it may dip below zero
        high = _extreme(guard, h)
    elif before <= 0.0 and after <= 0.0 and end_rate < 0.0:  # it leaves and comes back
        low = _extreme(lambda s: -guard(s), h)
    if guard(low) <= 0.0 or guard(high) > 0.0:
        return None
    return high if guard(high) == 0.0 else root(guard, low, high)


def _extreme(function: Callable[[float], float], h: float) -> float:
    """Where a function is smallest in (0, h)."""
    from scipy.optimize import minimize_scalar

    return float(minimize_scalar(function, bounds=(0.0, h), method="bounded", options={"xatol": 1e-12 * h}).x)
