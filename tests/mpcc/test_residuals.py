"""Honest residuals: the formulas of the design on numbers made by hand, and names for what is worst."""

from typing import get_args

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.discretization.options import Aggregation
from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.program import ProgramBuilder
from nosnoc_py.mpcc.residuals import Evaluator, outside

pytestmark = pytest.mark.quick

NONE = np.zeros(0)


def residuals(mpcc, w, p=NONE):
    evaluator = Evaluator(mpcc)
    values = evaluator(np.asarray(w, float), p)
    return evaluator, values


@pytest.mark.parametrize(
    ("a", "b", "scaled", "smaller"),
    [
        (0.0, 0.0, 0.0, 0.0),
        (0.0, 5.0, 0.0, 0.0),
        (0.5, 0.4, 0.2, 0.4),  # both below 1: the product itself
        (100.0, 1e-3, 1e-3, 1e-3),  # a large side does not blow the residual up
        (2.0, 3.0, 2.0, 2.0),  # 6 / 3
        (-2.0, 3.0, 2.0, 2.0),  # the sign does not hide a violation
        (-1e-9, -1e3, 1e-9, 1e3),
        (1e200, 1e200, np.inf, 1e200),
    ],
)
def test_complementarity_on_hand_numbers(program, a, b, scaled, smaller):
    evaluator, values = residuals(program(["a", "b"], lambda w: [(w[0], w[1])]), [a, b])
    assert evaluator.complementarity(values) == pytest.approx(scaled, rel=1e-14)
    assert evaluator.complementarity_min(values) == pytest.approx(smaller, rel=1e-14)


def test_the_largest_of_all_single_products_counts_whatever_the_aggregation():
    for aggregation in get_args(Aggregation):
        builder = ProgramBuilder()
        w = builder.variable("w", At(), ("a", "b", "c", "d"))
        left, right = builder.left.add(("a", "b"), w[:2], At()), builder.right.add(("c", "d"), w[2:], At())
        builder.group(left, right, summed=aggregation == "fe_fe")
        mpcc = builder.build(aggregation=aggregation, enforce_switched=False)
        evaluator, values = residuals(mpcc, [0.1, 0.2, 0.3, 0.4])
        assert evaluator.complementarity(values) == pytest.approx(0.08)
        assert evaluator.complementarity_min(values) == pytest.approx(0.2)


def test_no_pairs_no_residual(program):
    evaluator, values = residuals(program(["a"]), [3.0])
    assert (evaluator.complementarity(values), evaluator.complementarity_min(values)) == (0.0, 0.0)
    assert evaluator.infeasibility(values) == 0.0
    assert evaluator.worst(values) == ()


@pytest.mark.parametrize(
    ("w", "infeasibility", "kind", "name"),
    [
        ([1.0, 0.0], 0.0, None, None),
        ([1.0, 0.5], 0.5, "equation", "sum"),
        ([2.25, 0.0], 1.25, "equation", "sum"),
        ([-0.5, 1.5], 0.5, "bound", "x"),
        ([9.0, -8.0], 8.0, "bound", "H_0"),  # y has no bound of its own: it is the nonnegative quantity
        ([5.0, np.nan], np.inf, None, None),
    ],
)
def test_infeasibility_counts_bounds_equations_and_signs(program, w, infeasibility, kind, name):
    mpcc = program(
        ["x", "y"],
        lambda w: [(w[0] + 20, 1 * w[1] + 0 * w[0])],
        rows=lambda w: [("sum", w[0] + w[1], 1, 1)],
        lower=[0, -20],
        upper=[10, 20],
    )
    evaluator, values = residuals(mpcc, w)
    assert evaluator.infeasibility(values) == pytest.approx(infeasibility)
    found = [item for item in evaluator.worst(values) if item.kind != "complementarity"]
    if name is not None:
        assert (found[0].kind, found[0].value) == (kind, pytest.approx(infeasibility))
        assert name in {item.name for item in found if item.value == found[0].value}


def test_scales_do_not_change_residuals():
    def build(scale):
        builder = ProgramBuilder()
        w = builder.variable("w", At(), ("w",), 0, 1, 0.0, scale)
        builder.constraint("row", At(), 5 * w, None, 0, 0, scale)
        return builder.build(aggregation="fe_fe", enforce_switched=False)

    for scale in (1.0, 1e-3, 1e3):
        evaluator, values = residuals(build(scale), [0.25])
        assert evaluator.infeasibility(values) == 1.25


@pytest.mark.parametrize("enforce", [False, True])
def test_switched_equations_count_when_they_are_enforced(program, enforce):
    mpcc = program(
        ["a", "b", "s"],
        lambda w: [(w[0], w[1])],
        switched=lambda w: [("equal steps", w[2] - 1)],
        enforce_switched=enforce,
    )
    evaluator, values = residuals(mpcc, [2, 3, 1.5])
    assert float(evaluator.mpcc.indicator(values.G, values.H)) == pytest.approx(6.0)
    assert evaluator.infeasibility(values) == pytest.approx(3.0 if enforce else 0.0)
    assert ("equal steps" in {item.name for item in evaluator.worst(values)}) == enforce


def test_objective_and_penalty_are_kept_apart(program):
    mpcc = program(["x"], objective=lambda w: 2 * w[0], penalty=lambda w: 100 * w[0])
    _, values = residuals(mpcc, [3.0])
    assert (values.objective, values.penalty) == (6.0, 300.0)


def test_parameters_enter(program):
    mpcc = program(["x", "y"], lambda w: [(w[0] - w[2], w[1])], p=[1.0])
    evaluator, values = residuals(mpcc, [1.5, 0.5], np.array([1.25]))
    assert evaluator.complementarity(values) == 0.125


# NaN ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("w", [[np.nan, 0.0], [0.0, np.nan], [np.inf, 0.0], [-1.0, 1.0]])
def test_nan_is_infinitely_bad_everywhere(program, w):
    mpcc = program(["x", "y"], lambda w: [(ca.sqrt(w[0]), w[1])], rows=lambda w: [("root", ca.sqrt(w[0]), 0, 10)])
    evaluator, values = residuals(mpcc, w)
    assert evaluator.infeasibility(values) == np.inf
    assert evaluator.complementarity(values) == np.inf or w[1] == 0.0
    assert not evaluator.complementarity(values) <= 1e-8
    assert evaluator.worst(values)[0].value == np.inf


def test_nan_is_named_first_even_among_many(program):
    names = [f"x_{i}" for i in range(12)]
    mpcc = program(names, lambda w: [(ca.sqrt(w[i]), w[i + 1]) for i in range(11)])
    w = np.full(12, 2.0)
    w[7] = -1.0
    evaluator, values = residuals(mpcc, w)
    worst = evaluator.worst(values, 2)
    assert {item.name for item in worst} == {"G_7", "G_7 * H_7"}
    assert all(item.value == np.inf for item in worst)
    assert evaluator.complementarity_min(values) == np.inf


def test_distance_to_an_interval():
    value = np.array([-1.0, 0.5, 3.0, np.nan, np.inf, -np.inf])
    assert np.array_equal(outside(value, 0.0, 1.0), [1, 0, 2, np.inf, np.inf, np.inf])
    assert np.array_equal(outside(np.array([-7.0]), -np.inf, np.inf), [0])


# Names --------------------------------------------------------------------------------------------------------------


def test_the_worst_residuals_name_variable_and_place():
    builder = ProgramBuilder()
    x = builder.variable("x", At(3, 1, 0), ("v_x", "v_y"), -1, 1)
    f = builder.variable("lambda_normal", At(3, 1, 0), ("lambda_normal[ground]",), 0)
    builder.constraint("dynamics", At(2, 0, 1), ca.vertcat(x[0] - x[1]), ["v_x'"])
    left = builder.left.add(("gap[ground]",), x[0] + 1, At(3, 1, 0))
    right = builder.right.add(("lambda_normal[ground]",), f, At(3, 1, 1))
    builder.group(left, right)
    mpcc = builder.build(aggregation="fe_fe", enforce_switched=False)
    evaluator, values = residuals(mpcc, [0.0, 4.0, 0.5])
    worst = evaluator.worst(values)
    assert [str(item) for item in worst] == [
        "4.00e+00 equation v_x' (control stage 2, finite element 0, RK stage 1)",
        "3.00e+00 bound v_y (control stage 3, finite element 1, RK stage 0)",
        "5.00e-01 complementarity gap[ground] * lambda_normal[ground] (control stage 3, finite element 1, RK stage 1)",
    ]
    assert len(evaluator.worst(values, 1)) == 1
