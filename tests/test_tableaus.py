"""Butcher tableaus: order conditions, known coefficients, and the order of convergence on a smooth problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray

from nosnoc_py.errors import OptionError
from nosnoc_py.tableaus import (
    FAMILIES,
    Tableau,
    dopri5,
    explicit,
    integrated_lagrange_basis,
    lagrange_basis,
    lagrange_derivative,
    tableau,
)

Array = NDArray[np.float64]

MOST = {"explicit": 4}
LEAST = {"lobatto_iiic": 2}


def having(stages: Iterable[int], *families: str) -> list[tuple[str, int]]:
    """(scheme, stages) of all families, or of some, where they have so many stages."""
    chosen = families or tuple(FAMILIES)
    return [(name, n) for name in chosen for n in stages if LEAST.get(name, 1) <= n <= MOST.get(name, 99)]


STAGES = range(1, 10)
EVERY = having(STAGES)
QUADRATURES = [name for name in FAMILIES if name != "explicit"]
ORDERS = {
    "radau_iia": lambda n: 2 * n - 1,
    "gauss_legendre": lambda n: 2 * n,
    "radau_i": lambda n: 2 * n - 1,
    "lobatto_iiic": lambda n: 2 * n - 2,
    "explicit": lambda n: n,
}


# Order conditions ---------------------------------------------------------------------------------------------------


def rooted_trees(rk: Tableau) -> list[tuple[int, float, float]]:
    """(order, elementary weight, 1 / density) of the eight rooted trees up to order 4."""
    a, b, c = rk.a, rk.b, rk.c
    return [
        (1, b.sum(), 1.0),
        (2, b @ c, 1 / 2),
        (3, b @ c**2, 1 / 3),
        (3, b @ a @ c, 1 / 6),
        (4, b @ c**3, 1 / 4),
        (4, b @ (c * (a @ c)), 1 / 8),
        (4, b @ a @ c**2, 1 / 12),
        (4, b @ a @ a @ c, 1 / 24),
    ]


def tree_residual(rk: Tableau) -> float:
    """Largest violated order condition among those that the claimed order includes (up to order 4)."""
    return max(abs(weight - target) for order, weight, target in rooted_trees(rk) if order <= rk.order)


def residual_b(rk: Tableau, p: int) -> float:
    """B(p): the quadrature integrates t^(k-1) exactly, k = 1, ..., p."""
    return max(abs(float(rk.b @ rk.c ** (k - 1)) - 1 / k) for k in range(1, p + 1))


def residual_c(rk: Tableau, q: int) -> float:
    """C(q): so do the stages, up to their node."""
    return max(float(np.abs(rk.a @ rk.c ** (k - 1) - rk.c**k / k).max()) for k in range(1, q + 1))


def residual_d(rk: Tableau, r: int) -> float:
    """D(r): sum_i b_i c_i^(k-1) a_ij = b_j (1 - c_j^k) / k; with B and C it proves the order (Butcher 1964)."""
    k_range = range(1, r + 1)
    return max((np.abs((rk.b * rk.c ** (k - 1)) @ rk.a - rk.b * (1 - rk.c**k) / k).max() for k in k_range), default=0.0)


@pytest.mark.parametrize(("scheme", "stages"), EVERY)
def test_order_conditions_hold(scheme: str, stages: int) -> None:
    rk = tableau(scheme, stages)
    assert rk.order == ORDERS[scheme](stages)
    assert tree_residual(rk) < 1e-13
    if scheme == "explicit":
        return  # orders of at most 4, which the trees prove
    q = stages - 1 if scheme == "lobatto_iiic" else stages
    assert residual_b(rk, rk.order) < 1e-13
    assert residual_c(rk, q) < 1e-13
    # Butcher's theorem: B(p), C(q), D(r) with p <= q + r + 1 and p <= 2 q + 2 imply order p.
    assert residual_d(rk, rk.order - q - 1) < 1e-13
    assert scheme != "lobatto_iiic" or np.all(rk.a[:, 0] == rk.b[0])


@pytest.mark.parametrize(("scheme", "stages"), having(range(1, 6)))
def test_the_order_is_not_understated(scheme: str, stages: int) -> None:
    rk = tableau(scheme, stages)
    if (scheme, stages) == ("explicit", 3):  # Simpson's rule: the quadrature is one order better than the scheme
        assert max(abs(weight - target) for order, weight, target in rooted_trees(rk) if order == 4) > 1e-2
    else:
        assert residual_b(rk, rk.order + 1) > 1e-7


@pytest.mark.parametrize(("scheme", "stages"), EVERY)
def test_a_perturbed_tableau_fails_the_order_conditions(scheme: str, stages: int) -> None:
    rk = tableau(scheme, stages)
    perturbed_b, perturbed_a = rk.b.copy(), rk.a.copy()
    perturbed_b[0] += 1e-9
    perturbed_a[-1, 0] += 1e-9
    assert tree_residual(replace(rk, b=perturbed_b)) > 1e-10
    assert residual_c(replace(rk, a=perturbed_a), 1) > 1e-10


@pytest.mark.parametrize("stages", [12, 20])
@pytest.mark.parametrize("scheme", QUADRATURES)
def test_many_stages_stay_accurate(scheme: str, stages: int) -> None:
    rk = tableau(scheme, stages)
    assert max(residual_b(rk, rk.order), residual_c(rk, stages - (scheme == "lobatto_iiic"))) < 1e-13


# Known coefficients -------------------------------------------------------------------------------------------------

r6, r3, r15 = sqrt(6), sqrt(3), sqrt(15)
KNOWN = [
    ("radau_iia", [[1]], [1], [1]),
    ("radau_iia", [[5 / 12, -1 / 12], [3 / 4, 1 / 4]], [3 / 4, 1 / 4], [1 / 3, 1]),
    (
        "radau_iia",
        [
            [(88 - 7 * r6) / 360, (296 - 169 * r6) / 1800, (-2 + 3 * r6) / 225],
            [(296 + 169 * r6) / 1800, (88 + 7 * r6) / 360, (-2 - 3 * r6) / 225],
            [(16 - r6) / 36, (16 + r6) / 36, 1 / 9],
        ],
        [(16 - r6) / 36, (16 + r6) / 36, 1 / 9],
        [(4 - r6) / 10, (4 + r6) / 10, 1],
    ),
    ("gauss_legendre", [[1 / 2]], [1], [1 / 2]),
    (
        "gauss_legendre",
        [[1 / 4, 1 / 4 - r3 / 6], [1 / 4 + r3 / 6, 1 / 4]],
        [1 / 2, 1 / 2],
        [1 / 2 - r3 / 6, 1 / 2 + r3 / 6],
    ),
    (
        "gauss_legendre",
        [
            [5 / 36, 2 / 9 - r15 / 15, 5 / 36 - r15 / 30],
            [5 / 36 + r15 / 24, 2 / 9, 5 / 36 - r15 / 24],
            [5 / 36 + r15 / 30, 2 / 9 + r15 / 15, 5 / 36],
        ],
        [5 / 18, 4 / 9, 5 / 18],
        [1 / 2 - r15 / 10, 1 / 2, 1 / 2 + r15 / 10],
    ),
    ("radau_i", [[0]], [1], [0]),
    ("radau_i", [[0, 0], [1 / 3, 1 / 3]], [1 / 4, 3 / 4], [0, 2 / 3]),
    (
        "radau_i",
        [
            [0, 0, 0],
            [(9 + r6) / 75, (24 + r6) / 120, (168 - 73 * r6) / 600],
            [(9 - r6) / 75, (168 + 73 * r6) / 600, (24 - r6) / 120],
        ],
        [1 / 9, (16 + r6) / 36, (16 - r6) / 36],
        [0, (6 - r6) / 10, (6 + r6) / 10],
    ),
    ("lobatto_iiic", [[1 / 2, -1 / 2], [1 / 2, 1 / 2]], [1 / 2, 1 / 2], [0, 1]),
    (
        "lobatto_iiic",
        [[1 / 6, -1 / 3, 1 / 6], [1 / 6, 5 / 12, -1 / 12], [1 / 6, 2 / 3, 1 / 6]],
        [1 / 6, 2 / 3, 1 / 6],
        [0, 1 / 2, 1],
    ),
    ("explicit", [[0]], [1], [0]),
    ("explicit", [[0, 0], [1, 0]], [1 / 2, 1 / 2], [0, 1]),
    ("explicit", [[0, 0, 0], [1 / 2, 0, 0], [-1, 2, 0]], [1 / 6, 2 / 3, 1 / 6], [0, 1 / 2, 1]),
    (
        "explicit",
        [[0, 0, 0, 0], [1 / 2, 0, 0, 0], [0, 1 / 2, 0, 0], [0, 0, 1, 0]],
        [1 / 6, 1 / 3, 1 / 3, 1 / 6],
        [0, 1 / 2, 1 / 2, 1],
    ),
]


@pytest.mark.parametrize(("scheme", "a", "b", "c"), KNOWN)
def test_known_tableaus(scheme: str, a: list[list[float]], b: list[float], c: list[float]) -> None:
    rk = tableau(scheme, len(c))
    np.testing.assert_allclose(rk.a, a, rtol=0, atol=4e-16)
    np.testing.assert_allclose(rk.b, b, rtol=0, atol=4e-16)
    np.testing.assert_allclose(rk.c, c, rtol=0, atol=4e-16)


@pytest.mark.parametrize(("scheme", "stages"), EVERY)
def test_nodes_ascend_in_the_step_and_weights_are_positive(scheme: str, stages: int) -> None:
    rk = tableau(scheme, stages)
    assert rk.stages == stages
    if (scheme, stages) == ("explicit", 4):
        assert np.all(np.diff(rk.c) >= 0)
    else:
        assert np.all(np.diff(rk.c) > 0)
    assert (rk.c[0] == 0.0) if scheme in ("radau_i", "lobatto_iiic", "explicit") else (rk.c[0] > 0.0)
    assert rk.c[-1] <= 1.0
    assert np.all(rk.b > 0)


@pytest.mark.parametrize(("scheme", "stages"), having([*STAGES, 20]))
def test_stiff_accuracy_is_exact(scheme: str, stages: int) -> None:
    rk = tableau(scheme, stages)
    assert rk.stiffly_accurate == (scheme in ("radau_iia", "lobatto_iiic"))
    if rk.stiffly_accurate:
        assert rk.c[-1] == 1.0
        assert np.array_equal(rk.a[-1], rk.b)


@pytest.mark.parametrize(("scheme", "stages"), EVERY)
def test_what_an_element_asks_of_a_tableau(scheme: str, stages: int) -> None:
    rk = tableau(scheme, stages)
    assert rk.invertible == (scheme not in ("radau_i", "explicit"))
    assert rk.starts_left == (scheme in ("radau_i", "explicit"))
    assert rk.is_collocation == (scheme in ("radau_iia", "gauss_legendre"))
    off_trajectory_stages = {"lobatto_iiic": [0], "explicit": [stages - 1] if stages > 1 else []}.get(scheme, [])
    assert np.array_equal(np.flatnonzero(rk.off_trajectory_stages), off_trajectory_stages)


@pytest.mark.parametrize(("scheme", "stages"), EVERY)
def test_dense_output_ends_at_the_right_end(scheme: str, stages: int) -> None:
    """Exact for derivatives that are polynomials, and for any derivatives x_{n+1} at the end."""
    rk = tableau(scheme, stages)
    nodes, weights = rk.dense_c, rk.dense_weights
    assert weights.shape == (nodes.size, stages)
    assert np.all(np.diff(np.append(0.0, nodes)) > 0)
    degree = len(np.unique(rk.c))
    exponent = np.arange(1, degree + 1)
    derivatives = exponent * rk.c[:, None] ** (exponent - 1.0)
    np.testing.assert_allclose(weights @ derivatives, nodes[:, None] ** exponent, rtol=0, atol=1e-13)
    assert rk.is_collocation or nodes[-1] == 1.0
    through = np.append(0.0, nodes)
    values = np.vstack([np.zeros(stages), weights])
    end = [np.prod((1 - np.delete(through, k)) / (t - np.delete(through, k))) for k, t in enumerate(through)]
    np.testing.assert_allclose(end @ values, rk.b, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("scheme", "stages"), EVERY)
def test_values_at_the_stages_are_extended_to_the_end(scheme: str, stages: int) -> None:
    rk = tableau(scheme, stages)
    exponent = np.arange(len(np.unique(rk.c)))
    np.testing.assert_allclose(rk.end_weights @ rk.c[:, None] ** exponent, 1.0, rtol=0, atol=1e-9)
    if scheme in ("radau_iia", "lobatto_iiic"):
        assert np.array_equal(rk.end_weights, np.eye(stages)[-1])


def test_dense_output_weights_integrate_polynomials() -> None:
    theta = np.linspace(0.0, 1.0, 7)
    nodes = tableau("gauss_legendre", 4).c
    weights = integrated_lagrange_basis(nodes, theta)
    assert weights.shape == (7, 4)
    np.testing.assert_allclose(weights @ (4 * nodes**3), theta**4, rtol=0, atol=1e-15)


def test_the_lagrange_basis_has_the_derivatives_of_the_polynomials_through_its_nodes() -> None:
    """To rounding, with and without a node at zero; a wrong order of the nodes is far off."""
    for nodes in (np.append(0.0, tableau("radau_iia", 5).c), tableau("gauss_legendre", 6).c):
        power = np.arange(1, nodes.size)[:, None]
        found = lagrange_derivative(nodes) @ (nodes**power).T
        np.testing.assert_allclose(found, (power * nodes ** (power - 1)).T, rtol=0, atol=1e-12)
        assert np.abs(found[::-1] - (power * nodes ** (power - 1)).T).max() > 0.1
        assert np.array_equal(lagrange_basis(nodes, nodes), np.eye(nodes.size))


@pytest.mark.parametrize("rk", [explicit(1), explicit(2), explicit(3), explicit(4), dopri5()], ids=repr)
def test_an_explicit_step_has_its_order_and_no_more(rk: Tableau) -> None:
    """x' = 2 t x over [1, 1 + h], by its local error, which falls by 2^(order + 1) when h is halved."""
    errors = []
    for h in (0.2, 0.1):
        end = rk.step(lambda theta, x, h=h: 2.0 * (1.0 + theta * h) * x, 1.0, h)
        errors.append(abs(end - np.exp((1.0 + h) ** 2 - 1.0)))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(rk.order + 1, abs=0.5)
    assert rk.is_explicit
    assert not tableau("radau_i", 2).is_explicit


# The value object and its errors ------------------------------------------------------------------------------------


def test_a_tableau_is_a_frozen_value() -> None:
    a = np.array([[1.0]])
    rk = Tableau("mine", a=a, b=np.array([1.0]), c=np.array([1.0]), order=1)
    a[0, 0] = 7.0
    assert rk.a[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        rk.b[0] = 2.0
    assert repr(tableau("radau_iia", 3)) == "Tableau('radau_iia', stages=3, order=5)"


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OptionError, match="shapes"):
        Tableau("mine", a=np.eye(2), b=np.ones(3), c=np.ones(2), order=1)


def test_an_unknown_scheme_names_the_nearest() -> None:
    with pytest.raises(OptionError, match="Did you mean 'radau_iia'"):
        tableau("radau_2a", 2)


@pytest.mark.parametrize("stages", [0, -1, 1.5, True, "2"])
@pytest.mark.parametrize("scheme", list(FAMILIES))
def test_a_bad_number_of_stages_is_refused(scheme: str, stages: int) -> None:
    with pytest.raises(OptionError, match="at least 1"):
        tableau(scheme, stages)


# Order of convergence -----------------------------------------------------------------------------------------------
# A nonlinear oscillator, r' = r (1 - r^2) and phi' = 2 in polar coordinates, has a closed form in every coordinate.


def flow(y: Array) -> Array:
    growth = 1 - y @ y
    return np.array([growth * y[0] - 2 * y[1], growth * y[1] + 2 * y[0]])


def flow_jacobian(y: Array) -> Array:
    return (1 - y @ y) * np.eye(2) - 2 * np.outer(y, y) + np.array([[0.0, -2.0], [2.0, 0.0]])


def exact(t: float) -> Array:
    radius = 1 / np.sqrt(1 + 3 * np.exp(-2 * t))  # starts at 1/2
    return radius * np.array([np.cos(2 * t), np.sin(2 * t)])


def step(rk: Tableau, y: Array, h: float) -> Array:
    """One implicit Runge-Kutta step, the stages by Newton's method."""
    n_s, n = rk.stages, y.size
    k = np.tile(flow(y), (n_s, 1))
    for _ in range(20):
        stages = y + h * rk.a @ k
        residual = k - np.array([flow(x) for x in stages])
        jacobians = [flow_jacobian(x) for x in stages]
        matrix = np.eye(n_s * n) - h * np.block([[rk.a[i, j] * jacobians[i] for j in range(n_s)] for i in range(n_s)])
        update = np.linalg.solve(matrix, residual.ravel())
        k = k - update.reshape(n_s, n)
        if np.abs(update).max() < 1e-15:
            break
    return y + h * rk.b @ k


def global_error(rk: Tableau, steps: int, duration: float = 2.0) -> float:
    y, h = exact(0.0), duration / steps
    for _ in range(steps):
        y = step(rk, y, h)
    return float(np.linalg.norm(y - exact(duration)))


def observed_order(rk: Tableau, steps: list[int]) -> float:
    """Slope of log(error) over log(h), by regression over the errors above rounding."""
    errors = np.array([global_error(rk, n) for n in steps])
    asymptotic = errors > 1e-13
    assert asymptotic.sum() >= 3
    return float(-np.polyfit(np.log(np.array(steps)[asymptotic]), np.log(errors[asymptotic]), 1)[0])


def resolution(order: int) -> list[int]:
    """Fewer steps for higher orders: they meet rounding early."""
    return [80, 120, 180, 270] if order <= 3 else [12, 18, 27, 40] if order <= 6 else [6, 8, 11, 15]


@pytest.mark.parametrize("stages", [1, 5, 9])
def test_families_that_do_not_have_so_many_stages(stages: int) -> None:
    if stages == 1:
        with pytest.raises(OptionError, match="lobatto_iiic has two stages at least; given rk_stages=1"):
            tableau("lobatto_iiic", 1)
    else:
        with pytest.raises(OptionError, match=f"1 to 4 stages .*, given {stages}; for a higher order"):
            tableau("explicit", stages)


@pytest.mark.parametrize(("scheme", "stages"), having([1, 2, 3, 4]))
def test_order_of_convergence_on_a_smooth_problem(scheme: str, stages: int) -> None:
    rk = tableau(scheme, stages)
    steps = resolution(1 if scheme == "explicit" else rk.order)  # explicit steps are cheap, their errors large
    assert observed_order(rk, steps) == pytest.approx(rk.order, abs=0.15)


@pytest.mark.parametrize("scheme", list(FAMILIES))
def test_a_perturbed_tableau_loses_its_order(scheme: str) -> None:
    rk = tableau(scheme, 3)
    weights = rk.b + 1e-2 * np.array([1.0, -1.0, 0.0])  # consistent (sum 1), hence still convergent: order 1
    assert observed_order(replace(rk, b=weights), resolution(1)) == pytest.approx(1.0, abs=0.15)
