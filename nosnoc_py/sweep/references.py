"""Functions by name, "module:function", found with some folders in front of Python's path.

Configurations name functions, so that they can be files, and runs can be sent to other processes and machines.
Functions may have fewer parameters than there are arguments: `Parameters` tells which ones they take.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nosnoc_py.errors import NosnocError, OptionError, unknown_name
from nosnoc_py.sweep.tasks import is_shortage


class RaisedError(OptionError):
    """A function of the user has raised; its own error is the cause of this one."""


@contextmanager
def on_path(*folders: str | Path | None) -> Iterator[None]:
    """Put folders in front of sys.path for a while; None is passed over."""
    added = [str(Path(folder).resolve()) for folder in folders if folder is not None]
    before = list(sys.path)
    sys.path[:0] = added
    try:
        yield
    finally:
        for folder in added:
            # The user's code may have changed the path: remove only what was added.
            if folder in sys.path and sys.path.count(folder) > before.count(folder):
                sys.path.remove(folder)


def function(reference: str, folder: str | Path | None = None) -> Callable[..., Any]:
    """Find a function by its name.

    Parameters
    ----------
    reference : str
        "package.module:function".
    folder : path, optional
        Folder to look in first; then the current folder, then Python's path.

    Raises
    ------
    OptionError
        If there is no such module or function, with what to do.
    """
    module_name, colon, name = str(reference).partition(":")
    if not colon or not module_name or not name.isidentifier():
        raise OptionError(f'{reference!r}: expected "module:function", e.g. "problems.disc_manipulation:build".')
    with on_path(folder, Path.cwd()):
        # The file may have been written a moment ago.
        importlib.invalidate_caches()
        module = _module(module_name, reference, folder)
    attribute = getattr(module, name, None)
    if attribute is None:
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise OptionError(f"{reference!r}: module {module_name!r}: {unknown_name(name, functions, 'function')}")
    if not callable(attribute):
        raise OptionError(f"{reference!r}: expected a function, found {type(attribute).__name__}.")
    return attribute


def _module(name: str, reference: str, folder: str | Path | None) -> Any:
    _check_namesake(name, reference, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        # The module itself is missing; otherwise it exists and misses one of its own imports.
        if name == missing or name.startswith(f"{missing}."):
            where = " and ".join(str(place) for place in dict.fromkeys((folder, Path.cwd())) if place is not None)
            raise OptionError(
                f"{reference!r}: there is no module {missing!r}. It is looked for in {where} and among the installed "
                "packages: put the file there, or change into its folder."
            ) from None
        raise OptionError(
            f"{reference!r}: cannot be imported, because it needs the module {missing!r}, which is not installed."
        ) from error
    except (Exception, SystemExit) as error:
        raise OptionError(f"{reference!r}: cannot be imported, {type(error).__name__}: {error}") from error


def _check_namesake(name: str, reference: str, folder: str | Path | None) -> None:
    """Refuse a file that another one of the same name hides, which was imported before it."""
    loaded = getattr(sys.modules.get(name), "__file__", None)
    own = None if folder is None else Path(folder).resolve() / (name.replace(".", "/") + ".py")
    if loaded is None or own is None or not own.exists() or not Path(loaded).exists():
        return
    # A copy of the same file is as good.
    if own.read_bytes() != Path(loaded).read_bytes():
        raise OptionError(
            f"{reference!r}: {loaded} was imported under this name already, so {own} cannot be; rename one of them, or "
            "use a fresh process."
        )


def called(field: str, reference: str, folder: str | Path | None, *positional: Any, **arguments: Any) -> Any:
    """Call a function by its name; its errors name the field of the configuration.

    Raises
    ------
    RaisedError
        If it raises anything but an error of this library, which says enough, or of a machine that is full.
    """
    target = function(reference, folder)
    try:
        return target(*positional, **arguments)
    except NosnocError:
        raise
    except (Exception, SystemExit) as error:
        if is_shortage(error):
            raise
        raise RaisedError(f"{field}: {reference} raised {type(error).__name__}: {error}") from error


# Name of the parameter of a measure that gets the mapping of all arguments of its run.
ARGUMENTS = "arguments"


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Names of the arguments of a function.

    Parameters
    ----------
    names : tuple of str
    defaults : mapping
        Of those that have one.
    anything : bool
        True if it takes other names as well.
    """

    names: tuple[str, ...]
    defaults: Mapping[str, Any]
    anything: bool

    @property
    def legal(self) -> tuple[str, ...] | None:
        """The names that it takes; None where it takes any."""
        return None if self.anything else self.names

    @property
    def required(self) -> tuple[str, ...]:
        """The names that it cannot do without."""
        return tuple(name for name in self.names if name not in self.defaults)

    def among(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that the function takes."""
        return {name: value for name, value in arguments.items() if self.anything or name in self.names}


def parameters_of(called: Callable[..., Any]) -> Parameters:
    """Return the names of the arguments of a function."""
    parameters = inspect.signature(called).parameters.values()
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return Parameters(
        names=tuple(p.name for p in named),
        defaults={p.name: p.default for p in named if p.default is not p.empty},
        anything=any(p.kind is p.VAR_KEYWORD for p in parameters),
    )
