"""A box that tumbles on the ground: the same motion by every method and in other coordinates."""

from __future__ import annotations

from functools import cache

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import free_box, quadruped
from nosnoc_py.contact_problems.modes import FREE, SLIP
from nosnoc_py.simulation.event_driven.mechanics import ContactRegime, regime_of
from nosnoc_py.systems.kinematics import Kinematics

TILT = (0.2, 0.25, 0.15)
LANDED = 0.24  # [s]: one corner has struck and slides


def length_errors(motion: ns.Trajectory) -> float:
    return float(np.abs(np.linalg.norm(motion.x[:, 3:7], axis=1) - 1).max())


@cache
def begin(euler: bool = False) -> tuple[ns.CLS, np.ndarray]:
    """Tilted, with a spin about its own z axis and a push."""
    x0 = free_box.start(TILT, 0.4, euler=euler)
    system = free_box.build(euler=euler)
    x0[system.at_v][:2] = 0.5, 0.1
    if not euler:
        x0[-1] = 1.0
        return system, x0
    quaternion, start = begin()
    # The rates of the Euler angles that belong to the same angular velocity.
    slips = system.mechanics.jacobian @ system.v
    wanted = quaternion.kinematics(start).rates
    rates = ca.Function("rates", [system.q], [ca.jacobian(slips, system.v)])(x0[:6])
    x0[6:] = np.linalg.lstsq(np.array(rates), wanted, rcond=None)[0]
    return system, x0


def place(motion: ns.Trajectory, system: ns.CLS) -> np.ndarray:
    """Gaps of all corners, and the centre, at the end: what does not depend on the coordinates."""
    x = motion.final_state
    return np.append(system.mechanics.gaps_at(x, np.zeros(0)), x[:3])


@pytest.mark.quick
def test_quaternions_move_as_euler_angles_do() -> None:
    places = []
    for euler in (False, True):
        system, x0 = begin(euler)
        motion = ns.simulate(system, x0=x0, duration=LANDED)
        assert motion.success, motion.message
        assert [event.kind for event in motion.events][:1] == ["impact"]
        places.append(place(motion, system))
        if not euler:
            assert length_errors(motion) < 1e-12
    np.testing.assert_allclose(places[0], places[1], rtol=0, atol=1e-8)


def test_finite_elements_and_time_stepping_agree_with_events() -> None:
    system, x0 = begin()
    exact = ns.simulate(system, x0=x0, duration=LANDED)
    elements = ns.simulate(system, x0=x0, duration=LANDED, method=ns.FESDJ(rk_stages=3))
    assert elements.success, elements.message
    np.testing.assert_allclose(elements.final_state, exact.final_state, rtol=0, atol=1e-6)
    assert length_errors(elements) < 1e-12
    errors = []
    for steps in (250, 4000):
        found = ns.simulate(system, x0=x0, duration=LANDED, method=ns.TimeStepping(), steps=steps)
        assert found.success, found.message
        assert length_errors(found) < 1e-12
        errors.append(np.abs(found.final_state - exact.final_state)[:7].max())
    assert errors[0] < 2e-3
    assert errors[1] < errors[0] / 4  # first order would be 16; where in a step the impact lies plays a part


def test_a_box_ends_flat_by_every_method() -> None:
    """Many impacts within microseconds: a step of finite elements is cut where its elements end."""
    system, x0 = begin()
    for method in (ns.EventDriven(), ns.FESDJ(), ns.TimeStepping(step=4e-3)):
        motion = ns.simulate(system, x0=x0, duration=1.2, method=method)
        assert motion.success, motion.message
        assert motion.final_state[2] == pytest.approx(0.1, abs=1e-6)
        assert np.abs(motion.final_state[system.at_v]).max() < 1e-5
        assert length_errors(motion) < 1e-12


def test_sensitivities_are_those_of_differences_on_the_tangent_space() -> None:
    system, x0 = begin()
    step, tight = 1e-6, ns.EventDriven(rtol=1e-11, atol=1e-12)

    def end(x: np.ndarray) -> np.ndarray:
        x = x.copy()
        x[3:7] /= np.linalg.norm(x[3:7])
        return ns.simulate(system, x0=x, duration=LANDED, method=tight).final_state

    differences = [(end(x0 + d) - end(x0 - d)) / (2 * step) for d in step * np.eye(13)]
    for method in (tight, ns.FESDJ(rk_stages=3)):
        found = ns.simulate(system, x0=x0, duration=LANDED, method=method, sensitivities=True).sensitivity
        assert found is not None
        assert found.smooth, found.flags
        np.testing.assert_allclose(found.x0, np.transpose(differences), rtol=1e-6, atol=1e-6)


def test_joints_with_dry_friction_stick_and_slip() -> None:
    """A wheel with friction 0.3 N m: it stops at a time that is known, and holds against less than that."""
    text = """<robot name="wheel"><link name="wall"/><link name="disc"><inertial><mass value="1"/>
      <inertia ixx="0.1" iyy="0.2" izz="0.1"/></inertial></link>
      <joint name="axle" type="continuous"><parent link="wall"/><child link="disc"/><axis xyz="0 1 0"/>
      <dynamics friction="0.3"/></joint></robot>"""
    system = ns.Robot.from_urdf(text).system()
    assert system.names["q"] == ("axle", "axle_clamp")
    motion = ns.simulate(system, x0={"axle_rate": 3.0}, duration=3.0)
    stop = next(event.time for event in motion.events if event.kind == "stick")
    assert stop == pytest.approx(3.0 * 0.2 / 0.3, abs=1e-9)
    assert motion["axle"][-1] == pytest.approx(0.5 * 3.0 * stop, abs=1e-9)
    held = ns.simulate(system, x0={}, duration=1.0, u=[0.29])
    assert held["axle"][-1] == pytest.approx(0.0, abs=1e-12)
    moved = ns.simulate(system, x0={}, duration=1.0, u=[0.5])
    assert moved["axle"][-1] == pytest.approx(0.5 * 0.2 / 0.2, abs=1e-8)


@pytest.mark.parametrize(("seed", "duration"), [(9, 0.67), (17, 0.645)])
def test_slips_that_begin_in_space_do_not_end_at_once(seed: int, duration: float) -> None:
    """Boxes thrown at random: a corner sticks and slips again. What lay across a beginning slip used to grow."""
    rng = np.random.default_rng(5)
    for _ in range(seed + 1):
        x0 = free_box.start(tuple(rng.uniform(-1.5, 1.5, 3)), 0.6)
        x0[7:9] = rng.normal(size=2) * 0.5
        x0[10:] = rng.normal(size=3) * 1.5
    motion = ns.simulate(free_box.build(), x0=x0, duration=duration)
    assert motion.success, motion.message
    kinds = [event.kind for event in motion.events if event.kind in ("stick", "slip")]
    assert kinds[-2:] == ["stick", "slip"]
    assert len(kinds) <= 4


@pytest.mark.parametrize("rtol", [1e-4, 1e-6, 1e-12])
def test_slips_that_begin_together_begin_at_every_tolerance(rtol: float) -> None:
    """A crouched quadruped pushes off until its hind feet slip: at 1e-6 their slips used to end at once, for ever."""
    x0, feet = quadruped.start(), quadruped.robot()
    x0[7:19] = np.tile([0.0, 1.1, -2.1], 4)
    height = ca.Function("height", [feet.q], [feet.position("FL_foot")[2]])
    x0[2] += quadruped.FOOT - float(height(x0[:19]))
    system = quadruped.build(gains=quadruped.Gains())
    motion = ns.simulate(system, x0=x0, duration=0.0236, method=ns.EventDriven(rtol=rtol, atol=0.1 * rtol))
    assert motion.success, motion.message
    assert {(event.name, event.kind) for event in motion.events} == {("RL_foot", "slip"), ("RR_foot", "slip")}
    times = [event.time for event in motion.events]
    np.testing.assert_allclose(times, 0.023563275226, rtol=0, atol=max(1e-2 * rtol, 1e-11))


def test_the_direction_of_a_slip_is_differentiated() -> None:
    """Its part of the Jacobian, by central differences; a slip below and one above the speed of its start."""
    system = free_box.build()
    mechanics, at_v = system.mechanics, system.at_v
    modes = (SLIP, *(FREE,) * (mechanics.frames.count - 1))

    def regime_at(x: np.ndarray) -> tuple[ContactRegime, Kinematics]:
        at = mechanics.at(x, np.zeros(system.n_u), np.zeros(system.n_p))
        return regime_of(mechanics.frames, modes, np.tile([0.8, 0.6], mechanics.frames.count), at), at

    for speed in (3e-10, 1e-6):
        x = free_box.start((0.0, 0.0, 0.0), 0.0)
        x[at_v][:2] = speed, 0.5 * speed
        regime, at = regime_at(x)
        left, right = regime.turning(at)
        found, columns = left @ right, []
        for step in 1e-3 * speed * np.eye(x.size)[at_v]:
            ahead, behind = (regime.motion(regime_at(x + sign * step)[1])[0] for sign in (1, -1))
            columns.append((ahead - behind) / (2e-3 * speed))
        np.testing.assert_allclose(found, np.transpose(columns), rtol=0, atol=2e-6 * np.abs(found).max())
