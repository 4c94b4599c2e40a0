"""Integration from one node to the next event within a step: choose consistent modes, locate the first violated guard.

Idea: solve the rest of the step in the modes of the node as if nothing happened. The guards (gaps, forces, slip
speeds, slacks of the friction cone, or the sides of complementarity pairs) are then functions of the collocation
polynomials. If one is violated right at the node, the mode was wrong: exchange it (as in a pivoting method for linear
complementarity problems) and try again. Otherwise the first violation is the next event. Newton's method, with the
element length as an additional unknown and guard = 0 as an additional equation, locates it.

Invariants: no set of modes is tried twice at a node; a run is returned only if no guard is violated before its end.

A slip in space (two tangents) needs care near a stop: the direction d of slip turns fast, and (d, s) and (-d, -s)
satisfy the same equations. `_on_consistent_branch` picks the sign that makes guards meaningful, and
`_finish_around_turn` follows a slip that reverses quickly without stopping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nosnoc_py.motion.crossing import NODES, Crossing, GuardSearch, may_cross
from nosnoc_py.simulation.newton.collocation import Collocation, ElementRun
from nosnoc_py.simulation.newton.contact_modes import ContactModes
from nosnoc_py.simulation.newton.filippov_modes import FilippovModes
from nosnoc_py.simulation.newton.modes import ElementNode, Mode, Trouble

# Models of modes that the engine accepts; both have the same methods.
Modes = ContactModes | FilippovModes

# Exchanges of modes at one node. Real nodes need a handful; more means that no consistent mode was found.
MOST_PIVOTS = 30
# Events closer than this to the end of the step (relative to its length) are treated as at the end: an element between
# them would be as short as the rounding of time.
AT_THE_END = 1e-9
# A guard that grows by less than this fraction of its tolerance before it decreases is negative from the start.
RISE = 1e-4
# Newton's method on the shorter run may place an event this far outside of its bracket (relative to the step).
BRACKET_MARGIN = 1e-10
# Roots before this fraction of the bracket's lower end are rejected: they are the zero of the guard at the node itself.
EARLIEST = 0.1
# Length of the short element that determines the unknowns right after a node, relative to the step.
FIRST_ELEMENT = 1e-6
# Elements used to predict the motion around a sharp turn, where Newton's method needs a continuation.
CONTINUATION_ELEMENTS = 36
ARRAYS = ("x_left", "x", "y", "x_right")


@dataclass(frozen=True, eq=False, kw_only=True)
class WalkOutcome:
    """Next run of a step and the guard whose event ends it (None: the end of the step).

    Without a run, `node.trouble` is the reason.
    """

    run: ElementRun | None = None
    guard: int | None = None
    node: ElementNode


@dataclass(eq=False)
class EventWalk:
    """Integration from one node to the next event or to the end of the step.

    Parameters
    ----------
    u, p : (n_u,), (n_p,)
    node : ElementNode
    length : float
        Rest of the step [s].
    free : int
        Finite elements that are left for it.
    one_element_each : bool
        Use one element before each event instead of a number in proportion to the time.
    """

    model: Modes
    collocation: Collocation
    u: np.ndarray
    p: np.ndarray
    node: ElementNode
    length: float
    free: int
    one_element_each: bool
    _event_free_run: ElementRun | None = field(default=None, init=False)  # its guards need no search

    def advance(self) -> WalkOutcome:
        """Integrate to the next event. Modes violated at the start are exchanged (never twice for the same set)."""
        node, modes, y = self.node, self.node.modes, self.node.y
        if node.trouble is not None:
            return WalkOutcome(node=node)
        seen: set[Mode] = set()
        for _ in range(MOST_PIVOTS):
            seen.add(modes)
            run = self._run_without_event(modes, y)
            crossing = None if run is None else self._first_crossing(run)
            if run is not None and crossing is not None and not crossing.at_once:
                result = self._run_to_event(run, crossing)
                if isinstance(result, WalkOutcome):
                    return result
                crossing = result
            if run is not None and crossing is None:
                return WalkOutcome(run=run, node=node)
            guard = None if crossing is None else crossing.guard
            # Without `detail` the node was not analysed: the engine analyses it when these modes fail.
            pivots = self.model.pivots(node, modes, guard, y) if node.detail is not None else []
            following = [new for new in pivots if new not in seen]
            if not following:
                break
            modes = following[0]
            y = self.model.guess(node, modes, self.u, self.p)
        if crossing is None:
            return self._failure("Newton's method did not converge", self.model.places(modes))
        name, kind = self.model.describe(crossing.guard)
        return self._failure(f"no consistent mode of {name!r} ({kind})", name)

    def _run_without_event(self, modes: Mode, y: np.ndarray) -> ElementRun | None:
        """Solve the rest of the step without events, or the longest part for which Newton's method converges."""
        masks = self.model.masks(modes)
        data = (self.u, self.p, masks)
        if self.model.solves_node_unknowns and self.node.detail is not None:
            unknowns = self._unknowns_after_node(modes, y)
            if unknowns is None:
                return None
            y = unknowns
        # Fast path: one compiled call for all elements and the guards at all samples. Most steps end here.
        solution = self.collocation.solve_event_free(
            self.node.x_left, modes, y, self.length / self.free, self.free, data
        )
        if solution is not None:
            run, guards = solution
            if self._is_clear(guards[self.model.watched(modes)]) and self._on_consistent_branch(run) is run:
                self._event_free_run = run
            # Redundant contacts have many forces; the fast path may return some outside of their cones. The slower
            # Newton method below returns the shortest ones.
            unique = run is self._event_free_run or self.model.has_unique_forces(modes)
            if unique or self.collocation.determines(run, data):
                return run
        slope = self.collocation.slope(self.node.x_left, y, self.u, self.p, masks)
        length = self.length
        # Newton's method converges for a short enough run; then lengthen it, with the polynomials as the guess.
        for _ in range(12):
            guess = self.collocation.first_guess(self.node.x_left, modes, y, length / self.free, self.free, slope)
            shorter = self._solve(guess, None)
            if shorter is not None:
                return self._extend(shorter)
            length *= 0.5
        return None

    def _unknowns_after_node(self, modes: Mode, y: np.ndarray) -> np.ndarray | None:
        """Return the algebraic unknowns (n_y,) right after the node: those of a very short element, or None."""
        masks, h = self.model.masks(modes), FIRST_ELEMENT * self.length
        solution = self.collocation.solve_event_free(self.node.x_left, modes, y, h, 1, (self.u, self.p, masks))
        if solution is not None and self.collocation.determines(solution[0], (self.u, self.p, masks)):
            return np.asarray(solution[0].y[0, 0])
        slope = self.collocation.slope(self.node.x_left, y, self.u, self.p, masks)
        run = self._solve(self.collocation.first_guess(self.node.x_left, modes, y, h, 1, slope), None)
        return None if run is None else np.asarray(run.y[0, 0])

    def _extend(self, run: ElementRun) -> ElementRun | None:
        """Lengthen a run to the end of the step; where that fails, at least until it meets an event."""
        high = np.inf
        for _ in range(40):
            if run.length >= (1.0 - AT_THE_END) * self.length or self._first_crossing(run) is not None:
                return run
            target = min(2.0 * run.length, self.length) if high == np.inf else 0.5 * (run.length + high)
            longer = self._solve(self.collocation.shortened(run, target, self.free), None)
            run, high = (run, target) if longer is None else (longer, high)
        return None

    def _run_to_event(self, run: ElementRun, crossing: Crossing) -> WalkOutcome | Crossing | None:
        """Locate the first event and return the run that ends there.

        Returns a `Crossing` if the located run shows that a mode was wrong from the start, None if the step ends before
        the event.
        """
        for _ in range(10):
            if crossing.time >= (1.0 - AT_THE_END) * self.length:
                return None
            name, kind = self.model.describe(crossing.guard)
            proportional = round(self.free * crossing.time / self.length)
            # One element at least has to remain for what follows the event.
            count = min(1 if self.one_element_each else max(proportional, 1), self.free - 1)
            located = self._locate(run, crossing, count) if count else None
            if located is None or not np.array_equal(self._on_consistent_branch(located).y, located.y):
                # No stop, or one on the branch that friction drives: the slip may turn around sharply without stopping.
                turning = self._finish_around_turn(run)
                if turning is not None:
                    return WalkOutcome(run=turning, node=self.node)
            if self.free == 1:
                message = f"{Trouble.SWITCHES.value}: no element is left after the {kind} of {name!r}"
                return self._failure(message, name, Trouble.SWITCHES)
            if located is None:
                return self._run_before_event(run, crossing, count) or self._failure(
                    f"the {kind} of {name!r} was not located", name
                )
            if located.length >= (1.0 - AT_THE_END) * self.length:
                return None
            # Shorter elements are more exact: on them another guard may be violated earlier.
            earlier = self._first_crossing(located)
            if earlier is None or (earlier.time >= (1.0 - AT_THE_END) * located.length and not earlier.at_once):
                return WalkOutcome(run=located, guard=crossing.guard, node=self.node)
            if earlier.at_once:
                return earlier
            run, crossing = located, earlier
        return self._failure("the order of the events in a step was not resolved", self.model.places(run.modes))

    def _run_before_event(self, run: ElementRun, crossing: Crossing, count: int) -> WalkOutcome | None:
        """Return the run up to just before an event that was not located, so that the next run starts close to it."""
        if crossing.low <= AT_THE_END * self.length:
            return None
        shorter = self._solve(self.collocation.shortened(run, crossing.low, count), None)
        is_event_free = shorter is not None and self._first_crossing(shorter) is None
        return WalkOutcome(run=shorter, node=self.node) if is_event_free else None

    def _finish_around_turn(self, run: ElementRun) -> ElementRun | None:
        """Finish the step across a slip reversal with non-zero speed (sharp turn, no stick), or return None."""
        if self._guess_on_turning_branch(run) is None:
            return None
        turning = self._solve_on_turning_branch(run)
        if turning is None and (predicted := self._predict_by_short_elements(run)) is not None:
            turning = self._solve_on_turning_branch(self.collocation.shortened(predicted, self.length, self.free))
        if turning is None:
            return None
        # The velocity along the direction of slip may be negative between the stages here, and means nothing.
        ambiguous_guards = self.model.ambiguous_guards(turning.modes)
        return turning if self._first_crossing(turning, ambiguous_guards) is None else None

    def _predict_by_short_elements(self, run: ElementRun) -> ElementRun | None:
        """Predict the rest of the step by many short elements, one after the other (a continuation around the turn)."""
        h = self.length / CONTINUATION_ELEMENTS
        masks = self.model.masks(run.modes)
        x, y, parts = run.x_left[0], run.y_node, []
        for _ in range(CONTINUATION_ELEMENTS):
            slope = self.collocation.slope(x, y, self.u, self.p, masks)
            part = self._solve_on_turning_branch(self.collocation.first_guess(x, run.modes, y, h, 1, slope))
            if part is None:
                return None
            parts.append(part)
            x, y = part.x_right[-1], part.y[-1, -1]
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS}
        return ElementRun(h=h, modes=run.modes, y_node=run.y_node, **joined)

    def _solve_on_turning_branch(self, guess: ElementRun) -> ElementRun | None:
        """Solve a run from a guess whose friction opposes its motion; None if the solution does not keep to that."""
        start = self._guess_on_turning_branch(guess)
        solution = None if start is None else self._solve(start, None)
        accepted = solution is not None and self.model.on_turning_branch(_flat(solution.y), solution.modes)
        return solution if accepted else None

    def _guess_on_turning_branch(self, run: ElementRun) -> ElementRun | None:
        """Return the run with directions of slip along its velocities; None where no contact slips in space."""
        stages = _flat(run.x), _flat(run.y)
        y = self.model.turning_branch(*stages, self.p, run.modes)
        return None if y is None else replace(run, y=y.reshape(run.y.shape))

    def _locate(self, run: ElementRun, crossing: Crossing, count: int) -> ElementRun | None:
        """Return a run of `count` elements that ends at an event.

        By Newton's method, else by bisection of its length.
        """
        guess = self.collocation.shortened(run, crossing.time, count)
        located = self._solve(guess, crossing.guard)
        margin = crossing.high - crossing.low + BRACKET_MARGIN * self.length
        # A gap that opens at the node is zero there: Newton's method may converge to that root, which is no event.
        least = max(crossing.low - margin, EARLIEST * crossing.low)
        if located is not None and least <= located.length <= crossing.high + margin and located.h > 0:
            return located
        return self._bisect(run, crossing, count)

    def _bisect(self, run: ElementRun, crossing: Crossing, count: int) -> ElementRun | None:
        """Bisect for the length at whose end the guard is zero; None if the guard changes its sign by a jump."""
        low, high, best = crossing.low, crossing.high, run
        largest, end, wide = 0.0, np.inf, True
        for _ in range(60):
            # The bracket comes from the polynomial of a longer run. On a shorter one the guard may still be positive at
            # the upper end: widen the bracket until it is not.
            middle = high if wide else 0.5 * (low + high)
            shorter = self._solve(self.collocation.shortened(best, middle, count), None)
            if shorter is None:
                return None
            best, end = shorter, float(self._guards_at(shorter, np.array([shorter.length]))[crossing.guard, 0])
            largest = max(largest, abs(end))
            if end > 0:
                low, high = middle, min(2.0 * high, run.length) if wide else high
                wide = wide and low < run.length
            else:
                high, wide = middle, False
            if end == 0.0 or high - low <= 1e-15 * high:
                break
        return best if abs(end) <= 1e-8 * largest else None

    def _solve(self, guess: ElementRun, guard: int | None) -> ElementRun | None:
        return self.collocation.solve(guess, self.u, self.p, self.model.masks(guess.modes), guard)

    def _first_crossing(self, run: ElementRun, ambiguous_guards: Sequence[int] = ()) -> Crossing | None:
        """Return the earliest violated guard on the polynomials of a run, without those that are ambiguous.

        It is violated `at_once` if that happens so early that the mode must have been wrong from the start.
        """
        if run is self._event_free_run:
            return None
        consistent = self._on_consistent_branch(run)
        masks, watched = self.model.masks(run.modes), self.model.watched(run.modes)
        times, x, y = self.collocation.samples(consistent)
        values = self.collocation.guards(x, y, self.u, self.p, masks)
        if self._is_clear(values[watched]):
            return None
        tolerance = self.model.tolerances(values, _flat(run.y).T, run.h)
        checked = np.setdiff1d(np.flatnonzero(watched), ambiguous_guards)
        noise = tolerance[checked]
        # Pieces of eight Chebyshev samples; neighbours share their boundary sample.
        pieces = sliding_window_view(values[checked].T, NODES.size, axis=0)[:: NODES.size - 1]  # (pieces, guards, 8)
        suspects = may_cross(np.moveaxis(pieces, 2, 0), -noise).any(axis=1)
        no_rates = np.empty((NODES.size, 0))
        search = GuardSearch(
            evaluate=lambda t: (self._guards_at(consistent, t)[checked].T, no_rates[: t.size]),
            noise=noise,
            rise=RISE * noise,
        )
        for k in np.flatnonzero(suspects):
            start = (NODES.size - 1) * k
            enabled = np.full(checked.size, True)  # a guard that is zero at the node may rise before it crosses
            crossing = search.first(times[start : start + NODES.size], pieces[k].T, no_rates, enabled)
            if crossing is not None and not crossing.lost:
                guard = int(checked[crossing.guard])
                at_once = crossing.time <= self.model.nearest()[guard] * consistent.length
                return replace(crossing, guard=guard, at_once=at_once)
        return None

    def _is_clear(self, values: np.ndarray) -> bool:
        """Return True if guards (n, samples) are positive, and too large to dip below zero between two samples."""
        if not len(values):
            return True
        lowest = values.min(axis=1)
        if not lowest.min() >= 0.0:
            return False
        steepest = np.abs(values[:, 1:] - values[:, :-1]).max(axis=1)
        return bool(((lowest == 0.0) | (lowest >= steepest)).all())

    def _on_consistent_branch(self, run: ElementRun) -> ElementRun:
        """Return the run with the signs of slip directions for which its guards are meaningful."""
        stages = _flat(run.y)
        y = self.model.consistent_branch(run.y_node, stages, run.modes)
        return run if y is stages else replace(run, y=y.reshape(run.y.shape))

    def _guards_at(self, run: ElementRun, times: np.ndarray) -> np.ndarray:
        """Return the guards (n_g, m) of a run at times (m,) after its start."""
        return self.collocation.guards(*self.collocation.at(run, times), self.u, self.p, self.model.masks(run.modes))

    def _failure(self, message: str, place: str, trouble: Trouble = Trouble.MODES) -> WalkOutcome:
        return WalkOutcome(node=replace(self.node, trouble=trouble, message=message, place=place))


def _flat(stages: np.ndarray) -> np.ndarray:
    """Return stage values (r, n_s, n) as rows (r n_s, n)."""
    return stages.reshape(stages.shape[0] * stages.shape[1], stages.shape[2])
