"""Random MPCCs: enumeration of their branches contradicts no claim of any solver, and the judge tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

import nosnoc_py as ns
from tests.references.mpcc_branches import KINDS, SLOPE, false_claim, made, residuals, slopes, truth

SOLVERS: Mapping[str, Any] = {"auto": ns.Auto(), "active_set": ns.ActiveSet(), "homotopy": ns.Homotopy()}
SEEDS = range(35)  # the classes take turns


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a solver claims of one program, what enumeration says of it, and the error of the claims."""

    seed: int
    solver: str
    status: str
    feasible: bool | None
    unbounded: bool
    false: str


@pytest.fixture(scope="module")
def rows():
    """The solvers take turns, too."""
    made_rows = []
    for seed in SEEDS:
        program, solver = made(seed), tuple(SOLVERS)[seed % len(SOLVERS)]
        known, result = truth(program), ns.solve_mpcc(program.mpcc, SOLVERS[solver], time_limit=10.0)
        made_rows.append(
            Row(
                seed=seed,
                solver=solver,
                status=result.status.value,
                feasible=known.feasible,
                unbounded=known.unbounded,
                false=false_claim(program, known, result),
            )
        )
    return made_rows


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
        assert program.kind == tuple(KINDS)[row.seed % len(KINDS)]
        assert row.feasible is (program.kind != "infeasible")
        assert row.unbounded is (program.kind == "unbounded")
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
