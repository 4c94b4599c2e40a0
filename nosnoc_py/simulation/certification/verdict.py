"""What to make of a solution and its simulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.measures import objective
from nosnoc_py.simulation.certification.windows import EDGE, SIDES, first_difference, pair_events, state_at, time_of
from nosnoc_py.simulation.event_driven.history import History
from nosnoc_py.solution import Solution
from nosnoc_py.solution.certificate import EventPair, Finding, Window
from nosnoc_py.status import Verdict

# An event that is later than this share of the horizon is another one.
LATE = 0.05
# An impact with less than this share of the largest impulse is no reason to refute what agrees otherwise.
SMALL = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """A solution and what was simulated."""

    ocp: OCP
    solution: Solution
    history: History
    windows: tuple[Window, ...]
    tolerance: float

    @cached_property
    def end_state_errors(self) -> np.ndarray:
        """Simulation minus solution at the end (n_x,), against the nearer limit where the solution jumps there."""
        if not self.history.status.success:
            return np.full(len(self.solution.state_names), np.nan)
        end = self.solution.duration
        errors = [self.history.x - state_at(self.solution, end, side) for side in SIDES]
        return np.asarray(min(errors, key=lambda error: np.abs(error).max()))

    @cached_property
    def end_state_error(self) -> float:
        """Largest of them; infinite where the simulation did not get to the end."""
        return float(np.abs(self.end_state_errors).max()) if self.history.status.success else np.inf

    @cached_property
    def objective(self) -> float:
        """On the true trajectory; NaN where it does not get to the end."""
        return objective(self.ocp, self.history) if self.history.status.success else np.nan

    @cached_property
    def pairs(self) -> tuple[EventPair, ...]:
        """Events claimed and found over the whole horizon."""
        return pair_events(self.solution.events, self.history.events)

    def judge(self, findings: tuple[Finding, ...]) -> tuple[Verdict, str]:
        """The verdict and its reason."""
        agrees = self._states_agree and self._objective_agrees
        places = [(finding.time, finding.what) for finding in findings]
        places += self._missing_impacts() if agrees else self._odd_windows()
        if places:
            time, what = min(places, key=lambda place: place[0])
            return Verdict.REFUTED, f"first goes wrong at t = {time:.6g} s: {what}"
        if agrees:
            return Verdict.CONFIRMED, f"end state and objective agree to {self.tolerance:g}{self._but()}"
        stopped = [window for window in self.windows if window.stopped]
        if stopped:
            first = stopped[0]
            return Verdict.UNDECIDED, f"in the window [{first.start:.6g}, {first.end:.6g}] s {first.stopped}"
        return Verdict.INACCURATE, f"the events agree{self._where()}, {self._inaccuracy()}"

    def _odd_windows(self) -> list[tuple[float, str]]:
        """Events that differ in a window, unless they agree over the whole horizon."""
        if self.history.status.success and not self._difference[1]:
            return []
        return [(window.time, window.difference) for window in self.windows if window.difference]

    def _missing_impacts(self) -> list[tuple[float, str]]:
        """Impacts of some size that are claimed and do not happen, or happen and are not claimed."""
        impulses = [event.impulse or 0.0 for pair in self.pairs for event in (pair.claimed, pair.found) if event]
        edge, horizon = EDGE * self.ocp.horizon, self.ocp.horizon
        lone = [pair for pair in self.pairs if pair.claimed is None or pair.found is None]
        made = []
        for pair in lone:
            event = pair.claimed or pair.found
            assert event is not None
            large = event.kind == "impact" and (event.impulse or 0.0) > SMALL * max(impulses)
            if large and edge < time_of(pair) < horizon - edge:
                made.append(first_difference([pair], np.inf))
        return made

    def _but(self) -> str:
        """What happens differently all the same."""
        words = self._difference[1]
        return f", although {words}" if words else ""

    def _where(self) -> str:
        """Where the events agree."""
        if not self.history.status.success:
            stop = f"the simulation stops at {self.history.t:.6g} s: {self.history.status} {self.history.message}"
            return f" window by window (over the whole horizon {stop.strip()})"
        words = self._difference[1]
        return f" window by window (over the whole horizon {words})" if words else ""

    def _inaccuracy(self) -> str:
        if self._states_agree:
            error = self.objective - self.solution.objective
            return (
                f"the states too; the objective differs by {error:+.3g}, the error of its quadrature: more RK "
                "stages or elements make it smaller"
            )
        worst = max(self.windows, key=lambda window: window.defect)
        return (
            f"the states do not: largest defect {worst.defect:.2e} ({worst.state}) in [{worst.start:.6g}, "
            f"{worst.end:.6g}] s; refine the grid"
        )

    @cached_property
    def _difference(self) -> tuple[float, str]:
        """What first happens differently over the whole horizon."""
        return first_difference(self.pairs, LATE * self.ocp.horizon)

    @property
    def _states_agree(self) -> bool:
        bound = self.tolerance * (1.0 + np.abs(self.solution.x[-1]))
        return bool((np.abs(self.end_state_errors) <= bound).all())

    @property
    def _objective_agrees(self) -> bool:
        error = abs(self.objective - self.solution.objective)
        return bool(error <= self.tolerance * (1.0 + abs(self.solution.objective)))
