"""Smooth ways between states, of bodies that turn, too."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import free_box
from nosnoc_py.search.ways import waypoint

pytestmark = pytest.mark.quick


def test_a_way_begins_and_ends_as_it_should_and_its_velocities_are_its_rates() -> None:
    system, T, rng = free_box.build(thrust=True), 0.8, np.random.default_rng(3)
    start, end = (free_box.start(tuple(rng.uniform(-1, 1, 3)), 1.0) for _ in range(2))
    start[7:], end[7:] = rng.normal(size=6), rng.normal(size=6)
    for t, x in ((0.0, start), (T, end)):
        there = waypoint(system, start, end, t, T)
        turned = there.q * np.where(np.arange(7) < 3, 1.0, np.sign(there.q[3] * x[3]))  # q and -q are one attitude
        np.testing.assert_allclose(turned, x[:7], rtol=0, atol=1e-12)
        np.testing.assert_allclose(there.v, x[7:], rtol=0, atol=1e-9)
    step = 1e-5
    for t in (0.2, 0.5):
        here, later, before = (waypoint(system, start, end, t + d, T) for d in (0.0, step, -step))
        rate = system.mechanics.moved(np.append(here.q, here.v), np.zeros(0), here.v)
        np.testing.assert_allclose(rate, (later.q - before.q) / (2 * step), rtol=0, atol=1e-7)
        np.testing.assert_allclose(here.a, (later.v - before.v) / (2 * step), rtol=0, atol=1e-5)


def test_a_cubic_with_a_state_of_first_order_in_closed_form() -> None:
    """From q = 1, v = 2 to q = 4, v = 0 in 2 s: q = 1 + 2 t + t^2 / 4 - t^3 / 4; y goes straight from 4 to 8."""
    q, v, y = (ca.SX.sym(name) for name in "qvy")
    system = ns.CLS(q=q, v=v, y=y, y_rate=-y, mass_matrix=1, force=0, contacts=[ns.Contact("wall", gap=9 - q)])
    for t in (0.0, 0.7, 2.0):
        there = waypoint(system, np.array([1.0, 2.0, 4.0]), np.array([4.0, 0.0, 8.0]), t, 2.0)
        assert there.y == pytest.approx([4.0 + 2.0 * t], rel=1e-12)
        assert there.q == pytest.approx([1.0 + 2.0 * t + t**2 / 4.0 - t**3 / 4.0], rel=1e-12)
        assert there.v == pytest.approx([2.0 + t / 2.0 - 0.75 * t**2], rel=1e-12, abs=1e-12)
        assert there.a == pytest.approx([0.5 - 1.5 * t], rel=1e-12)
