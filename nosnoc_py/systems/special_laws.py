"""Laws of contacts that only some methods have: friction by the state, static friction, impacts in sequence.

Methods that have one coefficient per contact, or one law for simultaneous impacts, refuse the others here.
"""

from __future__ import annotations

from typing import Any

import casadi as ca

from nosnoc_py.errors import ModelError


def varies(coefficient: Any, system: Any) -> bool:
    """Return True if a coefficient of friction depends on the state of its system."""
    state = ca.vertcat(system.q, system.v, system.y)
    return isinstance(coefficient, ca.SX) and bool(ca.depends_on(coefficient, state))


def refuse_sequences(system: Any, what: str) -> None:
    """Raise `ModelError` for impacts in sequence, where only the law for impacts at once is built."""
    if system.mechanical and system.simultaneous_impacts != "at once":
        raise ModelError(
            f"simultaneous_impacts='in sequence': {what} solves simultaneous impacts at once; simulate with "
            "ns.EventDriven(), or leave small gaps between the bodies."
        )


def special_friction(system: Any) -> list[tuple[str, str]]:
    """Return names and kinds of the contacts with static friction, or friction that depends on the state."""
    kinds = []
    for contact in system.contacts:
        if contact.static_friction is not None:
            kinds.append((contact.name, "static_friction"))
        elif any(varies(mu, system) for mu in contact.friction):
            kinds.append((contact.name, "friction that depends on the state"))
    return kinds


def refuse_special_friction(system: Any, what: str) -> None:
    """Raise `ModelError` for friction that depends on the state, or sticks better than it slips."""
    for name, kind in special_friction(system):
        raise ModelError(
            f"contact {name!r}: {kind} is built for simulations by ns.EventDriven and ns.TimeStepping, for plans by "
            f"ns.solve(ocp) and ns.MultiPhase; {what} has one coefficient: give a number, or an expression of p."
        )
