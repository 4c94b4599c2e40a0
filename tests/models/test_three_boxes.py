"""Three boxes: the full model by hand, and the exact reduced motion against closed forms and integrations."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from models.three_boxes import CONTACTS, PAPER, START, Constants, ReducedMotion, build, reduced_motion
from nosnoc_py.errors import ModelError

pytestmark = pytest.mark.quick

GRIP = 0.2 * 9.81


def test_full_model() -> None:
    system = build()
    contacts = system.contacts
    outputs = [ca.vertcat(*[c.gap for c in contacts]), ca.horzcat(*[system.normal(c) for c in contacts])]
    outputs += [ca.horzcat(*[c.tangent for c in contacts]), system.force]
    values = ca.Function("f", [system.q, system.u], outputs)(START[:6], [7.0])
    gaps, normals, tangents, force = (np.array(value) for value in values)
    np.testing.assert_array_equal(gaps.ravel(), [1.0, 1.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(normals[:, 0], [-1, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal(normals[:, 3], [0, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(tangents[:, 1], [0, 0, 0, -1, 0, 1])
    np.testing.assert_array_equal(tangents[:, 4], [0, 0, 0, 0, 1, 0])
    np.testing.assert_allclose(force.ravel(), [0, -9.81, 7.0, -9.81, 0, -9.81])
    assert tuple(c.name for c in contacts) == CONTACTS
    assert [c.friction[0] for c in contacts] == [0.1, 0.1, 0.2, 0.2, 0.2]
    assert [c.restitution for c in contacts] == [0.0, 0.5, 0.0, 0.0, 0.0]
    system.check_state(START)


def test_sides_without_friction_are_the_reduction() -> None:
    system = build(Constants(sides=(0.0, 0.0)))
    assert [c.frictional for c in system.contacts] == [False, False, True, True, True]


def test_rest_and_sliding_of_one_box() -> None:
    """Below mu g nothing moves; above, the middle box slides freely as long as it hits nothing, and then stops."""
    assert np.array_equal(reduced_motion([0.99 * GRIP], 2.0).end, [-3.0, 0.0, 3.0, 0.0, 0.0, 0.0])
    force, push = 5.0, 0.3
    motion = reduced_motion([force, 0.0, 0.0], 3.0 * push)
    speed = (force - GRIP) * push
    stop = speed / GRIP
    assert push < stop < 2.0 * push
    expected = 0.5 * (force - GRIP) * push**2 + 0.5 * speed**2 / GRIP
    np.testing.assert_allclose(motion.end, [-3.0, expected, 3.0, 0.0, 0.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(motion.t, [0.0, push, 2 * push, push + stop, 3 * push], atol=1e-14)


def test_inelastic_impact_and_push() -> None:
    """Middle box into the left one, then both pushed as one of twice the mass."""
    force = -10.0
    motion = reduced_motion([force], 0.8)
    hit = np.sqrt(2.0 / (10.0 - GRIP))
    speed = (10.0 - GRIP) * hit
    (impact,) = motion.impacts
    assert (impact.name, impact.v_after) == ("left_middle", 0.0)
    assert impact.time == pytest.approx(hit, rel=1e-14)
    assert impact.impulse == pytest.approx(0.5 * speed, rel=1e-14)
    s = 0.8 - hit
    common = 10.0 / 2.0 - GRIP
    np.testing.assert_allclose(motion.end[3:5], -(0.5 * speed + common * s), rtol=1e-14)
    np.testing.assert_allclose(motion.end[0], -3.0 - 0.5 * speed * s - 0.5 * common * s**2, rtol=1e-14)


def test_partially_elastic_impact() -> None:
    motion = reduced_motion([10.0, 0.0], 1.2)
    hit = np.sqrt(2.0 / (10.0 - GRIP))
    speed = (10.0 - GRIP) * hit
    first = motion.impacts[0]
    assert first.name == "middle_right"
    assert first.impulse == pytest.approx(0.75 * speed, rel=1e-13)
    assert first.v_after == pytest.approx(-0.5 * first.v_before, rel=1e-15)


def test_all_three_collide_at_once() -> None:
    """The left and the middle box, moving together, hit the right one: both contacts have an impulse."""
    start = [-3.0, -1.0, 1.5, 4.0, 4.0, 0.0]
    motion = reduced_motion([0.0], 0.2, start)
    impacts = [impact for impact in motion.impacts if impact.name == "middle_right"]
    speed = np.sqrt(16.0 - 2.0 * GRIP * 0.5)
    left, right = motion.impacts[:2]
    assert {left.name, right.name} == {"left_middle", "middle_right"}
    assert [left.time, right.time] == pytest.approx([impacts[0].time] * 2, abs=1e-12)
    # momentum 2 v, and v_3 - v_2 = v / 2, v_2 = v_1: v_1 = v_2 = v / 2, v_3 = v
    assert right.impulse == pytest.approx(speed, rel=1e-13)
    assert left.impulse == pytest.approx(0.5 * speed, rel=1e-13)


def integrated(u: np.ndarray, duration: float) -> tuple[np.ndarray, list[float]]:
    """The same motion by DOP853 and root finding, for forces that keep boxes apart after their impacts."""
    x, t, times = np.array([-3.0, 0.0, 3.0, 0.0, 0.0, 0.0]), 0.0, []
    for k, force in enumerate(u):
        end = (k + 1) * duration / len(u)
        for _ in range(20):
            if t >= end - 1e-13:
                break
            resting = [i for i in range(3) if abs(x[3 + i]) < 1e-12]
            pull = np.array([0.0, force, 0.0])
            signs = np.sign(np.where(np.abs(x[3:]) < 1e-12, np.where(np.abs(pull) > GRIP, pull, 0.0), x[3:]))
            held = [i for i in resting if abs(pull[i]) <= GRIP]

            def rates(_: float, x: np.ndarray, pull: Any = pull, signs: Any = signs, held: Any = held) -> np.ndarray:
                a = pull - GRIP * signs
                a[held] = 0.0
                return np.concatenate([x[3:], a])

            def gap(_: float, x: np.ndarray, k: int) -> float:
                return float(x[k + 1] - x[k] - 2.0)

            def speed(_: float, x: np.ndarray, i: int, signs: Any = signs, held: Any = held) -> float:
                return 1.0 if i in held else float(signs[i] * x[3 + i])

            events = [lambda t, x, k=k, gap=gap: gap(t, x, k) for k in (0, 1)]
            events += [lambda t, x, i=i, speed=speed: speed(t, x, i) for i in range(3)]
            for event in events:
                event.terminal, event.direction = True, -1.0  # type: ignore[attr-defined]
            found = solve_ivp(rates, (t, end), x, "DOP853", events=events, rtol=1e-12, atol=1e-13, max_step=0.02)
            t, x = float(found.t[-1]), found.y[:, -1]
            for k, e in enumerate((0.0, 0.5)):
                closing = x[3 + k] - x[4 + k]
                if found.t_events[k].size and closing > 1e-12:
                    x[3 + k] -= 0.5 * (1.0 + e) * closing
                    x[4 + k] += 0.5 * (1.0 + e) * closing
                    times.append(t)
    return x, times


CONTROL = [-10.0, 4.0, 24.0, 10.0, -3.0, -2.5, -4.0, 0.0, 3.0, 0.0]


def test_against_an_integration() -> None:
    """Two impacts of different kinds, stops of all boxes, pushes in both directions."""
    motion = reduced_motion(CONTROL, 4.0)
    end, times = integrated(np.array(CONTROL), 4.0)
    assert [impact.name for impact in motion.impacts] == ["left_middle", "middle_right"]
    np.testing.assert_allclose([impact.time for impact in motion.impacts], times, atol=1e-9)
    np.testing.assert_allclose(motion.end, end, atol=1e-9)


def test_another_friction_is_told_apart() -> None:
    other = reduced_motion(CONTROL, 4.0, constants=Constants(ground=0.21))
    assert np.abs(other.end - reduced_motion(CONTROL, 4.0).end).max() > 1e-2


@pytest.mark.parametrize("seed", range(20))
def test_random_controls_obey_the_laws(seed: int) -> None:
    """No overlap, continuous positions, momentum, Coulomb's law and complementarity of the contact forces."""
    u = np.random.default_rng(seed).uniform(-30.0, 30.0, 15)
    motion = reduced_motion(u, 6.0)
    x = motion(np.linspace(0.0, 6.0, 2000))
    assert np.diff(x[:, :3]).min() > 2.0 - 1e-12
    check_forces(motion)
    for impact in motion.impacts:
        assert impact.v_before < 0.0 < impact.impulse
        expected = 0.0 if impact.name == "left_middle" or impact.v_before >= -1e-9 else -0.5 * impact.v_before
        assert impact.v_after == pytest.approx(expected, abs=1e-15)


def check_forces(motion: ReducedMotion) -> None:
    for x, v, a, u, length in zip(motion.x, motion.v, motion.a, motion.u, np.diff(motion.t), strict=True):
        push = a - [0.0, u, 0.0]  # friction and contact forces together
        middle = v + 0.5 * a * length
        touching = (np.abs(np.diff(x) - 2.0) < 1e-9) & (np.abs(np.diff(v)) < 1e-9) & (np.diff(a) == 0.0)
        for group in np.split(np.arange(3), np.flatnonzero(~touching) + 1):
            total, count = push[group].sum(), len(group)
            if np.abs(middle[group]).max() > 1e-9:
                assert total == pytest.approx(-np.sign(middle[group[0]]) * GRIP * count, abs=1e-9)
            else:
                assert abs(total) <= GRIP * count + 1e-12


def test_full_states() -> None:
    states = reduced_motion(CONTROL, 4.0).full_state([0.0, 4.0])
    np.testing.assert_array_equal(states[0], START)
    np.testing.assert_array_equal(states[:, [1, 3, 5]], 1.0)
    np.testing.assert_array_equal(states[:, [7, 9, 11]], 0.0)


def test_states_are_right_limits() -> None:
    motion = reduced_motion([-10.0], 0.8)
    hit = motion.impacts[0].time
    before, after = motion([np.nextafter(hit, 0.0), hit])
    assert before[3] == 0.0
    assert after[[3, 4]] == pytest.approx(0.5 * before[[4, 4]], rel=1e-12)


def test_overlapping_boxes_are_refused() -> None:
    with pytest.raises(ModelError, match="overlap at the start"):
        reduced_motion([0.0], 1.0, [-1.0, 0.0, 3.0, 0.0, 0.0, 0.0])


def test_constants_are_those_of_the_paper() -> None:
    assert (PAPER.side_length, PAPER.mass, PAPER.gravity) == (2.0, 1.0, 9.81)
    assert PAPER.grip == pytest.approx(GRIP, rel=1e-15)
