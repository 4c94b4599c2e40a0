"""The DCS of a frozen system: the speed of time as a control, and contacts that stay closed on curved surfaces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.reformulation.dcs import DCS, Pair, Variable
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
    return contact.restitution == 0.0 and ca.depends_on(ca.gradient(contact.gap, system.q), system.q)


def _stabilized(frozen: Frozen, dcs: DCS) -> DCS:
    """q' = theta v + sum_i n_i tau_i with tau_i against the gap and against n'v, which both vanish in contact.

    Runge-Kutta stages with n'v = 0 leave a curved gap at an error of either sign: above zero the contact could not
    press, so that without tau the discrete equations have no solution.
    """
    system = frozen.original
    pairs = [(c, f) for c, f in zip(system.contacts, frozen.contacts, strict=True) if c.restitution == 0.0]
    contacts = [contact for contact, _ in pairs]
    names = [c.name for c in contacts]

    def labels(quantity: str) -> tuple[str, ...]:
        return tuple(f"{quantity}[{name}]" for name in names)

    variables = tuple(
        Variable(name=name, symbol=ca.SX.sym(name, len(names)), components=labels(name), role=role, lower=0.0)
        for name, role in (("drift_plus", Role.DRIFT_PLUS), ("drift_minus", Role.DRIFT_MINUS))
    )
    up, down = (variable.symbol for variable in variables)
    drift = ca.horzcat(*[system.normal(c) for c in contacts]) @ (up - down)
    gaps = ca.vertcat(*[c.gap for c in contacts])
    below, above = (_stacked(dcs, role) for role in (Role.NEGATIVE_PART, Role.POSITIVE_PART))
    places = [f.functions[Role.NORMAL_VELOCITY] for _, f in pairs]
    speed = ca.vertcat(*[below[j] + above[j] for j in places])
    rates, size, held = labels("gap rate"), labels("drift"), labels("gap")
    return replace(
        dcs,
        flow=dcs.flow + ca.vertcat(drift, ca.SX(dcs.x.numel() - system.n_q, 1)),
        variables=(*dcs.variables, *variables),
        pairs=(
            *dcs.pairs,
            _against("drift_up", gaps, up, held, labels("drift_plus")),
            _against("drift_down", gaps, down, held, labels("drift_minus")),
            replace(_against("held", speed, up + down, rates, size), role=Role.HOLDING, cross="none"),
            Pair(
                name="drift_parts",
                a=up,
                b=down,
                a_labels=labels("drift_plus"),
                b_labels=labels("drift_minus"),
                role=Role.DRIFT_PARTS,
                cross="none",
                split=True,
            ),
        ),
        switch_indicator=dcs.indicator,
    )


def _stacked(dcs: DCS, role: Role) -> ca.SX:
    """All algebraic variables of one role below each other."""
    return ca.vertcat(*[v.symbol for v in dcs.variables if v.role is role])


def _against(name: str, a: ca.SX, b: ca.SX, a_labels: tuple[str, ...], b_labels: tuple[str, ...]) -> Pair:
    """A drift against what it keeps at zero."""
    return Pair(name=name, a=a, b=b, a_labels=a_labels, b_labels=b_labels, role=Role.DRIFT, faint=True)
