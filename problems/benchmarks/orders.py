"""Errors over the number of steps and fitted orders, shared by all experiments on orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, unknown_name
from problems.figures import DASHED, Curve, Panel, chart

FAMILIES = {"radau_iia": "Radau", "gauss_legendre": "Gauss"}
LEAST_POINTS = 3


@dataclass(frozen=True, eq=False, kw_only=True)
class Convergence:
    """Runs of one method with more and more steps.

    Parameters
    ----------
    label : str
    nominal : int
        Order that is expected; 0 for none.
    steps, errors : (runs,)
        NaN where a step failed.
    clean : (floor, ceiling)
        Errors that the order is fitted to: below, rounding decides; above, no power of the step shows.
    must_solve : bool
        True if a failed step is a failure of the experiment.
    more : mapping
        Further printed values, by name.
    """

    label: str
    nominal: int
    steps: tuple[int, ...]
    errors: tuple[float, ...]
    clean: tuple[float, float]
    must_solve: bool = True
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failures(self) -> int:
        """Number of runs in which a step found no solution."""
        return int(np.isnan(self.errors).sum())

    @property
    def good(self) -> np.ndarray:
        """Mask (runs,) of the runs that count; after an error below the floor, rounding decides."""
        errors = np.array(self.errors)
        rounded = np.logical_or.accumulate(errors <= self.clean[0])
        return np.asarray(~rounded & (errors < self.clean[1]))

    @property
    def order(self) -> float | None:
        """Slope of the errors over the steps, fitted on the clean range; None if there is too little of it."""
        if self.good.sum() < LEAST_POINTS:
            return None
        steps, errors = np.array(self.steps)[self.good], np.array(self.errors)[self.good]
        return float(-np.polyfit(np.log(steps), np.log(errors), 1)[0])

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name."""
        rest = {"order": self.order, "failures": self.failures, **self.more}
        return {"label": self.label, "nominal": self.nominal, "steps": self.steps, "errors": self.errors, **rest}


@dataclass(frozen=True, eq=False, kw_only=True)
class Example:
    """Motion with its exact end, and the range of errors (floor, ceiling) for fits of the order."""

    title: str
    system: Any
    method: ns.FESD
    start: tuple[float, ...]
    duration: float
    end: ArrayLike
    clean: tuple[float, float]

    def simulate(self, steps: int, **given: Any) -> ns.Trajectory:
        """Simulate in `steps` steps; other arguments are those of `ns.simulate`."""
        return ns.simulate(
            self.system, x0=self.start, duration=self.duration, steps=steps, **{"method": self.method, **given}
        )

    def converge(
        self,
        method: ns.FESD,
        steps: Sequence[int],
        note: str = "",
        fixed_order: int = 0,
        must_solve: bool = True,
        **given: Any,
    ) -> tuple[Convergence, list[ns.Trajectory]]:
        """Simulate by finite elements with every number of steps; `fixed_order` is expected of fixed steps."""
        errors, runs = final_errors(steps, lambda count: self.simulate(count, method=method, **given), self.end)
        detects = method.switch_detection
        curve = Convergence(
            label=f"{FAMILIES[method.scheme]} {method.rk_stages}{'' if detects else ', fixed'}{note}",
            nominal=nominal(method.scheme, method.rk_stages) if detects else fixed_order,
            steps=tuple(int(count) for count in steps),
            errors=errors,
            clean=self.clean,
            must_solve=detects and must_solve,
        )
        return curve, runs


def nominal(scheme: str, rk_stages: int) -> int:
    """Return the order of a Runge-Kutta method."""
    return 2 * rk_stages - (scheme == "radau_iia")


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers; NaN for none."""
    return float(np.exp(np.mean(np.log(values)))) if len(values) else float("nan")


def check_names(**asked: tuple[Sequence[str], Sequence[str] | Mapping[str, Any]]) -> None:
    """Refuse names that are not known: (names, known ones) by what they name.

    Raises
    ------
    OptionError
        For an unknown one.
    """
    for what, (names, known) in asked.items():
        for name in names:
            if name not in known:
                raise OptionError(unknown_name(name, known, what))


def final_errors(
    steps: Sequence[int], simulate: Callable[[int], ns.Trajectory], end: ArrayLike
) -> tuple[tuple[float, ...], list[ns.Trajectory]]:
    """Return largest errors of the final state with every number of steps, NaN for failures; the trajectories."""
    end = np.asarray(end)
    trajectories = [simulate(count) for count in steps]
    errors = (float(np.abs(run.final_state - end).max()) if run.success else np.nan for run in trajectories)
    return tuple(errors), trajectories


def results_of(curves: Sequence[Convergence], solved: bool) -> tuple[dict[str, Any], bool]:
    """Return what `--json` prints of curves, and True if all runs that must be solved are."""
    success = solved and not any(curve.failures for curve in curves if curve.must_solve)
    return {
        "status": (ns.Status.SOLVED if success else ns.Status.STEP_FAILED).value,
        "orders": {curve.label: curve.order for curve in curves},
        "errors": {curve.label: dict(zip(map(str, curve.steps), curve.errors, strict=True)) for curve in curves},
        "failures": {curve.label: curve.failures for curve in curves},
        "curves": [curve.to_dict() for curve in curves],
    }, success


def rows_of(curves: Sequence[Convergence]) -> list[dict[str, Any]]:
    """Return rows of a table; curves may have different numbers of steps."""
    columns = ("label", "nominal", "order", "failures", "steps", "errors")
    return [{name: one.to_dict()[name] for name in columns} for one in curves]


def figure_of(panels: Mapping[str, Sequence[Convergence]]) -> Any:
    """Return a figure of errors over steps, a panel for every title, with lines of the nominal orders."""
    figures = []
    for title, curves in panels.items():
        drawn = []
        for one in curves:
            order = "" if one.order is None else f": order {one.order:.2f}"
            drawn.append(Curve(one.steps, one.errors, f"{one.label}{order}", {"marker": "o", "ms": 4}))
        for one in (one for one in curves if one.nominal and one.good.any()):
            last = int(np.flatnonzero(one.good)[-1])
            slope = (np.array(one.steps, float) / one.steps[last]) ** -one.nominal
            drawn.append(Curve(one.steps, 0.6 * one.errors[last] * slope, "", {**DASHED, "lw": 0.7}))
        figures.append(
            Panel(curves=drawn, title=title, x="number of steps", y="error of the state at the end", log="xy")
        )
    return chart(figures, min(2, len(figures)))
