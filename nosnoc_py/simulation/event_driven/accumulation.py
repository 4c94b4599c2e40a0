"""Impacts that accumulate, and touches without speed that follow from the modes: what the nodes before an event tell.

Bodies that rock from corner to corner, or are struck between two others, meet infinitely many impacts in a finite time:
the speeds of approach of a contact form a sequence that ends like a geometric one, and so do the times between. Once
what is left of this series is below `SETTLED`, the limit is the state whose contacts of the cycle are closed and rest,
with an error of the same size; whether forces hold them there is for the contact problem of the accelerations to tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nosnoc_py.contact_problems.modes import CLOSED, FREE, SLIP, STICK
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.simulation.event_driven.mechanics import ContactRegime
from nosnoc_py.simulation.event_driven.records import Node
from nosnoc_py.systems.kinematics import ContactFrames, Kinematics
from nosnoc_py.tolerances import RESTING, TOUCHING

# What is left of a sequence of impacts, as a share of the speed at work: below what is an impact to anybody.
SETTLED = 1e-7
# Accelerations of a gap, and its gradient beside those of closed contacts, that differ by less than this share agree.
SAME = 1e-6


def accumulates(flow: ContactFlow, past: Sequence[Node], look: Kinematics, contact: int, left: float) -> bool:
    """Whether a contact that closes ends a cycle of impacts, and those still to come change no velocity.

    Parameters
    ----------
    past : sequence of Node
        The nodes before this one, under the same constant control.
    look : Kinematics
        At the closing.
    left : float
        Velocities that are none, as a share of the speed at work.
    """
    most, approach = look.slow(left)[contact], abs(look.rates[contact])
    if approach > most:
        return False
    hits = [node for node in past if node.impact is not None]
    own = next((k for k in reversed(range(len(hits))) if hits[k].trigger == contact), len(hits))
    if own >= len(hits) - 1:  # not hit before, or nothing else since
        return False
    before = -flow.look(hits[own].t, hits[own].before).rates[contact]
    # approach / (1 - ratio) <= most, for the ratio of two approaches one after the other
    return bool(approach < before and approach * before <= most * (before - approach))


def at_rest(frames: ContactFrames, look: Kinematics, closed: np.ndarray, left: float) -> list[int]:
    """Modes at the end of an accumulation: what touches and hardly moves is closed, and sticks unless it slips."""
    count, slow = closed.size, look.slow(left)
    slips = np.array([np.linalg.norm(look.rates[count:][part]) for part in frames.tangents])
    still = np.where(slips > slow, SLIP, [STICK if frames.width(c) else CLOSED for c in range(count)])
    return [int(mode) for mode in np.where(closed & (np.abs(look.rates[:count]) <= slow), still, FREE)]


def recurs(
    flow: ContactFlow, past: Sequence[Node], regime: ContactRegime, t: float, x: np.ndarray, contact: int
) -> bool:
    """Whether a touch without speed repeats how the contact was left: without speed, and with the same acceleration.

    What a conservative force brings back to where it left a contact does not hit it, whatever the data are.
    """
    for node in reversed(past):
        if node.regime is None or node.regime.modes[contact] != FREE:
            continue
        look = flow.look(node.t, node.after)
        if abs(look.gaps[contact]) > look.short(TOUCHING)[contact]:
            continue
        if abs(look.rates[contact]) > look.slow(RESTING)[contact]:
            return False
        left = flow.distance_accelerations(node.regime, node.t, node.after)[contact]
        now = flow.distance_accelerations(regime, t, x)[contact]
        return bool(left > 0.0 and abs(now - left) <= SAME * left)
    return False


def is_bound(look: Kinematics, regime: ContactRegime, contact: int) -> bool:
    """Whether closed contacts leave a gap no rate: its gradient depends on their rows.

    A point on a floor passes below a disc on the same floor: it touches it without speed, whatever the data are.
    """
    count = look.gaps.size
    touched = (look.gaps <= look.short(TOUCHING)) & (np.abs(look.rates[:count]) <= look.slow(RESTING))
    others = np.setdiff1d(np.union1d(regime.rows, np.flatnonzero(touched)), contact).astype(int)
    if not others.size:
        return False
    rows, normal = look.jacobian[others], look.jacobian[contact]
    apart = normal - rows.T @ np.linalg.lstsq(rows.T, normal, rcond=1e-12)[0]
    return bool(np.linalg.norm(apart) <= SAME * np.linalg.norm(normal))
