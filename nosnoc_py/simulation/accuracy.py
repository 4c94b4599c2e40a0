"""Whether a simulation by finite elements is near the motion: estimates of its steps, added up, and what is told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nosnoc_py.simulation.newton.error_estimate import ErrorEstimate, SolvedPart
from nosnoc_py.simulation.newton.stepper import NewtonStepper
from nosnoc_py.transcription import Transcription

# The number of steps that is proposed is larger than the order of the scheme asks for: events lower it.
RESERVE = 1.2
# More steps than so many times as many are not proposed.
MOST = 1000
# Where the errors are too large, estimates above this share of their mean are made sharp.
SHARP = 0.1


@dataclass(frozen=True, eq=False, kw_only=True)
class StepErrors:
    """Estimated errors of the steps of a simulation.

    Attributes
    ----------
    shares : (n,)
        Of every step, as shares of the motion.
    share : float
        Of all together, in the states that are worst.
    """

    shares: np.ndarray
    share: float


class Accuracy:
    """Estimates the errors of steps of one problem that Newton's method solved.

    Parameters
    ----------
    problem : Transcription
        Of one step.
    newton : NewtonStepper
    """

    def __init__(self, problem: Transcription, newton: NewtonStepper) -> None:
        self.problem, self.newton, self.options = problem, newton, problem.fesd
        system = problem.ocp.system
        self.n_x, self.nominal = len(system.state_names), system.x_nominal
        sizes = [len(system.names[group]) for group in system.states]
        groups = np.repeat(np.arange(len(sizes)), sizes)
        self.speeds = np.array([group == "v" for group in system.states])[groups]
        self.members = groups[:, None] == groups

    @cached_property
    def _estimate(self) -> ErrorEstimate:
        return ErrorEstimate(self.newton.engine, self.options.scheme)

    def sizes(self, x0: np.ndarray, parts: Sequence[SolvedPart]) -> np.ndarray:
        """How large the motion is, for every state the largest one of its group (q, v or x), in nominal values."""
        ends = [part.elements.x_right for part in parts]
        x = (ends[0] if len(ends) == 1 else np.concatenate(ends))[:, : self.n_x]
        size = abs(x - np.where(self.speeds, 0.0, x0)).max(axis=0)
        size = np.where(self.speeds, np.maximum(size, abs(x0)), size) / self.nominal
        return (self.members * size).max(axis=1)

    def __call__(self, steps: Sequence[Sequence[SolvedPart]], sizes: np.ndarray) -> StepErrors:
        """Errors of steps, each with its parts, relative to the size of the motion; nothing where there is none."""
        found = self._shares(steps, sizes, np.inf)
        if self.is_missed(found.share):
            found = self._shares(steps, sizes, SHARP * found.share / len(steps))
        return found

    def _shares(self, steps: Sequence[Sequence[SolvedPart]], sizes: np.ndarray, sharp: float) -> StepErrors:
        """Errors of steps; what exceeds a share of the motion is made sharp."""
        parts = [part for step in steps for part in step]
        limit = np.full(self.newton.engine.collocation.n_x, np.inf)
        limit[: self.n_x] = sharp * self.nominal * sizes if sharp < np.inf else np.inf
        weights = 1.0 / (np.where(sizes > 0.0, sizes, np.inf) * self.nominal)
        # An element without an estimate does not hide those of the others in its step.
        known = [np.nan_to_num(abs(error[:, : self.n_x])) for error in self._estimate(parts, limit)]
        shares = [error.sum(axis=0) * weights for error in known]
        each = np.zeros((len(steps), self.n_x))
        np.add.at(each, np.repeat(np.arange(len(steps)), [len(step) for step in steps]), shares)
        each[~np.isfinite(each)] = 0.0
        return StepErrors(shares=each.max(axis=1), share=float(each.sum(axis=0).max()))

    def is_missed(self, share: float) -> bool:
        """Whether an error is more than the tolerance."""
        return self.options.error_tolerance is not None and share > self.options.error_tolerance

    def said(self, found: StepErrors, length: float, rows: int = 1) -> str:
        """What is told about errors of steps of equal length: how large, where the worst is, and what will do."""
        worst, count = int(np.argmax(found.shares)), len(found.shares)
        steps = math.ceil(count * self._more(found.share) / rows) * rows
        return (
            f"the estimated errors of the steps add up to {found.share:.2g} of the motion "
            f"(error_tolerance={self.options.error_tolerance:g}), worst in the step from t = {worst * length:.6g} to "
            f"{(worst + 1) * length:.6g}: take {steps} steps instead of {count}, or more than "
            f"rk_stages={self.options.rk_stages}"
        )

    def said_of_step(self, share: float, t: float, length: float) -> str:
        """The same of one step."""
        return (
            f"the estimated error of the step from t = {t:.6g} to {t + length:.6g} is {share:.2g} of the motion "
            f"(error_tolerance={self.options.error_tolerance:g}): take steps of {length / self._more(share):.2g} s, or "
            f"more than rk_stages={self.options.rk_stages}"
        )

    def _more(self, share: float) -> float:
        """So many times more steps will do by the order of the scheme."""
        order = 2 * self.options.rk_stages - (1 if self.options.scheme == "radau_iia" else 0)
        assert self.options.error_tolerance is not None
        return min(MOST, RESERVE * (share / self.options.error_tolerance) ** (1.0 / order))
