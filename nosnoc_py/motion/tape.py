"""The instructions of a CasADi function as arrays, and a machine that runs them inside a compiled kernel.

A kernel that is compiled for one system has to be compiled again for the next. Here the function of a system is data:
one kernel runs the instructions of all, for one vector of arguments, or for eight of them in almost the same time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import casadi as ca
import numpy as np

from nosnoc_py.compiled import call_pointer, jitable

Array = np.ndarray
LANES = 8
"""Vectors of arguments that `run_lanes` takes together."""

INPUT, OUTPUT, CONST = ca.OP_INPUT, ca.OP_OUTPUT, ca.OP_CONST
ADD, SUB, MUL, DIV, NEG = ca.OP_ADD, ca.OP_SUB, ca.OP_MUL, ca.OP_DIV, ca.OP_NEG
ASSIGN, TWICE, SQ, SQRT, INV, FABS = ca.OP_ASSIGN, ca.OP_TWICE, ca.OP_SQ, ca.OP_SQRT, ca.OP_INV, ca.OP_FABS
SIN, COS, TAN, ASIN, ACOS, ATAN, ATAN2 = (
    ca.OP_SIN,
    ca.OP_COS,
    ca.OP_TAN,
    ca.OP_ASIN,
    ca.OP_ACOS,
    ca.OP_ATAN,
    ca.OP_ATAN2,
)
SINH, COSH, TANH = ca.OP_SINH, ca.OP_COSH, ca.OP_TANH
ASINH, ACOSH, ATANH = ca.OP_ASINH, ca.OP_ACOSH, ca.OP_ATANH
EXP, LOG, LOG1P, EXPM1, POW, CONSTPOW = ca.OP_EXP, ca.OP_LOG, ca.OP_LOG1P, ca.OP_EXPM1, ca.OP_POW, ca.OP_CONSTPOW
HYPOT, ERF, FMOD, SIGN, COPYSIGN = ca.OP_HYPOT, ca.OP_ERF, ca.OP_FMOD, ca.OP_SIGN, ca.OP_COPYSIGN
FMIN, FMAX, FLOOR, CEIL = ca.OP_FMIN, ca.OP_FMAX, ca.OP_FLOOR, ca.OP_CEIL
LT, LE, EQ, NE, NOT, AND, OR = ca.OP_LT, ca.OP_LE, ca.OP_EQ, ca.OP_NE, ca.OP_NOT, ca.OP_AND, ca.OP_OR
IF_ELSE_ZERO = ca.OP_IF_ELSE_ZERO
KNOWN = frozenset(
    value for name, value in list(globals().items()) if name.isupper() and name != "LANES" and isinstance(value, int)
)


class Tape(NamedTuple):
    """Instructions of a function with its arguments, and its outputs, one after the other (matrices by columns).

    Attributes
    ----------
    code : (n, 4) int32
        Operation, target, and two operands; of an input or output its position.
    constants : (n,)
    work, lanes : (n_work,), (n_work, 8)
    address : int
        Machine code of the same function with one argument and one output, by a C compiler; 0 without. It replaces the
        instructions.
    slots, integers : (2,), (n,) int
        Addresses of argument and output, and room for CasADi's integers.
    one_in, one_out : (n_in,), (n_out,)
        Room for one of eight arguments.
    """

    code: Array
    constants: Array
    work: Array
    lanes: Array
    address: int
    slots: Array
    integers: Array
    one_in: Array
    one_out: Array


def no_tape() -> Tape:
    """Return a tape without instructions."""
    return _tape(np.zeros((0, 4), dtype=np.int32), np.zeros(0), 1, 0, 0, 0, 0)


def _tape(code: Array, constants: Array, work: int, integers: int, n_in: int, n_out: int, address: int) -> Tape:
    return Tape(
        code=code,
        constants=constants,
        work=np.zeros(work),
        lanes=np.zeros((work, LANES)),
        address=address,
        slots=np.zeros(2, dtype=np.int64),
        integers=np.zeros(integers, dtype=np.int64),
        one_in=np.zeros(n_in),
        one_out=np.zeros(n_out),
    )


def tape_of(function: ca.Function, compile: Callable[[ca.Function], int] | None = None) -> Tape | None:
    """Return the instructions of a function of SX; None if the machine does not know one of them.

    `compile` returns the address of the machine code of a function, which has to stay loaded, or 0.
    """
    arguments = [ca.SX.sym(f"a{i}", function.size_in(i)) for i in range(function.n_in())]
    # Expressions that occur twice are evaluated once: a tenth of the instructions of a robot.
    outputs = ca.cse([ca.densify(output) for output in function.call(arguments)])
    whole = ca.Function("whole", [ca.veccat(*arguments)], [ca.veccat(*outputs)], {"allow_free": True})
    count = whole.n_instructions()
    code, constants = np.zeros((count, 4), dtype=np.int32), np.zeros(count)
    for k in range(count):
        operation, inputs, targets = whole.instruction_id(k), whole.instruction_input(k), whole.instruction_output(k)
        if operation not in KNOWN:
            return None
        if operation == INPUT:
            row = (targets[0], inputs[1], 0)
        elif operation == OUTPUT:
            row = (targets[1], inputs[0], 0)
        else:
            row = (targets[0], *[*inputs, 0, 0][:2])
            constants[k] = whole.instruction_constant(k) if operation == CONST else 0.0
        code[k] = operation, *row
    work = max(1, int(code[:, 1:].max(initial=0)) + 1, whole.sz_w())
    address = 0 if compile is None else compile(whole)
    return _tape(code, constants, work, whole.sz_iw(), whole.numel_in(0), whole.numel_out(0), address)


@jitable
def seldom(operation: int, a: float, b: float) -> float:
    """Return the result of an operation that robots do not do thousands of times."""
    if operation == SIN:
        return math.sin(a)
    if operation == COS:
        return math.cos(a)
    if operation == SQRT:
        return math.sqrt(a)
    if operation == TAN:
        return math.tan(a)
    if operation == ASIN:
        return math.asin(a)
    if operation == ACOS:
        return math.acos(a)
    if operation == ATAN:
        return math.atan(a)
    if operation == ATAN2:
        return math.atan2(a, b)
    if operation == SINH:
        return math.sinh(a)
    if operation == COSH:
        return math.cosh(a)
    if operation == TANH:
        return math.tanh(a)
    if operation == ASINH:
        return math.asinh(a)
    if operation == ACOSH:
        return math.acosh(a)
    if operation == ATANH:
        return math.atanh(a)
    if operation == EXP:
        return math.exp(a)
    if operation == LOG:
        return math.log(a)
    if operation == LOG1P:
        return math.log1p(a)
    if operation == EXPM1:
        return math.expm1(a)
    if operation in (POW, CONSTPOW):
        return math.pow(a, b)
    if operation == HYPOT:
        return math.hypot(a, b)
    if operation == ERF:
        return math.erf(a)
    if operation == FMOD:
        return float(np.fmod(a, b))
    if operation == FLOOR:
        return float(math.floor(a))
    if operation == CEIL:
        return float(math.ceil(a))
    return compared(operation, a, b)


@jitable
def compared(operation: int, a: float, b: float) -> float:
    """Return the result of an operation that compares."""
    if operation == FABS:
        return abs(a)
    if operation == SIGN:
        return 1.0 if a > 0.0 else -1.0 if a < 0.0 else a
    if operation == COPYSIGN:
        return math.copysign(a, b)
    if operation == FMIN:
        return a if a < b or math.isnan(b) else b
    if operation == FMAX:
        return a if a > b or math.isnan(b) else b
    if operation == LT:
        return 1.0 if a < b else 0.0
    if operation == LE:
        return 1.0 if a <= b else 0.0
    if operation == EQ:
        return 1.0 if a == b else 0.0
    if operation == NE:
        return 1.0 if a != b else 0.0
    if operation == NOT:
        return 1.0 if a == 0.0 else 0.0
    if operation == AND:
        return 1.0 if a != 0.0 and b != 0.0 else 0.0
    if operation == OR:
        return 1.0 if a != 0.0 or b != 0.0 else 0.0
    return b if a != 0.0 else 0.0  # IF_ELSE_ZERO


@jitable
def run(tape: Tape, x: Array, out: Array) -> None:
    """Evaluate a function at x (n_in,); its values go to out (n_out,)."""
    code, w = tape.code, tape.work
    if tape.address != 0:
        tape.slots[0], tape.slots[1] = x.ctypes.data, out.ctypes.data
        call_pointer(tape.address, tape.slots[:1], tape.slots[1:], tape.integers, w)
        return
    for k in range(code.shape[0]):
        operation, d, a, b = code[k, 0], code[k, 1], code[k, 2], code[k, 3]
        if operation == MUL:
            w[d] = w[a] * w[b]
        elif operation == ADD:
            w[d] = w[a] + w[b]
        elif operation == SUB:
            w[d] = w[a] - w[b]
        elif operation == INPUT:
            w[d] = x[a]
        elif operation == OUTPUT:
            out[d] = w[a]
        elif operation == CONST:
            w[d] = tape.constants[k]
        elif operation == NEG:
            w[d] = -w[a]
        elif operation == TWICE:
            w[d] = 2.0 * w[a]
        elif operation == SQ:
            w[d] = w[a] * w[a]
        elif operation == DIV:
            w[d] = w[a] / w[b]
        elif operation == INV:
            w[d] = 1.0 / w[a]
        elif operation == ASSIGN:
            w[d] = w[a]
        else:
            w[d] = seldom(operation, w[a], w[b])


@jitable
def run_lanes(tape: Tape, x: Array, out: Array) -> None:
    """Evaluate a function at eight arguments, the columns of x (n_in, 8); out is (n_out, 8)."""
    code, w = tape.code, tape.lanes
    if tape.address != 0:
        for lane in range(LANES):
            for i in range(tape.one_in.size):
                tape.one_in[i] = x[i, lane]
            run(tape, tape.one_in, tape.one_out)
            for i in range(tape.one_out.size):
                out[i, lane] = tape.one_out[i]
        return
    for k in range(code.shape[0]):
        operation, d, a, b = code[k, 0], code[k, 1], code[k, 2], code[k, 3]
        if operation == MUL:
            for lane in range(LANES):
                w[d, lane] = w[a, lane] * w[b, lane]
        elif operation == ADD:
            for lane in range(LANES):
                w[d, lane] = w[a, lane] + w[b, lane]
        elif operation == SUB:
            for lane in range(LANES):
                w[d, lane] = w[a, lane] - w[b, lane]
        elif operation == INPUT:
            for lane in range(LANES):
                w[d, lane] = x[a, lane]
        elif operation == OUTPUT:
            for lane in range(LANES):
                out[d, lane] = w[a, lane]
        elif operation == CONST:
            for lane in range(LANES):
                w[d, lane] = tape.constants[k]
        elif operation == NEG:
            for lane in range(LANES):
                w[d, lane] = -w[a, lane]
        elif operation == TWICE:
            for lane in range(LANES):
                w[d, lane] = 2.0 * w[a, lane]
        elif operation == SQ:
            for lane in range(LANES):
                w[d, lane] = w[a, lane] * w[a, lane]
        elif operation == DIV:
            for lane in range(LANES):
                w[d, lane] = w[a, lane] / w[b, lane]
        elif operation == INV:
            for lane in range(LANES):
                w[d, lane] = 1.0 / w[a, lane]
        elif operation == ASSIGN:
            for lane in range(LANES):
                w[d, lane] = w[a, lane]
        else:
            for lane in range(LANES):
                w[d, lane] = seldom(operation, w[a, lane], w[b, lane])
