"""Contact problems at one instant: impulses of an impact, or contact forces and the modes of the following motion.

Both are the same problem in local coordinates, with the Delassus matrix G = J M^-1 J' (FESD-J, Eqs. 1c to 1e):

    r = G f + b,    0 <= f_n  perp  r_n >= 0,    |f_t| <= mu f_n,    mu f_n r_t = -|r_t| f_t    for every contact.

At an impact f are impulses and r the rates after it, the normal ones minus the rebound of `contact_problems.law`;
between impacts f are forces and r accelerations. Tangents contain the weights of an anisotropic cone, so that all cones
are circular here. Existence and uniqueness are not guaranteed with friction (Painleve); `solver` reports both.
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
    """Contact problem r = G f + b in local coordinates, normals first, then tangents.

    Attributes
    ----------
    frames : ContactFrames
    delassus : (n_c + n_tt, n_c + n_tt)
        Delassus matrix G.
    offset : (n_c + n_tt,)
        Rates b without contact forces.
    active : tuple of int
        Contacts that take part.
    held : (n_c,) bool
        Contacts that already slip: their friction acts against `direction`, whatever r_t is.
    direction : (n_tt,)
        Directions of slip of these contacts.
    scale : float
        Typical size of the rates; violations are compared with it.
    """

    frames: ContactFrames
    delassus: Array
    offset: Array
    active: tuple[int, ...]
    held: Array
    direction: Array
    scale: float

    @property
    def exact(self) -> bool:
        """True if directions of slip are signs, so that all modes are all solutions: in the plane."""
        return all(self.frames.width(c) < 2 for c in self.active)

    def in_unit_mass(self) -> tuple[ContactProblem, float]:
        """Return the problem with forces divided by the smallest effective mass, and this mass.

        Forces and rates then have the same unit and size, so that one tolerance serves both.
        """
        mass = effective_mass(self.delassus, self.active)
        return replace(self, delassus=mass * self.delassus), mass


def impact_problem(
    frames: ContactFrames, at: Kinematics, active: Sequence[int], rest_velocity: float
) -> ContactProblem:
    """Return the problem of an impact; contacts that approach slower than `rest_velocity` [m/s] are inelastic.

    Gap rates are divided by the norm of the gap's gradient before they are compared with the rest velocity, so that the
    unit of the gap does not matter.
    """
    before, n_c = at.rates, frames.count
    offset = before.copy()
    # With the rebound in the offset the impact law is r_n >= 0, as between impacts.
    offset[:n_c] -= rebound(before[:n_c], frames.restitution, at.slowest(rest_velocity))
    return ContactProblem(
        frames=replace(at.framed(frames), sticking=None),  # impulses have one coefficient
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
    """Return the problem of the accelerations of closed contacts.

    Parameters
    ----------
    active : sequence of int
        Closed contacts.
    resting : float or (n_c,)
        Contacts that slip faster than this [m/s] keep their direction of slip.
    scale : float
        Typical size of the accelerations [m/s^2]: forces that cancel leave rounding errors, which must not open a
        contact.
    """
    held, direction = np.zeros(frames.count, dtype=bool), np.zeros(frames.n_t)
    for c, (part, slow) in enumerate(zip(frames.tangents, np.broadcast_to(resting, frames.count), strict=True)):
        slip = at.rates[frames.count :][part]
        size = float(np.linalg.norm(slip))
        if size > slow:
            held[c], direction[part] = True, slip / size
    return ContactProblem(
        frames=at.framed(frames),
        delassus=at.delassus,
        offset=at.free,
        active=tuple(active),
        held=held,
        direction=direction,
        scale=scale,
    )


def by_rows(problem: ContactProblem, friction: float = 1.0) -> RowProblem:
    """Return the active contacts as a `RowProblem` over the rates, for sweeps and semismooth Newton.

    A contact with a prescribed direction of slip has one unknown: its friction force is proportional to the normal
    force and is added to the column of it. `friction` multiplies the coefficients of the other contacts.
    """
    frames, n = problem.frames, problem.offset.size
    active = np.array(problem.active, dtype=int)
    width = 1 + max((frames.width(c) for c in problem.active), default=0)
    dofs = np.full((active.size, width), n)  # padding: n is a tangent that a contact does not have
    dofs[:, 0] = active
    for k, c in enumerate(problem.active):
        part = frames.tangents[c]
        dofs[k, 1 : 1 + frames.width(c)] = range(frames.count + part.start, frames.count + part.stop)
    padded = np.zeros((n + 1, n + 1))  # the last row and column belong to the padding
    padded[:n, :n] = problem.delassus
    answers = padded.T[dofs]
    rows = np.einsum("mw,wx->mwx", dofs < n, np.eye(width))
    slope = friction * frames.friction[active]
    for k, c in enumerate(problem.active):
        if problem.held[c]:
            tangents = frames.width(c)
            along = problem.direction[frames.tangents[c]]
            # f_t = -mu f_n d: one column for normal and friction force together, which makes the matrix unsymmetric.
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
    """Return all forces (n_c + n_tt,) from those of the active contacts as rows (m, w)."""
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
