"""Contact systems in other units: the same motion in other numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

from nosnoc_py.systems.cls import CLS


def rescaled(system: CLS, *, q: Any, gap: float, time: float, mass: float) -> CLS:
    """Return a contact system in other units; its controls, parameters and first-order states stay in theirs.

    With the units Q = diag(q) of the positions, L of gaps, tau of time and m of mass, the same motion is q = Q q^,
    v = Q v^ / tau, t = tau t^, and a force lambda = m L / tau^2 lambda^. Where q' = N(q) v only velocities have the
    units Q / tau, and coordinates stay in theirs.

    Parameters
    ----------
    q : float or (n_v,)
        Units of the positions.
    gap, time, mass : float
    """
    units = np.broadcast_to(np.asarray(q, dtype=float), system.n_v)
    # With q' = N(q) v no coordinate belongs to one velocity.
    positions = units if system.moves_by_v else np.ones(system.n_q)
    old, new = [system.q, system.v], [ca.DM(positions) * system.q, ca.DM(units / time) * system.v]
    # Generalised forces times positions are energies, whatever the unit of each coordinate.
    by, energy = ca.diag(ca.DM(units)), mass * gap**2 / time**2

    def written(expression: Any) -> ca.SX:
        return ca.substitute([ca.SX(expression)], old, new)[0]

    contacts = [
        evolve(
            contact,
            gap=written(contact.gap) / gap,
            normal=None if contact.normal is None else by @ written(contact.normal) / gap,
            # Tangents in the unit of normals, so that friction forces and normal forces have the same unit.
            tangent=None if contact.tangent is None else by @ written(contact.tangent) / gap,
            surface_velocity=written(contact.surface_velocity) * (time / gap),
        )
        for contact in system.contacts
    ]
    matrix, force = by @ written(system.mass_matrix) @ by / (mass * gap**2), by @ written(system.force) / energy
    rates, found = time * written(system.y_rate), system.bilateral
    if found is not None:
        own = {name: written(getattr(found, name)) for name in ("closure", "motion")}
        found = replace(found, **own, rows=written(found.rows) @ by, force=None)
    return evolve(
        system,
        mass_matrix=matrix,
        force=force,
        kinematic_matrix=None if system.moves_by_v else written(system.rate_matrix) @ by,
        y_rate=rates,
        contacts=contacts,
        bilateral=found,
        # Names of units and typical values of the old system do not hold any more.
        units={},
        nominal={},
        scene=(),
    )
