"""Bodies in space: meshes lie on their shapes, films have their frames, errors say what to do."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.proj3d import proj_transform
from PIL import Image

import nosnoc_py as ns
from models import bouncing_bodies
from nosnoc_py.errors import OptionError
from nosnoc_py.plotting import animate_body
from nosnoc_py.plotting.bodies import draw_body, impact_places, show_body
from nosnoc_py.plotting.meshes import Mesh, meshes_of, touching_point, triangles
from nosnoc_py.plotting.scenes import SEEN, View, clipped, floor_of, floors_of, scene, shadows_of, view_of
from nosnoc_py.systems.rigid_body import Plane, RigidBody
from nosnoc_py.systems.shapes import Box, ConvexPolyhedron, Ellipsoid, Intersection, Shape, Sphere, Union

TURN = np.array([[0.36, 0.48, -0.8], [-0.8, 0.6, 0.0], [0.48, 0.64, 0.6]])
OCTAHEDRON = np.vstack([np.eye(3), -np.eye(3)])
INTERPRETED = ns.LieGroupVariational(compiled=False)  # to compile takes longer than all that is simulated here
SHAPES: dict[str, Shape] = {
    "ellipsoid": Ellipsoid((2.0, 3.0, 4.0), (1.0, -2.0, 0.5), TURN),
    "box": Box((1.0, 2.0, 3.0), (0.3, 0.2, 0.1), TURN),
    "octahedron": ConvexPolyhedron(OCTAHEDRON),
    "lens": Intersection((Sphere(1.0), Sphere(1.0, (0.7, 0.0, 0.0)))),
    "skin": ConvexPolyhedron(OCTAHEDRON, skin=0.3),
}


def simulate(case: str = "III", duration: float = 4.0) -> tuple[RigidBody, ns.Trajectory]:
    body = bouncing_bodies.build(case)
    return body, ns.simulate(body, x0=bouncing_bodies.start(body), duration=duration, method=INTERPRETED)


def volume(mesh: Mesh) -> float:
    """By the divergence theorem: right only if the surface is closed and all faces turn the same way."""
    a, b, c = np.moveaxis(mesh.points[triangles(mesh.faces)], 1, 0)
    return float((a * np.cross(b, c)).sum() / 6)


@pytest.mark.parametrize("name", SHAPES)
def test_a_mesh_reaches_as_far_as_the_support_function(name: str) -> None:
    shape = SHAPES[name]
    (mesh,) = meshes_of(shape, 32)
    directions = np.random.default_rng(0).normal(size=(200, 3))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    reach = np.array([d @ shape.support(d) for d in directions])
    found = (directions @ mesh.points.T).max(axis=1)
    assert (found <= reach + 1e-12).all()
    assert (found >= reach - 0.02 * np.ptp(mesh.points, axis=0).max()).all()
    grown = (directions @ (1.05 * (mesh.points - mesh.points.mean(axis=0)) + mesh.points.mean(axis=0)).T).max(axis=1)
    assert not (grown <= reach + 1e-12).all()


@pytest.mark.parametrize(
    ("name", "tolerance"), [("ellipsoid", 0.01), ("box", 1e-13), ("octahedron", 1e-13), ("lens", 0.01)]
)
def test_faces_enclose_the_volume_and_point_outwards(name: str, tolerance: float) -> None:
    (mesh,) = meshes_of(SHAPES[name], 32)
    assert volume(mesh) == pytest.approx(SHAPES[name].mass_properties().mass, rel=tolerance)
    centre = mesh.points.mean(axis=0)
    middles = np.array([mesh.points[list(face)].mean(axis=0) for face in mesh.faces])
    assert ((middles - centre) * mesh.normals).sum(axis=1).min() > 0.0
    turned = Mesh(points=mesh.points, faces=tuple(f[::-1] for f in mesh.faces), normals=mesh.normals, sharp=mesh.sharp)
    assert volume(turned) < 0.0


def test_corners_of_an_ellipsoid_lie_on_it() -> None:
    body = SHAPES["ellipsoid"]
    (mesh,) = meshes_of(body, 8)
    radius = np.linalg.norm((mesh.points - [1.0, -2.0, 0.5]) @ TURN / [2.0, 3.0, 4.0], axis=1)
    assert radius == pytest.approx(1.0, abs=1e-14)


def test_polyhedra_have_flat_faces() -> None:
    (box,), (octahedron,) = meshes_of(SHAPES["box"]), meshes_of(SHAPES["octahedron"])
    assert sorted(len(face) for face in box.faces) == [4] * 6
    assert sorted(len(face) for face in octahedron.faces) == [3] * 8
    assert box.sharp
    assert not meshes_of(SHAPES["skin"])[0].sharp
    (thin,) = meshes_of(ConvexPolyhedron(OCTAHEDRON, skin=1e-13))
    assert thin.sharp


def test_what_lies_inside_another_part_is_left_out() -> None:
    small, large = Sphere(1.0), Sphere(3.0, (0.5, 0.0, 0.0))
    inner, outer = meshes_of(Union((small, large)))
    assert not inner.faces
    assert len(outer.faces) == len(meshes_of(large)[0].faces)
    assert all(mesh.faces for mesh in meshes_of(Union((small, Sphere(1.0, (1.0, 0.0, 0.0))))))


def test_impacts_are_marked_on_the_plane() -> None:
    body, trajectory = simulate("II")
    plane, places = body.planes[0], impact_places(body, trajectory)
    assert len(places) == len(trajectory.impacts) == 1
    assert np.abs(places @ plane.normal - plane.offset).max() < 1e-11
    start = touching_point(body.shape, trajectory.x[0], plane.normal)
    assert start @ plane.normal == pytest.approx(body.gaps(trajectory.x[0])[0], abs=1e-13)


def test_a_floor_lies_below_the_motion() -> None:
    plane = Plane("slope", normal=(0.3, -0.2, 1.0), offset=-1.5)
    places = np.random.default_rng(1).normal(scale=5.0, size=(20, 3))
    squares = floor_of(plane, places, 1.0)
    assert np.abs(squares @ plane.normal - plane.offset).max() < 1e-12
    fallen = places - np.outer(places @ plane.normal - plane.offset, plane.normal)
    assert (fallen[:, :2].max(axis=0) < squares[..., :2].max(axis=(0, 1))).all()
    wall = floor_of(Plane("wall", normal=(0.0, 1.0, 0.0)), places, 1.0)
    assert np.abs(wall[..., 1]).max() < 1e-12


def valley(angle: float = 0.5, shift: float = 0.0) -> tuple[Plane, Plane]:
    """Two slopes that meet in a line along the second axis, through (shift, ., shift)."""
    made = []
    for name, sign in (("left", 1.0), ("right", -1.0)):
        normal = np.array([sign * np.sin(angle), 0.0, np.cos(angle)])
        made.append(Plane(name, normal=tuple(normal), offset=float(normal @ [shift, 0.0, shift])))
    return made[0], made[1]


def test_planes_of_a_valley_end_where_they_meet() -> None:
    planes = valley(shift=0.7)
    places = np.random.default_rng(2).normal((0.7, 0.0, 6.0), 2.0, size=(30, 3))
    for plane, other, polygons in zip(planes, planes[::-1], floors_of(planes, places, 1.0), strict=True):
        corners = np.vstack(polygons)
        assert np.abs(corners @ plane.normal - plane.offset).max() < 1e-12
        gaps = corners @ other.normal - other.offset
        assert gaps.min() > -1e-12
        bottom = corners[gaps < 1e-12]
        assert np.ptp(bottom[:, 1]) > np.ptp(places[:, 1])  # the line where they meet is there, below all places
        assert np.abs(bottom[:, [0, 2]] - 0.7).max() < 1e-12
        alone = floor_of(plane, places, 1.0).reshape(-1, 3)  # what only lies below the places ends before, or beyond
        assert abs((alone @ other.normal - other.offset).min()) > 0.1


def test_planes_that_meet_far_away_or_nowhere_are_drawn_below_the_motion() -> None:
    floor, roof = Plane("floor"), Plane("roof", normal=(1e-4, 0.0, -1.0), offset=-50.0)
    places = np.random.default_rng(3).normal((0.0, 0.0, 5.0), size=(10, 3))
    for polygons in floors_of((floor, roof), places, 1.0):
        assert np.abs(np.vstack(polygons)[:, :2]).max() < 10.0
    slope = Plane("slope", normal=(0.1, 0.0, 1.0), offset=-100.0)
    assert all(np.abs(np.vstack(polygons)[:, :2]).max() < 30.0 for polygons in floors_of((floor,), places, 1.0))
    assert not floors_of((floor, slope), places, 1.0)[1]  # all of it lies under the floor here


def test_clipping_of_a_square() -> None:
    square = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    corner = clipped(square, [Plane("diagonal", normal=(1.0, 1.0, 0.0), offset=1.5 / np.sqrt(2.0))])
    assert sorted(map(tuple, corner.round(12).tolist())) == [(0.5, 1.0, 0.0), (1.0, 0.5, 0.0), (1.0, 1.0, 0.0)]
    assert np.array_equal(clipped(square, [Plane("left", normal=(1.0, 0.0, 0.0), offset=-1.0)]), square)
    assert not len(clipped(square, [Plane("right", normal=(1.0, 0.0, 0.0), offset=2.0)]))


def test_the_view_shows_the_free_side_of_all_planes() -> None:
    usual = View()
    assert view_of([Plane("floor")]) == view_of([]) == usual
    planes = valley()
    assert min(usual.eye @ plane.normal for plane in planes) < SEEN  # one of them would be seen edge-on
    assert min(view_of(planes).eye @ plane.normal for plane in planes) > SEEN
    walls = [Plane("left", normal=(1.0, 0.0, 0.0), offset=-5.0), Plane("right", normal=(-1.0, 0.0, 0.0), offset=-5.0)]
    cosines = np.array([view_of([Plane("floor"), *walls]).eye @ plane.normal for plane in [Plane("floor"), *walls]])
    assert (np.abs(cosines) > SEEN).all()  # of two that face each other one is seen from behind, none edge-on
    assert (cosines > SEEN).sum() == 2


def fall_apart(duration: float = 3.0) -> tuple[RigidBody, ns.Trajectory]:
    """A body without planes."""
    body = RigidBody(shape=Ellipsoid((2.0, 3.0, 4.0)), planes=[], inertia=(5.0, 4.0, 2.6))
    x0 = body.state((0.0, 0.0, 10.0), (2.0, 2.0, 10.0), (4.0, -4.0, 4.0))
    return body, ns.simulate(body, x0=x0, duration=duration, method=INTERPRETED)


def slide(duration: float = 1.0) -> tuple[RigidBody, ns.Trajectory]:
    """A box over a valley."""
    body = RigidBody.uniform(shape=Box((1.0, 2.0, 3.0)), planes=valley(), mass=1.0)
    x0 = body.state((1.0, 0.0, 6.0), (1.0, 1.0, 0.0), (0.3, 0.2, 0.1))
    return body, ns.simulate(body, x0=x0, duration=duration, method=INTERPRETED)


@pytest.mark.parametrize("motion", [simulate, fall_apart, slide])
@pytest.mark.parametrize("size", [(4.8, 3.6), (3.0, 6.0)])
def test_everything_is_in_the_picture_and_the_bar_is_as_long_as_it_says(motion: Any, size: tuple[float, float]) -> None:
    body, trajectory = motion()
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    axes = scene(figure.add_axes((0.0, 0.0, 1.0, 1.0), projection="3d"), body, [trajectory])
    for x in trajectory(np.linspace(trajectory.t0, trajectory.t[-1], 5)):
        draw_body(axes, body, meshes_of(body.shape, 6), x)
    figure.canvas.draw()
    across, up = figure.bbox.size
    drawn = np.vstack([path.vertices for surface in axes.collections for path in surface.get_paths()])
    dots = axes.transData.transform(drawn[~np.isnan(drawn).any(axis=1)])  # paths are closed with a NaN
    assert dots.min() >= 0.0
    assert (dots <= [across, up]).all()
    assert max(np.ptp(dots, axis=0) / [across, up]) > 0.75  # less than .92, because there is room to turn
    (line,), (text,) = figure.artists, figure.texts
    metres = float(text.get_text().removesuffix(" m"))
    x, y, _ = proj_transform(*np.stack([np.zeros(3), view_of(body.planes).sides[0]], axis=1), axes.get_proj())
    ends = axes.transData.transform(np.column_stack([x, y]))
    assert np.ptp(line.get_xdata()) * across / metres == pytest.approx(ends[1, 0] - ends[0, 0], rel=1e-9)
    assert 0.05 < np.ptp(line.get_xdata()) < 0.2


def test_shadows_lie_on_the_planes_that_carry() -> None:
    body, trajectory = slide()
    (mesh,), x = meshes_of(body.shape), trajectory.x[0]
    polygons = [mesh.points[list(face)] + x[:3] for face in mesh.faces]
    corners = np.vstack(shadows_of(body.planes, body.gravity, polygons))
    gaps = np.stack([corners @ plane.normal - plane.offset for plane in body.planes])
    assert gaps.min() > -1e-12
    assert np.abs(gaps.min(axis=0)).max() < 1e-12  # every corner lies on one of them
    low, high = np.vstack(polygons).min(axis=0), np.vstack(polygons).max(axis=0)
    assert corners[:, :2].min(axis=0) == pytest.approx(low[:2])
    assert corners[:, :2].max(axis=0) == pytest.approx(high[:2])
    assert not shadows_of([Plane("wall", normal=(1.0, 0.0, 0.0))], body.gravity, polygons)
    assert not shadows_of(body.planes, np.zeros(3), polygons)


@pytest.mark.parametrize("case", ["III", "IV"])
def test_a_film_has_its_frames_and_moves(case: str, tmp_path: Path) -> None:
    body, trajectory = simulate(case)
    path = animate_body(body, trajectory, tmp_path / "new" / "film.gif", frames_per_second=4, speed=2.0, resolution=6)
    with Image.open(path) as film:
        assert getattr(film, "n_frames", 1) == 9
        assert film.size == (480, 360)
        first = np.asarray(film.convert("RGB"), dtype=int)
        film.seek(5)
        later = np.asarray(film.convert("RGB"), dtype=int)
    assert (np.abs(first - later).max(axis=2) > 50).mean() > 0.005
    assert (first > 250).all(axis=2).mean() > 0.3  # a white background, up to the palette of a GIF


def test_bad_films_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body, trajectory = simulate(duration=0.1)
    with pytest.raises(OptionError, match=r"\.gif or \.mp4"):
        animate_body(body, trajectory, tmp_path / "film.avi")
    with pytest.raises(OptionError, match=r"speed: expected a positive number, given 0"):
        animate_body(body, trajectory, tmp_path / "film.gif", speed=0)
    monkeypatch.setattr("nosnoc_py.plotting.film.ffmpeg", lambda: None)
    with pytest.raises(OptionError, match=r"ffmpeg.* write a \.gif"):
        animate_body(body, trajectory, tmp_path / "film.mp4")
    other = replace(trajectory, state_names=tuple(f"q_{i}" for i in range(18)), interpolant=None)
    with pytest.raises(OptionError, match=r"method=ns\.LieGroupVariational"):
        animate_body(body, other, tmp_path / "film.gif")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("port", "x", "whole number from 1 to 65535, given 'x'"),
        ("port", 0, "whole number"),
        ("port", True, "whole number"),
        ("frames_per_second", 0, "frames_per_second: expected a positive number"),
        ("frames_per_second", "30", "expected a positive number"),
        ("resolution", 1, "whole number from 3"),
    ],
)
def test_bad_arguments_are_refused_before_a_page_is_served(
    option: str, value: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "viser", None)  # the arguments come first: it does not matter
    with pytest.raises(OptionError, match=says):
        show_body(*simulate(duration=0.1), **{option: value})


def test_without_viser_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(OptionError, match=r"nosnoc_py\[viser\].*animate_body"):
        show_body(*simulate(duration=0.1))


class Server:
    """What `show_body` asks of viser's server."""

    def __init__(self, port: int) -> None:
        self.port, self.meshes, self.clouds = port, dict[str, Any](), dict[str, Any]()
        self.scene = self.gui = self
        self.slider: Any = None
        self.play: Any = None

    def add_mesh_simple(self, name: str, vertices: Any, faces: Any, **_: Any) -> Any:
        self.meshes[name] = SimpleNamespace(vertices=vertices, faces=faces, position=None, wxyz=None)
        return self.meshes[name]

    def add_point_cloud(self, name: str, points: Any, colors: Any, **_: Any) -> None:
        assert points.shape == colors.shape
        self.clouds[name] = points

    def add_slider(self, label: str, *, min: float, max: float, step: float, initial_value: float) -> Any:
        self.slider = SimpleNamespace(value=initial_value, end=max, on_update=lambda f: setattr(self, "moved", f))
        return self.slider

    def add_button(self, label: str) -> Any:
        return SimpleNamespace(on_click=lambda f: setattr(self, "play", f))


def test_the_browser_shows_the_state_at_the_slider(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("viser")
    module.ViserServer = Server  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "viser", module)
    body, trajectory = simulate(duration=3.0)
    server = show_body(body, trajectory, port=9000, frames_per_second=1000)
    assert server.port == 9000
    assert server.meshes.keys() == {"/body/0", "/body/1", "/floor"}
    assert server.clouds["/impacts"].shape == (2, 3)
    for t in (0.0, 1.3, 3.0):
        server.slider.value = t
        server.moved()
        x = trajectory(t)
        for handle in (server.meshes["/body/0"], server.meshes["/body/1"]):
            w, *v = handle.wxyz
            turned = (w * w - np.dot(v, v)) * np.eye(3) + 2 * np.outer(v, v)
            turned += 2 * w * np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])
            assert np.abs(turned - x[3:12].reshape(3, 3)).max() < 1e-12
            assert np.array_equal(handle.position, x[:3])
    monkeypatch.setattr("nosnoc_py.plotting.bodies.time.sleep", lambda seconds: None)
    server.play()
    assert server.slider.value > 2.99
