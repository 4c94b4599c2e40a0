"""Laws of a motion, and violations of them: what an audit finds and a certificate lists."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np


class Law(Enum):
    """Laws that a motion has to obey; the value is the text of a violation, of a state, a contact or a constraint."""

    POSITIONS = "{}' is not the velocity"
    GAPS = "{} is penetrated"
    DISTANCE = "{} pushes at a distance"
    PULL = "a normal force pulls at {}"
    CONE = "friction leaves its cone at {}"
    DISSIPATION = "friction is not that of its slip at {}"
    BALANCE = "no force explains the acceleration {}'"
    CONTINUITY = "the position {} jumps"
    IMPULSES = "no impulse of a closed contact explains the jump of {}"
    IMPULSE_DISTANCE = "{} has an impulse at a distance"
    RESTITUTION = "{} breaks the law of restitution"
    SEPARATION = "{} is left too slowly after an impact"
    ENERGY = "kinetic energy rises at {}"
    CATCH = "a force catches {}"
    CROSSING = "{} is crossed between the stages"
    CLOCK = "the clock stands still in an element in which it runs"
    INCLUSION = "no multipliers of the active regions or constraints explain {}'"
    MULTIPLIERS = "the listed multipliers do not explain {}'"
    RANGE = "the listed {} is not a value that this place allows"
    SET = "the state leaves the set of {}"
    BOUND = "the bound of {} is violated"
    PATH = "the path constraint {} is violated"
    INITIAL = "the initial constraint {} is violated"
    TERMINAL = "the terminal constraint {} is violated"
    COMPLEMENTARITY = "the complementarity {} is violated"
    STATEMENT = "{}"


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A broken law.

    Parameters
    ----------
    time
        When [s].
    law
    subject
        The state, contact or constraint that breaks it; of a statement the whole sentence.
    amount
        By how much, in `unit`.
    share
        The same as a share of what is at work in the motion; infinite for what is not a number.
    unit
        Empty where a constraint has none.
    """

    time: float
    law: Law
    subject: str
    amount: float
    share: float
    unit: str = ""

    @property
    def what(self) -> str:
        """The law, who breaks it and by how much, in words."""
        text = self.law.value.format(self.subject)
        if self.law is Law.STATEMENT:
            return text
        size = f"{self.amount:.3g} {self.unit}".strip() if np.isfinite(self.amount) else "no finite number"
        return f"{text} by {size}"

    def __str__(self) -> str:
        return f"t = {self.time:.6g} s: {self.what}"
