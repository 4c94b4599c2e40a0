"""Sensitivities of the referee: against differences, against closed forms, and refused where there are none."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball, falling_rod, two_balls_spring
from nosnoc_py.contact_problems.modes import CLOSED, FREE, SLIP, SLIP_BACK, STICK
from nosnoc_py.errors import OptionError
from nosnoc_py.motion.variations import transport
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.simulation.event_driven.history import EventDrivenSimulator
from nosnoc_py.simulation.event_driven.mechanics import ContactRegime, regime_of
from nosnoc_py.simulation.event_driven.variations import ContactVariations
from nosnoc_py.simulation.event_driven.walk import NodeCrossing
from nosnoc_py.systems.scales import UNIT
from tests.pairwise import slow_but
from tests.references.bouncing_ball import ball_by_hand
from tests.references.friction_closed_forms import BY_NAME

GRAVITY = 9.81


@dataclass(frozen=True, eq=False, kw_only=True)
class Scene:
    """A motion; `keeps` are directions of x0, `moves` of p, that keep what is closed at the start (default: all)."""

    system: ns.CLS
    x0: Any
    duration: float
    u: Any = None
    kinds: str
    keeps: Any = None
    moves: Any = None
    step: float = 1e-4
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, x0: Any = None, p: Any = None, **more: Any) -> ns.Trajectory:
        return ns.simulate(
            self.system,
            x0=self.x0 if x0 is None else x0,
            duration=self.duration,
            u=self.u,
            p=p,
            method=ns.EventDriven(**self.options),
            **more,
        )


def difference(run: Callable[[float], ns.Trajectory], h: float) -> tuple[np.ndarray, np.ndarray]:
    """Fourth-order central differences of the final state and of the event times."""
    made = [run(s * h) for s in (-2, -1, 1, 2)]
    kinds = [[(event.kind, event.name) for event in trajectory.events] for trajectory in made]
    assert kinds == [kinds[0]] * 4
    weights = np.array([1.0, -8.0, 8.0, -1.0]) / (12.0 * h)
    times = np.array([[event.time for event in trajectory.events] for trajectory in made])
    return weights @ np.array([trajectory.final_state for trajectory in made]), weights @ times


def assert_close(given: np.ndarray, expected: np.ndarray, tolerance: float = 1e-6) -> None:
    size = max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(given, expected, rtol=0, atol=tolerance * size)


def check(scene: Scene) -> ns.Trajectory:
    """Every column against differences."""
    trajectory = scene.run(sensitivities=True)
    S = trajectory.sensitivity
    assert S is not None
    assert S.flags == ()
    assert " ".join(event.kind for event in trajectory.events) == scene.kinds
    x0, p0 = np.array(scene.x0, dtype=float), scene.system.p_default
    n_x, n_p = x0.size, p0.size
    for d in np.eye(n_x) if scene.keeps is None else np.array(scene.keeps, dtype=float):
        end, times = difference(lambda s, d=d: scene.run(x0 + s * d), scene.step)
        assert_close(S.x0 @ d, end)
        assert_close(S.event_times_x0 @ d, times)
    for d in np.eye(n_p) if scene.moves is None else np.array(scene.moves, dtype=float):
        end, times = difference(lambda s, d=d: scene.run(p=p0 + s * d), scene.step)
        assert_close(S.p @ d, end)
        assert_close(S.event_times_p @ d, times)
    return trajectory


# Systems -------------------------------------------------------------------------------------------------------------


def slider(friction: float = 0.5, restitution: float = 0.0, dimension: int = 2, waves: float = 0.2) -> ns.CLS:
    """A point mass over curved ground with a force u; p = (gravity, height of the waves)."""
    q, v = ca.SX.sym("q", dimension), ca.SX.sym("v", dimension)
    u, p = ca.SX.sym("u", dimension), ca.SX.sym("p", 2)
    weight = ca.vertcat(*[0] * (dimension - 1), -p[0])
    slope = ca.cos(q[0])
    tangent = ca.vertcat(1, p[1] * slope) / ca.sqrt(1 + (p[1] * slope) ** 2) if dimension == 2 else ca.DM.eye(3)[:, :2]
    height = p[1] * ca.sin(q[0]) if dimension == 2 else p[1]
    ground = ns.Contact(
        "ground", gap=q[dimension - 1] - height, tangent=tangent, friction=friction, restitution=restitution
    )
    return ns.CLS(
        q=q, v=v, u=u, p=p, mass_matrix=ca.DM.eye(dimension), force=weight + u, contacts=[ground],
        p_default=[GRAVITY, waves if dimension == 2 else 0.0],
    )  # fmt: skip


def cart_pole(friction: float, restitution: float) -> ns.CLS:
    """A cart with a pendulum whose tip hits the ground: M depends on q; p = (length, mass of the tip)."""
    q, v, p = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("p", 2)
    length, mass = p[0], p[1]
    coupling = mass * length * ca.cos(q[1])
    M = ca.vertcat(ca.horzcat(1 + mass, coupling), ca.horzcat(coupling, mass * length**2))
    force = ca.vertcat(mass * length * v[1] ** 2 * ca.sin(q[1]) - 2 * q[0], -mass * GRAVITY * length * ca.sin(q[1]))
    tip = ns.Contact(
        "tip",
        gap=0.8 - length * ca.cos(q[1]),
        tangent=ca.vertcat(1, length * ca.cos(q[1])),
        friction=friction,
        restitution=restitution,
    )
    return ns.CLS(q=q, v=v, p=p, p_default=[1.0, 0.5], mass_matrix=M, force=force, contacts=[tip])


def stacked(restitution: float, friction: float = 0.3) -> ns.CLS:
    """A ball falls on a block that slides on the ground: the impact is borne by two contacts; p = (gravity,)."""
    q, v, p = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("p", 1)
    contacts = [
        ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0, 0]), friction=friction),
        ns.Contact("top", gap=q[2] - q[1] - 0.5 - 0.1 * ca.sin(q[0]), restitution=restitution),
    ]
    return ns.CLS(
        q=q, v=v, p=p, p_default=[GRAVITY], mass_matrix=ca.diag(ca.DM([2.0, 2.0, 1.0])),
        force=-p[0] * ca.DM([0.0, 2.0, 1.0]), contacts=contacts,
    )  # fmt: skip


def inertias() -> ns.CLS:
    """A body on the ground whose inertia differs in two directions, and with q: it turns until it stops."""
    q, v, p = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("p", 1)
    contact = ns.Contact("ground", gap=q[2], tangent=ca.DM.eye(3)[:, :2], friction=0.3)
    mass = ca.diag(ca.vertcat(1.0 + 0.3 * ca.sin(q[0]) ** 2, 1.0, 1.0))
    force = ca.vertcat(0.4, 0.4, -p)
    return ns.CLS(q=q, v=v, p=p, p_default=[GRAVITY], mass_matrix=mass, force=force, contacts=[contact])


def block_on_two(friction: float, wall: bool = False) -> ns.CLS:
    """A block that two contacts bear: their forces are redundant."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 1)
    tangent = ca.DM([1, 0]) if friction else None
    contacts = [ns.Contact(name, gap=q[1], tangent=tangent, friction=friction) for name in ("left", "right")]
    contacts += [ns.Contact("wall", gap=1.0 - q[0], restitution=0.5)] if wall else []
    force = ca.vertcat(u, -GRAVITY)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=force, contacts=contacts)


def falling(*contacts: ns.Contact, q: ca.SX, force: Sequence[float] = (0.0, -GRAVITY)) -> ns.CLS:
    v = ca.SX.sym("v", q.shape[0])
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(q.shape[0]), force=ca.DM(list(force)), contacts=list(contacts))


def case(name: str, kinds: str, **fields: Any) -> Scene:
    found = BY_NAME[name]
    return Scene(system=found.system, x0=found.x0, duration=found.duration, u=found.u, kinds=kinds, **fields)


# Motion and its derivatives ------------------------------------------------------------------------------------------

MODES = [(FREE, FREE), (STICK, FREE), (SLIP, CLOSED), (SLIP_BACK, CLOSED), (STICK, CLOSED), (FREE, CLOSED)]


def state_of(system: ns.CLS, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.3, 1.2, 2 * system.n_q + system.n_p)


@pytest.mark.parametrize("modes", MODES)
def test_the_second_statement_of_the_motion_agrees_with_the_first(modes: tuple[int, ...]) -> None:
    system = stacked(0.5)
    w, referee = state_of(system, 1), EventDrivenSimulator(system, ns.EventDriven())
    x, p = w[:6], w[6:]
    flow = ContactFlow(referee.mechanics, referee.options, lambda t, x: np.zeros(0), p, UNIT)
    direction = np.array([-1.0 if modes[0] == SLIP_BACK else 1.0])
    regime = regime_of(referee.mechanics.frames, modes, direction, flow.kinematics(0.0, x))
    motion = ContactVariations(system).motion(modes, w, np.zeros(0))
    np.testing.assert_allclose(motion.rate[:6], flow.rhs(regime, 0.0, x), rtol=0, atol=1e-12)
    np.testing.assert_allclose(motion.forces, regime.forces(flow.kinematics(0.0, x))[0], rtol=0, atol=1e-12)


def test_the_same_in_space_and_where_forces_are_redundant() -> None:
    system = slider(0.4, dimension=3)
    w, u = state_of(system, 2), np.array([0.4, -0.7, 0.2])
    mechanics = EventDrivenSimulator(system, ns.EventDriven()).mechanics
    flow = ContactFlow(mechanics, ns.EventDriven(), lambda t, x: u, w[6:], UNIT)
    slip = w[3:5] / np.linalg.norm(w[3:5])
    regime = ContactRegime(frames=mechanics.frames, modes=(SLIP,), direction=slip)
    rate = ContactVariations(system).motion((SLIP,), w, u).rate[:6]
    np.testing.assert_allclose(rate, flow.rhs(regime, 0.0, w[:6]), rtol=0, atol=1e-12)

    block = block_on_two(0.3)
    motion = ContactVariations(block).motion(
        (SLIP, SLIP), np.array([0.0, 0.0, 1.0, 0.0]), np.array([1.0]), redundant=True
    )
    np.testing.assert_allclose(motion.rate, [1.0, 0.0, 1.0 - 0.3 * GRAVITY, 0.0], rtol=0, atol=1e-12)
    assert motion.loose.all()


@pytest.mark.parametrize("redundant", [False, True])
def test_the_motion_at_many_instants_is_that_at_each(redundant: bool) -> None:
    system, modes = (block_on_two(0.3), (SLIP, SLIP)) if redundant else (stacked(0.5), (STICK, CLOSED))
    variations = system.mechanics.once(ContactVariations)
    assert system.mechanics.once(ContactVariations) is variations
    w, u = np.array([state_of(system, seed) for seed in range(3)]), np.full((3, system.n_u), 0.4)
    many = variations.motion(modes, w, u, redundant=redundant)
    for k in range(3):
        for name, value in vars(variations.motion(modes, w[k], u[k], redundant=redundant)).items():
            np.testing.assert_allclose(getattr(many, name)[k], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("system", "modes"),
    [(stacked(0.5), modes) for modes in MODES]
    + [(slider(0.4, dimension=3), modes) for modes in ((FREE,), (STICK,), (SLIP,))]
    + [(slider(0.4), (SLIP,)), (cart_pole(0.3, 0.5), (SLIP_BACK,)), (cart_pole(0.3, 0.5), (STICK,))],
)
def test_derivatives_of_the_motion_are_those_of_differences(system: ns.CLS, modes: tuple[int, ...]) -> None:
    variations, w, u = ContactVariations(system), state_of(system, 3), np.linspace(0.2, 0.5, system.n_u)
    motion, h = variations.motion(modes, w, u), 1e-5
    for k, d in enumerate(np.eye(w.size)):
        high, low = (variations.motion(modes, w + s * h * d, u) for s in (1.0, -1.0))
        assert_close(motion.rate_w[:, k], (high.rate - low.rate) / (2 * h), 1e-8)
        assert_close(motion.forces_w[:, k], (high.forces - low.forces) / (2 * h), 1e-8)
    for k, d in enumerate(np.eye(u.size)):
        high, low = (variations.motion(modes, w, u + s * h * d) for s in (1.0, -1.0))
        assert_close(motion.forces_u[:, k], (high.forces - low.forces) / (2 * h), 1e-8)


def test_transition_of_an_oscillator_and_of_a_singular_slope() -> None:
    omega, t = 50.0, 2.0
    made = transport(lambda s: np.array([[[0.0, 1.0], [-(omega**2), 0.0]]] * s.size), 0.0, t)
    exact = [[np.cos(omega * t), np.sin(omega * t) / omega], [-omega * np.sin(omega * t), np.cos(omega * t)]]
    np.testing.assert_allclose(made, exact, rtol=0, atol=1e-9)
    np.testing.assert_allclose(transport(lambda s: -1.0 / (1.0 - s[:, None, None]), 0.0, 0.999), [[1e-3]], atol=1e-13)


# Against closed forms ------------------------------------------------------------------------------------------------


def test_a_slip_in_space_that_ends() -> None:
    """x(T) = x + |v| v / (2 mu g), t* = |v| / (mu g), in every direction of v."""
    found = BY_NAME["slip_to_stick_3d"]
    S = ns.simulate(
        found.system, x0=found.x0, duration=found.duration, u=found.u, method=ns.EventDriven(), sensitivities=True
    ).sensitivity
    v = found.x0[3:5]
    size, brake = np.linalg.norm(v), 0.5 * GRAVITY
    exact = np.zeros((6, 6))
    exact[:2, :2], exact[:2, 3:5] = np.eye(2), (np.outer(v, v) / size + size * np.eye(2)) / (2 * brake)
    keeps = [0, 1, 3, 4]
    np.testing.assert_allclose(S.x0[:, keeps], exact[:, keeps], rtol=0, atol=1e-8)
    np.testing.assert_allclose(S.event_times_x0[0, 3:5], v / size / brake, rtol=0, atol=1e-8)


@pytest.mark.parametrize("force", [0.0, 1.0, 2.5])
def test_a_slip_in_space_that_a_transverse_force_turns(force: float) -> None:
    """|v| (m + F cos) is linear in time: t* = (m |v| + F'v) / (m^2 - F^2) with m = mu g, at unit mass."""
    F, v, m = np.array([0.0, force]), np.array([2.0, 0.3]), 0.3 * GRAVITY
    scene = Scene(system=slider(0.3, 0.0, 3), x0=[0, 0, 0, *v, 0], u=[*F, 0.0], duration=4.0, kinds="")
    S = scene.run(sensitivities=True).sensitivity
    exact = (m * v / np.linalg.norm(v) + F) / (m**2 - F @ F)
    np.testing.assert_allclose(S.event_times_x0[0, 3:5], exact, rtol=0, atol=1e-8)


# Against differences -------------------------------------------------------------------------------------------------

ON_GROUND_3D = np.delete(np.eye(6), [2, 5], axis=0)
ROD = falling_rod.Constants(gravity=GRAVITY, frictions=(0.3, 0.2))


def pivoting_rod() -> Scene:
    """One end slides on the ground until the other end lands too, without bouncing: it stays on both."""
    theta = 0.4
    x0 = np.array([0.0, 0.5 * np.sin(theta), theta, 2.0, 0.0, 0.0])
    keeps = np.zeros((4, 6))
    keeps[[0, 1], [0, 3]] = 1.0
    keeps[2, [1, 2]] = 0.5 * np.cos(theta), 1.0
    keeps[3, [4, 5]] = 0.5 * np.cos(theta), 1.0
    return Scene(system=falling_rod.build(ROD), x0=x0, duration=0.45, keeps=keeps, kinds="impact contact", step=1e-5)


SMOOTH = {
    "ball at rest": Scene(
        system=bouncing_ball.build(0.3), x0=[1.0, 0.3], duration=1.5, kinds="impact " * 8 + "contact", step=1e-5
    ),
    "two balls": Scene(
        system=two_balls_spring.build(), x0=[1.0, 2.0, 0.0, 0.0], duration=0.6, kinds="impact impact", step=2e-4
    ),
    "slip to stick, pushed, in space": case("slip_to_stick_pushed_3d", "stick", keeps=ON_GROUND_3D, step=1e-3),
    "reversal": case("reversal_2d", "reversal", keeps=[[1, 0, 0, 0], [0, 0, 1, 0]]),
    "release": case("release_2d", "release", keeps=np.delete(np.eye(6), [1, 4], axis=0)),
    "slip on a slope in space": case("slope_curve_3d", "", keeps=[[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0]]),
    "landing with stick": case("landing_stick_2d", "impact contact"),
    "landing with slip": case("landing_slip_3d", "impact contact"),
    "landing, slip, stop": case("landing_stop_2d", "impact contact stick"),
    "bounce with stick": case("bounce_stick_3d", "impact"),
    "bounce with slip": case("bounce_slip_2d", "impact"),
    "tip of a rod": case("rod_tip_slip_2d", "impact"),
    "rod that pivots": pivoting_rod(),
    "wavy ground": Scene(
        system=slider(0.2, 0.6), x0=[0.0, 1.0, 1.5, 0.0], u=[0.5, 0.0], duration=1.2, kinds="impact impact", step=1e-5
    ),
    "wavy ground, no bounce": Scene(
        system=slider(0.3), x0=[0.0, 1.0, 1.5, 0.0], u=[0.5, 0.0], duration=0.8, kinds="impact contact"
    ),
    "transverse force in space": Scene(
        system=slider(0.3, 0.0, 3), x0=[0, 0, 0.5, 3.0, 0.5, 0], u=[0, 1.0, 0.0], duration=0.8, kinds="impact contact"
    ),
    "rows of a control": Scene(
        system=slider(0.5, 0.5),
        x0=[0.0, 0.5, 1.0, 0.0],
        u=np.array([[0.0, 0.0], [-4.0, 2.0], [3.0, 0.0]]),
        duration=0.7,
        kinds="impact impact",
        step=1e-5,
    ),
    "cart with a pole, slip": Scene(
        system=cart_pole(0.2, 0.5), x0=[0.1, -1.2, 0.5, 0.5], duration=0.6, kinds="impact", step=1e-5
    ),
    "cart with a pole, stick": Scene(
        system=cart_pole(2.0, 0.3), x0=[0.1, -1.2, 0.5, 0.5], duration=0.6, kinds="impact impact", step=1e-5
    ),
    "a ball on a sliding block": Scene(
        system=stacked(0.5),
        x0=[0.0, 0.0, 1.2, 3.0, 0.0, 0.0],
        keeps=np.delete(np.eye(6), [1, 4], axis=0),
        duration=0.6,
        kinds="impact",
    ),
    "redundant contacts and a wall": Scene(
        system=block_on_two(0.2, wall=True),
        x0=[0.0, 0.0, 3.0, 0.0],
        u=[0.5],
        keeps=[[1, 0, 0, 0], [0, 0, 1, 0]],
        duration=0.7,
        kinds="impact reversal reversal",
    ),
}


# Seconds each, and what others have in part.
LONG = {
    "two balls",
    "redundant contacts and a wall",
    "slip to stick, pushed, in space",
    "transverse force in space",
    "cart with a pole, stick",
    "cart with a pole, slip",
    "landing with slip",
    "rod that pivots",
    "a ball on a sliding block",
}


@pytest.mark.parametrize("name", slow_but(SMOOTH.keys() - LONG, SMOOTH))
def test_equals_differences(name: str) -> None:
    check(SMOOTH[name])


@pytest.mark.slow
def test_a_slip_in_space_that_turns_to_its_very_end() -> None:
    """The end is that of differences to 1e-6; the time of the stop, found from the last direction, to 1e-4 only."""
    scene = Scene(system=inertias(), x0=[0.4, 0.0, 0.0, 0.9, 0.8, 0.0], duration=1.5, kinds="stick")
    S = scene.run(sensitivities=True).sensitivity
    for d in ON_GROUND_3D:
        end, times = difference(lambda s, d=d: scene.run(scene.x0 + s * d), 1e-3)
        assert_close(S.x0 @ d, end)
        np.testing.assert_allclose(S.event_times_x0 @ d, times, rtol=1e-4, atol=1e-9)


# Contacts that are closed at the start -------------------------------------------------------------------------------


def test_a_sliding_start_answers_to_its_normal_velocity_too() -> None:
    """A small hop costs friction while it flies and gives it back as an impulse: m v_n in all, on either side."""
    found = BY_NAME["slip_2d"]
    scene = Scene(system=found.system, x0=found.x0, duration=found.duration, u=found.u, kinds="")
    S = scene.run(sensitivities=True).sensitivity
    for sign in (1.0, -1.0):
        ends = [scene.run(found.x0 + s * np.array([0, 0, 0, sign])).final_state for s in (0.0, 1e-5, 2e-5)]
        slope = sign * (-1.5 * ends[0] + 2.0 * ends[1] - 0.5 * ends[2]) / 1e-5
        np.testing.assert_allclose(S.x0[:, 3], slope, rtol=0, atol=1e-5)
    assert S.x0[2, 3] == pytest.approx(0.5, abs=1e-9)  # mu v_n


def test_a_resting_start_forgets_its_tangential_velocity() -> None:
    """It sticks again after a way of the order of the square of the velocity."""
    found = BY_NAME["stick_2d"]
    S = ns.simulate(
        found.system, x0=found.x0, duration=found.duration, u=found.u, method=ns.EventDriven(), sensitivities=True
    ).sensitivity
    np.testing.assert_allclose(S.x0, np.diag([1.0, 0.0, 0.0, 0.0]), rtol=0, atol=1e-12)


# Where it is not smooth ----------------------------------------------------------------------------------------------


def ground(**fields: Any) -> tuple[ca.SX, ns.Contact]:
    q = ca.SX.sym("q", 2)
    return q, ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), **fields)


def two_landings(delay: float) -> Scene:
    """Two balls that land so much one after the other."""
    q = ca.SX.sym("q", 2)
    contacts = [ns.Contact(name, gap=q[k], restitution=0.8) for k, name in enumerate("ab")]
    system = falling(*contacts, q=q, force=(-GRAVITY, -GRAVITY))
    hit = np.sqrt(2.0 / GRAVITY)
    return Scene(
        system=system, x0=[1.0, 1.0 + 0.5 * GRAVITY * ((hit + delay) ** 2 - hit**2), 0, 0], duration=1, kinds=""
    )


def after_each_other(distance: float) -> Scene:
    """An impact with `a` throws the system towards `b`, where nothing moved before: only the past tells of both."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    mass = np.linalg.inv([[1.0, -0.3], [-0.3, 1.0]])
    contacts = [ns.Contact(name, gap=q[k], restitution=0.5) for k, name in enumerate("ab")]
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM(mass), force=ca.DM([0, 0]), contacts=contacts)
    return Scene(system=system, x0=[1.0, distance, -1.0, 0.0], duration=2.0, kinds="")


def grazing(height: float) -> Scene:
    """A ball thrown over a bump that it touches at the top of its way."""
    q = ca.SX.sym("q", 2)
    contact = ns.Contact("ceiling", gap=height - q[1])
    return Scene(
        system=falling(contact, q=q), x0=[0.0, 0.0, 1.0, np.sqrt(2 * GRAVITY)], duration=0.8, kinds="",
        options={"grazing": "continue"},
    )  # fmt: skip


def ball(x0: Sequence[float], duration: float, e: float = 0.5, **fields: Any) -> Scene:
    return Scene(system=bouncing_ball.build(e), x0=x0, duration=duration, kinds="", **fields)


def landing(speed: float, mu: float, restitution: float = 0.0) -> Scene:
    """A point mass from a height of 1 with a horizontal speed."""
    q, contact = ground(friction=mu, restitution=restitution)
    return Scene(system=falling(contact, q=q), x0=[0.0, 1.0, speed, 0.0], duration=1.0, kinds="")


HIT = float(np.sqrt(2.0 / GRAVITY))
IMPACT_SPEED = float(np.sqrt(2.0 * GRAVITY))
FLAT = slider(0.5, waves=0.0)


def pushed(u: Any, x0: Sequence[float] = (0, 0, 0, 0), system: ns.CLS = FLAT, duration: float = 0.6) -> Scene:
    return Scene(system=system, x0=list(x0), duration=duration, u=u, kinds="")


FLAGGED = {
    "two land together": (two_landings(1e-7), "touch of b at the same time"),
    "a touch without speed": (grazing(1.0), "ceiling is touched without speed"),
    "an impact at the start": (ball([0.0, -1.0], 0.1), "t = 0: an impact at the start"),
    "an impact at the end": (ball([1.0, 0.0], HIT), "an event at the end"),
    "an impact just before the end": (ball([1.0, 0.0], HIT + 5e-10), "an event at the start or at a break"),
    "an impact at a break": (
        pushed(np.zeros((2, 2)), [0, 1, 0, 0], duration=2 * HIT),
        "at a break of the control",
    ),
    "a touch without force": (
        Scene(system=FLAT, x0=[0, 0, 0, 0], u=[0.0, 12.0], duration=0.2, kinds=""),
        "t = 0: ground is touched without force",
    ),
    "closed without force": (pushed([0.0, GRAVITY], [0, 0, 1, 0]), "without force"),
    "a slip from rest at the start": (pushed([6.0, 0.0]), "begins to slip at the start"),
    "on the edge of the cone": (pushed([0.5 * GRAVITY, 0.0]), "edge of its cone|begins to slip"),
    "a slip in space from rest": (
        Scene(system=slider(0.5, dimension=3), x0=[0.0] * 6, u=lambda t: [10.0 * t, 0.0, 0.0], duration=0.7, kinds=""),
        "begins to slip in space",
    ),
    "a stick that is lifted": (pushed(lambda t: [0.0, 20.0 * t]), "start of slip of ground at the same time"),
    "an impact on the edge of its cone": (landing(0.5 * IMPACT_SPEED, 0.5), "edge of its cone|slips without speed"),
    "an impact at rest_velocity": (
        ball([1.0, 0.0], 1.0, options={"rest_velocity": IMPACT_SPEED - 1e-7}),
        "ground is hit at rest_velocity",
    ),
    "a control with a corner": (
        pushed(lambda t: [min(12.0 * t, 4.9049 + 2.0 * (t - 4.9049 / 12.0)), 0.0], duration=0.8),
        "the control is not smooth",
    ),
    "two events one after the other": (after_each_other(1e-7), "^t = 1.0000002.*: two events within 1e-06 s$"),
    "a slip that begins at once": (
        pushed(lambda t: [0.5 * GRAVITY + t, 0.0]),
        "t = 0: modes that change again at once",
    ),
    "redundant forces": (
        pushed(lambda t: [12.0 * t], system=block_on_two(0.5)),
        "redundant|at the same time",
    ),
    "too many impacts": (
        ball([1.0, 0.0], 3.0, 0.9, options={"max_impacts": 2, "impact_window": 9.0}),
        "the simulation stopped",
    ),
}


@pytest.mark.parametrize("name", FLAGGED)
def test_is_flagged(name: str) -> None:
    scene, message = FLAGGED[name]
    trajectory = scene.run(sensitivities=True)
    S = trajectory.sensitivity
    assert not S.smooth
    assert any(re.search(message, flag) for flag in S.flags), S.flags
    assert np.isnan(S.x0).all()
    assert np.isnan(S.p).all()


def test_neighbours_of_what_is_flagged_are_not() -> None:
    for scene in (
        two_landings(1e-3),
        after_each_other(1e-3),
        grazing(1.001),
        ball([1.0, 0.0], HIT + 1e-6),
        pushed(np.zeros((2, 2)), [0, 1, 0, 0], duration=2 * HIT + 1e-6),
        pushed([0.49 * GRAVITY, 0.0]),
        landing(0.49 * IMPACT_SPEED, 0.5),
        landing(0.51 * IMPACT_SPEED, 0.5),
        ball([1.0, 0.0], 1.0, options={"rest_velocity": IMPACT_SPEED - 1e-4}),
        pushed(lambda t: [12.0 * t, 0.0], duration=0.8),
    ):
        assert scene.run(sensitivities=True).sensitivity.flags == ()


def test_a_redundant_force_at_an_event_is_flagged_where_nothing_else_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two contacts under one block slip at once; without what the guards tell, the open share of the force is left."""
    monkeypatch.setattr(NodeCrossing, "flags", lambda self: iter(()))
    pulled = pushed(lambda t: [12.0 * t], system=block_on_two(0.5)).run(sensitivities=True).sensitivity
    assert any(re.search("the force of (left|right) is redundant", flag) for flag in pulled.flags), pulled.flags
    alone = pushed(lambda t: [12.0 * t, 0.0], duration=0.8).run(sensitivities=True).sensitivity
    assert alone.flags == ()


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1e6])
def test_sensitivities_do_not_depend_on_the_unit_of_mass(unit: float) -> None:
    """A slip that a growing force starts, and a block that lands and stops."""

    def end(mass: float, x0: Sequence[float], u: Any) -> np.ndarray:
        q, v, push = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 1)
        contact = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.5)
        force = mass * ca.vertcat(push, -GRAVITY)
        system = ns.CLS(q=q, v=v, u=push, mass_matrix=mass * ca.DM.eye(2), force=force, contacts=[contact])
        S = Scene(system=system, x0=x0, duration=0.8, u=u, kinds="").run(sensitivities=True).sensitivity
        assert S.flags == ()
        return np.vstack([S.x0, S.event_times_x0])

    for x0, u in (([0.0, 0.0, 0.0, 0.0], lambda t: [12.0 * t]), ([0.0, 1.0, 1.0, 0.0], None)):
        np.testing.assert_allclose(end(unit, x0, u), end(1.0, x0, u), rtol=0, atol=1e-9)


def test_times_before_the_flag_stay() -> None:
    """Three bounces, the last of them at the end: the first two times have derivatives."""
    times = bouncing_ball.impact_times(0.9, 3)
    trajectory = ball([1.0, 0.0], float(times[2]) + 5e-10, 0.9).run(sensitivities=True)
    S, (_, dt) = trajectory.sensitivity, ball_by_hand(0.9, 1.0, 0.0, 2.0, 2)
    assert len(trajectory.impacts) == 3
    np.testing.assert_allclose(S.event_times_x0[:2], dt, rtol=1e-10)
    assert np.isnan(S.event_times_x0[2]).all()
    assert np.isnan(S.x0).all()


# Public face ---------------------------------------------------------------------------------------------------------


def test_nothing_is_differentiated_unless_asked() -> None:
    assert ball([1.0, 0.0], 1.0).run().sensitivity is None


def test_without_contacts_and_without_motion_of_data() -> None:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    oscillator = ns.CLS(q=q, v=v, mass_matrix=ca.DM(1.0), force=-4.0 * q)
    S = ns.simulate(oscillator, x0=[0.0, 0.0], duration=3.0, method=ns.EventDriven(), sensitivities=True).sensitivity
    exact = [[np.cos(6.0), np.sin(6.0) / 2.0], [-2.0 * np.sin(6.0), np.cos(6.0)]]
    np.testing.assert_allclose(S.x0, exact, rtol=0, atol=1e-9)
    assert S.p.shape == (2, 0)
    assert S.event_times_x0.shape == (0, 2)


def test_a_feedback_is_refused() -> None:
    with pytest.raises(OptionError, match="derivative with respect to x is not known"):
        pushed(lambda t, x: [x[0], 0.0]).run(sensitivities=True)
