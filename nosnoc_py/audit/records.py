"""Records of an audit: samples of a motion, its jumps, its typical sizes, and residuals of laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.tolerances import REST_VELOCITY

Array = np.ndarray


def statement(time: float, text: str, amount: float, share: float) -> Violation:
    """Return the violation of a false statement, in words; values that are not finite count as infinite."""
    # NaN would compare as False with every limit and hide the violation.
    amount, share = (size if np.isfinite(size) else np.inf for size in (amount, share))
    return Violation(time=time, law=Law.STATEMENT, subject=text, amount=amount, share=share)


@dataclass(frozen=True, eq=False, kw_only=True)
class MotionSamples:
    """Samples of a motion at m instants between its jumps.

    Attributes
    ----------
    t : (m,)
        [s].
    x : (m, n_x)
    u : (m, n_u)
    rates : (m, n_x), optional
        dx/dt; None where it is not known, and no law of it is looked at.
    forces : (m, n_c + n_tt), optional
        Contact forces in the directions of `Kinematics.jacobian`; None asks for forces that explain the motion.
    x_left : (m, n_x), optional
        The state at the beginning of the element that a sample belongs to: a contact that is open there pushes nowhere
        in the element (the cross complementarity of FESD-J); None where there are no elements.
    noise : (m,), optional
        Errors of the rates that rounding and the residual of the solver explain, in the units of the rates.
    """

    t: Array
    x: Array
    u: Array
    rates: Array | None = None
    forces: Array | None = None
    x_left: Array | None = None
    noise: Array | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Jumps:
    """Left and right limits of a motion at k instants.

    Attributes
    ----------
    t : (k,)
        [s].
    x_before, x_after : (k, n_x)
    impulses : (k, n_c + n_tt), optional
        As the forces of `MotionSamples` [N s].
    """

    t: Array
    x_before: Array
    x_after: Array
    impulses: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Scales:
    """Typical sizes of a motion, which violations are relative to; all positive.

    Attributes
    ----------
    length : float
        [m].
    speed : float
        [m/s].
    acceleration : float
        [m/s^2].
    response : float
        The largest change of a velocity by a unit impulse [1/kg].
    rest : float
        Approaches slower than this [m/s] may bounce or not.
    """

    length: float
    speed: float
    acceleration: float
    response: float
    rest: float = REST_VELOCITY

    def of_residual(self, residual: float) -> float:
        """Return the relative violation caused by a residual of gaps, rates, forces and impulses."""
        # Forces are relative to the acceleration, impulses to the speed: the smaller of both bounds both.
        by_force = self.response / min(self.acceleration, self.speed)
        return residual * max(1.0 / self.length, 1.0 / self.speed, by_force)


@dataclass(frozen=True, eq=False, kw_only=True)
class Measured:
    """Residuals of one law at many instants.

    Attributes
    ----------
    law : Law
    t : (m,)
        [s].
    subjects : tuple of str
    amounts, shares : (m, subjects)
    unit : str
        Of the amounts.
    """

    law: Law
    t: Array
    subjects: tuple[str, ...]
    amounts: Array
    shares: Array
    unit: str = ""

    def columns(self) -> list[Measured]:
        """Return the residuals of each subject separately."""
        return [
            replace(self, subjects=(name,), amounts=self.amounts[:, i : i + 1], shares=self.shares[:, i : i + 1])
            for i, name in enumerate(self.subjects)
        ]

    def above(self, share: float) -> list[Violation]:
        """Return the worst subject of each instant above a relative size; values that are not finite are."""
        if not self.shares.size:
            return []
        shares = np.where(np.isfinite(self.shares), self.shares, np.inf)
        worst = shares.argmax(axis=1)
        rows = np.flatnonzero(shares[np.arange(len(shares)), worst] > share)
        return [self._violation(int(k), int(worst[k]), float(shares[k, worst[k]])) for k in rows]

    def worst(self) -> Violation | None:
        """Return the largest violation, or None."""
        if not self.shares.size:
            return None
        shares = np.where(np.isfinite(self.shares), self.shares, np.inf)
        k, i = divmod(int(np.argmax(shares)), shares.shape[1])
        return self._violation(k, i, float(shares[k, i])) if shares[k, i] > 0.0 else None

    def _violation(self, k: int, i: int, share: float) -> Violation:
        amount = float(self.amounts[k, i])
        return Violation(
            time=float(self.t[k]),
            law=self.law,
            subject=self.subjects[i],
            amount=amount if np.isfinite(amount) else np.inf,
            share=share,
            unit=self.unit,
        )


def violations(measured: Sequence[Measured], above: float) -> list[Violation]:
    """Return all violations above a relative size, in the order of time."""
    all_violations = [violation for residual in measured for violation in residual.above(above)]
    return sorted(all_violations, key=lambda violation: violation.time)


def worst_of(measured: Sequence[Measured]) -> Violation | None:
    """Return the violation of the largest relative size, or None."""
    worst = [violation for residual in measured if (violation := residual.worst()) is not None]
    return max(worst, key=lambda violation: violation.share, default=None)
