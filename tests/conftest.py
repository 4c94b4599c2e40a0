"""What holds for every test: no windows, one thread per process, no compilation, random examples that repeat.

It also writes a list of the tests that are skipped.
"""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests are interpreted, but for those that compile: no process that compiles runs beside them.
os.environ.setdefault("NOSNOC_PY_COMPILED", "never")

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture
def compiled_search(monkeypatch):
    """Searches of `mpcc.qpcc` in C, which takes a second to compile; elsewhere tests search in Python."""
    from nosnoc_py.kernels.machine_code import compiler
    from nosnoc_py.mpcc.qpcc import native

    if compiler() is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(native, "mode", lambda: "now")
    native.library.cache_clear()
    yield
    native.library.cache_clear()


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--skipped", metavar="FILE", help="where to write the tests that are skipped, for `pytest @FILE`")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Mark the long tests; leave those of quick files out of `-m quick`, which replaces the default selection."""
    listed = set((Path(__file__).parent / "long_tests.txt").read_text(encoding="utf-8").splitlines())
    long = [item for item in items if item.nodeid in listed]
    for item in long:
        item.add_marker(pytest.mark.long)
    if config.option.markexpr == "quick":
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item.nodeid not in listed]


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    """Write a test a line, so that an environment with the extras that were absent can run just these."""
    if path := config.getoption("--skipped"):
        skipped = {report.nodeid for report in terminalreporter.stats.get("skipped", ())}
        Path(path).write_text("".join(f"{name}\n" for name in sorted(skipped)))
