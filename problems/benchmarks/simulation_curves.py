"""Errors of all simulators over the number of steps, on two balls with a spring and on the oscillator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import oscillator, two_balls_spring
from nosnoc_py.progress import Progress
from problems.runner import Meter

Array = NDArray[np.float64]

FAMILIES = {"radau_iia": "Radau", "gauss_legendre": "Gauss"}
STEPPING = {"moreau_jean": "Moreau-Jean", "stewart_trinkle": "Stewart-Trinkle"}
FIXED_STAGES = 2
FINER = 16
LEAST_POINTS = 3
EVENT_DRIVEN = ns.EventDriven(rtol=1e-13, atol=1e-14)


@dataclass(frozen=True, eq=False, kw_only=True)
class Example:
    """A motion, its exact end, and the range of errors (floor, ceiling) in which a power of the step shows."""

    title: str
    system: Any
    method: ns.FESD
    start: tuple[float, ...]
    duration: float
    end: Array
    units: str
    clean: tuple[float, float]

    def error(self, trajectory: ns.Trajectory) -> float:
        """Of the state at the end; NaN if it was not reached."""
        return float(np.abs(trajectory.final_state - self.end).max()) if trajectory.success else np.nan


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Errors of one method over the number of steps.

    Parameters
    ----------
    kind : {"elements", "fixed", "time-stepping"}
    scheme : str
    rk_stages : int
        0 for time-stepping.
    nominal : int
        Order that it should have; 0 for none.
    steps, errors : (runs,)
        NaN where a step failed.
    fallbacks : (runs,)
        Steps that Newton's method left to the MPCC; fixed steps are all MPCCs.
    clean : (floor, ceiling)
        Of the errors that the order is fitted to.
    """

    kind: str
    scheme: str
    rk_stages: int
    nominal: int
    steps: tuple[int, ...]
    errors: tuple[float, ...]
    fallbacks: tuple[int, ...]
    clean: tuple[float, float]

    @property
    def order(self) -> float | None:
        """Slope of the errors over the steps in the clean range; None if there is too little of it.

        Once an error is below the floor, rounding decides over it and over those of all shorter steps.
        """
        errors = np.array(self.errors)
        rounded = np.logical_or.accumulate(errors <= self.clean[0])
        good = ~rounded & (errors < self.clean[1])
        if good.sum() < LEAST_POINTS:
            return None
        return float(np.polyfit(-np.log(np.array(self.steps)[good]), np.log(errors[good]), 1)[0])

    @property
    def label(self) -> str:
        """What tells it from the others."""
        if self.kind == "time-stepping":
            return STEPPING[self.scheme]
        return f"{FAMILIES[self.scheme]} {self.rk_stages}" + (", fixed" if self.kind == "fixed" else "")

    @property
    def failures(self) -> int:
        """Runs in which a step found no solution."""
        return int(np.isnan(self.errors).sum())

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name."""
        return {**vars(self), "label": self.label, "order": self.order, "failures": self.failures}


@dataclass(frozen=True, kw_only=True)
class Panel:
    """All curves of an example, and the error of event-driven simulation."""

    title: str
    units: str
    curves: tuple[Curve, ...]
    rounding: float


def two_balls(stiffness: float = two_balls_spring.PAPER.stiffness) -> Example:
    """With a spring [N/m], by default that of the paper, for one second; the fastest impact has about 4 m/s."""
    start = (1.0, 2.0, 0.0, 0.0)
    constants = two_balls_spring.Constants(stiffness=stiffness)
    return Example(
        title=f"two balls, spring of {stiffness:g} N/m (impacts)",
        system=two_balls_spring.build(stiffness),
        method=ns.FESDJ(finite_elements=2),
        start=start,
        duration=1.0,
        end=two_balls_spring.exact(1.0, start[:2], start[2:], constants)([1.0])[0],
        units="m, m/s",
        clean=(1e-12, 0.4),
    )


def circle() -> Example:
    """The oscillator, until pi / 2 s."""
    duration = float(np.pi / 2.0)
    return Example(
        title="oscillator (a switch)",
        system=oscillator.build(),
        method=ns.FESD(finite_elements=2),
        start=oscillator.STANDARD.start,
        duration=duration,
        end=oscillator.exact([duration])[0],
        units="-",
        clean=(1e-11, 0.5),
    )


def by_elements(example: Example, steps: int, callback: Any = None, **options: Any) -> tuple[ns.Trajectory, int]:
    """A simulation by finite elements, and how many steps Newton's method did not do alone."""
    meter = Meter(callback or (lambda state: None))
    trajectory = ns.simulate(
        example.system,
        x0=example.start,
        duration=example.duration,
        steps=steps,
        method=example.method.replace(**options),
        callback=meter,
    )
    return trajectory, meter.homotopies


def curve_of(
    example: Example, scheme: str, stages: int, steps: Sequence[int], *, detect: bool = True, callback: Any = None
) -> Curve:
    """Simulate by finite elements with every number of steps; without `detect` the steps are fixed."""
    options = dict(scheme=scheme, rk_stages=stages, switch_detection=detect)
    found = [by_elements(example, count, callback, **options) for count in steps]
    order = 2 * stages - (scheme == "radau_iia")
    return Curve(
        kind="elements" if detect else "fixed",
        scheme=scheme,
        rk_stages=stages,
        nominal=order if detect else int(not isinstance(example.system, ns.CLS)),
        steps=tuple(steps),
        errors=tuple(example.error(trajectory) for trajectory, _ in found),
        fallbacks=tuple(count for _, count in found),
        clean=example.clean,
    )


def stepping_of(example: Example, scheme: str, steps: Sequence[int], callback: Any = None) -> Curve:
    """Simulate by time-stepping with every number of steps."""
    common: dict[str, Any] = dict(x0=example.start, duration=example.duration, callback=callback)
    method = ns.TimeStepping(tolerance=1e-10).replace(scheme=scheme)
    found = [ns.simulate(example.system, method=method, steps=count, **common) for count in steps]
    return Curve(
        kind="time-stepping",
        scheme=scheme,
        rk_stages=0,
        nominal=1,
        steps=tuple(steps),
        errors=tuple(example.error(trajectory) for trajectory in found),
        fallbacks=(0,) * len(found),
        clean=example.clean,
    )


def panel_of(
    example: Example, stages: Sequence[int], steps: Sequence[int], fixed_steps: Sequence[int], progress: Progress
) -> Panel:
    """All methods on an example."""
    progress.describe(example.title)
    made = [
        curve_of(example, scheme, count, _grids(example, scheme, count, steps), callback=progress)
        for scheme in FAMILIES
        for count in stages
    ]
    made += [curve_of(example, scheme, FIXED_STAGES, fixed_steps, detect=False) for scheme in FAMILIES]
    if isinstance(example.system, ns.CLS):
        made += [stepping_of(example, scheme, steps) for scheme in STEPPING]
    exact = ns.simulate(example.system, x0=example.start, duration=example.duration, method=EVENT_DRIVEN)
    return Panel(title=example.title, units=example.units, curves=tuple(made), rounding=example.error(exact))


def _grids(example: Example, scheme: str, stages: int, steps: Sequence[int]) -> tuple[int, ...]:
    """Numbers of steps: more of them for implicit Euler, which on long steps damps the oscillator to rest."""
    damps = scheme == "radau_iia" and stages == 1 and not isinstance(example.system, ns.CLS)
    return tuple(FINER * count if damps else count for count in steps)
