"""Residuals are absolute: what is solved in small numbers has to hold in the scale of the motion, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import falling_rod
from nosnoc_py.audit.records import Measured, worst_of
from nosnoc_py.solution import Series
from nosnoc_py.solution.violation import Law
from nosnoc_py.status import Verdict
from nosnoc_py.tolerances import BADLY_SCALED
from nosnoc_py.transcription.audited import measured
from nosnoc_py.transcription.transcription import Transcription

METHOD = ns.FESDJ(control_stages=6, finite_elements=2, rk_stages=2, equidistant_control_grid=False)
SIZE, MASS = 1e-3, 1e-6  # of a small paddle: m, kg


def paddle(length: float = 1.0, mass: float = 1.0, second: float = 1.0, **more: Any) -> ns.OCP:
    """The paddle of the README in other sizes and units: accelerations are `second` times as large."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=mass * ca.diag(ca.DM([1.0, 0.1])),
        force=mass * ca.vertcat(u - 9.81, -0.981) * second,
        contacts=[ns.Contact("paddle", gap=q[1] - q[0], restitution=0.8)],
        names={"q": ["paddle", "ball"], "v": ["v_paddle", "v_ball"], "u": ["thrust"]},
        **more,
    )
    horizon = np.sqrt(length / second)
    end = [2 * length, length / horizon]
    return ns.OCP(
        system,
        horizon=horizon,
        x0=[0, length, 0, 0],
        stage_cost=0.01 * (u - 9.81) ** 2,
        terminal_constraints=[ns.Constraint(system.x[[1, 3]], end, end, name="target")],
        bounds=ns.Bounds(u=(-50, 50)),
    )


NOMINAL = {"q": SIZE, "v": SIZE**0.5, "u": 10.0, "force": 10 * MASS}


@pytest.mark.parametrize("nominal", [{}, NOMINAL], ids=["plain", "nominal"])
def test_a_small_problem_that_is_solved_in_small_numbers_only_is_not_called_solved(nominal: dict[str, float]) -> None:
    """The ball rises without being touched: 3e-9 N s are missing, beside impulses of 1e-8 N s."""
    ocp = paddle(SIZE, MASS, nominal=nominal)
    solution = ns.solve(ocp, METHOD)
    assert solution.infeasibility < 1e-8
    assert solution.complementarity < 1e-8
    assert ns.certify(ocp, solution).verdict is Verdict.REFUTED  # the independent judge
    assert solution.status is ns.Status.BADLY_SCALED
    assert not solution.success
    assert "no impulse of a closed contact explains the jump of v_ball" in solution.message
    assert "units" in solution.summary()
    assert "no impulse of a closed contact explains the jump of v_ball" in ns.explain(solution)


@pytest.mark.slow
def test_small_products_of_impulses_and_distances_are_no_contact() -> None:
    ocp = paddle(SIZE, 1e-3)
    solution = ns.solve(ocp, METHOD, ns.Auto(restarts=0))
    assert solution.complementarity < 1e-7
    assert solution.complementarity_min > 1e-6
    assert ns.certify(ocp, solution).verdict is Verdict.REFUTED
    assert solution.status is ns.Status.BADLY_SCALED
    assert "paddle has an impulse at a distance" in solution.message


def test_the_same_small_problem_in_fitting_units_is_solved() -> None:
    """In mm, mg and s: gravity is 9810 mm/s^2."""
    ocp = paddle(SIZE / 1e-3, MASS / 1e-6, second=1e3)
    solution = ns.solve(ocp, METHOD)
    assert solution.status is ns.Status.SOLVED
    assert len(solution.impacts) >= 1
    assert ns.certify(ocp, solution).verdict is Verdict.CONFIRMED


@pytest.fixture(scope="module")
def solved() -> tuple[Transcription, ns.Solution]:
    problem = ns.transcribe(paddle(), METHOD)
    return problem, problem.solve()


def judge(problem: Transcription, solution: ns.Solution, **spoiled: tuple[int, float]) -> list[Measured]:
    """The laws of a solution in which numbers (place, added) of its series are changed."""
    read, series = problem.read(solution.w, problem.parameters()), dict(solution.series)
    for kind, (place, added) in spoiled.items():
        name = f"{kind}_normal[paddle]"
        values = np.array(series[name].values)
        values[place] += added
        series[name] = Series(series[name].t, values)
    return measured(problem, read, series, np.array(solution.p), np.array(solution.u), solution.infeasibility)


def test_what_is_true_is_far_from_the_tolerance(solved: tuple[Transcription, ns.Solution]) -> None:
    assert solved[1].status is ns.Status.SOLVED
    worst = worst_of(judge(*solved))
    assert worst is None or worst.share < 1e-9


def test_every_law_is_missed_where_it_is_broken(solved: tuple[Transcription, ns.Solution]) -> None:
    problem, solution = solved
    impulses = solution["Lambda_normal[paddle]"]
    hit, impulse = int(np.argmax(impulses)), float(impulses.max())
    time = float(solution.times("Lambda_normal[paddle]")[hit])
    weaker = worst_of(judge(problem, solution, Lambda=(hit, -0.02 * impulse)))
    assert weaker is not None
    assert weaker.law is Law.IMPULSES
    assert weaker.time == pytest.approx(time, abs=1e-12)
    assert weaker.amount == pytest.approx(0.02 * impulse / 0.1, rel=1e-6)  # of the ball, whose mass is .1 kg
    laws = {one.law: one.worst() for one in judge(problem, solution, Lambda=(0, 0.02 * impulse))}
    afar = laws[Law.IMPULSE_DISTANCE]
    assert afar is not None
    assert (afar.subject, afar.time) == ("paddle", 0.0)
    assert afar.amount == pytest.approx(0.02 * impulse, rel=1e-9)
    pushed = [one.worst() for one in judge(problem, solution, **{"lambda": (0, 1.0)}) if one.law is Law.DISTANCE]
    assert pushed[0] is not None
    assert pushed[0].share > BADLY_SCALED


def test_the_law_of_restitution_is_missed_where_it_is_broken(solved: tuple[Transcription, ns.Solution]) -> None:
    """The ball leaves the impact .1 m/s faster, with the impulse and the paddle that belong to it."""
    problem, solution = solved
    read, series = problem.read(solution.w, problem.parameters()), dict(solution.series)
    old = series["Lambda_normal[paddle]"]
    hit = int(np.argmax(old.values))
    added = 0.1 * 0.1  # N s
    impulses = np.array(old.values)
    impulses[hit] += added
    left = read.x_left.copy()
    left[hit, 2:] += added * np.array([-1.0, 10.0])
    series["Lambda_normal[paddle]"] = Series(old.t, impulses)
    spoiled = replace(read, x_left=left)
    laws = {
        one.law: one.worst()
        for one in measured(problem, spoiled, series, np.array(solution.p), np.array(solution.u), 0.0)[:14]
    }
    broken = laws[Law.RESTITUTION]
    assert broken is not None
    assert broken.amount * np.sqrt(2.0) == pytest.approx(
        0.11, rel=1e-6
    )  # the normal of ball - paddle has the norm sqrt 2


def test_rest_has_no_scale_of_its_own() -> None:
    """Nothing moves and nothing acts: residuals of 1e-9 are rest, and not beside nothing."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("ground", gap=q)])
    ocp = ns.OCP(system, horizon=1.0, x0=[0, 0], stage_cost=u**2 + q**2, bounds=ns.Bounds(u=(-1, 1)))
    assert ns.solve(ocp, ns.FESDJ(control_stages=3)).status is ns.Status.SOLVED


def test_a_system_without_contacts_is_judged_too() -> None:
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u)
    ocp = ns.OCP(system, horizon=1.0, x0=[1, 0], stage_cost=u**2 + q**2)
    assert ns.solve(ocp, ns.FESDJ(control_stages=3)).status is ns.Status.SOLVED


def test_an_iterate_that_is_no_solution_says_so_before_its_events() -> None:
    far = replace(paddle(), terminal_constraints=())
    ocp = replace(far, terminal_constraints=[ns.Constraint(far.system.q[1], 200, 200)])
    lost = ns.solve(ocp, METHOD, ns.Homotopy())
    text = lost.summary()
    assert lost.status is ns.Status.LOCALLY_INFEASIBLE
    assert "the grid holds" not in text
    assert "events of the last iterate, which is not a solution" in text
    assert "equation sum of the control stages' lengths" in text
    assert "FESDJ(control_stages=6, equidistant_control_grid=False), solver Homotopy()" in text
    won = ns.solve(paddle(), METHOD).summary()
    assert "of the last iterate" not in won
    assert "solver Auto()" in won


def test_small_impacts_are_events() -> None:
    """Three impacts of 1e-8 N s; times by an independent simulation."""
    system, start = paddle(SIZE, MASS).system, [0, SIZE, 0, 0]
    given = {"x0": start, "duration": 2 * SIZE**0.5, "u": [12.0]}
    found = ns.simulate(system, steps=50, **given)
    truth = ns.simulate(system, method=ns.EventDriven(), **given)
    assert len(truth.impacts) == 3
    np.testing.assert_allclose([e.time for e in found.impacts], [e.time for e in truth.impacts], rtol=1e-8)
    assert max(event.impulse or 0.0 for event in found.impacts) < 1e-6


def test_an_impact_that_raises_the_energy_is_no_solution_and_no_matter_of_units() -> None:
    """Newton's restitution with friction on one end of a rod gains .711 J, in closed form; another spin loses."""
    constants = falling_rod.Constants(frictions=(0.6, 0.6), restitutions=(1.0, 1.0))
    system = falling_rod.build(constants)
    for speed, gains in ((-1.0, True), (3.0, False)):
        before = np.array([speed, -0.5, 6.0])
        after = falling_rod.strike(0.8, before, "left", constants).v
        gain = 0.5 * float(np.array(constants.masses) @ (after**2 - before**2))
        assert (gain > 0.0) is gains
        ocp = ns.OCP(system, horizon=0.01, x0=[*falling_rod.tilted(0.8, 0.0, constants)[:3], *before])
        solution = ns.solve(ocp, ns.FESDJ(control_stages=1, finite_elements=2))
        found = ns.certify(ocp, solution)
        assert solution.status is (ns.Status.ENERGY_GAIN if gains else ns.Status.SOLVED)
        assert found.verdict is (Verdict.REFUTED if gains else Verdict.CONFIRMED)
        if gains:
            (rise,) = [one for one in found.findings if one.law is Law.ENERGY]
            assert rise.amount == pytest.approx(gain, rel=1e-6)
            assert "kinetic energy rises at left" in solution.message
