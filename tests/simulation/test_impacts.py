"""Impacts with friction and at several contacts: energy, and what has no admissible solution."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.contact_problems.problem import ContactProblem
from nosnoc_py.contact_problems.solver import ContactSolver
from nosnoc_py.simulation import fesd
from nosnoc_py.transcription import transcribe_step


def particle(contacts: list[ns.Contact], q: ca.SX, v: ca.SX) -> ns.CLS:
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.SX(2, 1), contacts=contacts)


def wedge(restitution: float) -> ns.CLS:
    """A wall and a plane whose normal points against it: an impulse of the plane pushes into the wall."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    wall = ns.Contact("wall", gap=q[0], restitution=restitution)
    return particle([wall, ns.Contact("plane", gap=-0.8 * q[0] + 0.6 * q[1])], q, v)


# It leaves the wall with 1 and hits the plane with 2.
LEAVING = [0.0, 0.0, 1.0, -2.0]


def slot(restitution: float) -> ns.CLS:
    """A wall on each side, and no room between them."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    return particle([ns.Contact("left", gap=q[0], restitution=restitution), ns.Contact("right", gap=-q[0])], q, v)


def test_an_impact_without_admissible_solution_ends_in_a_status() -> None:
    """The left wall throws the particle back with 0.5 m/s, and the right one lets it nowhere."""
    x0 = [0.0, 0.0, -1.0, 2.0]
    trajectory = ns.simulate(slot(0.5), x0=x0, duration=0.1, steps=1)
    assert trajectory.status is ns.Status.NO_ADMISSIBLE_IMPACT
    assert "left" in trajectory.message
    assert "restitution" in trajectory.status.remedy
    np.testing.assert_array_equal(trajectory.final_state, x0)
    assert ns.simulate(slot(0.0), x0=x0, duration=0.1, steps=1).success


@pytest.mark.parametrize("restitution", [0.0, 0.5, 1.0])
def test_a_closed_contact_that_separates_is_held(restitution: float) -> None:
    """The impulse of the plane sends the particle into the wall, which it was leaving: it ends in the edge."""
    trajectory = ns.simulate(wedge(restitution), x0=LEAVING, duration=0.1, steps=1)
    assert trajectory.success
    np.testing.assert_allclose(trajectory.final_state, 0.0, rtol=0, atol=1e-14)


def rod(friction: float, restitution: float, angle: float) -> tuple[ns.CLS, list[float]]:
    """A rod of length 2 that falls on one end: the impulse is not central, n'M^-1 t is not zero."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    arm = ca.vertcat(ca.cos(q[2]), ca.sin(q[2]))
    tip = ns.Contact(
        "tip",
        gap=q[1] - arm[1],
        normal=ca.vertcat(0, 1, -arm[0]),
        tangent=ca.vertcat(1, 0, arm[1]),
        friction=friction,
        restitution=restitution,
    )
    system = ns.CLS(q=q, v=v, mass_matrix=ca.diag(ca.DM([1, 1, 1 / 3])), force=ca.DM([0, -9.81, 0]), contacts=[tip])
    return system, [0.0, float(np.sin(angle)) + 0.02, angle]


@pytest.mark.parametrize("angle", [0.3, 0.8, 1.2])
@pytest.mark.parametrize("speed", [-3.0, -0.5, 0.5, 3.0])
def test_inelastic_impacts_with_friction_gain_no_energy(speed: float, angle: float) -> None:
    system, q = rod(0.6, 0.0, angle)
    trajectory = ns.simulate(system, x0=[*q, speed, -2.0, 0.0], duration=0.03, steps=2)
    assert trajectory.success
    impact = trajectory.impacts[0]
    before, after = (trajectory(impact.time, side)[3:] for side in ("-", "+"))
    gain = 0.5 * float(np.array([1, 1, 1 / 3]) @ (after**2 - before**2))
    assert impact.energy_gain == pytest.approx(gain, abs=1e-12)
    assert gain <= 1e-12
    assert "kinetic energy" not in trajectory.message


def test_a_gain_of_energy_is_refused() -> None:
    """Newton's restitution with friction on a turning rod: for some slip velocities energy comes from nowhere."""
    for speed, gains in ((-8.0, False), (-0.44, True), (8.0, False)):
        system, q = rod(0.6, 1.0, 0.79)
        trajectory = ns.simulate(system, x0=[*q, speed, -2.0, 3.87], duration=0.03, steps=2)
        assert (trajectory.status is ns.Status.ENERGY_GAIN) == gains, trajectory.message
        if gains:
            assert "tip" in trajectory.message
            assert "restitution" in trajectory.status.remedy
        else:
            assert trajectory.success
            assert trajectory.impacts[0].energy_gain < -1.0
        system, q = rod(0.6, 0.0, 0.79)  # the remedy helps
        assert ns.simulate(system, x0=[*q, speed, -2.0, 3.87], duration=0.03, steps=2).success


def test_too_many_switches_name_the_contact(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast bounce between two walls has more impacts in a step than elements."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    contacts = [ns.Contact("left", gap=q, restitution=1.0), ns.Contact("right", gap=1 - q, restitution=1.0)]
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM(1.0), force=ca.SX(0), contacts=contacts)
    halved = ns.simulate(system, method=ns.FESDJ(), x0=[0.5, 10.0], duration=1.0, steps=1)
    assert halved.success
    np.testing.assert_allclose(halved.final_state, [0.5, 10.0], rtol=0, atol=1e-12)
    assert len(halved.impacts) == 10
    monkeypatch.setattr(fesd, "MOST_SPLITS", 2)
    trajectory = ns.simulate(system, method=ns.FESDJ(), x0=[0.5, 10.0], duration=1.0, steps=1)
    assert trajectory.status is ns.Status.STEP_FAILED
    assert "more switches than finite elements" in trajectory.message
    assert "'left'" in trajectory.message or "'right'" in trajectory.message


def test_steps_that_take_an_mpcc_are_counted() -> None:
    """Where Newton's method is made to fail, the MPCC takes over, and the trajectory says so."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.5)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, -9.81]), contacts=[ground])
    simulator = ns.Simulator(system, ns.FESDJ(), step=0.05)
    assert simulator.step(simulator.init([0, 0, 1, 0])).attempts == 0
    by_mpcc = ns.Simulator(system, step=0.05, solver=ns.Homotopy(steering="direct", sigma_min=1e-12))
    state = by_mpcc.step(by_mpcc.init([0, 0, 1, 0]))
    assert state.status is ns.Status.SOLVED
    assert state.attempts >= 1
    np.testing.assert_allclose(state.x, simulator.step(simulator.init([0, 0, 1, 0])).x, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mass", [1e-12, 1e-6, 1.0, 1e6])
def test_the_motion_does_not_depend_on_the_unit_of_mass(mass: float) -> None:
    """Pulled by a spring whose end moves: slips when 10 t = mu g, at .4905 s; then x'' = 10 (t - x) - mu g."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0, 0]), friction=0.5)
    force = mass * ca.vertcat(10 * (q[2] - q[0]), -9.81, 0)
    system = ns.CLS(q=q, v=v, mass_matrix=mass * ca.DM.eye(3), force=force, contacts=[ground])
    trajectory = ns.simulate(
        system, x0=[0, 0, 0, 0, 0, 1], duration=1.0, steps=10, method=ns.FESDJ(rk_stages=3, finite_elements=2)
    )
    assert trajectory.success
    assert not trajectory.message
    assert [event.kind for event in trajectory.events] == ["slip"]
    assert trajectory.events[0].time == pytest.approx(0.4905, abs=1e-10)
    omega, time = np.sqrt(10.0), 1.0 - 0.4905
    assert trajectory.final_state[0] == pytest.approx(time - np.sin(omega * time) / omega, abs=1e-8)
    np.testing.assert_allclose(trajectory["lambda_normal[ground]"], 9.81 * mass, rtol=1e-9)


@pytest.mark.parametrize("start", [-5.01, -5.0125, -4.985, -5.003])
def test_a_thin_obstacle_is_not_missed(start: float) -> None:
    """A point at 10 m/s against a disc of 5 mm, which is narrower than the samples of an element."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    disc = ns.Contact("disc", gap=ca.norm_2(q) - 0.005, restitution=1.0)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.SX(2, 1), contacts=[disc])
    trajectory = ns.simulate(system, x0=[start, 0.0, 10.0, 0.0], duration=1.0, steps=20)
    assert trajectory.success
    np.testing.assert_allclose(trajectory.final_state[2:], [-10.0, 0.0], rtol=0, atol=1e-9)
    assert trajectory.impacts[0].time == pytest.approx((-0.005 - start) / 10, abs=1e-12)


def test_a_start_that_penetrates_by_rounding_goes_on() -> None:
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.5)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, -9.81]), contacts=[ground])
    trajectory = ns.simulate(system, x0=[0, -5e-9, 1, 0], duration=0.1, steps=2)
    assert trajectory.success
    assert not trajectory.message
    slip = trajectory["slip[ground]"]
    assert slip[-1] == pytest.approx(1 - 0.5 * 9.81 * 0.1, abs=1e-9)


def test_the_gap_rate_form_holds_no_body_that_moves_away() -> None:
    """A disc that bounces off a disc: by the MPCC with gap rate, where a drift could hold it on the surface."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    disc = ns.Contact("disc", gap=ca.norm_2(q) - 1.0, restitution=0.5)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.SX(2, 1), contacts=[disc])
    solver = ns.Homotopy(steering="direct", sigma_min=1e-12)
    trajectory = ns.simulate(
        system,
        x0=[0.0, 1.2, 0.0, -2.0],
        duration=0.3,
        steps=1,
        method=ns.FESDJ(gap_rate=True),
        solver=solver,
    )
    assert trajectory.success
    np.testing.assert_allclose(trajectory.final_state, [0.0, 1.2, 0.0, 1.0], rtol=0, atol=1e-8)


def test_a_drift_against_the_motion_is_no_solution() -> None:
    """The wrong motion itself: at rest in position on the disc, with a velocity that leads away, and no force."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    disc = ns.Contact("disc", gap=ca.norm_2(q) - 1.0)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.SX(2, 1), contacts=[disc])
    problem = transcribe_step(system, ns.FESDJ(finite_elements=1, gap_rate=True))
    mpcc, w = problem.mpcc, problem.mpcc.w0.copy()
    values = problem.parameters(horizon=0.1)
    values[mpcc.parameters["x0"]] = [0.0, 1.0, 0.0, 1.0]
    for name, number in (("s", 1.0), ("v_plus", [0.0, 1.0]), ("Y_plus", 1.0)):
        w[mpcc.variables[name, 0, 0]] = number
    for j in range(2):
        w[mpcc.variables["x", 0, 0, j]] = [0.0, 1.0, 0.0, 1.0]
        w[mpcc.variables["drift_minus", 0, 0, j]] = 1.0
        w[mpcc.variables["gap_rate_plus", 0, 0, j]] = 1.0
    evaluator = problem.solvers.evaluator
    at = evaluator(w, values)
    assert evaluator.infeasibility(at) < 1e-14
    assert evaluator.complementarity(at) > 0.5


@pytest.mark.parametrize(
    ("masses", "height"),
    [
        ((7.89403221, 0.42040019), 0.1269979346917727),
        ((3.7514044, 0.24167544), 0.240709248340359),
        ((4.5977957, 0.13348604), 0.24764634401806673),
    ],
)
def test_blocks_that_fall_together_touch_without_force(masses: tuple[float, float], height: float) -> None:
    """A stack in the air: its contact force is rounding, of either sign, and more of it the shorter the steps."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    contacts = [ns.Contact("ground", gap=q[0]), ns.Contact("stack", gap=q[1] - q[0] - 0.2)]
    force = -9.81 * ca.DM(masses)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.diag(ca.DM(masses)), force=force, contacts=contacts)
    found = ns.simulate(
        system,
        x0=[height, height + 0.2, 0.0, 0.0],
        duration=0.4,
        steps=160,
        method=ns.FESDJ(rk_stages=3, finite_elements=4),
        solver=ns.ActiveSetNewton(fallback=False),
    )
    assert found.success, found.message
    np.testing.assert_allclose(found.final_state, [0.0, 0.2, 0.0, 0.0], rtol=0, atol=1e-9)


def jamming() -> tuple[ns.CLS, list[float]]:
    """A contact whose friction jams, G_nn - mu |G_nt| < 0, leaves while another one is hit: it may also stay.

    Its numbers are those of `test_contact_problem.test_several_solutions_are_found_and_told`.
    """
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    inverse = np.array([[1.0, -0.9, 0.0], [-0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    jams = ns.Contact("jams", gap=q[0], friction=1.5, tangent=ca.DM([0.0, 1.0, 0.0]))
    contacts = [jams, ns.Contact("hit", gap=q[2])]
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM(np.linalg.inv(inverse)), force=ca.SX(3, 1), contacts=contacts)
    return system, [0.0, 0.0, 0.0, 0.1, -1.0, -1.0]


@pytest.mark.parametrize("method", [ns.EventDriven(), ns.TimeStepping(step=0.05), ns.FESDJ()])
def test_other_outcomes_are_searched_when_the_message_is_read(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[ContactProblem] = []
    search = ContactSolver.is_unique
    monkeypatch.setattr(ContactSolver, "is_unique", lambda *given: searches.append(given[1]) or search(*given))
    system, x0 = jamming()
    motion = ns.simulate(system, x0=x0, duration=0.1, method=method)
    assert not searches
    assert copy(motion).message.startswith("the impact at t = 0 is not unique")
    assert motion.message == replace(motion, t=motion.t).message
    assert len(searches) == 1


def test_outcomes_of_an_impact_are_listed_with_their_velocities() -> None:
    system, x0 = jamming()
    motion = ns.simulate(system, x0=x0, duration=0.1)
    found = motion.why(motion.impacts[0])
    assert len(found) >= 2
    assert [one.chosen for one in found.outcomes].count(True) == 1
    assert str(found).startswith(f"impact at {motion.impacts[0].name}, t = 0 s: {len(found)} outcomes are admissible")
    mass, start = np.array(ca.DM(system.mass_matrix)), np.array(x0[3:])
    directions = {"jams": (np.eye(3)[0], np.eye(3)[1]), "hit": (np.eye(3)[2], np.zeros(3))}
    for one in found.outcomes:
        after = np.array(list(one.velocity.values()))
        # Impulse and momentum: M (v+ - v-) is spanned by normals and a friction impulse within its cone.
        change = mass @ (after - start)
        assert abs(change[2] - one.impulses["hit"]) < 1e-9
        assert abs(change[0] - one.impulses["jams"]) < 1e-9
        assert abs(change[1]) <= 1.5 * one.impulses["jams"] + 1e-9
        assert (after @ np.array([n for n, _ in directions.values()]).T > -1e-9).all()
    assert any(abs(one.velocity["v_0"] - motion.final_state[3]) < 1e-9 for one in found.outcomes if one.chosen)
    unique = ns.simulate(one_ball(), x0=[1.0, 0.0], duration=0.6)
    assert len(unique.why(unique.impacts[0])) == 1


def one_ball() -> ns.CLS:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    return ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q, restitution=0.5)])
