"""Starts of robots: stiff springs in place of contacts, and the sequence is read from their forces.

A control that was found with springs seldom does the same in the exact simulation: legs fall, fingers lose what they
hold. Here the motion itself is the start. Implicit Euler steps have the equations of motion in the form of inverse
dynamics: M(q) (v - v_before) - h (forces) has no inverse of the mass matrix, and a step costs a tenth of a collocation
with solved accelerations. The motion begins where the posture of x0 is held, and a continuation makes springs and slip
speeds small (Kurtz et al. 2023 keep theirs). A contact is then closed where it carries, or rests at the surface; this
`Proposal` is the start of the multi-phase program of its sequence.

Normal force of a contact with gap g, typical force F and width d, a part sigma of a length:

    lambda = F log(1 + exp(-g / d)) s(g' / w),    w = sqrt(d F / m),    s(z) = 1 - z, (z - 2)^2 / 4, 0

for z < 0, z < 2 and beyond: a spring that acts at a distance of a few d, with a dissipation that does not pull (Hunt
and Crossley 1975; its smooth form is that of Kurtz et al.). Far from the surface it is exponentially small, other than
the force of `reformulation.smoothing`, on which a robot would stand in the air. Static friction is left to the
program of the sequence. Systems without controls, or with contacts that bounce, have no such starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import casadi as ca
import numpy as np

from nosnoc_py.functions import function_of
from nosnoc_py.kernels import Kernel
from nosnoc_py.programs import KernelBlock, LinearMap
from nosnoc_py.search.contact_steps import contact_modes, lasting, proposal_of
from nosnoc_py.search.stances import Proposal, drawn_motion
from nosnoc_py.search.starts import StartTask
from nosnoc_py.search.steps import StepProgram, line_states
from nosnoc_py.sequences.contact_laws import ContactLaws
from nosnoc_py.sequences.equations import Mode
from nosnoc_py.sequences.refinement import laws_of
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.quaternions import unit_states
from nosnoc_py.tolerances import FAR

Array = np.ndarray
# Widths of the springs in the order of the continuation, and the last one that need not be reached.
WIDTHS, COARSE = (0.05, 0.02, 0.01, 0.005, 0.002, 0.001), 0.01
# Programs of one continuation, whose steps get shorter where one does not converge.
MOST_PROGRAMS = 10
# A contact carries from this fraction of the typical force on. It slips above this multiple of the speed at which
# friction reaches 1 / sqrt(2) of its bound, and rests below this one, within so many widths of its surface.
CARRIES, SLIPS, NEAR = 0.05, 3.0, 2.0
# Slip speed of the regularised friction for sigma = 1, in the largest typical speed.
CREEPS = 2.0
# Argument from which on log(1 + exp(z)) is z to the last digit.
LINEAR = 36.0
# A length below this fraction of that beside x0 is none.
FLAT = 1e-2
# Size of random postures in the middle of a motion, as a fraction of the typical sizes of the coordinates.
ASIDE = 0.3


@dataclass(frozen=True, eq=False, kw_only=True)
class CompliantProgram(StepProgram):
    """Program of the implicit Euler steps of a system with springs in place of contacts.

    Attributes
    ----------
    inertia : (n_v,)
        Typical momenta.
    forces, masses, lengths : (n_c,)
        Typical normal forces of the contacts [N], effective masses, and lengths of which sigma is a fraction.
    """

    inertia: Array
    forces: Array
    masses: Array
    lengths: Array
    steps: ClassVar[int] = 40
    shared: ClassVar[int] = 1
    stages: ClassVar[int] = 1
    iterations: ClassVar[int] = 150

    @classmethod
    def of(cls, task: StartTask) -> CompliantProgram:
        """Take typical forces, masses and lengths from the initial state."""
        s, sizes = task.ocp.system, task.spans
        forces, masses, lengths = _typical(task, task.x0, sizes)
        # A gap may have no slope at x0, such as that of a link which points straight up: beside it, it has.
        aside = task.x0.copy()
        aside[s.at_q] += ASIDE * sizes[s.at_q]
        beside = _typical(task, unit_states(aside, s.unit_parts), sizes)
        flat = lengths < FLAT * beside[2]
        forces, masses, lengths = (
            np.where(flat, other, own) for own, other in zip((forces, masses, lengths), beside, strict=True)
        )
        return cls(
            task=task,
            sizes=sizes,
            push=np.zeros(0),
            inertia=np.abs(np.diag(s.kinematics(task.x0, 0.0, task.ocp.p).mass)) * sizes[s.at_v],
            forces=forces,
            masses=masses,
            lengths=lengths,
        )

    @property
    def creep(self) -> float:
        """Slip speed at which friction reaches 1 / sqrt(2) of its bound, for sigma = 1."""
        return CREEPS * float(self.sizes[self.task.ocp.system.at_v].max())

    @cached_property
    def _sigma(self) -> ca.SX:
        return ca.SX.sym("sigma")

    @cached_property
    def _loads(self) -> ca.SX:
        """Normal forces (n_c,) in x, p and sigma."""
        at, loads = self.task.ocp.system.mechanics, []
        for c in range(self.forces.size):
            wide = self._sigma * float(self.lengths[c])
            near = -at.gaps[c] / wide
            pressed = ca.if_else(near > LINEAR, near, ca.log1p(ca.exp(ca.fmin(near, LINEAR))))
            speed = ca.sqrt(wide * float(self.forces[c] / self.masses[c]))
            z = at.gap_rates[c] / speed
            loads.append(float(self.forces[c]) * pressed * ca.if_else(z < 0, 1 - z, ca.fmax(2 - z, 0) ** 2 / 4))
        return ca.vertcat(*loads)

    @cached_property
    def _force(self) -> ca.SX:
        """All generalised forces (n_v,), in x, u, p and sigma."""
        s, loads, slowest = self.task.ocp.system, ca.vertsplit(self._loads), self._sigma * self.creep
        force = s.force
        for contact, load in zip(s.contacts, loads, strict=True):
            force += s.normal(contact) * load
            if contact.frictional:
                mu, weight = contact.cone
                slip = weight * s.slip(contact)
                force -= contact.tangent @ (mu * load * weight * slip / ca.sqrt(ca.sumsqr(slip) + slowest**2))
        return force

    def _steps(self, sigma: float) -> KernelBlock:
        """Return the block of the steps; arguments (x before, x, u, p, sigma, h)."""
        ocp, at, s = self.task.ocp, self.at, self.task.ocp.system
        before, h = ca.SX.sym("before", self.sizes.size), ca.SX.sym("h")
        q, v, y = (before[part] for part in (s.at_q, s.at_v, s.at_y))

        def made() -> Kernel:
            # Velocities at the end of a step act along directions at its begin; unit quaternions stay on the sphere.
            reached = q + h * ca.substitute(s.rate_matrix, s.q, q) @ s.v
            for part in s.unit_parts:
                reached[part] /= ca.norm_2(reached[part])
            rows = ca.vertcat(
                (s.q - reached) / ca.DM(self.sizes[s.at_q]),
                (s.mass_matrix @ (s.v - v) - h * self._force) / ca.DM(self.inertia),
                (s.y - y - h * s.y_rate) / ca.DM(self.sizes[s.at_y]),
            )
            return Kernel(ca.vertcat(before, s.x, s.u, s.p, self._sigma, h), rows, h * ocp.stage_cost)

        return KernelBlock(
            name="steps",
            kernel=s.kernels.kernel("steps", [self._force, ocp.stage_cost], made, *self.sizes, *self.inertia),
            at=LinearMap.of(
                (at["x"][:-1],),
                (at["x"][1:],),
                (self._controls,),
                (at["p"],),
                (None, np.full((1, 1), sigma)),
                (at["T"], np.full((1, 1), 1.0 / self.steps)),
            ),
            lower=np.zeros(self.sizes.size),
            upper=np.zeros(self.sizes.size),
        )

    def proposal(self, states: Array, control: Array) -> Proposal | None:
        """Return the proposal of a continuation from states (steps + 1, n_x); None if it does not converge."""
        w, found, left, tries = self.first((states, control)), None, list(WIDTHS), MOST_PROGRAMS
        while left and tries:
            sigma, tries = left.pop(0), tries - 1
            reached, converged = self.solved(sigma, w)
            if np.abs(reached / self.bounds[2]).max() > FAR:
                return None  # the objective may have no lower bound: other kinds say so
            if converged:
                found, w = (sigma, reached), reached
            elif found is not None:
                # A shorter step, from the last width that converged.
                left = [float(np.sqrt(sigma * found[0])), sigma, *left]
            elif np.isfinite(reached).all():
                w = reached
        return self._read(*found) if found is not None and found[0] <= COARSE else None

    def _read(self, sigma: float, w: Array) -> Proposal:
        """Return the motion of unknowns w with the sequence that its forces show."""
        task, at = self.task, self.at
        states, controls = w[at["x"]], np.clip(w[at["u"]], task.lower, task.upper)
        grid = np.linspace(0.0, float(w[at["T"]][0, 0]), self.steps + 1)
        motion = drawn_motion(task, grid, states, (grid, controls), w[at["p"]][0])
        laws = laws_of(task.ocp, motion)
        words = self._words(sigma, laws, motion, w[at["p"]][0])
        return proposal_of(laws, motion, grid, words)

    def _words(self, sigma: float, laws: ContactLaws, motion: Trajectory, p: Array) -> list[Mode]:
        """Return the modes of all contacts in every step."""
        s, x = self.task.ocp.system, motion.x[1:]
        loads = np.array(function_of([s.x, s.p, self._sigma], self._loads).map(len(x))(x.T, p, sigma)).T
        at = s.kinematics(x, 0.0, p)
        creep = sigma * self.creep
        slips = np.column_stack([np.linalg.norm(at.rates[:, laws.rows_of(c)], axis=1) for c in range(loads.shape[1])])
        slips = slips > SLIPS * creep
        near, slow = at.gaps < NEAR * sigma * self.lengths, np.abs(at.rates[:, : loads.shape[1]]) < SLIPS * creep
        closed = (loads > CARRIES * self.forces) | (near & slow & ~slips)
        closed, slips = (np.apply_along_axis(lasting, 0, each) for each in (closed, slips))
        return contact_modes(laws, closed, slips, at.rates, [laws.soft_modes(each[None], p) for each in x])


def _typical(task: StartTask, x: Array, sizes: Array) -> tuple[Array, Array, Array]:
    """Return typical normal forces, effective masses and lengths (n_c,) of contacts at a state."""
    ocp, s, T = task.ocp, task.ocp.system, float(task.ocp.horizon)
    at = s.kinematics(x, 0.0, ocp.p)
    rows = at.jacobian[: len(s.contacts)]
    response = np.linalg.solve(at.mass, np.column_stack([rows.T, at.force]))
    with np.errstate(all="ignore"):
        masses = 1.0 / np.einsum("ij,ji->i", rows, response[:, :-1])
    masses = np.where(np.isfinite(masses) & (masses > 0.0), masses, float(np.diag(at.mass).max()))
    ways = sizes[s.at_q] if s.moves_by_v else sizes[s.at_v] * T
    lengths = np.linalg.norm(rows * ways, axis=1)
    # Ways that bounds of speeds allow may be far longer than those on which forces send it.
    falls = 0.5 * T**2 * np.abs(rows @ response[:, -1])
    lengths = np.where(falls > CARRIES * lengths, np.minimum(lengths, falls), lengths)
    # The force that stops a contact with its typical speed within the horizon, or that holds what no drive carries.
    stops = masses * (np.abs(rows) @ (sizes[s.at_v] / T + np.abs(response[:, -1])))
    forces = np.maximum(stops, _held(task, rows, at.force).max(initial=0.0))
    return np.where(forces > 0.0, forces, 1.0), masses, lengths


def _held(task: StartTask, rows: Array, force: Array) -> Array:
    """Return the normal forces (n_c,) >= 0 that carry what no drive can, as if all contacts were closed."""
    from scipy.optimize import nnls  # not paid for by an import of the library

    undriven = task.undriven
    return np.asarray(nnls(undriven @ rows.T, -undriven @ force)[0])


def has_springs(task: StartTask) -> bool:
    """Return True if springs in place of contacts make a start of a problem."""
    s = task.ocp.system
    if not s.mechanical or not s.contacts or not s.smoothable or s.remembers or not task.rest.size or s.z.numel():
        return False
    # Springs that dissipate show nothing of contacts that bounce.
    return not task.undefined and not any(contact.bounces for contact in s.contacts)


def compliant(task: StartTask, rng: np.random.Generator) -> Iterator[Proposal | None]:
    """Yield proposals: from the posture of x0, from a line to the goal, then through random postures."""
    s = task.ocp.system
    if not has_springs(task):
        return
    program = CompliantProgram.of(task)
    still, control = np.tile(task.x0, (program.steps + 1, 1)), np.tile(task.rest, (program.steps, 1))
    yield program.proposal(still, control)
    line = line_states(task, program.steps)
    if line is not None:
        yield program.proposal(line, control)
    bump = np.sin(np.linspace(0.0, np.pi, program.steps + 1))[:, None]
    while True:
        aside = np.zeros(task.x0.size)
        aside[s.at_q] = ASIDE * rng.normal(size=s.n_q) * program.sizes[s.at_q]
        yield program.proposal((still if line is None or rng.random() < 0.5 else line) + bump * aside, control)
