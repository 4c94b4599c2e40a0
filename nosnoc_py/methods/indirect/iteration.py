"""What all iterations over motions have in common: init, step, terminate, and `run`, which is the loop over them."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from nosnoc_py.errors import check_run
from nosnoc_py.methods.indirect.motion import HybridMotion, MotionPhase, solution_of
from nosnoc_py.methods.indirect.problem import HybridProblem
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod, strictest
from nosnoc_py.solution import Solution
from nosnoc_py.solution.records import StepRecord
from nosnoc_py.status import Status, iterated


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class IterationState:
    """Where an iteration over motions stands.

    Attributes
    ----------
    problem : HybridProblem
    iterations : int
        So far.
    records : tuple of StepRecord
        One of every step: objective, slope, collisions.
    status : Status, optional
        None while there is something left to do.
    message : str
    measure : str
        What the slope is the norm of.
    """

    problem: HybridProblem
    iterations: int = 0
    records: tuple[StepRecord, ...] = ()
    status: Status | None = None
    message: str = ""
    measure: ClassVar[str] = "|H_u|"

    def __repr__(self) -> str:
        if not self.records:
            return f"{type(self).__name__}: {self.message or 'before the first step'}"
        last = self.records[-1]
        slope = "" if last.slope is None else f", {self.measure} {last.slope:.1e}"
        times = ", ".join(f"{t:.6g}" for _, t in last.collisions)
        found = f"objective {last.objective:.8g}{slope}, collisions at {times or 'no time'}"
        return f"{type(self).__name__}: {self.iterations} iterations, {found}"


class Iteration(CompleteMethod):
    """A method that improves a motion step by step; everything a step changes is in the `IterationState` it returns."""

    @abstractmethod
    def init(self, ocp: Any, guess: Any = None) -> Any:
        """The state before the first step; `guess` as in `nosnoc_py.solve`, zero by default.

        Raises
        ------
        OptionError, ModelError, TranscriptionError
            For a problem or a guess that does not fit: the message names the method that would do.
        """

    @abstractmethod
    def step(self, state: Any, deadline: float = np.inf) -> Any:
        """Take one step; whatever fails is a status of the new state. `deadline` is a stamp of time.monotonic()."""

    @abstractmethod
    def judged(self, state: Any) -> tuple[Status | None, str]:
        """Why a state is the last one, and what to say about it; None while there is something left to do."""

    @abstractmethod
    def found(self, state: Any) -> tuple[HybridMotion, int, float]:
        """The motion that a state stands for, iterations so far, and the largest residual of the method's equations."""

    def solution(self, state: Any, *, wall_seconds: float | None = None) -> Solution:
        """The solution that a state stands for, whatever its status; costates are series."""
        (status, message), (motion, iterations, residual) = self.judged(state), self.found(state)
        seconds = sum(record.wall_seconds for record in state.records) if wall_seconds is None else wall_seconds
        return solution_of(
            state.problem,
            motion,
            status=status or Status.STOPPED,
            message=message,
            log=state.records,
            iterations=iterations,
            wall_seconds=seconds,
            infeasibility=residual,
            method=repr(self),
        )

    def terminate(self, state: Any) -> Status | None:
        """None while there is something left to do, else why it ends."""
        return self.judged(state)[0]

    def run(self, ocp: Any, guess: Any = None, *, callback: Any = None, time_limit: float | None = None) -> Any:
        """init, then step until terminate; the returned state has a status.

        The first step is made whatever the limit of time, so that there is something to look at.
        """
        check_run(callback, time_limit)
        deadline = time.monotonic() + strictest(time_limit, self.time_limit)

        def judged(state: Any) -> dict[str, Any] | None:
            status, message = self.judged(state)
            return None if status is None else {"status": status, "message": message}

        return iterated(self.init(ocp, guess), self.step, judged, callback, deadline, least=1)

    def solved(self, ocp: OCP, guess: Any, callback: Any, started: float, deadline: float) -> Solution:
        """The solution that the last state stands for."""
        state = self.run(ocp, guess, callback=callback, time_limit=deadline - started)
        return self.solution(state, wall_seconds=time.monotonic() - started)


def recorded(
    state: Any, started: float, label: str, objective: float, jumps: Iterable[int], times: Iterable[float], **more: Any
) -> Any:
    """The state with a line more in its log, with collisions; `started` is a time.monotonic() stamp."""
    line = StepRecord(
        step=len(state.records),
        label=label,
        objective=objective,
        wall_seconds=time.monotonic() - started,
        collisions=tuple((state.problem.names[jump], float(t)) for jump, t in zip(jumps, times, strict=True)),
        **more,
    )
    return replace(state, records=(*state.records, line))


def nothing_but_the_start(problem: HybridProblem) -> HybridMotion:
    """What is known where no pass was completed."""
    start = MotionPhase(t=np.zeros(1), x=problem.x0[None], u=np.empty((0, problem.n_u)))
    return HybridMotion(phases=(start,), jumps=(), objective=np.nan)
