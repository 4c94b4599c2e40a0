"""Single shooting: only the controls are unknowns; the motion follows by event-detecting integration (HMP, 6.2).

The objective has jumps or kinks where the sequence of collisions changes, and with the Euler scheme also where a
collision passes from one step to the next. Between them its gradient is exact (`event_gradient`), and descents
(`single_descents`) converge to points without slope; at a kink their line search fails, which is reported as such.

It is a baseline for comparisons. It cannot gain a collision by its gradient: a control whose motion meets none ends
with the status "collision lost".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import casadi as ca
import numpy as np
from pydantic import Field

from nosnoc_py.errors import OptionError
from nosnoc_py.methods.indirect.forward import Forward, StepMotion, SweepFailure, motion_of
from nosnoc_py.methods.indirect.minimiser_forms import is_definite
from nosnoc_py.methods.indirect.motion import solution_of
from nosnoc_py.methods.indirect.problem import HybridProblem, hybrid_problem
from nosnoc_py.methods.shooting.event_gradient import EventGradient
from nosnoc_py.methods.shooting.single_descents import Descent, gradient_descent, ipopt, lbfgs
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod
from nosnoc_py.solution import Solution
from nosnoc_py.status import Status
from nosnoc_py.systems.controls import control_of_guess

Array = np.ndarray

NAME = "DirectShooting(form='single')"


class SingleShooting(CompleteMethod):
    """Descent over piecewise constant controls with located collisions and exact gradients.

    Parameters
    ----------
    steps : int
        Number of control intervals; each is one step of the integrator.
    scheme : {"rk4", "euler"}
        "euler" is the discretised problem of the paper (HMP, Eqs. 18, 19, 36), where the rest of a step after a
        collision has the next control; "rk4" keeps the control of the interval.
    descent : {"lbfgs", "gradient", "ipopt"}
        L-BFGS-B (SciPy), gradient descent with a fixed rate (HMP, Section 6.2), or IPOPT with an L-BFGS Hessian.
    relaxation : float
        alpha: a gradient descent step is alpha L_uu^-1 dJ/du / dt, that is a rate of alpha N / (2 epsilon) for a cost
        of epsilon |u|^2 and T = 1.
    rate : float, optional
        Use a step of rate dJ/du instead.
    max_iterations : int
        Iteration limit of the descent.
    tolerance : float
        Largest L2 norm of H_u = dJ/du / dt of a solution; with bounds, of u - P(u - H_u).
    time_limit : float, optional
        Seconds.
    """

    steps: int = Field(default=240, ge=1)
    scheme: Literal["rk4", "euler"] = "rk4"
    descent: Literal["lbfgs", "gradient", "ipopt"] = "lbfgs"
    relaxation: float = Field(default=0.01, gt=0)
    rate: float | None = Field(default=None, gt=0)
    max_iterations: int = Field(default=3000, ge=0)
    tolerance: float = Field(default=1e-8, gt=0)

    def solved(
        self, ocp: OCP, guess: Any, callback: Callable[[Any], Any] | None, started: float, deadline: float
    ) -> Solution:
        """Run the descent from the control of the guess and return the solution."""
        problem = hybrid_problem(ocp, NAME)
        self._check(problem)
        # The rule of the paper belongs to its Euler scheme; otherwise an interval keeps its control.
        forward = Forward(problem, self.steps, self.scheme, "next" if self.scheme == "euler" else "same")
        descent = Descent(
            gradient=EventGradient(forward),
            label=self.descent,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            callback=callback,
            deadline=deadline,
        )
        u = problem.controls.project(forward.sampled_control(control_of_guess(problem.ocp, guess), 0.0))
        status, message = self._run_descent(descent, u)
        # A solved iterate need not have the lowest objective seen; without success the lowest one is the most useful.
        result = descent.last if status.success else descent.best
        # No iterate was accepted: a motion at rest with the control of the guess, and NaN as its objective.
        standstill = StepMotion(x=np.tile(problem.x0, (len(u) + 1, 1)), u=u, collisions=())
        rollout = standstill if result is None else result.rollout
        return solution_of(
            problem,
            motion_of(forward, rollout, np.nan if result is None else result.objective),
            status=status,
            message=message,
            log=descent.state.records,
            iterations=descent.state.iterations,
            wall_seconds=time.monotonic() - started,
            method=repr(self),
        )

    def _check(self, problem: HybridProblem) -> None:
        # These forms have a cost with a kink at zero, where optimal controls often stay.
        if problem.minimiser.kind in ("length", "separable"):
            raise OptionError(
                f"{NAME}: |u| has no derivative at u = 0; write ca.sqrt(ca.sumsqr(u) + delta**2) with a small delta, "
                "or use ns.MinimumPrinciple(...), which needs none."
            )
        # SciPy's L-BFGS-B takes boxes only.
        if self.descent == "lbfgs" and problem.controls.is_ball:
            raise OptionError(
                f"{NAME}: descent='lbfgs' takes bounds on u, not a bound on its length; use descent='gradient' or "
                "'ipopt'."
            )

    def _run_descent(self, descent: Descent, u: Array) -> tuple[Status, str]:
        """Run the descent; return its final status and message."""
        try:
            if self.descent == "gradient":
                return gradient_descent(descent, u, _scale(descent.problem, self, descent.dt))
            return lbfgs(descent, u) if self.descent == "lbfgs" else ipopt(descent, u)
        # Also `DescentEnd`, by which a solver's loop is left with success.
        except SweepFailure as failure:
            return failure.status, failure.message
        except KeyboardInterrupt:
            return Status.INTERRUPTED, ""


def _scale(problem: HybridProblem, options: SingleShooting, dt: float) -> Array:
    """Return the matrix (n_u, n_u) that multiplies a gradient: the rate, or alpha L_uu^-1 / dt."""
    if options.rate is not None:
        return options.rate * np.eye(problem.n_u)
    curvature = ca.hessian(problem.running_cost, problem.u)[0]
    if ca.depends_on(curvature, ca.vertcat(problem.x, problem.u)) or not is_definite(curvature, problem.x):
        raise OptionError(
            f"{NAME}: descent='gradient' takes its rate from the curvature of the stage cost in u, which is not "
            "constant and positive here; give rate=..., or use descent='lbfgs'."
        )
    # dJ/du is dt H_u: division by dt makes the step independent of the grid.
    return np.asarray(options.relaxation / dt * np.linalg.inv(np.array(ca.evalf(ca.densify(curvature)))))
