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
    with pytest.raises(ns.ModelError, match="expected 6 finite numbers"):
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
