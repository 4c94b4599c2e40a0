"""Loops that numba compiles have root finders and steps of their own: they agree with those of the library."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from nosnoc_py.methods.event_selected import segments as event_selected
from nosnoc_py.methods.variational import friction, segments
from nosnoc_py.methods.variational.loop import initial_contacts, scene_of
from nosnoc_py.methods.variational.options import LieGroupVariational
from nosnoc_py.methods.variational.vectors import dot, times
from nosnoc_py.motion.crossing import root
from nosnoc_py.systems.rigid_body import Plane, RigidBody
from nosnoc_py.systems.shapes import Ellipsoid, Intersection, Sphere
from nosnoc_py.systems.shapes import support_kernels as lenses
from nosnoc_py.tableaus import Tableau, dopri5, explicit
from tests.motion.searched import first_crossing

pytestmark = pytest.mark.quick


def pendulum(tableau: Tableau, *, loops: bool) -> event_selected.System:
    """x'' = -sin x, with the guard x + x'^2 / 10 that waits for zero from below."""
    own = 6 if tableau.order == 5 else tableau.stages
    return event_selected.System(
        flow=lambda x, mode, p: np.array([x[1], -np.sin(x[0])]),
        rows=lambda x, p: np.array([[x[0] + 0.1 * x[1] ** 2]]),
        row_gradients=lambda x, p: np.array([[[1.0, 0.2 * x[1]]]]),
        p=np.zeros(1),
        once=np.zeros(1, dtype=bool),
        scheme=event_selected.Scheme(np.vstack([tableau.a[:own, :own], tableau.b[:own]]), own),
        rules=None,
        loops=loops,
    )


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("tableau", [explicit(4), dopri5()], ids=["explicit", "dopri5"])
def test_crossings_of_event_selected_steps(tableau: Tableau, loops: bool) -> None:
    """Steps that end on a guard have the lengths of `root` and `first_crossing` on the same steps, to 1e-14 s."""
    system, mode, rng = pendulum(tableau, loops=loops), np.zeros(1), np.random.default_rng(6)
    for _ in range(30):
        x = np.array([-rng.uniform(0.05, 0.4), rng.uniform(0.8, 1.2)])
        stages = np.zeros((system.scheme.own, 2))
        stages[0] = system.flow(x, mode, system.p)
        start, high = event_selected.end_at(system, mode, 0.0, x), 0.8
        below = float(start.live[0])
        if below >= 0.0:
            continue

        def value(length: float, x=x, stages=stages) -> float:
            return float(event_selected.point_at(system, x, mode, stages.copy(), length).live[0])

        bracket = event_selected.Bracket(0.0, float(rng.uniform(0.2, 0.6)), high, True)
        found, point = event_selected.locate_crossing(system, 0.0, x, mode, stages, 0, below, np.nan, 0.0, bracket, 60)
        assert found
        assert point.length == pytest.approx(root(value, 0.0, high), rel=0, abs=1e-14)
        crossing = first_crossing(lambda t, value=value: np.array([-value(t)]), 0.0, high)
        assert crossing is not None
        assert point.length == pytest.approx(crossing.time, rel=0, abs=1e-14)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("tableau", [explicit(1), explicit(4), dopri5()], ids=["euler", "explicit", "dopri5"])
def test_steps_of_event_selected_systems(tableau: Tableau, loops: bool) -> None:
    """They are those of the tableau, to rounding."""
    system, mode, x = pendulum(tableau, loops=loops), np.zeros(1), np.array([-0.3, 1.1])
    stages = np.zeros((system.scheme.own, 2))
    stages[0] = system.flow(x, mode, system.p)
    expected = tableau.step(lambda _, inner: system.flow(inner, mode, system.p), x, 0.3)
    found = event_selected.point_at(system, x, mode, stages, 0.3)
    np.testing.assert_allclose(found.x, expected, rtol=0, atol=1e-15)


def test_impacts_of_a_turning_body() -> None:
    """The gap of an ellipsoid that turns as it falls is zero where `root` and `first_crossing` find it, to 1e-13 s.

    It turns slowly: of several roots in a step the compiled copy takes any, unless the option `samples` parts them.
    """
    body = RigidBody.uniform(shape=Ellipsoid((0.5, 0.3, 0.2)), planes=[Plane("floor", normal=(0, 0, 1))], mass=2.0)
    h, rng, pending = 0.2, np.random.default_rng(7), (False, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.0, 0.0)
    scene, hits = scene_of(body, LieGroupVariational(h=0.2), h), 0
    for _ in range(30):
        place = (0.0, 0.0, float(rng.uniform(0.55, 0.9)))
        momentum, spin = tuple(2.0 * rng.normal(size=3) - [0.0, 0.0, 4.0]), tuple(0.05 * rng.normal(size=3))
        turn = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
        segment, contacts = (place, momentum, 0.0, turn, spin), initial_contacts(scene, np.array([*place, *turn]))

        def gap(s: float, segment=segment) -> float:
            return segments.gap_at(scene, 0, 0.0, segment, pending, s)

        contacts.left[0], contacts.ends[0] = gap(0.0), gap(h)
        if not contacts.ends[0] < 0.0 < contacts.left[0]:
            continue
        hits += 1
        found = segments.locate_impact(scene, contacts, 0, segment, pending, 0.0, h)
        assert found == pytest.approx(root(gap, 0.0, h), rel=0, abs=1e-13)
        crossing = first_crossing(lambda t, gap=gap: np.array([gap(t)]), 0.0, h)
        assert crossing is not None
        assert found == pytest.approx(crossing.time, rel=0, abs=1e-13)
    assert hits > 10


def test_roots_of_polynomials() -> None:
    """All roots of a quartic, a tenth apart at least, and each the one of `root` beside it, to 1e-12."""
    rng = np.random.default_rng(8)
    for _ in range(50):
        wanted = np.sort(np.linspace(-0.9, 0.9, 5)[rng.permutation(5)[:4]] + rng.uniform(-0.15, 0.15, 4))
        coefficients = np.polynomial.polynomial.polyfromroots(wanted) * rng.uniform(0.5, 2.0)
        found = friction.roots_between(coefficients, -1.5, 1.5)
        ends = np.concatenate([[-1.5], 0.5 * (wanted[1:] + wanted[:-1]), [1.5]])
        expected = [
            root(lambda x, c=coefficients: friction.polynomial(c, x), low, high) for low, high in pairwise(ends)
        ]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_impulses_without_gain() -> None:
    """Tangential impulses that would gain energy are scaled down to where `root` finds no gain, to 1e-12."""
    rng, clipped = np.random.default_rng(9), 0
    for _ in range(300):
        factor = rng.normal(size=(3, 5))
        weights, u = tuple((factor @ factor.T).ravel()), tuple(rng.normal(size=3))
        u = (u[0], u[1], -abs(u[2]))
        p = friction.coulomb(weights, u, 0.9, 0.8)
        coupling = weights[6] * p[0] + weights[7] * p[1]

        def gain(scale: float, args=(weights, u, 0.9, p, coupling)) -> float:
            scaled = friction._scaled_impulse(*args, scale)
            return dot(scaled, args[1]) + 0.5 * dot(scaled, times(args[0], scaled))

        if not (p[2] > 0.0 and gain(1.0) > 1e-3 and gain(0.0) < 0.0):
            continue
        clipped += 1
        found, _ = friction.limit_energy_gain(weights, u, 0.9, p)
        scale = root(gain, 0.0, 1.0)
        expected = friction._scaled_impulse(weights, u, 0.9, p, coupling, scale)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * max(1.0, math.hypot(*p)))
    assert clipped > 5


def test_support_points_of_lenses() -> None:
    """On the edge of a lens they are those at the multiplier that `root` finds, to 1e-13 of its size."""
    features = Intersection([Sphere(1.2), Ellipsoid((2.0, 0.8, 1.0), (0.5, 0.1, 0.0))]).features()
    assert features is not None
    rng, row, edges = np.random.default_rng(10), features.lenses[0], 0
    for direction in rng.normal(size=(100, 3)):
        scale, center, weights, z = np.empty(3), np.empty(3), np.empty(3), np.empty(3)
        lenses._diagonal(row, direction, scale, center, weights)

        def difference(mu: float, args=(scale, center, weights, z)) -> float:
            return float(lenses._difference(mu, *args))

        if not difference(0.0) > 0.0 > difference(1.0):
            continue
        edges += 1
        difference(root(difference, 0.0, 1.0))
        expected = row[:3] + row[3:12].reshape(3, 3) @ z
        np.testing.assert_allclose(lenses.lens_support(row, direction), expected, rtol=0, atol=1e-13)
    assert edges > 20
