"""The best smooth optimum for the sequence of a solution: never worse than the solution itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import OptionError, check_run, check_type
from nosnoc_py.ocp import OCP
from nosnoc_py.sequences.multi_phase import MultiPhase
from nosnoc_py.sequences.refinement import CONFIRMED
from nosnoc_py.simulation.certification.certify import certify
from nosnoc_py.solution import Solution
from nosnoc_py.status import Verdict

# Control intervals, where the solution has fewer.
INTERVALS = 20


@named_arguments
def polish(
    ocp: OCP,
    solution: Solution,
    *,
    method: MultiPhase | None = None,
    callback: Any = None,
    time_limit: float | None = None,
) -> Solution:
    """Solve the multi-phase program of the sequence of a solution, and return the better of the two.

    Events of finite elements stay in the control stage that they first fell into; here the grid moves with them. The
    sequence may change where the simulation shows another one, or where a phase vanishes.

    Parameters
    ----------
    ocp : OCP
    solution : Solution
        Of this OCP, by any method; of one that failed its control is simulated.
    method : MultiPhase, optional
        Default: as many control intervals as the solution has, at least `INTERVALS`, on a grid that moves.
    callback : callable, optional
        Called with every program that is solved; returns `ns.Stop` to end the work.
    time_limit : float, optional
        Seconds.

    Returns
    -------
    Solution
        What was found if it is confirmed and better; else the solution that was given.

    Raises
    ------
    OptionError
        For arguments of other types, or a solution of another OCP.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ns.Contact("ground", gap=q)])
    >>> ocp = ns.OCP(ball, horizon=1.0, x0=[1, 0], stage_cost=u**2, terminal_constraints=[ns.Constraint(q, 0.2, 0.2)])
    >>> rough = ns.solve(ocp, ns.FESDJ(control_stages=4))
    >>> polish(ocp, rough).objective <= rough.objective
    True
    """
    check_type(ocp, OCP, "ocp")
    check_type(solution, Solution, "solution")
    check_run(callback, time_limit)
    if solution.state_names != ocp.system.state_names:
        raise OptionError(
            f"polish: the solution has the states {', '.join(solution.state_names)}, the OCP "
            f"{', '.join(ocp.system.state_names)}; give the OCP that was solved."
        )
    method = MultiPhase(intervals=max(INTERVALS, len(solution.u)), follow=True) if method is None else method
    check_type(method, MultiPhase, "method", [MultiPhase])
    known = {part.name for part in getattr(ocp.system, "contacts", ())}
    foreign = {event.name for event in solution.events if event.kind == "impact"} - known
    if foreign:
        raise OptionError(f"polish: the solution has impacts of {', '.join(sorted(foreign))}, which the OCP has not.")
    if (misfit := method.accepts(ocp.system)) is not None:
        raise OptionError(misfit)
    found = method.solve(ocp, guess=solution, callback=callback, time_limit=time_limit)
    return found if _true_objective(ocp, found) < _true_objective(ocp, solution) else solution


def _true_objective(ocp: OCP, solution: Solution) -> float:
    """The objective of a solution that the simulation confirms, infinite for any other one."""
    if not solution.success:
        return np.inf
    certificate = solution.certificate or certify(ocp, solution)
    if certificate.verdict not in CONFIRMED:
        return np.inf
    # An unstable motion diverges from its simulation; its own objective is then the true one to the windows' defects.
    return certificate.true_objective if certificate.verdict is Verdict.CONFIRMED else solution.objective
