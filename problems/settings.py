"""What `--set key=value` may change: options of the method and of the solver, and arguments of a problem."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, unknown_name


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything a problem is run with.

    Parameters
    ----------
    method : FESDJ
    solver : Auto, ActiveSet or Homotopy
    solvers : mapping
        Solvers that the key "solver" chooses from, by name; empty where there is no choice.
    arguments : mapping
        Arguments of the problem, by name.
    fixed : names
        Options that the problem chooses itself; they cannot be set.
    """

    method: Any = field(default_factory=ns.FESDJ)
    solver: Any = field(default_factory=ns.Homotopy)
    solvers: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """All names that `changed` takes."""
        options = (*type(self.method).model_fields, *type(self.solver).model_fields)
        choice = ("solver",) if self.solvers else ()
        return (*self.arguments, *choice, *(name for name in options if name not in self.fixed))

    def changed(self, changes: Mapping[str, Any]) -> Settings:
        """Return settings with some values replaced.

        Raises
        ------
        OptionError
            For an unknown name, or a value that does not fit.
        """
        if self.solvers and "solver" in changes:
            rest = {key: value for key, value in changes.items() if key != "solver"}
            return replace(self, solver=self._chosen(changes["solver"])).changed(rest)
        arguments, method, solver = dict(self.arguments), {}, {}
        for key, value in changes.items():
            if key not in self.keys:
                raise OptionError(unknown_name(key, self.keys, "key"))
            if key in arguments:
                arguments[key] = _fitting(key, value, self.arguments[key])
            elif key in type(self.method).model_fields:
                method[key] = value
            else:
                solver[key] = value
        return replace(
            self, arguments=arguments, method=self.method.replace(**method), solver=self.solver.replace(**solver)
        )

    def _chosen(self, name: Any) -> Any:
        if name not in self.solvers:
            raise OptionError(unknown_name(name, self.solvers, "solver"))
        return self.solvers[name]


def defaults_of(function: Callable[..., Any], without: Sequence[str] = ()) -> dict[str, Any]:
    """Names and default values of a function's arguments; those without a default are left out."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty and p.name not in without}


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
        raise OptionError(f"{key}: expected a value such as {default!r}, given {value!r}.")
    return float(value) if isinstance(default, float) else value


def _same_kind(value: Any, default: Any) -> bool:
    kinds = (int, float) if isinstance(default, float) else type(default)
    return isinstance(value, kinds) and not isinstance(value, bool)
