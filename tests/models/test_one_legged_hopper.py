"""The hopper: mass matrix and forces against numbers of the reference and against differences, energy, places."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import one_legged_hopper as model
from nosnoc_py.errors import ModelError

pytestmark = pytest.mark.quick

Q, V = np.array([0.0, 0.4, 0.3, -0.7]), np.array([0.5, -0.2, 1.0, 2.0])
UPRIGHT = [0.0, 0.4, 0.0, 0.0]
SYSTEM = model.build()


def matrix(q: Any) -> np.ndarray:
    return np.array(ca.Function("M", [SYSTEM.q], [SYSTEM.mass_matrix])(q))


def force(q: Any, v: Any, u: Any = (0.0, 0.0)) -> np.ndarray:
    return np.array(ca.Function("f", [SYSTEM.q, SYSTEM.v, SYSTEM.u], [SYSTEM.force])(q, v, u)).ravel()


def kinetic(q: np.ndarray, v: np.ndarray) -> float:
    """Of three bodies, from the speeds of their centres: written with complex numbers, without any Jacobian."""
    heading = [-1j * np.exp(-1j * q[2]), -1j * np.exp(-1j * (q[2] + q[3]))]
    turn = [v[2], v[2] + v[3]]
    speed = [complex(*v[:2])]
    speed.append(speed[0] + 0.016 * -1j * turn[0] * heading[0])
    speed.append(speed[0] + 0.2 * -1j * turn[0] * heading[0] + 0.1 * -1j * turn[1] * heading[1])
    moving = sum(m * abs(s) ** 2 for m, s in zip((3.975, 1.782, 0.548), speed, strict=True))
    return float(0.5 * (moving + 0.001 * turn[0] ** 2 + 0.0032 * turn[1] ** 2))


def test_mass_matrix_of_the_upright_robot() -> None:
    expected = np.diag([6.305, 6.305, 0.0539762, 0.00868])
    expected[0, 2], expected[0, 3], expected[2, 3] = -0.192912, -0.0548, 0.01964
    expected = np.triu(expected) + np.triu(expected, 1).T
    np.testing.assert_allclose(matrix(UPRIGHT), expected, atol=5e-8)


def test_mass_matrix_is_that_of_the_kinetic_energy() -> None:
    random = np.random.default_rng(0)
    for _ in range(5):
        q, v = random.uniform(-1.5, 1.5, 4), random.uniform(-5.0, 5.0, 4)
        assert 0.5 * v @ matrix(q) @ v == pytest.approx(kinetic(q, v), rel=1e-13)
        assert np.linalg.eigvalsh(matrix(q)).min() > 1e-4


def test_force_without_control() -> None:
    np.testing.assert_allclose(force(Q, V), [0.151246, -62.4383, -0.247532, 0.216407], rtol=3e-6)


def test_force_is_that_of_the_lagrangian() -> None:
    """d/dt (dT/dv) = M v' + (dM/dt) v, so f_v = dT/dq - dV/dq - (dM/dt) v; derivatives by differences of `kinetic`."""
    step = 1e-5
    rate = (matrix(Q + step * V) - matrix(Q - step * V)) / (2 * step)
    slope = [(kinetic(Q + step * e, V) - kinetic(Q - step * e, V)) / (2 * step) for e in np.eye(4)]
    weight = [
        (model.energy([*(Q + step * e), 0, 0, 0, 0]) - model.energy([*(Q - step * e), 0, 0, 0, 0])) / (2 * step)
        for e in np.eye(4)
    ]
    expected = np.array(slope) - np.array(weight) - rate @ V
    np.testing.assert_allclose(force(Q, V), expected, atol=1e-6)
    assert np.abs(rate @ V).max() > 0.1  # the terms of Coriolis are not lost in the tolerance


def test_torques_act_on_the_joints() -> None:
    np.testing.assert_allclose(force(Q, V, (2.0, -3.0)) - force(Q, V), [0.0, 0.0, 2.0, -3.0], atol=1e-14)


def test_energy_is_conserved_in_free_flight() -> None:
    start = [0.0, 2.0, 0.3, -0.7, 1.0, 2.0, 5.0, -8.0]
    flight = ns.simulate(SYSTEM, x0=start, duration=0.4, method=ns.EventDriven())
    assert flight.success
    assert not flight.events
    energies = model.energy(flight.x)
    np.testing.assert_allclose(energies, energies[0], rtol=1e-10)
    # its centre of mass falls freely
    assert energies[0] == pytest.approx(model.energy(start), rel=1e-14)


def test_energy_grows_by_the_work_of_the_motors() -> None:
    """Negative control of the conservation: with a torque the energy changes by the integral of u'omega."""
    torque = np.array([0.3, -0.2])
    start = [0.0, 2.0, 0.3, -0.7, 0.0, 0.0, 0.0, 0.0]
    flight = ns.simulate(SYSTEM, x0=start, duration=0.2, method=ns.EventDriven(), u=torque)
    gained = model.energy(flight.final_state) - model.energy(start)
    turned = flight.final_state[2:4] - np.array(start[2:4])
    assert gained == pytest.approx(torque @ turned, rel=1e-9)
    assert abs(gained) > 0.1


def test_joints() -> None:
    np.testing.assert_allclose(model.joints(UPRIGHT), [[0.0, 0.4], [0.0, 0.2], [0.0, 0.0]], atol=1e-15)
    forward = model.joints([1.0, 0.5, -np.pi / 2, np.pi / 2, 9.0, 9.0, 9.0, 9.0])
    np.testing.assert_allclose(forward, [[1.0, 0.5], [1.2, 0.5], [1.2, 0.3]], atol=1e-15)
    at = model.positions(SYSTEM.q)
    symbolic = ca.Function("places", [SYSTEM.q], [ca.vertcat(at.hip.T, at.knee.T, at.foot.T)])
    np.testing.assert_allclose(model.joints(Q), np.array(symbolic(Q)), atol=1e-15)
    assert model.joints(np.zeros((5, 8))).shape == (5, 3, 2)


def test_contact_frame_is_the_derivative_of_the_foot() -> None:
    contact = SYSTEM.contacts[0]
    outputs = [contact.gap, SYSTEM.normal(contact), contact.tangent]
    gap, normal, tangent = (np.array(value).ravel() for value in ca.Function("c", [SYSTEM.q], outputs)(Q))
    step = 1e-6
    columns = [(model.joints(Q + step * e)[2] - model.joints(Q - step * e)[2]) / (2 * step) for e in np.eye(4)]
    assert gap[0] == pytest.approx(model.joints(Q)[2, 1], abs=1e-15)
    np.testing.assert_allclose([tangent, normal], np.array(columns).T, atol=1e-9)
    assert contact.friction == (0.8,)
    assert contact.restitution == 0.0


def test_mistakes_are_named() -> None:
    for wrong in ({"body": 0.0}, {"lengths": (0.2, -0.2)}, {"inertias": (0.0, 0.1)}):
        with pytest.raises(ModelError, match="masses, lengths and inertias"):
            model.Constants(**wrong)
    with pytest.raises(ModelError, match="friction"):
        model.Constants(friction=-0.1)
