"""Time of one try of the search, by its parts: `python -m problems.benchmarks.one_try`.

A try is what the search does many times: simulate a start, read its sequence of modes, build the smooth program of that
sequence, solve it, and certify the solution by a simulation. The parts are measured from outside: the functions of
`PARTS` are wrapped wherever they are called, and a part that is called by another one counts as that one. What is left
of the processor time is "other": Python between the parts.

Beside them stand baselines (`one_try_peers`): the same program written by hand with Opti and IPOPT, a simulation with
SciPy's DOP853 and its event, a step of MuJoCo. `--set cases=ball,paddle` measures some cases, `--set page=FILE` writes
the tables for the documentation.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks.one_try_cases import CASES, Bounce
from problems.benchmarks.one_try_peers import by_opti, by_scipy, step_of_mujoco
from problems.benchmarks.orders import check_names
from problems.runner import Report, markdown, program, tabled
from problems.settings import Settings

COMMAND = "python -m problems.benchmarks.one_try"
# Functions and methods of the parts, by the module that defines them.
PARTS: dict[str, tuple[str, ...]] = {
    "simulating": ("nosnoc_py.simulation.event_driven.run:run",),
    "reading": ("nosnoc_py.sequences.reading:read_sequence",),
    "building": (
        "nosnoc_py.sequences.program:PhaseNLP.__init__",
        "nosnoc_py.mpcc.interior.method:InteriorPoint.__init__",
        "nosnoc_py.mpcc.ipopt:Ipopt.__init__",
        "nosnoc_py.transcription.transcribe:transcribe",
    ),
    "solving": (
        "nosnoc_py.mpcc.interior.method:InteriorPoint.solve",
        "nosnoc_py.mpcc.ipopt:Ipopt.solve",
        "nosnoc_py.mpcc.strategy:Strategy.run",
    ),
    "certifying": ("nosnoc_py.simulation.certification.certify:certify",),
}
OTHER = "other"
QUICK = ("ball", "paddle")


class PartTimes:
    """Processor times [s] and numbers of calls by part; calls inside a part belong to it.

    Parameters
    ----------
    clock : function
        The time [s].
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self.clock = clock
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.calls = dict.fromkeys(PARTS, 0)
        self._inside = False

    def wrapped(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its time counted."""

        def call(*arguments: Any, **named: Any) -> Any:
            if self._inside:
                return function(*arguments, **named)
            self._inside, began = True, self.clock()
            try:
                return function(*arguments, **named)
            finally:
                self._inside = False
                self.seconds[part] += self.clock() - began
                self.calls[part] += 1

        return call


@contextmanager
def measured_parts() -> Iterator[PartTimes]:
    """Measure the parts in this block: every module's name for one of their functions is replaced meanwhile."""
    # A module that is imported in the block would keep the replacement for ever.
    names = [each.name for each in pkgutil.walk_packages(ns.__path__, "nosnoc_py.")]
    modules = []
    for name in names:
        with suppress(ImportError):  # of an extra that is absent
            modules += [] if name.endswith("__main__") else [importlib.import_module(name)]
    times = PartTimes()
    with ExitStack() as stack:
        for part, places in PARTS.items():
            for place in places:
                module, _, path = place.partition(":")
                owner: Any = importlib.import_module(module)
                *outer, name = path.split(".")
                for each in outer:
                    owner = getattr(owner, each)
                original = getattr(owner, name)
                wrapped = times.wrapped(part, original)
                users = [owner] if outer else [m for m in modules if m.__dict__.get(name) is original]
                for user in users:
                    stack.enter_context(patch.object(user, name, wrapped))
        yield times


def measure(name: str) -> dict[str, Any]:
    """Return the row of a case: its times by part [s], in all, and the result."""
    case = CASES[name]
    ocp = case.build()
    with measured_parts() as times:
        began = time.process_time()
        solution = ns.solve(ocp, case.method, guess=case.guess())
        total = time.process_time() - began
    certificate = solution.certificate
    return {
        "case": name,
        "states": len(ocp.system.state_names),
        **times.seconds,
        OTHER: total - sum(times.seconds.values()),
        "total": total,
        "programs": len(solution.log),
        "iterations": solution.iterations,
        "objective": solution.objective,
        "verdict": solution.status.value if certificate is None else certificate.verdict.value,
    }


def beside(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the baselines of a case; None where there is none."""
    case = CASES[name]
    results: dict[str, Any] = {"case": name, "one try [ms]": 1e3 * row["total"], "Opti [ms]": None, "differs by": None}
    results |= {"simulation [ms]": None, "DOP853 [ms]": None, "difference": None, "MuJoCo step [us]": None}
    if case.hand is not None:
        seconds, objective, solved = by_opti(case.hand)
        results["Opti [ms]"] = 1e3 * seconds if solved else None
        # Grids may differ by a control interval in each phase.
        results["differs by"] = abs(objective - row["objective"]) / max(abs(row["objective"]), 1e-9)
        ours, theirs = _simulated(case.build().system, case.hand), by_scipy(case.hand)
        results["simulation [ms]"], results["DOP853 [ms]"] = 1e3 * ours[0], 1e3 * theirs[0]
        results["difference"] = float(np.abs(ours[1] - theirs[1]).max())
    if case.model is not None:
        step = step_of_mujoco(case.model())
        results["MuJoCo step [us]"] = None if step is None else 1e6 * step
    return results


def _simulated(system: Any, hand: Bounce) -> tuple[float, np.ndarray]:
    """Return processor seconds and final state of the second simulation: the first one compiles expressions."""
    given: dict[str, Any] = {"x0": hand.x0, "duration": hand.horizon, "u": [hand.u]}
    ns.simulate(system, **given)
    began = time.process_time()
    motion = ns.simulate(system, **given)
    return time.process_time() - began, np.asarray(motion.x[-1])


def experiment(cases: tuple[str, ...] = (), page: str = "", *, progress: Progress) -> list[dict[str, Any]]:
    """Measure all cases, or some.

    Parameters
    ----------
    cases : tuple of str
        Names, by default all.
    page : str
        File for the tables of the documentation.
    """
    check_names(case=(cases, CASES))
    measure("ball")  # SciPy's parts, imported at first use, are no part of a try
    rows = []
    for name in cases or CASES:
        progress.describe(name)
        row = measure(name)
        rows.append({"parts": row, "beside": beside(name, row)})
    if page:
        Path(page).write_text(page_of(rows), encoding="utf-8")
    return rows


def page_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the tables as Markdown: shares of the parts, and baselines."""
    lines = [
        f"Written by `{COMMAND} --set page=docs/results/one_try.md`. Processor time on one core; parts in per cent.",
        "",
        "**One try by its parts**",
        "",
    ]
    shares = []
    for row in rows:
        part = row["parts"]
        percent = {name: f"{100 * part[name] / part['total']:.0f}" for name in (*PARTS, OTHER)}
        counts = {"seconds": f"{part['total']:.3g}", "programs": part["programs"], "iterations": part["iterations"]}
        shares.append({"case": part["case"], "states": part["states"], **percent, **counts, "verdict": part["verdict"]})
    lines += [*_markdown(shares), "", "**Beside it**", ""]
    lines += _markdown([row["beside"] for row in rows if any(v is not None for v in [*row["beside"].values()][2:])])
    return "\n".join([*lines, ""])


def _markdown(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table; None is a dash."""
    cells = [["-" if v is None else f"{v:.3g}" if isinstance(v, float) else str(v) for v in r.values()] for r in rows]
    return markdown(list(rows[0]), cells) if rows else []


def run(settings: Settings, progress: Progress) -> Report:
    """Measure and report; success if every program by hand has the objective of the library within 5 %."""
    rows = experiment(**settings.arguments, progress=progress)
    others = [row["beside"] for row in rows]
    return tabled(
        {"parts": [row["parts"] for row in rows], "beside": others},
        all(row["differs by"] is None or row["differs by"] < 0.05 for row in others),
        {"one try: processor seconds by part": [row["parts"] for row in rows], "beside it": others},
    )


PROGRAM = program(__name__, run, experiment, quick={"cases": QUICK})
