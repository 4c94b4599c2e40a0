"""What all iterations over motions have in common: init, step, terminate, and `run`, which is the loop over them."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field

from nosnoc_py.errors import OptionError, check_run
from nosnoc_py.indirect.motion import Motion, Phase
from nosnoc_py.indirect.problem import HybridProblem
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod, strictest
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.status import Status, asked_to_stop
from nosnoc_py.systems.controls import control_guess


class Iteration(CompleteMethod):
    """A method that improves a motion step by step; everything a step changes is in the new state it returns.

    States are frozen dataclasses with at least `status` and `message`.
    """

    time_limit: float | None = Field(default=None, ge=0)

    @abstractmethod
    def init(self, ocp: OCP | HybridProblem, guess: Any = None) -> Any:
        """The state before the first step; `guess` as in `nosnoc_py.solve`, zero by default.

        Raises
        ------
        OptionError, ModelError, TranscriptionError
            For a problem or a guess that does not fit: the message names the method that would do.
        """

    @abstractmethod
    def step(self, state: Any) -> Any:
        """Take one step; whatever fails is a status of the new state."""

    @abstractmethod
    def judged(self, state: Any) -> tuple[Status | None, str]:
        """Why a state is the last one, and what to say about it; None while there is something left to do."""

    @abstractmethod
    def solution(self, state: Any, *, wall_seconds: float | None = None) -> Solution:
        """The solution that a state stands for, whatever its status."""

    def terminate(self, state: Any) -> Status | None:
        """None while there is something left to do, else why it ends."""
        return self.judged(state)[0]

    def run(
        self, ocp: OCP | HybridProblem, guess: Any = None, *, callback: Any = None, time_limit: float | None = None
    ) -> Any:
        """init, then step until terminate; the returned state has a status.

        The first step is made whatever the limit of time, so that there is something to look at.
        """
        check_run(callback, time_limit)
        started = time.monotonic()
        limit = strictest(time_limit, self.time_limit)
        state, stepped = self.init(ocp, guess), False
        while (judged := self.judged(state))[0] is None:
            if stepped and time.monotonic() - started > limit:
                return replace(state, status=Status.TIME_LIMIT)
            try:
                state, stepped = self.step(state), True
            except KeyboardInterrupt:
                return replace(state, status=Status.INTERRUPTED)
            if callback is not None and (stop := asked_to_stop(callback, state)) is not None:
                return replace(state, status=self.terminate(state) or stop)
        return replace(state, status=judged[0], message=judged[1])

    def solve(self, ocp: OCP, *, guess: Any = None, callback: Any = None, time_limit: float | None = None) -> Solution:
        """Solve; see `nosnoc_py.solve`."""
        started = time.monotonic()
        state = self.run(ocp, guess, callback=callback, time_limit=time_limit)
        return self.solution(state, wall_seconds=time.monotonic() - started)


def nothing_but_the_start(problem: HybridProblem) -> Motion:
    """What is known where no pass was completed."""
    start = Phase(t=np.zeros(1), x=problem.x0[None], u=np.empty((0, problem.n_u)))
    return Motion(phases=(start,), jumps=(), objective=np.nan)


def control_of_guess(problem: HybridProblem, guess: Any) -> Any:
    """A guess in any form as a function of time; zero by default.

    Raises
    ------
    OptionError, TranscriptionError
        If it is none, or has other controls than the problem.
    """
    if guess is None:
        return lambda t: np.zeros(problem.n_u)
    if isinstance(guess, Trajectory):
        if guess.control_names != problem.ocp.system.control_names or not len(guess.u):
            raise OptionError(
                f"guess: expected a trajectory with the controls {', '.join(problem.ocp.system.control_names)}, given "
                f"{', '.join(guess.control_names) or 'none'}."
            )
        return lambda t: guess.control(min(guess.t0 + t, guess.u_grid[-1]))
    return control_guess(guess, problem.n_u, problem.horizon)
