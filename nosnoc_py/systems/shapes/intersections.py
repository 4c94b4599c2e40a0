"""Intersections of convex bodies: polyhedra exactly, two ellipsoids by a root, mixtures by a small convex problem.

Nested intersections are flattened into ellipsoids and polyhedra. `interior` finds the deepest common point, or shows
that there is none. Polyhedra alone give a polyhedron (half-space intersection about that point). Two ellipsoids are a
`Lens`: in coordinates in which both are diagonal the support is one root (`support_kernels`), so that compiled loops
can use it. Everything else is a `Cut`, whose support is a convex program in three variables (`convex_program`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.systems.shapes.convex_program import Constraints, furthest, interior
from nosnoc_py.systems.shapes.ellipsoids import Ellipsoid
from nosnoc_py.systems.shapes.polyhedra import ConvexPolyhedron, distinct
from nosnoc_py.systems.shapes.shape import Features, Shape, unit
from nosnoc_py.systems.symbols import finite

EMPTY = "Intersection: the shapes have no common volume; move them together, or leave one out."
# Depth of an intersection, relative to the size of the smaller body, below which it counts as empty: bodies that only
# touch have no common volume, up to rounding.
THIN = 1e-9


@dataclass(frozen=True, eq=False)
class Cut(Shape):
    """Intersection of convex shapes without skin (`members`), with an interior point."""

    members: tuple[Shape, ...]
    inside: np.ndarray

    @cached_property
    def constraints(self) -> Constraints:
        """Ellipsoids and half-spaces of the members."""
        return constraints_of(self.members)

    def support(self, direction: Any) -> np.ndarray:
        """Return the point furthest in a direction, by an interior-point method in three variables."""
        return furthest(self.constraints, unit(direction), self.inside)

    def contains(self, points: Any) -> np.ndarray:
        """Return a mask of the points (..., 3) that lie in all members."""
        return np.all([member.contains(points) for member in self.members], axis=0)

    def moved(self, shift: Any) -> Shape:
        """Return it shifted by (3,) [m]."""
        by = finite(shift, "moved: shift", 3)
        return type(self)(tuple(member.moved(by) for member in self.members), self.inside + by)

    def features(self) -> Features | None:
        """Return None: the support is a problem to be solved."""
        return None

    def chords(self, points: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Return where lines are in all members."""
        result = np.stack([member.chords(points, direction) for member in self.members])
        # A line is in all convex members between its last entry and its first exit; decreasing if that is nowhere.
        return np.stack([result[..., 0].max(axis=0), result[..., 1].min(axis=0)], axis=1)


@dataclass(frozen=True, eq=False)
class Lens(Cut):
    """Intersection of two ellipsoids."""

    @cached_property
    def row(self) -> np.ndarray:
        """Both ellipsoids as numbers."""
        return _lens_row(*self.members)  # type: ignore[arg-type]

    def support(self, direction: Any) -> np.ndarray:
        """Return the point furthest in a direction."""
        from nosnoc_py.systems.shapes.support_kernels import lens_support

        return lens_support(self.row, unit(direction))

    def features(self) -> Features:
        """Return both ellipsoids."""
        return Features.of(lenses=self.row)


def common(parts: Sequence[Sequence[Shape]]) -> tuple[Shape, ...]:
    """Return the nonempty intersections of one part of each shape.

    Raises
    ------
    ModelError
        If none has, or a part is neither an ellipsoid nor a polyhedron without skin, nor an intersection of them.
    """
    result = [cut for choice in product(*parts) if (cut := _cut(choice)) is not None]
    if not result:
        raise ModelError(EMPTY)
    return tuple(result)


def constraints_of(members: Sequence[Shape]) -> Constraints:
    """Return ellipsoids and half-spaces of the members."""
    ellipsoids = [member for member in members if isinstance(member, Ellipsoid)]
    polyhedra = [member for member in members if isinstance(member, ConvexPolyhedron)]
    return Constraints(
        centers=np.array([each.center for each in ellipsoids]).reshape(-1, 3),
        forms=np.array([each.inverse for each in ellipsoids]).reshape(-1, 3, 3),
        normals=np.concatenate([np.zeros((0, 3)), *(each.normals for each in polyhedra)]),
        offsets=np.concatenate([np.zeros(0), *(each.offsets for each in polyhedra)]),
    )


def _cut(choice: Sequence[Shape]) -> Shape | None:
    # Nested intersections are flattened, so that all members are ellipsoids or polyhedra.
    members = tuple(leaf for shape in choice for leaf in (shape.members if isinstance(shape, Cut) else (shape,)))
    for member in members:
        _check_member(member)
    if len(members) == 1:
        return members[0]
    inside, depth = interior(
        constraints_of(members), np.mean([member.box(np.eye(3)) for member in members], axis=(0, 1))
    )
    if depth <= THIN * min(float(np.ptp(member.box(np.eye(3)), axis=0).min()) for member in members):
        return None
    if all(isinstance(member, ConvexPolyhedron) for member in members):
        return _polyhedron(members, inside)
    # Two ellipsoids have a support in closed form up to one root, which compiled kernels can use.
    if len(members) == 2 and all(isinstance(member, Ellipsoid) for member in members):
        return Lens(members, inside)
    return Cut(members, inside)


def _check_member(member: Shape) -> None:
    if isinstance(member, ConvexPolyhedron) and member.skin > 0:
        raise ModelError(
            f"Intersection: a polyhedron with a skin ({member.skin:g} m) cannot be cut; leave the skin out."
        )
    if not isinstance(member, Ellipsoid | ConvexPolyhedron):
        raise ModelError(
            f"Intersection: {type(member).__name__}: only ellipsoids and polyhedra, their unions and intersections can "
            "be cut; write the support of the intersection as an ns.SupportFunction."
        )


def _polyhedron(members: Sequence[Shape], inside: np.ndarray) -> ConvexPolyhedron:
    from scipy.spatial import HalfspaceIntersection

    limits = constraints_of(members)
    # Faces of a polyhedron are triangulated, so that the same plane occurs several times: Qhull gets each once.
    rows = np.unique(np.round(np.column_stack([limits.normals, limits.offsets]), 14), axis=0)
    # Corners where more than three planes meet occur several times, with rounding.
    return ConvexPolyhedron(distinct(HalfspaceIntersection(rows, inside).intersections))


def _lens_row(first: Ellipsoid, second: Ellipsoid) -> np.ndarray:
    """Return matrices A V and B U of the same ellipsoids with (B U)^-1 A V diagonal, by the SVD of B^-1 A."""
    left, _, right = np.linalg.svd(second.inverse @ first.matrix)
    rows = (first.center, first.matrix @ right.T, second.center, second.matrix @ left)
    return np.concatenate([np.ravel(row) for row in rows])
