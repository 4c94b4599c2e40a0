"""Monte Carlo test of a tracking law: final errors with feedback and open loop for random starts and parameters.

The law is computed from a linearisation about one motion; the test simulates the nonlinear plant with its events. Every
draw of initial state, parameters and noise is simulated twice, with feedback and with the planned control alone, so
that the two samples are paired. All random numbers follow from one seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from nosnoc_py.api import simulate
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.windows import PlanWindows
from nosnoc_py.errors import OptionError, check_whole, unknown_name
from nosnoc_py.processes import mapped
from nosnoc_py.simulation.certification.windows import state_at
from nosnoc_py.simulation.event_driven.options import THROUGH_TOUCHES
from nosnoc_py.systems.controls import SampledLaw
from nosnoc_py.systems.described import Described

if TYPE_CHECKING:  # pragma: no cover - for readers and type checkers
    from nosnoc_py.control.tracking import TrackingLaw

Array = np.ndarray
# A run is lost if its final error exceeds this fraction of the extent of the plan (the largest range of a coordinate),
# or if the simulation stops early.
LOST_FRACTION = 0.1


@dataclass(frozen=True, eq=False, kw_only=True)
class Robustness:
    """Final errors of a plan with feedback and open loop, for each random draw.

    Attributes
    ----------
    starts : (n, n_x)
        Initial states.
    parameters : (n, n_p)
        Parameters of the plant.
    tracked, open_loop : (n, n_x)
        Final state minus that of the plan; NaN if the simulation stopped early.
    positions : tuple of int
        Indices of the states in the final error: the coordinates, or all states of a system without coordinates.
    names : tuple of str
        Names of the states.
    lost_beyond : float
        Runs with a larger final error count as lost.
    """

    starts: Array
    parameters: Array
    tracked: Array
    open_loop: Array
    positions: tuple[int, ...]
    names: tuple[str, ...]
    lost_beyond: float

    @property
    def errors(self) -> Array:
        """Largest final error of a coordinate (n,) with feedback; infinite if the simulation stopped early."""
        return self._errors(self.tracked)

    @property
    def open_loop_errors(self) -> Array:
        """Largest final error of a coordinate (n,) of the open-loop control."""
        return self._errors(self.open_loop)

    @property
    def lost(self) -> int:
        """Number of runs with feedback whose final error exceeds `lost_beyond`."""
        return int((self.errors > self.lost_beyond).sum())

    def _errors(self, ends: Array) -> Array:
        worst = np.abs(ends[:, list(self.positions)]).max(axis=1)
        return np.where(np.isnan(worst), np.inf, worst)

    def __repr__(self) -> str:
        def quantiles(errors: Array) -> str:
            # "higher" returns an error that occurred; interpolation with the infinite error of a lost run would give
            # NaN.
            median, most = np.percentile(errors, [50, 90], method="higher")
            return f"median {median:.3g}, p90 {most:.3g}, largest {errors.max():.3g}"

        return (
            f"Robustness: {len(self.errors)} draws, end error with feedback {quantiles(self.errors)} "
            f"({self.lost} lost), open loop {quantiles(self.open_loop_errors)}"
        )


def robustness(
    law: TrackingLaw,
    *,
    x0: Any,
    parameters: Any,
    noise: Any,
    actuators: float,
    n: int,
    seed: int,
    plant: Described | None,
    method: Any,
    workers: int = 1,
) -> Robustness:
    """Simulate random draws of a tracking law; see `TrackingLaw.robustness`."""
    check_whole(**{"robustness: n": n})
    system = law.system if plant is None else plant
    if system.state_names != law.system.state_names or system.n_u != law.system.n_u:
        raise OptionError("robustness: plant: expected a system with the states and controls of the plan.")
    rng, method = np.random.default_rng(seed), THROUGH_TOUCHES if method is None else method
    # Parameters of another plant may mean something else: it has its own defaults.
    nominal = system.parameters(law.p if plant is None else None)
    half_widths, sigma = spread(x0, law.system, "x0"), spread(noise, law.system, "noise", coordinates=False)
    ranges = _parameter_ranges(parameters, system)
    # Without randomness all draws are equal.
    n = n if half_widths.any() or sigma.any() or ranges.any() else 1
    planned, end = law.states[0], state_at(law.plan, law.plan.duration, "-")
    draws = []
    for _ in range(n):
        # All random numbers come before the simulations: their sequence does not depend on how these end.
        p = nominal + ranges * rng.uniform(-1.0, 1.0, ranges.size)
        start = admissible(system, planned + half_widths * rng.uniform(-1.0, 1.0, half_widths.size), p)
        draws.append((start, p, sigma * rng.standard_normal((len(law.windows) + 1, half_widths.size))))

    def errors(draw: tuple[Array, Array, Array]) -> list[Array]:
        """Return the final errors with feedback and without, for the same draw: the two samples are paired."""
        start, p, noises = draw
        pair = []
        for feedback in (True, False):
            control = _ActuatedControl(law, actuators, noises if feedback else None)
            motion = simulate(
                system, x0=start, duration=law.plan.duration, u=SampledLaw(control, law.period), p=p, method=method
            )
            lost = np.full(end.size, np.nan)
            pair.append(deviation(law.system, motion.final_state, end) if motion.success else lost)
        return pair

    tracked, open_loop = (np.array(ends) for ends in zip(*mapped(errors, draws, workers), strict=True))
    positions = range(*system.positions.indices(end.size))
    extent = np.ptp(law.states[:, list(positions)], axis=0).max()
    return Robustness(
        starts=np.array([draw[0] for draw in draws]), parameters=np.array([draw[1] for draw in draws]),
        tracked=tracked, open_loop=open_loop, positions=tuple(positions), names=system.state_names,
        lost_beyond=LOST_FRACTION * float(extent),
    )  # fmt: skip


class _ActuatedControl:
    """Control that reaches the plant: actuator factor times the law (with measurement noise) or the planned control."""

    def __init__(self, law: TrackingLaw, share: float, noises: Array | None) -> None:
        self.law, self.share, self.noises = law, share, noises
        times, plan = law.times, PlanWindows(law.system, law.plan, law.p)
        self.planned = [plan.mean(float(a), float(b)) for a, b in pairwise(times)]

    def __call__(self, t: float, x: Array) -> Array:
        # `t` is a sampling time up to rounding, hence the nearest sample and not the last one.
        k = min(round(t / self.law.period), len(self.law.windows) - 1)
        u = self.planned[k] if self.noises is None else self.law(t, x + self.noises[k])
        return np.asarray(self.share * u)


def spread(widths: Any, system: Described, what: str, *, coordinates: bool = True) -> Array:
    """Expand deviations to (n_x,): a number (for all coordinates, or all states), an array, or a mapping by name."""
    names = system.state_names
    array = np.zeros(len(names))
    if widths is None:
        return array
    if isinstance(widths, Mapping):
        for name, value in widths.items():
            if name not in names:
                raise OptionError(f"{what}: {unknown_name(name, names)}")
            array[names.index(name)] = float(value)
    elif np.ndim(widths) == 0:
        array[system.positions if coordinates else slice(None)] = float(widths)
    else:
        value = np.asarray(widths, dtype=float)
        if value.shape != array.shape:
            raise OptionError(f"{what}: expected a number, {array.size} numbers or names of states, given {widths!r}.")
        array = value
    if not (np.isfinite(array).all() and (array >= 0.0).all()):
        raise OptionError(f"{what}: expected finite numbers that are not negative, given {widths!r}.")
    return array


def _parameter_ranges(ranges: Any, system: Described) -> Array:
    array = np.zeros(system.n_p)
    if ranges is None:
        return array
    if isinstance(ranges, Mapping):
        for name, value in ranges.items():
            if name not in system.parameter_names:
                raise OptionError(f"parameters: {unknown_name(name, system.parameter_names)}")
            array[system.parameter_names.index(name)] = float(value)
        return array
    value = np.asarray(ranges, dtype=float)
    if value.shape not in {(), array.shape}:
        raise OptionError(f"parameters: expected {array.size} numbers or names of parameters, given {ranges!r}.")
    return array + value


def deviation(system: Described, x: Any, reference: Array) -> Array:
    """Return x minus a reference (n_x,); quaternions q and -q are the same attitude, so take the nearer sign."""
    x = np.array(x, dtype=float)
    for part in system.unit_parts:
        # sign(0) = 0 for attitudes half a turn apart would delete the quaternion: either sign will do.
        x[part] *= np.sign(x[part] @ reference[part]) or 1.0
    return np.asarray(x - reference)
