"""Possible motions of a Filippov system at one state: all combinations of modes of the surfaces there.

Each combination (crossing, sliding, leaving for every surface) is projected onto its surfaces, solved for its
multipliers and kept if it is admissible: distances of the surfaces that are left grow, and multipliers are within their
bounds. Quantities that are zero to first order are decided by one Runge-Kutta step slightly later (`_stays`). Solutions
are unique motions: duplicates are removed by comparing the states a little later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from nosnoc_py.simulation.event_driven.filippov.laws import ABOVE, BELOW, ON, Laws
from nosnoc_py.simulation.event_driven.filippov.regime import FilippovFlow, FilippovRegime, MotionAtInstant, regime_of
from nosnoc_py.systems.inclusion import FORCE, MEMORY, STEP
from nosnoc_py.tableaus import explicit
from nosnoc_py.tolerances import PULL

Array = np.ndarray
CLASSICAL = explicit(4)
# Largest number of combinations that are tried.
MOST_COMBINATIONS = 3**7
# Rates of distances below this fraction of the largest rate (or of 1) are undecided; the motion slightly later decides.
UNDECIDED_RATE = 1e-8
# Modes with rates or multipliers below zero by this fraction are refused without a projection.
REFUSED_RATE = 1e-3
# Times at which undecided guards are evaluated again, in characteristic times of the motion.
AHEAD = tuple(10.0**k for k in (-6, -5, -4, -3, -2))
# Changes of distances and of multipliers that are more than rounding.
MOVED, CHANGED = 1e-12, 1e-8
# Initial values of free multipliers for Newton's method: equations that are not affine may have several roots.
STARTS = (0.1, 0.5, 0.9)
# Relative tolerance for two motions, or two roots, to be the same.
SAME_MOTION = 1e-9
# Smallest singular value (rows scaled to one) for which equations determine the multipliers.
SINGULAR = 1e-10
# Rounding of a difference of two flows, as a fraction of the rate of the state.
ROUNDED = 1e-13


@dataclass(frozen=True, eq=False, kw_only=True)
class FilippovCandidate:
    """Possible motion: regime, state on its surfaces, multipliers and rates."""

    regime: FilippovRegime
    x: Array
    instant: MotionAtInstant


class Candidates:
    """Search for possible motions at one state."""

    def __init__(self, flow: FilippovFlow, t: float, touched: Array, ends: Array, guess: Array | None) -> None:
        self.flow, self.laws, self.t, self.touched, self.guess = flow, flow.laws, t, touched, guess
        self.ends = ends  # switches with hysteresis at the end of their mode: it lasts if the motion turns back there

    def count(self) -> int:
        """Return the number of combinations."""
        return math.prod(self.laws.choices[self.touched].tolist())

    def find(self, x: Array, modes: tuple[int, ...], refused: tuple[int, ...] | None) -> list[FilippovCandidate]:
        """Return all different motions from x; `modes` hold away from touched surfaces, `refused` ones are left out."""
        candidates: list[FilippovCandidate] = []
        for choice in combinations(self.laws, modes, self.touched):
            for candidate in self._tried(x, choice) if choice != refused else ():
                if not any(self._is_same(candidate, other) for other in candidates):
                    candidates.append(candidate)
        return candidates

    def _is_same(self, one: FilippovCandidate, other: FilippovCandidate) -> bool:
        """Return True if two motions are the same a little later; their modes may differ, by a weight of zero."""
        first, second = (self._later(each.regime, each.x, each.instant, AHEAD[-1]) for each in (one, other))
        return bool(np.abs(first - second).max(initial=0.0) <= SAME_MOTION * (1.0 + np.abs(first).max(initial=0.0)))

    def _tried(self, x: Array, modes: tuple[int, ...]) -> Iterator[FilippovCandidate]:
        """Yield the motions in these modes, one per root of the equations."""
        first = regime_of(self.laws, modes, self.guess)
        # A cheap test before the projection: most combinations at corners are far from admissible.
        if self.laws.affine and self._is_far(first, x):
            return
        x = self.flow.project(first, self.t, x, self._wrong(first, x))
        for s in self._roots(first, x):
            regime = first.near(s)
            instant = self.flow.motion_at(regime, self.t, x)
            if np.isfinite(instant.rate).all() and self._is_admissible(regime, x, instant):
                yield FilippovCandidate(regime=regime, x=x, instant=instant)

    def _is_far(self, regime: FilippovRegime, x: Array) -> bool:
        """Return True if multipliers or rates are so far from admissible that rounding of the state cannot matter."""
        instant = self.flow.motion_at(regime, self.t, x)
        # Without a value nothing can be said: the projection and Newton's method have to try.
        if not np.isfinite(instant.rate).all():
            return False
        rates = regime.relative(instant.rates)[self.touched & (regime.sign != 0.0) | self.ends]
        if (rates < -REFUSED_RATE * max(1.0, np.abs(instant.rates).max(initial=0.0))).any():
            return True
        return bool((regime.bounds(instant.s) < -REFUSED_RATE * max(1.0, np.abs(instant.s).max(initial=0.0))).any())

    def _wrong(self, regime: FilippovRegime, x: Array) -> Array:
        """Return touched surfaces that are left although rounding puts the state on their other side."""
        away = regime.distances(self.flow.functions(x)[0])
        return np.asarray(self.touched & (regime.sign != 0.0) & (away < 0.0))

    def _roots(self, regime: FilippovRegime, x: Array) -> list[Array]:
        if regime.known is not None:
            return [regime.known]
        w, u = np.concatenate([x, self.flow.p]), self.flow.control(self.t, x)
        roots: list[Array] = []
        for guess in self._starts(regime):
            s = regime.solve(w, u, guess)
            known = any(
                np.abs(s - other).max(initial=0.0) <= SAME_MOTION * (1.0 + np.abs(other).max(initial=0.0))
                for other in roots
            )
            if np.isfinite(s).all() and not known and self._determines(regime, s, w, u):
                roots.append(s)
        return roots

    def _starts(self, regime: FilippovRegime) -> Iterator[Array]:
        yield regime.guess
        free = np.flatnonzero(regime.free & (self.laws.kinds == STEP))
        if self.laws.affine or not free.size or len(STARTS) ** free.size > MOST_COMBINATIONS:
            return
        for values in product(STARTS, repeat=free.size):
            guess = regime.guess.copy()
            guess[free] = values
            yield guess

    def _determines(self, regime: FilippovRegime, s: Array, w: Array, u: Array) -> bool:
        """Return True if the equations have no other solution close by (their matrix is regular).

        A multiplier moves the state along a surface and across it: rows are scaled by both together.
        """
        laws = self.laws
        slope, rate_s = laws.residual(s, w, u, regime.masks)[1], laws.slopes(s, w, u, regime.masks)[2]
        sizes, rate = np.abs(slope).max(axis=1, initial=0.0), np.abs(laws.motion(s, w, u, regime.masks)[0]).max()
        # Flows that are the same on both sides differ by rounding: it would hold the state on the surface.
        if (sizes[: laws.n_y][regime.free & (laws.kinds == STEP)] <= ROUNDED * rate).any():
            return False
        across = np.abs(laws.functions(w)[1][:, : laws.n_x]) @ np.abs(rate_s).max(axis=1)
        sizes[: laws.n_y][regime.free] = np.maximum(sizes[: laws.n_y], across)[regime.free]
        if not np.isfinite(slope).all() or not (sizes > 0.0).all():
            return False
        return bool(np.linalg.svd(slope / sizes[:, None], compute_uv=False)[-1] > SINGULAR)

    def _is_admissible(self, regime: FilippovRegime, x: Array, instant: MotionAtInstant) -> bool:
        """Return True if touched surfaces are left and multipliers are within bounds, now and slightly later."""
        watched = self.touched & (regime.sign != 0.0) | self.ends
        rates, others = np.where(watched, regime.relative(instant.rates), np.inf), regime.bounds(instant.s)
        slow = UNDECIDED_RATE * max(1.0, float(np.abs(instant.rates).max(initial=0.0)))
        small = PULL * max(1.0, float(np.abs(instant.s).max(initial=0.0)))
        if (rates < -slow).any() or (others < -small).any():
            return False
        # Zero to first order: whether such a guard rises or falls is decided by the motion, not by rounding.
        open_ = np.concatenate([np.abs(rates) <= slow, np.abs(others) <= small])
        return not open_.any() or self._stays(regime, x, instant, open_)

    def _stays(self, regime: FilippovRegime, x: Array, instant: MotionAtInstant, open_: Array) -> bool:
        """Return True if guards and rates that are zero become positive, or never change."""
        n_y = self.laws.n_y
        before = self.flow.guards(regime, x, instant.s)
        least = np.concatenate([np.full(n_y, MOVED), np.full(before.size - n_y, CHANGED)])
        waiting = open_.copy()
        for share in AHEAD:
            later = self._later(regime, x, instant, share)
            s = self.flow.motion_at(regime, self.t + share * self._unit(instant), later, instant.s).s
            with np.errstate(invalid="ignore"):
                change = self.flow.guards(regime, later, s) - before
            if (waiting & (change < -least)).any():
                return False
            waiting &= ~(change > least)
            if not waiting.any():
                return True
        # Guards that never change by more than rounding stay zero along the motion, which is admissible.
        return True

    def _unit(self, instant: MotionAtInstant) -> float:
        """Return the characteristic time 1 / (1 + max |x'|) of the motion [s]."""
        return 1.0 / (1.0 + float(np.abs(instant.rate).max()))

    def _later(self, regime: FilippovRegime, x: Array, instant: MotionAtInstant, share: float) -> Array:
        """Return the state after a step of the classical Runge-Kutta method, whose first slope is known."""
        h = share * self._unit(instant)

        def slope(theta: float, at: Array) -> Array:
            return instant.rate if theta == 0.0 else self.flow.rhs(regime, self.t + theta * h, at)

        return np.asarray(CLASSICAL.step(slope, x, h))


def combinations(laws: Laws, modes: tuple[int, ...], touched: Array) -> Iterator[tuple[int, ...]]:
    """Yield all modes of the touched functions, others unchanged; each partition has an active region."""
    choices = [_choices(int(kind), bool(on), mode) for kind, on, mode in zip(laws.kinds, touched, modes, strict=True)]
    for combination in product(*choices):
        # A partition without an active region would have weights with sum zero.
        if all(any(combination[i] == ON for i in inside) for inside in laws.partitions):
            yield combination


def _choices(kind: int, touched: bool, mode: int) -> tuple[int, ...]:
    if not touched or kind == MEMORY:
        return (mode,)
    return (ABOVE, BELOW, ON) if kind == STEP else (ON, ABOVE)


def touched_of(laws: Laws, values: Array, tolerance: float) -> Array:
    """Return which functions (n_y,) are zero; of indicators those close to the smallest one, if there are several.

    A threshold of a switch with hysteresis is reached in one of its modes only, see `FilippovNodes`.
    """
    # A force acts on one side of its function only: a constraint that is violated is touched as well.
    touched = (np.where(laws.kinds == FORCE, values, np.abs(values)) <= tolerance) & (laws.kinds != MEMORY)
    for inside in laws.partitions:
        near = values[inside] - values[inside].min() <= tolerance
        touched[inside] = near & (near.sum() > 1)
    return np.asarray(touched)
