"""The sequence of a motion: exact ones by closed forms, those of finite elements like the exact ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.sequences.contact_laws import ContactLaws
from nosnoc_py.sequences.reading import TOGETHER, read_sequence, segments_of
from nosnoc_py.sequences.refinement import laws_of
from nosnoc_py.solution import Event

G = 10.0
TIMES = 1e-6  # [s] of events of an exact motion


def sequence_of(system: Any, x0: list[float], duration: float, motion: ns.Trajectory) -> ns.Sequence:
    """What is read from a motion."""
    ocp = ns.OCP(system, horizon=duration, x0=x0)
    return read_sequence(laws_of(ocp, motion), motion, ocp.p)


def block(friction: float = 0.3) -> ns.CLS:
    """On the ground, pushed sideways."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=friction)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, -G), contacts=[ground])


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_the_unit_of_a_gap_does_not_decide_whether_it_is_closed(unit: float) -> None:
    """A residual velocity of 1e-6 m/s is none, one of 1e-3 m/s is, also where the gap is in millimetres or km."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-G, contacts=[ns.Contact("ground", gap=unit * q)])
    laws = ContactLaws(ball)
    modes = [laws.mode_at(np.array([0.0, speed]), np.zeros(0)) for speed in (1e-6, 1e-3)]
    assert modes == [("closed",), ("open",)]
    impact = [laws.impacts_between(np.array([0.0, -speed]), np.zeros(2), np.array([speed]), np.zeros(0))
              for speed in (1e-9, 1e-2)]  # fmt: skip
    assert [len(each) for each in impact] == [0, 1]


def pair(second: float) -> ns.CLS:
    """Two blocks on the ground, the other one with its own friction."""
    q, v = ca.SX.sym("q", 4), ca.SX.sym("v", 4)
    feet = [
        ns.Contact("one", gap=q[1], tangent=ca.DM([1, 0, 0, 0]), friction=0.3),
        ns.Contact("two", gap=q[3], tangent=ca.DM([0, 0, 1, 0]), friction=second),
    ]
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(4), force=ca.DM([0, -G, 0, -G]), contacts=feet)


def corner() -> ns.CLS:
    """A particle without weight between a wall and a floor."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    sides = [ns.Contact("wall", gap=q[0], restitution=0.8), ns.Contact("floor", gap=q[1], restitution=0.5)]
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM.zeros(2), contacts=sides)


def ball(restitution: float = 0.0) -> ns.CLS:
    """Above the ground, lifted."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q, restitution=restitution)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - G, contacts=[ground])


def line(above: float, below: float) -> ns.PSS:
    """Velocities on both sides of zero, with the control on top, and a clock."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    flows = [ca.vertcat(above + u, 1), ca.vertcat(below + u, 1)]
    return ns.PSS(x=x, u=u, modes=ns.Modes("line", flows=flows, functions=x[0], signs=[[1], [-1]]))


def steps(*values: float) -> Callable[[float], list[float]]:
    """A control that is constant on equal parts of a second."""
    return lambda t: [values[min(int(t * len(values)), len(values) - 1)]]


SLIP, BACK, STICK = {"ground": "slip+"}, {"ground": "slip-"}, {"ground": "stick"}
FALL = float(np.sqrt(0.1))  # from 0.5 m
LANDING = [{}, "impact ground", {"ground": "closed"}]
BOUNCES = [{}, "impact ground", {}, "impact ground", {}]
EXACT = [
    # system, x0, control, sequence, times
    ("slip then stick", block(), [0, 0, 1.5, 0], steps(0), [SLIP, STICK], [0.5]),
    ("stick then slip", block(), [0, 0, 0, 0], steps(1, 5), [STICK, SLIP], [0.5]),
    ("reversal", block(), [0, 0, 0.5, 0], steps(-5), [SLIP, BACK], [0.0625]),
    ("landing with slip", block(0.1), [0, 0.5, 2, 0], steps(0), [{}, "impact ground slip+", SLIP], [FALL]),
    ("landing that sticks", block(1.0), [0, 0.5, 2, 0], steps(0), [{}, "impact ground", STICK], [FALL]),
    ("landing without friction", ball(), [0.5, 0], steps(0), LANDING, [FALL]),
    ("a release", ball(), [0, 0], steps(0, 15), [{"ground": "closed"}, {}], [0.5]),
    ("bounces", ball(0.9), [0.5, 0], steps(0), BOUNCES, [FALL, 2.8 * FALL]),
    ("both at once", corner(), [1, 1, -2, -2], None, [{}, "impact wall, floor", {}], [0.5]),
    ("almost at once", corner(), [1, 1 + 1e-8, -2, -2], None, [{}, "impact wall, floor", {}], [0.5]),
    ("one after the other", corner(), [1, 1.1, -2, -2], None, [{}, "impact wall", {}, "impact floor", {}], [0.5, 0.55]),
    (
        "two stop at once",
        pair(0.3),
        [0, 0, 0, 0, 1.5, 0, 1.5, 0],
        None,
        [{"one": "slip+", "two": "slip+"}, {"one": "stick", "two": "stick"}],
        [0.5],
    ),
    (
        "one stops first",
        pair(0.2),
        [0, 0, 0, 0, 1.5, 0, -1.5, 0],
        None,
        [{"one": "slip+", "two": "slip-"}, {"one": "stick", "two": "slip-"}, {"one": "stick", "two": "stick"}],
        [0.5, 0.75],
    ),
    ("crossing", line(1, 2), [-0.5, 0], steps(0), [{"line": "-"}, {"line": "+"}], [0.25]),
    ("sliding", line(-1, 1), [-0.3, 0], steps(0), [{"line": "-"}, {"line": "0"}], [0.3]),
    ("sliding at once", line(-1, 1), [0, 0], steps(0), [{"line": "0"}], []),
    (
        "leaving a surface",
        line(-1, 1),
        [-0.3, 0],
        steps(0, 2),
        [{"line": "-"}, {"line": "0"}, {"line": "+"}],
        [0.3, 0.5],
    ),
]


@pytest.mark.parametrize(
    ("system", "x0", "control", "items", "times"), [row[1:] for row in EXACT], ids=[row[0] for row in EXACT]
)
def test_an_exact_motion_is_read(system: Any, x0: list[float], control: Any, items: list[Any], times: list[float]):
    """Modes, impacts and times of closed forms; events that coincide, or almost, are one."""
    motion = ns.simulate(system, x0=x0, duration=1.0, u=control)
    assert motion.success
    found = sequence_of(system, x0, 1.0, motion)
    assert found == ns.Sequence(items)
    np.testing.assert_allclose(found.times, times, rtol=0, atol=TIMES)


@pytest.mark.parametrize(
    ("system", "x0", "items"),
    [
        (block(), [0.0, 0.0, 1.5, 0.0], [SLIP, STICK]),
        (block(0.1), [0.0, 0.5, 2.0, 0.0], [{}, "impact ground slip+", SLIP]),
        (ball(), [0.5, 0.0], LANDING),
        (corner(), [1.0, 1.1, -2.0, -2.0], [{}, "impact wall", {}, "impact floor", {}]),
    ],
)
@pytest.mark.parametrize("stages", [1, 2])
def test_coarse_finite_elements_are_read_like_the_exact_motion(
    system: ns.CLS, x0: list[float], items: list[Any], stages: int
):
    """FESD-J with five steps of two elements, also of order one, where times are only roughly right and it says so."""
    motion = ns.simulate(system, x0=x0, duration=1.0, method=ns.FESDJ(rk_stages=stages), steps=5)
    assert motion.success or stages == 1
    assert sequence_of(system, x0, 1.0, motion) == ns.Sequence(items)


@pytest.mark.parametrize(
    ("system", "x0", "items"),
    [
        (line(1, 2), [-0.5, 0.0], [{"line": "-"}, {"line": "+"}]),
        (line(-1, 1), [-0.3, 0.0], [{"line": "-"}, {"line": "0"}]),
    ],
)
def test_finite_elements_of_filippov_systems_are_read(system: ns.PSS, x0: list[float], items: list[Any]):
    """FESD with five steps."""
    motion = ns.simulate(system, x0=x0, duration=1.0, method=ns.FESD(rk_stages=1), steps=5)
    assert motion.success
    assert sequence_of(system, x0, 1.0, motion) == ns.Sequence(items)


def test_the_solution_of_finite_elements_starts_the_program():
    """A block that is pushed and rests at last, by FESD-J, and by the program of its sequence, which is better."""
    system = block()
    missed = 100 * (system.q[0] - 0.5) ** 2
    ocp = ns.OCP(system, horizon=1.0, x0=[0.0, 0.0, 1.5, 0.0], stage_cost=system.u**2, terminal_cost=missed)
    coarse = ns.solve(ocp, ns.FESDJ(control_stages=4), guess=[0.0])
    assert coarse.success
    assert read_sequence(laws_of(ocp, coarse), coarse, ocp.p) == ns.Sequence([SLIP, STICK])
    fine = ns.solve(ocp, ns.MultiPhase(intervals=8), guess=coarse)
    assert fine.success
    assert fine.sequence == ns.Sequence([SLIP, STICK])
    assert fine.objective < coarse.objective


def test_bounces_that_die_out_end_in_contact():
    """Impacts that crowd before the ball rests do not become phases: the last phase is contact."""
    system = ball(0.2)
    motion = ns.simulate(system, x0=[0.5, 0.0], duration=1.0)
    found = sequence_of(system, [0.5, 0.0], 1.0, motion)
    assert dict(found.phases[-1]) == {"ground": "closed"}
    assert all(dict(phase) == {} for phase in found.phases[:-1])
    assert (np.diff(found.times) > TOGETHER).all()
    assert len(found) < 15


def test_events_at_the_ends_make_no_phases():
    """What happens at the last moment begins nothing; what happens at the first one begins the first phase."""
    system = ball()
    motion = ns.simulate(system, x0=[0.5, 0.0], duration=FALL)
    assert len(sequence_of(system, [0.5, 0.0], FALL, motion)) == 1
    landing = ns.simulate(system, x0=[0.0, -1.0], duration=1.0)
    found = sequence_of(system, [0.0, -1.0], 1.0, landing)
    assert [dict(phase) for phase in found.phases] == [{"ground": "closed"}]
    assert found.impacts == ("impact ground",)


def test_stretches_are_between_events():
    """Three probes inside of each; events closer than `TOGETHER` of the duration begin one together."""
    motion = ns.simulate(corner(), x0=[1.0, 1.1, -2.0, -2.0], duration=1.0)
    segments = segments_of(motion)
    assert [[event.name for event in s.events if event.kind == "impact"] for s in segments] == [
        [],
        ["wall"],
        ["floor"],
    ]
    assert all(isinstance(event, Event) for s in segments for event in s.events)
    np.testing.assert_allclose([s.begin for s in segments], [0.0, 0.5, 0.55], rtol=0, atol=TIMES)
    np.testing.assert_allclose(segments[1].after, [0.0, 0.1, 1.6, -2.0], rtol=0, atol=TIMES)
    assert all(s.states.shape == (3, 4) for s in segments)
