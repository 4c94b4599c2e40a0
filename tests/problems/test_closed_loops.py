"""Closed loops as values, their systems against closed forms and SciPy, and the benchmark over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from problems import walled_cart_pole
from problems.benchmarks import closed_loops
from problems.loops import LOOPS, MODULES, cart_pole, drone, hopper, particle, projected_discs, spinner, tank
from problems.loops.common import Kicks, closed
from tests.problems.command_line import run_json

TIGHT = {"rtol": 1e-11, "atol": 1e-12}
PERIODS = {
    "cart_pole": 0.1,
    "drone": 0.05,
    "spinner": 0.1,
    "projected_discs": 4 / 30,
    "tank": 0.25,
    "walls": 0.05,
    "paddle": 0.08,
    "discs": 0.1,
    "particle": 0.1,
    "hopper": 0.02,
}


# Loops as values


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_has_one_control_stage_for_each_period(name: str) -> None:
    loop = LOOPS[name]()
    assert loop.name == name
    assert loop.period == pytest.approx(PERIODS[name], rel=1e-12)
    assert loop.ocp.horizon / loop.method.control_stages == pytest.approx(loop.period, rel=1e-12)
    np.testing.assert_array_equal(loop.ocp.x0, loop.x0)
    assert loop.kicks is None or loop.kicks.state in loop.plant.state_names
    assert loop.plant.state_names == loop.ocp.system.state_names


def test_noise_is_a_hundredth_of_the_nominal_values() -> None:
    """Of 400 samples, within 15 % (four standard deviations of the estimate)."""
    log = closed(tank.task(), lambda t, x: np.array([0.1]), samples=400, kick=0.0)
    deviation = (log.measured - log.x[:-1]).std(axis=0)
    np.testing.assert_allclose(deviation, [0.1, 1.0], rtol=0.15)


def test_kicks_come_every_eighth_sample_to_sides_of_the_seed() -> None:
    jumps = Kicks(state="v", size=2.0).jumps(0.1, 200, seed=3)
    assert [time for time, _ in jumps] == pytest.approx(np.arange(0.8, 20.0, 0.8), abs=1e-12)
    sides = [jump["v"] for _, jump in jumps]
    assert set(sides) == {-2.0, 2.0}
    assert sides == [jump["v"] for _, jump in Kicks(state="v", size=2.0).jumps(0.1, 200, seed=3)]
    assert sides != [jump["v"] for _, jump in Kicks(state="v", size=2.0).jumps(0.1, 200, seed=4)]
    assert {abs(jump["v"]) for _, jump in Kicks(state="v", size=2.0).jumps(0.1, 200, 0, size=1.0)} == {1.0}


@pytest.mark.parametrize(("kick", "expected"), [(None, 5.0), (0.0, 0.0), (3.0, 3.0)])
def test_the_size_of_a_kick_reaches_the_plant(kick: float | None, expected: float) -> None:
    """With the valve closed the liquid rises by 2.5 mol/s; all beyond is the jump."""
    log = closed(tank.task(), lambda t, x: np.array([0.0]), samples=9, kick=kick)
    beyond = log["liquid"] - tank.START[1] - 2.5 * log.t
    assert np.abs(beyond[:8]).max() < 1e-8
    assert np.abs(beyond[8:]) == pytest.approx(expected, abs=1e-8)


# Systems


def test_the_cart_pole_is_that_of_the_mass_matrix_form() -> None:
    """Both equations of motion with the mass matrix of cart and pole, solved by NumPy and integrated by SciPy."""
    cart, pole, length, friction, force = 1.0, 0.1, 1.0, 3.0, 8.0

    def flow(t: float, x: np.ndarray) -> np.ndarray:
        mass = np.array([[cart + pole, pole * length * np.cos(x[1])], [pole * length * np.cos(x[1]), pole * length**2]])
        load = [force - friction + pole * length * x[3] ** 2 * np.sin(x[1]), -pole * 9.81 * length * np.sin(x[1])]
        return np.concatenate([x[2:], np.linalg.solve(mass, load)])

    start = [0.2, 0.7, 1.0, -2.0]
    expected = solve_ivp(flow, (0, 0.5), start, method="DOP853", **TIGHT)
    assert expected.y[2].min() > 0.5  # slips forwards all the time
    motion = ns.simulate(cart_pole.task().plant, x0=start, duration=0.5, u=force)
    np.testing.assert_allclose(motion.final_state, expected.y[:, -1], rtol=0, atol=1e-7)


def test_the_drone_hovers_with_its_load() -> None:
    start = np.array(drone.START) + np.array([0, 1, 0, 0, 1, 0, 0, 0, 0, 0])
    motion = ns.simulate(drone.plant(), x0=start, duration=1.0, u=[drone.HOVER] * 2)
    np.testing.assert_allclose(motion.final_state, start, rtol=0, atol=1e-9)


def test_a_slack_rope_leaves_load_and_drone_alone() -> None:
    """Falls with drag: v = -(m g / c) (1 - exp(-c t / m)); without thrust, and pitch by the moment of the rotors."""
    start = np.array([0, 3.0, 0, 0, 2.5, 0, 0, 0, 0, 0])
    motion = ns.simulate(drone.plant(), x0=start, duration=0.3, u=[-1.0, 1.0])
    assert motion.events == ()

    def speed(mass: float, drag: float) -> float:
        return -mass * 9.81 / drag * (1 - np.exp(-drag * 0.3 / mass))

    assert motion.final_state[[6, 9]] == pytest.approx([speed(1.0, 0.1), speed(0.35, 0.05)], abs=1e-8)
    rate = 2 * 0.22 / 0.05 * (1 - np.exp(-0.05 / 0.05 * 0.3))
    assert motion.final_state[7] == pytest.approx(rate, abs=1e-8)


def test_a_drone_that_leans_left_is_pushed_left_and_drag_slows_its_load() -> None:
    """At a pitch of a quarter turn the thrust is horizontal: v = -(F / c) (1 - exp(-c t / m))."""
    start = np.array([0, 3.0, 0.5 * np.pi, 0, 2.5, 0, 0, 0, -1.0, 0])
    motion = ns.simulate(drone.plant(), x0=start, duration=0.3, u=[3.0, 3.0])
    assert motion.events == ()
    speeds = [-6.0 / 0.1 * (1 - np.exp(-0.1 * 0.3)), -np.exp(-0.05 / 0.35 * 0.3)]
    assert motion.final_state[[5, 8]] == pytest.approx(speeds, abs=1e-8)


def test_a_rope_that_is_pulled_taut_gives_both_one_velocity() -> None:
    """Without restitution the impulse keeps the momentum along the rope; drag is small in the moment before."""
    start = np.array([0, 3.0, 0, 0, 3.0 - drone.ROPE + 1e-6, 0, 2.0, 0, 0, -1.0])
    impact, *_ = ns.simulate(drone.plant(), x0=start, duration=0.01, u=[drone.HOVER] * 2).events
    assert impact.name == "rope"
    common = (1.0 * 2.0 - 0.35 * 1.0) / 1.35
    assert impact.impulse == pytest.approx(1.0 * (2.0 - common), abs=1e-4)


def test_a_free_finger_keeps_its_energy_and_the_disc_slows_down() -> None:
    """Energy from places of the links by differences of angles, not from the mass matrix."""
    start = np.array([0.3, 0.4, 0.0, 1.0, -2.0, 3.0])
    motion = ns.simulate(spinner.plant(), x0=start, duration=0.3, u=[0.0, 0.0])
    assert motion.events == ()

    def energy(x: np.ndarray) -> float:
        def middles(q: np.ndarray) -> np.ndarray:
            upper, lower = np.array([np.sin(q[0]), np.cos(q[0])]), np.array([np.sin(q[0] + q[1]), np.cos(q[0] + q[1])])
            return np.array([0.5 * upper, upper + 0.5 * lower])

        step = 1e-6
        speeds = (middles(x[:2] + step * x[3:5]) - middles(x[:2] - step * x[3:5])) / (2 * step)
        turning = 0.5 * 0.0839 * (x[3] ** 2 + (x[3] + x[4]) ** 2)
        return float(0.5 * 0.5 * (speeds**2).sum() + turning + 0.5 * 9.81 * middles(x[:2])[:, 1].sum())

    assert energy(motion.final_state) == pytest.approx(energy(start), abs=1e-7)
    assert motion.final_state[5] == pytest.approx(3.0 * np.exp(-0.1 / 0.0225 * 0.3), abs=1e-8)


def test_a_tip_that_sticks_to_the_rim_has_its_velocity() -> None:
    """After the impact the tip moves with the rim, R times the speed of the disc, counterclockwise."""
    reach = np.hypot(1.2, 1.0)  # the tip at the left of the rim, pressed against it
    elbow = 2 * np.arccos(reach / 2)
    shoulder = np.pi / 2 - np.arctan2(1.0, 1.2) - elbow / 2
    start = np.array([shoulder, elbow, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(_tip(start), [1.2, 1.0], atol=1e-12)
    start[3:5] = np.linalg.solve(_slope(start), [1.0, 0.1])  # into the disc, and up
    motion = ns.simulate(spinner.plant(), x0=start, duration=1e-6, u=[0.0, 0.0])
    after = motion.final_state
    assert motion.events[0].kind == "impact"
    assert _slope(after) @ after[3:5] == pytest.approx([0.0, -0.3 * after[5]], abs=1e-5)
    assert after[5] < -0.1  # up on the left is clockwise


def _tip(x: np.ndarray) -> np.ndarray:
    return np.array([np.sin(x[0]) + np.sin(x[0] + x[1]), np.cos(x[0]) + np.cos(x[0] + x[1])])


def _slope(x: np.ndarray) -> np.ndarray:
    step = 1e-6 * np.eye(2)
    return np.array([(_tip(x[:2] + h) - _tip(x[:2] - h)) / 2e-6 for h in step]).T


def test_a_disc_that_is_pushed_centrally_halves_the_velocity() -> None:
    """One metre of free way at 1 m/s, then both go at 0.5 m/s: the projection divides the change equally."""
    motion = ns.simulate(projected_discs.plant(), x0=[-4, 0, 0, 0], duration=2.0, u=[1.0, 0.0])
    assert [event.time for event in motion.events] == pytest.approx([1.0], abs=1e-9)
    assert motion.final_state == pytest.approx([-2.5, 0, 0.5, 0], abs=1e-8)


def test_a_disc_that_is_pushed_off_its_centre_turns_away() -> None:
    """The approach along the line of centres is shared equally: the projection by hand, integrated by SciPy."""

    def flow(t: float, x: np.ndarray) -> np.ndarray:
        normal = (x[:2] - x[2:]) / np.hypot(*(x[:2] - x[2:]))
        share = 0.5 * max(0.0, -normal @ [1.0, 0.0])
        return np.concatenate([[1.0, 0.0] + share * normal, -share * normal])

    start = [-3 * np.cos(0.3), 3 * np.sin(0.3), 0.0, 0.0]
    expected = solve_ivp(flow, (0, 2), start, method="DOP853", **TIGHT).y[:, -1]
    motion = ns.simulate(projected_discs.plant(), x0=start, duration=2.0, u=[1.0, 0.0])
    assert expected[3] < -0.2
    np.testing.assert_allclose(motion.final_state, expected, rtol=0, atol=1e-7)


def test_the_tank_begins_at_the_pressure_of_its_source() -> None:
    """35 atm, which the source states beside the amounts, within 0.2 %."""
    assert tank.pressure(*tank.START) == pytest.approx(35.0, rel=2e-3)


def test_liquid_flows_out_above_the_outlet_and_gas_below_it() -> None:
    """At 260 mol the gas is what has flowed in; at 240 mol the liquid is; the other one by SciPy."""
    rest = {"u": 0.1, "duration": 1.0}
    above, below = (ns.simulate(tank.plant(), x0=[6.83, liquid], **rest).final_state for liquid in (260.0, 240.0))
    assert above[0] == pytest.approx(6.83 + 0.1, abs=1e-8)
    assert below[1] == pytest.approx(240.0 + 2.5, abs=1e-8)

    def pressure(gas: float, liquid: float) -> float:
        return gas * 0.0821 * 300 / (10 - liquid / 50)

    level = solve_ivp(lambda t, x: [2.5 - 0.1 * (pressure(6.83 + 0.1 * t, x[0]) - 1)], (0, 1), [260.0], **TIGHT)
    gas = solve_ivp(lambda t, x: [0.1 - 0.1 * (pressure(x[0], 240 + 2.5 * t) - 1)], (0, 1), [6.83], **TIGHT)
    assert above[1] == pytest.approx(level.y[0, -1], abs=1e-6)
    assert below[0] == pytest.approx(gas.y[0, -1], abs=1e-6)


def test_a_tank_at_its_outlet_lets_both_out() -> None:
    """In the sliding mode liquid leaves as it comes, and the rest of the outflow is gas: a linear equation."""
    motion = ns.simulate(tank.plant(), x0=[6.83, 250.0], duration=5.0, u=0.1)
    rate = 0.1 * 0.0821 * 300 / 5  # gas' = 0.1 + 2.5 - (rate gas - 0.1)
    limit = (0.1 + 2.5 + 0.1) / rate
    assert motion.final_state == pytest.approx([limit + (6.83 - limit) * np.exp(-5 * rate), 250.0], abs=1e-7)


def test_the_hopper_rests_on_its_spring_and_cannot_reach_its_height_without_a_hop() -> None:
    motion = ns.simulate(hopper.plant(), x0=hopper.START, duration=1.0)
    np.testing.assert_allclose(motion.final_state, hopper.START, rtol=0, atol=1e-9)
    highest = 0.5 + (hopper.MOST - 2.0 * 9.81) / 400.0  # balance of the body on all the force of the motor
    lifted = ns.simulate(hopper.plant(), x0=[highest, 0, 0, 0], duration=1.0, u=hopper.MOST)
    np.testing.assert_allclose(lifted.final_state, [highest, 0, 0, 0], rtol=0, atol=1e-9)
    assert highest == pytest.approx(0.551, abs=1e-3)
    assert highest + 0.1 < hopper.HEIGHT


def test_a_compressed_hopper_lifts_off_flies_and_lands_without_restitution() -> None:
    """A harmonic stance until the spring pulls the weight of the foot; then the centre of mass falls freely."""
    body, foot, stiffness, low = 2.0, 0.5, 400.0, hopper.STANDING - 0.1
    motion = ns.simulate(hopper.plant(), x0=[low, 0, 0, 0], duration=0.6)
    release, impact = motion.events[:2]
    frequency, top = np.sqrt(stiffness / body), 0.5 + foot * 9.81 / stiffness
    lift_off = np.arccos((hopper.STANDING - top) / 0.1) / frequency
    assert (release.kind, impact.kind) == ("release", "impact")
    assert release.time == pytest.approx(lift_off, abs=1e-9)
    later = 0.05
    assert lift_off + later < impact.time
    speed = 0.1 * frequency * np.sin(frequency * lift_off)
    flight = ns.simulate(hopper.plant(), x0=[low, 0, 0, 0], duration=lift_off + later).final_state
    centre, momentum = body * flight[0] + foot * flight[1], body * flight[2] + foot * flight[3]
    weight = (body + foot) * 9.81
    assert momentum == pytest.approx(body * speed - weight * later, abs=1e-7)
    assert centre == pytest.approx(body * (top + speed * later) - 0.5 * weight * later**2, abs=1e-7)
    assert impact.impulse == pytest.approx(-foot * impact.v_before, abs=1e-10)
    assert impact.v_after == pytest.approx(0.0, abs=1e-12)


# Programs and the benchmark


@pytest.mark.parametrize(
    "module",
    [
        cart_pole,
        particle,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (drone, spinner, projected_discs, tank, hopper)),
    ],
    ids=lambda module: module.__name__.rpartition(".")[2],
)
def test_a_loop_runs_as_a_program(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(module.PROGRAM, capsys, "--quick")
    assert results["status"] == "solved"
    assert results["samples"] == module.PROGRAM.quick["samples"]
    assert results["cost"] > 0.0


def test_modules_are_those_of_the_loops() -> None:
    assert len(LOOPS) == len(set(MODULES.values())) == 10
    assert LOOPS["walls"]().kicks is walled_cart_pole.KICKS


def test_a_row_of_the_benchmark_counts_samples_and_processor_time() -> None:
    row = closed_loops.measured("cart_pole", "unlimited", 0, 3)
    assert (row.status, row.samples) == ("solved", 3)
    # The first plan is of finite elements; later controls may be those of the fixed grid.
    assert row.sources.startswith(f"{3 - row.failures} solved")
    assert 0.0 < row.p50 <= row.p90 <= row.p99 <= row.worst
    assert 0.0 < row.preparation_p50 <= row.preparation_p99
    log = closed(cart_pole.task(), closed_loops.unlimited(cart_pole.task()), samples=3)
    assert row.cost == pytest.approx(log.cost, rel=1e-6)


def test_times_are_of_the_processor_without_the_first_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves by 1 s in the first feedback and by 0.15 s, more than a period, in all others."""
    now = [0.0]

    def step(self: ns.MPC, x: Any, t: float) -> np.ndarray:
        now[0] += 1.0 if t == 0.0 else 0.15
        return stepped(self, x, t)

    stepped = ns.MPC.step
    monkeypatch.setattr(ns.MPC, "step", step)
    monkeypatch.setattr(closed_loops.time, "process_time", lambda: now[0])
    row = closed_loops.measured("cart_pole", "unlimited", 0, 3)
    assert (row.p50, row.worst) == pytest.approx((150.0, 150.0), abs=1e-9)
    assert row.late == 2
    assert row.preparation_p50 == 0.0


def test_a_loop_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(self: ns.MPC, x: Any, t: float) -> np.ndarray:
        raise ZeroDivisionError("no control")

    monkeypatch.setattr(closed_loops.TimedMPC, "step", broken)
    row = closed_loops.measured("cart_pole", "realtime", 0, 2)
    assert (row.samples, row.status) == (0, "controller failed")
    assert "no control" in row.message
    monkeypatch.setitem(closed_loops.CONTROLLERS, "realtime", None)
    assert "TypeError" in closed_loops.measured("cart_pole", "realtime", 0, 2).message
    results = run_json(closed_loops.PROGRAM, capsys, "--set", "loops=cart_pole", "controllers=realtime", "samples=2")
    assert len(results["rows"]) == 3
    assert results["status"] != "solved"


def test_medians_are_over_seeds_and_costs_of_whole_loops_only() -> None:
    common = {"loop": "tank", "controller": "realtime", "samples": 5, "failures": 1, "late": 2}
    times = dict.fromkeys(("p90", "p99", "worst", "preparation_p50", "preparation_p99"), 1.0)
    ends = [(1.0, 7.0, "solved"), (9.0, 1.0, "controller failed"), (2.0, 9.0, "solved")]
    rows = [
        closed_loops.Row(seed=k, p50=p50, cost=cost, status=status, **common, **times)
        for k, (p50, cost, status) in enumerate(ends)
    ]
    (line,) = closed_loops.medians(rows)
    assert (line["p50"], line["cost"], line["runs"], line["ended"]) == (2.0, 8.0, 3, 2)
    assert (line["samples"], line["failures"], line["late"]) == (15, 3, 6)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ns.OptionError, match="walls"):
        list(closed_loops.experiment(loops=("wall",), samples=1, seeds=1))
    with pytest.raises(ns.OptionError, match="realtime"):
        list(closed_loops.experiment(loops=("walls",), controllers=("real",), samples=1, seeds=1))
