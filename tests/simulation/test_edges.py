"""Bodies that slide over the edges of others, where normal forces jump."""

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from nosnoc_py.rotations import rotation_of
from problems.robots import ball_on_a_plate


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


def _on_a_table(width, height, mu):
    """Return a box in the plane, of mass 1 kg, on a table that ends at x = 0."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    x, y = width / 2, height / 2
    shape = ns.ConvexPolygon([(-x, -y), (x, -y), (x, y), (-x, y)])
    box = ns.Placed(shape, q[:2], q[2], coordinates=ns.Coordinates(q, v))
    table = ns.ConvexPolygon([(-1, -1), (0, -1), (0, 0), (-1, 0)])
    mass = ca.diag([1, 1, (width**2 + height**2) / 12])
    contacts = ns.contacts(box, table, friction=mu)
    return ns.CLS(q=q, v=v, mass_matrix=mass, force=[0, -9.81, 0], contacts=contacts)


@pytest.mark.parametrize("speed", [1.1, 1.2, 1.6])
def test_a_box_slides_over_the_border_of_a_table_in_the_plane(speed):
    """Its leading corner passes the corner of the table, at the same height: no impact."""
    width, height, mu, start = 0.2, 0.1, 0.3, -0.3
    y = height / 2
    motion = ns.simulate(_on_a_table(width, height, mu), x0=[start, y, 0, speed, 0, 0], duration=0.6)
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


@pytest.mark.parametrize("speed", [0.3, 0.6, 1.0, 2.0, 5.0])
def test_a_box_that_leaves_a_border_without_friction_keeps_its_energy(speed):
    """Its trailing corner passes the corner of the table while it tips: it strikes nothing."""
    motion = ns.simulate(_on_a_table(0.1, 0.1, 0.0), x0=[-0.06, 0.05, 0, speed, 0, 0], duration=0.6)
    assert motion.success, motion.message
    assert not motion.impacts
    assert motion.final_state[1] < -0.3

    def energy(x):
        return 0.5 * x[3:] @ (np.array([1, 1, 0.02 / 12]) * x[3:]) + 9.81 * x[1]

    assert energy(motion.final_state) == pytest.approx(energy(motion.x[0]), abs=1e-9)


@pytest.mark.parametrize(("mu", "speed"), [(0.02, 0.6), (0.1, 1.0), (0.3, 1.0)])
def test_a_box_that_tips_over_a_border_with_friction_beside_its_own_equations(mu, speed):
    """It slides on the corner of the table as long as that is below its face, and flies then."""
    width = 0.1
    motion = ns.simulate(_on_a_table(width, width, mu), x0=[-0.06, 0.05, 0, speed, 0, 0], duration=0.6)
    assert motion.success, motion.message
    assert not motion.impacts
    tips, leaves = (e.time for e in motion.events if e.kind == "release" and e.name in ("contact 1", "contact 7"))
    mass = np.array([1.0, 1.0, width**2 / 6])
    place = ca.SX.sym("q", 3)
    along, down = ca.vertcat(ca.cos(place[2]), ca.sin(place[2])), ca.vertcat(ca.sin(place[2]), -ca.cos(place[2]))
    gap, way = ca.dot(-place[:2], down) - width / 2, ca.dot(-place[:2], along)
    rate = ca.SX.sym("v", 3)
    rows = ca.jacobian(gap, place)
    turned = ca.jtimes(rows.T, place, rate)
    slip = ca.horzcat(along.T, -place[0] * along[1] + place[1] * along[0])
    at = ca.Function("at", [place, rate], [rows, ca.dot(turned, rate), slip, slip @ rate, way])

    def change(t, x):
        row, curved, tangent, sliding, _ = (np.array(part).ravel() for part in at(x[:3], x[3:]))
        push = row - mu * np.sign(sliding[0]) * tangent
        weight = np.array([0.0, -9.81, 0.0])
        force = -(curved[0] + row @ weight) / (row / mass @ push)
        return np.concatenate([x[3:], weight + force * push / mass])

    def left(t, x):
        return float(at(x[:3], x[3:])[4]) + width / 2

    left.terminal = True
    path = solve_ivp(change, (tips, 0.6), motion(tips), events=left, rtol=1e-11, atol=1e-12)
    # The range of the face ends a step of 1e-6 of its size behind its corner.
    assert leaves == pytest.approx(path.t[-1], abs=1e-5)
    rest, x = 0.6 - path.t[-1], path.y[:, -1]
    flown = x[:3] + rest * x[3:] + [0, -0.5 * 9.81 * rest**2, 0]
    assert motion.final_state[:3] == pytest.approx(flown, abs=1e-5)


def _box_on_a_table(mu):
    """Return a cube in space, of 1 kg and .1 m, on a table that ends at x = 0."""
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    cube = ns.Placed(ns.Box([0.1] * 3), q[:3], q[3:], coordinates=ns.Coordinates(q, v, quaternions=[q[3:]]))
    contacts = ns.contacts(cube, ns.Placed(ns.Box([1, 1, 1]), [-0.5, 0, -0.5]), friction=mu)
    mass = ca.diag([1, 1, 1, *[0.01 / 6] * 3])
    return ns.CLS(q=q, v=v, quaternions=[q[3:]], mass_matrix=mass, force=[0, 0, -9.81, 0, 0, 0], contacts=contacts)


@pytest.mark.parametrize(("speed", "yaw"), [(0.6, 0.0), (1.0, 0.0), (0.6, 0.3), (1.0, 0.3)])
def test_a_cube_that_leaves_a_border_askew_keeps_its_energy(speed, yaw):
    """Crossings of its edges with the border pass on to each other at its corners, which do not strike."""
    x0 = [-0.12, 0, 0.05, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2), speed, 0, 0, 0, 0, 0]
    motion = ns.simulate(_box_on_a_table(0.0), x0=x0, duration=0.5)
    assert motion.success, motion.message
    assert motion.final_state[2] < -0.2
    mass = np.array([1, 1, 1, *[0.01 / 6] * 3])

    def energy(x):
        return 0.5 * x[7:] @ (mass * x[7:]) + 9.81 * x[2]

    # Where the last two crossings end together, both gaps are put to zero: a turn by a millionth.
    assert energy(motion.final_state) == pytest.approx(energy(motion.x[0]), abs=1e-6)


CUBE = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
SOLIDS = {
    "box": lambda rng: CUBE * rng.uniform(0.04, 0.15, 3),
    "tetrahedron": lambda rng: 0.1 * rng.normal(size=(4, 3)),
    "seven points": lambda rng: 0.08 * rng.normal(size=(7, 3)),
    "wedge": lambda rng: CUBE[CUBE[:, 0] + CUBE[:, 2] < 2] * [0.1, 0.1, 0.05],
}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", SOLIDS)
def test_solids_that_tumble_over_the_borders_of_a_box(kind, seed):
    """They gain no energy, do not enter the box, and without friction elastic ones keep their energy."""
    rng = np.random.default_rng([seed, len(kind)])
    corners = SOLIDS[kind](rng)
    corners = corners - corners.mean(axis=0)
    inertia = np.array([0.003, 0.004, 0.005])
    mu, elastic = rng.choice([0.0, 0.3]), rng.choice([0.0, 1.0])
    restitution = float(elastic) if mu == 0.0 else 0.0
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    solid = ns.Placed(ns.ConvexPolyhedron(corners), q[:3], q[3:], coordinates=ns.Coordinates(q, v, quaternions=[q[3:]]))
    box = ns.Placed(ns.Box([0.5, 0.5, 0.5]), [0, 0, -0.25])
    turning = ca.DM(inertia)
    system = ns.CLS(
        q=q, v=v, quaternions=[q[3:]], mass_matrix=ca.diag(ca.vertcat(1, 1, 1, turning)),
        force=ca.vertcat(0, 0, -9.81, -ca.cross(v[3:], turning * v[3:])),
        contacts=ns.contacts(solid, box, friction=float(mu), restitution=restitution),
    )  # fmt: skip
    attitude = rng.normal(size=4)
    x0 = np.concatenate([
        rng.uniform(-0.25, 0.25, 2), [0.3], attitude / np.linalg.norm(attitude),
        0.7 * rng.normal(size=3), 3 * rng.normal(size=3),
    ])  # fmt: skip
    motion = ns.simulate(system, x0=x0, duration=0.6)
    assert motion.success, motion.message
    energies = np.array([0.5 * x[7:10] @ x[7:10] + 0.5 * (inertia * x[10:]) @ x[10:] + 9.81 * x[2] for x in motion.x])
    assert np.diff(energies).max() < 1e-5
    if restitution == 1.0:
        assert energies[-1] == pytest.approx(energies[0], abs=1e-5)
    shares = np.linspace(0, 1, 21)[:, None]
    for x in motion.x:
        places = corners @ np.array(ca.DM(rotation_of(x[3:7]))).T + x[:3] - [0, 0, -0.25]
        edges = np.vstack([shares * a + (1 - shares) * b for a in places for b in places])
        assert (0.25 - np.abs(edges).max(axis=1)).max() < 1e-8


def test_a_cube_slides_off_a_block_that_moves_itself():
    """Positions are continuous and energy is kept, wherever rounding puts the state at a jump of a gap."""
    q, v = ca.SX.sym("q", 14), ca.SX.sym("v", 12)
    moves = ns.Coordinates(q, v, quaternions=[q[3:7], q[10:14]])
    block, cube = (
        ns.Placed(ns.Box(size), q[k : k + 3], q[k + 3 : k + 7], coordinates=moves)
        for k, size in ((0, [0.3, 0.2, 0.1]), (7, [0.1, 0.1, 0.1]))
    )
    masses = np.array([1, 1, 1, 0.05 / 12, 0.1 / 12, 0.13 / 12, 0.5, 0.5, 0.5, *[0.01 / 12] * 3])
    turning = [ca.DM(masses[k : k + 3]) for k in (3, 9)]
    spins = [-ca.cross(v[k : k + 3], inertia * v[k : k + 3]) for k, inertia in zip((3, 9), turning, strict=True)]
    contacts = ns.contacts(block, ns.HalfSpace(), name="floor") + ns.contacts(cube, block, name="cube")
    system = ns.CLS(
        q=q, v=v, quaternions=[q[3:7], q[10:14]], mass_matrix=ca.diag(ca.DM(masses)), contacts=contacts,
        force=ca.vertcat(0, 0, -9.81, spins[0], 0, 0, -9.81 / 2, spins[1]),
    )  # fmt: skip
    attitude = [np.cos(0.2), 0, 0, np.sin(0.2)]
    x0 = [0, 0, 0.05, 1, 0, 0, 0, 0, 0, 0.15, *attitude, *[0] * 6, 0.8, 0.1, 0, 0, 0, 0]
    motion = ns.simulate(system, x0=x0, duration=0.26)
    assert motion.success, motion.message
    energies = [0.5 * x[14:] @ (masses * x[14:]) + 9.81 * x[2] + 9.81 / 2 * x[9] for x in motion.x]
    assert np.ptp(energies) < 1e-5
    fastest = np.abs(motion.x[:, 14:]).max()
    assert (np.abs(np.diff(motion.x[:, :14], axis=0)).max(axis=1) <= 2 * fastest * np.diff(motion.t) + 1e-5).all()


def test_a_table_that_moves_lifts_a_box():
    """Its motion is smooth, though the faces of the boxes take turns."""
    q, v, t = ca.SX.sym("q", 7), ca.SX.sym("v", 6), ca.SX.sym("t")
    moves = ns.Coordinates(q, v, quaternions=[q[3:]])
    height = -0.05 + 0.01 * ca.sin(3 * t)
    table = ns.Placed(ns.Box([1, 1, 0.1]), ca.vertcat(0, 0, height))
    contacts = ns.contacts(ns.Placed(ns.Box([0.1] * 3), q[:3], q[3:], coordinates=moves), table, friction=0.5)
    mass = ca.diag([1, 1, 1, *[0.01 / 6] * 3])
    force = [0, 0, -9.81, 0, 0, 0]
    system = ns.CLS(q=q, v=v, t=t, quaternions=[q[3:]], mass_matrix=mass, force=force, contacts=contacts)
    motion = ns.simulate(system, x0=[0, 0, 0.05, 1, 0, 0, 0, 0, 0, 0.03, 0, 0, 0, 0], duration=1.0)
    assert motion.success, motion.message
    assert motion.final_state[2] == pytest.approx(0.05 + 0.01 * np.sin(3.0), abs=1e-8)


def test_a_ball_that_rolls_sticking_leaves_a_plate_at_its_corner() -> None:
    """Its force jumps out of the cone there, and not to zero: modes changed for ever at that instant, or it crashed."""
    system = ball_on_a_plate.build().system
    start = {"x0": {"ball_x": -0.15, "ball_y": 0.06}, "duration": 0.4, "u": [-1.8, 0]}
    motion = ns.simulate(system, **start)
    assert motion.success, motion.message
    assert [event.kind for event in motion.events] == ["release"]
    errors = [
        np.abs(ns.simulate(system, **start, method=ns.TimeStepping(step=step, rest_velocity=0.0)).x[-1] - motion.x[-1])
        for step in (4e-4, 1e-4)
    ]
    assert errors[1].max() < 0.02
    assert errors[1].max() < 0.4 * errors[0].max()
