"""One sample of a predictive controller: its control, where that is from, and what is known of its quality."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.status import Status
from nosnoc_py.transcription import Answer

Array = np.ndarray


class Source(StrEnum):
    """Source of a control."""

    SOLVED = "solved"  # first control of a plan solved for the measured state
    SEARCHED = "order searched"  # control of the fixed grid, whose order of contacts was searched
    TRACKED = "plan tracked"  # prepared plan, corrected to first order by the measured state
    SHIFTED = "plan shifted"  # control of an earlier plan at this time
    HELD = "held"  # last control repeated


@dataclass(frozen=True, eq=False, kw_only=True)
class Quality:
    """What is known of a control when it is applied, and of its motion afterwards.

    Objectives are those of the horizon. The fixed grid has an error of its own, so that its objectives are compared
    with each other only.

    Attributes
    ----------
    objective : float
        Predicted objective of the controls, by the model that they are from.
    loss : float
        Estimated loss: by how much the objective of the controls exceeds the best one that the fixed grid has found,
        relative to that; negative for a plan of finite elements in an order that the grid does not see from where it is
        expanded, NaN without a fixed grid.
    gap : float
        Relative difference of that best objective and its lower bound: above zero if the search was cut.
    margin : float
        Relative rise of the best objective if the expected order of contacts had been kept: small next to a change of
        order, infinite if that order is impossible or none was expected, zero if it is the best.
    residual : float
        Largest residual of the plan: of the unrelaxed problem, or of its linearised equations where the plan was
        condensed; NaN for controls of the fixed grid.
    simulated : float
        Objective of the controls simulated event by event, known after `MPC.prepare`; NaN where it was not simulated.
    """

    objective: float = np.nan
    loss: float = np.nan
    gap: float = np.nan
    margin: float = np.nan
    residual: float = np.nan
    simulated: float = np.nan


@dataclass(frozen=True, eq=False, kw_only=True)
class MPCStep:
    """Result of a controller at one sample.

    Attributes
    ----------
    t : float
        Time of the measurement [s].
    x : (n_x,)
        Measured state.
    planned_from : (n_x,)
        Initial state of the plan: without penetration, predicted over the delay.
    u : (n_u,)
        Control that acts, within the bounds.
    source : Source
    how : str
        Method that solved the plan, see `Answer.how`; "first" for a plan without a predecessor.
    status : Status
        Status of the solver.
    seconds : float
        Computing time from x to u [s].
    late : bool
        True if the control, or a solved plan that was discarded for it, came after the deadline; without one, after a
        period.
    message : str
        Reason why the control does not belong to a solved plan, else empty.
    plan : Answer or Solution, optional
        Plan that is followed from this sample on.
    quality : Quality
        Estimates of what the control loses.
    """

    t: float
    x: Array
    planned_from: Array
    u: Array
    source: Source
    how: str = ""
    status: Status = Status.SOLVED
    seconds: float = 0.0
    late: bool = False
    message: str = ""
    plan: Answer | Solution | None = None
    quality: Quality = Quality()


def plan_of(step: MPCStep) -> Trajectory | None:
    """Return the planned motion that a step follows, or None without a plan."""
    if step.plan is None:
        return None
    return step.plan.solution if isinstance(step.plan, Answer) else step.plan
