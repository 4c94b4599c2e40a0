"""Linear-quadratic tracking of a plan with impacts; the gains use derivatives through the events.

1. Simulate the plan in windows of one sampling period, each from the plan's own state. The derivatives A_k, B_k of the
   end of a window contain saltation matrices (Aizerman and Gantmakher 1958; Leine and Nijmeijer 2004).
2. Riccati's recursion gives gains and feedforward corrections of the discrete linear-quadratic problem, with bounds on
   the control (Tassa, Mansard, Todorov 2014).
3. Simulate the plan with this law and repeat about the new motion while the weighted deviations decrease: an iterated
   linear-quadratic regulator whose target remains the plan.

Near an impact plan and plant are on different sides of a velocity jump, although both follow the same motion. The
deviation is then taken from the plan's motion extended beyond the impact (reference spreading: Rijnen, Saccon,
Nijmeijer 2015); see `references`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nosnoc_py.api import simulate
from nosnoc_py.arguments import named_arguments
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.references import EXTENSION_PERIODS, Reference, references_of
from nosnoc_py.control.requirements import TOLERANCE
from nosnoc_py.control.robustness import Robustness, deviation, robustness
from nosnoc_py.control.success import Success, success
from nosnoc_py.control.windows import PlanWindow, PlanWindows
from nosnoc_py.errors import OptionError, check_type
from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.windows import state_at
from nosnoc_py.simulation.event_driven.options import THROUGH_TOUCHES
from nosnoc_py.soft_constraints import without_slacks
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import SampledLaw
from nosnoc_py.systems.described import Described
from nosnoc_py.uncertain import Uncertain

Array = np.ndarray
# Least number of samples of a plan: periods short enough for the linearisation.
SAMPLES = 100
# Maximal number of linearisations, and the relative decrease of the weighted deviations required to continue.
RELINEARISATIONS, MIN_DECREASE = 8, 1e-3
# Bryson's rule: deviations of positions (other states) by this fraction of their range in the plan cost as much as a
# control that deviates by its whole range.
POSITION, OTHER = 0.05, 0.2


class TrackingLaw(SampledLaw):
    """Sampled feedback law u = u_k - k_k - K_k (x - x_k) of a finite-horizon linear-quadratic regulator.

    Created by `nosnoc_py.track`. It is evaluated once per period and held; use it as the control of a simulation
    (`u=law`) or of `nosnoc_py.close_loop`.

    Attributes
    ----------
    times : (M + 1,)
        Sampling times [s].
    states, controls : (M + 1, n_x), (M, n_u)
        Reference x_k, u_k at the samples.
    gains : (M, n_u, n_x)
        Gains K_k.
    corrections : (M, n_u)
        Feedforward corrections k_k: they compensate the discretisation error of the plan, so that the simulation, not
        only the finite elements of the plan, reaches the planned states.
    flags : tuple of str
        Windows without a derivative and the reason; central differences replace it.
    references : tuple of Reference
        Impacts of the plan with the motions before and after extended beyond them.
    lower, upper : (n_u,)
        Bounds of the control.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> law = ns.track(ns.simulate(cart, x0=[0, 0], duration=1.0, u=1.0), period=0.1, bounds=(-2, 2))
    >>> law.gains.shape, len(law.references)
    ((10, 1, 2), 0)
    >>> bool(law(0.0, [0.1, 0.0])[0] < law(0.0, [0.0, 0.0])[0])
    True
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
        ocp: OCP | None = None,
        uncertain: Uncertain | None = None,
    ) -> None:
        super().__init__(self._value, windows[0].end - windows[0].start)
        self.system, self.plan, self.p, self.windows = system, plan, p, windows
        self.ocp, self.uncertain = ocp, uncertain
        self.times = np.array([*(window.start for window in windows), windows[-1].end])
        self.states, self.controls, self.corrections = states, np.array([window.u for window in windows]), corrections
        self.cost = cost
        self.gains, self.references, (self.lower, self.upper) = gains, references, bounds
        self.flags = tuple(flag for window in windows for flag in window.flags)

    def _value(self, t: float, x: Array) -> Array:
        return np.clip(self.unlimited(t, x)[0], self.lower, self.upper)

    def _sample(self, t: float) -> int:
        # A sampling time k * period may lie a rounding error before `times[k]`.
        return min(max(bisect_right(self.times, t * (1.0 + 1e-9) + 1e-12) - 1, 0), len(self.windows) - 1)

    def unlimited(self, t: float, x: Array) -> tuple[Array, int]:
        """Return the control (n_u,) at t before its limits, and the index of the gain that it uses.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> law = ns.track(ns.simulate(cart, x0=[0, 0], duration=1.0, u=1.0), period=0.1, bounds=(-2, 2))
        >>> bool(law.unlimited(0.0, [9.0, 0.0])[0] < -2), float(law(0.0, [9.0, 0.0])[0])
        (True, -2.0)
        """
        # The sample of the control; `gain` may be that of a sample before the impact.
        k, (state, gain) = self._sample(t), self.reference(t, np.asarray(x, dtype=float))
        return self.controls[k] - self.corrections[k] - self.gains[gain] @ deviation(self.system, x, state), gain

    def with_feedforward(self, u: Array) -> TrackingLaw:
        """Return the law with the same gains and references and other controls u (M, n_u) at zero deviation.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> law = ns.track(ns.simulate(cart, x0=[0, 0], duration=1.0, u=1.0), period=0.1, bounds=(-2, 2))
        >>> round(float(law.with_feedforward(law.controls + 0.5)(0.0, [0.0, 0.0])[0]), 6)
        1.5
        """
        return self._with(corrections=self.controls - np.asarray(u, dtype=float))

    def for_problem(
        self, ocp: OCP | None, uncertain: Uncertain | None = None, plan: Trajectory | None = None
    ) -> TrackingLaw:
        """Return the law with the problem whose constraints it has to hold, what is uncertain of it, and its motion.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> law = ns.track(ns.simulate(cart, x0=[0, 0], duration=1.0, u=1.0), period=0.1, bounds=(-2, 2))
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], terminal_state={"q_0": (0.4, 0.6)})
        >>> law.for_problem(ocp).success(5, uncertain=ns.Uncertain(x0={"q_0": (-0.1, 0.1)}), predict=False).probability
        1.0
        """
        return self._with(ocp=ocp, uncertain=uncertain, plan=self.plan if plan is None else plan)

    def _with(self, **changes: Any) -> TrackingLaw:
        law = copy(self)
        # The copy evaluates itself, not the law that it is a copy of.
        vars(law).update(law=law._value, **changes)
        return law

    def reference(self, t: float, x: Array) -> tuple[Array, int]:
        """Return the reference state (n_x,) at t and the index of its gain.

        Close to an impact that the plant has not had yet, or has already had, the reference is the extended motion of
        the plan on the plant's side of the impact, if its velocity is nearer to that of the plant.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> law = ns.track(ns.simulate(cart, x0=[0, 0], duration=1.0, u=1.0), period=0.1, bounds=(-2, 2))
        >>> state, k = law.reference(0.5, [0.1, 0.4])
        >>> state.round(6), k
        (array([0.125, 0.5  ]), 5)
        """
        k = self._sample(t)
        planned = self.states[k] if t < self.times[-1] else self.states[-1]
        for event in self.references:
            if (other := event.other_side(t)) is None:
                continue
            # Velocities only: positions of both sides agree at an impact, velocities differ by the jump.
            is_nearer = _distance(self.system, x, other) < _distance(self.system, x, planned)
            if is_nearer:
                before = bisect_right(self.times, event.time) - 1  # the sample before the impact
                return other, before if t >= event.time else min(before + 1, len(self.windows) - 1)
        return planned, k

    @named_arguments
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
        workers: int = 1,
    ) -> Robustness:
        """Simulate the law and the open-loop control with random initial states and parameters.

        Parameters
        ----------
        x0 : float, (n_x,) or mapping, optional
            Half-widths of the uniform distribution of initial deviations: of every coordinate (a number), of every
            state, or of named states. An initial state with penetration is projected.
        parameters : (n_p,) or mapping, optional
            Half-widths of the uniform distribution of parameter deviations.
        noise : float, (n_x,) or mapping, optional
            Standard deviation of white noise on the measured state at every sample.
        actuators : float
            Factor on the control that acts on the plant.
        n : int
            Number of draws; 1 if nothing is random.
        seed : int
            Seed of the random generator.
        plant : CLS, PSS, ..., optional
            Another system with the same states and controls as the plan's.
        method : EventDriven, TimeStepping or FESDJ, optional
            Simulation method; default `EventDriven(grazing="continue")`.
        workers : int
            Number of processes, by forks (Linux); the result does not depend on it.

        Returns
        -------
        Robustness
            Final errors and lost runs, with feedback and open loop.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> law = ns.track(ns.simulate(cart, x0=[0, 0], duration=1.0, u=1.0), period=0.1, bounds=(-2, 2))
        >>> study = law.robustness(x0=0.05, n=5)
        >>> study.lost, bool(study.errors.max() < 0.1 * study.open_loop_errors.max())
        (0, True)
        """
        return robustness(
            self, x0=x0, parameters=parameters, noise=noise, actuators=actuators, n=n, seed=seed, plant=plant,
            method=method, workers=workers,
        )  # fmt: skip

    @named_arguments
    def success(
        self,
        n: int = 1000,
        seed: int = 0,
        *,
        uncertain: Uncertain | None = None,
        ocp: OCP | None = None,
        tolerance: float = TOLERANCE,
        predict: bool = True,
        workers: int = 1,
    ) -> Success:
        """Estimate the probability that all constraints of the OCP hold, for what is uncertain.

        Every draw is simulated with this law, event by event. Beside it stands the probability that is predicted from
        few such simulations: the constraints are interpolated between them.

        Parameters
        ----------
        n, seed : int
            Number of draws, and seed of the random generator.
        uncertain : Uncertain, optional
            Default: that of the robust plan.
        ocp : OCP, optional
            Default: that of the plan. Terminal constraints, path constraints and bounds of states have to hold.
        tolerance : float
            Of equations, as a fraction of the typical size of their rows: no draw meets an equation exactly.
        predict : bool
            If False, no probability is predicted.
        workers : int
            Number of processes, by forks (Linux); the result does not depend on it.

        Returns
        -------
        Success
            `probability` with its 95 % confidence interval, and every draw.

        Raises
        ------
        OptionError
            If nothing is uncertain, or the plan has no OCP.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u, e = (ca.SX.sym(name) for name in ("q", "v", "u", "e"))
        >>> wall = ns.Contact("wall", gap=1 - q, restitution=e)
        >>> cart = ns.CLS(q=q, v=v, u=u, p=e, p_default=[0.5], mass_matrix=1, force=u, contacts=[wall])
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 2], stage_cost=u**2, terminal_state={"q_0": (0.6, 0.8)})
        >>> law = ns.track(ns.solve(ocp, ns.FESDJ(control_stages=5)), period=0.05)
        >>> test = law.success(20, uncertain=ns.Uncertain(parameters={"p_0": (0.4, 0.6)}), predict=False)
        >>> test.n, test.interval[0] <= test.probability <= test.interval[1]
        (20, True)
        """
        return success(
            self, n=n, seed=seed, uncertain=uncertain, ocp=ocp, tolerance=tolerance, predict=predict, workers=workers
        )

    def __repr__(self) -> str:
        flagged = f", {len(self.flags)} flags" if self.flags else ""
        impacts = f", {len(self.references)} impacts" if self.references else ""
        peak = np.linalg.norm(self.gains, axis=(1, 2)).max()
        return f"TrackingLaw: {len(self.windows)} samples of {self.period:.4g} s{impacts}, gains to {peak:.3g}{flagged}"


@named_arguments
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
    """Compute a linear feedback law that keeps a plant on a plan with impacts.

    The plan is simulated in windows of one period, each from the plan's own state. The derivatives of the window ends
    cross impacts, contact making and breaking by saltation matrices. The gains minimise the sum of
    h (|x - x_plan|_Q^2 + |u - u_plan|_R^2) + |x - x_plan|_Qf^2 over these linear windows (Riccati's recursion).

    If an impact comes early or late, the state is compared with the plan on the same side of the impact: the motion
    before it is extended without the contact, the motion after it backwards in time, and the one with the nearer
    velocity is used (reference spreading: Rijnen, Saccon, Nijmeijer 2015).

    Parameters
    ----------
    solution : Solution or Trajectory
        Plan with its controls.
    Q, Qf : float, (n_x,) or (n_x, n_x), optional
        Weights of state deviations, per second and at the end: a factor of the identity, a diagonal or a matrix.
        Default: Bryson's rule, 1 / (0.05 range)^2 for coordinates with the largest range of all coordinates in the
        plan, 1 / (0.2 range)^2 for velocities and other states; Qf = Q times the duration.
    R : float, (n_u,) or (n_u, n_u), optional
        Weight of control deviations, per second. Default: 1 / range^2 of the controls in the plan.
    period : float, optional
        Time between samples [s], rounded so that the plan has a whole number of samples. Default: a whole fraction of
        the control stages, with at least 100 samples.
    bounds : (lower, upper), optional
        Bounds of the controls, each (n_u,); default those of the solution's OCP, if known.
    system : CLS, PSS, Heaviside or PDS, optional
        Required for a plan that was loaded or changed, which does not hold its system.
    saltation : bool
        If False, windows with an impact take the derivatives of the window before (for comparisons).
    spreading : bool
        If False, the state is always compared with the plan at the same time, also close to impacts.

    Returns
    -------
    TrackingLaw
        Control for simulations (`u=law`), evaluated once per period and held.

    Raises
    ------
    OptionError
        For a plan without controls or with an unknown system, weights of a wrong shape or that are not positive
        (semi)definite, or a period longer than the plan.

    References
    ----------
    Rijnen, Saccon and Nijmeijer (2015), IEEE Conf. Decision and Control (reference spreading). Tassa, Mansard and
    Todorov (2014), IEEE Int. Conf. Robotics and Automation (control limits). Leine and Nijmeijer (2004), Dynamics and
    Bifurcations of Non-Smooth Mechanical Systems (saltation matrix).

    Examples
    --------
    A cart pushes another one; the plant starts at another position than the plan:

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
    problem = solution.problem
    system = getattr(problem, "system", None) or getattr(getattr(problem, "ocp", None), "system", None) or system
    if system is None:
        raise OptionError("track: this plan does not know its system, since it was loaded; give system=.")
    if not system.n_u or not len(solution.u):
        raise OptionError("track: expected a plan with controls; this one has none, so there is nothing to correct.")
    system = without_slacks(system)
    p = system.parameters(solution.p[: system.n_p] if isinstance(solution, Solution) else _parameters(solution, system))
    count = _sample_count(solution, period)
    times = np.linspace(0.0, solution.duration, count + 1)
    weights, limits = default_weights(solution, system, Q, R, Qf), _limits(problem, system, bounds)
    # The first law is always accepted: its cost refers to the plan itself and is not comparable with simulated ones.
    law, lowest = None, np.inf
    for _ in range(RELINEARISATIONS):
        motion = solution if law is None else _simulated(law, solution)
        if motion is None:
            break
        candidate = law_about(
            system, solution, motion, p, times, weights, limits, saltation=saltation, spreading=spreading
        )
        # Stop when a new linearisation does not reduce the deviations; keep the better law.
        if law is not None and candidate.cost > (1.0 - MIN_DECREASE) * lowest:
            law = candidate if candidate.cost < lowest else law
            break
        law, lowest = candidate, np.inf if law is None else candidate.cost
    assert law is not None
    return law.for_problem(getattr(problem, "ocp", None))


def law_about(
    system: Described,
    plan: Trajectory,
    motion: Trajectory,
    p: Array,
    times: Array,
    weights: Weights,
    limits: tuple[Array, Array],
    *,
    saltation: bool = True,
    spreading: bool = True,
    held: bool = True,
    periods: float = EXTENSION_PERIODS,
) -> TrackingLaw:
    """Compute the law linearised about `motion`, minimising the deviations from `plan`.

    With `held` a control at its bound keeps it and has no gain; `periods` is the reach of references beyond impacts.
    """
    motion_windows, plan_windows = PlanWindows(system, motion, p), PlanWindows(system, plan, p)
    windows = motion_windows.between(times)
    # For comparisons only: gains that ignore the event derivatives.
    windows = windows if saltation else _without_saltation(windows)
    states = np.array([*(window.x for window in windows), state_at(motion, times[-1], "-")])
    state_offset = np.array([deviation(system, x, plan_windows.state(t)) for t, x in zip(times, states, strict=True)])
    control_offset = np.array([window.u - plan_windows.mean(window.start, window.end) for window in windows])
    within = limits if held else (np.full(system.n_u, -np.inf), np.full(system.n_u, np.inf))
    gains, corrections = riccati(windows, weights, state_offset, control_offset, within)
    references = references_of(motion_windows, windows, periods) if spreading else ()
    lengths = np.diff(times)
    cost = (
        np.einsum("k,ki,ij,kj", lengths, state_offset[:-1], weights.Q, state_offset[:-1])
        + state_offset[-1] @ weights.Qf @ state_offset[-1]
    )
    cost += np.einsum("k,ki,ij,kj", lengths, control_offset, weights.R, control_offset)
    return TrackingLaw(
        system=system, plan=plan, p=p, windows=windows, states=states, gains=gains, corrections=corrections,
        references=references, bounds=limits, cost=float(cost),
    )  # fmt: skip


def _simulated(law: TrackingLaw, plan: Trajectory) -> Trajectory | None:
    """Simulate the plan with the law from the planned start; None if the simulation stops early."""
    motion = simulate(
        law.system, x0=admissible(law.system, law.states[0], law.p), duration=plan.duration, u=law, p=law.p,
        method=THROUGH_TOUCHES,
    )  # fmt: skip
    return motion if motion.success else None


@dataclass(frozen=True, eq=False, kw_only=True)
class Weights:
    """Weights Q (n_x, n_x) and R (n_u, n_u) per second, and Qf (n_x, n_x) at the end."""

    Q: Array
    R: Array
    Qf: Array


def riccati(
    windows: tuple[PlanWindow, ...],
    weights: Weights,
    state_offset: Array,
    control_offset: Array,
    limits: tuple[Array, Array],
) -> tuple[Array, Array]:
    """Return gains K (M, n_u, n_x) and corrections k (M, n_u) of du = -K e - k about the windows.

    They minimise the sum of h (|o + e|_Q^2 + |r + du|_R^2) plus |o + e|_Qf^2 at the end, subject to
    e_k+1 = A e_k + B du + c. Here o (M + 1, n_x) and r (M, n_u) are the offsets of states and controls of the windows
    from the plan, and c is the defect between the end of a window and the start of the next one. The cost-to-go is
    e' P e / 2 + s' e. A control at its bound keeps it and has no gain, so that the other controls correct
    (Tassa, Mansard, Todorov 2014).
    """
    P, s, gains, corrections = weights.Qf, weights.Qf @ state_offset[-1], [], []
    for k in reversed(range(len(windows))):
        A, B, c, h = windows[k].by_x, windows[k].by_u, windows[k].defect, windows[k].end - windows[k].start
        # Weights are per second, so that the law hardly depends on the period.
        R, Q = h * weights.R, h * weights.Q
        hessian, gradient = R + B.T @ P @ B, P @ c + s
        # lower <= u - k <= upper means u - upper <= k <= u - lower, hence the reversed order.
        step_bounds = tuple(windows[k].u - limit for limit in limits[::-1])
        K, step = _bounded_step(hessian, B.T @ P @ A, B.T @ gradient + R @ control_offset[k], *step_bounds)
        # With bounds K and step are not the unconstrained optimum, so the full (Joseph-like) form is needed.
        closed = A - B @ K
        s = Q @ state_offset[k] + closed.T @ (gradient - P @ B @ step) + K.T @ R @ (step - control_offset[k])
        P = Q + K.T @ R @ K + closed.T @ P @ closed
        P = 0.5 * (P + P.T)  # rounding would let P lose symmetry over hundreds of steps
        gains.append(K)
        corrections.append(step)
    return np.array(gains[::-1]), np.array(corrections[::-1])


def _bounded_step(hessian: Array, coupling: Array, gradient: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Return K and k of du = -K e - k that minimises du'M du / 2 + du'(N e + n) at e = 0 with lower <= k <= upper."""
    free, k, K = np.full(gradient.size, True), np.zeros(gradient.size), np.zeros_like(coupling)
    # Active-set loop: each round fixes at least one more control at its bound, so n_u + 1 rounds suffice.
    for _ in range(gradient.size + 1):
        inner = hessian[np.ix_(free, free)]
        k[free] = np.linalg.solve(inner, gradient[free] - hessian[np.ix_(free, ~free)] @ k[~free])
        # A control exactly at its bound counts as fixed: a gain would move it beyond.
        outside = free & ((k <= lower) | (k >= upper))
        if not outside.any():
            K[free] = np.linalg.solve(inner, coupling[free])
            break
        k[outside] = np.clip(k, lower, upper)[outside]
        free &= ~outside
    return K, k


def _without_saltation(windows: tuple[PlanWindow, ...]) -> tuple[PlanWindow, ...]:
    """Replace the derivatives of windows with an impact by those of the last window without one."""
    smooth: list[PlanWindow] = []
    first = next((window for window in windows if not window.jumps), windows[0])
    for window in windows:
        other = smooth[-1] if smooth else first
        smooth.append(replace(window, by_x=other.by_x, by_u=other.by_u) if window.jumps else window)
    return tuple(smooth)


def _sample_count(solution: Trajectory, period: float | None) -> int:
    duration = solution.duration
    if period is not None:
        if isinstance(period, bool) or not isinstance(period, int | float) or not 0.0 < period <= duration:
            raise OptionError(f"track: period: expected seconds above 0 and up to {duration:g}, given {period!r}.")
        return max(1, round(duration / period))
    stages = np.diff(solution.u_grid)
    equal = np.allclose(stages, stages[0], rtol=1e-6, atol=0.0)
    # Samples at the ends of control stages, so that the planned control is constant within a window.
    return len(stages) * -(-SAMPLES // len(stages)) if equal else SAMPLES


def _parameters(plan: Trajectory, system: Described) -> Any:
    values = [plan.parameters[name] for name in system.parameter_names if name in plan.parameters]
    return values if len(values) == system.n_p else None


def default_weights(plan: Trajectory, system: Described, Q: Any = None, R: Any = None, Qf: Any = None) -> Weights:
    """Return the weights of a plan; by Bryson's rule where none are given."""
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
            # Coordinates (velocities) share one range, so that a coordinate that hardly moves is not weighted
            # excessively.
            for part in (system.at_q, system.at_v):
                ranges[part] = ranges[part].max()
        Q = np.diag(1.0 / (shares * ranges) ** 2)
    else:
        Q = _matrix(Q, n_x, "Q")
    # By default the end counts as much as the whole motion before it.
    return Weights(Q=Q, R=R, Qf=Q * plan.duration if Qf is None else _matrix(Qf, n_x, "Qf"))


def _ranges(values: Array, nominal: Array) -> Array:
    """Return the range of each component over the plan; the nominal value for constant components."""
    widths = np.asarray(values.max(axis=0) - values.min(axis=0))
    return np.where(widths > 1e-6 * nominal, widths, nominal)


def _matrix(weight: Any, size: int, what: str) -> Array:
    try:
        value = np.asarray(weight, dtype=float)
    except (TypeError, ValueError):
        value = np.full(0, np.nan)
    matrix = value * np.eye(size) if value.ndim == 0 else np.diag(value) if value.shape == (size,) else value
    if matrix.shape != (size, size) or not np.isfinite(matrix).all():
        raise OptionError(
            f"track: {what}: expected a number, {size} numbers or a {size} x {size} matrix, given {weight!r}."
        )
    if np.linalg.eigvalsh(0.5 * (matrix + matrix.T)).min() < -1e-12 * max(1.0, np.abs(matrix).max()):
        raise OptionError(f"track: {what}: expected a weight without negative eigenvalues, given {weight!r}.")
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
    limits = tuple(
        # Bounds of an OCP with soft constraints also hold for their slacks, which come last.
        np.broadcast_to(np.asarray(side, dtype=float).reshape(-1)[: system.n_u], (system.n_u,))
        for side in (lower, upper)
    )
    if not (limits[0] <= limits[1]).all():
        raise OptionError(f"track: bounds: expected lower <= upper, given {bounds!r}.")
    return limits[0], limits[1]


def _distance(system: Described, x: Array, reference: Array) -> float:
    """Return the distance of the velocities, each relative to its nominal value."""
    assert isinstance(system, CLS)
    v = x[system.at_v] - reference[system.at_v]
    return float(np.linalg.norm(v / system.x_nominal[system.at_v]))
