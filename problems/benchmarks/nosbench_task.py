"""One task of the benchmark: one solver on one problem, measured and checked."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.solve import MPCCResult
from nosnoc_py.sweep import tasks
from problems.benchmarks.nosbench_files import load
from tests.references import nosbench_judge

ROOT = Path(__file__).resolve().parents[2]
GRACE = 240.0  # seconds beyond the time limit, for imports, reading and judging
BASE_IPOPT: dict[str, str | int | float] = {
    "tol": 1e-12,
    "dual_inf_tol": 1e-12,
    "compl_inf_tol": 1e-12,
    "constr_viol_tol": 1e-12,
    "mu_target": 0.0,
    "acceptable_tol": 1e-6,
    "acceptable_iter": 15,
}
# Common practice elsewhere: every product relaxed by itself, ten NLPs at full accuracy, primal warm start.
BASE: dict[str, Any] = {
    "relaxation": "scholtes",
    "steering": "direct",
    "sigma_0": 1.0,
    "kappa": 0.1,
    "sigma_min": 1e-9,
    "complementarity_tolerance": 1e-9,
    "infeasibility_tolerance": 1e-6,
    "finish": "none",
    "max_iterations": 500,
    "ipopt": BASE_IPOPT,
}
# name: (option class of nosnoc_py, its options)
SOLVERS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "base": ("Homotopy", BASE),
    "auto": ("Auto", {}),
    "homotopy": ("Homotopy", {}),
    "elastic": ("Homotopy", {"steering": "l_inf"}),
    "active_set": ("ActiveSet", {}),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Result of one solver on one problem; fields are None if the run did not reach them.

    Attributes
    ----------
    problem, solver, variant : str
        `variant` is empty for the problem as given, else it names the random draw.
    variables, constraints, pairs : int
    status : str
        The solver's own status, or "error", "crashed", "killed".
    solved : bool
        True by the benchmark's own residuals, independent of the solver's status.
    claimed, false_success : bool
        The solver says success; it says so and the residuals disagree.
    objective, penalty, complementarity, complementarity_min, infeasibility : float
        Recomputed by the benchmark from the functions in the file.
    stationarity, b_stationary
        Kind of stationarity that the solver certifies, and True for B.
    lpec_value, certified, gradient
        Slope along the best direction of the benchmark's own LPEC, whether it is zero up to the tolerance, and
        |grad f|_inf: where it is zero, every feasible point is stationary.
    iterations, nlps : int
        Iterations of IPOPT, and lines of the solver's log.
    wall_seconds : float
        Building and solving; reading the file and judging are apart.
    time_limit, fingerprint
        Values that must agree to reuse a row of an earlier run: seconds, and a hash of the solver's options,
        the version of the library, the file, and the seed.
    message : str
        Text of the error.
    """

    problem: str
    solver: str
    variant: str = ""
    variables: int | None = None
    constraints: int | None = None
    pairs: int | None = None
    status: str = "error"
    solved: bool = False
    claimed: bool = False
    false_success: bool = False
    objective: float | None = None
    penalty: float | None = None
    complementarity: float | None = None
    complementarity_min: float | None = None
    infeasibility: float | None = None
    stationarity: str = ""
    b_stationary: bool | None = None
    lpec_value: float | None = None
    certified: bool = False
    gradient: float | None = None
    iterations: int | None = None
    nlps: int | None = None
    wall_seconds: float | None = None
    time_limit: float
    fingerprint: str
    message: str = ""

    @property
    def minimised(self) -> float | None:
        """Objective with penalty, as `as_minimised`: by this number results are compared."""
        return None if self.objective is None or self.penalty is None else self.objective + self.penalty

    @property
    def failed(self) -> bool:
        """True if the solver did not return an answer."""
        return self.status in ("error", "crashed", "killed")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One solver on one problem; `draw` >= 0 takes a random start and random scalings of G and H."""

    path: str
    solver: str
    time_limit: float
    draw: int = -1
    seed: int = 0

    @property
    def work(self) -> tasks.Task:
        """Return a task for a process of its own; the key is a hash of all that determines the result."""
        row = self.row()
        known = [row.problem, row.solver, row.variant, repr(row.time_limit), row.fingerprint]
        name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{row.problem}-{row.solver}")
        return tasks.Task(
            key=f"{name}-{hashlib.sha256('|'.join(known).encode()).hexdigest()[:16]}",
            function=f"{__name__}:answer",
            arguments=vars(self),
            paths=(str(ROOT),),
            timeout=self.time_limit + GRACE,
        )

    def row(self) -> Row:
        """Return the row of this task before any work."""
        return Row(
            problem=Path(self.path).stem,
            solver=self.solver,
            variant="" if self.draw < 0 else f"seed {self.seed} draw {self.draw}",
            time_limit=self.time_limit,
            fingerprint=self._fingerprint(),
        )

    def _fingerprint(self) -> str:
        words = (make_solver(self.solver).model_dump_json(), ns.__version__)
        content = b""
        with suppress(OSError):  # loading it will raise the error
            content = Path(self.path).read_bytes()
        return hashlib.sha256("|".join(words).encode() + content).hexdigest()[:12]


def make_solver(name: str) -> Any:
    """Return the options of a solver by its name in the benchmark.

    Raises
    ------
    OptionError
        For an unknown name.
    """
    if name not in SOLVERS:
        raise OptionError(unknown_name(name, SOLVERS, "solver"))
    kind, options = SOLVERS[name]
    return getattr(ns, kind)(**options)


def as_minimised(mpcc: MPCC) -> MPCC:
    """Return the MPCC whose objective is what NOSBENCH minimises: the objective of its file with the penalty.

    A penalty of its own is removed by the active-set finish, which is right for step equilibration, but another problem
    than that of the file: on SMOCP_002 it lowers the objective from 5.66 to 5.60 and raises the penalty to 4.8. Without
    an objective every feasible point is a solution, and the penalty stays what selects among them.
    """
    if mpcc.objective.is_constant() or mpcc.penalty.is_constant():
        return mpcc
    kept = ("w", "p", "g", "G", "H", "lbw", "ubw", "lbg", "ubg", "w0", "p0")
    fields = {field: getattr(mpcc, field) for field in kept}
    return MPCC.of_pairs(**fields, objective=mpcc.objective + mpcc.penalty)


def solve(mpcc: MPCC, solver: Any, time_limit: float) -> MPCCResult:
    """Call the library."""
    return ns.solve_mpcc(mpcc, solver, time_limit=time_limit)


def answer(**arguments: Any) -> dict[str, Any]:
    """Do a task, after a tiny one that loads IPOPT; return the row by name."""
    warm_up(arguments["solver"])
    return execute(Task(**arguments)).to_dict()


def row_of(task: Task, answered: Mapping[str, Any]) -> Row:
    """Return the row of a task from the result of its process; one that was killed or crashed has a row, too."""
    if "problem" in answered:
        return Row(**{name: value for name, value in answered.items() if name not in ("key", "attempts")})
    status = {tasks.TIMEOUT: "killed", tasks.DIED: "crashed"}.get(answered["status"], "error")
    return replace(task.row(), status=status, message=str(answered.get("message", "")))


def execute(task: Task) -> Row:
    """Do a task; any exception becomes a row with its message."""
    row = task.row()
    try:
        for so_far in _stages(task, row):
            row = so_far
    except Exception as error:
        return replace(row, status="error", message=_describe(error))
    return row


def _stages(task: Task, row: Row) -> Iterator[Row]:
    """Yield the row after loading, solving and checking."""
    mpcc = as_minimised(load(task.path))
    row = replace(row, variables=mpcc.w.numel(), constraints=mpcc.g.numel(), pairs=mpcc.G.numel())
    scale_G, scale_H = np.ones(mpcc.G.numel()), np.ones(mpcc.H.numel())
    if task.draw >= 0:
        mpcc, scale_G, scale_H = nosbench_judge.vary(mpcc, row.problem, task.draw, task.seed)
    problem = nosbench_judge.read(Path(task.path), scale_G, scale_H)
    solver = make_solver(task.solver)
    yield row
    started = time.perf_counter()
    result = solve(mpcc, solver, task.time_limit)
    row = replace(row, wall_seconds=time.perf_counter() - started, **_said(result))
    yield row
    verdict = nosbench_judge.judge(problem, np.asarray(result.w, float))
    row = replace(row, **asdict(verdict), false_success=row.claimed and not verdict.solved)
    if verdict.solved:
        slope = nosbench_judge.lpec(problem, np.asarray(result.w, float))
        row = replace(row, lpec_value=slope.value, certified=slope.certified, gradient=slope.gradient)
    yield row


def _said(result: MPCCResult) -> dict[str, Any]:
    """Return the solver's own statements about its result."""
    certificate = result.certificate
    return {
        "status": str(result.status),
        "claimed": bool(result.success),
        "stationarity": result.stationarity.value,
        "b_stationary": None if certificate is None else certificate.b_stationary,
        "iterations": int(result.iterations),
        "nlps": len(result.log),
    }


def _describe(error: Exception) -> str:
    text = f"missing field {error}" if isinstance(error, KeyError) and type(error) is KeyError else str(error)
    return f"{type(error).__name__}: {text}"[:500]


def warm_up(solver: str) -> None:
    """Solve a tiny problem, so that imports and the loading of IPOPT are not measured."""
    w = ca.SX.sym("w", 2)
    tiny = MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=ca.sumsqr(w - 1), lbw=0.0, w0=0.5)
    with suppress(Exception):  # the task itself will report the error
        solve(tiny, make_solver(solver), 10.0)
