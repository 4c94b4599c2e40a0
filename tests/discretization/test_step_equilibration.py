"""Step equilibration: the switching logic of Table 1 (FESD-J), products over contacts, penalties, step bounds."""

from dataclasses import replace
from itertools import product
from math import inf, tanh

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.discretization.cross_complementarity import PairRows
from nosnoc_py.discretization.step_equilibration import (
    PENALTIES,
    EquilibratedElement,
    equilibrate,
    indicator,
    step_bounds,
)
from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.program import ProgramBuilder
from nosnoc_py.reformulation.contact import contact_dcs
from nosnoc_py.reformulation.dcs import And, Leaf, Or

pytestmark = pytest.mark.quick

# Two elements of two stages that share the node t_n: gaps in G, forces in H.
#   G: left end of the first element, its stage, node, stage of the second element, its right end
BEFORE = PairRows(np.array([0]), np.array([[1], [2]]), np.array([[0], [1]]))
AFTER = PairRows(np.array([2]), np.array([[3], [4]]), np.array([[2], [3]]))

CASES = {  # gaps, forces, sums and products of Table 1: f(q_n0), f B, f F, lambda B, lambda F, pi f, pi lambda, kappa
    "contact making, elastic": ([3, 2, 0, 1, 2], [0, 0, 0, 0], (0, 1, 1, 0, 0, 0, 0, 0)),
    "contact making, inelastic": ([3, 2, 0, 0, 0], [0, 0, 9, 8], (0, 1, 0, 0, 1, 0, 0, 0)),
    "contact breaking": ([0, 0, 0, 1, 2], [9, 8, 0, 0], (0, 0, 1, 1, 0, 0, 0, 0)),
    "free flight": ([3, 2, 1, 2, 3], [0, 0, 0, 0], (1, 1, 1, 0, 0, 1, 0, 1)),
    "persistent contact": ([0, 0, 0, 0, 0], [9, 8, 7, 6], (0, 0, 0, 1, 1, 0, 1, 1)),
}


def value(tree, G, H, before=BEFORE, after=AFTER):
    g, h = ca.SX.sym("G", len(G)), ca.SX.sym("H", len(H))
    tree_value = indicator(tree, {"contact": before}, {"contact": after}, g, h)
    return float(ca.Function("eta", [g, h], [tree_value])(G, H))


def dcs(contacts):
    n_q = max(contacts, 1)
    q, v = ca.SX.sym("q", n_q), ca.SX.sym("v", n_q)
    pairs = [ns.Contact(f"c{i}", gap=q[i]) for i in range(contacts)]
    return contact_dcs(ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(n_q), force=[0.0] * n_q, contacts=pairs))


@pytest.mark.parametrize("case", CASES)
def test_table_1(case):
    gaps, forces, expected = CASES[case]
    leaves = [("node", "a"), ("backward", "a"), ("forward", "a"), ("backward", "b"), ("forward", "b")]
    parts = [Leaf(over, "contact", side, 0) for over, side in leaves]
    tree = dcs(1).indicator
    columns = [*parts, And(tuple(parts[:3])), And(tuple(parts[3:])), tree]
    found = tuple(int(value(column, gaps, forces) > 0) for column in columns)
    assert found == expected
    numbers = tuple(value(part, gaps, forces) for part in parts)
    assert numbers == (gaps[2], sum(gaps[:3]), sum(gaps[2:]), sum(forces[:2]), sum(forces[2:]))
    assert value(tree, gaps, forces) == numbers[0] * numbers[1] * numbers[2] + numbers[3] * numbers[4]  # Eq. 28


def test_without_the_node_elastic_impacts_would_be_missed():
    """The negative control: sums alone see free flight on both sides."""
    gaps, forces, _ = CASES["contact making, elastic"]
    sums = And((Leaf("backward", "contact", "a", 0), Leaf("forward", "contact", "a", 0)))
    assert value(sums, gaps, forces) > 0
    assert value(dcs(1).indicator, gaps, forces) == 0


@pytest.mark.parametrize(("first", "second"), list(product(CASES, repeat=2)))
def test_a_switch_of_one_contact_is_a_switch(first, second):
    gaps = np.stack([CASES[first][0], CASES[second][0]], axis=1).ravel()
    forces = np.stack([CASES[first][1], CASES[second][1]], axis=1).ravel()
    before = PairRows(np.array([0, 1]), np.array([[2, 3], [4, 5]]), np.array([[0, 1], [2, 3]]))
    after = PairRows(np.array([4, 5]), np.array([[6, 7], [8, 9]]), np.array([[4, 5], [6, 7]]))
    no_switch = value(dcs(2).indicator, gaps, forces, before, after) > 0
    assert no_switch == bool(CASES[first][2][-1] and CASES[second][2][-1])


def test_and_is_a_product_and_or_a_sum():
    a, b = Leaf("node", "contact", "a", 0), Leaf("forward", "contact", "b", 0)
    values = ([0, 0, 5, 0, 0], [0, 0, 3, 4])
    assert value(And((a, b)), *values) == 35
    assert value(Or((a, b)), *values) == 12
    assert value(And(()), *values) == 1  # nothing that could switch: no switch
    assert value(Or(()), *values) == 0


def test_without_contacts_no_node_is_a_switch():
    assert value(dcs(0).indicator, [0] * 5, [0] * 4) == 1


# What is added to the program ---------------------------------------------------------------------------------------


def equilibrated(mode, s, G, H, **options):
    builder = ProgramBuilder()
    lengths = builder.variable("s", At(), ("s_0", "s_1"))
    a = builder.variable("a", At(), tuple(f"a_{i}" for i in range(5)))
    b = builder.variable("b", At(), tuple(f"b_{i}" for i in range(4)))
    builder.left.add(tuple(f"a_{i}" for i in range(5)), a, At())
    builder.right.add(tuple(f"b_{i}" for i in range(4)), b, At())
    steps = [EquilibratedElement(At(0, n), lengths[n], {"contact": rows}) for n, rows in enumerate((BEFORE, AFTER))]
    equilibrate(builder, steps, dcs(1).indicator, ns.FESDJ(step_equilibration=mode, **options))
    mpcc = builder.build(aggregation="fe_fe", enforce_switched=mode == "direct")
    penalty = ca.Function("penalty", [mpcc.w], [mpcc.penalty])(np.r_[s, G, H, np.zeros(mpcc.w.numel() - 11)])
    return mpcc, float(penalty)


@pytest.mark.parametrize(
    ("mode", "free", "switch"),
    [
        ("heuristic_mean", 0.5, 0.5),  # (1.5 - 1)^2 + (.5 - 1)^2
        ("heuristic_difference", 1.0, 1.0),  # (1.5 - .5)^2
        ("l2_relaxed", tanh(36.0), 0.0),
        ("direct", 0.0, 0.0),
        ("none", 0.0, 0.0),
    ],
)
def test_penalties(mode, free, switch):
    weight = {"equilibration_weight": 0.25, "equilibration_epsilon": 1.0}
    for case, expected in (("free flight", free), ("contact breaking", switch)):
        _, penalty = equilibrated(mode, [1.5, 0.5], *CASES[case][:2], **weight)
        assert penalty == pytest.approx(0.25 * expected, abs=1e-15)
    assert equilibrated(mode, [1.0, 1.0], *CASES["free flight"][:2], **weight)[1] == 0.0


@pytest.mark.parametrize("mode", PENALTIES)
def test_every_mode_hands_over_the_exact_equations(mode):
    mpcc, _ = equilibrated(mode, [1, 1], [1] * 5, [0] * 4, equilibration_epsilon=100.0)
    assert mpcc.switched.label(0) == ("step_equilibration", "control stage 0, finite element 1")
    residual = ca.Function("r", [mpcc.w], [mpcc.r])(np.r_[1.25, 0.75, np.zeros(9)])
    assert float(residual) == -0.5
    gaps, forces, _ = CASES["free flight"]
    assert float(mpcc.indicator(gaps, forces)) == pytest.approx(tanh(36.0 / 100.0))
    assert mpcc.enforce_switched == (mode == "direct")


@pytest.mark.parametrize(
    ("options", "default", "bounds"),
    [
        ({}, 0.9, (0.1, 1.9)),
        ({"gamma_h": 0.5}, 0.9, (0.5, 1.5)),
        ({"gamma_h": 1.0}, 0.9, (0.0, inf)),
        ({"gamma_h": 0.0}, 0.9, (1.0, 1.0)),
        ({"switch_detection": False, "gamma_h": 0.5}, 0.9, (1.0, 1.0)),
    ],
)
def test_step_bounds(options, default, bounds):
    assert step_bounds(ns.FESDJ(**options), default) == pytest.approx(bounds)


# Linear complementarities -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_linear_complementarities_say_where_steps_are_equal(case):
    """The equations have a solution with unequal steps exactly where something switches."""
    gaps, forces, expected = CASES[case]
    mpcc, _ = equilibrated("linear_complementarity", [1, 1], gaps, forces)
    assert mpcc.r.numel() == 0
    assert mpcc.penalty.is_constant()
    w = mpcc.w0.copy()
    given = np.r_[1.25, 0.75, gaps, forces]
    lower, upper = mpcc.lbw.copy(), mpcc.ubw.copy()
    lower[: given.size] = upper[: given.size] = w[: given.size] = given
    state = ns.Homotopy(sigma_min=1e-12).run(replace(mpcc, lbw=lower, ubw=upper), w, mpcc.p0)
    assert (state.status is ns.Status.SOLVED) == (expected[-1] == 0)
