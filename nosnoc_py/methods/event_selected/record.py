"""Record of a simulation of an event-selected system: nodes, segments with stage slopes, crossings.

The local error follows from the embedded scheme of Dormand and Prince (Hairer, Norsett, Wanner 1993, Section II.5),
from the stored slopes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nosnoc_py.solution import RungeKuttaInterpolant, Series
from nosnoc_py.tableaus import Tableau

Array = np.ndarray

# The estimate is of order h^5. The proposed step has a safety factor, and is at most ten times shorter, since the
# estimate of a step that is far too long cannot be extrapolated.
ORDER, SAFETY, SHORTEST = 5, 0.7, 0.1


def local_error(record: Record, tableau: Tableau, nominal: Array) -> Series | None:
    """Return the estimates max |h sum (b_i - bhat_i) k_i| / (nominal + |x|) at the ends of segments.

    Euler steps have no estimate; None for a scheme without an embedded one.

    Parameters
    ----------
    nominal : (n_x,)
        Nominal values of the states.
    """
    segments = np.flatnonzero(~record.euler)
    if tableau.error is None or not segments.size:
        return None
    # Weights of the error are b - bhat: the difference of both solutions needs no further evaluation.
    errors = record.h[segments, None] * np.abs(np.tensordot(record.slopes[segments], tableau.error, axes=(1, 0)))
    size = nominal + np.maximum(np.abs(record.x[segments]), np.abs(record.x[segments + 1]))
    # Not finite means wrong: infinite here, and the largest double in the series, which has to be finite.
    values = np.nan_to_num((errors / size).max(axis=1), nan=np.inf, posinf=np.inf)
    return Series(record.t[segments + 1], np.minimum(values, np.finfo(float).max))


def step_too_long(errors: Series, record: Record, tolerance: float) -> str:
    """Return a message with the step of the largest error and a better length, or '' if all meet the tolerance."""
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
    """Guards that are crossed simultaneously at a node.

    Attributes
    ----------
    node : int
        Index of the node; several crossings may share it, in their order.
    guards : (count,)
        Indices of the guards.
    before, after : (m,)
        Bits before and after, as 0.0 and 1.0. Row before[k] of `Fields.guards` is the function of guard k that rises
        through zero.
    """

    node: int
    guards: np.ndarray
    before: np.ndarray
    after: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """Nodes 0 .. N of a simulation and the N segments between them.

    On segment e, with mode[e] frozen, x[e + 1] = x[e] + h[e] sum_i b_i slopes[e, i] with the stage slopes of the
    scheme, or x[e + 1] = x[e] + h[e] slopes[e, 0] for an Euler step (`euler`), whose other slopes are zero.

    Attributes
    ----------
    t : (N + 1,)
    x : (N + 1, n_x)
    mode : (N + 1, m), int8
        Bits after the last crossing at the node.
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
        """Return the bits (m,) after a node as floats, as the flow takes them."""
        return self.mode[node].astype(float)


def record_of(
    x: np.ndarray, mode: np.ndarray, stages: int, chunks: list[tuple[np.ndarray, ...]], rows: list[np.ndarray]
) -> Record:
    """Build the record of a simulation from the state x (n_x,) with bits `mode` (m,) at time zero.

    Parameters
    ----------
    chunks : list of (t, x, h, slopes, euler)
        Segments of each chunk; t and x at their ends.
    rows : list of (count, 3)
        Node, guard and number of the sweep of each crossing, by chunk.
    """
    empty = (np.zeros(0), np.zeros((0, len(x))), np.zeros(0), np.zeros((0, stages, len(x))), np.zeros(0, dtype=bool))
    t, states, h, slopes, euler = (np.concatenate(parts) for parts in zip(empty, *chunks, strict=True))
    crossed = np.concatenate([np.zeros((0, 3), dtype=np.int64), *rows])
    # Rows of one sweep belong to one crossing.
    cuts = np.flatnonzero(np.diff(crossed[:, 2], prepend=-1))
    nodes = crossed[cuts, 0]
    # Flips per crossing; their accumulated exclusive or gives the bits after each one.
    changes = np.zeros((len(cuts) + 1, len(mode)), dtype=np.int8)
    changes[0] = mode
    changes[np.searchsorted(cuts, np.arange(len(crossed)), side="right"), crossed[:, 1]] = 1
    bits = np.bitwise_xor.accumulate(changes, axis=0)  # before the first crossing, and after every one
    guards, levels = np.split(crossed[:, 1], cuts[1:]), list(bits.astype(float))
    return Record(
        t=np.concatenate([[0.0], t]),
        x=np.concatenate([x[None], states]),
        # Several crossings at one node: the bits after the last of them.
        mode=bits[np.searchsorted(nodes, np.arange(len(t) + 1), side="right")],
        h=h,
        slopes=slopes,
        euler=euler,
        crossings=tuple(
            GuardCrossings(node=node, guards=crossed_guards, before=before, after=after)
            for node, crossed_guards, before, after in zip(nodes.tolist(), guards, levels, levels[1:], strict=False)
        ),
        first=bits[0],
    )


def dense_output(tableau: Tableau, record: Record, ends: Array) -> RungeKuttaInterpolant:
    """Return the states between the nodes by the continuous extension of the scheme, else by cubic Hermite polynomials.

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
    # An Euler step is a straight line, whatever the scheme.
    states = np.where(record.euler[:, None, None], left + s * (right - left), states)
    # Ends are the nodes exactly; the polynomial reaches them up to rounding.
    states[:, -1] = record.x[1:]
    return RungeKuttaInterpolant(t_left=record.t[:-1], h=record.h, c=c, x_left=record.x[:-1], x_stages=states)
