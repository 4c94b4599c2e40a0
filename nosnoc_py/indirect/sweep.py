"""One forward and backward pass of the method of successive approximations, on whatever grid, and how it may fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nosnoc_py.indirect.motion import Motion
from nosnoc_py.status import Status

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Sweep:
    """State and costate of a control, and the control that minimises their Hamiltonian.

    Attributes
    ----------
    control : ndarray
        As it was used; the grid decides the shape.
    target : ndarray
        u_* of HMP, Eq. 25, of the same shape.
    objective : float
    slope : float
        L2 norm of H_u (Eq. 30), or of `Minimiser.residual` where the controls are bounded.
    times : tuple of float
        Times of the collisions [s].
    jumps : tuple of int
        Which jumps they were.
    motion : function () -> Motion
        Everything, with costates; made when asked for.
    """

    control: Array
    target: Array
    objective: float
    slope: float
    times: tuple[float, ...]
    jumps: tuple[int, ...]
    motion: Callable[[], Motion]


class SweepFailure(Exception):
    """A pass that cannot be completed: why, and what to say. Never leaves the methods of this room."""

    def __init__(self, status: Status, message: str = "") -> None:
        super().__init__(message)
        self.status, self.message = status, message
