"""A solution by FESD-J in its own scale: residuals of a solved program are small numbers, but small beside what?

The product of a gap of 1e-3 m and a force of 1e-5 N is below every tolerance, whatever the contact does, and an impulse
of 1e-9 N s is not seen beside an infeasibility of 1e-9. So stages and nodes are held against the laws of contact
mechanics, as shares of the speeds, accelerations and lengths of the motion itself (`nosnoc_py.audit`).
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
# Cones whose friction does not oppose the slip exactly.
ROUGH = ("polyhedral", "paper")


def breach(
    problem: Transcription, read: Readout, series: Mapping[str, Series], p: Array, u: Array, infeasibility: float
) -> Violation | None:
    """The law that is broken most, where that is more than the solver's tolerance can explain.

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
    found = (worst for part in parts if (worst := worst_of(part)) is not None and worst.share > BADLY_SCALED)
    return next(found, None)


def measured(
    problem: Transcription, read: Readout, series: Mapping[str, Series], p: Array, u: Array, infeasibility: float
) -> list[Measured]:
    """All laws at the stages and nodes of an iterate."""
    system, duration = problem.ocp.system, float(read.h.sum())
    samples, jumps = _samples(problem, read, series, p, u, infeasibility), _jumps(problem, read, series, p)
    scales = scales_of(system, samples, jumps, p=p, duration=duration, stage=duration / problem.grid.control_stages)
    exact = getattr(problem.method, "friction_cone", "auto") not in ROUGH
    found = laws_of_motion(system, samples, scales, p, exact_friction=exact)
    found += laws_of_impacts(system, jumps, scales, p, exact_friction=exact)
    if not problem.fesd.switch_detection:  # with fixed steps a force is all that can catch a body
        found = [one for one in found if one.law is not Law.CATCH]
    seams = laws_of_impacts(system, _seams(problem, read), scales, p)
    return found + [one for one in seams if one.law in (Law.CONTINUITY, Law.IMPULSES)]


def _samples(
    problem: Transcription, read: Readout, series: Mapping[str, Series], p: Array, u: Array, infeasibility: float
) -> MotionSamples:
    h, c = read.h, problem.tableau.c
    elements = ElementStages.of(np.cumsum(h) - h, h, c, read.x_left, read.x_right, read.x_stages)
    controls = u[[element.at.stage or 0 for element in problem.elements]]
    forces = listed(problem.ocp.system.mechanics.frames_at(p), series, "lambda", elements.t.size)
    return elements.samples(np.repeat(controls[:, None], c.size, axis=1), forces, float(h.sum()), infeasibility)


def _jumps(problem: Transcription, read: Readout, series: Mapping[str, Series], p: Array) -> Jumps:
    t = np.cumsum(read.h) - read.h
    impulses = listed(problem.ocp.system.mechanics.frames_at(p), series, "Lambda", t.size)
    return Jumps(t=t, x_before=read.x_minus, x_after=read.x_left, impulses=impulses)


def _seams(problem: Transcription, read: Readout) -> Jumps:
    """Return the states at the ends of the polynomials and those of the solution there: nothing jumps between them."""
    frames = problem.ocp.system.mechanics.frames
    nodes = np.append(0.0, problem.tableau.c)
    at_end = np.linalg.solve(np.vander(nodes, increasing=True).T, np.ones(nodes.size))
    ends = np.einsum("j,ejx->ex", at_end, np.concatenate([read.x_left[:, None], read.x_stages], axis=1))
    nothing = np.zeros((len(read.h), frames.count + frames.n_t))
    return Jumps(t=np.cumsum(read.h), x_before=ends, x_after=read.x_right, impulses=nothing)
