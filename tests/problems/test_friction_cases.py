"""The experiment on friction: what it compares, what it says of failures, and that the simulator passes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from problems import falling_rod, tumbling_box
from problems.benchmarks import friction_cases
from problems.benchmarks.friction_cases import experiment
from problems.runner import main
from tests.pairwise import slow_but
from tests.problems.command_line import PNG, run_json
from tests.references.friction_closed_forms import BY_NAME, CASES
from tests.references.friction_motion import compared_events
from tests.references.friction_runs import METHOD, simulate

EXACT = (("impact", "floor", 0.4), ("impact", "wall", 0.4), ("stick", "floor", 0.7))


def test_events_are_matched_by_kind_contact_and_time() -> None:
    found = (("impact", "wall", 0.4 + 2e-7), ("impact", "floor", 0.4), ("stick", "floor", 0.7 - 3e-7))
    compared = compared_events(EXACT, found)
    assert compared["event_error"] == pytest.approx(3e-7, rel=1e-6)
    assert compared["missing"] == compared["extra"] == ()


@pytest.mark.parametrize(
    ("found", "missing", "extra"),
    [
        (EXACT[1:], ("impact floor at 0.4",), ()),
        ((*EXACT[:2], ("stick", "wall", 0.7)), ("stick floor at 0.7",), ("stick wall at 0.7",)),
        ((*EXACT[:2], ("reversal", "floor", 0.7)), ("stick floor at 0.7",), ("reversal floor at 0.7",)),
        ((*EXACT[:2], ("stick", "floor", 0.71)), ("stick floor at 0.7",), ("stick floor at 0.71",)),
        ((*EXACT, ("reversal", "floor", 0.4)), (), ()),  # a jump of another contact may do that
        ((*EXACT, EXACT[2]), (), ("stick floor at 0.7",)),
    ],
)
def test_wrong_events_are_named(found: Any, missing: tuple[str, ...], extra: tuple[str, ...]) -> None:
    compared = compared_events(EXACT, found)
    assert (compared["missing"], compared["extra"]) == (missing, extra)


@pytest.mark.parametrize("steps", slow_but([None], [None, 7]), ids=["one step for every event", "seven steps"])
def test_every_case_comes_out(steps: int | None) -> None:
    """To rounding."""
    for case in (case for case in CASES if case.polynomial):
        row = simulate(case, METHOD, steps=steps or max(1, 2 * case.event_times))
        assert row.status == "solved", (row.label, row.message)
        assert row.error < 1e-12, row.label
        assert row.success, (row.label, row.missing)
        assert not row.event_error > 1e-12, row.label


def test_the_curve_comes_out_with_the_order_of_the_method() -> None:
    """The one motion that is no polynomial: Radau IIA with three stages has order 5."""
    errors = [simulate(BY_NAME["slope_curve_3d"], METHOD, steps=steps).error for steps in (2, 4, 8)]
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 5.0, atol=0.3)


def test_a_run_that_raises_is_a_row() -> None:
    row = simulate(BY_NAME["slip_3d"], METHOD.replace(friction_cone="box"))
    assert row.status == "raised"
    assert "OptionError" in row.message
    assert not row.success


def test_another_motion_is_a_failure() -> None:
    """Negative control: the system of one case against the closed form of another."""
    case = replace(BY_NAME["slip_to_stick_2d"], exact=BY_NAME["slip_to_stick_pushed_2d"].exact)
    row = simulate(case, METHOD)
    assert row.error > 0.01
    assert not row.success


def test_box_leaves_out_what_is_in_space() -> None:
    rows = list(experiment(cone=("box",), impulse_form=("sum",), cases=("slip_2d", "slip_3d")))
    assert [row.case for row in rows] == ["slip_2d"]


@pytest.mark.parametrize("form", ["sum", "product"])
def test_as_an_mpcc(form: str) -> None:
    """One event of each kind in one dimension; the whole set takes minutes."""
    method = METHOD.replace(impulse_form=form)
    for name in ("slip_to_stick_2d", "bounce_slip_2d"):
        row = simulate(BY_NAME[name], method, SIMULATION_SOLVER, steps=3)
        assert row.homotopies == row.steps
        assert row.success, (row.label, row.message)


def test_from_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chosen = "cases=bounce_stick_2d,stick_to_slip_3d,release_2d"
    results = run_json(friction_cases.PROGRAM, capsys, "--quick", "--set", chosen, "--figures", str(tmp_path))
    assert results["status"] == "solved"
    assert [row["case"] for row in results["rows"]] == ["bounce_stick_2d", "stick_to_slip_3d", "release_2d"]
    assert {event["kind"] for event in results["events"]} == {"impact", "slip", "release"}
    assert (tmp_path / "friction_cases.png").read_bytes()[:8] == PNG


def test_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    changes = ["cases=slip_3d,slip_2d", "cone=box,auto", "impulse_form=sum", "tolerance=1e-300"]
    assert main(friction_cases.PROGRAM, ["--set", *changes, "--figures", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "0 of 3 runs are right" in said
    assert "slip_2d, box, sum: solved, error" in said


@pytest.mark.parametrize("change", ["cases=slip_4d", "solver=newtom", "cone=round", "impulse_form=half"])
def test_a_wrong_value_is_one_clear_error(change: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(friction_cases.PROGRAM, ["--json", "--set", change]) == 2
    assert capsys.readouterr().err.startswith("problems.benchmarks.friction_cases: ")


def test_falling_rod(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    results = run_json(falling_rod.PROGRAM, capsys, "--quick", "--figures", str(tmp_path))
    assert results["status"] == "solved"
    assert results["errors"]["impact_time"] < 1e-12
    assert results["errors"]["velocity_after"] < 1e-12
    assert np.all(np.diff(results["errors"]["energy"]) < 1e-9)
    assert (tmp_path / "falling_rod.png").read_bytes()[:8] == PNG


def test_bouncing_rod_meets_its_closed_form() -> None:
    arguments = {**falling_rod.PROGRAM.settings.arguments, "restitution": 0.5, "velocity": 2.0, "duration": 0.4}
    trajectory = falling_rod.simulate(**arguments)
    assert trajectory.status is ns.Status.SOLVED
    found = falling_rod.errors(trajectory, arguments)
    assert max(found["impact_time"], found["velocity_after"]) < 1e-11
    wrong = {**arguments, "friction": 0.31}
    assert falling_rod.errors(trajectory, wrong)["velocity_after"] < 1e-11  # it sticks: friction has a reserve
    wrong = {**arguments, "restitution": 0.49}
    assert falling_rod.errors(trajectory, wrong)["velocity_after"] > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("elements", [2, 3])
def test_every_case_over_step_counts(elements: int) -> None:
    """One to twenty steps, as far as the events of the case can lie in different steps; no step fails."""
    for case in (case for case in CASES if case.polynomial):
        for steps in range(max(1, 2 * case.event_times if elements == 2 else case.event_times), 21):
            row = simulate(case, METHOD.replace(finite_elements=elements), steps=steps)
            assert row.status == "solved", (row.label, steps, row.message)
            assert row.homotopies == 0, (row.label, steps, row.message)
            assert row.error < 1e-10, (row.label, steps)
            assert not row.event_error > 1e-10, (row.label, steps)


def test_tumbling_box(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    results = run_json(tumbling_box.PROGRAM, capsys, "--quick", "--figures", str(tmp_path))
    assert results["status"] == "solved"
    assert results["errors"]["position"] < 1e-8
    assert results["errors"]["length"] < 1e-12
    assert np.all(np.diff(results["errors"]["energy"]) < 1e-9)
    assert (tmp_path / "tumbling_box.png").read_bytes()[:8] == PNG
    assert tumbling_box.film(tmp_path / "box.gif").stat().st_size > 10_000
