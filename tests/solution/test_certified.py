"""A solution with its certificate, the starts of a search and their agreement: shown, saved, and read back."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.solution import Solution, load


def contents_of(value: Any) -> Any:
    """Everything in a value, so that equal ones are equal to the bit; NaN is NaN, whatever the type of number."""
    if isinstance(value, np.ndarray):
        return value.shape, value.astype(float).tobytes()
    if isinstance(value, ns.Sequence):
        return repr(value.items), None if value.times is None else contents_of(value.times)
    if is_dataclass(value):
        return [(f.name, contents_of(getattr(value, f.name))) for f in fields(value) if f.name != "problem"]
    if isinstance(value, dict):
        return [(key, contents_of(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [contents_of(item) for item in value]
    if isinstance(value, float | np.floating):
        return repr(float(value))
    return repr(value)


@pytest.fixture(scope="module")
def certified() -> Solution:
    """A ball thrown at the ground, coarse elements: the simulation disagrees a little."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q, restitution=0.5)
    ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81 - 0.3 * v * v * v, contacts=[ground])
    goal = [ns.Constraint(q, 0.4, 0.4, name="goal")]
    ocp = ns.OCP(ball, horizon=1.0, x0=[1.0, -4.0], stage_cost=u**2 + v**2, terminal_constraints=goal)
    solution = ns.solve(ocp, ns.FESDJ(control_stages=4, rk_stages=1))
    assert solution.success
    found = ns.certify(ocp, solution)
    assert not found.confirmed
    starts = (
        ns.Candidate(start="line", sequence=solution.sequence, objective=3.25, verdict=found.verdict, work=0.5),
        ns.Candidate(start="random", sequence=None, objective=np.inf, verdict=None, work=0.125),
    )
    return replace(solution, certificate=found, candidates=starts, agreement=("line", "random"))


def test_files_keep_all_of_it(certified: Solution, tmp_path: Path) -> None:
    again = load(certified.save(tmp_path / "run.nc"))
    assert isinstance(again, Solution)
    assert again.certificate is not None
    assert contents_of(again) == contents_of(certified)
    assert repr(again.certificate) == repr(certified.certificate)
    assert again.candidates == certified.candidates


def test_a_certificate_of_a_solution_that_is_no_numbers(certified: Solution, tmp_path: Path) -> None:
    assert certified.certificate is not None
    itself = replace(certified.certificate, trajectory=replace(certified, certificate=None), balance=None)
    odd = replace(certified, certificate=itself)
    assert contents_of(load(odd.save(tmp_path / "odd.nc"))) == contents_of(odd)


def test_processes_and_changes_keep_them(certified: Solution) -> None:
    again = deepcopy(certified)  # as another process gets it
    assert contents_of(again) == contents_of(certified)
    other = replace(certified, message="changed")
    assert other.certificate is certified.certificate
    assert other.candidates == certified.candidates
    assert other.agreement == ("line", "random")


def test_reports(certified: Solution) -> None:
    found = certified.certificate
    assert found is not None
    text = certified.summary()
    assert f"  certificate: {found.verdict}: {found.reason}" in text
    assert f"true objective {found.true_objective:.8g}" in text
    assert "  starts: 2 tried, best found by line, random (2 kinds agree)" in text
    plain = certified.to_dict()
    json.dumps(plain, allow_nan=False)
    assert plain["verdict"] == found.verdict.value
    assert plain["agreement"] == ["line", "random"]
    assert [start["objective"] for start in plain["candidates"]] == [3.25, None]
    sure = replace(certified, certificate=replace(found, verdict=ns.Verdict.CONFIRMED, true_objective=found.objective))
    assert "\n  certificate: confirmed\n" in sure.summary()
    # The difference is relative to large objectives.
    for share, told in ((0.5, False), (2.0, True)):
        large = replace(found, objective=1e6, true_objective=1e6 * (1.0 + share * found.tolerance))
        assert ("true objective" in replace(certified, certificate=large).summary()) is told
    bare = replace(certified, certificate=None, candidates=(), agreement=())
    assert "certificate" not in bare.summary()
    assert "starts" not in bare.summary()
    assert bare.to_dict()["verdict"] is None


def test_a_start_in_one_line(certified: Solution) -> None:
    one, other = certified.candidates
    assert certified.sequence is not None
    phases = len(certified.sequence)
    assert str(one) == f"line: 3.25 in {phases} phases, {one.verdict}, work 0.50"
    assert repr(other) == "<random: nothing found, work 0.12>"
    assert str(replace(one, verdict=None)) == f"line: 3.25 in {phases} phases, not simulated, work 0.50"
