"""Goals and costs in words: the expressions beside the formulas that they stand for."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import biped
from nosnoc_py.errors import ModelError
from nosnoc_py.rotations import exp

pytestmark = pytest.mark.quick
BRICK = """<robot name="brick"><link name="body"><inertial><origin xyz="0.1 0 0"/><mass value="2"/>
  <inertia ixx="0.02" iyy="0.03" izz="0.04"/></inertial></link></robot>"""


def brick() -> ns.Robot:
    return ns.Robot.from_urdf(BRICK, base="floating")


def at(robot: ns.Robot, expression: ca.SX, q: Any) -> np.ndarray:
    return np.array(ca.Function("at", [robot.q], [expression])(q)).ravel()


def pose(vector: Any, place: Any = (0, 0, 0)) -> np.ndarray:
    """Coordinates of the brick turned by a rotation vector."""
    angle = float(np.linalg.norm(vector))
    axis = np.asarray(vector) / angle if angle else np.zeros(3)
    return np.concatenate([place, [np.cos(angle / 2)], np.sin(angle / 2) * axis])


def test_a_point_at_a_place() -> None:
    robot = brick()
    goal = ns.goals.placed(robot, "body", [1, None, 3], point=[0, 0, 0.5], within=0.25)
    assert (goal.lower.tolist(), goal.upper.tolist()) == ([0.75, 2.75], [1.25, 3.25])
    turned = at(robot, goal.expression, pose([0, np.pi / 2, 0], (1, 2, 3)))  # z of the body points along x
    assert turned == pytest.approx([1.5, 3.0], abs=1e-15)


def test_an_attitude_has_three_rows_or_one() -> None:
    robot, vector = brick(), np.array([0.1, -0.2, 0.3])
    goal = ns.goals.turned(robot, "body")
    assert at(robot, goal.expression, pose(vector)) == pytest.approx(vector, abs=1e-14)
    assert ns.goals.turned(robot, "body", exp(vector), within=0.1).upper.tolist() == [0.1] * 3
    assert ns.goals.turned(biped.robot(), "trunk").expression.numel() == 1
    given = ca.DM(pose(vector)[3:])
    assert at(robot, ns.goals.turned(robot, "body", given).expression, pose(vector)) == pytest.approx(
        [0] * 3, abs=1e-14
    )


@pytest.mark.parametrize("heading", [0.0, 2.0])
def test_level_whatever_the_heading(heading: float) -> None:
    robot = brick()
    goal = ns.goals.level(robot, "body", within=0.2)
    assert at(robot, goal.expression, pose([0, 0, heading])) == pytest.approx([0, 0, 1], abs=1e-15)
    assert at(robot, goal.expression, pose([0.2, 0, 0]))[1] == pytest.approx(-np.sin(0.2))
    assert goal.upper.tolist() == [np.sin(0.2)] * 2 + [np.inf]
    # On its head the first two rows vanish as well.
    assert at(robot, goal.expression, pose([np.pi, 0, 0]))[2] < goal.lower[2]


def test_what_nothing_moves_is_an_error() -> None:
    text = BRICK.replace("</robot>", '<link name="world"/><joint name="rail" type="prismatic"><parent link="world"/>')
    text += (
        '<child link="body"/><axis xyz="1 0 0"/><limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>'
    )
    rail = ns.Robot.from_urdf(text)
    assert ns.goals.placed(rail, "body", [0.5, 0, 0]).expression.numel() == 1  # the other rows hold
    with pytest.raises(ModelError, match="row 1 is 0 whatever the robot does, wanted 2 to 2"):
        ns.goals.placed(rail, "body", [0.5, 2, 0])
    with pytest.raises(ModelError, match="no joint moves this"):
        ns.goals.level(rail, "body")
    with pytest.raises(ModelError, match="row 0 is 0 whatever the robot does, wanted 5 to inf"):
        ns.goals.clearance(rail, "body", 5.0)
    for wrong, said in (([2.0, 0, 0, 0], "a unit quaternion"), (2 * np.eye(3), "not orthonormal"), ([1.0], "matrix")):
        with pytest.raises(ModelError, match=said):
            ns.goals.turned(brick(), "body", wrong)
    for far in (np.inf, np.nan, "much"):
        with pytest.raises(ModelError, match="within"):
            ns.goals.turned(brick(), "body", within=far)
    with pytest.raises(ModelError, match="three components"):
        ns.goals.placed(rail, "body", 1.0)
    with pytest.raises(ModelError, match="height"):
        ns.goals.clearance(brick(), "body", None)
    with pytest.raises(ModelError, match="every component is free"):
        ns.goals.placed(rail, "body", [None, None, None])
    with pytest.raises(ModelError, match="three components"):
        ns.goals.placed(rail, "body", [0.5])
    with pytest.raises(ModelError, match="within"):
        ns.goals.placed(rail, "body", [0.5, 0, 0], within=-1)
    with pytest.raises(ModelError, match="pi / 4"):
        ns.goals.level(rail, "body", within=2.0)


def test_the_centre_of_mass_is_that_of_the_bodies() -> None:
    robot = brick()
    q = pose([0, 0, np.pi / 2], (1, 2, 3))
    assert at(robot, robot.center_of_mass, q) == pytest.approx([1, 2.1, 3], abs=1e-15)
    # Its acceleration times the mass is the weight, and the generalised force of gravity says the same.
    legs = biped.robot()
    q = biped.start()[:7]
    slope = at(legs, legs.jacobian(legs.center_of_mass)[2, :].T, q) * 21.0 * 9.81
    gravity = np.array(ca.Function("g", [legs.q, legs.v], [legs.bias])(q, np.zeros(7))).ravel()
    assert slope == pytest.approx(gravity, abs=1e-12)


def test_costs() -> None:
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(3 * u[0], u[1] - q[1]), contacts=[])
    values = ca.Function("values", [q, v, u], [ns.goals.effort(system, {"u_0": (-1, 3)}), ns.goals.power(system)])
    effort, power = values([5, 6], [7, 8], [2, 0.5])
    assert float(effort) == 1.25  # (2 / 2)^2 + .5^2
    assert np.array(power).ravel().tolist() == [42, 4]
    with pytest.raises(ModelError, match="lefft"):
        ns.goals.effort(system, {"lefft": (-1, 1)})
    bent = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=u**2, contacts=[])
    with pytest.raises(ModelError, match="linearly"):
        ns.goals.power(bent)


def test_rates_of_drives_as_controls() -> None:
    """From rest over 1 m to rest in 1 s with the least integral of the squared jerk: 720."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    slow = ns.goals.with_rates(ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[]))
    rest = [slow.q[0] == 1, slow.v[0] == 0, slow.y[0] == 0]
    ocp = ns.OCP(slow, horizon=1.0, x0=[0, 0, 0], stage_cost=ca.sumsqr(slow.u), terminal_constraints=rest)
    plan = ns.solve(ocp, ns.MultiPhase(sequence=ns.Sequence([{}]), control_degree=2, intervals=2))
    assert plan.objective == pytest.approx(720.0, rel=1e-9)
    with pytest.raises(ModelError, match="no controls"):
        ns.goals.with_rates(ns.CLS(q=q, v=v, mass_matrix=1, force=0, contacts=[]))
