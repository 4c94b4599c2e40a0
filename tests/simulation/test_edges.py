"""Bodies that slide over the edges of others, where normal forces jump."""

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns


@pytest.mark.quick
@pytest.mark.parametrize("speed", [1.0, 1.3, 3.0, 5.0])
def test_a_fast_ball_leaves_a_box_where_its_face_ends(speed):
    """On the edge its path would have the radius r = .1 m; with v^2 / r > g it flies."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    ball = ns.Placed(ns.Sphere(0.1), q, coordinates=ns.Coordinates(q, v))
    contacts = ns.contacts(ball, ns.Box([1, 1, 1]), name="box")
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(3), force=[0, 0, -9.81], contacts=contacts)
    motion = ns.simulate(system, x0=[0.4, 0, 0.6, speed, 0, 0], duration=0.2)
    begin = 0.1 / speed
    assert [event.kind for event in motion.events] == ["release"]
    assert motion.events[0].time == pytest.approx(begin, abs=1e-9)
    fallen = 0.6 - 0.5 * 9.81 * (0.2 - begin) ** 2
    assert np.abs(motion.final_state[:3] - [0.4 + 0.2 * speed, 0, fallen]).max() < 1e-9
