"""Report of the benchmark: counts, ratios of time, performance profiles, and the checks of random runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console

from problems.benchmarks.nosbench_task import Row
from problems.runner import listing

SAME_OBJECTIVE = 1e-4  # relative difference that a relaxation of 1e-9 leaves
SLOWER = 2.0
SLACK = 2.0  # seconds by which a solver may exceed its time limit


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts of one solver over all rows; `trivially` counts certificates where grad f = 0."""

    rows: int
    solved: int
    claimed: int
    certified: int
    trivially: int
    false_success: int
    failed: int
    overtime: int
    seconds: float

    @property
    def certified_share(self) -> float:
        """Share of certified rows among the solved ones."""
        return self.certified / self.solved if self.solved else 0.0


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Times of two solvers on a problem that both solve; `result` is "same", "better" or "worse" for the second.

    Results are compared by the function that is minimised, the objective with its penalty. The objective alone is
    reported beside it: a solver may lower it at the expense of the penalty.
    """

    problem: str
    ratio: float
    reference_objective: float
    solver_objective: float
    reference_minimised: float
    solver_minimised: float

    @property
    def result(self) -> str:
        """Comparison of what the second solver has minimised with the reference's."""
        difference = self.solver_minimised - self.reference_minimised
        if abs(difference) <= SAME_OBJECTIVE * max(1.0, abs(self.reference_minimised)):
            return "same"
        return "worse" if difference > 0 else "better"

    @property
    def bad(self) -> bool:
        """True if more than twice as slow with a worse result."""
        return self.ratio < 1.0 / SLOWER and self.result == "worse"


def count(rows: Sequence[Row]) -> Counts:
    """Count the rows of one solver."""
    certified = [row for row in rows if row.solved and row.certified]
    return Counts(
        rows=len(rows),
        solved=sum(row.solved for row in rows),
        claimed=sum(row.claimed for row in rows),
        certified=len(certified),
        trivially=sum(row.gradient == 0.0 for row in certified),
        false_success=sum(row.false_success for row in rows),
        failed=sum(row.failed for row in rows),
        overtime=len(overtime(rows)),
        seconds=sum(row.wall_seconds or 0.0 for row in rows),
    )


def overtime(rows: Sequence[Row]) -> list[Row]:
    """Return the rows whose solver took more than its time limit and two seconds."""
    return [row for row in rows if (row.wall_seconds or 0.0) > row.time_limit + SLACK]


def ratios(rows: Sequence[Row], reference: str, solver: str) -> list[Ratio]:
    """Return the time of the reference over the time of the solver where both solve, smallest first."""
    pairs = []
    first, second = (_solved(rows, name) for name in (reference, solver))
    for name in first.keys() & second.keys():
        a, b = first[name], second[name]
        pairs.append(
            Ratio(
                problem=" ".join(name).strip(),
                ratio=_time(a) / _time(b),
                reference_objective=_number(a.objective),
                solver_objective=_number(b.objective),
                reference_minimised=_number(a.minimised),
                solver_minimised=_number(b.minimised),
            )
        )
    return sorted(pairs, key=lambda item: (item.ratio, item.problem))


def _solved(rows: Sequence[Row], solver: str) -> dict[tuple[str, str], Row]:
    return {(row.problem, row.variant): row for row in rows if row.solver == solver and row.solved}


def _time(row: Row) -> float:
    return max(_number(row.wall_seconds), 1e-12)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def geometric_mean(values: Sequence[float]) -> float:
    """Return exp of the mean of the logarithms; NaN for no values."""
    return float(np.exp(np.mean(np.log(values)))) if len(values) else float("nan")


def profiles(rows: Sequence[Row], solvers: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the performance ratios of Dolan and More: time of a solver over the best time on the problem, sorted.

    rho_s(tau) is the fraction of all problems with ratio <= tau: `np.searchsorted(ratios, tau, "right") / len(ratios)`.
    Where a solver fails its ratio is infinite.
    """
    names = list(dict.fromkeys((row.problem, row.variant) for row in rows))
    times = np.full((len(solvers), len(names)), np.inf)
    for k, solver in enumerate(solvers):
        solved = _solved(rows, solver)
        times[k] = [_time(solved[name]) if name in solved else np.inf for name in names]
    best = times.min(axis=0, initial=np.inf)
    relative = times / np.where(np.isfinite(best), best, 1.0)
    return {solver: np.sort(relative[k]) for k, solver in enumerate(solvers)}


def pairs_of(solvers: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of solvers that are compared: each with "base", or with the first one."""
    reference = "base" if "base" in solvers else solvers[0]
    return [(reference, solver) for solver in solvers if solver != reference]


def summary(rows: Sequence[Row], solvers: Sequence[str]) -> dict[str, Any]:
    """Return what `--json` prints about the rows."""
    counts = {solver: count([row for row in rows if row.solver == solver]) for solver in solvers}
    compared = {f"{a}/{b}": ratios(rows, a, b) for a, b in pairs_of(solvers)}
    return {
        "solvers": {name: {**asdict(item), "certified_share": item.certified_share} for name, item in counts.items()},
        "ratios": {
            name: {
                "geometric_mean": geometric_mean([item.ratio for item in items]),
                "slower_and_worse": [item.problem for item in items if item.bad],
                "problems": [{**asdict(item), "result": item.result} for item in items],
            }
            for name, items in compared.items()
        },
        "rows": [row.to_dict() for row in rows],
    }


def sound(rows: Sequence[Row], *, random: bool) -> bool:
    """Check that no row failed and no success was false; in random runs also that all time limits were respected."""
    return not any(row.failed or row.false_success for row in rows) and not (random and overtime(rows))


def show(console: Console, rows: Sequence[Row], solvers: Sequence[str]) -> None:
    """Print the tables."""
    console.print(_all_rows(rows))
    console.print(_per_solver(rows, solvers))
    for a, b in pairs_of(solvers):
        _show_ratios(console, ratios(rows, a, b), a, b)
        _show_only(console, rows, a, b)
    for title, listed in _lists(rows).items():
        if listed:
            console.print(f"{title}:")
            for row in listed:
                console.print(f"  {_name(row)}, {row.solver}: {row.status}{_reason(row)}", markup=False)


def _lists(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    return {
        "not solved": [row for row in rows if not row.solved and not row.failed],
        "solved by the residuals, but not by the solver's status": [r for r in rows if r.solved and not r.claimed],
        "FALSE SUCCESS, claimed but refuted by the residuals": [row for row in rows if row.false_success],
        "failed": [row for row in rows if row.failed],
        f"more than {SLACK:g} s over the time limit": overtime(rows),
    }


def _name(row: Row) -> str:
    return f"{row.problem} {row.variant}".strip()


def _reason(row: Row) -> str:
    if row.message:
        return f", {row.message}"
    return f", complementarity {_short(row.complementarity)}, infeasibility {_short(row.infeasibility)}"


def _all_rows(rows: Sequence[Row]) -> Any:
    """Print residuals and LPEC, computed by the benchmark."""
    columns = (
        *("variables", "pairs", "status", "solved", "objective", "minimised", "complementarity", "complementarity_min"),
        *("infeasibility", "stationarity", "certified", "lpec_value", "iterations", "wall_seconds"),
    )
    named = ({"problem": _name(row), "solver": row.solver, **{n: getattr(row, n) for n in columns}} for row in rows)
    return listing(list(named))


def _per_solver(rows: Sequence[Row], solvers: Sequence[str]) -> Any:
    counts = {solver: count([row for row in rows if row.solver == solver]) for solver in solvers}
    return listing([{"solver": name, **asdict(one), "share": one.certified_share} for name, one in counts.items()])


def _show_ratios(console: Console, ratios: Sequence[Ratio], reference: str, solver: str) -> None:
    if ratios:
        console.print(listing([{**asdict(item), "result": item.result} for item in ratios]))
    same = [item.ratio for item in ratios if item.result == "same"]
    console.print(
        f"time {reference}/{solver}: geometric mean {geometric_mean([item.ratio for item in ratios]):.2f} over "
        f"{len(ratios)} problems both solve, {geometric_mean(same):.2f} over the {len(same)} with the same result"
    )
    bad = ", ".join(item.problem for item in ratios if item.bad) or "none"
    console.print(f"{solver} more than {SLOWER:g}x slower with a worse result: {bad}")


def _show_only(console: Console, rows: Sequence[Row], reference: str, solver: str) -> None:
    first, second = (_solved(rows, name).keys() for name in (reference, solver))
    for name, only in ((reference, first - second), (solver, second - first)):
        listed = ", ".join(sorted(" ".join(key).strip() for key in only)) or "none"
        console.print(f"solved by {name} only: {listed}")


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"
