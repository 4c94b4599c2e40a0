"""The bouncing ball: impacts known to twelve digits, and a closed form that obeys the laws it solves."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.bouncing_ball import build, exact, impact_times
from nosnoc_py.errors import ModelError

pytestmark = pytest.mark.quick

GRAVITY = 9.81


def test_published_impact_times() -> None:
    times = impact_times(0.9, 3)
    np.testing.assert_allclose(times, [0.451523640986, 1.264266194760, 1.995734493157], rtol=0, atol=1e-12)
    np.testing.assert_allclose(impact_times(0.9, until=2.0), times, rtol=1e-15)
    np.testing.assert_allclose(impact_times(0.9, until=times[1] + 1e-12), times[:2], rtol=1e-15)
    assert impact_times(0.9, until=times[1] - 1e-12).size == 1
    assert impact_times(0.9, until=0.4).size == 0


def test_impacts_by_the_recursion_of_flights() -> None:
    speed, t, times = np.sqrt(2 * GRAVITY), np.sqrt(2 / GRAVITY), []
    for _ in range(40):
        times.append(t)
        speed *= 0.7
        t += 2 * speed / GRAVITY
    np.testing.assert_allclose(impact_times(0.7, 40), times, rtol=1e-14)


@pytest.mark.parametrize("restitution", [0.3, 0.9, 0.999, 1.0])
@pytest.mark.parametrize(("height", "velocity"), [(1.0, 0.0), (0.5, 3.0), (0.5, -3.0), (0.0, 2.0), (0.0, -2.0)])
def test_newtons_law_at_every_impact(restitution: float, height: float, velocity: float) -> None:
    start = {"height": height, "velocity": velocity}
    times = impact_times(restitution, 6, **start)
    right = exact(times, restitution, **start)
    np.testing.assert_array_equal(right[:, 0], 0.0)
    left = exact(np.nextafter(times[times > 0], 0.0), restitution, **start)
    np.testing.assert_allclose(left[:, 0], 0.0, atol=1e-14)
    np.testing.assert_allclose(right[times > 0, 1], -restitution * left[:, 1], rtol=1e-12)
    assert np.all(right[:, 1] > 0)


@given(
    restitution=st.floats(0.0, 1.0),
    height=st.floats(0.0, 3.0),
    velocity=st.floats(-4.0, 4.0),
)
def test_energy_never_grows_and_the_ball_stays_above_the_ground(
    restitution: float, height: float, velocity: float
) -> None:
    x = exact(np.linspace(0.0, 6.0, 1001), restitution, height=height, velocity=velocity)
    energy = GRAVITY * x[:, 0] + 0.5 * x[:, 1] ** 2
    assert np.all(np.isfinite(x))
    assert np.all(x[:, 0] >= 0.0)
    assert np.all(np.diff(energy) <= 1e-10)


def test_an_elastic_ball_keeps_its_energy() -> None:
    x = exact(np.linspace(0.0, 20.0, 501), 1.0)
    np.testing.assert_allclose(GRAVITY * x[:, 0] + 0.5 * x[:, 1] ** 2, GRAVITY, rtol=1e-12)


def test_the_ball_rests_after_the_zeno_time() -> None:
    first, speed = np.sqrt(2 / GRAVITY), np.sqrt(2 * GRAVITY)
    zeno = first + 2 * speed / GRAVITY * 0.5 / (1 - 0.5)
    np.testing.assert_array_equal(exact([zeno + 1e-12, 2 * zeno, 100.0], 0.5), 0.0)
    assert exact(zeno - 1e-3, 0.5)[0, 0] > 0.0
    with pytest.raises(ModelError, match="infinitely many impacts until"):
        impact_times(0.5, until=zeno + 1e-12)


def test_an_inelastic_ball_lands_once() -> None:
    landing = impact_times(0.0, 5)
    np.testing.assert_allclose(landing, [np.sqrt(2 / GRAVITY)], rtol=1e-15)
    np.testing.assert_allclose(impact_times(0.0, until=10.0), landing, rtol=1e-15)
    np.testing.assert_array_equal(exact([landing[0], 1.0, 5.0], 0.0), 0.0)
    np.testing.assert_allclose(exact(0.4, 0.0), [[1 - 0.5 * GRAVITY * 0.16, -GRAVITY * 0.4]])


@pytest.mark.parametrize("restitution", [0.0, 0.5, 1.0])
def test_a_ball_at_rest_stays_at_rest(restitution: float) -> None:
    np.testing.assert_array_equal(exact([0.0, 1.0, 2.0], restitution, height=0.0), 0.0)
    assert impact_times(restitution, 3, height=0.0).size == 0


@pytest.mark.parametrize(
    "bad", [{"restitution": 1.1}, {"restitution": -0.1}, {"height": -1.0}, {"gravity": 0.0}, {"t": -1.0}]
)
def test_senseless_arguments_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ModelError, match="closed form"):
        exact(**{"t": 1.0, **bad})


def test_impact_times_wants_one_of_count_and_until() -> None:
    with pytest.raises(ModelError, match="either count or until"):
        impact_times(0.9)
    with pytest.raises(ModelError, match="either count or until"):
        impact_times(0.9, 3, until=1.0)


def test_build() -> None:
    system = build(restitution=0.5, gravity=9.81, mass=2.0)
    (ground,) = system.contacts
    values = ca.Function("values", [system.q, system.v], [system.mass_matrix, system.force, ground.gap])(0.7, -1.0)
    assert [float(value) for value in values] == pytest.approx([2.0, -19.62, 0.7])
    assert (ground.name, ground.restitution) == ("ground", 0.5)
    assert system.state_names == ("height", "velocity")
    assert float(system.normal(ground)) == 1.0
    assert system.n_u == 0
