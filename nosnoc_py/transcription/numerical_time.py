"""A problem in numerical time, whose system has been time-frozen, and the way back to physical time.

The user states the problem, its guess and its solution in physical time; the MPCC is in numerical time tau, with the
clock t(tau) as last state and the speed of time as an additional control. Invariants: at the end of every control stage
the clock shows the physical time of that stage, so controls are equidistant in both times; the speed of time is
constant on a stage. Time-freezing: Nurkanovic, Albrecht, Brogliato, Diehl (Automatica 2023).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from nosnoc_py.discretization.guess import TimeGrid
from nosnoc_py.discretization.readout import Readout
from nosnoc_py.mpcc.layout import At
from nosnoc_py.reformulation.time_freezing import Frozen
from nosnoc_py.roles import Role
from nosnoc_py.solution import Series, Trajectory
from nosnoc_py.solution.records import Discretization
from nosnoc_py.transcription.freezing import frozen_guess
from nosnoc_py.transcription.physical_time import physical_fields
from nosnoc_py.transcription.transcription import Transcription


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FrozenTranscription(Transcription):
    """A discretised optimal control problem in numerical time; its guesses and its solutions are in physical time.

    Attributes
    ----------
    frozen : Frozen
        The system in numerical time.
    """

    # The clock fixes the ends of the control stages.
    may_free_stages: ClassVar[bool] = False

    frozen: Frozen

    @property
    def discretization(self) -> Discretization:
        """Finite elements of a solution, for its record."""
        return replace(super().discretization, time_freezing=True)

    def from_trajectory(
        self, guess: Trajectory, places: TimeGrid, p: np.ndarray, known: Container[tuple[str, At]]
    ) -> np.ndarray:
        """Return an iterate from a trajectory in physical or numerical time; blocks in `known` keep their default."""
        if guess.state_names == self.ocp.system.state_names:
            return frozen_guess(self, guess, float(places.nodes[-1][-1]), p, known)
        return super().from_trajectory(guess, places, p, known)

    def fields_of(self, readout: Readout, p: np.ndarray, u: np.ndarray, u_grid: np.ndarray) -> dict[str, Any]:
        """Return the fields of a trajectory in physical time, see `Transcription.fields_of`."""
        return {**physical_fields(self, readout, p, u, u_grid), "discretization": self.discretization}

    def late(self, w: np.ndarray) -> str:
        """Say where time cannot run any faster: the jumps of such a control stage may take too long."""
        rows = [block.start for block in self.mpcc.variables.blocks(role=Role.SPEED_OF_TIME)]
        highest = self.mpcc.ubw[rows]
        # Interior-point solutions stay off their bounds by about their barrier parameter.
        stages = np.flatnonzero(w[rows] > (1 - 1e-6) * highest)
        if not stages.size:
            return ""
        return (
            f"the speed of time is at its upper bound {highest[stages[0]]:g} in the control stages "
            f"{', '.join(map(str, stages))}: raise speed_of_time, or shorten the jumps by a larger a_n"
        )

    def _costates(self, g: np.ndarray, readout: Readout) -> dict[str, Series]:
        return {}  # those of numerical time are others

    def _at_bound(self, w: np.ndarray, times: Sequence[float], h: np.ndarray, horizon: float) -> list[float]:
        """Return the times [s] of events that are between two control stages."""
        # Only ends of stages can hold an event here: steps between them have free lengths.
        stage = horizon / self.grid.control_stages
        return [t for t in times if stage / 2 < t < horizon - stage / 2 and abs(t - round(t / stage) * stage) < 1e-6]

    def _clock(self, readout: Readout, t: float) -> float:
        ends = np.concatenate([[0.0], np.cumsum(readout.h)])
        return float(np.interp(t, ends, np.append(readout.x_left[:, -1], readout.x_right[-1, -1])))
