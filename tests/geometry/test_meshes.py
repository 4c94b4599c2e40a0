"""Meshes as convex hulls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nosnoc_py as ns

pytestmark = pytest.mark.quick
CORNERS = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
# The unit cube with a pyramid of height 1/2 cut into its top: its volume is 1 - 1/6.
DENTED = np.vstack([CORNERS, [[0.5, 0.5, 0.5]]])
SIDES = [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1], [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4]]
DENT = [[1, 5, 8], [5, 7, 8], [7, 3, 8], [3, 1, 8]]


def test_a_hull_says_how_much_volume_it_adds() -> None:
    with pytest.warns(ns.ModelWarning, match="adds 20 % of volume"):
        hull = ns.mesh_hull(DENTED, SIDES + DENT, scale=0.1)
    assert sorted(map(tuple, hull.vertices.round(12))) == sorted(map(tuple, (0.1 * CORNERS).round(12)))


def test_a_convex_mesh_adds_nothing(recwarn: pytest.WarningsRecorder) -> None:
    ns.mesh_hull(CORNERS, [*SIDES, [1, 5, 7], [1, 7, 3]])
    assert not recwarn.list


def test_files_are_read(tmp_path: Path) -> None:
    pytest.importorskip("trimesh")
    lines = [f"v {x} {y} {z}" for x, y, z in CORNERS]
    lines += ["f " + " ".join(str(k + 1) for k in face) for face in [*SIDES, [1, 5, 7], [1, 7, 3]]]
    path = tmp_path / "cube.obj"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert ns.mesh_hull(path, scale=2.0).vertices.max() == 2.0


def test_mistakes() -> None:
    for call in (lambda: ns.mesh_hull([[0, 0, 0], [1, 0, 0]]), lambda: ns.mesh_hull("nowhere.stl")):
        with pytest.raises(ns.ModelError, match="mesh"):
            call()


def ball(count: int) -> np.ndarray:
    """Points spread evenly over the unit sphere (golden angle)."""
    height = 1 - (2 * np.arange(count) + 1) / count
    turn = np.pi * (1 + 5**0.5) * np.arange(count)
    return np.column_stack([np.sqrt(1 - height**2) * np.cos(turn), np.sqrt(1 - height**2) * np.sin(turn), height])


def test_few_corners_are_kept_and_the_rest_is_told() -> None:
    points = ball(400)
    told = r"of 400 corners .* 16 are kept; it stands out of them by up to \S+ m"
    with pytest.warns(ns.ModelWarning, match=told) as said:
        few = ns.mesh_hull(points, most=16)
    assert len(few.vertices) == 16
    assert all(np.abs(points - corner).max(axis=1).min() == 0 for corner in few.vertices)
    # Sixteen corners spread as well as they can be leave 0.24 of the radius.
    outside = float((points @ few.normals.T + few.offsets).max())
    assert f"{outside:.3g}" in str(said[0].message)
    assert outside < 0.35
    with pytest.warns(ns.ModelWarning):
        finer = ns.mesh_hull(points, most=32)
    assert float((points @ finer.normals.T + finer.offsets).max()) < 0.6 * outside


def test_corners_of_a_box_that_is_rounded_are_found(recwarn: pytest.WarningsRecorder) -> None:
    """Of a brick with many points on its faces eight corners are all there is."""
    assert len(ns.mesh_hull(np.vstack([CORNERS, 0.4 * CORNERS + 0.3]) * [1.0, 0.2, 3.0], most=8).vertices) == 8
    assert not recwarn.list


def test_axes_may_be_scaled_by_themselves_and_mirrored() -> None:
    hull = ns.mesh_hull(CORNERS, scale=[1.0, -2.0, 0.5])
    assert hull.vertices.min(axis=0).tolist() == [0.0, -2.0, 0.0]
    assert hull.vertices.max(axis=0).tolist() == [1.0, 0.0, 0.5]
    for wrong in ([1.0, 0.0, 1.0], [1.0, 2.0]):
        with pytest.raises(ns.ModelError, match="scale"):
            ns.mesh_hull(CORNERS, scale=wrong)
