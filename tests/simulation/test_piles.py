"""Bodies on each other: choices of forces pile by pile, dominoes and a wall that come to rest."""

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.simulation.event_driven.redundancy import independent_choices


def bodies(shapes, places, mass, inertia, pairs, friction):
    """Return polygons over the ground y = 0; `pairs` may touch each other."""
    n = len(places)
    q, v = ca.SX.sym("q", 3 * n), ca.SX.sym("v", 3 * n)
    at = ns.Coordinates(q, v)
    placed = [ns.Placed(shapes, q[3 * k : 3 * k + 2], q[3 * k + 2], coordinates=at) for k in range(n)]
    contacts = [
        c for k in range(n) for c in ns.contacts(placed[k], ns.HalfSpace((0, 1)), name=f"floor {k}", friction=friction)
    ]
    for a, b in pairs:
        contacts += ns.contacts(placed[a], placed[b], name=f"{a} on {b}", friction=friction / 2)
    force = ca.DM([0, -9.81 * mass, 0] * n)
    return ns.CLS(q=q, v=v, mass_matrix=ca.diag([mass, mass, inertia] * n), force=force, contacts=contacts)


def block(width, height):
    return ns.ConvexPolygon([(x * width / 2, y * height / 2) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))])


def dominoes(n):
    w, h, m = 0.008, 0.05, 0.01
    places = [(k * 0.028, h / 2, 0.0) for k in range(n)]
    system = bodies(block(w, h), places, m, m * (w * w + h * h) / 12, [(k, k + 1) for k in range(n - 1)], 0.4)
    # The first one turns about its lower right corner with 6 rad/s.
    velocities = np.zeros(3 * n)
    velocities[:3] = [6 * h / 2, 6 * w / 2, -6.0]
    return system, np.concatenate([np.ravel(places), velocities])


def test_piles_that_stand_apart_have_choices_of_their_own():
    free = np.zeros((6, 2))
    free[[0, 1], 0], free[[3, 5], 1] = [0.6, -0.8], [0.8, 0.6]
    contacts = [(0, 0.0, []), (1, 0.0, []), (2, 0.0, []), (3, 0.5, [4]), (5, 0.0, [])]
    groups = independent_choices(free, contacts)
    assert [part.tolist() for part, _ in groups] == [[0, 1], [3, 4, 5]]
    assert [own.shape for _, own in groups] == [(2, 1), (3, 1)]
    # One direction that moves both piles links them.
    together = independent_choices(free @ np.array([[0.6], [0.8]]), contacts)
    assert [part.tolist() for part, _ in together] == [[0, 1, 3, 4, 5]]


def test_three_dominoes_fall_and_come_to_rest():
    system, start = dominoes(3)
    motion = ns.simulate(system, x0=start, duration=0.5)
    assert motion.status is ns.Status.SOLVED, motion.message
    assert np.abs(motion.final_state[9:]).max() < 1e-9
    # The last one lies flat; the first two lean on the next one, all feet on the floor.
    assert abs(motion.final_state[8] + np.pi / 2) < 1e-9
    gaps = system.mechanics.gaps_at(motion.final_state, np.zeros(0))
    assert gaps.min() > -1e-9
    # Work of gravity is what friction and impacts have taken: energy only falls.
    energy = [
        0.5 * x[9:] @ np.diag([0.01, 0.01, 0.01 * 0.002564 / 12] * 3) @ x[9:] + 0.0981 * x[1:9:3].sum()
        for x in motion.x
    ]
    assert max(np.diff(energy)) < 1e-9


@pytest.mark.parametrize("gap", [0.0, 1e-3])
def test_a_wall_of_six_bricks_stays_or_settles(gap):
    places = [
        (x, (0.1 + gap) * row + 0.05 + gap, 0.0)
        for row, xs in enumerate(([-0.2, 0, 0.2], [-0.1, 0.1], [0]))
        for x in xs
    ]
    pairs = [(0, 3), (1, 3), (1, 4), (2, 4), (3, 5), (4, 5)]
    system = bodies(block(0.2, 0.1), places, 1.0, 0.05 / 12, pairs, 0.5)
    motion = ns.simulate(system, x0=np.concatenate([np.ravel(places), np.zeros(18)]), duration=0.2)
    assert motion.status is ns.Status.SOLVED, motion.message
    rows = np.repeat([1, 2, 3], [3, 2, 1])
    assert np.abs(motion.final_state[1:18:3] - (0.1 * rows - 0.05)).max() < 1e-9
    assert np.abs(motion.final_state[18:]).max() < 1e-9


def test_a_plank_on_four_feet_that_slips_does_not_lift_one():
    """The shares of the weight are not unique and decide the friction; the smallest ones pull at a foot."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    height, contacts = 0.6, []
    for x, mu in ((-1.0, 1.01), (-0.47, 0.25), (-0.35, 0.72), (1.0, 1.15)):
        place = q[:2] + ca.vertcat(ca.cos(q[2]) * x + ca.sin(q[2]) * height, ca.sin(q[2]) * x - ca.cos(q[2]) * height)
        tangent = ca.jacobian(place[0], q).T
        contacts.append(ns.Contact(f"foot {x}", gap=place[1], tangent=tangent, friction=mu))
    plank = ns.CLS(q=q, v=v, mass_matrix=ca.diag([1, 1, 0.5]), force=ca.DM([0, -9.81, 0]), contacts=contacts)
    motion = ns.simulate(plank, x0=[0, height, 0, 1, 0, 0], duration=1.0)
    assert motion.success
    assert [event.kind for event in motion.events] == ["stick"] * 4
    # Between the decelerations of the least and the greatest friction.
    stop = motion.events[0].time
    assert 1.0 / (1.15 * 9.81) < stop < 1.0 / (0.25 * 9.81)


def test_ten_dominoes_fall_and_come_to_rest():
    """112 contacts: by time-stepping, which says how accurate it is."""
    system, start = dominoes(10)
    motion = ns.simulate(system, x0=start, duration=0.6, steps=300)
    assert motion.success
    assert motion.message.startswith("112 contacts: 300 steps by ns.TimeStepping")
    assert np.abs(motion.final_state[30:]).max() < 1e-5
    assert abs(motion.final_state[29] + np.pi / 2) < 1e-3
    assert system.mechanics.gaps_at(motion.final_state, np.zeros(0)).min() > -1e-4
