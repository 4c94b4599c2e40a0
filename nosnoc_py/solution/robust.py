"""Plan for what is not known: a solution with its feedback and the closed loops of its scenarios."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nosnoc_py.declared import assign
from nosnoc_py.solution.arrays import Array
from nosnoc_py.solution.solution import Solution
from nosnoc_py.solution.storage import NOT_STORED
from nosnoc_py.solution.trajectory import Trajectory


@dataclass(frozen=True, eq=False, kw_only=True)
class Scenario:
    """One case of what is uncertain, with its closed loop under a robust plan.

    Attributes
    ----------
    values : (quantities,)
        Values of the uncertain quantities.
    x0, p : (n_x,), (n_p,)
        Initial state and parameters.
    weight : float
        Weight in the expectation.
    objective : float
        Objective of the OCP along the closed loop.
    violation : float
        Largest relative violation of a constraint at the samples; 0 if all hold.
    motion : Trajectory
        Closed loop, with its events.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
    >>> tank = ns.ODE(x=x, u=u, flow=u - x, names={"x": ["level"]})
    >>> ocp = ns.OCP(tank, horizon=1.0, x0=[0.5], stage_cost=u**2, terminal_state={"level": (0.3, 0.5)})
    >>> uncertain = ns.Uncertain(x0={"level": (0.4, 0.6)})
    >>> plan = ns.solve(ocp, ns.FESD(control_stages=4), uncertain=uncertain, effort="quick")
    >>> [round(float(each.values[0]), 2) for each in plan.scenarios]
    [0.5, 0.41, 0.59]
    >>> max(each.violation for each in plan.scenarios)
    0.0
    """

    values: Array
    x0: Array
    p: Array
    weight: float
    objective: float
    violation: float
    motion: Trajectory = field(repr=False)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RobustSolution(Solution):
    """Plan with its feedback, for all scenarios of what is uncertain.

    Trajectory and objective are those of the middle of the distribution, in closed loop.

    Parameters
    ----------
    law : TrackingLaw, optional
        Feedforward and feedback; use it as the control of a simulation (`u=solution.law`). `law.success()` estimates
        the probability that it meets the constraints. None after loading.
    scenarios : tuple of Scenario
        What the plan was made for, the middle first, each with its closed loop.
    measure : str
        "expected", "worst" or "quantile".
    risk : float
        The measure of the objectives of the scenarios, without penalties.
    nominal : Solution, optional
        Plan for the middle alone, from which the search began.

    Examples
    --------
    A cart bounces off a wall whose restitution is not known:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u, e = (ca.SX.sym(name) for name in ("q", "v", "u", "e"))
    >>> wall = ns.Contact("wall", gap=1 - q, restitution=e)
    >>> cart = ns.CLS(q=q, v=v, u=u, p=e, p_default=[0.5], mass_matrix=1, force=u, contacts=[wall])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 2], stage_cost=u**2, terminal_state={"q_0": (0.6, 0.8)})
    >>> uncertain = ns.Uncertain(parameters={"p_0": (0.3, 0.7)})
    >>> solution = ns.solve(ocp, ns.FESDJ(control_stages=5), uncertain=uncertain)
    >>> solution.success, len(solution.scenarios)
    (True, 3)
    """

    law: Any = field(default=None, metadata=NOT_STORED)
    scenarios: tuple[Scenario, ...] = ()
    measure: str = "expected"
    risk: float = np.nan
    nominal: Solution | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        assign(self, scenarios=tuple(self.scenarios), risk=float(self.risk))

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the law and the problem, which cannot be sent to another process."""
        return {**super().__getstate__(), "law": None}

    def _summary_fields(self) -> dict[str, Any]:
        objectives = {"risk": self.risk, "objectives": [each.objective for each in self.scenarios]}
        return {**super()._summary_fields(), "measure": self.measure, **objectives}

    def _cost(self) -> str:
        held = sum(each.violation == 0.0 for each in self.scenarios)
        risk = f"{self.measure} of {len(self.scenarios)} scenarios {self.risk:.8g}, {held} hold all constraints"
        return f"{super()._cost()}; {risk}"
