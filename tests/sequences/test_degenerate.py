"""Degenerate sequences and early ends: each ends within seconds, with a status that is true and a message."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

G = 10.0
CONFIRMED = (ns.Verdict.CONFIRMED, ns.Verdict.CONFIRMED_IN_WINDOWS)


def ball(restitution: float, target: float, horizon: float, x0: tuple[float, float] = (1.0, 0.0)) -> ns.OCP:
    """A ball that is thrown to a height by as little control as possible."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    ground = ns.Contact("ground", gap=q, restitution=restitution)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - G, contacts=[ground])
    reached = ns.Constraint(q, target, target, name="height")
    return ns.OCP(system, horizon=horizon, x0=x0, stage_cost=u**2, terminal_constraints=[reached])


def crate() -> ns.OCP:
    """A crate on two corners with friction, pushed and stopped: its two normal and tangential forces are redundant."""
    q, v, u = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("u")
    corners = []
    for name, side in (("left", -1.0), ("right", 1.0)):
        arm = ca.vertcat(side * ca.cos(q[2]) + 0.5 * ca.sin(q[2]), side * ca.sin(q[2]) - 0.5 * ca.cos(q[2]))
        tangent = ca.vertcat(1, 0, -arm[1])
        corners.append(ns.Contact(name, gap=q[1] + arm[1], tangent=tangent, friction=0.3))
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(3), force=ca.vertcat(u, -G, 0), contacts=corners)
    missed = 10 * (q[0] - 0.4) ** 2
    return ns.OCP(system, horizon=1.0, x0=[0, 0.5, 0, 1.2, 0, 0], stage_cost=u**2, terminal_cost=missed)


def solve(ocp: ns.OCP, items: list[Any], **options: Any) -> ns.Solution:
    given = {"intervals": 4, "sequence": ns.Sequence(items), **options}
    solution = ns.solve(ocp, ns.MultiPhase(**given), guess=[0.0])
    assert np.isfinite(solution.x).all()
    return solution


def test_a_given_phase_that_would_vanish_is_kept_and_the_shorter_sequence_offered():
    """A stay on the ground that only costs time: without it, the impact is left, and the optimum with it."""
    ocp = ball(restitution=0.0, target=0.3, horizon=0.8)
    stays = solve(ocp, [{}, {"ground": "closed"}, {}], intervals=8)
    leaves = solve(ocp, [{}, "impact ground", {}], intervals=8)
    assert stays.success
    assert stays.sequence == ns.Sequence([{}, {"ground": "closed"}, {}])
    assert stays.certificate is not None
    assert stays.certificate.verdict in CONFIRMED
    assert stays.shorter is not None
    assert stays.shorter.sequence == ns.Sequence([{}, "impact ground", {}])
    assert stays.shorter.objective == pytest.approx(leaves.objective, rel=1e-8)
    assert leaves.objective < stays.objective < leaves.objective * (1 + 1e-2)
    assert "solution.shorter" in stays.message


def test_a_phase_that_could_only_be_shorter_is_no_optimum_of_its_own():
    """Stick between two slips in one direction, of a block that need not stop: the slip without a stop is better."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.3)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, -G), contacts=[ground])
    reached = ns.Constraint(q[0], 1.5, 1.5)
    ocp = ns.OCP(system, horizon=1.0, x0=[0, 0, 2, 0], stage_cost=u**2, terminal_constraints=[reached])
    slip, stick = {"ground": "slip+"}, {"ground": "stick"}
    plain = solve(ocp, [slip])
    halting = solve(ocp, [slip, stick, slip])
    assert plain.success
    assert halting.objective >= plain.objective - 1e-6
    if halting.success:
        assert ns.certify(ocp, halting).verdict in CONFIRMED


def set_down() -> ns.OCP:
    """A ball that has to approach the ground by v^2 <= 4 q, and wants to be there soon: it lands with no speed."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - G, contacts=[ns.Contact("ground", gap=q)])
    slowly, down = ns.Constraint(v**2 - 4 * q, upper=0.0, name="slowly"), ns.Constraint(q, 0.0, 0.0, name="down")
    given = {"stage_cost": (u - G) ** 2 + 20 * q, "path_constraints": [slowly], "terminal_constraints": [down]}
    return ns.OCP(system, horizon=1.5, x0=[0.5, -1.0], **given)


def test_an_impact_with_no_speed():
    """Its impulse vanishes with the speed; what is solved is a motion, and what is not says so."""
    ocp = set_down()
    solution = solve(ocp, [{}, {"ground": "closed"}], intervals=6)
    assert solution.final_state[0] == pytest.approx(0.0, rel=0, abs=1e-6)
    if solution.success and not solution.message:
        assert ns.certify(ocp, solution).verdict in CONFIRMED
    else:
        assert solution.message


def test_an_impact_of_a_body_at_rest():
    """Zero approach, zero impulse, at the first moment."""
    ocp = ball(restitution=0.0, target=0.0, horizon=1.0, x0=(0.0, 0.0))
    solution = solve(ocp, ["impact ground", {"ground": "closed"}])
    assert solution.success
    assert solution.objective == pytest.approx(0.0, abs=1e-8)
    assert solution.events == ()


def test_a_bounce_without_speed_is_a_touch():
    """An impact whose place is where the ball would be at rest anyway: status and verdict agree."""
    ocp = ball(restitution=0.8, target=1.0, horizon=2 * np.sqrt(0.2))
    solution = solve(ocp, [{}, "impact ground", {}])
    verdict = ns.certify(ocp, solution).verdict
    assert solution.success
    assert verdict in CONFIRMED


def test_redundant_contacts():
    """A crate on two corners slides and stops; the forces of the corners carry its weight and stop it together."""
    ocp = crate()
    slip, stick = ({"left": word, "right": word} for word in ("slip+", "stick"))
    solution = solve(ocp, [slip, stick])
    assert solution.success
    assert ns.certify(ocp, solution).verdict in CONFIRMED
    names = [f"lambda_normal[{side}]" for side in ("left", "right")]
    np.testing.assert_allclose(sum(solution[name] for name in names), G, rtol=1e-6)
    assert all(np.isfinite(series.values).all() for series in solution.multipliers.values())
    # A point mass with the same friction has the same optimum.
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.3)
    point = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, -G), contacts=[ground])
    same = ns.OCP(point, horizon=1.0, x0=[0, 0, 1.2, 0], stage_cost=u**2, terminal_cost=10 * (q[0] - 0.4) ** 2)
    known = solve(same, [{"ground": "slip+"}, {"ground": "stick"}])
    assert solution.objective == pytest.approx(known.objective, rel=1e-6)


@pytest.mark.parametrize(
    "items",
    [
        [{"ground": "closed"}],  # it hovers
        [{}, {"ground": "closed"}],  # it cannot be above the ground at the end
        [{"ground": "closed"}, {}],
    ],
)
def test_a_wrong_sequence_is_named(items: list[Any]):
    """A status that is no success, and the row that is missed."""
    solution = solve(ball(restitution=0.8, target=0.8, horizon=1.0), items, refinements=0)
    assert not solution.success
    assert "misses" in solution.message or solution.status is ns.Status.ITERATION_LIMIT


def test_phases_of_a_wrong_sequence_may_vanish():
    """What is solved then is a shorter sequence: the solution names its own, and is a motion."""
    ocp = ball(restitution=0.8, target=0.8, horizon=1.0)
    asked = [{}, {"ground": "closed"}, "impact ground", {"ground": "closed"}]
    solution = solve(ocp, asked, refinements=0)
    if solution.success:
        assert len(solution.sequence) < 3
        assert ns.certify(ocp, solution).verdict in CONFIRMED


def test_limits_of_the_solver():
    """Too few iterations end as such; options reach the interior-point method."""
    ocp = ball(restitution=0.8, target=0.8, horizon=1.0)
    items = [{}, "impact ground", {}]
    short = solve(ocp, items, max_iterations=1)
    assert short.status is ns.Status.ITERATION_LIMIT
    assert "Maximum_Iterations" in short.message
    same = solve(ocp, items, interior={"max_iter": 1})
    assert same.status is ns.Status.ITERATION_LIMIT
    assert solve(ocp, items, max_iterations=100).success


def test_a_callback_keeps_the_best():
    """`ns.Stop` after the first program returns its iterate; after more programs what is best until then."""
    ocp = ball(restitution=0.8, target=0.8, horizon=1.0)
    seen: list[Any] = []

    def stop_at(count: int):
        seen.clear()

        def look(point: Any) -> Any:
            seen.append(point)
            return ns.Stop if len(seen) >= count else None

        return look

    method = ns.MultiPhase(intervals=4, sequence=[{}, "impact ground", {}])
    whole = ns.solve(ocp, method, guess=[0.0])
    first = ns.solve(ocp, method, guess=[0.0], callback=stop_at(1))
    assert len(seen) == 1
    assert first.status is ns.Status.STOPPED
    assert np.isfinite(first.x).all()
    assert first.sequence == whole.sequence
    last = ns.solve(ocp, method, guess=[0.0], callback=stop_at(10**6))
    assert last.success
    assert last.objective == whole.objective
    count = len(seen)
    if count > 1:
        again = ns.solve(ocp, method, guess=[0.0], callback=stop_at(count))
        assert again.status is ns.Status.STOPPED
        assert again.objective == pytest.approx(whole.objective, rel=1e-3)


def test_no_time():
    """A time limit of nothing ends as one, with something to look at."""
    ocp = ball(restitution=0.8, target=0.8, horizon=1.0)
    method = ns.MultiPhase(intervals=4, sequence=[{}, "impact ground", {}])
    solution = ns.solve(ocp, method, guess=[0.0], time_limit=1e-6)
    assert solution.status is ns.Status.TIME_LIMIT
    assert not solution.success
