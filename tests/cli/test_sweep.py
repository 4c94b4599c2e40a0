"""`sweep` and `show` of its folder: runs in processes, resumption, Ctrl-C, pictures, mistakes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nosnoc_py.progress import Progress
from nosnoc_py.sweep import cluster
from nosnoc_py.sweep.perform import SweepState
from tests.cli.cases import PNG, as_json, call, refused, succeeded
from tests.cli.conftest import DROP, lay_out

ROOT = Path(__file__).resolve().parents[2]
HEIGHT = "problem.arguments.height"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished sweep of four runs, and what was written."""
    folder = tmp_path_factory.mktemp("swept")
    lay_out(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder, succeeded("sweep", "heights.yaml", "--output", "results")


def test_summary_table_and_figures(swept: tuple[Path, str]):
    folder, text = swept
    assert text.startswith("4 of 4 runs finished, 4 succeeded\n")
    assert "2 of 2" in text
    assert text.splitlines()[-3:] == [
        "table: results/results.csv",
        "figure: results/heat_map.png",
        "figure: results/performance_profile.png",
    ]
    assert len((folder / "results" / "results.csv").read_text().splitlines()) == 5
    assert (folder / "results" / "heat_map.png").read_bytes()[:8] == PNG


def test_finished_runs_are_not_done_again(swept: tuple[Path, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(swept[0])
    before = {path: path.stat().st_mtime_ns for path in (swept[0] / "results" / "runs").iterdir()}
    assert len(before) == 8
    output = as_json("sweep", "heights.yaml", "--output", "results", "--workers", "1")
    assert {path: path.stat().st_mtime_ns for path in (swept[0] / "results" / "runs").iterdir()} == before
    assert (output["total"], output["finished"], output["succeeded"], output["success"]) == (4, 4, 4, True)
    assert output["axes"] == [HEIGHT, "solver.relaxation"]
    assert [row[HEIGHT] for row in output["rows"]] == [1, 1, 2, 2]
    assert {round(row["fall [m]"], 6) for row in output["rows"]} == {0.1962}


def test_show(swept: tuple[Path, str], tmp_path: Path):
    text = succeeded("show", swept[0] / "results", "--figures", tmp_path)
    assert text.startswith("4 of 4 runs finished, 4 succeeded\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heat_map.png", "performance_profile.png"]


@pytest.mark.parametrize(
    ("options", "figures"),
    [
        (("--x", "solver.relaxation", "--value", "iterations"), ["heat_map.png"]),
        (("--group", HEIGHT, "--value", "iterations"), ["performance_profile.png"]),
    ],
)
def test_show_draws_what_was_asked_for(
    swept: tuple[Path, str], tmp_path: Path, options: tuple[str, ...], figures: list[str]
):
    output = as_json("show", swept[0] / "results", "--figures", tmp_path, *options)
    assert output["figures"] == [str(tmp_path / name) for name in figures]
    assert all(Path(path).read_bytes()[:8] == PNG for path in output["figures"])
    assert as_json("show", swept[0] / "results")["figures"] == []


def test_show_an_unknown_column(swept: tuple[Path, str], tmp_path: Path):
    message = refused("show", swept[0] / "results", "--value", "iteration", "--figures", tmp_path)
    assert "unknown column 'iteration'. Did you mean 'iterations'" in message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--value", "status"), f"--value: expected a column of numbers, {HEIGHT}, objective"),
        (("--value", "success"), "--value: expected a column of numbers"),
        (("--x", HEIGHT, "--y", HEIGHT, "--value", "message"), "given 'message'"),
    ],
)
def test_show_refuses_what_cannot_be_drawn(
    swept: tuple[Path, str], tmp_path: Path, options: tuple[str, ...], said: str
):
    assert said in refused("show", swept[0] / "results", "--figures", tmp_path, *options)
    assert not list(tmp_path.iterdir())


def test_show_of_one_run_has_nothing_to_draw(desk: Path):
    assert call("sweep", "drop.yaml", "--output", "one", "--quiet").exit_code == 0
    assert "nothing to draw: a heat map needs two columns" in refused("show", "one", "--value", "iterations")
    assert succeeded("show", "one").startswith("1 of 1 runs finished")


def test_show_a_run_of_a_sweep(swept: tuple[Path, str], tmp_path: Path):
    path = sorted((swept[0] / "results" / "runs").glob("*.nc"))[0]
    assert succeeded("show", path, "--figures", tmp_path).startswith("solved")


def test_runs_that_fail_are_rows(desk: Path):
    (desk / "bad.yaml").write_text(DROP + "sweep: {grid: {problem.arguments.height: [1.0, high]}}\n")
    output = as_json("sweep", "bad.yaml", code=1)
    assert [row["status"] for row in output["rows"]] == ["solved", "error"]
    assert output["folder"] == "results/bad"
    assert call("sweep", "bad.yaml", "--quiet").output == ""
    assert "1 of 2" not in succeeded("show", "results/bad").splitlines()[0]


def test_truncated_and_foreign_results(swept: tuple[Path, str], desk: Path):
    assert call("sweep", "drop.yaml", "--output", "one", "--quiet").exit_code == 0
    (row,) = (desk / "one" / "runs").glob("*.json")
    whole = row.read_text()
    row.write_text(whole[:40])
    for command in (("show", "one"), ("sweep", "drop.yaml", "--output", "one")):
        assert "truncated or damaged" in refused(*command)
    row.write_text(whole.replace('"version": "', '"version": "9.'))
    assert "from another version" in refused("show", "one")
    row.write_text(whole)
    row.with_suffix(".nc").write_bytes(b"CDF")
    assert "missing or truncated" in refused("show", "one")
    assert "is not the output folder of a sweep" in refused("show", desk)


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("{grid: {problem.arguments.height: []}}", "empty list"),
        ("{grid: {solver.sigma0: [1]}}", "Did you mean 'sigma_0'"),
        ("{grd: {}}", "Did you mean 'grid'"),
        ("{zip: {problem.arguments.height: [1], solver.sigma_0: [1, 2]}}", "equal length"),
    ],
)
def test_sweeps_that_cannot_start(desk: Path, sweep: str, message: str):
    (desk / "bad.yaml").write_text(f"{DROP}sweep: {sweep}\n")
    assert message in refused("sweep", "bad.yaml")
    assert not (desk / "results").exists()


def test_bad_options(desk: Path):
    assert "run.workers" in refused("sweep", "drop.yaml", "--workers", "0")
    assert "cannot be written" in refused("sweep", "drop.yaml", "--output", "drop.yaml/results")


def test_a_scheduler_that_does_not_answer(desk: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster.DaskExecutor.__init__, "__defaults__", (0.5,))
    message = refused("sweep", "drop.yaml", "--scheduler", "tcp://127.0.0.1:9", "--output", "results")
    assert "scheduler tcp://127.0.0.1:9: no answer within 0.5 s" in message
    assert not (desk / "results").exists()


def test_retry_and_the_scheduler_arrive(desk: Path, monkeypatch: pytest.MonkeyPatch):
    given: dict[str, object] = {}

    def noted(*_: object, **options: object) -> None:
        given.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr("nosnoc_py.sweep.study.run", noted)
    refused("sweep", "drop.yaml", "--retry", "--scheduler", "tcp://host:1", code=130)
    assert (given["retry"], given["scheduler"]) == (True, "tcp://host:1")
    refused("sweep", "drop.yaml", code=130)
    assert (given["retry"], given["scheduler"]) == (False, None)


def test_many_runs_are_counted_before_they_are_checked(desk: Path, monkeypatch: pytest.MonkeyPatch):
    grid = "{problem.arguments.height: [1, 2, 3], solver.kappa: [0.1, 0.2]}"
    both = "{solver.sigma_0: [1, 10], problem.arguments.horizon: [2.0, 4.0]}"
    (desk / "many.yaml").write_text(f"{DROP}sweep: {{grid: {grid}, zip: {both}, repeat: 2}}\n")
    monkeypatch.setattr("nosnoc_py.cli.sweeps.MANY", 20)
    assert "nosnoc-py: 24 runs; all are checked before the first" in refused("sweep", "many.yaml")  # without a seed
    assert "24 runs" not in refused("sweep", "many.yaml", "--quiet")


def test_a_word_is_no_scheduler(desk: Path):
    assert "scheduler: expected an address such as tcp" in refused("sweep", "drop.yaml", "--scheduler", "nonsense")


def test_ctrl_c_keeps_what_is_finished(desk: Path):
    """The first run ends at once, the second would take minutes."""
    (desk / "slow.yaml").write_text(DROP + "sweep: {grid: {problem.arguments.wait: [0.0, 100.0]}}\n")
    code = f"import signal, sys; sys.path.insert(0, {str(ROOT)!r}); from nosnoc_py.cli import main; "
    # what runs in the background of a shell is deaf to SIGINT, and so are its children
    code += "signal.signal(signal.SIGINT, signal.default_int_handler); main(['sweep', 'slow.yaml', '--json'])"
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", code], cwd=desk, stdout=pipe, stderr=pipe, text=True)
    try:
        wait_for_a_result(desk / "results" / "slow" / "runs")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=1800)
    finally:
        process.kill()
    assert process.returncode == 130
    kept = "interrupted; 1 of 2 runs are finished and kept in results/slow, the same command again goes on from there."
    assert err == f"nosnoc-py: {kept}\n"
    assert json.loads(out) == {"error": "Interrupted", "message": kept}
    assert succeeded("show", "results/slow").startswith("1 of 2 runs finished, 1 succeeded")


def wait_for_a_result(folder: Path) -> None:
    """Wait until the first run has ended."""
    deadline = time.monotonic() + 1800
    while not list(folder.glob("*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ctrl_c_while_progress_is_shown(desk: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(self: Progress, state: SweepState) -> None:
        if state.finished:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "__call__", interrupt)
    done = call("sweep", "heights.yaml", "--workers", "1")
    assert done.exit_code == 130
    assert done.stdout.startswith("1 of 4 runs finished, 1 succeeded")
    assert "interrupted; 1 of 4 runs are finished and kept in results/heights" in done.stderr


def test_ctrl_c_before_the_first_run(desk: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nosnoc_py.sweep.study.run", interrupted)
    assert "interrupted before the first run" in refused("sweep", "drop.yaml", code=130)
