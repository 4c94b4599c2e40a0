"""Kinks of costs and constraints: the signs that decide, the rows that replace them, and optima that lie in kinks."""

import math

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.reformulation.expression_graph import bounded
from nosnoc_py.reformulation.kinks import Epigraph, smooth_constraint

X, U, P, T = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("p"), ca.SX.sym("t")
RANGES = {**bounded(U, -1, 1), **bounded(X), **bounded(P, 0, np.inf, given=True), **bounded(T, given=True)}
# 1 m in 3 s from rest to rest with |u| <= 1: full thrust, coast, full brake. The speed w of the coast solves
# w (3 - w) = 1, and the fuel is 2 w.
FUEL = 3.0 - math.sqrt(5.0)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("cost", "slacks"),
    [
        (ca.fabs(U), 1),
        (2 * ca.fabs(U) + X[0] ** 2, 1),
        (-ca.fmin(X[0], X[1]), 1),
        (ca.fmax(U * X[1], 0), 1),  # the arguments need not be convex
        (P * ca.fabs(X[0]), 1),  # a parameter with a sign
        (ca.fabs(U) / (1 + X[0] ** 2), 1),
        (ca.norm_1(X), 2),
        (ca.norm_2(X), 1),
        (ca.fmax(ca.fabs(U) - 0.5, 0), 2),
        (ca.fabs(ca.fabs(U) + 0.5), 1),  # the outer one has no kink
        (ca.if_else(U > 0, U, -U), 1),
        (ca.if_else(U > 0, 2 * U, U), 1),
        (3 * ca.if_else(X[0] > 1, X[0] - 1, 0), 1),
    ],
)
def test_slacks_replace_kinks_and_keep_the_value(cost, slacks):
    kinks = Epigraph.of(cost, RANGES)
    assert kinks.size == slacks
    assert not kinks.left
    function = ca.Function("f", [X, U, P, kinks.slacks], [kinks.cost, kinks.rows])
    values = ca.Function("s", [X, U, P], [kinks.values, cost])
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, u, p = rng.standard_normal(2), rng.uniform(-1, 1), rng.uniform(0, 2)
        s, true = values(x, u, p)
        value, rows = function(x, u, p, s)
        assert float(value) == pytest.approx(float(true), rel=1e-12, abs=1e-12)
        assert np.array(rows).min() >= -1e-5  # roots have a small margin at zero
        # Every larger slack (or smaller, of a minimum) costs more, and every other one breaks a row.
        worse = function(x, u, p, s - 1e-2), function(x, u, p, s + 1e-2)
        assert any(float(np.array(rows).min()) < -1e-3 or float(value) > float(true) for value, rows in worse)


@pytest.mark.quick
@pytest.mark.parametrize(
    "cost",
    [
        -ca.fabs(U),
        ca.fmin(X[0], X[1]),
        X[1] * ca.fabs(X[0]),  # a factor of either sign
        ca.fabs(X[0]) - 2 * ca.fabs(X[0]),  # both directions
        ca.if_else(U > 0, U, 2 * U),  # a minimum
        ca.if_else(U > 0, 1, 0),  # a jump
        (1 - ca.fmax(X[0], X[1])) ** 2,
    ],
)
def test_kinks_in_the_wrong_direction_stay_and_are_named(cost):
    kinks = Epigraph.of(cost, RANGES)
    assert kinks.size == 0
    assert kinks.left


@pytest.mark.quick
@pytest.mark.parametrize(
    "cost",
    [
        X[0] ** 2 + U,
        ca.fmax(X[0], 0) ** 2,  # the square has a derivative
        ca.sqrt(ca.sumsqr(X) + 1e-3),
        ca.fabs(U + 2),  # never negative
        ca.fmax(U, 3),
        ca.fabs(T - 1) * X[0],  # a kink in time is no kink of a program
        ca.if_else(T < 1, X[0], X[1]),
    ],
)
def test_what_is_smooth_stays_as_it_is(cost):
    kinks = Epigraph.of(cost, RANGES)
    assert kinks.size == 0
    assert not kinks.left


@pytest.mark.quick
def test_rows_of_constraints_split():
    ocp = problem(U**2)
    x, u = ocp.system.x, ocp.system.u
    split = smooth_constraint(ns.Constraint(ca.fmax(ca.fabs(x[0]), u), upper=2.0, name="both"), ocp)
    assert split.expression.numel() == 3
    at = ca.Function("f", [x, u], [split.expression])
    assert float(ca.mmax(at([-5.0, 0.0], 1.0))) == pytest.approx(5.0)
    lower = smooth_constraint(ns.Constraint(ca.fmin(x[0], x[1]), lower=1.0), ocp)
    np.testing.assert_array_equal(lower.lower, [1.0, 1.0])
    outside = ns.Constraint(ca.fabs(x[0]), lower=1.0)  # two regions
    assert smooth_constraint(outside, ocp).expression.numel() == 1


def problem(cost=None, **fields):
    """1 m in 3 s, from rest to rest."""
    cost = ca.fabs(U) if cost is None else cost
    system = ns.ODE(x=X, u=U, flow=ca.vertcat(X[1], U))
    end = [X[0] == 1, X[1] == 0]
    given = {"horizon": 3.0, "x0": [0, 0], "terminal_constraints": end, "bounds": ns.Bounds(u=(-1, 1)), **fields}
    return ns.OCP(system, stage_cost=cost, **given)


@pytest.mark.parametrize("method", [None, ns.FESD(control_stages=30, finite_elements=1), ns.MultiPhase()])
def test_least_fuel(method):
    """Before, no start of the plain call converged: the gradient of |u| has no zero where u is zero."""
    solution = ns.solve(problem(), *([] if method is None else [method]))
    assert solution.success, solution.message
    assert solution.certificate.verdict is ns.Verdict.CONFIRMED
    assert solution.objective == pytest.approx(FUEL, rel=1e-2 if isinstance(method, ns.MultiPhase) else 6e-3)
    fuel = float(np.abs(solution.u[:, 0]) @ np.diff(solution.u_grid))
    assert solution.objective == pytest.approx(fuel, rel=1e-12)  # of the user's cost, without slacks
    assert solution.control_names == ("u_0",)
    assert not [name for name in (*solution.series, *solution.multipliers) if "slack" in name or "kink" in name]


def test_the_same_fuel_by_a_branch_and_in_the_plane():
    branch = ns.solve(problem(ca.if_else(U > 0, U, -U)), ns.MultiPhase())
    assert branch.success
    assert branch.objective == pytest.approx(FUEL, rel=1e-2)
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u", 2)
    plane = ns.ODE(x=x, u=u, flow=ca.vertcat(x[2:], u))
    ocp = ns.OCP(
        plane, horizon=3.0, x0=[0] * 4, stage_cost=ca.norm_2(u), path_constraints=[ca.norm_2(u) <= 1],
        terminal_constraints=[x == ca.DM([0.6, 0.8, 0, 0])],
    )  # fmt: skip
    solution = ns.solve(ocp, ns.MultiPhase(), guess=[0.1, 0.1])
    assert solution.success, solution.message
    assert solution.objective == pytest.approx(FUEL, rel=1e-2)
    assert np.abs(solution.u).min(axis=0).max() < 1e-4  # it coasts: the norm is zero there


def test_mechanical_power_and_the_terminal_cost_of_a_contact_problem():
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    ground = ns.Contact("ground", gap=q, restitution=0.8)
    ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ground])
    cost = ca.fmax(u * v, 0) + 1e-3 * u**2
    ocp = ns.OCP(
        ball, horizon=1.0, x0=[1, 0], stage_cost=cost, terminal_cost=10 * ca.fabs(q - 0.7), bounds={"u_0": (-20, 20)}
    )
    solution = ns.solve(ocp, ns.MultiPhase(sequence=ns.Sequence([{}, "impact ground", {}], [0.45])), guess=[0.0])
    assert solution.success, solution.message
    assert solution.certificate.verdict is ns.Verdict.CONFIRMED
    assert solution.certificate.true_objective == pytest.approx(solution.objective, rel=1e-5)
    # The price of a miss is above that of reaching the height: an exact penalty.
    assert solution.x[-1, 0] == pytest.approx(0.7, abs=1e-6)


def test_a_warning_names_the_row_and_what_to_write():
    with pytest.warns(ns.ModelWarning, match=r"stage_cost has a kink or a jump, fabs\(u\).*ca\.sqrt"):
        ns.solve(problem(U**2 - 0.1 * ca.fabs(U)), ns.FESD(control_stages=2), certify=False)
    outside = [ns.Constraint(ca.fabs(X[0] - 0.5), lower=0.1, name="ring")]
    with pytest.warns(ns.ModelWarning, match=r"ring has a kink or a jump.*a\*\*2 >= 1"):
        ns.solve(problem(U**2, path_constraints=outside), ns.FESD(control_stages=2), certify=False)
