"""The minimiser of the Hamiltonian: every closed form, and Newton's method, against brute force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import minimize

from nosnoc_py.errors import OptionError
from nosnoc_py.methods.indirect.control_set import ControlSet
from nosnoc_py.methods.indirect.minimiser import Minimiser
from nosnoc_py.methods.indirect.minimiser_forms import has_kink, minimiser

FREE = ControlSet(lower=np.full(2, -np.inf), upper=np.full(2, np.inf))
BOX = ControlSet(lower=np.array([-1.0, -0.5]), upper=np.array([0.3, 2.0]))
BALL = ControlSet(lower=np.full(2, -np.inf), upper=np.full(2, np.inf), radius=0.8)
X, COSTATE, U = ca.SX.sym("x", 2), ca.SX.sym("costate", 2), ca.SX.sym("u", 2)
AFFINE = ca.vertcat(X[1] + U[0], ca.sin(X[0]) + (2 + X[1] ** 2) * U[1])

CASES: dict[str, tuple[Any, Any, ControlSet, str]] = {
    "quadratic": (AFFINE, ca.sumsqr(U) + 0.3 * U[0] * U[1] + U[1], FREE, "quadratic"),
    "quadratic in a box": (AFFINE, 0.4 * U[0] ** 2 + (1 + X[0] ** 2) * U[1] ** 2, BOX, "quadratic"),
    "quadratic in a ball": (AFFINE, 0.7 * ca.sumsqr(U) + U[0], BALL, "quadratic"),
    "linear in a box": (AFFINE, X[0] ** 2, BOX, "quadratic"),
    "length in a ball": (AFFINE, X[0] ** 2 + 0.9 * ca.norm_2(U), BALL, "length"),
    "separable in a box": (AFFINE, 0.9 * ca.fabs(U[0]) + (1 + X[0] ** 2) * ca.fabs(U[1]), BOX, "separable"),
    "elastic": (
        AFFINE,
        0.9 * ca.fabs(U[0]) + U[0] ** 2 + 0.3 * U[1] + 0.4 * ca.fabs(U[1]) + 2 * U[1] ** 2,
        FREE,
        "separable",
    ),
    "elastic in a box": (
        AFFINE,
        (1 + X[0] ** 2) * ca.fabs(U[0]) + 0.4 * U[0] ** 2 + 0.5 * ca.fabs(U[1]) - 0.2 * U[1],
        BOX,
        "separable",
    ),
    "one-sided": (AFFINE, ca.sumsqr(U) + ca.fmax(U[0], 0) + ca.if_else(U[1] > 0, U[1], -0.5 * U[1]), FREE, "separable"),
    "curvature in x": (AFFINE, (1 + X[0] ** 2) * U[0] ** 2 + (1 + X[1] ** 2) * U[1] ** 2, BALL, "numeric"),
    "smooth": (AFFINE, ca.cosh(U[0]) + ca.exp(U[1]) + ca.exp(-U[1]), FREE, "numeric"),
    "smooth in a box": (AFFINE, ca.cosh(U[0] + 0.3 * U[1]) + U[1] ** 4 + U[1] ** 2, BOX, "numeric"),
    "smooth in a ball": (AFFINE, ca.cosh(U[0]) + U[1] ** 4 + U[1] ** 2, BALL, "numeric"),
    "coupled in a box": (AFFINE, ca.sumsqr(U) + 1.2 * U[0] * U[1], BOX, "numeric"),
    "anisotropic in a ball": (AFFINE, U[0] ** 2 + 3 * U[1] ** 2, BALL, "numeric"),
    "flow not affine": (ca.vertcat(X[1] + U[0] + 0.1 * ca.sin(U[0]), U[1]), ca.sumsqr(U), FREE, "numeric"),
}


def made(name: str) -> tuple[Minimiser, Callable[..., Any], ControlSet]:
    flow, cost, controls, _ = CASES[name]
    value = ca.Function("H", [X, COSTATE, U], [ca.dot(COSTATE, flow) + cost])
    return minimiser(X, COSTATE, U, flow, cost, controls, "Test"), lambda *a: np.array(value(*a)).squeeze(), controls


def brute_force(value: Callable[[Any], Any], controls: ControlSet) -> Any:
    """The least value from a grid of starts, by a method that needs no derivatives, with a penalty on leaving U."""
    grid = np.stack(np.meshgrid(*[np.linspace(-4, 4, 41)] * 2), axis=-1).reshape(-1, 2)
    grid = np.vstack([controls.project(grid), np.zeros((1, 2))])
    start = grid[np.argmin(value(grid.T))]
    inside = lambda u: controls.project(u[None])[0]  # noqa: E731
    found = minimize(
        lambda u: value(inside(u)) + np.sum((u - inside(u)) ** 2),
        start,
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-14, "maxiter": 4000},
    )
    return value(inside(found.x))


@pytest.mark.parametrize("name", CASES)
def test_the_minimiser_is_as_low_as_brute_force(name: str) -> None:
    found, value, controls = made(name)
    assert found.kind == CASES[name][3]
    random = np.random.default_rng(3)
    x, costate = random.normal(size=(4, 2)), 1.5 * random.normal(size=(4, 2))
    u = found.mapped(4)(x, costate, np.zeros((4, 2)))
    np.testing.assert_allclose(controls.project(u), u, atol=1e-15)
    for k in range(4):
        assert value(x[k], costate[k], u[k]) <= brute_force(lambda v, k=k: value(x[k], costate[k], v), controls) + 1e-9
        np.testing.assert_allclose(found.mapped(1)(x[[k]], costate[[k]], np.zeros((1, 2))), u[[k]], atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_the_residual_is_zero_at_the_minimiser_and_only_there(name: str) -> None:
    found, _, controls = made(name)
    random = np.random.default_rng(4)
    x, costate = random.normal(size=(30, 2)), 1.5 * random.normal(size=(30, 2))
    u = found.mapped(30)(x, costate, np.zeros((30, 2)))
    residual = ca.Function("residual", [X, COSTATE, U], [found.residual]).map(30)
    assert np.abs(np.array(residual(x.T, costate.T, u.T))).max() < 1e-12
    away = controls.project(u + 0.1 * random.choice([-1, 1], size=u.shape))
    moved = np.linalg.norm(away - u, axis=1) > 0.05
    assert moved.sum() > 10
    assert np.linalg.norm(np.array(residual(x.T, costate.T, away.T)), axis=0)[moved].min() > 1e-3


def test_bounds_of_newtons_method_have_laws() -> None:
    """In the box and on the ball the law of the regime holds, and away from the minimiser it does not."""
    for name in ("smooth in a box", "coupled in a box", "smooth in a ball", "anisotropic in a ball"):
        found, _, _ = made(name)
        random = np.random.default_rng(7)
        x, costate = random.normal(size=(40, 2)), 1.5 * random.normal(size=(40, 2))
        u = found.mapped(40)(x, costate, np.zeros((40, 2)))
        digits = [tuple(row) for row in found.regimes(x, costate, u)]
        assert len(set(digits)) > 1
        for row, regime in enumerate(digits):
            law = ca.Function("law", [X, COSTATE, U], [found.law(regime)])
            assert np.abs(np.array(law(x[row], costate[row], u[row]))).max() < 1e-11
            assert np.abs(np.array(law(x[row], costate[row], 0.9 * u[row] + 0.01))).max() > 1e-4


CLOSED = [name for name, case in CASES.items() if case[3] != "numeric"]


@pytest.mark.parametrize("name", CLOSED)
def test_every_regime_has_a_law_that_the_minimiser_obeys(name: str) -> None:
    found, _, _ = made(name)
    random = np.random.default_rng(5)
    x, costate = random.normal(size=(60, 2)), 1.5 * random.normal(size=(60, 2))
    u = found.mapped(60)(x, costate, np.zeros((60, 2)))
    digits = [tuple(row) for row in found.regimes(x, costate)]
    for regime in set(digits):
        rows = [k for k, own in enumerate(digits) if own == regime]
        law = ca.Function("law", [X, COSTATE, U], [found.law(regime)]).map(len(rows))
        assert np.abs(np.array(law(x[rows].T, costate[rows].T, u[rows].T))).max() < 1e-13


@pytest.mark.parametrize(
    "name",
    [
        "quadratic in a box",
        "quadratic in a ball",
        "linear in a box",
        "length in a ball",
        "separable in a box",
        "elastic",
        "elastic in a box",
    ],
)
def test_boundaries_change_sign_where_regimes_change(name: str) -> None:
    found, _, _ = made(name)
    random = np.random.default_rng(6)
    changes = 0
    for _ in range(20):
        start, end, x = random.normal(size=2), 2.0 * random.normal(size=2), random.normal(size=2)
        line = np.linspace(0, 1, 4001)[:, None]
        costate = (1 - line) * start + line * end
        digits = found.regimes(np.tile(x, (4001, 1)), costate)
        for k in np.flatnonzero((np.diff(digits, axis=0) != 0).sum(axis=1) == 1):
            one, other = tuple(digits[k]), tuple(digits[k + 1])
            boundary = ca.Function("b", [X, COSTATE], [found.boundary(one, other)])
            before, after = float(boundary(x, costate[k])), float(boundary(x, costate[k + 1]))
            assert before * after <= 1e-12
            changes += 1
    assert changes > 5


@pytest.mark.parametrize(
    ("cost", "controls"),
    [
        (X[0] ** 2, FREE),
        (-ca.sumsqr(U), FREE),
        (U[0] ** 2, FREE),
        (ca.norm_2(U), FREE),
        (ca.fabs(U[0]) + ca.fabs(U[1]), FREE),
    ],
)
def test_an_unbounded_hamiltonian_is_an_error_that_says_what_is_missing(cost: Any, controls: ControlSet) -> None:
    with pytest.raises(OptionError, match=r"Test: .*unbounded below.*bound"):
        minimiser(X, COSTATE, U, AFFINE, cost, controls, "Test")


@pytest.mark.parametrize(
    "cost",
    [
        ca.sumsqr(U) + 0.05 * ca.fabs(U[0]) + ca.fmax(ca.fabs(U[1]) - 5, 0),
        ca.sumsqr(U) + ca.norm_2(U),
        0.02 * ca.norm_2(U) + 0.03 * ca.norm_1(U),
        ca.sumsqr(U) - 0.3 * ca.fabs(U[0]),
        ca.fabs(U[0] - 0.3) + ca.sumsqr(U),
    ],
)
@pytest.mark.parametrize("controls", [FREE, BOX, BALL])
def test_a_kink_of_another_form_is_an_error_that_says_how_to_smooth_it(cost: Any, controls: ControlSet) -> None:
    with pytest.raises(OptionError, match=r"Test: .*kink in u.*smooth it|Test: .*unbounded below"):
        minimiser(X, COSTATE, U, AFFINE, cost, controls, "Test")


def test_kinks_in_x_alone_are_none() -> None:
    assert not has_kink(ca.fabs(X[0]) * U[0] ** 2 + ca.if_else(X[1] > 0, U[0], 2 * U[1]), U)
    assert has_kink(ca.if_else(U[1] > 0, X[0], X[1]), U)
    assert has_kink(X[0] + ca.fmin(X[1], U[0]), U)
    found = minimiser(X, COSTATE, U, AFFINE, (1 + ca.fabs(X[0])) * ca.sumsqr(U), FREE, "Test")
    assert found.kind == "quadratic"


@pytest.mark.parametrize("cost", [X[0] * ca.sumsqr(U), (X[1] ** 2 - 9) * U[0] ** 2 + U[1] ** 2])
def test_curvature_that_changes_its_sign_with_x_is_refused_without_bounds(cost: Any) -> None:
    with pytest.raises(OptionError, match="unbounded below"):
        minimiser(X, COSTATE, U, AFFINE, cost, FREE, "Test")
    assert minimiser(X, COSTATE, U, AFFINE, cost, BOX, "Test").kind == "numeric"


def test_a_derivative_that_is_no_number_gives_no_number() -> None:
    found = minimiser(X, COSTATE, U, AFFINE, ca.cosh(U[0]) + U[1] ** 2 + ca.sqrt(X[0]) * U[0] ** 4, FREE, "Test")
    u = found.mapped(2)(np.array([[-1.0, 0.0], [-1.0, 0.0]]), np.ones((2, 2)), np.ones((2, 2)))
    assert np.isnan(u).all()


def test_a_flow_without_control_is_an_error() -> None:
    with pytest.raises(OptionError, match="does not depend on the control"):
        minimiser(X, COSTATE, U, ca.vertcat(X[1], X[0]), ca.sumsqr(U), FREE, "Test")
