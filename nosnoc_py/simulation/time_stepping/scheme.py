"""One step of Moreau and Jean's or of Stewart and Trinkle's scheme."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nosnoc_py.contact_problems.colours import Colours
from nosnoc_py.contact_problems.cones import projection_of
from nosnoc_py.contact_problems.law import energy_gain, rebound
from nosnoc_py.contact_problems.projected import Solver
from nosnoc_py.contact_problems.rows import RowProblem, RowSolution
from nosnoc_py.simulation.time_stepping.dynamics import Dynamics, Inertia, problem_of
from nosnoc_py.simulation.time_stepping.options import Limits, TimeStepping
from nosnoc_py.simulation.time_stepping.rows import ContactRows
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.quaternions import unit_states
from nosnoc_py.tolerances import ENERGY

# Contacts that other contacts push together within a step are found by solving again, so many times at most.
ROUNDS = 20
# Contacts are looked after where gaps are below so many ways of the fastest one in a step, and expected to close
# where they miss it by less than this part of it.
MARGIN = 3.0
EXPECTED = 0.25


@dataclass(frozen=True, eq=False, kw_only=True)
class StepResult:
    """A step.

    Attributes
    ----------
    q, v : (n_q,), (n_v,)
        At its end.
    contacts : (m,) int
        Those that took part.
    impulses : (m, w)
    approach : (m,)
        Normal velocities before the step, or with which other contacts brought them to their impact.
    after : (m, w)
        Rates at the end, in the directions of the step.
    looked : float
        When gaps were looked at, in units of the step.
    penetration : float
        Deepest one there [m].
    sweeps : int
    residual : float
        Of the contact law [m/s].
    work : float
        Of all contact impulses on the mean velocity [J].
    gain : float
        Kinetic energy that the law of impacts adds in this step [J], beyond what the forces and the tolerance of the
        contact law account for; not positive where it dissipates.
    push : float
        Largest acceleration by all other forces [m/s^2].
    """

    q: np.ndarray
    v: np.ndarray
    y: np.ndarray
    contacts: np.ndarray
    impulses: np.ndarray
    approach: np.ndarray
    after: np.ndarray
    looked: float
    penetration: float
    sweeps: int
    residual: float
    work: float
    gain: float
    push: float


class Stepper:
    """Steps of one system; keeps the impulses of the last step as a guess for the next one."""

    def __init__(self, system: CLS, options: TimeStepping, limits: Limits, p: np.ndarray) -> None:
        frames = system.mechanics.frames_at(p)
        self.options, self.limits, self.rows = options, limits, ContactRows(system, frames)
        self.dynamics = Dynamics(system, options.weight)
        self._colours = Colours(self.rows.dofs, system.n_v, coupled=not self.dynamics.diagonal)
        directions = options.directions if options.friction == "polyhedral" else None
        projection = projection_of(self.rows.width - 1, directions)
        coulomb = directions is None or self.rows.width < 3
        newton = options.solver == "newton" and coulomb
        self._solver = Solver(projection, limits.tolerance, options.max_sweeps, newton)
        self._last = np.zeros((self.rows.count, self.rows.width))
        self._begun = False

    def step(self, h: float, x: np.ndarray, u: np.ndarray, p: np.ndarray) -> StepResult | None:
        """From a state over h seconds with a constant control; None from numbers that are not finite."""
        theta, reach = self._weights(h)
        q, v, y = self.dynamics.split(x)
        moved = self.dynamics.system.mechanics.moved
        slope = self.dynamics.first_order(x, u, p)
        looks_at, free, inertia = self.dynamics.free(h, (1.0 - theta) * h, x, u, p)
        gaps = self.rows.gaps(looks_at, p)
        directions = self.rows.directions(looks_at, p)
        if not all(np.isfinite(values).all() for values in (gaps, directions, free)):
            return None
        near = self._near(gaps, directions, v, free, reach)
        blow = self._blows(near, inertia, free)
        after, taking = blow.velocity[:-1], np.flatnonzero(blow.took_part)
        # An impact without rebound takes all of an approach at once, for in two parts friction would turn between them
        # and its impulse be another one. Positions still go on to where the bodies touch.
        carried = self._blows(near, inertia, free, stops=False).velocity[:-1] if blow.stopped else after
        contacts = near.contacts[taking]
        self._last = np.zeros_like(self._last)
        self._last[contacts] = blow.impulses[taking]
        middle = np.concatenate([q + 0.25 * h * moved(x, p, v + after), 0.5 * (v + after), y + 0.5 * h * slope])
        ahead = q + h * moved(middle, p, (1.0 - theta) * (v - after) + carried)
        return StepResult(
            q=unit_states(ahead, self.dynamics.system.unit_parts),
            v=after,
            y=y + h * self.dynamics.first_order(middle, u, p),
            contacts=contacts,
            impulses=blow.impulses[taking],
            approach=blow.approach[taking],
            after=np.einsum("mwk,mk->mw", near.rows[taking], blow.velocity[near.dofs[taking]]),
            looked=1.0 - theta,
            penetration=float(max(0.0, -gaps.min(initial=0.0))),
            sweeps=blow.sweeps,
            residual=blow.residual,
            work=blow.work,
            gain=blow.gain,
            push=float(np.abs(free - v).max(initial=0.0)) / h,
        )

    def _weights(self, h: float) -> tuple[float, float]:
        """Theta of the positions, and the seconds of v+ until gaps are looked at again.

        The first step looks at its beginning: a contact that is closed and hit there must not be passed by.
        """
        theta, first = self.options.weight, not self._begun
        self._begun = True
        return (1.0, (2.0 - theta) * h) if first else (theta, h)

    def _near(self, gaps: np.ndarray, directions: np.ndarray, v: np.ndarray, free: np.ndarray, reach: float) -> _Near:
        """Contacts that might close within the step, and those of them that are expected to."""
        normals, dofs = directions[:, 0], self.rows.dofs
        before, loose = (np.einsum("mk,mk->m", normals, np.append(rate, 1.0)[dofs]) for rate in (v, free))
        fastest = max(np.abs(rates).max(initial=0.0) for rates in (before, loose))
        near = np.flatnonzero(gaps <= MARGIN * reach * fastest)
        g, coming = gaps[near], np.minimum(before, loose)[near]
        expected = (g + reach * coming <= EXPECTED * reach * fastest) | (self._last[near, 0] > 0.0)
        return _Near(
            contacts=near,
            rows=directions[near],
            dofs=dofs[near],
            gaps=g,
            before=before[near],
            restitution=self.rows.restitution[near],
            friction=self.rows.friction[near],
            expected=expected,
            guess=self._last[near],
            reach=reach,
            slowest=self.limits.rest_velocity * np.sqrt(((normals * (dofs < self.rows.n_v))[near] ** 2).sum(axis=1)),
        )

    def _blows(self, near: _Near, inertia: Inertia, free: np.ndarray, stops: bool = True) -> _Blow:
        """Impulses of a step, impact after impact; without `stops` what does not bounce only slows down to a touch.

        A contact that the impulses of others close within the step bounces in a problem of its own, from the velocity
        after them, so that restitution is not lost. The last problem of too many of them knows no such contacts.
        """
        blow = _Blow.none(near, free)
        before = near.before
        may_bounce = (near.restitution > 0.0) & (near.gaps > self.limits.impact_velocity * near.reach)
        for number in range(ROUNDS):
            least, hit = least_velocity(
                self.options, near.restitution, near.gaps, before, near.reach, near.slowest, stops
            )
            waiting = may_bounce & ~hit if number < ROUNDS - 1 else np.zeros_like(hit)
            blow = self._solve(
                near, (near.expected | hit) & ~waiting, waiting, least, inertia, blow.meeting(hit, before), before
            )
            stopped = blow.stopped or bool((hit & (near.restitution == 0.0) & (near.gaps > 0.0)).any())
            blow = replace(blow, stopped=stopped)
            before = _normal_rates(near, blow.velocity)
            if not (waiting & (before < -near.gaps / near.reach - self.limits.tolerance)).any():
                break
            near = replace(near, guess=np.zeros_like(near.guess))
        return blow

    def _solve(
        self,
        near: _Near,
        chosen: np.ndarray,
        waiting: np.ndarray,
        least: np.ndarray,
        inertia: Inertia,
        blow: _Blow,
        before: np.ndarray,
    ) -> _Blow:
        """Solve for the chosen contacts, and again with those that they close, but for the waiting ones."""
        impulses, sweeps = near.guess, 0
        for _ in range(ROUNDS):
            k = np.flatnonzero(chosen)
            problem = problem_of(near.rows[k], near.dofs[k], inertia, blow.velocity[:-1], least[k], near.friction[k])
            solution = self._solver.solve(problem, self._colours(near.contacts[k]), impulses[k])
            sweeps += solution.sweeps
            impulses = np.zeros_like(impulses)
            impulses[k] = solution.impulses
            missed = ~chosen & ~waiting & (_normal_rates(near, solution.velocity) < least - self.limits.tolerance)
            if not missed.any():
                break
            chosen = chosen | missed
        pushed = np.abs(problem.rates(problem.free)[:, 0] - before[k])
        if self.options.scheme == "stewart_trinkle":  # which takes penetrations back at the price of a speed
            pushed += np.maximum(-near.gaps[k] / near.reach, 0.0)
        return blow.then(problem, solution, impulses, chosen, sweeps, pushed, self.limits.tolerance)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Near:
    """Contacts (m,) that might close: rows, gaps, normal velocities before the step, and what is expected of them."""

    contacts: np.ndarray
    rows: np.ndarray
    dofs: np.ndarray
    gaps: np.ndarray
    before: np.ndarray
    restitution: np.ndarray
    friction: np.ndarray
    expected: np.ndarray
    guess: np.ndarray
    reach: float
    slowest: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class _Blow:
    """What contacts have done so far in a step: impulses (m, w), velocity (n_v + 1,) and so on."""

    impulses: np.ndarray
    velocity: np.ndarray
    took_part: np.ndarray
    approach: np.ndarray
    sweeps: int = 0
    residual: float = 0.0
    work: float = 0.0
    gain: float = 0.0
    stopped: bool = False

    @classmethod
    def none(cls, near: _Near, free: np.ndarray) -> _Blow:
        """Nothing yet."""
        none = np.zeros(near.contacts.size, dtype=bool)
        impulses = np.zeros_like(near.guess)
        return cls(impulses=impulses, velocity=np.append(free, 1.0), took_part=none, approach=near.before)

    def meeting(self, hit: np.ndarray, rates: np.ndarray) -> _Blow:
        """With contacts that are hit at these rates next."""
        return replace(self, approach=np.where(hit, np.minimum(self.approach, rates), self.approach))

    def then(
        self,
        problem: RowProblem,
        solution: RowSolution,
        impulses: np.ndarray,
        chosen: np.ndarray,
        sweeps: int,
        pushed: np.ndarray,
        tolerance: float,
    ) -> _Blow:
        """With what a solution adds; `pushed` are changes of the normal rates that are not of the law of impacts."""
        after, free = problem.rates(solution.velocity), problem.rates(problem.free)
        # Relative to what is touched; where that moves by itself the body gets another energy.
        work = float(np.sum(energy_gain(solution.impulses, free, after)))
        surfaces = np.einsum("mwk,mk->mw", problem.rows, problem.dofs == problem.free.size - 1)
        # The rebound is that of the rates before the step, but the impulses meet the rates that forces have changed
        # within it; and what the contact law is missed by, times the impulses, is energy of the solver.
        missed = max(solution.residual, tolerance)
        own = float(solution.impulses[:, 0] @ pushed + missed * np.abs(solution.impulses).sum())
        # Only a rebound raises the energy; without one all that is left is what the solver leaves of the contact law.
        thrown = bool(((problem.least > 0.0) & (solution.impulses[:, 0] > 0.0)).any())
        fastest = max(float(np.abs(rates).max(initial=0.0)) for rates in (after, free))
        exchanged = fastest * float(np.abs(solution.impulses).sum())
        return _Blow(
            impulses=self.impulses + impulses,
            velocity=solution.velocity,
            took_part=self.took_part | chosen,
            approach=self.approach,
            stopped=self.stopped,
            sweeps=self.sweeps + sweeps,
            residual=float(np.maximum(self.residual, solution.residual)),
            work=self.work + work - float(np.sum(solution.impulses * surfaces)),
            gain=max(self.gain, work - own - ENERGY * exchanged) if thrown else self.gain,
        )


def _normal_rates(near: _Near, velocity: np.ndarray) -> np.ndarray:
    return np.einsum("mk,mk->m", near.rows[:, 0], velocity[near.dofs])


def least_velocity(
    options: TimeStepping,
    restitution: np.ndarray,
    gaps: np.ndarray,
    before: np.ndarray,
    reach: float,
    slowest: np.ndarray | float,
    stops: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """The normal velocity c (m,) that contacts may not fall below, see `TimeStepping`, and which of them are hit.

    `reach` stands for h; contacts that approach no faster than `slowest` (m,) are not hit. Those without a restitution
    stop when they are hit, or else come as far as they may within the step.
    """
    until_closed = -gaps / reach
    if options.scheme == "moreau_jean":
        until_closed = np.minimum(until_closed, 0.0)
    hit = (before < -slowest) & (gaps + reach * before <= 0.0)
    bounce = np.where(hit & (stops | (restitution > 0.0)), rebound(before, restitution, slowest), -np.inf)
    return np.maximum(until_closed, bounce), hit
