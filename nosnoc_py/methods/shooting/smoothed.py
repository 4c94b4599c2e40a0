"""Direct shooting on a smoothed system: one NLP with the smoothing as a parameter, solved for ever smaller ones.

The NLP is the transcription of the smoothed system with equal steps: multiple shooting with a node after every step,
and with the Runge-Kutta equations as constraints. Functions, derivatives and solvers are built once. What is reported
are residuals of the problem without smoothing: gaps against forces, slip speeds against what is left of friction cones,
distances from regions against their weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.discretization.options import FESD
from nosnoc_py.functions import buffered
from nosnoc_py.methods.shooting.options import SmoothedShooting
from nosnoc_py.mpcc.ipopt import NLPResult, NLPSolver, warm_start
from nosnoc_py.mpcc.layout import Layout
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.residuals import finite_or_inf, scaled_products
from nosnoc_py.mpcc.strategy import Callback, SolverState, measure, nlp_multipliers, record, residuals_small, runs_away
from nosnoc_py.ocp import OCP
from nosnoc_py.reformulation.smoothing import Smoothed, smooth
from nosnoc_py.roles import Role
from nosnoc_py.simulation.guessed import NEARLY, simulated_guess
from nosnoc_py.solution import Solution
from nosnoc_py.solution.records import Residual
from nosnoc_py.status import Status, iterated
from nosnoc_py.systems.cls import CLS
from nosnoc_py.transcription import Transcription, transcribe

LABEL = "smoothed"
# A smaller sigma that fails is passed over, so many in a row end the sequence.
FAILURES = 2
# A smoothed problem is never exact: its NLPs need not be solved to the last digits.
EXACTNESS = {"tol": 1e-8, "dual_inf_tol": 1.0, "compl_inf_tol": 1e-8, "constr_viol_tol": 1e-8, "mu_target": 0.0}
WARM = warm_start(1e-3, 1e-4)
# Time steps have to be this much shorter than the impacts on contacts that bounce.
STEPS_PER_IMPACT = 5


@dataclass(frozen=True, eq=False, kw_only=True)
class SmoothedState(SolverState):
    """Where the sequence of smoothed problems stands; what a callback sees.

    Attributes
    ----------
    sigma : float
        Smoothing of the next NLP.
    left : float
        Smoothing of the problem that w solves; of the last that was tried where none was solved.
    solved : bool
        Some NLP converged: w is the solution of the last one that did.
    failures : int
        NLPs that failed since then.
    dual : NLPResult, optional
        The last result that converged, which starts the next NLP.
    word : str
        IPOPT's own about the last NLP.
    """

    sigma: float
    left: float
    solved: bool = False
    failures: int = 0
    dual: NLPResult | None = None
    word: str = ""

    def __repr__(self) -> str:
        return f"{super().__repr__()}, sigma {self.sigma:.1e}"


def solve(
    options: SmoothedShooting, ocp: OCP, guess: Any, callback: Callback | None, started: float, deadline: float
) -> Solution:
    """Solve smoothed problems from sigma_0 to sigma_min; `started` and `deadline` are stamps of time.monotonic()."""
    problem = SmoothedProblem.of(ocp, options)
    state = iterated(problem.init(guess), problem.step, problem.ended, callback, deadline)
    return judged(ocp, problem.solution(state, time.monotonic() - started), guess, deadline)


def judged(ocp: OCP, found: Solution, guess: Any, deadline: float) -> Solution:
    """Say what the control really does, and what that of the guess does where it is feasible and better.

    No smoothed problem may have a solution where the problem itself has one: what is nearly feasible when it is
    simulated is not infeasible, but has smoothing left.
    """
    if found.status.success:
        return found
    really, given = (simulated_guess(ocp, motion, deadline) for motion in (found, guess))
    notes = [found.message] if found.message else []
    notes += [] if really is None else [f"its control, {really}"]
    feasible = given is not None and given.feasible
    if given is not None and feasible and (really is None or not really.feasible or really.objective > given.objective):
        notes.append(f"the control of the guess, {given}: go on from that by ns.MultiPhase() or finite elements")
    near = really is not None and really.broken <= NEARLY
    status = (
        Status.NOT_COMPLEMENTARY if found.status is Status.LOCALLY_INFEASIBLE and (near or feasible) else found.status
    )
    return replace(found, status=status, message="; ".join(notes))


@dataclass(frozen=True, eq=False, kw_only=True)
class SmoothedProblem:
    """An OCP with its smoothed transcription.

    Attributes
    ----------
    ocp : OCP
        The user's.
    options : SmoothedShooting
    smoothed : Smoothed
    transcription : Transcription
        Of the smoothed system, with sigma as the last parameter.
    """

    ocp: OCP
    options: SmoothedShooting
    smoothed: Smoothed
    transcription: Transcription

    @classmethod
    def of(cls, ocp: OCP, options: SmoothedShooting) -> SmoothedProblem:
        """Smooth and transcribe."""
        smoothed = smooth(ocp.system)
        method = FESD(
            control_stages=options.control_stages,
            finite_elements=options.steps,
            rk_stages=options.rk_stages,
            scheme=options.scheme,
            switch_detection=False,
        )
        horizon = ocp.horizon if ocp.free_time is None else ocp.free_time
        smooth_ocp = replace(ocp, system=smoothed.system, horizon=horizon, p=np.append(ocp.p, options.sigma_0))
        made = transcribe(smooth_ocp, method)
        dcs = replace(made.dcs, outputs=smoothed.outputs, units=smoothed.units)
        made = replace(made, dcs=dcs, mpcc=_without(made.mpcc, Role.SUM_OF_STEPS))
        return cls(ocp=ocp, options=options, smoothed=smoothed, transcription=made)

    def init(self, guess: Any) -> SmoothedState:
        """The state before the first NLP."""
        made, sigma = self.transcription, self.options.sigma_0
        p = made.parameters()
        w = np.clip(made.initial_guess(guess, p), made.mpcc.lbw, made.mpcc.ubw)
        self._ipopt(warm=False)  # options that do not fit are an error at once
        return SmoothedState(solvers=made.solvers, w=w, p=p, sigma=sigma, left=sigma, **self._measure(w, p))

    def ended(self, state: SmoothedState) -> dict[str, Any] | None:
        """The status where there is nothing left to do."""
        over = state.solved and (residuals_small(state, self.options) or state.failures >= FAILURES)
        if state.status is None and not over and state.sigma >= self.options.sigma_min * (1 - 1e-9):
            return None
        return {"status": state.status or self.verdict(state)}

    def verdict(self, state: SmoothedState) -> Status:
        """Why the sequence has ended."""
        if state.solved:
            return Status.SOLVED if residuals_small(state, self.options) else Status.NOT_COMPLEMENTARY
        if runs_away(state) and np.isfinite(state.values.objective):
            return Status.UNBOUNDED
        if not np.isfinite(state.values.g).all() or state.word == "Invalid_Number_Detected":
            return Status.NUMERICAL_ERROR
        return Status.ITERATION_LIMIT if state.word == "Maximum_Iterations_Exceeded" else Status.LOCALLY_INFEASIBLE

    def step(self, state: SmoothedState, deadline: float) -> SmoothedState:
        """Solve one NLP; one that fails after another has been solved leaves the iterate where it is."""
        mpcc, sigma, scale = state.solvers.mpcc, state.sigma, state.solvers.mpcc.w_scale
        p = np.array(state.p)
        p[self.transcription.mpcc.parameters["p"].stop - 1] = sigma
        dual = state.dual if state.failures == 0 else None
        multipliers = {} if dual is None else dual.duals
        ipopt = self._ipopt(warm=dual is not None)
        result = ipopt.solve(state.w / scale, np.concatenate([p, [1.0, sigma]]), **multipliers, deadline=deadline)
        w = result.x * scale
        w = w if np.isfinite(w).all() else state.w  # an iterate that is no number is not taken
        tried = replace(state, w=w, p=p, left=sigma, **self._measure(w, p))
        log: dict[str, Any] = {"iterations": result.iterations, "seconds": result.wall_seconds}
        records = (*state.records, record(tried, LABEL, sigma, word=result.solver_status, **log))
        status = Status.INTERRUPTED if result.interrupted else None
        if result.solver_status == "User_Requested_Stop" and not result.interrupted:
            status = Status.TIME_LIMIT
        new = tried if result.converged or not state.solved else replace(state, failures=state.failures + 1)
        if result.converged:
            new = replace(new, solved=True, failures=0, dual=result, multipliers=nlp_multipliers(mpcc, result))
        below = sigma * self.options.kappa
        if sigma > self.options.sigma_min * (1 + 1e-9):
            below = max(below, self.options.sigma_min)  # the last one is sigma_min itself
        return replace(new, sigma=below, records=records, status=status, word=result.solver_status)

    def _ipopt(self, *, warm: bool) -> NLPSolver:
        options = self.options
        settings = {"max_iter": options.max_iterations, **EXACTNESS, **(WARM if warm else {}), **options.ipopt}
        return self.transcription.solvers.relaxed("scholtes", "direct", settings)

    def _measure(self, w: np.ndarray, p: np.ndarray) -> dict[str, Any]:
        """Residuals of the problem without smoothing, as fields of a state."""
        fields, (_, a, b) = measure(self.transcription.solvers.evaluator, w, p), self._sides(w, p)
        minima = np.minimum(a, b)
        sizes = {"complementarity": scaled_products(a, b), "infeasibility": -minima}
        sizes["complementarity_min"] = np.abs(minima)
        return fields | {name: _worst(size, fields[name]) for name, size in sizes.items()}

    @cached_property
    def _conditions(self) -> Callable[..., list[np.ndarray]]:
        """Sides of all conditions, and durations of impacts, at all stages (columns of x)."""
        made, smoothed = self.transcription, self.smoothed
        sides = [ca.vertcat(ca.SX(0, 1), *[getattr(c, side) for c in smoothed.conditions]) for side in "ab"]
        function = ca.Function("conditions", [made.dcs.x, made.dcs.p], [*sides, smoothed.durations])
        stages = len(made.elements) * made.tableau.stages
        return buffered(function.map("stages", "serial", stages, [1], []))

    def _sides(self, w: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Durations of impacts, and both sides of the conditions, at all stages (stages, n)."""
        made = self.transcription
        x = made.read(w, p).x_stages
        a, b, durations = self._conditions(x.reshape(-1, x.shape[-1]), made.parameter_values(w, p))
        return durations.T, a.T, b.T

    # --- the result ---

    def solution(self, state: SmoothedState, seconds: float) -> Solution:
        """The solution, of the user's system, that a state stands for."""
        made = self.transcription
        # Stationarity of the smoothed problem says nothing about the other one.
        found = made.solution(replace(state, status=Status.NOT_COMPLEMENTARY), solver="IPOPT", wall_seconds=seconds)
        status = state.status or Status.STOPPED
        parameters = {name: found.parameters[name] for name in self.ocp.system.parameter_names}
        return replace(
            found,
            status=status,
            parameters=parameters,
            p=found.p[:-1],
            method=repr(self.options),
            discretization=None,  # the elements are those of another, smooth system
            worst=self._worst(state, found.worst),
            message="; ".join([*self._left(state), *self._unresolved(state, found)]),
        )

    def _left(self, state: SmoothedState) -> list[str]:
        """How much smoothing there is in an iterate, and what to do about it."""
        if state.status is Status.SOLVED or not state.records:
            return []
        fits = "FESDJ" if isinstance(self.ocp.system, CLS) else "FESD"
        if not state.solved:
            return [f"no smoothed problem was solved, the last with sigma = {state.left:.1e}"]
        stopped = "" if state.failures == 0 else f", smaller ones failed ({state.word})"
        return [
            f"smoothing sigma = {state.left:.1e} is left{stopped}: complementarity {state.complementarity:.1e}; for a "
            f"solution without any, start ns.solve(ocp, ns.{fits}(...), guess=...) from this one, or from the exact "
            "motion under its control, ns.simulate(ocp.system, x0=solution.x0, duration=solution.horizon, u=solution, "
            "method=ns.EventDriven())"
        ]

    def _unresolved(self, state: SmoothedState, found: Solution) -> list[str]:
        """A word about impacts that are shorter than the time steps: their restitution is none of the model's."""
        durations, _, _ = self._sides(state.w, state.p)
        shortest = float(durations.min(initial=np.inf))
        step = found.horizon / len(self.transcription.elements)
        if shortest >= STEPS_PER_IMPACT * step:
            return []
        return [
            f"impacts last {shortest:.1e} s at this smoothing, steps {step:.1e} s: restitution is not resolved; use "
            "more steps or a larger sigma_min"
        ]

    def _worst(self, state: SmoothedState, others: tuple[Residual, ...]) -> tuple[Residual, ...]:
        """The largest residuals, with those of the conditions."""
        _, a, b = self._sides(state.w, state.p)
        stages = self.transcription.tableau.stages
        elements = self.transcription.elements
        found = list(others)
        labels = [label for condition in self.smoothed.conditions for label in condition.labels]
        sizes = {"complementarity": scaled_products(a, b), "bound": np.maximum(0.0, np.maximum(-a, -b))}
        for kind, size in sizes.items():
            for label, column in zip(labels, size.T, strict=True):
                at = int(np.argmax(column))
                where = str(replace(elements[at // stages].at, rk=at % stages))
                found.append(Residual(float(column[at]), kind, label, where))
        ranked = sorted((item for item in found if item.value > 0.0), key=lambda item: -item.value)
        return tuple(ranked[:5])


def _without(mpcc: MPCC, role: Role) -> MPCC:
    """A program without some constraints: between fixed steps those on lengths only take freedom from the solver."""
    layout = Layout()
    rows: list[int] = []
    for block in mpcc.constraints.blocks():
        if block.role is not role:
            rows += range(block.start, block.start + block.size)
            layout.add(block.name, block.at, block.components, block.role, block.edge, block.of)
    kept = {key: getattr(mpcc, key)[rows] for key in ("lbg", "ubg", "g_scale")}
    return replace(mpcc, g=mpcc.g[rows, 0], constraints=layout, **kept)


def _worst(sizes: np.ndarray, other: float) -> float:
    """The largest residual; what is no number is infinitely large."""
    return float(max(finite_or_inf(sizes).max(initial=0.0), other))
