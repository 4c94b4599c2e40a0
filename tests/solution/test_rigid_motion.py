"""Dense output on SE(3)."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from nosnoc_py.errors import OptionError, TranscriptionError
from nosnoc_py.solution import Trajectory, load
from nosnoc_py.solution.rigid_motion import RigidMotion

pytestmark = pytest.mark.quick


def state(position: object, rotation: np.ndarray, momentum: object, spin: object) -> np.ndarray:
    return np.concatenate([np.ravel(v) for v in (position, rotation, momentum, spin)])


def parabola(t: float) -> np.ndarray:
    """Free flight of 2 kg, turning about a fixed axis."""
    velocity = np.array([1.0, -2.0, 3.0 - 9.81 * t])
    position = np.array([t, -2 * t, 3 * t - 4.905 * t**2])
    turn = Rotation.from_rotvec(t * np.array([0.3, 0.4, 1.2])).as_matrix()
    return state(position, turn, 2 * velocity, (1.0, 2.0, 3.0))


@pytest.fixture
def flight() -> RigidMotion:
    """Five nodes of it at uneven times."""
    times = np.array([0.0, 0.1, 0.15, 0.8, 1.0])
    return RigidMotion(t=times, x=np.array([parabola(t) for t in times]), mass=np.array(2.0))


@pytest.fixture
def bounce() -> RigidMotion:
    """A jump of the momentum at 0.5, twice, and at the start."""
    t = np.array([0.0, 0.0, 0.5, 0.5, 0.5, 1.0])
    x = np.array([state((0, 0, 0), np.eye(3), (k, 0, 0), (0, 0, 0)) for k in range(6)])
    return RigidMotion(t=t, x=x, mass=np.array(1.0))


def test_free_flight_is_exact(flight: RigidMotion) -> None:
    times = np.linspace(0, 1, 37)
    np.testing.assert_allclose(flight(times), [parabola(t) for t in times], rtol=0, atol=1e-14)
    straight = np.array([np.interp(times, flight.t, column) for column in flight.x.T]).T
    assert np.abs(straight - flight(times)).max() > 0.1


def test_rotations_stay_rotations(flight: RigidMotion) -> None:
    R = flight(np.linspace(0, 1, 37))[:, 3:12].reshape(-1, 3, 3)
    np.testing.assert_allclose(R @ np.swapaxes(R, 1, 2), np.broadcast_to(np.eye(3), R.shape), rtol=0, atol=1e-14)


def test_shapes_and_nodes(flight: RigidMotion) -> None:
    assert flight(0.3).shape == (18,)
    assert flight([0.3, 0.4]).shape == (2, 18)
    np.testing.assert_array_equal(flight(flight.t), flight.x)
    np.testing.assert_array_equal(flight(flight.t, "-"), flight.x)


def test_sides_of_jumps(bounce: RigidMotion) -> None:
    assert [bounce(t, "-")[12] for t in (0.0, 0.5, 1.0)] == [0, 2, 5]
    assert [bounce(t, "+")[12] for t in (0.0, 0.5, 1.0)] == [1, 4, 5]
    assert bounce(0.5 + 1e-14, "-")[12] == 2
    assert bounce(0.25)[12] == pytest.approx(1.5)
    assert bounce(0.75)[12] == pytest.approx(4.5)


def test_one_node() -> None:
    motion = RigidMotion(t=np.zeros(1), x=parabola(0.0)[np.newaxis], mass=np.array(2.0))
    np.testing.assert_array_equal(motion(0.0), parabola(0.0))


def test_refuses(flight: RigidMotion) -> None:
    with pytest.raises(TranscriptionError, match="outside"):
        flight(1.1)
    with pytest.raises(OptionError, match="side"):
        flight(0.5, "left")  # type: ignore[arg-type]
    with pytest.raises(TranscriptionError, match="in their order"):
        RigidMotion(t=np.array([1.0, 0.0]), x=flight.x[:2], mass=np.array(2.0))
    with pytest.raises(TranscriptionError, match="shape"):
        RigidMotion(t=flight.t, x=flight.x[:, :17], mass=np.array(2.0))


def test_files_keep_it_to_the_bit(tmp_path, bounce: RigidMotion) -> None:
    pytest.importorskip("xarray")
    t, x = bounce.t, bounce.x
    names = tuple(f"s_{i}" for i in range(18))
    saved = Trajectory(
        t=t, x=x, state_names=names, u_grid=[0, 1], u=np.zeros((1, 0)), control_names=(), interpolant=bounce
    ).save(tmp_path / "motion.nc")
    again = load(saved)
    for f in fields(bounce):
        assert getattr(again.interpolant, f.name).tobytes() == getattr(bounce, f.name).tobytes(), f.name
    np.testing.assert_allclose(again([0.2, 0.5, 0.9]), bounce([0.2, 0.5, 0.9]), rtol=0, atol=1e-14)
    np.testing.assert_allclose(again(0.5, side="-"), bounce(0.5, side="-"), rtol=0, atol=1e-14)
