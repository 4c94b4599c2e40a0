"""Problems as they are run from the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from problems.runner import Program, main

KEYS = {
    "status",
    "objective",
    "complementarity",
    "infeasibility",
    "iterations",
    "wall_seconds",
    "events",
    "final_state",
}
PNG = b"\x89PNG\r\n\x1a\n"


def run_json(program: Program, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What a problem prints with `--json`; the exit code has to be that of its status."""
    code = main(program, ["--json", *arguments])
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert results.keys() >= KEYS
    assert code == (0 if results["status"] == "solved" else 1)
    return dict(results)
