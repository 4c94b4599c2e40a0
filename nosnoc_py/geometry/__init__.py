"""Shapes, where bodies carry them, and the contacts between them."""

from nosnoc_py.geometry.making import contacts
from nosnoc_py.geometry.meshes import mesh_hull
from nosnoc_py.geometry.placed import Coordinates, Placed
from nosnoc_py.geometry.shapes import Capsule, ConvexPolygon, Cylinder, HalfSpace, HeightMap, Point, ThinDisc

__all__ = [
    "Capsule",
    "Coordinates",
    "Cylinder",
    "ThinDisc",
    "HalfSpace",
    "HeightMap",
    "Placed",
    "Point",
    "ConvexPolygon",
    "contacts",
    "mesh_hull",
]
