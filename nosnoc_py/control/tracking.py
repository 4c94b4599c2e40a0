"""Linear-quadratic feedback about a plan with impacts, its gains from derivatives through the events."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nosnoc_py.api import simulate
from nosnoc_py.control.measured import admissible, unit_parts
from nosnoc_py.control.references import Reference, references_of
from nosnoc_py.control.robustness import Robustness, robustness
from nosnoc_py.control.windows import PlanWindow, PlanWindows
from nosnoc_py.errors import OptionError, check_type
from nosnoc_py.simulation.certification.windows import state_at
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.soft_constraints import without_slacks
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.solution.trajectory import PROBLEM
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import SampledLaw
from nosnoc_py.systems.described import Described

Array = np.ndarray
# Samples of a plan, at least.
SAMPLES = 100
# The motion about which the law is linear is improved so often, as long as the deviations lose such a share.
ROUNDS, GAINED = 8, 1e-3
# Bryson's rule: deviations of positions and of other states count like the whole range of a control when they reach
# these shares of the range of what is alike in the plan.
POSITION, OTHER = 0.05, 0.2


class TrackingLaw(SampledLaw):
    """u = u_k - k_k - K_k (x - x_k), held for a period, with gains K_k of a finite-horizon linear-quadratic regulator.

    Made by `nosnoc_py.track`; a control of every simulation (`u=law`) and of `nosnoc_py.close_loop`.

    Attributes
    ----------
    times : (M + 1,)
        Samples [s].
    states, controls : (M + 1, n_x), (M, n_u)
        The plan at the samples.
    gains : (M, n_u, n_x)
        K_k.
    corrections : (M, n_u)
        What the controls of the plan lack to lead the simulation, not the plan's own elements, to the planned states.
    flags : tuple of str
        Samples where the plan has no derivative, and why: differences to both sides stand in.
    references : tuple of Reference
        The impacts of the plan, with the motions before and behind continued beyond them.
    lower, upper : (n_u,)
        Limits of the control.
    """

    def __init__(
        self,
        *,
        system: Described,
        plan: Trajectory,
        p: Array,
        windows: tuple[PlanWindow, ...],
        gains: Array,
        corrections: Array,
        states: Array,
        references: tuple[Reference, ...],
        bounds: tuple[Array, Array],
        cost: float,
    ) -> None:
        super().__init__(self._value, windows[0].end - windows[0].start)
        self.system, self.plan, self.p, self.windows = system, plan, p, windows
        self.times = np.array([*(window.start for window in windows), windows[-1].end])
        self.states, self.controls, self.corrections = states, np.array([window.u for window in windows]), corrections
        self.cost = cost
        self.gains, self.references, (self.lower, self.upper) = gains, references, bounds
        self.flags = tuple(flag for window in windows for flag in window.flags)

    def _value(self, t: float, x: Array) -> Array:
        k = min(max(bisect_right(self.times, t * (1.0 + 1e-9) + 1e-12) - 1, 0), len(self.windows) - 1)
        state, gain = self.reference(t, np.asarray(x, dtype=float))
        fed = self.controls[k] - self.corrections[k] - self.gains[gain] @ deviation(self.system, x, state)
        return np.clip(fed, self.lower, self.upper)

    def reference(self, t: float, x: Array) -> tuple[Array, int]:
        """The state (n_x,) that the plan has at t, or that of the motion before or behind an impact which the plant is
        still on or already on, and the sample whose gain belongs to it.
        """
        k = min(max(bisect_right(self.times, t * (1.0 + 1e-9) + 1e-12) - 1, 0), len(self.windows) - 1)
        planned = self.states[k] if t < self.times[-1] else self.states[-1]
        for event in self.references:
            if (other := event.other_side(t)) is None:
                continue
            nearer = _distance(self.system, x, other) < _distance(self.system, x, planned)
            if nearer:
                first = bisect_right(self.times, event.time) - 1  # the sample before the impact
                return other, first if t >= event.time else min(first + 1, len(self.windows) - 1)
        return planned, k

    def robustness(
        self,
        *,
        x0: Any = None,
        parameters: Mapping[str, Any] | Any = None,
        noise: Any = None,
        actuators: float = 1.0,
        n: int = 50,
        seed: int = 0,
        plant: Described | None = None,
        method: Any = None,
    ) -> Robustness:
        """Simulate the law, and the plan's control alone, from other starts and with other parameters.

        Parameters
        ----------
        x0 : float, (n_x,) or mapping, optional
            Deviations of the start are drawn uniformly from -x0 to x0: of every coordinate (a number), of every state,
            or of states by their names. A start that penetrates is moved until it does not.
        parameters : (n_p,) or mapping, optional
            The same of the parameters.
        noise : float, (n_x,) or mapping, optional
            Standard deviation of white noise on the state that the law sees at every sample.
        actuators : float
            Share of the control that acts.
        n : int
            Draws; 1 where nothing is drawn.
        seed : int
        plant : CLS, PSS, ..., optional
            Instead of the plan's system, with the same states and controls.
        method : EventDriven, TimeStepping or FESDJ, optional
            Of the simulations; default `EventDriven(grazing="continue")`.

        Returns
        -------
        Robustness
            End errors and lost runs of both.
        """
        return robustness(
            self, x0=x0, parameters=parameters, noise=noise, actuators=actuators, n=n, seed=seed, plant=plant,
            method=method,
        )  # fmt: skip

    def __repr__(self) -> str:
        flagged = f", {len(self.flags)} flags" if self.flags else ""
        impacts = f", {len(self.references)} impacts" if self.references else ""
        peak = np.linalg.norm(self.gains, axis=(1, 2)).max()
        return f"TrackingLaw: {len(self.windows)} samples of {self.period:.4g} s{impacts}, gains to {peak:.3g}{flagged}"


def track(
    solution: Trajectory,
    *,
    Q: Any = None,
    R: Any = None,
    Qf: Any = None,
    period: float | None = None,
    bounds: Any = None,
    system: Described | None = None,
    saltation: bool = True,
    spreading: bool = True,
) -> TrackingLaw:
    """Linear feedback that keeps a plant on a plan through its impacts.

    The plan is simulated in windows of one period, each from the plan's own state; the derivatives of their ends go
    through impacts, starts and ends of contact by saltation matrices. The gains are those of the discrete linear-
    quadratic regulator of these windows (Riccati's recursion from the end). An impact that comes early or late is
    compared with its own side: the motion before it is continued beyond it as if there were no contact, that behind it
    backwards, and the state is compared with the one whose velocity is nearer (Rijnen, Saccon, Nijmeijer 2015).

    Parameters
    ----------
    solution : Solution or Trajectory
        The plan, with its controls.
    Q, Qf : float, (n_x,) or (n_x, n_x), optional
        Weights of deviations, per second and at the end. Default: Bryson's rule on the ranges in the plan, a twentieth
        of the largest one of the coordinates, a fifth of that of velocities and of other states; at the end Q times the
        duration.
    R : float, (n_u,) or (n_u, n_u), optional
        Weight of the feedback, per second. Default: by the range of the controls.
    period : float, optional
        Between samples [s]; rounded so that the plan has a whole number of them. Default: an equal part of the control
        stages, so that the plan has a hundred samples at least.
    bounds : (lower, upper), optional
        Of the controls; default those of the solution's problem, where it is known.
    system : CLS, PSS, Heaviside or PDS, optional
        Of a plan that was loaded or changed, and so does not know its system.
    saltation : bool
        Whether derivatives go through impacts; without, windows with an impact take those of the window before.
    spreading : bool
        Whether impacts that come early or late are compared with their own side.

    Returns
    -------
    TrackingLaw
        A control of simulations (`u=law`): asked every period, its value is held.

    Raises
    ------
    OptionError
        For a plan without controls or of an unknown system, weights of a wrong shape or without the right sign, a
        period that is no part of the plan.

    Examples
    --------
    A cart is pushed by another one; the plan is for another start than that of the plant:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    >>> touch = ns.Contact("touch", gap=q[1] - q[0] - 0.2)
    >>> carts = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, -v[1]), contacts=[touch])
    >>> plan = ns.simulate(carts, x0=[0, 0.4, 0, 0], duration=1.0, u=3.0)
    >>> law = ns.track(plan)
    >>> open_loop = ns.simulate(carts, x0=[-0.05, 0.4, 0, 0], duration=1.0, u=3.0)
    >>> tracked = ns.simulate(carts, x0=[-0.05, 0.4, 0, 0], duration=1.0, u=law)
    >>> error = abs(tracked.final_state - plan.final_state).max()
    >>> bool(error < 0.5 * abs(open_loop.final_state - plan.final_state).max())
    True
    """
    check_type(solution, Trajectory, "solution")
    problem = vars(solution).get(PROBLEM)
    system = getattr(problem, "system", None) or getattr(getattr(problem, "ocp", None), "system", None) or system
    if system is None:
        raise OptionError("track: this plan does not know its system, since it was loaded or changed; give system=.")
    if not system.n_u or not len(solution.u):
        raise OptionError("track: expected a plan with controls; this one has none, so there is nothing to correct.")
    system = without_slacks(system)
    p = system.parameters(solution.p[: system.n_p] if isinstance(solution, Solution) else _parameters(solution, system))
    count = _samples(solution, period)
    times = np.linspace(0.0, solution.duration, count + 1)
    weights, limits = _weights(solution, system, Q, R, Qf), _limits(problem, system, bounds)
    law, least = None, np.inf
    for _ in range(ROUNDS):
        motion = solution if law is None else _simulated(law, solution)
        if motion is None:
            break
        made = _law(system, solution, motion, p, times, weights, limits, saltation=saltation, spreading=spreading)
        if law is not None and made.cost > (1.0 - GAINED) * least:
            law = made if made.cost < least else law
            break
        law, least = made, np.inf if law is None else made.cost
    assert law is not None
    return law


def _law(
    system: Described,
    plan: Trajectory,
    motion: Trajectory,
    p: Array,
    times: Array,
    weights: Weights,
    limits: tuple[Array, Array],
    *,
    saltation: bool,
    spreading: bool,
) -> TrackingLaw:
    """The law about a motion near the plan, which minimises the deviations from the plan."""
    made, wanted = PlanWindows(system, motion, p), PlanWindows(system, plan, p)
    windows = made.between(times)
    windows = windows if saltation else _smooth(windows)
    states = np.array([*(window.x for window in windows), state_at(motion, times[-1], "-")])
    off = np.array([deviation(system, x, wanted.state(t)) for t, x in zip(times, states, strict=True)])
    pushed = np.array([window.u - wanted.mean(window.start, window.end) for window in windows])
    gains, corrections = riccati(windows, weights, off, pushed, limits)
    references = references_of(made, windows) if spreading else ()
    lengths = np.diff(times)
    cost = np.einsum("k,ki,ij,kj", lengths, off[:-1], weights.Q, off[:-1]) + off[-1] @ weights.Qf @ off[-1]
    cost += np.einsum("k,ki,ij,kj", lengths, pushed, weights.R, pushed)
    return TrackingLaw(
        system=system, plan=plan, p=p, windows=windows, states=states, gains=gains, corrections=corrections,
        references=references, bounds=limits, cost=float(cost),
    )  # fmt: skip


def _simulated(law: TrackingLaw, plan: Trajectory) -> Trajectory | None:
    """The plan as the simulation follows it with the law; None where it does not come to the end."""
    motion = simulate(
        law.system, x0=admissible(law.system, law.states[0], law.p), duration=plan.duration, u=law, p=law.p,
        method=EventDriven(grazing="continue"),
    )  # fmt: skip
    return motion if motion.success else None


@dataclass(frozen=True, eq=False, kw_only=True)
class Weights:
    """Q, R per second and Qf at the end."""

    Q: Array
    R: Array
    Qf: Array


def riccati(
    windows: tuple[PlanWindow, ...], weights: Weights, off: Array, pushed: Array, limits: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Gains K (M, n_u, n_x) and corrections k (M, n_u) of du = -K e - k about the windows.

    They minimise the sum of h (|o + e|_Q^2 + |r + du|_R^2), and |o + e|_Qf^2 at the end, with e_k+1 = A e_k + B du + c:
    o (M + 1, n_x) is how far the windows are off what is to be followed, r (M, n_u) how far their controls are, and c
    where they end beside each other. What can only be corrected before a body is let go is corrected there. A control
    that would leave its limits stays at them and has no gain (Tassa, Mansard, Todorov 2014), so that others correct.
    """
    P, s, gains, corrections = weights.Qf, weights.Qf @ off[-1], [], []
    for k in reversed(range(len(windows))):
        A, B, c, h = windows[k].by_x, windows[k].by_u, windows[k].defect, windows[k].end - windows[k].start
        R, Q = h * weights.R, h * weights.Q
        inertia, ahead = R + B.T @ P @ B, P @ c + s
        room = tuple(windows[k].u - limit for limit in limits[::-1])
        K, step = _within(inertia, B.T @ P @ A, B.T @ ahead + R @ pushed[k], *room)
        closed = A - B @ K
        s = Q @ off[k] + closed.T @ (ahead - P @ B @ step) + K.T @ R @ (step - pushed[k])
        P = Q + K.T @ R @ K + closed.T @ P @ closed
        P = 0.5 * (P + P.T)
        gains.append(K)
        corrections.append(step)
    return np.array(gains[::-1]), np.array(corrections[::-1])


def _within(inertia: Array, by_e: Array, constant: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """K and k of du = -K e - k that minimises half of du'M du + du'(N e + n) at e = 0 with lower <= k <= upper."""
    free, k, K = np.full(constant.size, True), np.zeros(constant.size), np.zeros_like(by_e)
    for _ in range(constant.size + 1):
        inner = inertia[np.ix_(free, free)]
        k[free] = np.linalg.solve(inner, constant[free] - inertia[np.ix_(free, ~free)] @ k[~free])
        outside = free & ((k <= lower) | (k >= upper))
        if not outside.any():
            K[free] = np.linalg.solve(inner, by_e[free])
            break
        k[outside] = np.clip(k, lower, upper)[outside]
        free &= ~outside
    return K, k


def _smooth(windows: tuple[PlanWindow, ...]) -> tuple[PlanWindow, ...]:
    """Windows with an impact take the derivatives of the last one without."""
    made: list[PlanWindow] = []
    first = next((window for window in windows if not window.jumps), windows[0])
    for window in windows:
        other = made[-1] if made else first
        made.append(replace(window, by_x=other.by_x, by_u=other.by_u) if window.jumps else window)
    return tuple(made)


def _samples(solution: Trajectory, period: float | None) -> int:
    duration = solution.duration
    if period is not None:
        if isinstance(period, bool) or not isinstance(period, int | float) or not 0.0 < period <= duration:
            raise OptionError(f"track: period: expected seconds above 0 and up to {duration:g}, given {period!r}.")
        return max(1, round(duration / period))
    stages = np.diff(solution.u_grid)
    alike = np.allclose(stages, stages[0], rtol=1e-6, atol=0.0)
    return len(stages) * -(-SAMPLES // len(stages)) if alike else SAMPLES


def _parameters(plan: Trajectory, system: Described) -> Any:
    values = [plan.parameters[name] for name in system.parameter_names if name in plan.parameters]
    return values if len(values) == system.n_p else None


def _weights(plan: Trajectory, system: Described, Q: Any, R: Any, Qf: Any) -> Weights:
    n_x, n_u = len(system.state_names), system.n_u
    R = (
        np.diag(np.full(n_u, 1.0) / _ranges(plan.u[:, :n_u], system.u_nominal) ** 2)
        if R is None
        else _matrix(R, n_u, "R")
    )
    if not (np.linalg.eigvalsh(R) > 0.0).all():
        raise OptionError("track: R: expected a positive definite weight; otherwise the feedback has no limit.")
    if Q is None:
        ranges, shares = _ranges(plan.x, system.x_nominal), np.full(n_x, OTHER)
        if isinstance(system, CLS):
            shares[system.at_q] = POSITION
            for part in (system.at_q, system.at_v):
                ranges[part] = ranges[part].max()
        Q = np.diag(1.0 / (shares * ranges) ** 2)
    else:
        Q = _matrix(Q, n_x, "Q")
    return Weights(Q=Q, R=R, Qf=Q * plan.duration if Qf is None else _matrix(Qf, n_x, "Qf"))


def _ranges(values: Array, nominal: Array) -> Array:
    """What each component goes through; one that stays where it is has its nominal value."""
    found = np.asarray(values.max(axis=0) - values.min(axis=0))
    return np.where(found > 1e-6 * nominal, found, nominal)


def _matrix(given: Any, size: int, what: str) -> Array:
    try:
        value = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        value = np.full(0, np.nan)
    matrix = value * np.eye(size) if value.ndim == 0 else np.diag(value) if value.shape == (size,) else value
    if matrix.shape != (size, size) or not np.isfinite(matrix).all():
        raise OptionError(
            f"track: {what}: expected a number, {size} numbers or a {size} x {size} matrix, given {given!r}."
        )
    if np.linalg.eigvalsh(0.5 * (matrix + matrix.T)).min() < -1e-12 * max(1.0, np.abs(matrix).max()):
        raise OptionError(f"track: {what}: expected a weight without negative eigenvalues, given {given!r}.")
    return 0.5 * (matrix + matrix.T)


def _limits(problem: Any, system: Described, bounds: Any) -> tuple[Array, Array]:
    if bounds is None:
        ocp = getattr(problem, "ocp", None)
        lower, upper = (-np.inf, np.inf) if ocp is None else ocp.u_bounds
    else:
        try:
            lower, upper = bounds
        except (TypeError, ValueError):
            raise OptionError(f"track: bounds: expected (lower, upper), given {bounds!r}.") from None
    made = tuple(
        np.broadcast_to(np.asarray(side, dtype=float).reshape(-1)[: system.n_u], (system.n_u,))
        for side in (lower, upper)
    )
    if not (made[0] <= made[1]).all():
        raise OptionError(f"track: bounds: expected lower <= upper, given {bounds!r}.")
    return made[0], made[1]


def deviation(system: Described, x: Any, reference: Array) -> Array:
    """x less a reference (n_x,); of a quaternion, which is the same attitude as its negative, the shorter way."""
    x = np.array(x, dtype=float)
    for part in unit_parts(system):
        x[part] *= np.sign(x[part] @ reference[part]) or 1.0
    return np.asarray(x - reference)


def _distance(system: Described, x: Array, reference: Array) -> float:
    """Of the velocities, in the metric of the masses."""
    assert isinstance(system, CLS)
    v = x[system.at_v] - reference[system.at_v]
    return float(np.linalg.norm(v / system.x_nominal[system.at_v]))
