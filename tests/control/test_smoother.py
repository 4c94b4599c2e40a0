"""The smoother against that of Rauch, Tung and Striebel, closed forms, and the truth of simulated data."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from tests.control.test_filters import ball, pushed_mass

METHOD = ns.EventDriven(grazing="continue", rtol=1e-8, atol=1e-10)


def test_a_linear_system_is_smoothed_as_by_rauch_tung_and_striebel() -> None:
    h, sigma, count, rng = 0.1, 0.05, 8, np.random.default_rng(1)
    A, B, H = np.array([[1, h], [0, 1]]), np.array([[h * h / 2], [h]]), np.array([[1.0, 0.0]])
    values = h * np.arange(1, count + 1) + sigma * rng.standard_normal(count)
    noise = 0.25 * B @ B.T
    means, covariances, predicted = [np.array([0.1, 0.8])], [np.diag([0.04, 0.09])], []
    for y in values:
        x, S = A @ means[-1] + B[:, 0] * 0.2, A @ covariances[-1] @ A.T + noise
        predicted.append((x, S))
        gain = S @ H.T / (S[0, 0] + sigma**2)
        means.append(x + gain[:, 0] * (y - x[0]))
        covariances.append(S - gain @ H @ S)
    for k in range(count - 1, -1, -1):
        x, S = predicted[k]
        gain = covariances[k] @ A.T @ np.linalg.inv(S)
        means[k] = means[k] + gain @ (means[k + 1] - x)
        covariances[k] = covariances[k] + gain @ (covariances[k + 1] - S) @ gain.T
    data = ns.Measurements(h * np.arange(1, count + 1), {"q_0": values}, sigma=sigma)
    smoothed = ns.smooth(
        pushed_mass(), data, prior={"q_0": (0.1, 0.2), "v_0": (0.8, 0.3)}, disturbances={"u_0": 0.5}, u=[0.2], starts=1
    )
    assert smoothed.success
    expected = np.array(means), np.sqrt([np.diag(S) for S in covariances])
    nodes = np.append(0, smoothed.measured)
    assert smoothed.x[nodes] == pytest.approx(expected[0], abs=1e-8)
    assert smoothed.std[nodes] == pytest.approx(expected[1], abs=1e-8)
    assert smoothed.upper[nodes] == pytest.approx(expected[0] + 1.959964 * expected[1], abs=1e-6)


def test_the_last_state_is_that_of_the_filter() -> None:
    """Away from impacts both know the same; the smoother knows it of all times."""
    sigma, t = 0.002, 0.04 * np.arange(1, 20)
    rng = np.random.default_rng(2)
    heights = ns.simulate(ball(), x0=[0.5, 0.0], duration=0.76, p=[0.8, 0.01], times=t)(t)[:, 0]
    heights = heights + sigma * rng.standard_normal(t.size)
    kalman = ns.Filter(
        ball(), sigma={"height": sigma}, period=0.04, x0=[0.5, 0.0], x0_std=0.005, free={"e": 0.02, "floor": 0.02}
    )
    for height in heights:
        kalman.step({"height": height})
    prior = {"height": (0.5, 0.005), "speed": (0.0, 0.005), "e": (0.8, 0.02), "floor": (0.0, 0.02)}
    data = ns.Measurements(t, {"height": heights}, sigma=sigma)
    smoothed = ns.smooth(ball(), data, prior=prior, free={"e": (0, 1)}, starts=1, method=METHOD)
    assert smoothed.x[-1] == pytest.approx(kalman.x, abs=0.3 * kalman.std["speed"])
    for name in ("e", "floor"):
        assert smoothed.std_of[name] == pytest.approx(kalman.std[name], rel=0.1)
    # The impact is known better than one sample tells, sigma / speed.
    assert smoothed.event_std[0] < sigma / 3.0


def test_the_interval_of_a_time_of_impact_in_closed_form() -> None:
    """One measurement of a falling ball: the impact is at h / 2 for a speed of -2 that is known, without gravity."""
    data = ns.Measurements([0.1, 0.3], {"height": [0.2, np.nan]}, sigma=0.01)
    smoothed = ns.smooth(ball(force=0), data, free={"height": (0.3, 0.6)}, x0=[0.0, -2.0], starts=1, level=0.9)
    assert smoothed.values["height"] == pytest.approx(0.4)
    assert smoothed.event_std == pytest.approx([0.005])
    assert smoothed.event_intervals[0] == pytest.approx([0.2 - 1.644854 * 0.005, 0.2 + 1.644854 * 0.005])
    # 0.8 of the speed upwards, and as much of the error of the height downwards.
    assert smoothed.std[-1] == pytest.approx([0.008, 0.0], abs=1e-9)


def test_close_to_an_impact_an_interval_covers_both_sides() -> None:
    t = np.array([0.1, 0.199, 0.201, 0.3])
    data = ns.Measurements(t, {"height": [0.2, np.nan, np.nan, np.nan]}, sigma=0.01)
    smoothed = ns.smooth(ball(force=0), data, free={"height": (0.3, 0.6)}, x0=[0.0, -2.0], starts=1)
    low, high = smoothed.lower[smoothed.measured, 1], smoothed.upper[smoothed.measured, 1]
    assert low == pytest.approx([-2.0, -2.0, -2.0, 1.6])
    assert high == pytest.approx([-2.0, 1.6, 1.6, 1.6])


def test_noise_that_is_not_known_is_estimated() -> None:
    """Intervals of Student's t: a line through four points, in the textbook."""
    x, v = ca.SX.sym("x"), ca.SX.sym("v")
    line = ns.ODE(x=ca.vertcat(x, v), flow=ca.vertcat(v, 0), names={"x": ["x", "v"]})
    t, y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 1.2, 1.9, 3.1])
    smoothed = ns.smooth(line, ns.Measurements(t, {"x": y}), free={"x": (-9, 9), "v": (-9, 9)}, starts=1)
    slope = ((t - 1.5) @ y) / 5.0
    residual = y - y.mean() - slope * (t - 1.5)
    half = 4.302653 * np.sqrt(residual @ residual / 2 / 5.0)
    assert smoothed.intervals["v"] == pytest.approx((slope - half, slope + half), rel=1e-5)


def test_intervals_cover_the_truth() -> None:
    """12 data sets of a ball; several hundred are in `problems.benchmarks.contact_filters`."""
    covered = []
    t = 0.05 * np.arange(1, 16)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        true = np.array([1.0, 0.0, 0.8, 0.0]) + np.array([0.05, 0.05, 0.03, 0.03]) * rng.standard_normal(4)
        motion = ns.simulate(ball(), x0=true[:2], duration=0.75, p=true[2:], times=t, method=METHOD)
        data = ns.Measurements(t, {"height": motion(t)[:, 0] + 0.003 * rng.standard_normal(15)}, sigma=0.003)
        prior = {"height": (1.0, 0.05), "speed": (0.0, 0.05), "e": (0.8, 0.03), "floor": (0.0, 0.03)}
        smoothed = ns.smooth(ball(), data, prior=prior, free={"e": (0, 1)}, starts=1, method=METHOD)
        named = zip(("height", "speed", "e", "floor"), true, strict=True)
        covered += [smoothed.intervals[name][0] <= value <= smoothed.intervals[name][1] for name, value in named]
        low, high = smoothed.event_intervals[0]
        covered.append(low <= motion.events[0].time <= high)
    # 60 intervals: 95 % of them, give or take three standard deviations.
    assert 0.86 < np.mean(covered) <= 1.0


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({}, "given none"),
        ({"free": {"e": (0, 1)}, "x0": [1, 0], "level": 1.0}, "level"),
        ({"prior": {"e": 0.5}, "x0": [1, 0]}, "standard deviation"),
        ({"prior": {"mass": (1, 1)}, "x0": [1, 0]}, "mass"),
        ({"free": {"e": (0, 1)}, "x0": [1, 0], "disturbances": {"thrust": 1.0}}, "thrust"),
    ],
)
def test_what_a_smoother_cannot_use_is_said(more: dict[str, Any], word: str) -> None:
    with pytest.raises(OptionError, match=word):
        ns.smooth(ball(), ns.Measurements([0.1], {"height": [1.0]}, sigma=0.1), **more)


def test_a_prior_without_noise_of_the_data_is_an_error():
    x = ca.SX.sym("x")
    still = ns.ODE(x=x, flow=0 * x, names={"x": ["level"]})
    data = ns.Measurements([0.1, 0.2], {"level": [1.0, 1.1]})
    with pytest.raises(ns.OptionError, match="sigma"):
        ns.smooth(still, data, prior={"level": (0.0, 0.2)})
