"""Certificates of random spoiled and true solutions: a small part of `problems.benchmarks.spoiled_solutions`."""

from __future__ import annotations

import json

import numpy as np
import pytest

import nosnoc_py as ns
from problems.benchmarks import spoiled_solutions as spoiled
from problems.runner import main
from tests.references.spoiled_solutions import SYSTEMS


@pytest.fixture(scope="module")
def found() -> list[spoiled.Case]:
    return spoiled.cases(count=36, true=12, seed=5)


@pytest.mark.slow
def test_no_spoiled_solution_is_confirmed_and_no_true_one_refuted(found: list[spoiled.Case]) -> None:
    assert len(found) == 48
    confirmed = [case for case in found if case.spoil and case.verdict == ns.Verdict.CONFIRMED.value]
    refuted = [case for case in found if not case.spoil and case.verdict == ns.Verdict.REFUTED.value]
    assert confirmed == []
    assert refuted == []


@pytest.mark.slow
def test_nearly_all_are_told_for_what_they_are(found: list[spoiled.Case]) -> None:
    """Of 36 and 12 cases one may be odd: 95 % of the 500 and 200 of a whole run are asked for."""
    assert sum(case.spoil != "" and case.verdict != ns.Verdict.REFUTED.value for case in found) <= 2
    assert sum(case.spoil == "" and case.verdict != ns.Verdict.CONFIRMED.value for case in found) <= 1


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name != "optimised"])
def test_every_system_gives_true_solutions(system: str) -> None:
    random = np.random.default_rng(11)
    pair = next(pair for pair in (SYSTEMS[system](random) for _ in range(20)) if pair is not None)
    assert pair[1].success
    assert ns.certify(*pair).verdict is not ns.Verdict.REFUTED


def test_what_counts_as_reached() -> None:
    """Negative controls: one spoiled solution that is confirmed, or a true one that is refuted, is a failure."""

    def case(spoil: str, verdict: ns.Verdict) -> spoiled.Case:
        return spoiled.Case(system="bounce", spoil=spoil, verdict=verdict.value, reason="")

    good = [case("state", ns.Verdict.REFUTED)] * 40 + [case("", ns.Verdict.CONFIRMED)] * 40
    assert spoiled.reached(good)
    assert spoiled.reached([*good, case("state", ns.Verdict.INACCURATE)])
    assert not spoiled.reached([*good, case("state", ns.Verdict.CONFIRMED)])
    assert not spoiled.reached([*good, case("", ns.Verdict.REFUTED)])
    assert not spoiled.reached(good + [case("state", ns.Verdict.UNDECIDED)] * 4)


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(spoiled.PROGRAM, ["--json", "--set", "count=3", "true=1", "seed=2"]) in (0, 1)
    results = json.loads(capsys.readouterr().out)
    assert sum(results["spoiled"].values()) == 3
    assert sum(results["true"].values()) == 1
