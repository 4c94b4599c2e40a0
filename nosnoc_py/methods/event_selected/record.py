"""What a simulation of an event-selected system leaves behind: nodes, segments with their slopes, crossings.

How wrong its steps are follows from the embedded scheme: one product of the slopes that are there anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nosnoc_py.solution import RungeKuttaInterpolant, Series
from nosnoc_py.tableaus import Tableau

Array = np.ndarray

# The estimate is of order h^5. The proposed step is a little shorter, but no extrapolation from where all is lost.
ORDER, SAFETY, SHORTEST = 5, 0.7, 0.1


def local_error(record: Record, tableau: Tableau, nominal: Array) -> Series | None:
    """Estimates |h sum (b_i - bhat_i) k_i| / (nominal + |x|), the largest component, at the ends of segments.

    There is none of steps of Euler's, and None of a scheme without an embedded one.

    Parameters
    ----------
    nominal : (n_x,)
        Sizes of the states.
    """
    chosen = np.flatnonzero(~record.euler)
    if tableau.error is None or not chosen.size:
        return None
    errors = record.h[chosen, None] * np.abs(np.tensordot(record.slopes[chosen], tableau.error, axes=(1, 0)))
    size = nominal + np.maximum(np.abs(record.x[chosen]), np.abs(record.x[chosen + 1]))
    values = np.nan_to_num((errors / size).max(axis=1), nan=np.inf, posinf=np.inf)
    return Series(record.t[chosen + 1], np.minimum(values, np.finfo(float).max))


def too_long(errors: Series, record: Record, tolerance: float) -> str:
    """Which step is wrong by more than the tolerance, and a length of steps [s] that would do; empty if none is."""
    worst = int(np.argmax(errors.values))
    largest = float(errors.values[worst])
    if largest <= tolerance:
        return ""
    length = float(record.h[~record.euler][worst])
    proposed = length * max(SAFETY * (tolerance / largest) ** (1 / ORDER), SHORTEST)
    return (
        f"the local error of the step before t = {errors.t[worst]:.9g} is estimated as {largest:.3g} (tolerance = "
        f"{tolerance:g}), with a length of {length:.3g} s; try steps of {proposed:.2g} s"
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class GuardCrossings:
    """Guards that are crossed at one instant, all at once.

    Attributes
    ----------
    node : int
        Where it happens; several crossings may share a node, in their order.
    guards : (count,)
        Indices of the guards.
    before, after : (m,)
        Bits on both sides, as 0.0 and 1.0. The function of guard k that rises through zero is row before[k] of
        `Fields.guards`.
    """

    node: int
    guards: np.ndarray
    before: np.ndarray
    after: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """Nodes 0 .. N and the N segments between them.

    On segment e, with the mode mode[e] frozen, x[e + 1] = x[e] + h[e] sum_i b_i slopes[e, i] with the slopes of the
    stages of the scheme, or x[e + 1] = x[e] + h[e] slopes[e, 0] where it is a step of Euler's (`euler`), whose other
    slopes are zero.

    Attributes
    ----------
    t : (N + 1,)
    x : (N + 1, n_x)
    mode : (N + 1, m), int8
        Bits in force after the node, that is after its last crossing.
    h : (N,)
        Lengths of the segments [s].
    slopes : (N, n_s, n_x)
    euler : (N,), bool
    crossings : tuple of GuardCrossings
    first : (m,), int8
        Bits before all crossings.
    """

    t: np.ndarray
    x: np.ndarray
    mode: np.ndarray
    h: np.ndarray
    slopes: np.ndarray
    euler: np.ndarray
    crossings: tuple[GuardCrossings, ...]
    first: np.ndarray

    def bits(self, node: int) -> np.ndarray:
        """Bits in force after a node, as the flow takes them, (m,)."""
        return self.mode[node].astype(float)


def record_of(
    x: np.ndarray, mode: np.ndarray, stages: int, chunks: list[tuple[np.ndarray, ...]], rows: list[np.ndarray]
) -> Record:
    """The record of a simulation from the state x (n_x,) with the bits mode (m,) at time zero.

    Parameters
    ----------
    chunks : list of (t, x, h, slopes, euler)
        Of segments; t and x at their ends.
    rows : list of (count, 3)
        Of every chunk: node, guard, and the number of the crossing.
    """
    none = (np.zeros(0), np.zeros((0, len(x))), np.zeros(0), np.zeros((0, stages, len(x))), np.zeros(0, dtype=bool))
    t, states, h, slopes, euler = (np.concatenate(parts) for parts in zip(none, *chunks, strict=True))
    crossed = np.concatenate([np.zeros((0, 3), dtype=np.int64), *rows])
    cuts = np.flatnonzero(np.diff(crossed[:, 2], prepend=-1))
    nodes = crossed[cuts, 0]
    flips = np.zeros((len(cuts) + 1, len(mode)), dtype=np.int8)
    flips[0] = mode
    flips[np.searchsorted(cuts, np.arange(len(crossed)), side="right"), crossed[:, 1]] = 1
    bits = np.bitwise_xor.accumulate(flips, axis=0)  # before the first crossing, and after every one
    guards, levels = np.split(crossed[:, 1], cuts[1:]), list(bits.astype(float))
    return Record(
        t=np.concatenate([[0.0], t]),
        x=np.concatenate([x[None], states]),
        mode=bits[np.searchsorted(nodes, np.arange(len(t) + 1), side="right")],
        h=h,
        slopes=slopes,
        euler=euler,
        crossings=tuple(
            GuardCrossings(node=node, guards=some, before=before, after=after)
            for node, some, before, after in zip(nodes.tolist(), guards, levels, levels[1:], strict=False)
        ),
        first=bits[0],
    )


def dense_output(tableau: Tableau, record: Record, ends: Array) -> RungeKuttaInterpolant:
    """The states between the nodes: the continuous extension of the scheme, or else Hermite's cubics.

    Parameters
    ----------
    ends : (N, n_x)
        Slopes at the ends of the segments, with the mode of the segment.
    """
    left, right, length = record.x[:-1, None], record.x[1:, None], record.h[:, None, None]
    degree = 3 if tableau.extension is None else tableau.extension.shape[1]
    c = np.arange(1, degree + 1) / degree
    s = c[:, None]
    if tableau.extension is None:
        states = left + s**2 * (3 - 2 * s) * (right - left)
        states = states + length * s * (1 - s) * ((1 - s) * record.slopes[:, :1] - s * ends[:, None])
    else:
        weights = s ** np.arange(1, degree + 1) @ tableau.extension.T
        states = left + length * np.einsum("qi,eix->eqx", weights, record.slopes)
    states = np.where(record.euler[:, None, None], left + s * (right - left), states)
    states[:, -1] = record.x[1:]
    return RungeKuttaInterpolant(t_left=record.t[:-1], h=record.h, c=c, x_left=record.x[:-1], x_stages=states)
