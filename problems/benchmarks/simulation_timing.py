"""What a step costs: the active-set Newton method and the homotopy on MPCCs, on the same steps in one process.

All times are seconds of the processor, of this thread: other work on the machine counts for nobody. Simulators are
built and have stepped before anything is measured; then all methods take turns with the whole motion, Newton's method
several times in each, and the best turn of each method counts. The clock is read twice per turn: a reading may take as
long as a step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from tests.references.simulations import Case

Array = NDArray[np.float64]
AGAIN = 5  # simulations by Newton's method per turn, whose mean counts
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
    state = simulator.init(case.x0)
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Row:
    """What the steps of a case cost.

    Parameters
    ----------
    case : str
    steps : int
    events : int
        That the simulation found.
    milliseconds : mapping
        Per step on average, by the name of the solver.
    errors : mapping
        Largest error of the state at the step ends against the exact motion.
    differences : mapping
        Largest difference of the states at the step ends to those of Newton's method.
    fallbacks, broken : tuple of Fallback
        Steps that Newton's method left to an MPCC, and steps that were not solved then, either.
    failures : tuple of Fallback
        Of the homotopies; after them they went on from Newton's states.
    """

    case: str
    steps: int
    events: int
    milliseconds: Mapping[str, float]
    errors: Mapping[str, float]
    differences: Mapping[str, float]
    fallbacks: tuple[Fallback, ...]
    broken: tuple[Fallback, ...]
    failures: tuple[Fallback, ...]

    @property
    def speedup(self) -> float:
        """Time of a step by the homotopy over that by Newton's method."""
        return self.milliseconds[HOMOTOPY] / self.milliseconds[NEWTON]

    @property
    def speedup_tight(self) -> float:
        """The same for the homotopy that ends with exact residuals."""
        return self.milliseconds[TIGHT] / self.milliseconds[NEWTON]

    @property
    def speedup_relaxed(self) -> float:
        """The same for relaxations alone."""
        return self.milliseconds[RELAXED] / self.milliseconds[NEWTON]

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name."""
        return {
            **vars(self),
            "speedup": self.speedup,
            "speedup_tight": self.speedup_tight,
            "speedup_relaxed": self.speedup_relaxed,
            **{name: [asdict(x) for x in getattr(self, name)] for name in ("fallbacks", "broken", "failures")},
        }


def measure(case: Case, repeats: int, progress: Progress) -> Row:
    """Simulate a case by all solvers in turns."""
    progress.describe(case.name)
    simulators = {name: simulator_of(case, name) for name in SOLVERS}
    trajectory = simulators[NEWTON].run(case.x0, steps=case.steps, u=case.u)
    reference = chain(case, simulators[NEWTON]).x
    for name in MPCC:
        chain(case.shortened(1), simulators[name])
    turns: list[dict[str, Chain]] = []
    best = dict.fromkeys(SOLVERS, np.inf)
    for _ in range(repeats):
        turns.append({name: chain(case, simulator, reference) for name, simulator in simulators.items()})
        again = [chain(case, simulators[NEWTON]).seconds for _ in range(AGAIN)]
        spent = {name: found.seconds for name, found in turns[-1].items()} | {NEWTON: float(np.mean(again))}
        best = {name: min(best[name], spent[name]) for name in SOLVERS}
    first = turns[0]
    return Row(
        case=case.name,
        steps=case.steps,
        events=len(trajectory.events),
        milliseconds={name: 1e3 * seconds / case.steps for name, seconds in best.items()},
        errors={name: error_of(case, first[name].x) for name in SOLVERS},
        differences={name: distance(first[name].x, reference) for name in MPCC},
        fallbacks=first[NEWTON].fallbacks,
        broken=first[NEWTON].failures,
        failures=tuple(entry for name in MPCC for entry in first[name].failures),
    )


def distance(x: Array, reference: Array) -> float:
    """The largest difference of states (n, n_x); what failed does not count."""
    return float(np.nanmax(np.abs(x - reference)))


def error_of(case: Case, x: Array) -> float:
    """The largest error at the step ends; NaN without an exact motion."""
    return np.nan if case.exact is None else distance(x, case.exact(np.linspace(0.0, case.duration, case.steps + 1)))


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers."""
    return float(np.exp(np.mean(np.log(values))))
