"""The event-driven simulator in trouble: endless impacts, grazing, paradoxes, NaN, limits, and bad input."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball, falling_rod, point_mass
from nosnoc_py.errors import ModelError, NosnocError, OptionError
from tests.pairwise import slow_row

GRAVITY = 9.81


def simulate(system: ns.CLS, x0: Any, duration: float, *, options: Any = None, **more: Any) -> ns.Trajectory:
    return ns.simulate(system, x0=x0, duration=duration, method=ns.EventDriven(**(options or {})), **more)


def kept(trajectory: ns.Trajectory, end: float, tolerance: float = 1e-9) -> bool:
    """Whether the trajectory goes from 0 to `end` and can be evaluated up to there."""
    assert trajectory.t0 == 0.0
    assert np.isfinite(trajectory.x).all()
    assert np.isfinite(trajectory(np.linspace(0, trajectory.t[-1], 7))).all()
    return bool(abs(trajectory.t[-1] - end) <= tolerance)


# --- endless impacts --------------------------------------------------------------------------------------------------


def accumulation(restitution: float) -> float:
    """A ball dropped from 1 m comes to rest at t_1 (1 + e) / (1 - e), t_1 the time of its first impact."""
    return float(np.sqrt(2.0 / GRAVITY)) * (1 + restitution) / (1 - restitution)


def test_infinitely_many_impacts_end_in_a_status() -> None:
    ball = bouncing_ball.build(restitution=0.5)
    trajectory = simulate(ball, [1.0, 0.0], 3.0, options={"rest_velocity": 0.0})
    assert trajectory.status is ns.Status.ZENO
    assert "rest_velocity" in trajectory.status.remedy
    assert kept(trajectory, accumulation(0.5), 1e-5)
    times = [event.time for event in trajectory.impacts]
    exact = np.sqrt(2.0 / GRAVITY) * (1 + 2 * np.cumsum(0.5 ** np.arange(1, 10)))
    np.testing.assert_allclose(times[1:10], exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize("restitution", [0.3, 0.5, 0.8])
def test_a_rest_velocity_lets_the_ball_come_to_rest(restitution: float) -> None:
    trajectory = simulate(bouncing_ball.build(restitution=restitution), [1.0, 0.0], 5.0)
    assert trajectory.success
    assert [event.kind for event in trajectory.events][-1] == "contact"
    # The bounces that are left out last less than 2 * 1e-3 / g / (1 - e).
    late = accumulation(restitution) - trajectory.events[-1].time
    assert 0 <= late < 2e-3 / GRAVITY / (1 - restitution)
    np.testing.assert_allclose(trajectory.final_state, 0.0, rtol=0, atol=1e-12)
    assert trajectory.series["lambda_normal[ground]"].values[-1] == pytest.approx(GRAVITY, abs=1e-9)
    # The slowest bounce is faster than rest_velocity, the last impact slower and inelastic.
    speeds = [-event.v_before for event in trajectory.impacts if event.v_before is not None]
    assert min(speeds[:-1]) > 1e-3 >= speeds[-1]
    assert trajectory.impacts[-1].v_after == pytest.approx(0.0, abs=1e-12)


def test_more_impacts_than_allowed() -> None:
    options = {"max_impacts": 4, "impact_window": 10.0}
    trajectory = simulate(bouncing_ball.build(restitution=0.9), [1.0, 0.0], 10.0, options=options)
    assert trajectory.status is ns.Status.ZENO
    assert "4 impacts within 10 s" in trajectory.message
    fifth = np.sqrt(2.0 / GRAVITY) * (1 + 2 * sum(0.9**k for k in range(1, 5)))
    assert kept(trajectory, fifth)
    assert len(trajectory.impacts) == 5
    spread = {"max_impacts": 4, "impact_window": 0.5}
    assert simulate(bouncing_ball.build(restitution=0.9), [1.0, 0.0], 3.0, options=spread).success


# --- grazing ----------------------------------------------------------------------------------------------------------


def parabola() -> ns.CLS:
    """gap'' = 2: from gap 1 + d with the rate -2 the gap is (1 - t)^2 + d."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM(1), force=ca.DM(2), contacts=[ns.Contact("wall", gap=q, restitution=0.5)])


def test_a_contact_that_is_touched_without_speed() -> None:
    trajectory = simulate(parabola(), [1.0, -2.0], 2.0)
    assert trajectory.status is ns.Status.GRAZING
    assert "wall" in trajectory.message
    assert kept(trajectory, 1.0, 1e-6)
    on = simulate(parabola(), [1.0, -2.0], 2.0, options={"grazing": "continue"})
    assert on.success
    assert "wall is touched without speed at t = 1" in on.message
    np.testing.assert_allclose(on.final_state, [1.0, 2.0], rtol=0, atol=1e-11)


@pytest.mark.parametrize("miss", [1e-6, 1e-3])
def test_a_near_miss_is_no_grazing(miss: float) -> None:
    trajectory = simulate(parabola(), [1.0 + miss, -2.0], 2.0)
    assert trajectory.success
    assert (trajectory.events, trajectory.message) == ((), "")
    np.testing.assert_allclose(trajectory.final_state, [1.0 + miss, 2.0], rtol=0, atol=1e-11)


@pytest.mark.parametrize("depth", [1e-6, 1e-4])
def test_a_near_hit_is_an_impact(depth: float) -> None:
    """It hits with 2 sqrt(depth), above rest_velocity, and leaves with half of it."""
    trajectory = simulate(parabola(), [1.0 - depth, -2.0], 2.0)
    assert trajectory.success
    assert [event.kind for event in trajectory.events] == ["impact"]
    assert trajectory.events[0].time == pytest.approx(1 - np.sqrt(depth), abs=1e-9)
    left = 1 + np.sqrt(depth)
    exact = [left**2 + np.sqrt(depth) * left, 2 * left + np.sqrt(depth)]
    np.testing.assert_allclose(trajectory.final_state, exact, rtol=0, atol=1e-9)


# --- no motion --------------------------------------------------------------------------------------------------------

ANGLE = float(np.arctan(2.0))


def sliding_rod(friction: float, speed: float = -1.0, angle: float = ANGLE) -> ns.Trajectory:
    """A homogeneous rod that slides on its left end towards the side it does not lean to."""
    constants = falling_rod.Constants(frictions=(friction, friction))
    x0 = [*falling_rod.tilted(angle, 0.0, constants)[:3], speed, 0.0, 0.0]
    return simulate(falling_rod.build(constants), x0, 0.02)


def test_the_paradox_of_painleve() -> None:
    """The normal force lifts the end with 1/m + (c^2 - mu s c) / J, J = m l^2 / 12, c, s = l/2 (cos, sin) of the angle.

    That is zero for mu = (1 + 3 cos^2) / (3 sin cos), whose smallest value over all angles is 4/3, at tan = 2.
    """
    assert (1 + 3 * np.cos(ANGLE) ** 2) / (3 * np.sin(ANGLE) * np.cos(ANGLE)) == pytest.approx(4 / 3, abs=1e-14)
    assert sliding_rod(4 / 3 - 1e-3).success
    stuck = sliding_rod(4 / 3 + 1e-3)
    assert stuck.status is ns.Status.PAINLEVE
    assert "left" in stuck.message
    assert "friction" in stuck.status.remedy
    assert kept(stuck, 0.0)
    assert sliding_rod(4 / 3 + 1e-3, speed=1.0).success  # the other way it is dragged, not pushed
    assert sliding_rod(4 / 3 + 1e-3, angle=0.8).success


def test_a_motion_into_the_paradox_ends_there() -> None:
    """Upright enough at first; falling it comes to the angle where the normal force loses its hold."""
    friction, angle = 1.4, 1.3
    constants = falling_rod.Constants(frictions=(friction, friction))
    critical = (1 + 3 * np.cos(angle) ** 2) / (3 * np.sin(angle) * np.cos(angle))
    assert critical > friction
    x0 = [*falling_rod.tilted(angle, 0.0, constants)[:3], -9.0, 0.0, 0.0]
    spin = -1.0  # of the rod, the end stays on the ground
    x0[3:] = [-9.0, 0.5 * np.cos(angle) * spin, spin]
    trajectory = simulate(falling_rod.build(constants), x0, 1.0)
    if trajectory.status is ns.Status.PAINLEVE:
        theta = trajectory.final_state[2]
        end = (1 + 3 * np.cos(theta) ** 2) / (3 * np.sin(theta) * np.cos(theta))
        assert end == pytest.approx(friction, abs=1e-6)
    assert trajectory.status in (ns.Status.PAINLEVE, ns.Status.SOLVED)
    assert trajectory.t[-1] > 0


def wedge(restitution: float) -> ns.CLS:
    """A wall and a plane whose normal points against it: an impulse of the plane pushes into the wall."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    contacts = [
        ns.Contact("wall", gap=q[0], restitution=restitution),
        ns.Contact("plane", gap=-0.8 * q[0] + 0.6 * q[1]),
    ]
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.SX(2, 1), contacts=contacts)


def test_an_impact_without_admissible_solution() -> None:
    """The left wall throws the particle back with 0.5 m/s, and the right one lets it nowhere."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    walls = [ns.Contact("left", gap=q[0], restitution=0.5), ns.Contact("right", gap=-q[0])]
    slot = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.SX(2, 1), contacts=walls)
    trajectory = simulate(slot, [0.0, 0.0, -1.0, 2.0], 0.1)
    assert trajectory.status is ns.Status.NO_ADMISSIBLE_IMPACT
    assert "left" in trajectory.message
    np.testing.assert_array_equal(trajectory.final_state, [0.0, 0.0, -1.0, 2.0])


@pytest.mark.parametrize("restitution", [0.0, 0.5])
def test_a_closed_contact_that_separates_is_held(restitution: float) -> None:
    """The wall is left with 1 m/s, and the plane sends the particle back into it: it ends in the edge."""
    plain = simulate(wedge(restitution), [0.0, 0.0, 1.0, -2.0], 0.1)
    assert plain.success
    np.testing.assert_allclose(plain.final_state, 0.0, rtol=0, atol=1e-14)


def test_gained_energy_is_refused() -> None:
    """Newton's restitution with friction on one end of a rod: the gain is that of the closed form of the impact."""
    constants = falling_rod.Constants(frictions=(0.6, 0.6), restitutions=(1.0, 1.0))
    masses = np.array(constants.masses)
    refused = []
    for angle, v in [(a, np.array([s, -0.5, w])) for a in (0.8, 1.3) for s in (-1.0, 3.0) for w in (-6.0, 6.0)]:
        x0 = np.array([*falling_rod.tilted(angle, 0.0, constants)[:3], *v])
        if v[1] - 0.5 * np.cos(angle) * v[2] >= 0:
            continue
        strike = falling_rod.strike(angle, v, "left", constants)
        exact = 0.5 * masses @ (strike.v**2 - v**2)
        assert abs(exact) > 1e-3  # far from the border
        trajectory = simulate(falling_rod.build(constants), x0, 0.001)
        refused.append(trajectory.status is ns.Status.ENERGY_GAIN)
        assert refused[-1] == (exact > 0.0)
        if exact < 0.0:
            assert trajectory.impacts[0].energy_gain == pytest.approx(exact, abs=1e-10)
    assert 0 < sum(refused) < len(refused)


# --- numbers, limits, callbacks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("integrator", ["DOP853", "Radau", "auto"])
@pytest.mark.parametrize("height", [0.0, 5.0])
def test_a_force_without_value(integrator: str, height: float) -> None:
    """sqrt(1 - x) has none from x = 1 on, in contact as in flight."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.1)
    system = ns.CLS(
        q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.vertcat(ca.sqrt(1 - q[0]), -GRAVITY), contacts=[ground]
    )
    trajectory = simulate(system, [0.0, height, 3.0, 0.0], 2.0, options={"integrator": integrator, "rtol": 1e-8})
    assert trajectory.status is ns.Status.NUMERICAL_ERROR
    assert "finite" in trajectory.message
    assert trajectory.final_state[0] == pytest.approx(1.0, abs=1e-3)
    at_once = simulate(system, [2.0, height, 3.0, 0.0], 2.0)
    assert at_once.status is ns.Status.NUMERICAL_ERROR
    np.testing.assert_array_equal(at_once.final_state, [2.0, height, 3.0, 0.0])


def test_a_singular_mass_matrix() -> None:
    """M = diag(1, x): at once, and where the motion leads to it."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ground = ns.Contact("ground", gap=q[1])
    system = ns.CLS(q=q, v=v, mass_matrix=ca.diag(ca.vertcat(1, q[0])), force=ca.DM([0, -1]), contacts=[ground])
    trajectory = simulate(system, [0.0, 1.0, 1.0, 0.0], 1.0)
    assert trajectory.status is ns.Status.NUMERICAL_ERROR
    assert "mass matrix is singular" in trajectory.message
    np.testing.assert_array_equal(trajectory.final_state, [0.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize("gain", [slow_row(20.0), 1e3])
def test_a_control_that_jumps_with_the_state(gain: float) -> None:
    """From x + x' = 1 it falls to zero and would chatter there: x' = -gain t, 1 - gain t (1 + t / 2) = 0."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM(1), force=u)
    trajectory = simulate(system, [1.0, 0.0], 5.0, u=lambda t, x: [-gain * np.sign(x[0] + x[1])], time_limit=30.0)
    assert trajectory.status is ns.Status.STEP_FAILED
    assert "the control or a force seems to jump" in trajectory.message
    assert kept(trajectory, np.sqrt(1.0 + 2.0 / gain) - 1.0, 1e-6)


def test_the_time_limit() -> None:
    trajectory = simulate(bouncing_ball.build(restitution=0.9), [1.0, 0.0], 2.0, time_limit=0.0)
    assert trajectory.status is ns.Status.TIME_LIMIT
    assert kept(trajectory, 0.0)
    assert simulate(bouncing_ball.build(restitution=0.9), [1.0, 0.0], 2.0, time_limit=60.0).success


def test_a_callback_sees_every_step_and_may_stop() -> None:
    seen: list[Any] = []

    def watch(state: Any) -> Any:
        seen.append((state.t, state.x.copy()))
        return ns.Stop if state.t > 1.2 else None

    trajectory = simulate(bouncing_ball.build(restitution=0.9), [1.0, 0.0], 3.0, callback=watch)
    assert trajectory.status is ns.Status.STOPPED
    fall = np.sqrt(2 / GRAVITY)
    at_impact = next(x for t, x in seen if abs(t - fall) < 1e-11)
    assert at_impact == pytest.approx([0.0, -GRAVITY * fall], abs=1e-10)  # before the impact
    for t, (height, _) in seen:
        late = t - fall
        flown = 1.0 - 0.5 * GRAVITY * t**2 if late <= 0.0 else 0.9 * GRAVITY * fall * late - 0.5 * GRAVITY * late**2
        assert height == pytest.approx(flown, abs=1e-11)
    assert kept(trajectory, seen[-1][0])
    seen.clear()
    assert simulate(bouncing_ball.build(restitution=0.9), [1.0, 0.0], 0.3, callback=lambda state: None).success


def test_interrupting() -> None:
    seen: list[float] = []

    def impatient(state: Any) -> Any:
        seen.append(state.t)
        if state.t > 1.0:
            raise KeyboardInterrupt

    trajectory = simulate(bouncing_ball.build(restitution=0.9), [1.0, 0.0], 3.0, callback=impatient)
    assert trajectory.status is ns.Status.INTERRUPTED
    assert kept(trajectory, seen[-1])


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"x0": [-0.1, 0, 0, 0], "duration": 1.0}, None, ""),
        ({"x0": [0, -0.1, 0, 0]}, ModelError, "penetrates contact 'ground': its gap is -0.1"),
        ({"x0": [0, 0, 0]}, NosnocError, "expected 4 numbers, given 3"),
        ({"x0": [0, np.nan, 0, 0]}, NosnocError, "x0"),
        ({"duration": 0.0}, OptionError, "duration: expected a positive finite number"),
        ({"duration": -1.0}, OptionError, "given -1.0"),
        ({"duration": np.nan}, NosnocError, "duration"),
        ({"duration": np.inf}, NosnocError, "duration"),
        ({"duration": "long"}, NosnocError, "duration"),
        ({"steps": 0}, OptionError, "steps: expected a positive whole number"),
        ({"solver": ns.Auto()}, OptionError, "solver: EventDriven takes none"),
        ({"u": [1.0, 2.0]}, NosnocError, "expected 1 numbers or rows of 1"),
        ({"u": "abc"}, NosnocError, "^u: expected a control .* given str"),
        ({"u": lambda t: [1.0, 2.0]}, NosnocError, r"u\(t\)"),
        ({"u": ns.PiecewiseConstant([0.0, 0.5], [1.0])}, OptionError, "from 0 to 0.5 s, which does not cover"),
        ({"u": ns.PiecewiseConstant([0.1, 1.0], [1.0])}, OptionError, "from 0.1 to 1 s, which does not cover"),
        ({"p": [1.0]}, NosnocError, "p"),
    ],
)
def test_bad_input_says_what_is_wrong(change: dict[str, Any], error: type[Exception] | None, said: str) -> None:
    given = {"x0": [0, 0, 0, 0], "duration": 1.0, "method": ns.EventDriven(), **change}
    if error is None:
        assert ns.simulate(point_mass.build(2), **given).success
        return
    with pytest.raises(error, match=said):
        ns.simulate(point_mass.build(2), **given)


@pytest.mark.parametrize(
    "options", [{"rtol": 0.0}, {"rtol": 2e-14}, {"rest_velocity": -1.0}, {"grazing": "maybe"}, {"step": 1e-3}]
)
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        ns.EventDriven(**options)


def test_the_least_tolerance_is_one_that_the_integrators_take() -> None:
    assert simulate(bouncing_ball.build(), [1.0, 0.0], 0.1, options={"rtol": 2.3e-14}).success
