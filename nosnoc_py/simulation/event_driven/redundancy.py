"""Choice of contact forces that are not unique: the one that is farthest from any change of modes.

Two boxes that touch and stick to the ground press on each other with an undetermined force; their motion does not
depend on it. Their modes hold as long as any choice of forces is admissible. At a node the best one is chosen, with the
largest smallest slack of f_n >= 0 and |f_t| <= mu f_n, and the forces stay as near to it as they can; once they reach
their limits, the best choice of every instant tells the end of the modes. This is a linear program in the plane. In
space it is a second-order cone program, solved by SLSQP, or by linear programs with cutting planes where that fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nosnoc_py.audit.redundancy import best_choice, directions

# Cutting planes are added until no friction force exceeds its cone by more than this fraction of the largest force.
OUTSIDE_CONE = 1e-10
# Entries of a projection onto the directions of forces that are not unique: smaller ones are rounding.
LINKED = 1e-8

Share = tuple[int, float, list[int]]
"""Index of a normal force among the independent forces, friction coefficient, indices of its friction force in stick.
"""


def most_interior(forces: np.ndarray, free: np.ndarray, contacts: Sequence[Share]) -> np.ndarray:
    """Return forces + free z with the largest smallest slack of f_n >= 0, and of |f_t| <= mu f_n in stick.

    Parameters
    ----------
    forces : (k,)
        One choice [N].
    free : (k, d)
        Directions that do not change the motion.
    contacts : sequence of Share
        Closed contacts.
    """
    # Scaled by the largest force: tolerances of the optimisation are absolute.
    unit = float(np.abs(forces).max(initial=0.0)) or 1.0
    relative = forces / unit
    spatial = any(len(part) == 2 for _, _, part in contacts)
    best = _by_newton(relative, free, contacts) if spatial else None  # in the plane one linear program is exact
    return unit * (_by_cuts(relative, free, contacts) if best is None else best)


def interior_by_piles(
    forces: np.ndarray, free: np.ndarray, contacts: Sequence[Share]
) -> tuple[np.ndarray, dict[int, float]]:
    """Return the most interior forces (k,), and by normal force the least slack of those that belong together.

    Piles that stand apart have choices of their own: the best one of all would leave most of them open.
    """
    result, least = forces.copy(), dict[int, float]()
    for part, own in independent_choices(free, contacts):
        place = {int(i): k for k, i in enumerate(part)}
        inside = [(place[k], mu, [place[i] for i in rows]) for k, mu, rows in contacts if k in place]
        result[part] = most_interior(forces[part], own, inside)
        slack = float(slacks(result[part], inside).min())
        least |= {int(part[k]): slack for k, _, _ in inside}
    return result, least


def independent_choices(free: np.ndarray, contacts: Sequence[Share]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the groups of forces (m,) that are not unique and depend on each other, each with its directions (m, d).

    `free` (k, d) is a basis of the directions that do not change the motion; forces of a contact belong together.
    """
    linked = np.abs(free @ free.T) > LINKED
    loose = linked.diagonal()
    for k, _, tangents in contacts:
        own = [k, *tangents]
        if loose[own].any():
            linked[np.ix_(own, own)] = True
    # Squared until the groups are closed: links of links.
    while (more := linked @ linked).sum() > linked.sum():
        linked = more
    groups = {row.tobytes(): np.flatnonzero(row) for row in linked if row.any()}
    found = []
    for part in groups.values():
        directions_, sizes, _ = np.linalg.svd(free[part], full_matrices=False)
        if (sizes > LINKED).any():
            found.append((part, directions_[:, sizes > LINKED]))
    return found


def slacks(forces: np.ndarray, contacts: Sequence[Share]) -> np.ndarray:
    """Return f_n of all contacts, then mu f_n -+ f_t (plane) or mu f_n - |f_t| (space) of those that stick."""
    values = [forces[k] for k, _, _ in contacts]
    for k, mu, part in contacts:
        sizes = [np.linalg.norm(forces[part])] if len(part) == 2 else [s * forces[i] for i in part for s in (1, -1)]
        values += [mu * forces[k] - size for size in sizes]
    return np.array(values)


def _slopes(forces: np.ndarray, contacts: Sequence[Share]) -> np.ndarray:
    """Return the derivatives of the slacks, one row each."""
    rows = [_cut(forces.size, k, 1.0, [], np.zeros(0)) for k, _, _ in contacts]
    for k, mu, part in contacts:
        # The direction of a vanishing friction force is arbitrary: zero is a valid subgradient of its norm.
        direction = forces[part] / max(float(np.linalg.norm(forces[part])), 1e-300)
        normals = [direction] if len(part) == 2 else directions(len(part))
        rows += [_cut(forces.size, k, mu, part, d) for d in normals]
    return np.array(rows)


def _by_newton(forces: np.ndarray, free: np.ndarray, contacts: Sequence[Share]) -> np.ndarray | None:
    """Maximise the smallest slack by sequential quadratic programming (the slacks are concave); None if it fails."""
    from scipy.optimize import minimize  # not paid for by an import of the library

    # Variables are (z, s) with the smallest slack s, which is maximised: the problem is smooth, unlike max min.
    last = np.append(np.zeros(free.shape[1]), -1.0)
    result = minimize(
        lambda y: -y[-1],
        np.append(np.zeros(free.shape[1]), slacks(forces, contacts).min()),
        jac=lambda y: last,
        # The slack is bounded by the unit of force: bodies that press on each other could increase all slacks without
        # limit.
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
    return forces + free @ result.x[:-1] if result.success else None


def _by_cuts(forces: np.ndarray, free: np.ndarray, contacts: Sequence[Share]) -> np.ndarray:
    """Maximise the smallest slack by linear programs with cutting planes of the cones: slower, but reliable."""
    rows = [_cut(forces.size, k, 1.0, [], np.zeros(0)) for k, _, _ in contacts]
    for k, mu, part in contacts:
        rows += [_cut(forces.size, k, mu, part, direction) for direction in directions(len(part))]

    def cuts(best: np.ndarray, least: float) -> list[np.ndarray]:
        return [
            _cut(forces.size, k, mu, part, best[part] / np.linalg.norm(best[part]))
            for k, mu, part in contacts
            if len(part) == 2 and mu * best[k] - np.linalg.norm(best[part]) < least - OUTSIDE_CONE
        ]

    return best_choice(forces, free, rows, cuts, most=1.0)


def _cut(size: int, k: int, share: float, part: Sequence[int], direction: np.ndarray) -> np.ndarray:
    """Return the row of share f_n - d' f_t for a unit vector d."""
    row = np.zeros(size)
    row[k] = share
    row[list(part)] = -direction
    return row
