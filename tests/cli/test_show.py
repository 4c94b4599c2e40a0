"""`show` a file: the summary, the events, figures; and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

import nosnoc_py as ns
from models import bouncing_ball
from nosnoc_py.solution import storage
from tests.cli.cases import PNG, as_json, refused, succeeded

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a solution and a trajectory."""
    folder = tmp_path_factory.mktemp("results")
    ball = bouncing_ball.build()
    ns.solve(ns.OCP(ball, horizon=0.2, x0=[1.0, 0.0]), ns.FESDJ(control_stages=2)).save(folder / "drop.nc")
    ns.simulate(ball, x0=[1.0, 0.0], duration=1.0, steps=10).save(folder / "ball.nc")
    return folder


def test_solution(results: Path, tmp_path: Path):
    text = succeeded("show", results / "drop.nc", "--figures", tmp_path / "new" / "figures")
    solution = ns.load(results / "drop.nc")
    assert isinstance(solution, ns.Solution)
    assert text.startswith(solution.summary())
    drawn = sorted((tmp_path / "new" / "figures").iterdir())
    assert [path.name for path in drawn] == ["drop.png", "drop_homotopy.png"]
    assert [f"figure: {path}" for path in drawn] == text.splitlines()[-2:]
    assert all(path.read_bytes()[:8] == PNG for path in drawn)


def test_trajectory_beside_its_file(results: Path):
    text = succeeded("show", results / "ball.nc")
    assert "impact ground at 0.451524" in text
    assert (results / "ball.png").read_bytes()[:8] == PNG
    assert not (results / "ball_homotopy.png").exists()


def test_json_draws_only_when_asked(results: Path, tmp_path: Path):
    output = as_json("show", results / "ball.nc")
    assert output["status"] == "solved"
    assert output["figures"] == []
    assert output["events"][0]["time"] == pytest.approx(0.451523640986, abs=1e-11)
    output = as_json("show", results / "ball.nc", "--figures", tmp_path)
    assert output["figures"] == [str(tmp_path / "ball.png")]


def test_a_failed_result_is_shown_with_its_remedy(tmp_path: Path):
    stopped = ns.simulate(bouncing_ball.build(), x0=[1.0, 0.0], duration=1.0, steps=10, callback=lambda state: ns.Stop)
    stopped.save(tmp_path / "stopped.nc")
    assert "stopped by callback" in succeeded("show", tmp_path / "stopped.nc")  # what `show` had to do succeeded


def test_absent_file(tmp_path: Path):
    assert "there is no such file; expected a result (.nc)" in refused("show", tmp_path / "absent.nc")


@pytest.mark.parametrize("size", [0, 4, 2000, -1])
def test_truncated_file(results: Path, tmp_path: Path, size: int):
    (tmp_path / "cut.nc").write_bytes((results / "drop.nc").read_bytes()[:size])
    message = refused("show", tmp_path / "cut.nc")
    assert "cut.nc: expected a complete netCDF-3 file" in message
    assert [path.name for path in tmp_path.iterdir()] == ["cut.nc"]


def test_file_of_another_kind(tmp_path: Path):
    (tmp_path / "text.nc").write_text("Not [netCDF] at all.")
    assert "damaged or of another origin" in refused("show", tmp_path / "text.nc")


def test_file_of_another_version(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trajectory = ns.load(results / "ball.nc")
    monkeypatch.setattr(storage, "FORMAT_VERSION", 99)
    trajectory.save(tmp_path / "future.nc")
    monkeypatch.undo()
    assert "given format_version 99, expected 3" in refused("show", tmp_path / "future.nc")


def test_figures_where_nothing_can_be_written(results: Path, tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    assert "file" in refused("show", results / "ball.nc", "--figures", tmp_path / "file")
    assert "file" in refused("show", results / "ball.nc", "--figures", tmp_path / "file" / "deeper")
