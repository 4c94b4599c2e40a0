import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nosnoc_py import sweep

HERE = Path(__file__).parent
BALLS = """
problem:
  build: "small:ball"
  arguments: {pause: 0.2}
  measure: "small:fallen"
method: {name: FESDJ, finite_elements: 2, error_tolerance: null}
simulate: {x0: [9.0, 0.0], duration: 1.0, steps: 2}
sweep:
  grid: {problem.arguments.height: [1, 2, 3], problem.arguments.number: [0, 1, 2], method.rk_stages: [1, 2]}
run: {workers: 2, timeout: 60, output: out}
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A folder with small.py, and a function that writes a configuration there; the current folder is another one."""
    shutil.copy(HERE / "small.py", tmp_path / "small_copy.py")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    def write(text, name="study.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The log that the functions of small.py write, as a function that reads its lines."""
    path = tmp_path / "log"
    monkeypatch.setenv("SMALL_LOG", str(path))
    return lambda: path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="session")
def balls(tmp_path_factory):
    """The sweep of 18 runs, killed twice and started again: results, keys before the second start, logs of both.

    It is done once, also where several processes share the tests.
    """
    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "balls"
    folder.mkdir(exist_ok=True)
    seen = folder / "seen.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not seen.exists():
            seen.write_text(json.dumps(_killed_and_started_again(folder)))
    finished, before, after = json.loads(seen.read_text())
    return sweep.read(folder / "out"), set(finished), before, after


def _killed_and_started_again(folder):
    shutil.copy(HERE / "small.py", folder / "small.py")
    (folder / "balls.yaml").write_text(BALLS)
    gate = folder / "closed"
    environment = {**os.environ, "SMALL_LOG": str(folder / "log"), "SMALL_GATE": str(gate)}
    command = [sys.executable, "-c", "from nosnoc_py import sweep; sweep.run('balls.yaml')"]
    parent = subprocess.Popen(command, cwd=folder, env=environment)
    wait(lambda: _count(folder, "end") >= 4)
    gate.touch()
    wait(lambda: _count(folder, "held") == 2)
    os.kill(_started_by(parent.pid)[0], signal.SIGKILL)
    wait(lambda: _count(folder, "held") == 3)  # the run that was killed has begun again, or another one
    gate.unlink()
    wait(lambda: _count(folder, "end") >= 8)
    gate.touch()
    wait(lambda: _count(folder, "held") == 5)
    workers = _started_by(parent.pid)
    parent.kill()
    parent.wait()
    wait(lambda: not any(map(alive, workers)))
    gate.unlink()
    finished = [path.stem for path in (folder / "out" / "runs").glob("*.json")]
    before = (folder / "log").read_text().splitlines()
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=120)
    log = (folder / "log").read_text().splitlines()
    return finished, before, log[len(before) :]


def _count(folder, word):
    """How many runs have logged that they start, or that they end."""
    path = folder / "log"
    return sum(line.startswith(word) for line in path.read_text().splitlines()) if path.exists() else 0


def _started_by(pid):
    """Children of a process that run a task at this moment."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait(condition, seconds=1800.0):
    """Wait for something to be true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def alive(pid):
    """Whether a process exists and is no zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return False
