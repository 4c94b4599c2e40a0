"""The car with hysteresis: the automaton itself, and the Filippov system in numerical time held against it."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from models import hysteresis_car as model

pytestmark = pytest.mark.quick

# Up through both thresholds, down into the band and up again, then down through it: on, off, each once.
CONTROL = np.array([5.0, 5.0, -2.0, 1.0, -4.0, -3.0])
LENGTHS = np.array([2.0, 1.5, 0.5, 1.0, 1.0, 1.0])


def test_the_automaton_by_hand() -> None:
    drive = model.drive(CONTROL, LENGTHS)
    # 15 m/s after 3 s; then 15 m/s^2 for .5 s, -6 for .5, 3 for 1, -12 until 10 m/s
    v = 15.0 + 15.0 * 0.5 - 6.0 * 0.5 + 3.0
    assert drive.changes[0] == pytest.approx((3.0, "on"))
    assert drive.changes[1][1] == "off"
    after = (v - 10.0) / 12.0
    end = 5.0 + after if after <= 1.0 else 6.0 + (v - 12.0 - 10.0) / 9.0
    assert drive.changes[1][0] == pytest.approx(end, abs=1e-12)
    assert len(drive.changes) == 2


def test_the_automaton_against_runge_kutta() -> None:
    drive = model.drive(CONTROL, LENGTHS)
    edges = np.concatenate([[0.0], np.cumsum(LENGTHS)])
    y, w, t = np.zeros(2), 0, 0.0
    while t < edges[-1] - 1e-9:
        k = int(np.searchsorted(edges, t + 1e-9, side="right")) - 1
        a = CONTROL[k] * (3.0 if w else 1.0)

        def event(t: float, y: np.ndarray, w: int = w) -> float:
            return y[1] - (10.0 if w else 15.0)

        event.terminal, event.direction = True, -1.0 if w else 1.0  # type: ignore[attr-defined]
        found = solve_ivp(lambda t, y, a=a: [y[1], a], (t, edges[k + 1]), y, events=event, rtol=1e-12, atol=1e-12)
        y, t = found.y[:, -1], float(found.t[-1])
        w = 1 - w if found.status == 1 else w
    np.testing.assert_allclose(drive.x[-1], y, rtol=0, atol=1e-9)
    assert drive.turbo[-1] == w == 0


def test_between_the_thresholds_history_decides() -> None:
    """The same state and control, with the turbo on and off."""
    plain, turbo = (model.drive([1.0], [1.0], start=(0.0, 12.0), turbo=w).x[-1, 1] for w in (0, 1))
    assert (plain, turbo) == pytest.approx((13.0, 15.0))


METHODS = {
    "indicators": ns.FESD(finite_elements=2, rk_stages=2),
    "signs": ns.FESD(finite_elements=2, rk_stages=2, dcs_mode="step"),
}


@pytest.mark.parametrize("regions", METHODS)
def test_numerical_time_holds_the_motion_of_the_automaton(regions: model.Regions) -> None:
    """Up through 15 m/s and down through 10 m/s: each pause takes 1 s of numerical time, the clock stands still."""
    drive = model.drive([5.0, -4.0], [4.0, 3.0])
    steps, length = 18, 0.5
    u = [[5.0, 1.0] if k < 10 else [-4.0, 1.0] for k in range(steps)]
    system = model.build(regions=regions)  # type: ignore[arg-type]
    found = ns.simulate(system, x0=[0] * 4, duration=steps * length, u=u, steps=steps, method=METHODS[regions])
    assert found.success
    assert found.final_state[3] == pytest.approx(7.0, abs=1e-9)
    np.testing.assert_allclose(found.final_state[:3], [*drive.x[-1], 0.0], rtol=0, atol=1e-8)
    pause = found(np.linspace(3.05, 3.95, 10))
    np.testing.assert_allclose(pause[:, [1, 3]], [[15.0, 3.0]] * 10, rtol=0, atol=1e-8)
    np.testing.assert_allclose(pause[:, 2], np.linspace(0.05, 0.95, 10), rtol=0, atol=1e-8)
    down = 5.0 + 20.0 / 12.0
    pause = found(np.linspace(down + 0.05, down + 0.95, 10))
    np.testing.assert_allclose(pause[:, [1, 3]], [[10.0, down - 1.0]] * 10, rtol=0, atol=1e-8)


def test_turning_back_in_the_band_changes_nothing() -> None:
    """Up to 14 m/s and down again: without the turbo all the way, although 10 m/s is passed downwards."""
    u = [[5.0, 1.0]] * 7 + [[-5.0, 1.0]] * 7
    found = ns.simulate(model.build(), x0=[0] * 4, duration=5.6, u=u, steps=14, method=METHODS["indicators"])
    assert found.success
    np.testing.assert_allclose(found.final_state, [39.2, 0.0, 0.0, 5.6], rtol=0, atol=1e-8)
    assert np.abs(found.x[:, 2]).max() < 1e-8


def test_only_the_weights_one_half_keep_w_at_its_value() -> None:
    """Exactness on the lines w = 0 and w = 1, for any state and control, and standstill in between."""
    system = model.build()
    flows = ca.Function("f", [system.x, system.u], [ca.horzcat(*system.modes[0].flows)])
    rng = np.random.default_rng(1)
    for _ in range(5):
        x, u = rng.uniform(1, 20, 4), np.array([rng.uniform(-5, 5), 1.3])
        f = np.array(flows(x, u))
        np.testing.assert_allclose(f[2], 1.3 * np.array([1.0, -1.0, 1.0, -1.0]), atol=1e-14)
        np.testing.assert_allclose(f[:, :2].mean(axis=1), 1.3 * np.array([x[1], u[0], 0.0, 1.0]), atol=1e-12)
        np.testing.assert_allclose(f[:, 2:].mean(axis=1), 1.3 * np.array([x[1], 3.0 * u[0], 0.0, 1.0]), atol=1e-12)
        assert np.abs(np.delete(f[:, 1:3], 2, axis=0)).max() == 0.0


def test_indicators_and_signs_tell_the_same_regions() -> None:
    systems = {regions: model.build(regions=regions) for regions in ("indicators", "signs")}  # type: ignore[arg-type]
    rng, count = np.random.default_rng(0), 300
    states = np.stack([np.zeros(count), rng.uniform(5, 20, count), rng.uniform(-0.5, 1.5, count), np.zeros(count)])
    velocity = {}
    for regions, system in systems.items():
        modes = system.modes[0]
        f = ca.Function("f", [system.x, system.u], [modes.indicators, ca.horzcat(*modes.flows)])
        rows = []
        for x in states.T:
            g, flows = f(x, [1.0, 1.0])
            rows.append(np.array(flows)[:, int(np.argmin(np.array(g)))])
        velocity[regions] = np.array(rows)
    psi, w = (states[1] - 10) / 5, states[2]
    # beyond its ends a line of the automaton is extended by the nearest point, a sign by itself: away from there
    inside = ((w > 0) & (w < 1)) | ((w < 0) & (psi + w < 1) & (psi < 1)) | ((w > 1) & (psi + w > 1) & (psi > 0))
    assert inside.sum() > 200
    np.testing.assert_allclose(velocity["indicators"][inside], velocity["signs"][inside], rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("distance", "time"),
    [
        (150.0, 3.0 + 10 / 15 + (150 - 22.5 - 40 / 3 - 17.5 - 10) / 25 + 1.0 + 2.0),
        (36.66, 2 * np.sqrt(36.66 / 5)),  # too short for both changes
        (22.5 + 10 + (400 - 225 + 400 - 100) / 30, 3 + 5 / 15 + 10 / 15 + 2),  # up to 20 m/s
    ],
)
def test_fastest_times_by_hand(distance: float, time: float) -> None:
    assert model.fastest_time(distance) == pytest.approx(time, abs=1e-12)


@pytest.mark.parametrize("distance", [38.0, 60.0, 150.0])
def test_a_search_over_drives_finds_nothing_faster(distance: float) -> None:
    """Accelerate at full power to a peak, ride at it, brake; with any other, slower first or last acceleration too."""
    rng, best = np.random.default_rng(3), np.inf
    for _ in range(4000):
        peak, first, last = rng.uniform(1.0, 25.0), *(5.0 * rng.uniform(0.5, 1.0, 2) ** 0.1)
        up = peak / first if peak < 15 else 15 / first + (peak - 15) / (3 * first)
        down = peak / last if peak < 15 else 10 / last + (peak - 10) / (3 * last)
        still = distance - model.drive([first, 0.0, -last], [up, 0.0, down]).x[-1, 0]
        if still >= 0.0:
            best = min(best, up + down + still / peak)
    assert best >= model.fastest_time(distance) - 1e-9
    assert best <= 1.05 * model.fastest_time(distance)


def test_hysteresis_matters() -> None:
    """With one threshold, at 15 or at 10 m/s, the fastest drive takes another time."""
    from models import turbo_car

    time = model.fastest_time(150.0)
    for threshold in (10.0, 15.0):
        other = turbo_car.fastest_time(150.0, turbo_car.Constants(threshold=threshold))
        assert abs(other - time) > 0.3
    equal = model.Constants(off=15.0 - 1e-9)
    one = turbo_car.fastest_time(150.0, turbo_car.Constants(threshold=15.0))
    assert model.fastest_time(150.0, equal) == pytest.approx(one, abs=1e-8)


@pytest.mark.parametrize("bad", [{"on": 5.0}, {"off": -1.0}, {"limit": 12.0}, {"gain": 0.0}, {"acceleration": 0.0}])
def test_bad_constants(bad: dict[str, float]) -> None:
    with pytest.raises(ns.ModelError, match="a car with hysteresis needs"):
        model.Constants(**bad)


def test_bad_arguments() -> None:
    with pytest.raises(ns.ModelError, match="positive distance"):
        model.fastest_time(0.0)
    with pytest.raises(ns.OptionError, match="expected 'indicators' or 'signs', given 'voronoi'"):
        model.build(regions="voronoi")  # type: ignore[arg-type]
