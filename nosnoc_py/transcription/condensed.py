"""The control of a measured state from one small quadratic program, as long as the order of events is kept.

`condensed` prepares the program of the branch of a solution (`mpcc.branch_qp`); `CondensedBranch.at` then takes about a
tenth of a millisecond for a measured state. This is the feedback of the real-time iteration (Diehl, Bock, Schloeder
2005) on a fixed branch of the complementarities: exact to first order, active bounds included. Where it has no
solution, or the predicted objective is far above the expected one, the order of events has changed, and
`Transcription.resolve` looks for another branch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.mpcc.branch_qp import BranchQP, BranchStep
from nosnoc_py.solution import Solution
from nosnoc_py.solution.records import SolvedBranch
from nosnoc_py.systems.symbols import numbers
from nosnoc_py.transcription.again import Answer
from nosnoc_py.transcription.optimum import solved_branch

if TYPE_CHECKING:
    from nosnoc_py.transcription.transcription import Transcription

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class CondensedStep:
    """Answer to a measured state.

    Attributes
    ----------
    u : (N, n_u)
        Controls: those of the solution itself if the program has none.
    ok : bool
        The linearised program has a solution.
    step : BranchStep
        Predicted and expected objective, the iterate, and what is left of its equations.
    """

    u: Array
    ok: bool
    step: BranchStep

    @property
    def objective(self) -> float:
        """Predicted objective; infinite without a solution."""
        return self.step.objective


@dataclass(frozen=True, eq=False)
class CondensedBranch:
    """Program of the branch of a solution for states nearby."""

    problem: Transcription
    program: BranchQP
    w: Array
    p: Array

    def fits(self, p: Array) -> bool:
        """Return True if parameters other than x0 are as they were."""
        return self.program.elimination.at.fits(p)

    def at(self, x0: Any) -> CondensedStep:
        """Return the controls for a measured state."""
        p, place = self.p.copy(), self.problem.mpcc.parameters["x0"]
        p[place] = numbers(x0, "x0", place.stop - place.start)
        step = self.program.at(p)
        w = self.w if step.w is None else step.w
        return CondensedStep(u=self.problem.controls(w), ok=step.found, step=step)


def condensed(problem: Transcription, last: Answer | Solution) -> CondensedBranch:
    """Prepare the program of the branch of a solution.

    Raises
    ------
    OptionError
        If the solution is of another transcription, not solved or not on a branch, or the OCP has no fixed x0.
    """
    return condensed_at(problem, *solved_branch("condensed", problem, last))


def condensed_at(problem: Transcription, w: Array, p: Array, solved: SolvedBranch) -> CondensedBranch:
    """Prepare the program of a branch at an iterate w for the parameters p, whether it is solved or not.

    Raises
    ------
    OptionError
        If the OCP has no fixed x0.
    """
    if "x0" not in problem.mpcc.parameters.names:
        raise OptionError("condensed: the OCP does not fix x0, so that there is no measured state to answer to.")
    place = problem.mpcc.parameters["x0"]
    program = BranchQP.of(problem.solvers.finish({}), w, p, solved, np.arange(place.start, place.stop))
    return CondensedBranch(problem, program, w, p)
