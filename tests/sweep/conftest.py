import os
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent


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


def alive(pid):
    """Whether a process exists and is no zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return False
