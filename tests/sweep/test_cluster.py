"""Sweeps on a Dask cluster: the same table, workers and schedulers that die, addresses that lead nowhere."""

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nosnoc_py import sweep
from nosnoc_py.errors import OptionError
from nosnoc_py.sweep.perform import perform
from nosnoc_py.sweep.store import Store
from nosnoc_py.sweep.tasks import Outcome, Task
from tests.sweep.conftest import BALLS, HERE, wait

ONE = 'problem: {build: "small_copy:task"}\nrun: {output: out}\n'


@pytest.mark.slow
def test_a_cluster_gives_the_same_table(balls, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    from nosnoc_py.sweep.cluster import DaskExecutor

    folder = balls[0].folder.parent
    monkeypatch.chdir(folder)
    rows = BALLS.replace("number: [0, 1, 2]", "number: [1]").replace("run: {", "run: {trajectories: false, ")
    (tmp_path / "rows.yaml").write_text(rows)
    expected = [row for row in _told(balls[0]) if row["problem.arguments.number"] == 1]
    cluster = Cluster(tmp_path)
    with cluster as (address, workers):
        states = []
        results = sweep.run(tmp_path / "rows.yaml", scheduler=address, output=tmp_path / "out", callback=states.append)
        assert len(results) == len(expected) == 6
        assert _told(results) == expected
        assert [state.finished for state in states] == list(range(7))
        again = sweep.run(tmp_path / "rows.yaml", scheduler=address, output=tmp_path / "out", callback=states.append)
        assert _told(again) == _told(results)
        assert len(states) == 8  # nothing was done again

        def kill_one(state):
            if state.finished == 1 and len(workers) == 2:
                workers.pop().kill()

        small = _smaller(folder)
        lamed = sweep.run(small, scheduler=address, output=tmp_path / "lamed", callback=kill_one)
        assert len(lamed) == 3
        assert lamed.success
        assert sorted(lamed.column("attempts")) == [1, 1, 2]
        with DaskExecutor(address) as executor:  # what dies there dies alone
            task = Task(key="leave", function="small:leave", paths=(str(HERE),))
            (row,) = perform([task], Store(tmp_path / "dead"), executor)
        assert (row["status"], row["attempts"]) == ("died", 2)
        assert "last words" in row["message"]
        assert not list((tmp_path / "out" / "runs").glob("*.nc"))
        monkeypatch.setattr(DaskExecutor.__init__, "__defaults__", (2.0,))
        with pytest.raises(OptionError, match=r"does not answer any more .TimeoutError: no answer within 2 s"):
            sweep.run(small, scheduler=address, output=tmp_path / "still", callback=lambda state: _stop(cluster, state))
        cluster.scheduler.send_signal(signal.SIGCONT)
        with pytest.raises(OptionError, match=r"does not answer any more .* finished runs are kept"):
            sweep.run(small, scheduler=address, output=tmp_path / "lost", callback=lambda state: _end(cluster, state))
        assert len(sweep.read(tmp_path / "lost")) == 1
        assert (tmp_path / "lost" / "results.csv").read_text().count("\n") == 2


def test_a_scheduler_that_does_not_answer(study, tmp_path):
    pytest.importorskip("distributed")
    from nosnoc_py.sweep.cluster import DaskExecutor

    with socket.socket() as taken:  # nobody accepts connections here
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OptionError, match=f"scheduler {address}: no answer within 1 s"):
            DaskExecutor(address, patience=1.0)
    with pytest.raises(OptionError, match=r"no-such-host\.invalid:8786: there is no such address"):
        sweep.run(study(ONE), scheduler="tcp://no-such-host.invalid:8786")
    for wrong in ("", "nonsense", "nonsense://1", "127.0.0.1", "tcp://127.0.0.1", "tcp://:8786", "a b:1"):
        with pytest.raises(OptionError, match="scheduler: expected an address such as tcp"):
            sweep.run(study(ONE), scheduler=wrong)
    assert not Path("out").exists()


@pytest.mark.parametrize("there", [True, False])
def test_an_answer_that_went_down_with_its_worker_is_a_death(monkeypatch, there):
    from nosnoc_py.sweep import cluster

    class Late:
        status, asked = "finished", 0

        def result(self, timeout):
            self.asked += 1
            if there and self.asked == 3:
                return Outcome(task=None, row={"success": True})
            raise TimeoutError

        def cancel(self):
            self.cancelled = True

    executor = object.__new__(cluster.DaskExecutor)
    monkeypatch.setattr(executor, "_threads", lambda: {"a": 1} if there else {}, raising=False)
    outcome = executor._outcome(Task(key="k", function="a:b"), "a", late := Late())
    if there:
        assert (outcome.row, late.asked) == ({"success": True}, 3)
    else:
        assert (outcome.row, outcome.death, late.cancelled) == (None, "the worker a of the cluster is gone", True)


def _end(cluster, state):
    if state.finished == 1:
        cluster.scheduler.kill()


def _stop(cluster, state):
    if state.finished == 1:
        cluster.scheduler.send_signal(signal.SIGSTOP)


def _smaller(folder):
    """Three runs; the first is over long before any other, so that both workers are at work when it is reported."""
    axes = "zip: {problem.arguments.height: [1, 2, 3], problem.arguments.pause: [0.05, 1.0, 1.0]}"
    text = re.sub(r"grid: .*", axes, BALLS)
    (folder / "smaller.yaml").write_text(text)
    return folder / "smaller.yaml"


def _told(results):
    """All that has to be the same: everything but time and bad luck."""
    luck = ("wall_seconds", "attempts")
    return [{key: value for key, value in row.items() if key not in luck} for row in results.rows]


class Cluster:
    """A scheduler and two workers with one thread each, as processes; no dashboard, which would need a port."""

    def __init__(self, folder):
        self.folder, self.file = folder, folder / "scheduler.json"

    def _start(self, kind, *options):
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--no-dashboard", *options]
        log = (self.folder / f"{kind}.log").open("ab")
        process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        log.close()
        return process

    def __enter__(self):
        own = ("--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(self.file))
        self.scheduler = self._start("scheduler", *own)
        wait(self.file.exists)
        address = wait(lambda: json.loads(self.file.read_text() or "{}").get("address"))
        options = (address, "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1")
        self.all = [self._start("worker", *options) for _ in range(2)]
        return address, list(self.all)

    def __exit__(self, *_):
        for process in (*self.all, self.scheduler):
            process.kill()
            process.wait()
