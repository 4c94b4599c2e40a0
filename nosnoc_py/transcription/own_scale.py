"""A solution by FESD-J in its own scale: residuals of a solved program are small numbers, but small beside what?

The product of a gap of 1e-3 m and a force of 1e-5 N is below every tolerance, whatever the contact does, and an impulse
of 1e-9 N s is not seen beside an infeasibility of 1e-9. So the laws at the nodes and stages are held against the
speeds, accelerations and gaps of the motion itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from nosnoc_py.reformulation.impact import stack_contacts
from nosnoc_py.roles import Role
from nosnoc_py.systems.cls import CLS

if TYPE_CHECKING:
    from nosnoc_py.discretization.readout import Readout
    from nosnoc_py.transcription.transcription import Transcription

Array = np.ndarray
# In a motion of size one, the products of 1e-7 that a solved program may have leave the smaller side below 3e-4: beyond
# this share of the motion a law is broken by more than the solver's tolerance can explain.
TOLERANCE = 1e-3
# A body at rest has no scale of its own: speeds [m/s] count as this at least, a thousand times what residuals leave.
AT_REST = 1e-5
# Constraints in the units of the states, one row each.
MOTION = (Role.STAGE_STATES, Role.RIGHT_END)


@dataclass(frozen=True)
class Breach:
    """A broken law: by which share of what is at work, which one, and when [s]."""

    share: float
    law: str
    time: float

    def __str__(self) -> str:
        return f"at t = {self.time:.6g} s {self.law}, by {100 * self.share:.2g} % of what is at work"


@dataclass(frozen=True, eq=False, kw_only=True)
class Points:
    """Instants (k,) of a contact system: gaps (k, n_c), M^-1 n (k, n_q, n_c), M^-1 f (k, n_q), M^-1 (k, n_q, n_q)."""

    t: Array
    gaps: Array
    normals: Array
    inverse: Array
    free: Array

    @cached_property
    def response(self) -> Array:
        """Largest velocity (k, n_c) by a unit impulse of every contact."""
        return np.asarray(np.abs(self.inverse @ self.normals).max(axis=1, initial=0.0))


class OwnScale:
    """Holds an iterate of a contact problem against the laws.

    Parameters
    ----------
    problem : Transcription
        Of a `CLS` by FESD-J.
    read : Readout
        The iterate.
    p : (n_p,)
    u : (N, n_u)
        Controls of the control stages.
    g : (n_g,)
        Values of the constraints of the MPCC.
    horizon : float
        [s].
    """

    def __init__(self, problem: Transcription, read: Readout, p: Array, u: Array, g: Array, horizon: float) -> None:
        self.problem, self.read, self.p, self.u, self.g, self.horizon = problem, read, p, u, g, horizon
        self.system: CLS = problem.ocp.system
        self.n_q, self.names = self.system.n_q, tuple(contact.name for contact in self.system.contacts)
        self.t_left = np.concatenate([[0.0], np.cumsum(read.h)[:-1]])

    def worst(self) -> Breach | None:
        """The largest breach; None where nothing is broken beyond the tolerance."""
        every = [*self._states(), *self._at_nodes(), *self._at_stages()]
        worst = max(every, key=lambda breach: breach.share, default=None)
        return worst if worst is not None and worst.share > TOLERANCE else None

    # --- what is at work ---

    @cached_property
    def nodes(self) -> Points:
        """The left ends of the elements, before their jumps."""
        return self._points(self.t_left, self.read.x_minus, self._controls)

    @cached_property
    def stages(self) -> Points:
        """The RK stages of all elements."""
        count, (c, x) = self.read.x_stages.shape[1], (self.problem.tableau.c, self.read.x_stages)
        times = (self.t_left[:, None] + self.read.h[:, None] * c).reshape(-1)
        return self._points(times, x.reshape(times.size, -1), np.repeat(self._controls, count, axis=0))

    @property
    def _controls(self) -> Array:
        """Controls (E, n_u) in the elements."""
        return self.u[[element.at.stage or 0 for element in self.problem.elements]]

    def _points(self, t: Array, x: Array, u: Array) -> Points:
        s, contacts = self.system, stack_contacts(self.system)
        outputs = [ca.densify(e) for e in (contacts.gap, contacts.normal, s.mass_matrix, s.force)]
        look = ca.Function("look", [s.x, s.u, s.p], outputs).map(len(t))
        gaps, normals, mass, force = (np.asarray(v) for v in look(x.T, u.T, np.tile(self.p[:, None], len(t))))
        inverse = np.linalg.pinv(_matrices(mass, len(t)), hermitian=True)
        return Points(
            t=t,
            gaps=gaps.T,
            normals=_matrices(normals, len(t)),
            inverse=inverse,
            free=np.einsum("kij,jk->ki", inverse, force),
        )

    @cached_property
    def speed(self) -> float:
        """The fastest velocity [m/s], at least what the forces at work give in one control stage, with controls or
        without: they may hold each other."""
        states = np.concatenate([self.read.x_minus, self.read.x_left, self.read.x_right])[:, self.n_q :]
        alone = self._points(self.t_left, self.read.x_minus, np.zeros((len(self.t_left), self.system.n_u)))
        stage = self.horizon / self.problem.grid.control_stages
        free = np.abs(np.concatenate([self.nodes.free, alone.free]))
        away = float(free.max(initial=0.0, where=np.isfinite(free))) * stage
        return max(float(np.abs(states).max(initial=0.0)), away, AT_REST)

    @cached_property
    def length(self) -> float:
        """Size of the positions [m]."""
        return max(float(np.abs(self.read.x_left[:, : self.n_q]).max(initial=0.0)), self.speed * self.horizon)

    @cached_property
    def acceleration(self) -> float:
        """The largest acceleration [m/s^2], by contacts or other forces."""
        pushes = self._forces * self.stages.response
        least = self.speed / self.horizon
        return max(float(np.abs(self.stages.free).max(initial=0.0)), float(pushes.max(initial=0.0)), least)

    @cached_property
    def gaps(self) -> Array:
        """Sizes (n_c,) of the gaps."""
        moved = np.abs(self.nodes.normals).max(axis=(0, 1), initial=0.0) * self.length
        return np.maximum(np.maximum(np.abs(self.nodes.gaps).max(axis=0, initial=0.0), moved), 1e-300)

    @property
    def _forces(self) -> Array:
        """Normal forces (k, n_c) at the stages: the first algebraic variables."""
        return np.abs(self.read.z_stages[:, :, : len(self.names)]).reshape(len(self.stages.t), -1)

    # --- the laws ---

    def _states(self) -> Iterator[Breach]:
        """Equations of the states, which hold to any tolerance where positions and velocities are as small."""
        names, layout = self.system.state_names, self.problem.mpcc.constraints
        sizes = np.repeat([self.length, self.speed], self.n_q)
        starts = {(e.at.stage, e.at.element): t for e, t in zip(self.problem.elements, self.t_left, strict=True)}
        for block in (b for role in MOTION for b in layout.blocks(role=role)):
            t = float(starts[block.at.stage, block.at.element])
            for name, size, value in zip(names, sizes, self.g[block.rows], strict=True):
                yield Breach(abs(float(value)) / size, f"the equation of motion of {name} does not hold", t)

    def _at_nodes(self) -> Iterator[Breach]:
        """The law of impacts (Eq. 11)."""
        jump, read, at = self.problem.dcs.jump, self.read, self.nodes
        if jump is None or not read.boundary.shape[1] or not self.names:
            return
        equations = {e.role: e.expression for e in jump.equations}
        values = {v.role: v.symbol for v in jump.variables}
        law = values[Role.REBOUND_PLUS] - values[Role.REBOUND_MINUS] - equations[Role.RESTITUTION]
        outputs = [equations[Role.IMPULSE_BALANCE], values[Role.NORMAL_IMPULSE], law]
        function = ca.Function("jump", [jump.x_minus, jump.symbol, self.system.p], outputs).map(len(at.t))
        found = function(read.x_minus.T, read.boundary.T, np.tile(self.p[:, None], len(at.t)))
        balance, impulses, late = (np.asarray(value).T for value in found)
        left = np.abs(np.einsum("kij,kj->ki", at.inverse, balance)) / self.speed
        yield from self._worst_of(left, at.t, self.system.names["v"], "no impulse explains the jump of {}")
        shocks = np.abs(impulses) * at.response / self.speed
        apart = np.abs(at.gaps) / self.gaps
        yield from self._worst_of(np.minimum(shocks, apart), at.t, self.names, "{} has an impulse at a distance")
        wrong = np.minimum(shocks, np.abs(late) / self.speed)
        yield from self._worst_of(wrong, at.t, self.names, "{} breaks the law of restitution")

    def _at_stages(self) -> Iterator[Breach]:
        """Eqs. 1 and 13a."""
        at, dcs, read = self.stages, self.problem.dcs, self.read
        if not self.names:
            return
        pushes = self._forces * at.response / self.acceleration
        apart = np.abs(at.gaps) / self.gaps
        yield from self._worst_of(np.minimum(pushes, apart), at.t, self.names, "{} pushes at a distance")
        yield from self._worst_of(np.maximum(-at.gaps, 0.0) / self.gaps, at.t, self.names, "{} is penetrated")
        for momentum in (e for e in dcs.equations if e.role is Role.MOMENTUM):
            function = ca.Function("momentum", [dcs.x, dcs.z, dcs.u, dcs.p], [momentum.expression]).map(len(at.t))
            x, z = (values.reshape(len(at.t), -1) for values in (read.x_stages, read.z_stages))
            u = np.repeat(self._controls, read.x_stages.shape[1], axis=0)
            rows = np.asarray(function(x.T, z.T, u.T, np.tile(self.p[:, None], len(at.t)))).T
            left = np.abs(np.einsum("kij,kj->ki", at.inverse, rows)) / self.acceleration
            yield from self._worst_of(left, at.t, self.system.names["v"], "no force explains the acceleration of {}")

    def _worst_of(self, shares: Array, t: Array, names: Sequence[str], law: str) -> Iterator[Breach]:
        """The largest of shares (k, names) at times t (k,); what is no number is broken altogether."""
        shares = np.where(np.isfinite(shares), shares, np.inf)
        if shares.size:
            k, i = divmod(int(np.argmax(shares)), shares.shape[1])
            yield Breach(float(shares[k, i]), law.format(names[i]), float(t[k]))


def _matrices(side_by_side: Array, count: int) -> Array:
    """Matrices (count, rows, columns) that CasADi's map puts side by side."""
    rows, columns = side_by_side.shape
    return side_by_side.reshape(rows, count, columns // count).transpose(1, 0, 2)
