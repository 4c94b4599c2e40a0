"""Periodic motions: rows of the constraints, and motions with closed forms."""

from __future__ import annotations

from typing import Any, ClassVar

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import ModelError

BRICK = """<robot name="brick"><link name="body"><inertial><mass value="2"/>
  <inertia ixx="0.02" iyy="0.03" izz="0.04"/></inertial></link></robot>"""


def cart(**more: Any) -> ns.CLS:
    """Two coordinates, two controls."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
    names = {"q": ["left", "right"], "v": ["left_rate", "right_rate"]}
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=u, contacts=[], names=names, **more)


def values(system: ns.CLS, constraint: ns.Constraint, first: Any, last: Any) -> np.ndarray:
    """Rows of a terminal constraint for an initial and a final state."""
    at = ca.Function("rows", [system.x_initial, system.x], [constraint.expression])
    return np.array(at(first, last)).ravel()


@pytest.mark.quick
class TestRows:
    def test_the_last_state_is_the_first_one(self) -> None:
        system = cart()
        (one,) = ns.periodic(system)
        assert values(system, one, [1, 2, 3, 4], [1.5, 2, 2, 4]).tolist() == [0.5, 0, -1, 0]
        assert (one.lower.tolist(), one.upper.tolist()) == ([0] * 4, [0] * 4)

    def test_shifts_are_fixed_bounded_or_free(self) -> None:
        system = cart()
        (one,) = ns.periodic(system, shift={"left": 0.3, "right": (0.1, None)})
        assert one.lower.tolist() == [0.3, 0.1, 0, 0]
        assert one.upper.tolist() == [0.3, np.inf, 0, 0]
        (free,) = ns.periodic(system, shift={"left": None})
        assert values(system, free, [1, 2, 3, 4], [9, 2, 3, 4]).tolist() == [0, 0, 0]

    def test_a_mirror_exchanges_coordinates_and_their_velocities(self) -> None:
        system = cart()
        (one,) = ns.periodic(system, mirror={"left": "right"})
        assert values(system, one, [1, 2, 3, 4], [2, 1, 4, 3]).tolist() == [0] * 4
        (turned,) = ns.periodic(system, mirror={"left": "-right"})
        assert values(system, turned, [1, 2, 3, 4], [-2, -1, -4, -3]).tolist() == [0] * 4
        (given,) = ns.periodic(system, mirror={"left": "right", "left_rate": "-right_rate"})
        assert values(system, given, [1, 2, 3, 4], [2, 1, -4, -3]).tolist() == [0] * 4

    def test_an_attitude_has_three_rows_and_either_sign(self) -> None:
        robot = ns.Robot.from_urdf(BRICK, base="floating")
        system = robot.system([])
        (one,) = ns.periodic(system, shift={"base_x": 1.0})
        assert one.expression.numel() == len(system.state_names) - 1
        first = np.zeros(13)
        first[3] = 1.0
        last = -first
        last[0] = 1.0
        assert np.abs(values(system, one, first, last) - one.lower).max() < 1e-15

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"shift": {"lift": 1.0}}, "lift"),
            ({"mirror": {"left": "rigth"}}, "rigth"),
            ({"mirror": {"left": "right", "right": "left"}}, "given twice"),
        ],
    )
    def test_names_are_checked(self, wrong: dict[str, Any], said: str) -> None:
        with pytest.raises(ModelError, match=said):
            ns.periodic(cart(), **wrong)

    def test_a_quaternion_does_not_end_elsewhere(self) -> None:
        system = ns.Robot.from_urdf(BRICK, base="floating").system([])
        with pytest.raises(ModelError, match="base_qx is part of a quaternion"):
            ns.periodic(system, shift={"base_qx": 1.0})


def test_a_ball_that_is_hit_back_has_the_period_of_its_flight() -> None:
    """Elastic ground at rest: a ball comes back from h = g T^2 / 8 without control; T = 1 s, g = 10 m/s^2."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q, restitution=1.0)
    ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 10, contacts=[ground])
    ocp = ns.OCP(
        ball, horizon=1.0, stage_cost=u**2, bounds={"u_0": (-20, 20)}, initial_constraints=[v == 0, q >= 0.2],
        terminal_constraints=ns.periodic(ball),
    )  # fmt: skip
    solution = ns.solve(ocp, ns.MultiPhase(sequence=ns.Sequence([{}, "impact ground", {}])), guess={"q_0": 1.0})
    assert solution.certificate is not None
    assert solution.certificate.verdict.value == "confirmed"
    assert solution.objective < 1e-10
    assert abs(solution.x[0, 0] - 1.25) < 1e-6


@pytest.mark.quick
class TestFloatingRobots:
    """A trunk in space with two legs: the rates of joints follow them, those beside a quaternion are asked for."""

    def robot(self) -> ns.CLS:
        legs = "".join(
            f'<link name="{side}"><inertial><mass value="1"/><inertia ixx=".1" iyy=".1" izz=".1"/></inertial></link>'
            f'<joint name="{side}_hip" type="revolute"><parent link="body"/><child link="{side}"/><axis xyz="0 1 0"/>'
            '<limit lower="-1" upper="1" effort="9" velocity="9"/></joint>'
            for side in ("left", "right")
        )
        robot = ns.Robot.from_urdf(BRICK.replace("</robot>", f"{legs}</robot>"), base="floating")
        return robot.system([], end_stops=False)

    def test_rates_of_joints_follow_them(self) -> None:
        system = self.robot()
        (one,) = ns.periodic(system, mirror={"left_hip": "right_hip"})
        first = {"base_qw": 1.0, "left_hip": 0.1, "right_hip": 0.2, "left_hip_rate": 3.0, "right_hip_rate": 4.0}
        last = {"base_qw": 1.0, "left_hip": 0.2, "right_hip": 0.1, "left_hip_rate": 4.0, "right_hip_rate": 3.0}
        ends = [[each.get(name, 0.0) for name in system.state_names] for each in (first, last)]
        assert np.abs(values(system, one, *ends)).max() < 1e-15
        assert np.abs(values(system, one, ends[0], ends[0])).max() == 1.0

    def test_a_mirrored_attitude_asks_for_its_rates(self) -> None:
        system = self.robot()
        attitude = {"base_qx": "-base_qx", "base_qz": "-base_qz"}
        with pytest.raises(ModelError, match="part of an attitude; give the mirror of"):
            ns.periodic(system, mirror=attitude)
        rates = {name: f"-{name}" for name in system.names["v"][3:6:2]}
        (one,) = ns.periodic(system, mirror={**attitude, **rates})
        assert one.expression.numel() == len(system.state_names) - 1


@pytest.mark.quick
def test_the_time_and_other_kinds_have_no_mirror() -> None:
    q, v, u, t = (ca.SX.sym(name) for name in "qvut")
    timed = ns.CLS(q=q, v=v, u=u, t=t, mass_matrix=1, force=u + ca.sin(t), contacts=[])
    (one,) = ns.periodic(timed)
    assert one.expression.numel() == 2
    name = timed.state_names[-1]
    wrong: list[dict[str, Any]] = [
        {"shift": {name: 1.0}},
        {"mirror": {name: f"-{name}"}},
        {"mirror": {"q_0": "v_0"}},
        {"mirror": {"q_0": None}},
        {"shift": {"q_0": (1, 2, 3)}},
        {"shift": {"q_0": "far"}},
        {"shift": {"q_0": None, "v_0": None}},
    ]
    for given in wrong:
        with pytest.raises(ModelError, match="periodic"):
            ns.periodic(timed, **given)


def legs(right: str) -> ns.Robot:
    """Two legs on a trunk that stands still; each knee follows its hip: 0.1 rad - 2 hip on the left."""
    parts = "".join(
        f'''<link name="{side}_thigh"><inertial><origin xyz="0 0 -.1"/><mass value="1"/>
        <inertia ixx=".1" iyy=".1" izz=".1"/></inertial></link>
        <link name="{side}_shank"><inertial><origin xyz="0 0 -.1"/><mass value=".5"/>
        <inertia ixx=".05" iyy=".05" izz=".05"/></inertial></link>
        <joint name="{side}_hip" type="continuous"><parent link="trunk"/><child link="{side}_thigh"/>
        <axis xyz="0 1 0"/></joint>
        <joint name="{side}_knee" type="continuous"><parent link="{side}_thigh"/><child link="{side}_shank"/>
        <origin xyz="0 0 -.2"/><axis xyz="0 1 0"/><mimic joint="{side}_hip" {law}/></joint>'''
        for side, law in (("left", 'multiplier="-2" offset="0.1"'), ("right", right))
    )
    return ns.Robot.from_urdf(f'<robot name="legs"><link name="trunk"/>{parts}</robot>')


class TestJointsThatFollowOthers:
    """A knee that follows its hip has to be mirrored with it, or nothing is periodic."""

    ALIKE = 'multiplier="-2" offset="0.1"'
    BOTH: ClassVar = {"left_hip": "right_hip", "left_knee": "right_knee"}

    @pytest.mark.quick
    def test_a_mirror_of_the_hips_alone_is_refused(self) -> None:
        system = legs(self.ALIKE).system()
        with pytest.raises(ModelError, match=r"'left_knee'.*mirror or shift all of left_hip, left_knee"):
            ns.periodic(system, mirror={"left_hip": "right_hip"})
        (one,) = ns.periodic(system, mirror=self.BOTH)
        first, last = [1, -1.9, 2, -3.9, 3, -6, 4, -8], [2, -3.9, 1, -1.9, 4, -8, 3, -6]
        assert np.abs(values(system, one, first, last)).max() < 1e-15

    @pytest.mark.quick
    @pytest.mark.parametrize(
        ("right", "mirror"),
        [
            ('multiplier="-2" offset="0.2"', BOTH),  # another offset
            ('multiplier="2" offset="0.1"', BOTH),  # another sign
            (ALIKE, {"left_hip": "-right_hip", "left_knee": "-right_knee"}),  # the offset does not change its sign
            (ALIKE, {**BOTH, "left_hip_rate": "-right_hip_rate", "left_knee_rate": "right_knee_rate"}),
        ],
    )
    def test_mirrors_that_the_laws_of_the_knees_do_not_have(self, right: str, mirror: dict[str, str]) -> None:
        with pytest.raises(ModelError, match="violate the constraint"):
            ns.periodic(legs(right).system(), mirror=mirror)

    @pytest.mark.quick
    def test_signs_of_a_mirrored_law(self) -> None:
        opposite = 'multiplier="-2" offset="-0.1"'
        mirror = {"left_hip": "-right_hip", "left_knee": "-right_knee"}
        assert ns.periodic(legs(opposite).system(), mirror=mirror)

    @pytest.mark.quick
    def test_shifts_follow_as_well(self) -> None:
        system = legs(self.ALIKE).system()
        with pytest.raises(ModelError, match="violate the constraint 'left_knee'"):
            ns.periodic(system, shift={"left_hip": 0.5})
        assert ns.periodic(system, shift={"left_hip": 0.5, "left_knee": -1.0})
        assert ns.periodic(system, shift={"left_hip": None, "left_knee": (-2.0, 2.0)})  # the program chooses

    def test_a_swing_ends_as_its_mirror_image(self) -> None:
        """Knees obey their law at both ends, and hips and knees change places."""
        robot = legs(self.ALIKE)
        system = robot.system()
        ocp = ns.OCP(
            system, horizon=0.5, stage_cost=ca.sumsqr(system.u),
            initial_constraints=[robot.q[0] == 0.5, robot.q[2] == -0.3],
            terminal_constraints=ns.periodic(system, mirror=self.BOTH),
        )  # fmt: skip
        solution = ns.solve(ocp, ns.MultiPhase(sequence=ns.Sequence([{}])))
        assert solution.certificate is not None
        assert solution.certificate.verdict.value == "confirmed"
        assert np.abs(solution.x[0, :4] - [0.5, -0.9, -0.3, 0.7]).max() < 1e-7
        assert np.abs(solution.x[-1] - solution.x[0][[2, 3, 0, 1, 6, 7, 4, 5]]).max() < 1e-7
