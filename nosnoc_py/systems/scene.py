"""Scenes: what a planar system looks like, as shapes whose places are expressions of the system's own symbols.

A system takes them as `scene=[...]`; `ns.animate` and `ns.snapshots` draw them. They are compiled into one function of
x, u and p (`drawing`); whoever draws sees numbers only.

    ns.CLS(q=q, v=v, ..., scene=[ns.scene.Disc(q, 0.1), ns.scene.Ground(), ns.scene.Trail(q)])

Coordinates are (horizontal, vertical) [m].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import casadi as ca
import numpy as np
import numpy.typing as npt

from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.systems.symbols import column, scalar

Array = npt.NDArray[np.float64]

COLOURS = ("blue", "vermilion", "green", "purple", "orange", "sky", "black", "grey")  # Okabe and Ito's
ROUND = 48  # corners of a disc
SLIM = 0.12  # width of a spring, in its greatest length


@dataclass(frozen=True, eq=False)
class Shape:
    """What all shapes have in common.

    Attributes
    ----------
    numbers : SX (k,)
        Everything about the shape that may move.
    """

    filled: ClassVar[bool] = False
    body: ClassVar[bool] = True  # whether the picture has to show all of it

    numbers: Any = field(init=False, repr=False)

    def _become(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check_look(self) -> None:
        kind, colour = type(self).__name__, getattr(self, "colour", None)
        if colour is not None and colour not in COLOURS:
            raise ModelError(unknown_name(str(colour), COLOURS, f"colour of a {kind}"))
        for name in ("label", "unit", "name"):
            value = getattr(self, name, "")
            if not isinstance(value, str):
                raise ModelError(f"{kind}: {name}: expected text, given {value!r}.")

    @property
    def title(self) -> str:
        """What to call it in messages."""
        label = getattr(self, "label", "")
        return f"{type(self).__name__} {label!r}" if label else type(self).__name__

    def outline(self, values: Array) -> Array:
        """Return points (frames, n, 2) [m] of numbers (frames, k)."""
        return values.reshape(len(values), -1, 2)


@dataclass(frozen=True, eq=False)
class Disc(Shape):
    """A disc; with an angle [rad] it has a spoke, so that one sees it turn.

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
    """

    filled: ClassVar[bool] = True

    center: Any
    radius: Any
    angle: Any = None
    label: str = field(default="", kw_only=True)
    colour: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check_look()
        parts = (_point(self.center, "Disc: center"), _positive(_number(self.radius, "Disc: radius"), "Disc: radius"))
        self._become(numbers=ca.vertcat(*parts, _number(0.0 if self.angle is None else self.angle, "Disc: angle")))

    def outline(self, values: Array) -> Array:
        """The circle (frames, n, 2), from the spoke on."""
        around = values[:, 3:4] + np.linspace(0.0, 2.0 * np.pi, ROUND + 1)
        return values[:, None, :2] + values[:, 2, None, None] * _direction(around)


@dataclass(frozen=True, eq=False)
class Box(Shape):
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
    """

    filled: ClassVar[bool] = True

    center: Any
    size: Any
    angle: Any = 0.0
    label: str = field(default="", kw_only=True)
    colour: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check_look()
        size = _positive(_point(self.size, "Box: size"), "Box: size")
        center, angle = _point(self.center, "Box: center"), _number(self.angle, "Box: angle")
        self._become(numbers=ca.vertcat(center, size, angle))

    def outline(self, values: Array) -> Array:
        """The corners (frames, 4, 2)."""
        half = 0.5 * values[:, None, 2:4] * np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        return values[:, None, :2] + _turned(half, values[:, 4])


@dataclass(frozen=True, eq=False)
class Polygon(Shape):
    """A filled polygon with corners `points`, a sequence of three or more places (2,)."""

    filled: ClassVar[bool] = True

    points: Any
    label: str = field(default="", kw_only=True)
    colour: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check_look()
        self._become(numbers=_points(self.points, "Polygon: points", 3))


@dataclass(frozen=True, eq=False)
class Line(Shape):
    """A line through two or more places (2,): links of a robot, with their `joints` as dots, or a rope."""

    points: Any
    joints: bool = True
    label: str = field(default="", kw_only=True)
    colour: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check_look()
        self._become(numbers=_points(self.points, "Line: points", 2))


@dataclass(frozen=True, eq=False)
class Spring(Shape):
    """A spring from `start` to `end` (2,), with so many coils and so wide [m]."""

    start: Any
    end: Any
    coils: int = 6
    width: float | None = None
    label: str = field(default="", kw_only=True)
    colour: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check_look()
        if type(self.coils) is not int or self.coils < 1:
            raise ModelError(f"Spring: coils: expected a positive whole number, given {self.coils!r}.")
        if self.width is not None:
            self._become(width=scalar(self.width, "Spring: width"))
            _positive(ca.SX(self.width), "Spring: width")
        self._become(numbers=ca.vertcat(_point(self.start, "Spring: start"), _point(self.end, "Spring: end")))

    def outline(self, values: Array) -> Array:
        """The zigzag (frames, n, 2): as wide in all of them."""
        span = values[:, 2:] - values[:, :2]
        lengths = np.linalg.norm(span, axis=1, keepdims=True)
        across = np.stack([-span[:, 1], span[:, 0]], axis=1) / np.where(lengths > 0.0, lengths, 1.0)
        width = SLIM * lengths.max() if self.width is None else self.width
        steps = np.arange(2 * self.coils)
        along = np.concatenate([[0.0, 0.1], 0.1 + 0.8 * (steps + 0.5) / steps.size, [0.9, 1.0]])
        sides = np.concatenate([[0.0, 0.0], np.where(steps % 2, -0.5, 0.5) * width, [0.0, 0.0]])
        return values[:, None, :2] + along[:, None] * span[:, None] + sides[:, None] * across[:, None]


@dataclass(frozen=True, eq=False)
class Ground(Shape):
    """What bodies stand on: a horizontal line, a straight one of any direction, or a way through points.

    Parameters
    ----------
    height : SX scalar or float
        Of a horizontal line that has no end [m]; 0 unless something else is given.
    point, normal : (2,), optional
        A place on a straight line that has no end, and its direction towards the free side.
    points : sequence of (2,), optional
        A way; the free side is on the left of those who walk it.
    band : bool
        Whether what is behind is filled; a rail has nothing behind it.
    """

    body: ClassVar[bool] = False

    height: Any = None
    point: Any = field(default=None, kw_only=True)
    normal: Any = field(default=None, kw_only=True)
    points: Any = field(default=None, kw_only=True)
    band: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        straight = self.point is not None or self.normal is not None
        if (self.height is not None) + straight + (self.points is not None) > 1:
            raise ModelError("Ground: give either points, or point and normal, or a height.")
        if self.points is not None:
            self._become(numbers=_points(self.points, "Ground: points", 2))
            return
        if (self.point is None) != (self.normal is None):
            raise ModelError("Ground: a straight line needs both, point= and normal=.")
        height = _number(0.0 if self.height is None else self.height, "Ground: height")
        place = ca.vertcat(0, height) if self.point is None else self.point
        normal = _point(ca.DM([0.0, 1.0]) if self.normal is None else self.normal, "Ground: normal")
        if normal.is_constant() and not np.any(np.array(ca.evalf(normal))):
            raise ModelError("Ground: normal: expected a direction towards the free side, given zeros.")
        self._become(numbers=ca.vertcat(_point(place, "Ground: point"), normal))

    @property
    def endless(self) -> bool:
        """Whether it is a straight line without an end; its numbers are then a point and the normal."""
        return self.points is None


@dataclass(frozen=True, eq=False)
class Arrow(Shape):
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
    """

    body: ClassVar[bool] = False

    start: Any
    vector: Any
    scale: float | None = None
    unit: str = field(default="N", kw_only=True)
    label: str = field(default="", kw_only=True)
    colour: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check_look()
        if self.scale is not None:
            self._become(scale=scalar(self.scale, "Arrow: scale"))
            _positive(ca.SX(self.scale), "Arrow: scale")
        self._become(numbers=ca.vertcat(_point(self.start, "Arrow: start"), _point(self.vector, "Arrow: vector")))


@dataclass(frozen=True, eq=False)
class Trail(Shape):
    """The path of a point (2,) up to now."""

    body: ClassVar[bool] = False

    point: Any
    colour: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check_look()
        self._become(numbers=_point(self.point, "Trail: point"))


@dataclass(frozen=True, eq=False)
class Mark(Shape):
    """Where the events `name` (of a contact, a guard, a switching function) happen: a point (2,), marked then."""

    body: ClassVar[bool] = False

    name: str
    point: Any

    def __post_init__(self) -> None:
        self._check_look()
        self._become(numbers=_point(self.point, f"Mark {self.name!r}: point"))


def _point(value: Any, what: str) -> ca.SX:
    return column(value, what, 2)


def _number(value: Any, what: str) -> ca.SX:
    return column(value, what, 1)


def _positive(expression: ca.SX, what: str) -> ca.SX:
    """Refuse constants that are not positive; what is an expression is drawn as it comes."""
    for part in expression.nonzeros() if expression.is_dense() else ca.densify(expression).nonzeros():
        if part.is_constant() and not 0.0 < float(part) < np.inf:
            expected = "a positive number" if expression.numel() == 1 else "positive numbers"
            raise ModelError(f"{what}: expected {expected}, given {float(part):g}.")
    return expression


def _points(value: Any, what: str, least: int) -> ca.SX:
    """Places as one column (2 n,); rows of a matrix (n, 2) are places, too."""
    rows = (
        value if isinstance(value, list | tuple) else ca.vertsplit(value) if isinstance(value, ca.SX | ca.DM) else value
    )
    try:
        places: Sequence[ca.SX] = [_point(row.T if getattr(row, "shape", ()) == (1, 2) else row, what) for row in rows]
    except TypeError:
        raise ModelError(f"{what}: expected a sequence of places (2,), given {type(value).__name__}.") from None
    if len(places) < least:
        raise ModelError(f"{what}: expected {least} or more, given {len(places)}.")
    return ca.vertcat(*places)


def _direction(angle: Array) -> Array:
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _turned(points: Array, angle: Array) -> Array:
    """Points (frames, n, 2) turned by angles (frames,)."""
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    turned: Array = np.stack(
        [c * points[..., 0] - s * points[..., 1], s * points[..., 0] + c * points[..., 1]], axis=-1
    )
    return turned
