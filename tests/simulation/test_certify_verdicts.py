"""One test for every meaning of a verdict: constraints, windows, residuals, rounding, numbers that are none."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.simulation.certification.windows import _matched
from nosnoc_py.solution import RungeKuttaInterpolant, Series
from nosnoc_py.solution.violation import Law
from tests.simulation.claimed import solution_of

GRAVITY = 9.81
Pair = tuple[ns.OCP, ns.Solution]


def ball(force: Any = None, restitution: float = 0.8) -> ns.CLS:
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q, restitution=restitution)
    law = u - GRAVITY if force is None else u + force(q)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM([[1.0]]), force=law, contacts=[ground])


@pytest.fixture(scope="module")
def hop() -> Pair:
    """A fall with one impact at .31 s."""
    system = ball()
    ocp = ns.OCP(system, horizon=0.8, x0=[0.8, -1.0])
    solution = solution_of(ocp, ns.simulate(system, method=ns.FESDJ(), x0=ocp.x0, duration=0.8, steps=4, u=[[0.0]] * 4))
    assert len(solution.impacts) == 1
    assert ns.certify(ocp, solution).confirmed
    return ocp, solution


# --- constraints ---


@pytest.mark.parametrize("at", ["element_ends", "rk_stages"])
def test_a_path_constraint_that_breaks_where_it_is_imposed_is_refuted(at: str, hop: Pair) -> None:
    """The ball touches the ground at the end of an element."""
    ocp, solution = hop
    above = ns.Constraint(ocp.system.q, 0.2, None, name="stay above 0.2 m", at=at)
    found = ns.certify(replace(ocp, path_constraints=[above]), solution)
    assert found.verdict is ns.Verdict.REFUTED
    assert "path constraint stay above 0.2 m is violated" in found.reason
    assert max(one.amount for one in found.violation) == pytest.approx(0.2, abs=1e-9)


def test_a_path_constraint_that_breaks_only_between_its_places_is_told_apart(hop: Pair) -> None:
    """Imposed where control stages begin; in between the ball is on the ground."""
    ocp, solution = hop
    lowest = float(solution(solution.u_grid, "-")[:, 0].min())
    assert lowest > 0.02
    above = ns.Constraint(ocp.system.q, 0.5 * lowest, None, name="above", at="control_grid")
    found = ns.certify(replace(ocp, path_constraints=[above]), solution)
    assert found.verdict is ns.Verdict.CONSTRAINT_BETWEEN_NODES
    assert not found.confirmed
    assert "the path constraint above is violated by" in found.reason
    (worst,) = found.violation
    assert worst.amount == pytest.approx(0.5 * lowest, abs=1e-9)
    assert worst.time == pytest.approx(solution.impacts[0].time, abs=1e-6)
    kept = ns.Constraint(ocp.system.q, -1e-3, None, name="above", at="control_grid")
    assert ns.certify(replace(ocp, path_constraints=[kept]), solution).confirmed


# --- motions that amplify errors ---


def test_an_unstable_motion_is_confirmed_in_windows() -> None:
    """q'' = 324 (q - 1) + u makes errors e^18 times as large in a second; to a place of rest at the top."""
    system = ball(lambda q: 18.0**2 * (q - 1.0))
    end = ns.Constraint(system.x, [1.0, 0.0], [1.0, 0.0], name="rest")
    ocp = ns.OCP(system, horizon=1.0, x0=[1.05, 0.0], stage_cost=system.u**2, terminal_constraints=[end])
    solution = ns.solve(ocp, ns.FESDJ(control_stages=10, finite_elements=4, rk_stages=4))
    assert solution.success
    found = ns.certify(ocp, solution)
    assert found.verdict is ns.Verdict.CONFIRMED_IN_WINDOWS, found
    assert not found.confirmed
    assert found.end_state_error > 1e-4
    assert max(window.defect for window in found.windows) < 1e-7
    assert found.amplification is not None
    assert 1e5 < found.amplification < 1e9  # e^18 = 6.6e7
    assert "times as large" in found.reason
    assert "amplification" in str(found)


# --- what residuals explain ---


@pytest.mark.parametrize(
    ("residual", "verdict"), [(1.8e-5, ns.Verdict.INACCURATE), (1e-9, ns.Verdict.REFUTED), (np.nan, ns.Verdict.REFUTED)]
)
def test_what_the_residual_of_the_solver_explains_is_not_refuted(residual: float, verdict: ns.Verdict) -> None:
    """A restitution that is off by 2.5e-5 m/s, in a solution whose complementarities are 1.8e-5 away from zero."""
    system = ball()
    ocp = ns.OCP(system, horizon=0.2, x0=[0.05, 0.0])
    solution = solution_of(ocp, ns.simulate(system, method=ns.FESDJ(), x0=ocp.x0, duration=0.2, steps=4, u=[[0.0]] * 4))
    own = solution.interpolant
    assert isinstance(own, RungeKuttaInterpolant)
    hit = int(np.argmin(np.abs(own.t_left - solution.impacts[0].time)))
    # faster by dv after the impact, with the impulse, the flight and the events that belong to it
    dv, later = 2.5e-5, own.t_left - own.t_left[hit]
    x_left, stages = np.array(own.x_left), np.array(own.x_stages)
    x_left[hit:, 1] += dv
    stages[hit:, :, 1] += dv
    x_left[hit:, 0] += dv * later[hit:]
    stages[hit:, :, 0] += dv * (later[hit:, None] + own.h[hit:, None] * own.c)
    moved = replace(own, x_left=x_left, x_stages=stages)
    impulses = solution.series["Lambda_normal[ground]"]
    raised = np.array(impulses.values)
    raised[hit] += dv
    series = {**solution.series, "Lambda_normal[ground]": Series(impulses.t, raised)}
    (impact,) = solution.impacts
    assert impact.impulse is not None
    events = [replace(e, impulse=impact.impulse + dv) if e is impact else e for e in solution.events]
    ends = np.array([moved(t, "-") for t in solution.t])
    starts = np.array([moved(t, "+") for t in solution.t])
    first = np.append(True, np.diff(solution.t) > 0.0)
    off = replace(
        solution,
        interpolant=moved,
        series=series,
        events=tuple(events),
        x=np.where(first[:, None], ends, starts),
        complementarity_min=max(residual, 0.0) if np.isfinite(residual) else residual,
    )
    found = ns.certify(ocp, off)
    assert any(one.law is Law.RESTITUTION for one in found.findings)
    assert found.verdict is verdict, found


# --- what is not decided ---


def test_a_motion_that_may_leave_at_any_time_is_undecided() -> None:
    """x' = sign(x) at x = 0: three motions are possible, and the solution claims another one than the simulation."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    modes = ns.Modes("side", flows=[ca.SX(-1.0), ca.SX(1.0)], functions=x, signs=[[-1], [1]])
    system = ns.PSS(x=x, u=u, flow=0.0 * u, modes=modes)
    ocp = ns.OCP(system, horizon=1.0, x0=[0.0], stage_cost=u**2)
    verdicts = []
    for start in (1e-9, -1e-9, 0.0):
        trajectory = ns.simulate(system, x0=[start], duration=1.0, steps=4, method=ns.FESD())
        assert trajectory.success
        solution = replace(solution_of(replace(ocp, x0=[start]), trajectory), x0=np.zeros(1), method="FESD()")
        verdicts.append(ns.certify(ocp, solution).verdict)
    assert set(verdicts) <= {ns.Verdict.CONFIRMED, ns.Verdict.UNDECIDED, ns.Verdict.INACCURATE}
    assert verdicts.count(ns.Verdict.CONFIRMED) <= 1


# --- numbers that are none ---


@pytest.mark.parametrize("name", ["objective", "infeasibility", "complementarity", "complementarity_min", "penalty"])
def test_a_claim_that_is_no_number_is_never_confirmed(name: str, hop: Pair) -> None:
    ocp, solution = hop
    found = ns.certify(ocp, replace(solution, **{name: np.nan}))  # type: ignore[arg-type]
    assert found.verdict is ns.Verdict.REFUTED
    assert f"the solution's {name} is not a finite number" in found.reason
    assert " nan" not in str(found)


def test_series_and_events_that_are_no_numbers_are_never_confirmed(hop: Pair) -> None:
    ocp, solution = hop
    (impact,) = solution.impacts
    old = solution.series["Lambda_normal[ground]"]
    spoiled = {**solution.series, "Lambda_normal[ground]": Series(old.t, np.full(len(old), np.nan))}
    for changed in (
        replace(solution, series=spoiled),
        replace(solution, events=[replace(impact, impulse=np.nan)]),
    ):
        found = ns.certify(ocp, changed)
        assert found.verdict is ns.Verdict.REFUTED
        assert " nan" not in str(found)


# --- failed solutions never raise ---


def test_a_failed_solution_that_runs_past_its_horizon_is_refuted_and_does_not_raise(hop: Pair) -> None:
    ocp, solution = hop
    own = solution.interpolant
    assert isinstance(own, RungeKuttaInterpolant)
    for factor in (1.2, 0.7):
        stretched = replace(own, t_left=factor * own.t_left, h=factor * own.h)
        failed = replace(solution, status=ns.Status.INFEASIBLE, t=factor * solution.t, interpolant=stretched)
        found = ns.certify(ocp, failed)
        assert found.verdict is ns.Verdict.REFUTED
        assert any("the horizon is missed by" in one.what for one in found.findings)


def test_a_failed_solution_with_a_horizon_out_of_its_bounds_does_not_raise(hop: Pair) -> None:
    ocp, solution = hop
    free = replace(ocp, horizon=ns.FreeTime(1.0, 2.0))
    with pytest.raises(ns.ModelError, match=r"its horizon 0\.8 lies outside of \[1, 2\]"):
        ns.certify(free, solution)
    found = ns.certify(free, replace(solution, status=ns.Status.INFEASIBLE))
    assert found.verdict is ns.Verdict.REFUTED
    assert any("the bound of the horizon is violated by 0.2" in one.what for one in found.findings)


@pytest.mark.parametrize(("mine", "theirs"), [(3, 3), (1, 1), (2, 4), (4, 2), (0, 2), (2, 0)])
def test_events_are_matched_with_the_least_sum_of_distances(mine: int, theirs: int) -> None:
    """All injections of the smaller set into the larger one, for ten draws."""
    rng = np.random.default_rng(5)
    for _ in range(10):
        a, b = rng.uniform(size=mine), rng.uniform(size=theirs)
        pairs = _matched(a, b)
        few, many = (a, b) if mine <= theirs else (b, a)
        best = min(sum(np.abs(few - np.array(order))) for order in permutations(many, few.size))
        assert len(pairs) == few.size
        assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == few.size
        assert sum(abs(a[i] - b[j]) for i, j in pairs) == pytest.approx(best, abs=1e-12)
