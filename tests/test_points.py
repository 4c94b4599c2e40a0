"""Costs and constraints at chosen times: closed forms by several methods, a fit to noisy samples, mistakes."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import least_squares

import nosnoc_py as ns


def cart(**more: Any) -> ns.OCP:
    """x' = u from 0 to 0 in 2 s with the least effort."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    system = ns.ODE(x=x, u=u, flow=u, names={"x": ["x"]})
    asked = {name: made(x) for name, made in more.items()}
    return ns.OCP(system, horizon=2.0, x0=[0.0], stage_cost=u**2, terminal_state={"x": 0.0}, **asked)


METHODS = {
    "fesd": ns.FESD(control_stages=4, finite_elements=1),
    "phases": ns.MultiPhase(intervals=4),
    "uneven": ns.MultiPhase(intervals=3),
}


@pytest.mark.quick
@pytest.mark.parametrize("method", list(METHODS))
def test_a_point_on_the_way(method: str) -> None:
    """Through x(1.5) = 1: rates 2/3 and -2, which cost (2/3)^2 1.5 + 4 / 2 = 8/3 where the control may jump at 1.5."""
    ocp = cart(point_constraints=lambda x: [ns.Constraint(x, equals=1.0, times=[1.5])])
    solution = ns.solve(ocp, METHODS[method])
    assert solution(1.5)[0] == pytest.approx(1.0, abs=1e-8)
    assert solution.certificate is not None
    assert solution.certificate.confirmed
    if method == "uneven":  # the interval from 4/3 on has one control
        assert solution.objective > 8 / 3 + 0.1
    else:
        assert solution.objective == pytest.approx(8 / 3, rel=1e-7)


@pytest.mark.quick
@pytest.mark.parametrize("method", list(METHODS))
def test_least_squares_at_two_times(method: str) -> None:
    """J = y1^2 + (y2 - y1)^2 + y2^2 + w (y1 - 1)^2 + w (y2 - 2)^2 with x(0.5), x(1.5) = y: a linear system."""
    w = 3.0
    ocp = cart(point_costs=lambda x: [ns.PointCost([0.5, 1.5], x, [1.0, 2.0], weights=w)])
    solution = ns.solve(ocp, METHODS[method])
    a = np.array([[2.0 + 1.0 + w, -1.0], [-1.0, 1.0 + 2.0 + w]])
    y = np.linalg.solve(a, w * np.array([1.0, 2.0]))
    cost = 2 * y[0] ** 2 + (y[1] - y[0]) ** 2 + 2 * y[1] ** 2 + w * ((y - [1.0, 2.0]) ** 2).sum()
    if method == "uneven":
        assert solution.objective > cost + 1e-3
    else:
        assert solution.objective == pytest.approx(cost, rel=1e-7)
        np.testing.assert_allclose([solution(t)[0] for t in (0.5, 1.5)], y, atol=1e-6)
    assert solution.certificate is not None
    assert solution.certificate.confirmed
    assert solution.certificate.true_objective == pytest.approx(solution.objective, rel=1e-6)
    # Other measurements are another problem, and the certificate says so.
    other = cart(point_costs=lambda x: [ns.PointCost([0.5, 1.5], x, [1.0, 2.5], weights=w)])
    assert ns.certify(other, solution).verdict is ns.Verdict.REFUTED


@pytest.mark.quick
def test_what_was_not_measured_counts_nothing() -> None:
    given = [[1.0, np.nan], [np.nan, 2.0]]
    ocp = cart(point_costs=lambda x: [ns.PointCost([0.5, 1.5], ca.vertcat(x, x), given, weights=3.0)])
    plain = cart(point_costs=lambda x: [ns.PointCost([0.5, 1.5], x, [1.0, 2.0], weights=3.0)])
    method = METHODS["fesd"]
    assert ns.solve(ocp, method).objective == pytest.approx(ns.solve(plain, method).objective, rel=1e-9)


@pytest.mark.quick
def test_a_constraint_that_is_broken_is_found_by_the_certificate() -> None:
    loose = cart(point_constraints=lambda x: [ns.Constraint(x, lower=0.5, times=[1.0])])
    strict = cart(point_constraints=lambda x: [ns.Constraint(x, lower=0.6, times=[1.0])])
    solution = ns.solve(loose, METHODS["fesd"])
    assert solution.objective == pytest.approx(0.5, rel=1e-6)
    assert ns.certify(strict, solution).verdict is ns.Verdict.REFUTED


@pytest.mark.quick
def test_an_exact_fit_is_confirmed() -> None:
    """Its cost is rounding, and what rounding is said to be is no claim."""
    x, k = ca.SX.sym("x"), ca.SX.sym("k")
    times = np.array([0.0, 0.25, 0.5, 1.0])
    decay = ns.ODE(x=x, p=k, flow=-k * x, names={"p": ["k"]}, p_default=[1.0])
    cost = ns.PointCost(times, x, np.exp(-2 * times))
    ocp = ns.OCP(decay, horizon=1.0, x0=[1.0], point_costs=[cost], free_parameters={"k": (0.1, 9)})
    solution = ns.solve(ocp, ns.MultiPhase())
    assert solution.p[0] == pytest.approx(2.0, abs=1e-8)
    assert solution.certificate is not None
    assert solution.certificate.confirmed
    shifted = ns.PointCost(times, x, np.exp(-2 * times) + 1e-3)
    other = ns.OCP(decay, horizon=1.0, x0=[1.0], point_costs=[shifted], free_parameters={"k": (0.1, 9)})
    assert ns.certify(other, solution).verdict is ns.Verdict.REFUTED


def puck() -> ns.CLS:
    q, v, e, mu = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("e"), ca.SX.sym("mu")
    floor = ns.Contact("floor", gap=q[1], tangent=ca.SX([1, 0]), friction=mu, restitution=e)
    return ns.CLS(
        q=q, v=v, p=ca.vertcat(e, mu), mass_matrix=ca.SX.eye(2), force=ca.vertcat(0, -9.81), contacts=[floor],
        names={"q": ["x", "y"], "p": ["e", "mu"]}, p_default=[0.5, 0.3],
    )  # fmt: skip


def test_restitution_and_friction_of_a_bouncing_puck_from_noisy_samples() -> None:
    """75 positions, 5 mm of noise: the estimate of least squares round a simulator, within three deviations."""
    system, x0, noise, times = puck(), [0.0, 1.0, 2.5, 0.0], 5e-3, np.linspace(0.02, 1.5, 75)
    truth = np.array([0.65, 0.18])

    def seen(p: Any) -> np.ndarray:
        motion = ns.simulate(system, x0=x0, duration=1.5, p=p)
        return np.array([motion(t)[:2] for t in times])

    measured = seen(truth) + noise * np.random.default_rng(3).standard_normal((75, 2))
    cost = ns.PointCost(times, system.q, measured, weights=1 / noise**2)
    ocp = ns.OCP(system, horizon=1.5, x0=x0, point_costs=[cost], free_parameters={"e": (0.1, 0.95), "mu": (0.0, 1.0)})
    # The first starts find it; the search goes on for a while because no other kind of start does.
    solution = ns.solve(ocp, callback=lambda state: ns.Stop if len(state.candidates) > 1 else None)
    reference = least_squares(lambda p: (seen(p) - measured).ravel() / noise, [0.64, 0.2], diff_step=1e-5)
    deviations = np.sqrt(np.diag(np.linalg.inv(reference.jac.T @ reference.jac)))
    np.testing.assert_allclose(solution.p, reference.x, rtol=0, atol=0.02 * deviations.min())
    assert (np.abs(solution.p - truth) < 3 * deviations).all()
    assert solution.objective == pytest.approx(2 * reference.cost, rel=1e-6)
    assert solution.certificate is not None
    assert solution.certificate.confirmed


@pytest.mark.quick
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda x: ns.PointCost([], x), "one or more that increase"),
        (lambda x: ns.PointCost([0.5, 0.5], x), "one or more that increase"),
        (lambda x: ns.PointCost(["soon"], x), "PointCost: times: expected numbers"),
        (lambda x: ns.PointCost([0.5], ca.vertcat(x, x)), "without values the expression has to be one number"),
        (lambda x: ns.PointCost([0.5], x, [1.0, 2.0]), r"for each of the 1 times, given an array of shape \(2, 1\)"),
        (lambda x: ns.PointCost([0.5], x, ["a"]), "values: expected numbers"),
        (lambda x: ns.PointCost([0.5], x, None, 5.0), "weights= needs values="),
        (lambda x: ns.PointCost([0.5], x <= 1), "a comparison is not a cost"),
        (lambda x: ns.PointCost([0.5], x, [1.0], weights=-1.0), "nonnegative"),
        (lambda x: cart(point_costs=lambda _: [ns.PointCost([3.0], x)]), "depends on"),
        (lambda x: cart(point_costs=lambda x: [ns.PointCost([3.0], x)]), "beyond the horizon, 2 s"),
        (lambda x: cart(point_costs=lambda x: [x]), r"ns\.PointCost"),
        (lambda x: cart(point_constraints=lambda x: [x <= 1]), "has times"),
        (lambda x: cart(path_constraints=lambda x: [ns.Constraint(x, 0, times=[1])]), "point_constraints="),
    ],
)
def test_mistakes(make: Any, said: str) -> None:
    with pytest.raises(ns.ModelError, match=said):
        make(ca.SX.sym("x"))


@pytest.mark.quick
def test_what_does_not_take_them() -> None:
    ocp = cart(point_costs=lambda x: [ns.PointCost([0.4], x)])
    with pytest.raises(ns.OptionError, match=r"t = 0.4 s is not at the end of one of 4 equal control stages"):
        ns.transcribe(ocp, METHODS["fesd"])
    horizon = ns.FreeTime(1.0, 3.0)
    x = ca.SX.sym("x")
    with pytest.raises(ns.ModelError, match="need a horizon that is a number"):
        ns.OCP(ns.ODE(x=x, flow=-x), horizon=horizon, x0=[1.0], point_costs=[ns.PointCost([0.5], x)])
