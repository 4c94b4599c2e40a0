"""Accuracy of a simulation by finite elements: estimated errors of its steps, their sum, and advice.

Errors are relative to the size of the motion. They are added up over the steps, without amplification by an unstable
motion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nosnoc_py.simulation.newton.error_estimate import ErrorEstimate, SolvedPart
from nosnoc_py.simulation.newton.stepper import NewtonStepper
from nosnoc_py.transcription import Transcription

# Safety factor of the proposed number of steps: events reduce the order of the scheme.
RESERVE = 1.2
# Largest proposed factor.
MOST_STEPS = 1000
# If errors are too large, estimates above this fraction of their mean are refined.
SHARP = 0.1


@dataclass(frozen=True, eq=False, kw_only=True)
class StepErrors:
    """Estimated errors of the steps of a simulation.

    Attributes
    ----------
    shares : (n,)
        Errors of the steps, relative to the size of the motion.
    share : float
        Sum over all steps, for the state with the largest sum.
    """

    shares: np.ndarray
    share: float


class Accuracy:
    """Estimator of the errors of steps that Newton's method solved.

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
        """Return the size of the motion (n_x,), the largest of each group of states (q, v or x), in nominal values."""
        ends = [part.elements.x_right for part in parts]
        x = (ends[0] if len(ends) == 1 else np.concatenate(ends))[:, : self.n_x]
        # Positions count from the start, as their origin is arbitrary; speeds have a natural zero.
        size = abs(x - np.where(self.speeds, 0.0, x0)).max(axis=0)
        size = np.where(self.speeds, np.maximum(size, abs(x0)), size) / self.nominal
        # One size per group: a coordinate that hardly moves must not make its own small error look large.
        return (self.members * size).max(axis=1)

    def __call__(self, steps: Sequence[Sequence[SolvedPart]], sizes: np.ndarray) -> StepErrors:
        """Return the errors of steps (each with its parts), relative to the size of the motion."""
        errors = self._shares(steps, sizes, np.inf)
        if self.is_missed(errors.share):
            errors = self._shares(steps, sizes, SHARP * errors.share / len(steps))
        return errors

    def _shares(self, steps: Sequence[Sequence[SolvedPart]], sizes: np.ndarray, threshold: float) -> StepErrors:
        """Return the errors of steps; those above a fraction of the motion are refined."""
        parts = [part for step in steps for part in step]
        limit = np.full(self.newton.engine.collocation.n_x, np.inf)
        limit[: self.n_x] = threshold * self.nominal * sizes if threshold < np.inf else np.inf
        # Groups that do not move at all have no relative error: infinite size gives weight zero.
        weights = 1.0 / (np.where(sizes > 0.0, sizes, np.inf) * self.nominal)
        # An element without an estimate (NaN) must not hide the errors of the others in its step.
        known = [np.nan_to_num(abs(error[:, : self.n_x])) for error in self._estimate(parts, limit)]
        shares = [error.sum(axis=0) * weights for error in known]
        each = np.zeros((len(steps), self.n_x))
        np.add.at(each, np.repeat(np.arange(len(steps)), [len(step) for step in steps]), shares)
        each[~np.isfinite(each)] = 0.0
        return StepErrors(shares=each.max(axis=1), share=float(each.sum(axis=0).max()))

    def is_missed(self, share: float) -> bool:
        """Return True if an error exceeds the tolerance."""
        return self.options.error_tolerance is not None and share > self.options.error_tolerance

    def message(self, errors: StepErrors, length: float, rows: int = 1) -> str:
        """Return the message about errors of equal steps: size, worst step, and the number of steps that suffices."""
        worst, count = int(np.argmax(errors.shares)), len(errors.shares)
        steps = math.ceil(count * self._more(errors.share) / rows) * rows
        return (
            f"the estimated errors of the steps add up to {errors.share:.2g} of the motion "
            f"(error_tolerance={self.options.error_tolerance:g}), worst in the step from t = {worst * length:.6g} to "
            f"{(worst + 1) * length:.6g}: take {steps} steps instead of {count}, or more than "
            f"rk_stages={self.options.rk_stages}"
        )

    def message_of_step(self, share: float, t: float, length: float) -> str:
        """Return the message about the error of one step."""
        return (
            f"the estimated error of the step from t = {t:.6g} to {t + length:.6g} is {share:.2g} of the motion "
            f"(error_tolerance={self.options.error_tolerance:g}): take steps of {length / self._more(share):.2g} s, or "
            f"more than rk_stages={self.options.rk_stages}"
        )

    def _more(self, share: float) -> float:
        """Return the factor for the number of steps that suffices by the order of the scheme."""
        # Radau IIA with s stages has order 2s - 1, Gauss-Legendre 2s (Hairer and Wanner 1996); errors of steps,
        # summed, fall by this order.
        order = 2 * self.options.rk_stages - (1 if self.options.scheme == "radau_iia" else 0)
        assert self.options.error_tolerance is not None
        return min(MOST_STEPS, RESERVE * (share / self.options.error_tolerance) ** (1.0 / order))
