"""Starts by paths of balanced postures: which contacts carry, what the paths satisfy, and what they lead to."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.search.quasistatic import QuasistaticPath, formations, posture_of, quasistatic
from nosnoc_py.search.stances import Proposal
from nosnoc_py.search.starts import StartTask
from nosnoc_py.status import Verdict
from problems.robots import jaw_picks_from_a_wall

G, HALF, TIP, MASS = 9.81, 0.03, 0.01, 0.2


def pick(friction: float = 0.8, unit: float = 1.0) -> ns.OCP:
    """Two fingers that move along x and y together, and a box on the floor that has to be .1 m higher.

    `unit` is the length of a unit in metres.
    """
    q, v, u = ca.SX.sym("q", 6), ca.SX.sym("v", 6), ca.SX.sym("u", 3)
    g, half, tip = G / unit, HALF / unit, TIP / unit
    plane = ns.Coordinates(q, v)
    square = ns.ConvexPolygon([[-half, -half], [half, -half], [half, half], [-half, half]])
    box = ns.Placed(square, q[3:5], q[5], coordinates=plane)
    contacts = ns.contacts(box, ns.HalfSpace((0, 1)), name="floor", friction=0.5)
    for name, side in (("left", -1), ("right", 1)):
        ball = ns.Placed(ns.Sphere(tip), ca.vertcat(q[0] + side * q[2], q[1]), coordinates=plane)
        contacts += ns.contacts(ball, box, name=name, friction=friction)
    inertia = MASS * (2 * half) ** 2 / 6
    system = ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.diag([0.5, 0.5, 0.1, MASS, MASS, inertia]),
        force=ca.vertcat(u[0], u[1] - 0.5 * g, u[2], 0, -MASS * g, 0), contacts=contacts,
    )  # fmt: skip
    most = 20 / unit
    return ns.OCP(
        system, horizon=1.0, x0=[0, 0.1 / unit, 0.06 / unit, 0, half, 0, *[0] * 6],
        stage_cost=1e-2 * ca.sumsqr(unit * (u - ca.vertcat(0, 0.5 * g, 0))),
        bounds={"q_2": (tip, 0.08 / unit), **{f"u_{k}": (-most, most) for k in range(3)}},
        path_constraints=[q[1] >= tip], terminal_constraints=[q[4] == half + 0.1 / unit, q[5] == 0, v[4] == 0],
    )  # fmt: skip


def paths(ocp: ns.OCP) -> list[Proposal]:
    return [one for one in quasistatic(StartTask.of(ocp), np.random.default_rng(0)) if one is not None]


@pytest.mark.quick
def test_few_contacts_come_first_and_close_one_after_another() -> None:
    floor = frozenset(["floor"])
    found = list(formations(floor, frozenset(), ["floor", "left", "right"]))
    sizes = [len(carrying - floor) for carrying, _ in found]
    assert sizes == sorted(sizes)
    assert len({carrying for carrying, _ in found}) == len(found) == 8
    for carrying, sets in found:
        assert sets[0] == floor
        assert carrying in sets
        assert all(len(after - before) <= 1 for before, after in pairwise(sets))


@pytest.mark.quick
def test_both_fingers_hold_the_box() -> None:
    """One finger cannot lift it; the path ends at the goal, and no finger slips along the box on the way."""
    found = paths(pick())
    assert found
    for path in found:
        assert path.sequence.phases[-1].keys() == {"left", "right"}
        q = path.motion.x[:, :6]
        assert q[0] == pytest.approx([0, 0.1, 0.06, 0, HALF, 0], abs=1e-12)
        assert q[-1, 4] == pytest.approx(HALF + 0.1, abs=1e-6)
        held = q[-9:]  # the samples of the last phase
        assert np.ptp(held[:, 1] - held[:, 4]) < 1e-6
        assert np.abs(held[:, 2] - held[0, 2]).max() < 1e-6
        ocp = pick()
        gaps = ocp.system.kinematics(path.motion.x[-9:], 0.0, ocp.p).gaps
        fingers = [k for k, contact in enumerate(ocp.system.contacts) if contact.name in ("left", "right")]
        assert np.abs(gaps[:, fingers]).max() < 1e-6


@pytest.mark.quick
def test_without_friction_nothing_holds_the_box() -> None:
    assert not paths(pick(friction=0.0))


@pytest.mark.quick
def test_paths_do_not_depend_on_the_unit_of_length() -> None:
    metres, millimetres = (paths(pick(unit=unit))[0] for unit in (1.0, 1e-3))
    assert [str(one) for one in metres.sequence.items] == [str(one) for one in millimetres.sequence.items]
    scale = np.array([1e-3] * 5 + [1])
    # The path is short, and any posture at which it waits is as short: only the box is compared.
    assert (scale * millimetres.motion.x[:, :6])[-1, 3:] == pytest.approx(metres.motion.x[-1, 3:6], abs=1e-5)


@pytest.mark.quick
def test_every_posture_of_a_path_is_in_balance_and_at_rest_where_contacts_close() -> None:
    """Squeezing by N holds m g if 2 mu N is at least that: the drive of the width is below -m g / (2 mu)."""
    ocp = pick()
    path = paths(ocp)[0]
    closes = np.searchsorted(path.motion.t, path.sequence.times)
    assert np.abs(path.motion.x[closes, 6:]).max() < 1e-9
    last = path.motion.u[-1]
    assert last[1] == pytest.approx((0.5 + MASS) * G, abs=1e-3)  # lifts palm and box
    assert last[2] < -MASS * G / (2 * 0.8) * 2 + 1e-3  # the width moves both fingers


@pytest.mark.quick
def test_a_foot_that_stands_goes_on_standing() -> None:
    """A body on a leg that can be stretched rises: no contact is added, the foot carries all the way."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    # The foot hangs q_1 below the body.
    foot = ns.Contact("foot", gap=q[0] - q[1])
    mass = ca.diag([2.0, 0.1])
    robot = ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=ca.vertcat(-2 * G, u), contacts=[foot])
    ocp = ns.OCP(robot, horizon=1.0, x0=[1, 1, 0, 0], stage_cost=u**2, terminal_constraints=[q[0] == 1.5])
    assert [[set(phase) for phase in path.sequence.phases] for path in paths(ocp)] == [[{"foot"}]]


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["no controls", "no goal", "no contacts"])
def test_problems_without_controls_goal_or_contacts_have_no_such_starts(kind: str) -> None:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    contacts = [] if kind == "no contacts" else [ns.Contact("floor", gap=q)]
    controls = {} if kind == "no controls" else {"u": u}
    ball = ns.CLS(q=q, v=v, mass_matrix=1, force=(u if controls else 0) - G, contacts=contacts, **controls)
    ends = [] if kind == "no goal" else [q == 0.5]
    assert not paths(ns.OCP(ball, horizon=1.0, x0=[1, 0], stage_cost=v**2, terminal_constraints=ends))


@pytest.mark.quick
def test_a_body_in_space_is_turned_the_way_that_its_quaternion_says() -> None:
    """Ways between postures are velocities times one, for unit quaternions as well: a knob is turned by .6 rad."""
    q, v, u = ca.SX.sym("q", 5), ca.SX.sym("v", 4), ca.SX.sym("u")
    rate = ca.diagcat(0.5 * ca.vertcat(ca.horzcat(-q[1], -q[2], -q[3]), ca.horzcat(q[0], -q[3], q[2]),
        ca.horzcat(q[3], q[0], -q[1]), ca.horzcat(-q[2], q[1], q[0])), 1)  # fmt: skip
    knob = ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.DM.eye(4), force=ca.vertcat(0, 0, u, 0), kinematic_matrix=rate,
        contacts=[ns.Contact("far", gap=1 + q[4])], quaternions=[q[:4]],
    )  # fmt: skip
    goal = [float(np.cos(0.3)), 0, 0, float(np.sin(0.3))]
    turned = ns.Constraint(ns.attitude_error(q[:4], goal), equals=[0, 0, 0], name="turned")
    ocp = ns.OCP(knob, horizon=1.0, x0=[1, 0, 0, 0, 0, *[0] * 4], stage_cost=u**2, terminal_constraints=[turned])
    path = QuasistaticPath(task=StartTask.of(ocp), sets=(frozenset(),)).proposal(np.asarray(ocp.x0))
    assert path is not None
    assert path.motion.x[-1, :4] == pytest.approx(goal, abs=1e-6)
    speeds = path.motion.x[:, 7]  # begin and end at rest
    assert float(np.diff(path.motion.t) @ (speeds[1:] + speeds[:-1]) / 2) == pytest.approx(0.6, rel=0.02)


@pytest.mark.quick
def test_path_constraints_on_positions_hold_in_every_posture() -> None:
    ocp = pick()
    names = [label for label, *_ in posture_of(StartTask.of(ocp), frozenset()).rows]
    assert sum(name.startswith("path") for name in names) == 1


def test_two_fingers_lift_a_box_by_such_starts_alone() -> None:
    solution = ns.Search(starts=("quasistatic",)).solve(pick())
    assert solution.certificate.verdict in (Verdict.CONFIRMED, Verdict.CONFIRMED_IN_WINDOWS)
    assert solution.sequence.phases[-1].keys() == {"left", "right"}
    assert solution.x[-1, 4] == pytest.approx(HALF + 0.1, abs=1e-6)
    assert solution.objective < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("build", [pick, jaw_picks_from_a_wall.build])
def test_jaws_pick_a_box_by_the_plain_call(build: Callable[[], ns.OCP]) -> None:
    """No other kind had found it (52 starts): the box ends between both tips, and the simulation agrees."""
    solution = ns.solve(build())
    assert solution.success
    assert solution.certificate.verdict in (Verdict.CONFIRMED, Verdict.CONFIRMED_IN_WINDOWS)
    assert solution.sequence.phases[-1].keys() == {"left", "right"}
    assert solution.objective < 0.1
    assert solution.x[-1, 4] == pytest.approx(0.13, abs=1e-6)
    assert any(candidate.start == "quasistatic" for candidate in solution.candidates)
