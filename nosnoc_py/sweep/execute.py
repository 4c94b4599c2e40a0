"""One run, in this process: build the problem, solve or simulate it, and measure.

The problem is a function of the user that returns an OCP (which is solved) or a system (which is simulated). A row has
the same columns in both cases, so that tables of mixed sweeps fit. Invariant: an error of the user's function is a
`RaisedError` with the field of the configuration that names it; everything else is an error of the parts.
"""

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
# Columns of every run; then names that measures may not have. Paths of axes have dots, and cannot clash.
COLUMNS = (
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
    """Do one run in this process.

    Parameters
    ----------
    resolved : mapping
        Resolved configuration of a `grid.SweepRun`.
    folder : path, optional
        Folder in which functions are looked for first.
    trajectory : bool
        True to return the content of a netCDF file, too.
    callback, time_limit : optional
        Of `ns.solve` and `ns.simulate`.

    Returns
    -------
    Result
        The row of a solve: status, success, objective, complementarity, complementarity_min, infeasibility,
        iterations, wall_seconds, stationarity, impacts (their number), message; "certificate" (the verdict) if
        requested; then the measures. Columns that a simulation does not have are None.

    Raises
    ------
    OptionError
        If the parts do not fit together; if a function of the user raises, a `RaisedError`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from nosnoc_py.sweep.execute import execute
    >>> from nosnoc_py.sweep.grid import runs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (pathlib.Path(folder) / "decay_of_x.py").write_text(
    ...         "import casadi as ca, nosnoc_py as ns\\n"
    ...         "def build(rate=1.0):\\n"
    ...         "    x = ca.SX.sym('x')\\n"
    ...         "    return ns.ODE(x=x, flow=-rate * x)\\n"
    ...     )
    ...     path = pathlib.Path(folder) / "decay.yaml"
    ...     _ = path.write_text("problem: {build: 'decay_of_x:build'}\\nsimulate: {x0: [1.0], duration: 1.0}")
    ...     result = execute(runs(path)[0].resolved, folder=folder)
    >>> result.row["status"], result.solution.duration
    ('solved', 1.0)
    """
    chosen = {what: None if resolved[what] is None else make(what, resolved[what]) for what in ("method", "solver")}
    given = resolved["problem"]
    # Functions of the user may import modules beside them, also while they run.
    with on_path(folder, Path.cwd()):
        problem = called("problem.build", given["build"], folder, **given["arguments"])
        run: Trajectory
        if isinstance(problem, OCP):
            run, row = _solved(problem, resolved, chosen, folder, callback, time_limit)
        else:
            run, row = _simulated(problem, resolved, chosen, callback, time_limit)
        measured = _measured(problem, run, given, folder, row)
    # Bytes, not a path: the process that stores them may be on another machine.
    content = _content(run) if trajectory else None
    return Result(row={**row, **measured}, trajectory=content, solution=run, problem=problem)


def produce(resolved: Mapping[str, Any], trajectory: bool, folder: str | None) -> Answer:
    """Do one run as a task: return its row, and its trajectory as a file."""
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
        method = fitting(ocp.system, None, FINITE_ELEMENTS, FiniteElementMethod)  # the default of `solve`, explicitly
    limits: dict[str, Any] = {"callback": callback, "time_limit": time_limit, "certify": resolved["certify"]}
    solution = solve(ocp, method, chosen["solver"], guess=guess, **limits)
    row = _row(solution, stationarity=solution.stationarity.value)
    if resolved["certify"]:
        certificate = solution.certificate or certify(ocp, solution)  # a failed solution is certified, too
        row["certificate"] = str(certificate.verdict)
    return solution, row


def _simulated(
    system: Any, resolved: Mapping[str, Any], chosen: Mapping[str, Any], callback: Any, time_limit: Any
) -> tuple[Trajectory, dict[str, Any]]:
    if resolved["simulate"] is None:
        raise OptionError(
            f"problem.build: expected an OCP, given {type(system).__name__}; to simulate a system, add "
            "simulate: {x0: [...], duration: ...}."
        )
    for part, needed in (("certify", resolved["certify"]), ("problem.guess", resolved["problem"]["guess"])):
        if needed:
            raise OptionError(f"{part}: is for an OCP; leave it out to simulate a system.")
    meter = _Meter(callback)
    # A trajectory does not know its effort: the callback and a clock measure it.
    started = time.perf_counter()
    run = simulate(system, **resolved["simulate"], **chosen, callback=meter, time_limit=time_limit)
    seconds = time.perf_counter() - started
    return run, _row(run, **meter.worst, iterations=meter.iterations, wall_seconds=seconds)


def _row(run: Trajectory, **known: Any) -> dict[str, Any]:
    """Return the columns of every run; None for those that a simulation lacks."""
    known |= {"status": run.status.value, "impacts": len(run.impacts)}
    return {name: known.get(name, getattr(run, name, None)) for name in COLUMNS}


def _measured(
    problem: Any, run: Trajectory, given: Mapping[str, Any], folder: Any, row: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the columns of the user's measure."""
    if given["measure"] is None:
        return {}
    arguments = {ARGUMENTS: given["arguments"], **given["arguments"]}
    taken = parameters_of(function(given["measure"], folder)).among(arguments)
    measures = called("problem.measure", given["measure"], folder, problem, run, **taken)
    if not isinstance(measures, Mapping):
        raise OptionError(f"problem.measure: expected a mapping of numbers, {given['measure']} returned {measures!r}.")
    for name in measures:
        if not isinstance(name, str) or not name or "." in name:
            raise OptionError(f"problem.measure: expected names of columns, words without dots; given {name!r}.")
        if name in row or name in RESERVED:
            raise OptionError(f"problem.measure: {name!r} is a column already; return it under another name.")
    return {name: _cell(name, value) for name, value in measures.items()}


def _cell(name: str, value: Any) -> Any:
    """Return a measure as a number or a word of Python, also from NumPy or CasADi."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if (isinstance(value, ca.DM) and value.is_scalar()) or (isinstance(value, Real) and not isinstance(value, int)):
        value = float(value)
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 63:  # no table has room for it
        return float(value) if value.bit_length() < 1024 else None
    if not isinstance(value, bool | int | float | str | None):
        raise OptionError(f"problem.measure: {name!r}: expected a number, given {value!r}.")
    return value


def _content(run: Trajectory) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return run.save(Path(folder) / "trajectory.nc").read_bytes()
