"""MPCC solvers on the problems of NOSBENCH: `python -m problems.benchmarks.nosbench DIR`.

NOSBENCH (Nurkanovic, Pozharskiy, Diehl 2024) has one JSON file per MPCC, with numbers and serialised CasADi functions:

    minimise    augmented_objective_fun(w, p) = objective + penalty
    subject to  lbw <= w <= ubw,  lbg <= g_fun(w, p) <= ubg,  0 <= G_fun(w, p), H_fun(w, p) >= 0,  G_i H_i = 0.

Every problem and solver is one row; failures are rows too. The benchmark itself decides if a point is a
solution, from the functions in the problem's file and its own LPEC (`tests.references.nosbench_judge`), not by the
solver's status. Every row comes from a process of its own, so that a damaged file, on which CasADi may crash, is a row.
With `--set output=DIR` rows are stored in a folder, and a second run continues where the first one stopped.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.progress import Progress
from nosnoc_py.sweep.local import LocalExecutor
from nosnoc_py.sweep.perform import perform
from nosnoc_py.sweep.store import Store
from nosnoc_py.sweep.tasks import FAILED, Task
from problems.benchmarks.orders import check_names, geometric_mean
from problems.figures import DOTS, Curve, Panel, chart
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references import nosbench_judge

ROOT = Path(__file__).resolve().parents[2]
GRACE = 240.0  # seconds beyond the time limit, for imports, reading and judging
SAME_OBJECTIVE = 1e-4  # relative difference that a relaxation of 1e-9 leaves
TIGHT = ("tol", "dual_inf_tol", "compl_inf_tol", "constr_viol_tol")
# Common practice elsewhere: every product relaxed by itself, ten NLPs at full accuracy, primal warm start.
BASE = ns.Homotopy(
    relaxation="scholtes",
    steering="direct",
    sigma_0=1.0,
    kappa=0.1,
    sigma_min=1e-9,
    complementarity_tolerance=1e-9,
    infeasibility_tolerance=1e-6,
    finish="none",
    max_iterations=500,
    ipopt={**dict.fromkeys(TIGHT, 1e-12), "mu_target": 0.0, "acceptable_tol": 1e-6, "acceptable_iter": 15},
)
SOLVERS: Mapping[str, Any] = {
    "base": BASE,
    "auto": ns.Auto(),
    "homotopy": ns.Homotopy(),
    "elastic": ns.Homotopy(steering="l_inf"),
    "active_set": ns.ActiveSet(),
}
# Of a row, in the order of the table; what a run did not reach is missing.
SHOWN = (
    *("problem", "solver", "variables", "pairs", "status", "solved", "objective", "minimised", "complementarity"),
    *("infeasibility", "stationarity", "certified", "lpec_value", "iterations", "wall_seconds", "message"),
)
Row = Mapping[str, Any]


def load(path: str | Path) -> MPCC:
    """Return the MPCC of a file, with the function that NOSBENCH minimises as its objective.

    The penalty is part of it, because an active-set finish would remove one of its own, which is another problem than
    that of the file. Without an objective every feasible point is a solution, and the penalty selects among them.

    Raises
    ------
    ModelError
        For a file that is no NOSBENCH problem, and for all that `MPCC.of_pairs` refuses.
    """
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
        w, p = (ca.vec(ca.SX.deserialize(fields[name])) for name in "wp")
        names = ("objective_fun", "augmented_objective_fun", "g_fun", "G_fun", "H_fun")
        functions = (ca.Function.deserialize(fields[name]) for name in names)
        objective, augmented, g, G, H = (ca.vec(ca.densify(function(w, p))) for function in functions)
        numbers = {name: np.ravel(fields[name]).astype(float) for name in ("lbw", "ubw", "w0", "lbg", "ubg", "p0")}
    except KeyError as error:
        raise ModelError(f"{path}: missing field {error}.") from error
    except (OSError, ValueError, TypeError, RuntimeError) as error:  # CasADi raises several for damaged texts
        raise ModelError(f"{path}: not a NOSBENCH problem: {error}.") from error
    constant = objective.is_constant()
    parts = {"objective": objective if constant else augmented, "penalty": augmented - objective if constant else 0.0}
    return MPCC.of_pairs(w=w, p=p, g=g, G=G, H=H, **parts, **numbers)


def solve(mpcc: MPCC, solver: Any, time_limit: float) -> Any:
    """Call the library."""
    return ns.solve_mpcc(mpcc, solver, time_limit=time_limit)


def answer(path: str, solver: str, time_limit: float) -> dict[str, Any]:
    """Solve one problem by one solver, and judge the point; return the row."""
    x = ca.SX.sym("x", 2)
    tiny = MPCC.of_pairs(w=x, G=x[0], H=x[1], objective=ca.sumsqr(x - 1), lbw=0.0, w0=0.5)
    with suppress(Exception):  # loads IPOPT, which is not measured; the problem itself will report an error
        solve(tiny, SOLVERS[solver], 10.0)
    mpcc = load(path)
    started = time.perf_counter()
    result = solve(mpcc, SOLVERS[solver], time_limit)
    seconds = time.perf_counter() - started
    problem, w = nosbench_judge.read(Path(path)), np.asarray(result.w, float)
    verdict = nosbench_judge.judge(problem, w)
    slope = nosbench_judge.lpec(problem, w) if verdict.solved else None
    return {
        "variables": mpcc.w.numel(),
        "constraints": mpcc.g.numel(),
        "pairs": mpcc.G.numel(),
        "status": str(result.status),
        "claimed": bool(result.success),
        **asdict(verdict),
        "minimised": verdict.objective + verdict.penalty,
        "false_success": bool(result.success) and not verdict.solved,
        "stationarity": result.stationarity.value,
        "certified": slope is not None and slope.certified,
        "lpec_value": None if slope is None else slope.value,
        "iterations": int(result.iterations),
        "wall_seconds": seconds,
    }


def tasks_of(files: Iterable[Path], solvers: Sequence[str], time_limit: float) -> dict[str, tuple[Task, Row]]:
    """Return the tasks by their keys, and the problem and solver of each; a key has all that determines a row."""
    tasks: dict[str, tuple[Task, Row]] = {}
    for path in files:
        for solver in solvers:
            known = (SOLVERS[solver].model_dump_json(), ns.__version__, repr(time_limit))
            digest = hashlib.sha256("|".join(known).encode() + path.read_bytes()).hexdigest()[:16]
            task = Task(
                key=f"{path.stem}-{solver}-{digest}",
                function="problems.benchmarks.nosbench:answer",
                arguments={"path": str(path.resolve()), "solver": solver, "time_limit": time_limit},
                paths=(str(ROOT),),
                timeout=time_limit + GRACE,
            )
            tasks[task.key] = (task, {"problem": path.stem, "solver": solver})
    return tasks


def experiment(
    folder: str = "",
    solvers: tuple[str, ...] = ("base", "auto"),
    time_limit: float = 300.0,
    jobs: int = 1,
    output: str = "",
    *,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Return all rows, problem by problem from small files to large ones.

    Parameters
    ----------
    folder : str
        Folder of the problems (*.json).
    solvers : tuple of str
        Names in `SOLVERS`.
    time_limit : float
        Seconds per problem and solver.
    jobs : int
        Problems at a time.
    output : str
        Folder of the rows; existing ones are not repeated.

    Raises
    ------
    OptionError
        For a folder without problems, an unknown solver, and numbers that are not positive.
    """
    check_names(solver=(solvers, SOLVERS))
    if jobs < 1 or not 0 < time_limit < float("inf"):
        raise OptionError(f"jobs, time_limit: expected positive numbers, given {jobs} and {time_limit:g}.")
    files = sorted(Path(folder).glob("*.json"), key=lambda path: (path.stat().st_size, path.name)) if folder else []
    if not files:
        raise OptionError(f"{folder or 'DIR'}: expected a folder with NOSBENCH problems (*.json), there are none.")
    tasks = tasks_of(files, solvers, time_limit)
    with TemporaryDirectory() as spare:
        work, executor = [task for task, _ in tasks.values()], LocalExecutor(jobs, tasks_each=1)
        rows = perform(work, Store(output or spare), executor, attempts=1, callback=progress)
    return [{**tasks[row["key"]][1], **row} for row in rows]


def solved_by(rows: Sequence[Row], solver: str) -> dict[str, Row]:
    """Return the rows of the problems that a solver solves, by problem."""
    return {row["problem"]: row for row in rows if row["solver"] == solver and row.get("solved")}


def ratios(rows: Sequence[Row], reference: str, solver: str) -> list[dict[str, Any]]:
    """Return the time of the reference over the time of the solver where both solve, smallest first.

    Results are compared by the function that is minimised, the objective with its penalty: a solver may lower the
    objective alone at the expense of the penalty.
    """
    first, second = solved_by(rows, reference), solved_by(rows, solver)
    both = [(first[name], second[name]) for name in first if name in second]
    compared = [
        {
            "problem": a["problem"],
            "ratio": a["wall_seconds"] / b["wall_seconds"],
            "result": _compared(a["minimised"], b["minimised"]),
            **{f"{reference}_{name}": a[name] for name in ("minimised", "objective")},
            **{f"{solver}_{name}": b[name] for name in ("minimised", "objective")},
        }
        for a, b in both
    ]
    return sorted(compared, key=lambda row: (row["ratio"], row["problem"]))


def _compared(reference: float, value: float) -> str:
    if abs(value - reference) <= SAME_OBJECTIVE * max(1.0, abs(reference)):
        return "same"
    return "worse" if value > reference else "better"


def profiles(rows: Sequence[Row], solvers: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the performance ratios of Dolan and More: time of a solver over the best time on the problem, sorted.

    rho_s(tau) is the fraction of all problems with ratio <= tau. Where a solver fails its ratio is infinite.
    """
    names = list(dict.fromkeys(row["problem"] for row in rows))
    solved = [solved_by(rows, solver) for solver in solvers]
    times = np.array([[one[name]["wall_seconds"] if name in one else np.inf for name in names] for one in solved])
    best = times.min(axis=0, initial=np.inf)
    return dict(zip(solvers, np.sort(times / np.where(np.isfinite(best), best, 1.0), axis=1), strict=True))


def counts(rows: Sequence[Row], solvers: Sequence[str]) -> list[dict[str, Any]]:
    """Return how many rows of every solver are what."""
    counted = ("solved", "claimed", "certified", "false_success")
    groups = {solver: [row for row in rows if row["solver"] == solver] for solver in solvers}
    return [
        {
            "solver": solver,
            "problems": len(group),
            **{name: sum(bool(row.get(name)) for row in group) for name in counted},
            "failed": sum(row["status"] in FAILED for row in group),
            "seconds": sum(row.get("wall_seconds", 0.0) for row in group),
        }
        for solver, group in groups.items()
    ]


def run(settings: Settings, progress: Progress) -> Report:
    """Solve all problems; the exit code is 1 if a row failed or a success was false."""
    rows, solvers = experiment(**settings.arguments, progress=progress), settings.arguments["solvers"]
    reference = "base" if "base" in solvers else solvers[0]
    pairs = {f"{reference}/{name}": ratios(rows, reference, name) for name in solvers if name != reference}
    means = {name: geometric_mean([row["ratio"] for row in each]) for name, each in pairs.items()}
    counted = counts(rows, solvers)
    results = {"rows": rows, "solvers": counted, "ratios": pairs, "geometric_means": means}
    tables = {"problems": [{name: row.get(name) for name in SHOWN} for row in rows], "solvers": counted}
    return tabled(
        results,
        not any(row["failed"] or row["false_success"] for row in counted),
        {**tables, **{f"time {name}": each for name, each in pairs.items()}},
        _figures(rows, solvers, pairs),
        [f"time {name}: geometric mean {mean:.2f} over the problems that both solve" for name, mean in means.items()],
    )


def _figures(rows: Sequence[Row], solvers: Sequence[str], pairs: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    panels = {}
    if any(row.get("solved") for row in rows):
        curves = []
        for name, relative in profiles(rows, solvers).items():
            finite = relative[np.isfinite(relative)]
            share = np.arange(1, finite.size + 1) / relative.size
            curves.append(Curve(finite, share, name, {"drawstyle": "steps-post"}))
        panels["profile"] = Panel(curves=curves, x="time over that of the fastest", y="share of problems", log="x")
    for name, each in pairs.items():
        curve = Curve(np.arange(len(each)), [row["ratio"] for row in each], f"time {name}", DOTS)
        panels[f"ratios_{name.replace('/', '_')}"] = Panel(curves=[curve], x="problem", y="ratio", log="y", levels=(1,))
    return {f"nosbench_{name}.png": lambda panel=panel: chart([panel]) for name, panel in panels.items()}


PROGRAM = program(__name__, run, experiment, quick={"time_limit": 20.0}, positional="folder")
