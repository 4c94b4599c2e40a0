"""Short notations for users: comparisons as constraints, values by name, least-squares costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.annotations import Expression, Numbers
from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.symbols import check_keys, column, numbers, scalar

Array = np.ndarray
# CasADi writes a >= b as b <= a, and a strict inequality has no other meaning for a solver.
EQUAL, AT_MOST = (ca.OP_EQ,), (ca.OP_LE, ca.OP_LT)


class TruthValueError(ModelError, RuntimeError):
    """Error where Python asks an expression for its truth value; a `RuntimeError`, as CasADi raises there."""


def _asked_for_truth(given: Any) -> TruthValueError:
    text = str(given) if given.numel() < 5 else f"an expression of shape {given.shape}"
    return TruthValueError(
        f"{text} is an expression, which is neither true nor false, but was used where Python needs one of these. Two "
        "limits at once, -1 <= q[0] <= 1, are ns.Constraint(q[0], -1, 1) or the two comparisons q[0] >= -1, q[0] <= 1; "
        "instead of `and` give both as constraints; instead of `if` write ca.if_else(condition, this, that)."
    )


def _truth_of(self: Any, *args: Any) -> bool:
    try:
        return bool(_casadi_truth(self, *args))
    except RuntimeError:
        raise _asked_for_truth(self) from None


# Python evaluates a chained comparison before it calls anything of this library: the message can only be CasADi's, so
# that it is replaced there. What has a truth value keeps it, and the exception is still a RuntimeError.
if getattr(ca.SX.__bool__, "__name__", "") != _truth_of.__name__:
    _casadi_truth = ca.SX.__bool__
    ca.SX.__bool__ = _truth_of


def is_comparison(expression: Any) -> bool:
    """Return True if an expression has a comparison such as `q[0] == 1` or `q <= 1` at its top."""
    return isinstance(expression, ca.SX) and any(_operation(e) in (*EQUAL, *AT_MOST, ca.OP_NE) for e in expression.nz)


def _operation(e: ca.SX) -> int | None:
    return None if e.is_constant() or e.is_symbolic() else int(e.op())


def interval_of(comparison: ca.SX, what: str) -> tuple[ca.SX, Array, Array]:
    """Return a comparison, row by row, as an expression between a lower and an upper bound.

    A side that is a number becomes a bound of the other side; of two expressions their difference is compared with 0.

    Raises
    ------
    ModelError
        For rows that compare nothing, or by `!=`.
    """
    rows = [_row(e, what) for e in ca.vertsplit(column(comparison, what))]
    expressions, lower, upper = zip(*rows, strict=True)
    return ca.vertcat(*expressions), np.array(lower), np.array(upper)


def _row(e: ca.SX, what: str) -> tuple[ca.SX, float, float]:
    operation = _operation(e)
    if operation not in (*EQUAL, *AT_MOST):
        raise ModelError(
            f"{what}: expected comparisons by ==, <= or >=, given {e}; two bounds at once are "
            "ns.Constraint(expression, lower, upper)."
        )
    a, b = e.dep(0), e.dep(1)
    if b.is_constant():
        bound = float(b)
        return a, bound if operation in EQUAL else -np.inf, bound
    if a.is_constant():
        bound = float(a)
        # The comparison a <= b with a number on the left is a lower bound of b.
        return b, bound, bound if operation in EQUAL else np.inf
    # Two expressions: their difference is compared with zero.
    return a - b, 0.0 if operation in EQUAL else -np.inf, 0.0


def by_name(given: Mapping[str, Any], names: Sequence[str], start: Array, what: str) -> Array:
    """Return a vector with some of its components given by name; the others are those of `start`.

    Components "table[0]", "table[1]", ... may be given together as "table".
    """
    legal, result = list(names), np.array(start, dtype=float)
    # Components "table[0]", "table[1]" belong to data of a name, which may be given as a whole.
    tables = dict.fromkeys(name.split("[")[0] for name in legal if name.endswith("]"))
    check_keys(given, (*legal, *tables), f"component of {what}")
    for name, value in given.items():
        if name in legal:
            result[legal.index(name)] = scalar(value, f"{what}: {name}")
            continue
        rows = [i for i, label in enumerate(legal) if label.startswith(f"{name}[")]
        # Row by row, which is the order of the names of a table.
        result[rows] = numbers(np.ravel(value), f"{what}: {name}", len(rows))
    return result


def intervals_by_name(
    given: Mapping[str, Any], names: Sequence[str], what: str, *, pairs: bool = False
) -> tuple[Array, Array]:
    """Return bounds (n,) of named components, each a pair (lower, upper), None for no bound, or one number for both.

    Raises
    ------
    ModelError
        For unknown names, or what is no pair of numbers; with `pairs` also for one number, which as a bound may be
        meant as the largest amount, as the upper bound, or as the only value.
    """
    check_keys(given, names, f"name in {what}")
    lower, upper = np.full(len(names), -np.inf), np.full(len(names), np.inf)
    for name, bounds in given.items():
        pair = tuple(bounds) if isinstance(bounds, list | tuple | np.ndarray) and np.ndim(bounds) else (bounds, bounds)
        if pairs and not np.ndim(bounds):
            raise ModelError(
                f"{what}: {name}: expected a pair (lower, upper), given {bounds!r}; write {_pair_meant(bounds)}."
            )
        if len(pair) != 2:
            other = "" if pairs else " or one number"
            raise ModelError(f"{what}: {name}: expected a pair (lower, upper){other}, given {bounds!r}.")
        i = list(names).index(name)
        lower[i] = -np.inf if pair[0] is None else scalar(pair[0], f"{what}: {name}: lower")
        upper[i] = np.inf if pair[1] is None else scalar(pair[1], f"{what}: {name}: upper")
    return lower, upper


def _pair_meant(bound: Any) -> str:
    """Return the pairs that one number may stand for, for a message."""
    try:
        value = float(bound)
    except (TypeError, ValueError):
        return "(-5, 5), (None, 5) or (0, None)"
    size = abs(value)
    around, above = f"({-size:g}, {size:g}) for a range around zero", f"(None, {value:g}) for an upper bound only"
    return f"{around}, {above}, ({value:g}, {value:g}) to fix it"


@named_arguments
def least_squares(expression: Expression, reference: Expression = 0.0, weights: Numbers = 1.0) -> ca.SX:
    """Return the weighted sum of squared differences between an expression and its reference, as a cost.

    Parameters
    ----------
    expression : SX (m,)
    reference : SX or numbers (m,), optional
        Reference values; may be an expression of time.
    weights : float, (m,) or (m, m)
        Nonnegative numbers, or a symmetric positive semidefinite matrix W: r'W r.

    Returns
    -------
    SX scalar

    Raises
    ------
    ModelError
        For lengths that do not match, or weights that make a cost negative.

    Examples
    --------
    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> x = ca.SX.sym("x", 2)
    >>> ns.least_squares(x, [1, 0], weights=[10, 1])
    SX(((10*sq((x_0-1)))+sq(x_1)))
    """
    rows = column(expression, "least_squares: expression")
    target = column(reference, "least_squares: reference")
    if target.numel() not in (1, rows.numel()):
        raise ModelError(
            f"least_squares: reference: expected {rows.numel()} rows, or one number, given {target.numel()}."
        )
    try:
        matrix = np.array(weights, dtype=float)
    except (TypeError, ValueError):
        raise ModelError(f"least_squares: weights: expected numbers, given {weights!r}.") from None
    n = rows.numel()
    if matrix.shape not in ((), (1,), (n,), (n, n)) or not np.isfinite(matrix).all():
        raise ModelError(
            f"least_squares: weights: expected one finite number, {n}, or a matrix {(n, n)}, given {weights!r}."
        )
    left = rows - target
    if matrix.ndim == 2:
        # A small negative eigenvalue of a matrix that was computed, such as J'J, is rounding.
        if not np.allclose(matrix, matrix.T) or np.linalg.eigvalsh(matrix).min() < -1e-12 * np.abs(matrix).max():
            raise ModelError("least_squares: weights: a matrix has to be symmetric and positive semidefinite.")
        # Not factorised: a semidefinite matrix has no Cholesky factor.
        return ca.bilin(ca.DM(matrix), left, left)
    if matrix.min(initial=0.0) < 0:
        raise ModelError(f"least_squares: weights: expected nonnegative numbers, given {weights!r}.")
    return ca.dot(ca.DM(np.broadcast_to(matrix, n)), left**2)
