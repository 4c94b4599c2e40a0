"""Simulations by finite elements say how far they are off: estimates against exact motions, and no false alarms."""

from __future__ import annotations

import re
import time
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

FREQUENCY = 30.0


def oscillator(frequency: float = FREQUENCY, wall: float = 50.0) -> ns.CLS:
    """q'' = -w^2 q, a wall far away."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    return ns.CLS(q=q, v=v, mass_matrix=1, force=-(frequency**2) * q, contacts=[ns.Contact("wall", gap=q + wall)])


def error_of(found: ns.Trajectory, frequency: float = FREQUENCY) -> float:
    """Of the end state after the amplitude 1, as a share of the amplitudes of q and v."""
    t = found.t[-1]
    exact = np.array([np.cos(frequency * t), -frequency * np.sin(frequency * t)])
    return float((np.abs(found.final_state - exact) / [1.0, frequency]).max())


def ball(restitution: float = 0.5) -> ns.CLS:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    ground = ns.Contact("ground", gap=q, restitution=restitution)
    return ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ground])


def test_an_oscillator_that_is_too_fast_for_its_elements_is_told() -> None:
    """At 30 rad/s default elements are off by .3 m/s of 30 m/s after a second, and the estimate says so."""
    found = ns.simulate(oscillator(), x0=[1, 0], duration=1.0, method=ns.FESDJ())
    assert found.status is ns.Status.INACCURATE
    assert len(found.t) == 101  # to the end
    said = re.search(r"add up to ([\d.e-]+) of the motion .* worst in the step from t = ([\d.]+) to", found.message)
    assert said is not None, found.message
    assert error_of(found) > 5e-3
    assert 0.4 * error_of(found) < float(said[1]) < 4.0 * error_of(found)


@pytest.mark.parametrize("scheme", ["radau_iia", "gauss_legendre"])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_what_the_message_proposes_helps(stages: int, scheme: Any) -> None:
    """Followed once or twice it ends in a motion that is solved, and near the exact one."""
    steps, method = 20, ns.FESDJ(rk_stages=stages, scheme=scheme, error_tolerance=1e-2)
    for _ in range(3):
        found = ns.simulate(oscillator(), x0=[1, 0], duration=0.5, method=method, steps=steps)
        if found.success:
            break
        steps = int(re.search(r"take (\d+) steps", found.message)[1])  # type: ignore[index]
    assert found.success
    assert error_of(found) < 2e-2
    if stages < 3:
        more = ns.simulate(oscillator(), x0=[1, 0], duration=0.5, method=ns.FESDJ(rk_stages=stages + 2), steps=steps)
        assert more.success


def test_nothing_is_left_of_a_motion_that_is_far_too_fast() -> None:
    """1000 rad/s: the elements damp it to nothing, where the motion goes on with 10 m/s."""
    found = ns.simulate(oscillator(1000.0), x0=[0.01, 0], duration=1.0, method=ns.FESDJ())
    assert np.abs(found.final_state).max() < 1e-3
    assert found.status is ns.Status.INACCURATE


@pytest.mark.parametrize("steps", [20, 3])
def test_an_exact_motion_is_no_false_alarm(steps: int) -> None:
    """Parabolas and impacts are exact in two stages, whatever the number of steps."""
    method = ns.FESDJ(error_tolerance=1e-9, finite_elements=4)
    found = ns.simulate(ball(), x0=[1, 0], duration=0.7, method=method, steps=steps)
    assert found.success, found.message
    assert len(found.impacts) == 1
    rest = ns.simulate(ball(0.0), x0=[0, 0], duration=0.7, method=method, steps=steps)
    assert rest.success, rest.message


def test_friction_and_sliding_with_constant_forces_are_exact() -> None:
    """A body brakes by friction and rests; a relay slides: one more stage changes nothing."""
    q, v, x = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("x")
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.3)
    box = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, -9.81]), contacts=[ground])
    found = ns.simulate(box, x0=[0, 0, 1, 0], duration=1.0, method=ns.FESDJ(error_tolerance=1e-9))
    assert found.success, found.message
    relay = ns.PSS(x=x, modes=ns.Modes("side", flows=[-1.0, 1.0], functions=x, signs=[[1], [-1]]))
    found = ns.simulate(relay, x0=[0.37], duration=1.0, method=ns.FESD(error_tolerance=1e-9))
    assert found.success, found.message


def test_filippov_systems_are_judged_too() -> None:
    """x' = -40 (x - 1) or -1: the fast side takes a fortieth of a second, a step of a tenth cannot follow it."""
    x = ca.SX.sym("x")
    system = ns.PSS(x=x, modes=ns.Modes("side", flows=[-40 * (x - 1), 1.0], functions=x, signs=[[1], [-1]]))
    coarse = ns.simulate(system, x0=[3.0], duration=0.5, steps=5, method=ns.FESD())
    fine = ns.simulate(system, x0=[3.0], duration=0.5, steps=100, method=ns.FESD())
    assert coarse.status is ns.Status.INACCURATE
    assert "from t = 0 to 0.1" in coarse.message
    assert fine.success
    assert fine.final_state[0] == pytest.approx(1.0 + 2.0 * np.exp(-20.0), abs=1e-8)


def test_without_a_tolerance_nothing_is_told() -> None:
    found = ns.simulate(oscillator(), x0=[1, 0], duration=1.0, method=ns.FESDJ(error_tolerance=None))
    assert found.success
    assert not found.message


def test_units_do_not_change_the_verdict() -> None:
    """The same motion in micrometres and in megametres."""
    for size in (1e-6, 1e6):
        system = oscillator(wall=50 * size)
        found = ns.simulate(system, x0=[size, 0], duration=1.0, method=ns.FESDJ())
        assert found.status is ns.Status.INACCURATE
        found = ns.simulate(system, x0=[size, 0], duration=1.0, method=ns.FESDJ(), steps=200)
        assert found.success


def test_steps_of_a_closed_loop_are_judged() -> None:
    """A step that misses the motion by more than the tolerance has the status, and the motion goes on."""
    simulator = ns.Simulator(oscillator(), ns.FESDJ(), step=0.1)
    state = simulator.step(simulator.init([1, 0]))
    assert state.status is ns.Status.INACCURATE
    assert state.error > 1e-2
    assert state.t == pytest.approx(0.1)
    assert "take steps of 0.0" in state.message
    state = simulator.step(state)
    assert state.t == pytest.approx(0.2)
    fine = ns.Simulator(oscillator(), ns.FESDJ(), step=0.01)
    state = fine.init([1, 0])
    for _ in range(20):
        state = fine.step(state)
        assert state.status.success
    assert 0.0 < state.error < 1e-3
    run = simulator.run([1, 0], steps=10)
    assert run.status is ns.Status.INACCURATE


@pytest.mark.slow
def test_an_estimate_costs_little() -> None:
    """Of a run less than a quarter of its time; the bound is generous, as times of a shared machine are rough."""
    plain, estimating = (ns.Simulator(ball(), ns.FESDJ(error_tolerance=e), step=0.02) for e in (None, 1e-3))

    def seconds(simulator: ns.Simulator) -> float:
        start = time.process_time()
        simulator.run([50, 0], steps=100)
        return time.process_time() - start

    for simulator in (plain, estimating):
        seconds(simulator)
    pairs = [(seconds(plain), seconds(estimating)) for _ in range(15)]
    without, with_estimate = (min(times) for times in zip(*pairs, strict=True))
    assert with_estimate < 1.6 * without
