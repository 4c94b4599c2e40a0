"""Rigid bodies in space: drawn with matplotlib, and a view in the browser with viser."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D

from nosnoc_py.errors import OptionError, check_positive, optional
from nosnoc_py.plotting.film import check_integer
from nosnoc_py.plotting.meshes import Mesh, meshes_of, touching_point, triangles
from nosnoc_py.plotting.scenes import FLOOR, View, filled, floors_of, scene, shadows_of
from nosnoc_py.plotting.sheets import COLOURS
from nosnoc_py.rotations import quaternion_of
from nosnoc_py.solution.arrays import Array
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.systems.rigid_body import RigidBody

PARTS = (COLOURS[5], COLOURS[4], COLOURS[2], COLOURS[3])  # of a body, one after the other
MARK = COLOURS[1]  # impacts
IMPACT: dict[str, Any] = {"ls": "none", "marker": "x", "ms": 4, "mew": 1.2, "color": MARK}
SHADOW = "#B3B8BD"
LIGHT = np.array([0.35, -0.45, 0.82])
SHADE = 0.45  # brightness of what turns away from the light
DARK = 0.72


class BodyPainter:
    """Draws a body and its planes into axes in space, one time after the other; see `painter.Painter`.

    Parameters
    ----------
    body, trajectory
    view : View, optional
        By default that from where most planes can be seen.
    resolution : int
        Of curved surfaces.
    """

    ratio, projection = 0.7, "3d"

    def __init__(self, body: RigidBody, trajectory: Trajectory, view: View | None = None, resolution: int = 16) -> None:
        check_motion(trajectory)
        self.body, self.trajectory, self._view = body, trajectory, view
        self._meshes, self._places = meshes_of(body.shape, resolution), impact_places(body, trajectory)

    def prepare(self, axes: Any) -> None:
        """Leave all room to the scene."""
        axes.set_axis_off()

    def settle(self, axes: Any) -> None:
        """Draw the planes into axes that have found their place."""
        scene(axes, self.body, [self.trajectory], self._view)

    def draw(self, axes: Any, t: float, *, flash: float = 0.0) -> list[Any]:
        """Draw the body at a time, with its way and its impacts up to then; return what was drawn."""
        count = sum(event.time <= t for event in self.trajectory.impacts)
        way = draw_way(axes, self.trajectory.x[self.trajectory.t <= t, :3])
        return [*draw_body(axes, self.body, self._meshes, self.trajectory(t)), *mark(axes, self._places[:count]), *way]

    def draw_strobe(self, axes: Any, moments: Array, opacities: Array) -> None:
        """Draw the body at several times, and its whole way with all impacts."""
        draw_way(axes, self.trajectory.x[:, :3])
        mark(axes, self._places)
        for t, opacity in zip(moments, opacities, strict=True):
            draw_body(axes, self.body, self._meshes, self.trajectory(float(t)), opacity=float(opacity))

    def handles(self) -> list[Any]:
        """Return the entries of the legend: impacts."""
        return [Line2D([], [], label="impact", **IMPACT)] if len(self._places) else []


def draw_way(axes: Any, places: Array) -> list[Any]:
    """Draw the way through places (n, 3); return what was drawn."""
    return list(axes.plot(*places.T, color="black", lw=0.7, alpha=0.6, zorder=2, clip_on=False))


def draw_body(axes: Any, body: RigidBody, meshes: Sequence[Mesh], x: Array, *, opacity: float = 1.0) -> list[Any]:
    """Draw a body in state x (18,), shaded, and its shadow below; return what was drawn."""
    rotation, polygons, colours, edges = x[3:12].reshape(3, 3), list[Array](), list[Any](), list[Any]()
    for k, mesh in enumerate(meshes):
        points = mesh.points @ rotation.T + x[:3]
        polygons += [points[list(face)] for face in mesh.faces]
        # every other octant of what is round is darker, or one could not see it turn
        tones = np.where(mesh.sharp | (mesh.normals.prod(axis=1) > 0), 1.0, DARK)
        shaded = _shaded(PARTS[k % len(PARTS)], mesh.normals @ rotation.T, tones, opacity)
        colours += list(shaded)
        edges += [(0.1, 0.1, 0.1, opacity)] * len(shaded) if mesh.sharp else list(shaded)
    drawn = [filled(axes, polygons, facecolors=colours, edgecolors=edges, lw=0.5, zorder=3)]
    if fallen := shadows_of(body.planes, body.gravity, polygons):
        drawn.append(filled(axes, fallen, facecolors=SHADOW, edgecolors=SHADOW, lw=0.5, zorder=1))
    return drawn


def mark(axes: Any, places: Array) -> list[Any]:
    """Mark places (n, 3); return what was drawn."""
    return list(axes.plot(*places.T, zorder=2, clip_on=False, **IMPACT))


def impact_places(body: RigidBody, trajectory: Trajectory) -> Array:
    """Return the points (impacts, 3) of the planes where the body touched them [m]."""
    normals = {plane.name: plane.normal for plane in body.planes}
    places = [touching_point(body.shape, trajectory(event.time), normals[event.name]) for event in trajectory.impacts]
    return np.reshape(np.array(places), (-1, 3))


def check_motion(trajectory: Trajectory) -> None:
    """Raise `OptionError` unless the states are those of a rigid body."""
    if len(trajectory.state_names) != 18 or trajectory.state_names[3] != "R_00":
        raise OptionError(
            "expected a trajectory of an ns.RigidBody with its 18 states, given one with "
            f"{', '.join(trajectory.state_names[:4])}, ...; simulate it with method=ns.LieGroupVariational()."
        )


def show_body(
    body: RigidBody, trajectory: Trajectory, *, port: int = 8080, frames_per_second: int = 30, resolution: int = 24
) -> Any:
    """Show a motion in the browser, with a slider for the time and a button that plays it; return viser's server.

    The page is served until `server.stop()` or the end of the process.

    Raises
    ------
    OptionError
        Without the package viser, for numbers that do not fit, or for states that are not those of a body.
    """
    check_motion(trajectory)
    check_integer("port", port, 1, 65535)
    check_integer("resolution", resolution, 3, 1000)
    check_positive(frames_per_second=frames_per_second)
    viser = optional(
        "viser", 'show_body: viser is not installed; pip install "nosnoc_py[viser]", or write a film with animate_body.'
    )
    server = viser.ViserServer(port=port)
    handles = _add_meshes(server, meshes_of(body.shape, resolution))
    for plane, polygons in zip(body.planes, floors_of(body.planes, trajectory.x[:, :3], 2.0), strict=True):
        starts = np.cumsum([0, *map(len, polygons)])
        faces = triangles([range(*pair) for pair in pairwise(starts.tolist())])
        points = np.vstack([np.zeros((0, 3)), *polygons])
        server.scene.add_mesh_simple(f"/{plane.name}", points, faces, color=_bytes(FLOOR), side="double")
    places = impact_places(body, trajectory)
    server.scene.add_point_cloud(
        "/impacts", places, np.tile(np.array(_bytes(MARK), np.uint8), (len(places), 1)), point_size=0.15
    )
    _add_clock(server, trajectory, handles, frames_per_second)
    return server


def _add_meshes(server: Any, meshes: Sequence[Mesh]) -> list[Any]:
    return [
        server.scene.add_mesh_simple(
            f"/body/{k}",
            mesh.points,
            triangles(mesh.faces),
            color=_bytes(PARTS[k % len(PARTS)]),
            flat_shading=mesh.sharp,
        )
        for k, mesh in enumerate(meshes)
    ]


def _add_clock(server: Any, trajectory: Trajectory, handles: Sequence[Any], frames_per_second: int) -> None:
    start, end, frame = trajectory.t0, trajectory.t0 + trajectory.duration, 1.0 / frames_per_second
    slider = server.gui.add_slider("t [s]", min=start, max=end, step=frame, initial_value=start)
    button = server.gui.add_button("play")

    def move(_: Any = None) -> None:
        x = trajectory(float(np.clip(slider.value, start, end)))
        for handle in handles:
            handle.position, handle.wxyz = x[:3], quaternion_of(x[3:12].reshape(3, 3))

    def play(_: Any = None) -> None:
        for t in np.arange(start, end, frame):
            slider.value = float(t)
            move()
            time.sleep(frame)

    slider.on_update(move)
    button.on_click(play)
    move()


def _shaded(colour: str, normals: Array, tones: Array, opacity: float) -> Array:
    """The colour (n, 4) of faces with these normals."""
    light = LIGHT / np.linalg.norm(LIGHT)
    brightness = tones * (SHADE + (1.0 - SHADE) * (0.5 + 0.5 * normals @ light))
    return np.column_stack([np.outer(brightness, to_rgb(colour)), np.full(len(normals), opacity)])


def _bytes(colour: str) -> tuple[int, int, int]:
    red, green, blue = (round(255 * part) for part in to_rgb(colour))
    return red, green, blue
