"""Accumulation of impacts (Zeno behaviour), and touches without speed that follow from the modes.

Bodies that rock from corner to corner, or bounce between two others, have infinitely many impacts in a finite time: the
speeds of approach of a contact, and the times between impacts, decrease like geometric series. Once the rest of the
series is below `SETTLED`, the limit is replaced by the state in which the contacts of the cycle are closed and at rest,
with an error of the same size. The acceleration problem then decides whether forces keep them there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from nosnoc_py.contact_problems.modes import CLOSED, FREE, SLIP, STICK
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.simulation.event_driven.mechanics import ContactRegime
from nosnoc_py.simulation.event_driven.records import Node
from nosnoc_py.systems.kinematics import ContactFrames, Kinematics
from nosnoc_py.tolerances import RESTING, TOUCHING

# Remaining speed of a sequence of impacts, as a fraction of the typical speed: below the speed of an impact event.
SETTLED = 1e-7
# A pile rattles if so many nodes follow each other, in the mean after less than this fraction of the typical time, and
# if more contacts have closed twice in them than those of a body that rocks.
NODES_OF_A_RATTLE, SOON, MOST_ROCKING = 100, 1e-4, 2
# Relative difference below which two accelerations of a gap, or a gradient and its projection, are equal.
SAME_ACCELERATION = 1e-6


def accumulates(flow: ContactFlow, past: Sequence[Node], at: Kinematics, contact: int, left: float) -> bool:
    """Return True if a closing contact ends a cycle of impacts whose remaining impacts change no velocity noticeably.

    Parameters
    ----------
    past : sequence of Node
        Earlier nodes under the same constant control.
    at : Kinematics
        At the closing.
    left : float
        Velocities that count as zero, as a fraction of the typical speed.
    """
    # The speed of approach is compared in the unit of this gap (steepness), as gaps need not be distances.
    most, approach = at.slow(left)[contact], abs(at.rates[contact])
    if approach > most:
        return False
    hits = [node for node in past if node.impact is not None]
    own = next((k for k in reversed(range(len(hits))) if hits[k].trigger == contact), len(hits))
    if own >= len(hits) - 1:  # not hit before, or nothing else since
        return False
    before = -flow.kinematics(hits[own].t, hits[own].before).rates[contact]
    # approach / (1 - ratio) <= most, for the ratio of two approaches one after the other
    return bool(approach < before and approach * before <= most * (before - approach))


def at_rest(frames: ContactFrames, at: Kinematics, closed: np.ndarray, left: float) -> list[int]:
    """Return modes at the end of impacts: contacts that touch and hardly move are closed, and stick or slip."""
    count, slow = closed.size, at.slow(left)
    slips = np.array([np.linalg.norm(at.rates[count:][part]) for part in frames.tangents])
    still = np.where(slips > slow, SLIP, [STICK if frames.width(c) else CLOSED for c in range(count)])
    return [int(mode) for mode in np.where(closed & (np.abs(at.rates[:count]) <= slow), still, FREE)]


def step_of_rattle(nodes: Sequence[Node], flow: ContactFlow) -> float:
    """Return the mean time between the last nodes of a pile that rattles [s]; 0 for any other motion."""
    last = nodes[-NODES_OF_A_RATTLE:]
    if len(last) < NODES_OF_A_RATTLE or any(node.impact is not None and node.impact.bounce < np.inf for node in last):
        return 0.0
    mean = (last[-1].t - last[0].t) / NODES_OF_A_RATTLE
    closings = Counter(event.name for node in last for event in node.events if event.kind == "contact")
    many = sum(number > 1 for number in closings.values()) > MOST_ROCKING
    return mean if many and mean * flow.scales.speed < SOON * flow.scales.length else 0.0


def repeats_departure(
    flow: ContactFlow, past: Sequence[Node], regime: ContactRegime, t: float, x: np.ndarray, contact: int
) -> bool:
    """Return True if a contact is touched as it was left, see `is_as_left`."""

    def look(node: Node) -> tuple[float, float, float]:
        at = flow.kinematics(node.t, node.after)
        acceleration = flow.distance_accelerations(node.regime, node.t, node.after)[contact]
        return at.gaps[contact] / at.short(1.0)[contact], at.rates[contact] / at.slow(1.0)[contact], acceleration

    left = [node for node in past if node.regime is not None and node.regime.modes[contact] == FREE]
    return is_as_left(left, look, lambda: float(flow.distance_accelerations(regime, t, x)[contact]))


def is_as_left(
    past: Sequence[Node], look: Callable[[Node], tuple[float, float, float]], now: Callable[[], float]
) -> bool:
    """Return True if what is touched without speed has been left so before: with the same acceleration.

    A conservative force returns a body to where it left a contact without hitting it, whatever the data are.

    Parameters
    ----------
    past : sequence of Node
        Earlier nodes after which the contact, or the surface, was not touched.
    look : function of a node
        Returns distance and rate, as fractions of the typical ones, and the acceleration of the distance.
    now : function
        Returns the acceleration at the touch.
    """
    for node in reversed(past):
        distance, rate, left = look(node)
        # A node at which it was away is not the one where it was left.
        if abs(distance) > TOUCHING:
            continue
        return bool(abs(rate) <= RESTING and left > 0.0 and abs(now() - left) <= SAME_ACCELERATION * left)
    return False


def has_no_free_rate(at: Kinematics, regime: ContactRegime, contact: int) -> bool:
    """Return True if closed contacts fix the rate of a gap: its gradient depends linearly on their rows.

    A point on a floor that passes below a disc on the same floor touches it without speed, whatever the data are.
    """
    count = at.gaps.size
    touched = (at.gaps <= at.short(TOUCHING)) & (np.abs(at.rates[:count]) <= at.slow(RESTING))
    others = np.setdiff1d(np.union1d(regime.rows, np.flatnonzero(touched)), contact).astype(int)
    if not others.size:
        return False
    rows, normal = at.jacobian[others], at.jacobian[contact]
    # The part of the gradient that is orthogonal to all other rows; it is zero if they determine this rate.
    apart = normal - rows.T @ np.linalg.lstsq(rows.T, normal, rcond=1e-12)[0]
    return bool(np.linalg.norm(apart) <= SAME_ACCELERATION * np.linalg.norm(normal))
