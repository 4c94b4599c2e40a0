"""Multiple shooting with free phase durations: order, validity, what an OCP may have, honest ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.methods.shooting.phases import PhaseShooting, PhaseState
from nosnoc_py.mpcc.interior.method import InteriorPoint
from nosnoc_py.mpcc.ipopt import Ipopt, NLPResult
from nosnoc_py.status import Status
from nosnoc_py.systems.hybrid import HybridSystem, StateJump
from problems.two_discs import build, data
from tests.pairwise import slow_row
from tests.references.two_discs import optimum

WALL = ("discs", "wall_2")


def spiking(**fields: Any) -> ns.OCP:
    """An integrator that falls from 1 to 0 and has to be at 1/2 in the end: u = 3/2, a spike at 2/3, cost 9/4."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    system = HybridSystem(x=x, u=u, flow=u, jumps=[StateJump("spike", guard=1 - x, reset=ca.SX(0))])
    end = [ns.Constraint(x, 0.5, 0.5)]
    return ns.OCP(system, **{"horizon": 1.0, "x0": [0.0], "stage_cost": u**2, "terminal_constraints": end, **fields})


@pytest.mark.parametrize("experiment", [slow_row("concentric"), "general", "wall"])
def test_second_order_in_few_iterations(experiment: str) -> None:
    best, errors, effort = optimum(experiment), [], []
    for intervals in (8, 16, 32):
        found = PhaseShooting(intervals=intervals).solve(build(experiment), guess=data(experiment).control)
        assert found.status is Status.SOLVED, found.message
        assert tuple(event.name for event in found.events) == best.contacts
        effort.append(found.iterations)
        middles = (found.u_grid[1:] + found.u_grid[:-1]) / 2
        off = np.sqrt((np.diff(found.u_grid)[:, None] * (found.u - best.control(middles)) ** 2).sum())
        times = [abs(event.time - s) for event, s in zip(found.events, best.times, strict=True)]
        errors.append([found.objective - best.objective, off, *times])
    assert np.median(effort) <= 15
    assert max(effort) <= 30
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert orders == pytest.approx(np.full_like(orders, 2.0), abs=0.06)
    assert (np.array(errors)[:, 0] > 0).all()  # controls that are constant in pieces cannot be better


def test_the_referee_sees_the_same_motion() -> None:
    ocp = build("wall", masses=(1.0, 1.5), restitution=0.7)
    found = PhaseShooting(intervals=10).solve(ocp, guess=(3, 3))
    assert found.status is Status.SOLVED, found.message
    again = ns.simulate(ocp.system, x0=ocp.x0, duration=1.0, u=found, method=ns.EventDriven())
    assert [event.name for event in again.impacts] == [event.name for event in found.events] == list(WALL)
    assert again.final_state == pytest.approx(found.final_state, abs=1e-9)
    for event, other in zip(again.impacts, found.events, strict=True):
        assert event.time == pytest.approx(other.time, abs=1e-10)
        assert event.impulse == pytest.approx(other.impulse, abs=1e-9)
    for t in (0.2, 0.55, 0.9):  # between the nodes
        assert again(t) == pytest.approx(found(t), abs=1e-9)


def test_sequence_from_names_from_a_control_and_from_a_solution() -> None:
    ocp = build("wall")
    named = PhaseShooting(sequence=WALL).solve(ocp)  # zero control: nothing collides
    pushed = PhaseShooting().solve(ocp, guess=(3, 3))
    warm = PhaseShooting().solve(ocp, guess=pushed)
    for found in (named, pushed, warm):
        assert found.status is Status.SOLVED, found.message
        assert found.objective == pytest.approx(pushed.objective, abs=1e-9)
    without = PhaseShooting().solve(ocp)
    assert without.status is Status.COLLISION_LOST
    assert "sequence" in without.message


@pytest.mark.parametrize(
    ("start", "says"), [((4.0, 4.5), "shrunk"), slow_row((4.0, 6.0), "shrunk"), slow_row((4.0, 3.0), "")]
)
def test_three_collisions_are_kept(start: tuple[float, float], says: str) -> None:
    """The program cannot leave its sequence; with the right one it finds the optimum from the same controls."""
    ocp, best = build("wall"), optimum("wall").objective
    three = PhaseShooting().solve(ocp, guess=start)
    assert len(three.events) == 3
    assert three.status is (Status.NOT_AN_OPTIMUM if says else Status.SOLVED)
    assert (says in three.message) if says else three.message == ""
    assert three.objective > best + 0.02
    two = PhaseShooting(sequence=WALL).solve(ocp, guess=start)
    assert two.status is Status.SOLVED
    assert two.objective == pytest.approx(best, abs=1e-5)


def test_a_missing_collision_is_noticed() -> None:
    found = PhaseShooting(sequence=("discs",)).solve(build("wall"), guess=(3, 3))
    assert found.status is Status.NOT_AN_OPTIMUM
    assert "is an active constraint without a collision" in found.message
    assert found.objective > optimum("wall").objective + 0.1


def test_penetration_between_nodes_is_noticed() -> None:
    """A ball that is thrown through a thin bump of the ground, which no node of a coarse grid sees."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
    bump = q[1] - 0.3 * ca.exp(-(((q[0] - 0.37) / 0.02) ** 2))
    system = ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=u, contacts=[ns.Contact("ground", gap=bump, restitution=1.0)]
    )
    cost = 100 * ca.sumsqr(q - ca.DM([1, 0.1]))
    ocp = ns.OCP(system, horizon=1.0, x0=[0, 0.1, 1, 0], stage_cost=ca.sumsqr(u), terminal_cost=cost)
    found = PhaseShooting(sequence=(), intervals=4).solve(ocp)
    assert found.status is Status.NOT_AN_OPTIMUM
    assert "'ground' is penetrated" in found.message


def test_other_hybrid_systems() -> None:
    found = PhaseShooting(intervals=3).solve(spiking(), guess=1.7)
    assert found.status is Status.SOLVED, found.message
    assert found.objective == pytest.approx(2.25, abs=1e-9)
    assert found.events[0].name == "spike"
    assert found.events[0].time == pytest.approx(2 / 3, abs=1e-8)
    assert found.u == pytest.approx(np.full((6, 1), 1.5), abs=1e-8)
    twice = PhaseShooting(intervals=3, sequence=("spike", "spike")).solve(spiking(), guess=1.7)
    assert twice.objective == pytest.approx(6.25, abs=1e-9)


def test_free_time_start_parameters_and_path_constraints() -> None:
    """Time costs 1: u = 1, T = 3/2, cost 3; with u <= 4/5 T = 15/8; a free start costs nothing."""
    timed = {"horizon": ns.FreeTime(0.5, 4.0, 1.4)}
    u = (ocp := spiking(**timed)).system.u
    cost = u**2 + 1

    def solved(problem: ns.OCP) -> ns.Solution:
        found = PhaseShooting(intervals=4).solve(problem, guess=1.2)
        assert found.status is Status.SOLVED, found.message
        return found

    def like(base: ns.OCP, **fields: Any) -> ns.OCP:
        given = {"horizon": base.horizon if base.free_time is None else base.free_time, "x0": base.x0}
        kept = {"stage_cost": base.stage_cost, "terminal_constraints": base.terminal_constraints}
        return ns.OCP(base.system, **{**given, **kept, **fields})

    free = solved(like(ocp, stage_cost=cost))
    assert free.horizon == pytest.approx(1.5, abs=1e-7)
    assert free.objective == pytest.approx(3.0, abs=1e-8)
    for extra in (
        {"bounds": ns.Bounds(u=(-1.0, 0.8))},
        {"path_constraints": [ns.Constraint(u, upper=0.8, at="control_grid")]},
        {"path_constraints": [ns.Constraint(u, upper=0.8, at="rk_stages")]},
    ):
        slow = solved(like(ocp, stage_cost=cost, **extra))
        assert slow.horizon == pytest.approx(1.875, abs=1e-7)
    longer = like(ocp, horizon=ns.FreeTime(0.5, 4.0, 0.6), stage_cost=cost)
    again = PhaseShooting(intervals=4).solve(longer, guess=slow)  # the spike of the guess is after 0.6 s
    assert again.status is Status.SOLVED, again.message
    assert again.horizon == pytest.approx(1.5, abs=1e-7)
    base = spiking()
    somewhere = solved(like(base, x0=None, initial_constraints=[ns.Constraint(base.system.x, 0.2, 0.3)]))
    assert somewhere.x0 == pytest.approx([0.3], abs=1e-7)
    assert somewhere.objective == pytest.approx(1.2**2, abs=1e-7)


def test_free_parameters_are_optimised() -> None:
    x, u, p = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("p")
    system = HybridSystem(
        x=x, u=u, p=p, flow=u, jumps=[StateJump("spike", guard=1 - x, reset=p)], p_default=[0.0], names={"p": ["low"]}
    )
    ocp = ns.OCP(
        system,
        horizon=1.0,
        x0=[0.0],
        stage_cost=u**2,
        terminal_constraints=[ns.Constraint(x, 0.5, 0.5)],
        free_parameters={"low": (-1.0, 0.4)},
    )
    found = PhaseShooting(intervals=3).solve(ocp, guess=1.7)
    assert found.status is Status.SOLVED, found.message
    assert found["low"] == pytest.approx(0.4, abs=1e-7)
    assert found.objective == pytest.approx(1.1**2, abs=1e-7)


def test_a_free_start_is_not_beyond_a_guard() -> None:
    """u = -1 costs nothing, but would have to start at 3/2, behind the spike at 1, which is left between two nodes."""
    base = spiking()
    ocp = ns.OCP(
        base.system,
        horizon=1.0,
        stage_cost=(base.system.u + 1) ** 2,
        terminal_constraints=base.terminal_constraints,
        bounds=ns.Bounds(x=(-5.0, 5.0)),
    )
    found = PhaseShooting(sequence=(), intervals=2).solve(ocp)
    assert found.x0 == pytest.approx([1.0], abs=1e-7)
    assert found.objective == pytest.approx(0.25, abs=1e-7)


def test_several_parameters() -> None:
    """x' = u + p0 goes from 0 to 1, is put to p1 = 0, and goes on to 1/2: u = 3/2 - p0 all the time."""
    x, u, p = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("p", 2)
    system = HybridSystem(x=x, u=u, p=p, flow=u + p[0], jumps=[StateJump("spike", guard=1 - x, reset=p[1])])
    ocp = ns.OCP(
        system,
        horizon=1.0,
        x0=[0.0],
        p=[-1.0, 0.0],
        stage_cost=(u - 1) ** 2,
        terminal_constraints=[ns.Constraint(x, 0.5, 0.5)],
    )
    found = ns.solve(ocp, ns.DirectShooting(form="phases"), guess=2.7)
    assert found.status is Status.SOLVED, found.message
    assert found.objective == pytest.approx(2.25, abs=1e-8)
    assert found.u.min() == pytest.approx(2.5, abs=1e-6)


def test_a_free_start_between_bounds() -> None:
    """A ball that is to be at 0.2 after a bounce, without force: from the middle of its bounds it falls, from 0 not."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q, restitution=0.5)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM(1), force=u - 9.81, contacts=[ground])
    ocp = ns.OCP(
        system,
        horizon=0.7,
        stage_cost=u**2,
        terminal_constraints=[ns.Constraint(q, 0.2, 0.2)],
        bounds=ns.Bounds(x=([0.0, -5.0], [2.0, 5.0])),
    )
    found = ns.solve(ocp, ns.DirectShooting(form="phases"))
    assert found.status is Status.SOLVED, found.message
    assert found.objective == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("at", ["control_grid", "rk_stages"])
def test_a_ball_is_one_from_its_centre(at: str) -> None:
    """|u| has no derivative at zero, where the program starts, and where controls end."""
    free, radius = build("general"), 4.5

    def solved(length: ca.SX, upper: float) -> ns.Solution:
        ocp = ns.OCP(
            free.system,
            horizon=1.0,
            x0=free.x0,
            stage_cost=free.stage_cost,
            terminal_cost=free.terminal_cost,
            path_constraints=[ns.Constraint(length, upper=upper, at=at)],
        )
        found = PhaseShooting(sequence=("discs",), intervals=10).solve(ocp)
        assert found.status is Status.SOLVED, found.message
        assert np.linalg.norm(found.u, axis=1).max() == pytest.approx(radius, abs=1e-6)
        return found

    u = free.system.u
    ball = solved(ca.norm_2(u), radius)
    assert ball.objective == pytest.approx(solved(ca.sumsqr(u), radius**2).objective, abs=1e-9)
    assert np.linalg.norm(ball.u[-10:], axis=1).max() < 1e-3


def test_an_end_without_progress_at_a_feasible_point_is_feasible(monkeypatch: pytest.MonkeyPatch) -> None:
    for solver in (InteriorPoint, Ipopt):

        def stalled(self: Any, *arguments: Any, whole: Any = solver.solve, **options: Any) -> NLPResult:
            return replace(whole(self, *arguments, **options), solver_status="Search_Direction_Becomes_Too_Small")

        monkeypatch.setattr(solver, "solve", stalled)
    found = PhaseShooting(intervals=3).solve(spiking(), guess=1.7)
    assert found.status is Status.FEASIBLE
    assert found.message == "the solver ended by Search_Direction_Becomes_Too_Small"


def test_a_collision_at_the_start_is_told() -> None:
    found = PhaseShooting().solve(spiking(x0=[1.0]), guess=1.7)
    assert found.status is Status.NOT_AN_OPTIMUM
    assert "'spike' is hit at t = 0" in found.message
    assert np.isfinite(found.objective)


def test_infeasible_and_unfinished() -> None:
    far = PhaseShooting(intervals=3).solve(spiking(bounds=ns.Bounds(u=(-1.0, 1.2))), guess=1.2)
    assert far.status is Status.LOCALLY_INFEASIBLE
    assert far.infeasibility > 0.04
    few = PhaseShooting(max_iterations=2).solve(build("wall"), guess=(3, 3))
    assert few.status is Status.ITERATION_LIMIT
    late = PhaseShooting(intervals=40).solve(build("wall"), guess=(3, 3), time_limit=0.0)
    assert late.status is Status.TIME_LIMIT
    seen: list[PhaseState] = []
    found = PhaseShooting(intervals=4).solve(build("general"), guess=(0, 3), callback=seen.append)
    assert [state.records for state in seen] == [found.log]
    assert found.log[0].collisions[0][0] == "discs"


def test_what_it_cannot_take() -> None:
    with pytest.raises(OptionError, match=r"'wall'.*discs"):
        PhaseShooting(sequence=("wall",)).solve(build("general"))
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    bodies: dict[str, Any] = {"q": q, "v": v, "u": u, "mass_matrix": ca.DM(1), "force": u}
    soft = ns.CLS(contacts=[ns.Contact("wall", gap=1 - q)], **bodies)
    with pytest.raises(ModelError, match="inelastic"):
        PhaseShooting().solve(ns.OCP(soft, horizon=1.0, x0=[0, 0], stage_cost=u**2))
    with pytest.raises(OptionError, match="no contacts"):
        PhaseShooting().solve(ns.OCP(ns.CLS(**bodies), horizon=1.0, x0=[0, 0], stage_cost=u**2))
