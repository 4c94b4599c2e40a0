"""Random QPCCs solved in three ways: a small part of `problems.benchmarks.qpcc_orders`."""

from __future__ import annotations

import numpy as np
import pytest

import nosnoc_py as ns
from problems.benchmarks import qpcc_orders
from problems.benchmarks.qpcc_orders import Outcome, Row
from tests.problems.command_line import run_json
from tests.references.random_qpccs import random_problem

pytestmark = pytest.mark.usefixtures("compiled_search")


def test_searches_are_at_the_best_value_and_relaxations_are_feasible(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(qpcc_orders.PROGRAM, capsys, "--quick")
    assert results["status"] == "solved"
    lines = {(line["pairs"], line["means"]): line for line in results["summary"]}
    assert set(lines) == {(pairs, means) for pairs in (3, 5) for means in qpcc_orders.MEANS}
    for (_, means), line in lines.items():
        assert line["problems"] == (1 if means == "relaxation" else 3)
        assert line["proved"] == (means != "relaxation")
        assert line["at_best"] == 1.0 or means == "relaxation"
        assert 0.0 < line["p50"] <= line["p99"]


def test_enumeration_is_for_few_pairs_and_a_cut_search_is_no_proof() -> None:
    problem = random_problem(np.random.default_rng(0), 16, 11)
    assert qpcc_orders.all_orders(problem, 100) is None
    whole, cut = qpcc_orders.searched(problem, 10_000), qpcc_orders.searched(problem, 2)
    assert (whole.proved, cut.proved, cut.programs) == (True, False, 2)
    assert cut.bound <= whole.objective


def test_answers_that_contradict_the_problem_are_not_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def row_of(**changed: float) -> Row:
        outcome = Outcome(**{"seconds": 0.0, "objective": 1e3, **changed})
        monkeypatch.setitem(qpcc_orders.MEANS, "search", lambda *_: outcome)
        (row,) = qpcc_orders.experiment(pairs=(2,), means=("search",), problems=1)
        return row

    assert row_of().right
    assert not row_of().at_best
    assert not row_of(violation=1e-3).right
    assert not row_of(bound=1e3).right
    results = run_json(qpcc_orders.PROGRAM, capsys, "--set", "pairs=2,", "means=search", "problems=1")
    assert results["status"] != "solved"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ns.OptionError, match="search"):
        list(qpcc_orders.experiment(means=("serch",), problems=1))
