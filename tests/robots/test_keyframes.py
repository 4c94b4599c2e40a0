"""Keyframes of MJCF files: poses and drive forces are those of MuJoCo at the same keyframe."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from tests.robots.test_mjcf_elements import LAW, SERVO, actuated

mujoco = pytest.importorskip("mujoco")
pytestmark = pytest.mark.quick

# A floating trunk with a hinge, a slide and a ball joint, drawn away from zero; quaternions need not be of length one.
CREATURE = """<mujoco><worldbody><body name="trunk" pos="0 0 1" euler="5 10 0"><freejoint name="base"/>
<geom type="box" size=".2 .1 .05"/>
<body name="leg" pos=".2 .1 0" euler="10 20 30"><joint name="hip" axis="1 0 0" pos="0 .01 0" ref="20"/>
  <geom size=".05" pos="0 0 -.1"/>
  <body name="shin" pos="0 .05 -.3"><joint name="knee" type="slide" axis="0 .1 1" ref="0.1"/>
    <geom size=".05" pos=".1 0 -.1"/></body></body>
<body name="head" pos="-.2 0 .1" euler="0 40 0"><joint name="neck" type="ball" pos="0 .02 -.1"/>
  <geom size=".1" pos="0 0 .1"/></body></body></worldbody>
<actuator><position name="servo" joint="hip" kp="30" ctrlrange="-1 1"/><motor joint="knee" gear="-2" ctrlrange="-1 3"/>
</actuator><keyframe>
<key name="crouched" time="1.5" qpos=".3 -.2 .7 .8 .2 -.4 .1 .5 -.06 .6 -.3 .5 .2" qvel="1 2 3 4 5 6 7 8 9 10 11"
  ctrl="0.4 2"/>
<key qvel="1 0 0 0 0 0 0 0 0 0 0" ctrl="-7 -7"/>
</keyframe></mujoco>"""
FRAMES = [("crouched", 0), ("key_1", 1)]


def at_key(text: str, index: int) -> tuple[Any, Any]:
    """Model and data of MuJoCo at a keyframe, for which accelerations are computed."""
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, index)
    mujoco.mj_forward(model, data)
    return model, data


def valued(robot: ns.Robot, frame: ns.Keyframe, expression: ca.SX) -> np.ndarray:
    """The value of an expression of q, v, u and activations at a keyframe."""
    symbols = [ca.vertcat(robot.q, robot.v, robot.activation), robot.u]
    return np.array(ca.densify(ca.Function("value", symbols, [expression])(frame.x0, frame.u)))


@pytest.mark.parametrize(("name", "index"), FRAMES)
def test_poses_and_velocities_are_those_of_mujoco(name: str, index: int) -> None:
    """Origins and axes of all bodies, linear and angular velocities (in the world), and forces of drives."""
    robot = ns.Robot.from_mjcf(CREATURE)
    frame, (model, data) = robot.keyframes[name], at_key(CREATURE, index)
    for body in ("trunk", "leg", "shin", "head"):
        at = model.body(body).id
        rotation, position = robot.pose(body)
        assert np.abs(valued(robot, frame, robot.position(body)).ravel() - data.xpos[at]).max() < 1e-9
        assert np.abs(valued(robot, frame, rotation) - data.xmat[at].reshape(3, 3)).max() < 1e-9
        expected = np.zeros(6)  # angular, then linear velocity, both in the world
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, at, expected, 0)
        velocity = valued(robot, frame, robot.jacobian(position) @ robot.v).ravel()
        assert np.abs(velocity - expected[3:]).max() < 1e-9
    assert np.abs(valued(robot, frame, robot.actuation).ravel() - data.qfrc_actuator).max() < 1e-9


def test_names_times_and_what_is_not_given() -> None:
    """Without positions those of the drawing; controls within their ranges, and a motor's is its force."""
    robot = ns.Robot.from_mjcf(CREATURE)
    assert list(robot.keyframes) == ["crouched", "key_1"]
    crouched, other = robot.keyframes.values()
    assert (crouched.time, other.time) == (1.5, 0.0)
    assert list(crouched.states) == list(robot.system().state_names)
    assert list(crouched.controls.items()) == [("servo_setpoint", 0.4), ("knee_effort", -4.0)]
    start = np.concatenate([body.start for body in robot.tree.bodies])
    np.testing.assert_allclose(other.x0, [*start, 1.0, *np.zeros(10)], rtol=0, atol=1e-12)
    # A set point of -7 is clamped at -1, a control of -7 at -1 as well, which is 2 N.
    assert other.u.tolist() == [-1.0, 2.0]
    assert not any("keyframes" in text for text in robot.tree.left_out)


def test_another_pose_is_no_pose_of_the_keyframe() -> None:
    """The control of the comparison: the poses of two keyframes differ by far more than its tolerance."""
    robot = ns.Robot.from_mjcf(CREATURE)
    _, data = at_key(CREATURE, 1)
    assert np.abs(valued(robot, robot.keyframes["crouched"], robot.position("head")).ravel() - data.xpos[4]).max() > 0.1


@pytest.mark.parametrize(
    "drives",
    [
        '<general joint="x" dyntype="filter" dynprm=".05" gainprm="3" gear="2"/><motor joint="h" gear="-.5"/>',
        f'<general joint="h" dyntype="integrator" {LAW}/><motor joint="x" gear="3" ctrlrange="-.1 .1"/>',
        SERVO.format('joint="h" gear="1.5"') + '<motor joint="x" forcerange="-.2 .1"/>',
    ],
)
def test_activations_and_controls_give_the_forces_of_mujoco(drives: str) -> None:
    has = 'act="0.7"' if "dyntype" in drives else ""
    text = actuated(drives).replace("</mujoco>", f'<keyframe><key ctrl=".3 -.6" {has}/></keyframe></mujoco>')
    robot = ns.Robot.from_mjcf(text)
    frame, (_, data) = robot.keyframes["key_0"], at_key(text, 0)
    assert np.abs(data.qfrc_actuator).max() > 0.05
    assert np.abs(valued(robot, frame, robot.actuation).ravel() - data.qfrc_actuator).max() < 1e-12
    assert frame.x0.size == len(robot.system().state_names)


def test_states_by_name_start_robots_whose_joints_have_dry_friction() -> None:
    """Clamps are further states, which are zero: x0 alone would be too short."""
    text = CREATURE.replace('name="hip"', 'name="hip" frictionloss="0.3"')
    robot = ns.Robot.from_mjcf(text)
    system, frame = robot.system(), robot.keyframes["crouched"]
    ocp = ns.OCP(system, horizon=1.0, x0=frame.states, stage_cost=ca.sumsqr(system.u))
    named = dict(zip(system.state_names, ocp.x0, strict=True))
    assert named["hip_clamp"] == 0.0
    assert named["hip"] == pytest.approx(0.5, abs=1e-15)
    with pytest.raises(ns.NosnocError):
        ns.OCP(system, horizon=1.0, x0=frame.x0, stage_cost=ca.sumsqr(system.u))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ('<key name="short" qpos="1 2"/>', r"keyframe 'short': qpos: expected 14 numbers, given 2"),
        ('<key qvel="1 2 3"/>', r"keyframe 'key_0': qvel: expected 12 numbers, given 3"),
        ('<key ctrl="1"/>', r"keyframe 'key_0': ctrl: expected 2 numbers, given 1"),
        (f'<key qpos="{"1 " * 15}"/>', "14"),
        ('<key act="1"/>', "act"),
        (f'<key qvel="{"nan " * 12}"/>', "v: expected finite numbers"),
        ('<key/><key name="key_0"/>', "keyframe 1 has the name 'key_0' of another one"),
    ],
)
def test_wrong_keyframes_are_refused_at_once(key: str, said: str) -> None:
    text = CREATURE[: CREATURE.index("<keyframe>")].replace(
        "</body></worldbody>", '<body name="t"><joint name="t"/><geom size=".1"/></body></body></worldbody>'
    )
    ns.Robot.from_mjcf(f"{text}<keyframe><key/></keyframe></mujoco>")  # right without the fault
    with pytest.raises(ns.ModelError, match=said):
        ns.Robot.from_mjcf(f"{text}<keyframe>{key}</keyframe></mujoco>")


def test_files_without_drives_or_keyframes() -> None:
    text = CREATURE[: CREATURE.index("<actuator>")]
    robot = ns.Robot.from_mjcf(f"{text}<keyframe><key/></keyframe></mujoco>")
    # Every joint with one coordinate has a motor; the file applies no force.
    assert robot.keyframes["key_0"].controls == {"hip_effort": 0.0, "knee_effort": 0.0}
    assert ns.Robot.from_mjcf(f"{text}</mujoco>").keyframes == {}
    urdf = """<robot name="rig"><link name="rail"/><link name="cart"><inertial><mass value="2"/>
      <inertia ixx="0" iyy="0" izz="0"/></inertial></link><joint name="slide" type="prismatic"><parent link="rail"/>
      <child link="cart"/><axis xyz="1 0 0"/><limit lower="-1" upper="1" effort="5" velocity="3"/></joint></robot>"""
    assert ns.Robot.from_urdf(urdf).keyframes == {}


def test_poses_of_mocap_bodies_that_are_not_read_are_said() -> None:
    body = '<body name="hand" mocap="true" pos="1 0 0"><geom size=".1"/></body></worldbody>'
    text = CREATURE.replace("</worldbody>", body)
    said = "other poses of mocap bodies in keyframes (1)"
    assert said not in ns.Robot.from_mjcf(text).tree.left_out
    assert said in ns.Robot.from_mjcf(text.replace('<key name="', '<key mpos="2 0 0" name="')).tree.left_out


def test_a_file_with_included_ones_by_its_path(tmp_path: Any) -> None:
    (tmp_path / "keys.xml").write_text(
        '<mujocoinclude><keyframe><key name="home" qpos="0.3"/></keyframe></mujocoinclude>'
    )
    (tmp_path / "rig.xml").write_text(
        '<mujoco><include file="keys.xml"/><worldbody><body><joint name="slide" type="slide"/><geom size=".1"/></body>'
        "</worldbody></mujoco>"
    )
    assert ns.Robot.from_mjcf(tmp_path / "rig.xml").keyframes["home"].x0.tolist() == [0.3, 0.0]
