"""Forward integration on equal steps with prediction of collision times (HMP, Eqs. 17-20).

Steps without collisions are one compiled call for many of them; collisions are found from the guards at the nodes and
their rates, located to rounding, and followed by the rest of their step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.indirect.motion import Motion, Phase
from nosnoc_py.indirect.problem import HybridProblem
from nosnoc_py.indirect.sweep import SweepFailure
from nosnoc_py.status import Status

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
class Collision:
    """A jump inside step n, s seconds after its start: from x_before to x_after."""

    step: int
    jump: int
    s: float
    x_before: Array
    x_after: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class Rollout:
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
        rate = ca.mtimes(ca.jacobian(problem.guards, x), problem.flow)
        look = ca.Function("look", [x, u], [problem.guards, rate])
        _, start_rate = look(x, u)
        guards, end_rate = look(end, u)
        self._step = ca.Function("step", [x, u, h], [end, guards, start_rate, end_rate])
        fixed = self._step(x, u, ca.SX(self.dt))
        self._fixed = ca.Function("fixed_step", [x, u], list(fixed))
        self.step = buffered(self._step)
        self._look = buffered(look)
        self._resets = [buffered(ca.Function("reset", [x], [reset])) for reset in problem.resets]
        self._steepness = buffered(ca.Function("steepness", [x, u], [_steepness(problem)]))
        self._chunks: dict[int, Callable[..., list[Array]]] = {}

    def __call__(self, u: Array) -> Rollout:
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
            ends, after, start_rate, end_rate = self._chunk(size)(x[n], u[n : n + size])
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
        return Rollout(x=x, u=u, collisions=tuple(collisions))

    def control_after(self, u: Array, n: int) -> Array:
        """Control in step n after a collision there."""
        return np.asarray(u[min(n + 1, self.steps - 1) if self.after == "next" else n])

    def _chunk(self, size: int) -> Callable[..., list[Array]]:
        if size not in self._chunks:
            # x is accumulated, so its output holds every node
            self._chunks[size] = buffered(self._fixed.mapaccum(f"steps_{size}", size))
        return self._chunks[size]

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
            jump, extra = hit
            s += extra
            before = self.step(x, control, extra)[0][:, 0]
            x, next_control = self._resets[jump](before)[0][:, 0], self.control_after(u, n)
            later = self._look(x, next_control)[1][:, 0]
            self._check(before, control, jump, later, n * self.dt + s, len(found))
            found.append(Collision(step=n, jump=jump, s=s, x_before=before, x_after=x))
            control = next_control
            if len(found) > MOST_COLLISIONS:
                raise SweepFailure(Status.ZENO, f"more than {MOST_COLLISIONS} collisions at t = {n * self.dt + s:g}")

    def _first(self, x: Array, u: Array, h: float, t: float, earlier: int) -> tuple[int, float] | None:
        """The first guard that reaches zero within h after t, and when; `earlier` as in `_check`."""
        self._check_left(x, u, h, t, earlier)
        _, after, start_rate, end_rate = (out[:, 0] for out in self.step(x, u, h))
        before = self._look(x, u)[0][:, 0]
        hits = [
            (s, i)
            for i in range(after.size)
            if (s := self._root(i, x, u, h, before[i], after[i], start_rate[i], end_rate[i])) is not None
        ]
        return None if not hits else (min(hits)[1], min(hits)[0])

    def _root(
        self, i: int, x: Array, u: Array, h: float, before: float, after: float, start_rate: float, end_rate: float
    ) -> float | None:
        """The first time in (0, h] at which guard i is zero and falling (Eq. 17); 0 where it is so at the start."""

        def guard(s: float) -> float:
            return float(self.step(x, u, s)[1][i, 0])

        if before <= 0.0 and start_rate < 0.0:
            return 0.0
        low, high = 0.0, h
        if after > 0.0:
            if not (start_rate < 0.0 < end_rate):
                return None
            high = _extreme(guard, h)
            if guard(high) > 0.0:
                return None
        elif before <= 0.0:  # it leaves and comes back
            if end_rate >= 0.0:
                return None
            low = _extreme(lambda s: -guard(s), h)
            if guard(low) <= 0.0:
                return None
        from scipy.optimize import brentq  # slow to import, and not needed to define options

        return high if guard(high) == 0.0 else float(brentq(guard, low, high, xtol=1e-18, rtol=1e-15))

    def _check_left(self, x: Array, u: Array, h: float, t: float, earlier: int) -> None:
        """Refuse a guard that is zero without a rate at t, and falls within h: the contact persists."""
        guards, rates = (out[:, 0] for out in self._look(x, u))
        _, after, _, end_rate = (out[:, 0] for out in self.step(x, u, h))
        sizes = self._steepness(x, u)[0][:, 0]
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
        guards, rates = (out[:, 0] for out in self._look(x, u))
        names, sizes = self.problem.names, self._steepness(x, u)[0][:, 0]
        # a second one that is zero may rise, before and after
        near = (guards <= SIMULTANEOUS * sizes * self.dt) & (np.minimum(rates, later) <= TANGENT * sizes)
        also = [names[i] for i in np.flatnonzero(near) if i != jump]
        if also:
            both = f"{names[jump]!r} and {', '.join(map(repr, also))}"
            raise SweepFailure(Status.SIMULTANEOUS, f"{both} are hit at once at t = {t:.6g}, or touch already")
        if not abs(rates[jump]) > TANGENT * sizes[jump]:
            said = f"is reached tangentially at t = {t:.6g} (rate {rates[jump]:.2g}): transversality"
            self._refuse_tangent(jump, f"{said}, which the minimum principle needs, is violated", t, earlier)


def motion_of(
    forward: Forward,
    rollout: Rollout,
    objective: float,
    costate: Array | None = None,
    limits: Sequence[tuple[Array, Array]] = (),
) -> Motion:
    """The phases of a rollout, with collisions as nodes; intervals without length are left out.

    Parameters
    ----------
    costate : (N + 1, n_x), optional
        At the nodes of the grid.
    limits : one pair of (n_x,) per collision
        Costates before and after it; with `costate` only.
    """
    dt, known = forward.dt, costate is not None
    nodes = np.zeros_like(rollout.x) if costate is None else costate
    phases: list[Phase] = []
    t, x, u, after = [0.0], [rollout.x[0]], list[Array](), [nodes[0]]
    pending = list(
        zip(rollout.collisions, limits if known else [(nodes[0],) * 2] * len(rollout.collisions), strict=True)
    )

    def add(time: float, state: Array, control: Array, value: Array, *, ends: bool) -> None:
        """A node. Of two at the same time the one at the collision stays."""
        if time - t[-1] > SHORTEST * forward.problem.horizon:
            t.append(time)
            x.append(state)
            u.append(control)
            after.append(value)
        elif ends and len(t) > 1:
            t[-1], x[-1], after[-1] = time, state, value

    def close() -> None:
        held = np.array(u).reshape(len(t) - 1, -1) if u else np.empty((0, rollout.u.shape[1]))
        phases.append(Phase(t=np.array(t), x=np.array(x), u=held, costate=np.array(after) if known else None))

    for n in range(forward.steps):
        control = rollout.u[n]
        while pending and pending[0][0].step == n:
            collision, (left, right) = pending.pop(0)
            add(n * dt + collision.s, collision.x_before, control, left, ends=True)
            close()
            t, x, u, after = [t[-1]], [collision.x_after], [], [right]
            control = forward.control_after(rollout.u, n)
        add((n + 1) * dt, rollout.x[n + 1], control, nodes[n + 1], ends=False)
    close()
    return Motion(phases=tuple(phases), jumps=tuple(c.jump for c in rollout.collisions), objective=objective)


def one_step(flow: Callable[[ca.SX, ca.SX], ca.SX], x: ca.SX, u: ca.SX, h: ca.SX, scheme: str) -> ca.SX:
    """The state after a step of length h."""
    k1 = flow(x, u)
    if scheme == "euler":
        return x + h * k1
    k2 = flow(x + h / 2 * k1, u)
    k3 = flow(x + h / 2 * k2, u)
    k4 = flow(x + h * k3, u)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def pieces(count: int) -> Iterator[int]:
    """Sizes of compiled calls, largest first, that make up a number of steps."""
    while count:
        size = min(LONGEST_CALL, 1 << (count.bit_length() - 1))
        yield size
        count -= size


def _steepness(problem: HybridProblem) -> ca.SX:
    """|psi_x| |f|, what the rate of a guard is compared with."""
    gradient = ca.jacobian(problem.guards, problem.x)
    speed = ca.norm_2(problem.flow)
    return ca.vertcat(*[ca.norm_2(gradient[i, :]) * speed for i in range(gradient.shape[0])])


def _extreme(function: Callable[[float], float], h: float) -> float:
    """Where a function is smallest in (0, h)."""
    from scipy.optimize import minimize_scalar

    return float(minimize_scalar(function, bounds=(0.0, h), method="bounded", options={"xatol": 1e-12 * h}).x)
