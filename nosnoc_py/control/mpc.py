"""Model predictive control through impacts: one control per sample, also if the solver fails or is late.

Each sampling period has two phases (Diehl, Bock, Schloeder 2005, real-time iteration; Zavala and Biegler 2009,
advanced-step NMPC):

* Feedback, after the measurement, in milliseconds. A fixed grid searches the order of contacts globally
  (`grid_plan`), and the plan of finite elements is solved on its own order, its branch. The controls of the plan act,
  unless the grid expects a much lower objective of another order; then those of the grid do.
* Preparation, while the control acts: the controls of a new order are simulated event by event, the finite elements are
  solved on the order of that motion, and the cheaper one of this plan and of the last is kept. It is shifted to the
  state that is predicted for the next sample, and both models are expanded there. Parts for which there is no time are
  left out: the feedback then is one step of Newton's method from the shifted plan.

Without the fixed grid the feedback solves the plan again, on other branches where its own fails
(`Transcription.resolve`), and the preparation looks for them (`Transcription.prepare`), which takes seconds.

Invariant: `MPC.step` always returns a finite control within the bounds. Solver failures and answers after the deadline
lead to a fallback control, and `MPC.last` records its source and the reason. Without the grid every plan is compared
with the cheapest cost so far, because following one branch of active contacts may become poor after a disturbance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal

import numpy as np
from attrs import evolve

from nosnoc_py.api import Simulator, simulate, solve, transcribe
from nosnoc_py.arguments import named_arguments
from nosnoc_py.control.costs import MotionCost
from nosnoc_py.control.durations import Durations
from nosnoc_py.control.grid_plan import GridAnswer, GridPlanner, answered
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.mpc_step import MPCStep, Quality, Source
from nosnoc_py.discretization.options import FESD, FESDJ
from nosnoc_py.errors import ModelError, NosnocError, OptionError
from nosnoc_py.mpcc.again import KEPT
from nosnoc_py.mpcc.strategy import Strategy
from nosnoc_py.mpcc.threads import one_numpy_thread
from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.soft_constraints import without_slacks
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.status import Status
from nosnoc_py.transcription import Answer, Transcription
from nosnoc_py.transcription.again import shifted, solve_along, solve_kept
from nosnoc_py.transcription.condensed import CondensedBranch, CondensedStep, condensed_at

Array = np.ndarray
# A part of the preparation: seconds that are left -> a plan.
Work = Callable[[float], Answer | Solution | None]
# Time limit [s] of the first plan, of plans without a deadline, and of preparations: no control loop runs yet.
FIRST_PLAN_SECONDS = 20.0
# Fraction of the time limit that the global search for the first plan may use.
SEARCH_FRACTION = 0.4
# No global search if fewer seconds than this remain: it would not finish.
SEARCH_SECONDS = 2.0
# Relative increase of the objective over the cheapest plan so far that triggers a comparison with other starts, and the
# relative gain that another plan needs to replace it (avoids switching between plans of equal cost).
COST_RISE, COST_GAIN = 0.2, 0.02
# A plan acts if it loses at most this on the fixed grid against the best order there: the grid is coarse.
LOSS = 0.05
# Tolerance for "whole control stages" and for "prepared for this sample", relative to a stage or period.
STAGE_TOLERANCE = 1e-6
# Simulator of predictions over delay and period: its errors are far below usual measurement noise.
PREDICTION = EventDriven(grazing="continue", rtol=1e-8, atol=1e-9)
# Simulator that compares fallback controls: only their order matters, so loose tolerances are enough.
COMPARISON = EventDriven(grazing="continue", rtol=1e-4, atol=1e-5)
# Samples of a control stage for the integral of its cost.
SAMPLES = 9
# The fixed grid is refuted if its controls cost so many times more in simulations than it has predicted (median of the
# last five, and of three at least): its steps are too long. Then any plan of finite elements acts, and without a
# deadline there is time for finite elements alone. Predictions below the last number, relative to the cost of states of
# typical size, are not counted.
DECEIVED, LEAST_SEEN, VANISHES = 10.0, 3, 1e-4
# Fraction of the deadline that the solver may use; the rest is left for the fallback control.
SOLVER_FRACTION = 0.6


@dataclass(frozen=True, eq=False)
class _Kept:
    """Answer of a plan on its own branch: controls (N, n_u), predicted objective, residual, and the plan."""

    u: Array
    objective: float
    residual: float
    plan: Answer | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Prepared:
    """What a preparation has found for the sample whose control begins to act at `begin` [s], and for no other.

    Attributes
    ----------
    plan : Answer, optional
        Plan from the expected state.
    program : CondensedBranch, optional
        Its quadratic program.
    gain : Derivatives, optional
        Its derivatives by the state, of finite elements alone.
    """

    begin: float
    plan: Answer | None = None
    program: CondensedBranch | None = None
    gain: Any = None

    def step(self, x0: Array, values: Array) -> CondensedStep | None:
        """Return the answer of the program; None without one, without a solution, and for other parameters."""
        if self.program is None or not self.program.fits(values):
            return None
        step = self.program.at(x0)
        return step if step.ok else None


ON_FAILURE = {"track": Source.TRACKED, "shift": Source.SHIFTED, "hold": Source.HELD}


@named_arguments
class MPC:
    """Model predictive controller that solves a new plan at every sample and always returns a control.

    The order of contacts is searched at every sample on a fixed grid, in milliseconds, and the plan of finite elements
    is solved on its own order. All work that does not depend on the measured state is done before it is known: call
    `prepare` while a control acts (`ns.close_loop` does). If no plan is found in time, `on_failure` selects the control
    that acts instead. `last.source` reports where a control is from, `last.quality` what it may lose.

    Parameters
    ----------
    problem : OCP or Transcription
        Problem with a fixed horizon; its x0 is replaced by the measured state.
    method : FESDJ, FESD or TimeFreezing, optional
        Discretisation of an OCP; default finite elements with two elements per control stage and one stage per
        period (20 stages without a period).
    period : float, optional
        Time between samples [s], a whole number of control stages; default one stage.
    delay : float
        Time from a measurement until its control acts [s], at most one period. The state is predicted over the delay
        with the control that still acts, and the plan starts from the predicted state.
    deadline : float, optional
        Computing time available for a control [s]. A plan of finite elements alone that comes later does not act, but
        initialises the next sample; controls of the fixed grid act, and count as late. The first plan has no deadline.
    on_failure : sequence of {"track", "shift", "hold"}
        Fallback controls that may act without a plan in time: the prepared plan corrected to first order by the
        measured state, an earlier plan's control at this time, or the last control. If the first two are available, the
        one with the lower simulated cost acts. Corrected plans are there for finite elements alone.
    not_finite : {"error", "hold"}
        Reaction to a measurement with NaN or inf: raise a `ModelError`, or repeat the last control.
    preparation : float, optional
        Time limit of `prepare` [s]; default 20. In real time: the part of the period that remains after the control.
    solver : Homotopy, ActiveSet or Auto, optional
        Solver used when the branch of the last plan is lost; its iteration limits hold. Default `Auto()`.
    p : (n_p,) or function of t, optional
        Parameter values, for instance references; default those of the system.
    spread : (n_x,), optional
        Expected distance of measured from predicted states; see `Transcription.prepare`. Without a fixed grid only.
    fixed_grid : bool
        False does without the fixed grid: where the order of contacts changes, a sample then takes a tenth of a second
        to many seconds. Problems that it has no place for (costs at chosen times, free parameters) do without it, too;
        the attribute `without_grid` has the reason.
    guess : optional
        Initial guess of the first plan, as for `ns.solve`. Default: the better of the plans found from the motion with
        zero control and from `ns.solve` without a method (effort "quick").

    Raises
    ------
    OptionError
        For a period that is not a whole number of control stages, options of a wrong type, or a free horizon.

    References
    ----------
    Diehl, Bock and Schloeder (2005), SIAM J. Control Optim. 43(5) (preparation and feedback phase). Zavala and Biegler
    (2009), Automatica 45(1) (advanced-step NMPC: first-order correction of a prepared plan).

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=10 * (q - 0.9) ** 2 + v**2 + 0.1 * u**2)
    >>> mpc = ns.MPC(ocp, period=0.1)
    >>> u = mpc.step([0.0, 0.0], t=0.0)
    >>> mpc.prepare()
    >>> u = mpc.step([0.04, 0.7], t=0.1)
    >>> print(mpc.last.source, mpc.last.plan.success)
    solved True
    """

    def __init__(
        self,
        problem: OCP | Transcription,
        method: Any = None,
        *,
        period: float | None = None,
        delay: float = 0.0,
        deadline: float | None = None,
        on_failure: Sequence[str] = ("track", "shift", "hold"),
        not_finite: Literal["error", "hold"] = "error",
        preparation: float | None = None,
        solver: Strategy | None = None,
        p: Any = None,
        spread: Any = None,
        guess: Any = None,
        fixed_grid: bool = True,
    ) -> None:
        self.problem = _transcribed(problem, method, period)
        if self.problem.ocp.free_time is not None:
            raise OptionError("MPC: expected an OCP with a fixed horizon, given a free one (ns.FreeTime).")
        self.ocp, self.system = self.problem.ocp, without_slacks(self.problem.ocp.system)
        self.cost = MotionCost.of(self.ocp, self.system.n_u, self.system.n_p)
        self.stage = float(self.ocp.horizon) / self.problem.grid.control_stages
        self.period = self.stage if period is None else _seconds(period, "period", positive=True)
        # Plans are shifted by whole control stages from sample to sample.
        self.stages = round(self.period / self.stage)
        if (
            abs(self.period / self.stage - self.stages) > STAGE_TOLERANCE
            or not 1 <= self.stages < self.problem.grid.control_stages
        ):
            raise OptionError(
                f"MPC: period: expected a multiple of the control stage, {self.stage:g} s, below the horizon, given "
                f"{self.period:g} s; choose control_stages accordingly."
            )
        self.delay = _seconds(delay, "delay")
        self.deadline = None if deadline is None else _seconds(deadline, "deadline", positive=True)
        if self.delay > self.period:
            raise OptionError(f"MPC: delay: expected at most the period of {self.period:g} s, given {delay!r}.")
        unknown = [name for name in on_failure if name not in ON_FAILURE]
        if isinstance(on_failure, str) or unknown:
            raise OptionError(
                f"MPC: on_failure: expected some of {', '.join(ON_FAILURE)} in order, given {on_failure!r}."
            )
        if not_finite not in ("error", "hold"):
            raise OptionError(f'MPC: not_finite: expected "error" or "hold", given {not_finite!r}.')
        self.on_failure, self.not_finite = tuple(on_failure), not_finite
        self.preparation = (
            FIRST_PLAN_SECONDS if preparation is None else _seconds(preparation, "preparation", positive=True)
        )
        self.solver, self.p, self.spread, self.guess = solver, p, spread, guess
        self.last: MPCStep | None = None
        self._plan: Answer | Solution | None = None
        self._began = 0.0
        self._prepared: Prepared | None = None
        self._lowest = np.inf
        self._predictor: Any = None
        self._follower: Any = None
        self._durations = Durations()
        stages = self.problem.grid.control_stages
        self._planner, self.without_grid = (
            GridPlanner.of(self.ocp, self.period, stages) if fixed_grid else (None, "fixed_grid=False")
        )
        self._searched: GridAnswer | None = None
        self._kept: Answer | None = None
        self._ratios = list[float]()
        self._p: Any = None  # of the last sample

    @property
    def lower(self) -> Array:
        """Lower bounds of the controls (n_u,)."""
        # Controls behind those of the system are slacks of soft constraints.
        return np.asarray(self.ocp.u_bounds[0])[: self.system.n_u]

    @property
    def upper(self) -> Array:
        """Upper bounds of the controls (n_u,)."""
        return np.asarray(self.ocp.u_bounds[1])[: self.system.n_u]

    def reset(self) -> None:
        """Discard all plans; the next sample is treated as the first one.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
        >>> ocp = ns.OCP(ns.ODE(x=x, u=u, flow=u), horizon=1.0, x0=[0.0], stage_cost=(x - 1) ** 2 + 0.1 * u**2)
        >>> mpc = ns.MPC(ocp, period=0.25, guess=0.0)
        >>> u = mpc.step([0.0], t=0.0)
        >>> mpc.reset()
        >>> mpc.last is None
        True
        """
        self.last, self._plan, self._prepared, self._lowest = None, None, None, np.inf
        self._searched = self._kept = None
        self._ratios = list[float]()
        self._p, self._durations = None, Durations()
        if self._planner is not None:
            self._planner.reset()

    @named_arguments
    @one_numpy_thread
    def step(self, x: Any, t: float, p: Any = None) -> Array:
        """Return the control (n_u,) for a state measured at t; `last` holds its source and the plan.

        Parameters
        ----------
        x : (n_x,)
            Measured state; slight penetrations from noise are removed.
        t : float
            Time of the measurement [s].
        p : (n_p,), optional
            Parameter values that replace those of the controller.

        Raises
        ------
        ModelError
            For a wrong number of states, or NaN or inf unless `not_finite="hold"`.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
        >>> tank = ns.ODE(x=x, u=u, flow=u)
        >>> ocp = ns.OCP(tank, horizon=1.0, x0=[0.0], stage_cost=(x - 1) ** 2 + 0.1 * u**2, bounds={"u_0": (-1, 1)})
        >>> mpc = ns.MPC(ocp, period=0.25, guess=0.0)
        >>> float(mpc.step([0.0], t=0.0)[0].round(3)), mpc.last.status.value
        (1.0, 'solved')
        """
        began = time.perf_counter()
        try:
            x = np.asarray(x, dtype=float).reshape(-1)
        except (TypeError, ValueError):
            raise ModelError(f"x: expected {len(self.system.state_names)} numbers, given {x!r}.") from None
        if x.size != len(self.system.state_names):
            raise ModelError(f"x: expected {len(self.system.state_names)} numbers, given {x.size}.")
        fields = {"t": float(t), "x": x.copy(), "planned_from": x}
        if not np.isfinite(x).all():
            if self.not_finite == "error":
                raise ModelError(f"x: the measurement at {t:g} s is not finite: {x.tolist()}.")
            self._searched = self._kept = None
            # The next prediction starts from the state that the last one leads to, not from numbers that are none.
            if self.last is not None:
                fields["planned_from"] = self._held_state(self._parameters(t, p))
            fallback = MPCStep(
                **fields, u=self._last_control(), source=Source.HELD, message="the measurement is not finite"
            )
            return self._record(fallback, began)
        self._p = p
        values = self._parameters(t, p)
        answer: Answer | Solution | None = None
        reason, planned_from = "", x
        try:
            planned_from = self._predicted_start(x, t, values)
            fields["planned_from"] = planned_from
            if self._grid_holds:
                self._searched = answered(self._planner, planned_from, t + self.delay, values)
                if self.last is not None:
                    return self._record(self._feedback(fields, t, values), began)
            limit = (
                FIRST_PLAN_SECONDS if self.deadline is None or self._plan is None else SOLVER_FRACTION * self.deadline
            )
            answer = self._solve_from(planned_from, t, values, limit)
        except NosnocError as error:
            reason = str(error)
        except Exception as error:  # solver, library or user function: the plant needs a control in any case
            reason = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - began
        # The first plan has no deadline: without it no fallback but a zero control exists.
        late = self.deadline is not None and self._plan is not None and seconds > self.deadline
        if answer is not None and answer.success and not late:
            self._plan, self._began = answer, t + self.delay
            how = answer.how if isinstance(answer, Answer) else "first"
            step = MPCStep(**fields, u=self._within_bounds(answer.u[0]), source=Source.SOLVED, how=how, plan=answer)
            return self._record(step, began)
        if self._grid_holds and self.last is None:
            # Finite elements have no first plan: the fixed grid may have one.
            return self._record(self._feedback(fields, t, values), began)
        u, source = self._fallback(planned_from, t, values)
        if answer is not None and answer.success:
            # Too late to act, but still the best start for the next sample.
            reason, self._plan, self._began = (
                f"the plan came {seconds:.3g} s after the measurement",
                answer,
                t + self.delay,
            )
        status = Status.CONTROLLER_FAILED if answer is None else answer.status
        step = MPCStep(
            **fields, u=u, source=source, status=status, late=late, message=reason or str(status), plan=self._plan
        )
        return self._record(step, began)

    def _feedback(self, fields: dict[str, Any], t: float, p: Any) -> MPCStep:
        """Return the better control of the fixed grid and of the plan on its own branch, else a fallback."""
        x0, grid = fields["planned_from"], self._searched
        below = -np.inf if grid is None else grid.objective - COST_RISE * abs(grid.objective)
        kept, quality, loss = self._on_branch(x0, t, p), Quality(), 0.0
        if grid is not None:
            best = max(abs(grid.objective), np.finfo(float).tiny)
            quality = Quality(
                objective=grid.objective, loss=0.0, gap=(grid.objective - grid.search.bound) / best,
                margin=(grid.search.kept - grid.objective) / best,
            )  # fmt: skip
            # The grid does not see every order from where it is expanded; what finite elements say of a plan is exact.
            if kept is not None:
                on_grid = kept.objective if kept.objective < below else grid.objective_of(kept.u)
                loss = (on_grid - grid.objective) / best
        if kept is not None and (loss <= LOSS or self._deceived):
            own = {"objective": kept.objective, "residual": kept.residual}
            quality = replace(quality, **own, **({} if grid is None else {"loss": loss}))
            u = self._within_bounds(kept.u[0])
            return MPCStep(**fields, u=u, source=Source.SOLVED, how=KEPT, plan=kept.plan, quality=quality)
        if grid is not None:
            u = self._within_bounds(grid.u[0])
            return MPCStep(**fields, u=u, source=Source.SEARCHED, how="fixed grid", quality=quality)
        u, source = self._fallback(x0, t, p)
        return MPCStep(
            **fields, u=u, source=source, status=Status.CONTROLLER_FAILED, plan=self._plan,
            message="neither the fixed grid nor the branch of the plan has an answer",
        )  # fmt: skip

    def _on_branch(self, x0: Array, t: float, p: Any) -> _Kept | None:
        """Return the plan on its own branch for a state; None where that has no solution.

        A prepared plan has its program condensed: one quadratic program of a few unknowns.
        """
        self._kept, prepared = None, self._prepared_for(t)
        try:
            values = self.problem.parameters(x0, p)
            if prepared is not None:
                # Without a program the preparation has found that the branch does not hold, or was cut.
                step = prepared.step(x0, values)
                return None if step is None else _Kept(step.u, step.objective, step.step.residual, prepared.plan)
            plan, shift = self._plan, self._stages_since(t + self.delay)
            if plan is None or not 0 <= shift < self.problem.grid.control_stages:
                return None
            limit = self.period if self.deadline is None else SOLVER_FRACTION * self.deadline
            self._kept = answer = solve_kept(self.problem, plan, shift, values, limit)
        except Exception:  # a function of the user without a value: the fixed grid, or a fallback, answers
            return None
        if answer is None:
            return None
        return _Kept(answer.u, answer.objective, max(answer.state.infeasibility, answer.state.complementarity), answer)

    def _prepare_both(self, ready: Answer | None, begin: float, p: Any, end_time: float) -> None:
        """Expand the fixed grid for the next sample; then look for the best plan, shift it there and condense it."""
        assert self._planner is not None
        state = self._next_state(p)
        self._planner.prepare(state, begin, p)
        plan = self._polished(ready, p, end_time)
        if plan is None:
            return
        self._plan, self._began = plan, begin - self.period
        shift, values = self._stages_since(begin), self.problem.parameters(state, p)
        if not 0 <= shift < self.problem.grid.control_stages:
            return
        # As it is, for the case that there is no time for more: the feedback is a step of Newton's method from there.
        run, moved = self._durations.run, shifted(self.problem, plan, shift, values)
        run("condense", lambda left: self._condense(moved, begin), np.inf)
        following = run(
            "following", lambda left: solve_kept(self.problem, plan, shift, values, left), self._begins(end_time)
        )
        if following is None:
            # With time left: other branches, relaxed problems, homotopies.
            following = run("ahead", lambda left: self._ahead(plan, shift, p, end_time), self._begins(end_time))
        if following is not None and following.success:
            self._condense(following, begin)
        elif time.monotonic() < self._begins(end_time) and following is not None:
            self._prepared = Prepared(begin=begin)  # not for lack of time: the branch does not hold at the next sample

    def _begins(self, end_time: float) -> float:
        """Return when the plan has to be condensed, which takes some milliseconds; not more than half of the time."""
        return end_time - min(self._durations.of("condense"), 0.5 * self._limit)

    def _condense(self, plan: Answer | None, begin: float) -> None:
        """Make a plan that begins at the next sample ready for its feedback."""
        solved = None if plan is None else plan.state.solved_branch
        if plan is not None and solved is not None:
            program = condensed_at(self.problem, plan.state.w, plan.state.p, solved)
            self._prepared = Prepared(begin=begin, plan=plan, program=program)

    def _polished(self, ready: Answer | None, p: Any, end_time: float) -> Answer | Solution | None:
        """Return the best plan of the last sample: on its own branch, or on those of simulated controls."""
        last, plans = self.last, list[Answer | Solution | None]([self._kept])
        assert last is not None
        values = self.problem.parameters(last.planned_from, p)

        def kept(left: float) -> Answer | Solution | None:
            """The feedback had its condensed program only, or the plan is the first one, of finite elements alone."""
            if ready is not None and self._kept is None:
                return solve_kept(self.problem, ready, 0, values, left)
            return self._plan if self._kept is None and last.source is Source.SOLVED else None

        def along(u: Array | None, left: float, grid: GridAnswer | None = None) -> Answer | None:
            """Solve on the branch that controls lead to; those of an earlier plan have to beat the plans there are."""
            began = time.monotonic()
            motion = None if u is None else self._motion(last.planned_from, u, p, left)
            if motion is None or not motion.success:
                return None
            cost = self._cost_of(motion, p) if grid is None else self._simulated(motion, grid, p)
            left -= time.monotonic() - began
            beaten = grid is None and any(plan is not None and plan.objective < cost for plan in plans)
            if beaten or left <= 0.0:
                return None
            return solve_along(self.problem, motion, values, left)

        grid = self._searched

        def searched(left: float) -> Answer | None:
            return None if grid is None else along(grid.u, left, grid)

        def earlier(left: float) -> Answer | None:
            return along(self._rest(self._plan, self._stages_from(self._began, last.t)), left)

        tasks: dict[str, Work] = {"kept": kept}
        if last.source is not Source.SOLVED:
            tasks = {"searched": searched, "kept": kept, "earlier": earlier}
        elif last.quality.loss > COST_GAIN and not self._deceived:
            tasks = {"kept": kept, "searched": searched}
        for name, task in tasks.items():
            plans.append(self._durations.run(name, task, self._begins(end_time)))
        return min((plan for plan in plans if plan is not None), key=lambda plan: plan.objective, default=None)

    @named_arguments
    @one_numpy_thread
    def prepare(self, *, time_limit: float | None = None) -> None:
        """Solve the plan for the state predicted at the next sample; call it while the last control acts.

        Errors are not raised: after a failure the next sample starts from the previous plan.

        Parameters
        ----------
        time_limit : float, optional
            Seconds; default `preparation`.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
        >>> ocp = ns.OCP(ns.ODE(x=x, u=u, flow=u), horizon=1.0, x0=[0.0], stage_cost=(x - 1) ** 2 + 0.1 * u**2)
        >>> mpc = ns.MPC(ocp, period=0.25, guess=0.0)
        >>> u = mpc.step([0.0], t=0.0)
        >>> mpc.prepare()  # while u acts; the next step then takes milliseconds
        >>> u = mpc.step([0.6], t=0.25)
        >>> mpc.last.how
        'kept'
        """
        # First of all: a plan prepared for an earlier sample must not survive a failure below.
        before = None if self.last is None else self._prepared_for(self.last.t)
        ready, self._prepared = None if before is None else before.plan, None
        if self.last is None:
            return
        begin = self.last.t + self.period + self.delay
        limit = self.preparation if time_limit is None else time_limit
        end_time, self._limit = time.monotonic() + limit, limit
        self._prepared = Prepared(begin=begin)
        try:
            p = self._parameters(begin, self._p)
            if self._grid_holds and (self._searched is not None or self.last.source is Source.SOLVED):
                self._prepare_both(ready, begin, p, end_time)
                return
            if self.last.source is not Source.SOLVED:
                # The last control was a fallback, so its plan does not start from the measured state: solve again
                # from the predicted state now, without the deadline of the feedback phase.
                state = self._next_state(p)
                plan = self._solve_from(state, begin - self.delay, p, limit)
                if plan.success:
                    self._plan, self._began = plan, begin
            shift = self._stages_since(begin)
            if self._plan is None or not self._plan.success or not 0 <= shift < self.problem.grid.control_stages:
                return
            following = self._ahead(self._plan, shift, p, end_time)
            if not following.success:
                return
            # The present branch may have become poor; other starts are too expensive at every sample.
            if self._has_risen(following.objective):
                following = self._cheaper(following, p, end_time)
            # Reference for `_has_risen`.
            self._lowest = min(self._lowest, float(following.objective))
            self._prepared = Prepared(begin=begin, plan=following)
            if "track" in self.on_failure:
                # First-order correction for the fallback "track", computed before it is needed.
                self._prepared = replace(self._prepared, gain=self.problem.differentiate(following, x0=True))
        except Exception:  # the next sample then starts from the last plan
            return

    def _ahead(self, plan: Answer | Solution, shift: int, p: Any, end: float) -> Answer:
        """Prepare a plan for the state that it predicts, on any branch, until `end` (monotonic time)."""
        left = max(0.0, end - time.monotonic())
        return self.problem.prepare(plan, shift=shift, spread=self.spread, p=p, solver=self.solver, time_limit=left)

    def _has_risen(self, objective: float) -> bool:
        """True if the objective exceeds the lowest one so far, a sign that the branch has become a poor one."""
        return bool(objective > COST_RISE * abs(self._lowest) + self._lowest) if np.isfinite(self._lowest) else False

    def _cheaper(self, ready: Answer, p: Any, end: float) -> Answer:
        """Return a cheaper plan from another start, searched until `end` (monotonic time), else the prepared one."""
        self._lowest = float(ready.objective)
        x0 = np.asarray(ready.solution.x[0])[: len(self.system.state_names)]
        for guess in self._guesses(x0, p, max(0.0, end - time.monotonic())):
            remaining = end - time.monotonic()
            if remaining <= 0.0:
                break
            candidate = self.problem.solve(self.solver, x0=x0, p=p, guess=guess, time_limit=remaining)
            if candidate.success and candidate.objective < ready.objective - COST_GAIN * abs(ready.objective):
                prepared = self._ahead(candidate, 0, p, end)
                ready = prepared if prepared.success else ready
        return ready

    def _next_state(self, p: Any) -> Array:
        """Predict the state when the control of the next sample begins to act."""
        assert self.last is not None
        if self._follower is None:
            self._follower = Simulator(self.system, PREDICTION, step=self.period)
        state = self._follower.step(self._follower.init(self.last.planned_from, p), self.last.u)
        return admissible(self.system, state.x, p)

    def _held_state(self, p: Any) -> Array:
        """Predict the state where no measurement is usable; without a prediction the last one stays."""
        assert self.last is not None
        try:
            return self._next_state(p)
        except NosnocError:
            return self.last.planned_from

    def _solve_from(self, x0: Array, t: float, p: Any, limit: float) -> Answer | Solution:
        """Solve a plan from x0: on the branch of the prepared or the last plan, else from several starts."""
        arguments: dict[str, Any] = {"x0": x0, "p": p, "solver": self.solver}
        # Prepared plan for exactly this sample: only the initial state has changed.
        if (prepared := self._prepared_for(t)) is not None and prepared.plan is not None:
            return self.problem.resolve(prepared.plan, **arguments, time_limit=limit)
        shift = self._stages_since(t + self.delay)
        if self._plan is not None and 0 <= shift < self.problem.grid.control_stages:
            return self.problem.resolve(self._plan, shift=shift, **arguments, time_limit=limit)
        solver = arguments.pop("solver")
        end, best = time.monotonic() + limit, None
        for guess in self._guesses(x0, p, limit):
            remaining = max(0.0, end - time.monotonic())
            candidate = self.problem.solve(solver, **arguments, guess=guess, time_limit=remaining)
            if best is None or (candidate.success, -candidate.objective) > (best.success, -best.objective):
                best = candidate
        assert best is not None
        return best

    def _guesses(self, x0: Array, p: Any, limit: float) -> Iterator[Any]:
        """Yield initial guesses of a plan without a predecessor; several, as the first local optimum may be poor."""
        if self.guess is not None:
            yield self.guess
            return
        horizon = float(self.ocp.horizon)
        if self._searched is not None:
            u = self._within_bounds(self._searched.u)
            driven = simulate(self.system, x0=x0, duration=horizon, p=p, u=u, time_limit=limit)
            if driven.success:
                self._simulated(driven, self._searched, p)
                yield driven
        uncontrolled = simulate(self.system, x0=x0, duration=horizon, p=p, u=self._zero_control(), time_limit=limit)
        yield uncontrolled if uncontrolled.success else None
        if limit >= SEARCH_SECONDS:
            measured = evolve(self.ocp, x0=x0, p=self.ocp.system.parameters(p))
            searched = solve(measured, effort="quick", time_limit=SEARCH_FRACTION * limit)
            if searched.success:
                yield searched

    def _fallback(self, x0: Array, t: float, p: Any) -> tuple[Array, Source]:
        """Return the fallback control (n_u,) and its source if no plan was solved in time."""
        rows = dict[Source, Array]()
        prepared, plan, began = self._prepared_for(t), self._plan, self._began
        if prepared is not None and prepared.plan is not None:
            plan, began = prepared.plan, prepared.begin
            if "track" in self.on_failure and prepared.gain is not None:
                rows[Source.TRACKED] = prepared.gain.predict(x0=x0).u
        if "shift" in self.on_failure and (rest := self._rest(plan, self._stages_from(began, t))) is not None:
            rows[Source.SHIFTED] = rest
        rows = {
            source: self._within_bounds(u) for source, u in rows.items() if np.isfinite(u[:, : self.system.n_u]).all()
        }
        if len(rows) > 1 and self.cost is not None:
            # After a large disturbance the first-order correction may be far off, so compare by simulation.
            best = min(rows, key=lambda source: self._simulated_cost(x0, rows[source], p))
            return rows[best][0], best
        # One candidate, or no cost to compare by: "track" comes first.
        for source, u in rows.items():
            return u[0], source
        return self._last_control(), Source.HELD

    def _simulated_cost(self, x0: Array, u: Array, p: Any) -> float:
        """Return the simulated cost of controls (N, n_u) over the horizon; infinite if the simulation stops early."""
        motion = self._motion(x0, u, p)
        return self._cost_of(motion, p) if motion.success else np.inf

    def _motion(self, x0: Array, u: Array, p: Any, limit: float | None = None) -> Trajectory:
        """Return the motion under controls (N, n_u) over the horizon."""
        horizon, u = float(self.ocp.horizon), self._within_bounds(u)
        return simulate(self.system, x0=x0, duration=horizon, u=u, p=p, time_limit=limit, method=COMPARISON)

    def _rest(self, plan: Answer | Solution | None, passed: int) -> Array | None:
        """Return the controls of a plan after some stages; the last one fills the end of the horizon."""
        if plan is None or not 0 <= passed < len(plan.u):
            return None
        return np.vstack([plan.u[passed:], np.repeat(plan.u[-1:], passed, axis=0)])

    def _simulated(self, motion: Trajectory, grid: GridAnswer, p: Any) -> float:
        """Return the objective of a simulation of the fixed grid's controls, and note its ratio to the prediction."""
        cost = self._cost_of(motion, p)
        if self.last is not None:
            self.last = replace(self.last, quality=replace(self.last.quality, simulated=cost))
        if np.isfinite(cost):
            # Two costs that vanish say nothing.
            self._ratios = [*self._ratios[-4:], cost / max(abs(grid.objective), VANISHES * self._typical_cost(p))]
        return cost

    def _typical_cost(self, p: Any) -> float:
        """Return the cost of states of typical size over the horizon."""
        if self.cost is None:
            return np.finfo(float).tiny
        t, x = np.linspace(0.0, float(self.ocp.horizon), SAMPLES), np.tile(self.system.x_nominal, (SAMPLES, 1))
        return max(abs(self.cost.running(t, x, np.tile(self._zero_control(), (SAMPLES, 1)), p)), np.finfo(float).tiny)

    @property
    def _deceived(self) -> bool:
        """True if simulations have refuted the predictions of the fixed grid."""
        return len(self._ratios) >= LEAST_SEEN and float(np.median(self._ratios)) > DECEIVED

    @property
    def _grid_holds(self) -> bool:
        """True if there is a fixed grid that is not refuted, or no time for finite elements alone."""
        return self._planner is not None and (not self._deceived or self.deadline is not None)

    def _cost_of(self, motion: Trajectory, p: Any) -> float:
        if self.cost is None:
            return np.nan
        # Samples of every stage, both ends included: the integrator's own nodes are few, and the control jumps at its
        # breaks.
        low, high = motion.u_grid[:-1, None], motion.u_grid[1:, None]
        t = (low + (high - low) * np.linspace(0.0, 1.0, SAMPLES)).ravel()
        running = self.cost.running(t - motion.t0, motion(t), np.repeat(motion.u, SAMPLES, axis=0), p)
        return running + self.cost.final(motion.final_state, motion.x[0], p)

    def _stages_since(self, t: float) -> int:
        return round((t - self._began) / self.stage)

    def _stages_from(self, began: float, t: float) -> int:
        return round((t + self.delay - began) / self.stage)

    def _prepared_for(self, t: float) -> Prepared | None:
        """Return what was prepared for a sample at t, None if nothing was."""
        prepared = self._prepared
        there = prepared is not None and abs(prepared.begin - t - self.delay) <= STAGE_TOLERANCE * self.period
        return prepared if there else None

    def _predicted_start(self, x: Array, t: float, p: Any) -> Array:
        """Return the state (n_x,) when the control begins to act: without penetration, predicted over the delay."""
        x = admissible(self.system, x, p)
        if not self.delay:
            return x
        if self._predictor is None:
            self._predictor = Simulator(self.system, PREDICTION, step=self.delay)
        state = self._predictor.step(self._predictor.init(x, p), self._last_control())
        # Without a prediction the measured state is the best start there is.
        return admissible(self.system, state.x, p) if state.status.success else x

    def _parameters(self, t: float, p: Any) -> Any:
        values = self.p if p is None else p
        return self.system.parameters(values(t) if callable(values) else values)

    def _last_control(self) -> Array:
        return self._zero_control() if self.last is None else self.last.u

    def _zero_control(self) -> Array:
        return self._within_bounds(np.zeros(self.system.n_u))

    def _within_bounds(self, u: Array) -> Array:
        return np.clip(np.asarray(u, dtype=float)[..., : self.system.n_u], self.lower, self.upper)

    def _record(self, step: MPCStep, began: float) -> Array:
        seconds = time.perf_counter() - began
        # With the time of the fallback; the very first control is excepted, as it had no deadline.
        deadline = self.period if self.deadline is None else self.deadline
        late = step.late or (self.last is not None and seconds > deadline)
        self.last = replace(step, seconds=seconds, late=late)
        return self.last.u


def _transcribed(problem: Any, method: Any, period: float | None) -> Transcription:
    if isinstance(problem, Transcription):
        if method is not None:
            raise OptionError("MPC: method: a transcription has its own; leave method= out, or pass the OCP.")
        return problem
    if not isinstance(problem, OCP):
        raise OptionError(f"MPC: expected an OCP or a Transcription, given {type(problem).__name__}.")
    if method is None:
        stages = 20 if period is None else round(float(problem.horizon) / _seconds(period, "period", positive=True))
        kind: Callable[..., Any] = FESDJ if problem.system.mechanical else FESD
        method = kind(control_stages=max(stages, 2), finite_elements=2, rk_stages=2)
    return transcribe(problem, method)


def _seconds(value: Any, what: str, *, positive: bool = False) -> float:
    good = not isinstance(value, bool) and isinstance(value, Real) and np.isfinite(float(value))
    if not good or float(value) < 0.0 or (positive and float(value) == 0.0):
        kind = "a positive number" if positive else "a number, zero or more,"
        raise OptionError(f"MPC: {what}: expected {kind} of seconds, given {value!r}.")
    return float(value)
