"""Settings that `--set key=value` may change: options of the method and of the solver, and arguments of a problem."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.options import Options

NO_KEYS = ("callback", "progress")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings with which a problem is run.

    Parameters
    ----------
    method : FESD, FESDJ or TimeFreezing
    solver : Auto, ActiveSet or Homotopy
    methods, solvers : mapping
        Choices of the keys "method" and "solver", by name; empty if there is no choice.
    arguments : mapping
        Arguments of the problem, by name.
    fixed : names
        Options that the problem chooses itself; they cannot be set.
    """

    method: Any = field(default_factory=ns.FESDJ)
    solver: Any = field(default_factory=ns.Homotopy)
    methods: Mapping[str, Any] = field(default_factory=dict)
    solvers: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Names that `changed` accepts."""
        options = (*_options_of(self.method), *type(self.solver).model_fields)
        choices = [name for name, known in self._choices.items() if known]
        return (*self.arguments, *choices, *(name for name in options if name not in self.fixed))

    @property
    def _choices(self) -> dict[str, Mapping[str, Any]]:
        return {"method": self.methods, "solver": self.solvers}

    @property
    def defaults(self) -> dict[str, Any]:
        """Values by key, of a choice its name."""
        inner = getattr(self.method, "fesd", None)
        known = {choice: _chosen(getattr(self, choice), named) for choice, named in self._choices.items()}
        options = [dict(options) for options in (self.solver, inner, self.method) if options is not None]
        values_by_key = {
            key: value for values in (*options, known, dict(self.arguments)) for key, value in values.items()
        }
        return {key: values_by_key[key] for key in self.keys}

    def changed(self, changes: Mapping[str, Any]) -> Settings:
        """Return settings with some values replaced.

        Raises
        ------
        OptionError
            For an unknown name, or a value that does not fit.
        """
        for choice, known in self._choices.items():
            if known and choice in changes:
                rest = {key: value for key, value in changes.items() if key != choice}
                if changes[choice] not in known:
                    raise OptionError(unknown_name(changes[choice], known, choice))
                return replace(self, **{choice: known[changes[choice]]}).changed(rest)
        arguments, method, solver = dict(self.arguments), {}, {}
        for key, value in changes.items():
            if key not in self.keys:
                raise OptionError(unknown_name(key, self.keys, "key"))
            if key in arguments:
                arguments[key] = _fitting(key, value, self.arguments[key])
            elif key in _options_of(self.method):
                method[key] = value
            else:
                solver[key] = value
        return replace(
            self, arguments=arguments, method=_replaced(self.method, method), solver=self.solver.replace(**solver)
        )


def _chosen(value: Any, known: Mapping[str, Any]) -> str:
    """Return the name under which a choice has this value."""
    return next((name for name, other in known.items() if other == value), type(value).__name__)


def _options_of(method: Any) -> tuple[str, ...]:
    """Return the names of the options of a method, for time-freezing including those of its finite elements."""
    own = type(method).model_fields
    return (*own, *type(method.fesd).model_fields) if "fesd" in own else tuple(own)


def _replaced(method: Any, changes: Mapping[str, Any]) -> Any:
    """Return a method with other options."""
    own = {key: value for key, value in changes.items() if key in type(method).model_fields}
    inner = {key: value for key, value in changes.items() if key not in own}
    return method.replace(**own, **({"fesd": method.fesd.replace(**inner)} if inner else {}))


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return names and default values of a function's arguments, without options and callbacks."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.default is not p.empty]
    return {p.name: p.default for p in parameters if not isinstance(p.default, Options) and p.name not in NO_KEYS}


def parse(assignments: Sequence[str]) -> dict[str, Any]:
    """Return names and values of texts such as "rk_stages=3".

    Raises
    ------
    OptionError
        If there is no "=".
    """
    changes: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise OptionError(f"--set: expected key=value, given {text!r}.")
        changes[key.strip()] = literal(value)
    return changes


def literal(text: str) -> Any:
    """Read a number, a truth value, None, or several of them between commas; what is none of these is a string.

    >>> literal("3"), literal("1e-3"), literal("true"), literal("100,200"), literal("radau_iia")
    (3, 0.001, True, (100, 200), 'radau_iia')
    """
    text = text.strip()
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        # names without quotes between commas; no Python literal has that form
        return tuple(literal(part) for part in text.split(",") if part.strip()) if "," in text else text
    return tuple(value) if isinstance(value, list) else value


def _fitting(key: str, value: Any, default: Any) -> Any:
    """Return the value with the type of the default, or refuse it."""
    if isinstance(default, bool) or default is None or isinstance(default, str):
        fits = default is None or type(value) is type(default)
    elif isinstance(default, tuple):
        value = value if isinstance(value, tuple) else (value,)
        fits = all(_same_kind(item, default[0]) for item in value) if default else True
    else:
        fits = _same_kind(value, default)
    if not fits:
        expected = "true or false" if isinstance(default, bool) else f"a value such as {default!r}"
        raise OptionError(f"{key}: expected {expected}, given {value!r}.")
    return float(value) if isinstance(default, float) else value


def _same_kind(value: Any, default: Any) -> bool:
    kinds = (int, float) if isinstance(default, float) else type(default)
    return isinstance(value, kinds) and not isinstance(value, bool)
