"""The C of this room, built once by the compiler that is found and called by ctypes; None where there is none."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from nosnoc_py.kernels.machine_code import compiler, folder, mode

# Products and sums are not contracted: the same bits here, in generated code and on every machine.
OPTIONS = ("-O3", "-ffp-contract=off", "-fPIC", "-shared")
SECONDS = 60.0
NAME = "qpcc.c"


def source() -> str:
    """Return the text of the C file, which generated code contains, too."""
    return (Path(__file__).parent / NAME).read_text(encoding="utf-8")


@cache
def library() -> ctypes.CDLL | None:
    """Return the library, or None without a compiler, or where nothing can be written."""
    if mode() == "never":
        return None
    about = "\n".join((source(), str(compiler()), *OPTIONS))
    path = folder() / f"qpcc-{hashlib.sha256(about.encode()).hexdigest()[:32]}.so"
    try:
        if not path.exists():
            _build(path)
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError):
        return None


def _build(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        made = Path(work) / "made.so"
        command = [str(compiler()), *OPTIONS, str(Path(__file__).parent / NAME), "-o", str(made), "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
        # Whole at once: other processes may look for it meanwhile.
        os.replace(made, path)
