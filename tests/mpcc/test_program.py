"""The builder and the MPCC: one row per quantity, products and aggregations, switched equations."""

from itertools import product
from typing import get_args

import casadi as ca
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nosnoc_py.discretization.options import Aggregation
from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.program import ProgramBuilder

pytestmark = pytest.mark.quick

NONNEGATIVE = st.sampled_from([0.0, 0.0, 1e-3, 1.0, 7.5])


def built(builder, aggregation="stage_stage", enforce_switched=False):
    if not builder.layouts["variables"].size:
        builder.variable("w", At(), ("w",))
    return builder.build(aggregation=aggregation, enforce_switched=enforce_switched)


def grouped(n_left, n_right, aggregation, *, summed=False):
    """One group, all left against all right; the quantities are the variables themselves."""
    builder = ProgramBuilder()
    a = builder.variable("a", At(), tuple(f"a_{i}" for i in range(n_left)))
    b = builder.variable("b", At(), tuple(f"b_{i}" for i in range(n_right)))
    left = builder.left.add(tuple(f"a_{i}" for i in range(n_left)), a, At())
    right = builder.right.add(tuple(f"b_{i}" for i in range(n_right)), b, At())
    builder.group(left, right, summed=summed)
    return builder.build(aggregation=aggregation, enforce_switched=False)


def product_values(mpcc, values):
    left, right = mpcc.products()
    return np.array(ca.Function("products", [mpcc.w], [left * right])(values)).ravel()


# Variables, parameters, constraints ---------------------------------------------------------------------------------


def test_variables_keep_their_order_bounds_and_scales():
    builder = ProgramBuilder()
    builder.variable("x", At(0, 0, 0), ("x", "y"), [-1, -2], 5, initial=[3, 4], scale=10)
    builder.variable("s", At(0, 1), ("s",), 0.1, 2.0, 1.0)
    mpcc = built(builder)
    assert np.array_equal(mpcc.lbw, [-1, -2, 0.1])
    assert np.array_equal(mpcc.ubw, [5, 5, 2])
    assert np.array_equal(mpcc.w0, [3, 4, 1])
    assert np.array_equal(mpcc.w_scale, [10, 10, 1])
    assert mpcc.variables["s", 0, 1] == slice(2, 3)
    assert [s.name() for s in ca.symvar(mpcc.w)] == ["x_0_0_0_0", "x_0_0_0_1", "s_0_1"]


def test_parameters_and_constraints():
    builder = ProgramBuilder()
    w = builder.variable("w", At(), ("w",))
    p = builder.parameter("p", ("mass", "length"), [1.0, 2.0])
    builder.constraint("balance", At(1), w - p[0])
    builder.constraint("box", At(), ca.vertcat(w, 2 * w), None, -1, [1, 2], scale=3.0)
    mpcc = built(builder)
    assert np.array_equal(mpcc.p0, [1, 2])
    assert np.array_equal(mpcc.lbg, [0, -1, -1])
    assert np.array_equal(mpcc.ubg, [0, 1, 2])
    assert np.array_equal(mpcc.g_scale, [1, 3, 3])
    assert mpcc.constraints.label(0) == ("balance", "control stage 1")
    assert [mpcc.constraints.label(i)[0] for i in (1, 2)] == ["box[0]", "box[1]"]


def test_quantities_that_are_plain_variables_get_a_bound_and_others_a_row():
    builder = ProgramBuilder()
    w = builder.variable("w", At(), ("free", "bounded", "negative"), [-np.inf, 0.5, -3])
    left = builder.left.add(("free", "sum"), ca.vertcat(w[0], w[0] + w[1]), At())
    right = builder.right.add(("bounded", "negative"), w[1:], At())
    builder.group(left, right)
    mpcc = built(builder)
    assert np.array_equal(mpcc.G_variable, [0, -1])
    assert np.array_equal(mpcc.H_variable, [1, 2])
    assert np.array_equal(mpcc.lbw, [0.0, 0.5, 0.0])


def test_a_program_without_groups_has_no_products():
    mpcc = built(ProgramBuilder())
    assert [len(rows) for rows in mpcc.pairs()] == [0, 0]
    assert [side.numel() for side in mpcc.products()] == [0, 0]
    assert (mpcc.G.numel(), mpcc.r.numel(), mpcc.g.numel()) == (0, 0, 0)
    assert "1 variables, 0 parameters, 0 constraints" in repr(mpcc)


# The same quantity is stored once -----------------------------------------------------------------------------------


def test_the_same_quantity_at_the_same_arguments_is_stored_once():
    builder = ProgramBuilder()
    x = builder.variable("x", At(), ("x", "y"))
    end, start = At(0, 0, 1), At(0, 1)
    first = builder.left.add(("gap",), ca.sin(x[0]) + 1, end)
    again = builder.left.add(("gap",), ca.sin(x[0]) + 1, start)
    assert first == again
    assert builder.left.layout.size == 1
    assert builder.left.layout.label(0) == ("gap", str(end))


def test_other_arguments_or_another_label_are_other_quantities():
    builder = ProgramBuilder()
    x = builder.variable("x", At(), ("x", "y"))
    rows = [builder.left.add((label,), value, At())[0] for label, value in (("a", x[0]), ("a", x[1]), ("b", x[0]))]
    assert rows == [0, 1, 2]


def test_other_functions_of_the_same_symbols_are_other_quantities():
    """As the states at two stages, where they are expressions of the same derivatives."""
    builder = ProgramBuilder()
    x = builder.variable("x", At(0), ("x_0", "x_1"))
    first = builder.left.add(["gap"], x[0] + 0.3 * x[1], At(0, 0, 0))
    second = builder.left.add(["gap"], x[0] + 0.7 * x[1], At(0, 0, 1))
    again = builder.left.add(["gap"], 0.3 * x[1] + x[0], At(0, 0, 1))
    assert first[0] != second[0]
    assert again[0] == first[0]


def test_constants_are_never_merged():
    builder = ProgramBuilder()
    rows = [builder.left.add(("gap",), ca.SX(value), At(k))[0] for k, value in enumerate((1.0, 2.0))]
    assert rows == [0, 1]


def test_both_sides_may_hold_the_same_label():
    builder = ProgramBuilder()
    x = builder.variable("x", At(), ("x",))
    assert builder.left.add(("x",), x, At())[0] == builder.right.add(("x",), x, At())[0] == 0
    assert [side.numel() for side in builder.quantities()] == [1, 1]


# Groups and products ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("aggregation", "count"), [("stage_stage", 6), ("stage_fe", 3), ("fe_stage", 2), ("fe_fe", 1)])
def test_how_many_products_a_solver_sees(aggregation, count):
    mpcc = grouped(3, 2, aggregation)
    assert [side.numel() for side in mpcc.products()] == [count, count]
    assert len(mpcc.pairs()[0]) == 6  # residuals are over the single products always
    assert set(zip(*mpcc.pairs(), strict=True)) == set(product(range(3), range(2)))


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("stage_stage", [5 * 7, 5 * 11, 2 * 7, 2 * 11, 3 * 7, 3 * 11]),
        ("stage_fe", [5 * 18, 2 * 18, 3 * 18]),
        ("fe_stage", [10 * 7, 10 * 11]),
        ("fe_fe", [10 * 18]),
    ],
)
def test_the_first_word_sums_the_left_and_the_second_the_right(aggregation, expected):
    values = product_values(grouped(3, 2, aggregation), [5, 2, 3, 7, 11])
    assert np.array_equal(values, expected)


@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_summed_groups_are_one_product_whatever_the_aggregation(aggregation):
    mpcc = grouped(3, 2, aggregation, summed=True)
    assert np.array_equal(product_values(mpcc, [5, 2, 3, 7, 11]), [180])
    assert len(mpcc.pairs()[0]) == 6


PROGRAMS = {a: grouped(3, 2, a) for a in get_args(Aggregation)} | {"summed": grouped(3, 2, "stage_stage", summed=True)}


@pytest.mark.parametrize("aggregation", PROGRAMS)
@given(values=st.lists(NONNEGATIVE, min_size=5, max_size=5))
def test_aggregated_products_vanish_exactly_when_all_single_ones_do(aggregation, values):
    mpcc = PROGRAMS[aggregation]
    aggregated = product_values(mpcc, values)
    i, j = mpcc.pairs()
    single = np.array(values)[:3][i] * np.array(values)[3:][j]
    assert (aggregated == 0).all() == (single == 0).all()
    assert aggregated.max() >= single.max()  # nothing is hidden by adding up


def test_rows_of_a_group_count_once_and_empty_groups_not_at_all():
    builder = ProgramBuilder()
    builder.group(np.array([2, 0, 2]), np.array([1, 1]))
    builder.group(np.array([], int), np.array([1]))
    assert len(builder.groups) == 1
    assert np.array_equal(builder.groups[0].left, [0, 2])
    assert np.array_equal(builder.groups[0].right, [1])


# Switched equations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", list(product((0, 1), repeat=4)))
def test_an_indicator_on_zeros_and_ones_is_boolean_logic(bits):
    builder = ProgramBuilder()
    a = builder.variable("a", At(), ("a_0", "a_1"))
    b = builder.variable("b", At(), ("b_0", "b_1"))
    builder.group(builder.left.add(("a_0", "a_1"), a, At()), builder.right.add(("b_0", "b_1"), b, At()))
    builder.switch("or of ands", At(1), a[0] - b[0], lambda G, H: G[0] * G[1] + H[0] * H[1])
    builder.switch("and of ors", At(2), a[1] - b[1], lambda G, H: (G[0] + H[0]) * (G[1] + H[1]))
    mpcc = built(builder)
    eta = np.array(mpcc.indicator(bits[:2], bits[2:])).ravel() > 0
    a0, a1, b0, b1 = map(bool, bits)
    assert eta.tolist() == [(a0 and a1) or (b0 and b1), (a0 or b0) and (a1 or b1)]
    assert mpcc.switched.label(1) == ("and of ors", "control stage 2")


def test_enforce_switched_is_kept():
    assert built(ProgramBuilder(), enforce_switched=True).enforce_switched
    assert not built(ProgramBuilder()).enforce_switched
