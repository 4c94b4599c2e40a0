"""Problems that others have posed: they build, their literal versions have the known sizes, rows are kept and told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nosnoc_py as ns
from problems.benchmarks.contact import NAMES, posed
from problems.benchmarks.contact.methods import METHODS, Answer, smoothed
from problems.benchmarks.contact_table import Row, best_of, counts, experiment, page_of

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
def test_smoothed_contacts_need_contacts() -> None:
    assert smoothed(posed("push_t"), 1.0) is None
    assert set(METHODS) == {"default", "finite elements", "relaxation", "smoothed"}
