"""Result of one start of a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.solution.sequence import Sequence
from nosnoc_py.status import Verdict


@dataclass(frozen=True, kw_only=True, repr=False)
class Candidate:
    """One start of a search with its result.

    Parameters
    ----------
    start : str
        Kind of the start.
    sequence : Sequence or None
        Sequence of modes of its solution; None without a solution.
    objective : float
        Objective of its solution; infinite without a solution.
    verdict : Verdict or None
        Verdict of an independent simulation; None if it was not simulated.
    work : float
        Work it took, in units of about a second; counted, so that the same search always costs the same.

    Examples
    --------
    The search `ns.solve(ocp)` returns its starts as `solution.candidates`. One of them:

    >>> import nosnoc_py as ns
    >>> sequence = ns.Sequence([{}, {"wall": "closed"}])
    >>> ns.Candidate(start="rollout", sequence=sequence, objective=1.5, verdict=ns.Verdict.CONFIRMED, work=0.2)
    <rollout: 1.5 in 2 phases, confirmed, work 0.20>
    """

    start: str
    sequence: Sequence | None
    objective: float
    verdict: Verdict | None
    work: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for `json.dumps`; an objective that is not finite has to be replaced before.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> sequence = ns.Sequence([{}, {"wall": "closed"}])
        >>> start = ns.Candidate(start="rollout", sequence=sequence, objective=1.5, verdict=None, work=0.2)
        >>> start.to_dict()["sequence"]
        [{}, {'wall': 'closed'}]
        """
        return {
            "start": self.start,
            "sequence": None if self.sequence is None else list(self.sequence.items),
            "objective": self.objective,
            "verdict": None if self.verdict is None else self.verdict.value,
            "work": self.work,
        }

    def __str__(self) -> str:
        count = 0 if self.sequence is None else len(self.sequence)
        phases = "" if self.sequence is None else f" in {count} phase{'' if count == 1 else 's'}"
        # A sequence without an objective: the start was simulated, but its program has no solution.
        if not np.isfinite(self.objective):
            outcome = f"no solution{phases}" if phases else "nothing found"
        else:
            outcome = f"{self.objective:.6g}{phases}, {self.verdict or 'not simulated'}"
        return f"{self.start}: {outcome}, work {self.work:.2f}"

    def __repr__(self) -> str:
        return f"<{self}>"
