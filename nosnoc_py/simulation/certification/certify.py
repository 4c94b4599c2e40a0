"""The verb `certify`: a solution held against an independent simulation of its control."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nosnoc_py.errors import ModelError, OptionError, check_type
from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.claims import equations_of_motion, impact_law
from nosnoc_py.simulation.certification.measures import balance, objective, violations
from nosnoc_py.simulation.certification.windows import SIDES, pair_events, say, state_at, windows_of
from nosnoc_py.simulation.event_driven.history import History, Referee
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.event_driven.run import trajectory_of
from nosnoc_py.solution import Solution
from nosnoc_py.solution.certificate import Certificate, EventPair, Finding, Window
from nosnoc_py.status import Verdict
from nosnoc_py.systems.controls import control_of

# Soft landings of an optimal control bounce a little when simulated: slower than this [m/s] they do not.
REFEREE = EventDriven(grazing="continue", rest_velocity=1e-5)
# An event that is later than this share of the horizon is another one.
LATE = 0.05
SAME = 1e-9  # of x0, p and the horizon, relative


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

    The control is simulated from x0 by the event-driven referee, which shares no code with the finite elements; then
    every window from the solution's own state at its beginning, because unstable motions amplify the smallest error;
    and the solution's own stages and nodes are held against the laws of motion and of impacts (FESD-J, Eqs. 1 and 11).

    Parameters
    ----------
    ocp : OCP
    solution : Solution
        Of this OCP; a failed one, too.
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
        `confirmed` where end state and objective are within the tolerance and no law is broken; `same events,
        inaccurate` where the events agree, over the whole horizon or window by window, and no law is broken: an error
        of discretisation; `refuted` otherwise, with the first place where it goes wrong. Prints as a table.

    Raises
    ------
    ModelError, OptionError
        If the solution belongs to another OCP (names, x0, p, horizon), or for wrong options. Never for a bad solution.
    """
    check_type(ocp, OCP, "ocp")
    check_type(solution, Solution, "solution")
    method = REFEREE if method is None else method
    check_type(method, EventDriven, "method")
    if not 0 < tolerance < np.inf:
        raise OptionError(f"tolerance: expected a positive number, given {tolerance!r}.")
    _check_belongs(ocp, solution)
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
    equations, wrong = equations_of_motion(referee.mechanics, solution)
    jumps, broken = impact_law(referee.mechanics, solution)
    case = _Case(ocp=ocp, solution=solution, history=history, windows=pieces, tolerance=tolerance)
    findings = tuple(sorted([*case.ends(), *wrong, *broken], key=lambda finding: finding.time))
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
        violation=violations(ocp, history) if history.phases else (),
        equations=equations,
        jumps=jumps,
        findings=findings,
        balance=balance(referee.mechanics, history) if history.phases else None,
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


def _is_finite(solution: Solution) -> bool:
    return all(np.isfinite(values).all() for values in (solution.x, solution.u, solution.x0, solution.p))


def _edges(solution: Solution, window: float | None) -> np.ndarray:
    """Windows as long as asked for, by default the control stages."""
    if window is None:
        grid = solution.u_grid - solution.u_grid[0]
        return np.asarray(grid[np.append(True, np.diff(grid) > 0)])
    if not 0 < float(window) < np.inf:
        raise OptionError(f"window: expected a positive number of seconds, given {window!r}.")
    length = float(solution.u_grid[-1] - solution.u_grid[0])
    return np.linspace(0.0, length, max(1, round(length / float(window))) + 1)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Case:
    """A solution and what was simulated."""

    ocp: OCP
    solution: Solution
    history: History
    windows: tuple[Window, ...]
    tolerance: float

    @cached_property
    def end_state_errors(self) -> np.ndarray:
        """Simulation minus solution at the end (n_x,), against the nearer limit where the solution jumps there."""
        if not self.history.status.success:
            return np.full(len(self.solution.state_names), np.nan)
        end = self.solution.duration
        errors = [self.history.x - state_at(self.solution, end, side) for side in SIDES]
        return np.asarray(min(errors, key=lambda error: np.abs(error).max()))

    @cached_property
    def end_state_error(self) -> float:
        """Largest of them; infinite where the simulation did not get to the end."""
        return float(np.abs(self.end_state_errors).max()) if self.history.status.success else np.inf

    @cached_property
    def objective(self) -> float:
        """On the true trajectory; NaN where it does not get to the end."""
        return objective(self.ocp, self.history) if self.history.status.success else np.nan

    @cached_property
    def pairs(self) -> tuple[EventPair, ...]:
        """Events claimed and found over the whole horizon."""
        return pair_events(self.solution.events, self.history.events)

    def ends(self) -> list[Finding]:
        """A solution has to begin and end where it says."""
        away = float(np.abs(state_at(self.solution, 0.0, "-") - self.solution.x0).max())
        short = abs(self.solution.duration - self.solution.horizon)
        found = [
            Finding(time=0.0, what=f"the trajectory begins {away:.3g} away from x0", size=away),
            Finding(time=self.solution.duration, what=f"the horizon is missed by {short:.3g} s", size=short),
        ]
        return [finding for finding in found if finding.size > self.tolerance]

    def judge(self, findings: tuple[Finding, ...]) -> tuple[Verdict, str]:
        """The verdict and its reason."""
        if self._is_confirmed() and not findings:
            return Verdict.CONFIRMED, f"end state and objective agree to {self.tolerance:g}"
        places = [(finding.time, str(finding)) for finding in findings]
        odd = next((window for window in self.windows if not window.events_agree), None)
        differs = self._first_difference()
        if odd is not None and differs is not None:
            places.append((odd.start, f"in [{odd.start:.6g}, {odd.end:.6g}] s: {odd.difference}"))
        if places:
            return Verdict.REFUTED, f"first goes wrong at {min(places)[1]}"
        where = "" if differs is None else f" window by window (over the whole horizon {differs})"
        return Verdict.INACCURATE, f"the events agree{where}, {self._inaccuracy()}"

    def _inaccuracy(self) -> str:
        if self._states_agree():
            error = self.objective - self.solution.objective
            return (
                f"the states too; the objective differs by {error:+.3g}, the error of its quadrature: more RK "
                "stages or elements make it smaller"
            )
        worst = max(self.windows, key=lambda window: window.defect)
        return (
            f"the states do not: largest defect {worst.defect:.2e} ({worst.state}) in [{worst.start:.6g}, "
            f"{worst.end:.6g}] s; refine the grid"
        )

    def _states_agree(self) -> bool:
        bound = self.tolerance * (1.0 + np.abs(self.solution.x[-1]))
        return bool((np.abs(self.end_state_errors) <= bound).all())

    def _is_confirmed(self) -> bool:
        error = abs(self.objective - self.solution.objective)
        return self._states_agree() and error <= self.tolerance * (1.0 + abs(self.solution.objective))

    def _first_difference(self) -> str | None:
        """What happens differently over the whole horizon, in words; None when nothing does."""
        for pair in self.pairs:
            if pair.claimed is None or pair.found is None:
                return say(pair)
            if abs(pair.delay) > LATE * self.ocp.horizon:
                return f"{pair.claimed.kind} {pair.claimed.name} is {pair.delay:+.3g} s late"
        if not self.history.status.success:
            return f"the simulation stops at {self.history.t:.6g} s: {self.history.status} {self.history.message}"
        return None


def _of_nothing(ocp: OCP, solution: Solution, tolerance: float) -> Certificate:
    """A solution that is no numbers has no control to simulate."""
    bad = np.flatnonzero(~np.isfinite(solution.x).all(axis=1))
    where = f"at t = {solution.t[bad[0]]:.6g} s" if bad.size else "in its control, x0 or p"
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
