"""The guiding example of time-freezing: its closed form against an integration of the frozen system itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from models.particle import (
    FRICTIONAL,
    FRICTIONLESS,
    LIFT_OFF,
    Constants,
    build,
    clock,
    control,
    exact,
    impulse,
    normal_force,
    numerical_time,
    physical,
    speed_of_time,
)
from nosnoc_py.errors import ModelError

pytestmark = pytest.mark.quick

Array = NDArray[np.float64]
Field = Callable[[float, Array], Array]
Function = Callable[[float, Array], float]
EXAMPLES = {"example_3": FRICTIONLESS, "example_4": FRICTIONAL, "fast": Constants(friction=0.4, auxiliary=40.0)}
DURATION = 3.5


class Ending:
    """An event that ends a piece when it crosses zero in one direction."""

    terminal = True

    def __init__(self, function: Function, direction: float) -> None:
        self.function, self.direction = function, direction

    def __call__(self, tau: float, y: Array) -> float:
        return self.function(tau, y)


class Frozen:
    """The time-freezing system in numerical time, y = (q, v, t), integrated piece by piece.

    `grip` multiplies the friction of the auxiliary dynamics only, to be wrong on purpose.
    """

    def __init__(self, constants: Constants, grip: float = 1.0) -> None:
        system = build(constants.friction, gravity=constants.gravity)
        self.force = ca.Function("force", [system.q, system.v, system.u], [system.force])
        self.constants, self.grip = constants, grip

    def ode(self, tau: float, y: Array) -> Array:
        force = np.array(self.force(y[:2], y[2:4], control(y[4], self.constants))).ravel()
        return np.concatenate([y[2:4], force, [1.0]])

    def auxiliary(self, tau: float, y: Array) -> Array:
        a, mu = self.constants.auxiliary, self.grip * self.constants.friction
        return np.array([0.0, 0.0, -np.sign(y[2]) * mu * a, a, 0.0])

    def sliding(self, tau: float, y: Array) -> Array:
        """Filippov's convex combination of the two that keeps v_y."""
        fields = np.column_stack([self.ode(tau, y), self.auxiliary(tau, y)])
        return np.asarray(fields @ np.linalg.solve(np.array([fields[3], [1.0, 1.0]]), [0.0, 1.0]))

    def pieces(self) -> list[tuple[Field, Function | None]]:
        """Fields, and what becomes zero where they end."""
        return [
            (self.ode, lambda tau, y: y[1]),
            (self.auxiliary, lambda tau, y: y[3]),
            (self.sliding, lambda tau, y: y[4] - 1.0),
            (self.sliding, lambda tau, y: self.ode(tau, y)[3]),
            (self.ode, None),
        ]

    def states(self, times: Array) -> Array:
        """States (n, 5) at numerical times."""
        y, tau, found = np.array([0.0, 1.0, 0.0, 0.0, 0.0]), 0.0, np.zeros((times.size, 5))
        for field, ends in self.pieces():
            solution = self._piece(field, ends, tau, y)
            inside = (times >= tau) & (times <= solution.t[-1])
            if inside.any():
                found[inside] = solution.sol(times[inside]).T
            tau, y = solution.t[-1], solution.y[:, -1]
        return found

    def _piece(self, field: Field, ends: Function | None, tau: float, y: Array) -> Any:
        events = []
        if ends is not None:
            ahead = ends(tau + 1e-6, y + 1e-6 * field(tau, y))
            events.append(Ending(ends, -float(np.sign(ahead))))
        options = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-13, "max_step": 0.02, "dense_output": True}
        return solve_ivp(field, (tau, DURATION), y, events=events, **options)


@pytest.mark.parametrize("constants", EXAMPLES.values(), ids=EXAMPLES)
def test_the_closed_form_is_the_integrated_time_freezing_system(constants: Constants) -> None:
    times = np.linspace(0.0, DURATION, 141)
    np.testing.assert_allclose(exact(times, constants), Frozen(constants).states(times), rtol=0, atol=1e-10)


def test_friction_that_is_one_percent_wrong_is_seen() -> None:
    wrong = Frozen(FRICTIONAL, grip=1.01).states(np.array([1.0, DURATION]))
    assert np.all(np.abs(wrong - exact([1.0, DURATION], FRICTIONAL)).max(axis=1) > 0.01)


def test_published_numbers_without_friction() -> None:
    np.testing.assert_allclose(exact(DURATION), [17.71875, 1.37953125, 15.75, 5.518125, 2.25], rtol=0, atol=1e-13)
    assert FRICTIONLESS.landing == pytest.approx(0.451523640985731, abs=1e-15)
    assert FRICTIONLESS.jump == pytest.approx(0.451523640985731, abs=1e-15)
    assert FRICTIONLESS.landing_speed == pytest.approx(4.429446918070020, abs=1e-14)
    np.testing.assert_allclose(numerical_time([1.0, 1.5, 2.25]), [2.0, 2.75, 3.5], rtol=0, atol=1e-14)


def test_numbers_with_friction() -> None:
    """After the impact 7 - mu g = 1.114 drives the particle: it never stops; the ramp adds mu g (1/4 + 5/12)."""
    after = physical(FRICTIONAL.landing, FRICTIONAL)
    assert after[2] == pytest.approx(0.502997336058104, abs=1e-14)
    np.testing.assert_allclose(exact(DURATION, FRICTIONAL), [6.424125, 1.37953125, 8.3925, 5.518125, 2.25], atol=1e-13)
    assert np.all(exact(np.linspace(0.01, DURATION, 2001), FRICTIONAL)[:, 2] > 0.05)


@pytest.mark.parametrize("constants", EXAMPLES.values(), ids=EXAMPLES)
def test_the_laws_of_the_contact_in_physical_time(constants: Constants) -> None:
    """Momentum: v(t) - v(0) = the integral of u, less that of gravity, plus the impulse; and q' = v."""
    t = np.linspace(0.0, 2.25, 9001)
    x, total = physical(t, constants), impulse(t, constants)
    pushed = np.concatenate([[[0.0, 0.0]], np.cumsum((control(t[1:]) + control(t[:-1])) / 2, axis=0)]) * t[1]
    momentum = pushed - np.outer(t, [0.0, constants.gravity]) + np.outer(total, [-constants.friction, 1.0])
    np.testing.assert_allclose(x[:, 2:], momentum, rtol=0, atol=1e-9)
    smooth = np.flatnonzero((t[1:] < constants.landing) | (t[:-1] >= constants.landing))
    moved = (x[smooth + 1, 2:] + x[smooth, 2:]) * t[1] / 2
    np.testing.assert_allclose(x[smooth + 1, :2] - x[smooth, :2], moved, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(normal_force(t, constants) * x[:, 1], 0.0)
    assert np.all(normal_force(t, constants) >= 0.0)
    assert np.all(x[:, 1] >= 0.0)


@pytest.mark.parametrize("constants", EXAMPLES.values(), ids=EXAMPLES)
def test_the_impulse_is_the_integrated_force_and_the_impact(constants: Constants) -> None:
    t = np.concatenate([np.linspace(constants.landing, 1.0, 50), np.linspace(1.0, LIFT_OFF, 50)[1:]])
    force = np.append(normal_force(t[:-1], constants), 0.0)
    integral = np.sum((force[1:] + force[:-1]) * np.diff(t)) / 2  # exact: the force is piecewise linear
    assert impulse(LIFT_OFF, constants) == pytest.approx(constants.landing_speed + integral, abs=1e-12)
    assert impulse(constants.landing - 1e-9, constants) == 0.0
    assert impulse(constants.landing, constants) == pytest.approx(constants.landing_speed, abs=1e-13)


@pytest.mark.parametrize("constants", EXAMPLES.values(), ids=EXAMPLES)
def test_the_speed_of_time_is_the_slope_of_the_clock(constants: Constants) -> None:
    tau, step = np.linspace(0.003, DURATION, 501), 1e-5
    slope = (clock(tau + step, constants) - clock(tau - step, constants)) / (2.0 * step)
    corners = [constants.landing, constants.landing + constants.jump, *numerical_time([1.0, 1.5], constants)]
    away = np.abs(tau[:, None] - corners).min(axis=1) > 2 * step
    assert away.sum() > 490
    np.testing.assert_allclose(speed_of_time(tau, constants)[away], slope[away], rtol=0, atol=1e-8)


def test_the_speed_of_time_of_the_paper() -> None:
    """1, frozen, a_n / (2 g) = 1/2 until tau = 2, then g / (2 g - u_2) up to 1 at the lift-off, tau = 2.75."""
    np.testing.assert_array_equal(speed_of_time([0.2, 0.6, 1.5, 3.0]), [1.0, 0.0, 0.5, 1.0])
    np.testing.assert_allclose(speed_of_time([2.0, 2.36, 2.75]), [0.5, 0.625, 1.0], atol=1e-12)


@pytest.mark.parametrize("constants", EXAMPLES.values(), ids=EXAMPLES)
def test_clock_and_numerical_time_are_inverse_and_the_jump_is_continuous(constants: Constants) -> None:
    t = np.linspace(0.0, 2.5, 501)
    np.testing.assert_allclose(clock(numerical_time(t, constants), constants), t, rtol=0, atol=1e-14)
    edges = np.array([constants.landing, constants.landing + constants.jump])
    left, right = exact(edges - 1e-12, constants), exact(edges + 1e-12, constants)
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-9)


def test_one_time_or_many() -> None:
    assert exact(1.0).shape == (5,)
    assert exact([1.0, 2.0]).shape == (2, 5)
    np.testing.assert_allclose(exact([1.0, 2.0])[0], exact(1.0), rtol=0, atol=1e-14)
    np.testing.assert_array_equal(control([0.5, 1.5]), [[7.0, 0.0], [7.0, 9.81]])


@pytest.mark.parametrize("bad", [{"friction": 0.72}, {"friction": -0.1}, {"gravity": 1.9}, {"auxiliary": 0.0}])
def test_the_closed_form_knows_its_range(bad: dict[str, float]) -> None:
    with pytest.raises(ModelError, match="closed form needs"):
        Constants(**bad)


def test_senseless_arguments_are_refused() -> None:
    with pytest.raises(ModelError, match="starts at 0"):
        exact([0.1, -0.1])
    with pytest.raises(ModelError, match="controls=3"):
        build(controls=3)
    with pytest.raises(ModelError, match="friction"):
        build(-0.1)


@pytest.mark.parametrize("controls", [1, 2])
def test_build(controls: int) -> None:
    system = build(0.6, controls)
    (ground,) = system.contacts
    force = ca.Function("force", [system.q, system.v, system.u], [system.force])
    given = [3.0, 2.0][:controls]
    expected = [3.0, (2.0 if controls == 2 else 0.0) - 9.81]
    np.testing.assert_allclose(np.array(force([0, 1], [0, 0], given)).ravel(), expected, atol=1e-15)
    assert (ground.name, ground.friction, ground.restitution) == ("ground", (0.6,), 0.0)
    assert system.state_names == ("x", "y", "v_x", "v_y")
    assert system.control_names == ("force_x", "force_y")[:controls]
    assert system.n_u == controls
    np.testing.assert_array_equal(np.array(ca.DM(system.mass_matrix)), np.eye(2))
