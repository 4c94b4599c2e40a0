"""Guesses by the names of states and controls, keyframes, and sequences of modes."""

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import free_box
from nosnoc_py.errors import TranscriptionError
from nosnoc_py.systems.named_guesses import guess_by_name

pytestmark = pytest.mark.quick
METHOD = ns.FESDJ(control_stages=4, finite_elements=1, rk_stages=2)


def problem(timed=False):
    """A ball over a paddle with a thrust."""
    q, v, u, t = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u"), ca.SX.sym("t")
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        t=t if timed else None,
        mass_matrix=ca.diag(ca.DM([1, 0.1])),
        force=ca.vertcat(u - 9.81, -0.981),
        contacts=[ns.Contact("paddle", gap=q[1] - q[0], restitution=0.5)],
        names={"q": ["paddle", "ball"], "v": ["vp", "vb"], "u": ["thrust"]},
    )
    return ns.OCP(
        system,
        horizon=1.0,
        x0={"ball": 1.0},
        stage_cost=0.01 * (u - 9.81) ** 2,
        terminal_constraints=[q[1] >= 1],
        bounds={"thrust": (-50, 50)},
    )


def states_of(ocp, guess, names):
    """What a guess makes of states at the end of every stage, and of the control."""
    made = ns.transcribe(ocp, METHOD)
    w = made.initial_guess(guess)
    read = made.read(w, made.parameters())
    columns = [ocp.system.state_names.index(name) for name in names]
    return read.x_right[:, columns], made.controls(w)[:, 0]


def test_keyframes_are_joined_by_lines():
    """Velocities are slopes unless they are given; what is never mentioned stays at x0; held before and after."""
    guess = {0: {"ball": 1.0, "thrust": 8.0}, 0.5: {"ball": 0.0, "vp": 2.0}, 0.75: {"ball": 1.0, "thrust": 20.0}}
    x, u = states_of(problem(), guess, ["ball", "vb", "paddle", "vp"])
    np.testing.assert_allclose(x[:, 0], [0.5, 0.0, 1.0, 1.0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(x[[0, 3], 1], [-2.0, 0.0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(x[:, 2:], [[0.0, 2.0]] * 4, rtol=0, atol=1e-12)
    np.testing.assert_allclose(u, [10.0, 14.0, 18.0, 20.0], rtol=0, atol=1e-12)


def test_names_with_numbers_rows_and_functions():
    """States at equal distances, controls on intervals, functions of time, and a number for all of it."""
    guess = {"ball": [1.0, 0.0, 1.0], "vb": lambda t: -t, "paddle": 0.1, "thrust": [5.0, 15.0]}
    x, u = states_of(problem(), guess, ["ball", "vb", "paddle"])
    np.testing.assert_allclose(x[:, 0], [0.5, 0.0, 0.5, 1.0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(x[:, 1], [-0.25, -0.5, -0.75, -1.0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(x[:, 2], 0.1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(u, [5.0, 5.0, 15.0, 15.0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "guess", [None, [3.0], {"ball": 0.5}, {0: {"ball": 0.5}}, {"x": [0, 1, 0, 0]}, {"x": np.ones((3, 4))}]
)
def test_time_goes_on_in_every_guess(guess):
    """Of a system with time, which nobody has to mention."""
    x, _ = states_of(problem(timed=True), guess, ["t"])
    np.testing.assert_allclose(x[:, 0], [0.25, 0.5, 0.75, 1.0], rtol=0, atol=1e-12)


def test_a_sequence_is_a_start_for_finite_elements():
    """Its multi-phase optimum is the guess: a bounce that finite elements keep."""
    ocp = problem()
    bounce = ns.Sequence([{}, "impact paddle", {}])
    solution = ns.solve(ocp, ns.FESDJ(control_stages=8, rk_stages=2), guess=bounce)
    assert solution.success
    assert [event.kind for event in solution.events] == ["impact"]


def test_a_sequence_is_a_start_for_regions():
    """Two modes of a Filippov system, too: from below a surface up to it, and along it."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    modes = ns.Modes("side", flows=[ca.vertcat(-3), ca.vertcat(3)], functions=x, signs=[[1], [-1]])
    ocp = ns.OCP(
        ns.PSS(x=x, u=u, flow=u, modes=modes),
        horizon=1.0,
        x0=[-1.0],
        stage_cost=u**2 + x**2,
        bounds=ns.Bounds(u=(-1, 1)),
    )
    start = ns.Sequence([{"side": "-"}, {"side": "0"}])
    solution = ns.solve(ocp, ns.FESD(control_stages=4, finite_elements=2), guess=start)
    assert solution.success
    assert [event.kind for event in solution.events] == ["enter_sliding"]


@pytest.mark.parametrize(
    ("guess", "message"),
    [
        ({"knee": 1.0}, "guess: unknown name 'knee'. Legal: paddle, ball, vp, vb, thrust, x, u"),
        ({0: {"knee": 1.0}}, "guess: the keyframe at 0 s: unknown name 'knee'"),
        ({2.0: {"ball": 1.0}}, "guess: the keyframe at 2 s lies outside of the horizon, 0 to 1 s"),
        ({0: 3.0}, "guess: the keyframe at 0 s: expected names with numbers, given 3.0"),
        ({0: {"ball": "a"}}, "guess: keyframe at 0 s: ball: expected 1 numbers, given 'a'"),
        ({"ball": [1.0, np.nan]}, "guess: ball: contains NaN"),
    ],
)
def test_mistakes_are_told(guess, message):
    """What is given and what is expected."""
    with pytest.raises(ns.TranscriptionError, match=message):
        ns.transcribe(problem(), METHOD).solve(guess=guess)


def test_keyframes_of_a_quaternion_turn_the_short_way():
    system = free_box.build(thrust=True)
    ocp = ns.OCP(system, horizon=1.0, x0=free_box.start((0, 0, 0), 1.0))
    half = np.sqrt(0.5)
    first = {"qw": 1, "qx": 0, "qy": 0, "qz": 0, "z": 1}
    guess = guess_by_name(ocp, {0: first, 1: {"qw": -half, "qx": -half, "qy": 0, "qz": 0, "z": 2}})
    middle = guess["x"](0.5)
    np.testing.assert_allclose(middle[3:7], [np.cos(np.pi / 8), np.sin(np.pi / 8), 0, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(middle[7:], [0, 0, 1, np.pi / 2, 0, 0], rtol=0, atol=1e-6)
    with pytest.raises(TranscriptionError, match="qw, qx, qy, qz are one quaternion; give all four"):
        guess_by_name(ocp, {0: first, 1: {"qx": 1}})
