"""Time of simulation steps: `python -m problems.benchmarks.simulation_speed`.

Steps are solved by the active-set Newton method and as MPCCs by a homotopy, with equal scheme and step, and the results
are compared. A test compares them on every simulation of the library (`tests/problems/test_simulation_speed.py`);
`simulation_cost` measures whole simulations by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks.simulation_timing import Row, geometric_mean, measure
from problems.figures import DOTS, Curve, Panel, chart
from problems.runner import Meter, Report, program, tabled
from problems.settings import Settings
from tests.references.simulation_steps import HOMOTOPY, NEWTON, SOLVERS, TIGHT, Fallback
from tests.references.simulations import SPEED

AIM = 50.0  # target for the speedup of a step
QUICK = {"repeats": 1, "speed_steps": 12}


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """Results: a row for every case."""

    rows: tuple[Row, ...] = ()

    @property
    def fallbacks(self) -> list[Fallback]:
        """Steps of the benchmark that Newton's method did not do alone."""
        return [entry for row in self.rows for entry in row.fallbacks]

    @property
    def speedup(self) -> float:
        """Geometric mean over the cases."""
        return geometric_mean([row.speedup for row in self.rows])

    @property
    def success(self) -> bool:
        """True if every step was solved; times and fallbacks are printed, but do not matter."""
        return not any(row.broken for row in self.rows)


def experiment(repeats: int = 3, speed_steps: int = 1000, *, progress: Progress) -> Findings:
    """Measure the steps of all cases.

    Parameters
    ----------
    repeats : int
        Turns of which the best one counts.
    speed_steps : int
        At most so many steps of every case are measured.
    """
    return Findings(rows=tuple(measure(build().shortened(speed_steps), repeats, progress) for build in SPEED.values()))


def run(settings: Settings, progress: Progress) -> Report:
    """Measure, and simulate the oscillator once more for the numbers that all problems report."""
    meter = Meter(progress)
    case = SPEED["oscillator"]()
    trajectory = ns.simulate(
        case.system, x0=case.x0, duration=case.duration, steps=case.steps, method=case.method, callback=meter
    )
    findings = experiment(**settings.arguments, progress=progress)
    success = trajectory.success and findings.success
    results = _results(findings, success)
    entries = [*findings.fallbacks, *(e for row in findings.rows for e in row.failures)]
    lines = [f"{e.case}, step {e.step} at {e.time:.6g} s, {e.seconds:.3g} s: {e.reason}" for e in entries]
    slow = ", ".join(row.case for row in findings.rows if row.speedup < AIM)
    lines.insert(0, f"geometric mean {findings.speedup:.0f}x; below {AIM:g}x: {slow or 'none'}")
    return tabled(
        {**meter.results(trajectory), **results},
        success,
        {
            "processor time of a step [ms], and speedup over homotopies": [_cost(row) for row in findings.rows],
        },
        _figures(findings),
        lines,
    )


def _cost(row: Row) -> dict[str, Any]:
    speedups = {"speedup": row.speedup, "tight": row.speedup_tight, "relaxed": row.speedup_relaxed}
    counts = {"fell back": len(row.fallbacks), "failed": len(row.failures)}
    differ = max(row.differences[name] for name in (HOMOTOPY, TIGHT))
    times = {f"{name} [ms]": row.milliseconds[name] for name in SOLVERS}
    return {
        "case": row.case,
        "steps": row.steps,
        **times,
        **speedups,
        "differ": differ,
        "error": row.errors[NEWTON],
        **counts,
    }


def _figures(findings: Findings) -> dict[str, Any]:
    at = np.arange(len(findings.rows))
    names = ("speedup", "speedup_tight", "speedup_relaxed")
    curves = [Curve(at, [getattr(row, name) for row in findings.rows], name, DOTS) for name in names]
    label = ", ".join(f"{i} {row.case}" for i, row in enumerate(findings.rows))
    panel = Panel(curves=curves, x=label, y="time of a step over that of Newton", log="y", levels=(AIM,))
    return {"simulation_speed.png": lambda: chart([panel])}


def _results(findings: Findings, success: bool) -> dict[str, Any]:
    return {
        "status": (ns.Status.SOLVED if success else ns.Status.STEP_FAILED).value,
        "speedup_geometric_mean": findings.speedup,
        "speedups": {row.case: row.speedup for row in findings.rows},
        "fallback_steps": len(findings.fallbacks),
        "rows": [row.to_dict() for row in findings.rows],
    }


PROGRAM = program(__name__, run, experiment, quick=QUICK)
