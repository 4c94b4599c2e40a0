"""The benchmark of simulations: its numbers are told, and Newton's method and the MPCC find the same. No time is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from problems.benchmarks import simulation_orders, simulation_speed, simulation_work
from problems.benchmarks.simulation_work import DOP853, ROUNDING, Run, front, ratios
from problems.runner import Program, main
from tests.pairwise import slow_but
from tests.references.simulation_agreement import AGREED, DIFFER, Agreement, compare
from tests.references.simulation_steps import NEWTON, chain, error_of, simulator_of
from tests.references.simulations import AGREEMENT, SPEED

EXACT = {"bouncing ball": 1e-13, "planar friction": 1e-13}


def run_json(program: Program, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(program, ["--json", "--quick", *arguments]) == 0
    return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))


@pytest.mark.slow
def test_steps_and_work(capsys: pytest.CaptureFixture[str]) -> None:
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
    assert found["ratios_to_dop853"].keys() == {"oscillator", "bouncing ball"}


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
@pytest.mark.timeout(600)
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


def test_the_other_side_is_accurate() -> None:
    for example in simulation_work.examples():
        assert np.abs(example.reference(1e-12) - example.exact).max() < 1e-10
    loose = simulation_work.examples()[0]
    assert np.abs(loose.reference(1e-2) - loose.exact).max() > 1e-4


def test_ratios_are_those_at_equal_error() -> None:
    def run(method: str, error: float, milliseconds: float) -> Run:
        return Run(example="", method=method, setting=1.0, error=error, milliseconds=milliseconds)

    runs = [run(DOP853, 1e-6, 2.0), run(DOP853, 1e-14, 4.0), run("FESD", 1e-5, 1.0), run("FESD", 1e-7, 3.0)]
    (first, cheap), (_, none) = ratios(runs)
    assert cheap is not None
    assert (first.error, cheap.milliseconds, none) == (1e-6, 3.0, None)
    assert ratios([*runs, run("FESD", 0.5 * ROUNDING, 9.0)])[1][1] is not None  # both are rounding
    assert [kept.milliseconds for kept in front([*runs[2:], run("FESD", 1e-4, 2.0)])] == [1.0, 3.0]


@pytest.mark.parametrize("change", ["part=speed", "part=agreement"])
def test_a_wrong_value_is_one_clear_error(change: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(simulation_speed.PROGRAM, ["--quick", "--set", change]) == 2
    assert capsys.readouterr().err.startswith("problems.benchmarks.simulation_speed: ")
