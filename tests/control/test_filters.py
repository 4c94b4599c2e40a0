"""Filters through contacts against Kalman's, closed forms, and the published salted filter."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy import stats

import nosnoc_py as ns
from nosnoc_py.control.beliefs import Belief, distance, merged, moments, truncated, unscented
from nosnoc_py.errors import ModelError, OptionError
from tests.references.salted_filter import SaltedFilter

Q, V, U, P = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u"), ca.SX.sym("p", 2)
NAMES = {"q": ["height"], "v": ["speed"], "p": ["e", "floor"]}


def ball(force: Any = -10.0) -> ns.CLS:
    """A ball over a floor of uncertain height and restitution."""
    ground = ns.Contact("ground", gap=Q - P[1], restitution=P[0])
    return ns.CLS(q=Q, v=V, p=P, p_default=[0.8, 0.0], mass_matrix=1, force=force, contacts=[ground], names=NAMES)


def pushed_mass() -> ns.CLS:
    return ns.CLS(q=Q, v=V, u=U, mass_matrix=1, force=U, contacts=[ns.Contact("far", gap=100 - Q)])


def seen_ball(seed: int, count: int, period: float, sigma: float, floor_std: float) -> tuple[Any, Any, float]:
    """Return measured heights, true states and the true floor of a ball that starts near (1, 0)."""
    rng = np.random.default_rng(seed)
    x0, floor = np.array([1.0, 0.0]) + 0.05 * rng.standard_normal(2), floor_std * rng.standard_normal()
    t = period * np.arange(1, count + 1)
    states = ns.simulate(ball(), x0=x0, duration=float(t[-1]), p=[0.8, floor], times=t)(t)
    return states[:, 0] + sigma * rng.standard_normal(count), states, floor


class TestLinear:
    @pytest.mark.parametrize("kind", ["ekf", "ukf"])
    def test_a_linear_system_is_filtered_as_by_kalman(self, kind: Any) -> None:
        h, sigma, rng = 0.1, 0.05, np.random.default_rng(0)
        kalman = ns.Filter(
            pushed_mass(), sigma={"q_0": sigma}, period=h, x0=[0.1, 0.8], x0_std=0.3, kind=kind, process=[0.01, 0.2],
            control_std=0.5,
        )  # fmt: skip
        A, B, H = np.array([[1, h], [0, 1]]), np.array([[h * h / 2], [h]]), np.array([[1.0, 0.0]])
        x, S = np.array([0.1, 0.8]), 0.09 * np.eye(2)
        noise = np.diag([1e-4, 0.04]) * h + 0.25 * B @ B.T
        for k in range(12):
            y, u = h * (k + 1) + sigma * rng.standard_normal(), np.sin(k)
            x, S = A @ x + B[:, 0] * u, A @ S @ A.T + noise
            own = S[0, 0] + sigma**2
            nis, gain = (y - x[0]) ** 2 / own, S @ H.T / own
            x, S = x + gain[:, 0] * (y - x[0]), S - gain @ H @ S
            assert kalman.step({"q_0": y}, u=[u]) == pytest.approx(x, abs=1e-12)
            assert kalman.covariance == pytest.approx(S, abs=1e-12)
            assert kalman.last is not None
            assert kalman.last.nis == pytest.approx(nis, abs=1e-9)
            assert kalman.last.flags == ()
            assert kalman.last.simulations == (1 if kind == "ekf" else 8)  # one of them for the contact ahead

    def test_missing_values_and_times_of_ones_own(self) -> None:
        x = ca.SX.sym("x")
        system = ns.ODE(x=x, flow=ca.SX(0), names={"x": ["x"]})
        kalman = ns.Filter(system, sigma={"x": 0.5}, period=1.0, x0=[0.0], x0_std=2.0, process=0.3)
        kalman.step({"x": 1.0}, t=0.0)  # at the start: nothing moves
        gain = 4 / 4.25
        assert kalman.x == pytest.approx([gain])
        kalman.step({"x": np.nan}, t=0.25)
        kalman.step({}, t=2.0)
        assert kalman.std["x"] ** 2 == pytest.approx((1 - gain) * 4 + 0.09 * 2.0)
        assert np.isnan(kalman.last.nis)  # type: ignore[union-attr]
        with pytest.raises(ModelError, match="from that of the last step on"):
            kalman.step({"x": 1.0}, t=1.0)


class TestContacts:
    def test_one_impact_in_closed_form(self) -> None:
        """The time of an impact and the state behind it, linear in height, speed, restitution and floor."""
        kalman = ns.Filter(
            ball(), sigma={"height": 1e3}, period=0.5, x0=[0.8, 0.0], x0_std=[0.01, 0.02],
            free={"e": 0.03, "floor": 0.005}, method=ns.EventDriven(grazing="continue"),
        )  # fmt: skip
        kalman.step({})
        # dt* = (dh - dfloor) / 4 + t* dv / 4;  v+ = e (4 + 10 dt* - dv) - 10 (t - t*) and so on, at t* = 0.4 s.
        dt = np.array([0.25, 0.1, 0.0, -0.25])
        hit = -np.array([0.0, 1.0, 0.0, 0.0]) + 10 * dt
        leave = 0.8 * hit + 4 * np.array([0, 0, 1.0, 0])
        rows = np.array([np.array([0, 0, 0, 1.0]) - 3.2 * dt + 0.1 * leave + 0.1 * 10 * dt, leave + 10 * dt])
        std = np.array([0.01, 0.02, 0.03, 0.005])
        assert kalman.x == pytest.approx([0.32 - 0.05, 3.2 - 1.0], abs=1e-9)
        assert kalman.covariance[:2, :2] == pytest.approx((rows * std**2) @ rows.T, rel=1e-7)
        assert kalman.last is not None
        assert kalman.last.events[0].time == pytest.approx(0.4)
        assert kalman.last.event_std == pytest.approx([np.sqrt((dt**2 * std**2).sum())], rel=1e-7)

    def test_points_through_their_own_impacts_agree_for_small_deviations(self) -> None:
        covariances = []
        for kind in ("ekf", "ukf"):
            kalman = ns.Filter(
                ball(), sigma={"height": 1e3}, period=0.5, x0=[0.8, 0.0], x0_std=1e-4, kind=kind,  # type: ignore[arg-type]
                free={"e": 1e-4, "floor": 1e-4},
            )  # fmt: skip
            kalman.step({})
            covariances.append(kalman.covariance)
        assert covariances[1] == pytest.approx(covariances[0], abs=1e-3 * np.abs(covariances[0]).max())

    def test_a_body_at_rest_stays_on_its_floor(self) -> None:
        """Where a body rests, its height is that of the floor: both are measured together, and noise moves neither."""
        resting = ns.CLS(
            q=Q, v=V, p=P, p_default=[0.0, 0.0], mass_matrix=1, force=-10, names=NAMES,
            contacts=[ns.Contact("ground", gap=Q - P[1], restitution=P[0])],
        )  # fmt: skip
        kalman = ns.Filter(
            resting, sigma={"height": 0.01}, period=0.1, x0=[0.0, 0.0], x0_std=0.0, free={"floor": 0.02}, process=0.5
        )
        precision = 1 / 0.02**2
        for k in range(1, 5):
            kalman.step({"height": 0.01})
            total = precision + k / 0.01**2
            assert kalman.x == pytest.approx([0.01 * k / 0.01**2 / total, 0.0], abs=1e-12)
            assert kalman.p[1] == pytest.approx(kalman.x[0], abs=1e-12)
            assert kalman.std["floor"] == pytest.approx(1 / np.sqrt(total), rel=1e-9)
            assert kalman.std["speed"] == pytest.approx(0.0, abs=1e-12)
            assert kalman.last is not None
            assert (kalman.last.mode, kalman.last.events) == (("ground",), ())

    def test_scattered_places_are_forgotten_when_they_are_approached_again(self) -> None:
        kalman = ns.Filter(
            ball(), sigma={"height": 0.01}, period=0.1, x0=[0.5, -2.0], x0_std=0.01, scattered={"floor": 0.05}
        )
        truth = ns.simulate(ball(), x0=[0.5, -2.0], duration=1.0, p=[0.8, 0.04], times=0.1 * np.arange(1, 11))
        stds = []
        for t in 0.1 * np.arange(1, 8):
            kalman.step({"height": float(truth(t)[0])})
            stds.append((truth(t)[1] > 0, kalman.std["floor"], kalman.p[1]))
        rising = [(std, floor) for up, std, floor in stds if up]
        # The impact tells the height of the floor (0.04), which is another one for the next impact.
        assert rising[-1][0] < 0.01
        assert rising[-1][1] == pytest.approx(0.04, abs=0.015)
        assert stds[-1] == (False, pytest.approx(0.05), pytest.approx(0.0))

    def test_an_impact_is_undecided_until_the_speed_tells(self) -> None:
        """At the instant of the impact the height tells nothing; one sample later it does, whatever the truth is."""
        for later in (True, False):
            kalman = ns.Filter(ball(), sigma={"height": 0.005}, period=0.1, x0=[0.25, -2.0], x0_std=[0.005, 0.02],
                               free={"floor": 0.03}, p=[0.8, 0.0])  # fmt: skip
            floor = -0.004 if later else 0.004
            truth = ns.simulate(ball(), x0=[0.25, -2.0], duration=0.4, p=[0.8, floor], times=0.1 * np.arange(1, 5))
            first = None
            for t in 0.1 * np.arange(1, 5):
                kalman.step({"height": float(truth(t)[0])})
                step = kalman.last
                assert step is not None
                first = step if first is None and len(step.weights) > 1 else first
            assert first is not None
            assert any("undecided: ground" in flag for flag in first.flags)
            # Their speeds differ by 1.8 times the speed of the impact, and the covariance says so.
            assert first.std["speed"] > 1.0
            assert len(step.weights) == 1
            assert kalman.x == pytest.approx(truth(0.4), abs=4 * step.std["speed"])
            assert abs(kalman.p[1] - floor) < 4 * step.std["floor"]

    def test_an_unexpected_impact_is_found(self) -> None:
        """A wall that is 5 standard deviations nearer than it is believed to be."""
        wall = ns.Contact("wall", gap=P[1] - Q, restitution=0.5)
        cart = ns.CLS(q=Q, v=V, p=P, p_default=[0, 1.0], mass_matrix=1, force=0, contacts=[wall], names=NAMES)
        measured = {"height": 0.002, "speed": 0.02}
        kalman = ns.Filter(cart, sigma=measured, period=0.1, x0=[0.0, 1.0], x0_std=0.002, free={"floor": 0.02})
        truth = ns.simulate(cart, x0=[0.0, 1.0], duration=1.2, p=[0, 0.88], times=0.1 * np.arange(1, 13))
        flags = []
        for t in 0.1 * np.arange(1, 13):
            kalman.step(dict(zip(measured, map(float, truth(t)), strict=True)))
            assert kalman.last is not None
            flags += kalman.last.flags
        assert any(flag.startswith("unexpected: wall before") for flag in flags)
        assert "no motion explains the innovation" not in flags
        assert kalman.x == pytest.approx(truth(1.2), abs=0.02)
        assert kalman.p[1] == pytest.approx(0.88, abs=0.02)

    def test_neither_lost_nor_doubled(self) -> None:
        """Over eight impacts the mean has as many as the truth, although half of the corrections move it."""
        for seed in range(3):
            heights, states, _ = seen_ball(seed, 80, 0.04, 0.01, 0.05)
            kalman = ns.Filter(
                ball(), sigma={"height": 0.01}, period=0.04, x0=[1, 0], x0_std=0.05, free={"floor": 0.05}
            )
            speeds = []
            for height in heights:
                kalman.step({"height": height})
                speeds.append(kalman.x[1])
            turns = (np.diff(np.sign(states[:, 1])) > 0).sum()
            assert abs((np.diff(np.sign(speeds)) > 0).sum() - turns) <= 1
            assert kalman.x == pytest.approx(states[-1], abs=0.1)

    def test_draws_are_on_both_sides_of_an_undecided_impact(self) -> None:
        kalman = ns.Filter(ball(), sigma={"height": 0.005}, period=0.1, x0=[0.25, -2.0], x0_std=[0.005, 0.02],
                           free={"floor": 0.03}, p=[0.8, 0.0])  # fmt: skip
        kalman.step({"height": 0.004})
        drawn = kalman.draws(2000, 1)
        assert kalman.last is not None
        falling = kalman.last.weights[0] if kalman.x[1] < 0 else kalman.last.weights[1]
        assert np.mean(drawn[:, 1] < 0) == pytest.approx(falling, abs=0.04)
        assert (np.abs(drawn[:, 1]) > 2.0).all()  # none between both speeds
        center = np.append(kalman.x, kalman.p[1])
        assert (drawn - center).T @ (drawn - center) / 2000 == pytest.approx(kalman.covariance, rel=0.15, abs=1e-3)

    def test_a_switch_that_slides_has_no_variance_across(self) -> None:
        """x' = -sign(x) + w reaches 0 and stays: a Filippov system; the time of arrival carries the variance of y."""
        x = ca.SX.sym("x", 2)
        flows = ca.SX([-1, 1]), ca.SX([1, 0])
        modes = ns.Modes("side", flows=flows, functions=x[0], signs=[[1], [-1]])
        relay = ns.PSS(x=x, modes=[modes], names={"x": ["x", "y"]})
        kalman = ns.Filter(relay, sigma={"y": 0.5}, period=1.0, x0=[0.5, 0.0], x0_std=[0.03, 0.04])
        kalman.step({})
        # y grows by 1 before the arrival, at 0.5 + dx, and by 1 / 2 while it slides.
        assert kalman.x == pytest.approx([0.0, 0.75], abs=1e-9)
        assert kalman.std["x"] == pytest.approx(0.0, abs=1e-9)
        assert kalman.std["y"] == pytest.approx(np.hypot(0.5 * 0.03, 0.04), rel=1e-7)

    def test_friction_is_estimated_from_a_block_that_slides(self) -> None:
        """Its place after t is v t - mu g t^2 / 2, and one measurement tells mu: a linear problem."""
        q, v, mu = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("mu")
        ground = ns.Contact("ground", gap=q[1], tangent=ca.SX([1, 0]), friction=mu)
        block = ns.CLS(
            q=q, v=v, p=mu, p_default=[0.3], mass_matrix=ca.DM.eye(2), force=ca.vertcat(0, -10), contacts=[ground],
            names={"q": ["x", "y"], "v": ["vx", "vy"], "p": ["mu"]},
        )  # fmt: skip
        kalman = ns.Filter(block, sigma={"x": 0.01}, period=0.2, x0=[0, 0, 1, 0], x0_std=0.0, free={"mu": 0.1})
        kalman.step({"x": 0.15})
        slope = -10 * 0.2**2 / 2
        gain = 0.1**2 * slope / (0.1**2 * slope**2 + 0.01**2)
        assert kalman.p[0] == pytest.approx(0.3 + gain * (0.15 - (0.2 + 0.3 * slope)), rel=1e-7)
        assert kalman.std["mu"] == pytest.approx(0.1 * np.sqrt(1 - gain * slope), rel=1e-7)
        for _ in range(2):
            kalman.step({})  # it comes to rest and sticks: nothing is unknown but where
        assert kalman.std["vx"] == pytest.approx(0.0, abs=1e-12)
        assert kalman.last is not None
        assert kalman.last.mode == ("ground",)

    def test_failures_are_a_status(self) -> None:
        x = ca.SX.sym("x")
        escaping = ns.ODE(x=x, flow=x**2, names={"x": ["x"]})
        kalman = ns.Filter(escaping, sigma={"x": 1.0}, period=2.0, x0=[1.0], x0_std=0.1)
        kalman.step({"x": 1.0})
        assert kalman.last is not None
        assert kalman.last.status is ns.Status.STEP_FAILED
        assert "no simulation of the period" in kalman.last.flags[0]
        assert np.isfinite(kalman.x).all()


class TestConsistency:
    def test_innovations_are_chi_square_with_parts_and_not_without(self) -> None:
        """24 motions of 12 samples with an impact each; the long run of 200 is in `problems.benchmarks`."""
        sums = {4: 0.0, 1: 0.0}
        for seed in range(24):
            heights, _, _ = seen_ball(100 + seed, 12, 0.05, 0.01, 0.05)
            for parts in sums:
                kalman = ns.Filter(
                    ball(), sigma={"height": 0.01}, period=0.05, x0=[1, 0], x0_std=0.05, free={"floor": 0.05},
                    parts=parts,
                )  # fmt: skip
                for height in heights:
                    kalman.step({"height": height})
                    assert kalman.last is not None
                    sums[parts] += kalman.last.nis
        assert 0.001 < stats.chi2.cdf(sums[4], 24 * 12) < 0.999
        # One part alone takes impacts as its mean has them: its innovations are too large for its covariance.
        assert stats.chi2.cdf(sums[1], 24 * 12) > 0.99
        assert sums[1] > 1.1 * sums[4]

    def test_away_from_events_it_is_the_published_filter(self) -> None:
        """One part, guard known: the salted filter, written by other means, has the same means and covariances."""
        x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
        bounce = ns.StateJump("ground", guard=x[0], reset=ca.vertcat(x[0], -0.8 * x[1]))
        system = ns.HybridSystem(
            x=x, u=u, flow=ca.vertcat(x[1], u - 10), jumps=[bounce], names={"x": ["height", "speed"]}
        )
        kalman = ns.Filter(
            system, sigma={"height": 0.01}, period=0.05, x0=[0.5, 0], x0_std=0.02, control_std=0.3, parts=1,
            method=ns.EventDriven(),
        )  # fmt: skip
        published = SaltedFilter(system, [0], [0.01], [0.5, 0.0], 0.02, 0.3, [])
        times = 0.05 * np.arange(1, 15)
        truth = ns.simulate(system, x0=[0.51, 0.01], duration=0.7, times=times)(times)
        for height in truth[:, 0]:
            expected = published.step([height], 0.05)
            assert kalman.step({"height": height}) == pytest.approx(expected, abs=1e-6)
            assert kalman.covariance == pytest.approx(published.P, abs=1e-6)


class TestBeliefs:
    def test_halves_of_a_gaussian(self) -> None:
        """The half normal distribution: mean sqrt(2 / pi), variance 1 - 2 / pi; both halves are the whole again."""
        mean, covariance, row = np.array([1.0, 2.0]), np.array([[4.0, 1.0], [1.0, 9.0]]), np.array([1.0, 0.0])
        halves = []
        for side in (1.0, -1.0):
            log_mass, center, spread = truncated(mean, covariance, row, 0.0, side)
            assert np.exp(log_mass) == pytest.approx(0.5)
            assert center[0] - 1.0 == pytest.approx(side * 2.0 * np.sqrt(2 / np.pi))
            assert spread[0, 0] == pytest.approx(4.0 * (1 - 2 / np.pi))
            halves.append(Belief(mean=center, covariance=spread, weight=0.5))
        whole = merged(*halves)
        assert whole.mean == pytest.approx(mean)
        assert whole.covariance == pytest.approx(covariance)
        # Far in the tail: a normal variable beyond 8 is exponential with rate about 8.
        log_mass, center, spread = truncated(mean, covariance, row, -16.0, 1.0)
        assert log_mass == pytest.approx(stats.norm.logsf(8.0))
        assert center[0] == pytest.approx(1.0 + 16.0 + 2.0 * 0.1216, abs=1e-3)
        assert 0.0 < spread[0, 0] < 0.07

    def test_points_have_the_moments_they_are_made_of(self) -> None:
        covariance = np.array([[4.0, 1.0, 0.0], [1.0, 9.0, 0.0], [0.0, 0.0, 0.0]])
        cloud = unscented(np.array([1.0, 2.0, 3.0]), covariance, np.ones(3))
        mean, spread = moments(cloud.points, cloud.weights)
        assert len(cloud.points) == 5  # none in the direction without variance
        assert mean == pytest.approx([1, 2, 3])
        assert spread == pytest.approx(covariance)

    def test_distances_are_in_standard_deviations(self) -> None:
        first = Belief(mean=np.array([0.0, 0.0]), covariance=np.diag([9.0, 0.0]))
        assert distance(first, Belief(mean=np.array([15.0, 0.0]), covariance=np.diag([16.0, 0.0])), np.ones(2)) == (
            pytest.approx(3.0)
        )
        assert distance(first, Belief(mean=np.array([0.0, 1e-3]), covariance=first.covariance), np.ones(2)) > 1e3


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"sigma": {}}, "sigma"),
        ({"sigma": {"weight": 1.0}}, "weight"),
        ({"kind": "pf"}, "kind"),
        ({"free": {"mass": 1.0}}, "mass"),
        ({"free": {"floor": 0.1}, "scattered": {"floor": 0.1}}, "given in both"),
        ({"process": -1.0}, "nonnegative"),
        ({"x0_std": [[1.0, 2.0], [2.0, 1.0]]}, "positive semidefinite"),
        ({"x0_std": [[1.0, 2.0, 3.0]]}, "symmetric"),
    ],
)
def test_what_a_filter_cannot_use_is_said(more: dict[str, Any], word: str) -> None:
    given: dict[str, Any] = {"sigma": {"height": 0.1}, "period": 0.1, "x0": [1, 0], "x0_std": 0.1}
    with pytest.raises(OptionError, match=word):
        ns.Filter(ball(), **{**given, **more})
    with pytest.raises(ModelError, match="weight"):
        ns.Filter(ball(), **given).step({"weight": 1.0})


@pytest.mark.parametrize(("std", "accuracy"), [(1e3, 1e-3), (1e6, 0.5)])
def test_a_nearly_unknown_start_keeps_a_covariance(std: float, accuracy: float):
    # Joseph's form: with 1e9 standard deviations of the noise the difference of two products would be rounding, and its
    # Cholesky factor would not exist; what is left of 1e18 in a variance has no digits in a double.
    x = ca.SX.sym("x", 2)
    mass = ns.ODE(x=x, flow=ca.vertcat(x[1], 0), names={"x": ["place", "speed"]})
    kalman = ns.Filter(mass, sigma={"place": 1e-3}, period=0.1, x0=[0.0, 0.0], x0_std=std)
    for k in range(1, 6):
        kalman.step({"place": 0.2 + 0.5 * 0.1 * k})
    assert np.linalg.eigvalsh(kalman.last.covariance).min() > 0.0
    # Two unknowns from five values at equal distances: the closed form of the regression.
    t = 0.1 * np.arange(1, 6)
    slopes = np.column_stack([np.ones(5), t - t[-1]])
    exact = 1e-3 * np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))
    assert np.array(list(kalman.last.std.values())) == pytest.approx(exact, rel=accuracy)


@pytest.mark.parametrize("a", [-3.0, -30.0, -1e4, -1e9])
def test_the_half_of_a_belief_far_beyond_a_guard_starts_at_the_guard(a: float):
    size = 1e-3
    _, mean, covariance = truncated(np.zeros(1), np.array([[size**2]]), np.ones(1), a * size, 1.0)
    # s = a size + z is positive: its mean is size (ratio + a), about size / |a| far in the tail.
    assert 0.0 <= (a * size + mean[0]) / size <= 1.1 / abs(a) + 1e-6 * abs(a) * (abs(a) > 1e8)
    assert 0.0 <= covariance[0, 0] <= size**2
