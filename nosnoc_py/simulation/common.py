"""Checks, messages and types that all simulation methods share."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.errors import OptionError, check_whole
from nosnoc_py.options import Method, Options
from nosnoc_py.solution import Trajectory
from nosnoc_py.status import Status, seconds_to
from nosnoc_py.systems.controls import Control, control_of
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.symbols import scalar

# A duration longer than a whole number of steps by less than this part of a step has no additional step.
SLACK = 1e-6
# A time within this part of a step from the grid is on the grid.
ON_GRID = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class StepState:
    """State of a simulation, passed to a callback after every step.

    Attributes
    ----------
    t : float
    x : (n_x,)
    p : (n_p,)
    status : Status
    iterations, attempts : int
        Iterations and attempts of the last step, zero for methods that do not iterate.
    complementarity, infeasibility : float
        Residuals of the last step, zero where there are none.
    """

    t: float
    x: np.ndarray
    p: np.ndarray
    status: Status = Status.SOLVED
    iterations: int = 0
    attempts: int = 0
    complementarity: float = 0.0
    infeasibility: float = 0.0


@dataclass(frozen=True, eq=False, kw_only=True)
class StepDerivative:
    """Derivatives of the state at the end of one step.

    With closed contacts at the start, or a start on a surface, x0 has to stay there: `x @ d` is the derivative in
    directions d with keeps @ d = 0; other directions are projected first.

    Attributes
    ----------
    x, u, p : (n_x, n_x), (n_x, n_u), (n_x, n_p)
        By the state at the start, the control and the parameters.
    keeps : (n_kept, n_x)
        Directions that x0 has to keep, for finite elements; none for `EventDriven`, whose x contains the projection.
    flags : tuple of str
        Reasons why the step is not differentiable in its data.
    """

    x: np.ndarray
    u: np.ndarray
    p: np.ndarray
    keeps: np.ndarray
    flags: tuple[str, ...] = ()

    @property
    def smooth(self) -> bool:
        """True if the derivatives exist."""
        return not self.flags


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulationTask:
    """Arguments of `nosnoc_py.simulate`, by their names."""

    x0: Any
    duration: Any
    steps: Any = None
    u: Any = None
    p: Any = None
    solver: Any = None
    callback: Callable[[Any], Any] | None = None
    time_limit: float | None = None
    sensitivities: bool | str = False
    times: Any = None

    @property
    def seconds(self) -> float:
        """Duration [s]; raises `OptionError` unless it is positive and finite."""
        seconds = scalar(self.duration, "duration")
        if not 0 < seconds < np.inf:
            raise OptionError(f"duration: expected a positive finite number of seconds, given {self.duration!r}.")
        return seconds

    def output_times(self) -> np.ndarray:
        """Return the times of nodes of the trajectory (n,); raise `OptionError` unless they lie within the duration."""
        if self.times is None:
            return np.zeros(0)
        try:
            times = np.atleast_1d(np.asarray(self.times, dtype=float))
        except (TypeError, ValueError, OverflowError):
            raise OptionError(f"times: expected times [s], given {self.times!r}.") from None
        if times.ndim != 1 or not ((times >= 0.0) & (times <= self.seconds * (1.0 + SLACK))).all():
            raise OptionError(f"times: expected times from 0 to {self.seconds:g} s, given {self.times!r}.")
        return times

    def check(self, refused: Mapping[str, str]) -> None:
        """Raise `OptionError` for arguments that a method refuses, with the reason."""
        for name, why in refused.items():
            # `False` and empty arrays are defaults that callers pass on, not choices of the user.
            if (value := getattr(self, name)) is not None and value is not False and np.size(value):
                raise OptionError(f"{name}: {why}.")

    def deadline(self) -> float:
        """Return the end of the time limit if it starts now, as a stamp of `time.monotonic`."""
        return deadline_of(self.time_limit)

    def start(self, system: Described) -> tuple[np.ndarray, np.ndarray, Control]:
        """Return the initial state, the parameters and the control of a system."""
        parameters = system.parameters(self.p)
        return system.check_state(self.x0, parameters), parameters, control_of(self.u, system.n_u, self.seconds)


@dataclass(frozen=True, eq=False, kw_only=True)
class SteppedRun:
    """Arguments of `nosnoc_py.Simulator.run`, by their names; the deadline is a stamp of `time.monotonic`."""

    steps: int
    u: Any = None
    p: Any = None
    callback: Callable[[Any], Any] | None = None
    deadline: float = math.inf
    sensitivities: bool = False

    def left(self) -> float | None:
        """Return the seconds until the deadline; None without one."""
        return seconds_to(self.deadline)


class SimulationMethod(Method):
    """Base class of methods with a simulation of their own."""

    @abstractmethod
    def simulate(self, system: Any, task: SimulationTask) -> Trajectory:
        """Return the motion up to the end of the task, or to where it fails; see `nosnoc_py.simulate`."""


def deadline_of(time_limit: float | None) -> float:
    """Return the end of a time limit [s] that starts now, as a stamp of `time.monotonic`."""
    return math.inf if time_limit is None else time.monotonic() + time_limit


def next_time(t: float, length: float) -> float:
    """Return the end of a step that starts at t. On the grid of steps, so that rounding does not accumulate."""
    last = round(t / length)
    return (last + 1) * length if abs(t - last * length) <= ON_GRID * length else t + length


def steps_given(steps: Any) -> int:
    """Return a number of steps; raise `OptionError` unless it is a positive integer."""
    check_whole(steps=steps)
    return int(steps)


def equal_steps(method: Options, option: str, steps: Any, seconds: float) -> int:
    """Return `steps` if given, else the smallest number of equal steps that are no longer than an option.

    Raises
    ------
    OptionError
        If it is no positive whole number, or both are given.
    """
    length = getattr(method, option)
    if steps is None:
        return max(1, math.ceil(seconds / length - SLACK))
    count = steps_given(steps)
    if option in method.model_fields_set:
        raise OptionError(
            f"given steps={steps} and {type(method).__name__}({option}={length:g}): both set the step; leave one out."
        )
    return count


def not_finite_control(t: float) -> str:
    """Return the message for a control law that is not finite."""
    return f"the control u is no finite number at t = {t:.6g}"


def no_time_note(status: Status, steps: int) -> list[str]:
    """Return a note if the time limit ended the simulation before its first step."""
    if status is not Status.TIME_LIMIT or steps:
        return []
    return ["the time limit came before the end of the first step, so there is no motion: give more time"]


def not_unique_note(times: Sequence[float]) -> list[str]:
    """Return a note about impacts with other admissible outcomes, by their times [s]; none if there are none."""
    if not len(times):
        return []
    others = f" (and {len(times) - 1} more)" if len(times) > 1 else ""
    return [
        f"the impact at t = {times[0]:.9g}{others} is not unique: the law of impacts admits other velocities after it"
    ]


def check_control(control: Control) -> None:
    """Raise `OptionError` for a feedback law: its derivative is not known."""
    if control.feedback:
        raise OptionError(
            "sensitivities: the control is a function of (t, x), whose derivative with respect to x is not known; "
            "give u as a function of t, as rows or as a constant, or write the law into the force of the system."
        )
