"""The conformance test every relaxation passes, what each member is in particular, and members that are wrong."""

import casadi as ca
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nosnoc_py.mpcc.relaxations import RELAXATIONS, Relaxation, _conjugate
from nosnoc_py.testing.relaxations import (
    CHECKS,
    RelaxationCase,
    below,
    check_relaxation,
    contains_the_complementary_points,
    excludes_the_others,
    functions,
    has_continuous_gradients,
    has_finite_derivatives_at_the_critical_points,
    says_whether_it_can_be_elastic,
    shrinks_at_its_rate,
    solves_a_small_program,
    values,
)

# The largest min(a, b) a member allows: constant * sigma ** rate.
WIDTHS = {
    "scholtes": (1.0, 0.5),
    "scholtes_equality": (1.0, 0.5),
    "fischer_burmeister": (1.0, 0.5),
    "chen_chen_kanzow": (1.0, 0.5),
    "kanzow_schwartz": (1.0, 1.0),
    "steffensen_ulbrich": (3 / 16, 1.0),
    "lin_fukushima": (1.0, 1.0),
}
INEQUALITIES = [name for name, member in RELAXATIONS.items() if not member.equality]
HYPERBOLAS = [name for name, (_, rate) in WIDTHS.items() if rate == 0.5]
SIDE = st.floats(0, 1e3)
SIGMA = st.sampled_from([1.0, 1e-3, 1e-6, 1e-9])


def case(name, member=None):
    """A member, or another one in its place, with what it claims."""
    # Of lin_fukushima a b <= sigma^2 = 1e-16 beside a >= 0 has no interior left in double precision.
    accuracy = 2e-6 if name == "lin_fukushima" else 1e-7
    return RelaxationCase(RELAXATIONS[name] if member is None else member, WIDTHS[name], accuracy)


# The shared conformance test ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RELAXATIONS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(name, check):
    check(case(name))


@pytest.mark.parametrize("name", INEQUALITIES)
def test_inequalities_contain_the_complementary_points(name):
    contains_the_complementary_points(case(name))


def test_a_stranger_calls_all_of_it_at_once():
    check_relaxation(RELAXATIONS["scholtes"], width=(1.0, 0.5))
    said = r"relaxation: 3 of 11 checks fail\n  shrinks at its rate: .*width.*\n  says whether it can be elastic: elas"
    with pytest.raises(AssertionError, match=said):
        check_relaxation(Relaxation(lambda a, b, s: (a * b - s**2,)), width=(1.0, 0.5))


def test_the_tables_know_every_member():
    assert set(WIDTHS) == set(RELAXATIONS)


# Negative controls: what is wrong with each of these is found by the check beside it ---------------------------------


def _plain_kink(a, b, sigma):
    return (a + b - ca.fabs(a - b) - 3 * sigma / 8,)


def _divided_kink(a, b, sigma):
    z = (a - b) / sigma
    return (a + b - ca.if_else(ca.fabs(a - b) < sigma, sigma * (3 + 6 * z**2 - z**4) / 8, ca.fabs(a - b)),)


def _plain_root(a, b, sigma):
    return (a + b - ca.sqrt(a**2 + b**2 + 2 * sigma),)


WRONG = [
    ("scholtes", lambda a, b, s: (a * b + s,), contains_the_complementary_points),
    ("scholtes", lambda a, b, s: (a * b + s,), solves_a_small_program),
    ("scholtes", lambda a, b, s: (s - a * b,), contains_the_complementary_points),
    ("scholtes", lambda a, b, s: (s - a * b,), excludes_the_others),
    ("scholtes", lambda a, b, s: (a * b - 1,), excludes_the_others),
    ("scholtes", lambda a, b, s: (a * b - 1,), shrinks_at_its_rate),
    ("scholtes", lambda a, b, s: (a * b - s**2,), shrinks_at_its_rate),
    ("scholtes", lambda a, b, s: (a * b - s**2,), says_whether_it_can_be_elastic),
    ("scholtes", lambda a, b, s: (a * b + a - s,), contains_the_complementary_points),
    ("kanzow_schwartz", lambda a, b, s: ((a - s) * (b - s),), contains_the_complementary_points),
    ("steffensen_ulbrich", _plain_kink, has_continuous_gradients),
    ("steffensen_ulbrich", _divided_kink, has_finite_derivatives_at_the_critical_points),
    ("fischer_burmeister", _plain_root, has_finite_derivatives_at_the_critical_points),
    ("lin_fukushima", lambda a, b, s: (a * b - s**2, s**2 - a * b), contains_the_complementary_points),
]


@pytest.mark.parametrize(("name", "phi", "check"), WRONG)
def test_a_wrong_member_is_found(name, phi, check):
    with pytest.raises(AssertionError):
        check(case(name, Relaxation(phi)))


# What the members are, each by its own definition --------------------------------------------------------------------


@pytest.mark.parametrize("name", HYPERBOLAS)
@given(a=st.floats(1e-3, 1e3), sigma=SIGMA)
def test_phi_is_zero_exactly_where_the_product_is_sigma(name, a, sigma):
    at, above, under = (values(RELAXATIONS[name], a, c * sigma / a, sigma)[0, 0] for c in (1.0, 1.01, 0.99))
    assert abs(at) <= 1e-12
    assert under < 0 < above


@given(a=SIDE, b=SIDE, sigma=SIGMA)
def test_fischer_burmeister_is_the_known_function(a, b, sigma):
    known = a + b - np.sqrt(a**2 + b**2 + 2 * sigma)
    assert values(RELAXATIONS["fischer_burmeister"], a, b, sigma)[0, 0] == pytest.approx(known, abs=1e-11 * (1 + a + b))


def test_roots_are_shifted_by_far_less_than_the_least_sigma():
    """At a = b = 0 the shift of 1e-24 alone is under the root: 2 / 1e-12; beside sigma = 1e-12 it changes no digit."""
    zero = ca.SX(0)
    assert float(_conjugate(zero, zero, zero)) == pytest.approx(2e12, rel=1e-12)
    assert float(_conjugate(zero, zero, ca.SX(1e-12))) == pytest.approx(2 / np.sqrt(2e-12), rel=1e-11)


@given(a=SIDE, b=SIDE, sigma=SIGMA)
def test_chen_chen_kanzow_adds_the_product_to_fischer_burmeister(a, b, sigma):
    known = 0.95 * (a + b - np.sqrt(a**2 + b**2 + 2 * sigma)) + 0.05 * (a * b - sigma)
    found = values(RELAXATIONS["chen_chen_kanzow"], a, b, sigma)[0, 0]
    assert found == pytest.approx(known, rel=1e-11, abs=1e-11 * (1 + a + b))


@given(a=SIDE, b=SIDE, sigma=SIGMA)
def test_kanzow_schwartz_allows_exactly_an_l_of_width_sigma(a, b, sigma):
    assume(abs(min(a, b) - sigma) > 1e-9 * sigma)
    assert below(RELAXATIONS["kanzow_schwartz"], a, b, sigma, 0.0)[0] == (min(a, b) <= sigma)


@given(a=st.floats(0, 10), excess=st.floats(0, 10), sigma=SIGMA)
def test_steffensen_ulbrich_is_exact_away_from_the_diagonal(a, excess, sigma):
    assume(a == 0 or a > 1e-9)
    phi = values(RELAXATIONS["steffensen_ulbrich"], a, a + sigma + excess, sigma)[0, 0]
    assert phi == pytest.approx(2 * a, abs=1e-13)


def test_steffensen_ulbrich_has_continuous_second_derivatives():
    hessian = functions(RELAXATIONS["steffensen_ulbrich"])[2]
    for x, y in ((0.8, 0.3), (0.3, 0.8)):
        before, after = (np.array(hessian([x + sign * 1e-9, y, 0.5])) for sign in (-1, 1))
        np.testing.assert_allclose(after, before, atol=1e-6)
    jump = functions(RELAXATIONS["kanzow_schwartz"])[2]
    before, after = (np.array(jump([0.3 + sign * 1e-9, 0.7, 0.5])) for sign in (-1, 1))
    assert np.abs(after - before).max() > 0.9  # once differentiable only: the negative control


@given(a=st.floats(-2, 1e3), b=st.floats(-2, 1e3), sigma=SIGMA)
def test_lin_fukushima_needs_no_other_nonnegativity(a, b, sigma):
    """Its second row holds a, b above -sigma by itself; without it both may be very negative."""
    first, second = values(RELAXATIONS["lin_fukushima"], a, b, sigma)[:, 0]
    assert second == pytest.approx(sigma**2 - (a + sigma) * (b + sigma), abs=1e-12 * (1 + abs(a)) * (1 + abs(b)))
    if first <= 0 and second <= 0:
        assert min(a, b) >= -sigma * (1 + 1e-9)
    assert values(RELAXATIONS["scholtes"], -1.0, 1.0, sigma)[0, 0] < 0
