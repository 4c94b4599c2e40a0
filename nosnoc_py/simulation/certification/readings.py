"""Conversion of a solution into plain numbers for the audit: stages, jumps, and listed forces.

A solution claims the equations of motion at the stages of its own elements, in physical time. With time-freezing,
elements are polynomials in numerical time tau, of which the clock t is one component; at a stage dx/dt = (dx/dtau) /
(dt/dtau). Elements in which the clock stands still are jumps and have no stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nosnoc_py.audit.contacts import explained_impulses, laws_of_impacts, laws_of_motion, scales_of
from nosnoc_py.audit.elements import SHORT_ELEMENT, ElementStages, columns_of, listed, noise_of, slopes_of
from nosnoc_py.audit.inclusions import Inclusions
from nosnoc_py.audit.records import Jumps, Measured, MotionSamples, Scales, statement
from nosnoc_py.audit.redundancy import null_space
from nosnoc_py.audit.resets import resets_of
from nosnoc_py.simulation.certification.memory import modes_at
from nosnoc_py.solution import RungeKuttaInterpolant, Solution, Trajectory
from nosnoc_py.solution.interpolant import Side
from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.inclusion import inclusion_of
from nosnoc_py.systems.pss import PDS, PSS, Heaviside
from nosnoc_py.tolerances import BROKEN, STATED, TOUCHING_SOLVED

Array = np.ndarray
# Distance inside an element at which its ends are evaluated, in its lengths: the control may jump at the end.
EDGE = 1e-9
# An element runs if its clock advances by more than this fraction of a control stage.
RUNS = 1e-7


def is_by_collocation(solution: Solution) -> bool:
    """Return True if the nodes of a solution's dense output are the stages of its scheme."""
    return solution.discretization is not None and solution.discretization.collocation


def own_stages(solution: Solution) -> ElementStages | None:
    """Return the elements of a solution with the stages of its scheme; None if these are not known."""
    return collocation_of(solution) if is_by_collocation(solution) else None


def collocation_of(solution: Solution) -> ElementStages | None:
    """Return the elements of a solution; None without polynomials."""
    own = solution.interpolant if solution.numerical is None else solution.numerical.interpolant
    if not isinstance(own, RungeKuttaInterpolant):
        return None
    if solution.numerical is None:
        return ElementStages.of(own.t_left, own.h, own.c, own.x_left, own.x_right, own.x_stages)
    # The last component of a time-freezing state is its clock.
    left, right, slopes = own.x_left[:, -1], own.x_right[:, -1], slopes_of(own.c, own.x_left, own.x_stages)
    rows = np.flatnonzero(right - left > RUNS * solution.duration / max(len(solution.u), 1))
    h = (right - left)[rows]
    return ElementStages(
        t_left=left[rows],
        h=h,
        c=own.c,
        clock=slopes[rows, :, -1] / h[:, None],
        t=own.x_stages[rows, :, -1],
        x_left=own.x_left[rows, :-1],
        x_right=own.x_right[rows, :-1],
        x=own.x_stages[rows][..., :-1],
        slopes=slopes[rows][..., :-1],
    )


def controls_at_stages(solution: Solution, elements: ElementStages) -> Array:
    """Return the control (E, n_s, n_u) at the stages; at ends of elements by its limits from inside."""
    inside = np.clip(elements.c, EDGE, 1.0 - EDGE) if solution.control_interpolant is not None else 0.5
    times = elements.t_left[:, None] + elements.h[:, None] * np.broadcast_to(inside, elements.c.shape)
    return controls_of(solution, times.reshape(-1)).reshape(*times.shape, -1)


def controls_of(solution: Solution, t: Array) -> Array:
    """Return the control (times, n_u); beyond the grid of a failed solution its last value."""
    return np.asarray(solution.control(np.clip(t, *solution.u_grid[[0, -1]]))).reshape(len(t), -1)


def states_of(solution: Trajectory, t: Array, side: Side) -> Array:
    """Return the state (times, n_x); outside of a failed solution its first or last state."""
    own = solution.interpolant
    ends = solution.t[[0, -1]]
    if isinstance(own, RungeKuttaInterpolant):
        ends = np.array([own.t_left[0], own.t_left[-1] + own.h[-1]])
    return np.asarray(solution(np.clip(t, *ends), side)).reshape(len(t), -1)


def samples_of(solution: Solution, elements: ElementStages, forces: Array | None = None) -> MotionSamples:
    """Return the stages of a solution as samples."""
    u = controls_at_stages(solution, elements)
    return elements.samples(u, forces, solution.duration, solution.infeasibility)


def stopped_clock_violations(solution: Solution, elements: ElementStages) -> list[Violation]:
    """Return violations for elements of time-freezing in which the clock stops without a jump."""
    places = np.argwhere(elements.standing & (elements.h > SHORT_ELEMENT * solution.duration)[:, None])
    return [
        Violation(time=float(elements.t[e, k]), law=Law.CLOCK, subject="", amount=1.0, share=1.0) for e, k in places
    ]


@dataclass(frozen=True, eq=False)
class ContactReading:
    """A solution with contacts and its audit."""

    system: CLS
    solution: Solution

    @cached_property
    def elements(self) -> ElementStages | None:
        """Elements whose stages are those of the scheme."""
        return own_stages(self.solution)

    @cached_property
    def samples(self) -> MotionSamples:
        """Samples at the stages; nodes without rates if the scheme is not known."""
        elements, frames = self.elements, self.system.mechanics.frames_at(self.solution.p)
        if elements is None:
            solution = self.solution
            return MotionSamples(t=solution.t, x=solution.x, u=np.zeros((len(solution.t), self.system.n_u)))
        forces = listed(frames, self.solution.series, "lambda", elements.t.size)
        return samples_of(self.solution, elements, forces)

    @cached_property
    def jumps(self) -> Jumps:
        """Jumps at the left ends of all elements."""
        own = self.solution.interpolant
        assert isinstance(own, RungeKuttaInterpolant)
        before = np.vstack([own.x_initial, own.x_right[:-1]])
        frames = self.system.mechanics.frames_at(self.solution.p)
        impulses = listed(frames, self.solution.series, "Lambda", own.h.size)
        return Jumps(t=own.t_left, x_before=before, x_after=own.x_left, impulses=impulses)

    @cached_property
    def scales(self) -> Scales:
        """Typical sizes of the motion."""
        duration = self.solution.duration
        stage = duration / max(len(self.solution.u), 1)
        return scales_of(self.system, self.samples, self.jumps, p=self.solution.p, duration=duration, stage=stage)

    def laws_of_motion(self) -> list[Measured]:
        """Return the residuals of the laws of motion at the stages; none if the scheme is not known."""
        return [] if self.elements is None else laws_of_motion(self.system, self.samples, self.scales, self.solution.p)

    @cached_property
    def explained(self) -> Jumps:
        """Jumps with impulses: those listed, or computed ones that explain the jump."""
        return explained_impulses(self.system, self.jumps, self.scales, self.solution.p)

    def laws_of_impacts(self) -> list[Measured]:
        """Return the residuals of the laws of impacts at the nodes."""
        return laws_of_impacts(self.system, self.explained, self.scales, self.solution.p)

    def false_impacts(self) -> list[Violation]:
        """Return impacts that are listed although nothing jumps there, or with another impulse."""
        jumps, names, mismatches = self.explained, self.system.mechanics.frames.names, []
        assert jumps.impulses is not None
        for event in self.solution.impacts:
            k = int(np.argmin(np.abs(jumps.t - event.time)))
            near = abs(float(jumps.t[k]) - event.time) <= SHORT_ELEMENT * self.solution.duration
            c = names.index(event.name) if event.name in names else -1
            listed_impulse, true = 0.0 if event.impulse is None else event.impulse, 0.0
            true = float(jumps.impulses[k, c]) if near and c >= 0 else 0.0
            # A wrong impulse counts by the velocity that it would cause, relative to the speed of the motion.
            share = abs(listed_impulse - true) * self.scales.response / self.scales.speed
            if not share > BROKEN or (near and not self._is_unique(k)):
                continue
            text = f"impact {event.name} is listed with {listed_impulse:.4g} N s, the jump there has {true:.4g}"
            mismatches.append(statement(event.time, text, abs(listed_impulse - true), share))
        return mismatches

    def _is_unique(self, k: int) -> bool:
        """Return True if the impulses at a node are unique; listed impulses have to be the solution's own."""
        if self.jumps.impulses is not None:
            return True
        here = self.system.kinematics(self.jumps.x_before[k], 0.0, self.solution.p)
        closed = np.flatnonzero(here.gaps <= TOUCHING_SOLVED * self.scales.length * here.steepness)
        # Several impulses can explain one jump if closed contacts are redundant.
        return not null_space(here.jacobian[self.system.mechanics.frames.rows(closed)].T).shape[1]


def inclusions_of(
    system: PSS | Heaviside | PDS | HybridSystem, solution: Solution, elements: ElementStages
) -> list[Violation]:
    """Return violations of the differential inclusion at the stages."""
    samples = samples_of(solution, elements)
    own = system.algebraic
    names = [
        *(label for part in inclusion_of(system)[1] for label in part.labels),
        *(() if own is None else own.names or ()),
    ]
    multipliers = columns_of(solution.series, names, elements.t.size)  # and algebraic variables, if they are listed
    if multipliers is not None:
        multipliers = multipliers[np.flatnonzero(elements.with_rates(solution.duration).reshape(-1))]
    modes, sizes = modes_at(system, solution, solution.p, samples.t, after=False), _sizes(solution, elements, samples)
    return Inclusions(system, samples, solution.p, sizes, multipliers, modes > 0.0).violations()


def jumps_of(solution: Solution, system: HybridSystem) -> list[Measured]:
    """Return what no reset explains of the jumps of a solution; none without polynomials."""
    own = solution.interpolant
    if not isinstance(own, RungeKuttaInterpolant):
        return []
    before = np.vstack([own.x_initial, own.x_right[:-1]])
    # A component that is zero but for rounding has no size of its own.
    sizes = np.maximum(np.abs(solution.x).max(axis=0), STATED * np.asarray(system.x_nominal))
    return [resets_of(system, Jumps(t=own.t_left, x_before=before, x_after=own.x_left), solution.p, sizes)]


def _sizes(solution: Solution, elements: ElementStages, samples: MotionSamples) -> Array:
    """Return the largest rates (n_x,), at least those that errors of the solver cause over short steps."""
    long = elements.h[elements.h > SHORT_ELEMENT * solution.duration]
    if not long.size or samples.rates is None:
        return np.ones(elements.x.shape[2])
    rates = np.nan_to_num(np.abs(samples.rates), nan=0.0, posinf=0.0).max(axis=0, initial=0.0)
    noise = [noise_of(elements.c, long, solution.x[:, i], solution.infeasibility).max() for i in range(rates.size)]
    # Rates smaller than the noise of the solver over a short element are no measure for residuals.
    return np.asarray(np.maximum(np.maximum(rates, np.array(noise) / BROKEN), 1e-300))
