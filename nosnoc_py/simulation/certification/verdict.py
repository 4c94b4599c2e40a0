"""Verdict of a certificate: comparison of a solution with its simulation.

Order of the decisions: violated laws and missing impacts refute; a difference that rounding decides leaves the verdict
open; agreement over the whole horizon confirms (unless constraints are violated between the nodes); otherwise agreement
in every window confirms an unstable motion, and disagreement of states means an inaccurate one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.measures import objective, state_sizes, violations
from nosnoc_py.simulation.certification.windows import EDGE, SIDES, WindowRun, first_difference, pair_events, state_at
from nosnoc_py.simulation.event_driven.history import SimulationResult
from nosnoc_py.solution import Solution
from nosnoc_py.solution.certificate import EventPair, Window
from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.status import Verdict

# Events further apart than this fraction of the horizon are different events.
OTHER_EVENT = 0.05
# An event listed this much too early or late (share of the horizon) is listed wrongly if the states agree.
DELAY = 5e-3
# An impact below this fraction of the largest impulse does not refute a solution that agrees otherwise.
SMALL_IMPACT = 1e-3
# If the error of the end state exceeds all defects of the windows by this factor, the motion amplifies errors.
ADDED_UP = 2.0
# Kinds of events that the smallest force or speed may cause.
CREEPING = {"slip", "stick", "reversal", "contact", "release"}
# Laws that are imposed at points of the motion, not along it.
ENDS = (Law.INITIAL, Law.TERMINAL)


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """A solution with its simulations, and the conclusions from them.

    Attributes
    ----------
    history : SimulationResult
        Simulation from x0.
    runs : tuple of WindowRun
        Simulations of the windows, from the solution's own states.
    error : float
        Size of differences that the residuals of the solution explain, absolute and relative.
    refuting, explained : tuple of Violation
        Broken laws and false statements; those that the residuals of the solution explain.
    by_rounding : function of a Window
        Check if a start close to that of a window gives the events of the solution.
    """

    ocp: OCP
    solution: Solution
    history: SimulationResult
    runs: tuple[WindowRun, ...]
    tolerance: float
    error: float
    refuting: tuple[Violation, ...]
    explained: tuple[Violation, ...]
    by_rounding: Callable[[Window], bool]

    @cached_property
    def sizes(self) -> np.ndarray:
        """Sizes of the states (n_x,) that differences are relative to."""
        return state_sizes(self.ocp, self.solution)

    @property
    def windows(self) -> tuple[Window, ...]:
        """Windows of the solution."""
        return tuple(piece.window for piece in self.runs)

    @cached_property
    def end_state_errors(self) -> np.ndarray:
        """Simulation minus solution at the end (n_x,), compared with the nearer limit if the solution jumps there."""
        if not self.history.status.success:
            return np.full(len(self.solution.state_names), np.nan)
        end = self.solution.duration
        errors = [self.history.x - state_at(self.solution, end, side) for side in SIDES]
        return np.asarray(min(errors, key=lambda error: np.abs(error).max()))

    @cached_property
    def end_state_error(self) -> float:
        """Largest error of the end state; infinite if the simulation did not reach the end."""
        return float(np.abs(self.end_state_errors).max()) if self.history.status.success else np.inf

    @cached_property
    def objective(self) -> float:
        """Objective of the simulated motion; NaN if it does not reach the end."""
        return objective(self.ocp, [self.history], self.history.x) if self.history.status.success else np.nan

    @cached_property
    def violation(self) -> tuple[Violation, ...]:
        """Bounds and constraints that the simulated motion violates."""
        return violations(self.ocp, [self.history]) if self.history.steps else ()

    @cached_property
    def pairs(self) -> tuple[EventPair, ...]:
        """Pairs of events of solution and simulation over the whole horizon."""
        return pair_events(self.solution.events, self.history.events)

    @cached_property
    def amplification(self) -> float | None:
        """Error of the end state relative to the largest defect of a window; None if windows do not reach the end."""
        if not self.history.status.success or not self.windows or any(window.stopped for window in self.windows):
            return None
        least = np.finfo(float).eps * float(self.sizes.max())
        return self.end_state_error / max(*(window.defect for window in self.windows), least)

    def verdict_and_reason(self) -> tuple[Verdict, str]:
        """Return the verdict and its reason."""
        agrees = self._states_agree and self._objective_agrees
        places = [(violation.time, violation.what) for violation in self.refuting]
        # Missing impacts only count if the states agree; otherwise the windows tell where the difference begins.
        places += [*self._missing_impacts(), *self._wrong_event_times()] if agrees else []
        differing = [] if agrees else self._differing_windows()
        # Only if nothing else refutes: an event that rounding decides does not excuse a violated law.
        if not places and differing and (why := self._reason_undecided(differing[0])):
            return Verdict.UNDECIDED, (
                f"rounding decides what happens at t = {differing[0].time:.6g} s ({differing[0].difference}): {why}"
            )
        places += [(window.time, window.difference) for window in differing]
        if places:
            # The first place only: everything after it is a consequence.
            time, what = min(places, key=lambda place: place[0])
            return Verdict.REFUTED, f"first goes wrong at t = {time:.6g} s: {what}"
        if agrees:
            return self._confirmed(
                self.violation, f"end state and objective agree to {self.tolerance:g}{self._remaining_difference()}"
            )
        stopped = [window for window in self.windows if window.stopped]
        if stopped:
            first = stopped[0]
            return Verdict.UNDECIDED, f"in the window [{first.start:.6g}, {first.end:.6g}] s {first.stopped}"
        if self._windows_agree:
            return self._in_windows()
        return Verdict.INACCURATE, f"the events agree{self._scope()}, {self._inaccuracy()}"

    def _confirmed(self, broken: tuple[Violation, ...], reason: str) -> tuple[Verdict, str]:
        """Return the verdict of a solution that agrees with its simulation, given violated constraints and laws."""
        broken = tuple(one for one in broken if one.share > self.tolerance)
        along = [one for one in broken if one.law not in ENDS]
        if self.explained:
            worst = max(self.explained, key=lambda one: one.share)
            return Verdict.INACCURATE, f"{reason}, but laws hold to the residuals of the solver only: {worst}"
        # Conditions at the ends have no "between the nodes": the motion misses its goal.
        if len(along) < len(broken):
            return Verdict.INACCURATE, f"{reason}, but {next(one for one in broken if one.law in ENDS).what}"
        if along:
            worst = max(along, key=lambda one: one.share)
            words = f"{reason}, but between its nodes {worst.what} at t = {worst.time:.6g} s"
            return Verdict.CONSTRAINT_BETWEEN_NODES, words
        return Verdict.CONFIRMED, reason

    def _in_windows(self) -> tuple[Verdict, str]:
        """Return the verdict if every window agrees, but the whole motion amplifies errors or adds them up."""
        if not self.history.status.success:
            stop = f"{self.history.status} {self.history.message}".strip()
            return Verdict.UNDECIDED, (
                f"every window agrees to {self.tolerance:g}, but the simulation of the whole stops at "
                f"{self.history.t:.6g} s: {stop}"
            )
        if self._undecided_at_end:
            pair = self._undecided_at_end[0]
            return Verdict.UNDECIDED, (
                f"{pair.event.kind} {pair.event.name} lies at the end of the horizon, where rounding decides whether "
                "the final state is that before or after it; let the motion go on for a while after the impact"
            )
        factor = self.amplification
        assert factor is not None
        # Errors that only add up are inaccuracy; an unstable motion amplifies them.
        if factor <= ADDED_UP * len(self.windows):
            return Verdict.INACCURATE, f"the events agree{self._scope()}, {self._inaccuracy()}"
        reason = (
            f"every window agrees to {self.tolerance:g}; over the whole horizon the motion makes the largest defect "
            f"{factor:.2g} times as large ({self.end_state_error:.2e} at the end)"
        )
        along = violations(self.ocp, [piece.history for piece in self.runs], ends=False)
        verdict, reason = self._confirmed(along, reason)
        return (Verdict.CONFIRMED_IN_WINDOWS if verdict is Verdict.CONFIRMED else verdict), reason

    @property
    def _windows_agree(self) -> bool:
        """True if end states, objective and events of the windows agree."""
        if not self.runs:
            return False
        if not all(piece.window.events_agree and piece.share <= self.tolerance for piece in self.runs):
            return False
        histories = [piece.history for piece in self.runs]
        return self._is_objective_of(histories, objective(self.ocp, histories, self.solution.x[-1]))

    def _reason_undecided(self, window: Window) -> str:
        """Return the reason why rounding decides in a window, or ""."""
        history = next(piece.history for piece in self.runs if piece.window is window)
        touched = [node for node in history.nodes if node.grazing and node.t <= window.time + EDGE * window.length]
        if touched:
            reason = touched[0].message or f"{touched[0].grazing} is touched without speed"
            return f"at t = {touched[0].t:.6g} s {reason}"
        return "a start that differs only by the residuals has the claimed events" if self.by_rounding(window) else ""

    def _differing_windows(self) -> list[Window]:
        """Return windows with differing events, in the order of time, unless events agree over the whole horizon."""
        if self.history.status.success and not self._difference[1]:
            return []
        windows = [piece.window for piece in self.runs if piece.window.difference and not self._is_explained(piece)]
        return sorted(windows, key=lambda window: window.time)

    def _is_explained(self, piece: WindowRun) -> bool:
        """Return True if a differing event is explained by the accuracy of the solution: its states are as accurate as
        elsewhere.

        Bodies at rest creep by the residuals of a solver, and so start and stop slipping; an impact is no such event.
        """
        if piece.lone > SMALL_IMPACT * self._largest_impulse or not np.isfinite(piece.window.defect):
            return False
        allowed = max(self.tolerance, self.error)
        # The accuracy of this solution elsewhere is the measure for bodies that creep at rest.
        usual = [one.share for one in self.runs if one.window.events_agree]
        if usual and piece.differing <= CREEPING:
            allowed = max(allowed, ADDED_UP * float(np.median(usual)))
        return piece.share <= allowed

    @property
    def _largest_impulse(self) -> float:
        """Largest impulse of all impacts, of solution and simulation [N s]."""
        histories = [self.history, *(piece.history for piece in self.runs)]
        events = [*self.solution.events, *(event for history in histories for event in history.events)]
        return max((event.impulse or 0.0 for event in events), default=0.0)

    @cached_property
    def _lone_impacts(self) -> list[EventPair]:
        """Large impacts that only the solution or only the simulation has."""
        impulses = [event.impulse or 0.0 for pair in self.pairs for event in (pair.claimed, pair.found) if event]
        lone = [pair for pair in self.pairs if pair.lone and pair.event.kind == "impact"]
        return [pair for pair in lone if (pair.event.impulse or 0.0) > SMALL_IMPACT * max(impulses)]

    @property
    def _undecided_at_end(self) -> list[EventPair]:
        """Large impacts at the end of the horizon on one side only."""
        return [pair for pair in self._lone_impacts if pair.event.time >= self.ocp.horizon * (1.0 - EDGE)]

    def _missing_impacts(self) -> list[tuple[float, str]]:
        """Return large impacts within the horizon that only the solution or only the simulation has."""
        edge, horizon = EDGE * self.ocp.horizon, self.ocp.horizon
        inside = [pair for pair in self._lone_impacts if edge < pair.event.time < horizon - edge]
        return [first_difference([pair], np.inf) for pair in inside]

    def _wrong_event_times(self) -> list[tuple[float, str]]:
        """Return events that the solution lists at another time than the simulation."""
        late = max(DELAY, self.tolerance) * self.ocp.horizon
        return [first_difference([pair], late) for pair in self.pairs if not pair.lone and abs(pair.delay) > late]

    def _remaining_difference(self) -> str:
        """Return the first difference as an addition to a confirming reason."""
        words = self._difference[1]
        return f", although {words}" if words else ""

    def _scope(self) -> str:
        """Return where the events agree: in every window, or over the whole horizon."""
        if not self.history.status.success:
            stop = f"the simulation stops at {self.history.t:.6g} s: {self.history.status} {self.history.message}"
            return f" window by window (over the whole horizon {stop.strip()})"
        words = self._difference[1]
        return f" window by window (over the whole horizon {words})" if words else ""

    def _inaccuracy(self) -> str:
        """Return the size of the inaccuracy and what to do about it."""
        explained = [piece.window.difference for piece in self.runs if piece.window.difference]
        but = f"(but for small errors, {explained[0]}) " if explained else ""
        if self._states_agree:
            error = self.objective - self.solution.objective
            return but + (
                f"the states too; the objective differs by {error:+.3g}, the error of its quadrature: more RK "
                "stages or elements make it smaller"
            )
        worst = max(self.windows, key=lambda window: window.defect)
        return but + (
            f"the states do not: largest defect {worst.defect:.2e} ({worst.state}) in [{worst.start:.6g}, "
            f"{worst.end:.6g}] s; refine the grid"
        )

    @cached_property
    def _difference(self) -> tuple[float, str]:
        """Time and description of the first difference over the whole horizon."""
        return first_difference(self.pairs, OTHER_EVENT * self.ocp.horizon)

    @property
    def _states_agree(self) -> bool:
        return bool((np.abs(self.end_state_errors) <= self.tolerance * self.sizes).all())

    @property
    def _objective_agrees(self) -> bool:
        return self.history.status.success and self._is_objective_of([self.history], self.objective)

    def _is_objective_of(self, histories: list[SimulationResult], found: float) -> bool:
        """True if the stated objective is that of these simulations, up to the tolerance.

        An objective that vanishes has no size: it is as accurate as states that are known to the tolerance allow.
        """
        error, stated = abs(found - self.solution.objective), abs(self.solution.objective)
        if not np.isfinite(error) or error <= self.tolerance * stated:
            return bool(np.isfinite(error))
        moved = [
            objective(self.ocp, histories, histories[-1].x, sign * self.tolerance * self.sizes) for sign in (1.0, -1.0)
        ]
        return bool(error <= self.tolerance * stated + sum(abs(value - found) for value in moved))
