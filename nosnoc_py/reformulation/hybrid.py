"""A frictionless CLS as a hybrid system: its contacts become guards, its law of impact becomes resets."""

from __future__ import annotations

import casadi as ca

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import ModelError, check_type
from nosnoc_py.systems.cls import CLS, Contact
from nosnoc_py.systems.hybrid import HybridSystem, StateJump

FITTING = "ns.FESDJ(...), ns.TimeFreezing(...) or ns.DirectShooting(form='smoothed')"


@named_arguments
def hybrid(system: CLS) -> HybridSystem:
    """The flow of a CLS between isolated collisions, with their resets, in the same symbols.

    The guard of a contact is its gap; at a collision v+ = v- - (1 + e) M^-1 n (n'v-) / (n' M^-1 n), which is Newton's
    law (FESD-J, Eq. 1) for one contact without friction: of two discs of masses m_1, m_2 it is HMP, Eq. 40.

    Parameters
    ----------
    system : CLS
        Without friction. Contacts that persist are outside of what a hybrid system of isolated collisions can say.

    Returns
    -------
    HybridSystem
        x = (q, v); names, units, nominal values and parameters are those of the CLS.

    Raises
    ------
    ModelError
        If a contact has friction or no restitution: the message names the methods that take it.
    """
    check_type(system, CLS, "system")
    rubbing = [contact.name for contact in system.contacts if contact.frictional]
    if rubbing:
        raise ModelError(
            f"hybrid: contact {', '.join(map(repr, rubbing))} has friction, and a collision with friction has more "
            f"than one kind of reset; use {FITTING}, or leave the friction out."
        )
    sticky = [contact.name for contact in system.contacts if not contact.bounces]
    if sticky:
        raise ModelError(
            f"hybrid: contact {', '.join(map(repr, sticky))} is inelastic (restitution 0), so it may persist after a "
            f"collision, which isolated jumps cannot say; use {FITTING}, or give it some restitution."
        )
    acceleration = ca.solve(system.mass_matrix, system.force)
    return HybridSystem(
        **system.extended(),
        flow=system.state_rate(acceleration),
        jumps=[_jump(system, contact) for contact in system.contacts],
        units=system.units,
        p_default=system.p_default,
        scene=system.scene,
    )


def _jump(system: CLS, contact: Contact) -> StateJump:
    normal = system.normal(contact)
    response = ca.solve(system.mass_matrix, normal)
    impulse = -(1 + contact.restitution) * system.gap_rate(contact) / ca.dot(normal, response)
    after = ca.vertcat(system.q, system.v + response * impulse, system.y)
    return StateJump(contact.name, guard=contact.gap, reset=after, impulse=impulse)
