"""Floors: what bounds say about the rows of G and H, compared with the smallest value over all corners of the box."""

from itertools import product

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.structure import implied_lower_bounds

pytestmark = pytest.mark.quick

W = ca.SX.sym("w", 4)
P = ca.SX.sym("p", 2)
NONE = np.zeros(0)


def floor_of(*rows, lower=0.0, upper=np.inf, p=None, p0=0.0):
    """The floor of G; H is free of everything."""
    G = ca.vertcat(*rows)
    mpcc = MPCC.of_pairs(w=W, G=G, H=ca.SX.zeros(G.numel()) + 1, lbw=lower, ubw=upper, p=p, p0=p0)
    return implied_lower_bounds(mpcc)[0]


def smallest(row, lower, upper, p=NONE):
    """Over the corners of a finite box: right for affine rows."""
    value = ca.Function("row", [W, P], [row])
    corners = product(*zip(np.broadcast_to(lower, 4), np.broadcast_to(upper, 4), strict=True))
    return min(float(value(corner, p if len(p) else 0)) for corner in corners)


@pytest.mark.parametrize(
    ("row", "lowest", "implied"),
    [
        (W[0], 0.0, True),
        (W[0] + W[1] + W[3], 0.0, True),
        (2 * W[0] + 0.5 * W[2] + 3, 3.0, True),
        (1 - W[0], 0.0, True),  # 1 - alpha with alpha <= 1
        (2 - W[0] - W[1], 0.0, True),
        (1 - W[0] - W[1], -1.0, False),
        (W[0] - W[1], -1.0, False),
        (W[0] + 1e-13 - 1e-13, 0.0, True),
        (W[0] - 1e-6, -1e-6, False),
        (W[0] * 0 + 2, 2.0, True),  # no variable at all
        (ca.SX(-2), -2.0, False),
    ],
)
def test_affine_rows_in_the_unit_box(row, lowest, implied):
    floor = floor_of(row, lower=0.0, upper=1.0)
    assert floor.affine.tolist() == [True]
    assert floor.implied.tolist() == [implied]
    assert floor.lowest(NONE) == pytest.approx([lowest], abs=1e-15)
    assert lowest == pytest.approx(smallest(ca.SX(row), 0.0, 1.0), abs=1e-15)


def test_random_affine_rows_have_the_smallest_value_of_all_corners():
    random = np.random.default_rng(3)
    for _ in range(20):
        matrix, offset = random.integers(-3, 4, (5, 4)).astype(float), random.normal(size=5)
        lower = random.normal(size=4)
        upper = lower + random.uniform(0, 3, 4)
        rows = ca.mtimes(ca.SX(ca.DM(matrix)), W) + ca.DM(offset)
        floor = floor_of(rows, lower=lower, upper=upper)
        expected = [smallest(rows[k], lower, upper) for k in range(5)]
        np.testing.assert_allclose(floor.lowest(NONE), expected, rtol=0, atol=1e-13)
        assert floor.affine.all()
        assert np.array_equal(floor.implied, np.array(expected) >= 0)
        # and there the members say so
        for k in range(5):
            w = np.full(4, np.nan)
            variable, value = floor.members(np.arange(5) == k)
            w[variable] = value
            assert matrix[k] @ np.where(np.isnan(w), 0.0, w) + offset[k] == pytest.approx(expected[k], abs=1e-13)
            assert set(variable) == set(np.flatnonzero(matrix[k]))


@pytest.mark.parametrize(
    "row", [W[0] * W[1], W[0] ** 2, ca.sin(W[0]) + 1, ca.sqrt(W[0] + 1), P[0] * W[0], ca.if_else(W[0] > 1, W[0], 0)]
)
def test_rows_that_are_not_affine_say_nothing(row):
    """Not even where the bounds do imply that they are nonnegative."""
    floor = floor_of(W[1], row, W[2] + 1, upper=1.0, p=P, p0=1.0)
    assert floor.affine.tolist() == [True, False, True]
    assert floor.implied.tolist() == [True, False, True]
    assert floor.lowest(np.ones(2)).tolist() == [0.0, -np.inf, 1.0]
    assert floor.members(np.array([False, True, False]))[0].size == 0


def test_a_side_without_a_bound_is_no_floor():
    floor = floor_of(W[0], 1 - W[0], W[0] + W[1], W[1], lower=[0, -np.inf, 0, 0], upper=np.inf)
    assert floor.affine.tolist() == [True, False, False, False]
    assert floor.lowest(NONE).tolist() == [0.0, -np.inf, -np.inf, -np.inf]
    assert floor.implied.tolist() == [True, False, False, False]


def test_an_offset_of_parameters_moves_the_floor_but_implies_nothing():
    """Whatever p0 is: another p may be given later."""
    floor = floor_of(W[0] + P[0], W[1] + P[0] ** 2 + 1, W[2], p=P, p0=[5.0, 0.0])
    assert floor.affine.tolist() == [True, True, True]
    assert floor.implied.tolist() == [False, False, True]
    for first in (5.0, 0.0, -2.0):
        assert floor.lowest(np.array([first, 7.0])) == pytest.approx([first, first**2 + 1, 0.0], abs=1e-15)


def test_members_fix_what_is_asked_for():
    floor = floor_of(W[0] + W[1], 1 - W[2], W[3] - 2, lower=[0, 0, 0, 2], upper=[9, 9, 1, 9])
    variable, value = floor.members(np.array([True, False, False]))
    assert dict(zip(variable.tolist(), value.tolist(), strict=True)) == {0: 0.0, 1: 0.0}
    variable, value = floor.members(np.array([False, True, True]))
    assert dict(zip(variable.tolist(), value.tolist(), strict=True)) == {2: 1.0, 3: 2.0}
    assert floor.members(np.zeros(3, bool))[0].size == 0


def test_both_sides_and_a_program_without_pairs():
    mpcc = MPCC.of_pairs(w=W, G=W[0], H=W[1] - W[2], lbw=0.0)
    left, right = implied_lower_bounds(mpcc)
    assert (left.implied.tolist(), right.implied.tolist()) == ([True], [False])
    empty = implied_lower_bounds(MPCC.of_pairs(w=W, G=ca.SX(0, 1), H=ca.SX(0, 1)))
    assert [floor.affine.size for floor in empty] == [0, 0]
    assert empty[0].lowest(NONE).size == 0


def test_a_coefficient_that_cancels_is_affine_all_the_same():
    """W[1] appears in the expression with coefficient zero: whatever its bounds are, the row is W[0]."""
    floor = floor_of(W[0] + 0 * W[1], lower=[0, -np.inf, 0, 0])
    assert floor.lowest(NONE).tolist() == [0.0]
    assert floor.implied.tolist() == [True]
