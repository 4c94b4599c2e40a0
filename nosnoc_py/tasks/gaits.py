"""Periodic motions: gaits, up to a shift and a mirror."""

from __future__ import annotations

from collections.abc import Mapping

import casadi as ca
import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.ocp import Constraint
from nosnoc_py.rotations import attitude_error
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.symbols import check_keys

Array = np.ndarray


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
        minus changes the sign, {"base_y": "-base_y"}. Velocities follow their coordinates, except for those beside
        quaternions, which are given, too. The motion that follows is the mirrored one: two steps of a symmetric gait
        for one.

    Returns
    -------
    tuple of Constraint
        A row per state; three for the attitude of a quaternion.

    Raises
    ------
    ModelError
        For unknown states, states that are mirrored twice, and shifted quaternions.

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
    names, given = system.state_names, dict(shift or {})
    check_keys(given, names, "state in shift")
    source, sign = _mirrored(system, mirror or {})
    units = getattr(system, "unit_parts", ())
    of_units = {names[k] for part in units for k in range(part.start, part.stop)}
    if turned := sorted(of_units & set(given)):
        raise ModelError(f"periodic: shift: {turned[0]} is part of a quaternion, which does not end elsewhere.")
    start = ca.DM(sign) * system.x_initial[source]
    rows, low, high = [], list[float](), list[float]()
    for part in units:
        rows.append(attitude_error(system.x[part], start[part]))
        low += [0.0] * 3
        high += [0.0] * 3
    for k, name in enumerate(names):
        far = given.get(name, 0.0)
        if name in of_units or far is None or (k == len(names) - 1 and not system.autonomous):
            continue
        least, most = far if isinstance(far, tuple | list) else (far, far)
        rows.append(system.x[k] - start[k])
        low.append(-np.inf if least is None else float(least))
        high.append(np.inf if most is None else float(most))
    return (Constraint(ca.vertcat(*rows), low, high, name="periodic"),)


def _mirrored(system: Described, mirror: Mapping[str, str]) -> tuple[list[int], Array]:
    """Return for every state the index of the one it is compared with, and its sign."""
    names = system.state_names
    source, sign, taken = list(range(len(names))), np.ones(len(names)), set[str]()
    pairs = list(mirror.items())
    if isinstance(system, CLS) and system.moves_by_v:
        rates = dict(zip(system.names["q"], system.names["v"], strict=True))
        known = {*mirror, *(other.removeprefix("-") for other in mirror.values())}
        for one, other in mirror.items():
            first, second = rates.get(one), rates.get(other.removeprefix("-"))
            if first is not None and second is not None and first not in known:
                pairs.append((first, ("-" if other.startswith("-") else "") + second))
    for one, other in pairs:
        back = other.removeprefix("-")
        for name in (one, back):
            if name not in names:
                raise ModelError(f"periodic: mirror: {unknown_name(name, names, 'state')}")
            if name in taken:
                raise ModelError(f"periodic: mirror: {name} is given twice; give every pair once.")
        taken |= {one, back}
        i, k = names.index(one), names.index(back)
        source[i], source[k] = k, i
        sign[[i, k]] = -1.0 if other.startswith("-") else 1.0
    return source, sign
