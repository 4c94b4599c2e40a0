"""Modes of contacts (open, closed, stick, slip), and Coulomb's law as equations in every mode.

In given modes a contact problem is a smooth system. One system serves all modes: masks of zeros and ones, given as
parameters, choose the equation of every row, so that the function is compiled once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.systems.kinematics import ContactFrames

FREE, CLOSED, STICK, SLIP, SLIP_BACK = range(5)
"""Open; closed without friction; sticking; slipping (in the plane: forwards); slipping backwards (plane only)."""


def masks_of(modes: Sequence[int]) -> np.ndarray:
    """Return the masks (3 n_c,) that choose the rows of the modes: closed, stick, and slip (+-1) of every contact."""
    kinds = np.asarray(modes, dtype=int)
    slip = np.where(kinds == SLIP, 1.0, np.where(kinds == SLIP_BACK, -1.0, 0.0))
    return np.concatenate([(kinds != FREE).astype(float), (kinds == STICK).astype(float), slip])


def friction_rows(
    frames: ContactFrames,
    friction: Any,
    masks: ca.SX,
    normal: ca.SX,
    tangential: ca.SX,
    speed: ca.SX,
    rate: ca.SX,
    held: ca.SX | None = None,
    direction: ca.SX | None = None,
) -> tuple[ca.SX, ca.SX]:
    """Return the friction force (n_tt,) and the equations of the modes (n_tt + n_spatial,).

    Parameters
    ----------
    frames : ContactFrames
    friction : (n_c,)
        Coefficients mu.
    masks : SX (3 n_c,)
        See `masks_of`.
    normal : SX (n_c,)
        Normal forces f_n.
    tangential : SX (n_tt,)
        Force of a contact in stick; direction d of a contact that slips in space, where rate = s d, |d| = 1 and
        force = -mu f_n d; 0 otherwise.
    speed : SX (n_spatial,)
        Slip speeds s in space.
    rate : SX (n_tt,)
        Slip velocities or accelerations.
    held : SX (n_c,), optional
        1 for contacts whose direction of slip is prescribed.
    direction : SX (n_tt,), optional
        The prescribed directions.
    """
    stick, slip = masks[frames.count : 2 * frames.count], masks[2 * frames.count :]
    forces, rows, lengths = [], [], []
    for c, part in enumerate(frames.tangents):
        y, r = tangential[part], rate[part]
        bound = friction[c] * normal[c]
        # Planar: stick has an unknown force, slip a force at the bound; the row sets r or the unused y to zero.
        if frames.width(c) == 1:
            forces.append(stick[c] * y - slip[c] * bound)
            rows.append(stick[c] * r + (1 - stick[c]) * y)
        elif frames.width(c) == 2:
            s = speed[frames.speeds[c]]
            fixed = ca.SX(0) if held is None else held[c] * slip[c]
            prescribed = ca.SX.zeros(2) if direction is None else direction[part]
            turns = slip[c] - fixed  # 1 if the direction of slip is an unknown
            forces.append(stick[c] * y - slip[c] * bound * y)
            rows.append(stick[c] * r + turns * (r - s * y) + (1 - stick[c] - turns) * (y - fixed * prescribed))
            lengths.append(turns * (ca.sumsqr(y) - 1) + (1 - turns) * s)
    return ca.vertcat(ca.SX(0, 1), *forces), ca.vertcat(ca.SX(0, 1), *rows, *lengths)
