"""The machine for instructions of CasADi: every operation that it knows, one argument and eight."""

from __future__ import annotations

from pathlib import Path

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.kernels import machine_code
from nosnoc_py.motion.tape import KNOWN, LANES, WRITTEN, CountedTape, in_one, instructions, run, run_lanes

ONE = (
    *(ca.sin, ca.cos, ca.tan, ca.asin, ca.acos, ca.atan, ca.sinh, ca.cosh, ca.tanh, ca.asinh, ca.atanh),
    *(ca.exp, ca.log, ca.log1p, ca.expm1, ca.sqrt, ca.erf, ca.floor, ca.ceil, ca.fabs, ca.sign, ca.logic_not),
    *(lambda a: ca.acosh(1 + a), lambda a: a**3, lambda a: a**0.3, lambda a: 1 / a, lambda a: -a, lambda a: 2 * a),
    *(lambda a: a**2, lambda a: ca.sign(a - 0.5), lambda a: ca.floor(7 * a - 3), lambda a: ca.logic_not(a - a)),
)
TWO = (
    *(ca.atan2, ca.hypot, ca.fmod, ca.copysign, ca.fmin, ca.fmax, ca.logic_and, ca.logic_or),
    *(lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b, lambda a, b: a**b),
    *(lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a == b, lambda a, b: a != b),
    *(lambda a, b: ca.if_else(a < b, a, 3 * b), lambda a, b: ca.copysign(a, b - a), lambda a, b: ca.fmin(b, a)),
)


def both(function: ca.Function, x: np.ndarray) -> None:
    """Compare the machine with CasADi's, to rounding."""
    tape = instructions(in_one(function))
    assert tape is not None
    exact = np.array([np.concatenate([np.array(o).ravel("F") for o in function.call([row[:1], row[1:]])]) for row in x])
    found, lanes = np.zeros(exact.shape), np.zeros(exact.T.shape)
    for row, out in zip(x, found, strict=True):
        run(tape, row, out)
    run_lanes(tape, np.ascontiguousarray(x.T), lanes)
    np.testing.assert_allclose(found, exact, rtol=1e-15, atol=1e-15)
    np.testing.assert_array_equal(lanes.T, found)


@pytest.mark.quick
def test_every_operation() -> None:
    a, b = ca.SX.sym("a"), ca.SX.sym("b")
    x = np.random.default_rng(0).uniform(0.1, 0.9, (LANES, 2))
    x[1] = 0.5, 0.5
    for values in ([f(a) for f in ONE], [f(a, b) for f in TWO]):
        both(ca.Function("f", [a, b], [ca.vertcat(*values)]), x)
    used = {
        f.instruction_id(k)
        for f in (ca.Function("f", [a, b], [g(a) if g in ONE else g(a, b)]) for g in (*ONE, *TWO))
        for k in range(f.n_instructions())
    }
    assert KNOWN - used <= {ca.OP_ASSIGN, ca.OP_IF_ELSE_ZERO}


@pytest.mark.quick
def test_outputs_follow_each_other_by_columns_and_zeros_are_filled_in() -> None:
    a, b = ca.SX.sym("a"), ca.SX.sym("b")
    sparse = ca.SX(2, 2)
    sparse[0, 1] = a * b
    both(ca.Function("f", [a, b], [ca.vertcat(a, b, 3.0), sparse, b]), np.random.default_rng(1).normal(size=(LANES, 2)))


@pytest.mark.quick
def test_functions_with_other_instructions_have_no_tape() -> None:
    a = ca.SX.sym("a")
    assert instructions(in_one(ca.Function("f", [a], [ca.erfinv(a)]))) is None


@pytest.mark.quick
@pytest.mark.skipif(machine_code.compiler() is None, reason="no C compiler")
def test_tapes_become_machine_code_of_equal_bits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Products and sums stay apart; evaluations are counted, eight for eight lanes, and decide when it is built."""
    a, b = ca.SX.sym("a"), ca.SX.sym("b")
    row = ca.SX(1.0)
    for k in range(1, 40):
        row = row * a + ca.sin(k * b) * b**3 + ca.exp(-(a**2)) / (k + b**2) + ca.fmax(a * k, b)
    function = ca.Function("f", [a, b], [row, ca.vertcat(ca.sqrt(1 + row**2), ca.atan2(row, b), ca.fabs(row) ** 1.5)])
    monkeypatch.setenv(machine_code.FOLDER, str(tmp_path))
    monkeypatch.setenv(machine_code.MODE, "never")
    rng = np.random.default_rng(4)
    counted, x = CountedTape(function), rng.normal(size=(2, LANES))
    slow, out = counted.now(), np.zeros((2, 4, LANES))
    run_lanes(slow, x, out[0])
    run(slow, x[:, 0].copy(), out[1, :, 0].copy())
    assert slow.address == 0
    assert slow.calls[0] == LANES + 1
    monkeypatch.setenv(machine_code.MODE, "now")
    fast = CountedTape(function).now()
    assert fast.address != 0
    run_lanes(fast, x, out[1])
    assert fast.calls[0] == LANES
    np.testing.assert_array_equal(*out)
    # Beside the work what is on disk is taken after as many evaluations as the search takes.
    monkeypatch.setenv(machine_code.MODE, "beside")
    counted, size = CountedTape(function), in_one(function).n_instructions()
    slow, enough = counted.now(), machine_code.FOUND_AFTER / machine_code.EVALUATED - WRITTEN * size
    slow.calls[0] += int(0.9 * enough / size)
    assert counted.now().address == 0
    assert counted.now().address == 0  # no evaluation counts twice
    slow.calls[0] += int(0.2 * enough / size)
    assert counted.now().address != 0
    # The instructions of a function take as long to write as its code is looked for, if it is long.
    monkeypatch.setattr(machine_code, "FOUND_AFTER", 0.9 * WRITTEN * size * machine_code.EVALUATED)
    found = CountedTape(function).now()
    assert (found.address != 0, found.code.shape) == (True, (0, 3))
    run_lanes(found, x, out[1])
    np.testing.assert_array_equal(*out)
