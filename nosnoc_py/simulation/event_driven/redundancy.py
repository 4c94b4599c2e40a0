"""Contacts that share their forces in many ways: the choice that is farthest from any change of modes.

Two boxes that touch and stick to the ground press on each other with an unknown force; their motion does not depend on
it. Their modes hold as long as any choice is admissible, so events are looked for at the best one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CUTS = 12
# The tangential force may exceed its cone by this share of the largest force before one more cut is made.
CLOSE = 1e-10

Share = tuple[int, float, list[int]]
"""Position of a normal force among the independent forces, friction, positions of its friction force in stick."""


def most_interior(forces: np.ndarray, free: np.ndarray, contacts: Sequence[Share]) -> np.ndarray:
    """The forces + free z with the largest smallest slack: of f_n >= 0, and of |f_t| <= mu f_n in stick.

    Parameters
    ----------
    forces : (k,)
        One choice.
    free : (k, d)
        Directions that change no motion.
    contacts : sequence of Share
        Closed contacts.
    """
    from scipy.optimize import linprog  # not paid for by an import of the library

    rows = [_cut(forces.size, k, 1.0, [], np.zeros(0)) for k, _, _ in contacts]
    for k, mu, part in contacts:
        rows += [_cut(forces.size, k, mu, part, direction) for direction in _directions(len(part))]
    scale = 1.0 + np.abs(forces).max(initial=0.0)
    best = forces
    for _ in range(CUTS):
        A = np.array(rows)
        found = linprog(
            np.append(np.zeros(free.shape[1]), -1.0),
            A_ub=np.column_stack([-A @ free, np.ones(len(A))]),
            b_ub=A @ forces,
            bounds=[(None, None)] * free.shape[1] + [(None, scale)],
        )
        if not found.success:
            return best
        best = forces + free @ found.x[:-1]
        cuts = [
            _cut(forces.size, k, mu, part, best[part] / np.linalg.norm(best[part]))
            for k, mu, part in contacts
            if len(part) == 2 and mu * best[k] - np.linalg.norm(best[part]) < found.x[-1] - CLOSE * scale
        ]
        if not cuts:
            break
        rows += cuts
    return np.asarray(best)


def _cut(size: int, k: int, share: float, part: Sequence[int], direction: np.ndarray) -> np.ndarray:
    """share f_n - d' f_t for a unit vector d."""
    row = np.zeros(size)
    row[k] = share
    row[list(part)] = -direction
    return row


def _directions(width: int) -> np.ndarray:
    """Directions of the first cuts."""
    if width == 0:
        return np.zeros((0, 0))
    if width == 1:
        return np.array([[1.0], [-1.0]])
    angles = np.linspace(0.0, 2.0 * np.pi, 8, endpoint=False)
    return np.column_stack([np.cos(angles), np.sin(angles)])
