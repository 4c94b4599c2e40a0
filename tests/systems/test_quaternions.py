"""Kinematics q' = N(q) v: what a system with quaternions or quasi-velocities is, and what is refused."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import free_box
from nosnoc_py.rotations import exp, product, quaternion_of, rotation_of, turned_between

pytestmark = pytest.mark.quick


def turning(**more: Any) -> ns.CLS:
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    given = {"q": q, "v": v, "quaternions": [q[3:]], "mass_matrix": ca.SX.eye(6), "force": ca.SX(6, 1)}
    return ns.CLS(**{**given, **more})


def test_the_rate_of_a_quaternion_turns_it_as_the_angular_velocity_says() -> None:
    system, rng = turning(), np.random.default_rng(0)
    q, v = rng.normal(size=7), rng.normal(size=6)
    q[3:] /= np.linalg.norm(q[3:])
    rate = np.array(ca.Function("rate", [system.q, system.v], [system.position_rate])(q, v))[:, 0]
    step = 1e-6
    later, before = (product(q[3:], quaternion_of(exp(s * step * v[3:]))) for s in (1, -1))
    np.testing.assert_allclose(rate, [*v[:3], *((later - before) / (2 * step))], rtol=0, atol=1e-9)
    assert (system.n_q, system.n_v, system.at_v, system.at_y) == (7, 6, slice(7, 13), slice(13, 13))
    assert system.rate_matrix.shape == (7, 6)


def test_nothing_depends_on_the_length_of_a_quaternion() -> None:
    """The user writes a rotation matrix that is one for unit quaternions only."""
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    w, x, y, z = ca.vertsplit(q[3:])
    up = ca.vertcat(2 * (x * z - w * y), 2 * (y * z + w * x), w**2 - x**2 - y**2 + z**2)
    corner = ns.Contact("corner", gap=q[2] + 0.3 * up[2], tangent=ca.SX.eye(6)[:, :2], friction=0.5)
    system = turning(q=q, v=v, quaternions=[q[3:]], contacts=[corner], force=ca.vertcat(0, 0, -1, up))
    x0 = np.array([0.0, 0.0, 1.0, 0.5, 0.5, 0.5, 0.5, *range(6)])
    long = x0.copy()
    long[3:7] *= 1.3
    at, other = system.kinematics(x0), system.kinematics(long)
    for name in ("gaps", "jacobian", "force", "mass", "curvature"):
        np.testing.assert_allclose(getattr(other, name), getattr(at, name), rtol=0, atol=1e-14)
    np.testing.assert_allclose(other.position_rate[3:], 1.3 * at.position_rate[3:], rtol=0, atol=1e-14)


def test_expressions_that_are_blind_to_the_length_stay_as_they_are() -> None:
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    gap = q[2] + (rotation_of(q[3:]) @ ca.DM([0.1, 0.2, 0.3]))[2]
    system = turning(q=q, v=v, quaternions=[q[3:]], contacts=[ns.Contact("corner", gap=gap)])
    assert system.contacts[0].gap.element_hash() == gap.element_hash()


def test_quasi_velocities() -> None:
    """A wheeled cart that rolls along its heading: two coordinates of three move with one velocity."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 2)
    heading = ca.diagcat(ca.vertcat(ca.cos(q[2]), ca.sin(q[2])), 1)
    cart = ns.CLS(q=q, v=v, kinematic_matrix=heading, mass_matrix=ca.SX.eye(2), force=ca.SX(2, 1))
    motion = ns.simulate(cart, x0=[0, 0, 0, 2.0, 0.5], duration=3.0)
    turned = 0.5 * 3.0
    exact = [2.0 / 0.5 * np.sin(turned), 2.0 / 0.5 * (1 - np.cos(turned)), turned, 2.0, 0.5]
    np.testing.assert_allclose(motion.final_state, exact, rtol=0, atol=1e-8)


def test_mistakes() -> None:
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    for given, said in (
        ({"quaternions": []}, r"same positive length, given 7 and 6; others need a kinematic_matrix"),
        ({"quaternions": [q[2:5]]}, "four components that follow each other"),
        ({"quaternions": [ca.SX.sym("other", 4)]}, "expected parts of q"),
        ({"q": q[:6], "quaternions": [q[0:4], q[2:6]]}, "share a coordinate"),
        ({"kinematic_matrix": ca.SX.ones(7, 1)}, r"expected shape \(7, 6\)"),
        ({"kinematic_matrix": ca.SX.ones(7, 6) * v[0]}, "kinematic_matrix"),
        ({"mass_matrix": ca.SX.eye(7)}, r"\(6, 6\)"),
    ):
        with pytest.raises(ns.ModelError, match=said):
            turning(**{"q": q, "v": v, "quaternions": [q[3:]], **given})
    with pytest.raises(ns.ModelError, match=r"unit quaternion, given one of length 2; divide it"):
        ns.simulate(free_box.build(), x0=[0, 0, 1, 2, 0, 0, 0, *np.zeros(6)], duration=0.1)


def test_attitude_errors() -> None:
    """The rotation vector between attitudes, for both signs, as matrices, in expressions and with derivatives."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        first = rng.normal(size=4)
        first /= np.linalg.norm(first)
        turn = rng.normal(size=3)
        turn *= rng.uniform(0.0, 3.1) / np.linalg.norm(turn)
        second = product(first, quaternion_of(exp(turn)))
        for sign in (1.0, -1.0):
            np.testing.assert_allclose(ns.attitude_error(sign * second, first), turn, rtol=0, atol=1e-12)
        matrices = rotation_of(second), rotation_of(first)
        np.testing.assert_allclose(ns.attitude_error(*matrices), turn, rtol=0, atol=1e-7)
        symbol = ca.SX.sym("q", 4)
        error = ns.attitude_error(symbol, first)
        values = ca.Function("error", [symbol], [error, ca.jacobian(error, symbol)])(second)
        np.testing.assert_allclose(np.array(values[0])[:, 0], turn, rtol=0, atol=1e-12)
        assert np.isfinite(np.array(values[1])).all()
        half = turned_between(first, second, 0.5)
        np.testing.assert_allclose(ns.attitude_error(half, first), turn / 2, rtol=0, atol=1e-12)
    with pytest.raises(ns.ModelError, match=r"quaternion \(4,\) or a matrix"):
        ns.attitude_error([1, 0, 0], [1, 0, 0, 0])
