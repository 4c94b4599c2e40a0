"""The conformance test every relaxation passes, what each member is in particular, and members that are wrong."""

import casadi as ca
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nosnoc_py.mpcc.relaxations import RELAXATIONS, Relaxation

SIGMAS = 10.0 ** -np.arange(7)
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


def functions(member: Relaxation):
    """Phi, its Jacobian and its Hessians in (a, b, sigma), all rows below each other."""
    z = ca.SX.sym("z", 3)
    rows = ca.vertcat(*member.phi(z[0], z[1], z[2]))
    jacobian = ca.jacobian(rows, z)
    hessian = ca.jacobian(ca.vec(jacobian), z)
    return tuple(ca.Function("f", [z], [ca.densify(out)]) for out in (rows, jacobian, hessian))


def values(member: Relaxation, a, b, sigma):
    """Phi at many points, (rows, points)."""
    points = [np.broadcast_to(x, np.broadcast_shapes(np.shape(a), np.shape(b))).ravel() for x in (a, b, sigma)]
    phi = np.array(functions(member)[0](np.array(points)))
    return phi.reshape(-1, points[0].size, order="F")


def below(member: Relaxation, a, b, sigma, tolerance=1e-13):
    """Where phi <= 0: the relaxed set of an inequality, and of an equation the side its solutions bound."""
    return (values(member, a, b, sigma) <= tolerance).all(axis=0)


# The shared conformance test ----------------------------------------------------------------------------------------


def contains_the_complementary_points(name, member):
    side = np.array([0.0, 1e-9, 1e-3, 1.0, 1e3])
    for sigma in (*SIGMAS, 1e-12):
        assert below(member, side, 0.0, sigma, 0.0).all()
        assert below(member, 0.0, side, sigma, 0.0).all()


def excludes_the_others(name, member):
    for x, y in ((1.0, 1.0), (1e-3, 1e-3), (1.0, 1e-4), (5.0, 5.0)):
        assert values(member, x, y, 1e-9).max() > 1e-9


def shrinks_at_its_rate(name, member):
    constant, rate = WIDTHS[name]
    widths = []
    for sigma in SIGMAS:
        width = constant * sigma**rate
        grid = np.concatenate([width * np.linspace(0, 2, 81), np.geomspace(1e-8, 10, 60)])
        a, b = (side.ravel() for side in np.meshgrid(grid, grid))
        allowed = below(member, a, b, sigma, 1e-13 * min(1.0, width))
        widths.append(np.minimum(a, b)[allowed].max())
    assert np.all(np.diff(widths) < 0)
    np.testing.assert_allclose(widths, constant * SIGMAS**rate, rtol=1e-6)
    assert np.polyfit(np.log(SIGMAS), np.log(widths), 1)[0] == pytest.approx(rate, abs=1e-6)


def has_right_derivatives(name, member):
    phi, jacobian, hessian = functions(member)
    step, random = 1e-6, np.random.default_rng(3)
    for _ in range(40):
        z = np.r_[random.uniform(0, 2, 2), random.uniform(0.05, 1)]
        if min(abs(z[0] + z[1] - 2 * z[2]), abs(abs(z[0] - z[1]) - z[2])) < 1e-4:
            continue  # Hessians of two-sided formulas may jump here
        for exact, function in ((jacobian, phi), (hessian, lambda x: ca.vec(jacobian(x)))):
            differences = [
                np.array(function(z + step * e) - function(z - step * e)).ravel() / (2 * step) for e in np.eye(3)
            ]
            np.testing.assert_allclose(np.array(exact(z)), np.transpose(differences), rtol=1e-5, atol=1e-7)


def has_finite_derivatives_at_the_critical_points(name, member):
    for s in (0.0, 1e-300, 1e-24, 1e-12, 1e-6, 1.0):
        critical = [(0, 0), (s, s), (s, 0), (0, s), (s / 2, s / 2), (2 * s, 0), (1, 1), (1, 0), (0, 1), (1 + s, 1)]
        for x, y in critical:
            for function in functions(member):
                assert np.isfinite(np.array(function([x, y, s]))).all(), (x, y, s)


def has_continuous_gradients(name, member):
    """One-sided limits agree along the kinks a + b = 2 sigma, |a - b| = sigma and a = b."""
    jacobian, step = functions(member)[1], 1e-9
    for x, y in ((0.3, 0.7), (0.9, 0.1), (0.8, 0.3), (0.1, 0.6), (0.4, 0.4)):
        before, after = (np.array(jacobian([x + sign * step, y, 0.5])) for sign in (-1, 1))
        np.testing.assert_allclose(after, before, atol=1e-7)


def says_whether_it_can_be_elastic(name, member):
    """At a strictly complementary point phi has a slope in sigma that lets a multiplier push sigma to zero."""
    slopes = np.array(functions(member)[1]([2.0, 0.0, 0.0]))[:, 2]
    assert (slopes[0] < -0.1) == member.elastic
    assert abs(slopes[0]) < 10.0


def minimise(member: Relaxation, objective, start, steering="direct", sigmas=10.0 ** -np.arange(1, 9)):
    """A homotopy in its shortest form, with plain `nlpsol`: minimise objective(a, b) under 0 <= a _|_ b >= 0."""
    a, b, sigma, slack = (ca.SX.sym(symbol) for symbol in ("a", "b", "sigma", "slack"))
    direct = steering == "direct"
    w, level = (ca.vertcat(a, b), sigma) if direct else (ca.vertcat(a, b, slack), slack)
    cost = objective(a, b) + (0 if direct else slack / sigma)
    ipopt = {"print_level": 0, "sb": "yes", "bound_relax_factor": 0.0, "tol": 1e-10, "max_iter": 200}
    problem = {"x": w, "p": sigma, "f": cost, "g": ca.vertcat(*member.phi(a, b, level))}
    solver = ca.nlpsol("solver", "ipopt", problem, {"print_time": False, "show_eval_warnings": False, "ipopt": ipopt})
    at = np.array(start)
    for value in sigmas:
        guess = at if direct else np.append(at, value)
        lower = 0.0 if member.equality else -np.inf
        at = np.array(solver(x0=guess, p=value, lbx=0, ubx=np.inf, lbg=lower, ubg=0)["x"]).ravel()[:2]
        assert solver.stats()["success"]
    return at


def solves_a_small_program(name, member):
    """min (a - 1)^2 + (b - 1)^2 from (.3, .4): both (1, 0) and (0, 1) are solutions, the origin is only C-stationary.

    Started at sigma = 0.1: with sigma = 1 the first solution is (1, 1), and from the diagonal the hyperbola a b = sigma
    may be followed to the origin.
    """
    found = minimise(member, lambda a, b: (a - 1) ** 2 + (b - 1) ** 2, (0.3, 0.4))
    # a b <= sigma^2 = 1e-16 beside a >= 0 has no interior left in double precision
    np.testing.assert_allclose(np.sort(found), [0, 1], atol=2e-6 if name == "lin_fukushima" else 1e-7)


def solves_a_biactive_program(name, member):
    """min a + b: the origin, where both sides vanish; an equation stays sqrt(sigma) away."""
    found = minimise(member, lambda a, b: a + b, (0.3, 0.4))
    np.testing.assert_allclose(found, 0.0, atol=1.001e-4 if member.equality else 1e-10)


def solves_a_small_program_elastically(name, member):
    """The penalty is exact, so sigma = 1e-4 is small enough; a steeper one makes IPOPT scale the objective away."""
    if member.elastic:
        sigmas = 10.0 ** -np.arange(1, 5)
        found = minimise(member, lambda a, b: (a - 1) ** 2 + (b - 1) ** 2, (0.3, 0.4), "l_inf", sigmas)
        np.testing.assert_allclose(np.sort(found), [0, 1], atol=1e-7)


def works_on_columns(name, member):
    a, b, sigma = np.array([0.0, 0.3, 2.0]), np.array([0.7, 0.3, 0.1]), np.array([0.5, 0.2, 0.4])
    x, y, s = (ca.SX.sym(symbol, 3) for symbol in "abs")
    one = ca.Function("columns", [x, y, s], [ca.horzcat(*member.phi(x, y, s))])
    shared = ca.Function("shared", [x, y, s], [ca.horzcat(*member.phi(x, y, s[0]))])
    np.testing.assert_allclose(np.array(one(a, b, sigma)).T, values(member, a, b, sigma), atol=1e-15)
    np.testing.assert_allclose(np.array(shared(a, b, sigma)).T, values(member, a, b, 0.5), atol=1e-15)


CHECKS = [
    excludes_the_others,
    shrinks_at_its_rate,
    has_right_derivatives,
    has_finite_derivatives_at_the_critical_points,
    has_continuous_gradients,
    says_whether_it_can_be_elastic,
    solves_a_small_program,
    solves_a_biactive_program,
    solves_a_small_program_elastically,
    works_on_columns,
]


@pytest.mark.parametrize("name", RELAXATIONS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(name, check):
    check(name, RELAXATIONS[name])


@pytest.mark.parametrize("name", INEQUALITIES)
def test_inequalities_contain_the_complementary_points(name):
    contains_the_complementary_points(name, RELAXATIONS[name])


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
        check(name, Relaxation(phi))


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
