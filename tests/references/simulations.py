"""The simulations of the library as cases: a system, a method, a start, a control, and the exact motion if known.

`SPEED` are the six that the benchmark of `simulation_speed` measures, `AGREEMENT` all on which the active-set
Newton method and the MPCC have to agree. Cases are built when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import (
    bouncing_ball,
    bowl,
    cart_pole_friction,
    falling_rod,
    hysteresis_car,
    oscillator,
    particle,
    point_mass,
    pushed_point,
    sliding_mode,
    stick_slip,
    switching_cases,
    turbo_car,
    two_balls_spring,
)
from problems import particle as particle_problem
from tests.references import friction_closed_forms
from tests.references.friction_motion import motion
from tests.references.relay import reference
from tests.references.two_balls_spring import exact as exact_balls

Array = NDArray[np.float64]
STAGES = 3


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """A simulation.

    Parameters
    ----------
    name : str
    system : CLS, PSS, Heaviside or PDS
    method : FESD or FESDJ
    x0 : (n_x,)
    duration : float
        [s]
    steps : int
    u : (steps, n_u)
    exact : function, optional
        Times (n,) -> states (n, n_x).
    """

    name: str
    system: Any
    method: ns.FESD
    x0: Array
    duration: float
    steps: int
    u: Array
    exact: Callable[[Array], Array] | None = None

    @property
    def step(self) -> float:
        """Length of a step [s]."""
        return self.duration / self.steps

    @property
    def unique(self) -> bool:
        """With two elements a step with an event is split there; with more, what is left is split at will."""
        return max(np.atleast_1d(self.method.finite_elements)) <= 2

    def shortened(self, steps: int) -> Case:
        """The first steps only."""
        count = min(steps, self.steps)
        return replace(self, steps=count, duration=self.step * count, u=self.u[:count])


def _case(name: str, system: Any, x0: Any, duration: float, steps: int, u: Any = (), **more: Any) -> Case:
    """A case with Radau IIA and two elements per step; a control is a constant or one row per step."""
    kind = ns.FESDJ if isinstance(system, ns.CLS) else ns.FESD
    elements, exact = more.pop("elements", 2), more.pop("exact", None)
    return Case(
        name=name,
        system=system,
        method=kind(finite_elements=elements, rk_stages=STAGES, **more),
        x0=np.asarray(x0, dtype=float),
        duration=duration,
        steps=steps,
        u=np.broadcast_to(np.asarray(u, dtype=float), (steps, system.n_u)),
        exact=exact,
    )


def _oscillator(mode: str = "stewart") -> Case:
    # a number of steps of the order experiment: the switch lies inside a step
    end, system = float(np.pi / 2.0), oscillator.build()
    return _case("oscillator", system, oscillator.STANDARD.start, end, 38, exact=oscillator.exact, dcs_mode=mode)


def _relay(example: str, steps: int = 40) -> Case:
    known = reference(example)

    def exact(times: Array) -> Array:
        return np.array([known.state(float(t)) for t in times])

    return _case(f"relay, {example}", known.system, known.state(0.0), known.period, steps, exact=exact)


def _stick_slip() -> Case:
    system, belt = stick_slip.build(), stick_slip.STANDARD.belt
    return _case("stick-slip", system, [0.0, belt], 5.0, 75, exact=stick_slip.exact)


def _ball() -> Case:
    return _case("bouncing ball", bouncing_ball.build(), [1.0, 0.0], 3.0, 60, exact=bouncing_ball.exact)


def _two_balls() -> Case:
    exact = exact_balls()
    return _case("two balls", two_balls_spring.build(), (1.0, 2.0, 0.0, 0.0), 1.0, 100, exact=exact)


def _planar_friction() -> Case:
    """A block falls, hits with slip, slips to its stop, sticks, and is torn loose by a force r t.

    In flight and slip x'' = r t - mu g, without the last term in flight; the impact takes mu w from the speed, w being
    the speed of the fall. The slip after the impact at t_0 with the speed v ends at the smaller root of
    v + r (t^2 - t_0^2) / 2 - mu g (t - t_0) = 0; stick ends at t = mu g / r.
    """
    constants, rate, height, speed = point_mass.STANDARD, 8.0, 0.05, 1.4
    weight, grip = constants.gravity, constants.friction * constants.gravity
    hit = sqrt(2.0 * height / weight)
    after = speed + rate * hit**2 / 2.0 - grip * hit
    rest = after - rate * hit**2 / 2.0 + grip * hit
    stop = (grip - sqrt(grip**2 - 2.0 * rate * rest)) / rate
    loose = grip / rate
    clock = np.array([0.0, 0.0, 1.0])
    exact = motion([0.0, height, 0.0], [speed, 0.0, 1.0], [0.0, -weight, 0.0], [rate, 0.0, 0.0])
    slip = [rate * hit - grip, 0.0, 0.0]
    exact = exact.then(hit, v=[after, 0.0, 1.0], a=slip, j=[rate, 0.0, 0.0], at={1: 0.0})
    exact = exact.then(stop, v=clock).then(loose, v=clock, j=[rate, 0.0, 0.0])
    system = point_mass.build(2, constants, ramp=[rate, 0.0])
    return _case("planar friction", system, exact(0.0), 0.9, 40, [0.0], exact=exact)


SPEED: Mapping[str, Callable[[], Case]] = {
    "oscillator": _oscillator,
    "relay": partial(_relay, "sliding", 43),
    "stick-slip": _stick_slip,
    "bouncing ball": _ball,
    "two balls": _two_balls,
    "planar friction": _planar_friction,
}


def _switching(name: str, mode: str) -> Case:
    chosen = switching_cases.case(name)
    elements = 2 if chosen.gate is None else 3
    exact = partial(switching_cases.exact, chosen)
    system = switching_cases.build(chosen)
    return _case(name, system, chosen.x0, chosen.duration, 5, exact=exact, elements=elements, dcs_mode=mode)


def _ride() -> Case:
    """The current under the optimal control of `models.sliding_mode`, constant in every step."""
    system, best = sliding_mode.build(), sliding_mode.optimum()
    middles = (np.arange(20) + 0.5) * best.constants.horizon / 20
    u = best.control(middles)[:, None]
    return _case("ride along the edge", system, [best.constants.start, 0.0], best.constants.horizon, 20, u)


def _turbo_car() -> Case:
    u = np.repeat([5.0, -5.0, 3.0], 4)[:, None]
    exact = turbo_car.motion(u[:, 0], 6.0)[0]
    ends = np.linspace(0.0, 6.0, 13)
    system = turbo_car.build()
    return _case(
        "turbo car", system, [0.0, 0.0], 6.0, 12, u, exact=lambda t: exact[np.searchsorted(ends, t - 1e-9)], elements=2
    )


def _hysteresis_car(regions: hysteresis_car.Regions) -> Case:
    u = np.column_stack([np.repeat([4.0, -5.0], [12, 8]), np.ones(20)])
    system = hysteresis_car.build(regions=regions)
    mode = "step" if regions == "signs" else "stewart"
    return _case("hysteresis car", system, [0.0, 0.0, 0.0, 0.0], 10.0, 20, u, dcs_mode=mode, elements=4)


def _cart_pole() -> Case:
    times = (np.arange(40) + 0.5) * 0.05
    u = 20.0 * np.sin(7.0 * times)[:, None]
    reached = cart_pole_friction.simulate(u[:, 0], 2.0, [0.0] * 4)

    def exact(t: Array) -> Array:
        return np.asarray(reached.x[[int(np.abs(reached.t - time).argmin()) for time in t]])

    return _case("cart and pole", cart_pole_friction.build(), [0.0] * 4, 2.0, 40, u, exact=exact)


def _pushed(metric: Any = None) -> Case:
    x0, system = [*pushed_point.START, 0.0], pushed_point.build(metric)
    return _case("pushed point", system, x0, 4.5, 18, exact=lambda t: pushed_point.exact(t, metric))


def _rod(friction: float, restitution: float, steps: int = 40) -> Case:
    constants = falling_rod.Constants(frictions=(friction, friction), restitutions=(restitution, restitution))
    return _case(
        "falling rod", falling_rod.build(constants), falling_rod.tilted(0.5, 0.5, constants), 0.02 * steps, steps
    )


def _bowl(friction: float) -> Case:
    constants = bowl.Constants(friction=friction)
    known = bowl.slide(1.0, 0.0, 2.0, constants)
    return _case(f"bowl, {friction:g}", bowl.build(constants), known(0.0)[0], 2.0, 40, exact=known)


def _particle() -> Case:
    """The particle of the examples of time-freezing, with jumps, and its control constant in every step."""
    u = particle.control((np.arange(40) + 0.5) * 0.05)
    return _case("particle", particle.build(), particle.START, 2.0, 40, u)


def _frozen(example: int) -> Case:
    constants = particle_problem.CONSTANTS[example]
    frozen = ns.freeze(particle.build(constants.friction, gravity=constants.gravity), a_n=constants.auxiliary)
    system = particle_problem.controlled(frozen, constants)
    start, count = (*particle.START, 0.0), particle_problem.STEPS
    exact = partial(particle.exact, constants=constants)
    made = _case("frozen particle", system, start, particle_problem.DURATION, count, exact=exact)
    return replace(made, method=particle_problem.SIMULATION)


def _closed_form(name: str) -> Case:
    found = friction_closed_forms.BY_NAME[name]
    steps = 7
    return _case(name, found.system, found.x0, found.duration, steps, found.u, exact=found.exact)


AGREEMENT: Mapping[str, Callable[[], Case]] = {
    **SPEED,
    "oscillator, step": partial(_oscillator, "step"),
    "relay, lag": partial(_relay, "lag", 43),
    "relay, hysteresis": partial(_relay, "hysteresis", 80),
    **{
        f"{name}, {mode}": partial(_switching, name, mode)
        for name in switching_cases.BY_NAME
        for mode in ("stewart", "step")
    },
    "ride along the edge": _ride,
    "turbo car": _turbo_car,
    "hysteresis car, indicators": partial(_hysteresis_car, "indicators"),
    "hysteresis car, signs": partial(_hysteresis_car, "signs"),
    "cart and pole": _cart_pole,
    "pushed point": _pushed,
    "falling rod": partial(_rod, 0.3, 0.0),
    "falling rod, elastic": partial(_rod, 0.3, 0.5, 35),
    "bowl": partial(_bowl, 0.0),
    "bowl, friction": partial(_bowl, 0.3),
    "particle": _particle,
    "frozen particle": partial(_frozen, 3),
    "frozen particle, friction": partial(_frozen, 4),
    **{name: partial(_closed_form, name) for name in friction_closed_forms.BY_NAME},
}
