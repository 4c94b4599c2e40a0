"""Periodic motions: gaits, up to a shift and a mirror."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import ModelError, check_type, unknown_name
from nosnoc_py.ocp import Constraint
from nosnoc_py.rotations import attitude_error
from nosnoc_py.systems.bilateral import Bilateral, closed_positions
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.symbols import check_keys, scalar

Array = np.ndarray
# Violation of a coupling or loop by the last state, relative to what it sums, that is no rounding of a file.
OPEN = 1e-6


@named_arguments
def periodic(
    system: Described,
    *,
    shift: Mapping[str, float | tuple[float | None, float | None] | None] | None = None,
    mirror: Mapping[str, str] | None = None,
) -> tuple[Constraint, ...]:
    """Return terminal constraints: the last state is the first one, up to a shift and a mirror.

    Leave `x0` of the OCP free, within bounds, and fix what is shifted at the start by an initial constraint: where a
    gait begins has no effect.

    Parameters
    ----------
    system : CLS, PSS, ...
    shift : mapping, optional
        States that end elsewhere, with the distance: a number, a pair (least, most), or None for any.
    mirror : mapping, optional
        Pairs of states that change places from one period to the next, {"left_knee": "right_knee"}, each given once; a
        minus changes the sign, {"base_y": "-base_y"}. Velocities follow their coordinates; the angular velocity beside
        a quaternion is given, too. The motion that follows is the mirrored one: two steps of a symmetric gait
        for one.

    Returns
    -------
    tuple of Constraint
        A row per state, three for the attitude of a quaternion, none for the time.

    Raises
    ------
    ModelError
        For unknown states, pairs of different kinds, states that are mirrored twice, shifted quaternions, the time, and
        last states that violate couplings or loops: mirror or shift the joints that follow others, too.

    Examples
    --------
    A cart on a spring that comes back after half a period, mirrored:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - ca.pi**2 * q, contacts=[])
    >>> back = ns.periodic(cart, mirror={"q_0": "-q_0"})
    >>> ocp = ns.OCP(cart, horizon=1.0, initial_constraints=[q == 1], stage_cost=u**2, terminal_constraints=back)
    >>> abs(ns.solve(ocp, ns.MultiPhase(sequence=ns.Sequence([{}]))).objective) < 1e-6
    True
    """
    check_type(system, Described, "periodic: system")
    names, given = system.state_names, dict(shift or {})
    check_keys(given, names, "state in shift")
    source, sign = _mirrored(system, mirror or {})
    units = getattr(system, "unit_parts", ())
    of_units = {names[k] for part in units for k in range(part.start, part.stop)}
    if turned := sorted(of_units & set(given)):
        raise ModelError(f"periodic: shift: {turned[0]} is part of a quaternion, which does not end elsewhere.")
    time = set() if system.autonomous else {names[-1]}
    if time & set(given):
        raise ModelError(f"periodic: shift: {names[-1]} is the time, which ends at the horizon.")
    if isinstance(system, CLS) and system.bilateral is not None:
        _check_closed(system, system.bilateral, source, sign, given)
    start = ca.DM(sign) * system.x_initial[source]
    rows, low, high = [], list[float](), list[float]()
    for part in units:
        rows.append(attitude_error(system.x[part], start[part]))
        low += [0.0] * 3
        high += [0.0] * 3
    for k, name in enumerate(names):
        far = given.get(name, 0.0)
        if name in of_units | time or far is None:
            continue
        pair = far if isinstance(far, tuple | list) else (far, far)
        if len(pair) != 2:
            raise ModelError(f"periodic: shift: {name}: expected a number, (least, most) or None, given {far!r}.")
        least, most = (-np.inf if pair[0] is None else pair[0]), (np.inf if pair[1] is None else pair[1])
        rows.append(system.x[k] - start[k])
        low.append(scalar(least, f"periodic: shift: {name}"))
        high.append(scalar(most, f"periodic: shift: {name}"))
    if not rows:
        raise ModelError("periodic: shift: every state may end anywhere, so that nothing is periodic.")
    return (Constraint(ca.vertcat(*rows), low, high, name="periodic"),)


def _mirrored(system: Described, mirror: Mapping[str, str]) -> tuple[list[int], Array]:
    """Return for every state the index of the one it is compared with, and its sign."""
    names, pairs = system.state_names, list[tuple[str, str]]()
    groups = {name: group for group in system.states for name in system.names.get(group, ())}
    for one, other in mirror.items():
        if not isinstance(other, str):
            raise ModelError(f"periodic: mirror: {one}: expected the name of a state, given {other!r}.")
        for name in (one, other.removeprefix("-")):
            if name not in names:
                raise ModelError(f"periodic: mirror: {unknown_name(name, names, 'state')}")
            if name == names[-1] and not system.autonomous:
                raise ModelError(f"periodic: mirror: {name} is the time, which has no mirror.")
        if groups.get(one) != groups.get(other.removeprefix("-")):
            raise ModelError(
                f"periodic: mirror: {one} and {other} are of different kinds: coordinate, velocity, state."
            )
        pairs.append((one, other))
    if isinstance(system, CLS):
        pairs += _mirrored_rates(system, mirror)
    source, sign, taken = list(range(len(names))), np.ones(len(names)), set[str]()
    for one, other in pairs:
        back = other.removeprefix("-")
        if doubled := sorted(taken & {one, back}):
            raise ModelError(f"periodic: mirror: {doubled[0]} is given twice; give every pair once.")
        taken |= {one, back}
        i, k = names.index(one), names.index(back)
        source[i], source[k] = k, i
        sign[[i, k]] = -1.0 if other.startswith("-") else 1.0
    return source, sign


def _check_closed(system: CLS, found: Bilateral, source: list[int], sign: Array, shift: Mapping[str, Any]) -> None:
    """Raise `ModelError` if last states of motions that obey couplings and loops do not: no motion is periodic then."""
    far = np.zeros(len(source))
    # Where a shift is an interval the program chooses the last state; constraints on such states cannot be checked.
    loose = [name for name, value in shift.items() if value is None or isinstance(value, tuple | list)]
    for name, value in shift.items():
        far[system.state_names.index(name)] = 0.0 if name in loose else scalar(value, f"periodic: shift: {name}")
    rows = ca.vertcat(found.closure, found.rows @ system.v)
    slopes = ca.jacobian(rows, system.x)
    evaluate = ca.Function("closed", [system.x, system.p], [rows, slopes, found.rows])
    names = [*found.names[: found.n_positions], *found.names]
    uses = [[system.state_names[k] for k in set(slopes[i, :].sparsity().get_triplet()[1])] for i in range(len(names))]
    # Parameters are not known yet: those of the problem may satisfy what others do not.
    unknown = [ca.depends_on(rows[k], system.p) for k in range(len(names))]
    rng = np.random.default_rng(0)
    for q, p in closed_positions(system, found):
        x = np.zeros(len(source))
        x[system.at_q] = q
        along = np.array(evaluate(x, p)[2])
        v = rng.uniform(-1.0, 1.0, system.n_v)
        x[system.at_v] = v - np.linalg.pinv(along) @ (along @ v)
        last = sign * x[source] + far
        values, gradients, _ = (np.array(part) for part in evaluate(last, p))
        sizes = np.abs(gradients) @ np.maximum(np.abs(last), 1.0)
        for k in np.flatnonzero(np.abs(values[:, 0]) > OPEN * sizes):
            if not (unknown[k] or set(uses[k]) & set(loose)):
                own = ", ".join(name for name in system.state_names if name in uses[k])
                raise ModelError(
                    f"periodic: the last state of a motion would violate the constraint {names[k]!r} of the system: "
                    f"mirror or shift all of {own}, so that it holds again."
                )


def _mirrored_rates(system: CLS, mirror: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the pairs of the velocities of mirrored coordinates, unless they are given."""
    matrix, q, v = system.rate_matrix, system.names["q"], system.names["v"]
    known = {*mirror, *(other.removeprefix("-") for other in mirror.values())}
    rates, pairs = dict[str, str](), list[tuple[str, str]]()
    for k, name in enumerate(q):
        columns = matrix[k, :].sparsity().get_triplet()[1]
        if len(columns) == 1 and float(matrix[k, columns[0]].is_one()):
            rates[name] = v[columns[0]]
        elif name in known and not known & {v[column] for column in columns}:
            wanted = ", ".join(v[column] for column in columns)
            raise ModelError(f"periodic: mirror: {name} is part of an attitude; give the mirror of {wanted}, too.")
    for one, other in mirror.items():
        first, second = rates.get(one), rates.get(other.removeprefix("-"))
        if first is not None and second is not None and not known & {first, second}:
            pairs.append((first, ("-" if other.startswith("-") else "") + second))
    return pairs
