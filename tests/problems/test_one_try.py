"""Parts of one try, measured from outside."""

from __future__ import annotations

import pytest

import nosnoc_py as ns
from nosnoc_py.sequences import refinement
from problems.benchmarks.one_try import OTHER, PARTS, PartTimes, beside, measure, measured_parts, page_of
from problems.benchmarks.one_try_cases import CASES


def test_a_part_within_a_part_belongs_to_the_outer_one() -> None:
    ticks = iter(range(100))
    times = PartTimes(clock=lambda: float(next(ticks)))
    inner = times.wrapped("simulating", lambda: None)
    outer = times.wrapped("certifying", inner)
    outer()
    inner()
    assert times.calls == {**dict.fromkeys(PARTS, 0), "certifying": 1, "simulating": 1}
    assert (times.seconds["certifying"], times.seconds["simulating"]) == (1.0, 1.0)


def test_every_part_of_a_paddle_is_seen_and_functions_are_put_back() -> None:
    before = refinement.certify
    case = CASES["paddle"]
    with measured_parts() as times:
        assert refinement.certify is not before
        ns.solve(case.build(), case.method, guess=case.guess())
    assert refinement.certify is before
    assert all(calls >= 1 for calls in times.calls.values()), times.calls


def test_parts_add_up_and_programs_by_hand_agree() -> None:
    row = measure("ball")
    assert row["verdict"] == "confirmed"
    assert sum(row[part] for part in (*PARTS, OTHER)) == pytest.approx(row["total"], rel=1e-12)
    others = beside("ball", row)
    # Eight intervals in each of the two phases, in both programs: the same optimum.
    assert others["differs by"] < 1e-4
    assert others["difference"] < 1e-10
    page = page_of([{"parts": row, "beside": others}])
    assert page.count("| ball |") == 2


def test_cases_can_be_built() -> None:
    assert set(CASES) == {
        "ball", "paddle", "discs", "hopper", "push_t", "kneed_leg", "biped", "arm", "quadruped", "ant"
    }  # fmt: skip
    assert all(len(case.build().system.state_names) >= 2 for case in CASES.values())
