"""Convex polyhedra, sharp or with a skin, and boxes.

A polyhedron is stored twice: by its vertices, for the support function, and by its faces (triangles with outward
normals and offsets, from Qhull), for the interior, chords and moments. A skin of constant thickness adds a ball: it
shifts the support by its radius, and has no mass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import field

from nosnoc_py.annotations import Numbers
from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import assign, declared
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.shapes.mass_properties import Moments, polyhedron_moments
from nosnoc_py.systems.shapes.shape import INSIDE, Features, Shape, matrix, point, positive_lengths, turn, unit
from nosnoc_py.systems.symbols import finite, nonnegative

ENTRIES = 2_000_000  # largest number of entries of an array of lines times faces: bounds the memory to some 10 MB
FLAT = 1e-9  # least thickness of a polyhedron relative to its size: flatter ones have no volume up to rounding


def _points(value: Numbers, what: str = "vertices", owner: Any = None) -> np.ndarray:
    points = matrix(value, what, (-1, 3))
    _check_vertices(points, type(owner).__name__)
    return points


@declared
class ConvexPolyhedron(Shape):
    """The convex hull of points, with a skin of constant thickness around it.

    Parameters
    ----------
    vertices : (n, 3)
        Four or more points [m], not all in one plane; those inside the hull are dropped.
    skin : float
        Thickness >= 0 [m]: the body touches a plane at this distance from the hull. It shifts the gap and rounds
        corners for `contains`, it does not make the touching vertex a smooth function; it has no mass.

    Raises
    ------
    ModelError
        For fewer than four points, points that are not finite, given twice or all in one plane, a negative skin.

    Examples
    --------
    A tetrahedron:

    >>> import nosnoc_py as ns
    >>> body = ns.ConvexPolyhedron([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    >>> body.contains([[0.1, 0.1, 0.1], [1.0, 1.0, 1.0]]).tolist()
    [True, False]
    """

    vertices: np.ndarray = field(converter=_points)
    skin: float = field(default=0.0, converter=nonnegative)
    triangles: np.ndarray = field(init=False, repr=False)
    normals: np.ndarray = field(init=False, repr=False)
    offsets: np.ndarray = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        points = self.vertices
        corners, faces, normals, offsets = _hull(points, type(self).__name__)
        assign(self, vertices=points[corners], triangles=points[faces], normals=normals, offsets=offsets)

    def support(self, direction: Any) -> np.ndarray:
        """Return the furthest vertex, the first one where several are, plus the skin."""
        d = unit(direction)
        return self.vertices[np.argmax(self.vertices @ d)] + self.skin * d

    def heights(self, directions: np.ndarray) -> np.ndarray:
        """Return max_k d.v_k + skin |d|."""
        return (directions @ self.vertices.T).max(axis=1) + self.skin * np.linalg.norm(directions, axis=1)

    def contains(self, points: Any) -> np.ndarray:
        """Return a mask of the points (..., 3) that are no further from the hull than the skin."""
        y = np.asarray(points, dtype=float)
        tolerance = INSIDE * (np.abs(self.vertices).max() + self.skin)
        inside = (y @ self.normals.T + self.offsets <= tolerance).all(axis=-1)
        if self.skin == 0:
            return inside
        return inside | (_distances(y, self.triangles) <= self.skin + tolerance)

    def moved(self, shift: Any) -> ConvexPolyhedron:
        """Return the polyhedron shifted by (3,) [m]."""
        return ConvexPolyhedron(self.vertices + finite(shift, "moved: shift", 3), self.skin)

    def features(self) -> Features:
        """Return the vertices, each with its skin."""
        return Features.of(vertices=np.column_stack([self.vertices, np.full(len(self.vertices), self.skin)]))

    def chords(self, points: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Return where lines enter and leave the hull, without its skin."""
        block = max(1, ENTRIES // len(self.normals))
        pieces = [self._chords(points[k : k + block], direction) for k in range(0, len(points), block)]
        return np.concatenate(pieces)

    def _chords(self, points: np.ndarray, direction: np.ndarray) -> np.ndarray:
        speed, height = self.normals @ direction, points @ self.normals.T + self.offsets
        with np.errstate(divide="ignore", invalid="ignore"):
            # A line parallel to a face divides by zero; it is then decided by `away`.
            where = -height / speed
        away = ((speed == 0) & (height > 0)).any(axis=1)
        start = np.where(speed < 0, where, -np.inf).max(axis=1)
        end = np.where(speed > 0, where, np.inf).min(axis=1)
        # A parallel line outside of a face misses: it gets a decreasing interval.
        return np.stack([np.where(away, 1.0, start), np.where(away, 0.0, end)], axis=1)

    def moments(self) -> Moments:
        """Return exact integrals of 1, y and y y' over the hull."""
        return polyhedron_moments(self.vertices.mean(axis=0), self.triangles)


@named_arguments
class Box(ConvexPolyhedron):
    """Box.

    Parameters
    ----------
    lengths : (3,)
        Lengths of the edges [m].
    center : (3,)
        [m]
    rotation : (3, 3), optional
        Rotation matrix whose columns are the directions of the edges.
    skin : float
        Thickness >= 0 [m], as in `ConvexPolyhedron`.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.Box([0.4, 0.3, 0.2]).vertices.shape
    (8, 3)
    """

    half: np.ndarray
    center: np.ndarray
    rotation: np.ndarray

    def __init__(
        self,
        lengths: Numbers,
        center: Numbers = (0.0, 0.0, 0.0),
        rotation: Numbers | None = None,
        skin: float = 0.0,
    ) -> None:
        half, axes = positive_lengths(lengths, "Box: lengths") / 2, turn(rotation, "Box: rotation")
        signs = np.stack(np.meshgrid([-1, 1], [-1, 1], [-1, 1], indexing="ij"), axis=-1).reshape(-1, 3)
        middle = point(center, "Box: center")
        super().__init__(middle + (signs * half) @ axes.T, skin)
        assign(self, half=half, center=middle, rotation=axes)


def distinct(points: np.ndarray) -> np.ndarray:
    """Drop points (n, 3) that are the same up to 1e-10 of their size."""
    from scipy.spatial import KDTree

    centered = points - points.mean(axis=0)
    size = float(np.abs(centered).max())
    # Many points are copies of a few: the first of each is enough.
    firsts = np.unique(np.round(centered / (1e-10 * size)), axis=0, return_index=True)[1]
    kept = points[np.sort(firsts)]
    pairs = KDTree(kept).query_pairs(1e-10 * size, output_type="ndarray")  # those that were rounded apart
    return np.delete(kept, pairs[:, 1], axis=0)


def _hull(points: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return indices of the corners (n,) and of the triangles (n_f, 3), outward normals (n_f, 3) and offsets (n_f,)."""
    from scipy.spatial import ConvexHull, QhullError

    center = points.mean(axis=0)  # about which fewer digits are lost
    try:
        hull = ConvexHull(points - center)
    except QhullError as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{name}: vertices: no convex hull with a volume was found ({reason}).") from None
    normals = hull.equations[:, :3].copy()
    return np.sort(hull.vertices), hull.simplices, normals, hull.equations[:, 3] - normals @ center


def _check_vertices(points: np.ndarray, name: str) -> None:
    count = len(points)
    if count < 4:
        raise ModelError(f"{name}: vertices: a body needs four points that are not in one plane, given {count}.")
    centered = points - points.mean(axis=0)
    size = float(np.abs(centered).max())
    order = np.lexsort(points.T)
    near = np.abs(np.diff(points[order], axis=0)).max(axis=1) <= 1e-14 * size
    if near.any():
        k = int(np.argmax(near))
        first, second = sorted(order[k : k + 2].tolist())
        raise ModelError(
            f"{name}: vertices: points {first} and {second} are the same, {points[first]}; give every vertex once."
        )
    # The smallest singular value is the root mean square distance from the best plane, times the root of the count.
    thickness = np.linalg.svd(centered, compute_uv=False)[2] / np.sqrt(count)
    if thickness <= FLAT * size:
        raise ModelError(
            f"{name}: vertices: all {count} points lie in one plane (thickness {thickness:.1e} of size {size:.1e} m), "
            "so the body has no volume; move some out of it, or make a plate an ns.Box with a small third length."
        )


def _distances(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Return distances of points (..., 3) from the nearest of triangles (n, 3, 3): to its plane, or to an edge."""
    y = points[..., None, :]
    corners, edges = triangles, np.roll(triangles, -1, axis=1) - triangles
    normals = np.cross(edges[:, 0], edges[:, 1])
    heights = ((y - corners[:, 0]) * normals).sum(axis=-1) / np.linalg.norm(normals, axis=-1)
    above = np.ones(heights.shape, dtype=bool)
    nearest = np.full(heights.shape, np.inf)
    for k in range(3):
        offset, edge = y - corners[:, k], edges[:, k]
        # Inside the prism over the triangle the nearest point is on its plane, otherwise on an edge.
        above &= (np.cross(normals, edge) * offset).sum(axis=-1) >= 0
        along = np.clip((offset * edge).sum(axis=-1) / (edge**2).sum(axis=-1), 0, 1)
        nearest = np.minimum(nearest, np.linalg.norm(offset - along[..., None] * edge, axis=-1))
    return np.where(above, np.abs(heights), nearest).min(axis=-1)
