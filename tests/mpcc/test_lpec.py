"""The LPEC: closed forms, brute force over all branches, and the ways in which a solver's tolerances could lie."""

import itertools
import time
from dataclasses import dataclass, replace

import casadi as ca
import numpy as np
import pytest
import scipy.optimize
from scipy.optimize import linprog

from nosnoc_py.mpcc import lpec
from nosnoc_py.mpcc.linearization import Linearizer, local_program
from nosnoc_py.mpcc.lpec import Groups, LPECResult, decide_groups, imposed_equations, local_lpec
from nosnoc_py.mpcc.program import MPCC, Group
from nosnoc_py.mpcc.stationarity import certify
from tests.mpcc import literature
from tests.pairwise import slow_but


@dataclass
class Solved:
    """An `LPECResult`, its zero rows by side."""

    result: LPECResult
    zero_G: np.ndarray
    zero_H: np.ndarray

    def __getattr__(self, name):
        return getattr(self.result, name)


def solve(mpcc, w, *, radius=1e-3, tolerance=1e-8, descent=1e-6, held=None, time_limit=1e9):
    """The LPEC at w; slopes above -descent max(1, |grad f|) do not count as descent."""
    w = np.array(w, float)
    at, deadline = Linearizer(mpcc)(w, mpcc.p0), time.monotonic() + time_limit
    held = imposed_equations(mpcc, at, tolerance) if held is None else held
    program = local_program(mpcc, at, w, radius=radius, tolerance=tolerance, held=held)
    choice = decide_groups(Groups(mpcc, at), program, at)
    found = local_lpec(at, program, choice, radius, -descent * program.scale, deadline)
    return Solved(found, found.zero[at.block(1)], found.zero[at.block(2)])


def grouped(w, G, H, groups, **fields):
    """An MPCC with groups of any size; groups = [(left rows, right rows), ...]."""
    base = MPCC.of_pairs(w=w, G=ca.SX(0, 1), H=ca.SX(0, 1), **fields)
    made = tuple(Group(np.array(left), np.array(right)) for left, right in groups)
    return replace(base, G=G, H=H, groups=made)


def test_the_linearisation_against_differences(program):
    mpcc = program(
        ["x", "y", "z"],
        lambda w: [(w[0] * w[1], w[2] ** 2), (w[1], ca.sin(w[0]))],
        lambda w: w[0] ** 3 * w[2],
        rows=lambda w: [("g", w[0] * w[1] * w[2], 0, 1)],
        penalty=lambda w: 1e6 * w[0],
        p=[2.0],
        switched=lambda w: [("r", w[3] * w[0] - w[1])],
    )
    linearize, w, step = Linearizer(mpcc), np.array([0.3, 0.5, 0.7]), 1e-6
    at = linearize(w, mpcc.p0)
    assert at.f == pytest.approx(0.027 * 0.7, abs=1e-15)  # without the penalty
    np.testing.assert_allclose(at.r, [0.1], atol=1e-15)
    for i in range(3):
        e = step * np.eye(3)[i]
        up, down = linearize(w + e, mpcc.p0), linearize(w - e, mpcc.p0)
        assert at.grad[i] == pytest.approx((up.f - down.f) / (2 * step), abs=1e-9)
        for name, jacobian in zip("gGHr", (at.jacobian[at.block(k)] for k in range(4)), strict=True):
            column = (getattr(up, name) - getattr(down, name)) / (2 * step)
            np.testing.assert_allclose(jacobian.toarray()[:, i], column, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "w", "slope", "step"),
    [
        ("two_corners", (0.5, 0), -1.0, (1, 0)),
        ("kth3", (0, 0), -2.0, (0, 1)),  # the steeper of two branches
        ("scale1", (0, 0), -200.0, (1, 0)),
        ("saddle", (0, 0), -2.0, (1, 0)),
        ("jr1", (0, 0), -2.0, (1, 1)),
        ("jr2", (0, 0), -2.0, (1, 1)),
        ("scholtes4", (1, 0, 0), -1.0, (-1, 0, 0)),
        ("kth1", (0, 0), 0.0, (0, 0)),
        ("scholtes4", (0, 0, 0), 0.0, (0, 0, 0)),
    ],
)
@pytest.mark.parametrize("radius", [1e-3, 1e-2])
def test_value_and_direction_in_closed_form(name, w, slope, step, radius):
    answer = solve(literature.case(name).mpcc, w, radius=radius)
    assert answer.status == "optimal"
    assert answer.value == pytest.approx(slope, abs=1e-9)
    np.testing.assert_allclose(answer.d, radius * np.array(step, float), atol=1e-9 * radius)
    assert answer.stationary is (slope == 0.0)


def test_the_branch_follows_the_direction():
    answer = solve(literature.case("kth3").mpcc, (0, 0))
    assert answer.zero_G.tolist() == [True]
    assert answer.zero_H.tolist() == [False]
    answer = solve(literature.case("scale1").mpcc, (0, 0))
    assert (answer.zero_G.tolist(), answer.zero_H.tolist()) == ([False], [True])


def random_lpec(seed):
    """Rows through the origin of R^n; costs that are S, B only, or descend; groups of several rows, some shared."""
    rng = np.random.default_rng(seed)
    n, count, n_g = rng.integers(3, 8), rng.integers(1, 6), rng.integers(0, 4)
    left, right = (np.cumsum([0, *rng.integers(1, 3, count)]) for _ in range(2))
    groups = [(list(range(*left[k : k + 2])), list(range(*right[k : k + 2]))) for k in range(count)]
    if seed % 3 == 0 and count > 1:
        groups[0][0].append(int(left[1]))
    A = [rng.integers(-2, 3, (m, n)).astype(float) for m in (n_g, left[-1], right[-1])]
    size = 10.0 ** rng.integers(0, 5)
    nu_G, nu_H = rng.uniform(0, size, left[-1]), rng.uniform(-0.2 * size * (seed % 2), size, right[-1])
    cost = rng.normal(size=n) if seed % 5 == 0 else A[1].T @ nu_G + A[2].T @ nu_H
    w = ca.SX.sym("w", int(n))
    rows = [ca.mtimes(ca.DM(block), w) for block in A]
    fields = {"objective": ca.dot(ca.DM(cost), w), "g": rows[0], "lbg": -np.inf, "ubg": 0.0}
    return grouped(w, rows[1], rows[2], groups, **fields), A, cost


def brute_force(mpcc, A, cost, scale):
    """The smallest value over all branches."""
    matrix, n_g, n_G = np.vstack(A) * scale, len(A[0]), len(A[1])
    values = []
    for sides in itertools.product((0, 1), repeat=len(mpcc.groups)):
        chosen = [g.left + n_g if s else g.right + n_g + n_G for g, s in zip(mpcc.groups, sides, strict=True)]
        zero = np.unique(np.concatenate(chosen))
        above = np.setdiff1d(np.arange(n_g, len(matrix)), zero)
        inequalities = np.vstack([matrix[:n_g], -matrix[above]])
        answer = linprog(
            cost * scale,
            inequalities,
            np.zeros(len(inequalities)),
            matrix[zero],
            np.zeros(zero.size),
            bounds=(-1, 1),
            method="highs",
        )
        assert answer.status == 0
        values.append(answer.fun)
    return min(0.0, *values)


@pytest.mark.parametrize("batch", slow_but(range(3), range(6)))
def test_agrees_with_brute_force_over_all_branches(batch):
    for seed in range(15 * batch, 15 * batch + 15):
        mpcc, A, cost = random_lpec(seed)
        scale = np.ones(cost.size) if seed % 4 else 10.0 ** np.random.default_rng(seed).uniform(-2, 2, cost.size)
        mpcc = replace(mpcc, w_scale=scale)
        expected, answer = brute_force(mpcc, A, cost, scale), solve(mpcc, np.zeros(cost.size))
        size = max(1.0, np.abs(cost * scale).max())
        assert answer.value == pytest.approx(expected, abs=1e-8 * size)
        assert answer.stationary == (expected >= -1e-6 * size)
        check_step(mpcc, answer, A, cost, scale)


def check_step(mpcc, answer, A, cost, scale):
    """The step has the slope, is feasible to first order, and lies in the branch it names."""
    if answer.stationary:
        assert not answer.d.any()
    else:
        e = answer.d / 1e-3
        assert cost @ e == pytest.approx(answer.value, rel=1e-9)
        assert np.abs(e / scale).max() <= 1 + 1e-9
        g, G, H = (block @ e / np.abs(scale).max() for block in A)
        assert max(g.max(initial=0), -G.min(), -H.min()) <= 1e-8
        assert max(np.abs(G[answer.zero_G]).max(initial=0), np.abs(H[answer.zero_H]).max(initial=0)) <= 1e-8
    for group in mpcc.groups:
        assert answer.zero_G[group.left].all() or answer.zero_H[group.right].all()


def test_some_random_ones_are_b_stationary_but_not_s():
    kinds = [
        (a.stationary, a.dual is None) for a in (solve(m, np.zeros(c.size)) for m, _, c in map(random_lpec, range(90)))
    ]
    assert kinds.count((True, True)) >= 3
    assert kinds.count((True, False)) >= 30
    assert kinds.count((False, True)) >= 5


@pytest.mark.parametrize("steepness", [4.0, 1e2, 1e4, 1e6])
def test_large_multipliers_do_not_fake_descent(steepness):
    """scholtes4 with another number: multipliers as large as this number, and still B-stationary."""
    z = ca.SX.sym("z", 3)
    g = ca.vertcat(z[2] - steepness * z[0], z[2] - steepness * z[1])
    fields = {"w": z, "G": z[0], "H": z[1], "g": g, "lbg": -np.inf, "ubg": 0.0}
    assert solve(MPCC.of_pairs(objective=z[0] + z[1] - z[2], **fields), (0, 0, 0)).stationary is True
    descending = solve(MPCC.of_pairs(objective=z[0] - 1e-3 * z[1] - z[2], **fields), (0, 0, 0))
    assert descending.value == pytest.approx(-1e-3, rel=1e-9)


def test_the_search_decides_where_the_mixed_integer_program_may_not(monkeypatch):
    """It alone gives the verdicts of brute force, with a mixed-integer program that lies."""
    monkeypatch.setattr(lpec, "_mixed", lambda program, choice, deadline: (choice.guess, -np.inf, "optimal"))
    for seed in range(30):
        mpcc, A, cost = random_lpec(seed)
        size = max(1.0, np.abs(cost).max())
        expected = brute_force(mpcc, A, cost, np.ones(cost.size))
        assert solve(mpcc, np.zeros(cost.size)).stationary == (expected >= -1e-6 * size)


def test_weak_duality_bounds_the_value_for_any_multipliers():
    rng = np.random.default_rng(0)
    for seed in range(10):
        mpcc, _, cost = random_lpec(seed)
        w = np.zeros(cost.size)
        at = Linearizer(mpcc)(w, mpcc.p0)
        local = local_program(mpcc, at, w, radius=1e-3, tolerance=1e-8, held=np.zeros(0, bool))
        answer = local.solve()
        assert answer.bound == pytest.approx(answer.value, abs=1e-9 * local.scale)
        for _ in range(20):
            dual = answer.dual + rng.normal(size=answer.dual.size)
            assert local.weak_duality(dual)[1] <= answer.value + 1e-9 * local.scale


@pytest.mark.parametrize(("slack", "slope"), [(0.0, 0.0), (5e-9, 0.0), (-5e-9, 0.0), (1e-6, -1e-3), (1e-4, -0.1)])
def test_what_an_interior_point_method_leaves_is_not_descent(slack, slope):
    """min x over x >= 0, written as bound, as constraint, and as a row of G, from x = slack."""
    x = ca.SX.sym("x", 2)
    none = {"G": x[:0], "H": x[:0]}
    for fields in (
        {"lbw": [0, -np.inf], **none},
        {"g": x[0], "lbg": 0.0, "ubg": np.inf, **none},
        {"G": x[0], "H": x[1]},
    ):
        mpcc = MPCC.of_pairs(w=x, objective=x[0], **fields)
        assert solve(mpcc, (slack, 0.0)).value == pytest.approx(slope, abs=1e-12)


def test_noise_in_a_row_does_not_ask_for_huge_multipliers():
    """Two equations that are the same but for 1e-11: with this coefficient y were held, with multipliers of 1e11."""
    x = ca.SX.sym("x", 2)
    for noise, slope in ((0.0, -1.0), (1e-11, -1.0), (1e-3, 0.0)):
        g = ca.vertcat(x[0], x[0] + noise * x[1])
        mpcc = MPCC.of_pairs(w=x, G=x[:0], H=x[:0], objective=x[1], g=g)
        assert solve(mpcc, (0, 0)).value == pytest.approx(slope, abs=1e-9)


def test_an_equation_that_is_not_quite_met_keeps_every_direction_along_it():
    x = ca.SX.sym("x", 2)
    mpcc = MPCC.of_pairs(w=x, G=x[:0], H=x[:0], objective=x[0] + 3 * x[1], g=x[0] + x[1])
    answer = solve(mpcc, (0.0, 1e-7))
    assert answer.value == pytest.approx(-2.0, abs=1e-9)
    assert answer.d.sum() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("w", "radius", "zero_G", "value"),
    [
        ((0.1, 0.2), 0.3, True, -1.0),  # to (0, 0.5): (1.8 * 0.1 - 1.6 * 0.3) / 0.3
        ((0.2, 0.1), 0.3, False, -1.0),
        ((0.1, 5.0), 0.3, True, None),  # only x can reach zero
        ((5.0, 0.1), 0.3, False, None),
    ],
)
def test_the_guess_of_a_branch_at_a_relaxed_point(w, radius, zero_G, value):
    answer = solve(literature.case("two_corners").mpcc, w, radius=radius)
    assert (answer.zero_G.tolist(), answer.zero_H.tolist()) == ([zero_G], [not zero_G])
    np.testing.assert_allclose((np.array(w) + answer.d)[0 if zero_G else 1], 0.0, atol=1e-9)
    if value is not None:
        assert answer.value == pytest.approx(value, abs=1e-9)
    assert answer.dual is None


def test_a_relaxed_point_without_branch_in_reach():
    answer = solve(literature.case("two_corners").mpcc, (0.2, 0.3), radius=1e-3)
    assert (answer.zero_G.tolist(), answer.zero_H.tolist()) == ([True], [False])  # the smaller side
    x = ca.SX.sym("x", 2)
    stuck = MPCC.of_pairs(w=x, G=x[0], H=x[1], objective=x[0], g=x[0] - x[1])  # x = y: only both together
    answer = solve(replace(stuck, groups=(Group(np.array([0]), np.array([0])),)), (0.2, 0.2), radius=0.1)
    assert answer.zero_H.tolist() == [True]
    blocked = MPCC.of_pairs(w=x, G=x[0], H=x[1], objective=x[0], g=x[0], lbg=0.1, ubg=0.1)
    answer = solve(blocked, (0.1, 5.0), radius=0.2)
    assert answer.status == "infeasible"
    assert answer.stationary is None


def test_a_group_forces_all_rows_of_the_other_side():
    w = ca.SX.sym("w", 4)
    mpcc = grouped(w, w[:2], w[2:], [([0, 1], [0, 1])], objective=-ca.sum1(w))
    assert solve(mpcc, (1, 0, 0, 0)).zero_H.all()
    assert solve(mpcc, (1, 0, 0, 0)).value == pytest.approx(-2.0, abs=1e-9)
    assert solve(mpcc, (0, 0, 0, 1)).zero_G.all()
    assert solve(mpcc, (0, 0, 0, 0)).value == pytest.approx(-2.0, abs=1e-9)
    at = Linearizer(mpcc)(np.zeros(4), mpcc.p0)
    local = local_program(mpcc, at, np.zeros(4), radius=1e-3, tolerance=1e-8, held=np.zeros(0, bool))
    choice = decide_groups(Groups(mpcc, at), local, at)
    assert choice.open.tolist() == choice.biactive.tolist() == [True]


def test_held_switched_equations_are_equations(program):
    fields = {"objective": lambda w: -w[2], "switched": lambda w: [("r", w[2] - w[0])], "lower": [0, 0, -np.inf]}
    mpcc = program(["x", "y", "z"], lambda w: [(w[0], w[1])], **fields)
    w = (0.0, 1.0, 0.0)
    assert solve(mpcc, w).value == pytest.approx(-1.0, abs=1e-9)  # not imposed
    assert solve(mpcc, w, held=np.array([True])).value == pytest.approx(0.0, abs=1e-12)
    enforced = program(["x", "y", "z"], lambda w: [(w[0], w[1])], enforce_switched=True, **fields)
    assert solve(enforced, w).value == pytest.approx(-1.0, abs=1e-9)  # its indicator x y is zero


def test_a_constant_objective_needs_no_solver(monkeypatch):
    def fail(*_, **__):
        raise AssertionError("a solver was called")

    monkeypatch.setattr(scipy.optimize, "linprog", fail)
    monkeypatch.setattr(scipy.optimize, "milp", fail)
    x = ca.SX.sym("x", 2)
    mpcc = MPCC.of_pairs(w=x, G=x[0], H=x[1], objective=3.0)
    answer = solve(mpcc, (0, 0))
    assert (answer.value, answer.stationary) == (0.0, True)
    with pytest.raises(AssertionError, match="solver"):
        solve(literature.case("kth1").mpcc, (0, 0))


def test_no_verdict_where_there_is_none(monkeypatch):
    x = ca.SX.sym("x", 2)
    mpcc = MPCC.of_pairs(w=x, G=x[0], H=x[1], objective=ca.sqrt(x[0]))
    found = certify(mpcc, Linearizer(mpcc)(np.zeros(2), mpcc.p0), np.zeros(2))  # an infinite gradient
    assert (found.b_stationary, found.lpec) == (None, None)
    monkeypatch.setattr(lpec, "_mixed", lambda *_: (None, -np.inf, "time limit"))
    answer = solve(literature.case("scholtes4").mpcc, (0, 0, 0), time_limit=0.0)
    assert (answer.status, answer.stationary) == ("time limit", None)
