"""Starts from the states of a guess: which sequences they show, and what the plain call finds because of them."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest
from attrs import evolve

import nosnoc_py as ns
from nosnoc_py.search.drawn import DrawnStates, guessed
from nosnoc_py.search.stances import Proposal
from nosnoc_py.search.starts import StartTask
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.named_guesses import guess_by_name

G = 9.81


def puck(**contact: Any) -> ns.OCP:
    """A puck that is pushed along and lifted above a table, on which it slides with friction."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
    table = ns.Contact("table", gap=q[1], **{"tangent": [1, 0], "friction": 0.3, **contact})
    system = ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.SX.eye(2), force=u - ca.vertcat(0, G), contacts=[table],
        names={"q": ["x", "height"], "v": ["x_rate", "height_rate"], "u": ["push", "lift"]},
    )  # fmt: skip
    return ns.OCP(system, horizon=1.0, x0={"height": 0.1}, stage_cost=ca.sumsqr(u), terminal_constraints=[q[0] == 1])


def around() -> ns.OCP:
    """A tip on the left of a disc on a rail with a damper, which is to be moved to the left: it has to go around."""
    q, v, u = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("u", 2)
    tip = ns.Contact("tip", gap=ca.norm_2(ca.vertcat(q[0] - q[2], q[1])) - 0.5)
    system = ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.DM.eye(3), force=ca.vertcat(u, -2 * v[2]), contacts=[tip],
        names={"q": ["x", "y", "disc"], "v": ["x_rate", "y_rate", "disc_rate"]},
    )  # fmt: skip
    return ns.OCP(
        system, horizon=2.0, x0={"x": -1.0}, stage_cost=0.01 * ca.sumsqr(u),
        bounds={"u_0": (-20, 20), "u_1": (-20, 20)}, terminal_constraints=[q[2] == -0.5],
    )  # fmt: skip


# Positions of the tip and of the disc, drawn by hand, with velocities that nobody knows.
AROUND = np.hstack([[[-1, 0, 0], [-0.3, 1, 0], [0.6, 0.6, 0], [0.5, 0, 0], [0, 0, -0.5]], np.zeros((5, 3))])


def read(ocp: ns.OCP, guess: Any) -> ns.Sequence:
    """The sequence that the states of a guess show."""
    drawn = DrawnStates.of(StartTask.of(ocp), guess_by_name(ocp, guess))
    assert drawn is not None
    first = next(drawn.proposals())
    assert first is not None
    return first.sequence


@pytest.mark.quick
class TestReading:
    def test_a_contact_is_closed_between_states_that_touch(self) -> None:
        frames = {0: {"height": 0.1}, 0.14: {"x": 0.05, "height": 0.0}, 1: {"x": 1.0, "height": 0.0}}
        sequence = read(puck(), frames)
        assert sequence.items == ({}, "impact table slip+", {"table": "slip+"})
        assert sequence.times == pytest.approx([0.14], abs=1e-12)

    def test_a_line_above_the_surface_touches_nothing(self) -> None:
        """The negative control: a tenth of a metre higher."""
        frames = {0: {"height": 0.1}, 0.14: {"x": 0.05, "height": 0.1}, 1: {"x": 1.0, "height": 0.1}}
        assert read(puck(), frames).items == ({},)

    def test_directions_and_rest(self) -> None:
        frames = {0: {"x": 0.0, "height": 0.1}, 0.2: {"height": 0.0}, 0.4: {"x": 0.0, "height": 0.0}}
        frames[1] = {"x": -1.0, "height": 0.0}
        sequence = read(puck(), frames)
        assert sequence.items == ({}, "impact table", {"table": "stick"}, {"table": "slip-"})
        assert sequence.times == pytest.approx([0.2, 0.4], abs=1e-12)

    def test_a_single_state_that_touches_is_a_landing_or_a_bounce(self) -> None:
        """Without restitution half of the steps beside it are closed; with it, there is an impact at that time."""
        rows = np.array([[0, 0.1, 0, 0], [0.2, 0.2, 0, 0], [0.5, 0, 0, 0], [0.8, 0.2, 0, 0], [1, 0.3, 0, 0]])
        landing = read(puck(), {"x": rows})
        assert landing.items == ({}, "impact table", {"table": "stick"}, {})
        assert landing.times == pytest.approx([0.375, 0.625], abs=1e-12)
        bounce = read(puck(restitution=0.5, tangent=None, friction=0.0), {"x": rows})
        assert bounce.items == ({}, "impact table", {})
        assert bounce.times == pytest.approx([0.5], abs=1e-12)

    def test_a_jump_pushes_off_and_lands(self) -> None:
        """Three postures: on the ground, in the air, on the ground."""
        frames = {0: {"height": 0.0}, 0.5: {"x": 0.5, "height": 0.3}, 1: {"x": 1.0, "height": 0.0}}
        ocp = puck()
        low = ns.OCP(ocp.system, horizon=1.0, x0={}, stage_cost=ca.sumsqr(ocp.system.u))
        sequence = read(low, frames)
        assert sequence.items == ({"table": "stick"}, {}, "impact table", {"table": "stick"})
        assert sequence.times == pytest.approx([0.25, 0.75], abs=1e-12)

    def test_many_states_with_noise(self) -> None:
        """A recording of 200 states, with errors of a millimetre: the fall takes sqrt(2 * 0.1 / g) = 0.143 s."""
        t = np.linspace(0.0, 1.0, 200)
        lands, rng = np.sqrt(2 * 0.1 / G), np.random.default_rng(0)
        height = np.where(t < lands, 0.1 - 0.5 * G * t**2, 0.0)
        x = np.column_stack([t, height, np.ones(200), np.where(t < lands, -G * t, 0.0)])
        sequence = read(puck(), {"x": x + 1e-3 * rng.uniform(-1, 1, x.shape)})
        assert sequence.items == ({}, "impact table slip+", {"table": "slip+"})
        assert sequence.times == pytest.approx([lands], abs=0.03)

    def test_velocities_that_are_not_given_are_slopes(self) -> None:
        drawn = DrawnStates.of(StartTask.of(around()), {"x": AROUND})
        assert drawn is not None
        assert not drawn.driven
        # From -1 to -0.3 in half a second, from there to 0.6 in another one: the mean of 1.4 and 1.8.
        assert drawn.states[1, 3] == pytest.approx(1.6, abs=1e-12)
        assert drawn.states[0] == pytest.approx([-1, 0, 0, 0, 0, 0], abs=1e-12)  # x0

    def test_postures_of_a_floating_robot(self) -> None:
        """Quaternions of rows are made unit; the trunk stands on the ground, then above it."""
        text = """<robot name="ball"><link name="body"><inertial><mass value="2"/>
          <inertia ixx="0.02" iyy="0.03" izz="0.04"/></inertial>
          <collision><geometry><sphere radius="0.1"/></geometry></collision></link></robot>"""
        robot = ns.Robot.from_urdf(text, base="floating")
        push = ca.SX.sym("push")
        system = robot.system(robot.contacts(friction=0.5), force=ca.vertcat(0, 0, push, 0, 0, 0), p=push)
        ocp = ns.OCP(
            system, horizon=1.0, x0={"base_z": 0.1, "base_qw": 1.0}, p=[0.0], terminal_cost=(robot.q[2] - 1) ** 2
        )
        rows = np.zeros((3, 13))
        rows[:, [2, 3]] = [[0.1, 1], [0.1, 2], [0.5, 1]]
        rows[2, 5] = 0.5
        drawn = DrawnStates.of(StartTask.of(ocp), {"x": rows})
        assert drawn is not None
        np.testing.assert_allclose(np.linalg.norm(drawn.between[:, 3:7], axis=1), 1.0, rtol=0, atol=1e-12)
        assert read(ocp, {"x": rows}).items == ({"body": "stick"}, {})


@pytest.mark.quick
@pytest.mark.parametrize("rows", [8, 15, 30, 41, 200])
def test_bounces_between_the_rows_of_a_recording_are_seen(rows: int) -> None:
    """A ball with e = .8 falls 1 m: impacts after .45 s and 1.17 s, which no row shows."""
    ocp = bouncing()
    motion = ns.simulate(ocp.system, x0=[1, 0], duration=1.5, u=0.0)
    hits = [event.time for event in motion.events if event.kind == "impact"]
    sequence = read(ocp, {"x": np.array([motion(t) for t in np.linspace(0, 1.5, rows)])})
    assert [set(item) if not isinstance(item, str) else item for item in sequence.items] == [
        set(), "impact ground", set(), "impact ground", set(),
    ]  # fmt: skip
    assert sequence.times == pytest.approx(hits, abs=1.5 / min(rows, 40))


def bouncing() -> ns.OCP:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    ground = ns.Contact("ground", gap=q, restitution=0.8)
    ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - G, contacts=[ground])
    return ns.OCP(ball, horizon=1.5, x0=[1, 0], stage_cost=u**2)


@pytest.mark.quick
def test_motions_are_states_of_a_guess_and_rounding_of_times_is_none() -> None:
    ocp = bouncing()
    motion = ns.simulate(ocp.system, x0=[1, 0], duration=1.5, u=0.0)
    drawn = DrawnStates.of(StartTask.of(ocp), {"x": motion})
    assert drawn is not None
    assert drawn.between[-1] == pytest.approx(motion.x[-1])
    frames = {float(t): {"x": float(t), "height": 0.1} for t in np.cumsum([0.1] * 10)}
    drawn = DrawnStates.of(StartTask.of(puck()), guess_by_name(puck(), frames))
    assert drawn is not None
    assert np.diff(drawn.times).min() > 0.09


@pytest.mark.quick
def test_a_slide_is_one_whatever_speeds_the_problem_has() -> None:
    """Half a metre in a second is slow beside a fall of a second, and no rest."""
    ocp = evolve(puck(), terminal_constraints=[], x0={"height": 0.0})
    sequence = read(ocp, {"x": [0, 0.25, 0.5], "height": [0, 0, 0]})
    assert sequence.items == ({"table": "slip+"},)


@pytest.mark.quick
class TestKinds:
    def kinds(self, ocp: ns.OCP, guess: Any) -> list[type]:
        return [type(each) for each in guessed(StartTask.of(ocp), guess_by_name(ocp, guess), np.inf)]

    def test_states_then_springs_then_the_control(self) -> None:
        frames: dict[float, dict[str, float]] = {0: {"height": 0.1}, 1: {"x": 1.0, "height": 0.0}}
        assert self.kinds(puck(), frames)[0] is Proposal
        assert Trajectory not in self.kinds(puck(), frames)
        with_control = self.kinds(puck(), {t: {**frame, "push": 2.0} for t, frame in frames.items()})
        assert (with_control[0], with_control[-1]) == (Proposal, Trajectory)

    @pytest.mark.parametrize("guess", [[5.0, 0.0], {"push": 5.0}, {"u": [5.0, 0.0]}, {"x": [0, 0.1, 0, 0]}])
    def test_controls_and_states_that_do_not_move_are_simulated(self, guess: Any) -> None:
        assert self.kinds(puck(), guess) == [Trajectory]

    def test_springs_say_nothing_of_contacts_that_bounce(self) -> None:
        frames = {0: {"height": 0.1}, 0.5: {"height": 0.0}, 1: {"x": 1.0, "height": 0.1}}
        assert self.kinds(puck(restitution=0.5, tangent=None, friction=0.0), frames) == [Proposal, Trajectory]

    @pytest.mark.parametrize(
        "guess", [{"x": np.zeros((3, 5))}, {"x": np.full((3, 4), np.nan)}, {"X": np.zeros((3, 4))}]
    )
    def test_what_does_not_fit_is_refused_at_once(self, guess: Any) -> None:
        with pytest.raises(ns.TranscriptionError, match="guess"):
            ns.solve(puck(), guess=guess, effort="quick")


def test_a_drawn_way_around_a_disc_is_found_by_the_plain_call() -> None:
    """Five positions, no velocities, no controls: 0.26744 is the best that any of three seeds has found."""
    plain = ns.solve(around(), effort="quick", seed=2)
    assert not plain.success
    drawn = ns.solve(around(), effort="quick", seed=2, guess={"x": AROUND})
    assert drawn.status is ns.Status.SOLVED
    assert drawn.objective == pytest.approx(0.267435, abs=1e-6)
    assert drawn.sequence is not None
    assert {"tip": "closed"} in drawn.sequence.phases
    assert drawn.candidates is not None
    assert drawn.candidates[0].start == "guess"


@pytest.mark.quick
def test_keyframes_of_a_robot_file_are_a_guess() -> None:
    """A leg stands, is in the air, and stands elsewhere: all velocities of these postures are zero."""
    pytest.importorskip("mujoco")
    robot = ns.Robot.from_mjcf("""<mujoco><worldbody><geom type="plane" size="5 5 1"/><body name="hip" pos="0 0 .6">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1" ref=".6"/>
      <geom size=".1" mass="3" contype="0" conaffinity="0"/>
      <body name="leg"><joint name="leg" type="slide" axis="0 0 -1"/>
      <geom pos="0 0 -.55" size=".05" mass=".3"/></body></body></worldbody><actuator><motor joint="leg"/></actuator>
      <keyframe><key name="stand"/><key name="air" qpos=".3 .8 -.1"/><key name="far" qpos=".6 .6 0"/></keyframe>
      </mujoco>""")
    system, frames = robot.system(robot.contacts(), actuated=["x", "leg"]), robot.keyframes
    ocp = ns.OCP(system, horizon=0.8, x0=frames["stand"].states, stage_cost=ca.sumsqr(system.u))
    sequence = read(ocp, {0: frames["stand"].states, 0.4: frames["air"].states, 0.8: frames["far"].states})
    assert sequence.items == ({"leg": "stick"}, {}, "impact leg", {"leg": "stick"})
    assert sequence.times == pytest.approx([0.2, 0.6], abs=1e-12)
