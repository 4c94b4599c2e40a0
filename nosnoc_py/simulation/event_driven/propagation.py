"""States between the samples of a step, and guards about to cross at the end of a phase."""

from __future__ import annotations

import numpy as np

from nosnoc_py.motion.crossing import NODES as SAMPLES
from nosnoc_py.simulation.event_driven.phase import Flow
from nosnoc_py.simulation.event_driven.records import IntegratorStep, Phase
from nosnoc_py.tableaus import lagrange_basis

Array = np.ndarray
# Two events closer than this [s] count as simultaneous: a small change of the data may exchange them.
SIMULTANEOUS = 1e-6
# An event closer than this [s] to a fixed time (break of the control, end) may fall on its other side.
FIXED = 1e-9
# Speeds [m/s] and rates of guards below this have no reliable sign.
NO_SIGN = 1e-6


def state_at(phase: Phase, t: float) -> Array:
    """Return the state (n_x,) at a time in a phase."""
    inside = next((step for step in phase.steps if t <= step.t[-1]), None)
    return phase.x if inside is None else between(inside, t)


def between(step: IntegratorStep, t: float | Array) -> Array:
    """Return the state (n_x,) at t, (m, n_x) at times (m,), of the polynomial of degree 7 through a step's samples."""
    return np.asarray(lagrange_basis(SAMPLES, np.asarray((t - step.t[0]) / (step.t[-1] - step.t[0]))) @ step.x)


def states_at(low: Array, high: Array, x: Array, t: Array) -> Array:
    """Return the states (i, s, n_x) at times (i, s) in i steps from `low` to `high` with samples x (i, 8, n_x)."""
    return np.asarray(lagrange_basis(SAMPLES, (t - low[:, None]) / (high - low)[:, None]) @ x)


def imminent(phase: Phase, flow: Flow, horizon: float) -> list[int]:
    """Return guards that cross zero within `horizon` [s] after the end of a phase, extrapolated linearly."""
    back = max(phase.t - SIMULTANEOUS, float(phase.steps[0].t[0])) if phase.steps else phase.t
    if not back < phase.t:
        return []
    old = flow.sample(phase.regime, back, state_at(phase, back)).guards
    new = flow.sample(phase.regime, phase.t, phase.x).guards
    watched = np.flatnonzero(np.isfinite(old) & np.isfinite(new))
    ahead = new[watched] + horizon * (new[watched] - old[watched]) / (phase.t - back)
    return [int(i) for i in watched[ahead <= 0.0]]
