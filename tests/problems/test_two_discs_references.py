"""The optima of the two discs: simulated, checked against the minimum principle, and found again by another way."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import casadi as ca
import numpy as np
import pytest
from numpy.typing import NDArray

import nosnoc_py as ns
from nosnoc_py.errors import ModelError, OptionError
from problems.two_discs import EXPERIMENTS, HORIZON, build
from tests.pairwise import slow_but
from tests.references.multi_phase import MultiPhase, multi_phase
from tests.references.two_discs import Optimum, optimum, semi_norm, stationary_points

Array = NDArray[np.float64]
PAPER, OTHER, HEAVY = ((1.0, 1.0), 1.0), ((1.0, 1.5), 0.7), ((1.3, 1.0), 0.9)
CASES = [(experiment, *data) for experiment in EXPERIMENTS for data in (PAPER, OTHER, HEAVY)]
# By default every experiment once, and all data.
SOME = [CASES[k] for k in (0, 4, 8, 9)]
case = pytest.mark.parametrize(("experiment", "masses", "restitution"), slow_but(SOME, CASES))
Masses = tuple[float, float]


@cache
def best(experiment: str, masses: Masses = PAPER[0], restitution: float = PAPER[1]) -> Optimum:
    return optimum(experiment, masses, restitution)


def with_phases(found: Optimum, ocp: ns.OCP, times: tuple[float, ...] | None = None) -> MultiPhase:
    """After the collision |u| has no derivative: there the control is known to be zero."""
    length = found.experiment.cost == "length"
    guess = found.times if times is None else times
    return multi_phase(
        ocp, found.contacts, guess, found.law, coasting=(1,) if length else (), degree=16 if length else 8
    )


# Problems


def test_the_problems_are_those_of_the_paper() -> None:
    for name, experiment in EXPERIMENTS.items():
        ocp = build(name)
        x, u = np.arange(1.0, 9.0), [3.0, 4.0]
        size = 5.0 if name == "length" else 25.0
        costs = ca.Function("costs", [ocp.system.x, ocp.system.u], [ocp.stage_cost, ocp.terminal_cost])(x, u)
        assert float(costs[0]) == pytest.approx(experiment.epsilon * size, rel=1e-15)
        assert float(costs[1]) == 25.0
        assert (ocp.horizon, ocp.x0[4:].tolist()) == (1.0, [0.0] * 4)
    (thrust,) = build("length").path_constraints
    assert (thrust.name, thrust.at, thrust.upper.item()) == ("thrust", "control_grid", 5.0 * np.sqrt(2.0))
    assert not build("general").path_constraints


@pytest.mark.parametrize("experiment", list(EXPERIMENTS))
def test_the_discs_meet_under_the_first_control(experiment: str) -> None:
    ocp, data = build(experiment), EXPERIMENTS[experiment]
    found = ns.simulate(ocp.system, x0=ocp.x0, duration=1.0, u=data.control, method=ns.EventDriven())
    assert [event.name for event in found.impacts] == (["discs", "wall_2"] if experiment == "wall" else ["discs"])


def test_smoothing_gives_the_length_a_derivative_at_zero() -> None:
    def slope(smoothing: float, u: float) -> float:
        ocp = build("length", smoothing=smoothing)
        return float(
            ca.Function("slope", [ocp.system.u], [ca.gradient(ocp.stage_cost, ocp.system.u)[0]])(ca.DM([u, 0]))
        )

    assert np.isnan(slope(0.0, 0.0))
    assert slope(1e-3, 0.0) == 0.0
    assert slope(1e-3, 1.0) == pytest.approx(0.01, rel=1e-6)
    ocp = build("length", smoothing=0.5)
    both = ca.Function("both", [ocp.system.u], [ocp.stage_cost, ocp.path_constraints[0].expression])([3.0, 4.0])
    assert float(both[0]) == pytest.approx(0.01 * (np.sqrt(25.25) - 0.5), rel=1e-14)
    assert (float(both[1]), ocp.path_constraints[0].upper.item()) == (25.0, pytest.approx(50.0, rel=1e-15))


def test_wrong_arguments() -> None:
    with pytest.raises(OptionError, match="Did you mean 'general'"):
        build("generl")
    with pytest.raises(OptionError, match="Did you mean 'wall'"):
        optimum("wal")
    with pytest.raises(OptionError, match="smoothing"):
        build("length", smoothing=-1.0)
    with pytest.raises(ModelError, match="no such optimum"):
        optimum("wall", (1.0, 1.0), 0.0)  # without restitution disc 2 would stay at the wall


# Optima


@pytest.mark.parametrize(
    ("experiment", "objective", "times"),
    [
        ("concentric", 1.396542160123197, (0.683220230491697,)),
        ("general", 0.311416870358472, (0.460707998155842,)),
        ("wall", 0.150203591585007, (0.496276494632588, 0.603173715013681)),
        ("length", 0.112848759712176, (0.475147091255092,)),
    ],
)
def test_numbers(experiment: str, objective: float, times: tuple[float, ...]) -> None:
    found = best(experiment)
    assert found.objective == pytest.approx(objective, abs=2e-15)
    np.testing.assert_allclose(found.times, times, rtol=0, atol=2e-14)


@case
def test_the_simulated_control_has_the_same_events_and_cost(
    experiment: str, masses: Masses, restitution: float
) -> None:
    found, ocp = best(experiment, masses, restitution), build(experiment, masses, restitution)
    motion = ns.simulate(
        ocp.system, x0=ocp.x0, duration=HORIZON, u=lambda t: found.control(t)[0], method=ns.EventDriven()
    )
    assert motion.success
    assert tuple(event.name for event in motion.impacts) == found.contacts
    np.testing.assert_allclose([event.time for event in motion.impacts], found.times, rtol=0, atol=1e-10)
    assert motion.impacts[0].v_before == pytest.approx(-found.approach, abs=1e-9)
    np.testing.assert_allclose(motion.final_state, found.final_state, rtol=0, atol=1e-9)
    t = np.linspace(0.0, HORIZON, 24)
    np.testing.assert_allclose([motion(one, side="+") for one in t], found.state(t), rtol=0, atol=1e-9)
    stage = ca.Function("stage", [ocp.system.u], [ocp.stage_cost])
    nodes, weights = np.polynomial.legendre.leggauss(30)
    u = found.control(found.times[0] * (nodes + 1.0) / 2.0)
    effort = found.times[0] / 2.0 * weights @ np.array(stage.map(30)(u.T)).ravel()
    cost = effort + float(motion.final_state[2:4] @ motion.final_state[2:4])
    assert cost == pytest.approx(found.objective, abs=1e-9)


@case
def test_the_hamiltonian_is_constant_and_least(experiment: str, masses: Masses, restitution: float) -> None:
    """H(t) = H(s-) = H(s+) by the multiplier, and no other control makes H smaller: Eqs. 7 to 12 of the principle."""
    found, epsilon = best(experiment, masses, restitution), EXPERIMENTS[experiment].epsilon
    s = found.times[0]
    t = np.linspace(0.0, s, 12)
    position = (found.multiplier(t[:1]) - found.multiplier(t[-1:])) / s  # of q_1: minus the rate of that of v_1

    def hamiltonian(u: Array) -> Array:
        size = np.sum(u**2, axis=1)
        price = epsilon * (np.sqrt(size) if experiment == "length" else size)
        velocity = found.state(np.nextafter(t, 0.0))[:, 4:6]
        total: Array = np.sum(position * velocity + found.multiplier(t) * u / masses[0], axis=1) + price
        return total

    value = hamiltonian(found.law(t))
    push = 2.0 * found.final_state[2:4] * found.state(HORIZON)[0, 6:]  # multiplier of q_2 times v_2, at T
    np.testing.assert_allclose(value, push.sum(), rtol=0, atol=1e-11)
    for turn in np.random.default_rng(1).normal(0.0, 1.0, (20, 2)):
        other = found.law(t) + turn
        if experiment == "length":
            other *= np.minimum(1.0, 5.0 * np.sqrt(2.0) / np.linalg.norm(other, axis=1))[:, None]
        assert (hamiltonian(other) >= value - 1e-12).all()


def test_full_thrust_all_the_way() -> None:
    """5.4 has no arc without thrust: the multiplier is at least eleven times what the thrust is worth."""
    found = best("length")
    t = np.linspace(0.0, found.times[0], 500, endpoint=False)
    np.testing.assert_allclose(np.linalg.norm(found.control(t), axis=1), 5.0 * np.sqrt(2.0), rtol=1e-14)
    assert np.linalg.norm(found.multiplier(t), axis=1).min() == pytest.approx(0.1112, abs=1e-4)
    np.testing.assert_array_equal(found.control([found.times[0], 0.9]), 0.0)


def test_a_law_without_its_multiplier_is_not_valid() -> None:
    """Where |lambda| < m_1 epsilon no thrust is worth its price, and against lambda it never is."""
    found = best("length")
    assert found.valid
    assert not replace(found, multiplier=lambda t: 0.08 * found.multiplier(t)).valid
    assert not replace(found, multiplier=lambda t: -found.multiplier(t)).valid
    assert replace(found, multiplier=lambda t: 0.1 * found.multiplier(t)).valid


def test_the_lower_minimum_is_none() -> None:
    """In 5.2 (and 5.4) the least stationary point has disc 1 hit from inside of disc 2; so the simulation shows."""
    first, second = stationary_points("general")
    assert first.objective == pytest.approx(0.26459, abs=5e-6)
    assert first.approach == pytest.approx(-3.389, abs=1e-3)
    assert not first.valid
    assert second.valid
    assert second.objective == pytest.approx(best("general").objective, rel=1e-12)
    ocp = build("general")
    motion = ns.simulate(ocp.system, x0=ocp.x0, duration=1.0, u=lambda t: first.control(t)[0], method=ns.EventDriven())
    end = motion.final_state[2:4]
    assert motion.impacts[0].time < first.times[0] - 0.05
    assert float(end @ end) > 0.3
    assert stationary_points("length")[0].objective < 0.05
    assert not stationary_points("length")[0].valid


def test_the_wall_problem_is_concentric_too() -> None:
    """Disc 1 starts behind disc 2 as seen from the target in the mirror; disc 1 then stays where it is."""
    found = best("wall")
    np.testing.assert_allclose(found.normal, np.sqrt([0.5, 0.5]), rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.final_state[4:6], 0.0, atol=1e-14)
    assert found.final_state[7] == pytest.approx(-found.final_state[6], abs=1e-14)


# Phases


@case
def test_phases_lead_to_the_same(experiment: str, masses: Masses, restitution: float) -> None:
    """From another start: each collision 5 ms too early (from 20 ms one of the twelve goes to another minimum)."""
    found, ocp = best(experiment, masses, restitution), build(experiment, masses, restitution)
    start = tuple(time - 0.005 for time in found.times)
    phases = with_phases(found, ocp, start)
    margin = 1e-11
    assert phases.success
    assert (phases.approach > 0).all()
    assert phases.objective == pytest.approx(found.objective, abs=margin)
    np.testing.assert_allclose(phases.times, found.times, rtol=0, atol=10 * margin)
    np.testing.assert_allclose(phases.final_state, found.final_state, rtol=0, atol=10 * margin)
    np.testing.assert_allclose(phases.control, found.control(phases.t), rtol=0, atol=1e-8)


def test_phases_do_not_ask_from_where() -> None:
    """Negative control: the minimum that is none is one of this program, too; the speed of approach tells."""
    wrong = stationary_points("general")[0]
    phases = with_phases(wrong, build("general"))
    assert phases.success
    assert phases.objective == pytest.approx(wrong.objective, abs=1e-11)
    assert phases.approach[0] == pytest.approx(wrong.approach, abs=1e-8)
    assert phases.approach[0] < 0


def test_a_perturbed_law_is_worse() -> None:
    """Not the optimum of a neighbouring problem: the referee's cost rises to both sides along random directions."""
    ocp, found = build("general"), best("general")

    def cost(shift: float, direction: Array) -> float:
        def u(t: float) -> Array:
            return found.law(np.array([t]))[0] * float(t < found.times[0]) + shift * direction

        motion = ns.simulate(ocp.system, x0=ocp.x0, duration=1.0, u=u, method=ns.EventDriven())
        t = (np.arange(4000) + 0.5) / 4000
        effort = found.experiment.epsilon * np.mean(np.sum(np.array([u(one) for one in t]) ** 2, axis=1))
        return float(effort) + float(motion.final_state[2:4] @ motion.final_state[2:4])

    for direction in np.random.default_rng(3).normal(0.0, 1.0, (2, 2)):
        assert min(cost(0.05, direction), cost(-0.05, direction)) > found.objective + 1e-5


# Distance of controls


def test_semi_norm_leaves_out_windows() -> None:
    t = np.arange(100) / 100
    error = np.where(np.abs(t - 0.5) < 0.0495, 1e6, 2.0)
    kept = np.count_nonzero(np.abs(t - 0.5) > 0.05)
    assert semi_norm(error, t, (0.5,)) == pytest.approx(np.sqrt(4.0 * kept / 100 / 0.9), rel=1e-12)
    assert semi_norm(error, t, (0.5,), omega=0.02) > 1e5
    assert semi_norm(np.full((100, 2), 3.0), t, (), omega=0.05) == pytest.approx(3.0 * np.sqrt(2.0), rel=1e-12)


def test_semi_norm_of_a_shifted_optimum() -> None:
    """u_opt of 5.1 with a wrong collision time differs by much inside the window, by nothing outside of it."""
    found, t = best("concentric"), np.arange(480) / 480
    late = np.where(t[:, None] < found.times[0] + 0.02, found.law(t), 0.0)
    assert semi_norm(late - found.control(t), t, found.times) == 0.0
    assert semi_norm(late - found.control(t), t, found.times, omega=0.001) > 0.1


def test_semi_norm_converges_to_the_integral() -> None:
    s, omega = 0.3217, 0.05
    exact = np.sqrt(((s - omega) ** 3 + 1.0 - (s + omega) ** 3) / 3.0 / (1.0 - 2.0 * omega))
    for number in (500, 5000):
        t = np.arange(number) / number
        assert semi_norm(t, t, (s,)) == pytest.approx(exact, abs=1.5 / number)
