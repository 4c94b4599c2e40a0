"""Measurement noise in closed loops and in studies of tracking laws, against covariances of linear systems."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.solution.closed_loop import ClosedLoop

pytestmark = pytest.mark.quick

PERIOD, SAMPLES = 0.1, 500
# A mass under a control that is constant over a period: x+ = A x + B u.
A, B = np.array([[1.0, PERIOD], [0.0, 1.0]]), np.array([[PERIOD**2 / 2], [PERIOD]])
GAIN = np.array([[2.0, 2.0]])


def mass() -> ns.CLS:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    return ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("far", gap=1e3 - q)])


def loop(noise, **more) -> ClosedLoop:
    return ns.close_loop(lambda t, x: -GAIN @ x, mass(), PERIOD * SAMPLES, [0, 0], period=PERIOD, noise=noise, **more)


def spread(gains, sigma: np.ndarray) -> np.ndarray:
    """Standard deviations of x+ = A x - B K (x + noise) after these gains, from a state without error."""
    P = np.zeros((2, 2))
    for K in gains:
        closed, injected = A - B @ K, B @ K @ np.diag(sigma)
        P = closed @ P @ closed.T + injected @ injected.T
    return np.sqrt(np.diag(P))


@pytest.mark.parametrize("sigma", [(0.1, 0.1), (0.2, 0.2), (0.3, 0.0)])
def test_a_loop_wanders_as_the_covariance_of_its_noise(sigma):
    """The deviations of 500 samples are those of the Lyapunov equation within 25 %."""
    named = {name: size for name, size in zip(("q_0", "v_0"), sigma, strict=True) if size}
    noise = sigma[0] if sigma[0] == sigma[1] else named
    log = loop(noise, seed=1)
    errors = log.measured - log.x[:-1]
    assert errors.std(axis=0) == pytest.approx(np.array(sigma), rel=0.1)
    assert np.abs(errors.mean(axis=0)).max() <= 4.0 * max(sigma) / np.sqrt(SAMPLES)
    # White: neither a sample nor a state knows another one.
    assert abs(np.corrcoef(errors[1:, 0], errors[:-1, 0])[0, 1]) < 4.0 / np.sqrt(SAMPLES)
    if sigma[1]:
        assert abs(np.corrcoef(errors.T)[0, 1]) < 4.0 / np.sqrt(SAMPLES)
    expected = spread([GAIN] * 400, np.array(sigma))
    assert log.x[50:].std(axis=0) == pytest.approx(expected, rel=0.25)


def test_without_noise_a_loop_stays_where_it_is():
    log = loop(None)
    assert np.abs(log.x).max() < 1e-12
    assert log.measured == pytest.approx(log.x[:-1], abs=1e-12)


def test_noise_is_that_of_the_seed():
    first, again, other = (loop(0.1, seed=seed).measured for seed in (1, 1, 2))
    assert first == pytest.approx(again, abs=1e-12)
    assert np.abs(first - other).max() > 0.1


def test_noise_as_a_function_adds_to_the_state():
    log = loop(lambda t, x, rng: [0.2 * np.sin(t), rng.normal()])
    assert log.measured[:, 0] - log.x[:-1, 0] == pytest.approx(0.2 * np.sin(log.t[:-1]), abs=1e-12)
    assert (log.measured - log.x[:-1])[:, 1].std() == pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize("sigma", [(0.03, 0.03), (0.0, 0.1)])
def test_a_study_of_a_tracking_law_ends_with_the_covariance_of_its_noise(sigma):
    """The deviations of the ends of 60 draws are within 30 % (three standard errors) of those of the linear system."""
    law = ns.track(ns.simulate(mass(), x0=[0, 0], duration=1.0, u=1.0), period=PERIOD)
    noise = sigma[0] if sigma[0] == sigma[1] else {"v_0": sigma[1]}
    study = law.robustness(noise=noise, n=60, seed=2)
    expected = spread(law.gains, np.array(sigma))
    assert study.tracked.std(axis=0) == pytest.approx(expected, rel=0.3)
    # The open loop does not measure, and without noise there is one draw, which ends on the plan.
    assert np.abs(study.open_loop).max() < 1e-6
    silent = law.robustness(n=60, seed=2)
    assert silent.tracked.shape == (1, 2)
    assert np.abs(silent.tracked).max() < 1e-6
    assert np.abs(study.tracked).max() > 100.0 * np.abs(silent.tracked).max()


def test_an_impact_does_not_hide_the_noise():
    """A cart that bounces off a wall under its tracking law ends farther from the plan with more noise."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q, restitution=0.8)])
    law = ns.track(ns.simulate(cart, x0=[0, 2], duration=1.0, u=0.5), period=PERIOD)
    medians = [np.median(law.robustness(noise=sigma, n=15, seed=3).errors) for sigma in (None, 0.02, 0.08)]
    assert medians[0] < 1e-4
    assert medians[1] > 10.0 * medians[0]
    assert medians[2] > 2.0 * medians[1]


def test_draws_in_processes_are_the_same():
    """The random numbers do not depend on the process that uses them: equal to the last bit."""
    law = ns.track(ns.simulate(mass(), x0=[0, 0], duration=1.0, u=1.0), period=PERIOD)
    one, two = (law.robustness(noise=0.02, n=4, seed=3, workers=workers) for workers in (1, 2))
    assert np.array_equal(one.starts, two.starts)
    assert np.array_equal(one.tracked, two.tracked)
    assert np.array_equal(one.open_loop, two.open_loop)
