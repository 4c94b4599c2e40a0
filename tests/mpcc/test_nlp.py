"""Relaxations: which (a, b) they allow, and what becomes of an MPCC under them."""

from itertools import product

import casadi as ca
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nosnoc_py.mpcc.relaxation import RELAXATIONS, STEERINGS, branch_nlp, relaxed_nlp

a, b, s = ca.SX.sym("a"), ca.SX.sym("b"), ca.SX.sym("sigma")
PHI = {name: ca.Function(name, [a, b, s], [member.phi(a, b, s)]) for name, member in RELAXATIONS.items()}
GRADIENT = {
    name: ca.Function(name, [a, b, s], [ca.gradient(member.phi(a, b, s), ca.vertcat(a, b, s))])
    for name, member in RELAXATIONS.items()
}
SIDE = st.floats(0, 1e3)
SIGMA = st.sampled_from([1.0, 1e-3, 1e-6, 1e-9])


def allowed(name, x, y, sigma, tolerance=0.0):
    value = float(PHI[name](x, y, sigma))
    return abs(value) <= tolerance if RELAXATIONS[name].equality else value <= tolerance


@pytest.mark.parametrize("name", ["scholtes", "fischer_burmeister"])
@given(x=SIDE, y=SIDE, sigma=SIGMA)
def test_inequalities_allow_exactly_products_up_to_sigma(name, x, y, sigma):
    if abs(x * y - sigma) > 1e-12 * max(1.0, x * y):
        assert allowed(name, x, y, sigma) == (x * y <= sigma)


@pytest.mark.parametrize("name", RELAXATIONS)
@given(x=st.floats(1e-3, 1e3), sigma=SIGMA)
def test_phi_is_zero_exactly_where_the_product_is_sigma(name, x, sigma):
    assert allowed(name, x, sigma / x, sigma, tolerance=1e-12)
    assert float(PHI[name](x, 1.01 * sigma / x, sigma)) > 0
    assert float(PHI[name](x, 0.99 * sigma / x, sigma)) < 0


@given(x=SIDE, y=SIDE, sigma=SIGMA)
def test_fischer_burmeister_is_the_known_function(x, y, sigma):
    known = x + y - np.sqrt(x**2 + y**2 + 2 * sigma)
    assert float(PHI["fischer_burmeister"](x, y, sigma)) == pytest.approx(known, abs=1e-11 * (1 + x + y))


@pytest.mark.parametrize("name", RELAXATIONS)
def test_derivatives_are_finite_at_the_origin_without_relaxation(name):
    assert np.isfinite(np.array(GRADIENT[name](0, 0, 0))).all()
    assert float(PHI[name](0, 0, 0)) == 0.0
    naive = ca.Function("naive", [a, b], [ca.gradient(a + b - ca.sqrt(a**2 + b**2), ca.vertcat(a, b))])
    assert not np.isfinite(np.array(naive(0, 0))).all()  # the negative control


@pytest.mark.parametrize("name", RELAXATIONS)
def test_derivatives_of_phi_are_right(name):
    at, step = np.array([0.3, 0.7, 0.05]), 1e-6
    numeric = [float(PHI[name](*(at + step * e)) - PHI[name](*(at - step * e))) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(np.array(GRADIENT[name](*at)).ravel(), numeric, atol=1e-8)


@pytest.mark.parametrize("name", RELAXATIONS)
@pytest.mark.parametrize(("x", "y"), [(0.0, 0.0), (0.0, 3.0), (2.0, 0.0)])
def test_complementary_points_survive_when_sigma_vanishes(name, x, y):
    assert allowed(name, x, y, 0.0, tolerance=1e-12)


@pytest.mark.parametrize("name", RELAXATIONS)
@pytest.mark.parametrize(("x", "y"), [(1e-3, 1e-3), (1.0, 1e-4), (5.0, 5.0)])
def test_other_points_do_not(name, x, y):
    assert not allowed(name, x, y, 1e-9)


# The NLP ------------------------------------------------------------------------------------------------------------


def two_pairs(program, **options):
    return program(
        ["a", "b", "c", "d"],
        lambda w: [(w[0], w[1]), (w[2] + 1, w[3])],
        lambda w: w[0] ** 2,
        rows=lambda w: [("row", w[0] + w[2], -1, 4)],
        penalty=lambda w: 3 * w[3],
        **options,
    )


@pytest.mark.parametrize(("steering", "extra"), [("direct", 0), ("l_inf", 1), ("l1", 2)])
def test_slacks_of_a_steering(program, steering, extra):
    nlp = relaxed_nlp(two_pairs(program), "scholtes", steering)
    assert nlp.x.numel() == 4 + extra
    assert nlp.p.numel() == 1
    evaluate = ca.Function("nlp", [nlp.x, nlp.p], [nlp.f, nlp.g])
    f, g = evaluate(np.r_[2.0, 3, 4, 5, [0.5] * extra], 0.1)
    assert float(f) == pytest.approx(4 + 15 + extra * 0.5 / 0.1)  # objective + penalty + slack / sigma
    level = 0.5 if extra else 0.1
    np.testing.assert_allclose(np.array(g).ravel(), [6, 5, 6 - level, 25 - level])  # row, G of no variable, products
    assert np.array_equal(nlp.lbx, [0, 0, -np.inf, 0] + [0] * extra)
    assert np.array_equal(nlp.lbg, [-1, 0, -np.inf, -np.inf])
    assert np.array_equal(nlp.ubg, [4, np.inf, 0, 0])


def test_an_equality_relaxation_bounds_the_products_from_both_sides(program):
    nlp = relaxed_nlp(two_pairs(program), "scholtes_equality", "direct")
    assert np.array_equal(nlp.lbg[-2:], [0, 0])
    assert np.array_equal(nlp.ubg[-2:], [0, 0])


def test_switched_equations_are_relaxed_when_enforced_and_absent_otherwise(program):
    def rows(enforce):
        mpcc = program(
            ["a", "b", "s"],
            lambda w: [(w[0], w[1])],
            switched=lambda w: [("equal steps", w[2] - 1)],
            enforce_switched=enforce,
        )
        return relaxed_nlp(mpcc, "scholtes", "direct")

    assert rows(False).g.numel() == 1
    nlp = rows(True)
    values = ca.Function("g", [nlp.x, nlp.p], [nlp.g])([2, 3, 1.5], 0.1)
    np.testing.assert_allclose(np.array(values).ravel(), [6 - 0.1, 3 - 0.1, 3 + 0.1])  # r eta = .5 * 2 * 3
    assert np.array_equal(nlp.lbg[1:], [-np.inf, 0])
    assert np.array_equal(nlp.ubg[1:], [0, np.inf])


@pytest.mark.parametrize(("relaxation", "steering"), list(product(RELAXATIONS, STEERINGS)))
def test_a_program_without_pairs_is_left_alone(program, relaxation, steering):
    mpcc = program(["a"], objective=lambda w: (w[0] - 1) ** 2, rows=lambda w: [("row", w[0], 0, 2)])
    assert relaxed_nlp(mpcc, relaxation, steering).g.numel() == 1


def test_nominal_values_scale_the_nlp_and_nothing_else(program):
    scale = np.array([10.0, 0.1, 1.0, 100.0])
    plain, scaled = (branch_nlp(two_pairs(program, scale=by, lower=-3, upper=7)) for by in (1.0, scale))
    w = np.array([2.0, 3, 4, 5])
    for nlp, x in ((plain, w), (scaled, w / scale)):
        f, g = ca.Function("nlp", [nlp.x, nlp.p], [nlp.f, nlp.g])(x, [])
        assert float(f) == 4.0  # no penalty in the branch problem
        np.testing.assert_allclose(np.array(g).ravel(), [6, 2, 5, 3, 5])
    np.testing.assert_allclose(scaled.lbx * scale, plain.lbx)
    np.testing.assert_allclose(scaled.ubx * scale, plain.ubx)
