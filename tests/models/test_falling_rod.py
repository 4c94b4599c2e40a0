"""The rod: contact frames against differences of the ends, and the closed-form impact against its own laws."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import minimize

from models.falling_rod import SIDES, STANDARD, Constants, build, ends, energy, strike, tilted
from nosnoc_py.errors import ModelError

pytestmark = pytest.mark.quick

Q = np.array([0.4, 0.9, 0.7])


@pytest.mark.parametrize("end", SIDES)
def test_frames_are_the_derivatives_of_the_ends(end: str) -> None:
    system = build(Constants(length=1.4))
    contact = next(c for c in system.contacts if c.name == end)
    outputs = [contact.gap, system.normal(contact), contact.tangent]
    gap, normal, tangent = (np.array(v) for v in ca.Function("f", [system.q], outputs)(Q))
    which = list(SIDES).index(end)

    def place(q: np.ndarray) -> np.ndarray:
        return ends(np.concatenate([q, np.zeros(3)]), Constants(length=1.4))[which]

    step = 1e-6
    jacobian = np.column_stack([(place(Q + step * d) - place(Q - step * d)) / (2 * step) for d in np.eye(3)])
    assert gap.item() == pytest.approx(place(Q)[1], rel=1e-15)
    np.testing.assert_allclose(tangent.ravel(), jacobian[0], atol=1e-9)
    np.testing.assert_allclose(normal.ravel(), jacobian[1], atol=1e-9)
    assert np.abs(jacobian[:, 2]).min() > 0.3  # without the levers both would be wrong


def test_start_and_energy() -> None:
    for theta in (0.5, -0.5):
        x = np.array(tilted(theta, 0.2))
        assert ends(x)[:, 1].min() == pytest.approx(0.2, abs=1e-15)
    x = np.array([0.0, 2.0, 0.0, 3.0, 4.0, 6.0])
    assert energy(x) == pytest.approx(0.5 * 25.0 + 0.5 * 36.0 / 12.0 + 2.0 * 9.81)


CASES = [(v, mu, e) for v in (-3.0, 0.0, 1.0, 3.0) for mu in (0.1, 0.4, 1.0) for e in (0.0, 0.5, 1.0)]


@pytest.mark.parametrize("end", SIDES)
@pytest.mark.parametrize(("speed", "friction", "restitution"), CASES)
def test_strike_obeys_newton_and_coulomb(end: Any, speed: float, friction: float, restitution: float) -> None:
    """The laws, written with velocities of the end that come from differentiating its position."""
    theta = 0.6 if end == "left" else -0.6
    constants = Constants(frictions=(friction, friction), restitutions=(restitution, restitution))
    before = np.array([speed, -2.0, 0.3])
    found = strike(theta, before, end, constants)
    arm = 0.5 * SIDES[end] * np.array([np.cos(theta), np.sin(theta)])

    def velocity(v: np.ndarray) -> np.ndarray:
        return np.array([v[0] - v[2] * arm[1], v[1] + v[2] * arm[0]])

    (slip, rise), (_, fall) = velocity(found.v), velocity(before)
    assert rise == pytest.approx(-restitution * fall, abs=1e-14)
    assert abs(found.tangential) <= friction * found.normal * (1 + 1e-14)
    if found.sticks:
        assert slip == pytest.approx(0.0, abs=1e-14)
    else:
        assert found.tangential == pytest.approx(-np.sign(slip) * friction * found.normal, rel=1e-14)
    # impulse and momentum, linear and angular
    change = found.v - before
    np.testing.assert_allclose(change[:2], [found.tangential, found.normal], rtol=1e-13)
    moment = arm[0] * found.normal - arm[1] * found.tangential
    assert change[2] == pytest.approx(moment / constants.inertia, rel=1e-13)


@pytest.mark.parametrize("speed", [-3.0, 0.0, 1.0, 3.0])
def test_friction_dissipates_most(speed: float) -> None:
    """For e = 0 the impulse is the one in the cone of its own normal impulse with the least kinetic energy."""
    constants = Constants(frictions=(0.4, 0.4))
    found = strike(0.6, [speed, -2.0, 0.0], "left", constants)
    arm = -0.5 * np.array([np.cos(0.6), np.sin(0.6)])
    jacobian = np.array([[1.0, 0.0, -arm[1]], [0.0, 1.0, arm[0]]])
    inverse = np.diag(1.0 / np.array(constants.masses))

    def remaining(tangential: np.ndarray) -> float:
        v = np.array([speed, -2.0, 0.0]) + inverse @ jacobian.T @ np.array([tangential[0], found.normal])
        slip = jacobian[0] @ v
        return float(slip**2)

    reach = 0.4 * found.normal
    best = minimize(remaining, [0.0], bounds=[(-reach, reach)], options={"ftol": 1e-16, "gtol": 1e-12})
    assert best.x[0] == pytest.approx(found.tangential, abs=1e-6)


def test_newton_with_friction_can_gain_energy() -> None:
    """Known of the law, and why a simulation reports it: e = 1 with friction is no elastic impact."""
    constants = Constants(frictions=(0.5, 0.5), restitutions=(1.0, 1.0))
    gains = []
    for speed in np.linspace(-3.0, 3.0, 61):
        before = np.array([0.0, 1.0, 0.6, speed, -2.0, 0.0])
        after = np.concatenate([before[:3], strike(0.6, before[3:], "left", constants).v])
        gains.append(energy(after, constants) - energy(before, constants))
    assert max(gains) > 0.1
    assert min(gains) < -0.1


def test_an_end_that_rises_is_not_hit() -> None:
    with pytest.raises(ModelError, match="does not approach"):
        strike(0.5, [0.0, 1.0, 0.0], "left", STANDARD)


@pytest.mark.parametrize("change", [{"length": 0.0}, {"frictions": (0.1, -0.1)}, {"restitutions": (2.0, 0.0)}])
def test_mistakes_are_named(change: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="a rod needs"):
        Constants(**change)
