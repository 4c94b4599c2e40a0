r"""Newton's impact law, written once: with numbers for simulators and certificates, with CasADi for the MPCC.

At an instant with closed contacts, impulses Lambda and gap rates gamma- before and gamma+ after it,

    0 <= Lambda  perp  gamma+ + e min(gamma-, 0) >= 0    for every contact,

with Coulomb's law between the tangential impulses and the slip velocities after the impact (Moreau 1988). A contact
that approaches leaves with e times its speed, or faster if other contacts push it. A closed contact that separates
(gamma- > 0) does not rebound, but may be kept closed: it only needs gamma+ >= 0.

Eq. 11 of the FESD-J paper has n'(v+ + e v-) = 0 for every contact that is hit. Applied to all closed contacts it would
prescribe gamma+ = -e gamma- < 0, a penetration, for a contact that separates while another one is hit; such instants
then have no solution. For one contact, and if no closed contact separates, both laws agree.

Newton's restitution conserves or dissipates energy at one contact without friction. With several contacts, or with
friction, it may increase the kinetic energy (Kane and Levinson 1985 for a pendulum with friction). This is unphysical:
an instant at which the law increases the energy is refused by every simulator, in every solution and by the
certificates.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.tolerances import ENERGY

Array = np.ndarray


def rebound(approach: Any, restitution: Any, slowest: Any = 0.0) -> Any:
    """Return the smallest admissible gap rates after an impact, -e min(gamma-, 0).

    Parameters
    ----------
    approach : (n_c,) array or SX
        Gap rates gamma- before the impact.
    restitution : (n_c,) array or DM
        Coefficients e.
    slowest : float, (n_c,) array or SX
        Contacts that approach no faster than this are inelastic, which ends infinite sequences of impacts.

    Returns
    -------
    (n_c,) array or SX
        c >= 0 in 0 <= Lambda perp gamma+ - c >= 0.

    Examples
    --------
    >>> import numpy as np
    >>> rebound(np.array([-2.0, 0.5]), np.array([0.5, 0.5]))
    array([1., 0.])
    """
    if isinstance(approach, ca.SX):
        coefficients = ca.SX(restitution)
        if isinstance(slowest, float | int) and slowest == 0.0:
            return -coefficients * ca.fmin(approach, 0)
        return ca.if_else(approach < -slowest, -coefficients * approach, 0)
    return rebound_of_numbers(np.asarray(approach), restitution, slowest)


@jitable
def rebound_of_numbers(approach: Array, restitution: Any, slowest: Any) -> Array:
    """Return `rebound` for arrays (n_c,)."""
    speed = np.maximum(-approach, 0.0)
    return np.where(speed > slowest, restitution * speed, 0.0)


@jitable
def energy_gain(impulses: Any, before: Any, after: Any) -> Any:
    """Return the kinetic energy that impulses add: half of their product with the rates before plus after.

    It equals T(v+) - T(v-) because M (v+ - v-) = J'Lambda (Kelvin's theorem).
    """
    return 0.5 * np.sum(impulses * (before + after), axis=-1)


def raises_energy(impulses: Array, before: Array, after: Array, share: float = ENERGY) -> bool:
    """Return True if an impact increases the kinetic energy by more than rounding errors.

    Parameters
    ----------
    impulses, before, after : (n,)
        Impulses in all directions, and the rates before and after the impact.
    share : float
        Rounding error, relative to the energy that these impulses exchange at the largest of the rates: small rates
        are differences of large velocities.
    """
    fastest = max(float(np.abs(rates).max(initial=0.0)) for rates in (before, after))
    return bool(energy_gain(impulses, before, after) > share * fastest * float(np.sum(np.abs(impulses))))
