"""The discrete mechanics of the variational integrator: symplecticity with and without impacts, momenta, order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import nosnoc_py as ns
from tests.methods.variational.rigid_bodies import ELLIPSOID, FLOOR, ball, case, drift, simulate, start
from tests.pairwise import compiled_row


def hat(w: np.ndarray) -> np.ndarray:
    """S(w)"""
    return np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])


def rotation(w: np.ndarray) -> np.ndarray:
    """exp(S(w))"""
    angle, S = np.linalg.norm(w), hat(w)
    return np.eye(3) + np.sinc(angle / np.pi) * S + 0.5 * np.sinc(angle / 2 / np.pi) ** 2 * S @ S


def moved(x: np.ndarray, k: int, amount: float) -> np.ndarray:
    """A state moved along a coordinate: x, xi (with R exp(S(xi))), gamma, Pi."""
    d = amount * np.eye(12)[k]
    R = x[3:12].reshape(3, 3) @ rotation(d[3:6])
    return np.concatenate([x[:3] + d[:3], R.ravel(), x[12:15] + d[6:9], x[15:] + d[9:]])


def form(x: np.ndarray) -> np.ndarray:
    """The canonical form at a state, in the coordinates of `moved`.

    With theta = gamma . dx + Pi . xi for the left-invariant form xi = (R' dR)^v, and its bracket [a, b] = a x b,
    -d theta (1, 2) = dx1 . dgamma2 - dx2 . dgamma1 + xi1 . dPi2 - xi2 . dPi1 + Pi . (xi1 x xi2).
    """
    omega = np.zeros((12, 12))
    omega[:6, 6:] = np.eye(6)
    omega -= omega.T
    omega[3:6, 3:6] = -hat(x[15:])  # a' (-S(Pi)) b = -a . (Pi x b) = Pi . (a x b)
    return omega


def defect(body: ns.RigidBody, x: np.ndarray, duration: float, **options: Any) -> tuple[float, set[int]]:
    """|M' omega M - omega| of the map over a duration, by differences of fourth order; numbers of impacts seen."""
    impacts, amount = set(), 1e-4

    def end(state: np.ndarray) -> np.ndarray:
        trajectory = simulate(body, state, duration, **options)
        impacts.add(len(trajectory.impacts))
        return trajectory.final_state

    image = end(x)
    tangent = np.empty((12, 12))
    for k in range(12):
        near, far = (end(moved(x, k, a)) - end(moved(x, k, -a)) for a in (amount, 2 * amount))
        d = (8 * near - far) / (12 * amount)
        S = image[3:12].reshape(3, 3).T @ d[3:12].reshape(3, 3)
        turn = 0.5 * np.array([S[2, 1] - S[1, 2], S[0, 2] - S[2, 0], S[1, 0] - S[0, 1]])
        tangent[:, k] = np.concatenate([d[:3], turn, d[12:]])
    return float(np.abs(tangent.T @ form(image) @ tangent - form(x)).max()), impacts


def between_plates() -> tuple[ns.RigidBody, np.ndarray]:
    """An ellipsoid with little room between two planes: three impacts in 0.2 s."""
    planes = (FLOOR, ns.Plane("ceiling", (0, 0, -1), offset=-8.6))
    body = ns.RigidBody(shape=ELLIPSOID, planes=planes, inertia=(5, 4, 2.6))
    return body, body.state((0, 0, 4.3), (1, 2, 10), (0.4, -0.4, 0.4))


def test_form_is_canonical() -> None:
    """d theta by differences of theta(moved states) agrees: omega is minus the exterior derivative of theta."""
    random = np.random.default_rng(0)
    x = np.concatenate([random.standard_normal(3), rotation(random.standard_normal(3)).ravel(), np.ones(6)])
    x[12:] = random.standard_normal(6)
    amount = 1e-4

    def theta(at: np.ndarray, toward: np.ndarray, back: np.ndarray) -> float:
        R = at[3:12].reshape(3, 3)
        S = R.T @ (toward - back)[3:12].reshape(3, 3) / (2 * amount)
        xi = 0.5 * np.array([S[2, 1] - S[1, 2], S[0, 2] - S[2, 0], S[1, 0] - S[0, 1]])
        return float(at[12:15] @ (toward - back)[:3] / (2 * amount) + at[15:] @ xi)

    def surface(s: float, i: int, t: float, j: int) -> np.ndarray:
        return moved(moved(x, i, s), j, t)

    for i, j in ((0, 6), (3, 9), (3, 4), (4, 5), (3, 10), (0, 3)):

        def along(first: bool, s: float, t: float, i: int = i, j: int = j) -> float:
            ds, dt = (amount, 0.0) if first else (0.0, amount)
            return theta(surface(s, i, t, j), surface(s + ds, i, t + dt, j), surface(s - ds, i, t - dt, j))

        second = along(False, amount, 0) - along(False, -amount, 0)
        derivative = (second - along(True, 0, amount) + along(True, 0, -amount)) / (2 * amount)
        assert -derivative == pytest.approx(form(x)[i, j], abs=1e-5)


def test_free_steps_are_symplectic() -> None:
    body = case("I")
    found, impacts = defect(body, start(body), 0.5, h=0.1)
    assert impacts == {0}
    assert found < 1e-8


@pytest.mark.parametrize("h", [0.1, 0.05])
def test_only_5_1_is_symplectic_through_an_impact(h: float) -> None:
    body = case("I")
    x = simulate(body, start(body), 2.6).final_state
    found, impacts = defect(body, x, 0.1, h=h, algorithm="5.1")
    assert impacts == {1}
    assert found < 1e-8
    other, impacts = defect(body, x, 0.1, h=h, algorithm="5.2")
    assert impacts == {1}
    assert other > 1e-4


@pytest.mark.parametrize("h", [0.2, 0.1, 0.02])
def test_5_1_is_symplectic_through_several_impacts(h: float) -> None:
    """With h = 0.2 all three are in one step, and each impulse depends on when the next impact is."""
    body, x = between_plates()
    found, impacts = defect(body, x, 0.2, h=h, algorithm="5.1")
    assert impacts == {3}
    assert found < 1e-8
    assert defect(body, x, 0.2, h=h, algorithm="5.2")[0] > 1e-4


@pytest.mark.parametrize(
    ("name", "duration"),
    [row(n, t) for row, t in ((pytest.param, 100.0), (compiled_row, 1000.0)) for n in ("I", "III", "IV")],
)
def test_energy_of_5_1_wanders_and_that_of_5_2_does_not(name: str, duration: float) -> None:
    """Over 1e4 and 1e5 steps and up to hundreds of impacts: bounded by a few percent, but far above rounding."""
    body = case(name)
    wandering, kept = (simulate(body, start(body), duration, algorithm=a) for a in ("5.1", "5.2"))
    assert wandering.success
    assert 1e-2 < drift(wandering) < 0.05 * wandering["energy"][0]
    assert drift(kept) < 1e-9


def test_discrete_energies_agree_on_both_sides_of_an_impact() -> None:
    """A ball that does not turn: E_d = H - m g^2 s^2 / 8 of a flight of s seconds."""
    body, h = ball(FLOOR), 0.1
    trajectory = simulate(body, body.state((0, 0, 3)), 1.0, h=h, algorithm="5.1")
    event = trajectory.impacts[0]
    before = event.time - h * np.floor(event.time / h)
    left, right = (body.energies(trajectory(event.time, side)).sum() for side in ("-", "+"))
    lengths = before**2 - (h - before) ** 2
    assert right - left == pytest.approx(-(9.80665**2) / 8 * lengths, abs=1e-12)
    assert abs(right - left) > 1e-3
    assert event.energy_gain == pytest.approx(right - left, abs=1e-12)


def test_slow_impacts_of_5_1_are_counted() -> None:
    """Late in a step, slowly into a wall: the discrete energy behind it would need more than the normal one.

    Before, it is H - m g^2 s^2 / 8 with s = 0.045 s, behind it s = 0.005 s; the ball has 0.00125 J to give.
    """
    body = ball(ns.Plane("wall", (1, 0, 0)))
    slow = simulate(body, body.state((2 + 0.00225, 0, 0), (-0.05, 0, 0)), 0.05, h=0.05, algorithm="5.1")
    assert "1 slow impact has" in slow.message
    assert slow.impacts[0].v_after == pytest.approx(0.05, abs=1e-12)
    fast = simulate(body, body.state((2 + 0.225, 0, 0), (-5, 0, 0)), 0.05, h=0.05, algorithm="5.1")
    assert fast.message == ""
    lost = 9.80665**2 / 8 * (0.045**2 - 0.005**2)
    assert fast.impacts[0].v_after == pytest.approx(np.sqrt(25 - 2 * lost), abs=1e-12)


def test_discrete_energy_is_kept_through_all_impacts_of_a_step() -> None:
    """E_d of each of the four segments of one step of 0.2 s, from the implicit equation for F in NumPy."""
    body, x = between_plates()
    trajectory = simulate(body, x, 0.2, h=0.2, algorithm="5.1")
    times = [0.0, *(event.time for event in trajectory.impacts), 0.2]
    assert len(times) == 5
    inertia = np.asarray(body.inertia)
    weights = 0.5 * np.trace(inertia) * np.eye(3) - inertia
    levels = []
    for begin, end in itertools.pairwise(times):
        s, state, after = end - begin, trajectory(begin, "+"), trajectory(end, "-")
        F = state[3:12].reshape(3, 3).T @ after[3:12].reshape(3, 3)
        translational, potential, _ = body.energies(state)
        action = np.trace((np.eye(3) - F) @ weights)
        levels.append(translational + potential - 9.80665**2 * s * s / 8 + action / s**2)
    np.testing.assert_allclose(levels, levels[0], rtol=0, atol=1e-9)
    energies = [body.energies(trajectory(t, "+")).sum() for t in times[:-1]]
    assert np.ptp(energies) > 1e-2


def test_discrete_energy_of_the_step_outlives_an_impact_that_could_not_keep_it() -> None:
    """At 0.02 s slowly into a wall, which misses it; at 0.025 s into another one, behind which E_d is the first one."""
    body = ball(ns.Plane("slow", (1, 0, 0)), ns.Plane("fast", (0, 1, 0)))
    x = body.state((2 + 0.001, 2 + 0.025, 0), (-0.05, -1.0, 0))
    trajectory = simulate(body, x, 0.05, h=0.05, algorithm="5.1")
    assert "1 slow impact has" in trajectory.message
    slow, fast = trajectory.impacts
    assert (slow.time, fast.time) == pytest.approx((0.02, 0.025), abs=1e-13)
    assert slow.v_after == pytest.approx(0.05, abs=1e-12)
    gained = 9.80665**2 / 8 * (0.025**2 - 0.02**2)
    assert fast.v_after == pytest.approx(np.sqrt(1 + 2 * gained), abs=1e-12)


def test_masses_scale_5_1() -> None:
    """Three times mass, inertia and momenta: the same motion."""
    body, heavy = case("I"), ns.RigidBody(shape=ELLIPSOID, planes=FLOOR, mass=3.0, inertia=(15, 12, 7.8))
    x = start(body)
    heavier = np.concatenate([x[:12], 3 * x[12:]])
    one, other = (simulate(b, y, 5.4, algorithm="5.1", h=0.02) for b, y in ((body, x), (heavy, heavier)))
    assert len(one.impacts) == len(other.impacts) == 3
    for a, b in zip(one.impacts, other.impacts, strict=True):
        assert b.time == pytest.approx(a.time, abs=1e-10)
        assert b.impulse == pytest.approx(3 * a.impulse, abs=1e-9)
        assert b.energy_gain == pytest.approx(3 * a.energy_gain, abs=1e-9)


def test_algorithms_converge_to_each_other() -> None:
    """The second impact of Case I, with order two (the place of an impact in its step makes it uneven)."""
    body = case("I")
    limit = simulate(body, start(body), 4.95, h=1e-4).impacts[1].time
    for algorithm in ("5.1", "5.2"):
        times = [simulate(body, start(body), 4.95, h=h, algorithm=algorithm).impacts[1].time for h in (0.02, 0.0025)]
        errors = np.abs(np.array(times) - limit)
        assert 1.5 < np.log2(errors[0] / errors[1]) / 3 < 2.5


class TestAxisymmetric:
    """J = (5, 5, 2.6): Pi turns about the third axis of the body at -Pi3 (1/J3 - 1/J1)."""

    def body(self) -> ns.RigidBody:
        return ns.RigidBody(shape=ELLIPSOID, inertia=(5, 5, 2.6))

    def test_invariants(self) -> None:
        body = self.body()
        x = simulate(body, start(body), 100.0).x
        R, spin = x[:, 3:12].reshape(-1, 3, 3), x[:, 15:]
        np.testing.assert_allclose(spin[:, 2], 4.0, rtol=0, atol=1e-12)
        np.testing.assert_allclose((spin**2).sum(axis=1), 48.0, rtol=1e-14)
        np.testing.assert_allclose(np.einsum("kij,kj->ki", R, spin), [[4, -4, 4]] * len(x), rtol=0, atol=1e-11)

    def test_precession_of_order_two(self) -> None:
        body, rate = self.body(), -4.0 * (1 / 2.6 - 1 / 5)
        errors = []
        for h in (0.1, 0.05, 0.025, 0.0125):
            spin = simulate(body, start(body), 5.0, h=h).final_state[15:]
            phase = np.arctan2(spin[1], spin[0]) - np.arctan2(-4, 4) - 5.0 * rate
            errors.append(abs((phase + np.pi) % (2 * np.pi) - np.pi))
        orders = np.log2(np.array(errors[:-1]) / errors[1:])
        np.testing.assert_allclose(orders, 2.0, atol=0.05)


class TestSpherical:
    """J = j I: the angle of a step is asin(h |Pi| / j)."""

    @pytest.mark.parametrize("share", [1e-6, 0.01, 0.5, 0.99])
    def test_angle_of_a_step(self, share: float) -> None:
        body = ball()
        spin = share * 1.6 / 0.01 * np.array([2, -1, 2]) / 3
        R = simulate(body, body.state((0, 0, 10), angular_momentum=spin), 0.01).final_state[3:12]
        expected = rotation(np.arcsin(share) * np.array([2, -1, 2]) / 3)
        np.testing.assert_allclose(R.reshape(3, 3), expected, rtol=0, atol=1e-13)

    def test_no_solution_beyond(self) -> None:
        body = ball()
        with pytest.raises(ns.OptionError, match="no solution near the identity"):
            simulate(body, body.state((0, 0, 10), angular_momentum=(0, 0, 160.1)), 0.01)


def test_a_large_step_solves_the_equation_of_flight() -> None:
    """h S(Pi) = F J_d - J_d F^T for F = R_0^T R_1, the matrix and not its chart, in 40 steps of about 0.3 rad."""
    body = ns.RigidBody(shape=ELLIPSOID, inertia=(5, 4, 2.6))
    x = simulate(body, start(body), 10.0, h=0.25).x
    R, weights = x[:, 3:12].reshape(-1, 3, 3), np.diag([0.8, 1.8, 3.2])
    for before, after, spin in zip(R[:-1], R[1:], x[:-1, 15:], strict=True):
        F = before.T @ after
        S = F @ weights - weights @ F.T
        np.testing.assert_allclose([S[2, 1], S[0, 2], S[1, 0]], 0.25 * spin, rtol=0, atol=1e-13)
        assert np.arccos((np.trace(F) - 1) / 2) > 0.2


def test_free_flight_has_order_two() -> None:
    """Rotations of the asymmetric body against a fine run."""
    body = ns.RigidBody(shape=ELLIPSOID, inertia=(5, 4, 2.6))
    fine = simulate(body, start(body), 4.0, h=0.0005).final_state
    errors = [np.abs(simulate(body, start(body), 4.0, h=h).final_state - fine)[3:12].max() for h in (0.08, 0.04, 0.02)]
    np.testing.assert_allclose(np.log2(np.array(errors[:-1]) / errors[1:]), 2.0, atol=0.1)
