"""Nearest admissible states: constraints hold, and contacts are not penetrated.

Gauss-Newton steps for the nearest position in the metric of the mass matrix at the given state: with the displacement e
from it, the constraint values r and their rows A, the next displacement is e + d with

    d = -e + W A' (A W A')^+ (A e - r),    W = M^-1,

as in sequential quadratic programming; penetrated contacts are active until their multiplier pulls.

References
----------
Nocedal and Wright, Numerical Optimization (2006), Section 18.1 and Algorithm 16.3 (active sets).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.systems.quaternions import tangent_directions, unit_states, with_attitude
from nosnoc_py.systems.relations import by_name

if TYPE_CHECKING:
    from nosnoc_py.systems.cls import CLS
    from nosnoc_py.systems.pss import PDS

Array = np.ndarray
# Steps; and, as fractions of the largest coordinate (at least 1 of its unit): a constraint that is violated less is
# given with rounded numbers, and one that is violated less after the last step holds.
STEPS, GIVEN, HOLDS = 200, 1e-8, 1e-11
# Steps that are shorter than these fractions of the largest coordinate end the iteration; the latter if they do not
# become shorter any more.
SHORT, ROUNDED = 1e-15, 1e-12
# Coordinates, and speeds beside them, are not taken for smaller than this: below it a violation is rounding of closures
# whose lengths are of size 1.
SMALLEST = 1e-6
# Directions of constraints below this fraction of the strongest one have no effect.
WEAK = 1e-12


class ProjectedState(np.ndarray):
    """State (n_x,) as an array, with what the projection has changed.

    Attributes
    ----------
    moved : dict name -> float
        Changes of the states that have moved, in their units.
    """

    moved: dict[str, float]

    def __array_finalize__(self, made: Any) -> None:
        self.moved = dict(getattr(made, "moved", {}))

    @classmethod
    def of(cls, x: Array, start: Array, names: tuple[str, ...]) -> ProjectedState:
        """Return the state with its changes from another one."""
        result = np.array(x).view(cls)
        result.moved = {n: float(a - b) for n, a, b in zip(names, x, start, strict=True) if a != b}
        return result


def constraints_of(system: CLS) -> ca.Function:
    """Return (x, p) -> closure, its rows, all rows, gaps, their gradients as rows, M, N."""
    s, found = system, system.bilateral
    none = ca.SX(0, 1), ca.SX(0, s.n_v), ca.SX(0, s.n_v)
    own = none if found is None else (found.closure, found.rows[: found.n_positions, :], found.rows)
    gaps = s.mechanics.gaps
    outputs = [*own, gaps, s.along_v(gaps), s.mass_matrix, s.rate_matrix]
    return ca.Function("constraints", [s.x, s.p], [ca.densify(part) for part in outputs])


def project(system: CLS, x0: Any, p: Array, what: str) -> ProjectedState:
    """Return the nearest admissible state, see `CLS.project`."""
    s, named = system, set(x0) if isinstance(x0, Mapping) else set[str]()
    if isinstance(x0, Mapping):
        x0 = by_name(x0, s.state_names, np.zeros(len(s.state_names)), what)
    x = with_attitude(np.asarray(x0, dtype=float).reshape(-1), s.unit_parts)
    if x.size == len(s.state_names) - 1 and not s.autonomous:
        x = np.append(x, 0.0)
    if x.size != len(s.state_names) or not np.isfinite(x).all():
        raise ModelError(f"{what}: expected {len(s.state_names)} finite numbers, given {np.asarray(x0).tolist()}.")
    evaluate = s.mechanics.once(constraints_of)
    free = np.array([name not in named for name in s.state_names])
    start = x.copy()
    x = _closed(s, evaluate, x, p, free, what)
    x[s.at_v] = _allowed_velocity(s, evaluate, x, p, free[s.at_v], what)
    return ProjectedState.of(x, start, s.state_names)


def project_into_set(system: PDS, x0: Array, p: Array, what: str) -> Array:
    """Return the nearest state (n_x,) with c(x) >= 0 in the metric of the system; directions of its null space stay."""
    s, inverse, x, active = system, system.metric_inverse, x0.copy(), set[int]()
    evaluate = ca.Function("set", [s.x, s.p], [s.constraints, ca.densify(ca.jacobian(s.constraints, s.x))])
    size = float(np.abs(x0).max(initial=1.0))
    for _ in range(STEPS):
        values, gradients = (np.asarray(part) for part in evaluate(x, p))
        active |= set(np.flatnonzero(values[:, 0] < 0.0).tolist())
        while True:
            rows = [*sorted(active)]
            A, r = gradients[rows], values[rows, 0]
            pushes = np.linalg.lstsq(A @ inverse @ A.T, A @ (x - x0) - r, rcond=WEAK)[0]
            pulls = [row for row, push in zip(rows, pushes, strict=True) if push < 0.0]
            if not pulls:
                break
            active -= set(pulls)
        following = x0 + inverse @ A.T @ pushes
        length, x = float(np.abs(following - x).max(initial=0.0)), following
        if length <= ROUNDED * size:
            break
    values, gradients = (np.asarray(part) for part in evaluate(x, p))
    allowed = HOLDS * size * np.maximum(1.0, np.linalg.norm(gradients, axis=1))
    if not (values[:, 0] >= -allowed).all():
        worst = int(np.argmin(values[:, 0] + allowed))
        raise ModelError(
            f"{what}: no state nearby is admissible: {s.constraint_names[worst]!r} stays violated by "
            f"{-values[worst, 0]:.3g}; give a state that is closer to the set."
        )
    return x


def _closed(s: CLS, evaluate: Any, x: Array, p: Array, free: Array, what: str) -> Array:
    """Return the state with the nearest position."""
    first = [np.asarray(part) for part in evaluate(x, p)]
    inverse, start = np.linalg.inv(first[5]), x[s.at_q].copy()
    if not free[s.at_q].all():
        inverse = _held(inverse, first[6], free[s.at_q])
    active, last, size = set[int](), np.inf, float(np.abs(x[s.at_q]).max(initial=1.0))
    for _ in range(STEPS):
        closure, own, _, gaps, normals, _, turns = (np.asarray(part) for part in evaluate(x, p))
        moved = np.linalg.lstsq(turns, x[s.at_q] - start, rcond=None)[0]
        while True:
            rows = [*sorted(active)]
            A, r = np.vstack([own, normals[rows]]), np.concatenate([closure, gaps[rows]])[:, 0]
            if not np.isfinite(A).all() or not np.isfinite(r).all():
                raise ModelError(f"{what}: constraints have no finite values near it; give a state that is closer.")
            pushes = np.linalg.lstsq(A @ inverse @ A.T, A @ moved - r, rcond=WEAK)[0]
            pulls = [c for c, push in zip(rows, pushes[len(own) :], strict=True) if push < 0.0 and gaps[c, 0] >= 0.0]
            if not pulls:
                break
            active -= set(pulls)
        step = inverse @ A.T @ pushes - moved
        length = float(np.abs(turns @ step).max(initial=0.0))
        # A long way is gone in pieces: linearised constraints are not trusted farther than the state is large.
        share = min(1.0, 0.5 * size / length) if length else 1.0
        x = unit_states(_with(x, s.at_q, x[s.at_q] + share * (turns @ step)), s.unit_parts)
        # Steps of rounding size do not become smaller any more.
        if length <= SHORT * size or (length <= ROUNDED * size and length >= 0.5 * last):
            # Contacts join where the constraints hold: on the way there bodies may pass through each other.
            deep = set(np.flatnonzero(np.asarray(evaluate(x, p)[3])[:, 0] < 0.0).tolist()) - active
            if not deep or length == last:
                break
            active |= deep
        last = length
    _check_holds(s, evaluate, x, p, what)
    return x


def _with(x: Array, part: slice, values: Array) -> Array:
    result = x.copy()
    result[part] = values
    return result


def _held(inverse: Array, turns: Array, free: Array) -> Array:
    """Return M^-1 on the motions that leave some coordinates as they are."""
    still = turns[~free]
    # Motions d with `still @ d = 0`, in the metric of M: M^-1 projected like a constrained inertia.
    return np.asarray(
        inverse - inverse @ still.T @ np.linalg.pinv(still @ inverse @ still.T, rcond=WEAK) @ still @ inverse
    )


def _allowed_velocity(s: CLS, evaluate: Any, x: Array, p: Array, free: Array, what: str) -> Array:
    """Return the nearest velocity that the constraints allow."""
    _, _, rows, _, _, mass, _ = (np.asarray(part) for part in evaluate(x, p))
    v = x[s.at_v]
    if not len(rows):
        return v
    inverse = np.linalg.inv(mass)
    if not free.all():
        inverse = _held(inverse, np.eye(v.size), free)
    v = v - inverse @ rows.T @ np.linalg.lstsq(rows @ inverse @ rows.T, rows @ v, rcond=WEAK)[0]
    left = np.abs(rows @ v) > GIVEN * np.linalg.norm(rows, axis=1) * np.abs(v).max(initial=0.0)
    if left.any():
        name = s.bilateral.names[int(np.flatnonzero(left)[0])]  # type: ignore[union-attr]
        raise ModelError(f"{what}: the given velocities contradict {name!r}; leave out those that follow from others.")
    return v


def _check_holds(s: CLS, evaluate: Any, x: Array, p: Array, what: str) -> None:
    """Raise `ModelError` for the constraint that holds least."""
    names, values, allowed = _violations(s, evaluate, x, p)
    worst = int(np.argmax(values - HOLDS * allowed)) if values.size else -1
    if worst >= 0 and not values[worst] <= HOLDS * allowed[worst]:
        raise ModelError(
            f"{what}: no state nearby is admissible: {names[worst]!r} stays off by {values[worst]:.3g}; give a state "
            "that is nearly closed, or one with fewer named components."
        )


def _violations(s: CLS, evaluate: Any, x: Array, p: Array, least: float = 1.0) -> tuple[tuple[str, ...], Array, Array]:
    """Return names, sizes of violations, and what they are relative to, for coordinates of `least` at least."""
    closure, own, _, gaps, normals, _, _ = (np.asarray(part) for part in evaluate(x, p))
    names = (*(s.bilateral.names[: len(closure)] if s.bilateral else ()), *(c.name for c in s.contacts))
    values = np.concatenate([np.abs(closure), np.maximum(-gaps, 0.0)])[:, 0]
    size = max(least, float(np.abs(x[s.at_q]).max(initial=0.0)))
    return names, values, size * np.linalg.norm(np.vstack([own, normals]), axis=1)


def check_closed(system: CLS, x: Array, p: Array, what: str) -> Array:
    """Return the state on its bilateral constraints, or raise `ModelError` if it violates one by more than rounding."""
    found = system.bilateral
    if found is None:
        return x
    evaluate = system.mechanics.once(constraints_of)
    names, values, sizes = _violations(system, evaluate, x, p, SMALLEST)
    count = found.n_positions
    far = np.flatnonzero(~(values[:count] <= GIVEN * sizes[:count]))
    rows = np.asarray(evaluate(x, p)[2])
    rates, fast = np.abs(rows @ x[system.at_v]), np.linalg.norm(rows, axis=1) * _speed(system, x, p)
    quick = np.flatnonzero(~(rates <= GIVEN * fast))
    if far.size or quick.size:
        name = names[int(far[0])] if far.size else found.names[int(quick[0])]
        size = values[far[0]] if far.size else rates[quick[0]]
        how = "is open by" if far.size else "is violated by the velocities, by"
        raise ModelError(
            f"{what}: {name!r} {how} {size:.6g}; system.project({what}) returns the nearest state that obeys all "
            "constraints, and components given by name may leave out what follows."
        )
    return np.asarray(project(system, x, p, what))


def _speed(system: CLS, x: Array, p: Array) -> float:
    """Return the speed that an error of a velocity is relative to: at rest that of a fall over the coordinates."""
    at = system.mechanics.at(x, np.zeros(system.n_u), p)
    size = max(SMALLEST, float(np.abs(x[system.at_q]).max(initial=0.0)))
    fall = np.sqrt(np.nan_to_num(np.abs(at.inverse @ at.force)) * size)
    return float(max(np.abs(x[system.at_v]).max(initial=0.0), fall.max(initial=0.0), SMALLEST))


def settled(system: Any, x: Array, p: Array) -> Array:
    """Return the state after one Newton step onto the bilateral constraints; the state itself without any."""
    return x if system.bilateral is None else np.asarray(system.mechanics.settled(x, p)[0])[:, 0]


def admissible_directions(system: Any, x: Array, p: Array) -> Array:
    """Return the projection (n_x, n_x) of changes of a state on those of admissible ones, contacts left aside."""
    result = tangent_directions(x, system.unit_parts)
    if system.bilateral is None:
        return result
    return np.asarray(system.mechanics.once(_settled_by_x)(x, p) @ result)


def _settled_by_x(system: CLS) -> ca.Function:
    put = system.mechanics.put_on_constraints(system.x, system.p)
    return ca.Function("settled_by_x", [system.x, system.p], [ca.densify(ca.jacobian(put, system.x))])
