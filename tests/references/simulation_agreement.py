"""Whether Newton's method and the MPCC make the same of every simulation, step by step, by the same scheme."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nosnoc_py.progress import Progress
from tests.references.simulation_steps import NEWTON, TIGHT, Chain, Fallback, chain, distance, error_of, simulator_of
from tests.references.simulations import Case

# Largest difference of states at the step ends that is agreement; and error of one that is right.
AGREED = 1e-9
AGREE, DIFFER = "agree", "DIFFER"
MANY, MPCC_FAILED, NEWTON_RIGHT = "many answers", "MPCC failed", "MPCC inexact"
TIME_LIMIT = 10.0  # of a step of the MPCC [s]
# Simulations that the theory leaves open, so that any answer is right, and why.
OPEN = {
    "repulsive, stewart": "starts on a surface that both flows leave: any departure is a motion",
    "repulsive, step": "starts on a surface that both flows leave: any departure is a motion",
    "hysteresis car, signs": "at a threshold the weights of the step functions may hold everything, for any time",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Agreement:
    """What both methods make of a case.

    Parameters
    ----------
    case : str
    steps : int
    difference : float
        Largest one of the states at the step ends; with more than two elements, where what is left of a step is split
        at will, at the end only.
    worst_step : int
        Where it is.
    errors : tuple of float
        Of Newton's method and of the MPCC, against the exact motion; NaN without one.
    fallbacks, failures : tuple of Fallback
        Steps that Newton's method left to the MPCC or failed; steps in which the MPCC alone failed, which goes on from
        Newton's state after them.
    open : str
        Why the answer is not unique, or "".
    """

    case: str
    steps: int
    difference: float
    worst_step: int
    errors: tuple[float, float]
    fallbacks: tuple[Fallback, ...]
    failures: tuple[Fallback, ...]
    open: str = ""

    @property
    def verdict(self) -> str:
        """Whether both are the same; if not, whether any answer is right, or Newton's alone."""
        if self.open:
            return MANY
        if self.difference <= AGREED:
            return AGREE if not self.failures else MPCC_FAILED
        return NEWTON_RIGHT if self.errors[0] <= AGREED else DIFFER

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name."""
        listed = {name: [asdict(entry) for entry in getattr(self, name)] for name in ("fallbacks", "failures")}
        return {**vars(self), **listed, "verdict": self.verdict}


def compare(name: str, case: Case, progress: Progress | None = None) -> Agreement:
    """Simulate a case by both methods."""
    if progress is not None:
        progress.describe(name)
    newton = chain(case, simulator_of(case, NEWTON))
    other = chain(case, simulator_of(case, TIGHT), newton.x, TIME_LIMIT)
    apart = np.abs(other.x - newton.x).max(axis=1)
    looked = apart if case.unique else np.where(np.arange(apart.size) == case.steps, apart, np.nan)
    known = bool(np.isfinite(looked).any())
    return Agreement(
        case=name,
        steps=case.steps,
        difference=float(np.nanmax(looked)) if known else np.nan,
        worst_step=int(np.nanargmax(looked)) if known else case.steps,
        errors=(_error(case, newton), _error(case, other)),
        fallbacks=newton.fallbacks + newton.failures,
        failures=other.failures,
        open=OPEN.get(name, ""),
    )


def _error(case: Case, found: Chain) -> float:
    return error_of(case, found.x) if np.isfinite(found.x).any() else distance(found.x, found.x)
