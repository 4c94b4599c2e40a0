"""Scenes: drawings of planar systems, as shapes whose positions are expressions of the symbols of the system.

A system takes them as `scene=[...]`; `ns.animate` and `ns.snapshots` draw them. They are compiled into one function of
x, u and p (`drawing`); plotting sees numbers only.

Coordinates are (horizontal, vertical) [m].

Examples
--------
>>> import casadi as ca, nosnoc_py as ns
>>> q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
>>> scene = [ns.scene.Disc(q, 0.1, label="ball"), ns.scene.Ground(), ns.scene.Trail(q)]
>>> ground = ns.Contact("ground", gap=q[1] - 0.1)
>>> ball = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, -9.81], contacts=[ground], scene=scene)
>>> [shape.title for shape in ball.scene]
["Disc 'ball'", 'Ground', 'Trail']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import casadi as ca
import numpy as np

from nosnoc_py.annotations import Expression
from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import assign
from nosnoc_py.errors import ModelError, is_whole, unknown_name
from nosnoc_py.solution.arrays import Array
from nosnoc_py.systems.symbols import column, scalar

COLOURS = ("blue", "vermilion", "green", "purple", "orange", "sky", "black", "grey")  # Okabe and Ito's
ROUND = 48  # number of corners of a disc: round at the size of a picture
SLIM = 0.12  # width of a spring, as a fraction of its greatest length


@dataclass(frozen=True, eq=False)
class PlanarShape:
    """Base class of all shapes of a scene.

    Attributes
    ----------
    numbers : SX (k,)
        Positions, sizes and angles of the shape, which may be expressions of x, u and p.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.scene.Disc([0, 1], 0.2, label="wheel").title
    "Disc 'wheel'"
    """

    filled: ClassVar[bool] = False
    body: ClassVar[bool] = True  # whether the picture has to show all of it

    label: str = field(default="", kw_only=True)
    colour: str | None = field(default=None, kw_only=True)
    numbers: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if self.colour is not None and self.colour not in COLOURS:
            raise ModelError(unknown_name(str(self.colour), COLOURS, f"colour of a {kind}"))
        for name in ("label", "unit", "name"):
            value = getattr(self, name, "")
            if not isinstance(value, str):
                raise ModelError(f"{kind}: {name}: expected text, given {value!r}.")
        # Checked and written once here, so that drawing sees numbers only.
        assign(self, numbers=ca.SX(self._numbers()))

    def _numbers(self) -> ca.SX:
        """Return the numbers of the shape from its fields, after checks."""
        raise NotImplementedError

    def _point(self, name: str) -> ca.SX:
        return column(getattr(self, name), f"{type(self).__name__}: {name}", 2)

    def _number(self, name: str) -> ca.SX:
        return column(getattr(self, name), f"{type(self).__name__}: {name}", 1)

    def _check_length(self, name: str) -> None:
        """Raise `ModelError` unless a field is None or a positive number."""
        if getattr(self, name) is not None:
            what = f"{type(self).__name__}: {name}"
            assign(self, **{name: scalar(getattr(self, name), what)})
            _positive(ca.SX(getattr(self, name)), what)

    @property
    def title(self) -> str:
        """Name of the shape in messages."""
        return f"{type(self).__name__} {self.label!r}" if self.label else type(self).__name__

    def outline(self, values: Array) -> Array:
        """Return the points (frames, n, 2) [m] of numbers (frames, k)."""
        return values.reshape(len(values), -1, 2)


@named_arguments
@dataclass(frozen=True, eq=False)
class Disc(PlanarShape):
    """Disc; with an angle [rad] it has a spoke that shows its rotation.

    Parameters
    ----------
    center : SX (2,)
    radius : SX scalar or float
        [m]
    angle : SX scalar, optional
    label : str
        For the legend.
    colour : str, optional
        One of `COLOURS`; by default the next one.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q = ca.SX.sym("q", 3)
    >>> ns.scene.Disc(q[:2], 0.1, angle=q[2], label="wheel").numbers
    SX([q_0, q_1, 0.1, q_2])
    """

    filled: ClassVar[bool] = True

    center: Expression
    radius: Expression
    angle: Expression | None = None

    def _numbers(self) -> ca.SX:
        radius = _positive(self._number("radius"), "Disc: radius")
        return ca.vertcat(self._point("center"), radius, 0.0 if self.angle is None else self._number("angle"))

    def outline(self, values: Array) -> Array:
        """Return the circle (frames, n, 2), from the spoke on."""
        around = values[:, 3:4] + np.linspace(0.0, 2.0 * np.pi, ROUND + 1)
        return values[:, None, :2] + values[:, 2, None, None] * _direction(around)


@named_arguments
@dataclass(frozen=True, eq=False)
class Rectangle(PlanarShape):
    """A rectangle about its centre.

    Parameters
    ----------
    center : SX (2,)
    size : (2,)
        Width and height [m].
    angle : SX scalar
        Positive against the clock [rad].
    label, colour
        As of a `Disc`.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q = ca.SX.sym("q", 3)
    >>> ns.scene.Rectangle(q[:2], (0.4, 0.2), angle=q[2], colour="orange").numbers
    SX([q_0, q_1, 0.4, 0.2, q_2])
    """

    filled: ClassVar[bool] = True

    center: Expression
    size: Expression
    angle: Expression = 0.0

    def _numbers(self) -> ca.SX:
        return ca.vertcat(
            self._point("center"), _positive(self._point("size"), "Rectangle: size"), self._number("angle")
        )

    def outline(self, values: Array) -> Array:
        """Return the corners (frames, 4, 2)."""
        half = 0.5 * values[:, None, 2:4] * np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        return values[:, None, :2] + _turned(half, values[:, 4])


Box = Rectangle  # as `ns.scene.Box`; the class named Box is the solid, `ns.Box`
Shape = PlanarShape  # as `ns.scene.Shape`; the class named Shape is that of solids


@named_arguments
@dataclass(frozen=True, eq=False)
class Polygon(PlanarShape):
    """A filled polygon with corners `points`, a sequence of three or more places (2,).

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> wedge = ns.scene.Polygon([[x, 0], [x + 1, 0], [x, 0.5]])
    >>> wedge.numbers.shape
    (6, 1)
    """

    filled: ClassVar[bool] = True

    points: Sequence[Expression] | ca.SX | np.ndarray

    def _numbers(self) -> ca.SX:
        return _points(self.points, "Polygon: points", 3)


# Directions of pictures in space: to the right, and up.
VIEWS = {
    "xz": ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0)),
    "yz": ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "xy": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)),
    "oblique": ((0.8, 0.6, 0.0), (-0.3, 0.4, float(np.sqrt(0.75)))),
}


def view_of(name: str) -> Array:
    """Return the directions (2, 3) to the right and up of a view by its name."""
    if name not in VIEWS:
        raise ModelError(unknown_name(str(name), VIEWS, "view"))
    return np.array(VIEWS[name])


@dataclass(frozen=True, eq=False)
class Solid(PlanarShape):
    """The outline of a convex body in space: the hull of balls about some points, seen along a direction.

    Parameters
    ----------
    points : sequence of SX (3,), or SX (3, n)
        In the world [m].
    radius : float
        Of the balls [m]; 0 for the corners of a box.
    view : {"xz", "yz", "xy", "oblique"}
        Axes to the right and up in the picture.
    label, colour
        As of a `Disc`.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q = ca.SX.sym("q", 3)
    >>> capsule = ns.scene.Solid([q, q + ca.DM([0, 0, 0.5])], radius=0.1, view="xz")
    >>> capsule.numbers
    SX([q_0, q_2, q_0, (q_2+0.5)])
    """

    filled: ClassVar[bool] = True

    points: Sequence[Expression] | ca.SX | np.ndarray
    radius: float = 0.0
    view: str = "xz"

    def _numbers(self) -> ca.SX:
        given = self.points if isinstance(self.points, ca.SX) else ca.horzcat(*[ca.SX(p) for p in self.points])
        if given.shape[0] != 3 or given.shape[1] == 0:
            raise ModelError(f"Solid: points: expected places with three components, given shape {given.shape}.")
        radius = scalar(self.radius, "Solid: radius")
        if not 0.0 <= radius < np.inf:
            raise ModelError(f"Solid: radius: expected 0 or more, given {radius:g}.")
        assign(self, radius=radius)
        return ca.vec(ca.DM(view_of(self.view)) @ given)

    def outline(self, values: Array) -> Array:
        """Return the furthest points in directions all round (frames, n, 2)."""
        places = values.reshape(len(values), -1, 2)
        around = _direction(np.linspace(0.0, 2.0 * np.pi, ROUND + 1)[None])[0]
        # Support points: the outline of a convex hull is its furthest point in each direction, without computing the
        # hull.
        furthest = np.argmax(places @ around.T, axis=1)
        return np.asarray(np.take_along_axis(places, furthest[..., None], axis=1) + self.radius * around)


@named_arguments
@dataclass(frozen=True, eq=False)
class Line(PlanarShape):
    """A line through two or more places (2,): links of a robot, with their `joints` as dots, or a rope.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> phi = ca.SX.sym("phi")
    >>> pendulum = ns.scene.Line([[0, 0], [ca.sin(phi), -ca.cos(phi)]], label="rod")
    >>> pendulum.title, pendulum.numbers.shape
    ("Line 'rod'", (4, 1))
    """

    points: Sequence[Expression] | ca.SX | np.ndarray
    joints: bool = True

    def _numbers(self) -> ca.SX:
        return _points(self.points, "Line: points", 2)


@named_arguments
@dataclass(frozen=True, eq=False)
class Spring(PlanarShape):
    """A spring from `start` to `end` (2,), with a number of `coils` and a `width` [m].

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> ns.scene.Spring([0, 0], [x, 0], coils=8, width=0.1, label="leg").title
    "Spring 'leg'"
    """

    start: Expression
    end: Expression
    coils: int = 6
    width: float | None = None

    def _numbers(self) -> ca.SX:
        if not is_whole(self.coils):
            raise ModelError(f"Spring: coils: expected a positive whole number, given {self.coils!r}.")
        self._check_length("width")
        return ca.vertcat(self._point("start"), self._point("end"))

    def outline(self, values: Array) -> Array:
        """Return the zigzag (frames, n, 2), with the same width in all frames."""
        span = values[:, 2:] - values[:, :2]
        lengths = np.linalg.norm(span, axis=1, keepdims=True)
        # A spring of length zero has no direction: divide by one instead of zero.
        across = np.stack([-span[:, 1], span[:, 0]], axis=1) / np.where(lengths > 0.0, lengths, 1.0)
        # One width for all frames: a real spring does not get thicker when it is stretched.
        width = SLIM * lengths.max() if self.width is None else self.width
        steps = np.arange(2 * self.coils)
        along = np.concatenate([[0.0, 0.1], 0.1 + 0.8 * (steps + 0.5) / steps.size, [0.9, 1.0]])
        sides = np.concatenate([[0.0, 0.0], np.where(steps % 2, -0.5, 0.5) * width, [0.0, 0.0]])
        return values[:, None, :2] + along[:, None] * span[:, None] + sides[:, None] * across[:, None]


@named_arguments
@dataclass(frozen=True, eq=False)
class Ground(PlanarShape):
    """Ground: a horizontal line, a straight line of any direction, or a polyline.

    Parameters
    ----------
    height : SX scalar or float
        Height of an infinite horizontal line [m]; default 0.
    point, normal : (2,), optional
        Point on an infinite straight line, and its normal towards the free side.
    points : sequence of (2,), optional
        Polyline; the free side is on its left in the order of the points.
    band : bool
        True to fill the side behind the line (False for a rail).

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.scene.Ground().endless, ns.scene.Ground(points=[[0, 0], [2, 0], [2, -1]]).endless
    (True, False)
    """

    body: ClassVar[bool] = False

    height: Expression | None = None
    point: Expression | None = field(default=None, kw_only=True)
    normal: Expression | None = field(default=None, kw_only=True)
    points: Sequence[Expression] | np.ndarray | None = field(default=None, kw_only=True)
    band: bool = field(default=True, kw_only=True)
    label: str = field(default="", init=False, repr=False)
    colour: str | None = field(default=None, init=False, repr=False)

    def _numbers(self) -> ca.SX:
        straight = self.point is not None or self.normal is not None
        if (self.height is not None) + straight + (self.points is not None) > 1:
            raise ModelError("Ground: give either points, or point and normal, or a height.")
        if self.points is not None:
            return _points(self.points, "Ground: points", 2)
        if (self.point is None) != (self.normal is None):
            raise ModelError("Ground: a straight line needs both, point= and normal=.")
        if self.normal is None:
            # Point and normal, as for a straight line of any direction.
            return ca.vertcat(0, 0.0 if self.height is None else self._number("height"), 0, 1)
        normal = self._point("normal")
        if normal.is_constant() and not np.any(np.array(ca.evalf(normal))):
            raise ModelError("Ground: normal: expected a direction towards the free side, given zeros.")
        return ca.vertcat(self._point("point"), normal)

    @property
    def endless(self) -> bool:
        """True if it is a straight line without an end; its numbers are then a point and the normal."""
        return self.points is None


@named_arguments
@dataclass(frozen=True, eq=False)
class Arrow(PlanarShape):
    """A vector at a place: a control, a force, a velocity.

    Parameters
    ----------
    start : SX (2,)
    vector : SX (2,)
        In x, u and p.
    scale : float, optional
        Length in the picture per unit of the vector [m]; by default such that the longest arrow of the same unit is a
        quarter of the picture.
    unit : str
        Of the vector, for the legend.
    label, colour
        As of a `Disc`.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, u = ca.SX.sym("q", 2), ca.SX.sym("u", 2)
    >>> ns.scene.Arrow(q, u, scale=0.05, label="thrust").title
    "Arrow 'thrust'"
    """

    body: ClassVar[bool] = False

    start: Expression
    vector: Expression
    scale: float | None = None
    unit: str = field(default="N", kw_only=True)

    def _numbers(self) -> ca.SX:
        self._check_length("scale")
        return ca.vertcat(self._point("start"), self._point("vector"))


@named_arguments
@dataclass(frozen=True, eq=False)
class Trail(PlanarShape):
    """The path of a point (2,) up to now.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q = ca.SX.sym("q", 2)
    >>> ns.scene.Trail(q, colour="grey").numbers
    SX([q_0, q_1])
    """

    body: ClassVar[bool] = False

    point: Expression
    label: str = field(default="", init=False, repr=False)

    def _numbers(self) -> ca.SX:
        return self._point("point")


@named_arguments
@dataclass(frozen=True, eq=False)
class Mark(PlanarShape):
    """Mark at a point (2,) that appears when the event `name` (rigid contact, guard, switching function) happens.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    >>> ground, mark = ns.Contact("ground", gap=q[1]), ns.scene.Mark("ground", q)
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, -9.81], contacts=[ground], scene=[mark])
    >>> ball.scene[0].name
    'ground'
    """

    body: ClassVar[bool] = False

    name: str
    point: Expression
    label: str = field(default="", init=False, repr=False)
    colour: str | None = field(default=None, init=False, repr=False)

    def _numbers(self) -> ca.SX:
        return column(self.point, f"Mark {self.name!r}: point", 2)


def _positive(expression: ca.SX, what: str) -> ca.SX:
    """Raise `ModelError` for constants that are not positive; expressions are not checked."""
    for part in expression.nonzeros() if expression.is_dense() else ca.densify(expression).nonzeros():
        if part.is_constant() and not 0.0 < float(part) < np.inf:
            expected = "a positive number" if expression.numel() == 1 else "positive numbers"
            raise ModelError(f"{what}: expected {expected}, given {float(part):g}.")
    return expression


def _points(value: Any, what: str, least: int) -> ca.SX:
    """Return the places as one column (2 n,); rows of a matrix (n, 2) are places, too."""
    rows = ca.vertsplit(value) if isinstance(value, ca.SX | ca.DM) else value
    try:
        # Rows of a CasADi matrix have shape (1, 2).
        places = [column(row.T if getattr(row, "shape", ()) == (1, 2) else row, what, 2) for row in rows]
    except TypeError:
        raise ModelError(f"{what}: expected a sequence of places (2,), given {type(value).__name__}.") from None
    if len(places) < least:
        raise ModelError(f"{what}: expected {least} or more, given {len(places)}.")
    return ca.vertcat(*places)


def _direction(angle: Array) -> Array:
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _turned(points: Array, angle: Array) -> Array:
    """Return the points (frames, n, 2) turned by angles (frames,)."""
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    return np.stack([c * points[..., 0] - s * points[..., 1], s * points[..., 0] + c * points[..., 1]], axis=-1)
