"""The pieces of the pushed point, against a projected Euler method and known times."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

import nosnoc_py as ns
from models.pushed_point import START, WALL, build, events, exact

pytestmark = pytest.mark.quick

METRICS = {
    "orthogonal": np.eye(2),
    "up": np.array([[1.0, 0.4], [0.4, 0.8]]),
    "down": np.array([[1, -0.3], [-0.3, 0.8]]),
}


def projected_euler(until: float, metric: np.ndarray, steps: int) -> np.ndarray:
    """x + h f, projected onto the corner in the metric: the minimal-norm correction by nonnegative forces."""
    h, x = until / steps, np.array(START)
    normals = np.linalg.cholesky(np.linalg.inv(metric)).T @ np.array([[0.0, 1.0], [-1.0, 0.0]]).T
    for k in range(steps):
        t = (k + 0.5) * h
        free = x + h * np.array([2.0 - t, t - 1.0])
        gaps = np.array([free[1], WALL - free[0]])
        if (gaps >= 0).all():
            x = free
            continue
        force = _forces(normals.T @ normals, gaps)
        x = free + np.linalg.inv(metric) @ np.array([[0.0, 1.0], [-1.0, 0.0]]).T @ force
    return x


def _forces(matrix: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """0 <= force perpendicular matrix force + gaps >= 0, as a least-distance problem."""
    root = np.linalg.cholesky(matrix).T
    return nnls(root, -np.linalg.solve(root.T, gaps))[0]


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("until", [0.65, 0.95, 1.6, 2.7])
def test_against_projected_euler(name: str, until: float) -> None:
    for steps in (500, 4000):
        state = projected_euler(until, METRICS[name], steps)
        assert np.abs(state - exact(until, METRICS[name])[0, :2]).max() < 0.3 * until / steps  # a method of order one


def test_events() -> None:
    kinds = [("contact", "floor"), ("contact", "wall"), ("release", "floor"), ("release", "wall")]
    found = events(3.0)
    assert [event[:2] for event in found] == kinds
    assert [event[2] for event in found] == pytest.approx([0.5, 0.8, 1.0, 2.0], abs=1e-13)
    assert exact(2.7)[0] == pytest.approx([WALL - 0.245, 1.445, 2.7], abs=1e-13)


def test_another_metric_releases_the_floor_at_the_wall() -> None:
    found = events(3.0, METRICS["up"])
    assert {event[:2] for event in found if event[2] < 1.0} == {
        ("contact", "floor"),
        ("contact", "wall"),
        ("release", "floor"),
    }
    assert exact(1.0, METRICS["up"])[0, 1] > 1e-3 > exact(1.0)[0, 1]


def test_the_set_is_kept() -> None:
    for metric in METRICS.values():
        x = exact(np.linspace(0.0, 2.7, 271), metric)
        assert x[:, 1].min() > -1e-14
        assert x[:, 0].max() < WALL + 1e-14


def test_a_start_outside_is_refused() -> None:
    with pytest.raises(ns.ModelError, match="floor"):
        build().check_state([0.0, -0.1, 0.0])
    with pytest.raises(ns.ModelError, match="starts at t = 0"):
        exact(-1.0)
