"""Values on their way into a configuration, a key, a row and a table."""

import csv
import json
from fractions import Fraction
from pathlib import Path

import casadi as ca
import numpy as np
import pytest

from nosnoc_py import sweep
from nosnoc_py.errors import OptionError
from nosnoc_py.sweep import study as study_module
from nosnoc_py.sweep.config import configuration, load, plain
from nosnoc_py.sweep.execute import _measured, execute
from nosnoc_py.sweep.grid import runs
from nosnoc_py.sweep.references import RaisedError
from nosnoc_py.sweep.results import Results, check_table, row_of, write_copy, write_table
from nosnoc_py.sweep.store import FORMAT_VERSION, Store
from nosnoc_py.sweep.tasks import Outcome

pytestmark = pytest.mark.quick

BALL = 'problem: {build: "small_copy:ball"}\nmethod: {name: FESDJ}\nsimulate: {x0: [9, 0], duration: 1.0}\n'
ROW = {"key": "k", "status": "solved", "success": True}


def test_arrays_and_ranges_are_lists_of_plain_numbers():
    given = {
        "a": np.array([1, 2]),
        "b": np.float64(0.5),
        "c": range(3),
        "d": (np.int64(1), ca.DM([1, 2])),
        "e": np.bool_(1),
    }
    found = plain(given)
    assert json.dumps(found) == '{"a": [1, 2], "b": 0.5, "c": [0, 1, 2], "d": [1, [1.0, 2.0]], "e": true}'


def test_a_sweep_over_arrays_is_that_over_lists(study):
    folder = study(BALL).parent
    base = {
        "problem": {"build": "small_copy:ball"},
        "method": {"name": "FESDJ", "rk_stages": np.int64(2)},
        "simulate": {"x0": np.array([9, 0]), "duration": np.float64(1.0), "steps": np.int64(2)},
        "sweep": {"grid": {"problem.arguments.height": np.linspace(1, 2, 3), "problem.arguments.number": range(2)}},
    }
    listed = json.loads(json.dumps(plain(base)))
    keys = [run.key for run in runs(configuration(base, folder / "a.yaml"))]
    assert keys == [run.key for run in runs(configuration(listed, folder / "a.yaml"))]
    assert len(set(keys)) == 6


# Twenty lists that hold the one before ten times: 1e20 values in 600 bytes.
LISTS = [f"&a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 21)]
BOMB = f"[&a0 1, {', '.join(LISTS)}]"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (".inf", "problem.arguments.height: expected a finite number, given inf"),
        ("[1, .nan]", "problem.arguments.height: expected a finite number, given nan"),
        ("1" + "0" * 400, "problem.arguments.height: expected a number of at most 63 bits, given one of 1329"),
        ("1" + "0" * 5000, "integer string conversion"),
        ('"\\uD800"', "problem.arguments.height: expected words that UTF-8 can hold"),
        ("2020-13-45", "month must be in"),
        (BOMB, "expected at most 100000 values"),
        ("&x [*x]", "something contains itself, or is nested too deeply"),
    ],
)
def test_values_that_no_result_could_hold(study, value, said):
    with pytest.raises(OptionError) as error:
        load(study(BALL.replace('ball"}', f'ball", arguments: {{height: {value}}}}}')))
    assert said in str(error.value)
    assert "study.yaml: " in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_infinite_defaults_stay_with_their_function(study):
    folder = study(BALL).parent
    (folder / "infinite.py").write_text("def build(limit=float('inf'), number=2): return limit")
    (run,) = runs(configuration({"problem": {"build": "infinite:build"}}, folder / "a.yaml"))
    assert run.resolved["problem"]["arguments"] == {"number": 2}


def test_true_and_one_are_two_values():
    rows = tuple({**ROW, "key": str(i), "a": value, "iterations": i} for i, value in enumerate((1, True, 1, True, 0)))
    found = Results(rows=rows, axes=("a",), configuration=None, total=5, folder=Path())
    lines = [line.split()[:4] for line in found.summary().splitlines()[-3:]]
    assert lines == [["1", "2", "of", "2"], ["True", "2", "of", "2"], ["0", "1", "of", "1"]]


def test_medians_are_of_the_successful_runs():
    failed = {**ROW, "success": False, "status": "error", "message": "no", "iterations": 1000}
    rows = tuple({**row, "a": 1} for row in ({**ROW, "iterations": 3}, {**ROW, "iterations": 5}, failed))
    text = Results(rows=rows, axes=("a",), configuration=None, total=3, folder=Path()).summary()
    assert text.splitlines()[-2].split() == ["1", "2", "of", "3", "4"]
    only = Results(rows=rows[2:], axes=("a",), configuration=None, total=3, folder=Path()).summary()
    assert only.splitlines()[-2].split() == ["1", "0", "of", "1", "-"]


def test_no_column_takes_the_place_of_the_key_or_of_an_axis():
    row = row_of({"a.b": 1}, {**ROW, "a.b": 2, "height": 3})
    assert row == {"key": "k", "a.b": 1, "status": "solved", "success": True, "height": 3}
    assert list(row)[:2] == ["key", "a.b"]


def measured(returned, tmp_path, monkeypatch):
    """What is kept of what a measure returns."""
    monkeypatch.setattr("tests.sweep.test_values.returned", returned, raising=False)
    given = {"measure": "tests.sweep.test_values:measure", "arguments": {}}
    return _measured(None, None, given, None, {"status": "solved", "success": True})


def measure(problem, result):
    """A measure that returns what the test says."""
    return returned  # noqa: F821


def test_measures_are_plain_numbers(tmp_path, monkeypatch):
    values = {"a": np.bool_(True), "b": np.array(2.5), "c": ca.DM(1), "d": np.int64(3), "e": 10**30, "f": 10**400}
    found = measured({**values, "g": Fraction(1, 2), "h": None, "i": "word"}, tmp_path, monkeypatch)
    assert json.dumps(list(found.values())) == '[true, 2.5, 1.0, 3, 1e+30, null, 0.5, null, "word"]'


@pytest.mark.parametrize(
    "name", ["key", "attempts", "repeat", "status", "success", "certificate", "method", "a.b", "", 3]
)
def test_measures_that_would_take_the_place_of_others(tmp_path, monkeypatch, name):
    with pytest.raises(OptionError, match=r"problem\.measure: .*(is a column already|expected names of columns)"):
        measured({name: 1}, tmp_path, monkeypatch)


@pytest.mark.parametrize("value", [np.zeros(2), 1j, ca.DM([1, 2]), ca.SX.sym("x"), [1], object()])
def test_measures_that_are_no_numbers(tmp_path, monkeypatch, value):
    with pytest.raises(OptionError, match=r"problem\.measure: 'a': expected a number"):
        measured({"a": value}, tmp_path, monkeypatch)


def test_what_a_function_of_the_user_raises_is_told_with_its_name(study):
    path = study('problem: {build: "own_build:build"}')
    (path.parent / "own_build.py").write_text("def build(): return 1 / 0")
    (run,) = runs(load(path))
    with pytest.raises(RaisedError) as error:
        execute(run.resolved, folder=path.parent)
    assert str(error.value) == "problem.build: own_build:build raised ZeroDivisionError: division by zero"
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    (path.parent / "own_exit.py").write_text("import sys; sys.exit('no')")
    with pytest.raises(OptionError, match=r"study\.yaml: 'own_exit:build': cannot be imported, SystemExit: no"):
        runs(load(study('problem: {build: "own_exit:build"}')))


def test_the_runs_can_be_looked_at_before(study):
    path = study(BALL + "sweep: {grid: {problem.arguments.height: [1, 2]}}")
    assert [run.axes for run in sweep.runs(path)] == [{"problem.arguments.height": 1}, {"problem.arguments.height": 2}]
    assert [run.key for run in sweep.runs(sweep.load(path))] == [run.key for run in sweep.runs(path)]
    for text, said in (
        (BALL + "sweep: {grid: {method.rk_stage: [1]}}", "sweep.grid: the path 'method.rk_stage' leads nowhere"),
        (BALL.replace(":ball", ":bal"), "'small_copy:bal': module"),
        (BALL + "sweep: {grid: {method.rk_stages: [many]}}", "method: "),
    ):
        with pytest.raises(OptionError) as error:
            sweep.runs(study(text))
        assert str(error.value).startswith(f"{path}: {said}")
        assert str(error.value).count("study.yaml") == 1


class Caught:
    """Answers at once, and remembers the tasks."""

    def run(self, tasks):
        self.tasks = list(tasks)
        for each in self.tasks:
            yield Outcome(task=each, row={"status": "died" if self.fails else "solved", "success": not self.fails})


@pytest.fixture
def caught(monkeypatch):
    """The executor of a sweep without processes."""
    found = Caught()
    monkeypatch.setattr(study_module, "LocalExecutor", lambda workers: found)
    return found


def test_timeout_trajectories_and_retry_arrive(study, caught):
    path = study(BALL + "run: {timeout: 7.5, trajectories: false, output: out}")
    caught.fails = True
    assert not sweep.run(path).success
    assert caught.tasks[0].timeout == 7.5
    assert caught.tasks[0].arguments["trajectory"] is False
    caught.tasks, caught.fails = None, False
    assert not sweep.run(path).success
    assert caught.tasks is None
    assert sweep.run(path, retry=True).success
    assert len(caught.tasks) == 1


def test_the_error_that_ends_a_sweep_is_not_hidden(study, caught, monkeypatch):
    caught.fails = False

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    def damaged(folder):
        raise OptionError("damaged")

    monkeypatch.setattr(Store, "write", full)
    monkeypatch.setattr(study_module, "read", damaged)
    with pytest.raises(OSError, match="No space left"):
        sweep.run(study(BALL + "run: {output: out}"))


@pytest.mark.parametrize(
    "index",
    [
        {"runs": 3, "axes": []},
        {"runs": [3], "axes": []},
        {"runs": [{"key": "a"}], "axes": []},
        {"runs": [{"key": "a", "axes": {}}], "axes": ["b"]},
        {"runs": [], "axes": 3},
        {"runs": [{"key": "a", "axes": {}}], "axes": []},
    ],
)
def test_an_index_of_an_odd_shape_is_one_message(study, index):
    folder = Path("out")
    store = Store(folder)
    with store.locked():
        store.write("a", {"key": "a"})
    write_copy(folder, load(study(BALL)))
    (folder / "sweep.json").write_text(json.dumps({"format_version": FORMAT_VERSION, **index}))
    with pytest.raises(OptionError, match=r"sweep\.json: damaged|has results that are not of a sweep"):
        sweep.read(folder)


def test_tables(tmp_path, monkeypatch):
    rows = [{"key": "a", "x": 1, "attempts": 1}, {"key": "b", "x": 0.5, "word": "\u00fc", "attempts": 1}]
    lines = list(csv.reader(write_table(rows, tmp_path, "csv").read_text(encoding="utf-8").splitlines()))
    assert lines == [["key", "x", "word", "attempts"], ["a", "1", "", "1"], ["b", "0.5", "\u00fc", "1"]]
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    check_table("csv")
    with pytest.raises(OptionError, match="parquet needs pyarrow; pip install"):
        check_table("parquet")
