"""Orders with friction: an oscillator that reverses and stops, and a mass that slides in a bowl."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bowl

GRAVITY, MU, STIFFNESS, START = 9.81, 0.1, 100.0, 0.05
OMEGA, DEAD = np.sqrt(STIFFNESS), MU * GRAVITY / STIFFNESS  # it can rest where |x| <= DEAD
STEPS = (4, 6, 8, 12, 16)


def oscillator() -> ns.CLS:
    """A unit mass on a spring and on the ground."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=MU)
    force = ca.vertcat(-STIFFNESS * q[0], -GRAVITY)
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=force, contacts=[ground])


def exact(t: float, start: float = START) -> tuple[float, float]:
    """Half cosines about +-DEAD, each half a period long, until one ends in the dead zone (closed form)."""
    x, left, half = start, t, np.pi / OMEGA
    while abs(x) > DEAD:
        middle = DEAD * np.sign(x)  # friction opposes the way back
        if left <= half:
            return middle + (x - middle) * np.cos(OMEGA * left), -(x - middle) * OMEGA * np.sin(OMEGA * left)
        x, left = 2 * middle - x, left - half
    return x, 0.0


def events(start: float = START) -> list[tuple[str, float]]:
    found, x, time = [], start, 0.0
    while abs(x) > DEAD:
        x, time = 2 * DEAD * np.sign(x) - x, time + np.pi / OMEGA
        found.append(("reversal" if abs(x) > DEAD else "stick", time))
    return found


def orders(errors: list[float], steps: tuple[int, ...]) -> float:
    return float(-np.polyfit(np.log(steps), np.log(errors), 1)[0])


# A start in motion: the simulation does not begin with a switch.
LEAD = 0.1


def run(steps: int, rk_stages: int, duration: float, **method: object) -> ns.Trajectory:
    x, v = exact(LEAD)
    return ns.simulate(
        oscillator(),
        x0=[x, 0, v, 0],
        duration=duration,
        steps=steps,
        method=ns.FESDJ(rk_stages=rk_stages, finite_elements=2, error_tolerance=None, **method),  # type: ignore[arg-type]
    )


@pytest.mark.quick
@pytest.mark.parametrize(("rk_stages", "order"), [(2, 3.0), (3, 5.0)])
def test_a_reversal_keeps_the_order(rk_stages: int, order: float) -> None:
    duration = 0.5
    end = exact(LEAD + duration)
    errors = []
    for steps in STEPS:
        trajectory = run(steps, rk_stages, duration)
        assert trajectory.success
        assert [event.kind for event in trajectory.events] == ["reversal"]
        errors.append(np.abs(trajectory.final_state[[0, 2]] - end).max())
    assert orders(errors, STEPS) == pytest.approx(order, abs=0.35)


def test_without_switch_detection_a_step_is_wrong_or_none() -> None:
    duration = 0.5
    x, v = exact(LEAD)
    end = exact(LEAD + duration)
    for steps in STEPS[-2:]:
        method = ns.FESDJ(rk_stages=3, finite_elements=1, switch_detection=False)
        fixed = ns.simulate(oscillator(), x0=[x, 0, v, 0], duration=duration, steps=steps, method=method)
        assert not fixed.success or np.abs(fixed.final_state[[0, 2]] - end).max() > 1e-4
        assert np.abs(run(steps, 3, duration).final_state[[0, 2]] - end).max() < 1e-6


@pytest.mark.quick
def test_reversals_and_the_stop_are_found() -> None:
    expected = [(kind, time - LEAD) for kind, time in events()]
    assert [kind for kind, _ in expected] == ["reversal", "reversal", "stick"]
    trajectory = run(40, 3, expected[-1][1] + 0.1)
    assert [event.kind for event in trajectory.events] == [kind for kind, _ in expected]
    times = [event.time for event in trajectory.events]
    np.testing.assert_allclose(times, [time for _, time in expected], rtol=0, atol=1e-8)
    assert trajectory.final_state[0] == pytest.approx(exact(9.9)[0], abs=1e-9)


PHI, RATE = 0.4, 0.5  # where the mass starts in the bowl [rad], [rad/s]


def in_bowl(steps: int, rk_stages: int, gap_rate: bool | None) -> ns.Trajectory:
    method = ns.FESDJ(rk_stages=rk_stages, finite_elements=1, gap_rate=gap_rate, error_tolerance=None)
    return ns.simulate(bowl.build(), x0=bowl.state(PHI, RATE), duration=1.0, steps=steps, method=method)


@pytest.mark.parametrize(("rk_stages", "order"), [(2, 3.0), (3, 5.0)])
def test_a_curved_contact_keeps_the_order(rk_stages: int, order: float) -> None:
    end = bowl.slide(PHI, RATE, 1.0)(1.0)
    errors = []
    for steps in STEPS:
        trajectory = in_bowl(steps, rk_stages, None)
        assert trajectory.success
        assert not trajectory.impacts
        assert not trajectory.message  # no step was left to the MPCC
        errors.append(np.abs(trajectory.final_state - end).max())
    assert orders(errors, STEPS) == pytest.approx(order, abs=0.35)
