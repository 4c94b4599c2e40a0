"""Shapes of rigid bodies: supports, insides, mass properties, and features for compiled kernels."""

from nosnoc_py.systems.shapes.composed import Intersection, SupportFunction, Union
from nosnoc_py.systems.shapes.ellipsoids import Ellipsoid, Sphere
from nosnoc_py.systems.shapes.mass_properties import MassProperties
from nosnoc_py.systems.shapes.polyhedra import Box, ConvexPolyhedron
from nosnoc_py.systems.shapes.shape import Features, Shape

__all__ = [
    "Box",
    "ConvexPolyhedron",
    "Ellipsoid",
    "Features",
    "Intersection",
    "MassProperties",
    "Shape",
    "Sphere",
    "SupportFunction",
    "Union",
]
