"""The verb `certify`: a solution held against an independent simulation of its control."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError, OptionError, check_type
from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.claims import Claims
from nosnoc_py.simulation.certification.collocation import is_by_collocation
from nosnoc_py.simulation.certification.inclusions import Inclusions
from nosnoc_py.simulation.certification.measures import balance, violations
from nosnoc_py.simulation.certification.statements import statements
from nosnoc_py.simulation.certification.verdict import Case
from nosnoc_py.simulation.certification.windows import windows_of
from nosnoc_py.simulation.event_driven.history import Referee
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.event_driven.run import trajectory_of
from nosnoc_py.solution import RungeKuttaInterpolant, Solution
from nosnoc_py.solution.certificate import Certificate, Finding
from nosnoc_py.status import Verdict
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import control_of
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.pss import PDS, PSS, Heaviside

# Soft landings of an optimal control bounce a little when simulated: slower than this [m/s] they do not.
REFEREE = EventDriven(grazing="continue", rest_velocity=1e-5)
SAME = 1e-9  # of x0, p and the horizon, relative
COMPLEMENTARY = 1e-5  # residual of the user's own complementarities


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
        The referee. By default it goes on after grazing contacts, and impacts below 1e-5 m/s are inelastic.
    tolerance : float
        Absolute and relative, for the end state and the objective.
    window : float, optional
        Length of the windows [s]; default the control stages.
    time_limit : float, optional
        Seconds.

    Returns
    -------
    Certificate
        `confirmed` where end state and objective are within the tolerance; `same events, inaccurate` where the events
        agree, over the whole horizon or window by window: an error of discretisation; `refuted` where events differ, a
        law is broken at the solution's own stages and nodes, or a statement of the solution is not true of it, with the
        first place where it goes wrong; `undecided` where the simulation did not get to the end. Prints as a table.

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
    tolerance = _positive(tolerance, "tolerance")
    _check_belongs(ocp, solution)
    ocp = ocp.settled(solution.horizon, solution.p)
    edges = _edges(solution, window)
    started = time.monotonic()
    deadline = np.inf if time_limit is None else started + time_limit
    referee = Referee(ocp.system, method)
    if not _is_finite(solution):
        return _of_nothing(ocp, solution, tolerance)
    control = control_of(solution, ocp.system.n_u, ocp.horizon)
    history = referee.run(np.asarray(solution.x0), control, np.asarray(solution.p), deadline=deadline)
    seconds = time.monotonic() - started
    pieces = windows_of(referee, solution, control, edges, deadline)
    equations, jumps, broken = _claims(referee, solution)
    found = [*broken, *statements(ocp, solution), *_own_complementarities(ocp, solution)]
    findings = tuple(sorted(found, key=lambda finding: finding.time))
    case = Case(ocp=ocp, solution=solution, history=history, windows=pieces, tolerance=tolerance)
    verdict, reason = case.judge(findings)
    return Certificate(
        verdict=verdict,
        reason=reason,
        tolerance=tolerance,
        end_state_error=case.end_state_error,
        end_state_errors=case.end_state_errors,
        state_names=solution.state_names,
        objective=solution.objective,
        true_objective=case.objective,
        windows=pieces,
        events=case.pairs,
        violation=violations(ocp, history) if history.steps else (),
        equations=equations,
        jumps=jumps,
        findings=findings,
        balance=balance(referee.mechanics, history) if history.steps and isinstance(ocp.system, CLS) else None,
        trajectory=trajectory_of(ocp.system, history, control),
        seconds=seconds,
    )


def _check_belongs(ocp: OCP, solution: Solution) -> None:
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
    free = ocp.free_time
    if free is not None and not free.lower - SAME <= solution.horizon <= free.upper + SAME:
        raise ModelError(
            f"solution: its horizon {solution.horizon:g} lies outside of [{free.lower:g}, {free.upper:g}]; certify it "
            "with the OCP it solves."
        )
    for name, (lower, upper) in ocp.free_parameters.items():
        if not lower - SAME <= solution.parameters[name] <= upper + SAME:
            raise ModelError(
                f"solution: its parameter {name} = {solution.parameters[name]:g} lies outside of [{lower:g}, "
                f"{upper:g}]; certify it with the OCP it solves."
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
        if np.size(away) and (away > SAME * (1.0 + np.abs(wanted))).any():
            raise ModelError(
                f"solution: it belongs to another OCP; its {what} is {mine}, expected {wanted}; certify it with the "
                "OCP it solves (dataclasses.replace(ocp, ...) makes one)."
            )


def _own_complementarities(ocp: OCP, solution: Solution) -> Iterator[Finding]:
    """The user's own complementarities, where a solution breaks them at its nodes; those of x, u and p only."""
    s = ocp.system
    times = solution.t[:-1]
    for pair in ocp.complementarities:
        if ca.depends_on(ca.vertcat(pair.a, pair.b), s.z):
            continue
        function = ca.Function("pair", [s.x, s.u, s.p], [pair.a, pair.b])
        a, b = (v.full() for v in function(solution.x[:-1].T, solution.control(times).T, solution.p))
        size = np.maximum(np.abs(a * b) / np.maximum(1.0, np.maximum(np.abs(a), np.abs(b))), -np.minimum(a, b))
        worst = size.max(axis=0)
        if worst.max() > COMPLEMENTARY:
            k = int(np.argmax(worst))
            yield Finding(time=float(times[k]), what=f"{pair.name} is violated by {worst[k]:.3g}", size=float(worst[k]))


def _is_finite(solution: Solution) -> bool:
    interpolants = [found for found in (solution.interpolant, solution.control_interpolant) if found is not None]
    dense = [values for found in interpolants for values in found.to_arrays().values()]
    return all(np.isfinite(values).all() for values in (solution.x, solution.u, solution.x0, solution.p, *dense))


def _edges(solution: Solution, window: float | None) -> np.ndarray:
    """Windows as long as asked for, by default the control stages."""
    if window is None:
        grid = solution.u_grid - solution.u_grid[0]
        return np.asarray(grid[np.append(True, np.diff(grid) > 0)])
    length = float(solution.u_grid[-1] - solution.u_grid[0])
    return np.linspace(0.0, length, max(1, round(length / _positive(window, "window"))) + 1)


def _positive(value: Any, what: str) -> float:
    number = value if isinstance(value, int | float | np.number) and not isinstance(value, bool) else np.nan
    if not 0 < number < np.inf:
        raise OptionError(f"{what}: expected a positive number, given {value!r}.")
    return float(number)


def _claims(referee: Referee, solution: Solution) -> tuple[float | None, float | None, list[Finding]]:
    """Largest violations at the stages and at the nodes (None without them), and what is too large."""
    by_elements = is_by_collocation(solution)
    if not isinstance(solution.interpolant, RungeKuttaInterpolant):
        return None, None, []
    if isinstance(referee.system, PSS | Heaviside | PDS):
        if not by_elements:
            return None, None, []
        worst, wrong = Inclusions(referee.system, solution).equations_of_motion()
        return worst, None, wrong
    claims = Claims(referee.mechanics, solution)
    jumps, broken = claims.impact_law()
    if not by_elements:
        return None, jumps, broken
    equations, wrong = claims.equations_of_motion()
    return equations, jumps, [*broken, *wrong, *claims.impacts()]


def _of_nothing(ocp: OCP, solution: Solution, tolerance: float) -> Certificate:
    """A solution that is no numbers has no control to simulate."""
    bad = np.flatnonzero(~np.isfinite(solution.x).all(axis=1))
    where = f"at t = {solution.t[bad[0]]:.6g} s" if bad.size else "in its control, x0, p or dense output"
    return Certificate(
        verdict=Verdict.REFUTED,
        reason=f"the solution holds NaN or infinity, first {where}",
        tolerance=tolerance,
        end_state_error=np.inf,
        end_state_errors=np.full(len(solution.state_names), np.nan),
        state_names=solution.state_names,
        objective=solution.objective,
        true_objective=np.nan,
        windows=(),
        events=(),
        violation=(),
        equations=None,
        jumps=np.nan,
        findings=(),
        balance=None,
        trajectory=solution,
        seconds=0.0,
    )
