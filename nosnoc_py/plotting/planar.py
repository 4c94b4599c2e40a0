"""Planar systems with a scene: their shapes over time as numbers, and the frame that the whole motion fits into."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.plotting.figures import dense_output
from nosnoc_py.solution.arrays import Array
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.systems import scene
from nosnoc_py.systems.described import Described

MOST, SEEN = 4000, 1000  # points in time by which a motion is known, and of them for the limits of a picture
MARGIN, BAND, NARROW = 0.06, 0.05, 0.3  # of the greater side of a picture: margin, ground, least other side
NEAR = 0.6  # as far from all bodies as this a straight ground need not be seen
LONGEST = 0.25  # of the greater side: arrows of their own scale


@dataclass(frozen=True, kw_only=True)
class PlanarView:
    """Limits of a picture [m]."""

    left: float
    right: float
    bottom: float
    top: float

    @property
    def size(self) -> float:
        """The greater side."""
        return max(self.right - self.left, self.top - self.bottom)

    @property
    def ratio(self) -> float:
        """Height over width."""
        return (self.top - self.bottom) / (self.right - self.left)

    @classmethod
    def around(cls, points: Array) -> PlanarView:
        """A view of points (n, 2), with margins, and no thin strip."""
        low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
        size = float(np.max(high - low)) or 1.0
        low, high = low - MARGIN * size, high + MARGIN * size
        # A motion along a line would give a strip without height.
        more = np.maximum(NARROW * size - (high - low), 0.0) / 2
        low, high = low - more, high + more
        return cls(left=float(low[0]), right=float(high[0]), bottom=float(low[1]), top=float(high[1]))

    def with_ratio(self, ratio: float) -> PlanarView:
        """Return the view, made wider or higher until height over width is `ratio`."""
        width = max(self.right - self.left, (self.top - self.bottom) / ratio)
        x, y, height = (self.left + self.right) / 2, (self.bottom + self.top) / 2, ratio * width
        return PlanarView(left=x - width / 2, right=x + width / 2, bottom=y - height / 2, top=y + height / 2)


@dataclass(frozen=True, eq=False)
class PlanarMotion:
    """A system with a scene, and what it does: everything that is drawn, as numbers."""

    system: Described
    trajectory: Trajectory

    def __post_init__(self) -> None:
        if not self.system.scene:
            raise OptionError(no_scene(self.system))
        system, trajectory = self.system, self.trajectory
        names_in_motion = trajectory.control_names if len(trajectory.u) else system.control_names
        states, controls = (system.state_names, trajectory.state_names), (system.control_names, names_in_motion)
        named = {"states": states, "controls": controls}
        for kind, (names, names_in_motion) in named.items():
            # in numerical time the clock is one more state, and its speed one more control
            if names_in_motion not in (names, (*names, *names_in_motion[-1:])):
                raise OptionError(
                    f"expected a trajectory of this system, with the {kind} {', '.join(names)}, given one with "
                    f"{', '.join(names_in_motion) or 'none'}."
                )

    @property
    def shapes(self) -> tuple[scene.PlanarShape, ...]:
        """The shapes of the scene."""
        return self.system.drawing.shapes

    def at(self, t: Array, x: Array | None = None) -> list[Array]:
        """Return the numbers (frames, k) of all shapes at times (frames,); at a jump those after it."""
        states = np.atleast_2d(self.trajectory(t)) if x is None else x
        states = states[:, : len(self.system.state_names)]
        return self.system.drawing(states, self._controls(t), self._parameters)

    def _controls(self, t: Array) -> Array:
        """Controls (frames, n_u); zeros where the trajectory has none. A speed of time is not one of the system."""
        n_u = self.system.n_u
        if not len(self.trajectory.u):
            return np.zeros((len(t), n_u))
        grid = self.trajectory.u_grid
        return np.atleast_2d(self.trajectory.control(np.clip(t, grid[0], grid[-1])))[:, :n_u]

    @cached_property
    def _parameters(self) -> Array:
        known = self.trajectory.parameters
        names, defaults = self.system.parameter_names, self.system.p_or_zeros
        return np.array([known.get(name, default) for name, default in zip(names, defaults, strict=True)])

    @cached_property
    def dense(self) -> tuple[Array, list[Array]]:
        """Times (n,), and numbers (n, k) of all shapes; NaN between the sides of a jump."""
        t, x = dense_output(self.trajectory, int(np.clip(MOST // len(self.trajectory.t), 2, 16)))
        return t, self.at(t, x)

    @cached_property
    def marks(self) -> list[tuple[float, bool, Array]]:
        """Time, True for an impact, and place (2,) of all events that the scene has a mark for."""
        places = [(shape.name, k) for k, shape in enumerate(self.shapes) if isinstance(shape, scene.Mark)]
        marked = {name for name, _ in places}
        # An impact is followed by a contact at the same time: one mark for both.
        impacts = {(event.name, event.time) for event in self.trajectory.impacts}
        events = [
            event
            for event in self.trajectory.events
            if event.name in marked and (event.kind == "impact" or (event.name, event.time) not in impacts)
        ]
        if not events:
            return []
        values = self.at(np.array([event.time for event in events]))
        return [
            (event.time, event.kind == "impact", values[k][i])
            for i, event in enumerate(events)
            for name, k in places
            if name == event.name
        ]

    @cached_property
    def view(self) -> PlanarView:
        """Limits with all bodies at all times, trails, arrows, and grounds that are not far away."""
        # Outlines of all points are slow; limits need no more.
        every = max(1, len(self.dense[0]) // SEEN)
        shown = [
            _box(shape.outline(values[::every]))
            for shape, values in zip(self.shapes, self.dense[1], strict=True)
            if shape.body or isinstance(shape, scene.Trail) or (isinstance(shape, scene.Ground) and not shape.endless)
        ]
        points = np.vstack([np.zeros((0, 2)), *shown, *[place[None] for *_, place in self.marks]])
        points = points[np.isfinite(points).all(axis=1)]
        if not len(points):
            points = np.zeros((1, 2))
        # Arrows are scaled by the size of the picture without them, then included in it.
        size = PlanarView.around(points).size
        tips = [self._tips(k, self.scales(size)[k]) for k in self._arrows]
        return PlanarView.around(np.vstack([points, *self._feet(points, size), *tips]))

    def _feet(self, points: Array, size: float) -> list[Array]:
        """Return points of endless grounds below points that are not far away, with the band that is drawn."""
        low, high = points.min(axis=0), points.max(axis=0)
        corners = np.array([low, high, [low[0], high[1]], [high[0], low[1]]])
        feet = []
        for shape, values in zip(self.shapes, self.dense[1], strict=True):
            if isinstance(shape, scene.Ground) and shape.endless:
                point, normal = values[0, :2], values[0, 2:] / (np.linalg.norm(values[0, 2:]) or 1.0)
                gaps = (corners - point) @ normal
                near = np.abs(gaps) <= NEAR * size
                feet.append((corners - np.outer(gaps, normal))[near] - BAND * size * normal)
        return feet

    @cached_property
    def _arrows(self) -> list[int]:
        return [k for k, shape in enumerate(self.shapes) if isinstance(shape, scene.Arrow)]

    def longest(self, k: int) -> float:
        """The greatest length of a vector, in its unit."""
        lengths = np.linalg.norm(self.dense[1][k][:, 2:], axis=1)
        return float(np.nanmax(lengths)) if np.isfinite(lengths).any() else 0.0

    def scales(self, size: float) -> dict[int, float]:
        """Length of every arrow per unit of its vector [m]; arrows of the same unit have the same."""
        scales_by_arrow: dict[int, float] = {}
        for k in self._arrows:
            arrow = self.shapes[k]
            assert isinstance(arrow, scene.Arrow)
            alike = [j for j in self._arrows if getattr(self.shapes[j], "unit", None) == arrow.unit]
            longest = max(self.longest(j) for j in alike)
            scales_by_arrow[k] = arrow.scale or (LONGEST * size / longest if longest > 0.0 else 0.0)
        return scales_by_arrow

    def _tips(self, k: int, scale: float) -> Array:
        values = self.dense[1][k]
        tips = values[:, :2] + scale * values[:, 2:]
        return tips[np.isfinite(tips).all(axis=1)]


def no_scene(system: Described) -> str:
    """Return the message for a system without a scene."""
    name = "q" if "q" in system.groups else "x"
    place = f"{name}[:2]" if getattr(system, name).shape[0] > 1 else f"[0, {name}[0]]"
    kinds = ", ".join(kind.__name__ for kind in scene.PlanarShape.__subclasses__())
    return (
        f"this {type(system).__name__} has no scene; say what it looks like: ns.{type(system).__name__}(..., "
        f"scene=[ns.scene.Disc({place}, 0.1), ns.scene.Ground(height=0)]). Shapes of ns.scene: {kinds}."
    )


def _box(outlines: Array) -> Array:
    """The lower left and the upper right corner (2, 2) of points (frames, n, 2), of which some are NaN."""
    points = outlines.reshape(-1, 2)
    points = points[np.isfinite(points).all(axis=1)]
    return np.array([points.min(axis=0), points.max(axis=0)]) if len(points) else np.zeros((0, 2))
