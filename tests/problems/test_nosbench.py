"""The benchmark: rows, resuming, its own residuals and LPEC, ratios and profiles, crashes, and wrong arguments."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.errors import OptionError
from nosnoc_py.status import Stationarity, Status
from nosnoc_py.sweep.store import Store
from nosnoc_py.sweep.tasks import DIED, ERROR, TIMEOUT
from problems.benchmarks import nosbench, nosbench_report, nosbench_task
from problems.benchmarks.nosbench_task import SOLVERS, Row, Task, execute, make_solver
from tests.references import nosbench_judge
from tests.references.nosbench_judge import vary

PNG = b"\x89PNG\r\n\x1a\n"
LIMIT = 20.0


def write(path: Path, w: ca.SX, f: Any, G: Any, H: Any, g: Any = None, **numbers: Any) -> Path:
    """A problem in the format of NOSBENCH, written without the library."""
    p = ca.SX.sym("p", 1)
    g = ca.SX(0, 1) if g is None else g
    n, n_g = w.numel(), g.numel()
    defaults = {
        "lbw": [0.0] * n,
        "ubw": ["inf"] * n,
        "w0": [0.0] * n,
        "lbg": [0.0] * n_g,
        "ubg": [0.0] * n_g,
        "p0": 0.0,
    }
    functions = {"objective_fun": f, "augmented_objective_fun": f + 0.5, "g_fun": g, "G_fun": G, "H_fun": H}
    texts = {name: ca.Function(name, [w, p], [ca.SX(value)]).serialize() for name, value in functions.items()}
    path.write_text(json.dumps({"w": w.serialize(), "p": p.serialize(), **defaults, **texts, **numbers}))
    return path


def corner(folder: Path, **numbers: Any) -> Path:
    """min (x - 1)^2 + (y - 2)^2 with 0 <= x, y >= 0, x y = 0: minima (0, 2) with f = 1 and (1, 0) with f = 4."""
    w = ca.SX.sym("w", 2)
    path = folder / "corner.json"
    return write(path, w, (w[0] - 1) ** 2 + (w[1] - 2) ** 2, w[0], w[1], **{"w0": [0.5, 0.5], **numbers})


def wedge(folder: Path) -> Path:
    """Scheel and Scholtes (2000), example 3: the origin is the minimum and B-stationary, but not S-stationary."""
    w = ca.SX.sym("w", 3)
    rows = ca.vertcat(4 * w[0] - w[2], 4 * w[1] - w[2])
    bounds = {"lbw": [0.0, 0.0, "-inf"], "ubg": ["inf", "inf"], "w0": [1.0, 0.0, 0.0]}
    return write(folder / "wedge.json", w, w[0] + w[1] - w[2], w[0], w[1], rows, **bounds)


def damaged(folder: Path) -> Path:
    path = folder / "damaged.json"
    path.write_text('{"w": "jhpnn')
    return path


def row(problem: str = "a", solver: str = "base", **values: Any) -> Row:
    return Row(problem=problem, solver=solver, time_limit=LIMIT, fingerprint="f", **values)


def solved(problem: str, solver: str, seconds: float, objective: float = 0.0, penalty: float = 0.0) -> Row:
    values: dict[str, Any] = {"objective": objective, "penalty": penalty, "wall_seconds": seconds}
    return row(problem, solver, status="solved", solved=True, **values)


# ---------------------------------------------------------------------------------------------- residuals and LPEC


def test_residuals_by_hand(tmp_path: Path) -> None:
    problem = nosbench_judge.read(corner(tmp_path))
    good = nosbench_judge.judge(problem, np.array([0.0, 2.0]))
    assert (good.objective, good.penalty, good.complementarity, good.infeasibility) == (1.0, 0.5, 0.0, 0.0)
    assert good.solved
    close = nosbench_judge.judge(problem, np.array([3e-7, 2.0]))
    assert close.complementarity == pytest.approx(3e-7, rel=1e-12)  # 6e-7 / 2
    assert close.complementarity_min == pytest.approx(3e-7, rel=1e-12)
    assert not close.solved
    below = nosbench_judge.judge(problem, np.array([0.0, -2e-6]))
    assert below.infeasibility == pytest.approx(2e-6, rel=1e-12)
    assert not below.solved
    nan = nosbench_judge.judge(problem, np.array([np.nan, 2.0]))
    assert nan.infeasibility == np.inf
    assert not nan.solved


def test_scaled_rows_are_judged_as_scaled(tmp_path: Path) -> None:
    problem = nosbench_judge.read(corner(tmp_path), np.array([100.0]), np.array([0.5]))
    verdict = nosbench_judge.judge(problem, np.array([1e-8, 2.0]))
    assert verdict.complementarity == pytest.approx(1e-6, rel=1e-12)
    assert not verdict.solved


@pytest.mark.parametrize(
    ("point", "value"),
    [((0.0, 2.0), 0.0), ((1.0, 0.0), 0.0), ((0.0, 0.0), -4.0), ((0.0, 1.0), -2.0), ((0.5, 0.0), -1.0)],
)
def test_slopes_in_the_corner(tmp_path: Path, point: tuple[float, float], value: float) -> None:
    slope = nosbench_judge.lpec(nosbench_judge.read(corner(tmp_path)), np.array(point))
    assert slope.value == pytest.approx(value, abs=1e-9)
    assert slope.certified == (value == 0.0)


def test_branches_decide_where_multipliers_cannot(tmp_path: Path) -> None:
    problem = nosbench_judge.read(wedge(tmp_path))
    at = nosbench_judge.linearise(problem, np.zeros(3))
    relaxed, _ = nosbench_judge._branch(at, {})
    assert relaxed == pytest.approx(-0.5, abs=1e-9)  # without the product there is descent
    slope = nosbench_judge.lpec(problem, np.zeros(3))
    assert slope.certified
    assert slope.value == pytest.approx(0.0, abs=1e-9)
    assert not nosbench_judge.lpec(problem, np.zeros(3), nodes=1).certified  # undecided is not certified
    assert nosbench_judge.lpec(problem, np.array([0.0, 1.0, 0.0])).value == pytest.approx(-1.0, abs=1e-9)


def test_many_biactive_pairs_against_all_branches(tmp_path: Path) -> None:
    """f = c'w over 6 biactive pairs: every pair takes the better of its two sides."""
    random = np.random.default_rng(3)
    c = random.normal(size=12)
    w = ca.SX.sym("w", 12)
    problem = nosbench_judge.read(write(tmp_path / "many.json", w, ca.dot(ca.DM(c), w), w[:6], w[6:]))
    best = np.minimum(0.0, np.minimum(c[:6], c[6:])).sum()
    slope = nosbench_judge.lpec(problem, np.zeros(12))
    assert slope.value == pytest.approx(best, abs=1e-8)
    assert not slope.certified


def test_a_slack_of_rounding_is_no_descent(tmp_path: Path) -> None:
    w = ca.SX.sym("w", 3)
    problem = nosbench_judge.read(write(tmp_path / "steep.json", w, 1e3 * w[2], w[0], w[1]))
    assert nosbench_judge.lpec(problem, np.array([0.0, 1.0, 1e-9])).certified
    far = nosbench_judge.lpec(problem, np.array([0.0, 1.0, 1e-7]))
    assert far.value == pytest.approx(-0.1, rel=1e-6)
    assert not far.certified


def test_a_linear_program_cannot_fake_descent_by_its_tolerance(tmp_path: Path) -> None:
    """Multiplier 1e6: 1e-7 of infeasibility would be a slope of 0.1."""
    w = ca.SX.sym("w", 3)
    rows = 1e-6 * w[2] - w[0]
    bounds = {"lbw": [0.0, 0.0, "-inf"]}
    problem = nosbench_judge.read(write(tmp_path / "flat.json", w, w[2], w[0], w[1], rows, **bounds))
    slope = nosbench_judge.lpec(problem, np.array([0.0, 1.0, 0.0]))
    assert slope.certified
    assert abs(slope.value) <= 1e-6


# ------------------------------------------------------------------------------------------------------------- rows


def test_one_row_per_task(tmp_path: Path) -> None:
    task = Task(path=str(corner(tmp_path)), solver="base", time_limit=LIMIT)
    done = execute(task)
    assert (done.status, done.message) == ("solved", "")
    assert (done.variables, done.constraints, done.pairs) == (2, 0, 1)
    assert done.solved
    assert done.claimed
    assert not done.false_success
    assert done.objective == pytest.approx(1.0, abs=1e-6) or done.objective == pytest.approx(4.0, abs=1e-6)
    assert done.penalty == pytest.approx(0.5, abs=1e-12)
    assert done.iterations is not None
    assert done.iterations > 0
    assert done.nlps == 10
    assert done.wall_seconds is not None
    assert 0.0 < done.wall_seconds < LIMIT


def test_what_cannot_be_read_is_a_row(tmp_path: Path) -> None:
    done = execute(Task(path=str(damaged(tmp_path)), solver="base", time_limit=LIMIT))
    assert done.status == "error"
    assert done.message
    assert not done.solved
    assert done.wall_seconds is None


def test_an_exception_of_the_solver_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("out of\nluck")

    monkeypatch.setattr(nosbench_task, "solve", fails)
    done = execute(Task(path=str(corner(tmp_path)), solver="base", time_limit=LIMIT))
    assert (done.status, done.message, done.variables) == ("error", "RuntimeError: out of\nluck", 2)


@pytest.mark.parametrize(("point", "false_success"), [((1.0, 1.0), True), ((1.0, 0.0), False)])
def test_a_lying_solver_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: tuple[float, float], false_success: bool
) -> None:
    answer = {"status": Status.SOLVED, "success": True, "stationarity": Stationarity.S, "certificate": None}
    said = SimpleNamespace(w=np.array(point), iterations=1, log=(), **answer)
    monkeypatch.setattr(nosbench_task, "solve", lambda *_: said)
    done = execute(Task(path=str(corner(tmp_path)), solver="base", time_limit=LIMIT))
    assert done.claimed
    assert done.false_success is false_success
    assert done.solved is not false_success
    assert done.certified is not false_success
    assert nosbench_report.sound([done], random=False) is not false_success


def test_rows_know_their_circumstances(tmp_path: Path) -> None:
    path = corner(tmp_path)
    task = Task(path=str(path), solver="base", time_limit=LIMIT)
    assert task.work.key == Task(path=str(path), solver="base", time_limit=LIMIT).work.key
    others = [replace(task, time_limit=1.0), replace(task, solver="homotopy"), replace(task, draw=0)]
    keys = {item.work.key for item in (task, *others, replace(task, draw=0, seed=1))}
    assert len(keys) == 5
    fingerprint = task.row().fingerprint
    corner(tmp_path, w0=[0.1, 0.5])
    assert task.row().fingerprint != fingerprint


# -------------------------------------------------------------------------------------------------------- processes


@pytest.mark.parametrize(("status", "expected"), [(TIMEOUT, "killed"), (DIED, "crashed"), (ERROR, "error")])
def test_processes_that_end_badly_are_rows(tmp_path: Path, status: str, expected: str) -> None:
    task = Task(path=str(corner(tmp_path)), solver="base", time_limit=LIMIT)
    done = nosbench_task.row_of(task, {"key": task.work.key, "status": status, "message": "signal SIGKILL"})
    assert (done.status, done.solved, done.claimed, done.message) == (expected, False, False, "signal SIGKILL")
    assert done.failed


def test_a_row_survives_its_process(tmp_path: Path) -> None:
    task = Task(path=str(corner(tmp_path)), solver="base", time_limit=LIMIT)
    full = replace(execute(task), message="a, b")
    store = Store(tmp_path / "rows")
    with store.locked():
        kept = store.write(task.work.key, {"key": task.work.key, **full.to_dict()})
    assert nosbench_task.row_of(task, kept) == full


@pytest.mark.slow
def test_the_whole_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three problems, one of them damaged; a second run repeats nothing; figures and JSON."""
    folder, output = tmp_path / "problems", tmp_path / "rows"
    folder.mkdir()
    for make in (corner, wedge, damaged):
        make(folder)
    common = [str(folder), "--solver", "base", "homotopy", "--time-limit", "20", "--output", str(output)]
    assert nosbench.main([*common, "--jobs", "2", "--figures", str(tmp_path / "figures")]) == 1  # a row failed
    said = capsys.readouterr().out
    assert "damaged, base: error" in said
    assert "time base/homotopy: geometric mean" in said
    images = sorted((tmp_path / "figures").iterdir())
    assert [image.name for image in images] == ["nosbench_profile.png", "nosbench_ratios_base_homotopy.png"]
    assert all(image.read_bytes()[:8] == PNG for image in images)
    before = sorted(output.rglob("*.json"))
    assert len(before) == 6
    before[-1].unlink()  # one row less
    assert nosbench.main([*common, "--json"]) == 1
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    table = {(row["problem"], row["solver"]): row for row in results["rows"]}
    assert len(table) == 6
    assert {key for key, row in table.items() if row["solved"]} >= {("corner", "base"), ("wedge", "base")}
    assert table["damaged", "homotopy"]["status"] == "error"
    assert results["solvers"]["base"]["solved"] == 2
    assert results["solvers"]["base"]["failed"] == 1
    assert results["solvers"]["base"]["false_success"] == 0
    assert results["ratios"]["base/homotopy"]["geometric_mean"] > 0
    assert results["figures"] == []


@pytest.mark.slow
def test_random_starts_and_scalings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corner(tmp_path)
    assert nosbench.main([str(tmp_path), "--solver", "homotopy", "--random", "2", "--seed", "5", "--json"]) == 0
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [item["variant"] for item in results["rows"]] == ["seed 5 draw 0", "seed 5 draw 1"]
    assert results["solvers"]["homotopy"]["false_success"] == 0
    assert results["solvers"]["homotopy"]["overtime"] == 0


def test_draws_are_inside_the_bounds_and_repeat(tmp_path: Path) -> None:
    mpcc = nosbench_task.load(str(corner(tmp_path, ubw=[1.0, 1.0])))
    factors = []
    for draw in range(20):
        varied, scale_G, scale_H = vary(mpcc, "corner", draw, 0)
        assert np.all((varied.w0 >= 0.0) & (varied.w0 <= 1.0))
        assert 1e-2 <= min(scale_G[0], scale_H[0]) <= max(scale_G[0], scale_H[0]) <= 1e2
        value = ca.Function("G", [varied.w, varied.p], [varied.G])([0.3, 0.0], 0.0)
        assert float(value) == pytest.approx(0.3 * scale_G[0], rel=1e-14)
        factors.append(scale_G[0])
    assert len(set(factors)) == 20
    assert vary(mpcc, "corner", 3, 0)[1] == factors[3]
    assert vary(mpcc, "corner", 3, 1)[1] != factors[3]
    assert vary(mpcc, "other", 3, 0)[1] != factors[3]


# ---------------------------------------------------------------------------------------------------------- reports


def test_geometric_mean_and_ratios_by_hand() -> None:
    assert nosbench_report.geometric_mean([1.0, 4.0, 16.0]) == pytest.approx(4.0, abs=1e-14)
    assert np.isnan(nosbench_report.geometric_mean([]))
    rows = [
        *(solved("a", "base", 1.0, 5.0), solved("a", "auto", 3.0, 6.0)),  # slower and worse
        *(solved("b", "base", 8.0, 5.0), solved("b", "auto", 1.0, 4.0)),  # faster and better
        *(solved("c", "base", 1.0, 5.0), solved("c", "auto", 3.0, 5.0001)),  # slower, the same
        *(solved("d", "base", 1.0), row("d", "auto")),  # solved by one only
    ]
    found = nosbench_report.ratios(rows, "base", "auto")
    assert [(item.problem, item.result, item.bad) for item in found] == [
        ("a", "worse", True),
        ("c", "same", False),
        ("b", "better", False),
    ]
    assert [item.ratio for item in found] == pytest.approx([1 / 3, 1 / 3, 8.0], rel=1e-14)
    results = nosbench_report.summary(rows, ["base", "auto"])
    assert results["ratios"]["base/auto"]["geometric_mean"] == pytest.approx((8 / 9) ** (1 / 3), rel=1e-14)
    assert results["ratios"]["base/auto"]["slower_and_worse"] == ["a"]


def test_results_are_compared_by_what_is_minimised() -> None:
    """The lower objective at the expense of the penalty (5.4 and 5.0 against 5.6 and 0.1) is the worse result."""
    rows = [solved("a", "base", 1.0, 5.6, 0.1), solved("a", "auto", 3.0, 5.4, 5.0)]
    (ratio,) = nosbench_report.ratios(rows, "base", "auto")
    assert (ratio.result, ratio.bad) == ("worse", True)
    assert (ratio.reference_minimised, ratio.solver_minimised) == pytest.approx((5.7, 10.4), rel=1e-14)
    assert (ratio.reference_objective, ratio.solver_objective) == (5.6, 5.4)
    (problem,) = nosbench_report.summary(rows, ["base", "auto"])["ratios"]["base/auto"]["problems"]
    assert (problem["result"], problem["solver_minimised"]) == ("worse", pytest.approx(10.4, rel=1e-14))


def test_profiles_by_hand() -> None:
    """Times base (1, 2, -, -) and auto (2, 1, 4, -): one problem is solved by nobody and stays in the denominator."""
    rows = [
        *(solved("a", "base", 1.0), solved("a", "auto", 2.0)),
        *(solved("b", "base", 2.0), solved("b", "auto", 1.0)),
        *(row("c", "base"), solved("c", "auto", 4.0)),
        *(row("d", "base"), row("d", "auto")),
    ]
    found = nosbench_report.profiles(rows, ["base", "auto"])
    assert found["base"].tolist() == [1.0, 2.0, np.inf, np.inf]
    assert found["auto"].tolist() == [1.0, 1.0, 2.0, np.inf]
    alone = nosbench_report.profiles(rows, ["base"])
    assert alone["base"].tolist() == [1.0, 1.0, np.inf, np.inf]


def test_counts_and_verdicts() -> None:
    certified = replace(solved("a", "base", 1.0), certified=True, gradient=2.0, claimed=True)
    trivial = replace(certified, problem="b", gradient=0.0)
    late = row("c", status="time limit", wall_seconds=LIMIT + 2.5)
    counts = nosbench_report.count([certified, trivial, solved("d", "base", 1.0), late, row("e")])
    assert (counts.rows, counts.solved, counts.claimed, counts.failed, counts.overtime) == (5, 3, 2, 1, 1)
    assert (counts.certified, counts.trivially) == (2, 1)
    assert counts.certified_share == pytest.approx(2 / 3, rel=1e-14)
    assert nosbench_report.sound([certified, late], random=False)
    assert not nosbench_report.sound([certified, late], random=True)
    assert not nosbench_report.sound([certified, row("e")], random=False)
    assert not nosbench_report.sound([replace(late, false_success=True)], random=False)


# -------------------------------------------------------------------------------------------------- wrong arguments


def test_a_missing_or_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "rows"
    (tmp_path / "empty").mkdir()
    for name, says in (("absent", "there is no such folder"), ("empty", "there is none in this folder")):
        assert nosbench.main([str(tmp_path / name), "--solver", "base", "--output", str(output)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert says in captured.err
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--solver", "bose"], "unknown solver 'bose'. Did you mean 'base'"),
        (["--solver", "base", "--jobs", "0"], "--jobs: expected at least 1, given 0"),
        (["--solver", "base", "--time-limit", "-1"], "--time-limit: expected positive seconds, given -1"),
        (["--solver", "base", "--time-limit", "nan"], "--time-limit: expected positive seconds"),
        (["--solver", "base", "--random", "-2"], "--random: expected at least 0"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    corner(tmp_path)
    output = tmp_path / "rows"
    assert nosbench.main([str(tmp_path), *arguments, "--output", str(output)]) == 2
    assert says in capsys.readouterr().err
    assert not output.exists()


def test_unknown_solvers_name_the_legal_ones() -> None:
    with pytest.raises(OptionError) as caught:
        make_solver("ipopt")
    assert all(name in str(caught.value) for name in SOLVERS)


# -------------------------------------------------------------------------------------------------- the real problems


def test_a_real_problem() -> None:
    folder = os.environ.get("NOSBENCH_DIR")
    if not folder:
        pytest.skip("set NOSBENCH_DIR to a folder with NOSBENCH problems")
    path = min(Path(folder).glob("*.json"), key=lambda file: file.stat().st_size)
    done = execute(Task(path=str(path), solver="base", time_limit=LIMIT))
    assert not done.failed, done.message
    assert not done.false_success
    assert done.infeasibility is not None
    assert np.isfinite(done.infeasibility)
