"""Certificates: a solution compared with an independent simulation of its control.

A solver verifies its own discretised equations. A certificate verifies the motion: an event-driven simulation applies
the control of the solution to the system, and end state, objective, events and constraints are compared. Because a
motion may amplify errors, the solution is also simulated in windows, each from its own state: if all windows agree and
the whole does not, the discretisation is right and the motion sensitive.

Invariants: numbers of the solution are "claimed", those of the simulation "true"; numbers that the simulation did not
reach are NaN or infinite, never zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nosnoc_py.declared import assign
from nosnoc_py.markup import page, paragraph, table
from nosnoc_py.solution.arrays import Array, read_only
from nosnoc_py.solution.records import Event
from nosnoc_py.solution.trajectory import Trajectory, first_lines, jsonable
from nosnoc_py.solution.violation import Violation
from nosnoc_py.status import Verdict

# Largest number of lines of a list in `repr`; a longer one ends with the number of the others.
SHOWN = 12
# Fields that `to_dict` copies; the others need a conversion.
REPORTED = (
    "reason",
    "end_state_error",
    "objective",
    "true_objective",
    "equations",
    "jumps",
    "amplification",
    "seconds",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Window:
    """A piece of the solution that was simulated again from the solution's own state.

    Parameters
    ----------
    start, end
        Times [s].
    defect
        Largest difference of a state at its end.
    state
        The name of this state.
    events_agree
        True if the same events happened, apart from those at its edges, and the simulation reached the end.
    time, difference
        The first event that differs [s], in words; NaN and "" without one.
    stopped
        Why the simulation stopped, if it did.
    """

    start: float
    end: float
    defect: float
    state: str
    events_agree: bool
    time: float = np.nan
    difference: str = ""
    stopped: str = ""

    @property
    def length(self) -> float:
        """Length of the window [s]."""
        return self.end - self.start


@dataclass(frozen=True, eq=False, kw_only=True)
class EventPair:
    """An event of the solution (`claimed`) with its partner in the simulation (`found`), or None without a partner."""

    claimed: Event | None
    found: Event | None

    @property
    def event(self) -> Event:
        """The claimed event, or the simulated one if it has no partner."""
        # One of the two exists: a pair is made of an event.
        event = self.claimed or self.found
        assert event is not None
        return event

    @property
    def lone(self) -> bool:
        """True if the event has no partner."""
        return self.claimed is None or self.found is None

    # NaN, not zero: an event without a partner has no delay that statistics could use.
    @property
    def delay(self) -> float:
        """Time by which the simulated event is later than the claimed one [s]; NaN without a partner."""
        return np.nan if self.claimed is None or self.found is None else self.found.time - self.claimed.time


@dataclass(frozen=True, eq=False, kw_only=True)
class Balance:
    """Energy and impulse of a motion from start to end.

    Parameters
    ----------
    kinetic_start, kinetic_end
        Kinetic energy [J].
    work
        Work of all forces except contact forces, with that of a changing mass matrix [J].
    friction
        Work of friction forces [J]; not positive.
    impacts
        Kinetic energy gained in impacts [J]; negative where it is lost.
    energy_residual
        kinetic_end - kinetic_start - work - friction - impacts [J]: zero up to the error of the simulation.
    impulse_residual
        Largest component of M v at the end - M v at the start - the integral of all forces - all impulses [N s].
    impulses
        Impulse of every contact, from impacts and forces together, by name [N s].
    """

    kinetic_start: float
    kinetic_end: float
    work: float
    friction: float
    impacts: float
    # The residuals measure the error of the simulation itself, whatever the solution claims.
    energy_residual: float
    impulse_residual: float
    impulses: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class Certificate:
    """Comparison of a solution with an event-driven simulation of its control.

    Parameters
    ----------
    verdict : Verdict
    reason
        Reason of the verdict in one sentence; of a refuted solution the first place where it is wrong.
    tolerance
        Absolute and relative, for the end state and the objective.
    end_state_error
        Largest difference of a state at the end; infinite where the simulation does not get there.
    end_state_errors : (n_x,)
        Simulation minus solution.
    objective, true_objective
        Objective of the solution, and that of the true trajectory.
    windows
        The solution in pieces.
    events
        Events of the solution and of the simulation, one by one.
    violation : tuple of Violation
        Constraints and bounds that the true trajectory violates, the largest violation of each.
    equations
        Largest violation of the equations of motion (of a Filippov system: of its inclusion) at the solution's own
        stages, relative to the forces (rates) there; None where the solution carries no collocation polynomials.
    jumps
        Largest violation of the law of impacts at its nodes, relative to the largest speed; None without jumps.
    findings : tuple of Violation
        Laws that are broken at the solution's own stages and nodes beyond what a converged solution may have, and
        statements that are not true of it, in the order of time.
    amplification
        Error of the end state in units of the largest defect of a window: how much the motion amplifies errors; None
        where a simulation stopped.
    balance : Balance or None
        Of the true trajectory.
    trajectory : Trajectory
        The true trajectory, up to where the simulation got.
    seconds
        Time of the simulation [s].

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
    >>> certificate = ns.certify(ocp, ns.solve(ocp, ns.FESDJ(control_stages=2)))
    >>> certificate.confirmed, bool(abs(certificate.objective_error) < 1e-6)
    (True, True)
    """

    verdict: Verdict
    reason: str
    tolerance: float
    end_state_error: float
    end_state_errors: Array
    state_names: tuple[str, ...]
    objective: float
    true_objective: float
    windows: tuple[Window, ...] = ()
    events: tuple[EventPair, ...] = ()
    violation: tuple[Violation, ...] = ()
    equations: float | None = None
    jumps: float | None = None
    findings: tuple[Violation, ...] = ()
    balance: Balance | None = None
    trajectory: Trajectory
    seconds: float = 0.0
    amplification: float | None = None

    def __post_init__(self) -> None:
        errors = read_only(self.end_state_errors, "end_state_errors", len(self.state_names))
        assign(self, end_state_errors=errors)

    @property
    def confirmed(self) -> bool:
        """True if the whole simulated motion, between the nodes too, agrees with the solution."""
        return self.verdict is Verdict.CONFIRMED

    @property
    def objective_error(self) -> float:
        """The true objective minus the claimed one."""
        return self.true_objective - self.objective

    @property
    def worst_window(self) -> Window | None:
        """The window with the largest defect."""
        # A window that stopped early has an infinite defect, and is the worst one.
        return max(self.windows, key=lambda window: window.defect, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return a summary for `json.dumps`; NaN and infinity become None.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
        >>> ns.solve(ocp, ns.FESDJ(control_stages=2)).certificate.to_dict()["verdict"]
        'confirmed'
        """
        return jsonable(
            {
                **{name: getattr(self, name) for name in REPORTED},
                "verdict": self.verdict.value,
                "largest_defect": max((window.defect for window in self.windows), default=None),
                "windows": [vars(window) for window in self.windows],
                "events": [
                    {name: None if event is None else event.to_dict() for name, event in vars(pair).items()}
                    for pair in self.events
                ],
                "violation": [_plain(violation) for violation in self.violation],
                "findings": [_plain(violation) for violation in self.findings],
                "balance": None if self.balance is None else vars(self.balance),
                "referee_status": self.trajectory.status.value,
            }
        )

    def __repr__(self) -> str:
        lines = [f"Certificate: {self.verdict}", f"  {self.reason}"]
        lines += [f"  {name:<18}{text}" for name, text in self._numbers()]
        lines += self._events()
        lines += self._list("violated on the true trajectory", self.violation)
        lines += self._list("local findings", self.findings)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        times = [
            (
                pair.event.kind,
                pair.event.name,
                *self._times_of(pair),
                "" if np.isnan(pair.delay) else f"{pair.delay:+.1e}",
            )
            for pair in self.events
        ]
        lists = {"violated on the true trajectory": self.violation, "local findings": self.findings}
        return page(
            f"Certificate: {self.verdict}",
            paragraph(self.reason),
            table(self._numbers()),
            table(times, ("event", "name", "claimed [s]", "true [s]", "delay [s]")),
            *(table([(str(finding),) for finding in findings], (title,)) for title, findings in lists.items()),
        )

    @staticmethod
    def _times_of(pair: EventPair) -> list[str]:
        return [f"{each.time:.8g}" if each is not None else "-" for each in (pair.claimed, pair.found)]

    @staticmethod
    def _delay_of(pair: EventPair) -> str:
        return "" if np.isnan(pair.delay) else f"{pair.delay:+.1e}"

    def _numbers(self) -> list[tuple[str, str]]:
        # The same rows for `repr` and for notebooks.
        rows = [("end state", self._end()), ("objective", self._objective())]
        if (window := self.worst_window) is not None:
            agree = sum(window.events_agree for window in self.windows)
            size = f"{window.defect:.2e} ({window.state})" if np.isfinite(window.defect) else "unknown"
            span = f"{size} in [{window.start:.4g}, {window.end:.4g}] s"
            rows.append(("windows", f"{len(self.windows)}, largest defect {span}; same events in {agree}"))
        # Where the whole motion agrees, amplification is of no interest.
        if self.amplification is not None and self.verdict is Verdict.CONFIRMED_IN_WINDOWS:
            rows.append(("amplification", f"{self.amplification:.3g}, from the largest defect to the end state"))
        # None means not measured, infinity measured and not finite.
        laws = {"equations of motion": self.equations, "law of impacts": self.jumps}
        own = [
            f"{law} {share:.1e}" if np.isfinite(share) else f"{law} unknown"
            for law, share in laws.items()
            if share is not None
        ]
        if own:
            rows.append(("at its own nodes", f"{', '.join(own)} (shares)"))
        if (b := self.balance) is not None:
            change = f"{b.kinetic_end - b.kinetic_start:+.4g} J = work {b.work:+.4g}, friction {b.friction:+.4g}"
            rows.append(("energy", f"{change}, impacts {b.impacts:+.4g} (residual {b.energy_residual:.1e})"))
            shares = ", ".join(f"{name} {value:.4g}" for name, value in b.impulses.items())
            rows.append(("impulse", f"{shares or 'no contacts'} N s (residual {b.impulse_residual:.1e})"))
        status = self.trajectory.status
        stopped = "" if status.success else f", stopped: {status} {self.trajectory.message}"
        rows.append(("referee", f"{self.trajectory.t[-1]:.6g} s simulated in {self.seconds:.2f} s{stopped}"))
        return rows

    def _end(self) -> str:
        # The simulation stopped early: a difference of states of different times would mean nothing.
        if not np.isfinite(self.end_state_errors).all():
            return "unknown: the simulation did not get there"
        return f"{self.end_state_error:.2e} ({self.state_names[int(np.argmax(np.abs(self.end_state_errors)))]})"

    def _objective(self) -> str:
        claimed = f"{self.objective:.9g} claimed" if np.isfinite(self.objective) else "no finite number claimed"
        if not np.isfinite(self.true_objective):
            return f"{claimed}; the true one is unknown: the simulation did not get to the end"
        # An iterate of a failed solver may claim NaN.
        error = f" ({self.objective_error:+.2e})" if np.isfinite(self.objective) else ""
        return f"{claimed}, {self.true_objective:.9g} true{error}"

    def _events(self) -> list[str]:
        if not self.events:
            return ["  events            none"]
        lines = [f"  {'event':<34}{'claimed [s]':>14}{'true [s]':>14}{'delay [s]':>12}"]
        for pair in self.events:
            times = self._times_of(pair)
            name = f"{pair.event.kind} {pair.event.name}"
            lines.append(f"  {name:<34}{times[0]:>14}{times[1]:>14}{self._delay_of(pair):>12}")
        # One more, as the first line is the title.
        return first_lines(lines, SHOWN + 1, "  ... and {} more")

    @staticmethod
    def _list(title: str, findings: Sequence[Violation]) -> list[str]:
        lines = [f"  {title}:", *(f"    {finding}" for finding in findings)]
        return first_lines(lines, SHOWN + 1, "    ... and {} more") if findings else []


def _plain(violation: Violation) -> dict[str, Any]:
    # The name of a law is stable, its text is for people and may change.
    return {**vars(violation), "law": violation.law.name.lower(), "what": violation.what}
