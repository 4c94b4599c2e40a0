"""The cart with pole and dry friction: laws that the reference obeys, and finite elements held against it."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import cart_pole_friction as model

pytestmark = pytest.mark.quick

CONTROL = np.array([12.0, -9.0, 0.0, 0.0, 8.0, -2.0])
START = np.array([0.0, 0.4, 0.0, 0.0])


@pytest.fixture(scope="module")
def motion() -> model.Motion:
    return model.simulate(CONTROL, 1.5, START)


def test_energy_balance(motion: model.Motion) -> None:
    """E(T) - E(0) is the work of the force less F times the way travelled: the equations of motion, independently."""
    work = loss = 0.0
    for begin, end, mode in motion.phases:
        s = [motion.x[int(np.argmin(np.abs(motion.t - t))), 0] for t in (begin, end)]
        u = CONTROL[min(int((0.5 * (begin + end)) / 0.25), 5)]
        work += u * (s[1] - s[0])
        loss += model.STANDARD.friction * mode * (s[1] - s[0])
    gained = model.energy(motion.x[-1]) - model.energy(START)
    assert loss > 1.0
    assert gained == pytest.approx(work - loss, abs=1e-10)


def test_momentum_along_the_rail() -> None:
    """Without friction the horizontal momentum is the impulse of the force."""
    smooth = model.Constants(friction=0.0)
    end = model.simulate(CONTROL, 1.5, START, smooth).x[-1]
    momentum = 1.1 * end[2] + 0.1 * 0.5 * end[3] * np.cos(end[1])
    assert momentum == pytest.approx(0.25 * CONTROL.sum(), abs=1e-10)


def test_it_slips_both_ways_sticks_and_breaks_loose(motion: model.Motion) -> None:
    assert {mode for _, _, mode in motion.phases} == {-1, 0, 1}
    assert len(motion.sticks) >= 1
    for begin, end in motion.sticks:
        inside = (motion.t > begin) & (motion.t < end)
        assert np.abs(motion.x[inside, 2]).max() < 1e-12


def test_a_cart_that_sticks_has_a_pendulum(motion: model.Motion) -> None:
    """With a weak force only the pole moves: its energy stays, and its period is that of small oscillations."""
    quiet = model.simulate([1.0], 10.0, [0.0, 0.01, 0.0, 0.0])
    assert quiet.sticks == ((0.0, 10.0),)
    np.testing.assert_allclose(model.energy(quiet.x), model.energy(quiet.x[0]), rtol=0, atol=1e-12)
    expected = 0.01 * np.cos(np.sqrt(9.81 / 0.5) * quiet.t)
    np.testing.assert_allclose(quiet.x[:, 1], expected, rtol=0, atol=1e-5)


def test_the_pull_of_the_pole_breaks_it_loose() -> None:
    """A fast pole on a cart with little friction: it sticks until the pull is F."""
    little = model.Constants(friction=0.5)
    swung = model.simulate([0.0], 0.5, [0.0, 0.0, 0.0, 6.0], little)
    begin, end = swung.sticks[0]
    assert begin == 0.0
    k = int(np.argmin(np.abs(swung.t - end)))
    phi, omega = swung.x[k, 1], swung.x[k, 3]
    assert 0.1 * np.sin(phi) * (0.5 * omega**2 + 9.81 * np.cos(phi)) == pytest.approx(0.5, abs=1e-9)
    assert swung.x[-1, 0] != 0.0


@pytest.mark.parametrize("mode", ["stewart", "step"])
def test_finite_elements_move_like_it(mode: str, motion: model.Motion) -> None:
    method = ns.FESD(finite_elements=2, rk_stages=4, dcs_mode=mode)
    found = ns.simulate(model.build(), x0=START, duration=1.5, u=CONTROL[:, None], steps=30, method=method)
    assert found.success
    np.testing.assert_allclose(found.final_state, motion.x[-1], rtol=0, atol=1e-9)
    kinds = {event.kind for event in found.events}
    assert {"enter_sliding", "leave_sliding"} <= kinds
    stick = motion.sticks[0]
    entered = [event.time for event in found.events if event.kind == "enter_sliding"]
    assert min(abs(time - stick[0]) for time in entered) < 1e-8


def test_a_fixed_grid_misses_the_stop(motion: model.Motion) -> None:
    method = ns.FESD(finite_elements=2, rk_stages=4, switch_detection=False)
    found = ns.simulate(model.build(), x0=START, duration=1.5, u=CONTROL[:, None], steps=30, method=method)
    assert not found.success or np.abs(found.final_state - motion.x[-1]).max() > 1e-5


def test_the_system_is_that_of_the_text() -> None:
    system = model.build()
    left, right = system.modes[0].flows
    flow = ca.Function("f", [system.x, system.u], [system.flow, left, right])
    phi, v, omega, u = 0.7, -1.3, 2.0, 3.0
    common, backwards, forwards = (np.array(f).ravel() for f in flow([0.0, phi, v, omega], u))
    np.testing.assert_allclose(backwards, -forwards, rtol=0, atol=1e-14)
    matrix = np.array([[1.1, 0.05 * np.cos(phi)], [0.05 * np.cos(phi), 0.025]])
    for added, friction in ((backwards, 5.0), (forwards, -5.0)):
        force = [u + friction + 0.05 * omega**2 * np.sin(phi), -0.1 * 9.81 * 0.5 * np.sin(phi)]
        np.testing.assert_allclose((common + added)[2:], np.linalg.solve(matrix, force), rtol=0, atol=1e-12)
    np.testing.assert_allclose((common + forwards)[:2], [v, omega], rtol=0, atol=1e-14)


@pytest.mark.parametrize("bad", [{"cart": 0.0}, {"pole": -1.0}, {"length": 0.0}, {"friction": -1.0}])
def test_bad_constants(bad: dict[str, float]) -> None:
    with pytest.raises(ns.ModelError, match="a cart with a pole needs"):
        model.Constants(**bad)
