"""The loop over phases and nodes, and what it leaves behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.motion.loop import driven
from nosnoc_py.simulation.common import StepState
from nosnoc_py.simulation.event_driven.contacts import ContactModel
from nosnoc_py.simulation.event_driven.filippov.model import Filippov
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.event_driven.phase import IntegratorStep, Phase, PhaseRun
from nosnoc_py.simulation.event_driven.records import Held, Node
from nosnoc_py.status import Status, asked_to_stop
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import Control
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.kinematics import ContactMechanics
from nosnoc_py.systems.pss import PDS, PSS, Heaviside
from nosnoc_py.systems.scales import UNIT, ProblemScales
from nosnoc_py.tolerances import RESTING

# So many impacts within so many seconds, the last one a bounce slower than this share of the speed at work, are the end
# of an infinite sequence: lower bounces are lost in the rounding of the gap.
ACCUMULATED, ACCUMULATION, SLOW = 3, 1e-4, 1e-5
# Events one after the other at one instant.
MOST_AT_ONCE = 50
# So many of so many phases that end at once: rounding decides what happens.
MOST_RETRIES = 10


@dataclass(frozen=True, eq=False, kw_only=True)
class EventDrivenState(StepState):
    """Where an event-driven simulation stands: what a callback sees after every step of the integrator."""

    message: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class History:
    """A simulation: nodes and the phases that follow them.

    Attributes
    ----------
    nodes : tuple of Node
        One before every phase; one more where the motion ends at a node.
    phases : tuple of Phase
    flows : tuple of Flow
        The motion under the control law of every phase.
    t, x
        The end.
    status, message
    p : (n_p,)
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
        """Steps of the integrator in the order of time."""
        return [step for phase in self.phases for step in phase.steps]

    @property
    def hits(self) -> bool:
        """Whether the motion ends with an impact."""
        return len(self.nodes) > len(self.phases) and self.nodes[-1].impact is not None

    def with_nodes(self, times: np.ndarray) -> History:
        """The same history with steps that end at given times (n,), too."""
        cut = [tuple(part for step in phase.steps for part in step.cut(times)) for phase in self.phases]
        phases = (replace(phase, steps=steps) for phase, steps in zip(self.phases, cut, strict=True))
        return replace(self, phases=tuple(phases))

    @property
    def events(self) -> tuple[Any, ...]:
        """Events in the order of time."""
        return tuple(event for node in self.nodes for event in node.events)


class Referee:
    """Simulates one system; built once."""

    def __init__(self, system: Described, options: EventDriven, scales: ProblemScales = UNIT) -> None:
        self.system, self.options, self.scales = system, options, scales
        self.model = _model_of(system, scales)

    @property
    def mechanics(self) -> ContactMechanics:
        """Numbers of a contact system."""
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
    ) -> History:
        """Simulate from `start` to `end` (default: of the control).

        Parameters
        ----------
        modes : tuple of int, optional
            Modes before the start. Of contacts: closed ones with gap rates up to `drift`, a share of the speed at work,
            stay closed. Of Filippov systems those of `filippov.laws`.
        regime : Regime, optional
            Instead of modes: that of the last phase of a motion which goes on.
        deadline : float
            On the clock of `time.monotonic`.
        interruptible : bool
            Whether Ctrl-C is a status of the history; otherwise it ends the work of whoever asked, a certificate, say.
        """
        loop = _EventLoop(self, control, p, deadline, callback)
        regime = regime if modes is None else self.model.regime(modes, p)
        history = loop.run(x, start, float(control.breaks[-1]) if end is None else end, regime, drift)
        if history.status is Status.INTERRUPTED and not interruptible:
            raise KeyboardInterrupt
        return history


def _model_of(system: Described, scales: ProblemScales) -> ContactModel | Filippov:
    if isinstance(system, CLS):
        return ContactModel(system, scales)
    if isinstance(system, PSS | Heaviside | PDS):
        return Filippov(system)
    raise OptionError(f"EventDriven: expected a CLS, PSS, Heaviside or PDS, given a {type(system).__name__}.")


@dataclass(eq=False)
class _EventLoop:
    """One run of the referee."""

    referee: Referee
    control: Control
    p: np.ndarray
    deadline: float
    callback: Callable[[Any], Any] | None
    nodes: list[Node] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    flows: list[Any] = field(default_factory=list)
    counted: list[float] = field(default_factory=list)
    at_once: list[int] = field(default_factory=list)
    stiff: bool = False
    ended: Phase | None = None
    stopped: Status | None = None

    def run(self, x: np.ndarray, start: float, end: float, regime: Any, drift: float) -> History:
        """Piece by piece of the control, from event to event."""
        self.regime, self.drift = regime, drift
        breaks = self.control.breaks
        self.pieces = list(pairwise([start, *breaks[(breaks > start) & (breaks < end)].tolist(), end]))[::-1]
        first = EventDrivenState(t=start, x=x, p=self.p)
        last = driven(first, self._step, lambda state: not (self.ended or self.pieces), self.callback, self.deadline)
        return History(
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
        """What happens at events under the control of an interval that begins at x."""
        law: Callable[[float, np.ndarray], np.ndarray] = self.control
        if self.control.constant:
            law = Held(self.control(0.5 * (low + high), np.zeros(0)))
        elif self.control.held is not None:
            law = Held(self.control.reached(low, x))
        return self.referee.model.nodes(self.referee.options, law, self.p)

    def _step(self, state: EventDrivenState) -> EventDrivenState:
        """A node, and the phase that follows it."""
        if self.ended is None:
            low, self.end = self.pieces.pop()
            self.crossing, self.begun = self._nodes(low, self.end, state.x), len(self.nodes)
        node = self.crossing.cross(state.t, state.x, self.regime, self.ended, self.drift, self._past())
        self.nodes.append(node)
        self.drift = RESTING
        status, message = self._verdict(node)
        if status is not Status.SOLVED:
            return replace(state, status=status, message=message)
        flow, regime = self.crossing.flow, node.regime
        armed = flow.armed(regime, node.t, node.after)
        run = PhaseRun(flow, regime, node.t, node.after, self.end, armed, stiff=self.stiff)
        phase = run.run(self._is_over)
        self.phases.append(phase)
        self.flows.append(flow)
        self.regime, self.stiff = phase.regime, self.stiff or phase.stiff
        self.at_once += [len(self.nodes)] if phase.crossing is not None and phase.crossing.at_once else []
        if phase.failure:
            status, message = Status.STEP_FAILED if phase.finite else Status.NUMERICAL_ERROR, phase.failure
        elif phase.crossing is None and phase.t < self.end:
            status = self.stopped or Status.TIME_LIMIT
        self.ended = phase if phase.crossing is not None and phase.t < self.end else None
        return replace(state, t=phase.t, x=phase.x, status=status, message=message)

    def _past(self) -> list[Node]:
        """The nodes since the control has been what it is: how a contact was left then tells how it is left now."""
        return self.nodes[self.begun :] if self.control.constant else []

    def _is_over(self, t: float, x: np.ndarray) -> bool:
        """Whether the work ends after a step of the integrator, which a callback sees like the end of a phase."""
        if self.callback is not None and t > self.nodes[-1].t:
            self.stopped = asked_to_stop(self.callback, EventDrivenState(t=t, x=x.copy(), p=self.p))
        return self.stopped is not None or time.monotonic() > self.deadline

    def _verdict(self, node: Node) -> tuple[Status, str]:
        """Whether the motion goes on after a node."""
        options = self.referee.options
        if node.status is not Status.SOLVED:
            return node.status, node.message
        if node.grazing and options.grazing == "stop":
            return Status.GRAZING, node.message or f"at {node.grazing}"
        if len(self.nodes) > MOST_AT_ONCE and self.nodes[-MOST_AT_ONCE].t >= node.t:
            return Status.STEP_FAILED, f"{MOST_AT_ONCE} changes of modes at one instant"
        if len(self.at_once) > MOST_RETRIES and self.at_once[-1] - self.at_once[-1 - MOST_RETRIES] < MOST_AT_ONCE:
            return Status.ZENO, "the modes change again and again at once: there seem to be infinitely many switches"
        if not node.counted:
            return Status.SOLVED, ""
        self.counted.append(node.t)
        limits = [(options.max_impacts, options.impact_window)]
        limits += [(ACCUMULATED, ACCUMULATION)] if node.impact is not None and node.impact.bounce < SLOW else []
        for count, window in limits:
            if len(self.counted) > count and self.counted[-1] - self.counted[-1 - count] < window:
                return Status.ZENO, f"{count} {'switches' if node.impact is None else 'impacts'} within {window:g} s"
        return Status.SOLVED, ""
