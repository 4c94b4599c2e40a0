"""Time of default simulations, compared with DOP853 by hand: `python -m problems.benchmarks.simulation_cost`.

Both sides locate their own events. The other side is `scipy.integrate.solve_ivp` with right-hand sides, terminal events
and jumps written by hand for every case (`tests/references/restarts.py`). Both get the loosest tolerance,
a power of ten, from which on all errors of the state at the end stay below the target; then they take turns in this
process, and of each the best time of the processor counts. Errors are measured against DOP853 at 1e-13.

Times are of a repeated call of `ns.simulate`, trajectory with contact forces and dense output included: what CasADi
compiles is kept by the system. The first call of a system, and a call by an `ns.Simulator`, are listed separately.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks.orders import check_names, geometric_mean
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.restarts import CASES, RestartCase

TIGHTEST, AIM = 1e-13, 2.0
Row = dict[str, Any]
TOLERANCES = tuple(10.0**-k for k in range(2, 14))


def experiment(
    cases: tuple[str, ...] = tuple(CASES),
    targets: tuple[float, ...] = (1e-4, 1e-6, 1e-9),
    repeats: int = 15,
    *,
    progress: Progress,
) -> tuple[list[Row], list[Row]]:
    """Return costs of every case and target, and of calls.

    A cost has tolerance, error and milliseconds of `ns.simulate` and, as `its_...`, of DOP853; with the target 0
    `ns.simulate` has no options, and DOP853 the tightest tolerance. Calls are the first one of a system, later ones,
    and those by a Simulator, in milliseconds.

    Parameters
    ----------
    cases : tuple of str
        Names in `tests.references.restarts`.
    targets : tuple of float
        Errors of the state at the end, the largest component.
    repeats : int
        Turns, of which the best one counts.
    """
    costs, calls = list[Row](), list[Row]()
    check_names(cases=(cases, CASES))
    for name in cases:
        progress.describe(name)
        system = CASES[name].build()
        calls.append(_calls(CASES[name], system, repeats))
        costs += _costs(CASES[name], system, targets, repeats)
    return costs, calls


def simulate(case: RestartCase, system: Any, tolerance: float | None = None) -> ns.Trajectory:
    """Simulate by default, or with another tolerance."""
    options: dict[str, Any] = {} if tolerance is None else {"method": ns.EventDriven(rtol=tolerance, atol=tolerance)}
    return ns.simulate(system, x0=case.x0, duration=case.duration, u=case.u, **options)


def _calls(case: RestartCase, system: Any, repeats: int) -> Row:
    first, trajectory = _timed(lambda: simulate(case, system))
    simulator = ns.Simulator(system, ns.EventDriven(), step=case.duration)
    sides = (lambda: simulate(case, system), lambda: simulator.run(case.x0, steps=1, u=case.u))
    again, by_simulator = _best(sides, repeats)
    events = len(trajectory.events)
    return {"case": case.name, "first": 1e3 * first, "again": again, "simulator": by_simulator, "events": events}


def _costs(case: RestartCase, system: Any, targets: Sequence[float], repeats: int) -> list[Row]:
    reference = case.by_restarts(TIGHTEST)

    def errors(run: Callable[[float], Any]) -> list[float]:
        return [float(np.abs(run(tolerance) - reference).max()) for tolerance in TOLERANCES]

    def mine(tolerance: float | None) -> Any:
        return simulate(case, system, tolerance).final_state

    both, costs = (errors(mine), errors(case.by_restarts)), []
    by_default, tightest = float(np.abs(mine(None) - reference).max()), both[1][-2]
    rows: list[tuple[float, float | None, float, float, float]] = [(0.0, None, by_default, TOLERANCES[-2], tightest)]
    for target in targets:
        first, second = (_loosest(pairs, target) for pairs in both)
        if first is not None and second is not None:
            rows.append((target, TOLERANCES[first], both[0][first], TOLERANCES[second], both[1][second]))
    for target, tolerance, error, its, its_error in rows:
        sides = (lambda t=tolerance: mine(t), lambda t=its: case.by_restarts(t))
        spent, its_spent = _best(sides, repeats)
        costs.append(
            {
                "case": case.name,
                "target": target,
                "tolerance": ns.EventDriven().rtol if tolerance is None else tolerance,
                "error": error,
                "milliseconds": spent,
                "its_tolerance": its,
                "its_error": its_error,
                "its_milliseconds": its_spent,
                "ratio": spent / its_spent,
            }
        )
    return costs


def _loosest(errors: Sequence[float], target: float) -> int | None:
    """Return the first of some errors from which on all are below a target."""
    above = [i for i, error in enumerate(errors) if not error <= target]
    first = max(above, default=-1) + 1
    return first if first < len(errors) else None


def _best(sides: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """Return the milliseconds of the best of some turns."""
    turns = [[_timed(side)[0] for side in sides] for _ in range(repeats)]
    return [1e3 * float(best) for best in np.min(turns, axis=0)]


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    started = time.thread_time()
    result = run()
    return time.thread_time() - started, result


def run(settings: Settings, progress: Progress) -> Report:
    """Measure; times do not matter, but every target has to be reached."""
    targets = settings.arguments["targets"]
    costs, calls = experiment(**settings.arguments, progress=progress)
    means = {target: geometric_mean([c["ratio"] for c in costs if c["target"] == target]) for target in (*targets, 0.0)}
    ratios = [cost["ratio"] for cost in costs if cost["target"]]
    reached = len(ratios) == len(targets) * len(calls)
    slow = sorted({cost["case"] for cost in costs if cost["target"] and cost["ratio"] > AIM})
    tables: dict[str, list[Row]] = {
        f"errors below {target:g}" if target else "without options, beside DOP853 at 1e-12": [
            cost for cost in costs if cost["target"] == target
        ]
        for target in means
    }
    tables["ms of calls without options"] = calls
    lines = [f"ratio, geometric mean: {_told(means, targets)}; all targets {geometric_mean(ratios):.3g} (aim {AIM:g})"]
    lines.append(f"above the aim: {', '.join(slow) or 'none'}")
    results = {
        "ratios": {f"{target:g}": mean for target, mean in means.items() if target},
        "ratio": geometric_mean(ratios),
        "ratio_without_options": means[0.0],
        "costs": costs,
        "calls": calls,
    }
    status = ns.Status.SOLVED if reached else ns.Status.INACCURATE
    return tabled({"status": status.value, **results}, reached, tables, said=lines)


def _told(means: dict[float, float], targets: Sequence[float]) -> str:
    texts = [f"{means[target]:.3g} at {target:g}" for target in targets]
    return ", ".join([*texts, f"{means[0.0]:.3g} without options"])


PROGRAM = program(
    __name__, run, experiment, quick={"cases": ("oscillator", "bouncing ball"), "targets": (1e-6,), "repeats": 2}
)
