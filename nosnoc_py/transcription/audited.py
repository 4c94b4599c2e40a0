"""Check a solution by FESD-J against the laws of contact mechanics, relative to the scale of its own motion.

Residuals of a solved program are absolute. The product of a gap of 1e-3 m and a force of 1e-5 N is below every
tolerance, whatever the contact does, and an impulse of 1e-9 N s cannot be distinguished from an infeasibility of 1e-9.
So stages and nodes are checked against Newton-Euler equations, Signorini's conditions, Coulomb's law and Newton's law
of restitution, each as a fraction of the speeds, accelerations and lengths of the motion itself (`nosnoc_py.audit`).

Invariants: a law that the method does not impose (the cone of an approximation, the catch of a fixed step) is not
checked. A gain of energy comes last, since any other broken law explains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from nosnoc_py.audit.contacts import laws_of_impacts, laws_of_motion, scales_of
from nosnoc_py.audit.elements import ElementStages, listed
from nosnoc_py.audit.records import Jumps, Measured, MotionSamples, worst_of
from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.tolerances import BADLY_SCALED

if TYPE_CHECKING:
    from nosnoc_py.discretization.readout import Readout
    from nosnoc_py.solution.records import Series
    from nosnoc_py.transcription.transcription import Transcription

Array = np.ndarray
# They replace the circle of friction directions by a polygon or by fixed weights.
# Cones whose friction does not oppose the slip exactly.
APPROXIMATE_CONES = ("polyhedral", "paper")


def breach(
    problem: Transcription, read: Readout, series: Mapping[str, Series], p: Array, u: Array, infeasibility: float
) -> Violation | None:
    """Return the law that is broken most, or None if the solver's tolerance explains all residuals.

    Parameters
    ----------
    problem : Transcription
        Of a `CLS` by FESD-J.
    read : Readout
        The iterate.
    series : mapping
        Forces at the stages and impulses at the nodes, by name.
    u : (N, n_u)
        Controls of the control stages.
    """
    laws = measured(problem, read, series, p, u, infeasibility)
    # An impact that raises the energy obeys every equation of Newton's law, and units do not mend it. Where another law
    # is broken, impulses are wrong and their energy says nothing of Newton's law: it comes last.
    parts = ([one for one in laws if (one.law is Law.ENERGY) is last] for last in (False, True))
    violations = (worst for part in parts if (worst := worst_of(part)) is not None and worst.share > BADLY_SCALED)
    return next(violations, None)


def measured(
    problem: Transcription, read: Readout, series: Mapping[str, Series], p: Array, u: Array, infeasibility: float
) -> list[Measured]:
    """Evaluate all laws at the stages and nodes of an iterate."""
    system, duration = problem.ocp.system, float(read.h.sum())
    samples, jumps = _samples(problem, read, series, p, u, infeasibility), _jumps(problem, read, series, p)
    scales = scales_of(system, samples, jumps, p=p, duration=duration, stage=duration / problem.grid.control_stages)
    exact = getattr(problem.method, "friction_cone", "auto") not in APPROXIMATE_CONES
    violations = laws_of_motion(system, samples, scales, p, exact_friction=exact)
    violations += laws_of_impacts(system, jumps, scales, p, exact_friction=exact)
    if not problem.fesd.switch_detection:  # with fixed steps a force is all that can catch a body
        violations = [one for one in violations if one.law is not Law.CATCH]
    # At the end of a collocation polynomial no impulse acts: only jumps are to be looked for there.
    seams = laws_of_impacts(system, _seams(problem, read), scales, p)
    return violations + [one for one in seams if one.law in (Law.CONTINUITY, Law.IMPULSES)]


def _samples(
    problem: Transcription, read: Readout, series: Mapping[str, Series], p: Array, u: Array, infeasibility: float
) -> MotionSamples:
    h, c = read.h, problem.tableau.c
    elements = ElementStages.of(np.cumsum(h) - h, h, c, read.x_left, read.x_right, read.x_stages)
    # Every element has the control of its stage; a simulation step has one stage, without a number.
    controls = u[[element.at.stage or 0 for element in problem.elements]]
    forces = listed(problem.ocp.system.mechanics.frames_at(p), series, "lambda", elements.t.size)
    return elements.samples(np.repeat(controls[:, None], c.size, axis=1), forces, float(h.sum()), infeasibility)


def _jumps(problem: Transcription, read: Readout, series: Mapping[str, Series], p: Array) -> Jumps:
    t = np.cumsum(read.h) - read.h
    # Impulses act at the left end of an element, also at the first one.
    impulses = listed(problem.ocp.system.mechanics.frames_at(p), series, "Lambda", t.size)
    return Jumps(t=t, x_before=read.x_minus, x_after=read.x_left, impulses=impulses)


def _seams(problem: Transcription, read: Readout) -> Jumps:
    """Return the states at the ends of the polynomials and those of the solution there: nothing jumps between them."""
    frames = problem.ocp.system.mechanics.frames
    # Weights that extrapolate the polynomial through x_left and the stages to the end of the element.
    nodes = np.append(0.0, problem.tableau.c)
    at_end = np.linalg.solve(np.vander(nodes, increasing=True).T, np.ones(nodes.size))
    ends = np.einsum("j,ejx->ex", at_end, np.concatenate([read.x_left[:, None], read.x_stages], axis=1))
    nothing = np.zeros((len(read.h), frames.count + frames.n_t))
    return Jumps(t=np.cumsum(read.h), x_before=ends, x_after=read.x_right, impulses=nothing)
