"""Contacts that share their forces in many ways: the choice that is farthest from any change of modes.

Two boxes that touch and stick to the ground press on each other with an unknown force; their motion does not depend on
it. Their modes hold as long as any choice is admissible, so events are looked for at the best one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nosnoc_py.audit.redundancy import best_choice, directions

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
    unit = float(np.abs(forces).max(initial=0.0)) or 1.0
    given = forces / unit
    spatial = any(len(part) == 2 for _, _, part in contacts)
    found = _by_newton(given, free, contacts) if spatial else None  # in the plane one linear program is exact
    return unit * (_by_cuts(given, free, contacts) if found is None else found)


def slacks(forces: np.ndarray, contacts: Sequence[Share]) -> np.ndarray:
    """f_n of all contacts, then mu f_n -+ f_t or mu f_n - |f_t| of those that stick: smooth."""
    found = [forces[k] for k, _, _ in contacts]
    for k, mu, part in contacts:
        sizes = [np.linalg.norm(forces[part])] if len(part) == 2 else [s * forces[i] for i in part for s in (1, -1)]
        found += [mu * forces[k] - size for size in sizes]
    return np.array(found)


def _slopes(forces: np.ndarray, contacts: Sequence[Share]) -> np.ndarray:
    """Derivatives of the slacks, one row each."""
    rows = [_cut(forces.size, k, 1.0, [], np.zeros(0)) for k, _, _ in contacts]
    for k, mu, part in contacts:
        direction = forces[part] / max(float(np.linalg.norm(forces[part])), 1e-300)
        normals = [direction] if len(part) == 2 else directions(len(part))
        rows += [_cut(forces.size, k, mu, part, d) for d in normals]
    return np.array(rows)


def _by_newton(forces: np.ndarray, free: np.ndarray, contacts: Sequence[Share]) -> np.ndarray | None:
    """By sequential quadratic programming: quick, the slacks are concave; None where it gives up."""
    from scipy.optimize import minimize  # not paid for by an import of the library

    last = np.append(np.zeros(free.shape[1]), -1.0)
    found = minimize(
        lambda y: -y[-1],
        np.append(np.zeros(free.shape[1]), slacks(forces, contacts).min()),
        jac=lambda y: last,
        bounds=[(None, None)] * free.shape[1] + [(None, 1.0)],
        constraints={
            "type": "ineq",
            "fun": lambda y: slacks(forces + free @ y[:-1], contacts) - y[-1],
            "jac": lambda y: np.column_stack(
                [_slopes(forces + free @ y[:-1], contacts) @ free, -np.ones(len(slacks(forces, contacts)))]
            ),
        },
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 100},
    )
    return forces + free @ found.x[:-1] if found.success else None


def _by_cuts(forces: np.ndarray, free: np.ndarray, contacts: Sequence[Share]) -> np.ndarray:
    """By linear programming with planes that cut the cones: slow and sure."""
    rows = [_cut(forces.size, k, 1.0, [], np.zeros(0)) for k, _, _ in contacts]
    for k, mu, part in contacts:
        rows += [_cut(forces.size, k, mu, part, direction) for direction in directions(len(part))]

    def cuts(best: np.ndarray, least: float) -> list[np.ndarray]:
        return [
            _cut(forces.size, k, mu, part, best[part] / np.linalg.norm(best[part]))
            for k, mu, part in contacts
            if len(part) == 2 and mu * best[k] - np.linalg.norm(best[part]) < least - CLOSE
        ]

    return best_choice(forces, free, rows, cuts, most=1.0)


def _cut(size: int, k: int, share: float, part: Sequence[int], direction: np.ndarray) -> np.ndarray:
    """share f_n - d' f_t for a unit vector d."""
    row = np.zeros(size)
    row[k] = share
    row[list(part)] = -direction
    return row
