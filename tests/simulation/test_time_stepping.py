"""Time-stepping: orders against closed forms, rest, friction, restitution, penetration, drift, and what it refuses."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import ball_in_corner, bouncing_ball, bowl, falling_rod, many_balls, oscillator, point_mass
from nosnoc_py.contact_problems.colours import bodies_of, colouring_of
from nosnoc_py.contact_problems.cones import corners_of, onto_polygon, polygon
from nosnoc_py.contact_problems.projected import Projected, solve
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.simulation.common import SimulationTask
from nosnoc_py.simulation.time_stepping.dynamics import ModelSizes, inverse_of, problem_of, velocity_change
from nosnoc_py.simulation.time_stepping.options import TimeStepping
from nosnoc_py.simulation.time_stepping.run import run
from nosnoc_py.solution import load
from tests.pairwise import slow_row

SCHEMES = ("moreau_jean", "stewart_trinkle")
GRAVITY = 9.81


def simulate(system: Any, x0: Any, duration: float, method: TimeStepping | None = None, **more: Any) -> ns.Trajectory:
    return run(system, method or TimeStepping(), SimulationTask(x0=x0, duration=duration, **more))


def order(system: ns.CLS, x0: Any, duration: float, exact: Any, method: TimeStepping, samples: int = 1) -> float:
    """Slope of a fit over halvings of the step.

    Where an impact lies in its step makes single errors oscillate: every point is the mean over many similar steps.
    """
    steps, errors = [], []
    for count in (100, 200, 400):
        counts = [round(count * (1.0 + 0.3 * k / samples)) for k in range(samples)]
        ends = np.array([simulate(system, x0, duration, method, steps=n).final_state for n in counts])
        steps.append(np.mean(duration / np.array(counts)))
        errors.append(np.abs(ends - exact).max(axis=1).mean())
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


def tower(masses: list[float], restitution: float = 0.0, gravity: float = GRAVITY, ground: bool = True) -> ns.CLS:
    """Blocks of size one above each other, or in a row."""
    n = len(masses)
    q, v = ca.SX.sym("q", n), ca.SX.sym("v", n)
    contacts = [ns.Contact("0", gap=q[0] - 0.5, restitution=restitution)] if ground else []
    contacts += [ns.Contact(f"{i}", gap=q[i] - q[i - 1] - 1.0, restitution=restitution) for i in range(1, n)]
    weight = ca.SX(ca.DM([-gravity * mass for mass in masses]))
    return ns.CLS(q=q, v=v, mass_matrix=ca.diag(ca.DM(masses)), force=weight, contacts=contacts)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_order_one_of_the_bouncing_ball(scheme: Any) -> None:
    """After the impacts at .451523640986 and 1.264266194760."""
    system, exact = bouncing_ball.build(0.9), bouncing_ball.exact([1.6])[0]
    found = order(system, [1.0, 0.0], 1.6, exact, TimeStepping(scheme=scheme), samples=10)
    assert 0.85 <= found <= 1.15


@pytest.mark.parametrize("scheme", SCHEMES)
def test_impacts_of_the_bouncing_ball_are_events(scheme: Any) -> None:
    trajectory = simulate(bouncing_ball.build(0.9), [1.0, 0.0], 2.2, TimeStepping(scheme=scheme))
    assert [event.kind for event in trajectory.events] == ["impact"] * 3
    times = [event.time for event in trajectory.impacts]
    assert times == pytest.approx([0.451523640986, 1.264266194760, 1.995734493157], abs=3e-3)
    speed = np.sqrt(2.0 * GRAVITY)
    first = trajectory.impacts[0]
    assert first.v_before == pytest.approx(-speed, abs=2e-2)
    assert first.v_after == pytest.approx(-0.9 * (first.v_before or 0.0), abs=1e-9)
    assert first.impulse == pytest.approx(1.9 * speed, abs=4e-2)
    assert trajectory.series["Lambda_normal[ground]"].values[0] == pytest.approx(first.impulse, rel=1e-14)


@pytest.mark.parametrize(("scheme", "theta"), [("moreau_jean", 1.0), ("stewart_trinkle", 1.0)])
@pytest.mark.parametrize("duration", [0.3, 0.6])
def test_order_one_of_the_friction_block(scheme: Any, theta: float, duration: float) -> None:
    """From v = 2 with mu = .5 it stops after .407747196738 m, at t = .407747196738."""
    stop, deceleration = 0.407747196738, 0.5 * GRAVITY
    slides = [2.0 * duration - 0.5 * deceleration * duration**2, 0.0, 2.0 - deceleration * duration, 0.0]
    exact = slides if duration < stop else [stop, 0.0, 0.0, 0.0]
    method = TimeStepping(scheme=scheme, theta=theta)
    found = order(point_mass.build(2), [0.0, 0.0, 2.0, 0.0], duration, exact, method)
    assert 0.85 <= found <= 1.15


def test_a_constant_friction_force_has_order_two_at_the_midpoint() -> None:
    exact = [0.407747196738, 0.0, 0.0, 0.0]
    assert order(point_mass.build(2), [0.0, 0.0, 2.0, 0.0], 0.6, exact, TimeStepping()) >= 1.85


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_tower_at_rest_stays_at_rest(scheme: Any) -> None:
    """Forces are the weights above; restitution does not shake it."""
    masses, method = [1.0, 2.0, 3.0], TimeStepping(scheme=scheme, tolerance=1e-14)
    trajectory = simulate(tower(masses, restitution=0.5), [0.5, 1.5, 2.5, 0.0, 0.0, 0.0], 0.5, method)
    assert np.abs(trajectory.x - trajectory.x[0]).max() < 1e-12
    for k, weight in enumerate(GRAVITY * np.array([6.0, 5.0, 3.0])):
        np.testing.assert_allclose(trajectory[f"lambda_normal[{k}]"], weight, rtol=1e-10)
    assert {event.kind for event in trajectory.events} == {"contact"}


def test_without_contacts_it_falls_through() -> None:
    """Negative control of the tower: the same without contacts."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM(1.0), force=ca.SX(-GRAVITY))
    trajectory = simulate(system, [0.5, 0.0], 0.5)
    assert trajectory.final_state[0] == pytest.approx(0.5 - 0.5 * GRAVITY * 0.25, abs=5e-3)


def test_a_landing_without_restitution_is_exact() -> None:
    """It touches the ground in one step and loses its speed in the next one: one impact, then contact."""
    trajectory = simulate(bouncing_ball.build(0.0), [1.0, 0.0], 0.6)
    assert abs(trajectory.final_state).max() < 1e-12
    assert [event.kind for event in trajectory.events] == ["impact", "contact"]
    assert trajectory.impacts[0].impulse == pytest.approx(np.sqrt(2.0 * GRAVITY), abs=2.5e-2)
    assert trajectory.impacts[0].v_after == pytest.approx(0.0, abs=1e-12)


def test_conic_friction_in_space_slides_straight() -> None:
    """A pyramid of friction does not: the negative control."""
    system, x0 = point_mass.build(3), [0.0, 0.0, 0.0, 1.2, 1.6, 0.0]
    straight = simulate(system, x0, 0.6)
    assert straight.final_state[:2] == pytest.approx(0.407747196738 * np.array([0.6, 0.8]), abs=1e-5)
    assert abs(straight.x[:, 1] * 1.2 - straight.x[:, 0] * 1.6).max() < 1e-13
    corners = simulate(system, x0, 0.6, TimeStepping(friction="polyhedral", directions=6)).final_state
    assert abs(corners[1] * 1.2 - corners[0] * 1.6) > 0.05


def test_a_pyramid_with_many_edges_is_nearly_a_cone() -> None:
    system, x0 = point_mass.build(3), [0.0, 0.0, 0.0, 1.2, 1.6, 0.0]
    ends = [simulate(system, x0, 0.6, TimeStepping(friction="polyhedral", directions=n)).final_state for n in (8, 64)]
    exact = 0.407747196738 * np.array([0.6, 0.8])
    errors = [np.abs(end[:2] - exact).max() for end in ends]
    assert errors[1] < 0.015 < errors[0]


def test_projection_onto_a_polygon() -> None:
    """The nearest point is the one inside from which no corner lies in the direction of the force."""
    generator = np.random.default_rng(1)
    forces, radius = generator.normal(size=(200, 2)), generator.uniform(0.0, 2.0, 200)
    found = onto_polygon(forces, radius, polygon(5))
    for force, r, point in zip(forces, radius, found, strict=True):
        corners = r * polygon(5)
        edges = zip(corners, np.roll(corners, -1, axis=0), strict=True)
        assert min(np.linalg.det(np.array([b - a, point - a])) for a, b in edges) > -1e-14
        assert ((corners - point) @ (force - point)).max() < 1e-14
    moved = np.linalg.norm(found - forces, axis=1) > 0.0
    assert 50 < moved.sum() < 150


@pytest.mark.parametrize("restitution", [0.0, 0.5])
@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_impact_on_two_frictional_contacts_agrees_with_the_referee(
    scheme: Any, dimension: int, restitution: float
) -> None:
    constants = ball_in_corner.Constants(restitutions=(restitution, restitution), opening=1.3)
    system = ball_in_corner.build(dimension, constants)
    velocity = [-1.0, -2.0] if dimension == 2 else [-1.0, 0.7, -2.0]
    x0 = [*np.zeros(dimension), *velocity]
    referee = ns.simulate(system, x0=x0, duration=1e-7, method=ns.EventDriven())
    found = simulate(system, x0, 1e-7, TimeStepping(scheme=scheme, tolerance=1e-13), steps=1)
    np.testing.assert_allclose(found.final_state[dimension:], referee.final_state[dimension:], atol=3e-6)


def test_anisotropic_friction_agrees_with_the_referee() -> None:
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    ground = ns.Contact("ground", gap=q[2], tangent=ca.DM([[1, 0], [0, 1], [0, 0]]), friction=(0.2, 0.6))
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(3), force=ca.DM([0, 0, -GRAVITY]), contacts=[ground])
    x0 = [0.0, 0.0, 0.0, 1.2, 1.6, 0.0]
    referee = ns.simulate(system, x0=x0, duration=0.25, method=ns.EventDriven())
    coarse, found = (simulate(system, x0, 0.25, TimeStepping(step=step)) for step in (2e-3, 1e-3))
    errors = [np.abs(each.final_state - referee.final_state).max() for each in (coarse, found)]
    assert errors[1] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(2.0, abs=0.1)
    for name in ("lambda_tangent[ground][0]", "lambda_tangent[ground][1]"):
        times = found.times(name)[5:-5]
        wanted = np.interp(times, referee.times(name), referee[name])
        np.testing.assert_allclose(found[name][5:-5], wanted, atol=1e-2)


def test_names_are_those_of_the_referee() -> None:
    system, x0 = point_mass.build(3), [0.0, 0.0, 0.1, 1.0, 0.5, 0.0]
    referee = ns.simulate(system, x0=x0, duration=0.3, method=ns.EventDriven())
    found = simulate(system, x0, 0.3)
    assert found.series.keys() == referee.series.keys()
    assert found.units == referee.units
    assert [event.kind for event in found.events] == [event.kind for event in referee.events]
    assert [event.time for event in found.events] == pytest.approx([e.time for e in referee.events], abs=2e-3)
    name = "Lambda_tangent[ground][0]"
    np.testing.assert_allclose(found[name], referee[name], atol=2e-2)


def test_a_shock_runs_through_a_row_of_balls_within_one_step() -> None:
    """Contacts that are closed by others bounce after them: with e = 1 only the last ball flies on."""
    system = tower([1.0] * 4, restitution=1.0, gravity=0.0, ground=False)
    gaps = np.array([0.0, 2e-4, 3e-4, 4e-4])
    x0 = [*(np.arange(4.0) + gaps), 2.0, 0.0, 0.0, 0.0]
    trajectory = simulate(system, x0, 2e-3, TimeStepping(tolerance=1e-12))
    np.testing.assert_allclose(trajectory.final_state[4:], [0.0, 0.0, 0.0, 2.0], atol=1e-11)
    assert [event.name for event in trajectory.impacts] == ["1", "2", "3"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_elastic_balls_keep_their_energy(scheme: Any) -> None:
    """Also where they move by a quarter of their radius in a step."""
    constants = many_balls.Constants(balls=16, radius=0.15, gravity=0.0, friction=0.0, restitution=1.0)
    x0 = many_balls.start(constants, speed=20.0, seed=3)
    trajectory = simulate(many_balls.build(constants), x0, 0.5, TimeStepping(scheme=scheme, tolerance=1e-9))
    energies = np.array([many_balls.energy(x, constants) for x in trajectory.x])
    assert len(trajectory.impacts) > 100
    assert np.abs(energies / energies[0] - 1.0).max() < 1e-8


@pytest.mark.parametrize("restitution", [slow_row(0.0), 0.5, slow_row(0.9)])
def test_energy_does_not_grow_without_friction(restitution: float) -> None:
    constants = many_balls.Constants(balls=12, radius=0.15, gravity=0.0, friction=0.0, restitution=restitution)
    x0 = many_balls.start(constants, speed=5.0, seed=4)
    trajectory = simulate(many_balls.build(constants), x0, 0.5, TimeStepping(tolerance=1e-9))
    energies = np.array([many_balls.energy(x, constants) for x in trajectory.x])
    assert np.diff(energies).max() < 1e-9 * energies[0]
    assert energies[-1] < 0.9 * energies[0]


def test_momentum_is_conserved() -> None:
    """Balls that meet far from the walls, with friction: linear momentum to rounding."""
    constants = many_balls.Constants(balls=6, radius=0.2, side=20.0, gravity=0.0, friction=0.4, restitution=0.5)
    x0, n = many_balls.start(constants, seed=0), 18
    places = np.column_stack([10.0 + 0.5 * np.arange(6), 10.0 + 0.03 * np.arange(6) ** 2])
    x0[:n].reshape(6, 3)[:, :2], x0[n:] = places, 0.0
    x0[n : n + 2], x0[-3:-1] = [3.0, 0.5], [-2.0, 0.1]
    trajectory = simulate(many_balls.build(constants), x0, 0.4)
    momentum = trajectory.x[:, n:].reshape(-1, 6, 3)[:, :, :2].sum(axis=1)
    assert len(trajectory.impacts) >= 5
    assert np.abs(momentum - momentum[0]).max() < 1e-13
    assert np.abs(trajectory.final_state[n + 2 :: 3]).max() > 0.1  # friction did turn them


@pytest.mark.parametrize(("scheme", "seed"), [("moreau_jean", 0), slow_row("moreau_jean", 1), ("stewart_trinkle", 0)])
def test_ten_fast_balls_penetrate_by_less_than_two_percent(scheme: Any, seed: int) -> None:
    """They move by up to a quarter of their radius in a step."""
    constants = many_balls.Constants(balls=10, radius=0.1)
    x0 = many_balls.start(constants, speed=10.0, seed=seed)
    trajectory = simulate(many_balls.build(constants), x0, 0.6, TimeStepping(scheme=scheme))
    assert trajectory.success
    assert max(many_balls.penetration(x, constants) for x in trajectory.x) / constants.radius < 2e-3


@pytest.mark.slow
def test_moreau_jean_drifts_on_a_curve_and_stewart_trinkle_does_not() -> None:
    """In a bowl of radius 1 m for 2 s: 4.6e-3 m at h = 1e-3 and of order one, against 4.5e-6 m of order two."""
    system, x0 = bowl.build(), [np.sin(1.0), -np.cos(1.0), 0.0, 0.0]
    drifts = {}
    for scheme in SCHEMES:
        for step in (2e-3, 1e-3):
            x = simulate(system, x0, 2.0, TimeStepping(scheme=scheme, step=step)).x
            drifts[scheme, step] = np.abs(np.hypot(x[:, 0], x[:, 1]) - 1.0).max()
    assert drifts["moreau_jean", 1e-3] == pytest.approx(4.6e-3, rel=0.05)
    assert drifts["moreau_jean", 2e-3] / drifts["moreau_jean", 1e-3] == pytest.approx(2.0, abs=0.2)
    assert drifts["stewart_trinkle", 1e-3] < 5e-6
    assert drifts["stewart_trinkle", 2e-3] / drifts["stewart_trinkle", 1e-3] == pytest.approx(4.0, abs=0.3)


def test_smooth_motion_has_order_two_and_stiff_springs_are_stable() -> None:
    q, v, p = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("p", 2)
    force = -p[0] * q - p[1] * v
    system = ns.CLS(q=q, v=v, p=p, mass_matrix=ca.DM(1.0), force=force, p_default=[4.0, 0.0])
    exact = [np.cos(2.0), -2.0 * np.sin(2.0)]
    errors = [np.abs(simulate(system, [1.0, 0.0], 1.0, steps=n).final_state - exact).max() for n in (100, 200, 400)]
    slopes = np.log2(np.array(errors[:-1]) / errors[1:])
    assert slopes == pytest.approx([2.0, 2.0], abs=0.05)
    stiff = simulate(system, [1.0, 0.0], 1.0, TimeStepping(theta=1.0), steps=50, p=[1e8, 1e2])
    assert np.abs(stiff.final_state).max() < 1e-6


def test_a_mass_matrix_that_varies_is_taken_at_the_midpoint() -> None:
    """A free particle in polar coordinates moves on a straight line; it is hit by the wall x = 2, inside r cos phi."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    mass = ca.diag(ca.vertcat(1.0, q[0] ** 2))
    force = ca.vertcat(q[0] * v[1] ** 2, -2.0 * q[0] * v[0] * v[1])
    wall = ns.Contact("wall", gap=2.0 - q[0] * ca.cos(q[1]), restitution=1.0)
    system = ns.CLS(q=q, v=v, mass_matrix=mass, force=force, contacts=[wall])

    def ends(duration: float, n: int) -> np.ndarray:
        end = simulate(system, [1.0, 0.0, 1.0, 1.0], duration, steps=n).final_state
        return np.array([end[0] * np.cos(end[1]), end[0] * np.sin(end[1])])

    errors = [np.abs(ends(0.8, n) - [1.8, 0.8]).max() for n in (40, 80, 160)]
    assert np.log2(np.array(errors[:-1]) / errors[1:]) == pytest.approx([2.0, 2.0], abs=0.1)
    assert ends(1.5, 1500) == pytest.approx([1.5, 1.5], abs=4e-3)


def test_controls_are_held_on_a_step() -> None:
    system = point_mass.build(2)
    ramp = simulate(system, [0.0, 0.0, 0.0, 0.0], 1.0, steps=10, u=lambda t: [10.0 * t])
    np.testing.assert_allclose(ramp.u[:, 0], 10.0 * (0.05 + 0.1 * np.arange(10)), rtol=1e-14)
    rows = simulate(system, [0.0, 0.0, 0.0, 0.0], 1.0, steps=10, u=[[8.0], [0.0]])
    np.testing.assert_array_equal(rows.u[:, 0], [8.0] * 5 + [0.0] * 5)
    feedback = simulate(system, [1.0, 0.0, 0.0, 0.0], 1.0, steps=10, u=lambda t, x: [-20.0 * x[0]])
    np.testing.assert_allclose(feedback.u[:, 0], -20.0 * feedback.x[:-1, 0], rtol=1e-14)


def test_steps_are_equal_and_no_longer_than_asked() -> None:
    trajectory = simulate(bouncing_ball.build(), [1.0, 0.0], 0.25, TimeStepping(step=0.04))
    np.testing.assert_allclose(np.diff(trajectory.t), 0.25 / 7, rtol=1e-12)
    assert trajectory.t[-1] == 0.25
    assert len(simulate(bouncing_ball.build(), [1.0, 0.0], 0.3, TimeStepping(step=0.1)).t) == 4


def test_missed_tolerances_are_counted_and_named() -> None:
    x0 = [0.5, 1.5, 2.5, 0.0, 0.0, 0.0]
    trajectory = simulate(
        tower([1.0, 2.0, 3.0]),
        x0,
        0.05,
        TimeStepping(solver="projected_gauss_seidel", max_sweeps=2, tolerance=1e-12),
        steps=50,
    )
    assert trajectory.success
    assert "of 50 steps miss the tolerance 1e-12 m/s" in trajectory.message
    assert simulate(tower([1.0, 2.0, 3.0]), x0, 0.05).message == ""


@pytest.mark.parametrize(("angle", "speed"), [(0.8, -1.0), (0.8, 3.0), (1.3, -1.0), (1.3, 3.0)])
def test_an_impact_that_gains_energy_is_refused(angle: float, speed: float) -> None:
    """Newton's restitution with friction on one end of a rod."""
    constants = falling_rod.Constants(frictions=(0.6, 0.6), restitutions=(1.0, 1.0))
    v = np.array([speed, -0.5, 6.0])
    strike = falling_rod.strike(angle, v, "left", constants)
    exact = 0.5 * np.array(constants.masses) @ (strike.v**2 - v**2)
    x0 = [*falling_rod.tilted(angle, 0.0, constants)[:3], *v]
    trajectory = simulate(falling_rod.build(constants), x0, 1e-7, TimeStepping(tolerance=1e-13), steps=1)
    if exact > 0.0:
        assert trajectory.status is ns.Status.ENERGY_GAIN
        assert "at left" in trajectory.message
    else:
        assert trajectory.impacts[0].energy_gain == pytest.approx(exact, abs=1e-5)


def both_solvers(system: ns.CLS, x0: Any, duration: float, step: float) -> tuple[list[np.ndarray], list[int]]:
    """Ends and numbers of sweeps with and without Newton's method."""
    ends, sweeps = [], []
    for solver in ("newton", "projected_gauss_seidel"):
        counts: list[int] = []
        method = TimeStepping.model_validate(dict(solver=solver, tolerance=1e-11, max_sweeps=20000, step=step))
        found = simulate(system, x0, duration, method, callback=lambda state, c=counts: c.append(state.iterations))
        assert found.message == ""
        ends.append(found.final_state)
        sweeps.append(sum(counts))
    return ends, sweeps


@pytest.mark.parametrize("newton", [True, False])
@pytest.mark.parametrize("tangents", [0, 1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_solutions_satisfy_the_law_of_contacts_with_friction(newton: bool, tangents: int, seed: int) -> None:
    """Forty random contacts on sixty coordinates; the law is written out again, velocities come from a dense matrix."""
    generator, m, n_q, tolerance = np.random.default_rng(seed), 40, 60, 1e-11
    dofs = np.array([generator.choice(n_q, 6, replace=False) for _ in range(m)])
    rows = np.linalg.qr(generator.normal(size=(m, 6, 6)))[0][:, : 1 + tangents]
    masses = generator.uniform(0.5, 2.0, n_q)
    least, friction, free = generator.uniform(-0.1, 0.1, m), generator.uniform(0.1, 0.4, m), generator.normal(size=n_q)
    problem = problem_of(rows, dofs, 1.0 / masses[None], np.append(free, 1.0), least, friction)
    colouring = colouring_of(bodies_of(dofs, n_q, coupled=False), np.arange(m))
    assert 3 < colouring.ends.size - 1 < 30
    rule = Projected(tolerance, 20000, newton, corners_of(None))
    found = solve(problem, *colouring, np.zeros((m, 1 + tangents)), rule)
    dense = np.zeros((m, 1 + tangents, n_q))
    for k in range(m):
        dense[k][:, dofs[k]] = rows[k]
    v = free + np.einsum("mwq,mw->q", dense, found.impulses) / masses
    np.testing.assert_allclose(found.velocity[:-1], v, atol=1e-13)
    rates, f = dense @ v, found.impulses
    assert f[:, 0].min() >= 0.0
    assert (rates[:, 0] - least).min() > -1e-10
    assert np.abs(f[:, 0] * (rates[:, 0] - least)).max() < 1e-10
    size, slip = np.linalg.norm(f[:, 1:], axis=1), np.linalg.norm(rates[:, 1:], axis=1)
    assert (size - friction * f[:, 0]).max() < 1e-10
    assert np.abs(np.sum(f[:, 1:] * rates[:, 1:], axis=1) + friction * f[:, 0] * slip).max() < 1e-9
    assert 10 < (f[:, 0] > 0.0).sum() < m


def test_newton_needs_fewer_sweeps_where_forces_go_through_many_bodies() -> None:
    """Thirty blocks, heavy ones on light ones, land together."""
    system, n = tower([1.0 + k for k in range(30)]), 30
    x0 = [*(0.51 + np.arange(30.0)), *np.full(n, -1.0)]
    ends, sweeps = both_solvers(system, x0, 0.02, 1e-3)
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-9)
    np.testing.assert_allclose(ends[0][n:], 0.0, atol=1e-9)
    assert sweeps[0] < 0.5 * sweeps[1]


def test_time_limit_callback_and_nan() -> None:
    system, states = bouncing_ball.build(), []
    late = simulate(system, [1.0, 0.0], 10.0, time_limit=0.0)
    assert (late.status, len(late.t)) == (ns.Status.TIME_LIMIT, 1)

    def stop(state: Any) -> Any:
        states.append(state)
        return ns.Stop if state.t > 0.0995 else None

    stopped = simulate(system, [1.0, 0.0], 10.0, callback=stop)
    assert (stopped.status, len(stopped.t), len(states)) == (ns.Status.STOPPED, 101, 100)
    np.testing.assert_array_equal(states[-1].x, stopped.final_state)
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    root = ns.CLS(q=q, v=v, mass_matrix=ca.DM(1.0), force=ca.sqrt(q) - 100.0)
    assert simulate(root, [1.0, 0.0], 1.0).status is ns.Status.NUMERICAL_ERROR


def test_results_travel_to_disk_and_back(tmp_path: Any) -> None:
    trajectory = simulate(point_mass.build(2), [0.0, 0.1, 1.0, 0.0], 0.3)
    again = load(trajectory.save(tmp_path / "steps.nc"))
    np.testing.assert_allclose(again(0.1234), trajectory(0.1234), rtol=0, atol=1e-14)
    assert again.events == trajectory.events


def test_mistakes_are_named() -> None:
    system = bouncing_ball.build()
    with pytest.raises(ModelError, match="x0 penetrates contact 'ground'"):
        simulate(system, [-0.1, 0.0], 1.0)
    with pytest.raises(OptionError, match="positive finite number of seconds"):
        simulate(system, [1.0, 0.0], -1.0)
    with pytest.raises(OptionError, match="both set the step"):
        simulate(system, [1.0, 0.0], 1.0, TimeStepping(step=0.01), steps=10)
    with pytest.raises(OptionError, match="positive whole number"):
        simulate(system, [1.0, 0.0], 1.0, steps=0)
    with pytest.raises(OptionError, match="takes none"):
        ns.simulate(system, x0=[1.0, 0.0], duration=1.0, method=TimeStepping(), solver=ns.Homotopy())
    with pytest.raises(OptionError, match=r"TimeStepping does not fit an ns.PSS; use ns\.FESD"):
        ns.simulate(oscillator.build(), x0=[1.0, 0.0], duration=1.0, method=TimeStepping())


def test_slow_impacts_are_inelastic() -> None:
    """A ball that meets the ground with half the rest velocity stays there."""
    method = TimeStepping(step=1e-3, rest_velocity=1e-3)
    found = simulate(bouncing_ball.build(0.9, gravity=1e-9), [0.0, -5e-4], 1e-3, method)
    assert found.final_state[1] == pytest.approx(0.0, abs=1e-9)
    fast = simulate(bouncing_ball.build(0.9, gravity=1e-9), [0.0, -5e-3], 1e-3, method)
    assert fast.final_state[1] == pytest.approx(4.5e-3, abs=1e-9)


def test_a_matrix_that_is_not_symmetric_answers_as_it_is() -> None:
    matrix = np.array([[1.0, 0.3], [-0.3, 1.0]])
    inverse = inverse_of(ModelSizes(4, 2, 2, 0, 0, 1, True, False, False, 0), matrix.ravel("F"))
    np.testing.assert_allclose(
        velocity_change(inverse, np.array([0.0, 1.0])), np.linalg.solve(matrix, [0.0, 1.0]), atol=1e-14
    )
