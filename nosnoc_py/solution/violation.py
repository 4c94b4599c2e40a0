"""Laws of a motion, and violations of them: findings of an audit and entries of a certificate.

Amounts have the unit of their law. Shares relate them to the scale of the motion (its speeds, forces, lengths), so that
violations of different laws can be compared and ranked.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np


# Names are stored in files and may not change; values are texts for people.
class Law(Enum):
    """Laws that a motion has to obey; the value is the text of a violation, of a state, a contact or a constraint."""

    POSITIONS = "{}' is not the velocity"
    GAPS = "{} is penetrated"
    DISTANCE = "{} pushes at a distance"
    PULL = "a normal force pulls at {}"
    CONE = "friction is outside of its cone at {}"
    DISSIPATION = "friction does not oppose the slip at {}"
    BALANCE = "no force explains the acceleration {}'"
    CONTINUITY = "the position {} jumps"
    IMPULSES = "no impulse of a closed contact explains the jump of {}"
    IMPULSE_DISTANCE = "{} has an impulse at a distance"
    RESTITUTION = "{} breaks the law of restitution"
    SEPARATION = "{} separates too slowly after an impact"
    ENERGY = "kinetic energy rises at {}"
    CATCH = "a force replaces the impact at {}"
    CROSSING = "{} is crossed between the stages"
    CLOCK = "physical time stands still in an element without an impact"
    INCLUSION = "no multipliers of the active regions or constraints explain {}'"
    MULTIPLIERS = "the listed multipliers do not explain {}'"
    RANGE = "the listed {} is outside of its range"
    RESET = "no guard and reset explain the jump of {}"
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
        Time of the violation [s].
    law
    subject
        The state, contact or constraint that breaks it; of a statement the whole sentence.
    amount
        Size of the violation, in `unit`.
    share
        The same relative to the scale of the motion; infinite if it is not a number.
    unit
        Unit of `amount`; empty for a constraint without one.
    """

    time: float
    law: Law
    subject: str
    amount: float
    share: float
    unit: str = ""

    @property
    def what(self) -> str:
        """The law, its subject and the amount, in words."""
        text = self.law.value.format(self.subject)
        # A statement is a whole sentence and has no amount.
        if self.law is Law.STATEMENT:
            return text
        # The unit of a constraint is not known: its amount stands alone.
        size = f"{self.amount:.3g} {self.unit}".strip() if np.isfinite(self.amount) else "no finite number"
        return f"{text} by {size}"

    def __str__(self) -> str:
        return f"t = {self.time:.6g} s: {self.what}"
