"""A search that fails says how near the system gets to its goal, and its last iterate is a guess."""

from __future__ import annotations

import time

import casadi as ca
import pytest

import nosnoc_py as ns
from nosnoc_py.attempts.work import counted
from nosnoc_py.search.nearest import nearest_motion

X, U = ca.SX.sym("x", 2), ca.SX.sym("u")


def cart(**fields: object) -> ns.OCP:
    """A cart of 1 kg, driven by at most 1 N for 1 s from rest: it gets 0.5 m far at most, or 0.25 m to rest."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    wall = ns.Contact("wall", gap=5 - q)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[wall])
    goals = [ns.Constraint(q == 2, name="target")]
    return ns.OCP(
        system, horizon=1.0, x0=[0, 0], stage_cost=1e-3 * u**2, bounds=ns.Bounds(u=(-1, 1)),
        **{"terminal_constraints": goals, **fields},
    )  # fmt: skip


def test_the_goal_that_is_missed_is_named() -> None:
    nearest = nearest_motion(cart(), [[0.5]])
    assert nearest is not None
    assert nearest.amount == pytest.approx(1.5, abs=1e-6)  # full thrust: x = 1/2
    assert nearest.misses == ("target (q) is 0.5, expected 2",)


def test_a_goal_that_can_be_reached_is_not_missed() -> None:
    """The negative control."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=5 - q)])
    bounds = ns.Bounds(u=(-1, 1))
    ocp = ns.OCP(system, horizon=1.0, x0=[0, 0], stage_cost=1e-3 * u**2, bounds=bounds, terminal_constraints=[q == 0.4])
    assert nearest_motion(ocp, [[0.5]]) is None


def test_without_a_goal_or_work_there_is_nothing_to_say() -> None:
    assert nearest_motion(cart(terminal_constraints=[]), [[0.5]]) is None
    assert nearest_motion(cart(), [[0.5]], time.monotonic()) is None
    with counted(limit=0.0):
        assert nearest_motion(cart(), [[0.5]]) is None


def test_a_failed_search_says_it_and_its_iterate_is_a_guess() -> None:
    failed = ns.solve(cart(), ns.Search(effort="quick", starts=("constant", "line")))
    assert not failed.success
    assert "the nearest motion misses the goal: target (q) is 0.5, expected 2" in failed.message
    again = ns.solve(cart(), ns.MultiPhase(refinements=0), guess=failed)
    assert not again.success


def test_the_nearest_motion_may_use_the_whole_free_horizon() -> None:
    """A mass goes 1/4 to rest in at most one second with |u| <= 1: x = T^2 / 4, not that of the guess of T."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    horizon = ns.FreeTime(0.1, 1.0)
    ocp = ns.OCP(
        ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u),
        horizon=horizon,
        x0=[0, 0],
        terminal_cost=horizon.symbol,
        bounds={"u_0": (-1, 1)},
        terminal_constraints=[ns.Constraint(q == 1, name="place"), ns.Constraint(v == 0, name="rest")],
    )
    motion = nearest_motion(ocp, [[1.0]])
    assert motion is not None
    assert motion.solution.horizon == pytest.approx(1.0, abs=1e-6)
