"""What becomes of a plan from other starts and with other parameters: with feedback, and without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from nosnoc_py.api import simulate
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.windows import PlanWindows
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.simulation.certification.windows import state_at
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import SampledLaw
from nosnoc_py.systems.described import Described

if TYPE_CHECKING:  # pragma: no cover - for readers and type checkers
    from nosnoc_py.control.tracking import TrackingLaw

Array = np.ndarray
# A run is lost where the simulation ends early, or further from the plan's end than this share of the plan's extent.
LOST = 0.1


@dataclass(frozen=True, eq=False, kw_only=True)
class Robustness:
    """End errors of a plan with feedback and without, draw by draw.

    Attributes
    ----------
    starts : (n, n_x)
    parameters : (n, n_p)
    tracked, open_loop : (n, n_x)
        States at the end less that of the plan; NaN where a simulation ended early.
    positions : tuple of int
        The states that count as the end error: the coordinates, or all states of a system without.
    names : tuple of str
        Of the states.
    lost_beyond : float
        End errors above this are lost runs.
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
        """Largest error of a coordinate at the end (n,) with feedback; infinite where a simulation ended early."""
        return self._errors(self.tracked)

    @property
    def open_loop_errors(self) -> Array:
        """The same without feedback."""
        return self._errors(self.open_loop)

    @property
    def lost(self) -> int:
        """Runs that end further off than `lost_beyond`, or early."""
        return int((self.errors > self.lost_beyond).sum())

    def _errors(self, ends: Array) -> Array:
        worst = np.abs(ends[:, list(self.positions)]).max(axis=1)
        return np.where(np.isnan(worst), np.inf, worst)

    def __repr__(self) -> str:
        def told(errors: Array) -> str:
            median, most = np.percentile(errors, [50, 90], method="higher")
            return f"median {median:.3g}, p90 {most:.3g}, largest {errors.max():.3g}"

        return (
            f"Robustness: {len(self.errors)} draws, end error with feedback {told(self.errors)} "
            f"({self.lost} lost), open loop {told(self.open_loop_errors)}"
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
) -> Robustness:
    """See `TrackingLaw.robustness`."""
    from nosnoc_py.control.tracking import deviation

    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise OptionError(f"robustness: n: expected a positive whole number of draws, given {n!r}.")
    system = law.system if plant is None else plant
    if system.state_names != law.system.state_names or system.n_u != law.system.n_u:
        raise OptionError("robustness: plant: expected a system with the states and controls of the plan.")
    rng, method = np.random.default_rng(seed), EventDriven(grazing="continue") if method is None else method
    nominal = system.parameters(law.p if plant is None else None)
    wide, sigma = spread(x0, law.system, "x0"), spread(noise, law.system, "noise", coordinates=False)
    ranges = _parameter_ranges(parameters, system)
    n = n if wide.any() or sigma.any() or ranges.any() else 1
    planned, end = law.states[0], state_at(law.plan, law.plan.duration, "-")
    starts, values, ends = [], [], {True: list[Array](), False: list[Array]()}
    for _ in range(n):
        p = nominal + ranges * rng.uniform(-1.0, 1.0, ranges.size)
        start = admissible(system, planned + wide * rng.uniform(-1.0, 1.0, wide.size), p)
        noises = sigma * rng.standard_normal((len(law.windows) + 1, wide.size))
        for feedback in (True, False):
            control = _Acting(law, actuators, noises if feedback else None)
            motion = simulate(
                system, x0=start, duration=law.plan.duration, u=SampledLaw(control, law.period), p=p, method=method
            )
            reached = motion.success
            ends[feedback].append(
                deviation(law.system, motion.final_state, end) if reached else np.full(end.size, np.nan)
            )
        starts.append(start)
        values.append(p)
    positions = range(*system.at_q.indices(end.size)) if isinstance(system, CLS) else range(end.size)
    extent = np.ptp(law.states[:, list(positions)], axis=0).max()
    return Robustness(
        starts=np.array(starts), parameters=np.array(values), tracked=np.array(ends[True]),
        open_loop=np.array(ends[False]), positions=tuple(positions), names=system.state_names,
        lost_beyond=LOST * float(extent),
    )  # fmt: skip


class _Acting:
    """What actuators make of the control, of the law (with noise on what it sees) or of the plan alone."""

    def __init__(self, law: TrackingLaw, share: float, noises: Array | None) -> None:
        self.law, self.share, self.noises = law, share, noises
        times, plan = law.times, PlanWindows(law.system, law.plan, law.p)
        self.planned = [plan.mean(float(a), float(b)) for a, b in pairwise(times)]

    def __call__(self, t: float, x: Array) -> Array:
        k = min(round(t / self.law.period), len(self.law.windows) - 1)
        u = self.planned[k] if self.noises is None else self.law(t, x + self.noises[k])
        return np.asarray(self.share * u)


def spread(given: Any, system: Described, what: str, *, coordinates: bool = True) -> Array:
    """How far every state may be off (n_x,): of a number (for all coordinates, or all states), (n_x,), or by names."""
    names = system.state_names
    made = np.zeros(len(names))
    if given is None:
        return made
    if isinstance(given, Mapping):
        for name, value in given.items():
            if name not in names:
                raise OptionError(f"{what}: {unknown_name(name, names)}")
            made[names.index(name)] = float(value)
    elif np.ndim(given) == 0:
        made[system.at_q if coordinates and isinstance(system, CLS) else slice(None)] = float(given)
    else:
        value = np.asarray(given, dtype=float)
        if value.shape != made.shape:
            raise OptionError(f"{what}: expected a number, {made.size} numbers or names of states, given {given!r}.")
        made = value
    if not (np.isfinite(made).all() and (made >= 0.0).all()):
        raise OptionError(f"{what}: expected finite numbers that are not negative, given {given!r}.")
    return made


def _parameter_ranges(given: Any, system: Described) -> Array:
    made = np.zeros(system.n_p)
    if given is None:
        return made
    if isinstance(given, Mapping):
        for name, value in given.items():
            if name not in system.parameter_names:
                raise OptionError(f"parameters: {unknown_name(name, system.parameter_names)}")
            made[system.parameter_names.index(name)] = float(value)
        return made
    value = np.asarray(given, dtype=float)
    if value.shape not in {(), made.shape}:
        raise OptionError(f"parameters: expected {made.size} numbers or names of parameters, given {given!r}.")
    return made + value
