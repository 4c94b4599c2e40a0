"""Machine code of functions: the same bits as the interpreter, found again on disk, never needed."""

from __future__ import annotations

import time
from pathlib import Path

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.kernels import Kernel, KernelEvaluator, machine_code
from nosnoc_py.kernels.machine_code import MachineCode

pytestmark = pytest.mark.quick
needs_compiler = pytest.mark.skipif(machine_code.compiler() is None, reason="no C compiler")
PLACES = 40


def long_kernel(terms: int = 60) -> Kernel:
    """All kinds of operations, also products and sums that a compiler would like to contract."""
    a = ca.SX.sym("a", 4)
    row = ca.SX(0)
    for k in range(1, terms):
        row = row * a[k % 4] + ca.sin(k * a[0] * a[1]) * a[2] ** 3 + ca.exp(-(a[3] ** 2)) / (k + a[1] ** 2)
    return Kernel(a, ca.vertcat(row, ca.sqrt(1 + row**2), ca.fmax(row, a[0]), ca.atan2(row, a[1])), ca.fabs(row) ** 1.5)


def evaluated(kernel: Kernel) -> list[np.ndarray]:
    """Values and derivatives at random places."""
    rng = np.random.default_rng(3)
    evaluator = KernelEvaluator(kernel, rng.normal(size=(PLACES, 4)))
    evaluator.multipliers[...] = rng.normal(size=evaluator.multipliers.shape)
    return [part().copy() for part in (evaluator.values, evaluator.first, evaluator.second)]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(machine_code.MODE, "now")
    monkeypatch.setenv(machine_code.FOLDER, str(tmp_path / "code"))
    return tmp_path / "code"


@needs_compiler
def test_bits_are_those_of_the_interpreter(now: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = evaluated(long_kernel())
    assert len(list(now.glob("*.so"))) == 3
    assert not [path for path in now.iterdir() if path.is_dir()]
    monkeypatch.setenv(machine_code.MODE, "never")
    for one, other in zip(compiled, evaluated(long_kernel()), strict=True):
        np.testing.assert_array_equal(one, other)


@needs_compiler
def test_code_is_found_again(now: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = evaluated(long_kernel())
    monkeypatch.setattr(machine_code.subprocess, "Popen", lambda *given, **more: pytest.fail("compiled again"))
    for one, other in zip(first, evaluated(long_kernel()), strict=True):
        np.testing.assert_array_equal(one, other)
    # Another function has other code.
    with pytest.raises(pytest.fail.Exception, match="compiled again"):
        evaluated(long_kernel(61))


@needs_compiler
def test_beside_the_work_the_interpreter_goes_on(now: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled before a quarter of the compiler's time has been spent; then the function changes once."""
    monkeypatch.setenv(machine_code.MODE, "beside")
    code = MachineCode(long_kernel().first)
    enough = machine_code.COMPILED_AFTER * machine_code.OPTIMISED / machine_code.EVALUATED
    assert not code.count(int(0.9 * enough))
    assert not now.exists()
    assert not code.count(int(0.2 * enough))
    began, changed = time.monotonic(), 0
    while not changed and time.monotonic() < began + 60.0:
        changed += code.count(1)
    assert changed == 1
    assert code.function.name() == "first"
    assert not code.count(10**9)
    # What is compiled is found early by others.
    other = MachineCode(long_kernel().first)
    assert other.count(int(1 + machine_code.FOUND_AFTER / machine_code.EVALUATED / other.function.n_instructions()))


def test_without_a_compiler_nothing_changes(now: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "compiler", lambda: None)
    parts = evaluated(long_kernel())
    assert not now.exists()
    assert all(np.isfinite(part).all() for part in parts)


@needs_compiler
def test_a_compiler_that_fails_and_a_damaged_file_are_no_errors(now: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine_code.MODE, "never")
    known = evaluated(long_kernel())
    monkeypatch.setenv(machine_code.MODE, "now")
    with monkeypatch.context() as patched:
        patched.setattr(machine_code, "compiler", lambda: "/bin/false")
        for one, other in zip(evaluated(long_kernel()), known, strict=True):
            np.testing.assert_array_equal(one, other)
    assert not list(now.glob("*.so"))
    evaluated(long_kernel())
    for path in now.glob("*.so"):
        path.write_bytes(b"no machine code")
    for one, other in zip(evaluated(long_kernel()), known, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not list(now.glob("*.so"))


@needs_compiler
def test_a_folder_that_cannot_be_made_is_no_error(now: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now.parent.mkdir(exist_ok=True)
    now.write_text("a file")
    assert all(np.isfinite(part).all() for part in evaluated(long_kernel()))


def test_nothing_is_compiled_where_it_is_forbidden(now: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine_code.MODE, "never")
    code = MachineCode(long_kernel().first)
    assert code.settled
    assert not code.count(10**9)
    assert not now.exists()


def test_a_function_that_another_thread_has_settled_is_not_counted(now: Path) -> None:
    """The other thread ends between the question and the lock."""
    code = MachineCode(long_kernel().first)
    lock = code._lock

    class Ended:
        def __enter__(self) -> None:
            lock.acquire()
            code._over = True

        def __exit__(self, *_: object) -> None:
            lock.release()

    code._lock = Ended()
    assert not code.count(1)
    assert code._count == 0


def test_the_first_compiler_that_exists_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(machine_code.COMPILER, "no_compiler")
    assert machine_code.compiler.__wrapped__() is None
    for name in ("clang", "gcc"):
        (tmp_path / name).write_text("#!/bin/sh")
        (tmp_path / name).chmod(0o755)
        assert machine_code.compiler.__wrapped__() == str(tmp_path / name)


def test_short_functions_are_left_alone(now: Path) -> None:
    a = ca.SX.sym("a", 2)
    KernelEvaluator(Kernel(a, a[0] * a[1]), np.ones((3, 2))).values()
    assert not now.exists()
