"""`MPCC.of_pairs`: textbook programs in, and every mistake named at once."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.errors import ModelError
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.residuals import Evaluator

pytestmark = pytest.mark.quick


def build(**changes):
    """min (x - 1)^2 + p y s.t. 0 <= x _|_ y >= 0, -1 <= x + z <= 2, with changes; w(0), w(1), ... in the arguments."""
    w, p = ca.SX.sym("w", 3), ca.SX.sym("p")
    fields = dict(w=w, p=p, G=w[0], H=w[1], objective=(w[0] - 1) ** 2 + p * w[1], g=w[0] + w[2], lbg=-1, ubg=2, p0=0.5)
    return MPCC.of_pairs(**fields | {name: f(w, p) if callable(f) else f for name, f in changes.items()})


def test_values_residuals_and_names():
    mpcc = build(penalty=lambda w, p: 3 * w[2])
    evaluator = Evaluator(mpcc)
    at = evaluator(np.array([0.5, 0.25, 4.0]), mpcc.p0)
    assert (at.objective, at.penalty) == pytest.approx((0.375, 12.0), abs=1e-15)
    assert evaluator.complementarity(at) == pytest.approx(0.125, abs=1e-15)
    assert evaluator.complementarity_min(at) == pytest.approx(0.25, abs=1e-15)
    assert evaluator.infeasibility(at) == pytest.approx(2.5, abs=1e-15)
    worst = evaluator.worst(at)
    assert [item.name for item in worst] == ["g[0]", "G[0] * H[0]"]
    assert mpcc.variables.label(2)[0] == "w_2"
    assert evaluator.infeasibility(evaluator(np.array([-0.75, 0.0, 0.0]), mpcc.p0)) == pytest.approx(0.75, abs=1e-15)


def test_defaults():
    w = ca.SX.sym("x", 2)
    mpcc = MPCC.of_pairs(w=w, G=w[0], H=w[1])
    np.testing.assert_array_equal(mpcc.lbw, [-np.inf, -np.inf])
    np.testing.assert_array_equal(mpcc.ubw, [np.inf, np.inf])
    np.testing.assert_array_equal(mpcc.w0, [0.0, 0.0])
    assert (mpcc.p.numel(), mpcc.g.numel(), mpcc.r.numel(), mpcc.p0.size, mpcc.lbg.size) == (0, 0, 0, 0, 0)
    assert mpcc.objective.is_zero()
    assert mpcc.penalty.is_zero()


def test_pairs_are_rows_and_plain_variables_are_known():
    mpcc = build(G=lambda w, p: ca.vertcat(w[2], w[0] + w[1], p), H=lambda w, p: ca.vertcat(2 * w[0], w[1], w[0]))
    np.testing.assert_array_equal(mpcc.G_variable, [2, -1, -1])
    np.testing.assert_array_equal(mpcc.H_variable, [-1, 1, 0])
    i, j = mpcc.pairs()
    np.testing.assert_array_equal(i, [0, 1, 2])
    np.testing.assert_array_equal(j, [0, 1, 2])
    left, right = mpcc.products()
    factors = ca.Function("factors", [mpcc.w, mpcc.p], [left, right])([1, 2, 3], [7])
    np.testing.assert_allclose(np.hstack([np.asarray(f) for f in factors]), [[3, 2], [3, 2], [7, 1]], atol=1e-15)


def test_columns_rows_and_sparse_expressions_are_the_same():
    mpcc = build(
        G=lambda w, p: ca.horzcat(w[0], 0), H=lambda w, p: ca.SX(ca.Sparsity(2, 1)), g=ca.SX(2, 1), lbg=0, ubg=0
    )
    assert (mpcc.G.shape, mpcc.H.shape, mpcc.g.shape) == ((2, 1), (2, 1), (2, 1))
    assert mpcc.H.is_dense()
    assert mpcc.g.is_dense()
    at = Evaluator(mpcc)(np.array([3.0, 0, 0]), mpcc.p0)
    np.testing.assert_array_equal(at.G, [3, 0])
    np.testing.assert_array_equal(at.H, [0, 0])


def test_program_keeps_no_array_of_the_caller():
    w0 = np.array([1.0, 2.0, 3.0])
    mpcc = build(w0=w0)
    w0[:] = 9
    np.testing.assert_array_equal(mpcc.w0, [1, 2, 3])


def test_one_number_stands_for_all():
    mpcc = build(lbw=-2, ubw=[1, np.inf, 3], w0=0.5)
    np.testing.assert_array_equal(mpcc.lbw, [-2, -2, -2])
    np.testing.assert_array_equal(mpcc.ubw, [1, np.inf, 3])
    np.testing.assert_array_equal(mpcc.w0, [0.5, 0.5, 0.5])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lbw": [0, 0]}, "lbw: expected 3 numbers, given 2"),
        ({"ubw": np.ones(4)}, "ubw: expected 3 numbers, given 4"),
        ({"w0": [1, 2, 3, 4]}, "w0: expected 3 numbers, given 4"),
        ({"lbg": [0, 0]}, "lbg: expected 1 numbers, given 2"),
        ({"p0": [1, 2]}, "p0: expected 1 numbers, given 2"),
        ({"w0": [0, np.nan, 0]}, "w0: contains NaN at position 1"),
        ({"ubg": np.nan}, "ubg: contains NaN at position 0"),
        ({"w0": [0, np.inf, 0]}, "w0: expected finite numbers, given inf"),
        ({"p0": -np.inf}, "p0: expected finite numbers, given -inf"),
        ({"lbw": "zero"}, "lbw: expected 3 numbers, given 'zero'"),
        ({"lbw": None}, "lbw: expected 3 numbers, given None"),
        ({"w0": lambda w, p: [0, p, 0]}, "w0: contains NaN at position 1"),
        ({"ubw": lambda w, p: w}, "ubw: expected 3 numbers"),
        ({"w0": lambda w, p: p}, "w0: expected 3 numbers"),
        ({"lbw": [0, 2, 0], "ubw": 1}, r"lbw and ubw, row 1 \(w_1\): expected lower <= upper .* given \[2, 1\]"),
        ({"lbg": 3}, r"lbg and ubg, row 0 \(g\[0\]\): .* given \[3, 2\]"),
        ({"lbw": np.inf}, r"lbw and ubw, row 0 \(w_0\): .* given \[inf, inf\]"),
        ({"ubg": -np.inf, "lbg": -np.inf}, r"lbg and ubg, row 0 .* given \[-inf, -inf\]"),
        ({"G": lambda w, p: w}, "G and H: expected as many rows, given 3 and 1"),
        ({"objective": lambda w, p: w}, "objective: expected a scalar, given 3 entries"),
        ({"penalty": lambda w, p: w[:2]}, "penalty: expected a scalar, given 2 entries"),
        ({"objective": ca.SX.sym("stranger")}, "objective: depends on stranger, which is neither in w nor in p"),
        ({"G": ca.SX.sym("foreign")}, "G: depends on foreign"),
        ({"g": ca.MX.sym("g")}, "g: expected an SX expression, given MX"),
        ({"H": "w"}, "H: expected an SX expression, given str"),
        ({"G": None}, "G: expected an SX expression, given NoneType"),
        ({"w": lambda w, p: 2 * w}, "w: expected a column of SX symbols"),
        ({"w": ca.MX.sym("w", 3)}, "w: expected a column of SX symbols, given MX"),
        ({"w": ca.SX.sym("w", ca.Sparsity.diag(2))}, "w: expected a column of SX symbols"),
        ({"p": np.ones(1)}, "p: expected a column of SX symbols, given ndarray"),
        ({"p": lambda w, p: w[0]}, "w and p: the same symbol appears twice"),
        ({"w": lambda w, p: ca.vertcat(w, w[1])}, "w and p: the same symbol appears twice"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ModelError, match=message):
        build(**changes)
    assert build().G.numel() == 1  # negative control: without the change it is a program
