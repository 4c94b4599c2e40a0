"""Result of one start of a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

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
        That it took.
    """

    start: str
    sequence: Sequence | None
    objective: float
    verdict: Verdict | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return what `json.dumps` takes, but for an objective that is not finite."""
        return {
            "start": self.start,
            "sequence": None if self.sequence is None else list(self.sequence.items),
            "objective": self.objective,
            "verdict": None if self.verdict is None else self.verdict.value,
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        count = 0 if self.sequence is None else len(self.sequence)
        phases = "" if self.sequence is None else f" in {count} phase{'' if count == 1 else 's'}"
        if not np.isfinite(self.objective):
            found = f"no solution{phases}" if phases else "nothing found"
        else:
            found = f"{self.objective:.6g}{phases}, {self.verdict or 'not simulated'}"
        return f"{self.start}: {found}, {self.seconds:.2f} s"

    def __repr__(self) -> str:
        return f"<{self}>"
