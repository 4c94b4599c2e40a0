"""A guess as the motion that it is: simulated, with its objective and what it violates."""

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

# A guess is feasible up to this share, and nearly so up to the second one; up to the third the events of a motion are
# worth to start near it (motions that smoothed shooting finds miss by up to 0.16, and lead to the best known optima).
FEASIBLE, NEARLY, USEFUL = 1e-6, 1e-2, 0.3
# A solution that costs more than a feasible guess by so much, relatively, is another optimum, not another grid.
WORSE = 0.05
ENDED = (Status.TIME_LIMIT, Status.INTERRUPTED, Status.STOPPED)


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatedGuess:
    """What the control of a guess really does.

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
        """Largest share by which a bound or a constraint is violated."""
        return 0.0 if self.worst is None else self.worst.share

    def __str__(self) -> str:
        missed = (
            "is feasible" if self.feasible else "is nearly feasible" if self.broken <= NEARLY else "is not feasible"
        )
        because = "" if self.feasible or self.worst is None else f" ({self.worst.what})"
        return f"simulated, {missed}{because} and costs {self.objective:.6g}"

    @property
    def feasible(self) -> bool:
        """Whether it violates nothing."""
        return self.broken <= FEASIBLE


def simulated_guess(ocp: OCP, guess: Any, deadline: float = np.inf) -> SimulatedGuess | None:
    """Simulate the control of a guess from x0; None where there is none, no referee, or the motion does not end."""
    control = guess.get("u") if isinstance(guess, Mapping) else guess
    known = isinstance(guess, Trajectory) and guess.state_names == ocp.system.state_names and len(guess.u) > 0
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
        ocp = ocp.settled(horizon, p)
        law, x0, p = control_of(control, ocp.system.n_u, horizon), np.asarray(x0, float), np.asarray(ocp.p, float)
        history = event_driven_simulator(ocp.system, REFEREE, x0, law, p, REFEREE_RESTS).run(
            x0, law, p, deadline=deadline
        )
        if not history.status.success or not history.steps:
            return None
        worst = max(violations(ocp, [history]), key=lambda one: one.share, default=None)
        cost = objective(ocp, [history], history.x)
        return SimulatedGuess(motion=trajectory_of(ocp.system, history, law), objective=cost, worst=worst)
    except NosnocError:  # the referee refuses the system or the control: the guess is then taken as it stands
        return None


def _limits(ocp: OCP) -> tuple[float, float]:
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
    """Solve from a guess that a large relaxation may forget: from a small one first, or where the large one has.

    A solution, a motion that roughly ends where it has to, and a control that does, are first solved from a small
    relaxation. From any other guess the solver goes its own way; where the control of the guess, simulated, is
    feasible, and the solver finds nothing, or something that costs more, it starts near that motion.

    Parameters
    ----------
    ocp : OCP
    guess
        Not None.
    once : function of a guess, `near`, and a solver `by`
        Solves.
    patient : bool
        Whether the solver is the default, which has no relaxation of the user's.
    deadline : float
        Stamp of time.monotonic().
    first : Solution, optional
        What has been found from the guess already.
    """
    given = simulated_guess(ocp, guess, deadline)
    tried = [] if first is None else [first]
    own = guess if isinstance(guess, Solution) and guess.success else None
    start = own if own is not None else None if given is None else given.motion
    if not tried and patient and start is not None and (own is not None or _reaches(ocp, guess, given)):
        tried.append(once(start, near=True))
        if tried[0].status in ENDED or (tried[0].success and not _worse(tried[0], given)):
            return tried[0]
    if first is None:
        tried.append(once(guess, near=False))
    ways: list[dict[str, Any]] = [{} for _ in range(2 - len(tried))] + [{"by": Auto()}] * (not patient)
    for way in ways:  # the solver itself from a small relaxation, then the default
        lost = not tried[-1].success or _worse(tried[-1], given)
        if not lost or tried[-1].status in ENDED or given is None or not given.feasible:
            break
        tried.append(once(given.motion, near=True, **way))
    found = _best(tried)
    if found.success or given is None or not given.feasible or found.status in ENDED:
        return found
    note = (
        f"the control of the guess, {given}, which these elements do not represent: give them its control intervals "
        "(control_stages), more finite_elements, or equidistant_control_grid=False"
    )
    return replace(found, message="; ".join(part for part in (found.message, note) if part))


def _reaches(ocp: OCP, guess: Any, given: SimulatedGuess | None) -> bool:
    """Whether a guess ends where it has to, a motion roughly: without a goal every control is feasible."""
    allowed = USEFUL if isinstance(guess, Trajectory) else FEASIBLE
    return given is not None and bool(ocp.terminal_constraints) and given.broken <= allowed


def _worse(found: Solution, given: SimulatedGuess | None) -> bool:
    """Whether a solution costs more than a feasible guess, by more than the discretisation explains."""
    if given is None or not given.feasible:
        return False
    return found.objective > given.objective + WORSE * max(abs(given.objective), FEASIBLE)


def _best(tried: list[Solution]) -> Solution:
    """The solved one of the lowest objective, else the last; with the effort of all."""
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
