"""Cylinders and discs on the ground: they roll exactly, and lie and topple as their circles do."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from nosnoc_py.rotations import exp, quaternion_of, rotation_of

pytestmark = pytest.mark.quick
GRAVITY = 9.81
GROUND = ns.HalfSpace()


def body(shape: Any, inertia: Any, friction: float, slope: float = 0.0, ground: Any = GROUND) -> ns.CLS:
    """Body of 1 kg on the ground, which goes down along x with an angle."""
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    moves = ns.Coordinates(q, v, quaternions=[q[3:]])
    placed = ns.Placed(shape, q[:3], q[3:], coordinates=moves)
    weight, w = GRAVITY * ca.DM([np.sin(slope), 0, -np.cos(slope)]), v[3:]
    return ns.CLS(
        q=q, v=v, quaternions=[q[3:]], mass_matrix=ca.diag(ca.DM([1, 1, 1, *inertia])),
        force=ca.vertcat(weight, -ca.cross(w, ca.DM(inertia) * w)),
        contacts=ns.contacts(placed, ground, name="rim", friction=friction),
    )  # fmt: skip


def inertia_of(radius: float, length: float) -> list[float]:
    across = (3 * radius**2 + length**2) / 12
    return [across, across, radius**2 / 2]


# z of the body along -y of the world: a wheel that rolls along x.
UPRIGHT = quaternion_of(exp(np.array([np.pi / 2, 0.0, 0.0])))


@pytest.mark.parametrize("speed", [1.0, -1.0])
@pytest.mark.parametrize("shape", [ns.Cylinder(0.1, 0.04), ns.ThinDisc(0.1)])
def test_a_wheel_rolls_straight_at_constant_speed(shape: Any, speed: float) -> None:
    wheel = body(shape, inertia_of(0.1, 0.04), 0.8)
    motion = ns.simulate(wheel, x0=[0, 0, 0.1, *UPRIGHT, speed, 0, 0, 0, 0, -speed / 0.1], duration=1.0)
    assert motion.success, motion.message
    assert not motion.events
    assert motion.final_state[0] == pytest.approx(speed, abs=1e-10)
    assert motion["q_2"] == pytest.approx(0.1, abs=1e-12)


def test_a_wheel_of_a_robot_file_rolls() -> None:
    across, along = inertia_of(0.1, 0.04)[1:]
    text = f'''<robot name="wheel"><link name="rim"><inertial><mass value="1"/>
      <inertia ixx="{across}" iyy="{across}" izz="{along}"/></inertial>
      <collision><geometry><cylinder radius="0.1" length="0.04"/></geometry></collision></link></robot>'''
    robot = ns.Robot.from_urdf(text, base="floating")
    system = robot.system(robot.contacts(friction=0.8))
    for speed in (1.0, -1.0):
        motion = ns.simulate(system, x0=[0, 0, 0.1, *UPRIGHT, speed, 0, 0, 0, 0, -speed / 0.1], duration=1.0)
        assert motion.success, motion.message
        assert motion.final_state[0] == pytest.approx(speed, abs=1e-10)


def test_a_wheel_that_slides_rolls_with_two_thirds_of_its_speed() -> None:
    """Falling on its line by 0.01 m it slides with 0.3 g until the rim has the speed of the axis: v = 2 / 3."""
    roller = body(ns.Cylinder(0.05, 0.3), inertia_of(0.05, 0.3), 0.3)
    motion = ns.simulate(roller, x0=[0, 0, 0.06, *UPRIGHT, 1, 0, 0, 0, 0, 0], duration=1.0)
    assert motion.success, motion.message
    assert motion.final_state[[7, 12]] == pytest.approx([2 / 3, -2 / 3 / 0.05], abs=1e-9)
    assert motion.final_state[2] == pytest.approx(0.05, abs=1e-10)


def test_a_coin_that_rolls_on_a_circle_follows_its_own_equations() -> None:
    """Rolling without slip in Euler angles: heading, lean and spin of a disc, by an integration of its own."""
    radius = 0.1
    transverse, axial = radius**2 / 4, radius**2 / 2

    # The body's axis is a; with the contact at c = -r e, e up the disc, rolling is v = w x (r e). About the contact
    # d/dt (J w) + r e x d/dt(w x r e) = r e x g, in the frame of a (axis), e (up the disc) and h = a x e (level).
    def rates(t: float, state: np.ndarray) -> np.ndarray:
        turn, w = state[2:11].reshape(3, 3), state[11:]
        axis, up = turn[:, 2], np.array([0.0, 0.0, 1.0])
        lean = up - axis * (axis @ up)
        e = lean / np.linalg.norm(lean)
        axis_rate = np.cross(w, axis)
        lean_rate = -axis_rate * (axis @ up) - axis * (axis_rate @ up)
        e_rate = (lean_rate - e * (e @ lean_rate)) / np.linalg.norm(lean)
        spatial = transverse * np.eye(3) + (axial - transverse) * np.outer(axis, axis)
        spin = (axial - transverse) * (np.outer(axis_rate, axis) + np.outer(axis, axis_rate)) @ w
        arm = radius * e
        across = np.array([[0, -arm[2], arm[1]], [arm[2], 0, -arm[0]], [-arm[1], arm[0], 0]])
        # Force at the contact: f = v' + g up, with v' = w' x arm + w x arm'; its torque about the centre is -arm x f.
        known = np.cross(w, radius * e_rate) + GRAVITY * up
        acceleration = np.linalg.solve(spatial - across @ across, -spin - np.cross(arm, known))
        velocity = np.cross(w, arm)
        hat = np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
        return np.concatenate([velocity[:2], (hat @ turn).ravel(), acceleration])

    turn = exp(np.array([1.2, 0.0, 0.0]))
    w = turn @ np.array([0.4, 1.5, -9.0])
    own = solve_ivp(rates, (0, 1), np.r_[0, 0, turn.ravel(), w], rtol=1e-12, atol=1e-13, method="DOP853").y[:, -1]
    rise = radius * np.sin(1.2)
    lean = np.array([0, 0, 1.0]) - turn[:, 2] * turn[2, 2]
    speed = np.cross(w, radius * lean / np.linalg.norm(lean))
    coin = body(ns.ThinDisc(radius), inertia_of(radius, 0.0), 2.0)
    motion = ns.simulate(coin, x0=[0, 0, rise, *quaternion_of(turn), *speed, *(turn.T @ w)], duration=1.0)
    assert motion.success, motion.message
    assert not motion.events
    assert motion.final_state[:2] == pytest.approx(own[:2], abs=1e-8)
    np.testing.assert_allclose(rotation_of(motion.final_state[3:7]), own[2:11].reshape(3, 3), rtol=0, atol=1e-8)


def test_a_wheel_rolls_through_a_valley_as_a_pendulum() -> None:
    """Without slip: a'' = -2 g sin(a) / (3 (R - r)), for the angle a of its axis in a round valley of radius R."""
    valley, radius, start = 1.0, 0.1, 0.5
    arm = valley - radius
    round_valley = ns.HeightMap(lambda x, y: valley - ca.sqrt(valley**2 - x**2))
    wheel = body(ns.Cylinder(radius, 0.04), inertia_of(radius, 0.04), 0.8, ground=round_valley)
    x0 = [arm * np.sin(start), 0, valley - arm * np.cos(start), *UPRIGHT, 0, 0, 0, 0, 0, 0]
    motion = ns.simulate(wheel, x0=x0, duration=1.0)
    assert motion.success, motion.message
    own = solve_ivp(
        lambda t, s: [s[1], -2 / 3 * GRAVITY / arm * np.sin(s[0])], (0, 1), [start, 0.0], rtol=1e-12, atol=1e-13
    ).y[0, -1]
    expected = [arm * np.sin(own), 0.0, valley - arm * np.cos(own)]
    np.testing.assert_allclose(motion.final_state[:3], expected, rtol=0, atol=1e-8)


def test_a_coin_on_its_face_slides_and_spins_to_rest() -> None:
    """All its points are at the radius: alone, a spin ends after w r / (2 mu g), a slide after v^2 / (2 mu g)."""
    coin = body(ns.ThinDisc(0.1), inertia_of(0.1, 0.0), 0.3)
    slide = ns.simulate(coin, x0=[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0], duration=0.5)
    assert slide.final_state[0] == pytest.approx(1 / (2 * 0.3 * GRAVITY), abs=1e-9)
    spin = ns.simulate(coin, x0=[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 10], duration=0.5)
    assert {event.kind for event in spin.events} == {"stick"}
    assert spin.events[0].time == pytest.approx(10 * 0.1 / (2 * 0.3 * GRAVITY), abs=1e-9)


@pytest.mark.parametrize(("share", "topples"), [(0.8, False), (1.1, True)])
@pytest.mark.parametrize("turn", [0.0, 0.3])
def test_a_can_topples_where_its_weight_leaves_the_circle(share: float, topples: bool, turn: float) -> None:
    """On a slope with the tangent 2 r / L, however its points are turned."""
    can = body(ns.Cylinder(0.03, 0.12), inertia_of(0.03, 0.12), 0.9, np.arctan(share * 0.5))
    x0 = [0, 0, 0.06, *quaternion_of(exp(np.array([0, 0, turn]))), 0, 0, 0, 0, 0, 0]
    motion = ns.simulate(can, x0=x0, duration=0.3)
    assert motion.success, motion.message
    tilt = np.arccos(rotation_of(motion.final_state[3:7])[2, 2])
    assert tilt > 0.1 if topples else tilt < 1e-10


def test_a_can_that_topples_turns_about_its_rim() -> None:
    """From rest at a tilt of 0.5, its centre of mass beyond the rim: its energy is that of the fall."""
    radius, length, friction = 0.05, 0.1, 5.0
    turn = exp(np.array([0.0, 0.9, 0.0]))
    rise = float(radius * np.hypot(*turn[2, :2]) + length / 2 * turn[2, 2])
    can = body(ns.Cylinder(radius, length), inertia_of(radius, length), friction)
    motion = ns.simulate(can, x0=[0, 0, rise, *quaternion_of(turn), 0, 0, 0, 0, 0, 0], duration=0.1)
    assert motion.success, motion.message
    assert not motion.events
    x = motion.final_state
    kinetic = 0.5 * (x[7:10] @ x[7:10] + x[10:] @ (np.array(inertia_of(radius, length)) * x[10:]))
    assert kinetic == pytest.approx(GRAVITY * (rise - x[2]), abs=1e-10)
    after = rotation_of(x[3:7])
    low = x[:3] - after @ [radius * after[2, 0] / abs(after[2, 0]), 0, length / 2]
    assert low[2] == pytest.approx(0.0, abs=1e-10)


def test_a_can_that_falls_flat_stays() -> None:
    can = body(ns.Cylinder(0.05, 0.12), inertia_of(0.05, 0.12), 0.5)
    motion = ns.simulate(can, x0=[0, 0, 0.07, 1, 0, 0, 0, 0.2, 0, 0, 0, 0, 0], duration=0.5)
    assert motion.success, motion.message
    assert motion.final_state[2:7] == pytest.approx([0.06, 1, 0, 0, 0], abs=1e-9)
    assert motion.final_state[7:] == pytest.approx(0.0, abs=1e-9)
