"""Verification of a solution by an independent simulation of its control (`certify`).

The simulation, the laws at the solution's own stages and jumps, and the consistency of the solution's data are computed
here; `verdict.Comparison` draws the conclusion. Violations that are no larger than the residuals of the solver can
cause are reported, but do not refute the solution.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.attempts import work
from nosnoc_py.audit.records import violations, worst_of
from nosnoc_py.errors import ModelError, check_positive, check_type
from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.measures import balance, state_sizes
from nosnoc_py.simulation.certification.readings import (
    ContactReading,
    inclusions_of,
    jumps_of,
    own_stages,
    stopped_clock_violations,
)
from nosnoc_py.simulation.certification.statements import Free, consistency_violations, free_choices
from nosnoc_py.simulation.certification.verdict import Comparison
from nosnoc_py.simulation.certification.windows import WindowRuns
from nosnoc_py.simulation.event_driven.options import THROUGH_TOUCHES, EventDriven
from nosnoc_py.simulation.event_driven.run import event_driven_simulator, trajectory_of
from nosnoc_py.solution import RungeKuttaInterpolant, Solution
from nosnoc_py.solution.certificate import Certificate
from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.status import Verdict
from nosnoc_py.systems.controls import control_of
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.pss import PDS, PSS, Heaviside
from nosnoc_py.tolerances import BROKEN, GIVEN

# Default method. Soft landings of an optimal control bounce slightly in a simulation; slower impacts than this share of
# the typical speed are inelastic.
REFEREE, REFEREE_RESTS = THROUGH_TOUCHES.replace(rattling="events"), 1e-5
# Violations up to EXPLAINED_EFFECT times the effect of the residuals are explained by them, up to the relative size
# MOST_EXPLAINED. Residuals count up to MOST_RESIDUAL: a solution with larger ones is no solution.
EXPLAINED_EFFECT, MOST_EXPLAINED, MOST_RESIDUAL = 2.0, 1e-3, 1e-4
# Share of the limits of time and work for the simulation of the whole horizon; the windows need the rest.
WHOLE = 0.5
# Shortest control stage, relative to the horizon, that is a window of its own.
SHORTEST_WINDOW = 1e-6
# Smallest distance of the neighbouring starts that are tried for a window.
NEIGHBOUR = 1e-7


@named_arguments
def certify(
    ocp: OCP,
    solution: Solution,
    method: EventDriven | None = None,
    *,
    tolerance: float = 1e-6,
    window: float | None = None,
    time_limit: float | None = None,
) -> Certificate:
    """Check a solution by an independent simulation of its control.

    Three checks are made:

    1. The control is simulated from x0 by the event-driven method, which shares no code with finite elements.
    2. Every window is simulated from the solution's own state at its start, because unstable motions amplify the
       smallest error.
    3. The solution's own stages and nodes are inserted into the laws of motion and of impacts,

           M v' = f + J' lambda,   M (v+ - v-) = J' Lambda,   v_n+ = -e v_n-,   Coulomb friction

       (FESD-J, Nurkanovic et al., Eqs. 1 and 11), or into the differential inclusion of a Filippov system, or into the
       flow and the resets of a hybrid system.

    Solutions by time-freezing are checked in physical time, at the stages of their elements in numerical time.

    Parameters
    ----------
    ocp : OCP
    solution : Solution
        Solution of this OCP, also a failed one. Its stages are checked for FESD, FESD-J and time-freezing with Radau
        IIA and Gauss-Legendre schemes.
    method : EventDriven, optional
        Simulation method. By default it continues after grazing contacts, and impacts slower than 1e-5 of the speed at
        work are inelastic (unless `rest_velocity` is set).
    tolerance : float
        Absolute and relative tolerance of end states, the objective, and constraints on the simulated motion.
    window : float, optional
        Length of the windows [s]; default the control stages.
    time_limit : float, optional
        Limit of the computing time [s].

    Returns
    -------
    Certificate
        With a verdict and its reason, see `Verdict`. `CONFIRMED`: the simulated motion has the events, end state and
        objective of the solution and satisfies bounds and constraints, up to the tolerance. Other verdicts: this holds
        in every window only, or constraints hold at the solution's nodes only. `REFUTED` names the first place that is
        wrong by more than errors of discretisation and residuals explain. Prints as a table.

    Raises
    ------
    ModelError
        If the solution belongs to another OCP (names, x0, p, horizon).
    OptionError
        For wrong options. A bad solution never raises an error.

    Examples
    --------
    A mass of 1 kg moves by 1 m in 1 s, from rest to rest, with the least integral of u^2:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> contact = ns.Contact("floor", gap=q + 1.0)
    >>> mass = ns.CLS(q=q, v=v, u=u, mass_matrix=1.0, force=u, contacts=[contact])
    >>> goal = ns.Constraint(ca.vertcat(q - 1.0, v), equals=0.0)
    >>> ocp = ns.OCP(mass, x0=[0.0, 0.0], horizon=1.0, stage_cost=u**2, terminal_constraints=[goal])
    >>> solution = ns.solve(ocp, method=ns.FESDJ(control_stages=4, finite_elements=1))
    >>> print(ns.certify(ocp, solution).verdict)
    confirmed
    """
    check_type(ocp, OCP, "ocp")
    check_type(solution, Solution, "solution")
    method = REFEREE if method is None else method
    check_type(method, EventDriven, "method")
    check_positive(tolerance=tolerance, **({} if window is None else {"window": window}))
    _check_names(ocp, solution)
    if (nothing := _not_finite(solution)) is not None:
        return _refuted_without_simulation(solution, tolerance, nothing)
    _check_belongs(ocp, solution)
    # The free choices are read before they are fixed to the values of the solution.
    free, ocp = free_choices(ocp, solution), ocp.with_values(solution.horizon, solution.p)
    edges = _edges(solution, window)
    started = time.monotonic()
    deadline = np.inf if time_limit is None else started + time_limit
    control = control_of(solution, ocp.system.n_u, ocp.horizon)
    simulator = event_driven_simulator(
        ocp.system, method, np.asarray(solution.x0), control, np.asarray(solution.p), REFEREE_RESTS
    )
    # An unstable motion may have ever more impacts. The windows, which decide then, keep their share of the time.
    whole = np.inf if time_limit is None else started + WHOLE * time_limit
    with work.counted(WHOLE * work.left()):
        history = simulator.run(np.asarray(solution.x0), control, np.asarray(solution.p), deadline=whole)
    seconds = time.monotonic() - started
    window_runs = WindowRuns(simulator, solution, control, deadline, state_sizes(ocp, solution))
    runs = window_runs.between(edges)
    refuting, explained, equations, jumps = _audit(ocp, solution, free)
    size = max(NEIGHBOUR, _residual(solution))
    case = Comparison(
        ocp=ocp,
        solution=solution,
        history=history,
        runs=runs,
        tolerance=tolerance,
        error=EXPLAINED_EFFECT * _residual(solution),
        refuting=refuting,
        explained=explained,
        by_rounding=lambda window: window_runs.neighbour_agrees(window, size),
    )
    verdict, reason = case.verdict_and_reason()
    return Certificate(
        verdict=verdict,
        reason=reason,
        tolerance=tolerance,
        end_state_error=case.end_state_error,
        end_state_errors=case.end_state_errors,
        state_names=solution.state_names,
        objective=solution.objective,
        true_objective=case.objective,
        windows=case.windows,
        events=case.pairs,
        violation=case.violation,
        equations=equations,
        jumps=jumps,
        findings=tuple(sorted((*refuting, *explained), key=lambda violation: violation.time)),
        balance=balance(simulator.mechanics, history) if history.steps and ocp.system.mechanical else None,
        trajectory=trajectory_of(ocp.system, history, control),
        seconds=seconds,
        amplification=case.amplification,
    )


def _check_names(ocp: OCP, solution: Solution) -> None:
    """Raise an error for names of another OCP: this is a mistake of the caller, not a bad solution."""
    s = ocp.system
    for what, names, expected in (
        ("states", solution.state_names, s.state_names),
        ("controls", solution.control_names, s.control_names),
        ("parameters", tuple(solution.parameters), s.parameter_names),
    ):
        if names != expected:
            raise ModelError(
                f"solution: it belongs to another OCP; expected the {what} {', '.join(expected) or 'none'}, given "
                f"{', '.join(names) or 'none'}."
            )


def _check_belongs(ocp: OCP, solution: Solution) -> None:
    """Raise an error for numbers of another OCP; free choices of a failed solver may violate their bounds."""
    if solution.success:
        for what, value, lower, upper in free_choices(ocp, solution):
            slack = GIVEN * (abs(value) + (upper - lower if np.isfinite(upper - lower) else 0.0))
            if not lower - slack <= value <= upper + slack:
                raise ModelError(
                    f"solution: its {what} {value:g} lies outside of [{lower:g}, {upper:g}]; certify it with the OCP "
                    "it solves."
                )
    ocp = ocp.with_values(solution.horizon, solution.p)
    grid = np.array([0.0, ocp.horizon]) + solution.u_grid[0]
    numbers: tuple[tuple[str, Any, Any, Any], ...] = (
        ("horizon", solution.horizon, ocp.horizon, 0.0),
        ("control grid", solution.u_grid[[0, -1]], grid, ocp.horizon),
        ("x0", solution.x0, solution.x0 if ocp.x0 is None else ocp.x0, ocp.sizes.x),
        ("p", solution.p, ocp.p, 0.0),
    )
    for what, reported, expected, size in numbers:
        away = np.abs(np.asarray(reported) - np.asarray(expected))
        if np.size(away) and (away > GIVEN * (np.asarray(size) + np.abs(expected))).any():
            raise ModelError(
                f"solution: it belongs to another OCP; its {what} is {reported}, expected {expected}; certify it with "
                "the OCP it solves (dataclasses.replace(ocp, ...) makes one)."
            )


def _not_finite(solution: Solution) -> str | None:
    """Return a message about values of a solution that are not finite, or None."""
    bad = np.flatnonzero(~np.isfinite(solution.x).all(axis=1))
    if bad.size:
        return f"the solution holds NaN or infinity, first at t = {solution.t[bad[0]]:.6g} s"
    interpolants = [dense for dense in (solution.interpolant, solution.control_interpolant) if dense is not None]
    dense = [values for dense in interpolants for values in vars(dense).values()]
    own: list[Any] = [solution.t, solution.u_grid, solution.u, solution.x0, solution.p, solution.horizon]
    if not all(np.isfinite(values).all() for values in [*own, *dense]):
        return "the solution holds NaN or infinity in its times, control, x0, p, horizon or dense output"
    return None if solution.horizon > 0.0 else f"the horizon of the solution is {solution.horizon:.3g} s"


def _edges(solution: Solution, window: float | None) -> np.ndarray:
    """Return the boundaries of the windows: of the given length, by default the control stages."""
    if window is None:
        grid = solution.u_grid - solution.u_grid[0]
        kept = [float(grid[0])]
        # In stages that are as good as none (a free horizon, time-freezing, a hop of no height) nothing can disagree.
        kept += [edge for last, edge in pairwise(grid.tolist()) if edge - last > SHORTEST_WINDOW * grid[-1]]
        return np.array([*kept[:-1], grid[-1]] if len(kept) > 1 else grid[[0, -1]])
    length = float(solution.u_grid[-1] - solution.u_grid[0])
    return np.linspace(0.0, length, max(1, round(length / window)) + 1)


def _audit(
    ocp: OCP, solution: Solution, free: list[Free]
) -> tuple[tuple[Violation, ...], tuple[Violation, ...], float | None, float | None]:
    """Check the laws at the solution's own stages and nodes, and the consistency of its data.

    Returns
    -------
    refuting, explained : tuple of Violation
        Violations that refute the solution, and those that its residuals explain.
    equations, jumps : float or None
        Largest shares at stages and nodes; None without them.
    """
    inconsistent = consistency_violations(ocp, solution, free)
    residual = _residual(solution)
    # Written with `not` so that NaN refutes.
    refuting = [
        one for one in inconsistent if one.law is Law.STATEMENT or not one.amount <= EXPLAINED_EFFECT * residual
    ]
    explained = [one for one in inconsistent if one not in refuting]
    equations, jumps, broken, allowed = _laws(ocp.system, solution, residual)
    refuting += [one for one in broken if not one.share <= allowed]
    explained += [one for one in broken if one.share <= allowed]
    return tuple(refuting), tuple(explained), equations, jumps


def _laws(
    system: Any, solution: Solution, residual: float
) -> tuple[float | None, float | None, list[Violation], float]:
    """Return largest relative residuals, violations above the tolerance, and the size that residuals explain."""
    own = solution.interpolant
    if not isinstance(own, RungeKuttaInterpolant):
        return None, None, [], BROKEN
    elements = own_stages(solution)
    stopped = [] if elements is None else stopped_clock_violations(solution, elements)
    if isinstance(system, PSS | Heaviside | PDS | HybridSystem):
        every = [] if elements is None else [*stopped, *inclusions_of(system, solution, elements)]
        shares = None if elements is None else max((one.share for one in every), default=0.0)
        jumps = jumps_of(solution, system) if isinstance(system, HybridSystem) else []
        every += violations(jumps, BROKEN)
        found = _share(worst_of(jumps)) if jumps else None
        return shares, found, [one for one in every if one.share > BROKEN], BROKEN
    reading = ContactReading(system, solution)
    # The residual of the solver is absolute, laws are relative: the scales convert it; MOST_EXPLAINED bounds the
    # excuse.
    allowed = float(np.clip(EXPLAINED_EFFECT * reading.scales.of_residual(residual), BROKEN, MOST_EXPLAINED))
    motion, impacts = reading.laws_of_motion(), reading.laws_of_impacts()
    broken = [*stopped, *violations([*motion, *impacts], BROKEN), *reading.false_impacts()]
    equations = None if elements is None else max(_share(worst_of(motion)), 1.0 if stopped else 0.0)
    return equations, _share(worst_of(impacts)), broken, allowed


def _share(violation: Violation | None) -> float:
    """Return the relative size of a violation, 0 for none."""
    return 0.0 if violation is None else violation.share


def _residual(solution: Solution) -> float:
    """Return the residual of the solver as the solution states it, at most RESIDUAL."""
    sizes = [abs(solution.infeasibility), abs(solution.complementarity_min)]
    # A failed solver explains nothing: its residuals are no measure of the accuracy of its numbers.
    return min(max(sizes), MOST_RESIDUAL) if np.isfinite(sizes).all() and solution.success else 0.0


def _refuted_without_simulation(solution: Solution, tolerance: float, reason: str) -> Certificate:
    """Return the certificate of a solution with NaN or infinite values: refuted without a simulation."""
    return Certificate(
        verdict=Verdict.REFUTED,
        reason=reason,
        tolerance=tolerance,
        end_state_error=np.inf,
        end_state_errors=np.full(len(solution.state_names), np.nan),
        state_names=solution.state_names,
        objective=solution.objective,
        true_objective=np.nan,
        trajectory=solution,
    )
