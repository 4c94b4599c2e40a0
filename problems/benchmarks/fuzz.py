"""Random scenes and wrong inputs, compared with reference solutions: `python -m problems.benchmarks.fuzz`.

Bodies with contacts in the plane and Filippov systems, by `ns.simulate(system, x0=..., duration=...)`, are compared
with an independent event-driven reference (`tests/references/event_oracle.py`); calls with one wrong argument must
raise a clear message. Scene k of a kind follows from the seed and k. `--set output=FILE.jsonl` keeps every verdict and
runs no scene twice; `--set kinds=bodies only=17` repeats one.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from nosnoc_py.errors import OptionError
from nosnoc_py.progress import Progress
from nosnoc_py.solution.trajectory import jsonable
from problems.benchmarks.orders import check_names
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.fuzzing import BAD, GAINS, HONEST, KINDS, NO_MOTION, RESTS, judge

NO_REMEDY = ", and the advice of the message does not help"


def experiment(
    count: int = 100,
    seed: int = 0,
    only: tuple[int, ...] = (),
    kinds: tuple[str, ...] = tuple(KINDS),
    output: str = "",
    *,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Judge the first `count` scenes of every kind, or those with the indices `only`, which are always run."""
    if count < 1:
        raise OptionError(f"count: expected a positive number of scenes, given {count}.")
    check_names(kind=(kinds, KINDS))
    file = Path(output) if output else None
    lines = file.read_text().splitlines() if file and file.exists() and not only else []
    known = {(row["kind"], row["seed"], row["index"]): row for row in map(json.loads, lines)}
    rows = []
    for kind, index in [(kind, index) for index in only or range(count) for kind in kinds]:
        progress.describe(f"{kind} {index}")
        row = known.get((kind, seed, index))
        if row is None:
            row = jsonable(judge(kind, seed, index))
            if file:
                with file.open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
        rows.append(row)
    return rows


def run(settings: Settings, progress: Progress) -> Report:
    """Count the verdicts; the exit code is 1 if anything is wrong. Failures with a status do not matter."""
    rows = experiment(**settings.arguments, progress=progress)
    counts = {
        kind: Counter(row["verdict"] for row in rows if row["kind"] == kind) for kind in settings.arguments["kinds"]
    }
    table = [
        row for row in rows if row["verdict"] in (*BAD, HONEST, GAINS, NO_MOTION, RESTS) or settings.arguments["only"]
    ]
    tables = {kind: [{"kind": kind, **{v: counted[v] for v in KINDS[kind]}}] for kind, counted in counts.items()}
    lines = [
        f"{row['verdict']}{NO_REMEDY * (not row.get('remedy', True))}: --set seed={row['seed']} kinds={row['kind']} "
        f"only={row['index']}: {row['said']} "
        + ", ".join(f"{name} {row[name]:.2g}" for name in ("error", "kappa", "itself", "rest_velocity") if name in row)
        for row in table
    ]
    results = {"counts": {kind: dict(counted) for kind, counted in counts.items()}, "scenes": rows}
    return tabled(results, not any(row["verdict"] in BAD for row in rows), tables, said=lines)


PROGRAM = program(__name__, run, experiment, quick={"count": 4})
