"""The bar of a sweep is that of `nosnoc_py.progress`, and leaves brackets alone."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from nosnoc_py.progress import Progress
from nosnoc_py.sweep.perform import SweepState

pytestmark = pytest.mark.quick

START = SweepState(total=4, finished=1, skipped=1, failed=0)
DEATH = SweepState(total=4, finished=1, skipped=1, failed=0, death="signal SIGKILL")
FAILED = SweepState(
    total=4,
    finished=2,
    skipped=1,
    failed=1,
    row={"key": "ab12", "success": False, "status": "error", "message": "m [kg]"},
)
DONE = SweepState(total=4, finished=4, skipped=1, failed=1, row={"key": "cd34", "success": True, "status": "solved"})


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)


def written(where: Console) -> str:
    assert isinstance(where.file, io.StringIO)
    return where.file.getvalue()


def test_bar_on_a_terminal():
    where = console(terminal=True)
    with Progress(console=where) as progress:
        progress(START)
        assert progress._output.bar.tasks[0].percentage == pytest.approx(25.0)
        progress(DEATH)
        progress(FAILED)
        assert progress._output.bar.tasks[0].description == "2 of 4 runs, 1 without success"
        progress(DONE)
        assert progress._output.bar.tasks[0].percentage == pytest.approx(100.0)
    assert "a run died and is tried again: signal SIGKILL" in written(where)
    assert "ab12: error. m [kg]" in written(where)
    assert "cd34" not in written(where)


def test_a_pipe_has_failures_and_the_last_state():
    where = console(terminal=False)
    with Progress(console=where) as progress:
        for state in (START, DEATH, FAILED, DONE):
            progress(state)
    lines = written(where).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["1", "a", "ab12:", "4"]
    assert lines[-1].startswith("4 of 4 runs, 1 without success (")


def test_lines_when_forced():
    where = console(terminal=False)
    progress = Progress(console=where, force=True)
    for state in (START, DEATH, FAILED, DONE):
        progress(state)
    assert [line.split(" ")[0] for line in written(where).splitlines()] == ["1", "a", "1", "ab12:", "2", "4"]
