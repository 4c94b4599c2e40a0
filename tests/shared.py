"""Expensive results that several files of tests need: made once, also where several processes share the tests."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import nosnoc_py as ns


def once(folders: pytest.TempPathFactory, name: str, make: Callable[[], ns.Solution]) -> ns.Solution:
    """The solution of this name, from the disk if one of the processes of this run has made it."""
    base = folders.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"{name}.nc"
    with Path(f"{path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            make().save(path)
    found = ns.load(path)
    assert isinstance(found, ns.Solution)
    return found
