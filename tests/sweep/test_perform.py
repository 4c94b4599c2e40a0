"""Tasks in processes of their own: what they answer, how they die, what stays on disk."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from nosnoc_py.sweep.local import LocalExecutor
from nosnoc_py.sweep.perform import perform
from nosnoc_py.sweep.store import Store
from nosnoc_py.sweep.tasks import Outcome, Task

HERE = str(Path(__file__).parent)


def task(key, name, timeout=None, **arguments):
    return Task(key=key, function=f"small:{name}", arguments=arguments, paths=(HERE,), timeout=timeout)


class Pretended:
    """Answers without processes; deaths by key, in their order."""

    def __init__(self, deaths=None):
        self.deaths, self.ran = dict(deaths or {}), []

    def run(self, tasks):
        for each in tasks:
            self.ran.append(each.key)
            if self.deaths.get(each.key, 0) > 0:
                self.deaths[each.key] -= 1
                yield Outcome(task=each, death="pretended")
            else:
                yield Outcome(task=each, row={"success": True, "value": each.key})


def test_answers_come_back_as_json_holds_them(tmp_path):
    tasks = [task("a", "environment"), task("b", "with_file", value=3), task("c", "chatty"), task("d", "answer")]
    store = Store(tmp_path / "out")
    rows = perform(tasks, store, LocalExecutor(2))
    assert [row["key"] for row in rows] == ["a", "b", "c", "d"]
    assert rows[0]["OMP_NUM_THREADS"] == rows[0]["OPENBLAS_NUM_THREADS"] == rows[0]["NUMBA_NUM_THREADS"] == "1"
    assert rows[0]["infinite"] is None
    assert rows[0]["count"] == 3
    assert store.file("b", ".bin").read_bytes() == bytes(range(256)) * 3
    assert all(row["attempts"] == 1 for row in rows)
    assert perform(tasks, store, Pretended()) == rows  # read back, nothing done again


def test_what_raises_is_an_answer_and_what_dies_is_tried_again_once(tmp_path, log):
    marker = str(tmp_path / "marker")
    names = ["raises", "bug", "no_json", "leave", "shoot"]
    tasks = [task(name, name) for name in names] + [task("once", "leave_once", marker=marker)]
    states = []
    rows = {r["key"]: r for r in perform(tasks, Store(tmp_path / "out"), LocalExecutor(2), callback=states.append)}
    assert rows["raises"]["message"] == "OptionError: no"
    assert rows["bug"]["message"] == "ZeroDivisionError: division by zero"
    assert "JSON cannot hold" in rows["no_json"]["message"]
    assert [(rows[name]["status"], rows[name]["attempts"]) for name in names] == [("error", 1)] * 3 + [("died", 2)] * 2
    assert "exit code 3" in rows["leave"]["message"]
    assert "last words" in rows["leave"]["message"]
    assert "SIGKILL" in rows["shoot"]["message"]
    assert log().count("start leave") == log().count("start shoot") == 2
    assert (rows["once"]["success"], rows["once"]["attempts"]) == (True, 2)
    assert states[-1].finished == states[-1].total == 6
    assert states[-1].failed == 5


def test_what_hangs_is_killed_at_its_timeout_with_its_children(tmp_path):
    children = tmp_path / "children"
    for timeout in (3.0, 12.0, 48.0):  # a busy machine may need longer to start the task at all
        tasks = [task("slow", "hang", timeout=timeout, children=str(children)), task("other", "answer")]
        rows = perform(tasks, Store(tmp_path / f"out{timeout:g}"), LocalExecutor(2))
        assert rows[0]["status"] == "timeout"
        assert rows[0]["attempts"] == 1
        assert f"{timeout:g} s" in rows[0]["message"]
        if children.exists():
            break
    assert rows[1]["success"]
    _wait_for_death(int(pid) for pid in children.read_text().split())


@pytest.mark.skipif(sys.platform != "linux", reason="Linux kills the children of a killed process")
def test_orphans_die_with_a_killed_parent(tmp_path):
    children = tmp_path / "children"
    script = (
        "from nosnoc_py.sweep.local import LocalExecutor; from nosnoc_py.sweep.tasks import Task\n"
        f"t = Task(key='a', function='small:hang', arguments={{'children': {str(children)!r}}}, paths=({HERE!r},))\n"
        "list(LocalExecutor(1).run([t]))"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    while not (children.exists() and children.read_text().count(" ")):
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    _wait_for_death([int(children.read_text().split()[1])])
    os.kill(int(children.read_text().split()[0]), 9)  # what the task itself has started is its own affair


def test_deaths_are_counted_over_restarts(tmp_path):
    store, tasks = Store(tmp_path), [Task(key=key, function="a:b") for key in "abc"]
    first = Pretended({"b": 9})

    def stop(state):
        return ns.Stop if state.death else None

    assert [row["key"] for row in perform(tasks, store, first, callback=stop)] == ["a"]
    second = Pretended({"b": 9})
    rows = perform(tasks, store, second)
    assert second.ran == ["b", "c"]
    assert [(row["key"], row["success"], row["attempts"]) for row in rows] == [
        ("a", True, 1),
        ("b", False, 2),
        ("c", True, 1),
    ]
    assert perform(tasks, store, third := Pretended()) == rows
    assert third.ran == []
    again = perform(tasks, store, fourth := Pretended(), retry=True)  # only what failed
    assert fourth.ran == ["b"]
    assert again[1]["success"]
    assert again[1]["attempts"] == 1


def test_what_was_interrupted_has_not_died_and_what_has_died_too_often_is_not_tried_again(tmp_path):
    tasks = [Task(key="a", function="a:b")]

    class Interrupted:
        def run(self, given):
            next(iter(given))
            raise KeyboardInterrupt
            yield

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            perform(tasks, Store(tmp_path), Interrupted())
    store = Store(tmp_path)
    assert store.deaths()["a"] == 0
    for _ in range(2):  # what a kill leaves behind between the second death and the row
        store.bury("a", "signal SIGKILL")
    (row,) = perform(tasks, store, pretended := Pretended())
    assert pretended.ran == []
    assert (row["status"], row["attempts"]) == ("died", 2)


def test_a_line_and_a_file_that_a_kill_has_cut_do_no_harm(tmp_path):
    store, tasks = Store(tmp_path), [Task(key=key, function="a:b") for key in "ab"]
    perform(tasks[:1], store, Pretended())
    with (tmp_path / "deaths.jsonl").open("a") as file:
        file.write('{"key": "b", "ho')
    left = tmp_path / "runs" / f".b.json.{'0' * 32}"
    left.write_text("{")
    kept = tmp_path / ".notes.txt"
    kept.write_text("mine")
    rows = perform(tasks, store, Pretended())
    assert [row["attempts"] for row in rows] == [1, 1]
    assert not left.exists()
    assert kept.exists()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2], "truncated"),
        (lambda text: "", "truncated"),
        (lambda text: "[]", "another origin"),
        (lambda text: json.dumps({**json.loads(text), "version": "0.0.1"}), "another version .nosnoc_py 0.0.1"),
        (lambda text: json.dumps({**json.loads(text), "format_version": 99}), "another version .*format 99"),
        (lambda text: json.dumps({**json.loads(text), "files": {".nc": 7}}), "expected 7 bytes"),
    ],
)
def test_a_result_that_cannot_be_used_stops_before_anything_starts(tmp_path, damage, said):
    store, tasks = Store(tmp_path), [Task(key=key, function="a:b") for key in "abc"]
    perform(tasks[:2], store, Pretended())
    path = tmp_path / "runs" / "a.json"
    path.write_text(damage(path.read_text()))
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(OptionError, match=said) as error:
        perform(tasks, store, pretended := Pretended())
    assert "a.json" in str(error.value)
    assert "kept" in str(error.value)
    assert pretended.ran == []
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    path.unlink()
    assert len(perform(tasks, store, pretended)) == 3
    assert pretended.ran == ["a", "c"]


def test_folders_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("no folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(OptionError, match=r"output folder .* cannot be written"):
            perform([Task(key="a", function="a:b")], Store(folder), Pretended())
    assert (tmp_path / "file").read_text() == "no folder"


def test_one_process_at_a_time_works_in_a_folder(tmp_path):
    with Store(tmp_path).locked(), pytest.raises(OptionError, match="another process is at work"):
        perform([Task(key="a", function="a:b")], Store(tmp_path), Pretended())


def test_keys_are_unique_and_fit_into_file_names(tmp_path):
    with pytest.raises(OptionError, match="more than once: a"):
        perform([Task(key="a", function="a:b")] * 2, Store(tmp_path), Pretended())
    for key in ("", "a/b", "../a", ".a", "a b"):
        with pytest.raises(OptionError, match="key of a task"):
            Task(key=key, function="a:b")
    with pytest.raises(OptionError, match="workers"):
        LocalExecutor(0)


def _wait_for_death(pids):
    from tests.sweep.conftest import alive

    deadline = time.monotonic() + 1800.0
    left = list(pids)
    while left := [pid for pid in left if alive(pid)]:
        assert time.monotonic() < deadline, f"still alive: {left}"
        time.sleep(0.05)
