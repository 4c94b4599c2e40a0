"""One phase: the motion in one regime, up to its first event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.simulation.event_driven.guards import Crossing, Sample, first_crossing, rounding, sample
from nosnoc_py.simulation.event_driven.mechanics import Mechanics, Regime
from nosnoc_py.simulation.event_driven.options import EventDriven

# Chebyshev's extrema on [0, 1]: with the left end they carry the polynomials of degree 7 of DOP853 exactly.
NODES = 0.5 - 0.5 * np.cos(np.pi * np.arange(8) / 7)
# Hairer's test: DOP853 is at its limit of stability where h |lambda| exceeds this, in so many steps in a row.
STABILITY_LIMIT = 6.1
STIFF_STEPS = 15
# Newton corrections of the time of an event.
CORRECTIONS = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """One step of the integrator, at the times t (8,): states, contact forces, gap rates and slip velocities."""

    t: np.ndarray
    x: np.ndarray
    forces: np.ndarray
    rates: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Phase:
    """What happened in one regime.

    Attributes
    ----------
    start, regime : Regime
        At the beginning, and with the directions of slip of the last step.
    steps : tuple of Step
    t, x
        The end.
    crossing : Crossing or None
        What ended it; None at the end of the interval.
    ahead : (n_x,) or None
        State a little after the beginning, where a guard was violated at once.
    stiff : bool
    failure : str
        Why the integrator gave up, if it did.
    length : float
        Of the step in which the crossing was found [s].
    """

    start: Regime
    regime: Regime
    steps: tuple[Step, ...]
    t: float
    x: np.ndarray
    crossing: Crossing | None = None
    ahead: np.ndarray | None = None
    stiff: bool = False
    failure: str = ""
    length: float = 0.0


class Flow:
    """The smooth motion of a system under one control law, in any regime."""

    def __init__(
        self,
        mechanics: Mechanics,
        options: EventDriven,
        control: Callable[[float, np.ndarray], np.ndarray],
        p: np.ndarray,
    ) -> None:
        self.mechanics, self.options, self.control, self.p = mechanics, options, control, p

    def look(self, t: float, x: np.ndarray) -> Any:
        """Numbers of the system."""
        return self.mechanics.look(x, self.control(t, x), self.p)

    def rhs(self, regime: Regime, t: float, x: np.ndarray) -> np.ndarray:
        """dx/dt (2 n_q,); NaN where the contact forces have no value."""
        look = self.look(t, x)
        try:
            acceleration, _ = regime.motion(look)
        except np.linalg.LinAlgError:
            acceleration = np.full(self.mechanics.n_q, np.nan)
        return np.concatenate([look.velocity, acceleration])

    def sample(self, regime: Regime, t: float, x: np.ndarray) -> Sample:
        """Guards, forces and rates."""
        return sample(self.look(t, x), regime)

    def project(self, regime: Regime, t: float, x: np.ndarray) -> np.ndarray:
        """Put a state back on the constraints of a regime, in the metric of the mass matrix."""
        if not regime.rows.size:
            return x
        look, n_q = self.look(t, x), self.mechanics.n_q
        closed = regime.closed
        moved = look.response[:, closed] @ _least(look.delassus[np.ix_(closed, closed)], look.gaps[closed])
        x = np.concatenate([x[:n_q] - moved, x[n_q:]])
        look, rows = self.look(t, x), regime.rows
        pushed = look.response[:, rows] @ _least(look.delassus[np.ix_(rows, rows)], look.rates[rows])
        return np.concatenate([x[:n_q], x[n_q:] - pushed])


def _least(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.lstsq(matrix, right, rcond=1e-12)[0])


class PhaseRun:
    """Integrates one regime; the directions of slip in it follow the motion from step to step.

    Parameters
    ----------
    flow : Flow
    regime : Regime
    t, x
        The beginning.
    end : float
        Where to stop if nothing happens [s].
    armed : (5 n_c,) bool
        Guards that are about to be positive.
    stiff : bool
        Whether to begin with Radau.
    """

    def __init__(
        self, flow: Flow, regime: Regime, t: float, x: np.ndarray, end: float, armed: np.ndarray, *, stiff: bool
    ) -> None:
        self.flow, self.start, self.regime, self.end = flow, regime, regime, end
        self.t, self.x, self.armed, self.stiff, self.slow = t, x, armed, stiff, 0
        self.steps: list[Step] = []

    def run(self, is_over: Callable[[], bool]) -> Phase:
        """Integrate until a guard crosses zero, or to the end; `is_over` says when the time limit has come."""
        if not np.isfinite(self.flow.rhs(self.regime, self.t, self.x)).all():
            return self._ended(failure="the accelerations are not finite")
        self.solver = self._solver(self.t, self.x, self.end)
        while self.solver.status == "running" and not is_over():
            message = self.solver.step()
            if self.solver.status == "failed":
                return self._ended(failure=str(message))
            dense = self.solver.dense_output()
            step, guards = self._read(self.t, self.solver.t, dense)
            crossing = self._crossing(step, guards, dense)
            if crossing is not None:
                return self._at(crossing, dense)
            self.steps.append(step)
            self.armed = self.armed | (guards[-1] > rounding(self.regime, step.forces))
            self._go_on()
        return self._ended()

    def _crossing(self, step: Step, guards: np.ndarray, dense: Any) -> Crossing | None:
        return first_crossing(
            step.t,
            guards,
            step.rates,
            rounding(self.regime, step.forces),
            self.armed,
            lambda s: self.flow.sample(self.regime, s, dense(s)),
        )

    def _at(self, crossing: Crossing, dense: Any) -> Phase:
        """The end of the phase at a crossing."""
        length = self.solver.t - self.t
        if crossing.at_once:
            return self._ended(crossing=crossing, ahead=np.asarray(dense(crossing.high)), length=length)
        t, x, pieces = self._land(crossing, dense)
        self.steps += pieces
        self.t, self.x = t, x
        return self._ended(crossing=crossing, length=length)

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
        """Project the state, let the directions of slip follow, and change the integrator in a stiff phase."""
        solver, flow = self.solver, self.flow
        self.t, y = float(solver.t), flow.project(self.regime, solver.t, solver.y)
        self.regime = self.regime.turned(flow.look(self.t, y).rates)
        self.x = y
        self.slow = self.slow + 1 if self._watches() and _is_at_limit(solver) else 0
        if self.slow >= STIFF_STEPS and solver.status == "running":
            self.stiff = True
            self.solver = self._solver(self.t, y, self.end)
        elif self.regime.rows.size:
            solver.y = y
            solver.f = solver.fun(solver.t, y)

    def _watches(self) -> bool:
        return not self.stiff and self.flow.options.integrator == "auto"

    def _solver(self, t: float, x: np.ndarray, end: float, first_step: float | None = None) -> Any:
        from scipy.integrate import DOP853, Radau  # not paid for by an import of the library

        options = self.flow.options
        limit = np.inf if options.max_step is None else options.max_step
        kind = Radau if self.stiff or options.integrator == "Radau" else DOP853
        return kind(
            lambda s, y: self.flow.rhs(self.regime, s, y),
            t,
            x,
            end,
            rtol=options.rtol,
            atol=options.atol,
            max_step=limit,
            first_step=first_step,
        )

    def _read(self, low: float, high: float, dense: Any) -> tuple[Step, np.ndarray]:
        """Samples of one step, and their guards (8, 5 n_c)."""
        t = low + (high - low) * NODES
        x = dense(t).T
        samples = [self.flow.sample(self.regime, *pair) for pair in zip(t, x, strict=True)]
        forces, rates, guards = (
            np.array([getattr(s, name) for s in samples]) for name in ("forces", "rates", "guards")
        )
        return Step(t=t, x=x, forces=forces, rates=rates), guards

    def _land(self, crossing: Crossing, dense: Any) -> tuple[float, np.ndarray, list[Step]]:
        """Time and state at a crossing, by steps of the integrator that end there, not by its dense output."""
        from scipy.optimize import brentq  # not paid for by an import of the library

        def guard(s: float, look: Any = dense) -> float:
            return float(self.flow.sample(self.regime, s, look(s)).guards[crossing.guard])

        time = crossing.high
        if not crossing.touches and guard(crossing.low) > 0.0 > guard(crossing.high):
            time = float(brentq(guard, crossing.low, crossing.high, xtol=1e-300, rtol=4 * np.finfo(float).eps))
        for _ in range(CORRECTIONS):
            x, pieces = self._steps_to(time)
            if crossing.touches or not pieces:
                break
            back = 1e-4 * (time - self.t)
            slope = (guard(time) - guard(time - back)) / back if back > 0 else 0.0
            value = float(self.flow.sample(self.regime, time, x).guards[crossing.guard])
            correction = -value / slope if slope < 0.0 else 0.0
            if abs(correction) <= 2e-16 * max(1.0, abs(time)) or not self.t < time + correction <= self.end:
                break
            time += correction
        return time, x, pieces

    def _steps_to(self, time: float) -> tuple[np.ndarray, list[Step]]:
        """Integrate from the beginning of the last step to a time inside it."""
        if not time > self.t:
            return self.x, []
        solver, pieces, low = self._solver(self.t, self.x, time, first_step=time - self.t), [], self.t
        while solver.status == "running":
            solver.step()
            if solver.status == "failed":
                break
            pieces.append(self._read(low, solver.t, solver.dense_output())[0])
            low = float(solver.t)
        return np.array(solver.y), pieces


def _is_at_limit(solver: Any) -> bool:
    """Hairer's test for stiffness, from the two stages of a step of DOP853 that lie at its end."""
    K = solver.K
    apart = solver.h_previous * (solver.B - solver.A[-1]) @ K[:-1]
    size = float(np.linalg.norm(apart))
    return size > 0.0 and solver.h_previous * float(np.linalg.norm(K[-1] - K[-2])) > STABILITY_LIMIT * size
