"""All that the comparison on the two discs finds, and as numbers by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from problems.benchmarks.two_discs_costates import Costates
from problems.benchmarks.two_discs_grids import QUANTITIES, Fit, GridError, fit
from problems.benchmarks.two_discs_history import DESCENT, MSA, History
from problems.benchmarks.two_discs_rows import Row
from problems.benchmarks.two_discs_sequences import Excursion
from problems.benchmarks.two_discs_timing import LIMIT, Timing


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """Results of the parts; empty where a part was not asked for.

    Parameters
    ----------
    rows : tuple of Row
        Methods on problems.
    errors : tuple of GridError
        Over N, of Algorithm 1 and of gradient descent.
    histories, descents : tuple of History
        Algorithm 1 and gradient descent, a problem each.
    relaxations : tuple of History
        Algorithm 1 with several alpha.
    excursions : tuple of Excursion
    costates : tuple of Costates
    timing : Timing, optional
    """

    rows: tuple[Row, ...] = ()
    errors: tuple[GridError, ...] = ()
    histories: tuple[History, ...] = ()
    descents: tuple[History, ...] = ()
    relaxations: tuple[History, ...] = ()
    excursions: tuple[Excursion, ...] = ()
    costates: tuple[Costates, ...] = ()
    timing: Timing | None = None

    @property
    def fits(self) -> dict[tuple[str, str], dict[str, Fit]]:
        """sigma / N by (problem, method) and quantity, where there are two grids at least."""
        made: dict[tuple[str, str], dict[str, Fit]] = {}
        for key, errors in series(self.errors).items():
            if len(errors) > 1:
                made[key] = {name: fit(errors, name) for name in QUANTITIES}
        return made

    @property
    def stalls(self) -> dict[str, float]:
        """How many times farther from u_opt gradient descent ends than Algorithm 1, by problem."""
        ends = {one.experiment: float(one.error[-1]) for one in self.histories}
        return {one.experiment: float(one.error[-1]) / ends[one.experiment] for one in self.descents}

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name."""
        fits = [
            {"experiment": experiment, "method": method, "quantity": name, **vars(one)}
            for (experiment, method), each in self.fits.items()
            for name, one in each.items()
        ]
        timed = self.timing
        return {
            "rows": [asdict(row) for row in self.rows],
            "errors": [asdict(error) for error in self.errors],
            "fits": fits,
            "histories": [one.to_dict() for one in (*self.histories, *self.descents)],
            "relaxations": [one.to_dict() for one in self.relaxations],
            "farther_by_descent": self.stalls,
            "sequences": [one.to_dict() for one in self.excursions],
            "costates": [one.to_dict() for one in self.costates],
            "timing": None if timed is None else {**asdict(timed), "ratio": timed.ratio, "limit": LIMIT},
        }


def series(errors: Sequence[GridError]) -> dict[tuple[str, str], list[GridError]]:
    """Errors by problem and method, over N."""
    keys = dict.fromkeys((error.experiment, error.method) for error in errors)
    ordered = sorted(keys, key=lambda key: (MSA, DESCENT).index(key[1]))
    return {key: [e for e in errors if (e.experiment, e.method) == key] for key in ordered}
