"""Detection of jumps of a force or a flow with the state: sign, if_else, comparisons, floor.

The expression graph shows which operations may jump. Samples along random lines through the states decide: a change of
such an operation is bisected, and the expression is compared on both sides. An if_else whose branches meet is
continuous, and |q| and fmax(q, 0) only have kinks. Jumps between samples are missed: the result is a warning, no proof.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelWarning
from nosnoc_py.systems.symbols import applied

# Operations of one argument or two, with the function of them at whose zeros they jump.
STEPS = (ca.OP_SIGN, ca.OP_NOT, ca.OP_FLOOR, ca.OP_CEIL)
COMPARISONS = (ca.OP_LT, ca.OP_LE, ca.OP_EQ, ca.OP_NE)
# Number of random lines through the state space, of places on each, and the sizes of the states: users' units differ.
LINES, PLACES, SIZES = 48, 33, (1e-2, 1.0, 1e2, 1e4)
# Number of bisections between two places (to rounding), and the relative change of the value over the rest that is a
# jump: far above the change of a continuous function over so short a distance.
HALVINGS, JUMP = 48, 1e-5
# Largest number of operations that are tested: long expressions must not delay the construction of a system.
MOST = 50

# Modules between the user's call and the constructor of a system: they check keywords and set fields.
PASSED_THROUGH = ("dataclasses", "attr._make", "attr._funcs", "nosnoc_py.arguments")


def warn_of_jumps(
    expressions: Mapping[str, ca.SX], x: ca.SX, others: Sequence[ca.SX], values: Sequence[np.ndarray], remedy: str
) -> None:
    """Warn where an expression jumps in the states.

    Parameters
    ----------
    expressions : mapping
        Expressions by their names in the message.
    x, others : SX
        The states, and the other symbols.
    values : sequence of arrays
        Of the other symbols.
    remedy : str
        Advice at the end of the message.
    """
    level = _level_of_user()
    for what, expression in expressions.items() if level else ():
        rows = jumping_rows(expression, x, others, values)
        if rows:
            raised = f"{what} jumps with the state (row {', '.join(map(str, rows))}): {remedy}"
            warnings.warn(raised, ModelWarning, stacklevel=level)


def jumping_rows(
    expression: ca.SX,
    x: ca.SX,
    others: Sequence[ca.SX],
    values: Sequence[np.ndarray],
    apart: ca.SX | None = None,
) -> list[int]:
    """Return the rows of an expression that are discontinuous in the states at sampled points.

    Cases that depend on the symbols `apart` are none of x alone, and are left out.
    """
    if not _may_jump(ca.Function("f", [x, *others], [expression])):
        return []
    switches = [e for e in _switches(expression) if ca.depends_on(e, x)]
    switches = [e for e in switches if apart is None or not ca.depends_on(e, apart)][:MOST]
    if not switches:
        return []
    both = ca.Function("both", [x, *others], [ca.vertcat(*switches), ca.densify(expression)])
    # A fixed seed, so that a model gives the same warnings every time.
    rng, size, result = np.random.default_rng(0), int(x.numel()), set[int]()

    def at(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        arguments = [np.repeat(np.reshape(v, (-1, 1)), points.shape[1], axis=1) for v in values]
        return tuple(np.asarray(part) for part in both(points, *arguments))  # type: ignore[return-value]

    for scale in SIZES:
        ends = scale * rng.standard_normal((2, LINES, size))
        shares = np.linspace(0.0, 1.0, PLACES)
        points = (ends[0][:, None] + shares[None, :, None] * (ends[1] - ends[0])[:, None]).reshape(-1, size).T
        sides = np.sign(at(points)[0]).reshape(len(switches), LINES, PLACES)
        changes = np.argwhere((sides[:, :, 1:] != sides[:, :, :-1]) & np.isfinite(sides[:, :, 1:] + sides[:, :, :-1]))
        if not len(changes):
            continue
        # One change per operation and line is enough.
        _, first = np.unique(changes[:, :2], axis=0, return_index=True)
        of, line, place = changes[first].T
        low, high = shares[place], shares[place + 1]
        side = sides[of, line, place]

        def states(share: np.ndarray, line: np.ndarray = line, ends: np.ndarray = ends) -> np.ndarray:
            return (ends[0][line] + share[:, None] * (ends[1] - ends[0])[line]).T

        around = np.abs(at(states(low))[1]) + np.abs(at(states(high))[1])
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            same = np.sign(at(states(middle))[0])[of, np.arange(len(of))] == side
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        before, after = at(states(low))[1], at(states(high))[1]
        jumps = np.abs(after - before) > JUMP * around
        result |= set(np.flatnonzero(jumps.any(axis=1)).tolist())
    return sorted(result)


def _level_of_user() -> int:
    """Return the stack level of the user's call for warnings; 0 if the library derived the system itself."""
    level, frame = 1, sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        generated = frame.f_code.co_filename.startswith("<") and frame.f_code.co_name == "__init__"
        if not (name.startswith("nosnoc_py.systems.") or name in PASSED_THROUGH or generated):
            return 0 if name.startswith("nosnoc_py.") else level
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    return 1


def _may_jump(function: ca.Function) -> bool:
    suspects = (*STEPS, *COMPARISONS)
    return any(function.instruction_id(k) in suspects for k in range(function.n_instructions()))


def _switches(expression: ca.SX) -> list[ca.SX]:
    """Return scalar expressions at whose zeros the operations of a graph are discontinuous."""
    result = list[ca.SX]()
    for operation, parts in applied((*STEPS, *COMPARISONS), expression):
        if operation in COMPARISONS:
            result.append(parts[0] - parts[1])
        else:
            # floor and ceil jump at all integers, which are the zeros of this function.
            whole = operation in (ca.OP_FLOOR, ca.OP_CEIL)
            result.append(ca.sin(np.pi * parts[0]) if whole else parts[0])
    return result
