"""`solve` and `simulate`: results, files, changes, and everything that can be wrong with a configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nosnoc_py as ns
from nosnoc_py.cli import solving
from nosnoc_py.cli.solving import assignment
from tests.cli.cases import PNG, as_json, call, refused, succeeded

IMPOSSIBLE = ("--set", "problem.build=cli_drop:impossible", "--set", "problem.arguments={}")
FALL = 0.5 * 9.81 * 0.2**2  # m, before the ball reaches the ground


def test_solve(desk: Path):
    text = succeeded("solve", "drop.yaml", "--output", "new/drop.nc", "--figures", "pictures")
    solution = ns.load(desk / "new" / "drop.nc")
    assert isinstance(solution, ns.Solution)
    assert solution["height"][-1] == pytest.approx(1.0 - FALL, abs=1e-8)
    assert text.startswith(solution.summary())
    assert text.splitlines()[-3:] == [
        "file: new/drop.nc",
        "figure: pictures/drop.png",
        "figure: pictures/drop_homotopy.png",
    ]
    assert (desk / "pictures" / "drop.png").read_bytes()[:8] == PNG


def test_solve_tells_measures(desk: Path):
    assert "fall [m]: 0.1962" in succeeded("solve", "drop.yaml")


def test_json(desk: Path):
    output = as_json("solve", "drop.yaml", "--set", "problem.arguments.height=2")
    assert output["status"] == "solved"
    assert output["final_state"][0] == pytest.approx(2.0 - FALL, abs=1e-8)
    assert output["fall [m]"] == pytest.approx(FALL, abs=1e-8)
    assert output["complementarity"] <= 1e-8
    assert (output["file"], output["figures"]) == (None, [])
    assert sorted(path.suffix for path in desk.iterdir() if path.is_file()) == [".py", ".yaml", ".yaml", ".yaml"]


def test_simulate(desk: Path):
    output = as_json("simulate", "ball.yaml", "--set", "simulate.steps=30", "--output", "ball.nc")
    assert output["status"] == "solved"
    assert output["events"][0]["time"] == pytest.approx(0.451523640986, abs=1e-9)
    assert ns.load("ball.nc").impacts[0].name == "ground"
    assert "impact ground at 0.451524" in succeeded("simulate", "ball.yaml")


def test_quiet(desk: Path):
    done = call("solve", "drop.yaml", "--quiet", "--output", "drop.nc")
    assert (done.exit_code, done.output) == (0, "")
    assert ns.load("drop.nc").success


def test_a_sweep_is_left_aside_and_that_is_said(desk: Path):
    done = call("solve", "heights.yaml")
    assert done.exit_code == 0
    said, *progress = done.stderr.splitlines()  # into a pipe go the first state of the solver and the last
    assert said == "heights.yaml: without its sweep, which is for `nosnoc-py sweep heights.yaml`"
    assert len(progress) <= 3
    assert done.stdout.startswith("solved")


def test_failure_is_told_and_kept(desk: Path):
    output = as_json("solve", "drop.yaml", *IMPOSSIBLE, "--output", "no.nc", code=1)
    assert output["status"] == "locally infeasible"
    assert not ns.load("no.nc").success
    done = call("solve", "drop.yaml", *IMPOSSIBLE)
    assert done.exit_code == 1
    assert "What to try: " in done.stdout


def test_interrupted_work_is_kept(desk: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(self: ns.Progress, state: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(solving.Progress, "__call__", interrupt)
    done = call("solve", "drop.yaml", "--output", "drop.nc")
    assert done.exit_code == 130
    assert ns.load("drop.nc").status is ns.Status.INTERRUPTED


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a.b=3", "a.b", 3),
        ("a=1e-8", "a", 1e-8),  # YAML 1.2; a text in 1.1
        ("a=on", "a", "on"),
        ("a=true", "a", True),
        ("a=[1, 2.5]", "a", [1, 2.5]),
        ("a={b: c}", "a", {"b": "c"}),
        ("a=x:y", "a", "x:y"),
        ("a=b=c", "a", "b=c"),
        ("a=null", "a", None),
    ],
)
def test_values_are_yaml(text: str, path: str, value: object):
    found = assignment(text)
    assert found == (path, value)
    assert type(found[1]) is type(value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("nonsense", "--set: expected path=value"),
        ("=3", "--set: expected path=value"),
        ("a=[1", "is not a value in YAML"),
        ("solver.sigma0=1", "Did you mean 'sigma_0'"),
        ("solver.name=Homotpy", "Did you mean 'Homotopy'"),
        ("method.name=FESD-J", "Did you mean 'FESDJ'"),
        ("method.control_stages=many", "control_stages"),
        ("problem.arguments.heigt=2", "Did you mean 'height'"),
        ("problem.build=cli_drop:bild", "Did you mean 'build'"),
        ("problem.build=cli_dorp:build", "there is no module 'cli_dorp'"),
        ("run.workers=3", "Legal: problem, method, solver, simulate, certify"),
        ("sweep.grid=1", "--set: the path 'sweep.grid' leads nowhere: unknown part of a run 'sweep'"),
        ("solver.sigma_0=.inf", "--set: solver.sigma_0: expected a finite number, given inf"),
    ],
)
def test_changes_that_do_not_fit(desk: Path, change: str, message: str):
    said = refused("solve", "drop.yaml", "--set", change, "--output", "drop.nc")
    assert message in said
    assert "sweep" not in said.replace("'sweep", "")
    assert "drop.yaml" not in said
    assert not (desk / "drop.nc").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("problem: {bild: 'cli_drop:build'}", "Did you mean 'build'"),
        ("problm: {build: 'cli_drop:build'}", "Did you mean 'problem'"),
        ("problem: {build: 'cli_drop:build'}\nmethod: {name: FESD-K}", "Did you mean 'FESD"),
        ("problem: [", "line 1"),
        ("", "expected a mapping"),
        ("problem: {build: 'cli_drop:build'}\nsimulate: {x0: [1, 0], duration: 1}", "nosnoc-py simulate bad.yaml"),
    ],
)
def test_bad_configurations(desk: Path, text: str, message: str):
    (desk / "bad.yaml").write_text(text)
    assert message in refused("solve", "bad.yaml")
    output = as_json("solve", "bad.yaml", code=2)
    assert output["error"] == "OptionError"
    assert message in output["message"]


def test_a_problem_is_not_simulated(desk: Path):
    assert "nosnoc-py solve drop.yaml" in refused("simulate", "drop.yaml")


def test_an_absent_configuration(desk: Path):
    assert "absent.yaml: cannot be read" in refused("solve", "absent.yaml")
    assert "cannot be read" in refused("solve", ".")


def test_output_that_cannot_be_written(desk: Path):
    assert "given the folder new" in refused("solve", "drop.yaml", "--output", (desk / "new").mkdir() or "new")
    assert "cli_drop.py" in refused("solve", "drop.yaml", "--output", "cli_drop.py/drop.nc")
    assert "cli_drop.py" in refused("solve", "drop.yaml", "--figures", "cli_drop.py")


@pytest.mark.parametrize("verb", ["solve", "simulate"])
def test_what_the_own_function_raises_has_a_traceback_and_a_line_of_json(desk: Path, verb: str):
    (desk / "cli_own.py").write_text("def build():\n    return 1 / 0\n")
    more = "\nsimulate: {x0: [1.0], duration: 1.0}" if verb == "simulate" else ""
    (desk / "own.yaml").write_text("problem: {build: 'cli_own:build'}" + more)
    done = call(verb, "own.yaml", "--json")
    assert done.exit_code == 2
    message = "problem.build: cli_own:build raised ZeroDivisionError: division by zero"
    assert json.loads(done.stdout) == {"error": "RaisedError", "message": message}
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "cli_own.py" in lines[1]
    assert lines[-1] == f"nosnoc-py: {message}"
