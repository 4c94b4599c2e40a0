"""The referee's experiment: what its tables call right and wrong, and that it runs from the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball
from nosnoc_py.solution import RungeKuttaInterpolant
from problems import three_boxes
from problems.benchmarks import referee
from problems.benchmarks.referee import discs
from problems.runner import main
from tests.problems.command_line import PNG, run_json
from tests.references.certified import KICK, KICKED_NODE, Certified, changed_control, kicked, slide, slides
from tests.references.referee_agreement import METHOD, Agreement, Convergence, agreement, convergence
from tests.references.referee_motions import NAMES, ball, boxes_events, closed_form, comparison, three_boxes_case
from tests.references.three_boxes import reduced_simulation

# --- closed forms ---


def test_all_closed_forms_are_there() -> None:
    assert len(NAMES) == 59
    assert [closed_form(name).name for name in NAMES] == list(NAMES)


@pytest.mark.parametrize("name", ["bouncing_ball", "three_boxes", "landing_slip_3d", "slip_to_stick_2d"])
def test_the_referee_agrees(name: str) -> None:
    row = agreement(closed_form(name), repeats=1)
    assert row.success, row
    assert row.error < 1e-12
    assert row.event_error < 1e-13
    assert 0.0 < row.milliseconds < 1e5


def test_another_motion_is_not_right() -> None:
    """A ball with restitution 0.9 against the closed form of 0.901: heights differ by centimetres."""
    wrong = replace(ball(), exact=lambda t: bouncing_ball.exact(t, 0.901))
    row = agreement(wrong, repeats=1)
    assert row.status == "solved"
    assert 1e-3 < row.error < 1.0
    assert not row.success


def test_missing_late_and_additional_events_are_not_right() -> None:
    case = ball()
    first, *rest = case.events
    found = agreement(replace(case, events=(*case.events, ("stick", "ground", 1.0))), repeats=1)
    assert found.missing == ("stick ground at 1",)
    assert not found.success
    late = agreement(replace(case, events=((*first[:2], first[2] + 1e-6), *rest)), repeats=1)
    assert late.event_error == pytest.approx(1e-6, rel=1e-6)
    assert not late.success
    extra = agreement(replace(closed_form("slip_to_stick_2d"), events=()), repeats=1)
    assert len(extra.extra) == 1
    assert not extra.success


def test_what_raises_or_fails_is_a_row() -> None:
    raised = agreement(replace(ball(), x0=np.array([-1.0, 0.0])), repeats=1)
    assert raised.status == "raised"
    assert raised.message.startswith("ModelError: ")
    assert not raised.success
    stopped = agreement(ball(), ns.EventDriven(max_impacts=1, impact_window=3.0), repeats=1)
    assert stopped.status == ns.Status.ZENO.value
    assert np.isnan(stopped.error)
    assert not stopped.success


def test_events_of_the_boxes() -> None:
    """The sequence that FESD-J finds in the full model, at the same times."""
    case = three_boxes_case()
    full = ns.simulate(case.system, x0=case.x0, duration=6.0, u=case.u, steps=30, method=three_boxes.METHOD)
    assert len(case.events) == 12
    found = sorted((event.kind, event.name, event.time) for event in full.events)
    expected = sorted(boxes_events(reduced_simulation(three_boxes.KNOWN_CONTROL)[0]))
    assert [event[:2] for event in found] == [event[:2] for event in expected]
    np.testing.assert_allclose([event[2] for event in found], [event[2] for event in expected], atol=1e-11)


# --- against FESD-J ---


def test_differences_vanish_with_the_order_of_the_method() -> None:
    chosen = replace(comparison("slope_curve_3d"), steps=(2, 4, 8))
    for stages in (2, 3):
        row = convergence("curve", chosen, METHOD.replace(rk_stages=stages), repeats=1)
        assert row.nominal == 2 * stages - 1
        assert row.order == pytest.approx(row.nominal, abs=0.3)
        assert row.success
        assert row.ratio > 0.0


def test_an_inaccurate_referee_stops_the_convergence() -> None:
    chosen = comparison("slope_curve_3d")
    row = convergence("curve", chosen, referee=ns.EventDriven(rtol=1e-2, atol=1e-2), repeats=1)
    assert row.order is not None
    assert not row.success


@pytest.mark.parametrize(
    ("differences", "agree", "order", "success"),
    [
        ((8e-3, 1e-3, 1.25e-4), True, 3.0, True),
        ((8e-3, 1e-3, 1.25e-4), False, 3.0, False),
        ((1e-3, 1e-3, 1e-3), True, 0.0, False),
        ((4e-3, 1e-3, 2.5e-4), True, 2.0, False),
        ((1e-14, 0.0, 2e-14), True, None, True),
        ((1e-3, np.nan, 1e-5), True, None, False),
        ((1e-3, 1e-14, 1e-14), True, None, False),
    ],
)
def test_what_convergence_is(differences: Any, agree: bool, order: float | None, success: bool) -> None:
    row = Convergence(
        case="any",
        nominal=3,
        steps=(10, 20, 40),
        differences=differences,
        events_agree=agree,
        referee_seconds=0.1,
        seconds=(0.1, 0.2, 0.4),
    )
    if np.isfinite(differences).all():
        assert row.order == (order if order is None else pytest.approx(order, abs=1e-9))
    assert row.success == success
    assert row.ratio == pytest.approx(4.0)


# --- certificates ---


@pytest.fixture(scope="module")
def small() -> list[Certified]:
    return list(slides())


def test_the_true_solution_is_confirmed(small: list[Certified]) -> None:
    true = small[0]
    assert true.certificate.confirmed
    assert true.success
    assert true.largest_defect < 1e-8
    assert true.median_defect <= true.largest_defect


def test_the_small_task_is_a_linear_least_squares_problem(small: list[Certified]) -> None:
    """The mass slides all the time, against the friction mu g = 4.905 m/s^2: state and costs are linear in u."""
    h, after = 0.25, 1.0 - 0.25 * (np.arange(4) + 0.5)
    rows = np.vstack([0.1 * np.sqrt(h) * np.eye(4), 10.0 * h * after, 10.0 * np.full(4, h)])
    wanted = np.array([0.0, 0.0, 0.0, 0.0, 10.0 * (1.0 + 0.5 * 4.905), 10.0 * 4.905])
    u, (objective,), *_ = np.linalg.lstsq(rows, wanted, rcond=None)
    np.testing.assert_allclose(small[0].solution.u[:, 0], u, rtol=1e-5)
    assert small[0].certificate.true_objective == pytest.approx(objective, rel=1e-9)


def test_a_changed_control_is_refuted_in_its_stage(small: list[Certified]) -> None:
    wrong = small[1]
    u, grid = small[0].solution.u[0, 0], small[0].solution.u_grid
    assert wrong.certificate.verdict is ns.Verdict.REFUTED
    assert wrong.success
    assert grid[0] < wrong.certificate.findings[0].time < grid[1]
    # one percent of the force on one kilogram, for one stage
    assert wrong.certificate.windows[0].defect == pytest.approx(0.01 * u * grid[1], rel=1e-6)
    assert all(window.defect < 1e-8 for window in wrong.certificate.windows[1:])


def test_a_phantom_impulse_is_refuted_where_it_acts(small: list[Certified]) -> None:
    wrong, old = small[2], small[0].solution.interpolant
    assert isinstance(old, RungeKuttaInterpolant)
    start = old.t_left[KICKED_NODE]
    jump = wrong.solution(start, "+") - small[0].solution(start, "+")
    np.testing.assert_allclose(wrong.solution(start, "-"), small[0].solution(start, "-"), rtol=0, atol=1e-12)
    np.testing.assert_allclose(jump, [0.0, 0.0, KICK, 0.0], atol=1e-12)
    end = wrong.solution(1.0) - small[0].solution(1.0)
    np.testing.assert_allclose(end, [KICK * (1.0 - start), 0.0, KICK, 0.0], atol=1e-12)
    assert wrong.certificate.verdict is ns.Verdict.REFUTED
    assert wrong.certificate.findings[0].time == pytest.approx(start, abs=1e-12)
    by_weight = 9.81 * 0.25  # what gravity gives in a control stage, more than the fastest motion
    fastest = max(by_weight, np.abs(wrong.solution.x[:, 2:]).max())
    assert wrong.certificate.jumps == pytest.approx(KICK / fastest, rel=1e-6)


def test_a_wrong_solution_that_is_not_refuted_is_a_failure(small: list[Certified]) -> None:
    """Negative control: nothing was changed, so nothing is refuted."""
    assert not replace(small[0], wrong="nothing at all").success
    assert not replace(small[1], wrong="").success
    assert not replace(small[0], solution=replace(small[0].solution, status=ns.Status.TIME_LIMIT)).success
    ocp, same = slide(), small[0]
    assert not kicked(same, ocp, node=KICKED_NODE, state="v_x", size=0.0).success
    assert changed_control(same, ocp, stage=3).success


# --- the program ---


def test_results_of_nothing_are_right_and_of_a_failure_wrong() -> None:
    assert referee.results(referee.Findings())["status"] == "solved"
    bad = Agreement(case="any", status="solved", error=1.0)
    assert referee.results(referee.Findings(agreements=(bad,)))["status"] != "solved"


@pytest.mark.slow
def test_from_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chosen = ["cases=bounce_slip_2d,three_boxes", "repeats=1"]
    found = run_json(referee.PROGRAM, capsys, "--quick", "--set", *chosen, "--figures", str(tmp_path))
    assert found["status"] == "solved"
    assert [row["case"] for row in found["closed_forms"]] == ["bounce_slip_2d", "three_boxes"]
    assert found["fesdj"][0]["order"] == pytest.approx(5.0, abs=0.3)
    assert [row["certificate"]["verdict"] for row in found["certificates"]] == ["confirmed", "refuted", "refuted"]
    assert found["objective"] is found["events"] is found["final_state"] is None
    assert found["figures"] == []


@pytest.mark.slow
def test_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    changes = ["parts=closed_forms,certificates", "tasks=slide", "cases=slip_2d", "tolerance=1e-300", "repeats=1"]
    assert main(referee.PROGRAM, ["--set", *changes, "--figures", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "0 of 1 motions are right" in said
    assert "Certificate: confirmed" in said
    assert "control +1% in [0, 0.25] s: first goes wrong at t = 0.01" in said


@pytest.mark.parametrize("change", ["cases=slip_4d", "parts=all", "tasks=disks", "comparisons=bowls", "rtol=-1"])
def test_a_wrong_value_is_one_clear_error(change: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(referee.PROGRAM, ["--json", "--set", change]) == 2
    assert capsys.readouterr().err.startswith("problems.benchmarks.referee: ")


@pytest.mark.slow
def test_figures_of_the_discs(tmp_path: Path) -> None:
    """Solutions that were given up at once are drawn as well as they are."""
    rows = tuple(discs((4, 6), time_limit=1e-3))
    assert not any(row.success for row in rows)
    referee._distances(rows[0]).savefig(tmp_path / "discs.png")
    assert (tmp_path / "discs.png").read_bytes()[:8] == PNG


@pytest.mark.slow
def test_in_full(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = run_json(referee.PROGRAM, capsys, "--figures", str(tmp_path))
    assert found["status"] == "solved"
    assert len(found["closed_forms"]) == 59
    assert all(row["success"] for row in (*found["closed_forms"], *found["fesdj"], *found["certificates"]))
    grids = [row for row in found["certificates"] if row["label"].startswith("discs")]
    assert [row["control_stages"] for row in grids] == [25, 50, 100]
    medians = [row["median_defect"] for row in grids]
    assert medians[0] > 4.0 * medians[1] > 16.0 * medians[2]
    assert len(found["figures"]) == 1
