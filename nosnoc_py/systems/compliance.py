"""Compliant contacts: spring and damper forces of overlapping bodies, in place of complementarity and impacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import casadi as ca

if TYPE_CHECKING:
    from nosnoc_py.systems.cls import CLS, Contact


def normal_force(system: CLS, contact: Contact) -> ca.SX:
    """Return k max(0, -f_c) max(0, 1 - d f_c') [N]: continuous and nonnegative (Hunt and Crossley 1975)."""
    depth = ca.fmax(0, -contact.gap)
    # The damping factor is bounded by zero, too: a fast separation must not pull the bodies together.
    return contact.stiffness * depth * ca.fmax(0, 1 - contact.damping * system.gap_rate(contact))


def friction_force(system: CLS, contact: Contact) -> ca.SX:
    """Return Coulomb friction (n_t,) regularised by the creep speed s: -mu lambda_n v_t / |(v_t, s)|."""
    mu, weight = contact.cone
    # The creep speed rounds the jump of the force at rest: a contact that sticks creeps, at a speed of its order.
    slip = weight * system.slip(contact)
    return -mu * normal_force(system, contact) * weight * slip / ca.sqrt(ca.sumsqr(slip) + contact.creep_speed**2)


def generalised_force(system: CLS, contact: Contact) -> ca.SX:
    """Return the generalised force of a compliant contact (n_v,)."""
    total = system.normal(contact) * normal_force(system, contact)
    return total + contact.tangent @ friction_force(system, contact) if contact.frictional else total
