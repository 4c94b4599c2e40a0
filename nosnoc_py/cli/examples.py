"""The command `examples`: a copy of the models, problems and notebooks to run, read and change.

The wheel has them as data below `nosnoc_py/examples`, where nothing imports them; in a checkout they are the folders
beside the package. The problems import `models` and `tests.references` (closed forms and oracles) by these names, so
that the copy has the layout of the repository and its programs run in the folder by `python -m problems.NAME`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nosnoc_py
from nosnoc_py.errors import OptionError

PARTS = ("models", "problems", "notebooks", "tests/__init__.py", "tests/references")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def source() -> Path:
    """Return the folder with all `PARTS`: in the installed package, or the root of a checkout.

    Raises
    ------
    OptionError
        If neither has them.
    """
    package = Path(nosnoc_py.__file__).parent
    for folder in (package / "examples", package.parent):
        if all((folder / part).exists() for part in PARTS):
            return folder
    raise OptionError("this installation has no examples; install nosnoc_py from its wheel, or from a whole checkout.")


def copy(folder: Path) -> list[Path]:
    """Copy all parts into a new or empty folder; return what was written.

    Raises
    ------
    OptionError
        If the folder has something in it, or cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OptionError(f"examples: {folder} is not an empty folder; give a new one, so that nothing is overwritten.")
    origin, written = source(), []
    try:
        for part in PARTS:
            target = folder / part
            target.parent.mkdir(parents=True, exist_ok=True)
            if (origin / part).is_dir():
                shutil.copytree(origin / part, target, ignore=LEFT_OUT)
            else:
                shutil.copyfile(origin / part, target)
            written.append(target)
    except OSError as error:
        raise OptionError(f"examples: {folder} cannot be written ({error.strerror or error}).") from None
    return written


def next_steps(folder: Path) -> str:
    """Return what to do with the copy, as lines for people."""
    return (
        f"models, problems and notebooks are in {folder}; the problems compare with tests/references. Next:\n"
        f"  cd {folder}\n"
        "  python -m problems.bouncing_ball     run a problem (--help lists its options)\n"
        "  nosnoc-py benchmark                  list the benchmarks\n"
        "  jupyter lab notebooks                read the notebooks (extra [notebooks])"
    )
