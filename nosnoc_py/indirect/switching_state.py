"""The state of a descent over switching times and states, and a line of its log."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nosnoc_py.indirect.iteration import nothing_but_the_start
from nosnoc_py.indirect.motion import Motion
from nosnoc_py.indirect.problem import HybridProblem
from nosnoc_py.indirect.switching_phases import SwitchedPhases, Switchings, Value
from nosnoc_py.solution.records import StepRecord
from nosnoc_py.status import Status

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class SwitchingState:
    """Where the descent stands.

    Attributes
    ----------
    problem : HybridProblem
    phases : SwitchedPhases, optional
        The cost as a function of switchings; None where there is no collision to begin with.
    at : Switchings
    value : Value, optional
        Cost, gradient, guards and arcs there.
    multipliers : (M,)
        eta of the augmented Lagrangian; zero with a penalty.
    inverse : (n, n), optional
        Of the Hessian, as BFGS knows it.
    length : float
        First step length of the next line search.
    iterations : int
        Steps of descent so far.
    records : tuple of StepRecord
        Objective, gradient (`slope`), guards (`infeasibility`) and collisions after every step.
    status : Status, optional
        None while there is something left to do.
    message : str
    begun : Motion, optional
        That of the control of the guess, where there is no `value`.
    """

    problem: HybridProblem
    phases: SwitchedPhases | None = None
    at: Switchings = field(default_factory=lambda: Switchings(times=np.empty(0), ends=()))
    value: Value | None = None
    multipliers: Array = field(default_factory=lambda: np.empty(0))
    inverse: Array | None = None
    length: float = 1e-2
    iterations: int = 0
    records: tuple[StepRecord, ...] = ()
    status: Status | None = None
    message: str = ""
    begun: Motion | None = None

    @property
    def slope(self) -> float:
        """The largest component of the gradient."""
        return np.inf if self.value is None else float(np.abs(self.value.gradient).max(initial=0.0))

    @property
    def infeasibility(self) -> float:
        """The largest |psi(x-)|."""
        return 0.0 if self.value is None else float(np.abs(self.value.guards).max(initial=0.0))

    def motion(self) -> Motion:
        """The phases, or where there are none, what the control of the guess leads to."""
        if self.phases is not None and self.value is not None:
            return self.phases.motion(self.value)
        return nothing_but_the_start(self.problem) if self.begun is None else self.begun

    def __repr__(self) -> str:
        if self.value is None:
            return f"SwitchingState: {self.message}"
        times = ", ".join(f"{t:.6g}" for t in self.at.times)
        return (
            f"SwitchingState: {self.iterations} iterations, objective {self.value.objective:.8g}, gradient "
            f"{self.slope:.1e}, guards {self.infeasibility:.1e}, collisions at {times or 'no time'}"
        )
