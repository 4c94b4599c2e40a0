"""The runs of a configuration: all combinations of the swept values, each with a key of its own.

A run is resolved: all defaults of the user's function, the method and the solver are filled in before it is hashed, so
that writing a default out does not change the key, and a new default of the library does. Axes are products of the
grid, the zipped lists (one axis), random samples and repeats; the last one varies fastest. Invariant: equal keys are
equal runs; two equal runs in one sweep are an error.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.options import Options
from nosnoc_py.solution.trajectory import jsonable
from nosnoc_py.sweep.choices import CHOICES, described, fields_of, options_of
from nosnoc_py.sweep.config import Configuration, Problem, Simulate, configuration, load, plain
from nosnoc_py.sweep.references import ARGUMENTS, function, on_path, parameters_of

# Hexadecimal digits of a key: 64 bits, so a collision among a million runs has a probability below 1e-7.
KEY_DIGITS = 16
SWEPT = ("problem", "method", "solver", "simulate", "certify")  # the parts that a run consists of
REPEAT, SAMPLE = "repeat", "sample"
SEEDS = ("solver.seed", "problem.arguments.seed")


@dataclass(frozen=True, eq=False, kw_only=True)
class SweepRun:
    """One run.

    Parameters
    ----------
    key : str
        Hash of `resolved`, 16 hexadecimal digits. It does not know the source code of the functions.
    resolved : dict
        The configuration of this run with all defaults filled in; plain values.
    axes : dict
        Swept values by dotted path, in the order of the configuration.
    drawn : dict
        Random values by dotted path.
    """

    key: str
    resolved: dict[str, Any]
    axes: dict[str, Any]
    drawn: dict[str, float] = field(default_factory=dict)


def runs(given: Configuration | Mapping[str, Any] | str | Path) -> tuple[SweepRun, ...]:
    """Return all runs of a configuration: the product of grid, zip, random samples and repeats; the last one fastest.

    Parameters
    ----------
    given : Configuration, mapping, or path of a YAML file

    Raises
    ------
    OptionError
        If an axis is empty or its path leads nowhere, zipped axes differ in length, two runs are equal, a function
        cannot be imported or does not take an argument, or a value does not fit.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from nosnoc_py.sweep import runs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (pathlib.Path(folder) / "decay_model.py").write_text("def build(rate): ...")
    ...     _ = (pathlib.Path(folder) / "decay.yaml").write_text(
    ...         "problem: {build: 'decay_model:build'}\\n"
    ...         "simulate: {x0: [1.0], duration: 1.0}\\n"
    ...         "sweep: {grid: {problem.arguments.rate: [1, 2]}}"
    ...     )
    ...     [run.axes for run in runs(f"{folder}/decay.yaml")]
    [{'problem.arguments.rate': 1}, {'problem.arguments.rate': 2}]
    """
    whole = load(given) if isinstance(given, str | Path) else configuration(given)
    try:
        return _runs(whole)
    except OptionError as error:
        raise OptionError(whole.where(error)) from error.__cause__


def count(given: Configuration) -> int:
    """Return the number of runs that `runs` would make, without making them."""
    sweep = given.sweep
    zipped = [min(map(len, sweep.zip.values()))] if sweep.zip else []
    return math.prod([*map(len, sweep.grid.values()), *zipped, sweep.samples or 1, sweep.repeat or 1])


def _runs(given: Configuration) -> tuple[SweepRun, ...]:
    base = given.model_dump(exclude={"sweep", "run"}, exclude_unset=True)
    every_run = []
    with on_path(given.folder):
        for axes in _combinations(given, base):
            every_run.append(_run(given, base, axes))
    first: dict[str, SweepRun] = {}
    for run in every_run:
        other = first.setdefault(run.key, run)
        if other is not run:
            raise OptionError(
                f"sweep: two runs are equal, {_axes_text(other.axes)} and {_axes_text(run.axes)}; leave one out."
            )
    return tuple(every_run)


def _run(given: Configuration, base: Mapping[str, Any], axes: Mapping[str, Any]) -> SweepRun:
    # Runs share no nested values: `_put` changes them in place.
    content = copy.deepcopy(dict(base))
    for path, value in axes.items():
        if path == SAMPLE:
            continue
        # One repeat is one seed, in the solver, in the problem, or in both.
        for target in _seeds(given, content) if path == REPEAT else (path,):
            _put(content, target, given.sweep.seed + value if path == REPEAT else value)
    try:
        resolved = resolve(configuration(content), given.folder)
    except OptionError as error:
        raise OptionError(f"{error} (run {_axes_text(axes)})" if axes else str(error)) from None
    drawn = {path: value for path, value in axes.items() if path in given.sweep.random}
    axes = {path: value for path, value in axes.items() if path not in drawn}
    digest = hashlib.sha256(canonical(resolved).encode()).hexdigest()
    return SweepRun(key=digest[:KEY_DIGITS], resolved=resolved, axes=axes, drawn=drawn)


def resolve(given: Configuration, folder: Path | None) -> dict[str, Any]:
    """Return one run with all defaults filled in: arguments of the functions, options of the method and of the solver.

    A method or a solver that is not given stays None: which one it is depends on the problem.
    """
    problem = given.problem
    taken = parameters_of(function(problem.build, folder))
    unknown = [name for name in problem.arguments if not taken.among({name: None})]
    if unknown:
        raise OptionError(f"problem.arguments.{unknown[0]}: {unknown_name(unknown[0], taken.names, 'argument')}")
    arguments = {**{key: value for key, value in taken.defaults.items() if _is_plain(value)}, **problem.arguments}
    missing = [name for name in taken.required if name not in arguments]
    if missing:
        raise OptionError(f"problem.arguments: {problem.build} needs {', '.join(missing)}; give a value.")
    for reference in (problem.guess, problem.measure):
        if isinstance(reference, str):
            _check_measure(reference, folder, arguments, whole=reference is problem.measure)
    whole = {
        "problem": {**problem.model_dump(), "arguments": arguments},
        "method": None if given.method is None else described("method", given.method),
        "solver": None if given.solver is None else described("solver", given.solver),
        "simulate": None if given.simulate is None else given.simulate.model_dump(),
        "certify": given.certify,
    }
    try:
        copied: dict[str, Any] = json.loads(json.dumps(jsonable(whole)))
    except TypeError as error:
        raise OptionError(f"problem.arguments: expected numbers, words, lists and mappings; {error}.") from None
    return copied


def _check_measure(reference: str, folder: Path | None, arguments: Mapping[str, Any], *, whole: bool) -> None:
    """Raise `OptionError` if a measure needs arguments that no run has."""
    taken = parameters_of(function(reference, folder))
    if not whole:
        return
    missing = [name for name in taken.required[2:] if name not in {*arguments, ARGUMENTS}]
    if missing or len(taken.names) < 2:
        raise OptionError(
            f"problem.measure: {reference} has to take (problem, result), and if need be arguments of the problem by "
            f"their names, or all of them as `{ARGUMENTS}`; given {reference}({', '.join(taken.names)})."
        )


def canonical(value: Any) -> str:
    """JSON that is the same for equal values: sorted keys, and 2.0 is 2."""
    return json.dumps(_whole(value), sort_keys=True, separators=(",", ":"))


def _whole(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(plain(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _combinations(given: Configuration, base: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    sweep = given.sweep
    if (sweep.samples is None) == bool(sweep.random):
        advice = "give samples, how often they are drawn" if sweep.random else "give random, what is drawn"
        raise OptionError(f"sweep: samples and random belong together; {advice}.")
    parts: dict[str, Mapping[str, Any]] = {"grid": sweep.grid, "zip": sweep.zip, "random": sweep.random}
    for part, axes in parts.items():
        for path, values in axes.items():
            if isinstance(values, list) and not values:
                raise OptionError(f"sweep.{part}.{path}: an empty list, so there is nothing to run; give values.")
            _check_path(f"sweep.{part}", path, given, base)
    for (one, axes), (other, others) in itertools.combinations(parts.items(), 2):
        if both := [path for path in axes if path in others]:
            raise OptionError(f"sweep: {both[0]!r} is in {one} and in {other}; leave one out.")
    _check_nested([path for axes in parts.values() for path in axes])
    lengths = {path: len(values) for path, values in sweep.zip.items()}
    if len(set(lengths.values())) > 1:
        advice = ", ".join(f"{path} has {length}" for path, length in lengths.items())
        raise OptionError(f"sweep.zip: expected lists of equal length, given: {advice}.")
    factors: list[list[dict[str, Any]]] = [[{path: value} for value in values] for path, values in sweep.grid.items()]
    if sweep.zip:
        factors.append([dict(zip(sweep.zip, row, strict=True)) for row in zip(*sweep.zip.values(), strict=True)])
    if sweep.samples is not None:
        drawn = {
            path: distribution.drawn(path, sweep.samples, sweep.seed) for path, distribution in sweep.random.items()
        }
        rows = ({path: values[k] for path, values in drawn.items()} for k in range(sweep.samples))
        factors.append([{SAMPLE: k, **row} for k, row in enumerate(rows)])
    if sweep.repeat is not None:
        factors.append([{REPEAT: k} for k in range(sweep.repeat)])
    for row in itertools.product(*factors):
        yield {path: value for part in row for path, value in part.items()}


def _check_nested(paths: list[str]) -> None:
    """Refuse to sweep a setting beside its own parts: the whole would replace them."""
    for outer, inner in itertools.permutations(paths, 2):
        if inner.startswith(f"{outer}."):
            raise OptionError(f"sweep: {outer!r} contains {inner!r}; sweep one of them.")


def _check_path(where: str, path: str, given: Configuration, base: Mapping[str, Any]) -> None:
    """Refuse a path that leads nowhere, before values are put there."""
    names = path.split(".")
    for depth, name in enumerate(names):
        legal = _legal(names[:depth], given, base)
        if legal is not None and name not in legal:
            place = ".".join(names[:depth]) or "a run"
            reason = unknown_name(name, legal, f"part of {place}")
            raise OptionError(f"{where}: the path {path!r} leads nowhere: {reason}")


def _legal(names: list[str], given: Configuration, base: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names that can follow these; None for any name."""
    swept = [*given.sweep.grid, *given.sweep.zip, *given.sweep.random]
    if not names:
        return SWEPT
    head, rest = names[0], names[1:]
    if head == "problem":
        if rest == ["arguments"] and "problem.build" not in swept:
            return parameters_of(function(given.problem.build, given.folder)).legal
        return () if rest and rest != ["arguments"] else (None if rest else tuple(Problem.model_fields))
    if head == "simulate":
        return () if rest else tuple(Simulate.model_fields)
    if head == "certify":
        return ()
    if head in swept or f"{head}.name" in swept:
        return None  # depends on the run, which is checked
    return _options(head, rest, base)


def _options(what: str, rest: list[str], base: Mapping[str, Any]) -> tuple[str, ...] | None:
    chosen = base.get(what)
    if chosen is None:
        raise OptionError(f"sweep: {what} is varied, but there is none; give {what}: {{name: ...}} to start from.")
    known = options_of(what, chosen)
    for name in rest:
        inner = known[name]
        if not (isinstance(inner, type) and issubclass(inner, Options)):
            return None if inner not in (int, float, str, bool) else ()
        known = fields_of(inner)
    return (*known, *(() if rest else ("name",)))


def _seeds(given: Configuration, content: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the path of the option that takes the seed of a repeat."""
    solver = content.get("solver") or {}
    legal = parameters_of(function(content["problem"]["build"], given.folder)).legal
    takes_seed = [
        "seed" in (options_of("solver", solver) if solver.get("name") in CHOICES["solver"] else ()),
        "seed" in (legal or content["problem"].get("arguments", {})),
    ]
    if not any(takes_seed):
        raise OptionError(
            "sweep.repeat: nothing here has a seed, so the repeats would be equal; name a method or solver with "
            "one (Search, Auto), let the function of problem.build take an argument seed, or leave repeat out."
        )
    return tuple(path for path, there in zip(SEEDS, takes_seed, strict=True) if there)


def _put(content: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        inner = content.get(name)
        content[name] = dict(inner) if isinstance(inner, Mapping) else {}
        content = content[name]
    content[last] = value


def _axes_text(axes: Mapping[str, Any]) -> str:
    return ", ".join(f"{path}={value}" for path, value in axes.items()) or "without axes"
