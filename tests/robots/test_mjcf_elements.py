"""One small file for every element of MJCF: M, bias, passive forces, actuation and constraints beside mj_forward."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.rotations import exp
from problems.benchmarks.robot_files import by_mujoco

mujoco = pytest.importorskip("mujoco")
pytestmark = pytest.mark.quick


def file(
    x: str = "", h: str = "", body: str = "", world: str = "", option: str = "", more: str = "", end: str = ""
) -> str:
    """A slide with a hinge on it, and what the arguments add to joints, bodies, world and file."""
    return f"""<mujoco>{option}<worldbody><site name="w" pos=".5 .2 .9" euler="10 20 30"/>{world}
<body name="a" pos=".1 0 .5" {body}><joint name="x" type="slide" axis="1 0 .2" {x}/><geom size=".1" mass="2"/>
  <site name="s" pos=".1 .2 .3" euler="20 0 10"/>
  <body name="b" pos=".3 0 0"><joint name="h" axis="0 1 .1" pos="0 0 .1" {h}/>
    <geom type="capsule" size=".05 .2" pos=".1 0 .2" mass="1"/><site name="t" pos="0 .1 .2" euler="0 30 0"/>{end}
  </body></body></worldbody>{more}</mujoco>"""


def actuated(text: str, more: str = "", **parts: str) -> str:
    return file(more=f"{more}<actuator>{text}</actuator>", **parts)


def held(text: str, more: str = "", **parts: str) -> str:
    return file(more=f"{more}<equality>{text}</equality>", **parts)


BALL = (
    '<body name="c" pos="0 .2 .1" euler="10 0 0"><joint name="ball" type="ball" {0}/>'
    '<geom size=".1" mass="1" pos=".1 0 .2"/></body>'
)
FLOAT = (
    '<body name="f" pos="1 .2 .1"><joint name="free" type="free" {0}/>'
    '<geom type="box" size=".1 .2 .3" mass="1" pos=".1 0 .2"/></body>'
)
FIXED = '<tendon><fixed name="r" {0}><joint joint="x" coef="2"/><joint joint="h" coef="-.7"/></fixed></tendon>'
STRAIGHT = (
    '<tendon><spatial name="r" {0}><site site="w"/><site site="s"/><pulley divisor="2"/><site site="s"/>'
    '<site site="t"/></spatial></tendon>'
)
LAW = 'gainprm="20" biastype="affine" biasprm="0 -20 -1"'
SIX = 'gear="1 2 3 4 5 6"'
SERVO = '<position {0} kp="30" kv="4"/>'
ELEMENTS = {
    "spring of a joint": file(h='stiffness="8 3 2" springref="25" ref="10"'),
    "damper of a joint": file(x='damping="3 2 1"'),
    "armature": file(h='armature=".3"'),
    "ball joint": file(end=BALL.format('stiffness="4" damping=".5 .2 .1" armature=".02"')),
    "free joint": file(world=FLOAT.format('stiffness="4" damping=".5 .2 .1" armature=".02"')),
    "compensated weight": file(body='gravcomp=".7"'),
    "weight compensated by drives": actuated('<motor joint="x"/>', body='gravcomp=".7"', x='actuatorgravcomp="true"'),
    "fixed tendon": file(more=FIXED.format('stiffness="5 1 2" damping="1 .5 .2" springlength=".1 .2" armature=".4"')),
    "slack tendon": file(more=FIXED.format('stiffness="5" springlength="-9 9"')),
    "straight tendon": file(more=STRAIGHT.format('stiffness="5 1" damping="1 .5" armature=".4"')),
    "motor": actuated('<motor joint="x" gear="-2.5" ctrlrange="-1 3" armature=".2" damping="1 .5"/>'),
    "motors on one joint": actuated('<motor joint="h" gear="3"/><motor joint="h"/>', h='actuatorfrcrange="-.3 .2"'),
    "servo": actuated(SERVO.format('joint="h" gear="1.5"')),
    "saturated servo": actuated(SERVO.format('joint="h" forcerange="-.4 .2"')),
    "servo on a joint with a range": actuated(SERVO.format('joint="h"'), h='actuatorfrcrange="-.3 .2"'),
    "servo of a velocity": actuated('<velocity joint="x" kv="3"/>'),
    "general actuator": actuated(
        '<general joint="h" gaintype="affine" gainprm="2 3 1" biastype="affine" biasprm="1 -4 -2" gear="2"/>'
    ),
    "motor with a lag": actuated('<general joint="x" dyntype="filter" dynprm=".05" gainprm="3" gear="2"/>'),
    "servo with an integrator": actuated(f'<general joint="h" dyntype="integrator" {LAW}/>'),
    "motor on a fixed tendon": actuated('<motor tendon="r" gear="3" armature=".2"/>', FIXED.format("")),
    "servo on a straight tendon": actuated(SERVO.format('tendon="r"'), STRAIGHT.format("")),
    "motor on a ball joint": actuated('<motor joint="ball" gear="1 2 3"/>', end=BALL.format("")),
    "motor in the axes of the parent": actuated('<motor jointinparent="ball" gear="1 2 3"/>', end=BALL.format("")),
    "motor on a free joint": actuated('<motor joint="free" gear="1 2 3 4 5 6"/>', world=FLOAT.format("")),
    "free joint in the axes of the parent": actuated(f'<motor jointinparent="free" {SIX}/>', world=FLOAT.format("")),
    "motor on a site": actuated('<motor site="t" gear="1 2 3 4 5 6"/>'),
    "gear": held('<joint joint1="x" joint2="h" polycoef=".1 2 .3 -.2 .1"/>', h='ref="20"'),
    "joint that is fixed": held('<joint joint1="h" polycoef=".1 0 0 0 0"/>', h='ref="20"'),
    "coupled tendons": held('<tendon tendon1="r" polycoef=".1 0 0 0 0"/>', STRAIGHT.format("")),
    "points that meet": held('<connect body1="b" anchor=".1 .2 .3"/>'),
    "bodies that are welded": held('<weld body1="b" body2="a" torquescale="2"/>'),
    "sites that meet": held('<connect site1="t" site2="w"/>'),
    "sites that are welded": held('<weld site1="t" site2="w" torquescale=".5"/>'),
    "mocap body": file(
        world='<body name="m" mocap="true" pos=".2 .3 .4" euler="10 0 20"><geom size=".1"/></body>',
        more='<equality><weld body1="m" body2="b"/></equality>',
    ),
}  # fmt: skip
FLAGS = ("gravity", "spring", "damper", "actuation", "equality", "constraint", "clampctrl", "contact", "limit")
EVERYTHING = file(
    x='damping="2" stiffness="3"', h='range="-60 60"',
    more=FIXED.format('stiffness="5" damping="2"') + '<actuator><motor joint="x" ctrlrange="-2 2"/></actuator>'
    '<equality><joint joint1="x" joint2="h"/></equality>', option="{0}",
)  # fmt: skip


def compiled(text: str) -> Any:
    """A model; older versions of MuJoCo do not know all elements."""
    try:
        return mujoco.MjModel.from_xml_string(text)
    except ValueError as error:
        pytest.skip(str(error))


def errors(text: str) -> dict[str, float]:
    """Largest relative errors by what is compared, at a random state."""
    return by_mujoco(mujoco, compiled(text), ns.Robot.from_mjcf(text))


@pytest.mark.parametrize("element", ELEMENTS)
def test_numbers_are_those_of_mujoco(element: str) -> None:
    found = errors(ELEMENTS[element])
    assert max(found.values()) < 1e-9, found
    constrained = "<equality>" in ELEMENTS[element]
    assert ("constraints" in found) == constrained


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_are_obeyed(flag: str) -> None:
    text = EVERYTHING.format(f'<option><flag {flag}="disable"/></option>')
    found = errors(text)
    assert max(found.values()) < 1e-9, found
    robot, usual = ns.Robot.from_mjcf(text), ns.Robot.from_mjcf(EVERYTHING.format(""))
    assert list(usual.couplings) == ["equality0"]
    assert list(robot.couplings) == ([] if flag in ("equality", "constraint") else ["equality0"])
    assert [stop.name for stop in usual.end_stops()] == ["h (lower)", "h (upper)"]
    assert bool(robot.end_stops()) == (flag not in ("limit", "constraint"))
    assert robot.bounds() == ({} if flag in ("clampctrl", "actuation") else {"x_effort": (-2.0, 2.0)})
    assert bool(robot.collisions) == (flag not in ("contact", "constraint"))


def test_friction_of_joints_and_tendons() -> None:
    text = file(x='frictionloss="2"', more=FIXED.format('frictionloss="3"'))
    system = ns.Robot.from_mjcf(text).system()
    assert [contact.name for contact in system.contacts] == ["x (friction)", "r (friction)"]
    off = text.replace("<mujoco>", '<mujoco><option><flag frictionloss="disable"/></option>')
    assert ns.Robot.from_mjcf(off).system().contacts == ()


@pytest.mark.parametrize(
    ("actuator", "bounds"),
    [
        ('<motor joint="x" gear="40" ctrlrange="0 1"/>', {"x_effort": (0.0, 40.0)}),
        ('<motor joint="x" gear="-2" ctrlrange="-1 3"/>', {"x_effort": (-6.0, 2.0)}),
        ('<motor joint="x" gear="40" ctrlrange="-1 1" forcerange="-.2 .1"/>', {"x_effort": (-8.0, 4.0)}),
        ('<motor joint="h" gear="40" ctrlrange="-1 1"/>', {"h_effort": (-3.0, 2.0)}),
        ('<position name="p" joint="x" kp="3" ctrlrange="-1 2"/>', {"p_setpoint": (-1.0, 2.0)}),
        ('<motor name="m" joint="x" ctrlrange="0 1"/><position name="p" joint="x"/>', {"m_effort": (0.0, 1.0)}),
    ],
)
def test_bounds_of_controls(actuator: str, bounds: dict[str, Any]) -> None:
    assert ns.Robot.from_mjcf(actuated(actuator, h='actuatorfrcrange="-3 2"')).bounds() == bounds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (file(option='<option density="1.2"/>'), r"<option density> is 1.2: forces of a fluid"),
        (actuated('<motor joint="x" delay=".1" nsample="5"/>'), "actuator 'actuator0': delay is 0.1: delays"),
        (actuated('<muscle joint="x" lengthrange="0 1"/>'), "its dynamics is muscle: only none, filter"),
        (actuated('<adhesion body="b" ctrlrange="0 1"/>'), "its transmission is body: only joint"),
        (actuated('<motor site="t" refsite="w"/>'), "refsite is not supported"),
        (actuated('<motor joint="ball" armature="1"/>', end=BALL.format("")), "armature and damping need a joint"),
        (actuated(SERVO.format('joint="ball"'), end=BALL.format("")), "a servo of positions needs a joint with one"),
        (file(more='<tendon><spatial name="r"><site site="s"/><geom geom="g"/><site site="t"/></spatial></tendon>',
              world='<geom name="g" size=".1"/>'), "tendon 'r' wraps around a geom"),
        (file(option='<option><flag override="enable"/></option>'), "override"),
        (file(world='<geom name="g" size=".1" surfacevel="1 0 0 0 0 0"/>'), r"geom 'g': surfacevel is \[1., 0., 0"),
        (file(h='stiffness="3" springyield=".5"'), "joint 'h': springyield"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_named(text: str, said: str) -> None:
    compiled(text)
    with pytest.raises(ns.ModelError, match=said):
        ns.Robot.from_mjcf(text)


def test_all_faults_are_in_one_message() -> None:
    text = actuated(
        '<muscle joint="x" lengthrange="0 1"/><adhesion body="b" ctrlrange="0 1"/>', option='<option viscosity="1"/>'
    )
    with pytest.raises(ns.ModelError, match="MJCF: 3 faults") as raised:
        ns.Robot.from_mjcf(text)
    assert all(word in str(raised.value) for word in ("viscosity", "muscle", "body"))


# --- contacts ---

PLANE = '<geom name="floor" type="plane" size="1 1 1" {0}/>'
STONE = '<body name="stone" pos="0 0 1"><freejoint/><geom name="g" size=".1" mass="1" {0}/></body>'


def contacts(plane: str = "", stone: str = "", more: str = "") -> list[ns.Contact]:
    text = f"<mujoco><worldbody>{PLANE.format(plane)}{STONE.format(stone)}</worldbody>{more}</mujoco>"
    return ns.Robot.from_mjcf(text).contacts()


def test_the_ground_is_that_of_the_file() -> None:
    (contact,) = contacts('pos="0 0 .3"')
    height = ca.symvar(contact.gap)[-1]
    assert float(ca.evalf(ca.substitute(contact.gap, height, 1.0))) == pytest.approx(0.6, abs=1e-15)


@pytest.mark.parametrize(
    ("plane", "stone", "more", "friction"),
    [
        ('friction=".3"', 'friction=".7"', "", 0.7),
        ('friction=".3" priority="1"', 'friction=".7"', "", 0.3),
        ('friction=".3" condim="1"', 'friction=".7" condim="1"', "", 0.0),
        ("", "", '<contact><pair geom1="floor" geom2="g" friction=".2 .2 0 0 0"/></contact>', 0.2),
        ('contype="1" conaffinity="0"', 'contype="2" conaffinity="2"', "", None),
        ('contype="2" conaffinity="0"', 'contype="0" conaffinity="2"', "", 1.0),
        ('contype="0" conaffinity="2"', 'contype="2" conaffinity="0"', "", 1.0),
        ('contype="2" conaffinity="0"', 'contype="2" conaffinity="0"', "", None),
        ("", "", '<contact><exclude body1="world" body2="stone"/></contact>', None),
    ],
)
def test_friction_and_pairs(plane: str, stone: str, more: str, friction: float | None) -> None:
    found = contacts(plane, stone, more)
    assert [contact.friction[0] for contact in found] == ([] if friction is None else [friction])


def test_the_limit_of_a_ball_joint() -> None:
    robot = ns.Robot.from_mjcf(file(end=BALL.format('range="0 60" limited="true"')))
    (stop,) = robot.end_stops()
    motion = ns.simulate(robot.system(), x0={"ball_qw": 1.0, "ball_wx": 40.0}, duration=0.1)
    assert (motion.events[0].name, stop.name) == ("ball (upper)", "ball (upper)")
    real = motion.state_names.index("ball_qw")
    assert 2 * np.degrees(np.arccos(motion.x[:, real].min())) == pytest.approx(60.0, abs=1e-6)


# --- motions ---


def stepped(text: str, duration: float, step: float, speed: float = 0.5) -> np.ndarray:
    """The last state of MuJoCo with a step, from its reference; constraints are as stiff as the step allows."""
    model = compiled(text)
    model.opt.timestep = step
    model.eq_solref[:], model.eq_solimp[:, :2] = (2 * step, 1.0), 1 - 1e-9
    data = mujoco.MjData(model)
    data.qvel[:], data.ctrl[:] = speed, 0.2
    for _ in range(round(duration / step)):
        mujoco.mj_step(model, data)
    return np.concatenate([data.qpos, data.qvel, data.act])


def simulated(text: str, duration: float, speed: float = 0.5) -> np.ndarray:
    """The last state of the same motion by default."""
    robot = ns.Robot.from_mjcf(text)
    system = robot.system(actuated=None if robot.tree.drives else [])
    start = np.concatenate([*(body.start for body in robot.tree.bodies), np.full(robot.v.numel(), speed)])
    start = np.append(start, np.zeros(robot.activation.numel()))
    units = np.array([drive.unit for drive in robot.drives])
    u = (0.2 * units).tolist() if robot.tree.drives else None
    final = np.array(ns.simulate(system, x0=start, duration=duration, u=u).final_state)
    final[len(final) - robot.activation.numel() :] /= units[: robot.activation.numel()]  # in the unit of the file
    return final


RK4 = '<option integrator="RK4" timestep="2e-4"/>'
SMOOTH = {
    "springs and dampers": file(x='stiffness="60 9" damping="2 1"', h='stiffness="8 3 2"', option=RK4),
    "ball joint": file(end=BALL.format('stiffness="4" damping=".5"'), option=RK4),
    "tendons": file(more=FIXED.format('stiffness="50 1" damping="1" springlength=".01 .02"'), option=RK4),
    "distances": file(more=STRAIGHT.format('stiffness="50" damping="1 .5"'), option=RK4),
    "servos": actuated(
        SERVO.format('joint="h" forcerange="-2 2"') + '<motor joint="x" gear="3"/>', body='gravcomp=".7"', option=RK4
    ),
    "lags": actuated('<general joint="x" dyntype="filter" dynprm=".05" gainprm="30"/>', option=RK4),
}


@pytest.mark.parametrize("group", SMOOTH)
def test_motions_are_those_of_mujoco(group: str) -> None:
    text = SMOOTH[group]
    expected = stepped(text, 0.3, 2e-4)
    np.testing.assert_allclose(simulated(text, 0.3), expected, rtol=0, atol=2e-6)


FREELY = '<option><flag contact="disable" limit="disable"/></option>'
BARS = """<mujoco>{0}<worldbody><site name="w" pos=".6 0 0"/><body name="a"><joint name="a" axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0 0 .3" size=".02"/><body name="b" pos="0 0 .3"><joint name="b" axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 .6 0 0" size=".02"/><body name="c" pos=".6 0 0"><joint name="c" axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02"/><site name="e" pos="0 0 -.3"/></body></body></body></worldbody>
<equality><connect site1="e" site2="w"/></equality></mujoco>"""
CLOSED = {
    "gear": held('<joint joint1="x" joint2="h" polycoef="0 .4 .3"/>', option=FREELY),
    "tendon": held('<tendon tendon1="r"/>', FIXED.format(""), option=FREELY),
    "four bars": BARS.format(FREELY.replace("<option", '<option gravity="3 0 -9"')),
}


@pytest.mark.parametrize("group", CLOSED)
def test_motions_with_constraints_are_the_limit_of_those_of_mujoco(group: str) -> None:
    """Soft constraints and Euler steps: their error is of first order, and is extrapolated."""
    coarse, fine, finer = (stepped(CLOSED[group], 0.3, step, speed=0.0) for step in (2e-4, 1e-4, 5e-5))
    rigid = simulated(CLOSED[group], 0.3, speed=0.0)
    errors = [float(np.abs(found - rigid).max()) for found in (2 * fine - coarse, 2 * finer - fine)]
    assert float(np.abs(rigid).max()) > 0.1
    assert errors[1] < 2e-5, errors


def test_meshes_touch_the_ground_by_the_corners_of_their_hulls():
    """MuJoCo moves a mesh to its centre of mass and turns it to its axes: its corners stay where the file has them."""
    corners = np.array([[x, y, z] for x in (0, 0.1) for y in (0, 0.2) for z in (0, 0.3)])
    vertices = " ".join(map(str, corners.ravel()))
    robot = ns.Robot.from_mjcf(
        f'<mujoco><asset><mesh name="brick" vertex="{vertices}"/></asset><worldbody><body name="b" pos="0 0 1">'
        '<freejoint/><geom type="mesh" mesh="brick" mass="1" pos=".1 .2 .3" euler="20 30 40"/></body></worldbody>'
        "</mujoco>"
    )
    gaps = ca.Function("gaps", [robot.q], [ca.vertcat(*[c.gap for c in robot.contacts(ns.HalfSpace([0, 0, 1]))])])
    turn = np.eye(3)
    for axis, angle in enumerate(np.deg2rad([20, 30, 40])):
        turn = turn @ exp(angle * np.eye(3)[axis])
    expected = 1 + 0.3 + (corners @ turn.T)[:, 2]
    found = np.array(gaps([0, 0, 1, 1, 0, 0, 0])).ravel()
    # MuJoCo stores corners in single precision.
    assert np.sort(found) == pytest.approx(np.sort(expected), abs=1e-6)
