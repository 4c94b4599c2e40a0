"""Kinematics of contacts: one value for numbers, many states and expressions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

pytestmark = pytest.mark.quick

STATE = np.array([0.3, 0.7, 1.1, -0.4])


@pytest.fixture(scope="module")
def bowl() -> ns.CLS:
    """A point in a bowl with a mass that depends on q, and anisotropic weights that do not matter in the plane."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    mass = ca.vertcat(ca.horzcat(2 + q[1] ** 2, 0.1), ca.horzcat(0.1, 1))
    floor = ns.Contact("floor", gap=q[1] - q[0] ** 2, tangent=ca.vertcat(1, 2 * q[0]), friction=0.4, restitution=0.3)
    wall = ns.Contact("wall", gap=3 - q[0])
    return ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=ca.vertcat(u, -9.81), contacts=[floor, wall])


def test_against_closed_forms(bowl: ns.CLS) -> None:
    at = bowl.kinematics(STATE, [2.0])
    jacobian = np.array([[-0.6, 1.0], [-1.0, 0.0], [1.0, 0.6]])
    mass = np.array([[2.49, 0.1], [0.1, 1.0]])
    np.testing.assert_allclose(at.gaps, [0.61, 2.7], rtol=1e-14)
    np.testing.assert_allclose(at.jacobian, jacobian, rtol=1e-14)
    np.testing.assert_allclose(at.rates, jacobian @ STATE[2:], rtol=1e-14)
    np.testing.assert_allclose(at.delassus, jacobian @ np.linalg.solve(mass, jacobian.T), rtol=1e-12)
    np.testing.assert_allclose(at.steepness, [np.sqrt(1.36), 1.0], rtol=1e-14)
    np.testing.assert_allclose(at.position_rate, STATE[2:], rtol=0)
    curvature = [-2 * 1.1**2, 0.0, 2 * 1.1 * -0.4]
    free = jacobian @ np.linalg.solve(mass, [2.0, -9.81]) + curvature
    np.testing.assert_allclose(at.free, free, rtol=1e-12)


def test_curvature_is_the_rate_of_the_rates(bowl: ns.CLS) -> None:
    """d/dt (J v) along a motion without acceleration, by central differences: 1e-9 with steps of 1e-5 s."""
    h = 1e-5
    ahead, behind = (bowl.kinematics(STATE + s * np.append(STATE[2:], [0, 0])).rates for s in (h, -h))
    np.testing.assert_allclose(bowl.kinematics(STATE).curvature, (ahead - behind) / (2 * h), rtol=0, atol=1e-8)


def test_many_states_and_expressions_say_the_same(bowl: ns.CLS) -> None:
    states = STATE + 0.1 * np.random.default_rng(0).normal(size=(7, 4))
    many = bowl.kinematics(states, np.full((7, 1), 2.0))
    symbolic = bowl.kinematics(bowl.x, bowl.u, bowl.p)
    names = ("gaps", "rates", "delassus", "steepness")
    function = ca.Function("kinematics", [bowl.x, bowl.u, bowl.p], [getattr(symbolic, name) for name in names])
    for k, x in enumerate(states):
        one, values = bowl.kinematics(x, [2.0]), function(x, 2.0, [])
        for name, value in zip(names, values, strict=True):
            np.testing.assert_allclose(getattr(many, name)[k], getattr(one, name), rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(np.squeeze(np.array(value)), getattr(one, name), rtol=1e-12, atol=1e-14)


def test_no_states_and_no_contacts() -> None:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    free = ns.CLS(q=q, v=v, mass_matrix=ca.SX(1), force=ca.SX(1))
    assert free.kinematics([0.0, 1.0]).rates.shape == (0,)
    assert free.kinematics(np.zeros((3, 2))).delassus.shape == (3, 0, 0)
    assert free.kinematics(np.zeros((0, 2))).mass.shape == (0, 1, 1)


def test_a_singular_mass_is_no_number() -> None:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    system = ns.CLS(q=q, v=v, mass_matrix=q, force=ca.SX(1), contacts=[ns.Contact("floor", gap=q)])
    assert np.isnan(system.kinematics([0.0, 1.0]).delassus).all()
    assert np.isfinite(system.kinematics([1.0, 1.0]).delassus).all()


def test_threads_share_a_system(bowl: ns.CLS) -> None:
    """The compiled function has buffers: threads must not see each other's numbers."""
    states = STATE + np.random.default_rng(1).normal(size=(200, 4))
    alone = [bowl.kinematics(x).rates for x in states]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda x: bowl.kinematics(x).rates, states))
    np.testing.assert_array_equal(together, alone)
