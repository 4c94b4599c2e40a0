"""The verb `certify`: a solution held against an independent simulation of its control."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.audit.records import violations, worst_of
from nosnoc_py.errors import ModelError, OptionError, check_positive, check_type
from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.measures import balance
from nosnoc_py.simulation.certification.readings import ContactReading, inclusions_of, own_stages, standing
from nosnoc_py.simulation.certification.statements import Free, chosen, statements
from nosnoc_py.simulation.certification.verdict import Case
from nosnoc_py.simulation.certification.windows import Pieces
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.event_driven.run import event_driven_simulator, trajectory_of
from nosnoc_py.solution import RungeKuttaInterpolant, Solution
from nosnoc_py.solution.certificate import Certificate
from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.status import Verdict
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import control_of
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.pss import PDS, PSS, Heaviside
from nosnoc_py.tolerances import BROKEN, GIVEN

# Soft landings of an optimal control bounce a little when simulated: slower than this [m/s] they do not.
REFEREE, REFEREE_RESTS = EventDriven(grazing="continue"), 1e-5
# Violations up to so many times what a residual amounts to are explained by it, up to this share; residuals count up to
# this size: a solution that admits more is no solution.
EXPLAINED, MOST, RESIDUAL = 2.0, 1e-3, 1e-4
# The share of the limit of time that the whole motion may take.
WHOLE = 0.5
# Starts of windows are tried beside the solution's own, at this distance at least.
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
    """Hold a solution against an independent simulation of its control.

    The control is simulated from x0 by the event-driven referee, which knows nothing of finite elements; then
    every window from the solution's own state at its beginning, because unstable motions amplify the smallest error;
    and the solution's own stages and nodes are held against the laws of motion and of impacts (FESD-J, Eqs. 1 and 11),
    those of a Filippov system against its inclusion. Solutions by time-freezing are held in physical time, at the
    stages of their elements in numerical time.

    Parameters
    ----------
    ocp : OCP
    solution : Solution
        Of this OCP; a failed one, too. Stages are looked at for FESD, FESD-J and time-freezing
        with Radau IIA and Gauss-Legendre.
    method : EventDriven, optional
        The referee. By default it goes on after grazing contacts; where it does not say otherwise, impacts below
        1e-5 of the speed at work are inelastic.
    tolerance : float
        Absolute and relative, for end states, the objective, and constraints on the simulated motion.
    window : float, optional
        Length of the windows [s]; default the control stages.
    time_limit : float, optional
        Seconds.

    Returns
    -------
    Certificate
        With a verdict and its reason, see `Verdict`: `confirmed` where the simulated motion has the events, end state
        and objective of the solution and keeps bounds and constraints, to the tolerance; where it does so in every
        window only, or keeps constraints at the solution's nodes only, verdicts of their own. `refuted` names the first
        place that is wrong by more than errors of discretisation and residuals explain. Prints as a table.

    Raises
    ------
    ModelError, OptionError
        If the solution belongs to another OCP (names, x0, p, horizon), or for wrong options. Never for a bad solution.
    """
    check_type(ocp, OCP, "ocp")
    check_type(solution, Solution, "solution")
    if isinstance(ocp.system, HybridSystem):
        raise OptionError(
            "certify: the referee simulates contacts and Filippov systems, not the guards and resets of a "
            "HybridSystem; write mechanics as an ns.CLS, and the solution of its OCP can be certified."
        )
    method = REFEREE if method is None else method
    check_type(method, EventDriven, "method")
    check_positive(tolerance=tolerance, **({} if window is None else {"window": window}))
    _check_names(ocp, solution)
    if (nothing := _not_finite(solution)) is not None:
        return _of_nothing(solution, tolerance, nothing)
    _check_belongs(ocp, solution)
    free, ocp = chosen(ocp, solution), ocp.settled(solution.horizon, solution.p)
    edges = _edges(solution, window)
    started = time.monotonic()
    deadline = np.inf if time_limit is None else started + time_limit
    control = control_of(solution, ocp.system.n_u, ocp.horizon)
    simulator = event_driven_simulator(
        ocp.system, method, np.asarray(solution.x0), control, np.asarray(solution.p), REFEREE_RESTS
    )
    # What is unstable may end in ever more impacts: windows, which decide over such motions, keep their share of time.
    whole = np.inf if time_limit is None else started + WHOLE * time_limit
    history = simulator.run(np.asarray(solution.x0), control, np.asarray(solution.p), deadline=whole)
    seconds = time.monotonic() - started
    again = Pieces(simulator, solution, control, deadline)
    pieces = again.between(edges)
    refuting, explained, equations, jumps = _audited(ocp, solution, free)
    size = max(NEIGHBOUR, _residual(solution))
    case = Case(
        ocp=ocp,
        solution=solution,
        history=history,
        pieces=pieces,
        tolerance=tolerance,
        error=EXPLAINED * _residual(solution),
        refuting=refuting,
        explained=explained,
        by_rounding=lambda window: again.neighbour_agrees(window, size),
    )
    verdict, reason = case.judge()
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
        balance=balance(simulator.mechanics, history) if history.steps and isinstance(ocp.system, CLS) else None,
        trajectory=trajectory_of(ocp.system, history, control),
        seconds=seconds,
        amplification=case.amplification,
    )


def _check_names(ocp: OCP, solution: Solution) -> None:
    """A solution of another OCP is a mistake, not a bad solution."""
    s = ocp.system
    for what, given, expected in (
        ("states", solution.state_names, s.state_names),
        ("controls", solution.control_names, s.control_names),
        ("parameters", tuple(solution.parameters), s.parameter_names),
    ):
        if given != expected:
            raise ModelError(
                f"solution: it belongs to another OCP; expected the {what} {', '.join(expected) or 'none'}, given "
                f"{', '.join(given) or 'none'}."
            )


def _check_belongs(ocp: OCP, solution: Solution) -> None:
    """Its numbers; what a failed solver chose out of its bounds is no mistake of the user (see `statements`)."""
    if solution.success:
        for what, given, lower, upper in chosen(ocp, solution):
            if not lower - GIVEN <= given <= upper + GIVEN:
                raise ModelError(
                    f"solution: its {what} {given:g} lies outside of [{lower:g}, {upper:g}]; certify it with the OCP "
                    "it solves."
                )
    ocp = ocp.settled(solution.horizon, solution.p)
    numbers = (
        ("horizon", solution.horizon, ocp.horizon),
        ("control grid", solution.u_grid[[0, -1]], np.array([0.0, ocp.horizon]) + solution.u_grid[0]),
        ("x0", solution.x0, solution.x0 if ocp.x0 is None else ocp.x0),
        ("p", solution.p, ocp.p),
    )
    for what, mine, wanted in numbers:
        away = np.abs(np.asarray(mine) - np.asarray(wanted))
        if np.size(away) and (away > GIVEN * (1.0 + np.abs(wanted))).any():
            raise ModelError(
                f"solution: it belongs to another OCP; its {what} is {mine}, expected {wanted}; certify it with the "
                "OCP it solves (dataclasses.replace(ocp, ...) makes one)."
            )


def _not_finite(solution: Solution) -> str | None:
    """What of a solution is no number, so that there is nothing to simulate; None where all is."""
    bad = np.flatnonzero(~np.isfinite(solution.x).all(axis=1))
    if bad.size:
        return f"the solution holds NaN or infinity, first at t = {solution.t[bad[0]]:.6g} s"
    interpolants = [found for found in (solution.interpolant, solution.control_interpolant) if found is not None]
    dense = [values for found in interpolants for values in found.to_arrays().values()]
    own: list[Any] = [solution.t, solution.u_grid, solution.u, solution.x0, solution.p, solution.horizon]
    if not all(np.isfinite(values).all() for values in [*own, *dense]):
        return "the solution holds NaN or infinity in its times, control, x0, p, horizon or dense output"
    return None if solution.horizon > 0.0 else f"the horizon of the solution is {solution.horizon:.3g} s"


def _edges(solution: Solution, window: float | None) -> np.ndarray:
    """Windows as long as asked for, by default the control stages."""
    if window is None:
        grid = solution.u_grid - solution.u_grid[0]
        return np.asarray(grid[np.append(True, np.diff(grid) > 0)])
    length = float(solution.u_grid[-1] - solution.u_grid[0])
    return np.linspace(0.0, length, max(1, round(length / window)) + 1)


def _audited(
    ocp: OCP, solution: Solution, free: list[Free]
) -> tuple[tuple[Violation, ...], tuple[Violation, ...], float | None, float | None]:
    """The laws at the solution's own stages and nodes, and its statements.

    Returns
    -------
    refuting, explained : tuple of Violation
        What refutes it, and what its residuals explain.
    equations, jumps : float or None
        Largest shares at stages and nodes; None without them.
    """
    said = statements(ocp, solution, free)
    residual = _residual(solution)
    refuting = [one for one in said if one.law is Law.STATEMENT or not one.amount <= EXPLAINED * residual]
    explained = [one for one in said if one not in refuting]
    equations, jumps, broken, allowed = _laws(ocp.system, solution, residual)
    refuting += [one for one in broken if not one.share <= allowed]
    explained += [one for one in broken if one.share <= allowed]
    return tuple(refuting), tuple(explained), equations, jumps


def _laws(
    system: Any, solution: Solution, residual: float
) -> tuple[float | None, float | None, list[Violation], float]:
    """Largest shares, violations beyond the tolerance, and up to which share the residual explains them."""
    own = solution.interpolant
    if not isinstance(own, RungeKuttaInterpolant):
        return None, None, [], BROKEN
    elements = own_stages(solution)
    stopped = [] if elements is None else standing(solution, elements)
    if isinstance(system, PSS | Heaviside | PDS):
        if elements is None:
            return None, None, [], BROKEN
        every = [*stopped, *inclusions_of(system, solution, elements)]
        shares = max((one.share for one in every), default=0.0)
        return shares, None, [one for one in every if one.share > BROKEN], BROKEN
    reading = ContactReading(system, solution)
    allowed = float(np.clip(EXPLAINED * reading.scales.of_residual(residual), BROKEN, MOST))
    motion, impacts = reading.laws_of_motion(), reading.laws_of_impacts()
    broken = [*stopped, *violations([*motion, *impacts], BROKEN), *reading.false_impacts()]
    equations = None if elements is None else max(_share(worst_of(motion)), 1.0 if stopped else 0.0)
    return equations, _share(worst_of(impacts)), broken, allowed


def _share(violation: Violation | None) -> float:
    return 0.0 if violation is None else violation.share


def _residual(solution: Solution) -> float:
    """What the solver left of equations and complementarities, as far as a solution may say so itself."""
    sizes = [abs(solution.infeasibility), abs(solution.complementarity_min)]
    return min(max(sizes), RESIDUAL) if np.isfinite(sizes).all() and solution.success else 0.0


def _of_nothing(solution: Solution, tolerance: float, reason: str) -> Certificate:
    """A solution that is no numbers has no control to simulate."""
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
