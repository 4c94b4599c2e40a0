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


@pytest.mark.parametrize("speed", [1.1, 1.2, 1.6])
def test_a_box_slides_over_the_border_of_a_table_in_the_plane(speed):
    """Its leading corner passes the corner of the table, at the same height: no impact."""
    width, height, mu, start = 0.2, 0.1, 0.3, -0.3
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    x, y = width / 2, height / 2
    shape = ns.ConvexPolygon([(-x, -y), (x, -y), (x, y), (-x, y)])
    box = ns.Placed(shape, q[:2], q[2], coordinates=ns.Coordinates(q, v))
    table = ns.ConvexPolygon([(-1, -1), (0, -1), (0, 0), (-1, 0)])
    mass = ca.diag([1, 1, (width**2 + height**2) / 12])
    contacts = ns.contacts(box, table, friction=mu)
    system = ns.CLS(q=q, v=v, mass_matrix=mass, force=[0, -9.81, 0], contacts=contacts)
    motion = ns.simulate(system, x0=[start, y, 0, speed, 0, 0], duration=0.6)
    assert motion.success, motion.message
    assert not motion.impacts
    way = speed**2 / (2 * mu * 9.81)
    if way < -start - mu * y:  # its centre does not come as far as to tip it
        assert motion.final_state[:3] == pytest.approx([start + way, y, 0], abs=1e-9)
        assert motion.events[-1].time == pytest.approx(speed / (mu * 9.81), abs=1e-9)
    else:  # it tips about the corner of the table when friction and weight pass through it
        tips = next(event.time for event in motion.events if event.name == "contact 1")
        assert start + speed * tips - mu * 9.81 * tips**2 / 2 == pytest.approx(-mu * y, abs=1e-8)
        assert motion.final_state[1] < -0.3
