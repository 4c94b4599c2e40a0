"""`info`: versions, extras and solvers, where some of the probes crash."""

from __future__ import annotations

import platform
import tomllib
from pathlib import Path

import casadi as ca
import pytest

import nosnoc_py as ns
from nosnoc_py.cli import information
from tests.cli.cases import as_json, succeeded

pytestmark = pytest.mark.quick

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_versions_solvers_threads():
    report = as_json("info")
    assert report["nosnoc_py"] == ns.__version__
    assert report["python"] == platform.python_version()
    assert report["packages"]["casadi"] == ca.__version__
    assert report["solvers"]["nlpsol"]["ipopt"] is True
    assert report["solvers"]["nlpsol"]["sqpmethod"] is True
    assert report["solvers"]["conic"]["qrqp"] is True
    assert report["solvers"]["ipopt"]["mumps"] is True
    assert report["threads"]["cores"] >= 1
    assert report["compiled"]["mode"] in ("never", "now", "beside")
    assert Path(report["problems"]).name == "problems"


def test_lines_for_people(monkeypatch: pytest.MonkeyPatch):
    report = information.information()
    report["optional"]["viser"]["version"] = None
    report["problems"] = None
    lines = information.described(report).splitlines()
    assert lines[0].startswith(f"nosnoc_py {ns.__version__} in ")
    assert 'viser           absent; pip install "nosnoc_py[viser]"' in lines
    (code,) = [line for line in lines if line.startswith("C compiler")]
    assert "; NOSNOC_PY_COMPILED=" in code
    assert any(line.startswith("NLP solvers") and "ipopt" in line for line in lines)
    assert lines[-1].startswith("problems        absent. ")
    assert "nosnoc-py examples DIR" in lines[-1]


def test_info_says_the_same_in_words():
    assert f"nosnoc_py {ns.__version__}" in succeeded("info")


def test_packages_and_extras_are_those_of_the_project():
    def name(requirement: str) -> str:
        return requirement.partition(">=")[0]

    assert tuple(map(name, PROJECT["dependencies"])) == information.REQUIRED
    extras = {name(r): extra for extra, rs in PROJECT["optional-dependencies"].items() for r in rs}
    assert {package: extras[package] for package in information.OPTIONAL} == information.OPTIONAL


def test_an_absent_package_has_no_version():
    assert information.version("no-such-package") is None


def test_a_crashing_probe_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    crash = (
        "import os, sys\nfor name in sys.argv[1:]:\n    'bad' in name and os.abort()\n    print('probe', name, True)\n"
    )
    (tmp_path / "probe.py").write_text(crash.replace("True)", "True, flush=True)"))
    monkeypatch.setattr(information, "PROBE", tmp_path / "probe.py")
    names = ["bad:0", "a:1", "bad:2", "bad:3", "b:4", "bad:5"]
    assert information.probed(names) == {name: not name.startswith("bad") for name in names}


def test_an_endless_probe_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "probe.py").write_text("import sys, time\nprint('probe a:1 True', flush=True)\ntime.sleep(60)\n")
    monkeypatch.setattr(information, "PROBE", tmp_path / "probe.py")
    monkeypatch.setattr(information, "TIMEOUT", 0.5)
    assert information.probed(["a:1", "b:2"]) == {"a:1": True, "b:2": False}


def test_what_does_not_exist_does_not_work():
    assert information.probed(["nlpsol:no_such", "ipopt:no_such", "nlpsol:ipopt"]) == {
        "nlpsol:no_such": False,
        "ipopt:no_such": False,
        "nlpsol:ipopt": True,
    }
