"""Slip close to a stop, where its directions in space turn fast and Newton's method may find the wrong branch."""

from __future__ import annotations

from collections.abc import Sequence

import casadi as ca
import numpy as np

from nosnoc_py.contacts.modes import SLIP
from nosnoc_py.functions import buffered
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.kinematics import ContactFrames


class SlipDirections:
    """Slip rates of the contacts, and directions of those with two tangents among the unknowns y of the stages."""

    def __init__(self, system: CLS, frames: ContactFrames) -> None:
        self.frames = frames
        tangential = system.mechanics.tangents.T @ system.v
        rates = ca.Function("rates", [system.x, system.p], [tangential])
        self._rates, self._rates_at = rates, buffered(rates)

    def coherent(self, y_left: np.ndarray, y: np.ndarray, modes: Sequence[int]) -> np.ndarray:
        """Stage values y (m, n_y) whose directions of slip do not reverse.

        A particle that should have stopped may be found to slip back instead (s > 0, d reversed): then its guard, the
        velocity along d, has to be negative, as it is for a negative speed.
        """
        slips = self._spatial_slips(modes)
        if not slips:
            return y
        y, n_c, n_t = y.copy(), self.frames.count, self.frames.weights.size
        for c in slips:
            at = slice(n_c + self.frames.tangents[c].start, n_c + self.frames.tangents[c].stop)
            before = y_left[at]
            for row in y:
                if row[at] @ before < 0 and row[n_c + n_t + self.frames.speeds[c]] > 0:
                    row[at] *= -1.0
                before = row[at]
        return y

    def turned(self, x: np.ndarray, y: np.ndarray, p: np.ndarray, modes: Sequence[int]) -> np.ndarray | None:
        """Stage values y (m, n_y) that slip where x (m, n_x) moves.

        Near a stop the direction of slip turns fast, and Newton's method may find the branch with s < 0, which friction
        drives. None when no contact slips in space.
        """
        slips = self._spatial_slips(modes)
        if not slips:
            return None
        y, n_c, n_t = y.copy(), self.frames.count, self.frames.weights.size
        rates = np.asarray(self._rates(x.T, p).full()).T
        for c in slips:
            part = self.frames.tangents[c]
            size = np.linalg.norm(rates[:, part], axis=1)
            moves = size > 0
            y[moves, n_c + part.start : n_c + part.stop] = rates[moves, part] / size[moves, None]
            y[:, n_c + n_t + self.frames.speeds[c]] = size
        return y

    def speeds(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Slip speeds of all contacts at a state, (n_c,); zero without friction."""
        rates = self._rates_at(x, p)[0][:, 0]
        return np.array([np.linalg.norm(rates[part]) for part in self.frames.tangents])

    def blind(self, modes: Sequence[int]) -> list[int]:
        """The guards that cannot tell a sharp turn from a stop."""
        return [2 * self.frames.count + c for c in self._spatial_slips(modes)]

    def goes_round(self, y: np.ndarray, modes: Sequence[int]) -> bool:
        """Whether the slip speeds of all stages (m, n_y) are positive."""
        first = self.frames.count + self.frames.weights.size
        return all((y[:, first + self.frames.speeds[c]] > 0).all() for c in self._spatial_slips(modes))

    def _spatial_slips(self, modes: Sequence[int]) -> list[int]:
        return [c for c, mode in enumerate(modes) if mode == SLIP and self.frames.width(c) == 2]
