"""Loop over phases and nodes of an event-driven simulation, and its result.

A motion is a sequence node, phase, node, phase, ... At a node (start, event, or break of the control) impacts and the
modes of the following motion are determined; a phase integrates the smooth motion in these modes up to the next event.
The loop ends at the final time, at a failure, or when events accumulate (Zeno behaviour).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, zip_longest
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.attempts import work
from nosnoc_py.errors import OptionError
from nosnoc_py.motion.loop import driven
from nosnoc_py.simulation.common import StepState
from nosnoc_py.simulation.event_driven.accumulation import step_of_rattle
from nosnoc_py.simulation.event_driven.contacts import ContactModel
from nosnoc_py.simulation.event_driven.filippov.model import Filippov
from nosnoc_py.simulation.event_driven.hybrid import HybridModel
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.event_driven.phase import PhaseRun
from nosnoc_py.simulation.event_driven.records import STIFF_STEPS, Held, IntegratorStep, Node, Phase
from nosnoc_py.status import Status, asked_to_stop
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import Control
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.kinematics import ContactMechanics
from nosnoc_py.systems.pace import Pace, course_of, pace_of
from nosnoc_py.systems.pss import PDS, PSS, Heaviside
from nosnoc_py.systems.scales import UNIT, ProblemScales
from nosnoc_py.tolerances import IMPACT, RESTING

# An infinite sequence of impacts (Zeno) ends where so many impacts follow within so many seconds and the last one is
# slower than this fraction of the typical speed: lower bounces are smaller than the rounding of the gap.
ACCUMULATED_IMPACTS, ACCUMULATION_TIME, SLOW_IMPACT = 3, 1e-4, 1e-5
# Most steps between two looks at a limit of the work.
FEW_STEPS = 4
# Largest number of events at one instant before the simulation fails.
MOST_AT_ONCE = 50
# Phases that end at once, among the last MOST_AT_ONCE: more means that rounding decides the modes.
MOST_RETRIES = 10
# What a contact problem is called that has no solution, or whose solver finds none.
UNSOLVED_CONTACTS = (Status.NO_ADMISSIBLE_IMPACT, Status.PAINLEVE)
TOO_FAST = (
    "something varies with time faster than a thousandth of the run: what lies between two samples is not seen; give "
    "EventDriven(max_step=) if there are shorter pulses"
)


@dataclass(frozen=True, eq=False, kw_only=True)
class EventDrivenState(StepState):
    """State of an event-driven simulation, passed to a callback after every step of the integrator."""

    message: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulationResult:
    """Result of a simulation: nodes and the phases that follow them.

    Attributes
    ----------
    nodes : tuple of Node
        One before every phase; one more where the motion ends at a node.
    phases : tuple of Phase
    flows : tuple of Flow
        Motion under the control law of each phase.
    t : float
        Final time [s].
    x : (n_x,)
        Final state.
    p : (n_p,)
    status, message
    """

    nodes: tuple[Node, ...]
    phases: tuple[Phase, ...]
    flows: tuple[Any, ...]
    t: float
    x: np.ndarray
    p: np.ndarray
    status: Status
    message: str = ""

    @property
    def steps(self) -> list[IntegratorStep]:
        """All steps of the integrator, in the order of time."""
        return [step for phase in self.phases for step in phase.steps]

    @property
    def hits(self) -> bool:
        """True if the motion ends with an impact."""
        return len(self.nodes) > len(self.phases) and self.nodes[-1].impact is not None

    def with_nodes(self, times: np.ndarray) -> SimulationResult:
        """Return the same result with steps split at the times (n,)."""
        cut = [tuple(part for step in phase.steps for part in step.cut(times)) for phase in self.phases]
        phases = (replace(phase, steps=steps) for phase, steps in zip(self.phases, cut, strict=True))
        return replace(self, phases=tuple(phases))

    @property
    def events(self) -> tuple[Any, ...]:
        """All events, in the order of time."""
        parts = zip_longest(self.nodes, self.phases)
        return tuple(event for pair in parts for part in pair if part is not None for event in part.events)


class EventDrivenSimulator:
    """Event-driven simulator of one system.

    Parameters
    ----------
    system : CLS, PSS, Heaviside, PDS or HybridSystem
    options : EventDriven
    scales : ProblemScales
        Length and speed that the tolerances of contacts are relative to.
    """

    def __init__(self, system: Described, options: EventDriven, scales: ProblemScales = UNIT) -> None:
        self.system, self.options, self.scales = system, options, scales
        self.model = _model_of(system, scales)

    @cached_property
    def step_work(self) -> float:
        """Work of a step of the integrator besides its overhead: the evaluations of the model."""
        if isinstance(self.model, ContactModel):
            return work.of_step(self.model.mechanics.sparse.n_instructions())
        s: Any = self.system
        return work.of_step(ca.Function("flow", [s.x, s.u, s.p], [s.flow], {"allow_free": True}).n_instructions())

    @property
    def mechanics(self) -> ContactMechanics:
        """Kinematics of a contact system."""
        if not isinstance(self.model, ContactModel):
            raise OptionError(f"mechanics of contacts: expected a CLS, given a {type(self.system).__name__}.")
        return self.model.mechanics

    def run(
        self,
        x: np.ndarray,
        control: Control,
        p: np.ndarray,
        *,
        start: float = 0.0,
        end: float | None = None,
        modes: tuple[int, ...] | None = None,
        regime: Any = None,
        drift: float = RESTING,
        deadline: float = np.inf,
        callback: Callable[[Any], Any] | None = None,
        interruptible: bool = False,
    ) -> SimulationResult:
        """Simulate from `start` to `end` (default: of the control).

        Parameters
        ----------
        modes : tuple of int, optional
            Modes before the start. Of contacts: closed ones with gap rates up to `drift`, a fraction of the typical
            speed, stay closed. Of Filippov systems those of `filippov.laws`.
        regime : Regime, optional
            Instead of modes: regime of the last phase of a motion that is continued.
        deadline : float
            On the clock of `time.monotonic`.
        interruptible : bool
            Turn Ctrl-C into a status of the result; otherwise KeyboardInterrupt is raised (within a certificate, for
            example).
        """
        end = float(control.breaks[-1]) if end is None else end
        pace = self._pace(x, control, p, start, end)
        steps = None if pace is None else pace.later(start)
        loop = _EventLoop(self, control, p, deadline, callback, steps)
        regime = regime if modes is None else self.model.regime(modes, p)
        history = loop.run(x, start, end, regime, drift)
        if pace is not None and pace.fine:
            history = replace(history, message="; ".join(note for note in (history.message, TOO_FAST) if note))
        if history.status is Status.INTERRUPTED and not interruptible:
            raise KeyboardInterrupt
        return history

    def _pace(self, x: np.ndarray, control: Control, p: np.ndarray, start: float, end: float) -> Pace | None:
        """Return the longest steps of a run; None if nothing depends on time, or the user limits the steps."""
        if self.options.max_step is not None:
            return None
        return pace_of(course_of(self.system, x, lambda t, at: control(start + t, at), p, end - start))


def _model_of(system: Described, scales: ProblemScales) -> ContactModel | Filippov | HybridModel:
    """Return the model of nodes and phases for a type of system."""
    if isinstance(system, HybridSystem):
        return HybridModel(system)
    if isinstance(system, CLS):
        return ContactModel(system, scales)
    if isinstance(system, PSS | Heaviside | PDS):
        return Filippov(system)
    raise OptionError(
        f"EventDriven: expected a CLS, PSS, Heaviside, PDS or HybridSystem, given a {type(system).__name__}."
    )


@dataclass(eq=False)
class _EventLoop:
    """State of one run of the simulator."""

    simulator: EventDrivenSimulator
    control: Control
    p: np.ndarray
    deadline: float
    callback: Callable[[Any], Any] | None
    pace: Callable[[float], tuple[float, float]] | None = None
    nodes: list[Node] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    flows: list[Any] = field(default_factory=list)
    counted: list[float] = field(default_factory=list)
    at_once: list[int] = field(default_factory=list)
    stiff: bool = False
    patient: int = STIFF_STEPS
    ended: Phase | None = None
    stopped: Status | None = None

    def run(self, x: np.ndarray, start: float, end: float, regime: Any, drift: float) -> SimulationResult:
        """Simulate each interval of the control, from event to event."""
        self.regime, self.drift = regime, drift
        breaks = self.control.breaks
        # In reverse, as the loop takes intervals from the end of the list.
        self.pieces = list(pairwise([start, *breaks[(breaks > start) & (breaks < end)].tolist(), end]))[::-1]
        first = EventDrivenState(t=start, x=x, p=self.p)
        last = driven(first, self._step, lambda state: not (self.ended or self.pieces), self.callback, self.deadline)
        return SimulationResult(
            nodes=tuple(self.nodes),
            phases=tuple(self.phases),
            flows=tuple(self.flows),
            t=self.nodes[-1].t if len(self.nodes) > len(self.phases) else last.t,
            x=self.nodes[-1].after if len(self.nodes) > len(self.phases) else last.x,
            p=self.p,
            status=last.status,
            message=last.message,
        )

    def _nodes(self, low: float, high: float, x: np.ndarray) -> Any:
        """Return the model of nodes under the control of an interval that begins at x."""
        law: Callable[[float, np.ndarray], np.ndarray] = self.control
        if self.control.constant:
            # In the middle of the interval: at a break the value of the control is that of either side.
            law = Held(self.control(0.5 * (low + high), np.zeros(0)))
        elif self.control.held is not None:
            law = Held(self.control.reached(low, x))
        return self.simulator.model.nodes(self.simulator.options, law, self.p)

    def _step(self, state: EventDrivenState) -> EventDrivenState:
        """Compute one node and the phase that follows it."""
        if self.ended is None:
            low, self.end = self.pieces.pop()
            self.crossing, self.begun = self._nodes(low, self.end, state.x), len(self.nodes)
        node = self.crossing.cross(state.t, state.x, self.regime, self.ended, self.drift, self._past())
        rattled = self._through_rattle(node)
        if rattled is not None:
            node = replace(node, regime=rattled.start, status=Status.SOLVED, message="")
            self.regime, self.drift, self.ended = rattled.regime, IMPACT, None
            self.nodes.append(node)
            self.phases.append(rattled)
            self.flows.append(self.crossing.flow)
            self.pieces += [(rattled.t, self.end)] * (rattled.t < self.end)
            return replace(state, t=rattled.t, x=rattled.x)
        self.nodes.append(node)
        # Only a given start may drift; the end of a phase is on its constraints.
        self.drift = RESTING
        status, message = self._verdict(node)
        if status is not Status.SOLVED:
            return replace(state, status=status, message=message)
        flow, regime = self.crossing.flow, node.regime
        enabled = flow.enabled(regime, node.t, node.after)
        more: dict[str, Any] = {"stiff": self.stiff, "patient": self.patient, "pace": self.pace}
        run = PhaseRun(flow, regime, node.t, node.after, self.end, enabled, **more)
        work.count(work.EVENT)
        # A callback wants to see every step; a limit of the work can wait for few, one of the time for some.
        limited = {"most": FEW_STEPS} if work.left() < np.inf else {}
        most = limited if self.callback is None else {"most": 1}
        phase = run.run(lambda t, x: self._is_over(run, t, x), **most)
        self._count(run)
        self.phases.append(phase)
        self.flows.append(flow)
        # Stiffness is a property of the model: later phases begin with the implicit method and need not detect it
        # again.
        self.regime, self.stiff, self.patient = phase.regime, self.stiff or phase.stiff, phase.patient
        self.at_once += [len(self.nodes)] if phase.crossing is not None and phase.crossing.at_once else []
        if phase.failure:
            status, message = Status.STEP_FAILED if phase.finite else Status.NUMERICAL_ERROR, phase.failure
        elif phase.crossing is None and phase.t < self.end:
            status = self.stopped or (Status.WORK_LIMIT if work.exhausted() else Status.TIME_LIMIT)
        # An event at the very end of an interval is handled by the node of the next one, under its control.
        self.ended = phase if phase.crossing is not None and phase.t < self.end else None
        return replace(state, t=phase.t, x=phase.x, status=status, message=message)

    def _through_rattle(self, node: Node) -> Phase | None:
        """Return the motion of a pile that rattles from a node on; None where nothing rattles."""
        options, model = self.simulator.options, self.simulator.model
        if options.rattling == "events" or not isinstance(model, ContactModel):
            return None
        if node.status is Status.SOLVED:
            step = step_of_rattle([*self.nodes[self.begun :], node], self.crossing.flow)
        else:
            # What is left of a rattle may be more than the solver of contact problems can tell.
            last = next((phase for phase in reversed(self.phases) if phase.note), None)
            lately = last is not None and node.t - last.t <= last.t - last.steps[0].t[0]
            step = last.length if last is not None and lately and node.status in UNSOLVED_CONTACTS else 0.0
        if not step or node.t + step >= self.end:
            return None
        start = node if node.regime is not None else replace(node, regime=self.regime)
        phase: Phase | None = options.through_rattle(self.crossing.flow, start, step, self.end, self.deadline)
        if phase is not None:
            work.count(len(phase.steps) * self.simulator.step_work)
        return phase

    def _past(self) -> list[Node]:
        """Return the nodes since the last break of the control; empty for a control that varies in time."""
        return self.nodes[self.begun :] if self.control.constant else []

    def _is_over(self, run: PhaseRun, t: float, x: np.ndarray) -> bool:
        """Return True if the simulation is to end before the next step of the integrator (callback or limit)."""
        self._count(run)
        if self.callback is not None and t > self.nodes[-1].t:
            self.stopped = asked_to_stop(self.callback, EventDrivenState(t=t, x=x.copy(), p=self.p))
        return self.stopped is not None or work.exhausted() or time.monotonic() > self.deadline

    def _count(self, run: PhaseRun) -> None:
        """Count the work of steps since the last count."""
        work.count((run.attempted - run.counted) * (work.SMALL if run.is_small else self.simulator.step_work))
        run.counted = run.attempted

    def _verdict(self, node: Node) -> tuple[Status, str]:
        """Return status and message of the motion after a node."""
        options = self.simulator.options
        if node.status is not Status.SOLVED:
            return node.status, node.message
        if node.grazing and not node.agrees and options.grazing == "stop":
            return Status.GRAZING, node.message or f"at {node.grazing}"
        # Events that follow each other within rounding do not get on either: one unit in the last place each.
        instant = MOST_AT_ONCE * np.spacing(abs(node.t))
        if len(self.nodes) > MOST_AT_ONCE and node.t - self.nodes[-MOST_AT_ONCE].t <= instant:
            return Status.STEP_FAILED, f"{MOST_AT_ONCE} changes of modes at one instant"
        if len(self.at_once) > MOST_RETRIES and self.at_once[-1] - self.at_once[-1 - MOST_RETRIES] < MOST_AT_ONCE:
            return Status.ZENO, "the modes change at once again and again: there seem to be infinitely many switches"
        if not node.counted:
            return Status.SOLVED, ""
        self.counted.append(node.t)
        limits = [(options.max_impacts, options.impact_window)]
        # Impacts this slow are tested with a narrower window than those of the user, who may allow fast sequences.
        limits += (
            [(ACCUMULATED_IMPACTS, ACCUMULATION_TIME)]
            if node.impact is not None and node.impact.bounce < SLOW_IMPACT
            else []
        )
        for count, window in limits:
            if len(self.counted) > count and self.counted[-1] - self.counted[-1 - count] < window:
                return Status.ZENO, f"{count} {'switches' if node.impact is None else 'impacts'} within {window:g} s"
        return Status.SOLVED, ""
