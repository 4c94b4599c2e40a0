"""A part of the benchmark `random_mpccs`: enumeration contradicts no claim of any solver, and the judge tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import nosnoc_py as ns
from problems.benchmarks import random_mpccs
from tests.problems.command_line import run_json
from tests.references.mpcc_branches import KINDS, SLOPE, false_claim, made, residuals, slopes, truth

SEEDS = range(35)  # the classes take turns


@pytest.fixture(scope="module")
def rows():
    return list(random_mpccs.experiment(count=len(SEEDS), in_turns=True))


def test_no_claim_is_false(rows):
    assert [(row.seed, row.solver, row.false) for row in rows if row.false] == []


def test_what_is_infeasible_or_unbounded_is_named_so(rows):
    for row in rows:
        assert row.feasible is not False or row.status == "infeasible", row
        assert not row.unbounded or row.status == "unbounded", row
    assert sum(row.feasible is False for row in rows) >= len(SEEDS) // len(KINDS)
    assert sum(row.unbounded for row in rows) >= len(SEEDS) // len(KINDS)


def test_most_of_the_others_are_solved(rows):
    others = [row for row in rows if row.feasible and not row.unbounded]
    assert len(others) >= 20
    assert sum(row.status == "solved" for row in others) >= len(others) - 2


def test_programs_are_what_their_class_says(rows):
    for row in rows:
        program = made(row.seed)
        assert program.kind == row.kind == tuple(KINDS)[row.seed % len(KINDS)]
        assert row.feasible is (row.kind != "infeasible")
        assert row.unbounded is (row.kind == "unbounded")
        if program.feasible is not None:
            assert max(residuals(program, program.feasible)) <= 1e-9
        if program.ray is not None:
            far = program.feasible + 1e3 * program.ray
            assert max(residuals(program, far)) <= 1e-9
            assert program.gradient(far) @ program.ray < -0.1


def test_the_judge_finds_lies():
    """A solution moved, claims exchanged."""
    program = made(0)
    known = truth(program)
    result = ns.solve_mpcc(program.mpcc)
    assert result.success
    assert false_claim(program, known, result) == ""
    moved = replace(result, w=result.w + 1e-3)
    assert false_claim(program, known, moved) != ""
    for status in (ns.Status.INFEASIBLE, ns.Status.UNBOUNDED):
        assert false_claim(program, known, replace(result, status=status)) != ""
    assert false_claim(program, replace(known, unbounded=True), result) == "solved, but unbounded"
    assert false_claim(program, replace(known, feasible=False), result) == "solved, but infeasible"


def test_slopes_tell_b_from_s_from_neither():
    """Scheel and Scholtes (2000), example 3, among the random ones; and a feasible point that is no solution."""
    kinds = set()
    for seed in range(3, 140, 7):
        program = made(seed)
        found = slopes(program, program.feasible)
        kinds.add(tuple(value < -SLOPE for value in found))
    assert kinds == {(False, False), (False, True), (True, True)}


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(random_mpccs.PROGRAM, capsys, "--set", "count=7", "in_turns=true")
    assert results["false"] == []
    assert len(results["rows"]) == 7
    assert np.sum([line["programs"] for line in results["summary"] if line["class"] == "all"]) == 7
