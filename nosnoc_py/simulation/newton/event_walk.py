"""The walk from a node to the next event: the modes that hold, and the first of their inequalities that fails.

The modes are those at the node; if a guard is negative at once they are exchanged. The first violated guard on the
collocation polynomials is the next event, whose equation then decides the length of the elements before it.
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

# What the engine asks of a system.
Modes = ContactModes | FilippovModes

MOST_PIVOTS = 30
# An event this close to the end of the step, relatively, happens at its end.
AT_THE_END = 1e-9
# A guard that rises from zero by less than this share of its tolerance, and falls, is negative at once.
ROUNDED = 1e-4
# An event may lie so far outside of its bracket, relative to the step.
OUTSIDE = 1e-10
# Nor so much earlier than its bracket, as a share of the time until then.
BEGUN = 0.1
# Length of a first short element, relative to the step.
BEGINNING = 1e-6
# Elements of a prediction where Newton's method needs to be led.
PARTS = 36
JOINED = ("x_left", "x", "y", "x_right")


@dataclass(frozen=True, eq=False, kw_only=True)
class WalkOutcome:
    """The next run of a step, the guard whose event ended it (None: the end of the step); its node says why none."""

    run: ElementRun | None = None
    guard: int | None = None
    node: ElementNode


@dataclass(eq=False)
class EventWalk:
    """From one node to the next event or to the end of the step."""

    model: Modes
    collocation: Collocation
    u: np.ndarray
    p: np.ndarray
    node: ElementNode
    length: float
    free: int
    sparing: bool
    _calm: ElementRun | None = field(default=None, init=False)  # a run in which it is plain that nothing happens

    def advance(self) -> WalkOutcome:
        """The run after the node; modes that are violated at once are pivoted, never twice to the same."""
        node, modes, y = self.node, self.node.modes, self.node.y
        if node.trouble is not None:
            return WalkOutcome(node=node)
        seen: set[Mode] = set()
        for _ in range(MOST_PIVOTS):
            seen.add(modes)
            plain = self._plain(modes, y)
            crossing = None if plain is None else self._first_crossing(plain)
            if plain is not None and crossing is not None and not crossing.at_once:
                found = self._until(plain, crossing)
                if isinstance(found, WalkOutcome):
                    return found
                crossing = found
            if plain is not None and crossing is None:
                return WalkOutcome(run=plain, node=node)
            guard = None if crossing is None else crossing.guard
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

    def _plain(self, modes: Mode, y: np.ndarray) -> ElementRun | None:
        """The rest of the step without an event, or the longest part of it where Newton's method converges."""
        masks = self.model.masks(modes)
        data = (self.u, self.p, masks)
        if self.model.settles and self.node.detail is not None:
            settled = self._settled(modes, y)
            if settled is None:
                return None
            y = settled
        found = self.collocation.glide(self.node.x_left, modes, y, self.length / self.free, self.free, data)
        if found is not None:
            smooth, guards = found
            if self._is_clear(guards[self.model.watched(modes)]) and self._upright(smooth) is smooth:
                self._calm = smooth
            # Of forces that are not unique the shortest ones are wanted: others may leave their cones.
            unique = smooth is self._calm or self.model.has_unique_forces(modes)
            if unique or self.collocation.determines(smooth, data):
                return smooth
        slope = self.collocation.slope(self.node.x_left, y, self.u, self.p, masks)
        length = self.length
        for _ in range(12):
            guess = self.collocation.first_guess(self.node.x_left, modes, y, length / self.free, self.free, slope)
            run = self._solve(guess, None)
            if run is not None:
                return self._extended(run)
            length *= 0.5
        return None

    def _settled(self, modes: Mode, y: np.ndarray) -> np.ndarray | None:
        """Unknowns right after the node: those of an element that is next to nothing."""
        masks, h = self.model.masks(modes), BEGINNING * self.length
        found = self.collocation.glide(self.node.x_left, modes, y, h, 1, (self.u, self.p, masks))
        if found is not None and self.collocation.determines(found[0], (self.u, self.p, masks)):
            return np.asarray(found[0].y[0, 0])
        slope = self.collocation.slope(self.node.x_left, y, self.u, self.p, masks)
        run = self._solve(self.collocation.first_guess(self.node.x_left, modes, y, h, 1, slope), None)
        return None if run is None else np.asarray(run.y[0, 0])

    def _extended(self, run: ElementRun) -> ElementRun | None:
        """Lengthen a run to the end of the step; where that fails, at least until it meets an event."""
        high = np.inf
        for _ in range(40):
            if run.length >= (1.0 - AT_THE_END) * self.length or self._first_crossing(run) is not None:
                return run
            target = min(2.0 * run.length, self.length) if high == np.inf else 0.5 * (run.length + high)
            longer = self._solve(self.collocation.shortened(run, target, self.free), None)
            run, high = (run, target) if longer is None else (longer, high)
        return None

    def _until(self, run: ElementRun, crossing: Crossing) -> WalkOutcome | Crossing | None:
        """The run up to the first event; a crossing when a mode was wrong at once; None when the step ends before."""
        for _ in range(10):
            if crossing.time >= (1.0 - AT_THE_END) * self.length:
                return None
            name, kind = self.model.describe(crossing.guard)
            share = round(self.free * crossing.time / self.length)
            count = min(1 if self.sparing else max(share, 1), self.free - 1)
            found = self._locate(run, crossing, count) if count else None
            if found is None or not np.array_equal(self._upright(found).y, found.y):
                turned = self._turned(run)
                if turned is not None:
                    return WalkOutcome(run=turned, node=self.node)
            if self.free == 1:
                said = f"{Trouble.SWITCHES.value}: no element is left after the {kind} of {name!r}"
                return self._failure(said, name, Trouble.SWITCHES)
            if found is None:
                return self._before(run, crossing, count) or self._failure(
                    f"the {kind} of {name!r} was not located", name
                )
            if found.length >= (1.0 - AT_THE_END) * self.length:
                return None
            earlier = self._first_crossing(found)
            if earlier is None or (earlier.time >= (1.0 - AT_THE_END) * found.length and not earlier.at_once):
                return WalkOutcome(run=found, guard=crossing.guard, node=self.node)
            if earlier.at_once:
                return earlier
            run, crossing = found, earlier
        return self._failure("the events of a step were not brought into order", self.model.places(run.modes))

    def _before(self, run: ElementRun, crossing: Crossing, count: int) -> WalkOutcome | None:
        """The part before an event that was not located, so that what follows starts next to it."""
        if crossing.low <= AT_THE_END * self.length:
            return None
        found = self._solve(self.collocation.shortened(run, crossing.low, count), None)
        good = found is not None and self._first_crossing(found) is None
        return WalkOutcome(run=found, node=self.node) if good else None

    def _turned(self, run: ElementRun) -> ElementRun | None:
        """The rest of the step when something turns sharply but does not stop."""
        if self._guess_along(run) is None:
            return None
        found = self._along(run)
        if found is None and (parts := self._in_parts(run)) is not None:
            found = self._along(self.collocation.shortened(parts, self.length, self.free))
        if found is None:
            return None
        blind = self.model.blind(found.modes)
        return found if self._first_crossing(found, blind) is None else None

    def _in_parts(self, run: ElementRun) -> ElementRun | None:
        """The rest of the step in many short elements, one after the other: Newton's method is led around the turn."""
        h = self.length / PARTS
        masks = self.model.masks(run.modes)
        x, y, parts = run.x_left[0], run.y_node, []
        for _ in range(PARTS):
            slope = self.collocation.slope(x, y, self.u, self.p, masks)
            part = self._along(self.collocation.first_guess(x, run.modes, y, h, 1, slope))
            if part is None:
                return None
            parts.append(part)
            x, y = part.x_right[-1], part.y[-1, -1]
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in JOINED}
        return ElementRun(h=h, modes=run.modes, y_node=run.y_node, **joined)

    def _along(self, guess: ElementRun) -> ElementRun | None:
        """A run that slips where it moves, from a guess that does."""
        start = self._guess_along(guess)
        found = None if start is None else self._solve(start, None)
        on = found is not None and self.model.goes_round(_flat(found.y), found.modes)
        return found if on else None

    def _guess_along(self, run: ElementRun) -> ElementRun | None:
        stages = _flat(run.x), _flat(run.y)
        y = self.model.turned(*stages, self.p, run.modes)
        return None if y is None else replace(run, y=y.reshape(run.y.shape))

    def _locate(self, run: ElementRun, crossing: Crossing, count: int) -> ElementRun | None:
        """A run of `count` elements that ends at an event: Newton's method, else a search for the root in h."""
        guess = self.collocation.shortened(run, crossing.time, count)
        found = self._solve(guess, crossing.guard)
        margin = crossing.high - crossing.low + OUTSIDE * self.length
        # A gap that has just opened is zero at the node, too: that root is no event.
        least = max(crossing.low - margin, BEGUN * crossing.low)
        if found is not None and least <= found.length <= crossing.high + margin and found.h > 0:
            return found
        return self._search(run, crossing, count)

    def _search(self, run: ElementRun, crossing: Crossing, count: int) -> ElementRun | None:
        """Bisection for the length at whose end the guard vanishes, if it changes its sign by vanishing."""
        low, high, best = crossing.low, crossing.high, run
        largest, end, wide = 0.0, np.inf, True
        for _ in range(60):
            # The bracket is that of a long element: on a short one the guard may still be positive at its end.
            middle = high if wide else 0.5 * (low + high)
            found = self._solve(self.collocation.shortened(best, middle, count), None)
            if found is None:
                return None
            best, end = found, float(self._guards_at(found, np.array([found.length]))[crossing.guard, 0])
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

    def _first_crossing(self, run: ElementRun, blind: Sequence[int] = ()) -> Crossing | None:
        """The earliest violated guard on the polynomials of a run, but for some that are not looked at.

        It is violated `at_once` where that means a wrong mode.
        """
        if run is self._calm:
            return None
        upright, masks, watched = self._upright(run), self.model.masks(run.modes), self.model.watched(run.modes)
        times, x, y = self.collocation.samples(upright)
        values = self.collocation.guards(x, y, self.u, self.p, masks)
        if self._is_clear(values[watched]):
            return None
        tolerance = self.model.tolerances(values, _flat(run.y).T, run.h)
        asked = np.setdiff1d(np.flatnonzero(watched), blind)
        noise = tolerance[asked]
        pieces = sliding_window_view(values[asked].T, NODES.size, axis=0)[:: NODES.size - 1]  # (pieces, guards, 8)
        suspects = may_cross(np.moveaxis(pieces, 2, 0), -noise).any(axis=1)
        none = np.empty((NODES.size, 0))  # rates are not known
        search = GuardSearch(
            look=lambda t: (self._guards_at(upright, t)[asked].T, none[: t.size]), noise=noise, rise=ROUNDED * noise
        )
        for k in np.flatnonzero(suspects):
            start = (NODES.size - 1) * k
            armed = np.full(asked.size, True)  # what has been zero may rise
            found = search.first(times[start : start + NODES.size], pieces[k].T, none, armed)
            if found is not None and not found.lost:
                guard = int(asked[found.guard])
                return replace(found, guard=guard, at_once=found.time <= self.model.nearest()[guard] * upright.length)
        return None

    def _is_clear(self, values: np.ndarray) -> bool:
        """Whether guards (n, samples) are all positive, and too large to dip below zero between two samples."""
        if not len(values):
            return True
        lowest = values.min(axis=1)
        if not lowest.min() >= 0.0:
            return False
        steepest = np.abs(values[:, 1:] - values[:, :-1]).max(axis=1)
        return bool(((lowest == 0.0) | (lowest >= steepest)).all())

    def _upright(self, run: ElementRun) -> ElementRun:
        """A run on the branch that its guards are about."""
        stages = _flat(run.y)
        y = self.model.coherent(run.y_node, stages, run.modes)
        return run if y is stages else replace(run, y=y.reshape(run.y.shape))

    def _guards_at(self, run: ElementRun, times: np.ndarray) -> np.ndarray:
        """Guards (n_g, m) of a run at times (m,) after its start."""
        return self.collocation.guards(*self.collocation.at(run, times), self.u, self.p, self.model.masks(run.modes))

    def _failure(self, message: str, place: str, trouble: Trouble = Trouble.MODES) -> WalkOutcome:
        return WalkOutcome(node=replace(self.node, trouble=trouble, message=message, place=place))


def _flat(stages: np.ndarray) -> np.ndarray:
    """Stage values (r, n_s, n) below each other."""
    return stages.reshape(stages.shape[0] * stages.shape[1], stages.shape[2])
