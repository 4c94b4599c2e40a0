"""Searches with several seeds in processes: the best solution of all, all candidates; never worse than the first."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

import nosnoc_py as ns
from nosnoc_py import processes
from nosnoc_py.search.seeds import best_of_seeds, merged
from nosnoc_py.simulation.certification.verdict import Verdict
from nosnoc_py.status import Status
from nosnoc_py.testing.systems import bounce_to

needs_fork = pytest.mark.skipif(not processes.can_fork(), reason="processes cannot be forked here")
STARTS = ("constant", "random", "moves")


@pytest.fixture(scope="module")
def solutions() -> list[ns.Solution]:
    """Of two seeds, each by itself."""
    return [ns.solve(bounce_to(), ns.Search(effort="quick", starts=STARTS, seed=seed)) for seed in (3, 4)]


def rows(solution: ns.Solution) -> list[Any]:
    return [(c.start, c.sequence, c.verdict, c.objective) for c in solution.candidates or ()]


@needs_fork
def test_two_workers_are_two_seeds(solutions: list[ns.Solution]) -> None:
    """Candidates of both, bit for bit; the solution is that of the first seed unless the other one is better."""
    calls = list[Any]()
    search = ns.Search(effort="quick", starts=STARTS, seed=3, workers=2)
    both = ns.solve(bounce_to(), search, callback=calls.append)
    first, second = solutions
    assert rows(both) == rows(first) + rows(second)
    better = second if second.objective < first.objective * (1 - 1e-4) else first
    assert both.objective == better.objective
    assert both.status is Status.SOLVED
    assert "2 of 2 searches, with seeds of their own, found it" in both.message
    assert both.work["random"] == pytest.approx(first.work["random"] + second.work["random"], rel=1e-9)
    assert len(calls) > 1  # in this process
    assert both.method == repr(search)
    assert both.polish().success  # it knows its problem


@needs_fork
def test_a_process_that_dies_and_one_that_fails_are_left_out(solutions: list[ns.Solution]) -> None:
    def search(number: int) -> ns.Solution:
        if number == 1:
            os._exit(9)
        if number == 2:
            raise ZeroDivisionError
        return solutions[0] if number == 0 else solutions[1]

    found = best_of_seeds(search, 4)
    assert rows(found) == rows(solutions[0]) + rows(solutions[1])
    assert "2 of 4 searches gave no result" in found.message


@needs_fork
def test_what_stops_the_first_search_ends_the_others(solutions: list[ns.Solution]) -> None:
    stopped = replace(solutions[0], status=Status.STOPPED)

    def search(number: int) -> ns.Solution:
        while number:
            pass
        return stopped

    assert best_of_seeds(search, 2).status is Status.STOPPED


def test_of_several_the_best_confirmed_one_counts(solutions: list[ns.Solution]) -> None:
    own = solutions[0]
    assert own.certificate is not None
    low = replace(own, objective=0.9 * own.objective)
    assert merged(own, [low]).objective == low.objective
    assert "1 of 2 searches" in merged(own, [low]).message
    refuted = replace(low, certificate=replace(own.certificate, verdict=Verdict.REFUTED))
    assert merged(own, [refuted]).objective == own.objective
    assert merged(refuted, [own]).objective == own.objective
    equal = replace(own, objective=own.objective * (1 - 1e-5), message="other")
    assert merged(own, [equal]).objective == own.objective
    assert merged(own, [equal]).agreement == own.agreement
    assert merged(refuted, []).message == refuted.message
    endless = replace(own, status=Status.UNBOUNDED, certificate=None)
    assert merged(endless, [own]).status is merged(own, [endless]).status is Status.UNBOUNDED
