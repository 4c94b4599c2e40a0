"""Guards: quantities that are positive as long as the modes of the contacts hold, one for every contact and kind."""

from __future__ import annotations

import numpy as np

from nosnoc_py.contact_problems.modes import FREE, STICK
from nosnoc_py.simulation.event_driven.mechanics import ContactRegime
from nosnoc_py.simulation.event_driven.records import Sample
from nosnoc_py.systems.kinematics import Kinematics

GAP, FORCE, SLIP_SPEED, SLACK, STIFFNESS = range(5)
"""Gap of an open contact; normal force of a closed one; speed of a slip; distance of a stick from its cone; what a
normal force does against the approach of a slipping contact (not positive: the paradox of Painleve)."""
KINDS = ("touch", "release", "end of slip", "start of slip", "jam")


def sample(look: Kinematics, regime: ContactRegime) -> Sample:
    """Evaluate the guards of a regime; those without a meaning are infinite."""
    frames, n_c = regime.frames, regime.frames.count
    forces, values = regime.forces(look), np.full((5, n_c), np.inf)
    for c, mode in enumerate(regime.modes):
        part, mu = frames.tangents[c], frames.friction[c]
        if mode == FREE:
            values[GAP, c] = look.gaps[c]
            continue
        values[FORCE, c] = forces[c]
        if mode == STICK:
            values[SLACK, c] = mu * forces[c] - np.linalg.norm(forces[n_c:][part])
        elif c in regime.slipping:
            values[SLIP_SPEED, c] = look.rates[n_c:][part] @ regime.direction[part]
            values[STIFFNESS, c] = regime.stiffness(c, look)
    return Sample(guards=values.reshape(-1), forces=forces, rates=look.rates)
