"""Active-set Newton against closed forms: stick, slip, their switches, impacts, several contacts, curved contacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from nosnoc_py.simulation.newton import event_walk
from nosnoc_py.simulation.newton.contact_newton import ContactNewton, ContactStep
from nosnoc_py.tableaus import tableau
from tests.pairwise import every_pair, every_value

GRAVITY = 9.81
COUNTS = tuple(range(1, 21))


@dataclass(frozen=True, eq=False, kw_only=True)
class Motion:
    """Steps below each other."""

    steps: tuple[ContactStep, ...]

    @property
    def x(self) -> np.ndarray:
        return np.asarray(self.steps[-1].x_right[-1])

    def join(self, name: str) -> np.ndarray:
        return np.concatenate([getattr(step, name) for step in self.steps])

    @property
    def left(self) -> np.ndarray:
        return np.concatenate([[0.0], np.cumsum(self.join("h"))[:-1]])

    @property
    def impacts(self) -> np.ndarray:
        return np.asarray(self.left[self.join("Lambda_normal").max(axis=1) > 0])

    @property
    def switches(self) -> np.ndarray:
        modes = self.join("modes")
        return np.asarray(self.left[1:][(modes[1:] != modes[:-1]).any(axis=1)])


def move(
    system: ns.CLS,
    x: Sequence[float],
    duration: float,
    steps: int,
    *,
    elements: int = 2,
    stages: int = 3,
    scheme: str = "radau_iia",
    u: Any = None,
    **options: Any,
) -> Motion:
    newton = ContactNewton(system, tableau(scheme, stages), elements, **options)
    done: list[ContactStep] = []
    state, modes = np.array(x, dtype=float), None
    for _ in range(steps):
        step = newton.step(state, u, None, duration / steps, modes)
        assert step.success, step.message
        assert step.h.shape == (elements,)
        assert step.h.sum() == pytest.approx(duration / steps, abs=1e-15)
        done.append(step)
        state, modes = step.x_right[-1], step.hint
    return Motion(steps=tuple(done))


def particle(
    force: Sequence[float] = (0.0,), friction: float = 0.5, restitution: float = 0.0, gravity: float = GRAVITY
) -> ns.CLS:
    """A unit mass over a plane, in the plane (one force) or in space (two); the last coordinate is the height."""
    n_t = len(force)
    q, v = ca.SX.sym("q", n_t + 1), ca.SX.sym("v", n_t + 1)
    tangent = ca.DM(np.eye(n_t + 1)[:, :n_t])
    ground = ns.Contact("ground", gap=q[n_t], tangent=tangent, friction=friction, restitution=restitution)
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(n_t + 1), force=ca.vertcat(*force, -gravity), contacts=[ground])


def along(direction: Sequence[float], position: float, speed: float) -> np.ndarray:
    """State of a particle on the plane that moves along a direction."""
    d = np.array(direction)
    return np.concatenate([position * d, [0.0], speed * d, [0.0]])


PLANAR = (1.0,)
SPATIAL = (0.6, -0.8)
DIRECTIONS = pytest.mark.parametrize("direction", [PLANAR, SPATIAL], ids=["planar", "spatial"])
ELEMENTS = pytest.mark.parametrize("elements", [2, 3])
BRAKE = 0.5 * GRAVITY


def pushed(direction: Sequence[float], force: float = 0.0, **more: float) -> ns.CLS:
    return particle([force * d for d in direction], **more)


# --- one contact on a plane ---


@DIRECTIONS
@ELEMENTS
def test_a_force_inside_the_cone_moves_nothing(direction: Sequence[float], elements: int) -> None:
    motion = move(pushed(direction, 4.9), along(direction, 0.0, 0.0), 0.5, 10, elements=elements)
    np.testing.assert_allclose(motion.join("x_right"), 0.0, rtol=0, atol=1e-14)
    np.testing.assert_allclose(motion.join("lambda_normal"), GRAVITY, rtol=0, atol=1e-11)
    expected = np.broadcast_to(-4.9 * np.array(direction), motion.join("lambda_tangent").shape)
    np.testing.assert_allclose(motion.join("lambda_tangent"), expected, rtol=0, atol=1e-11)
    assert (motion.join("modes") == 2).all()


@DIRECTIONS
def test_without_any_force_along_the_plane_rest_is_regular(direction: Sequence[float]) -> None:
    motion = move(pushed(direction), along(direction, 0.3, 0.0), 0.5, 10)
    np.testing.assert_allclose(motion.x, along(direction, 0.3, 0.0), rtol=0, atol=1e-15)
    np.testing.assert_allclose(motion.join("lambda_tangent"), 0.0, rtol=0, atol=1e-14)


@DIRECTIONS
@ELEMENTS
def test_a_force_outside_the_cone_slips_from_rest(direction: Sequence[float], elements: int) -> None:
    motion = move(pushed(direction, 8.0), along(direction, 0.0, 0.0), 0.5, 10, elements=elements)
    a = 8.0 - BRAKE
    np.testing.assert_allclose(motion.x, along(direction, 0.125 * a, 0.5 * a), rtol=0, atol=1e-13)


@every_value(direction=[PLANAR, SPATIAL], elements=[2, 3], steps=[*COUNTS, 40])
def test_slip_comes_to_rest(direction: Sequence[float], elements: int, steps: int) -> None:
    motion = move(pushed(direction), along(direction, 0.0, 2.0), 0.6, steps, elements=elements)
    stop = 2.0 / BRAKE
    np.testing.assert_allclose(motion.x, along(direction, 2.0 / BRAKE, 0.0), rtol=0, atol=1e-13)
    np.testing.assert_allclose(motion.switches, [stop], rtol=0, atol=1e-13)
    assert stop == pytest.approx(0.407747196738, abs=1e-12)


def test_without_events_the_stop_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_walk.EventWalk, "_first_crossing", lambda self, run: None)
    frozen = move(pushed(PLANAR), along(PLANAR, 0.0, 2.0), 0.6, 12)
    assert np.abs(frozen.x - along(PLANAR, 2.0 / BRAKE, 0.0)).max() > 1e-3


@every_value(direction=[PLANAR, SPATIAL], elements=[2, 3], steps=COUNTS)
def test_a_reversal(direction: Sequence[float], elements: int, steps: int) -> None:
    motion = move(pushed(direction, 8.0), along(direction, 0.0, -2.0), 0.6, steps, elements=elements)
    turn = 2.0 / (8.0 + BRAKE)
    assert turn == pytest.approx(0.154978690430, abs=1e-12)
    a, rest = 8.0 - BRAKE, 0.6 - turn
    expected = along(direction, -1.0 * turn + 0.5 * a * rest**2, a * rest)
    np.testing.assert_allclose(motion.x, expected, rtol=0, atol=1e-13)
    assert np.abs(motion.left - turn).min() < 1e-13


def growing(direction: Sequence[float], slope: float) -> ns.CLS:
    """A particle pushed by a force in proportion to a coordinate that moves on its own."""
    n_t = len(direction)
    q, v = ca.SX.sym("q", n_t + 2), ca.SX.sym("v", n_t + 2)
    ground = ns.Contact("ground", gap=q[n_t], tangent=ca.DM(np.eye(n_t + 2)[:, :n_t]), friction=0.5)
    force = ca.vertcat(slope * q[-1] * ca.DM(direction), -GRAVITY, 0)
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(n_t + 2), force=force, contacts=[ground])


@every_value(direction=[PLANAR, SPATIAL], elements=[2, 3], steps=COUNTS)
def test_a_growing_force_begins_to_slip(direction: Sequence[float], elements: int, steps: int) -> None:
    zeros = np.zeros(len(direction) + 1)
    motion = move(growing(direction, 10.0), [*zeros, 0.0, *zeros, 1.0], 0.8, steps, elements=elements)
    begin = BRAKE / 10.0
    rest = 0.8 - begin
    d = np.array(direction)
    expected = np.concatenate([10 * rest**3 / 6 * d, [0.0, 0.8], 5 * rest**2 * d, [0.0, 1.0]])
    np.testing.assert_allclose(motion.x, expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(motion.switches, [begin], rtol=0, atol=1e-11)


@every_pair(direction=[PLANAR, SPATIAL], restitution=[0.0, 0.5], speed=[1.0, -6.0], steps=[1, 2, 5, 13, 20])
def test_an_impact_sticks_or_slips(direction: Sequence[float], restitution: float, speed: float, steps: int) -> None:
    """At v_n = 4.43 friction can take a tangential velocity of .5 (1 + e) v_n = 2.2 or 3.3."""
    start = along(direction, 0.0, speed)
    start[len(direction)] = 1.0
    motion = move(pushed(direction, restitution=restitution), start, 0.6, steps)
    hit = np.sqrt(2.0 / GRAVITY)
    normal, rest = GRAVITY * hit, 0.6 - hit
    lost = 0.5 * (1 + restitution) * normal
    after = 0.0 if abs(speed) <= lost else np.sign(speed) * (abs(speed) - lost)
    on_ground = restitution == 0.0
    brake = BRAKE * np.sign(after) if on_ground else 0.0
    expected = along(direction, speed * hit + after * rest - 0.5 * brake * rest**2, after - brake * rest)
    if not on_ground:
        expected[len(direction)] = restitution * normal * rest - 0.5 * GRAVITY * rest**2
        expected[-1] = restitution * normal - GRAVITY * rest
    np.testing.assert_allclose(motion.x, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(motion.impacts, [hit], rtol=0, atol=1e-13)
    assert motion.join("Lambda_normal").sum() == pytest.approx((1 + restitution) * normal, abs=1e-12)
    tangential = motion.join("Lambda_tangent").sum(axis=0)
    np.testing.assert_allclose(tangential, (after - speed) * np.array(direction), rtol=0, atol=1e-12)


@DIRECTIONS
@pytest.mark.parametrize(("angle", "slides"), [(26.0, False), (27.0, True)])
def test_a_tilted_plane(direction: Sequence[float], angle: float, slides: bool) -> None:
    """The critical angle is atan(.5) = 26.57 degrees."""
    tilt = np.radians(angle)
    system = pushed(direction, GRAVITY * np.sin(tilt), gravity=GRAVITY * np.cos(tilt))
    a = GRAVITY * (np.sin(tilt) - 0.5 * np.cos(tilt)) if slides else 0.0
    motion = move(system, along(direction, 0.0, 0.0), 1.0, 20)
    np.testing.assert_allclose(motion.x, along(direction, 0.5 * a, a), rtol=0, atol=1e-13)


def test_slip_under_a_transverse_force() -> None:
    def flow(t: float, x: np.ndarray) -> np.ndarray:
        return np.concatenate([x[2:], [0.0, 1.5] - BRAKE * x[2:] / np.linalg.norm(x[2:])])

    reference = solve_ivp(flow, (0.0, 0.35), [0.0, 0.0, 2.0, 0.3], method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    motion = move(particle([0.0, 1.5]), [0, 0, 0, 2.0, 0.3, 0], 0.35, 20)
    np.testing.assert_allclose(motion.x[[0, 1, 3, 4]], reference, rtol=0, atol=1e-8)
    assert (motion.join("modes") == 3).all()


def test_a_curving_slip_that_stops_and_stays() -> None:
    """A power singularity of the differential equation at the stop; the force alone does not move it on."""

    def flow(t: float, x: np.ndarray) -> np.ndarray:
        return np.concatenate([x[2:], [0.0, 1.5] - BRAKE * x[2:] / np.linalg.norm(x[2:])])

    def slow(t: float, x: np.ndarray) -> float:
        return float(np.linalg.norm(x[2:])) - 1e-9

    slow.terminal = True  # type: ignore[attr-defined]
    end = solve_ivp(flow, (0.0, 1.0), [0, 0, 2.0, 0.3], method="DOP853", rtol=1e-12, atol=1e-14, events=slow)
    motion = move(particle([0.0, 1.5]), [0, 0, 0, 2.0, 0.3, 0], 0.8, 16, stages=4)
    np.testing.assert_allclose(motion.x[:2], end.y[:2, -1], rtol=0, atol=1e-6)
    np.testing.assert_allclose(motion.x[3:], 0.0, rtol=0, atol=1e-12)
    assert motion.switches[-1] == pytest.approx(end.t[-1], abs=1e-5)


@pytest.mark.parametrize("speed", [0.0, 2.0])
def test_anisotropic_friction(speed: float) -> None:
    """Along one of the two tangents only that coefficient is felt; a diagonal force sees the ellipse."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    tangent = ca.DM([[1, 0], [0, 1], [0, 0]])
    ground = ns.Contact("ground", gap=q[2], tangent=tangent, friction=(0.5, 0.2))
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(3), force=ca.vertcat(0, 0, -GRAVITY), contacts=[ground])
    t = 0.2
    for k, mu in enumerate((0.5, 0.2)):
        start = np.zeros(6)
        start[3 + k] = speed
        expected = np.zeros(6)
        if speed:
            expected[k], expected[3 + k] = speed * t - 0.5 * mu * GRAVITY * t**2, speed - mu * GRAVITY * t
        np.testing.assert_allclose(move(system, start, t, 4).x, expected, rtol=0, atol=1e-13)


def test_anisotropic_slip_dissipates_most() -> None:
    """Over the ellipse sum (lambda_k / mu_k)^2 <= lambda_n^2 no force dissipates more than the one found."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    tangent = ca.DM([[1, 0], [0, 1], [0, 0]])
    ground = ns.Contact("ground", gap=q[2], tangent=tangent, friction=(0.5, 0.2))
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(3), force=ca.vertcat(0, 0, -GRAVITY), contacts=[ground])
    motion = move(system, [0, 0, 0, 1.0, 2.0, 0.0], 0.1, 3)
    angle = np.linspace(0, 2 * np.pi, 20001)
    ellipse = GRAVITY * np.array([0.5 * np.cos(angle), 0.2 * np.sin(angle)])
    forces, states = motion.join("lambda_tangent").reshape(-1, 2), motion.join("x_stages").reshape(-1, 6)
    for force, state in zip(forces, states, strict=True):
        assert -force @ state[3:5] >= (state[3:5] @ ellipse).max() - 1e-10
        assert np.sum((force / [0.5, 0.2]) ** 2) == pytest.approx(GRAVITY**2, abs=1e-9)


# --- impacts ---


@ELEMENTS
@pytest.mark.parametrize(("scheme", "stages"), [("radau_iia", 2), ("radau_iia", 3), ("gauss_legendre", 2)])
def test_a_bouncing_ball(elements: int, scheme: str, stages: int) -> None:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    ball = ns.CLS(
        q=q, v=v, mass_matrix=ca.DM(1), force=-GRAVITY, contacts=[ns.Contact("ground", gap=q, restitution=0.9)]
    )
    motion = move(ball, [1.0, 0.0], 2.5, 50, elements=elements, scheme=scheme, stages=stages)
    fall = np.sqrt(2 / GRAVITY)
    hits = fall * np.array([1.0, 1 + 2 * 0.9, 1 + 2 * 0.9 + 2 * 0.81])
    np.testing.assert_allclose(motion.impacts, hits, rtol=0, atol=1e-12)
    np.testing.assert_allclose(hits, [0.451523640986, 1.264266194760, 1.995734493157], rtol=0, atol=1e-12)
    rest, up = 2.5 - hits[-1], 0.9**3 * GRAVITY * fall
    expected = [up * rest - 0.5 * GRAVITY * rest**2, up - GRAVITY * rest]
    np.testing.assert_allclose(motion.x, expected, rtol=0, atol=1e-12)


def test_slow_approaches_come_to_rest() -> None:
    """Infinitely many impacts in finite time: below the rest velocity they are none."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    ball = ns.CLS(
        q=q, v=v, mass_matrix=ca.DM(1), force=-GRAVITY, contacts=[ns.Contact("ground", gap=q, restitution=0.5)]
    )
    motion = move(ball, [0.1, 0.0], 0.6, 40, elements=10)
    np.testing.assert_allclose(motion.x, 0.0, rtol=0, atol=1e-14)
    bounces = int(np.floor(np.log(np.sqrt(0.2 * GRAVITY) / 1e-3) / np.log(2)))
    assert motion.impacts.size == bounces + 2  # the first one, those that bounce, and the one that does not
    newton = ContactNewton(ball, tableau("radau_iia", 3), 10, rest_velocity=1e-12)
    failed = newton.step(np.array([1e-6, 0.0]), None, None, 0.1)
    assert "more switches than finite elements" in failed.message


def corner(restitution: float) -> ns.CLS:
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    contacts = [
        ns.Contact(name, gap=q[k], tangent=ca.DM(np.eye(2)[:, 1 - k]), friction=mu, restitution=restitution)
        for k, (name, mu) in enumerate([("wall", 0.0), ("floor", 0.0)])
    ]
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM.zeros(2), contacts=contacts)


@pytest.mark.parametrize("restitution", [0.0, 0.5])
@pytest.mark.parametrize("steps", [1, 3, 8, 16])
def test_both_walls_of_a_corner_at_once(restitution: float, steps: int) -> None:
    motion = move(corner(restitution), [0.5, 1.0, -1.0, -2.0], 0.8, steps)
    np.testing.assert_allclose(motion.impacts, [0.5], rtol=0, atol=1e-13)
    after = restitution * np.array([1.0, 2.0])
    np.testing.assert_allclose(motion.x, [*(0.3 * after), *after], rtol=0, atol=1e-13)
    np.testing.assert_allclose(motion.join("Lambda_normal").sum(axis=0), (1 + restitution) * np.array([1.0, 2.0]))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("steps", [1, 2, 5, 11])
def test_independent_particles_that_hit_together(count: int, steps: int) -> None:
    friction, restitution = np.array([0.5, 0.2, 0.3])[:count], np.array([0.5, 0.0, 0.8])[:count]
    speed = np.array([6.0, -2.0, 0.5])[:count]
    q, v = ca.SX.sym("q", 2 * count), ca.SX.sym("v", 2 * count)
    eye = np.eye(2 * count)
    contacts = [
        ns.Contact(f"ground_{k}", gap=q[2 * k + 1], tangent=ca.DM(eye[:, 2 * k]), friction=friction[k], restitution=e)
        for k, e in enumerate(restitution)
    ]
    force = ca.DM(np.tile([0.0, -GRAVITY], count))
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2 * count), force=force, contacts=contacts)
    start = np.concatenate([np.tile([0.0, 1.0], count), np.column_stack([speed, np.zeros(count)]).reshape(-1)])
    motion = move(system, start, 0.5, steps)
    hit = np.sqrt(2 / GRAVITY)
    normal, rest = GRAVITY * hit, 0.5 - hit
    after = np.sign(speed) * np.maximum(np.abs(speed) - friction * (1 + restitution) * normal, 0.0)
    brake = np.where(restitution == 0, friction * GRAVITY, 0.0) * np.sign(after)
    x = speed * hit + after * rest - 0.5 * brake * rest**2
    up = restitution * normal
    y = np.where(restitution > 0, up * rest - 0.5 * GRAVITY * rest**2, 0.0)
    v_y = np.where(restitution > 0, up - GRAVITY * rest, 0.0)
    expected = np.concatenate(
        [np.column_stack([x, y]).reshape(-1), np.column_stack([after - brake * rest, v_y]).reshape(-1)]
    )
    np.testing.assert_allclose(motion.x, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(motion.impacts, [hit], rtol=0, atol=1e-13)


# --- contacts that hang together ---


def stack(mass: Sequence[float] = (2.0, 1.0), friction: Sequence[float] = (0.1, 0.4)) -> ns.CLS:
    """Two blocks on top of each other, q = (x_1, y_1, x_2, y_2)."""
    q, v = ca.SX.sym("q", 4), ca.SX.sym("v", 4)
    contacts = [
        ns.Contact("floor", gap=q[1], tangent=ca.DM([1, 0, 0, 0]), friction=friction[0]),
        ns.Contact("joint", gap=q[3] - q[1], tangent=ca.DM([-1, 0, 1, 0]), friction=friction[1]),
    ]
    force = ca.DM([0, -mass[0] * GRAVITY, 0, -mass[1] * GRAVITY])
    matrix = ca.diag(ca.DM([mass[0], mass[0], mass[1], mass[1]]))
    return ns.CLS(q=q, v=v, mass_matrix=matrix, force=force, contacts=contacts)


@ELEMENTS
@pytest.mark.parametrize("steps", [2, 3, 7, 20, 60])
def test_two_blocks_slip_then_move_together_then_rest(elements: int, steps: int) -> None:
    g, duration = GRAVITY, 3.0
    a_2, a_1 = 0.4 * g, -(0.4 * 1.0 + 0.1 * 3.0) * g / 2.0
    together = 3.0 / (a_2 - a_1)
    common = a_2 * together
    stop = together + common / (0.1 * g)
    slide = common**2 / (2 * 0.1 * g)
    expected = [3 * together + a_1 * together**2 / 2 + slide, 0, a_2 * together**2 / 2 + slide, 0, 0, 0, 0, 0]
    motion = move(stack(), [0, 0, 0, 0, 3.0, 0, 0, 0], duration, steps, elements=elements)
    np.testing.assert_allclose(motion.x, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(motion.switches, [together, stop], rtol=0, atol=1e-12)
    assert stop < duration


def test_a_block_on_two_redundant_feet_brakes() -> None:
    """Forces of two feet of one block are not unique; the motion is."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    feet = [ns.Contact(name, gap=q[1], tangent=ca.DM([1, 0]), friction=0.5) for name in ("left", "right")]
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.vertcat(0, -GRAVITY), contacts=feet)
    motion = move(system, [0, 0, 2.0, 0], 0.6, 12)
    np.testing.assert_allclose(motion.x, [2.0 / BRAKE, 0, 0, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(motion.join("lambda_normal").sum(axis=2), GRAVITY, rtol=0, atol=1e-9)


def test_a_mass_matrix_that_depends_on_q_gives_the_same_motion() -> None:
    """Polar coordinates of a particle on a disc-shaped table: it slips to a stop along a straight line."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)  # r, phi, height
    tangent = ca.vertcat(ca.horzcat(1, 0), ca.horzcat(0, q[0]), ca.horzcat(0, 0))
    table = ns.Contact("table", gap=q[2], tangent=tangent, friction=0.5)
    matrix = ca.diag(ca.vertcat(1, q[0] ** 2, 1))
    force = ca.vertcat(q[0] * v[1] ** 2, -2 * q[0] * v[0] * v[1], -GRAVITY)
    system = ns.CLS(q=q, v=v, mass_matrix=matrix, force=force, contacts=[table])
    speed = np.array([1.2, 1.6])
    motion = move(system, [1.0, 0.0, 0.0, speed[0], speed[1], 0.0], 0.3, 20)
    travelled = (2.0 * 0.3 - 0.5 * BRAKE * 0.09) * speed / 2.0
    r, phi = motion.x[:2]
    np.testing.assert_allclose([r * np.cos(phi), r * np.sin(phi)], [1.0 + travelled[0], travelled[1]], atol=1e-9)
    rest = move(system, [1.0, 0.0, 0.0, speed[0], speed[1], 0.0], 0.6, 24)
    r, phi = rest.x[:2]
    travelled = 4.0 / (2 * BRAKE) * speed / 2.0
    np.testing.assert_allclose([r * np.cos(phi), r * np.sin(phi)], [1.0 + travelled[0], travelled[1]], atol=1e-6)
    np.testing.assert_allclose(rest.x[3:], 0.0, rtol=0, atol=1e-12)


def test_release_when_the_floor_pulls_no_more() -> None:
    """A force that grows upwards lifts the particle off when it equals the weight, with smooth height (t - t*)^3."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ground = ns.Contact("ground", gap=q[0])
    force = ca.vertcat(10 * q[1] - 4.0, 0)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=force, contacts=[ground])
    for steps in (1, 2, 5, 9):
        motion = move(system, [0, 0, 0, 1.0], 1.0, steps)
        np.testing.assert_allclose(motion.switches, [0.4], rtol=0, atol=1e-9)
        np.testing.assert_allclose(motion.x, [10 * 0.6**3 / 6, 1.0, 5 * 0.36, 1.0], rtol=0, atol=1e-9)


# --- a curved contact ---


def bowl() -> ns.CLS:
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    inside = ns.Contact("bowl", gap=1 - ca.norm_2(q))
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.vertcat(0, -GRAVITY), contacts=[inside])


def pendulum(angle: float, speed: float, duration: float) -> np.ndarray:
    """The same motion in the angle from the bottom."""

    def flow(t: float, x: np.ndarray) -> list[float]:
        return [x[1], -GRAVITY * np.sin(x[0])]

    a, w = solve_ivp(flow, (0.0, duration), [angle, speed], method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    return np.array([np.sin(a), -np.cos(a), w * np.cos(a), w * np.sin(a)])


def bowl_errors(stages: int, counts: Sequence[int], **options: Any) -> np.ndarray:
    reference = pendulum(1.0, 0.5, 1.0)
    start = pendulum(1.0, 0.5, 1e-300)
    motions = [move(bowl(), start, 1.0, n, stages=stages, **options) for n in counts]
    assert options or all(motion.impacts.size == 0 for motion in motions)
    return np.array([np.abs(motion.x - reference).max() for motion in motions])


def order(errors: np.ndarray, counts: Sequence[int]) -> float:
    return float(-np.polyfit(np.log(counts), np.log(errors), 1)[0])


@pytest.mark.parametrize(("stages", "expected"), [(2, 3), (3, 5)])
def test_sliding_in_a_bowl_keeps_the_order(stages: int, expected: int) -> None:
    counts = (10, 14, 20, 28)
    errors = bowl_errors(stages, counts)
    assert order(errors, counts) == pytest.approx(expected, abs=0.4)


def test_without_the_gap_rate_the_order_is_lost() -> None:
    counts = (10, 14, 20, 28)
    without, with_rate = bowl_errors(3, counts, gap_rate=False), bowl_errors(3, counts)
    assert order(without, counts) < 3.5
    assert (without > 10 * with_rate).all()


# --- failures are messages ---


def test_more_events_than_elements_name_the_contact() -> None:
    newton = ContactNewton(pushed(PLANAR), tableau("radau_iia", 3), 2)
    start = along(PLANAR, 0.0, 6.0)
    start[1] = 1.0
    step = newton.step(start, None, None, 3.0)
    assert not step.success
    assert step.contact == "ground"
    assert "more switches than finite elements" in step.message
    assert step.h.shape == (1,)
    assert step.h[0] == pytest.approx(np.sqrt(2 / GRAVITY), abs=1e-13)
    enough = ContactNewton(pushed(PLANAR), tableau("radau_iia", 3), 3).step(start, None, None, 3.0)
    assert enough.success


def test_an_impact_without_admissible_velocity_is_reported() -> None:
    """A slot without width: the floor throws the body up with 0.5 m/s, and the roof lets it nowhere."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    contacts = [ns.Contact("floor", gap=q[1], restitution=0.5), ns.Contact("roof", gap=-q[1])]
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM.zeros(2), contacts=contacts)
    step = ContactNewton(system, tableau("radau_iia", 2), 2).step(np.array([0.0, 0.0, -0.1, -1.0]), None, None, 0.1)
    assert not step.success
    assert "no admissible impact" in step.message
    assert "floor" in step.message
    assert "roof" in step.message
    assert step.h.shape == (0,)


def test_the_modes_before_are_not_trusted() -> None:
    """The control changed: what stuck slips, what slipped upwards is pressed down, and a wrong hint changes nothing."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.5)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, -GRAVITY), contacts=[ground])
    newton = ContactNewton(system, tableau("radau_iia", 3), 2)
    for hint in (None, [0], [2], [3], [4]):
        for push in (-8.0, 0.0, 8.0):
            step = newton.step(np.zeros(4), np.array([push]), None, 0.1, hint)
            a = np.sign(push) * (abs(push) - BRAKE) if push else 0.0
            np.testing.assert_allclose(step.x_right[-1], [0.005 * a, 0, 0.1 * a, 0], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("across", "steps", "tolerance"),
    [(0.3, 12, 1e-4), (0.3, 30, 1e-7), (0.3, 60, 1e-8), (0.1, 30, 1e-3), (0.1, 60, 1e-5), (0.003, 12, 1e-4)],
)
def test_a_sharp_turn_is_no_stop(across: float, steps: int, tolerance: float) -> None:
    """Pushed back at the end of its path the particle turns at a small speed; a slip backwards would gain energy."""

    def flow(t: float, x: np.ndarray) -> np.ndarray:
        return np.concatenate([x[2:], [-8.0, 0.0] - BRAKE * x[2:] / np.linalg.norm(x[2:])])

    reference = solve_ivp(flow, (0.0, 0.3), [0, 0, 2.0, across], method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
    motion = move(particle([-8.0, 0.0]), [0, 0, 0, 2.0, across, 0], 0.3, steps, elements=3)
    np.testing.assert_allclose(motion.x[[0, 1, 3, 4]], reference, rtol=0, atol=tolerance)
    forces, velocities = motion.join("lambda_tangent"), motion.join("x_stages")[..., 3:5]
    assert (forces * velocities).sum(axis=-1).max() <= 1e-12


def rod(friction: float, restitution: float) -> ns.CLS:
    """A uniform rod of length 2 in the plane that touches the ground with both ends, q = (x, y, angle)."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    contacts = []
    for name, side in (("front", 1.0), ("back", -1.0)):
        x, y = q[0] + side * ca.cos(q[2]), q[1] + side * ca.sin(q[2])
        tangent = ca.gradient(x, q)
        contacts.append(ns.Contact(name, gap=y, tangent=tangent, friction=friction, restitution=restitution))
    force = ca.DM([0, -GRAVITY, 0])
    return ns.CLS(q=q, v=v, mass_matrix=ca.diag(ca.DM([1, 1, 1 / 3])), force=force, contacts=contacts)


@pytest.mark.parametrize("friction", [0.0, 0.3, 1.0])
def test_a_falling_rod_only_loses_energy_and_never_penetrates(friction: float) -> None:
    motion = move(rod(friction, 0.0), [0.0, 1.2, 0.9, 1.0, 0.0, -1.0], 1.5, 75, elements=6)
    x = motion.join("x_right")
    energy = 0.5 * x[:, 3] ** 2 + 0.5 * x[:, 4] ** 2 + x[:, 5] ** 2 / 6 + GRAVITY * x[:, 1]
    assert np.diff(energy).max() <= 1e-9
    assert energy[-1] < energy[0] - 1.0
    states = motion.join("x_stages").reshape(-1, 6)
    gaps = states[:, 1] - np.abs(np.sin(states[:, 2]))
    assert gaps.min() >= -1e-11
    assert (motion.join("modes")[-1] > 0).all()
    normal = motion.join("lambda_normal")
    tangential = motion.join("lambda_tangent") if friction else np.zeros_like(normal)
    assert normal.min() >= -1e-7
    assert (friction * normal - np.abs(tangential)).min() >= -1e-6


def test_a_step_without_contacts_is_plain_collocation() -> None:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    spring = ns.CLS(q=q, v=v, mass_matrix=ca.DM(2), force=-8 * q)
    motion = move(spring, [1.0, 0.0], 1.0, 40)
    np.testing.assert_allclose(motion.x, [np.cos(2.0), -2 * np.sin(2.0)], rtol=0, atol=1e-9)
