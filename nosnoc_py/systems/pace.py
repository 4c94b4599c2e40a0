"""What a system does as a function of time, sampled along a run: scales and longest steps.

An integrator sees time only where its steps put it: a body at rest that will be hit by a short stroke gives no reason
for a short step. Everything of a system that depends on t is therefore sampled before the run, at x0 and at one other
state, together with its rate. The run is halved until polynomials of degree seven, as the samples of one step define
them, follow the samples on every part; the length of a part is the longest step there. Where even the shortest parts
are not followed, the ratio of range and rate is the time scale. A pulse between two samples is not seen, nor what a law
of control does in time.

References
----------
Trefethen, Approximation Theory and Approximation Practice (2013), Chapter 5 (interpolation in Chebyshev points).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from nosnoc_py.systems.symbols import expressions_of

Array = np.ndarray
# Samples of a run, and those of the shortest part; powers of two.
SAMPLES, SHORTEST = 2048, 8
# Chebyshev nodes of a part on [0, 1], as many as the samples of a step.
NODES = 0.5 - 0.5 * np.cos(np.pi * np.arange(8) / 7)
# Parts are followed if the polynomial differs less than this fraction of the range of a component, less its trend.
FOLLOWED = 1e-3
# A component whose difference to its trend is below this fraction of its size is linear in t.
STRAIGHT = 1e-9
# Neighbouring parts are one if their lengths differ by no more than this factor.
ALIKE = 4.0
# Fractional parts of its multiples are spread evenly (the golden ratio).
GOLDEN = 0.6180339887498949
# A component that could change by its range within so many samples may do so unseen.
UNSEEN = 2.0
# Instants at which scales look because a component or its rate is extreme.
MOST_EXTREMES = 32


class Course(NamedTuple):
    """Samples of the components of a system that depend on time, at its state x0.

    Attributes
    ----------
    t : (n,)
        Times of the run [s], from 0.
    values, rates : (n, m)
    """

    t: Array
    values: Array
    rates: Array

    @property
    def bent(self) -> tuple[Array, Array]:
        """Values (n, k) without their linear trend, and rates without its slope, of components that are not linear."""
        share = (self.t / self.t[-1])[:, None]
        slope = (self.values[-1] - self.values[0]) / self.t[-1]
        rest = self.values - self.values[0] - share * (self.values[-1] - self.values[0])
        kept = np.ptp(rest, axis=0) > STRAIGHT * np.abs(self.values).max(axis=0)
        return rest[:, kept], (self.rates - slope)[:, kept]

    def extremes(self) -> Array:
        """Return the times at which a component or its rate is extreme, for scales of the run."""
        found = [arg(part, axis=0) for part in self.bent for arg in (np.argmax, np.argmin)]
        return np.asarray(self.t[np.unique(np.concatenate(found))][:MOST_EXTREMES])


class Pace(NamedTuple):
    """Longest steps of a run: `longest[k]` holds up to `ends[k]`, both in seconds from its start."""

    ends: Array
    longest: Array
    fine: bool = False  # True if something varies too fast for the samples

    def later(self, start: float) -> Callable[[float], tuple[float, float]]:
        """Return the function of time that has the end of the part of a step from t, and the longest step there."""
        ends = start + self.ends
        ends[-1] = np.inf

        def at(t: float) -> tuple[float, float]:
            k = int(np.searchsorted(ends, t, "right"))
            return float(ends[k]), float(self.longest[k])

        return at


def course_of(
    system: Any, x0: Array, control: Callable[[float, Array], Array], p: Array, seconds: float
) -> Course | None:
    """Return the samples of what depends on time; None if nothing does, or it has no finite values at x0."""
    if system.autonomous or not system.symbolic or not seconds > 0.0:
        return None
    function = system.kernels.kept(("by time",), lambda: _by_time(system))
    if function is None:
        return None
    t = np.linspace(0.0, seconds, SAMPLES + 1)
    # Controls of a few instants: a law may take long to evaluate.
    starts = np.linspace(0.0, seconds, 17)[:-1] + seconds / 32
    laws = np.array([np.asarray(control(float(s), x0), dtype=float).reshape(-1) for s in starts])
    u = np.nan_to_num(laws[np.minimum((t / seconds * 16).astype(int), 15)]).T
    # A second state, for what is multiplied with something that is zero at x0.
    sizes = np.maximum(np.asarray(system.x_nominal), np.abs(x0[:-1]).max(initial=0.0))
    elsewhere = x0 + sizes * np.append(0.5 + np.arange(1, x0.size) * GOLDEN % 1.0, 0.0)
    sampled = list[list[Array]]()
    for state in (x0, elsewhere):
        x = np.repeat(state[:, None], t.size, axis=1)
        x[-1] += t
        with np.errstate(all="ignore"):
            found = function.map(t.size)(x, u, np.repeat(p[:, None], t.size, axis=1))
        sampled.append([np.asarray(part).T for part in found])
    values, rates = (np.hstack(parts) for parts in zip(*sampled, strict=True))
    finite = np.isfinite(values).all(axis=0) & np.isfinite(rates).all(axis=0)
    return Course(t, values[:, finite], rates[:, finite]) if finite.any() else None


def _by_time(system: Any) -> ca.Function | None:
    """Return (x, u, p) -> components of a system that depend on t, and their rates by t."""
    every = ca.vertcat(ca.SX(0, 1), *map(ca.densify, expressions_of(system)))
    z = system.z
    if z.numel():  # algebraic variables have no value before the run
        every = ca.substitute(every, z, ca.SX.ones(z.numel()))
    rates = ca.jacobian(every, system.t)
    rows = [k for k in rates.sparsity().row() if not ca.depends_on(every[k], _unknown(system, every[k]))]
    if not rows:
        return None
    return ca.Function("by_time", [system.x, system.u, system.p], [every[rows], ca.densify(rates)[rows]])


def _unknown(system: Any, expression: ca.SX) -> ca.SX:
    known = ca.vertcat(system.x, system.u, system.p)
    return ca.vertcat(ca.SX(0, 1), *[s for s in ca.symvar(expression) if not ca.depends_on(known, s)])


def pace_of(course: Course | None) -> Pace | None:
    """Return the longest steps of a run; None where nothing bends in time."""
    if course is None:
        return None
    values, rates = course.bent
    if not values.shape[1]:
        return None
    allowed, scale, cell = FOLLOWED * np.ptp(values, axis=0), np.ptp(values, axis=0), course.t[1]
    parts, fine = list[tuple[int, float]](), False
    stack = [(0, SAMPLES)]
    while stack:
        low, high = stack.pop()
        inside = values[low : high + 1]
        size = high - low
        followed = (np.abs(_interpolation(size) @ inside[_nodes(size)] - inside).max(axis=0) <= allowed).all()
        if followed or size == SHORTEST:
            quick = float((np.abs(rates[low : high + 1]).max(axis=0) / scale).max())
            fine = fine or (not followed and quick * UNSEEN * cell > 1.0)
            # What jumps, between constants, has no rate.
            parts.append((high, size * cell if followed or not quick else min(size * cell, 1.0 / quick)))
        else:
            stack += [((low + high) // 2, high), (low, (low + high) // 2)]
    return _joined(parts, cell, fine)


def _joined(parts: list[tuple[int, float]], cell: float, fine: bool) -> Pace:
    """Return the pace of parts (last sample, longest step), neighbours of similar length as one."""
    ends, longest, most = list[float](), list[float](), 0.0
    for high, length in parts:
        if longest and max(most, length) <= ALIKE * min(longest[-1], length):
            ends[-1], longest[-1], most = high * cell, min(longest[-1], length), max(most, length)
        else:
            ends.append(high * cell)
            longest.append(length)
            most = length
    return Pace(np.array(ends), np.array(longest), fine)


def _nodes(size: int) -> Array:
    """Return the samples of a part that are nearest to Chebyshev nodes."""
    return np.unique(np.round(NODES * size).astype(int))


def _interpolation(size: int) -> Array:
    """Return the matrix (size + 1, nodes) from values at the nodes to those at all samples of a part."""
    if size not in _INTERPOLATIONS:
        x, s = _nodes(size) / size, np.arange(size + 1) / size
        basis = [np.prod([(s - b) / (a - b) for b in x if b != a], axis=0) for a in x]  # Lagrange
        _INTERPOLATIONS[size] = np.array(basis).T
    return _INTERPOLATIONS[size]


_INTERPOLATIONS: dict[int, Array] = {}
