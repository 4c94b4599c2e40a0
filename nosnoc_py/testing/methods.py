"""What every method for optimal control satisfies: closed forms, guesses, limits, honest statuses, mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nosnoc_py.api import solve
from nosnoc_py.solution import Solution
from nosnoc_py.status import Status, Stop
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.pss import ODE, PSS
from nosnoc_py.testing.checks import expect, expect_refusals, run_checks
from nosnoc_py.testing.systems import least_effort

KINDS = (CLS, PSS, ODE)


@dataclass(frozen=True, eq=False)
class MethodCase:
    """A method with a kind of system that it takes; see `check_method`."""

    method: Any
    kind: type
    accuracy: float
    options: Mapping[str, Any] = field(default_factory=dict)

    def run(self, *, ocp: Any = None, **changed: Any) -> Solution:
        """Solve the problem of least effort, or another one."""
        problem = least_effort(self.kind) if ocp is None else ocp
        solution: Solution = solve(problem, self.method, **{**self.options, **changed})
        return solution


def check_method(method: Any, *, accuracy: float, **options: Any) -> None:
    """Test a method of `ns.solve` on problems in closed form, for every kind of system that it takes.

    Parameters
    ----------
    method : object
        Its options, as `ns.solve` takes them.
    accuracy : float
        Largest relative error of the objective, that of its own grid included.
    **options
        Further arguments of `ns.solve`.

    Raises
    ------
    AssertionError
        With everything that does not hold.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> from nosnoc_py.testing import check_method
    >>> check_method(ns.MultiPhase(intervals=10), accuracy=0.02)
    """
    kinds = [kind for kind in KINDS if method.accepts(least_effort(kind).system) is None]
    expect(kinds, f"{type(method).__name__}: expected a method that accepts ns.CLS, ns.PSS or ns.ODE")
    for kind in kinds[:1] if len(kinds) == len(KINDS) else kinds:
        case = MethodCase(method, kind, accuracy, options)
        run_checks(f"{type(method).__name__} on a {kind.__name__}", CHECKS, case)


def reaches_the_optimum_in_closed_form(case: MethodCase) -> None:
    """From rest to rest over 1 m in 1 s costs 12, and four times as much over 2 m."""
    for place in (1.0, 2.0):
        solution = case.run(ocp=least_effort(case.kind, place))
        expect(solution.success, f"status {solution.status}: {solution.message}")
        error = abs(solution.objective / (12.0 * place**2) - 1.0)
        expect(error <= case.accuracy, f"objective {solution.objective:.9g}, expected {12.0 * place**2:g}")
        np.testing.assert_allclose(solution.final_state[:2], [place, 0.0], atol=1e-5, err_msg="state at the end")
        expect(solution.infeasibility <= 1e-5, f"infeasibility {solution.infeasibility:.2g} of a solution")


def says_that_there_is_no_solution(case: MethodCase) -> None:
    """With |u| <= 1 the mass does not get there (it needs 4): no success, the last iterate, and a remedy."""
    solution = case.run(ocp=least_effort(case.kind, bound=1.0))
    expect(not solution.success, f"status {solution.status} of a problem without a solution")
    expect(len(solution.t) > 1 and np.isfinite(solution.x).all(), "no last iterate")
    expect(solution.status.remedy, "no remedy")


def takes_a_guess(case: MethodCase) -> None:
    """A constant control, and a solution, which leads to the same optimum."""
    first = case.run(guess=[1.0])
    again = case.run(guess=first)
    expect(again.success, f"status {again.status} from a solution: {again.message}")
    expect(again.objective <= first.objective * (1.0 + case.accuracy), f"worse: {again.objective} > {first.objective}")


def stops_when_it_is_asked_to(case: MethodCase) -> None:
    """A callback that returns `ns.Stop` ends the work at once; what there is, is returned."""
    calls = []

    def stop(state: Any) -> type[Stop]:
        calls.append(state)
        return Stop

    solution = case.run(callback=stop)
    # A method that is done before it asks has not been asked.
    expect(len(calls) <= 1, f"{len(calls)} calls after ns.Stop")
    expect(
        solution.status is Status.STOPPED or not calls or solution.success, f"status {solution.status} after ns.Stop"
    )


def refuses_mistakes(case: MethodCase) -> None:
    """Wrong arguments are errors at once."""
    wrong = ({"guess": [[1.0, 2.0, 3.0]] * 2}, {"time_limit": -1.0}, {"callback": 3}, {"ocp": "problem"})
    expect_refusals(case.run, wrong)


CHECKS = (
    reaches_the_optimum_in_closed_form,
    says_that_there_is_no_solution,
    takes_a_guess,
    stops_when_it_is_asked_to,
    refuses_mistakes,
)
