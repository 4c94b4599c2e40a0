"""Random scenes beside independent simulations: `python -m problems.benchmarks.fuzz`.

Kinds: bodies, shapes in space, couplings and loops, friction laws, data in explicit time, Filippov systems and more. A
scene is given by its kind, seed and number. A motion that is solved and wrong is a failure, and so is a remedy that
does not help; scenes without an oracle, and those in which small changes of the data decide, are counted apart.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.progress import Progress
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.fuzzing import BAD, KINDS, judge


def experiment(
    kinds: tuple[str, ...] = tuple(KINDS),
    seed: int = 0,
    first: int = 0,
    count: int = 50,
) -> list[dict[str, Any]]:
    """Return the verdicts of `count` scenes of every kind from number `first` on."""
    for kind in kinds:
        if kind not in KINDS:
            raise OptionError(unknown_name(kind, KINDS, "kind"))
    return [judge(kind, seed, index) for kind in kinds for index in range(first, first + count)]


def run(settings: Settings, progress: Progress) -> Report:
    """Judge the scenes; none may be bad."""
    rows = experiment(**settings.arguments)
    counts = {
        kind: Counter(row["verdict"] for row in rows if row["kind"] == kind) for kind in settings.arguments["kinds"]
    }
    bad = [{name: row[name] for name in ("kind", "seed", "index", "verdict")} for row in rows if row["verdict"] in BAD]
    table = [{"kind": kind, "scenes": sum(own.values()), "verdicts": dict(own)} for kind, own in counts.items()]
    status = ns.Status.INACCURATE if bad else ns.Status.SOLVED
    return tabled({"status": status.value, "bad": bad}, not bad, {"scenes": table, "bad": bad})


PROGRAM = program(__name__, run, experiment, quick={"kinds": ("bodies",), "count": 3})
