"""Blocks on a slope and on each other: directions, and the forces of known situations."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

from models.tilted_block import STANDARD, Constants, StackConstants, build, build_stack
from nosnoc_py.errors import ModelError

pytestmark = pytest.mark.quick

ANGLE = np.deg2rad(30.0)


@pytest.mark.parametrize("dimension", [2, 3])
def test_frame_of_the_plane(dimension: int) -> None:
    system = build(dimension, Constants(angle=ANGLE, mass=2.0))
    (plane,) = system.contacts
    outputs = [plane.gap, system.normal(plane), plane.tangent, system.force]
    gap, normal, tangent, force = ca.Function("f", [system.q], outputs)([1.0] * dimension)
    frame = np.hstack([np.array(normal), np.array(tangent)])
    np.testing.assert_allclose(frame.T @ frame, np.eye(dimension), atol=1e-15)
    # the plane falls by tan(30 degrees) per metre of x
    assert float(gap) == pytest.approx((1.0 + np.tan(ANGLE)) * np.cos(ANGLE), rel=1e-14)
    weight = frame.T @ np.array(force).ravel()
    expected = [-2 * 9.81 * np.cos(ANGLE), 2 * 9.81 * np.sin(ANGLE), 0.0][:dimension]
    np.testing.assert_allclose(weight, expected, atol=1e-14)


def test_critical_angle() -> None:
    assert np.tan(STANDARD.critical_angle) == pytest.approx(0.5, rel=1e-15)
    assert np.rad2deg(STANDARD.critical_angle) == pytest.approx(26.565051177078, abs=1e-11)


def test_stack() -> None:
    system = build_stack(StackConstants(masses=(2.0, 3.0), frictions=(0.1, 0.7), height=0.5))
    ground, stack = system.contacts
    outputs = [ground.gap, stack.gap, system.normal(stack), stack.tangent, system.force]
    values = ca.Function("f", [system.q, system.u], outputs)([0.0, 0.2, 1.0, 0.9], [7.0])
    low, high, normal, tangent, force = (np.array(value).ravel() for value in values)
    assert low.item() == pytest.approx(0.2)
    assert high.item() == pytest.approx(0.2)
    np.testing.assert_array_equal(normal, [0.0, -1.0, 0.0, 1.0])
    np.testing.assert_array_equal(tangent, [-1.0, 0.0, 1.0, 0.0])
    np.testing.assert_allclose(force, [7.0, -2 * 9.81, 0.0, -3 * 9.81], rtol=1e-15)
    assert (ground.friction, stack.friction) == ((0.1,), (0.7,))


@pytest.mark.parametrize("change", [{"mass": 0.0}, {"angle": np.pi / 2}, {"friction": -1.0}, {"restitution": 2.0}])
def test_mistakes_are_named(change: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="a block on a plane needs"):
        Constants(**change)
