"""What a user's type checker says about a script that uses the library: nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import casadi
import pytest

import nosnoc_py

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.quick
def test_the_package_has_type_information() -> None:
    assert (Path(nosnoc_py.__file__).parent / "py.typed").is_file()


def test_a_users_script_has_no_type_errors(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    if not (Path(casadi.__file__).parent / "py.typed").is_file():
        pytest.skip("this version of CasADi has no type information")
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "tests/user_script.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
