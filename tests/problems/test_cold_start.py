"""Problems to be solved without a guess: they simulate, their variants are what they say, closed forms agree."""

from __future__ import annotations

import numpy as np
import pytest

import nosnoc_py as ns
from problems.benchmarks.cold_start import experiment, measured, summary
from problems.benchmarks.cold_start_problems import SUITE, landing_optimum
from problems.benchmarks.cold_start_variants import changed, draw, factors

pytestmark = pytest.mark.quick
# The control, as a share of the bounds, under which a problem is simulated.
SHARE = 0.1


def motion(ocp: ns.OCP, u: np.ndarray) -> ns.Trajectory:
    return ns.simulate(ocp.system, x0=ocp.x0, u=u, duration=ocp.horizon, method=ns.EventDriven())


def control(ocp: ns.OCP) -> np.ndarray:
    return SHARE * np.asarray(ocp.u_bounds[1], float)


@pytest.mark.parametrize("name", SUITE)
@pytest.mark.parametrize("change", ["mirrored", "mm, g"])
def test_variants_have_the_motion_of_the_problem(name: str, change: str) -> None:
    """State at the end under the same control, to a billionth."""
    problem = SUITE[name]
    ocp, other = problem.ocp(), changed(problem, change)
    q, u = factors(problem, change)
    by = np.concatenate([q, q]) if isinstance(ocp.system, ns.CLS) else q
    here, there = motion(ocp, control(ocp)), motion(other, control(ocp) / u)
    assert here.success
    assert there.success
    np.testing.assert_allclose(by * there.final_state, here.final_state, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.sort(u * np.array(other.u_bounds), axis=0), ocp.u_bounds, rtol=1e-12)


def test_reordered_contacts() -> None:
    names = [
        [contact.name for contact in ocp.system.contacts]
        for ocp in (SUITE["push"].ocp(), changed(SUITE["push"], "reordered"))
    ]
    assert names == [["finger", "ground"], ["ground", "finger"]]


def test_variants_are_drawn_by_the_seed() -> None:
    first, again, other = draw(SUITE, 8, 1), draw(SUITE, 8, 1), draw(SUITE, 8, 2)
    assert [(v.problem, v.change, v.numbers) for v in first] == [(v.problem, v.change, v.numbers) for v in again]
    assert [v.problem for v in first] != [v.problem for v in other]
    assert {v.change for v in first} == {"numbers", "mirrored", "reordered", "mm, g"}
    for variant in first:
        assert variant.same == (not variant.numbers)


def test_the_closed_form_of_the_landing() -> None:
    """It bounds the best solutions with controls that are constant in intervals, and they are near to it."""
    for problem in SUITE.values():
        if problem.closed is not None:
            least = problem.closed(**problem.numbers)
            assert least <= problem.best <= 1.001 * least
    assert landing_optimum() == pytest.approx(72.573, abs=1e-2)


def test_rows_of_a_run() -> None:
    """One cheap problem is solved."""
    (row,) = experiment(problems=("catch",), time_limit=600.0)
    assert row.solved, row
    assert row.start
    assert "paddle closed" in row.sequence
    (line,) = summary([row])
    assert line["solved"] == "1 of 1"


def test_an_exception_is_a_row() -> None:
    def fail() -> ns.Solution:
        raise ValueError("no")

    row = measured("catch", SUITE["catch"].ocp(), 1.0, "search", 0, fail)
    assert (row.status, row.message, row.solved) == ("exception", "ValueError: no", False)


def test_unknown_names() -> None:
    with pytest.raises(ns.OptionError, match="kind of start"):
        list(experiment(without="luck"))
    with pytest.raises(ns.OptionError, match="problem"):
        list(experiment(problems=("golf",)))
