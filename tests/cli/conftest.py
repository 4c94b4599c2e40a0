"""A folder with a problem of its own and its configurations, as a user has one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BUILD = """
import time
import nosnoc_py as ns
from models import bouncing_ball

def build(height: float = 1.0, horizon: float = 0.2, wait: float = 0.0):
    time.sleep(wait)
    return ns.OCP(bouncing_ball.build(), horizon=horizon, x0=[height, 0.0])

def impossible():
    ball = bouncing_ball.build()
    return ns.OCP(ball, horizon=0.2, x0=[1.0, 0.0], terminal_constraints=[ns.Constraint(ball.q[0], 5.0, 5.0)])

def measure(problem, result):
    return {"fall [m]": float(result.x[0, 0] - result.x[-1, 0])}
"""
DROP = """
problem: {build: "cli_drop:build", arguments: {height: 1.0}, measure: "cli_drop:measure"}
method: {name: FESDJ, control_stages: 2}
solver: {name: Homotopy}
"""
SWEEP = """
sweep: {grid: {problem.arguments.height: [1.0, 2], solver.relaxation: [scholtes, steffensen_ulbrich]}}
run: {workers: 2, timeout: 60}
"""
BALL = """
problem: {build: "models.bouncing_ball:build"}
simulate: {x0: [1.0, 0.0], duration: 1.0, steps: 20}
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a user, with drop.yaml (solved), ball.yaml (simulated) and heights.yaml (swept)."""
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "cli_drop", raising=False)
    return tmp_path


def lay_out(folder: Path) -> None:
    """Write the files."""
    (folder / "cli_drop.py").write_text(BUILD)
    for name, text in {"drop": DROP, "ball": BALL, "heights": DROP + SWEEP}.items():
        (folder / f"{name}.yaml").write_text(text)
