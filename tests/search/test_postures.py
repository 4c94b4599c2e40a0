"""Balanced postures beside statics by hand: levers, friction angles, drives at their limits."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import biped

pytestmark = pytest.mark.quick
G, MASS = 9.81, 3.0


def plank(ahead: float = 0.1, friction: float = 0.5, slope: float = 0.0) -> ns.CLS:
    """A plank of 1 m on two feet, its centre of mass `ahead` of the middle, on a plane that may be inclined."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    out, along = ca.DM([-np.sin(slope), np.cos(slope)]), ca.DM([np.cos(slope), np.sin(slope)])
    contacts = []
    for name, place in (("rear", -0.5), ("front", 0.5)):
        foot = q[:2] + (place - ahead) * ca.vertcat(ca.cos(q[2]), ca.sin(q[2]))
        gap, tangent = ca.dot(out, foot), ca.jacobian(ca.dot(along, foot), q).T
        contacts.append(ns.Contact(name, gap=gap, tangent=tangent, friction=friction))
    weight = [0, -MASS * G, 0]
    return ns.CLS(q=q, v=v, mass_matrix=MASS * ca.diag([1, 1, 0.1]), force=weight, contacts=contacts)


def test_feet_carry_by_the_rule_of_levers() -> None:
    stance = ns.stand(plank(), near={"q_2": 0.2, "q_1": 0.3})
    assert stance.forces["rear"][0] == pytest.approx(0.4 * MASS * G, rel=1e-6)
    assert stance.forces["front"][0] == pytest.approx(0.6 * MASS * G, rel=1e-6)
    assert stance.x0[1:3] == pytest.approx([0, 0], abs=1e-9)
    motion = ns.simulate(plank(), x0=stance.x0, duration=0.5)
    assert motion.x[-1] == pytest.approx(stance.x0, abs=1e-9)


def test_a_slope_is_stood_on_up_to_the_angle_of_friction() -> None:
    stance = ns.stand(plank(slope=0.3), near={"q_2": 0.3})
    total = np.sum(list(stance.forces.values()), axis=0)
    assert total == pytest.approx([MASS * G * np.cos(0.3), MASS * G * np.sin(0.3)], rel=1e-6)
    with pytest.raises(ns.ModelError, match="no balanced posture nearby with rear, front closed"):
        ns.stand(plank(slope=0.6), near={"q_2": 0.6})  # arctan(.5) = .464


def test_one_foot_does_not_carry_what_is_beside_it() -> None:
    with pytest.raises(ns.ModelError, match="misses by"):
        ns.stand(plank(), ["front"], near={"q_2": 0.1})
    with pytest.raises(ns.ModelError, match="'front'"):
        ns.stand(plank(), ["frnt"])
    with pytest.raises(ns.ModelError, match="stand: near: expected 6 numbers, given 2"):
        ns.stand(plank(), near=[0, 1])


def test_a_biped_stands_within_the_limits_of_its_drives() -> None:
    """Forces carry 21 kg, and the simulation of the torques stays where it is for a while: the stance is unstable."""
    system, bounds = biped.build(), biped.robot().bounds()
    stance = ns.stand(system, near=biped.start(), bounds=bounds)
    weight = sum(force[0] for force in stance.forces.values())
    assert weight == pytest.approx(21 * G, rel=1e-6)
    assert np.abs(stance.u).max() <= 80
    motion = ns.simulate(system, x0=stance.x0, u=stance.u, duration=0.1)
    assert motion.x[-1] == pytest.approx(stance.x0, abs=1e-5)
    assert len(motion.events) == 0


def block(slope: float = 0.0, unit: float = 1.0, **law: object) -> ns.CLS:
    """A block on a plane, and a drive on an axis that has nothing to do with it; lengths in `unit` metres."""
    q, v, u = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("u")
    out, along = ca.DM([-np.sin(slope), np.cos(slope), 0]), ca.DM([np.cos(slope), np.sin(slope), 0])
    law = {"friction": 0.5, **law}
    ground = ns.Contact("ground", gap=ca.dot(out, q), tangent=along, **law)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(3), force=ca.vertcat(0, -G / unit, u), contacts=[ground])


@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_a_strong_drive_elsewhere_makes_no_tolerance(unit: float) -> None:
    bounds = {"u_0": (-100 / unit**2, 100 / unit**2)}
    assert ns.stand(block(0.4, unit), bounds=bounds).forces["ground"] == pytest.approx(
        [G * np.cos(0.4) / unit, G * np.sin(0.4) / unit], rel=1e-6
    )
    with pytest.raises(ns.ModelError, match="no balanced posture"):
        ns.stand(block(0.5, unit), bounds=bounds)  # arctan(.5) = .464


def test_laws_of_friction_are_those_of_rest() -> None:
    assert ns.stand(block(0.6, static_friction=0.8)).x0 == pytest.approx(np.zeros(6), abs=1e-9)  # arctan(.8) = .675
    with pytest.raises(ns.ModelError, match=r"slip\[ground\]"):
        ns.stand(block(surface_velocity=0.3))
    # Ice beyond x = 1: the nearest place to stand on the slope is at its edge.
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    mu = lambda s: ca.if_else(q[0] > 1, 0.0, 0.8)  # noqa: E731
    ice = ns.Contact("ground", gap=q[1], tangent=[1, 0], friction=mu)
    pushed = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[3, -G], contacts=[ice])
    assert ns.stand(pushed, near={"q_0": 0.5}).x0[0] == pytest.approx(0.5, abs=1e-4)
    with pytest.raises(ns.ModelError, match="no balanced posture"):
        ns.stand(pushed, near={"q_0": 2.0}, bounds={"q_0": (1.5, 3.0)})


def test_what_is_balanced_stays_and_states_of_drives_are_found() -> None:
    q, v, u, y = (ca.SX.sym(name) for name in "qvuy")
    spring = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 1e4 * (q - 0.05), contacts=[])
    assert ns.stand(spring, near=[0.05, 0]).x0[0] == pytest.approx(0.05, rel=1e-6)
    lag = ns.CLS(q=q, v=v, u=u, y=y, y_rate=(u - y) / 0.1, mass_matrix=1, force=y - G, contacts=[])
    held = ns.stand(lag, near={"q_0": 1.0})
    assert (held.u[0], held.x0[2]) == pytest.approx((G, G), rel=1e-6)
    assert ns.simulate(lag, x0=held.x0, u=held.u, duration=1.0).x[-1] == pytest.approx(held.x0, abs=1e-8)


def test_wrong_states_are_errors_and_ends_of_joints_do_not_carry() -> None:
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    central = ns.CLS(
        q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, -G / ca.norm_2(q)], contacts=[ns.Contact("g", gap=q[1])]
    )
    with pytest.raises(ns.ModelError, match="not finite"):
        ns.stand(central)
    with pytest.raises(ns.ModelError, match="stand: near"):
        ns.stand(central, near="upright")
    ends = [ns.Contact(f"end {k}", gap=1 + sign * q[0]) for k, sign in enumerate((1, -1))]
    floor = ns.Contact("floor", gap=q[1], tangent=[1, 0], friction=0.3)
    on_a_rail = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, -G], contacts=[*ends, floor])
    assert list(ns.stand(on_a_rail).forces) == ["floor"]


class TestReach:
    """Inverse kinematics by the program of `stand`, without forces."""

    def arm(self) -> tuple[ns.CLS, ca.SX]:
        q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
        arm = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=u - 9.81 * ca.cos(q), contacts=[])
        return arm, ca.vertcat(ca.cos(q[0]) + ca.cos(q[0] + q[1]), ca.sin(q[0]) + ca.sin(q[0] + q[1]))

    @pytest.mark.parametrize("elbow", [-1.0, 1.0])
    def test_the_nearer_of_two_elbows(self, elbow: float) -> None:
        """Both links are 1 m long: the angle between them is acos(d^2 / 2 - 1)."""
        arm, hand = self.arm()
        x = ns.reach(arm, [hand == [0.9, 0.8]], near={"q_1": elbow})
        assert x[1] == pytest.approx(elbow * np.arccos(0.5 * (0.9**2 + 0.8**2) - 1), abs=1e-9)
        assert x[2:].tolist() == [0, 0]

    def test_out_of_reach(self) -> None:
        arm, hand = self.arm()
        with pytest.raises(ns.ModelError, match="reach: no posture nearby"):
            ns.reach(arm, [hand == [2.0, 1.0]], near={"q_1": 1.0})

    def test_a_balanced_posture_with_a_condition(self) -> None:
        """`stand(where=)` has the same posture, and the torques that hold it."""
        arm, hand = self.arm()
        stance = ns.stand(arm, near={"q_1": 1.0}, where=[hand == [0.9, 0.8]])
        assert stance.x0 == pytest.approx(ns.reach(arm, [hand == [0.9, 0.8]], near={"q_1": 1.0}), abs=1e-7)
        assert stance.u == pytest.approx(9.81 * np.cos(stance.x0[:2]), abs=1e-6)

    @pytest.mark.parametrize("rows", ["component", "attitude", "inequalities"])
    def test_quaternions_keep_their_length(self, rows: str) -> None:
        """Conditions on their components are conditions on attitudes: a length of two is none."""
        text = """<robot name="brick"><link name="body"><inertial><mass value="2"/>
          <inertia ixx="0.02" iyy="0.03" izz="0.04"/></inertial></link></robot>"""
        robot = ns.Robot.from_urdf(text, base="floating")
        system, q = robot.system([]), robot.q
        if rows == "attitude":
            with pytest.raises(ns.ModelError, match="no posture nearby"):
                ns.reach(system, [q[3:7] == ca.DM([2, 0, 0, 0])], near={"base_qw": 1.0})
            return
        where = [q[3] == 0.8] if rows == "component" else [q[3] >= 0.5, q[4] >= 0.5]
        x = ns.reach(system, where, near={"base_qw": 1.0, "base_qx": 0.1})
        assert np.linalg.norm(x[3:7]) == pytest.approx(1.0, abs=1e-12)
        if rows == "component":
            assert x[3] == pytest.approx(0.8, abs=1e-8)
        else:
            assert min(x[3], x[4]) >= 0.5 - 1e-8

    def test_conditions_on_velocities_and_constants_are_refused(self) -> None:
        arm, hand = self.arm()
        for where in ([arm.v[0] == 1], [hand[0] + arm.v[0] == 1]):
            with pytest.raises(ns.ModelError, match="reach: where: where_0 depends on velocities"):
                ns.reach(arm, where)
        with pytest.raises(ns.ModelError, match="where_0"):
            ns.reach(arm, [ns.Constraint(ca.SX(1), equals=2)])
        assert ns.reach(arm, hand == [0.9, 0.8], near={"q_1": 1.0})[1] > 0  # one condition needs no list

    def test_the_time_stays(self) -> None:
        q, v, u, t = (ca.SX.sym(name) for name in "qvut")
        timed = ns.CLS(q=q, v=v, u=u, t=t, mass_matrix=1, force=u - 3 * t, contacts=[])
        stance = ns.stand(timed, near=[1, 0, 2])
        assert (stance.x0.tolist(), stance.u.round(6).tolist()) == ([1, 0, 2], [6])

    def test_a_condition_is_checked_where_the_posture_is(self) -> None:
        q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
        ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[])
        assert ns.reach(ball, [1 / q == 1], near=[0.5, 0])[0] == pytest.approx(1.0, rel=1e-6)
        with pytest.raises(ns.ModelError, match="where_0 misses"):
            ns.reach(ball, [1 / q == 1], near=[1e-9, 0])
