"""Motions that are possible at one state: all combinations of modes of the surfaces there, tried one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from nosnoc_py.simulation.event_driven.filippov.laws import ABOVE, BELOW, ON, Laws
from nosnoc_py.simulation.event_driven.filippov.regime import FilippovFlow, FilippovRegime, Look, regime_of
from nosnoc_py.systems.inclusion import FORCE, MEMORY, REGION, STEP
from nosnoc_py.tableaus import explicit
from nosnoc_py.tolerances import PULL

Array = np.ndarray
CLASSICAL = explicit(4)
# More combinations than this are not tried.
MOST = 3**7
# Rates of distances below this share of the largest rate (and of 1) decide nothing; what a little later does.
SLOW = 1e-8
# Modes with rates or multipliers below zero by such a share need no closer look.
FAR = 1e-3
# How far to look ahead, in time constants of the motion.
AHEAD = tuple(10.0**k for k in (-6, -5, -4, -3, -2))
# What a distance has to change ahead to be more than rounding; multipliers change by more.
MOVED, CHANGED = 1e-12, 1e-8
# Multipliers of several surfaces where Newton's method starts: equations that are not affine may have several roots.
STARTS = (0.1, 0.5, 0.9)
# Two motions are one where they agree to this in what a look ahead finds; two roots likewise.
SAME = 1e-9
# Equations whose matrix, in rows of size one, has a smaller singular value do not determine the multipliers.
SINGULAR = 1e-10
# Rounding of a difference of flows, as a share of the rate of the state.
ROUNDED = 1e-13


@dataclass(frozen=True, eq=False, kw_only=True)
class FilippovCandidate:
    """A motion that is possible: its regime, the state on its surfaces, the motion, and the state a little later."""

    regime: FilippovRegime
    x: Array
    look: Look
    later: Array


class Candidates:
    """Tries modes at one state."""

    def __init__(self, flow: FilippovFlow, t: float, touched: Array, ends: Array, guess: Array | None) -> None:
        self.flow, self.laws, self.t, self.touched, self.guess = flow, flow.laws, t, touched, guess
        self.ends = ends  # switches with hysteresis at the end of their mode: it lasts if the motion turns back there

    def count(self) -> int:
        """How many combinations there are."""
        kinds = self.laws.kinds[self.touched]
        return int(3 ** (kinds == STEP).sum() * 2 ** np.isin(kinds, (REGION, FORCE)).sum())

    def find(self, x: Array, modes: tuple[int, ...], refused: tuple[int, ...] | None) -> list[FilippovCandidate]:
        """All different motions from x; `modes` away from the touched surfaces; not those that were `refused`."""
        found: list[FilippovCandidate] = []
        for choice in combinations(self.laws, modes, self.touched):
            for made in self._tried(x, choice) if choice != refused else ():
                size = SAME * (1.0 + np.abs(made.later).max(initial=0.0))
                if not any(np.abs(made.later - other.later).max(initial=0.0) <= size for other in found):
                    found.append(made)
        return found

    def _tried(self, x: Array, modes: tuple[int, ...]) -> Iterator[FilippovCandidate]:
        """The motions in these modes, one for every root of the equations."""
        first = regime_of(self.laws, modes, self.guess)
        if self.laws.affine and self._is_far(first, x):
            return
        x = self.flow.project(first, self.t, x, self._wrong(first, x))
        for s in self._roots(first, x):
            regime = first.near(s)
            look = self.flow.look(regime, self.t, x)
            if np.isfinite(look.rate).all() and self._is_admissible(regime, x, look):
                yield FilippovCandidate(regime=regime, x=x, look=look, later=self._later(regime, x, look, AHEAD[-1]))

    def _is_far(self, regime: FilippovRegime, x: Array) -> bool:
        """Whether multipliers or rates are so far from admissible that rounding of the state cannot matter."""
        look, n_y = self.flow.look(regime, self.t, x), self.laws.n_y
        if not np.isfinite(look.rate).all():
            return False
        rates = regime.relative(look.rates)[self.touched & (regime.sign != 0.0) | self.ends]
        others = self.flow.guards(regime, x, look.s)[n_y:]
        fast, large = (
            FAR * max(1.0, np.abs(look.rates).max(initial=0.0)),
            FAR * max(1.0, np.abs(look.s).max(initial=0.0)),
        )
        return bool((rates < -fast).any() or (others < -large).any())

    def _wrong(self, regime: FilippovRegime, x: Array) -> Array:
        """Touched surfaces that are left, on whose other side the state lies by rounding."""
        away = regime.distances(self.flow.functions(x)[0])
        return np.asarray(self.touched & (regime.sign != 0.0) & (away < 0.0))

    def _roots(self, regime: FilippovRegime, x: Array) -> list[Array]:
        if regime.known is not None:
            return [regime.known]
        w, u = np.concatenate([x, self.flow.p]), self.flow.control(self.t, x)
        found: list[Array] = []
        for guess in self._starts(regime):
            s = regime.solve(w, u, guess)
            known = any(
                np.abs(s - other).max(initial=0.0) <= SAME * (1.0 + np.abs(other).max(initial=0.0)) for other in found
            )
            if np.isfinite(s).all() and not known and self._determines(regime, s, w, u):
                found.append(s)
        return found

    def _starts(self, regime: FilippovRegime) -> Iterator[Array]:
        yield regime.guess
        free = np.flatnonzero(regime.free & (self.laws.kinds == STEP))
        if self.laws.affine or not free.size or len(STARTS) ** free.size > MOST:
            return
        for values in product(STARTS, repeat=free.size):
            made = regime.guess.copy()
            made[free] = values
            yield made

    def _determines(self, regime: FilippovRegime, s: Array, w: Array, u: Array) -> bool:
        """Whether the equations have no other solution close by.

        A multiplier moves the state along a surface and across it: what is small across is so next to both together.
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

    def _is_admissible(self, regime: FilippovRegime, x: Array, look: Look) -> bool:
        """Whether distances of touched surfaces rise and multipliers are in their range, at once and a little later."""
        n_y = self.laws.n_y
        watched = self.touched & (regime.sign != 0.0) | self.ends
        rates = np.where(watched, regime.relative(look.rates), np.inf)
        others = self.flow.guards(regime, x, look.s)[n_y:]
        slow = SLOW * max(1.0, float(np.abs(look.rates).max(initial=0.0)))
        small = PULL * max(1.0, float(np.abs(look.s).max(initial=0.0)))
        if (rates < -slow).any() or (others < -small).any():
            return False
        open_ = np.concatenate([np.abs(rates) <= slow, np.abs(others) <= small])
        return not open_.any() or self._stays(regime, x, look, open_)

    def _stays(self, regime: FilippovRegime, x: Array, look: Look, open_: Array) -> bool:
        """Whether guards that are zero, and rates that are, become positive; what never moves stays."""
        n_y = self.laws.n_y
        before = self.flow.guards(regime, x, look.s)
        least = np.concatenate([np.full(n_y, MOVED), np.full(before.size - n_y, CHANGED)])
        waiting = open_.copy()
        for share in AHEAD:
            later = self._later(regime, x, look, share)
            s = self.flow.look(regime, self.t + share * self._unit(look), later, look.s).s
            with np.errstate(invalid="ignore"):
                change = self.flow.guards(regime, later, s) - before
            if (waiting & (change < -least)).any():
                return False
            waiting &= ~(change > least)
            if not waiting.any():
                return True
        return True

    def _unit(self, look: Look) -> float:
        """A time constant of the motion [s]: what is fast turns soon."""
        return 1.0 / (1.0 + float(np.abs(look.rate).max()))

    def _later(self, regime: FilippovRegime, x: Array, look: Look, share: float) -> Array:
        """One step of the classical Runge-Kutta method, whose first slope is known."""
        h = share * self._unit(look)

        def slope(theta: float, at: Array) -> Array:
            return look.rate if theta == 0.0 else self.flow.rhs(regime, self.t + theta * h, at)

        return np.asarray(CLASSICAL.step(slope, x, h))


def combinations(laws: Laws, modes: tuple[int, ...], touched: Array) -> Iterator[tuple[int, ...]]:
    """Modes of the touched functions in all ways, the others as they are; every partition has an active region."""
    choices = [_choices(int(kind), bool(on), mode) for kind, on, mode in zip(laws.kinds, touched, modes, strict=True)]
    regions = [np.flatnonzero(laws.parts == part) for part in np.unique(laws.parts[laws.kinds == REGION])]
    for made in product(*choices):
        if all(any(made[i] == ON for i in inside) for inside in regions):
            yield made


def _choices(kind: int, touched: bool, mode: int) -> tuple[int, ...]:
    if not touched or kind == MEMORY:
        return (mode,)
    return (ABOVE, BELOW, ON) if kind == STEP else (ON, ABOVE)


def touched_of(laws: Laws, values: Array, tolerance: float) -> Array:
    """Functions (n_y,) bool that are zero; of indicators those that are close to the smallest one, if several are.

    A threshold of a switch with hysteresis is reached in one of its modes only, see `FilippovNodes`.
    """
    made = (np.where(laws.kinds == FORCE, values, np.abs(values)) <= tolerance) & (laws.kinds != MEMORY)
    for part in np.unique(laws.parts[laws.kinds == REGION]):
        inside = laws.parts == part
        near = inside & (values - values[inside].min() <= tolerance)
        made[inside] = near[inside] & (near.sum() > 1)
    return np.asarray(made)
