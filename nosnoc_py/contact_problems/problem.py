"""Contact problems at one instant: impulses of an impact, or contact forces and the modes of the motion that follows.

Both are the same problem in local coordinates, with the Delassus matrix G = J M^-1 J' (FESD-J, Eqs. 1c to 1e):

    r = G f + b,    0 <= f_n  perpendicular  r_n >= 0,    |f_t| <= mu f_n,    mu f_n r_t = -|r_t| f_t for every contact.

At an impact f are impulses and r the rates after it, the normal ones less the rebound of `contacts.law`; between
impacts f are forces and r accelerations. Tangents carry the weights of an anisotropic cone, so that all cones here are
circular.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nosnoc_py.contact_problems.law import rebound
from nosnoc_py.contact_problems.rows import RowProblem
from nosnoc_py.systems.kinematics import ContactFrames, Kinematics, effective_mass

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class ContactProblem:
    """One problem r = G f + b in local coordinates, normals first, then tangents.

    Attributes
    ----------
    frames : ContactFrames
    delassus : (n_c + n_tt, n_c + n_tt)
    offset : (n_c + n_tt,)
        b.
    active : tuple of int
        Contacts that take part.
    held : (n_c,) bool
        Contacts that slip already: their friction acts against `direction` (n_tt,), whatever r_t is.
    scale : float
        Size of the rates at work; violations are compared with it.
    """

    frames: ContactFrames
    delassus: Array
    offset: Array
    active: tuple[int, ...]
    held: Array
    direction: Array
    scale: float

    def in_unit_mass(self) -> tuple[ContactProblem, float]:
        """Return the problem with forces divided by the smallest effective mass, and this mass.

        Forces and rates then have the same size, so that one tolerance serves both, in any units.
        """
        mass = effective_mass(self.delassus, self.active)
        return replace(self, delassus=mass * self.delassus), mass


def impact_problem(
    frames: ContactFrames, at: Kinematics, active: Sequence[int], rest_velocity: float
) -> ContactProblem:
    """Return the problem of an impact; approaches slower than `rest_velocity` do not bounce.

    The rest velocity is a speed: gap rates are divided by the norm of the gap's gradient before they are compared, so
    that the unit of the gap does not matter.
    """
    before, n_c = at.rates, frames.count
    offset = before.copy()
    offset[:n_c] -= rebound(before[:n_c], frames.restitution, at.slowest(rest_velocity))
    return ContactProblem(
        frames=frames,
        delassus=at.delassus,
        offset=offset,
        active=tuple(active),
        held=np.zeros(n_c, dtype=bool),
        direction=np.zeros(frames.n_t),
        scale=float(np.abs(before[frames.rows(active)]).max(initial=0.0)),
    )


def acceleration_problem(
    frames: ContactFrames, at: Kinematics, active: Sequence[int], resting: float | Array, scale: float = 1.0
) -> ContactProblem:
    """Return the problem of the accelerations of closed contacts; what slips faster than `resting` goes on as it does.

    `scale` is the size of the accelerations at work at least [m/s^2]: forces that cancel leave rounding, which must not
    open a contact.
    """
    held, direction = np.zeros(frames.count, dtype=bool), np.zeros(frames.n_t)
    for c, (part, slow) in enumerate(zip(frames.tangents, np.broadcast_to(resting, frames.count), strict=True)):
        slip = at.rates[frames.count :][part]
        size = float(np.linalg.norm(slip))
        if size > slow:
            held[c], direction[part] = True, slip / size
    return ContactProblem(
        frames=frames,
        delassus=at.delassus,
        offset=at.free,
        active=tuple(active),
        held=held,
        direction=direction,
        scale=scale,
    )


def by_rows(problem: ContactProblem, friction: float = 1.0) -> RowProblem:
    """Return the active contacts by rows over the rates, for sweeps and semismooth Newton.

    A contact whose direction of slip is given has one unknown: its friction force follows the normal force, and moves
    into the column of it. `friction` multiplies all other coefficients.
    """
    frames, n = problem.frames, problem.offset.size
    active = np.array(problem.active, dtype=int)
    width = 1 + max((frames.width(c) for c in problem.active), default=0)
    dofs = np.full((active.size, width), n)  # n stands for a tangent that a contact does not have
    dofs[:, 0] = active
    for k, c in enumerate(problem.active):
        part = frames.tangents[c]
        dofs[k, 1 : 1 + frames.width(c)] = range(frames.count + part.start, frames.count + part.stop)
    padded = np.zeros((n + 1, n + 1))
    padded[:n, :n] = problem.delassus
    answers = padded.T[dofs]
    rows = np.einsum("mw,wx->mwx", dofs < n, np.eye(width))
    slope = friction * frames.friction[active]
    for k, c in enumerate(problem.active):
        if problem.held[c]:
            tangents = frames.width(c)
            along = problem.direction[frames.tangents[c]]
            answers[k, 0] -= frames.friction[c] * along @ answers[k, 1 : 1 + tangents]
            answers[k, 1:], rows[k, 1:], slope[k] = 0.0, 0.0, 0.0
    blocks = np.einsum("mwk,mxk->mwx", rows, np.take_along_axis(answers, dofs[:, None, :], axis=2))
    return RowProblem(
        rows=rows,
        dofs=dofs,
        answers=answers,
        reached=np.broadcast_to(np.arange(n + 1), (active.size, n + 1)),
        blocks=blocks,
        least=np.zeros(active.size),
        friction=slope,
        free=np.append(problem.offset, 0.0),
    )


def forces_of(problem: ContactProblem, impulses: Array) -> Array:
    """Return all forces (n_c + n_tt,) from those of the active contacts by rows (m, w)."""
    frames, forces = problem.frames, np.zeros(problem.offset.size)
    for k, c in enumerate(problem.active):
        part = slice(frames.count + frames.tangents[c].start, frames.count + frames.tangents[c].stop)
        forces[c] = impulses[k, 0]
        forces[part] = (
            -frames.friction[c] * impulses[k, 0] * problem.direction[frames.tangents[c]]
            if problem.held[c]
            else impulses[k, 1 : 1 + frames.width(c)]
        )
    return forces
