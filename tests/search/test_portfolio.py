"""`solve` without a method: what it finds against closed forms, what it says, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.mpcc.interior.method import InteriorPoint
from nosnoc_py.search.kinds import STARTS
from nosnoc_py.search.moves import neighbours
from nosnoc_py.search.portfolio import KINDS, MOVES
from nosnoc_py.search.starts import StartTask, goal
from nosnoc_py.sequences import optimise

INTERVALS = ns.Search().program.intervals


def cart(contacts: tuple[ns.Contact, ...] = (), **changed: Any) -> ns.OCP:
    """A mass from rest to rest over 1 m in 1 s, min of the integral of u^2."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=contacts)
    asked: dict[str, Any] = {"terminal_constraints": [ns.Constraint(s.x, [1, 0], [1, 0], name="home")]}
    return ns.OCP(s, **{"horizon": 1.0, "x0": [0, 0], "stage_cost": u**2, **asked, **changed})


def wall(restitution: float = 0.5, **changed: Any) -> ns.OCP:
    """A mass that flies against a wall 1 m away with 3 m/s, and has to be back at 0 after 1 s."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q, restitution=restitution)])
    back = ns.Constraint(q, 0.0, 0.0, name="back")
    asked: dict[str, Any] = {"terminal_constraints": [back], "bounds": ns.Bounds(u=(-30, 30))}
    return ns.OCP(s, **{"horizon": 1.0, "x0": [0, 3], "stage_cost": u**2, **asked, **changed})


def wall_optimum(restitution: float) -> float:
    """The least integral of u^2 over all times of the impact, without one too: two smooth arcs in closed form."""

    def arcs(tau: float) -> float:
        # From (0, 3) to the wall at tau with any speed w, then from (1, -e w) to 0 at 1 s with a free speed.
        w, left = np.linspace(0.0, 6.0, 3001), 1.0 - tau
        there = 4.0 / tau**3 * (3.0 - 3.0 * (3.0 + w) * tau + (9.0 + 3.0 * w + w * w) * tau**2)
        back = 3.0 * (restitution * w * left - 1.0) ** 2 / left**3
        return float((there + back).min())

    free = 27.0  # without an impact: 3 * 3^2, on a way that stays below 0.6 m
    return min(free, *(arcs(float(tau)) for tau in np.linspace(0.05, 0.95, 361)))


def quick(ocp: ns.OCP, **more: Any) -> ns.Solution:
    return ns.solve(ocp, effort="quick", **more)


def test_a_smooth_problem_to_its_closed_form() -> None:
    solution = quick(cart())
    # Constant controls on N intervals of a straight line cost 12 (1 - 1 / N^2) / (1 - 1 / N^2)^2; N is doubled until it
    # loses less than .1 %.
    count = len(solution.u)
    assert count > INTERVALS
    assert solution.objective == pytest.approx(12.0 / (1.0 - 1.0 / count**2), rel=1e-6)
    assert solution.objective < 12.0 * (1.0 + 1e-3)
    assert solution.status is ns.Status.SOLVED
    assert solution.certificate is not None
    assert solution.certificate.confirmed


@cache
def found_against_a_wall(restitution: float) -> ns.Solution:
    """The plain call."""
    return ns.solve(wall(restitution))


@pytest.mark.parametrize("restitution", [0.3, 0.8])
def test_the_plain_call_finds_the_best_motion_against_a_wall(restitution: float) -> None:
    best = wall_optimum(restitution)
    solution = found_against_a_wall(restitution)
    assert solution.status is ns.Status.SOLVED
    assert best * (1 - 1e-3) <= solution.objective <= best * (1 + 2e-3)


def test_what_a_solution_says_of_its_search() -> None:
    solution = found_against_a_wall(0.3)
    assert len(solution.agreement) >= 2
    assert not {MOVES} & set(solution.agreement)
    assert {candidate.start for candidate in solution.candidates} <= set(KINDS)
    found = [c for c in solution.candidates if c.verdict is ns.Verdict.CONFIRMED]
    assert min(c.objective for c in found) == pytest.approx(solution.objective, rel=0.02)
    assert solution.sequence is not None
    text = solution.summary()
    assert "confirmed" in text
    assert "kinds agree" in text


@pytest.mark.quick
def test_refinements_end_with_the_search() -> None:
    state = ns.Search(effort="quick").init(cart(), time_limit=50.0)
    assert state.work.deadline - state.work.started == pytest.approx(50.0, abs=1e-6)
    assert state.work.deadline == state.deadline


def test_step_by_step_as_in_one_go() -> None:
    search = ns.Search(effort="quick")
    state = search.init(cart())
    while search.terminate(state) is None:
        state = search.step(state)
    assert search.solution(state).objective == pytest.approx(quick(cart()).objective, rel=1e-9)
    assert "confirmed" in repr(state)


def test_before_the_first_step_there_is_no_solution() -> None:
    search = ns.Search()
    with pytest.raises(ns.OptionError, match="take a step first"):
        search.solution(search.init(cart()))


@pytest.mark.parametrize(
    ("end", "status"), [(lambda: ns.Stop, ns.Status.STOPPED), (KeyboardInterrupt, ns.Status.INTERRUPTED)]
)
def test_what_ends_the_work_loses_nothing(end: Any, status: ns.Status) -> None:
    def callback(state: Any) -> Any:
        if len(state.candidates) < 2:
            return None
        if end is KeyboardInterrupt:
            raise KeyboardInterrupt
        return end()

    solution = ns.solve(cart(), callback=callback)
    assert solution.status is status
    assert solution.objective == pytest.approx(12.0, rel=0.01)  # of the coarse program
    assert len(solution.candidates) == 2
    assert solution.certificate is not None
    assert solution.certificate.confirmed


def test_no_time_at_all_gives_one_start() -> None:
    solution = ns.solve(cart(), time_limit=0)
    assert len(solution.candidates) == 1
    assert solution.x[-1] == pytest.approx([1, 0], abs=1e-6)


def test_what_cannot_be_reached_is_said() -> None:
    solution = ns.solve(cart(bounds=ns.Bounds(u=(-1, 1))), time_limit=3)
    assert not solution.success
    assert "none of" in solution.message
    assert "the nearest misses" in solution.message


@pytest.mark.parametrize("gain", [-1.0, -1e-6])
def test_an_objective_without_a_lower_bound_is_a_status(gain: float) -> None:
    """Thrust costs nothing and lifts; far out solvers call points acceptable, and more units of it change nothing."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ns.Contact("floor", gap=q)])
    solution = quick(ns.OCP(system, horizon=1.0, x0=[1, 0], stage_cost=gain * q))
    assert (solution.success, solution.status) == (False, ns.Status.UNBOUNDED)
    assert "not proved: the objective falls to -" in solution.message
    assert "while u_0 grows to" in solution.message
    # The negative control: with a bound, or with a price, it has an optimum, 100 sizes of the thrust away.
    bounded = quick(ns.OCP(system, horizon=1.0, x0=[1, 0], stage_cost=gain * q, bounds=ns.Bounds(u=(-20, 20))))
    assert bounded.status is ns.Status.SOLVED
    # q = 1 + (20 - 9.81) t^2 / 2
    assert bounded.objective == pytest.approx(gain * (1.0 + 10.19 / 6.0), rel=1e-6)
    priced = quick(ns.OCP(system, horizon=1.0, x0=[1, 0], stage_cost=-gain * (1e-4 * u**2 - q)))
    assert priced.status is ns.Status.SOLVED


def test_a_descent_without_end_beside_the_best_motion_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    search, solved = ns.Search(effort="quick"), cart()
    state = search.init(solved)
    while search.terminate(state) is None:
        state = search.step(state)
    assert search.solution(state).status is ns.Status.SOLVED
    beyond = state.nodes[-1]
    falls = [
        replace(beyond.attempt, certificate=None, point=replace(beyond.attempt.point, objective=objective))
        for objective in (-50.0, -1e9)
    ]
    monkeypatch.setattr(type(falls[0]), "escapes", property(lambda attempt: any(attempt is each for each in falls)))
    # An optimum may lie far out: one that is a little better there says nothing.
    near, solution = (
        search.solution(replace(state, nodes=(*state.nodes, replace(beyond, attempt=low)))) for low in falls
    )
    assert near.status is ns.Status.SOLVED
    assert solution.status is ns.Status.FEASIBLE
    assert "there may be no optimum: the objective falls to -1e+09" in solution.message


def test_a_model_that_gives_no_numbers_is_a_status() -> None:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u + ca.sqrt(q - 2), contacts=[ns.Contact("g", gap=q)])
    ocp = ns.OCP(s, horizon=1.0, x0=[1, 0], stage_cost=u**2, terminal_constraints=[ns.Constraint(q, 0.5, 0.5)])
    assert ns.solve(ocp, time_limit=2).status is ns.Status.NUMERICAL_ERROR


def test_a_free_horizon_and_a_free_start() -> None:
    T = ns.FreeTime(0.5, 4.0)
    fast = quick(cart(horizon=T, stage_cost=0, terminal_cost=T.symbol, bounds=ns.Bounds(u=(-1, 1))))
    assert fast.horizon == pytest.approx(2.0, rel=1e-3)  # bang-bang: T = 2 sqrt(1 m / 1 m/s^2)
    base = wall(x0=None)
    free = ns.Constraint(base.system.x, [0, 0], [0, 4], name="start")
    ocp = ns.OCP(
        base.system,
        horizon=1.0,
        stage_cost=base.stage_cost,
        initial_constraints=[free],
        terminal_constraints=base.terminal_constraints,
    )
    assert quick(ocp).objective == pytest.approx(0.0, abs=1e-6)  # it waits at 0


def test_a_grid_of_equal_intervals_is_kept() -> None:
    search = ns.Search(effort="quick", program=ns.MultiPhase(intervals=10, grid="equal"))
    solution = ns.solve(cart(), search)
    assert np.diff(solution.u_grid) == pytest.approx(np.full(10, 0.1), abs=1e-12)
    assert solution.objective == pytest.approx(12.0 / (1.0 - 1.0 / 100), rel=1e-6)


@pytest.mark.parametrize("u", [-5.0, 0.0, 3.0, 8.0])
def test_never_worse_than_the_guess_polished(u: float) -> None:
    ocp = wall()
    motion = ns.simulate(ocp.system, x0=ocp.x0, duration=1.0, u=[u])
    polished = ns.solve(ocp, ns.MultiPhase(follow=True), guess=motion)
    solution = ns.solve(ocp, guess=[u], effort="quick")
    assert solution.candidates[0].start == "guess"
    if polished.success:
        assert solution.objective <= polished.objective * (1 + 1e-6) + 1e-9


def test_a_solution_as_guess_is_not_made_worse() -> None:
    # On more intervals than those of the search, so that none of its own programs is as good.
    fine = ns.solve(cart(), ns.MultiPhase(intervals=60))
    solution = quick(cart(), guess=fine)
    assert fine.objective < quick(cart()).objective
    assert solution.objective <= fine.objective * (1 + 1e-9)
    assert solution.status is ns.Status.SOLVED
    assert len(solution.candidates) > 1
    # Of a problem that it does not solve it is a guess like any other.
    back = cart()
    back = replace(back, terminal_constraints=[ns.Constraint(back.system.x, [-1, 0], [-1, 0])])
    assert quick(back, guess=fine).x[-1] == pytest.approx([-1, 0], abs=1e-6)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"effort": "much"}, "quick"),
        ({"effort": "quick", "method": ns.FESDJ()}, "without a method"),
        ({"seed": 1, "solver": ns.Auto()}, "without a method"),
        ({"guess": [1.0, 2.0, 3.0]}, "guess: control: expected 1 numbers or rows"),
    ],
)
def test_mistakes_are_errors_at_once(given: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ns.solve(cart(), **given)


def test_a_search_without_starts_answers_with_what_does_nothing() -> None:
    # Without a goal there is no line to it: the only kind of start has none.
    free = cart(terminal_constraints=())
    found = ns.solve(free, ns.Search(starts=("line",)))
    assert found.status is ns.Status.SOLVED
    assert found.objective == pytest.approx(0.0, abs=1e-12)


def test_the_limit_holds_where_no_start_moves() -> None:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u + ca.sqrt(q - 5.0))
    broken = ns.OCP(system, horizon=1.0, x0=[0, 0], stage_cost=u**2)
    found = ns.solve(broken, ns.Search(starts=("evolution",)), time_limit=0.5)
    assert found.status is ns.Status.NUMERICAL_ERROR


def test_random_starts_do_not_depend_on_other_kinds() -> None:
    def first(*kinds: str) -> Any:
        return next(ns.Search(seed=3, starts=kinds).init(cart()).streams["random"])

    alone, beside = first("random"), first("constant", "random", "evolution")
    assert np.array_equal(alone.control.values, beside.control.values)


@pytest.mark.parametrize(("starts", "match"), [((), "at least"), (("moves",), "at least"), (("randm",), "random")])
def test_kinds_of_start_are_known(starts: tuple[str, ...], match: str) -> None:
    with pytest.raises(ns.OptionError, match=match):
        ns.Search(starts=starts)


@pytest.mark.quick
def test_neighbours_of_a_flight_touch_where_the_wall_is_nearest() -> None:
    ocp = wall()
    search = ns.Search(starts=("constant",))
    state = search.step(search.init(ocp))
    node = state.leader
    assert node is not None
    found = list(neighbours(ocp, node.attempt.point, node.attempt.solution))
    flight, bounce = ns.Sequence([{}]), ns.Sequence([{}, "impact wall", {}])
    assert node.sequence in (flight, bounce)
    assert (bounce if node.sequence == flight else flight) in found
    assert ns.Sequence([{}, {"wall": "closed"}]) in found or node.sequence == bounce
    assert all(one.times is not None and (np.diff(one.times) >= 0).all() for one in found)


@pytest.mark.quick
def test_the_same_seed_gives_the_same_starts() -> None:
    task = StartTask.of(wall())

    def first(seed: int) -> list[np.ndarray]:
        stream = STARTS["random"](task, np.random.default_rng(seed))
        return [start.control.values for start in (next(stream) for _ in range(5)) if start is not None]

    assert all((a == b).all() for a, b in zip(first(3), first(3), strict=True))
    assert not all((a == b).all() for a, b in zip(first(3), first(4), strict=True))


@pytest.mark.quick
def test_the_goal_is_what_the_ends_ask_for() -> None:
    ocp = cart()
    found = goal(ocp, np.array(ocp.x0))
    assert found == pytest.approx([1, 0], abs=1e-6)
    assert goal(cart(terminal_constraints=()), np.array(ocp.x0)) is None


def test_a_cost_with_kinks_in_time_is_confirmed_with_its_integral() -> None:
    """A reference in pieces: no order of quadrature helps, a fine integral along the motion does."""
    q, v, u, t = (ca.SX.sym(name) for name in "qvut")
    s = ns.CLS(q=q, v=v, u=u, t=t, mass_matrix=1, force=u, contacts=())
    reference = ca.if_else(t < 0.31, 10 * t, 3.1 - 8 * (t - 0.31))
    ocp = ns.OCP(s, horizon=1.0, x0={"q_0": 0.0}, stage_cost=100 * (q - reference) ** 2 + 1e-4 * u**2)
    solution = quick(ocp)
    assert solution.status is ns.Status.SOLVED
    assert solution.certificate is not None
    assert solution.objective == pytest.approx(solution.certificate.true_objective, rel=1e-6)
    # A claim that is a little better than the motion is refuted all the same.
    false = replace(solution, objective=solution.objective * (1 - 1e-3), certificate=None)
    assert not ns.certify(ocp, false).confirmed


def test_a_free_horizon_with_a_free_initial_state_and_parameter() -> None:
    """At v = 1 and then braking with m: T = 1 + 1 / (2 m), and T + m is least for m = 1 / sqrt(2)."""
    q, v, u, m = (ca.SX.sym(name) for name in "qvum")
    wall = ns.Contact("wall", gap=1.5 - q, restitution=0.5)
    horizon = ns.FreeTime(0.1, 5.0)
    ocp = ns.OCP(
        ns.CLS(q=q, v=v, u=u, p=m, mass_matrix=1, force=m * u, contacts=[wall], names={"p": ["m"]}),
        horizon=horizon,
        p={"m": 1.0},
        free_parameters={"m": (0.5, 2.0)},
        initial_constraints=[q == 0],
        terminal_cost=horizon.symbol + m,
        bounds={"u_0": (-1, 1), "v_0": (-1, 1)},
        terminal_constraints=[q == 1, v == 0],
    )
    solution = ns.solve(ocp, effort="quick")
    assert solution.success
    assert solution.objective == pytest.approx(1.0 + np.sqrt(2.0), abs=1e-3)


def test_ctrl_c_in_one_of_several_attempts_at_a_program_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tenth call of the solver is interrupted, at a bad point: another attempt would be preferred to it."""
    calls, solve = list[int](), InteriorPoint.solve

    def interrupted(self: InteriorPoint, *given: Any, **more: Any) -> Any:
        calls.append(1)
        result = solve(self, *given, **more)
        return replace(result, x=result.x + 1e3, interrupted=True) if len(calls) == 10 else result

    monkeypatch.setattr(optimise, "InteriorPoint", type("Interrupted", (InteriorPoint,), {"solve": interrupted}))
    solution = quick(wall())
    assert solution.status is ns.Status.INTERRUPTED
    assert np.isfinite(solution.objective)
    # Nothing is solved afterwards.
    assert len(calls) == 10
