"""Modes of contacts, and Coulomb's law in every mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.systems.kinematics import ContactFrames

FREE, CLOSED, STICK, SLIP, SLIP_BACK = range(5)
"""Open; closed without friction; sticking; slipping (in the plane: forwards); slipping backwards (plane only)."""


def masks_of(modes: Sequence[int]) -> np.ndarray:
    """Return numbers that choose the rows of the modes: closed, stick and slip (with its sign) of every contact."""
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
    """Friction force (n_tt) and the rows of the modes (n_tt + n_spatial) for its unknowns, with coefficients (n_c,).

    `tangential` is the force of a contact that sticks and the direction d of one that slips in space (rate = s d,
    |d| = 1, force = -mu f_n d). A contact that is `held` has its direction of slip given.
    """
    stick, slip = masks[frames.count : 2 * frames.count], masks[2 * frames.count :]
    forces, rows, lengths = [], [], []
    for c, part in enumerate(frames.tangents):
        y, r = tangential[part], rate[part]
        bound = friction[c] * normal[c]
        if frames.width(c) == 1:
            forces.append(stick[c] * y - slip[c] * bound)
            rows.append(stick[c] * r + (1 - stick[c]) * y)
        elif frames.width(c) == 2:
            s = speed[frames.speeds[c]]
            fixed = ca.SX(0) if held is None else held[c] * slip[c]
            given = ca.SX.zeros(2) if direction is None else direction[part]
            turns = slip[c] - fixed
            forces.append(stick[c] * y - slip[c] * bound * y)
            rows.append(stick[c] * r + turns * (r - s * y) + (1 - stick[c] - turns) * (y - fixed * given))
            lengths.append(turns * (ca.sumsqr(y) - 1) + (1 - turns) * s)
    return ca.vertcat(ca.SX(0, 1), *forces), ca.vertcat(ca.SX(0, 1), *rows, *lengths)
