"""What to make of a solution and its simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.measures import objective, violations
from nosnoc_py.simulation.certification.windows import EDGE, SIDES, Piece, first_difference, pair_events, state_at
from nosnoc_py.simulation.event_driven.history import SimulationResult
from nosnoc_py.solution import Solution
from nosnoc_py.solution.certificate import EventPair, Window
from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.status import Verdict

# An event that is later than this share of the horizon is another one.
LATE = 0.05
# One that is listed so much later or earlier than it happens, where the states agree, is listed wrongly.
DELAY = 5e-3
# An impact with less than this share of the largest impulse is no reason to refute what agrees otherwise.
SMALL = 1e-3
# An end state that is off by more than so many times what all windows together miss is amplified by the motion.
ADDED_UP = 2.0
# Events that the smallest force or speed may bring about.
CREEPING = {"slip", "stick", "reversal", "contact", "release"}
# Where constraints are imposed at points of the motion, not along it.
ENDS = (Law.INITIAL, Law.TERMINAL)


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """A solution and what was simulated.

    Attributes
    ----------
    history : History
        From x0.
    pieces : tuple of Piece
        From the solution's own states.
    error : float
        What the residuals of the solution explain, absolute and relative.
    refuting, explained : tuple of Violation
        Broken laws and false statements; those that the residuals of the solution explain.
    by_rounding : function of a Window
        Whether a start beside that of a window gives what the solution claims.
    """

    ocp: OCP
    solution: Solution
    history: SimulationResult
    pieces: tuple[Piece, ...]
    tolerance: float
    error: float
    refuting: tuple[Violation, ...]
    explained: tuple[Violation, ...]
    by_rounding: Callable[[Window], bool]

    @property
    def windows(self) -> tuple[Window, ...]:
        """The solution in pieces."""
        return tuple(piece.window for piece in self.pieces)

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
        return objective(self.ocp, [self.history], self.history.x) if self.history.status.success else np.nan

    @cached_property
    def violation(self) -> tuple[Violation, ...]:
        """Bounds and constraints that the true trajectory violates."""
        return violations(self.ocp, [self.history]) if self.history.steps else ()

    @cached_property
    def pairs(self) -> tuple[EventPair, ...]:
        """Events claimed and found over the whole horizon."""
        return pair_events(self.solution.events, self.history.events)

    @cached_property
    def amplification(self) -> float | None:
        """The error of the end state in units of the largest defect of a window; None without windows to the end."""
        if not self.history.status.success or not self.windows or any(window.stopped for window in self.windows):
            return None
        least = np.finfo(float).eps * (1.0 + float(np.abs(self.solution.x[-1]).max()))
        return self.end_state_error / max(*(window.defect for window in self.windows), least)

    def judge(self) -> tuple[Verdict, str]:
        """The verdict and its reason."""
        agrees = self._states_agree and self._objective_agrees
        places = [(violation.time, violation.what) for violation in self.refuting]
        places += [*self._missing_impacts(), *self._false_times()] if agrees else []
        odd = [] if agrees else self._odd_windows()
        if not places and odd and (why := self._open(odd[0])):
            return Verdict.UNDECIDED, (
                f"rounding decides what happens at t = {odd[0].time:.6g} s ({odd[0].difference}): {why}"
            )
        places += [(window.time, window.difference) for window in odd]
        if places:
            time, what = min(places, key=lambda place: place[0])
            return Verdict.REFUTED, f"first goes wrong at t = {time:.6g} s: {what}"
        if agrees:
            return self._confirmed(self.violation, f"end state and objective agree to {self.tolerance:g}{self._but()}")
        stopped = [window for window in self.windows if window.stopped]
        if stopped:
            first = stopped[0]
            return Verdict.UNDECIDED, f"in the window [{first.start:.6g}, {first.end:.6g}] s {first.stopped}"
        if self._windows_agree:
            return self._in_windows()
        return Verdict.INACCURATE, f"the events agree{self._where()}, {self._inaccuracy()}"

    def _confirmed(self, broken: tuple[Violation, ...], reason: str) -> tuple[Verdict, str]:
        """What agrees with its simulation, unless constraints or laws are missed by more than the tolerance."""
        broken = tuple(one for one in broken if one.share > self.tolerance)
        along = [one for one in broken if one.law not in ENDS]
        if self.explained:
            worst = max(self.explained, key=lambda one: one.share)
            return Verdict.INACCURATE, f"{reason}, but laws hold to the residuals of the solver only: {worst}"
        if len(along) < len(broken):
            return Verdict.INACCURATE, f"{reason}, but {next(one for one in broken if one.law in ENDS).what}"
        if along:
            worst = max(along, key=lambda one: one.share)
            words = f"{reason}, but between its nodes {worst.what} at t = {worst.time:.6g} s"
            return Verdict.CONSTRAINT_BETWEEN_NODES, words
        return Verdict.CONFIRMED, reason

    def _in_windows(self) -> tuple[Verdict, str]:
        """Every window is confirmed, the whole motion is not: it amplifies errors, or they add up."""
        if not self.history.status.success:
            stop = f"{self.history.status} {self.history.message}".strip()
            return Verdict.UNDECIDED, (
                f"every window agrees to {self.tolerance:g}, but the simulation of the whole stops at "
                f"{self.history.t:.6g} s: {stop}"
            )
        factor = self.amplification
        assert factor is not None
        if factor <= ADDED_UP * len(self.windows):
            return Verdict.INACCURATE, f"the events agree{self._where()}, {self._inaccuracy()}"
        reason = (
            f"every window agrees to {self.tolerance:g}; over the whole horizon the motion makes the largest defect "
            f"{factor:.2g} times as large ({self.end_state_error:.2e} at the end)"
        )
        along = violations(self.ocp, [piece.history for piece in self.pieces], ends=False)
        verdict, reason = self._confirmed(along, reason)
        return (Verdict.CONFIRMED_IN_WINDOWS if verdict is Verdict.CONFIRMED else verdict), reason

    @property
    def _windows_agree(self) -> bool:
        """Whether end states and objective of the windows are within the tolerance, and their events agree."""
        if not self.pieces:
            return False
        for window in self.windows:
            bound = self.tolerance * (1.0 + float(np.abs(state_at(self.solution, window.end, "-")).min()))
            if not (window.events_agree and window.defect <= bound):
                return False
        claimed = objective(self.ocp, [piece.history for piece in self.pieces], self.solution.x[-1])
        return bool(abs(claimed - self.solution.objective) <= self.tolerance * (1.0 + abs(self.solution.objective)))

    def _open(self, window: Window) -> str:
        """What shows that rounding decides; empty where nothing does."""
        history = next(piece.history for piece in self.pieces if piece.window is window)
        touched = [node for node in history.nodes if node.grazing and node.t <= window.time + EDGE * window.length]
        if touched:
            said = touched[0].message or f"{touched[0].grazing} is touched without speed"
            return f"at t = {touched[0].t:.6g} s {said}"
        return "a start that differs by its residuals only gives the claimed events" if self.by_rounding(window) else ""

    def _odd_windows(self) -> list[Window]:
        """Windows with other events, unless they agree over the whole horizon; in the order of time."""
        if self.history.status.success and not self._difference[1]:
            return []
        found = [piece.window for piece in self.pieces if piece.window.difference and not self._is_explained(piece)]
        return sorted(found, key=lambda window: window.time)

    def _is_explained(self, piece: Piece) -> bool:
        """Whether another event in a window is an error of the solution: its states are no farther off than elsewhere.

        Bodies at rest creep by the residuals of a solver, and so begin and end to slip; an impact is no such event.
        """
        if piece.lone > SMALL * self._largest_impulse or not np.isfinite(piece.window.defect):
            return False
        allowed = max(self.tolerance, self.error) * (1.0 + float(np.abs(self.solution.x).max()))
        usual = [window.defect for window in self.windows if window.events_agree]
        if usual and piece.odd <= CREEPING:
            allowed = max(allowed, ADDED_UP * float(np.median(usual)))
        return piece.window.defect <= allowed

    @property
    def _largest_impulse(self) -> float:
        """Of all impacts, claimed or found [N s]."""
        histories = [self.history, *(piece.history for piece in self.pieces)]
        events = [*self.solution.events, *(event for history in histories for event in history.events)]
        return max((event.impulse or 0.0 for event in events), default=0.0)

    def _missing_impacts(self) -> list[tuple[float, str]]:
        """Impacts of some size that are claimed and do not happen, or happen and are not claimed."""
        impulses = [event.impulse or 0.0 for pair in self.pairs for event in (pair.claimed, pair.found) if event]
        edge, horizon = EDGE * self.ocp.horizon, self.ocp.horizon
        made = []
        for pair in self.pairs:
            large = pair.event.kind == "impact" and (pair.event.impulse or 0.0) > SMALL * max(impulses)
            if pair.lone and large and edge < pair.event.time < horizon - edge:
                made.append(first_difference([pair], np.inf))
        return made

    def _false_times(self) -> list[tuple[float, str]]:
        """Events that are listed at another time than that at which they happen on the same motion."""
        late = max(DELAY, self.tolerance) * self.ocp.horizon
        return [first_difference([pair], late) for pair in self.pairs if not pair.lone and abs(pair.delay) > late]

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
        """By how much, and what to do."""
        explained = [piece.window.difference for piece in self.pieces if piece.window.difference]
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
