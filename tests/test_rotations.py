"""Rotations: against matrix exponentials, and back."""

import numpy as np
import pytest
from scipy.linalg import expm

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


def test_exp_is_the_matrix_exponential_of_the_cross_product():
    for w in VECTORS:
        np.testing.assert_allclose(so3.exp(w), expm(skew(w)), rtol=0, atol=1e-14)
    np.testing.assert_allclose(so3.exp(VECTORS)[3], so3.exp(VECTORS[3]), rtol=0, atol=1e-15)


def test_log_is_the_inverse_of_exp_up_to_half_a_turn():
    np.testing.assert_allclose(so3.log(so3.exp(VECTORS)), VECTORS, rtol=0, atol=4e-15)


def test_half_a_turn_has_two_logarithms_and_either_is_right():
    for axis in (*E, *axes(20)):
        rotation = so3.exp(np.pi * axis)
        w = so3.log(rotation)
        assert abs(np.linalg.norm(w) - np.pi) < 1e-14
        np.testing.assert_allclose(so3.exp(w), rotation, rtol=0, atol=3e-15)


def test_the_logarithm_by_the_antisymmetric_part_loses_half_the_digits_near_half_a_turn():
    w = (np.pi - 1e-6) * axes(1)[0]
    rotation = so3.exp(w)
    sine = (rotation - rotation.T)[[2, 0, 1], [1, 2, 0]] / 2
    naive = sine * np.arccos((np.trace(rotation) - 1) / 2) / np.linalg.norm(sine)
    assert np.abs(naive - w).max() > 1e-11
    np.testing.assert_allclose(so3.log(rotation), w, rtol=0, atol=4e-15)


def test_quaternions_turn_vectors_as_their_rotations_do_and_have_no_negative_real_part():
    for w in (*VECTORS, *(3.0 * E), *(-3.0 * E), *(np.pi * E)):
        rotation = so3.exp(w)
        q, v = np.split(so3.quaternion_of(rotation), [1])
        turned = np.eye(3) + 2 * q * skew(v) + 2 * skew(v) @ skew(v)
        np.testing.assert_allclose(turned, rotation, rtol=0, atol=4e-15)
        assert q >= 0


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
