"""Guards of contacts: quantities that are positive as long as the modes hold, one per contact and kind."""

from __future__ import annotations

import numpy as np

from nosnoc_py.contact_problems.modes import FREE, STICK
from nosnoc_py.simulation.event_driven.mechanics import ContactRegime
from nosnoc_py.simulation.event_driven.records import Sample
from nosnoc_py.systems.kinematics import Kinematics
from nosnoc_py.tolerances import TOUCHING_SOLVED

GAP, FORCE, SLIP_SPEED, SLACK, STIFFNESS = range(5)
"""Kinds of guards, in blocks of n_c: gap of an open contact; normal force of a closed one; slip speed along its
direction;
slack of a sticking contact to its friction cone; effect of the normal force on a slipping contact (<= 0: Painleve).
"""
KINDS = ("touch", "release", "end of slip", "start of slip", "jam")


def sample(at: Kinematics, regime: ContactRegime) -> Sample:
    """Evaluate the guards (5 n_c,) of a regime; guards that do not apply in a mode are infinite."""
    frames, n_c = regime.frames, regime.frames.count
    cone = at.framed(frames).cone
    # Infinite guards never cross, so that guards of other modes need no mask.
    (forces, least), values = regime.forces(at), np.full((5, n_c), np.inf)
    # A gap that has jumped holds nothing; where forces are redundant, none of them need tell.
    jumped = at.gaps > at.short(TOUCHING_SOLVED) if regime.redundant else np.zeros(n_c, bool)
    for c, mode in enumerate(regime.modes):
        part, mu = frames.tangents[c], cone[c]
        if mode == FREE:
            values[GAP, c] = at.gaps[c]
            continue
        # Single forces of a choice may jump in time; the least slack of all that belong together is continuous.
        values[FORCE, c] = -(np.abs(forces).max() or 1.0) if jumped[c] else least.get(c, forces[c])
        if mode == STICK and c not in least:
            # Linear in the forces (and not in squares, as in the finite elements), so that it has the tolerance of
            # forces.
            values[SLACK, c] = mu * forces[c] - np.linalg.norm(forces[n_c:][part])
        elif c in regime.slipping:
            values[SLIP_SPEED, c] = at.rates[n_c:][part] @ regime.direction[part]
            values[STIFFNESS, c] = regime.stiffness(c, at)
    return Sample(guards=values.reshape(-1), forces=forces, rates=at.rates)
