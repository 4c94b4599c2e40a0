"""A configuration: a problem, a method, a solver, what to vary, and how to run; read from a YAML file and checked.

Checks come in three layers: the YAML, the types of the fields (pydantic), and the meaning (names of methods and
options; paths of axes and functions in `grid`). Every message has the file, the field, the given value and the legal
ones. Invariant: a checked configuration consists of plain values, so it can be written as JSON, hashed and sent to
other machines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal

import casadi as ca
import numpy as np
from pydantic import Field, PrivateAttr, ValidationError, field_validator

from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.sweep.choices import make
from nosnoc_py.sweep.distributions import Distribution
from nosnoc_py.sweep.sections import Section

Reference = Annotated[str, Field(pattern=r"^[^:\s]+:[^:\s]+$")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Numbers = list[float]
# Expected values of fields that are unions: pydantic's own message lists an error for every member.
UNIONS = {
    ("problem", "guess"): 'a function as "module:function", or a constant control: a list of numbers',
    ("simulate", "u"): "a list of numbers, or of such lists: one for each interval of equal length",
}
# Expected value of a name of a function.
REFERENCE = "a function as \"module:function\", e.g. 'problems.disc_manipulation:build'"
# Expected values by pydantic's kinds of errors; names in braces are numbers of the error.
EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "too_short": "two numbers",
    "too_long": "two numbers",
    "string_type": "a word",
    "string_too_short": "a word",
    "list_type": "a list",
    "literal_error": "{expected}",
    "string_pattern_mismatch": REFERENCE,
    "greater_than": "a number greater than {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
}


class Problem(Section):
    """The problem that is solved or simulated.

    Parameters
    ----------
    build : str
        "module:function"; returns an OCP, or a system to simulate. Its source code is no part of the key of a run:
        after a change of what it does, name another output folder, or delete the old results.
    arguments : mapping
        Of this function.
    guess : str or list of float, optional
        A function, called with those of the arguments that it takes; or a constant control.
    measure : str, optional
        A function (problem, result, and those of the arguments that it takes; `arguments` is the mapping of them all)
        -> mapping of numbers: more columns.
    """

    build: Reference
    arguments: dict[str, Any] = Field(default_factory=dict)
    guess: Reference | Numbers | None = None
    measure: Reference | None = None


class Simulate(Section):
    """Arguments of `ns.simulate`; see there."""

    x0: Numbers
    duration: Seconds
    steps: int | None = Field(default=None, ge=1)
    u: Numbers | list[Numbers] | None = None
    p: Numbers | None = None


class Sweep(Section):
    """Variations of the configuration.

    Parameters
    ----------
    grid : mapping
        Lists of values by dotted path into the configuration: all combinations.
    zip : mapping
        Lists of equal length that run together: one more axis.
    random : mapping
        Distributions by dotted path, {problem.arguments.mu: {normal: [0.3, 0.05]}}: drawn together, `samples` times for
        every combination, the same ones for all of them.
    samples : int, optional
        With more of them the first stay what they were.
    repeat : int, optional
        Runs of every combination; run k has the seed `seed` + k in `solver.seed` or `problem.arguments.seed`.
    seed : int
        Of the repeats, and of the random values.
    """

    grid: dict[str, list[Any]] = Field(default_factory=dict)
    zip: dict[str, list[Any]] = Field(default_factory=dict)
    random: dict[str, Distribution] = Field(default_factory=dict)
    samples: int | None = Field(default=None, ge=1)
    repeat: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)


class Run(Section):
    """Settings of the execution.

    Parameters
    ----------
    workers : int
        Processes at a time, on this machine.
    timeout : float, optional
        Of one run [s].
    output : str, optional
        Folder, relative to the current one; default "results/" and the name of the file.
    table : {"csv", "parquet"}
    trajectories : bool
        Whether to keep them, as netCDF.
    """

    workers: int = Field(default=1, ge=1)
    timeout: Seconds | None = None
    output: str | None = Field(default=None, min_length=1)
    table: Literal["csv", "parquet"] = "csv"
    trajectories: bool = True


class Configuration(Section):
    """A whole configuration; see the parts.

    Examples
    --------
    >>> from nosnoc_py.sweep import Configuration
    >>> configuration = Configuration(
    ...     problem={"build": "decay_model:build"},
    ...     simulate={"x0": [1.0], "duration": 1.0},
    ...     sweep={"grid": {"problem.arguments.rate": [1, 2]}},
    ... )
    >>> configuration.output.as_posix(), configuration.sweep.grid
    ('results/sweep', {'problem.arguments.rate': [1, 2]})
    """

    problem: Problem
    method: dict[str, Any] | None = None
    solver: dict[str, Any] | None = None
    simulate: Simulate | None = None
    certify: bool = False
    sweep: Sweep = Field(default_factory=Sweep)
    run: Run = Field(default_factory=Run)

    _path: Path | None = PrivateAttr(default=None)
    _shown: str = PrivateAttr(default="")

    @field_validator("method", "solver")
    @classmethod
    def _exists(cls, value: dict[str, Any] | None, info: Any) -> dict[str, Any] | None:
        if value is not None:
            make(info.field_name, value)
        return value

    @property
    def path(self) -> Path | None:
        """The file it was read from."""
        return self._path

    def where(self, message: object) -> str:
        """Return a message with the name of the file in front, as the user wrote it."""
        return _where(self._shown, str(message))

    @property
    def folder(self) -> Path | None:
        """Folder in which its modules are looked for first: that of the file."""
        return None if self._path is None else self._path.parent

    @property
    def output(self) -> Path:
        """Folder of the results."""
        name = "sweep" if self._path is None else self._path.stem
        return Path(self.run.output or Path("results") / name)

    def replace_run(self, **changes: Any) -> Configuration:
        """Return the configuration with other settings of its part `run`."""
        content = self.model_dump(exclude_unset=True)
        run = {**content.get("run", {}), **{key: value for key, value in changes.items() if value is not None}}
        replaced = configuration({**content, "run": run}, self._path)
        replaced._shown = self._shown
        return replaced


def load(path: str | Path) -> Configuration:
    """Read a configuration.

    Parameters
    ----------
    path : str or Path
        YAML file; modules are looked for in its folder first.

    Raises
    ------
    OptionError
        If there is no such file, it is no YAML, or something in it is unknown, missing or of the wrong kind: file,
        field, given and legal values.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from nosnoc_py.sweep import load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "decay.yaml"
    ...     _ = path.write_text(
    ...         "problem: {build: 'models:decay'}\\n"
    ...         "simulate: {x0: [1.0], duration: 1.0}\\n"
    ...         "sweep: {grid: {problem.arguments.rate: [1, 2]}}"
    ...     )
    ...     load(path).sweep.grid
    {'problem.arguments.rate': [1, 2]}
    """
    path = Path(path)
    return configuration(_parsed(path), path)


def configuration(given: Any, path: str | Path | None = None) -> Configuration:
    """Check plain dicts and lists, and return a `Configuration`; `path` is the file they came from."""
    if isinstance(given, Configuration):
        return given
    shown = "" if path is None else str(path)
    if not isinstance(given, Mapping):
        raise OptionError(_where(shown, f"expected a mapping with the keys {', '.join(Configuration.model_fields)}."))
    try:
        given = plain(given)
        checked = Configuration.model_validate(given)
    except ValidationError as error:
        # A union reports the same mistake once per member.
        lines = list(dict.fromkeys(_explained(item, given) for item in error.errors()))
        raise OptionError(_where(shown, "\n".join(lines))) from None
    except OptionError as error:
        raise OptionError(_where(shown, str(error))) from None
    except RecursionError:
        raise OptionError(_where(shown, "something contains itself, or is nested too deeply.")) from None
    checked._path = None if path is None else Path(path).resolve()
    checked._shown = shown
    return checked


def _where(shown: str, message: str) -> str:
    return "\n".join(f"{shown}: {line}" for line in message.splitlines()) if shown else message


def _parsed(path: Path) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except UnicodeDecodeError:
        raise OptionError(f"{path}: is no text in UTF-8.") from None
    except YAMLError as error:
        raise OptionError(f"{path}: {_place(error)}") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, months beyond the twelfth
        raise OptionError(f"{path}: {error}.") from None


def _place(error: Any) -> str:
    """Return the mistake in the YAML, with its line."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = " ".join(str(getattr(error, "problem", None) or error).split())
    return problem if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _explained(item: Any, given: Any) -> str:
    """Return one sentence about one error of pydantic."""
    names = [str(part) for part in item["loc"]]
    field, kind = ".".join(names), item["type"]
    if tuple(names[:2]) in UNIONS:
        part, name = names[:2]
        return f"{part}.{name}: expected {UNIONS[part, name]}; given {given[part][name]!r}."
    if kind == "extra_forbidden":
        legal = (Distribution if names[:2] == ["sweep", "random"] else _section(names[:-1])).model_fields
        return f"{field}: {unknown_name(names[-1], legal, 'key')}"
    if kind == "missing":
        return f"{field}: missing; give it."
    if kind in ("dict_type", "model_type"):
        such = " such as {name: ...}" if field in ("method", "solver") else ""
        return f"{field}: expected a mapping{such}, given {item['input']!r}."
    if kind == "value_error":
        error = str(item["ctx"]["error"])
        return f"{field}: {error}." if names[:2] == ["sweep", "random"] else error  # which names the field itself
    if kind in EXPECTED:
        return f"{field}: expected {EXPECTED[kind].format(**item.get('ctx', {}))}, given {item['input']!r}."
    return f"{field}: {item['msg']}; given {item['input']!r}."


def _section(names: list[str]) -> type[Section]:
    sections: dict[str, type[Section]] = {"problem": Problem, "simulate": Simulate, "sweep": Sweep, "run": Run}
    return sections[names[0]] if names else Configuration


# Anchors of YAML that repeat anchors make a text of 500 bytes a value that no memory holds.
MOST_VALUES = 100_000
BITS = 63  # of whole numbers: tables and arrays hold no more


def plain(value: Any, field: str = "", counted: Iterator[int] | None = None) -> Any:
    """Return a value as dicts, lists, numbers and words of Python; tuples, ranges and arrays become lists.

    Raises
    ------
    OptionError
        For what neither JSON nor a table could hold, with the name of the field.
    """
    counted = count() if counted is None else counted
    if next(counted) > MOST_VALUES:
        raise OptionError(f"expected at most {MOST_VALUES} values; anchors and aliases are more when written out.")
    if isinstance(value, Mapping):
        inside = f"{field}." if field else ""
        return {plain(key): plain(item, f"{inside}{key}", counted) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, ca.DM):
        value = float(value) if value.is_scalar() else value.full().squeeze().tolist()
    if isinstance(value, list | tuple | range):
        return [plain(item, field, counted) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionError(f"{field}: expected a finite number, given {value!r}.")
    if isinstance(value, int) and value.bit_length() > BITS:
        raise OptionError(f"{field}: expected a number of at most {BITS} bits, given one of {value.bit_length()}.")
    # Half characters, e.g. of names of files that are no UTF-8: neither JSON in UTF-8 nor YAML holds them.
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise OptionError(f"{field}: expected words that UTF-8 can hold, given {value!a}.")
    return value
