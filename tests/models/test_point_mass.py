"""Point masses: forces, gaps and directions evaluated by hand."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models.point_mass import Constants, build, build_particles
from nosnoc_py.errors import ModelError

pytestmark = pytest.mark.quick


def evaluate(system: ns.CLS, q: Any, v: Any, u: Any) -> dict[str, Any]:
    inputs = [system.q, system.v, system.u]
    contacts = system.contacts
    outputs = {
        "mass": system.mass_matrix,
        "force": system.force,
        "gaps": ca.vertcat(*[c.gap for c in contacts]),
        "normals": ca.horzcat(*[system.normal(c) for c in contacts]),
        "tangents": ca.horzcat(*[c.tangent for c in contacts]),
    }
    values = ca.Function("f", inputs, list(outputs.values()))(q, v, u)
    return {name: np.array(value) for name, value in zip(outputs, values, strict=True)}


def test_in_the_plane() -> None:
    system = build(2, Constants(mass=2.0, friction=0.4, restitution=0.3))
    found = evaluate(system, [1.0, 0.7], [0.0, 0.0], [5.0])
    np.testing.assert_array_equal(found["mass"], 2.0 * np.eye(2))
    np.testing.assert_allclose(found["force"].ravel(), [5.0, -2.0 * 9.81], rtol=1e-15)
    assert found["gaps"].item() == 0.7
    np.testing.assert_array_equal(found["normals"].ravel(), [0.0, 1.0])
    np.testing.assert_array_equal(found["tangents"], [[1.0], [0.0]])
    assert system.contacts[0].friction == (0.4,)
    assert system.contacts[0].restitution == 0.3


def test_in_space() -> None:
    system = build(3)
    found = evaluate(system, [1.0, 2.0, 0.5], [0.0] * 3, [5.0, 6.0])
    np.testing.assert_allclose(found["force"].ravel(), [5.0, 6.0, -9.81], rtol=1e-15)
    np.testing.assert_array_equal(found["normals"].ravel(), [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(found["tangents"], [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    assert system.state_names == ("x", "y", "z", "v_x", "v_y", "v_z")
    assert system.control_names == ("force_x", "force_y")


def test_a_ramp_grows_with_the_clock() -> None:
    system = build(3, ramp=[3.0, 4.0, 12.0])
    early = evaluate(system, [0.0, 0.0, 0.0, 0.0], [0.0] * 4, [0.0, 0.0])["force"].ravel()
    late = evaluate(system, [0.0, 0.0, 0.0, 2.0], [0.0] * 4, [0.0, 0.0])["force"].ravel()
    np.testing.assert_allclose(late - early, [6.0, 8.0, 24.0, 0.0], rtol=1e-15)
    assert early[-1] == 0.0  # nothing changes the rate of the clock
    np.testing.assert_array_equal(evaluate(system, [0.0] * 4, [0.0] * 4, [0.0, 0.0])["tangents"][3], 0.0)
    assert system.state_names[3] == "clock"
    assert system.state_names[7] == "clock_rate"


def test_particles_do_not_feel_each_other() -> None:
    particles = [Constants(mass=1.0, friction=0.5), Constants(mass=3.0, friction=0.2, restitution=0.8)]
    system = build_particles(particles, 3)
    found = evaluate(system, [0, 0, 0.1, 0, 0, 0.2], np.zeros(6), [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(np.diag(found["mass"]), [1, 1, 1, 3, 3, 3])
    np.testing.assert_allclose(found["force"].ravel(), [1.0, 2.0, -9.81, 3.0, 4.0, -3 * 9.81], rtol=1e-15)
    np.testing.assert_array_equal(found["gaps"].ravel(), [0.1, 0.2])
    directions = np.hstack([found["normals"], found["tangents"]])
    delassus = directions.T @ np.linalg.inv(found["mass"]) @ directions
    np.testing.assert_array_equal(delassus[np.ix_([0, 2, 3], [1, 4, 5])], 0.0)
    assert [c.name for c in system.contacts] == ["ground_1", "ground_2"]
    assert [c.restitution for c in system.contacts] == [0.0, 0.8]
    assert system.control_names == ("force_x_1", "force_y_1", "force_x_2", "force_y_2")


@pytest.mark.parametrize(
    ("build_wrong", "said"),
    [
        (lambda: build(4), "dimension has to be 2 or 3"),
        (lambda: build(2, ramp=[1.0]), "needs 2 components"),
        (lambda: Constants(mass=0.0), "mass > 0"),
        (lambda: Constants(friction=-0.1), "friction >= 0"),
        (lambda: Constants(restitution=1.1), "restitution <= 1"),
    ],
)
def test_mistakes_are_named(build_wrong: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        build_wrong()
