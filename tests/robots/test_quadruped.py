"""A quadruped from its URDF: on its feet, by every simulator, certified, and drawn."""

from __future__ import annotations

from pathlib import Path

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import quadruped
from models.quadruped import FOOT, LEGS, STAND, Gains
from tests.robots.files import HOPPER

pytestmark = pytest.mark.quick
AXES = {"yaw": "0 0 1", "pitch": "0 1 0", "roll": "1 0 0"}


def on_joints() -> ns.Robot:
    """The same with a base of six joints."""
    names = ["x", "y", "z", *AXES]
    links = "".join(f'<link name="base {name}"/>' for name in names[:-1])
    chain = ["world", *(f"base {name}" for name in names[:-1]), "trunk"]
    joints = ""
    for k, name in enumerate(names):
        axis = AXES.get(name) or " ".join(str(int(name == other)) for other in ("x", "y", "z"))
        kind = "continuous" if name in AXES else "prismatic"
        limit = "" if name in AXES else '<limit lower="-9" upper="9" effort="0" velocity="0"/>'
        ends = f'<parent link="{chain[k]}"/><child link="{chain[k + 1]}"/>'
        joints += f'<joint name="{name}" type="{kind}">{ends}<axis xyz="{axis}"/>{limit}</joint>'
    head = '<robot name="quadruped">'
    return ns.Robot.from_urdf(quadruped.file().replace(head, f'{head}<link name="world"/>{links}{joints}'))


def test_quaternions_move_as_euler_angles_do() -> None:
    """It falls by 2 cm onto its feet, turned by 0.1 rad about every axis, for 0.15 s."""
    free, other = quadruped.build(gains=Gains()), on_joints()
    joints = ca.vertcat(ca.SX(6, 1), 150.0 * (ca.DM(STAND) - other.q[6:]) - 6.0 * other.v[6:])
    jointed = other.system(contacts=other.contacts(friction=0.8), actuated=[], end_stops=False, force=joints)
    x0 = quadruped.start(0.08)
    angles = [0.1, 0.1, 0.1]
    y0 = np.concatenate([x0[:3], angles, x0[7:19], np.zeros(18)])
    turned = ca.Function("turned", [other.q], [other.pose("trunk")[0]])(y0[:18])
    x0[3:7] = ns.rotations.quaternion_of(np.array(turned))
    feet = []
    for system, made, start in ((free, quadruped.robot(), x0), (jointed, other, y0)):
        motion = ns.simulate(system, x0=start, duration=0.15)
        assert motion.success, motion.message
        assert len(motion.impacts) >= 2
        places = ca.Function("places", [made.q], [ca.vertcat(*[made.position(f"{leg}_foot") for leg in LEGS])])
        feet.append(np.array(places(motion.final_state[: made.q.numel()])))
    np.testing.assert_allclose(feet[0], feet[1], rtol=0, atol=1e-8)


def test_it_stands() -> None:
    """After half a second the feet carry the weight."""
    system = quadruped.build(gains=Gains())
    motion = ns.simulate(system, x0=quadruped.start(0.02), duration=0.6)
    assert motion.success, motion.message
    carried = sum(motion[f"lambda_normal[{leg}_foot]"][-1] for leg in LEGS)
    assert carried == pytest.approx(9.81 * (9 + 4 * 1.7), rel=0.05)
    assert np.abs(motion.final_state[system.at_v]).max() < 0.3
    places = ns.simulate(system, x0=quadruped.start(0.02), duration=0.1, method=ns.FESDJ(rk_stages=3))
    exact = ns.simulate(system, x0=quadruped.start(0.02), duration=0.1)
    np.testing.assert_allclose(places.final_state[:19], exact.final_state[:19], rtol=0, atol=1e-5)


def test_contacts_and_pictures_come_from_the_file(tmp_path: Path) -> None:
    made = quadruped.robot()
    assert [shape.link for shape in made.collisions] == [f"{leg}_foot" for leg in LEGS]
    assert [contact.name for contact in made.contacts(friction=0.5)] == [f"{leg}_foot" for leg in LEGS]
    gap = ca.Function("gap", [made.q], [made.contacts(links="FL_foot")[0].gap])
    assert float(gap(quadruped.start(0.1)[:19])) == pytest.approx(0.1, abs=1e-12)
    with pytest.raises(ns.ModelError, match=r"unknown link with a <collision> 'trunk'.*Put a shape on it"):
        made.contacts(links=["trunk"])
    mesh = quadruped.file().replace(f'<sphere radius="{FOOT:g}"/>', '<mesh filename="foot.stl"/>')
    with pytest.raises(ns.ModelError, match="link 'FL_foot' collides by a mesh: "):
        ns.Robot.from_urdf(mesh, base="floating").contacts()
    with pytest.raises(ns.ModelError, match="expected 3 positive lengths, given '1 2'"):
        ns.Robot.from_urdf(quadruped.file().replace('size="0.45 0.2 0.12"', 'size="1 2"'))
    for view in ("xz", "xy", "oblique"):
        system = quadruped.build(gains=Gains(), view=view)
        motion = ns.simulate(system, x0=quadruped.start(0.02), duration=0.02)
        path = tmp_path / f"{view}.png"
        ns.snapshots(system, motion, path=path)
        assert path.stat().st_size > 5000


def test_a_robot_in_the_plane_rubs_in_one_direction() -> None:
    ball = '<link name="foot"><collision><geometry><sphere radius="0.02"/></geometry></collision></link>'
    made = ns.Robot.from_urdf(HOPPER.replace('<link name="foot"/>', ball), base="planar")
    (foot,) = made.contacts(friction=0.8)
    assert foot.tangent.shape == (5, 1)
    point = made.position("foot")
    expected = made.jacobian(point[0] + 0.02 * ca.atan2(made.pose("foot")[0][0, 2], made.pose("foot")[0][2, 2]) * -1)
    both = ca.Function("both", [made.q], [foot.tangent, expected.T])
    rolls, along = (np.array(value) for value in both([0.1, 0.6, 0.2, -0.4, 0.8]))
    np.testing.assert_allclose(rolls, along, rtol=0, atol=1e-12)
