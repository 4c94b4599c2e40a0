"""The machine for instructions of CasADi: every operation that it knows, one argument and eight."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.motion.tape import KNOWN, LANES, run, run_lanes, tape_of

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
    tape = tape_of(function)
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
    assert tape_of(ca.Function("f", [a], [ca.erfinv(a)])) is None
