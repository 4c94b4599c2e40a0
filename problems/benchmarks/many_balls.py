"""Simulation of a hundred balls that fall into a box: `python -m problems.benchmarks.many_balls`.

About five thousand contacts may close, and a few hundred do, with friction and restitution. Time-stepping treats all of
them. The table shows the penetration of the balls, the residual of the contact law in every step, and the time of a
step over the number of contacts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import many_balls
from models.many_balls import Constants
from nosnoc_py.errors import OptionError
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.time_stepping.run import TimeSteppingState
from problems.runner import Meter, Report, program, tabled
from problems.settings import Settings

Array = NDArray[np.float64]

METHOD = ns.TimeStepping(step=1e-3, tolerance=1e-6, max_sweeps=500)
QUICK = {"balls": 25, "radius": 0.12, "duration": 1.0}
STANDARD = many_balls.STANDARD
LIMIT = 0.02  # largest penetration, relative to the radius, for success
CONES = ("conic", "polyhedral")


class Clock:
    """Callback that records seconds on the clock, contacts and sweeps of every step, and passes the state on."""

    def __init__(self, following: Callable[[Any], Any]) -> None:
        self.following = following
        self.rows: list[tuple[float, ...]] = []
        self._last = time.perf_counter()

    def __call__(self, state: TimeSteppingState) -> Any:
        """Record one step."""
        self.rows.append((time.perf_counter() - self._last, state.contacts, state.iterations))
        answer = self.following(state)
        self._last = time.perf_counter()
        return answer


def simulate(
    balls: int = STANDARD.balls,
    dimension: int = STANDARD.dimension,
    radius: float = STANDARD.radius,
    side: float = STANDARD.side,
    mass: float = STANDARD.mass,
    gravity: float = STANDARD.gravity,
    friction: float = STANDARD.friction,
    restitution: float = STANDARD.restitution,
    speed: float = 1.0,
    seed: int = 0,
    duration: float = 5.0,
    cone: str = "conic",
    *,
    method: ns.TimeStepping = METHOD,
    callback: Callable[[Any], Any] | None = None,
) -> ns.Trajectory:
    """Simulate the balls from a random state; arguments as in `many_balls.Constants` and `many_balls.start`.

    `cone` is "conic" or "polyhedral", which differ in space only.
    """
    scene = dict(balls=balls, dimension=dimension, radius=radius, side=side, mass=mass, gravity=gravity)
    constants = constants_of({**scene, "friction": friction, "restitution": restitution})
    if cone not in CONES:
        raise OptionError(f"cone: expected one of {', '.join(CONES)}, given {cone!r}.")
    start = many_balls.start(constants, speed=speed, seed=seed)  # refuses wrong arguments before much is built
    return ns.simulate(
        many_balls.build(constants),
        x0=start,
        duration=duration,
        method=method.replace(friction=cone),
        callback=callback,
    )


def constants_of(arguments: Mapping[str, Any]) -> Constants:
    """Return the model's constants of the arguments of `simulate`."""
    names = ("balls", "dimension", "radius", "side", "mass", "gravity", "friction", "restitution")
    return Constants(**{name: arguments[name] for name in names})


def penetrations(trajectory: ns.Trajectory, constants: Constants) -> Array:
    """Return the deepest penetration at every node, relative to the radius."""
    return np.array([many_balls.penetration(x, constants) for x in trajectory.x]) / constants.radius


def run(settings: Settings, progress: Progress) -> Report:
    """Simulate and measure."""
    arguments = settings.arguments
    constants, meter = constants_of(arguments), Meter(progress)
    progress.describe("building the balls")
    clock = Clock(meter)
    trajectory = simulate(**arguments, method=settings.method, callback=clock)
    values = findings(trajectory, constants, clock.rows[1:])  # the first step includes the set-up
    results = meter.results(trajectory) | values
    results["events"] = [event.to_dict() for event in trajectory.impacts]  # the other thousands are only counted
    line = f"{trajectory.status} {trajectory.message}; deepest {100 * values['penetration']:.2g} % of the radius"
    return tabled(
        results,
        trajectory.success and values["penetration"] < LIMIT,
        {"findings": [values]},
        {
            "many_balls.png": lambda: ns.snapshots(
                many_balls.build(constants),
                trajectory,
                trajectory.t0 + trajectory.duration * np.array([0.0, 0.1, 0.2, 1.0]),
                arrangement="panels",
            ),
        },
        [line],
    )


def findings(trajectory: ns.Trajectory, constants: Constants, steps: Sequence[tuple[float, ...]]) -> dict[str, Any]:
    """Return the measured values of a simulation, by name."""
    depths = penetrations(trajectory, constants)
    seconds, contacts, sweeps = np.array(steps).reshape(-1, 3).T
    deepest = int(np.argmax(depths))
    return {
        "penetration": float(depths[deepest]),
        "penetration_time": float(trajectory.t[deepest]),
        "contacts": contact_count(constants),
        "active_contacts": float(contacts.max(initial=0.0)),
        "seconds_per_step": float(seconds.mean()) if steps else None,
        "sweeps_per_step": float(sweeps.mean()) if steps else None,
        "energy": [many_balls.energy(x, constants) for x in (trajectory.x[0], trajectory.x[-1])],
        "event_counts": dict(Counter(event.kind for event in trajectory.events)),
    }


def contact_count(constants: Constants) -> int:
    """Return the number of contacts that may close."""
    return constants.balls * (constants.balls - 1) // 2 + 2 * constants.dimension * constants.balls


PROGRAM = program(__name__, run, simulate, quick=QUICK, method=METHOD, fixed=("friction", "solver"))
