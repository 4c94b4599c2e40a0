"""Robots without a schedule: the plain call on tasks with a start, a goal, limits and a cost.

`python -m problems.benchmarks.robots` solves the tasks of `problems/robots` one after the other, and shows what was
found, by which kind of start, and for how much processor time. `--set films=FOLDER` writes a film of every motion,
`--set motions=FOLDER` saves them (`problems.benchmarks.robots_tracked` tracks them).
Rows are kept in `kept`, so that an interrupted run goes on.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any, Literal

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.robots import TASKS, builder
from problems.runner import Report, program, tabled
from problems.settings import Settings

Row = dict[str, Any]


def experiment(
    names: tuple[str, ...] = tuple(TASKS),
    seeds: tuple[int, ...] = (0,),
    effort: Literal["quick", "normal", "thorough"] = "normal",
    kept: str = "",
    films: str = "",
    motions: str = "",
) -> list[Row]:
    """Return a row per task and seed; rows that are kept in a file of lines are not computed again."""
    store, rows = Path(kept) if kept else None, list[Row]()
    known = [json.loads(line) for line in store.read_text().splitlines()] if store and store.exists() else []
    for name in names:
        for seed in seeds:
            row = next(
                (row for row in known if (row["task"], row["seed"], row["effort"]) == (name, seed, effort)), None
            )
            if row is None:
                row = _solved(name, seed, effort, films, motions)
                if store is not None:
                    with store.open("a") as lines:
                        lines.write(json.dumps(row) + "\n")
            rows.append(row)
    return rows


def _solved(name: str, seed: int, effort: Literal["quick", "normal", "thorough"], films: str, motions: str) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files: they are said by `nosnoc-py robot`
        ocp = builder(name)()
    began = time.process_time()
    solution = ns.solve(ocp, effort=effort, seed=seed, progress=False)
    seconds = time.process_time() - began
    if films:
        ns.animate(ocp.system, solution, Path(films) / f"{name}.gif")
    if motions:
        solution.save(Path(motions) / f"{name}_{seed}.nc")
    same = [each for each in solution.candidates if each.sequence == solution.sequence]
    return {
        "task": name,
        "seed": seed,
        "effort": effort,
        "states": len(ocp.system.state_names),
        "verdict": str(solution.certificate.verdict) if solution.certificate else str(solution.status),
        "objective": float(f"{solution.objective:.6g}"),
        "phases": len(solution.sequence) if solution.sequence else 0,
        "found by": same[0].start if same else "",
        "processor time [s]": round(seconds, 1),
    }


def run(settings: Settings, progress: Progress) -> Report:
    """Solve the tasks; a success is a run in which every motion is confirmed."""
    rows = experiment(**settings.arguments)
    confirmed = [row["verdict"].startswith("confirmed") for row in rows]
    said = [f"{sum(confirmed)} of {len(rows)} confirmed"]
    return tabled({"tasks": rows, "confirmed": sum(confirmed)}, all(confirmed), {"robots": rows}, said=said)


PROGRAM = program(__name__, run, experiment, quick={"names": ("gripper",), "effort": "quick"})
