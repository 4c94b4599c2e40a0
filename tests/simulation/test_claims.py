"""Every law that certificates hold solutions to: what obeys it passes, what breaks it is named, by how much."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.simulation.certification.claims import TOLERANCE, Claims
from nosnoc_py.solution import RungeKuttaInterpolant
from tests.simulation.claimed import solution_of

GRAVITY = 9.81
FAST = 10.0  # the largest speed of `claims` [m/s]


def point(friction: float = 0.5, restitution: float = 0.5) -> ns.CLS:
    """A point mass of 2 kg over the ground."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    more = {"tangent": ca.DM([1, 0]), "friction": friction} if friction else {}
    ground = ns.Contact("ground", gap=q[1], restitution=restitution, **more)
    return ns.CLS(q=q, v=v, mass_matrix=2.0 * ca.DM.eye(2), force=ca.DM([0, -2.0 * GRAVITY]), contacts=[ground])


def claims(system: ns.CLS) -> Claims:
    """Claims whose speeds and lengths are known: a flight with 10 m/s to the side."""
    ocp = ns.OCP(system, horizon=0.1, x0=[0.0, 5.0, FAST, 0.0])
    trajectory = ns.simulate(system, x0=ocp.x0, duration=0.1, steps=1)
    made = Claims(system.mechanics, solution_of(ocp, trajectory))
    assert made.speed == pytest.approx(FAST, rel=1e-12)
    return made


def broken(system: ns.CLS, before: list[float], after: list[float]) -> dict[str, float]:
    """The laws that a jump breaks, and by which share."""
    made = claims(system)
    found = made.laws_of(made.read(np.array(before), np.array(after)))
    return {v.law.split(" by ")[0]: v.share for v in found if v.share > 1e-12}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0, 0, 2, -3], [0, 0, 0, 1.5]),  # it sticks
        ([0, 0, 5, -3], [0, 0, 2.75, 1.5]),  # it slips, friction takes .5 (1 + .5) 3
        ([0, 0, -5, -3], [0, 0, -2.75, 1.5]),
        ([0, 0, 1, 2], [0, 0, 1, 2]),  # it leaves
        ([0, 0, 1, 0], [0, 0, 1, 0]),  # it slides on
        ([0, 1, 1, -3], [0, 1, 1, -3]),  # it flies
        ([0, 0, 0, -1e-3], [0, 0, 0, 0]),  # so slow that it need not bounce
        ([0, 0, 0, -1e-3], [0, 0, 0, 5e-4]),
        ([0, 5e-7, 0, -2], [0, 5e-7, 0, 1]),  # closed to the tolerance
    ],
)
def test_what_obeys(before: list[float], after: list[float]) -> None:
    assert broken(point(), before, after) == {}


@pytest.mark.parametrize(
    ("before", "after", "law", "size"),
    [
        ([0, 0, 5, -3], [0, 0, 2.5, 2.0], "ground breaks the law of restitution", 0.5),
        ([0, 0, 5, -3], [0, 0, 3.0, 1.0], "ground is left too slowly after an impact", 0.5),
        ([0, 0, 0, -0.1], [0, 0, 0, 0], "ground is left too slowly after an impact", 0.05),  # .1 m/s has to bounce
        ([0, 0, 5, -3], [0, 0, 0, 1.5], "friction leaves its cone at ground", 2.75),
        ([0, 0, 5, -3], [0, 0, 4, 1.5], "friction is not that of its slip at ground", 1.25),
        ([0, 0, 2, -3], [0, 0, 0.5, 1.5], "friction is not that of its slip at ground", 0.75),
        ([0, 0, 0, 0], [0, 0, 0, -1], "a normal force pulls at ground", 1.0),
        ([0, 0, 0, 0], [0, 0, 1e-3, 0], "friction leaves its cone at ground", 1e-3),
        ([0, 1e-3, 0, -2], [0, 1e-3, 0, 1], "no impulse of a closed contact explains the jump", 3.0),  # open
    ],
)
def test_what_does_not(before: list[float], after: list[float], law: str, size: float) -> None:
    assert broken(point(), before, after)[law] == pytest.approx(size / FAST, rel=1e-9)


def test_without_friction_nothing_explains_a_jump_sideways() -> None:
    found = broken(point(friction=0.0), [0, 0, 1, -3], [0, 0, 1.2, 1.5])
    assert found == {"no impulse of a closed contact explains the jump": pytest.approx(0.02, rel=1e-9)}


def test_positions_do_not_jump() -> None:
    found = broken(point(), [0, 1, 1, 0], [0.1, 1, 1, 0])
    assert found == {"the position jumps": pytest.approx(0.1 / 5.0, rel=1e-2)}


def test_an_inelastic_body_may_not_bounce_and_an_elastic_one_has_to() -> None:
    assert broken(point(0.0, 0.0), [0, 0, 0, -3], [0, 0, 0, 0]) == {}
    assert "ground breaks the law of restitution" in broken(point(0.0, 0.0), [0, 0, 0, -3], [0, 0, 0, 1])
    assert broken(point(0.0, 1.0), [0, 0, 0, -3], [0, 0, 0, 3]) == {}
    assert "ground is left too slowly after an impact" in broken(point(0.0, 1.0), [0, 0, 0, -3], [0, 0, 0, 0])


def slide() -> tuple[ns.OCP, ns.Solution]:
    """The point mass slides on the ground for a third of a second: 3 m/s, decelerated by g / 2."""
    system = point()
    ocp = ns.OCP(system, horizon=1.0 / 3.0, x0=[0.0, 0.0, 3.0, 0.0])
    return ocp, solution_of(ocp, ns.simulate(system, x0=ocp.x0, duration=1.0 / 3.0, steps=3))


@pytest.mark.parametrize(("factor", "found"), [(0.5, False), (2.0, True)])
def test_the_tolerance_of_jumps(factor: float, found: bool) -> None:
    ocp, solution = slide()
    assert isinstance(solution.interpolant, RungeKuttaInterpolant)
    x_left = np.array(solution.interpolant.x_left)
    x_left[2, 2] += factor * TOLERANCE * 3.0
    moved = replace(solution, interpolant=replace(solution.interpolant, x_left=x_left))
    _, findings = Claims(ocp.system.mechanics, moved).impact_law()
    assert bool(findings) is found


@pytest.mark.parametrize(
    ("column", "bump", "law"),
    [
        (2, 1.0, "friction is not that of its slip at ground"),  # less friction than slip has
        (2, -1.0, "friction leaves its cone at ground"),
        (0, 1.0, "q_0' is not v_0"),
    ],
)
def test_stages_obey_the_equations_of_motion(column: int, bump: float, law: str) -> None:
    """A bump that is zero at the left end of an element and at all stages but the last."""
    ocp, solution = slide()
    assert isinstance(solution.interpolant, RungeKuttaInterpolant)
    exact, findings = Claims(ocp.system.mechanics, solution).equations_of_motion()
    assert exact < 1e-12
    assert findings == []
    stages = np.array(solution.interpolant.x_stages)
    stages[3, -1, column] += 1e-3 * bump
    spoiled = replace(solution, interpolant=replace(solution.interpolant, x_stages=stages))
    size, findings = Claims(ocp.system.mechanics, spoiled).equations_of_motion()
    assert size > 1e-4
    low, high = solution.interpolant.t_left[3], solution.interpolant.t_left[3] + solution.interpolant.h[3]
    assert any(low < finding.time <= high and law in finding.what for finding in findings)
    assert all(low < finding.time <= high + solution.interpolant.h[4] for finding in findings)


def test_a_force_that_pulls_is_none() -> None:
    """Held down on the ground while the weight is negative: gap zero, and a normal force of the wrong sign."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    rises = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(1), force=ca.DM([1.0]), contacts=[ns.Contact("ground", gap=q)])
    falls = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(1), force=ca.DM([-1.0]), contacts=[ns.Contact("ground", gap=q)])
    rest = ns.simulate(falls, x0=[0.0, 0.0], duration=1.0, steps=2)
    assert np.abs(rest.x).max() < 1e-12
    ocp = ns.OCP(rises, horizon=1.0, x0=[0.0, 0.0])
    found = ns.certify(ocp, solution_of(ocp, replace(rest, series={})))
    assert found.verdict is ns.Verdict.REFUTED
    assert "a normal force pulls at ground" in found.reason


def test_a_window_that_begins_with_an_impact_flies_on() -> None:
    """The body touches the ground there and leaves it: it is not closed."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    ball = ns.CLS(
        q=q, v=v, mass_matrix=ca.DM.eye(1), force=ca.DM([-GRAVITY]), contacts=[ns.Contact("g", gap=q, restitution=0.8)]
    )
    hit = sqrt(2.0 / GRAVITY)
    ocp = ns.OCP(ball, horizon=2.0 * hit, x0=[1.0, 0.0])
    trajectory = ns.simulate(ball, x0=ocp.x0, duration=2.0 * hit, steps=2, method=ns.FESDJ(rk_stages=3))
    assert trajectory.success
    found = ns.certify(ocp, solution_of(ocp, trajectory), window=hit)
    assert found.confirmed, found
    assert len(found.windows) == 2
    assert max(window.defect for window in found.windows) < 1e-8


def test_the_balance_knows_of_a_mass_matrix_that_changes() -> None:
    """A pendulum on a cart: the identity dT = v'f dt + v'(dM/dt)v dt / 2 holds for any force."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    mass = ca.vertcat(ca.horzcat(3.0, ca.cos(q[1])), ca.horzcat(ca.cos(q[1]), 1.0))
    force = ca.vertcat(v[1] ** 2 * ca.sin(q[1]), -GRAVITY * ca.sin(q[1]))
    wall = ns.Contact("wall", gap=0.2 - q[0], restitution=0.5)
    system = ns.CLS(q=q, v=v, mass_matrix=mass, force=force, contacts=[wall])
    ocp = ns.OCP(system, horizon=1.5, x0=[0.0, 2.0, 0.0, 0.0])
    trajectory = ns.simulate(system, x0=ocp.x0, duration=1.5, steps=60, method=ns.FESDJ(rk_stages=3))
    found = ns.certify(ocp, solution_of(ocp, trajectory))
    assert found.balance is not None
    assert found.trajectory.impacts
    assert abs(found.balance.energy_residual) < 1e-9
    assert found.balance.impulse_residual < 1e-9
    # independent: potential energy -g cos(theta), so kinetic energy changes by that and by the impacts alone
    start, end = found.trajectory.x[0], found.trajectory.x[-1]
    drop = GRAVITY * (np.cos(end[1]) - np.cos(start[1]))
    kinetic = found.balance.kinetic_end - found.balance.kinetic_start
    assert kinetic == pytest.approx(drop + found.balance.impacts, abs=1e-9)


def test_an_event_listed_at_another_time_is_told() -> None:
    """The states agree, so the solution is confirmed; that its list of events does not is said."""
    system = point()
    ocp = ns.OCP(system, horizon=1.0, x0=[0.0, 0.0, 3.0, 0.0])
    trajectory = ns.simulate(system, x0=ocp.x0, duration=1.0, steps=4)
    (stick,) = (event for event in trajectory.events if event.kind == "stick")
    right = ns.certify(ocp, solution_of(ocp, trajectory))
    assert right.reason == "end state and objective agree to 1e-06"
    assert all(window.events_agree for window in right.windows)
    early = replace(trajectory, events=[replace(stick, time=stick.time - 0.1)])
    found = ns.certify(ocp, solution_of(ocp, early))
    assert found.confirmed
    assert found.reason.endswith(f"although stick ground at {stick.time - 0.1:.6g} s comes 0.1 s later")
    odd = ns.certify(ocp, solution_of(ocp, early), window=1.0 / 3.0).windows[1]
    assert not odd.events_agree
    assert "comes 0.1 s later" in odd.difference
