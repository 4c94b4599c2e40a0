"""A simulation of `simulations` step by step, by Newton's method or by MPCCs: states, times, steps that failed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from tests.references.simulations import Case

Array = NDArray[np.float64]
NEWTON, HOMOTOPY, TIGHT, RELAXED = "newton", "homotopy", "tight", "relaxed"
MPCC = (HOMOTOPY, TIGHT, RELAXED)
# As a user would write it; as the library does, to exact residuals; and relaxations only, without an active-set finish.
SOLVERS: Mapping[str, Any] = {
    NEWTON: None,
    HOMOTOPY: ns.Homotopy(),
    TIGHT: SIMULATION_SOLVER,
    RELAXED: ns.Homotopy(finish="none"),
}


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """A step that Newton's method left to the MPCC, or that failed.

    Parameters
    ----------
    case : str
    step : int
        From 0 on.
    time : float
        Of its beginning [s].
    seconds : float
        On the clock on the wall.
    reason : str
    """

    case: str
    step: int
    time: float
    seconds: float
    reason: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Chain:
    """A simulation, step by step.

    Parameters
    ----------
    x : (steps + 1, n_x)
        States at the step ends; what failed is NaN.
    seconds : float
        Of the processor, all steps together.
    fallbacks, failures : tuple of Fallback
    complementarity, infeasibility : float
        Largest residuals.
    """

    x: Array
    seconds: float
    fallbacks: tuple[Fallback, ...]
    failures: tuple[Fallback, ...]
    complementarity: float
    infeasibility: float


def chain(case: Case, simulator: ns.Simulator, restart: Array | None = None, time_limit: float | None = None) -> Chain:
    """Simulate a case; after a step that fails it goes on from the states `restart` (steps + 1, n_x), if given.

    `time_limit` is that of a step [s].
    """
    state: Any = simulator.init(case.x0)
    x = np.full((case.steps + 1, state.x.size), np.nan)
    x[0] = state.x
    fallbacks, failures, residuals = list[Fallback](), list[Fallback](), [(0.0, 0.0)]
    began = time.thread_time()
    for k in range(case.steps):
        started = time.perf_counter()
        state = simulator.step(state, case.u[k], time_limit=time_limit)
        took = time.perf_counter() - started
        said = Fallback(case=case.name, step=k, time=k * case.step, seconds=took, reason=state.message)
        if state.w is None:
            failures.append(said)
            if restart is None:
                break
            state = replace(simulator.init(case.x0), x=restart[k + 1], t=(k + 1) * case.step)
            continue
        x[k + 1] = state.x
        residuals.append((state.complementarity, state.infeasibility))
        if state.attempts and state.message:
            fallbacks.append(said)
    seconds = time.thread_time() - began
    worst = np.max(residuals, axis=0)
    return Chain(
        x=x,
        seconds=seconds,
        fallbacks=tuple(fallbacks),
        failures=tuple(failures),
        complementarity=float(worst[0]),
        infeasibility=float(worst[1]),
    )


def simulator_of(case: Case, name: str) -> ns.Simulator:
    """The simulator of a case with one of the `SOLVERS`."""
    return ns.Simulator(case.system, case.method, step=case.step, solver=SOLVERS[name])


def distance(x: Array, reference: Array) -> float:
    """The largest difference of states (n, n_x); what failed does not count."""
    return float(np.nanmax(np.abs(x - reference)))


def error_of(case: Case, x: Array) -> float:
    """The largest error at the step ends; NaN without an exact motion."""
    return np.nan if case.exact is None else distance(x, case.exact(np.linspace(0.0, case.duration, case.steps + 1)))
