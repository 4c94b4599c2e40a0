"""Newton's method on a step problem, from where the sweeps are: they find modes soon, and forces in them slowly."""

from __future__ import annotations

import numpy as np

from nosnoc_py.contacts.cones import onto_disc
from nosnoc_py.contacts.rows import RowProblem

# First damping, in units of the stiffness of a contact.
STIFFEST = 1e-2
ROUNDING = 1e-9
# More rows are left to the sweeps, which need no matrix.
MOST_ROWS = 1200


class Newton:
    """Semismooth Newton steps on what a projection of every contact would change; Coulomb's cone only.

    Parameters
    ----------
    problem : RowProblem
    stiffness : (m, w)
        Rates per impulse.
    """

    def __init__(self, problem: RowProblem, stiffness: np.ndarray) -> None:
        count, self.width = stiffness.shape
        size = problem.free.size
        rows, answers = np.zeros((count, self.width, size)), np.zeros((count, self.width, size))
        np.put_along_axis(rows, np.broadcast_to(problem.dofs[:, None, :], problem.rows.shape), problem.rows, axis=2)
        reached = np.broadcast_to(problem.reached[:, None, :], problem.answers.shape)
        np.put_along_axis(answers, reached, problem.answers, axis=2)
        flat = rows[..., :-1].reshape(-1, size - 1)
        self._scale = 1.0 / stiffness
        # Rows of the Delassus matrix in units of impulse; its offset so that the normal part is r_n - c.
        self._matrix = flat @ answers[..., :-1].reshape(-1, size - 1).T * self._scale.reshape(-1, 1)
        offset = problem.rates(problem.free)
        offset[:, 0] -= problem.least
        self._offset, self._friction = offset * self._scale, problem.friction

    def step(self, impulses: np.ndarray, damping: float) -> np.ndarray:
        """Impulses (m, w) after one step, on their cones.

        Redundant contacts share their forces in many ways, and modes that are not yet right may have no forces at all:
        the damping keeps them near to those of the sweeps. It does not change the solution.
        """
        rates = (self._matrix @ impulses.reshape(-1)).reshape(impulses.shape) + self._offset
        closed = impulses[:, 0] > rates[:, 0]
        system, rest = self._matrix.copy(), rates.copy()
        system[np.diag_indices_from(system)] += damping + ROUNDING
        numbers = np.arange(impulses.size).reshape(impulses.shape)
        _replace(system, rest, numbers[~closed].reshape(-1), impulses[~closed].reshape(-1))
        if self.width > 1:
            self._slip(system, rest, numbers, impulses, rates, closed)
        try:
            change = np.linalg.solve(system, rest.reshape(-1))
        except np.linalg.LinAlgError:
            return impulses
        return self._onto_cones(impulses - change.reshape(impulses.shape))

    def _slip(
        self,
        system: np.ndarray,
        rest: np.ndarray,
        numbers: np.ndarray,
        impulses: np.ndarray,
        rates: np.ndarray,
        closed: np.ndarray,
    ) -> None:
        """Rows of contacts that slip: f_t = mu f_n z / |z| with z = f_t - r_t, which turns in space."""
        towards = impulses[:, 1:] - rates[:, 1:]
        length = np.linalg.norm(towards, axis=1)
        bound = self._friction * impulses[:, 0]
        slips = np.flatnonzero(closed & (length > bound))
        direction = towards[slips] / length[slips, None]
        values = impulses[slips, 1:] - bound[slips, None] * direction
        share = bound[slips] / length[slips]
        across = np.eye(self.width - 1) - direction[:, :, None] * direction[:, None, :]
        turning = np.zeros((len(slips), self.width - 1, system.shape[1]))
        if self.width == 3:
            at = np.repeat(numbers[slips, 1:, None], 1, axis=2)
            local = -system[numbers[slips, 1:]]
            np.put_along_axis(local, at, np.take_along_axis(local, at, axis=2) + 1.0, axis=2)
            turning = share[:, None, None] * (across @ local)
        _replace(system, rest, numbers[slips, 1:].reshape(-1), values.reshape(-1))
        system[numbers[slips, 1:]] -= turning
        for k in range(1, self.width):
            system[numbers[slips, k], numbers[slips, 0]] -= self._friction[slips] * direction[:, k - 1]

    def _onto_cones(self, impulses: np.ndarray) -> np.ndarray:
        impulses[:, 0] = np.maximum(impulses[:, 0], 0.0)
        impulses[:, 1:] = onto_disc(impulses[:, 1:], self._friction * impulses[:, 0])
        return impulses


def _replace(system: np.ndarray, rest: np.ndarray, numbers: np.ndarray, values: np.ndarray) -> None:
    """Rows that say what an impulse is."""
    system[numbers] = 0.0
    system[numbers, numbers] = 1.0
    rest.reshape(-1)[numbers] = values
