"""The DCS of a frozen system: the speed of time as a control, and contacts that stay closed on curved surfaces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.reformulation.contact import drift
from nosnoc_py.reformulation.dcs import DCS, Pair, of_each
from nosnoc_py.reformulation.filippov import heaviside_dcs
from nosnoc_py.reformulation.time_freezing import Frozen
from nosnoc_py.roles import Role
from nosnoc_py.systems.cls import CLS, Contact

SPEED = "speed_of_time"


def frozen_dcs(frozen: Frozen, running_cost: Any, *, stabilize: bool | None = None) -> DCS:
    """The DCS of a frozen system with the speed of time as one more control; frozen time costs nothing (Eq. 29).

    `stabilize` keeps inelastic contacts closed also where gaps are curved; by default where they are.
    """
    speed = ca.SX.sym(SPEED)
    dcs = heaviside_dcs(frozen.system)
    system = frozen.original
    if any(_is_curved(system, c) for c in system.contacts) if stabilize is None else stabilize:
        dcs = _stabilized(frozen, dcs)
    return replace(
        dcs,
        u=ca.vertcat(dcs.u, speed),
        u_names=(*dcs.u_names, SPEED),
        u_scale=np.append(dcs.u_scale, 1.0),
        flow=speed * dcs.flow,
        running_cost=speed * frozen.running * ca.SX(running_cost),
    )


def _is_curved(system: CLS, contact: Contact) -> bool:
    """Whether a gap that stays closed is more than a linear condition on q, for an inelastic contact."""
    return not contact.bounces and ca.depends_on(ca.gradient(contact.gap, system.q), system.q)


def _stabilized(frozen: Frozen, dcs: DCS) -> DCS:
    """q' = theta v + sum_i n_i tau_i with tau_i against the gap and against n'v, which both vanish in contact.

    Runge-Kutta stages with n'v = 0 leave a curved gap at an error of either sign: above zero the contact could not
    press, so that without tau the discrete equations have no solution.
    """
    system = frozen.original
    pairs = [(c, f) for c, f in zip(system.contacts, frozen.contacts, strict=True) if not c.bounces]
    contacts = [contact for contact, _ in pairs]
    names = [c.name for c in contacts]

    parts, (rising, sinking, opposed) = drift(names, ca.vertcat(*[c.gap for c in contacts]))
    up, down = (variable.symbol for variable in parts)
    along = system.moved(ca.horzcat(*[system.normal(c) for c in contacts]) @ (up - down))
    roles = (Role.NEGATIVE_PART, Role.POSITIVE_PART)
    below, above = (ca.vertcat(*[v.symbol for v in dcs.variables if v.role is role]) for role in roles)
    places = [f.functions[Role.NORMAL_VELOCITY] for _, f in pairs]
    speed = of_each("gap rate", names), ca.vertcat(*[below[j] + above[j] for j in places])
    held = Pair.between(
        Role.HOLDING, speed, (of_each("drift", names), up + down), name="held", faint=True, cross="none"
    )
    return replace(
        dcs,
        flow=dcs.flow + ca.vertcat(along, ca.SX(dcs.x.numel() - system.n_q, 1)),
        variables=(*dcs.variables, *parts),
        pairs=(*dcs.pairs, rising, sinking, held, opposed),
        switch_indicator=dcs.indicator,
    )
