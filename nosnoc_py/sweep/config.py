"""A configuration: a problem, a method, a solver, what to vary, and how to run; read from a YAML file and checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator

from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.sweep.choices import make

Reference = Annotated[str, Field(pattern=r"^[^:\s]+:[^:\s]+$")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Numbers = list[float]
# What pydantic says about the members of these unions, one by one, is no help.
UNIONS = {
    ("problem", "guess"): 'a function as "module:function", or a constant control: a list of numbers',
    ("simulate", "u"): "a list of numbers, or of such lists: one for each interval of equal length",
}
REFERENCE = "a function as \"module:function\", e.g. 'problems.disc_manipulation:build'"


class Section(BaseModel):
    """A part of a configuration: frozen, and what it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Problem(Section):
    """What is solved or simulated.

    Parameters
    ----------
    build : str
        "module:function"; returns an OCP, or a system to simulate.
    arguments : mapping
        Of this function.
    guess : str or list of float, optional
        A function, called with those of the arguments that it takes; or a constant control.
    measure : str, optional
        A function (problem, result, and those of the arguments that it takes) -> mapping of numbers: more columns.
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
    """What is varied.

    Parameters
    ----------
    grid : mapping
        Lists of values by dotted path into the configuration: all combinations.
    zip : mapping
        Lists of equal length that run together: one more axis.
    repeat : int, optional
        Runs of every combination; run k has the seed `seed` + k in `solver.seed` or `problem.arguments.seed`.
    seed : int
    """

    grid: dict[str, list[Any]] = Field(default_factory=dict)
    zip: dict[str, list[Any]] = Field(default_factory=dict)
    repeat: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)


class Run(Section):
    """How it is run.

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
    """A whole configuration; see the parts."""

    problem: Problem
    method: dict[str, Any] | None = None
    solver: dict[str, Any] | None = None
    simulate: Simulate | None = None
    certify: bool = False
    sweep: Sweep = Field(default_factory=Sweep)
    run: Run = Field(default_factory=Run)

    _path: Path | None = PrivateAttr(default=None)

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

    @property
    def folder(self) -> Path | None:
        """Where its modules are looked for first: the folder of the file."""
        return None if self._path is None else self._path.parent

    @property
    def output(self) -> Path:
        """Folder of the results."""
        name = "sweep" if self._path is None else self._path.stem
        return Path(self.run.output or Path("results") / name)

    def replace_run(self, **changes: Any) -> Configuration:
        """The same with other settings of how it is run."""
        given = self.model_dump(exclude_unset=True)
        run = {**given.get("run", {}), **{key: value for key, value in changes.items() if value is not None}}
        return configuration({**given, "run": run}, self._path)


def load(path: str | Path) -> Configuration:
    """Read a configuration.

    Raises
    ------
    OptionError
        If there is no such file, it is no YAML, or something in it is unknown, missing or of the wrong kind: file,
        field, given and legal values.
    """
    path = Path(path)
    return configuration(_parsed(path), path)


def configuration(given: Any, path: str | Path | None = None) -> Configuration:
    """Check plain dicts and lists; `path` is the file they came from, for messages and for its folder."""
    if isinstance(given, Configuration):
        return given
    where = f"{path}: " if path is not None else ""
    if not isinstance(given, Mapping):
        raise OptionError(f"{where}expected a mapping with the keys {', '.join(Configuration.model_fields)}.")
    try:
        checked = Configuration.model_validate(_lists(given))
    except ValidationError as error:
        lines = list(dict.fromkeys(_explained(item, given) for item in error.errors()))
        raise OptionError(where + f"\n{where}".join(lines)) from None
    checked._path = None if path is None else Path(path).resolve()
    return checked


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


def _place(error: Any) -> str:
    """What is wrong with the YAML, and in which line."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = " ".join(str(getattr(error, "problem", None) or error).split())
    return problem if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _lists(value: Any) -> Any:
    """Plain dicts and lists: tuples are fine where lists are."""
    if isinstance(value, Mapping):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _explained(item: Any, given: Any) -> str:
    """One sentence about one error."""
    names = [str(part) for part in item["loc"]]
    field, kind = ".".join(names), item["type"]
    if tuple(names[:2]) in UNIONS:
        part, name = names[:2]
        return f"{part}.{name}: expected {UNIONS[part, name]}; given {given[part][name]!r}."
    if kind == "extra_forbidden":
        legal = _section(names[:-1]).model_fields
        return f"{field}: {unknown_name(names[-1], legal, 'key')}"
    if kind == "missing":
        return f"{field}: missing; give it."
    if kind in ("dict_type", "model_type"):
        such = " such as {name: ...}" if field in ("method", "solver") else ""
        return f"{field}: expected a mapping{such}, given {item['input']!r}."
    if kind == "value_error":
        return str(item["ctx"]["error"])  # names the field itself
    if kind == "string_pattern_mismatch":
        return f"{field}: expected {REFERENCE}, given {item['input']!r}."
    return f"{field}: {item['msg']}; given {item['input']!r}."


def _section(names: list[str]) -> type[Section]:
    sections: dict[str, type[Section]] = {"problem": Problem, "simulate": Simulate, "sweep": Sweep, "run": Run}
    return sections[names[0]] if names else Configuration
