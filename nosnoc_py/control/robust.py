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
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from nosnoc_py.control.policy_step import Risk, Rows, step_of
from nosnoc_py.control.requirements import ROUNDING, Requirements
from nosnoc_py.control.scenarios import LoopRun, Scenario, ScenarioLoops
from nosnoc_py.control.success import closed_loop
from nosnoc_py.control.tracking import TrackingLaw, Weights, default_weights, law_about, track
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.statements import refined_objective
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.status import Status
from nosnoc_py.uncertain import MEASURES, Uncertain

Array = np.ndarray
# Of every effort: iterations, rounds of gains and of further scenarios, and draws that are tested after each.
EFFORTS = {"quick": (8, 1, 16), "normal": (20, 3, 32), "thorough": (50, 6, 64)}
# Penalty of violations, as a multiple of the objective, and the factor by which it grows while scenarios miss.
PENALTY, HEAVIER = 10.0, 10.0
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
# Weight of deviations on the way and of states that no constraint concerns, relative to those of `ns.track`.
ON_THE_WAY, UNCONSTRAINED = 1e-4, 1e-6
# Largest number of draws that become scenarios at a time.
MORE_SCENARIOS = 4


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RobustSolution(Solution):
    """Plan with its feedback, for all scenarios of what is uncertain.

    Trajectory and objective are those of the middle of the distribution, in closed loop.

    Parameters
    ----------
    law : TrackingLaw
        Feedforward and feedback; use it as the control of a simulation (`u=solution.law`). `law.success()` estimates
        the probability that it meets the constraints.
    scenarios : tuple of Scenario
        What the plan was made for, the middle first, each with its closed loop.
    measure : str
        "expected", "worst" or "quantile".
    risk : float
        The measure of the objectives of the scenarios, without penalties.
    nominal : Solution, optional
        Plan for the middle alone, from which the search began.

    Examples
    --------
    A cart bounces off a wall whose restitution is not known:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u, e = (ca.SX.sym(name) for name in ("q", "v", "u", "e"))
    >>> wall = ns.Contact("wall", gap=1 - q, restitution=e)
    >>> cart = ns.CLS(q=q, v=v, u=u, p=e, p_default=[0.5], mass_matrix=1, force=u, contacts=[wall])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 2], stage_cost=u**2, terminal_state={"q_0": (0.6, 0.8)})
    >>> uncertain = ns.Uncertain(parameters={"p_0": (0.3, 0.7)})
    >>> solution = ns.solve(ocp, ns.FESDJ(control_stages=5), uncertain=uncertain)
    >>> solution.success, len(solution.scenarios)
    (True, 3)
    """

    law: TrackingLaw | None = field(default=None, metadata={"stored": False})
    scenarios: tuple[Scenario, ...] = ()
    measure: str = "expected"
    risk: float = np.nan
    nominal: Solution | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """A law with the closed loops of its scenarios and their risk."""

    law: TrackingLaw
    runs: tuple[LoopRun, ...]
    risk: float


@dataclass(eq=False, kw_only=True)
class RobustSearch:
    """Search for a robust plan; `run` alternates steps, gains and scenarios."""

    loops: ScenarioLoops
    values: Array
    risk: Risk
    iterations: int
    deadline: float
    done: int = 0

    def plan(self, law: TrackingLaw) -> Plan:
        """Return a law with its closed loops."""
        runs = tuple(self.loops.runs(law))
        return Plan(law=law, runs=runs, risk=self.risk.of(self.risk.losses(runs, self.rows(law))))

    def rows(self, law: TrackingLaw) -> Rows:
        """Return the rows of a closed loop at the samples of a law."""
        lower, upper, sizes, group = self.loops.limits(len(law.times))
        return Rows(lower=lower, upper=upper, sizes=sizes, group=group)

    @property
    def over(self) -> bool:
        """True if a limit ends the search."""
        return time.monotonic() > self.deadline

    def heavier(self) -> RobustSearch:
        """Return the search with a larger penalty of violations."""
        return replace(self, risk=replace(self.risk, penalty=HEAVIER * self.risk.penalty))

    def missed(self, plan: Plan, uncertain: Uncertain, values: Array) -> Array:
        """Return the largest relative violation of draws (n,); 0 if all constraints hold."""
        starts, parameters = self._cases(plan, uncertain, values)
        runs = replace(self.loops, starts=starts, parameters=parameters).runs(plan.law)
        over = [
            self.loops.required.excesses(run.motion, p).max(initial=-np.inf)
            for run, p in zip(runs, parameters, strict=True)
        ]
        return np.where(np.array(over) > ROUNDING, over, 0.0)

    def with_draws(self, plan: Plan, uncertain: Uncertain, values: Array, missed: Array) -> RobustSearch:
        """Return the search with the worst of some draws as further scenarios."""
        chosen = [i for i in np.argsort(-missed)[:MORE_SCENARIOS] if missed[i] > 0.0]
        if not chosen:
            return self
        more = self.loops.with_more(*self._cases(plan, uncertain, values[chosen]))
        risk = replace(self.risk, weights=more.weights)
        return replace(self, loops=more, risk=risk, values=np.vstack([self.values, values[chosen]]))

    def _cases(self, plan: Plan, uncertain: Uncertain, values: Array) -> tuple[Array, Array]:
        law = plan.law
        cases = [uncertain.apply(each, self.loops.starts[0], law.p, law.system) for each in values]
        starts, parameters = zip(*cases, strict=True)
        return np.array(starts), np.array(parameters)

    def improved(self, plan: Plan) -> Plan:
        """Return the plan after steps of its feedforward controls, while these lower the risk."""
        span = np.tile(_span(plan.law), len(plan.law.controls))
        radius, rows, multipliers = RADIUS, self.rows(plan.law), self.risk.weights
        models = None
        first = self.done
        while not self.over and radius >= LEAST_RADIUS and self.done < first + self.iterations:
            models = self.loops.models(plan.law, plan.runs) if models is None else models
            if all(model is None for model in models):
                break
            v = (plan.law.controls - plan.law.corrections).ravel()
            limits = [np.tile(side, len(plan.law.controls)) - v for side in (plan.law.lower, plan.law.upper)]
            bounds = (np.clip(limits[0], -radius * span, 0.0), np.clip(limits[1], 0.0, radius * span))
            step = step_of(plan.runs, models, rows, self.risk, bounds, span, multipliers)
            self.done += 1
            expected = plan.risk - step.risk
            if not expected > SMALL * abs(plan.risk) and all(model is not None for model in models):
                break
            moved = self.plan(plan.law.with_feedforward((v + step.change).reshape(plan.law.controls.shape)))
            gained = plan.risk - moved.risk
            if not gained > max(ACCEPTED * expected, 0.0):
                radius *= SMALLER
                continue
            radius = min(MOST_RADIUS, radius * LARGER) if gained > TRUSTED * expected else radius
            plan, models, multipliers = moved, None, step.multipliers
        return plan

    def solved(self, plan: Plan) -> tuple[RobustSearch, Plan]:
        """Return the improved plan, with a larger penalty if scenarios still miss a constraint, and its search."""
        plan = self.improved(plan)
        if not self.missing(plan):
            return self, plan
        heavier = self.heavier()
        return heavier, heavier.improved(heavier.plan(plan.law))

    def of_gains(self, plan: Plan) -> Plan:
        """Return the best of the laws about the motion of a plan, its own one included, for these scenarios."""
        laws, motion = [plan.law], plan.runs[0].motion
        laws += _laws(plan.law, motion, self.loops.required) if motion.success else []
        return min((self.plan(law) for law in laws), key=_risk)

    def worst(self, plan: Plan) -> float:
        """Return the largest relative violation of a scenario; infinite if a simulation stopped early."""
        rows = self.rows(plan.law)
        return max(np.inf if run.lost else rows.violations(run.rows, 0.0).max(initial=0.0) for run in plan.runs)

    def missing(self, plan: Plan) -> bool:
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
    nodes, weights = uncertain.scenarios(measure)
    start = nominal(ocp)
    if not start.success:
        return replace(start, message="; ".join(filter(None, (start.message, "the plan for the middle failed"))))
    fixed = ocp.with_values(start.horizon, start.p)
    law = track(start)
    level = {"expected": 0.0, "worst": 1.0}.get(measure, quantile or 0.0)
    penalty = PENALTY * max(abs(start.objective), np.finfo(float).tiny)
    iterations, rounds, draws = EFFORTS[effort or "normal"]

    def search_of(spread: float) -> RobustSearch:
        values = uncertain.values(spread * nodes)
        cases = [uncertain.apply(each, start.x0, law.p, law.system) for each in values]
        starts, parameters = (np.array(part) for part in zip(*cases, strict=True))
        return RobustSearch(
            loops=ScenarioLoops(Requirements(fixed), starts, parameters, weights, workers or 1), values=values,
            risk=Risk(level=level, weights=weights, penalty=penalty), iterations=iterations, deadline=deadline,
        )  # fmt: skip

    search, plan = _widened(search_of, law, start)
    # The same draws for all plans: their differences are those of the plans.
    tested = uncertain.draws(draws, seed or 0)
    plans = (plan, search.plan(law))
    plan, missed = min(((one, search.missed(one, uncertain, tested)) for one in plans), key=_misses)
    for _ in range(rounds):
        if search.over or not (missed.any() or search.missing(plan)):
            break
        search = search.with_draws(plan, uncertain, tested, missed)
        search, other = search.solved(search.of_gains(plan))
        still = search.missed(other, uncertain, tested)
        if _misses((other, still)) >= _misses((plan, missed)) > 0:
            break
        plan, missed = other, still
    return _result(search, search.plan(plan.law), start, uncertain, measure)


def _widened(
    search_of: Callable[[float], RobustSearch], law: TrackingLaw, start: Solution
) -> tuple[RobustSearch, Plan]:
    """Return the search for the whole distribution with a plan: a narrower one comes first where the start is far off.

    A scenario whose motion is another one altogether (a pole that has fallen) tells nothing of a way back.
    """
    spread = 1.0
    while True:
        search = search_of(spread)
        plan = min((search.plan(each) for each in _laws(law, start, search.loops.required)), key=_risk)
        if search.worst(plan) <= FAR_OFF or spread <= NARROWEST:
            break
        spread *= NARROWER
    search, plan = search.solved(plan)
    while spread < 1.0 and not search.over:
        spread = min(1.0, spread / NARROWER)
        done, search = search.done, search_of(spread)
        search.done = done
        search, plan = search.solved(search.of_gains(plan))
    return search, plan


def _risk(plan: Plan) -> float:
    return plan.risk


def _misses(tested: tuple[Plan, Array]) -> int:
    """Return the number of draws that miss a constraint."""
    return int(np.count_nonzero(tested[1]))


def _laws(law: TrackingLaw, plan: Trajectory, required: Requirements) -> list[TrackingLaw]:
    """Return laws about a motion, with weights of several efforts of the feedback: their gains differ."""
    motion = closed_loop(law, law.states[0], law.p) if isinstance(plan, Solution) else plan
    if not motion.success:
        return [law]
    usual = default_weights(plan, law.system)
    x, p = motion.x, law.p
    u, q = required.padded(np.zeros((1, law.system.n_u)), p)
    ends = required.end
    slopes = np.array(ends.slopes(x[-1], u[0], q, x[0]))[:, : x.shape[1]] / ends.sizes[:, None]
    limits = (law.lower, law.upper)
    laws = [law] if isinstance(plan, Solution) else []
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


def _result(search: RobustSearch, plan: Plan, start: Solution, uncertain: Uncertain, measure: str) -> RobustSolution:
    """Return the solution of a plan, with its scenarios."""
    loops, ocp = search.loops, search.loops.required.ocp
    rows, law = search.rows(plan.law), plan.law.for_problem(ocp, uncertain)
    scenarios, values = [], search.values
    for i, run in enumerate(plan.runs):
        objective = np.nan if run.lost else _objective(ocp, run.motion, loops.starts[i], loops.parameters[i])
        violation = np.inf if run.lost else float(rows.violations(run.rows, 0.0).max(initial=0.0))
        scenarios.append(
            Scenario(
                values=values[i],
                x0=loops.starts[i],
                p=loops.parameters[i],
                weight=float(loops.weights[i]),
                objective=objective,
                violation=violation,
                motion=run.motion,
            )
        )
    missing = [each for each in scenarios if each.violation > 0.0]
    status, notes = Status.SOLVED, []
    if missing:
        status = Status.LOCALLY_INFEASIBLE if scenarios[0].violation > 0.0 else Status.FEASIBLE
        worst = max(each.violation for each in missing)
        notes.append(
            f"{len(missing)} of {len(scenarios)} scenarios miss a constraint, by up to {worst:.2g} of its size: widen "
            "the terminal set, reduce the uncertainty, or give more effort"
        )
    risk = np.array([each.objective for each in scenarios])
    return _solution(
        ocp, scenarios[0], status=status, message="; ".join(notes), law=law, scenarios=tuple(scenarios),
        measure=measure, risk=search.risk.of(risk) if np.isfinite(risk).all() else np.inf, nominal=start,
        iterations=search.done,
    )  # fmt: skip


def _objective(ocp: OCP, motion: Trajectory, x0: Array, p: Array) -> float:
    return refined_objective(ocp, _solution(ocp, Scenario(
        values=np.zeros(0), x0=x0, p=p, weight=1.0, objective=0.0, violation=0.0, motion=motion,
    )))  # fmt: skip


def _solution(ocp: OCP, scenario: Scenario, **more: Any) -> RobustSolution:
    motion = scenario.motion
    kept = {each.name: getattr(motion, each.name) for each in fields(Trajectory) if each.name not in more}
    more = {"horizon": float(ocp.horizon), "x0": scenario.x0, "p": scenario.p, **more}
    return RobustSolution(
        **{**kept, **more}, objective=scenario.objective, complementarity=0.0, complementarity_min=0.0,
        infeasibility=0.0, method="RobustSearch",
    )  # fmt: skip
