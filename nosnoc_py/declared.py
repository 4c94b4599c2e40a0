"""Frozen classes that declare every argument once: its type, its conversion and its check stand at the field.

`declared` is `attrs.frozen` for classes that users construct, with what all of them share:

* a converter is a function of the given value, such as `symbols.column`. Its arguments `what` and `owner`, if it has
  them, are a text for messages that names object and argument ("contact 'ground': gap"), and the object, whose fields
  above have their values already. What a converter returns is locked (`frozen`);
* arguments that have to be given come first in `help()`, then those of the class, then those of its bases;
* unknown keywords are answered with the nearest names (`arguments.named_arguments`);
* objects are compared by identity, as expressions of CasADi have no equality;
* `dataclasses.replace` and `dataclasses.fields` work on them as `attrs.evolve` and `attrs.fields` do, for scripts of
  users and for code that treats all frozen objects alike.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import numpy as np

from nosnoc_py.arguments import named_arguments

__all__ = ["FrozenDict", "assign", "changed", "checked", "declared", "frozen", "optional", "title_of"]

T = TypeVar("T")

if TYPE_CHECKING:  # type checkers know these, and take the types of arguments from the converters
    from attrs import frozen as declared
    from attrs.converters import optional
else:

    def declared(target: type | None = None, **options: Any) -> Any:
        """Return a frozen class with the converters, messages and signature of this module, or a decorator."""
        if target is None:
            return lambda one: declared(one, **options)
        made = attrs.frozen(**{"eq": False, "slots": False, "field_transformer": _completed} | options)(target)
        made.__dataclass_fields__ = _as_of_dataclass(made)
        return named_arguments(made)

    def optional(converter: Callable[..., Any]) -> Callable[..., Any]:
        """Return a converter that passes None on."""

        @wraps(converter)
        def convert(value: Any, **more: Any) -> Any:
            return None if value is None else converter(value, **more)

        first, *others = inspect.signature(converter).parameters.values()
        convert.__signature__ = inspect.Signature([first.replace(annotation=f"{first.annotation} | None"), *others])
        return convert


class FrozenDict(dict[Any, Any]):
    """A dictionary that nobody changes; it is pickled and written to JSON like any other."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("results and systems cannot be changed; change a copy of this mapping, dict(...).")

    # All ways by which a dict changes in place; a proxy (MappingProxyType) could not be pickled.
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


def frozen(value: Any) -> Any:
    """Return the value with arrays and mappings that cannot be changed in place."""
    if isinstance(value, np.ndarray):
        # A view, so that the caller's own array stays writable.
        value = value.view()
        value.setflags(write=False)
        return value
    if type(value) is tuple:
        return tuple(frozen(each) for each in value)
    return FrozenDict(value) if type(value) is dict else value


def assign(owner: object, **values: Any) -> None:
    """Store normalised values in a frozen dataclass, arrays and mappings as `frozen`; for its `__post_init__` only."""
    for name, value in values.items():
        object.__setattr__(owner, name, frozen(value))


def changed(owner: T, **values: Any) -> T:
    """Return a copy of a frozen object with other values, which are not converted or checked again."""
    result: T = object.__new__(type(owner))
    kept = {k: v for k, v in vars(owner).items() if not isinstance(getattr(type(owner), k, None), cached_property)}
    vars(result).update(kept)
    assign(result, **values)
    return result


def checked(check: Callable[[Any, str], Any]) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """Return a validator of attrs: `check` gets the value and the text for messages, and raises where it is wrong."""

    def validate(owner: Any, field: attrs.Attribute[Any], value: Any) -> None:
        check(value, f"{title_of(owner)}: {field.name}")

    return validate


def title_of(owner: Any) -> str:
    """Return what messages call an object: its `noun` with its name, as far as it has them."""
    noun, name = getattr(owner, "noun", None) or type(owner).__name__, vars(owner).get("name")
    return noun if name is None else f"{noun} {name!r}"


def _as_of_dataclass(made: type) -> Any:
    fields = [(f.name, f.type, dataclasses.field(init=f.init)) for f in attrs.fields(made)]
    plain: Any = dataclasses.make_dataclass(made.__name__, fields, init=False, repr=False, eq=False)
    return plain.__dataclass_fields__


def _completed(cls: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """Return the fields in the order of the signature, with converters that know what messages call the argument."""
    own = inspect.get_annotations(cls)

    def rank(field: attrs.Attribute[Any]) -> tuple[bool, bool]:
        asked = field.default is attrs.NOTHING
        return not asked, (field.name in own) == asked

    given = sorted(fields, key=rank) if all(f.kw_only for f in fields if f.init) else fields
    return [f.evolve(converter=_named(f.converter)) if inspect.isfunction(f.converter) else f for f in given]


def _named(converter: Callable[..., Any]) -> Any:
    """Return a converter of attrs that tells ours what it may want to know."""
    more = {"what", "owner"} & set(inspect.signature(converter).parameters)

    @wraps(converter)
    def convert(value: Any, owner: Any, field: attrs.Attribute[Any]) -> Any:
        known = {"what": f"{title_of(owner)}: {field.name}", "owner": owner}
        return frozen(converter(value, **{name: known[name] for name in more}))

    return attrs.Converter(convert, takes_self=True, takes_field=True)
