"""Dense output of a rigid body: cubics of the position, rotations about a fixed axis, straight lines of momenta.

States of a rigid body contain a rotation matrix, and entry-wise polynomials of it would leave SO(3). Between two nodes
the body turns about a fixed axis at a constant rate, the geodesic of SO(3), so every value is a rotation up to
rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nosnoc_py.declared import assign
from nosnoc_py.errors import TranscriptionError
from nosnoc_py.rotations import exp, log
from nosnoc_py.solution.arrays import Array, inside, read_only
from nosnoc_py.solution.interpolant import SNAP, Interpolant, Side, check_side


@dataclass(frozen=True, eq=False, kw_only=True)
class RigidMotion(Interpolant):
    """A motion on SE(3) between nodes.

    Positions are Hermite's cubics of positions and velocities gamma / m, exact for free flight; rotations are R_k
    exp(s log(R_k' R_{k+1})), s from 0 to 1, so nodes have to be closer than half a turn; momenta are straight lines.

    Parameters
    ----------
    t : (nodes,)
        Times [s] in their order; a time that is repeated is a jump, its first node the left limit.
    x : (nodes, 18)
        Position [m], rotation row by row, momentum [kg m/s], angular momentum in the body's frame [kg m^2/s].
    mass : ()
        Mass of the body [kg].
    """

    t: Array
    x: Array
    mass: Array

    def __post_init__(self) -> None:
        t = read_only(self.t, "t", "nodes")
        if not t.size or (np.diff(t) < 0.0).any():
            raise TranscriptionError(f"t: expected one or more times in their order, given {t.size}.")
        assign(self, t=t, x=read_only(self.x, "x", t.size, 18), mass=read_only(self.mass, "mass"))

    def __call__(self, t: npt.ArrayLike, side: Side = "+") -> Array:
        """Return the state at t, (18,) for a scalar and (times, 18) for an array; `side` is the limit at a jump.

        Raises
        ------
        TranscriptionError
            If t lies outside of the motion.
        """
        check_side(side)
        times = inside(t, float(self.t[0]), float(self.t[-1]))
        snap = SNAP * float(np.abs(self.t[[0, -1]]).max())
        if side == "-":
            right = np.searchsorted(self.t, times - snap, "left")
            left, node = np.maximum(right - 1, 0), right
        else:
            left = np.searchsorted(self.t, times + snap, "right") - 1
            right, node = np.minimum(left + 1, len(self.t) - 1), left
        # Exactly at a node (up to round-off) the node's own value counts: interpolation would mix the sides of a jump.
        at_node = np.abs(self.t[node] - times) <= snap
        x = self._between(left, np.where(at_node, left, right), times)
        x[at_node] = self.x[node[at_node]]
        return x if np.ndim(t) else x.reshape(-1)

    def _between(self, left: npt.NDArray[np.intp], right: npt.NDArray[np.intp], t: Array) -> Array:
        """Return states between pairs of nodes."""
        h = self.t[right] - self.t[left]
        # A node itself has no interval to be in.
        s = np.divide(t - self.t[left], h, out=np.zeros_like(t), where=h > 0.0)[:, np.newaxis]
        a, b, h = self.x[left], self.x[right], h[:, np.newaxis]
        x = a + s * (b - a)
        position, rotation = slice(0, 3), slice(3, 12)
        # Deviation of Hermite's cubic from the straight line, h s (1 - s) ((1 - s) (v_a - v) - s (v_b - v)), v the mean
        # velocity of the interval.
        way = b[:, position] - a[:, position]
        first = h * a[:, 12:15] / self.mass - way
        second = h * b[:, 12:15] / self.mass - way
        x[:, position] += s * (1 - s) * ((1 - s) * first - s * second)
        first_turn, last_turn = a[:, rotation].reshape(-1, 3, 3), b[:, rotation].reshape(-1, 3, 3)
        axis = log(np.swapaxes(first_turn, 1, 2) @ last_turn)
        x[:, rotation] = (first_turn @ exp(s * axis)).reshape(-1, 9)
        return x
