"""Some fifty motions with friction in closed form, derived from the physics: no solver takes part.

The numbers are chosen so that the events of a case (but for `landing_stop`) lie at one time: a simulation with one
step or with many meets at most one event time per step. Gravity is 9.81 m/s^2, masses are 1 kg unless said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import cos, radians, sin, sqrt, tan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import lambertw

from models import ball_in_corner, falling_rod, point_mass, tilted_block
from tests.references.friction_motion import Array, Case, Events, Motion, line, motion, on_line

GRAVITY = 9.81
FRICTION = 0.5
DIRECTIONS = {2: np.array([1.0]), 3: np.array([0.6, 0.8])}  # of everything horizontal on the ground
POINT = point_mass.Constants(gravity=GRAVITY, friction=FRICTION)


def _along(dimension: int, horizontal: float, height: float = 0.0) -> Array:
    """Cartesian components of a vector with this horizontal part and this height."""
    return np.append(horizontal * DIRECTIONS[dimension], height)


# On the ground -------------------------------------------------------------------------------------------------------


def ground(name: str, dimension: int, duration: float, speed: float, force: float, constants: Any = POINT) -> Case:
    """On the ground with a horizontal force: stick, slip, slip to stick, reversal are one formula."""
    system = point_mass.build(dimension, constants)
    found = line(speed, force / constants.mass, constants.friction * constants.gravity)
    exact = on_line(np.zeros(dimension), _along(dimension, 1.0), found)
    return Case(
        name=f"{name}_{dimension}d",
        system=system,
        x0=exact(0.0),
        u=force * DIRECTIONS[dimension],
        duration=duration,
        exact=exact,
        events=found.events(["ground"], duration),
    )


def stick_to_slip(dimension: int) -> Case:
    """A force r t breaks loose a body at rest at t = mu m g / r; from then on the acceleration is r (t - t_1) / m."""
    rate, duration = 10.0, 0.8
    system = point_mass.build(dimension, POINT, ramp=_along(dimension, rate))
    start = FRICTION * GRAVITY / rate
    clock = np.append(np.zeros(dimension), 1.0)
    exact = motion(np.zeros(dimension + 1), clock).then(start, j=np.append(_along(dimension, rate), 0.0))
    return Case(
        name=f"stick_to_slip_{dimension}d",
        system=system,
        x0=exact(0.0),
        u=np.zeros(dimension - 1),
        duration=duration,
        exact=exact,
        events=(("slip", "ground", start),),
    )


def release(dimension: int) -> Case:
    """A lifting force r t takes a sliding body off the ground at t = m g / r; friction is mu (m g - r t) until then."""
    rate, speed, duration = 12.0, 6.0, 1.1
    system = point_mass.build(dimension, POINT, ramp=_along(dimension, 0.0, rate))
    lift = GRAVITY / rate
    clock = np.append(_along(dimension, speed), 1.0)
    brake, easing = _along(dimension, -FRICTION * GRAVITY), _along(dimension, FRICTION * rate)
    sliding = motion(np.zeros(dimension + 1), clock, np.append(brake, 0.0), np.append(easing, 0.0))
    exact = sliding.then(lift, j=np.append(_along(dimension, 0.0, rate), 0.0))
    return Case(
        name=f"release_{dimension}d",
        system=system,
        x0=exact(0.0),
        u=np.zeros(dimension - 1),
        duration=duration,
        exact=exact,
        events=(("release", "ground", lift),),
    )


# On a slope ----------------------------------------------------------------------------------------------------------


def slope(name: str, dimension: int, duration: float, degrees: float, speed: float) -> Case:
    """On a slope, with a speed down the fall line: gravity drives with g sin(angle), friction grips mu g cos(angle)."""
    constants = tilted_block.Constants(gravity=GRAVITY, friction=FRICTION, angle=radians(degrees))
    down, drop = constants.fall_line
    found = line(speed, GRAVITY * sin(constants.angle), FRICTION * GRAVITY * cos(constants.angle))
    direction = np.zeros(dimension)
    direction[[0, -1]] = down, drop
    exact = on_line(np.zeros(dimension), direction, found)
    return Case(
        name=f"{name}_{dimension}d",
        system=tilted_block.build(dimension, constants),
        x0=exact(0.0),
        u=np.zeros(0),
        duration=duration,
        exact=exact,
        events=found.events(["plane"], duration),
    )


def slope_curve() -> Case:
    """Pushed along the contour line of a slope with tan(angle) = mu: the path turns into the fall line.

    With k = g sin(angle), the speed v and the angle psi of the velocity to the fall line obey v' = k (cos psi - 1) and
    v psi' = -k sin psi, so v (1 + cos psi) = v_0 is constant. With w = tan(psi / 2), which is 1 at first,

        -ln w^2 - w^2 + 1 = 4 k t / v_0,  hence  w^2 = W(exp(1 - 4 k t / v_0)),  Lambert's W,

    the velocity is v_0 (1 - w^2) / 2 down and v_0 w across, and the path follows by integration over w.
    """
    constants = tilted_block.Constants(gravity=GRAVITY, friction=tan(radians(30.0)), angle=radians(30.0))
    speed, drive = 2.0, GRAVITY * sin(constants.angle)
    down, drop = constants.fall_line

    def exact(t: ArrayLike) -> Array:
        times = np.atleast_1d(np.asarray(t, dtype=float))
        w = np.sqrt(lambertw(np.exp(1.0 - 4.0 * drive * times / speed)).real)
        fallen = speed**2 / (4.0 * drive) * (-np.log(w) - (1.0 - w**4) / 4.0)
        across = speed**2 / (2.0 * drive) * ((1.0 - w) + (1.0 - w**3) / 3.0)
        rate = speed * (1.0 - w**2) / 2.0
        columns = [down * fallen, across, drop * fallen, down * rate, speed * w, drop * rate]
        x = np.column_stack(columns)
        return x if np.ndim(t) else x[0]

    x0 = np.array([0.0, 0.0, 0.0, 0.0, speed, 0.0])
    system = tilted_block.build(3, constants)
    return Case(name="slope_curve_3d", system=system, x0=x0, u=np.zeros(0), duration=0.5, exact=exact, polynomial=False)


# Impacts -------------------------------------------------------------------------------------------------------------


def landing(
    name: str,
    dimension: int,
    after: float,
    speed: float,
    restitution: float,
    height: float = 1.0,
    constants: Any = POINT,
) -> Case:
    """A fall from a height with a horizontal speed, followed for `after` seconds more.

    The impact at t = sqrt(2 h / g) with the impulse (1 + e) m g t takes the horizontal speed away up to
    mu (1 + e) g t: all of it (stick) or a part (slip). With e = 0 the body then slides to its stop, else it flies.
    """
    constants = replace(constants, restitution=restitution)
    hit = sqrt(2.0 * height / constants.gravity)
    fall = constants.gravity * hit
    left = max(speed - constants.friction * (1.0 + restitution) * fall, 0.0)
    weight = _along(dimension, 0.0, -constants.gravity)
    exact = motion(_along(dimension, 0.0, height), _along(dimension, speed), weight)
    events: Events = (("impact", "ground", hit),)
    bottom = {dimension - 1: 0.0}
    if restitution > 0.0:
        exact = exact.then(hit, v=_along(dimension, left, restitution * fall), a=weight, at=bottom)
    else:
        found = line(left, 0.0, constants.friction * constants.gravity)
        for start, velocity, acceleration in found.pieces:
            v, a = _along(dimension, velocity), _along(dimension, acceleration)
            exact = exact.then(hit + start, v=v, a=a, at=bottom)
        events = (*events, ("contact", "ground", hit), *found.events(["ground"], hit + after, hit))
    return Case(
        name=f"{name}_{dimension}d",
        system=point_mass.build(dimension, constants),
        x0=exact(0.0),
        u=np.zeros(dimension - 1),
        duration=hit + after,
        exact=exact,
        events=events,
    )


# Several contacts at one time ----------------------------------------------------------------------------------------


def together(name: str, cases: Sequence[Case], particles: Sequence[point_mass.Constants]) -> Case:
    """Cases of single point masses as one system; the shortest ends it."""
    dimension = cases[0].dimension
    system = point_mass.build_particles(particles, dimension)
    duration = min(case.duration for case in cases)

    def exact(t: ArrayLike) -> Array:
        parts = [case.exact(t) for case in cases]
        return np.concatenate([p[..., :dimension] for p in parts] + [p[..., dimension:] for p in parts], axis=-1)

    events = tuple((kind, f"ground_{k + 1}", time) for k, case in enumerate(cases) for kind, _, time in case.events)
    return Case(
        name=f"{name}_{dimension}d",
        system=system,
        x0=exact(0.0),
        u=np.concatenate([case.u for case in cases]),
        duration=duration,
        exact=exact,
        events=events,
    )


def two_sliding() -> Case:
    """Two point masses on different ground: one stops, the other slides on."""
    particles = [replace(POINT, friction=mu, mass=m) for mu, m in ((0.5, 1.0), (0.2, 2.0))]
    return together("two_sliding", [ground("", 2, 0.8, 2.0, 0.0, p) for p in particles], particles)


def three_landing(dimension: int) -> Case:
    """Three point masses fall from one height: inelastic with stick, elastic with slip, elastic with stick."""
    particles = [
        point_mass.Constants(gravity=GRAVITY, friction=mu, restitution=e, mass=m)
        for mu, e, m in ((0.5, 0.0, 1.0), (0.2, 0.5, 2.0), (0.8, 0.8, 0.5))
    ]
    cases = [
        landing("", dimension, 0.2, speed, p.restitution, 0.5, p)
        for p, speed in zip(particles, (1.0, 3.0, 4.0), strict=True)
    ]
    return together("three_landing", cases, particles)


def three_stopping(dimension: int) -> Case:
    """Three point masses whose speeds mu g t_1 make them stop at the same t_1."""
    particles = [replace(POINT, friction=mu, mass=m) for mu, m in ((0.5, 1.0), (0.2, 2.0), (0.8, 0.5))]
    stop = 0.4
    cases = []
    for p in particles:
        case = ground("", dimension, 0.6, p.friction * GRAVITY * stop, 0.0, p)
        # the quotient that gives the stop rounds differently for each: one time, as meant
        cases.append(replace(case, events=(("stick", "ground", stop),)))
    return together("three_stopping", cases, particles)


def corner_impact(name: str, dimension: int, restitution: float, edge: float = 0.0, after: float = 0.25) -> Case:
    """Into the corner from above, pressed to the wall by F: both are hit at t_1, with the speeds g t_1 and |v_x|.

    With e > 0 both normal velocities turn around: friction of one contact is then overcome by the normal impulse of the
    other. With e = 0 the speed along the edge is braked by mu_f g t_1 + mu_w |v_x|, and by mu_f g + mu_w F / m after
    that. Friction of the floor alone stops neither v_x nor F, so both contacts have an impulse and a force in any case.
    """
    frictions, hit, approach, pressed = (0.2, 0.3), 0.4, 1.5, 3.0
    constants = ball_in_corner.Constants(gravity=GRAVITY, frictions=frictions, restitutions=(restitution, restitution))
    fall, drawn = GRAVITY * hit, _section(dimension, -pressed, 0.0, -GRAVITY)
    slower = approach - pressed * hit  # at t = 0
    q = _section(dimension, slower * hit + 0.5 * pressed * hit**2, 0.0, 0.5 * GRAVITY * hit**2)
    exact = motion(q, _section(dimension, -slower, edge, 0.0), drawn)
    events: Events = (("impact", "floor", hit), ("impact", "wall", hit))
    bottom = {0: 0.0, dimension - 1: 0.0}
    if restitution > 0.0:
        v = _section(dimension, restitution * approach, 0.0, restitution * fall)
        exact = exact.then(hit, v=v, a=drawn, at=bottom)
    else:
        left = max(edge - frictions[0] * fall - frictions[1] * approach, 0.0)
        brake = frictions[0] * GRAVITY + frictions[1] * pressed if left else 0.0
        v, a = _section(dimension, 0.0, left, 0.0), _section(dimension, 0.0, -brake, 0.0)
        exact = exact.then(hit, v=v, a=a, at=bottom)
        events = (*events, ("contact", "floor", hit), ("contact", "wall", hit))
    return Case(
        name=f"{name}_{dimension}d",
        system=ball_in_corner.build(dimension, constants),
        x0=exact(0.0),
        u=_section(dimension, -pressed, 0.0, 0.0),
        duration=hit + after,
        exact=exact,
        events=events,
    )


def corner_pressed(dimension: int, edge: float = 0.0) -> Case:
    """Pressed against floor and wall: at rest, or sliding along the edge until mu_f (m g + F_z) + mu_w F_x stops it."""
    constants = ball_in_corner.Constants(gravity=GRAVITY, frictions=(0.5, 0.3))
    across, below = 4.0, 2.0
    grip = 0.5 * (GRAVITY + below) + 0.3 * across
    found = line(edge, 0.0, grip)
    exact = on_line(np.zeros(dimension), _section(dimension, 0.0, 1.0, 0.0), found)
    return Case(
        name=f"corner_{'edge_stop' if edge else 'pressed'}_{dimension}d",
        system=ball_in_corner.build(dimension, constants),
        x0=exact(0.0),
        u=_section(dimension, -across, 0.0, -below),
        duration=0.5,
        exact=exact,
        events=found.events(["floor", "wall"], 0.5),
    )


def wall_bounce() -> Case:
    """A body slides on the floor into a wall with e = 0.5 and slides back: contact of one, impact of the other.

    The gap 0.6 - v t + mu g t^2 / 2 is zero at the smaller root; the floor receives no impulse.
    """
    constants = ball_in_corner.Constants(gravity=GRAVITY, frictions=(0.4, 0.3), restitutions=(0.0, 0.5))
    distance, speed, brake = 0.6, 3.5, 0.4 * GRAVITY
    slower = sqrt(speed**2 - 2.0 * brake * distance)
    hit = 2.0 * distance / (speed + slower)
    exact = motion([distance, 0.0], [-speed, 0.0], [brake, 0.0])
    exact = exact.then(hit, v=[0.5 * slower, 0.0], a=[-brake, 0.0], at={0: 0.0})
    return Case(
        name="wall_bounce_2d",
        system=ball_in_corner.build(2, constants),
        x0=exact(0.0),
        u=np.zeros(2),
        duration=0.45,
        exact=exact,
        events=(("impact", "wall", hit),),
    )


def _section(dimension: int, across: float, edge: float, height: float) -> Array:
    """Components in the corner: across, along the edge (in 3-D), up."""
    return np.array([across, height] if dimension == 2 else [across, edge, height])


# Blocks on blocks ----------------------------------------------------------------------------------------------------


def _stack(
    name: str, frictions: tuple[float, float], force: float, duration: float, exact: Motion, events: Events = ()
) -> Case:
    system = tilted_block.build_stack(tilted_block.StackConstants(frictions=frictions, gravity=GRAVITY))
    u = np.array([force])
    return Case(
        name=f"stack_{name}_2d", system=system, x0=exact(0.0), u=u, duration=duration, exact=exact, events=events
    )


def _blocks(lower: float, upper: float) -> Array:
    return np.array([lower, 0.0, upper, 0.0])


def stack_as_one() -> Case:
    """Both blocks move as one: a = F / 2m - mu_1 g is less than mu_2 g."""
    frictions, force = (0.2, 0.5), 6.0
    acceleration = force / 2.0 - frictions[0] * GRAVITY
    exact = motion([0, 0, 0, 1], _blocks(1.0, 1.0), _blocks(acceleration, acceleration))
    return _stack("as_one", frictions, force, 0.5, exact)


def stack_torn() -> Case:
    """The lower block is pulled away below the upper one: F - 2 mu_1 m g - mu_2 m g against mu_2 m g."""
    frictions, force = (0.2, 0.5), 20.0
    lower = force - 2.0 * frictions[0] * GRAVITY - frictions[1] * GRAVITY
    exact = motion([0, 0, 0, 1], _blocks(1.0, 0.5), _blocks(lower, frictions[1] * GRAVITY))
    return _stack("torn", frictions, force, 0.4, exact)


def stack_caught() -> Case:
    """The upper block drags the lower one along until both have one speed; then the ground brakes both."""
    (mu_1, mu_2), (slow, fast) = (0.2, 0.5), (0.2, 3.0)
    lower, upper = (mu_2 - 2.0 * mu_1) * GRAVITY, -mu_2 * GRAVITY
    meet = (fast - slow) / (lower - upper)
    speed = slow + lower * meet
    exact = motion([0, 0, 0, 1], _blocks(slow, fast), _blocks(lower, upper))
    exact = exact.then(meet, v=_blocks(speed, speed), a=_blocks(-mu_1 * GRAVITY, -mu_1 * GRAVITY))
    return _stack("caught", (mu_1, mu_2), 0.0, 0.65, exact, (("stick", "stack", meet),))


def stack_below_at_rest() -> Case:
    """The upper block slides to its stop on the lower one, which the ground holds: mu_2 m g < 2 mu_1 m g."""
    (mu_1, mu_2), fast = (0.5, 0.2), 2.0
    stop = fast / (mu_2 * GRAVITY)
    exact = motion([0, 0, 0, 1], _blocks(0.0, fast), _blocks(0.0, -mu_2 * GRAVITY)).then(stop, v=0.0)
    return _stack("below_at_rest", (mu_1, mu_2), 0.0, 1.3, exact, (("stick", "stack", stop),))


# A rod ---------------------------------------------------------------------------------------------------------------

FLAT = falling_rod.Constants(gravity=GRAVITY, frictions=(0.2, 0.4), restitutions=(0.5, 0.5))


def rod_flat(name: str, speed: float) -> Case:
    """A level rod hits with both ends: equal normal impulses, so the mean of the frictions brakes, and no rotation."""
    height, restitution, mean = 0.5, 0.5, 0.3
    hit = sqrt(2.0 * height / GRAVITY)
    fall = GRAVITY * hit
    left = max(speed - mean * (1.0 + restitution) * fall, 0.0)
    weight = [0.0, -GRAVITY, 0.0]
    exact = motion([0.0, height, 0.0], [speed, 0.0, 0.0], weight)
    exact = exact.then(hit, v=[left, restitution * fall, 0.0], a=weight, at={1: 0.0})
    return _rod(name, FLAT, hit + 0.2, exact, (("impact", "left", hit), ("impact", "right", hit)))


def rod_flat_stop() -> Case:
    """A rod that lies on the ground slides to its stop: both ends stick at one time."""
    found = line(1.5, 0.0, 0.3 * GRAVITY)
    exact = on_line(np.zeros(3), [1.0, 0.0, 0.0], found)
    return _rod("rod_flat_stop", FLAT, 0.7, exact, found.events(["left", "right"], 0.7))


def rod_tip(name: str, speed: float, friction: float) -> Case:
    """An inclined rod hits with its left end, bounces and turns; the impact is the closed form of the model.

    Even an end that comes straight down needs friction to stay in place: with too little it slips away ("kick").
    """
    constants = falling_rod.Constants(gravity=GRAVITY, frictions=(friction, friction), restitutions=(0.5, 0.5))
    theta, height = 0.5, 0.5
    hit = sqrt(2.0 * height / GRAVITY)
    touching = 0.5 * constants.length * sin(theta)
    after = falling_rod.strike(theta, [speed, -GRAVITY * hit, 0.0], "left", constants)
    weight = [0.0, -GRAVITY, 0.0]
    exact = motion([0.0, touching + height, theta], [speed, 0.0, 0.0], weight)
    exact = exact.then(hit, v=after.v, a=weight, at={1: touching})
    return _rod(name, constants, hit + 0.08, exact, (("impact", "left", hit),))


def _rod(name: str, constants: Any, duration: float, exact: Motion, events: Events) -> Case:
    system = falling_rod.build(constants)
    return Case(
        name=f"{name}_2d", system=system, x0=exact(0.0), u=np.zeros(0), duration=duration, exact=exact, events=events
    )


BOTH = (2, 3)
CASES: tuple[Case, ...] = (
    *(ground("stick", n, 0.5, 0.0, 3.0) for n in BOTH),
    *(ground("slip", n, 0.5, 4.0, 1.0) for n in BOTH),
    *(ground("slip_to_stick", n, 0.7, 2.0, 0.0) for n in BOTH),
    *(ground("slip_to_stick_pushed", n, 0.7, 2.0, -2.0) for n in BOTH),
    *(ground("reversal", n, 0.4, -2.0, 8.0) for n in BOTH),
    *(stick_to_slip(n) for n in BOTH),
    *(release(n) for n in BOTH),
    *(slope("slope_rest", n, 0.5, 20.0, 0.0) for n in BOTH),
    *(slope("slope_slide", n, 0.5, 40.0, 0.0) for n in BOTH),
    *(slope("slope_up_stick", n, 0.4, 20.0, -1.5) for n in BOTH),
    *(slope("slope_up_reversal", n, 0.4, 40.0, -1.5) for n in BOTH),
    slope_curve(),
    *(landing("landing_stick", n, 0.3, 1.0, 0.0) for n in BOTH),
    *(landing("landing_slip", n, 0.3, 5.0, 0.0) for n in BOTH),
    *(landing("bounce_stick", n, 0.3, 1.0, 0.5) for n in BOTH),
    *(landing("bounce_slip", n, 0.3, 5.0, 0.5) for n in BOTH),
    *(landing("landing_stop", n, 0.9, 5.0, 0.0) for n in BOTH),
    two_sliding(),
    *(three_landing(n) for n in BOTH),
    *(three_stopping(n) for n in BOTH),
    corner_pressed(2),
    corner_pressed(3, edge=2.0),
    *(corner_impact("corner_bounce", n, 0.5) for n in BOTH),
    corner_impact("corner_landing", 2, 0.0),
    corner_impact("corner_landing_stick", 3, 0.0, edge=1.0),
    corner_impact("corner_landing_slip", 3, 0.0, edge=6.0),
    wall_bounce(),
    stack_as_one(),
    stack_torn(),
    stack_caught(),
    stack_below_at_rest(),
    rod_flat("rod_flat_stick", 1.0),
    rod_flat("rod_flat_slip", 4.0),
    rod_flat_stop(),
    rod_tip("rod_tip_stick", 1.0, 0.6),
    rod_tip("rod_tip_slip", 3.0, 0.2),
    rod_tip("rod_tip_kick", 0.0, 0.3),
)
BY_NAME = {case.name: case for case in CASES}
