"""Agreement of two numbers: one rule per kind of statement, each with the reason for its tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Verdict(Enum):
    """Verdict of a row of the report."""

    AGREES = "agrees"
    BETTER = "better"
    ERRATUM = "the paper's"
    DIFFERS = "differs"
    FAILED = "failed"
    ALONE = "not in the paper"
    OUT_OF_SCOPE = "out of scope"
    FULL_ONLY = "full run only"
    ABSENT = "package absent"
    NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Rule for rows without a number in the paper.

    Parameters
    ----------
    reason : str
        Why this tolerance.
    """

    reason: str = ""

    @property
    def criterion(self) -> str:
        """Criterion for agreement, in a few words."""
        return ", ".join(part for part in (self._rule, self.reason) if part)

    @property
    def _rule(self) -> str:
        return ""

    def judge(self, paper: Any, ours: Any) -> Verdict:
        """Return the verdict on a value; FAILED for one that is no number."""
        if isinstance(ours, float | int) and not math.isfinite(ours):
            return Verdict.FAILED
        return Verdict.FAILED if ours is None else self._assess(paper, ours)

    def _assess(self, paper: Any, ours: Any) -> Verdict:
        return Verdict.ALONE


@dataclass(frozen=True, kw_only=True)
class Within(Agreement):
    """Rule |ours - paper| <= tolerance, or <= tolerance |paper|."""

    tolerance: float
    relative: bool = False

    @property
    def _rule(self) -> str:
        return (
            "equal"
            if not self.tolerance
            else f"within {100 * self.tolerance:g} %"
            if self.relative
            else f"within {self.tolerance:g}"
        )

    def _assess(self, paper: Any, ours: Any) -> Verdict:
        allowed = self.tolerance * abs(paper) if self.relative else self.tolerance
        return Verdict.AGREES if abs(ours - paper) <= allowed else Verdict.DIFFERS


@dataclass(frozen=True, kw_only=True)
class AtMost(Agreement):
    """Rule ours <= paper + slack; `better` if also ours < paper - margin."""

    slack: float = 0.0
    margin: float = math.inf

    @property
    def _rule(self) -> str:
        return "at most" + (f", slack {self.slack:g}" if self.slack else "")

    def _assess(self, paper: Any, ours: Any) -> Verdict:
        if ours > paper + self.slack:
            return Verdict.DIFFERS
        return Verdict.BETTER if ours < paper - self.margin else Verdict.AGREES


@dataclass(frozen=True, kw_only=True)
class AtLeast(Agreement):
    """Rule ours >= paper - slack; `better` if also ours > paper + margin."""

    slack: float = 0.0
    margin: float = math.inf

    @property
    def _rule(self) -> str:
        return "at least" + (f", slack {self.slack:g}" if self.slack else "")

    def _assess(self, paper: Any, ours: Any) -> Verdict:
        return AtMost(slack=self.slack, margin=self.margin).judge(-paper, -ours)


@dataclass(frozen=True, kw_only=True)
class Holds(Agreement):
    """Rule for a statement in words, or the shape of a curve: ours is a pair (holds, text)."""

    def _assess(self, paper: Any, ours: Any) -> Verdict:
        return Verdict.AGREES if ours[0] else Verdict.DIFFERS


def judge(agreement: Agreement, paper: Any, ours: Any) -> Verdict:
    """Return the verdict; if the paper gives no number, the entry has no comparison."""
    return (Agreement() if paper is None else agreement).judge(paper, ours)
