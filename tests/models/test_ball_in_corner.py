"""The corner: distances and directions of floor and wall."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

from models.ball_in_corner import Constants, build
from nosnoc_py.errors import ModelError

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("degrees", [60.0, 90.0, 120.0])
def test_distances_and_frames(dimension: int, degrees: float) -> None:
    opening = float(np.deg2rad(degrees))
    system = build(dimension, Constants(opening=opening))
    q = np.array([0.8, 0.3] if dimension == 2 else [0.8, 5.0, 0.3])
    floor, wall = system.contacts
    assert float(ca.Function("g", [system.q], [floor.gap])(q)) == 0.3
    # the distance from a line through the origin, by the vector product with its direction
    expected = 0.8 * np.sin(opening) - 0.3 * np.cos(opening)
    assert float(ca.Function("g", [system.q], [wall.gap])(q)) == pytest.approx(expected, rel=1e-14)
    for contact in (floor, wall):
        outputs = ca.horzcat(system.normal(contact), contact.tangent)
        frame = np.array(ca.Function("f", [system.q], [outputs])(q))
        np.testing.assert_allclose(frame.T @ frame, np.eye(dimension), atol=1e-15)


def test_a_right_angle_is_exact() -> None:
    system = build(2)
    wall = system.contacts[1]
    normal = np.array(ca.Function("n", [system.q], [system.normal(wall)])([0.0, 0.0])).ravel()
    np.testing.assert_array_equal(normal, [1.0, 0.0])
    np.testing.assert_array_equal(np.array(ca.DM(wall.tangent)).ravel(), [0.0, 1.0])


def test_values_reach_their_contacts() -> None:
    system = build(3, Constants(frictions=(0.1, 0.2), restitutions=(0.3, 0.4), mass=2.0))
    assert [c.friction for c in system.contacts] == [(0.1, 0.1), (0.2, 0.2)]
    assert [c.restitution for c in system.contacts] == [0.3, 0.4]
    force = np.array(ca.Function("f", [system.u], [system.force])([1.0, 2.0, 3.0])).ravel()
    np.testing.assert_allclose(force, [1.0, 2.0, 3.0 - 2.0 * 9.81], rtol=1e-15)


@pytest.mark.parametrize("change", [{"opening": 0.0}, {"frictions": (-0.1, 0.0)}, {"restitutions": (0.0, 1.5)}])
def test_mistakes_are_named(change: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="a corner needs"):
        Constants(**change)
