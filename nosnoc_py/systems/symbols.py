"""Small checks shared by everything that holds CasADi expressions: shapes, free symbols, names, numbers.

Checks raise `ModelError` with the name of the argument, the value that was given and the one that was expected. Symbols
are compared by identity (`element_hash`), as CasADi allows several of one name; names serve messages only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.annotations import Expression, Numbers, Symbols
from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.functions import floats as floats
from nosnoc_py.functions import numbers as numbers

# Prefix of the names of controls and parameters that soft constraints add to a system.
SLACK = "slack["
# For messages: where to find symbols that belong to other objects than the system.
OWNERS = {"T": "horizon.symbol of the ns.FreeTime"}


class ReadOnlySX(ca.SX):
    """Expression that cannot be changed in place, as expressions derived from it would not change with it."""

    def _refuse(self, *_: Any, **__: Any) -> None:
        raise ModelError(
            "the expressions of a system or a problem cannot be changed: build a new one with dataclasses.replace, or "
            "work on a copy, ca.SX(expression)."
        )

    # Every method of CasADi that changes an expression in place.
    __setitem__ = set = set_nz = remove = erase = enlarge = resize = clear = _refuse


def column(value: Expression, what: str = "expression", length: int | None = None) -> ca.SX:
    """Return `value` as an SX column; raise `ModelError` if it is no column of the expected length."""
    expression = _to_sx(value, what)
    if expression.is_empty():
        # An empty list or matrix of any shape is a column without rows.
        expression = ca.SX(0, 1)
    if expression.shape[1] != 1:
        raise ModelError(f"{what}: expected a column vector, given shape {expression.shape}.")
    if length is not None and expression.shape[0] != length:
        expected, rows = "a scalar" if length == 1 else f"{length} rows", expression.shape[0]
        raise ModelError(f"{what}: expected {expected}, given {rows}{' rows' if length == 1 else ''}.")
    return _finite(expression, what)


def one_row(value: Expression, what: str = "expression") -> ca.SX:
    """Return `value` as an SX scalar; raise `ModelError` if it is none."""
    return column(value, what, 1)


def some_symbols(value: Symbols, what: str = "x") -> ca.SX:
    """Return `symbols`, at least one of them."""
    result = symbols_if_any(value, what)
    if not result.numel():
        raise ModelError(f"{what} needs at least one component.")
    return result


def matrix(value: Expression, what: str = "matrix") -> ca.SX:
    """Return `value` as an SX matrix of any shape, by rows if it is a list of lists."""
    return _finite(_to_sx(_rows(value), what), what)


def column_if_any(value: Expression | None, what: str = "expression") -> ca.SX:
    """Return `column`, an empty one for None."""
    return ca.SX(0, 1) if value is None else column(value, what)


def columns(value: Expression, what: str = "expression") -> ca.SX:
    """Return `value` as a dense SX matrix with at least one column; a list is one column."""
    matrix = _to_sx(_rows(value), what)
    if 0 in matrix.shape:
        raise ModelError(f"{what}: expected at least one column, given shape {matrix.shape}.")
    return _finite(ca.densify(matrix), what)


def _rows(value: Any) -> Any:
    """Return a list of lists as an array; everything else as it is."""
    # A list of lists is a matrix by rows, which CasADi does not read; a flat list may hold expressions.
    nested = isinstance(value, list | tuple) and all(isinstance(row, list | tuple) for row in value)
    return np.array(value) if nested else value


def square(value: Any, what: str, size: int) -> ca.SX:
    """Return `value` as an SX matrix (size, size); raise `ModelError` if it is none."""
    matrix = _to_sx(_rows(value), what)
    if matrix.shape != (size, size):
        hint = ""
        if matrix.shape == (size, 1):
            hint = "; for a diagonal matrix write ca.diag(...)"
        elif matrix.is_scalar():
            hint = f"; for a multiple of the identity write it times ca.DM.eye({size})"
        raise ModelError(f"{what} has to be ({size}, {size}), given {matrix.shape}{hint}.")
    return _finite(matrix, what)


def _to_sx(value: Any, what: str) -> ca.SX:
    try:
        return ca.SX(ca.vertcat(*value) if isinstance(value, (list, tuple)) else value)
    except (NotImplementedError, TypeError, RuntimeError):
        raise ModelError(
            f"{what}: expected numbers or CasADi SX, given {type(value).__name__}; write it in SX."
        ) from None


def symbols_if_any(value: Symbols | None, what: str = "symbols") -> ca.SX:
    """Return `symbols`, an empty column for None."""
    return ca.SX(0, 1) if value is None else symbols(value, what)


def symbols(value: Symbols, what: str = "symbols") -> ca.SX:
    """Return `value` as a column of distinct symbolic primitives."""
    expression = column(value, what)
    if not expression.is_valid_input():
        raise ModelError(f"{what}: expected symbols made by ca.SX.sym, given the expression {expression}.")
    return expression


def _finite(expression: ca.SX, what: str) -> ca.SX:
    # Constants may sit anywhere in the expression, not only at its top: look at every instruction.
    function = ca.Function("constants", ca.symvar(expression), [expression])
    for k in range(function.n_instructions()):
        if function.instruction_id(k) == ca.OP_CONST and not np.isfinite(function.instruction_constant(k)):
            value = function.instruction_constant(k)
            raise ModelError(f"{what}: contains {value}; every number in a model has to be finite.")
    return ReadOnlySX(expression)


def applied(operations: Collection[int], expression: ca.SX) -> Iterator[tuple[int, list[ca.SX]]]:
    """Yield every place of an expression graph at which one of some operations is applied, with its arguments."""
    seen, stack = set[int](), list[ca.SX](expression.nonzeros())
    while stack:
        e = stack.pop()
        if e.element_hash() in seen or e.is_constant() or not e.n_dep():
            continue
        seen.add(e.element_hash())
        parts = [e.dep(k) for k in range(e.n_dep())]
        if e.op() in operations:
            yield e.op(), parts
        stack += parts


def expressions_of(system: Any) -> list[ca.SX]:
    """Return the expressions of a system and of its parts (contacts, jumps, modes, ...), without its symbols."""
    left_out = (*system.groups, "x", "t", "x_initial", "data")
    return [e for f in fields(system) if f.name not in left_out for e in _expressions(getattr(system, f.name, None))]


def _expressions(value: Any) -> list[ca.SX]:
    if isinstance(value, ca.SX):
        return [ca.vec(value)]
    if isinstance(value, Mapping):
        return [e for part in value.values() for e in _expressions(part)]
    if isinstance(value, list | tuple):
        return [e for part in value for e in _expressions(part)]
    if is_dataclass(value) and not isinstance(value, type):
        return [e for f in fields(value) for e in _expressions(getattr(value, f.name, None))]
    return []


def depends_only_on(expression: ca.SX, symbols: ca.SX) -> bool:
    """Check that an expression has no other symbols than these; symbols of the same name are different ones."""
    # By identity: CasADi allows several symbols of one name.
    known = {s.element_hash() for s in ca.symvar(symbols)}
    return all(s.element_hash() in known for s in ca.symvar(expression))


def check_free(expression: ca.SX, allowed: Mapping[str, ca.SX], what: str) -> None:
    """Raise `ModelError` when `expression` depends on a symbol that is not in `allowed` (label -> symbols)."""
    free_of_others(allowed)(expression, what)


def free_of_others(allowed: Mapping[str, ca.SX]) -> Callable[[ca.SX, str], None]:
    """Return a function like `check_free` for many expressions of the same symbols."""
    known = {s.element_hash() for group in allowed.values() for s in ca.symvar(group)}
    # Names are only used for messages: two symbols of the same name are different symbols for CasADi.
    groups = {s.name(): label for label, group in allowed.items() for s in ca.symvar(group)}

    def check(expression: ca.SX, what: str) -> None:
        foreign = sorted({s.name() for s in ca.symvar(expression) if s.element_hash() not in known})
        # The most common mistake: a symbol was made twice with one name.
        twins = [name for name in foreign if name in groups]
        if twins:
            own = " and ".join(dict.fromkeys(OWNERS.get(groups[name], f"system.{groups[name]}") for name in twins))
            raise ModelError(
                f"{what} depends on another symbol that is also called {', '.join(twins)}: every call of ca.SX.sym "
                f"makes a new symbol, also with the same name. Use {own} instead."
            )
        if foreign:
            raise ModelError(
                f"{what} depends on {', '.join(foreign)}, which is not among {', '.join(allowed)}; "
                "pass the symbols the system was written with."
            )

    return check


def check_distinct(groups: Mapping[str, ca.SX]) -> None:
    """Raise `ModelError` when one symbol is used twice among the groups."""
    seen: dict[int, str] = {}
    for label, group in groups.items():
        for s in group.nonzeros():
            if (other := seen.get(s.element_hash())) is not None:
                where = f"twice in {label}" if other == label else f"in both {other} and {label}"
                raise ModelError(f"symbol {s.name()} is used {where}; make a symbol for each.")
            seen[s.element_hash()] = label


def increasing(value: Numbers, what: str = "times", least: str = "two") -> np.ndarray:
    """Return finite numbers that increase, two or more of them, or also "one" from 0 on; raise `ModelError`."""
    array = floats(value, what).reshape(-1)
    enough = array.size > 1 if least == "two" else array.size > 0 and array[0] >= 0.0
    if not enough or not (np.diff(array) > 0).all() or not np.isfinite(array).all():
        rest = "" if least == "two" else ", from 0 on"
        raise ModelError(f"{what}: expected {least} or more that increase{rest}, given {value!r}.")
    return array


def component_names(given: Sequence[str] | None, prefix: str, count: int) -> tuple[str, ...]:
    """Return the names of the components of a vector: the user's, or prefix_0, prefix_1, ..."""
    if given is None:
        return tuple(f"{prefix}_{i}" for i in range(count))
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray) or len(given) != count:
        raise ModelError(f"names of {prefix}: expected {count} names, given {given!r}.")
    return tuple(str(name) for name in given)


def check_different(names: Sequence[str], what: str, things: str) -> None:
    """Raise `ModelError` when two of the names are the same."""
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        repeated = ", ".join(repr(name) for name in double)
        raise ModelError(f"{what}: two {things} are named {repeated}; give each a name of its own.")


def part_name(value: str, owner: Any = None) -> str:
    """Return the name of a part of a system; raise `ModelError` if it is empty or no text."""
    if not isinstance(value, str) or not value:
        raise ModelError(f"{type(owner).__name__}: the name has to be a non-empty string, given {value!r}.")
    return value


def name_or_none(value: str | None, owner: Any = None) -> str | None:
    """Return a name, or None; raise `ModelError` if it is empty or no text."""
    if value is not None and (not isinstance(value, str) or not value):
        raise ModelError(f"{owner.noun}: the name has to be a non-empty string or None, given {value!r}.")
    return value


def parts(given: Any, kind: type | tuple[type, ...], what: str, things: str) -> tuple[Any, ...]:
    """Return `members` with different names; raise `ModelError` for names used twice."""
    result = members(given, kind, what, things)
    check_different([part.name for part in result], what, things)
    return result


def members(given: Any, kind: type | tuple[type, ...], what: str, things: str, field: str = "") -> tuple[Any, ...]:
    """Return a list of parts of one kind, or of some, as a tuple; raise `ModelError` for others."""
    names = " or ".join(f"ns.{each.__name__}" for each in (kind if isinstance(kind, tuple) else (kind,)))
    if not isinstance(given, list | tuple):
        raise ModelError(
            f"{what}: {field or things}: expected a sequence of {names}, given {type(given).__name__}; put "
            "it in a list."
        )
    for part in given:
        if not isinstance(part, kind):
            raise ModelError(f"{what}: {things} have to be {names} objects, given {type(part).__name__}.")
    return tuple(given)


def mapping(value: Mapping[str, Any], what: str = "mapping") -> Mapping[str, Any]:
    """Return `value` if it is a mapping; anything else raises `ModelError`."""
    if not isinstance(value, Mapping):
        raise ModelError(f"{what}: expected a mapping, given {value!r}.")
    return value


def check_keys(given: Iterable[str], legal: Iterable[str], what: str) -> None:
    """Raise `ModelError` for the first key that is not legal."""
    legal = tuple(legal)
    for key in given:
        if key not in legal:
            raise ModelError(unknown_name(key, legal, what))


def scalar(value: float, what: str = "number") -> float:
    """Return one number; anything else, NaN included, raises `ModelError`."""
    # bool is a number in Python and text can be read as one: both are mistakes here.
    value = float(value) if isinstance(value, ca.DM) and value.is_scalar() else value
    if isinstance(value, str | bool | ca.SX | ca.MX | ca.DM) or np.ndim(value) > 1 or np.size(value) != 1:
        raise ModelError(f"{what}: expected one number, given {value!r}.")
    return float(numbers(value, what, 1)[0])


def finite_number(value: float, what: str = "number") -> float:
    """Return one finite number; anything else raises `ModelError`."""
    return float(finite(scalar(value, what), what, 1)[0])


def positive(value: float, what: str = "number") -> float:
    """Return one positive, finite number; anything else raises `ModelError`."""
    number = scalar(value, what)
    if not 0.0 < number < np.inf:
        raise ModelError(f"{what}: expected a positive number, given {number:g}.")
    return number


def nonnegative(value: float, what: str = "number") -> float:
    """Return one finite number >= 0; anything else raises `ModelError`."""
    number = scalar(value, what)
    if not 0.0 <= number < np.inf:
        raise ModelError(f"{what}: expected a nonnegative number, given {number:g}.")
    return number


def fraction(value: float, what: str = "fraction") -> float:
    """Return one number in [0, 1]; anything else raises `ModelError`."""
    number = scalar(value, what)
    if not 0.0 <= number <= 1.0:
        raise ModelError(f"{what} has to lie in [0, 1], given {number:g}.")
    return number


def finite(value: Numbers, what: str, length: int, *, spread: bool = True) -> np.ndarray:
    """Return `value` as a float vector; infinity and NaN raise `ModelError`."""
    array = numbers(value, what, length, spread=spread)
    if not np.isfinite(array).all():
        raise ModelError(f"{what}: every component has to be finite, given {array}.")
    return array
