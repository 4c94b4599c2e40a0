"""Collision and visual shapes of links, as robot files give them."""

from __future__ import annotations

import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nosnoc_py.errors import ModelError, ModelWarning
from nosnoc_py.geometry.meshes import mesh_hull
from nosnoc_py.geometry.shapes import Capsule, Cylinder, HalfSpace
from nosnoc_py.systems.shapes import Box, ConvexPolyhedron, Ellipsoid, Sphere

Array = np.ndarray
# Directions spread evenly over a half-sphere (golden angle); with their negatives they draw an ellipsoid.
_STEPS = np.arange(100) + 0.5
_HEIGHTS, _TURNS = 1 - _STEPS / 100, np.pi * (1 + 5**0.5) * _STEPS
ROUND_ELLIPSOID = np.column_stack(
    [np.sqrt(1 - _HEIGHTS**2) * np.cos(_TURNS), np.sqrt(1 - _HEIGHTS**2) * np.sin(_TURNS), _HEIGHTS]
)
ROUND_RIM = 24  # points of a rim that is drawn
Use = Literal["collision", "visual"]
USES: tuple[Use, ...] = ("collision", "visual")


@dataclass(frozen=True, eq=False, kw_only=True)
class LinkShape:
    """A shape of a link.

    Attributes
    ----------
    link, name : str
    use : {"collision", "visual"}
    shape
        As in `ns.Placed`; None where it is a mesh.
    rotation, position : (3, 3), (3,)
        In the frame of the link.
    friction, restitution : float, optional
        If the file has them.
    bits : (2,)
        Two shapes collide if the first of one and the second of the other have a bit in common.
    priority : int
        The friction of a pair is that of the higher priority, of equal ones the larger.
    mesh : str
        File of a mesh, as the file of the robot names it.
    hull : function, optional
        Of a mesh: reads it and returns its convex hull of a largest number of corners.
    """

    link: str
    name: str
    use: Use
    shape: Any
    rotation: Array
    position: Array
    friction: float | None = None
    restitution: float | None = None
    bits: tuple[int, int] = (1, 1)
    priority: int = 0
    mesh: str = ""
    hull: Callable[[int], Any] | None = None

    def solid(self, corners: int) -> Any:
        """Return the shape, of a mesh its hull of so many corners; warnings and errors name the link."""
        if self.hull is None:
            return self.shape
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                solid = self.hull(corners)
            except ModelError as error:
                raise ModelError(
                    f"contacts: link {self.link!r} collides by a mesh: {error} Or give the link a shape: "
                    "robot.shape(link, ...)."
                ) from error
        for one in said:
            warnings.warn(f"contacts: link {self.link!r}: {one.message}", ModelWarning, stacklevel=4)
        return solid

    def meets(self, other: LinkShape) -> bool:
        """Return True if two shapes collide by their bits."""
        return bool(self.bits[0] & other.bits[1] or other.bits[0] & self.bits[1])


class EmptyShapeError(ModelError):
    """Error of a shape without extent, which matters only if something collides with it."""


def _lengths(element: ET.Element, name: str, count: int, what: str) -> Array:
    text, result = element.get(name, ""), _numbers(element, name)
    if result.size != count or not (result > 0).all():
        kind = EmptyShapeError if result.size == count else ModelError
        raise kind(f"{what}: {name}: expected {count} positive lengths, given {text!r}.")
    return result


def _numbers(element: ET.Element, name: str, default: str = "") -> Array:
    """Return the numbers of an attribute, none if it has something else."""
    try:
        return np.array([float(part) for part in element.get(name, default).split()])
    except ValueError:
        return np.zeros(0)


def _plane(element: ET.Element, what: str) -> HalfSpace:
    """Return the half-space below a plane, as Bullet writes it."""
    return HalfSpace([float(part) for part in element.get("normal", "0 0 1").split()])


GEOMETRIES: dict[str, Callable[[ET.Element, str], Any]] = {
    "box": lambda e, what: Box(_lengths(e, "size", 3, what)),
    "sphere": lambda e, what: Sphere(float(_lengths(e, "radius", 1, what)[0])),
    "cylinder": lambda e, what: Cylinder(
        float(_lengths(e, "radius", 1, what)[0]), float(_lengths(e, "length", 1, what)[0])
    ),
    "capsule": lambda e, what: Capsule(
        float(_lengths(e, "radius", 1, what)[0]), float(_lengths(e, "length", 1, what)[0])
    ),
    "ellipsoid": lambda e, what: Ellipsoid(_lengths(e, "size", 3, what)),
    "plane": _plane,
    # A mesh is kept as a shape without geometry: it matters only if contacts are to be made of it.
    "mesh": lambda e, what: None,
    "cdf": lambda e, what: None,  # a distance field of Bullet
}


def shape_of(
    part: ET.Element,
    link: str,
    use: Use,
    number: int,
    pose: Callable[[ET.Element | None, str], tuple[Array, Array]],
    find: Callable[[str], str] = str,
) -> LinkShape:
    """Return a <collision> or <visual> part of a link in a URDF file, the one with a number among its kind."""
    what, geometry = f"link {link!r}: <{use}>", part.find("geometry")
    kinds = [] if geometry is None else [kind for kind in geometry if kind.tag != "material"]
    if len(kinds) != 1 or kinds[0].tag not in GEOMETRIES:
        actual = kinds[0].tag if kinds else "none"
        raise ModelError(f"{what}: expected one of {', '.join(GEOMETRIES)} in its <geometry>, given {actual}.")
    rotation, position = pose(part.find("origin"), what)
    file = find(kinds[0].get("filename", ""))
    scale = _numbers(kinds[0], "scale", "1 1 1")
    return LinkShape(
        link=link,
        name=part.get("name") or f"{link}{'' if number == 0 else f' {number + 1}'}",
        use=use,
        shape=GEOMETRIES[kinds[0].tag](kinds[0], what),
        rotation=rotation,
        position=position,
        mesh=file,
        hull=(lambda most: mesh_hull(file, scale=scale, most=most)) if kinds[0].tag == "mesh" else None,
    )


def outline_of(part: LinkShape) -> tuple[Array, float] | None:
    """Return points (n, 3) and a radius whose balls have the shape as hull; None for other shapes."""
    shape = part.shape
    if isinstance(shape, Sphere):
        return np.asarray(shape.center)[None], float(shape.semi_axes[0])
    if isinstance(shape, Capsule):
        return np.array([[0.0, 0.0, -shape.length / 2], [0.0, 0.0, shape.length / 2]]), shape.radius
    if isinstance(shape, Cylinder):
        return np.asarray(Cylinder(shape.radius, shape.length, ROUND_RIM).vertices), 0.0
    if isinstance(shape, ConvexPolyhedron):
        return np.asarray(shape.vertices), 0.0
    if isinstance(shape, Ellipsoid):
        ends = np.vstack([ROUND_ELLIPSOID, -ROUND_ELLIPSOID]) * np.asarray(shape.semi_axes)
        return np.asarray(shape.center) + ends @ np.asarray(shape.rotation).T, 0.0
    return None
