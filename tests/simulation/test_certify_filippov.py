"""Certificates of Filippov systems: right solutions are confirmed, coarse ones inaccurate, wrong ones refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.simulation.certification.readings import collocation_of, inclusions_of
from nosnoc_py.solution import RungeKuttaInterpolant
from nosnoc_py.solution.violation import Violation
from nosnoc_py.tolerances import BROKEN
from problems import hysteresis_car, sliding_mode_control, turbo_car
from tests.pairwise import slow_but

METHOD = ns.FESD(control_stages=5, finite_elements=3, rk_stages=2)


def inclusion(ocp: ns.OCP, solution: ns.Solution) -> tuple[float, list[Violation]]:
    """The largest violation of the inclusion at the stages of a solution, and those beyond the tolerance."""
    elements = collocation_of(solution)
    assert elements is not None
    found = inclusions_of(ocp.system, solution, elements)
    return max(one.share for one in found), [one for one in found if one.share > BROKEN]


def floor() -> ns.OCP:
    """A projected system: it sinks, rests on the floor while it pays, and rises at the end."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    system = ns.PDS(
        x=x, u=u, flow=ca.vertcat(1.0, u - 1.0), constraints=x[1], constraint_names=["floor"], names={"x": ["s", "y"]}
    )
    return ns.OCP(
        system, horizon=2.0, x0=[0.0, 0.4], stage_cost=u**2 + 3.0 * x[1] ** 2, bounds=ns.Bounds(u=(-3.0, 3.0)),
        terminal_constraints=[ns.Constraint(x[1], 0.3, 0.3, name="height")],
    )  # fmt: skip


def relay(weight: float = 1.0) -> ns.OCP:
    """A step function with an algebraic variable that costs: x_2 turns around where x_1 = 0, nonlinearly."""
    x, u, alpha, z = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("alpha"), ca.SX.sym("z")
    flow = ca.vertcat(u + ca.sin(x[1]), (1.0 - 2.0 * alpha) * (1.0 + z) + 0.3 * x[0] ** 3)
    system = ns.Heaviside(
        x=x, u=u, alpha=alpha, functions=x[0] - 0.2, function_names=["turn"], flow=flow,
        algebraic=ns.Algebraic(z, z - 0.5 * ca.cos(x[1]), names=["lift"], initial=0.5), names={"x": ["x", "y"]},
    )  # fmt: skip
    return ns.OCP(
        system, horizon=1.5, x0=[0.8, 0.0], stage_cost=0.1 * u**2 + weight * z**2,
        terminal_cost=10.0 * (x[0] + 0.5) ** 2, bounds=ns.Bounds(u=(-4.0, 4.0)),
    )  # fmt: skip


CASES: dict[str, tuple[Callable[[], ns.OCP], Any, str]] = {
    "turbo": (turbo_car.build, turbo_car.METHOD, "switch switch"),
    "turbo, step functions": (turbo_car.build, turbo_car.METHOD.replace(dcs_mode="step"), "switch switch"),
    "slide": (sliding_mode_control.build, sliding_mode_control.METHOD.replace(control_stages=10), "enter_sliding"),
    "hysteresis": (hysteresis_car.build, hysteresis_car.METHOD, "leave_sliding enter_sliding " * 2),
    "floor": (floor, METHOD, "contact release"),
    "relay": (relay, METHOD.replace(rk_stages=4), "switch"),
}


@cache
def solved(name: str) -> tuple[ns.OCP, ns.Solution]:
    build, method, _ = CASES[name]
    ocp = build()
    return ocp, ns.solve(ocp, method)


@pytest.fixture(scope="module")
def slide() -> tuple[ns.OCP, ns.Solution]:
    return solved("slide")


@pytest.fixture(scope="module")
def turbo() -> tuple[ns.OCP, ns.Solution]:
    return solved("turbo")


# --- what is right ---


@pytest.mark.parametrize("name", slow_but([name for name in CASES if name != "hysteresis"], CASES))
def test_a_solution_is_confirmed(name: str) -> None:
    ocp, solution = solved(name)
    assert solution.success
    found = ns.certify(ocp, solution)
    assert found.verdict is ns.Verdict.CONFIRMED, found
    assert found.end_state_error < 1e-6
    assert abs(found.objective_error) < 1e-6 * (1.0 + abs(found.objective))
    assert found.equations is not None
    assert found.equations < 1e-6
    assert found.findings == ()
    assert found.balance is None
    assert " ".join(pair.claimed.kind for pair in found.events if pair.claimed) == CASES[name][2].strip()
    assert all(abs(pair.delay) < 1e-6 for pair in found.events)
    assert all(window.events_agree and window.defect < 1e-6 for window in found.windows)
    assert len(found.windows) == len(solution.u)


@pytest.mark.parametrize("scheme", ["gauss_legendre", "radau_i", "lobatto_iiic"])
def test_other_schemes_are_confirmed(scheme: str) -> None:
    """Of those that are no collocation, or whose dense output has one node more, only the motion is looked at."""
    ocp = relay()
    solution = ns.solve(ocp, METHOD.replace(rk_stages=4, scheme=scheme, rk_representation="differential"))
    found = ns.certify(ocp, solution)
    assert found.verdict is ns.Verdict.CONFIRMED, found
    assert (found.equations is not None) == (scheme == "gauss_legendre")


def test_a_window_that_begins_in_a_slide_goes_on_sliding(slide: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = slide
    found = ns.certify(ocp, solution, window=0.05)
    assert len(found.windows) == 40
    assert all(window.events_agree for window in found.windows)


def test_a_coarse_grid_is_inaccurate_and_a_finer_one_less_so() -> None:
    ocp, errors = relay(), []
    for stages in (1, 2):
        found = ns.certify(ocp, ns.solve(ocp, METHOD.replace(rk_stages=stages)))
        assert found.verdict is ns.Verdict.INACCURATE, found
        assert found.findings == ()
        errors.append(found.end_state_error)
    assert errors[0] > 1e-2
    assert errors[1] < 0.05 * errors[0]


def test_constraints_of_the_true_trajectory() -> None:
    """Constraints with an algebraic variable, too: z = cos(y) / 2 begins at its largest value."""
    ocp, solution = solved("relay")
    low = ns.Constraint(ocp.system.x[0], -np.inf, 0.7, name="near")
    lift = ns.Constraint(ocp.system.z, -np.inf, 0.45, name="lift", at="rk_stages")
    violation = ns.certify(replace(ocp, path_constraints=[low, lift]), solution).violation
    assert [(f.what, f.time) for f in violation] == [
        ("the path constraint near is violated by 0.1", 0.0), ("the path constraint lift is violated by 0.05", 0.0)
    ]  # fmt: skip


# --- what is wrong ---


def bent(solution: ns.Solution, element: int, column: int, size: float) -> ns.Solution:
    """A solution with a bump in the stages of one element: its ends stay."""
    inner = solution.interpolant
    assert isinstance(inner, RungeKuttaInterpolant)
    stages = inner.x_stages.copy()
    stages[element, :-1, column] += size
    return replace(solution, interpolant=replace(inner, x_stages=stages))


@pytest.mark.parametrize("column", [0, 1])
def test_a_bent_state_is_refuted_where_it_is(column: int, slide: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = slide
    wrong = bent(solution, 4, column, 1e-3)
    found = ns.certify(ocp, wrong)
    assert found.verdict is ns.Verdict.REFUTED
    inner = solution.interpolant
    assert isinstance(inner, RungeKuttaInterpolant)
    start = float(inner.t_left[4])
    assert start < found.findings[0].time <= start + float(inner.h[4])
    assert f"explain {solution.state_names[column]}'" in found.findings[0].what
    assert ns.certify(ocp, solution).confirmed


def test_a_changed_control_is_refuted_where_it_acts(turbo: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = turbo
    u = solution.u.copy()
    u[2] -= 0.1
    found = ns.certify(ocp, replace(solution, u=u))
    assert found.verdict is ns.Verdict.REFUTED
    assert solution.u_grid[2] < found.findings[0].time <= solution.u_grid[3]
    assert found.end_state_error > 0.1


def test_an_event_that_is_not_listed_refutes_what_does_not_agree_either() -> None:
    ocp = relay()
    coarse = ns.solve(ocp, METHOD.replace(rk_stages=1))
    found = ns.certify(ocp, replace(coarse, events=()))
    assert found.verdict is ns.Verdict.REFUTED
    assert "switch turn at" in found.reason
    assert "is missing" in found.reason


def test_listed_multipliers_have_to_explain_the_motion(slide: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = slide
    moved = {}
    for name, size in (("theta[edge][0]", 1e-3), ("theta[edge][1]", -1e-3)):
        series = solution.series[name]
        moved[name] = replace(series, values=np.append(series.values[:-1], series.values[-1] + size))
    found = ns.certify(ocp, replace(solution, series={**solution.series, **moved}))
    assert found.verdict is ns.Verdict.REFUTED
    assert "the listed multipliers do not explain" in found.reason


def test_a_region_that_is_not_active_lends_no_motion(turbo: tuple[ns.OCP, ns.Solution]) -> None:
    """Weights of both regions where only one is: rates and sums agree, the place does not allow it."""
    ocp, solution = turbo
    names = [f"theta[turbo][{i}]" for i in range(2)]
    swapped = {
        names[i]: replace(solution.series[names[i]], values=solution.series[names[1 - i]].values) for i in (0, 1)
    }
    found = ns.certify(ocp, replace(solution, series={**solution.series, **swapped}))
    assert found.verdict is ns.Verdict.REFUTED
    assert "is outside of its range" in found.reason


def test_a_slide_that_no_hull_contains_is_refuted() -> None:
    """x' = 1 below and above x = 0: the state cannot stay there."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    modes = ns.Modes("side", flows=[1.0 + 0.0 * u, 2.0 + 0.0 * u], functions=x, signs=[[-1], [1]])
    ocp = ns.OCP(ns.PSS(x=x, u=u, modes=modes), horizon=1.0, x0=[-0.5])
    solution = ns.solve(ocp, ns.FESD(control_stages=2, finite_elements=2, rk_stages=2))
    inner = solution.interpolant
    assert isinstance(inner, RungeKuttaInterpolant)
    still = replace(inner, x_left=np.minimum(inner.x_left, 0.0), x_stages=np.minimum(inner.x_stages, 0.0))
    wrong = replace(solution, interpolant=still, series={})
    share, findings = inclusion(ocp, wrong)
    assert share == pytest.approx(0.5, abs=1e-6)  # of weights that explain no rate of 0 one with sum .5 leaves least
    assert findings[0].time > 0.5
    assert inclusion(ocp, solution)[0] < 1e-9


def elsewhere(solution: ns.Solution, motion: Callable[[Any], Any]) -> ns.Solution:
    """A solution of one state that moves as a function of time, without listed multipliers."""
    inner = solution.interpolant
    assert isinstance(inner, RungeKuttaInterpolant)
    stages = inner.t_left[:, None] + inner.h[:, None] * inner.c
    moved = replace(
        inner,
        x_left=motion(inner.t_left)[:, None],
        x_stages=motion(stages)[..., None],
        x_initial=np.atleast_1d(motion(inner.t_left[0])),
    )
    return replace(solution, interpolant=moved, series={})


def test_a_body_that_hovers_over_its_constraint_is_refuted() -> None:
    """x' = -1 + lambda with 0 <= x perpendicular lambda: at x = 2 there is no lambda that holds it."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    ocp = ns.OCP(ns.PDS(x=x, u=u, flow=-1.0 + 0.0 * u, constraints=x), horizon=1.0, x0=[2.5], stage_cost=u**2)
    solution = ns.solve(ocp, METHOD)
    share, findings = inclusion(ocp, elsewhere(solution, lambda t: 2.0 + 0.0 * t))
    assert share > 0.5
    assert findings
    assert inclusion(ocp, solution)[0] < 1e-9


def test_a_step_function_does_not_choose_its_side() -> None:
    """x' = 1 - 2 alpha with alpha the step of x: below zero x cannot fall."""
    x, u, alpha = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("alpha")
    system = ns.Heaviside(x=x, u=u, alpha=alpha, functions=x, flow=1.0 - 2.0 * alpha + 0.0 * u)
    ocp = ns.OCP(system, horizon=1.0, x0=[-2.0], stage_cost=u**2)
    solution = ns.solve(ocp, METHOD)
    share, _ = inclusion(ocp, elsewhere(solution, lambda t: -2.0 - t))
    assert share == pytest.approx(2.0, abs=1e-6)
    assert inclusion(ocp, solution)[0] < 1e-9


def test_a_state_outside_of_its_set_is_refuted() -> None:
    ocp, solution = solved("floor")
    inner = solution.interpolant
    assert isinstance(inner, RungeKuttaInterpolant)
    down = {name: getattr(inner, name) - [0.0, 1e-4] for name in ("x_left", "x_stages", "x_initial")}
    _, findings = inclusion(ocp, replace(solution, interpolant=replace(inner, **down)))
    assert "leaves the set of" in findings[0].what


def test_fixed_steps_are_not_confirmed() -> None:
    """Every stage obeys the inclusion, and yet the motion is none."""
    ocp = turbo_car.build()
    solution = ns.solve(ocp, turbo_car.METHOD.replace(switch_detection=False, control_stages=7))
    found = ns.certify(ocp, solution)
    assert found.verdict is not ns.Verdict.CONFIRMED
    assert found.end_state_error > 1e-3


def test_a_solution_of_another_ocp_is_refuted(slide: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = slide
    found = ns.certify(replace(ocp, stage_cost=2.0 * ocp.stage_cost), solution)
    assert found.verdict is ns.Verdict.REFUTED
    assert "the stated objective is" in found.findings[0].what


def test_the_table_has_no_energy(slide: tuple[ns.OCP, ns.Solution]) -> None:
    text = repr(ns.certify(*slide))
    assert "enter_sliding edge" in text
    assert "energy" not in text
