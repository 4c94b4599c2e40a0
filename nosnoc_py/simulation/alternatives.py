"""All velocities that the laws of impact and friction allow after an impact, for a reader of a motion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nosnoc_py.contact_problems.modes import CLOSED, FREE, SLIP, SLIP_BACK, STICK
from nosnoc_py.contact_problems.problem import impact_problem
from nosnoc_py.contact_problems.solver import ContactSolver
from nosnoc_py.errors import OptionError
from nosnoc_py.solution import Event, Trajectory
from nosnoc_py.systems.scales import problem_scales
from nosnoc_py.tolerances import REST_VELOCITY, TOUCHING_SOLVED

if TYPE_CHECKING:
    from nosnoc_py.systems.cls import CLS

Array = np.ndarray
WORDS = {FREE: "opens", CLOSED: "is hit", STICK: "sticks", SLIP: "slips", SLIP_BACK: "slips back"}
MOST = 20  # alternatives that are listed
SAME = 1e-6  # fraction of the typical speed within which a velocity is that of the motion


@dataclass(frozen=True, eq=False, kw_only=True)
class Alternative:
    """One outcome of an impact.

    Attributes
    ----------
    contacts : dict name -> str
        What every closed contact does: it opens, is hit, sticks, slips or slips back.
    impulses : dict name -> float
        Normal impulses [N s].
    velocity : dict name -> float
        Velocities after the impact.
    chosen : bool
        True for the outcome of the motion; none is if its method has another rest velocity.
    """

    contacts: dict[str, str]
    impulses: dict[str, float]
    velocity: dict[str, float]
    chosen: bool

    def __str__(self) -> str:
        what = ", ".join(f"{name} {word}" for name, word in self.contacts.items())
        speeds = ", ".join(f"{name} = {value:.6g}" for name, value in self.velocity.items())
        return f"{'* ' if self.chosen else '  '}{what}: {speeds}"


@dataclass(frozen=True, eq=False)
class Alternatives:
    """Outcomes of an impact that the laws allow; printed as a list, the one of the motion with a star."""

    event: Event
    outcomes: tuple[Alternative, ...]

    def __len__(self) -> int:
        return len(self.outcomes)

    def __getitem__(self, k: int) -> Alternative:
        return self.outcomes[k]

    def __str__(self) -> str:
        count = "one outcome is" if len(self) == 1 else f"{len(self)} outcomes are"
        head = f"impact at {self.event.name}, t = {self.event.time:.9g} s: {count} admissible"
        return "\n".join([head, *map(str, self.outcomes)])

    __repr__ = __str__


def alternatives(system: CLS, motion: Trajectory, event: Event) -> Alternatives:
    """Return the outcomes of an impact, see `nosnoc_py.Trajectory.why`."""
    if event.kind != "impact" or not system.mechanical:
        raise OptionError(f"why: expected an impact, one of trajectory.impacts, given {event.kind} of {event.name}.")
    p = np.array([motion.parameters[name] for name in system.parameter_names], dtype=float)
    x, after = (np.asarray(motion(event.time, side=side)) for side in ("-", "+"))
    scales = problem_scales(
        system, x0=motion.x[0], control=lambda t, at: np.zeros(system.n_u), p=p, duration=float(motion.t[-1])
    )
    at, frames = system.mechanics.at(x, np.zeros(system.n_u), p, scales), system.mechanics.frames_at(p)
    closed = [int(c) for c in np.flatnonzero(at.gaps <= at.short(TOUCHING_SOLVED))]
    if not closed or system.simultaneous_impacts != "at once":
        raise OptionError(
            "why: expected an impact that is solved at once, at an instant of the motion: steps of a fixed length hit "
            "between instants, and impacts in sequence follow from each other; simulate with ns.EventDriven()."
        )
    problem = impact_problem(frames, at, closed, scales.rest_velocity(None, REST_VELOCITY))
    found = ContactSolver(frames).outcomes(problem, MOST)
    velocities = [at.velocity + at.response @ one.forces for one in found]
    errors = [float(np.abs(v - after[system.at_v]).max()) for v in velocities]
    names = system.names["v"]
    return Alternatives(
        event,
        tuple(
            Alternative(
                contacts={frames.names[c]: WORDS[one.modes[c]] for c in closed},
                impulses={frames.names[c]: float(one.forces[c]) for c in closed},
                velocity=dict(zip(names, map(float, v), strict=True)),
                chosen=error == min(errors) and error <= SAME * scales.velocity,
            )
            for one, v, error in zip(found, velocities, errors, strict=True)
        ),
    )
