"""What a contact is to the equations: its mode, its tangents among all of them, and Coulomb's law in every mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.systems.cls import CLS

FREE, CLOSED, STICK, SLIP, SLIP_BACK = range(5)
"""Open; closed without friction; sticking; slipping (in the plane: forwards); slipping backwards (plane only)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ContactFrames:
    """What the equations have to know about every contact.

    Attributes
    ----------
    names : tuple of str
    friction : (n_c,)
        Coefficient mu, the largest one of an anisotropic contact.
    restitution : (n_c,)
    tangents : tuple of slices
        Components of the contact among all n_tt tangent components; empty without friction.
    speeds : tuple of int
        Position of the slip speed among those of the contacts with two tangents, else -1.
    weights : (n_tt,)
        friction / mu of every tangent component.
    """

    names: tuple[str, ...]
    friction: np.ndarray
    restitution: np.ndarray
    tangents: tuple[slice, ...]
    speeds: tuple[int, ...]
    weights: np.ndarray

    @property
    def count(self) -> int:
        """Number of contacts."""
        return len(self.names)

    @property
    def spatial(self) -> int:
        """Number of contacts with two tangents."""
        return sum(speed >= 0 for speed in self.speeds)

    def width(self, contact: int) -> int:
        """Number of tangents of a contact: 0, 1 or 2."""
        return self.tangents[contact].stop - self.tangents[contact].start

    def masks(self, modes: Sequence[int]) -> np.ndarray:
        """Numbers that choose the rows of the modes: closed, stick and slip (with its sign) of every contact."""
        kinds = np.asarray(modes, dtype=int)
        slip = np.where(kinds == SLIP, 1.0, np.where(kinds == SLIP_BACK, -1.0, 0.0))
        return np.concatenate([(kinds != FREE).astype(float), (kinds == STICK).astype(float), slip])


def frames_of(system: CLS) -> ContactFrames:
    """Frames of the contacts of a system."""
    tangents, speeds, weights, friction = [], [], [], []
    position = spatial = 0
    for contact in system.contacts:
        size = contact.tangent.shape[1] if contact.frictional else 0
        tangents.append(slice(position, position + size))
        speeds.append(spatial if size == 2 else -1)
        friction.append(max(contact.friction))
        weights += [mu / friction[-1] for mu in contact.friction[:size]]
        position, spatial = position + size, spatial + (size == 2)
    return ContactFrames(
        names=tuple(contact.name for contact in system.contacts),
        friction=np.array(friction),
        restitution=np.array([contact.restitution for contact in system.contacts]),
        tangents=tuple(tangents),
        speeds=tuple(speeds),
        weights=np.array(weights),
    )


def directions(system: CLS, frames: ContactFrames) -> tuple[ca.SX, ca.SX, ca.SX]:
    """Gaps (n_c), normals (n_q, n_c) and weighted tangents (n_q, n_tt)."""
    gaps = ca.vertcat(ca.SX(0, 1), *[contact.gap for contact in system.contacts])
    normals = ca.horzcat(ca.SX(system.n_q, 0), *[system.normal(contact) for contact in system.contacts])
    tangents = [contact.tangent for contact in system.contacts if contact.frictional]
    weighted = ca.horzcat(ca.SX(system.n_q, 0), *tangents) @ ca.SX(ca.diag(ca.DM(frames.weights)))
    return gaps, ca.densify(normals), ca.densify(weighted)


def contact_function(system: CLS) -> Callable[..., list[np.ndarray]]:
    """(x, p) -> gaps (n_c,) and normal velocities (n_c,) of all contacts, fast."""
    normals = ca.horzcat(ca.SX(system.n_q, 0), *[system.normal(contact) for contact in system.contacts])
    gaps = ca.vertcat(ca.SX(0, 1), *[contact.gap for contact in system.contacts])
    function = buffered(ca.Function("contacts", [system.x, system.p], [gaps, normals.T @ system.v]))
    return lambda x, p: [values[:, 0] for values in function(x, p)]


def node_function(system: CLS, frames: ContactFrames) -> ca.Function:
    """Gaps, directions J' = (n, t), M, forces, and the rate of change J'' v of the directions along the motion."""
    gaps, normals, tangents = directions(system, frames)
    jacobian = ca.horzcat(normals, tangents).T
    curvature = ca.jtimes(jacobian @ system.v, system.q, system.v)
    outputs = [gaps, jacobian, system.mass_matrix, system.force, curvature]
    return ca.Function("node_data", [system.x, system.u, system.p], outputs)


def friction_rows(
    frames: ContactFrames,
    masks: ca.SX,
    normal: ca.SX,
    tangential: ca.SX,
    speed: ca.SX,
    rate: ca.SX,
    held: ca.SX | None = None,
    direction: ca.SX | None = None,
) -> tuple[ca.SX, ca.SX]:
    """Friction force (n_tt) and the rows of the modes (n_tt + n_spatial) for its unknowns.

    `tangential` is the force of a contact that sticks and the direction d of one that slips in space (rate = s d,
    |d| = 1, force = -mu f_n d). A contact that is `held` has its direction of slip given.
    """
    stick, slip = masks[frames.count : 2 * frames.count], masks[2 * frames.count :]
    forces, rows, lengths = [], [], []
    for c, part in enumerate(frames.tangents):
        y, r = tangential[part], rate[part]
        bound = frames.friction[c] * normal[c]
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
