"""The search in other units: the same candidates, verdicts and objectives; spoiled solutions stay refuted."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

SEARCH = ns.Search(effort="quick", starts=("constant", "line"), program=ns.MultiPhase(intervals=12))


def cart(length: float = 1.0, mass: float = 1.0, time: float = 1.0, cost: float = 1.0) -> ns.OCP:
    """A cart that bounces off a wall to get back, in other units: numbers are those of the unit problem times these."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    force, speed = mass * length / time**2, length / time
    wall = ns.Contact("wall", gap=length - q, restitution=0.5)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=u, contacts=[wall])
    return ns.OCP(
        system, horizon=2.0 * time, x0=[0, 1.6 * speed], stage_cost=cost / time * (u / force) ** 2,
        terminal_constraints=[ns.Constraint(q, equals=0.4 * length)], bounds=ns.Bounds(u=(-9 * force, 9 * force)),
    )  # fmt: skip


@cache
def solved(**units: float) -> ns.Solution:
    return ns.solve(cart(**units), SEARCH)


UNITS = ("length", "mass", "time", "cost")


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("power", [30, -30])
def test_powers_of_two(unit: str, power: int) -> None:
    units = {unit: 2.0**power}
    here, there = solved(), solved(**units)
    size = units.get("cost", 1.0)
    assert there.status is here.status is ns.Status.SOLVED
    assert there.certificate is not None
    assert there.certificate.verdict is ns.Verdict.CONFIRMED
    assert there.objective / size == pytest.approx(here.objective, rel=1e-9)
    found = [(c.start, c.sequence, c.verdict) for c in there.candidates]
    assert found == [(c.start, c.sequence, c.verdict) for c in here.candidates]
    assert there.agreement == here.agreement


@pytest.mark.parametrize(("unit", "factor"), [("length", 1e9), ("mass", 1e-9), ("time", 1e9), ("cost", 1e-9)])
def test_powers_of_ten(unit: str, factor: float) -> None:
    there = solved(**{unit: factor})
    assert there.certificate is not None
    assert there.certificate.verdict is ns.Verdict.CONFIRMED
    assert there.objective / (factor if unit == "cost" else 1.0) == pytest.approx(solved().objective, rel=1e-6)


@pytest.mark.parametrize(("unit", "factor"), [("length", 1e9), ("mass", 1e-9), ("time", 2.0**-30), ("cost", 1e-9)])
def test_a_spoiled_solution_is_refuted(unit: str, factor: float) -> None:
    ocp, solution = cart(**{unit: factor}), solved(**{unit: factor})
    moved = np.array(solution.x)
    moved[-1] *= 1.2
    wrong_state = replace(solution, x=moved, certificate=None)
    wrong_objective = replace(solution, objective=0.999 * solution.objective, certificate=None)
    assert ns.certify(ocp, wrong_state).verdict is ns.Verdict.REFUTED
    assert ns.certify(ocp, wrong_objective).verdict is ns.Verdict.REFUTED
