"""Scenes in space: from where they are seen, the planes, equal scales that fill the picture, a bar of some metres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from mpl_toolkits.mplot3d.proj3d import proj_transform

from nosnoc_py.plotting.floors import floors_of
from nosnoc_py.plotting.meshes import meshes_of
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.systems.rigid_body import Plane, RigidBody

Array = npt.NDArray[np.float64]

FLOOR = "#DDE1E5"
OPACITY, BEHIND = 0.8, 0.3  # of planes, and of those that are seen from behind
SEEN = 0.15  # cosine at least between a plane's normal and the eye, if it shall be seen
FILLED = 0.92  # part of a picture that is used


@dataclass(frozen=True, kw_only=True)
class View:
    """From where a scene is seen.

    Parameters
    ----------
    elevation, azimuth : float
        Of the eye [degrees].
    zoom : float
        1 fits planes and motion into the picture.
    """

    elevation: float = 16.0
    azimuth: float = -60.0
    zoom: float = 1.0

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
    drawn = Poly3DCollection(polygons, clip_on=False, **look)
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
    half = float(scale * max((high - low) / (width, height)) / (FILLED * view.zoom))
    _set_limits(axes, middle, half)
    return float(width * half / scale)


def _set_limits(axes: Any, middle: Array, half: float) -> None:
    low, high = middle - half, middle + half
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))


def _flat(axes: Any, point: Array) -> tuple[float, float]:
    """Where a point lies in the axes' plane."""
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
