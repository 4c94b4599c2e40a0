"""`examples`: what it copies, what it refuses, that the copy runs by itself, and that the wheel has all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import nosnoc_py as ns
from nosnoc_py.cli import examples
from nosnoc_py.errors import OptionError
from tests.cli.cases import as_json, refused, succeeded

ROOT = Path(__file__).parents[2]


@pytest.mark.quick
def test_a_copy_is_complete_and_clean(tmp_path: Path) -> None:
    text = succeeded("examples", tmp_path / "mine")
    assert "python -m problems.bouncing_ball" in text
    assert all(part.split("/")[0] in text for part in examples.PARTS)  # the message names every folder
    copied = {
        path.relative_to(tmp_path / "mine").as_posix() for path in (tmp_path / "mine").rglob("*") if path.is_file()
    }
    assert {"models/bouncing_ball.py", "problems/benchmarks/referee.py", "notebooks/06_simulators.ipynb"} <= copied
    assert {"tests/__init__.py", "tests/references/relay.py", "problems/configs/disc_homotopy.yaml"} <= copied
    assert not [name for name in copied if "__pycache__" in name or "/." in name]
    assert not (tmp_path / "mine" / "tests" / "cli").exists()
    assert all(os.access(tmp_path / "mine" / name, os.W_OK) for name in copied)


@pytest.mark.quick
def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    assert "is not an empty folder" in refused("examples", tmp_path)
    assert "is not an empty folder" in refused("examples", tmp_path / "note.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]
    written = as_json("examples", tmp_path / "new")["written"]
    assert [Path(path).relative_to(tmp_path / "new").as_posix() for path in written] == list(examples.PARTS)


@pytest.mark.quick
def test_an_installed_package_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "nosnoc_py"
    monkeypatch.setattr(examples.nosnoc_py, "__file__", str(package / "__init__.py"))
    with pytest.raises(OptionError, match="this installation has no examples"):
        examples.source()
    for part in examples.PARTS:
        (package / "examples" / part).mkdir(parents=True)
    assert examples.source() == package / "examples"


@pytest.mark.quick
def test_the_wheel_is_told_to_take_the_same_parts() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packed = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert packed == {part: f"nosnoc_py/examples/{part}" for part in examples.PARTS}


def test_a_copied_problem_runs_by_itself(tmp_path: Path) -> None:
    """With the library on the path, but not the folders of the repository."""
    examples.copy(tmp_path / "mine")
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "nosnoc_py").symlink_to(Path(ns.__file__).parent)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "library")}
    command = [sys.executable, "-m", "problems.bouncing_ball", "--quick", "--json"]
    done = subprocess.run(command, cwd=tmp_path / "mine", env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["problem"] == "bouncing_ball"
