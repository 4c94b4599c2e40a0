"""Whole sweeps: 18 runs that are killed and go on, on this machine and on a cluster; results and tables."""

import csv
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py import sweep
from nosnoc_py.errors import OptionError
from nosnoc_py.sweep.execute import execute
from nosnoc_py.sweep.grid import runs

OCPS = """
problem: {build: "small_copy:task", guess: "small_copy:start"}
method: {name: FESDJ, control_stages: 4}
solver: {name: Auto}
sweep: {grid: {method.rk_stages: [2, 3]}, repeat: 2, seed: 5}
run: {workers: 2, output: out, table: parquet}
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_sweep_goes_on_where_it_was(balls):
    results, finished, before, after = balls
    assert len(results) == results.total == 18
    assert results.success
    assert len({row["key"] for row in results.rows}) == 18
    assert 6 <= len(finished) < 18
    for row in results.rows:
        name = f"start {row['problem.arguments.height']} {row['problem.arguments.number']}"
        done = row["key"] in finished
        same = [other["key"] in finished for other in results.rows if _of(other) == _of(row)]
        if all(same):  # the log does not tell the two numbers of stages apart
            assert name not in after
        assert done or name in after
    assert sum("end" in line for line in after) == 18 - len(finished)  # every missing run once, no other
    starts = Counter(line for line in before + after if line.startswith("start"))
    assert sorted(results.column("attempts")) == [1] * 17 + [2]  # one worker was killed; with its parent none died
    assert sum(starts.values()) <= 18 + 1 + 2  # those that were at work when the parent was killed were begun again


@pytest.mark.slow
def test_the_numbers_are_those_of_the_runs(balls):
    for row in balls[0].rows:
        n = 2 * 2  # steps of implicit Euler, which is what one stage gives: 9 - g (1 + ... + n) / n^2
        fallen = 9.81 / 2 if row["method.rk_stages"] == 2 else 9.81 * (n + 1) / (2 * n)
        assert row["height"] == pytest.approx(9.0 - fallen, abs=1e-9)
        assert row["number"] == row["problem.arguments.number"] + 10 * row["problem.arguments.height"]
        assert row["undefined"] is None
        assert row["objective"] is None
    heights = [row["problem.arguments.height"] for row in balls[0].rows]
    assert heights == sorted(heights)  # the first axis is the slowest
    lines = list(csv.DictReader((balls[0].folder / "results.csv").read_text().splitlines()))
    assert [line["key"] for line in lines] == [row["key"] for row in balls[0].rows]
    assert [float(line["height"]) for line in lines] == balls[0].column("height")
    assert lines[0]["objective"] == ""
    trajectory = balls[0].trajectory(balls[0].rows[-1])
    assert trajectory.final_state[0] == balls[0].rows[-1]["height"]


@pytest.mark.slow
def test_the_summary_says_what_is_what(balls):
    text = balls[0].summary()
    assert "18 of 18 runs finished, 18 succeeded" in text
    assert "median height" in text
    assert "9 of 9" in text
    assert list(balls[0].to_dataframe().columns)[:4] == ["key", *balls[0].axes]
    with pytest.raises(ns.UnknownNameError, match="Did you mean 'height'"):
        balls[0].column("heigt")


def test_optimal_control_with_repeats_guess_and_parquet(study):
    parquet = pytest.importorskip("pyarrow.parquet")
    results = sweep.run(study(OCPS))
    assert results.axes == ("method.rk_stages", "repeat")
    assert results.success
    assert results.column("objective") == pytest.approx([12.8] * 4, rel=1e-6)  # 12 N^2 / (N^2 - 1) with N = 4 steps
    assert results.best["success"]
    expected = {"status", "complementarity_min", "stationarity", "impacts", "attempts", "wall_seconds"}
    assert expected <= set(results.columns)
    resolved = [run.resolved for run in runs(sweep.load(study(OCPS)))]
    seeds = [(each["solver"]["seed"], each["problem"]["arguments"]["seed"]) for each in resolved]
    assert seeds == [(5, 5), (6, 6)] * 2
    table = parquet.read_table("out/results.parquet").to_pylist()
    assert [line["objective"] for line in table] == results.column("objective")
    assert isinstance(results.trajectory(results.rows[0]), ns.Solution)
    assert Path("out/configuration.yaml").read_text() == OCPS


def test_mistakes_in_a_run_are_rows(study):
    text = OCPS.replace("table: parquet", "table: csv").replace('guess: "small_copy:start"', "guess: [1, 2]")
    results = sweep.run(study(text.replace("repeat: 2, seed: 5", "zip: {certify: [false]}")))
    assert [(row["status"], row["attempts"]) for row in results.rows] == [("error", 1)] * 2
    assert not results.success
    said = results.rows[0]["message"]
    assert said.startswith("TranscriptionError: guess: control: expected 1 numbers or rows of 1")
    assert "given shape (2)" in said
    assert "2  error" in results.summary()
    with pytest.raises(OptionError, match="has no trajectory"):
        results.trajectory(results.rows[0])


def test_parts_that_do_not_fit_together(study):
    (run,) = runs(sweep.load(study('{problem: {build: "small_copy:ball"}}')))
    with pytest.raises(OptionError, match="to simulate a system, add"):
        execute(run.resolved, folder=study("").parent)
    text = '{problem: {build: "small_copy:task", measure: "small_copy:wrong_measure"}, method: {name: FESDJ}}'
    (run,) = runs(sweep.load(study(text)))
    with pytest.raises(OptionError, match="expected a mapping of numbers"):
        execute(run.resolved, folder=study("").parent)
    with pytest.raises(OptionError, match="leave simulate out"):
        execute({**run.resolved, "simulate": {"x0": [1], "duration": 1}}, folder=study("").parent)


def test_one_run_in_this_process_certified(study):
    text = '{problem: {build: "small_copy:task"}, method: {name: FESDJ, control_stages: 4}, certify: true}'
    path = study(text)
    (run,) = runs(sweep.load(path))
    assert run.axes == {}
    result = execute(run.resolved, folder=path.parent, trajectory=False)
    assert result.row["certificate"] == "confirmed"
    assert result.trajectory is None
    assert np.isclose(result.solution.objective, 12.8)
    assert isinstance(result.problem, ns.OCP)


def test_folders_that_are_no_sweep(study, tmp_path):
    with pytest.raises(OptionError, match="is not the output folder of a sweep"):
        sweep.read(tmp_path)
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(OptionError, match="damaged"):
        sweep.read(tmp_path)
    (tmp_path / "sweep.json").write_text(json.dumps({"format_version": 0, "runs": [], "axes": []}))
    with pytest.raises(OptionError, match="another version"):
        sweep.read(tmp_path)


def _of(row):
    return row["problem.arguments.height"], row["problem.arguments.number"]
