"""Robust plans: feedforward controls and feedback that hold for all scenarios of what is uncertain.

1. The problem is solved for the middle of the distribution (`nosnoc_py.solve`), and a law tracks this plan.
2. Scenarios stand for the distribution. Each is simulated with the law, event by event, in its own order of contacts.
3. Derivatives through the events give models of all scenarios; a quadratic program lowers their risk within a trust
   region (`policy_step`). A step counts if the simulations confirm it.
4. Gains are computed anew about the new motion; steps 3 and 4 alternate while the risk falls.
5. Draws that miss a constraint become further scenarios.

The law is one feedback for all scenarios: controls are common until states differ, and branches of different contact
orders return to one motion. Zhang et al. (2026, arXiv 2602.06864) give every branch its own controls for given orders
of contacts; here the orders may differ, and what is optimised is the law that acts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from nosnoc_py.control.measured import admissible
from nosnoc_py.control.policy_step import Risk, step_of
from nosnoc_py.control.requirements import ROUNDING, Requirements
from nosnoc_py.control.scenarios import LoopRows, LoopRun, ScenarioLoops
from nosnoc_py.control.success import closed_loop, excesses_of
from nosnoc_py.control.tracking import TrackingLaw, Weights, default_weights, law_about, track
from nosnoc_py.errors import OptionError, check_whole, unknown_name
from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.statements import refined_objective
from nosnoc_py.solution import RobustSolution, Scenario, Solution, Trajectory
from nosnoc_py.status import Status, asked_to_stop
from nosnoc_py.uncertain import MEASURES, Uncertain

Array = np.ndarray
# Of every effort: iterations, rounds of gains and of further scenarios, and draws that are tested after each.
EFFORTS = {"quick": (8, 1, 16), "normal": (20, 3, 32), "thorough": (50, 6, 64)}
# Penalty of violations, as a multiple of the objective of scenarios, the factor by which it grows while scenarios miss,
# and how often.
PENALTY, HEAVIER, HEAVIEST = 10.0, 10.0, 2
# Trust region: its first radius and its limits as fractions of the range of the controls; fraction of the predicted
# decrease that a step needs, and from which the region grows.
RADIUS, LEAST_RADIUS, MOST_RADIUS = 0.1, 1e-4, 1.0
ACCEPTED, TRUSTED = 0.1, 0.7
SMALLER, LARGER = 0.35, 2.0
# Relative decrease of the risk below which a round of steps ends.
SMALL = 1e-3
# Weights of controls in the feedback, relative to those of `ns.track`, that are tried: the smaller they are, the
# harder the feedback works.
EFFORT_WEIGHTS = (1.0, 1e-1, 1e-2, 1e-3)
# Reach of references beyond impacts, in sampling periods: it has to cover how early or late impacts of scenarios are.
REACH = 15.0
# Largest violation of scenarios, relative to the size of the constraint, with which the whole distribution is planned
# for at once; factor of a narrower one, and its least width.
FAR_OFF, NARROWER, NARROWEST = 2.0, 0.5, 0.1
# Steps after which gains are compared.
LOOK_AHEAD = 2
# Weight of deviations on the way and of states that no constraint concerns, relative to those of `ns.track`.
ON_THE_WAY, UNCONSTRAINED = 1e-4, 1e-6
# Largest number of draws that become scenarios at a time.
MORE_SCENARIOS = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class LawPlan:
    """A law with the closed loops of its scenarios and their risk."""

    law: TrackingLaw
    runs: tuple[LoopRun, ...]
    risk: float


@dataclass(eq=False, kw_only=True)
class RobustWork:
    """What a search has done, its limits, and its best plan so far: shared by all searches of one call.

    Attributes
    ----------
    deadline : float
        Time of the monotonic clock [s].
    callback : function of a `LawPlan`, optional
        Called after every step; returns `ns.Stop` to end the work.
    steps : int
    stopped : Status, optional
        What ended the work early.
    best : (RobustSearch, LawPlan), optional
        For Ctrl-C: nothing is lost.
    """

    deadline: float
    callback: Callable[[Any], Any] | None = None
    steps: int = 0
    stopped: Status | None = None
    best: tuple[RobustSearch, LawPlan] | None = None

    @property
    def over(self) -> bool:
        """True if a limit or a callback ends the search."""
        if self.stopped is None and time.monotonic() > self.deadline:
            self.stopped = Status.TIME_LIMIT
        return self.stopped is not None

    def count(self, search: RobustSearch, plan: LawPlan) -> None:
        """Count a step, keep the plan, and ask the callback."""
        self.steps, self.best = self.steps + 1, (search, plan)
        if self.callback is not None and self.stopped is None:
            self.stopped = asked_to_stop(self.callback, plan)


@dataclass(frozen=True, eq=False, kw_only=True)
class RobustSearch:
    """Search for a robust plan of some scenarios: steps of the feedforward controls, and gains.

    Attributes
    ----------
    loops : ScenarioLoops
    values : (S, quantities)
        Values of what is uncertain in the scenarios.
    risk : Risk
    iterations : int
        Largest number of steps between two changes of gains or scenarios.
    work : RobustWork
    """

    loops: ScenarioLoops
    values: Array
    risk: Risk
    iterations: int
    work: RobustWork

    def plan(self, law: TrackingLaw) -> LawPlan:
        """Return a law with its closed loops."""
        runs = tuple(self.loops.runs(law))
        return LawPlan(law=law, runs=runs, risk=self.risk.of(self.risk.losses(runs, self.rows(law))))

    def rows(self, law: TrackingLaw) -> LoopRows:
        """Return the rows of a closed loop at the samples of a law."""
        return self.loops.rows(len(law.times))

    def heavier(self) -> RobustSearch:
        """Return the search with a larger penalty of violations."""
        return replace(self, risk=replace(self.risk, penalty=HEAVIER * self.risk.penalty))

    def missed(self, plan: LawPlan, uncertain: Uncertain, values: Array) -> Array:
        """Return the largest relative violation of draws (n,); 0 if all constraints hold."""
        loops = self.loops
        found = excesses_of(plan.law, loops.required, uncertain, values, loops.starts[0], loops.workers)
        over = found.max(axis=(1, 2), initial=-np.inf)
        return np.where(over > ROUNDING, over, 0.0)

    def with_draws(self, plan: LawPlan, uncertain: Uncertain, values: Array, missed: Array) -> RobustSearch:
        """Return the search with the worst of some draws as further scenarios."""
        chosen = [i for i in np.argsort(-missed)[:MORE_SCENARIOS] if missed[i] > 0.0]
        if not chosen:
            return self
        more = self.loops.with_more(*_cases(uncertain, values[chosen], self.loops.starts[0], plan.law))
        risk = replace(self.risk, weights=more.weights)
        return replace(self, loops=more, risk=risk, values=np.vstack([self.values, values[chosen]]))

    def improved(self, plan: LawPlan, steps: int | None = None) -> LawPlan:
        """Return the plan after steps of its feedforward controls, while these lower the risk."""
        span = np.tile(_span(plan.law), len(plan.law.controls))
        radius, rows, multipliers = RADIUS, self.rows(plan.law), self.risk.weights
        models = None
        last = self.work.steps + (self.iterations if steps is None else steps)
        while not self.work.over and radius >= LEAST_RADIUS and self.work.steps < last:
            models = self.loops.models(plan.law, plan.runs) if models is None else models
            if all(model is None for model in models):
                break
            v = (plan.law.controls - plan.law.corrections).ravel()
            limits = [np.tile(side, len(plan.law.controls)) - v for side in (plan.law.lower, plan.law.upper)]
            bounds = (np.clip(limits[0], -radius * span, 0.0), np.clip(limits[1], 0.0, radius * span))
            step = step_of(plan.runs, models, rows, self.risk, bounds, span, multipliers)
            self.work.count(self, plan)
            if not step.decrease > SMALL * abs(plan.risk):
                break
            moved = self.plan(plan.law.with_feedforward((v + step.change).reshape(plan.law.controls.shape)))
            gained = plan.risk - moved.risk
            if not gained > max(ACCEPTED * step.decrease, 0.0):
                radius *= SMALLER
                continue
            radius = min(MOST_RADIUS, radius * LARGER) if gained > TRUSTED * step.decrease else radius
            plan, models, multipliers = moved, None, step.multipliers
        return plan

    def solved(self, plan: LawPlan) -> tuple[RobustSearch, LawPlan]:
        """Return the improved plan, with larger penalties while scenarios miss a constraint, and its search."""
        search, plan = self, self.improved(plan)
        for _ in range(HEAVIEST):
            if search.work.over or not search.missing(plan):
                break
            search = search.heavier()
            plan = search.improved(search.plan(plan.law))
        return search, plan

    def of_gains(self, plan: LawPlan) -> LawPlan:
        """Return the best of the laws about the motion of a plan, its own one included, for these scenarios."""
        motion = plan.runs[0].motion
        laws = [plan.law, *_laws(plan.law, motion, motion, self.loops.required)]
        return self.most_promising([self.plan(law) for law in laws])

    def most_promising(self, plans: Sequence[LawPlan]) -> LawPlan:
        """Return the best of several plans after a few steps each: gains that begin better may end worse."""
        return min((self.improved(plan, LOOK_AHEAD) for plan in plans), key=_risk)

    def worst(self, plan: LawPlan) -> float:
        """Return the largest relative violation of a scenario; infinite if a simulation stopped early."""
        rows = self.rows(plan.law)
        return max(np.inf if run.lost else rows.violations(run.rows, 0.0).max(initial=0.0) for run in plan.runs)

    def missing(self, plan: LawPlan) -> bool:
        """True if a scenario violates a constraint."""
        return self.worst(plan) > 0.0


def planned(
    ocp: OCP,
    uncertain: Uncertain,
    *,
    nominal: Callable[[OCP], Solution],
    measure: str | None = None,
    quantile: float | None = None,
    effort: str | None = None,
    workers: int | None = None,
    seed: int | None = None,
    callback: Any = None,
    deadline: float = np.inf,
) -> Solution:
    """Return a robust plan; see `nosnoc_py.solve`.

    Parameters
    ----------
    ocp : OCP
        With the middle of the distribution (`Uncertain.middle_of`).
    nominal : callable
        Solves a problem without uncertainty.
    deadline : float
        Time of the monotonic clock [s].
    """
    measure = "expected" if measure is None else measure
    if measure not in MEASURES:
        raise OptionError(f"measure: {unknown_name(str(measure), MEASURES)}")
    if (quantile is not None) != (measure == "quantile") or (quantile is not None and not 0.0 < quantile < 1.0):
        raise OptionError(
            f"quantile: expected a number between 0 and 1 with measure='quantile', given {quantile!r} with {measure!r}."
        )
    if effort is not None and effort not in EFFORTS:
        raise OptionError(f"effort: {unknown_name(str(effort), EFFORTS)}")
    check_whole(workers=workers or 1)
    if not ocp.system.n_u:
        raise OptionError("uncertain: the system has no controls, so there is nothing to plan.")
    nodes, weights = uncertain.scenarios(measure)
    # What is not admissible is told before anything is solved.
    for each in uncertain.values(nodes):
        ocp.system.parameters(uncertain.apply(each, np.zeros(len(ocp.system.state_names)), ocp.p, ocp.system)[1])
    if ocp.free_time is None:
        Requirements(ocp)
    began = time.monotonic()
    start = nominal(ocp)
    if not start.success:
        return replace(start, message="; ".join(filter(None, (start.message, "the plan for the middle failed"))))
    fixed = ocp.with_values(start.horizon, start.p)
    law = track(start)
    level = {"expected": 0.0, "worst": 1.0}.get(measure, quantile or 0.0)
    iterations, rounds, draws = EFFORTS[effort or "normal"]
    work = RobustWork(deadline=deadline, callback=callback)

    def search_of(spread: float) -> RobustSearch:
        values = uncertain.values(spread * nodes)
        starts, parameters = _cases(uncertain, values, start.x0, law)
        loops = ScenarioLoops(Requirements(fixed), starts, parameters, weights, workers or 1)
        # The nominal plan may cost nothing: the feedback in the scenarios does. Without a cost any weight will do.
        costs = np.abs([start.objective, *(run.cost for run in loops.runs(law))])
        risk = Risk(level=level, weights=weights, penalty=PENALTY * (float(np.nanmax(costs)) or 1.0))
        return RobustSearch(loops=loops, values=values, risk=risk, iterations=iterations, work=work)

    # Draws of a random sequence of their own: `law.success` with the same seed has others.
    tested = uncertain.draws(draws, seed=(seed or 0, 1))
    try:
        search, plan, missed = _refined(*_widened(search_of, law, start), law, uncertain, tested, rounds)
    except KeyboardInterrupt:
        if work.best is None:
            raise
        work.stopped, (search, plan), missed = Status.INTERRUPTED, work.best, np.zeros(0)
    result = _result(search, plan, missed, start, uncertain, measure)
    return replace(result, wall_seconds=time.monotonic() - began)


def _refined(
    search: RobustSearch, plan: LawPlan, law: TrackingLaw, uncertain: Uncertain, tested: Array, rounds: int
) -> tuple[RobustSearch, LawPlan, Array]:
    """Return a plan that misses constraints in fewer draws, its search, and violations: draws that miss are scenarios.

    A plan takes the place of another one only if fewer draws miss, or as many, and scenarios miss by less.
    """
    # The same draws for all plans: their differences are those of the plans.
    plans = (plan, search.plan(law))
    plan, missed = min(((one, search.missed(one, uncertain, tested)) for one in plans), key=_misses)
    for _ in range(rounds):
        if search.work.over or not (missed.any() or search.missing(plan)):
            break
        further = search.with_draws(plan, uncertain, tested, missed)
        further, other = further.solved(further.of_gains(plan))
        still = further.missed(other, uncertain, tested)
        more = _misses((other, still)) - _misses((plan, missed))
        if more > 0 or (more == 0 and not further.worst(other) < search.worst(plan)):
            break
        search, plan, missed = further, other, still
    return search, search.plan(plan.law), missed


def _widened(
    search_of: Callable[[float], RobustSearch], law: TrackingLaw, start: Solution
) -> tuple[RobustSearch, LawPlan]:
    """Return the search for the whole distribution with a plan: a narrower one comes first where the start is far off.

    A scenario whose motion is another one altogether (a pole that has fallen) tells nothing of a way back.
    """
    spread, search = 1.0, search_of(1.0)
    motion = closed_loop(law, law.states[0], law.p)
    laws = [law, *_laws(law, start, motion, search.loops.required)]
    plans = [search.plan(each) for each in laws]
    while search.worst(min(plans, key=_risk)) > FAR_OFF and spread > NARROWEST:
        spread *= NARROWER
        search = search_of(spread)
        plans = [search.plan(each) for each in laws]
    search, plan = search.solved(search.most_promising(plans))
    while spread < 1.0:  # to the end: what is judged is the whole distribution
        spread = min(1.0, spread / NARROWER)
        search = search_of(spread)
        search, plan = search.solved(search.of_gains(plan))
    return search, plan


def _cases(uncertain: Uncertain, values: Array, x0: Array, law: TrackingLaw) -> tuple[Array, Array]:
    """Return initial states (m, n_x), projected where they penetrate a contact, and parameters (m, n_p) of values."""
    cases = [uncertain.apply(each, x0, law.p, law.system) for each in values]
    return np.array([admissible(law.system, x, p) for x, p in cases]), np.array([p for _, p in cases])


def _risk(plan: LawPlan) -> float:
    return plan.risk


def _misses(tested: tuple[LawPlan, Array]) -> int:
    """Return the number of draws that miss a constraint."""
    return int(np.count_nonzero(tested[1]))


def _laws(law: TrackingLaw, plan: Trajectory, motion: Trajectory, required: Requirements) -> list[TrackingLaw]:
    """Return laws about a motion, with weights of several efforts of the feedback: their gains differ.

    The weights are relative to the ranges of a plan. A motion that stopped early has no law.
    """
    if not motion.success:
        return []
    usual = default_weights(plan, law.system)
    x, p = motion.x, law.p
    ends = required.end
    slopes = np.array(ends.slopes(x[-1], np.zeros(law.system.n_u), p, x[0]))[:, : x.shape[1]] / ends.sizes[:, None]
    limits, laws = (law.lower, law.upper), []
    for effort in EFFORT_WEIGHTS:
        Qf = slopes.T @ slopes + UNCONSTRAINED * usual.Qf if ends.labels else usual.Qf
        Q = ON_THE_WAY * effort * usual.Q if ends.labels else usual.Q
        weights = Weights(Q=Q, R=effort * usual.R, Qf=Qf)
        more: dict[str, Any] = {"held": False, "periods": REACH}
        laws.append(law_about(law.system, motion, motion, p, law.times, weights, limits, **more))
    return laws


def _span(law: TrackingLaw) -> Array:
    """Return the ranges of the controls (n_u,): between their limits, else of the plan."""
    width = law.upper - law.lower
    used = np.maximum(np.ptp(law.controls, axis=0), np.abs(law.controls).max(axis=0))
    used = np.where(used > 0.0, used, law.system.u_nominal)
    return np.where(np.isfinite(width), width, used)


def _result(
    search: RobustSearch, plan: LawPlan, missed: Array, start: Solution, uncertain: Uncertain, measure: str
) -> RobustSolution:
    """Return the solution of a plan, with its scenarios."""
    loops, ocp = search.loops, search.loops.required.ocp
    law = plan.law.for_problem(ocp, uncertain, plan=plan.runs[0].motion)
    scenarios, values = [], search.values
    for i, run in enumerate(plan.runs):
        bare = _solution(ocp, run.motion, loops.starts[i], loops.parameters[i])
        over = float(loops.required.excesses(run.motion, loops.parameters[i]).max(initial=-np.inf))
        violation = over if over > ROUNDING else 0.0
        scenarios.append(
            Scenario(
                values=values[i],
                x0=loops.starts[i],
                p=loops.parameters[i],
                weight=float(loops.weights[i]),
                objective=np.nan if run.lost else refined_objective(ocp, bare),
                violation=violation,
                motion=run.motion,
            )
        )
    missing = [each for each in scenarios if each.violation > 0.0]
    status, notes = Status.SOLVED, []
    if missing:
        status = Status.LOCALLY_INFEASIBLE
        worst = max(each.violation for each in missing)
        notes.append(
            f"{len(missing)} of {len(scenarios)} scenarios miss a constraint, by up to {worst:.2g} of its size: widen "
            "the terminal set, reduce the uncertainty, or give more effort"
        )
    if missed.any():
        notes.append(f"{np.count_nonzero(missed)} of {len(missed)} draws that were tested miss a constraint")
    if search.work.stopped is not None:
        notes.append(f"the search ended by {search.work.stopped}: the plan may get better with more of it")
        if search.work.stopped is not Status.TIME_LIMIT:
            status = search.work.stopped
    risk = np.array([each.objective for each in scenarios])
    first = scenarios[0]
    return _solution(
        ocp, first.motion, first.x0, first.p, objective=first.objective, infeasibility=first.violation,
        status=status, message="; ".join(notes), law=law, scenarios=tuple(scenarios), measure=measure,
        risk=search.risk.of(risk) if np.isfinite(risk).all() else np.inf, nominal=start, iterations=search.work.steps,
    )  # fmt: skip


def _solution(
    ocp: OCP, motion: Trajectory, x0: Array, p: Array, objective: float = 0.0, infeasibility: float = 0.0, **more: Any
) -> RobustSolution:
    """Return a motion as a solution; `more` are fields of it that replace those of the motion."""
    kept = {each.name: getattr(motion, each.name) for each in fields(Trajectory) if each.name not in more}
    return RobustSolution(
        **kept, **more, objective=objective, infeasibility=infeasibility, x0=x0, p=p, horizon=float(ocp.horizon),
        complementarity=0.0, complementarity_min=0.0, method="RobustSearch",
    )  # fmt: skip
