"""Scenes in space: from where they are seen, the planes, equal scales that fill the picture, a bar of some metres.

The planes below motions are polygons: numbers first, then drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from mpl_toolkits.mplot3d.proj3d import proj_transform

from nosnoc_py.plotting.meshes import meshes_of
from nosnoc_py.solution.arrays import Array
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.systems.rigid_body import Plane, RigidBody

FLOOR = "#DDE1E5"
OPACITY, BEHIND = 0.8, 0.3  # of planes, and of those that are seen from behind
SEEN = 0.15  # cosine at least between a plane's normal and the eye, if it shall be seen
FILLED = 0.92  # part of a picture that is used
SLICES = 12  # a plane is drawn as so many strips each way, so that one can see how it lies
CARRIES = 0.15  # cosine at least between a plane's normal and upwards, if there shall be a shadow on it
PARALLEL = 1e-2  # sine of the angle between planes that need not meet
FAR = 1.0  # sizes of the scene; planes that meet farther away are not drawn up to there


def floors_of(planes: Sequence[Plane], places: Array, reach: float) -> list[list[Array]]:
    """Return for each plane polygons (corners, 3) below places (n, 3), cut where other planes begin.

    Planes that are not parallel reach to the line in which they meet, unless it is far away.
    """
    floors = []
    for plane in planes:
        others = [other for other in planes if other is not plane]
        edges = [_edge(plane, other, places) for other in others]
        squares = floor_of(plane, np.vstack([places, *edges]), reach)
        floors.append([cut for square in squares if len(cut := clipped(square, others))])
    return floors


def _edge(plane: Plane, other: Plane, places: Array) -> Array:
    """Feet (n, 3) of places on the line in which two planes meet; none if it is further away than they are apart."""
    normals, offsets = np.array([plane.normal, other.normal]), np.array([plane.offset, other.offset])
    if np.linalg.norm(np.cross(*normals)) < PARALLEL:
        return np.zeros((0, 3))
    feet = places + (offsets - places @ normals.T) @ np.linalg.pinv(normals).T
    size = np.linalg.norm(np.ptp(places, axis=0)) + np.abs(places @ normals.T - offsets).max()
    return feet[np.linalg.norm(feet - places, axis=1) <= FAR * size]


def clipped(polygon: Array, planes: Sequence[Plane]) -> Array:
    """Return the part (m, 3) of a convex polygon (n, 3) on the free side of all planes; empty where there is none."""
    for plane in planes:
        gaps = polygon @ plane.normal - plane.offset
        kept = list[Array]()
        for k, gap in enumerate(gaps):
            before = gaps[k - 1]
            if (gap < 0.0) != (before < 0.0):
                # Sutherland and Hodgman (1974): an edge that crosses the plane is cut there.
                kept.append(polygon[k - 1] + before / (before - gap) * (polygon[k] - polygon[k - 1]))
            if gap >= 0.0:
                kept.append(polygon[k])
        polygon = np.array(kept).reshape(-1, 3)
    return polygon if len(polygon) > 2 else np.zeros((0, 3))


def shadows_of(planes: Sequence[Plane], gravity: Array, polygons: Sequence[Array]) -> list[Array]:
    """Return what polygons (n, 3) cover, seen along gravity (3,), of the planes that carry."""
    down = gravity / (np.linalg.norm(gravity) or 1.0)
    fallen = list[Array]()
    for plane in planes:
        # Steep planes would carry a shadow that is stretched without limit.
        if -(slope := down @ plane.normal) > CARRIES:
            others = [other for other in planes if other is not plane]
            landed = [points - np.outer((points @ plane.normal - plane.offset) / slope, down) for points in polygons]
            fallen += [cut for points in landed if len(cut := clipped(points, others))]
    return fallen


def floor_of(plane: Plane, places: Array, reach: float) -> Array:
    """Return squares (count, 4, 3) of the plane that lie below places (n, 3), with a margin."""
    normal = np.asarray(plane.normal)
    # Any axis that is not nearly the normal gives a direction in the plane.
    first = np.cross((0.0, 1.0, 0.0) if abs(normal[1]) < 0.9 else (0.0, 0.0, 1.0), normal)
    first /= np.linalg.norm(first)
    frame = np.stack([first, np.cross(normal, first)])
    flat = places @ frame.T
    low, high = flat.min(axis=0) - reach, flat.max(axis=0) + reach
    a, b = (np.linspace(low[i], high[i], SLICES + 1) for i in range(2))
    corners = [
        [(a[i], b[j]), (a[i + 1], b[j]), (a[i + 1], b[j + 1]), (a[i], b[j + 1])]
        for i in range(SLICES)
        for j in range(SLICES)
    ]
    return np.array(corners) @ frame + plane.offset * normal


@dataclass(frozen=True, kw_only=True)
class View:
    """Direction from which a scene is seen.

    Parameters
    ----------
    elevation, azimuth : float
        Of the eye [degrees].
    """

    elevation: float = 16.0
    azimuth: float = -60.0

    @property
    def eye(self) -> Array:
        """Direction (3,) towards the eye."""
        up, around = np.deg2rad(self.elevation), np.deg2rad(self.azimuth)
        return np.array([np.cos(up) * np.cos(around), np.cos(up) * np.sin(around), np.sin(up)])

    @property
    def sides(self) -> tuple[Array, Array]:
        """Directions (3,) to the right and upwards in the picture."""
        around = np.deg2rad(self.azimuth)
        right = np.array([-np.sin(around), np.cos(around), 0.0])
        return right, np.cross(self.eye, right)


def filled(axes: Any, polygons: Sequence[Array], **look: Any) -> Any:
    """Draw polygons (n, 3) in space, also beyond the limits of the axes; return what was drawn."""
    # Equal numbers of corners, by repeating the last one: matplotlib pads shorter polygons with uninitialised numbers,
    # whose projection may overflow with a warning.
    most = max(map(len, polygons), default=0)
    padded = [np.vstack([polygon, np.repeat(polygon[-1:], most - len(polygon), axis=0)]) for polygon in polygons]
    drawn = Poly3DCollection(padded, clip_on=False, **look)
    axes.add_collection3d(drawn)
    return drawn


def scene(axes: Any, body: RigidBody, trajectories: Sequence[Trajectory], view: View | None = None) -> Any:
    """Prepare axes in space: the planes below the motions, equal scales, the view, a scale bar; return the axes."""
    view = view_of(body.planes) if view is None else view
    axes.computed_zorder = False
    axes.set_proj_type("ortho")
    axes.view_init(elev=view.elevation, azim=view.azimuth)
    reach = max(np.linalg.norm(mesh.points, axis=1).max() for mesh in meshes_of(body.shape, 4))
    places = np.vstack([trajectory.x[:, :3] for trajectory in trajectories])
    floors = floors_of(body.planes, places, reach)
    for plane, polygons in zip(body.planes, floors, strict=True):
        opacity = OPACITY if view.eye @ plane.normal > 0.0 else BEHIND
        filled(axes, polygons, facecolors=(*to_rgb(FLOOR), opacity), edgecolors="white", lw=0.4, zorder=0)
    corners = [polygon for polygons in floors for polygon in polygons]
    _scale_bar(axes, _fit(axes, np.vstack([_around(places, reach, view), *corners]), view))
    axes.set_axis_off()
    return axes


def _around(places: Array, reach: float, view: View) -> Array:
    """Points (n, 3) whose pictures enclose those of balls around places (n, 3)."""
    arms = reach * np.stack(view.sides)
    return np.vstack([places + arm for arm in (*arms, *-arms)])


def _fit(axes: Any, points: Array, view: View) -> float:
    """Set limits so that points (n, 3) fill the picture; return how many metres it is wide."""
    sides = np.stack(view.sides)
    flat = points @ sides.T
    low, high = flat.min(axis=0), flat.max(axis=0)
    middle = points.mean(axis=0)
    middle = middle + (0.5 * (low + high) - middle @ sides.T) @ sides
    axes.set_box_aspect((1.0, 1.0, 1.0))
    _set_limits(axes, middle, 1.0)
    axes.apply_aspect()
    scale = (
        axes.transData.transform(_flat(axes, middle + sides[0]))[0] - axes.transData.transform(_flat(axes, middle))[0]
    )
    width, height = axes.get_position(original=True).size * axes.figure.bbox.size
    half = float(scale * max((high - low) / (width, height)) / FILLED)
    _set_limits(axes, middle, half)
    return float(width * half / scale)


def _set_limits(axes: Any, middle: Array, half: float) -> None:
    low, high = middle - half, middle + half
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))


def _flat(axes: Any, point: Array) -> tuple[float, float]:
    """Return the place of a point in the plane of the axes."""
    x, y, _ = proj_transform(*point, axes.get_proj())
    return float(x), float(y)


def _scale_bar(axes: Any, width: float) -> None:
    """Draw a bar of 1, 2 or 5 times a power of ten metres; the picture is so many metres wide."""
    wanted = width / 6.0
    power = 10.0 ** np.floor(np.log10(wanted))
    length = power * max(factor for factor in (1.0, 2.0, 5.0) if factor * power <= wanted)
    box = axes.get_position(original=True)
    left, low = box.x0 + 0.04 * box.width, box.y0 + 0.05 * box.height
    right = left + box.width * length / width
    figure = axes.figure
    line = Line2D((left, left, right, right), (low + 0.01, low, low, low + 0.01), color="black", lw=1.2)
    line.set_transform(figure.transFigure)
    figure.add_artist(line)
    figure.text(0.5 * (left + right), low + 0.012, f"{length:g} m", fontsize=8, ha="center", va="bottom")


def view_of(planes: Sequence[Plane]) -> View:
    """Return the view, of those near the usual one, from which most planes can be seen from their free side.

    Where none shows all of them, as between walls that face each other, those seen edge-on count against a view.
    """
    usual = View()
    azimuths = sorted(np.arange(-180.0, 180.0, 15.0), key=lambda angle: abs((angle - usual.azimuth + 180) % 360 - 180))
    views = [View(elevation=up, azimuth=angle) for up in (usual.elevation, 24.0, 35.0, 50.0) for angle in azimuths]

    def shown(view: View) -> int:
        cosines = np.array([view.eye @ plane.normal for plane in planes])
        return int((cosines > SEEN).sum() - (np.abs(cosines) <= SEEN).sum())

    return max(views, key=shown)
