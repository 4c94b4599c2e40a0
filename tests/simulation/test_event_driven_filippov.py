"""The event-driven simulator on Filippov systems: closed forms, other formulations, and honest ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from models import (
    hysteresis_car,
    oscillator,
    pushed_point,
    relay_feedback,
    sliding_mode,
    stick_slip,
    switching_cases,
    turbo_car,
)
from nosnoc_py.errors import ModelError, NosnocError, OptionError
from nosnoc_py.simulation.event_driven.filippov.laws import BELOW, ON
from nosnoc_py.simulation.event_driven.filippov.model import Filippov
from nosnoc_py.simulation.event_driven.history import EventDrivenSimulator
from nosnoc_py.systems.controls import control_of

SIDES = [[-1], [1]]
GO_ON = {"grazing": "continue"}


def simulate(system: Any, x0: Any, duration: float, *, options: Any = None, **more: Any) -> ns.Trajectory:
    return ns.simulate(system, x0=x0, duration=duration, method=ns.EventDriven(**(options or {})), **more)


def solved(system: Any, x0: Any, duration: float, **more: Any) -> ns.Trajectory:
    trajectory = simulate(system, x0, duration, **more)
    assert trajectory.status is ns.Status.SOLVED, trajectory.message
    return trajectory


def kinds(trajectory: ns.Trajectory) -> list[tuple[str, str]]:
    return [(event.kind, event.name) for event in trajectory.events]


def times(trajectory: ns.Trajectory) -> np.ndarray:
    return np.array([event.time for event in trajectory.events])


def two_sides(flow: Any, below: Any, above: Any, surface: Callable[[ca.SX], ca.SX] = lambda x: x[0]) -> ns.PSS:
    """Two states, a surface "m"; the flows may be functions of the state."""
    x = ca.SX.sym("x", 2)
    made = [f(x) if callable(f) else f for f in (flow, below, above)]
    modes = ns.Modes("m", flows=made[1:], functions=surface(x), signs=SIDES)
    return ns.PSS(x=x, flow=made[0], modes=modes)


# --- closed forms -----------------------------------------------------------------------------------------------------


def test_the_sign_is_exact() -> None:
    x = ca.SX.sym("x")
    system = ns.PSS(x=x, modes=ns.Modes("side", flows=[[1.0], [-1.0]], functions=x, signs=SIDES))
    trajectory = solved(system, [1.3], 2.0)
    assert kinds(trajectory) == [("enter_sliding", "side")]
    assert times(trajectory)[0] == pytest.approx(1.3, abs=1e-14)
    t = np.linspace(0.0, 2.0, 41)
    np.testing.assert_allclose(trajectory(t)[:, 0], np.maximum(1.3 - t, 0.0), rtol=0, atol=1e-14)
    np.testing.assert_allclose(trajectory["theta[side][0]"][-1], 0.5, rtol=0, atol=1e-14)


def test_the_oscillator_turns_around() -> None:
    """The switch and the state at the end, to a hundredth of the tolerance that the closed form is checked with."""
    trajectory = solved(oscillator.build(), oscillator.STANDARD.start, np.pi / 2)
    assert kinds(trajectory) == [("switch", "circle")]
    assert times(trajectory)[0] == pytest.approx(1.0, abs=1e-11)
    t = np.linspace(0.0, np.pi / 2, 60)
    np.testing.assert_allclose(trajectory(t), oscillator.exact(t), rtol=0, atol=1e-10)
    # Negative control: an integrator that knows nothing of the switch, at the same tolerances.
    turns = lambda t, x: _oscillates(x, 1.0 if x @ x < 1.0 else -1.0)  # noqa: E731
    blind = solve_ivp(turns, (0.0, np.pi / 2), oscillator.STANDARD.start, method="DOP853", rtol=1e-6, atol=1e-6)
    assert np.abs(blind.y[:, -1] - oscillator.exact(np.pi / 2)[0]).max() > 1e-7


def _oscillates(x: np.ndarray, side: float) -> np.ndarray:
    return np.asarray(x + side * 2.0 * np.pi * np.array([x[1], -x[0]]))


@pytest.mark.parametrize("name", ["lag", "sliding"])
def test_relay_feedback(name: str) -> None:
    """Limit cycles by matrix exponentials: switches without zeros, swing and slide with them."""
    plant = relay_feedback.PLANTS[name]
    cycle = relay_feedback.limit_cycle(plant)
    trajectory = solved(relay_feedback.build(plant), cycle(0.3), 12.0)
    expected = cycle.switch_times(12.3)
    assert [kind for kind, _ in kinds(trajectory)] == [kind for kind, _ in expected]
    np.testing.assert_allclose(times(trajectory), [t - 0.3 for _, t in expected], rtol=0, atol=1e-10)
    t = np.linspace(0.0, 12.0, 50)
    np.testing.assert_allclose(trajectory(t), [cycle(s + 0.3) for s in t], rtol=0, atol=1e-10)


def test_a_stiff_relay_with_hysteresis() -> None:
    constants = relay_feedback.Hysteresis(lag=0.002)
    start, period = constants.cycle()
    trajectory = solved(relay_feedback.build_hysteresis(constants), start + np.array([0.0, 1e-9]), 1.5 * period)
    assert {kind for kind, _ in kinds(trajectory)} == {"switch"}
    assert np.diff(times(trajectory)) == pytest.approx(0.5 * period, abs=1e-7)


def test_stick_and_slip() -> None:
    trajectory = solved(stick_slip.build(), [0.0, stick_slip.STANDARD.belt], 6.0)
    away, back = stick_slip.event_times(6.0)
    for kind, expected in (("leave_sliding", away), ("enter_sliding", back)):
        found = [event.time for event in trajectory.events if event.kind == kind]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(trajectory.final_state, stick_slip.exact(6.0)[0], rtol=0, atol=1e-10)


def test_stick_and_slip_piece_by_piece() -> None:
    """A friction that falls as 1 / (1 + slip), from slip: SciPy integrates every piece, with the events by hand."""
    stiffness, belt, most, fall = 20.0, 0.3, 2.0, 1.5

    def friction(v: Any) -> Any:
        return most / (1.0 + fall * ca.fabs(belt - v))

    system = two_sides(
        lambda x: ca.vertcat(x[1], -stiffness * x[0]),
        lambda x: ca.vertcat(0, -friction(x[1])),
        lambda x: ca.vertcat(0, friction(x[1])),
        lambda x: belt - x[1],
    )
    found = solved(system, [0.05, 0.0], 5.0)

    def slips(t: float, x: np.ndarray) -> list[float]:
        return [x[1], -stiffness * x[0] + most / (1.0 + fall * (belt - x[1]))]

    def catches(t: float, x: np.ndarray) -> float:
        return float(belt - x[1])

    catches.terminal, catches.direction = True, -1.0  # type: ignore[attr-defined]
    t, x, events = 0.0, np.array([0.05, 0.0]), []
    while t < 5.0:
        piece = solve_ivp(slips, (t, 5.0), x, method="DOP853", rtol=1e-13, atol=1e-14, events=catches, max_step=0.02)
        t, x = piece.t[-1], piece.y[:, -1]
        if piece.status != 1:
            break
        t, x = piece.t_events[0][0], piece.y_events[0][0]
        stick = min((most / stiffness - x[0]) / belt, 5.0 - t)
        events += [("enter_sliding", t)] + [("leave_sliding", t + stick)] * int(t + stick < 5.0)
        t, x = t + stick, np.array([x[0] + belt * stick, belt])
    assert [kind for kind, _ in kinds(found)] == [kind for kind, _ in events]
    assert len(events) >= 5
    np.testing.assert_allclose(times(found), [time for _, time in events], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.final_state, x, rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", switching_cases.CASES, ids=lambda case: case.name)
def test_the_ways_to_meet_a_surface(case: switching_cases.Case) -> None:
    options = {} if case.unique else GO_ON
    trajectory = solved(switching_cases.build(case), case.x0, case.duration, options=options)
    on_surface = [event for event in trajectory.events if event.name == "surface"]
    assert tuple(event.kind for event in on_surface) == case.event_kinds
    np.testing.assert_allclose([event.time for event in on_surface], case.event_times, rtol=0, atol=1e-12)
    t = np.linspace(0.0, case.duration, 30)
    np.testing.assert_allclose(trajectory(t), switching_cases.exact(case, t), rtol=0, atol=1e-12)
    assert ("3 motions are possible" in trajectory.message) == (not case.unique)


def test_a_control_moves_the_sliding_mode() -> None:
    """u(t) on the way to the edge and on it; the motion along the edge is Filippov's."""
    best = sliding_mode.optimum()
    trajectory = solved(sliding_mode.build(), [1.0, 0.0], 2.0, u=lambda t: [float(best.control(t))])
    assert times(trajectory) == pytest.approx([best.arrival], abs=1e-11)
    np.testing.assert_allclose(trajectory.final_state, [0.0, 3.1], rtol=0, atol=1e-10)


def test_a_control_on_a_grid_ends_a_sliding_mode() -> None:
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    edge = ns.Modes("edge", flows=[[1.0, 0.0], [-1.0, 0.0]], functions=x[0], signs=SIDES)
    system = ns.PSS(x=x, u=u, flow=ca.vertcat(u, 1.0), modes=edge)
    trajectory = solved(system, [0.5, 0.0], 4.0, u=[[0.0], [0.5], [2.0], [0.0]])
    assert kinds(trajectory) == [("enter_sliding", "edge"), ("leave_sliding", "edge")]
    np.testing.assert_allclose(times(trajectory), [0.5, 2.0], rtol=0, atol=1e-14)
    expected = np.array([[0.0, 1.7], [1.0, 3.0], [0.5, 3.5]])
    np.testing.assert_allclose(trajectory(expected[:, 1]), expected, rtol=0, atol=1e-13)
    assert trajectory.u_grid.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert trajectory.u[:, 0].tolist() == [0.0, 0.5, 2.0, 0.0]


def test_the_turbo_of_a_car() -> None:
    constants = turbo_car.STANDARD
    trajectory = solved(turbo_car.build(), [0.0, 0.0], 4.0, u=[5.0])
    assert {kind for kind, _ in kinds(trajectory)} == {"switch"}
    passed = times(trajectory)[0]
    assert trajectory(passed)[1] == pytest.approx(5.0 * passed, abs=1e-12)
    after = trajectory.final_state[1] - trajectory(passed)[1]
    assert after == pytest.approx(5.0 * constants.gain * (4.0 - passed), abs=1e-11)


# --- several surfaces -------------------------------------------------------------------------------------------------


def two_frictions() -> ns.PSS:
    """Two partitions that pull the state to x = 0 and y = 0, and carry z along."""
    x = ca.SX.sym("x", 3)
    a = ns.Modes("a", flows=[[1.0, 0.2, 1.0], [-1.0, -0.1, 2.0]], functions=x[0], signs=SIDES)
    b = ns.Modes("b", flows=[[0.1, 1.0, 0.0], [-0.1, -1.0, 4.0]], functions=x[1], signs=SIDES)
    return ns.PSS(x=x, flow=ca.vertcat(0.3, 0.2, 0.0), modes=[a, b])


def test_sliding_on_two_surfaces_in_closed_form() -> None:
    trajectory = solved(two_frictions(), [0.5, 0.6, 0.0], 2.0)
    assert kinds(trajectory) == [("enter_sliding", "a"), ("enter_sliding", "b")]
    first = 0.5 / 0.8  # x' = .3 - 1 - .1
    left = 0.6 - 0.9 * first  # y' = .2 - .1 - 1
    above = 0.6  # of a: .3 + (1 - 2 a) - .1 = 0
    second = first + left / (1.0 - 0.2 - (0.2 * (1 - above) - 0.1 * above))
    np.testing.assert_allclose(times(trajectory), [first, second], rtol=0, atol=1e-13)
    # both: .3 + (1 - 2 a) + .1 (1 - 2 b) = 0, .2 + .2 (1 - a) - .1 a + 1 - 2 b = 0
    a, b = np.linalg.solve([[2.0, 0.2], [0.3, 2.0]], [1.4, 1.4])
    np.testing.assert_allclose(trajectory["theta[a][1]"][-1], a, rtol=0, atol=1e-13)
    np.testing.assert_allclose(trajectory["theta[b][1]"][-1], b, rtol=0, atol=1e-13)
    z = (2.0 + 4.0) * first + (1.0 + above + 4.0) * (second - first) + (1.0 + a + 4.0 * b) * (2.0 - second)
    np.testing.assert_allclose(trajectory.final_state, [0.0, 0.0, z], rtol=0, atol=1e-12)


def _as_heaviside() -> ns.Heaviside:
    x, alpha = ca.SX.sym("x", 3), ca.SX.sym("alpha", 2)
    below, above = ([ca.DM(f) for f in flows] for flows in (([1, 0.2, 1], [0.1, 1, 0]), ([-1, -0.1, 2], [-0.1, -1, 4])))
    flow = ca.vertcat(0.3, 0.2, 0.0)
    for j in range(2):
        flow += (1 - alpha[j]) * below[j] + alpha[j] * above[j]
    return ns.Heaviside(x=x, alpha=alpha, functions=x[:2], flow=flow, function_names=("a", "b"))


def test_a_heaviside_system_is_the_same() -> None:
    pss, step = (solved(system, [0.5, 0.6, 0.0], 2.0) for system in (two_frictions(), _as_heaviside()))
    assert kinds(pss) == kinds(step)
    np.testing.assert_allclose(times(step), times(pss), rtol=0, atol=1e-12)
    t = np.linspace(0.0, 2.0, 30)
    np.testing.assert_allclose(step(t), pss(t), rtol=0, atol=1e-12)
    np.testing.assert_allclose(step["alpha[a]"], pss["theta[a][1]"], rtol=0, atol=1e-12)
    assert {"lambda_n[a]", "lambda_p[b]", "alpha[b]"} <= set(step.series)
    turned = ca.SX.sym("x", 2), ca.SX.sym("alpha")
    flow = sum(w * ca.vertcat(*_turn(turned[0], s)) for w, s in ((1 - turned[1], 1.0), (turned[1], -1.0)))
    circle = ns.Heaviside(x=turned[0], alpha=turned[1], functions=ca.sumsqr(turned[0]) - 1.0, flow=flow)
    found = solved(circle, oscillator.STANDARD.start, np.pi / 2)
    np.testing.assert_allclose(found.final_state, oscillator.exact(np.pi / 2)[0], rtol=0, atol=1e-10)


def _turn(x: ca.SX, side: float) -> list[Any]:
    return [x[0] + side * 2 * np.pi * x[1], x[1] - side * 2 * np.pi * x[0]]


def test_indicators_are_the_same_as_functions() -> None:
    x = ca.SX.sym("x", 2)
    flows = [ca.vertcat(1.0, 0.5 + x[1]), ca.vertcat(-1.0, 0.2)]
    variants = [
        ns.Modes("m", flows=flows, functions=x[0] - 0.1 * x[1], signs=SIDES),
        ns.Modes("m", flows=flows, indicators=ca.vertcat(x[0] - 0.1 * x[1], -x[0] + 0.1 * x[1])),
    ]
    one, two = (solved(ns.PSS(x=x, modes=modes), [0.5, 0.0], 2.0) for modes in variants)
    assert kinds(one) == kinds(two) == [("enter_sliding", "m")]
    np.testing.assert_allclose(two.final_state, one.final_state, rtol=0, atol=1e-12)
    for name in ("theta[m][0]", "theta[m][1]", "lambda[m][0]", "lambda[m][1]"):
        assert two[name][-1] == pytest.approx(one[name][-1], abs=1e-12)
        # inside of the steps as exact as the dense output
        np.testing.assert_allclose(two[name], one[name], rtol=0, atol=1e-8)


def test_a_spiral_comes_to_rest_in_a_corner() -> None:
    """Infinitely many switches, each interval a third of the one before, end where both surfaces meet: at t = .55."""
    x = ca.SX.sym("x", 2)
    flows = [[-1.0, 3.0], [-3.0, -1.0], [3.0, 1.0], [1.0, -3.0]]
    modes = ns.Modes("m", flows=flows, functions=x, signs=[[-1, -1], [1, -1], [-1, 1], [1, 1]])
    trajectory = solved(ns.PSS(x=x, modes=modes), [0.5, 0.6], 3.0)
    assert kinds(trajectory)[-2:] == [("enter_sliding", "m[0]"), ("enter_sliding", "m[1]")]
    assert times(trajectory)[-1] == pytest.approx(0.55, abs=1e-8)
    np.testing.assert_allclose(trajectory.final_state, [0.0, 0.0], rtol=0, atol=1e-8)


def test_crossing_one_surface_while_sliding_on_another() -> None:
    """On x = 0 the right side weighs 1/2 above y = 0, and 2/3 below, where the left one pushes twice as much."""
    x = ca.SX.sym("x", 2)
    flows = [[2.0, -1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, -1.0]]
    modes = ns.Modes("m", flows=flows, functions=x, signs=[[-1, -1], [1, -1], [-1, 1], [1, 1]])
    trajectory = solved(ns.PSS(x=x, modes=modes), [0.5, 1.0], 2.0)
    assert kinds(trajectory) == [("enter_sliding", "m[0]"), ("switch", "m[1]")]
    np.testing.assert_allclose(times(trajectory), [0.5, 1.0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(trajectory.final_state, [0.0, -1.0], rtol=0, atol=1e-14)
    assert trajectory["theta[m][1]"][-1] == pytest.approx(2.0 / 3.0, abs=1e-14)


def test_products_of_step_functions_may_have_no_solution() -> None:
    """Other convex combinations could go on sliding on both surfaces; the message says what leaves them."""
    x = ca.SX.sym("x", 2)
    flows = [[-0.45, 2.83], [-1.78, -2.39], [3.27, -3.02], [1.92, 9.06]]
    modes = ns.Modes("m", flows=flows, functions=x, signs=[[-1, -1], [1, -1], [-1, 1], [1, 1]])
    trajectory = solved(ns.PSS(x=x, modes=modes), [0.0, 0.0], 1.0)
    np.testing.assert_allclose(trajectory.final_state, flows[3], rtol=0, atol=1e-13)
    assert (
        "other convex combinations than products of step functions could slide on m[0] and m[1]" in trajectory.message
    )


def test_what_convex_combinations_leave_open_is_said() -> None:
    """Four flows at a corner: three weights are free, two rates determine them, and z moves with the third."""
    x = ca.SX.sym("x", 3)
    flows = [[1.0, 1.0, 1.0], [-1.0, 1.0, 2.0], [1.0, -1.0, 3.0], [-1.0, -1.0, 5.0]]
    signs = [[-1, -1], [1, -1], [-1, 1], [1, 1]]
    open_, closed = (
        ns.PSS(x=x, modes=ns.Modes("m", flows=f, functions=x[:2], signs=signs))
        for f in (flows, [*flows[:3], [-1.0, -1.0, 4.0]])
    )
    trajectory = solved(open_, [0.5, 0.6, 0.0], 3.0)
    assert "leaves the convex combination open" in trajectory.message
    # products of step functions, all of them one half: z' = (1 + 2 + 3 + 5) / 4
    assert trajectory.final_state[2] == pytest.approx(5.0 * 0.5 + 0.1 * 4.0 + 2.4 * 2.75, abs=1e-12)
    assert solved(closed, [0.5, 0.6, 0.0], 3.0).message == ""


@pytest.mark.parametrize("regions", ["indicators", "signs"])
def test_hysteresis_as_a_filippov_system(regions: Any) -> None:
    """The automaton in numerical time; where a pause is possible it says so, and stops unless an option forbids it."""
    car = hysteresis_car.build(regions=regions)
    u = ns.PiecewiseConstant([0.0, 5.0, 12.0], [[4.0, 1.0], [-3.0, 1.0]])
    trajectory = solved(car, np.zeros(4), 12.0, u=u, options=GO_ON)
    position, velocity, turbo, clock = trajectory.final_state
    change = 3.75  # v = 15; the jump takes 1, so u = 4 acts for a quarter of a second more
    drive = hysteresis_car.drive([4.0, -3.0], [change + 0.25, clock - change - 0.25])
    np.testing.assert_allclose([position, velocity], drive.x[-1], rtol=0, atol=1e-9)
    assert (turbo, clock) == (pytest.approx(0.0, abs=1e-12), pytest.approx(10.0, abs=1e-9))
    assert "2 motions are possible" in trajectory.message
    stopped = simulate(car, np.zeros(4), 12.0, u=u)
    assert stopped.status is ns.Status.GRAZING
    assert stopped.t[-1] == pytest.approx(change, abs=1e-12)


# --- constraints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [None, [[2.0, 0.5], [0.5, 1.0]]])
def test_a_pushed_point(metric: Any) -> None:
    """Floor, wall, the corner between them, and leaving both: polynomials."""
    trajectory = solved(pushed_point.build(metric), pushed_point.exact(0.0, metric)[0], 3.0)
    expected = pushed_point.events(3.0, metric)
    assert sorted(kinds(trajectory)) == sorted((kind, name) for kind, name, _ in expected)
    np.testing.assert_allclose(times(trajectory), [float(event[2]) for event in expected], rtol=0, atol=1e-12)
    t = np.linspace(0.0, 3.0, 40)
    np.testing.assert_allclose(trajectory(t), pushed_point.exact(t, metric), rtol=0, atol=1e-12)
    assert min(trajectory["lambda[floor]"].min(), trajectory["lambda[wall]"].min()) >= 0.0


def test_projection_onto_a_disc() -> None:
    """In the disc straight on, then along its edge: the angle a to the flow obeys a' = -sin a."""
    x = ca.SX.sym("x", 2)
    disc = ns.PDS(x=x, flow=ca.vertcat(1.0, 0.0), constraints=1.0 - ca.sumsqr(x), constraint_names=["edge"])
    trajectory = solved(disc, [0.0, 0.5], 2.5)
    met = np.sqrt(0.75)
    angle = 2.0 * np.arctan(np.tan(np.pi / 12.0) * np.exp(-(2.5 - met)))
    assert kinds(trajectory) == [("contact", "edge")]
    assert times(trajectory)[0] == pytest.approx(met, abs=1e-12)
    np.testing.assert_allclose(trajectory.final_state, [np.cos(angle), np.sin(angle)], rtol=0, atol=1e-11)
    assert trajectory["lambda[edge]"][-1] == pytest.approx(0.5 * np.cos(angle), abs=1e-11)


def test_redundant_constraints() -> None:
    x = ca.SX.sym("x", 2)
    box = ns.PDS(x=x, flow=ca.vertcat(-1.0, -0.5), constraints=ca.vertcat(x[0], 2.0 * x[0], x[1]))
    np.testing.assert_allclose(solved(box, [1.0, 1.0], 3.0).final_state, [0.0, 0.0], rtol=0, atol=1e-12)


# --- algebraic variables ----------------------------------------------------------------------------------------------


def test_algebraic_variables_by_newton() -> None:
    """z^3 + z = 2 (1 + y) drives x; its integral by SciPy's root finder and quadrature."""
    from scipy.integrate import quad
    from scipy.optimize import brentq

    x, z = ca.SX.sym("x", 2), ca.SX.sym("z")
    own = ns.Algebraic(z, z**3 + z - 2.0 * (1.0 + x[1]), initial=1.0, names=["z"])
    modes = ns.Modes("m", flows=[ca.vertcat(z, 1.0), ca.vertcat(-z, 1.0)], functions=x[0], signs=SIDES)
    trajectory = solved(ns.PSS(x=x, modes=modes, algebraic=own), [1.0, 0.0], 2.0)

    def root(y: float) -> float:
        return float(brentq(lambda v: v**3 + v - 2.0 * (1.0 + y), 0.0, 3.0, xtol=1e-15))

    met = brentq(lambda t: quad(root, 0.0, t, epsabs=1e-14)[0] - 1.0, 0.1, 1.9, xtol=1e-14)
    assert times(trajectory) == pytest.approx([met], abs=1e-11)
    np.testing.assert_allclose(trajectory["z"][-1], root(2.0), rtol=0, atol=1e-11)


def test_algebraic_equations_with_the_step_function() -> None:
    """On the surface x' = z = 0 tells alpha through z + z^3 / 10 = 1.3 - 2 alpha + y (1 - 2 alpha) / 10."""
    x, alpha, z = ca.SX.sym("x", 2), ca.SX.sym("alpha"), ca.SX.sym("z")
    own = ns.Algebraic(z, z + 0.1 * z**3 - (1 - 2 * alpha) * (1 + 0.1 * x[1]) - 0.3, names=["z"])
    system = ns.Heaviside(x=x, alpha=alpha, functions=x[0], flow=ca.vertcat(z, 1), algebraic=own)
    trajectory = solved(system, [1.0, 0.0], 2.0)
    assert trajectory["z"][-1] == pytest.approx(0.0, abs=1e-13)
    assert trajectory["alpha[c_0]"][-1] == pytest.approx(0.5 + 0.15 / 1.2, abs=1e-13)


def test_algebraic_variables_end_at_bounds_and_folds() -> None:
    x, z = ca.SX.sym("x", 2), ca.SX.sym("z")
    modes = ns.Modes("m", flows=[[1.0, 0.0], [-1.0, 0.0]], functions=x[0], signs=SIDES)
    bounded = ns.PSS(x=x, flow=ca.vertcat(0, 1), modes=modes, algebraic=ns.Algebraic(z, z - x[1], upper=0.7))
    trajectory = simulate(bounded, [0.0, 0.0], 3.0)
    assert (trajectory.status, trajectory.message) == (ns.Status.STEP_FAILED, "z_0 reaches its bound")
    assert trajectory.t[-1] == pytest.approx(0.7, abs=1e-12)
    own = ns.Algebraic(z, z**2 + x[1] - 1.0, initial=1.0)
    trajectory = simulate(ns.PSS(x=x, flow=ca.vertcat(0, 1), modes=modes, algebraic=own), [0.5, 0.0], 3.0)
    assert trajectory.status is ns.Status.NUMERICAL_ERROR
    assert trajectory.t[-1] == pytest.approx(1.0, abs=1e-6)
    none = ns.Algebraic(z, z**2 + 1.0, initial=1.0)
    trajectory = simulate(ns.PSS(x=x, flow=ca.vertcat(0, 1), modes=modes, algebraic=none), [0.5, 0.0], 3.0)
    assert (trajectory.status, trajectory.message) == (
        ns.Status.STEP_FAILED,
        "the algebraic equations have no solution",
    )


# --- against the finite elements --------------------------------------------------------------------------------------


def test_finite_elements_converge_to_it() -> None:
    """Two Radau stages: order 3, with the same events and names."""
    plant = relay_feedback.SLIDING
    x0, system = relay_feedback.limit_cycle(plant)(0.3), relay_feedback.build(plant)
    here = solved(system, x0, 7.0)
    errors = []
    for steps in (20, 40):
        there = ns.simulate(system, x0=x0, duration=7.0, method=ns.FESD(), steps=steps)
        assert kinds(there) == kinds(here)
        assert set(there.series) == set(here.series)
        errors.append(np.abs(there.final_state - here.final_state).max())
    assert errors[1] < 5e-5
    assert 2.5 < np.log2(errors[0] / errors[1]) < 4.5


# --- honest ends ------------------------------------------------------------------------------------------------------


def test_a_surface_touched_without_speed() -> None:
    """c = x + (y - 1)^2 with x = 0: stop, or go on with a word; a little beside it crosses, or does not touch.

    If the flow beyond leads back, both agree up to rounding: the motion continues. If it leads away, it stops.
    """
    away = two_sides([0, 1], [-5.0, 0], [0.0, 0.0], lambda x: x[0] + (x[1] - 1.0) ** 2)
    trajectory = simulate(away, [0.0, 0.0], 2.0)
    assert trajectory.status is ns.Status.GRAZING
    assert trajectory.t[-1] == pytest.approx(1.0, abs=1e-6)
    assert "3 motions are possible at m" in solved(away, [0.0, 0.0], 2.0, options=GO_ON).message
    system = two_sides([0, 1], [5.0, 0], [0.0, 0.0], lambda x: x[0] + (x[1] - 1.0) ** 2)
    for options in ({}, GO_ON):
        trajectory = solved(system, [0.0, 0.0], 2.0, options=options)
        assert "m is touched without speed at t = 1" in trajectory.message
    assert solved(system, [1e-6, 0.0], 2.0).events == ()
    beside = solved(system, [-1e-6, 0.0], 2.0)
    assert kinds(beside) == [("enter_sliding", "m"), ("leave_sliding", "m")]
    np.testing.assert_allclose(times(beside), [0.999, 1.0], rtol=0, atol=1e-9)


def test_a_belt_touches_the_speed_of_its_block_as_it_was_left() -> None:
    """After the first stick the orbit touches the belt's speed once per period, whatever the data are."""
    x = ca.SX.sym("x", 2)
    friction = ns.Modes(
        "belt", flows=[ca.vertcat(0, -0.3), ca.vertcat(0, 0.3)], functions=x[1] - 0.2, signs=SIDES[::-1]
    )
    block = ns.PSS(x=x, flow=ca.vertcat(x[1], -x[0]), modes=friction)
    trajectory = solved(block, [0.0, 0.0], 20.0)
    assert kinds(trajectory) == [("enter_sliding", "belt"), ("leave_sliding", "belt")]
    assert trajectory.message == ""
    # x'' = 0.3 - x up to x' = 0.2, then stick up to x = 0.3.
    stuck = np.arcsin(0.2 / 0.3)
    left = stuck + 0.3 * np.cos(stuck) / 0.2
    after = 20.0 - left
    expected = [0.3 + 0.2 * np.sin(after), 0.2 * np.cos(after)]
    np.testing.assert_allclose(trajectory.final_state, expected, rtol=0, atol=1e-10)


def test_leaving_by_higher_derivatives() -> None:
    """The flow above turns away with (t - 1)^3; a bound that is touched with (t - 1)^2 does not end the sliding."""
    leaves = two_sides([0, 1], [1.0, 0.0], lambda x: ca.vertcat((x[1] - 1.0) ** 3, 0.0))
    trajectory = solved(leaves, [0.0, 0.0], 2.0)
    assert kinds(trajectory) == [("leave_sliding", "m")]
    np.testing.assert_allclose(trajectory.final_state, [0.25, 2.0], rtol=0, atol=1e-9)
    stays = two_sides([0, 1], [1.0, 0.0], lambda x: ca.vertcat(-((x[1] - 1.0) ** 2), 0.0))
    trajectory = solved(stays, [0.0, 0.0], 2.0)
    assert trajectory.events == ()
    np.testing.assert_allclose(trajectory.final_state, [0.0, 2.0], rtol=0, atol=1e-12)


def test_a_surface_without_effect_is_crossed_and_not_slid_on() -> None:
    """Both flows cross at the same rate: nothing tells a weight, and rounding must not."""
    trajectory = solved(two_sides([1, 1], [0.0, 0.0], [0.0, 0.0]), [-0.5, 0.0], 2.0)
    assert kinds(trajectory) == [("switch", "m")]
    assert simulate(two_sides([0, 1], [0.0, 0.0], [0.0, 1.0]), [0.0, 0.0], 2.0).status is ns.Status.GRAZING


def test_a_flow_has_to_exist_only_around_its_region() -> None:
    """x' = sqrt(1 - x) below zero, sqrt(1 + x) above, each NaN far away: -sqrt(1 - x) and its mirror rise as t / 2."""
    system = two_sides([0, 0], lambda x: ca.vertcat(ca.sqrt(1 - x[0]), 0), lambda x: ca.vertcat(ca.sqrt(1 + x[0]), 0))
    trajectory = solved(system, [-3.0, 0.0], 4.0)
    assert times(trajectory) == pytest.approx([2.0], abs=1e-11)
    assert trajectory.final_state[0] == pytest.approx(3.0, abs=1e-10)


def test_an_escape_in_finite_time_is_a_status() -> None:
    """x' = 1 + x^2 beyond the surface: x is infinite pi / 2 seconds later."""
    trajectory = simulate(two_sides([0, 0], [1.0, 0.0], lambda x: ca.vertcat(1.0 + x[0] ** 2, 0)), [-0.5, 0.0], 3.0)
    assert trajectory.status in (ns.Status.STEP_FAILED, ns.Status.NUMERICAL_ERROR)
    assert trajectory.t[-1] == pytest.approx(0.5 + np.pi / 2, abs=1e-6)


def test_infinitely_many_switches_end_in_a_status() -> None:
    """Fuller's phenomenon: a double integrator with a switching curve that meets the origin in finite time."""
    system = two_sides(
        lambda x: ca.vertcat(x[1], 0), [0.0, 1.0], [0.0, -1.0], lambda x: x[0] + 0.44 * x[1] * ca.fabs(x[1])
    )
    trajectory = simulate(system, [1.0, 0.0], 6.0)
    assert trajectory.status is ns.Status.ZENO
    gaps = np.diff(times(trajectory)[:8])
    np.testing.assert_allclose(gaps[1:] / gaps[:-1], gaps[1] / gaps[0], rtol=1e-6)
    assert trajectory.t[-1] == pytest.approx(times(trajectory)[7], abs=1e-3)
    fast = two_sides([0, 1], [0.0, 0.0], [1.0, 0.0], lambda x: ca.sin(500.0 * x[1]))
    trajectory = simulate(fast, [0.0, 0.001], 3.0, options={"max_impacts": 50})
    assert (trajectory.status, trajectory.message) == (ns.Status.ZENO, "50 switches within 1 s")


def test_callback_and_time_limit() -> None:
    swings = two_sides(lambda x: ca.vertcat(x[1], 0), [0.0, 1.0], [0.0, -1.0])
    seen: list[float] = []

    def watch(state: Any) -> Any:
        seen.append(state.t)
        return ns.Stop if state.t > 3.0 else None

    trajectory = simulate(swings, [1.0, 0.0], 20.0, callback=watch)
    assert trajectory.status is ns.Status.STOPPED
    assert seen == sorted(seen)
    assert seen[-1] > 3.0 >= seen[-2]
    assert trajectory.t[-1] == seen[-1]
    assert np.abs(np.array(seen) - np.sqrt(2.0)).min() < 1e-12  # the end of a phase, besides steps of the integrator
    assert simulate(swings, [1.0, 0.0], 1e5, time_limit=0.05).status is ns.Status.TIME_LIMIT


def test_the_referee_starts_in_given_modes() -> None:
    """A window of a solution that slides 1e-6 beside the surface: without its modes there is an event more."""
    system = two_sides([0, 1], [1.0, 0.0], [-1.0, 0.0])
    referee, control, x = (
        EventDrivenSimulator(system, ns.EventDriven()),
        control_of(None, 0, 1.0),
        np.array([1e-6, 0.0]),
    )
    model = referee.model
    assert isinstance(model, Filippov)
    assert model.modes(np.array([x, x]), np.zeros(0), 1e-5) == (ON,)
    assert model.modes(np.array([x, -x]), np.zeros(0), 1e-7) == (BELOW,)
    held = referee.run(x, control, np.zeros(0), start=0.25, end=1.0, modes=(ON,))
    assert (len(held.events), len(held.nodes), held.t) == (0, 1, 1.0)
    np.testing.assert_allclose(held.x, [0.0, 0.75], rtol=0, atol=1e-14)
    assert [event.kind for event in referee.run(x, control, np.zeros(0)).events] == ["enter_sliding"]
    with pytest.raises(OptionError, match="modes: expected 1"):
        referee.run(x, control, np.zeros(0), modes=(ON, ON))
    with pytest.raises(OptionError, match="expected a CLS, given a PSS"):
        _ = referee.mechanics


@pytest.mark.parametrize(
    ("error", "message", "given"),
    [
        (NosnocError, "x0", {"x0": [1.0]}),
        (NosnocError, "x0", {"x0": [np.nan, 0.0]}),
        (ModelError, "violates constraint 'c_0'", {"x0": [-1.0, 0.0]}),
        (OptionError, "steps: expected a positive whole number", {"steps": 0.5}),
        (OptionError, "duration", {"duration": -1.0}),
    ],
)
def test_mistakes_raise_at_once(error: Any, message: str, given: Any) -> None:
    x = ca.SX.sym("x", 2)
    pds = ns.PDS(x=x, flow=ca.vertcat(-1.0, 0.0), constraints=x[0])
    with pytest.raises(error, match=message):
        ns.simulate(pds, **{"x0": [1.0, 0.0], "duration": 1.0, "method": ns.EventDriven(), **given})


def test_other_systems_are_refused() -> None:
    with pytest.raises(OptionError, match="expected a CLS, PSS, Heaviside, PDS or HybridSystem, given a str"):
        EventDrivenSimulator("x", ns.EventDriven())  # type: ignore[arg-type]


# --- where two surfaces of one partition meet ---


def stick_slip_of_two_surfaces() -> ns.PSS:
    """Two blocks on a spring and two belts (P. Piiroinen and Yu. Kuznetsov, ACM TOMS 34(3), 2008), as nosnoc has it."""
    x = ca.SX.sym("x", 3)
    first, second = x[1], x[2]
    together, up = 0.5 * (first + second), -x[0] + 1 / (1.2 - first)
    down, up_too = -x[0] - 1 / (0.8 + first), -x[0] + 1 / (1.4 - second)
    flows = [
        ca.vertcat(together, up, up_too),
        ca.vertcat(together, up, -x[0] + 1 / (0.6 + second)),
        ca.vertcat(together, down, up_too),
        ca.vertcat(together + x[0] * (first + 0.8) * (second + 0.6), down, -x[0] - 1 / (0.6 + second)),
    ]
    signs = [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    belts = ns.Modes("belt", flows=flows, functions=ca.vertcat(first - 0.2, second - 0.4), signs=signs)
    return ns.PSS(x=x, modes=belts)


def test_surfaces_that_meet_are_slid_on_and_left() -> None:
    """Against DOP853 phase by phase, written by hand: slip, stick of the first block, stick of both, slip.

    Where both stick, the second one does so on the boundary: the flows above its surface do not leave it.
    """
    duration = 20.0

    def slip(t: float, x: np.ndarray) -> list[float]:
        return [0.5 * (x[1] + x[2]), -x[0] + 1 / (1.2 - x[1]), -x[0] + 1 / (1.4 - x[2])]

    def one(t: float, x: np.ndarray) -> list[float]:
        return [0.5 * (0.2 + x[2]), 0.0, -x[0] + 1 / (1.4 - x[2])]

    def both(t: float, x: np.ndarray) -> list[float]:
        return [0.3 + 0.5 * (1.0 - x[0]) * x[0], 0.0, 0.0]

    ends = {slip: lambda t, x: x[1] - 0.2, one: lambda t, x: x[2] - 0.4, both: lambda t, x: x[0] - 1.0}
    for end in ends.values():
        end.terminal, end.direction = True, 1.0
    t, x, times, phases = 0.0, np.array([0.04, -0.01, -0.02]), [], iter((slip, one, both, *(slip, both) * 9))
    while t < duration:
        phase = next(phases)
        found = solve_ivp(phase, (t, duration), x, "DOP853", events=[ends[phase]], rtol=1e-12, atol=1e-13)
        t, x = found.t[-1], found.y[:, -1]
        times += [t] if found.status == 1 else []
    motion = ns.simulate(stick_slip_of_two_surfaces(), x0=[0.04, -0.01, -0.02], duration=duration)
    assert motion.success, motion.message
    assert "other convex combinations than products of step functions" in motion.message
    np.testing.assert_allclose(motion.final_state, x, rtol=0, atol=1e-9)
    np.testing.assert_allclose(np.unique([round(event.time, 9) for event in motion.events]), times, rtol=0, atol=2e-9)
