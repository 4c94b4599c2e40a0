"""One run, in this process: build, solve or simulate, measure."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.api import simulate, solve
from nosnoc_py.discretization.options import FINITE_ELEMENTS, FiniteElementMethod
from nosnoc_py.errors import OptionError
from nosnoc_py.ocp import OCP
from nosnoc_py.options import fitting
from nosnoc_py.simulation.certification.certify import certify
from nosnoc_py.solution import Solution, Trajectory
from nosnoc_py.sweep.choices import make
from nosnoc_py.sweep.references import ARGUMENTS, called, function, on_path, parameters_of

Answer = tuple[dict[str, Any], dict[str, bytes]]
# Columns of every table: what is told of every run, and others besides the paths, which have dots.
TOLD = (
    *("status", "success", "objective", "complementarity", "complementarity_min", "infeasibility", "iterations"),
    *("wall_seconds", "stationarity", "impacts", "message"),
)
RESERVED = ("key", "attempts", "repeat", "certificate", "problem", "method", "solver", "simulate", "certify")


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """Result of a run.

    Parameters
    ----------
    row : dict
        Numbers and words by name; see `execute`.
    trajectory : bytes, optional
        The content of a netCDF file that `ns.load` reads.
    solution : Trajectory
        The same as an object; a `Solution` of an OCP.
    problem : OCP or system
    """

    row: dict[str, Any]
    trajectory: bytes | None = None
    solution: Trajectory
    problem: Any


@dataclass
class _Meter:
    """A callback that notes the effort of a simulation, and its worst residuals."""

    callback: Callable[[Any], Any] | None
    iterations: int = 0
    worst: dict[str, float] = field(default_factory=lambda: {"complementarity": 0.0, "infeasibility": 0.0})

    def __call__(self, state: Any) -> Any:
        self.iterations += getattr(state, "iterations", 0)
        for name, value in self.worst.items():
            self.worst[name] = max(value, getattr(state, name, 0.0))
        return None if self.callback is None else self.callback(state)


def execute(
    resolved: Mapping[str, Any],
    *,
    folder: str | Path | None = None,
    trajectory: bool = True,
    callback: Callable[[Any], Any] | None = None,
    time_limit: float | None = None,
) -> Result:
    """Do one run.

    Parameters
    ----------
    resolved : mapping
        Of a `grid.SweepRun`.
    folder : path, optional
        Where functions are looked for first.
    trajectory : bool
        Whether to give the content of a file, too.
    callback, time_limit : optional
        Of `ns.solve` and `ns.simulate`.

    Returns
    -------
    Result
        The row of a solve: status, success, objective, complementarity, complementarity_min, infeasibility,
        iterations, wall_seconds, stationarity, impacts (their number), message; "certificate" (the verdict) where it
        was asked for; then the measures. A simulation has None where it has nothing to say.

    Raises
    ------
    OptionError
        If the parts do not fit together; if a function of the user raises, a `RaisedError`.
    """
    chosen = {what: None if resolved[what] is None else make(what, resolved[what]) for what in ("method", "solver")}
    given = resolved["problem"]
    with on_path(folder, Path.cwd()):
        problem = called("problem.build", given["build"], folder, **given["arguments"])
        run: Trajectory
        if isinstance(problem, OCP):
            run, row = _solved(problem, resolved, chosen, folder, callback, time_limit)
        else:
            run, row = _simulated(problem, resolved, chosen, callback, time_limit)
        measured = _measured(problem, run, given, folder, row)
    content = _content(run) if trajectory else None
    return Result(row={**row, **measured}, trajectory=content, solution=run, problem=problem)


def produce(resolved: Mapping[str, Any], trajectory: bool, folder: str | None) -> Answer:
    """One run as a task: its row, and its trajectory as a file."""
    result = execute(resolved, folder=folder, trajectory=trajectory)
    return result.row, {} if result.trajectory is None else {".nc": result.trajectory}


def _solved(
    ocp: OCP, resolved: Mapping[str, Any], chosen: Mapping[str, Any], folder: Any, callback: Any, time_limit: Any
) -> tuple[Solution, dict[str, Any]]:
    if resolved["simulate"] is not None:
        raise OptionError("simulate: problem.build returns an OCP, which is solved; leave simulate out.")
    guess = resolved["problem"]["guess"]
    if isinstance(guess, str):
        taken = parameters_of(function(guess, folder)).among(resolved["problem"]["arguments"])
        guess = called("problem.guess", guess, folder, **taken)
    method = chosen["method"]
    if method is None and any(isinstance(ocp.system, kind.takes) for kind in FINITE_ELEMENTS):
        method = fitting(ocp.system, None, FINITE_ELEMENTS, FiniteElementMethod)  # whatever `solve` itself would take
    limits: dict[str, Any] = {"callback": callback, "time_limit": time_limit, "certify": resolved["certify"]}
    solution = solve(ocp, method, chosen["solver"], guess=guess, **limits)
    row = _told(solution, stationarity=solution.stationarity.value)
    if resolved["certify"]:
        found = solution.certificate or certify(ocp, solution)  # of what failed, too
        row["certificate"] = str(found.verdict)
    return solution, row


def _simulated(
    system: Any, resolved: Mapping[str, Any], chosen: Mapping[str, Any], callback: Any, time_limit: Any
) -> tuple[Trajectory, dict[str, Any]]:
    if resolved["simulate"] is None:
        raise OptionError(
            f"problem.build returns no OCP but {type(system).__name__}: to simulate a system, say how, "
            "simulate: {x0: [...], duration: ...}."
        )
    for part, needed in (("certify", resolved["certify"]), ("problem.guess", resolved["problem"]["guess"])):
        if needed:
            raise OptionError(f"{part}: is for an OCP; a system is simulated without.")
    meter = _Meter(callback)
    started = time.perf_counter()
    run = simulate(system, **resolved["simulate"], **chosen, callback=meter, time_limit=time_limit)
    seconds = time.perf_counter() - started
    return run, _told(run, **meter.worst, iterations=meter.iterations, wall_seconds=seconds)


def _told(run: Trajectory, **known: Any) -> dict[str, Any]:
    """Return the columns of every run; None for those that a simulation lacks."""
    known |= {"status": run.status.value, "impacts": len(run.impacts)}
    return {name: known.get(name, getattr(run, name, None)) for name in TOLD}


def _measured(
    problem: Any, run: Trajectory, given: Mapping[str, Any], folder: Any, row: Mapping[str, Any]
) -> dict[str, Any]:
    """Columns of the user's own."""
    if given["measure"] is None:
        return {}
    arguments = {ARGUMENTS: given["arguments"], **given["arguments"]}
    taken = parameters_of(function(given["measure"], folder)).among(arguments)
    found = called("problem.measure", given["measure"], folder, problem, run, **taken)
    if not isinstance(found, Mapping):
        raise OptionError(f"problem.measure: expected a mapping of numbers, {given['measure']} returned {found!r}.")
    for name in found:
        if not isinstance(name, str) or not name or "." in name:
            raise OptionError(f"problem.measure: expected names of columns, words without dots; given {name!r}.")
        if name in row or name in RESERVED:
            raise OptionError(f"problem.measure: {name!r} is a column already; return it under another name.")
    return {name: _cell(name, value) for name, value in found.items()}


def _cell(name: str, value: Any) -> Any:
    """A measure as a number or a word of Python: also from NumPy, or from CasADi."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if (isinstance(value, ca.DM) and value.is_scalar()) or (isinstance(value, Real) and not isinstance(value, int)):
        value = float(value)
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 63:  # no table has room for it
        return float(value) if value.bit_length() < 1024 else None
    if not isinstance(value, bool | int | float | str | None):
        raise OptionError(f"problem.measure: {name!r} is no number; given {value!r}.")
    return value


def _content(run: Trajectory) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return run.save(Path(folder) / "trajectory.nc").read_bytes()
