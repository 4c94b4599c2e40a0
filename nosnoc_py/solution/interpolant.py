"""Dense output: the state between the nodes, and on either side of a jump.

On every finite element the state is the polynomial through its left end and its stages (Lagrange's form, Hairer and
Wanner 1996), so dense output has the values of the solver and needs no further evaluation of the system. Elements may
have length zero, which is how solvers with variable steps leave one out.

Invariants: at an element boundary side "-" is the right end of the element before and side "+" the left end of the
element after, also if the time differs from the boundary by round-off; before the first element the state is
`x_initial`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from nosnoc_py.declared import assign
from nosnoc_py.errors import OptionError, TranscriptionError
from nosnoc_py.solution.arrays import Array, inside, read_only
from nosnoc_py.tableaus import lagrange_basis

Side = Literal["-", "+"]

# Times closer than this (relative) are one time: an event time that differs from an element boundary by
# round-off has to see the jump there, not the polynomial just beside it.
SNAP = 1e-12


class Interpolant(Protocol):
    """Interface of dense output: evaluation at a time and a side. A dataclass of arrays, as files hold it."""

    def __call__(self, t: npt.ArrayLike, side: Side = "+") -> Array:
        """Return the state, (n_x,) for a scalar time and (times, n_x) for an array."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class RungeKuttaInterpolant(Interpolant):
    """Collocation polynomials: on element e, through (0, x_left[e]) and (c_j, x_stages[e, j]).

    Parameters
    ----------
    t_left : (E,)
        Left boundaries of the finite elements [s].
    h : (E,)
        Lengths of the elements [s]; they may be zero.
    c : (n_s,)
        Nodes of the Runge-Kutta scheme, in units of the element. Without 1 (Gauss-Legendre) the right end is
        the extrapolated polynomial; a scheme that is not a collocation appends 1 and its right ends.
    x_left : (E, n_x)
        State at the left boundary of each element, after a jump there.
    x_stages : (E, n_s, n_x)
        States at the stages.
    x_initial : (n_x,), optional
        State before a jump at the very start; `x_left[0]` when not given.
    """

    t_left: Array
    h: Array
    c: Array
    x_left: Array
    x_stages: Array
    x_initial: Array = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        t_left = read_only(self.t_left, "t_left", "elements")
        c = read_only(self.c, "c", "n_s")
        if not t_left.size or len(np.unique(c)) < c.size:
            raise TranscriptionError(f"expected at least one finite element and distinct nodes c, given c = {c}.")
        x_left = read_only(self.x_left, "x_left", t_left.size, "n_x")
        n_x = x_left.shape[1]
        x_initial = self.x_initial if np.size(self.x_initial) else x_left[0]
        assign(self, t_left=t_left, c=c, x_left=x_left, h=read_only(self.h, "h", t_left.size))
        assign(self, x_stages=read_only(self.x_stages, "x_stages", t_left.size, c.size, n_x))
        assign(self, x_initial=read_only(x_initial, "x_initial", n_x))

    @classmethod
    def linear(cls, t: npt.ArrayLike, x: npt.ArrayLike) -> RungeKuttaInterpolant:
        """Join nodes t (nodes,), x (nodes, n_x) by straight lines; a repeated time is a jump."""
        t, x = np.asarray(t, dtype=float), np.asarray(x, dtype=float)
        # A single node: an element of length zero, so that there is a motion at all.
        if t.size == 1:
            t, x = np.repeat(t, 2), np.repeat(x, 2, axis=0)
        stages = x[1:, np.newaxis, :]
        return cls(t_left=t[:-1], h=np.diff(t), c=np.ones(1), x_left=x[:-1], x_stages=stages, x_initial=x[0])

    def __call__(self, t: npt.ArrayLike, side: Side = "+") -> Array:
        """Return the state at t: (n_x,) for a scalar, (times, n_x) for an array.

        Parameters
        ----------
        t
            Times [s] within the trajectory.
        side
            Limit at an element boundary: "-" the right end of the element before, "+" the left end of the
            element after. They differ where the state jumps, also at the start (`x_initial`) and, if the last
            elements have length zero, at the end.

        Raises
        ------
        TranscriptionError
            If t lies outside of the trajectory.
        """
        check_side(side)
        times = inside(t, self.t_0, self.t_f)
        element, tau = self._before(times) if side == "-" else self._after(times)
        x: Array = np.einsum("mk,mkx->mx", lagrange_basis(self._nodes, tau), self._values[element])
        # Index -1 has taken the last element: the left limit at the start is on no element.
        x[element < 0] = self.x_initial
        return x if np.ndim(t) else x.reshape(-1)

    @cached_property
    def t_0(self) -> float:
        """Start of the first element [s]."""
        return float(self.t_left[0])

    @cached_property
    def t_f(self) -> float:
        """End of the last element [s]."""
        # The last length may be negative by the solver's tolerance.
        return float(max(self.t_left[-1] + self.h[-1], self._edges[-1]))

    @property
    def x_right(self) -> Array:
        """Right ends of all elements, before a jump there, (E, n_x)."""
        return np.einsum("k,ekx->ex", lagrange_basis(self._nodes, np.ones(1))[0], self._values)

    def _before(self, t: Array) -> tuple[npt.NDArray[np.intp], Array]:
        """Return the element that ends at t or contains it (-1 at the start), and the position in it."""
        element = np.searchsorted(self._edges, t - self._snap, "left") - 1
        # Index -1 (the start) gives t_f, which is overwritten in `__call__`.
        right = self._ends[element]
        return element, np.where(right - t <= self._snap, 1.0, self._position(element, t))

    def _after(self, t: Array) -> tuple[npt.NDArray[np.intp], Array]:
        """Return the element that starts at t or contains it (the last one at the end), and the position in it."""
        element = np.searchsorted(self._edges, t + self._snap, "right") - 1
        tau = np.where(t - self._edges[element] <= self._snap, 0.0, self._position(element, t))
        return element, np.where(t >= self.t_f - self._snap, 1.0, tau)

    def _position(self, element: npt.NDArray[np.intp], t: Array) -> Array:
        h = self.h[element]
        # Where an element has no length any place in it is its right end.
        tau = np.divide(t - self.t_left[element], h, out=np.ones_like(t), where=h > self._snap)
        return np.clip(tau, 0.0, 1.0)

    @cached_property
    def _snap(self) -> float:
        return SNAP * max(abs(self.t_0), abs(self.t_f))

    @cached_property
    def _ends(self) -> Array:
        return np.append(self._edges[1:], self.t_f)

    @cached_property
    def _edges(self) -> Array:
        # Solvers return lengths like -1e-9; the search needs sorted boundaries.
        return np.maximum.accumulate(self.t_left)

    @cached_property
    def _nodes(self) -> Array:
        return np.append(0.0, self.c[self.c != 0.0])  # a stage at the left boundary gives way to x_left

    @cached_property
    def _values(self) -> Array:
        return np.concatenate([self.x_left[:, np.newaxis], self.x_stages[:, self.c != 0.0]], axis=1)


def check_side(side: str) -> None:
    """Raise `OptionError` for anything but the two limits."""
    if side not in ("-", "+"):
        raise OptionError(f"side: given {side!r}, expected '-' (left limit) or '+' (right limit).")


def jumps_of(x_initial: npt.ArrayLike, x_left: Array, x_right: Array, jump_tolerance: float = 1e-8) -> Array:
    """Return a mask (E,): True if the state jumps before the finite element; see `nodes_of`."""
    # Relative above 1, absolute below: states have units of all sizes, and some are zero.
    before = np.vstack([x_initial, x_right[:-1]])
    return np.asarray(np.any(np.abs(x_left - before) > jump_tolerance * np.maximum(1.0, np.abs(before)), axis=1))


def nodes_of(
    t_left: npt.ArrayLike,
    h: npt.ArrayLike,
    x_initial: npt.ArrayLike,
    x_left: npt.ArrayLike,
    x_right: npt.ArrayLike,
    jump_tolerance: float = 1e-8,
) -> tuple[Array, Array]:
    """Return the nodes t (nodes,), x (nodes, n_x) of a trajectory: the start and the end of each finite element.

    Where the left value of an element, x_left[e] (E, n_x), differs from the right end before it, x_right[e-1], by more
    than `jump_tolerance` max(1, |x|), the time appears twice, left limit first. `x_initial` (n_x,) precedes the first.
    """
    t_left, x_left = np.asarray(t_left, dtype=float), np.asarray(x_left, dtype=float)
    edges = np.append(t_left, t_left[-1] + np.asarray(h, dtype=float)[-1])
    limits = np.vstack([x_initial, x_right])
    jumps = jumps_of(x_initial, x_left, np.asarray(x_right), jump_tolerance)
    # np.insert puts each right limit behind its left limit: before index e + 1 of the sequence of limits
    after = np.flatnonzero(jumps) + 1
    return np.insert(edges, after, t_left[jumps]), np.insert(limits, after, x_left[jumps], axis=0)
