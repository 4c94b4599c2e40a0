"""The comparison on two discs: its numbers are those known from elsewhere, and what has to fail does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nosnoc_py as ns
from problems.benchmarks import two_discs_history as history
from problems.benchmarks import two_discs_rows as rows
from problems.benchmarks.two_discs_compare import PROGRAM, farther
from problems.benchmarks.two_discs_history import CONVERGED, fit, over_grids
from problems.runner import main
from problems.two_discs import build
from tests.pairwise import slow_row
from tests.references import two_discs_costates as costates
from tests.references.two_discs import optimum
from tests.references.two_discs_control import true_objective

PNG = b"\x89PNG\r\n\x1a\n"
BEST, TIME = 0.311416870358472, 0.460707998155842  # of 5.2


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(PROGRAM, ["--json", "--quick", *arguments]) == 0
    return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))


@pytest.mark.slow
def test_quick(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = run_json(capsys, "--figures", str(tmp_path))
    assert found["status"] == "solved"
    assert found["objective"] == pytest.approx(BEST, abs=1e-12)
    assert found["complementarity"] == 0.0
    assert found["infeasibility"] < 1e-11
    assert [event["time"] for event in found["events"]] == pytest.approx([TIME], abs=1e-12)
    assert len(found["final_state"]) == 8
    by_name = {row["method"]: row for row in found["rows"]}
    assert {row["status"] for row in found["rows"]} == {"solved", "exact"}
    plain, refined = by_name[rows.ALGORITHM_1], by_name[rows.REFINED]
    assert plain["objective"] == pytest.approx(0.312109233, abs=2e-7)  # it stops at |H_u| = 1e-6
    assert plain["control_error"] == pytest.approx(2.031e-2, abs=1e-5)
    assert max(abs(refined[name]) for name in ("error", "true_error", "control_error", "time_error")) < 1e-9
    assert by_name["HMP-MAS"]["error"] == pytest.approx(0.0, abs=1e-9)
    assert 1e-5 < by_name["shooting in phases"]["true_error"] < 1e-3  # controls constant in intervals
    assert {one["status"] for one in found["relaxations"]} == {"iteration limit", "collision lost"}
    assert len(found["figures"]) == 7
    assert all(Path(path).read_bytes()[:8] == PNG for path in found["figures"])


@pytest.mark.slow
def test_the_numbers_of_the_paper_on_the_concentric_collision(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("part=compare", "problems=concentric", "methods=HMP N=60,FESD-J free stages,FESD-J control only")
    found = run_json(capsys, "--set", *arguments)["rows"]
    exact, learnt, coarse, free, lazy = found
    assert exact["objective"] == pytest.approx(1.396542160123197, abs=1e-12)
    assert (learnt["status"], learnt["objective"]) == ("quoted", 1.617140)
    assert learnt["objective"] / exact["objective"] - 1 == pytest.approx(0.1580, abs=5e-5)
    assert coarse["objective"] == pytest.approx(1.421551970, abs=5e-8)
    assert 0 < free["true_error"] < 1e-3 < coarse["true_error"] < coarse["error"]
    assert lazy["collisions"] == []  # u = 0 is a local optimum, and no row hides it
    assert lazy["time_error"] is None
    assert lazy["objective"] == pytest.approx(2.0, abs=1e-6)


def test_what_a_method_refuses_is_a_row_that_says_so() -> None:
    row = rows.row_of("length", "single shooting gradient", optimum("length"))
    assert row["status"] == rows.REFUSED
    assert "no derivative at u = 0" in row["message"]
    assert np.isnan(row["objective"])


@pytest.mark.slow
def test_the_true_objective_is_not_that_of_the_discretisation() -> None:
    exact, found = optimum("wall"), rows.CONTENDERS["HMP N=60"].solve("wall")
    true = true_objective(build("wall"), found)
    assert found.objective - exact.objective == pytest.approx(2.678e-3, abs=1e-5)
    assert 0 < true - exact.objective < 0.5 * (found.objective - exact.objective)
    refined = rows.CONTENDERS[rows.REFINED].solve("wall")
    assert true_objective(build("wall"), refined) == pytest.approx(exact.objective, abs=1e-10)


def test_rate() -> None:
    found = history.successive_approximation("general", iterations=500)
    assert found.fit[0] == pytest.approx(0.99085, abs=1e-5)
    assert found.fit[0] == pytest.approx(0.9911, abs=3e-4)  # the paper


@pytest.mark.slow
def test_relaxations_that_are_too_large() -> None:
    stalled = history.successive_approximation("general", relaxation=0.015, iterations=900)
    assert stalled.error[-1] > 0.1  # with 0.01 it is 0.02 by then
    lost = history.successive_approximation("general", relaxation=0.018, iterations=1200)
    assert lost.solution.status is ns.Status.COLLISION_LOST
    assert lost.error.size < 10


@pytest.mark.slow
def test_first_order_by_fit() -> None:
    errors = over_grids(CONVERGED, "concentric", (60, 120, 480), 3000)
    assert {error["status"] for error in errors} == {"solved"}
    for quantity in ("time", "control", "objective"):
        found = fit(errors, quantity)
        assert found["order"] == pytest.approx(1.0, abs=0.05), quantity
        assert found["spread"] < 0.05
    assert fit(errors, "objective")["sigma"] == pytest.approx(480 * (1.399599681 - 1.396542160), rel=0.03)
    assert errors[-1]["control"] == pytest.approx(3.187e-3, abs=1e-6)


@pytest.mark.quick
def test_grids_of_one_phase() -> None:
    grids = history.of_one_phase("general", (60, 120, 240))
    assert grids == (64, 127, 242)
    assert np.array(grids) * TIME % 1.0 == pytest.approx(0.5, abs=0.02)


def test_without_the_saw_tooth_the_objective_is_of_first_order() -> None:
    errors = over_grids(CONVERGED, "general", history.of_one_phase("general", (60, 120, 240)), 6000)
    assert {error["status"] for error in errors} == {"solved"}
    assert fit(errors, "objective")["order"] == pytest.approx(1.0, abs=0.25)


def test_a_fit_knows_another_order() -> None:
    def error(steps: int, order: float) -> dict[str, float]:
        return {"steps": steps, "time": 3.0 / steps**order, "control": 3.0 / steps**order}

    first = fit([error(n, 1.0) for n in (60, 600, 1200)], "time")
    assert (first["sigma"], first["order"], first["spread"]) == pytest.approx((3.0, 1.0, 0.0), abs=1e-12)
    half = fit([error(n, 0.5) for n in (60, 600, 1200)], "control")
    assert half["order"] == pytest.approx(0.5, abs=1e-12)
    assert half["spread"] > 1.0


@pytest.mark.slow
def test_gradient_descent_stalls_farther_away() -> None:
    """Both after 1500 iterations; what is left moves up and down from 800 on (the program makes 3000)."""
    near = history.successive_approximation("general", iterations=1500)
    far = history.gradient_descent("general", iterations=1500)
    assert near.objective[-1] == pytest.approx(0.312109233, abs=2e-8)
    assert near.error[-1] == pytest.approx(2.031e-2, abs=1e-5)
    assert near.slope[-1] < 1e-6
    assert far.error.size >= 1500
    assert far.error[800:].min() > 10.0 * near.error[-1]
    assert farther((near,), (far,))["general"] > 10.0


@pytest.mark.slow
@pytest.mark.parametrize("start", [history.STARTS[0], *map(slow_row, history.STARTS[1:])])
def test_the_minimum_principle_sheds_a_collision_and_hmp_mas_does_not(start: tuple[float, float]) -> None:
    found = history.excursion(start, steps=120, iterations=700)
    assert len(found.motion.impacts) == 3
    assert history.names(found.history.solution) == ("discs", "wall_2")
    assert found.history.shed_at is not None
    assert found.history.shed_at < 100
    assert found.history.error[-1] < 0.05
    assert len(found.prescribed.impacts) == 3
    assert found.prescribed.objective - found.history.exact.objective > 0.02


def test_costates_are_the_multipliers() -> None:
    fine, coarse = costates.compare("general"), costates.compare("general", stages=10)
    assert fine.difference.max() < 3e-3
    assert coarse.difference.max() > 3.0 * fine.difference.max()
    assert fine.multiplier_residual < 1e-8
    jumps, exact = fine.jumps(fine.direct), fine.jumps(fine.indirect)
    assert jumps.shape == (1, 8)
    np.testing.assert_allclose(jumps, exact, atol=3e-3 * np.abs(exact).max())
    assert np.abs(exact[0, :4]).max() == pytest.approx(0.48801, abs=2e-5)
    assert np.abs(fine.direct + fine.indirect).max() > 1.0  # with the other sign
    assert np.all(np.isfinite(fine.indirect))


@pytest.mark.parametrize("change", ["part=everything", "problems=four", "methods=none of these", "stepz=1"])
def test_a_wrong_value_is_one_clear_error(change: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(PROGRAM, ["--quick", "--set", change]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "expected" in said or "unknown" in said.lower()
