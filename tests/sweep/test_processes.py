"""What tasks can do to their processes: none hangs, none dies unseen, none harms what is kept."""

import errno
import json
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nosnoc_py import processes
from nosnoc_py.errors import OptionError
from nosnoc_py.sweep.local import LocalExecutor
from nosnoc_py.sweep.perform import perform
from nosnoc_py.sweep.store import Store
from nosnoc_py.sweep.tasks import Outcome, Task

HERE = str(Path(__file__).parent)


def outcome(name, timeout=60.0, **arguments):
    """How one call of a function of small.py ends."""
    task = Task(key="a", function=f"small:{name}", arguments=arguments, paths=(HERE,), timeout=timeout)
    (found,) = LocalExecutor(1).run([task])
    return found


def test_a_fork_that_outlives_a_killed_worker_does_not_hide_its_death():
    assert "SIGKILL" in outcome("fork_and_die", timeout=None).death


def test_signals_without_names_are_numbers():
    assert "(signal 40)" in outcome("end_by", number=40).death
    assert "(signal SIGUSR1)" in outcome("end_by", number=int(signal.SIGUSR1)).death


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("exits", {"text": "enough"}, "SystemExit: enough"),
        ("interrupts", {}, "KeyboardInterrupt: "),
        ("says", {"text": "half \ud800 a character"}, "ValueError: half \\ud800 a character"),
        ("odd_suffix", {"suffix": "/../a.json"}, "OptionError: file of a task: expected a suffix"),
        ("odd_suffix", {"suffix": ".json"}, "OptionError: file of a task: expected a suffix"),
    ],
)
def test_what_a_task_raises_is_an_answer(name, arguments, said):
    row = outcome(name, **arguments).row
    assert row["status"] == "error"
    assert row["message"].startswith(said)
    row["message"].encode()


def test_a_full_machine_is_a_death_and_a_missing_file_is_an_answer():
    assert "No space left" in outcome("full", number=errno.ENOSPC).death
    assert "FileNotFoundError" in outcome("full", number=errno.ENOENT).row["message"]


def test_a_task_that_reads_meets_the_end():
    assert outcome("reads").row == {"success": True, "read": ""}


def test_sigterm_is_for_the_parent_and_for_what_the_task_starts():
    assert outcome("terminated").row == {"success": True, "forked": -15, "program": -15}


def test_one_process_does_all_until_it_dies_is_late_or_has_done_its_share():
    """The calls of small.py tell their process; one that was lost is replaced, and begins where the first one did."""
    names = ["who", "moves", "raises", "who", "who", "leave", "who", "hang", "who"]
    tasks = [Task(key=f"{k}", function=f"small:{name}", paths=(HERE,)) for k, name in enumerate(names)]
    tasks[7] = replace(tasks[7], timeout=0.5)
    found = {one.task.key: one for one in LocalExecutor(1, tasks_each=4).run(tasks)}
    pids = [found[key].row["pid"] for key in "013468"]
    assert [pids.index(pid) for pid in pids] == [0, 0, 0, 3, 4, 5]
    assert {found[key].row["folder"] for key in "013468"} == {str(Path.cwd())}
    assert "exit code 3" in found["5"].death
    assert found["7"].row["status"] == "timeout"
    assert not any(HERE in entry for entry in found["8"].row["path"])


def test_half_an_answer_is_late_too(monkeypatch):
    half = "import os, sys, time; os.write(int(sys.argv[3]), bytes([0, 0, 0, 9, 1])); time.sleep(600)"
    monkeypatch.setattr(processes, "START", half)
    started = time.monotonic()
    assert outcome("answer", timeout=0.5).row["status"] == "timeout"
    assert time.monotonic() - started > 0.4


def test_a_death_behind_a_line_that_was_cut_counts(tmp_path):
    store = Store(tmp_path)
    with store.locked():
        store.bury("a", "signal SIGKILL")
    with (tmp_path / "deaths.jsonl").open("a") as file:
        file.write('{"key": "b", "ho')
    with Store(tmp_path).locked():
        store.bury("b", "signal SIGKILL")
    assert store.deaths() == {"a": 1, "b": 1}
    assert [json.loads(line)["key"] for line in (tmp_path / "deaths.jsonl").read_text().splitlines()] == ["a", "b"]


def test_a_row_keeps_its_key(tmp_path):
    class Liar:
        def run(self, tasks):
            for each in tasks:
                yield Outcome(task=each, row={"success": True, "key": 3, "attempts": 9})

    assert perform([Task(key="a", function="a:b")], Store(tmp_path), Liar()) == [
        {"key": "a", "success": True, "attempts": 1}
    ]


@pytest.mark.parametrize(
    "change", [{"row": 3}, {"row": []}, {"files": [1]}, {"files": {".nc": "7"}}, {"files": {"/": 1}}]
)
def test_results_of_odd_shapes(tmp_path, change):
    store = Store(tmp_path)
    with store.locked():
        store.write("a", {"key": "a", "success": True})
    path = tmp_path / "runs" / "a.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(OptionError, match=r"a\.json: this result cannot be used, it is damaged, or of another origin"):
        store.row("a")


@pytest.mark.parametrize("suffix", ["", "nc", "/x", ".a/b", "..", ".json", ". "])
def test_suffixes_stay_in_their_folder(tmp_path, suffix):
    store = Store(tmp_path)
    with store.locked(), pytest.raises(OptionError, match="expected a suffix"):
        store.write("a", {"key": "a"}, {suffix: b"1"})
    assert not list((tmp_path / "runs").iterdir())


def test_the_folder_of_another_is_not_touched(tmp_path, monkeypatch):
    """The trial of whether files can be written there comes after the lock."""
    from nosnoc_py.sweep import store as module

    with Store(tmp_path).locked():
        monkeypatch.setattr(module, "write_atomically", lambda *_: pytest.fail("wrote without the lock"))
        with pytest.raises(OptionError, match="another process is at work"), Store(tmp_path).locked():
            pass
