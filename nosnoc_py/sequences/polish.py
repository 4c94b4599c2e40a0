"""Improvement of a solution by the multi-phase program of its mode sequence; the result is never worse.

Finite elements keep every event in the control stage into which it fell at first; a multi-phase program with a moving
grid has no such restriction. Its solution replaces the given one only if an independent simulation confirms it and the
true objective is lower; in all other cases the given object is returned.
"""

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

# Least number of control intervals: a coarse control of the solution must not limit the smooth program.
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
    """Solve the multi-phase program of the mode sequence of a solution, and return the better of both.

    Events of finite elements stay in the control stage that they first fell into; here the grid moves with them. The
    sequence may change if the simulation shows another one, or if a phase vanishes.

    Parameters
    ----------
    ocp : OCP
    solution : Solution
        Solution of this OCP by any method; the control of a failed one is simulated.
    method : MultiPhase, optional
        Default: a moving grid with as many control intervals as the solution has, and at least 20.
    callback : callable, optional
        Called with every program that is solved; returns `ns.Stop` to end the work.
    time_limit : float, optional
        Limit of time [s].

    Returns
    -------
    Solution
        The new solution if a simulation confirms it and its objective is better; else the one that was passed.

    Raises
    ------
    OptionError
        For arguments of other types, a solution of another OCP, or a system without mode sequences.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ns.Contact("ground", gap=q)])
    >>> ocp = ns.OCP(ball, horizon=1.0, x0=[1, 0], stage_cost=u**2, terminal_constraints=[ns.Constraint(q, 0.2, 0.2)])
    >>> solution = ns.solve(ocp, ns.FESDJ(control_stages=4))
    >>> polish(ocp, solution).objective <= solution.objective
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
    # `follow`, as the sequence of an approximate solution is often not that of the exact motion.
    method = MultiPhase(intervals=max(INTERVALS, len(solution.u)), follow=True) if method is None else method
    check_type(method, MultiPhase, "method", [MultiPhase])
    # A loaded solution may belong to another system with the same states.
    known = {part.name for part in ocp.system.contacts}
    foreign = {event.name for event in solution.events if event.kind == "impact"} - known
    if foreign:
        raise OptionError(
            f"polish: the solution has impacts of {', '.join(sorted(foreign))}, which are no contacts of the OCP."
        )
    if (misfit := method.accepts(ocp.system)) is not None:
        raise OptionError(misfit)
    # Strictly better: a tie returns the object that the caller has.
    improved = method.solve(ocp, guess=solution, callback=callback, time_limit=time_limit)
    return improved if _true_objective(ocp, improved) < _true_objective(ocp, solution) else solution


def _true_objective(ocp: OCP, solution: Solution) -> float:
    """Return the objective of a solution that the simulation confirms, infinity for any other one."""
    if not solution.success:
        return np.inf
    certificate = solution.certificate or certify(ocp, solution)
    if certificate.verdict not in CONFIRMED:
        return np.inf
    # An unstable motion diverges from its simulation: its own objective is then accurate up to the defects of windows.
    return certificate.true_objective if certificate.verdict is Verdict.CONFIRMED else solution.objective
