"""A contact that closes softly: gap, gap rate and gap acceleration vanish together, and the next derivative closes it.

Near such an instant t* the gap is j (t - t*)^3 / 6 with j < 0. Rounding of size e makes three roots of the one, at
distances of (6 e / |j|)^(1/3), with slow rates of either sign there: a search for the root may find an impact, a hop,
or a touch after which the contact opens. What is well defined is the root of the acceleration, which is simple. So

    a gap that comes to zero with a rate of at most `SOFT_RATE`, and from there stays within `SOFT_GAP` until its
    acceleration has turned towards the contact and drives it below -`SOFT_GAP`, closes without impact, at the instant
    where its acceleration changes sign.

A gap that rises above `SOFT_GAP` has touched and left (grazing). Both scales are far above the rounding of a state
(1e-16 relative), so that the outcome is the same on every processor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nosnoc_py.motion.crossing import NODES, Crossing, root
from nosnoc_py.tolerances import IMPACT, TOUCHING

# Gaps and gap rates up to these fractions of the typical length and speed count as zero for a soft closing. The gap is
# that of a touch without speed, the rate that of the slowest impact event.
SOFT_GAP, SOFT_RATE = TOUCHING, IMPACT
# The acceleration at the touch counts as zero if it is smaller by this factor than where the gap leaves the band.
VANISHING = 0.5
# First distance to look ahead, relative to the rest of the phase, and its growth.
FIRST_LOOK, GROWTH = 1e-9, 1.25

# Gap and gap rate as fractions of the typical length and speed, and the gap acceleration, as a function of time.
Motion = Callable[[float], tuple[float, float, float]]


@dataclass(frozen=True, eq=False, kw_only=True)
class SoftClosing(Crossing):
    """Crossing at the root `time` of the gap's acceleration.

    `high` is where the motion without contact leaves the band.
    """


def soft_closing(
    crossing: Crossing, motion: Motion, end: float, gap_at: Callable[[float], float] | None = None
) -> Crossing:
    """Return the crossing of a gap, or for a soft closing the one at the root of its acceleration.

    Parameters
    ----------
    crossing : Crossing
    motion : function of t
        Gap, gap rate and gap acceleration with the contact open, up to `end`.
    end : float
        End of the phase [s].
    gap_at : function of t, optional
        The gap alone, if it costs less.
    """
    start, gap_at = crossing.time, gap_at or (lambda s: motion(s)[0])
    _, rate, acceleration = motion(start)
    slow = abs(rate) <= SOFT_RATE and np.isfinite(acceleration)
    # A gap that jumps to zero, where its range begins, has not come there softly.
    slow = slow and gap_at(start - FIRST_LOOK * (end - start)) <= SOFT_GAP
    left = _leaves(gap_at, start, end) if slow else None
    if left is None:
        return crossing
    gap, _, drives = motion(left)
    if gap > 0.0 or not drives < 0.0 or acceleration < VANISHING * drives:
        return crossing
    time = root(lambda s: motion(s)[2], start, left) if acceleration > 0.0 else start
    stays = all(abs(gap_at(s)) <= SOFT_GAP for s in time + (left - time) * NODES[:-1])
    if not stays or abs(motion(time)[1]) > SOFT_RATE:
        return crossing
    return SoftClosing(guard=crossing.guard, low=crossing.low, high=left, time=time, touches=True)


def _leaves(gap_at: Callable[[float], float], start: float, end: float) -> float | None:
    """Return the time at which the gap leaves the band |gap| <= SOFT_GAP, None if it stays."""
    low, ahead = start, FIRST_LOOK * (end - start)
    while low < end:
        high = min(start + ahead, end)
        gap = gap_at(high)
        if not np.isfinite(gap):
            return None
        if abs(gap) > SOFT_GAP:
            if not abs(gap_at(low)) < SOFT_GAP:
                return high
            return root(lambda s: abs(gap_at(s)) - SOFT_GAP, low, high)
        low, ahead = high, GROWTH * ahead
    return None
