"""Robots from MJCF: the same numbers as MuJoCo's own."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.robots.link_shapes import ROUND_ELLIPSOID
from tests.robots.files import mjcf_tree

mujoco = pytest.importorskip("mujoco")
pytestmark = pytest.mark.quick

CREATURE = """<mujoco><option gravity="0.1 0 -9.7"/><default><geom density="900"/><joint armature="0.01"/></default>
<worldbody><geom type="plane" size="1 1 1"/>
<body name="torso" pos="0 0 1"><freejoint/><geom type="box" size=".2 .1 .05"/>
<body name="leg" pos=".2 .1 0" euler="10 20 30">
  <joint name="h1" axis="1 0 0" pos="0 .01 0" ref="20"/><joint name="h2" axis="0 1 .2" pos="0 0 .02" range="-60 90"/>
  <geom type="capsule" fromto="0 0 0 0 .05 -.3" size=".03"/>
  <body name="shin" pos="0 .05 -.3">
    <joint name="k" type="slide" axis="0 .1 1" ref="0.1" damping="2" frictionloss="0.3"/>
    <geom type="ellipsoid" size=".03 .04 .1" pos="0 0 -.1" euler="0 30 0"/>
    <body name="foot" pos="0 0 -.2" euler="0 5 0"><geom type="sphere" size=".03"/></body></body></body>
<body name="tail" pos="-.2 0 0"><joint name="t" axis="0 0 1"/><geom type="cylinder" size=".04 .1"/></body></body>
<body name="ball" pos="2 0 1"><freejoint name="roll"/><geom type="sphere" size=".1"/></body></worldbody>
<actuator><motor joint="h1" gear="5" ctrllimited="true" ctrlrange="-2 2"/></actuator></mujoco>"""


def agrees(text: str, seed: int, tolerance: float = 1e-10) -> None:
    """M, h, poses and Jacobians at random states."""
    robot, rng = ns.Robot.from_mjcf(text), np.random.default_rng(seed)
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    links = [link for link, (body, _, _) in robot.tree.frames.items() if body >= 0]
    link, point = str(rng.choice(links)), rng.normal(size=3)
    rotation, position = robot.pose(link, point)
    outputs = [robot.mass_matrix, robot.bias, position, rotation, robot.jacobian(position)]
    function = ca.Function("robot", [robot.q, robot.v], outputs)
    assert (robot.q.numel(), robot.v.numel()) == (model.nq, model.nv)
    for _ in range(3):
        q, v = rng.normal(size=model.nq), rng.normal(size=model.nv)
        for j in range(model.njnt):
            if model.jnt_type[j] == 0:
                at = model.jnt_qposadr[j] + 3
                q[at : at + 4] /= np.linalg.norm(q[at : at + 4])
        data.qpos[:], data.qvel[:] = q, v
        mujoco.mj_forward(model, data)
        matrix, bias, jacobian = np.zeros((model.nv, model.nv)), np.zeros(model.nv), np.zeros((3, model.nv))
        mujoco.mj_fullM(*((model, data, matrix) if hasattr(data, "M") else (model, matrix, data.qM)))
        mujoco.mj_rne(model, data, 0, bias)
        body = model.body(link).id
        turned = data.xmat[body].reshape(3, 3)
        place = data.xpos[body] + turned @ point
        mujoco.mj_jac(model, data, jacobian, None, place, body)
        for ours, expected in zip(function(q, v), (matrix, bias, place, turned, jacobian), strict=True):
            size = max(1.0, np.abs(expected).max())
            np.testing.assert_allclose(np.array(ours).reshape(expected.shape), expected, rtol=0, atol=tolerance * size)


def test_a_creature_with_everything_that_is_read() -> None:
    agrees(CREATURE, 0)
    robot = ns.Robot.from_mjcf(CREATURE)
    assert robot.joint_names == ("torso_joint0", "h1", "h2", "k", "t", "roll")
    assert robot.limits == {"h2": pytest.approx((-np.pi / 3, np.pi / 2))}
    assert robot.efforts == {"h1": 10.0}
    assert robot.gravity == (0.1, 0.0, -9.7)
    system = robot.system()
    assert system.control_names == ("h1_effort",)
    assert len(system.unit_parts) == 2
    assert [contact.name for contact in system.contacts] == ["h2 (lower)", "h2 (upper)", "k (friction)"]


@pytest.mark.parametrize("seed", range(30))
def test_random_trees_are_those_of_mujoco(seed: int) -> None:
    agrees(mjcf_tree(np.random.default_rng(seed)), seed)


def test_a_body_that_is_fixed_to_the_world_adds_no_inertia() -> None:
    """Its mass is no part of the body before it."""
    post = '<body name="post" pos="1 0 0"><geom type="sphere" size=".2"/></body></worldbody>'
    agrees(CREATURE.replace("</worldbody>", post), 3)


def test_directions_of_a_drawn_ellipsoid_are_spread_evenly() -> None:
    """Two hundred with their negatives: ten degrees between any two."""
    both = np.concatenate([ROUND_ELLIPSOID, -ROUND_ELLIPSOID])
    cosines = both @ both.T - 2.0 * np.eye(200)
    assert np.degrees(np.arccos(cosines.max())) > 10.2
    np.testing.assert_allclose(np.linalg.norm(both, axis=1), 1.0, rtol=1e-14)


def test_a_free_fall_is_that_of_mujoco() -> None:
    """Without contacts, 0.2 s: MuJoCo by steps of 10 us and fourth order."""
    text = CREATURE.replace('frictionloss="0.3"', "").replace('range="-60 90"', "")
    text = text.replace('<option gravity="0.1 0 -9.7"/>', '<option integrator="RK4" timestep="1e-4"/>')
    text = text.replace('size="1 1 1"/>', 'size="1 1 1" contype="0" conaffinity="0"/>')
    robot, rng = ns.Robot.from_mjcf(text), np.random.default_rng(1)
    model = mujoco.MjModel.from_xml_string(text)
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    data = mujoco.MjData(model)
    data.qvel[:] = rng.normal(size=model.nv)
    x0 = np.concatenate([data.qpos, data.qvel])
    for _ in range(2000):
        mujoco.mj_step(model, data)
    system = robot.system(actuated=[])
    motion = ns.simulate(system, x0=x0, duration=0.2)
    np.testing.assert_allclose(motion.final_state, np.concatenate([data.qpos, data.qvel]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('gravity="0.1 0 -9.7"', 'density="1.2"', "forces of a fluid"),
        ('type="cylinder"', 'type="prism"', "MuJoCo refuses it"),
        ("<mujoco>", "<mujoko>", "MuJoCo refuses it"),
    ],
)
def test_what_is_not_had_is_named(old: str, new: str, said: str) -> None:
    assert old in CREATURE
    with pytest.raises(ns.ModelError, match=said):
        ns.Robot.from_mjcf(CREATURE.replace(old, new))


def test_a_path_that_leads_nowhere() -> None:
    with pytest.raises(ns.ModelError, match=r"there is no file 'creature\.xml'"):
        ns.Robot.from_mjcf("creature.xml")
