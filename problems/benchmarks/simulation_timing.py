"""Time of a step: the active-set Newton method and the homotopy on MPCCs, on the same steps in one process.

All times are processor seconds of this thread, so that other work on the machine does not count. Simulators are
built and have stepped before anything is measured; then all methods take turns with the whole motion, Newton's method
several times in each, and the best turn of each method counts. The clock is read twice per turn: a reading may take as
long as a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nosnoc_py.progress import Progress
from tests.references.simulation_steps import (
    HOMOTOPY,
    MPCC,
    NEWTON,
    RELAXED,
    SOLVERS,
    TIGHT,
    Chain,
    Fallback,
    chain,
    distance,
    error_of,
    simulator_of,
)
from tests.references.simulations import Case

AGAIN = 5  # simulations by Newton's method per turn, whose mean counts


@dataclass(frozen=True, eq=False, kw_only=True)
class Row:
    """Cost of the steps of a case.

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
        Failed steps of the homotopies, which then continue from Newton's states.
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
        spent = {name: result.seconds for name, result in turns[-1].items()} | {NEWTON: float(np.mean(again))}
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


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return float(np.exp(np.mean(np.log(values))))
