"""The DCS of a system as a method needs it, with the user's complementarities and slacks for kinks."""

from __future__ import annotations

from dataclasses import replace

from nosnoc_py.discretization.options import FESDJ, FiniteElementMethod, TimeFreezing
from nosnoc_py.ocp import OCP, Complementarity
from nosnoc_py.reformulation.contact import contact_dcs, is_curved
from nosnoc_py.reformulation.dcs import DCS, Pair, of_each
from nosnoc_py.reformulation.filippov import filippov_dcs
from nosnoc_py.reformulation.kinks import with_slacks
from nosnoc_py.reformulation.numerical_time import frozen_dcs
from nosnoc_py.reformulation.time_freezing import Frozen
from nosnoc_py.roles import Role
from nosnoc_py.systems.cls import CLS
from nosnoc_py.tableaus import tableau
from nosnoc_py.tolerances import REST_VELOCITY


def dcs_of(ocp: OCP, method: FiniteElementMethod, frozen: Frozen | None, *, simulation: bool) -> DCS:
    """Return the DCS that a method makes of the system of an OCP, with the user's own complementarities."""
    system, cost = ocp.system, ocp.stage_cost
    if isinstance(method, FESDJ):
        # Defaults that differ between an OCP and a simulation step are resolved before the DCS is written.
        rate, rest = gap_rate_of(method, system, simulation=simulation), rest_velocity_of(method, simulation=simulation)
        dcs = contact_dcs(system, method.replace(gap_rate=rate, rest_velocity=rest), running_cost=cost)
    elif frozen is not None:
        assert isinstance(method, TimeFreezing)
        dcs = frozen_dcs(frozen, cost, stabilize=method.stabilize)
    else:
        dcs = filippov_dcs(system, running_cost=cost, dcs_mode=method.elements.dcs_mode)
    if (tableau(method.elements.scheme, method.elements.rk_stages).b >= 0.0).all():
        dcs = with_slacks(dcs, ocp)  # a slack of a negative weight would be unbounded
    return replace(dcs, pairs=(*dcs.pairs, *map(_own_pair, ocp.complementarities))) if ocp.complementarities else dcs


def _own_pair(pair: Complementarity) -> Pair:
    rows = range(pair.a.numel())
    sides = (of_each(f"{pair.name} a", rows), pair.a), (of_each(f"{pair.name} b", rows), pair.b)
    return Pair.between(Role.COMPLEMENTARITY, *sides, name=f"own {pair.name}", cross="none")


def gap_rate_of(method: FESDJ, system: CLS, *, simulation: bool) -> bool:
    """Return the option `gap_rate`, or its default."""
    return (simulation and is_curved(system)) if method.gap_rate is None else method.gap_rate


def rest_velocity_of(method: FESDJ, *, simulation: bool) -> float:
    """Return the option `rest_velocity` [m/s], or its default."""
    default = REST_VELOCITY if simulation else 0.0
    return default if method.rest_velocity is None else method.rest_velocity
