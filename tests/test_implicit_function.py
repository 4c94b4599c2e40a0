"""The implicit function theorem in numbers: rows that depend on each other, their derivatives and multipliers."""

import numpy as np
import pytest

from nosnoc_py.implicit_function import RankRevealingQR, RankRevealingSVD

pytestmark = pytest.mark.quick


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    """Five rows of rank three, which agree: of six unknowns, by two data."""
    random = np.random.default_rng(0)
    mixed = np.vstack([np.eye(3), random.normal(size=(2, 3))])
    by_y, by_w = random.normal(size=(3, 6)), random.normal(size=(3, 2))
    return mixed @ by_y * 1e3, mixed @ by_w * 1e3


def test_rows_that_depend_on_others_say_nothing_new(rows: tuple[np.ndarray, np.ndarray]) -> None:
    by_y, by_w = rows
    known, other = RankRevealingQR(by_y, 1e-10), RankRevealingSVD(by_y, 1e-10)
    assert known.seen.shape == (6, 3)
    np.testing.assert_allclose(by_y @ known.loose, 0.0, atol=1e-9)
    np.testing.assert_allclose(known.derivative(by_w), other.derivative(by_w), atol=1e-11)
    np.testing.assert_allclose(by_y @ known.derivative(by_w) + by_w, 0.0, atol=1e-9)


def test_multipliers_balance_a_slope_as_far_as_rows_can(rows: tuple[np.ndarray, np.ndarray]) -> None:
    by_y, _ = rows
    known, slope = RankRevealingQR(by_y, 1e-10), np.arange(6.0)
    multipliers = known.multipliers(slope)
    left = slope + by_y.T @ multipliers
    np.testing.assert_allclose(left, known.loose @ (known.loose.T @ slope), atol=1e-11)
    assert np.count_nonzero(multipliers) == 3


def test_a_rest_of_a_row_is_measured_by_its_length_before() -> None:
    rest = np.array([[1e-12, 0.0], [0.0, 1.0]])
    assert RankRevealingQR(rest, 1e-8).seen.shape == (2, 2)
    assert RankRevealingQR(rest, 1e-8, np.ones(2)).seen.shape == (2, 1)


def test_no_rows_determine_nothing() -> None:
    known = RankRevealingQR(np.zeros((0, 3)), 1e-8)
    np.testing.assert_array_equal(known.loose, np.eye(3))
    np.testing.assert_array_equal(known.derivative(np.zeros((0, 2))), np.zeros((3, 2)))
    assert known.multipliers(np.ones(3)).shape == (0,)
