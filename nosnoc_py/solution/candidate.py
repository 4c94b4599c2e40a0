"""What became of one start of a search."""

from __future__ import annotations

from dataclasses import dataclass

from nosnoc_py.solution.sequence import Sequence
from nosnoc_py.status import Verdict


@dataclass(frozen=True, kw_only=True, repr=False)
class Candidate:
    """One start of a search and what became of it.

    Parameters
    ----------
    start : str
        Its kind.
    sequence : Sequence or None
        Of its solution; None where there is none.
    objective : float
        Of its solution, infinite where there is none.
    verdict : Verdict or None
        What the simulation makes of it; None where it was not worth one.
    seconds : float
    """

    start: str
    sequence: Sequence | None
    objective: float
    verdict: Verdict | None
    seconds: float

    def __repr__(self) -> str:
        phases = "" if self.sequence is None else f", {len(self.sequence)} phases"
        verdict = "" if self.verdict is None else f", {self.verdict}"
        return f"{self.start}: objective {self.objective:.8g}{phases}{verdict}, {self.seconds:.2f} s"
