"""The DCS of a frozen system, in numerical time tau (time-freezing, Section 5).

The clock stands still during jumps, so numerical time has to run faster elsewhere for the physical horizon to be
reached: its speed s is a control, d/dtau = s, constant in a control stage (Eq. 33). The running cost is multiplied by
the rate of the clock, so that frozen time costs nothing (Eq. 29).

On curved surfaces the discretised sliding mode drifts off the surface; `_stabilized` adds the stabilisation of Gear,
Gupta and Leimkuhler (1985) that keeps the gap closed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.reformulation.contact import drift_parts
from nosnoc_py.reformulation.dcs import DCS, Pair, of_each
from nosnoc_py.reformulation.filippov import heaviside_dcs
from nosnoc_py.reformulation.time_freezing import Frozen
from nosnoc_py.roles import Role
from nosnoc_py.systems.cls import CLS, Contact

SPEED = "speed_of_time"


def frozen_dcs(frozen: Frozen, running_cost: Any, *, stabilize: bool | None = None) -> DCS:
    """Return the DCS of a frozen system with the speed of time as an additional control.

    Parameters
    ----------
    frozen : Frozen
    running_cost : SX scalar
        Per unit of physical time.
    stabilize : bool, optional
        Stabilise the gaps of inelastic contacts in persistent contact; default: if one of them is curved.
    """
    speed = ca.SX.sym(SPEED)
    dcs = heaviside_dcs(frozen.system)
    system = frozen.original
    if any(_has_curved_gap(system, c) for c in system.contacts) if stabilize is None else stabilize:
        dcs = _stabilized(frozen, dcs)
    return replace(
        dcs,
        u=ca.vertcat(dcs.u, speed),
        u_names=(*dcs.u_names, SPEED),
        # The speed of time has no unit, and is 1 where nothing freezes.
        u_scale=np.append(dcs.u_scale, 1.0),
        flow=speed * dcs.flow,
        running_cost=speed * frozen.clock_rate * ca.SX(running_cost),
    )


def _has_curved_gap(system: CLS, contact: Contact) -> bool:
    """Return True if the gap of an inelastic contact is nonlinear in q. Bouncing contacts do not stay closed."""
    return not contact.bounces and ca.depends_on(ca.gradient(contact.gap, system.q), system.q)


def _stabilized(frozen: Frozen, dcs: DCS) -> DCS:
    """Add q' = theta v + sum_i n_i tau_i with tau_i complementary to the gap and to n'v, which vanish in contact.

    Runge-Kutta stages with n'v = 0 leave a curved gap at an error of either sign. If the gap is positive the contact
    force has to vanish, so that without tau the discretised equations have no solution.
    """
    system = frozen.original
    pairs = [(c, f) for c, f in zip(system.contacts, frozen.contacts, strict=True) if not c.bounces]
    contacts = [contact for contact, _ in pairs]
    names = [c.name for c in contacts]

    parts, (rising, sinking, opposed) = drift_parts(names, ca.vertcat(*[c.gap for c in contacts]))
    up, down = (variable.symbol for variable in parts)
    # tau is a velocity along the normal; `moved` maps it to q', which matters for quaternions.
    along = system.moved(ca.horzcat(*[system.normal(c) for c in contacts]) @ (up - down))
    roles = (Role.NEGATIVE_PART, Role.POSITIVE_PART)
    below, above = (ca.vertcat(*[v.symbol for v in dcs.variables if v.role is role]) for role in roles)
    # |n'v| is the sum of the two multipliers of its step function, so that it needs no further variables.
    rows = [f.functions[Role.NORMAL_VELOCITY] for _, f in pairs]
    speed = of_each("gap rate", names), ca.vertcat(*[below[j] + above[j] for j in rows])
    held = Pair.between(
        Role.HOLDING, speed, (of_each("drift", names), up + down), name="held", small_side=True, cross="none"
    )
    return replace(
        dcs,
        flow=dcs.flow + ca.vertcat(along, ca.SX(dcs.x.numel() - system.n_q, 1)),
        variables=(*dcs.variables, *parts),
        pairs=(*dcs.pairs, rising, sinking, held, opposed),
        switch_indicator=dcs.indicator,  # of the system before: the pairs of tau are no switches
    )
