"""One step of the schemes of Moreau and Jean, or of Stewart and Trinkle.

1. Evaluate gaps, directions, the contact-free velocity and the matrix A (`dynamics`).
2. Choose the contacts that may close, and the lower bound c of their normal velocities (`lower_velocity_bound`).
3. Solve the contact problem; add contacts that its solution would close, and repeat. Contacts with restitution that
others push together bounce in a problem of their own (`_impact_sequence`).
4. Refuse the step if the rebound raises the kinetic energy by more than forces and tolerances explain.

References
----------
Moreau, Unilateral contact and dry friction in finite freedom dynamics (1988). Jean, The non-smooth contact dynamics
method (1999). Stewart and Trinkle, An implicit time-stepping scheme for rigid body dynamics with inelastic collisions
and Coulomb friction (1996).
"""

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

# Largest number of problems in a step for contacts that others push together.
ROUNDS = 20
# Contacts with gaps below MARGIN ways of the fastest one in a step are considered, and expected to close if they miss
# it by less than EXPECTED of that way.
MARGIN = 3.0
EXPECTED = 0.25


@dataclass(frozen=True, eq=False, kw_only=True)
class StepResult:
    """Result of a step; m contacts took part, each with w rows (normal, tangents).

    Attributes
    ----------
    q, v : (n_q,), (n_v,)
        State at its end.
    contacts : (m,) int
        Indices of the contacts.
    impulses : (m, w)
    approach : (m,)
        Normal velocities before the step, or those at the impact if other contacts have changed them.
    after : (m, w)
        Rates at the end, in the directions of the step.
    gap_time : float
        Time at which gaps were evaluated, in units of the step.
    penetration : float
        Deepest penetration at that time [m].
    sweeps : int
    residual : float
        Residual of the contact law [m/s].
    work : float
        Work of all contact impulses on the mean velocity [J].
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
    gap_time: float
    penetration: float
    sweeps: int
    residual: float
    work: float
    gain: float
    push: float


class Stepper:
    """Solver of the steps of one system. It keeps the impulses of the last step as the next guess."""

    def __init__(self, system: CLS, options: TimeStepping, limits: Limits, p: np.ndarray) -> None:
        # Functions of the system live as long as it: a simulation of many steps takes as long as writing them.
        self.frames, once = system.mechanics.frames_at(p), system.mechanics.once
        self.options, self.limits, self.rows, self.dynamics = options, limits, once(ContactRows), once(Dynamics)
        self._colours = Colours(self.rows.dofs, system.n_v, coupled=not self.dynamics.diagonal)
        directions = options.directions if options.friction == "polyhedral" else None
        projection = projection_of(self.rows.width - 1, directions)
        coulomb = directions is None or self.rows.width < 3
        newton = options.solver == "newton" and coulomb
        self._solver = Solver(projection, limits.tolerance, options.max_sweeps, newton)
        self._last = np.zeros((self.rows.count, self.rows.width))
        self._begun = False

    def step(self, h: float, x: np.ndarray, u: np.ndarray, p: np.ndarray) -> StepResult | None:
        """Take a step of h seconds with constant control; None if numbers are not finite."""
        theta, reach = self._weights(h)
        q, v, y = self.dynamics.split(x)
        moved = self.dynamics.system.mechanics.moved
        slope = self.dynamics.first_order(x, u, p)
        # Gaps are evaluated at q + (1 - theta) h v, the part of the way that does not depend on v+.
        gap_state, free, inertia = self.dynamics.free(self.options.weight * h, h, (1.0 - theta) * h, x, u, p)
        gaps = self.rows.gaps(gap_state, p)
        directions = self.rows.directions(gap_state, p)
        if not all(np.isfinite(values).all() for values in (gaps, directions, free)):
            return None
        near = self._near(gaps, directions, v, free, reach)
        result = self._impact_sequence(near, inertia, free)
        after, taking = result.velocity[:-1], np.flatnonzero(result.took_part)
        # An impact without rebound removes the whole approach at once: in two parts, friction could turn in between and
        # the impulse would differ. Positions still continue until the bodies touch.
        loaded_now = self._impact_sequence(near, inertia, free, stops=False).velocity[:-1] if result.stopped else after
        contacts = near.contacts[taking]
        self._last = np.zeros_like(self._last)
        self._last[contacts] = result.impulses[taking]
        # Midpoint in time, with the mean velocity.
        middle = np.concatenate([q + 0.25 * h * moved(x, p, v + after), 0.5 * (v + after), y + 0.5 * h * slope])
        # q+ = q + h ((1 - theta) v + theta v+), the theta-method, unless an impact was stopped before the bodies touch
        # (`loaded_now`).
        ahead = q + h * moved(middle, p, (1.0 - theta) * (v - after) + loaded_now)
        return StepResult(
            q=unit_states(ahead, self.dynamics.system.unit_parts),
            v=after,
            y=y + h * self.dynamics.first_order(middle, u, p),
            contacts=contacts,
            impulses=result.impulses[taking],
            approach=result.approach[taking],
            after=np.einsum("mwk,mk->mw", near.rows[taking], result.velocity[near.dofs[taking]]),
            gap_time=1.0 - theta,
            penetration=float(max(0.0, -gaps.min(initial=0.0))),
            sweeps=result.sweeps,
            residual=result.residual,
            work=result.work,
            gain=result.gain,
            push=float(np.abs(free - v).max(initial=0.0)) / h,
        )

    def _weights(self, h: float) -> tuple[float, float]:
        """Return theta of the positions, and the time of v+ [s] until gaps are evaluated again.

        The first step evaluates them at its start: a contact that is closed and hit there must not be missed.
        """
        theta, first = self.options.weight, not self._begun
        self._begun = True
        # From one evaluation of the gaps to the next, contacts move by h v+ exactly. In the first step the old point
        # is q itself, and theta = 1 makes this way (2 - theta) h.
        return (1.0, (2.0 - theta) * h) if first else (theta, h)

    def _near(
        self, gaps: np.ndarray, directions: np.ndarray, v: np.ndarray, free: np.ndarray, reach: float
    ) -> _NearContacts:
        """Return the contacts that may close within the step, and those of them that are expected to."""
        normals, dofs = directions[:, 0], self.rows.dofs
        before, free_rates = (np.einsum("mk,mk->m", normals, np.append(rate, 1.0)[dofs]) for rate in (v, free))
        fastest = max(np.abs(rates).max(initial=0.0) for rates in (before, free_rates))
        near = np.flatnonzero(gaps <= MARGIN * reach * fastest)
        g, slowest_rate = gaps[near], np.minimum(before, free_rates)[near]
        # Too few expected contacts cost another round, too many a larger problem; the result is the same.
        expected = (g + reach * slowest_rate <= EXPECTED * reach * fastest) | (self._last[near, 0] > 0.0)
        return _NearContacts(
            contacts=near,
            rows=directions[near],
            dofs=dofs[near],
            gaps=g,
            before=before[near],
            restitution=self.frames.restitution[near],
            friction=self.frames.friction[near],
            expected=expected,
            guess=self._last[near],
            reach=reach,
            slowest=self.limits.rest_velocity * np.sqrt(((normals * (dofs < self.rows.n_v))[near] ** 2).sum(axis=1)),
        )

    def _impact_sequence(
        self, near: _NearContacts, inertia: Inertia, free: np.ndarray, stops: bool = True
    ) -> _ImpulseResult:
        """Return the impulses of a step, impact after impact.

        With `stops=False` contacts without restitution only slow down until they touch. A contact with restitution that
        the impulses of others close within the step bounces in a problem of its own, from the velocity after them, so
        that its restitution is not lost. The last of ROUNDS problems has no such contacts.
        """
        result = _ImpulseResult.none(near, free)
        before = near.before
        # Contacts that touch already are part of the first problem; those at a distance may be hit later in the step.
        may_bounce = (near.restitution > 0.0) & (near.gaps > self.limits.impact_velocity * near.reach)
        for number in range(ROUNDS):
            least, hit = lower_velocity_bound(
                self.options, near.restitution, near.gaps, before, near.reach, near.slowest, stops
            )
            waiting = may_bounce & ~hit if number < ROUNDS - 1 else np.zeros_like(hit)
            result = self._solve(
                near,
                (near.expected | hit) & ~waiting,
                waiting,
                least,
                inertia,
                result.with_approach(hit, before),
                before,
            )
            stopped = result.stopped or bool((hit & (near.restitution == 0.0) & (near.gaps > 0.0)).any())
            result = replace(result, stopped=stopped)
            before = _normal_rates(near, result.velocity)
            if not (waiting & (before < -near.gaps / near.reach - self.limits.tolerance)).any():
                break
            # The impulses so far have been applied: the next problem starts from the velocity after them.
            near = replace(near, guess=np.zeros_like(near.guess))
        return result

    def _solve(
        self,
        near: _NearContacts,
        chosen: np.ndarray,
        waiting: np.ndarray,
        least: np.ndarray,
        inertia: Inertia,
        result: _ImpulseResult,
        before: np.ndarray,
    ) -> _ImpulseResult:
        """Solve for the active set.

        Add contacts that the solution would penetrate, and repeat (except deferred impacts).
        """
        impulses, sweeps = near.guess, 0
        for _ in range(ROUNDS):
            k = np.flatnonzero(chosen)
            problem = problem_of(near.rows[k], near.dofs[k], inertia, result.velocity[:-1], least[k], near.friction[k])
            solution = self._solver.solve(problem, self._colours(near.contacts[k]), impulses[k])
            sweeps += solution.sweeps
            impulses = np.zeros_like(impulses)
            impulses[k] = solution.impulses
            missed = ~chosen & ~waiting & (_normal_rates(near, solution.velocity) < least - self.limits.tolerance)
            if not missed.any():
                break
            # The active set only grows within a step, so that the loop ends.
            chosen = chosen | missed
        pushed = np.abs(problem.rates(problem.free)[:, 0] - before[k])
        if self.options.scheme == "stewart_trinkle":  # which takes penetrations back at the price of a speed
            pushed += np.maximum(-near.gaps[k] / near.reach, 0.0)
        return result.with_solution(problem, solution, impulses, chosen, sweeps, pushed, self.limits.tolerance)


@dataclass(frozen=True, eq=False, kw_only=True)
class _NearContacts:
    """Contacts (m,) that may close: rows, gaps, normal velocities before the step, and whether they are expected to."""

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
class _ImpulseResult:
    """Impulses (m, w), velocity (n_v + 1,) and measures of the problems solved so far in a step."""

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
    def none(cls, near: _NearContacts, free: np.ndarray) -> _ImpulseResult:
        """Return the result before any problem."""
        none = np.zeros(near.contacts.size, dtype=bool)
        impulses = np.zeros_like(near.guess)
        return cls(impulses=impulses, velocity=np.append(free, 1.0), took_part=none, approach=near.before)

    def with_approach(self, hit: np.ndarray, rates: np.ndarray) -> _ImpulseResult:
        """Return the result with contacts that are hit at these rates next."""
        return replace(self, approach=np.where(hit, np.minimum(self.approach, rates), self.approach))

    def with_solution(
        self,
        problem: RowProblem,
        solution: RowSolution,
        impulses: np.ndarray,
        chosen: np.ndarray,
        sweeps: int,
        pushed: np.ndarray,
        tolerance: float,
    ) -> _ImpulseResult:
        """Return the result with a solution added.

        `pushed` are changes of the normal rates by other causes than impacts.
        """
        after, free = problem.rates(solution.velocity), problem.rates(problem.free)
        # Work relative to the touched surface; a moving surface adds the energy of the body in `surfaces`.
        work = float(np.sum(energy_gain(solution.impulses, free, after)))
        surfaces = np.einsum("mwk,mk->mw", problem.rows, problem.dofs == problem.free.size - 1)
        # The rebound uses the rates before the step, but impulses act on rates that forces have changed within it. The
        # residual of the contact law times the impulses is energy of the solver.
        missed = max(solution.residual, tolerance)
        own = float(solution.impulses[:, 0] @ pushed + missed * np.abs(solution.impulses).sum())
        # Only a rebound can raise the energy; without one the rest is the residual of the solver.
        rebounds = bool(((problem.least > 0.0) & (solution.impulses[:, 0] > 0.0)).any())
        fastest = max(float(np.abs(rates).max(initial=0.0)) for rates in (after, free))
        exchanged = fastest * float(np.abs(solution.impulses).sum())
        return _ImpulseResult(
            impulses=self.impulses + impulses,
            velocity=solution.velocity,
            took_part=self.took_part | chosen,
            approach=self.approach,
            stopped=self.stopped,
            sweeps=self.sweeps + sweeps,
            residual=float(np.maximum(self.residual, solution.residual)),
            work=self.work + work - float(np.sum(solution.impulses * surfaces)),
            gain=max(self.gain, work - own - ENERGY * exchanged) if rebounds else self.gain,
        )


def _normal_rates(near: _NearContacts, velocity: np.ndarray) -> np.ndarray:
    """Return the normal velocities (m,) of the contacts."""
    return np.einsum("mk,mk->m", near.rows[:, 0], velocity[near.dofs])


def lower_velocity_bound(
    options: TimeStepping,
    restitution: np.ndarray,
    gaps: np.ndarray,
    before: np.ndarray,
    reach: float,
    slowest: np.ndarray | float,
    stops: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower bound c (m,) of normal velocities, see `TimeStepping`, and which contacts are hit.

    `reach` stands for h; contacts that approach no faster than `slowest` (m,) are not hit. Contacts without restitution
    stop when they are hit, or else come as far as they may within the step.
    """
    until_closed = -gaps / reach
    if options.scheme == "moreau_jean":
        # Moreau and Jean do not push penetrating bodies apart; Stewart and Trinkle do, within one step.
        until_closed = np.minimum(until_closed, 0.0)
    # A contact is hit if it closes within the step at the velocity before it.
    hit = (before < -slowest) & (gaps + reach * before <= 0.0)
    bounce = np.where(hit & (stops | (restitution > 0.0)), rebound(before, restitution, slowest), -np.inf)
    return np.maximum(until_closed, bounce), hit
