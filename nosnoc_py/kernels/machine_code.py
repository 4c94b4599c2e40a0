"""Machine code of CasADi functions: C by CasADi, built by the compiler that is found, kept on disk.

The compiler runs beside the work, in a process of its own; until it has finished, and where there is none, CasADi's
interpreter evaluates the function. Multiplications and additions are not contracted and nothing is reordered, so that
both give the same bits: when a function changes from one to the other decides nothing.

The code of a function is found again by a hash of the function, of CasADi's version and of the compiler's options. A
file appears in the folder at once and whole, since it is written under another name first: processes may share it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path

import casadi as ca

# Environment variables: "never", "now" (the work waits) or "beside" the work; a compiler; the folder of the code.
MODE, COMPILER, FOLDER = "NOSNOC_PY_COMPILED", "CC", "NOSNOC_PY_CACHE"
# Up to so many instructions the first level of optimisation pays: 12 times the speed of the interpreter for a time of
# the compiler that grows faster than the code; above none: 5 to 7 times. The second level takes minutes for the same.
LONG = 40_000
# Time [s] of an evaluation by the interpreter and of the compiler, by instruction, without and with optimisation:
# measured for the blocks of a quadruped (CasADi 3.8, GCC 12).
EVALUATED, PLAIN, OPTIMISED = 5e-9, 4e-5, 8e-5
# A function is looked for on disk when it has been evaluated for a time that is of the size of the search, and compiled
# when this fraction of the compiler's time has been spent on it.
FOUND_AFTER, COMPILED_AFTER = 2e-2, 0.25
# Functions with fewer instructions are evaluated faster than they are called.
SHORT_FUNCTION = 300
# Number of files that are kept: the oldest go.
FILES = 400


@cache
def compiler() -> str | None:
    """Return the C compiler that is used, None where there is none."""
    names = (os.environ.get(COMPILER), "cc", "gcc", "clang")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def mode() -> str:
    """Return how functions are compiled: "never", "now" or "beside"."""
    asked = os.environ.get(MODE, "beside")
    return "never" if platform.system() == "Windows" or compiler() is None else asked


def folder() -> Path:
    """Return the folder of the code, which belongs to the user alone."""
    given = os.environ.get(FOLDER)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else base / "nosnoc_py"


class MachineCode:
    """The way of one function from the interpreter to machine code.

    Parameters
    ----------
    function : Function

    Attributes
    ----------
    function : Function
        The one that is evaluated now.
    """

    def __init__(self, function: ca.Function) -> None:
        self.function, self._source = function, function
        self._size, self._count = function.n_instructions(), 0
        self._path: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._work: Path | None = None
        self._over = self._size < SHORT_FUNCTION or mode() == "never"
        self._lock = threading.Lock()

    @property
    def settled(self) -> bool:
        """True if `function` stays the one it is."""
        return self._over

    def count(self, evaluations: int) -> bool:
        """Count evaluations; return True if `function` has become machine code by now."""
        if self._over:
            return False
        with self._lock:  # threads share the kernels of a system
            return not self._over and self._counted(evaluations)

    def _counted(self, evaluations: int) -> bool:
        self._count += evaluations
        spent = EVALUATED * self._size * self._count
        try:
            if self._process is not None:
                return self._process.poll() is not None and self._finish()
            if self._path is None and (spent > FOUND_AFTER or mode() == "now"):
                self._path = folder() / f"{self._key()}.so"
                if self._path.exists():
                    return self._load()
            if self._path is not None and (spent > COMPILED_AFTER * self._seconds() or mode() == "now"):
                self._start(self._path)
                return mode() == "now" and self._finish()
        except OSError:  # no home, no space, no right to write: the interpreter goes on
            self._over = True
        return False

    def address(self) -> int:
        """Return the address of the machine code, which stays loaded, for kernels that call it; 0 without."""
        if self.function is self._source:
            return 0
        try:
            code = ctypes.CDLL(str(self._path))
        except OSError:  # the file was removed to make room for others
            return 0
        return int(ctypes.cast(getattr(code, self._source.name()), ctypes.c_void_p).value or 0)

    def _seconds(self) -> float:
        return self._size * (OPTIMISED if self._size <= LONG else PLAIN)

    def _options(self) -> tuple[str, ...]:
        level = "-O1" if self._size <= LONG else "-O0"
        return (level, "-ffp-contract=off", "-fPIC", "-shared")

    def _key(self) -> str:
        about = (ca.__version__, str(compiler()), platform.machine(), *self._options())
        digest = hashlib.sha256("\n".join(about).encode())
        digest.update(self._source.serialize().encode())
        return digest.hexdigest()[:32]

    def _start(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in sorted(path.parent.glob("*.so"), key=lambda one: one.stat().st_mtime)[:-FILES]:
            old.unlink(missing_ok=True)
        self._work = Path(tempfile.mkdtemp(dir=path.parent))
        generator = ca.CodeGenerator("code.c", {"with_header": False})
        generator.add(self._source)
        (self._work / "code.c").write_text(generator.dump())
        command = [str(compiler()), *self._options(), "code.c", "-o", "code.so", "-lm"]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(command, cwd=self._work, stdin=null, stdout=null, stderr=null)

    def _finish(self) -> bool:
        """Take over what the compiler has made."""
        assert self._process is not None
        assert self._work is not None
        assert self._path is not None
        made = self._process.wait() == 0
        if made:
            os.replace(self._work / "code.so", self._path)
        shutil.rmtree(self._work, ignore_errors=True)
        self._over = True
        return made and self._load()

    def _load(self) -> bool:
        self._over = True
        try:
            self.function = ca.external(self._source.name(), str(self._path))
        except RuntimeError:  # a file of another machine, or a damaged one
            Path(str(self._path)).unlink(missing_ok=True)
            return False
        return True

    def __del__(self) -> None:
        process, work = getattr(self, "_process", None), getattr(self, "_work", None)
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)
