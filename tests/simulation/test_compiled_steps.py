"""Steps of time-stepping that numba has compiled, against the same steps interpreted, for all kinds of systems."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import ant, bouncing_ball, falling_rod, free_box, many_balls, point_mass, quadruped
from nosnoc_py.compiled import VARIABLE
from nosnoc_py.contact_problems.colours import Bodies, bodies_of, colouring_of
from nosnoc_py.contact_problems.cones import _sections_by_loops, onto_sections, polygon
from nosnoc_py.simulation.time_stepping import run, scheme, steps
from problems.benchmarks.accuracy import scenes

GRAVITY = 9.81
EXACT = 1e-12
Case = tuple[ns.CLS, Any, float, dict[str, Any]]


def balls(dimension: int, restitution: float = 0.5, **more: Any) -> Case:
    """Balls that meet each other and the walls, with friction."""
    constants = many_balls.Constants(balls=8, radius=0.15, dimension=dimension, restitution=restitution)
    return many_balls.build(constants), many_balls.start(constants, speed=4.0, seed=2), 0.3, more


def plate() -> Case:
    """A plate that lands, tilted, on four feet: their forces are not unique."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    feet = [
        ns.Contact(f"{i}{j}", gap=q[0] + i * q[1] + j * q[2], friction=0.0, restitution=0.0)
        for i in (-1, 1)
        for j in (-1, 1)
    ]
    system = ns.CLS(q=q, v=v, mass_matrix=ca.diag(ca.DM([2, 1, 1])), force=[-2 * GRAVITY, 0, 0], contacts=feet)
    return system, [0.06, 0.03, 0.02, 0, 0, 0], 0.2, {}


def belt() -> Case:
    """A block with parameters and a control on a moving belt, which it follows by a spring of first order."""
    q, v, u, p, y = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u"), ca.SX.sym("p", 2), ca.SX.sym("y")
    contact = ns.Contact("belt", gap=q[1], tangent=ca.DM([1, 0]), friction=p[0], surface_velocity=0.7)
    force = ca.vertcat(u - p[1] * q[0] + y, -GRAVITY)
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        p=p,
        y=y,
        y_rate=-3 * y + q[0],
        mass_matrix=ca.DM.eye(2),
        force=force,
        contacts=[contact],
        p_default=[0.3, 5],
    )
    return system, [0, 0.01, 0, 0, 0.1], 0.3, {"u": lambda t: [2 * np.sin(20 * t)], "p": [0.4, 20.0]}


def pushed_joints() -> Case:
    """A quadruped with drives, limits and end stops, under a control in rows."""
    robot = quadruped.robot()
    system = robot.system(contacts=robot.contacts(friction=0.5), end_stops=True)
    x0 = quadruped.start(above=0.002)
    return system, x0, 0.05, {"u": 5.0 * np.random.default_rng(0).normal(size=(5, system.n_u))}


def landing() -> Case:
    scene = scenes.landing()
    return quadruped.build(0.8, gains=quadruped.Gains()), scene.x0, 0.13, {}


def standing_ant() -> Case:
    system = ant.build()
    return system, ant.start(), 0.03, {"u": 0.3 * np.ones(system.n_u)}


CASES: dict[str, Callable[[], Case]] = {
    "ball": lambda: (bouncing_ball.build(0.9), [1.0, 0.0], 2.2, {}),
    "balls in the plane": lambda: balls(2),
    "balls in space": lambda: balls(3),
    "balls, pyramids": lambda: balls(3, friction="polyhedral", directions=5),
    "balls, penetrations are taken back": lambda: balls(2, scheme="stewart_trinkle"),
    "balls, sweeps alone": lambda: balls(2, solver="projected_gauss_seidel"),
    "balls, few sweeps": lambda: balls(2, solver="projected_gauss_seidel", max_sweeps=3, tolerance=1e-9),
    "block slides": lambda: (point_mass.build(3), [0.0, 0.0, 0.01, 1.2, 1.6, 0.0], 0.5, {}),
    "rod": lambda: (falling_rod.build(), falling_rod.tilted(0.5, 0.5), 0.8, {}),
    "box": lambda: (free_box.build(), free_box.start((0.2, 0.25, 0.15), 0.4), 0.24, {}),
    "plate": plate,
    "belt": belt,
    "joints": pushed_joints,
    "quadruped": landing,
    "ant": standing_ant,
}
OF_SIMULATE = ("u", "p")
REDUNDANT = ("plate", "ant")  # their forces are not unique; those of the ant are nearly singular in their damped system


@pytest.fixture(scope="module")
def compiled() -> Iterator[Any]:
    """The compiled steps; the first time on a machine their compilation takes a minute."""
    pytest.importorskip("numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, VARIABLE, "now")
        steps.compiled_leap.cache_clear()
        yield steps.compiled_leap()
    steps.compiled_leap.cache_clear()


def simulated(case: Case, **more: Any) -> ns.Trajectory:
    system, x0, duration, options = case
    given = {name: value for name, value in options.items() if name in OF_SIMULATE}
    method = ns.TimeStepping().replace(**{n: value for n, value in options.items() if n not in OF_SIMULATE})
    return ns.simulate(system, x0=x0, duration=duration, method=method, **given, **more)


def agree(found: ns.Trajectory, known: ns.Trajectory, share: float = EXACT) -> None:
    """States relative to the largest one; events, notes, forces."""
    assert (found.status, found.message) == (known.status, known.message)
    np.testing.assert_allclose(found.x, known.x, rtol=0, atol=share * np.abs(known.x).max())
    np.testing.assert_array_equal(found.u, known.u)
    assert [(e.kind, e.name, e.time) for e in found.events] == [(e.kind, e.name, e.time) for e in known.events]
    assert found.series.keys() == known.series.keys()


@pytest.mark.parametrize("name", CASES)
def test_compiled_steps(name: str, compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]()
    ends = []
    for each in (compiled, None):
        monkeypatch.setattr(run, "compiled_leap", lambda each=each: each)
        ends.append(simulated(case))
    agree(ends[0], ends[1], 1e-10 if name == "ant" else EXACT)
    assert ends[0].success
    if name not in REDUNDANT:
        for series in ends[1].series:
            size = np.abs(ends[1][series]).max(initial=1.0)
            np.testing.assert_allclose(ends[0][series], ends[1][series], rtol=0, atol=1e-8 * size)


@pytest.mark.parametrize("restitution", [0.0, 0.5])
def test_steps_in_one_call_are_those_one_by_one(
    restitution: float, compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal bits: a callback sees every step, and little room for contacts is made larger."""
    case, states = balls(2, restitution), list[np.ndarray]()
    monkeypatch.setattr(run, "compiled_leap", lambda: compiled)
    one_by_one = simulated(case, callback=lambda state: states.append(state.x))
    monkeypatch.setattr(run, "LEAP", 7)
    room = steps.rows_of
    monkeypatch.setattr(run, "rows_of", lambda k, m, *sizes: room(k, min(m, 3) if m < 60 else m, *sizes))
    together = simulated(case)
    np.testing.assert_array_equal(together.x, one_by_one.x)
    np.testing.assert_array_equal(together.x[1:], states)
    assert together.events == one_by_one.events
    for name in one_by_one.series:
        np.testing.assert_array_equal(together[name], one_by_one[name])


def test_an_impact_over_two_steps_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The force closes the gap: the first step removes 0.5 of 5 m/s, the next one the rest, in calls of their own."""
    monkeypatch.setattr(run, "compiled_leap", lambda: None)
    case = bouncing_ball.build(0.0, gravity=1000.0), [0.01, 0.0], 0.012, {"speed_scale": 1.0}
    (impact,) = simulated(case).impacts
    assert impact.impulse == pytest.approx(5.0, abs=1e-12)
    assert impact.v_after == pytest.approx(0.0, abs=1e-12)


def test_what_ends_a_simulation_ends_it_compiled(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Impacts that gain energy, and roots of negative numbers, after the same steps with the same notes."""
    constants = falling_rod.Constants(frictions=(0.6, 0.6), restitutions=(1.0, 1.0))
    rod: Case = falling_rod.build(constants), [*falling_rod.tilted(0.8, 0.05, constants)[:3], -1.0, -0.5, -6.0], 0.4, {}
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    root: Case = ns.CLS(q=q, v=v, mass_matrix=1.0, force=ca.sqrt(q) - 100.0), [1.0, 0.0], 1.0, {}
    block: Case = point_mass.build(2), [0.0, 0.0, 0.0, 0.0], 1.0, {"u": lambda t: [np.sqrt(0.5 - t)]}
    for case in (rod, root, block):
        ends = []
        for each in (compiled, None):
            monkeypatch.setattr(run, "compiled_leap", lambda each=each: each)
            with np.errstate(invalid="ignore"):
                ends.append(simulated(case))
        assert not ends[0].success
        assert 1 < len(ends[0].t) < 1000
        agree(ends[0], ends[1])


def test_contacts_that_are_far_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal bits with all contacts, of which most are a hundred ways of a step away."""
    monkeypatch.setattr(run, "compiled_leap", lambda: None)
    sizes, ends = [], []
    near = scheme._near

    def counted(*given: Any) -> Any:
        found = near(*given)
        sizes.append(found.contacts.size)
        return found

    monkeypatch.setattr(scheme, "_near", counted)
    for margin in (scheme.NEAR_GAPS, 1e9):
        monkeypatch.setattr(scheme, "NEAR_GAPS", margin)
        ends.append(simulated(balls(2)))
    half = len(sizes) // 2
    assert sum(sizes[:half]) < 0.3 * sum(sizes[half:])
    np.testing.assert_array_equal(ends[0].x, ends[1].x)
    assert ends[0].events == ends[1].events


@pytest.mark.quick
@pytest.mark.parametrize("corners", [np.zeros((0, 2)), polygon(5)])
@pytest.mark.parametrize("tangents", [1, 2])
def test_loops_project_as_arrays(corners: np.ndarray, tangents: int) -> None:
    rng = np.random.default_rng(3)
    force, radius = rng.normal(size=(200, tangents)), rng.uniform(0.0, 2.0, 200)
    found = _sections_by_loops(force, radius, corners)
    np.testing.assert_allclose(found, onto_sections(force, radius, corners), rtol=0, atol=1e-15)
    assert 50 < (found != force).any(axis=1).sum() < 190


@pytest.mark.quick
def test_contacts_of_one_colour_share_no_body() -> None:
    """Seventy balls on one tray, and a chain of them: the greedy colouring of a star and of a path."""
    star = bodies_of(np.array([[0, k] for k in range(1, 71)]), 71, coupled=False)
    chain = bodies_of(np.array([[k, k + 1] for k in range(70)]), 71, coupled=False)
    order, ends = colouring_of(star, np.arange(70))
    np.testing.assert_array_equal(order, np.arange(70))
    np.testing.assert_array_equal(ends, np.arange(71))
    order, ends = colouring_of(chain, np.arange(70))
    np.testing.assert_array_equal(order, [*range(0, 70, 2), *range(1, 70, 2)])
    np.testing.assert_array_equal(ends, [0, 35, 70])
    coupled = colouring_of(Bodies(np.zeros((0, 0), dtype=np.int64), 0), np.array([4, 7]))
    np.testing.assert_array_equal(coupled.ends, [0, 1, 2])
