"""Common interface of iterations over motions: init, step, terminate, and the loop `run`.

All data that a step changes are in the frozen state that it returns, so that users can drive the iteration themselves,
keep earlier states and continue from any of them.
"""

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
    """State of an iteration over motions.

    Attributes
    ----------
    problem : HybridProblem
    iterations : int
        Number of iterations so far.
    records : tuple of StepRecord
        One record per step: objective, slope, collisions.
    status : Status, optional
        None while the iteration continues.
    message : str
    measure : str
        Name of the quantity whose norm is the slope.
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
        summary = f"objective {last.objective:.8g}{slope}, collisions at {times or 'no time'}"
        return f"{type(self).__name__}: {self.iterations} iterations, {summary}"


class Iteration(CompleteMethod):
    """Base of methods that improve a motion step by step."""

    @abstractmethod
    def init(self, ocp: Any, guess: Any = None) -> Any:
        """Return the state before the first step; `guess` as in `nosnoc_py.solve`, zero by default.

        Raises
        ------
        OptionError, ModelError, TranscriptionError
            For a problem or a guess outside of the scope of the method; the message names one that fits.
        """

    @abstractmethod
    def step(self, state: Any, deadline: float = np.inf) -> Any:
        """Take one step; failures become a status of the new state. `deadline` is a time.monotonic() value."""

    @abstractmethod
    def outcome(self, state: Any) -> tuple[Status | None, str]:
        """Return (status, message) of a final state; the status is None while the iteration continues."""

    @abstractmethod
    def result_of(self, state: Any) -> tuple[HybridMotion, int, float]:
        """Return the motion of a state, the iterations so far, and the largest residual of the method's equations."""

    def solution(self, state: Any, *, wall_seconds: float | None = None) -> Solution:
        """Return the solution of a state, whatever its status; costates are series."""
        (status, message), (motion, iterations, residual) = self.outcome(state), self.result_of(state)
        # A user's own loop has no start time: its time is that of the steps.
        seconds = sum(record.wall_seconds for record in state.records) if wall_seconds is None else wall_seconds
        return solution_of(
            state.problem,
            motion,
            # A state without a status is one at which the user has stopped.
            status=status or Status.STOPPED,
            message=message,
            log=state.records,
            iterations=iterations,
            wall_seconds=seconds,
            infeasibility=residual,
            method=repr(self),
        )

    def terminate(self, state: Any) -> Status | None:
        """Return None while the iteration continues, else the final status."""
        return self.outcome(state)[0]

    def run(self, ocp: Any, guess: Any = None, *, callback: Any = None, time_limit: float | None = None) -> Any:
        """Call `init`, then `step` until `terminate` returns a status; return the last state.

        The first step is always taken, whatever the time limit, so that the state has a motion.
        """
        check_run(callback, time_limit)
        deadline = time.monotonic() + strictest(time_limit, self.time_limit)

        def final_fields(state: Any) -> dict[str, Any] | None:
            status, message = self.outcome(state)
            return None if status is None else {"status": status, "message": message}

        return iterated(self.init(ocp, guess), self.step, final_fields, callback, deadline, least=1)

    def solved(self, ocp: OCP, guess: Any, callback: Any, started: float, deadline: float) -> Solution:
        """Run the iteration and return the solution of the last state."""
        state = self.run(ocp, guess, callback=callback, time_limit=deadline - started)
        return self.solution(state, wall_seconds=time.monotonic() - started)


def with_record(
    state: Any, started: float, label: str, objective: float, jumps: Iterable[int], times: Iterable[float], **more: Any
) -> Any:
    """Return the state with one more record; `started` is the time.monotonic() value before the step."""
    record = StepRecord(
        step=len(state.records),
        label=label,
        objective=objective,
        wall_seconds=time.monotonic() - started,
        # Names, because indices mean nothing to a reader without the problem.
        collisions=tuple((state.problem.names[jump], float(t)) for jump, t in zip(jumps, times, strict=True)),
        **more,
    )
    return replace(state, records=(*state.records, record))


def initial_state_only(problem: HybridProblem) -> HybridMotion:
    """Return a motion that holds only x0, for a method without a completed pass."""
    # One node and no interval: plots and audits take it like any other motion.
    start = MotionPhase(t=np.zeros(1), x=problem.x0[None], u=np.empty((0, problem.n_u)))
    return HybridMotion(phases=(start,), jumps=(), objective=np.nan)
