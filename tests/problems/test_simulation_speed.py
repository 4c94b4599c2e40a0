"""The benchmark of simulations: it reports numbers, and Newton's method and the MPCC find the same. No time is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nosnoc_py as ns
from problems.benchmarks import simulation_cost, simulation_orders, simulation_speed
from problems.runner import Program, main
from tests.pairwise import slow_but
from tests.references.restarts import CASES
from tests.references.simulation_agreement import AGREED, DIFFER, Agreement, compare
from tests.references.simulation_steps import NEWTON, chain, error_of, simulator_of
from tests.references.simulations import AGREEMENT, SPEED

EXACT = {"bouncing ball": 1e-13, "planar friction": 1e-13}


def run_json(program: Program, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(program, ["--json", "--quick", *arguments]) == 0
    return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))


@pytest.mark.slow
def test_steps(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(simulation_speed.PROGRAM, capsys, "--set", "speed_steps=3")
    assert found["status"] == "solved"
    assert found["fallback_steps"] == 0
    assert {row["case"] for row in found["rows"]} == {build().name for build in SPEED.values()}
    assert found["speedup_geometric_mean"] == pytest.approx(
        np.exp(np.mean(np.log(list(found["speedups"].values())))), rel=1e-12
    )
    for row in found["rows"]:
        assert row["steps"] == 3
        assert row["differences"]["tight"] < AGREED


@pytest.mark.slow
def test_orders(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(simulation_orders.PROGRAM, capsys)
    contact, switch = found["orders"].values()
    for orders in (contact, switch):
        assert orders["Radau 2"] == pytest.approx(3, abs=0.4)
        assert orders["Gauss 2"] == pytest.approx(4, abs=0.4)
    assert switch["Gauss 3"] == pytest.approx(6, abs=0.4)
    assert max(found["event_driven_errors"].values()) < 1e-11
    curves = [curve for each in found["curves"].values() for curve in each if ", fixed" not in curve["label"]]
    assert sum(curve["failures"] + curve.get("fallbacks", 0) for curve in curves) == 0


@pytest.mark.slow
def test_fixed_steps_lose_the_order() -> None:
    example = simulation_orders.circle()
    detected = simulation_orders.curve_of(example, "radau_iia", 2, (27, 49))
    fixed = simulation_orders.curve_of(example, "radau_iia", 2, (27, 49), detect=False)
    assert min(fixed.errors) > 10.0 * max(detected.errors)


@pytest.mark.parametrize(
    "name",
    slow_but(
        ["sliding on a curve, step", "leaving, stewart", "landing_slip_2d"],
        ["relay, hysteresis", "sliding on a curve, step", "leaving, stewart", "turbo car", "landing_slip_2d"],
    ),
)
def test_newton_and_mpcc_agree(name: str) -> None:
    case = AGREEMENT[name]()
    case = case.shortened(20)
    found = compare(name, case)
    assert found.fallbacks == found.failures == ()
    assert found.difference < AGREED


@pytest.mark.slow
@pytest.mark.parametrize("name", AGREEMENT)
def test_newton_and_mpcc_agree_everywhere(name: str) -> None:
    """Nowhere do both differ but where the theory leaves the answer open, or the MPCC alone fails or is inexact."""
    assert compare(name, AGREEMENT[name]()).verdict != DIFFER


def test_another_scheme_does_not_agree() -> None:
    """The comparison can fail: other stages make another motion."""
    case = SPEED["oscillator"]()
    newton = chain(case, simulator_of(case, NEWTON)).x
    other = replace(case, method=case.method.replace(rk_stages=2))
    assert np.abs(chain(other, simulator_of(other, NEWTON)).x - newton).max() > 1e6 * AGREED


@pytest.mark.parametrize("name", list(SPEED))
def test_closed_forms(name: str) -> None:
    """Of the benchmark: without an error of the discretisation where the motion is a polynomial, else a small one."""
    case = SPEED[name]()
    found = chain(case, simulator_of(case, NEWTON))
    assert found.failures == ()
    assert error_of(case, found.x) < EXACT.get(case.name, 1e-2)


@pytest.mark.parametrize("name", SPEED)
def test_no_step_falls_back(name: str) -> None:
    case = SPEED[name]()
    assert chain(case, simulator_of(case, NEWTON)).fallbacks == ()


def test_planar_friction_has_all_events() -> None:
    case = SPEED["planar friction"]()
    trajectory = simulator_of(case, NEWTON).run(case.x0, steps=case.steps, u=case.u)
    assert [event.kind for event in trajectory.events if event.kind != "contact"] == ["impact", "stick", "slip"]


def test_a_case_is_not_agreed_if_newton_is_wrong() -> None:
    common: dict[str, Any] = dict(case="", steps=1, worst_step=1, fallbacks=(), failures=())
    assert Agreement(**common, difference=1e-3, errors=(1e-3, 0.0)).verdict == DIFFER
    assert Agreement(**common, difference=1e-3, errors=(np.nan, np.nan)).verdict == DIFFER
    assert Agreement(**common, difference=np.nan, errors=(np.nan, np.nan)).verdict == DIFFER
    assert Agreement(**common, difference=1e-3, errors=(0.0, 1e-3)).verdict == "MPCC inexact"
    assert Agreement(**common, difference=1e-12, errors=(0.0, 0.0)).verdict == "agree"


def test_costs(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(simulation_cost.PROGRAM, capsys)
    assert found["status"] == "solved"
    assert found["ratio"] == pytest.approx(np.exp(np.mean(np.log(list(found["ratios"].values())))), rel=1e-12)
    for cost in found["costs"]:
        assert max(cost["error"], cost["its_error"]) < (cost["target"] or 1e-10)
    assert {call["case"]: call["events"] for call in found["calls"]} == {"oscillator": 1, "bouncing ball": 4}


@pytest.mark.parametrize("name", CASES)
def test_by_default_and_by_hand_the_same(name: str) -> None:
    case = CASES[name]
    found = simulation_cost.simulate(case, case.build())
    assert found.success, found.message
    np.testing.assert_allclose(found.final_state, case.by_restarts(1e-13), rtol=0, atol=1e-10)
    # negative control: neither is right by chance at another time
    assert np.abs(found(0.99 * case.duration) - found.final_state).max() > 1e-4


def test_relay_for_ten_seconds() -> None:
    """34 events; at most tolerances DOP853 does not see one in which y is below zero for two milliseconds only."""
    case = CASES["relay"]
    found = ns.simulate(case.build(), x0=case.x0, duration=10.0)
    assert len(found.events) == 34
    np.testing.assert_allclose(found.final_state, [0.0, -0.8973301895, 2.3586988112], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["oscillator", "stick-slip", "friction blocks"])
def test_a_loose_tolerance_is_seen(name: str) -> None:
    case = CASES[name]
    system, right = case.build(), case.by_restarts(1e-13)
    for tolerance, low, high in ((1e-3, 1e-6, 1.0), (1e-9, 1e-13, 1e-6)):
        for found in (simulation_cost.simulate(case, system, tolerance).final_state, case.by_restarts(tolerance)):
            assert low < np.abs(found - right).max() < high


def test_a_second_call_is_the_first_one() -> None:
    """What a system keeps of its first simulation changes no later one, not by a bit."""
    case = CASES["friction blocks"]
    system = case.build()
    first, second, other = (simulation_cost.simulate(case, each) for each in (system, system, case.build()))
    for found in (second, other):
        np.testing.assert_array_equal(found.x, first.x)
        assert [event.time for event in found.events] == [event.time for event in first.events]


@pytest.mark.parametrize("change", ["repeats=x", "speed_steps=1.5"])
def test_a_wrong_value_is_one_clear_error(change: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(simulation_speed.PROGRAM, ["--quick", "--set", change]) == 2
    assert capsys.readouterr().err.startswith("problems.benchmarks.simulation_speed: ")
