"""Rotations and motions: against scipy, matrix exponentials and differences, to second derivatives at zero."""

import casadi as ca
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import nosnoc_py as ns
from nosnoc_py import rotations as so3

rng = np.random.default_rng(9)
ANGLES = (0.0, 1e-16, 1e-9, 1e-5, 1e-3, 0.1, 0.9999999, 1.0, 1.0000001, 2.0, 3.0, np.pi - 1e-3, np.pi - 1e-8)
E = np.eye(3)


def axes(count):
    found = rng.normal(size=(count, 3))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


VECTORS = np.concatenate([angle * axes(7) for angle in ANGLES])


def skew(w):
    return np.array([np.cross(w, e) for e in E]).T


# Values -------------------------------------------------------------------------------------------------------------


def vee(matrix):
    """w of the antisymmetric part S(w) of a matrix."""
    return np.array([matrix[2, 1] - matrix[1, 2], matrix[0, 2] - matrix[2, 0], matrix[1, 0] - matrix[0, 1]]) / 2


def test_exp_and_log_agree_with_scipy_up_to_half_a_turn():
    reference = Rotation.from_rotvec(VECTORS).as_matrix()
    np.testing.assert_allclose(so3.exp(VECTORS), reference, rtol=0, atol=1e-15)
    np.testing.assert_allclose(so3.log(reference), VECTORS, rtol=0, atol=2e-15)


def test_half_a_turn_has_two_logarithms_and_either_is_right():
    for axis in (*E, *axes(20)):
        rotation = so3.exp(np.pi * axis)
        w = so3.log(rotation)
        assert abs(np.linalg.norm(w) - np.pi) < 1e-14
        np.testing.assert_allclose(so3.exp(w), rotation, rtol=0, atol=3e-15)


def test_the_logarithm_by_the_antisymmetric_part_loses_half_the_digits_near_half_a_turn():
    w = (np.pi - 1e-6) * axes(1)[0]
    rotation = so3.exp(w)
    sine = vee(rotation)
    naive = sine * np.arccos((np.trace(rotation) - 1) / 2) / np.linalg.norm(sine)
    assert np.abs(naive - w).max() > 1e-11
    np.testing.assert_allclose(so3.log(rotation), w, rtol=0, atol=2e-15)


def test_values_are_relatively_exact_near_zero():
    for size in 10.0 ** np.arange(-16, 0):
        w = size * axes(5)
        np.testing.assert_allclose(so3.log(so3.exp(w)), w, rtol=0, atol=1e-15)
        hat = np.swapaxes(np.cross(w[:, None], np.eye(3)), 1, 2)  # S(w), with S(w) y = w x y
        square = hat @ hat
        expansion = hat + square / 2 + square @ hat / 6 + square @ square / 24
        if size < 1e-3:
            np.testing.assert_allclose(so3.exp(w) - np.eye(3), expansion, rtol=0, atol=3e-16)


@pytest.mark.parametrize("k", range(4))
def test_coefficients_match_integrals_on_both_sides_of_the_series(k):
    """a, b, c, d as integrals without cancellation, by Gauss's rule."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    r, weights = (nodes + 1) / 2, weights / 2
    for t in (1e-8, 0.1, 0.5, 0.99, 1.0, 1.01, 2.0, 5.0):
        a = weights @ np.cos(r * t)  # sin(t) / t
        b = weights @ ((1 - r) * np.cos(r * t))  # (1 - cos t) / t^2
        c = weights @ ((1 - r) ** 2 / 2 * np.cos(r * t))  # (t - sin t) / t^3
        d = weights @ (r * (1 - r) * np.cos((2 * r - 1) * t / 2)) / (2 * np.sin(t / 2) / (t / 2))
        found = so3._coefficients(np.float64(t) ** 2, so3._ARRAYS)[k]
        expected = (a, b, c, d)[k]
        assert abs(found - expected) < 1e-14  # the sum of 40 terms has rounding, too


def test_jacobians_are_derivatives_of_exp():
    h = 1e-6
    for w in VECTORS:
        for k in range(3):
            rate = (so3.exp(w + h * E[k]) - so3.exp(w - h * E[k])) / (2 * h)
            left = vee(rate @ so3.exp(w).T)
            right = vee(so3.exp(w).T @ rate)
            np.testing.assert_allclose(so3.left_jacobian(w)[:, k], left, rtol=0, atol=1e-9)
            np.testing.assert_allclose(so3.right_jacobian(w)[:, k], right, rtol=0, atol=1e-9)


def test_inverse_jacobians():
    w = np.concatenate([VECTORS, 5.0 * axes(5)])
    for jacobian, inverse in (
        (so3.left_jacobian, so3.left_jacobian_inverse),
        (so3.right_jacobian, so3.right_jacobian_inverse),
    ):
        product = jacobian(w) @ inverse(w)
        np.testing.assert_allclose(product, np.broadcast_to(np.eye(3), product.shape), rtol=0, atol=2e-14)


def test_left_and_right_jacobians_are_not_the_same():
    w = 0.1 * axes(1)[0]
    assert np.abs(so3.left_jacobian(w) - so3.right_jacobian(w)).max() > 1e-2


def test_quaternions_agree_with_scipy_in_all_four_cases():
    turns = np.concatenate([VECTORS, 3.0 * E, -3.0 * E, np.pi * E])
    rotations = Rotation.from_rotvec(turns)
    found = so3.quaternion_of(rotations.as_matrix())
    reference = rotations.as_quat()[:, [3, 0, 1, 2]]
    same = np.abs((found * reference).sum(axis=1))
    np.testing.assert_allclose(same, 1, rtol=0, atol=3e-15)
    assert (found[:, 0] >= 0).all()
    np.testing.assert_allclose(so3.rotation_of(3.0 * found), rotations.as_matrix(), rtol=0, atol=3e-15)


# CasADi -------------------------------------------------------------------------------------------------------------

FUNCTIONS = {
    "exp": (3, so3.exp),
    "left_jacobian": (3, so3.left_jacobian),
    "right_jacobian": (3, so3.right_jacobian),
    "left_jacobian_inverse": (3, so3.left_jacobian_inverse),
    "right_jacobian_inverse": (3, so3.right_jacobian_inverse),
    "log": (3, lambda w: so3.log(so3.exp(w))),
    "quaternion_of": (3, lambda w: so3.quaternion_of(so3.exp(w))),
    "rotation_of": (3, lambda w: so3.rotation_of(so3.quaternion_of(so3.exp(w)))),
}


def derivatives(name, kind):
    """Value, first and second derivatives of all entries."""
    size, function = FUNCTIONS[name]
    x = kind.sym("x", size)
    value = ca.densify(ca.vec(function(x).T))
    first = ca.jacobian(value, x)
    return ca.Function(name, [x], [value, first, ca.jacobian(ca.vec(first), x)])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", [ca.SX, ca.MX], ids=["SX", "MX"])
def test_casadi_has_the_same_values_and_right_derivatives(name, kind):
    size, function = FUNCTIONS[name]
    evaluate = derivatives(name, kind)
    offsets = rng.normal(size=(len(ANGLES), 3))
    for angle, axis, v in zip(ANGLES, axes(len(ANGLES)), offsets, strict=True):
        if angle > 3.0:
            continue  # differences would step over half a turn
        x = np.concatenate([angle * axis, v])[:size]
        value, first, second = (np.asarray(part) for part in evaluate(x))
        np.testing.assert_allclose(value[:, 0], np.ravel(function(x)), rtol=0, atol=3e-15 * max(1, np.abs(value).max()))
        h = 1e-4
        steps = [h * e for e in np.eye(size)]
        differences = np.array([(np.ravel(function(x + s)) - np.ravel(function(x - s))) / (2 * h) for s in steps]).T
        # h^2 / 6 of a third derivative, which at 3 rad is large for the inverse of Cayley's map (tan)
        np.testing.assert_allclose(first, differences, rtol=1e-4, atol=1e-7)
        differences = np.array([np.asarray(evaluate(x + s)[1]) - np.asarray(evaluate(x - s)[1]) for s in steps])
        differences = differences.transpose(2, 1, 0).reshape(-1, size) / (2 * h)
        np.testing.assert_allclose(second, differences, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", [ca.SX, ca.MX], ids=["SX", "MX"])
def test_second_derivatives_at_zero_are_exact(kind):
    """exp(w) = I + S + S^2 / 2 + ..: its derivatives at zero are those of the terms up to the second."""
    _, first, second = (np.asarray(part) for part in derivatives("exp", kind)(np.zeros(3)))
    generators = [skew(e) for e in E]
    for i in range(3):
        np.testing.assert_array_equal(first[:, i].reshape(3, 3), generators[i])
        for j in range(3):
            product = (generators[i] @ generators[j] + generators[j] @ generators[i]) / 2
            np.testing.assert_array_equal(second.reshape(3, 9, 3)[i, :, j].reshape(3, 3), product)


@pytest.mark.parametrize("kind", [ca.SX, ca.MX], ids=["SX", "MX"])
def test_log_after_exp_is_the_identity_to_second_order_at_zero(kind):
    _, first, second = (np.asarray(part) for part in derivatives("log", kind)(np.zeros(3)))
    np.testing.assert_allclose(first, np.eye(3), rtol=0, atol=1e-16)
    np.testing.assert_allclose(second, 0, rtol=0, atol=1e-16)


def test_the_closed_form_alone_has_no_derivative_at_zero():
    w = ca.SX.sym("w", 3)
    closed = ca.sin(ca.norm_2(w)) / ca.norm_2(w)
    assert np.isnan(np.asarray(ca.Function("closed", [w], [ca.jacobian(closed, w)])(np.zeros(3)))).all()
    series = so3._coefficients(ca.sumsqr(w), so3._space(w))[0]
    hessian = ca.Function("series", [w], [ca.hessian(series, w)[0]])(np.zeros(3))
    np.testing.assert_allclose(np.asarray(hessian), -np.eye(3) / 3, rtol=0, atol=1e-16)


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.eye(2), r"expected a rotation matrix \(3, 3\)"),
        ("turned", r"expected a rotation matrix \(3, 3\)"),
        (np.full((3, 3), np.nan), "finite"),
        (1.001 * np.eye(3), r"not orthonormal.*nearest_rotation"),
        (np.diag([1.0, 1.0, -1.0]), "reflection"),
    ],
)
def test_what_is_no_rotation_is_refused(value, message):
    with pytest.raises(ns.ModelError, match=message):
        so3.check_rotation(value, "rotation")


def test_nearest_rotation():
    rotation = so3.exp(axes(1)[0])
    noise = 1e-3 * rng.normal(size=(3, 3))
    found = so3.check_rotation(so3.nearest_rotation(rotation + noise), "rotation")
    others = [found @ so3.exp(1e-4 * w) for w in axes(20)]
    best = np.linalg.norm(found - rotation - noise)
    assert all(np.linalg.norm(other - rotation - noise) > best for other in others)
    assert np.linalg.det(so3.nearest_rotation(np.diag([1.0, 1.0, -1e-3]))) == pytest.approx(1, abs=1e-14)
