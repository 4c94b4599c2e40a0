"""One phase: smooth motion in one regime, up to its first event.

The loop of `loop` integrates; motions that are stiff for longer than the start of a slip are left to Radau of SciPy.
Steps are sampled at eight Chebyshev nodes of their dense output, and the first crossing is searched in `motion`.
The state at the crossing is not taken from the dense output, which is less accurate: the last step is repeated so that
it ends at the event, with Newton corrections of its time (`_locate`).

A motion is stiff if stability limits the steps of DOP853 (`explicit`). Even so Radau, of lower order, may be slower at
tight tolerances: in its first steps it has to show that it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nosnoc_py.attempts import work
from nosnoc_py.motion.crossing import NODES, Crossing, GuardSearch
from nosnoc_py.simulation.event_driven.compiled_loop import compiled_loop
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.simulation.event_driven.filippov.regime import FilippovFlow
from nosnoc_py.simulation.event_driven.location import CORRECTIONS, LARGEST_CORRECTION, SHORT_CORRECTION, has_jumped
from nosnoc_py.simulation.event_driven.loop import LoopSolver
from nosnoc_py.simulation.event_driven.mechanics import STARTING
from nosnoc_py.simulation.event_driven.motions import flushed
from nosnoc_py.simulation.event_driven.records import STIFF_STEPS, IntegratorStep, Phase
from nosnoc_py.simulation.event_driven.soft_closing import SOFT_RATE, SoftClosing, soft_closing
from nosnoc_py.simulation.event_driven.steps import StepRule, rounding
from nosnoc_py.tolerances import RESTING, TOUCHING

# The smooth motion of a system under one control law, in any of its regimes.
Flow = ContactFlow | FilippovFlow

# Radau is on trial in its first TRIAL steps. If it is slower, the next trial needs PATIENCE times as many steps at the
# limit of stability.
TRIAL, PATIENCE = 20, 4
# Most steps between two looks at limits of time and work.
LEAP = 16
# TINY_STEPS steps in a row, all shorter than this fraction of the remaining time, mean that the integrator stands at a
# jump of the control or of a force. A slip in space has steps as short at its start and end, but fewer of them.
TINY_STEPS, TINY_STEP = 500, 1e-9
STUCK = (
    "the steps of the integrator have become tiny: the control or a force seems to jump; give a control that jumps at "
    "known times as ns.PiecewiseConstant, and replace a jump in the state by friction or by something smooth"
)
# Most steps ahead of an event that tell whether a gap that has come to zero leaves it: one that stays does not close.
MOST_AHEAD = 50
LOST = "a gap, a force or a switching function is no finite number any more from t = {:.6g} s on"
# Largest tolerances while a slip in space starts: a hundredth of the speed at which its direction is not yet free.
STARTED = 1e-2 * STARTING


class PhaseRun:
    """Integration in one regime. Directions of slip or guesses of multipliers follow the motion from step to step.

    Parameters
    ----------
    flow : Flow
    regime
        Initial regime.
    t, x
        Initial time [s] and state (n_x,).
    end : float
        End of the phase without an event [s].
    enabled : (n_g,) bool
        Guards that are positive or about to become so, and can cross.
    stiff : bool
        Start with Radau.
    patient : int
        As in `Phase`.
    pace : function of t, optional
        End of the part of the run that t belongs to, and longest step there [s], see `systems.pace`.
    """

    def __init__(
        self,
        flow: Flow,
        regime: Any,
        t: float,
        x: np.ndarray,
        end: float,
        enabled: np.ndarray,
        *,
        stiff: bool,
        patient: int = STIFF_STEPS,
        pace: Callable[[float], tuple[float, float]] | None = None,
    ) -> None:
        self.pace = pace
        self.flow, self.start, self.regime, self.end = flow, regime, regime, end
        self.t, self.x, self.enabled, self.stiff, self.attempted = t, flushed(x), enabled, stiff, 0
        self.noise = flow.noise._replace(inertia=flow.inertia(regime, t, x))
        self.has_stiff_start, self.finite = flow.has_stiff_start(regime, t, x), True
        self.tiny, self.most, self.counted = 0, 1, 0
        # Steps left of a trial of Radau, and the time until which it has to be further than DOP853 would be.
        self.patient, self.trial, self.goal = patient, 0, np.inf
        # How a motion is evaluated does not matter for the work that is counted.
        self.is_small = flow.is_small(regime)
        self.motion: Any = flow.motion(regime)
        self.steps: list[IntegratorStep] = []

    def run(self, is_over: Callable[[float, np.ndarray], bool], most: int = LEAP) -> Phase:
        """Integrate to the first crossing of a guard or to the end.

        Parameters
        ----------
        is_over : function of (t, x)
            Called after at most `most` steps; `attempted` is the number of steps so far.
        """
        self.rate, self.most = self._rate(self.t, self.x), most
        if not np.isfinite(self.rate).all():
            return self._finish(failure=self.flow.not_finite, finite=False)
        self.solver = self._solver(self.end)
        while self._goes_on() and not is_over(self.t, self.x):
            self.finite = True
            by_loop = hasattr(self.solver, "leap")
            open_ = self._leap() if by_loop else self._scipy_step()
            if self.solver.status == "failed":
                return self._finish(failure=self.message, finite=self.finite)
            if open_ is not None:
                step, guards, dense = open_
                if by_loop and self.solver.located:
                    return self._located(step)
                self.step_end = float(self.solver.t)
                crossing = self._crossing(step, guards, dense)
                if crossing is not None:
                    return self._lost(crossing) if crossing.lost else self._end_at(crossing, dense)
                self._accept(step, guards)
                self._continue(changes=by_loop and self.solver.close())
            if self.tiny >= TINY_STEPS:
                return self._finish(failure=STUCK)
        return self._finish()

    def _goes_on(self) -> bool:
        """Return True while the phase lasts; in the next part of the run steps have another limit."""
        if self.solver.status == "finished" and self.t < self.end:
            self.rate = self._rate(self.t, self.x)
            self.solver = self._solver(self.end)
        return bool(self.solver.status == "running")

    def _leap(self) -> tuple[IntegratorStep, np.ndarray, Any] | None:
        """Take explicit steps in which no guard can cross; return the one in which one may, with its guards."""
        changes, solver = self.solver.leap(), self.solver
        self.finite = self.finite and solver.finite
        self.message = solver.message if self.finite else self.flow.not_finite
        taken, closed = solver.taken, solver.taken - solver.open
        self.attempted += taken
        compiled_loop.steps += taken if self.is_small else 0
        work.count(work.SAMPLE * solver.evaluated)
        t, x, guards, forces, rates = (part[:taken].copy() for part in solver.rows)
        steps = [IntegratorStep(t=t[k], x=x[k], forces=forces[k], rates=rates[k]) for k in range(taken)]
        for step, values in zip(steps[:closed], guards, strict=False):
            self._accept(step, values)
        if closed:
            self._continue(changes)
        # `rate` belongs to the start of the step: `_steps_to` repeats the step from there.
        self.rate = solver.f
        return (steps[closed], guards[closed], solver.dense_output()) if solver.open else None

    def _scipy_step(self) -> tuple[IntegratorStep, np.ndarray, Any] | None:
        """Take a step of SciPy's Radau; return it with its guards (8, n_g) and its dense output."""
        self.rate, self.attempted = self.solver.f, self.attempted + 1
        self.message = self._step(self.solver)
        if self.solver.status == "failed":
            return None
        dense = self.solver.dense_output()
        return (*self._read(self.t, self.solver.t, dense), dense)

    def _accept(self, step: IntegratorStep, guards: np.ndarray) -> None:
        """Record a step without a crossing."""
        self.steps.append(step)
        # Enabled guards stay enabled: one that falls to zero within rounding still has to be seen when it crosses.
        if not self.enabled.all():
            self.enabled |= guards[-1] > rounding(self.noise, step.forces)
        short = step.t[-1] - step.t[0] < TINY_STEP * (self.end - step.t[0])
        self.tiny = min(self.tiny + 1, TINY_STEPS) if short or self.tiny >= TINY_STEPS else 0

    def _crossing(self, step: IntegratorStep, guards: np.ndarray, dense: Any) -> Crossing | None:
        """Return the first crossing of a guard in a step, or None."""
        count = self.flow.distances

        def evaluate(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            # How many evaluations a root takes, rounding decides: they belong to the work of the event.
            work.count(work.SAMPLE * t.size if t.size == NODES.size else 0.0)
            guards, _, rates = self.motion.samples(t, dense(t).T)
            return guards, rates[:, :count]

        scales = self.flow.scales
        search = GuardSearch(
            noise=rounding(self.noise, step.forces),
            evaluate=evaluate,
            touching=TOUCHING * scales.length,
            slow=RESTING * scales.speed,
            alone=lambda guard, s: self.flow.distance(guard, dense(s)),
            defect=self.flow.atol + self.flow.options.rtol * float(np.abs(step.x).max(initial=0.0)),
        )
        # The loop has found these samples not to be clear.
        find = search.in_unclear if hasattr(self.solver, "leap") else search.first
        return find(step.t, guards, step.rates[:, :count], self.enabled)

    def _located(self, step: IntegratorStep) -> Phase:
        """Return the phase that ends at a crossing in the loop, with the step up to it."""
        guard, low, high, time, end = self.solver.place.found.tolist()
        length = end - self.t
        self.steps.append(step)
        self.t, self.x = time, self.solver.y.copy()
        return self._finish(crossing=Crossing(guard=int(guard), low=low, high=high, time=time), length=length)

    def _end_at(self, crossing: Crossing, dense: Any) -> Phase:
        """Return the phase that ends at a crossing."""
        length = self.step_end - self.t
        path = _MotionAhead(self, dense)
        soft = self._as_soft_closing(crossing, path)
        # The start of the step is the event, unless a hop too low to be resolved closes where its acceleration turns;
        # the dense output beyond it decides the modes.
        if crossing.at_once and not soft.time > self.t:
            return self._finish(crossing=crossing, ahead=np.asarray(dense(crossing.high)), length=length)
        crossing = soft
        ahead = np.asarray(path(crossing.high)) if isinstance(crossing, SoftClosing) else None
        t, x, pieces = self._locate(crossing, dense)
        self.steps += pieces
        self.t, self.x = t, x
        return self._finish(crossing=crossing, ahead=ahead, length=length)

    def _as_soft_closing(self, crossing: Crossing, path: _MotionAhead) -> Crossing:
        """Return the crossing, or the soft closing that begins with it."""
        guard, scales = crossing.guard, self.flow.scales
        if guard >= self.flow.distances:
            return crossing

        def motion(s: float) -> tuple[float, float, float]:
            gap, rate = self._distance(guard, s, path(s))
            acceleration = self.flow.distance_accelerations(self.regime, s, path(s))[guard]
            return gap / scales.length, rate / scales.speed, float(acceleration)

        return soft_closing(crossing, motion, self.end, lambda s: self._distance(guard, s, path(s))[0] / scales.length)

    def _distance(self, guard: int, t: float, x: np.ndarray) -> tuple[float, float]:
        """Return a distance and its rate."""
        found: tuple[float, float] | None = self.flow.distance(guard, x)
        if found is not None:
            return found
        guards, _, rates = self.motion.samples(np.array([t]), x[None, :])
        return float(guards[0, guard]), float(rates[0, guard])

    def _lost(self, crossing: Crossing) -> Phase:
        """Return the phase that ends where a guard is no longer finite, with the motion up to there."""
        x, pieces = self._steps_to(crossing.low)
        if pieces and np.isfinite(x).all():
            self.steps += [self._read(*piece)[0] for piece in pieces]
            self.t, self.x = crossing.low, x
        return self._finish(failure=LOST.format(crossing.low), finite=False)

    def _finish(self, **fields: Any) -> Phase:
        return Phase(
            start=self.start,
            regime=self.regime,
            steps=tuple(self.steps),
            t=self.t,
            x=self.x,
            stiff=self.stiff and not self.trial,
            patient=self.patient,
            **fields,
        )

    def _continue(self, changes: bool) -> None:
        """Continue after steps with the state on its constraints; change the integrator if it is better now.

        `changes` tells so of the loop: stability limits its steps, or a slip is not slow any more.
        """
        solver, flow, by_loop = self.solver, self.flow, hasattr(self.solver, "leap")
        if by_loop:
            self.t, self.x = solver.start
        else:
            self.t = float(solver.t)
            self.x, rate = np.array(solver.y), np.array(solver.f)
            self.motion.put(self.t, self.x, rate)
            if not np.array_equal(solver.y, self.x):
                solver.y, solver.f = self.x.copy(), rate
        self.regime = self.motion.regime
        grown = self.has_stiff_start and not flow.has_stiff_start(self.regime, self.t, self.x)
        self.has_stiff_start = self.has_stiff_start and not grown
        if changes and not solver.rule.implicit:
            # DOP853 is given the shortest of its last steps.
            lengths = [step.t[-1] - step.t[0] for step in self.steps[-STIFF_STEPS:]]
            self.stiff, self.trial, self.goal = True, TRIAL, self.t + TRIAL * min(lengths)
        fails = not by_loop and bool(self.trial) and self._fails_trial()
        if (changes or fails) and solver.status == "running":
            self.rate = self._rate(self.t, self.x)
            self.solver = self._solver(self.end)

    def _fails_trial(self) -> bool:
        """Return True if the trial of Radau ends now because DOP853 would be further."""
        self.trial -= 1
        if self.trial or self.t >= self.goal:
            self.trial = 0 if self.t >= self.goal else self.trial
            return False
        self.stiff, self.patient = False, PATIENCE * self.patient
        return True

    def _watches(self) -> bool:
        """Return True while stiffness may still be detected."""
        return not self.stiff and not self.has_stiff_start and self.flow.options.integrator == "auto"

    def _solver(self, end: float, first_step: float | None = None) -> Any:
        """Return an integrator that starts at the present state, whose rate is known."""
        options = self.flow.options
        limit = np.inf if options.max_step is None else options.max_step
        if self.pace is not None:
            stop, longest = self.pace(self.t)
            end, limit = min(end, stop), min(limit, longest)
        stiff = options.integrator == "Radau" or (options.integrator == "auto" and self.stiff)
        # A slip that starts has to be resolved, or an error of its direction reverses it at once.
        finest = STARTED if self.has_stiff_start else np.inf
        rtol, atol = min(options.rtol, finest), min(self.flow.atol, finest * self.flow.scales.speed)
        shared = {"rtol": rtol, "atol": atol, "max_step": limit}
        if stiff:
            from scipy.integrate import Radau  # not paid for by an import of the library

            return Radau(self._rate, self.t, self.x, end, jac=self._jacobian, first_step=first_step, **shared)

        flow = self.flow
        implicit = options.integrator == "auto" and self.has_stiff_start
        rule = StepRule(
            end=end,
            touching=TOUCHING * flow.scales.length,
            distances=flow.distances,
            patient=self.patient if self._watches() else 0,
            most=self.most,
            implicit=implicit,
            # The direction of a slip in space has no limit at its end: an error has to divide the step there.
            locates=not implicit and not getattr(self.regime, "spatial", ()),
            slow=RESTING * flow.scales.speed,
            soft=SOFT_RATE * flow.scales.speed,
            noise=self.noise,
            **shared,
        )
        return LoopSolver(self.motion, self.t, self.x, self.rate, rule, flow.widths, first_step, self.enabled)

    def _rate(self, t: float, x: np.ndarray) -> np.ndarray:
        """Return dx/dt (n_x,), and note if it is not finite."""
        rate: np.ndarray = self.motion.rate(t, x)
        self.finite = self.finite and bool(np.isfinite(rate).all())
        return rate

    def _jacobian(self, t: float, x: np.ndarray) -> np.ndarray:
        """Return forward differences (n_x, n_x).

        With SciPy's, increments of states without influence grow until they overflow.
        """
        here, columns = self._rate(t, x), []
        for i, increment in enumerate(self.flow.increments(self.regime, t, x, has_stiff_start=self.has_stiff_start)):
            near = x.copy()
            near[i] += increment
            # Divided by the increment after rounding, which differs from the requested one at large states.
            columns.append((self._rate(t, near) - here) / (near[i] - x[i]))
        return np.column_stack(columns)

    def _step(self, solver: Any) -> str:
        """Take one step of an integrator; return the message if it fails."""
        try:
            message = solver.step()
        except ValueError:  # SciPy's linear algebra refuses Jacobians that are not finite
            if self.finite:
                raise
            solver.status, message = "failed", None
        self.finite = self.finite and getattr(solver, "finite", True)
        return str(message) if self.finite else self.flow.not_finite

    def _read(self, low: float, high: float, dense: Any) -> tuple[IntegratorStep, np.ndarray]:
        """Return the samples of one step, and their guards (8, n_g)."""
        t = low + (high - low) * NODES
        x = dense(t).T
        guards, forces, rates = self.motion.samples(t, x)
        return IntegratorStep(t=t, x=x, forces=forces, rates=rates), guards

    def _locate(self, crossing: Crossing, dense: Any) -> tuple[float, np.ndarray, list[IntegratorStep]]:
        """Return time, state and steps up to a crossing, by integrator steps that end there instead of dense output."""

        def guard(s: float, x: np.ndarray) -> float:
            return float(self.motion.samples(np.array([s]), x[None, :])[0][0, crossing.guard])

        time = crossing.time
        around = np.array([guard(s, dense(s)) for s in (self.t, self.step_end)])
        # Where a guard jumps its slope does not tell the place.
        jumps = has_jumped(guard(time, dense(time)), around)
        for _ in range(CORRECTIONS):
            x, pieces = self._steps_to(time)
            if crossing.touches or jumps or not pieces:
                break
            back = 1e-4 * (time - self.t)
            # A slope needs no accuracy, so that the dense output is enough; it is taken before the event, where the
            # modes hold.
            slope = (guard(time, dense(time)) - guard(time - back, dense(time - back))) / back if back > 0 else 0.0
            # Only a decreasing guard can be corrected by Newton's method; otherwise the time of the search is kept.
            correction = -guard(time, x) / slope if slope < 0.0 else 0.0
            if abs(correction) <= 2e-16 * max(1.0, abs(time)) or not self.t < time + correction <= self.end:
                break
            # A guard that is zero after a jump has rounding for a slope: no reason to leave the step.
            if abs(correction) > LARGEST_CORRECTION * (self.step_end - self.t):
                break
            time += correction
            if abs(correction) <= SHORT_CORRECTION * (time - self.t):
                # An Euler step is accurate enough over so short a time, and the polynomial extends to it.
                low, _, last = pieces[-1]
                x, pieces[-1] = x + correction * self._rate(time, x), (low, time, last)
                break
        return time, x, [self._read(*piece)[0] for piece in pieces]

    def _steps_to(self, time: float) -> tuple[np.ndarray, list[tuple[float, float, Any]]]:
        """Integrate from the start of the last step to a time inside it.

        Return the state and pieces (low, high, dense).
        """
        if not time > self.t:
            return self.x, []
        # The direction of a slip in space has no limit at its end: an error has to divide the step there.
        if getattr(getattr(self.solver, "rule", None), "locates", False) and time <= self.step_end:
            x, dense = self.solver.part(self.t, self.x, self.rate, time)
            return x, [(self.t, time, dense)]
        # The whole rest as first step: it is shorter than an accepted step, so that it is rarely divided.
        solver, pieces, low = self._solver(time, first_step=time - self.t), [], self.t
        while solver.status == "running":
            self._step(solver)
            if solver.status == "failed":
                break
            pieces.append((low, float(solver.t), solver.dense_output()))
            low = float(solver.t)
        return np.array(solver.y), pieces


class _MotionAhead:
    """State in a step and beyond it as if there were no event; NaN after a failure of the integrator and many steps."""

    def __init__(self, run: PhaseRun, dense: Any) -> None:
        self.run, self.pieces = run, [(float(run.solver.t), dense)]

    def __call__(self, t: float) -> np.ndarray:
        solver = self.run.solver
        while t > self.pieces[-1][0] and solver.status == "running" and len(self.pieces) < MOST_AHEAD:
            self.run._step(solver)
            if solver.status != "failed":
                self.pieces.append((float(solver.t), solver.dense_output()))
        inside = next((dense for high, dense in self.pieces if t <= high), None)
        return np.full(self.run.x.size, np.nan) if inside is None else np.asarray(inside(t))
