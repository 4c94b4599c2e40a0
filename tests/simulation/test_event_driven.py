"""The event-driven simulator against closed forms, independent integrations, and the laws of contact."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from models import bouncing_ball, bowl, point_mass, three_boxes, two_balls_spring
from nosnoc_py.motion.crossing import NODES, Crossing
from nosnoc_py.simulation.event_driven.history import EventDrivenSimulator
from nosnoc_py.simulation.event_driven.redundancy import most_interior
from nosnoc_py.simulation.event_driven.soft_closing import SoftClosing, soft_closing
from nosnoc_py.systems.controls import control_of
from problems import three_boxes as boxes_problem
from tests.pairwise import every_value, slow_but, slow_row
from tests.references.friction_closed_forms import CASES
from tests.references.friction_motion import Case
from tests.references.three_boxes import reduced_simulation
from tests.references.two_balls_spring import exact as exact_balls

GRAVITY, REST = 9.81, 1e-3
METHOD = ns.EventDriven(rest_velocity=REST)


def simulate(system: ns.CLS, x0: Any, duration: float, **more: Any) -> ns.Trajectory:
    """Solved, by the referee."""
    trajectory = ns.simulate(system, x0=x0, duration=duration, **{"method": METHOD, **more})
    assert trajectory.success, trajectory.message
    return trajectory


def apart(times: np.ndarray, events: Any, distance: float = 1e-9) -> np.ndarray:
    """Times that are no events: there the state may jump."""
    return np.array([t for t in times if all(abs(t - event) > distance for event in events)])


# --- the laws of contact, without modes and without the library ------------------------------------------------------


@cache
def read_contacts(system: ns.CLS) -> ca.Function:
    """M, then gap, normal and tangents of every contact, at q."""
    outputs = [ca.densify(ca.SX(system.mass_matrix))]
    for contact in system.contacts:
        tangent = contact.tangent if contact.frictional else ca.SX(system.n_q, 0)
        outputs += [contact.gap, system.normal(contact), ca.densify(ca.SX(tangent))]
    return ca.Function("contacts", [system.q], outputs)


def law_violation(
    system: ns.CLS, q: np.ndarray, force: dict[str, np.ndarray], v: np.ndarray, before: np.ndarray | None = None
) -> float:
    """The largest violation of FESD-J, Eq. 11, by forces or impulses (normal, tangential) per contact.

    Closed contacts: 0 <= f_n, 0 <= n'(v+ + e v-), one of them zero; |f_t / mu| <= f_n and, the most of dissipation,
    f_t'v_t+ = -f_n |mu v_t+|. Open ones: no force. Forces are those at the velocity v, with `before` impulses.
    """
    worst, parts = 0.0, [np.array(out) for out in read_contacts(system)(q)][1:]
    for contact, gap, normal, tangent in zip(system.contacts, parts[::3], parts[1::3], parts[2::3], strict=True):
        f_n, f_t = force[contact.name][0], force[contact.name][1:]
        if gap[0, 0] > 1e-7:
            worst = max(worst, float(np.abs(force[contact.name]).max()))
            continue
        old = np.zeros(system.n_q) if before is None else before
        e = contact.restitution if abs(normal[:, 0] @ old) > REST else 0.0
        rate = normal[:, 0] @ (v + e * old)
        worst = max(worst, -f_n, abs(f_n * rate), 0.0 if before is None else -rate)
        if contact.frictional:
            mu = np.array(contact.friction)
            slip = mu * (tangent.T @ v)
            worst = max(worst, np.linalg.norm(f_t / mu) - f_n, abs(f_t / mu @ slip + f_n * np.linalg.norm(slip)))
    return float(worst)


def contact_forces(trajectory: ns.Trajectory, system: ns.CLS, letter: str, k: int) -> dict[str, np.ndarray]:
    """(normal, tangential) of every contact at entry k of the series "lambda" or "Lambda"."""
    found = {}
    for contact in system.contacts:
        width = contact.tangent.shape[1] if contact.frictional else 0
        labels = [f"[{contact.name}]" + (f"[{i}]" if width == 2 else "") for i in range(width)]
        names = [f"{letter}_normal[{contact.name}]", *(f"{letter}_tangent{label}" for label in labels)]
        found[contact.name] = np.array([trajectory.series[name].values[k] for name in names])
    return found


def worst_impact(trajectory: ns.Trajectory, system: ns.CLS) -> tuple[float, float, int]:
    """Violations of the law of impact and of the balance of momentum over all impacts, and how many there are."""
    times = next((s.t for name, s in trajectory.series.items() if name.startswith("Lambda_normal")), np.zeros(0))
    law, momentum, n_q = 0.0, 0.0, system.n_q
    for k, t in enumerate(times):
        left, right = trajectory(t, "-"), trajectory(t, "+")
        forces = contact_forces(trajectory, system, "Lambda", k)
        law = max(law, law_violation(system, left[:n_q], forces, right[n_q:], left[n_q:]))
        mass, *parts = (np.array(out) for out in read_contacts(system)(left[:n_q]))
        columns = [np.hstack([n, t]) for n, t in zip(parts[1::3], parts[2::3], strict=True)]
        pushed = sum(J @ forces[c.name] for J, c in zip(columns, system.contacts, strict=True))
        momentum = max(momentum, float(np.abs(mass @ (right - left)[n_q:] - pushed).max()))
    return law, momentum, len(times)


def worst_force(trajectory: ns.Trajectory, system: ns.CLS) -> tuple[float, float, int]:
    """Violations of the law of forces, and of "slip" = J_t'v, over all samples of the series, and how many."""
    n_q, law, slip = system.n_q, 0.0, 0.0
    t = trajectory.series[f"lambda_normal[{system.contacts[0].name}]"].t
    hits = [event.time for event in trajectory.impacts]
    for k, time in enumerate(t):
        if any(abs(time - hit) < 1e-9 for hit in hits):
            continue  # one time, several states
        x = trajectory(time, "+" if k % len(NODES) == 0 else "-")
        law = max(law, law_violation(system, x[:n_q], contact_forces(trajectory, system, "lambda", k), x[n_q:]))
        tangents = [np.array(out) for out in read_contacts(system)(x[:n_q])][3::3]
        for c, tangent in zip(system.contacts, tangents, strict=True):
            labels = [f"slip[{c.name}]"] if tangent.shape[1] == 1 else [f"slip[{c.name}][{i}]" for i in (0, 1)]
            said = np.array([trajectory.series[label].values[k] for label in labels[: tangent.shape[1]]])
            slip = max(slip, float(np.abs(tangent.T @ x[n_q:] - said).max(initial=0.0)))
    return law, slip, len(t)


# --- closed forms -----------------------------------------------------------------------------------------------------


@cache
def motion_of(case: Case) -> ns.Trajectory:
    return simulate(case.system, case.x0, case.duration, u=case.u)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_friction_in_closed_form(case: Case) -> None:
    """States to 1e-9 on a grid, event times to 1e-10, no event missing; extra ones only where something is hit."""
    trajectory = motion_of(case)
    times = apart(np.linspace(0.0, case.duration, 41), [time for _, _, time in case.events])
    assert np.abs(trajectory(times) - case.exact(times)).max() < 1e-9
    assert np.abs(trajectory.final_state - case.exact(case.duration)).max() < 1e-9
    found = [(event.kind, event.name, event.time) for event in trajectory.events]
    for kind, name, time in case.events:
        assert min([abs(t - time) for k, c, t in found if (k, c) == (kind, name)], default=np.inf) < 1e-10, kind
    hits = [time for kind, _, time in case.events if kind == "impact"]
    for kind, name, t in found:
        known = any((kind, name) == (k, c) and abs(t - time) < 1e-10 for k, c, time in case.events)
        assert known or any(abs(t - hit) < 1e-10 for hit in hits), (kind, name, t)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_laws_hold_in_the_closed_forms(case: Case) -> None:
    trajectory = motion_of(case)
    law, momentum, _ = worst_impact(trajectory, case.system)
    assert law < 1e-9
    assert momentum < 1e-9
    law, slip, count = worst_force(trajectory, case.system)
    assert count >= 8
    assert law < 1e-8
    assert slip < 1e-12


def test_the_check_of_the_laws_sees_a_force_that_pulls_or_pushes_along() -> None:
    system, before, v = point_mass.build(2), np.array([1.5, -2.0]), np.array([1.0, 0.0])
    right = {"ground": np.array([2.0, -1.0])}
    assert law_violation(system, np.zeros(2), right, v, before) < 1e-15
    for wrong in ([2.0, 1.0], [2.0, -0.9], [2.0, -1.1], [-2.0, 0.0]):
        assert law_violation(system, np.zeros(2), {"ground": np.array(wrong)}, v, before) > 0.05
    assert law_violation(system, np.array([0.0, 1.0]), right, v) == 2.0
    assert law_violation(system, np.zeros(2), right, np.array([1.0, -0.1]), before) > 0.05


def test_bouncing_ball() -> None:
    trajectory = simulate(bouncing_ball.build(restitution=0.9), [1.0, 0.0], 2.2)
    fall = np.sqrt(2.0 / GRAVITY)
    exact = [fall, fall * (1 + 2 * 0.9), fall * (1 + 2 * (0.9 + 0.81))]
    np.testing.assert_allclose(exact, [0.451523640986, 1.264266194760, 1.995734493157], rtol=0, atol=1e-12)
    np.testing.assert_allclose([event.time for event in trajectory.events], exact, rtol=0, atol=1e-13)
    speeds = np.array([event.v_after for event in trajectory.events], dtype=float)
    np.testing.assert_allclose(speeds, GRAVITY * fall * 0.9 ** np.arange(1, 4), rtol=0, atol=1e-12)


def test_two_balls_with_a_stiff_spring() -> None:
    exact = exact_balls(1.0)
    trajectory = simulate(two_balls_spring.build(), exact(0.0)[0], 1.0)
    assert [event.kind for event in trajectory.events] == ["impact", "impact"]
    for event, impact in zip(trajectory.events, exact.impacts, strict=True):
        assert event.time == pytest.approx(impact.time, abs=1e-10)
        assert event.impulse == pytest.approx(impact.impulse, abs=1e-8)
    times = np.linspace(0.0, 1.0, 101)
    assert np.abs(trajectory(times) - exact(times)).max() < 1e-9


@pytest.mark.parametrize("friction", [0.0, 0.1, 0.4])
def test_a_curved_contact(friction: float) -> None:
    """A bowl, against the equation of the angle; with friction the mass turns around and stays at last."""
    constants = bowl.Constants(friction=friction)
    exact = bowl.slide(1.2, 0.0, 4.0, constants)
    trajectory = simulate(bowl.build(constants), bowl.state(1.2, 0.0, constants), 4.0)
    times = apart(np.linspace(0.0, 4.0, 81), [t for _, t in exact.events])
    assert np.abs(trajectory(times) - exact(times)).max() < 1e-9
    assert np.abs(np.hypot(trajectory.x[:, 0], trajectory.x[:, 1]) - 1.0).max() < 1e-12
    if friction:
        found = [(event.kind, event.time) for event in trajectory.events]
        assert [kind for kind, _ in found] == [kind for kind, _ in exact.events]
        np.testing.assert_allclose([t for _, t in found], [t for _, t in exact.events], rtol=0, atol=1e-10)


def test_a_long_curved_contact_does_not_drift() -> None:
    """100 s in the bowl at a loose tolerance: after every step gap and gap rate are zero, whatever the steps miss."""
    method = ns.EventDriven(rtol=1e-6, atol=1e-6)
    start = np.array(bowl.state(1.2, 0.0, bowl.STANDARD))
    history = EventDrivenSimulator(bowl.build(), method).run(start, control_of(None, 0, 100.0), np.zeros(0))
    steps = history.phases[0].steps
    assert (history.t, len(history.phases)) == (100.0, 1)
    q, v = np.split(np.array([step.x[0] for step in steps] + [history.x]), 2, axis=1)
    distance = np.hypot(*q.T)
    assert np.abs(distance - 1.0).max() < 1e-12
    assert np.abs((q * v).sum(axis=1) / distance).max() < 1e-12
    # Negative control: the ends of the steps, before they are put back.
    q, v = np.split(np.array([step.x[-1] for step in steps]), 2, axis=1)
    assert np.abs(np.hypot(*q.T) - 1.0).max() > 1e-8
    assert np.abs((q * v).sum(axis=1)).max() > 1e-8


@pytest.mark.parametrize("integrator", ["DOP853", "Radau"])
def test_an_event_lies_on_its_guard_at_a_loose_tolerance(integrator: Any) -> None:
    """The dense output misses the gap by far more: a second and a third step to the corrected time are needed."""
    method = ns.EventDriven(rtol=1e-4, atol=1e-4, integrator=integrator)
    start = exact_balls(1.0)(0.0)[0]
    history = EventDrivenSimulator(two_balls_spring.build(), method).run(start, control_of(None, 0, 1.0), np.zeros(0))
    hits = [node for node in history.nodes if node.impact is not None]
    assert len(hits) >= 2
    for node in hits:
        assert node.before[0] == pytest.approx(two_balls_spring.Constants().radius, abs=1e-13)


def test_three_boxes() -> None:
    """Redundant contacts, slips, sticks and impacts under a control of 15 stages: the exact reduced motion."""
    system = three_boxes.build()
    u = np.array(boxes_problem.KNOWN_CONTROL)[:, None]
    motion, _ = reduced_simulation(boxes_problem.KNOWN_CONTROL)
    trajectory = simulate(system, three_boxes.START, 6.0, u=u)
    times = apart(np.linspace(0.0, 6.0, 121), [impact.time for impact in motion.impacts])
    assert np.abs(trajectory(times) - motion.full_state(times)).max() < 1e-10
    assert [event.name for event in trajectory.impacts] == [impact.name for impact in motion.impacts]
    for event, impact in zip(trajectory.impacts, motion.impacts, strict=True):
        assert event.time == pytest.approx(impact.time, abs=1e-11)
        assert event.impulse == pytest.approx(impact.impulse, abs=1e-10)
    assert worst_impact(trajectory, system)[0] < 1e-9


# --- friction in space ------------------------------------------------------------------------------------------------


def spatial(friction: tuple[float, float]) -> ns.CLS:
    """A point mass of 1 kg on the plane, z up, under a horizontal control force."""
    q, v, u = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("u", 2)
    ground = ns.Contact("ground", gap=q[2], tangent=ca.DM([[1, 0], [0, 1], [0, 0]]), friction=friction)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(3), force=ca.vertcat(u, -GRAVITY), contacts=[ground])


@pytest.mark.parametrize("friction", [(0.4, 0.4), (0.2, 0.6)])
def test_slip_in_space_under_a_transverse_force(friction: tuple[float, float]) -> None:
    """Also anisotropic: lambda_t,k = -lambda_n mu_k^2 v_k / |mu v|; never stops, the force turns."""
    mu = np.array(friction)

    def push(t: float) -> np.ndarray:
        return np.array([6.5 * np.cos(2 * t), 6.5 * np.sin(2 * t)])

    def flow(t: float, x: np.ndarray) -> np.ndarray:
        v = x[2:]
        return np.concatenate([v, push(t) - GRAVITY * mu**2 * v / np.linalg.norm(mu * v)])

    start = [0.0, 0.0, 1.0, -2.0]
    exact = solve_ivp(flow, (0, 1.5), start, "DOP853", rtol=1e-13, atol=1e-13)
    system = spatial(friction)
    trajectory = simulate(system, [0, 0, 0, 1.0, -2.0, 0], 1.5, u=push)
    np.testing.assert_allclose(trajectory.final_state[[0, 1, 3, 4]], exact.y[:, -1], rtol=0, atol=1e-10)
    assert trajectory.events == ()
    law, slip, _ = worst_force(trajectory, system)
    assert (law, slip) < (1e-10, 1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["auto", "Radau"])
def test_a_turning_force_that_grows_breaks_a_mass_loose(integrator: Any) -> None:
    """Slip from rest begins without acceleration and in a direction that turns: stiff as long as it is slow."""
    rate, turn, grip = 10.0, 2.0, 0.5 * GRAVITY
    start, h = grip / rate, 1e-7

    def push(t: float) -> np.ndarray:
        return rate * t * np.array([np.cos(turn * t), np.sin(turn * t)])

    def flow(t: float, x: np.ndarray) -> np.ndarray:
        return np.concatenate([x[2:], push(t) - grip * x[2:] / np.linalg.norm(x[2:])])

    first = np.array([np.cos(turn * start), np.sin(turn * start)])
    x = np.concatenate([np.zeros(2), 0.5 * rate * h**2 * first])
    exact = solve_ivp(flow, (start + h, 0.8), x, "Radau", rtol=1e-13, atol=1e-15).y[:, -1]
    method = ns.EventDriven(integrator=integrator)
    trajectory = simulate(point_mass.build(3), np.zeros(6), 0.8, u=push, method=method)
    assert [event.kind for event in trajectory.events] == ["slip"]
    assert trajectory.events[0].time == pytest.approx(start, abs=1e-12)
    np.testing.assert_allclose(trajectory.final_state[[0, 1, 3, 4]], exact, rtol=0, atol=1e-10)
    assert len(trajectory.t) < 1500  # 1040 with absolute tolerances relative to a tenth of a metre per second


@pytest.mark.parametrize("sideways", [1e-2, 1e-4, 1e-6, 1e-9])
def test_a_near_reversal_in_space_turns_quickly(sideways: float) -> None:
    """x' from -2 against a force of 8 N: with a small y' the slip turns without ever stopping; in the limit it stops.

    Up to the turn y' = y'_0 (|x'| / 2)^k with k = mu g / (8 + mu g), so it turns where both are about
    (y'_0 / 2^k)^(1 / (1 - k)) fast; only there the motion along x differs from the planar reversal.
    """
    trajectory = simulate(point_mass.build(3), [0, 0, 0, -2.0, sideways, 0], 1.0, u=[8.0, 0.0])
    brake, drive = 8.0 + 0.5 * GRAVITY, 8.0 - 0.5 * GRAVITY
    turn = 2.0 / brake
    exact = [-0.5 * 2.0 * turn + 0.5 * drive * (1 - turn) ** 2, drive * (1 - turn)]
    k = 0.5 * GRAVITY / brake
    atol = max(1e-11, (sideways / 2**k) ** (1 / (1 - k)))
    np.testing.assert_allclose(trajectory.final_state[[0, 3]], exact, rtol=0, atol=atol)
    assert abs(trajectory.final_state[1]) < 0.2 * sideways


# --- guards between samples -------------------------------------------------------------------------------------------


def test_the_earlier_of_two_contacts_in_one_step() -> None:
    """A free flight is one step of the integrator: both gaps close between the same two samples."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    for first, second in ((0, 1), (1, 0)):
        gaps = [q[first], q[second]]
        system = ns.CLS(
            q=q,
            v=v,
            mass_matrix=ca.DM.eye(2),
            force=ca.DM([0, 0]),
            contacts=[ns.Contact(name, gap=gap, restitution=0.5) for name, gap in zip("ab", gaps, strict=True)],
        )
        trajectory = simulate(system, [1.0, 1.001, -1.0, -1.0], 5.0)
        assert [event.time for event in trajectory.events] == pytest.approx([1.0, 1.001], abs=1e-13)
        np.testing.assert_allclose(trajectory.final_state, [2.0, 1.9995, 0.5, 0.5], rtol=0, atol=1e-12)


def test_the_first_of_many_teeth() -> None:
    """A straight flight over a corrugated ground: one step of the integrator, hundreds of minima of the gap."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ground = ns.Contact("ground", gap=q[1] - 0.05 * ca.cos(40 * q[0]), restitution=0.5)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, 0]), contacts=[ground])
    trajectory = simulate(system, [0.0, 0.2, 3.0, -0.02], 8.0)
    t = np.linspace(0, 8, 4_000_001)
    first = t[np.argmax(0.2 - 0.02 * t - 0.05 * np.cos(120 * t) < 0)]
    assert trajectory.impacts[0].time == pytest.approx(first, abs=4e-6)


def test_slips_of_a_body_at_rest_under_a_control_that_oscillates() -> None:
    """At rest nothing limits the steps, yet every slip is found: the force of 5.5 sin(30 t) exceeds mu m g in part."""
    trajectory = simulate(point_mass.build(2), [0, 0, 0, 0], 2.0, u=lambda t: [5.5 * np.sin(30 * t)])
    slips = [event.time for event in trajectory.events if event.kind == "slip"]
    onset = np.arcsin(0.5 * GRAVITY / 5.5)
    np.testing.assert_allclose(slips, (onset + np.pi * np.arange(len(slips))) / 30, rtol=0, atol=1e-12)
    assert len(slips) == 19


@pytest.mark.parametrize("height", [0.999, 0.99999])
def test_a_fast_body_meets_a_round_one_and_parts(height: float) -> None:
    """Past a disc of radius 1 m with 1000 m/s: contact for milliseconds of a flight of seconds, in one step."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    disc = ns.Contact("disc", gap=ca.norm_2(q) - 1.0, restitution=1.0)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, 0]), contacts=[disc])
    trajectory = simulate(system, [-2000.0, height, 1000.0, 0.0], 4.0)
    exact = (2000.0 - np.sqrt(1 - height**2)) / 1000.0
    assert [event.time for event in trajectory.events] == pytest.approx([exact], abs=1e-11)
    angle = 2 * np.arccos(height)  # of the reflection
    np.testing.assert_allclose(
        trajectory.final_state[2:], [1000 * np.cos(angle), 1000 * np.sin(angle)], rtol=0, atol=1e-6
    )


def wall_and_force(mass: float = 1.0) -> ns.CLS:
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    wall = ns.Contact("wall", gap=q, restitution=0.5)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM(mass), force=mass * u, contacts=[wall])


@every_value(gap=[0.0, 1e-13, -1e-13, 1e-10, -1e-10], speed=[0.0, 1e-13, -1e-13, 3e-11, -3e-11], mass=[1.0, 1e3])
def test_a_contact_that_closes_softly_makes_no_impact(gap: float, speed: float, mass: float) -> None:
    """gap = (1 - t)^3 up to t = 1, where its rate and acceleration vanish; the force then holds it closed.

    The relative perturbations of the start make three roots of the triple one, or one that is later. All of them lie
    within the 1e-3 s that the gap needs for the 1e-9 m of the rule (`soft_closing`), and the outcome is the same.
    """
    start = [1.0 * (1.0 + gap), -3.0 * (1.0 + speed)]
    trajectory = simulate(wall_and_force(mass), start, 2.0, u=lambda t: [6 * (1 - t)])
    assert [event.kind for event in trajectory.events] == ["contact"]
    assert trajectory.events[0].time == pytest.approx(1.0, abs=1e-3)
    assert trajectory.series["lambda_normal[wall]"].values[-1] == pytest.approx(6.0 * mass, rel=1e-9)
    np.testing.assert_allclose(trajectory.final_state, 0.0, rtol=0, atol=1e-9)


@pytest.mark.parametrize("depth", [1e-8, 1e-7])
def test_a_hop_above_the_scale_of_a_soft_closing_is_made_of_impacts(depth: float) -> None:
    """(1 - t)^3 - d hits at t = 1 - d^(1/3) with 3 d^(2/3), rises by 4 d > 1e-9 m, and is back at 1 + 2 d^(1/3)."""
    trajectory = simulate(wall_and_force(), [1.0 - depth, -3.0], 2.0, u=lambda t: [6 * (1 - t)])
    assert [event.kind for event in trajectory.events] == ["impact", "impact", "contact"]
    times = 1.0 + np.array([-1.0, 2.0, 2.0]) * np.cbrt(depth)
    np.testing.assert_allclose([event.time for event in trajectory.events], times, rtol=0, atol=1e-6)
    assert trajectory.events[0].v_before == pytest.approx(-3.0 * np.cbrt(depth) ** 2, rel=1e-3)


@every_value(leaves=np.geomspace(1e-7, 0.2, 16).tolist(), hit=[1.0, 0.1, 0.01], jerk=[46.0, 2000.0])
def test_a_hop_after_an_impact_ends_however_low_it_is(leaves: float, hit: float, jerk: float) -> None:
    """An inelastic impact at t_h; the force a - j (t - t_h) then lifts the mass by 2 a^3 / (3 j^2), and presses it.

    The flight lasts 3 a / j; a hop that is too low to be resolved closes earlier, or not before 1e-9 m below the wall.
    """
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    force = ca.vertcat(leaves - jerk * q[1], 0.0)  # q[1] is the time after the impact
    mass = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=force, contacts=[ns.Contact("wall", gap=q[0])])
    start = [hit + leaves * hit**2 / 2 + jerk * hit**3 / 6, -hit, -1.0 - leaves * hit - jerk * hit**2 / 2, 1.0]
    trajectory = simulate(mass, start, hit + 0.5, method=ns.EventDriven(grazing="continue"))
    assert trajectory.status is ns.Status.SOLVED
    after = [event for event in trajectory.events if event.time > hit + 1e-12]
    closes = next(event.time for event in after if event.kind == "contact") - hit
    assert {event.kind for event in after} <= {"impact", "contact"}
    assert closes <= 3.0 * leaves / jerk * 1.001 + np.cbrt(6e-9 / jerk)
    assert trajectory.series["lambda_normal[wall]"].values[-1] == pytest.approx(0.5 * jerk - leaves, rel=1e-9)
    np.testing.assert_allclose(trajectory.final_state[[0, 2]], 0.0, rtol=0, atol=1e-9)


def crossed(coefficients: list[float], end: float = 1.0) -> Crossing:
    """`soft_closing` of a crossing at t = 0, for a gap that is a polynomial; coefficients in rising order."""
    gap = np.polynomial.Polynomial(coefficients)
    found = Crossing(guard=0, low=-1.0, high=end, time=0.0)
    return soft_closing(found, lambda t: (float(gap(t)), float(gap.deriv()(t)), float(gap.deriv(2)(t))), end)


def test_the_rule_of_a_soft_closing() -> None:
    """A gap g + v t + a t^2 / 2 - t^3 has the acceleration zero at a / 6, and leaves the band near 1e-3 s."""
    for gap, rate, acceleration in [(0, 0, 0), (1e-12, -1e-9, 6e-5), (-1e-12, -1e-8, 6e-4), (1e-10, 0, 6e-5)]:
        found = crossed([gap, rate, 0.5 * acceleration, -1.0])
        assert isinstance(found, SoftClosing)
        assert found.time == pytest.approx(acceleration / 6, abs=1e-12)
        assert 1e-4 < found.high < 3e-3
    others = {
        "leaves": [0.0, 0.0, 1.0],
        "leaves with an acceleration that vanishes too": [0.0, 0.0, 0.0, 0.0, 1.0],
        "a hop of 4e-9 m": [0.0, 0.0, 3e-3 * (6 / 4) ** (1 / 3), -1.0],
        "pressed at once": [0.0, -1e-7, -5.0, -1.0],
        "too fast": [0.0, -1e-5, 6e-3, -1.0],
        "stays in the band": [0.0, 0.0, 0.0, -1e-10],
    }
    for name, coefficients in others.items():
        assert not isinstance(crossed(coefficients), SoftClosing), name


# --- controls and parameters ------------------------------------------------------------------------------------------


def cart(wall: float = 5.0) -> ns.CLS:
    """2 kg, a force, a wall; p is a drag coefficient."""
    q, v, u, p = (ca.SX.sym(name) for name in "qvup")
    contacts = [ns.Contact("wall", gap=wall - q, restitution=0.5)]
    return ns.CLS(q=q, v=v, u=u, p=p, p_default=[0.0], mass_matrix=ca.DM(2.0), force=u - p * v, contacts=contacts)


def switched(t: float) -> float:
    return 1.0 if t < 0.5 else -1.0


@pytest.mark.parametrize(
    ("u", "exact"),
    [
        (None, [0.0, 0.0]),
        (0.5, [0.5, 0.5]),
        ([0.5], [0.5, 0.5]),
        ([[1.0], [0.0], [-1.0], [0.0]], [0.25, 0.0]),
        (ns.PiecewiseConstant([0.0, 0.7, 2.0], [2.0, 0.0]), [0.245 + 0.7 * 1.3, 0.7]),
        (lambda t: [t], [2.0**3 / 12, 1.0]),
        (lambda t, x: [2.0 * (1.0 - x[1])], [1.0 + np.exp(-2.0), 1.0 - np.exp(-2.0)]),
        (lambda t, x: [-2.0 * x[0] + 2.0], [1.0 - np.cos(2.0), np.sin(2.0)]),
    ],
)
def test_controls(u: Any, exact: list[float]) -> None:
    """Constant, rows, unequal intervals, functions of t and (t, x): all exactly, not constant within steps."""
    trajectory = simulate(cart(), [0.0, 0.0], 2.0, u=u)
    np.testing.assert_allclose(trajectory.final_state, exact, rtol=0, atol=1e-11)


def test_a_control_with_jumps_between_events() -> None:
    """Stages 0.3, 0.8, ... with an impact between: the wall at .05 m, from rest with +-2 N."""
    u = ns.PiecewiseConstant([0.0, 0.3, 0.8], [2.0, -2.0])
    trajectory = simulate(cart(wall=0.05), [0.0, 0.0], 0.8, u=u)
    # Hits at t = sqrt(2 * .05), after the break: at .3 it is at .045 with .3 m/s, then brakes.
    s = 0.3 - np.sqrt(0.09 - 2 * 0.005)
    assert [event.time for event in trajectory.events] == pytest.approx([0.3 + s], abs=1e-12)
    left, back = 0.5 - s, -0.5 * (0.3 - s)
    exact = [0.05 + back * left - 0.5 * left**2, back - left]
    np.testing.assert_allclose(trajectory.final_state, exact, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(trajectory.u[:, 0], [2.0, -2.0])
    np.testing.assert_allclose(trajectory.u_grid, [0.0, 0.3, 0.8], rtol=0, atol=1e-15)


def test_a_trajectory_and_a_solution_as_control() -> None:
    system = cart()
    ocp = ns.OCP(
        system,
        horizon=2.0,
        x0=[0, 0],
        stage_cost=ca.sumsqr(system.u),
        terminal_constraints=[ns.Constraint(system.x, [1, 0], [1, 0])],
    )
    solution = ns.solve(ocp, ns.FESDJ(control_stages=4))
    assert solution.success
    again = simulate(system, [0, 0], 2.0, u=solution)
    np.testing.assert_allclose(again.final_state, [1.0, 0.0], rtol=0, atol=1e-8)
    third = simulate(system, [0, 0], 2.0, u=again)
    np.testing.assert_allclose(third.final_state, again.final_state, rtol=0, atol=1e-14)


def test_parameters() -> None:
    trajectory = simulate(cart(), [0.0, 0.0], 2.0, u=1.0, p=[3.0])
    decay = np.exp(-1.5 * 2.0)
    np.testing.assert_allclose(
        trajectory.final_state, [(2.0 - (1 - decay) / 1.5) / 3.0, (1 - decay) / 3.0], rtol=0, atol=1e-12
    )
    assert trajectory.parameters == {"p_0": 3.0}


# --- integrators ------------------------------------------------------------------------------------------------------


def test_radau_bounces_too() -> None:
    """Dense output of Radau is of order 4: the times of events do not suffer, as the last step ends there."""
    method = ns.EventDriven(integrator="Radau")
    exact = exact_balls(0.5, constants=two_balls_spring.Constants(stiffness=100.0))
    trajectory = simulate(two_balls_spring.build(stiffness=100.0), exact(0.0)[0], 0.5, method=method)
    assert len(exact.impacts) > 0
    for event, impact in zip(trajectory.events, exact.impacts, strict=True):
        assert event.time == pytest.approx(impact.time, abs=1e-10)
    np.testing.assert_allclose(trajectory.final_state, exact(0.5)[0], rtol=0, atol=1e-9)


def test_a_stiff_damper_changes_the_integrator() -> None:
    """x' dies within 1e-5 s: DOP853 would be held to steps of 6e-5 s for a second; the ball bounces meanwhile."""
    q, v, drag = ca.SX.sym("q", 2), ca.SX.sym("v", 2), 1e5
    system = ns.CLS(
        q=q,
        v=v,
        mass_matrix=ca.DM.eye(2),
        force=ca.vertcat(-drag * v[0], -GRAVITY),
        contacts=[ns.Contact("ground", gap=q[1], restitution=0.9)],
    )
    ball = bouncing_ball.build(restitution=0.9)
    exact = simulate(ball, [1.0, 0.0], 1.5).final_state
    x0 = np.array([0.0, 1.0, 1.0, 0.0])
    history = EventDrivenSimulator(system, METHOD).run(x0, control_of(None, 0, 1.5), np.zeros(0))
    assert history.phases[-1].stiff
    assert sum(len(phase.steps) for phase in history.phases) < 500
    np.testing.assert_allclose(history.x, [1 / drag, exact[0], 0.0, exact[1]], rtol=0, atol=1e-10)
    short = EventDrivenSimulator(system, ns.EventDriven(integrator="DOP853")).run(
        x0, control_of(None, 0, 0.05), np.zeros(0)
    )
    assert sum(len(phase.steps) for phase in short.phases) > 500  # for a thirtieth of the time


def test_tolerances_matter() -> None:
    exact = exact_balls(0.4)
    errors = []
    for rtol in (1e-4, 1e-7, 1e-10):
        method = ns.EventDriven(rtol=rtol, atol=rtol)
        trajectory = simulate(two_balls_spring.build(), exact(0.0)[0], 0.4, method=method)
        errors.append(np.abs(trajectory.final_state - exact(0.4)[0]).max())
    assert errors[0] > 100 * errors[1] > 1e4 * errors[2]
    assert errors[2] < 1e-8


# --- redundant contacts -----------------------------------------------------------------------------------------------


def pushed_boxes(law: Callable[[float], float], duration: float, friction: float = 0.1) -> ns.Trajectory:
    """The three boxes of the paper side by side, all touching, at rest."""
    system = three_boxes.build(three_boxes.Constants(sides=(friction, friction)))
    start = [-2.0, 1.0, 0.0, 1.0, 2.0, 1.0, *[0.0] * 6]
    return simulate(system, start, duration, u=lambda t: [law(t)])


@pytest.mark.parametrize("friction", [0.0, 0.1])
def test_boxes_that_stick_while_they_are_pushed_together(friction: float) -> None:
    """A force 2 t on the middle box also pushes the right one: both slip at 2 t = 2 mu m g, and not before.

    How the push is shared between the ground and the next box is not determined before; the left box stays.
    """
    start = 0.2 * GRAVITY
    trajectory = pushed_boxes(lambda t: 2.0 * t, 2.5, friction)
    slips = {event.name: event.time for event in trajectory.events if event.kind == "slip"}
    assert set(slips) >= {"ground_middle", "ground_right"}
    assert "ground_left" not in slips
    for name in ("ground_middle", "ground_right"):
        assert slips[name] == pytest.approx(start, abs=1e-9)
    # Both together: 2 m x'' = 2 (t - start).
    left = 2.5 - start
    np.testing.assert_allclose(trajectory.final_state[[6, 8, 10]], [0, left**2 / 2, left**2 / 2], rtol=0, atol=1e-9)
    np.testing.assert_allclose(trajectory.final_state[[2, 4]], [left**3 / 6, 2 + left**3 / 6], rtol=0, atol=1e-9)


def table(friction: float = 0.4, unit: float = 1.0) -> ns.CLS:
    """A table top on four legs at (+-.5, +-.3), small rotations, loads 1 m below the centre: forces at the feet.

    Coordinates x, y, z [m], turns about the three axes [rad]; mass 10 kg; controls: force along x [N], torque about
    the vertical [N m]; all masses and forces times `unit`. Four normal forces for three coordinates, eight friction
    forces for three.
    """
    q, v, u = ca.SX.sym("q", 6), ca.SX.sym("v", 6), ca.SX.sym("u", 2)
    legs = []
    for name, a, b in (("ne", 0.5, 0.3), ("nw", -0.5, 0.3), ("sw", -0.5, -0.3), ("se", 0.5, -0.3)):
        tangent = ca.DM([[1, 0, 0, 0, 0, -b], [0, 1, 0, 0, 0, a]]).T
        legs.append(ns.Contact(name, gap=q[2] + b * q[3] - a * q[4], tangent=tangent, friction=friction))
    inertia = ca.diag(ca.DM([10, 10, 10, 0.8, 1.2, 1.5]))
    force = ca.vertcat(u[0], 0, -10 * GRAVITY, 0, 0, u[1])
    return ns.CLS(q=q, v=v, u=u, mass_matrix=unit * inertia, force=unit * force, contacts=legs)


@pytest.mark.parametrize(
    ("direction", "resistance", "inertia", "coordinate"),
    [
        slow_row((1.0, 0.0), 0.4 * 10 * GRAVITY, 10.0, 0),
        slow_row((0.0, 1.0), 0.4 * 10 * GRAVITY * np.hypot(0.5, 0.3), 1.5, 5),
    ],
    ids=["pushed", "turned"],
)
def test_a_table_on_four_legs_slips_when_all_legs_are_at_their_limit(
    direction: tuple[float, float], resistance: float, inertia: float, coordinate: int
) -> None:
    """However the load is shared, the legs resist mu m g in all, and mu m g times their distance against a turn."""
    rate = resistance  # the limit is reached after 1 s
    trajectory = simulate(table(), np.zeros(12), 1.2, u=lambda t: rate * t * np.array(direction))
    slips = [event.time for event in trajectory.events if event.kind == "slip"]
    assert len(slips) == 4
    np.testing.assert_allclose(slips, 1.0, rtol=0, atol=1e-9)
    assert not [event for event in trajectory.events if event.kind == "release"]
    if coordinate == 0:
        assert trajectory.final_state[6] == pytest.approx(rate * 0.2**2 / (2 * inertia), abs=1e-9)


def test_the_forces_farthest_from_any_change() -> None:
    """Two normal forces that only matter in sum, 0 <= f: the middle; with a cone for the first, its slack counts."""
    even = most_interior(np.array([2.0, 0.0]), np.array([[1.0], [-1.0]]), [(0, 0.0, []), (1, 0.0, [])])
    np.testing.assert_allclose(even, [1.0, 1.0], rtol=0, atol=1e-12)
    # f_t = 0.5 is fixed: the slack mu f_0 - .5 with mu = 1 equals f_1 = 2 - f_0 at f_0 = 1.25.
    shares = [(0, 1.0, [2]), (1, 0.0, [])]
    tilted = most_interior(np.array([2.0, 0.0, 0.5]), np.array([[1.0], [-1.0], [0.0]]), shares)
    np.testing.assert_allclose(tilted, [1.25, 0.75, 0.5], rtol=0, atol=1e-12)


# --- units ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1e3, 1e6, 1e9])
def test_the_unit_of_length_does_not_matter(unit: float) -> None:
    """Millimetres, micrometres, nanometres: the rounding of a fast impact may exceed what is called closed."""
    trajectories = []
    for scale in (1.0, unit):
        q, v = ca.SX.sym("q"), ca.SX.sym("v")
        ground = ns.Contact("ground", gap=q, restitution=0.5)
        system = ns.CLS(q=q, v=v, mass_matrix=ca.DM(1), force=ca.DM(-GRAVITY * scale), contacts=[ground])
        trajectories.append(simulate(system, [0.1 * scale, 0.0], 0.4))
    one, other = trajectories
    assert [event.kind for event in other.events] == ["impact"] * 4
    np.testing.assert_allclose([e.time for e in other.events], [e.time for e in one.events], rtol=1e-9)
    np.testing.assert_allclose(other.final_state / unit, one.final_state, rtol=1e-9)


def landing(unit: float) -> ns.Trajectory:
    """A mass of one unit [kg] lands, slides and stops."""
    return simulate(sliding(unit), [0.0, 1.0, 3.0, 0.0], 1.0)


def ramp(unit: float) -> ns.Trajectory:
    """A growing force overcomes friction, and a lift that grows faster opens the contact."""
    return simulate(sliding(unit), np.zeros(4), 0.8, u=lambda t: [20.0 * unit * t, 20.0 * unit * t**2])


def shared(unit: float) -> ns.Trajectory:
    """The same on two contacts whose forces are redundant."""
    return simulate(sliding(unit, count=2), np.zeros(4), 0.8, u=lambda t: [20.0 * unit * t, 20.0 * unit * t**2])


def pushed_table(unit: float) -> ns.Trajectory:
    """In space."""
    return simulate(table(unit=unit), np.zeros(12), 1.2, u=lambda t: np.array([4.0 * GRAVITY * t, 0.0]))


def sliding(unit: float, count: int = 1) -> ns.CLS:
    """A mass of one unit [kg] on the ground, with forces [N] along and up as controls."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
    contacts = [ns.Contact(f"ground_{k}", gap=q[1], tangent=ca.DM([1, 0]), friction=0.5) for k in range(count)]
    force = u + ca.DM([0.0, -unit * GRAVITY])
    return ns.CLS(q=q, v=v, u=u, mass_matrix=unit * ca.DM.eye(2), force=force, contacts=contacts)


@pytest.mark.parametrize(
    ("run", "unit"),
    slow_but(
        [(landing, 1e-12), (ramp, 1e-6), (shared, 1e6)],
        product([landing, ramp, shared, pushed_table], [1e-12, 1e-6, 1e6]),
    ),
)
def test_the_unit_of_mass_does_not_matter(run: Callable[[float], ns.Trajectory], unit: float) -> None:
    one, other = run(1.0), run(unit)
    assert {event.kind for event in one.events} >= {"slip"} or run is landing
    assert [(e.kind, e.name) for e in other.events] == [(e.kind, e.name) for e in one.events]
    np.testing.assert_allclose([e.time for e in other.events], [e.time for e in one.events], rtol=0, atol=1e-9)
    np.testing.assert_allclose(other.final_state, one.final_state, rtol=0, atol=1e-9)


def test_a_force_that_starts_at_the_limit_of_friction_and_grows() -> None:
    """Stick is admissible at the first instant, and no longer: x'' = t."""
    trajectory = simulate(point_mass.build(2), np.zeros(4), 0.6, u=lambda t: [0.5 * GRAVITY + t])
    assert [(event.kind, event.time) for event in trajectory.events] == [("slip", 0.0)]
    np.testing.assert_allclose(trajectory.final_state, [0.6**3 / 6, 0.0, 0.6**2 / 2, 0.0], rtol=0, atol=1e-12)
