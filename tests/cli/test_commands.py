"""What holds for every command: help, versions, exit codes, messages instead of tracebacks, a cheap start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import nosnoc_py as ns
from nosnoc_py.cli import benchmarks, main
from tests.cli.cases import as_json, call, refused, succeeded

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("solve", "simulate", "sweep", "show", "robot", "benchmark", "reproduce", "examples", "info", "cite")


def run(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import runpy; "]
    command[-1] += "sys.argv[0] = 'nosnoc_py'; runpy.run_module('nosnoc_py', run_name='__main__', alter_sys=True)"
    return subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=1800, check=False)


def test_help_names_every_command():
    text = succeeded("--help")
    assert [line.split()[0] for line in text.split("Commands:")[1].splitlines()[1 : 1 + len(COMMANDS)]] == list(
        COMMANDS
    )
    assert "130 interrupted" in text


def test_the_list_of_commands_has_whole_sentences():
    lines = succeeded("--help").split("Commands:")[1].splitlines()[1 : 1 + len(COMMANDS)]
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "reproduce"])
def test_help_of_a_command(name: str):
    text = succeeded(name, "--help")
    assert text.startswith(f"Usage: root {name}")  # the name that the runner of tests gives
    assert "--json" in text
    assert 6 < len(text.splitlines()) < 45


def test_help_of_reproduce_is_its_own():
    text = succeeded("reproduce", "--help")
    assert text.startswith("usage: python -m problems.reproduce")
    assert "--quick" in text


def test_version():
    assert succeeded("--version") == f"nosnoc_py {ns.__version__}\n"


def test_as_a_module():
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"nosnoc_py {ns.__version__}\n", "")
    done = run("show", "absent.nc", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout) == {
        "error": "OptionError",
        "message": done.stderr.strip().removeprefix("nosnoc-py: "),
    }


def test_entry_point_exits(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main(["cite", "--json"])
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["keys"][0] == "nosnoc_py"


def test_help_loads_nothing_heavy():
    code = "from nosnoc_py.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    import json, sys\n"
    code += "    print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert not loaded & {"matplotlib", "scipy.optimize", "numba", "rich.progress", "ruamel.yaml", "xarray", "pandas"}


def test_unknown_command_and_option():
    assert "No such command 'solv'" in refused("solv")
    assert "No such option" in refused("info", "--jsn")
    assert "Missing argument" in refused("show")


def test_interrupted(monkeypatch: pytest.MonkeyPatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nosnoc_py.cli.information.information", interrupted)
    assert refused("info", code=130) == "nosnoc-py: interrupted.\n"
    assert as_json("info", code=130) == {"error": "Interrupted", "message": "interrupted."}


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch):
    """Negative control: only mistakes of the user become messages."""

    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("nosnoc_py.cli.information.information", broken)
    assert isinstance(call("info").exception, ZeroDivisionError)


def test_benchmarks_are_listed_and_exist():
    assert list(as_json("benchmark")["benchmarks"]) == list(benchmarks.BENCHMARKS)
    text = succeeded("benchmark")
    for name in benchmarks.BENCHMARKS:
        assert f"\n{name} " in f"\n{text}"
        assert (ROOT / "problems" / "benchmarks" / f"{name}.py").exists()


def test_unknown_benchmark():
    assert "unknown benchmark 'simulation_sped'. Did you mean 'simulation_speed'" in refused(
        "benchmark", "simulation_sped"
    )


def test_benchmark_runs_with_its_options():
    output = as_json("benchmark", "event_selected_order", "--quick")
    assert output["problem"] == "event_selected_order"
    assert output["figures"] == []
    output = as_json("benchmark", "--json", "event_selected_order", "--quick")
    assert output["problem"] == "event_selected_order"


def test_a_mistake_in_the_options_of_a_benchmark(capfd: pytest.CaptureFixture[str]):
    assert call("benchmark", "event_selected_order", "--set", "wings=2").exit_code == 2
    assert call("benchmark", "nosbench", "no-such-folder").exit_code == 2


@pytest.mark.parametrize("arguments", [("reproduce", "--quick"), ("benchmark", "referee")])
def test_without_the_examples(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(benchmarks, "find_spec", lambda name: None)
    message = refused(*arguments)
    assert "`nosnoc-py examples DIR` copies them" in " ".join(message.split())


def test_without_the_references(monkeypatch: pytest.MonkeyPatch):
    """Only the tests have what benchmarks compare with: `problems` alone is not enough."""
    folder_of = benchmarks.folder_of
    monkeypatch.setattr(benchmarks, "folder_of", lambda name: None if name == "tests.references" else folder_of(name))
    message = refused("benchmark", "referee")
    assert "tests.references is not here. Benchmarks and experiments run in a folder with the examples" in " ".join(
        message.split()
    )


def test_the_help_of_a_benchmark_names_its_module(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        benchmarks.run("oscillator_order", ["--help"])
    assert "python -m problems.benchmarks.oscillator_order" in capsys.readouterr().out


def test_reproduce_refuses_an_unknown_paper(capfd: pytest.CaptureFixture[str]):
    assert call("reproduce", "no_such_paper").exit_code == 2


def test_reproduce_hands_everything_over(monkeypatch: pytest.MonkeyPatch):
    given = []

    def function(reference: str):
        assert reference == "problems.reproduce:main"
        return lambda arguments: given.append(arguments) or 1

    monkeypatch.setattr(benchmarks, "folder_of", lambda module: ROOT)
    monkeypatch.setattr(benchmarks.references, "function", function)
    assert call("reproduce", "fesdj", "--quick", "--output", "there", "lie_group", "--workers=2").exit_code == 1
    assert call("reproduce", "--json").exit_code == 1
    assert given == [["fesdj", "--quick", "--output", "there", "lie_group", "--workers=2"], ["--json"]]
