"""Certificates: the kinds of points of the literature, of groups, and what must not be certified."""

from dataclasses import fields, replace

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.errors import TranscriptionError
from nosnoc_py.mpcc import stationarity
from nosnoc_py.mpcc.linearization import Linearizer
from nosnoc_py.mpcc.program import MPCC, Group
from nosnoc_py.mpcc.residuals import Evaluator
from nosnoc_py.mpcc.stationarity import Multipliers, certify
from nosnoc_py.status import Stationarity
from tests.mpcc import literature
from tests.mpcc.literature import CASES, UNKNOWN, B, C, M, S, W

POINTS = [(case, point) for case in CASES for point in (*case.solutions, *case.points)]


def certificate(mpcc, w, **options):
    w = np.array(w, float)
    return certify(mpcc, Linearizer(mpcc)(w, mpcc.p0), w, **options)


def lagrangian_gradient(mpcc, w, y):
    """grad f + J_g'lambda_g + lambda_w - J_G'nu_G - J_H'nu_H + J_r'lambda_r."""
    at = Linearizer(mpcc)(np.array(w, float), mpcc.p0)
    return at.grad + y.w + at.jacobian.T @ np.concatenate([y.g, -y.G, -y.H, y.r])


@pytest.mark.parametrize(("case", "point"), POINTS, ids=str)
@pytest.mark.parametrize("scaled", [False, True])
def test_kinds_of_the_literature(case, point, scaled):
    mpcc = case.mpcc
    if scaled:
        scale = 10.0 ** np.random.default_rng(1).uniform(-1.0, 1.0, mpcc.w0.size)
        mpcc = replace(mpcc, w_scale=scale, g_scale=np.full(mpcc.lbg.size, 7.0))
    found = certificate(mpcc, point.w)
    assert found.stationarity is point.kind
    assert found.b_stationary is (point.kind in (S, B))
    assert (found.lpec_value >= -1e-9) == (point.kind in (S, B))
    if point.kind is UNKNOWN:
        assert found.residual > 1e-3
    else:
        assert found.residual <= 1e-9
        np.testing.assert_allclose(lagrangian_gradient(mpcc, point.w, found.multipliers), 0.0, atol=1e-7)
    if not found.b_stationary:
        assert found.lpec.d @ Linearizer(mpcc)(np.array(point.w, float), mpcc.p0).grad < 0


@pytest.mark.parametrize(("case", "point"), POINTS, ids=str)
def test_literature_points_are_feasible_and_their_objectives_right(case, point):
    evaluator = Evaluator(case.mpcc)
    values = evaluator(np.array(point.w, float), case.mpcc.p0)
    assert values.objective == pytest.approx(point.objective, abs=1e-12)
    assert evaluator.infeasibility(values) <= 1e-12
    assert evaluator.complementarity_min(values) <= 1e-12


@pytest.mark.parametrize("case", [case for case in CASES if case.starts is literature.PLANE], ids=str)
def test_the_best_solution_in_the_plane_is_the_best_on_a_grid(case):
    evaluator, t = Evaluator(case.mpcc), np.linspace(-4.0, 4.0, 1601)
    rays = [(t, 0 * t), (0 * t, t), (t, t)]
    grid = [evaluator(np.array(w), case.mpcc.p0) for w in np.hstack(rays).T]
    feasible = [v for v in grid if max(evaluator.infeasibility(v), evaluator.complementarity_min(v)) <= 1e-12]
    assert len(feasible) >= 1000
    assert min(v.objective for v in feasible) == pytest.approx(case.objective, abs=1e-9)


def grouped(w, G, H, groups, **fields):
    """An MPCC with groups of any size; groups = [(left rows, right rows), ...]."""
    base = MPCC.of_pairs(w=w, G=ca.SX(0, 1), H=ca.SX(0, 1), **fields)
    made = tuple(Group(np.array(left), np.array(right)) for left, right in groups)
    return replace(base, G=G, H=H, groups=made)


@pytest.mark.parametrize(
    ("nu_left", "nu_right", "kind"),
    [
        ((1, 1), (1, 1), S),
        ((0, 1), (0, 0), S),
        ((0, 1), (-1, -1), M),  # next to it a point with the first left row positive: the second one is zero, nu >= 0
        ((0, 0), (-1, 2), M),
        ((1, 1), (-1, 1), W),
        ((-1, 1), (1, 1), W),
        ((-1, 1), (0, 5), M),
        ((-1, 2), (-1, 3), C),
        ((-1, -1), (-1, -1), C),
    ],
)
def test_kinds_of_a_group_of_two_and_two(nu_left, nu_right, kind):
    """grad f = nu at the origin of 0 <= left ⊥ right >= 0, every product."""
    w = ca.SX.sym("w", 4)
    cost = np.array([*nu_left, *nu_right], float)
    mpcc = grouped(w, w[:2], w[2:], [([0, 1], [0, 1])], objective=ca.dot(ca.DM(cost), w))
    found = certificate(mpcc, np.zeros(4))
    assert found.stationarity is kind
    assert found.biactive == (0,)
    np.testing.assert_allclose(np.concatenate([found.multipliers.G, found.multipliers.H]), cost, atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (lambda x, y: x[:0], W),
        (lambda x, y: x - y, S),  # (-1, 1) + (1, -1)
        (lambda x, y: -x - y, M),  # (-1, 1) - (1, 1): any smaller multiplier of this row is W, any larger one C
        (lambda x, y: -x - 2 * y, M),
        (lambda x, y: -x, W),
    ],
)
def test_where_multipliers_are_not_unique_the_strongest_kind_is_found(rows, kind):
    """Four pairs with grad f = (-1, 1) each, and rows <= 0 whose multipliers change nu."""
    w = ca.SX.sym("w", 8)
    x, y = w[:4], w[4:]
    mpcc = MPCC.of_pairs(w=w, G=x, H=y, objective=ca.sum1(y - x), g=rows(x, y), lbg=-np.inf, ubg=0.0)
    assert certificate(mpcc, np.zeros(8)).stationarity is kind


def test_signs_and_units_of_multipliers():
    """min x^2 - 4 x + 6 y + 5 z over x <= 1, y >= 2, z >= 0 ⊥ x >= 0, 1 <= y - 1 <= 7."""
    w = ca.SX.sym("w", 3)
    mpcc = MPCC.of_pairs(
        w=w,
        G=w[2],
        H=w[0],
        objective=w[0] ** 2 - 4 * w[0] + 6 * w[1] + 5 * w[2],
        g=2 * w[1],
        lbg=4.0,
        ubg=16.0,
        ubw=[1, np.inf, np.inf],
    )
    for scale in (1.0, 100.0):
        found = certificate(replace(mpcc, w_scale=np.full(3, scale), g_scale=np.array([scale])), (1, 2, 0))
        assert found.stationarity is S
        np.testing.assert_allclose(found.multipliers.w, [2, 0, 0], atol=1e-9)  # upper bound: positive
        np.testing.assert_allclose(found.multipliers.g, [-3], atol=1e-9)  # lower bound: negative
        np.testing.assert_allclose(found.multipliers.G, [5], atol=1e-9)
        np.testing.assert_allclose(found.multipliers.H, [0], atol=1e-9)


def given(mpcc, **values):
    sizes = {"w": mpcc.w, "g": mpcc.g, "G": mpcc.G, "H": mpcc.H, "r": mpcc.r}
    return Multipliers(**{name: np.array(values.get(name, np.zeros(s.numel())), float) for name, s in sizes.items()})


def test_given_multipliers_prove_s_without_any_solver(monkeypatch):
    monkeypatch.setattr(stationarity, "local_lpec", None)
    monkeypatch.setattr(stationarity.LocalProgram, "solve", None)
    desilva = literature.case("desilva").mpcc
    point = (0.5, 0.5, 0.5, 0.5, 0, 0)
    found = certificate(desilva, point, multipliers=given(desilva, g=[-0.5, -0.5], H=[0.5, 0.5]))
    assert (found.stationarity, found.b_stationary, found.lpec) == (S, True, None)
    assert found.residual <= 1e-12
    for wrong in ({}, {"g": [-0.5, -0.5]}, {"g": [0.5, 0.5], "H": [0.5, 0.5]}):
        with pytest.raises(TypeError):  # not proved: goes on to the LPEC
            certificate(desilva, point, multipliers=given(desilva, **wrong))
    corners = literature.case("two_corners").mpcc
    assert certificate(corners, (1, 0), multipliers=given(corners, H=[-2])).stationarity is S
    with pytest.raises(TypeError):  # right for W, wrong for S
        certificate(corners, (0, 0), multipliers=given(corners, G=[-2], H=[-2]))


def test_multipliers_of_a_bound_count_for_the_row_that_is_this_variable(monkeypatch):
    """A solver that fixes y = 0 by its bounds reports nu as multiplier of the bound."""
    x = ca.SX.sym("x", 2)
    mpcc = MPCC.of_pairs(w=x, G=x[0], H=x[1], objective=ca.sumsqr(x - 1), lbw=0.0)
    monkeypatch.setattr(stationarity, "local_lpec", None)
    found = certificate(mpcc, (1, 0), multipliers=given(mpcc, w=[0, 2]))
    assert found.stationarity is S
    np.testing.assert_allclose(found.multipliers.H, [-2], atol=1e-12)
    np.testing.assert_allclose(found.multipliers.w, 0.0, atol=1e-12)


def test_a_bound_at_zero_does_not_make_a_point_better():
    """x, y >= 0 as bounds again: (-1, 1) at the origin stays W, (1, -1) too."""
    x = ca.SX.sym("x", 2)
    for signs in ((-1, 1), (1, -1)):
        for lower in (-np.inf, 0.0):
            mpcc = MPCC.of_pairs(w=x, G=x[0], H=x[1], objective=signs[0] * x[0] + signs[1] * x[1], lbw=lower)
            assert certificate(mpcc, (0, 0)).stationarity is W


def test_multipliers_that_are_not_accurate_enough_do_not_prove():
    mpcc = literature.case("kth3").mpcc
    for error, kind in ((1e-8, S), (1e-5, UNKNOWN)):
        found = certificate(mpcc, (1 + error, 0))
        assert found.stationarity is kind
        assert found.lpec_value == pytest.approx(-error, rel=1e-3)
        assert found.b_stationary is (kind is S)
    assert certificate(mpcc, (1 + 1e-5, 0), tolerance=1e-4).stationarity is S


@pytest.mark.parametrize("w", [(0.5, 0.5), (1.0, 1e-6), (-1e-3, 0.0), (np.nan, 0.0)])
def test_a_point_that_does_not_solve_the_constraints_is_of_no_kind(w):
    found = certificate(literature.case("kth1").mpcc, w)
    assert (found.stationarity, found.b_stationary, found.multipliers) == (UNKNOWN, None, None)
    assert np.isnan(found.lpec_value)


def test_no_point_of_the_infeasible_program_is_certified():
    case = literature.case("infeasible")
    for w in ((0.5, 0.5), (0.5, 0.0), (0.0, 0.0)):
        assert certificate(case.mpcc, w).stationarity is UNKNOWN


def test_biactive_is_decided_by_its_tolerance():
    """From x = 1e-7 the branch y > 0 is out of sight."""
    mpcc = literature.case("scale1").mpcc
    objective = -mpcc.w[1] + (mpcc.w[0] - 1e-7) ** 2
    mpcc = replace(mpcc, objective=objective)
    assert certificate(mpcc, (1e-7, 0)).stationarity is S
    found = certificate(mpcc, (1e-7, 0), biactive_tolerance=1e-6)
    assert found.b_stationary is False
    assert found.biactive == (0,)


def test_a_constant_objective_is_s_stationary_with_zero_multipliers(monkeypatch):
    monkeypatch.setattr(stationarity, "local_lpec", None)
    x = ca.SX.sym("x", 2)
    found = certificate(MPCC.of_pairs(w=x, G=x[0], H=x[1], objective=1.0, penalty=1e3 * x[0]), (0, 0))
    assert (found.stationarity, found.b_stationary, found.lpec_value) == (S, True, 0.0)
    assert all(not getattr(found.multipliers, field.name).any() for field in fields(Multipliers))


def test_imposed_switched_equations_have_multipliers(program):
    fields = {"objective": lambda w: -w[2], "switched": lambda w: [("r", w[2] - w[0])], "lower": [0, 0, -np.inf]}
    mpcc = program(["x", "y", "z"], lambda w: [(w[0], w[1])], **fields)
    assert certificate(mpcc, (0, 1, 0)).stationarity is UNKNOWN
    found = certificate(mpcc, (0, 1, 0), held=np.array([True]))
    assert found.stationarity is S
    np.testing.assert_allclose(found.multipliers.r, [1.0], atol=1e-12)
    np.testing.assert_allclose(found.multipliers.G, [-1.0], atol=1e-12)
    assert certificate(mpcc, (0, 1, 1), held=np.array([True])).b_stationary is None  # it does not hold there


def test_without_a_verdict_of_the_lpec_the_multipliers_still_speak(monkeypatch):
    real = stationarity.local_lpec
    lost = {"value": np.nan, "dual": None, "status": "time limit"}
    monkeypatch.setattr(stationarity, "local_lpec", lambda *a, **k: replace(real(*a, **k), **lost))
    found = certificate(literature.case("scholtes4").mpcc, (0, 0, 0))
    assert (found.stationarity, found.b_stationary) == (M, None)
    found = certificate(literature.case("two_corners").mpcc, (0, 0))
    assert (found.stationarity, found.b_stationary) == (C, None)


@pytest.mark.parametrize(
    ("options", "word"),
    [({"held": np.zeros(1, bool)}, "held"), ({"multipliers": "g"}, "multipliers of g"), ({"w": np.zeros(3)}, "w:")],
)
def test_sizes_that_do_not_fit(options, word):
    mpcc = literature.case("kth1").mpcc
    at = Linearizer(mpcc)(np.zeros(2), mpcc.p0)
    if "multipliers" in options:
        options = {"multipliers": given(mpcc, g=[1.0])}
    with pytest.raises(TranscriptionError, match=word):
        certify(mpcc, at, options.pop("w", np.zeros(2)), **options)


def test_kinds_are_ordered_on_random_points():
    """S implies B, and B of affine constraints implies M (Guignard holds): the search for M finds it."""
    kinds = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, count = 4, 3
        A, b, c = rng.integers(-2, 3, (count, n)), rng.integers(-2, 3, (count, n)), rng.integers(-2, 3, (2, n))
        w = ca.SX.sym("w", n)
        cost = rng.uniform(0, 1, count) @ A + rng.uniform(-0.3, 1, count) @ b
        rows = [ca.mtimes(ca.DM(block), w) for block in (A, b, c)]
        mpcc = MPCC.of_pairs(w=w, G=rows[0], H=rows[1], g=rows[2], lbg=-np.inf, objective=ca.dot(ca.DM(cost), w))
        found = certificate(mpcc, np.zeros(n))
        kinds.append(found.stationarity)
        proof = weaker_than_b(mpcc, n)
        if found.b_stationary:
            assert proof is M
        else:
            assert found.stationarity is proof
    assert {S, B} <= set(kinds)
    assert set(kinds) & {M, C, W}


def weaker_than_b(mpcc, n):
    """The verdict without S and B."""
    local = {"radius": 1e-3, "tolerance": 1e-8, "held": np.zeros(0, bool)}
    at = Linearizer(mpcc)(np.zeros(n), mpcc.p0)
    program = stationarity.local_program(mpcc, at, np.zeros(n), **local)
    choice = stationarity.decide_groups(stationarity.Groups(mpcc, at), program, at)
    held = program.with_zero_rows(choice.forced)
    return stationarity._Proof(mpcc, at, held, choice, -1e-6 * program.scale, np.inf).weaker()[0]


def test_every_kind_of_status_is_in_the_literature():
    assert {point.kind for _, point in POINTS} == set(Stationarity)


@pytest.mark.parametrize(("entry", "height", "stationary"), [(1e4, 2e-8, False), (1.0, 2e-8, True), (1e4, 1e-3, True)])
def test_a_side_that_a_tiny_step_brings_to_zero_is_open(entry, height, stationary):
    """min (y - y_0)^2 - x with 0 <= x, entry y >= 0 at (0, y_0): at y_0 = 2e-12 the side of x is not held by y."""
    w, y = ca.SX.sym("w", 2), height / entry
    mpcc = MPCC.of_pairs(w=w, G=w[0], H=entry * w[1], objective=(w[1] - y) ** 2 - w[0])
    found = certificate(mpcc, [0.0, y])
    assert found.b_stationary is stationary
    assert (found.stationarity is S) is stationary
