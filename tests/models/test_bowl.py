"""The bowl: the reference in the angle against energy, an elliptic integral, and Cartesian integration."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import ellipk

from models.bowl import Constants, build, normal_force, slide, state
from nosnoc_py.errors import ModelError

pytestmark = pytest.mark.quick

SMOOTH = Constants(radius=0.8)
ROUGH = Constants(radius=0.8, friction=0.2)


def test_frame_and_states() -> None:
    system = build(SMOOTH)
    (bowl,) = system.contacts
    x = state(0.7, 1.5, SMOOTH)
    outputs = [bowl.gap, system.normal(bowl), bowl.tangent]
    gap, normal, tangent = (np.array(v).ravel() for v in ca.Function("f", [system.q], outputs)(x[:2]))
    assert gap.item() == pytest.approx(0.0, abs=1e-15)
    np.testing.assert_allclose(normal, -x[:2] / 0.8, rtol=1e-14)
    np.testing.assert_allclose(tangent, [np.cos(0.7), np.sin(0.7)], rtol=1e-14)
    assert tangent @ x[2:] == pytest.approx(0.8 * 1.5, rel=1e-14)
    assert normal @ x[2:] == pytest.approx(0.0, abs=1e-15)


def test_without_friction_the_energy_stays() -> None:
    motion = slide(1.2, 0.0, 3.0, SMOOTH)
    x = motion(np.linspace(0.0, 3.0, 300))
    total = 0.5 * (x[:, 2] ** 2 + x[:, 3] ** 2) + 9.81 * x[:, 1]
    np.testing.assert_allclose(total, total[0], atol=2e-11)
    np.testing.assert_allclose(np.hypot(x[:, 0], x[:, 1]), 0.8, rtol=1e-14)


def test_half_periods_are_the_elliptic_integral() -> None:
    half = 2.0 * np.sqrt(0.8 / 9.81) * ellipk(np.sin(0.6) ** 2)
    times = [time for kind, time in slide(1.2, 0.0, 3.0, SMOOTH).events if kind == "reversal"]
    np.testing.assert_allclose(times, half * np.arange(1, len(times) + 1), atol=1e-11)
    assert len(times) == int(3.0 / half)


def test_with_friction_against_cartesian_integration() -> None:
    """The forces of x and y with lambda from the constraint, written down anew; up to the first turn."""

    def rates(_: float, x: np.ndarray) -> np.ndarray:
        q, v = x[:2], x[2:]
        inward = -q / np.linalg.norm(q)
        force = 9.81 * inward[1] + v @ v / 0.8  # the normal force that keeps q on the circle, per mass
        acceleration = np.array([0.0, -9.81]) + force * (inward - 0.2 * v / max(np.linalg.norm(v), 1e-300))
        return np.concatenate([v, acceleration])

    motion = slide(1.2, -0.5, 1.0, ROUGH)
    first = motion.events[0][1]
    t = np.linspace(0.0, 0.9 * first, 20)
    found = solve_ivp(rates, (0.0, t[-1]), state(1.2, -0.5, ROUGH), "DOP853", t_eval=t, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(motion(t), found.y.T, atol=1e-9)


def test_friction_ends_in_stick_within_its_cone() -> None:
    motion = slide(1.2, 0.0, 5.0, ROUGH)
    assert [kind for kind, _ in motion.events][-1] == "stick"
    assert all(kind == "reversal" for kind, _ in motion.events[:-1])
    rest = motion.angle([5.0])[0]
    assert rest[1] == 0.0
    assert abs(np.tan(rest[0])) <= 0.2
    turns = np.abs(motion.angle([time for _, time in motion.events])[:, 0])
    assert (np.diff(turns) < 0.0).all()
    assert (np.abs(np.tan(turns[:-1])) > 0.2).all()


def test_the_sign_of_friction_matters() -> None:
    """Negative control: without friction the same start is 0.1 and more away."""
    t = np.linspace(0.0, 2.0, 50)
    assert np.abs(slide(1.2, 0.0, 2.0, ROUGH)(t) - slide(1.2, 0.0, 2.0, SMOOTH)(t)).max() > 0.1


def test_rest() -> None:
    motion = slide(0.1, 0.0, 1.0, ROUGH)
    assert motion.events == ()
    np.testing.assert_array_equal(motion.angle([0.0, 1.0]), [[0.1, 0.0], [0.1, 0.0]])


def test_normal_force_at_the_bottom() -> None:
    assert normal_force(0.0, 2.0, SMOOTH) == pytest.approx(0.8 * 4.0 + 9.81)


def test_leaving_the_bowl_is_said() -> None:
    with pytest.raises(ModelError, match="leaves the bowl"):
        slide(0.0, 7.0, 2.0, SMOOTH)


@pytest.mark.parametrize("change", [{"radius": 0.0}, {"friction": -0.1}, {"restitution": -1.0}])
def test_mistakes_are_named(change: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="a bowl needs"):
        Constants(**change)
