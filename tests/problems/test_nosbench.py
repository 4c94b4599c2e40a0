"""The benchmark NOSBENCH: its own residuals and LPEC, rows, ratios and profiles, damaged files, wrong arguments."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.errors import ModelError
from nosnoc_py.status import Stationarity, Status
from problems.benchmarks import nosbench
from problems.runner import main
from tests.references import nosbench_judge

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


# ------------------------------------------------------------------------------------------------------------- files


def test_what_is_minimised_is_the_objective_with_its_penalty(tmp_path: Path) -> None:
    """Without an objective the penalty stays apart, since it selects among feasible points."""
    mpcc = nosbench.load(corner(tmp_path))
    value = ca.Function("f", [mpcc.w, mpcc.p], [mpcc.objective, mpcc.penalty, mpcc.G, mpcc.H])
    assert [float(one) for one in value([2.0, 5.0], 0.0)] == [1.0 + 9.0 + 0.5, 0.0, 2.0, 5.0]
    np.testing.assert_array_equal(mpcc.ubw, [np.inf, np.inf])
    w = ca.SX.sym("w", 2)
    bare = nosbench.load(write(tmp_path / "bare.json", w, ca.SX(0.0), w[0], w[1], w[0] - w[1], lbg=-1.0))
    assert (bare.objective.is_constant(), float(bare.penalty), bare.lbg.tolist()) == (True, 0.5, [-1.0])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"p": "jhpnn"}, "not a NOSBENCH problem"),
        ({"lbw": ["low", 0.0]}, "could not convert string to float"),
        ({"lbw": [0.0]}, "lbw"),
        ({"G_fun": None}, "not a NOSBENCH problem"),
    ],
)
def test_damage_is_told(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        nosbench.load(corner(tmp_path, **change))


def test_missing_fields_and_files_are_told(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text("{}")
    with pytest.raises(ModelError, match="missing field 'w'"):
        nosbench.load(path)
    with pytest.raises(ModelError, match="No such file"):
        nosbench.load(tmp_path / "absent.json")


# ------------------------------------------------------------------------------------------------------------- rows


def solved(problem: str, solver: str, seconds: float, objective: float = 0.0, penalty: float = 0.0) -> dict[str, Any]:
    values = {"objective": objective, "minimised": objective + penalty, "wall_seconds": seconds}
    return {"problem": problem, "solver": solver, "status": "solved", "solved": True, **values}


def row(problem: str, solver: str, **values: Any) -> dict[str, Any]:
    return {"problem": problem, "solver": solver, "status": "locally infeasible", **values}


def test_one_row_per_task(tmp_path: Path) -> None:
    done = nosbench.answer(str(corner(tmp_path)), "base", LIMIT)
    assert (done["status"], done["variables"], done["constraints"], done["pairs"]) == ("solved", 2, 0, 1)
    assert done["solved"]
    assert done["claimed"]
    assert not done["false_success"]
    assert done["objective"] == pytest.approx(1.0, abs=1e-6) or done["objective"] == pytest.approx(4.0, abs=1e-6)
    assert done["minimised"] - done["objective"] == pytest.approx(0.5, abs=1e-12)
    assert done["iterations"] > 0
    assert 0.0 < done["wall_seconds"] < LIMIT


@pytest.mark.parametrize(("point", "false_success"), [((1.0, 1.0), True), ((1.0, 0.0), False)])
def test_a_lying_solver_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: tuple[float, float], false_success: bool
) -> None:
    said = {"status": Status.SOLVED, "success": True, "stationarity": Stationarity.S, "iterations": 1}
    monkeypatch.setattr(nosbench, "solve", lambda *_: SimpleNamespace(w=np.array(point), **said))
    done = nosbench.answer(str(corner(tmp_path)), "base", LIMIT)
    assert done["claimed"]
    assert done["false_success"] is false_success
    assert done["solved"] is not false_success
    assert done["certified"] is not false_success


def test_keys_know_their_circumstances(tmp_path: Path) -> None:
    def keys(time_limit: float = LIMIT, solver: str = "base", **numbers: Any) -> set[str]:
        return set(nosbench.tasks_of([corner(tmp_path, **numbers)], [solver], time_limit))

    assert keys() == keys()
    assert len(keys() | keys(time_limit=1.0) | keys(solver="homotopy") | keys(w0=[0.1, 0.5])) == 4


@pytest.mark.slow
def test_the_whole_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three problems, one of them damaged; a second run repeats nothing; figures and JSON."""
    folder, output = tmp_path / "problems", tmp_path / "rows"
    folder.mkdir()
    for make in (corner, wedge, damaged):
        make(folder)
    common = [str(folder), "--set", "solvers=base,homotopy", "time_limit=20", f"output={output}"]
    assert main(nosbench.PROGRAM, [*common, "jobs=2", "--figures", str(tmp_path / "figures")]) == 1  # a row failed
    assert "time base/homotopy: geometric mean" in capsys.readouterr().out
    images = sorted((tmp_path / "figures").iterdir())
    assert [image.name for image in images] == ["nosbench_profile.png", "nosbench_ratios_base_homotopy.png"]
    assert all(image.read_bytes()[:8] == PNG for image in images)
    before = sorted(output.rglob("*.json"))
    assert len(before) == 6
    before[-1].unlink()  # one row less
    assert main(nosbench.PROGRAM, [*common, "--json"]) == 1
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    table = {(row["problem"], row["solver"]): row for row in results["rows"]}
    assert len(table) == 6
    assert {key for key, row in table.items() if row.get("solved")} >= {("corner", "base"), ("wedge", "base")}
    assert table["damaged", "homotopy"]["status"] == "error"
    base = results["solvers"][0]
    assert (base["solved"], base["failed"], base["false_success"]) == (2, 1, 0)
    assert results["geometric_means"]["base/homotopy"] > 0
    assert results["figures"] == []


# ---------------------------------------------------------------------------------------------------------- reports


def test_ratios_by_hand() -> None:
    rows = [
        *(solved("a", "base", 1.0, 5.0), solved("a", "auto", 3.0, 6.0)),  # slower and worse
        *(solved("b", "base", 8.0, 5.0), solved("b", "auto", 1.0, 4.0)),  # faster and better
        *(solved("c", "base", 1.0, 5.0), solved("c", "auto", 3.0, 5.0001)),  # slower, the same
        *(solved("d", "base", 1.0), row("d", "auto")),  # solved by one only
    ]
    found = nosbench.ratios(rows, "base", "auto")
    assert [(item["problem"], item["result"]) for item in found] == [("a", "worse"), ("c", "same"), ("b", "better")]
    assert [item["ratio"] for item in found] == pytest.approx([1 / 3, 1 / 3, 8.0], rel=1e-14)


def test_results_are_compared_by_what_is_minimised() -> None:
    """The lower objective at the expense of the penalty (5.4 and 5.0 against 5.6 and 0.1) is the worse result."""
    rows = [solved("a", "base", 1.0, 5.6, 0.1), solved("a", "auto", 3.0, 5.4, 5.0)]
    (ratio,) = nosbench.ratios(rows, "base", "auto")
    assert ratio["result"] == "worse"
    assert (ratio["base_minimised"], ratio["auto_minimised"]) == pytest.approx((5.7, 10.4), rel=1e-14)
    assert (ratio["base_objective"], ratio["auto_objective"]) == (5.6, 5.4)


def test_profiles_by_hand() -> None:
    """Times base (1, 2, -, -) and auto (2, 1, 4, -): one problem is solved by nobody and stays in the denominator."""
    rows = [
        *(solved("a", "base", 1.0), solved("a", "auto", 2.0)),
        *(solved("b", "base", 2.0), solved("b", "auto", 1.0)),
        *(row("c", "base"), solved("c", "auto", 4.0)),
        *(row("d", "base"), row("d", "auto")),
    ]
    found = nosbench.profiles(rows, ["base", "auto"])
    assert found["base"].tolist() == [1.0, 2.0, np.inf, np.inf]
    assert found["auto"].tolist() == [1.0, 1.0, 2.0, np.inf]
    alone = nosbench.profiles(rows, ["base"])
    assert alone["base"].tolist() == [1.0, 1.0, np.inf, np.inf]


def test_counts() -> None:
    certified = {**solved("a", "base", 1.0), "certified": True, "claimed": True}
    (counted,) = nosbench.counts(
        [certified, solved("d", "base", 1.0), row("c", "base"), row("e", "base", status="died")], ["base"]
    )
    assert [counted[name] for name in ("problems", "solved", "claimed", "certified", "failed")] == [4, 2, 1, 1, 1]


# -------------------------------------------------------------------------------------------------- wrong arguments


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["absent"], "expected a folder with NOSBENCH problems"),
        (["--set", "solvers=bose"], "unknown solver 'bose'. Did you mean 'base'"),
        (["--set", "jobs=0"], "expected positive numbers"),
        (["--set", "time_limit=-1"], "expected positive numbers"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "rows"
    folder = [str(tmp_path / arguments[0])] if arguments[0] != "--set" else [str(corner(tmp_path).parent), *arguments]
    assert main(nosbench.PROGRAM, [*folder, "--set", f"output={output}"]) == 2
    assert says in capsys.readouterr().err
    assert not output.exists()


# -------------------------------------------------------------------------------------------------- the real problems


def test_a_real_problem() -> None:
    folder = os.environ.get("NOSBENCH_DIR")
    if not folder:
        pytest.skip("set NOSBENCH_DIR to a folder with NOSBENCH problems")
    path = min(Path(folder).glob("*.json"), key=lambda file: file.stat().st_size)
    done = nosbench.answer(str(path), "base", LIMIT)
    assert not done["false_success"]
    assert np.isfinite(done["infeasibility"])
