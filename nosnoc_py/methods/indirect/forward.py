"""Forward integration on equal steps with located collisions (HMP, Eqs. 17-20).

Chunks of up to 128 steps are one compiled call that also returns the guards psi and their rates at both ends of each
step. A step is suspect if a guard ends at or below zero, or falls first and rises last (it may dip below zero in
between). Suspect steps are repeated one by one: the first root of a guard is located to rounding, the reset is applied,
and the rest of the step follows with the next control. The remainder of a chunk after a suspect step is discarded.

The minimum principle needs isolated, transversal collisions. Simultaneous, tangential and persistent contacts raise a
`SweepFailure` with the status. `GridSweep` is the common result of a forward and backward pass on any grid.
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
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.tableaus import explicit

Array = np.ndarray

# Most steps in one compiled call: results after a collision are discarded, so longer chunks waste work.
LONGEST_CALL = 128
MAX_COLLISIONS = 100
# A tangential collision after this many in one step counts as Zeno behaviour, not as grazing.
CHATTER = 8
# Guards below this are hit simultaneously; in units of their largest change in a step, |psi_x| |f| dt.
SIMULTANEOUS = 1e-9
# Sine of the angle between flow and guard surface below which a collision is tangential.
TANGENT = 1e-8
# Intervals shorter than this, relative to the horizon, are removed from a motion (a collision at a node).
SHORTEST = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True)
class GridSweep:
    """Result of a forward and backward pass: objective, minimisers of the Hamiltonian, collisions.

    Attributes
    ----------
    control : ndarray
        Control of the pass; the shape depends on the grid.
    target : ndarray
        Minimisers u_* (HMP, Eq. 25), of the same shape.
    objective : float
    slope : float
        L2 norm of H_u (HMP, Eq. 30), or of `Minimiser.residual` if the controls are bounded.
    times : tuple of float
        Times of the collisions [s].
    jumps : tuple of int
        Their jump indices.
    motion : function () -> HybridMotion
        The motion with costates; built on demand.
    """

    control: Array
    target: Array
    objective: float
    slope: float
    times: tuple[float, ...]
    jumps: tuple[int, ...]
    motion: Callable[[], HybridMotion]


class SweepFailure(Exception):
    """Failure of a pass with status and message; caught by the methods of this folder."""

    def __init__(self, status: Status, message: str = "") -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True, eq=False, kw_only=True)
class Collision:
    """Jump in a step (number `step`), `s` seconds after its start, from x_before to x_after."""

    step: int
    jump: int
    s: float
    x_before: Array
    x_after: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class StepMotion:
    """States x (N + 1, n_x) at the nodes under a control u (N, n_u), and the collisions."""

    x: Array
    u: Array
    collisions: tuple[Collision, ...]


class Forward:
    """Explicit integration on N equal steps with event location; built once per problem and N.

    Parameters
    ----------
    problem : HybridProblem
    steps : int
        Number N of equal steps.
    scheme : {"euler", "rk4"}
        "euler" is the scheme of HMP, Eqs. 17-19.
    after : {"next", "same"}
        Control in the rest of a step after a collision: that of the next step, as in HMP, Eq. 18 (the last step keeps
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
        _, start_rate, *_ = problem.guard_rates(x, u)
        guards, end_rate, *_ = problem.guard_rates(end, u)
        step = ca.Function("step", [x, u, h], [end, guards, start_rate, end_rate])
        self.step = buffered(step)
        self._guard_rates = buffered(problem.guard_rates)
        # x is accumulated, so its output holds every node
        self._steps_function = cache(lambda size: buffered(step.mapaccum("steps", size)))

    def __call__(self, u: Array) -> StepMotion:
        """Integrate from x0 under u (N, n_u).

        Raises
        ------
        SweepFailure
            For simultaneous, tangential or persistent contacts, too many collisions, or NaN and inf.
        """
        x = np.empty((self.steps + 1, self.problem.n_x))
        x[0] = self.problem.x0
        collisions: list[Collision] = []
        n = 0
        guards = self._guard_rates(x[0], u[0])[0][:, 0]
        self._check_not_persistent(x[0], u[0], self.dt, 0.0, 0)
        while n < self.steps:
            # Integrate a whole chunk, keep it up to the first suspect step, and repeat that step with event location.
            size = next(chunk_sizes(self.steps - n))
            ends, after, start_rate, end_rate = self._steps_function(size)(x[n], u[n : n + size], self.dt)
            # Guards at the left ends: those after a collision, then the right ends of the steps before.
            before = np.column_stack([guards, after[:, :-1]])
            suspects = self._suspects(before, after, start_rate, end_rate)
            count = int(suspects[0]) if suspects.size else size
            x[n + 1 : n + 1 + count] = ends.T[:count]
            if not np.isfinite(x[n + count]).all():
                raise SweepFailure(Status.NUMERICAL_ERROR, f"the state is not finite at t = {(n + count) * self.dt:g}")
            n, guards = n + count, before[:, count] if count < size else after[:, -1]
            if count < size:
                x[n + 1], step_collisions = self._step_with_collisions(n, x[n], u)
                collisions += step_collisions
                if len(collisions) > MAX_COLLISIONS:
                    raise SweepFailure(Status.ZENO, f"more than {MAX_COLLISIONS} collisions")
                n += 1
                guards = self._guard_rates(x[n], u[min(n, self.steps - 1)])[0][:, 0]
        return StepMotion(x=x, u=u, collisions=tuple(collisions))

    def sampled_control(self, control: Callable[[float], Array], place: float = 0.5) -> Array:
        """Sample a function of time at a fraction `place` of every step (default the middle): (N, n_u)."""
        return np.array([control((n + place) * self.dt) for n in range(self.steps)]).reshape(self.steps, -1)

    def control_after(self, u: Array, n: int) -> Array:
        """Return the control in step n after a collision in it."""
        return np.asarray(u[min(n + 1, self.steps - 1) if self.after == "next" else n])

    @staticmethod
    def _suspects(before: Array, after: Array, start_rate: Array, end_rate: Array) -> Array:
        """Return the steps of a chunk in which a guard may reach zero: it ends at or below zero, or it may dip."""
        # A guard that starts at zero and rises is no event, hence the condition on the rates.
        entering = (after <= 0.0) & ((before > 0.0) | (end_rate < 0.0) | (start_rate < 0.0))
        dips = (after > 0.0) & (start_rate < 0.0) & (end_rate > 0.0)
        return np.flatnonzero((entering | dips).any(axis=0))

    def _step_with_collisions(self, n: int, x: Array, u: Array) -> tuple[Array, list[Collision]]:
        """Integrate step n with all of its collisions."""
        collisions: list[Collision] = []
        s, control = 0.0, u[n]
        while True:
            crossing = self._first_collision(x, control, self.dt - s, n * self.dt + s, len(collisions))
            if crossing is None:
                return self.step(x, control, self.dt - s)[0][:, 0], collisions
            delta, jump = crossing
            s += delta
            before = self.step(x, control, delta)[0][:, 0]
            x, next_control = self.problem.crossings[jump](before)[0][:, 0], self.control_after(u, n)
            rates_after = self._guard_rates(x, next_control)[1][:, 0]
            self._check_transversal(before, control, jump, rates_after, n * self.dt + s, len(collisions))
            collisions.append(Collision(step=n, jump=jump, s=s, x_before=before, x_after=x))
            control = next_control
            if len(collisions) > MAX_COLLISIONS:
                raise SweepFailure(Status.ZENO, f"more than {MAX_COLLISIONS} collisions at t = {n * self.dt + s:g}")

    def _first_collision(self, x: Array, u: Array, h: float, t: float, earlier: int) -> tuple[float, int] | None:
        """Return time after t (at most h) and index of the first guard that reaches zero, or None."""
        self._check_not_persistent(x, u, h, t, earlier)
        _, after, start_rate, end_rate = (out[:, 0] for out in self.step(x, u, h))
        before = self._guard_rates(x, u)[0][:, 0]

        def guard(i: int) -> Callable[[float], float]:
            return lambda s: float(self.step(x, u, s)[1][i, 0])

        guard_data = zip(before, after, start_rate, end_rate, strict=True)
        # Ties go to the lower index; simultaneous contacts are refused by `_check_transversal` anyway.
        roots = [_root(guard(i), h, *ends) for i, ends in enumerate(guard_data)]
        return min(((s, i) for i, s in enumerate(roots) if s is not None), default=None)

    def _check_not_persistent(self, x: Array, u: Array, h: float, t: float, earlier: int) -> None:
        """Raise if a guard is zero with zero rate at t and falls within h: the contact persists."""
        guards, rates, sizes = (out[:, 0] for out in self._guard_rates(x, u))
        _, after, _, end_rate = (out[:, 0] for out in self.step(x, u, h))
        threshold, is_still = SIMULTANEOUS * sizes * self.dt, np.abs(rates) <= TANGENT * sizes
        falling = np.flatnonzero((np.abs(guards) <= threshold) & is_still & (after <= threshold) & (end_rate < 0.0))
        if falling.size:
            # A user's own guards and resets are no contacts, which finite elements would take.
            remedy = "write it as an ns.CLS" if isinstance(self.problem.ocp.system, HybridSystem) else "use ns.FESDJ"
            message = f"is zero without a rate at t = {t:.6g}, and falls: the contact persists; {remedy}"
            self._refuse_tangent(int(falling[0]), message, t, earlier)

    def _refuse_tangent(self, jump: int, message: str, t: float, earlier: int) -> None:
        name = self.problem.names[jump]
        if earlier >= CHATTER:
            raise SweepFailure(Status.ZENO, f"collisions of {name!r} accumulate at t = {t:.6g}")
        raise SweepFailure(Status.GRAZING, f"the guard {name!r} {message}")

    def _check_transversal(self, x: Array, u: Array, jump: int, rates_after: Array, t: float, earlier: int) -> None:
        """Raise unless the collision is isolated and transversal.

        `rates_after` are the rates of all guards after it, `earlier` is how many collisions its step has seen before.
        """
        guards, rates, sizes = (out[:, 0] for out in self._guard_rates(x, u))
        names = self.problem.names
        # A second guard at zero is harmless if it rises both before and after the collision.
        near = (guards <= SIMULTANEOUS * sizes * self.dt) & (np.minimum(rates, rates_after) <= TANGENT * sizes)
        others = [names[i] for i in np.flatnonzero(near) if i != jump]
        if others:
            pair = f"{names[jump]!r} and {', '.join(map(repr, others))}"
            raise SweepFailure(Status.SIMULTANEOUS, f"{pair} are hit at once at t = {t:.6g}, or touch already")
        if not abs(rates[jump]) > TANGENT * sizes[jump]:
            message = f"is reached tangentially at t = {t:.6g} (rate {rates[jump]:.2g}): transversality"
            self._refuse_tangent(jump, f"{message}, which the minimum principle needs, is violated", t, earlier)


def motion_of(forward: Forward, rollout: StepMotion, objective: float) -> HybridMotion:
    """Return the phases of a rollout, with collisions as nodes and without intervals of zero length.

    The states of the rollout are x, or (x, lambda) with the limits of the costate at collisions.
    """
    n_x, shortest, last = forward.problem.n_x, SHORTEST * forward.problem.horizon, forward.steps
    jumps = [(c, c.step * forward.dt + c.s) for c in rollout.collisions]
    starts = [(0, 0.0, rollout.x[0]), *[(c.step, t, c.x_after) for c, t in jumps]]
    ends = [*[(c.step, t, c.x_before) for c, t in jumps], (last - 1, last * forward.dt, rollout.x[-1])]
    phases: list[MotionPhase] = []
    for (first, begin, left), (final, end, right) in zip(starts, ends, strict=True):
        steps = np.arange(first, final + 1)  # in which the phase is
        t = np.array([begin, *(steps[1:] * forward.dt), end])
        z, u = np.vstack([left, rollout.x[steps[1:]], right]), rollout.u[steps]
        if phases:
            # The rest of the collision step has its own control, see `after`.
            u[0] = forward.control_after(rollout.u, first)
        # A collision at a node of the grid gives two nodes at the same time.
        keep = np.append(True, np.diff(t) > shortest)
        if not keep[-1] and end - begin > shortest:  # of two nodes at the same time the one at the collision stays
            keep[-2:], u[-1] = (False, True), u[-2]
        x, costate = np.split(z[keep], [n_x], axis=1)
        phases.append(MotionPhase(t=t[keep], x=x, u=u[keep[1:]], costate=costate if costate.size else None))
    return HybridMotion(phases=tuple(phases), jumps=tuple(c.jump for c, _ in jumps), objective=objective)


def one_step(flow: Callable[[ca.SX, ca.SX], ca.SX], x: ca.SX, u: ca.SX, h: ca.SX, scheme: str) -> ca.SX:
    """Return the state after a step of length h under the control u."""
    return explicit(1 if scheme == "euler" else 4).step(lambda _, state: flow(state, u), x, h)


def chunk_sizes(count: int) -> Iterator[int]:
    """Yield sizes of compiled calls that sum up to a number of steps.

    Powers of two, so that at most eight functions of different lengths are compiled.
    """
    while count:
        size = min(LONGEST_CALL, 1 << (count.bit_length() - 1))
        yield size
        count -= size


def _root(
    guard: Callable[[float], float], h: float, before: float, after: float, start_rate: float, end_rate: float
) -> float | None:
    """Return the first time in (0, h] with a zero, falling guard (HMP, Eq. 17); 0 if it is so at the start."""
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
    """Return the minimiser of a function on (0, h)."""
    from scipy.optimize import minimize_scalar

    return float(minimize_scalar(function, bounds=(0.0, h), method="bounded", options={"xatol": 1e-12 * h}).x)
