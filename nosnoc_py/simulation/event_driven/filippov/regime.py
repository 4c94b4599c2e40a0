"""Regimes of a Filippov system (modes of all multipliers), and its smooth motion in them.

`FilippovFlow` has the same interface as `ContactFlow`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import casadi as ca
import numpy as np

from nosnoc_py.implicit_function import derivative
from nosnoc_py.simulation.event_driven.compiled_loop import compiled_loop
from nosnoc_py.simulation.event_driven.filippov.compiled_motion import PROJECTIONS, compiled_steps_of
from nosnoc_py.simulation.event_driven.filippov.laws import ABOVE, BELOW, ON, Laws
from nosnoc_py.simulation.event_driven.motions import InterpretedMotion, WrittenMotion
from nosnoc_py.simulation.event_driven.options import INCREMENT, EventDriven
from nosnoc_py.simulation.event_driven.records import Held, Sample
from nosnoc_py.simulation.event_driven.steps import noise_of
from nosnoc_py.systems.inclusion import FORCE, MEMORY, REGION, STEP
from nosnoc_py.systems.scales import UNIT
from nosnoc_py.tolerances import CROSSED, PULL

Array = np.ndarray
DISTANCE, LOW, HIGH = range(3)
"""Blocks of guards, each with one per multiplier: distance of the state from a surface, multiplier minus its lower
bound,
upper bound minus multiplier. They are followed by the distances of algebraic variables from their bounds.
"""
# Newton's method for multipliers and algebraic variables: iterations, and the last relative step (quadratic convergence
# makes the next one invisible).
NEWTON_STEPS, NEWTON_STEP = 30, 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class FilippovRegime:
    """Modes of all multipliers, with the quantities that depend on them.

    Attributes
    ----------
    modes : (n_y,) of ints
        As in `laws`.
    guess : (n_y + n_z,)
        Multipliers and algebraic variables near those of the motion: with several solutions it tells which one.
    """

    laws: Laws
    modes: tuple[int, ...]
    guess: Array

    def complete(self) -> FilippovRegime:
        """Return the regime with all cached properties evaluated, so that copies share them."""
        for name, value in vars(FilippovRegime).items():
            if isinstance(value, cached_property):
                getattr(self, name)
        return self

    def near(self, guess: Array) -> FilippovRegime:
        """Return the same modes with another guess, sharing the cached properties."""
        regime = FilippovRegime(laws=self.laws, modes=self.modes, guess=guess)
        # Cached properties depend on the modes only; computed anew at each step they would cost more than the step.
        vars(regime).update({name: value for name, value in vars(self).items() if name != "guess"})
        return regime

    @cached_property
    def on(self) -> Array:
        """Free multipliers and active regions (n_y,) bool."""
        return np.array(self.modes, dtype=int) == ON

    @cached_property
    def reference(self) -> Array:
        """Active region (n_y,) that indicators of a partition are compared with; -1 for other kinds."""
        regions = np.full(self.laws.n_y, -1)
        for inside in self.laws.partitions:
            # Any active region would do as the reference; the first one makes the choice unique.
            regions[inside] = inside[self.on[inside]][0]
        return regions

    @cached_property
    def sign(self) -> Array:
        """Side of the surface the state is on (n_y,): +1, -1, or 0 on it."""
        return np.array(self.modes, dtype=float)

    @cached_property
    def free(self) -> Array:
        """Multipliers (n_y,) bool that are determined by rates."""
        return np.asarray(self.on & (self.reference != np.arange(self.laws.n_y)))

    @cached_property
    def masks(self) -> Array:
        """Values of `Masks` (3 n_y,)."""
        index = np.arange(self.laws.n_y)
        # Only step functions are 1 on the upper side; weights and forces that are not free are 0.
        value = self.laws.steps_up & (self.sign > 0.0)
        return np.concatenate([self.free, self.reference == index, value]).astype(float)

    @cached_property
    def shares(self) -> Array:
        """Active regions (n_y,) bool that share the motion with others."""
        parts = self.laws.parts
        many = np.bincount(parts, self.on)[parts] > 1.0
        return np.asarray(self.on & many & (self.laws.kinds == REGION))

    @cached_property
    def known(self) -> Array | None:
        """Multipliers (n_y,) if no equation has to be solved for them; otherwise None."""
        laws = self.laws
        if laws.n_z or self.free.any():
            return None
        alone = (laws.kinds == REGION) & self.on
        return np.where(alone, 1.0, self.masks[2 * laws.n_y :])

    @cached_property
    def bounded(self) -> tuple[Array, Array]:
        """Multipliers (n_y,) bool with a lower and with an upper bound of their own."""
        kinds = self.laws.kinds
        return self.shares | (self.on & (kinds != REGION)), self.on & (kinds == STEP)

    def bounds(self, s: Array) -> Array:
        """Return the guards (2 n_y + 2 n_z,) of multipliers and algebraic variables; infinite without a bound."""
        laws, (low, high) = self.laws, self.bounded
        y, z = s[: laws.n_y], s[laws.n_y :]
        bounds = [np.where(low, y, np.inf), np.where(high, 1.0 - y, np.inf), z - laws.lower, laws.upper - z]
        return np.concatenate(bounds)

    def solve(self, w: Array, u: Array, guess: Array | None = None) -> Array:
        """Return multipliers and algebraic variables (n_y + n_z,) by Newton's method; NaN without convergence."""
        if self.known is not None:
            return self.known
        s = self.guess if guess is None else guess
        for _ in range(NEWTON_STEPS):
            rows, slope = self.laws.residual(s, w, u, self.masks)
            try:
                step = np.linalg.solve(slope, -rows[:, 0])
            except np.linalg.LinAlgError:
                break
            s = s + step
            # One step solves affine equations exactly.
            if self.laws.affine or np.abs(step).max(initial=0.0) <= NEWTON_STEP * (1.0 + np.abs(s).max(initial=0.0)):
                return s
            if not np.isfinite(step).all():
                break
        return np.full(s.size, np.nan)

    def solve_many(self, w: Array, u: Array) -> Array:
        """Return multipliers and algebraic variables (m, n_y + n_z) at w (m, n_w) and u (m, n_u)."""
        if self.known is not None or self.laws.affine:
            s = np.tile(self.guess if self.known is None else self.known, (len(w), 1))
            if self.known is None:
                rows, slope = self.laws.residual_many(s, w, u, self.masks)
                s = s + derivative(slope, rows)[..., 0]
            return s
        return np.array([self.solve(*at) for at in zip(w, u, strict=True)])

    def relative_of(self, values: ca.SX) -> ca.SX:
        """Return `relative` for expressions (n_y,)."""
        compared = [values[int(k)] if k >= 0 else 0 for k in self.reference]
        return ca.vertcat(*[float(self.sign[i]) * (values[i] - compared[i]) for i in range(self.laws.n_y)])

    def distances_of(self, values: ca.SX) -> ca.SX:
        """Return `distances` for expressions (n_y,)."""
        return self.relative_of(values) + ca.DM(self.laws.reach)

    def distances(self, values: Array) -> Array:
        """Return the functions (n_y,) as distances of the state from where its mode ends."""
        return self.relative(values) + self.laws.reach

    def relative(self, values: Array) -> Array:
        """Return functions (n_y, ...), or their rates, as signed distances from the surfaces."""
        if self.laws.partitions:
            regions = self.reference >= 0
            values = values.copy()
            values[regions] -= values[self.reference[regions]]
        return np.asarray(values * (self.sign if values.ndim == 1 else self.sign[:, None]))


@dataclass(frozen=True, eq=False, kw_only=True)
class MotionAtInstant:
    """Motion at one instant: multipliers s (n_y + n_z,), dx/dt (n_x,), and rates of the functions (n_y,)."""

    s: Array
    rate: Array
    rates: Array


class FilippovFlow:
    """Smooth motion of a Filippov system under one control law, in any regime."""

    not_finite = "the flow, a multiplier or an algebraic variable has no finite value"
    scales = UNIT

    def __init__(self, laws: Laws, options: EventDriven, control: Callable[[float, Array], Array], p: Array) -> None:
        self.laws, self.options, self.control, self.p = laws, options, control, p
        self.atol, self.names = options.atol, laws.names
        self.distances = laws.n_y  # so many guards, the first ones, are distances from surfaces
        self._motions: dict[tuple[bool, tuple[int, ...]], InterpretedMotion] = {}
        # Distances have the rounding of a crossing, multipliers that of forces, relative to the largest one.
        kinds = [[CROSSED, 0.0, 0.0], [0.0, PULL, 0.0], [0.0, 0.0, PULL]]
        self.noise = noise_of(np.repeat(kinds, [laws.n_y, 2 * laws.n_y, 2 * laws.n_z], 1), laws.n_y)

    def motion_at(self, regime: FilippovRegime, t: float, x: Array, guess: Array | None = None) -> MotionAtInstant:
        """Return multipliers and rates."""
        w, u = np.concatenate([x, self.p]), self.control(t, x)
        s = regime.solve(w, u, guess)
        flow, rates = self.laws.motion(s, w, u, regime.masks)
        return MotionAtInstant(s=s, rate=flow[:, 0], rates=rates[:, 0])

    @property
    def widths(self) -> tuple[int, int, int]:
        """Numbers of guards, forces and rates in a `Sample`."""
        n_y, n_z = self.laws.n_y, self.laws.n_z
        return 3 * n_y + 2 * n_z, n_y + n_z, n_y

    def motion(self, regime: FilippovRegime) -> InterpretedMotion:
        """Return the motion for the loop of `explicit`: written out under a constant control, where it is small."""
        if not isinstance(self.control, Held) or (steps := compiled_steps_of(regime)) is None:
            return InterpretedMotion(self, regime)
        perform = compiled_loop(small=True)
        key = perform is None, regime.modes
        if key not in self._motions:
            written = WrittenMotion(self, regime, steps, np.concatenate([self.p, self.control.u]))
            self._motions[key] = written.compiled(perform)
        self._motions[key].follow(regime)
        return self._motions[key]

    def is_small(self, regime: FilippovRegime) -> bool:
        """Return True if one call evaluates a whole step."""
        return isinstance(self.control, Held) and compiled_steps_of(regime) is not None

    def functions(self, x: Array) -> tuple[Array, Array]:
        """Return switching functions, indicators or constraints (n_y,), and their derivatives (n_y, n_w)."""
        values, slopes = self.laws.functions(np.concatenate([x, self.p]))
        return values[:, 0], slopes

    def rhs(self, regime: FilippovRegime, t: float, x: Array) -> Array:
        """Return dx/dt (n_x,); NaN if the multipliers have no value."""
        return self.motion_at(regime, t, x).rate

    def sample(self, regime: FilippovRegime, t: float, x: Array) -> Sample:
        """Return guards, multipliers with algebraic variables, and rates of distances."""
        instant = self.motion_at(regime, t, x)
        return Sample(guards=self.guards(regime, x, instant.s), forces=instant.s, rates=regime.relative(instant.rates))

    def distance(self, guard: int, x: Array) -> None:
        """Return nothing: distances are evaluated together."""

    def distance_accelerations(self, regime: FilippovRegime, t: float, x: Array) -> Array:
        """Return NaN: a surface reached without speed is decided by the candidates, see `candidates`."""
        return np.full(self.distances, np.nan)

    def guards(self, regime: FilippovRegime, x: Array, s: Array) -> Array:
        """Return guards (3 n_y + 2 n_z,), see `DISTANCE`; those that do not apply are infinite."""
        away = np.where(regime.sign != 0.0, regime.distances(self.functions(x)[0]), np.inf)
        return np.concatenate([away, regime.bounds(s)])

    def project(self, regime: FilippovRegime, t: float, x: Array, more: Array | None = None) -> Array:
        """Project a state onto the surfaces of a sliding mode (and on `more` of them), in the metric of the system."""
        rows = np.flatnonzero(regime.free if more is None else regime.free | more)
        if not rows.size:
            return x
        metric, reference = self.laws.metric, regime.reference[rows]
        for _ in range(PROJECTIONS):
            c, c_w = self.functions(x)
            compared = (reference >= 0).astype(float)
            value = c[rows] - compared * c[reference]
            slope = (c_w[rows] - compared[:, None] * c_w[reference])[:, : x.size]
            # The shortest way back in the metric of the system, as for contacts: a Delassus matrix of the surfaces.
            size = slope @ metric @ slope.T
            one = rows.size == 1 and size[0, 0] > 0.0
            back = value / size[0] if one else np.linalg.lstsq(size, value, rcond=1e-12)[0]
            x = x - metric @ slope.T @ back
        return x

    def enabled(self, regime: FilippovRegime, t: float, x: Array) -> Array:
        """Return all finite guards as enabled: the node has checked that those at zero rise."""
        return np.isfinite(self.sample(regime, t, x).guards)

    def inertia(self, regime: FilippovRegime, t: float, x: Array) -> float:
        """Return 1: the unit of multipliers."""
        return 1.0

    def updated(self, regime: FilippovRegime, t: float, x: Array) -> FilippovRegime:
        """Return the same modes with the current multipliers as guess, where equations are not affine."""
        if regime.known is not None or self.laws.affine:
            return regime
        s = self.motion_at(regime, t, x).s
        # A failed evaluation keeps the last guess: NaN would make all later iterations fail.
        return regime.near(s) if np.isfinite(s).all() else regime

    def has_stiff_start(self, regime: FilippovRegime, t: float, x: Array) -> bool:
        """Return False: no regime is stiff only at its start."""
        return False

    def increments(self, regime: FilippovRegime, t: float, x: Array, *, has_stiff_start: bool) -> Array:
        """Return increments (n_x,) of the states for a finite-difference Jacobian."""
        return np.asarray(INCREMENT * np.maximum(1.0, np.abs(x)))


def regime_of(laws: Laws, modes: tuple[int, ...], guess: Array | None = None) -> FilippovRegime:
    """Return a regime (cached). Without a guess free multipliers start in the middle of their range."""
    known: FilippovRegime | None = laws.regimes.get(modes)
    if known is not None and known.known is not None:
        return known  # a guess would not matter
    if guess is None:
        start = np.where(laws.kinds == FORCE, 0.0, 0.5)
        guess = np.concatenate([start, laws.initial])
    signs = np.array(modes, dtype=float)
    fixed = np.where(laws.steps_up & (signs > 0.0), 1.0, 0.0)
    guess = np.concatenate([np.where(signs != 0.0, fixed, guess[: laws.n_y]), guess[laws.n_y :]])
    if known is None:
        known = laws.regimes[modes] = FilippovRegime(laws=laws, modes=modes, guess=guess).complete()
    return known.near(guess)


def sides(laws: Laws, values: Array) -> tuple[int, ...]:
    """Return the modes (n_y,) by the signs of the functions, as if the state were on no surface."""
    modes = np.where((values >= 0.0) | (laws.kinds == FORCE), ABOVE, BELOW)
    # Between its thresholds a switch with hysteresis keeps its initial mode.
    remembered = (laws.kinds == MEMORY) & (np.abs(values) < 1.0)
    modes[remembered] = np.where(laws.high, ABOVE, BELOW)[remembered]
    for inside in laws.partitions:
        modes[inside] = ABOVE
        # Stewart's indicators: the region with the smallest one is active.
        modes[inside[int(np.argmin(values[inside]))]] = ON
    return tuple(int(mode) for mode in modes)
