"""Errors about misspelt keyword arguments that name the right ones, and signatures that are easy to read.

`named_arguments` decorates the public functions, methods and classes. It does two things and changes nothing else:

* an unknown keyword raises `ArgumentError`, which is a `TypeError` as for any Python function and proposes the nearest
  names, those of other tools included (`synonyms`);
* the signature that `help()` prints has one argument a line, without the quotes of postponed annotations.

Type checkers see the decorated object itself. Option classes check their names in `options` and use `Signature` only.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from nosnoc_py.errors import ArgumentError, unknown_name

T = TypeVar("T", bound=Callable[..., Any])
# Characters of a signature that is printed on one line.
LINE = 100


class Text(str):
    """An annotation or a default that is printed as it is, without quotes."""

    def __repr__(self) -> str:
        return str(self)


class Signature(inspect.Signature):
    """A signature that prints one argument a line if it is long."""

    __slots__ = ()

    def __str__(self) -> str:
        short = super().__str__()
        if len(short) <= LINE:
            return short
        result = f" -> {inspect.formatannotation(self.return_annotation)}" if " -> " in short else ""
        lines = "".join(f"    {line},\n" for line in self._lines())
        return f"(\n{lines}){result}"

    def format(self, **options: Any) -> str:  # what pydoc calls from Python 3.13 on
        """Return the text, whatever the width."""
        return str(self)

    def _lines(self) -> Iterable[str]:
        kinds = inspect.Parameter
        starred = False
        for parameter in self.parameters.values():
            if parameter.kind == kinds.VAR_POSITIONAL:
                starred = True
            elif parameter.kind == kinds.KEYWORD_ONLY and not starred:
                starred = True
                yield "*"
            yield str(parameter)


def readable(signature: inspect.Signature) -> Signature:
    """Return the signature with annotations without quotes; values made for each object are shown as `...`."""

    def annotation(given: Any) -> Any:
        return Text(given) if isinstance(given, str) else given

    def default(given: Any) -> Any:
        if isinstance(given, types.MappingProxyType):
            return dict(given)
        return Text("...") if repr(given) == "<factory>" else given

    parameters = [
        each.replace(
            annotation=annotation(each.annotation),
            default=default(each.default),
        )
        for each in signature.parameters.values()
    ]
    returned = signature.return_annotation
    return Signature(parameters, return_annotation=annotation(returned))


def short_type(annotation: Any) -> Text:
    """Return a type in few words: choices by their values, constraints of pydantic left out.

    Examples
    --------
    >>> short_type(Literal["stewart", "step"] | None), short_type(tuple[int, ...])
    ('stewart' | 'step' | None, tuple[int, ...])
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is type(None):
        return Text("None")
    if annotation is Ellipsis:
        return Text("...")
    if origin is Annotated:
        return short_type(arguments[0])
    if origin is Literal:
        return Text(" | ".join(repr(value) for value in arguments))
    if origin in (typing.Union, types.UnionType):
        return Text(" | ".join(dict.fromkeys(map(short_type, arguments))))
    name = getattr(origin or annotation, "__name__", None) or str(annotation).removeprefix("typing.")
    return Text(f"{name}[{', '.join(map(short_type, arguments))}]" if arguments else name)


def named_arguments(target: T) -> T:
    """Return a function, or a class, that raises `ArgumentError` for keywords it does not have.

    Examples
    --------
    >>> @named_arguments
    ... def throw(ball, *, speed, angle=0.0): ...
    >>> throw("red", sped=3.0)
    Traceback (most recent call last):
        ...
    nosnoc_py.errors.ArgumentError: unknown argument 'sped' of throw. Did you mean 'speed'? Legal: ball, speed, angle.
    """
    if isinstance(target, type):
        constructor: Any = target
        constructor.__init__ = _checked(constructor.__init__, target.__name__, constructor=True)
        return target
    checked: Any = _checked(target, target.__name__)
    return checked


def _checked(function: Callable[..., Any], title: str, *, constructor: bool = False) -> Callable[..., Any]:
    signature = readable(inspect.signature(function))
    if constructor:
        signature = Signature(list(signature.parameters.values()))  # "-> None" of a class would mislead
    kinds = inspect.Parameter
    parameters = list(signature.parameters.values())
    hidden = 1 if parameters and parameters[0].name == "self" else 0
    legal = dict.fromkeys(
        each.name for each in parameters[hidden:] if each.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    )
    anything = any(each.kind == kinds.VAR_KEYWORD for each in parameters)

    @wraps(function)
    def checked(*values: Any, **named: Any) -> Any:
        if not anything and not named.keys() <= legal.keys():
            unknown = next(name for name in named if name not in legal)
            raise ArgumentError(unknown_name(unknown, legal, "argument", of=title))
        return function(*values, **named)

    checked.__signature__ = signature  # type: ignore[attr-defined]
    return checked
