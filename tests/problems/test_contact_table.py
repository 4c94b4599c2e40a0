"""Problems that others have posed: they build, their literal versions have the known sizes, rows are saved and shown.

Three of them are solved as the table does it; a second simulation judges controls of others.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from problems.benchmarks.contact import NAMES, nosnoc_program, posed
from problems.benchmarks.contact.methods import ABSENT, METHODS, Answer, Control, nosnoc, of_control, smoothed
from problems.benchmarks.contact_table import NEAR, Row, best_of, counts, experiment, merged, page_of, stored
from tests.pairwise import slow_row

SIZES = {
    "crisp_pushbot": (700, 198),
    "crisp_push_box": (900, 990),
    "crisp_transport": (1600, 600),
    "crisp_hopper": (2200, 400),
}
# By plain Scholtes with IPOPT, from the start of the source.
PLAIN = {"crisp_pushbot": 2.7202, "crisp_push_box": 14.037, "crisp_transport": 2.95835}


def row(problem: str, method: str, objective: float, verdict: str = "confirmed") -> Row:
    made = Answer(status="solved", verdict=verdict, objective=objective, true_objective=objective)
    return Row(problem=problem, method=method, seconds=1.0, answer=made)


@pytest.mark.quick
@pytest.mark.parametrize("name", NAMES)
def test_problems_build_and_say_where_they_are_from(name: str) -> None:
    problem = posed(name)
    ocp = problem.build()
    assert problem.source
    assert problem.stages > 0
    assert np.isfinite(np.asarray(ocp.x0)).all()
    motion = ns.simulate(ocp.system, x0=ocp.x0, duration=0.01, u=np.zeros(ocp.system.n_u))
    assert motion.success


@pytest.mark.quick
@pytest.mark.parametrize("name", SIZES)
def test_literal_problems_have_the_sizes_of_their_source(name: str) -> None:
    literal = posed(name).literal
    assert literal is not None
    mpcc = literal()
    assert (mpcc.w.numel(), mpcc.G.numel()) == SIZES[name]


@pytest.mark.parametrize("name", PLAIN)
def test_literal_problems_are_solved_at_least_as_well_as_by_plain_scholtes(name: str) -> None:
    literal = posed(name).literal
    assert literal is not None
    result = ns.solve_mpcc(literal())
    assert result.success
    assert result.objective <= 1.01 * PLAIN[name]


@pytest.mark.quick
def test_rows_are_kept(tmp_path: Path) -> None:
    asked = {"problems": ("crisp_pushbot",), "methods": ("default",), "literal": True, "kept": str(tmp_path)}
    first, again = experiment(**asked), experiment(**asked)
    assert first[0].confirmed
    assert first == again  # seconds, too: it was not solved again


@pytest.mark.quick
def test_what_is_not_confirmed_counts_for_nothing() -> None:
    rows = [row("two_carts", "a", 113.0), row("two_carts", "b", 100.0, "refuted"), row("two_carts", "c", 118.0)]
    assert best_of(rows, "two_carts") == pytest.approx(113.0)
    assert [one["within 5 %"] for one in counts(rows)] == [1, 0, 1]
    assert [one["within 1 %"] for one in counts(rows)] == [1, 0, 0]
    page = page_of(rows)
    assert "**113** (1 s) | - (refuted, 1 s) | **118** (1 s)" in page


@pytest.mark.quick
def test_a_stored_page_keeps_columns_that_are_not_run_again() -> None:
    rows = [row("two_carts", "default", 113.0), row("two_carts", "smoothed", 18311.0), row("push_t", "default", 0.13)]
    rows.append(replace(rows[0], method="relaxation", answer=replace(rows[0].answer, status="time limit", verdict="")))
    rows = merged(rows, [])
    page = page_of(rows)
    assert page_of(stored(page)) == page
    absent = row("two_carts", "default", np.inf)
    absent = replace(absent, answer=replace(absent.answer, status=ABSENT))
    assert page_of(merged(stored(page), [absent])) == page
    better = page_of(merged(stored(page), [row("two_carts", "smoothed", 100.0)]))
    assert "| 113 (1 s) | - (time limit, 1 s) | **100** (1 s) |" in better
    assert "| **0.13** (1 s) |  |  |" in better


@pytest.mark.parametrize("name", [slow_row("push_t"), "crisp_transport", slow_row("walled_cart_pole")])
def test_the_plain_call_solves_problems_of_others(name: str) -> None:
    (solved,) = experiment(problems=(name,), methods=("default",))
    assert solved.confirmed, solved
    assert solved.value <= NEAR * posed(name).best


def test_smoothed_contacts_do_not_pass_for_a_solution() -> None:
    (solved,) = experiment(problems=("walled_cart_pole",), methods=("smoothed",))
    assert not solved.value <= NEAR * posed("walled_cart_pole").best


def pushed(*, until: float = 1.0, **more: Any) -> ns.OCP:
    """A mass that is pushed along a line for 1 s."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    mass = ns.ODE(x=x, u=u, flow=ca.vertcat(x[1], u), names={"x": ["place", "speed"], "u": ["push"]})
    return ns.OCP(mass, horizon=until, x0=[0, 0], stage_cost=u**2, terminal_cost=x[0], **more)


@pytest.mark.quick
def test_controls_are_judged_by_a_simulation() -> None:
    control = Control(np.array([[2.0], [0.0], [-1.0]]), 1.0, 0.0, "solved", True)
    free = of_control(pushed(), control)
    assert free.verdict == "simulated"
    assert free.true_objective == pytest.approx(5 / 3 + 2 / 3 - 1 / 9 - 1 / 18)
    for limits in (
        {"bounds": {"speed": (None, 0.5)}},
        {"terminal_state": {"speed": 0.0}},
        {"bounds": {"push": (-1, 1)}},
    ):
        broken = of_control(pushed(**limits), control)
        assert "by" in broken.verdict
        assert broken.true_objective == np.inf
    assert of_control(pushed(), replace(control, success=False)).true_objective == np.inf


@pytest.mark.quick
def test_soft_walls_as_switches_are_the_same_problem() -> None:
    problem = posed("crisp_pushbot")
    assert problem.switched is not None
    control = Control(np.linspace(20.0, -8.0, 10)[:, None], 2.0, 0.0, "solved", True)
    as_forces, as_switches = of_control(problem.build(), control), of_control(problem.switched(), control)
    assert as_switches.true_objective == pytest.approx(as_forces.true_objective, rel=1e-6)


@pytest.mark.quick
def test_rigid_contacts_and_memory_are_not_for_nosnoc() -> None:
    expressible = {name for name in NAMES if nosnoc_program.expressible(posed(name).build())}
    assert expressible == {"crisp_push_box", "crisp_transport", "push_t"}
    assert nosnoc(posed("walled_cart_pole"), 1.0) is None


@pytest.mark.quick
@pytest.mark.skipif(nosnoc_program.package() is not None, reason="nosnoc is installed")
def test_without_nosnoc_its_column_says_so() -> None:
    answer = nosnoc(posed("crisp_pushbot"), 1.0)
    assert answer is not None
    assert answer.status == ABSENT


@pytest.mark.skipif(nosnoc_program.package() is None, reason="needs nosnoc 0.2.0")
def test_nosnoc_solves_the_transport() -> None:
    answer = nosnoc(posed("crisp_transport"), 60.0)
    assert answer is not None
    assert answer.true_objective == pytest.approx(2.9579, abs=1e-3)


@pytest.mark.quick
def test_smoothed_contacts_need_contacts() -> None:
    assert smoothed(posed("push_t"), 1.0) is None
    assert set(METHODS) == {"default", "finite elements", "relaxation", "smoothed", "nosnoc 0.2.0"}
