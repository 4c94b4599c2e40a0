"""Balls in a box: gaps and slip velocities of rigid bodies, random states without overlaps."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

from models.many_balls import Constants, build, energy, penetration, places_of, start
from nosnoc_py.errors import ModelError
from nosnoc_py.simulation.common import SimulationTask
from nosnoc_py.simulation.time_stepping.options import TimeStepping
from nosnoc_py.simulation.time_stepping.run import run

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("dimension", [2, 3])
def test_gaps_and_slip_velocities_are_those_of_rigid_balls(dimension: int) -> None:
    constants = Constants(balls=3, dimension=dimension, radius=0.2)
    system, generator = build(constants), np.random.default_rng(0)
    assert len(system.contacts) == 3 + 2 * dimension * 3
    x, v = start(constants, seed=5), generator.normal(size=system.n_q)
    q = x[: system.n_q]
    places, bodies = places_of(x, constants), v.reshape(3, -1)
    velocities = bodies[:, :dimension]
    spins = bodies[:, dimension:] if dimension == 3 else np.column_stack([np.zeros((3, 2)), bodies[:, 2]])

    def surface(ball: int, arm: Any) -> Any:
        """Velocity of a point of a ball."""
        turned = np.cross(spins[ball], np.append(arm, np.zeros(3 - dimension)))
        return velocities[ball] + turned[:dimension]

    for contact in system.contacts:
        first, _, second = contact.name.removeprefix("ball_").partition("-")
        outputs = [contact.gap, system.normal(contact), contact.tangent]
        gap, normal, tangent = (np.array(m) for m in ca.Function("c", [system.q], outputs)(q))
        place, other = places[int(first)], np.zeros(dimension)
        if second.startswith("ball_"):
            along = place - places[int(second[5:])]
            distance, n = np.linalg.norm(along) - 0.4, along / np.linalg.norm(along)
            other = surface(int(second[5:]), 0.2 * n)
        else:
            axis, sign = {"left": (0, 1), "right": (0, -1), "floor": (1, 1), "ceiling": (1, -1)}.get(
                second, (2, 1 if second == "front" else -1)
            )
            n = sign * np.eye(dimension)[axis]
            distance = (place[axis] if sign > 0 else 2.0 - place[axis]) - 0.2
        slip = surface(int(first), -0.2 * n) - other
        assert gap.item() == pytest.approx(distance, abs=1e-14)
        assert normal.ravel() @ v == pytest.approx(n @ slip, abs=1e-13)
        across = np.linalg.norm(slip - (n @ slip) * n)
        assert np.linalg.norm(tangent.T @ v) == pytest.approx(across, abs=1e-13)


def test_starts_are_seeded_and_do_not_overlap() -> None:
    constants = Constants()
    x = start(constants, seed=1)
    assert penetration(x, constants) == 0.0
    np.testing.assert_array_equal(x, start(constants, seed=1))
    assert np.abs(x - start(constants, seed=2)).max() > 0.1
    assert np.std(start(constants, speed=2.0)[300:].reshape(-1, 3)[:, :2]) == pytest.approx(2.0, rel=0.15)


def test_penetration_and_energy() -> None:
    constants = Constants(balls=2, radius=0.5, mass=3.0)
    x = np.array([0.6, 0.5, 0.0, 1.4, 0.45, 0.0, 2.0, 0.0, 4.0, 0.0, 0.0, 0.0])
    pair = 1.0 - np.hypot(0.8, 0.05)
    assert penetration(x, constants) == pytest.approx(pair, abs=1e-15)
    inertia = 0.5 * 3.0 * 0.25
    assert energy(x, constants) == pytest.approx(0.5 * (3.0 * 4.0 + inertia * 16.0) + 3.0 * 9.81 * 0.95, rel=1e-14)
    x[3] = 1.8  # 0.3 into the wall on the right
    assert penetration(x, constants) == pytest.approx(0.3, abs=1e-14)


def test_without_friction_nothing_turns() -> None:
    assert build(Constants(balls=2, friction=0.0)).n_q == 4
    assert build(Constants(balls=2, dimension=3, friction=0.0)).n_q == 6
    assert build(Constants(balls=2, dimension=3)).n_q == 12


@pytest.mark.parametrize("dimension", [2, 3])
def test_a_few_balls_come_to_rest_on_the_floor(dimension: int) -> None:
    """Far from each other: the lowest state there is; a rolling ball rolls on."""
    constants = Constants(balls=3, dimension=dimension, radius=0.1, restitution=0.3)
    x0 = start(constants, speed=0.0, seed=2)
    found = run(build(constants), TimeStepping(step=2e-3), SimulationTask(x0=x0, duration=1.5))
    assert places_of(found.final_state, constants)[:, 1] == pytest.approx(0.1, abs=1e-6)
    assert energy(found.final_state, constants) == pytest.approx(3 * 9.81 * 0.1, abs=1e-6)
    assert max(penetration(x, constants) for x in found.x) < 2e-3 * constants.radius


@pytest.mark.parametrize("change", [{"balls": 0}, {"dimension": 4}, {"radius": 1.5}, {"restitution": 1.2}])
def test_mistakes_are_named(change: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="balls in a box need"):
        Constants(**change)


def test_a_full_box_says_so() -> None:
    with pytest.raises(ModelError, match="no room was found for ball"):
        start(Constants(balls=100, radius=0.12))
