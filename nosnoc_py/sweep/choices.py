"""Methods and solvers that a configuration names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nosnoc_py.api import METHODS, SOLVERS
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.options import Options
from nosnoc_py.plugins import Family

# Classes by the name that a configuration gives.
CHOICES: dict[str, Family[Callable[..., Options]]] = {
    "method": Family("methods", {method.__name__: method for method in METHODS}),
    "solver": Family("solvers", {solver.__name__: solver for solver in SOLVERS}),
}


def make(what: str, given: Mapping[str, Any]) -> Any:
    """Return the method or the solver that {"name": ..., option: ...} describes.

    Parameters
    ----------
    what : {"method", "solver"}

    Raises
    ------
    OptionError
        For an unknown name, an unknown option, an ill-typed value.
    """
    options = dict(given)
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in CHOICES[what]:
        raise OptionError(f"{what}.name: {unknown_name(name, CHOICES[what], what)}")
    try:
        return CHOICES[what][name](**options)
    except OptionError as error:
        raise OptionError(f"{what}: {error}") from None


def options_of(what: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types of the options of a choice, by name."""
    form = _form(given)
    return {**dict.fromkeys(form, str), **fields_of(type(CHOICES[what][given["name"]](**form)))}


def _form(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the option `form` of direct shooting, a family whose form decides which other options exist."""
    return {"form": given.get("form", "smoothed")} if given["name"] == "DirectShooting" else {}


def fields_of(kind: type[Options]) -> dict[str, Any]:
    """Return the types of the fields, by name."""
    return {name: field.annotation for name, field in kind.model_fields.items()}


def described(what: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping with all options, defaults included, as values of JSON."""
    return {"name": given["name"], **_form(given), **make(what, given).model_dump(mode="json")}
