"""Types of motion at a surface of discontinuity, each with its closed form.

Filippov's theory knows four: crossing, sliding (attractive from both sides), leaving a sliding mode, and the repulsive
surface, from which a motion may depart at any time and to either side. All cases live in the plane of a coordinate x
and a clock or path y, with flows that are affine in y and a switching function c = x - curvature y^2 / 2, so that the
pieces of every motion are polynomials: a Runge-Kutta method with two or three stages is exact on them.

Below is where c < 0, above where c > 0. While a motion slides, it moves with the convex combination of the two flows
that keeps c = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

import nosnoc_py as ns
from nosnoc_py.errors import ModelError, unknown_name

Array = NDArray[np.float64]
Affine = tuple[tuple[float, float], tuple[float, float]]  # x' = a + b y and y' = d + e y as ((a, b), (d, e))
BELOW, SLIDING, ABOVE = "below", "sliding", "above"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A piece of a motion: x and y as polynomials in the time since its start, lowest order first."""

    start: float
    mode: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Case with a known motion.

    Parameters
    ----------
    name, about : str
    below, above : pairs of pairs
        The flows x' = a + b y and y' = d + e y of the two regions, as ((a, b), (d, e)).
    x0 : (2,)
    duration : float
        Seconds.
    phases : tuple of Phase
    curvature : float
        Curvature of the surface x = curvature y^2 / 2.
    gate : tuple, optional
        (y_gate, (r_x, r_y)): where y > y_gate, r is added to both flows; a second partition.
    unique : bool
        True if the phases are the only motion from x0.
    """

    name: str
    about: str
    below: Affine
    above: Affine
    x0: tuple[float, float]
    duration: float
    phases: tuple[Phase, ...]
    curvature: float = 0.0
    gate: tuple[float, tuple[float, float]] | None = None
    unique: bool = True

    @property
    def event_times(self) -> tuple[float, ...]:
        """Times at which one phase ends and the next one starts [s]."""
        return tuple(phase.start for phase in self.phases[1:])

    @property
    def event_kinds(self) -> tuple[str, ...]:
        """Kinds "switch", "enter_sliding" or "leave_sliding", in the order of the times."""
        modes = [phase.mode for phase in self.phases]
        return tuple(_kind(before, after) for before, after in pairwise(modes))

    def distance(self, x: ArrayLike) -> Array:
        """Return the switching function at states (n, 2)."""
        states = np.atleast_2d(np.asarray(x, dtype=float))
        return np.asarray(states[:, 0] - 0.5 * self.curvature * states[:, 1] ** 2)


def _kind(before: str, after: str) -> str:
    if SLIDING in (before, after):
        return "enter_sliding" if after == SLIDING else "leave_sliding"
    return "switch"


_ENTRY = float((np.sqrt(6.0) - 1.0) / 2.0)  # .75 - t = (t - .5)^2 / 2

CASES = (
    Case(
        name="crossing",
        about="passes through the surface",
        below=((1.0, 1.0), (1.0, 0.0)),
        above=((3.0, -1.0), (1.0, 0.0)),
        x0=(-1.5, 0.0),
        duration=1.7,
        phases=(
            Phase(start=0.0, mode=BELOW, x=(-1.5, 1.0, 0.5), y=(0.0, 1.0)),
            Phase(start=1.0, mode=ABOVE, x=(0.0, 2.0, -0.5), y=(1.0, 1.0)),
        ),
    ),
    Case(
        name="sliding",
        about="enters a sliding mode and stays: 2/3 of the flow below, 1/3 of the one above",
        below=((1.0, 0.0), (0.0, 0.0)),
        above=((-2.0, 0.0), (3.0, 0.0)),
        x0=(1.0, 0.0),
        duration=1.7,
        phases=(
            Phase(start=0.0, mode=ABOVE, x=(1.0, -2.0), y=(0.0, 3.0)),
            Phase(start=0.5, mode=SLIDING, x=(0.0,), y=(1.5, 1.0)),
        ),
    ),
    Case(
        name="sliding on a curve",
        about="slides on a parabola",
        below=((2.0, 0.0), (1.0, 0.0)),
        above=((-1.0, 0.0), (1.0, 0.0)),
        x0=(0.75, -0.5),
        duration=1.7,
        curvature=1.0,
        phases=(
            Phase(start=0.0, mode=ABOVE, x=(0.75, -1.0), y=(-0.5, 1.0)),
            Phase(
                start=_ENTRY,
                mode=SLIDING,
                x=(0.5 * (_ENTRY - 0.5) ** 2, _ENTRY - 0.5, 0.5),
                y=(_ENTRY - 0.5, 1.0),
            ),
        ),
    ),
    Case(
        name="released",
        about="slides until a gate opens, and leaves with speed",
        below=((1.0, 0.0), (1.0, 0.0)),
        above=((-1.0, 0.0), (1.0, 0.0)),
        gate=(1.0, (3.0, 0.0)),
        x0=(0.5, 0.0),
        duration=1.7,
        phases=(
            Phase(start=0.0, mode=ABOVE, x=(0.5, -1.0), y=(0.0, 1.0)),
            Phase(start=0.5, mode=SLIDING, x=(0.0,), y=(0.5, 1.0)),
            Phase(start=1.0, mode=ABOVE, x=(0.0, 2.0), y=(1.0, 1.0)),
        ),
    ),
    Case(
        name="leaving",
        about="slides until one flow turns away, and leaves tangentially",
        below=((1.0, 0.0), (1.0, 0.0)),
        above=((-1.0, 1.0), (1.0, 0.0)),
        x0=(0.375, 0.0),
        duration=1.7,
        phases=(
            Phase(start=0.0, mode=ABOVE, x=(0.375, -1.0, 0.5), y=(0.0, 1.0)),
            Phase(start=0.5, mode=SLIDING, x=(0.0,), y=(0.5, 1.0)),
            Phase(start=1.0, mode=ABOVE, x=(0.0, 0.0, 0.5), y=(1.0, 1.0)),
        ),
    ),
    Case(
        name="repulsive",
        about="starts on a surface that both flows leave: it may stay, or depart at any time to either side",
        below=((-1.0, 0.0), (1.0, 0.0)),
        above=((1.0, 0.0), (1.0, 0.0)),
        x0=(0.0, 0.0),
        duration=1.7,
        phases=(Phase(start=0.0, mode=SLIDING, x=(0.0,), y=(0.0, 1.0)),),
        unique=False,
    ),
)
BY_NAME = {case.name: case for case in CASES}


def case(name: str) -> Case:
    """Return a case by its name; raise `ModelError` for an unknown one."""
    if name not in BY_NAME:
        raise ModelError(unknown_name(name, BY_NAME, "case"))
    return BY_NAME[name]


def build(chosen: Case) -> ns.PSS:
    """Return the system of a case, with states x and y and a partition "surface" (and "gate", if the case has one)."""
    x = ca.SX.sym("x", 2)
    surface = x[0] - 0.5 * chosen.curvature * x[1] ** 2
    flows = [_affine(flow, x[1]) for flow in (chosen.below, chosen.above)]
    modes = [ns.Modes("surface", flows=flows, functions=surface, signs=[[-1], [1]])]
    if chosen.gate is not None:
        threshold, more = chosen.gate
        modes.append(ns.Modes("gate", flows=[[0.0, 0.0], list(more)], functions=x[1] - threshold, signs=[[-1], [1]]))
    return ns.PSS(x=x, modes=modes, names={"x": ["x", "y"]})


def exact(chosen: Case, t: ArrayLike) -> Array:
    """Return the states (n, 2) at times (n,) [s]; if the motion is not unique, the one that stays on the surface."""
    times = np.atleast_1d(np.asarray(t, dtype=float))
    starts = [phase.start for phase in chosen.phases]
    which = np.searchsorted(starts, times, "right") - 1
    if (which < 0).any():
        raise ModelError(f"the closed form starts at t = 0; given t = {times.min()}.")
    phases = [chosen.phases[int(i)] for i in which]
    return np.array([_state(phase, time - phase.start) for phase, time in zip(phases, times, strict=True)])


def repulsive(t: ArrayLike, departure: float, side: int) -> Array:
    """Return a motion (n, 2) of the case "repulsive": on the surface until `departure` [s], then to side -1 or +1."""
    times = np.atleast_1d(np.asarray(t, dtype=float))
    return np.column_stack([side * np.maximum(times - departure, 0.0), times])


def _affine(flow: Affine, y: ca.SX) -> ca.SX:
    return ca.vertcat(*[constant + rate * y for constant, rate in flow])


def _state(phase: Phase, s: float) -> Sequence[float]:
    return [float(np.polynomial.polynomial.polyval(s, coefficients)) for coefficients in (phase.x, phase.y)]
