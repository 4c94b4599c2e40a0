"""Direct shooting on a smoothed system: one NLP with the smoothing sigma as a parameter, solved for decreasing values.

The NLP is the transcription of the smoothed system with equal steps: multiple shooting with a node after every step,
and the Runge-Kutta equations as constraints. Functions, derivatives and solvers are built once; each NLP starts from
the last solution. An NLP that fails is skipped, and two failures in a row end the sequence. Reported residuals are
those of the problem without smoothing: gaps against forces, slip speeds against the margin of friction cones, distances
from regions against their weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

from nosnoc_py.discretization.options import FESD
from nosnoc_py.errors import check_type
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
from nosnoc_py.transcription import Transcription, transcribe

LABEL = "smoothed"
# Number of consecutive failed NLPs that end the sequence; a single failure is skipped.
FAILURES = 2
# Tolerances of IPOPT: loose for duals, since a smoothed problem is only an approximation.
IPOPT_TOLERANCES = {"tol": 1e-8, "dual_inf_tol": 1.0, "compl_inf_tol": 1e-8, "constr_viol_tol": 1e-8, "mu_target": 0.0}
WARM_START = warm_start(1e-3, 1e-4)
# Number of time steps needed within an impact of a bouncing contact.
STEPS_PER_IMPACT = 5


@dataclass(frozen=True, eq=False, kw_only=True)
class SmoothedState(SolverState):
    """State of the sequence of smoothed problems, which callbacks receive.

    Attributes
    ----------
    sigma : float
        Smoothing of the next NLP.
    last_sigma : float
        Smoothing of the problem that w solves; if none was solved, of the last one tried.
    solved : bool
        True if an NLP converged; w is then the solution of the last one that did.
    failures : int
        Number of failed NLPs since then.
    dual : NLPResult, optional
        Last converged result, which starts the next NLP.
    solver_status : str
        IPOPT's return status of the last NLP.
    """

    sigma: float
    last_sigma: float
    solved: bool = False
    failures: int = 0
    dual: NLPResult | None = None
    solver_status: str = ""

    def __repr__(self) -> str:
        return f"{super().__repr__()}, sigma {self.sigma:.1e}"


def solve(
    ocp: OCP, options: SmoothedShooting, guess: Any, callback: Callback | None, started: float, deadline: float
) -> Solution:
    """Solve smoothed problems from sigma_0 to sigma_min, each started at the last solution.

    `started` and `deadline` are stamps of time.monotonic().
    """
    check_type(ocp, OCP, "ocp")
    problem = SmoothedProblem.of(ocp, options)
    state = iterated(problem.init(guess), problem.step, problem.ended, callback, deadline)
    return with_simulated_notes(ocp, problem.solution(state, time.monotonic() - started), guess, deadline)


def with_simulated_notes(ocp: OCP, solution: Solution, guess: Any, deadline: float) -> Solution:
    """Add notes on the simulated control, and on the simulated guess if it is feasible and better.

    Smoothed problems may be infeasible although the original one is not. If the simulated control is nearly feasible,
    the status is therefore NOT_COMPLEMENTARY instead of LOCALLY_INFEASIBLE.
    """
    if solution.status.success:
        return solution
    # Simulations are exact motions: they tell a bad smoothing from a bad problem.
    simulated, guess_motion = (simulated_guess(ocp, motion, deadline) for motion in (solution, guess))
    notes = [solution.message] if solution.message else []
    notes += [] if simulated is None else [f"its control, {simulated}"]
    feasible = guess_motion is not None and guess_motion.feasible
    if (
        guess_motion is not None
        and feasible
        and (simulated is None or not simulated.feasible or simulated.objective > guess_motion.objective)
    ):
        notes.append(f"the control of the guess, {guess_motion}: go on from that by ns.MultiPhase() or finite elements")
    # A motion exists that nearly satisfies everything: "infeasible" would be a wrong message.
    nearly_feasible = simulated is not None and simulated.broken <= NEARLY
    status = (
        Status.NOT_COMPLEMENTARY
        if solution.status is Status.LOCALLY_INFEASIBLE and (nearly_feasible or feasible)
        else solution.status
    )
    return replace(solution, status=status, message="; ".join(notes))


@dataclass(frozen=True, eq=False, kw_only=True)
class SmoothedProblem:
    """OCP with its smoothed transcription.

    Attributes
    ----------
    ocp : OCP
        Original problem.
    options : SmoothedShooting
    smoothed : Smoothed
    transcription : Transcription
        Transcription of the smoothed system, with sigma as the last parameter.
    """

    ocp: OCP
    options: SmoothedShooting
    smoothed: Smoothed
    transcription: Transcription

    @classmethod
    def of(cls, ocp: OCP, options: SmoothedShooting) -> SmoothedProblem:
        """Smooth the system and transcribe the problem."""
        smoothed = smooth(ocp.system)
        # Equal steps without switch detection: the smoothed system has no switches.
        method = FESD(
            control_stages=options.control_stages,
            finite_elements=options.steps,
            rk_stages=options.rk_stages,
            scheme=options.scheme,
            switch_detection=False,
        )
        # sigma is the last parameter of the smoothed system, so that one NLP serves all values.
        smooth_ocp = evolve(ocp, system=smoothed.system, p=np.append(ocp.p, options.sigma_0))
        transcription = transcribe(smooth_ocp, method)
        dcs = replace(transcription.dcs, outputs=smoothed.outputs, units=smoothed.units)
        transcription = replace(
            transcription, dcs=dcs, mpcc=_without_constraints(transcription.mpcc, Role.SUM_OF_STEPS)
        )
        return cls(ocp=ocp, options=options, smoothed=smoothed, transcription=transcription)

    def init(self, guess: Any) -> SmoothedState:
        """Return the state before the first NLP."""
        transcription, sigma = self.transcription, self.options.sigma_0
        p = transcription.parameters()
        w = np.clip(transcription.initial_guess(guess, p), transcription.mpcc.lbw, transcription.mpcc.ubw)
        self._ipopt(warm=False)  # invalid options of IPOPT raise before the first solve
        return SmoothedState(
            solvers=transcription.solvers, w=w, p=p, sigma=sigma, last_sigma=sigma, **self._measure(w, p)
        )

    def ended(self, state: SmoothedState) -> dict[str, Any] | None:
        """Return the final status as a field, or None while the sequence continues."""
        # Small residuals end the sequence early: a smaller sigma makes the NLP stiffer for nothing.
        finished = state.solved and (residuals_small(state, self.options) or state.failures >= FAILURES)
        # 1e-9 absorbs the rounding of sigma_0 kappa^i.
        if state.status is None and not finished and state.sigma >= self.options.sigma_min * (1 - 1e-9):
            return None
        return {"status": state.status or self.verdict(state)}

    def verdict(self, state: SmoothedState) -> Status:
        """Return the status of an ended sequence."""
        if state.solved:
            return Status.SOLVED if residuals_small(state, self.options) else Status.NOT_COMPLEMENTARY
        if runs_away(state) and np.isfinite(state.values.objective):
            return Status.UNBOUNDED
        if not np.isfinite(state.values.g).all() or state.solver_status == "Invalid_Number_Detected":
            return Status.NUMERICAL_ERROR
        return (
            Status.ITERATION_LIMIT
            if state.solver_status == "Maximum_Iterations_Exceeded"
            else Status.LOCALLY_INFEASIBLE
        )

    def step(self, state: SmoothedState, deadline: float) -> SmoothedState:
        """Solve one NLP; after a first success, a failed NLP does not change the iterate."""
        mpcc, sigma, scale = state.solvers.mpcc, state.sigma, state.solvers.mpcc.w_scale
        p = np.array(state.p)
        p[self.transcription.mpcc.parameters["p"].stop - 1] = sigma
        # After a failure the duals belong to a larger sigma, so start cold.
        dual = state.dual if state.failures == 0 else None
        multipliers = {} if dual is None else dual.duals
        ipopt = self._ipopt(warm=dual is not None)
        # Parameters of relaxed NLPs are (p, weight of the penalty, sigma).
        result = ipopt.solve(state.w / scale, np.concatenate([p, [1.0, sigma]]), **multipliers, deadline=deadline)
        w = result.x * scale
        w = w if np.isfinite(w).all() else state.w  # discard an iterate with NaN or inf
        candidate = replace(state, w=w, p=p, last_sigma=sigma, **self._measure(w, p))
        log: dict[str, Any] = {"iterations": result.iterations, "seconds": result.wall_seconds}
        records = (*state.records, record(candidate, LABEL, sigma, word=result.solver_status, **log))
        status = Status.INTERRUPTED if result.interrupted else None
        if result.solver_status == "User_Requested_Stop" and not result.interrupted:
            # IPOPT says the same for a deadline and for Ctrl-C; only `interrupted` tells them apart.
            status = Status.TIME_LIMIT
        # Before a first success every iterate is as good as the last one.
        following = candidate if result.converged or not state.solved else replace(state, failures=state.failures + 1)
        if result.converged:
            following = replace(
                following, solved=True, failures=0, dual=result, multipliers=nlp_multipliers(mpcc, result)
            )
        next_sigma = sigma * self.options.kappa
        if sigma > self.options.sigma_min * (1 + 1e-9):
            next_sigma = max(next_sigma, self.options.sigma_min)  # the last value is exactly sigma_min
        return replace(following, sigma=next_sigma, records=records, status=status, solver_status=result.solver_status)

    def _ipopt(self, *, warm: bool) -> NLPSolver:
        options = self.options
        settings = {
            "max_iter": options.max_iterations,
            **IPOPT_TOLERANCES,
            **(WARM_START if warm else {}),
            **options.ipopt,
        }
        # There are no products left: the relaxation is a formality of the common interface.
        return self.transcription.solvers.relaxed("scholtes", "direct", settings)

    def _measure(self, w: np.ndarray, p: np.ndarray) -> dict[str, Any]:
        """Return the residuals of the problem without smoothing, as fields of a state."""
        fields, (_, a, b) = measure(self.transcription.solvers.evaluator, w, p), self._sides(w, p)
        minima = np.minimum(a, b)
        # A negative side violates its own bound: that is infeasibility, not complementarity.
        sizes = {"complementarity": scaled_products(a, b), "infeasibility": -minima}
        sizes["complementarity_min"] = np.abs(minima)
        return fields | {name: _worst(size, fields[name]) for name, size in sizes.items()}

    @cached_property
    def _conditions(self) -> Callable[..., list[np.ndarray]]:
        """Function of x at all stages (columns): both sides of all conditions, and durations of impacts."""
        transcription, smoothed = self.transcription, self.smoothed
        sides = [ca.vertcat(ca.SX(0, 1), *[getattr(c, side) for c in smoothed.conditions]) for side in "ab"]
        function = ca.Function("conditions", [transcription.dcs.x, transcription.dcs.p], [*sides, smoothed.durations])
        stages = len(transcription.elements) * transcription.tableau.stages
        return buffered(function.map("stages", "serial", stages, [1], []))

    def _sides(self, w: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return durations of impacts, and both sides of the conditions, at all stages (stages, n)."""
        transcription = self.transcription
        x = transcription.read(w, p).x_stages
        a, b, durations = self._conditions(x.reshape(-1, x.shape[-1]), transcription.parameter_values(w, p))
        return durations.T, a.T, b.T

    # --- the result ---

    def solution(self, state: SmoothedState, seconds: float) -> Solution:
        """Return the solution of a state in terms of the original system."""
        transcription = self.transcription
        # Stationarity of the smoothed problem implies nothing for the original one.
        solution = transcription.solution(
            replace(state, status=Status.NOT_COMPLEMENTARY), solver="IPOPT", wall_seconds=seconds
        )
        status = state.status or Status.STOPPED
        parameters = {name: solution.parameters[name] for name in self.ocp.system.parameter_names}
        return replace(
            solution,
            status=status,
            parameters=parameters,
            p=solution.p[:-1],
            method=repr(self.options),
            discretization=None,  # its elements belong to the smoothed system
            worst=self._worst(state, solution.worst),
            message="; ".join([*self._remaining_smoothing(state), *self._unresolved_impacts(state, solution)]),
        )

    def _remaining_smoothing(self, state: SmoothedState) -> list[str]:
        """Return a note on the smoothing that is left in an iterate and on how to continue."""
        if state.status is Status.SOLVED or not state.records:
            return []
        fits = "FESDJ" if self.ocp.system.mechanical else "FESD"
        if not state.solved:
            return [f"no smoothed problem was solved, the last with sigma = {state.last_sigma:.1e}"]
        stopped = "" if state.failures == 0 else f", smaller ones failed ({state.solver_status})"
        return [
            f"smoothing sigma = {state.last_sigma:.1e} is left{stopped}: complementarity {state.complementarity:.1e}; "
            f"for a solution without any, start ns.solve(ocp, ns.{fits}(...), guess=...) from this one, or from the "
            "exact motion under its control, ns.simulate(ocp.system, x0=solution.x0, duration=solution.horizon, "
            "u=solution, method=ns.EventDriven())"
        ]

    def _unresolved_impacts(self, state: SmoothedState, solution: Solution) -> list[str]:
        """Warn if impacts last less than 5 steps: the effective restitution is then a discretisation artefact."""
        durations, _, _ = self._sides(state.w, state.p)
        shortest = float(durations.min(initial=np.inf))
        step = solution.horizon / len(self.transcription.elements)
        if shortest >= STEPS_PER_IMPACT * step:
            return []
        return [
            f"impacts last {shortest:.1e} s at this smoothing, steps {step:.1e} s: restitution is not resolved; use "
            "more steps or a larger sigma_min"
        ]

    def _worst(self, state: SmoothedState, others: tuple[Residual, ...]) -> tuple[Residual, ...]:
        """Return the five largest residuals, including those of the conditions."""
        _, a, b = self._sides(state.w, state.p)
        stages = self.transcription.tableau.stages
        elements = self.transcription.elements
        residuals = list(others)
        labels = [label for condition in self.smoothed.conditions for label in condition.labels]
        sizes = {"complementarity": scaled_products(a, b), "bound": np.maximum(0.0, np.maximum(-a, -b))}
        for kind, size in sizes.items():
            for label, column in zip(labels, size.T, strict=True):
                stage = int(np.argmax(column))
                where = str(replace(elements[stage // stages].at, rk=stage % stages))
                residuals.append(Residual(float(column[stage]), kind, label, where))
        ranked = sorted((item for item in residuals if item.value > 0.0), key=lambda item: -item.value)
        return tuple(ranked[:5])


def _without_constraints(mpcc: MPCC, role: Role) -> MPCC:
    """Remove the constraints of a role from a program: with fixed steps, those on lengths are redundant."""
    layout = Layout()
    rows: list[int] = []
    for block in mpcc.constraints.blocks():
        if block.role is not role:
            rows += range(block.start, block.start + block.size)
            layout.add(block.name, block.at, block.components, block.role, block.edge, block.of)
    fields = {key: getattr(mpcc, key)[rows] for key in ("lbg", "ubg", "g_scale")}
    return replace(mpcc, g=mpcc.g[rows, 0], constraints=layout, **fields)


def _worst(sizes: np.ndarray, other: float) -> float:
    """Return the largest residual; NaN counts as infinite."""
    return float(max(finite_or_inf(sizes).max(initial=0.0), other))
