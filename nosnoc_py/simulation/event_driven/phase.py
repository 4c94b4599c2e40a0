"""One phase: the motion in one regime, up to its first event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from nosnoc_py.motion.crossing import NODES, Crossing, GuardSearch
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.simulation.event_driven.filippov.regime import FilippovFlow
from nosnoc_py.simulation.event_driven.soft_closing import SoftClosing, soft_closing
from nosnoc_py.tableaus import lagrange_basis
from nosnoc_py.tolerances import RESTING, TOUCHING

# The smooth motion of a system under one control law, in any of its regimes.
Flow = ContactFlow | FilippovFlow

# Hairer's test: DOP853 is at its limit of stability where h |lambda| exceeds this, in so many steps in a row.
STABILITY_LIMIT = 6.1
STIFF_STEPS = 15
# Smaller states and rates are zero: the squares of their errors would underflow in SciPy's norm.
TINY = 1e-50
# So many steps in a row, all shorter than this share of what is left, stand on a jump of the control or of a force. A
# slip in space starts and ends with steps that are as short, but not with so many.
TINY_STEPS, TINY_STEP = 500, 1e-9
STUCK = (
    "the steps of the integrator have become tiny: the control or a force seems to jump; give a control that jumps at "
    "known times as ns.PiecewiseConstant, and replace a jump in the state by friction or by something smooth"
)
LOST = "a gap, a force or a switching function is no finite number any more from t = {:.6g} s on"
# Shorter parts of a step, as a share of the time, are none.
SHORTEST = 1e-14
# Newton corrections of the time of an event; shorter ones, as a share of the step, need no other step.
CORRECTIONS, SHORT = 4, 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegratorStep:
    """One step of the integrator, at the times t (8,): states, and forces and rates as in a `Sample`."""

    t: np.ndarray
    x: np.ndarray
    forces: np.ndarray
    rates: np.ndarray

    def cut(self, times: np.ndarray) -> Sequence[IntegratorStep]:
        """The parts of a step between the times (n,) that lie inside, by the polynomials through its samples."""
        low, high = float(self.t[0]), float(self.t[-1])
        least = SHORTEST * max(abs(low), abs(high))
        inner = times[(times > low + least) & (times < high - least)]
        if not inner.size:
            return (self,)
        parts = []
        for left, right in pairwise([low, *inner.tolist(), high]):
            t = left + (right - left) * NODES
            basis = lagrange_basis(NODES, (t - low) / (high - low))
            parts.append(
                IntegratorStep(t=t, **{name: basis @ getattr(self, name) for name in ("x", "forces", "rates")})
            )
        return parts


@dataclass(frozen=True, eq=False, kw_only=True)
class Phase:
    """What happened in one regime.

    Attributes
    ----------
    start, regime
        The regime at the beginning, and as the last step left it (directions of slip, say).
    steps : tuple of IntegratorStep
    t, x
        The end.
    crossing : Crossing or None
        What ended it; None at the end of the interval.
    ahead : (n_x,) or None
        State a little later, which decides the modes: where a guard was violated at once, and of a contact that
        closes softly.
    stiff : bool
    failure : str
        Why the integrator gave up, if it did.
    finite : bool
        Whether the rates of the state had values where it did.
    length : float
        Of the step in which the crossing was found [s].
    """

    start: Any
    regime: Any
    steps: tuple[IntegratorStep, ...]
    t: float
    x: np.ndarray
    crossing: Crossing | None = None
    ahead: np.ndarray | None = None
    stiff: bool = False
    failure: str = ""
    finite: bool = True
    length: float = 0.0


class PhaseRun:
    """Integrates one regime; what it remembers (directions of slip, say) follows the motion from step to step.

    Parameters
    ----------
    flow : Flow
    regime
        One of the system's.
    t, x
        The beginning.
    end : float
        Where to stop if nothing happens [s].
    armed : (n_g,) bool
        Guards that are about to be positive.
    stiff : bool
        Whether to begin with Radau.
    """

    def __init__(
        self, flow: Flow, regime: Any, t: float, x: np.ndarray, end: float, armed: np.ndarray, *, stiff: bool
    ) -> None:
        self.flow, self.start, self.regime, self.end = flow, regime, regime, end
        self.t, self.x, self.armed, self.stiff, self.slow = t, _flushed(x), armed, stiff, 0
        self.inertia, self.starts, self.finite = flow.inertia(regime, t, x), flow.starts(regime, t, x), True
        self.tiny, self.whole = 0, False
        self.rate: np.ndarray | None = None
        self.written: Any = flow.written(regime)
        self.steps: list[IntegratorStep] = []

    def run(self, is_over: Callable[[float, np.ndarray], bool]) -> Phase:
        """Integrate until a guard crosses zero, or to the end; `is_over` is asked between steps, at (t, x)."""
        if not np.isfinite(self.flow.rhs(self.regime, self.t, self.x)).all():
            return self._ended(failure=self.flow.not_finite, finite=False)
        self.solver = self._solver(self.t, self.x, self.end)
        while self.solver.status == "running" and not is_over(self.t, self.x):
            self.finite, self.rate = True, self.solver.f
            message = self._step(self.solver)
            if self.solver.status == "failed":
                return self._ended(failure=message, finite=self.finite)
            dense = self.solver.dense_output()
            step, guards = self._read(self.t, self.solver.t, dense)
            crossing = self._crossing(step, guards, dense)
            if crossing is not None and crossing.lost:
                return self._lost(crossing)
            if crossing is not None:
                return self._at(crossing, dense)
            self.steps.append(step)
            self.armed = self.armed | (guards[-1] > self.flow.rounding(self.regime, step.forces, self.inertia))
            self._go_on()
            if self._is_stuck(step):
                return self._ended(failure=STUCK)
        return self._ended()

    def _crossing(self, step: IntegratorStep, guards: np.ndarray, dense: Any) -> Crossing | None:
        noise, count = self.flow.rounding(self.regime, step.forces, self.inertia), self.flow.distances

        def look(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            guards, _, rates = self._samples(t, dense(t).T)
            return guards, rates[:, :count]

        scales = self.flow.scales
        search = GuardSearch(noise=noise, look=look, touching=TOUCHING * scales.length, slow=RESTING * scales.speed)
        return search.first(step.t, guards, step.rates[:, :count], self.armed)

    def _at(self, crossing: Crossing, dense: Any) -> Phase:
        """The end of the phase at a crossing."""
        length = self.solver.t - self.t
        if crossing.at_once:
            return self._ended(crossing=crossing, ahead=np.asarray(dense(crossing.high)), length=length)
        path = _Path(self, dense)
        crossing = self._softly(crossing, path)
        ahead = np.asarray(path(crossing.high)) if isinstance(crossing, SoftClosing) else None
        t, x, pieces = self._land(crossing, dense)
        self.steps += pieces
        self.t, self.x = t, x
        return self._ended(crossing=crossing, ahead=ahead, length=length)

    def _softly(self, crossing: Crossing, path: _Path) -> Crossing:
        """The crossing, or the soft closing that its gap begins."""
        guard, scales = crossing.guard, self.flow.scales
        if guard >= self.flow.distances:
            return crossing

        def motion(s: float) -> tuple[float, float, float]:
            x = path(s)
            sample = self.flow.sample(self.regime, s, x)
            acceleration = self.flow.distance_accelerations(self.regime, s, x)[guard]
            gap, rate = sample.guards[guard] / scales.length, sample.rates[guard] / scales.speed
            return float(gap), float(rate), float(acceleration)

        return soft_closing(crossing, motion, self.end)

    def _lost(self, crossing: Crossing) -> Phase:
        """The end of the phase where a guard ceases to be a number, with the motion up to there."""
        x, pieces = self._steps_to(crossing.low)
        if pieces and np.isfinite(x).all():
            self.steps += [self._read(*piece)[0] for piece in pieces]
            self.t, self.x = crossing.low, x
        return self._ended(failure=LOST.format(crossing.low), finite=False)

    def _is_stuck(self, step: IntegratorStep) -> bool:
        """Whether so many steps in a row would take forever to come to the end."""
        self.tiny = self.tiny + 1 if step.t[-1] - step.t[0] < TINY_STEP * (self.end - step.t[0]) else 0
        return self.tiny >= TINY_STEPS

    def _ended(self, **fields: Any) -> Phase:
        return Phase(
            start=self.start,
            regime=self.regime,
            steps=tuple(self.steps),
            t=self.t,
            x=self.x,
            stiff=self.stiff,
            **fields,
        )

    def _go_on(self) -> None:
        """Project the state, let the regime follow, and change the integrator in a stiff phase."""
        solver, flow = self.solver, self.flow
        self.t, y = float(solver.t), _flushed(self._put(solver.y))
        self.x, before = y, self.regime
        self.regime = flow.turned(before, self.t, y)
        if self.regime is not before:
            self.written = flow.written(self.regime)
        self.slow = self.slow + 1 if self._watches() and _is_at_limit(solver) else 0
        grown = self.starts and not flow.starts(self.regime, self.t, y)
        self.starts = self.starts and not grown
        self.stiff = self.stiff or self.slow >= STIFF_STEPS
        if (grown or self.slow >= STIFF_STEPS) and solver.status == "running":
            self.slow, self.solver = 0, self._solver(self.t, y, self.end)
        elif not np.array_equal(solver.y, y):
            solver.y = y
            solver.f = solver.fun(solver.t, y)

    def _put(self, x: np.ndarray) -> np.ndarray:
        """A state on the constraints of the regime."""
        if self.written is not None and self.written[0].puts:
            steps, data = self.written
            return np.asarray(steps.put(x, data))
        return self.flow.project(self.regime, self.t, x)

    def _watches(self) -> bool:
        return not self.stiff and not self.starts and self.flow.options.integrator == "auto"

    def _solver(self, t: float, x: np.ndarray, end: float, first_step: float | None = None) -> Any:
        from scipy.integrate import DOP853, Radau  # not paid for by an import of the library

        options = self.flow.options
        limit = np.inf if options.max_step is None else options.max_step
        stiff = options.integrator == "Radau" or (options.integrator == "auto" and (self.stiff or self.starts))
        self.whole = False
        shared = {"rtol": options.rtol, "atol": self.flow.atol, "max_step": limit, "first_step": first_step}
        if stiff:
            return Radau(self._rate, t, x, end, jac=self._jacobian, **shared)
        if self.written is not None:
            from nosnoc_py.simulation.event_driven.whole_step import WholeStepDOP853  # which imports SciPy's

            self.whole = True
            return WholeStepDOP853(self.written[0], lambda: self.written[1], self._rate, t, x, end, **shared)
        return DOP853(self._rate, t, x, end, **shared)

    def _rate(self, t: float, x: np.ndarray) -> np.ndarray:
        if self.written is not None:
            rate = _flushed(self.written[0].rate(x, self.written[1]))
        else:
            rate = _flushed(self.flow.rhs(self.regime, t, x))
        self.finite = self.finite and bool(np.isfinite(rate).all())
        return rate

    def _jacobian(self, t: float, x: np.ndarray) -> np.ndarray:
        """Forward differences (n_x, n_x); with those of SciPy, increments of what has no influence overflow in time."""
        here, columns = self._rate(t, x), []
        for i, increment in enumerate(self.flow.increments(self.regime, t, x, starts=self.starts)):
            near = x.copy()
            near[i] += increment
            columns.append((self._rate(t, near) - here) / (near[i] - x[i]))
        return np.column_stack(columns)

    def _step(self, solver: Any) -> str:
        """One step of an integrator; the message when it gives up."""
        try:
            message = solver.step()
        except ValueError:  # SciPy's linear algebra refuses Jacobians that are not finite
            if self.finite:
                raise
            solver.status, message = "failed", None
        self.finite = self.finite and getattr(solver, "finite", True)
        return str(message) if self.finite else self.flow.not_finite

    def _read(self, low: float, high: float, dense: Any) -> tuple[IntegratorStep, np.ndarray]:
        """Samples of one step, and their guards (8, n_g)."""
        t = low + (high - low) * NODES
        x = dense(t).T
        guards, forces, rates = self._samples(t, x)
        return IntegratorStep(t=t, x=x, forces=forces, rates=rates), guards

    def _samples(self, t: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Guards (m, n_g), forces and rates at times (m,) and states (m, n_x)."""
        if self.written is not None:
            steps, data = self.written
            found: tuple[np.ndarray, np.ndarray, np.ndarray] = steps.samples(x, data)
            return found
        samples = [self.flow.sample(self.regime, *pair) for pair in zip(t, x, strict=True)]
        guards, forces, rates = (
            np.array([getattr(s, name) for s in samples]) for name in ("guards", "forces", "rates")
        )
        return guards, forces, rates

    def _land(self, crossing: Crossing, dense: Any) -> tuple[float, np.ndarray, list[IntegratorStep]]:
        """Time and state at a crossing, by steps of the integrator that end there, not by its dense output."""

        def guard(s: float, x: np.ndarray) -> float:
            return float(self._samples(np.array([s]), x[None, :])[0][0, crossing.guard])

        time = crossing.time
        for _ in range(CORRECTIONS):
            x, pieces = self._steps_to(time)
            if crossing.touches or not pieces:
                break
            back = 1e-4 * (time - self.t)
            slope = (guard(time, dense(time)) - guard(time - back, dense(time - back))) / back if back > 0 else 0.0
            correction = -guard(time, x) / slope if slope < 0.0 else 0.0
            if abs(correction) <= 2e-16 * max(1.0, abs(time)) or not self.t < time + correction <= self.end:
                break
            time += correction
            if abs(correction) <= SHORT * (time - self.t):
                # The rate is as good as a step, and the polynomial reaches so far.
                low, _, last = pieces[-1]
                x, pieces[-1] = x + correction * self._rate(time, x), (low, time, last)
                break
        return time, x, [self._read(*piece)[0] for piece in pieces]

    def _steps_to(self, time: float) -> tuple[np.ndarray, list[tuple[float, float, Any]]]:
        """Integrate from the beginning of the last step to a time inside it: the state, and (low, high, dense)."""
        if not time > self.t:
            return self.x, []
        if self.whole and self.rate is not None:
            x, dense = self.solver.part(self.t, self.x, self.rate, time)
            return x, [(self.t, time, dense)]
        solver, pieces, low = self._solver(self.t, self.x, time, first_step=time - self.t), [], self.t
        while solver.status == "running":
            self._step(solver)
            if solver.status == "failed":
                break
            pieces.append((low, float(solver.t), solver.dense_output()))
            low = float(solver.t)
        return np.array(solver.y), pieces


class _Path:
    """The state in a step, and behind it as if nothing happened there; NaN behind a failure of the integrator."""

    def __init__(self, run: PhaseRun, dense: Any) -> None:
        self.run, self.pieces = run, [(float(run.solver.t), dense)]

    def __call__(self, t: float) -> np.ndarray:
        solver = self.run.solver
        while t > self.pieces[-1][0] and solver.status == "running":
            self.run._step(solver)
            if solver.status != "failed":
                self.pieces.append((float(solver.t), solver.dense_output()))
        inside = next((dense for high, dense in self.pieces if t <= high), None)
        return np.full(self.run.x.size, np.nan) if inside is None else np.asarray(inside(t))


def _flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < TINY, 0.0, x)


def _is_at_limit(solver: Any) -> bool:
    """Hairer's test for stiffness, from the two stages of a step of DOP853 that lie at its end."""
    K = solver.K
    apart = solver.h_previous * (solver.B - solver.A[-1]) @ K[:-1]
    size = float(np.linalg.norm(apart))
    return size > 0.0 and solver.h_previous * float(np.linalg.norm(K[-1] - K[-2])) > STABILITY_LIMIT * size
