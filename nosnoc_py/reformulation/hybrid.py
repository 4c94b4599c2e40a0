"""A frictionless CLS as a hybrid system: gaps become guards, Newton's impact law becomes the reset map.

Methods for hybrid systems (the minimum principle, direct shooting in phases) need explicit resets. With friction the
reset would depend on the mode of the impact, and without restitution a contact may persist: both are refused. Every
contact has a reset of its own, so that simultaneous impacts are not described.
"""

from __future__ import annotations

import casadi as ca

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import ModelError, check_type
from nosnoc_py.systems.cls import CLS, Contact
from nosnoc_py.systems.hybrid import HybridSystem, StateJump

# Methods for systems that a hybrid system cannot represent, for messages.
ALTERNATIVES = "ns.FESDJ(...), ns.TimeFreezing(...) or ns.DirectShooting(form='smoothed')"


@named_arguments
def hybrid(system: CLS) -> HybridSystem:
    """Write a `CLS` without friction as a hybrid system of isolated collisions, in the same symbols.

    The guard of a contact is its gap. The reset is Newton's impact law (FESD-J, Eq. 1) for one contact,

        v+ = v- - (1 + e) M^-1 n (n'v-) / (n'M^-1 n),

    which for two discs of masses m_1, m_2 is Eq. 40 of the hybrid minimum principle for rigid bodies with collisions
    (Hu, Long, Zang, E, Han).

    Parameters
    ----------
    system : CLS
        Without friction, and with restitution e > 0 at every contact: persistent contact is not isolated collisions.

    Returns
    -------
    HybridSystem
        x = (q, v, y); names, units, nominal values and parameters are those of the CLS.

    Raises
    ------
    ModelError
        If a contact has friction or no restitution. The message names methods that accept it.

    Examples
    --------
    A ball that keeps 90 % of its speed:

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q, restitution=0.9)])
    >>> ns.hybrid(ball).jumps[0].name
    'ground'
    """
    check_type(system, CLS, "system")
    frictional = [contact.name for contact in system.contacts if contact.frictional]
    if frictional:
        raise ModelError(
            f"hybrid: contact {', '.join(map(repr, frictional))} has friction, and a collision with friction has more "
            f"than one kind of reset; use {ALTERNATIVES}, or leave the friction out."
        )
    inelastic = [contact.name for contact in system.contacts if not contact.bounces]
    if inelastic:
        raise ModelError(
            f"hybrid: contact {', '.join(map(repr, inelastic))} is inelastic (restitution 0), so it may persist after "
            f"a collision, which isolated jumps cannot represent; use {ALTERNATIVES}, or give it some restitution."
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
    response = ca.solve(system.mass_matrix, normal)  # change of v per unit impulse
    # The gap rate, not n'v: the surface may move by itself.
    impulse = -(1 + contact.restitution) * system.gap_rate(contact) / ca.dot(normal, response)
    after = ca.vertcat(system.q, system.v + response * impulse, system.y)
    return StateJump(contact.name, guard=contact.gap, reset=after, impulse=impulse)
