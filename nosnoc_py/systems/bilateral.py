"""Bilateral constraints of a contact system: gears, mimic joints, rolling, closed loops.

Constraints g(q, p) = 0 and A(q, p) v = 0 are reduced to the level of accelerations and eliminated. With the rows J(q) =
(dg/dq N, A), the forces J' mu of the constraints follow from J v' + (d/dt J) v = 0, and

    M v' = P'(f + contact forces) - J' G^-1 (d/dt J) v,    G = J M^-1 J',    P = I - M^-1 J' G^-1 J,

where P is the projection onto admissible velocities that is orthogonal in the metric of M (Gauss's principle). So a
constraint changes forces and directions of contact forces only: the system stays an ordinary one for every method, and
its impacts obey the constraints, too. Positions and velocities that have drifted are put back by
`put_on_constraints`, one Newton step in the metric of M; simulators do this after every step.

References
----------
Udwadia and Kalaba, Analytical Dynamics (1996), Chapter 3. Hairer and Wanner, Solving Ordinary Differential Equations II
(1996), Section VII.2 (projection on invariants).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np
from attrs import evolve
from scipy.linalg import qr

from nosnoc_py.errors import ModelError
from nosnoc_py.systems.symbols import check_free, column, mapping

if TYPE_CHECKING:
    from nosnoc_py.systems.cls import CLS, Contact

Array = np.ndarray
# Rows whose part that is independent of the others is smaller than this fraction of their length are redundant, at
# states whose constraints hold to rounding.
DEPENDENT = 1e-7
# Random states at which redundant rows are looked for, how each is brought onto the constraints, and what closes them.
LOOKS = 4
CLOSE = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "max_nfev": 200}
CLOSED = 1e-10


def named_rows(value: Mapping[str, Any], what: str = "couplings") -> dict[str, ca.SX]:
    """Return constraints by name, each a column."""
    return {str(name): column(rows, f"{what}: {name}") for name, rows in mapping(value, what).items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class Bilateral:
    """Independent bilateral constraints of a system.

    Attributes
    ----------
    names : tuple of str
        Of every row: constraints of positions, then of velocities.
    closure : SX (n,)
        Those of positions: g(q, p) = 0.
    motion : SX (m - n,)
        Those of velocities: A(q, p) v = 0.
    rows : SX (m, n_v)
        J(q, p).
    force, contacts
        What the elimination has made; a copy of the system with the same ones is not reduced again.
    """

    names: tuple[str, ...]
    closure: ca.SX
    motion: ca.SX
    rows: ca.SX
    force: Any = None
    contacts: tuple[Any, ...] = ()

    def made(self, force: ca.SX, contacts: tuple[Any, ...]) -> bool:
        """Return True if force and contacts are those of the elimination."""
        same = len(contacts) == len(self.contacts) and all(map(operator.is_, contacts, self.contacts))
        return same and self.force is not None and bool(ca.is_equal(force, self.force))

    @property
    def n_positions(self) -> int:
        """Number of constraints of positions."""
        return int(self.closure.numel())


def bilateral_of(system: CLS) -> Bilateral | None:
    """Return the independent constraints of a system that has couplings or loops.

    Raises
    ------
    ModelError
        For constraints that are not of q alone, or linear in v; names the constraint.
    """
    closures, motions = list[tuple[str, ca.SX]](), list[tuple[str, ca.SX]]()
    for what, given in (("couplings", system.couplings), ("loops", system.loops)):
        for name, rows in given.items():
            title, solved = f"CLS: {what}: {name!r}", system.solved(rows)
            if ca.depends_on(solved, ca.vertcat(system.y, system.u)):
                raise ModelError(
                    f"{title} depends on controls, time or states of y; a coordinate that is driven as a function of "
                    "time is no coordinate: write that function in its place."
                )
            moves = ca.depends_on(solved, system.v)
            allowed = {"q": system.q, "v": system.v, "p": system.p} if moves else {"q": system.q, "p": system.p}
            check_free(solved, allowed, title)
            if moves and (not ca.is_linear(solved, system.v) or not _is_homogeneous(solved, system.v)):
                raise ModelError(
                    f"{title}: a constraint that depends on v has to be linear in v without a constant part, such as "
                    "v[0] - radius * v[1], which vanishes at rest."
                )
            (motions if moves else closures).extend((name, row) for row in ca.vertsplit(solved))
    every = [*closures, *motions]
    if not every:
        return None
    closure, motion = (ca.vertcat(ca.SX(0, 1), *[row for _, row in part]) for part in (closures, motions))
    names = tuple(name for name, _ in every)
    jacobian = ca.vertcat(system.along_v(closure), ca.jacobian(motion, system.v))
    found = Bilateral(names=names, closure=closure, motion=motion, rows=jacobian)
    return _independent(system, found)


def _is_homogeneous(rows: ca.SX, v: ca.SX) -> bool:
    return bool(ca.simplify(ca.substitute(rows, v, ca.SX.zeros(v.numel()))).is_zero())


def _independent(system: CLS, found: Bilateral) -> Bilateral:
    """Return the constraints without rows that follow from the others wherever all of them hold.

    Chains in space that move in a plane close some rows by themselves. This is seen at states on the constraints only:
    besides them the rows may be independent.
    """
    kept = np.arange(len(found.names))
    rows = ca.Function("rows", [system.q, system.p], [found.rows])
    ranks = [_independent_rows(np.array(rows(q, p))) for q, p in closed_positions(system, found)]
    if ranks:
        # At singular states further rows depend on others: the largest number is that of nearly all states.
        kept = np.sort(max(ranks, key=len))
    first = [int(k) for k in kept if k < found.n_positions]
    later = [int(k) - found.n_positions for k in kept if k >= found.n_positions]
    return replace(
        found,
        names=tuple(found.names[k] for k in kept),
        closure=found.closure[first],
        motion=found.motion[later],
        rows=found.rows[[int(k) for k in kept], :],
    )


def closed_positions(system: CLS, found: Bilateral) -> list[tuple[Array, Array]]:
    """Return random positions (n_q,) at which the constraints hold, with parameters; fewer where it fails."""
    evaluate = ca.Function("rows", [system.q, system.p], [found.closure, ca.jacobian(found.closure, system.q)])
    rng = np.random.default_rng(0)
    p = np.ones(system.n_p) if system.p_default is None else np.asarray(system.p_default)
    given = [rng.uniform(-1.0, 1.0, system.n_q) for _ in range(LOOKS)]
    near = [_closed_near(evaluate, found.n_positions, q, p) for q in given]
    return [(q, p) for q in near if q is not None]


def _independent_rows(rows: Array) -> Array:
    """Return the indices of a largest set of independent rows (QR with column pivots, Golub and Van Loan)."""
    sizes = np.linalg.norm(rows, axis=1)
    scaled = rows / np.where(sizes > 0.0, sizes, 1.0)[:, None]
    scaled[sizes <= DEPENDENT * sizes.max(initial=0.0)] = 0.0
    _, triangle, order = qr(scaled.T, mode="economic", pivoting=True)
    return np.asarray(order[: np.count_nonzero(np.abs(np.diag(triangle)) > DEPENDENT)])


def _closed_near(evaluate: Any, count: int, q: Array, p: Array) -> Array | None:
    """Return positions (n_q,) near q at which `count` constraints of positions hold; None if none is found.

    `evaluate` is the function (q, p) -> closure, its derivative by q.
    """
    from scipy.optimize import least_squares  # not paid for by an import of the library

    if not count:
        return q
    found = least_squares(
        lambda at: np.array(evaluate(at, p)[0])[:, 0], q, lambda at: np.array(evaluate(at, p)[1]), **CLOSE
    )
    return found.x if np.abs(found.fun).max() <= CLOSED * max(1.0, float(np.abs(found.x).max())) else None


def reduced(system: CLS, found: Bilateral, contacts: tuple[Contact, ...]) -> tuple[ca.SX, tuple[Contact, ...]]:
    """Return the force and the contacts of a system on its constraints, see the module."""
    response = ldl_solved(system.mass_matrix, found.rows.T)
    gram = found.rows @ response
    pulls = ldl_solved(gram, response.T)  # G^-1 J M^-1
    turning = ca.jtimes(found.rows @ system.v, system.q, system.position_rate)

    def projected(directions: ca.SX) -> ca.SX:
        return directions - found.rows.T @ (pulls @ directions)

    force = projected(system.force) - found.rows.T @ ldl_solved(gram, turning)
    made = [
        evolve(
            contact,
            normal=projected(system.normal(contact)),
            tangent=None if contact.tangent is None else projected(contact.tangent),
        )
        for contact in contacts
    ]
    return force, tuple(made)


def put_on_constraints(system: CLS) -> ca.Function:
    """Return (x, p) -> x: one Newton step onto the constraints in the metric of M, positions and then velocities."""
    found = system.bilateral
    assert found is not None
    own = found.rows[: found.n_positions, :]
    response = ldl_solved(system.mass_matrix, own.T)
    moved = system.q - system.moved(response @ ldl_solved(own @ response, found.closure)) if own.numel() else system.q
    response = ldl_solved(system.mass_matrix, found.rows.T)
    pushed = system.v - response @ ldl_solved(found.rows @ response, found.rows @ system.v)
    again = ca.Function("again", [system.x, system.p], [pushed])
    at = again(ca.vertcat(moved, system.v, system.y), system.p)
    return ca.Function("put_on_constraints", [system.x, system.p], [ca.densify(ca.vertcat(moved, at, system.y))])


def ldl_solved(matrix: ca.SX, right: ca.SX) -> ca.SX:
    """Return the solution of a system with a symmetric positive definite matrix, by its factors L D L'."""
    if matrix.numel() == 1:
        return right / matrix
    factors = ca.ldl(matrix)
    return ca.ldl_solve(right, *factors)
