"""Simulation of an initial guess: its motion, objective and violations, and solutions started near it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nosnoc_py.errors import NosnocError
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.certify import REFEREE, REFEREE_RESTS
from nosnoc_py.simulation.certification.measures import objective, violations
from nosnoc_py.simulation.event_driven.run import event_driven_simulator, trajectory_of
from nosnoc_py.solution import Shifted, Solution, Trajectory
from nosnoc_py.solution.violation import Violation
from nosnoc_py.status import Status
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import control_of
from nosnoc_py.systems.pss import PDS, PSS, Heaviside

# Relative violations up to which a guess is feasible, nearly feasible, and useful: up to the last one it is worth
# starting near its events (motions of smoothed shooting miss by up to 0.16 and lead to good optima).
FEASIBLE, NEARLY, USEFUL = 1e-6, 1e-2, 0.3
# A solution that costs more than a feasible guess by this relative amount is another optimum, not an effect of the
# grid.
WORSE = 0.05
ENDED = (Status.TIME_LIMIT, Status.INTERRUPTED, Status.STOPPED)


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatedGuess:
    """Simulated motion of the control of a guess.

    Attributes
    ----------
    motion : Trajectory
    objective : float
    worst : Violation or None
        Of bounds and constraints.
    """

    motion: Trajectory
    objective: float
    worst: Violation | None

    @property
    def broken(self) -> float:
        """Largest relative violation of a bound or constraint."""
        return 0.0 if self.worst is None else self.worst.share

    def __str__(self) -> str:
        missed = (
            "is feasible" if self.feasible else "is nearly feasible" if self.broken <= NEARLY else "is not feasible"
        )
        because = "" if self.feasible or self.worst is None else f" ({self.worst.what})"
        return f"simulated, {missed}{because} and costs {self.objective:.6g}"

    @property
    def feasible(self) -> bool:
        """True if no bound or constraint is violated."""
        return self.broken <= FEASIBLE


def simulated_guess(ocp: OCP, guess: Any, deadline: float = np.inf) -> SimulatedGuess | None:
    """Simulate the control of a guess from x0; None if it cannot be simulated or its motion does not reach the end."""
    control = guess.get("u") if isinstance(guess, Mapping) else guess
    known = isinstance(guess, Trajectory) and guess.state_names == ocp.system.state_names and len(guess.u) > 0
    # With a free start, horizon or parameter a control alone does not define a motion.
    free = ocp.x0 is None or ocp.free_time is not None or bool(ocp.free_parameters)
    shifted = isinstance(guess, Shifted) or (isinstance(guess, Trajectory) and not known)
    if control is None or shifted or (free and not known) or not isinstance(ocp.system, CLS | PSS | Heaviside | PDS):
        return None
    x0, p, horizon = ocp.x0, ocp.p, ocp.horizon
    if known:
        x0 = np.asarray(guess.x[0]) if x0 is None else x0
        p = guess.p if isinstance(guess, Solution) and guess.p.size == ocp.system.n_p else p
        horizon = horizon if ocp.free_time is None else float(np.clip(guess.duration, *_limits(ocp)))
    try:
        ocp = ocp.with_values(horizon, p)
        law, x0, p = control_of(control, ocp.system.n_u, horizon), np.asarray(x0, float), np.asarray(ocp.p, float)
        history = event_driven_simulator(ocp.system, REFEREE, x0, law, p, REFEREE_RESTS).run(
            x0, law, p, deadline=deadline
        )
        if not history.status.success or not history.steps:
            return None
        worst = max(violations(ocp, [history]), key=lambda one: one.share, default=None)
        cost = objective(ocp, [history], history.x)
        return SimulatedGuess(motion=trajectory_of(ocp.system, history, law), objective=cost, worst=worst)
    except NosnocError:  # the system or control cannot be simulated: use the guess as it is
        return None


def _limits(ocp: OCP) -> tuple[float, float]:
    """Return the limits of the free horizon [s]."""
    assert ocp.free_time is not None
    return ocp.free_time.lower, ocp.free_time.upper


def started_near(
    ocp: OCP,
    guess: Any,
    once: Callable[..., Solution],
    *,
    patient: bool,
    deadline: float,
    first: Solution | None = None,
) -> Solution:
    """Solve from a guess with a small first relaxation, which keeps its contacts, or with a large one and then a small.

    A solution, a motion that roughly satisfies the terminal constraints, and a control that does, are first solved with
    a small relaxation. Any other guess is solved as usual. If the simulated control is feasible but the solver finds
    nothing, or something that costs more, it starts near that motion.

    Parameters
    ----------
    ocp : OCP
    guess
        Not None.
    once : function of a guess, `near`, and a solver `by`
        Solves the problem.
    patient : bool
        True for the default solver.
    deadline : float
        Stamp of time.monotonic().
    first : Solution, optional
        Result of the usual solve, if it has been done already.
    """
    simulated = simulated_guess(ocp, guess, deadline)
    tried = [] if first is None else [first]
    own = guess if isinstance(guess, Solution) and guess.success else None
    start = own if own is not None else None if simulated is None else simulated.motion
    if not tried and patient and start is not None and (own is not None or _reaches(ocp, guess, simulated)):
        tried.append(once(start, near=True))
        if tried[0].status in ENDED or (tried[0].success and not _worse(tried[0], simulated)):
            return tried[0]
    if first is None:
        tried.append(once(guess, near=False))
    attempts: list[dict[str, Any]] = [{} for _ in range(2 - len(tried))] + [{"by": Auto()}] * (not patient)
    for options in attempts:  # the solver itself from a small relaxation, then the default
        lost = not tried[-1].success or _worse(tried[-1], simulated)
        if not lost or tried[-1].status in ENDED or simulated is None or not simulated.feasible:
            break
        tried.append(once(simulated.motion, near=True, **options))
    best = _best(tried)
    if best.success or simulated is None or not simulated.feasible or best.status in ENDED:
        return best
    note = (
        f"the control of the guess, {simulated}, which these elements do not represent: give them its control "
        "intervals (control_stages), more finite_elements, or equidistant_control_grid=False"
    )
    return replace(best, message="; ".join(part for part in (best.message, note) if part))


def _reaches(ocp: OCP, guess: Any, simulated: SimulatedGuess | None) -> bool:
    """Return True if a guess satisfies the terminal constraints (a motion: roughly)."""
    allowed = USEFUL if isinstance(guess, Trajectory) else FEASIBLE
    return simulated is not None and bool(ocp.terminal_constraints) and simulated.broken <= allowed


def _worse(best: Solution, simulated: SimulatedGuess | None) -> bool:
    """Return True if a solution costs more than a feasible guess, by more than the discretisation explains."""
    if simulated is None or not simulated.feasible:
        return False
    return best.objective > simulated.objective + WORSE * max(abs(simulated.objective), FEASIBLE)


def _best(tried: list[Solution]) -> Solution:
    """Return the solution of the lowest objective, else the last result, with the effort of all."""
    best = min(tried, key=lambda one: (not one.success, one.objective if one.success else 0.0))
    if len(tried) == 1:
        return best
    log = [record for one in tried for record in one.log]
    return replace(
        best if best.success else tried[-1],
        log=tuple(replace(record, step=k) for k, record in enumerate(log)),
        iterations=sum(one.iterations for one in tried),
        wall_seconds=sum(one.wall_seconds for one in tried),
    )
