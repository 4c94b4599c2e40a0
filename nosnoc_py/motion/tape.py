"""The instructions of a CasADi function as arrays, and a machine that runs them inside a compiled kernel.

A kernel that is compiled for one system has to be compiled again for the next. Here the function of a system is data:
one kernel runs the instructions of all, for one vector of arguments, or for eight of them in almost the same time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import casadi as ca
import numpy as np

from nosnoc_py.compiled import call_pointer, jitable
from nosnoc_py.kernels.machine_code import MachineCode

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
WRITTEN = 1000
"""Evaluations that take as long as the instructions of a function are written."""


class Tape(NamedTuple):
    """Instructions of a function with its arguments, and its outputs, one after the other (matrices by columns).

    Attributes
    ----------
    runs : (m, 2) int32
        Operations, and how many instructions in a row have each.
    code : (n, 3) int32
        Target and two operands; of an input or output its position.
    constants : (n,)
    work, lanes : (n_work,), (n_work, 8)
    address : int
        Machine code of the same function with one argument and one output, by a C compiler; 0 without. It replaces the
        instructions.
    slots, integers : (2,), (n,) int
        Addresses of argument and output, and room for CasADi's integers.
    one_in, one_out : (n_in,), (n_out,)
        Room for one of eight arguments.
    calls : (1,) int
        Number of evaluations.
    """

    runs: Array
    code: Array
    constants: Array
    work: Array
    lanes: Array
    address: int
    slots: Array
    integers: Array
    one_in: Array
    one_out: Array
    calls: Array


def no_tape() -> Tape:
    """Return a tape without instructions."""
    nothing = np.zeros((0, 4), dtype=np.int32)
    return _tape(nothing[:, :2], nothing[:, :3], np.zeros(0), 1, (0, 0, 0))


def _tape(runs: Array, code: Array, constants: Array, work: int, sizes: tuple[int, int, int]) -> Tape:
    integers, n_in, n_out = sizes
    return Tape(
        runs=np.ascontiguousarray(runs),
        code=np.ascontiguousarray(code),
        constants=constants,
        work=np.zeros(work),
        lanes=np.zeros((work, LANES)),
        address=0,
        slots=np.zeros(2, dtype=np.int64),
        integers=np.zeros(integers, dtype=np.int64),
        one_in=np.zeros(n_in),
        one_out=np.zeros(n_out),
        calls=np.zeros(1, dtype=np.int64),
    )


def in_one(function: ca.Function) -> ca.Function:
    """Return a function of SX with one argument and one output, in which nothing is evaluated twice."""
    arguments = [ca.SX.sym(f"a{i}", function.size_in(i)) for i in range(function.n_in())]
    # A tenth of the instructions of a robot.
    outputs = ca.cse([ca.densify(output) for output in function.call(arguments)])
    return ca.Function("whole", [ca.veccat(*arguments)], [ca.veccat(*outputs)], {"allow_free": True})


class CountedTape:
    """The tape of a function, which becomes machine code when it has been evaluated often enough; both have equal bits.

    Attributes
    ----------
    known : bool
        False if the machine does not know an operation.
    """

    def __init__(self, function: ca.Function) -> None:
        whole = in_one(function)
        self._tape: Tape | None = None
        self._code, self._counted = MachineCode(whole), 0
        # Code that is on disk saves the time to write the instructions of a long function.
        if self._code.count(WRITTEN):
            nothing = no_tape()
            empty = _tape(nothing.runs, nothing.code, nothing.constants, whole.sz_w(), _sizes(whole))
            self._tape = empty._replace(address=self._code.address())
        else:
            self._tape = instructions(whole)
        self.known = self._tape is not None

    def now(self) -> Tape:
        """Return the tape for what comes next."""
        assert self._tape is not None
        done = int(self._tape.calls[0])
        if self._code.count(done - self._counted):
            self._tape = self._tape._replace(address=self._code.address())
        self._counted = done
        return self._tape


def instructions(whole: ca.Function) -> Tape | None:
    """Return those of a function of SX as in `in_one`; None if the machine does not know one of them."""
    nodes, where = list[_Instruction](), dict[int, int]()  # the instruction that wrote a place last
    for k in range(whole.n_instructions()):
        operation, inputs, targets = whole.instruction_id(k), whole.instruction_input(k), whole.instruction_output(k)
        if operation not in KNOWN:
            return None
        given = () if operation in (INPUT, CONST) else tuple(where[i] for i in inputs)
        at = inputs[1] if operation == INPUT else targets[1] if operation == OUTPUT else 0
        number = whole.instruction_constant(k) if operation == CONST else 0.0
        nodes.append(_Instruction(operation, given, at, number))
        if operation != OUTPUT:
            where[targets[0]] = k
    order, runs = _grouped(nodes)
    code, places = _placed(nodes, order)
    constants = np.array([nodes[k].constant for k in order])
    work = max(places, whole.sz_w())
    return _tape(np.array(runs, dtype=np.int32).reshape(-1, 2), code, constants, work, _sizes(whole))


def _sizes(whole: ca.Function) -> tuple[int, int, int]:
    return whole.sz_iw(), whole.numel_in(0), whole.numel_out(0)


class _Instruction(NamedTuple):
    """Operation, instructions whose results it takes, position of an input or output, value of a constant."""

    operation: int
    given: tuple[int, ...]
    at: int
    constant: float


def _grouped(nodes: Sequence[_Instruction]) -> tuple[list[int], list[tuple[int, int]]]:
    """Return an order in which the same operation is done many times in a row, and these runs.

    A processor foresees an operation that is the same as before; without this order it is wrong half of the time.
    """
    users: list[list[int]] = [[] for _ in nodes]
    missing = [len(set(node.given)) for node in nodes]
    ready: dict[int, list[int]] = {}
    for k, node in enumerate(nodes):
        for other in set(node.given):
            users[other].append(k)
        if not node.given:
            ready.setdefault(node.operation, []).append(k)
    order, runs = list[int](), list[tuple[int, int]]()
    while ready:
        # The operation that most instructions wait for; outputs free nothing, so that they come last.
        operation = max(ready, key=lambda each: (each != OUTPUT, len(ready[each]), -each))
        begun = len(order)
        while operation in ready:
            for k in ready.pop(operation):
                order.append(k)
                for user in users[k]:
                    missing[user] -= 1
                    if not missing[user]:
                        ready.setdefault(nodes[user].operation, []).append(user)
        runs.append((operation, len(order) - begun))
    return order, runs


def _placed(nodes: Sequence[_Instruction], order: Sequence[int]) -> tuple[Array, int]:
    """Return the code of instructions in an order, and the number of places that it needs: they are used again."""
    last = {other: k for k in order for other in nodes[k].given}
    place, free, count = dict[int, int](), list[int](), 1
    code = np.zeros((len(order), 3), dtype=np.int32)
    for row, k in zip(code, order, strict=True):
        node = nodes[k]
        operands = [place[other] for other in node.given]
        for other in set(node.given):
            if last[other] == k:
                heappush(free, place[other])
        if node.operation == OUTPUT:
            row[:2] = node.at, operands[0]
            continue
        if free:
            place[k] = heappop(free)
        else:
            place[k], count = count, count + 1
        row[0] = place[k]
        row[1 : 1 + len(operands)] = operands
        if node.operation == INPUT:
            row[1] = node.at
    return code, count


@jitable
def seldom(operation: int, a: float, b: float) -> float:
    """Return the result of an operation that robots do not do thousands of times."""
    if operation == DIV:
        return a / b
    if operation == NEG:
        return -a
    if operation == SQ:
        return a * a
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
    if operation == TWICE:
        return 2.0 * a
    if operation == INV:
        return 1.0 / a
    if operation == ASSIGN:
        return a
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
    code, w, last = tape.code, tape.work, 0
    tape.calls[0] += 1
    if tape.address != 0:
        tape.slots[0], tape.slots[1] = x.ctypes.data, out.ctypes.data
        call_pointer(tape.address, tape.slots[:1], tape.slots[1:], tape.integers, w)
        return
    for k in range(tape.runs.shape[0]):
        operation, first = tape.runs[k, 0], last
        last = first + tape.runs[k, 1]
        if operation == MUL:
            for j in range(first, last):
                w[code[j, 0]] = w[code[j, 1]] * w[code[j, 2]]
        elif operation == ADD:
            for j in range(first, last):
                w[code[j, 0]] = w[code[j, 1]] + w[code[j, 2]]
        elif operation == SUB:
            for j in range(first, last):
                w[code[j, 0]] = w[code[j, 1]] - w[code[j, 2]]
        elif operation == INPUT:
            for j in range(first, last):
                w[code[j, 0]] = x[code[j, 1]]
        elif operation == OUTPUT:
            for j in range(first, last):
                out[code[j, 0]] = w[code[j, 1]]
        elif operation == CONST:
            for j in range(first, last):
                w[code[j, 0]] = tape.constants[j]
        else:
            for j in range(first, last):
                w[code[j, 0]] = seldom(operation, w[code[j, 1]], w[code[j, 2]])


@jitable
def run_lanes(tape: Tape, x: Array, out: Array) -> None:
    """Evaluate a function at eight arguments, the columns of x (n_in, 8); out is (n_out, 8)."""
    code, w, last = tape.code, tape.lanes, 0
    if tape.address != 0:
        for lane in range(LANES):
            for i in range(tape.one_in.size):
                tape.one_in[i] = x[i, lane]
            run(tape, tape.one_in, tape.one_out)
            for i in range(tape.one_out.size):
                out[i, lane] = tape.one_out[i]
        return
    tape.calls[0] += LANES
    for k in range(tape.runs.shape[0]):
        operation, first = tape.runs[k, 0], last
        last = first + tape.runs[k, 1]
        if operation == MUL:
            for j in range(first, last):
                for lane in range(LANES):
                    w[code[j, 0], lane] = w[code[j, 1], lane] * w[code[j, 2], lane]
        elif operation == ADD:
            for j in range(first, last):
                for lane in range(LANES):
                    w[code[j, 0], lane] = w[code[j, 1], lane] + w[code[j, 2], lane]
        elif operation == SUB:
            for j in range(first, last):
                for lane in range(LANES):
                    w[code[j, 0], lane] = w[code[j, 1], lane] - w[code[j, 2], lane]
        elif operation == INPUT:
            for j in range(first, last):
                for lane in range(LANES):
                    w[code[j, 0], lane] = x[code[j, 1], lane]
        elif operation == OUTPUT:
            for j in range(first, last):
                for lane in range(LANES):
                    out[code[j, 0], lane] = w[code[j, 1], lane]
        elif operation == CONST:
            for j in range(first, last):
                for lane in range(LANES):
                    w[code[j, 0], lane] = tape.constants[j]
        else:
            for j in range(first, last):
                for lane in range(LANES):
                    w[code[j, 0], lane] = seldom(operation, w[code[j, 1], lane], w[code[j, 2], lane])
