"""The Lie group variational collision integrator: the cases of the paper, closed forms, and what it refuses."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

import nosnoc_py as ns
from tests.methods.variational.rigid_bodies import (
    ELLIPSOID,
    FLOOR,
    G,
    ball,
    case,
    drift,
    reference_impacts,
    simulate,
    start,
)
from tests.pairwise import compiled_row, needs_numba, slow_row

FIRST_TURN = {
    (0, 0): 0.999831508170423485,
    (0, 1): -0.0154092570973356223,
    (0, 2): -0.00997547319000999029,
    (1, 0): 0.0153291715309948498,
    (2, 2): 0.999917795739964389,
}


def test_first_turn() -> None:
    """R after one step from R = I is F."""
    body = case("I")
    F = simulate(body, start(body), 0.01).final_state[3:12].reshape(3, 3)
    for index, value in FIRST_TURN.items():
        assert abs(F[index] - value) < 2e-16 + 1e-15 * abs(value)
    weights = np.diag([0.8, 1.8, 3.2])
    S = F @ weights - weights @ F.T
    np.testing.assert_allclose([S[2, 1], S[0, 2], S[1, 0]], [0.04, -0.04, 0.04], rtol=0, atol=1e-15)


def test_case_i_against_a_second_implementation() -> None:
    """Times of twelve collisions; the motion is chaotic and multiplies rounding errors by about ten each."""
    body = case("I")
    trajectory = simulate(body, start(body), 30.0)
    times, impulses = reference_impacts(12)
    found = np.array([event.time for event in trajectory.impacts])
    known = [2.649128901521289, 4.893938255327642, 5.350135680896926, 6.520005137822193]
    np.testing.assert_allclose(times[:4], known, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found[:4], times[:4], rtol=0, atol=1e-11)
    np.testing.assert_allclose(found[4:8], times[4:8], rtol=0, atol=1e-8)
    np.testing.assert_allclose(found[8:12], times[8:12], rtol=0, atol=1e-5)
    first = trajectory.impacts[0]
    assert first.impulse == pytest.approx(27.5843698611277, abs=1e-12)
    assert impulses[0] == pytest.approx(27.5843698611277, abs=1e-12)
    assert first.v_after == pytest.approx(-first.v_before, abs=1e-14)
    assert trajectory["energy"][0] == pytest.approx(158.743423076923, abs=1e-12)


def test_restart_after_an_impact_is_the_run() -> None:
    """From behind each impact: the rest of its step, and on to the next impact."""
    body = case("I")
    whole = simulate(body, start(body), 30.0)
    times = [event.time for event in whole.impacts[:12]]
    for now, following in itertools.pairwise(times):
        rest = 0.01 * np.ceil(now / 0.01) - now
        step = simulate(body, whole(now), rest, steps=1)
        again = simulate(body, step.final_state, 0.01 * np.ceil((following - now) / 0.01))
        assert again.impacts[0].time + rest + now == pytest.approx(following, abs=1e-11)


ALLOWED_DRIFT = {"I": 1e-9, "II": 1e-8, "III": 1e-9, "IV": 1e-9}


@pytest.mark.parametrize(
    ("name", "duration"),
    [row(n, t) for row, t in ((pytest.param, 100.0), (compiled_row, 1000.0)) for n in ALLOWED_DRIFT],
)
def test_invariants_over_a_hundred_thousand_steps(name: str, duration: float) -> None:
    """Interpreted, over ten thousand."""
    body, allowed = case(name), ALLOWED_DRIFT[name]
    trajectory = simulate(body, start(body), duration)
    assert trajectory.success
    assert len(trajectory.impacts) > 0.4 * duration
    assert drift(trajectory) < allowed
    R = trajectory.x[:, 3:12].reshape(-1, 3, 3)
    assert np.abs(np.swapaxes(R, 1, 2) @ R - np.eye(3)).max() < 1e-14
    assert trajectory["gap[floor]"].min() > -1e-11
    if name != "II":
        assert (trajectory.x[:, 12:14] == 2.0).all()
    else:  # along the slope there is no horizontal momentum to keep
        assert np.abs(trajectory["gamma_0"] - 2.0).max() > 0.1 * duration


@needs_numba
@pytest.mark.parametrize(("name", "mean", "deviation"), [slow_row("III", 795, 25), ("IV", 647, 11)])
def test_collision_counts_of_ensembles(name: str, mean: float, deviation: float) -> None:
    """Single counts are chaotic, their mean over perturbed starts is not."""
    body, random, count = case(name), np.random.default_rng(9), 24
    counts = [
        len(simulate(body, start(body, 1e-6 * random.standard_normal(9)), 1000.0, record_every=1000).impacts)
        for _ in range(count)
    ]
    assert abs(np.mean(counts) - mean) < 3 * deviation / np.sqrt(count)
    assert np.std(counts) > 3.0


def test_perturbations_grow() -> None:
    """Case IV: 1e-8 in the angular momentum is visible behind the eighth collision, not before the fifth."""
    body = case("IV")
    shift = np.zeros(9)
    shift[6] = 1e-8
    one, other = (simulate(body, start(body, d), 40.0) for d in (0.0, shift))
    fifth, ninth = one.impacts[4].time, one.impacts[8].time
    early, late = np.linspace(0, fifth - 0.1, 50), np.linspace(ninth, ninth + 5, 50)
    assert np.abs(one(early) - other(early)).max() < 1e-3
    assert np.abs(one(late) - other(late)).max() > 1e-2


@pytest.mark.parametrize("h", [0.01, 0.003, 0.017, 0.1])
def test_ball_bounces_in_closed_form(h: float) -> None:
    body = ball(FLOOR)
    trajectory = simulate(body, start(body), 21.0, h=h)
    expected = 2.65414794779426 + 3.26886346963267 * np.arange(6)
    np.testing.assert_allclose([event.time for event in trajectory.impacts], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("friction", [0.0, 0.4])
def test_masses_scale(friction: float) -> None:
    """Three times mass, inertia and momenta: the same times, three times the impulses and energies."""
    floor = ns.Plane("floor", restitution=0.9, friction=friction)
    x = start(case("I"))
    runs = []
    for mass in (1.0, 3.0):
        body = ns.RigidBody(shape=ELLIPSOID, planes=floor, mass=mass, inertia=mass * np.array([5, 4, 2.6]))
        runs.append(simulate(body, np.concatenate([x[:12], mass * x[12:]]), 6.0))
    one, other = runs
    assert len(one.impacts) == len(other.impacts) >= 2
    for a, b in zip(one.impacts, other.impacts, strict=True):
        assert b.time == pytest.approx(a.time, abs=1e-9)
        assert b.v_before == pytest.approx(a.v_before, abs=1e-8)
        assert b.impulse == pytest.approx(3 * a.impulse, abs=1e-7)
        assert b.energy_gain == pytest.approx(3 * a.energy_gain, abs=1e-7)
    np.testing.assert_allclose(other["energy"][-1], 3 * one["energy"][-1], rtol=1e-8)


def test_frame_of_the_body_does_not_matter() -> None:
    """Shape, inertia and angular momentum turned by Q, R by its inverse: the same motion."""
    angle = np.array([0.4, -0.9, 0.7])
    S = np.array([[0, -angle[2], angle[1]], [angle[2], 0, -angle[0]], [-angle[1], angle[0], 0]])
    Q = np.linalg.solve(np.eye(3) - 0.5 * S, np.eye(3) + 0.5 * S)
    body = case("I")
    other = ns.RigidBody(
        shape=ns.Ellipsoid((2, 3, 4), rotation=Q), planes=FLOOR, inertia=Q @ np.diag([5, 4, 2.6]) @ Q.T
    )
    x0 = start(body)
    turned = other.state(x0[:3], x0[12:15], Q @ x0[15:], rotation=Q.T)
    one, two = simulate(body, x0, 5.5), simulate(other, turned, 5.5)
    assert len(one.impacts) == len(two.impacts) == 3
    for a, b in zip(one.impacts, two.impacts, strict=True):
        assert b.time == pytest.approx(a.time, abs=1e-9)
        assert b.impulse == pytest.approx(a.impulse, abs=1e-8)


def test_compiled_and_interpreted_agree() -> None:
    pytest.importorskip("numba")
    body = case("III")
    one, other = (simulate(body, start(body), 12.0, compiled=compiled) for compiled in (True, False))
    assert len(one.impacts) == len(other.impacts) > 3
    np.testing.assert_allclose(one.x, other.x, rtol=0, atol=1e-12)


def test_series_and_names() -> None:
    body = case("I")
    trajectory = simulate(body, start(body), 3.0)
    assert set(trajectory.series) == {
        "energy",
        "energy_translational",
        "energy_potential",
        "energy_rotational",
        "gap[floor]",
    }
    parts = sum(trajectory[f"energy_{name}"] for name in ("translational", "potential", "rotational"))
    np.testing.assert_allclose(parts, trajectory["energy"], rtol=1e-15)
    np.testing.assert_allclose(trajectory["gap[floor]"], body.gaps(trajectory.x)[:, 0], rtol=0, atol=1e-13)
    time_of = trajectory.impacts[0].time
    left, right = trajectory(time_of, "-"), trajectory(time_of)
    np.testing.assert_allclose(left[:12], right[:12], rtol=0, atol=1e-14)
    assert right[14] - left[14] == pytest.approx(trajectory.impacts[0].impulse, abs=1e-12)
    assert trajectory.units["Pi_1"] == "kg m^2/s"
    assert trajectory.u.shape == (1, 0)


def test_record_every_keeps_impacts_and_the_end() -> None:
    body = case("I")
    full, thin = (simulate(body, start(body), 12.34, record_every=every) for every in (1, 100))
    assert full.events == thin.events
    np.testing.assert_array_equal(full.final_state, thin.final_state)
    assert set(thin.t) <= set(full.t)
    assert set(np.arange(1.0, 13.0).tolist()) <= set(np.round(thin.t, 12).tolist())
    assert len(thin.t) < 0.1 * len(full.t)


def test_record_every_counts_steps() -> None:
    """A body that does not turn: a node after every hundred steps, at impacts and at the end."""
    body = ball(FLOOR)
    trajectory = simulate(body, body.state((0, 0, 10), (2, 2, 10)), 12.34, record_every=100)
    assert len(trajectory.impacts) == 3
    assert len(trajectory.t) == 1 + 12 + 2 * 3 + 1


@pytest.mark.parametrize("watched", [False, True])
def test_record_every_goes_on_after_a_full_buffer(watched: bool) -> None:
    """Impacts fill the buffers; nodes stay at multiples of ten seconds, and a callback changes nothing."""
    walls = (
        ns.Plane("left", (1, 0, 0), restitution=0.999),
        ns.Plane("right", (-1, 0, 0), offset=-4.1, restitution=0.999),
    )
    body = ball(*walls, gravity=0.0)
    callback = {"callback": lambda state: None} if watched else {}
    trajectory = simulate(body, body.state((2.05, 0, 0), (30.0, 0, 0)), 100.0, record_every=1000, **callback)
    times = np.array([event.time for event in trajectory.impacts])
    assert len(times) > 3000
    others = trajectory.t[~np.isin(trajectory.t, times)]
    np.testing.assert_allclose(others, 10.0 * np.arange(11), rtol=0, atol=1e-12)


@pytest.mark.parametrize("every", [1, 200])
def test_nodes_are_closer_than_half_a_turn(every: int) -> None:
    """A ball that turns by asin(h |Pi| / j) = 0.3 rad in a step: the angle between nodes, also many steps apart."""
    body = ball()
    x0 = body.state((0, 0, 10), angular_momentum=(0, 0, 1.6 * np.sin(0.3) / 0.01))
    trajectory = simulate(body, x0, 1.0, record_every=every)
    times = np.linspace(0.0, 1.0, 301)
    R = trajectory(times)[:, 3:12].reshape(-1, 3, 3)
    angle = np.unwrap(np.arctan2(R[:, 1, 0], R[:, 0, 0]))
    np.testing.assert_allclose(angle, 30.0 * times, rtol=0, atol=1e-9)
    assert (len(trajectory.t) == 101) is (every == 1)


def test_callback_sees_every_step_and_changes_nothing() -> None:
    body, seen = case("I"), []
    plain = simulate(body, start(body), 6.0, record_every=7)
    watched = simulate(body, start(body), 6.0, record_every=7, callback=lambda state: seen.append(state))
    np.testing.assert_array_equal(plain.x, watched.x)
    np.testing.assert_allclose([state.t for state in seen], 0.01 * np.arange(1, 601), rtol=1e-14)
    assert sum(state.contacts for state in seen) == len(plain.impacts) == 3


def test_callback_stops() -> None:
    body = case("I")
    stopped = simulate(
        body, start(body), 6.0, record_every=50, callback=lambda state: ns.Stop if state.t > 2.123 else None
    )
    assert stopped.status is ns.Status.STOPPED
    assert stopped.t[-1] == pytest.approx(2.13, abs=1e-12)
    np.testing.assert_allclose(stopped.final_state, simulate(body, start(body), 6.0)(2.13), rtol=0, atol=1e-13)


def test_time_limit() -> None:
    body = case("I")
    trajectory = simulate(body, start(body), 6.0, time_limit=0.0)
    assert trajectory.status is ns.Status.TIME_LIMIT
    assert trajectory.t.tolist() == [0.0]


def test_time_limit_of_a_slow_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreted run looks at the clock every few steps, and keeps how far it came."""
    called: list[None] = []
    monkeypatch.setattr(time, "monotonic", lambda: 0.002 * len(called))

    def slow(direction: np.ndarray) -> np.ndarray:
        called.append(None)
        return ELLIPSOID.support(direction)

    body = ns.RigidBody(shape=ns.SupportFunction(slow), planes=FLOOR, inertia=(5, 4, 2.6))
    x0 = start(body)
    trajectory = simulate(body, x0, 100.0, time_limit=0.2, record_every=1000)
    assert len(called) < 200
    assert trajectory.status is ns.Status.TIME_LIMIT
    assert trajectory.t[-1] > 0.15
    assert trajectory.t[-1] == pytest.approx(0.2 * round(trajectory.t[-1] / 0.2), abs=1e-12)
    known = simulate(case("I"), x0, float(trajectory.t[-1]))
    np.testing.assert_allclose(trajectory.final_state, known.final_state, rtol=0, atol=1e-12)


def test_steps_and_durations() -> None:
    body = ball(FLOOR)
    assert np.diff(simulate(body, start(body), 1.0, steps=8).t).tolist() == [0.125] * 8
    uneven = np.diff(simulate(body, start(body), 1.003).t)
    assert len(uneven) == 101
    np.testing.assert_allclose(uneven, 1.003 / 101, rtol=1e-12)


def test_without_planes_and_gravity() -> None:
    body = ns.RigidBody(shape=ELLIPSOID, inertia=(5, 4, 2.6), gravity=0.0)
    end = simulate(body, start(body), 10.0).final_state
    np.testing.assert_allclose(end[:3], (20, 20, 110), rtol=1e-14)


def test_gravity_is_a_vector() -> None:
    body = ns.RigidBody(shape=ELLIPSOID, inertia=(5, 4, 2.6), gravity=(1.0, 0.0, -G))
    end = simulate(body, start(body), 1.0).final_state
    np.testing.assert_allclose(end[:3], (2.5, 2.0, 20 - G / 2), rtol=1e-14)


class TestRefuses:
    """Mistakes raise at once and say what to do."""

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"h": 0.0}, "greater than 0"),
            ({"algorithm": "5.3"}, "'5.2' or '5.1'"),
            ({"algorithm": "5.1", "zeno": "settle"}, "belongs to algorithm='5.2'"),
            ({"samples": 0}, "greater than or equal to 1"),
            ({"step": 0.1}, "unknown option 'step'"),
        ],
    )
    def test_options(self, options: dict[str, object], words: str) -> None:
        with pytest.raises(ns.OptionError, match=words):
            ns.LieGroupVariational(**options)

    def test_steps_twice(self) -> None:
        body = case("I")
        with pytest.raises(ns.OptionError, match="both set the step"):
            simulate(body, start(body), 1.0, h=0.01, steps=10)

    def test_number_of_steps(self) -> None:
        body = case("I")
        with pytest.raises(ns.OptionError, match="positive whole number, given 0"):
            simulate(body, start(body), 1.0, steps=0)

    @pytest.mark.parametrize("plane", [ns.Plane("floor", restitution=0.9), ns.Plane("floor", friction=0.1)])
    def test_algorithm_5_1_with_losses(self, plane: ns.Plane) -> None:
        body = ball(plane)
        with pytest.raises(ns.OptionError, match=r"use algorithm='5\.2'"):
            simulate(body, start(body), 1.0, algorithm="5.1")

    def test_compilation_of_a_python_shape(self) -> None:
        body = ns.RigidBody(shape=ns.SupportFunction(ELLIPSOID.support), planes=FLOOR, inertia=(5, 4, 2.6))
        with pytest.raises(ns.OptionError, match="SupportFunction, is known by a Python function only"):
            simulate(body, start(body), 1.0, compiled=True)

    def test_penetration(self) -> None:
        body = case("I")
        with pytest.raises(ns.ModelError, match="penetrates plane 'floor' by 1 m"):
            simulate(body, body.state((0, 0, 3)), 1.0)

    def test_controls(self) -> None:
        body = case("I")
        with pytest.raises(ns.OptionError, match="u"):
            ns.simulate(body, x0=start(body), duration=1.0, method=ns.LieGroupVariational(), u=[1.0])

    def test_solver(self) -> None:
        body = case("I")
        with pytest.raises(ns.OptionError, match="solver"):
            ns.simulate(body, x0=start(body), duration=1.0, method=ns.LieGroupVariational(), solver=ns.Homotopy())

    def test_too_fast_at_the_start(self) -> None:
        """J = j I: the largest step is j / |Pi|."""
        body = ball(FLOOR)
        x0 = body.state((0, 0, 10), angular_momentum=(0, 0, 200.0))
        with pytest.raises(ns.OptionError, match=r"may be at most 0\.008 s"):
            simulate(body, x0, 1.0)
        assert simulate(body, x0, 1.0, h=0.0079).success

    def test_support_function_that_fails(self) -> None:
        known: list[bool] = []

        def support(direction: np.ndarray) -> np.ndarray:
            if known and 0.05 < direction[0] < 0.06:
                raise KeyError("no such direction")
            return ELLIPSOID.support(direction)

        body = ns.RigidBody(shape=ns.SupportFunction(support), planes=FLOOR, inertia=(5, 4, 2.6))
        known.append(True)
        with pytest.raises(ns.ModelError, match=r"SupportFunction: function: .*KeyError.*no such direction"):
            simulate(body, body.state((0, 0, 10), angular_momentum=(0, 0.8, 0)), 1.0)

    def test_support_that_is_not_a_number(self) -> None:
        class Holed(ns.SupportFunction):
            def support(self, direction: np.ndarray) -> np.ndarray:
                point = super().support(direction)
                return point * np.nan if 0.05 < direction[0] < 0.06 else point

        body = ns.RigidBody(shape=Holed(ELLIPSOID.support), planes=FLOOR, inertia=(5, 4, 2.6))
        x0 = body.state((0, 0, 10), angular_momentum=(0, 0.8, 0))
        trajectory = simulate(body, x0, 1.0)
        assert trajectory.status is ns.Status.NUMERICAL_ERROR
        assert trajectory.message.startswith("look at the support function")
        assert 0.2 < trajectory.t[-1] < 0.3
        assert np.isfinite(trajectory.x).all()
