"""Speed of solving again compared with solving from scratch: `python -m problems.benchmarks.resolve_speed`.

The optimal control problem of the particle (`problems.particle`, Example 5) from many initial states along a path,
each solved in four ways with the same solver options: anew, with its own transcription, or again, through one
transcription for all; from the default start, or from the solution of the state before. Beside the times stand the
objectives, which have to be the same where the start is, and may be those of other local optima where it is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np
from attrs import evolve

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from nosnoc_py.progress import Progress
from problems import particle
from problems.runner import Report, program, tabled
from problems.settings import Settings

# Coarser than `problems.particle`, where a solution from the default start takes seconds, and often is another optimum.
METHOD = particle.METHOD.replace(fesd=particle.METHOD.fesd.replace(control_stages=5, finite_elements=3))
WAYS = ("anew, default start", "again, default start", "anew, from the last one", "again, from the last one")
ANEW, AGAIN, ANEW_WARM, AGAIN_WARM = WAYS
PAIRS = ((ANEW, AGAIN), (ANEW_WARM, AGAIN_WARM), (ANEW, AGAIN_WARM))
ROWS = 5  # rows of the path, which goes to and fro
SAME = 1e-6  # relative difference of objectives that are the same
WANTED = 3.0  # the ratio that counts as success
MANY = 20  # least number of states; with fewer the one solution from the default start dominates


def states(count: int) -> np.ndarray:
    """Return initial states (count, 4) at rest, around the nominal one (0, 1), ordered along a path."""
    if count < 2:
        raise OptionError(f"states: expected at least 2, given {count!r}.")
    rows = min(ROWS, count)
    path = [
        (x, y)
        for k, x in enumerate(np.linspace(-0.1, 0.1, rows))
        for y in np.linspace(0.9, 1.1, -(-count // rows))[:: 1 if k % 2 == 0 else -1]
    ]
    return np.array([[x, y, 0.0, 0.0] for x, y in path[:count]])


def measured(
    starts: np.ndarray, method: Any, solver: Any, progress: Callable[[Any], Any] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return seconds, iterations, objective and status of every start, in every way; the ways take turns."""
    ocp = particle.build()
    began = time.perf_counter()
    problem = ns.transcribe(ocp, method)
    transcribed = time.perf_counter() - began
    rows: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    last: dict[str, ns.Solution | None] = dict.fromkeys(WAYS)
    for k, x0 in enumerate(starts):
        for way in WAYS:
            guess = last[way] if way in (ANEW_WARM, AGAIN_WARM) else None
            began = time.perf_counter()
            if way in (AGAIN, AGAIN_WARM):
                solution = problem.solve(solver, x0=x0, guess=guess, callback=progress)
            else:
                start: dict[str, Any] = {"guess": guess, "callback": progress}
                solution = ns.solve(evolve(ocp, x0=x0), method, solver, **start, certify=False)
            # Each way through one transcription includes the time to build it.
            own = transcribed if k == 0 and way in (AGAIN, AGAIN_WARM) else 0.0
            rows[way].append(
                {
                    "seconds": time.perf_counter() - began + own,
                    "iterations": solution.iterations,
                    "objective": solution.objective,
                    "status": solution.status.value,
                }
            )
            last[way] = solution if solution.success else last[way]
    return rows


def compared(rows: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return for pairs of ways the ratio of their times and the differences of their objectives."""
    table = []
    for slow, fast in PAIRS:
        both = [(a, b) for a, b in zip(rows[slow], rows[fast], strict=True) if a["status"] == b["status"] == "solved"]
        gaps = [(b["objective"] - a["objective"]) / max(1.0, abs(a["objective"])) for a, b in both]
        table.append(
            {
                "slow": slow,
                "fast": fast,
                "ratio": sum(row["seconds"] for row in rows[slow]) / sum(row["seconds"] for row in rows[fast]),
                "both_solved": len(both),
                "largest_difference": max(map(abs, gaps), default=None),
                "lower": sum(gap < -SAME for gap in gaps),
                "higher": sum(gap > SAME for gap in gaps),
            }
        )
    return table


def run(settings: Settings, progress: Progress) -> Report:
    """Solve all and compare the times."""
    rows = measured(states(settings.arguments["states"]), settings.method, settings.solver, progress)
    pairs = compared(rows)
    totals = {way: _total(values) for way, values in rows.items()}
    solved = all(total["solved"] == len(rows[ANEW]) for total in totals.values())
    fast = pairs[-1]["ratio"] >= WANTED or len(rows[ANEW]) < MANY
    return tabled(
        {"status": "solved" if solved else "partly", "ways": totals, "pairs": pairs, "rows": rows},
        fast and pairs[0]["higher"] + pairs[0]["lower"] == 0,
        {"ways": [{"way": way, **total} for way, total in totals.items()], "ratios of times": pairs},
        said=["relative differences of objectives; lower and higher: the fast way found another optimum"],
    )


def _total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    values = {name: [row[name] for row in rows] for name in ("seconds", "iterations")}
    return {
        "solved": sum(row["status"] == "solved" for row in rows),
        **{name: sum(each) for name, each in values.items()},
        **{f"median_{name}": median(each) for name, each in values.items()},
    }


PROGRAM = program(
    __name__,
    run,
    {"states": 50},
    quick={"states": 3},
    method=METHOD,
    solver=ns.Auto(),
    fixed=("fesd", "epsilon_t", "stiffness"),
)
