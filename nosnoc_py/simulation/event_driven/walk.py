"""Variations of a motion carried from node to node, whatever the system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from nosnoc_py.simulation.event_driven.history import History
from nosnoc_py.simulation.event_driven.phase import Phase, Step
from nosnoc_py.simulation.event_driven.propagation import FIXED, imminent, transition
from nosnoc_py.simulation.event_driven.records import Node
from nosnoc_py.solution.sensitivity import Sensitivity
from nosnoc_py.status import Status
from nosnoc_py.systems.controls import Control

Array = np.ndarray


class Walk(ABC):
    """Carries dw / d(x0, p) of w = (x, p) from node to node; NaN from the first one on that is not smooth."""

    def __init__(self, n_x: int, n_w: int, history: History, control: Control) -> None:
        self.n_x, self.n_w, self.history, self.control = n_x, n_w, history, control
        self.flags: list[str] = []

    def run(self) -> Sensitivity:
        """Phase by phase."""
        n_x, n_w = self.n_x, self.n_w
        W, delays = np.eye(n_w), [np.zeros((0, n_w))]
        for k, node in enumerate(self.history.nodes):
            W, delay = self._cross(k, node, W)
            delays += [delay[None, :]] * len(node.events)
            if k < len(self.history.phases):
                W = self._along(self.history.phases[k], self.history.flows[k], W)
        self._end()
        if not self.flags and not np.isfinite(W).all():
            self._flag(self.history.t, "the variations are not finite")
        made, times = (np.full_like(W, np.nan) if self.flags else W), np.concatenate(delays)
        return Sensitivity(
            x0=made[:n_x, :n_x],
            p=made[:n_x, n_x:],
            event_times_x0=times[:, :n_x],
            event_times_p=times[:, n_x:],
            flags=tuple(self.flags),
        )

    @abstractmethod
    def _cross(self, k: int, node: Node, W: Array) -> tuple[Array, Array]:
        """Variations after the node with the number k, and of its time."""

    @abstractmethod
    def _slope(self, phase: Phase, flow: Any, step: Step) -> Callable[[float], Array]:
        """d(dw/dt) / dw (n_w, n_w) as a function of time in a step."""

    def _until(self, phase: Phase) -> float:
        """The time up to which the slope of a phase is smooth."""
        return phase.t

    def _along(self, phase: Phase, flow: Any, W: Array) -> Array:
        """Variations at the end of a phase."""
        if not np.isfinite(W).all():
            return W
        end = self._until(phase)
        for step in phase.steps:
            low, high = float(step.t[0]), min(float(step.t[-1]), end)
            if high > low:
                W = transition(self._slope(phase, flow, step), low, high) @ W
        return W

    def _end(self) -> None:
        """The end is a fixed time like a break of the control."""
        history = self.history
        if history.status is not Status.SOLVED:
            self._flag(history.t, f"the simulation stopped: {history.status.value}")
        elif history.phases:
            phase, flow = history.phases[-1], history.flows[-1]
            if phase.crossing is not None or imminent(phase, flow, FIXED):
                self._flag(history.t, "an event at the end")

    def _w(self, x: Array) -> Array:
        return np.concatenate([x, self.history.p])

    def _flag(self, t: float, *reasons: str) -> None:
        self.flags += [f"t = {t:.9g}: {reason}" for reason in reasons]
