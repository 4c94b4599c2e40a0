"""One step of the schemes of Moreau and Jean, or of Stewart and Trinkle.

1. Evaluate gaps, directions, the contact-free velocity and the matrix A (`dynamics`).
2. Choose the contacts that may close, and the lower bound c of their normal velocities (`lower_velocity_bound`).
3. Solve the contact problem; add contacts that its solution would close, and repeat. Contacts with restitution that
others push together bounce in a problem of their own (`_impact_sequence`).
4. Refuse the step if the rebound raises the kinetic energy by more than forces and tolerances explain.

The functions are those of the compiled steps, too (`steps`).

References
----------
Moreau, Unilateral contact and dry friction in finite freedom dynamics (1988). Jean, The non-smooth contact dynamics
method (1999). Stewart and Trinkle, An implicit time-stepping scheme for rigid body dynamics with inelastic collisions
and Coulomb friction (1996).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.contact_problems.colours import Colours, coloured
from nosnoc_py.contact_problems.cones import corners_of
from nosnoc_py.contact_problems.law import energy_gain, rebound_of_numbers
from nosnoc_py.contact_problems.projected import Projected, solve
from nosnoc_py.contact_problems.rows import RowProblem, RowSolution, normal_rates_of, rates_of
from nosnoc_py.simulation.time_stepping.dynamics import (
    StepModel,
    force_and_inverse,
    look,
    problem_of,
    put_end,
    rows_at,
    velocity_change,
)
from nosnoc_py.simulation.time_stepping.options import Limits, TimeStepping
from nosnoc_py.tolerances import ENERGY

Array = np.ndarray
# Largest number of problems in a step for contacts that others push together.
ROUNDS = 20
# Contacts with gaps below NEAR_GAPS ways of the fastest one in a step are considered, and expected to close if they
# miss it by less than EXPECTED_CLOSINGS of that way.
NEAR_GAPS = 3.0
# A slip below this fraction of what forces would make of it within a step is none; impulses this close to their cone
# have reached it.
STILL, AT_CONE = 1e-2, 1e-4
EXPECTED_CLOSINGS = 0.25


class SteppingRule(NamedTuple):
    """What all steps of a simulation share: the length h, and options with their limits in numbers.

    `takes_back`: penetrations are taken back within a step (Stewart and Trinkle).
    """

    h: float
    theta: float
    takes_back: bool
    rest_velocity: float
    impact_velocity: float
    projected: Projected


class StepResult(NamedTuple):
    """Result of a step but for the state; m contacts took part, each with w rows (normal, tangents).

    Attributes
    ----------
    known : bool
        False if numbers are not finite.
    contacts : (m,) int
        Indices of the contacts.
    impulses : (m, w)
    approach : (m,)
        Normal velocities before the step, or those at the impact if other contacts have changed them.
    after : (m, w)
        Rates at the end, in the directions of the step.
    penetration : float
        Deepest penetration where gaps are evaluated [m].
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

    known: bool
    contacts: Array
    impulses: Array
    approach: Array
    after: Array
    penetration: float
    sweeps: int
    residual: float
    work: float
    gain: float
    push: float


class _NearContacts(NamedTuple):
    """Contacts (m,) that may close: rows, gaps, normal velocities before the step, and whether they are expected to."""

    contacts: Array
    rows: Array
    dofs: Array
    gaps: Array
    before: Array
    restitution: Array
    friction: Array
    expected: Array
    guess: Array
    slowest: Array
    reach: float


class _Impulses(NamedTuple):
    """Impulses (m, w), velocity (n_v + 1,) and measures of the problems solved so far in a step."""

    impulses: Array
    velocity: Array
    took_part: Array
    approach: Array
    sweeps: int
    residual: float
    work: float
    gain: float
    stopped: bool


def scheme_of(method: TimeStepping, limits: Limits, h: float, width: int) -> SteppingRule:
    """Return the scheme for contacts with `width` rows."""
    directions = method.directions if method.friction == "polyhedral" and width == 3 else None
    newton = method.solver == "newton" and directions is None
    projected = Projected(float(limits.tolerance), method.max_sweeps, newton, corners_of(directions))
    takes_back = method.scheme == "stewart_trinkle"
    velocities = float(limits.rest_velocity), float(limits.impact_velocity)
    return SteppingRule(float(h), float(method.weight), takes_back, *velocities, projected)


@jitable
def weight_of(scheme: SteppingRule, begun: bool) -> float:
    """Return theta of the positions: the first step evaluates gaps at its start.

    A contact that is closed and hit there must not be missed.
    """
    return scheme.theta if begun else 1.0


@jitable
def step(model: StepModel, scheme: SteppingRule, last: Array, begun: bool, x: Array, u: Array) -> StepResult:
    """Take a step with constant control from impulses `last` (n_c, w) as a guess; the state is put into the model."""
    sizes, h, theta = model.sizes, scheme.h, weight_of(scheme, begun)
    # From one evaluation of the gaps to the next, contacts move by h v+ exactly. In the first step the old point is q
    # itself, and theta = 1 makes this way (2 - theta) h.
    reach = h if begun else (2.0 - scheme.theta) * h
    # Gaps are evaluated at q + (1 - theta) h v, the part of the way that does not depend on v+. The force is evaluated
    # theta h ahead at the present velocities; A adds the effect of their change.
    look(model, x, u, (1.0 - theta) * h, scheme.theta * h)
    gaps, rows, v = model.out[: sizes.n_c], rows_at(model), x[sizes.n_q : sizes.n_q + sizes.n_v]
    force, inverse = force_and_inverse(model, scheme.theta * h)
    change = velocity_change(inverse, h * force)
    free = np.append(v + change, 1.0)
    known = np.isfinite(gaps).all() and np.isfinite(rows).all() and np.isfinite(free).all()
    if not known:
        free, inverse = np.zeros(sizes.n_v + 1), np.zeros_like(inverse)
    friction = _sticking(model, rows, np.append(v, 1.0), np.append(change, 0.0), last)
    near = _near(model, scheme, gaps, rows, np.append(v, 1.0), free, last, reach, known, friction)
    result = _impact_sequence(scheme, model.colours, near, inverse, free, True)
    after, loaded = result.velocity[:-1], result.velocity[:-1]
    # An impact without rebound removes the whole approach at once: in two parts, friction could turn in between and the
    # impulse would differ. Positions still continue until the bodies touch.
    if result.stopped:
        loaded = _impact_sequence(scheme, model.colours, near, inverse, free, False).velocity[:-1]
    put_end(model, x, u, after, loaded, h, theta)
    taking = np.flatnonzero(result.took_part)
    return StepResult(
        bool(known and np.isfinite(model.state).all()),
        near.contacts[taking],
        result.impulses[taking],
        result.approach[taking],
        rates_of(near.rows[taking], near.dofs[taking], result.velocity),
        -min(0.0, _least(gaps)),
        result.sweeps,
        result.residual,
        result.work,
        result.gain,
        _largest(change) / h,
    )


@jitable
def _largest(values: Array) -> float:
    """Return the largest size of some numbers, 0 for none."""
    return float(np.abs(values).max()) if values.size else 0.0


@jitable
def _least(values: Array) -> float:
    """Return the least of some numbers, 0 for none."""
    return float(values.min()) if values.size else 0.0


@jitable
def _sticking(model: StepModel, rows: Array, v: Array, change: Array, last: Array) -> Array:
    """Return the coefficients of friction (n_c,) of a step: those of contacts that stick where one does.

    A contact sticks if its slip is small beside what forces would make of it within the step, unless its last impulse
    has reached its cone: then it has begun to slip.
    """
    friction = model.friction.copy()
    if model.sticking.size:
        slips, pulls = rates_of(rows, model.dofs, v), rates_of(rows, model.dofs, change)
        for c in range(friction.size):
            slip, pull, held = 0.0, 0.0, 0.0
            for k in range(1, rows.shape[1]):
                slip, pull, held = slip + slips[c, k] ** 2, pull + pulls[c, k] ** 2, held + last[c, k] ** 2
            begins = held >= ((1.0 - AT_CONE) * model.sticking[c] * last[c, 0]) ** 2 > 0.0
            if slip <= STILL**2 * pull and not begins:
                friction[c] = max(friction[c], model.sticking[c])
    return friction


@jitable
def _near(
    model: StepModel,
    scheme: SteppingRule,
    gaps: Array,
    rows: Array,
    v: Array,
    free: Array,
    last: Array,
    reach: float,
    known: bool,
    friction: Array,
) -> _NearContacts:
    """Return the contacts that may close within the step, and those of them that are expected to."""
    before, then = normal_rates_of(rows, model.dofs, v), normal_rates_of(rows, model.dofs, free)
    fastest = max(_largest(before), _largest(then)) if known else -np.inf
    near = np.flatnonzero(gaps <= NEAR_GAPS * reach * fastest)
    g, slower, dofs, own = gaps[near], np.minimum(before, then)[near], model.dofs[near], rows[near]
    # Too few expected contacts cost another round, too many a larger problem; the result is the same.
    expected = (g + reach * slower <= EXPECTED_CLOSINGS * reach * fastest) | (last[near, 0] > 0.0)
    steepness = np.sqrt(((own[:, 0] * (dofs < free.size - 1)) ** 2).sum(axis=1))
    return _NearContacts(
        near,
        own,
        dofs,
        g,
        before[near],
        model.restitution[near],
        friction[near],
        expected,
        last[near],
        scheme.rest_velocity * steepness,
        reach,
    )


@jitable
def _impact_sequence(
    scheme: SteppingRule, colours: Colours, near: _NearContacts, inverse: Array, free: Array, stops: bool
) -> _Impulses:
    """Return the impulses of a step, impact after impact.

    Without `stops` contacts without restitution only slow down until they touch. A contact with restitution that the
    impulses of others close within the step bounces in a problem of its own, from the velocity after them, so that its
    restitution is not lost. The last of ROUNDS problems has no such contacts.
    """
    none = np.zeros(near.contacts.size, dtype=np.bool_)
    result = _Impulses(np.zeros_like(near.guess), free, none, near.before, 0, 0.0, 0.0, 0.0, False)
    before, guess = near.before, near.guess
    # Contacts that touch already are part of the first problem; those at a distance may be hit later in the step.
    may_bounce = (near.restitution > 0.0) & (near.gaps > scheme.impact_velocity * near.reach)
    for number in range(ROUNDS):
        least, hit = lower_velocity_bound(
            scheme.takes_back, near.restitution, near.gaps, before, near.reach, near.slowest, stops
        )
        waiting = may_bounce & ~hit if number < ROUNDS - 1 else none
        chosen = (near.expected | hit) & ~waiting
        # Contacts that are hit at these rates next.
        approach = np.where(hit, np.minimum(result.approach, before), result.approach)
        stopped = result.stopped or (hit & (near.restitution == 0.0) & (near.gaps > 0.0)).any()
        result = _solved(
            scheme, colours, near, chosen, waiting, least, inverse, result, approach, before, guess, bool(stopped)
        )
        before = normal_rates_of(near.rows, near.dofs, result.velocity)
        if not (waiting & (before < -near.gaps / near.reach - scheme.projected.tolerance)).any():
            break
        # The impulses so far have been applied: the next problem starts from the velocity after them.
        guess = np.zeros_like(guess)
    return result


@jitable
def _solved(
    scheme: SteppingRule,
    colours: Colours,
    near: _NearContacts,
    chosen: Array,
    waiting: Array,
    least: Array,
    inverse: Array,
    result: _Impulses,
    approach: Array,
    before: Array,
    guess: Array,
    stopped: bool,
) -> _Impulses:
    """Solve for the active set.

    Add contacts that the solution would penetrate, and repeat (except deferred impacts).
    """
    impulses, sweeps, tolerance = guess, 0, scheme.projected.tolerance
    for _ in range(ROUNDS):
        k = np.flatnonzero(chosen)
        problem = problem_of(near.rows[k], near.dofs[k], inverse, result.velocity, least[k], near.friction[k])
        order = coloured(colours, near.contacts[k])
        solution = solve(problem, order.order, order.ends, impulses[k], scheme.projected)
        sweeps += solution.sweeps
        impulses = np.zeros_like(impulses)
        impulses[k] = solution.impulses
        rates = normal_rates_of(near.rows, near.dofs, solution.velocity)
        missed = ~chosen & ~waiting & (rates < least - tolerance)
        if not missed.any():
            break
        # The active set only grows within a step, so that the loop ends.
        chosen = chosen | missed
    pushed = np.abs(normal_rates_of(problem.rows, problem.dofs, problem.free) - before[k])
    if scheme.takes_back:  # penetrations are taken back at the price of a speed
        pushed = pushed + np.maximum(-near.gaps[k] / near.reach, 0.0)
    work, gain = _energy(problem, solution, pushed, tolerance)
    return _Impulses(
        result.impulses + impulses,
        solution.velocity,
        result.took_part | chosen,
        approach,
        result.sweeps + sweeps,
        np.nan if np.isnan(solution.residual) else max(result.residual, solution.residual),
        result.work + work,
        max(result.gain, gain),
        stopped,
    )


@jitable
def _energy(problem: RowProblem, solution: RowSolution, pushed: Array, tolerance: float) -> tuple[float, float]:
    """Return the work of impulses, and the energy that the law of impacts adds.

    `pushed` are changes of the normal rates by other causes than impacts.
    """
    impulses = solution.impulses
    if impulses.size == 0:
        return 0.0, 0.0
    after = rates_of(problem.rows, problem.dofs, solution.velocity)
    free = rates_of(problem.rows, problem.dofs, problem.free)
    # Work relative to the touched surface; a moving surface adds the energy of the body at its rates.
    moving = np.zeros(problem.free.size)
    moving[-1] = 1.0
    work = energy_gain(impulses.reshape(-1), free.reshape(-1), after.reshape(-1))
    surfaces = np.sum(impulses * rates_of(problem.rows, problem.dofs, moving))
    # The rebound uses the rates before the step, but impulses act on rates that forces have changed within it. The
    # residual of the contact law times the impulses is energy of the solver.
    size = np.sum(np.abs(impulses))
    own = np.sum(impulses[:, 0] * pushed) + max(solution.residual, tolerance) * size
    # Only a rebound can raise the energy; without one the rest is the residual of the solver.
    rebounds = ((problem.least > 0.0) & (impulses[:, 0] > 0.0)).any()
    exchanged = max(_largest(after), _largest(free)) * size
    return float(work - surfaces), float(work - own - ENERGY * exchanged) if rebounds else 0.0


@jitable
def lower_velocity_bound(
    takes_back: bool,
    restitution: Array,
    gaps: Array,
    before: Array,
    reach: float,
    slowest: Array,
    stops: bool,
) -> tuple[Array, Array]:
    """Return the lower bound c (m,) of normal velocities, see `TimeStepping`, and which contacts are hit.

    `reach` stands for h; contacts that approach no faster than `slowest` (m,) are not hit. Contacts without restitution
    stop when they are hit, or else come as far as they may within the step.
    """
    until_closed = -gaps / reach
    if not takes_back:
        # Moreau and Jean do not push penetrating bodies apart; Stewart and Trinkle do, within one step.
        until_closed = np.minimum(until_closed, 0.0)
    # A contact is hit if it closes within the step at the velocity before it.
    hit = (before < -slowest) & (gaps + reach * before <= 0.0)
    bounce = np.where(hit & (stops | (restitution > 0.0)), rebound_of_numbers(before, restitution, slowest), -np.inf)
    return np.maximum(until_closed, bounce), hit
