"""Plugin of pytest that writes down which lines of a folder every test runs, for `.ci/mutants`.

`LINES_OF` is the folder, `LINES_TO` the file: JSON of test -> {"seconds": ..., "lines": {file: [line, ...]}}. Lines of
fixtures count for the test that made them. Tests that fail or are skipped are left out.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

FOLDER, FILE = os.environ["LINES_OF"], os.environ["LINES_TO"]
tests: dict[str, dict[str, Any]] = {}
here: set[tuple[str, int]] = set()
watched: dict[CodeType, bool] = {}


def called(frame: FrameType, event: str, _: Any) -> Any:
    """Watch the lines of functions of the folder."""
    code = frame.f_code
    if code not in watched:
        watched[code] = code.co_filename.startswith(FOLDER)
    if not watched[code]:
        return None
    here.add((code.co_filename, frame.f_lineno))
    return inside


def inside(frame: FrameType, event: str, _: Any) -> Any:
    """Write down a line."""
    if event == "line":
        here.add((frame.f_code.co_filename, frame.f_lineno))
    return inside


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Watch a test with its fixtures."""
    here.clear()
    began = time.perf_counter()
    sys.settrace(called)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        lines: dict[str, list[int]] = {}
        for name, line in sorted(here):
            lines.setdefault(str(Path(name).relative_to(FOLDER)), []).append(line)
        tests.setdefault(item.nodeid, {}).update(seconds=time.perf_counter() - began, lines=lines)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what did not pass."""
    if report.outcome != "passed":
        tests.setdefault(report.nodeid, {})["outcome"] = report.outcome


def pytest_sessionfinish() -> None:
    """Write the file."""
    good = {name: each for name, each in tests.items() if "outcome" not in each}
    Path(FILE).write_text(json.dumps(good), encoding="utf-8")
